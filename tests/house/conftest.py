"""The package's sources, parsed: each file once for all tests of the house."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "perdure"


@pytest.fixture(scope="package")
def trees() -> dict[Path, ast.Module]:
    """All modules of the package, in a fixed order."""
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}
