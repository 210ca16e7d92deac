"""Codex rollouts: `sessions/…/rollout-*.jsonl` (ENG-6).

A line is an item of the conversation (`response_item`), or tells of it. One API response is what the model said between
two `token_count` events, which state its usage after the results of its calls. Reasoning items are encrypted or empty
and are skipped. `compacted` replaces the history by a list of what was kept; its own `message` is always empty.

The log of a fork begins with a `session_meta` of its own, and goes on with a copy of the lines of the session that it
was forked from, theirs included; only the times are new. What is copied has the ids that it has there.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from perdure.logs.reading import (
    BEYOND_READING,
    Problems,
    ResponseInfo,
    TrajectoryBuilder,
    decode_leniently,
    epoch,
    lines,
    object_of,
    openai_usage,
    readable,
    stem,
    text_of_value,
    texts,
    what_is_wrong,
)
from perdure.logs.recording import LoggedCompaction, LoggedRewind, RecordedMessage, Recording
from perdure.transcript.blocks import Block, ToolResult, ToolUse, text_block
from perdure.transcript.messages import Message, MessageId, Origin, Usage, content_of
from perdure.transcript.plain import image_of
from perdure.transcript.response_items import DEFAULT_NAMESPACE
from perdure.transcript.tool_calls.refusals import answered_calls

_NOT_TYPED: Final = (
    "# AGENTS.md instructions",
    "<environment_context>",
    "<user_instructions>",
    "<INSTRUCTIONS>",
    "<skill>",
    "<turn_aborted>",
    "<subagent_notification>",
    "<permissions instructions>",
)
_CALLS: Final = frozenset({"function_call", "custom_tool_call", "local_shell_call", "tool_search_call"})
_RESULTS: Final = frozenset(
    {"function_call_output", "custom_tool_call_output", "local_shell_call_output", "tool_search_output"}
)
_EXIT: Final = re.compile(r"^(?:Process exited with code|Exit code:) (-?\d+)", re.MULTILINE)
_HEAD_CHARS: Final = 400  # the outcome of a command stands before its output
_SEARCHED: Final = "(The provider ran this search itself; what it found is not in the log.)"

Data = dict[str, Any]


class _CodexLine(msgspec.Struct):
    type: str | None = None
    timestamp: str | None = None
    payload: msgspec.Raw = msgspec.Raw(b"")


_DECODE = msgspec.json.Decoder(_CodexLine).decode
_OBJECT = msgspec.json.Decoder(dict[str, Any])


def read(data: bytes, name: str, *, first_line: int = 1) -> tuple[Recording, ...]:
    """The session in the file, or in a part of it that begins with a line. Never raises."""
    reader = _CodexReader(name)
    for number, line in lines(data, first_line):
        reader.take(number, line)
    return (reader.recording(),)


class _CodexReader:
    def __init__(self, name: str) -> None:
        self._build = TrajectoryBuilder("codex", stem(name))
        self._problems: Problems = self._build.problems
        self._response = 0
        self._response_began: int | None = None  # index of the first step of the open response
        self._counted: Any = None
        self._tools: dict[str, str] = {}  # the names of those that were called and have no result yet, by their calls
        self._model: str | None = None
        self._window: int | None = None
        self._cwd: str | None = None
        self._branch: str | None = None
        self._is_sub_agent = False
        self._id: str | None = None
        self._root: str | None = None

    def take(self, number: int, line: bytes) -> None:
        line = readable(line, number, self._problems)
        entry = decode_leniently(_DECODE, _CodexLine, line, number, self._problems) if line else None
        if entry is None:
            return
        is_bare = not bytes(entry.payload).startswith(b"{")  # as in the first versions: the line is the item
        try:
            payload = _OBJECT.decode(line if is_bare else bytes(entry.payload))
            self._line(number, entry, payload, is_bare)
        except BEYOND_READING as e:
            self._problems.add(number, f"payload: {what_is_wrong(e)}")

    def _line(self, number: int, entry: _CodexLine, payload: Data, is_bare: bool) -> None:
        at = epoch(entry.timestamp)
        if entry.type == "session_meta" or (entry.type is None and "id" in payload):
            self._meta(payload)
        elif entry.type == "turn_context":
            self._model = _string(payload, "model") or self._model
            self._cwd = self._cwd or _string(payload, "cwd")
        elif entry.type == "event_msg":
            self._event(number, payload)
        elif entry.type == "compacted":
            self._compacted(number, at, payload)
        elif entry.type == "response_item" or is_bare:
            self._item(number, at, payload)
        elif entry.type is None:
            self._problems.add(number, "line without a type")

    def _meta(self, payload: Data) -> None:
        identity = _string(payload, "id")
        if self._id is not None and identity not in (None, self._id):  # that of the session it was forked from
            self._build.forks, self._root = self._build.forks + 1, identity
            return
        if self._id is None and identity is not None:
            self._id, self._build.session = identity, identity
            self._root = _string(payload, "forked_from_id") or identity
        self._cwd = _string(payload, "cwd") or self._cwd
        source, git = payload.get("source"), payload.get("git")
        self._is_sub_agent = isinstance(source, dict) and "subagent" in source
        self._branch = (_string(git, "branch") if isinstance(git, dict) else None) or self._branch
        base = payload.get("base_instructions") or payload.get("instructions")
        text = _string(base, "text") if isinstance(base, dict) else base
        if isinstance(text, str) and text and not self._build.system:
            self._build.system.append(text_block(text))

    # --- items

    def _item(self, number: int, at: float | None, item: Data) -> None:
        kind = _string(item, "type")
        if kind == "message":
            content = _parts(item.get("content"))
            origin = _origin(item.get("role"), content)
            self._say(number, at, origin, content, item)
        elif kind in _CALLS:
            self._call(number, at, item)
        elif kind == "web_search_call":
            self._searched(number, at, item)
        elif kind in _RESULTS:
            output, is_error = _output(item)
            logged = _string(item, "call_id") or _string(item, "id")
            call = self._build.answered(logged, number)
            result = self._build.result(call, output, is_error)
            asked = answered_calls([result.value], self._tools, "codex") if isinstance(result.value, ToolResult) else ()
            self._tools.pop(call, None)
            self._build.say(number, "tool", [result], at=at, answered=asked)

    def _say(self, number: int, at: float | None, origin: Origin, content: list[Block], item: Data) -> None:
        answer = ResponseInfo()
        if origin == "model" and content:
            if self._response_began is None:
                self._response_began = len(self._build.steps)
                self._response += 1
            answer = ResponseInfo(model=self._model, response_id=f"response-{self._response}")
        self._build.say(number, origin, content, answer=answer, at=at, wanted=_string(item, "id"))

    def _call(self, number: int, at: float | None, item: Data) -> None:
        kind = str(item["type"])
        given: Any = next((item[key] for key in ("arguments", "input", "action") if item.get(key) is not None), {})
        arguments = object_of(given)
        if "_raw" in arguments and not isinstance(given, dict):
            arguments = {"input": given}
        name = _string(item, "name") or kind.removesuffix("_call")
        logged = _string(item, "call_id") or _string(item, "id") or f"call-{number - self._build.forks}"
        call = self._build.call(name, arguments, logged)
        is_of_server = item.get("namespace") not in (None, "", DEFAULT_NAMESPACE)  # which names it as it likes
        if isinstance(call.value, ToolUse) and not is_of_server:
            self._tools[call.value.id] = name
        self._say(number, at, "model", [call], item)

    def _searched(self, number: int, at: float | None, item: Data) -> None:
        """A search that the provider ran: a call like any other, answered at once by a note that says so."""
        logged = _string(item, "call_id") or _string(item, "id") or f"call-{number - self._build.forks}"
        self._say(
            number, at, "model", [self._build.call("web_search", object_of(item.get("action") or {}), logged)], item
        )
        self._build.say(number, "tool", [self._build.result(self._build.answered(logged, number), _SEARCHED)], at=at)

    # --- events

    def _event(self, number: int, payload: Data) -> None:
        kind = payload.get("type")
        if kind == "token_count" and isinstance(info := payload.get("info"), dict):
            self._window = _count(info.get("model_context_window")) or self._window
            self._tokens(info)
        elif kind == "task_started":
            self._window = _count(payload.get("model_context_window")) or self._window
        elif kind == "thread_rolled_back":
            self._rolled_back(number, _count(payload.get("num_turns")) or 0)

    def _tokens(self, info: Data) -> None:
        total, last = info.get("total_token_usage"), info.get("last_token_usage")
        usage = openai_usage(last)
        if usage is None or not isinstance(last, dict):
            return
        if usage.total_tokens == 0:  # right after a compaction: the size of what was kept
            self._compacted_to(_count(last.get("total_tokens")))
            return
        if total == self._counted:  # the same counts once more, as with every news of the rate limits
            return
        self._counted = total
        if self._response_began is not None:
            self._close_response(usage)

    def _close_response(self, usage: Usage | None) -> None:
        steps, began = self._build.steps, self._response_began
        if began is None:
            return
        for index in range(began, len(steps)):
            step = steps[index]
            if usage is not None and isinstance(step, RecordedMessage) and step.message.response_id is not None:
                steps[index] = RecordedMessage(
                    msgspec.structs.replace(step.message, usage=usage), step.line, step.logged_only
                )
        self._response_began = None

    def _compacted_to(self, tokens: int | None) -> None:
        for index in range(len(self._build.steps) - 1, -1, -1):
            step = self._build.steps[index]
            if isinstance(step, LoggedCompaction):
                if step.post_tokens is None and tokens:
                    told = LoggedCompaction(
                        step.message_id, step.line, step.trigger, step.pre_tokens, tokens, step.kept
                    )
                    self._build.steps[index] = told
                return

    def _compacted(self, number: int, at: float | None, payload: Data) -> None:
        self._close_response(None)
        boundary = f"line-{number - self._build.forks}"
        self._build.steps.append(LoggedCompaction(boundary, number, "auto"))
        history = payload.get("replacement_history")
        items = history if isinstance(history, list) else []
        if text := _string(payload, "message"):
            items = [*items, {"type": "message", "role": "user", "content": text}]
        for index, item in enumerate(items):
            content = _parts(item.get("content")) if isinstance(item, dict) and item.get("type") == "message" else []
            if content:
                message = Message(
                    id=MessageId(f"{boundary}-{index}"),
                    role="assistant" if item.get("role") == "assistant" else "user",
                    content=content_of(content),
                    origin="summary",
                    at=at,
                )
                self._build.steps.append(RecordedMessage(message, number, logged_only=True))

    def _rolled_back(self, number: int, turns: int) -> None:
        """The user undid the last turns: the conversation goes on from what stood before the first of them."""
        said = [s for s in self._build.steps if isinstance(s, RecordedMessage) and not s.logged_only]
        prompts = [index for index, step in enumerate(said) if step.message.origin == "user"]
        if 0 < turns <= len(prompts) and prompts[-turns] > 0:
            self._build.steps.append(LoggedRewind(to=said[prompts[-turns] - 1].message.id, line=number))
            self._close_response(None)

    def recording(self) -> Recording:
        return self._build.recording(
            model=self._model,
            window_tokens=self._window,
            cwd=self._cwd,
            branch=self._branch,
            is_sub_agent=self._is_sub_agent,
            root=None if self._is_sub_agent else self._root,
        )


def _string(data: Data, key: str) -> str | None:
    value = data.get(key)
    return value if isinstance(value, str) and value else None


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _origin(role: Any, content: list[Block]) -> Origin:
    if role == "assistant":
        return "model"
    if role in ("developer", "system"):
        return "system"
    first = getattr(content[0].value, "text", "") if content else ""
    return "reminder" if first.startswith(_NOT_TYPED) else "user"


def _parts(content: Any) -> list[Block]:
    """The content of a message or a result: text and images."""
    if isinstance(content, str):
        return texts(content)
    made = []
    for part in content if isinstance(content, list) else []:
        if not isinstance(part, dict):
            continue
        if isinstance(part.get("text"), str):
            made += texts(part["text"])
        elif (url := _string(part, "image_url")) is not None:
            made.append(image_of(url))
    return made


def _output(item: Data) -> tuple[str | list[Any], bool]:
    """What a call gave back, and whether it failed."""
    output = item.get("output", item.get("tools"))
    if isinstance(output, dict) and "content" in output:
        return text_of_value(output["content"]), output.get("success") is False
    if isinstance(output, list) and "output" in item:
        return [msgspec.json.decode(block.raw) for block in _parts(output)], False
    text = text_of_value(output) if output is not None else ""
    if text.startswith('{"output":'):  # an older wrapping of the output
        wrapped = object_of(text)
        told = wrapped.get("metadata")
        if isinstance(wrapped.get("output"), str):
            return wrapped["output"], isinstance(told, dict) and told.get("exit_code") not in (0, None)
    code = _EXIT.search(text[:_HEAD_CHARS])
    return text, code is not None and int(code[1]) != 0
