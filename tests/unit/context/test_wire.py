"""TURN-9: from a view to API messages: grouping, order, pairs, what is left out, and breakpoints."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from tests.unit.context.making import Talk, call, facts, image, text, thinking

from perdure.context.groups import CONTINUES, NO_RESULT, flatten, lacks_turn
from perdure.context.request import to_request
from perdure.context.view import project
from perdure.testing import check_anthropic
from perdure.transcript.messages import Message, MessageId
from perdure.transcript.records import Front

pytestmark = pytest.mark.unit


def sent(talk: Talk) -> list[tuple[str, list[str]]]:
    """Role and short words of each block."""
    body = to_request(talk.view, facts()).body
    assert not check_anthropic(body)
    return [(m["role"], [short(b) for b in m["content"]]) for m in msgspec.json.decode(body)["messages"]]


def short(block: dict[str, Any]) -> str:
    if block["type"] == "text":
        return str(block["text"])
    return f"{block['type']}:{block.get('id') or block.get('tool_use_id') or ''}"


def test_consecutive_messages_of_one_role_are_one() -> None:
    """TURN-9: merged in order."""
    talk = Talk()
    talk.user("a")
    talk.message("user", text("b"), origin="reminder")
    talk.model(text("c"))
    talk.model(text("d"))
    talk.user("e")
    assert sent(talk) == [("user", ["a", "b"]), ("assistant", ["c", "d"]), ("user", ["e"])]


def test_one_response_is_one_message_whatever_stands_between() -> None:
    """TURN-9, ENG-2: results that came while the answer was still being written don't split it."""
    talk = Talk()
    talk.user("a")
    talk.model(call("x"), response="r")
    talk.result("x", "1")
    talk.model(call("y"), response="r")
    talk.result("y", "2")
    assert sent(talk)[1:] == [
        ("assistant", ["tool_use:x", "tool_use:y"]),
        ("user", ["tool_result:x", "tool_result:y"]),
    ]


def test_results_come_first_in_their_message() -> None:
    """TURN-9: also when a person spoke before they came."""
    talk = Talk()
    talk.user("a")
    talk.model(call("x"), call("y"))
    talk.user("hurry")
    talk.result("y", "2")
    talk.result("x", "1")
    assert sent(talk)[-1] == ("user", ["tool_result:y", "tool_result:x", "hurry"])


def test_a_call_without_a_result_gets_an_error() -> None:
    """TURN-9: at the end, and in the middle."""
    talk = Talk()
    talk.user("a")
    talk.model(call("x"), call("y"))
    talk.result("x", "1")
    assert sent(talk)[-1] == ("user", ["tool_result:x", "tool_result:y"])
    assert NO_RESULT in to_request(talk.view, facts()).body.decode()
    talk.model(text("well"))
    talk.user("b")
    assert sent(talk)[2] == ("user", ["tool_result:x", "tool_result:y"])


def test_orphans_and_second_results_are_left_out() -> None:
    """TURN-9: a result without a call just before it, and a second one for the same call."""
    talk = Talk()
    talk.user("a")
    talk.result("nobody", "0")
    talk.model(call("x"))
    talk.result("x", "1")
    talk.result("x", "again")
    talk.model(text("b"))
    talk.result("x", "much later")
    talk.user("c")
    assert sent(talk) == [
        ("user", ["a"]),
        ("assistant", ["tool_use:x"]),
        ("user", ["tool_result:x"]),
        ("assistant", ["b"]),
        ("user", ["c"]),
    ]


def test_what_the_model_does_not_see() -> None:
    """TURN-9: sub-agents, messages of the system, blank text, unsigned thinking, empty text inside results."""
    talk = Talk()
    talk.user("a")
    talk.message("assistant", text("aside"), agent_id="agent-1")
    talk.message("system", text("hook ran"), origin="system")
    talk.message("user", text(" \n"), text("b"))
    talk.model(thinking(signature=""), text("c"), call("x"))
    talk.result("x", [text(""), text("kept")])
    assert sent(talk) == [
        ("user", ["a", "b"]),
        ("assistant", ["c", "tool_use:x"]),
        ("user", ["tool_result:x"]),
    ]
    assert '"content":[{"type":"text","text":"kept"}]' in to_request(talk.view, facts()).body.decode()


def test_it_begins_and_ends_with_the_user() -> None:
    """TURN-9: a made-up line where nobody spoke; and the engine can ask whether it would be needed."""
    talk = Talk()
    talk.model(text("hello"))
    assert sent(talk) == [("user", [CONTINUES]), ("assistant", ["hello"]), ("user", [CONTINUES])]
    assert lacks_turn(talk.view)
    talk.result("nobody", "0")
    assert lacks_turn(talk.view), "a result that is left out is no turn"
    talk.user("a")
    assert not lacks_turn(talk.view)
    talk.model(call("x"))
    assert not lacks_turn(talk.view), "the missing result is one"


def test_foreign_breakpoints_are_taken_away_and_other_bytes_stay() -> None:
    """TURN-9: cache_control is ours to place; also inside results. Numbers and spelling stay as they came."""
    mark = '"cache_control":{"type":"ephemeral"}'
    use = '{"type": "tool_use", "id": "x", "name": "Read", "input": {"n": 1e5, "cache_control": 1}, ' + mark + "}"
    result = '{"type":"tool_result","tool_use_id":"x","content":[{"type":"text","text":"r", ' + mark + "}]}"
    talk = Talk()
    talk.user("a")
    for role, raw in (("assistant", use), ("user", result)):
        origin = "model" if role == "assistant" else "tool"
        content = (msgspec.Raw(raw.encode()),)
        talk.records.append(
            Message(id=MessageId(role), role=role, content=content, origin=origin)  # type: ignore[arg-type]
        )
    body = to_request(talk.view, facts()).body.decode()
    assert '"input":{"n": 1e5, "cache_control": 1}' in body
    assert '"content":[{"type":"text","text":"r"}]' in body
    assert body.count('"cache_control":{') <= 4
    assert not check_anthropic(body.encode())


def marks(talk: Talk, **settings: Any) -> list[str]:
    """Where breakpoints stand, as paths."""
    body = msgspec.json.decode(to_request(talk.view, facts(**settings)).body)
    found = [f"tools.{n}" for n, tool in enumerate(body.get("tools", [])) if "cache_control" in tool]
    found += [f"system.{n}" for n, block in enumerate(body.get("system", [])) if "cache_control" in block]
    for number, message in enumerate(body["messages"]):
        found += [f"messages.{number}" for block in message["content"] if "cache_control" in block]
    return found


def fronted(dynamic_from: int | None = None, system: int = 2) -> Talk:
    talk = Talk()
    blocks = tuple(msgspec.Raw(msgspec.json.encode(text(f"part {n}"))) for n in range(system))
    tools = (msgspec.Raw(b'{"name":"Read","input_schema":{"type":"object"}}'),)
    talk.records.append(Front(model="m", system=blocks, tools=tools, dynamic_from=dynamic_from))
    return talk


@pytest.mark.parametrize(
    ("dynamic_from", "system", "mark"),
    [(None, 2, "system.1"), (1, 2, "system.0"), (0, 2, "tools.0"), (None, 0, "tools.0")],
)
def test_the_front_has_one_breakpoint_before_its_dynamic_part(dynamic_from: int | None, system: int, mark: str) -> None:
    """TURN-9: the stable part of the system prompt comes before a named boundary."""
    talk = fronted(dynamic_from, system)
    talk.user("a")
    assert marks(talk) == [mark, "messages.0"]


def test_breakpoints_at_the_tail_and_where_the_last_request_ended() -> None:
    """TURN-9: never more than four."""
    talk = fronted()
    talk.user("a")
    talk.model(text("b"))
    talk.user("c")
    found = marks(talk)
    assert {"system.1", "messages.0", "messages.2"} <= set(found)
    assert len(found) <= 4
    talk.model(*(call(f"x{n}") for n in range(12)))
    for n in range(12):
        talk.result(f"x{n}", "r")
    found = marks(talk)
    assert found[0] == "system.1"
    assert found[-1] == "messages.4"
    assert "messages.2" in found
    assert len(found) <= 4
    assert '"ttl":"1h"' in to_request(talk.view, facts(cache_ttl="1h")).body.decode()


def test_no_breakpoint_on_thinking() -> None:
    """TURN-9: the API refuses one there."""
    talk = fronted()
    talk.user("a")
    talk.model(thinking())
    assert not check_anthropic(to_request(talk.view, facts()).body)


def test_a_request_stays_as_it_was_made() -> None:
    """TURN-9: what is said later doesn't reach into a request that was made before."""
    talk = Talk()
    talk.user("a")
    view = talk.view
    request = to_request(view, facts())
    before = request.parts()
    again = project([talk.user("b")], onto=view)
    again.flat, view.flat = view.flat, None
    flatten(again)
    assert request.parts() == before


def test_images_are_sent_as_they_came() -> None:
    """REL-5: media blocks too."""
    talk = Talk()
    talk.message("user", text("look"), image("aGk="))
    assert msgspec.json.encode(image("aGk="))[:-1] in to_request(talk.view, facts()).body


@pytest.mark.parametrize("stream", [True, False])
def test_the_head_of_the_body(stream: bool) -> None:
    """TURN-9: model, output limit and streaming come first, so that the messages end the body."""
    talk = fronted()
    talk.user("a")
    body = to_request(talk.view, facts(max_output_tokens=99), stream=stream).body
    assert re.match(rb'\{"model":"m","max_tokens":99' + (rb',"stream":true' if stream else b",") + b"", body)
