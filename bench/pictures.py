"""The pictures of the front page, each made of a real run: `make pictures`, or python -m bench.pictures NAME…

context   what a session said and what was sent, over its calls (a fake server checks each request)
terminal  `perdure import`, `search` and `recall` in a shell that is typed at; waits are cut to half a second
report    the page of `perdure report` in Chromium (Debian: apt-get install chromium)

The sessions are made by bench/_shop.py; nothing in them is anybody's. tests/house/test_front_page.py says when a
picture shows what this version no longer does.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bench import _context_picture as context
from bench import _recording as recording
from bench import _report_picture as report
from bench._shop import FOLDER, JOBS, client_log

ROOT: Final = Path(__file__).resolve().parents[1]
PICTURES: Final = ROOT / "docs" / "pictures"
COLUMNS, ROWS = 90, 24
HEADING: Final = "five made-up sessions of Claude Code; waits are cut to half a second"
LABEL: Final = (
    "A terminal: perdure import takes in five recorded sessions, perdure search finds the session in which a cause was "
    "found and the place where it was said, and perdure recall shows all of it, word for word."
)
# What is typed, and how many seconds a reader needs; {0} and {1} are the ids that the search before shows.
COMMANDS: Final = (
    ("perdure import --yes", 2.0),
    ('perdure search --all "why did the checkout time out"', 3.5),
    ('perdure search --all --places "214 waiting for a connection" --limit 1', 2.5),
    ("perdure recall {0} {1}", 4.0),
)
IDS: Final = re.compile(r"^1\. ([0-9a-f]{8}) ([0-9a-f]{8})-", re.M)
SESSION: Final = "5e55{0:04d}-0b5e-4c0d-8a11-00000000{0:04d}"
LOGS: Final = ((0, 3, 1.0), (3, 6, 1.0), (6, 8, 1.0), (8, 10, 1.0), (10, 12, 1.0))  # which jobs, and how long


def write_logs(home: Path) -> list[Path]:
    """Five sessions as Claude Code would have logged them, below somebody's home."""
    folder = home / ".claude" / "projects" / FOLDER.replace("/", "-")
    folder.mkdir(parents=True)
    paths = []
    for number, (first, last, size) in enumerate(LOGS):
        session = SESSION.format(number)
        paths.append(folder / f"{session}.jsonl")
        paths[-1].write_bytes(client_log(JOBS[first:last], seed=number + 1, size=size, session=session))
    return paths


def surroundings(home: Path) -> dict[str, str]:
    """The variables of a command: a home of its own, no key, the time of Greenwich."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    return {"PATH": path, "HOME": str(home), "TZ": "UTC", "LANG": "C.UTF-8", "PYTHONUTF8": "1"}


def context_picture() -> tuple[Path, bytes]:
    return PICTURES / "context.svg", context.drawn(asyncio.run(context.run())).encode()


def terminal() -> tuple[Path, bytes]:
    shell = recording.RecordedShell(COLUMNS, ROWS)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        write_logs(home)
        with shell.running(home, surroundings(home)):
            for command, reads in COMMANDS:
                found = IDS.findall("\n".join(shell.said))
                shell.types(command.format(*found[-1]) if found else command, reads=reads)
        said = [plain(line) for line in shell.said]
    return PICTURES / "terminal.svg", recording.drawn(shell, HEADING, LABEL, said).encode()


def report_picture() -> tuple[Path, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "shop.jsonl"
        log.write_bytes(client_log(JOBS, seed=context.SEED, size=context.SIZE, session=SESSION.format(99)))
        return PICTURES / "report.png", report.taken(log)


def plain(line: str) -> str:
    """A line without what differs from run to run: numbers, and the width of columns."""
    return " ".join(re.sub(r"\d[\d,.]*", "#", line).split())


MAKERS: Final[dict[str, Callable[[], tuple[Path, bytes]]]] = {
    "context": context_picture,
    "terminal": terminal,
    "report": report_picture,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(MAKERS)}; without any, all")
    asked = parser.parse_args()
    if unknown := sorted(set(asked.names) - set(MAKERS)):
        parser.error(f"no such picture: {', '.join(unknown)}; there are {', '.join(MAKERS)}")
    PICTURES.mkdir(parents=True, exist_ok=True)
    for name in asked.names or MAKERS:
        path, data = MAKERS[name]()
        path.write_bytes(data)
        print(f"{path.relative_to(ROOT)}: {len(data):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
