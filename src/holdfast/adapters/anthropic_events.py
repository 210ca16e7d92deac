"""From the events of Anthropic's stream to deltas and a reply. No network here; unknown events and fields are kept out
of the way, not refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from holdfast.context.replies import (
    BlockDone,
    CallDelta,
    Delta,
    ProviderEdit,
    Reply,
    Started,
    TextDelta,
    ThinkingDelta,
)
from holdfast.errors import StreamCut
from holdfast.transcript.blocks import Block, block_of
from holdfast.transcript.messages import ResponseId, Usage

_USAGE = tuple(Usage.__struct_fields__)
_CALLS = ("tool_use", "server_tool_use", "mcp_tool_use")
# A call whose input never became JSON: cut by these, it can't be run and is left out.
_CUT = ("max_tokens", "model_context_window_exceeded")


class Assembly:
    """One answer in the making. Feed it events; it gives deltas, and at the end the reply."""

    def __init__(self) -> None:
        self._fields: dict[str, Any] = {}
        self._usage: dict[str, Any] = {}
        self._open: dict[int, dict[str, Any]] = {}
        self._inputs: dict[int, list[str]] = {}
        self._texts: dict[tuple[int, str], list[str]] = {}  # of fields that come in pieces, joined at their end
        self._done: dict[int, Block] = {}
        self._stop_reason: str | None = None
        self._edits: tuple[ProviderEdit, ...] = ()
        self._is_over = False

    def take(self, event: dict[str, Any]) -> Iterator[Delta]:
        """Enter an event; what a reader should see of it."""
        match event.get("type"):
            case "message_start":
                self._fields = event["message"]
                self._enter_usage(self._fields.get("usage"))
                yield Started(ResponseId(str(self._fields.get("id", ""))))
            case "content_block_start":
                yield from self._start(int(event["index"]), event["content_block"])
            case "content_block_delta":
                yield from self._delta(int(event["index"]), event["delta"])
            case "content_block_stop":
                yield from self._stop(int(event["index"]))
            case "message_delta":
                self._stop_reason = event.get("delta", {}).get("stop_reason") or self._stop_reason
                self._enter_usage(event.get("usage"))
                self._enter_edits(event.get("context_management"))
            case "message_stop":
                self._is_over = True
            case _:
                pass

    def _enter_usage(self, usage: dict[str, Any] | None) -> None:
        self._usage.update({name: value for name, value in (usage or {}).items() if value is not None})

    def _enter_edits(self, management: dict[str, Any] | None) -> None:
        edits = (management or {}).get("applied_edits") or ()
        self._edits = tuple(
            ProviderEdit(
                str(edit.get("type", "")),
                int(edit.get("cleared_tool_uses") or edit.get("cleared_thinking_turns") or 0),
                int(edit.get("cleared_input_tokens") or 0),
            )
            for edit in edits
        )

    def _start(self, index: int, block: dict[str, Any]) -> Iterator[Delta]:
        self._open[index] = dict(block)
        kind = block.get("type")
        if kind in _CALLS:
            self._inputs[index] = []
            yield CallDelta(index, str(block.get("name", "")), "")
        elif kind == "text" and block.get("text"):
            yield TextDelta(index, block["text"])

    def _delta(self, index: int, delta: dict[str, Any]) -> Iterator[Delta]:
        block = self._open[index]
        match delta.get("type"):
            case "text_delta":
                self._add(index, "text", delta["text"])
                yield TextDelta(index, delta["text"])
            case "thinking_delta":
                self._add(index, "thinking", delta["thinking"])
                yield ThinkingDelta(index, delta["thinking"])
            case "signature_delta":
                self._add(index, "signature", delta["signature"])
            case "input_json_delta":
                self._inputs.setdefault(index, []).append(delta["partial_json"])
                yield CallDelta(index, str(block.get("name", "")), delta["partial_json"])
            case "citations_delta":
                block["citations"] = block.get("citations") or []
                block["citations"].append(delta["citation"])
            case _:  # compaction_delta, and what is not known yet: its fields are the block's
                block.update({name: value for name, value in delta.items() if name != "type"})

    def _add(self, index: int, name: str, piece: str) -> None:
        """A piece of a field; what the block began with stands before the first."""
        if not isinstance(piece, str):
            raise TypeError(f"{name} is no text")
        pieces = self._texts.get((index, name))
        if pieces is None:
            pieces = self._texts[index, name] = [self._open[index].get(name, "")]
        pieces.append(piece)

    def _stop(self, index: int) -> Iterator[Delta]:
        block = self._open[index]
        for key in [key for key in self._texts if key[0] == index]:
            block[key[1]] = "".join(self._texts.pop(key))
        pieces = "".join(self._inputs.get(index, ()))
        if pieces:
            parsed = _object(pieces)
            if parsed is None:
                return  # decided when the stop reason is known
            block["input"] = parsed
        del self._open[index]
        self._done[index] = block_of(block)
        yield BlockDone(index, self._done[index])

    def reply(self) -> Reply:
        """The whole answer. Raises `StreamCut` when its end never came."""
        if not self._is_over:
            raise StreamCut("the stream ended before the answer did")
        reason = self._stop_reason or "end_turn"
        for index, block in self._open.items():  # calls whose input is no JSON
            if reason not in _CUT and block.get("type") in _CALLS:
                self._done[index] = block_of({**block, "input": {"_raw": "".join(self._inputs[index])}})
        usage, billed = _usages(self._usage)
        return Reply(
            response=ResponseId(str(self._fields.get("id", ""))),
            model=str(self._fields.get("model", "")),
            blocks=tuple(self._done[index] for index in sorted(self._done)),
            stop_reason=reason,
            usage=usage,
            billed=billed,
            edits=self._edits,
        )


def _object(text: str) -> msgspec.Raw | None:
    """A call's input as it was written; None when it is no JSON object."""
    try:
        value = msgspec.json.decode(text)
    except msgspec.MsgspecError:
        return None
    return msgspec.Raw(text.encode()) if isinstance(value, dict) else None


def _usages(fields: dict[str, Any]) -> tuple[Usage | None, Usage | None]:
    """The size of the context, and what is paid for. Where the API lists its iterations, a compaction among them is
    paid but is no part of the size, which the last message's states."""
    if not fields:
        return None, None
    steps = [step for step in fields.get("iterations") or () if isinstance(step, dict)]
    messages = [step for step in steps if step.get("type") == "message"]
    size = _usage(messages[-1]) if messages else _usage(fields)
    if not steps:
        return size, None
    paid = [_usage(step) for step in steps]
    billed = Usage(*(sum(getattr(step, name) for step in paid) for name in _USAGE))
    return size, billed if billed != size else None


def _usage(fields: dict[str, Any]) -> Usage:
    split = fields.get("cache_creation")
    hours = {"cache_creation_1h_tokens": (split or {}).get("ephemeral_1h_input_tokens")} if split else {}
    return Usage(**{name: int({**fields, **hours}.get(name) or 0) for name in _USAGE})
