"""`ports.InstructionFiles` on this disk: instruction files as they are now (INS-1 to INS-6).

What may be read is decided by `memory.instructions`; here are the bounds of reading itself: regular files of at most
4 MiB, texts only, links resolved first and never followed while opening, folders of rules to a bounded depth.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import anyio.to_thread
import msgspec

from perdure.adapters.journal.disk import DISK, make_private, write_new
from perdure.adapters.machine.clients import CLAUDE, claude_folder
from perdure.adapters.machine.repositories import trust_root
from perdure.adapters.machine.system import AT_ONCE, open_itself
from perdure.adapters.machine.trust import excluded_instructions
from perdure.errors import BadSetting
from perdure.memory.instructions import (
    MANAGED,
    MISSING,
    FoundFile,
    InstructionPlaces,
    LoadedInstructions,
    is_below,
    load_at_start,
    load_for_paths,
    reload_files,
)
from perdure.settings import Settings

MAX_BYTES: Final = 4 * 1024 * 1024  # INS-5
MAX_DEPTH: Final = 12  # of folders below a folder of rules
MAX_RULES: Final = 500
APPROVALS = "approved.json"
_SNIFF_BYTES = 8_192


class DiskReader:
    """Reads files through their real paths. What was read is kept until the file changes (by time, size, identity)."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[tuple[int, int, int, int], FoundFile]] = {}

    def read(self, path: str) -> FoundFile:
        try:
            real = os.path.realpath(path, strict=True)
            about = os.stat(real, follow_symlinks=False)
            mark = (about.st_mtime_ns, about.st_size, about.st_ino, about.st_ctime_ns)
            kept = self._kept.get(real)
            if kept is None or kept[0] != mark:
                kept = self._kept[real] = (mark, self._read(real))
            return kept[1]
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return FoundFile()
        except OSError as e:
            return FoundFile(None, f"can't be read: {e.strerror or e}", path)

    def real(self, path: str) -> str:
        try:
            return os.path.realpath(path, strict=True)
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return ""
        except OSError:  # reading it will say why
            return path

    def _read(self, real: str) -> FoundFile:
        fd = open_itself(real, os.O_RDONLY | AT_ONCE)
        try:
            about = os.fstat(fd)
            if not stat.S_ISREG(about.st_mode):
                return FoundFile(None, MISSING if stat.S_ISDIR(about.st_mode) else "not a regular file", real)
            if about.st_size > MAX_BYTES:
                return FoundFile(None, f"larger than {MAX_BYTES // 1024 // 1024} MiB ({about.st_size:,} bytes)", real)
            with open(fd, "rb", closefd=False) as file:
                data = file.read(MAX_BYTES)
        finally:
            os.close(fd)
        if b"\0" in data[:_SNIFF_BYTES]:
            return FoundFile(None, "not a text file", real)
        text = data.decode("utf-8-sig", "replace").replace("\r\n", "\n")
        return FoundFile(text, "", real)

    def rules(self, folder: str, may: Callable[[str, str], bool]) -> tuple[str, ...]:
        found: list[str] = []
        self._walk(folder, may, found, set(), 0)
        return tuple(found)

    def _walk(self, folder: str, may: Callable[[str, str], bool], found: list[str], seen: set[str], depth: int) -> None:
        try:
            real = os.path.realpath(folder, strict=True)
            if real in seen or depth > MAX_DEPTH or not os.path.isdir(real) or not may(folder, real):
                return
            seen.add(real)
            with os.scandir(folder) as entries:
                inside = sorted(entries, key=lambda entry: entry.name)
        except (OSError, ValueError):
            return
        for entry in inside:
            if len(found) >= MAX_RULES:
                return
            try:
                if entry.is_dir():
                    self._walk(entry.path, may, found, seen, depth + 1)
                elif entry.name.endswith(".md"):
                    found.append(entry.path)
            except OSError:  # a link that leads nowhere
                continue


class DiskInstructions:
    """The instruction files of one working directory; reading happens in a thread, bounded, and raises nothing."""

    def __init__(self, places: InstructionPlaces) -> None:
        self.places = places
        self._reader = DiskReader()

    async def at_start(self) -> LoadedInstructions:
        return await anyio.to_thread.run_sync(load_at_start, self.places, self._reader)

    async def touched(self, paths: tuple[str, ...]) -> LoadedInstructions:
        return await anyio.to_thread.run_sync(self._touched, paths)

    def _touched(self, paths: tuple[str, ...]) -> LoadedInstructions:
        """Tools may name the project by another way that leads to it, as /tmp does on a Mac."""
        root, found = self.places.root, []
        for path in paths:
            is_other = os.path.isabs(path) and not is_below(path, root)
            found.append(os.path.realpath(path).replace(os.sep, "/") if is_other else path)
        return load_for_paths(self.places, self._reader, found)

    async def reload(self, paths: tuple[str, ...]) -> LoadedInstructions:
        return await anyio.to_thread.run_sync(reload_files, self.places, self._reader, paths)


def places_of(
    settings: Settings, environ: Mapping[str, str], *, cwd: Path, home: Path, is_trusted: bool = False
) -> InstructionPlaces:
    """Where this machine keeps instruction files.

    Args:
        settings: What is wanted and left out.
        environ: The environment, for the user's own folders.
        cwd: The working directory.
        home: Perdure's own folder, which holds the approvals.
        is_trusted: Whether the folder is (SEC-8). What one that isn't leaves out counts for nothing.
    """
    cwd = cwd.absolute()
    root = trust_root(cwd)
    person = environ.get("HOME") or str(Path.home())
    user = claude_folder(environ)
    managed = MANAGED.get(sys.platform, MANAGED["linux"])
    excludes = [
        *settings.instructions_excludes,
        *(glob for globs in excluded_instructions(user).values() for glob in globs),
    ]
    theirs = dict.fromkeys((root, cwd)) if is_trusted else {}
    own = [
        glob for folder in theirs for globs in excluded_instructions(folder / CLAUDE, folder).values() for glob in globs
    ]
    return InstructionPlaces(
        cwd=_real(cwd),
        root=_real(root),
        home=person,
        user=str(user),
        managed=managed,
        policy=_text_in(Path(managed).with_name("managed-settings.json"), "claudeMd"),
        local=settings.instructions_local,
        agents=settings.instructions_agents_md,
        excludes=tuple(dict.fromkeys(_expanded(glob, person) for glob in excludes)),
        own_excludes=tuple(dict.fromkeys(_expanded(glob, person) for glob in own)),
        is_trusted=is_trusted,
        approved=tuple(approvals(home).get(_real(root), ())),
    )


def _real(path: Path) -> str:
    return os.path.realpath(path).replace(os.sep, "/")


def _expanded(glob: str, person: str) -> str:
    return person + glob[1:] if glob.startswith("~/") else glob


def _text_in(path: Path, key: str) -> str:
    """A text in the settings of another program: what can't be read there says nothing here."""
    try:
        value = msgspec.json.decode(path.read_bytes(), type=dict[str, object]).get(key)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""
    return value if isinstance(value, str) else ""


def approvals(home: Path) -> dict[str, list[str]]:
    """What the user approved, by project: files and folders outside of it that its instruction files may import.

    Raises `BadSetting` when the file is damaged; nothing is approved then.
    """
    path = home / APPROVALS
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, list[str]])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as e:
        raise BadSetting(f"{path}: the approvals can't be read ({e}): mend the file or delete it") from None


def approve(home: Path, *, cwd: Path, path: str, revoke: bool = False) -> str:
    """Approve a file or folder for the project of a directory, or take that back. Returns its real path.

    Raises `BadSetting` for a path that doesn't exist.
    """
    place = Path(path).expanduser()
    place = place if place.is_absolute() else cwd / place
    if not revoke and not place.exists():
        raise BadSetting(f"{place}: no such file or folder: only what is there can be approved")
    real, project = _real(place), _real(trust_root(cwd))
    known = approvals(home)
    others = [one for one in known.get(project, []) if one != real]
    known[project] = others if revoke else sorted([*others, real])
    make_private(home)
    beside = home / f"{APPROVALS}.{os.getpid()}.tmp"
    write_new(DISK, beside, msgspec.json.format(msgspec.json.encode(known)))
    DISK.rename(beside, home / APPROVALS)
    return real
