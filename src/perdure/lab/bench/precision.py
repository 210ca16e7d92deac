"""PrecisionMemBench by its own runner, in a copy of its folder, against a memory service on this machine (QLT-6).

What is run is a program of the benchmark's authors, with the packages that somebody installed for it: only when it was
asked for, with nothing of the environment but the path.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Literal

import msgspec

from perdure.adapters.logs import read_log
from perdure.errors import BadSetting, ForeignFormat

Told = Literal["contract", "fields"]
TOLD: Final[tuple[Told, ...]] = ("contract", "fields")

PROVIDER: Final = "perdure"
SEED: Final = "fixtures/beliefs.seed.json"
PUBLISHED: Final = "aec381f43b631d041968a0b62e10849dca36328bf9813f39288698e046b1dd97"  # of docs/measured/benchmarks.md
_MARKS: Final = (SEED, "fixtures/retrieval.cases.json", "src/retrieval.external.eval.test.ts", "package.json")
_COPIED: Final = ("fixtures", "src", "package.json", "tsconfig.json", "providers.config.json")
_RUNS: Final = {
    "retrieval": "retrieval-report-perdure.json",
    "session-retrieval": "session-retrieval-report-perdure.json",
}
_SECONDS = 900
_BASELINES = "test-results/baseline"
_TAIL = 300


class _Summary(msgspec.Struct, frozen=True, rename="camel"):
    total_passed: int
    total_cases: int
    mean_precision: float | None
    mean_recall: float | None
    p50_latency_ms: float
    active_retrieval_passes: int = 0


class _Report(msgspec.Struct, frozen=True):
    provider: str
    retrieval: _Summary
    cases: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionRow:
    """What a system got: of single questions, and of the turns of sessions; None: there is no report of it."""

    system: str
    passed: int
    cases: int
    active: int
    precision: float | None
    recall: float | None
    p50_ms: float
    turns_passed: int | None = None
    turns: int | None = None
    failed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PrecisionFolder:
    """A folder of the benchmark."""

    path: Path

    @staticmethod
    def is_one(path: Path) -> bool:
        """Whether a folder is the benchmark's."""
        return all((path / name).is_file() for name in _MARKS)

    @property
    def files(self) -> Mapping[str, str]:
        """The hash of each file that decides: fixtures, runner, configuration."""
        found = {}
        for name in _COPIED:
            here = self.path / name
            for file in sorted(here.rglob("*")) if here.is_dir() else [here]:
                if file.is_file() and not file.is_symlink():
                    found[file.relative_to(self.path).as_posix()] = hashlib.sha256(read_log(file)[0]).hexdigest()
        return found

    @property
    def digest(self) -> str:
        """One hash of them all, as of the other sets."""
        lines = "".join(f"{digest}  {name}\n" for name, digest in sorted(self.files.items()))
        return hashlib.sha256(lines.encode()).hexdigest()

    def beliefs(self) -> Mapping[str, Mapping[str, Any]]:
        """What the benchmark knows of each of its beliefs."""
        path = self.path / SEED
        try:
            found = msgspec.json.decode(read_log(path)[0], type=list[dict[str, Any]])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as e:
            raise ForeignFormat(f"{path}: {e}: see docs/measured/benchmarks.md for what it has to be") from None
        return {str(one.get("_id", "")): one for one in found}

    def baselines(self) -> list[PrecisionRow]:
        """What its authors measured of other systems, from the reports in the folder."""
        folder = self.path / _BASELINES
        rows = []
        for path in sorted(folder.glob("retrieval-report-*.json")) if folder.is_dir() else ():
            name = path.stem.removeprefix("retrieval-report-")
            beside = folder / f"session-retrieval-report-{name}.json"
            rows.append(_row(name, _report(path), _report(beside) if beside.is_file() else None))
        return sorted(rows, key=lambda row: (-row.passed, row.system))

    def run(self, url: str, system: str, on_run: Callable[[str], object] = str) -> PrecisionRow:
        """Run it against a service. `BadSetting` with what is missing, or the end of what the runner said."""
        node = shutil.which("node")
        ava = self.path / "node_modules" / ".bin" / "ava"
        if node is None:
            raise BadSetting("PrecisionMemBench: its runner needs Node.js 22 or later on the path")
        if not ava.is_file():
            raise BadSetting(f"{self.path}: its packages aren't installed: run `npm ci` there")
        with TemporaryDirectory(prefix="perdure-bench-") as name:
            here = Path(name)
            for one in _COPIED:
                there = self.path / one
                copy = shutil.copytree if there.is_dir() else shutil.copy
                copy(there, here / one)
            (here / "node_modules").symlink_to((self.path / "node_modules").resolve(), target_is_directory=True)
            provider = {"envVar": "PERDURE_URL", "defaultUrl": url, "seedDelayMs": 0, "supportsUpdate": True}
            (here / "providers.config.json").write_text(json.dumps({PROVIDER: provider}), "utf-8")
            reports = []
            for run, report in _RUNS.items():
                on_run(f"PrecisionMemBench: {run}, {system}")
                reports.append(_ran(node, here, f"src/{run}.external.eval.test.ts", here / "test-results" / report))
        return _row(system, reports[0], reports[1])


def _ran(node: str, here: Path, test: str, report: Path) -> _Report:
    environment = {
        "PATH": os.pathsep.join((str(Path(node).parent), os.defpath)),
        "HOME": str(here),
        "MEMORY_PROVIDER": PROVIDER,
        "RESEED": "true",
        "CI": "true",
        "NO_COLOR": "1",
    }
    words = [node, "node_modules/.bin/ava", test, "--timeout", "10m"]
    try:
        done = subprocess.run(
            words,
            cwd=here,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise BadSetting(f"PrecisionMemBench: its runner took more than {_SECONDS} seconds") from None
    if not report.is_file():
        said = " ".join((done.stderr or done.stdout).split())[-_TAIL:]
        raise BadSetting(f"PrecisionMemBench: its runner made no report (Node.js 22 or later is needed): {said}")
    return _report(report)


def _report(path: Path) -> _Report:
    try:
        return msgspec.json.decode(read_log(path)[0], type=_Report)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as e:
        raise ForeignFormat(f"{path}: {e}: see docs/measured/benchmarks.md for what it has to be") from None


def _row(system: str, single: _Report, turns: _Report | None) -> PrecisionRow:
    found = single.retrieval
    return PrecisionRow(
        system=system,
        passed=found.total_passed,
        cases=found.total_cases,
        active=found.active_retrieval_passes,
        precision=found.mean_precision,
        recall=found.mean_recall,
        p50_ms=found.p50_latency_ms,
        turns_passed=turns.retrieval.total_passed if turns is not None else None,
        turns=turns.retrieval.total_cases if turns is not None else None,
        failed=tuple(_failures((single, *((turns,) if turns is not None else ())))),
    )


def _failures(reports: Sequence[_Report]) -> Iterator[str]:
    for report in reports:
        for case in report.cases:
            if case.get("passed") is False:
                turn = f" turn {case['turnIndex']}" if "turnIndex" in case else ""
                yield f"{case.get('caseId', '')}{turn}: {'; '.join(map(str, case.get('failures') or ()))}"
