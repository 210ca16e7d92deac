"""The files of a project on this disk: resolved to where they really are, read, and searched (RST-1, SEC-6)."""

from __future__ import annotations

import errno
import os
import platform
import secrets
import shutil
import stat
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing
from glob import iglob
from itertools import islice
from pathlib import Path
from subprocess import DEVNULL, PIPE
from threading import Event
from typing import Any

import anyio
import anyio.to_thread
import msgspec
from anyio.streams.buffered import BufferedByteReceiveStream

from perdure.adapters.machine.repositories import branch_of, git_safe_environment, path_outside_project, repository_risk
from perdure.adapters.machine.system import AT_ONCE, CLOSE_ON_EXEC, open_itself, replace, set_mode
from perdure.compaction.restore.registry import CurrentFile
from perdure.memory.instructions import is_below
from perdure.ports.machine import FileMatches as Listed
from perdure.ports.machine import MatchedLine, TextSearch
from perdure.ports.machine import ResolvedPath as Spot
from perdure.ports.machine import TextMatches as Matches
from perdure.text.cleaning import is_utf8
from perdure.text.globs import matches_glob
from perdure.text.patterns import compile_pattern

GONE = "no longer on disk"
_SNIFF_BYTES = 8_192
_WHY = {
    errno.ENOENT: GONE,
    errno.ENOTDIR: GONE,
    errno.ELOOP: "a symbolic link now",
    errno.EACCES: "may not be read",
    errno.EPERM: "may not be read",
}


class ProjectFiles:
    """Files as the agent names them; relative paths are taken from the project's folder.

    A path that has become a symbolic link isn't followed: what is restored goes to the model unasked, so a link that
    was put in the place of a file must not bring another one in. Devices, pipes and folders are never opened for long.
    """

    def __init__(self, project: str | Path) -> None:
        self._project = Path(project)

    async def read(self, paths: tuple[str, ...], *, limit_bytes: int) -> tuple[CurrentFile, ...]:
        if not paths:
            return ()
        return await anyio.to_thread.run_sync(self._read_all, paths, limit_bytes)

    def _read_all(self, paths: tuple[str, ...], limit_bytes: int) -> tuple[CurrentFile, ...]:
        return tuple(self._read(path, limit_bytes) for path in paths)

    def _read(self, path: str, limit_bytes: int) -> CurrentFile:
        try:
            return self._opened(path, limit_bytes)
        except OSError as e:
            return CurrentFile(path, None, _WHY.get(e.errno or 0, "can't be read"))
        except ValueError:  # a NUL in the path, a lone surrogate
            return CurrentFile(path, None, "not a path")

    def _opened(self, path: str, limit_bytes: int) -> CurrentFile:
        place = self._project / Path(path).expanduser()
        fd = open_itself(place, os.O_RDONLY | AT_ONCE)
        try:
            about = os.fstat(fd)
            if not stat.S_ISREG(about.st_mode):
                return CurrentFile(path, None, "not a regular file")
            if about.st_size > limit_bytes:
                return CurrentFile(path, None, f"too large ({about.st_size:,} bytes)")
            with open(fd, "rb", closefd=False) as file:
                data = file.read(limit_bytes + 1)
        finally:
            os.close(fd)
        if len(data) > limit_bytes:
            return CurrentFile(path, None, "too large")
        if b"\0" in data[:_SNIFF_BYTES]:
            return CurrentFile(path, None, "not a text file")
        try:
            return CurrentFile(path, data.decode("utf-8").replace("\r\n", "\n"))
        except UnicodeDecodeError:
            return CurrentFile(path, None, "not a text file")


_CHUNK = 1 << 20
_DOCUMENT_BYTES = 200_000
_MOST_WILD = 3  # wildcards in one path that are filled in; a rule meets the others as patterns
_MOST_FILLED_IN = 1_000  # names that one wildcard stands for
_NEW_MODE = 0o666  # less what the umask takes away, as for any program


class LocalWorkspace:
    """Files as the agent names them: relative ones from a folder, `~` is the user's home."""

    def __init__(self, project: str | Path) -> None:
        self.root = os.path.realpath(project)

    async def resolve(self, path: str, *, cwd: str | None = None) -> Spot:
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
        return await anyio.to_thread.run_sync(repository_risk, folders)

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
    fd = open_itself(path, os.O_RDONLY | AT_ONCE)
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
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | CLOSE_ON_EXEC, _NEW_MODE)
    try:
        with open(fd, "wb", closefd=True) as file:
            if mode is not None:
                set_mode(fd, mode)
            file.write(data)
            file.flush()
            os.fsync(fd)
        replace(draft, path)
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


_MOST_FILES = 100_000
_MOST_FILE_BYTES = 5_000_000
_LINE_CHARS = 2_000
_MOST_JSON_BYTES = 20_000_000  # one line of ripgrep's answer
_LEFT_OUT = frozenset({".git", "node_modules", "__pycache__", ".venv", ".hg", ".svn", ".mypy_cache", ".ruff_cache"})


class LocalFinder:
    """Files by name and by content. `ripgrep` is its program; None: look for it, "" for none.

    Programs that lie in the project's folder, `root`, aren't taken: nobody was asked whether to run them.
    """

    def __init__(self, ripgrep: str | None = None, *, root: str = "/") -> None:
        self._path = path_outside_project(os.environ.get("PATH", os.defpath), root)
        self._ripgrep = shutil.which("rg", path=self._path) if ripgrep is None else ripgrep
        self._git = shutil.which("git", path=self._path)

    async def files(self, pattern: str, path: str, *, limit: int) -> Listed:
        names, is_all = await _names(path, self._git)
        return await anyio.to_thread.run_sync(_newest, path, pattern, names, is_all, limit)

    async def lines(self, wanted: TextSearch, *, limit: int) -> Matches:
        is_file = await anyio.to_thread.run_sync(os.path.isfile, wanted.path)
        if self._ripgrep:
            by_ripgrep = await _by_ripgrep(self._ripgrep, wanted, limit, is_file=is_file)
            if by_ripgrep is not None:
                return by_ripgrep
        names, is_all = ([""], True) if is_file else await _names(wanted.path, self._git)
        stop = Event()
        try:
            found = await anyio.to_thread.run_sync(_searched, wanted, names, limit, stop, abandon_on_cancel=True)
        finally:
            stop.set()
        note = found.note or ("" if is_all else f"only the first {_MOST_FILES:,} files were searched")
        return Matches(found.lines, found.is_cut, note)


# --- which files there are -------------------------------------------------------------------------------------------


async def _names(folder: str, git: str | None) -> tuple[list[str], bool]:
    """The files under a folder, relative to it, and whether these are all."""
    listed = await _by_git(folder, git)
    if listed is not None:
        return listed[:_MOST_FILES], len(listed) <= _MOST_FILES
    return await anyio.to_thread.run_sync(_walk, folder)


async def _by_git(folder: str, git: str | None) -> list[str] | None:
    """As git knows them; None outside of a repository, without git, or where git might run what its settings name."""
    if git is None:
        return None
    why = await anyio.to_thread.run_sync(repository_risk, (folder,))
    if why:
        return None
    command = [git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    environ = git_safe_environment(os.environ, only_looks=True)
    done = await anyio.run_process(command, cwd=folder, env=environ, stdin=DEVNULL, stderr=DEVNULL, check=False)
    if done.returncode != 0:
        return None
    return list(dict.fromkeys(os.fsdecode(name) for name in done.stdout.split(b"\0") if name))


def _walk(folder: str) -> tuple[list[str], bool]:
    found: list[str] = []
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _LEFT_OUT)
        below = os.path.relpath(place, folder)
        found += [name if below == "." else os.path.join(below, name) for name in sorted(files)]
        if len(found) > _MOST_FILES:
            return found[:_MOST_FILES], False
    return found, True


def _newest(folder: str, pattern: str, names: list[str], is_all: bool, limit: int) -> Listed:
    at_any_depth = pattern if "/" in pattern else f"**/{pattern}"
    found: list[tuple[float, str]] = []
    unsaid = 0
    for name in names:
        path = os.path.join(folder, name)
        if not matches_glob(at_any_depth, name):
            continue
        if not is_utf8(path):
            unsaid += 1
            continue
        try:
            found.append((-os.lstat(path).st_mtime, path))
        except OSError:  # in git's index, and no longer there
            continue
    found.sort()
    notes = [] if is_all else [f"only the first {_MOST_FILES:,} files were looked at"]
    notes += [f"left out: {unsaid:,} with names that aren't UTF-8, which only commands reach"] if unsaid else []
    note = "; ".join(notes)
    return Listed(tuple(path for _, path in found[:limit]), len(found) > limit, note)


# --- our own search --------------------------------------------------------------------------------------------------


def _searched(wanted: TextSearch, names: list[str], limit: int, stop: Event) -> Matches:
    pattern = compile_pattern(f"(?i){wanted.pattern}" if wanted.ignores_case else wanted.pattern)
    glob = _glob(wanted.glob)
    found: list[MatchedLine] = []
    for name in sorted(names):
        if stop.is_set():
            break
        if glob is not None and not matches_glob(glob, name or os.path.basename(wanted.path)):
            continue
        path = os.path.join(wanted.path, name) if name else wanted.path
        text = _text(path)
        if text is None:
            continue
        for line in _in_file(path, text, pattern.find, wanted):
            if len(found) >= limit:
                return Matches(tuple(found), True, pattern.note)
            found.append(line)
    return Matches(tuple(found), False, pattern.note)


def _glob(glob: str | None) -> str | None:
    """As ripgrep takes one: without a slash it fits at any depth, with one from the folder on."""
    if not glob:
        return None
    return glob.removeprefix("/") if "/" in glob else f"**/{glob}"


def _text(path: str) -> str | None:
    """A text file's text; None for what isn't one, is too large, or is a link."""
    try:
        fd = open_itself(path, os.O_RDONLY | AT_ONCE)
    except (OSError, ValueError):
        return None
    with open(fd, "rb") as file:
        try:
            data = file.read(_MOST_FILE_BYTES + 1)
        except OSError:
            return None
    if len(data) > _MOST_FILE_BYTES or b"\0" in data[:_SNIFF_BYTES] or not is_utf8(path):
        return None
    return data.decode("utf-8", "replace")


def _in_file(path: str, text: str, find: Any, wanted: TextSearch) -> Iterator[MatchedLine]:
    lines = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
    hits = [number for number, line in enumerate(lines) if find(line) is not None]
    matched, done = set(hits), -1
    for hit in hits:
        for number in range(max(done + 1, hit - wanted.before), min(len(lines), hit + wanted.after + 1)):
            yield MatchedLine(path, number + 1, lines[number][:_LINE_CHARS], number in matched)
            done = number


# --- ripgrep ---------------------------------------------------------------------------------------------------------


async def _by_ripgrep(program: str, wanted: TextSearch, limit: int, *, is_file: bool) -> Matches | None:
    """Its answer; None when it doesn't understand the pattern, so that it is looked for as it is written."""
    command = [program, "--json", "--no-config", "--hidden", "--glob", "!.git", "--sort", "path"]
    command += ["--max-filesize", str(_MOST_FILE_BYTES), "-B", str(wanted.before), "-A", str(wanted.after)]
    command += ["--ignore-case"] if wanted.ignores_case else ["--case-sensitive"]
    command += ["--glob", wanted.glob] if wanted.glob else []
    folder, name = (wanted.path, ".") if not is_file else os.path.split(wanted.path)
    found: list[MatchedLine] = []
    async with await anyio.open_process(
        [*command, "--regexp", wanted.pattern, "--", name], cwd=folder, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL
    ) as process:
        assert process.stdout is not None
        stream = BufferedByteReceiveStream(process.stdout)
        try:
            async with aclosing(_rows(stream)) as rows:
                async for row in rows:
                    if (line := _line(row, folder)) is None:
                        continue
                    if len(found) >= limit:
                        process.kill()
                        return Matches(tuple(found), True)
                    found.append(line)
            code = await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
    return None if code > 1 and not found else Matches(tuple(found))


async def _rows(stream: BufferedByteReceiveStream) -> Any:
    while True:
        try:
            yield await stream.receive_until(b"\n", _MOST_JSON_BYTES)
        except (anyio.IncompleteRead, anyio.DelimiterNotFound, anyio.EndOfStream):
            return


def _line(row: bytes, folder: str) -> MatchedLine | None:
    said = msgspec.json.decode(row)
    if said.get("type") not in ("match", "context"):
        return None
    data = said["data"]
    path, text, number = data["path"].get("text"), data["lines"].get("text"), data["line_number"]
    if path is None or number is None:
        return None
    text = (text or "").removesuffix("\n").removesuffix("\r")[:_LINE_CHARS]
    return MatchedLine(os.path.normpath(os.path.join(folder, path)), number, text, said["type"] == "match")
