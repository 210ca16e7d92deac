"""Claude Code itself, which `make clients` installs, in what it does beyond one long run (GW-2, GW-6, GW-8)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from bench.clients import CLIENTS, ClientAtWork, ClientHome, Worker, at_work, gateway, is_installed
from tests.agents import until
from tests.gateways import in_loop

from perdure.testing import ScriptedAnswer, say, tool_use
from perdure.testing.request import DecodedRequest

WINDOW = 40_000
CLIENT = next(client for client in CLIENTS if client.name == "claude-code")

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not is_installed(CLIENT), reason="not installed: make clients ARGS=claude installs it"),
]


@asynccontextmanager
async def claude_code(folder: Path, worker: Worker, *, files: int) -> AsyncIterator[ClientAtWork]:
    """Claude Code in a project; at the end, nothing that it or the gateway asked for was wrong."""
    async with at_work(CLIENT, worker, WINDOW, folder, files=files) as at:
        yield at
    assert not worker.statistics.violations and not worker.statistics.refused


async def asked(home: ClientHome, prompt: str, *more: str) -> dict[str, Any]:
    """What Claude Code says of a prompt, which must have come to its end."""
    allowed = ("--output-format", "json", "--allowedTools", "Bash,Agent")
    output = await home.run(["{bin}/claude", "-p", prompt, *allowed, *more])
    told: dict[str, Any] = json.loads(output[output.index("{") :])
    assert told["is_error"] is False, output[-2_000:]
    return told


@in_loop
async def test_a_conversation_is_continued_and_compacted_by_its_client(tmp_path: Path) -> None:
    """GW-2, GW-8: --continue finds the session; after the client's own /compact it goes on, too."""
    worker = Worker(10, WINDOW)
    async with claude_code(tmp_path, worker, files=40) as at:
        await asked(at.home, "Read the first parts.")
        assert len(at.sessions()) == 1
        worker.calls = 20
        await asked(at.home, "Read on.", "--continue")
        assert len(at.sessions()) == 1
        await asked(at.home, "/compact", "--continue")
        worker.calls = 30
        await asked(at.home, "Read on again.", "--continue")
    assert worker.made.most_common(1)[0][1] >= 30


class Delegating(Worker):
    """Gives the first part of its work to an agent of the client."""

    def reply_to(self, request: DecodedRequest) -> ScriptedAnswer:
        names = [tool.get("name") for tool in request.tools]
        if "Agent" in names and not self.delegated:
            self.delegated = True
            task = {"description": "read parts", "prompt": "Read all parts.", "subagent_type": "general-purpose"}
            return say("An agent does this.", tool_use("Agent", task))
        return super().reply_to(request)

    delegated = False


@in_loop
async def test_agents_of_the_client_have_sessions_of_their_own(tmp_path: Path) -> None:
    """GW-2: a sub-agent's history is not its caller's."""
    worker = Delegating(8, WINDOW)
    async with claude_code(tmp_path, worker, files=8) as at:
        await asked(at.home, "Have an agent read all parts.")
        assert worker.delegated and len(worker.made) == 2 and len(at.sessions()) == 2


@in_loop
async def test_a_gateway_killed_in_mid_stream_is_found_again(tmp_path: Path) -> None:
    """GW-2, REL-1: kill -9 while an answer streams; the client asks again, and its session goes on."""
    worker = Worker(12, WINDOW)
    async with claude_code(tmp_path, worker, files=12) as at:
        at.upstream.delay_seconds = 0.05  # so that an answer takes a while
        task = asyncio.create_task(asked(at.home, "Read all parts."))
        await until(lambda: worker.statistics.answered >= 5)
        await asyncio.sleep(0.1)
        at.gateway.process.kill()
        at.gateway.process.wait()
        port = int(at.gateway.url.rpartition(":")[2])
        with gateway(at.upstream.url, WINDOW, at.folder, port):
            told = await task
        assert "done" in told["result"] and len(at.sessions()) == 1
