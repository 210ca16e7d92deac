"""Commands in processes of their own that needn't import anything: each is forked from one that did so once.

Most of what a short command costs is imports: two seconds for a chat with a model's SDK. A process that is forked is
one like any other: it has its own terminal, signals reach it, it can be killed. What it doesn't show is how a command
starts; a test about that starts one with `sys.executable`.
"""

from __future__ import annotations

import atexit
import fcntl
import functools
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import termios
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# What the commands of tests import sooner or later, also what they import only when it is needed.
IMPORTED = (
    "anthropic",
    "openai",
    "perdure.adapters.checkpoints.checkpoints",
    "perdure.adapters.machine.shell",
    "perdure.adapters.providers.anthropic",
    "perdure.adapters.providers.openai",
    "perdure.cli.agent",
    "perdure.cli.chat.editor",
    "perdure.cli.chat.headless",
    "perdure.cli.chat.markdown",
    "perdure.cli.chat.talk",
    "perdure.cli.sessions",
)
_ORDER_BYTES = 1 << 20


class Forked:
    """A command that was started so. The names are those of `subprocess.Popen`."""

    def __init__(self, pid: int, end: socket.socket) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._end = end

    def poll(self) -> int | None:
        """The exit code; None while it runs."""
        if self.returncode is None and select.select([self._end], [], [], 0)[0]:
            self._take()
        return self.returncode

    def wait(self, timeout: float) -> int:
        """The exit code, once it has ended. Raises `subprocess.TimeoutExpired` when it hasn't by then."""
        if self.returncode is None:
            if not select.select([self._end], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
            self._take()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _take(self) -> None:
        said = self._end.recv(100)
        self._end.close()
        if not said:
            raise AssertionError("the process that the commands are forked from died")
        self.returncode = int(said)


def start(words: list[str], *, cwd: Path, env: Mapping[str, str], fds: tuple[int, int, int]) -> Forked:
    """Run a command in a folder with exactly these variables; `fds` are its input and outputs.

    It has a session of its own, as `start_new_session` gives; a terminal that it gets for its input is its own.
    """
    nursery = _nursery()
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with there:
        order = json.dumps({"words": words, "cwd": str(cwd), "env": dict(env)}).encode()
        socket.send_fds(nursery, [order], [*fds, there.fileno()])
    return Forked(int(here.recv(100)), here)


@functools.cache
def _nursery() -> socket.socket:
    """The process that imports and forks; it ends when we do."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with there:
        keep = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "LANG") if name in os.environ}
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(there.fileno())],
            pass_fds=[there.fileno()],
            stdin=subprocess.DEVNULL,
            cwd=ROOT,
            env={**keep, "PYTHONUTF8": "1"},
            start_new_session=True,
        )

    def end() -> None:
        here.close()
        process.wait()

    atexit.register(end)
    return here


def main() -> None:
    """Fork a process for each order, and tell its exit code."""
    orders = socket.socket(fileno=int(sys.argv[1]))
    for name in IMPORTED:
        __import__(name)
    from perdure.cli import main as perdure

    gc.collect()
    gc.freeze()  # what is there stays shared by all
    woken, wakes = socket.socketpair()
    wakes.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
    running: dict[int, socket.socket] = {}
    while True:
        ready, _, _ = select.select([orders, woken], [], [])
        if woken in ready:
            woken.recv(1_000)
            for pid in list(running):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    with running.pop(pid) as end:
                        _tell(end, os.waitstatus_to_exitcode(status))
        if orders in ready:
            data, fds, _, _ = socket.recv_fds(orders, _ORDER_BYTES, 4)
            if not data:
                return
            child = os.fork()
            if child == 0:
                words = _become(json.loads(data), fds)
                sys.exit(perdure(words))
            for fd in fds[:3]:
                os.close(fd)
            running[child] = socket.socket(fileno=fds[3])
            _tell(running[child], child)


def _tell(whom: socket.socket, number: int) -> None:
    try:
        whom.send(b"%d" % number)
    except OSError:  # the test is over, and nobody wants to know
        pass


def _become(order: dict[str, Any], fds: list[int]) -> list[str]:
    """Be the process that was ordered, as if it had been started there; the words of its command."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    for number, fd in enumerate(fds[:3]):
        os.dup2(fd, number)
    os.closerange(3, 1_000)
    if os.isatty(0):
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # the terminal is its own, so that Ctrl-C reaches it
    errors = ("surrogateescape", "surrogateescape", "backslashreplace")
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, encoding="utf-8", errors=how, closefd=False)  # noqa: SIM115 - as long as the process
        for number, (mode, how) in enumerate(zip("rww", errors, strict=True))
    )
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    words: list[str] = order["words"]
    sys.argv = ["perdure", *words]
    return words


if __name__ == "__main__":
    main()
