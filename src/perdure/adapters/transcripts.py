"""Transcripts that another program writes elsewhere, kept here as well: lines of JSON, as they come (LIB-4).

They lie as Claude Code lays its own, `<project>/<session>.jsonl`, with what belongs to a session in the folder
`<project>/<session>`, so that every command that reads such folders reads this one.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from perdure.adapters.journal.disk import DISK, make_private, write_all
from perdure.adapters.machine.system import lock, open_itself, read_at, replace
from perdure.errors import NameRefused

Entry = dict[str, Any]
Fold = Callable[["dict[str, Any] | None", Sequence[Entry]], "dict[str, Any]"]
"""Makes the summary of a transcript from the one before and what came since; None: there was none."""

_SUFFIX: Final = ".jsonl"
_PART: Final = re.compile(r"(?!\.)[^/\\\0]{1,200}(?<!\.jsonl)\Z")
_MOST_KNOWN: Final = 64  # transcripts whose ids are remembered


@dataclass(slots=True)
class _KnownIds:
    """The ids in the first so many bytes of a file."""

    inode: int
    bytes: int = 0
    ids: set[str] = field(default_factory=set)

    def has(self, entry: Entry) -> bool:
        """Whether the id of an entry is known; from now on it is."""
        identity = entry.get("uuid")
        if not isinstance(identity, str):
            return False
        is_known = identity in self.ids
        self.ids.add(identity)
        return is_known


class TranscriptFolder:
    """Transcripts in a folder. Several processes may write the same one; all calls block.

    Args:
        folder: Where they are; it is made when the first entry comes.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: OrderedDict[Path, _KnownIds] = OrderedDict()

    def append(self, parts: Sequence[str], entries: Sequence[Entry], fold: Fold | None = None) -> None:
        """Add entries, durably, but for those whose `uuid` is there already.

        Args:
            parts: The project, the session, and what belongs to the session; or the first two alone.
            entries: Objects that JSON can say.
            fold: Keeps a summary of the whole beside it, which `summaries` gives.

        Raises:
            NameRefused: A part is no name for a file.
            OSError: The disk refuses.
        """
        path = self._path(parts)
        if not entries:
            return
        make_private(path.parent)
        with _locked(path) as fd:
            known = self._ids(path, fd)
            new = [entry for entry in entries if not known.has(entry)]
            lines = b"".join(json.dumps(entry, separators=(",", ":")).encode() + b"\n" for entry in new)
            size = os.fstat(fd).st_size
            if size and read_at(fd, 1, size - 1) != b"\n":
                lines = b"\n" + lines  # what a crash had cut off stays a line of its own
            try:
                write_all(DISK, fd, lines)
                DISK.sync_data(fd)
            except OSError:
                self._known.pop(path, None)
                raise
            known.bytes = size + len(lines)
            if fold is not None:
                self._fold(path, size, new, os.fstat(fd), fold)
        if not size:
            DISK.sync_directory(path.parent)

    def load(self, parts: Sequence[str]) -> list[Entry] | None:
        """All entries of a transcript, in order; None where there is none. A line that a crash cut off is left out."""
        try:
            return list(_entries(self._path(parts).read_bytes()))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def sessions(self, project: str) -> list[tuple[str, int]]:
        """The sessions of a project, and when each was last written, in milliseconds since 1970."""
        found = []
        for path in self._folder(project).glob(f"*{_SUFFIX}"):
            try:
                found.append((path.stem, path.stat().st_mtime_ns // 1_000_000))
            except FileNotFoundError:
                continue  # deleted meanwhile
        return found

    def summaries(self, project: str) -> list[tuple[str, int, dict[str, Any]]]:
        """The sessions of a project that have a summary: their names, of when it is, and what it says."""
        found = []
        for session, _ in self.sessions(project):
            told = _summary(self._path((project, session)))
            if told is not None:
                found.append((session, int(told["mtime"]), told["data"]))
        return found

    def belongings(self, project: str, session: str) -> list[str]:
        """What belongs to a session, each as the rest of its parts joined by slashes."""
        folder = self._path((project, session)).with_suffix("")
        return sorted(path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob(f"*{_SUFFIX}"))

    def delete(self, parts: Sequence[str]) -> None:
        """Delete a transcript; with a session goes what belongs to it. One that isn't there is no mistake."""
        path = self._path(parts)
        self._known.pop(path, None)
        _summary_path(path).unlink(missing_ok=True)
        path.unlink(missing_ok=True)
        if len(parts) == 2:
            shutil.rmtree(path.with_suffix(""), ignore_errors=True)

    def _folder(self, project: str) -> Path:
        return self.folder / _checked(project)

    def _path(self, parts: Sequence[str]) -> Path:
        """The file of a transcript. Raises `NameRefused`."""
        *folders, name = map(_checked, parts)
        return self.folder.joinpath(*folders, name + _SUFFIX)

    def _ids(self, path: Path, fd: int) -> _KnownIds:
        """The ids that are in a file, those that another process wrote among them."""
        status = os.fstat(fd)
        known = self._known.pop(path, None)
        if known is None or known.inode != status.st_ino or known.bytes > status.st_size:
            known = _KnownIds(status.st_ino)
        for entry in _entries(read_at(fd, status.st_size - known.bytes, known.bytes)):
            known.has(entry)
        known.bytes = status.st_size
        self._known[path] = known
        if len(self._known) > _MOST_KNOWN:
            self._known.popitem(last=False)
        return known

    def _fold(self, path: Path, before: int, new: Sequence[Entry], status: os.stat_result, fold: Fold) -> None:
        """Bring the summary up to date; one that missed something, since its process died, is made anew."""
        told = _summary(path)
        if told is None or told["bytes"] != before:
            told, new = None, list(_entries(path.read_bytes()))
        data = fold(told and told["data"], new)
        made = {"mtime": status.st_mtime_ns // 1_000_000, "bytes": status.st_size, "data": data}
        draft = _summary_path(path).with_suffix(".new")
        draft.write_text(json.dumps(made), "utf-8")
        replace(draft, _summary_path(path))


def _checked(part: str) -> str:
    if not _PART.match(part):
        raise NameRefused(f"{part!r:.80} can't be the name of a transcript: it would leave its folder, or clash in it")
    return part


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    """The file, open for appending by nobody else."""
    while True:
        fd = open_itself(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        try:
            lock(fd)
            if not os.fstat(fd).st_nlink:  # deleted while we waited
                continue
            yield fd
            return
        finally:
            os.close(fd)


def _entries(data: bytes) -> Iterator[Entry]:
    for line in data.split(b"\n"):
        try:
            entry = json.loads(line)
        except ValueError:
            continue  # blank, or cut off
        if isinstance(entry, dict):
            yield entry


def _summary_path(path: Path) -> Path:
    return path.with_name(f".{path.stem}.summary")


def _summary(path: Path) -> dict[str, Any] | None:
    try:
        told: dict[str, Any] = json.loads(_summary_path(path).read_bytes())
        return told
    except (FileNotFoundError, ValueError):
        return None
