"""`perdure sessions`: list, show, rename, tag, fork and delete what is kept here (SES-1, ENG-5)."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perdure.adapters.journal import JOURNAL
from perdure.cli.arguments import Json, SessionName, configured, examples, home, located, matching, moment_since
from perdure.cli.output import EXIT_FAILED, clean, cut, iso, moment, out, out_json, plural, short_path, size, table
from perdure.errors import BadSetting

if TYPE_CHECKING:
    from perdure.adapters.journal import ListedSession, SessionStore
    from perdure.engine.session import LiveSession

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
    json: Json = False,
) -> None:
    if context.invoked_subcommand is None:
        list_sessions(project, limit, since, grep, gateway, json)


@app.command(
    "list",
    epilog=examples(
        "perdure sessions list --since 2d",
        "perdure sessions list --grep parser --limit 5",
        "perdure sessions list --gateway",
        "perdure sessions list --json",
    ),
)
def list_sessions(
    project: Project = None,
    limit: Limit = None,
    since: Since = None,
    grep: Grep = None,
    gateway: Gateway = False,
    json: Json = False,
) -> None:
    """List the sessions, the last written first.

    Each has a number and a short id; @2 or the id names it in other commands. Those of the gateway's clients have the
    id only. Only the ends of the journals are read.
    """
    from perdure.adapters.journal import SessionStore, short_ids
    from perdure.adapters.journal.store import describe

    place = home()
    store, matches = SessionStore(place), matching(grep)
    earliest = None if since is None else moment_since(since)
    tenants: dict[Path, str] = {}
    if gateway:
        if project is not None:
            raise BadSetting("--gateway: a client's folder isn't one of this machine: use --grep FOLDER, not --project")
        for name, kept in store.of_clients().items():
            tenants |= dict.fromkeys(kept.directories(), name)
        everything = tuple(sorted((describe(one / JOURNAL) for one in tenants), key=lambda info: -info.modified))
    else:
        everything = store.list()
    numbers = {info.directory: number for number, info in enumerate(everything, 1)}
    short = short_ids(info.id for info in everything)
    found = [
        info
        for info in (everything if project is None else store.list(project))
        if (earliest is None or info.modified >= earliest)
        and matches("\n".join(filter(None, _named_by(info, tenants.get(info.directory)))))
    ]
    shown = found[: limit or (len(found) if json else _MOST_SHOWN)]
    if json:
        for info in shown:
            beside = {"tenant": tenants[info.directory]} if gateway else {"number": numbers[info.directory]}
            out_json({**_data(info), "short": short[info.id], **beside})
        return
    if not found:
        if everything and (since, grep) != (None, None):
            out("no session matches")
        else:
            whose = "of the gateway's clients" if gateway else f"of {project}" if project is not None else f"in {place}"
            out(f"no sessions {whose} yet{_hint(store, gateway)}")
        return
    if gateway:
        _list_clients(shown, short, tenants)
    else:
        _list_own(shown, short, numbers)
    if len(shown) < len(found):
        out(f"\n{len(found) - len(shown):,} more: --limit {len(found)} shows all, --since and --grep fewer")
    if problems := [info for info in found if info.problem]:
        out(f"\n{plural(len(problems), 'session')} with problems: `perdure doctor` says more")
    if gateway:
        out("\n`perdure report ID -o report.html` makes a page of one")


def _hint(store: SessionStore, is_gateway: bool) -> str:
    """Where else sessions are."""
    is_there = not is_gateway and any(True for kept in store.of_clients().values() for _ in kept.directories())
    return "; --gateway lists those of the gateway's clients" if is_there else ""


def _named_by(info: ListedSession, tenant: str | None) -> tuple[str | None, ...]:
    """What a person may look for."""
    return info.id, info.title, info.last_prompt, info.folder or info.project, info.client, tenant, *info.tags


def _list_clients(shown: Sequence[ListedSession], short: Mapping[str, str], tenants: Mapping[Path, str]) -> None:
    rows = [
        (
            short[info.id],
            moment(info.modified),
            info.messages,
            size(info.bytes),
            cut(info.title or info.last_prompt or info.problem or "", 60),
            info.client or "",
            cut(info.folder or "", 40),
            cut(tenants[info.directory], 16),
        )
        for info in shown
    ]
    table(("session", "last written", "messages", "size", "title", "client", "folder", "tenant"), rows)


def _list_own(shown: Sequence[ListedSession], short: Mapping[str, str], numbers: Mapping[Path, int]) -> None:
    has_clients = any(info.client for info in shown)  # imported from their logs
    rows = [
        (
            f"@{numbers[info.directory]}",
            short[info.id],
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
def show(session: SessionName, json: Json = False) -> None:
    """Show what is known about one session."""
    from perdure.adapters.checkpoints.log import checkpoint_usage
    from perdure.adapters.journal import read_holder
    from perdure.adapters.journal.store import describe

    info = describe(located(session) / JOURNAL)
    holder = read_holder(info.directory)
    used = checkpoint_usage(info.directory)  # CKP-6: how many prompts can be gone back to, and what that takes
    data = _data(info) | {
        "blobs": sum(1 for path in (info.directory / "blobs").rglob("*") if path.is_file()),
        "held_by": None if holder is None else {"pid": holder.pid, "host": holder.host},
        "checkpoints": None if used is None else f"{used.snapshots} ({used.bytes:,} bytes)",
        "beside": sorted(path.name for path in info.directory.glob(f"{JOURNAL}.*")),
    }
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


def _data(info: ListedSession) -> dict[str, Any]:
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
        "directory": str(info.directory),
        "problem": info.problem,
    }


@app.command("rename", epilog=examples("perdure sessions rename @last 'The parser rewrite'"))
def rename(
    session: SessionName,
    title: Annotated[str, typer.Argument(metavar="TITLE", help="What listings call it.")],
    json: Json = False,
) -> None:
    """Give a session a title."""
    from perdure.transcript.records import Titled

    told = _checked_title(title)

    async def change(one: LiveSession) -> dict[str, Any]:
        await one.record(Titled(title=told))
        return {"title": told}

    done = _changed(session, change)
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

    done = _changed(session, change)
    out_json(done) if json else out(f"{done['session']}: {clean(', '.join(done['tags'])) or 'no tags'}")


def _changed(reference: str, change: Callable[[LiveSession], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
    """Open a session, change something about it, and close it."""
    import anyio

    from perdure.wiring import SessionOptions, open_session

    async def body() -> dict[str, Any]:
        config = configured()
        session = await open_session(config.home, located(reference), parts=SessionOptions(settings=config.settings))
        try:
            done = await change(session)
            return {"session": (await session.ports.journal.load()).header.session, **done}
        finally:
            await session.close()

    return anyio.run(body)


@app.command("fork", epilog=examples("perdure sessions fork @last --title 'Another way'"))
def fork(
    session: SessionName,
    *,
    title: Annotated[str | None, typer.Option(metavar="TITLE", help="What listings call the fork.")] = None,
    json: Json = False,
) -> None:
    """Copy a session; the copy can be continued on its own."""
    import anyio

    from perdure.transcript.records import Titled
    from perdure.wiring import SessionOptions, fork_session

    told = None if title is None else _checked_title(title)

    async def body() -> dict[str, Any]:
        config = configured()
        forked = await fork_session(config.home, located(session), parts=SessionOptions(settings=config.settings))
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

    done = anyio.run(body)
    out_json(done) if json else out(f"{done['session']} continues {done['forked_from']}")


@app.command("delete", epilog=examples("perdure sessions delete 7k2q9x", "perdure sessions delete 7k2q9x --yes"))
def delete(
    session: SessionName,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
    json: Json = False,
) -> None:
    """Delete a session with everything it stored, for good."""
    from perdure.adapters.journal import SessionStore

    store = SessionStore(home())
    directory = located(session)
    if not yes and not sys.stdin.isatty():
        raise BadSetting(f"{directory.name}: a deleted session can't be brought back; --yes deletes without asking")
    if not yes:
        sys.stderr.write(f"Delete {directory.name} with everything it stored, for good? [y/N] ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            out("kept")
            raise typer.Exit(EXIT_FAILED)
    store.delete(directory)
    if json:
        out_json({"deleted": directory.name, "directory": str(directory)})
    else:
        out(f"deleted {directory.name}")


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
