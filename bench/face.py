"""One engine: what a loop of one's own waits for, beside `run` (LIB-8).

Usage: python bench/face.py [--tokens 1000000] [--window 200000]

The turns of `bench/turn.py` go through `Session`, on disk, with everything on that is on by default; no model is asked
beside the conversation, and notes may be updated as often as they would be in the hours that such a session takes. The
ways: `run`, `append` and `prepare`, and these two of `perdure.sync`. Printed for each: turns; CPU milliseconds a turn
in all threads; milliseconds by the clock in front of an answer (appending and preparing; of `run`, until it calls its
model) and behind it, the mean and the longest, and of the longest in front what all threads computed meanwhile;
automatic compactions; a last `compact` by hand, by the clock and in CPU, with who wrote the record; the size of the
notes, and how many messages came since their last update.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from bench.turn import Talk

import perdure.sync
from perdure import Message, Session
from perdure.compaction.from_notes import CURSOR
from perdure.context.replies import ModelInfo, Reply
from perdure.context.request import ModelRequest
from perdure.engine.session import Services
from perdure.transcript.messages import ResponseId
from perdure.transcript.records import Compacted

WIDTHS = (22, 6, 9, 7, 8, 6, 7, 8, 9, 8, 6, 15, 6, 6)
HEADS = "way turns cpu/turn front longest cpu behind longest compacts compact cpu by notes since"


class Answering:
    """A model that gives the answer it is told to, and notes when it was asked."""

    def __init__(self, window: int) -> None:
        self.about = ModelInfo(id="bench", protocol="anthropic", window_tokens=window)
        self.answer, self.asked_at = Message.of("assistant", ""), 0.0

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Reply, None]:
        self.asked_at = time.perf_counter()
        yield Reply(response=ResponseId(""), model="bench", blocks=self.answer.blocks, stop_reason="end_turn")

    async def close(self) -> None:
        """Nothing is open."""


class ByRun:
    """`run` with a model."""

    name = "run"

    def __init__(self, window: int) -> None:
        self.model: Any = Answering(window)

    async def turn(self, session: Any, said: list[Message], answer: Message) -> float:
        """Have the answer; gives when it came."""
        self.model.answer = answer
        await session.run(said, self.model)
        asked: float = self.model.asked_at
        return asked


class ByHand:
    """`append` and `prepare`, and the model is the program's."""

    name = "append, prepare"

    async def turn(self, session: Any, said: list[Message], answer: Message) -> float:
        """Have the answer; gives when it came."""
        await session.append(*said)
        await session.prepare()
        asked = time.perf_counter()
        await session.append(answer)
        return asked


class WithoutLoop(ByHand):
    """The same of `perdure.sync`."""

    name = "append, prepare, sync"

    async def turn(self, session: Any, said: list[Message], answer: Message) -> float:
        """Have the answer; gives when it came."""
        session.append(*said)
        session.prepare()
        asked = time.perf_counter()
        session.append(answer)
        return asked


Way = ByRun | ByHand


@dataclass(slots=True)
class Waits:
    """Milliseconds of each turn: by the clock in front of its answer and behind it, and in CPU in front."""

    front: list[float] = field(default_factory=list)
    behind: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


async def talk_of(session: Any, way: Way, total: int) -> Waits:
    """Say so many tokens; gives how long each turn waited."""
    talk, said, tokens, waits = Talk(18), list[Message](), 0, Waits()
    while tokens < total:
        prompt, answer, results = talk.next()
        said = said or [prompt or Message.of("user", "Go on.")]
        tokens += sum(len(raw) for one in (*said, answer) for raw in one.content) // 4
        began, computed = time.perf_counter(), time.process_time()
        asked = await way.turn(session, said, answer)
        waits.front.append((asked - began) * 1e3)
        waits.behind.append((time.perf_counter() - asked) * 1e3)
        waits.cpu.append((time.process_time() - computed) * 1e3)
        said = [results]
    await way.turn(session, said, Message.of("assistant", "It is done."))
    return waits


def print_row(way: Way, told: Waits, cells: tuple[str, ...], cpu: float) -> None:
    turns, longest = len(told.front), max(told.front)
    means = [sum(some) / turns for some in (told.front, told.behind)]
    figures = (means[0], longest, told.cpu[told.front.index(longest)], means[1], max(told.behind))
    row = (way.name, str(turns), f"{cpu / turns * 1e3:.2f}", *(f"{one:.1f}" for one in figures), *cells)
    print(" ".join(f"{cell:>{width}}" for cell, width in zip(row, WIDTHS, strict=True)), flush=True)


def cells_of(session: Any, took: tuple[float, float], done: Any, boundaries: int, home: Path) -> tuple[str, ...]:
    notes = sum(path.stat().st_size for path in home.rglob("summary.md"))
    view = session.view
    cursor = view.state.cursors.get(CURSOR)
    since = "none" if cursor is None else str(len(view.items) - 1 - view.positions.get(cursor.message, -1))
    by = done.strategy or done.reason.split(":")[0]
    return (str(boundaries), *(f"{seconds * 1e3:.0f}" for seconds in took), by, str(notes), since)


def options(window: int, boundaries: list[Compacted]) -> dict[str, Any]:
    """Everything as it is by default, but that no model is asked beside the conversation."""
    jobs = ("summarizer_models", "notes_models", "extractor_models")
    settings = {"window_tokens": window, "notes_runs_per_hour": 0, **dict.fromkeys(jobs, ("offline",))}
    return {"settings": settings, "services": Services(on_boundary=(boundaries.append,))}


async def in_loop(way: Way, home: Path, total: int, window: int) -> None:
    automatic: list[Compacted] = []
    async with Session.create(".", home=home, **options(window, automatic)) as session:
        await session.set_prefix(model="bench", system="You help.")
        cpu = time.process_time()
        told = await talk_of(session, way, total)
        cpu, count, began, computed = (
            time.process_time() - cpu,
            len(automatic),
            time.perf_counter(),
            time.process_time(),
        )
        done = await session.compact()
        took = time.perf_counter() - began, time.process_time() - computed
        cells = cells_of(session, took, done, count, home)
    print_row(way, told, cells, cpu)


def without_loop(way: Way, home: Path, total: int, window: int) -> None:
    automatic: list[Compacted] = []
    with perdure.sync.Session.create(".", home=home, **options(window, automatic)) as session:
        session.set_prefix(model="bench", system="You help.")
        cpu = time.process_time()
        told = driven(talk_of(session, way, total))
        cpu, count, began, computed = (
            time.process_time() - cpu,
            len(automatic),
            time.perf_counter(),
            time.process_time(),
        )
        done = session.compact()
        took = time.perf_counter() - began, time.process_time() - computed
        cells = cells_of(session, took, done, count, home)
    print_row(way, told, cells, cpu)


def driven(work: Coroutine[Any, Any, Waits]) -> Waits:
    """What a coroutine gives that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as end:
        told: Waits = end.value
        return told
    raise AssertionError("it waits")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--tokens", type=int, default=1_000_000, help="length of the session, in tokens")
    parser.add_argument("--window", type=int, action="append", help="window in tokens; may be given more than once")
    given = parser.parse_args()
    ways: list[Callable[[int], Way]] = [ByRun, lambda _: ByHand(), lambda _: WithoutLoop()]
    for window in given.window or (200_000, 1_000_000):
        print(f"{given.tokens:,} tokens through a window of {window:,}; milliseconds")
        print(" ".join(f"{head:>{width}}" for head, width in zip(HEADS.split(), WIDTHS, strict=True)))
        for make in ways:
            way = make(window)
            with tempfile.TemporaryDirectory() as folder:
                if isinstance(way, WithoutLoop):
                    without_loop(way, Path(folder), given.tokens, window)
                else:
                    anyio.run(in_loop, way, Path(folder), given.tokens, window)
        print()


if __name__ == "__main__":
    main()
