"""The first minute of a user: what `perdure verdict` takes over so many megabytes of logs, and what it covers (CLI-2).

    python bench/verdict.py [FOLDER...] [--mb 100] [--seconds 60]

The logs in the folders, else those of ../shared/data, are written again and again with ids of their own, until they
are that large, and given to the command, a process of its own with `--seconds`. Prints a table and asserts nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from itertools import count
from pathlib import Path

from perdure.adapters.logs import find_logs

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
_ID = re.compile(rb"\b[0-9a-f]{8}(?=(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b)|\bmsg_(?=\w)")


def write_logs(into: Path, found: list[Path], size: int) -> int:
    """Copies of logs with ids of their own, until they are so large; how many there are."""
    written = 0
    for number in count():
        for place, path in enumerate(found):
            if written >= size:
                return number * len(found) + place
            own = b"%04x%04x" % (number, place)
            data = _ID.sub(lambda one, own=own: one[0] + own if one[0] == b"msg_" else own, path.read_bytes())
            target = into / f"{number}" / f"{place}-{path.name}"
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(data)
            os.utime(target, (1_700_000_000 + written // 1_000,) * 2)
            written += len(data)
    raise AssertionError("count() never ends")


def row(what: str, told: str) -> None:
    print(f"  {what:<28}{told:>14}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folders", nargs="*", type=Path, default=[DATA / "claude_code", DATA / "codex"])
    parser.add_argument("--mb", type=float, default=100)
    parser.add_argument("--seconds", type=float, default=60)
    asked = parser.parse_args()
    found = [path for path in find_logs(asked.folders).paths if path.suffix == ".jsonl"]
    if not found:
        sys.exit("which logs? python bench/verdict.py FOLDER...")
    with tempfile.TemporaryDirectory() as folder:
        logs = Path(folder) / "logs"
        logs.mkdir()
        files = write_logs(logs, found, int(asked.mb * 1e6))
        command = [sys.executable, "-m", "perdure", "verdict", str(logs), "--json", "--seconds", str(asked.seconds)]
        began = time.perf_counter()
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env={**os.environ, "PERDURE_HOME": f"{folder}/home"}
        )
        wall, spent = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if not done.stdout:
        sys.exit(done.stderr)
    told = json.loads(done.stdout)["verdict"]
    print(f"{files:,} logs, {asked.mb:,.0f} MB, --seconds {asked.seconds:g}")
    row("CPU", f"{spent.ru_utime + spent.ru_stime:,.1f} s")
    row("wall", f"{wall:,.1f} s")
    row("memory at most", f"{spent.ru_maxrss / 1_024:,.0f} MB")
    row("sessions, of which repeated", f"{told['sessions']:,}, {told['repeated']:,}")
    row("model calls", f"{told['calls']:,}")
    if (replayed := told["replayed"]) is not None and told["paid_usd"]:
        row("sessions replayed", f"{replayed['sessions']:,}")
        row("of what was paid", f"{100 * replayed['paid_usd'] / told['paid_usd']:.0f}%")


if __name__ == "__main__":
    main()
