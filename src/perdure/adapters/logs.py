"""Logs of other agents on this machine: where clients keep them, which files of a folder are logs, and reading one
(ENG-6, CLI-6).

A folder may hold anything: nothing in it is followed, waited for, or read without a limit.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from perdure.adapters.journal.projects import folders_in, is_of_another
from perdure.adapters.machine.clients import claude_folders, codex_folder
from perdure.adapters.machine.system import AT_ONCE, CLOSE_ON_EXEC
from perdure.errors import FileRefused, FileTooLarge, NotPlain
from perdure.logs.detect import HEAD_BYTES, detect

LARGEST_BYTES = 512 * 2**20  # of a log; reading one takes about three times as much memory
_LONGEST_NAME = 200  # of a project's folder, before the hash
_SUFFIXES = (".jsonl", ".json", ".traj")
_CWD = re.compile(rb'"cwd"\s*:\s*("(?:[^"\\]|\\.)*")')
_KINDS = (
    (stat.S_ISLNK, "a symbolic link, which isn't followed: name what it points to"),
    (stat.S_ISFIFO, "a pipe, not a file"),
    (stat.S_ISSOCK, "a socket, not a file"),
    (stat.S_ISCHR, "a device, not a file"),
    (stat.S_ISBLK, "a device, not a file"),
)


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file and how it was when it was looked at."""

    path: Path
    bytes: int = 0
    mtime_ns: int = 0


@dataclass(frozen=True, slots=True)
class FoundLogs:
    """What stands in some folders: logs, by their paths; what can't be one and why; how many other JSON files."""

    files: tuple[LogFile, ...]
    refused: tuple[str, ...] = ()
    others: int = 0

    @property
    def bytes(self) -> int:
        """Of all logs."""
        return sum(file.bytes for file in self.files)

    @property
    def paths(self) -> list[Path]:
        """Of all logs."""
        return [file.path for file in self.files]


def places_of_clients(environ: Mapping[str, str]) -> tuple[tuple[str, Path], ...]:
    """The folders that are there in which clients keep their logs, each with the client's name."""
    codex = codex_folder(environ)
    wanted = [
        *(("Claude Code", folder / "projects") for folder in claude_folders(environ)),
        ("Codex", codex / "sessions"),
        ("Codex", codex / "archived_sessions"),
    ]
    return tuple((client, folder) for client, folder in wanted if folder.is_dir())


def has_log(client: str, session: str, environ: Mapping[str, str]) -> bool:
    """Whether a client still keeps its log of a session; each deletes old ones."""
    pattern = f"*/{session}.jsonl" if client == "Claude Code" else f"**/*{session}.jsonl"
    folders = (folder for name, folder in places_of_clients(environ) if name == client)
    return any(True for folder in folders for _ in folder.glob(pattern))


def find_logs(paths: Sequence[Path]) -> FoundLogs:
    """The files named, and the logs in the folders named. A file that is named is taken as it is, wherever it leads."""
    files: dict[Path, LogFile] = {}
    refused: list[str] = []
    others = 0
    for path in paths:
        if not path.is_dir():
            try:
                about = path.stat()
                files[path] = LogFile(path, about.st_size, about.st_mtime_ns)
            except OSError:
                files[path] = LogFile(path)  # reading it says why
            continue
        for file in sorted(_files_below(path, refused), key=lambda file: file.path):
            if file.bytes > LARGEST_BYTES:
                refused.append(f"{file.path}: {_too_large(file.bytes)}")
            elif _is_something_else(file.path):
                others += 1
            else:
                files[file.path] = file
    return FoundLogs(tuple(files.values()), tuple(refused), others)


def logs_of_project(folder: Path, environ: Mapping[str, str]) -> FoundLogs:
    """The logs that clients keep of the work in one folder.

    Claude Code has a folder for each project, named after its path, which those of `a-b` and `a/b` share; Codex has one
    for all. Both say in the first lines of a log where they were at work.
    """
    named = {str(folder), os.path.realpath(folder)}
    files: list[LogFile] = []
    refused: list[str] = []
    for client, place in places_of_clients(environ):
        is_apart = client == "Claude Code"
        found = find_logs(_folders_of_claude_code(place, folder) if is_apart else [place])
        for one in found.files:
            recorded = _recorded_in(one.path)
            if recorded in named or (is_apart and not _is_taken_for(folder, recorded)):
                files.append(one)
        refused += found.refused
    return FoundLogs(tuple(sorted(files, key=lambda one: (one.mtime_ns, one.path))), tuple(refused))


def _folders_of_claude_code(place: Path, folder: Path) -> list[Path]:
    """The folders in which Claude Code keeps its logs of a project: one, but for long paths; none before its first.

    Of those it cuts the name and adds a hash, which differs between the client and its SDK: any is taken.
    """
    name = _named_by_claude_code(unicodedata.normalize("NFC", os.path.realpath(folder)))
    if len(name) < _LONGEST_NAME:
        return [one for one in (place / name,) if one.is_dir()]
    return [one for one in folders_in(place) if one.name == name or one.name.startswith(f"{name}-")]


def _named_by_claude_code(path: str) -> str:
    return re.sub(r"[^a-zA-Z0-9]", "-", path)[:_LONGEST_NAME]


def _is_taken_for(folder: Path, recorded: str | None) -> bool:
    """Whether a log was recorded in another folder that has the same name among Claude Code's."""
    real = None if recorded is None or "\0" in recorded else os.path.realpath(recorded)
    return is_of_another(folder, real, _named_by_claude_code)


def _recorded_in(log: Path) -> str | None:
    """The folder that the beginning of a log names; None where it names none."""
    try:
        with log.open("rb") as file:
            found = _CWD.search(file.read(HEAD_BYTES))
        return None if found is None else msgspec.json.decode(found[1], type=str)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _files_below(top: Path, refused: list[str]) -> Iterator[LogFile]:
    folders = [top]
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(folder) as entries:
                inside = list(entries)
        except OSError as e:
            refused.append(f"{_shortened(folder)}: {e.strerror or e}")
            continue
        for entry in inside:
            path = Path(entry.path)
            try:
                about = entry.stat(follow_symlinks=False)
            except OSError as e:
                refused.append(f"{_shortened(path)}: {e.strerror or e}")
                continue
            if stat.S_ISDIR(about.st_mode):
                folders.append(path)
            elif stat.S_ISREG(about.st_mode):
                if path.suffix in _SUFFIXES:
                    yield LogFile(path, about.st_size, about.st_mtime_ns)
            elif path.suffix in _SUFFIXES or entry.is_dir():  # other links and pipes are nothing that was looked for
                refused.append(f"{path}: {_kind(about.st_mode)}")


def _shortened(path: Path) -> str:
    """The beginning and the end of a path too long to be opened."""
    text = str(path)
    return text if len(text) <= 400 else f"{text[:150]}…{text[-150:]}"


def _kind(mode: int) -> str:
    return next((what for is_kind, what in _KINDS if is_kind(mode)), "not a file")


def _too_large(size: int) -> str:
    return f"{size / 1e9:.1f} GB, and a log may have {LARGEST_BYTES >> 20} MB"


def read_log(path: Path) -> tuple[bytes, LogFile]:
    """The bytes of a log, and how its file was just before they were read.

    Raises:
        FileRefused: It is no regular file, or too large.
        OSError: It can't be read.
    """
    fd = os.open(path, os.O_RDONLY | AT_ONCE | CLOSE_ON_EXEC)
    with open(fd, "rb") as file:
        about = os.fstat(fd)
        if stat.S_ISDIR(about.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(about.st_mode):
            raise NotPlain(f"{path}: {_kind(about.st_mode)}")
        if about.st_size > LARGEST_BYTES:
            raise FileTooLarge(f"{path}: {_too_large(about.st_size)}")
        return file.read(LARGEST_BYTES), LogFile(path, about.st_size, about.st_mtime_ns)


def _is_something_else(path: Path) -> bool:
    """Whether a file in a folder is good JSON, but of no log that is known: settings, data, an index."""
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
        if not head.strip() or detect(head, path.name) is not None:
            return False
        data = head if len(head) < HEAD_BYTES else read_log(path)[0]
    except (OSError, FileRefused):
        return False
    if len(data) > len(head) and detect(data, path.name) is not None:
        return False
    for text in (data, data.split(b"\n", 1)[0]):
        try:
            msgspec.json.decode(text, type=msgspec.Raw)
        except (msgspec.MsgspecError, RecursionError):
            continue
        return True
    return False
