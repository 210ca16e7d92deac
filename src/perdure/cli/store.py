"""`perdure store`: the database that gateways share (SCL-1, SCL-6)."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from perdure.cli.arguments import Json, examples, family
from perdure.cli.output import EXIT_OK, out, out_json
from perdure.errors import BadSetting, JournalError

app = family(
    "Set up the PostgreSQL database that gateways share.",
    "perdure store migrate postgresql://owner@db/perdure",
    "perdure store migrate postgresql://owner@db/perdure --blobs s3://bucket/perdure",
    "perdure store delete-tenant postgresql://gateway@db/perdure alice",
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
    import anyio

    from perdure.wiring.stores import migrated, with_bucket

    done = anyio.run(migrated, database)
    place = None if blobs is None else anyio.run(with_bucket, database, blobs)
    if json:
        out_json({"migrations": done, **({} if place is None else {"blobs": place})})
    else:
        out(f"{done} migration{'' if done == 1 else 's'} applied" if done else "nothing to do: the schema is current")
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

    What was deleted leaves the files of the database with its next VACUUM; backups and logs of the database keep what
    they hold.
    """
    import anyio

    from perdure.wiring.stores import store_at

    async def delete() -> None:
        store = store_at(database)
        try:
            if tenant not in await store.tenants():
                raise JournalError(f"{store.name}: nothing is kept of a tenant {tenant!r}")
            if not yes:
                _ask(tenant)
            await store.delete_tenant(tenant)
        finally:
            await store.close()

    anyio.run(delete)
    if json:
        out_json({"deleted": tenant})
    else:
        out(f"deleted all that {tenant} kept")
    raise typer.Exit(EXIT_OK)


def _ask(tenant: str) -> None:
    if not sys.stdin.isatty():
        raise BadSetting(f"{tenant}: a deleted tenant can't be brought back; --yes deletes without asking")
    if not typer.confirm(f"Delete all that {tenant} keeps, for good?"):
        raise typer.Exit(EXIT_OK)
