"""`holdfast serve`: the gateway until it is told to stop."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from holdfast.cli.door import EXIT_OK, configured, note, out, out_json
from holdfast.errors import BadSetting

if TYPE_CHECKING:
    from holdfast.adapters.config import Config
    from holdfast.adapters.sinks import JsonlSink


def serve_command(
    flags: Iterable[str], *, host: str | None, port: int | None, trusts: bool, events: str | None, is_json: bool
) -> int:
    """Serve until SIGINT or SIGTERM; both are how it is meant to end."""
    try:
        from holdfast.gateway.serving import serve
    except ImportError as e:
        raise BadSetting(f"the gateway needs the extra: pip install 'holdfast[gateway]' ({e.name} is missing)") from e
    flags = tuple(flags)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="holdfast: %(message)s")
    sink = _sink(events)

    def read() -> Config:
        config = configured(flags, trusts=trusts)
        told = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
        return replace(config, gateway={**config.gateway, **told})

    async def run() -> None:
        await serve(read, os.environ, on_ready=lambda url: _ready(url, is_json=is_json), on_note=note, sink=sink)

    try:
        anyio.run(run, backend_options={"use_uvloop": sys.platform != "win32"})
    except KeyboardInterrupt:
        note("stopped; nothing that was recorded is lost")
    return EXIT_OK


def _sink(events: str | None) -> JsonlSink | None:
    if events is None:
        return None
    from holdfast.adapters.machine import SystemClock
    from holdfast.adapters.sinks import JsonlSink

    sink = JsonlSink(Path(events), SystemClock().now)
    if sink.problem:
        raise BadSetting(sink.problem)
    return sink


def _ready(url: str, *, is_json: bool) -> None:
    if is_json:
        out_json({"event": "ready", "url": url})
    else:
        out(f"Holdfast listens on {url}")
        out(f"  Anthropic SDKs and Claude Code: ANTHROPIC_BASE_URL={url}")
        out(f"  OpenAI SDKs and compatible:     OPENAI_BASE_URL={url}/v1")
    sys.stdout.flush()
