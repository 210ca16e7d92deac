"""What is remembered of a journal outside of it: loss is said, and a crash doesn't look like one (ENG-9, REL-9)."""

# ruff: noqa: ASYNC240 - the test itself may block; nothing else runs on its loop

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import anyio
import pytest

from perdure import Settings
from perdure.adapters.journal.append_file import mark_path, read_mark
from perdure.adapters.journal.disk import DISK, Disk
from perdure.adapters.journal.journal import FileJournal
from perdure.adapters.journal.reading import verify
from perdure.adapters.journal.store import SessionStore
from perdure.adapters.sinks import ListSink
from perdure.engine.turn import run_turn
from perdure.errors import JournalError
from perdure.events import JournalRepaired
from perdure.testing import ScriptedModel
from perdure.transcript.codec import encode_line
from perdure.transcript.records import Noted, Repaired
from perdure.wiring import SessionOptions, background, open_session

from .test_journal_faults import (
    HEADER,
    Died,
    Failing,
    Full,
    Once,
    boundary,
    damage_line,
    load,
    names,
    said,
    written,
)

pytestmark = pytest.mark.faults


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


class Counted(Disk):
    """Every promise that was asked for."""

    def __init__(self) -> None:
        self.syncs = 0

    def sync_data(self, fd: int) -> None:
        self.syncs += 1
        DISK.sync_data(fd)

    def sync_directory(self, path: Path) -> None:
        self.syncs += 1
        DISK.sync_directory(path)


def test_an_append_is_one_sync(path: Path) -> None:
    """ENG-9, REL-1: what is remembered costs none."""

    async def body() -> None:
        journal = await FileJournal.create(path, HEADER, disk=(disk := Counted()))
        for number in range(20):
            before = disk.syncs
            await journal.append((said(f"m{number}"),))
            assert disk.syncs == before + 1
        await journal.close()
        assert disk.syncs == before + 2  # the mark, once, when it is closed

    anyio.run(body)


@pytest.mark.parametrize("ending", ["closed", "killed"])
@pytest.mark.parametrize("has_boundary", [False, True])
def test_a_journal_cut_by_whole_lines_is_noticed(path: Path, has_boundary: bool, ending: str) -> None:
    """D5, ENG-9: the next process says which are gone, records it, and goes on; a reader and `verify` say it too."""

    async def body() -> None:
        journal = await written(path, 3)
        if has_boundary:
            await journal.append((boundary("b"),))
        for name in ("x", "y", "z"):
            await journal.append((said(name),))
        if ending == "closed":
            await journal.close()
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(lines[:-2]))
        last = 5 if has_boundary else 4
        for problem in ((await load(path, read_only=True)).repairs[0].what, verify(path)[0].what):
            assert problem.startswith(f"sequence jumps from {last} to {last + 3}: 2 lines that were acknowledged")
        loaded = await load(path)
        assert names(loaded)[-1] == "x" and [r.line for r in loaded.repairs] == [last + 2]
        again = await load(path, whole=True)
        assert not again.repairs and sum(isinstance(p.record, Repaired) for p in again.records) == 1
        assert [p.what.endswith("(set aside and recorded)") for p in verify(path)] == [True]
        journal = await FileJournal.open(path)
        assert (await journal.append((said("after"),))).seq == last + 4  # a number isn't given twice
        await journal.close()

    anyio.run(body)


def test_a_journal_of_which_nothing_is_left(path: Path) -> None:
    """ENG-9, REL-9: emptied between two processes, it opens with its own header and says what is gone."""

    async def body() -> None:
        await (await written(path, 3)).close()
        path.write_bytes(b"")
        loaded = await load(path)
        assert loaded.header == HEADER and names(loaded) == []
        assert [r.line for r in loaded.repairs] == [1, 1]
        assert any("3 lines that were acknowledged" in r.what for r in loaded.repairs)
        assert (await load(path)).repairs == ()

    anyio.run(body)


@pytest.mark.parametrize("durability", ["commit", "process"])
def test_an_older_mark_is_no_damage(path: Path, durability: Any) -> None:
    """ENG-9: as after kill -9 or a loss of power between a line and its mark: any mark of before, none, or an empty."""

    async def body() -> None:
        journal = await FileJournal.create(path, HEADER, durability=durability)
        marks = [b"", b"\0" * 128, b" " * 128, b'{"bytes":12']
        for number in range(8):
            marks.append(mark_path(path).read_bytes())
            await journal.append((said(f"m{number}"),))
        await journal.close()
        for mark in marks:
            mark_path(path).write_bytes(mark)
            assert not (await load(path, read_only=True)).repairs and not verify(path)
            assert not (await load(path)).repairs
            assert read_mark(DISK, path).mark is not None
        mark_path(path).unlink()
        assert not (await load(path)).repairs and not verify(path)

    anyio.run(body)


def test_what_was_not_synced_may_be_lost_and_is_said_so(path: Path) -> None:
    """ENG-3, ENG-9: durability=process says what it doesn't survive, also when that happened."""

    async def body() -> None:
        journal = await FileJournal.create(path, HEADER, durability="process")
        await journal.append((said("m1"),))
        size = path.stat().st_size
        await journal.append((said("m2"),))
        await journal.close()
        os.truncate(path, size)
        (repaired,) = (await load(path)).repairs
        assert "doesn't survive a loss of power" in repaired.what

    anyio.run(body)


def test_a_replaced_journal_is_noticed(path: Path) -> None:
    """REL-9, ENG-9: as long as before and without damage, but not what was acknowledged."""

    async def body() -> None:
        await (await written(path, 3)).close()
        other = path.with_name("other.jsonl")
        await (await written(other, 5, text="something else")).close()
        shutil.copy(other, path)
        assert any("replaced or rewritten" in r.what for r in (await load(path)).repairs)
        assert not (await load(path)).repairs

    anyio.run(body)


def test_a_damaged_mark_is_said(path: Path) -> None:
    """ENG-9: nothing tells then whether the end of the journal is missing."""

    async def body() -> None:
        await (await written(path, 3)).close()
        raw = bytearray(mark_path(path).read_bytes())
        raw[12] ^= 1
        mark_path(path).write_bytes(raw)
        assert verify(path)
        assert [r.line for r in (await load(path)).repairs] == [0]
        assert not (await load(path)).repairs and all("recorded" in p.what for p in verify(path))

    anyio.run(body)


def test_a_full_disk_forgets_no_loss(path: Path) -> None:
    """ENG-9, REL-10: as long as the loss can't be recorded, the mark goes on telling it."""

    async def body() -> None:
        disk = Full()
        await (await written(path, 4)).close()
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(lines[:-1]))
        disk.free_bytes = 0
        assert (await load(path, disk=disk)).repairs
        disk.free_bytes = 10**6
        assert (await load(path, disk=disk)).repairs and not (await load(path, disk=disk)).repairs

    anyio.run(body)


def test_a_full_disk_opens_a_disordered_journal(path: Path) -> None:
    """ENG-9, REL-10: it is read in its order at once, and written anew before the first append."""

    async def body() -> None:
        disk = Full()
        await (await written(path, 4)).close()
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join([*lines[:2], lines[4], lines[2], lines[3]]))
        before, disk.free_bytes = path.read_bytes(), 0
        journal = await FileJournal.open(path, disk=disk)
        assert names(await journal.load()) == ["m1", "m2", "m3", "m4"] and path.read_bytes() == before
        disk.free_bytes = 10**6
        assert (await journal.append((said("m5"),))).seq == 6
        assert names(await journal.load()) == ["m1", "m2", "m3", "m4", "m5"]
        await journal.close()
        assert not (await load(path)).repairs

    anyio.run(body)


@pytest.mark.parametrize("kind", ["EIO", "ENOSPC", "part, then ENOSPC", "part, then death", "death after it", "power"])
def test_whichever_call_fails_while_it_is_written_anew(tmp_path: Path, kind: str) -> None:
    """ENG-9, REL-1, REL-10: a damaged header, a misplaced line and the end cut off, at each step of mending."""
    base = tmp_path / "base"
    base.mkdir()

    async def begin() -> None:
        await (await written(base / "journal.jsonl", 6)).close()

    anyio.run(begin)
    lines = (base / "journal.jsonl").read_bytes().splitlines(keepends=True)
    damaged = b"".join([lines[0].replace(b"s1", b"sl"), lines[1], lines[4], lines[2], lines[3]])
    (base / "journal.jsonl").write_bytes(damaged)
    nth, has_fired = 0, True
    while has_fired:
        nth += 1
        home, disk = tmp_path / f"run{nth}", Failing(nth, kind)
        shutil.copytree(base, home)
        path = home / "journal.jsonl"

        async def go_on(path: Path = path, disk: Failing = disk) -> bool:
            try:
                journal = await FileJournal.open(path, disk=disk)
                for _ in range(2):
                    try:
                        await journal.append((said("after"),))
                        return True
                    except JournalError:
                        continue
                await journal.close()
            except (Died, JournalError):
                pass
            return False

        acknowledged = anyio.run(go_on)

        async def check(path: Path = path, acknowledged: bool = acknowledged, nth: int = nth) -> None:
            where = f"{kind} at call {nth}"
            loaded = await load(path, whole=True)
            assert loaded.header == HEADER, where
            found = names(loaded)
            assert found[:4] == ["m1", "m2", "m3", "m4"] and set(found[4:]) <= {"after"}, where
            assert not acknowledged or "after" in found, where
            repairs = [p.record.what for p in loaded.records if isinstance(p.record, Repaired)]
            assert any("header is damaged" in what for what in repairs), where
            assert any("out of order" in what for what in repairs), where
            assert any("2 lines that were acknowledged are missing" in what for what in repairs), where
            assert damaged in [p.read_bytes() for p in path.parent.glob("journal.jsonl.before-*")], where
            assert not (await load(path, whole=True)).repairs, where

        anyio.run(check)
        shutil.rmtree(home)
        has_fired = disk.has_fired
    assert nth > 8, "it touches the disk more often than that"


# --- what an opening at a boundary doesn't read ----------------------------------------------------------------------


async def past_boundary(path: Path) -> None:
    journal = await written(path, 4)
    await journal.append((boundary("b"),))
    await journal.append((said("m6"),))
    await journal.close()


def test_looking_back_sets_aside_what_the_opening_did_not_read(path: Path) -> None:
    """ENG-3, ENG-9: verified once, beside the appends; a second look finds what is known already."""

    async def body() -> None:
        await past_boundary(path)
        journal = await FileJournal.open(path)
        assert journal.has_past and await journal.look_back() == () and not journal.has_past
        await journal.close()
        damage_line(path, 3)
        for found in ([3], []):
            journal = await FileJournal.open(path)
            assert not journal.repairs and journal.has_past
            assert [r.line for r in await journal.look_back()] == found
            await journal.append((said(f"after {found}"),))
            await journal.close()
        assert all("recorded" in problem.what for problem in verify(path))
        reader = await FileJournal.open(path, read_only=True)
        assert not reader.has_past

    anyio.run(body)


def test_looking_back_names_lines_out_of_order(path: Path) -> None:
    """ENG-9: the file isn't replaced under a session that is open; a repair does it."""

    async def body() -> None:
        await past_boundary(path)
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join([lines[0], lines[2], lines[1], *lines[3:]]))
        journal = await FileJournal.open(path)
        assert any("out of order" in r.what for r in await journal.look_back())
        await journal.append((said("m7"),))
        await journal.close()
        journal = await FileJournal.open(path, mend=True)
        assert names(await journal.load(whole=True)) == ["m1", "m2", "m3", "m4", "b", "m6", "m7"]
        await journal.close()
        assert all("recorded" in problem.what for problem in verify(path))

    anyio.run(body)


def test_a_resumed_session_looks_back_after_its_first_answer(tmp_path: Path) -> None:
    """ENG-3: in the background; the turn doesn't wait for it, and what is found is told."""

    async def body() -> None:
        files = await SessionStore(tmp_path).create("s1", project=tmp_path, created=1.0)
        await files.journal.close()
        path = files.directory / "journal.jsonl"
        header = path.read_bytes().splitlines()[0]
        await past_boundary(tmp_path / "journal.jsonl")
        lines = (tmp_path / "journal.jsonl").read_bytes().splitlines(keepends=True)
        path.write_bytes(header + b"\n" + b"".join(lines[1:]))
        mark_path(path).unlink()
        damage_line(path, 3)
        sink = ListSink()
        session = await open_session(tmp_path, "s1", parts=SessionOptions(sink=sink, settings=Settings(notes=False)))
        keepers = background(session)
        await run_turn(session, "Go on.", ScriptedModel(), keepers)
        await keepers.drain(session)
        assert [e.line for e in sink.events if isinstance(e, JournalRepaired)] == [3]
        await keepers.close(session)
        await session.close()

    anyio.run(body)


# --- what earlier repairs put aside comes back -----------------------------------------------------------------------


def test_mending_brings_back_what_was_put_aside(path: Path) -> None:
    """D5, ENG-9: an earlier version cut intact lines off behind a repeated one, and recorded that."""

    async def body() -> None:
        await (await written(path, 8)).close()
        mark_path(path).unlink()
        lines = path.read_bytes().splitlines(keepends=True)
        path.with_name("journal.jsonl.torn-1").write_bytes(b"".join(lines[4:]))
        torn = Repaired(line=5, what="torn tail of 600 bytes: sequence number 4 again, after 8", quarantine="x")
        path.write_bytes(b"".join([*lines[:4], lines[8], encode_line(9, (torn,))]))
        assert "m5" not in names(await load(path))
        journal = await FileJournal.open(path, mend=True)
        loaded = await journal.load(whole=True)
        assert names(loaded) == [f"m{n}" for n in range(1, 9)]
        assert sum("was brought back from journal.jsonl.torn-1" in r.what for r in loaded.repairs) == 4
        await journal.close()
        assert names(await load(path, whole=True)) == [f"m{n}" for n in range(1, 9)]
        assert all("recorded" in problem.what for problem in verify(path))

    anyio.run(body)


@pytest.mark.parametrize("name", ["refused-1", "torn-1"])
def test_what_was_refused_is_not_brought_back(path: Path, name: str) -> None:
    """REL-10, ENG-9: its caller was told that nothing was recorded, whatever is missing since."""

    async def body() -> None:
        journal = await written(path, 2, disk=(disk := Once()))
        disk.error = OSError(5, "I/O error")
        with pytest.raises(Exception, match="nothing was recorded"):
            await journal.append((said("refused"),))
        await journal.append((said("m3"),))
        await journal.close()
        beside = path.with_name("journal.jsonl.refused-1")
        beside.rename(path.with_name(f"journal.jsonl.{name}"))  # the second is what 0.1 called it
        damage_line(path, 4)  # the record of that repair has the number that the refused line had
        for _ in range(2):
            journal = await FileJournal.open(path, mend=True)
            assert "refused" not in names(await journal.load(whole=True))
            await journal.close()

    anyio.run(body)


def test_two_different_lines_of_one_number_are_both_kept(path: Path) -> None:
    """ENG-9: nothing says which of them is right, so neither is hidden, and it is said once."""

    async def body() -> None:
        await (await written(path, 3)).close()
        path.write_bytes(path.read_bytes() + encode_line(3, (said("other"),)) + encode_line(4, (Noted(kind="x"),)))
        loaded = await load(path)
        assert names(loaded) == ["m1", "m2", "m3", "other"]
        assert [r.what.partition(":")[0] for r in loaded.repairs] == ["two different lines have the sequence number 3"]
        assert not (await load(path)).repairs and names(await load(path, whole=True)) == names(loaded)

    anyio.run(body)
