"""What is remembered of a journal outside of it: how far it was acknowledged, and its header (ENG-9).

    journal.mark    {"bytes":…,"seq":…,"last":"89abcdef","is_synced":true,"crc":"…"}      always 128 bytes
                    the journal's first line, as it was written

A journal that was cut by whole lines reads well; only something outside of it can tell. The mark is written after the
lines that it speaks of are where they were promised to be, and never synced for it: so it is as old as the journal or
older. A journal that is longer than its mark is normal (the process or the power went in between); one that is shorter
has lost what was acknowledged. A mark that is gone or empty says nothing. See docs/adr/0029.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from holdfast.adapters.files.disk import Disk, discard, write_all
from holdfast.errors import DamagedLine
from holdfast.transcript.codec import seal, unseal

_MARK_BYTES = 128  # of the part that is written again and again: less than a sector, so that it is there or it isn't
_MOST_BYTES = 64 * 1024


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """How far a journal was acknowledged. `last` is the checksum of the line that ends there.

    Without `is_synced` that was promised to outlive the process, but not a loss of power.
    """

    bytes: int
    seq: int
    last: str
    is_synced: bool


class Remembered(msgspec.Struct, frozen=True):
    """What the file of a mark says. `problem` when its bytes aren't those that were written."""

    mark: Mark | None = None
    header: bytes = b""  # the line without its end; not checked
    problem: str | None = None


NOTHING = Remembered()
_DECODER = msgspec.json.Decoder(Mark)


def mark_path(journal: Path) -> Path:
    """Where the mark of a journal stands."""
    return journal.with_suffix(".mark")


def last_of(line: bytes) -> str:
    """The checksum that a line ends with, as a mark names it."""
    return line.rstrip(b"\n")[-10:-2].decode("ascii", "replace")


def remembered(disk: Disk, journal: Path) -> Remembered:
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
        return Remembered(None, header)
    try:
        return Remembered(_DECODER.decode(unseal(first.rstrip(b" \n"))), header)
    except (DamagedLine, msgspec.MsgspecError):
        return Remembered(None, header, f"{path.name}: what is remembered of the journal's length is damaged")


class MarkFile:
    """The writing end. Nothing here raises `OSError`: a mark that can't be written stays as old as it is."""

    def __init__(self, disk: Disk, journal: Path, header: bytes) -> None:
        self._disk = disk
        self._path = mark_path(journal)
        self._header = header
        self._fd: int | None = None

    def write(self, mark: Mark) -> None:
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
