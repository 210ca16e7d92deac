"""Perdure against the field in one run, on the same recorded sessions in the same windows (SPD-6).

Usage: python bench/peers.py [FOLDER | FILE …] [--all] [--only NAME …] [--window 128000] [--json] [--markdown]

Each peer is installed from PyPI into `build/peers` at the version written below and used by its public interface, with
its defaults and with settings after its documentation. A process of its own drives each through each recording, call
by call, with the answers that the recording has; what it would send is counted the same for all (bench/field/loop.py).
Summaries that a model would write are written by a scripted summariser, the same for all.

Printed for each: calls made, requests that break a provider's rule, requests beyond the window, breaks of the prefix,
uncached tokens, the price with the summaries, and of the facts that were needed behind the places that
`perdure bench fidelity` cuts at how many stood in view, beside a record of ours of that same size. CPU milliseconds a
turn are from one made session that grows to 1M tokens, in a window of 200,000.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from clients import RealClient, folder_of, install
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
DATA = ROOT.parent / "shared" / "data"
SOME = ("f82fa48e", "6c0a282a", "70d782f7")  # without --all: three long recordings of three projects
SYSTEM = "You are a careful assistant that works on a project with tools."
AXES = ("facts", "far", "context")
SIZES = (200_000, 1_000_000)
LONG_WINDOW = 200_000
MEASURED = (0.97, 0.98, 0.99, 1.0, 1.01, 1.02, 1.03)  # shares of a size at which a stateless peer is asked
SHARES = (0.5, 0.8)  # where each recording is cut
LEAST_TOKENS = 60_000  # a shorter session never comes near its window
SECONDS = 240.0  # of processor time for one peer and one recording


@dataclass(frozen=True, slots=True)
class Way:
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


def _ways() -> Iterator[Way]:
    for package, version, script, python, settings in (
        ("perdure", "", "perdure_peer.py", sys.executable, ("ledger, default", "ledger, thrifty", "notes")),
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
            yield Way(package, version, script, setting, python)


WAYS = tuple(_ways())


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
        path = folder / f"{self.name}-{window}.json"
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

    way: Way
    calls: int = 0
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


def enter(row: Row, session: Session, done: dict[str, Any], model: ModelSpec) -> None:
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


def look(row: Row, session: Session, number: int, text: str, window: int) -> None:
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


def time_of(row: Row, done: dict[str, Any]) -> None:
    """Milliseconds a turn at each size."""
    for size in SIZES:
        spent = [seconds for said, seconds in done["timed"] if 0.9 * size < said <= 1.1 * size]
        row.ms[size] = 1000 * sum(spent) / len(spent) if spent else None
    if done["stopped"]:
        row.said.append(f"made session: {done['stopped']}")


def drive(way: Way, script: Path, seconds: float) -> Iterator[dict[str, Any]]:
    """Run a peer's process; gives what it prints. Raises `PeerFailed`."""
    client = way.client
    python = sys.executable if client is None else str(folder_of(client) / "bin/python")
    command = [python, str(SCRIPTS / way.script), str(script), way.setting, "--seconds", str(seconds)]
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        try:
            yield from map(json.loads, process.stdout or ())
        except BaseException:  # a person who stops it, too
            process.kill()
            raise
        if code := process.wait():
            errors.seek(0)
            lines = errors.read().strip().splitlines() or [f"ended with {code}"]
            raise PeerFailed(lines[-1][:200])


class PeerFailed(Exception):
    """A peer's process ended with an error."""


def measure(
    row: Row, sessions: Sequence[Session], long: Session | None, folder: Path, given: argparse.Namespace
) -> None:
    """One peer over all sessions."""
    model = model_spec(given.price_of)
    for session, window in [*((one, given.window) for one in sessions), *([(long, LONG_WINDOW)] if long else [])]:
        try:
            for told in drive(row.way, session.write(folder, window), given.seconds):
                if "view" in told:
                    look(row, session, told["view"], told["text"], window)
                elif "at" in told:
                    _progress(f"{row.way.name}: {session.name} {told['at']} of {len(session.calls)}")
                elif session is long:
                    time_of(row, told["done"])
                else:
                    enter(row, session, told["done"], model)
        except PeerFailed as e:
            row.said.append(f"{session.name}: {e}")


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[2K{text}", end="", file=sys.stderr, flush=True)


# --- the table -------------------------------------------------------------------------------------------------------

HEAD = ("", "calls", "invalid", "beyond", "breaks", "uncached", "summaries", "USD", "view", "facts", "far", "context",
        "ours: facts", "far", "context", "ms at 200k", "at 1M")  # fmt: skip


def cells(row: Row) -> list[str]:
    def percent(tallies: dict[str, KeptCount], axis: str) -> str:
        value = tallies[axis].percent if axis in tallies else None
        return "–" if value is None else f"{value:.0f}"

    view = f"{sum(row.views) / len(row.views) / 1000:.0f}k" if row.views else "–"
    if len(row.views) < row.places:
        view += f" ({len(row.views)} of {row.places})"
    ms = ["–" if row.ms.get(size) is None else f"{row.ms[size]:.1f}" for size in SIZES]
    return [
        row.way.name, str(row.calls), str(row.invalid), str(row.beyond), str(row.breaks), f"{row.uncached:,}",
        str(row.summaries), f"{row.usd:.2f}", view, *(percent(row.kept, axis) for axis in AXES),
        *(percent(row.ours, axis) for axis in AXES), *ms,
    ]  # fmt: skip


def table(rows: Sequence[Row], *, is_markdown: bool) -> str:
    lines = [list(HEAD), *map(cells, rows)]
    if is_markdown:
        lines.insert(1, ["---", *("---:" for _ in HEAD[1:])])
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)
    widths = [max(len(line[n]) for line in lines) for n in range(len(HEAD))]
    return "\n".join(
        "  ".join((cell.ljust if n == 0 else cell.rjust)(widths[n]) for n, cell in enumerate(line)) for line in lines
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path, help=f"recordings; {DATA} without any")
    parser.add_argument("--all", action="store_true", help="all of them, rather than three")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="only peers whose names begin so")
    parser.add_argument("--window", type=int, default=128_000)
    parser.add_argument("--price-of", default="claude-sonnet-5-5")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="processor time for a peer and a recording")
    parser.add_argument("--no-long", action="store_true", help="without the made session of 1M tokens")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--markdown", action="store_true")
    given = parser.parse_args()
    paths = given.paths or [DATA]
    if missing := [path for path in paths if not path.exists()]:
        print(f"skipped: {missing[0]} isn't there; name a folder or files with recorded sessions", file=sys.stderr)
        return 0
    sessions = sessions_of(find_logs(paths).paths, is_all=given.all or bool(given.paths))
    if not sessions:
        print(f"skipped: no recording of {LEAST_TOKENS:,} tokens or more in {paths[0]}", file=sys.stderr)
        return 0
    long, rows = None if given.no_long else long_session(), list[Row]()
    try:
        with tempfile.TemporaryDirectory() as folder:
            for way in WAYS:
                if given.only and not any(way.name.startswith(name) for name in given.only):
                    continue
                rows.append(row := Row(way))
                client = way.client
                try:
                    if client is not None:
                        _progress(f"{way.name}: installing")
                        install(client)
                except (subprocess.CalledProcessError, FileNotFoundError) as e:
                    said = getattr(e, "stderr", None) or str(e).encode()
                    row.said.append(
                        f"can't be installed: {said.decode(errors='replace').strip().splitlines()[-1][:200]}"
                    )
                    continue
                measure(row, sessions, long, Path(folder), given)
    except KeyboardInterrupt:
        print("\nstopped; what was measured so far:", file=sys.stderr)
    _progress("")
    if given.json:
        print(
            json.dumps([{"name": row.way.name, "version": row.way.version, **asdict(row)} for row in rows], default=str)
        )
        return 0
    names = ", ".join(f"{one.name} ({len(one.calls)} calls)" for one in sessions)
    print(f"Sessions: {names}; window {given.window:,}; prices of {given.price_of}.\n")
    print(table(rows, is_markdown=given.markdown))
    for row in rows:
        for said in row.said:
            print(f"\n{row.way.name}: {said}", end="")
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
