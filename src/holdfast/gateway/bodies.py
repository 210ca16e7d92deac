"""Bodies taken apart, of which only what is new is read (GW-3).

A client sends its history again with every request, so a body begins as the one before it did. Where it does, to the
byte, a reader of JSON would stand at the same place in the same state: what follows is read as if the messages before
it weren't there, and their links are known.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import overload

import msgspec

from holdfast.gateway.reading import Taken, Unmanageable, fields_of, list_of

_ARRAY = re.compile(rb'"messages"[ \t\r\n]*:[ \t\r\n]*(?=\[)')
_SPACE = b" \t\r\n"
_SEPARATORS = frozenset(b" \t\r\n,")


class Slices(Sequence[msgspec.Raw]):
    """Messages as places in a body, cut out when they are asked for."""

    def __init__(self, body: bytes, begins: Sequence[int], ends: Sequence[int]) -> None:
        self.body, self.begins, self.ends = body, begins, ends

    def __len__(self) -> int:
        return len(self.ends)

    @overload
    def __getitem__(self, at: int) -> msgspec.Raw: ...

    @overload
    def __getitem__(self, at: slice) -> Slices: ...

    def __getitem__(self, at: int | slice) -> msgspec.Raw | Slices:
        if isinstance(at, slice):
            return Slices(self.body, self.begins[at], self.ends[at])
        return msgspec.Raw(self.body[self.begins[at] : self.ends[at]])

    def __iter__(self) -> Iterator[msgspec.Raw]:
        return (msgspec.Raw(self.body[a:b]) for a, b in zip(self.begins, self.ends, strict=True))


@dataclass(frozen=True, slots=True)
class Seen:
    """A body that was read, with the links of its messages from `lead` on."""

    body: bytes
    start: int
    begins: list[int]
    ends: list[int]
    lead: int
    links: list[bytes]

    def common(self, body: bytes) -> int:
        """How many messages the two bodies begin with, to the byte."""
        low, high, at = 0, len(self.ends), 0
        trial = high
        while low < high:
            end = self.ends[trial - 1]
            if body.startswith(self.body[at:end], at):
                low, at = trial, end
            else:
                high = trial - 1
            trial = (low + high + 1) // 2
        return low


def taken_apart(body: bytes, seen: Seen | None = None) -> Taken:
    """A body; what an earlier one began with, to the byte, isn't read again. Raises `Unmanageable`."""
    if seen is not None and (taken := _behind(seen, body, seen.common(body))) is not None:
        return taken
    fields = fields_of(body)
    raw = fields.get("messages")
    messages = list_of(raw)
    return _placed(body, fields, messages, bytes(raw)) if raw is not None and messages else Taken(fields, messages)


def _placed(body: bytes, fields: dict[str, msgspec.Raw], messages: list[msgspec.Raw], array: bytes) -> Taken:
    for found in _ARRAY.finditer(body):
        start = found.end() + 1
        if body.startswith(array, start - 1):
            rest = fields_of(body[:start] + body[start - 2 + len(array) :])
            if bytes(rest.get("messages", b"")) == b"[]":  # it is this one, and no other of the same text
                return Taken(fields, Slices(body, *_walked(body, start, messages)), start)
            break
    return Taken(fields, messages)


def _walked(body: bytes, at: int, raws: Sequence[msgspec.Raw]) -> tuple[list[int], list[int]]:
    """Where messages begin and end that stand behind each other from a place on."""
    begins: list[int] = []
    ends: list[int] = []
    for raw in raws:
        while body[at] in _SEPARATORS:
            at += 1
        begins.append(at)
        at += memoryview(raw).nbytes
        ends.append(at)
    return begins, ends


@dataclass(slots=True)
class Bodies:
    """The last bodies of conversations, by the seed of their chains. Memory is bounded: the longest unused go."""

    most_bytes: int = 64 * 1024 * 1024
    _seen: OrderedDict[tuple[bytes, bytes], Seen] = field(default_factory=OrderedDict)
    _bytes: int = 0

    def seen(self, seed: bytes, body: bytes) -> Seen | None:
        """The latest body of the same seed that begins with the same message."""
        for key in reversed(self._seen):
            seen = self._seen[key]
            if key[0] == seed and body.startswith(seen.body[: seen.ends[seen.lead]]):
                return seen
        return None

    def keep(self, seed: bytes, taken: Taken, lead: int, links: list[bytes]) -> None:
        """Remember a body by its links, which begin behind its first `lead` messages."""
        messages = taken.messages
        if not isinstance(messages, Slices) or taken.start < 0 or len(links) < 2:
            return
        ends = list(messages.ends[: lead + len(links) - 1])
        begins = list(messages.begins[: len(ends)])
        key = (seed, links[1])
        self._forget(key)
        self._seen[key] = Seen(messages.body, taken.start, begins, ends, lead, links)
        self._bytes += len(messages.body)
        while self._bytes > self.most_bytes:
            self._forget(next(iter(self._seen)))

    def _forget(self, key: tuple[bytes, bytes]) -> None:
        gone = self._seen.pop(key, None)
        self._bytes -= len(gone.body) if gone else 0


def _behind(seen: Seen, body: bytes, count: int) -> Taken | None:
    """The body read from behind its first `count` messages on; None when that can't be done."""
    if count <= seen.lead:
        return None
    tail = body[seen.ends[count - 1] :].lstrip(_SPACE)
    if tail[:1] == b",":
        tail = tail[1:].lstrip(_SPACE)
        if tail[:1] == b"]":
            return None
    short = body[: seen.start] + tail
    if short.count(b'"messages"') != 1:
        return None  # which of them is meant, only reading all of it tells
    try:
        fields = fields_of(short)
        new = list_of(fields.get("messages"))
    except Unmanageable:
        return None
    begins, ends = _walked(short, seen.start, new)
    shift = len(body) - len(short)
    places = ([*seen.begins[:count], *(n + shift for n in begins)], [*seen.ends[:count], *(n + shift for n in ends)])
    known = count - seen.lead
    return Taken(fields, Slices(body, *places), seen.start, seen.links[: known + 1])
