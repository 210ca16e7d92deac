"""CMP-8, TURN-5: the cache monitor tells of drops that nothing explains, and of no other."""

from __future__ import annotations

from typing import Any

import anyio
import msgspec
import pytest
from tests.services import FixedClock

from perdure import Settings
from perdure.adapters.sinks import ListSink
from perdure.context.models import ModelSpec
from perdure.engine.compact import compact
from perdure.engine.turn import run_turn
from perdure.events import CacheDropped
from perdure.testing import FakeUpstream, ScriptedModel
from perdure.transcript.blocks import text_block
from perdure.transcript.records import Front
from perdure.wiring import SessionOptions, memory_session

pytestmark = pytest.mark.unit

SMALL = ModelSpec(prefix="scripted", cache_minimum_tokens=10)


class Desk:
    """Turns with a model whose provider has a prompt cache."""

    def __init__(self, **settings: Any) -> None:
        self.sink, self.clock, self.upstream = ListSink(), FixedClock(), FakeUpstream(script=["ok"] * 20)
        self.model = ScriptedModel(upstream=self.upstream)
        self.parts = SessionOptions(sink=self.sink, clock=self.clock, model=SMALL, settings=Settings(**settings))

    async def open(self) -> None:
        self.session = await memory_session(parts=self.parts)
        await self.session.record(Front(model="scripted"))

    async def say(self, words: str = "go on " * 400) -> list[CacheDropped]:
        """A turn; the drops that it told of."""
        known = len(self.sink.events)
        await run_turn(self.session, words, self.model)
        return [event for event in self.sink.events[known:] if isinstance(event, CacheDropped)]


def test_a_cache_that_was_lost_is_said_once() -> None:
    async def body() -> None:
        desk = Desk()
        await desk.open()
        assert not await desk.say() and not await desk.say() and not await desk.say()
        desk.upstream.forget_cache()
        (drop,) = await desk.say()
        assert drop.read_tokens == 0 and drop.expected_tokens > 1_000
        assert not await desk.say()

    anyio.run(body)


@pytest.mark.parametrize("cause", ["front", "compaction", "expired", "first"])
def test_what_is_expected_is_not_said(cause: str) -> None:
    """A front that changed, a compaction, a cache that ran out."""

    async def body() -> None:
        desk = Desk()
        await desk.open()
        for _ in range(0 if cause == "first" else 6):
            assert not await desk.say()
        if cause == "front":
            system = (msgspec.Raw(text_block("another").raw),)
            await desk.session.record(Front(model="scripted", system=system))
        elif cause == "compaction":
            await compact(desk.session, trigger="manual")
            assert desk.session.view.boundary is not None
        elif cause == "expired":
            desk.clock.advance(301)
        desk.upstream.forget_cache()
        assert not await desk.say()

    anyio.run(body)
