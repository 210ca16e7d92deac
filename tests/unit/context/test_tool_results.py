"""TURN-2: which results are offloaded, in what order, and what stands in their place."""

from __future__ import annotations

import pytest
from tests.unit.context.making import Talk, after, call, facts, image, shown, text

from perdure.context.passes import preview_of, tool_result_budget
from perdure.transcript.blocks import ToolResult

pytestmark = pytest.mark.unit


def offloaded(talk: Talk, **settings: object) -> list[str]:
    edits = tool_result_budget(talk.view, facts(**settings))  # type: ignore[arg-type]
    return [stored.tool_use_id for edit in edits for stored in edit.stored]


@pytest.mark.parametrize(
    ("tool", "limit"),
    [("Read", 50_000), ("Bash", 30_000), ("shell", 30_000), ("Grep", 20_000), ("mcp__any__thing", 50_000)],
)
def test_each_tool_has_its_limit(tool: str, limit: int) -> None:
    """TURN-2: 50,000 characters for one result, Bash 30,000, Grep 20,000; at the limit it still fits."""
    for size, expected in ((limit, []), (limit + 1, ["a"])):
        talk = Talk()
        talk.ran("a", tool, "x" * size)
        assert offloaded(talk) == expected


def test_limits_can_be_overridden_and_scale_with_small_windows() -> None:
    """TURN-2, PRS-2: per-tool overrides; an 8k window has smaller limits."""
    talk = Talk()
    talk.ran("a", "Read", "x" * 5_000)
    assert offloaded(talk) == []
    assert offloaded(talk, result_limits_chars={"Read": 4_000}) == ["a"]
    assert offloaded(talk, window=8_000) == ["a"]
    assert offloaded(talk, window=8_000, offload=False) == []


def test_the_largest_go_until_the_message_fits() -> None:
    """TURN-2: 64,000 bytes for all results of one merged message together, largest first."""
    talk = Talk()
    talk.model(*(call(name) for name in "abcd"))
    for name, size in zip("abcd", (10_000, 30_000, 20_000, 25_000), strict=True):
        talk.result(name, "x" * size)
    assert offloaded(talk) == ["b"]
    talk = Talk()
    talk.model(*(call(name) for name in "abc"))
    for name, size in zip("abc", (30_000, 49_000, 45_000), strict=True):
        talk.result(name, "x" * size)
    assert offloaded(talk) == ["b", "c"], "45,000 and 30,000 are still too much"


def test_what_was_sent_is_never_offloaded_later() -> None:
    """TURN-2: the decision is taken before a result was ever sent, and frozen."""
    talk = Talk()
    talk.ran("a", "Read", "x" * 60_000)
    talk.answered()
    assert offloaded(talk) == []


def test_what_is_offloaded_stays_so() -> None:
    """TURN-2: asked again, nothing more is decided."""
    talk = Talk()
    talk.ran("a", "Read", "x" * 60_000)
    view = after(talk.view, tool_result_budget(talk.view, facts()))
    assert tool_result_budget(view, facts()) == ()
    assert view.frozen == {"a"}


def test_a_read_of_a_blob_is_exempt() -> None:
    """TURN-2, RCL-1: what was recalled is not offloaded again."""
    talk = Talk()
    talk.ran("a", "recall", "x" * 90_000)
    assert offloaded(talk) == []


def test_orphans_and_late_results_are_left_alone() -> None:
    """TURN-9: they are in no request."""
    talk = Talk()
    talk.user()
    talk.result("nobody", "x" * 90_000)
    assert offloaded(talk) == []


def test_the_preview_names_size_and_id_and_shows_the_head() -> None:
    """TURN-2, RCL-2: reference, size and head; every other field of the block stays, media too."""
    talk = Talk()
    lines = "\n".join(f"line {n}" for n in range(9_000))
    talk.model(call("a"))
    talk.result("a", [text(lines), image()], x_field=[1, 2])
    view = after(talk.view, tool_result_budget(talk.view, facts()))
    preview = shown(view, "a")
    assert 'recall with id "a"' in preview
    assert f"{len(lines):,} characters, 9,000 lines" in preview
    assert "line 0\nline 1\n" in preview
    assert "line 8999" not in preview
    assert len(preview) < 2_400
    block = view.items[1].shown[0]
    assert block is not None
    assert b'"x_field":[1,2]' in block.raw
    assert isinstance(block.value, ToolResult)
    assert [part.type for part in block.value.parts()] == ["text", "image"]


def test_command_output_shows_its_end_and_its_errors() -> None:
    """TURN-2: for command output the tail, and lines that look like errors."""
    lines = [f"step {n}" for n in range(5_000)]
    lines[2_500] = "E   AssertionError: 1 != 2"
    preview = preview_of("\n".join(lines), "recall it", 2_000, is_command=True)
    assert "step 0\n" in preview
    assert "step 4999" in preview
    assert "2501: E   AssertionError: 1 != 2" in preview
    assert len(preview) < 2_600


def test_a_preview_is_never_longer_than_the_text() -> None:
    """DESIGN, shrink: a few rare characters can be shorter than what would stand for them."""
    talk = Talk()
    talk.ran("a", "Read", "\U0001f600" * 501)
    assert offloaded(talk, result_limits_chars={"Read": 100}, window=8_000) == []
