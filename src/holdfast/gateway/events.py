"""Server-sent events on their way through: whole events leave as the bytes that came, the last one waits (GW-1)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import msgspec

_LOG = logging.getLogger("holdfast.gateway")
_DECODE = msgspec.json.Decoder(dict[str, Any]).decode
_ENDS = (b"\n\n", b"\r\n\r\n")


class EventReader:
    """Parts a stream into events. `look` sees the data of each: it may give other data, or None to leave it as it is.

    What can't be read is passed on all the same, and nothing of the stream is looked at any more (REL-15). `is_end`
    says which data ends an answer: it is held back until `end`.
    """

    def __init__(
        self, look: Callable[[dict[str, Any]], dict[str, Any] | None], is_end: Callable[[bytes], bool]
    ) -> None:
        self._look, self._is_end = look, is_end
        self._rest = b""
        self._held = b""
        self._is_over = False
        self.is_lost = False

    def take(self, data: bytes) -> bytes:
        """The bytes to pass on now."""
        out: list[bytes] = []
        self._rest += data
        while not self._is_over and (cut := _cut(self._rest)):
            event, self._rest = self._rest[:cut], self._rest[cut:]
            out.append(self._event(event))
        return b"".join(out)

    def end(self) -> bytes:
        """What was held back, and what never became an event."""
        rest, self._held, self._rest = self._held + self._rest, b"", b""
        return rest

    def _event(self, event: bytes) -> bytes:
        data = _data(event)
        if not data:
            return event
        if self._is_end(data):
            self._held, self._is_over = event, True
            self._seen(data)
            return b""
        other = self._seen(data)
        if other is None:
            return event
        head = event[: event.find(b"data:")]
        return head + b"data: " + msgspec.json.encode(other) + b"\n\n"

    def _seen(self, data: bytes) -> dict[str, Any] | None:
        if self.is_lost or data == b"[DONE]":
            return None
        try:
            return self._look(_DECODE(data))
        except (msgspec.MsgspecError, KeyError, TypeError, ValueError, AttributeError) as e:
            self.is_lost = True
            _LOG.warning("an answer's stream can't be read along (%s): it is passed on unread", type(e).__name__)
            return None


def _cut(data: bytes) -> int:
    """Where the first whole event ends; 0 when there is none yet."""
    found = [at + len(end) for end in _ENDS if (at := data.find(end)) >= 0]
    return min(found, default=0)


def _data(event: bytes) -> bytes:
    lines = [line[5:].strip() for line in event.splitlines() if line.startswith(b"data:")]
    return lines[0] if len(lines) == 1 else b"\n".join(lines)
