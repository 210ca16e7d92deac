"""`perdure sessions`: list, show, rename, tag, fork and delete what is kept here (SES-1, ENG-5)."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perdure.adapters.journal import JOURNAL
from perdure.cli.arguments import Json, SessionName, beside_home, configured, examples, home, matching, moment_since
from perdure.cli.kept import KeptIn, StoreUrl, TenantName
from perdure.cli.loop import in_loop
from perdure.cli.output import (
    EXIT_FAILED,
    clean,
    cut,
    iso,
    moment,
    note,
    out,
    out_json,
    plural,
    short_path,
    size,
    table,
)
from perdure.errors import BadSetting

if TYPE_CHECKING:
    from perdure.adapters.journal import SessionStore
    from perdure.engine.session import LiveSession
    from perdure.ports.home import SessionInfo

app = typer.Typer(
    help="List, show, rename, tag, fork or delete sessions.",
    epilog=examples("perdure sessions", "perdure sessions show @last", "perdure sessions rename @last 'The parser'"),
    invoke_without_command=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
TITLE_CHARS = 200
TAG_CHARS = 50
_MOST_SHOWN = 40  # where nobody said how many
_MOST_TOLD = 10_000  # of a database, to a program
_TENANTS_SHOWN = 5
_PAGE = 500  # sessions of a database that are asked for at a time

Project = Annotated[Path | None, typer.Option(metavar="FOLDER", help="Only the sessions of this project.")]
Limit = Annotated[int | None, typer.Option(min=1, metavar="N", help="Show at most N sessions.")]
Since = Annotated[
    str | None, typer.Option(metavar="WHEN", help="Only those written since: 90m, 12h, 2d, 1w, or a date.")
]
Gateway = Annotated[bool, typer.Option("--gateway", help="Only those of the gateway's clients, of all tenants.")]
Grep = Annotated[
    str | None, typer.Option(metavar="PATTERN", help="Only those whose id, title, last prompt, tags or folder match.")
]


@app.callback()
def _sessions(
    context: typer.Context,
    project: Project = None,
    limit: Limit = None,
    since: Since = None,
    grep: Grep = None,
    gateway: Gateway = False,
    store: StoreUrl = None,
    tenant: TenantName = None,
    json: Json = False,
) -> None:
    if context.invoked_subcommand is not None:
        for name in ("store", "tenant"):  # else it would be looked for on files
            if getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE":
                raise BadSetting(f"--{name} belongs behind {context.invoked_subcommand}")
    else:
        list_sessions(project, limit, since, grep, gateway, store, tenant, json)


@app.command(
    "list",
    epilog=examples(
        "perdure sessions list --since 2d",
        "perdure sessions list --grep parser --limit 5",
        "perdure sessions list --gateway",
        "perdure sessions list --store postgresql://perdure@db/perdure --tenant alice",
        "perdure sessions list --json",
    ),
)
def list_sessions(
    project: Project = None,
    limit: Limit = None,
    since: Since = None,
    grep: Grep = None,
    gateway: Gateway = False,
    store: StoreUrl = None,
    tenant: TenantName = None,
    json: Json = False,
) -> None:
    """List the sessions, the last written first.

    Each has a number and a short id; @2 or the id names it in other commands. Those of the gateway's clients have the
    id only. Only the ends of the journals are read, and of a database as many sessions as are shown.
    """

    kept, matches = KeptIn(store, tenant), matching(grep)
    earliest = None if since is None else moment_since(since)
    if gateway:
        if kept.is_database or tenant:
            raise BadSetting("--gateway lists those of all tenants, of files: with --tenant or --store, leave it out")
        if project is not None:
            raise BadSetting("--gateway: a client's folder isn't one of this machine: use --grep FOLDER, not --project")
        found = _of_clients(earliest, matches)
    elif kept.is_database:
        most = limit or (_MOST_TOLD if json else _MOST_SHOWN)
        found = in_loop(_in_database, kept, project, earliest, matches, most)
    else:
        found = in_loop(
            _on_files, kept, project, earliest, matches if grep else None, limit or (None if json else _MOST_SHOWN)
        )
    shown = found.sessions[: limit or (len(found.sessions) if json else _MOST_SHOWN)]
    if json:
        for info in shown:
            beside = {"tenant": found.tenants[info.place]} if gateway else {"number": found.numbers.get(info.place)}
            out_json({**_data(info), "short": found.short[info.id], **beside})
        if found.has_more:
            note(f"these are the last {len(shown):,}: --limit says how many")
        return
    if not shown:
        if found.has_others and (since, grep) != (None, None):
            out("no session matches")
        else:
            whose = "of the gateway's clients" if gateway else f"of {project}" if project else f"in {found.where}"
            out(f"no sessions {whose} yet{found.hint}")
        return
    if gateway:
        _list_clients(shown, found)
    else:
        _list_own(shown, found)
    if found.has_more:
        out(f"\nand more: --limit {2 * len(shown)} shows them, --since and --grep fewer")
    elif rest := (found.count or len(found.sessions)) - len(shown):
        out(f"\n{rest:,} more: --limit {rest + len(shown)} shows all, --since and --grep fewer")
    if problems := [info for info in shown if info.problem]:
        out(f"\n{plural(len(problems), 'session')} with problems: `perdure doctor` says more")
    if gateway:
        out("\n`perdure report ID -o report.html` makes a page of one")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionListing:
    """Sessions that were asked for, the last written first, each with a number or a tenant, by its place.

    `has_others`: whether there are some that weren't asked for; `has_more`: whether some that were aren't here. `count`
    is how many were, where that is known though not all are here.
    """

    where: str
    sessions: Sequence[SessionInfo]
    short: Mapping[str, str]
    numbers: Mapping[str, int] = field(default_factory=dict)
    tenants: Mapping[str, str] = field(default_factory=dict)
    has_others: bool = False
    has_more: bool = False
    count: int = 0
    hint: str = ""


async def _on_files(
    kept: KeptIn,
    project: Path | None,
    earliest: float | None,
    matches: Callable[[str], bool] | None,
    most: int | None,
) -> SessionListing:
    """Of journals only those are opened that are shown, unless all have to be for what they say."""
    from perdure.adapters.journal import SessionStore, short_ids
    from perdure.adapters.journal.home import FileHome
    from perdure.adapters.journal.store import describe

    async with kept.home() as files:
        assert isinstance(files, FileHome)
        everything = files.by_time()
        chosen = everything if project is None else files.by_time(str(project))
        late = [directory for modified, directory in chosen if earliest is None or modified >= earliest]
        if matches is None:
            sessions, found = [describe(directory / JOURNAL) for directory in late[:most]], len(late)
        else:
            described = (describe(directory / JOURNAL) for directory in late)
            sessions = [info for info in described if _is_meant(info, earliest, matches)]
            found = len(sessions)
    return SessionListing(
        where=files.name,
        sessions=sessions,
        numbers={str(directory / JOURNAL): number for number, (_, directory) in enumerate(everything, 1)},
        short=short_ids((one.name for _, one in everything), only=[info.id for info in sessions]),
        has_others=bool(everything),
        count=found,
        hint="" if kept.store or kept.tenant else _hint(SessionStore(home())),
    )


async def _in_database(
    kept: KeptIn, project: Path | None, earliest: float | None, matches: Callable[[str], bool], most: int
) -> SessionListing:
    """A page after the other, until there are enough. Ids are shortened as far as those shown are told apart."""
    from perdure.adapters.journal import short_ids

    found: list[SessionInfo] = []
    numbers: dict[str, int] = {}
    async with kept.opened() as store:
        kept_in, behind, seen, hint = await kept.home_in(store), None, 0, ""
        while len(found) <= most:
            limit = min(_PAGE, max(most + 1, _MOST_SHOWN))
            page = await kept_in.sessions(
                None if project is None else str(project), since=earliest, behind=behind, limit=limit
            )
            for number, info in enumerate(page, seen + 1):
                if matches("\n".join(filter(None, _named_by(info, None)))):
                    found.append(info)
                    if project is None:
                        numbers[info.place] = number
            if len(page) < limit:
                break
            behind, seen = page[-1], seen + len(page)
        if not found and not kept.tenant and (tenants := sorted(await store.tenants())):
            more = f" and {len(tenants) - _TENANTS_SHOWN:,} more" if len(tenants) > _TENANTS_SHOWN else ""
            hint = f"; it has tenants: {clean(', '.join(tenants[:_TENANTS_SHOWN]))}{more}; --tenant lists those of one"
        where = f"{store.name}, of {clean(kept.tenant)}" if kept.tenant else store.name
        has_others = bool(found) or bool(await kept_in.sessions(limit=1))
    shown = found[:most]
    return SessionListing(
        where=where,
        sessions=shown,
        numbers=numbers,
        short=short_ids(info.id for info in shown),
        has_others=has_others,
        has_more=len(found) > len(shown),
        hint=hint,
    )


def _of_clients(earliest: float | None, matches: Callable[[str], bool]) -> SessionListing:
    from perdure.adapters.journal import SessionStore, short_ids
    from perdure.adapters.journal.store import describe

    place = home()
    tenants: dict[str, str] = {}
    everything: list[SessionInfo] = []
    for name, files in SessionStore(place).of_clients().items():
        listed = [describe(one / JOURNAL) for one in files.directories()]
        tenants |= dict.fromkeys((info.place for info in listed), name)
        everything += listed
    everything.sort(key=lambda info: -info.modified)
    return SessionListing(
        where=str(place),
        sessions=[info for info in everything if _is_meant(info, earliest, matches, tenants[info.place])],
        tenants=tenants,
        short=short_ids(info.id for info in everything),
        has_others=bool(everything),
    )


def _is_meant(
    info: SessionInfo, earliest: float | None, matches: Callable[[str], bool], tenant: str | None = None
) -> bool:
    is_late = earliest is None or info.modified >= earliest
    return is_late and matches("\n".join(filter(None, _named_by(info, tenant))))


def _hint(store: SessionStore) -> str:
    """Where else sessions are."""
    is_there = any(True for kept in store.of_clients().values() for _ in kept.directories())
    return "; --gateway lists those of the gateway's clients" if is_there else ""


def _named_by(info: SessionInfo, tenant: str | None) -> tuple[str | None, ...]:
    """What a person may look for."""
    return info.id, info.title, info.last_prompt, info.folder or info.project, info.client, tenant, *info.tags


def _list_clients(shown: Sequence[SessionInfo], found: SessionListing) -> None:
    rows = [
        (
            found.short[info.id],
            moment(info.modified),
            info.messages,
            size(info.bytes),
            cut(info.title or info.last_prompt or info.problem or "", 60),
            info.client or "",
            cut(info.folder or "", 40),
            cut(found.tenants[info.place], 16),
        )
        for info in shown
    ]
    table(("session", "last written", "messages", "size", "title", "client", "folder", "tenant"), rows)


def _list_own(shown: Sequence[SessionInfo], found: SessionListing) -> None:
    has_clients = any(info.client for info in shown)  # imported from their logs
    rows = [
        (
            f"@{found.numbers[info.place]}" if info.place in found.numbers else "",
            found.short[info.id],
            moment(info.modified),
            info.messages,
            size(info.bytes),
            cut(info.title or info.last_prompt or info.problem or "", 60),
            *([info.client or ""] if has_clients else []),
            short_path(info.project),
        )
        for info in shown
    ]
    client = ["client"] if has_clients else []
    table(("", "session", "last written", "messages", "size", "title or last prompt", *client, "project"), rows)


@app.command("show", epilog=examples("perdure sessions show @last", "perdure sessions show 7k2q9x --json"))
def show(session: SessionName, store: StoreUrl = None, tenant: TenantName = None, json: Json = False) -> None:
    """Show what is known about one session."""

    async def body() -> dict[str, Any]:
        async with KeptIn(store, tenant).session(session) as named:
            beside = _beside(named.reference) if isinstance(named.reference, Path) else {}
            return _data(await named.info()) | beside

    data = in_loop(body)
    if json:
        out_json(data)
        return
    for name, value in data.items():
        if value is None or value == []:
            continue
        if isinstance(value, dict):
            value = f"process {value['pid']} on {value['host']}"
        text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        out(f"{name.replace('_', ' '):<12} {clean(text)}")


def _beside(directory: Path) -> dict[str, Any]:
    """What stands beside the journal of a session on files."""
    from perdure.adapters.checkpoints.log import checkpoint_usage
    from perdure.adapters.journal import read_holder

    holder = read_holder(directory)
    used = checkpoint_usage(directory)  # CKP-6: how many prompts can be gone back to, and what that takes
    return {
        "blobs": sum(1 for path in (directory / "blobs").rglob("*") if path.is_file()),
        "held_by": None if holder is None else {"pid": holder.pid, "host": holder.host},
        "checkpoints": None if used is None else f"{used.snapshots} ({used.bytes:,} bytes)",
        "beside": sorted(path.name for path in directory.glob(f"{JOURNAL}.*")),
    }


def _data(info: SessionInfo) -> dict[str, Any]:
    is_file = "://" not in info.place
    return {
        "session": info.id,
        "title": info.title,
        "last_prompt": info.last_prompt,
        "messages": info.messages,
        "tags": list(info.tags),
        "branch": info.branch,
        "client": info.client,
        "folder": info.folder,
        "project": info.project,
        "created": None if info.created is None else iso(info.created),
        "modified": iso(info.modified),
        "bytes": info.bytes,
        **({"directory": str(Path(info.place).parent)} if is_file else {"place": info.place}),
        "problem": info.problem,
    }


@app.command("rename", epilog=examples("perdure sessions rename @last 'The parser rewrite'"))
def rename(
    session: SessionName,
    title: Annotated[str, typer.Argument(metavar="TITLE", help="What listings call it.")],
    store: StoreUrl = None,
    tenant: TenantName = None,
    json: Json = False,
) -> None:
    """Give a session a title."""
    from perdure.transcript.records import Titled

    told = _checked_title(title)

    async def change(one: LiveSession) -> dict[str, Any]:
        await one.record(Titled(title=told))
        return {"title": told}

    done = _changed(session, KeptIn(store, tenant), change)
    out_json(done) if json else out(f"{done['session']} is now {clean(told)!r}")


@app.command(
    "tag", epilog=examples("perdure sessions tag @last parser urgent", "perdure sessions tag @last --remove urgent")
)
def tag(
    session: SessionName,
    tags: Annotated[list[str] | None, typer.Argument(metavar="TAG", help="Tags to add.")] = None,
    *,
    remove: Annotated[
        list[str] | None, typer.Option("--remove", metavar="TAG", help="A tag to remove; may be repeated.")
    ] = None,
    store: StoreUrl = None,
    tenant: TenantName = None,
    json: Json = False,
) -> None:
    """Add tags to a session, remove some, or show them."""
    from perdure.transcript.records import Titled

    added, removed = [_checked_tag(one) for one in tags or ()], [_checked_tag(one) for one in remove or ()]

    async def change(one: LiveSession) -> dict[str, Any]:
        before = one.view.state.title.tags or ()
        if unknown := [tag for tag in removed if tag not in before]:
            raise BadSetting(f"--remove: the session has no tag {unknown[0]!r}; it has: {', '.join(before) or 'none'}")
        now = tuple(dict.fromkeys(tag for tag in (*before, *added) if tag not in removed))
        if now != before:
            await one.record(Titled(tags=now))
        return {"tags": list(now)}

    done = _changed(session, KeptIn(store, tenant), change)
    out_json(done) if json else out(f"{done['session']}: {clean(', '.join(done['tags'])) or 'no tags'}")


def _changed(
    reference: str, kept: KeptIn, change: Callable[[LiveSession], Awaitable[dict[str, Any]]]
) -> dict[str, Any]:
    """Open a session, change something about it, and close it."""

    from perdure.wiring import SessionOptions, open_session

    async def body() -> dict[str, Any]:
        parts = SessionOptions(settings=configured().settings)
        async with kept.session(reference) as named:
            session = await open_session(named.home, named.reference, parts=parts)
            try:
                done = await change(session)
                return {"session": (await session.ports.journal.load()).header.session, **done}
            finally:
                await session.close()

    return in_loop(body)


@app.command("fork", epilog=examples("perdure sessions fork @last --title 'Another way'"))
def fork(
    session: SessionName,
    *,
    title: Annotated[str | None, typer.Option(metavar="TITLE", help="What listings call the fork.")] = None,
    store: StoreUrl = None,
    tenant: TenantName = None,
    json: Json = False,
) -> None:
    """Copy a session; the copy can be continued on its own."""

    from perdure.transcript.records import Titled
    from perdure.wiring import SessionOptions, fork_session

    told = None if title is None else _checked_title(title)

    async def body() -> dict[str, Any]:
        parts = SessionOptions(settings=configured().settings)
        async with KeptIn(store, tenant).session(session) as named:
            forked = await fork_session(named.home, named.reference, parts=parts)
            try:
                if told is not None:
                    await forked.record(Titled(title=told))
                header = (await forked.ports.journal.load()).header
                return {
                    "session": header.session,
                    "forked_from": header.forked_from,
                    "title": forked.view.state.title.title,
                }
            finally:
                await forked.close()

    done = in_loop(body)
    out_json(done) if json else out(f"{done['session']} continues {done['forked_from']}")


@app.command("delete", epilog=examples("perdure sessions delete 7k2q9x", "perdure sessions delete 7k2q9x --yes"))
def delete(
    session: SessionName,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
    store: StoreUrl = None,
    tenant: TenantName = None,
    json: Json = False,
) -> None:
    """Delete a session with everything it stored, for good."""
    import anyio

    from perdure.adapters.care.collect import forget_session
    from perdure.adapters.journal.home import FileHome

    async def body() -> dict[str, Any]:
        async with KeptIn(store, tenant).session(session) as named:
            if not yes:
                _agree(named.id)
            if isinstance(named.home, FileHome):  # of which several projects may have this id
                await anyio.to_thread.run_sync(named.home.files.delete, named.reference)
                await anyio.to_thread.run_sync(forget_session, named.home.path, named.id, beside_home(configured()))
                return {"deleted": named.id, "directory": str(named.reference)}
            await named.home.delete(named.id)
            return {"deleted": named.id}

    done = in_loop(body)
    out_json(done) if json else out(f"deleted {done['deleted']}")


def _agree(session: str) -> None:
    """Ask whether a session is to be deleted; nothing goes on unless it is."""
    if not sys.stdin.isatty():
        raise BadSetting(f"{session}: a deleted session can't be brought back; --yes deletes without asking")
    sys.stderr.write(f"Delete {session} with everything it stored, for good? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        out("kept")
        raise typer.Exit(EXIT_FAILED)


def _checked_title(text: str) -> str:
    title = " ".join(text.split())
    if not title or len(title) > TITLE_CHARS:
        raise BadSetting(f"a title has 1 to {TITLE_CHARS} characters on one line")
    return title


def _checked_tag(text: str) -> str:
    tag = text.strip()
    if not tag or len(tag) > TAG_CHARS or any(c.isspace() or c == "," for c in tag):
        raise BadSetting(f"{text!r}: a tag is one word of 1 to {TAG_CHARS} characters")
    return tag
