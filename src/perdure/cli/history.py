"""`perdure recall`, `search` and `rewind`: back to what was said (RCL-1, SES-2), and to how things were (CKP-3)."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perdure.cli.arguments import (
    Json,
    SessionName,
    Sets,
    complete_sessions,
    configured,
    examples,
    family,
    moment_since,
)
from perdure.cli.kept import HERE, KeptIn, StoreUrl, TenantName
from perdure.cli.loop import in_loop
from perdure.cli.output import (
    EXIT_FAILED,
    EXIT_OK,
    EXIT_USAGE,
    clean,
    cut,
    for_stdout,
    is_terminal,
    iso,
    moment,
    note,
    out,
    out_json,
    plural,
    short_path,
    table,
    width_of,
    wrapped,
)
from perdure.errors import BadSetting, RewindRefused, SessionNotFound

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perdure.adapters.config import Config
    from perdure.engine.rewind import RewindResult, What
    from perdure.memory.checkpoints import MissedChange
    from perdure.ports.home import Home, SessionInfo
    from perdure.ports.machine import FileRewind, FileStep
    from perdure.ports.session import Archive, FoundSessions, SearchResults
    from perdure.ports.session import SearchHit as Hit
    from perdure.recall.queries import RecalledText

app = family()
_UNBOUNDED = 1 << 62  # a person's pipe takes everything; what models get is bounded
_CLIENTS_ID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
_ALSO = 3
NEEDS_RESUME = "Error: --rewind-files requires --resume"
STANDS_ALONE = "Error: --rewind-files is a standalone operation and cannot be used with a prompt"
NEEDS_MESSAGE = "Error: --rewind-files requires a user message id"
_PATH_CHARS = 300
_MISSED_SHOWN = 20
_VERBS = {
    "write": "change",
    "create": "bring back",
    "delete": "delete",
    "link": "link",
    "folder": "make",
    "keep": "leave",
}


@app.command(
    epilog=examples(
        "perdure recall @last toolu_01",
        "perdure recall 7k2q9x toolu_01 --lines 100-140",
        'perdure recall 7k2q9x toolu_01 --pattern "error|warning"',
        "perdure recall 7k2q9x toolu_01 --store postgresql://perdure@db/perdure",
    )
)
def recall(
    session: SessionName,
    identity: Annotated[
        str, typer.Argument(metavar="ID", help="The id of a result, message, boundary or blob, or the start of one.")
    ],
    *,
    lines: Annotated[str | None, typer.Option(metavar="A-B", help="Only these lines; A- goes to the end.")] = None,
    pattern: Annotated[
        str | None, typer.Option(metavar="P", help="Only lines that match (RE2), with their numbers.")
    ] = None,
    chars: Annotated[str | None, typer.Option(metavar="A-B", help="Only these characters.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, metavar="CHARS", help="Show no more than this.")] = None,
    store: StoreUrl = None,
    tenant: TenantName = None,
    json: Json = False,
) -> None:
    """Show the original of something that was said.

    Byte for byte, whether it is in the window, cleared, offloaded or compacted away; only what a terminal would obey,
    such as a change of its title, isn't sent to one.
    """

    from perdure.engine.tools import recall as find_original
    from perdure.recall.queries import RecallRequest, range_of
    from perdure.wiring import SessionOptions, open_session

    config = configured()
    wanted = RecallRequest(
        id=identity,
        lines=range_of(lines, what="--lines") if lines else None,
        chars=range_of(chars, what="--chars") if chars else None,
        pattern=pattern,
        limit_chars=limit or _UNBOUNDED,
    )

    async def body() -> RecalledText:
        async with KeptIn(store, tenant).session(session) as named:
            parts = SessionOptions(settings=config.settings)
            one = await open_session(named.home, named.reference, read_only=True, parts=parts)
            try:
                return await find_original(one, wanted)
            finally:
                await one.ports.journal.close()

    shown = in_loop(body)
    if json:
        out_json(_shown_data(shown))
        return
    is_read_here, text = sys.stdout.isatty(), for_stdout(shown.body)
    sys.stdout.write(text)
    if (is_read_here or shown.matches) and not text.endswith("\n"):
        sys.stdout.write("\n")
    sys.stdout.flush()
    if is_read_here or shown.left_out:
        told = [f"{shown.original.id}: {shown.original.what}", *filter(None, [shown.left_out])]
        if text != shown.body:
            told.append("what a terminal would obey is replaced: a file or a pipe gets it as it was said")
        note("; ".join(told))


def _shown_data(shown: RecalledText) -> dict[str, Any]:
    import msgspec

    original = shown.original
    return {
        "id": original.id,
        "kind": original.kind,
        "what": original.what,
        "at": iso(original.at),
        "text": shown.body,
        "lines": shown.lines,
        "chars": shown.chars,
        "matches": shown.matches,
        "total_lines": shown.total_lines,
        "total_chars": len(original.text),
        "is_whole": shown.is_whole,
        "left_out": shown.left_out,
        "raw": [msgspec.Raw(raw) for raw in original.raw] if original.kind != "blob" else [],
    }


@app.command(
    epilog=examples(
        "perdure search connection pool timeout",
        'perdure search --all "make the parser keep comments"',
        'perdure search "flaky test" --all --places --limit 20',
        "perdure search migration --since 2d",
        "perdure search migration --session @last",
        "perdure search invoices --all --store postgresql://perdure@db/perdure --tenant alice",
    )
)
def search(
    query: Annotated[
        list[str],
        typer.Argument(metavar="WORD", help="Words; texts that have them side by side come first."),
    ],
    *,
    session: Annotated[
        str | None, typer.Option(metavar="SESSION", help="Only this session.", autocompletion=complete_sessions)
    ] = None,
    project: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Another project than this folder's.")] = None,
    is_all: Annotated[
        bool, typer.Option("--all", help="The sessions of all projects; those that matter most are shown.")
    ] = False,
    ranks_sessions: Annotated[
        bool, typer.Option("--sessions", help="Show which sessions matter to a prompt; with --all it is so anyway.")
    ] = False,
    ranks_places: Annotated[
        bool, typer.Option("--places", help="Show the places where the words stand, also with --all.")
    ] = False,
    since: Annotated[
        str | None, typer.Option(metavar="WHEN", help="Only what was said since: 90m, 12h, 2d, 1w, or a date.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, metavar="N", help="Show at most N results.")] = 10,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Rebuild the index first.")] = False,
    store: StoreUrl = None,
    tenant: TenantName = None,
    json: Json = False,
) -> None:
    """Find what was said in this project's sessions.

    The best and newest come first. Each place has the id by which recall shows all of it. With --sessions, those that
    matter to a prompt are shown, and why: the words of it that they hold, and files that they touched.
    """

    from perdure.recall.queries import terms_of

    kept = KeptIn(store, tenant)
    if session is not None and (is_all or project or ranks_sessions):
        raise BadSetting("--session can't be combined with --all, --project or --sessions")
    if ranks_sessions and ranks_places:
        raise BadSetting("--sessions can't be combined with --places: give one of them")
    if not terms_of(words := " ".join(query)):
        raise BadSetting(f"search: there are no words in {words[:40]!r}: give at least one letter or digit")
    if rebuild:
        kept.only_files("--rebuild is for the index of files: a database keeps its own")
    earliest = None if since is None else moment_since(since)

    async def body() -> FoundHits:
        if session is not None:
            async with kept.session(session) as named:
                if rebuild:
                    await _rebuild(named.home)
                archive = _archive_around(named.reference, (await named.info()).project, named.home)
                hits = await archive.search(words, limit=limit, sessions=(named.id,), since=earliest)
                return await _described(hits, named.home)
        async with kept.home() as kept_in:
            if rebuild:
                await _rebuild(kept_in)
            archive, is_narrow = await _archive(kept_in, project, is_all=is_all)
            hits = await archive.search(words, limit=limit, since=earliest)
            return replace(await _described(hits, kept_in), is_narrow=is_narrow)

    async def ranked() -> RankedHere:
        async with kept.home() as kept_in:
            if rebuild:
                await _rebuild(kept_in)
            archive, is_narrow = await _archive(kept_in, project, is_all=is_all)
            best = await archive.sessions(words, limit=limit, since=earliest)
            return await _described_sessions(best, kept_in, is_narrow=is_narrow)

    if ranks_sessions or (is_all and not ranks_places):
        _show_sessions(in_loop(ranked), kept, has_since=since is not None, json=json)
        return
    found = in_loop(body)
    if found.results.note:
        note(found.results.note)
    hits = found.results.hits
    if json:
        for rank, hit in enumerate(hits, 1):
            out_json(_hit_data(rank, hit, found.about.get((hit.session, hit.project))))
        return
    if not hits:
        _say_nothing(found, kept, has_since=since is not None)
        return
    for rank, hit in enumerate(hits, 1):
        _show_hit(rank, hit, found.short, found.about.get((hit.session, hit.project)))


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundHits:
    """What a search found, what is known of the sessions, by id and project, and short names for them."""

    results: SearchResults
    where: str
    about: Mapping[tuple[str, str], SessionInfo]
    short: Mapping[str, str]
    is_empty: bool  # nothing is kept there at all
    is_narrow: bool = False  # there were more places to look at


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedHere:
    """Sessions that matter, short names for them, and what else there is to say where there are none."""

    best: FoundSessions
    where: str
    about: Mapping[tuple[str, str], SessionInfo]
    short: Mapping[str, str]
    is_empty: bool
    is_narrow: bool


async def _described_sessions(best: FoundSessions, kept_in: Home, *, is_narrow: bool) -> RankedHere:
    from perdure.adapters.journal import short_ids
    from perdure.adapters.journal.home import FileHome

    named = {one.session for one in best.sessions}
    listed = await kept_in.sessions(ids=named) if named else ()
    others = {one.name for one in kept_in.files.newest()} if isinstance(kept_in, FileHome) else set()
    return RankedHere(
        best=best,
        where=kept_in.name,
        about={(info.id, info.project): info for info in listed},
        short=short_ids(named | others, only=named),
        is_empty=not (named or await kept_in.sessions(limit=1)),
        is_narrow=is_narrow,
    )


def _show_sessions(found: RankedHere, kept: KeptIn, *, has_since: bool, json: bool) -> None:
    if found.best.note:
        note(found.best.note)
    opens = "inspect" if kept.is_database else "resume"
    for rank, one in enumerate(found.best.sessions, 1):
        about = found.about.get((one.session, one.project))
        title = (about and about.title) or one.title
        client = about and about.client
        if json:
            data = {name: getattr(one, name) for name in one.__dataclass_fields__}
            out_json({"rank": rank, **data, "title": title, "at": iso(one.at), "client": client})
            continue
        short = found.short[one.session]
        _out_within(f"{rank}. ", f"{short} {clean(cut(title, 80))}".rstrip())
        where = (short_path(one.project), client or "", moment(one.at) if one.at is not None else "")
        _out_within("   ", clean(", ".join(filter(None, where))))
        for what, held in (("says", one.words), ("touched", one.files)):
            if held:
                _out_within("   ", f"{what} {clean(cut(', '.join(held), 160))}", further=2)
        if client and (command := _in_its_client(one.session, client, one.project)):
            out(f"   {command}")
        out(f"   perdure {opens} {short}")
    if not found.best.sessions and not json:
        _say_nothing(found, kept, has_since=has_since)


def _in_its_client(session: str, client: str, project: str) -> str | None:
    """The command that goes on with a session in its client; None where it has another id there, or no log any more."""
    from perdure.adapters.logs import has_log

    own = {"Claude Code": "claude --resume", "Codex": "codex resume"}.get(client)
    if own is None or not _CLIENTS_ID.fullmatch(session) or not has_log(client, session, os.environ):
        return None
    return f"cd {clean(shlex.quote(project))} && {own} {session}"


def _say_nothing(found: FoundHits | RankedHere, kept: KeptIn, *, has_since: bool) -> None:
    if found.is_empty:
        brings = "`perdure import` brings in those of Claude Code and Codex"
        here = f"in {found.where} yet; {brings}"
        out(f"no sessions {'there yet; --tenant says whose to search' if kept.is_database else here}")
        return
    wider = ["fewer or other words", *(["an earlier --since"] if has_since else [])]
    wider += ["--all"] if found.is_narrow else []
    out(f"nothing that was said matches; try {' or '.join(wider)}")


async def _rebuild(kept_in: Home) -> None:
    """Make the index of a home on files anew."""
    import anyio

    from perdure.adapters.journal.home import FileHome

    assert isinstance(kept_in, FileHome)
    pieces = await anyio.to_thread.run_sync(kept_in.archive().rebuild)
    note(f"rebuilt the index: {plural(pieces, 'piece')}")


async def _described(results: SearchResults, kept_in: Home) -> FoundHits:
    from perdure.adapters.journal import short_ids
    from perdure.adapters.journal.home import FileHome

    named = {name for hit in results.hits for name in (hit.session, *(also for also, _, _ in hit.also))}
    listed = await kept_in.sessions(ids=named) if named else ()
    others = {one.name for one in kept_in.files.newest()} if isinstance(kept_in, FileHome) else set()
    return FoundHits(
        results=results,
        where=kept_in.name,
        about={(info.id, info.project): info for info in listed},
        short=short_ids(named | others, only=named),
        is_empty=not (results.hits or await kept_in.sessions(limit=1)),
    )


def _archive_around(reference: str | Path, project: str, kept_in: Home) -> Archive:
    """What was said in the project of a session."""
    if isinstance(reference, Path):
        from perdure.adapters.journal.store import home_around

        if home_around(reference) is None:
            raise BadSetting(f"{reference}: only sessions in a store can be searched: import it")
    return kept_in.archive(project or None)


async def _archive(kept_in: Home, project: Path | None, *, is_all: bool) -> tuple[Archive, bool]:
    """Where to search: in a project, or in everything kept there; and whether that is less than everything."""
    if is_all:
        return kept_in.archive(), False
    here = str(project or Path.cwd())
    if project is None and not await kept_in.sessions(here, limit=1):
        note("this folder's project has no sessions: searching all projects")
        return kept_in.archive(), False
    return kept_in.archive(here), True


def _hit_data(rank: int, hit: Hit, about: SessionInfo | None) -> dict[str, Any]:
    from perdure.ports.session import SearchHit as Hit

    data = {name: getattr(hit, name) for name in Hit.__dataclass_fields__}
    data["at"] = iso(hit.at)
    data["also"] = [{"session": s, "id": i, "message": m} for s, i, m in hit.also]
    return {"rank": rank, **data, "title": about and about.title, "client": about and about.client}


def _show_hit(rank: int, hit: Hit, short: Mapping[str, str], about: SessionInfo | None) -> None:
    who = f"result of {hit.tool}" if hit.role == "tool" and hit.tool else hit.role
    when = f", {moment(hit.at)}" if hit.at is not None else ""
    out(f"{rank}. {short[hit.session]} {hit.id}")
    title = cut(about.title or about.last_prompt or "", 60) if about else ""
    named = (title, short_path(hit.project), about.client if about else "")
    _out_within("   ", clean(", ".join(filter(None, named))))
    _out_within("   ", f"{clean(who)}{when}, line {hit.line}")
    for line in hit.snippet.split("\n"):
        _out_within("   | ", clean(line), mark="   | ")
    if hit.also:
        more = f" and {len(hit.also) - _ALSO} more" if len(hit.also) > _ALSO else ""
        also = ", ".join(f"{short[s]} {i}" for s, i, _ in hit.also[:_ALSO])
        _out_within("   ", f"the same text also: {also}{more}", further=2)


def _out_within(begin: str, text: str, *, mark: str = "", further: int = 0) -> None:
    """A line of a result, wrapped to a terminal; for programs it stays one.

    Args:
        begin: What it begins with.
        text: What may be wrapped.
        mark: What its further lines begin with; without one they are indented as far as the first.
        further: How much further.
    """
    room = shutil.get_terminal_size().columns - 1 - len(begin) if is_terminal() else width_of(text)
    if width_of(text) <= room:
        out(begin + text)
        return
    for number, part in enumerate(wrapped(text, room - further)):
        out((mark or " " * (len(begin) + further) if number else begin) + part)


# --- back to how things were ------------------------------------------------------------------------------------------


@app.command(
    context_settings={"ignore_unknown_options": True},  # -1 is a place to go back to
    epilog=examples(
        "perdure rewind @last -1",
        "perdure rewind @last -2 --code --dry-run",
        "perdure rewind @last --undo",
    ),
)
def rewind(
    session: SessionName,
    to: Annotated[
        str | None,
        typer.Argument(metavar="TO", help="A user message: its id, the start of one, or -N prompts back."),
    ] = None,
    *,
    code: Annotated[bool, typer.Option("--code", help="Only the files.")] = False,
    conversation: Annotated[bool, typer.Option("--conversation", help="Only what the model sees.")] = False,
    both: Annotated[bool, typer.Option("--both", help="Both, as without a flag.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that someone else has changed.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Undo the last rewind.")] = False,
    store: StoreUrl = None,
    tenant: TenantName = None,
    sets: Sets = None,
    json: Json = False,
) -> None:
    """Go back to before a prompt: files, conversation or both.

    Either all files are put back or none. What is there now is saved first, so --undo brings it back.
    """

    if sum((code, conversation, both)) > 1:
        raise BadSetting("--code, --conversation and --both: give one of them")
    if undo and (to is not None or code or conversation or both):
        raise BadSetting("--undo undoes the whole last rewind: it can't be combined with TO, --code or --conversation")
    if to is None and not undo:
        raise BadSetting("say where to go back to: a user message, or -1 for the last prompt")
    if to is not None and to.startswith("-") and not to[1:].isdigit():
        raise BadSetting(f"{to}: no such option")
    what: What = "code" if code else "conversation" if conversation else "both"
    done, short = in_loop(_rewound, session, KeptIn(store, tenant), configured(sets or ()), to, what, force, dry_run)
    if json:
        out_json(_rewind_data(done, to, is_dry=dry_run))
    else:
        _show_rewind(done, to, short, is_dry=dry_run)


async def _rewound(
    reference: str,
    kept: KeptIn,
    config: Config,
    to: str | None,
    what: What,
    is_forced: bool = False,
    is_dry: bool = False,
) -> tuple[RewindResult, str]:
    """Rewind a session to a prompt; to none undoes the last rewind. What came of it, and a short name of the session.

    The files that a session in a database changed are on the machine where its agent ran: they stay.
    """
    import anyio

    from perdure.engine.rewind import rewind as rewind_session
    from perdure.engine.rewind import undo_rewind
    from perdure.wiring import SessionOptions, file_checkpoints, open_session

    if kept.is_database and what != "conversation" and to is not None:
        raise BadSetting("of a session in a database only the conversation can be gone back in: --conversation")
    parts = SessionOptions(settings=config.settings)
    async with kept.session(reference) as named:
        session = await open_session(named.home, named.reference, read_only=is_dry, parts=parts)
        try:
            files = None
            if what != "conversation" and isinstance(named.reference, Path):
                project = (await session.ports.journal.load()).header.project
                if project is None or not await anyio.to_thread.run_sync(os.path.isdir, project):
                    where = project or named.reference
                    raise SessionNotFound(f"{where}: the project folder of this session no longer exists")
                files = file_checkpoints(named.reference, project, parts, is_looking=is_dry)
            try:
                if to is None:
                    done = await undo_rewind(session, files, is_forced=is_forced, is_dry=is_dry)
                else:
                    done = await rewind_session(session, files, to, what=what, is_forced=is_forced, is_dry=is_dry)
            finally:
                if files is not None:
                    files.close()
        finally:
            await (session.ports.journal.close() if is_dry else session.close())
        return done, named.short


def rewind_files(config: Config, *, message: str, resume: str | None, prompt: str | None) -> int:
    """`perdure run --rewind-files MESSAGE --resume SESSION`: only that, without any turn of a model (CKP-5).

    Files that somebody else changed are not overwritten, and then nothing is. The exit code is 0 when the files stand
    as they did, 2 for what can't be asked, 1 for what can't be done.
    """

    if not resume:
        return _refused(NEEDS_RESUME)
    if prompt:
        return _refused(STANDS_ALONE)
    try:
        done, _ = in_loop(_rewound, resume, HERE, config, message, "code")
    except RewindRefused as e:
        if "no user message" in str(e) or "user messages" in str(e) or "prompts to go back" in str(e):
            return _refused(f"{NEEDS_MESSAGE}: {e}")
        return _refused(f"Error: {e}", EXIT_FAILED)
    if done.files is not None:
        for line in (done.files.note, not_kept(done.files), *left(done.files)):
            if line:
                note(line)
    out(f"Files rewound to state at message {done.to}")
    return EXIT_OK


def _refused(text: str, code: int = EXIT_USAGE) -> int:
    sys.stderr.write(" ".join(clean(text).split()) + "\n")
    return code


def _show_rewind(done: RewindResult, to: str | None, session: str, *, is_dry: bool) -> None:
    would = "would go" if is_dry else "went"
    if done.files is not None:
        _show_files(done.files, is_dry=is_dry)
    if done.is_conversation:
        out(f"the conversation {would} {'forward again' if to is None else f'back to before {done.to}'}")
    if done.prompt and done.is_conversation and to is not None:
        out("\nthe prompt, for you to edit:\n" + "\n".join(clean(line) for line in done.prompt.splitlines()))
    if to is not None and not is_dry:
        out(f"\nundo it with `perdure rewind {session} --undo`")


def _show_files(files: FileRewind, *, is_dry: bool) -> None:
    from perdure.memory.places import name_for_people

    missed = not_kept(files)
    if not files.steps:
        nothing = "no file that is kept needs to change" if missed else "no file needs to change"
        out(f"{nothing}{f': {files.note}' if files.note else ''}")
    else:
        table(
            ("what", "file", "lines", "note"),
            [
                (
                    _VERBS[step.action],
                    name_for_people(step.path, limit=_PATH_CHARS),
                    _lines(step),
                    step.conflict or step.left,
                )
                for step in files.steps
            ],
        )
        out(f"{plural(len(files.changes), 'file')} {'would change' if is_dry else 'changed'}")
        if is_dry and files.conflicts:
            out(f"{plural(len(files.conflicts), 'file')} changed by someone else: only --force overwrites them")
    if missed:
        out(missed)


def not_kept(files: FileRewind) -> str:
    """One line of what a rewind doesn't put back, since nothing of it is kept (CKP-7); empty for nothing."""
    from perdure.memory.places import name_for_people

    told = [
        f"{name_for_people(m.path)} ({', '.join(filter(None, (m.why, m.what)))})" if m.path else m.why
        for m in files.missed
    ]
    more = [f"and {len(told) - _MISSED_SHOWN:,} more (--json names them)"] if len(told) > _MISSED_SHOWN else []
    return f"not kept, so not put back: {'; '.join(told[:_MISSED_SHOWN] + more)}" if told else ""


def left(files: FileRewind) -> list[str]:
    """Lines of what is known and can't be put back."""
    from perdure.memory.places import name_for_people

    return [f"left {name_for_people(step.path)}: {step.left}" for step in files.steps if step.left]


def _lines(step: FileStep) -> str:
    if step.action == "keep":
        return ""
    return "binary" if step.is_binary else f"+{step.added} -{step.removed}"


def _rewind_data(done: RewindResult, to: str | None, *, is_dry: bool) -> dict[str, Any]:
    files = done.files
    return {
        "to": done.to,
        "undo": to is None,
        "dry_run": is_dry,
        "conversation": done.is_conversation,
        "prompt": done.prompt if done.is_conversation and to is not None else None,
        "note": files.note or None if files is not None else None,
        "not_kept": [] if files is None else [_missed_data(missed) for missed in files.missed],
        "files": None if files is None else [_step_data(step) for step in files.steps],
    }


def _missed_data(missed: MissedChange) -> dict[str, Any]:
    from perdure.adapters.checkpoints.log import escaped_name

    return {"path": escaped_name(missed.path) or None, "why": missed.why, "what": missed.what or None}


def _step_data(step: FileStep) -> dict[str, Any]:
    from perdure.adapters.checkpoints.log import escaped_name

    return {
        "path": escaped_name(step.path),
        "action": step.action,
        "added": step.added,
        "removed": step.removed,
        "binary": step.is_binary,
        "conflict": step.conflict or None,
        "left": step.left or None,
    }
