"""A model server without a model on a local port, for anybody's tests: `python -m perdure.testing.serve`.

It speaks Anthropic Messages (with count_tokens and models), Chat Completions and Responses (with stored responses and
compaction), streaming or not. It enforces the rules of each, keeps a prompt cache and a window, and fails when it is
told to.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec

from perdure.testing.block_rules import ModelRules
from perdure.testing.server import CutStream, ErrorInStream, FakeServer, StreamFault
from perdure.testing.upstream import FakeUpstream, Scripted, overloaded, rate_limited

_PLANNED = 100_000  # answers that faults are planned for; nobody's test is longer


def planned(answers: Sequence[str], *, refuse_every: int = 0, overload_every: int = 0) -> list[Scripted]:
    """The script: the answers in turn, with an error in the place of each so-many-th."""
    script: list[Scripted] = []
    for n in range(1, _PLANNED + 1):
        if refuse_every and n % refuse_every == 0:
            script.append(rate_limited(retry_after=1))
        elif overload_every and n % overload_every == 0:
            script.append(overloaded())
        else:
            script.append(answers[(n - 1) % len(answers)])
    return script


def faults(*, cut_every: int = 0, break_every: int = 0) -> list[StreamFault]:
    """What goes wrong with the stream of each so-many-th answer: it ends, or brings an error."""
    plan: list[StreamFault] = []
    for n in range(1, _PLANNED + 1):
        is_cut, is_broken = cut_every and n % cut_every == 0, break_every and n % break_every == 0
        plan.append(CutStream() if is_cut else ErrorInStream(overloaded()) if is_broken else None)
    return plan


def _number(least: int, most: int | None = None) -> Callable[[str], int]:
    """Reads a whole number of a range, for argparse: what isn't one is said in a line."""

    def number(text: str) -> int:
        value = int(text)
        if value < least or (most is not None and value > most):
            wanted = f"at least {least}" if most is None else f"from {least} to {most}"
            raise argparse.ArgumentTypeError(f"{value} isn't {wanted}")
        return value

    return number


def options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m perdure.testing.serve", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--port", type=_number(0, 65_535), default=0, help="0, the default, takes a free one")
    parser.add_argument(
        "--window",
        type=_number(1),
        metavar="TOKENS",
        help="a longer prompt is refused; without it the window of each model",
    )
    parser.add_argument("--answer", action="append", metavar="TEXT", help="what it says; several are said in turn")
    parser.add_argument("--delay", type=float, default=0.0, metavar="SECONDS", help="between two events of a stream")
    for name, what in (
        ("refuse", "this answer is a rate limit (429)"),
        ("overload", "this answer is an overload (529)"),
        ("cut", "the stream of this answer ends in the middle"),
        ("break", "the stream of this answer brings an error"),
    ):
        parser.add_argument(f"--{name}-every", type=_number(0), default=0, metavar="N", help=what)
    parser.add_argument("--lenient", action="store_true", help="don't check what comes back of thinking")
    return parser.parse_args(arguments)


async def main(arguments: Sequence[str]) -> None:
    """Serve until interrupted; the first line on stdout says where."""
    told = options(arguments)

    def rules(model: str) -> ModelRules:
        known = ModelRules.of(model)
        return replace(known, window_tokens=told.window or known.window_tokens)

    upstream = FakeUpstream(
        rules=rules,
        script=planned(told.answer or ["ok"], refuse_every=told.refuse_every, overload_every=told.overload_every),
        binding="off" if told.lenient else "error",
        require_thinking=not told.lenient,
    )
    server = FakeServer(upstream, delay_seconds=told.delay, port=told.port, keeps_requests=False)
    server.faults.extend(faults(cut_every=told.cut_every, break_every=told.break_every))
    async with server:
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        try:
            await asyncio.Event().wait()
        finally:
            counted = upstream.statistics
            said = {"requests": counted.requests, "refused": counted.refused, "violations": dict(counted.violations)}
            sys.stderr.write(f"{msgspec.json.encode(said).decode()}\n")


if __name__ == "__main__":
    try:
        asyncio.run(main(sys.argv[1:]))
    except KeyboardInterrupt:
        pass
    except OSError as e:
        sys.exit(f"nothing can listen there: {e.strerror or e}: give another --port")
