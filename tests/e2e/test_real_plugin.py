"""The plugin in Claude Code and Codex themselves, which `make clients` installs, by their own commands (PLG-1)."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from bench.clients import CLIENTS, Worker, folder_of, is_installed
from tests.e2e.test_real_codex import CLIENT as CODEX
from tests.e2e.test_real_codex import ReadingModel

from perdure.plugin.build import SELECTOR, build_plugin
from perdure.plugin.record import PART_CHARS
from perdure.testing import FakeServer
from perdure.testing.server import ReceivedRequest

CLAUDE_CODE = next(client for client in CLIENTS if client.name == "claude-code")
MARK = "<perdure-record>"
PROMPT = "Read all parts; the limit is 4711, and never touch generated.py."

pytestmark = pytest.mark.e2e
needs_claude_code = pytest.mark.skipif(
    not is_installed(CLAUDE_CODE), reason="not installed: make clients ARGS=claude installs it"
)
needs_codex = pytest.mark.skipif(not is_installed(CODEX), reason="not installed: make clients ARGS=codex installs it")


@dataclass(frozen=True)
class PluginClient:
    """A client with a home of its own, and a project with files to read."""

    program: Path
    folder: Path

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def project(self) -> Path:
        return self.folder / "project"

    @property
    def marketplace(self) -> Path:
        return self.folder / "marketplace"

    def begin(self) -> None:
        self.home.mkdir()
        self.project.mkdir()
        for number in range(12):
            text = "".join(f"line {line} of part {number}: value_{line} = {number * line}\n" for line in range(120))
            (self.project / f"part_{number:03}.txt").write_text(text)
        build_plugin(self.marketplace)

    def environ(self, **more: str) -> dict[str, str]:
        own = {"HOME": str(self.home), "CODEX_HOME": str(self.home / ".codex"), "TERM": "dumb", "NO_COLOR": "1"}
        quiet = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "PERDURE_HOME": str(self.home / ".perdure")}
        return {**os.environ, **own, **quiet, **more}

    def command(self, *arguments: str) -> str:
        """What a command of the client prints; it must end well."""
        command = [str(self.program), *arguments]
        done = subprocess.run(
            command, cwd=self.project, env=self.environ(), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout[-1_000:] + done.stderr[-1_000:]
        return done.stdout

    def files(self) -> dict[str, bytes]:
        """All that stands in the client's home and says something of us."""
        found = {str(path.relative_to(self.home)): path.read_bytes() for path in self.home.rglob("*") if path.is_file()}
        return {name: data for name, data in found.items() if b"perdure" in data or "perdure" in name}


def texts_of(received: Sequence[ReceivedRequest]) -> list[str]:
    """What was asked of the model, in order."""
    return [one.body.decode() for one in received if one.body[:1] == b"{"]


def shown(data: Path) -> list[dict[str, Any]]:
    """The heads of the states of all sessions."""
    return [json.loads(path.read_bytes().partition(b"\n")[0]) for path in data.glob("sessions/*/state")]


class ClaudeCodeTalk:
    """One process of Claude Code that is told one thing after the other."""

    def __init__(self, client: PluginClient, url: str) -> None:
        self.client, self.url = client, url

    async def __aenter__(self) -> ClaudeCodeTalk:
        # Newer models are sent a system message without content behind a compaction, which no real API takes.
        options = ("-p", "--model", "claude-sonnet-4-6", "--allowedTools", "Bash,mcp__plugin_perdure_perdure__recall")
        streams = ("--input-format", "stream-json", "--output-format", "stream-json", "--verbose")
        self.process = await asyncio.create_subprocess_exec(
            *(str(self.client.program), *options, *streams),
            cwd=self.client.project,
            env=self.client.environ(ANTHROPIC_BASE_URL=self.url, ANTHROPIC_API_KEY="sk-not-a-key-0123456789"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            limit=10**8,
        )
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        await asyncio.wait_for(self.process.wait(), 60)

    async def say(self, text: str) -> str:
        assert self.process.stdin is not None and self.process.stdout is not None
        told = {"type": "user", "message": {"role": "user", "content": text}}
        self.process.stdin.write(json.dumps(told).encode() + b"\n")
        await self.process.stdin.drain()
        while line := await asyncio.wait_for(self.process.stdout.readline(), 120):
            event = json.loads(line)
            if event["type"] == "result":
                assert event["subtype"] == "success" and not event["is_error"], event
                return str(event["result"])
        raise AssertionError("Claude Code ended")


@needs_claude_code
def test_claude_code_gets_the_record_after_its_compaction(tmp_path: Path) -> None:
    """PLG-1: installed and removed by its own commands; the next request behind a compaction has the record."""
    client = PluginClient(folder_of(CLAUDE_CODE) / "node_modules/.bin/claude", tmp_path)
    client.begin()
    client.command("plugin", "validate", "--strict", str(client.marketplace / "perdure"))
    client.command("plugin", "marketplace", "add", str(client.marketplace))
    client.command("plugin", "install", SELECTOR)
    (listed,) = json.loads(client.command("plugin", "list", "--json"))
    assert listed["id"] == SELECTOR and listed["enabled"]

    async def body() -> tuple[list[str], Worker]:
        worker = Worker(5, 200_000, None)
        async with FakeServer(worker) as fake:
            async with ClaudeCodeTalk(client, fake.url) as talk:
                await talk.say(PROMPT)
                await talk.say("/compact")
                behind = len(fake.received)
                worker.calls = 8
                await talk.say("Read on.")
            return texts_of(fake.received)[behind:], worker

    asked, worker = asyncio.run(body())
    assert not worker.statistics.violations
    (request,) = [json.loads(one) for one in asked[-1:]]
    (given,) = [text for message in request["messages"] for text in texts_in(message["content"]) if MARK in text]
    record = given[given.index(MARK) : given.index("</perdure-record>")]
    assert PROMPT in record and "cat part_004.txt" in record and len(record) <= PART_CHARS
    data = client.home / ".claude/plugins/data/perdure-perdure"
    (head,) = shown(data)
    assert head["boundaries"] == 1 and head["is_given"] and not (data / "errors.log").exists()

    client.command("plugin", "uninstall", SELECTOR)
    client.command("plugin", "marketplace", "remove", "perdure")
    # What it writes of sessions and servers, and its copy of the plugin, which it sweeps later.
    own = (".claude/projects/", ".cache/", ".claude/mcp-needs-auth-cache.json", ".claude/plugins/cache/perdure/")
    left = {name for name in client.files() if not name.startswith(own)}
    assert not data.exists() and not left, left


def texts_in(content: Any) -> list[str]:
    """The texts of a message's content."""
    if isinstance(content, str):
        return [content]
    return [str(block["text"]) for block in content if block.get("type") == "text"]


async def run_codex(client: PluginClient, url: str, prompt: str) -> None:
    free = ("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--dangerously-bypass-hook-trust")
    process = await asyncio.create_subprocess_exec(
        *(str(client.program), "exec", "--json", *free, "-c", f'openai_base_url="{url}/v1"', prompt),
        cwd=client.project,
        env=client.environ(OPENAI_API_KEY="sk-none", CODEX_API_KEY="sk-none"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    told, _ = await asyncio.wait_for(process.communicate(), 300)
    assert process.returncode == 0, told.decode()[-2_000:]


@needs_codex
def test_codex_gets_the_record_after_its_compaction(tmp_path: Path) -> None:
    """PLG-1: the same folder in Codex, whose own compaction fires in the middle of its work."""
    client = PluginClient(folder_of(CODEX) / "node_modules/.bin/codex", tmp_path)
    client.begin()
    config = client.home / ".codex/config.toml"
    config.parent.mkdir()
    own = '# mine\nmodel = "gpt-5.4"\nmodel_auto_compact_token_limit = 12_000\n'
    config.write_text(own)
    client.command("plugin", "marketplace", "add", str(client.marketplace))
    client.command("plugin", "add", SELECTOR)
    assert "installed, enabled" in client.command("plugin", "list")

    async def body() -> ReadingModel:
        upstream = ReadingModel(8)
        async with FakeServer(upstream) as fake:
            await run_codex(client, fake.url, PROMPT)
        return upstream

    upstream = asyncio.run(body())
    assert upstream.made == 8 and not upstream.statistics.violations
    data = client.home / ".codex/plugins/data/perdure-perdure"
    (head,) = shown(data)
    assert head["client"] == "codex" and head["boundaries"] >= 1 and not (data / "errors.log").exists()
    (rollout,) = (client.home / ".codex/sessions").rglob("rollout-*.jsonl")
    entries = [json.loads(line) for line in rollout.read_bytes().splitlines()]
    first = next(n for n, entry in enumerate(entries) if entry["type"] == "compacted")
    told = [n for n, entry in enumerate(entries) if MARK in json.dumps(entry) and entry["type"] == "response_item"]
    assert told and told[0] > first
    (record,) = texts_of_item(entries[told[0]]["payload"])
    assert record.startswith(MARK) and PROMPT in record and "cat part_000.txt" in record
    assert "truncated" not in record and len(record.encode()) <= PART_CHARS

    client.command("plugin", "remove", SELECTOR)
    client.command("plugin", "marketplace", "remove", "perdure")
    assert config.read_text() == own
    left = {name for name in client.files() if not name.startswith((".codex/sessions/", ".codex/plugins/data/"))}
    assert not {name for name in left if not name.endswith((".sqlite", ".sqlite-wal", ".log"))}, left


def texts_of_item(item: dict[str, Any]) -> list[str]:
    return [str(part["text"]) for part in item["content"]]
