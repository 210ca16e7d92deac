"""The suite's processor time by folder, file and test, collection apart (HSE-5).

    python -m bench.suite [--top 30] [--json FILE] [-- PYTEST ARGUMENTS]
    python -m bench.suite --clauses

Runs the quick tier, or what the arguments behind `--` select, with one line a test written by each worker: processor
time of setup, call and teardown, that of children which have ended included. The rest of the total is what collecting,
imports, and servers that outlive a test take. `--clauses` runs nothing: it counts the tests of each tier by folder and
by the clauses that they name (those of its module for a test that names none), and lists the clauses that only the
night proves.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import io
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

_FOLDER = "PERDURE_SUITE_TIMES"
_CLAUSE = re.compile(
    r"\b(?:ENG|TOK|PRS|TURN|CMP|RST|RCL|SM|INS|MEM|SES|CKP|LIB|CLI|GW|MCP|OBS|REL|SEC|QLT|SPD|SCL|PLG|ACP|OPS|HSE|DOC)-\d+"
)


def _processor_seconds() -> float:
    """Return the processor seconds of this process and of its children that have ended."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


class _Recorder:
    """A pytest plugin that writes a line for each test into a file of this process."""

    def __init__(self, folder: Path) -> None:
        self._file = (folder / f"{os.getpid()}.jsonl").open("w", encoding="utf-8")

    def _write(self, name: str, seconds: float) -> None:
        self._file.write(json.dumps({"test": name, "seconds": seconds}) + "\n")
        self._file.flush()

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Iterator[None]:
        try:
            return (yield)
        finally:
            self._write("collection", _processor_seconds())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        begun = _processor_seconds()
        try:
            return (yield)
        finally:
            self._write(item.nodeid.split("@")[0], _processor_seconds() - begun)


def pytest_configure(config: pytest.Config) -> None:
    """Register the recorder in each process that runs tests."""
    if folder := os.environ.get(_FOLDER):
        config.pluginmanager.register(_Recorder(Path(folder)))


def _table(title: str, rows: dict[str, tuple[float, int]], top: int) -> None:
    print(f"\n{title:100} {'seconds':>8} {'tests':>6}")
    for name, (seconds, count) in sorted(rows.items(), key=lambda row: -row[1][0])[:top]:
        print(f"{name[:100]:100} {seconds:8.1f} {count:6}")


def _sum_by(times: list[tuple[str, float]], depth: int) -> dict[str, tuple[float, int]]:
    sums: dict[str, tuple[float, int]] = collections.defaultdict(lambda: (0.0, 0))
    for name, seconds in times:
        key = "/".join(name.split("::")[0].split("/")[:depth])
        sums[key] = (sums[key][0] + seconds, sums[key][1] + 1)
    return sums


class _Collector:
    """A pytest plugin that keeps the collected tests, and prints nothing."""

    def __init__(self) -> None:
        self.tests: list[tuple[str, frozenset[str]]] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            said = getattr(getattr(item, "function", None), "__doc__", None) or ""
            module = getattr(getattr(item, "module", None), "__doc__", None) or ""
            named = _CLAUSE.findall(said) or _CLAUSE.findall(module)
            self.tests.append((item.nodeid, frozenset(named)))


def _collect() -> None:
    """Print the tests of this tier as JSON: run in a process of its own, since the tier is chosen at import."""
    collector = _Collector()
    with contextlib.redirect_stdout(io.StringIO()):
        pytest.main(["--collect-only", "-q", "-p", "no:terminalreporter"], plugins=[collector])
    print(json.dumps([(name, sorted(clauses)) for name, clauses in collector.tests]))


def _compare_tiers() -> None:
    folders, clauses = dict[str, collections.Counter[str]](), dict[str, collections.Counter[str]]()
    for tier in ("quick", "nightly"):
        command = [sys.executable, "-c", "from bench import suite; suite._collect()"]
        environment = os.environ | {"PERDURE_NIGHTLY": "1" if tier == "nightly" else "0"}
        found = json.loads(subprocess.run(command, env=environment, capture_output=True, check=True).stdout)
        for name, named in found:
            folders.setdefault("/".join(name.split("/")[:2]), collections.Counter())[tier] += 1
            for clause in named:
                clauses.setdefault(clause, collections.Counter())[tier] += 1
    for title, rows in (("folder", folders), ("clause", clauses)):
        print(f"\n{title:20} {'quick':>6} {'nightly':>8}")
        for key, counts in sorted(rows.items()):
            print(f"{key:20} {counts['quick']:6} {counts['nightly']:8}")
    print(
        f"\nonly at night: {', '.join(sorted(one for one, counts in clauses.items() if not counts['quick'])) or 'none'}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Print where the processor time of the suite goes.")
    parser.add_argument("--top", type=int, default=30, help="rows of the tables of files and tests")
    parser.add_argument("--json", type=Path, help="write the seconds of each test into this file")
    parser.add_argument("pytest", nargs="*", help="arguments for pytest, behind --")
    parser.add_argument("--clauses", action="store_true", help="count the tests of both tiers, and run none")
    asked = parser.parse_args()
    if asked.clauses:
        _compare_tiers()
        return 0
    command = [sys.executable, "-m", "pytest", "-q", "-p", "bench.suite", *(asked.pytest or ["-n", "auto"])]
    with tempfile.TemporaryDirectory() as folder:
        begun = time.monotonic()
        code = subprocess.run(command, env=os.environ | {_FOLDER: folder}, check=False).returncode
        clock = time.monotonic() - begun
        lines = [json.loads(line) for path in Path(folder).iterdir() for line in path.read_text().splitlines()]
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    times = [(line["test"], line["seconds"]) for line in lines]
    tests = [(name, seconds) for name, seconds in times if name != "collection"]
    collected = [seconds for name, seconds in times if name == "collection"]
    _table("folder", _sum_by(tests, 2), asked.top)
    _table("file", _sum_by(tests, 9), asked.top)
    _table("test", {name: (seconds, 1) for name, seconds in tests}, asked.top)
    print(f"\ncollection by process, seconds: {', '.join(f'{one:.1f}' for one in collected)}")
    whole = used.ru_utime + used.ru_stime
    print(f"in tests {sum(seconds for _, seconds in tests):.0f} s, in all {whole:.0f} s", end="")
    print(f" of processor time, {clock:.0f} s by the clock")
    if asked.json:
        asked.json.write_text(json.dumps(dict(tests), indent=0, sort_keys=True), encoding="utf-8")
    return code


if __name__ == "__main__":
    raise SystemExit(main())
