"""QLT-3, TURN-7: which messages a boundary keeps when all that came since the last one is a single loop."""

from __future__ import annotations

import pytest
from tests.worlds import World, done

from perdure.compaction.plan import can_leave, first_said, keep_from
from perdure.context.cuts import legal_cuts
from perdure.context.view import tokens_from
from perdure.engine.compact import CompactionSuccess, compact
from perdure.settings import Settings
from perdure.transcript.messages import Message

pytestmark = pytest.mark.unit


def looked(number: int) -> list[Message]:
    """A call with thinking before it, and 700 tokens of result."""
    use = {"type": "tool_use", "id": f"t{number}", "name": "Other", "input": {"n": number}}
    thought = {"type": "thinking", "thinking": "let me see", "signature": "c2ln"}
    result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": f"row {number}: " + "lorem ipsum " * 233}
    return [Message.of("assistant", [thought, use]), Message.of("user", [result])]


def test_a_loop_that_went_on_since_the_last_boundary_is_entered() -> None:
    """To keep all of it would leave nothing to compact; to keep none of it would lose what was just said."""
    world = World(Settings(window_tokens=1_000_000, auto_compact=False, keep_min_texts=0), has_front=False)
    world.say("please do it")
    for number in range(40):
        world.append(*looked(number))
    assert isinstance(done(compact(world.session, trigger="manual")), CompactionSuccess)
    for number in range(40, 70):
        world.append(*looked(number))
    view, facts = world.session.view, world.session.facts()
    whole = [cut for cut in legal_cuts(view) if cut >= first_said(view)]
    assert not any(can_leave(view, cut) for cut in whole[:-1]), "no cut between loops leaves anything behind it"
    cut = keep_from(view, facts)
    assert can_leave(view, cut) and 10_000 <= tokens_from(view, cut) < 12_000
