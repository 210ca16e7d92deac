"""The demonstration itself: run, account, crash, resume; plain text, every figure taken from what just happened."""

from __future__ import annotations

import argparse
import hashlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import anyio

from holdfast.adapters.files import SessionStore
from holdfast.adapters.machine import RandomIds
from holdfast.context.accounting import account
from holdfast.context.requests import Request, to_request
from holdfast.demo.live import WINDOW_TOKENS, Fired, Live
from holdfast.engine.session import LiveSession, Window
from holdfast.events import CompactionDone, JournalRepaired, PrefixMoved, ResultOffloaded, ResultsCleared
from holdfast.wiring import Parts, create_session, open_session

SAID_TOKENS = 700_000
ACKNOWLEDGED = 12  # messages that the doomed process gets to write
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
    tell("Holdfast, offline: no key, no network. A fixed script stands in for the model and says so;")
    tell("the tools really run, and a fake server checks every request by the API's rules.")
    fired, name = Fired(), RandomIds().new("demo")
    parts = Parts(sink=fired, window=Window(WINDOW_TOKENS, "model"))
    session = await create_session(home, project=Path.cwd(), session=name, parts=parts)
    live = Live(session, fired)
    heading(1, f"A long session: {SAID_TOKENS:,} tokens of reading and searching, window {WINDOW_TOKENS:,}")
    await live.begin()
    started = time.monotonic()
    await live.until(SAID_TOKENS, _progress())
    _what_fired(live, time.monotonic() - started)
    heading(2, "What the window holds now")
    _accounting(session)
    heading(3, "Crash and resume")
    before = _request(session)
    await session.close()
    journal = SessionStore(home).locate(name) / "journal.jsonl"
    is_safe = await _crash_and_resume(home, name, fired, before)
    is_valid = not live.upstream.statistics.violations
    _ending(journal, is_safe and is_valid)
    return is_safe and is_valid


def _progress() -> Callable[[int, int], None]:
    due = 0

    def on_turn(said: int, size: int) -> None:
        nonlocal due
        if said >= due:
            tell(f"   said {said:>7,}   in the window {size:>7,}  |{'#' * (size * _BAR // WINDOW_TOKENS):<{_BAR}}|")
            due += SAID_TOKENS // 14

    return on_turn


def _what_fired(live: Live, seconds: float) -> None:
    fired, statistics = live.fired, live.upstream.statistics
    offloads, clearings = fired.of(ResultOffloaded), fired.of(ResultsCleared)
    tell(f"\n   {fired.turn} model calls in {seconds:.1f} s, the tools' own time included")
    if offloads:
        large = sum(event.bytes for _, event in offloads)
        tell(f"   {len(offloads)} results over their limit offloaded: {large:,} bytes, previews in their place")
    for turn, event in clearings:
        cleared = f"{len(event.tool_use_ids)} old results cleared, {event.tokens_saved:,} tokens"
        tell(f"   call {turn}: microcompaction by {event.reason}: {cleared}")
    for turn, event in fired.of(CompactionDone):
        sizes = f"{event.tokens_before:,} -> {event.tokens_after:,} tokens"
        parts = f"record {event.summary_tokens:,}, kept word for word {event.kept_tokens:,}"
        tell(f"   call {turn}: compaction ({event.trigger}, {event.strategy}): {sizes} ({parts})")
    for turn, event in fired.of(PrefixMoved):
        tell(
            f"   call {turn}: the cached prefix moved ({event.reason}): {event.tokens_rewritten:,} tokens written again"
        )
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


def _request(session: LiveSession) -> Request:
    return to_request(session.view, session.facts())


def _digest(request: Request) -> str:
    return hashlib.sha256(request.body).hexdigest()[:16]


async def _crash_and_resume(home: Path, name: str, fired: Fired, before: Request) -> bool:
    parts = Parts(sink=fired, window=Window(WINDOW_TOKENS, "model"))
    session = await open_session(home, name, parts=parts)
    again = _request(session)
    await session.close()
    same = again.body == before.body
    digests = f"{_digest(before)} before closing, {_digest(again)} after opening again"
    tell(f"   the request: {digests}: {_verdict(same, 'identical')}")
    acknowledged = _kill_while_writing(home, name)
    tell(f"   another process went on; kill -9 in mid-append, {len(acknowledged)} of its messages acknowledged")
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
    tell(f"   the next request extends the last one block for block: {_verdict(extends, 'yes')}")
    equal = quick.body == full.body
    digests = f"read back from the last boundary {_digest(quick)}, from the start {_digest(full)}"
    tell(f"   {digests}: {_verdict(equal, 'identical')}")
    return same and kept and extends and equal


def _extends(later: Request, earlier: Request) -> bool:
    old = [(role, part.raw) for role, part in earlier.parts()]
    return [(role, part.raw) for role, part in later.parts()][: len(old)] == old


def _kill_while_writing(home: Path, name: str) -> list[str]:
    """Let another process append until some are acknowledged, then kill it; the ids that it acknowledged."""
    command = [sys.executable, "-m", "holdfast.demo.crash", str(home), name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        acknowledged = [child.stdout.readline().strip() for _ in range(ACKNOWLEDGED)]
        child.send_signal(signal.SIGKILL)
        acknowledged += [line.strip() for line in child.stdout]
    return [identity for identity in acknowledged if identity]


def _verdict(is_kept: bool, word: str) -> str:
    return word if is_kept else "NOT SO - please report this"


def _ending(journal: Path, is_ok: bool) -> None:
    heading(4, "Result")
    size = journal.stat().st_size
    tell(f"   {'Every promise shown above was kept.' if is_ok else 'A promise was broken; see above.'}")
    tell(f"   The journal ({size / 1e6:.1f} MB): {journal}")
    tell("\n   Next, with that path as FILE:")
    for command, what in _NEXT:
        tell(f"     .venv/bin/holdfast {command:<30}{what}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Holdfast's demonstration: offline, on real input.")
    parser.add_argument("--home", type=Path, default=Path("demo-out"), help="where sessions are kept")
    options = parser.parse_args()
    try:
        is_ok = anyio.run(run, options.home.resolve())
    except KeyboardInterrupt:
        tell("\ninterrupted; what was acknowledged is in the journal")
        sys.exit(130)
    sys.exit(0 if is_ok else 1)
