"""Concurrent writers of one memory directory: what was acknowledged, and what of it is there (REL-7, MEM-9).

    python -m bench.memory [--folder DIR] [--writers 16] [--edits 200]

Three runs: 16 processes of 200 edits on 4 files, one killed every 50 ms; 8 of 100 inserts into one file; and the same
inserts, durable against power loss, where each waits for the disk. Times are of this machine, and of its neighbours.
"""

from __future__ import annotations

import argparse
import tempfile
from functools import partial
from pathlib import Path

from bench._races import Race, race

from perdure.adapters.memory.directory import file_memories
from perdure.settings import Settings


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=None, help="where to make a temporary folder")
    parser.add_argument("--writers", type=int, default=16)
    parser.add_argument("--edits", type=int, default=200)
    options = parser.parse_args()
    process, commit = Settings(durability="process"), Settings()
    plans = (
        ("with kill -9", process, Race(writers=options.writers, edits=options.edits, kill_every_seconds=0.05)),
        ("inserts", process, Race(writers=8, edits=options.edits // 2, files=1)),
        ("inserts, synced", commit, Race(writers=8, edits=options.edits // 8, files=1)),
    )
    lost = 0
    for name, settings, plan in plans:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            done = race(Path(folder), partial(file_memories, settings=settings), plan)
        lost += len(done.lost) + len(done.partial)
        print(
            f"{name:16} {plan.writers} writers of {plan.edits}: {done.acknowledged} acknowledged, "
            f"{len(done.lost)} lost, {done.merged} merged, {done.conflicts} kept beside, {done.kills} kills; "
            f"{done.reads} reads, {len(done.partial)} of half a file; {done.acknowledged / done.seconds:.0f} writes/s"
        )
    return 1 if lost else 0


if __name__ == "__main__":
    raise SystemExit(main())
