"""SM-3: where a fork begins, what it sends, and where it reads the cache."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.unit.context.making import Talk, call, facts, text, thinking

from perdure.compaction.side_requests import ForkTurn, can_go_on, fork_base, fork_request
from perdure.context.replies import ModelInfo, Reply
from perdure.context.view import ContextView
from perdure.testing import check_anthropic
from perdure.transcript.blocks import block_of
from perdure.transcript.messages import ResponseId, ToolUseId
from perdure.transcript.records import BlockChange, Cleared, Settled

pytestmark = pytest.mark.unit
OWN = ModelInfo(id="m", protocol="anthropic")


def asked(view: ContextView, about: ModelInfo = OWN, *said: ForkTurn, **settings: Any) -> dict[str, Any]:
    known = facts(**settings)
    base = fork_base(view, known, about)
    assert base is not None
    request, _ = fork_request(view, known, base, about, ("do it", said))
    if about.protocol == "anthropic":
        assert not check_anthropic(request.body)
    body: dict[str, Any] = msgspec.json.decode(request.body)
    return {**body, "betas": request.betas, "upto": base.upto}


def reply(*blocks: dict[str, Any]) -> Reply:
    return Reply(response=ResponseId("f"), model="m", blocks=tuple(map(block_of, blocks)), stop_reason="end_turn")


def marked(body: dict[str, Any]) -> list[tuple[int, int]]:
    return [
        (number, index)
        for number, message in enumerate(body["messages"])
        for index, block in enumerate(message["content"])
        if "cache_control" in block
    ]


def test_nothing_sent_is_nothing_to_fork() -> None:
    talk = Talk()
    assert fork_base(talk.view, facts(), OWN) is None
    talk.user("hello")
    assert fork_base(talk.view, facts(), OWN) is None


def test_the_breakpoint_is_where_the_last_request_ended() -> None:
    """Behind the answer stands the instruction, before it the breakpoint; the first turn writes nothing else."""
    talk = Talk()
    talk.user("one")
    talk.ran("c1", "Read", "text")
    talk.model(text("done"))
    body = asked(talk.view)
    assert marked(body) == [(2, 0)] and body["upto"] == 4
    assert body["messages"][-1] == {"role": "user", "content": [text("do it")]}
    denied = ForkTurn(reply(text("Let me see."), call("f1")), ((ToolUseId("f1"), "denied", True),))
    body = asked(talk.view, OWN, denied)
    assert marked(body) == [(2, 0), (6, 0)], "a second turn writes what the first brought"
    assert body["messages"][-1]["content"][0]["is_error"] and body["messages"][-2]["content"][1]["name"] == "Read"


def test_what_came_after_the_answer_is_left_out() -> None:
    """It was never sent, and no pass has looked at it; so are open calls, with all of their answer."""
    talk = Talk()
    talk.user("one")
    talk.model(thinking(), call("c1"), call("c2"))
    talk.result("c1", "x" * 90_000)
    body = asked(talk.view)
    assert body["upto"] == 1 and body["messages"] == [
        {"role": "user", "content": [body_mark(text("one")), text("do it")]}
    ]
    talk.result("c2", "text")
    assert asked(talk.view)["upto"] == 1, "closed, but not sent"
    talk.model(text("done"))
    talk.user("two")
    assert asked(talk.view)["upto"] == 5


def body_mark(block: dict[str, Any]) -> dict[str, Any]:
    return {**block, "cache_control": {"type": "ephemeral"}}


def test_a_late_result_changes_no_byte_of_what_was_sent() -> None:
    """A call that was answered by a synthetic error stays so."""
    talk = Talk()
    talk.user("one")
    talk.model(call("c1"))
    talk.records.append(Settled(tool_use_ids=(ToolUseId("c1"),)))
    talk.user("interrupted")
    talk.model(text("I see"))
    before = asked(talk.view)["messages"][:3]
    talk.result("c1", "late")
    talk.model(text("ok"))
    assert asked(talk.view)["messages"][:2] == [without(one) for one in before][:2]
    assert "No result" in before[2]["content"][0]["content"]


def without(message: dict[str, Any]) -> dict[str, Any]:
    content = [{name: value for name, value in one.items() if name != "cache_control"} for one in message["content"]]
    return {**message, "content": content}


def test_after_an_edit_only_what_stands_before_it_is_cached() -> None:
    talk = Talk()
    for number in range(4):
        talk.user(f"part {number}")
        talk.ran(f"c{number}", "Read", f"text {number}")
    talk.model(text("done"))
    assert marked(asked(talk.view)) == [(8, 0)]
    read = talk.view.items[talk.view.results[ToolUseId("c1")].position].message
    new = block_of({"type": "tool_result", "tool_use_id": "c1", "content": "[cleared]"})
    change = BlockChange(read.id, 0, msgspec.Raw(new.raw))
    talk.records.append(Cleared(trigger="size", tool_use_ids=(ToolUseId("c1"),), changes=(change,)))
    body = asked(talk.view)
    assert marked(body) == [(3, 0)] and body["messages"][4]["content"][0]["content"] == "[cleared]"


def test_another_model_gets_no_thinking_and_no_breakpoint() -> None:
    talk = Talk()
    talk.user("one")
    talk.model(thinking(), text("done"))
    body = asked(talk.view, ModelInfo(id="other", protocol="anthropic"))
    assert body["model"] == "other" and not marked(body)
    assert [block["type"] for block in body["messages"][1]["content"]] == ["text"]
    assert [block["type"] for block in asked(talk.view)["messages"][1]["content"]] == ["thinking", "text"]


def test_the_provider_doesnt_compact_a_fork() -> None:
    """PRS-5: nothing is asked of it, but a conversation that holds its summary is still understood."""
    talk = Talk()
    talk.user("one")
    talk.model(text("done"))
    body = asked(talk.view, provider_compaction=True)
    assert "context_management" not in body and any("compact" in beta for beta in body["betas"])


def test_a_tool_of_the_providers_that_is_open_is_left_out() -> None:
    """Only results may follow it, so no instruction can."""
    talk = Talk()
    talk.user("one")
    talk.model(text("done"))
    talk.user("search")
    talk.model({"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "x"}})
    assert asked(talk.view)["upto"] == 3
    found = {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []}
    talk.records.pop()
    talk.model({"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "x"}}, found)
    assert asked(talk.view)["upto"] == 4


@pytest.mark.parametrize(
    ("blocks", "can"),
    [
        ([text("a")], True),
        ([thinking(), call("c")], True),
        ([thinking()], True),
        ([thinking(signature=""), text(" ")], False),
        ([call("c"), {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}], False),
    ],
)
def test_what_can_be_gone_on_with(blocks: list[dict[str, Any]], can: bool) -> None:
    assert can_go_on(reply(*blocks)) is can


def test_a_lone_text_stays_a_string_for_openai() -> None:
    """What stood there keeps its bytes; two texts stay a list, and results are messages of their own."""
    openai = ModelInfo(id="m", protocol="openai")
    talk = Talk()
    talk.user("one")
    talk.model(call("c1"))
    assert asked(talk.view, openai)["messages"] == [{"role": "user", "content": "one\n\ndo it"}]
    talk.result("c1", "text")
    talk.model(call("c2"))
    last = asked(talk.view, openai)["messages"][-2:]
    assert [one["role"] for one in last] == ["tool", "user"] and last[1]["content"] == "do it"
