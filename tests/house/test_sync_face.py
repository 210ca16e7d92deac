"""LIB-5: `perdure.sync` is the face, written from it, and its examples run without an event loop."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.house.sync_face import generated
from tests.house.test_public_face import EXPECTED, METHODS, sections

import perdure
from perdure import sync
from perdure.testing import ScriptedModel

pytestmark = pytest.mark.house

FILE = Path(sync.__file__)


def test_it_is_what_the_face_says(golden: Callable[[Path, str | bytes], None]) -> None:
    """LIB-5: no second implementation: a change of the face is written into it, or this fails."""
    golden(FILE, generated())


def test_it_has_the_same_names_and_arguments() -> None:
    assert sorted(sync.__all__) == EXPECTED
    for name, methods in METHODS.items():
        for method in methods.split():
            there, here = getattr(getattr(perdure, name), method), getattr(getattr(sync, name), method)
            wanted = {p.name: (p.kind, p.default) for p in inspect.signature(there).parameters.values()}
            assert {p.name: (p.kind, p.default) for p in inspect.signature(here).parameters.values()} == wanted
            assert not inspect.iscoroutinefunction(here)
    assert "await " not in FILE.read_text() and "async " not in FILE.read_text()


def examples() -> list[Any]:
    found = []
    for owner in (sync.Session, sync.Agent, sync.SharedStore, type(sync.recall_tool), type(sync.memory_tool)):
        told = {"": owner, **{name: value for name, value in vars(owner).items() if name[0] != "_"}}
        for name, value in told.items():
            function = getattr(value, "__func__", value)
            if (inspect.isfunction(function) or name == "") and "Example:" in (function.__doc__ or ""):
                found.append(pytest.param(sections(function.__doc__ or "")["Example:"], id=f"{owner.__name__}.{name}"))
    return found


@pytest.mark.parametrize("example", examples())
def test_each_example_runs(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {name: getattr(sync, name) for name in EXPECTED}
    exec(compile(f"def example(session, agent):\n{textwrap.indent(example, '    ')}", "example", "exec"), names)
    model = ScriptedModel(["Yes."] * 3)
    with sync.Session.in_memory() as session, sync.Agent.create(".", model=model, in_memory=True) as agent:
        session.set_prefix(model=model)
        names["example"](session, agent)
