"""SWE-agent and mini-swe-agent trajectories (ENG-6).

Their models act by writing a command, and see what it did as a plain user message. Here a command is a `tool_use` and
the observation after it the `tool_result`, so that such a run can be shrunk like any other. Where the log has real tool
calls, those are read.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from perdure.logs.openai import Fields, Trajectory, decoded_member, fields_of, items_of, session_names, with_problems
from perdure.logs.reading import (
    BEYOND_READING,
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
from perdure.logs.recording import Format, Recording
from perdure.transcript.blocks import Block
from perdure.transcript.messages import Origin

COMMAND_TOOL: Final = "Bash"
_MINI_BLOCK: Final = re.compile(r"```(?:bash|mswea_bash_command)[ \t]*\n(.*?)\n?```", re.DOTALL)
_FENCED: Final = re.compile(r"```[^\n`]*\n(.*?)\n?```|<command>\n?(.*?)\n?</command>", re.DOTALL)
_RETURN_CODE: Final = re.compile(r"\A\s*<returncode>\s*(-?\d+)")
_NO_NAMES: Final = frozenset({"replay", "human", "instant_empty_submit"})  # "models" that are none


def read(data: bytes, name: str) -> tuple[Recording, ...]:
    """The runs in the file, of either program. Never raises."""
    problems = Problems()
    found = [run for line, value in documents(data, problems) for run in _runs(line, value)]
    sessions = session_names(found, name)
    recordings = [_recording(session, run) for session, run in zip(sessions, found, strict=True)]
    return with_problems(recordings, problems, TrajectoryBuilder("swe-agent", stem(name)))


def _runs(line: int, value: bytes) -> list[Trajectory]:
    """A file holds one run as an object, several in a list, or a bare list of messages or steps."""
    fields = fields_of(value)
    if fields is not None:
        return [_run(line, fields)]
    inner = [f for f in map(fields_of, items_of(msgspec.Raw(value)) or []) if f is not None]
    if any("history" in f or "trajectory" in f or "messages" in f for f in inner):
        return [_run(line, f) for f in inner]
    return [_run(line, {"history" if "role" in f else "trajectory": msgspec.Raw(value)}) for f in inner[:1]]


def _run(line: int, fields: Fields) -> Trajectory:
    for key in ("messages", "history", "trajectory"):
        items = items_of(fields.get(key))
        if items:
            return Trajectory(line, fields, items)
    return Trajectory(line, fields, [])


def _recording(session: str, run: Trajectory) -> Recording:
    form = decoded_member(run.fields, "trajectory_format")
    is_mini = "messages" in run.fields and "history" not in run.fields
    if not is_mini and isinstance(form, str):
        is_mini = form.startswith("mini")
    reader = _SweAgentReader("mini-swe-agent" if is_mini else "swe-agent", session)
    return reader.read(run)


class _SweAgentReader:
    def __init__(self, form: Format, session: str) -> None:
        self._build = TrajectoryBuilder(form, session)
        self._is_mini = form == "mini-swe-agent"
        self._asked = False

    def read(self, run: Trajectory) -> Recording:
        for number, raw in enumerate(run.messages, 1):
            fields = fields_of(raw)
            if fields is None:
                self._build.problems.add(number, "message is not an object")
                continue
            is_step = "role" not in fields and "action" in fields
            try:
                (self._step if is_step else self._message)(number, fields)
            except BEYOND_READING as e:
                self._build.problems.add(number, what_is_wrong(e))
        return self._build.recording(model=self._build.model or _model(run.fields))

    def _step(self, number: int, fields: Fields) -> None:
        """A step of a trajectory without a history: thought, action, observation."""
        thought, action, observation = (
            _words(decoded_member(fields, key)) for key in ("thought", "action", "observation")
        )
        content = texts(thought or _words(decoded_member(fields, "response")))
        if action.strip():
            content.append(self._build.call(COMMAND_TOOL, {"command": action}, f"call-{number}"))
        self._build.say(number, "model", content, answer=_answer(fields))
        if action.strip():
            self._observe(number, observation)

    def _message(self, number: int, fields: Fields) -> None:
        role = decoded_member(fields, "role")
        if role == "system":
            if self._build.steps:
                self._build.say(number, "system", self._content(number, fields))
            else:
                self._build.system += self._content(number, fields)
        elif role in ("assistant", "ai"):
            self._build.close_calls()
            self._build.say(number, "model", self._acted(number, fields), answer=_answer(fields), at=_at(fields))
        elif role in ("user", "tool"):
            self._heard(number, fields, role)
        elif role != "exit":  # how the run ended, told to nobody
            self._build.problems.add(number, f"message of an unknown role: {text_of_value(role)[:40]}")

    def _heard(self, number: int, fields: Fields, role: str) -> None:
        """An observation, if a call waits for one; else a prompt, a demonstration, or a complaint of the scaffold."""
        if (self._build.has_open_call() and not decoded_member(fields, "is_demo")) or role == "tool":
            self._observe(number, _words(decoded_member(fields, "content")), _answered_id(fields), _at(fields))
            return
        origin: Origin = "reminder" if self._asked or decoded_member(fields, "is_demo") else "user"
        self._asked = self._asked or origin == "user"
        self._build.say(number, origin, self._content(number, fields), at=_at(fields))

    def _observe(self, number: int, text: str, logged_id: str | None = None, at: float | None = None) -> None:
        code = _RETURN_CODE.match(text)
        call = self._build.answered(logged_id, number)
        result = self._build.result(call, text, code is not None and int(code[1]) != 0)
        self._build.say(number, "tool", [result], at=at, wanted=f"result-{number}")

    def _content(self, number: int, fields: Fields) -> list[Block]:
        parts = items_of(fields.get("content"))
        if parts is not None:
            return [b for b in blocks(parts, number, self._build.problems) if getattr(b.value, "text", "-") != ""]
        return texts(_words(decoded_member(fields, "content")))

    def _acted(self, number: int, fields: Fields) -> list[Block]:
        """What the model said and did in one message."""
        thinking = items_of(fields.get("thinking_blocks"))
        content = blocks(thinking, number, self._build.problems) if thinking else []
        calls = decoded_member(fields, "tool_calls")
        if isinstance(calls, list) and calls:
            content += texts(_words(decoded_member(fields, "content")))
            return content + [self._called(number, i, c) for i, c in enumerate(calls) if isinstance(c, dict)]
        text, action = self._split(_words(decoded_member(fields, "content")), fields)
        content += texts(text)
        if action is not None:
            content.append(self._build.call(COMMAND_TOOL, {"command": action}, f"call-{number}"))
        return content

    def _called(self, number: int, index: int, call: dict[str, Any]) -> Block:
        function = call.get("function")
        function = function if isinstance(function, dict) else call
        logged = call.get("id")
        logged_id = logged if isinstance(logged, str) and logged else f"call-{number}-{index}"
        name = text_of_value(function.get("name") or COMMAND_TOOL)
        return self._build.call(name, object_of(function.get("arguments", {})), logged_id)

    def _split(self, content: str, fields: Fields) -> tuple[str, str | None]:
        """The words of a message and its command; None when it has none, or more than the one that is allowed."""
        action = decoded_member(fields, "action")
        if isinstance(action, str):
            thought = decoded_member(fields, "thought")
            return (thought if isinstance(thought, str) else content), action if action.strip() else None
        found = list((_MINI_BLOCK if self._is_mini else _FENCED).finditer(content))
        if not found or (self._is_mini and len(found) > 1):
            return content, None
        last = found[-1]
        words = f"{content[: last.start()].rstrip()}\n{content[last.end() :].lstrip()}".strip()
        return words, next(group for group in last.groups() if group is not None)


def _words(content: Any) -> str:
    """Text of a content: a string, or the text parts of a list."""
    if isinstance(content, list):
        return "\n".join(_words(p.get("text")) for p in content if isinstance(p, dict) and p.get("text"))
    return "" if content is None else text_of_value(content)


def _answered_id(fields: Fields) -> str | None:
    several = decoded_member(fields, "tool_call_ids")
    logged = several[0] if isinstance(several, list) and several else decoded_member(fields, "tool_call_id")
    return logged if isinstance(logged, str) else None


def _at(fields: Fields) -> float | None:
    extra = decoded_member(fields, "extra")
    stamp = extra.get("timestamp") if isinstance(extra, dict) else decoded_member(fields, "timestamp")
    if isinstance(stamp, int | float) and not isinstance(stamp, bool):
        return float(stamp)
    return epoch(stamp) if isinstance(stamp, str) else None


def _answer(fields: Fields) -> ResponseInfo:
    """What mini-swe-agent keeps of the API response."""
    extra = decoded_member(fields, "extra")
    response = extra.get("response") if isinstance(extra, dict) else None
    if not isinstance(response, dict):
        return ResponseInfo()
    model, logged_id = response.get("model"), response.get("id")
    return ResponseInfo(
        usage=openai_usage(response.get("usage")),
        model=model if isinstance(model, str) else None,
        response_id=logged_id if isinstance(logged_id, str) and logged_id else None,
    )


def _model(fields: Fields) -> str | None:
    """The model of the run, as its configuration names it."""
    config = decoded_member(fields, "replay_config")
    if isinstance(config, str):
        config = object_of(config)
    info = decoded_member(fields, "info")
    for holder in (config, info.get("config") if isinstance(info, dict) else None):
        agent = holder.get("agent") if isinstance(holder, dict) else None
        for place in (agent, holder):
            model = place.get("model") if isinstance(place, dict) else None
            if isinstance(model, dict):
                name = model.get("name") or model.get("model_name")
                if isinstance(name, str) and name not in _NO_NAMES:
                    return name
    return None
