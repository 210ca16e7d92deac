"""What it costs to start a command (SEC-10): by itself, ending with the agent, in bubblewrap, in Landlock.

python bench/starts.py [COUNT]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

import anyio

from perdure.adapters.machine import confine
from perdure.adapters.machine.sandbox import Sandbox, SandboxSupport, find_sandbox
from perdure.adapters.machine.shell import LocalShell


async def main(count: int, root: Path) -> None:
    """Print the median and the best of several starts of `true`, with its end waited for."""
    boxes: list[tuple[str, SandboxSupport | None, bool]] = [
        ("by itself", None, True),
        ("ending with the agent", None, False),
    ]
    if find_sandbox().kind == "bubblewrap":
        boxes.append(("bubblewrap", find_sandbox(), False))
    if confine.abi():
        boxes.append(("Landlock", SandboxSupport("landlock", ""), False))
    for name, box, outlives in boxes:
        sandbox = Sandbox(box, root=str(root), user=str(Path.home()), own=()) if box is not None else None
        shell, seconds = LocalShell(root / "commands", str(root), sandbox), []
        for number in range(count):
            began = time.perf_counter()
            command = await shell.start(f"c{number}", "true", cwd=str(root), let="allowed", outlives=outlives)
            await command.wait()
            seconds.append(time.perf_counter() - began)
        print(f"{name:<22} median {statistics.median(seconds) * 1000:4.0f} ms, best {min(seconds) * 1000:4.0f} ms")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        anyio.run(main, int(sys.argv[1]) if len(sys.argv) > 1 else 30, Path(folder).resolve())
