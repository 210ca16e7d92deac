"""`ports.Finder` on this disk: ripgrep where there is one, else our own search with RE2 (SEC-6).

Both leave out what a git repository ignores, `.git` itself, and binary files.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import aclosing
from subprocess import DEVNULL, PIPE
from threading import Event
from typing import Any

import anyio
import anyio.to_thread
import msgspec
from anyio.streams.buffered import BufferedByteReceiveStream

from holdfast.adapters.repositories import doubt, outside, overruling
from holdfast.context.patterns import compiled
from holdfast.ports import Listed, MatchedLine, Matches, TextSearch
from holdfast.transcript.globs import fits

_MOST_FILES = 100_000
_MOST_FILE_BYTES = 5_000_000
_SNIFF_BYTES = 8_192
_LINE_CHARS = 2_000
_MOST_JSON_BYTES = 20_000_000  # one line of ripgrep's answer
_LEFT_OUT = frozenset({".git", "node_modules", "__pycache__", ".venv", ".hg", ".svn", ".mypy_cache", ".ruff_cache"})


class LocalFinder:
    """Files by name and by content. `ripgrep` is its program; None: look for it, "" for none.

    Programs that lie in the project's folder, `root`, aren't taken: nobody was asked whether to run them.
    """

    def __init__(self, ripgrep: str | None = None, *, root: str = "/") -> None:
        self._path = outside(os.environ.get("PATH", os.defpath), root)
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
    return await anyio.to_thread.run_sync(_walked, folder)


async def _by_git(folder: str, git: str | None) -> list[str] | None:
    """As git knows them; None outside of a repository, without git, or where git might run what its settings name."""
    if git is None:
        return None
    why = await anyio.to_thread.run_sync(doubt, (folder,))
    if why:
        return None
    command = [git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    environ = overruling(os.environ, only_looks=True)
    done = await anyio.run_process(command, cwd=folder, env=environ, stdin=DEVNULL, stderr=DEVNULL, check=False)
    if done.returncode != 0:
        return None
    return list(dict.fromkeys(os.fsdecode(name) for name in done.stdout.split(b"\0") if name))


def _walked(folder: str) -> tuple[list[str], bool]:
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
        if not fits(at_any_depth, name):
            continue
        if not _is_text(path):
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


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:  # a name that isn't UTF-8 can't be said
        return False
    return True


# --- our own search --------------------------------------------------------------------------------------------------


def _searched(wanted: TextSearch, names: list[str], limit: int, stop: Event) -> Matches:
    pattern = compiled(f"(?i){wanted.pattern}" if wanted.ignores_case else wanted.pattern)
    glob = _glob(wanted.glob)
    found: list[MatchedLine] = []
    for name in sorted(names):
        if stop.is_set():
            break
        if glob is not None and not fits(glob, name or os.path.basename(wanted.path)):
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
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    with open(fd, "rb") as file:
        try:
            data = file.read(_MOST_FILE_BYTES + 1)
        except OSError:
            return None
    if len(data) > _MOST_FILE_BYTES or b"\0" in data[:_SNIFF_BYTES] or not _is_text(path):
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
