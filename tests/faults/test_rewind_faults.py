"""A rewind of files is all or nothing: a fault, a full disk or a kill at any of its steps (CKP-3, REL-11)."""

from __future__ import annotations

import errno
import functools
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.rewinds import call, shadow
from tests.trees import Picture, picture

from perdure.adapters.checkpoints.log import PLAN
from perdure.adapters.checkpoints.rooted_tree import TreeOsCalls
from perdure.errors import PerdureError

pytestmark = pytest.mark.faults

STEPS = ("write", "sync", "sync_folder", "mkdir", "rmdir", "unlink", "rename", "rename_new", "symlink", "chmod", "open")


MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # where a sync costs nothing


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=MEMORY) as place:
        yield Path(place).resolve()


class Killed(BaseException):
    """As if the process were gone: nothing that it still tries has an effect."""


class Faulty(TreeOsCalls):
    """`fails(n)` is asked before the n-th call that changes something."""

    def __init__(self, fails: Callable[[int, str], None]) -> None:
        self.fails, self.count, self.is_armed = fails, 0, False


def _step(name: str) -> Any:
    real = getattr(TreeOsCalls, name)

    def step(self: Faulty, *args: Any) -> Any:
        is_change = name != "open" or args[2] & os.O_CREAT
        if self.is_armed and is_change:
            self.count += 1
            self.fails(self.count, name)
        return real(self, *args)

    return step


for _name in STEPS:
    setattr(Faulty, _name, _step(_name))


def made(folder: Path, calls: TreeOsCalls) -> tuple[Any, Picture, Picture]:
    """A project that an agent changed in every way; the pictures from before and after."""
    project = folder / "project"
    project.mkdir()
    (project / "src").mkdir()
    (project / "src/a.py").write_text("one\n")
    (project / "run.sh").write_text("#!/bin/sh\n")
    (project / "run.sh").chmod(0o755)
    (project / "gone.bin").write_bytes(bytes(range(256)) * 40)
    (project / "link").symlink_to("src/a.py")
    (project / "turns").write_text("a file\n")
    start = picture(project)
    made = shadow(folder, calls=calls)
    made.begin(call("m1"))
    (project / "src/a.py").write_text("two\n")
    (project / "run.sh").chmod(0o644)
    (project / "gone.bin").unlink()
    (project / "link").unlink()
    (project / "link").write_text("a file now\n")
    (project / "turns").unlink()
    (project / "turns").mkdir()
    (project / "turns/inside").write_text("x")
    (project / "lib").mkdir()
    (project / "src").rename(project / "lib/src")
    made.end(call("m1"))
    return made, start, picture(project)


@functools.cache
def steps() -> int:
    """How many steps a rewind takes here."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as place:
        calls = Faulty(lambda n, name: None)
        one, start, _ = made(Path(place).resolve(), calls)
        calls.is_armed = True
        one.rewind({"m1"}, is_forced=False, is_dry=False)
        assert picture(Path(place).resolve() / "project") == start
        return calls.count


def check(folder: Path, start: Picture, ends: Picture) -> str:
    """After whatever happened, a new process finds all or nothing, and can go on from there."""
    again = shadow(folder)
    project = folder / "project"
    assert not (folder / "store" / PLAN).exists()
    assert not list(project.rglob(".perdure-*"))
    now = picture(project)
    assert now in (start, ends), "a part of a rewind was left"
    if now == ends:
        again.rewind({"m1"}, is_forced=False, is_dry=False)
        assert picture(project) == start
    again.undo(is_forced=False, is_dry=False)
    assert picture(project) == ends
    again.close()
    return "nothing" if now == ends else "all"


def test_a_kill_at_any_step_leaves_all_or_nothing(tmp_path: Path) -> None:
    """CKP-3, REL-11: also when the kill comes while it is going back, or tidying up."""
    came = []
    for at in range(1, steps() + 1):
        folder = tmp_path / str(at)
        folder.mkdir()

        def kill(n: int, name: str, at: int = at) -> None:
            if n >= at:
                raise Killed

        calls = Faulty(kill)
        one, start, ends = made(folder, calls)
        calls.is_armed = True
        with pytest.raises(Killed):
            one.rewind({"m1"}, is_forced=False, is_dry=False)
        came.append(check(folder, start, ends))
    assert came == sorted(came, key=["nothing", "all"].index)  # one moment at which it becomes true


def test_an_error_at_any_step_leaves_all_or_nothing(tmp_path: Path) -> None:
    """CKP-3, REL-10: and the process that it happens to needs no second one to have it so."""
    for at in range(1, steps() + 1):
        code = (errno.ENOSPC, errno.EACCES, errno.EIO)[at % 3]
        folder = tmp_path / str(at)
        folder.mkdir()

        def fail(n: int, name: str, at: int = at, code: int = code) -> None:
            if n == at:
                raise OSError(code, os.strerror(code))

        calls = Faulty(fail)
        one, start, ends = made(folder, calls)
        calls.is_armed = True
        try:
            one.rewind({"m1"}, is_forced=False, is_dry=False)
        except PerdureError as e:
            assert "nothing was changed" in str(e)
            assert {k: v for k, v in picture(folder / "project").items() if ".perdure-" not in k} == ends
        else:
            now = picture(folder / "project")
            assert {k: v for k, v in now.items() if ".perdure-" not in k} == start
        calls.is_armed = False
        one.close()
        check(folder, start, ends)


def test_a_disk_that_stays_full_is_no_way_into_the_middle(tmp_path: Path) -> None:
    """CKP-3: what is needed is made before anything moves, and the way back needs no room."""
    for at in range(1, steps() + 1, 3):
        folder = tmp_path / str(at)
        folder.mkdir()

        def full(n: int, name: str, at: int = at) -> None:
            if n >= at and name in ("write", "open", "symlink"):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        calls = Faulty(full)
        one, start, ends = made(folder, calls)
        calls.is_armed = True
        try:
            one.rewind({"m1"}, is_forced=False, is_dry=False)
        except PerdureError:
            assert picture(folder / "project") == ends
        else:
            assert picture(folder / "project") == start
        one.close()
        check(folder, start, ends)


KILLING = """
import os, signal, sys
from pathlib import Path
from tests.faults.test_rewind_faults import Faulty, picture
from tests.rewinds import shadow
at = int(sys.argv[2])
def kill(n, name):
    if n == at:
        os.kill(os.getpid(), signal.SIGKILL)
calls = Faulty(kill)
one = shadow(Path(sys.argv[1]), calls=calls)
calls.is_armed = True
one.rewind({"m1"}, is_forced=False, is_dry=False)
"""


@pytest.mark.nightly
def test_kill_9(tmp_path: Path) -> None:
    """CKP-3: the real thing, at a few of the steps."""
    most = steps()
    came = set()
    for at in (1, most // 2, 3 * most // 4, most - 1):
        folder = tmp_path / str(at)
        folder.mkdir()
        one, start, ends = made(folder, TreeOsCalls())
        one.close()
        ran = subprocess.run([sys.executable, "-c", KILLING, str(folder), str(at)], check=False, cwd=Path.cwd())
        assert ran.returncode == -signal.SIGKILL
        came.add(check(folder, start, ends))
    assert came == {"all", "nothing"}


def test_what_is_changed_at_the_last_moment_isnt_lost(tmp_path: Path) -> None:
    """REL-11: somebody writes between the look and the move; the rewind finds it, and takes everything back."""
    project = tmp_path / "project"

    def write(n: int, name: str) -> None:
        if name == "rename_new" and not calls.has_written:
            calls.has_written = True
            (project / "run.sh").write_text("mine, just now\n")

    calls: Any = Faulty(write)
    calls.has_written = False
    one, _, ends = made(tmp_path, calls)
    calls.is_armed = True
    with pytest.raises(PerdureError, match=r"run\.sh: somebody changed it just now"):
        one.rewind({"m1"}, is_forced=False, is_dry=False)
    assert (project / "run.sh").read_text() == "mine, just now\n"
    assert {k: v for k, v in picture(project).items() if k != "run.sh"} == {
        k: v for k, v in ends.items() if k != "run.sh"
    }
