"""Bounds of what tenants hold: each its share, and all together so much (GW-12)."""

from __future__ import annotations

import pytest
from tests.gateways import in_loop

from perdure.gateway import sockets
from perdure.gateway.admission import Admission, Refusal
from perdure.gateway.sockets import MOST_REMEMBERED, ConnectionMemory, RememberedResponse


def test_what_connections_remember_is_bounded_for_each_tenant_and_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """GW-12, finding R2: over all connections of a tenant; and beyond what all may have, who has most loses it."""
    monkeypatch.setattr(sockets, "MOST_REMEMBERED_BYTES", 1_000)
    monkeypatch.setattr(sockets, "MOST_REMEMBERED_IN_ALL", 2_500)
    memory = ConnectionMemory()
    for number in range(25):
        memory.put("greedy", f"connection {number}", "r", RememberedResponse(b"x" * 400, None))
        assert memory.bytes_of("greedy") <= 1_000
    assert memory.get("greedy", "connection 24", "r") and not memory.get("greedy", "connection 0", "r")
    memory.put("small", "c", "r", RememberedResponse(b"y" * 300, None))
    for tenant in ("greedy", "second", "third"):
        memory.put(tenant, "c", "a", RememberedResponse(b"x" * 1_000, None))
    assert memory.get("small", "c", "r") is not None, "it never had most"
    assert sum(map(memory.bytes_of, ("greedy", "small", "second", "third"))) <= 2_500
    memory.forget("small", "c")
    assert memory.get("small", "c", "r") is None and memory.bytes_of("small") == 0


def test_a_connection_remembers_so_many_responses_and_the_last() -> None:
    """GW-12: as many as before, each once, the newest however large it is."""
    memory = ConnectionMemory()
    for number in range(MOST_REMEMBERED + 3):
        memory.put("t", "c", f"r{number}", RememberedResponse(b"x", None))
    assert memory.bytes_of("t") == MOST_REMEMBERED and memory.get("t", "c", "r2") is None
    memory.put("t", "c", "r5", RememberedResponse(b"xx", None))
    assert memory.bytes_of("t") == MOST_REMEMBERED + 1


@in_loop
async def test_places_are_taken_by_weight() -> None:
    """GW-12: a tenant has so many, the last quarter is for those who hold none, and what is left lets others in."""
    room = Admission()
    first = await room.enter("greedy", 256, own=64, seconds=0, weight=60)
    with pytest.raises(Refusal):
        await room.enter("greedy", 256, own=64, seconds=0, weight=5)
    more = await room.enter("greedy", 256, own=64, seconds=0, weight=4)
    held = [await room.enter(name, 256, own=64, seconds=0, weight=64) for name in ("b", "c", "d")]
    with pytest.raises(Refusal):
        await room.enter("late", 256, own=64, seconds=0, weight=1)
    first.keep(10)
    late = await room.enter("late", 256, own=64, seconds=0, weight=50)
    for one in (first, more, late, *held):
        one.keep(0)
    assert not room.in_flight
