"""Files up to 400 lines, functions up to 50, five positional parameters."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.house

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "holdfast"

FILE_LINES = 400
FUNCTION_LINES = 50
POSITIONAL_PARAMETERS = 5

# What may stand above a ceiling, and why. The key is what a failure prints: "path", "path::function lines" or
# "path::function parameters". An entry that is no longer needed fails the test, so the list only shrinks.
EXCEPTIONS: dict[str, str] = {}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(tree: ast.AST, prefix: str = "", owner: ast.AST | None = None) -> Iterator[tuple[str, Function, bool]]:
    """Every function with its qualified name, and whether its first parameter is the instance or class."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Function):
            is_static = any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in node.decorator_list)
            yield f"{prefix}{node.name}", node, isinstance(owner, ast.ClassDef) and not is_static
            yield from functions(node, f"{prefix}{node.name}.", node)
        elif isinstance(node, ast.ClassDef):
            yield from functions(node, f"{prefix}{node.name}.", node)
        else:
            yield from functions(node, prefix, owner)


def measures() -> Iterator[tuple[str, int, int]]:
    """(key, measured, ceiling) of everything that has a ceiling."""
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        text = path.read_text()
        yield name, len(text.splitlines()), FILE_LINES
        for qualified, node, is_bound in functions(ast.parse(text)):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            positional = len(node.args.posonlyargs) + len(node.args.args) - is_bound
            yield f"{name}::{qualified} lines", lines, FUNCTION_LINES
            yield f"{name}::{qualified} parameters", positional, POSITIONAL_PARAMETERS


def test_nothing_stands_above_its_ceiling() -> None:
    above = [
        f"{key}: {measured}, ceiling {ceiling}"
        for key, measured, ceiling in measures()
        if measured > ceiling and key not in EXCEPTIONS
    ]
    assert not above, "\n".join(above)


def test_every_exception_is_needed_and_has_a_reason() -> None:
    above = {key for key, measured, ceiling in measures() if measured > ceiling}
    stale = sorted(set(EXCEPTIONS) - above)
    assert not stale, f"no longer above a ceiling, take them off the list: {stale}"
    assert all(len(reason.split()) >= 4 for reason in EXCEPTIONS.values()), "every exception says why"
