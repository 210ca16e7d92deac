"""Real instruction files of many projects load, without exception and within bounds (INS-1 to INS-5)."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from tests.recordings.conftest import ABSENT, DATA

from perdure.adapters.memory.instructions import DiskReader
from perdure.context.instructions import ShownInstructions, block_text, nested_message, start_message
from perdure.context.view import ContextView, item_of, project
from perdure.memory.instructions import InstructionPlaces, LoadedInstructions, fit_files, load_at_start, load_for_paths
from perdure.transcript.messages import Message, MessageId
from perdure.transcript.tokens import base_tokens

pytestmark = pytest.mark.e2e

TREES = sorted(path for path in (DATA / "claude_md").glob("*") if path.is_dir()) if DATA.is_dir() else []
PARAMS = [pytest.param(path, id=path.name) for path in TREES] or [
    pytest.param(None, marks=pytest.mark.skip(reason=ABSENT), id="absent")
]
NAMES = ("CLAUDE.md", "AGENTS.md", "CLAUDE.local.md")


def places(tree: Path) -> InstructionPlaces:
    real = str(tree.resolve())
    return InstructionPlaces(cwd=real, root=real, home="/nowhere", agents=True)


def viewed(*messages: Message | None) -> ContextView:
    given = [msgspec.structs.replace(m, id=MessageId(f"m{n}")) for n, m in enumerate(messages) if m is not None]
    return project(given)


@pytest.mark.parametrize("tree", PARAMS)
def test_a_real_tree_loads(tree: Path) -> None:
    """INS-1 to INS-5: every file that is there loads at the start, by a touch, or it is said why not."""
    reader, where = DiskReader(), places(tree)
    files = [path for path in sorted(tree.resolve().rglob("*")) if path.is_file()]
    start = load_at_start(where, reader)
    nested = load_for_paths(where, reader, [str(path) for path in files])
    met = {one.path for found in (start, nested) for one in (*found.files, *found.skipped)}
    missed = [p for p in files if p.name in NAMES and str(p) not in met and p.read_text().strip()]
    missed = [p for p in missed if str(p.resolve()) not in {reader.read(path).real for path in met}]
    assert not missed
    assert all(one.code in ("same", "missing", "not_approved", "waits", "cycle", "depth") for one in start.skipped)
    told_again(start, nested)


def told_again(start: LoadedInstructions, nested: LoadedInstructions) -> None:
    """What is sent of them reads back as what was sent, within the budget."""
    for files in (start.files, nested.files):
        fitted = fit_files(files, 40_000)
        assert sum(base_tokens(block_text(one)) for one in fitted) <= 40_000 + 60 * len(files)
        view = viewed(start_message(fitted))
        told = ShownInstructions().follow(view).files
        assert {path: known.revision for path, known in told.items()} == {f.path: f.revision for f in files}
        assert all(told[one.file.path].shown == one.file.text for one in fitted if not one.is_cut)
        assert nested_message(()) is None


@pytest.mark.skipif(not TREES, reason=ABSENT)
def test_all_of_them_in_one_project() -> None:
    """INS-5: 50 projects in one tree stay within the budget, and are read in a moment."""
    tree = (DATA / "claude_md").resolve()
    where = replace(places(tree), agents=True)
    paths = [str(path) for path in tree.rglob("*") if path.is_file()]
    began = time.process_time()
    found = load_for_paths(where, DiskReader(), paths)
    assert time.process_time() - began < 20
    assert len(found.files) > 60
    fitted = fit_files(found.files, 40_000)
    assert sum(base_tokens(one.text) for one in fitted) <= 40_000 and any(one.is_cut for one in fitted)
    item = item_of(viewed(start_message(fitted)).items[0].message)
    assert item.size.base > 30_000
