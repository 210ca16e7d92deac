"""`ports.Workspace` on this disk: the files of a project, resolved to where they really are."""

from __future__ import annotations

import errno
import os
import platform
import secrets
import stat
from collections import deque
from collections.abc import Mapping, Sequence
from glob import iglob
from itertools import islice
from pathlib import Path

import anyio.to_thread

from holdfast.adapters.folders import branch_of
from holdfast.adapters.repositories import doubt
from holdfast.memory.instructions.places import is_below
from holdfast.ports import Spot

_CHUNK = 1 << 20
_DOCUMENT_BYTES = 200_000
_MOST_WILD = 3  # wildcards in one path that are filled in; a rule meets the others as patterns
_MOST_FILLED_IN = 1_000  # names that one wildcard stands for
_NEW_MODE = 0o666  # less what the umask takes away, as for any program


class LocalWorkspace:
    """Files as the agent names them: relative ones from a folder, `~` is the user's home."""

    def __init__(self, project: str | Path) -> None:
        self.root = os.path.realpath(project)

    async def look(self, path: str, *, cwd: str | None = None) -> Spot:
        return await anyio.to_thread.run_sync(self._look, path, cwd)

    async def read(self, path: str, *, limit_bytes: int) -> bytes:
        return await anyio.to_thread.run_sync(_read, path, limit_bytes)

    async def write(self, path: str, data: bytes) -> None:
        await anyio.to_thread.run_sync(_write, path, data)

    async def leads(self, paths: Sequence[str]) -> tuple[str, ...]:
        return await anyio.to_thread.run_sync(_leads, paths)

    async def below(self, folders: Sequence[str], *, limit: int) -> tuple[tuple[str, ...], bool]:
        return await anyio.to_thread.run_sync(_below, folders, limit)

    async def git_doubt(self, folders: Sequence[str]) -> str:
        return await anyio.to_thread.run_sync(doubt, folders)

    def _look(self, path: str, cwd: str | None) -> Spot:
        try:
            given = os.path.expanduser(path) if path.startswith("~") else path
            real = os.path.realpath(os.path.join(cwd or self.root, given))
            real.encode()
        except ValueError:  # a NUL, or half a surrogate pair
            raise OSError(errno.EINVAL, "not a path", path[:200]) from None
        is_inside = real == self.root or real.startswith(self.root.rstrip("/") + "/")
        try:
            about = os.lstat(real)
        except (FileNotFoundError, NotADirectoryError):
            return Spot(real, "nothing", is_inside)
        if stat.S_ISDIR(about.st_mode):
            return Spot(real, "folder", is_inside)
        if stat.S_ISREG(about.st_mode):
            return Spot(real, "file", is_inside, about.st_size)
        return Spot(real, "other", is_inside)


def _leads(paths: Sequence[str]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for path in paths:
        try:
            wild = sum(bool(set(name) & set("*?[")) for name in path.split("/"))
            several = islice(iglob(path), _MOST_FILLED_IN) if 0 < wild <= _MOST_WILD else ()
            found.update((os.path.realpath(one), None) for one in (path, *several) if os.path.lexists(one))
        except (OSError, ValueError):  # too long a name, a NUL: no path at all
            continue
    return tuple(found)


def _below(folders: Sequence[str], limit: int) -> tuple[tuple[str, ...], bool]:
    """Where files really are, the nearest first; also those behind links to folders, which some programs follow."""
    found: dict[str, None] = {}
    todo, seen = deque(folders), set(folders)
    while todo:
        try:
            entries = sorted(os.scandir(todo.popleft()), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            try:
                is_link, is_folder = entry.is_symlink(), entry.is_dir()
                place = os.path.realpath(entry.path) if is_link or not is_folder else entry.path
            except OSError:  # a link that nobody may follow, as those to what other processes have open
                continue
            if is_link or not is_folder:
                found[place] = None
            if is_folder and place not in seen:
                seen.add(place)
                todo.append(place)
        if len(found) + len(seen) > limit:
            return tuple(found)[:limit], False
    return tuple(found), True


def _read(path: str, limit_bytes: int) -> bytes:
    """At most one byte more than the limit, of a regular file that this path still leads to without any link."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        if os.path.realpath(path) != path:
            raise OSError(errno.ELOOP, "a folder of it became a link just now", path)
        parts: list[bytes] = []
        left = limit_bytes + 1
        while left > 0 and (part := os.read(fd, min(left, _CHUNK))):
            parts.append(part)
            left -= len(part)
    finally:
        os.close(fd)
    return b"".join(parts)


def _write(path: str, data: bytes) -> None:
    folder = os.path.dirname(path)
    os.makedirs(folder, exist_ok=True)
    if os.path.realpath(path) != path:
        raise OSError(errno.ELOOP, "it became a link just now", path)
    try:
        mode = stat.S_IMODE(os.lstat(path).st_mode)
    except FileNotFoundError:
        mode = None
    draft = os.path.join(folder, f".{os.path.basename(path)[:100]}.{secrets.token_hex(4)}")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _NEW_MODE)
    try:
        with open(fd, "wb", closefd=True) as file:
            if mode is not None:
                os.fchmod(fd, mode)
            file.write(data)
            file.flush()
            os.fsync(fd)
        os.rename(draft, path)
    except BaseException:
        try:
            os.unlink(draft)
        except FileNotFoundError:
            pass
        raise


def surroundings(root: Path) -> Mapping[str, str]:
    """What there is to say of a project's folder and this machine, for a prompt: git branch, platform."""
    branch = branch_of(root)
    git = {"Git branch": branch} if branch else {"Git": "not a repository"}
    return {"Platform": f"{platform.system()} {platform.machine()}", **git}


def documents(folder: Path, pattern: str, *, within: Path | None = None, most: int = 200) -> Mapping[str, str]:
    """The text files under a folder that fit a pattern, by real path.

    Links out of the folder aren't followed; `within`: nor is a link that the folder itself is, out of that one.
    """
    found: dict[str, str] = {}
    root = os.path.realpath(folder)
    if within is not None and not is_below(root, os.path.realpath(within)):
        return {}
    try:
        paths = sorted(Path(root).glob(pattern))[:most]
    except OSError:
        return {}
    for path in paths:
        real = os.path.realpath(path)
        if not real.startswith(root + "/"):
            continue
        try:
            data = _read(real, _DOCUMENT_BYTES)
        except OSError:
            continue
        if len(data) <= _DOCUMENT_BYTES and b"\0" not in data:
            found[real] = data.decode("utf-8", "replace")
    return found
