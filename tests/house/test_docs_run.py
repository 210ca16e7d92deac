"""Every example in the documentation runs.

```python blocks of one file run in one namespace, in order, in an empty folder. A block after a line
`<!-- no-run -->` is left out. In ```console blocks, lines that start with `$ perdure ` must name a command there is.
"""

from __future__ import annotations

import functools
import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = pytest.mark.house

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [path for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))) if path.is_file()]
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<body>.*?)^(?P=indent)```\s*$", re.M | re.S)
NO_RUN = "<!-- no-run -->"
COMMAND = re.compile(r"^\$ perdure(?: +(?P<rest>.*))?$", re.M)


class Block(NamedTuple):
    language: str
    line: int
    body: str
    runs: bool


def blocks(path: Path) -> list[Block]:
    text = path.read_text()
    found = []
    for match in FENCE.finditer(text):
        before = text[: match.start()].rstrip().rsplit("\n", 1)[-1].strip()
        line = text.count("\n", 0, match.start()) + 2
        indent = len(match["indent"])
        body = "".join(row[indent:] if row.strip() else row for row in match["body"].splitlines(keepends=True))
        found.append(Block(match["language"], line, body, before != NO_RUN))
    return found


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("document", DOCUMENTS, ids=relative)
def test_python_blocks_run(document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runnable = [block for block in blocks(document) if block.language == "python" and block.runs]
    if not runnable:
        pytest.skip("no python blocks")
    if importlib.util.find_spec("perdure") is None:
        pytest.skip("perdure is not installed")
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in runnable:
        # Blank lines in front make a traceback point at the line of the document.
        source = "\n" * (block.line - 1) + block.body
        exec(compile(source, str(document), "exec", dont_inherit=True), namespace)


@functools.cache
def is_command(words: tuple[str, ...]) -> bool:
    code = "import sys; from perdure.cli import main; sys.argv[0] = 'perdure'; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", code, *words, "--help"], capture_output=True, check=False)
    return done.returncode == 0


def subcommand(rest: str) -> tuple[str, ...]:
    """The first word that is not an option; nothing for a bare `perdure` or `perdure --help`."""
    words = shlex.split(rest, comments=True)
    return (words[0],) if words and not words[0].startswith("-") else ()


@pytest.mark.parametrize("document", DOCUMENTS, ids=relative)
def test_console_blocks_name_commands(document: Path) -> None:
    lines = [
        (block.line, match["rest"] or "")
        for block in blocks(document)
        if block.language == "console" and block.runs
        for match in COMMAND.finditer(block.body)
    ]
    if not lines:
        pytest.skip("no perdure commands")
    if not (ROOT / "src" / "perdure" / "cli").is_dir() and not (ROOT / "src" / "perdure" / "cli.py").is_file():
        pytest.skip("perdure.cli is not there yet")
    unknown = [
        f"{relative(document)}:{line} perdure {rest}" for line, rest in lines if not is_command(subcommand(rest))
    ]
    assert not unknown, "\n".join(unknown)
