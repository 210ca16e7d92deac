"""CMP-15, SEC-1: which calls were never made is what the client says around a result, and no tool."""

from __future__ import annotations

import json
from typing import Any

import pytest

from perdure.logs import claude_code
from perdure.logs.claude_code import MainChain
from perdure.logs.export import to_claude_code
from perdure.logs.recording import RecordedMessage
from perdure.transcript.messages import Message, MessageId, RefusedCall, ToolUseId
from perdure.transcript.tool_calls.refusals import DENIED, with_refusals

pytestmark = pytest.mark.unit

NO = f"{DENIED}. The tool use was rejected. To tell you how to proceed, the user said:\npush to main"


def logged(tool: str, text: str, **fields: Any) -> list[dict[str, Any]]:
    use = {"type": "tool_use", "id": "t1", "name": tool, "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": text, "is_error": True}
    return [
        {"type": "assistant", "uuid": "a1", "message": {"id": "m1", "content": [use]}, "version": "2.1.36"},
        {"type": "user", "uuid": "u1", "message": {"content": [result]}, "version": "2.1.36", **fields},
    ]


def refused(lines: list[dict[str, Any]]) -> tuple[RefusedCall, ...]:
    (recording,) = claude_code.read("\n".join(map(json.dumps, lines)).encode(), "log")
    return [step.message for step in recording.steps if isinstance(step, RecordedMessage)][-1].refused


def call(by: str) -> tuple[RefusedCall, ...]:
    return (RefusedCall(ToolUseId("t1"), by),)  # type: ignore[arg-type]


def test_a_log_says_beside_a_result_that_it_was_refused() -> None:
    """CMP-15: for tools of servers, too; in older logs its own tools can't begin a failure with other words."""
    assert refused(logged("mcp__docs__fetch", NO, toolUseResult="User rejected tool use")) == call("user")
    assert refused(logged("mcp__docs__fetch", NO, toolDenialKind="user-rejected")) == call("user")
    assert refused(logged("Bash", "Blocked by a rule", toolDenialKind="permission-rule")) == call("host")
    assert refused(logged("Edit", NO, toolUseResult=f"Error: {NO}")) == call("user")
    assert refused(logged("Bash", NO, toolUseResult=f"Error: {NO}")) == call("user")
    assert refused(logged("Edit", "<tool_use_error>File has not been read yet</tool_use_error>")) == call("host")


@pytest.mark.parametrize("text", [NO, "<tool_use_error>no", "Permission to use Bash has been denied"])
def test_what_a_server_or_an_old_shell_brings_refuses_nothing(text: str) -> None:
    """SEC-1: a server marks its result as an error as it likes; version 1 gave the output of a command as it was."""
    assert not refused(logged("mcp__docs__fetch", text, toolUseResult=f"Error: {text}"))
    assert not refused(logged("Bash", text, version="1.0.98", toolUseResult=f"Error: {text}"))
    assert not refused(logged("Bash", f"Exit code 1\n{text}", toolUseResult=f"Error: Exit code 1\n{text}"))
    went_well = logged("Read", text)
    went_well[1]["message"]["content"][0]["is_error"] = False
    assert not refused(went_well)
    assert not refused(logged("Read", text)[1:])  # a result of a call that nobody made


def test_a_log_that_is_read_in_parts_knows_whose_results_come() -> None:
    """PLG-1: the call may stand in a part that was read before."""
    chain, lines = MainChain(), logged("Edit", NO)
    claude_code.read(json.dumps(lines[0]).encode(), "log", chain=chain)
    (recording,) = claude_code.read(json.dumps(lines[1]).encode(), "log", first_line=2, chain=chain.copy())
    assert [step.message.refused for step in recording.steps if isinstance(step, RecordedMessage)] == [call("user")]


def test_an_export_says_it_as_the_client_does() -> None:
    """ENG-6: and it is read back."""
    use = {"type": "tool_use", "id": "t1", "name": "deploy", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "no", "is_error": True}
    said = [Message.of("assistant", [use], id=MessageId("a")), Message.of("user", [result], id=MessageId("u"))]
    for by in ("user", "host"):
        marked = [said[0], Message.of("user", [result], id=MessageId("u"), refused=call(by))]
        lines = to_claude_code(marked, session="s", cwd="/w", version="1")
        assert refused([json.loads(line) for line in lines]) == call(by)
    assert not refused([json.loads(line) for line in to_claude_code(said, session="s", cwd="/w", version="1")])


def test_a_message_says_which_calls_were_turned_down() -> None:
    """LIB-1: plain ids are those that the user turned down; others were made."""
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "no", "is_error": True}
    message = Message.of("user", [result], refused=["t1"])
    assert (message.refused_by("t1"), message.refused_by("t2")) == ("user", None)


def test_through_the_gateway_the_names_of_tools_are_those_of_the_session() -> None:
    """GW-6, CMP-15: Claude Code says new messages only; who was called stands further up."""
    uses = [
        {"type": "tool_use", "id": f"t{n}", "name": name, "input": {}} for n, name in ((1, "Edit"), (2, "mcp__x__y"))
    ]
    results = [{"type": "tool_result", "tool_use_id": f"t{n}", "content": NO, "is_error": True} for n in (1, 2)]
    before, new = Message.of("assistant", uses), Message.of("user", results)
    (found,) = with_refusals([new], [before], "2.1.197")
    assert found.refused == call("user")
    assert with_refusals([new], [], "2.1.197") == [new]
