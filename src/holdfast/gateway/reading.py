"""A request as a client sent it, taken apart only as far as is needed: the bytes of each part stay what they are."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from holdfast.context.replies import Reply
from holdfast.context.requests import Protocol as WireProtocol
from holdfast.errors import ModelError
from holdfast.gateway.digests import Limits
from holdfast.transcript.messages import Message
from holdfast.transcript.records import Front

_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LIST = msgspec.json.Decoder(list[msgspec.Raw])
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class Unmanageable(Exception):
    """A request that only its own server understands; it passes through as it is. The argument is a short reason."""

    @property
    def reason(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True, slots=True)
class Taken:
    """A body taken apart: its fields, its messages, and the links of those that are known already.

    `fields["messages"]` holds what is new only. `start` is the place behind the bracket that opens the messages; -1
    where it couldn't be told.
    """

    fields: dict[str, msgspec.Raw]
    messages: Sequence[msgspec.Raw]
    start: int = -1
    links: Sequence[bytes] = ()


@dataclass(frozen=True, slots=True)
class Incoming:
    """A request. `history` are the messages that make the conversation; `prefill` the beginning of the answer to it.

    `lead` are messages before the history that belong to the front.
    """

    body: bytes
    fields: dict[str, msgspec.Raw]
    history: Sequence[msgspec.Raw]
    prefill: msgspec.Raw | None = None
    lead: Sequence[msgspec.Raw] = ()
    taken: Taken | None = None

    @property
    def is_stream(self) -> bool:
        return bytes(self.fields.get("stream", b"")).strip() == b"true"

    @property
    def model(self) -> str:
        return str(self.value("model") or "")

    def value(self, name: str) -> Any:
        """A field's plain value; None when it isn't there."""
        raw = self.fields.get(name)
        try:
            return None if raw is None else msgspec.json.decode(raw)
        except UNREADABLE:
            return None


class AnswerReader(Protocol):
    """Reads an answer on its way to the client.

    `take` gives the bytes to pass on; what ends the answer is held back until `end` is asked for. `reply` is the whole
    answer, or raises a `ModelError` when it isn't whole.
    """

    def take(self, data: bytes) -> bytes: ...

    def end(self) -> bytes: ...

    def reply(self) -> Reply: ...


class Side(Protocol):
    """One protocol, as clients and servers speak it."""

    protocol: WireProtocol

    def read(self, body: bytes, taken: Taken) -> Incoming: ...

    def digest(self, raw: bytes, limits: Limits) -> bytes: ...

    def messages(self, raws: Sequence[msgspec.Raw]) -> list[Message]: ...

    def front(self, incoming: Incoming) -> Front: ...

    def head(self, incoming: Incoming, most_tokens: int | None) -> dict[str, Any]: ...

    def with_prefill(self, body: bytes, prefill: msgspec.Raw) -> bytes: ...

    def reader(self, incoming: Incoming, cap: int | None, *, is_stream: bool, most_bytes: int) -> AnswerReader: ...

    def error_of(self, status: int, body: bytes, headers: Mapping[str, str]) -> ModelError: ...

    def error_body(self, status: int, message: str) -> bytes: ...


def fields_of(body: bytes) -> dict[str, msgspec.Raw]:
    """The fields of a body. Raises `Unmanageable` when it isn't an object."""
    try:
        return _FIELDS.decode(body)
    except UNREADABLE:
        raise Unmanageable("not_json") from None


def list_of(raw: msgspec.Raw | None) -> list[msgspec.Raw]:
    """The items of an array. Raises `Unmanageable` when it is none."""
    try:
        return _LIST.decode(raw) if raw is not None else []
    except UNREADABLE:
        raise Unmanageable("no_messages") from None


def scaled(value: int, share: float) -> int:
    """A count on a meter that reads `share` of the truth; what isn't nothing stays something."""
    return max(1, int(value * share)) if value else 0


async def read_body(chunks: AsyncIterator[bytes], most_bytes: int) -> bytes | None:
    """All bytes of a body; None when there are more than allowed."""
    parts: list[bytes] = []
    size = 0
    async for chunk in chunks:
        size += len(chunk)
        if size > most_bytes:
            return None
        parts.append(chunk)
    return parts[0] if len(parts) == 1 else b"".join(parts)
