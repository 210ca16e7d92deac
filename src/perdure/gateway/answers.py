"""Answers on their way through: whole events leave as the bytes that came, the last one waits (GW-1).

A protocol says what its events and bodies mean; how they are taken apart and held back is the same for both.
Work is linear in what comes, however it comes in pieces, and one event is read only up to a size (SPD-8): what is
larger is passed on as it comes, unread, with all that follows it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import msgspec

from perdure.context.replies import Reply
from perdure.errors import ModelError, StreamCut
from perdure.gateway.requests import UNREADABLE, Unmanageable, fields_of

_LOG = logging.getLogger("perdure.gateway")
_DECODE = msgspec.json.Decoder(dict[str, Any]).decode
_END = re.compile(rb"\n\r?\n")
_END_BYTES = 3
MOST_BYTES = 1024 * 1024  # some milliseconds of reading; a text that a model writes in one piece is far smaller


class HiddenCalls(Protocol):
    """What an answer leaves out for its client: calls of a tool that isn't the client's (GW-8)."""

    @property
    def is_patched(self) -> bool:
        """Whether anything was left out or renumbered, so that what follows can't be passed on unread."""
        ...

    @property
    def is_ending(self) -> bool:
        """Whether the end of an answer that may go on has begun: from there on everything is held back."""
        ...

    def shown(self, body: dict[str, Any]) -> dict[str, Any] | None:
        """The fields that a whole body shows otherwise; None when it may stay as it is."""
        ...

    def go_on(self) -> None:
        """The answer that came is over, and another one follows as a part of the same."""
        ...


# What becomes of what comes: it is passed on, held back as a part of the end, stands behind the end, or is of no use.
_PASSED, _HELD, _OVER, _BROKEN = range(4)

LEFT_OUT: dict[str, Any] = {}
"""What a reader's `look` gives for an event that the client isn't to see."""


class StreamReader:
    """Parts a stream into events. `look` sees the data of each: it may give other data, `LEFT_OUT`, or None to leave it
    as it is.

    What can't be read, or is larger than `most_bytes`, is passed on all the same, and nothing of the stream is looked
    at any more: `is_lost` (REL-15). `is_end` says which data ends an answer: it is held back until `end`. `reply` makes
    the answer of all that `look` saw. With `hidden`, an answer may leave calls out and go on in another stream.
    """

    def __init__(
        self,
        look: Callable[[dict[str, Any]], dict[str, Any] | None],
        is_end: Callable[[bytes], bool],
        reply: Callable[[], Reply],
        most_bytes: int,
        hidden: HiddenCalls | None = None,
    ) -> None:
        self._look, self._is_end, self._reply, self._most_bytes = look, is_end, reply, most_bytes
        self._hidden = hidden
        self.so_far: Callable[[], Reply] | None = None
        self._events = EventSplitter(most_bytes)
        self._held: list[bytes] = []  # the end of the answer, and what came behind it
        self._stage = _PASSED
        self.is_lost = False

    @property
    def is_broken(self) -> bool:
        return self._stage == _BROKEN

    def feed(self, data: bytes) -> bytes:
        """The bytes to pass on now."""
        if self._stage == _BROKEN:
            return b""
        if self._stage == _OVER:
            self._held.append(data)
            return b""
        was_lost = self.is_lost
        if was_lost:
            return data
        out: list[bytes] = []
        for event in self._events.feed(data):
            shown = self._event(event)
            (out if self._stage == _PASSED else self._held).append(shown)
            if self.is_lost or self._stage == _OVER:
                break
        if self._stage == _OVER:
            self._held.append(self._events.rest())
        elif self.is_lost or self._events.is_full:
            self._lose("an event is too large")
            out += (*self._held, self._events.rest())
            self._held = []
        return b"" if self._stage == _BROKEN else b"".join(out)

    def end(self) -> bytes:
        """What was held back, and what never became an event."""
        rest, self._held = b"".join(self._held) + self._events.rest(), []
        return rest

    def reply(self) -> Reply:
        """The answer. Raises `StreamCut` for one that broke off or was passed on unread."""
        if self.is_lost:
            raise StreamCut("the stream couldn't be read along")
        return self._reply()

    def go_on(self) -> None:
        """Forget the end that was held back: another stream follows, with what this answer goes on with."""
        assert self._hidden is not None, "only an answer with hidden calls goes on"
        self._hidden.go_on()
        self._held, self._stage = [], _PASSED
        self._events = EventSplitter(self._most_bytes)

    def _event(self, event: bytes) -> bytes:
        data = data_of(event)
        if not data:
            return event
        other = self._seen(data)
        if self._stage == _BROKEN:
            return b""
        if self._is_end(data):
            self._stage = _OVER
        elif self._hidden is not None and self._hidden.is_ending:
            self._stage = _HELD
        if other is None:
            return event
        return event[: event.find(b"data:")] + b"data: " + msgspec.json.encode(other) + b"\n\n" if other else b""

    def _seen(self, data: bytes) -> dict[str, Any] | None:
        if data == b"[DONE]":
            return None
        if len(data) > self._most_bytes:
            self._lose("an event is too large")
            return None
        try:
            return self._look(_DECODE(data))
        except (ModelError, *UNREADABLE, LookupError, TypeError, ValueError, AttributeError) as e:
            self._lose(type(e).__name__)
            return None

    def _lose(self, why: str) -> None:
        if not self.is_lost:
            self.is_lost = True
            if self._hidden is not None and self._hidden.is_patched:
                self._stage = _BROKEN
            what = "it breaks off here" if self._stage == _BROKEN else "it is passed on unread"
            _LOG.warning("an answer's stream can't be read along (%s): %s", why, what)


class BodyReader:
    """Holds an answer that is no stream until `end`, so that it can be read; as an event, one that is too large isn't.

    `usage` gives other usage to show the client, or None to leave it as it is; `shown` are other fields that it is to
    see. `reply` makes the answer of the body.
    """

    def __init__(
        self,
        usage: Callable[[Any], dict[str, Any] | None],
        reply: Callable[[Any], Reply],
        most_bytes: int,
        hidden: HiddenCalls | None = None,
        shown: Mapping[str, Any] | None = None,
    ) -> None:
        self._usage, self._reply, self._most_bytes, self._hidden = usage, reply, most_bytes, hidden
        self._shown = shown or {}
        self.so_far: Callable[[], Reply] | None = None
        self._waiting = BoundedBuffer(most_bytes)
        self.is_lost = self.is_broken = False

    def feed(self, data: bytes) -> bytes:
        """The bytes to pass on now."""
        if self.is_lost or self._waiting.add(data):
            return data if self.is_lost and not self.is_broken else b""
        self.is_lost = True
        self.is_broken = self._hidden is not None and self._hidden.is_patched
        _LOG.warning("an answer is too large to be read: it is passed on unread")
        return b"" if self.is_broken else self._waiting.whole(data)

    def end(self) -> bytes:
        """What is to be passed on at the end."""
        if self.is_lost:
            return b""
        body = self._waiting.joined()
        try:
            fields = fields_of(body)
            seen = self._hidden.shown(msgspec.json.decode(body)) if self._hidden is not None else None
            shown = {**self._shown, **(seen or {})}
            usage = self._usage(msgspec.json.decode(fields["usage"])) if "usage" in fields else None
        except (Unmanageable, *UNREADABLE, LookupError, TypeError, ValueError, AttributeError):
            return body
        if usage is not None:
            shown["usage"] = usage
        return msgspec.json.encode({**fields, **shown}) if shown else body

    def go_on(self) -> None:
        """This body is a part of an answer that goes on in another one."""
        assert self._hidden is not None, "only an answer with hidden calls goes on"
        self._hidden.shown(msgspec.json.decode(self._waiting.joined()))
        self._waiting = BoundedBuffer(self._most_bytes)
        self._hidden.go_on()

    def reply(self) -> Reply:
        """The answer. Raises `StreamCut` for one that is none or was passed on unread."""
        if self.is_lost:
            raise StreamCut("the answer is too large to be read")
        try:
            return self._reply(msgspec.json.decode(self._waiting.joined()))
        except (*UNREADABLE, LookupError, TypeError, ValueError, AttributeError) as e:
            raise StreamCut(f"the answer can't be read: {type(e).__name__}") from e


def summed_usage(before: dict[str, Any], usage: dict[str, Any]) -> dict[str, Any]:
    """The usage of two answers: counts are added, in whatever they are nested; of anything else the later holds."""
    total = {**before, **usage}
    for name in before.keys() & usage.keys():
        first, second = before[name], usage[name]
        if isinstance(first, dict) and isinstance(second, dict):
            total[name] = summed_usage(first, second)
        elif isinstance(first, list) and isinstance(second, list):
            total[name] = [*first, *second]
        elif isinstance(first, int) and isinstance(second, int):
            total[name] = first + second
    return total


class EventSplitter:
    """Parts a stream into events, in time linear in what comes. `is_full`: an event is larger than it may be."""

    def __init__(self, most_bytes: int) -> None:
        self._waiting = BoundedBuffer(most_bytes)  # of an event whose end hasn't come
        self._window, self._start = b"", 0  # the piece that is looked at, and from where on
        self.is_full = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The events that this piece ends. Whoever stops in the middle takes the `rest`."""
        tail = self._waiting.tail  # an end may have begun in what waits
        self._window, self._start = tail + data if tail else data, len(tail)
        looked_at = 0
        while found := _END.search(self._window, looked_at):
            event = self._waiting.whole(self._window[self._start : found.end()])
            self._start = looked_at = found.end()
            yield event
        if self._waiting.add(self._window[self._start :]):
            self._window, self._start = b"", 0
        else:
            self.is_full = True

    def rest(self) -> bytes:
        """What has come and is in no event; it is kept no longer."""
        rest = self._waiting.whole(self._window[self._start :])
        self._window, self._start = b"", 0
        return rest


def data_of(event: bytes) -> bytes:
    """What an event says."""
    lines = [line[5:].strip() for line in event.splitlines() if line.startswith(b"data:")]
    return lines[0] if len(lines) == 1 else b"\n".join(lines)


class BoundedBuffer:
    """Pieces of something that is read once it is whole, up to a size."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._parts: list[bytes] = []
        self._bytes = 0

    @property
    def tail(self) -> bytes:
        """The last bytes, in which the end of an event may have begun."""
        return b"".join(self._parts[1 - _END_BYTES :])[1 - _END_BYTES :] if self._parts else b""

    def add(self, data: bytes) -> bool:
        """Keep a piece; False when that would be too much, and then it isn't kept."""
        if self._bytes + len(data) > self._most_bytes:
            return False
        if data:
            self._parts.append(data)
            self._bytes += len(data)
        return True

    def joined(self) -> bytes:
        """All pieces; they stay."""
        self._parts = [b"".join(self._parts)]
        return self._parts[0]

    def whole(self, data: bytes = b"") -> bytes:
        """All pieces with this one behind them; none is kept any longer."""
        parts, self._parts, self._bytes = self._parts, [], 0
        return b"".join((*parts, data)) if parts else data
