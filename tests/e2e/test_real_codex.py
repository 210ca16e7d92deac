"""Codex itself, which `make clients` installs, over HTTP and over a WebSocket, with reasoning (GW-6)."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from bench.clients import CLIENTS, ClientHome, RealClient, Worker, is_installed
from tests.gateways import config_of, in_loop, serving

from perdure.events import PrefixMoved
from perdure.settings import Settings
from perdure.testing import FakeServer

WINDOW = 40_000
SNIPPET, DEFAULTS, PINNED = (client for client in CLIENTS if client.package == "@openai/codex")

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not is_installed(SNIPPET), reason="not installed: make clients ARGS=codex installs it"),
]


@pytest.mark.parametrize(
    ("client", "sockets", "calls"),
    [(SNIPPET, None, 60), (DEFAULTS, True, 60), (DEFAULTS, False, 4), (PINNED, None, 60)],
    ids=["by the snippet", "with its own defaults", "where no WebSocket is served", "with an older model"],
)
@in_loop
async def test_codex_reads_four_times_what_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, client: RealClient, sockets: bool | None, calls: int
) -> None:
    """GW-6, GW-2: no error at the client, no violation upstream, every move of the prefix announced, one session."""
    if sockets is False:
        monkeypatch.setattr("perdure.gateway.serving.WEBSOCKETS", "none")
    worker = Worker(calls, WINDOW, thinks=True)
    async with FakeServer(worker) as server:
        folder, settings = tmp_path / "perdure", Settings(window_tokens=WINDOW, durability="process")
        async with serving(folder, server, config=config_of(folder, server.url, settings=settings)) as at:
            home = ClientHome(client, tmp_path, at.url)
            home.begin(calls)
            needed = sum(file.stat().st_size for file in home.project.iterdir()) // 4
            assert needed > 4 * WINDOW or calls < 60
            said = await home.run((*client.argv, "--json"))
            assert len(at.held) == 1
            assert at.metric("perdure_sockets_total") >= 1 if sockets else at.metric("perdure_sockets_total") == 0

    events = [msgspec.json.decode(line) for line in said.splitlines() if line.startswith("{")]
    done = [event["item"] for event in events if event["type"] == "item.completed"]
    commands = [item for item in done if item["type"] == "command_execution"]
    assert [item["exit_code"] for item in commands] == [0] * calls
    assert done[-1]["text"] == "I am done: all parts are read."
    assert events[-1]["type"] == "turn.completed", said[-1_000:]
    assert not [event for event in events if event["type"] in ("error", "turn.failed")]
    stats = worker.statistics
    assert stats.answered == calls + 1 and not stats.violations and not stats.refused
    assert len(stats.prefix_moves) <= sum(isinstance(event, PrefixMoved) for event in at.sink.events)
