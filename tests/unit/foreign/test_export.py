"""Our sessions as Claude Code JSONL (ENG-6)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from perdure.logs.claude_code import read
from perdure.logs.export import ExportedBoundary, to_claude_code
from perdure.logs.recording import LoggedCompaction, LoggedRewind, RecordedMessage
from perdure.transcript.blocks import Block, block_of, text_block
from perdure.transcript.messages import Message, MessageId, Origin, ResponseId, Usage, content_of

pytestmark = pytest.mark.unit


def message(name: str, origin: Origin, *blocks: Block, **more: Any) -> Message:
    role = "assistant" if origin == "model" else "user"
    return Message(
        id=MessageId(name), role=role, origin=origin, content=content_of(blocks), at=1_700_000_000.25, **more
    )


TALK = (
    message("1", "user", text_block("hi")),
    message(
        "2",
        "model",
        text_block("I read"),
        block_of({"type": "tool_use", "id": "t", "name": "Read", "input": {}}),
        model="m",
        usage=Usage(input_tokens=3, output_tokens=4),
        response_id=ResponseId("msg_1"),
        stop_reason="tool_use",
    ),
    message("3", "tool", block_of({"type": "tool_result", "tool_use_id": "t", "content": "x"})),
    message("4", "reminder", Block(b'{"type":"text", "text":"r"}')),
    message("5", "model", text_block("side"), agent_id="a1"),
    message("6", "user", text_block("on")),
)


def export(**more: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in to_claude_code(TALK, session="s", cwd="/p", version="2.1.0", **more)]


def test_reading_it_back_gives_equal_content() -> None:
    data = b"".join(to_claude_code(TALK, session="s", cwd="/p", version="2.1.0", branch="b", title="T"))
    (got,) = read(data, "x")
    assert [raw for m in got.messages for raw in map(bytes, m.content)] == [bytes(r) for m in TALK for r in m.content]
    assert [m.origin for m in got.messages] == ["user", "model", "model", "tool", "reminder", "model", "user"]
    assert [m.agent_id for m in got.messages] == [None] * 5 + ["a1", None]
    assert {m.at for m in got.messages} == {1_700_000_000.25}
    assert got.messages[1].usage == got.messages[2].usage == TALK[1].usage
    assert (got.session, got.title, got.cwd, got.branch, got.problems) == ("s", "T", "/p", "b", ())


def test_entries_are_chained_and_always_the_same() -> None:
    entries = export()
    assert entries == export()
    main = [e for e in entries if not e["isSidechain"]]
    assert [e["parentUuid"] for e in main] == [None, *(e["uuid"] for e in main[:-1])]
    assert len({e["uuid"] for e in entries}) == len(entries) == 7
    assert all(e["timestamp"] == "2023-11-14T22:13:20.250Z" for e in entries)
    assert entries[1]["message"]["id"] == entries[2]["message"]["id"] == "msg_1"
    assert entries[3]["sourceToolAssistantUUID"] == entries[2]["uuid"]


def test_boundaries() -> None:
    at = {MessageId("4"): ExportedBoundary("What was.", "manual", 90, 20, kept=(MessageId("3"), MessageId("4")))}
    entries = export(boundaries=at)
    told, summary = entries[5], entries[6]
    assert told["subtype"] == "compact_boundary" and told["parentUuid"] is None
    assert told["logicalParentUuid"] == entries[4]["uuid"]
    assert summary["isCompactSummary"] and summary["parentUuid"] == told["uuid"]
    assert told["compactMetadata"]["preservedSegment"]["anchorUuid"] == summary["uuid"]
    data = b"".join(to_claude_code(TALK, session="s", cwd="/p", version="2", boundaries=at))
    steps = read(data, "x")[0].steps
    (compaction,) = (s for s in steps if isinstance(s, LoggedCompaction))
    assert (compaction.trigger, compaction.pre_tokens, compaction.post_tokens) == ("manual", 90, 20)
    kept = {s.message.id: s.message.content for s in steps if isinstance(s, RecordedMessage)}
    assert [kept[i] for i in compaction.kept] == [TALK[2].content, TALK[3].content]
    assert not any(isinstance(s, LoggedRewind) for s in steps)
