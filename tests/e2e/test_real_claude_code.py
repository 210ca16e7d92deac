"""Claude Code itself, which `make clients` installs, in what it does beyond one long run (GW-2, GW-6, GW-8)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from bench.clients import CLIENTS, ClientHome, Worker, gateway, is_installed, sessions
from tests.agents import until

from perdure.testing import FakeServer, ScriptedAnswer, say, tool_use
from perdure.testing.request import DecodedRequest

WINDOW = 40_000
CLIENT = next(client for client in CLIENTS if client.name == "claude-code")

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not is_installed(CLIENT), reason="not installed: make clients ARGS=claude installs it"),
]


def argv(prompt: str, *more: str) -> list[str]:
    return ["{bin}/claude", "-p", prompt, "--output-format", "json", "--allowedTools", "Bash,Agent", *more]


async def asked(home: ClientHome, prompt: str, *more: str) -> dict[str, Any]:
    """What Claude Code says of a prompt, which must have come to its end."""
    output = await home.run(argv(prompt, *more))
    told: dict[str, Any] = json.loads(output[output.index("{") :])
    assert told["is_error"] is False, output[-2_000:]
    return told


def test_a_conversation_is_continued_and_compacted_by_its_client(tmp_path: Path) -> None:
    """GW-2, GW-8: --continue finds the session; after the client's own /compact everything before is still findable."""

    async def body() -> None:
        worker = Worker(10, WINDOW, None)
        async with FakeServer(worker) as fake:
            with gateway(fake.url, WINDOW, tmp_path / "perdure") as served:
                home = ClientHome(CLIENT, tmp_path, served.url)
                home.begin(40)
                await asked(home, "Read the first parts.")
                assert len(sessions(tmp_path / "perdure")) == 1
                worker.calls = 20
                await asked(home, "Read on.", "--continue")
                assert len(sessions(tmp_path / "perdure")) == 1
                await asked(home, "/compact", "--continue")
                worker.calls = 30
                await asked(home, "Read on again.", "--continue")
        assert worker.made.most_common(1)[0][1] >= 30
        assert not worker.statistics.violations and not worker.statistics.refused

    asyncio.run(body())


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


def test_agents_of_the_client_have_sessions_of_their_own(tmp_path: Path) -> None:
    """GW-2: a sub-agent's history is not its caller's."""

    async def body() -> None:
        worker = Delegating(8, WINDOW, None)
        async with FakeServer(worker) as fake:
            with gateway(fake.url, WINDOW, tmp_path / "perdure") as served:
                home = ClientHome(CLIENT, tmp_path, served.url)
                home.begin(8)
                await asked(home, "Have an agent read all parts.")
        assert worker.delegated and len(worker.made) == 2 and len(sessions(tmp_path / "perdure")) == 2
        assert not worker.statistics.violations and not worker.statistics.refused

    asyncio.run(body())


def test_a_gateway_killed_in_mid_stream_is_found_again(tmp_path: Path) -> None:
    """GW-2, REL-1: kill -9 while an answer streams; the client asks again, and its session goes on."""

    async def body() -> None:
        worker = Worker(12, WINDOW, None)
        async with FakeServer(worker) as fake:
            fake.delay_seconds = 0.05  # so that an answer takes a while
            with gateway(fake.url, WINDOW, tmp_path / "perdure") as first:
                home = ClientHome(CLIENT, tmp_path, first.url)
                home.begin(12)
                task = asyncio.create_task(asked(home, "Read all parts."))
                await until(lambda: worker.statistics.answered >= 5)
                await asyncio.sleep(0.1)
                first.process.kill()
                first.process.wait()
            port = int(first.url.rpartition(":")[2])
            with gateway(fake.url, WINDOW, tmp_path / "perdure", port):
                told = await task
        assert "done" in told["result"] and len(sessions(tmp_path / "perdure")) == 1
        assert not worker.statistics.violations and not worker.statistics.refused

    asyncio.run(body())
