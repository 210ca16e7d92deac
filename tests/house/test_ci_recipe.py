"""OPS-1: the recipe of CI is valid, says that it was not run, and starts only what there is."""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.specifiers import SpecifierSet
from tests.e2e.test_platforms import SUITES

from perdure.cli.app import PANELS

pytestmark = pytest.mark.house
ROOT = Path(__file__).resolve().parents[2]
RECIPE = ROOT / ".github" / "workflows" / "ci.yml"
ACTION = re.compile(r"actions/(checkout|setup-python)@[0-9a-f]{40}")


def recipe() -> dict[str, Any]:
    told = yaml.safe_load(RECIPE.read_text())
    assert isinstance(told, dict)
    return told


def lines() -> Iterator[tuple[str, list[str]]]:
    """Each command of the recipe, and the system it runs on."""
    for job in recipe()["jobs"].values():
        for step in job["steps"]:
            assert ("run" in step) is not ("uses" in step), step
            if "run" in step:
                yield job["runs-on"], shlex.split(step["run"])
            else:
                assert ACTION.fullmatch(step["uses"]), step


def project() -> dict[str, Any]:
    told: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return told


def test_it_says_first_that_it_was_not_run() -> None:
    first = RECIPE.read_text().splitlines()[:3]
    assert all(line.startswith("# ") for line in first) and first[0].startswith("# Not run where it was written")
    assert "docs/reference/platforms.md" in " ".join(first)


def test_actions_are_named_by_commits() -> None:
    """OPS-1: a tag can be moved; beside each stands the version that the commit has, the same for all of it."""
    for path in sorted(RECIPE.parent.glob("*.yml")):
        used = re.findall(r"^ +- uses: (.*)$", path.read_text(), re.M)
        pins = [re.fullmatch(r"([\w.-]+/[\w.-]+)@([0-9a-f]{40})  # v(\d+(?:\.\d+){2})(?:; .+)?", one) for one in used]
        assert used and all(pins), f"{path.name}: {[one for one, pin in zip(used, pins, strict=True) if not pin]}"
        told = {pin.groups() for pin in pins if pin}
        assert len(told) == len({name for name, _, _ in told}), f"{path.name}: one action by two commits"
        steps = [step for job in yaml.safe_load(path.read_text())["jobs"].values() for step in job["steps"]]
        checkouts = [step for step in steps if step.get("uses", "").startswith("actions/checkout@")]
        assert all(step["with"]["persist-credentials"] is False for step in checkouts), path.name


def test_it_covers_three_systems_with_versions_that_are_supported() -> None:
    jobs = recipe()["jobs"]
    assert [job["runs-on"].partition("-")[0] for job in jobs.values()] == ["ubuntu", "macos", "windows"]
    supported = SpecifierSet(project()["requires-python"])
    for job in jobs.values():
        pythons = job["strategy"]["matrix"]["python"]
        assert {"3.11", "3.13"} <= set(pythons) and all(supported.contains(version) for version in pythons)


def test_it_starts_only_what_there_is() -> None:
    """Make targets, commands of Perdure, modules and tests: each is looked for."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    commands = {name for panel in PANELS.values() for name in panel}
    extras = project()["optional-dependencies"]
    for system, words in lines():
        if words[0] == "make":
            assert system.startswith(("ubuntu", "macos")) and words[1] in targets, words
            given = words[2].removeprefix("ARGS=").split() if len(words) > 2 else []
            assert all((ROOT / path).exists() for path in given), words
        elif words[0] == "perdure":
            assert words[1] in commands, words
        elif words[:3] == ["python", "-m", "pip"]:
            assert words[3] == "install" and (ROOT / words[5]).is_file() and words[4:7:2] == ["-c", "-e"]
            assert re.fullmatch(r"\.\[(\w+)\]", words[7]) and words[7][2:-1] in extras
        elif words[:3] == ["python", "-m", "pytest"]:
            assert tuple(words[3:]) == SUITES["win32"], "what is held in a pretence here, and what runs there, are one"
        elif words[:2] == ["python", "-m"]:
            assert (ROOT / f"{words[2].replace('.', '/')}.py").is_file(), words
        else:
            assert words == [".ci/run"] and os.access(ROOT / words[0], os.X_OK), words
