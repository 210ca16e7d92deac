"""`perdure compact`, `uncompact` and `pin`: what a view keeps, and what gives way to a record (CMP-11, RST-8)."""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perdure.cli.arguments import (
    Json,
    SessionName,
    Sets,
    complete_models,
    configured,
    examples,
    family,
    open_editor,
)
from perdure.cli.kept import KeptIn, StoreUrl, TenantName
from perdure.cli.loop import in_loop
from perdure.cli.output import EXIT_FAILED, EXIT_OK, clean, cut, note, out, out_json, plural, table
from perdure.cli.words import compaction_failure
from perdure.errors import BadSetting, PerdureError, SessionNotFound

if TYPE_CHECKING:
    from perdure.compaction.ledger import CompactedText
    from perdure.compaction.plan import CompactionPart
    from perdure.engine.compact import CompactionFailure, CompactionPreview, PreviewPart
    from perdure.engine.session import LiveSession
    from perdure.logs.recording import LoggedRewind, Recording
    from perdure.transcript.messages import Message
    from perdure.transcript.records import Compacted
    from perdure.transcript.tool_calls.actions import ToolTable

app = family()
STRATEGIES = ("ledger",)
_SHOWN = 12  # of the messages dropped, in a table for people
_LEAST_BUDGET = 200  # tokens: below, a record has room for cut names only, or for nothing


@app.command(
    epilog=examples(
        "perdure compact @last --dry-run",
        'perdure compact @last --focus "the parser" --edit',
        "perdure compact @last --up-to msg-120",
        "perdure compact session.jsonl --at 900 --budget 12k",
    )
)
def compact(
    reference: Annotated[str, typer.Argument(metavar="SESSION|FILE", help="A session kept here; with --at, a log.")],
    *,
    focus: Annotated[str, typer.Option(metavar="TEXT", help="What the record should pay attention to.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be kept and dropped.")] = False,
    edit: Annotated[bool, typer.Option("--edit", help="Edit the record before it is committed.")] = False,
    summary: Annotated[
        Path | None, typer.Option("--summary", metavar="FILE", help="Use this text as the record; - for stdin.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The model that writes the record; without it, code does.",
            autocompletion=complete_models,
        ),
    ] = None,
    start: Annotated[
        str | None, typer.Option("--from", metavar="MESSAGE", help="Only this message and what follows it.")
    ] = None,
    end: Annotated[
        str | None, typer.Option("--up-to", metavar="MESSAGE", help="Only what comes before this message.")
    ] = None,
    hook: Annotated[
        list[str] | None,
        typer.Option("--hook", metavar="COMMAND", help="A shell command to run before and after; repeatable."),
    ] = None,
    at: Annotated[
        int | None,
        typer.Option(min=1, metavar="LINE", help="Try it on a log, for what comes before this line."),
    ] = None,
    strategy: Annotated[str | None, typer.Option(metavar="NAME", help="With --at: the strategy (ledger).")] = None,
    budget: Annotated[
        str | None, typer.Option(metavar="TOKENS", help="With --at: the size of the result (10k).")
    ] = None,
    tail: Annotated[
        str | None,
        typer.Option(metavar="TOKENS", help="With --at: what to keep of the newest messages (0)."),
    ] = None,
    store: StoreUrl = None,
    tenant: TenantName = None,
    sets: Sets = None,
    json: Json = False,
) -> None:
    """Replace the older part of a session by a record of it.

    With --from or --up-to only that part is replaced, and all else stays word for word. Nothing is lost: recall and
    search bring back what left the window, and uncompact undoes it.
    """

    from perdure.adapters.journal import JOURNAL
    from perdure.adapters.machine.hooks import shell_hook
    from perdure.adapters.sinks import ListSink
    from perdure.compaction.plan import CompactionPart
    from perdure.context.policy import tool_table
    from perdure.engine.compact import CompactionFailure, preview
    from perdure.engine.session import Services
    from perdure.events import CompactionAttemptFailed, HookFailed
    from perdure.settings import HookCommand
    from perdure.wiring import SessionOptions, connected, open_session

    measured = {"--strategy": strategy, "--budget": budget, "--tail": tail}
    live = {"--focus": focus, "--dry-run": dry_run, "--edit": edit, "--summary": summary}
    live |= {"--from": start, "--up-to": end, "--hook": hook}
    odd = [flag for flag, value in (measured if at is None else live).items() if value]
    if odd:
        verb = "needs" if at is None else "can't be combined with"
        raise BadSetting(f"{odd[0]} {verb} --at, which measures on a log")
    if at is not None:
        strategy, budget, tail = strategy or "ledger", budget or "10k", tail or "0"
        tools = tool_table(configured(sets or ()).settings)
        raise typer.Exit(
            measure(Path(reference), at=at, strategy=strategy, budget=budget, tail=tail, is_json=json, tools=tools)
        )
    if edit and summary is not None:
        raise BadSetting("--edit can't be combined with --summary; edit the file first")
    if model is not None and summary is not None:
        raise BadSetting("--model can't be combined with --summary: there is nothing left to write")
    config = configured(sets or ())
    record = None if summary is None else _read(summary)
    is_part = start is not None or end is not None  # an empty id is a mistake, not the whole
    part = CompactionPart(start=start, end=end) if is_part else None
    sink = ListSink()

    async def body() -> int:
        seconds = config.settings.hook_timeout_seconds
        commands = [HookCommand(event, command) for command in hook or () for event in ("PreCompact", "PostCompact")]
        names = (model,) if model else config.settings.summarizer_models
        async with KeptIn(store, tenant).session(reference) as named, connected(names, os.environ) as models:
            journal = str(named.reference / JOURNAL) if isinstance(named.reference, Path) else ""
            hooks = tuple(shell_hook(one, timeout_seconds=seconds, transcript=journal) for one in commands)
            services = Services(hooks=hooks, summarizer=models if record is None else ())
            parts = SessionOptions(settings=config.settings, sink=sink, services=services)
            session = await open_session(named.home, named.reference, read_only=dry_run, parts=parts)
            try:
                text = record
                if dry_run or edit:
                    looked = await preview(session, record=record, focus=focus, part=part)
                    if isinstance(looked, CompactionFailure):
                        return _failed(looked, is_json=json)
                    if dry_run:
                        _show_preview(looked, is_json=json)
                        return EXIT_OK
                    text = _edited(looked.plan.record)
                return await _commit(session, focus, part, text, named.short, is_json=json)
            finally:
                await session.ports.journal.close()

    code = in_loop(body)
    for event in sink.events:
        if isinstance(event, HookFailed):
            note(f"the hook {event.hook} failed: {event.reason}; the compaction went on without it")
        if isinstance(event, CompactionAttemptFailed) and event.strategy == "full":
            note(f"the model's record was not used: {compaction_failure(event.reason)}")
    raise typer.Exit(code)


async def _commit(
    session: LiveSession, focus: str, part: CompactionPart | None, record: str | None, name: str, *, is_json: bool
) -> int:
    from perdure.engine.compact import CompactionSuccess
    from perdure.engine.compact import compact as compact_session

    outcome = await compact_session(session, trigger="manual", record=record, focus=focus, part=part)
    if not isinstance(outcome, CompactionSuccess):
        return _failed(outcome, is_json=is_json)
    boundary = outcome.boundary
    if is_json:
        out_json(_boundary_data(boundary))
    else:
        out(f"compacted ({boundary.strategy}): {boundary.tokens_before:,} -> {boundary.tokens_after:,} tokens")
        out(f"kept {plural(len(boundary.kept), 'message')} word for word; undo it with `perdure uncompact {name}`")
    return EXIT_OK


def _failed(failed: CompactionFailure, *, is_json: bool) -> int:
    if is_json:
        out_json({"failed": failed.reason, "why": compaction_failure(failed.reason)})
    note(f"not compacted: {compaction_failure(failed.reason)}; nothing was changed")
    return EXIT_FAILED


def _boundary_data(boundary: Compacted) -> dict[str, Any]:
    return {
        "boundary": boundary.id,
        "strategy": boundary.strategy,
        "tokens_before": boundary.tokens_before,
        "tokens_after": boundary.tokens_after,
        "summary_tokens": boundary.summary_tokens,
        "kept_tokens": boundary.kept_tokens,
        "kept": list(boundary.kept),
    }


def _show_preview(looked: CompactionPreview, *, is_json: bool) -> None:
    boundary = looked.boundary
    if is_json:
        parts = {"kept": looked.kept, "dropped": looked.dropped, "restored": looked.restored}
        told = {name: [{"id": p.id, "what": p.what, "tokens": p.tokens} for p in some] for name, some in parts.items()}
        out_json({**_boundary_data(boundary), "boundary": None, "dry_run": True, "record": looked.plan.record, **told})
        return
    out(f"would compact ({boundary.strategy}): {boundary.tokens_before:,} -> {boundary.tokens_after:,} tokens")
    rows = [(name, what, count, size) for name, some in _groups(looked) for what, count, size in _counted(some)]
    table(("", "what", "number", "tokens"), [("record", "what stands for it", 1, boundary.summary_tokens), *rows])
    largest = sorted(looked.dropped, key=lambda part: -part.tokens)[:_SHOWN]
    if largest:
        out("\nthe largest of what would leave the view (recall brings them back)")
        table(("id", "what", "tokens"), [(cut(p.id, 48), p.what, p.tokens) for p in largest], indent="  ")
    out(f"\nthe record\n\n{looked.plan.record}")


def _groups(looked: CompactionPreview) -> list[tuple[str, tuple[PreviewPart, ...]]]:
    return [("kept", looked.kept), ("dropped", looked.dropped), ("restored", looked.restored)]


def _counted(parts: tuple[PreviewPart, ...]) -> list[tuple[str, int, int]]:
    counts, sizes = Counter[str](), Counter[str]()
    for part in parts:
        counts[part.what] += 1
        sizes[part.what] += part.tokens
    return [(what, count, sizes[what]) for what, count in counts.items()]


def _read(path: Path) -> str:
    if path == Path("-"):
        return sys.stdin.read()
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise BadSetting(f"{path}: not a text in UTF-8") from None


def _edited(record: str) -> str:
    """The record after a person had it in an editor."""
    from perdure.adapters.stores import DRAFTS

    with tempfile.TemporaryDirectory(prefix=DRAFTS) as folder:
        path = Path(folder) / "record.md"
        try:
            path.write_text(record, encoding="utf-8")
        except OSError as e:
            raise OSError(e.errno, e.strerror or str(e), str(path)) from e
        open_editor(path)
        text = path.read_text(encoding="utf-8", errors="replace")
    if not text.strip():
        raise PerdureError("the record is empty; nothing was committed")
    return text


@app.command(epilog=examples("perdure uncompact @last"))
def uncompact(
    session: SessionName,
    *,
    store: StoreUrl = None,
    tenant: TenantName = None,
    sets: Sets = None,
    json: Json = False,
) -> None:
    """Bring back the view before the last compaction.

    What was said since stays. Automatic compaction then waits until the window is nearly full.
    """

    from perdure.engine.compact import uncompact as undo_compaction
    from perdure.wiring import SessionOptions, open_session

    config = configured(sets or ())

    async def body() -> dict[str, Any]:
        async with KeptIn(store, tenant).session(session) as named:
            parts = SessionOptions(settings=config.settings)
            one = await open_session(named.home, named.reference, parts=parts)
            try:
                done = await undo_compaction(one)
                return {
                    "boundary": done.boundary.id,
                    "tokens_before": done.tokens_before,
                    "tokens_after": done.tokens_after,
                    "messages": len(one.view.items),
                }
            finally:
                await one.ports.journal.close()

    done = in_loop(body)
    if json:
        out_json(done)
    else:
        before, after = done["tokens_before"], done["tokens_after"]
        out(f"undone: {before:,} -> {after:,} tokens, {plural(done['messages'], 'message')}")
        out("automatic compaction now waits until the window is nearly full")


# --- pins -------------------------------------------------------------------------------------------------------------


@app.command(
    epilog=examples(
        'perdure pin @last "never touch the generated files"',
        "perdure pin @last --list",
        "perdure pin @last --remove pin-1",
    )
)
def pin(
    session: SessionName,
    text: Annotated[str | None, typer.Argument(metavar="TEXT", help="What must survive, word for word.")] = None,
    *,
    is_list: Annotated[bool, typer.Option("--list", help="Show the pins of the session.")] = False,
    remove: Annotated[str | None, typer.Option("--remove", metavar="ID", help="Remove this pin.")] = None,
    store: StoreUrl = None,
    tenant: TenantName = None,
    sets: Sets = None,
    json: Json = False,
) -> None:
    """Pin a text: it survives every compaction word for word.

    Pins share a budget (the setting pins_tokens), which shrinks with the window; a pin that doesn't fit is refused.
    """

    from perdure.engine.session import pin as set_pin
    from perdure.engine.session import unpin
    from perdure.wiring import SessionOptions, open_session

    if sum((text is not None, is_list, remove is not None)) != 1:
        raise BadSetting("say one of the three: a TEXT to pin, --list, or --remove ID")
    config = configured(sets or ())

    async def body() -> dict[str, Any]:
        async with KeptIn(store, tenant).session(session) as named:
            parts = SessionOptions(settings=config.settings)
            one = await open_session(named.home, named.reference, read_only=is_list, parts=parts)
            try:
                done: dict[str, Any] = {}
                if text is not None:
                    done["pinned"] = {"id": (await set_pin(one, text)).id, "text": text}
                elif remove is not None:
                    gone = await unpin(one, remove)
                    done["removed"] = {"id": gone.id, "text": gone.text}
                return done | pins_of(one)
            finally:
                await (one.ports.journal.close() if is_list else one.close())

    done = in_loop(body)
    if json:
        out_json(done)
    elif text is not None:
        out(f"pinned as {done['pinned']['id']}: {taken(done)}")
    elif remove is not None:
        out(f"removed {done['removed']['id']}: {taken(done)}")
    else:
        show_pins(done)


def pins_of(session: LiveSession) -> dict[str, Any]:
    """The pins of a session, and what they take of their budget."""
    from perdure.compaction.plan import pin_budget
    from perdure.transcript.tokens import base_tokens

    view = session.view
    budget = pin_budget(view, session.facts())
    pins = [{"id": pin.id, "text": pin.text, "tokens": base_tokens(pin.text)} for pin in view.state.pins]
    return {"pins": pins, "tokens": budget.used, "limit_tokens": budget.limit}


def taken(done: dict[str, Any]) -> str:
    """How much of the budget the pins take, in words."""
    return f"{plural(len(done['pins']), 'pin')}, {done['tokens']:,} of {done['limit_tokens']:,} tokens"


def show_pins(done: dict[str, Any]) -> None:
    """All pins, as a table."""
    if not done["pins"]:
        out(f"no pins; they may take {done['limit_tokens']:,} tokens")
        return
    table(("pin", "tokens", "text"), [(clean(p["id"]), p["tokens"], cut(p["text"], 80)) for p in done["pins"]])
    out(taken(done))


# --- what a compaction of a log would leave, for people and for measuring (QLT-1) -------------------------------------


def measure(file: Path, *, at: int, strategy: str, budget: str, tail: str, is_json: bool, tools: ToolTable) -> int:
    """Print the compacted view of everything before a line since the boundary before it; changes nothing."""
    from perdure.compaction.ledger import compact_messages as compacted
    from perdure.memory.trust.secrets import redact

    if strategy not in STRATEGIES:
        raise BadSetting(f"--strategy {strategy}: a log can be measured with {', '.join(STRATEGIES)}")
    budget_tokens, tail_tokens = _tokens("--budget", budget), _tokens("--tail", tail)
    if budget_tokens < _LEAST_BUDGET:
        raise BadSetting(f"--budget {budget}: a record needs at least {_LEAST_BUDGET} tokens")
    if not file.is_file():
        what = "a folder: --at takes one log of it" if file.is_dir() else "there is no such log"
        raise SessionNotFound(f"{file}: {what}")
    done = compacted(_before(file, at), budget_tokens, tail_tokens, tools=tools)
    done = replace(done, text=redact(done.text).text)  # a report, also for other eyes (SEC-5)
    if is_json:
        out_json({"text": done.text, "tokens": done.tokens, "kept": done.kept, "dropped": done.dropped})
    else:
        _show_measured(done)
    return EXIT_OK


def _tokens(option: str, given: str) -> int:
    from perdure.adapters.config import UnusableValue, parse_setting

    try:
        return int(parse_setting("summary_budget_tokens", given, 0))
    except UnusableValue as e:
        raise BadSetting(f"{option} {given}: {e}") from None


def _before(file: Path, at: int) -> list[Message]:
    """What was said before a line, of the session that goes on there."""
    from perdure.logs.detect import read_recordings

    found: list[Message] = []
    nearest = 0
    data = file.read_bytes()
    recordings = read_recordings(data, file.name)  # first, as lines are of no use in what is not a log
    count = data.count(b"\n") + (not data.endswith(b"\n"))
    if at > count + 1:
        raise BadSetting(f"--at {at}: {file} has {plural(count, 'line')}; --at {count + 1} takes all of them")
    for recording in recordings:
        messages, last = said_before(recording, at)
        if messages and last >= nearest:
            found, nearest = messages, last
    if not found:
        raise SessionNotFound(f"{file}: nothing was said before line {at} since the boundary before it")
    return found


def said_before(recording: Recording, at: int) -> tuple[list[Message], int]:
    """The messages before a line (from 1) since the last boundary, without sub-agents; and the line of the last."""
    from perdure.logs.recording import LoggedCompaction, LoggedRewind, RecordedMessage

    messages: list[Message] = []
    last = 0
    for step in recording.steps:
        if step.line >= at:
            break
        if isinstance(step, LoggedCompaction):
            messages = [message for message in messages if message.id in step.kept]
        elif isinstance(step, LoggedRewind):
            messages = _rewound(messages, step)
        elif isinstance(step, RecordedMessage) and not step.logged_only and step.message.agent_id is None:
            messages.append(step.message)
            last = step.line
    return messages, last


def _rewound(messages: list[Message], step: LoggedRewind) -> list[Message]:
    ids = [message.id for message in messages]
    return messages[: ids.index(step.to) + 1] if step.to in ids else messages


def _show_measured(done: CompactedText) -> None:
    out(done.text)
    parts: dict[str, int] = {}
    for entry in done.kept:
        parts[str(entry["section"])] = parts.get(str(entry["section"]), 0) + 1
    out(f"\n{done.tokens:,} tokens; kept: {', '.join(f'{name} {count}' for name, count in parts.items()) or 'nothing'}")
    for name, gone in done.dropped.items():
        ids = ", ".join(str(one) for one in gone["recall"][:3])
        out(f"left out of {name}: {plural(gone['count'], 'item')}{f' (recall {ids} …)' if ids else ''}")
