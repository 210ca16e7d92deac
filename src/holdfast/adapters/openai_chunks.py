"""From the chunks of a Chat Completions stream to deltas and a reply. No network here.

Servers that call themselves compatible leave out ids, repeat them, send arguments that are no JSON, or no usage at all.
What a conversation needs is made up for; what the model said is kept as it came.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from holdfast.context.replies import BlockDone, CallDelta, Delta, Reply, Started, TextDelta, ThinkingDelta
from holdfast.errors import StreamCut
from holdfast.transcript.blocks import Block, block_of, text_block
from holdfast.transcript.messages import ResponseId, Usage
from holdfast.transcript.sendable import NAME_CHARACTERS, sendable_id

_STOPS = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}


@dataclass(slots=True)
class _Call:
    identity: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list)


class Assembly:
    """One answer in the making. `taken` gives the ids of calls that the conversation holds, when asked."""

    def __init__(
        self, model: str, *, window_tokens: int | None = None, taken: Callable[[], Collection[str]] = tuple
    ) -> None:
        self._model = model
        self._window = window_tokens
        self._taken_before = taken
        self._response = ""
        self._thought: list[str] = []
        self._text: list[str] = []
        self._calls: dict[int, _Call] = {}
        self._finish: str | None = None
        self._usage: dict[str, Any] | None = None

    @property
    def has_begun(self) -> bool:
        return bool(self._response)

    def take(self, chunk: dict[str, Any]) -> Iterator[Delta]:
        """Enter a chunk; what a reader should see of it. The indices are those of the blocks in the reply."""
        if not self._response:
            self._response = str(chunk.get("id") or "chat")
            self._model = str(chunk.get("model") or self._model)
            yield Started(ResponseId(self._response))
        if isinstance(chunk.get("usage"), dict):
            self._usage = chunk["usage"]
        for choice in chunk.get("choices") or ():
            if choice.get("index") not in (None, 0):
                continue
            self._finish = choice.get("finish_reason") or self._finish
            yield from self._delta(choice.get("delta") or choice.get("message") or {})

    def _delta(self, delta: dict[str, Any]) -> Iterator[Delta]:
        thought = delta.get("reasoning_content") or delta.get("reasoning")
        if isinstance(thought, str) and thought:
            self._thought.append(thought)
            yield ThinkingDelta(0, thought)
        words = delta.get("content") or delta.get("refusal")
        if isinstance(words, str) and words:
            self._text.append(words)
            yield TextDelta(int(bool(self._thought)), words)
        for number, piece in enumerate(delta.get("tool_calls") or ()):
            yield self._piece(number, piece)

    def _piece(self, number: int, piece: dict[str, Any]) -> CallDelta:
        """A piece of a call. Without an index it goes on with the last call, unless it brings a new id or name."""
        function = piece.get("function") or {}
        index = piece.get("index")
        if not isinstance(index, int):
            last = max(self._calls, default=-1)
            is_new = bool(function.get("name")) or bool(piece.get("id")) or number > 0
            index = last + 1 if is_new or last < 0 else last
        elif index in self._calls and piece.get("id") and self._calls[index].identity not in ("", piece["id"]):
            index = max(self._calls) + 1  # some servers give every call the index 0
        call = self._calls.setdefault(index, _Call())
        call.identity = call.identity or str(piece.get("id") or "")
        call.name = call.name or str(function.get("name") or "")
        arguments = function.get("arguments")
        text = arguments if isinstance(arguments, str) else "" if arguments is None else _text_of(arguments)
        call.pieces.append(text)
        return CallDelta(bool(self._thought) + bool(self._text) + index, call.name, text)

    def finish(self) -> Iterator[Delta | Reply]:
        """The blocks, now that they are whole, and the reply. Raises `StreamCut` when the end never came."""
        if self._finish is None:
            raise StreamCut("the stream ended before the answer did")
        blocks = tuple(self._blocks())
        yield from (BlockDone(index, block) for index, block in enumerate(blocks))
        usage = _usage(self._usage)
        yield Reply(
            response=ResponseId(self._response),
            model=self._model,
            blocks=blocks,
            stop_reason=self._stop_reason(usage),
            usage=usage,
        )

    def _blocks(self) -> Iterator[Block]:
        if self._thought:  # unsigned: kept in the journal, never sent
            yield block_of({"type": "thinking", "thinking": "".join(self._thought), "signature": ""})
        if self._text:
            yield text_block("".join(self._text))
        taken = set(self._taken_before()) if self._calls else set()
        for index in sorted(self._calls):
            call = self._calls[index]
            arguments = _arguments("".join(call.pieces))
            is_cut = self._finish == "length" and index == max(self._calls) and isinstance(arguments, dict)
            if not is_cut:
                name = call.name[:NAME_CHARACTERS] or "unnamed"
                yield block_of(
                    {"type": "tool_use", "id": self._unique(call, index, taken), "name": name, "input": arguments}
                )

    def _unique(self, call: _Call, index: int, taken: set[str]) -> str:
        """The call's id; one of our own when it has none, or one that stands in the conversation already."""
        identity = sendable_id(call.identity)
        if not identity or identity in taken:
            seed = f"{self._response} {index} {identity} {len(taken)}"
            identity = f"call_{hashlib.sha256(seed.encode()).hexdigest()[:24]}"
        taken.add(identity)
        return identity

    def _stop_reason(self, usage: Usage | None) -> str:
        reason = _STOPS.get(self._finish or "", "end_turn")
        if reason == "end_turn" and self._calls:
            return "tool_use"
        if reason == "max_tokens" and usage and self._window and usage.total_tokens >= self._window - 1:
            return "model_context_window_exceeded"
        return reason


def _text_of(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _arguments(text: str) -> msgspec.Raw | dict[str, str]:
    """A call's arguments as they were written; what is no JSON object is kept under `_raw`."""
    if not text.strip():
        return msgspec.Raw(b"{}")
    try:
        value = msgspec.json.decode(text)
    except msgspec.MsgspecError:
        return {"_raw": text}
    return msgspec.Raw(text.encode()) if isinstance(value, dict) else {"_raw": text}


def _usage(fields: dict[str, Any] | None) -> Usage | None:
    """Usage in our words: there, prompt tokens include the cached ones; here the parts add up to the prompt."""
    if not fields or not fields.get("prompt_tokens"):
        return None
    details = fields.get("prompt_tokens_details") or {}
    read, written = int(details.get("cached_tokens") or 0), int(details.get("cache_write_tokens") or 0)
    prompt = int(fields["prompt_tokens"])
    return Usage(max(0, prompt - read - written), int(fields.get("completion_tokens") or 0), read, written)
