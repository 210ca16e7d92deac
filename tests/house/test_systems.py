"""OPS-1: what one system alone has is named in one place, and elsewhere nobody asks which system it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.other_systems import MODULES_OF_UNIX, OF_UNIX, SIGNALS_OF_UNIX

pytestmark = pytest.mark.house
SOURCES = Path(__file__).resolve().parents[2] / "src" / "perdure"
PLACES = {
    "adapters/machine/system.py",
    "adapters/machine/folder_calls.py",  # openat2 and exclusive renames
    "adapters/machine/confine.py",  # a program of its own, started without the package
    "testing/postgres.py",  # on Linux only
}
# Asked for by `hasattr`: where nothing forks, nobody has to be told. And ctypes is everywhere, if not the C library.
ELSEWHERE_TOO = {"register_at_fork", "ctypes"}
NAMED = re.compile(
    rf"\bos\.(?:{'|'.join(sorted({*OF_UNIX} - ELSEWHERE_TOO))})\b"
    rf"|\bsignal\.(?:{'|'.join(SIGNALS_OF_UNIX)})\b"
    rf"|^\s*(?:import|from) (?:{'|'.join(sorted({*MODULES_OF_UNIX, 'msvcrt', 'winreg'} - ELSEWHERE_TOO))})\b",
    re.MULTILINE,
)


def test_what_one_system_has_is_named_in_one_place() -> None:
    elsewhere = {
        name: found
        for path in sorted(SOURCES.rglob("*.py"))
        if (name := path.relative_to(SOURCES).as_posix()) not in PLACES and (found := NAMED.findall(path.read_text()))
    }
    assert not elsewhere, f"adapters/machine/system.py has a function for it, or should: {elsewhere}"
    assert NAMED.findall((SOURCES / "adapters/machine/system.py").read_text()), (
        "a test that finds nothing anywhere proves nothing"
    )
