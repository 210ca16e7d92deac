"""AWS event streams: what Bedrock answers with instead of server-sent events (GW-10).

A frame is a prelude (its length, that of its headers, and a checksum of both), headers, a payload and a checksum of
all. Each event of the Messages API comes as a frame whose payload is `{"bytes": …}`, the event's JSON in base64.
"""

from __future__ import annotations

import base64
import struct
from binascii import crc32
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

from perdure.context.replies import Reply
from perdure.errors import StreamCut
from perdure.gateway.requests import AnswerReader

CONTENT_TYPE = "application/vnd.amazon.eventstream"
_PRELUDE = struct.Struct("!III")
_CHECKSUM = struct.Struct("!I")
_STRING = 7  # the type of a header's value
_VALUE_BYTES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}  # of the types that have no length of their own
_NO_EVENT = b"data:{\n\n"  # which the reader of events can't read, and so reads no further either
_CHUNK_TYPE = "chunk"  # of the frames that have an event of the answer


class BrokenFrame(ValueError):
    """Bytes that are no frame."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame as it came, with its headers that are texts."""

    raw: bytes
    headers: Mapping[str, str]
    payload: bytes


class _ChunkPayload(msgspec.Struct):
    bytes: str


_CHUNK = msgspec.json.Decoder(_ChunkPayload)


def frame(headers: Mapping[str, str], payload: bytes) -> bytes:
    """A frame of texts as headers and a payload."""
    named = b"".join(
        bytes((len(name.encode()),)) + name.encode() + struct.pack("!BH", _STRING, len(value.encode())) + value.encode()
        for name, value in headers.items()
    )
    length = _PRELUDE.size + len(named) + len(payload) + _CHECKSUM.size
    lengths = struct.pack("!II", length, len(named))
    whole = lengths + _CHECKSUM.pack(crc32(lengths)) + named + payload
    return whole + _CHECKSUM.pack(crc32(whole))


def exception_frame(kind: str, message: str) -> bytes:
    """An error in a stream that has begun."""
    headers = {":exception-type": kind, ":content-type": "application/json", ":message-type": "exception"}
    return frame(headers, msgspec.json.encode({"message": message}))


class FrameBuffer:
    """Takes frames out of bytes as they come; `rest` is what of the next one has come."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._parts: list[bytes] = []
        self._bytes = self._wanted = 0

    @property
    def rest(self) -> bytes:
        return b"".join(self._parts)

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are whole now. Raises `BrokenFrame`, and then `rest` begins with the one that is none."""
        self._parts.append(data)
        self._bytes += len(data)
        if self._bytes < max(self._wanted, _PRELUDE.size):
            return
        window, at = self.rest, 0
        try:
            while len(window) - at >= _PRELUDE.size:
                length = _frame_bytes(window, at, self._most_bytes)
                if len(window) - at < length:
                    self._wanted = length
                    break
                found = _opened(window[at : at + length])
                at, self._wanted = at + length, 0
                yield found
        finally:
            self._parts, self._bytes = [window[at:]], len(window) - at


def _frame_bytes(window: bytes, at: int, most_bytes: int) -> int:
    length, headers, checksum = _PRELUDE.unpack_from(window, at)
    if crc32(window[at : at + 8]) != checksum:
        raise BrokenFrame("the checksum of a frame's beginning is wrong")
    if length > most_bytes or length < _PRELUDE.size + headers + _CHECKSUM.size:
        raise BrokenFrame("a frame is too large, or smaller than its headers")
    return int(length)


def _opened(raw: bytes) -> Frame:
    if crc32(raw[: -_CHECKSUM.size]) != _CHECKSUM.unpack(raw[-_CHECKSUM.size :])[0]:
        raise BrokenFrame("a frame's checksum is wrong")
    end = _PRELUDE.size + _PRELUDE.unpack_from(raw)[1]
    return Frame(raw, _headers(raw[_PRELUDE.size : end]), raw[end : -_CHECKSUM.size])


def _headers(raw: bytes) -> dict[str, str]:
    found: dict[str, str] = {}
    at = 0
    try:
        while at < len(raw):
            name_end = at + 1 + raw[at]
            name, kind = raw[at + 1 : name_end].decode(), raw[name_end]
            at = name_end + 1
            if kind in (6, _STRING):  # bytes and texts say their length
                length = int.from_bytes(raw[at : at + 2])
                if kind == _STRING:
                    found[name] = raw[at + 2 : at + 2 + length].decode()
                at += 2 + length
            else:
                at += _VALUE_BYTES[kind]
    except (IndexError, KeyError, UnicodeDecodeError):
        raise BrokenFrame("a frame's headers can't be read") from None
    return found


class FramedReader:
    """An `AnswerReader` for frames, over one for the events that are in them.

    A frame whose event stays as it is leaves as it came. What can't be read is passed on unread, unless the reader has
    left something out before.
    """

    def __init__(self, events: AnswerReader, most_bytes: int) -> None:
        self._events = events
        self._most_bytes = 2 * most_bytes  # base64, and headers
        self._frames = FrameBuffer(self._most_bytes)
        self._is_lost = False
        self.so_far = events.so_far

    @property
    def is_broken(self) -> bool:
        return self._events.is_broken

    def feed(self, data: bytes) -> bytes:
        out: list[bytes] = []
        if self._is_lost:
            out.append(self._unread(data))
        else:
            try:
                for one in self._frames.feed(data):
                    out.append(self._shown(one))
            except BrokenFrame:
                out.append(self._lose())
        if self._is_lost:
            out.append(self._unread(self._frames.rest))
            self._frames = FrameBuffer(self._most_bytes)
        return b"".join(out)

    def end(self) -> bytes:
        return _framed(self._events.end()) + self._unread(self._frames.rest)

    def go_on(self) -> None:
        self._frames = FrameBuffer(self._most_bytes)
        self._events.go_on()

    def reply(self) -> Reply:
        if self._is_lost:
            raise StreamCut("the stream couldn't be read along")
        return self._events.reply()

    def _unread(self, data: bytes) -> bytes:
        return b"" if self._events.is_broken else data

    def _shown(self, one: Frame) -> bytes:
        if self._is_lost or one.headers.get(":event-type") != _CHUNK_TYPE:
            return self._unread(one.raw)  # an exception leaves the answer without its end
        try:
            data = base64.b64decode(_CHUNK.decode(one.payload).bytes)
        except ValueError:
            return self._lose() + self._unread(one.raw)
        event = b"data: " + data.replace(b"\r", b" ").replace(b"\n", b" ") + b"\n\n"
        shown = self._events.feed(event)
        return one.raw if shown == event else _framed(shown)

    def _lose(self) -> bytes:
        """Read no further; what was held back goes on its way, unless what follows can't."""
        self._is_lost = True
        held = self._events.feed(_NO_EVENT)
        return b"" if self._events.is_broken else _framed(held + self._events.end())


def _framed(events: bytes) -> bytes:
    """Server-sent events as frames."""
    headers = {":event-type": _CHUNK_TYPE, ":content-type": "application/json", ":message-type": "event"}
    lines = (line for line in events.split(b"\n") if line.startswith(b"data: "))
    chunks = ({"bytes": base64.b64encode(line[6:]).decode()} for line in lines)
    return b"".join(frame(headers, msgspec.json.encode(chunk)) for chunk in chunks)
