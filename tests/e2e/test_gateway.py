"""The gateway behind official SDKs that know nothing of it (GW-1, GW-2, GW-3)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import anthropic
import msgspec
import openai
import pytest

from holdfast.events import CompactionDone, PrefixMoved, ResultOffloaded, ResultsCleared
from holdfast.settings import Settings
from holdfast.testing import FakeUpstream, ModelRules, say, text, thinking, tool_use
from tests.gateways import KEY, WINDOW, Running, fake, in_loop, serving

pytestmark = pytest.mark.e2e
TOOLS: list[Any] = [
    {"name": "Read", "description": "Read a file", "input_schema": {"type": "object", "properties": {"file_path": {"type": "string"}}}}
]


def claude(at: Running, **more: Any) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(api_key=KEY, base_url=at.url, **more)


def gpt(at: Running, **more: Any) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(api_key=KEY, base_url=f"{at.url}/v1", **more)


async def ask(client: anthropic.AsyncAnthropic, messages: list[Any], **more: Any) -> Any:
    async with client.messages.stream(model="fake-model", max_tokens=500, messages=messages, **more) as stream:
        return await stream.get_final_message()


@in_loop
async def test_what_needs_nothing_passes_through_byte_for_byte(tmp_path: Path) -> None:
    """GW-1: bodies go up as they came; a stream comes down as it was sent."""
    body = b'{"model":"fake-model",  "max_tokens": 99,"messages":[{"role":"user","content":"caf\\u00e9"}], "stream":true}'
    async with fake() as server, serving(tmp_path, server) as at:
        import aiohttp

        async with aiohttp.ClientSession() as http:
            headers = {"x-api-key": KEY, "anthropic-version": "2023-06-01", "content-type": "application/json"}
            async with http.post(f"{server.url}/v1/messages", data=body, headers=headers) as direct:
                expected = await direct.read()
            async with http.post(f"{at.url}/v1/messages", data=body, headers=headers) as through:
                got = await through.read()
                assert through.headers["x-holdfast-mode"] == "untouched"
        assert server.received[1].body == body
        assert got.replace(b"msg_000002", b"msg_000001") == expected


@in_loop
async def test_a_long_conversation_through_the_anthropic_sdk(tmp_path: Path) -> None:
    """GW-2, GW-3: 60 turns of tools far beyond the window; the client sees no error, the server no violation."""
    turns = 60
    script: list[Any] = []
    for n in range(turns):
        script.append(say(text(f"reading {n}"), tool_use("Read", {"file_path": f"src/file_{n}.py"}, id=f"toolu_{n}")))
        script.append(f"done with {n}")
    upstream = FakeUpstream(rules=ModelRules(window_tokens=WINDOW), binding="off", script=script)
    async with fake(upstream) as server, serving(tmp_path, server) as at:
        client, messages = claude(at, max_retries=0), []
        for n in range(turns):
            messages.append({"role": "user", "content": f"Please look at file {n}."})
            for _ in range(2):
                said = await ask(client, messages, tools=TOOLS, system="You help.")
                messages.append({"role": "assistant", "content": said.content})
                calls = [block for block in said.content if block.type == "tool_use"]
                if calls:
                    result = f"line of file {n}: value_{n} = {n * 7}\n" * 420
                    messages.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": c.id, "content": result} for c in calls]})
        compactions = [e for e in at.sink.events if isinstance(e, CompactionDone)]
        moves = [e for e in at.sink.events if isinstance(e, PrefixMoved)]
        stats = upstream.statistics
        assert compactions
        assert stats.refused == 0 and not stats.violations
        assert len(stats.prefix_moves) <= len(moves)
        assert at.metric("holdfast_passed_total", reason="journal") == 0
        assert len(at.gateway.tenants_open()) == 1
        (held,) = next(iter(at.gateway.tenants_open().values()))
        assert held.head.count == len(messages)
        assert messages[-1]["content"][0].text == f"done with {turns - 1}"
