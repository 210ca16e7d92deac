"""Codex itself, which `make clients` installs, over HTTP and over a WebSocket, with reasoning (GW-6)."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from bench.clients import CLIENTS, folder_of, is_installed
from tests.gateways import config_of, in_loop, serving

from perdure.events import PrefixMoved
from perdure.settings import Settings
from perdure.testing import FakeServer, FakeUpstream, ModelRules, ScriptedAnswer, say, thinking, tool_use
from perdure.testing.request import DecodedRequest

WINDOW = 40_000
MODEL = 'model = "gpt-5.4"\n'
SNIPPET = """model_provider = "perdure"

[model_providers.perdure]
name = "perdure"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "OPENAI_API_KEY"
"""
OWN_DEFAULTS = 'openai_base_url = "{url}/v1"\n'

CLIENT = next(client for client in CLIENTS if client.package == "@openai/codex")

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not is_installed(CLIENT), reason="not installed: make clients ARGS=codex installs it"),
]


class ReadingModel(FakeUpstream):
    """Has the client print one file after the other, with a thought before each."""

    def __init__(self, calls: int) -> None:
        super().__init__(rules=ModelRules(window_tokens=WINDOW, max_output_tokens=128_000))
        self.calls, self.made = calls, 0

    def reply_to(self, request: DecodedRequest) -> ScriptedAnswer:
        if not any(tool.get("name") == "exec_command" for tool in request.tools):
            return say("Reading the project")  # a side request, such as one for a title
        if self.made == self.calls:
            return say(thinking("That was the last one."), "I am done: all parts are read.")
        call = tool_use("exec_command", {"cmd": f"cat part_{self.made:03}.txt"})
        self.made += 1
        return say(thinking(f"{self.calls - self.made} parts are left."), f"Now part {self.made - 1}.", call)


async def run(folder: Path, config: str, prompt: str) -> list[dict[str, Any]]:
    """The events of `codex exec` in a project of its own."""
    home = folder / "codex"
    home.mkdir()
    (home / "config.toml").write_text(MODEL + config)
    own = {"CODEX_HOME": str(home), "HOME": str(folder), "OPENAI_API_KEY": "sk-none", "CODEX_API_KEY": "sk-none"}
    free = ("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")
    process = await asyncio.create_subprocess_exec(
        *(str(folder_of(CLIENT) / "node_modules/.bin/codex"), "exec", "--json", *free, prompt),
        cwd=folder / "project",
        env={**os.environ, **own},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    told, wrong = await process.communicate()
    assert process.returncode == 0, wrong.decode()[-1_000:] + told.decode()[-1_000:]
    return [msgspec.json.decode(line) for line in told.splitlines() if line.startswith(b"{")]


@pytest.mark.parametrize(
    ("config", "sockets", "calls"),
    [(SNIPPET, None, 60), (OWN_DEFAULTS, True, 60), (OWN_DEFAULTS, False, 4)],
    ids=["by the snippet", "with its own defaults", "where no WebSocket is served"],
)
@in_loop
async def test_codex_reads_four_times_what_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: str, sockets: bool | None, calls: int
) -> None:
    """GW-6, GW-2: no error at the client, no violation upstream, every move of the prefix announced, one session."""
    if sockets is False:
        monkeypatch.setattr("perdure.gateway.serving.WEBSOCKETS", "none")
    project = tmp_path / "project"
    project.mkdir()
    for n in range(calls):
        lines = (f"line {line} of part {n}: value_{line} = {n * line}\n" for line in range(340))
        (project / f"part_{n:03}.txt").write_text("".join(lines))
    needed = sum(file.stat().st_size for file in project.iterdir()) // 4
    assert needed > 4 * WINDOW or calls < 60

    upstream = ReadingModel(calls)
    async with FakeServer(upstream) as server:
        settings = Settings(window_tokens=WINDOW, durability="process")
        home = tmp_path / "home"
        async with serving(home, server, config=config_of(home, server.url, settings=settings)) as at:
            events = await run(tmp_path, config.format(url=at.url), "Read all parts, one after the other.")
            assert len(at.held) == 1
            assert at.metric("perdure_sockets_total") >= 1 if sockets else at.metric("perdure_sockets_total") == 0

    done = [event["item"] for event in events if event["type"] == "item.completed"]
    commands = [item for item in done if item["type"] == "command_execution"]
    assert [item["exit_code"] for item in commands] == [0] * calls == [0] * upstream.made
    assert done[-1]["text"] == "I am done: all parts are read."
    assert events[-1]["type"] == "turn.completed"
    assert not [event for event in events if event["type"] in ("error", "turn.failed")]
    stats = upstream.statistics
    assert not stats.violations and not stats.refused
    assert len(stats.prefix_moves) <= sum(isinstance(event, PrefixMoved) for event in at.sink.events)
