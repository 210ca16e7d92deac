"""What the plugin costs, and what it adds to compactions that happened (PLG-1).

    python bench/plugin.py [--mb 100] [--runs 9] [--data FOLDER] [--only times|fidelity]

Times: hooks, each a process of its own, on a log of so many megabytes, made of recordings over and over with ids of
their own: a log that no hook saw before, one that is caught up with, one that grows. Wall time is what a person waits;
CPU time is what it takes on a machine that has nothing else to do. Connections and processes that hooks start are
counted by the interpreter's own audit events.

Fidelity: at each compaction in the recordings whose summary the log shows, what was needed afterwards and stands in the
real summary alone, in the summary with the record as the hook gives it (in one, two and three parts), and, for
comparison, in the summary with as many tokens of what was said last.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from perdure.lab.bench.baselines import keep_last
from perdure.lab.bench.places import BenchCut, cuts_of_recording, is_one_project
from perdure.lab.bench.probe import Gold, gold_of, shown, utterances_of
from perdure.lab.bench.report import RowSums
from perdure.lab.bench.scores import score
from perdure.logs.claude_code import read
from perdure.plugin.carried import open_carried
from perdure.plugin.record import record_parts
from perdure.transcript.tokens import base_tokens

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data" / "claude_code"
WORDS = "mocks threads sockets clocks globals fixtures sleeps dates files".split()
LEAST_TOKENS = 20_000  # before a compaction; less teaches nothing
AXES = ("facts", "far", "context", "line", "commands", "edited", "words", "failing", "todos", "last")
_AUDITED = """
import sys
counts = {"socket.connect": 0, "subprocess.Popen": 0, "os.fork": 0, "os.posix_spawn": 0, "os.exec": 0}
sys.addaudithook(lambda event, arguments: counts.__setitem__(event, counts[event] + 1) if event in counts else None)
from perdure.plugin.hook import main
main(["hook"])
sys.stderr.write(repr(counts))
"""


# --- times ------------------------------------------------------------------------------------------------------------


@dataclass
class HookTimes:
    """How long some runs of a hook took."""

    name: str
    wall: list[float]
    cpu: list[float]

    def row(self) -> str:
        wall, cpu = sorted(self.wall), sorted(self.cpu)
        return (
            f"{self.name:<52} {len(wall):>4} {statistics.median(wall) * 1000:>9.0f} {wall[-1] * 1000:>9.0f} "
            f"{statistics.median(cpu) * 1000:>11.0f} {cpu[-1] * 1000:>9.0f}"
        )


@dataclass
class HookBench:
    """Hooks on one log, with a state of its own."""

    folder: Path
    log: Path
    session: str = "bench"

    @property
    def state(self) -> Path:
        return self.folder / "plugins/data/perdure" / "sessions" / self.session / "state"

    def offset(self) -> int:
        return int(json.loads(self.state.read_bytes().partition(b"\n")[0]).get("offset", 0))

    def run(self, event: str, **more: Any) -> tuple[float, float, str]:
        """Wall seconds, CPU seconds, and what the hook said."""
        given = {"hook_event_name": event, "session_id": self.session, "transcript_path": str(self.log), "cwd": "/srv"}
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-P", "-m", "perdure.plugin", "hook"],
            input=json.dumps({**given, **more}).encode(),
            env=self.environ(),
            stdout=subprocess.PIPE,
            check=True,
        )
        wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout.decode()

    def environ(self) -> dict[str, str]:
        """That of a hook, with compiled modules as an installation has them, whatever is set here."""
        own = {"CLAUDE_PLUGIN_DATA": "plugins/data/perdure", "PERDURE_HOME": "home", "PYTHONPYCACHEPREFIX": "compiled"}
        outer = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        return {**outer, **{name: str(self.folder / folder) for name, folder in own.items()}}

    def ask(self, text: str) -> None:
        """Have a person say something, now."""
        said = {"type": "user", "uuid": str(uuid.uuid4()), "message": {"role": "user", "content": text}}
        with self.log.open("a") as file:
            file.write(json.dumps({**said, "timestamp": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%f}Z"}) + "\n")

    def compile(self) -> None:
        """Have each kind of hook run once."""
        other = HookBench(self.folder, self.folder / "projects/first.jsonl", "first")
        other.ask("Never use mocks of the parser in tests.")
        for event in ("PreCompact", "SessionStart", "SessionEnd"):
            other.run(event, source="compact")

    def times(self, name: str, runs: int, event: str, *, before: Any = None, **more: Any) -> HookTimes:
        found = HookTimes(name, [], [])
        for _ in range(runs):
            if before is not None:
                before()
            wall, cpu, _ = self.run(event, **more)
            found.wall.append(wall)
            found.cpu.append(cpu)
        return found


_UUID = re.compile(rb'(?<=[uU]uid":")[0-9a-f]{8}')


def _other(number: int, found: re.Match[bytes]) -> bytes:
    return b"%08x" % (int(found[0], 16) ^ number)


def copies(files: Sequence[Path], size: int) -> Iterator[bytes]:
    """Recordings over and over, each time with other ids, until there are so many bytes."""
    number = written = 0
    while written < size:
        for file in files:
            number += 1
            data = _UUID.sub(partial(_other, number), file.read_bytes())
            data = data.replace(b"toolu_", b"toolu_%d_" % number)
            yield data
            written += len(data)
            if written >= size:
                return


def times(files: Sequence[Path], megabytes: int, runs: int) -> None:
    """Print how long hooks take."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        bench = HookBench(folder, folder / "projects/log.jsonl")
        bench.log.parent.mkdir()
        with bench.log.open("wb") as out:
            for data in copies(files, megabytes * 1_000_000):
                out.write(data)
        bench.compile()
        size = bench.log.stat().st_size
        print(f"a log of {size / 1e6:.0f} MB; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
        print(f"{'hook':<52} {'runs':>4} {'wall ms':>9} {'most':>9} {'CPU ms':>11} {'most':>9}")
        began = [time.perf_counter()]

        def forget() -> None:
            if bench.state.exists():
                bench.state.unlink()

        rows = [
            bench.times(
                "SessionStart, source compact: no hook saw the log",
                runs,
                "SessionStart",
                before=forget,
                source="compact",
            ),
            bench.times("PostToolUse: no hook saw the log", runs, "PostToolUse", before=forget),
        ]
        forget()
        catching = HookTimes("PostToolUse: the log is caught up with", [], [])
        while not bench.state.exists() or size - bench.offset() > 200_000:
            wall, cpu, _ = bench.run("PostToolUse")
            catching.wall.append(wall)
            catching.cpu.append(cpu)
        rows.append(catching)
        rows.append(bench.times("PostToolUse: little came", runs, "PostToolUse"))
        rest = files[0].read_bytes().splitlines(keepends=True)
        at = [0]

        def grow() -> None:
            with bench.log.open("ab") as out:
                wanted = 200_000
                while wanted > 0:
                    out.write(rest[at[0] % len(rest)])
                    wanted -= len(rest[at[0] % len(rest)])
                    at[0] += 1

        rows.append(bench.times("PostToolUse: 200 KB came", runs, "PostToolUse", before=grow))
        rows.append(bench.times("PreCompact: 200 KB came", runs, "PreCompact", before=grow, trigger="auto"))
        rows.append(bench.times("SessionStart, source compact", runs, "SessionStart", source="compact"))
        rows.append(bench.times("SessionStart, source resume", runs, "SessionStart", source="resume"))
        words = iter(WORDS)
        ends = bench.times(
            "SessionEnd: something to save",
            min(runs, 9),
            "SessionEnd",
            before=lambda: bench.ask(f"Never use {next(words)} in tests of the parser."),
        )
        rows.append(ends)
        rows.append(bench.times("SessionEnd: nothing to save", runs, "SessionEnd", reason="other"))
        for row in rows:
            print(row.row())
        print(f"caught up in {len(catching.wall)} hooks; {time.perf_counter() - began[0]:.0f} s in all")
        given = {"session_id": "bench", "transcript_path": str(bench.log), "cwd": "/srv", "source": "compact"}
        audited = {}
        for event in ("PreCompact", "PostToolUse", "SessionStart", "SessionEnd"):
            done = subprocess.run(
                [sys.executable, "-P", "-c", _AUDITED],
                input=json.dumps({**given, "hook_event_name": event}).encode(),
                env=bench.environ(),
                capture_output=True,
                check=True,
            )
            audited[event] = done.stderr.decode()
        print("connections and processes that hooks start:", *(f"\n  {name}: {what}" for name, what in audited.items()))
        errors = bench.state.parents[2] / "errors.log"
        print("errors:", errors.read_text() if errors.exists() else "none")


# --- fidelity ---------------------------------------------------------------------------------------------------------


def boundaries(files: Sequence[Path]) -> Iterator[tuple[Path, BenchCut, Gold]]:
    """The compactions whose summary is in the log, and what was needed behind them."""
    for file in files:
        data = file.read_bytes()
        if not is_one_project(data):
            continue
        for recording in read(data, file.name):
            for place in cuts_of_recording(recording, str(file), shares=(), least_tokens=LEAST_TOKENS):
                gold = gold_of(utterances_of(place.before, place.lines), utterances_of(place.after, place.lines))
                if place.summary is not None and gold.facts:
                    yield file, place, gold


def record_before(file: Path, line: int, parts: int) -> str:
    """The record that hooks give at a line of a log, when they read it up to there."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log.jsonl")
        log.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[: line - 1]))
        with open_carried(folder, str(log)) as carried:
            carried.read_on()
            return "\n".join(record_parts(carried, parts))


def fidelity(files: Sequence[Path]) -> None:
    """Print what stands in the real summaries, alone and with the record."""
    pools: dict[str, RowSums] = {}

    def enter(name: str, place: BenchCut, gold: Gold, text: str) -> None:
        pool = pools.setdefault(name, RowSums())
        pool.add(place.session, score(gold, text).tallies)
        pool.tokens.append(base_tokens(text))

    for file, place, gold in boundaries(files):
        summary = shown(place.summary or ())
        enter("the real summary", place, gold, summary)
        for parts in (1, 2, 3):
            text = record_before(file, place.line, parts)
            enter(f"… and our record, {parts} part{'s' if parts > 1 else ''}", place, gold, f"{summary}\n{text}")
            if parts in (1, 3):
                last = keep_last(place.before, base_tokens(text))
                enter(f"… and the last of the log, as large as {parts}", place, gold, f"{summary}\n{last}")
    count = len(next(iter(pools.values()), RowSums()).tokens)
    sessions = len(next(iter(pools.values()), RowSums()).sessions)
    print(f"{count} compactions of {sessions} sessions; percent of what was needed behind them, pooled")
    print(f"{'view':<42} {'tokens':>7} " + " ".join(f"{axis:>8}" for axis in AXES))
    for name, pool in pools.items():
        told = pool.percents()
        row = " ".join(f"{told[axis]:>8.1f}" if axis in told else f"{'-':>8}" for axis in AXES)
        print(f"{name:<42} {sum(pool.tokens) // max(1, len(pool.tokens)):>7,} {row}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--mb", type=int, default=100, help="how large the log is")
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--data", type=Path, default=DATA, help="a folder with logs of Claude Code")
    parser.add_argument("--only", choices=("times", "fidelity"))
    told = parser.parse_args()
    files = sorted(told.data.rglob("*.jsonl"))
    if not files:
        print(f"{told.data}: no logs there: name a folder with logs of Claude Code by --data")
        return 2
    if told.only != "times":
        fidelity(files)
    if told.only != "fidelity":
        times(files, told.mb, told.runs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
