"""`perdure worker`: what the gateways of a store want done beside their requests."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Annotated

import typer

from perdure.adapters.machine.system import NO_SIGNALS, needs_unix
from perdure.cli.arguments import Json, Sets, configured, examples, family
from perdure.cli.output import EXIT_OK, note, out, out_json
from perdure.errors import BadSetting

app = family()
_MOST_PORT = 65_535


@app.command(
    epilog=examples(
        "perdure worker --store postgresql://perdure@db/perdure",
        "perdure worker --store postgresql://perdure@db/perdure --once",
    )
)
def worker(
    store: Annotated[
        str | None, typer.Option(metavar="URL", help="The PostgreSQL database that the gateways share.")
    ] = None,
    metrics: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Let Prometheus ask there for this worker's metrics.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="End when nothing is due any more.")] = False,
    trust: Annotated[
        bool, typer.Option("--trust", help="Trust this folder for now: use the settings in its .perdure.")
    ] = False,
    sets: Sets = None,
    json: Json = False,
) -> None:
    """Keep notes and summaries for gateways of a store.

    Gateways leave it to workers with `background = "workers"` under [gateway]. Run any number of them, with the
    gateways' own config file: it names the models. What one that is lost was at is done by another.
    """
    import anyio

    needs_unix("perdure worker", NO_SIGNALS)
    try:
        from perdure.gateway.config import gateway_config
        from perdure.gateway.upkeep import work
        from perdure.wiring.stores import is_shared, store_at
    except ImportError as e:
        from perdure.adapters.extras import install

        raise BadSetting(f"a worker needs another package ({e.name}): {install('gateway')}") from e
    config = configured(sets or (), trusts=trust)
    given = gateway_config(config.gateway)
    place = store or given.store
    if place is None or not is_shared(place):
        raise BadSetting("a worker needs the database of its gateways: give --store postgresql://user@host/database")

    host, colon, port = (metrics or "").rpartition(":")
    if metrics is not None and not (host and colon and port.isdigit() and int(port) <= _MOST_PORT):
        raise BadSetting(f"--metrics {metrics}: write an address and a port, such as 0.0.0.0:9464")

    async def run() -> dict[str, int]:
        kept = store_at(place, lease_seconds=given.lease_seconds)
        at = None if metrics is None else (host.strip("[]"), int(port))
        return asdict(await work(config, kept, os.environ, until_idle=once, on_note=note, metrics=at))

    counts = anyio.run(run, backend_options={"use_uvloop": True})
    if json:
        out_json(counts)
    else:
        out(f"{counts['done']} done, {counts['failed']} failed, {counts['released']} given back, {counts['lost']} lost")
    raise typer.Exit(EXIT_OK)
