"""`perdure report`: a session as one self-contained page (CLI-4)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from perdure.cli.arguments import Force, Json, OneOfFile, Output, Reference, Sets, configured, examples, family
from perdure.cli.kept import KeptIn, StoreUrl, TenantName
from perdure.cli.loop import in_loop
from perdure.cli.output import STDOUT, check_target, cut, deliver, out, out_json, plural

if TYPE_CHECKING:
    from perdure.adapters.config import Config
    from perdure.cli.opened import ReadSession
    from perdure.context.policy import Facts
    from perdure.context.view import ContextView
    from perdure.lab.report.page import PageHeader, Price
    from perdure.lab.report.timeline import Timeline
    from perdure.logs.recording import Recording
    from perdure.transcript.messages import Message


app = family()
_TITLE_CHARS = 80


@app.command(
    epilog=examples(
        "perdure report @last -o report.html",
        "perdure report session.jsonl -o - --force",
        "perdure report 7k2q9x -o report.html --store postgresql://perdure@db/perdure",
    )
)
def report(
    file: Reference,
    *,
    output: Output,
    force: Force = False,
    session: OneOfFile = None,
    store: StoreUrl = None,
    tenant: TenantName = None,
    sets: Sets = None,
    json: Json = False,
) -> None:
    """Write a session as one page for a browser.

    Tokens over turns, what fired, what it cost, and what each compaction dropped and where it is. The page holds parts
    of the conversation, and loads nothing from anywhere.
    """
    from perdure.adapters.journal.store import secret_key
    from perdure.cli.opened import chosen, is_log, read_session, recordings_in
    from perdure.lab.report.page import page
    from perdure.memory.trust.secrets import redact

    config = configured(sets or ())
    if output != STDOUT:
        check_target(file, output, force=force)
    key = secret_key(config.home)
    if is_log(file):
        about, told = _foreign(chosen(recordings_in(file), file, session), file, config)
    else:
        one = read_session(file, config, session=session, kept=KeptIn(store, tenant))
        key, (about, told) = one.key or key, _own(one, file, config)
    data = redact(page(about, told), key).text.encode()  # SEC-5: also where nobody thought of one
    if not deliver(output, data, force=force):
        return
    if json:
        out_json(
            {
                "file": file,
                "session": about.session,
                "out": str(output),
                "bytes": len(data),
                "turns": told.all_turns,
                "compactions": len(told.compactions),
            }
        )
    else:
        turns, compactions = plural(told.all_turns, "turn"), plural(len(told.compactions), "compaction")
        out(f"{output}: {len(data):,} bytes, {turns}, {compactions}; open it in a browser")


def _made() -> str:
    return datetime.now(UTC).astimezone().strftime("%Y-%m-%d %H:%M")


def _first_words(messages: Iterable[Message]) -> str | None:
    """What a session that nobody named is about: how its first prompt begins."""
    from perdure.memory.trust.secrets import redact
    from perdure.transcript.messages import spoken

    words = next(filter(None, map(spoken, messages)), None)
    return None if words is None else cut(redact(words).text, _TITLE_CHARS)


# --- a session of ours: what happened ---------------------------------------------------------------------------------


def _own(one: ReadSession, reference: str, config: Config) -> tuple[PageHeader, Timeline]:
    from perdure.context.policy import facts_at
    from perdure.lab.report.page import header_of
    from perdure.lab.report.timeline import timeline

    told = timeline(one.records, lambda view: facts_at(view, config.settings, config.models))
    title = one.title or _first_words(one.messages)
    problems = tuple(f"line {p.line}: {p.what}" for p in one.problems)
    return header_of(told, session=one.session, title=title, source=reference, made=_made(), problems=problems), told


# --- a log of another agent: what Perdure would have done ------------------------------------------------------------


def _foreign(recording: Recording, reference: str, config: Config) -> tuple[PageHeader, Timeline]:

    from perdure.context.policy import Facts
    from perdure.lab.replay.drive import ReplayOptions
    from perdure.lab.replay.run import drive_recording, result_of
    from perdure.lab.report.page import PageHeader
    from perdure.lab.report.timeline import timeline

    options = ReplayOptions(settings=config.settings, models=config.models)
    drive, records = in_loop(drive_recording, recording, options)
    result = result_of(drive, reference)
    limits, model = drive.session.limits, drive.session.model

    def facts(view: ContextView) -> Facts:
        return Facts(settings=config.settings, limits=limits, model=model)

    told = timeline(records, facts)
    about = PageHeader(
        session=recording.session,
        title=recording.title or _first_words(recording.messages),
        source=reference,
        how=f"{recording.format} log, as Perdure would have managed it",
        is_kept=False,
        made=_made(),
        prices=tuple(_prices(result, told.written)),
        logged=tuple(_logged(result["logged"])),
        problems=tuple(f"line {p['line']}: {p['what']}" for p in result["problems"][:100]),
    )
    told.turns = [replace(turn, usd=None) for turn in told.turns]  # the usage is the log's, scaled: no price of ours
    return about, told


def _prices(result: dict[str, Any], written: int) -> list[Price]:
    from perdure.cli.replay import uncached_usd
    from perdure.lab.report.page import Price
    from perdure.lab.report.timeline import output_warning

    ours, logged = result["cost"], result["logged"]["cost"]
    prompt = ours["input"] + ours["cache_write"] + ours["cache_read"]
    bare = Price("the same without a cache", prompt, 0, 0, ours["output"], uncached_usd(result))
    prices = [_price("with Perdure", ours), bare]
    if logged["output"] or logged["cache_read"]:
        note = output_warning(logged["output"], written)
        prices.append(replace(_price("what the log itself paid", logged), note=note))
    return prices


def _price(who: str, cost: dict[str, Any]) -> Price:
    from perdure.lab.report.page import Price

    return Price(who, cost["input"], cost["cache_write"], cost["cache_read"], cost["output"], cost["usd"])


def _logged(logged: dict[str, Any]) -> Sequence[str]:
    lines = []
    for one in logged["compactions"]:
        pre, ours = one["pre_tokens"], one["our_tokens"]
        size = "" if pre is None else f" at {pre:,} tokens (our count: {ours:,})"
        lines.append(f"compacted ({one['trigger']}){size}")
    lines += [f"cleared {plural(len(one['ids']), 'tool result')}" for one in logged["microcompactions"]]
    return lines
