"""What messages are known by: a digest that survives how clients write them, and the chain over a history (GW-2).

A client sends what it was told back in its own words: another order of keys, breakpoints that wander, a text for a list
of one text, numbers without their fraction, thinking left out. None of that makes another conversation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

_DIGEST = hashlib.sha256
_SORTED = msgspec.json.Encoder(order="sorted")
_THINKING = ("thinking", "redacted_thinking")
_LEFT_OUT = frozenset({"cache_control", "signature", "encrypted_index"})
_KEPT_WHOLE = frozenset({"input", "source"})


class TooMuch(ValueError):
    """A message beyond the limits; the argument is a short reason."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a message may be to be read (SEC-6). Raises `TooMuch` beyond it."""

    depth: int = 100
    blocks: int = 10_000


def digest(role: str, blocks: Sequence[dict[str, Any]], limits: Limits = Limits()) -> bytes:
    """The digest of a message, from its role and its content blocks as plain objects."""
    if len(blocks) > limits.blocks:
        raise TooMuch("too_many_blocks")
    max_depth = limits.depth
    kept = [one for block in blocks if (one := _block(block, role, max_depth)) is not None]
    return _DIGEST(_SORTED.encode([role, kept])).digest()


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
    return {key: _plain(value, depth - 1) for key, value in block.items() if _says(key, value)}


def _says(key: str, value: object) -> bool:
    """Whether a field tells something; clients leave out, or add, those that don't."""
    if key in _KEPT_WHOLE:
        return True
    return key not in _LEFT_OUT and value is not None and value != [] and value != {}


def _plain(value: Any, depth: int) -> Any:
    if depth < 0:
        raise TooMuch("too_deep")
    if isinstance(value, dict):
        return {key: _plain(inner, depth - 1) for key, inner in value.items() if key != "cache_control"}
    if isinstance(value, list):
        return [_plain(inner, depth - 1) for inner in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def seed(*parts: str) -> bytes:
    """Where a chain begins: apart for each tenant, route, protocol and name of a session."""
    return _DIGEST(_SORTED.encode(list(parts))).digest()


def chain(start: bytes, digests: Iterable[bytes]) -> list[bytes]:
    """The links after 0, 1, 2, … messages; two histories with the same link are the same so far."""
    links = [start]
    for one in digests:
        start = _DIGEST(start + one).digest()
        links.append(start)
    return links


class Known:
    """Links that were made before, so that a history costs one hash of its bytes and no reading.

    Two generations bound it: when the younger is full, the older is forgotten.
    """

    def __init__(self, most: int = 65_536) -> None:
        self._most = most
        self._young: dict[bytes, bytes] = {}
        self._old: dict[bytes, bytes] = {}

    def chain(self, start: bytes, raws: Sequence[msgspec.Raw], read: Callable[[bytes], bytes]) -> list[bytes]:
        """As `chain`, over raw messages; `read` makes the digest of those that are new behind what stands before."""
        links, link, young, sha256 = [start], start, self._young, _DIGEST
        for raw in raws:
            key = link + sha256(raw).digest()
            following = young.get(key)
            if following is None:
                following = self._old.get(key) or sha256(link + read(bytes(raw))).digest()
                young = self._keep(key, following)
            link = following
            links.append(link)
        return links

    def _keep(self, key: bytes, value: bytes) -> dict[bytes, bytes]:
        if len(self._young) >= self._most:
            self._old, self._young = self._young, {}
        self._young[key] = value
        return self._young
