"""MEM-6, MEM-11: rules and order over real recordings and directories: they never raise, and save little."""

from __future__ import annotations

import shutil
from pathlib import Path

import anyio
import pytest
from tests.recordings.conftest import ABSENT, DATA, MADE

from perdure.adapters.memory.directory import file_memories
from perdure.adapters.sinks import NullSink
from perdure.cli.compact import said_before
from perdure.context.provenance import origin_of
from perdure.context.view import project
from perdure.engine.consolidate import ConsolidationResult, Consolidator
from perdure.engine.guarded_memory import GuardedMemory
from perdure.logs.detect import read_recordings
from perdure.memory.changes import Stamp
from perdure.memory.index_file import IndexLimits
from perdure.memory.remarks import remarks, typed_text
from perdure.text.cleaning import sentences
from perdure.transcript.messages import spoken

FILES = sorted(path for folder in ("claude_code", "codex") for path in (DATA / folder).rglob("*.json*"))
FOLDERS = sorted(path for path in (DATA / "memdirs").glob("*/head") if path.is_dir())
pytestmark = pytest.mark.unit


@pytest.mark.parametrize("path", [*(pytest.param(path, id=path.name[:12]) for path in FILES), *MADE])
def test_rules_save_little_of_what_is_said_for_the_moment(path: Path | str, made_data: Path) -> None:
    """Whoever works on a task mostly says things for the moment: at most one message in ten holds a remark."""
    path = made_data / path  # a real one is a whole path, and stays as it is
    for recording in read_recordings(path.read_bytes(), path.name):
        messages = said_before(recording, 10**9)[0]
        said = [(text, one.at or 0.0) for one in messages if (text := spoken(one))]
        found = [one for text, at in said for one in remarks(text, at)]
        assert len(found) <= max(1, len(said) // 10), [one.text for one in found]
        view = project(messages)
        assert all(origin_of(view, one.text) == "user" for one in found)
        assert origin_of(view, "Always install the package zqxv first") != "user"


@pytest.mark.skipif(not FILES, reason=ABSENT)
def test_what_people_typed_is_theirs() -> None:
    """MEM-10: of the lines of their messages, but for those in fences, the others were pasted without one."""
    found: dict[str, str] = {}
    for path in FILES:
        for recording in read_recordings(path.read_bytes(), path.name):
            messages = said_before(recording, 10**9)[0]
            view = project(messages)
            for line in (one for message in messages for one in sentences(typed_text(spoken(message)))):
                if any(map(str.isalpha, line)):
                    found[line] = origin_of(view, line)
    others = [line for line, origin in found.items() if origin != "user"]
    assert len(found) > 90 and len(others) <= len(found) // 8, others


@pytest.mark.quick(1)
@pytest.mark.skipif(not FOLDERS, reason=ABSENT)
@pytest.mark.parametrize("head", FOLDERS, ids=lambda path: path.parent.name)
def test_order_loses_no_line_of_real_directories(head: Path, tmp_path: Path) -> None:
    """MEM-11: every line of every memory is there afterwards but for dates, or is listed with a reason."""
    folder = tmp_path / "mem"
    shutil.copytree(head, folder)
    before = {path.name: path.read_text() for path in folder.glob("*.md")}

    async def run(*, dry_run: bool) -> ConsolidationResult:
        store = file_memories(folder)
        one = Consolidator(GuardedMemory(store, NullSink(), "auto"), IndexLimits())
        return await one.run(Stamp(origin="user", by="user", at=1.0), dry_run=dry_run)

    done = anyio.run(lambda: run(dry_run=False))
    after = {path.name: path.read_text() for path in folder.glob("*.md")}
    lines = {line.strip() for text in after.values() for line in text.split("\n")}
    listed = {one.line.strip() for one in done.plan.dropped}
    lost = [
        line
        for name, text in before.items()
        if name != "MEMORY.md"
        for line in map(str.strip, text.split("\n"))
        if line and line not in lines and line not in listed
    ]
    assert len(lost) <= 10  # those with relative dates
    assert anyio.run(lambda: run(dry_run=True)).outcome == "nothing"
