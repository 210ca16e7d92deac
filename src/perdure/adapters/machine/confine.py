"""Starts one command, confined as it is told, and ends it when whoever asked for it is gone. A program by itself.

It runs as `python -I -S confine.py [OPTION…] -- COMMAND…`, and imports little, since it starts before each command:

    --life FD       a pipe whose other end the caller holds: once that closes, the whole process group is killed, so a
                    command doesn't outlive an agent that was killed
    --all           nothing of the command is left once it has ended: wait until that is so
    --landlock      let it write below each `--write PATH` only, and not read what is below each `--hide PATH`
    --offline       let it make no connection, neither to a network nor to programs on this machine
    --no-doors      let it make none to programs on this machine by way of a file
"""

from __future__ import annotations

import errno
import os
import select
import stat
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Iterator, Sequence
    from typing import Any
else:
    import _signal as signal  # without names for its numbers: to make these takes longer than all the rest

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # landlock's system calls, the same on all processors but Alpha
_EXECUTE, _WRITE, _READ, _LIST = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_ALL_OF_ABI_1 = (1 << 13) - 1
_BY_ABI = ((2, 1 << 13), (3, 1 << 14), (5, 1 << 15))  # to move between folders, to truncate, to control devices
_DEVICES_MADE = (1 << 6) | (1 << 11)
_OF_FILES = _EXECUTE | _WRITE | _READ | (1 << 14) | (1 << 15)
_SCOPED = 0b11  # abstract sockets, and signals to those outside, from ABI 6 on
_DEVICES = (
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/ptmx",
    "/dev/pts",
    "/dev/shm",
)
_NO_NEW_PRIVILEGES, _SECCOMP, _SUBREAPER = 38, 22, 36
_DROP_POWER, _MOST_POWERS, _POWERS_KEPT = 24, 64, (0, 1, 3)  # CHOWN, DAC_OVERRIDE, FOWNER
_LEFT_SECONDS = 0.5  # for what is left of a sandbox to be gone
_MOST_ENTRIES = 20_000  # that are granted one by one around what is hidden


def _library() -> Any:
    import ctypes

    return ctypes.CDLL(None, use_errno=True)


def abi() -> int:
    """The version of Landlock that this kernel offers; 0 for none."""
    if not sys.platform.startswith("linux"):
        return 0
    return max(0, int(_library().syscall(_CREATE, None, 0, 1)))


def restrict(writable: Sequence[str], hidden: Sequence[str]) -> None:
    """Let this process, and all that it starts, write below `writable` only, and not read what is below `hidden`.

    Names stay visible everywhere. What is both below `writable` and hidden can be read all the same: Landlock allows
    folders as a whole. Raises `OSError` when the kernel refuses.
    """
    import struct

    version = abi()
    handled = _ALL_OF_ABI_1
    for since, right in _BY_ABI:
        handled |= right if version >= since else 0
    attributes = struct.pack("QQQ", handled, 0, _SCOPED if version >= 6 else 0)[
        : 8 if version < 4 else 16 if version < 6 else 24
    ]
    ruleset = _syscall(_CREATE, attributes, len(attributes), 0)
    _grant(ruleset, "/", _LIST & handled)
    for path in _around(hidden):
        _grant(ruleset, path, (_READ | _EXECUTE) & handled)
    for path in writable:
        _grant(ruleset, path, handled & ~_DEVICES_MADE)
    for path in _DEVICES:
        _grant(ruleset, path, (_READ | _WRITE | (1 << 14) | (1 << 15)) & handled)
    _no_new_privileges()
    _syscall(_RESTRICT, ruleset, 0)
    os.close(ruleset)


def _around(hidden: Sequence[str]) -> Iterator[str]:
    """The largest folders and files that hold nothing of what is hidden."""
    doomed = {os.path.realpath(path) for path in hidden}
    above = {folder for path in doomed for folder in _folders_of(path)}
    todo, count = ["/"], 0
    while todo:
        folder = todo.pop()
        if folder not in above:
            yield folder
            continue
        try:
            entries = sorted(os.listdir(folder))
        except OSError:
            continue
        for name in entries:
            path = os.path.join(folder, name)
            count += 1
            if path in doomed or os.path.islink(path) or count > _MOST_ENTRIES:
                continue
            todo.append(path)


def _folders_of(path: str) -> Iterator[str]:
    while path != "/":
        path = os.path.dirname(path)
        yield path


def _grant(ruleset: int, path: str, rights: int) -> None:
    if sys.platform != "linux":
        raise NotImplementedError("on Linux only")
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # gone, or not for us: then there is nothing to allow
        return
    try:
        rights &= -1 if stat.S_ISDIR(os.fstat(fd).st_mode) else _OF_FILES
        if rights:
            import struct

            _syscall(_ADD, ruleset, 1, struct.pack("=Qi", rights, fd), 0)
    finally:
        os.close(fd)


def _syscall(number: int, *arguments: Any) -> int:
    import ctypes

    done = int(_library().syscall(number, *arguments))
    if done < 0:
        raise OSError(ctypes.get_errno(), f"landlock: {os.strerror(ctypes.get_errno())}")
    return done


def keep_few() -> None:
    """Let what this process starts have none of root's powers but those over files of other users.

    Root could read the environment of any process otherwise, or configure the machine. For others there is nothing to
    take away, and nothing happens.
    """
    library = _library()
    for number in range(_MOST_POWERS):
        if number not in _POWERS_KEPT:
            library.prctl(_DROP_POWER, number, 0, 0, 0)


def _no_new_privileges() -> None:
    _library().prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)


def cut_off(*, network: bool) -> None:
    """Let this process, and all that it starts, reach no program outside of it: no socket but pairs. Raises `OSError`.

    Landlock doesn't rule over local sockets, and who listens there often runs what it is told to, as tmux and systemd
    do. With `network` those of networks are left. No file becomes one that gives its owner's rights to others, since
    modes aren't Landlock's either.
    """
    if sys.platform == "win32":
        raise NotImplementedError("on Unix only")
    import ctypes
    import struct

    known = {"x86_64": (0xC000003E, 41, (90, 91, 268, 452)), "aarch64": (0xC00000B7, 198, (52, 53, 452))}
    if os.uname().machine not in known:
        raise OSError(errno.ENOSYS, f"no way to close sockets on {os.uname().machine}")
    architecture, socket, modes = known[os.uname().machine]
    load, equal, greater, any_of, answer = 0x20, 0x15, 0x35, 0x45, 0x06
    rows: list[tuple[int, int, int, int]] = []

    def row(code: int, value: int, *, yes: int = 0, no: int = 0) -> None:
        rows.append((code, yes, no, value))

    def refused() -> None:
        row(answer, 0x00050000 | errno.EPERM)

    def allowed() -> None:
        row(answer, 0x7FFF0000)

    row(load, 4)
    row(equal, architecture, yes=1)  # a program of another architecture could call by other numbers
    refused()
    row(load, 0)
    row(greater, 0x40000000, no=1)  # so could one of x32
    refused()
    row(equal, 425, no=1)  # io_uring makes sockets, too
    refused()
    for number in modes:  # the mode is the second argument, or the third behind a folder
        row(equal, number, no=4)
        row(load, 24 if number in (90, 91, 52) else 32)
        row(any_of, 0o6000, no=1)
        refused()
        allowed()
    row(equal, socket, yes=1)
    allowed()
    row(load, 16)
    if network:
        row(equal, 1, no=1)  # AF_UNIX
        refused()
        allowed()
    else:
        row(equal, 16, no=1)  # AF_NETLINK, which only tells of interfaces
        allowed()
        refused()
    code = b"".join(struct.pack("HBBI", *one) for one in rows)
    held = ctypes.create_string_buffer(code)
    program = struct.pack("HxxxxxxP", len(rows), ctypes.addressof(held))
    _no_new_privileges()
    library = _library()
    if library.prctl(_SECCOMP, 2, program, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "seccomp refused")


class _ConfineOptions:
    """What the words in front of the command say."""

    def __init__(self, words: Sequence[str]) -> None:
        self.life: int | None = None
        self.waits_for_all = self.is_confined = self.is_offline = self.has_no_doors = False
        self.writable: list[str] = []
        self.hidden: list[str] = []
        rest = iter(words)
        for word in rest:
            if word == "--":
                break
            if word == "--life":
                self.life = int(next(rest))
            elif word == "--write":
                self.writable.append(next(rest))
            elif word == "--hide":
                self.hidden.append(next(rest))
            elif word == "--all":
                self.waits_for_all = True
            elif word == "--landlock":
                self.is_confined = True
            elif word == "--offline":
                self.is_offline = True
            elif word == "--no-doors":
                self.has_no_doors = True
            else:
                raise SystemExit(f"confine: {word!r} is no option")
        self.command = list(rest)


def _run(options: _ConfineOptions) -> int:
    """Start the command and wait for its end: its status, as `wait` gives it."""
    if sys.platform == "win32":
        raise NotImplementedError("on Unix only")
    wake, waking = os.pipe()
    os.set_blocking(waking, False)
    signal.set_wakeup_fd(waking)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    if options.waits_for_all and sys.platform.startswith("linux"):  # what is left of it comes to us, not to init
        _library().prctl(_SUBREAPER, 1, 0, 0, 0)
    child = os.fork()
    if child == 0:
        _become(options)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # they are the command's, which has them as well
    poll = select.poll()
    poll.register(wake, select.POLLIN)
    if options.life is not None:
        poll.register(options.life, select.POLLIN)
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            if options.waits_for_all:
                _wait_for_the_rest()
            return status
        if any(fd == options.life for fd, _ in poll.poll()):
            os.killpg(0, signal.SIGKILL)
        try:
            os.read(wake, 4_096) if any(fd == wake for fd, _ in poll.poll(0)) else None
        except OSError:
            pass


def _wait_for_the_rest() -> None:
    """Until nothing is left of a sandbox, which ends with its first process."""
    if sys.platform == "win32":
        raise NotImplementedError("on Unix only")
    until = time.monotonic() + _LEFT_SECONDS
    while time.monotonic() < until:
        try:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(0.002)
        except ChildProcessError:
            return


def _become(options: _ConfineOptions) -> None:
    if sys.platform == "win32":
        raise NotImplementedError("on Unix only")
    command = options.command
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        if options.life is not None:
            os.close(options.life)
        if options.is_confined:
            keep_few()
            restrict(options.writable, options.hidden)
        if options.is_offline or options.has_no_doors:
            cut_off(network=not options.is_offline)
        os.execv(command[0], command)
    except OSError as e:
        os.write(2, f"{command[0]}: not started: {e}\n".encode())
    os._exit(126)


def main() -> None:
    """Run the command of the arguments, and end as it ended."""
    if sys.platform == "win32":
        raise NotImplementedError("on Unix only")
    status = _run(_ConfineOptions(sys.argv[1:]))
    if os.WIFSIGNALED(status):
        signal.signal(os.WTERMSIG(status), signal.SIG_DFL) if os.WTERMSIG(status) != signal.SIGKILL else None
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


if __name__ == "__main__":
    main()
