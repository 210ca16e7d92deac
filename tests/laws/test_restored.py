"""Laws of restoration (RST-1 to RST-10, PRS-2): budgets, nothing twice, deterministic, a bounded checkpoint."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import plans
from tests.calls import numbered, tracked, used, words
from tests.tiers import examples
from tests.worlds import World

from perdure.compaction.boundary import put_back, token_cost
from perdure.compaction.ledger.reader import ExtractIndex, happened_around
from perdure.compaction.restore.files import (
    FilesInPlay,
    candidates,
    numbered_listing,
    numbered_runs,
    restore,
    same_file,
    shown_files,
)
from perdure.compaction.restore.kinds import STANDARD
from perdure.compaction.restore.registry import STATE_BYTES, TokenRoom, track_scene, tracker_state_json
from perdure.engine.compact import CompactionSuccess
from perdure.settings import Settings
from perdure.text.cleaning import cut_to
from perdure.transcript.messages import Message
from perdure.transcript.tokens import base_tokens
from perdure.transcript.tool_calls.actions import AnsweredCall, Happened
from perdure.transcript.tool_calls.files import KnownLines, LineRun, runs_of

pytestmark = pytest.mark.laws

PATHS = st.sampled_from(["/w/a.py", "/w/b.py", "b.py", "/w/CLAUDE.md", "D:\\x\\c.py", "/w/漢.py"])
LINES = st.lists(st.sampled_from(["def f():", "    return 1", "", "漢字 é", "x" * 300, "1\tnot a number"]), max_size=60)


@st.composite
def calls(draw: st.DrawFn) -> list[Message]:
    """A call of some agent, with an answer that fits it."""
    path, text = draw(PATHS), "\n".join(draw(LINES))
    kind = draw(st.integers(0, 8))
    if kind == 0:
        return used("Read", {"file_path": path}, numbered(text))
    if kind == 1:
        return used("Write", {"file_path": path, "content": text})
    if kind == 2:
        return used("Edit", {"file_path": path, "old_string": "return", "new_string": text, "replace_all": True})
    if kind == 3:
        return used("TodoWrite", {"todos": [{"content": line, "status": "pending"} for line in text.split("\n")]})
    if kind == 4:
        return used("Bash", {"command": f"cat {path}"}, text)
    if kind == 5:
        return used("Skill", {"skill": path}, text)
    if kind == 6:
        return used("ExitPlanMode", {"plan": text}, "User has approved your plan")
    if kind == 7:
        return words(f"<system-reminder>\nTools that can be loaded:\n{text}\n</system-reminder>")
    return used("Bash", {"command": text, "run_in_background": True}, f"running in background with ID: {len(text)}")


@examples(60)
@given(
    st.lists(calls(), max_size=12),
    st.integers(0, 30_000),
    st.integers(0, 24),
    st.sampled_from([8_000, 32_000, 200_000]),
)
def test_budgets_hold_and_nothing_comes_back_twice(
    said: list[list[Message]], room: int, keep: int, window: int
) -> None:
    """RST-1 to RST-6, PRS-2: within the room and each budget, nothing visible, the same every time."""
    world = World(Settings(window_tokens=window, offload=False), has_front=False)
    for some in said:
        world.append(*some)
    view, facts = world.session.view, world.session.facts()
    keep_from = min(keep, len(view.items))
    looked = track_scene(view, keep_from, facts, STANDARD)
    assert not looked.failed
    back, failed = put_back(looked, STANDARD, room, identity="b")
    assert not failed
    assert back == put_back(track_scene(view, keep_from, facts, STANDARD), STANDARD, room, identity="b")[0]
    cost = token_cost(view, facts)
    texts = [block.value.text for message in back.messages for block in message.blocks]  # type: ignore[union-attr]
    assert sum(map(cost, texts)) <= room
    for restorer in STANDARD.restorers:
        each, total = (facts.limits.scaled(budget) for budget in restorer.budget(facts.settings))
        tokens = [row.tokens for row in back.rows if row.kind == restorer.kind and row.name]
        assert all(count <= each for count in tokens) and sum(tokens) <= total
    restored = {row.name for row in back.rows if row.kind == "files" and row.name}
    assert len(restored) <= facts.settings.restore_files
    assert not any(same_file(path, shown_files(looked.scene)) for path in restored)
    assert back.in_play is not None
    assert all(len(bytes(raw)) <= STATE_BYTES for raw in back.in_play.states.values())


@examples(40)
@given(st.lists(calls(), max_size=10), st.integers(0, 20))
def test_tracking_in_two_parts_is_tracking_at_once(said: list[list[Message]], cut: int) -> None:
    """CMP-14: the state after what left, gone on by what is kept, is the state of it all."""
    world = World(Settings(window_tokens=200_000), has_front=False)
    for some in said:
        world.append(*some)
    view, facts = world.session.view, world.session.facts()
    parts = track_scene(view, min(cut, len(view.items)), facts, STANDARD).scene.states
    whole = track_scene(view, len(view.items), facts, STANDARD).scene.states
    assert {k: bytes(tracker_state_json(v)) for k, v in parts.items()} == {
        k: bytes(tracker_state_json(v)) for k, v in whole.items()
    }


@examples(40)
@given(st.lists(calls(), max_size=10), st.integers(0, 20), st.integers(0, 20), st.integers(0, 20))
def test_trackers_see_the_same_whatever_the_ledger_has_read(
    said: list[list[Message]], first: int, keep: int, read: int
) -> None:
    """SPD-2, RST-10: what the ledger read of calls isn't read again, and is what reading them again would give."""
    world = World(Settings(window_tokens=200_000), has_front=False)
    for some in said:
        world.append(*some)
    view, settings = world.session.view, world.session.settings
    keep, first = min(keep, len(view.items)), min(first, keep)
    view.index = None
    cold = happened_around(view, settings, first, keep)
    index = ExtractIndex()
    for item in view.items[:read]:
        index.take(item.message)
    view.index = index
    warm = happened_around(view, settings, first, keep)
    assert len(index) == min(read, len(view.items)), "what isn't read for the ledger yet stays so"
    # A call that was made before the first message is known to whoever read that one.
    known = {one.use.id for part in cold for one in part if isinstance(one, AnsweredCall)}

    def told(parts: Iterable[Iterable[Happened]]) -> list[list[tuple[type, str, int]]]:
        return [
            [
                (type(one), one.message, one.block)
                for one in part
                if not isinstance(one, AnsweredCall) or one.use.id in known
            ]
            for part in parts
        ]

    assert told(warm) == told(cold)


@examples(25)
@given(st.integers(1, 400))
def test_states_are_bounded_however_long_the_session(count: int) -> None:
    """RST-10: whatever agents do, a tracker's state in the checkpoint has a limit."""
    long = "漢" * 2_000
    for tracker in STANDARD.trackers:
        state = tracked(
            tracker,
            *(used("Read", {"file_path": f"/{n}/{'d' * 300}"}, "x") for n in range(min(count, 90))),
            *(
                used(
                    "Bash",
                    {"command": long, "run_in_background": True},
                    f"with ID: {n} running in background with ID: {n}",
                )
                for n in range(min(count, 60))
            ),
            used("TodoWrite", {"todos": [{"content": long, "status": "pending"}] * count}),
            *(used("Skill", {"skill": f"{n}{long}"}, "x") for n in range(min(count, 40))),
        )
        raw = bytes(tracker_state_json(state))
        assert len(raw) <= STATE_BYTES
        assert msgspec.json.decode(raw, type=tracker.state) is not None


@given(
    st.dictionaries(st.integers(1, 500), st.text(st.characters(exclude_characters="\n\r"), max_size=40), max_size=40)
)
def test_a_listing_reads_back_as_what_it_was(lines: dict[int, str]) -> None:
    runs = runs_of(lines)
    assert numbered_runs(numbered_listing(runs)) == runs
    assert KnownLines(runs).lines == lines


@given(
    st.lists(st.text("ab\n", max_size=6), max_size=6),
    st.text("ab\n", max_size=4),
    st.text("ab\n", max_size=4),
    st.booleans(),
)
def test_an_edit_of_a_part_is_that_part_of_the_edited_whole(
    pieces: list[str], old: str, new: str, everywhere: bool
) -> None:
    """RST-1: what is known after an edit is what the file says there."""
    text = "\n".join(pieces)
    lines = text.split("\n")
    part = KnownLines((LineRun(2, tuple(lines[1:4])),)) if len(lines) > 3 else KnownLines()
    after = part.edited([(old, new, everywhere)])
    if after is None or not old or text.count(old) != 1:
        return
    now = text.replace(old, new).split("\n")
    for number, line in after.lines.items():
        assert now[number - 1] == line


@given(st.text(max_size=2_000), st.integers(0, 400))
def test_a_cut_text_fits(text: str, tokens: int) -> None:
    cut = cut_to(text, tokens, base_tokens)
    assert cut is None or base_tokens(cut) <= tokens


@examples(25)
@given(plans.sessions(), st.sampled_from((8_000, 16_000, 32_000)))
def test_any_session_restores_within_half_of_the_trigger_where_that_is_possible(
    steps: list[plans.Step], window: int
) -> None:
    """PRS-2, CMP-9: with what comes back, a compaction still lands under the trigger and is a gain."""
    world = World(Settings(window_tokens=window))
    for step in steps:
        if not isinstance(step, plans.Configure):
            world.play(step)
    for outcome in world.outcomes:
        if isinstance(outcome, CompactionSuccess):
            boundary = outcome.boundary
            trigger = world.session.limits.trigger
            assert boundary.tokens_after < trigger
            back = sum(row.tokens for row in boundary.restored)
            assert not back or boundary.tokens_after <= trigger // 2 or back <= trigger // 50 + 1


def test_candidates_of_a_scene_without_a_tracker() -> None:
    world = World(Settings(window_tokens=200_000), has_front=False)
    world.say("hello")
    looked = track_scene(world.session.view, 1, world.session.facts(), STANDARD.without("files"))
    assert candidates(looked.scene) == [] and restore(looked.scene, TokenRoom(10, 10, len)) is None
    assert FilesInPlay().seen == {}
