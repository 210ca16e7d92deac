"""What programs may rely on, as text: a change of it shows in the difference of a file, and goes into the CHANGELOG.

OPS-2: names and signatures of the library, settings, events, metrics, commands with their options and exit codes, the
fields of what `--json` prints, and what the gateway adds over HTTP. docs/reference/stability.md says for how long each
of them holds. `make golden` writes the files anew.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
import typer
from prometheus_client import Counter, Histogram
from tests.commands import command

import perdure
from perdure import events
from perdure.cli import output
from perdure.cli.app import app
from perdure.gateway import pages
from perdure.gateway.app import _REQUEST
from perdure.gateway.exchange import RECALL, SESSION, _answer_headers
from perdure.gateway.metrics import Metrics
from perdure.gateway.pages import PAGES, PROBES
from perdure.logs.export import to_claude_code
from perdure.settings import Settings
from perdure.transcript.messages import Message, MessageId, ResponseId, Usage
from perdure.wiring import create_session

pytestmark = pytest.mark.golden

PUBLIC = Path(__file__).parent / "public"
Golden = Callable[[Path, str | bytes], None]


def text_of(lines: Iterable[str]) -> str:
    return "\n".join(lines) + "\n"


# --- the library ------------------------------------------------------------------------------------------------------


def face(module: Any) -> Iterator[str]:
    """The public names of a module: signatures of functions, of classes what a program makes, reads and calls."""
    for name in sorted(module.__all__):
        value = getattr(module, name)
        if inspect.isfunction(value):
            yield f"{name}{inspect.signature(value)}"
        elif inspect.isclass(value):
            yield from shape(name, value)
        else:
            yield f"{name}: {type(value).__name__}"


def shape(name: str, value: type) -> Iterator[str]:
    fields = ", ".join(f"{one}: {kind}" for one, kind in annotated(value).items() if not one.startswith("_"))
    yield f"{name}({fields})"
    for attribute, held in sorted(vars(value).items()):
        called = getattr(held, "__func__", held)
        if attribute.startswith("_") or attribute in annotated(value):
            continue
        if inspect.isfunction(called):
            waits = "async " if inspect.iscoroutinefunction(called) else ""
            yield f"    {waits}{name}.{attribute}{inspect.signature(called)}"
        elif isinstance(held, property) and held.fget is not None:
            yield f"    {name}.{attribute}: {inspect.signature(held.fget).return_annotation}"


def annotated(value: type) -> dict[str, Any]:
    """The fields that a class declares itself, with their types as they are written."""
    return inspect.get_annotations(value)


def defined_in(path: Path) -> Iterator[str]:
    """The public classes and functions of a module, read from its source: what it stands on may not be installed."""
    for node in ast.parse(path.read_bytes()).body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield f"{node.name}({', '.join(map(ast.unparse, node.bases))})"
            yield from (f"    {one}" for one in (signature(inner, f"{node.name}.") for inner in node.body) if one)
        elif one := signature(node):
            yield one


def signature(node: ast.stmt, owner: str = "") -> str:
    """Of a function that programs call or make things with; else nothing."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return ""
    is_told = node.name == "__init__" or not node.name.startswith("_")
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    waits = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    return f"{waits}{owner}{node.name}({ast.unparse(node.args)}){returns}" if is_told else ""


def test_the_adapters_of_frameworks(golden: Golden) -> None:
    """OPS-2, LIB-4, LIB-7: what a program names of `perdure.integrations`."""
    found = []
    for path in sorted((Path(perdure.__file__).parent / "integrations").glob("[a-z]*.py")):
        found += [f"# perdure.integrations.{path.stem}", *defined_in(path), ""]
    golden(PUBLIC / "integrations.txt", text_of(found))


def test_the_library(golden: Golden) -> None:
    """OPS-2, LIB-2: every public name, with what it takes and what it holds."""
    found = []
    for name in ("perdure", "perdure.sync", "perdure.core"):
        found += [f"# {name}", *face(importlib.import_module(name)), ""]
    found += ["# perdure.testing", *sorted(importlib.import_module("perdure.testing").__all__)]
    golden(PUBLIC / "library.txt", text_of(found))


def test_settings(golden: Golden) -> None:
    """OPS-2, CLI-3: names, types and defaults."""
    fields = sorted(dataclasses.fields(Settings), key=lambda one: one.name)
    default = Settings()
    golden(
        PUBLIC / "settings.txt", text_of(f"{one.name}: {one.type} = {getattr(default, one.name)!r}" for one in fields)
    )


def test_events(golden: Golden) -> None:
    """OPS-2, OBS-1: names and fields, which are those of the sinks."""
    found = []
    for name in sorted(events.__all__):
        value = getattr(events, name)
        if inspect.isclass(value):
            found.append(f"{name}({', '.join(f'{one}: {kind}' for one, kind in annotated(value).items())})")
    golden(PUBLIC / "events.txt", text_of(found))


def test_metrics(golden: Golden) -> None:
    """OPS-2, GW-9: names, kinds and labels of what Prometheus is given."""
    found = []
    for metric in vars(Metrics()).values():
        if hasattr(metric, "_labelnames"):
            kind = (
                "counter" if isinstance(metric, Counter) else "histogram" if isinstance(metric, Histogram) else "gauge"
            )
            name = next(iter(metric.collect())).name + ("_total" if kind == "counter" else "")
            found.append(f"{name}{{{', '.join(metric._labelnames)}}} {kind}")
    golden(PUBLIC / "metrics.txt", text_of(sorted(found)))


def test_http(golden: Golden) -> None:
    """OPS-2, GW-9: the paths that the gateway answers itself, and the headers that it reads and adds."""
    held = SimpleNamespace(id="s")
    turn: Any = SimpleNamespace(held=held, tokens=1, edits=1, compacted="auto/ledger", spared_tokens=1)
    headers = {name.decode() for name, _ in _answer_headers(turn, "view", "why")} | {_REQUEST.decode()}
    asked = {SESSION.decode(), RECALL.decode()}
    paths = {*PAGES, *PROBES, f"{pages.RECALL}SESSION/ID", f"{pages.REPORT}TENANT/SESSION"}
    golden(
        PUBLIC / "http.txt",
        text_of(["# paths", *sorted(paths), "# in requests", *sorted(asked), "# in answers", *sorted(headers)]),
    )


# --- the command line -------------------------------------------------------------------------------------------------


def commands(one: Any, words: tuple[str, ...] = ("perdure",)) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield words, one
    for name in one.list_commands(None) if hasattr(one, "list_commands") else ():
        yield from commands(one.get_command(None, name), (*words, name))


def test_commands(golden: Golden) -> None:
    """OPS-2, CLI-5: every command with its arguments and options, and the exit codes."""
    found = []
    for words, one in commands(typer.main.get_command(app)):
        names = [
            f"<{param.name}>" if param.param_type_name == "argument" else "/".join(sorted(param.opts))
            for param in one.params
        ]
        found.append(" ".join((*words, *sorted(names))))
    codes = sorted((value, name) for name, value in vars(output).items() if name.startswith("EXIT_"))
    golden(PUBLIC / "commands.txt", text_of([*found, "", *(f"{name} = {value}" for value, name in codes)]))


# What is asked, in this order: a home with one session, a log beside it, a project with a memory.
ASKED = """\
sessions
sessions show talk
sessions tag talk parser
sessions rename talk Title
sessions fork talk
inspect talk
inspect log.jsonl
context talk
recall talk c1
search parser
search parser --sessions
spend
compact talk --dry-run
compact talk
uncompact talk
pin talk kept
pin talk --list
rewind talk -1 --conversation --dry-run
import log.jsonl
import logs
export talk -o talk.jsonl
report talk -o talk.html
memory add The staging database is read-only.
memory ls
memory show project_the_staging_database_is_read_only.md
memory search staging
memory log
memory review
memory doctor
notes show talk
notes path talk
instructions
replay log.jsonl
verdict log.jsonl
config
config snip
init
trust
trust --list
doctor
gc --dry-run
sessions delete talk --yes"""


def paths(value: Any, at: str) -> Iterator[str]:
    """Each field in a value with what it holds: `messages[].id str`."""
    if isinstance(value, dict):
        for key in value:
            yield from paths(value[key], f"{at}.{key}" if at else key)
    elif isinstance(value, list):
        for one in value:
            yield from paths(one, f"{at}[]")
    else:
        yield f"{at} {'null' if value is None else type(value).__name__}"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A project with instructions and logs, and beside it a home with a session."""
    folder = tmp_path / "app"
    (folder / "logs").mkdir(parents=True)
    (folder / "CLAUDE.md").write_text("Run the tests.\n")
    for name, turns in (("log.jsonl", 8), ("logs/one.jsonl", 3)):
        lines = to_claude_code(talk(turns), session=Path(name).stem, cwd=str(folder), version="2.1.0")
        (folder / name).write_bytes(b"".join(lines))

    async def make() -> None:
        session = await create_session(tmp_path / "home", project=folder, session="talk")
        await session.append(*talk(24))
        await session.close()

    anyio.run(make)
    return folder


def talk(turns: int) -> list[Message]:
    """A prompt, calls with long results, an answer."""
    found = [Message.of("user", "Find the parser bug", id=MessageId("m0"), at=1_750_000_000.0)]
    for turn in range(turns):
        use = {"type": "tool_use", "id": f"c{turn}", "name": "Bash", "input": {"command": f"grep -n x {turn}"}}
        result = {"type": "tool_result", "tool_use_id": f"c{turn}", "content": "a line that was found\n" * 600}
        usage = Usage(input_tokens=8_000 + turn * 3_600, output_tokens=20)
        about: Any = {"model": "claude-opus-4-5", "usage": usage, "response_id": ResponseId(f"r{turn}")}
        found.append(Message.of("assistant", [use], id=MessageId(f"a{turn}"), at=1_750_000_000.0 + turn, **about))
        found.append(Message.of("user", [result], id=MessageId(f"u{turn}"), at=1_750_000_000.0 + turn))
    return [*found, Message.of("assistant", "It is in line 7.", id=MessageId("end"), at=1_750_001_000.0)]


@pytest.mark.timeout(600)  # forty commands
def test_json(golden: Golden, place: Path) -> None:
    """OPS-2, CLI-5: the fields of what each command prints with `--json`, and what they hold."""
    env = {"HOME": str(place.parent), "PERDURE_HOME": str(place.parent / "home"), "PATH": "/usr/bin:/bin"}
    found = []
    for line in ASKED.splitlines():
        done = command(*line.split(maxsplit=2 if line.startswith("memory add") else -1), "--json", cwd=place, env=env)
        assert done.returncode == 0, f"{line}: {done.stderr}"
        told = {one for value in done.stdout.splitlines() for one in paths(json.loads(value), "")}
        found += [f"# {line}", *sorted(told), ""]
    golden(PUBLIC / "json.txt", text_of(found))
