"""Items of the Responses API as messages, and back (GW-6)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.context.making import facts

from perdure.adapters.providers.responses import reply_of_response
from perdure.context.request import to_request
from perdure.context.view import project
from perdure.engine.follow import in_answers
from perdure.errors import MalformedBlock
from perdure.gateway.requests import taken_apart
from perdure.gateway.responses import ResponsesProtocol
from perdure.testing.responses_rules import check_responses
from perdure.transcript.history import DigestLimits, digest
from perdure.transcript.messages import MessageId
from perdure.transcript.response_items import answer_messages, items_of, message_of_items

pytestmark = pytest.mark.unit
PNG = "data:image/png;base64,iVBORw0KGgo="
Item = dict[str, Any]


def raw(item: Item) -> bytes:
    return msgspec.json.encode(item)


def there_and_back(item: Item) -> list[Item]:
    message = message_of_items([raw(item)])
    return [msgspec.json.decode(one) for one in items_of(message.role, [block.raw for block in message.blocks])]


words = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=20)
said = st.text(alphabet="abc é\n", min_size=1, max_size=20).filter(str.strip)
ids = st.text(alphabet="abcXYZ019_-", min_size=1, max_size=12)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | words,
    lambda inner: st.lists(inner) | st.dictionaries(words, inner),
    max_leaves=4,
)
more = st.dictionaries(st.sampled_from(["id", "status", "phase", "caller", "x_unknown", "async"]), plain, max_size=3)


def with_more(item: st.SearchStrategy[Item]) -> st.SearchStrategy[Item]:
    return st.builds(lambda rest, own: {**rest, **own}, more, item)


def part(kind: str) -> st.SearchStrategy[Item]:
    text = st.builds(
        lambda t, rest: {"type": kind, "text": t, **rest},
        words,
        st.sampled_from([{}, {"annotations": [], "logprobs": []}, {"zz": 1.5}]),
    )
    odd = st.sampled_from(
        [
            {"type": "input_file", "file_id": "f"},
            {"type": "input_image", "file_id": "f", "detail": "low"},
            {"type": "x_new", "a": [1]},
        ]
    )
    image = st.sampled_from(
        [
            {"type": "input_image", "image_url": PNG},
            {"type": "input_image", "image_url": "https://a/b.png", "detail": "auto"},
            {"type": "input_image", "image_url": "data:image/tiff;base64,xx"},
        ]
    )
    return (
        st.one_of(text, odd, image)
        if kind == "input_text"
        else st.one_of(text, st.builds(lambda t: {"type": "refusal", "refusal": t}, words))
    )


def message(role: str) -> st.SearchStrategy[Item]:
    content = words | st.lists(part("output_text" if role == "assistant" else "input_text"), max_size=3)
    typed = st.sampled_from([{}, {"type": "message"}])
    return with_more(st.builds(lambda kind, content: {**kind, "role": role, "content": content}, typed, content))


arguments = st.one_of(
    words,
    st.builds(lambda v: msgspec.json.encode(v).decode(), st.dictionaries(words, plain)),
    st.sampled_from(['{ "a" : 1 }', '{\n "a": 1}', '{"_raw": "x"}', "[1]", "", '{"a":1e999}']),
)
outputs = words | st.lists(part("input_text"), max_size=2)
calls = st.one_of(
    st.builds(
        lambda c, a: {"type": "function_call", "call_id": c, "name": "f", "arguments": a},
        ids | st.just("f:0"),
        arguments,
    ),
    st.builds(lambda c, a: {"type": "custom_tool_call", "call_id": c, "name": "apply_patch", "input": a}, ids, words),
    st.builds(
        lambda c, a: {"type": "local_shell_call", "call_id": c, "action": {"type": "exec", "command": [a], "env": {}}},
        ids,
        words,
    ),
    st.builds(lambda c, a: {"type": "shell_call", "call_id": c, "action": {"commands": [a]}}, ids, words),
    st.builds(
        lambda c, a: {"type": "apply_patch_call", "call_id": c, "operation": {"type": "delete_file", "path": a}},
        ids,
        words,
    ),
    st.builds(lambda c, a: {"type": "computer_call", "call_id": c, "actions": [{"type": a}]}, ids, words),
)
results = st.one_of(
    st.builds(lambda c, o: {"type": "function_call_output", "call_id": c, "output": o}, ids | st.just("f:0"), outputs),
    st.builds(lambda c, o: {"type": "custom_tool_call_output", "call_id": c, "output": o}, ids, outputs),
    st.builds(lambda c, o: {"type": "local_shell_call_output", "id": c, "output": o}, ids, words),
    st.builds(
        lambda c, o: {"type": "shell_call_output", "call_id": c, "output": o},
        ids,
        st.lists(st.builds(lambda t: {"stdout": t, "stderr": "", "outcome": {"type": "timeout"}}, words), max_size=2),
    ),
    st.builds(lambda c: {"type": "apply_patch_call_output", "call_id": c, "status": "completed"}, ids),
    st.builds(
        lambda c, u: {"type": "computer_call_output", "call_id": c, "output": {"type": "computer_screenshot", **u}},
        ids,
        st.sampled_from([{"image_url": PNG}, {"file_id": "f"}]),
    ),
)
others = st.builds(
    lambda kind, rest: {**rest, "type": kind},
    st.sampled_from(
        "reasoning web_search_call mcp_call image_generation_call compaction item_reference x_call x_output".split()
    ),
    st.dictionaries(words, plain, max_size=3),
)
any_item = st.one_of(
    message("user"),
    message("assistant"),
    message("developer"),
    message("system"),
    with_more(calls),
    with_more(results),
    others,
)


@given(any_item)
def test_an_item_comes_back_as_it_was(item: Item) -> None:
    """GW-6: whatever an item holds, known or unknown, a message says it all again."""
    item = {
        name: value
        for name, value in item.items()
        if not (item.get("type") == "local_shell_call_output" and name == "call_id")
    }
    assert there_and_back(item) == [item]


def turn(number: int, user: str, calls: list[Item], end: str) -> list[Item]:
    """A turn as a client sends it back: reasoning, calls that it answered, reasoning, and words."""
    answers = []
    for at, call in enumerate(calls):
        call |= {"call_id": f"call_{number}_{at}", **({"id": f"ctc_{number}_{at}"} if "id" in call else {})}
        answers.append({"type": f"{call['type']}_output", "call_id": call["call_id"], "output": "done"})
    thought = {"type": "reasoning", "id": f"rs_{number}", "summary": [], "encrypted_content": "gAAAA"}
    last = {
        "type": "message",
        "id": f"msg_{number}",
        "role": "assistant",
        "status": "completed",
        "phase": "final_answer",
        "content": [{"type": "output_text", "text": end, "annotations": []}],
    }
    return [
        {"role": "user", "content": user},
        *([thought, *calls, *answers] if calls else []),
        {**thought, "id": f"rs_{number}b"},
        last,
    ]


own_calls = st.sampled_from(
    [
        {"type": "function_call", "name": "f", "arguments": "{}"},
        {"type": "custom_tool_call", "name": "g", "input": "x", "id": "ctc_1"},
    ]
)
turns = st.lists(st.tuples(said, st.lists(own_calls.map(dict), max_size=3), said), min_size=1, max_size=4)


def view_of(items: list[Item]) -> Any:
    protocol = ResponsesProtocol()
    body = msgspec.json.encode({"model": "m", "input": items})
    read = protocol.read(body, taken_apart(body, None, "input"))
    messages = [
        msgspec.structs.replace(one, id=MessageId(f"m{n}")) for n, one in enumerate(protocol.messages(read.history))
    ]
    return project([protocol.front(read), *in_answers(messages, project([]))])


@given(turns)
def test_a_history_that_nothing_was_done_to_is_sent_as_it_came(given_turns: list[Any]) -> None:
    """GW-6: items to the view and back are the same list, and one that the API takes."""
    items: list[Item] = [{"type": "message", "role": "developer", "content": "Be brief."}]
    for number, (user, calls, end) in enumerate(given_turns):
        items += turn(number, user, calls, end)
    items.append({"role": "user", "content": "go on"})
    request = to_request(view_of(items), facts(), protocol="responses", head={"model": "m", "store": False})
    sent = msgspec.json.decode(request.body)
    assert sent["input"] == items
    assert not check_responses(request.body)


def test_reasoning_that_means_nothing_to_the_server_goes_with_the_id_of_what_it_led_to() -> None:
    """GW-6: nothing stored and nothing encrypted: neither the reasoning nor the id that would miss it is sent."""
    call = {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": "{}"}
    items = [
        {"role": "user", "content": "hi"},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        call,
        {"type": "function_call_output", "call_id": "c", "output": "x"},
    ]
    for store, expected in ((True, items), (False, [items[0], {k: v for k, v in call.items() if k != "id"}, items[3]])):
        request = to_request(view_of(items), facts(), protocol="responses", head={"model": "m", "store": store})
        assert msgspec.json.decode(request.body)["input"] == expected


def test_a_call_without_a_result_is_answered_in_its_own_kind() -> None:
    """GW-6: a custom call that was interrupted is answered by the output of a custom call."""
    items: list[Item] = [
        {"role": "user", "content": "hi"},
        {"type": "custom_tool_call", "call_id": "c", "name": "g", "input": "x"},
        {
            "type": "local_shell_call",
            "id": "lsh_1",
            "call_id": "d",
            "action": {"type": "exec", "command": [], "env": {}},
        },
        {"role": "user", "content": "stop"},
    ]
    request = to_request(view_of(items), facts(), protocol="responses", head={"model": "m"})
    kinds = [item.get("type") for item in msgspec.json.decode(request.body)["input"]]
    assert kinds == [
        None,
        "custom_tool_call",
        "local_shell_call",
        "custom_tool_call_output",
        "local_shell_call_output",
        None,
    ]
    assert not check_responses(request.body)


@pytest.mark.parametrize("protocol", ["anthropic", "openai"])
def test_another_wire_sees_none_of_what_only_this_one_knows(protocol: Any) -> None:
    """GW-6: a helper of another provider is asked in that provider's words alone."""
    items = [
        {"role": "user", "content": "hi", "x": 1},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "e"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "x", "y": 1}]},
    ]
    body = to_request(view_of(items), facts(), protocol=protocol).body
    assert b"response_" not in body and b"encrypted" not in body and b"web_search_call" in body


@pytest.mark.parametrize(
    "item",
    [
        {},
        {"role": "robot", "content": "x"},
        {"type": "function_call", "name": "f"},
        {"type": "message", "role": "user"},
        {"type": "message", "role": "user", "content": [1]},
        [],
        3,
    ],
)
def test_what_is_no_item_is_refused(item: Any) -> None:
    """GW-6: the request passes through then, for its server to say what is wrong."""
    if item == {}:
        assert there_and_back({"id": "x"}) == [{"id": "x"}]
        return
    with pytest.raises(MalformedBlock):
        message_of_items([raw(item)])


def test_an_answer_is_said_again_item_by_item() -> None:
    """GW-6: what the client will send back has the digests of what was recorded, with ids and without."""
    output: list[Item] = [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "e"},
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "a", "annotations": []}, {"type": "refusal", "refusal": "b"}],
        },
        {"type": "message", "id": "msg_2", "role": "assistant", "status": "completed", "content": []},
        {"type": "reasoning", "id": "rs_2", "summary": []},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}},
        {"type": "shell_call", "id": "sh_1", "call_id": "c", "action": {"commands": ["ls"]}},
        {
            "type": "shell_call_output",
            "id": "sho_1",
            "call_id": "c",
            "output": [{"stdout": "x", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
        },
        {"type": "function_call", "id": "fc_1", "call_id": "d", "name": "f", "arguments": "{}", "status": "completed"},
    ]
    reply = reply_of_response({"id": "resp_1", "status": "completed", "output": output}, "m")
    said = answer_messages(reply.blocks)
    assert [
        item
        for role, blocks in said
        for item in (msgspec.json.decode(one) for one in items_of(role, [b.raw for b in blocks]))
    ] == output
    assert reply.stop_reason == "tool_use"
    protocol = ResponsesProtocol()
    bare = [{k: v for k, v in item.items() if k not in ("id", "status")} for item in output]
    for sent in (output, bare):
        body = msgspec.json.encode({"model": "m", "input": [{"role": "user", "content": "hi"}, *sent]})
        read = protocol.read(body, taken_apart(body, None, "input"))
        found = [protocol.digest(bytes(one), DigestLimits()) for one in read.history[1:]]
        assert found == [digest(role, [msgspec.json.decode(block.raw) for block in blocks]) for role, blocks in said]
