"""`perdure spend`: what the calls of models cost, from the journals (OBS-2, SM-9)."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from perdure.cli.arguments import Json, complete_sessions, configured, examples, family, located, moment_since
from perdure.cli.kept import KeptIn, StoreUrl, TenantName
from perdure.cli.loop import in_loop
from perdure.cli.output import note, out, out_json, plural, table, tokens, usd

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from perdure.adapters.config import Config
    from perdure.context.cost import ForkSpending
    from perdure.ports.home import Home

app = family()
By = Literal["day", "session", "model", "job"]
_HOUR_SECONDS = 3_600.0
_PAGE = 500  # sessions of a database that are asked for at a time
_COMMANDS = "commands"  # in the place of a session
_JOBS = {
    "main": "conversation",
    "agent": "sub-agents",
    "summarizer": "summaries",
    "selector": "choosing memories",
    "extractor": "saving memories",
    "consolidation": "tidying memories",
    "facts": "picking facts",
}


@app.command(
    epilog=examples(
        "perdure spend --since 7d", "perdure spend --by model --since 2026-11-01", "perdure spend @last --by job --json"
    )
)
def spend(
    session: Annotated[
        str | None,
        typer.Argument(metavar="SESSION", help="Only this session.", autocompletion=complete_sessions),
    ] = None,
    *,
    by: Annotated[By | None, typer.Option("--by", help="Add up by this (day; for one session job).")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="WHEN", help="Only calls since: 90m, 12h, 2d, 1w, or a date.")
    ] = None,
    store: StoreUrl = None,
    tenant: TenantName = None,
    json: Json = False,
) -> None:
    """Show what the calls of models cost.

    By what providers reported and the table of prices: of sessions, their sub-agents and clients of the gateway, notes
    and summaries included, and of commands that ask a model themselves, such as memory facts. What another agent paid
    for in an imported log isn't counted.
    """
    from perdure.context.cost import spending_rows

    config, kept = configured(), KeptIn(store, tenant)
    grouping: By = by or ("day" if session is None else "job")
    earliest = None if since is None else moment_since(since)
    if kept.is_database:
        read, unreadable = in_loop(_read_in_database, kept, session, config, earliest)
    else:
        read, unreadable = _read_on_files(config, None if session is None else located(session), earliest)
    spent = _counted_once(read, earliest)
    named = [(_name_of(one, where, grouping), one) for where, one in spent]
    order = sorted(named, key=lambda pair: pair[0]) if grouping == "day" else named
    rows = spending_rows(order)
    if grouping != "day":
        rows.sort(key=lambda row: -row.usd)
    data: dict[str, Any] = {
        "by": grouping,
        "rows": [
            {grouping: row.of, **{name: getattr(row, name) for name in row.__struct_fields__[1:]}} for row in rows
        ],
        "usd": round(sum(row.usd for row in rows), 6),
        "unknown": sum(row.unknown for row in rows),
    }
    if session is not None:
        data |= _pace_of_notes([one for _, one in spent], config)
    if json:
        out_json(data)
    elif not rows:
        out("nothing was spent" + (" since then" if earliest is not None else ""))
    else:
        _show(data)
    if unreadable:
        note(f"{plural(unreadable, 'journal')} couldn't be read, and may hold more: `perdure doctor` says why")


def _show(data: dict[str, Any]) -> None:
    by = data["by"]
    names = ("calls", "failed", "cache_read", "cache_write", "input", "output")
    table(
        (by, "calls", "failed", "cached", "written", "uncached", "output", "usd"),
        [(_JOBS.get(row[by], row[by]), *(row[name] for name in names), _price(row)) for row in data["rows"]],
    )
    out(f"\n{usd(data['usd'])} in total" + (f", and {_unpriced(data['unknown'])}" if data["unknown"] else ""))
    if "last_hour" in data and data["last_hour"]["runs"]:
        hour, most = data["last_hour"], data["per_hour"]
        out(
            f"notes in the last hour: {hour['runs']} of {most['runs'] or 'any number of'} runs, "
            f"{tokens(hour['tokens'])} of {tokens(most['tokens']) if most['tokens'] else 'any number of'} tokens"
        )


def _unpriced(calls: int) -> str:
    return f"{plural(calls, 'call')} at a price that isn't known"


def session_total(config: Config, session: Path) -> str:
    """What a session cost with everything beside it, in words: the same sum as `perdure spend SESSION`."""
    from perdure.context.cost import SpendingRow

    read, unreadable = _read_on_files(config, session, None)
    spent = _counted_once(read, None)
    total = SpendingRow(of="")
    for _, one in spent:
        total.add(one)
    parts = [usd(total.usd)] if total.usd or not total.unknown else []
    parts += [_unpriced(total.unknown)] if total.unknown else []
    parts += [f"what {plural(unreadable, 'unreadable journal')} may hold"] if unreadable else []
    return " and ".join(parts) if spent else "nothing"


def _price(row: dict[str, Any]) -> str:
    if row["unknown"] >= row["calls"]:
        return "unknown"
    return f"{row['usd']:,.2f}" + (" and more" if row["unknown"] else "")


@dataclass(frozen=True, slots=True)
class JournalSpending:
    """What the calls of a session, or of one of its sub-agents, cost; `where` is the session that pays."""

    created: float
    where: str
    calls: Mapping[tuple[str, ...], ForkSpending]


def _counted_once(read: Sequence[JournalSpending], earliest: float | None) -> list[tuple[str, ForkSpending]]:
    """What was spent, each with the session that it belongs to, oldest session first.

    What a fork has from the session that it came from is that one's.
    """
    found: dict[tuple[str, ...], tuple[str, ForkSpending]] = {}
    for one in sorted(read, key=lambda one: (one.created, one.where)):
        for key, call in one.calls.items():
            found.setdefault(key, (one.where, call))
    return [pair for pair in found.values() if earliest is None or pair[1].at >= earliest]


def _read_on_files(config: Config, chosen: Path | None, earliest: float | None) -> tuple[list[JournalSpending], int]:
    """What journals say, and how many can't be read."""
    from perdure.adapters.journal import DISK
    from perdure.adapters.journal.reading import open_journal_reader
    from perdure.adapters.spending import read_of_commands
    from perdure.context.cost import spending_record, spent_in
    from perdure.errors import JournalError

    read: list[JournalSpending] = []
    if chosen is None:
        beside = map(spending_record, read_of_commands(config.home))
        read.append(JournalSpending(0.0, _COMMANDS, spent_in(beside, config.models)))
    unreadable = 0
    for journal, where, job in _journals(config, chosen, earliest):
        try:
            with open_journal_reader(DISK, journal) as reader:
                records = [placed.record for placed in reader.scan(reader.body).placed]
                created = reader.header.created
        except JournalError:
            unreadable += 1
            continue
        read.append(JournalSpending(created, where, spent_in(records, config.models, job=job)))
    return read, unreadable


async def _read_in_database(
    kept: KeptIn, session: str | None, config: Config, earliest: float | None
) -> tuple[list[JournalSpending], int]:
    """What the sessions of a tenant say that were written since then, a page after the other; and how many can't."""
    from perdure.context.cost import spent_in
    from perdure.errors import JournalError

    read: list[JournalSpending] = []
    unreadable = 0

    async def take(home: Home, name: str) -> None:
        nonlocal unreadable
        try:
            loaded = await home.load(name)
        except JournalError:
            unreadable += 1
            return
        records = [placed.record for placed in loaded.records]
        read.append(JournalSpending(loaded.header.created, name, spent_in(records, config.models, job="main")))

    if session is not None:
        async with kept.session(session) as named:
            await take(named.home, named.id)
        return read, unreadable
    async with kept.home() as home:
        page = await home.sessions(since=earliest, limit=_PAGE)
        while page:
            for info in page:
                await take(home, info.id)
            page = await home.sessions(since=earliest, behind=page[-1], limit=_PAGE)
    return read, unreadable


def _journals(config: Config, chosen: Path | None, earliest: float | None) -> Iterator[tuple[Path, str, str]]:
    """The journals to read, with the session that pays, and what their conversation is for."""
    from perdure.adapters.journal.store import AGENTS, every_journal, session_journals

    for journal in session_journals(chosen) if chosen is not None else every_journal(config.home):
        if earliest is not None and journal.stat().st_mtime < earliest:
            continue
        is_helper = journal.parent.parent.name == AGENTS
        where = journal.parent.parent.parent if is_helper else journal.parent
        yield journal, where.name, "agent" if is_helper else "main"


def _name_of(one: ForkSpending, where: str, by: By) -> str:
    if by == "day":
        return time.strftime("%Y-%m-%d", time.localtime(one.at)) if one.at else "unknown"
    return {"session": where, "model": one.model or "unknown", "job": one.job}[by]


def _pace_of_notes(spent: list[ForkSpending], config: Config) -> dict[str, Any]:
    """How much of their hour's budget the notes have used (SM-9)."""
    recent = [one for one in spent if one.job == "notes" and time.time() - one.at < _HOUR_SECONDS]
    settings = config.settings
    return {
        "last_hour": {"runs": len(recent), "tokens": sum(one.tokens for one in recent)},
        "per_hour": {"runs": settings.notes_runs_per_hour, "tokens": settings.notes_tokens_per_hour},
    }
