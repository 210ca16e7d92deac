"""REL-7, MEM-9: many processes edit one memory directory, some are killed; a fault at every call of a write."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bench._races import Race, race

from perdure.adapters.machine.folder_calls import OsCalls
from perdure.adapters.memory.directory import file_memories
from perdure.adapters.memory.store import StoredMemories
from perdure.errors import FileRefused
from perdure.memory.changes import Change, DeleteMemory, MemoryBatch, RenameMemory, SaveMemory, Stamp
from perdure.settings import Settings

pytestmark = pytest.mark.faults
QUICK = Settings(durability="process")  # survives kill -9, which is what is asked here
SEAMS = tuple(name for name in vars(OsCalls) if not name.startswith("_") and callable(getattr(OsCalls, name)))


def quick(folder: Path) -> StoredMemories:
    return file_memories(folder, QUICK)


@pytest.mark.nightly
def test_killed_writers_lose_nothing_acknowledged(tmp_path: Path) -> None:
    """REL-7: every acknowledged edit is in its file or in a conflict file; readers see whole files only.

    `bench/memory.py` runs it with 16 processes of 200 edits.
    """
    done = race(tmp_path, quick, Race(writers=6, edits=60, kill_every_seconds=0.04))
    assert done.acknowledged == 360 and done.kills > 3
    assert not done.lost and not done.partial and done.reads > 10


@pytest.mark.nightly
def test_inserts_of_many_processes_are_all_there(tmp_path: Path) -> None:
    """REL-7: 8 writers into one file, none is a conflict. `bench/memory.py` runs it with 100 inserts of each."""
    done = race(tmp_path, quick, Race(writers=8, edits=15, files=1))
    assert (done.acknowledged, done.lost, done.partial) == (120, [], [])
    assert done.merged >= 7  # all have read the same before the first of them writes


class Failing(OsCalls):
    """Fails its n-th call."""

    def __init__(self, at: int) -> None:
        self._at, self.count = at, 0

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in SEAMS or name == "close":
            return found

        def called(*arguments: Any) -> Any:
            self.count += 1
            if self.count == self._at:
                raise OSError(28, "No space left on device")
            return found(*arguments)

        return called


CHANGES: dict[str, Callable[[], Change]] = {
    "save": lambda: SaveMemory(name="a.md", text="new", base="old"),
    "new": lambda: SaveMemory(name="t/n.md", text="new"),
    "conflict": lambda: SaveMemory(name="a.md", text="new", base="other"),
    "delete": lambda: DeleteMemory(name="a.md", base="old"),
    "rename": lambda: RenameMemory(name="a.md", to="t/b.md", base="old"),
}


@pytest.mark.anyio
@pytest.mark.parametrize("kind", sorted(CHANGES))
async def test_a_fault_at_any_call_leaves_old_or_new(tmp_path: Path, kind: str) -> None:
    """REL-7, REL-10: no half file; what failed can be done again; the log tells what happened, and undo agrees."""
    stamp = Stamp(origin="user", at=1.0)
    await quick(tmp_path / "first").write(SaveMemory(name="a.md", text="old"), stamp, mode="auto")
    at = 1
    while True:
        folder = tmp_path / str(at)
        shutil.copytree(tmp_path / "first", folder)
        calls = Failing(at)
        try:
            await file_memories(folder, QUICK, calls=calls).write(CHANGES[kind](), stamp, mode="auto")
        except FileRefused:
            pass
        texts = {path.name: path.read_text() for path in folder.rglob("*.md")}
        assert set(texts.values()) <= {"old", "new"} and len(texts) >= (kind != "delete")
        store = quick(folder)
        await store.write(SaveMemory(name="later.md", text="old"), stamp, mode="auto")
        known = await store.provenance()
        there = {file.name: file.digest for file in (await store.listing()).files}
        assert {name: one.digest for name, one in known.items()} == there
        if calls.count < at:
            break
        at += 1
    assert at > 8


class Dying(Failing):
    """From its n-th call on nothing happens any more, as when the process is killed there, or the disk is gone."""

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in SEAMS or name == "close":
            return found

        def called(*arguments: Any) -> Any:
            if self.count >= self._at:
                raise OSError(28, "No space left on device")
            return found(*arguments)

        return called


TOGETHER = MemoryBatch(
    name="tidy",
    changes=(
        SaveMemory(name="a.md", text="merged", base="a"),
        SaveMemory(name="t/n.md", text="new"),
        DeleteMemory(name="b.md", base="b"),
        RenameMemory(name="c.md", to="d.md", base="c"),
    ),
)
FIRST = {"a.md": "a", "b.md": "b", "c.md": "c"}
AFTER = {"a.md": "merged", "t/n.md": "new", "d.md": "c"}


async def told(store: StoredMemories) -> dict[str, str]:
    found = {}
    for file in (await store.listing()).files:
        read = await store.read(file.name)
        assert read is not None
        found[file.name] = read.text
    return found


@pytest.mark.quick(2)
@pytest.mark.anyio
@pytest.mark.parametrize("undoes", [False, True])
@pytest.mark.parametrize("kind", [Failing, Dying])
async def test_a_batch_is_made_wholly_or_not_at_all(tmp_path: Path, kind: type[Failing], undoes: bool) -> None:
    """REL-7, MEM-11: a fault at every call, a full disk and a kill; whoever opens it next finds all, or nothing."""
    stamp = Stamp(origin="user", at=1.0)
    first = quick(tmp_path / "first")
    for name, text in FIRST.items():
        await first.write(SaveMemory(name=name, text=text), stamp, mode="auto")
    before, after = FIRST, AFTER
    if undoes:
        await first.write(TOGETHER, stamp, mode="auto")
        before, after = AFTER, FIRST
    at, seen = 1, set()
    while True:
        folder = tmp_path / str(at)
        shutil.copytree(tmp_path / "first", folder)
        calls = kind(at)
        store, is_done = file_memories(folder, QUICK, calls=calls), True
        try:
            if undoes:
                await store.undo(None, stamp)
            else:
                await store.write(TOGETHER, stamp, mode="auto")
        except FileRefused:
            is_done = False
        if kind is Failing:
            there = {p.relative_to(folder).as_posix(): p.read_text() for p in folder.rglob("*.md")}
            assert there in (before, after), "already before anybody opens it again"
        again = quick(folder)
        assert await told(again) == (after if is_done else before), at
        known = await again.provenance()
        assert {name: one.digest for name, one in known.items()} == {
            f.name: f.digest for f in (await again.listing()).files
        }
        voids = [entry for entry in await again.entries() if entry.action == "void"]
        seen |= {bool(voids)}
        assert not (is_done and voids)
        await again.write(SaveMemory(name="later.md", text="old"), stamp, mode="auto")
        if is_done and calls.count < at:
            break
        at += 1
    assert at > 20 and seen == {True, False}, "what was taken back stands in the log"
