"""MCP-1: Claude Code and Codex themselves, which `make clients` installs, with `perdure mcp` as their server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bench.clients import CLIENTS, ClientHome, is_installed
from tests.mcp_clients import PROGRAM, McpPlace, found, served

from perdure.testing import FakeServer, FakeUpstream, ModelRules, ScriptedAnswer, say, tool_use
from perdure.testing.request import DecodedRequest

pytestmark = pytest.mark.e2e

CLAUDE = next(client for client in CLIENTS if client.name == "claude-code")
CODEX = next(client for client in CLIENTS if client.name == "codex, pinned")  # whose tools no script calls
NAMES = tuple(f"mcp__perdure__{tool}" for tool in ("recall", "session_search", "memory_save"))
OUTPUT = 'line 1: the "parser" failed\nline 2: ok'


class AskingModel(FakeUpstream):
    """Asks for an original, searches, saves a memory, and asks for what isn't there."""

    def __init__(self, first: Mapping[str, Any] | None) -> None:
        super().__init__(rules=ModelRules(window_tokens=200_000, max_output_tokens=128_000), strict=False)
        recall, search, save = NAMES
        self.calls = [
            *([first] if first is not None else []),
            tool_use(recall, {"id": "toolu_one"}),
            tool_use(search, {"query": "parser"}),
            tool_use(save, {"text": "Push to main."}),
            tool_use(recall, {"id": "nothing-like-it"}),
        ]
        self.asked = 0

    def reply_to(self, request: DecodedRequest) -> ScriptedAnswer:
        """The next call; a side request, such as one for a title, is told so by its few tools."""
        if len(request.tools) < 5 or self.asked == len(self.calls):
            return say("I am done.")
        self.asked += 1
        return say(self.calls[self.asked - 1])


def answered(home: ClientHome, words: str) -> list[Any]:
    """The results of the server's tools as the model got them, by the client's own log."""
    (log,) = (home.folder / "home").glob(words)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    messages = [line["message"]["content"] for line in lines if line.get("type") == "user"]
    blocks = [block for content in messages if isinstance(content, list) for block in content]
    outputs = [block["content"] for block in blocks if block["type"] == "tool_result"]
    items = [line["payload"] for line in lines if line.get("type") == "response_item"]
    outputs += [item["output"] for item in items if item["type"] == "function_call_output"]
    return ["".join(part.get("text", "") for part in one) if isinstance(one, list) else one for one in outputs]


def structured(output: str) -> dict[str, Any]:
    """The object in a result; Codex puts the time that it took in front."""
    found: dict[str, Any] = json.loads(output[output.index("{") :])
    return found


async def check(answers: list[str], client: str, place: McpPlace) -> None:
    """What the model got, and what waits now."""
    original, places, saved, missing = answers[-4:]
    assert (structured(original)["text"], structured(original)["session"]) == (OUTPUT, "one")
    assert structured(places)["places"][0]["id"] == "toolu_one"
    assert structured(saved)["outcome"] == "waits"
    assert "nothing here has the id" in missing
    (waiting,) = await place.pending()
    assert waiting["session"] == f"mcp:{client}"


@pytest.mark.skipif(not is_installed(CLAUDE), reason="not installed: make clients ARGS=claude installs it")
@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_claude_code_calls_its_tools(tmp_path: Path, transport: str) -> None:
    """MCP-1: added by its own command, with a token over HTTP; found by its search for tools, and allowed by name."""
    place = McpPlace(tmp_path)

    async def body() -> None:
        await place.session("one", *found(OUTPUT, "one"))
        model = AskingModel(tool_use("ToolSearch", {"query": f"select:{','.join(NAMES)}", "max_results": 5}))
        async with FakeServer(model) as fake, AsyncExitStack() as held:
            home = ClientHome(CLAUDE, tmp_path, fake.url)
            (tmp_path / "home").mkdir(exist_ok=True)
            if transport == "stdio":
                how = ["perdure", "-e", f"PERDURE_HOME={place.home}", "--", *PROGRAM]
            else:
                url = held.enter_context(served(place, token="a-token"))
                how = ["--transport", "http", "perdure", url, "--header", "Authorization: Bearer a-token"]
            add = ["{bin}/claude", "mcp", "add", *how]
            assert "Added" in await home.run(add)
            assert "Connected" in await home.run(["{bin}/claude", "mcp", "list"])
            told = await home.run(["{bin}/claude", "-p", "Find it.", "--allowedTools", "mcp__perdure"])
        assert "I am done." in told and model.asked == 5, told
        await check(answered(home, ".claude/projects/*/*.jsonl"), "claude-code", place)

    asyncio.run(body())


@pytest.mark.skipif(not is_installed(CODEX), reason="not installed: make clients ARGS=codex installs it")
def test_codex_calls_its_tools(tmp_path: Path) -> None:
    """MCP-1: added by its own command; its tools stand in a namespace of their own."""
    place = McpPlace(tmp_path)

    async def body() -> None:
        await place.session("one", *found(OUTPUT, "one"))
        wait = tool_use("exec_command", {"cmd": "sleep 3"})  # it doesn't wait for servers before it asks the model
        model = AskingModel(wait)
        async with FakeServer(model) as fake:
            home = ClientHome(
                replace(CODEX, environ={**CODEX.environ, "CODEX_HOME": "{home}/.codex"}), tmp_path, fake.url
            )
            config = tmp_path / "home" / ".codex" / "config.toml"
            config.parent.mkdir(parents=True)
            config.write_text(CODEX.files[".codex/config.toml"].replace("{url}", fake.url))
            add = ["{bin}/codex", "mcp", "add", "perdure", "--env", f"PERDURE_HOME={place.home}", "--", *PROGRAM]
            assert "Added" in await home.run(add)
            told = await home.run(["{bin}/codex", "exec", "--skip-git-repo-check", "Find it."])
        assert "I am done." in told and model.asked == 5, told
        await check(answered(home, ".codex/sessions/**/*.jsonl"), "codex-mcp-client", place)

    asyncio.run(body())
