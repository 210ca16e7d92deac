"""LIB-2, LIB-5: the public face is small, documented, and changes only on purpose; its examples run."""

from __future__ import annotations

import inspect
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

import perdure
from perdure.testing import ScriptedModel

pytestmark = pytest.mark.house

AT_MOST = 20

# The whole public face, sorted. A name added or taken away changes this list and the CHANGELOG in the same commit.
EXPECTED: list[str] = [
    "Agent",
    "CompactionResult",
    "ContextView",
    "Message",
    "PerdureError",
    "Permissions",
    "PreparedRequest",
    "Reply",
    "Session",
    "Settings",
    "SharedStore",
    "Tool",
    "Usage",
    "connect",
    "memory_tool",
    "recall_tool",
]

SECTIONS = ("Args:", "Attributes:", "Returns:", "Raises:", "Example:")


def owner_of(name: str) -> Any:
    """What a public name's words stand at: a class, a function, or the class of an instance."""
    value = getattr(perdure, name)
    return value if inspect.isclass(value) or inspect.isfunction(value) else type(value)


def functions() -> Iterator[tuple[str, Any]]:
    """The public functions and methods: those that a class of the face defines itself."""
    for name in EXPECTED:
        owner = owner_of(name)
        if inspect.isfunction(owner):
            yield name, owner
        elif name in ("Session", "Agent", "SharedStore", "Tool", "recall_tool", "memory_tool"):
            for attribute, value in vars(owner).items():
                function = getattr(value, "__func__", value)
                is_told = inspect.isfunction(function) and function.__module__.startswith("perdure")
                if is_told and not attribute.startswith("_"):
                    yield f"{name}.{attribute}", function


FUNCTIONS = dict(functions())
METHODS = {
    "Session": "append close compact context_usage create follow in_memory messages named open open_calls pin prepare "
    "rebase recall refused rewind run search search_sessions set_prefix shown undo_compaction undo_rewind unpin",
    "Agent": "allow close create interrupt rewind run undo_rewind",
    "SharedStore": "at close delete delete_tenant home sessions tenants",
}
# What is told in a sentence: a step on the way, which the face doesn't ask for.
INNER = {"Tool.read"}


def sections(text: str) -> dict[str, str]:
    """The parts of a docstring by their headings."""
    found: dict[str, list[str]] = {"": []}
    heading = ""
    for line in inspect.cleandoc(text).splitlines():
        if line in SECTIONS:
            heading = line
            found[heading] = []
        else:
            found[heading].append(line)
    return {name: textwrap.dedent("\n".join(lines)).strip() for name, lines in found.items()}


def test_names_are_the_expected_ones() -> None:
    assert sorted(perdure.__all__) == EXPECTED == sorted(EXPECTED)
    assert len(EXPECTED) <= AT_MOST


def test_methods_are_the_expected_ones() -> None:
    """LIB-5: one way for each thing; a method added or taken away changes the list here."""
    for name, methods in METHODS.items():
        assert sorted(key.partition(".")[2] for key in FUNCTIONS if key.startswith(f"{name}.")) == methods.split()


@pytest.mark.parametrize("name", EXPECTED)
def test_each_name_is_documented_with_an_example(name: str) -> None:
    told = sections(owner_of(name).__doc__ or "")
    assert told[""] and not told[""].startswith(f"{name}("), f"perdure.{name} has no docstring of its own"
    assert told.get("Example:"), f"perdure.{name} has no example"


@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - INNER))
def test_each_method_tells_its_arguments_and_what_it_gives(name: str) -> None:
    """LIB-5: Args for each parameter, Returns for what it gives, and an example."""
    told, signature = sections(FUNCTIONS[name].__doc__ or ""), inspect.signature(FUNCTIONS[name])
    assert told[""] and told.get("Example:"), f"{name} has no words, or no example"
    wanted = [p for p in signature.parameters.values() if p.name not in ("self", "cls")]
    for parameter in wanted:
        stars = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}.get(parameter.kind.name, "")
        assert f"{stars}{parameter.name}: " in told.get("Args:", ""), f"{name} doesn't say what {parameter.name} is"
    if signature.return_annotation not in ("None", inspect.Signature.empty):
        assert told.get("Returns:"), f"{name} doesn't say what it gives"


def examples() -> list[Any]:
    owners = {name: owner_of(name) for name in EXPECTED}
    told = {**owners, **{name: value for name, value in FUNCTIONS.items() if name not in INNER}}
    return [pytest.param(sections(value.__doc__ or "").get("Example:", ""), id=name) for name, value in told.items()]


@pytest.mark.parametrize("example", examples())
def test_each_example_runs(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LIB-2: `session` and `agent` are there; everything else an example says itself."""
    monkeypatch.chdir(tmp_path)
    code = "\n".join(line.removeprefix(">>> ") for line in example.splitlines() if line not in ("True", "False"))
    names: dict[str, Any] = {name: getattr(perdure, name) for name in EXPECTED}
    exec(compile(f"async def example(session, agent):\n{textwrap.indent(code, '    ')}", "example", "exec"), names)

    async def body() -> None:
        model = ScriptedModel(["Yes."] * 3)
        async with (
            perdure.Session.in_memory() as session,
            perdure.Agent.create(".", model=model, in_memory=True) as agent,
        ):
            session.held_with(model)
            await names["example"](session, agent)

    anyio.run(body)


def test_a_star_import_gives_the_public_face() -> None:
    code = "from perdure import *; import json; print(json.dumps(sorted(k for k in dir() if k != 'json')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for name in EXPECTED:
        assert f'"{name}"' in done.stdout


def test_it_is_typed() -> None:
    """LIB-5: what a type checker reads of the face is what a program gets."""
    root = Path(perdure.__file__).parent
    assert (root / "py.typed").is_file() and not (root / "__init__.pyi").exists()
    told = (root / "__init__.py").read_text()
    for name in EXPECTED:
        module = perdure._FACE[name]
        assert f"    from perdure.{module} import {name} as {name}\n" in told
