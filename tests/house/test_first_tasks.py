"""The first tasks are about files that there are, and each says what to write first and what done looks like."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.house

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "contributing" / "first-tasks.md"
TASKS = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.M)[1:]
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
PLACE = re.compile(r"`((?:src|tests|bench|docs|\.ci)/[\w./-]+?)/?`")
TARGET = re.compile(r"\bmake ((?:[a-z-]+ ?)+)")


@pytest.mark.parametrize("task", TASKS, ids=[task.partition("\n")[0] for task in TASKS])
def test_a_task_can_be_begun(task: str) -> None:
    told = dict(re.findall(r"^- (Files|Test first|Done): (.+)$", task, re.M))
    assert set(told) == {"Files", "Test first", "Done"}
    places = PLACE.findall(task)
    assert places and not [place for place in places if not (ROOT / place).exists()]


def test_there_are_some() -> None:
    assert 8 <= len(TASKS) <= 12


def test_contributing_names_what_there_is() -> None:
    """Files, folders, commands of make: who follows the page finds them."""
    text, targets = (
        CONTRIBUTING.read_text(encoding="utf-8"),
        set(re.findall(r"^([a-z-]+):", MAKEFILE.read_text(), re.M)),
    )
    assert not [place for place in PLACE.findall(text) if not (ROOT / place).exists()]
    named = {word for found in re.findall(r"`make ([a-z -]+)", text) for word in found.split()}
    assert {"test", "check", "golden"} <= named <= targets


MAKEFILE = ROOT / "Makefile"
