"""Nothing in the repository names a path of the machine it was written on, or where packages were fetched from."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.house

ROOT = Path(__file__).resolve().parents[2]

# Put together from parts, so that this file does not hold what it looks for.
HOME_FOLDERS = ("work", "root")
INDEX_HOSTS = (
    "pypi" + ".org",
    "python" + "hosted.org",
    "test." + "pypi",
    "/simple" + "/",
    "artifact" + "ory",
    "dev" + "pi",
)
INDEX_OPTIONS = ("index" + "-url", "find" + "-links", "trusted" + "-host")

MACHINE_PATH = re.compile(r"(?<![\w.~*-])/(?:" + "|".join(HOME_FOLDERS) + r")/")
PACKAGE_INDEX = re.compile("|".join(map(re.escape, INDEX_HOSTS + INDEX_OPTIONS)))

# Recordings keep the bytes they came with: a file listed here holds such text as data. Path -> reason.
EXCEPTIONS: dict[str, str] = {}

SKIPPED_FOLDERS = frozenset({".git", ".venv", "build", "dist", "__pycache__"})


def repository_files() -> Iterator[Path]:
    """Tracked files and those not ignored; without git (an unpacked sdist), all files outside build folders."""
    try:
        listing = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        names = [name for name in listing.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        names = [path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*")]
    for name in names:
        path = ROOT / name
        if path.is_file() and not SKIPPED_FOLDERS & set(path.relative_to(ROOT).parts):
            yield path


def is_binary(raw: bytes) -> bool:
    return b"\0" in raw[:8192]


def findings() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for path in repository_files():
        raw = path.read_bytes()
        if is_binary(raw):
            continue
        name = path.relative_to(ROOT).as_posix()
        for number, line in enumerate(raw.decode(errors="replace").splitlines(), 1):
            for pattern in (MACHINE_PATH, PACKAGE_INDEX):
                if hit := pattern.search(line):
                    found.setdefault(name, []).append(f"{name}:{number} holds {hit.group()!r}")
    return found


def test_no_file_names_this_machine() -> None:
    lines = [line for name, found in findings().items() if name not in EXCEPTIONS for line in found[:5]]
    assert not lines, "\n".join(lines)


def test_exceptions_are_needed() -> None:
    stale = sorted(set(EXCEPTIONS) - set(findings()))
    assert not stale, f"hold nothing of the kind any more: {stale}"


@pytest.mark.parametrize("folder", HOME_FOLDERS)
def test_the_pattern_finds_what_it_should(folder: str) -> None:
    assert MACHINE_PATH.search(f'open("/{folder}/x")')
    assert not MACHINE_PATH.search(f"docs/{folder}/x ~/{folder}/y")
