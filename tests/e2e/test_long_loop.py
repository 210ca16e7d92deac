"""TURN-15, REL-4: a loop of hundreds of tool calls under one prompt, with every rule of the server on."""

from __future__ import annotations

from pathlib import Path

import anyio
import msgspec
import pytest
from bench.long_loop import BOUND_ELSEWHERE, EXPECTED, KINDS, Kind, LoopingServer, Run
from tests.tiers import NIGHTLY

from perdure import Message, Settings
from perdure.adapters.sinks import ListSink
from perdure.context.cuts import open_loop
from perdure.context.models import model_spec
from perdure.context.thinking import LOOP_CLOSED, is_broken
from perdure.engine.compact import compact
from perdure.engine.session import LiveSession
from perdure.engine.turn import run_turn
from perdure.errors import ModelGaveUp
from perdure.events import LadderStepped
from perdure.testing import ModelRules, ScriptedModel, UpstreamError
from perdure.transcript.blocks import text_block
from perdure.transcript.records import BlockChange, Front, ThinkingDropped
from perdure.wiring import SessionOptions, memory_session

pytestmark = pytest.mark.e2e

THINKERS = [kind for kind in KINDS if kind.thinks]
# Fewer calls fill as many windows when their results are longer.
CALLS, TOKENS = (200, 1_500) if NIGHTLY else (100, 3_000)
WINDOWS = (200_000, 60_000)
EACH = [
    pytest.param(kind, window, id=f"{kind.name}-{window}")
    for number, kind in enumerate(KINDS)
    for place, window in enumerate(WINDOWS)
    if NIGHTLY or number % 2 == place
]  # in CI each kind in one of the windows


@pytest.mark.quick(1)
@pytest.mark.parametrize(("kind", "window"), EACH)
def test_a_long_loop_for_one_prompt(kind: Kind, window: int, tmp_path: Path) -> None:
    """TURN-15, REL-4: through every compaction, the ladder and two restarts; then further prompts. None is refused."""
    told = anyio.run(Run(kind, window, tmp_path, tokens=TOKENS).whole, CALLS)
    assert not told.error and not told.refused, told
    assert told.calls >= CALLS and told.answers == CALLS + 4 + 4 + 1 + 1, told
    assert told.compactions >= 3 and (told.closed > 0) == kind.thinks, told


@pytest.mark.quick(1)
@pytest.mark.parametrize("kind", [kind for kind in THINKERS if kind.is_bound], ids=lambda kind: kind.name)
def test_reads_that_fill_the_window_under_one_prompt(kind: Kind, tmp_path: Path) -> None:
    """TURN-15: without anything else on the way, and without a model that summarises."""

    async def body() -> None:
        run = Run(Kind(kind.name, kind.id, has_summarizer=False), 200_000, tmp_path, tokens=TOKENS)
        await run.open()
        await run.loop("Read all files.", 210_000 // TOKENS)
        await run.loop("And now?", 1)
        told = await run.counted()
        assert told.refused == 0 and told.compactions >= 1 and told.clearings == 0, told

    anyio.run(body)


@pytest.mark.quick(1)
@pytest.mark.parametrize("kind", THINKERS, ids=lambda kind: kind.name)
def test_what_stays_of_an_open_loop_keeps_its_thinking(kind: Kind, tmp_path: Path) -> None:
    """TURN-15: at each call every message of the loop that goes on shows the thinking it came with."""

    async def body() -> None:
        run = Run(kind, 60_000, tmp_path)
        await run.open()
        whole = 0

        async def look() -> None:
            nonlocal whole
            assert not is_broken(run.session.view, "said")
            start = open_loop(run.session.view)
            assert start is not None
            items = run.session.view.items[start:]
            said = [block for item in items for block in item.message.blocks if "thinking" in block.type]
            shown = [block for item in items for block in item.visible if "thinking" in block.type]
            assert said == shown
            whole += len(shown)

        await run.loop("Read all files.", 80, dict.fromkeys(range(80), look))
        assert whole > 500
        await run.session.close()

    anyio.run(body)


class Loop:
    """A session in mid-loop, the model it talks to, and the results that come next."""

    def __init__(self, model: str, *, is_bound: bool) -> None:
        self.server = LoopingServer(
            thinks=True,
            rules=ModelRules(max_output_tokens=128_000),
            binding="error" if is_bound else "off",
            leading_may_go=False,
        )
        self.server.left = 10**6
        self.model = ScriptedModel(id=model, upstream=self.server)
        self.sink = ListSink()
        self.session: LiveSession
        self.results: list[Message] = []

    @classmethod
    async def of(cls, model: str, calls: int = 6, *, is_bound: bool | None = None) -> Loop:
        loop = cls(model, is_bound=model_spec(model).thinking_is_bound if is_bound is None else is_bound)
        loop.session = await memory_session(parts=loop.parts())
        await loop.ask("Read them.")
        for _ in range(calls - 1):
            await loop.ask(loop.results)
        return loop

    def parts(self) -> SessionOptions:
        return SessionOptions(settings=Settings(), sink=self.sink)

    async def ask(self, prompt: str | list[Message]) -> None:
        reply = await run_turn(self.session, prompt, self.model)
        blocks = [
            {"type": "tool_result", "tool_use_id": use.id, "content": "x = 1\n" * 50}
            for use in Message.of("assistant", reply.blocks).tool_uses
        ]
        self.results = [Message.of("user", blocks)] if blocks else []

    async def reopen(self) -> None:
        self.session = await memory_session(journal=self.session.ports.journal, parts=self.parts())

    @property
    def closings(self) -> int:
        messages = [item.message for item in self.session.view.items]
        return sum(message.note == LOOP_CLOSED and message.role == "assistant" for message in messages)


def all_thinking(session: LiveSession) -> ThinkingDropped:
    """The edit with which version 0.1 answered a refusal, and what it did before an edit of its own."""
    blocks = [
        BlockChange(message=item.message.id, block=index)
        for item in session.view.items
        for index, block in enumerate(item.shown)
        if block is not None and "thinking" in block.type
    ]
    return ThinkingDropped(changes=tuple(blocks), reason="thinking after an edit")


IDS = [kind.id for kind in THINKERS]


@pytest.mark.parametrize("model", IDS)
def test_a_session_that_an_older_version_broke_goes_on(model: str) -> None:
    """TURN-15: thinking of an open loop was dropped and every prompt refused; opened anew, the next is answered."""

    async def body() -> None:
        loop = await Loop.of(model)
        await loop.session.append(*loop.results, Message.of("user", "Are you there?"))
        await loop.session.commit([all_thinking(loop.session)], loop.session.facts())
        assert is_broken(loop.session.view, "said")
        await loop.reopen()
        await loop.ask("Go on, please.")
        await loop.ask(loop.results)
        assert loop.server.statistics.refused == 0 and loop.closings == 1

    anyio.run(body)


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("model", IDS)
def test_a_compaction_by_hand_in_mid_loop(model: str, is_open: bool) -> None:
    """TURN-15, CMP-6: with results read or a call still open, and the process ending just behind the boundary."""

    async def body() -> None:
        loop = await Loop.of(model, calls=40)
        if not is_open:
            await loop.session.append(*loop.results)
            loop.results = []
        await compact(loop.session, trigger="manual")
        assert loop.session.view.boundary is not None
        await loop.reopen()
        await loop.ask(loop.results or "Go on.")
        await loop.ask(loop.results)
        assert loop.server.statistics.refused == 0

    anyio.run(body)


@pytest.mark.parametrize("said", [EXPECTED, BOUND_ELSEWHERE.format(last=5), BOUND_ELSEWHERE.format(last=1)])
@pytest.mark.parametrize("model", IDS)
def test_the_ladder_knows_what_refuses_thinking(model: str, said: str) -> None:
    """TURN-11, TURN-15: one remedy, and what it makes is taken by a server with every rule on."""

    async def body() -> None:
        loop = await Loop.of(model)
        loop.server.fails.append(UpstreamError(400, "invalid_request_error", said))
        await loop.ask(loop.results)
        await loop.ask(loop.results)
        steps = [event for event in loop.sink.events if isinstance(event, LadderStepped)]
        assert [step.reason for step in steps] == ["thinking_refused"] and loop.closings == 1
        assert loop.server.statistics.refused == 0

    anyio.run(body)


@pytest.mark.parametrize("said", [EXPECTED, BOUND_ELSEWHERE.format(last=5)])
def test_a_server_that_takes_nothing_ends_the_turn_and_not_the_session(said: str) -> None:
    """TURN-11, TURN-15: remedies have an end; what they leave is valid for the next prompt."""

    async def body() -> None:
        loop = await Loop.of("vendor/thinker-1")
        loop.server.fails += [UpstreamError(400, "invalid_request_error", said)] * 9
        with pytest.raises(ModelGaveUp, match="dropped thinking"):
            await loop.ask(loop.results)
        loop.server.fails.clear()
        await loop.ask("And now?")
        await loop.ask(loop.results)
        assert loop.server.statistics.refused == 0

    anyio.run(body)


def test_another_system_prompt_in_mid_loop() -> None:
    """TURN-15: it moves the prefix of all thinking, so the loop is closed; so does another model that binds."""

    async def body() -> None:
        loop = await Loop.of("claude-opus-4-5", is_bound=True)
        front = loop.session.view.front
        assert front is not None
        loop.model = ScriptedModel(id="claude-opus-5-5", upstream=loop.server)
        await loop.ask(loop.results)
        assert loop.closings == 1
        now = loop.session.view.front
        assert now is not None and now.model == "claude-opus-5-5"
        await loop.session.record(Front(model=now.model, system=(msgspec.Raw(text_block("Be brief.").raw),)))
        await loop.ask(loop.results)
        await loop.ask(loop.results)
        assert loop.server.statistics.refused == 0 and loop.closings == 2

    anyio.run(body)
