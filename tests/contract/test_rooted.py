"""SEC-2: nothing outside the root is read, written or removed, whatever a name says and whoever swaps what when."""

from __future__ import annotations

import errno
import hashlib
import itertools
import os
import random
import stat
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.adapters.machine.folder_calls import OsCalls, PathCalls, has_openat2
from perdure.adapters.machine.rooted import RootedFolder
from perdure.errors import FileMissing, FileRefused, FileTooLarge, FolderBusy, NameTaken, NotPlain
from perdure.memory.places import OWN

pytestmark = pytest.mark.contract
CANARY = b"canary: nobody inside may see this"
LIMIT = 10_000


class Kernel(OsCalls):
    has_beneath = True


class Walk(OsCalls):
    """As on a system, or in a sandbox, without openat2."""

    has_beneath = False


class Paths(PathCalls):
    """As on Windows, whose rename refuses a name that is taken."""

    def rename_new(self, old_fd: int, old: str, new_fd: int, new: str) -> None:
        if os.path.lexists(self._at(new_fd, new)):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new)
        super().rename_new(old_fd, old, new_fd, new)


KINDS: dict[str, type[OsCalls]] = {"walk": Walk, **({"openat2": Kernel} if has_openat2() else {})}
ALL_KINDS = {**KINDS, "paths": Paths}  # the last is no match for somebody who swaps folders meanwhile


@pytest.fixture(params=sorted(KINDS))
def kind(request: pytest.FixtureRequest) -> type[OsCalls]:
    return KINDS[request.param]


@pytest.fixture(params=sorted(ALL_KINDS))
def any_kind(request: pytest.FixtureRequest) -> type[OsCalls]:
    return ALL_KINDS[request.param]


def made(tmp_path: Path) -> tuple[Path, Path]:
    """A root with `a/b/f.md` in it, and a folder outside with the same names."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    for folder, data in ((root, b"inside"), (outside, CANARY)):
        (folder / "a" / "b").mkdir(parents=True)
        (folder / "a" / "b" / "f.md").write_bytes(data)
        (folder / "f.md").write_bytes(data)
    return root, outside


def seal(folder: Path) -> str:
    """Everything that stands in a folder: names, kinds, modes, contents."""
    parts = []
    for path in sorted(folder.rglob("*")):
        about = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(about.st_mode) else b""
        parts.append(f"{path} {about.st_mode:o} {about.st_nlink} {hashlib.sha256(content).hexdigest()}")
    return "\n".join(parts)


OPERATIONS: dict[str, Callable[[RootedFolder, str], Any]] = {
    "read": lambda root, name: root.read(name, limit_bytes=LIMIT),
    "stat": lambda root, name: root.stat(name),
    "write": lambda root, name: root.write(name, b"new"),
    "new": lambda root, name: root.write(name, b"new", is_new=True),
    "append": lambda root, name: root.append(name, b"more"),
    "remove": lambda root, name: root.remove(name),
    "rename": lambda root, name: root.rename(name, "moved/there.md"),
    "rename to": lambda root, name: root.rename("f.md", name),
    "remove folder": lambda root, name: root.remove_folder(name),
    "list": lambda root, name: [root.read(e.name, limit_bytes=LIMIT) for e in root.listing().entries],
    "lock": lambda root, name: root.lock(name, seconds=0).__enter__(),
}


# --- plain use ------------------------------------------------------------------------------------------------------


def test_what_was_written_is_read(tmp_path: Path, any_kind: type[OsCalls]) -> None:
    """SEC-2, REL-7: files 0600 and folders 0700 under any umask; nothing but the file is left behind."""
    before = os.umask(0)
    try:
        with RootedFolder.open(tmp_path / "m" / "n", create=True, calls=any_kind()) as root:
            root.write("x/y/f.md", b"one")
            root.write("x/y/f.md", b"two")
            root.append("x/y/f.md", b" more")
            assert root.read("x/y/f.md", limit_bytes=8) == b"two more"
            assert root.read("x/y/f.md", limit_bytes=8, offset=4) == b"more"
            root.rename("x/y/f.md", "z/g.md")
            assert [entry.name for entry in root.listing().entries] == ["z/g.md"]
            root.remove("z/g.md")
            root.remove_folder("z")
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    assert modes == {"m": 0o700, "n": 0o700, "x": 0o700, "y": 0o700}


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077, 0o177])
def test_files_are_private_under_any_umask(tmp_path: Path, mask: int, any_kind: type[OsCalls]) -> None:
    """SEC-2: exactly 0600."""
    with RootedFolder.open(tmp_path / "m", create=True, calls=any_kind()) as root:
        before = os.umask(mask)
        try:
            root.write("f.md", b"x")
        finally:
            os.umask(before)
    assert stat.S_IMODE((tmp_path / "m" / "f.md").stat().st_mode) == 0o600


def test_errors_are_one_family_with_one_line(tmp_path: Path, any_kind: type[OsCalls]) -> None:
    """SEC-2: what, where; and nothing is overwritten by a rename or by a new file."""
    made(tmp_path)
    with RootedFolder.open(tmp_path / "root", calls=any_kind()) as root:
        wrong: list[tuple[type[FileRefused], Callable[[], Any]]] = [
            (FileMissing, lambda: root.read("no.md", limit_bytes=1)),
            (FileMissing, lambda: root.read("no/f.md", limit_bytes=1)),
            (FileMissing, lambda: root.remove("no.md")),
            (FileTooLarge, lambda: root.read("f.md", limit_bytes=2)),
            (NameTaken, lambda: root.write("f.md", b"", is_new=True)),
            (NameTaken, lambda: root.rename("f.md", "a/b/f.md")),
            (NotPlain, lambda: root.read("a", limit_bytes=9)),
            (NotPlain, lambda: root.write("a", b"")),
            (NotPlain, lambda: root.read("f.md/x", limit_bytes=9)),
            (FileRefused, lambda: root.remove_folder("a")),
        ]
        for expected, do in wrong:
            with pytest.raises(expected) as error:
                do()
            assert "\n" not in str(error.value)
        assert root.stat("no.md") is None
        assert root.read("f.md", limit_bytes=LIMIT) == root.read("a/b/f.md", limit_bytes=LIMIT) == b"inside"
    with pytest.raises(FileMissing):
        RootedFolder.open(tmp_path / "nowhere")


def test_a_lock_has_one_holder(tmp_path: Path) -> None:
    """MEM-9: of this process or another; it is let go of at the end, and a removed file is no lock any more."""
    with RootedFolder.open(tmp_path / "m", create=True) as one, RootedFolder.open(tmp_path / "m") as other:
        with one.lock("lock", seconds=1):
            with pytest.raises(FolderBusy), other.lock("lock", seconds=0.05):
                pass
            (tmp_path / "m" / "lock").unlink()
            with other.lock("lock", seconds=1):
                pass
        with other.lock("lock", seconds=1):
            pass


def test_roots_that_others_rule_are_refused(tmp_path: Path) -> None:
    """SEC-2: whoever may rename in a folder owns what it holds."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    with pytest.raises(NotPlain, match="everybody may write"):
        RootedFolder.open(shared)


def test_a_list_is_bounded_and_says_what_it_left_out(tmp_path: Path, any_kind: type[OsCalls]) -> None:
    """SEC-2: links, pipes and odd names are named with the reason; hidden files are our own."""
    root, outside = made(tmp_path)
    (root / "link.md").symlink_to(outside / "f.md")
    (root / "folder").symlink_to(outside)
    os.link(outside / "f.md", root / "hard.md")
    os.mkfifo(root / "pipe.md")
    (root / "od\u202ed.md").write_bytes(b"")
    (root / ".hidden").write_bytes(b"")
    with RootedFolder.open(root, calls=any_kind()) as rooted:
        listed = rooted.listing()
        assert [entry.name for entry in listed.entries] == ["a/b/f.md", "f.md"]
        assert [name for name, _ in listed.refused] == [r"'od\u202ed.md'", "folder", "hard.md", "link.md", "pipe.md"]
        assert rooted.listing(limit=1).is_cut
        assert rooted.listing(depth=0).entries == listed.entries[1:]
    (root / ".own").mkdir()
    (root / ".own" / ".seen").write_bytes(b"")
    with RootedFolder.open(root, rules=OWN, calls=any_kind()) as rooted:
        assert rooted.listing().entries == listed.entries
        assert [entry.name for entry in rooted.listing(under=".own").entries] == [".own/.seen"]


# --- names ----------------------------------------------------------------------------------------------------------

DOTS = ["..", "．．", "․․", "‥", "%2e%2e", "%252e%252e", "..%00", "..;", "...", "....", ".. ", "..\u200b", "\u202e.."]
SLASHES = ["/", "\\", "／", "＼", "∕", "⁄", "%2f", "%5c", "%252F", "%c0%af", "//", "/./", "\\/"]
BY_HAND = [
    "/etc/passwd", "//etc/passwd", "~/.ssh/id_rsa", "~root/x", "$HOME/x", "${HOME}/x", "/proc/self/cwd/f.md",
    "proc/self/root/etc/passwd", "/proc/self/fd/3", "/dev/fd/0", "/dev/stdin", "dev/null", "C:\\Windows\\x", "C:/x",
    "\\\\server\\share", "\\\\?\\C:\\x", "\\\\.\\pipe\\x", "file:///etc/passwd", "f.md::$DATA", "f.md:stream",
    "a\0/etc", "f.md\0.txt", "\0", "\n", "f.md\n", "\r\nf.md", "\tf.md", "\x7f", "\x1b[2Jf.md", "f\u202emd.exe",
    "\u2066f\u2069.md", "\ufefff.md", "f\u00ad.md", "f\u200d.md", "\u2028", "\ud800", "\udcff.md", "CON", "con.md",
    "a/NUL", "aux.tar.gz", "COM1", "lpt9.txt", "COM¹", "CONIN$", "prn.", "x" * 256, "é" * 128, "/".join(["x"] * 21),
    "x/" * 600 + "x", "", ".", "..", "../", "./", "/", "//", "a/", "a//b", "a/./b/f.md", "a/../f.md",
    "a/b/../../f.md", "a/b/../../../outside/f.md", "./f.md", "f.md/", "f.md/.", "f.md/..", "f.md/../f.md", "link",
    "link/f.md", "link/a/b/f.md", "link/../outside/f.md", "up", "up/outside/f.md", "up/root/f.md", "leaf.md",
    "hard.md", "pipe.md", "loop", "loop/loop/x", "magic/f.md", "magic/../f.md", "a/link/f.md", "a/leaf.md",
    "dangling.md", "dangling/x.md", ".git/config", ".perdure/lock", ".draft-1", "..a", "a/..b", "f.md ", "f.md.",
    " f.md", "f.md\u00a0", "e\u0301.md", "A\u030a.md", "ﬁle.md", "ⅳ.md", "a*b", "a?b", 'a"b', "a<b", "a>b", "a|b",
    "-rf", "--", "*", "{a,b}", "$(id)", "`id`", "a;id", "a&id", "!x", "#x",
]  # fmt: skip


def corpus() -> list[str]:
    """Ways up and out: by hand, and made of every spelling of dots and slashes."""
    made_up = [f"{dots}{slash}{dots}{slash}outside{slash}f.md" for dots in DOTS for slash in SLASHES]
    made_up += [f"a{slash}{dots}{slash}{dots}{slash}outside/f.md" for dots in DOTS for slash in SLASHES]
    made_up += [urllib.parse.quote(name, safe="") for name in BY_HAND if name.isascii() and "/" in name]
    chance = random.Random(2)
    pieces = [*DOTS, *SLASHES, "a", "b", "f.md", "outside", "link", "up", "\0", "\u202e", "proc", "self", "root", " "]
    made_up += ["".join(chance.choices(pieces, k=chance.randint(2, 9))) for _ in range(150)]
    return list(dict.fromkeys([*BY_HAND, *made_up]))


@pytest.mark.quick(1)
def test_no_name_leads_outside(tmp_path: Path, any_kind: type[OsCalls]) -> None:
    """SEC-2: at least 300 names by every operation: 0 reads and 0 writes outside, and no error but our own."""
    names = corpus()
    assert len(names) >= 300
    root, outside = made(tmp_path)
    other = tmp_path / "second"
    for folder in (root, root / "a"):
        (folder / "link").symlink_to(outside)
        (folder / "leaf.md").symlink_to(outside / "f.md")
    (root / "up").symlink_to("..")
    (root / "loop").symlink_to("loop")
    (root / "magic").symlink_to("/proc/self/cwd")
    (root / "dangling.md").symlink_to(outside / "not-there.md")
    (root / "dangling").symlink_to(outside / "not-there")
    os.link(outside / "a" / "b" / "f.md", root / "hard.md")
    os.mkfifo(root / "pipe.md")
    before = seal(outside)
    around = {path.name for path in tmp_path.iterdir()}
    for name in names:
        with RootedFolder.open(root, calls=Quick.of(any_kind) if any_kind in KINDS.values() else any_kind()) as rooted:
            for operation in OPERATIONS.values():
                try:
                    got = operation(rooted, name)
                except FileRefused as e:
                    assert "\n" not in str(e) and str(e).isprintable(), name
                else:
                    assert CANARY not in (got if isinstance(got, bytes | list) else b""), name
        assert seal(outside) == before, name
    assert {path.name for path in tmp_path.iterdir()} == around and not other.exists()


# --- swaps ----------------------------------------------------------------------------------------------------------

SEAMS = tuple(name for name in vars(OsCalls) if not name.startswith("_") and callable(getattr(OsCalls, name)))


class Quick(OsCalls):
    """Without waiting for the disk."""

    def sync(self, fd: int) -> None: ...

    def sync_folder(self, fd: int) -> None: ...

    @classmethod
    def of(cls, kind: type[OsCalls]) -> OsCalls:
        calls = cls()
        calls.has_beneath = kind.has_beneath
        return calls


class Swapping(Quick):
    """Does something before its n-th call."""

    def __init__(self, has_beneath: bool | None, at: int, do: Callable[[], None]) -> None:
        self.has_beneath, self._at, self._do, self.count = has_beneath, at, do, 0

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in SEAMS:
            return found

        def called(*arguments: Any) -> Any:
            if self.count == self._at:
                self._do()
            self.count += 1
            return found(*arguments)

        return called


def swap(path: Path, target: Path, *, hard: bool = False) -> Callable[[], None]:
    def do() -> None:
        if path.exists():
            path.rename(path.with_name(f"was-{path.name}"))
            if hard:
                os.link(target, path)
            else:
                path.symlink_to(target)

    return do


def swaps(root: Path, outside: Path) -> Iterator[Callable[[], None]]:
    yield swap(root / "a", outside / "a")
    yield swap(root / "a" / "b", outside / "a" / "b")
    yield swap(root / "a" / "b" / "f.md", outside / "a" / "b" / "f.md")
    yield swap(root / "a" / "b" / "f.md", outside / "a" / "b" / "f.md", hard=True)
    yield swap(root / "f.md", outside / "f.md")


@pytest.mark.parametrize("operation", sorted(OPERATIONS))
def test_a_swap_between_any_two_calls_leads_nowhere(tmp_path: Path, kind: type[OsCalls], operation: str) -> None:
    """SEC-2: a folder or file becomes a link, symbolic or hard, before each call in turn: 0 outside."""
    runs = 0
    for which in range(5):
        at = 0
        while True:
            place = tmp_path / f"{which}-{at}"
            root, outside = made(place)
            before = seal(outside)
            calls = Swapping(kind.has_beneath, at, list(swaps(root, outside))[which])
            got: Any = b""
            try:
                with RootedFolder.open(root, calls=calls) as rooted:
                    got = OPERATIONS[operation](rooted, "a/b/f.md")
            except FileRefused:
                pass
            assert CANARY not in (got if isinstance(got, bytes | list) else b"")
            after = seal(outside)
            if which == 3:  # the attacker's own second name counts there
                before, after = (text.replace(" 2 ", " 1 ") for text in (before, after))
            assert after == before
            runs += 1
            if calls.count <= at:
                break
            at += 1
    assert runs > 15


def test_a_live_race_leads_nowhere(tmp_path: Path, kind: type[OsCalls]) -> None:
    """SEC-2: somebody swaps a folder for a link and back all the time, while files are read and written."""
    root, outside = made(tmp_path)
    before, stop = seal(outside), threading.Event()

    def swap_in() -> None:
        (root / "a").symlink_to(outside / "a")

    def swap_back() -> None:
        (root / "kept").rename(root / "a")

    def attack() -> None:
        for number in itertools.count():
            (root / "a").rename(root / "kept")
            for step in (swap_in, (root / "a").unlink, swap_back):
                try:
                    step()
                except OSError:  # a write made the folder anew
                    (root / "a").rename(root / f"made-{number}-{step.__name__}")
                    step()
            time.sleep(0.001)
            if stop.is_set():
                break

    attacker = threading.Thread(target=attack)
    attacker.start()
    done = 0
    try:
        with RootedFolder.open(root, calls=Quick.of(kind)) as rooted:
            tries = itertools.count()
            while (number := next(tries)) < 600 or (not done and number < 60_000):  # however little time we are given
                try:
                    assert rooted.read("a/b/f.md", limit_bytes=LIMIT) != CANARY
                    rooted.write("a/b/f.md", b"again")
                    done += 1
                except FileRefused:
                    pass
    finally:
        stop.set()
        attacker.join()
    assert seal(outside) == before
    assert done  # some of them came through


def test_a_drive_without_links_takes_new_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SEC-2, OPS-1: where there is neither an exclusive rename nor a hard link; never over a file that is there."""

    def refused(*given: object, **named: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr("perdure.adapters.machine.folder_calls._rename_exclusive", lambda *given: False)
    monkeypatch.setattr(os, "link", refused)
    with RootedFolder.open(tmp_path, calls=OsCalls()) as root:
        root.write("a.md", b"first", is_new=True)
        with pytest.raises(NameTaken):
            root.write("a.md", b"second", is_new=True)
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [("a.md", b"first")]
