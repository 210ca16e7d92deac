"""What commands do and say beside their main work, as new users found it (findings C2, C3 and C5)."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.agents import bench
from tests.commands import command
from tests.e2e.test_import_folders import conversation, jsonl, write
from tests.plugins import ClaudeCodeLog, HookRunner
from tests.terminals import environment

from perdure.adapters.journal import JOURNAL, SessionStore
from perdure.cli.chat.commands import rewound_lines
from perdure.plugin.setup import CLIENTS, ClientSetup
from perdure.testing import say, tool_use

pytestmark = pytest.mark.e2e

UUID = "7d20b6e1-58c3-4a9f-b274-6e0d9c8b7a61"


@pytest.fixture
def imported(tmp_path: Path) -> Callable[..., Any]:
    """Import a log of Claude Code from where it keeps them; gives the log, and what `sessions show` says."""

    def make(**about: Any) -> tuple[Path, dict[str, Any]]:
        entries = [one | {"sessionId": UUID} | about for one in conversation(1, 3)]
        log = write(tmp_path / ".claude" / "projects" / "-src-shop" / f"{UUID}.jsonl", jsonl(*entries), 1_000)
        done = command("import", cwd=tmp_path, env=environment(tmp_path))
        assert done.returncode == 0, done.stderr
        shown = command("sessions", "show", UUID, "--json", cwd=tmp_path, env=environment(tmp_path))
        return log, json.loads(shown.stdout)

    return make


def test_a_session_isnt_created_after_it_was_written(imported: Callable[..., Any]) -> None:
    """C3: an imported session said created on the day of the import, and modified when its log was, before that."""
    _, shown = imported()
    assert shown["created"] <= shown["modified"] < "2024", shown


def test_a_log_from_windows_has_a_project_of_its_own(imported: Callable[..., Any], tmp_path: Path) -> None:
    """C5: it was filed under the folder in which `import` ran, so that `@last` and searches there found it."""
    _, shown = imported(cwd="D:\\work\\shop")
    assert shown["project"] == "/D:\\work\\shop"
    here = command("sessions", "show", "@last", cwd=tmp_path, env=environment(tmp_path))
    assert here.returncode == 3 and "no session in this folder" in here.stderr


def test_a_client_is_named_only_while_it_has_the_log(imported: Callable[..., Any], tmp_path: Path) -> None:
    """C2: `claude --resume ID` was suggested for logs that the client had deleted."""
    log, _ = imported()
    words = ("search", "--all", "look at module 1-0")
    assert f"claude --resume {UUID}" in command(*words, cwd=tmp_path, env=environment(tmp_path)).stdout
    log.unlink()
    left = command(*words, cwd=tmp_path, env=environment(tmp_path)).stdout
    assert "claude --resume" not in left and f"perdure resume {UUID[:6]}" in left


def test_replay_takes_what_context_takes(imported: Callable[..., Any], tmp_path: Path) -> None:
    """C5: `@1`, `@last` and ids, not only the path of a journal."""
    imported()
    for name in ("@1", UUID[:8]):
        done = command("replay", name, "--json", cwd=tmp_path, env=environment(tmp_path))
        assert done.returncode == 0 and json.loads(done.stdout)["session"] == UUID, done.stderr
    done = command("replay", "@9", cwd=tmp_path, env=environment(tmp_path))
    assert done.returncode == 3 and "1 session kept here" in done.stderr
    done = command("replay", "absent/log.jsonl", cwd=tmp_path, env=environment(tmp_path))
    assert done.returncode == 3 and "no such file or folder" in done.stderr


def test_a_rewind_tells_deleted_files_from_those_put_back(tmp_path: Path) -> None:
    """C5: the chat said `1 file put back` of one that the rewind deleted."""

    async def work() -> list[str]:
        run = "echo new > made.txt; rm -f old.txt"
        (tmp_path / "project").mkdir()
        (tmp_path / "project" / "old.txt").write_text("old\n")
        made = await bench(tmp_path / "project", [say(tool_use("Bash", {"command": run})), "done"])
        await made.agent.say("Change them.")
        done = await made.agent.rewind("-1", what="code")
        await made.agent.close()
        return rewound_lines(done)

    assert "1 file put back, 1 file deleted" in anyio.run(work)


def test_a_hook_of_compact_gets_the_sessions_journal(tmp_path: Path) -> None:
    """C5: `transcript_path` was empty for a session on disk."""
    home, project = tmp_path / ".perdure", tmp_path / "project"

    async def work() -> Path:
        made = await bench(project, ["one", "two", "three"], home=home, settings={"memory_extract": False})
        for text in ("first " * 400, "second " * 400, "third"):
            await made.agent.say(text)
        await made.agent.close()
        return next(SessionStore(home).directories()) / JOURNAL

    journal, told = anyio.run(work), tmp_path / "told.jsonl"
    words = ("compact", journal.parent.name, "--hook", f"cat >> {told}")
    done = command(*words, cwd=project, env=environment(tmp_path))
    heard = json.loads(told.read_text().splitlines()[0].partition("}{")[0].rstrip("}") + "}")
    assert heard["transcript_path"] == str(journal), done.stderr


@pytest.mark.parametrize("door", ["setup", "hook"])
def test_nobody_else_may_look_into_a_home(tmp_path: Path, door: str) -> None:
    """C5: `setup` made ~/.perdure 0755, and `doctor` reported that; so did a hook that isn't given a folder."""
    before = os.umask(0o022)
    try:
        if door == "hook":
            log = ClaudeCodeLog(tmp_path / ".claude" / "projects" / "-srv-app" / "log.jsonl")
            log.user("hello")
            hooks = HookRunner(tmp_path, log.path)
            given = {"hook_event_name": "Stop", "session_id": "s1", "transcript_path": str(log.path), "cwd": "/"}
            environ = {**hooks.environ(), "PERDURE_HOME": str(tmp_path / ".perdure"), "CLAUDE_PLUGIN_DATA": ""}
            hook = [sys.executable, "-m", "perdure.plugin", "hook"]
            subprocess.run(hook, input=json.dumps(given).encode(), env=environ, check=True)
        else:
            setup = ClientSetup(CLIENTS["claude-code"], tmp_path / ".perdure", {"HOME": str(tmp_path)})
            setup._keep("gateway", "http://localhost", None, b"{}")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / ".perdure").stat().st_mode) == 0o700
