"""Which folder of a home is a project's: one for each project, whatever the paths look like (ENG-4).

Homes of before have folders without a digest in their names, which the projects `a-b` and `a/b` share. What is in one
stays there: a session is of the project that its header names, and the memories are of one project alone.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from perdure.adapters.journal import JOURNAL
from perdure.adapters.journal.disk import DISK, Disk, discard, write_new
from perdure.adapters.journal.reading import header_at
from perdure.adapters.machine.system import HAS_LONG_PATHS, open_file, read_file
from perdure.errors import PerdureError
from perdure.transcript.records import Header

PROJECTS = "projects"
OWNER = "project"  # beside what is shared in a folder of before: the path of the project that it is of
_NAME_CHARS = 200 if HAS_LONG_PATHS else 60
_DIGEST_CHARS = 16


def folder_name(project: str | Path) -> str:
    """The name of a project's folder: its real path with dashes, for people, and a digest of it, which tells it apart.

    What was dashed has no underline, so that no path gives a name of before that is the folder of another.
    """
    return folder_of_name(_spelled(os.path.realpath(project)))


def folder_of_name(project: str) -> str:
    """The name of the folder of a project that is known by a name; no disk is looked at."""
    return f"{_dashed(project)[:_NAME_CHARS]}_{_digest(project)[:_DIGEST_CHARS]}"


def is_of_another(project: str | Path, recorded: str | None, name_of: Callable[[str], str]) -> bool:
    """Whether what stands in a folder that several projects share is another one's, by the path recorded in it.

    Args:
        project: The project that it is looked for.
        recorded: The real path that is recorded; what records none is anybody's, as is what was moved here by hand.
        name_of: How the folder is named after a path.
    """
    if not recorded or "\0" in recorded:
        return False
    mine, other = _spelled(os.path.realpath(project)), _spelled(recorded)
    return other != mine and name_of(other) == name_of(mine)


class ProjectFolders:
    """The folders of one project at a home.

    Args:
        home: The home.
        project: The folder that people work in.
    """

    def __init__(self, home: Path, project: str | Path) -> None:
        self._path = _spelled(os.path.realpath(project))
        self._own = home / PROJECTS / folder_name(self._path)
        self._shared = home / PROJECTS / _name_before(self._path)

    def directories(self) -> Iterator[Path]:
        """What may be a session of it: the directories in its folder, and in that of before those that are its own."""
        yield from folders_in(self._own)
        yield from filter(self._is_mine, folders_in(self._shared))

    def session(self, name: str) -> Path:
        """Where a session of it stands, or would stand."""
        before = self._shared / name
        return before if before.is_dir() and self._is_mine(before) else self._own / name

    def place(self, name: str, *, disk: Disk = DISK) -> Path:
        """Where something of it stands that is no session, or would stand: its memories, the prompts typed in it."""
        own, before = self._own / name, self._shared / name
        return before if not own.exists() and before.exists() and self._has_shared(disk) else own

    def _is_mine(self, directory: Path) -> bool:
        header = _header_in(directory)
        return header is None or not is_of_another(self._path, header.project, _name_before)

    def _has_shared(self, disk: Disk) -> bool:
        """Whether what a folder of before holds beside sessions is this project's: who made the oldest session there.

        That is noted once, as sessions are deleted; without any, the first project that comes is noted.
        """
        note = self._shared / OWNER
        if (noted := _noted(note)) is None:
            headers = [header for one in folders_in(self._shared) if (header := _header_in(one)) is not None]
            made = [(one.created, _spelled(one.project)) for one in headers if one.project]
            alike = [(at, path) for at, path in made if _name_before(path) == self._shared.name]
            noted = _note(note, min(alike, default=(0.0, self._path))[1], disk)
        return noted == self._path


def _spelled(path: str) -> str:
    return unicodedata.normalize("NFC", path)


def _dashed(path: str) -> str:
    return re.sub(r"[^a-zA-Z0-9]", "-", path)


def _digest(path: str) -> str:
    return hashlib.sha256(path.encode(errors="surrogateescape")).hexdigest()


def _name_before(path: str) -> str:
    """How a folder was named before, after a real path."""
    name = _dashed(path)
    return name if len(name) <= _NAME_CHARS else f"{name[:_NAME_CHARS]}-{_digest(path)[:12]}"


def folders_in(parent: Path) -> list[Path]:
    """The directories in a directory; none when it can't be read."""
    try:
        with os.scandir(parent) as entries:
            return sorted(Path(e.path) for e in entries if e.is_dir(follow_symlinks=False))
    except OSError:
        return []


def _header_in(directory: Path) -> Header | None:
    try:
        fd = open_file(directory / JOURNAL, os.O_RDONLY)
        try:
            return header_at(fd)
        finally:
            os.close(fd)
    except (OSError, PerdureError):
        return None


def _noted(note: Path) -> str | None:
    try:
        return os.fsdecode(read_file(note)).rstrip("\n") or None
    except OSError:
        return None


def _note(note: Path, path: str, disk: Disk) -> str:
    """Note an owner, unless somebody else did meanwhile; whose it is. A home that can't be written isn't noted in."""
    draft = note.with_name(f"{note.name}.new-{secrets.token_hex(8)}")
    with suppress(OSError):
        write_new(disk, draft, os.fsencode(f"{path}\n"))
        try:
            disk.link(draft, note)
        finally:
            discard(disk, draft)
    return _noted(note) or path
