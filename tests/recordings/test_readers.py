"""Every recording is read, and counts agree with an independent reading by `json` (ENG-2, ENG-6)."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.recordings.conftest import DATA

from perdure.logs.detect import detect, read_recordings
from perdure.logs.recording import LoggedCompaction, LoggedMicrocompaction, LoggedRewind, RecordedMessage, Recording

FORMS = {
    "codex": "codex",
    "swe_agent": "swe-agent",
    "mini_swe_agent": "mini-swe-agent",
    "tau_bench": "openai",
    "openai": "openai",
}


def folder(path: Path) -> str:
    return path.relative_to(DATA).parts[0] if path.is_relative_to(DATA) else path.parent.name


def read(path: Path) -> tuple[Recording, ...]:
    return read_recordings(path.read_bytes(), path.name)


def said(recordings: tuple[Recording, ...]) -> list[Any]:
    """All messages but the reminders made of attachments and the words queued in one."""
    return [s.message for r in recordings for s in r.steps if isinstance(s, RecordedMessage)]


def kinds(recordings: tuple[Recording, ...], *, without: frozenset[str] = frozenset()) -> Counter[str]:
    return Counter(b.type for m in said(recordings) if m.id not in without for b in m.blocks)


def test_it_is_told_by_its_content(session_file: Path) -> None:
    form = FORMS.get(folder(session_file), "claude-code")
    assert detect(session_file.read_bytes()[:65_536], "x") == form
    assert {r.format for r in read(session_file)} == {form}


def test_it_is_read_without_problems(session_file: Path) -> None:
    recordings = read(session_file)
    assert [p for r in recordings for p in r.problems] == []
    assert all(r.messages for r in recordings)
    assert len({r.session for r in recordings}) == len(recordings)


def test_ids_are_unique_and_results_have_calls(session_file: Path) -> None:
    for recording in read(session_file):
        messages = said((recording,))
        assert len({m.id for m in messages}) == len(messages)
        calls = [use.id for m in messages for use in m.tool_uses]
        assert len(set(calls)) == len(calls)
        assert {r.tool_use_id for m in messages for r in m.tool_results} <= set(calls)


@pytest.mark.quick(12)
def test_blocks_are_all_there(session_file: Path) -> None:
    counted = {"codex": codex, "swe_agent": history, "mini_swe_agent": history, "tau_bench": tau, "openai": tau}
    expected, without = counted.get(folder(session_file), claude_code)(session_file)
    assert kinds(read(session_file), without=without) == expected


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().split(b"\n") if line]


def claude_code(path: Path) -> tuple[Counter[str], frozenset[str]]:
    count: Counter[str] = Counter()
    for row in rows(path):
        if row["type"] in ("user", "assistant") and row["message"].get("model") != "<synthetic>":
            content = row["message"]["content"]
            count.update(["text"] if isinstance(content, str) else [b["type"] for b in content])
    return count, frozenset(row["uuid"] for row in rows(path) if row["type"] == "attachment")


def codex(path: Path) -> tuple[Counter[str], frozenset[str]]:
    count: Counter[str] = Counter()
    for row in rows(path):
        items = [row["payload"]] if row["type"] == "response_item" else row["payload"].get("replacement_history", [])
        for item in items:
            kind = item["type"]
            if kind == "message":
                count["text"] += sum(bool(part["text"].strip()) for part in item["content"])
            count["tool_use"] += kind.endswith("_call")
            count["tool_result"] += kind.endswith("_output") or kind == "web_search_call"
    return count, frozenset()


def history(path: Path) -> tuple[Counter[str], frozenset[str]]:
    """One text and one call for each answer, one result for each call that something follows."""
    run = json.loads(path.read_bytes())
    messages = [m for m in run.get("history", run.get("messages", [])) if m["role"] != "system"]
    count: Counter[str] = Counter()
    is_open = False
    for message in messages:
        if message["role"] == "assistant":
            is_open = bool(message.get("action")) or message["content"].count("```bash") == 1
            count.update(text=1, tool_use=int(is_open))
        else:
            count["tool_result" if is_open else "text"] += 1
            is_open = False
    return count, frozenset()


def tau(path: Path) -> tuple[Counter[str], frozenset[str]]:
    count: Counter[str] = Counter()
    for message in (m for run in json.loads(path.read_bytes()) for m in run["traj"] if m["role"] != "system"):
        count["tool_use"] += len(message.get("tool_calls") or ())
        is_result = message["role"] == "tool"
        count["tool_result" if is_result else "text"] += 1 if is_result else bool((message["content"] or "").strip())
    return count, frozenset()


def test_usage_is_counted_once_for_each_response(session_file: Path) -> None:
    if not folder(session_file).startswith("claude_code"):
        pytest.skip("only Claude Code repeats usage")
    expected: dict[str, int] = {}
    for row in rows(session_file):
        body = row.get("message") or {}
        if row["type"] == "assistant" and body.get("model") != "<synthetic>":
            expected[body["id"]] = body["usage"]["output_tokens"]
    got = {m.response_id: m.usage.output_tokens for m in said(read(session_file)) if m.usage is not None}
    assert got == expected


def test_what_the_logs_own_system_did(session_file: Path) -> None:
    if not folder(session_file).startswith("claude_code"):
        pytest.skip("only Claude Code logs tell of it")
    (recording,) = read(session_file)
    done = Counter(row.get("subtype") for row in rows(session_file))
    steps = Counter(type(step) for step in recording.steps)
    assert steps[LoggedCompaction] == done["compact_boundary"]
    assert steps[LoggedMicrocompaction] == done["microcompact_boundary"]
    assert steps[LoggedRewind] == 0  # nobody went back in these
    assert [s.line for s in recording.steps] == sorted(s.line for s in recording.steps)
