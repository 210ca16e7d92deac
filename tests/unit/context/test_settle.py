"""TURN-9, TURN-9b: calls without a result, results that come late, and media over the limits."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import replace

import msgspec
import pytest
from tests.unit.context.making import UNBOUND, Talk, after, call, facts, image, text

from perdure.context.groups import NO_RESULT
from perdure.context.passes import media_limits, settle_open_calls
from perdure.context.request import to_request
from perdure.transcript.records import Rewound

pytestmark = pytest.mark.unit


def results(view: object) -> list[tuple[str, object]]:
    body = msgspec.json.decode(to_request(view, facts()).body)  # type: ignore[arg-type]
    blocks = [block for message in body["messages"] for block in message["content"]]
    return [(b["tool_use_id"], b["content"]) for b in blocks if b["type"] == "tool_result"]


def test_an_open_call_is_answered_for_good() -> None:
    """TURN-9b: the synthetic error stays when the result comes later, also in a fresh fold."""
    talk = Talk()
    talk.user()
    talk.model(call("a"), call("b"))
    talk.result("a", "here")
    (edit,) = settle_open_calls(talk.view, facts())
    assert edit.tool_use_ids == ("b",)
    talk.records.append(edit)
    assert settle_open_calls(talk.view, facts()) == ()
    assert results(talk.view) == [("a", "here"), ("b", NO_RESULT)]
    talk.result("b", "too late")
    talk.answered()
    assert results(talk.view) == [("a", "here"), ("b", NO_RESULT)]
    assert "b" not in talk.view.results


def test_after_a_rewind_to_the_call_it_may_be_answered_again() -> None:
    """TURN-9b: nothing was built on the synthetic answer that stays."""
    talk = Talk()
    talk.user()
    asked = talk.model(call("a"))
    talk.records += settle_open_calls(talk.view, facts())
    talk.user("what happened?")
    talk.records.append(Rewound(to=asked.id))
    assert list(talk.view.open_calls) == ["a"]
    talk.result("a", "now")
    assert results(talk.view) == [("a", "now")]


def test_after_a_rewind_to_later_it_stays_settled() -> None:
    """TURN-9b: the model has answered on the synthetic result."""
    talk = Talk()
    talk.user()
    talk.model(call("a"))
    talk.records += settle_open_calls(talk.view, facts())
    answer = talk.model(text("it failed"))
    talk.user("and?")
    talk.records.append(Rewound(to=answer.id))
    talk.result("a", "too late")
    assert talk.view.settled == {"a"}
    assert results(talk.view) == [("a", NO_RESULT)]


def seen(count: int) -> Talk:
    talk = Talk()
    for _ in range(count):
        talk.message("user", text("look"), image())
        talk.answered()
    return talk


@pytest.mark.parametrize(("images", "most", "gone"), [(5, 5, 0), (6, 5, 2), (101, 100, 11), (30, 4, 27)])
def test_the_oldest_media_are_replaced_in_chunks(images: int, most: int, gone: int) -> None:
    """TURN-9: over the count the oldest go, and some more, so that the next image doesn't move the prefix again."""
    talk = seen(images)
    edits = media_limits(talk.view, facts(max_images=most))
    changes = [change for edit in edits for change in edit.changes]
    assert len(changes) == gone
    assert [change.message for change in changes] == [f"m{1 + 2 * n}" for n in range(gone)]
    view = after(talk.view, edits)
    assert view.media == images - gone
    assert media_limits(view, facts(max_images=most)) == ()


def test_bytes_count_too_and_media_inside_results() -> None:
    """TURN-9: the limit of bytes; an image in a result gives way to a placeholder, its text stays."""
    talk = Talk()
    talk.ran("a", "mcp__shot", [text("before"), image("a" * 600), text("after")])
    talk.ran("b", "mcp__shot", [image("b" * 600)])
    talk.answered()
    assert media_limits(talk.view, facts()) == ()
    view = after(talk.view, media_limits(talk.view, facts(max_media_bytes=1_000, max_images=3)))
    shown = dict(results(view))
    assert [part["type"] for part in shown["a"]] == ["text", "text", "text"]  # type: ignore[attr-defined]
    assert "left out" in shown["a"][1]["text"]  # type: ignore[index]
    assert shown["b"][0]["type"] == "image"  # type: ignore[index]


def png(width: int, height: int) -> str:
    """The head of a picture of that size; nobody looks further."""
    head = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + width.to_bytes(4, "big") + height.to_bytes(4, "big")
    return b64encode(head + bytes(8)).decode()


def pictured(*sizes: tuple[int, int]) -> Talk:
    talk = Talk()
    for size in sizes:
        talk.message("user", text("look"), image(png(*size)))
        talk.answered()
    return talk


@pytest.mark.parametrize(
    ("sizes", "gone"),
    [
        ([(8_000, 100), (8_001, 100), (100, 9_000)], [1, 2]),  # a longer edge is refused
        ([(2_001, 100)] + [(50, 50)] * 19, []),  # twenty: no lower limit
        ([(50, 50)] * 20 + [(2_000, 2_000)], []),  # many, but all small
        ([(50, 50)] * 20 + [(2_001, 100)], [*range(6)]),  # many, one large: the newest are kept
    ],
)
def test_images_with_long_edges_give_way(sizes: list[tuple[int, int]], gone: list[int]) -> None:
    """TURN-9: dimensions, with the lower limit for many images; a model that scales by itself has none."""
    talk = pictured(*sizes)
    edits = media_limits(talk.view, facts())
    assert [change.message for edit in edits for change in edit.changes] == [f"m{1 + 2 * n}" for n in gone]
    assert media_limits(after(talk.view, edits), facts()) == ()
    assert media_limits(talk.view, facts(model=replace(UNBOUND, max_image_edge_pixels=None))) == ()


def test_a_view_without_media_is_not_searched() -> None:
    """TURN-14: the aggregate says that there is nothing to do."""
    view = seen(0).view
    assert view.media == 0
    assert media_limits(view, facts(max_images=1)) == ()
