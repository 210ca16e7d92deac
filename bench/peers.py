"""Perdure against the field in one run, on the same recorded sessions in the same windows (SPD-6).

Usage: python bench/peers.py [FOLDER | FILE …] [--all] [--only NAME …] [--window 48000] [--json] [--markdown]
       python bench/peers.py --front

Each peer is installed from PyPI into `build/peers` at the version written below and used by its public interface, with
its defaults and with settings after its documentation. A process of its own drives each through each recording, call
by call, with the answers that the recording has; what it would send is counted the same for all (bench/field/loop.py).
Summaries that a model would write are written by a scripted summariser, the same for all.

Printed for each: calls made, requests that break a provider's rule, requests beyond the window, breaks of the prefix,
uncached tokens, the price with the summaries, and of the facts that were needed behind the places that
`perdure bench fidelity` cuts at how many stood in view, beside a record of ours of that same size. CPU milliseconds a
turn are from one made session that grows to 1M tokens, in a window of 200,000. `--front` measures nothing: it prints
the README's table from what docs/measured/peers.md has of the last run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from _front_table import front_table
from clients import RealClient, folder_of, install, reason
from field.loop import size_of
from perdure import Message, Usage
from perdure.adapters.logs import find_logs
from perdure.compaction.ledger import compact_messages
from perdure.context.cost import usage_usd
from perdure.context.models import ModelSpec, model_spec
from perdure.errors import PerdureError
from perdure.lab.bench.places import cuts_of_recording, is_one_project
from perdure.lab.bench.probe import Gold, gold_of, utterances_of
from perdure.lab.bench.scores import KeptCount, score
from perdure.logs.detect import read_recordings
from perdure.logs.recording import LoggedRewind, RecordedMessage, Recording
from perdure.transcript.blocks import Text, ToolResult, ToolUse
from perdure.transcript.tokens import base_tokens, block_size
from turn import Talk

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = ROOT / "bench" / "field"
PAGE = ROOT / "docs" / "measured" / "peers.md"
DATA = ROOT.parent / "shared" / "data"
SOME = ("0cd9edf7", "15f99783", "8209f1c2")  # without --all: 70,000 to 120,000 tokens, so that LiteLLM ends, too
WINDOW = 48_000  # which each of these fills one and a half times to two and a half times
LEAST_WINDOW = 10_000
SYSTEM = "You are a careful assistant that works on a project with tools."
AXES = ("facts", "far", "context")
SIZES = (200_000, 1_000_000)
LONG_WINDOW = 200_000
MEASURED = (0.98, 1.0, 1.02)  # shares of a size at which a stateless peer is asked
SHARES = (0.5, 0.8)  # where each recording is cut
LEAST_TOKENS = 60_000  # a shorter session never comes near its window
SECONDS = 300.0  # of processor time for one peer and one recording
LONG_SECONDS = 120.0  # for the made session
JOBS = 2  # peers at a time
LINE_BYTES = 1 << 26  # of a view, the longest that a peer prints


@dataclass(frozen=True, slots=True)
class PeerSetting:
    """A peer with one of its settings."""

    package: str
    version: str
    script: str
    setting: str
    python: str = sys.executable

    @property
    def name(self) -> str:
        return f"{self.package.split('[')[0]}: {self.setting}"

    @property
    def client(self) -> RealClient | None:
        """How it is installed; ours isn't."""
        if self.package == "perdure":
            return None
        return RealClient(
            self.name,
            "",
            self.package,
            self.version,
            (),
            registry="PyPI",
            python=self.python,
            cache=ROOT / "build/peers",
        )


def _settings() -> Iterator[PeerSetting]:
    for package, version, script, python, settings in (
        ("perdure", "", "perdure_peer.py", sys.executable, ("default", "thrifty")),
        (
            "langchain", "1.4.7", "langchain_peer.py", sys.executable,
            ("trim, default", "trim, documented", "summarise, default", "summarise, whole", "clear, default",
             "clear, scaled"),
        ),
        (
            "openai-agents", "0.24.0", "openai_agents_peer.py", sys.executable,
            ("session, default", "session, limit 100", "compaction session, default", "compaction session, by size",
             "output trimmer, default"),
        ),
        (
            "pydantic-ai-harness", "0.62.0", "pydantic_ai_peer.py", sys.executable,
            ("clear", "slide", "summarise", "tiers, documented"),
        ),
        ("litellm", "1.106.2", "litellm_peer.py", sys.executable, ("trim", "compress, default", "compress, scaled")),
        ("openhands-sdk", "1.58.0", "openhands_peer.py", "python3.12", ("condenser, default", "condenser, by tokens")),
    ):  # fmt: skip
        for setting in settings:
            yield PeerSetting(package, version, script, setting, python)


SETTINGS = tuple(_settings())


# --- the sessions ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Place:
    """All that was said before a call, and what of it was needed behind."""

    before: tuple[Message, ...]
    gold: Gold


@dataclass(slots=True)
class Session:
    """One session as all peers meet it, and the gold of its places by the number of the call."""

    name: str
    calls: list[dict[str, Any]] = field(default_factory=list)
    places: dict[int, Place] = field(default_factory=dict)

    def write(self, folder: Path, window: int) -> Path:
        """The script that peers read, in a window of so many tokens."""
        path = folder / f"{self.name}.json"
        path.write_text(json.dumps({"system": SYSTEM, "window": window, "calls": self.calls}))
        return path


def _said(message: Message, tools: dict[str, str]) -> Iterator[dict[str, Any]]:
    """A user's message: results first, as every protocol wants them."""
    texts = []
    for block in message.blocks:
        value = block.value
        if isinstance(value, ToolResult) and value.tool_use_id in tools:
            name = tools.pop(value.tool_use_id)
            yield {
                "role": "tool",
                "id": value.tool_use_id,
                "name": name,
                "text": value.text() or "(no output)",
                "is_error": bool(value.is_error),
            }
        elif isinstance(value, Text) and value.text.strip():
            texts.append(value.text)
    if texts:
        yield {"role": "user", "text": "\n\n".join(texts)}


def _answer(messages: Sequence[Message]) -> dict[str, Any]:
    values = [block.value for message in messages for block in message.blocks]
    calls = [{"id": v.id, "name": v.name, "arguments": dict(v.input)} for v in values if isinstance(v, ToolUse)]
    return {
        "role": "assistant",
        "text": "\n\n".join(v.text for v in values if isinstance(v, Text) and v.text.strip()),
        "calls": calls,
    }


def calls_of(messages: Sequence[tuple[Message, int]]) -> tuple[list[dict[str, Any]], list[int]]:
    """Each call of the model with what was said before it, and the line of its answer.

    Thoughts, images, sub-agents' own talk and calls that nobody answered are left out, for all peers alike.
    """
    answered = {r.tool_use_id for message, _ in messages for r in message.tool_results}
    calls: list[dict[str, Any]] = []
    lines: list[int] = []
    said: list[dict[str, Any]] = []
    open_tools: dict[str, str] = {}
    run: list[Message] = []
    line = 0

    def close() -> None:
        if not run:
            return
        answer = _answer(run)
        answer["calls"] = [call for call in answer["calls"] if call["id"] in answered]
        if answer["text"] or answer["calls"]:
            open_tools.update({call["id"]: call["name"] for call in answer["calls"]})
            calls.append({"said": list(said), "answer": answer, "at": run[0].at, "measured": False, "watched": False})
            lines.append(line)
            said.clear()
        run.clear()

    for message, at_line in messages:
        if message.role == "assistant":
            line = line if run else at_line
            run.append(message)
        elif message.role == "user":
            close()
            said += _said(message, open_tools)
    close()
    return calls, lines


def tokens_of(messages: Sequence[Message]) -> int:
    return sum(block_size(block).base for message in messages for block in message.blocks)


def session_of(recording: Recording, path: Path) -> Session:
    """A recording as one line of talk, without what was rewound."""
    kept: list[tuple[Message, int]] = []
    for step in recording.steps:
        if isinstance(step, LoggedRewind):
            ids = [message.id for message, _ in kept]
            kept = kept[: ids.index(step.to) + 1] if step.to in ids else kept
        elif isinstance(step, RecordedMessage) and not step.logged_only and step.message.agent_id is None:
            kept.append((step.message, step.line))
    places = cuts_of_recording(recording, path.name, shares=SHARES, least_tokens=LEAST_TOKENS // 4, boundaries=False)
    calls, lines = calls_of(kept)
    session = Session(recording.session[:8], calls)
    for place in places:
        number = next((n for n, line in enumerate(lines) if line >= place.line), None)
        gold = gold_of(utterances_of(place.before, place.lines), utterances_of(place.after, place.lines))
        if number is not None and gold.facts:
            before = tuple(message for message, line in kept if line < place.line)
            session.places[number] = Place(before, gold)
            session.calls[number]["watched"] = True
    return session


def sessions_of(files: Sequence[Path], *, is_all: bool) -> list[Session]:
    found = []
    for path in files:
        if not is_all and not path.name.startswith(SOME):
            continue
        data = path.read_bytes()
        try:
            recordings = read_recordings(data, path.name)
        except PerdureError:
            continue
        for recording in recordings if is_one_project(data) else ():
            if tokens_of(recording.messages) >= LEAST_TOKENS:
                found.append(session_of(recording, path))
    return found


def long_session() -> Session:
    """A made session of 1.2M tokens, measured around 200,000 and 1M (that of bench/turn.py)."""
    talk, tokens = Talk(18), 0
    messages: list[tuple[Message, int]] = []
    while tokens < SIZES[-1] * 1.1:
        for message in talk.next():
            if message is not None:
                messages.append((message, 0))
                tokens += tokens_of([message])
    calls, _ = calls_of(messages)
    said = 0
    for call in calls:
        before = said
        said += sum(map(size_of, call["said"])) + size_of(call["answer"])
        for size in SIZES:
            steps = [size * share for share in MEASURED]
            call["measured"] |= any(before < step <= said for step in steps)
    return Session("long", calls)


# --- one peer and one session ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class Row:
    """A peer with one of its settings, over all sessions."""

    peer: PeerSetting
    calls: int = 0
    of: int = 0  # calls of all sessions; more than were made where a peer was stopped or failed
    invalid: int = 0
    beyond: int = 0
    breaks: int = 0
    uncached: int = 0
    summaries: int = 0
    usd: float = 0.0
    largest: int = 0
    places: int = 0
    views: list[int] = field(default_factory=list)  # tokens of those that the window holds
    kept: dict[str, KeptCount] = field(default_factory=dict)
    ours: dict[str, KeptCount] = field(default_factory=dict)
    ms: dict[int, float | None] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)  # what couldn't be measured, and why


def add_counts(row: Row, session: Session, done: dict[str, Any], model: ModelSpec) -> None:
    """What one session came to. The summariser's calls are paid, too, without a cache."""
    for name in ("calls", "invalid", "beyond", "breaks", "uncached"):
        setattr(row, name, getattr(row, name) + done[name])
    row.largest = max(row.largest, done["largest"])
    asked = done["summaries"]
    row.summaries += asked["calls"]
    main = Usage(0, done["output"], done["read"], done["uncached"])
    row.usd += usage_usd(main, model) + usage_usd(Usage(asked["read"], asked["written"]), model)
    if done["stopped"]:
        row.said.append(f"{session.name}: {done['stopped']}")


def add_view(row: Row, session: Session, number: int, text: str, window: int) -> None:
    """Score a view at a place, and a record of ours with a raw tail, half and half, of that same size."""
    place, tokens = session.places[number], base_tokens(text)
    row.places += 1
    if tokens > window:  # which no provider would have read
        return
    row.views.append(tokens)
    size = round(tokens, -3)
    ours = compact_messages(place.before, size // 2, size // 2).text
    for into, view in ((row.kept, text), (row.ours, ours)):
        tallies = score(place.gold, view).tallies
        for axis in AXES:
            into[axis] = into.get(axis, KeptCount(0, 0)).plus(tallies[axis])


def add_times(row: Row, done: dict[str, Any]) -> None:
    """Milliseconds a turn at each size."""
    for size in SIZES:
        spent = [seconds for said, seconds in done["timed"] if 0.9 * size < said <= 1.1 * size]
        row.ms[size] = 1000 * sum(spent) / len(spent) if spent else None
    if done["stopped"]:
        row.said.append(f"made session: {done['stopped']}")


class PeerFailed(Exception):
    """A peer's process ended with an error."""


async def drive(peer: PeerSetting, script: Path, seconds: float, hear: Callable[[dict[str, Any]], None]) -> None:
    """Run a peer's process and hear what it prints. Raises `PeerFailed`."""
    client = peer.client
    python = sys.executable if client is None else str(folder_of(client) / "bin/python")
    command = [python, str(SCRIPTS / peer.script), str(script), peer.setting, "--seconds", str(seconds)]
    with tempfile.TemporaryFile("w+") as errors:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, limit=LINE_BYTES
        )
        assert process.stdout is not None
        try:
            async for line in process.stdout:
                hear(json.loads(line))
            code = await process.wait()
        finally:
            if process.returncode is None:  # a person stopped us
                process.kill()
                await process.wait()
        if code:
            errors.seek(0)
            lines = errors.read().strip().splitlines() or [f"ended with {code}"]
            raise PeerFailed(lines[-1][:200])


async def measure(
    row: Row, sessions: Sequence[Session], long: Session | None, folder: Path, given: argparse.Namespace
) -> None:
    """One peer over all sessions."""
    model = model_spec(given.price_of)
    for session in (*sessions, *([long] if long else [])):
        is_long = session is long
        row.of += 0 if is_long else len(session.calls)
        window = LONG_WINDOW if is_long else given.window
        seconds = min(given.seconds, LONG_SECONDS) if is_long else given.seconds

        def hear(told: dict[str, Any], session: Session = session, window: int = window) -> None:
            if "view" in told:
                add_view(row, session, told["view"], told["text"], window)
            elif "at" in told:
                _progress(f"{row.peer.name}: {session.name} {told['at']} of {len(session.calls)}")
            elif session is long:
                add_times(row, told["done"])
            else:
                add_counts(row, session, told["done"], model)

        try:
            await drive(row.peer, session.write(folder, window), seconds, hear)
        except (PeerFailed, OSError, ValueError) as e:  # it can't be started, or what it prints isn't for us
            if not any(said.endswith(f": {e}") for said in row.said):  # once, where it fails everywhere
                row.said.append(f"{session.name}: {e}")


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[2K{text}", end="", file=sys.stderr, flush=True)


# --- the table -------------------------------------------------------------------------------------------------------

COSTS = ("", "calls", "invalid", "beyond", "breaks", "uncached", "summaries", "USD", "ms at 200k", "ms at 1M")
VIEWS = ("", "view", "facts", "far", "context", "ours: facts", "far", "context")


def cost_cells(row: Row) -> list[str]:
    """What the requests of a peer came to; a dash is not measured."""
    if row.calls:
        calls = str(row.calls) if row.calls == row.of else f"{row.calls} of {row.of}"
        counts = [calls, str(row.invalid), str(row.beyond), str(row.breaks), f"{row.uncached:,}", str(row.summaries)]
        counts.append(f"{row.usd:.2f}")
    else:
        counts = ["–"] * 7
    return [row.peer.name, *counts, *("–" if (ms := row.ms.get(size)) is None else f"{ms:.1f}" for size in SIZES)]


def view_cells(row: Row) -> list[str]:
    """What stood in view at the places, and in a record of ours of that size; a dash is not measured."""

    def percent(tallies: dict[str, KeptCount], axis: str) -> str:
        value = tallies[axis].percent if axis in tallies else None
        return "–" if value is None else f"{value:.0f}"

    view = f"{sum(row.views) / len(row.views) / 1000:.0f}k" if row.views else "–"
    if len(row.views) < row.places:
        view += f" ({len(row.views)} of {row.places})"
    return [
        row.peer.name, view, *(percent(row.kept, axis) for axis in AXES), *(percent(row.ours, axis) for axis in AXES)
    ]  # fmt: skip


def table(lines: Sequence[Sequence[str]], *, is_markdown: bool) -> str:
    """The first of the lines is the head; the first cell of each is a name, all others are figures."""
    if is_markdown:
        lines = [lines[0], ["---", *("---:" for _ in lines[0][1:])], *lines[1:]]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)
    widths = [max(len(line[n]) for line in lines) for n in range(len(lines[0]))]
    return "\n".join(
        "  ".join((cell.ljust if n == 0 else cell.rjust)(widths[n]) for n, cell in enumerate(line)) for line in lines
    )


def conditions(
    sessions: Sequence[Session], rows: Sequence[Row], given: argparse.Namespace, began: os.times_result
) -> str:
    """What was measured, on what, under which load, and how long it took."""
    spent = os.times()
    names = ", ".join(f"{one.name} ({len(one.calls)} calls)" for one in sessions)
    told = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    versions = dict.fromkeys(f"{row.peer.package} {row.peer.version}" for row in rows if row.peer.version)
    return (
        f"Sessions: {names}; window {given.window:,}; prices of {given.price_of}.\n"
        f"Perdure at {told.stdout.strip() or 'an unknown commit'}; {', '.join(versions) or 'no other package'}.\n"
        f"{os.cpu_count()} processors, load average {os.getloadavg()[0]:.1f}; {spent.elapsed - began.elapsed:.0f} s, "
        f"and {sum(spent[:4]) - sum(began[:4]):.0f} s of processor time; milliseconds are of processor time, too."
    )


def asked_for(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line, checked; ends the program with one line where it can't be followed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path, help=f"recordings, or folders of them; {DATA} without any")
    parser.add_argument("--all", action="store_true", help="all recordings there, rather than three")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="only peers whose names begin so")
    parser.add_argument("--window", type=int, default=WINDOW, help=f"tokens; {WINDOW:,} without it")
    parser.add_argument("--price-of", default="claude-sonnet-5-5", metavar="MODEL", help="whose list prices are used")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="processor time for a peer and a recording")
    parser.add_argument("--no-long", action="store_true", help="without the made session of 1M tokens")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    parser.add_argument("--markdown", action="store_true", help="print the tables in Markdown")
    parser.add_argument("--front", action="store_true", help="print the table of the front page, and measure nothing")
    given = parser.parse_args(arguments)
    if given.window < LEAST_WINDOW:
        parser.error(f"--window: {given.window:,} is too small; {LEAST_WINDOW:,} tokens are the least")
    if model_spec(given.price_of).input_usd is None:
        parser.error(f"--price-of: no price is known for {given.price_of}")
    for name in given.only:
        if not any(peer.name.startswith(name) for peer in SETTINGS):
            packages = ", ".join(dict.fromkeys(peer.package.split("[")[0] for peer in SETTINGS))
            parser.error(f"--only: no peer's name begins with {name!r}; there are {packages}")
    if missing := [path for path in given.paths if not path.exists()]:
        parser.error(f"{missing[0]} isn't there; name recordings, or folders of them")
    return given


def install_all(rows: Sequence[Row]) -> None:
    """Install what the rows need; one whose package can't be installed says why."""
    failed: dict[str, str] = {}
    for row in rows:
        client = row.peer.client
        if client is None:
            continue
        if client.package not in failed:
            _progress(f"{client.package}: installing")
            try:
                install(client)
            except (subprocess.CalledProcessError, OSError) as e:
                failed[client.package] = f"can't be installed: {reason(e)}"
        if client.package in failed:
            row.said.append(failed[client.package])


async def measure_all(rows: Sequence[Row], sessions: Sequence[Session], given: argparse.Namespace) -> None:
    """Fill the rows, some at a time."""
    long = None if given.no_long else long_session()
    free = asyncio.Semaphore(JOBS)

    async def fill(row: Row) -> None:
        async with free:
            with tempfile.TemporaryDirectory() as folder:
                await measure(row, sessions, long, Path(folder), given)

    async with asyncio.TaskGroup() as group:
        for row in sorted(rows, key=lambda row: "litellm" not in row.peer.package):  # the slowest first
            if not row.said:
                group.create_task(fill(row))


def main() -> int:
    given, began = asked_for(), os.times()
    if given.front:
        print(front_table(PAGE.read_text()))
        return 0
    paths = [path for path in given.paths or [DATA] if path.exists()]
    asked = (peer for peer in SETTINGS if not given.only or peer.name.startswith(tuple(given.only)))
    rows = [Row(peer) for peer in asked]
    sessions: list[Session] = []
    is_stopped = False
    try:
        sessions += sessions_of(find_logs(paths).paths, is_all=given.all or bool(given.paths))
        if not sessions:
            where = given.paths[0] if given.paths else DATA
            print(f"skipped: no recording of {LEAST_TOKENS:,} tokens or more in {where}", file=sys.stderr)
            return 0
        install_all(rows)
        asyncio.run(measure_all(rows, sessions, given))
    except KeyboardInterrupt:
        is_stopped = True
        print("\nstopped; what was measured so far:", file=sys.stderr)
    _progress("")
    if given.json:
        print(json.dumps([{"name": row.peer.name, **asdict(row)} for row in rows], default=str))
    else:
        print(conditions(sessions, rows, given, began))
        for head, cells in ((COSTS, cost_cells), (VIEWS, view_cells)):
            print(f"\n{table([head, *map(cells, rows)], is_markdown=given.markdown)}")
        said = [f"{row.peer.name}: {one}" for row in rows for one in row.said]
        print(*(["", *said] if said else []), sep="\n")
    return 130 if is_stopped else 0


if __name__ == "__main__":
    sys.exit(main())
