"""CMP-6: summarising a part keeps all else word for word, and every law of the view."""

from __future__ import annotations

import random
from itertools import pairwise

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests import plans
from tests.laws.recount import carried, recounted
from tests.laws.test_undo import shown
from tests.services import serve
from tests.tiers import examples
from tests.worlds import BOUND, UNBOUND, World, done

from perdure.compaction.ledger.memory import PackedLedger
from perdure.compaction.ledger.reader import index_of
from perdure.compaction.plan import CompactionPart, first_said, span_of
from perdure.context.groups import flatten
from perdure.context.request import to_request
from perdure.context.view import THINKING, project
from perdure.engine.compact import CompactionSuccess, compact, uncompact
from perdure.errors import CompactionRefused
from perdure.ports.session import Receipt
from perdure.settings import Settings
from perdure.testing import ScriptedModel, check_anthropic, check_openai
from perdure.transcript.blocks import text_block
from perdure.transcript.messages import MessageId
from perdure.transcript.records import BlockChange, Record, Rewound, Snipped

pytestmark = pytest.mark.laws

# Small restorations, so that a part of a tiny session can shrink; a window that never compacts by itself.
SETTINGS = Settings(window_tokens=60_000, auto_compact=False, collapse=True, collapse_min_tokens=300, restore=False)
CHANCES = st.integers(0, 2**32 - 1).map(random.Random)
LONG = plans.Say(({"type": "text", "text": "please look at all of this again, closely. " * 150},))
SUMMARY = "<summary>\n1. Primary request and intent: it all.\n</summary>"


def compacted_part(world: World, chance: random.Random) -> CompactionSuccess | None:
    """Summarise a part that chance chooses; None when nothing of it could leave."""
    ids = [item.message.id for item in world.session.view.items]
    chosen = sorted(chance.sample(range(len(ids)), min(len(ids), chance.choice((1, 1, 2)))))
    kind = chance.choice(("from", "up to"))
    if len(chosen) == 2:
        part = CompactionPart(start=ids[chosen[0]], end=ids[chosen[1]])
    else:
        part = CompactionPart(start=ids[chosen[0]]) if kind == "from" else CompactionPart(end=ids[chosen[0]])
    view = world.session.view
    try:
        start, end = span_of(view, part)
    except CompactionRefused:
        return None
    before, wanted = shown(view), (part.start, part.end)
    assert wanted[0] is None or start >= view.positions[ids[ids.index(wanted[0])]]
    assert wanted[1] is None or end <= view.positions[ids[ids.index(wanted[1])]]
    prefix = to_request(view, world.session.facts()).parts()
    whole = [one for one, after in pairwise(flatten(view)) if after.first <= start]
    in_front = sum(len(group.blocks) + len(group.results) for group in whole)
    outcome = done(compact(world.session, trigger="manual", part=part))
    if not isinstance(outcome, CompactionSuccess):
        assert world.session.view == view and outcome.reason.startswith(("too_little", "over_trigger", "empty")), (
            outcome
        )
        return None
    after = shown(world.session.view)
    brought = {message.id for message in outcome.boundary.summary}
    assert [identity for identity, _ in after] == list(outcome.boundary.order)
    assert after[:start] == before[:start], "what stands before the part doesn't change"
    rest = [entry for entry in after[start:] if entry[0] not in brought]
    assert [identity for identity, _ in rest] == [identity for identity, _ in before[end:]]
    items = [i for i in world.session.view.items if i.message.id not in brought][start:]
    for item, (_, raws) in zip(items, before[end:], strict=True):
        said = [block.raw for block in item.visible]
        assert said == list(raws) or any(block.type in THINKING for block in item.message.blocks)
    now = to_request(world.session.view, world.session.facts()).parts()
    same = next((n for n, (a, b) in enumerate(zip(prefix, now, strict=False)) if a != b), min(len(prefix), len(now)))
    assert same >= in_front, "the cached prefix before the part holds"
    return outcome


@examples(15)
@given(plans.sessions(max_steps=14, without=(plans.Compact, plans.Configure)), plans.sessions(max_steps=8), CHANCES)
def test_a_part_leaves_and_all_laws_hold(
    first: list[plans.Step], then: list[plans.Step], chance: random.Random
) -> None:
    """CMP-14, REL-4: also after a second part, what comes later, a restart, and a rewind to anywhere."""
    world = World(SETTINGS, model=chance.choice((BOUND, UNBOUND)))
    if chance.random() < 0.5:
        serve(world.session, summarizer=(ScriptedModel([SUMMARY] * 20),))
    for step in (LONG, *first, LONG):
        world.play(step)
    hits = 0
    for _ in range(3):
        hits += compacted_part(world, chance) is not None
        holds(world)
    assume(hits)
    for step in then:
        world.play(step)
        holds(world)
    ids = [item.message.id for item in world.session.view.items]
    world.record(Rewound(to=chance.choice(ids)))
    holds(world)
    world.answer(plans.Answer(text="on", thinking="so"))
    holds(world)


def holds(world: World) -> None:
    """The journal makes the view, from its end and from its beginning; its sums and its request are right."""
    view, facts = world.session.view, world.session.facts()
    assert world.reopened().view == world.reopened(whole=True).view == project(world.records) == view
    assert carried(view) == recounted(view)
    assert not check_anthropic(to_request(view, facts).body, model_rules=world.rules)
    assert not check_openai(to_request(view, facts, protocol="openai").body)


@examples(15)
@given(plans.sessions(max_steps=14, without=(plans.Compact, plans.Rewind, plans.Undo)), CHANCES)
def test_a_part_is_undone_whole(first: list[plans.Step], chance: random.Random) -> None:
    """CMP-11"""
    world = World(SETTINGS)
    for step in (LONG, *first, LONG):
        world.play(step)
    before = shown(world.session.view)
    assume(compacted_part(world, chance) is not None)
    world.say("and then")
    done(uncompact(world.session))
    assert shown(world.session.view)[:-1] == before
    holds(world)


@examples(15)
@given(plans.sessions(max_steps=14, without=(plans.Compact, plans.Rewind, plans.Undo)), CHANCES)
def test_the_ledger_reads_everything_once(first: list[plans.Step], chance: random.Random) -> None:
    """CMP-14: after parts in any order, checkpoint and later messages together know what was said, in its order."""
    world, told = World(SETTINGS), []
    for step in (LONG, *first, LONG):
        world.play(step)
    for number in range(3):
        compacted_part(world, chance)
        told.append(world.say(f"and number {number}, again and again " * 100).id)
    view = world.session.view
    memory = PackedLedger.of(view.state).memory(index_of(view, SETTINGS).extracts(first_said(view), len(view.items)))
    spoken = [one.id for one in memory.words]
    assert len(spoken) == len(set(spoken)) and spoken[-3:] == told
    order = [record.id for record in world.records if getattr(record, "origin", "") == "user"]
    assert [one for one in order if one in set(spoken)] == spoken


@pytest.mark.parametrize("is_deep", [False, True])
@pytest.mark.parametrize("behind", ["edited", "another front", "nothing"])
@pytest.mark.parametrize("way", ["rewind", "undo"])
def test_thinking_that_comes_back_stands_behind_its_prefix_or_leaves(way: str, behind: str, is_deep: bool) -> None:
    """CMP-11, TURN-7, REL-4: what was changed behind a part that left wasn't so when that part's thinking was signed.

    `is_deep`: another part left since, so that the change is no more than what the last boundary keeps.
    """
    world = World(SETTINGS, model=BOUND)
    kept = world.say("read it")
    world.answer(plans.Answer(text="so", thinking="because"))
    answer = world.session.view.items[-1].message
    world.say("words " * 8_000)
    leaves(world, answer.id)
    if behind == "edited":
        edit(world, kept.id)
    elif behind == "another front":
        world.play(plans.NewFront(1))
    if is_deep:
        world.say("words " * 8_000)
        leaves(world, world.session.view.items[-1].message.id)
    if way == "rewind":
        world.record(Rewound(to=answer.id))
    else:
        for _ in range(1 + is_deep):
            done(uncompact(world.session))
    kinds = [block.type for block in world.session.view.item(answer.id).visible]
    assert ("thinking" in kinds) == (behind == "nothing"), "and it stays where it holds"
    holds(world)
    world.say("on")
    assert world.answer(plans.Answer(text="on", thinking="so")), "the fake upstream refuses what a real one would"


@pytest.mark.parametrize("is_edited", [True, False])
def test_a_rewind_to_behind_two_parts_takes_parted_thinking_along(is_edited: bool) -> None:
    """CMP-14, TURN-7, REL-4: an answer was thought behind a message that is shown otherwise since."""
    world = World(SETTINGS, model=BOUND)
    kept = world.say("read it")
    world.answer(plans.Answer(text="so", thinking="because"))
    answer = world.session.view.items[-1].message
    world.say("words " * 8_000)
    tail = world.say("and then")
    leaves(world, world.say("words " * 8_000).id)
    leaves(world, answer.id, tail.id)
    if is_edited:
        edit(world, kept.id)
    world.record(Rewound(to=tail.id))
    assert [item.message.id for item in world.session.view.items] == [kept.id, answer.id, "m3", tail.id]
    assert world.session.view.boundary is None
    holds(world)
    assert (len(world.session.view.item(answer.id).visible) == 1) == is_edited
    assert world.answer(plans.Answer(text="on", thinking="so")), "the fake upstream refuses what a real one would"


def test_thinking_behind_a_boundary_leaves_with_it_though_a_rewind_hid_it() -> None:
    """CMP-11, TURN-7, REL-4: an undone compaction brings back what was said since, also what a rewind had left."""
    world = World(SETTINGS, model=BOUND)
    world.say("read it")
    world.say("words " * 8_000)
    leaves(world, world.session.view.items[-1].message.id)
    summary = world.session.view.items[-1].message
    world.say("on")
    world.answer(plans.Answer(text="so", thinking="because"))
    world.record(Rewound(to=summary.id))
    done(uncompact(world.session))
    holds(world)
    world.say("and on")
    assert world.answer(plans.Answer(text="on", thinking="so")), "the fake upstream refuses what a real one would"


def test_a_record_and_the_thinking_that_leaves_with_it_are_one_transaction() -> None:
    """REL-4, CMP-8: a crash between the two would leave a journal of which the next request is refused."""
    world = World(SETTINGS, model=BOUND)
    world.say("read it")
    world.answer(plans.Answer(text="so", thinking="because"))
    world.say("words " * 8_000)
    leaves(world, world.session.view.items[1].message.id)
    world.play(plans.NewFront(1))
    batches: list[tuple[str, ...]] = []
    append = world.journal.append

    async def watched(records: tuple[Record, ...]) -> Receipt:
        batches.append(tuple(type(record).__name__ for record in records))
        return await append(records)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.journal, "append", watched)
        done(uncompact(world.session))
    assert batches == [("Undone", "ThinkingDropped")]


def leaves(world: World, start: str, end: str | None = None) -> None:
    """Summarise the view from a message on, or up to another."""
    outcome = done(compact(world.session, trigger="manual", part=CompactionPart(start=start, end=end)))
    assert isinstance(outcome, CompactionSuccess)


def edit(world: World, message: MessageId) -> None:
    """Show a message of one text otherwise."""
    change = BlockChange(message, 0, msgspec.Raw(text_block("less").raw))
    done(world.session.commit((Snipped(changes=(change,)),), world.session.facts()))
