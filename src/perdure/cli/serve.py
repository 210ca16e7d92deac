"""`perdure serve`: the gateway, until it is told to stop."""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.adapters.machine.system import NO_SIGNALS, needs_unix
from perdure.cli.arguments import Json, Sets, configured, examples, family
from perdure.cli.output import EXIT_OK, note, out, out_json
from perdure.errors import BadSetting

if TYPE_CHECKING:
    from perdure.adapters.config import Config
    from perdure.gateway.config import GatewayConfig

app = family()
_CLIENTS = {
    "anthropic": ("ANTHROPIC_BASE_URL", "Claude Code and Anthropic SDKs"),
    "openai": ("OPENAI_BASE_URL", "OpenAI SDKs and compatible clients"),
    "bedrock": ("ANTHROPIC_BEDROCK_BASE_URL", "Claude Code and Anthropic SDKs with Amazon Bedrock"),
    "vertex": ("ANTHROPIC_VERTEX_BASE_URL", "Claude Code and Anthropic SDKs with Vertex AI"),
}

_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # and what this machine's clients call it then
_VERSIONED = ("openai", "vertex")  # whose clients have the version in their base URL

_CODEX = """\
  model_provider = "perdure"
  [model_providers.perdure]
  name = "perdure"
  base_url = "{base_url}"
  wire_api = "responses"
  env_key = "OPENAI_API_KEY\""""


@app.command(
    epilog=examples(
        "perdure serve",
        "perdure serve --port 0 --json",
        "perdure serve --events events.jsonl",
    )
)
def serve(
    host: Annotated[str | None, typer.Option(metavar="HOST", help="Listen on this address.")] = None,
    port: Annotated[
        int | None, typer.Option(metavar="PORT", min=0, max=65_535, help="Listen on this port; 0 takes a free one.")
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Keep sessions in this PostgreSQL database, which gateways may share."),
    ] = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="Trust this folder for now: use the settings in its .perdure.")
    ] = False,
    events: Annotated[str | None, typer.Option(metavar="FILE", help="Append every event to FILE as JSON.")] = None,
    access_log: Annotated[
        str | None, typer.Option(metavar="FILE", help="Append a line of JSON for each request to FILE; - prints them.")
    ] = None,
    sets: Sets = None,
    json: Json = False,
) -> None:
    """Run the gateway: compaction for any client.

    Point a client's base URL at it. Upstreams, tenants and limits are set under [gateway] in your config file, which
    is read again on SIGHUP.
    """
    import anyio

    needs_unix("perdure serve", NO_SIGNALS)
    try:
        from perdure.gateway.serving import serve as run_gateway
    except ImportError as e:
        from perdure.adapters.extras import install

        raise BadSetting(f"the gateway needs another package ({e.name}): {install('gateway')}") from e
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="perdure: %(message)s")

    def read() -> Config:
        config = configured(sets or (), trusts=trust)
        given = {"host": host, "port": port, "store": store, "access_log": access_log}
        settings = config.settings
        if events is not None:
            settings = replace(settings, events=(*settings.events, f"jsonl:{events}"))
        table = {**config.gateway, **{name: value for name, value in given.items() if value is not None}}
        return replace(config, settings=settings, gateway=table)

    on_ready = partial(_say_ready, is_json=json)
    run = partial(run_gateway, read, os.environ, on_ready=on_ready, on_note=note)
    try:
        anyio.run(run, backend_options={"use_uvloop": True})
    except KeyboardInterrupt:
        note("stopped")
    raise typer.Exit(EXIT_OK)


def _has_websockets() -> bool:
    from perdure.gateway.serving import WEBSOCKETS

    return WEBSOCKETS != "none"


def _say_ready(url: str, gateway: GatewayConfig, *, is_json: bool) -> None:
    """Where it listens, and what clients can use there: only routes that lead somewhere."""
    if is_everywhere := gateway.host in _EVERYWHERE:
        url = f"http://{_EVERYWHERE[gateway.host]}:{url.rpartition(':')[2]}"  # a wildcard is no address to ask for
    routes = {"default": gateway.default_route, **gateway.routes}
    found = [
        {"route": name, "protocol": protocol, "base_url": f"{base}{ending}", "upstream": gateway.upstreams[target].url}
        for name, route in routes.items()
        for base in [url if name == "default" else f"{url}/{name}"]
        for protocol in _CLIENTS
        for target, ending in [(getattr(route, protocol), "/v1" if protocol in _VERSIONED else "")]
        if target is not None
    ]
    if is_json:
        out_json({"event": "ready", "url": url, "routes": found})
    else:
        out(f"Perdure listens on {url}{', and at all other addresses of this machine' if is_everywhere else ''}")
        for one in found:
            variable, who = _CLIENTS[one["protocol"]]
            out(f"  {variable}={one['base_url']}  for {who}, to {one['upstream']}")
        openai = next((one["base_url"] for one in found if one["protocol"] == "openai"), None)
        if openai is not None and not _has_websockets():
            out(
                "No WebSocket is served, since the package websockets is missing. Codex asks over HTTP with this in its"
            )
            out(f"config.toml:\n{_CODEX.format(base_url=openai)}")
        if not found:
            out("  no route leads to an upstream yet: name one under [gateway.upstreams] in the config file")
    sys.stdout.flush()
    if is_everywhere and not gateway.allowed_hosts:
        note("other machines are refused until gateway.allowed_hosts has the names by which they reach this one")
