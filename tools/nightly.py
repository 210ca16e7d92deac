"""Run all that `make test` leaves out, and everything that it runs at its full number (HSE-5).

    python -m tools.nightly [--times 1] [--only NAME …]

The parts run one after another; what each prints is in `build/nightly/NAME.log`. A part whose programs aren't on
this machine is skipped with its reason, as are tests. The last line counts what ran and what was skipped, and why;
the exit code is 1 when anything failed. `--times 20` tries laws, kills and mutants twenty times as often.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOGS = ROOT / "build" / "nightly"
RESULTS = LOGS / "tests.xml"
DATA = "../shared/data"
PYTHON = sys.executable


@dataclass(frozen=True, slots=True)
class Part:
    """A program of the night, what it shows, and what it needs."""

    name: str
    shows: str
    commands: tuple[tuple[str, ...], ...]
    needs: str = ""  # a program, or a folder beside the repository
    skips_with: int = -1  # the exit code of a program that lacks what it needs


def parts(times: int) -> list[Part]:
    """Return the parts in their order: what the tests start is installed before them."""
    program = (PYTHON, "-m")
    return [
        Part(
            "clients",
            "real coding agents and libraries through the gateway",
            ((PYTHON, "bench/clients.py"),),
            needs="npm",
            skips_with=2,
        ),
        Part("live", "a real inference server with a tiny model", ((*program, "bench.live"),)),
        Part("installs", "frameworks and the site", ((PYTHON, "bench/clients.py", "--frameworks"), ("make", "docs"))),
        Part(
            "tests",
            "all tests on both stores, laws, kills, power cuts, storms, all recordings, the browser",
            ((*program, "pytest", "-n", "auto", "--dist", "loadgroup", f"--junitxml={RESULTS}"),),
        ),
        Part("systems", "types on Linux, macOS and Windows", (("make", "types-all"),)),
        Part("fuzz", "mutants of everything read", ((*program, "bench.fuzz", "--mutants", f"{20_000 * times}"),)),
        Part("scale", "three gateways and two workers in a storm", ((*program, "bench.scale"),), skips_with=2),
        Part("truth", "no untrue line in any record", ((PYTHON, "bench/truth.py", DATA),), needs=DATA),
    ]  # fmt: skip


def run(part: Part, times: int) -> str:
    """Run a part, and return what came of it: passed, failed, or skipped with the reason."""
    if part.needs and shutil.which(part.needs) is None and not (ROOT / part.needs).is_dir():
        return f"skipped: {part.needs} is not here"
    with (LOGS / f"{part.name}.log").open("w", encoding="utf-8") as log:
        for command in part.commands:
            environment = os.environ | {"PERDURE_NIGHTLY": str(times)}
            done = subprocess.run(command, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT, check=False)
            if done.returncode == part.skips_with:
                return f"skipped: see {log.name}"
            if done.returncode:
                return f"failed: {' '.join(command[1:])} ended with {done.returncode}, see {log.name}"
    return "passed"


def count_tests() -> tuple[Counter[str], Counter[str]]:
    """Return how many tests passed, failed and were skipped in the last run, and the reasons of those skipped."""
    counts, reasons = Counter[str](), Counter[str]()
    if RESULTS.exists():
        for case in ET.parse(RESULTS).iter("testcase"):
            skipped = case.find("skipped")
            is_bad = case.find("failure") is not None or case.find("error") is not None
            counts["failed" if is_bad else "passed" if skipped is None else "skipped"] += 1
            if skipped is not None:
                reasons[re.sub(r"\s+", " ", skipped.get("message", ""))[:100]] += 1
    return counts, reasons


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Run everything, at its full number.")
    parser.add_argument("--times", type=int, default=1, help="how many times over laws, kills and mutants are tried")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="only these parts")
    asked = parser.parse_args(arguments)
    if asked.times < 1:
        parser.error(f"--times must be at least 1, got {asked.times}")
    known = parts(asked.times)
    if unknown := set(asked.only) - {part.name for part in known}:
        parser.error(
            f"a part must be one of {', '.join(part.name for part in known)}, got {', '.join(sorted(unknown))}"
        )
    LOGS.mkdir(parents=True, exist_ok=True)
    RESULTS.unlink(missing_ok=True)
    begun, came = time.monotonic(), dict[str, str]()
    for part in known:
        if not asked.only or part.name in asked.only:
            print(f"{part.name:8} {part.shows}", flush=True)
            since = time.monotonic()
            came[part.name] = run(part, asked.times)
            print(f"{'':8} {came[part.name]}, {time.monotonic() - since:.0f} s", flush=True)
    counts, reasons = count_tests()
    for reason, count in reasons.most_common():
        print(f"{'':8} {count} tests skipped: {reason}")
    ended = Counter(what.partition(":")[0] for what in came.values())
    named = [f"{name} ({what.partition(': ')[2]})" for name, what in came.items() if what != "passed"]
    print(
        f"nightly: {ended['passed']} of {len(came)} parts passed{''.join(f'; {one}' for one in named)}; "
        f"tests: {counts['passed']:,} passed, {counts['failed']} failed, {counts['skipped']} skipped for "
        f"{len(reasons)} reasons; {(time.monotonic() - begun) / 60:.0f} minutes"
    )
    return 1 if ended["failed"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
