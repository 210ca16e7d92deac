"""MCP-1, RCL-3: what stands only in a client's own log is found and recalled, too, if the user wants that."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.mcp_clients import McpPlace, in_loop, refused, told
from tests.unit.foreign.lines import Data, answer, call, jsonl, result, text, user

from perdure.adapters.journal.store import SessionStore

pytestmark = pytest.mark.e2e


@pytest.fixture
def place(tmp_path: Path) -> McpPlace:
    return McpPlace(tmp_path)


def conversation(number: int, turns: int, cwd: Path) -> list[Data]:
    """A log of Claude Code: in each turn a prompt, a call with its result, and an answer."""
    entries: list[Data] = []
    parent = None
    for turn in range(turns):
        ids = [f"{number:08x}-0000-4000-8000-{4 * turn + step:012x}" for step in range(4)]
        used = f"toolu_{number}_{turn}_claude"
        entries += [
            user(ids[0], parent, f"Look at module {number}-{turn}"),
            answer(ids[1], ids[0], call(used, file_path=f"m{turn}.py"), response=f"msg_{number}_{turn}_a"),
            user(ids[2], ids[1], [result(used, f"contents of module_{number}_{turn}")]),
            answer(ids[3], ids[2], text(f"Module {number}-{turn} is fine."), response=f"msg_{number}_{turn}_b"),
        ]
        parent = ids[3]
    return [{**one, "sessionId": f"{number:08x}-0000-4000-8000-000000000000", "cwd": str(cwd)} for one in entries]


def rollout(session: str, said: str, cwd: Path) -> bytes:
    """A log of Codex."""
    at = "2026-01-02T03:04:05Z"
    meta = {"id": session, "cwd": str(cwd), "timestamp": at}
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": said}]}
    rows = [("session_meta", meta), ("response_item", item)]
    return jsonl(*({"timestamp": at, "type": kind, "payload": payload} for kind, payload in rows))


def claude_codes_name(project: Path) -> str:
    """How Claude Code calls the folder of a project."""
    return re.sub(r"[^a-zA-Z0-9]", "-", str(project))


class Logs:
    """What the clients of a user keep."""

    def __init__(self, place: McpPlace) -> None:
        self.place = place
        self.claude = Path(place.env["HOME"]) / ".claude" / "projects" / claude_codes_name(place.project)
        self.codex = Path(place.env["HOME"]) / ".codex" / "sessions" / "2026" / "01" / "02"
        for folder in (self.claude, self.codex):
            folder.mkdir(parents=True)

    def write(self, number: int, turns: int) -> None:
        lines = jsonl(*conversation(number, turns, self.place.project))
        (self.claude / f"{number:08x}-0000-4000-8000-000000000000.jsonl").write_bytes(lines)

    def sessions(self) -> int:
        return len(list(SessionStore(self.place.home).directories()))


@in_loop
async def test_a_project_that_claude_code_never_saw_has_no_logs_that_cant_be_read(place: McpPlace) -> None:
    """MCP-1: only Codex worked there; nothing is said of a log that isn't there."""
    logs = Logs(place)
    logs.claude.rmdir()
    (logs.codex / "rollout-1.jsonl").write_bytes(rollout("0" * 8, "The parser drops commas.", place.project))
    async with place.client(logs_of=place.env) as client:
        found = await told(client, "session_search", query="parser commas")
        assert len(found["places"]) == 1 and not found.get("note")


@in_loop
async def test_a_running_session_of_the_client_is_found_and_recalled(place: McpPlace) -> None:
    """MCP-1, RCL-3: also what was said since the last look; by its id at once."""
    logs = Logs(place)
    logs.write(1, 3)
    async with place.client(logs_of=place.env) as client:
        (hit, *_) = (await told(client, "session_search", query="module_1_2"))["places"]
        assert hit["id"] == "toolu_1_2_claude"
        logs.write(1, 5)
        assert (await told(client, "recall", id="toolu_1_4_claude"))["text"] == "contents of module_1_4"
        assert "nothing here has the id" in await refused(client, "recall", id="toolu_1_5_claude")
    assert logs.sessions() == 1, "it goes on in its session"
    async with place.client() as client:
        logs.write(1, 6)
        assert "nothing here has the id" in await refused(client, "recall", id="toolu_1_5_claude"), "nobody said so"


@in_loop
async def test_a_result_is_told_from_what_quotes_it(place: McpPlace) -> None:
    """MCP-1, RCL-3: calls and texts that name the id come later, and may be many."""
    logs = Logs(place)
    entries = conversation(1, 60, place.project)
    for entry in entries[8:]:
        if entry["type"] == "assistant":
            entry["message"]["content"].append(text("recall with id toolu_1_1_claude"))
    (logs.claude / "quoting.jsonl").write_bytes(jsonl(*entries))
    async with place.client(logs_of=place.env) as client:
        shown = await told(client, "recall", id="toolu_1_1_claude")
        assert shown["text"] == "contents of module_1_1" and logs.sessions() == 0, "without taking in the whole log"
        assert "no session" in await refused(client, "recall", id="toolu_1_1_claude", session="another")


@in_loop
async def test_logs_of_other_projects_stay_where_they_are(place: McpPlace) -> None:
    """MCP-1, SEC-8: neither Claude Code's, which has a folder for each, nor Codex's, which has one for all."""
    logs = Logs(place)
    other = place.project.parent / "other"
    other.mkdir()
    (logs.codex / "rollout-2026-01-02T03-04-05-aaaa.jsonl").write_bytes(rollout("aaaa", "zebras here", place.project))
    (logs.codex / "rollout-2026-01-02T03-04-06-bbbb.jsonl").write_bytes(rollout("bbbb", "zebras there", other))
    beside = logs.claude.with_name(claude_codes_name(other))
    beside.mkdir()
    (beside / "x.jsonl").write_bytes(jsonl(*conversation(9, 1, other)))
    called_alike = Path(f"{place.project.parent}-{place.project.name}")  # Claude Code names both folders the same
    assert claude_codes_name(called_alike) == logs.claude.name
    logs.claude.mkdir(parents=True, exist_ok=True)
    (logs.claude / "alike.jsonl").write_bytes(jsonl(*conversation(8, 1, called_alike)))
    async with place.client(logs_of=place.env, is_everywhere=True) as client:
        places = (await told(client, "session_search", query="zebras"))["places"]
        assert [one["text"] for one in places] == ["zebras here"]
    assert logs.sessions() == 1


@in_loop
async def test_what_cannot_be_read_is_told_and_stops_nothing(place: McpPlace) -> None:
    """MCP-1, SEC-2: a log that is broken, a link, a pipe."""
    logs = Logs(place)
    logs.write(1, 1)
    secret = place.home.parent / "secret.jsonl"
    secret.write_bytes(jsonl(*conversation(5, 1, place.project)))
    (logs.claude / "link.jsonl").symlink_to(secret)
    os.mkfifo(logs.claude / "pipe.jsonl")
    (logs.claude / "broken.jsonl").write_bytes(b'{"type":"user","uuid":\n\x00\xff' * 50)
    for number, cwd in enumerate((b"/srv/\xff\xfe", b"/srv/\\u0000", b"/srv/\\ud800")):
        odd = rollout(f"odd{number}", "zebras", place.project).replace(str(place.project).encode(), cwd)
        (logs.codex / f"rollout-2026-01-02T03-04-0{number}-odd.jsonl").write_bytes(odd)
        (logs.claude / f"odd{number}.jsonl").write_bytes(b'{"type":"user","cwd":"' + cwd + b'"}\n')
    async with place.client(logs_of=place.env) as client:
        found = await told(client, "session_search", query="module_1_0")
        assert found["places"] and "client's logs couldn't be read" in found["note"]
        places = (await told(client, "session_search", query="module_5_0"))["places"]
        assert not [one for one in places if "module_5_0" in one["text"]]


@in_loop
async def test_long_work_is_told_and_can_be_stopped(place: McpPlace) -> None:
    """MCP-1: progress, cancellation; what was read until then is whole, and the next call goes on."""
    logs = Logs(place)
    for number in range(1, 13):
        logs.write(number, 4)
    told_of: list[tuple[float, float | None, str | None]] = []
    async with place.client("legacy", logs_of=place.env) as client:
        with anyio.CancelScope() as stopped:

            async def on_progress(done: float, total: float | None, message: str | None) -> None:
                told_of.append((done, total, message))
                if len(told_of) == 3:
                    stopped.cancel()

            await client.call_tool("session_search", {"query": "module_12_3"}, progress_callback=on_progress)
        assert stopped.cancelled_caught and len(told_of) == 3
        assert [done for done, _, _ in told_of] == sorted({done for done, _, _ in told_of})
        assert all(total is not None and done < total for done, total, _ in told_of)
        assert told_of[0][2] is not None and told_of[0][2].startswith("reading 0000")
        with anyio.fail_after(10):
            await told(client, "memory_search", query="anything")  # answered while and after
        assert logs.sessions() < 12
        found: Any = await told(client, "session_search", query="module_12_3")
        assert found["places"][0]["id"] == "toolu_12_3_claude"
    assert logs.sessions() == 12


def test_a_log_that_is_cut_while_it_is_read_ends_no_server(tmp_path: Path) -> None:
    """MCP-1, REL-7: a client may rewrite its log at any time."""
    log = tmp_path / "log.jsonl"
    log.write_bytes(b"x" * 999 + b"\n")
    os.truncate(log, 200 * 2**20)  # a hole, which costs nothing
    script = """
import sys
import time
from pathlib import Path
from perdure.mcp.client_logs import _lines_with
log = Path(sys.argv[1])
print(flush=True)
while log.stat().st_size:
    assert _lines_with(log, b"needle") == b""
"""
    command = [sys.executable, "-c", script, str(log)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline()
        time.sleep(0.3)  # it is in the middle of reading then
        os.truncate(log, 0)
        assert process.wait(60) == 0, process.returncode
