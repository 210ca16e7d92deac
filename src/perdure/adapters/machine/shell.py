"""`ports.Shell` on this machine: bash, each command in a process group of its own, its output in a file (SES-3).

    <folder>/<name>.output    what it writes, stdout and stderr together
    <folder>/<name>.end       exit code and last folder, written by the command's own shell at its end
    <folder>/<name>.process   process id and when it began, so that a later process knows it again

Since bash itself writes these, a command that outlives us ends with its exit code known all the same.
"""

from __future__ import annotations

import errno
import os
import re
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import DEVNULL, STDOUT, TimeoutExpired, run

import anyio
import anyio.abc
import anyio.to_thread

from perdure.adapters.journal.disk import make_private
from perdure.adapters.machine.repositories import git_safe_environment, path_outside_project
from perdure.adapters.machine.sandbox import Sandbox, confined_command
from perdure.adapters.machine.system import CLOSE_ON_EXEC, end_group
from perdure.ports.machine import CommandExit as Ended
from perdure.ports.machine import PermissionSource as Let

# The end is written to an open file, since the folder that it is in can't be written in a sandbox.
_SCRIPT = """trap '_hf=$?; { builtin echo "$_hf"; builtin pwd -P; } >&'"$2"' 2>/dev/null' EXIT\neval "$1\""""
_ENVIRONMENT = {"PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0", "TERM": "dumb", "GIT_EDITOR": "true"}
_SHELLS_OWN = frozenset({"_", "SHLVL", "PWD", "OLDPWD"})  # what every bash sets for itself
_SCRIPT_SECONDS = 5.0
_GRACE_SECONDS = 2.0
_GONE_SECONDS = 0.5  # an init that reaps nobody must not hold us up
_POLL_SECONDS = 0.1
_MOST_END = 8_192  # characters of the file of an end; a command has it open, and may write anything there
_MOST_DIGITS = 5
_CODE = re.compile(rf"[0-9]{{1,{_MOST_DIGITS}}}\s*")
_ENDINGS = (".output", ".end", ".end.new", ".process")


@dataclass(eq=False)
class LocalShell:
    """Commands whose files stand in one private folder. `root` is the project's folder; `sandbox` is for commands that
    nobody was asked about, None for none. `hook_script` is where hooks set variables for commands, as bash reads it.
    """

    folder: Path
    root: str = "/"
    sandbox: Sandbox | None = None
    hook_script: Path | None = None
    _of_hooks: tuple[tuple[int, int], Mapping[str, str]] = field(default=((0, 0), {}), init=False)
    _life: tuple[int, int] | None = field(default=None, init=False)

    @property
    def notice(self) -> str:
        """What commands can't do in the sandbox; empty without one."""
        return self.sandbox.notice if self.sandbox is not None else ""

    async def start(
        self,
        name: str,
        command: str,
        *,
        cwd: str,
        let: Let = "approved",
        hidden: Sequence[str] = (),
        outlives: bool = False,
    ) -> _StartedCommand:
        more = await anyio.to_thread.run_sync(self._hook_variables) if self.hook_script is not None else {}
        environ = {**os.environ, **more, **_ENVIRONMENT}
        if let != "approved":
            environ = git_safe_environment(environ, only_looks=let == "looks")
        if let == "looks":
            environ["PATH"] = path_outside_project(environ.get("PATH", os.defpath), self.root)
        life = None if outlives else self._alive()
        sandbox = self.sandbox if let != "approved" else None
        if sandbox is not None:
            environ = sandbox.environment(environ)

        def line(words: list[str]) -> list[str]:
            if sandbox is None:
                return words if life is None else confined_command(words, life=life)
            return sandbox.confined(words, cwd=cwd, only_looks=let == "looks", hidden=hidden, life=life)

        with anyio.CancelScope(shield=True):  # a cancelled start must not leave a command that nobody knows of
            started = await _start(self._base(name), command, cwd, environ, line, life)
        started.shell = self  # while the command is known, what keeps it alive is open
        return started

    def _hook_variables(self) -> Mapping[str, str]:
        """What the script of hooks sets; it is run again when it changed."""
        assert self.hook_script is not None
        try:
            found = os.stat(self.hook_script)
        except OSError:
            return {}
        state = (found.st_mtime_ns, found.st_size)
        if self._of_hooks[0] != state:
            self._of_hooks = (state, _variables_set_by(self.hook_script, self.root))
        return self._of_hooks[1]

    def _alive(self) -> int:
        """A pipe that closes with this process, however that ends."""
        if self._life is None:
            self._life = os.pipe()
            weakref.finalize(self, _close, self._life)
        return self._life[0]

    async def find(self, name: str) -> _AdoptedCommand | None:
        return await anyio.to_thread.run_sync(_adopt, self._base(name))

    async def read(self, output: str, *, offset: int, limit_bytes: int) -> bytes:
        path = self._own(output)
        return await anyio.to_thread.run_sync(_part, path, offset, limit_bytes)

    async def discard(self, output: str) -> None:
        await anyio.to_thread.run_sync(_discard, str(self._own(output)).removesuffix(".output"))

    def _base(self, name: str) -> Path:
        if not name or set(name) & set("/\0") or name.startswith("."):
            raise OSError(errno.EINVAL, "not a name of a command", name)
        return self.folder / name

    def _own(self, output: str) -> Path:
        path = Path(output)
        if path.parent != self.folder or not path.name.endswith(".output"):
            raise OSError(errno.EPERM, "not the output of a command of this session", output)
        return path


def _variables_set_by(script: Path, root: str) -> Mapping[str, str]:
    """What an environment has otherwise once bash read a script; nothing when it doesn't end in time."""
    words = ["/bin/bash", "-c", 'set -a; . "$1" >/dev/null 2>&1; exec env -0', "bash", str(script)]
    cwd = root if os.path.isdir(root) else None
    try:
        done = run(words, cwd=cwd, stdin=DEVNULL, capture_output=True, timeout=_SCRIPT_SECONDS, check=False)
    except (OSError, TimeoutExpired):
        return {}
    pairs = (entry.partition("=") for entry in os.fsdecode(done.stdout).split("\0"))
    return {n: v for n, sign, v in pairs if sign and n not in _SHELLS_OWN and os.environ.get(n) != v}


def _close(pipe: tuple[int, int]) -> None:
    for fd in pipe:
        os.close(fd)


async def _start(
    base: Path,
    command: str,
    cwd: str,
    environ: Mapping[str, str],
    line: Callable[[list[str]], list[str]],
    life: int | None,
) -> _StartedCommand:
    make_private(base.parent)
    fd = os.open(f"{base}.output", os.O_WRONLY | os.O_CREAT | os.O_APPEND | CLOSE_ON_EXEC, 0o600)
    end = os.open(f"{base}.end", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | CLOSE_ON_EXEC, 0o600)
    try:
        words = await anyio.to_thread.run_sync(line, ["/bin/bash", "-c", _SCRIPT, "bash", command, str(end)])
        process = await anyio.open_process(
            words,
            stdin=DEVNULL,
            stdout=fd,
            stderr=STDOUT,
            cwd=cwd,
            env=environ,
            start_new_session=True,
            pass_fds=(end,) if life is None else (end, life),
        )
    finally:
        os.close(fd)
        os.close(end)
    await anyio.to_thread.run_sync(_mark, base, process.pid)
    return _StartedCommand(base, process)


class _CommandFiles:
    """What both kinds of commands read from their files."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self.output = f"{base}.output"

    def size_bytes(self) -> int:
        try:
            return os.stat(self.output).st_size
        except FileNotFoundError:
            return 0

    def _ended(self) -> tuple[int | None, str | None]:
        try:
            with open(f"{self._base}.end", encoding="utf-8", errors="surrogateescape") as file:
                code, _, rest = file.read(_MOST_END).partition("\n")
        except FileNotFoundError:
            return None, None
        is_folder = "\0" not in rest and len(rest) < _MOST_END - _MOST_DIGITS
        return (int(code) if _CODE.fullmatch(code) else None), (rest.removesuffix("\n") or None) if is_folder else None


class _StartedCommand(_CommandFiles):
    """A command that this process started."""

    def __init__(self, base: Path, process: anyio.abc.Process) -> None:
        super().__init__(base)
        self._process = process
        self.shell: LocalShell | None = None

    async def wait(self) -> Ended:
        code = await self._process.wait()
        await _end_group(self._process.pid)  # what it left behind
        return Ended(code, self._ended()[1])

    async def stop(self) -> None:
        if self._process.returncode is None:
            end_group(self._process.pid, at_once=False)
            with anyio.CancelScope(shield=True):
                with anyio.move_on_after(_GRACE_SECONDS):
                    await self._process.wait()
                end_group(self._process.pid, at_once=True)
                await self._process.wait()
                await _end_group(self._process.pid)


class _AdoptedCommand(_CommandFiles):
    """A command that an earlier process started; `pid` is None when it has ended."""

    def __init__(self, base: Path, pid: int | None, began: str | None) -> None:
        super().__init__(base)
        self._pid, self._began = pid, began

    def _runs(self) -> bool:
        return self._pid is not None and _began(self._pid) == self._began

    async def wait(self) -> Ended:
        while self._runs():  # noqa: ASYNC110 - not our child, so nobody tells when it ends
            await anyio.sleep(_POLL_SECONDS)
        return Ended(*self._ended())

    async def stop(self) -> None:
        with anyio.CancelScope(shield=True):
            for at_once in (False, True):
                if self._pid is None or not self._runs():
                    return
                end_group(self._pid, at_once=at_once)
                with anyio.move_on_after(_GRACE_SECONDS):
                    await self.wait()


def _adopt(base: Path) -> _AdoptedCommand | None:
    try:
        pid, _, began = Path(f"{base}.process").read_text("utf-8").strip().partition(" ")
    except FileNotFoundError:
        return None
    is_known = pid.isdigit() and bool(began)
    return _AdoptedCommand(base, int(pid) if is_known else None, began or None)


def _began(pid: int) -> str | None:
    """When a process began, so that another one with its number isn't taken for it; None when there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return _began_by_ps(pid) if not os.path.isdir("/proc/self") else None
    return None if fields[0] in (b"Z", b"X") else fields[19].decode()


def _began_by_ps(pid: int) -> str | None:
    """The same where there is no /proc."""
    import subprocess

    done = subprocess.run(["ps", "-o", "lstart=,stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    words = done.stdout.split()
    return "-".join(words[:-1]) if words and not words[-1].startswith("Z") else None


async def _end_group(pid: int) -> None:
    """Kill what is left of a group, and wait a moment until it is gone."""
    with anyio.move_on_after(_GONE_SECONDS):
        while end_group(pid, at_once=True):  # noqa: ASYNC110 - not our children, so nobody tells when they end
            await anyio.sleep(_POLL_SECONDS / 5)


def _discard(base: str) -> None:
    for ending in _ENDINGS:
        Path(base + ending).unlink(missing_ok=True)


def _mark(base: Path, pid: int) -> None:
    """Leave what a later process needs to know this one again."""
    Path(f"{base}.process").write_text(f"{pid} {_began(pid) or ''}\n", "utf-8")


def _part(path: Path, offset: int, limit: int) -> bytes:
    try:
        with open(path, "rb") as file:
            if offset < 0:
                size = file.seek(0, os.SEEK_END)
                offset = max(0, size + offset)
            file.seek(offset)
            return file.read(limit)
    except FileNotFoundError:
        return b""
