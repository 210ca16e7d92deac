"""TURN-9: the same view in the words of Chat Completions."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.unit.context.making import Talk, call, facts, image, text, thinking

from perdure.context.groups import NO_RESULT
from perdure.context.request import to_request
from perdure.testing import check_openai
from perdure.transcript.records import Front

pytestmark = pytest.mark.unit


def body(talk: Talk, *, stream: bool = False) -> dict[str, Any]:
    request = to_request(talk.view, facts(), protocol="openai", stream=stream)
    assert not check_openai(request.body)
    decoded: dict[str, Any] = msgspec.json.decode(request.body)
    return decoded


def test_results_become_tool_messages_behind_their_calls() -> None:
    """TURN-9: one for each call, media in the user message after them."""
    talk = Talk()
    talk.user("a")
    talk.model(text("b"), call("x", "Read", file_path="f"), call("y", "Shot"))
    talk.result("y", [text("seen"), image("aGk=")])
    talk.result("x", "r", is_error=True)
    talk.user("c")
    user, assistant, one, two, last = body(talk)["messages"]
    assert user == {"role": "user", "content": "a"}
    assert assistant["content"] == "b"
    assert [c["id"] for c in assistant["tool_calls"]] == ["x", "y"]
    assert assistant["tool_calls"][0]["function"] == {"name": "Read", "arguments": '{"file_path":"f"}'}
    assert one == {"role": "tool", "tool_call_id": "y", "content": "seen"}
    assert two == {"role": "tool", "tool_call_id": "x", "content": "[error] r"}
    assert last["content"] == [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
        {"type": "text", "text": "c"},
    ]


def test_a_call_without_a_result_is_answered() -> None:
    """TURN-9: the same synthetic error."""
    talk = Talk()
    talk.user("a")
    talk.model(call("x"))
    assert body(talk)["messages"][-1] == {"role": "tool", "tool_call_id": "x", "content": f"[error] {NO_RESULT}"}


def test_thinking_stays_away_and_an_empty_answer_says_so() -> None:
    """TURN-9: it isn't part of the protocol, and no message may be empty."""
    talk = Talk()
    talk.user("a")
    talk.model(thinking())
    talk.user("b")
    assert [m["content"] for m in body(talk)["messages"]] == ["a", "(no text)", "b"]


def test_arguments_that_were_no_json_go_back_as_they_came() -> None:
    """ENG-1: imported from a log of this protocol."""
    talk = Talk()
    talk.user("a")
    talk.model(call("x", "Read", _raw="{broken"))
    talk.result("x", "r")
    assert body(talk)["messages"][1]["tool_calls"][0]["function"]["arguments"] == "{broken"


def test_the_front_in_this_protocol() -> None:
    """TURN-9: one system message, functions; tools of Anthropic's servers are left out."""
    talk = Talk()
    tools = (
        {"name": "Read", "description": "reads", "input_schema": {"type": "object"}},
        {"type": "web_search_20250305", "name": "web_search"},
        {"type": "function", "function": {"name": "f", "parameters": {}}},
    )
    system = (text("one"), text("two"))
    talk.records.append(
        Front(
            model="gpt",
            system=tuple(msgspec.Raw(msgspec.json.encode(block)) for block in system),
            tools=tuple(msgspec.Raw(msgspec.json.encode(tool)) for tool in tools),
        )
    )
    talk.user("a")
    made = body(talk, stream=True)
    assert made["model"] == "gpt"
    assert made["messages"][0] == {"role": "system", "content": "one\n\ntwo"}
    assert [tool["function"]["name"] for tool in made["tools"]] == ["Read", "f"]
    assert made["tools"][0]["function"]["parameters"] == {"type": "object"}
    assert made["stream_options"] == {"include_usage": True}


def test_documents_and_strangers_find_words() -> None:
    """TURN-9: a text document is text, a PDF a file, anything else its JSON."""
    talk = Talk()
    talk.message(
        "user",
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "words"}},
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "aGk="}},
        {"type": "new_kind", "x": 1},
    )
    parts = body(talk)["messages"][0]["content"]
    assert parts[0] == {"type": "text", "text": "words"}
    assert parts[1]["file"]["file_data"] == "data:application/pdf;base64,aGk="
    assert parts[2] == {"type": "text", "text": '{"type":"new_kind","x":1}'}
