"""CMP-2: a view after a compaction is the summary, what was restored, and the kept messages (ADR 0098)."""

from __future__ import annotations

import pytest
from tests.calls import numbered, used, words
from tests.worlds import World, done

from perdure.context.groups import flatten
from perdure.engine.compact import CompactionSuccess, compact
from perdure.settings import Settings

pytestmark = pytest.mark.unit


def compacted_in_a_loop() -> World:
    """Return a session that was compacted inside an open tool loop: its last message holds the result of a call."""
    world = World(Settings(window_tokens=200_000, offload=False, microcompact=False), has_front=False)
    world.say("please do it")
    world.append(
        *used("Read", {"file_path": "/srv/app/pool.py"}, numbered("\n".join(f"v{n} = {n}" for n in range(60))))
    )
    for number in range(14):
        world.append(*used("Other", {"n": number}, f"row {number}: " + "lorem ipsum dolor " * 350))
        world.append(*words(f"step {number} is done", "model"))
    world.append(*used("Other", {"n": "last"}, "the last result"))
    assert isinstance(done(compact(world.session, trigger="manual")), CompactionSuccess)
    return world


def test_restored_state_stands_between_the_summary_and_the_kept_messages() -> None:
    """Finding M2, CMP-2: the order of the view, live and opened anew."""
    world = compacted_in_a_loop()
    origins = [item.message.origin for item in world.session.view.items]
    restored = [at for at, origin in enumerate(origins) if origin == "restored"]
    assert origins[0] == "summary" and len(restored) > 0
    assert restored == list(range(1, 1 + len(restored))) and origins[1 + len(restored) :].count("summary") == 0
    assert origins[-1] == "tool"
    boundary = world.session.view.boundary
    assert boundary is not None
    assert [item.message.id for item in world.session.view.items] == list(boundary.order)


def test_nothing_is_said_behind_the_results_of_an_open_loop() -> None:
    """Finding M2: the last message of the request holds results and no text, as the API advises."""
    groups = flatten(compacted_in_a_loop().session.view)
    assert groups[-1].role == "user" and len(groups[-1].results) == 1 and groups[-1].blocks == []
