"""Compactions that clients of the Responses API ask for, and what they get for their history (GW-6).

A client that compacts is given one item in place of all that was said, which only a server can read. Ours holds the
place in the session where the history ended, sealed for its tenant; what stands behind it stays in the session, where
it was compacted as at any time. So nothing is lost, and the item is as small for a long history as for a short one.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from perdure.gateway.requests import ClientRequest

SEALED: Final = "perdure-sealed."
_COUNT_BYTES: Final = 8
_NAME_MARK: Final = 24  # characters behind the name of a response
_LINK_BYTES: Final = 32


class PlaceSeal:
    """Seals places in histories, so that nobody but this tenant can give them back, and nobody can make one up."""

    def __init__(self, secret: bytes, tenant: str) -> None:
        self._key = hmac.new(secret, f"places of {tenant}".encode(), hashlib.sha256).digest()

    def sealed(self, count: int, link: bytes) -> str:
        """A place, after so many messages, as a text."""
        place = count.to_bytes(_COUNT_BYTES) + link
        return SEALED + base64.urlsafe_b64encode(place + self._mark(place)).decode()

    def opened(self, text: str) -> tuple[int, bytes] | None:
        """The place of a text; None for one that wasn't sealed here, for this tenant."""
        try:
            whole = base64.urlsafe_b64decode(text.removeprefix(SEALED).encode())
        except (binascii.Error, ValueError):
            return None
        place, mark = whole[: _COUNT_BYTES + _LINK_BYTES], whole[_COUNT_BYTES + _LINK_BYTES :]
        if not hmac.compare_digest(mark, self._mark(place)):
            return None
        return int.from_bytes(place[:_COUNT_BYTES]), place[_COUNT_BYTES:]

    def named(self, response: str) -> str:
        """The id of a response that no session has, with the mark of its tenant, who shares the upstream's account."""
        return f"{response}.{self._mark(b'response ' + _bytes(response)).hex()[:_NAME_MARK]}"

    def name_in(self, text: str) -> str:
        """The upstream's own id in such a name; empty for one that wasn't made here, for this tenant."""
        response = text[: -_NAME_MARK - 1]
        return response if hmac.compare_digest(_bytes(self.named(response)), _bytes(text)) else ""

    def _mark(self, place: bytes) -> bytes:
        return hmac.new(self._key, place, hashlib.sha256).digest()


def _bytes(text: str) -> bytes:
    """Encode an id, which may be of any characters."""
    return text.encode("utf-8", "surrogatepass")


@dataclass(frozen=True, slots=True)
class CompactedHistory:
    """What a client gets for its history: the sealed place, and the sizes before and after in tokens.

    `how` is the compaction's trigger and strategy; empty where there was too little to compact.
    """

    incoming: ClientRequest
    session: str
    window: int
    sealed: str
    before_tokens: int
    after_tokens: int
    response: str
    how: str = ""

    @property
    def item(self) -> dict[str, Any]:
        """The item."""
        identity = f"cmp_{self.response.partition('_')[2]}"
        return {"id": identity, "type": "compaction", "encrypted_content": self.sealed}

    def usage(self, cap: int | None) -> dict[str, Any]:
        """Usage as the client's meter may read it."""
        prompt = self.before_tokens if cap is None else min(cap, self.before_tokens)
        return {
            "input_tokens": prompt,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": self.after_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": prompt + self.after_tokens,
        }


def response_id() -> str:
    """An id for a response of our own."""
    return f"resp_{secrets.token_hex(24)}"


def answer_of(done: CompactedHistory, created: float, cap: int | None) -> tuple[bytes, str]:
    """The answer to `POST /v1/responses/compact`, or to a create that ends with a trigger; and its content type."""
    if not done.incoming.wants_compaction:
        told = {"id": done.response, "object": "response.compaction", "created_at": int(created)}
        return msgspec.json.encode({**told, "output": [done.item], "usage": done.usage(cap)}), "application/json"
    response = _response(done, created, cap)
    if not done.incoming.is_stream:
        return msgspec.json.encode(response), "application/json"
    lines = (
        b"event: %b\ndata: %b\n\n" % (event["type"].encode(), msgspec.json.encode({**event, "sequence_number": number}))
        for number, event in enumerate(_events(response, done.item))
    )
    return b"".join(lines), "text/event-stream"


def _events(response: dict[str, Any], item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    begun = {**response, "status": "in_progress", "output": [], "usage": None}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    yield {"type": "response.output_item.added", "output_index": 0, "item": item}
    yield {"type": "response.output_item.done", "output_index": 0, "item": item}
    yield {"type": "response.completed", "response": response}


_ECHOED: Final[dict[str, Any]] = {
    "instructions": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "store": True,
    "temperature": 1.0,
    "tool_choice": "auto",
    "tools": [],
    "top_p": 1.0,
    "truncation": "disabled",
}


def _response(done: CompactedHistory, created: float, cap: int | None) -> dict[str, Any]:
    asked = {name: value for name in _ECHOED if (value := done.incoming.value(name)) is not None}
    if done.incoming.conversation is not None:
        asked |= {"conversation": {"id": done.incoming.conversation.id}, "previous_response_id": None}
    return {
        "id": done.response,
        "object": "response",
        "created_at": int(created),
        "status": "completed",
        "model": done.incoming.model,
        "error": None,
        "incomplete_details": None,
        **_ECHOED,
        **asked,
        "output": [done.item],
        "usage": done.usage(cap),
    }
