"""Claude Code and Codex, which `make clients` installs, with a model that uses the recall tool they know nothing of."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import msgspec
import pytest
from bench.clients import CLIENTS, ClientHome, RealClient, Worker, gateway, is_installed

from perdure.testing import FakeServer, ScriptedAnswer, say, tool_use
from perdure.testing.request import DecodedRequest

FACT = "The name of the heron is Esmeralda-4711."
CALLS = 260
CLIENTS_THAT_CODE = [client for client in CLIENTS if client.name.startswith(("claude", "codex"))]


class Obedient(Worker):
    """Works, then asks the recall tool for the fact of the second file, and quotes what it is given."""

    server: FakeServer
    is_left = has_asked = False

    def reply_to(self, request: DecodedRequest) -> ScriptedAnswer:
        said = super().reply_to(request)
        if "I am done" not in str(said.content) or "recall" not in [tool.get("name") for tool in request.tools]:
            return said
        body = self.server.received[-1].body
        if not self.has_asked:
            self.has_asked, self.is_left = True, b"Esmeralda" not in body
            return say("Let me look.", tool_use("recall", {"query": "name of the heron"}))
        found = re.search(rb"Esmeralda-\d+", body)
        return say(f"I am done. The heron is {found[0].decode() if found else 'unknown'}.")


@pytest.mark.e2e
@pytest.mark.parametrize("client", CLIENTS_THAT_CODE, ids=[client.name for client in CLIENTS_THAT_CODE])
def test_a_fact_from_ten_compactions_ago_is_quoted(client: RealClient, tmp_path: Path) -> None:
    """GW-8: the client sees the quotation, and nothing of the call that found it."""
    if not is_installed(client):
        pytest.skip("not installed: make clients installs it")

    async def body() -> str:
        worker = Obedient(CALLS, 24_000, None)
        async with FakeServer(worker) as fake:
            worker.server = fake
            with gateway(fake.url, 24_000, tmp_path / "perdure") as served:
                home = ClientHome(client, tmp_path, served.url)
                home.begin(CALLS)
                part = home.project / "part_001.txt"
                part.write_text(part.read_text() + FACT + "\n")
                said = await home.run(client.argv)
        events = [msgspec.json.decode(line) for line in served.events.read_bytes().splitlines()]
        assert sum(event["event"] == "CompactionDone" for event in events) >= 10
        assert worker.has_asked and worker.is_left
        assert not worker.statistics.violations and not worker.statistics.refused
        return said

    said = asyncio.run(body())
    assert "The heron is Esmeralda-4711." in said, said[-2_000:]
    assert "Let me look." in said or client.name == "claude-code"  # which prints its last words alone
    assert "name of the heron" not in said.replace(FACT, "")
