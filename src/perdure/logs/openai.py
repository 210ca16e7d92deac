"""Lists of chat messages, OpenAI's way or Anthropic's (ENG-6).

Read are a JSON array of messages, an object that holds one (`messages`, `traj`, `conversation`, `trajectory`, …), an
array of such objects (tau-bench: one session each), and JSONL of messages or of such objects. Content parts that are
Anthropic blocks keep their bytes; OpenAI's own parts become the blocks they stand for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from perdure.logs.reading import (
    BEYOND_READING,
    UNREADABLE,
    Problems,
    ResponseInfo,
    TrajectoryBuilder,
    blocks,
    documents,
    epoch,
    object_of,
    openai_usage,
    stem,
    text_of_value,
    texts,
    what_is_wrong,
)
from perdure.logs.recording import Recording
from perdure.transcript.blocks import Block, anthropic_tool, tool_problem
from perdure.transcript.messages import Origin
from perdure.transcript.plain import image_of

LISTS: Final = ("messages", "traj", "conversation", "conversations", "trajectory", "history", "input")
_NAMES: Final = ("instance_id", "task_id", "session_id", "conversation_id", "id")
_SPEAKERS: Final = {
    "ai": "assistant",
    "model": "assistant",
    "gpt": "assistant",
    "bot": "assistant",
    "human": "user",
    "function": "tool",
    "developer": "system",
}
_OWN_TEXT: Final = ("input_text", "output_text")

Data = dict[str, Any]
Fields = dict[str, msgspec.Raw]

_FIELDS = msgspec.json.Decoder(Fields)
_LIST = msgspec.json.Decoder(list[msgspec.Raw])


class _Part(msgspec.Struct):
    type: Any = None
    text: Any = None
    refusal: Any = None
    image_url: Any = None


_PART = msgspec.json.Decoder(_Part)


@dataclass(frozen=True, slots=True)
class Trajectory:
    """A list of messages and what was told beside it. `line` is where it begins."""

    line: int
    fields: Fields
    messages: list[msgspec.Raw]


def read(data: bytes, name: str) -> tuple[Recording, ...]:
    """The sessions in the file. Never raises."""
    problems = Problems()
    found = list(trajectories(documents(data, problems)))
    sessions = session_names(found, name)
    recordings = [_OpenAIReader(session, t).recording() for session, t in zip(sessions, found, strict=True)]
    return with_problems(recordings, problems, TrajectoryBuilder("openai", stem(name)))


def with_problems(recordings: list[Recording], problems: Problems, empty: TrajectoryBuilder) -> tuple[Recording, ...]:
    """The recordings, at least one; the first also has the problems of the file as a whole."""
    first, *others = recordings or [empty.recording()]
    return (replace(first, problems=(*problems, *first.problems)), *others)


def trajectories(documents: Iterable[tuple[int, bytes]]) -> Iterator[Trajectory]:
    """The lists of messages in the values of a file; messages that stand alone, one to a value, are one list."""
    loose: list[msgspec.Raw] = []
    began = 0
    for line, value in documents:
        if value.lstrip()[:1] == b"[":
            yield from _of_list(line, _LIST.decode(value), {})
        elif (fields := fields_of(value)) is not None:
            if _is_message(fields):
                began = began or line
                loose.append(msgspec.Raw(value))
            else:
                yield from _of_object(line, fields)
    if loose:
        yield Trajectory(began, {}, loose)


def fields_of(value: bytes | msgspec.Raw) -> Fields | None:
    """The members of a JSON object; None for anything else."""
    try:
        return _FIELDS.decode(value)
    except UNREADABLE:
        return None


def items_of(value: msgspec.Raw | None) -> list[msgspec.Raw] | None:
    """The items of a JSON array; None for anything else."""
    try:
        return None if value is None else _LIST.decode(value)
    except UNREADABLE:
        return None


def decoded_member(fields: Fields, key: str) -> Any:
    """The decoded value of a member; None when it is missing or can't be read."""
    try:
        return msgspec.json.decode(fields[key]) if key in fields else None
    except UNREADABLE:
        return None


def _is_message(fields: Fields) -> bool:
    return isinstance(decoded_member(fields, "role"), str) or isinstance(decoded_member(fields, "from"), str)


def _of_list(line: int, items: list[msgspec.Raw], fields: Fields) -> Iterator[Trajectory]:
    first = next((f for f in map(fields_of, items) if f is not None), None)
    if first is None:
        return
    if _is_message(first):
        yield Trajectory(line, fields, items)
        return
    for item in items:
        if (inner := fields_of(item)) is not None:
            yield from _of_object(line, inner)


def _of_object(line: int, fields: Fields) -> Iterator[Trajectory]:
    for key in LISTS:
        items = items_of(fields.get(key))
        if items:
            yield from _of_list(line, items, fields)
            return
    for value in fields.values():  # a report that holds runs: {"results": [{"traj": […]}, …]}
        items = items_of(value) if bytes(value).startswith(b"[") else None
        inner = fields_of(items[0]) if items else None
        if items and inner is not None and any(items_of(inner.get(key)) for key in LISTS):
            yield from _of_list(line, items, {})


def session_names(found: list[Trajectory], name: str) -> list[str]:
    """One name each: its own id, `<stem>#<id>` when that is a number, `<stem>#<n>` when there is none or it repeats."""
    names: list[str] = []
    for index, trajectory in enumerate(found):
        own = next((v for v in (decoded_member(trajectory.fields, key) for key in _NAMES) if v not in (None, "")), None)
        wanted = stem(name)
        if isinstance(own, str):
            wanted = own
        elif len(found) > 1:
            wanted = f"{stem(name)}#{own if isinstance(own, int) else index + 1}"
        while wanted in names:
            wanted = f"{wanted}#{index + 1}"
        names.append(wanted)
    return names


class _OpenAIReader:
    def __init__(self, session: str, trajectory: Trajectory) -> None:
        self._build = TrajectoryBuilder("openai", session)
        self._trajectory = trajectory
        self._front(trajectory.fields)

    def _front(self, fields: Fields) -> None:
        system = decoded_member(fields, "system")
        if isinstance(system, str):
            self._build.system += texts(system)
        elif isinstance(system, list):
            self._build.system += blocks(items_of(fields["system"]) or [], 0, self._build.problems)
        names: set[str] = set()
        for number, raw in enumerate(items_of(fields.get("tools")) or []):
            if wrong := tool_problem(bytes(raw), names):
                self._build.problems.add(0, f"tools[{number}]: {wrong}: left out")
            else:
                self._build.tools.append(msgspec.Raw(anthropic_tool(bytes(raw))))

    def recording(self) -> Recording:
        for number, raw in enumerate(self._trajectory.messages, 1):
            fields = fields_of(raw)
            if fields is None:
                self._build.problems.add(number, "message is not an object")
                continue
            try:
                self._message(number, fields)
            except BEYOND_READING as e:
                self._build.problems.add(number, what_is_wrong(e))
        model = decoded_member(self._trajectory.fields, "model")
        return self._build.recording(model=model if isinstance(model, str) else None)

    def _message(self, number: int, fields: Fields) -> None:
        role = decoded_member(fields, "role") or decoded_member(fields, "from")
        speaker = _SPEAKERS.get(role, role) if isinstance(role, str) else None
        content = self._content(number, fields)
        at = _time(fields)
        if speaker == "system":
            if self._build.steps:
                self._build.say(number, "system", content, at=at)
            else:
                self._build.system += content
        elif speaker == "assistant":
            content += self._calls(number, fields)
            self._build.say(number, "model", content, answer=_answer(fields), at=at)
        elif speaker == "tool":
            self._build.say(number, "tool", [self._result(number, fields, content)], at=at)
        elif speaker == "user":
            has_result = any(block.type == "tool_result" for block in content)
            origin: Origin = "tool" if has_result else "user"
            self._build.say(number, origin, content, at=at)
        else:
            self._build.problems.add(number, f"message of an unknown role: {text_of_value(role)[:40]}")

    def _content(self, number: int, fields: Fields) -> list[Block]:
        key = next((key for key in ("content", "value", "text") if key in fields), "content")
        value = fields.get(key)
        parts = items_of(value)
        if parts is None:
            text = decoded_member(fields, key)
            if text is None:
                return []
            return texts(text if isinstance(text, str) else text_of_value(text))
        return [self._build.adopt(block) for raw in parts for block in self._part(number, raw)]

    def _part(self, number: int, raw: msgspec.Raw) -> list[Block]:
        try:
            part = _PART.decode(raw)
        except UNREADABLE:
            text = msgspec.json.decode(raw) if bytes(raw).startswith(b'"') else None
            if not isinstance(text, str):
                self._build.problems.add(number, "content part is not an object")
                return []
            return texts(text)
        if part.type == "text" and part.text == "":
            return []
        if part.type in _OWN_TEXT:
            return texts(text_of_value(part.text or ""))
        if part.type == "refusal":
            return texts(text_of_value(part.refusal or ""))
        if part.type in ("image_url", "input_image"):
            url = part.image_url.get("url") if isinstance(part.image_url, dict) else part.image_url
            return [image_of(url)] if isinstance(url, str) else []
        return blocks([raw], number, self._build.problems)

    def _calls(self, number: int, fields: Fields) -> list[Block]:
        made = []
        calls = decoded_member(fields, "tool_calls")
        for index, call in enumerate(calls if isinstance(calls, list) else []):
            if isinstance(call, dict):
                function = call.get("function", call.get("custom", call))
                made.append(self._call(function, call.get("id"), f"call-{number}-{index}"))
        if isinstance(function := decoded_member(fields, "function_call"), dict):
            made.append(self._call(function, None, f"call-{number}"))
        return made

    def _call(self, function: Any, logged_id: Any, otherwise: str) -> Block:
        told = function if isinstance(function, dict) else {}
        arguments = told.get("arguments", told.get("input", {}))
        name = text_of_value(told.get("name") or "unnamed")
        return self._build.call(name, object_of(arguments), logged_id if isinstance(logged_id, str) else otherwise)

    def _result(self, number: int, fields: Fields, content: list[Block]) -> Block:
        logged = decoded_member(fields, "tool_call_id")
        call = self._build.answered(logged if isinstance(logged, str) and logged else None, number)
        if all(block.type == "text" for block in content) and len(content) <= 1:
            text = decoded_member(fields, "content")
            return self._build.result(call, text if isinstance(text, str) else _text_of(content))
        return self._build.result(call, [msgspec.json.decode(block.raw) for block in content])


def _text_of(content: list[Block]) -> str:
    return "".join(getattr(block.value, "text", "") for block in content)


def _time(fields: Fields) -> float | None:
    for key in ("timestamp", "created_at", "created", "time"):
        value = decoded_member(fields, key)
        if isinstance(value, str):
            return epoch(value)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    return None


def _answer(fields: Fields) -> ResponseInfo:
    """What an assistant message tells of its API response."""
    model, logged_id, stop = (decoded_member(fields, key) for key in ("model", "id", "stop_reason"))
    return ResponseInfo(
        usage=openai_usage(decoded_member(fields, "usage")),
        model=model if isinstance(model, str) else None,
        response_id=logged_id if isinstance(logged_id, str) else None,
        stop_reason=stop if isinstance(stop, str) else None,
    )
