"""Programs run by the interpreter of a framework's own environment, with this tree's sources (bench/clients.py)."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
from pathlib import Path

import pytest
from bench.clients import CLIENTS, FRAMEWORKS, ROOT, WORDS, RealClient, folder_of, is_installed
from tests.house.test_docs_run import blocks

CODE, CRATE = "KX-4711-ZT", "crate 217"  # what stands in the third part, among much of the kind
SCRIPTS = ROOT / "bench" / "frameworks"
SECONDS = 240


def framework(name: str) -> RealClient:
    return next(one for one in (*FRAMEWORKS, *CLIENTS) if one.name == name)


def needs(client: RealClient) -> pytest.MarkDecorator:
    """Skips where the framework isn't installed."""
    return pytest.mark.skipif(not is_installed(client), reason="not installed: make adapters installs it")


def write_parts(project: Path, count: int) -> None:
    """A project of long files, `part_000.txt` and so on, as the bench's worker reads them."""
    project.mkdir()
    chance = random.Random(3)
    for number in range(count):
        crates = [f"crate {100 * number + n}" for n in range(60)]
        codes = [CODE if one == CRATE else f"KX-{chance.randrange(1000, 9999)}-QY" for one in crates]
        lines = [f"{' '.join(chance.choices(WORDS, k=12))} {a} {b}" for a, b in zip(crates, codes, strict=True)]
        (project / f"part_{number:03}.txt").write_text("\n".join(lines))


async def python(client: RealClient, *argv: str, cwd: Path, **environ: str) -> str:
    """What a program prints that must end well."""
    base = {"PATH": os.environ["PATH"], "HOME": str(cwd), "PYTHONPATH": str(ROOT / "src"), "NO_PROXY": "127.0.0.1"}
    process = await asyncio.create_subprocess_exec(
        str(folder_of(client) / "bin/python"),
        *argv,
        cwd=cwd,
        env={**base, **environ},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), SECONDS)
    except TimeoutError:
        os.killpg(process.pid, 9)
        raise
    told = output.decode(errors="replace")
    assert process.returncode == 0, told[-4_000:]
    return told


def example(about: str) -> str:
    """The example of docs/use/integrations.md that has these words in it."""
    (found,) = [one.body for one in blocks(ROOT / "docs" / "use" / "integrations.md") if about in one.body]
    return found
