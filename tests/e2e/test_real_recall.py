"""Claude Code and Codex, which `make clients` installs, with a model that uses the recall tool they know nothing of."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
from bench.clients import CLIENTS, RealClient, Worker, at_work, is_installed
from tests.gateways import in_loop

from perdure.testing import FakeServer, ScriptedAnswer, say, tool_use
from perdure.testing.request import DecodedRequest

FACT = "The name of the heron is Esmeralda-4711."
WINDOW, CALLS = 24_000, 400
LARGE_FRONTS = {"codex, snippet": 30_000, "codex, defaults": 32_000}  # tools and instructions alone are 16,000 tokens
CLIENTS_THAT_CODE = [client for client in CLIENTS if client.name.startswith(("claude", "codex"))]


class Obedient(Worker):
    """Works, then asks the recall tool for the fact of the second file, and quotes what it is given."""

    server: FakeServer
    has_asked = False
    last_seen = 0.0  # when the fact was in what the model saw, before it asked for it

    def reply_to(self, request: DecodedRequest) -> ScriptedAnswer:
        said, body = super().reply_to(request), self.server.received[-1].body
        if not self.has_asked and b"Esmeralda" in body:
            self.last_seen = time.time()
        if "I am done" not in str(said.content) or "recall" not in [tool.get("name") for tool in request.tools]:
            return said
        if not self.has_asked:
            self.has_asked = True
            return say("Let me look.", tool_use("recall", {"query": "name of the heron"}))
        found = re.search(rb"Esmeralda-\d+", body)
        return say(f"I am done. The heron is {found[0].decode() if found else 'unknown'}.")


@pytest.mark.parametrize("client", CLIENTS_THAT_CODE, ids=[client.name for client in CLIENTS_THAT_CODE])
@pytest.mark.e2e
@pytest.mark.timeout(600)
@in_loop
async def test_a_fact_from_ten_compactions_ago_is_quoted(client: RealClient, tmp_path: Path) -> None:
    """GW-8: the client sees the quotation, and nothing of the call that found it."""
    if not is_installed(client):
        pytest.skip("not installed: make clients installs it")
    window = LARGE_FRONTS.get(client.name, WINDOW)
    worker = Obedient(CALLS, window)
    async with at_work(client, worker, window, tmp_path, files=CALLS) as at:
        worker.server = at.upstream
        at.home.project.joinpath("part_001.txt").write_text(f"{FACT}\n")  # short: the model sees it whole
        said = await at.home.run(client.argv)
    since: list[dict[str, Any]] = [one for one in at.events("CompactionDone") if one["at"] > worker.last_seen]
    assert worker.has_asked and worker.last_seen
    assert len(since) >= 10
    assert not worker.statistics.violations and not worker.statistics.refused
    assert "The heron is Esmeralda-4711." in said, said[-2_000:]
    assert "Let me look." in said or client.name == "claude-code"  # which prints its last words alone
    assert "name of the heron" not in said.replace(FACT, "")
