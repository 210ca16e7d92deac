"""Answers of the Responses API, read from their events or as a whole (GW-6)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from perdure.context.failures import ErrorResponse, classify
from perdure.context.replies import Reply
from perdure.errors import MalformedBlock, StreamCut
from perdure.transcript.blocks import Block
from perdure.transcript.messages import ResponseId, Usage
from perdure.transcript.response_items import message_of_items

ENDS = ("response.completed", "response.incomplete")
_STOPS = {"max_output_tokens": "max_tokens", "content_filter": "refusal"}


class ResponseBuilder:
    """One answer in the making, from its events."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._items: dict[int, dict[str, Any]] = {}  # those that are whole, by their place in the output
        self._begun: dict[str, Any] = {}  # the response as its first event has it …
        self._response: dict[str, Any] | None = None  # … and its last

    def feed(self, event: dict[str, Any]) -> None:
        """Enter an event. Raises the `ModelError` that it tells of."""
        kind = event.get("type")
        if kind == "response.output_item.done":
            self._items[event["output_index"]] = event["item"]
        elif kind == "response.created":
            self._begun = event["response"]
        elif kind in ENDS:
            self._response = event["response"]
        elif kind == "response.failed":
            raise _failure(event["response"].get("error"))
        elif kind == "error":
            raise _failure(event.get("error") or event)

    def reply(self) -> Reply:
        """The answer. Raises `StreamCut` when its end never came."""
        if self._response is None:
            raise StreamCut("the stream ended before the answer did")
        output = self._response.get("output") or self._whole_items()
        return reply_of_response({**self._response, "output": output}, self._model)

    def so_far(self) -> Reply:
        """Return the items that are whole, as an answer that isn't."""
        told = {"status": "incomplete", "output": self._whole_items(), "usage": None}
        return reply_of_response({**self._begun, **told}, self._model)

    def _whole_items(self) -> list[dict[str, Any]]:
        return [self._items[place] for place in sorted(self._items)]


def reply_of_response(response: dict[str, Any], model: str) -> Reply:
    """The answer that a whole response is. Raises a `ModelError` for one that failed or isn't whole."""
    status = response.get("status")
    if status == "failed":
        raise _failure(response.get("error"))
    if status not in (None, "completed", "incomplete"):
        raise StreamCut(f"the answer is {status!r:.40}")
    try:
        blocks = tuple(_blocks(response.get("output") or ()))
    except MalformedBlock as e:
        raise StreamCut(f"an item of the answer can't be read: {e}") from None
    reason = (response.get("incomplete_details") or {}).get("reason")
    calls = any(block.type == "tool_use" for block in blocks)
    ended = "tool_use" if calls and status != "incomplete" else "end_turn"
    return Reply(
        response=ResponseId(str(response.get("id") or "")),
        model=str(response.get("model") or model),
        blocks=blocks,
        stop_reason=_STOPS.get(str(reason), ended),
        usage=_usage(response.get("usage")),
    )


def _blocks(items: Any) -> Iterator[Block]:
    for item in items:
        yield from message_of_items([msgspec.json.encode(item)]).blocks


def _usage(fields: Any) -> Usage | None:
    """Usage in our words: there, input tokens include the cached ones; here the parts add up to the prompt."""
    if not isinstance(fields, dict) or not fields.get("input_tokens"):
        return None
    details = fields.get("input_tokens_details") or {}
    read, written = int(details.get("cached_tokens") or 0), int(details.get("cache_write_tokens") or 0)
    prompt = int(fields["input_tokens"])
    return Usage(max(0, prompt - read - written), int(fields.get("output_tokens") or 0), read, written)


def _failure(error: Any) -> Exception:
    told = error if isinstance(error, dict) else {}
    kind, code = str(told.get("type") or ""), str(told.get("code") or "")
    return classify(ErrorResponse(status=200, message=str(told.get("message") or ""), kind=kind, code=code, extra=told))
