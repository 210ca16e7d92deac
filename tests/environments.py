"""Programs run by the interpreter of a framework's own environment, with this tree's sources (bench/clients.py)."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest
from bench.clients import ROOT, WORDS, RealClient, is_installed, python_of
from tests.house.test_docs_run import blocks

CODE, CRATE = "KX-4711-ZT", "crate 217"  # what stands in the third part, among much of the kind
SCRIPTS = ROOT / "bench" / "frameworks"
SECONDS = 240


def needs(client: RealClient) -> pytest.MarkDecorator:
    """Skips where the framework isn't installed."""
    return pytest.mark.skipif(
        not is_installed(client), reason="not installed: make clients ARGS=--frameworks installs it"
    )


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
    try:
        return await python_of(client, *argv, cwd=cwd, seconds=SECONDS, **environ)
    except subprocess.CalledProcessError as e:
        raise AssertionError(e.output[-4_000:]) from None


def example(about: str) -> str:
    """The example of docs/use/integrations.md that has these words in it."""
    (found,) = [one.body for one in blocks(ROOT / "docs" / "use" / "integrations.md") if about in one.body]
    return found
