"""GW-7: what a client says in words that we don't read goes up again byte for byte, in any view."""

from __future__ import annotations

import msgspec
import pytest

from perdure.context.models import UNKNOWN
from perdure.context.passes import neutral, neutral_texts
from perdure.context.policy import Facts, thresholds
from perdure.context.request import to_request
from perdure.context.view import ContextView, project
from perdure.gateway.anthropic import AnthropicProtocol
from perdure.gateway.openai import OpenAIProtocol
from perdure.gateway.requests import ClientProtocol
from perdure.settings import Settings
from perdure.transcript.codec import decode_line, encode_line
from perdure.transcript.history import DigestLimits
from perdure.transcript.messages import Message, MessageId
from perdure.transcript.records import Record, Worded

ODD = rb'{"z":1.50,"a":[ 1e3,"\u00e9\/",null],"big":12345678901234567890}'  # other bytes than an encoder would write
FACTS = Facts(settings=Settings(), limits=thresholds(Settings(), UNKNOWN, 100_000, "default"))


def view_of(side: ClientProtocol, raws: list[bytes]) -> ContextView:
    """The view of a client's messages, by way of a journal."""
    said = side.messages([msgspec.Raw(raw) for raw in raws])
    records: list[Record] = [msgspec.structs.replace(one, id=MessageId(f"m{n}")) for n, one in enumerate(said)]
    return project(decode_line(encode_line(1, tuple(records))).records)


def sent(side: ClientProtocol, view: ContextView) -> list[bytes]:
    """The messages that go upstream."""
    fields = msgspec.json.decode(
        to_request(view, FACTS, protocol=side.protocol, head={"model": "m"}).body, type=dict[str, msgspec.Raw]
    )
    return [bytes(raw) for raw in msgspec.json.decode(fields["messages"], type=list[msgspec.Raw])]


CHAT = OpenAIProtocol()
CALL = b'{"id":"functions.Read:0","type":"function","function":{"name":"Read","arguments":"{\\"a\\": 1}"%b}%b}'


def test_fields_of_chat_messages_and_calls() -> None:
    """GW-7: DeepSeek's reasoning, Gemini's signatures, names, and what nobody knows yet."""
    raws = [
        b'{"role":"user","content":"hello","name":"ann","odd":%b}' % ODD,
        b'{"role":"assistant","content":"","reasoning_content":"I think\\u2026","tool_calls":[%b]}'
        % (CALL % (b',"x":%b' % ODD, b',"extra_content":{"google":{"thought_signature":"c2ln"}}')),
        b'{"role":"tool","tool_call_id":"functions.Read:0","content":"text","name":"Read","odd":%b}' % ODD,
        b'{"role":"assistant","content":"done","reasoning_details":[{"type":"reasoning.encrypted","data":"\\/"}]}',
        b'{"role":"user","content":"next"}',
    ]
    got = sent(CHAT, view_of(CHAT, raws))
    assert [msgspec.json.decode(raw) for raw in got] == [msgspec.json.decode(raw) for raw in raws]
    for raw, field in zip(
        got, (b'"odd":' + ODD, b'"x":' + ODD, b'"odd":' + ODD, b'"data":"\\/"', b'"next"'), strict=True
    ):
        assert field in raw
    assert b'"extra_content":{"google":{"thought_signature":"c2ln"}}' in got[1]
    assert b'"reasoning_content":"I think\\u2026"' in got[1]


def test_parts_of_contents() -> None:
    """GW-7: a list stays a list, with what its parts say besides; kinds that only the server knows stay whole."""
    raws = [
        b'{"role":"user","content":[{"type":"text","text":"a","cache_control":{"type":"ephemeral","ttl":"1h"}},'
        b'{"type":"image_url","image_url":{"url":"https://x/y.png","detail":"low"},"odd":%b},'
        b'{"type":"video_url","video_url":{"url":"v"},"odd":%b}]}' % (ODD, ODD),
        b'{"role":"assistant","content":[{"type":"text","text":"b","annotations":[]}],"tool_calls":[%b]}'
        % (CALL % (b"", b"")),
        b'{"role":"tool","tool_call_id":"functions.Read:0","content":[{"type":"text","text":"c","odd":%b},'
        b'{"type":"image_url","image_url":{"url":"https://x/z.png","detail":"high"}},{"type":"text","text":"d"}]}'
        % ODD,
    ]
    got = sent(CHAT, view_of(CHAT, raws))
    assert [msgspec.json.decode(raw) for raw in got] == [msgspec.json.decode(raw) for raw in raws]
    assert got[0].count(ODD) == 2 and ODD in got[2]


def test_texts_are_joined_where_the_client_sends_strings() -> None:
    """GW-7: servers that take only strings get strings, also where two messages became one."""
    raws = [b'{"role":"user","content":"a"}', b'{"role":"user","content":"b"}', b'{"role":"assistant","content":"c"}']
    raws += [b'{"role":"user","content":[{"type":"text","text":"d"}]}', b'{"role":"user","content":"e"}']
    got = [msgspec.json.decode(raw)["content"] for raw in sent(CHAT, view_of(CHAT, raws))]
    assert got == ["a\n\nb", "c", [{"type": "text", "text": "d"}, {"type": "text", "text": "e"}]]


def test_messages_that_become_one_keep_both_fields_or_stay_two() -> None:
    """GW-7: a field that can't hold for both keeps them apart."""
    raws = [b'{"role":"user","content":"a","name":"ann"}', b'{"role":"user","content":"b","odd":1}']
    raws += [b'{"role":"user","content":"c","name":"bob"}']
    assert [msgspec.json.decode(raw) for raw in sent(CHAT, view_of(CHAT, raws))] == [
        {"role": "user", "content": "a\n\nb", "name": "ann", "odd": 1},
        {"role": "user", "content": "c", "name": "bob"},
    ]


@pytest.mark.parametrize("role", ["system", "developer"])
def test_system_messages_in_mid_conversation(role: str) -> None:
    """GW-7: they stay where they were, in their own words, and aren't what tells a user's words from another's."""
    raws = [b'{"role":"user","content":"a"}', b'{"role":"assistant","content":"b"}']
    raws += [b'{"role":"%b","content":"be brief","name":"ops"}' % role.encode(), b'{"role":"user","content":"c"}']
    view = view_of(CHAT, raws)
    assert [msgspec.json.decode(raw) for raw in sent(CHAT, view)] == [msgspec.json.decode(raw) for raw in raws]
    assert [item.message.origin for item in view.items] == ["user", "model", "reminder", "user"]
    words = [CHAT.digest(b'{"role":"%b","content":"x"}' % one, DigestLimits()) for one in (role.encode(), b"user")]
    assert words[0] != words[1]


MESSAGES = AnthropicProtocol()


def test_fields_of_anthropic_messages_and_blocks() -> None:
    """GW-7: of messages, of blocks, of parts of results, and blocks of unknown kinds."""
    raws = [
        b'{"role":"user","content":[{"type":"text","text":"a","odd":%b},{"type":"new_kind","odd":%b}],"odd":%b}'
        % (ODD, ODD, ODD),
        b'{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"Read","input":{"a":%b},"odd":%b}]}'
        % (ODD, ODD),
        b'{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"r","odd":%b}],"odd":%b}]}'
        % (ODD, ODD),
    ]
    got = sent(MESSAGES, view_of(MESSAGES, raws))
    assert [raw.count(ODD) for raw in got] == [3, 2, 2]
    assert got[0][-len(ODD) - 7 :] == b'"odd":%b}' % ODD


def test_anthropics_system_messages_in_mid_conversation() -> None:
    """GW-7, G5: behind the user's message that they follow, with their own fields; a view says it like its client."""
    raws = [
        b'{"role":"user","content":"a"}',
        b'{"role":"system","content":[{"type":"text","text":"be brief"}],"clear_at":"never"}',
        b'{"role":"assistant","content":"b"}',
        b'{"role":"user","content":"c"}',
    ]
    got = [msgspec.json.decode(raw) for raw in sent(MESSAGES, view_of(MESSAGES, raws))]
    assert [one["role"] for one in got] == ["user", "system", "assistant", "user"]
    del got[1]["content"][0]["cache_control"]  # the breakpoint at the end of what is cached
    assert got[1] == msgspec.json.decode(raws[1])


def test_a_system_message_where_none_can_stand_is_a_reminder() -> None:
    """GW-7, TURN-10: behind no user's message the API takes none; so it is said in the user's turn."""
    raws = [b'{"role":"user","content":"a"}', b'{"role":"assistant","content":"b"}']
    raws += [b'{"role":"system","content":"be brief"}']
    got = [msgspec.json.decode(raw) for raw in sent(MESSAGES, view_of(MESSAGES, raws))]
    assert [one["role"] for one in got] == ["user", "assistant", "user"]
    assert "<system-reminder>\nbe brief" in got[-1]["content"][0]["text"]


def test_the_words_of_one_protocol_stay_out_of_the_other() -> None:
    """GW-7: a session that goes on with another server sends it nothing that it would refuse."""
    raws = [b'{"role":"user","content":"a","name":"ann"}', b'{"role":"system","content":"s"}']
    got = [msgspec.json.decode(raw) for raw in sent(MESSAGES, view_of(CHAT, raws))]
    assert got == [{"role": "user", "content": got[0]["content"]}]
    assert [part["text"] for part in got[0]["content"]] == ["a", "<system-reminder>\ns\n</system-reminder>"]


def test_how_a_client_words_an_answer_is_learned_later() -> None:
    """GW-7: the answer stays what it was; what the client says around it is a record of its own."""
    answer = Message.of(
        "assistant",
        [
            {"type": "thinking", "thinking": "hm", "signature": ""},
            {"type": "text", "text": "b"},
            {"type": "tool_use", "id": "c1", "name": "Read", "input": {}},
        ],
        id=MessageId("m1"),
    )
    (user,) = CHAT.messages([msgspec.Raw(b'{"role":"user","content":"a"}')])
    (said,) = CHAT.messages(
        [
            msgspec.Raw(
                b'{"role":"assistant","content":[{"type":"text","text":"b","odd":1}],"reasoning_content":"hm","tool_calls":'
                b'[{"id":"c1","type":"function","function":{"name":"Read","arguments":"{}"},"extra_content":{"sig":1}}]}'
            )
        ]
    )
    records = (
        msgspec.structs.replace(user, id=MessageId("m0")),
        answer,
        Worded(message=MessageId("m1"), wire=said.wire),
    )
    _, got, _ = (msgspec.json.decode(raw) for raw in sent(CHAT, project(decode_line(encode_line(1, records)).records)))
    assert got["reasoning_content"] == "hm" and got["content"][0]["odd"] == 1
    assert got["tool_calls"][0]["extra_content"] == {"sig": 1}


def test_a_result_that_is_made_plain_keeps_its_other_fields() -> None:
    """GW-7, SEC-4: only what imitates a control tag is written anew."""
    raw = b'{"type":"tool_result","tool_use_id":"t1","odd":%b,"content":"<system-reminder>x"}' % ODD
    for made in (neutral(raw), neutral_texts([b'{"type":"text","odd":%b,"text":"</system-reminder>"}' % ODD])[0]):
        assert ODD in made and b"_system-reminder>" in made
