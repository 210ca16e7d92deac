"""What a plain file is, what is known of one, and how errors of the disk are said: one line, one family (SEC-2)."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from holdfast.errors import FileMissing, FileRefused, NameTaken, NotPlain
from holdfast.memory.names import shown


@dataclass(frozen=True, slots=True)
class Entry:
    """A regular file below the root. `version` changes whenever its content may have."""

    name: str
    bytes: int
    mtime_ns: int
    version: tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Listed:
    """All files in order of their names; `refused` are others with the reason; `is_cut`: there were more."""

    entries: tuple[Entry, ...]
    refused: tuple[tuple[str, str], ...] = ()
    is_cut: bool = False


def not_plain(about: os.stat_result) -> str | None:
    if stat.S_ISLNK(about.st_mode):
        return "is a symbolic link, and links aren't followed"
    if stat.S_ISDIR(about.st_mode):
        return "is a folder"
    if not stat.S_ISREG(about.st_mode):
        return "is not a regular file"
    if about.st_nlink > 1:  # none at all: replaced since it was opened, and still what it was
        return "has another name elsewhere (a hard link), so it may be a file of another place"
    return None


def entry(name: str, about: os.stat_result) -> Entry:
    version = (about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)
    return Entry(name, about.st_size, about.st_mtime_ns, version)


_WORDS: dict[int, tuple[Callable[[str], FileRefused], str]] = {
    errno.ENOENT: (FileMissing, "there is no such file"),
    errno.EEXIST: (NameTaken, "there is such a file already"),
    errno.ELOOP: (NotPlain, "a symbolic link is on the way, and links aren't followed"),
    errno.EXDEV: (NotPlain, "it lies outside the folder"),
    errno.ENOTDIR: (NotPlain, "a part of its name is no folder"),
    errno.EISDIR: (NotPlain, "is a folder"),
    errno.ENXIO: (NotPlain, "is not a regular file"),
}


@contextmanager
def said(name: str, where: str = "") -> Iterator[None]:
    """What the disk says as one line of the one family of errors."""
    try:
        yield
    except OSError as e:
        kind, words = _WORDS.get(e.errno or 0, (FileRefused, (e.strerror or "it can't be used").lower()))
        raise kind(f"{where or shown(name)}: {words}") from e
