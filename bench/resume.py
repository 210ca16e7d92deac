"""Opening, listing and appending, beside what the machine itself can do (SPD-3, ENG-5, REL-1).

    python bench/resume.py [--mb 200] [--sessions 1000] [--appends 500]

Prints a table and asserts nothing: figures of a disk are only worth what its probe in the same run says.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import msgspec

from perdure.adapters.journal import FileJournal, SessionStore, verify
from perdure.transcript.blocks import text_block
from perdure.transcript.codec import FORMAT, VERSION, encode_header, encode_line
from perdure.transcript.messages import Message, MessageId, content_of
from perdure.transcript.records import Compacted, Header, Record, Titled, Transaction

HEADER = Header(format=FORMAT, version=VERSION, session="bench", created=1.0, project="/bench")
WORDS = "the file reads a line of the journal and returns its value or raises an error when nothing is there".split()


def message(name: str, chars: int, chance: random.Random) -> Message:
    text = " ".join(chance.choices(WORDS, k=max(1, chars // 5)))
    return Message(id=MessageId(name), role="user", content=content_of([text_block(text)]), origin="user", at=1.0)


def lines(size: int, chance: random.Random) -> Iterator[tuple[int, bytes]]:
    """Offsets and lines of a session of this size: most messages short, some tool results long."""
    texts = [message("x", chars, chance).content for chars in (200, 400, 800, 1_500, 3_000, 6_000, 20_000, 60_000)]
    offset, seq = len(encode_header(HEADER)), 0
    while offset < size:
        seq += 1
        content = chance.choices(texts, weights=(20, 20, 20, 15, 10, 8, 5, 2))[0]
        record = Message(id=MessageId(f"m{seq}"), role="user", content=content, origin="user", at=1.0)
        line = encode_line(seq, (record,))
        yield offset, line
        offset += len(line)


def write_journals(folder: Path, size: int) -> tuple[Path, Path]:
    """One without a boundary, and the same with a boundary 1 MB before its end that keeps ten messages."""
    without, with_one = folder / "without.jsonl", folder / "with.jsonl"
    chance = random.Random(1)
    kept: list[tuple[int, str]] = []
    with open(without, "wb") as plain, open(with_one, "wb") as marked:
        plain.write(encode_header(HEADER))
        marked.write(encode_header(HEADER))
        shift = 0
        for seq, (offset, line) in enumerate(lines(size, chance), 1):
            plain.write(line)
            if not shift and offset > size - 1_000_000:
                ids = tuple(MessageId(name) for _, name in kept)
                boundary = Compacted(
                    id="b", trigger="auto", strategy="full", summary=(), kept=ids, kept_from=kept[0][0]
                )
                marked.write(encode_line(seq, (boundary,)))
                shift = 1
            if shift:
                transaction = msgspec.json.decode(line, type=Transaction)
                line = encode_line(seq + shift, transaction.records)
            else:
                kept = [*kept[-9:], (offset, f"m{seq}")]
            marked.write(line)
    return without, with_one


def best_ms(run: Callable[[], Any], times: int = 5) -> float:
    took = []
    for _ in range(times):
        start = time.perf_counter()
        result = run()
        took.append((time.perf_counter() - start) * 1000)
        del result
    return min(took)


def floor(path: Path) -> list[Transaction]:
    """Read and decode, and nothing else."""
    decode = msgspec.json.Decoder(Transaction).decode
    return [decode(line) for line in path.read_bytes().splitlines()[1:]]


def opened(path: Path, *, read_only: bool) -> int:
    async def body() -> int:
        journal = await FileJournal.open(path, read_only=read_only)
        try:
            return len((await journal.load()).records)
        finally:
            await journal.close()

    return anyio.run(body)


def row(what: str, value: float, unit: str, beside: str = "") -> None:
    print(f"  {what:<58} {value:>10.2f} {unit:<4} {beside}")


def bench_resume(folder: Path, megabytes: int) -> None:
    without, with_one = write_journals(folder, megabytes * 1_000_000)
    print(f"resume of {megabytes} MB, page cache warm (SPD-3)")
    loop = best_ms(lambda: anyio.run(anyio.sleep, 0))
    with_ms = best_ms(lambda: opened(with_one, read_only=False))
    row("an event loop started and stopped (in the rows below)", loop, "ms")
    row("boundary 1 MB before the end: open + load", with_ms, "ms", f"{opened(with_one, read_only=True)} records")
    floor_ms = best_ms(lambda: floor(without), 3)
    without_ms = best_ms(lambda: opened(without, read_only=False), 3)
    row("no boundary: msgspec read + decode, the floor", floor_ms, "ms")
    row("no boundary: open + load", without_ms, "ms", f"{without_ms / floor_ms:.2f} x floor (bar: 4)")
    row("verify, whole file", best_ms(lambda: verify(without), 1), "ms")


def bench_listing(folder: Path, count: int) -> None:
    async def make() -> None:
        chance = random.Random(2)
        store = SessionStore(folder)
        text = message("m", 900, chance)
        filler: tuple[Record, ...] = (text,)
        for number in range(count):
            files = await store.create(f"s{number}", project=f"/p{number % 20}", created=1.0, durability="process")
            for _ in range(chance.choice((2, 20, 200))):
                await files.journal.append(filler)
            await files.journal.append(
                (Titled(title=f"Session {number}", last_prompt="go", messages=9, branch="main"),)
            )
            await files.journal.append((message("last", 300, chance),))
            await files.journal.close()

    anyio.run(make)
    print(f"listing of {count} sessions (ENG-5)")
    row("SessionStore.list()", best_ms(SessionStore(folder).list), "ms", "bar: 300")


def bench_appends(folder: Path, count: int) -> None:
    chance = random.Random(3)
    records = (message("m", 1_500, chance),)
    line = encode_line(1, records)

    def probe() -> list[float]:
        fd = os.open(folder / "probe", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        took = []
        for _ in range(count):
            start = time.perf_counter()
            os.write(fd, line)
            os.fdatasync(fd)
            took.append((time.perf_counter() - start) * 1000)
        os.close(fd)
        return took

    async def alone(durability: Any) -> list[float]:
        journal = await FileJournal.create(folder / f"{durability}.jsonl", HEADER, durability=durability)
        took = []
        for _ in range(count):
            start = time.perf_counter()
            await journal.append(records)
            took.append((time.perf_counter() - start) * 1000)
        await journal.close()
        return took

    async def together() -> float:
        journal = await FileJournal.create(folder / "together.jsonl", HEADER)
        start = time.perf_counter()
        async with anyio.create_task_group() as group:
            for _ in range(count):
                group.start_soon(journal.append, records)
        await journal.close()
        return (time.perf_counter() - start) * 1000 / count

    print(f"appends of {len(line)} bytes, {count} of them (REL-1)")
    for what, took in (
        ("write + fdatasync, the probe", probe()),
        ("append, durability=commit", anyio.run(alone, "commit")),
        ("append, durability=process", anyio.run(alone, "process")),
        ("write + fdatasync, the probe again", probe()),
    ):
        row(what, statistics.median(took), "ms", f"p99 {statistics.quantiles(took, n=100)[98]:.2f} ms")
    row("commit, all at once: each (group commit)", anyio.run(together), "ms")


def main() -> None:
    parser = argparse.ArgumentParser(description="Opening, listing and appending.")
    parser.add_argument("--mb", type=int, default=200)
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--appends", type=int, default=500)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bench_appends(folder, args.appends)
        bench_listing(folder / "home", args.sessions)
        bench_resume(folder, args.mb)


if __name__ == "__main__":
    main()
