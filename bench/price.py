"""What the logs paid, what we would have paid, and what each kept in view (TURN-16).

    python bench/price.py FOLDER... [--set policy=thrifty] [--json]

Replays every recording whose log says what was paid, with the settings given, offline. Both prices are list prices:
the log's for the usage that it reports, ours for the requests that the replay makes, with the provider's cache followed
call by call. What was kept is counted in QLT-1's facts that stand in the view at a place: at each compaction of the log
(its summary and what it kept, against the view that we would have sent with the next call), and at the last place
behind which the log says enough to tell what was needed: half of the session, or 40,000 tokens, before its end.

The rule that decides (docs/adr/0033-a-move-has-to-pay.md) was tuned on those of ../shared/data: expect less elsewhere.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import anyio

from perdure.adapters.config import load
from perdure.adapters.logs import find_logs
from perdure.compaction.logged import view_as_logged
from perdure.errors import PerdureError
from perdure.lab.bench.live_view import text_of
from perdure.lab.bench.places import BenchCut, cuts_of_recording, is_one_project
from perdure.lab.bench.probe import HORIZON_TOKENS, gold_of, shown, utterances_of
from perdure.lab.bench.scores import KeptCount, score
from perdure.lab.replay.cost import logged_cost
from perdure.lab.replay.drive import ReplayDrive, ReplayOptions
from perdure.logs.detect import read_recordings
from perdure.logs.recording import RecordedMessage, Recording
from perdure.transcript.tokens import block_size

LEAST_TOKENS = 20_000  # a session smaller than this never comes near a limit
NOTHING = KeptCount(0, 0)


@dataclass(slots=True)
class Row:
    """One recording: what was paid, and of the facts at its places how many each view kept."""

    name: str
    calls: int
    logged_usd: float
    our_usd: float
    moves: int
    compactions: int
    invalid: int
    at_boundaries: tuple[KeptCount, KeptCount] = (NOTHING, NOTHING)  # the log's, ours
    at_end: tuple[KeptCount, KeptCount] = (NOTHING, NOTHING)


@dataclass(slots=True)
class Watched:
    """Our view at the first call at or behind each place."""

    places: list[BenchCut]
    texts: dict[int, str] = field(default_factory=dict)

    def __call__(self, drive: ReplayDrive, step: RecordedMessage) -> None:
        for number, place in enumerate(self.places):
            if number not in self.texts and step.line >= place.line:
                self.texts[number] = text_of(drive.session.view)


def places_of(recording: Recording, name: str) -> list[BenchCut]:
    tokens = sum(block_size(block).base for message in recording.messages for block in message.blocks)
    if tokens < LEAST_TOKENS:
        return []
    share = max(0.5, 1 - HORIZON_TOKENS / tokens)
    return cuts_of_recording(recording, name, shares=(share,), least_tokens=LEAST_TOKENS)


def logged_text(recording: Recording, place: BenchCut) -> str | None:
    """What the log's own model saw at a place; None where the log doesn't show it."""
    if place.where == "boundary":
        return None if place.summary is None else shown(place.summary)
    steps = tuple(step for step in recording.steps if step.line < place.line)
    return text_of(view_as_logged(replace(recording, steps=steps)))


async def measured(recording: Recording, path: Path, options: ReplayOptions, *, is_one: bool) -> Row | None:
    """Replay a recording; None when its log says nothing of what was paid, or its model has no price."""
    places = places_of(recording, path.name) if is_one else []
    drive = await ReplayDrive.start(recording, options)
    drive.watch = watched = Watched(places)
    await drive.run()
    logged = logged_cost(drive.log.usage, drive.session.model)
    if not logged.usd or drive.cost.usd is None:
        return None
    row = Row(
        recording.session[:8],
        drive.turns,
        logged.usd,
        drive.cost.usd,
        len(drive.moves),
        len(drive.compactions),
        drive.check.invalid,
    )
    for number, place in enumerate(places):
        theirs, ours = logged_text(recording, place), watched.texts.get(number)
        if theirs is None or ours is None:
            continue
        gold = gold_of(utterances_of(place.before, place.lines), utterances_of(place.after, place.lines))
        pair = score(gold, theirs).tallies["facts"], score(gold, ours).tallies["facts"]
        if place.where == "boundary":
            row.at_boundaries = plus(row.at_boundaries, pair)
        else:
            row.at_end = plus(row.at_end, pair)
    return row


def plus(one: tuple[KeptCount, KeptCount], other: tuple[KeptCount, KeptCount]) -> tuple[KeptCount, KeptCount]:
    return one[0].plus(other[0]), one[1].plus(other[1])


def rows_of(files: Sequence[Path], options: ReplayOptions) -> list[Row]:
    rows: list[Row] = []
    for path in files:
        try:
            data = path.read_bytes()
            recordings = read_recordings(data, path.name)
        except (PerdureError, OSError):
            continue
        for recording in recordings:
            row = anyio.run(lambda: measured(recording, path, options, is_one=is_one_project(data)))  # noqa: B023
            if row is not None:
                rows.append(row)
    return rows


def _pair(pair: tuple[KeptCount, KeptCount]) -> str:
    theirs, ours = pair
    return f"{theirs.kept:>5}{ours.kept:>6} /{theirs.of:>5}" if theirs.of else f"{'-':>18}"


def table(rows: Sequence[Row]) -> str:
    """The rows and their sums, for people."""
    head = f"{'session':<10}{'calls':>6}{'log $':>9}{'ours $':>9}{'ratio':>7}{'moves':>7}{'compacted':>11}"
    lines = [
        head + f"   {'facts at its compactions':<26}{'facts near its end'}",
        " " * 61 + "log  ours / all            log  ours / all",
    ]
    total = Row("all", 0, 0.0, 0.0, 0, 0, 0)
    for row in [*rows, total]:
        if row is not total:
            total.calls += row.calls
            total.logged_usd += row.logged_usd
            total.our_usd += row.our_usd
            total.moves += row.moves
            total.compactions += row.compactions
            total.invalid += row.invalid
            total.at_boundaries = plus(total.at_boundaries, row.at_boundaries)
            total.at_end = plus(total.at_end, row.at_end)
        lines.append(
            f"{row.name:<10}{row.calls:>6}{row.logged_usd:>9.2f}{row.our_usd:>9.2f}"
            f"{row.our_usd / row.logged_usd if row.logged_usd else 0:>7.2f}{row.moves:>7}{row.compactions:>11}"
            f"   {_pair(row.at_boundaries)}        {_pair(row.at_end)}"
        )
    lines.append(f"requests that broke a rule: {total.invalid}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, help="recordings, or folders of them")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting for the replay")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each recording")
    asked = parser.parse_args()
    files = find_logs(asked.folders).paths
    if not files:
        sys.exit("no recordings there: python bench/price.py FOLDER...")
    settings = load({}, cwd=Path("/"), flags=asked.set).settings
    rows = rows_of(files, ReplayOptions(settings=settings))
    if asked.json:
        for row in rows:
            print(json.dumps({name: getattr(row, name) for name in Row.__dataclass_fields__}))
    else:
        print(table(rows))


if __name__ == "__main__":
    main()
