"""How a list of chat messages becomes a `Recording`: calls and results paired, ids unique (ENG-2, ENG-6)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from holdfast.transcript.blocks import Block, block_of, text_block
from holdfast.transcript.foreign.mending import mended, mended_front
from holdfast.transcript.foreign.reading import Ids, Problems
from holdfast.transcript.foreign.recording import Format, Recording, Said, Step
from holdfast.transcript.messages import Message, Origin, ResponseId, Role, ToolUseId, Usage, content_of
from holdfast.transcript.records import Front
from holdfast.transcript.sendable import sendable_id


@dataclass(frozen=True, slots=True)
class Answer:
    """What is known about the API response that a model message came from."""

    usage: Usage | None = None
    model: str | None = None
    response_id: str | None = None
    stop_reason: str | None = None


NOTHING_KNOWN = Answer()


class Builder:
    """Collects the messages of one trajectory."""

    def __init__(self, form: Format, session: str) -> None:
        self.form = form
        self.session = session
        self.problems = Problems()
        self.steps: list[Step] = []
        self.system: list[Block] = []
        self.tools: list[msgspec.Raw] = []
        self.model: str | None = None
        self._ids = Ids()
        self._open: deque[tuple[str, ToolUseId]] = deque()  # calls without a result, as (their id in the log, ours)

    def say(
        self,
        number: int,
        origin: Origin,
        content: Sequence[Block],
        *,
        answer: Answer = NOTHING_KNOWN,
        at: float | None = None,
        wanted: str | None = None,
    ) -> None:
        """A message, unless it is empty. `number` is its line or place in the file, and makes its id."""
        role: Role = "assistant" if origin == "model" else "user"
        content = mended(content, role, number, self.problems)
        if not content:
            return
        self.model = answer.model or self.model
        message = Message(
            id=self._ids.message(wanted or f"message-{number}", number),
            role=role,
            content=content_of(content),
            origin=origin,
            at=at,
            response_id=ResponseId(answer.response_id) if answer.response_id else None,
            model=answer.model,
            usage=answer.usage,
            stop_reason=answer.stop_reason,
        )
        self.steps.append(Said(message, number))

    def call(self, name: str, arguments: dict[str, Any], logged_id: str) -> Block:
        """A tool_use block; its id is the log's unless an earlier call had it."""
        ours = self._ids.call(sendable_id(logged_id) or "call")
        self._open.append((logged_id, ours))
        return block_of({"type": "tool_use", "id": ours, "name": name, "input": arguments})

    def adopt(self, block: Block) -> Block:
        """A block that came as it is: a tool_use is remembered as open."""
        logged_id = getattr(block.value, "id", None) if block.kind == "tool_use" else None
        if logged_id is not None:
            ours = self._ids.call(sendable_id(logged_id) or "call")
            self._open.append((logged_id, ours))
            if ours != logged_id:
                return block_of(msgspec.json.decode(block.raw) | {"id": ours})
        return block

    def has_open_call(self) -> bool:
        return bool(self._open)

    def close_calls(self) -> None:
        """What is still open will not be answered any more."""
        self._open.clear()

    def answered(self, logged_id: str | None, number: int) -> str:
        """The id that a result has to name: that of the open call it answers (the oldest when it names none)."""
        for entry in self._open:
            if logged_id is None or entry[0] == logged_id:
                self._open.remove(entry)
                return entry[1]
        self.problems.add(number, f"result without a call: {logged_id or 'no id'}")
        return logged_id or f"no-call-{number}"

    def result(self, call: str, content: str | list[Any], is_error: bool = False) -> Block:
        """A tool_result block."""
        value: dict[str, Any] = {"type": "tool_result", "tool_use_id": call, "content": content}
        if is_error:
            value["is_error"] = True
        return block_of(value)

    def recording(self, **told: Any) -> Recording:
        front = mended_front(Front(system=content_of(self.system), tools=tuple(self.tools)), self.problems)
        return Recording(
            format=self.form,
            session=self.session,
            steps=tuple(self.steps),
            front=front,
            problems=tuple(self.problems),
            model=told.pop("model", None) or self.model,
            **told,
        )


def texts(text: str) -> list[Block]:
    """A text as content; nothing when it is blank."""
    return [text_block(text)] if text.strip() else []


def openai_usage(told: Any) -> Usage | None:
    """OpenAI's counts (chat completions or responses): the prompt includes what was cached."""
    if not isinstance(told, dict):
        return None
    prompt = _count(told, "prompt_tokens", "input_tokens")
    if prompt is None:
        return None
    details = told.get("prompt_tokens_details") or told.get("input_tokens_details") or told
    cached = (_count(details, "cached_tokens", "cached_input_tokens") or 0) if isinstance(details, dict) else 0
    if "cache_read_input_tokens" in told or "cache_creation_input_tokens" in told:
        return Usage(
            input_tokens=prompt,
            output_tokens=_count(told, "output_tokens", "completion_tokens") or 0,
            cache_read_input_tokens=_count(told, "cache_read_input_tokens") or 0,
            cache_creation_input_tokens=_count(told, "cache_creation_input_tokens") or 0,
        )
    cached = min(cached, prompt)
    output = _count(told, "completion_tokens", "output_tokens") or 0
    return Usage(input_tokens=prompt - cached, output_tokens=output, cache_read_input_tokens=cached)


def _count(told: dict[str, Any], *names: str) -> int | None:
    for name in names:
        value = told.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    return None
