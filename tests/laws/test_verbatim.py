"""CMP-9, CMP-5: no word that a person said is lost but into a recorded summary, a collapse or a rewind."""

from __future__ import annotations

import pytest
from hypothesis import given
from tests import plans
from tests.tiers import examples
from tests.worlds import World

from perdure.compaction.ledger.memory import PackedLedger
from perdure.context.request import to_request
from perdure.settings import Settings
from perdure.transcript.blocks import Text
from perdure.transcript.records import Compacted, Rewound

pytestmark = pytest.mark.laws

SMALL = Settings(window_tokens=8_000)


def texts_of_request(world: World) -> str:
    parts = to_request(world.session.view, world.session.facts()).parts()
    return "\n".join(part.raw.decode() for _, part in parts)


@examples(60)
@given(plans.sessions(without=(plans.Rewind,)))
def test_what_people_say_stays(steps: list[plans.Step]) -> None:
    """Every user message is in the request as said, or it left through a boundary, and then the ledger has it."""
    world = World(SMALL)
    for step in steps:
        world.play(step)
    view = world.session.view
    sent = texts_of_request(world)
    boundary = any(isinstance(record, Compacted) for record in world.records)
    for identity, words in world.spoken.items():
        if not words.strip():
            continue
        item = view.item(identity)
        if item is None:
            assert boundary, "it left without a boundary"
            assert words.strip() in [one.text for one in PackedLedger.of(view.state).spoken]
        else:
            texts = [block.value.text for block in item.visible if isinstance(block.value, Text)]
            assert words in texts
            assert item.visible[0].raw.decode() in sent


@examples(40)
@given(plans.sessions(max_steps=12), plans.texts())
def test_pins_are_in_every_request_after_a_compaction(steps: list[plans.Step], pin: str) -> None:
    """REL-14, CMP-9: a pin stands in the summary word for word, however often it is compacted."""
    world = World(SMALL)
    world.play(plans.Pin(pin))
    for step in steps:
        world.play(step)
    boundary = world.session.view.boundary
    overtaken = any(isinstance(record, Rewound) for record in world.records)
    if boundary is not None and not overtaken:
        value = boundary.summary[0].blocks[0].value
        assert isinstance(value, Text)
        assert pin in value.text
