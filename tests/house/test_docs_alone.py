"""What a person copies out of a page runs without the blocks before it (finding C5)."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.house

USE = Path(__file__).resolve().parents[2] / "docs" / "use"
PAGES = ("integrations.md",)  # whose blocks are programs of their own; on others a block goes on with the one before
BLOCK = re.compile(r"^```python\n(.*?)^```", re.M | re.S)


def undefined(source: str) -> set[str]:
    """The names that a block uses and nothing in it gives a value."""
    bound, used = set(dir(builtins)), set[str]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        bound |= set(_names(node))
    return used - bound


def _names(node: ast.AST) -> Iterator[str]:
    """The names that a statement gives a value."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from ((one.asname or one.name).partition(".")[0] for one in node.names)


@pytest.mark.parametrize("page", PAGES)
def test_a_block_that_is_shown_stands_alone(page: str) -> None:
    """C5: `asyncio`, `MODEL` and `read` were undefined in blocks that a reader copies alone."""
    shown = re.sub(r"<!--.*?-->", "", (USE / page).read_text("utf-8"), flags=re.S)
    found = BLOCK.findall(shown)
    assert len(found) > 4
    assert {source.splitlines()[0]: undefined(source) for source in found if undefined(source)} == {}
