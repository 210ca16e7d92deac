"""What checkpoints of files cost (CKP-2), and a thousand rewinds that are compared with pictures (CKP-3).

Usage: python bench/checkpoints.py [--files 10000] [--rounds 7] [--sequences 0]

A project of so many files (5 KB of words each): the first look, which copies everything, then rounds in which a command
changes one file: the look before it, the look behind it. Beside them a bare walk with `os.scandir` and `lstat`
over the same tree, which nothing that compares a tree can undercut: the ratio is what holds elsewhere.
`--sequences` runs so many generated sequences of tests/laws/test_file_rewinds.py, half of them with a user's own edits.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from perdure.adapters.checkpoints.checkpoints import SessionCheckpoints
from perdure.adapters.machine.clock import SystemClock
from perdure.adapters.sinks import ListSink
from perdure.ports.machine import FileCall
from perdure.settings import Settings
from perdure.transcript.messages import MessageId

ROOT = Path(__file__).resolve().parents[1]


def walk(root: str) -> int:
    """The least that comparing a tree takes."""
    count, folders = 0, [root]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                count += 1
                entry.stat(follow_symlinks=False)
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
    return count


def milliseconds(started: float) -> float:
    return (time.perf_counter() - started) * 1_000


def measured(files: int, rounds: int) -> None:
    words = [random.randbytes(3).hex() for _ in range(2_000)]
    with tempfile.TemporaryDirectory() as place:
        project = Path(place).resolve() / "project"
        for number in range(files):
            folder = project / f"part{number % 200}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"file{number}.py").write_text(" ".join(random.choices(words, k=700)))
        shadow = SessionCheckpoints(str(project), Path(place) / "store", Settings(), SystemClock(), ListSink())
        call = FileCall("Bash", MessageId("m0"), looks=True)
        started = time.perf_counter()
        shadow.begin(call)
        print(f"first look at {files:,} files, with a copy of each  {milliseconds(started):8.0f} ms")
        shadow.end(call)
        time.sleep(0.1)
        before, behind, bare = [], [], []
        for number in range(rounds):
            call = FileCall("Bash", MessageId(f"m{number + 1}"), looks=True)
            started = time.perf_counter()
            walk(str(project))
            bare.append(milliseconds(started))
            started = time.perf_counter()
            shadow.begin(call)
            before.append(milliseconds(started))
            (project / "part0/file0.py").write_text(str(number))
            started = time.perf_counter()
            shadow.end(call)
            behind.append(milliseconds(started))
        base = statistics.median(bare)
        for name, times in (("bare walk", bare), ("look before a command", before), ("look behind it", behind)):
            middle = statistics.median(times)
            print(f"{name:<22} median {middle:7.1f} ms   worst {max(times):7.1f} ms   {middle / base:4.1f} walks")
        print(f"the store takes {shadow.objects.bytes() / 1e6:.1f} MB")
        started = time.perf_counter()
        shadow.rewind({f"m{n}" for n in range(rounds + 1)}, is_forced=False, is_dry=False)
        print(f"rewind of one file     {milliseconds(started):7.1f} ms")
        shadow.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--sequences", type=int, default=0)
    given = parser.parse_args()
    measured(given.files, given.rounds)
    if not given.sequences:
        return 0
    command = [sys.executable, "-m", "pytest", "-q", "tests/laws/test_file_rewinds.py"]
    return subprocess.run(
        command, cwd=ROOT, check=False, env={**os.environ, "PERDURE_TEST_REWINDS": str(given.sequences)}
    ).returncode


if __name__ == "__main__":
    raise SystemExit(main())
