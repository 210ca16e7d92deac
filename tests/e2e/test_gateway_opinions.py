"""GW-7: sessions with servers that have opinions, through the gateway and in a window far too small for them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from tests.gateways import config_of, in_loop, serving

from perdure.settings import Settings
from perdure.testing import FakeUpstream, ModelRules, say, text, tool_use
from perdure.testing.opinions import OPINIONS, AzureDeployment, OpinionatedServer

pytestmark = pytest.mark.e2e
CALLS = 40
WINDOW = 24_000
TOOL = {"type": "function", "function": {"name": "shell_command", "parameters": {"type": "object"}}}


def script() -> list[Any]:
    """Three calls, then a word, and so on."""
    steps: list[Any] = []
    for n in range(CALLS):
        is_last = n % 4 == 3
        steps.append(f"done with {n}" if is_last else say(text(f"step {n}"), tool_use("shell_command", {"n": n})))
    return steps


class Client:
    """A client of any compatible server: it says back what it was told, all of it, unless its server forbids that."""

    def __init__(self, url: str, opinion: str, *, is_stream: bool) -> None:
        self.url, self.opinion, self.is_stream = url, opinion, is_stream
        self.messages: list[dict[str, Any]] = [{"role": "system", "content": "You help."}]
        self.errors: list[str] = []
        self.modes: list[str] = []

    async def run(self) -> None:
        async with aiohttp.ClientSession() as http:
            for n in range(CALLS):
                if self.messages[-1]["role"] != "tool":
                    self.messages.append({"role": "user", "content": f"question {n} " + "with many words " * 60})
                answer = await self.asked(http)
                if answer is None:
                    return
                self.messages.append(answer)
                for call in answer.get("tool_calls") or ():
                    output = f"output of {n}\n" + f"line {n}: all is well\n" * 250
                    self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": output})

    async def asked(self, http: aiohttp.ClientSession) -> dict[str, Any] | None:
        body = {"model": "gpt", "messages": self.messages, "tools": [TOOL], "stream": self.is_stream}
        headers = {"api-key": AzureDeployment.key} if self.opinion == "azure" else {"authorization": "Bearer k"}
        async with http.post(f"{self.url}?api-version=2024-10-21", json=body, headers=headers) as response:
            self.modes.append(response.headers.get("x-perdure-mode", ""))
            got = await response.read()
            answer = (joined(got) if self.is_stream else whole(got)) if response.status == 200 else None
            if answer is None:
                self.errors.append(f"{response.status} {got[:300]!r}")
                return None
        if self.opinion == "deepseek-reasoner":
            answer.pop("reasoning_content", None)
        return {name: value for name, value in answer.items() if value is not None or name == "content"}


def whole(got: bytes) -> dict[str, Any] | None:
    choices = msgspec.json.decode(got)["choices"]
    return dict(choices[0]["message"]) if choices else None


def joined(got: bytes) -> dict[str, Any] | None:
    """The message that a stream brings."""
    message: dict[str, Any] = {}
    for line in got.splitlines():
        if not line.startswith(b"data: {"):
            continue
        for choice in msgspec.json.decode(line[6:])["choices"]:
            for name, value in choice["delta"].items():
                if name == "tool_calls":
                    for piece in value:
                        if "id" in piece:
                            message.setdefault(name, []).append({k: v for k, v in piece.items() if k != "index"})
                        else:
                            message[name][piece["index"]]["function"]["arguments"] += piece["function"]["arguments"]
                else:
                    message[name] = message.get(name, "") + value if name != "role" else value
    return message or None


def server_of(name: str, window: int) -> OpinionatedServer:
    upstream = FakeUpstream(rules=ModelRules(window_tokens=window), script=script(), strict=False)
    return OpinionatedServer(upstream, opinion=OPINIONS[name]())


@pytest.mark.quick(4)
@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", OPINIONS)
@in_loop
async def test_a_session_of_forty_calls(tmp_path: Path, name: str, is_stream: bool) -> None:
    """GW-7: what goes well with a large window when it goes direct, goes well in a small one through the gateway."""
    async with server_of(name, 1_000_000) as server:
        direct = Client(server.url + server.opinion.path, name, is_stream=is_stream)
        await direct.run()
        assert not direct.errors and not server.refused
    # A server that says nothing doesn't tell its window, either: the gateway takes it to be larger than it is.
    believed = 200_000 if name == "empty-when-full" else WINDOW
    settings = Settings(window_tokens=believed, durability="process")
    config = partial(config_of, tmp_path, settings=settings)
    async with server_of(name, WINDOW) as server, serving(tmp_path, server, config=config(server.url)) as at:
        client = Client(at.url + server.opinion.path, name, is_stream=is_stream)
        await client.run()
        assert not client.errors, client.errors
        assert [m["role"] for m in client.messages] == [m["role"] for m in direct.messages]
        assert {e.message.partition(":")[0] for e in server.refused} <= {"prompt is too long"}
        assert client.modes[0] == "untouched" and client.modes[-1] == "view" and len(at.held) == 1
        if name == "empty-when-full":
            assert at.metric("perdure_recovered_total", reason="prompt_too_long") == len(server.refused) > 0


@pytest.mark.parametrize("tool", [None, False], ids=["recall", "no recall"])
@in_loop
async def test_nobody_speaks_between_results_and_the_answer(tmp_path: Path, tool: bool | None) -> None:
    """GW-7: the view has no user's words where the client's own messages have none, also where its model is told how to
    get back what left the view, and where a compaction comes between two calls; no request is refused for it."""
    settings = Settings(window_tokens=10_000, durability="process", recall_tool=tool)
    async with (
        server_of("answer-after-tools", 1_000_000) as server,
        serving(tmp_path, server, config=config_of(tmp_path, server.url, settings=settings)) as at,
    ):
        client = Client(at.url + server.opinion.path, "answer-after-tools", is_stream=False)
        await client.run()
        assert not client.errors and not server.refused
        kinds = {type(event).__name__ for event in at.sink.events}
        assert {"CompactionDone", "ResultsCleared"} <= kinds, kinds
        said = [one for body in at.bodies for one in body["messages"] if "What was left out" in str(one)]
        assert {one["role"] for one in said} == ({"tool"} if tool is False else set())


@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", ["gemini", "deepseek-thinking"])
@in_loop
async def test_what_is_recalled_for_a_client_comes_back_as_its_server_wants(
    tmp_path: Path, name: str, is_stream: bool
) -> None:
    """GW-7, GW-8: calls of our tool, which no client says again, keep what their provider sent with them."""
    steps = [say(text("looking"), tool_use("recall", {"query": "x"})), say(tool_use("shell_command", {"n": 1}))]
    upstream = FakeUpstream(
        rules=ModelRules(window_tokens=WINDOW), script=[*steps, *steps[:1], "found", "end"], strict=False
    )
    server = OpinionatedServer(upstream, opinion=OPINIONS[name]())
    async with server, serving(tmp_path, server) as at:
        client = Client(at.url + server.opinion.path, name, is_stream=is_stream)
        client.messages.append({"role": "user", "content": "go"})
        async with aiohttp.ClientSession() as http:
            answer = await client.asked(http)
            assert answer is not None, client.errors
            client.messages.append(answer)
            (call,) = answer["tool_calls"]
            client.messages.append({"role": "tool", "tool_call_id": call["id"], "content": "output"})
            (held,) = at.held
            held.is_shaped = True  # from here on the view goes up, with the calls that the client doesn't know
            assert (last := await client.asked(http)) is not None and "found" in str(last["content"]), client.errors
        assert not server.refused and upstream.statistics.requests == 4
        own = [call for one in at.bodies[-1]["messages"] for call in one.get("tool_calls") or ()]
        assert [call["function"]["name"] for call in own] == ["recall", "shell_command", "recall"]
