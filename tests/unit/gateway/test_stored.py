"""GW-6: a stored response, found in the records of its session."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.gateways import in_loop

from perdure.adapters.journal import FileHome
from perdure.gateway.sessions import RECALLED
from perdure.gateway.stored import DELETED, item_page, listed_items, stored_response
from perdure.transcript.blocks import Text
from perdure.transcript.messages import Message, MessageId, ResponseId, Usage
from perdure.transcript.records import Rewound

pytestmark = pytest.mark.unit


def said(words: str, **more: Any) -> Message:
    return Message.of("user", words, id=MessageId(words), **more)


def answer(response: str, *content: Any, **more: Any) -> Message:
    usage = Usage(10, 5)
    identity = MessageId(f"{response} {content}")
    return Message.of(
        "assistant", list(content), id=identity, response_id=ResponseId(response), model="m", usage=usage, **more
    )


def texts(messages: tuple[Message, ...]) -> list[str]:
    return ["".join(block.value.text for block in m.blocks if isinstance(block.value, Text)) for m in messages]


def call(name: str, id: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": {}}


def test_an_answer_with_what_it_was_given() -> None:
    """GW-6: its items, which share its id, behind all that was said before; what came later isn't in it."""
    records = [said("a"), answer("r1", "b"), said("c"), answer("r2", "d"), answer("r2", "e"), said("f")]
    found = stored_response(records, "r2", RECALLED)
    assert found is not None
    assert (texts(found.asked), texts(found.said)) == (["a", "b", "c"], ["d", "e"])
    assert stored_response(records, "r3", RECALLED) is None


def test_what_was_taken_back_before_wasnt_given() -> None:
    """GW-6: an answer that was taken back later was given all the same."""
    records = [said("a"), answer("r1", "b"), Rewound(to=MessageId("a")), answer("r2", "c"), Rewound(to=MessageId("a"))]
    first, second = stored_response(records, "r1", RECALLED), stored_response(records, "r2", RECALLED)
    assert first is not None and second is not None
    assert (texts(first.asked), texts(first.said)) == (["a"], ["b"])
    assert (texts(second.asked), texts(second.said)) == (["a"], ["c"])


@pytest.mark.parametrize("response", ["r1", "r2"])
def test_what_was_recalled_for_an_answer_isnt_shown(response: str) -> None:
    """GW-8: several answers of the model are one for the client, under whichever of their ids; the usage is that of
    both."""
    result = {"type": "tool_result", "tool_use_id": "ours", "content": "secret"}
    recalled = Message.of("user", [result], id=MessageId("x"), note=RECALLED)
    records = [
        said("a"),
        answer("r1", call("recall", "ours")),
        recalled,
        answer("r2", "c", call("Read", "theirs")),
    ]
    found = stored_response(records, response, RECALLED)
    assert found is not None
    output = found.response()["output"]
    assert [bytes(item)[:60].count(b"recall") for item in output] == [0, 0]
    assert found.response()["usage"]["total_tokens"] == 30
    assert texts(found.asked) == ["a"]
    later = stored_response([*records, said("d"), answer("r3", "e")], "r3", RECALLED)
    assert later is not None and b"secret" not in b"".join(later.all_items())


def test_pages_of_items() -> None:
    """GW-6: either way round, from behind an item on; every item has an id."""
    found = stored_response([*(said(f"m{n}") for n in range(5)), answer("r", "x")], "r", RECALLED)
    assert found is not None
    items = listed_items(found.input_items())

    def page(**asked: str) -> Any:
        return msgspec.json.decode(item_page(items, asked))

    first = page(limit="2", order="asc")
    assert [item["content"][0]["text"] for item in first["data"]] == ["m0", "m1"] and first["has_more"]
    rest = page(after=first["last_id"], limit="10", order="asc")
    assert [item["content"][0]["text"] for item in rest["data"]] == ["m2", "m3", "m4"] and not rest["has_more"]
    newest = page(limit="1")
    assert newest["data"][0]["content"][0]["text"] == "m4" and newest["first_id"] == newest["last_id"]


@pytest.mark.parametrize("limit", ["9" * 5_000, "9" * 19, "-1", "1e9", "\u0665"])
def test_a_limit_of_any_length_is_a_limit(limit: str) -> None:
    """SEC-6: Python reads no number of more than 4,300 digits, and said so instead of the page."""
    assert msgspec.json.decode(item_page([{"id": "a"}], {"limit": limit}))["first_id"] == "a"


def test_an_item_keeps_its_name_when_others_go() -> None:
    """GW-6: also one that says the same as another."""
    raws = [msgspec.json.encode({"role": "user", "content": text}) for text in ("a", "b", "a")]
    names = [item["id"] for item in listed_items(raws)]
    assert len(set(names)) == 3
    assert [item["id"] for item in listed_items([raws[0], raws[2]])] == [names[0], names[2]]


@in_loop
async def test_what_was_deleted_stays_deleted(tmp_path: Any) -> None:
    """GW-6: for the next process, too."""
    await FileHome(tmp_path).documents(DELETED).put("r1", b"", instead_of=None)
    again = FileHome(tmp_path).documents(DELETED)
    assert await again.get("r1") is not None and await again.get("r2") is None
    await again.put("r2", b"", instead_of=None)
    assert {"r1", "r2"} <= set((tmp_path / "deleted-responses").read_text().split())
