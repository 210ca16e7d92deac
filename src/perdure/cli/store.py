"""`perdure store`: the database that gateways share (SCL-1, SCL-6)."""

from __future__ import annotations

import sys
import time
from collections import Counter
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli.arguments import Json, examples, family
from perdure.cli.loop import in_loop
from perdure.cli.output import EXIT_FAILED, EXIT_OK, Progress, clean, note, out, out_json, plural, size
from perdure.errors import BadSetting, JournalError

if TYPE_CHECKING:
    from perdure.ports.home import Backlog, Claim
    from perdure.wiring.copies import CopiedSession, CopySums

app = family(
    "Set up the database that gateways share, or move what is kept.",
    "perdure store migrate postgresql://owner@db/perdure",
    "perdure store migrate postgresql://owner@db/perdure --blobs s3://bucket/perdure",
    "perdure store copy ~/.perdure postgresql://gateway@db/perdure",
    "perdure store delete-tenant postgresql://gateway@db/perdure alice",
    "perdure store vacuum postgresql://owner@db/perdure",
    "perdure store work postgresql://gateway@db/perdure",
)
Database = Annotated[str, typer.Argument(metavar="URL", help="The database: postgresql://user@host/name.")]


@app.command(
    epilog=examples(
        "perdure store migrate postgresql://owner@db/perdure",
        "perdure store migrate postgresql://owner@db/perdure --blobs s3://bucket/perdure",
    )
)
def migrate(
    database: Database,
    *,
    blobs: Annotated[
        str | None,
        typer.Option(metavar="s3://BUCKET[/PREFIX]", help="Keep large results and images in this bucket from now on."),
    ] = None,
    json: Json = False,
) -> None:
    """Bring a database to the schema of this version, as its owner.

    It may be run at any time. The user of the gateways' URL needs the role perdure_serving, which this makes: GRANT
    perdure_serving TO that user.

    --blobs is written down in the database, where gateways and workers find it. They take the keys of the bucket from
    their environment, as this does: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and AWS_ENDPOINT_URL_S3 if it isn't
    Amazon's. It is given before the first blob is kept, as no blobs are moved.
    """

    from perdure.wiring.stores import migrated, with_bucket

    done = in_loop(migrated, database)
    place = None if blobs is None else in_loop(with_bucket, database, blobs)
    if json:
        out_json({"migrations": done, **({} if place is None else {"blobs": place})})
    else:
        out(f"{plural(done, 'migration')} applied" if done else "nothing to do: the schema is current")
        if done:
            note("the user that gateways and workers log in with needs: GRANT perdure_serving TO that user")
        if place is not None:
            out(f"blobs are kept in {place}")
    raise typer.Exit(EXIT_OK)


@app.command("delete-tenant", epilog=examples("perdure store delete-tenant postgresql://gateway@db/perdure alice"))
def delete_tenant(
    database: Database,
    tenant: Annotated[str, typer.Argument(metavar="TENANT", help="The tenant's name.")],
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
    json: Json = False,
) -> None:
    """Delete all that a tenant keeps, for good.

    If it is broken off, run it again: it goes on. `perdure store vacuum` then takes what was deleted out of the files
    of the database. Backups and copies of it keep what they hold.
    """

    from perdure.wiring.stores import is_shared, store_at

    counts, progress = Counter[str](), Progress()

    def on_deleted(what: str, count: int) -> None:
        counts["objects" if what == "objects" else "rows"] += count
        progress.tell(f"{counts['rows']:,} rows and {counts['objects']:,} objects deleted ({what})")

    async def run(*, deletes: bool) -> None:
        store = store_at(database)
        try:
            if tenant not in await store.tenants():
                raise JournalError(f"{store.name}: nothing is kept of a tenant {tenant!r}")
            if deletes:
                await store.delete_tenant(tenant, on_deleted=on_deleted)
        finally:
            await store.close()

    if not yes:
        in_loop(partial(run, deletes=False))
        _ask(tenant)  # outside of the event loop, which would keep the first Ctrl-C from ending it
    try:
        in_loop(partial(run, deletes=True))
    finally:
        progress.clear()
    if json:
        out_json({"deleted": tenant, "rows": counts["rows"], "objects": counts["objects"]})
    else:
        out(f"deleted all that {clean(tenant)} kept")
    if not json and is_shared(database):
        out(f"{counts['rows']:,} rows, {counts['objects']:,} objects in a bucket")
        out("the files of the database still hold its bytes until `perdure store vacuum` is run as the owner")
        out("backups, archived logs and copies of the database keep what they hold until you delete them")
    raise typer.Exit(EXIT_OK)


@app.command(epilog=examples("perdure store vacuum postgresql://owner@db/perdure"))
def vacuum(database: Database, *, json: Json = False) -> None:
    """Take what was deleted out of the database's files.

    The database's owner may run it: all tables, indexes and statistics are written anew, one after another. A table
    can't be used while that is done, and needs room on the disk for a second one. Run by a superuser, it has the
    write-ahead log written over as well.
    """

    from perdure.wiring.stores import vacuumed

    progress = Progress()
    try:
        done = in_loop(vacuumed, database, progress)
    finally:
        progress.clear()
    if json:
        out_json({"tables": done.tables, "log": not done.why_log_stays, "why": done.why_log_stays})
    else:
        out(f"{done.tables} tables were written anew: none of their files holds anything that was deleted")
        if done.why_log_stays:
            out(f"the write-ahead log may still hold it: {done.why_log_stays}")
        else:
            out("nor does the write-ahead log, which was written over")
    raise typer.Exit(EXIT_OK)


@app.command(
    epilog=examples(
        "perdure store copy ~/.perdure postgresql://gateway@db/perdure --dry-run",
        "perdure store copy ~/.perdure postgresql://gateway@db/perdure",
        "perdure store copy postgresql://gateway@db/perdure ~/moved --tenant alice",
    )
)
def copy(
    source: Annotated[str, typer.Argument(metavar="FROM", help="A home folder, or postgresql://user@host/name.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="A home folder, or a database that was migrated.")],
    *,
    tenant: Annotated[str | None, typer.Option(metavar="NAME", help="Only what this tenant keeps.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what there is to copy.")] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare sessions again that were copied before, byte for byte.")
    ] = False,
    json: Json = False,
) -> None:
    """Copy everything from one store to another.

    Both may be files or a database. FROM is only read, and may be in use: what is written meanwhile is taken by the
    next run, which copies only what is missing. Each session appears in TO once all of it is there and was read back.
    A session of TO that isn't the beginning of that of FROM stays as it is. The exit code is 1 when something couldn't
    be copied.
    """

    from perdure.wiring.copies import CopySums, StoreCopy
    from perdure.wiring.stores import both_stores

    progress, sums, started = Progress(size), CopySums(), time.monotonic()

    def tell(one: CopiedSession) -> None:
        if json and one.outcome != "unchanged":
            progress.clear()
            out_json(asdict(one))
        elif one.said and not json:
            progress.clear()
            whose = f"{one.tenant}: " if one.tenant else ""
            note(f"{whose}{one.session}: {one.outcome}: {'; '.join(one.said)}")

    async def run() -> None:
        of, to = both_stores(source, target)
        try:
            known = await of.tenants()
            if tenant is not None and tenant not in known:
                raise JournalError(f"{of.name}: nothing is kept of a tenant {tenant!r}")
            await to.tenants()
            work = StoreCopy(of, to, sums, is_dry=dry_run, verifies=verify, on_session=tell, on_progress=progress)
            await work.run(("", *known) if tenant is None else (tenant,))
        finally:
            progress.clear()
            await of.close()
            await to.close()

    try:
        in_loop(run)
    except KeyboardInterrupt:
        note("stopped: every session that was copied is whole, and the same command goes on with the rest")
        raise
    finally:
        if sums.outcomes or sums.beside or sums.wrong:
            _show_copied(sums, time.monotonic() - started, is_dry=dry_run, is_json=json)
    raise typer.Exit(EXIT_OK if sums.is_whole else EXIT_FAILED)


def _show_copied(sums: CopySums, seconds: float, *, is_dry: bool, is_json: bool) -> None:
    """What a run did, or would do."""
    outcomes, beside, stays = dict(sums.outcomes), dict(+sums.beside), dict(+sums.stays)
    if is_json:
        of_them = {"sessions": outcomes, "damaged": sums.damaged, "lines": sums.lines, "bytes": sums.bytes}
        more = {"blobs": sums.blobs, "beside": beside, "only_in_files": stays, "wrong": sums.wrong, "notes": sums.notes}
        out_json({"total": {**of_them, **more, "verified": not is_dry, "seconds": round(seconds, 1)}})
        return
    for said in (*sums.wrong, *sums.notes):
        note(said)
    words = {"copied": "to copy", "continued": "to continue"} if is_dry else {}
    of_sessions = ", ".join(f"{number:,} {words.get(what, what)}" for what, number in outcomes.items()) or "none"
    damaged = f" ({sums.damaged:,} damaged)" if sums.damaged else ""
    out(f"sessions: {of_sessions}{damaged}")
    done = "to copy" if is_dry else f"copied and verified in {seconds:.0f} s"
    out(f"{plural(sums.lines, 'line')}, {size(sums.bytes)}, {plural(sums.blobs, 'blob')} {done}")
    for said, counts in (("beside them", beside), ("only in files, and not copied", stays)):
        if counts:
            out(f"{said}: {', '.join(f'{name} ({number:,})' for name, number in counts.items())}")


@app.command(
    epilog=examples(
        "perdure store work postgresql://gateway@db/perdure",
        "perdure store work postgresql://gateway@db/perdure --revive --tenant alice",
    )
)
def work(
    database: Database,
    *,
    revive: Annotated[bool, typer.Option("--revive", help="Have what was given up tried again.")] = False,
    tenant: Annotated[str | None, typer.Option(metavar="NAME", help="Only what was given up of this tenant.")] = None,
    json: Json = False,
) -> None:
    """Show what workers have to do, and what was given up.

    A piece of work that failed eight times is given up. It is tried once more when its session goes on, or in full
    when it is revived.
    """

    from perdure.wiring.stores import store_at

    async def looked() -> tuple[Backlog, list[tuple[Claim, str]]]:
        store = store_at(database)
        try:
            found = [(claim, why) for claim, why in await store.work.dead() if tenant in (None, claim.tenant)]
            for claim, _ in found if revive else ():
                await store.work.revive(claim.tenant, claim.session, claim.kind)
            return await store.work.backlog(), found
        finally:
            await store.close()

    backlog, dead = in_loop(looked)
    if json:
        told = [{**claim._asdict(), "why": why} for claim, why in dead]
        out_json({**backlog._asdict(), "revived" if revive else "given_up": told})
    else:
        since = f", the oldest that is due since {backlog.seconds:.0f} s" if backlog.seconds else ""
        out(f"{backlog.waiting} waiting{since}; {backlog.running} under way; {backlog.dead} given up")
        for claim, why in dead:
            whose = f" of {claim.tenant}" if claim.tenant else ""
            what = "will be tried again" if revive else f"given up after {claim.attempts} attempts"
            out(f"  {claim.kind} of session {claim.session}{whose}: {what}: {why}")
    raise typer.Exit(EXIT_OK)


def _ask(tenant: str) -> None:
    if not sys.stdin.isatty():
        raise BadSetting(f"{tenant}: a deleted tenant can't be brought back; --yes deletes without asking")
    if not typer.confirm(f"Delete all that {clean(tenant)} keeps, for good?"):
        raise typer.Exit(EXIT_OK)
