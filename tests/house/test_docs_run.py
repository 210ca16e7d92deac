"""Every example in the documentation runs.

```python blocks of one file run in one namespace, in order, in an empty folder. A block after a line
`<!-- no-run -->` is left out. In ```console blocks, lines that start with `$ perdure ` must name a command there is.
Those of docs/reference/cli.md are run, each block in a folder of its own with logs and sessions; what a block shows
beneath a command must be printed by it, but for numbers.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shlex
from pathlib import Path
from typing import NamedTuple

import anyio
import pytest
from tests.commands import command

from perdure.cli import main
from perdure.logs.export import to_claude_code
from perdure.transcript.messages import Message, MessageId, ResponseId, Usage
from perdure.transcript.records import Titled
from perdure.wiring import create_session

pytestmark = pytest.mark.house

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [
    ROOT / "README.md",
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page.parent.name not in ("spec", "adr")),
]
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
    return command(*words, "--help", cwd=ROOT, env={}).returncode == 0


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


CLI = ROOT / "docs" / "reference" / "cli.md"
CLI_BLOCKS = [block for block in blocks(CLI) if block.language == "console" and block.runs]


def talk(turns: int, lines: int) -> list[Message]:
    """A prompt, calls with long results, an answer."""
    found = [Message.of("user", "Find the parser bug", id=MessageId("m0"), at=1_750_000_000.0)]
    output = "\n".join(f"line {n} of what was found" for n in range(lines))
    for turn in range(turns):
        use = {"type": "tool_use", "id": f"c{turn}", "name": "Bash", "input": {"command": f"grep -n x {turn}"}}
        result = {"type": "tool_result", "tool_use_id": f"c{turn}", "content": output}
        found.append(
            Message.of(
                "assistant",
                [use],
                id=MessageId(f"m{2 * turn + 1}"),
                at=1_750_000_000.0 + turn,
                model="claude-opus-4-5",
                usage=Usage(input_tokens=8_000 + turn * lines * 6, output_tokens=20),
                response_id=ResponseId(f"r{turn}"),
            )
        )
        found.append(Message.of("user", [result], id=MessageId(f"m{2 * turn + 2}"), at=1_750_000_000.0 + turn))
    return [*found, Message.of("assistant", "It is in line 7.", id=MessageId("m-end"), at=1_750_001_000.0)]


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the commands of docs/reference/cli.md find: this folder with logs in it, and a home with two sessions."""
    for name in list(os.environ):
        if name.startswith(("PERDURE_", "CLAUDE_", "ANTHROPIC_", "OPENAI_")):
            monkeypatch.delenv(name)
    home, app = tmp_path / "home", tmp_path / "app"
    for folder in (app / "logs", app / "src"):
        folder.mkdir(parents=True)
    for name, text in (("README.md", "# An example"), ("CLAUDE.md", "Run the tests."), ("src/engine.py", "x = 1")):
        (app / name).write_text(f"{text}\n")
    for name, turns in (("session.jsonl", 8), ("logs/one.jsonl", 5), ("logs/two.jsonl", 5)):
        lines = to_claude_code(talk(turns, 50), session=Path(name).stem, cwd=str(app), version="2.1.0")
        (app / name).write_bytes(b"".join(lines))

    async def make() -> None:
        for name, turns in (("session-01aaaaaaaaaaaaaa7k2q9x", 2), ("session-01aaaaaaaaaaaaab3m8p4z", 24)):
            session = await create_session(home, project=app, session=name)
            await session.record(Titled(title="The parser bug"))
            await session.append(*talk(turns, 600))
            await session.close()

    anyio.run(make)
    monkeypatch.setenv("PERDURE_HOME", str(home))
    monkeypatch.chdir(app)


def plain(text: str) -> str:
    """A line without what differs from run to run: numbers and the width of columns."""
    return " ".join(re.sub(r"\d[\d,.]*", "#", text).split())


@pytest.mark.usefixtures("example")
@pytest.mark.parametrize("block", CLI_BLOCKS, ids=lambda block: f"line {block.line}")
def test_the_commands_of_the_reference_run(block: Block, capsys: pytest.CaptureFixture[str]) -> None:
    """CLI-6: every command ends well, and prints what is shown."""
    shown, printed = list[str](), ""
    for line in [*block.body.splitlines(), "$"]:
        if not line.startswith("$"):
            shown.append(plain(line))
            continue
        lines = [plain(one) for one in printed.splitlines()]
        assert not [one for one in shown if one not in lines], printed
        shown = []
        if line != "$":
            program, *words = shlex.split(line.removeprefix("$ "))
            code = main(words)
            printed, errors = capsys.readouterr()
            assert program == "perdure" and code == 0, f"{line}: {code}: {printed}{errors}"


LIBRARY = ROOT / "docs" / "use" / "library.md"
SHOWN = [
    match["body"]
    for match in FENCE.finditer(LIBRARY.read_text())
    if match["language"] == "python" and not LIBRARY.read_text()[: match.start()].endswith("<!--\n")
]


@pytest.mark.parametrize("body", SHOWN, ids=range(1, len(SHOWN) + 1))
def test_each_example_of_the_library_is_a_program(body: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LIB-5: pasted into a file of its own it runs, without a key and without what the page hides."""
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    exec(compile(body, str(LIBRARY), "exec", dont_inherit=True), {"__name__": "__main__"})


def test_a_loop_of_ones_own_takes_thirty_lines() -> None:
    """LIB-5: with tools and resume, with and without an event loop, behind a crash, and with one's own client."""
    programs = [body for body in SHOWN if "Session." in body and "SharedStore" not in body]
    assert len(programs) == 5
    for what in ("prepare(", "open_calls(", "perdure.sync", "openai"):
        assert any(what in body for body in programs), what
    for body in programs:
        assert sum(bool(line.strip()) for line in body.splitlines()) <= 30
