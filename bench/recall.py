"""Indexing and searching what was said (RCL-1, SES-2, REL-12).

    python bench/recall.py [--tokens 1000000] [--sessions 1000]

Prints a table and asserts nothing. "no index" reads every journal at each search, as it is where SQLite has no FTS5.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import anyio

from perdure.adapters.journal import SessionStore
from perdure.adapters.journal.search import INDEX, StoreArchive
from perdure.engine.tools import recall
from perdure.recall.queries import RecallRequest
from perdure.transcript.messages import Message, MessageId
from perdure.transcript.records import Record
from perdure.wiring import open_session

PARTS = "read write open close parse view edit fold cut line block token cache state error index query session".split()
CHARS_A_TOKEN = 4


def name(chance: random.Random) -> str:
    """An identifier out of a vocabulary that grows slowly, as those of a code base do."""
    return f"{chance.choice(PARTS)}_{chance.choice(PARTS)}{chance.randrange(400)}"


def message(number: int, chance: random.Random) -> Message:
    """A call with a result, or words; result sizes as in recorded sessions: most short, some long."""
    words = chance.choices((40, 120, 400, 1_500), weights=(50, 30, 15, 5))[0]
    text = "\n".join(
        f"{line}: {' '.join(name(chance) if chance.random() < 0.3 else chance.choice(PARTS) for _ in range(10))}"
        for line in range(words // 10)
    )
    role = "assistant" if number % 2 else "user"
    return Message.of(role, f"needle{number} {text}", id=MessageId(f"message-{number:09}"), at=float(number))


async def make(home: Path, sessions: int, tokens: int) -> int:
    """Sessions that hold so many tokens together; returns the characters said."""
    chance, total, number = random.Random(1), 0, 0
    store = SessionStore(home)
    for index in range(sessions):
        files = await store.create(f"s{index}", project=f"/p{index % 20}", created=1.0, durability="process")
        goal = tokens * CHARS_A_TOKEN * (index + 1) // sessions
        while total < goal:
            batch: list[Record] = []
            for _ in range(10):
                said = message(number, chance)
                batch.append(said)
                total, number = total + len(bytes(said.content[0])), number + 1
            await files.journal.append(tuple(batch))
        await files.journal.close()
    return total


def took(run: Callable[[], object], times: int = 1) -> list[float]:
    found = []
    for _ in range(times):
        start = time.perf_counter()
        run()
        found.append((time.perf_counter() - start) * 1000)
    return found


def row(what: str, milliseconds: list[float], beside: str = "") -> None:
    worst = f"worst {max(milliseconds):,.1f}" if len(milliseconds) > 1 else ""
    print(f"  {what:<46} {statistics.median(milliseconds):>10,.1f} ms  {worst:<14} {beside}")


def bench(folder: Path, sessions: int, tokens: int) -> None:
    home = folder / f"{sessions}"
    chars = anyio.run(make, home, sessions, tokens)
    print(f"{sessions:,} sessions, {chars // CHARS_A_TOKEN:,} tokens together")
    archive = StoreArchive(home)

    def search(query: str, where: StoreArchive = archive) -> Callable[[], object]:
        return lambda: anyio.run(where.search, query)

    built = took(archive.rebuild)
    size = (home / INDEX).stat().st_size
    row("index from nothing", built, f"{chars / 1e3 / built[0]:.1f} MB/s, {size / 1e6:.1f} MB")
    row("search, one rare word", took(search("needle77"), 9))
    row("search, three identifiers", took(search("read_view7 cache_state12 parse_line99"), 9))
    prompt = "edit the parser so that read_view7 keeps the token index of a line, and cache its state"
    row("sessions for a prompt", took(lambda: anyio.run(archive.sessions, prompt), 9))
    row("search, two words that are everywhere", took(search("error index"), 9))
    one = StoreArchive(home, "/p0")
    row("search in one project", took(search("needle77 error", one), 9))
    row("sessions for a prompt in one project", took(lambda: anyio.run(one.sessions, prompt), 9))

    async def more() -> None:
        session = await open_session(home, "s0")
        await session.append(message(10**8, random.Random(2)))
        await session.ports.journal.close()

    anyio.run(more)
    row("search after one more message", took(search("needle100000000")))

    async def by_id() -> None:
        session = await open_session(home, "s0", read_only=True)
        await recall(session, RecallRequest(id="message-000000001"))
        await session.ports.journal.close()

    row("recall by id, session opened for it", took(lambda: anyio.run(by_id), 5))
    row("search, no index", took(search("needle77", StoreArchive(home, has_index=False))))


def main() -> None:
    parser = argparse.ArgumentParser(description="Indexing and searching what was said.")
    parser.add_argument("--tokens", type=int, default=1_000_000)
    parser.add_argument("--sessions", type=int, default=1_000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench(Path(folder), 1, args.tokens)
        bench(Path(folder), args.sessions, args.tokens * 4)


if __name__ == "__main__":
    main()
