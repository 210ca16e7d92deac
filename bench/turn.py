"""Preparing a turn: cost per turn as a session grows, beside one `orjson.dumps` of the same request (SPD-1).

Usage: python bench/turn.py [--tokens 5000000] [--window 1000000]

A made agent session (prompts, parallel calls, results of 0.3 to 40 KB out of the standard library's sources, seeded)
is driven through a memory session, without usage reports, so that everything is estimated; its messages are made
outside what is timed. Printed at each size: CPU milliseconds per turn for appending (decoding, counting, folding) and
for preparing (passes, compactions when due, the request body), for resting (reading for the ledger while nobody waits,
no part of the turn), and one `orjson.dumps` of the request, the mean of samples over the same stretch; at the end, how
the cost of the session grows with its length once the window has filled (1.0 is linear).
"""

from __future__ import annotations

import argparse
import math
import random
import sysconfig
import time
from dataclasses import dataclass, replace
from pathlib import Path

import anyio
import orjson

from perdure import Message
from perdure.engine.session import LiveSession, ModelWindow
from perdure.engine.turn import prepare
from perdure.wiring import SessionOptions, memory_session

WIDTHS = (9, 8, 6, 7, 8, 7, 7, 14, 10)
TOOLS = ("Read", "Bash", "Grep")


def library() -> str:
    """Real text for the results: sources of the Python standard library, about 8 MB."""
    root = Path(sysconfig.get_paths()["stdlib"])
    paths = sorted(root.glob("*.py")) + sorted(root.glob("*/*.py"))
    return "".join(path.read_text(encoding="utf-8", errors="replace") for path in paths[:400])


class Talk:
    """The messages of one turn after the other, made outside what is timed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.number = 0
        self.text = library()

    def some(self, chars: int) -> str:
        """A stretch of real text, found anew each time."""
        start = self.rng.randrange(len(self.text) - chars)
        return self.text[start : start + chars]

    def next(self) -> tuple[Message | None, Message, Message]:
        """Perhaps a prompt; the model's answer with its calls; their results."""
        rng, number = self.rng, self.number
        self.number += 1
        prompt = Message.of("user", self.some(400)) if number % 8 == 0 else None
        ids = [f"toolu_{rng.getrandbits(96):024x}" for _ in range(rng.choice((1, 1, 1, 2, 4)))]
        uses = [
            {"type": "tool_use", "id": i, "name": rng.choice(TOOLS), "input": {"path": f"/src/{i}.py"}} for i in ids
        ]
        answer = Message.of("assistant", [{"type": "text", "text": self.some(300)}, *uses], model="bench")
        sizes = [int(min(40_000, rng.paretovariate(0.8) * 300)) for _ in ids]
        pairs = zip(ids, sizes, strict=True)
        results = [{"type": "tool_result", "tool_use_id": i, "content": self.some(size)} for i, size in pairs]
        return prompt, answer, Message.of("user", results)


@dataclass
class Spent:
    """CPU seconds: of all turns, and of those since the last mark."""

    append: float = 0.0
    prepare: float = 0.0
    rest: float = 0.0
    turns: int = 0

    def __sub__(self, other: Spent) -> Spent:
        rest = self.rest - other.rest
        return Spent(self.append - other.append, self.prepare - other.prepare, rest, self.turns - other.turns)


async def turn(session: LiveSession, talk: Talk, spent: Spent) -> None:
    """One turn: the prompt if there is one, the request, the model's answer, the results."""
    prompt, answer, results = talk.next()
    started = time.process_time()
    if prompt is not None:
        await session.append(prompt)
    middle = time.process_time()
    await prepare(session)
    prepared = time.process_time()
    await session.append(answer)
    await session.append(results)
    said = time.process_time()
    session.rest()
    spent.append += middle - started + said - prepared
    spent.prepare += prepared - middle
    spent.rest += time.process_time() - said
    spent.turns += 1


async def measure(total: int, window: int) -> None:
    talk, spent, last = Talk(18), Spent(), Spent()
    session = await memory_session(parts=SessionOptions(window=ModelWindow(window, "setting")))
    marks = [m for m in (50_000, 200_000, 1_000_000, 2_000_000, 5_000_000) if m <= total]
    said, seen = 0, 0
    points = []
    samples: list[float] = []
    print(f"window {window:,} tokens; CPU milliseconds per turn, over the stretch since the row above")
    heads = ("said", "view", "turns", "append", "prepare", "rest", "dumps", "prepare/dumps", "all/dumps")
    print(" ".join(f"{head:>{width}}" for head, width in zip(heads, WIDTHS, strict=True)))
    while marks:
        await turn(session, talk, spent)
        count = session.view.state.messages - seen
        seen += count
        said += sum(item.size.live for item in session.view.items[-count:])
        if spent.turns % 50 == 0:
            samples.append(_dumps_seconds((await prepare(session)).request.body))
        if said < marks[0]:
            continue
        prepared = await prepare(session)
        samples.append(_dumps_seconds(prepared.request.body))
        dumps = sum(samples) / len(samples)
        stretch = spent - last
        one, two, three = (part / stretch.turns for part in (stretch.append, stretch.prepare, stretch.rest))
        points.append((said, spent.append + spent.prepare + spent.rest))
        ratios = (f"{two / dumps:.2f}", f"{(one + two) / dumps:.2f}")
        times = tuple(f"{seconds * 1e3:.3f}" for seconds in (one, two, three, dumps))
        cells = (f"{said:,}", f"{prepared.tokens:,}", str(spent.turns), *times, *ratios)
        print(" ".join(f"{cell:>{width}}" for cell, width in zip(cells, WIDTHS, strict=True)))
        marks.pop(0)
        samples.clear()
        last = replace(spent)
    if len(points) > 1:
        (x0, y0), (x1, y1) = points[-2], points[-1]
        print(f"growth exponent of the session's cost: {math.log(y1 / y0) / math.log(x1 / x0):.2f} (1.0 is linear)")


def _dumps_seconds(body: bytes) -> float:
    """One `orjson.dumps` of the request, the best of five."""
    value, best = orjson.loads(body), math.inf
    for _ in range(5):
        started = time.process_time()
        orjson.dumps(value)
        best = min(best, time.process_time() - started)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--tokens", type=int, default=5_000_000, help="length of the session, in tokens")
    parser.add_argument("--window", type=int, action="append", help="window in tokens; may be given more than once")
    options = parser.parse_args()
    for window in options.window or (200_000, 1_000_000):
        anyio.run(measure, options.tokens, window)
        print()


if __name__ == "__main__":
    main()
