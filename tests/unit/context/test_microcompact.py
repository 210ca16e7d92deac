"""TURN-4: what is cleared by size, by idleness, and by the provider."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.context.making import NOW, Talk, after, call, facts, image, shown, text

from perdure.context.passes import cleared_text, microcompact, select_by_size
from perdure.context.request import to_request
from perdure.transcript.messages import ToolUseId

pytestmark = pytest.mark.unit

HOUR = 3_600.0


def ids(count: int) -> list[ToolUseId]:
    return [ToolUseId(f"t{n}") for n in range(count)]


@pytest.mark.parametrize(
    ("sizes", "chosen", "saved"),
    [
        ([10_000] * 4, 0, 0),  # 40,000 may stay
        ([10_000] * 5, 0, 0),  # only 10,000 would be saved
        ([10_000] * 6, 2, 20_000),
        ([10_000] * 10, 6, 60_000),
        ([70_000, 1, 1, 1], 1, 70_000),
        ([1, 30_000, 30_000, 30_000], 0, 0),  # the last three stay
        ([30_000, 30_000, 30_000], 0, 0),
        ([20_000, 20_000, 20_000, 20_000, 20_000], 2, 40_000),  # three stay although 60,000 remain
        ([], 0, 0),
    ],
)
def test_the_rule_of_the_recordings(sizes: list[int], chosen: int, saved: int) -> None:
    """TURN-4a: oldest first until 40,000 remain, never the last 3, only if 20,000 are saved."""
    candidates = list(zip(ids(len(sizes)), sizes, strict=True))
    found = select_by_size(candidates, keep_tokens=40_000, keep_last=3, min_saved=20_000)
    assert found == (ids(chosen), saved)


def long_talk(count: int = 10, usage: int = 150_000, **errors: bool) -> Talk:
    """Results of 10,000 tokens each, all sent, and a size near the trigger."""
    talk = Talk()
    talk.user()
    for n in range(count):
        talk.ran(f"t{n}", "Read", f"{n}" * 40_000, **({"is_error": True} if f"t{n}" in errors else {}))
    talk.model(text("ok"), usage=usage)
    return talk


def test_by_size_from_twenty_thousand_below_the_trigger() -> None:
    """TURN-4a: nothing at 146,999; the six oldest at 147,000."""
    assert microcompact(long_talk(usage=146_000).view, facts()) == ()
    (edit,) = microcompact(long_talk(usage=147_000).view, facts())
    assert edit.trigger == "size"
    assert list(edit.tool_use_ids) == ids(6)
    assert [stored.tool_use_id for stored in edit.stored] == ids(6)
    view = after(long_talk().view, (edit,))
    assert shown(view, "t0") == cleared_text("t0") == "[Old tool result content cleared; recall with id t0]"
    assert shown(view, "t6") == "6" * 40_000
    assert microcompact(view, facts()) == ()


def test_errors_are_spared_and_a_setting_unspares_them() -> None:
    """TURN-4: live, error results stay; the rule of the logs doesn't know the difference."""
    talk = long_talk(12, t0=True)
    (edit,) = microcompact(talk.view, facts())
    assert "t0" not in edit.tool_use_ids
    (edit,) = microcompact(talk.view, facts(microcompact_spare_errors=False))
    assert edit.tool_use_ids[0] == "t0"


def test_other_tools_are_left_alone() -> None:
    """TURN-4: only compactable tools; the list is a setting."""
    talk = Talk()
    for n in range(10):
        talk.ran(f"t{n}", "ask_human", f"{n}" * 40_000)
    talk.model(text("ok"), usage=150_000)
    assert microcompact(talk.view, facts()) == ()
    (edit,) = microcompact(talk.view, facts(microcompact_tools=("ask_human",)))
    assert len(edit.tool_use_ids) == 6
    assert microcompact(talk.view, facts(microcompact_tools=("ask_human",), microcompact=False)) == ()


def test_by_idleness_all_but_five_whatever_the_size() -> None:
    """TURN-4, TURN-16: when the cache is cold, after the lifetime that is in force."""
    talk = long_talk(8, usage=10_000)
    for ttl, seconds in (("auto", 300), ("5m", 300), ("1h", HOUR)):
        assert microcompact(talk.view, facts(now=NOW + seconds, cache_ttl=ttl)) == ()
        (edit,) = microcompact(talk.view, facts(now=NOW + seconds + 1, cache_ttl=ttl))
        assert edit.trigger == "idle"
        assert list(edit.tool_use_ids) == ids(3)
    assert microcompact(talk.view, facts(now=NOW + HOUR + 1, idle_clear=False)) == ()
    assert microcompact(talk.view, facts(now=None)) == ()
    assert microcompact(talk.view, facts(now=NOW - HOUR)) == (), "a clock that steps back makes nothing idle"


def test_old_images_and_attachments_go_along_and_are_recorded() -> None:
    """TURN-4: images, and attachments that were true when shown, among what the clearing passes."""
    talk = Talk()
    seen = talk.message("user", text("look"), image())
    memory = talk.message("user", text("remember this. " * 30), origin="reminder", note="memory")
    for n in range(8):
        talk.ran(f"t{n}", "Read", f"{n}" * 4_000)
    late = talk.message("user", image())
    talk.answered()
    (edit,) = microcompact(talk.view, facts(now=NOW + HOUR + 1))
    assert edit.images == 1
    assert edit.attachments == (memory.id,)
    changed = {change.message for change in edit.changes}
    assert {seen.id, memory.id} <= changed
    assert late.id not in changed
    view = after(talk.view, (edit,))
    assert view.media == 1


def test_what_is_new_is_the_models_to_read_first() -> None:
    """TURN-4: a result that no answered request held is never cleared, however many came at once."""
    talk = long_talk(5, usage=150_000)
    talk.model(*(call(f"n{n}") for n in range(8)), usage=150_000)
    for n in range(8):
        talk.result(f"n{n}", f"{n}" * 40_000)
    (edit,) = microcompact(talk.view, facts())
    assert list(edit.tool_use_ids) == ids(5)


def test_small_results_are_not_worth_their_marker() -> None:
    """DESIGN, shrink: clearing never makes a result longer."""
    talk = Talk()
    for n in range(9):
        talk.ran(f"t{n}", "Read", "ok")
    talk.answered()
    assert microcompact(talk.view, facts(now=NOW + HOUR + 1)) == ()


def test_by_the_provider_nothing_of_ours_changes() -> None:
    """TURN-4c: the equivalent edit is sent, our history stays."""
    talk = long_talk()
    known = facts(provider_clearing=True)
    assert microcompact(talk.view, known) == ()
    request = to_request(talk.view, known)
    (edit,) = msgspec.json.decode(request.body)["context_management"]["edits"]
    assert edit["type"] == "clear_tool_uses_20250919"
    assert edit["trigger"] == {"type": "input_tokens", "value": 147_000}
    assert edit["keep"] == {"type": "tool_uses", "value": 3}
    assert edit["clear_at_least"] == {"type": "input_tokens", "value": 20_000}
    assert request.betas == ("context-management-2025-06-27",)
