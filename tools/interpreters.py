"""Interpreters of this machine that a release is tried with: one of each minor version that the package declares."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.specifiers import SpecifierSet

_NAME = re.compile(r"python3(\.\d+)?")
_SECONDS = 20
_ASKED = """
import ensurepip, json, sys, venv
if sys.prefix != sys.base_prefix: sys.exit("an environment, not an interpreter")
print(json.dumps([sys.implementation.name, *sys.version_info[:3], sys.version_info[3]]))
"""


@dataclass(frozen=True, order=True)
class Interpreter:
    """One that runs here and can make environments."""

    version: tuple[int, int, int]
    path: str

    @property
    def minor(self) -> str:
        return f"{self.version[0]}.{self.version[1]}"

    @property
    def name(self) -> str:
        return ".".join(map(str, self.version))


def declared(pyproject: Path) -> list[str]:
    """The minor versions that `requires-python` allows, such as "3.11"."""
    allowed = SpecifierSet(tomllib.loads(pyproject.read_text())["project"]["requires-python"])
    return [f"3.{minor}" for minor in range(100) if allowed.contains(f"3.{minor}.0")]


def find(wanted: list[str], environ: Mapping[str, str]) -> list[Interpreter]:
    """The newest of each wanted minor version that is there, oldest version first."""
    newest: dict[str, Interpreter] = {}
    for path in dict.fromkeys(_candidates(environ)):
        found = _asked(path)
        if found and found.minor in wanted and found > newest.get(found.minor, Interpreter((0, 0, 0), "")):
            newest[found.minor] = found
    return sorted(newest.values())


def _candidates(environ: Mapping[str, str]) -> Iterator[str]:
    """Programs that may be interpreters: on the PATH, of pyenv, and of uv."""
    home = Path(environ.get("HOME") or Path.home())
    pyenv = Path(environ.get("PYENV_ROOT") or home / ".pyenv")
    data = Path(environ.get("XDG_DATA_HOME") or home / ".local/share")
    uv = Path(environ.get("UV_PYTHON_INSTALL_DIR") or data / "uv/python")
    folders = [Path(one) for one in environ.get("PATH", "").split(os.pathsep) if one]
    folders += [*sorted(pyenv.glob("versions/*/bin")), *sorted(uv.glob("*/bin"))]
    for folder in folders:
        try:
            names = sorted(one.name for one in folder.iterdir() if _NAME.fullmatch(one.name))
        except OSError:
            continue
        for name in names:
            yield os.path.realpath(folder / name)


def _asked(path: str) -> Interpreter | None:
    """What a program says it is. None where it isn't CPython as released, can't make environments, or doesn't run."""
    try:
        done = subprocess.run([path, "-I", "-c", _ASKED], capture_output=True, text=True, timeout=_SECONDS, check=False)
        kind, major, minor, micro, level = json.loads(done.stdout)
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return None
    return Interpreter((major, minor, micro), path) if (kind, level) == ("cpython", "final") else None
