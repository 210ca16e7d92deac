"""Names that a disk holds and no text does: kept, restored, named; and what isn't kept is named as well (CKP-7)."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis
from hypothesis import strategies as st
from tests.rewinds import call, shell
from tests.rewinds import shadow as opened

from perdure.adapters.checkpoints.log import escaped_name, unescaped_name
from perdure.memory.checkpoints import MissedChange
from perdure.ports.machine import FileRewind

pytestmark = pytest.mark.unit
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # where a sync costs nothing

_MADE: list[Any] = []


def shadow(folder: Path, **given: Any) -> Any:
    """The checkpoints of a folder, closed behind the test."""
    _MADE.append(opened(folder, **given))
    return _MADE[-1]


@pytest.fixture(autouse=True)
def closing() -> Iterator[None]:
    yield
    while _MADE:
        _MADE.pop().close()


ODD = [
    b"caf\xe9.txt",  # not UTF-8
    b"\xff\xfe\x80",
    b"two\nlines.txt",
    b"tab\tbell\x07escape\x1b[31m.txt",
    "bidi\u202etxt.exe".encode(),
    "zero\u200bwidth".encode(),
    b"--force",
    b"-rf",
    b"~home",
    b"~",
    b" leading and trailing ",
    b"ends in a dot.",
    b"back\\slash",
    b"quote'\"$(touch x)`*?[a]",
    b"#hash",
    b"!bang",
    b".GIT",
    b".Git",
    b"git~1",
    b".gitmodules",
    b"CON",
    b"aux.txt",
    b"x" * 255,
    b"\xe9" * 255,
    b"\xed\xa0\x80 a surrogate's bytes",
    "e\u0301 not composed".encode(),
    "\u00e9 composed".encode(),
    b"\x01",
    b"{}",
    b"%41",
    "\U000e0041\ue000\uffff".encode(),  # tags, private use, unassigned
]


def tree(folder: bytes) -> dict[bytes, tuple[str, int, bytes]]:
    """Everything below a folder, by the bytes of its name."""
    found: dict[bytes, tuple[str, int, bytes]] = {}
    for at, folders, files in os.walk(folder):
        for leaf in (*folders, *files):
            path = os.path.join(at, leaf)
            name = os.path.relpath(path, folder)
            if os.path.islink(path):
                found[name] = ("link", 0, os.readlink(path))
            elif os.path.isdir(path):
                found[name] = ("folder", 0, b"")
            else:
                with open(path, "rb") as file:
                    found[name] = ("file", os.stat(path).st_mode & 0o777, file.read())
    return found


def project(folder: Path) -> bytes:
    return os.fsencode(folder / "project")


def put(folder: Path, name: bytes, data: bytes = b"mine\n") -> bytes:
    path = os.path.join(project(folder), name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)
    return path


def back(one: Any, *prompts: str, is_dry: bool = False) -> FileRewind:
    return one.rewind(set(prompts), is_forced=False, is_dry=is_dry)


def test_files_of_any_name_come_back_with_everything_else(tmp_path: Path) -> None:
    """CKP-7: one such name must not switch off the checkpoints of all others."""
    one = shadow(tmp_path)
    for name in ODD:
        put(tmp_path, name, b"mine: " + name)
        put(tmp_path, b"folder " + name[:200] + b"/" + name)
    put(tmp_path, b"a.txt")
    before = tree(project(tmp_path))
    shell(one, "m1", "find . -mindepth 1 -delete; ls -A | wc -l | grep -qx 0")
    assert tree(project(tmp_path)) == {}
    done = back(one, "m1")
    assert tree(project(tmp_path)) == before and not done.missed
    one.undo(is_forced=False, is_dry=False)
    assert tree(project(tmp_path)) == {}


def test_a_later_process_knows_the_same_names(tmp_path: Path) -> None:
    """CKP-7: the log, the index and a plan that was cut short hold them, too."""
    one = shadow(tmp_path)
    for name in ODD:
        put(tmp_path, name)
    os.symlink(b"leads to caf\xe9", os.path.join(project(tmp_path), b"link \xe9"))
    before = tree(project(tmp_path))
    shell(one, "m1", 'for f in ./* ./.[!.]*; do rm -f -- "$f"; mkdir -- "$f"; echo 2 > "$f/x"; done')
    one.close()
    again = shadow(tmp_path)
    shell(again, "m2", "find . -mindepth 1 -delete; echo made > $'new \\xe9\\n'")
    again.close()
    last = shadow(tmp_path)
    back(last, "m1", "m2")
    assert tree(project(tmp_path)) == before


@hypothesis(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.binary(min_size=1, max_size=40).map(lambda b: b.replace(b"\0", b"0").replace(b"/", b"1")), max_size=8),
    st.randoms(use_true_random=False),
)
def test_any_bytes_are_a_name(names: list[bytes], random: Any) -> None:
    """CKP-7: what the disk takes is kept and put back, whatever its bytes are."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as place:
        folder = Path(place).resolve()
        one = shadow(folder)
        for name in names:
            if name not in (b".", b"..", b".git", b".gitignore") and not name.startswith(b".perdure-rewind-"):
                put(folder, b"in/" + name, name)
        before = tree(project(folder))
        one.begin(call("m1"))
        for name in sorted(before):
            path = os.path.join(project(folder), name)
            if random.random() < 0.7 and os.path.isfile(path):
                os.unlink(path)
                if random.random() < 0.3:
                    os.mkdir(path)
        one.end(call("m1"))
        one.close()
        again = shadow(folder)
        back(again, "m1")
        assert tree(project(folder)) == before
        again.close()


@given(st.binary(max_size=60).map(lambda b: b.replace(b"\0", b"")))
def test_a_name_in_a_file_of_ours_is_read_as_the_same_bytes(name: bytes) -> None:
    """CKP-7: reversible, valid UTF-8, and an ordinary name stands there as it is."""
    text = escaped_name(os.fsdecode(name))
    text.encode()
    assert os.fsencode(unescaped_name(text)) == name
    try:
        assert text == name.decode()
    except UnicodeDecodeError:
        assert "\0" in text


def test_ignored_files_that_a_command_took_are_named(tmp_path: Path) -> None:
    """CKP-7: never "nothing has to change": a rewind says what it misses."""
    one = shadow(tmp_path)
    for name in (b"a.log", b"b.log", b"c.log", b"build/out.o", b"deep/in/d.log", b".gitignore"):
        put(tmp_path, name, b"*.log\n/build/\n" if name == b".gitignore" else b"mine\n")
    shell(one, "m0", "true")
    shell(one, "m1", "rm a.log deep/in/d.log; echo 2 >> b.log; echo 3 > made.log; rm -r build")
    done = back(one, "m1")
    assert done.steps == () and {(m.path, m.what) for m in done.missed} == {
        ("a.log", "removed"),
        ("deep/in/d.log", "removed"),
        ("b.log", "changed"),
        ("made.log", "made"),
        ("build", "removed"),
    }
    assert {m.why for m in done.missed} == {"ignored by git"}
    assert back(one, "m2").missed == ()


def test_folders_that_nobody_looks_into_are_named(tmp_path: Path) -> None:
    """CKP-7: what a command did deep in an ignored folder isn't known, and a rewind doesn't claim that it is."""
    one = shadow(tmp_path)
    for name in (b"node_modules/a/deep/in.js", b"node_modules/b.js", b"a.txt"):
        put(tmp_path, name)
    shell(one, "m1", "rm node_modules/a/deep/in.js")
    one.close()
    again = shadow(tmp_path)
    assert [(m.path, m.what) for m in back(again, "m1").missed] == [("node_modules", "not looked into")]
    shell(again, "m2", "rm node_modules/b.js")
    assert [(m.path, m.what) for m in back(again, "m2").missed] == [("node_modules", "changed")]


def test_pipes_sockets_and_a_folders_own_permissions_are_named(tmp_path: Path) -> None:
    """CKP-7: what has no bytes to keep."""
    one = shadow(tmp_path)
    put(tmp_path, b"folder/a.txt")
    os.mkfifo(os.path.join(project(tmp_path), b"pipe\xe9"))
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.getcwd()
        os.chdir(project(tmp_path))
        try:
            listener.bind("sock")
        finally:
            os.chdir(here)
        shell(one, "m1", "rm pipe* sock; chmod 700 folder; mkfifo another")
    missed = {os.fsencode(m.path): (m.why, m.what) for m in back(one, "m1").missed}
    assert missed == {
        b"pipe\xe9": ("a pipe", "removed"),
        b"sock": ("a socket", "removed"),
        b"another": ("a pipe", "made"),
        b"folder": ("the permissions of a folder", "changed"),
    }


def test_when_commands_arent_compared_a_rewind_says_so(tmp_path: Path) -> None:
    """CKP-7: too many files, switched off, a home directory: what commands did is missed, and named as such."""
    for setting, why in (({"checkpoint_files": 2}, "more than 2 files"), ({"checkpoint_commands": False}, "is off")):
        folder = tmp_path / why.replace(" ", "")
        folder.mkdir()
        one = shadow(folder, **setting)
        for name in (b"a.txt", b"b.txt", b"c.txt"):
            put(folder, name)
        shell(one, "m1", "rm a.txt")
        one.close()
        again = shadow(folder, **setting)
        (missed,) = back(again, "m1").missed
        assert missed.path == "" and why in missed.why
        assert back(again, "m2").missed == ()


class Unreadable:
    """A disk that refuses to open some names."""

    @staticmethod
    def calls(*parts: str) -> Any:
        from perdure.adapters.checkpoints.rooted_tree import TreeOsCalls

        class Refusing(TreeOsCalls):
            def open(self, dir_fd: int, part: str, flags: int) -> int:
                if part in parts:
                    raise PermissionError(13, "Permission denied", part)
                return super().open(dir_fd, part, flags)

        return Refusing()


def test_what_cant_be_read_is_left_and_the_rest_is_kept(tmp_path: Path) -> None:
    """CKP-7: one file that nobody may read doesn't switch off the checkpoints of all others."""
    one = shadow(tmp_path, calls=Unreadable.calls("secret.key"))
    put(tmp_path, b"secret.key")
    put(tmp_path, b"a.txt")
    shell(one, "m1", "rm secret.key a.txt")
    done = back(one, "m1")
    assert set(tree(project(tmp_path))) == {b"a.txt"}
    (left,) = [step for step in done.steps if step.left]
    assert left.path == "secret.key" and "not readable" in left.left


def test_a_tree_deeper_than_a_path_may_be_long(tmp_path: Path) -> None:
    """CKP-7: what stands below is reached folder by folder."""
    one = shadow(tmp_path)
    put(tmp_path, b"a.txt")
    deep = "for n in $(seq 25); do mkdir $(printf 'd%.0s' {1..200}); cd $(printf 'd%.0s' {1..200}); done"
    subprocess.run(["bash", "-c", f"{deep}; echo mine > low.txt"], cwd=tmp_path / "project", check=True)
    shell(one, "m1", "rm a.txt; rm -rf ddd*")
    assert os.listdir(tmp_path / "project") == []
    back(one, "m1")
    there = subprocess.run(["bash", "-c", "find . -name low.txt -execdir cat {} +; ls a.txt"],
                           cwd=tmp_path / "project", capture_output=True, check=True)  # fmt: skip
    assert there.stdout == b"mine\na.txt\n"
    subprocess.run(["rm", "-rf", tmp_path / "project"], check=True)


def test_a_full_store_leaves_out_by_name(tmp_path: Path) -> None:
    """CKP-7: files without a copy are left, and named, and all others come back."""
    one = shadow(tmp_path, checkpoint_disk_bytes=40_000)
    for n in range(6):
        put(tmp_path, b"%d.bin" % n, b"%d" % n * 20_000)
    shell(one, "m1", "rm *.bin")
    done = back(one, "m1")
    left = {step.path for step in done.steps if step.left}
    assert left and len(left) < 6
    assert {name.decode() for name in tree(project(tmp_path))} == {f"{n}.bin" for n in range(6)} - left


def test_what_is_missed_is_told_once() -> None:
    """CKP-7: pure: made and removed again is nothing; removed and made again is changed."""
    from perdure.memory.checkpoints import CALL, CheckpointEntry, missed_changes

    def entry(seq: int, *some: MissedChange) -> CheckpointEntry:
        return CheckpointEntry(seq=seq, kind=CALL, prompt="m1", missed=some)

    entries = [
        entry(1, MissedChange("a", "ignored by git", "made"), MissedChange("b", "ignored by git", "removed")),
        entry(
            2,
            MissedChange("a", "ignored by git", "removed"),
            MissedChange("b", "ignored by git", "made"),
            MissedChange("", "x"),
        ),
        entry(3, MissedChange("", "x"), MissedChange("c", "ignored by git", "changed")),
    ]
    assert missed_changes(entries, 1) == (
        MissedChange("", "x"),
        MissedChange("b", "ignored by git", "changed"),
        entries[2].missed[1],
    )
    assert missed_changes(entries, 3) == (MissedChange("", "x"), entries[2].missed[1])
