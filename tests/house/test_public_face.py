"""LIB-2: the public face is small, documented, and changes only on purpose."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import perdure

pytestmark = pytest.mark.house

AT_MOST = 25

# The whole public face, sorted. A name added or taken away changes this list and the CHANGELOG in the same commit.
EXPECTED: list[str] = [
    "Agent",
    "Block",
    "CHEAP_PASSES",
    "ContextView",
    "Facts",
    "Front",
    "Message",
    "PerdureError",
    "Pressure",
    "Session",
    "Settings",
    "Usage",
    "account",
    "compact",
    "create_session",
    "legal_cuts",
    "memory_session",
    "open_session",
    "prepare",
    "prepend_context",
    "pressure",
    "project",
    "recall_tool",
    "run_turn",
    "to_request",
]

PUBLIC: list[str] = list(getattr(perdure, "__all__", []))


def test_names_are_the_expected_ones() -> None:
    assert sorted(PUBLIC) == EXPECTED
    assert sorted(EXPECTED) == EXPECTED


def test_there_are_few() -> None:
    assert len(set(PUBLIC)) == len(PUBLIC) <= AT_MOST


@pytest.mark.parametrize("name", EXPECTED)
def test_each_name_is_there_and_documented(name: str) -> None:
    value = getattr(perdure, name)
    if name.startswith("__") or not (inspect.isclass(value) or callable(value)):
        return  # a constant is documented where it is defined
    docstring = (value.__doc__ or "").strip()
    assert docstring, f"perdure.{name} has no docstring"
    # A dataclass without one shows its signature instead.
    assert not docstring.startswith(f"{name}("), f"perdure.{name} has no docstring of its own"


def test_a_star_import_gives_the_public_face() -> None:
    code = "from perdure import *; import json; print(json.dumps(sorted(k for k in dir() if k != 'json')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for name in EXPECTED:
        assert f'"{name}"' in done.stdout


def test_it_is_typed() -> None:
    assert (Path(perdure.__file__).parent / "py.typed").is_file()
