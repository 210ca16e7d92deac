"""REL-5, TURN-2: bytes that once stand in the place of a result stand there ever after, in any process."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from tests import plans
from tests.seeds import under_another_seed
from tests.tiers import examples
from tests.worlds import World, done

from perdure.context.passes import blob_id
from perdure.context.request import to_request
from perdure.settings import Settings
from perdure.transcript.messages import MessageId
from perdure.transcript.records import Cleared, Edit, MediaReplaced, Offloaded, Snipped

pytestmark = pytest.mark.laws

SMALL = Settings(window_tokens=8_000, collapse=True, collapse_min_tokens=300)


def played_hash() -> str:
    """Of all requests of a session with offloads, clearing, a compaction and a restart."""
    world = World(SMALL)
    for step in plans.session_plan(7, 25):
        world.play(step)
    return hashlib.sha256(b"".join(sent.body for sent in world.played)).hexdigest()


def shown(world: World) -> dict[tuple[MessageId, int], bytes | None]:
    """What stands in the view for each block that an edit changed."""
    view = world.session.view
    found: dict[tuple[MessageId, int], bytes | None] = {}
    for item in view.items:
        for index, (said, now) in enumerate(zip(item.message.blocks, item.shown, strict=True)):
            if now is not said:
                found[item.message.id, index] = None if now is None else now.raw
    return found


@examples(60)
@given(plans.sessions())
def test_a_replacement_changes_only_by_another_edit(steps: list[plans.Step]) -> None:
    """REL-5: once offloaded, cleared or snipped, a block is the same bytes until a recorded edit names it again."""
    world = World(SMALL)
    for step in steps:
        before, known = shown(world), len(world.records)
        world.play(step)
        named = {
            (change.message, change.block)
            for record in world.records[known:]
            if isinstance(record, Edit)
            for change in record.changes
        }
        after = shown(world)
        left = {item.message.id for item in world.session.view.items}
        for place, raw in before.items():
            if place[0] in left and place not in named:
                thinking = raw is not None and after.get(place, b"") is None  # a boundary drops thinking
                assert after.get(place) == raw or thinking


@examples(30)
@given(plans.sessions())
def test_an_offload_is_decided_once(steps: list[plans.Step]) -> None:
    """TURN-2: a result is offloaded at most once, before it was ever sent, and its original can be had again."""
    world = World(SMALL)
    for step in steps:
        world.play(step)
    offloaded: list[str] = []
    rewound_over: set[str] = set()
    for record in world.records:
        if isinstance(record, Offloaded):
            assert not {s.tool_use_id for s in record.stored} & set(offloaded) - rewound_over
            offloaded += [s.tool_use_id for s in record.stored]
        if isinstance(record, Offloaded | Cleared | Snipped):
            for stored in record.stored:
                original = done(world.blobs.get(stored.blob))
                assert blob_id(original) == stored.blob
                assert len(original) == stored.bytes


@examples(30)
@given(plans.sessions())
def test_untouched_blocks_are_sent_as_they_came(steps: list[plans.Step]) -> None:
    """REL-5, ENG-1: a block that no edit names is in the request with the bytes it was said with."""
    world = World(SMALL)
    for step in steps:
        world.play(step)
    view = world.session.view
    edited = {c.message for r in world.records if isinstance(r, Edit | MediaReplaced) for c in r.changes}
    for _, part in to_request(view, world.session.facts()).parts():
        if part.position >= 0 and part.block >= 0 and part.kind != "thinking":
            item = view.items[part.position]
            if item.message.id not in edited and not any(c.first == item.message.id for c in view.collapses.values()):
                assert part.raw == item.message.blocks[part.block].raw


@pytest.mark.nightly
def test_the_bytes_are_the_same_under_any_hash_seed() -> None:
    """REL-5: nothing in a request depends on the order of a set or on the process."""
    script = "from tests.laws.test_frozen import played_hash; print(played_hash())"
    assert under_another_seed(script).strip() == played_hash()
