"""What the pages of the doors tell a person to type or to configure, done as it stands there.

Python on these pages runs in tests/house/test_docs_run.py, the first minute with one's own logs in test_verdict_cli.py,
and the examples of LiteLLM, hermes-agent and the Claude Agent SDK with their packages in test_real_*.py.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.e2e.test_setup import CLAUDE
from tests.house.test_docs_run import ROOT, blocks

pytestmark = pytest.mark.e2e
PAGES = ROOT / "docs" / "use"
TOOLS = {"memory_search", "memory_read", "memory_save", "memory_forget", "session_search", "recall"}


def servers() -> list[list[str]]:
    """Every command by which docs/use/mcp.md has a client start the server."""
    found = []
    for block in blocks(PAGES / "mcp.md"):
        if block.language in ("json", "toml"):
            told = json.loads(block.body) if block.language == "json" else tomllib.loads(block.body)
            ((_, named),) = told.items()
            found += [[one["command"], *one["args"]] for one in named.values()]
        elif block.language == "console":
            adds = re.findall(r"^\$ (?:claude|codex) mcp add perdure -- (.*)$", block.body, re.M)
            found += [shlex.split(one) for one in adds]
    return found


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """Of a person whose home this is, with `perdure` among their programs."""
    outer = {
        name: value for name, value in os.environ.items() if not name.startswith(("ANTHROPIC_", "CLAUDE", "CODEX"))
    }
    path = f"{tmp_path / 'bin'}:{Path(sys.executable).parent}:{outer['PATH']}"
    return {**outer, "HOME": str(tmp_path), "PERDURE_HOME": str(tmp_path / ".perdure"), "PATH": path, "NO_COLOR": "1"}


@pytest.mark.quick(1)
@pytest.mark.parametrize("argv", servers(), ids=" ".join)
def test_a_client_that_is_configured_so_has_the_tools(argv: list[str], tmp_path: Path, env: dict[str, str]) -> None:
    """MCP-1: for Claude Code, Codex, Cursor and VS Code; the official client starts what each would start."""
    mcp = pytest.importorskip("mcp")
    project = argv[argv.index("--project") + 1] if "--project" in argv else None
    argv = [str(tmp_path) if one == project else one for one in argv]

    async def body() -> None:
        told = mcp.StdioServerParameters(command=argv[0], args=argv[1:], env=env, cwd=str(tmp_path))
        async with mcp.Client(told) as client:
            assert {tool.name for tool in (await client.list_tools()).tools} == TOOLS

    assert len(servers()) == 6
    anyio.run(body)


@pytest.mark.nightly
def test_an_editor_that_is_configured_so_has_the_agent(tmp_path: Path, env: dict[str, str]) -> None:
    """ACP-1: the command of docs/use/acp.md is answered as the protocol wants it."""
    pytest.importorskip("acp")
    (zed,) = [json.loads(block.body) for block in blocks(PAGES / "acp.md") if block.language == "json"]
    ((_, told),) = zed["agent_servers"].items()
    asked = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}
    done = subprocess.run(
        [told["command"], *told["args"]],
        input=json.dumps(asked) + "\n",
        cwd=tmp_path,
        env={**env, **told["env"], "ANTHROPIC_API_KEY": "none"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[0])
    assert answer["id"] == 1 and answer["result"]["protocolVersion"] == 1


@pytest.mark.nightly
def test_the_plugin_is_set_up_and_removed_by_what_the_page_says(tmp_path: Path, env: dict[str, str]) -> None:
    """PLG-1: with stand-ins for the clients, which test_real_plugin.py and test_setup.py take themselves."""
    log = tmp_path / ".claude/projects/-srv-app/0b1c2d.jsonl"
    log.parent.mkdir(parents=True)
    message = {"role": "user", "content": "Mend ledger.py."}
    said = {"type": "user", "uuid": "u1", "timestamp": "2026-11-22T10:00:00.000Z", "message": message}
    log.write_text(json.dumps({**said, "sessionId": "0b1c2d"}) + "\n")
    (tmp_path / "bin").mkdir()
    for name in ("claude", "codex"):
        (tmp_path / "bin" / name).write_text(CLAUDE)
        (tmp_path / "bin" / name).chmod(0o755)
    shown = "".join(one.body for one in blocks(PAGES / "plugin.md") if one.language == "console")
    printed, ran = "", list[str]()
    for line in shown.splitlines():
        if not line.startswith("$ "):
            wanted = line.replace("/home/you", str(tmp_path)).partition("…")[0]
            assert not wanted or wanted in printed or wanted.startswith(("## ", "- ")), (line, printed)
            continue
        printed = subprocess.check_output(line[2:], shell=True, cwd=tmp_path, env=env, text=True, timeout=120)
        ran.append(line)
        if line.endswith("setup claude-code"):
            assert (tmp_path / "installed").exists() and (tmp_path / ".claude/settings.json").exists()
        if line.endswith("--remove"):
            assert not (tmp_path / "installed").exists() and not (tmp_path / ".claude/settings.json").exists()
    assert len(ran) >= 7 and "Mend ledger.py." in printed
