"""The demonstration: a review of two source trees, driven live, accounted, compacted, crashed and resumed; offline."""

from __future__ import annotations

import argparse
import ast
import hashlib
import re
import shlex
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import msgspec

from perdure.adapters.journal import JOURNAL, SessionStore
from perdure.adapters.machine.clock import RandomIds
from perdure.context.accounting import account
from perdure.context.request import ModelRequest, to_request
from perdure.engine.compact import compact
from perdure.engine.session import LiveSession, ModelWindow
from perdure.engine.tools import original
from perdure.engine.turn import prepare
from perdure.events import (
    CompactionDone,
    Event,
    JournalRepaired,
    PrefixMoved,
    Restored,
    ResultOffloaded,
    ResultsCleared,
)
from perdure.testing import FakeUpstream, ModelRules, say, text, tool_use
from perdure.transcript.blocks import encode
from perdure.transcript.messages import Message, ResponseId, Usage
from perdure.transcript.records import Front
from perdure.wiring import SessionOptions as Parts
from perdure.wiring import create_session, open_session

PACKAGE = Path(__file__).parents[2]
RULE = "nothing that was said may be lost"
LIBRARY = Path(sysconfig.get_paths()["stdlib"])
_MODULES = (
    *("asyncio/base_events.py", "asyncio/tasks.py", "json/decoder.py", "argparse.py", "subprocess.py", "tempfile.py"),
    *("zipfile.py", "tarfile.py", "email/message.py", "http/client.py", "logging/__init__.py", "pathlib.py"),
    *(
        "unittest/mock.py",
        "typing.py",
        "inspect.py",
        "dataclasses.py",
        "ast.py",
        "decimal.py",
        "shutil.py",
        "socket.py",
    ),
    *("threading.py", "traceback.py", "urllib/request.py", "xml/dom/minidom.py", "difflib.py", "doctest.py", "pdb.py"),
)

Call = tuple[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class ScriptedRound:
    """One answer of the stand-in: some words, and the calls it makes (none: it waits for the next prompt)."""

    says: str
    calls: tuple[Call, ...] = ()
    prompt: str | None = None  # what the person says before it


def rounds() -> Iterator[ScriptedRound]:
    """The review, without end: it starts over with other searches."""
    yield from _package()
    while True:
        largest = sorted(LIBRARY.glob("*.py"), key=lambda path: (-path.stat().st_size, path.name))
        for number, module in enumerate(_MODULES):
            yield from _module(_path(module), largest[3 * number : 3 * number + 3])


def _path(module: str) -> Path:
    path = LIBRARY / module
    return path if path.exists() else path.with_suffix("") / "__init__.py"  # a package in newer versions of Python


def _package() -> Iterator[ScriptedRound]:
    files = sorted(PACKAGE.rglob("*.py"), key=lambda path: -path.stat().st_size)[:12]
    yield ScriptedRound(
        "I start with the layout and the laws of the view.",
        (
            ("Bash", {"command": f"ls -la {PACKAGE}"}),
            ("Grep", {"pattern": r"^(class|def|async def) ", "path": str(PACKAGE)}),
        ),
        prompt=f"Review this package. Keep the rule in mind: {RULE}. Do not edit anything.",
    )
    for first in range(0, len(files), 3):
        calls = tuple(("Read", {"file_path": str(path)}) for path in files[first : first + 3])
        yield ScriptedRound(f"Now {', '.join(path.name for path in files[first : first + 3])}.", calls)
    yield ScriptedRound(
        "The package is read. Its core is a fold of records into a view; every change is recorded first."
    )


def _module(path: Path, others: list[Path]) -> Iterator[ScriptedRound]:
    name = path.stem if path.stem != "__init__" else path.parent.name
    yield ScriptedRound(
        f"I look for where {name} raises, and read it.",
        (
            ("Grep", {"pattern": rf"\b{name}\.", "path": str(path.parent)}),
            ("Read", {"file_path": str(path)}),
        ),
        prompt=f"How does the standard library's {name} report errors?",
    )
    outlines = tuple(("Outline", {"file_path": str(one)}) for one in others)
    yield ScriptedRound("Some outlines of its neighbours, to keep at hand.", outlines)
    yield ScriptedRound(
        "I check that it compiles, and what it defines.", (("Bash", {"command": f"python -m py_compile {path}"}),)
    )
    yield ScriptedRound(
        f"The end of {name} once more.", (("Read", {"file_path": str(path), "offset": 40, "limit": 400}),)
    )
    yield ScriptedRound(f"{name} raises its own exceptions and lets OSError through. Noted.")


_READ_CHARS = 48_000
_GREP_HITS = 250

DEFINITIONS: tuple[dict[str, Any], ...] = (
    {
        "name": "Read",
        "description": "Read a text file, or the lines from offset on.",
        "input_schema": {
            "type": "object",
            "properties": {
                "file_path": {"type": "string"},
                "offset": {"type": "integer"},
                "limit": {"type": "integer"},
            },
            "required": ["file_path"],
        },
    },
    {
        "name": "Grep",
        "description": "Search the Python files of a directory for a regular expression.",
        "input_schema": {
            "type": "object",
            "properties": {"pattern": {"type": "string"}, "path": {"type": "string"}},
            "required": ["pattern", "path"],
        },
    },
    {
        "name": "Outline",
        "description": "The classes and functions of a Python file, with their signatures and first lines of docs.",
        "input_schema": {"type": "object", "properties": {"file_path": {"type": "string"}}, "required": ["file_path"]},
    },
    {
        "name": "Bash",
        "description": "Run a command and return what it prints.",
        "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    },
)


def run_tool(name: str, arguments: dict[str, Any]) -> tuple[str, bool]:
    """The output of a call, and whether it failed."""
    try:
        if name == "Read":
            return _read(Path(arguments["file_path"]), int(arguments.get("offset", 0)), arguments.get("limit")), False
        if name == "Grep":
            return _grep(arguments["pattern"], Path(arguments["path"])), False
        if name == "Outline":
            return _outline(Path(arguments["file_path"])), False
        return _bash(arguments["command"])
    except OSError as e:
        return f"{name} failed: {e.strerror}: {e.filename}", True


def _read(path: Path, offset: int, limit: int | None) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    chosen = lines[offset : None if limit is None else offset + limit]
    return "\n".join(f"{number:>6}\t{line}" for number, line in enumerate(chosen, offset + 1))[:_READ_CHARS]


def _grep(pattern: str, root: Path) -> str:
    wanted, hits = re.compile(pattern), []
    for path in sorted(root.glob("*.py")):
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            if wanted.search(line):
                hits.append(f"{path}:{number}:{line.strip()[:160]}")
                if len(hits) == _GREP_HITS:
                    return "\n".join(hits)
    return "\n".join(hits) or "no match"


def _outline(path: Path) -> str:
    """Definitions in their order, each with the first line of its documentation."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8", errors="replace"))):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            head = f"class {node.name}" if isinstance(node, ast.ClassDef) else f"{node.name}({ast.unparse(node.args)})"
            found.append((node.lineno, f"{head}  {(ast.get_docstring(node) or '').partition(chr(10))[0]}".rstrip()))
    return "\n".join(f"{number}: {line}" for number, line in sorted(found))


def _bash(command: str) -> tuple[str, bool]:
    words = shlex.split(command)
    if words[0] == "python":
        words[0] = sys.executable
    done = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=120, check=False)
    output = done.stdout + done.stderr
    return (output or "(no output)") + (f"\nExit code {done.returncode}" if done.returncode else ""), bool(
        done.returncode
    )


MODEL = "claude-opus-4-5-demo"
WINDOW_TOKENS = 200_000
SYSTEM = (
    "You are a careful reviewer of Python code. You read before you judge, you name files and lines, and you change "
    "nothing unless you are asked to."
)


@dataclass(slots=True)
class DemoEvents:
    """The sink of the demonstration: every event, with the turn in which it came."""

    turn: int = 0
    events: list[tuple[int, Event]] = field(default_factory=list)

    def emit(self, event: Event) -> None:
        self.events.append((self.turn, event))

    def of(self, kind: type[Any]) -> list[tuple[int, Any]]:
        return [(turn, event) for turn, event in self.events if isinstance(event, kind)]


@dataclass(slots=True)
class DemoSession:
    """A running session between the script and the fake server."""

    session: LiveSession
    fired: DemoEvents
    upstream: FakeUpstream = field(default_factory=lambda: FakeUpstream(rules=ModelRules(window_tokens=WINDOW_TOKENS)))
    script: Iterator[ScriptedRound] = field(default_factory=rounds)
    said_tokens: int = 0
    last_body: bytes = b""
    outputs: dict[str, str] = field(default_factory=dict)  # what the tools said, by the id of the call
    ids: RandomIds = field(default_factory=RandomIds)

    async def begin(self) -> None:
        """Record what stands before the messages."""
        definitions = tuple(msgspec.Raw(encode(tool)) for tool in DEFINITIONS)
        system = (msgspec.Raw(encode({"type": "text", "text": SYSTEM})),)
        await self.session.record(Front(model=MODEL, system=system, tools=definitions))

    async def until(self, tokens: int, on_turn: Callable[[int, int], None]) -> None:
        """Go on until so many tokens were said; `on_turn(said, size)` after each answer."""
        while self.said_tokens < tokens:
            await self.turn(next(self.script))
            on_turn(self.said_tokens, self.session.facts().size(self.session.view))

    async def turn(self, step: ScriptedRound) -> None:
        """One exchange: the prompt if there is one, the request, the answer, the tools."""
        if step.prompt is not None:
            await self._say(Message.of("user", step.prompt))
        self.fired.turn += 1
        prepared = await prepare(self.session)
        self.last_body = prepared.request.body
        uses = [tool_use(name, arguments, id=self.ids.new("toolu")) for name, arguments in step.calls]
        reply = self.upstream.respond(prepared.request.body, reply=say(text(step.says), *uses), session="demo")
        await self._say(_answer(reply.message))
        if uses:
            results = [_result(use) for use in uses]
            self.outputs |= {result["tool_use_id"]: result["content"] for result in results}
            await self._say(Message.of("user", results))
        self.session.rest()

    async def _say(self, message: Message) -> None:
        await self.session.append(message)
        self.said_tokens += self.session.view.items[-1].size.live


def _answer(message: dict[str, Any]) -> Message:
    usage = msgspec.convert(message["usage"], Usage, strict=False)
    return Message.of(
        "assistant",
        message["content"],
        response_id=ResponseId(message["id"]),
        model=MODEL,
        usage=usage,
        stop_reason=message["stop_reason"],
    )


def _result(use: dict[str, Any]) -> dict[str, Any]:
    output, failed = run_tool(use["name"], use["input"])
    return {"type": "tool_result", "tool_use_id": use["id"], "content": output, "is_error": failed}


SAID_TOKENS = 700_000
ACKNOWLEDGED = 12  # messages that the doomed process gets to write
RECALLED = 12  # results of tools that are asked back, spread over the session
_BAR = 40
_NEXT = (
    ("context FILE", "what the window holds, as a grid"),
    ("replay FILE --window 100000", "the same session in a smaller window"),
    ("replay ~/.claude/projects", "your own Claude Code sessions"),
)


def tell(line: str = "") -> None:
    print(line, flush=True)


def heading(number: int, text: str) -> None:
    tell(f"\n{number}. {text}\n{'-' * (len(text) + 3)}")


async def run(home: Path) -> bool:
    """The whole demonstration; True when every promise that it shows was kept."""
    tell("Perdure, offline: no key, no network. A fixed script stands in for the model; the tools really run,")
    tell("and a stand-in for the server checks every request by the API's rules.")
    fired, name = DemoEvents(), RandomIds().new("demo")
    parts = Parts(sink=fired, window=ModelWindow(WINDOW_TOKENS, "model"))
    session = await create_session(home, project=Path.cwd(), session=name, parts=parts)
    live = DemoSession(session, fired)
    heading(1, f"A long session: {SAID_TOKENS:,} tokens of reading and searching, window {WINDOW_TOKENS:,}")
    await live.begin()
    started = time.monotonic()
    await live.until(SAID_TOKENS, _progress())
    _what_fired(live, time.monotonic() - started)
    heading(2, "What the window holds now")
    _accounting(session)
    heading(3, "A compaction, asked for, and the exact words again")
    is_kept = await _compaction_and_recall(live)
    heading(4, "Crash and resume")
    before = _request(session)
    await session.close()
    journal = SessionStore(home).locate(name) / JOURNAL
    is_safe = await _crash_and_resume(home, name, fired, before)
    is_valid = not live.upstream.statistics.violations
    is_ok = is_kept and is_safe and is_valid
    _ending(journal, is_ok)
    return is_ok


def _progress() -> Callable[[int, int], None]:
    due = 0

    def on_turn(said: int, size: int) -> None:
        nonlocal due
        if said >= due:
            tell(f"   said {said:>7,}   in the window {size:>7,}  |{'#' * (size * _BAR // WINDOW_TOKENS):<{_BAR}}|")
            due += SAID_TOKENS // 14

    return on_turn


def _what_fired(live: DemoSession, seconds: float) -> None:
    fired, statistics = live.fired, live.upstream.statistics
    offloads, clearings = fired.of(ResultOffloaded), fired.of(ResultsCleared)
    tell(f"\n   {fired.turn} model calls in {seconds:.1f} s, including the time of the tools")
    if offloads:
        large = sum(event.bytes for _, event in offloads)
        tell(f"   {len(offloads)} large results offloaded: {large:,} bytes, with previews in their place")
    moves = fired.of(PrefixMoved)
    for turn in sorted({turn for turn, _ in clearings}):
        cleared = [event for at, event in clearings if at == turn]
        many, saved = sum(len(one.tool_use_ids) for one in cleared), sum(one.tokens_saved for one in cleared)
        again = sum(event.tokens_rewritten for at, event in moves if at == turn)
        again_said = f"{again:>6,} cached tokens had to be written again"
        tell(f"   call {turn:>3}: {many} old results cleared, {saved:>7,} tokens; {again_said}")
    tell(f"   the server refused {statistics.refused} of {statistics.requests} requests")
    each = f"{statistics.writes_per_content_token:.2f} times each token of content"
    tell(f"   prompt cache: {statistics.read_tokens:,} tokens read, {statistics.written_tokens:,} written ({each})")


def _accounting(session: LiveSession) -> None:
    view = account(session.view, session.facts())
    for category in view.categories:
        if category.tokens:
            tell(f"   {category.name:<36} {category.tokens:>8,}")
    tell(f"   {'free':<36} {view.free:>8,}")
    tell(f"   {'reserve for the answer':<36} {view.reserve:>8,}")
    tell(f"   {'window':<36} {session.limits.window:>8,}")


async def _compaction_and_recall(live: DemoSession) -> bool:
    """What `/compact` does, and whether what left the window can still be read as it was."""
    session, step = live.session, next(live.script)
    while step.prompt is None:  # to the end of what is under way, where a person would ask for it
        await live.turn(step)
        step = next(live.script)
    started = time.monotonic()
    await compact(session, trigger="manual")
    took = time.monotonic() - started
    done: CompactionDone = live.fired.of(CompactionDone)[-1][1]
    tell(f"   {done.tokens_before:,} tokens in the window before, {done.tokens_after:,} after; {took:.1f} s, no model")
    again = sum(event.tokens for _, event in live.fired.of(Restored))
    parts = f"the record {done.summary_tokens:,}, the newest messages {done.kept_tokens:,}, files shown again {again:,}"
    tell(f"   of which {parts}")
    await live.turn(step)
    has_rule = RULE.encode() in live.last_body
    tell(f"   the rule of the first prompt ({RULE}) is in the next request: {_verdict(has_rule, 'yes')}")
    ids = list(live.outputs)[:: len(live.outputs) // RECALLED][:RECALLED]
    recalled = [(await original(session, identity)).text == live.outputs[identity] for identity in ids]
    what = f"{len(ids)} results of tools from the whole session, recalled by their ids"
    tell(f"   {what}: {_verdict(all(recalled), 'as they were')}")
    return has_rule and all(recalled)


def _request(session: LiveSession) -> ModelRequest:
    return to_request(session.view, session.facts())


def _digest(request: ModelRequest) -> str:
    return hashlib.sha256(request.body).hexdigest()[:16]


async def _crash_and_resume(home: Path, name: str, fired: DemoEvents, before: ModelRequest) -> bool:
    parts = Parts(sink=fired, window=ModelWindow(WINDOW_TOKENS, "model"))
    session = await open_session(home, name, parts=parts)
    again = _request(session)
    await session.close()
    same = again.body == before.body
    digests = f"{_digest(before)} before closing, {_digest(again)} after reopening"
    tell(f"   the next request: {digests}: {_verdict(same, 'identical')}")
    acknowledged = _kill_while_writing(home, name)
    tell(f"   another process continued and was killed while writing; {len(acknowledged)} messages acknowledged")
    session = await open_session(home, name, parts=parts)
    quick, present = _request(session), set(session.view.positions)
    await session.close()
    whole = await open_session(home, name, parts=parts, whole=True)
    full = _request(whole)
    await whole.close()
    for _, event in fired.of(JournalRepaired):
        tell(f"   repaired while opening: line {event.line}: {event.what}")
    kept = all(identity in present for identity in acknowledged)
    tell(f"   acknowledged messages found again: {_verdict(kept, f'all {len(acknowledged)}')}")
    extends = _extends(quick, before)
    tell(f"   the request now begins with the one before, block for block: {_verdict(extends, 'yes')}")
    equal = quick.body == full.body
    digests = f"read back from the last boundary {_digest(quick)}, from the start {_digest(full)}"
    tell(f"   {digests}: {_verdict(equal, 'identical')}")
    return same and kept and extends and equal


def _extends(later: ModelRequest, earlier: ModelRequest) -> bool:
    old = [(role, part.raw) for role, part in earlier.parts()]
    return [(role, part.raw) for role, part in later.parts()][: len(old)] == old


def _kill_while_writing(home: Path, name: str) -> list[str]:
    """Let another process append until some are acknowledged, then kill it; the ids that it acknowledged."""
    command = [sys.executable, "-m", "perdure.lab.demo.crash", str(home), name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        acknowledged = [child.stdout.readline().strip() for _ in range(ACKNOWLEDGED)]
        child.kill()
        acknowledged += [line.strip() for line in child.stdout]
    return [identity for identity in acknowledged if identity]


def _verdict(is_kept: bool, word: str) -> str:
    return word if is_kept else "NOT SO - please report this"


def _ending(journal: Path, is_ok: bool) -> None:
    heading(5, "Result")
    size = journal.stat().st_size
    tell(f"   {'Everything shown above held.' if is_ok else 'Something did not hold: see above.'}")
    tell(f"   The journal ({size / 1e6:.1f} MB): {journal}")
    tell("\n   To look further, with that path as FILE:")
    for command, what in _NEXT:
        tell(f"     .venv/bin/perdure {command:<30}{what}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Perdure's demonstration: offline, on real input.")
    parser.add_argument("--home", type=Path, default=Path("demo-out"), help="where sessions are kept")
    options = parser.parse_args()
    try:
        is_ok = anyio.run(run, options.home.resolve())
    except KeyboardInterrupt:
        tell("\ninterrupted; what was acknowledged is in the journal")
        sys.exit(130)
    sys.exit(0 if is_ok else 1)
