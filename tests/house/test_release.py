"""OPS-1: what a release is made of agrees: versions of Python, pins, the one version, the publishing workflow."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tools.interpreters import declared

pytestmark = pytest.mark.house

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PINS = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
MAKEFILE = (ROOT / "Makefile").read_text()
WORKFLOW = ROOT / ".github" / "workflows" / "release.yml"


def pinned() -> set[str]:
    return {canonicalize_name(line.partition("==")[0]) for line in PINS}


def needed(requirements: Iterator[str] | list[str], extras: frozenset[str], seen: set[tuple[str, str]]) -> set[str]:
    """The names that requirements lead to, as far as they are installed here; other systems' markers included."""
    names: set[str] = set()
    for one in map(Requirement, requirements):
        wanted = [{"extra": extra} for extra in extras or {""}]
        if one.marker and not any(one.marker.evaluate(environment) for environment in wanted):
            continue
        name = canonicalize_name(one.name)
        key = (name, ",".join(sorted(one.extras)))
        if key in seen:
            continue
        seen.add(key)
        names.add(name)
        try:
            names |= needed(requires(name) or [], frozenset(one.extras), seen)
        except PackageNotFoundError:
            pass
    return names


def test_the_declared_versions_of_python_agree() -> None:
    """OPS-1: requires-python, the classifiers, make's check, the pins' heading and the workflow name the same ones."""
    versions = declared(ROOT / "pyproject.toml")
    said = [one.rpartition(" :: ")[2] for one in PROJECT["classifiers"] if "Python :: 3." in one]
    assert said == versions and versions[0] == "3.11"
    newest = int(versions[-1].partition(".")[2])
    assert f"(3, 11) <= v < (3, {newest + 1})" in MAKEFILE and f"3.11 to 3.{newest}" in MAKEFILE
    assert f"3.11 to 3.{newest}" in (ROOT / "constraints.txt").read_text()
    steps = yaml.safe_load(WORKFLOW.read_text())["jobs"]["build"]["steps"]
    (asked,) = [step["with"]["python-version"] for step in steps if "setup-python" in step.get("uses", "")]
    assert sorted(asked.split()) == versions


def test_the_declared_systems_agree() -> None:
    """OPS-1: the classifiers name the systems on which the page of platforms says that something works."""
    said = {one.rpartition(" :: ")[2] for one in PROJECT["classifiers"] if one.startswith("Operating System ::")}
    page = (ROOT / "docs" / "reference" / "platforms.md").read_text()
    (rows,) = re.findall(r"^\| \| (?=Linux).*(?:\n\|.*)+", page, re.M)
    systems, _, *cells = [[cell.strip() for cell in row.strip("|").split("|")[1:]] for row in rows.splitlines()]
    works = {
        name for name, *column in zip(systems, *cells, strict=True) if any(one.startswith("yes") for one in column)
    }
    assert {name.casefold() for name in works} == {name.casefold() for name in said} and len(cells) > 4


def test_all_that_is_needed_has_a_pin() -> None:
    """OPS-1: each dependency of pyproject.toml, and what it needs in turn here, stands in constraints.txt."""
    extras = PROJECT["optional-dependencies"]
    named = [*PROJECT["dependencies"], *(one for group in extras.values() for one in group)]
    direct = {canonicalize_name(Requirement(one).name) for one in named} - {"perdure"}
    indirect = needed([one for one in named if not one.startswith("perdure[")], frozenset(), set())
    assert "typing-extensions" in indirect, "what is installed here is looked at"
    assert not (direct | indirect) - pinned()


def test_pins_are_pins() -> None:
    """OPS-1: a name and one version in each line, in order, once; no option, address or file."""
    assert not [line for line in PINS if not re.fullmatch(r"[A-Za-z0-9][\w.-]*==[0-9][\w.]*", line)]
    assert sorted(PINS, key=str.lower) == PINS and len(pinned()) == len(PINS)


def test_no_page_installs_by_a_name_that_no_index_has() -> None:
    """OPS-1: nothing was published: pages name a checkout or a file; an index would give what somebody else made."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*")]
    pages = [one for one in pages if one.is_file() and not {"adr", "spec"} & set(one.relative_to(ROOT).parts)]
    tools, verbs = r"\b(?:pip|pipx|uv|uvx)\b", r"\b(?:install|--from|add|inject)\b"
    named = re.compile(rf"""{tools}[^`\n]*{verbs}[^`\n]*?[ '"]perdure\b(?![-/])""")
    found = {one.relative_to(ROOT).as_posix(): named.findall(one.read_text()) for one in pages}
    assert named.search("pip install -q 'perdure[all]'") and not named.search("uvx --from dist/*.whl perdure --version")
    assert {name: lines for name, lines in found.items() if lines and name != "CHANGELOG.md"} == {}


def test_the_version_stands_in_one_place() -> None:
    """OPS-1: in the package; the build reads it there."""
    hatch = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]
    assert PROJECT["dynamic"] == ["version"] and "version" not in PROJECT
    text = (ROOT / hatch["version"]["path"]).read_text()
    assert len(re.findall(r'^__version__ = "\d+\.\d+\.\d+(?:(?:a|b|rc|\.dev)\d+)?"$', text, re.M)) == 1


def test_the_workflow_publishes_what_was_tried_and_has_no_token() -> None:
    """OPS-1: the check comes first, rights belong to single jobs; and it says it never ran."""
    read = yaml.safe_load(WORKFLOW.read_text())
    assert "NOT RUN HERE" in WORKFLOW.read_text() and read["permissions"] == {}
    jobs = read["jobs"]
    commands = [step["run"] for step in jobs["build"]["steps"] if "run" in step]
    assert any(line.startswith("make release-check") and "--release" in line for line in commands)
    for name, job in jobs.items():
        assert name == "build" or job["needs"] in jobs
        assert not any("password" in step.get("with", {}) for step in job["steps"] if "pypi" in step.get("uses", ""))
    assert jobs["publish"]["permissions"] == {"id-token": "write"} and jobs["publish"]["environment"] == "release"
    assert jobs["publish"]["needs"] == "attest" and jobs["attest"]["needs"] == "build"
    assert all(f"\n{target}:" in MAKEFILE for target in ("release-check", "dist"))


def test_no_job_with_rights_runs_what_it_publishes() -> None:
    """OPS-1: the project and its dependencies run with the right to read; who signs takes the artifact alone."""
    jobs = yaml.safe_load(WORKFLOW.read_text())["jobs"]
    assert jobs["build"]["permissions"] == {"contents": "read"} and "environment" not in jobs["build"]
    plain = {"mkdir", "cp", "gh"}
    for name, job in jobs.items():
        if set(job["permissions"].values()) <= {"read"}:
            continue
        actions = {step["uses"].partition("@")[0] for step in job["steps"] if "uses" in step}
        ran = [part.split()[0] for step in job["steps"] for part in step.get("run", "").split("&&") if part]
        assert set(ran) <= plain, f"{name} runs {ran}"
        if "id-token" in job["permissions"]:  # it may sign, so nothing is checked out or built beside it
            assert not actions & {"actions/checkout", "actions/setup-python", "docker/build-push-action"}, name
