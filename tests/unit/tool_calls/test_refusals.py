"""CMP-15, SEC-1: which calls were never made is what the client says around a result, and no tool."""

from __future__ import annotations

import json
from typing import Any

import pytest

from perdure.gateway.titles import known_client
from perdure.logs import claude_code, codex
from perdure.logs.claude_code import MainChain
from perdure.logs.export import to_claude_code
from perdure.logs.recording import RecordedMessage
from perdure.transcript.messages import Message, MessageId, RefusedCall, ToolUseId
from perdure.transcript.tool_calls.refusals import DENIED, with_user_words

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


def through_gateway(
    tool: str, text: str, agent: str = "claude-cli/2.1.2 (external, cli)", **fields: Any
) -> list[Message]:
    """A call and its result as a client says them that calls itself so."""
    use = {"type": "tool_use", "id": "t1", "name": tool, "input": {}, **fields.pop("beside", {})}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": text, **fields}
    said = [Message.of("assistant", [use]), Message.of("user", [result])]
    client = known_client(agent)
    return with_user_words(said, [], *client) if client is not None else said


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


OTHERS = ["WebFetch", "Task", "Agent", "ReadMcpResourceTool", "Skill", "TaskOutput", "BashOutput"]  # bring other words


@pytest.mark.parametrize("tool", ["bash", "terminal", "fetch_page", "mcp_weather_get", "edit", *OTHERS])
def test_only_tools_known_by_their_exact_names_word_their_own_failures(tool: str) -> None:
    """SEC-1: in a log, and at the gateway, where its version comes with its name; and in no version from before 1."""
    assert not refused(logged(tool, NO, toolUseResult=f"Error: {NO}"))
    (_, found) = through_gateway(tool, NO, is_error=True)
    assert not found.refused
    for version in ("", "0.1.0", "?", "²"):
        assert not refused(logged("Edit", NO, version=version))


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


@pytest.mark.parametrize("tool", ["shop_lookup", "Edit", "AskUserQuestion", "ExitPlanMode"])
def test_an_export_of_ours_is_not_taken_for_the_clients(tool: str) -> None:
    """SEC-1, ENG-6: it says what is known of each call, so that nothing is told from the text of a result."""
    uses = [{"type": "tool_use", "id": f"t{n}", "name": tool, "input": {}} for n in (1, 2, 3)]
    texts = [NO, "User has approved your plan", NO]
    results = [
        {"type": "tool_result", "tool_use_id": f"t{n}", "content": text, "is_error": n != 2}
        for n, text in enumerate(texts, 1)
    ]
    asked = Message.of("assistant", uses, id=MessageId("a"))

    def back(**told: Any) -> Message:
        answer = Message.of("user", results, id=MessageId("u"), **told)
        lines = b"".join(to_claude_code([asked, answer], session="s", cwd="/w", version="2.1.0"))
        (recording,) = claude_code.read(lines, "log")
        return [step.message for step in recording.steps if isinstance(step, RecordedMessage)][-1]

    assert (back().refused, back().answered) == ((), ())
    known = back(refused=[RefusedCall(ToolUseId("t3"), "host")], answered=["t2"])
    assert known.refused == (RefusedCall(ToolUseId("t3"), "host"),) and known.answered == ("t2",)


def test_a_clients_own_question_brings_its_users_answer() -> None:
    """CMP-15, SEC-1: in Claude Code's logs and Codex's, and at the gateway; a tool of that name elsewhere does not."""
    text, plan = 'User has answered your questions: "Now?"="no".', "User has approved your plan. Go."
    for tool, said, is_users in (
        ("AskUserQuestion", text, True), ("ExitPlanMode", plan, True), ("ExitPlanMode", "Your lead has it.", False),
        ("ask_user", text, False), ("submit_plan", plan, False), ("mcp__x__AskUserQuestion", text, False),
    ):  # fmt: skip
        lines = logged(tool, said)
        lines[1]["message"]["content"][0]["is_error"] = False
        (recording,) = claude_code.read("\n".join(map(json.dumps, lines)).encode(), "log")
        read = [step.message for step in recording.steps if isinstance(step, RecordedMessage)][-1]
        assert read.answered == through_gateway(tool, said)[1].answered == (("t1",) if is_users else ()), tool
    assert not through_gateway("AskUserQuestion", text, agent="my-loop/1.0")[1].answered
    assert through_gateway("request_user_input", "{}", agent="codex_cli_rs/0.50.0 (Linux)")[1].answered == ("t1",)
    beside = {"perdure_item": {"namespace": "mcp__x"}}
    assert not through_gateway("request_user_input", "{}", agent="codex_exec/0.50.0", beside=beside)[1].answered


@pytest.mark.parametrize("more", [{}, {"namespace": "mcp__x"}])
def test_codex_says_beside_a_name_that_it_is_a_servers(more: dict[str, str]) -> None:
    """CMP-15, SEC-1: in its log, too."""
    called = {"type": "function_call", "name": "request_user_input", "arguments": "{}", "call_id": "c1", **more}
    output = {"type": "function_call_output", "call_id": "c1", "output": "{}"}
    lines = [json.dumps({"type": "response_item", "payload": one}) for one in (called, output)]
    (recording,) = codex.read("\n".join(lines).encode(), "rollout")
    read = [step.message for step in recording.steps if isinstance(step, RecordedMessage)][-1]
    assert read.answered == (() if more else ("c1",))


def test_a_message_says_which_calls_were_turned_down() -> None:
    """LIB-1: plain ids are those that the user turned down; others were made."""
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "no", "is_error": True}
    message = Message.of("user", [result], refused=["t1"])
    assert (message.refused_by("t1"), message.refused_by("t2")) == ("user", None)
    one = Message.of("user", [result], refused="t1", answered="t1")
    assert one.refused_by("t1") == "user" and one.answered == ("t1",)


def test_through_the_gateway_the_names_of_tools_are_those_of_the_session() -> None:
    """GW-6, CMP-15: Claude Code says new messages only; who was called stands further up."""
    uses = [
        {"type": "tool_use", "id": f"t{n}", "name": name, "input": {}} for n, name in ((1, "Edit"), (2, "mcp__x__y"))
    ]
    results = [{"type": "tool_result", "tool_use_id": f"t{n}", "content": NO, "is_error": True} for n in (1, 2)]
    before, new = Message.of("assistant", uses), Message.of("user", results)
    (found,) = with_user_words([new], [before], "claude-code", "2.1.197")
    assert found.refused == call("user")
    assert with_user_words([new], [], "claude-code", "2.1.197") == [new]
