"""The versions of frameworks that the adapters need are written down, and tested with (LIB-4)."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parents[2]
ADAPTERS = {path.stem for path in (ROOT / "src/perdure/integrations").glob("*.py")} - {"__init__"}


def _rows() -> dict[str, tuple[str, str, str]]:
    """Of each adapter: its package, the first version that it works with, and those that it is tested with."""
    page = (ROOT / "docs/use/integrations.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z-]+)` \| `([a-z_]+)` \| ([\d.]+) \| ([\d., ]+) \|$", page, re.MULTILINE)
    return {adapter: (package, first, tested.strip()) for package, adapter, first, tested in rows}


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.strip().split("."))


def test_each_adapter_says_from_which_version_on_it_works() -> None:
    """Finding L4: the page has each adapter, and what it says is what the tests install."""
    rows = _rows()
    assert rows.keys() == ADAPTERS
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = dict(one.split(";")[0].strip().split(">=") for one in project["optional-dependencies"]["test"])
    pins = dict(re.findall(r"^([a-z-]+)==([\d.]+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    clients = (ROOT / "bench/clients.py").read_text(encoding="utf-8")
    for package, first, tested in rows.values():
        assert all(_number(one) >= _number(first) for one in tested.split(","))
        if package in wanted:
            assert wanted[package] == first and pins[package] in tested
        else:
            assert re.search(rf'"{package}(\[proxy\])?", "{re.escape(tested)}"', clients), package
