"""Claude Code session logs become recordings (ENG-1, ENG-2, ENG-6)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.foreign.lines import answer, call, entry, jsonl, result, text, user

from perdure.logs.claude_code import read
from perdure.logs.recording import LoggedCompaction, LoggedMicrocompaction, LoggedRewind, RecordedMessage, Recording
from perdure.transcript.messages import spoken

pytestmark = pytest.mark.unit


def one(*entries: Any) -> Recording:
    (recording,) = read(jsonl(*entries), "stem.jsonl")
    return recording


def origins(recording: Recording) -> list[str]:
    return [m.origin for m in recording.messages]


def rewinds(recording: Recording) -> list[LoggedRewind]:
    return [s for s in recording.steps if isinstance(s, LoggedRewind)]


def test_one_response_over_several_lines() -> None:
    got = one(
        user("u", None, "hi"), answer("a", "u", text("1")), answer("b", "a", call("t1")), user("r", "b", [result("t1")])
    )
    assert [m.response_id for m in got.messages] == [None, "msg_1", "msg_1", None]
    assert got.messages[1].usage == got.messages[2].usage
    assert got.messages[1].usage is not None and got.messages[1].usage.total_tokens == 26
    assert origins(got) == ["user", "model", "model", "tool"]
    assert (got.session, got.model, got.cwd, got.branch) == ("s1", "claude-x", "/p", "main")
    assert got.messages[0].at == 1767323045.5
    assert not got.problems


def test_blocks_keep_their_bytes() -> None:
    block = b'{ "text" : "a\\u0062c", "type":"text", "cache_control": {"type": "ephemeral"}}'
    line = b'{"type":"user","uuid":"u","message":{"role":"user","content":[' + block + b"]}}"
    assert bytes(one(line).messages[0].content[0]) == block


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (b'{"type":"user","uuid":"u","mess', "line is cut off: not complete JSON"),
        (b"{not json}", "not JSON"),
        (b"[1,2]", "not a JSON object"),
        (b'{"uuid":"u"}', "without a type"),
        (b'{"type":"user","uuid":"u"}', "without a readable message"),
        (b'{"type":"user","uuid":"u","message":{"role":"user"}}', "without a readable message.content"),
        (b'{"type":"user","uuid":7,"message":{"content":"x"}}', "uuid: Expected"),
        (
            b'{"type":"assistant","uuid":"u","message":{"content":[{"type":"tool_use","id":"t"}]}}',
            "content[0]: malformed tool_use block: ",
        ),
        (b'{"type":"user","uuid":"u","message":{"content":[{"text":"x"}]}}', "content[0]: malformed"),
        (b'{"type":"user","uuid":"u","message":{"content":"\\ud83d x"}}', "surrogate"),
        (b'{"type":"user","uuid":"u","message":{"content":"\xff"}}', "not UTF-8"),
        (b"\0\0\0\0", "4 null bytes"),
        (b'{"type":"attachment","uuid":"u","attachment":{}}', "attachment without a type"),
        (b'{"a":' * 100_000, ""),
    ],
)
def test_what_cannot_be_read_is_a_problem_and_the_rest_is_read(line: bytes, what: str) -> None:
    got = one(user("u0", None, "before"), line, user("u9", "u0", "after"))
    assert [p.line for p in got.problems] == [2]
    assert what in got.problems[0].what
    assert {"u0", "u9"} <= {m.id for m in got.messages}


def test_other_blocks_of_a_malformed_entry_stay() -> None:
    got = one(answer("a", None, text("good"), {"type": "text", "text": 5}, {"type": "novel", "x": [1]}))
    assert [b.type for b in got.messages[0].blocks] == ["text", "novel"]
    assert "content[1]" in got.problems[0].what


@pytest.mark.parametrize("data", [b"", b"\n\n", b"\xef\xbb\xbf", b"\0\0"])
def test_an_empty_file_is_an_empty_recording(data: bytes) -> None:
    (got,) = read(data, "folder/stem.jsonl")
    assert got.session == "stem" and got.steps == ()


def test_byte_order_mark_and_windows_line_ends() -> None:
    (got,) = read(b"\xef\xbb\xbf" + jsonl(user("u", None, "hi")).replace(b"\n", b"\r\n"), "x")
    assert len(got.messages) == 1 and not got.problems


def test_origins() -> None:
    got = one(
        user("1", None, "typed"),
        user("2", "1", "caveat", isMeta=True),
        user("3", "2", "<local-command-stdout>done</local-command-stdout>"),
        user("4", "3", [text("[Request interrupted by user]")]),
        user("5", "4", "<task-notification>x</task-notification>"),
        user("6", "5", "told", origin={"kind": "task-notification"}),
        user("7", "6", "told", promptSource="system"),
        user("8", "7", "typed", origin={"kind": "human"}, promptSource="sdk"),
        user("9", "8", [text("x"), result("t")]),
    )
    assert origins(got) == [
        "user",
        "reminder",
        "system",
        "reminder",
        "reminder",
        "reminder",
        "reminder",
        "user",
        "tool",
    ]


def test_summary_is_logged_only() -> None:
    got = one(user("s", None, "This session…", isCompactSummary=True, isVisibleInTranscriptOnly=True))
    (step,) = got.steps
    assert isinstance(step, RecordedMessage) and step.logged_only and step.message.origin == "summary"
    assert got.messages == ()


def test_what_never_reached_the_model_is_not_said() -> None:
    synthetic = answer("a", None, text("No response requested."))
    synthetic["message"]["model"] = "<synthetic>"
    got = one(
        synthetic,
        answer("b", "a", text("API Error"), isApiErrorMessage=True),
        user("c", "b", "for the screen", isVisibleInTranscriptOnly=True),
        entry("progress", "d", "c", data={"message": {"role": "user", "content": "x"}}),
        entry("system", "e", "d", subtype="turn_duration"),
        {"type": "queue-operation", "operation": "enqueue", "content": "x", "sessionId": "s1"},
        {"type": "file-history-snapshot", "messageId": "c", "snapshot": {}},
        {"type": "from-the-future", "message": {"role": "user", "content": "x"}},
    )
    assert got.steps == () and got.problems == ()


def test_title_is_the_users_own_then_the_made_one_then_the_summary() -> None:
    summary = {"type": "summary", "summary": "s", "leafUuid": "x"}
    made = {"type": "ai-title", "aiTitle": "m", "sessionId": "s1"}
    own = [{"type": "custom-title", "customTitle": t, "sessionId": "s1"} for t in ("first", "last")]
    assert one(summary).title == "s"
    assert one(made, summary).title == "m"
    assert one(*own, made).title == "last"


def test_ids_are_unique() -> None:
    got = one(
        user("u", None, "1"), user("u", None, "2"), user("u", None, "1"), {"type": "user", "message": {"content": "3"}}
    )
    assert [m.id for m in got.messages] == ["u", "u-line-2", "line-4"]
    assert [p.line for p in got.problems] == [2, 3]


def test_a_call_is_made_once() -> None:
    got = one(answer("a", None, call("t")), answer("b", "a", call("t"), text("x"), response="msg_2"))
    assert [b.type for m in got.messages for b in m.blocks] == ["tool_use", "text"]
    assert "tool_use t stands in line 1 already" in got.problems[0].what


def test_two_session_ids() -> None:
    got = one(user("u", None, "1"), user("v", "u", "2", sessionId="s2"))
    assert got.session == "s1" and len(got.messages) == 2
    assert "second session id" in got.problems[0].what


def test_sidechains_have_an_agent() -> None:
    got = one(
        user("u", None, "1"),
        user("v", None, "2", isSidechain=True),
        user("w", None, "3", isSidechain=True, agentId="a7"),
    )
    assert [m.agent_id for m in got.messages] == [None, "sidechain", "a7"]


def test_a_line_that_names_an_agent_is_that_agents() -> None:
    """ENG-6, MEM-10: also where it isn't marked: a task that the model gave is no word of the person's."""
    got = one(
        user("u", None, "1"),
        user("v", "u", "2", isSidechain=False, agentId="a7"),
        answer("w", "v", text("3"), agentId="a7", isSidechain=False),
    )
    assert [m.agent_id for m in got.messages] == [None, "a7", "a7"]
    assert [spoken(m) for m in got.messages] == ["1", "", ""] and not got.is_sub_agent


def test_a_file_that_is_one_sidechain_is_a_session_of_its_own() -> None:
    lines = (
        user("u", None, "1", isSidechain=True, agentId="a7"),
        answer("v", "u", text("2"), isSidechain=True, agentId="a7"),
    )
    got = one(*lines)
    assert got.session == "agent-a7" and [m.agent_id for m in got.messages] == [None, None]
    assert one(user("u", None, "1", isSidechain=True)).session == "stem"


def boundary(uuid: str, **metadata: Any) -> dict[str, Any]:
    return entry("system", uuid, None, subtype="compact_boundary", compactMetadata=metadata)


def test_boundaries() -> None:
    segment = {"headUuid": "u", "anchorUuid": "s", "tailUuid": "b"}
    talk = (user("u", None, "1"), entry("progress", "p", "u"), answer("a", "p", text("2")), answer("b", "a", text("3")))
    got = one(*talk, boundary("B", trigger="manual", preTokens=9, postTokens=4, preservedSegment=segment))
    assert got.steps[-1] == LoggedCompaction("B", 5, "manual", 9, 4, kept=("u", "a", "b"))
    got = one(*talk, boundary("B", trigger="auto", preTokens=9, preservedMessages={"uuids": ["a", "p", "x"]}))
    assert got.steps[-1] == LoggedCompaction("B", 5, "auto", 9, None, kept=("a",))
    got = one(*talk, entry("system", "B", None, subtype="compact_boundary"))
    assert got.steps[-1] == LoggedCompaction("B", 5, "auto") and got.problems


def test_microcompaction() -> None:
    told = {
        "trigger": "auto",
        "preTokens": 9,
        "tokensSaved": 5,
        "compactedToolIds": ["t"],
        "clearedAttachmentUUIDs": ["x"],
    }
    got = one(entry("system", "m", None, subtype="microcompact_boundary", microcompactMetadata=told))
    assert got.steps == (LoggedMicrocompaction("m", 1, "auto", ("t",), 9, 5, ("x",)),)


@pytest.mark.parametrize(
    ("attachment", "words"),
    [
        (
            {"type": "file", "filename": "a.py", "content": {"type": "text", "file": {"content": "BODY"}}},
            ["a.py", "BODY"],
        ),
        ({"type": "nested_memory", "path": "x.md", "content": {"content": "BODY"}}, ["x.md", "BODY"]),
        ({"type": "edited_text_file", "filename": "a.py", "snippet": "BODY"}, ["a.py", "BODY"]),
        ({"type": "hook_additional_context", "hookName": "H", "content": ["BODY"]}, ["H", "BODY"]),
        ({"type": "plan_file_reference", "planFilePath": "p.md", "planContent": "BODY"}, ["p.md", "BODY"]),
        ({"type": "invoked_skills", "skills": [{"name": "S", "content": "BODY"}]}, ["S", "BODY"]),
        (
            {"type": "task_reminder", "content": [{"id": "1", "subject": "BODY", "status": "pending"}]},
            ["pending", "BODY"],
        ),
        ({"type": "todo_reminder", "content": [{"content": "BODY", "status": "completed"}]}, ["completed", "BODY"]),
        ({"type": "relevant_memories", "memories": [{"path": "m.md", "content": "BODY"}]}, ["m.md", "BODY"]),
        ({"type": "queued_command", "prompt": "<task-notification>BODY", "commandMode": "task-notification"}, ["BODY"]),
        ({"type": "diagnostics", "files": [{"uri": "a", "diagnostics": [{"message": "BODY"}]}]}, ["BODY"]),
        ({"type": "compact_file_reference", "filename": "a.py"}, ["a.py"]),
    ],
)
def test_attachments_that_a_model_sees(attachment: dict[str, Any], words: list[str]) -> None:
    (message,) = one(entry("attachment", "x", None, attachment=attachment)).messages
    assert (message.id, message.role, message.origin) == ("x", "user", "reminder")
    shown = message.blocks[0].value.text  # type: ignore[union-attr]
    assert shown.startswith("<system-reminder>\n") and shown.endswith("\n</system-reminder>")
    assert all(word in shown for word in words)


@pytest.mark.parametrize("kind", ["hook_success", "hook_system_message", "command_permissions", "from_the_future"])
def test_attachments_that_only_a_screen_shows(kind: str) -> None:
    got = one(entry("attachment", "x", None, attachment={"type": kind, "content": "", "allowedTools": []}))
    assert got.steps == () and got.problems == ()


def test_a_prompt_queued_while_the_model_works_is_the_users_words() -> None:
    queued = {"type": "queued_command", "prompt": "and this", "commandMode": "prompt", "origin": {"kind": "human"}}
    (message,) = one(entry("attachment", "x", None, attachment=queued)).messages
    assert message.origin == "user" and message.blocks[0].value.text == "and this"  # type: ignore[union-attr]


def test_stubs_of_results_kept_elsewhere_stay_verbatim() -> None:
    stub = "<persisted-output>\nOutput too large (63KB). Full output saved to: x.txt\n</persisted-output>"
    got = one(answer("a", None, call("t")), user("r", "a", [result("t", stub)], toolUseResult={"stdout": "x"}))
    assert got.messages[1].tool_results[0].content == stub


# --- going back

START = (
    user("u1", None, "first"),
    answer("a1", "u1", text("1"), response="m1"),
    user("u2", "a1", "second"),
    answer("a2", "u2", text("2"), response="m2"),
)


def test_going_back_to_an_earlier_prompt() -> None:
    got = one(*START, entry("system", "x", "a1", subtype="informational"), user("u3", "x", "second, otherwise"))
    assert got.steps[-2] == LoggedRewind(to="a1", line=6)
    assert isinstance(got.steps[-1], RecordedMessage) and got.steps[-1].message.id == "u3"


def test_going_back_twice_never_to_what_was_abandoned() -> None:
    further = (
        user("u4", "a2", "third"),
        answer("a4", "u4", text("4"), response="m4"),
        user("u5", "a1", "back"),
        answer("a5", "u5", text("5"), response="m5"),
        user("u6", "a2", "onto the abandoned branch"),
        answer("a6", "u6", text("6"), response="m6"),
        user("u7", "a1", "back again"),
    )
    assert [r.to for r in rewinds(one(*START, *further))] == ["a1", "a1"]


@pytest.mark.parametrize(
    "more",
    [
        pytest.param([user("u3", "a2", "third")], id="goes on"),
        pytest.param(
            [user("i", "a2", [text("[Request interrupted by user]")]), user("u3", "a2", "again")], id="interrupted"
        ),
        pytest.param([user("x", "a2", "lost"), user("y", "a2", "typed again")], id="retried before an answer"),
        pytest.param([user("m", "a1", "meta", isMeta=True)], id="meta"),
        pytest.param([user("t", "a1", [result("t")])], id="late result of a parallel call"),
        pytest.param([user("q", "u2", "queued")], id="no earlier prompt stood there"),
        pytest.param([user("s", "a1", "side", isSidechain=True)], id="sidechain"),
        pytest.param([user("n", None, "no parent")], id="no parent"),
        pytest.param([user("l", "l", "its own parent")], id="a loop"),
        pytest.param([boundary("B", trigger="auto"), user("u3", "a1", "after")], id="behind a compaction"),
    ],
)
def test_what_only_looks_like_going_back(more: list[dict[str, Any]]) -> None:
    assert rewinds(one(*START, *more)) == []


def test_parallel_calls_are_no_rewind() -> None:
    calls = (
        answer("c1", "a2", call("t1"), response="m3"),
        answer("c2", "c1", call("t2"), response="m3"),
        user("r2", "c2", [result("t2")]),
        user("r1", "c1", [result("t1")]),
        user("u3", "r2", "next"),
        answer("a3", "u3", text("x"), response="m4"),
        user("u4", "a3", "next"),
    )
    assert rewinds(one(*START, *calls)) == []
