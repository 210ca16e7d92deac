"""The plugin in Claude Code and Codex themselves, which `make clients` installs, by their own commands (PLG-1)."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench.clients import CLIENTS, ClientHome, RealClient, Worker, folder_of, is_installed

from perdure.compaction.parts import PART_CHARS
from perdure.plugin.build import SELECTOR, build_plugin
from perdure.testing import FakeServer, ScriptedAnswer, say, tool_use
from perdure.testing.request import DecodedRequest

CLAUDE_CODE = next(client for client in CLIENTS if client.name == "claude-code")
_OWN = next(client for client in CLIENTS if client.name == "codex, defaults")
_PINNED = {name: f'model = "gpt-5.4"\n{text}' for name, text in _OWN.files.items()}
CODEX = dataclasses.replace(_OWN, files=_PINNED)  # with a model whose tools no script calls
WINDOW = 400_000
MARK = "<perdure-record"
PROMPT = "Read all parts; the limit is 4711, and never touch generated.py."

pytestmark = pytest.mark.e2e
needs_claude_code = pytest.mark.skipif(
    not is_installed(CLAUDE_CODE), reason="not installed: make clients ARGS=claude installs it"
)
needs_codex = pytest.mark.skipif(not is_installed(CODEX), reason="not installed: make clients ARGS=codex installs it")


class PluginHome(ClientHome):
    """A client's home, with the plugin's folder beside it."""

    def __init__(self, client: RealClient, folder: Path, url: str) -> None:
        super().__init__(client, folder, url)
        self.begin(12)
        build_plugin(self.marketplace)

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def marketplace(self) -> Path:
        return self.folder / "marketplace"

    def mentions(self) -> set[str]:
        """The files in the client's home that say something of us."""
        found = {str(path.relative_to(self.home)): path for path in self.home.rglob("*") if path.is_file()}
        return {name for name, path in found.items() if "perdure" in name or b"perdure" in path.read_bytes()}

    def head(self, data: str) -> dict[str, Any]:
        """What the state of the one session tells; nothing went wrong in any hook."""
        folder = self.home / data
        assert not (folder / "errors.log").exists()
        (state,) = folder.glob("sessions/*/state")
        told: dict[str, Any] = json.loads(state.read_bytes().partition(b"\n")[0])
        return told


class RecallingWorker(Worker):
    """Goes on, behind a compaction, by asking for what the record names first: what the user said."""

    recalls = 0  # how many of its calls for that were made
    tool = "mcp__plugin_perdure_perdure__recall"

    def reply_to(self, request: DecodedRequest) -> ScriptedAnswer:
        named = re.search(r"…([0-9a-f]{8}): Read all parts", str(request.messages))
        if named is None or self.recalls == 2 or len(request.tools) < 5:
            return super().reply_to(request)
        self.recalls += 1
        if self.recalls == 1:
            return say("I load it.", tool_use("ToolSearch", {"query": f"select:{self.tool}", "max_results": 1}))
        return say("I ask for it.", tool_use(self.tool, {"id": f"…{named[1]}"}))


def texts_of(request: dict[str, Any]) -> Iterator[str]:
    """The texts of a request's messages."""
    for message in request["messages"]:
        content = message["content"]
        yield from [content] if isinstance(content, str) else [block.get("text", "") for block in content]


@needs_claude_code
def test_claude_code_gets_the_record_after_its_compaction(tmp_path: Path) -> None:
    """PLG-1: installed and removed by its own commands; the next request behind a compaction has the record."""

    async def body() -> None:
        worker = RecallingWorker(5, WINDOW)
        async with FakeServer(worker) as fake:
            home = PluginHome(CLAUDE_CODE, tmp_path, fake.url)
            assert "Validation passed" in await home.run(["{bin}/claude", "plugin", "validate", str(home.marketplace)])
            await home.run(["{bin}/claude", "plugin", "install", "perdure", "--marketplace", str(home.marketplace)])
            (listed,) = json.loads(await home.run(["{bin}/claude", "plugin", "list", "--json"]))
            assert listed["id"] == SELECTOR and listed["enabled"]

            options = ("--allowedTools", "Bash,mcp__plugin_perdure_perdure")
            await home.run(["{bin}/claude", "-p", PROMPT, *options])
            await home.run(["{bin}/claude", "-p", "/compact", "--continue", *options])
            worker.calls, behind = 8, len(fake.received)
            assert "I am done" in await home.run(["{bin}/claude", "-p", "Read on.", "--continue", *options])
            asked = [json.loads(one.body) for one in fake.received[behind:] if one.body]
            request = next(one for one in asked if "Read on." in "".join(texts_of(one)))
            given = "\n".join(text for text in texts_of(request) if MARK in text)
            parts = [MARK + part for part in given.split(MARK)[1:]]
            assert PROMPT in given and "cat part_004.txt" in given and len(parts) == 2
            assert all(len(part[: part.index("</perdure-record>")]) <= PART_CHARS for part in parts)
            head = home.head(".claude/plugins/data/perdure-perdure")
            assert head["boundaries"] == 1 and head["is_given"]
            assert not worker.statistics.violations and not worker.statistics.refused
            (log,) = (home.home / ".claude/projects").rglob("*.jsonl")
            results = [line for line in log.read_text().splitlines() if "tool_result" in line]
            (recalled,) = [line for line in results if "message of the user" in line]
            assert worker.recalls == 2 and PROMPT in recalled

            await home.run(["{bin}/claude", "plugin", "uninstall", SELECTOR])
            await home.run(["{bin}/claude", "plugin", "marketplace", "remove", "perdure"])
            # What it writes of sessions and servers, its copy of the plugin, which it sweeps later, and what is ours.
            own = [
                ".claude/projects/",
                ".cache/",
                ".claude/mcp-needs-auth-cache.json",
                ".claude/plugins/cache/perdure/",
            ]
            own.append(".perdure/")
            assert not {name for name in home.mentions() if not name.startswith(tuple(own))}

    asyncio.run(body())


@needs_codex
def test_codex_gets_the_record_after_its_compaction(tmp_path: Path) -> None:
    """PLG-1: the same folder in Codex, whose own compaction fires in the middle of its work."""

    async def body() -> None:
        worker = Worker(8, WINDOW, thinks=True)
        async with FakeServer(worker) as fake:
            home = PluginHome(CODEX, tmp_path, fake.url)
            config = home.home / ".codex/config.toml"
            own = f"# mine\nmodel_auto_compact_token_limit = 20_000\n{config.read_text()}"
            config.write_text(own)
            await home.run(["{bin}/codex", "plugin", "marketplace", "add", str(home.marketplace)])
            await home.run(["{bin}/codex", "plugin", "add", SELECTOR])
            assert "installed, enabled" in await home.run(["{bin}/codex", "plugin", "list"])

            free = ("--skip-git-repo-check", "--dangerously-bypass-hook-trust")
            said = await home.run(["{bin}/codex", "exec", *free, PROMPT])
            assert "I am done" in said and not worker.statistics.violations, said[-1_000:]
            head = home.head(".codex/plugins/data/perdure-perdure")
            assert head["client"] == "codex" and head["boundaries"] >= 1
            (rollout,) = (home.home / ".codex/sessions").rglob("rollout-*.jsonl")
            entries = [json.loads(line) for line in rollout.read_bytes().splitlines()]
            boundary = next(n for n, entry in enumerate(entries) if entry["type"] == "compacted")
            given = [entry["payload"] for entry in entries[boundary:] if is_record(entry)]
            parts = [part["text"] for item in given for part in item["content"] if MARK in part["text"]][:2]
            assert PROMPT in "".join(parts) and "cat part_000.txt" in "".join(parts)
            for part in parts:
                assert part.startswith(MARK) and part.endswith("</perdure-record>")
                assert len(part.encode()) <= PART_CHARS
            assert not [entry for entry in entries[:boundary] if is_record(entry)]

            await home.run(["{bin}/codex", "plugin", "remove", SELECTOR])
            await home.run(["{bin}/codex", "plugin", "marketplace", "remove", "perdure"])
            assert config.read_text() == own
            kept = (".codex/sessions/", ".codex/plugins/data/")  # it leaves a plugin's data where they are
            left = {name for name in home.mentions() if not name.startswith(kept)}
            assert not {name for name in left if not name.endswith((".sqlite", ".sqlite-wal", ".log"))}, left

    asyncio.run(body())


class CodexRecallingWorker(Worker):
    """Asks, behind a compaction, for what the record names first: what the user said."""

    asked = False

    def reply_to(self, request: DecodedRequest) -> ScriptedAnswer:
        named = re.search(r"…([0-9a-f]{8}): Read all parts", str(request.messages))
        if named is None or self.asked:
            return super().reply_to(request)
        self.asked = True
        return say("I ask for it.", tool_use("mcp__perdure__recall", {"id": f"…{named[1]}"}))


def app_server(home: PluginHome, *calls: tuple[str, dict[str, Any]]) -> list[Any]:
    """What Codex's own server answers, as the terminal asks it."""
    lines = [{"id": 0, "method": "initialize", "params": {"clientInfo": {"name": "t", "version": "1"}}}]
    lines += [{"method": "initialized"}]
    lines += [{"id": n, "method": method, "params": params} for n, (method, params) in enumerate(calls, 1)]
    program = folder_of(CODEX) / "node_modules/.bin/codex"
    environ = {"PATH": f"{program.parent}:{os.environ['PATH']}", "HOME": str(home.home)}
    found: dict[int, Any] = {}
    with subprocess.Popen(
        [str(program), "app-server"],
        cwd=home.project,
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        for line in lines:
            process.stdin.write(json.dumps(line) + "\n")
            process.stdin.flush()
            while "id" in line and line["id"] not in found:
                told = json.loads(process.stdout.readline())
                if "id" in told and "method" not in told:
                    found[told["id"]] = told.get("result", told)
        process.stdin.close()
    return [found[number] for number in range(1, len(calls) + 1)]


def codex_hooks(home: PluginHome) -> list[dict[str, Any]]:
    """The hooks that Codex knows of, and whether it runs them."""
    (told,) = app_server(home, ("hooks/list", {"cwds": [str(home.project)]}))
    (entry,) = told["data"]
    assert entry["errors"] == [] == entry["warnings"]
    hooks: list[dict[str, Any]] = entry["hooks"]
    return hooks


@needs_codex
def test_codex_runs_the_hooks_that_were_approved(tmp_path: Path) -> None:
    """PLG-1: none before that; what `/hooks` writes is enough, for `codex exec` too, and recall answers there."""

    async def body() -> None:
        worker = CodexRecallingWorker(8, WINDOW, thinks=True)
        async with FakeServer(worker) as fake:
            home = PluginHome(CODEX, tmp_path, fake.url)
            config = home.home / ".codex/config.toml"
            config.write_text(f"model_auto_compact_token_limit = 20_000\n{config.read_text()}")
            await home.run(["{bin}/codex", "plugin", "marketplace", "add", str(home.marketplace)])
            await home.run(["{bin}/codex", "plugin", "add", SELECTOR])
            data = home.home / ".codex/plugins/data/perdure-perdure"
            hooks = codex_hooks(home)
            assert len(hooks) == 5 and {hook["trustStatus"] for hook in hooks} == {"untrusted"}
            said = await home.run(["{bin}/codex", "exec", "--skip-git-repo-check", PROMPT])
            assert "I am done" in said and not (data / "sessions").exists() and not worker.asked

            trust = {hook["key"]: {"trusted_hash": hook["currentHash"]} for hook in hooks}
            write = {"edits": [{"keyPath": "hooks.state", "value": trust, "mergeStrategy": "upsert"}]}
            app_server(home, ("config/batchWrite", write))
            assert {hook["trustStatus"] for hook in codex_hooks(home)} == {"trusted"}
            worker.made.clear()
            said = await home.run(["{bin}/codex", "exec", "--skip-git-repo-check", PROMPT])
            assert "I am done" in said and not worker.statistics.violations, said[-1_000:]
            assert home.head(".codex/plugins/data/perdure-perdure")["boundaries"] >= 1
            assert worker.asked and PROMPT in recalled(home), recalled(home)

    asyncio.run(body())


def recalled(home: PluginHome) -> str:
    """What the tool for recall gave the model."""
    entries = [json.loads(line) for log in home.home.rglob("rollout-*.jsonl") for line in log.read_bytes().splitlines()]
    items = [entry["payload"] for entry in entries if entry["type"] == "response_item"]
    (call,) = [item["call_id"] for item in items if item.get("name") in ("recall", "mcp__perdure__recall")]
    (output,) = [item["output"] for item in items if item.get("call_id") == call and "output" in item]
    return json.dumps(output)


def is_record(entry: dict[str, Any]) -> bool:
    """Whether an item of a rollout is a record of ours, on its way to the model."""
    return entry["type"] == "response_item" and MARK in json.dumps(entry["payload"].get("content"))
