"""LIB-6, SPD-5: what a program pays before its first request is prepared: processor time, in processes of their own.

python bench/first_use.py [COUNT]

Bytecode is cached, as after an installation. `bare` is the interpreter alone, `asyncio` what any program with an event
loop pays; the bar of LIB-6 is for everything that its process does.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile

SESSION = """
import asyncio
from perdure import Session

async def main():
    async with Session.in_memory() as session:
        await session.set_prefix(model="claude-sonnet-5-5", system="Be brief.", tools=[])
        await session.append("Hello")
        assert (await session.prepare()).data["messages"]

asyncio.run(main())
"""
PROGRAMS = {
    "bare": "pass",
    "asyncio": "import asyncio",
    "import perdure": "import perdure",
    "first use of a session": SESSION,
    "the same without an event loop": """
from perdure.sync import Session

with Session.in_memory() as session:
    session.append("Hello")
    assert session.prepare().data["messages"]
""",
}


def main(count: int) -> None:
    """Print the median and the best of several runs of each program."""
    with tempfile.TemporaryDirectory() as folder:
        environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environ["PYTHONPYCACHEPREFIX"] = folder
        for name, program in PROGRAMS.items():
            _seconds(program, environ)  # compiles what it loads
            seconds = [_seconds(program, environ) for _ in range(count)]
            best, median = min(seconds) * 1000, statistics.median(seconds) * 1000
            print(f"{name:<32} median {median:4.0f} ms, best {best:4.0f} ms of processor time")


def _seconds(program: str, environ: dict[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", program], env=environ, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 15)
