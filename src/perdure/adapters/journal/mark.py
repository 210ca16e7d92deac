"""What is remembered of a journal outside of it, and what its header was when it can't be read (ENG-9)."""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from perdure.adapters.journal.disk import Disk, discard, write_all
from perdure.errors import DamagedLine
from perdure.transcript.codec import FORMAT, VERSION, decode_header, seal, unseal
from perdure.transcript.records import Header

_LONGEST = 2048  # bytes of a header in which one wrong byte is looked for
_TRAILER_BYTES = len(b',"crc":"89abcdef"}')
_SEALED = re.compile(rb',"crc":"([0-9a-f]{8})"\}$')
_BYTES = tuple(bytes([value]) for value in range(256))

T = TypeVar("T")
_MEMBER = rb'"%b":("(?:[^"\\]|\\.)*"|[0-9.eE+-]+)'


@dataclass(frozen=True, slots=True)
class JournalHeader:
    """The header of a journal; `problem` says what was wrong with it and where this one is from."""

    header: Header
    problem: str | None = None


def header_of(path: Path, line: bytes, said: str, elsewhere: bytes | None, copy: bytes) -> JournalHeader:
    """The header, from the first source that has it. `said` is what is wrong with the first line.

    Raises `NewerFormat` when the header that it finds is of a newer version.
    """
    if elsewhere is not None:
        return JournalHeader(
            decode_header(elsewhere), f"the header is damaged ({said}): taken from another place of the file"
        )
    if copy:
        return JournalHeader(decode_header(copy), f"the header is damaged ({said}): taken from its copy in the mark")
    for right in _one_byte_off(line.rstrip(b"\r\n")):
        try:
            return JournalHeader(decode_header(right), f"the header is damaged ({said}): one wrong byte was put right")
        except DamagedLine:
            continue
    return JournalHeader(
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


_MARK_BYTES = 128  # of the part that is written again and again: less than a sector, so that it is there or it isn't
_MOST_BYTES = 64 * 1024


class JournalMark(msgspec.Struct, frozen=True, kw_only=True):
    """How far a journal was acknowledged. `last` is the checksum of the line that ends there.

    Without `is_synced` that was promised to outlive the process, but not a loss of power.
    """

    bytes: int
    seq: int
    last: str
    is_synced: bool


class MarkReading(msgspec.Struct, frozen=True):
    """What the file of a mark says. `problem` when its bytes aren't those that were written."""

    mark: JournalMark | None = None
    header: bytes = b""  # the line without its end; not checked
    problem: str | None = None


NOTHING = MarkReading()
_DECODER = msgspec.json.Decoder(JournalMark)


def mark_path(journal: Path) -> Path:
    """Where the mark of a journal stands."""
    return journal.with_suffix(".mark")


def line_checksum(line: bytes) -> str:
    """The checksum that a line ends with, as a mark names it."""
    return line.rstrip(b"\n")[-10:-2].decode("ascii", "replace")


def read_mark(disk: Disk, journal: Path) -> MarkReading:
    """What is remembered of a journal; nothing where there is no mark or it can't be read."""
    path = mark_path(journal)
    try:
        fd = disk.open(path, os.O_RDONLY)
    except OSError:
        return NOTHING
    try:
        raw = disk.read_at(fd, _MOST_BYTES, 0)
    except OSError:
        return NOTHING
    finally:
        disk.close(fd)
    first, header = raw[:_MARK_BYTES], raw[_MARK_BYTES:].rstrip(b"\n")
    if len(first) < _MARK_BYTES or not first.strip(b"\0 \n"):  # made, and not written yet when the power went
        return MarkReading(None, header)
    try:
        return MarkReading(_DECODER.decode(unseal(first.rstrip(b" \n"))), header)
    except (DamagedLine, msgspec.MsgspecError):
        return MarkReading(None, header, f"{path.name}: what is remembered of the journal's length is damaged")


class MarkFile:
    """The writing end. Nothing here raises `OSError`: a mark that can't be written stays as old as it is."""

    def __init__(self, disk: Disk, journal: Path, header: bytes) -> None:
        self._disk = disk
        self._path = mark_path(journal)
        self._header = header
        self._fd: int | None = None

    def write(self, mark: JournalMark) -> None:
        """Remember this; one small write, without a sync."""
        data = seal(msgspec.json.encode(mark))[:-1].ljust(_MARK_BYTES - 1) + b"\n"
        try:
            if self._fd is None:
                self._fd = self._disk.open(self._path, os.O_RDWR | os.O_CREAT)
                if self._disk.read_at(self._fd, _MOST_BYTES, _MARK_BYTES) != self._header:
                    self._disk.truncate(self._fd, 0)  # a mark without its header, or half of it, says nothing
                    write_all(self._disk, self._fd, b" " * _MARK_BYTES + self._header)
            if self._disk.write_at(self._fd, data, 0) < len(data):
                self.forget()  # half a mark would look like a damaged one
        except OSError:
            self._drop()

    def forget(self) -> None:
        """Remove the mark: from now on nothing is remembered, until the next `write`."""
        self._drop()
        discard(self._disk, self._path)

    def close(self, *, is_synced: bool) -> None:
        """Let go of the file; what it says is on stable storage then, if that is wanted and can be done."""
        if self._fd is not None and is_synced:
            try:
                self._disk.sync_data(self._fd)
            except OSError:
                pass  # then it may be older than it could be
        self._drop()

    def _drop(self) -> None:
        if self._fd is not None:
            fd, self._fd = self._fd, None
            try:
                self._disk.close(fd)
            except OSError:
                pass  # nothing depends on it
