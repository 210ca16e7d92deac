"""What the header of a journal was, when its first line can't be read (ENG-9).

In this order: the header where it stands in another place of the file; the copy beside the journal; the damaged bytes,
if putting one byte right makes its checksum hold; what can still be read in them, with the folder's name for the id.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from holdfast.errors import DamagedLine
from holdfast.transcript.codec import FORMAT, VERSION, decode_header, seal
from holdfast.transcript.records import Header

_LONGEST = 2048  # bytes of a header in which one wrong byte is looked for
_TRAILER_BYTES = len(b',"crc":"89abcdef"}')
_SEALED = re.compile(rb',"crc":"([0-9a-f]{8})"\}$')
_BYTES = tuple(bytes([value]) for value in range(256))

T = TypeVar("T")
_MEMBER = rb'"%b":("(?:[^"\\]|\\.)*"|[0-9.eE+-]+)'


@dataclass(frozen=True, slots=True)
class Found:
    """The header of a journal; `problem` says what was wrong with it and where this one is from."""

    header: Header
    problem: str | None = None


def header_of(path: Path, line: bytes, said: str, elsewhere: bytes | None, copy: bytes) -> Found:
    """The header, from the first source that has it. `said` is what is wrong with the first line.

    Raises `NewerFormat` when the header that it finds is of a newer version.
    """
    if elsewhere is not None:
        return Found(decode_header(elsewhere), f"the header is damaged ({said}): taken from another place of the file")
    if copy:
        return Found(decode_header(copy), f"the header is damaged ({said}): taken from its copy in the mark")
    for right in _one_byte_off(line.rstrip(b"\r\n")):
        try:
            return Found(decode_header(right), f"the header is damaged ({said}): one wrong byte was put right")
        except DamagedLine:
            continue
    return Found(
        _guessed(path, line),
        f"the header is damaged ({said}): made from what can be read of it and the folder's name",
    )


def _one_byte_off(line: bytes) -> Iterator[bytes]:
    """The lines that differ in one byte (changed, lost, or too many) and whose checksum holds."""
    if not 0 < len(line) <= _LONGEST:
        return
    for end in range(max(0, len(line) - _TRAILER_BYTES - 1), len(line)):  # the byte is in the checksum
        right = seal(line[:end] + b"}").rstrip(b"\n")
        if any(right[:at] + right[at + 1 :] in (line, line[:at] + line[at + 1 :]) for at in range(end, len(right))):
            yield right
        yield from (right for at in range(end, len(line)) if line[:at] + line[at + 1 :] == right)
    sealed = _SEALED.search(line)
    if sealed is None:
        return
    body, wanted = line[: sealed.start()], int(sealed.group(1), 16)
    for at in range(len(body) + 1):  # the byte is before it
        crc, rest = zlib.crc32(body[:at]), body[at + 1 :]
        for byte in (b"", *_BYTES):
            for tail in (byte + rest, byte + body[at:]):
                if zlib.crc32(tail, crc) == wanted:
                    yield body[:at] + tail + line[sealed.start() :]


def _guessed(path: Path, line: bytes) -> Header:
    created = _member(line, b"created", float)
    if created is None:
        created = path.stat().st_mtime
    version = _member(line, b"version", int)
    return Header(
        format=FORMAT,
        version=version if version is not None and 1 <= version <= VERSION else VERSION,
        session=path.parent.name,
        created=created,
        project=_member(line, b"project", str),
        source=_member(line, b"source", str),
        forked_from=_member(line, b"forked_from", str),
    )


def _member(line: bytes, name: bytes, kind: type[T]) -> T | None:
    found = re.search(_MEMBER % name, line)
    try:
        return msgspec.json.decode(found.group(1), type=kind) if found else None
    except msgspec.MsgspecError:
        return None
