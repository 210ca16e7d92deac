"""A child interpreter in which Perdure finds another system: what Windows or macOS lack is gone, what they refuse is
refused (OPS-1).

`python -m tests.other_systems win32 JOB FOLDER` does a job of this file and prints what came of it as JSON. Modules of
Perdure get an `os`, `sys`, `signal` and `fcntl` of their own; what the interpreter itself does with files (`pathlib`,
`shutil`) is held to the same rules where Windows differs. It is not Windows: paths are POSIX paths, and the kernel is
this one.
"""

from __future__ import annotations

import asyncio
import asyncio.unix_events
import builtins
import errno
import fcntl
import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import io
import json
import os
import shutil
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any

OF_UNIX = (
    "fork forkpty getuid geteuid getgid getegid getgroups setsid setpgid getpgid killpg uname nice wait3 wait4 pread "
    "pwrite preadv pwritev fchmod fchown chown lchown chroot fdatasync sync posix_fadvise posix_fallocate mkfifo mknod "
    "statvfs fstatvfs set_blocking openpty register_at_fork getloadavg sched_getaffinity pidfd_open WNOHANG "
    "WIFSIGNALED WTERMSIG waitid O_CLOEXEC O_NOFOLLOW O_NONBLOCK O_DIRECTORY O_NOCTTY O_SYNC O_DSYNC O_PATH O_TMPFILE"
).split()
_OF_LINUX = (
    "fdatasync posix_fadvise posix_fallocate O_PATH O_TMPFILE O_LARGEFILE O_NOATIME pidfd_open sched_getaffinity "
    "memfd_create eventfd copy_file_range getrandom splice getxattr setxattr listxattr"
).split()
MODULES_OF_UNIX = ("fcntl", "pwd", "grp", "resource", "termios", "tty", "pty", "ctypes")
SIGNALS_OF_UNIX = ("SIGHUP", "SIGKILL", "SIGUSR1", "SIGUSR2", "SIGCHLD", "SIGWINCH", "SIGSTOP", "SIGCONT", "SIGPIPE")
_BINARY, _NO_INHERIT = 1 << 40, 1 << 41
_F_FULLFSYNC = 51
COUNTS = {"full syncs": 0, "plain syncs": 0, "locks": 0, "refused renames": 0}


class _Other:
    """A module as another system has it: without some names, with others of their own; the rest is the module's."""

    def __init__(self, module: ModuleType, without: Sequence[str] = (), **more: Any) -> None:
        self.__dict__.update(more, _module=module, _without=frozenset(without))

    def __getattr__(self, name: str) -> Any:
        if name in self._without:
            raise AttributeError(f"module {self._module.__name__!r} has no attribute {name!r}")
        return getattr(self._module, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._module, name, value)


class _Loader(importlib.machinery.SourceFileLoader):
    found: dict[str, Any]
    missing: tuple[str, ...]

    def exec_module(self, module: ModuleType) -> None:
        def our_import(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
            if level == 0 and name.partition(".")[0] in self.missing:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
            if level == 0 and (name in self.found or (not fromlist and name == "os.path")):
                return self.found[name.partition(".")[0]]
            return builtins.__import__(name, globals, locals, fromlist, level)

        module.__dict__["__builtins__"] = {**vars(builtins), "__import__": our_import}
        super().exec_module(module)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, loader: type[_Loader]) -> None:
        self.loader = loader

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname.partition(".")[0] != "perdure":
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = self.loader(fullname, spec.loader.path)
        return spec


def pretend(platform: str) -> None:
    """From here on, modules of Perdure that are imported find themselves on `win32` or `darwin`."""
    assert not [name for name in sys.modules if name.partition(".")[0] == "perdure"], "imported too early"
    found: dict[str, Any] = {"sys": _Other(sys, platform=platform)}
    if platform == "win32":
        found |= _windows()
        missing = MODULES_OF_UNIX
    else:
        found |= _macos()
        missing = ()
    loader = type("Loader", (_Loader,), {"found": found, "missing": missing})
    sys.meta_path.insert(0, _Finder(loader))
    warnings.filterwarnings("error", category=EncodingWarning, module=r"perdure\.")  # it is a code page on Windows


# --- Windows ----------------------------------------------------------------------------------------------------------


def _windows() -> dict[str, Any]:
    os.umask(0)  # modes say nothing there
    shutil._use_fd_functions = False  # type: ignore[attr-defined]
    asyncio.unix_events._UnixSelectorEventLoop.add_signal_handler = _hears_nothing  # type: ignore[method-assign]
    real = {name: getattr(os, name) for name in "open mkdir utime unlink rmdir rename replace".split()}

    def no_descriptors(call: Callable[..., Any]) -> Callable[..., Any]:
        def checked(path: Any = ".", *given: Any, **named: Any) -> Any:
            if isinstance(path, int) or any(name.endswith("dir_fd") and named[name] is not None for name in named):
                raise NotImplementedError("Windows has no dir_fd, and no descriptors of folders")
            return call(path, *given, **named)

        return checked

    def open_(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if dir_fd is not None:
            raise NotImplementedError("dir_fd")
        if not flags & _BINARY:
            raise AssertionError(f"{path}: opened as text: line ends would change")
        if os.path.isdir(path):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real["open"](path, flags & ~(_BINARY | _NO_INHERIT) | os.O_CLOEXEC, 0o666)

    def mkdir(path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        if dir_fd is not None:
            raise NotImplementedError("dir_fd")
        real["mkdir"](path, 0o777)

    def unshared(path: Any) -> None:
        place = os.path.join(os.path.realpath(os.path.dirname(path) or "."), os.path.basename(path))
        for number in os.listdir("/proc/self/fd"):
            try:
                held = os.readlink(f"/proc/self/fd/{number}")
            except OSError:
                continue
            if held == place or held.startswith(f"{place}/"):
                COUNTS["refused renames"] += 1
                raise PermissionError(errno.EACCES, "in use by a process", str(path))

    def unlink(path: Any, *, dir_fd: int | None = None) -> None:
        if dir_fd is not None:
            raise NotImplementedError("dir_fd")
        unshared(path)
        real["unlink"](path)

    def rmdir(path: Any, *, dir_fd: int | None = None) -> None:
        unshared(path)
        real["rmdir"](path)

    def rename(old: Any, new: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
        if src_dir_fd is not None or dst_dir_fd is not None:
            raise NotImplementedError("dir_fd")
        unshared(old)
        if os.path.lexists(new):
            raise FileExistsError(errno.EEXIST, "File exists", str(new))
        real["rename"](old, new)

    def replace(old: Any, new: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
        unshared(old)
        if os.path.lexists(new):
            unshared(new)
        if os.path.isdir(new):
            raise PermissionError(errno.EACCES, "Permission denied", str(new))
        real["replace"](old, new)

    def utime(path: Any, times: Any = None, *, ns: Any = None, dir_fd: Any = None, follow_symlinks: Any = True) -> None:
        if dir_fd is not None or not follow_symlinks:
            raise NotImplementedError("dir_fd, follow_symlinks")
        real["utime"](path, times, **({} if ns is None else {"ns": ns}))

    held = {"unlink": unlink, "remove": unlink, "rename": rename, "replace": replace, "rmdir": rmdir}
    for name, call in held.items():  # for pathlib and shutil as well
        setattr(os, name, call)
    os.mkdir = mkdir
    ours = _Other(
        os,
        (*OF_UNIX, "symlink"),
        name="nt",
        open=open_,
        utime=utime,
        O_BINARY=_BINARY,
        O_NOINHERIT=_NO_INHERIT,
        stat=no_descriptors(os.stat),
        lstat=no_descriptors(os.lstat),
        scandir=no_descriptors(_plain_scan),
        listdir=no_descriptors(os.listdir),
    )
    return {"os": ours, "signal": _Other(signal, SIGNALS_OF_UNIX), "msvcrt": _Msvcrt}


def _hears_nothing(self: Any, number: int, callback: Any, *given: Any) -> None:
    raise NotImplementedError("loops of Windows hear no signals")


class _Entry:
    """An entry of a folder, whose `stat` knows neither number nor links there."""

    def __init__(self, entry: os.DirEntry[str]) -> None:
        self._entry = entry

    def __getattr__(self, name: str) -> Any:
        return getattr(self._entry, name)

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        about = self._entry.stat(follow_symlinks=follow_symlinks)
        first = list(about)
        first[1] = first[2] = first[3] = 0  # st_ino, st_dev, st_nlink
        return os.stat_result(first, {name: getattr(about, name) for name in dir(about) if name.startswith("st_")})


class _plain_scan:
    def __init__(self, path: Any = ".") -> None:
        self._entries = os.scandir(path)

    def __enter__(self) -> Iterator[_Entry]:
        return iter(self)

    def __exit__(self, *error: object) -> None:
        self._entries.close()

    def __iter__(self) -> Iterator[_Entry]:
        return (_Entry(entry) for entry in self._entries)


class _Msvcrt:
    """Locks of a byte, which belong to an opening, and may lie behind the end."""

    LK_NBLCK, LK_UNLCK = 2, 0

    @staticmethod
    def locking(fd: int, how: int, count: int) -> None:
        at = os.lseek(fd, 0, os.SEEK_CUR)
        assert at >= os.fstat(fd).st_size and at < 1 << 31, "others couldn't read what is locked"
        if how == _Msvcrt.LK_UNLCK:
            fcntl.flock(fd, fcntl.LOCK_UN)
            return
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PermissionError(errno.EACCES, "Permission denied") from None
        COUNTS["locks"] += 1


# --- macOS ------------------------------------------------------------------------------------------------------------


def _macos() -> dict[str, Any]:
    def call(fd: int, command: int, argument: Any = 0) -> Any:
        if command != _F_FULLFSYNC:
            return fcntl.fcntl(fd, command, argument)
        if os.environ.get("NETWORK_DRIVE"):
            raise OSError(errno.ENOTSUP, "Operation not supported")
        COUNTS["full syncs"] += 1
        os.fsync(fd)
        return 0

    def fsync(fd: int) -> None:
        COUNTS["plain syncs"] += 1
        os.fsync(fd)

    is_hidden = ("/proc", "/sys", "/dev/shm")
    stat_, open_ = os.stat, io.open

    def seen(path: Any) -> Any:
        if isinstance(path, str | Path) and str(path).startswith(is_hidden[:2]):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
        return path

    os.stat = lambda path, **named: stat_(seen(path), **named)  # type: ignore[assignment]
    io.open = lambda path, *given, **named: open_(seen(path), *given, **named)  # type: ignore[assignment]
    ours = _Other(os, _OF_LINUX, fsync=fsync)
    return {"os": ours, "fcntl": _Other(fcntl, (), fcntl=call, F_FULLFSYNC=_F_FULLFSYNC)}


# --- jobs -------------------------------------------------------------------------------------------------------------


def _said(number: int) -> list[Any]:
    call = {"type": "tool_use", "id": f"t{number}", "name": "Bash", "input": {"command": f"make part{number}"}}
    output = f"part{number}.c:{number}: error: walrus {number}\n" * 400
    return [
        f"Build part {number}.",
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"t{number}", "content": output}]},
        {"role": "assistant", "content": f"Part {number} is built."},
    ]


def _digest(request: Any) -> str:
    return hashlib.sha256(json.dumps(request.data, sort_keys=True).encode()).hexdigest()


async def _sessions(folder: Path) -> dict[str, Any]:
    """A session in files, and one in memory: said, compacted, undone, closed, opened, forked, searched, remembered."""
    from perdure import Session
    from perdure.errors import SessionBusy

    home, project = folder / "home", folder / "project"
    project.mkdir()
    done: dict[str, Any] = {}
    async with Session.create(project, home=home, id="work") as session:
        await session.set_prefix(model="claude-sonnet-4-5", system="You are careful.")
        for number in range(12):
            for one in _said(number):
                await session.append(one)
        await session.append("Go on.")
        try:
            async with Session.open("work", home=home):
                done["second writer"] = "let in"
        except SessionBusy as e:
            done["second writer"] = str(e)
        done["undo"] = (await session.compact()).done and (await session.undo_compaction()).done
        done["compacted"] = (await session.compact()).done
        done["digest"] = _digest(await session.prepare())
    async with Session.open("work", home=home) as session:
        done["digest again"] = _digest(await session.prepare())
        done["found"] = len((await session.search("walrus 7")).hits)
        await session.append("And now?")
    async with Session.in_memory() as session:
        await session.append("Hello.")
        done["in memory"] = len((await session.prepare()).data["messages"])
    return done


def _syncs(folder: Path) -> dict[str, int]:
    """A sync on a drive that knows the full one, and on one that doesn't."""
    from perdure.adapters.journal.disk import DISK

    path = folder / "file"
    path.write_bytes(b"bytes")
    with path.open("rb+") as file:
        DISK.sync_data(file.fileno())
        os.environ["NETWORK_DRIVE"] = "yes"
        DISK.sync_data(file.fileno())
        DISK.sync_directory(folder)
    return dict(COUNTS)


def _renames(folder: Path) -> dict[str, str]:
    """A file replaced while somebody has it open: for a moment, and for good."""
    from perdure.adapters.journal.disk import DISK

    old, new = folder / "new", folder / "file"
    done = {}
    for name, seconds in (("for a moment", 0.2), ("for good", 30.0)):
        old.write_bytes(name.encode())
        new.touch()
        held = new.open("rb")
        timer = threading.Timer(seconds, held.close)
        timer.start()
        try:
            DISK.rename(old, new)
            done[name] = new.read_text("utf-8")
        except PermissionError as e:
            done[name] = f"refused: {e.strerror}"
        timer.cancel()
        held.close()
    return done


def _commands(folder: Path) -> list[Any]:
    """Command lines, a list in the folder's file `commands`: of each its exit code, and what it said."""
    (folder / "project").mkdir()
    os.chdir(folder / "project")
    os.environ |= {"PERDURE_HOME": str(folder / "home"), "HOME": str(folder / "user"), "COLUMNS": "100"}
    return [_command(*words) for words in json.loads((folder / "commands").read_text())]


def _command(*words: str) -> tuple[int, str, str]:
    from perdure.cli.app import run

    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
    with redirect_stdout(out), redirect_stderr(err):
        code = run(list(words))
        out.flush()
        err.flush()
        return code, out.buffer.getvalue().decode(), err.buffer.getvalue().decode()  # type: ignore[attr-defined]


def _tests(folder: Path) -> int:
    """The tests whose paths stand in the folder's file `tests`, in this interpreter."""
    import pytest

    given = (folder / "tests").read_text().split()
    return int(pytest.main(["-q", "-n0", "-p", "no:cacheprovider", *given]))


JOBS: dict[str, Callable[[Path], Any]] = {
    "sessions": lambda folder: asyncio.run(_sessions(folder)),
    "syncs": _syncs,
    "renames": _renames,
    "commands": _commands,
    "tests": _tests,
}


def main(platform: str, job: str, folder: str) -> None:
    """Do a job as on a platform; its last line of output is what came of it."""
    pretend(platform)
    done = JOBS[job](Path(folder))
    print(json.dumps({"done": done, "counts": COUNTS}))


if __name__ == "__main__":
    main(*sys.argv[1:])
