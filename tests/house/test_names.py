"""DESIGN.md, names: a class name is unique in the package, and the glossary names code that exists."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest

pytestmark = pytest.mark.house

ROOT = Path(__file__).parents[2]
GLOSSARY = ROOT / "docs" / "reference" / "glossary.md"


def _classes(trees: Mapping[Path, ast.Module]) -> dict[str, list[str]]:
    """Where each class of the package is defined, also those inside functions and other classes."""
    found = defaultdict(list)
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(f"{path.relative_to(ROOT)}:{node.lineno}")
    return found


def _names(trees: Mapping[Path, ast.Module]) -> set[str]:
    """Everything that a module of the package defines at its top."""
    names = set()
    for tree in trees.values():
        for node in tree.body:
            match node:
                case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    names.add(name)
                case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                    names.add(name)
    return names


def _rows() -> list[tuple[str, str, list[str]]]:
    """(group, word, code names) of the glossary."""
    rows, group = [], ""
    for line in GLOSSARY.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            group = line.removeprefix("## ")
        elif line.startswith("|") and not line.startswith(("|---", "| word")):
            word, _, code = (cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1])
            rows.append((group, word, re.findall(r"`([^`]+)`", code)))
    return rows


def test_class_names_are_unique_in_the_package(trees: Mapping[Path, ast.Module]) -> None:
    repeated = [f"{name}: {', '.join(places)}" for name, places in _classes(trees).items() if len(places) > 1]
    assert not repeated, (
        "a class name stands for one thing in the whole package; give the newer one a name that says what it is "
        "(SearchHit, RewindPlan), not its module's name and the old one:\n" + "\n".join(sorted(repeated))
    )


def test_the_glossary_names_code_that_exists(trees: Mapping[Path, ast.Module]) -> None:
    rows, names = _rows(), _names(trees)
    assert len(rows) > 50
    missing = [f"{word}: `{name}`" for _, word, code in rows for name in code if name not in names]
    assert not missing, "the glossary names code that is no more; say what it is called now:\n" + "\n".join(missing)


def test_the_glossary_says_each_word_once_and_in_order() -> None:
    rows = _rows()
    words = [word for _, word, _ in rows]
    assert len(set(words)) == len(words), sorted({word for word in words if words.count(word) > 1})
    for group in dict.fromkeys(group for group, _, _ in rows):
        listed = [word for of, word, _ in rows if of == group]
        assert listed == sorted(listed, key=str.casefold), f"{group}: not in alphabetical order"
