"""Random work on a folder, and pictures of it: what rewinds are tried with (CKP-2, CKP-3)."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

Picture = Mapping[str, tuple[str, int, bytes]]
"""By name: kind, permission bits (of files), bytes or the target of a link."""

_NAMES = (
    "a.py",
    "b.txt",
    "Makefile",
    "run.sh",
    "data.bin",
    "Größe.md",
    "with space.txt",
    "x",
    "X",
    "caf\udce9.txt",
    "two\nlines",
    "-rf",
    "\u202etxt",
)
_FOLDERS = ("src", "src/deep", "lib", "docs", "x")


def picture(root: Path, *, without: tuple[str, ...] = ()) -> Picture:
    """Everything below a folder, links as links; folders named in `without` are left out."""
    found: dict[str, tuple[str, int, bytes]] = {}
    for at, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name not in without]
        for name in (*folders, *files):
            path = Path(at, name)
            about = path.lstat()
            key = path.relative_to(root).as_posix()
            if stat.S_ISLNK(about.st_mode):
                found[key] = ("link", 0, os.fsencode(os.readlink(path)))
            elif stat.S_ISDIR(about.st_mode):
                found[key] = ("folder", 0, b"")
            else:
                found[key] = ("file", stat.S_IMODE(about.st_mode), path.read_bytes())
    return found


def differing(one: Picture, other: Picture) -> set[str]:
    """The names at which two pictures differ."""
    return {name for name in {*one, *other} if one.get(name) != other.get(name)}


@dataclass(slots=True)
class Worker:
    """Somebody who works on a folder: an agent's commands, or the user beside it. `sign` is in all they write."""

    root: Path
    random: Random
    sign: str
    big_bytes: int = 200_000
    log: list[str] = field(default_factory=list)

    def act(self) -> None:
        """One thing at random; something that can't be done where it is tried isn't done."""
        acts: tuple[Callable[[], str], ...] = (
            self.write, self.write, self.write, self.append, self.binary, self.big, self.remove, self.rename,
            self.rename_folder, self.make_folder, self.remove_folder, self.link, self.chmod, self.change_case,
        )  # fmt: skip
        act = self.random.choice(acts)
        try:
            self.log.append(f"{self.sign} {act.__name__} {act()}")
        except OSError:
            pass

    def path(self) -> Path:
        """A name that a file may get."""
        name = self.random.choice(_NAMES)
        return self.root / (name if self.random.random() < 0.4 else f"{self.random.choice(_FOLDERS)}/{name}")

    def some(self) -> Path:
        """A file or link that is there."""
        found = sorted(p for p in self.root.rglob("*") if p.is_symlink() or p.is_file())
        if not found:
            raise FileNotFoundError
        return self.random.choice(found)

    def text(self) -> bytes:
        lines = [f"{self.sign} {self.random.randrange(1_000)}" for _ in range(self.random.randrange(6))]
        return "\n".join(lines).encode()

    def write(self) -> str:
        return self._put(self.path(), self.text())

    def _put(self, path: Path, data: bytes) -> str:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink():
            path.unlink()
        path.write_bytes(data)
        return path.relative_to(self.root).as_posix()

    def append(self) -> str:
        path = self.some()
        return "" if path.is_symlink() else self._put(path, path.read_bytes() + b"\n" + self.text())

    def binary(self) -> str:
        return self._put(self.path(), self.sign.encode() + self.random.randbytes(300))

    def big(self) -> str:
        return self._put(self.path(), self.sign.encode() + self.random.randbytes(self.big_bytes))

    def remove(self) -> str:
        path = self.some()
        path.unlink()
        return path.name

    def rename(self) -> str:
        path, new = self.some(), self.path()
        new.parent.mkdir(parents=True, exist_ok=True)
        path.rename(new)
        return f"{path.name} {new.name}"

    def rename_folder(self) -> str:
        (self.root / self.random.choice(_FOLDERS)).rename(self.root / f"moved{self.random.randrange(3)}")
        return ""

    def make_folder(self) -> str:
        (self.root / self.random.choice(_FOLDERS)).mkdir(parents=True)
        return ""

    def remove_folder(self) -> str:
        folder = self.root / self.random.choice(_FOLDERS)
        if folder.is_symlink():
            raise NotADirectoryError
        shutil.rmtree(folder)
        return folder.name

    def link(self) -> str:
        path = self.path()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(self.random.choice(("a.py", "../b.txt", "src", "/etc/hostname", f"gone-{self.sign}")))
        return path.name

    def chmod(self) -> str:
        path = self.some()
        if path.is_symlink():
            raise FileNotFoundError
        path.chmod(self.random.choice((0o755, 0o644, 0o600)))
        return path.name

    def change_case(self) -> str:
        path = self.some()
        path.rename(path.with_name(path.name.swapcase()))
        return path.name
