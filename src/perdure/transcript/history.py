"""What a message is known by, and a history of them, when somebody else owns it and says all of it again (GW-2, LIB-4).

A chain of digests: two histories with the same link are the same so far. What doesn't change what was said, such as
breakpoints, thinking and ids that a server gives, isn't part of a digest, since clients leave it out or add it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from perdure.transcript.messages import Message, MessageId
from perdure.transcript.records import Cursor, Record
from perdure.transcript.response_items import KEPT_ITEM, KEPT_PART, REASONING

_DIGEST = hashlib.sha256
_SORTED = msgspec.json.Encoder(order="sorted")
_THINKING = ("thinking", "redacted_thinking")
_LEFT_OUT = frozenset({"cache_control", "signature", "encrypted_index", KEPT_ITEM, KEPT_PART})
_KEPT_WHOLE = frozenset({"input", "source"})
_GIVEN = ("id", "status")  # what a server gives an item; some clients leave it out

# How a journal says what its client knows of it.
CLIENT = "client"  # the cursor of the last message that the client knows
RECALLED = "recalled"  # the note of a message with results of calls that the client never sees (GW-8)
ASKED = "asked"  # the one of the last message before an answer of ours
BEGUN = "begun"  # the same, with the id of the answer, kept before its client sees that id
NAMED = "named"  # the one that holds the client's own name for the session, where it has one (GW-8)


class NotDigestible(Exception):
    """A message beyond the limits of what is read. The argument is a short reason."""


@dataclass(frozen=True, slots=True)
class DigestLimits:
    """What a message may be to be read (SEC-6)."""

    depth: int = 100
    blocks: int = 10_000
    text: int = 4 * 1024 * 1024  # characters of what is said, which is more than any model reads


def digest(role: str, blocks: Sequence[dict[str, Any]], limits: DigestLimits = DigestLimits()) -> bytes:
    """The digest of a message, from its role and its content blocks as plain objects.

    Raises `NotDigestible` for one beyond the limits.
    """
    if len(blocks) > limits.blocks:
        raise NotDigestible("too_many_blocks")
    said = (block.get("text") for block in blocks if block.get("type") == "text")
    if sum(len(text) for text in said if isinstance(text, str)) > limits.text:
        raise NotDigestible("text_too_large")
    kept = [one for block in blocks if (one := _block(block, role, limits.depth)) is not None]
    return _DIGEST(_SORTED.encode([role, kept])).digest()


def message_digest(message: Message, limits: DigestLimits = DigestLimits()) -> bytes:
    """The digest of a message that was read already. Raises `NotDigestible`."""
    speaker = message.role if message.wire is None else message.wire.role or message.role
    speaker = "developer" if message.origin == "system" else speaker
    return digest(speaker, [msgspec.json.decode(block.raw) for block in message.blocks], limits)


def _block(block: dict[str, Any], role: str, depth: int) -> dict[str, Any] | None:
    kind = block.get("type")
    if kind in _THINKING:
        return None
    if kind == "text":
        text = str(block.get("text") or "")
        text = text.strip() if role == "assistant" else text
        return {"type": "text", "text": text} if text.strip() else None
    if kind == "tool_result":
        content = block.get("content")
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
        shown = [one for part in parts if isinstance(part, dict) and (one := _block(part, "user", depth - 1))]
        return {"type": kind, "id": block.get("tool_use_id"), "content": shown, "error": bool(block.get("is_error"))}
    if kind == KEPT_ITEM:
        item = block.get("item", {})
        is_reference = len(item) <= 2  # its id is all that it says
        said = {key: value for key, value in item.items() if is_reference or key not in _GIVEN}
        return None if item.get("type") == REASONING else _plain(said, depth - 1)
    return {key: _plain(value, depth - 1) for key, value in block.items() if _says(key, value)}


def _says(key: str, value: object) -> bool:
    """Whether a field tells something; clients leave out, or add, those that don't."""
    if key in _KEPT_WHOLE:
        return True
    return key not in _LEFT_OUT and value is not None and value != [] and value != {}


def _plain(value: Any, depth: int) -> Any:
    if depth < 0:
        raise NotDigestible("too_deep")
    if isinstance(value, dict):
        return {key: _plain(inner, depth - 1) for key, inner in value.items() if key != "cache_control"}
    if isinstance(value, list):
        return [_plain(inner, depth - 1) for inner in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def chain_seed(*parts: str) -> bytes:
    """Where a chain begins: apart for each tenant, route, protocol and name of a session."""
    return _DIGEST(_SORTED.encode(list(parts))).digest()


def chain(start: bytes, digests: Iterable[bytes]) -> list[bytes]:
    """The links after 0, 1, 2, … messages; two histories with the same link are the same so far."""
    links = [start]
    for one in digests:
        start = _DIGEST(start + one).digest()
        links.append(start)
    return links


class LinkCache:
    """Links that were made before, so that a history costs one hash of its bytes and no reading.

    Two generations bound it: when the younger is full, the older is forgotten.
    """

    def __init__(self, most: int = 8_192) -> None:
        self._most = most
        self._young: dict[bytes, bytes] = {}
        self._old: dict[bytes, bytes] = {}

    def chain(self, start: bytes, raws: Sequence[bytes | msgspec.Raw], read: Callable[[int], bytes]) -> list[bytes]:
        """As `chain`, over raw messages; `read` makes the digest of one that is new behind what stands before it."""
        links, link, young, sha256 = [start], start, self._young, _DIGEST
        for number, raw in enumerate(raws):
            key = link + sha256(raw).digest()
            following = young.get(key)
            if following is None:
                following = self._old.get(key) or sha256(link + read(number)).digest()
                young = self._keep(key, following)
            link = following
            links.append(link)
        return links

    def _keep(self, key: bytes, value: bytes) -> dict[bytes, bytes]:
        if len(self._young) >= self._most:
            self._old, self._young = self._young, {}
        self._young[key] = value
        return self._young


@dataclass(frozen=True, slots=True)
class HistoryPosition:
    """A place in a client's history: how many messages, the link there, and the last of them in the journal.

    The journal has it as a cursor.
    """

    count: int
    link: bytes
    message: MessageId = MessageId("")  # noqa: RUF009 - a NewType of str, immutable

    @classmethod
    def of(cls, record: Record | None, name: str) -> HistoryPosition | None:
        """The place that a record holds; None for one that isn't a cursor of that name, or no place."""
        if not isinstance(record, Cursor) or record.name != name:
            return None
        count, _, link = (record.digest or "").partition(":")
        try:
            return cls(int(count), bytes.fromhex(link), record.message)
        except ValueError:
            return None

    def cursor(self, name: str) -> Cursor:
        """The place as a record."""
        return Cursor(name=name, message=self.message, digest=f"{self.count}:{self.link.hex()}")

    def begun(self, response: str) -> Cursor:
        """The place that an answer of this id begins behind, as a record."""
        return Cursor(name=BEGUN, message=self.message, digest=f"{self.count}:{self.link.hex()}:{response}")

    def is_on(self, links: Sequence[bytes]) -> bool:
        """Whether a history comes by this place."""
        return self.count < len(links) and links[self.count] == self.link


def begun_answer(record: Record | None) -> tuple[HistoryPosition, str] | None:
    """Return the place that an answer begins behind, and its id; None for any other record."""
    if not isinstance(record, Cursor) or record.name != BEGUN:
        return None
    place, _, rest = (record.digest or "").partition(":")
    link, _, response = rest.partition(":")
    position = HistoryPosition.of(Cursor(name=BEGUN, message=record.message, digest=f"{place}:{link}"), BEGUN)
    return None if position is None else (position, response)
