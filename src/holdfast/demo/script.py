"""What the demonstration's stand-in for a model does: a fixed review of two source trees, call by call.

It is no model and says so. It reads this package and the Python standard library the way a coding agent would: a
prompt, a search, some reads in parallel, a command, a few words, the next topic.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import holdfast

PACKAGE = Path(holdfast.__file__).parent
LIBRARY = Path(sysconfig.get_paths()["stdlib"])
_MODULES = (
    *("asyncio/base_events.py", "asyncio/tasks.py", "json/decoder.py", "argparse.py", "subprocess.py", "tempfile.py"),
    *("zipfile.py", "tarfile.py", "email/message.py", "http/client.py", "logging/__init__.py", "pathlib.py"),
    *(
        "unittest/mock.py",
        "typing.py",
        "inspect.py",
        "dataclasses.py",
        "ast.py",
        "decimal.py",
        "shutil.py",
        "socket.py",
    ),
    *("threading.py", "traceback.py", "urllib/request.py", "xml/dom/minidom.py", "difflib.py", "doctest.py", "pdb.py"),
)

Call = tuple[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Round:
    """One answer of the stand-in: some words, and the calls it makes (none: it waits for the next prompt)."""

    says: str
    calls: tuple[Call, ...] = ()
    prompt: str | None = None  # what the person says before it


def rounds() -> Iterator[Round]:
    """The review, without end: it starts over with other searches."""
    yield from _package()
    while True:
        largest = sorted(LIBRARY.glob("*.py"), key=lambda path: (-path.stat().st_size, path.name))
        for number, module in enumerate(_MODULES):
            yield from _module(_path(module), largest[3 * number : 3 * number + 3])


def _path(module: str) -> Path:
    path = LIBRARY / module
    return path if path.exists() else path.with_suffix("") / "__init__.py"  # a package in newer versions of Python


def _package() -> Iterator[Round]:
    files = sorted(PACKAGE.rglob("*.py"), key=lambda path: -path.stat().st_size)[:12]
    yield Round(
        "I start with the layout and the laws of the view.",
        (
            ("Bash", {"command": f"ls -la {PACKAGE}"}),
            ("Grep", {"pattern": r"^(class|def|async def) ", "path": str(PACKAGE)}),
        ),
        prompt="Review this package. Keep the rule in mind: nothing that was said may be lost. Do not edit anything.",
    )
    for first in range(0, len(files), 3):
        calls = tuple(("Read", {"file_path": str(path)}) for path in files[first : first + 3])
        yield Round(f"Now {', '.join(path.name for path in files[first : first + 3])}.", calls)
    yield Round("The package is read. Its core is a fold of records into a view; every change is recorded first.")


def _module(path: Path, others: list[Path]) -> Iterator[Round]:
    name = path.stem if path.stem != "__init__" else path.parent.name
    yield Round(
        f"I look for where {name} raises, and read it.",
        (
            ("Grep", {"pattern": rf"\b{name}\.", "path": str(path.parent)}),
            ("Read", {"file_path": str(path)}),
        ),
        prompt=f"How does the standard library's {name} report errors?",
    )
    outlines = tuple(("Outline", {"file_path": str(one)}) for one in others)
    yield Round("Some outlines of its neighbours, to keep at hand.", outlines)
    yield Round(
        "I check that it compiles, and what it defines.", (("Bash", {"command": f"python -m py_compile {path}"}),)
    )
    yield Round(f"The end of {name} once more.", (("Read", {"file_path": str(path), "offset": 40, "limit": 400}),))
    yield Round(f"{name} raises its own exceptions and lets OSError through. Noted.")
