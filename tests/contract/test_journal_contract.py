"""What every `ports.Journal` does (ENG-3, REL-1, CMP-14): one suite for the one in memory and the one in a file."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest

from perdure.adapters.journal import FileJournal
from perdure.adapters.journal.in_memory import MemoryJournal
from perdure.errors import JournalError
from perdure.ports.session import Journal, LoadedJournal, Receipt
from perdure.transcript.blocks import text_block
from perdure.transcript.codec import FORMAT, VERSION
from perdure.transcript.messages import Message, MessageId, content_of
from perdure.transcript.records import Compacted, Header, Noted, Record, Rewound, Titled, Undone

pytestmark = pytest.mark.contract

HEADER = Header(format=FORMAT, version=VERSION, session="s1", created=1.0)
KINDS = ("memory", "memory, encoded", "file", "file, reopened", "file, process")


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Bench:
    """A journal under test. `load` closes and opens it before reading where the kind says so."""

    def __init__(self, kind: str, path: Path) -> None:
        self.kind = kind
        self.path = path
        self.journal: Journal

    async def start(self) -> None:
        if self.kind.startswith("memory"):
            self.journal = MemoryJournal(HEADER, encode="encoded" in self.kind)
        else:
            durability: Any = "process" if "process" in self.kind else "commit"
            self.journal = await FileJournal.create(self.path, HEADER, durability=durability)

    async def append(self, *records: Record) -> Receipt:
        return await self.journal.append(records)

    async def load(self, *, whole: bool = False) -> LoadedJournal:
        if "reopened" in self.kind:
            await self.journal.close()
            self.journal = await FileJournal.open(self.path)
        return await self.journal.load(whole=whole)


def run(kind: str, tmp_path: Path, body: Callable[[Bench], Awaitable[None]]) -> None:
    async def main() -> None:
        bench = Bench(kind, tmp_path / "journal.jsonl")
        await bench.start()
        try:
            await body(bench)
        finally:
            await bench.journal.close()

    anyio.run(main)


def said(name: str, text: str = "hello") -> Message:
    return Message(id=MessageId(name), role="user", content=content_of([text_block(text)]), origin="user")


def boundary(name: str, *, kept: tuple[str, ...] = (), kept_from: int = 0, **more: Any) -> Compacted:
    ids = tuple(MessageId(k) for k in kept)
    return Compacted(
        id=name,
        trigger="auto",
        strategy="full",
        summary=(said(f"{name}-summary"),),
        kept=ids,
        kept_from=kept_from,
        **more,
    )


def names(loaded: LoadedJournal) -> list[str]:
    return [getattr(p.record, "id", type(p.record).__name__) for p in loaded.records]


def test_a_new_journal_is_empty(kind: str, tmp_path: Path) -> None:
    async def body(bench: Bench) -> None:
        assert await bench.load() == LoadedJournal(header=HEADER, records=(), whole=True)

    run(kind, tmp_path, body)


def test_records_come_back_in_order_with_their_place(kind: str, tmp_path: Path) -> None:
    """ENG-3: sequence numbers count lines from 1; all records of a transaction share its line."""

    async def body(bench: Bench) -> None:
        first = await bench.append(said("a"), said("b"))
        second = await bench.append(Noted(kind="x", data={"n": [1, {"m": None}]}))
        assert (first.seq, second.seq) == (1, 2) and 0 < first.offset < second.offset
        loaded = await bench.load()
        assert loaded.whole and loaded.repairs == () and loaded.header == HEADER
        assert names(loaded) == ["a", "b", "Noted"]
        places = [(p.seq, p.offset) for p in loaded.records]
        assert places == [(1, first.offset), (1, first.offset), (2, second.offset)]
        assert loaded.records[2].record == Noted(kind="x", data={"n": [1, {"m": None}]})
        third = await bench.append(said("c"))
        assert third.seq == 3
        assert names(await bench.load()) == ["a", "b", "Noted", "c"]

    run(kind, tmp_path, body)


def test_concurrent_appends_all_hold_in_the_order_of_the_calls(kind: str, tmp_path: Path) -> None:
    """REL-1: group commit changes neither order nor numbers."""

    async def body(bench: Bench) -> None:
        receipts: dict[int, Receipt] = {}

        async def one(number: int) -> None:
            receipts[number] = await bench.append(said(f"m{number}", "x" * (number * 37 % 500)))

        async with anyio.create_task_group() as group:
            for number in range(200):
                group.start_soon(one, number)
        loaded = await bench.load()
        assert [p.seq for p in loaded.records] == list(range(1, 201))
        assert names(loaded) == [f"m{n}" for n in sorted(receipts, key=lambda n: receipts[n].seq)]
        assert names(loaded) == [f"m{n}" for n in range(200)]
        assert [p.offset for p in loaded.records] == [receipts[n].offset for n in range(200)]

    run(kind, tmp_path, body)


def test_loading_starts_at_the_last_boundary(kind: str, tmp_path: Path) -> None:
    """SPD-3, CMP-14: before the boundary only what it kept, then the boundary and all that follows."""

    async def body(bench: Bench) -> None:
        await bench.append(said("a"))
        await bench.append(boundary("b1"))
        await bench.append(said("b"))
        kept = await bench.append(said("c"))
        await bench.append(Noted(kind="between"), said("d"))
        await bench.append(said("e"), boundary("b2", kept=("c", "e"), kept_from=kept.offset), Titled(title="t"))
        await bench.append(said("f"))
        loaded = await bench.load()
        assert not loaded.whole
        assert names(loaded) == ["c", "e", "b2", "Titled", "f"]
        whole = await bench.load(whole=True)
        assert whole.whole and names(whole) == ["a", "b1", "b", "c", "Noted", "d", "e", "b2", "Titled", "f"]

    run(kind, tmp_path, body)


def test_a_boundary_that_keeps_nothing_comes_first(kind: str, tmp_path: Path) -> None:
    async def body(bench: Bench) -> None:
        await bench.append(said("a"))
        await bench.append(boundary("b1"))
        assert names(await bench.load()) == ["b1"]

    run(kind, tmp_path, body)


def test_a_wrong_offset_in_a_boundary_does_no_harm(kind: str, tmp_path: Path) -> None:
    """SPD-3: an offset that can't be right costs time, not messages."""

    async def body(bench: Bench) -> None:
        await bench.append(said("a"), Noted(kind="x"))
        await bench.append(said("b"))
        await bench.append(boundary("b1", kept=("a", "b"), kept_from=10**9))
        assert names(await bench.load()) == ["a", "b", "b1"]

    run(kind, tmp_path, body)


def test_what_a_tool_was_sent_is_no_boundary(kind: str, tmp_path: Path) -> None:
    """ENG-1: a tool's input may hold the very bytes of a boundary record."""

    async def body(bench: Bench) -> None:
        raw = msgspec.json.encode(boundary("fake"))
        block = b'{"type":"tool_use","id":"t","name":"Write","input":%b}' % raw
        message = Message(id=MessageId("a"), role="assistant", content=(msgspec.Raw(block),), origin="model")
        await bench.append(said("z"))
        await bench.append(boundary("b1"))
        await bench.append(message)
        await bench.append(message)
        assert names(await bench.load()) == ["b1", "a", "a"]

    run(kind, tmp_path, body)


@pytest.mark.parametrize("later", [Undone(id="b2"), Rewound(to=MessageId("a")), Rewound(to=MessageId("b"))])
def test_a_boundary_that_no_longer_holds_is_passed_over(kind: str, later: Record, tmp_path: Path) -> None:
    """CMP-11, CKP-4: undone, or rewound to before it: the fold needs what came before."""

    async def body(bench: Bench) -> None:
        await bench.append(said("z"))
        await bench.append(boundary("b1"))
        await bench.append(said("a"), said("b"))
        await bench.append(boundary("b2"))
        await bench.append(said("c"), later)
        assert names(await bench.load())[:5] == ["b1", "a", "b", "b2", "c"]

    run(kind, tmp_path, body)


def test_a_rewind_within_what_the_boundary_shows_keeps_it(kind: str, tmp_path: Path) -> None:
    """CKP-4: to a kept message, to the summary, or to something said since."""

    async def body(bench: Bench) -> None:
        kept = await bench.append(said("a"))
        await bench.append(boundary("b1", kept=("a",), kept_from=kept.offset))
        await bench.append(said("c"))
        for to in ("a", "c", "b1-summary"):
            await bench.append(Rewound(to=MessageId(to)))
        assert names(await bench.load())[:3] == ["a", "b1", "c"]

    run(kind, tmp_path, body)


def test_a_closed_journal_takes_nothing(kind: str, tmp_path: Path) -> None:
    async def body(bench: Bench) -> None:
        await bench.append(said("a"))
        await bench.journal.close()
        await bench.journal.close()
        with pytest.raises(JournalError):
            await bench.append(said("b"))

    run(kind, tmp_path, body)


def test_records_that_cannot_be_written_change_nothing(kind: str, tmp_path: Path) -> None:
    """REL-1: what is acknowledged can be read back, so what can't be encoded isn't acknowledged."""
    if kind == "memory":
        pytest.skip("keeps values as they are")
    broken = Message(id=MessageId("x"), role="user", content=(msgspec.Raw(b'{"type":"text",'),), origin="user")

    async def body(bench: Bench) -> None:
        await bench.append(said("a"))
        for bad in (Noted(kind="x", data={"y": object()}), broken):
            with pytest.raises(JournalError, match="can't be written"):
                await bench.append(said("never"), bad)
        assert (await bench.append(said("b"))).seq == 2
        assert names(await bench.load()) == ["a", "b"]

    run(kind, tmp_path, body)


def test_an_append_that_is_cancelled_holds_wholly_or_not_at_all(kind: str, tmp_path: Path) -> None:
    """REL-1: and never takes the others with it."""

    async def body(bench: Bench) -> None:
        done: list[str] = []

        async def one(name: str) -> None:
            await bench.append(said(name), said(f"{name}'"))
            done.append(name)

        async with anyio.create_task_group() as others:
            for number in range(20):
                others.start_soon(one, f"kept{number}")
            async with anyio.create_task_group() as group:
                for number in range(20):
                    group.start_soon(one, f"lost{number}")
                await anyio.lowlevel.checkpoint()
                group.cancel_scope.cancel()
        found = names(await bench.load())
        assert set(done) <= set(found) and {f"kept{n}" for n in range(20)} <= set(done)
        assert found[1::2] == [f"{name}'" for name in found[::2]]

    run(kind, tmp_path, body)


def test_whoever_writes_for_all_may_be_cancelled(kind: str, tmp_path: Path) -> None:
    """REL-1: the first caller writes for those who wait; its cancellation, at whatever moment, costs them nothing."""

    async def body(bench: Bench) -> None:
        for moment in range(8):
            done: list[str] = []

            async def one(name: str, done: list[str] = done) -> None:
                await bench.append(said(name))
                done.append(name)

            async with anyio.create_task_group() as others, anyio.create_task_group() as first:
                first.start_soon(one, f"first{moment}")
                for number in range(3):
                    others.start_soon(one, f"{moment}.{number}")
                for _ in range(moment):
                    await anyio.lowlevel.checkpoint()
                first.cancel_scope.cancel()
            assert {f"{moment}.{n}" for n in range(3)} <= set(done) <= set(names(await bench.load()))

    run(kind, tmp_path, body)


@pytest.mark.parametrize("step_bytes", [*range(30, 60), 333])
def test_files_are_read_in_steps_of_any_size(tmp_path: Path, step_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """SPD-3: a boundary is found wherever the steps happen to cut it."""
    monkeypatch.setattr("perdure.adapters.journal.reading.CHUNK_BYTES", step_bytes)
    monkeypatch.setattr("perdure.adapters.journal.reading.STEP_BYTES", step_bytes * 2)

    async def body(bench: Bench) -> None:
        await bench.append(said("a"))
        kept = await bench.append(said("b"))
        await bench.append(boundary("b1", kept=("b",), kept_from=kept.offset))
        await bench.append(said("c", "x" * step_bytes))
        assert names(await bench.load()) == ["b", "b1", "c"]
        assert names(await bench.load(whole=True)) == ["a", "b", "b1", "c"]

    run("file, reopened", tmp_path, body)


def test_raw_line_breaks_in_a_record_do_not_break_a_line(kind: str, tmp_path: Path) -> None:
    """ENG-1, ENG-3: JSON whitespace of a block that came pretty-printed; its value stays."""
    pretty = Message(
        id=MessageId("p"), role="user", content=(msgspec.Raw(b'{\n"type":"text",\n"text":"a\\nb"}'),), origin="user"
    )

    async def body(bench: Bench) -> None:
        await bench.append(pretty)
        await bench.append(said("b"))
        loaded = await bench.load()
        assert names(loaded) == ["p", "b"] and loaded.repairs == ()
        record = loaded.records[0].record
        assert isinstance(record, Message) and msgspec.json.decode(record.content[0])["text"] == "a\nb"

    run(kind, tmp_path, body)


def test_a_line_longer_than_any_buffer(kind: str, tmp_path: Path) -> None:
    """SPD-3: a boundary and a message of several megabytes, far longer than the steps in which a file is read."""

    async def body(bench: Bench) -> None:
        await bench.append(said("a"))
        kept = await bench.append(said("b", "x" * 3_000_000))
        await bench.append(boundary("b1", kept=("b",), kept_from=kept.offset, state={"long": "y" * 3_000_000}))
        await bench.append(said("c", "z" * 3_000_000))
        assert names(await bench.load()) == ["b", "b1", "c"]
        assert names(await bench.load(whole=True)) == ["a", "b", "b1", "c"]

    run(kind, tmp_path, body)
