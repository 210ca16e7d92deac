"""Every byte of a journal that holds every kind of record, and every order of its lines (ENG-9, REL-2).

Whatever is done to the file: records whose line was not touched are there, in their order, and it is said.
"""

# ruff: noqa: ASYNC240 - the test itself may block; nothing else runs on its loop

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import permutations
from pathlib import Path
from typing import get_args

import anyio
import msgspec
import pytest
from tests.tiers import NIGHTLY, TIMES

from perdure.adapters.journal import FileJournal, verify
from perdure.adapters.journal.reading import open_journal_reader
from perdure.context.view import project
from perdure.ports.session import LoadedJournal, PlacedRecord
from perdure.transcript.blocks import text_block
from perdure.transcript.codec import FORMAT, VERSION, decode_header, decode_line, encode_header, encode_line
from perdure.transcript.messages import Message, MessageId, content_of
from perdure.transcript.records import Compacted, Header, Noted, Record, Repaired

from .test_journal_faults import Unsynced

SAMPLE = Path(__file__).parent.parent / "golden" / "journals" / "v1" / "every-record-and-worded.jsonl"
LONG = max(1, TIMES)  # with more every bit is tried, and more orders
pytestmark = [pytest.mark.faults, pytest.mark.timeout(600 * LONG)]
DISK = Unsynced()
Mutant = tuple[str, bytes, frozenset[int]]  # what was done, the bytes, which lines (from 0: the header) were touched


class Journal:
    """The sample as its lines, and as what each of them says."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.lines = raw.splitlines(keepends=True)
        self.starts = [sum(map(len, self.lines[:n])) for n in range(len(self.lines))]
        self.said = [said_by(decode_line(line).records) for line in self.lines[1:]]
        self.header = decode_header(self.lines[0])

    def line_of(self, at: int) -> int:
        return sum(start <= at for start in self.starts) - 1

    def expected(self, touched: frozenset[int]) -> list[bytes]:
        """What the untouched lines say."""
        return [one for number, said in enumerate(self.said, 1) if number not in touched for one in said]


def said_by(records: Sequence[Record]) -> list[bytes]:
    """The records, to be compared. A boundary's pointer into the file may be another."""
    return [
        msgspec.json.encode(msgspec.structs.replace(r, kept_from=0) if isinstance(r, Compacted) else r) for r in records
    ]


def of(placed: Sequence[PlacedRecord]) -> list[bytes]:
    """What was loaded, without what repairs said of it."""
    return said_by([p.record for p in placed if not (isinstance(p.record, Repaired) and p.record.line != 99)])


def is_within(few: list[bytes], many: list[bytes]) -> bool:
    """Whether all of these stand there, in this order."""
    rest = iter(many)
    return all(one in rest for one in few)


async def remembered(path: Path, raw: bytes) -> bytes:
    """The mark of a journal, as a writer leaves it."""
    path.write_bytes(raw)
    await (await FileJournal.open(path, disk=DISK)).close()
    assert path.read_bytes() == raw
    return path.with_suffix(".mark").read_bytes()


async def load(path: Path, *, read_only: bool = True, whole: bool = True) -> LoadedJournal:
    journal = await FileJournal.open(path, read_only=read_only, disk=DISK)
    try:
        return await journal.load(whole=whole)
    finally:
        await journal.close()


def clean(path: Path) -> None:
    for beside in path.parent.glob("journal.*"):
        beside.unlink()


async def check(path: Path, journal: Journal, mutant: Mutant, mark: bytes, *, is_mended: bool) -> None:
    """One mutant: read, and now and then opened for writing, twice."""
    what, raw, touched = mutant
    path.write_bytes(raw)
    path.with_suffix(".mark").write_bytes(mark)
    expected = journal.expected(touched)
    with open_journal_reader(DISK, path, may_be_empty=True) as reader:
        whole, quick = reader.scan(reader.body), reader.since_boundary()
    found = of(whole.placed)
    assert is_within(expected, found), f"{what}: intact records hidden"
    assert is_within(found, journal.expected(frozenset())), f"{what}: what nobody said"
    assert whole.news, f"{what}: quiet"
    assert whole.header == journal.header, what
    assert is_within(of(quick.placed), found) and quick.placed[-1:] == whole.placed[-1:], f"{what}: another end"
    if not is_mended:
        return
    read = await load(path)
    assert of(read.records) == found and read.repairs and verify(path), what
    first = await load(path, read_only=False)
    assert of(first.records) == found and first.repairs, what
    second = await load(path, read_only=False)
    assert of(second.records) == found and not second.repairs, f"{what}: said again: {second.repairs}"
    await (await FileJournal.open(path, mend=True, disk=DISK)).close()
    assert of((await load(path)).records) == found, what
    assert all(problem.what.endswith("(set aside and recorded)") for problem in verify(path)), (what, verify(path))
    kept = b"".join(p.read_bytes() for p in path.parent.glob("journal.jsonl*"))
    assert all(line.rstrip(b"\n") in kept for line in raw.splitlines()), f"{what}: bytes are gone"
    clean(path)


def test_the_sample_holds_every_kind_of_record() -> None:
    """A new kind of record has to be in the journal that is damaged here."""
    lines = SAMPLE.read_bytes().splitlines()[1:]
    assert {type(record) for line in lines for record in decode_line(line).records} == set(get_args(Record))


def mutants(journal: Journal) -> Iterator[Mutant]:
    """Each byte changed (in CI in one bit, else in every one), taken away, and the end of the file."""
    raw, chance = journal.raw, random.Random(9)
    for at in range(0, len(raw), 1 if NIGHTLY else 3):
        number = journal.line_of(at)
        for bit in [chance.randrange(8)] if LONG == 1 else range(8):
            flipped = bytearray(raw)
            flipped[at] ^= 1 << bit
            yield f"bit {bit} of byte {at}", bytes(flipped), frozenset({number})
        if LONG == 1 and at % 5 and raw[at : at + 1] != b"\n":
            continue
        yield f"byte {at} set to a line end", raw[:at] + b"\n" + raw[at + 1 :], frozenset({number})
        yield f"without byte {at}", raw[:at] + raw[at + 1 :], frozenset({number})
        yield f"cut at byte {at}", raw[:at], frozenset(range(number, len(journal.lines)))


def test_every_byte(tmp_path: Path) -> None:
    """ENG-9: changed, lost, or the end of the file: 0 intact records hidden, 0 quiet."""
    journal = Journal(SAMPLE.read_bytes())
    path = tmp_path / "journal.jsonl"

    async def body() -> None:
        mark = await remembered(path, journal.raw)
        for number, mutant in enumerate(mutants(journal)):
            if mutant[1] != journal.raw:
                await check(path, journal, mutant, mark, is_mended=number % 97 == 0)

    anyio.run(body)


def test_a_damaged_header_without_a_mark(tmp_path: Path) -> None:
    """ENG-9: of a journal that nothing is remembered of; one wrong byte is put right, more are read around."""
    journal = Journal(SAMPLE.read_bytes())
    directory = tmp_path / journal.header.session
    directory.mkdir()
    path = directory / "journal.jsonl"
    length = len(journal.lines[0])
    chance = random.Random(4)

    async def body() -> None:
        for at in range(0, length, 1 if LONG > 1 else 9):
            for changed in (bytes([journal.raw[at] ^ 4]), b""):
                path.write_bytes(journal.raw[:at] + changed + journal.raw[at + 1 :])
                loaded = await load(path)
                assert loaded.header == journal.header and loaded.repairs[0].line == 1, at
                assert of(loaded.records) == journal.expected(frozenset()), at
        for _ in range(20):
            raw = bytearray(journal.raw)
            for _ in range(3):
                raw[chance.randrange(length - 1)] ^= 1 << chance.randrange(8)
            path.write_bytes(raw)
            loaded = await load(path)
            assert loaded.header.session == journal.header.session and loaded.repairs
            assert of(loaded.records) == journal.expected(frozenset())
        first = await load(path, read_only=False)
        assert first.repairs and (await load(path, read_only=False)).repairs == ()
        assert path.with_name("journal.jsonl.before-1").read_bytes() == raw

    anyio.run(body)


def small() -> Journal:
    """A header and five lines: a boundary among them that keeps a message before it."""
    header = Header(format=FORMAT, version=VERSION, session="s1", created=1.0)

    def said(name: str) -> Message:
        return Message(id=MessageId(name), role="user", content=content_of([text_block(name)]), origin="user")

    lines = [encode_header(header), encode_line(1, (said("m1"),)), encode_line(2, (said("m2"), Noted(kind="x")))]
    kept_from = len(lines[0]) + len(lines[1])
    boundary = Compacted(
        id="b", trigger="auto", strategy="full", summary=(), kept=(MessageId("m2"),), kept_from=kept_from
    )
    lines += [encode_line(3, (boundary,)), encode_line(4, (said("m4"),)), encode_line(5, (said("m5"),))]
    return Journal(b"".join(lines))


def orders(journal: Journal, chance: random.Random, count: int) -> Iterator[Mutant]:
    """Shuffled lines, some of them twice or three times; pieces moved; two neighbours swapped; the file twice."""
    lines = journal.lines
    yield "the whole file twice", journal.raw * 2, frozenset()
    for number in range(count):
        some = list(lines)
        match number % 4:
            case 0:
                chance.shuffle(some)
            case 1:
                some += chance.choices(lines, k=chance.randint(1, 5))
                chance.shuffle(some)
            case 2:
                for _ in range(chance.randint(1, 4)):
                    some.insert(chance.randrange(len(some) + 1), chance.choice(lines))
            case _:
                start, end = sorted(chance.sample(range(len(some)), 2))
                piece, rest = some[start:end], some[:start] + some[end:]
                at = chance.randrange(len(rest) + 1)
                some = rest[:at] + piece + rest[at:]
        yield f"order {number}", b"".join(some), frozenset()


@pytest.mark.parametrize("has_mark", [True, False])
def test_every_order_of_a_few_lines(tmp_path: Path, has_mark: bool) -> None:
    """ENG-9: all 720, the header among them, with what is remembered of the journal and without it."""
    journal = small()
    path = tmp_path / "journal.jsonl"

    async def body() -> None:
        mark = await remembered(path, journal.raw)
        for number, some in enumerate(permutations(journal.lines)):
            raw = b"".join(some)
            if raw != journal.raw:
                mutant = (f"order {number}", raw, frozenset[int]())
                await check(path, journal, mutant, mark if has_mark else b"", is_mended=number % 5 == 0)

    anyio.run(body)


def test_orders_and_repetitions_of_every_kind_of_record(tmp_path: Path) -> None:
    """ENG-9, D5: 0 intact records hidden, 0 quiet; and what is there can be folded."""
    journal = Journal(SAMPLE.read_bytes())
    path = tmp_path / "journal.jsonl"
    chance = random.Random(5)

    async def body() -> None:
        mark = await remembered(path, journal.raw)
        for mutant in orders(journal, chance, 300 * LONG if NIGHTLY else 60):
            if mutant[1] != journal.raw:
                await check(path, journal, mutant, mark, is_mended=True)

    anyio.run(body)


def test_one_repeated_line_hides_nothing(tmp_path: Path) -> None:
    """D5, ENG-9: a line with a high number, again before lower ones; each pair of places, for reader and writer."""
    journal = small()
    path = tmp_path / "journal.jsonl"

    async def body() -> None:
        mark = await remembered(path, journal.raw)
        for which in range(1, len(journal.lines)):
            for at in range(len(journal.lines) + 1):
                lines = list(journal.lines)
                lines.insert(at, lines[which])
                mutant = (f"line {which} again at {at}", b"".join(lines), frozenset[int]())
                for remembers in (mark, b""):
                    await check(path, journal, mutant, remembers, is_mended=True)
        project(p.record for p in (await load(tmp_path / "journal.jsonl")).records) if path.exists() else None

    anyio.run(body)
