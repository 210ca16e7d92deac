"""Building the wheel and the sdist of a commit, and what may be in them."""

from __future__ import annotations

import os
import re
import subprocess
import tarfile
import time
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from perdure.memory.trust.secrets import find_secrets

PACKAGE = "src/perdure"
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.I)
_SECRET_LENGTH = 12  # a shorter value may be a word that stands anywhere
_DIST_INFO = ("METADATA", "WHEEL", "entry_points.txt", "licenses/LICENSE", "RECORD")
_NEEDED = ("py.typed", "prompts/")


@dataclass(frozen=True)
class Built:
    """The two files of a release."""

    wheel: Path
    sdist: Path


def git(root: Path, *words: str) -> str:
    """What git says. Raises `subprocess.CalledProcessError`."""
    return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True).stdout


def export(root: Path, commit: str, into: Path, *, times_of_now: bool = False) -> Path:
    """The files of a commit in a folder; with the times of the commit, or of now."""
    into.mkdir(parents=True)
    packed = subprocess.run(["git", "archive", commit], cwd=root, capture_output=True, check=True).stdout
    archive = into.with_suffix(".tar")
    archive.write_bytes(packed)
    with tarfile.open(archive) as files:
        files.extractall(into, filter="data")
    archive.unlink()
    if times_of_now:
        for path in into.rglob("*"):
            os.utime(path, (time.time(), time.time()))
    return into


def unpack(sdist: Path, into: Path) -> Path:
    """The one folder of an sdist."""
    with tarfile.open(sdist) as files:
        files.extractall(into, filter="data")
    (folder,) = into.iterdir()
    return folder


def build(python: Path, source: Path, into: Path, *what: str, environ: Mapping[str, str], umask: int = 0o022) -> None:
    """Run `python -m build` with the backend of the tools' environment. Raises `subprocess.CalledProcessError`."""
    command = [str(python), "-m", "build", "--no-isolation", *what, "--outdir", str(into), str(source)]
    subprocess.run(command, env={**os.environ, **environ}, umask=umask, capture_output=True, text=True, check=True)


def built_in(folder: Path) -> Built:
    """The wheel and the sdist of a folder, where there is one of each."""
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return Built(wheel, sdist)


def differing(first: Path, *others: Path) -> list[str]:
    """The files of other builds that aren't byte for byte those of the first one."""
    return [
        f"{path.name} of {folder.name}"
        for folder in others
        for path in sorted(folder.iterdir())
        if not (first / path.name).is_file() or path.read_bytes() != (first / path.name).read_bytes()
    ]


def texts_of_this_machine(folders: Iterable[Path], environ: Mapping[str, str]) -> dict[bytes, str]:
    """What a release must not hold: names of folders here, and values of variables that look like secrets.

    Folders right below the root are left out: others have those too, and texts may speak of them.
    """
    found = {os.fsencode(folder): "a folder of this machine" for folder in folders if len(folder.parts) > 2}
    for name, value in environ.items():
        if _SECRET_NAME.search(name) and len(value) >= _SECRET_LENGTH and not os.path.exists(value):
            found[value.encode()] = f"the value of {name}"
    return found


def wheel_problems(wheel: Path, tracked: Iterable[str], forbidden: Mapping[bytes, str]) -> list[str]:
    """What is wrong with a wheel's contents: a file too many or too few, or a text that has no place in it."""
    with zipfile.ZipFile(wheel) as files:
        held = {name: files.read(name) for name in files.namelist()}
    info = f"{'-'.join(wheel.name.split('-')[:2])}.dist-info"
    wanted = {name.removeprefix("src/") for name in tracked if name.startswith(f"{PACKAGE}/")}
    wanted |= {f"{info}/{name}" for name in _DIST_INFO}
    package = PurePosixPath(PACKAGE).name
    needed = (f"{package}/{name}" for name in _NEEDED)
    lacking = wanted - held.keys() | {name for name in needed if not any(one.startswith(name) for one in held)}
    problems = [f"{wheel.name} lacks {name}" for name in sorted(lacking)]
    problems += [f"{wheel.name} holds {name}, which isn't the package's" for name in sorted(held.keys() - wanted)]
    for name, data in sorted(held.items()):
        problems += _texts(f"{wheel.name}: {name}", data, forbidden)
        secrets = find_secrets(data.decode("utf-8", "replace"))
        problems += [f"{wheel.name}: {name} holds what looks like a secret ({one.family})" for one in secrets]
    return problems


def sdist_problems(sdist: Path, tracked: Iterable[str], forbidden: Mapping[bytes, str]) -> list[str]:
    """What is wrong with an sdist, which is the repository. Secrets aren't looked for: tests hold made-up ones."""
    root = f"{sdist.name.removesuffix('.tar.gz')}/"
    with tarfile.open(sdist) as files:
        held = {
            one.name.removeprefix(root): files.extractfile(one).read()  # type: ignore[union-attr]
            for one in files.getmembers()
            if one.isfile()
        }
    wanted = {*tracked, "PKG-INFO"}
    problems = [f"{sdist.name} lacks {name}" for name in sorted(wanted - held.keys())]
    problems += [f"{sdist.name} holds {name}, which isn't in the repository" for name in sorted(held.keys() - wanted)]
    for name, data in sorted(held.items()):
        problems += _texts(f"{sdist.name}: {name}", data, forbidden)
    return problems


def _texts(where: str, data: bytes, forbidden: Mapping[bytes, str]) -> Iterator[str]:
    for text, what in forbidden.items():
        if text in data:
            yield f"{where} holds {what}"
