"""Measure the processor time of `perdure sessions` in homes of 1,000, 5,000 and 20,000 sessions.

    python bench/listing.py [COUNT ...]

Each session is a journal of one prompt, with an id as Perdure makes them. Each command is a process of its own; what it
takes in an empty home, mostly for imports, is the first row.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from perdure import Message
from perdure.adapters.journal.projects import PROJECTS, folder_name
from perdure.adapters.machine.clock import RandomIds
from perdure.transcript.codec import FORMAT, VERSION, encode_header, encode_line
from perdure.transcript.records import Header

COUNTS = (1_000, 5_000, 20_000)
IN_A_PROJECT = 500


def fill(home: Path, count: int) -> None:
    """Write so many sessions, 500 in each project."""
    ids = RandomIds()
    for number in range(count):
        project = f"/srv/project-{number // IN_A_PROJECT}"
        session = ids.new("session")
        folder = home / PROJECTS / folder_name(project) / session
        folder.mkdir(parents=True)
        header = Header(format=FORMAT, version=VERSION, session=session, created=1.0 + number, project=project)
        said = Message.of("user", f"mend number {number}")
        said = msgspec.structs.replace(said, id=f"m{number}", origin="user")
        (folder / "journal.jsonl").write_bytes(encode_header(header) + encode_line(1, (said,)))


def measured(home: Path, *words: str) -> float:
    """Run `perdure sessions`; the seconds of processor time that it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environ = {**os.environ, "PERDURE_HOME": str(home)}
    command = [sys.executable, "-m", "perdure", "sessions", *words]
    subprocess.run(command, env=environ, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description="The processor time of `perdure sessions`.")
    parser.add_argument("counts", metavar="COUNT", type=int, nargs="*", default=COUNTS)
    print(f"{'sessions':>10}{'list':>8}{'--limit 5':>12}{'--json':>9}   seconds of processor time")
    for count in (0, *parser.parse_args().counts):
        with tempfile.TemporaryDirectory(prefix="perdure-bench-") as folder:
            home = Path(folder)
            fill(home, count)
            took = [min(measured(home, *words) for _ in range(2)) for words in ((), ("--limit", "5"), ("--json",))]
        print(f"{count:>10,}{took[0]:>8.2f}{took[1]:>12.2f}{took[2]:>9.2f}")


if __name__ == "__main__":
    main()
