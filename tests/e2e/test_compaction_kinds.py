"""Compaction of a part, ahead of time, at the model's request, and when settings want it (CMP-6, CMP-7, CMP-8)."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, get_args

import anyio
import msgspec
import pytest
from tests.services import FixedClock, serve

from perdure import Settings
from perdure.adapters.sinks import ListSink
from perdure.compaction.plan import CompactionPart, CompactionPlan
from perdure.context.policy import Facts, compaction_need, low_line, pressure
from perdure.context.request import to_request
from perdure.engine.background import Keepers
from perdure.engine.compact import CompactionFailure, CompactionStrategy, CompactionSuccess, compact
from perdure.engine.session import LiveSession
from perdure.engine.tools import ACCEPTED, OFF, WAITING, compact_tool
from perdure.engine.turn import prepare, run_turn
from perdure.errors import CompactionRefused, ContextBlocked, ModelGaveUp
from perdure.events import (
    BoundaryListenerFailed,
    CompactionAttemptFailed,
    CompactionBlocked,
    CompactionChecked,
    CompactionDone,
    CompactionRequested,
    HeldSummaryUsed,
    ModelCalled,
    ModelFailed,
    PrefixMoved,
    SummaryHeld,
)
from perdure.hooks import Hook, HookDecision, HookEvent, PreCompact
from perdure.testing import ChaosModel, Fault, ScriptedModel, check_anthropic, say, tool_use
from perdure.transcript.blocks import text_block
from perdure.transcript.messages import Message
from perdure.transcript.records import BlockChange, Compacted, Front, Rewound, Snipped
from perdure.wiring import SessionOptions, background, memory_session

pytestmark = pytest.mark.e2e

SUMMARY = "<summary>\n1. Primary request and intent: read the files\n8. Current work: file 7\n</summary>"


class Desk:
    """A session whose window is small, its model, and what it tells."""

    session: LiveSession

    def __init__(self) -> None:
        self.sink, self.model = ListSink(), ScriptedModel()

    @classmethod
    async def open(cls, **settings: Any) -> Desk:
        desk = cls()
        wanted = {
            "window_tokens": 60_000,
            "restore": False,
            "microcompact": False,
            "snip": False,
            "recall_tool": True,
            **settings,
        }
        parts = SessionOptions(settings=Settings(**wanted), sink=desk.sink, clock=FixedClock())
        desk.session = await memory_session(parts=parts)
        await desk.session.record(Front(model="scripted"))
        return desk

    async def turn(self, words: str, answer: Any = "Done.", **more: Any) -> Any:
        self.model.upstream.script.append(answer)
        return await run_turn(self.session, words, self.model, **more)

    async def fill(self, tokens: int, **more: Any) -> None:
        """Turns until the view has so many tokens."""
        n = 0
        while (now := self.session.facts().size(self.session.view)) < tokens:
            n += 1
            await self.turn(f"Read part {n}.", "value = call() " * (min(4_000, tokens - now + 40) // 4), **more)

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.sink.events if isinstance(event, kind)]

    @property
    def ids(self) -> list[str]:
        return [item.message.id for item in self.session.view.items]

    @property
    def texts(self) -> list[str]:
        blocks = [block for item in self.session.view.items for block in item.visible]
        return [block.value.text for block in blocks if block.type == "text"]

    async def request(self) -> Any:
        prepared = await prepare(self.session)
        assert not check_anthropic(prepared.request.body)
        return [(role, part.raw) for role, part in prepared.request.parts()]


# --- in a pause -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pause_seconds", [290, 310])
def test_in_a_dead_cache_what_is_large_is_compacted_without_a_model(pause_seconds: int) -> None:
    """TURN-16: five minutes on, the prompt is written anew in any case: a record by code, and a long tail as it was."""

    async def body() -> None:
        desk = await Desk.open(keep_min_tokens=3_000, keep_max_tokens=60_000, thrifty_least_tokens=30_000, notes=False)
        await desk.fill(36_000)
        calls, size = len(desk.model.requests), desk.session.facts().size(desk.session.view)
        assert size < desk.session.limits.trigger and not desk.of(CompactionDone)
        clock = desk.session.ports.clock
        assert isinstance(clock, FixedClock)
        clock.advance(pause_seconds)
        await desk.turn("Where were we?")
        if pause_seconds < 300:
            assert not desk.of(CompactionDone)
            return
        (done,) = desk.of(CompactionDone)
        assert (done.trigger, done.strategy) == ("auto", "ledger") and len(desk.model.requests) == calls + 1
        kept = desk.session.limits.scaled(desk.session.settings.keep_max_tokens)
        assert kept // 2 < done.kept_tokens <= kept and done.kept_tokens > desk.session.limits.scaled(3_000)
        before = await desk.request()
        await desk.turn("And now?")
        assert len(desk.of(CompactionDone)) == 1 and (await desk.request())[: len(before)] == before

    anyio.run(body)


def test_a_pasted_prompt_stays_whole_in_a_pause() -> None:
    """TURN-16, PRS-5: what was never sent isn't compacted before the model read it, and an attempt that would change
    nothing isn't one: once the prompt was read, the next pause makes room."""

    async def body() -> None:
        desk = await Desk.open(window_tokens=200_000, notes=False)
        session, clock = desk.session, desk.session.ports.clock
        assert isinstance(clock, FixedClock)
        for words in ("Hello.", "How are you?"):
            await desk.turn(words)
        clock.advance(8_000)
        pasted = "value = call() " * 27_500
        await session.append(Message.of("user", pasted))
        assert 100_000 < session.facts().size(session.view) < session.limits.trigger
        bodies = {(await prepare(session)).request.body for _ in range(5)}
        assert len(bodies) == 1 and pasted in desk.texts
        assert not desk.of(CompactionAttemptFailed) and session.view.state.breaker.failures == 0
        await desk.turn("What is it?")
        clock.advance(8_000)
        await desk.turn("And what does it do?")
        (done,) = desk.of(CompactionDone)
        assert done.tokens_before - done.tokens_after > session.settings.thrifty_least_tokens

    anyio.run(body)


@pytest.mark.parametrize("policy", ["balanced", "thrifty"])
def test_an_early_attempt_that_changes_nothing_waits_for_the_next_answer(policy: str) -> None:
    """TURN-16, PRS-5: below the trigger nothing has to be compacted, so what can't be isn't a failure; the breaker
    stays closed, hooks are asked once, and a session opened over the same journal knows it."""

    async def body() -> None:
        asked = list[HookEvent]()

        async def watch(event: HookEvent) -> None:
            asked.append(event)

        desk = await Desk.open(min_reduction_percent=95, thrifty_least_tokens=30_000, notes=False)
        session, clock = desk.session, desk.session.ports.clock
        await desk.fill(36_000)
        hook = Hook("watch", watch, matches=lambda event: isinstance(event, PreCompact))
        session.works_with(replace(session.services, hooks=(hook,), summarizer=()))
        session.configure(replace(session.settings, policy=policy))
        assert isinstance(clock, FixedClock) and not desk.of(CompactionAttemptFailed)
        for pause in (1, 2):
            clock.advance(90_000)
            await session.append(Message.of("user", "Where were we?"))
            for _ in range(5):
                await prepare(session)
            assert len(asked) == pause, "not again before the next answer"
            again = await LiveSession.load(session.ports, session.settings, is_read_only=True)
            assert compaction_need(again.view, again.facts()) is None
            await desk.turn("Go on.")
        assert session.view.state.breaker.failures == 0 and not desk.of(CompactionDone)
        assert desk.of(CompactionAttemptFailed)
        session.configure(replace(session.settings, min_reduction_percent=10))
        clock.advance(90_000)
        await desk.turn("And now?")
        assert len(desk.of(CompactionDone)) == 1

    anyio.run(body)


def test_compactions_in_pauses_are_no_refills() -> None:
    """TURN-16, PRS-6: the window was never full, however soon one pause follows the other."""

    async def body() -> None:
        desk = await Desk.open(thrifty_least_tokens=30_000, notes=False)
        session, clock = desk.session, desk.session.ports.clock
        assert isinstance(clock, FixedClock)
        for number in range(6):  # the first pause finds too little
            for part in "ab":
                await desk.turn(f"Read part {number}{part}. " + "value = call() " * 2_500)
            clock.advance(8_000)
            await desk.turn("Go on.")
        assert max(done.tokens_before for done in desk.of(CompactionDone)) < session.limits.trigger
        breaker = session.view.state.breaker
        assert (breaker.boundaries, breaker.refills, breaker.failures) == (5, 0, 0)

    anyio.run(body)


# --- a part ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [True, False])
def test_from_here_on(*, model: bool) -> None:
    """CMP-6: the record stands behind what came before, which is sent as it was, and its cache holds."""

    async def body() -> None:
        desk = await Desk.open()
        await desk.fill(12_000)
        before, ids = await desk.request(), desk.ids
        if model:
            desk.model.upstream.script.append(SUMMARY)
        else:
            serve(desk.session, summarizer=())
        outcome = await compact(desk.session, trigger="manual", part=CompactionPart(start=ids[4]))
        assert isinstance(outcome, CompactionSuccess) and outcome.boundary.strategy == ("full" if model else "ledger")
        assert desk.ids[:4] == ids[:4] and desk.ids[4].startswith("summary-") and len(desk.ids) == 5
        after = await desk.request()
        assert after[:4] == before[:4]
        assert "continuation_part" in outcome.boundary.prompts
        assert "Read part 3." in desk.texts[-1], "the user's words are in the record"
        assert "Read part 1." not in desk.texts[-1], "and only those of the part"
        moved = desk.of(PrefixMoved)[-1]
        assert moved.position == 4 and moved.tokens_rewritten < outcome.boundary.tokens_after
        if model:
            asked = desk.model.requests[-1].parts()[-1][1].raw.decode()
            assert "the message that begins with “Read part 3.”" in asked and "full_part" in outcome.boundary.prompts
        await desk.turn("And now?")

    anyio.run(body)


def test_up_to_here() -> None:
    """CMP-6: what stands before the message gives way, an earlier record too; it and all behind it stay."""

    async def body() -> None:
        desk = await Desk.open()
        await desk.fill(8_000)
        serve(desk.session, summarizer=())
        for _ in range(2):
            await desk.fill(12_000)
            serve(desk.session, summarizer=())
            kept = desk.ids[-4:]
            assert isinstance(
                await compact(desk.session, trigger="manual", part=CompactionPart(end=kept[0])), CompactionSuccess
            )
            assert desk.ids[1:] == kept and desk.ids[0].startswith("summary-")
        await desk.turn("And now?")

    anyio.run(body)


def test_a_part_between_two_messages_and_what_cannot_be() -> None:
    async def body() -> None:
        desk = await Desk.open()
        await desk.fill(12_000)
        ids = desk.ids
        with pytest.raises(CompactionRefused, match="'nowhere' is no message of the view"):
            await compact(desk.session, trigger="manual", part=CompactionPart(start="nowhere"))
        with pytest.raises(CompactionRefused, match="nothing stands in the part"):
            await compact(desk.session, trigger="manual", part=CompactionPart(end=ids[0]))
        with pytest.raises(CompactionRefused, match="begins the ids of several"):
            await compact(desk.session, trigger="manual", part=CompactionPart(start=ids[0][:1]))
        serve(desk.session, summarizer=())
        assert isinstance(
            await compact(desk.session, trigger="manual", part=CompactionPart(start=ids[2], end=ids[-2])),
            CompactionSuccess,
        )
        assert desk.ids[:2] == ids[:2] and desk.ids[3:] == ids[-2:]
        assert desk.session.is_compacting is False

    anyio.run(body)


# --- ahead of time --------------------------------------------------------------------------------------------------


async def warned(desk: Desk, summary: Any = SUMMARY) -> Keepers:
    """A session at the warning, with a summary made in the background and collected."""
    keepers = background(desk.session)
    await desk.fill(desk.session.limits.warning - 500)
    desk.model.upstream.script.append("value = call() " * 200)
    desk.model.upstream.script.append(summary)
    await run_turn(desk.session, "Over the warning.", desk.model, keepers)
    assert await keepers.drain(desk.session, 5)
    return keepers


def test_a_summary_made_ahead_of_time_is_used_at_the_trigger() -> None:
    """CMP-6: the turn that compacts asks no model for it; what came since stays word for word."""

    async def body() -> None:
        desk = await Desk.open()
        await warned(desk)
        assert desk.of(SummaryHeld) and desk.session.view.state.held is not None
        await desk.fill(desk.session.limits.trigger)
        calls = len(desk.of(ModelCalled))
        await desk.turn("One more.")
        [done] = desk.of(CompactionDone)
        assert done.strategy == "full" and done.trigger == "auto" and desk.of(HeldSummaryUsed)
        assert [event.job for event in desk.of(ModelCalled)[calls:]] == ["main"]
        assert "8. Current work: file 7" in desk.texts[0] and "ahead of time" in desk.texts[0]
        assert "Over the warning." in desk.texts[0] or "Over the warning." in desk.texts
        assert desk.session.view.state.held is None
        reopened = await memory_session(journal=desk.session.ports.journal)
        assert reopened.view == desk.session.view

    anyio.run(body)


def test_a_held_summary_survives_a_restart() -> None:
    async def body() -> None:
        desk = await Desk.open()
        await warned(desk)
        parts = SessionOptions(settings=desk.session.settings, sink=desk.sink, clock=FixedClock())
        desk.session = await memory_session(journal=desk.session.ports.journal, parts=parts)
        assert isinstance(await compact(desk.session, trigger="auto"), CompactionSuccess)
        assert desk.of(HeldSummaryUsed)

    anyio.run(body)


@pytest.mark.parametrize("why", ["changed", "gone", "instructions"])
def test_what_no_longer_fits_is_dropped_with_a_reason(why: str) -> None:
    """CMP-6: an edit or a rewind within what it covers, or other instructions."""

    async def body() -> None:
        desk = await Desk.open()
        await warned(desk)
        session = desk.session
        if why == "changed":
            await session.commit((snipped(session),), session.facts())
        elif why == "gone":
            await session.record(Rewound(to=session.view.items[-4].message.id))
        desk.model.upstream.script.append(SUMMARY)
        outcome = await compact(session, trigger="auto", focus="x" if why == "instructions" else "")
        assert isinstance(outcome, CompactionSuccess) and not desk.of(HeldSummaryUsed)
        [failed] = [e for e in desk.of(CompactionAttemptFailed) if e.strategy == "precomputed"]
        assert failed.reason.startswith(why)

    anyio.run(body)


def snipped(session: LiveSession) -> Any:
    message = session.view.items[1].message.id
    return Snipped(changes=(BlockChange(message, 0, msgspec.Raw(text_block("short").raw)),), reason="test")


def test_a_hook_may_block_it_and_a_bad_answer_is_none() -> None:
    """CMP-10: abandoned and reported; the trigger is another matter."""

    async def body() -> None:
        async def refuse(told: HookEvent) -> HookDecision:
            return HookDecision(block="not now") if isinstance(told, PreCompact) else HookDecision()

        desk = await Desk.open()
        serve(desk.session, hooks=(Hook("mine", refuse),))
        await warned(desk)
        assert desk.of(CompactionBlocked)[0].trigger == "precomputed" and desk.session.view.state.held is None
        other = await Desk.open()
        await warned(other, "no summary at all")
        assert other.session.view.state.held is None
        assert [e.reason.split(":")[0] for e in other.of(CompactionAttemptFailed)] == ["no_text"]

    anyio.run(body)


@pytest.mark.parametrize("off", [{"precompute": False}, {"compact_timing": "manual"}])
def test_it_can_be_switched_off(off: dict[str, Any]) -> None:
    async def body() -> None:
        desk = await Desk.open(**off)
        await warned(desk)
        assert not desk.of(SummaryHeld) and desk.session.view.state.held is None

    anyio.run(body)


def test_each_check_tells_its_level_and_where_the_levels_begin() -> None:
    """PRS-1, PRS-7: numbers for a meter, which needn't know the settings; warning and error are two levels."""

    async def body() -> None:
        desk = await Desk.open(auto_compact=False)
        for full in (desk.session.limits.warning + 100, desk.session.limits.error + 100):
            await desk.fill(full, summarizer=())
            await desk.turn("And now?", summarizer=())
        limits, checks = desk.session.limits, desk.of(CompactionChecked)
        assert {
            (c.warning_tokens, c.error_tokens, c.trigger_tokens, c.block_tokens, c.window_tokens) for c in checks
        } == {(limits.warning, limits.error, None, limits.block, 60_000)}
        assert [c.percent_left for c in checks] == sorted((c.percent_left for c in checks), reverse=True)
        assert list(dict.fromkeys(c.level for c in checks)) == ["ok", "warning", "error"]

    anyio.run(body)


def test_nothing_is_done_ahead_without_a_model() -> None:
    """The ledger is ready in a moment, so there is nothing to gain."""

    async def body() -> None:
        desk = await Desk.open()
        keepers = background(desk.session)
        await desk.fill(desk.session.limits.warning + 500, summarizer=(), keepers=keepers)
        await keepers.drain(desk.session, 5)
        assert not desk.of(SummaryHeld)
        await keepers.close(desk.session)

    anyio.run(body)


# --- at the model's request -----------------------------------------------------------------------------------------


async def called(desk: Desk, arguments: dict[str, Any]) -> str:
    """The model calls the tool, and the host hands its answer back."""
    reply = await desk.turn("Go on.", say("I'd like room.", tool_use("compact_context", arguments)))
    use = Message.of("assistant", reply.blocks).tool_uses[0]
    answer = await compact_tool.run(desk.session, use.input)
    result = {"type": "tool_result", "tool_use_id": use.id, "content": answer}
    desk.model.upstream.script.extend([SUMMARY, "Thanks."] if answer == ACCEPTED else ["Thanks."])
    await run_turn(desk.session, [Message.of("user", [result])], desk.model)
    return answer


def test_a_request_that_comes_early_is_put_off_once() -> None:
    """CMP-6: asked for again, it is done at the next legal point, with the model's focus."""

    async def body() -> None:
        desk = await Desk.open(keep_min_tokens=1_000)
        await desk.fill(12_000)
        answer = await called(desk, {"focus": "the parser"})
        assert answer.startswith("Not yet: only ") and "If you call this again, it will be done" in answer
        assert not desk.of(CompactionDone)
        reopened = await memory_session(journal=desk.session.ports.journal)
        assert reopened.view.state.requested == desk.session.view.state.requested, "it is in the fold"
        assert await called(desk, {"focus": "the parser"}) == ACCEPTED
        [done] = desk.of(CompactionDone)
        assert done.trigger == "model" and done.strategy == "full"
        assert "The model asked this record to focus on\nthe parser" in desk.texts[0]
        assert [event.is_accepted for event in desk.of(CompactionRequested)] == [False, True]
        assert desk.session.view.state.requested is None and desk.session.view.state.breaker.refills == 0

    anyio.run(body)


def test_a_request_waits_for_a_loop_with_thinking_to_end() -> None:
    """TURN-7: inside the loop the API wants the thinking back, so nothing before it moves."""

    async def body() -> None:
        desk = await Desk.open(keep_min_tokens=1_000, request_floor_percent=1)
        await desk.fill(12_000)
        thinking = {"type": "thinking", "thinking": "I need room."}
        reply = await desk.turn("Go on.", say(thinking, tool_use("compact_context", {})))
        use = Message.of("assistant", reply.blocks).tool_uses[0]
        assert await compact_tool.run(desk.session, {}) == ACCEPTED
        assert await compact_tool.run(desk.session, {}) == WAITING
        result = {"type": "tool_result", "tool_use_id": use.id, "content": ACCEPTED}
        desk.model.upstream.script.append("Thanks.")
        await run_turn(desk.session, [Message.of("user", [result])], desk.model)
        assert not desk.of(CompactionDone), "the loop was open"
        desk.model.upstream.script.append(SUMMARY)
        await desk.turn("Next, please.")
        assert [event.trigger for event in desk.of(CompactionDone)] == ["model"]

    anyio.run(body)


def test_odd_requests_are_answered_in_words() -> None:
    async def body() -> None:
        desk = await Desk.open()
        assert (await compact_tool.run(desk.session, {"x": 1})).startswith("compact_context failed")
        assert (await compact_tool.run(desk.session, {"focus": 7})).startswith("compact_context failed")
        off = await Desk.open(compact=False)
        assert await compact_tool.run(off.session, {}) == OFF
        assert compact_tool.definition["name"] == "compact_context" and compact_tool.definition["description"]

    anyio.run(body)


def test_a_blocked_request_is_asked_of_the_hook_once() -> None:
    async def body() -> None:
        async def refuse(told: HookEvent) -> HookDecision:
            return HookDecision(block="not now") if isinstance(told, PreCompact) else HookDecision()

        desk = await Desk.open(request_floor_percent=1)
        await desk.fill(5_000)
        serve(desk.session, hooks=(Hook("mine", refuse),))
        assert await compact_tool.run(desk.session, {}) == ACCEPTED
        for _ in range(3):
            await desk.turn("Go on.")
        assert len(desk.of(CompactionBlocked)) == 1 and not desk.of(CompactionDone)

    anyio.run(body)


# --- when -----------------------------------------------------------------------------------------------------------


def test_boundary_timing_waits_for_the_loop_to_end() -> None:
    """CMP-7: at the trigger inside a tool loop nothing happens; at the next prompt of a person it does."""

    async def body() -> None:
        for timing, expected in (("eager", 1), ("boundary", 0)):
            desk = await Desk.open(compact_timing=timing)
            await desk.fill(desk.session.limits.trigger - 600, summarizer=())
            reply = await desk.turn("Read it.", say("Reading.", tool_use("Read", {"path": "a"})), summarizer=())
            use = Message.of("assistant", reply.blocks).tool_uses[0]
            result = {"type": "tool_result", "tool_use_id": use.id, "content": "row " * 2_000}
            desk.model.upstream.script.append("Read.")
            await run_turn(desk.session, [Message.of("user", [result])], desk.model, summarizer=())
            assert len(desk.of(CompactionDone)) == expected, timing
            await desk.turn("And now?", summarizer=())
            assert len(desk.of(CompactionDone)) == 1

    anyio.run(body)


def test_manual_timing_never_compacts_by_itself() -> None:
    """CMP-7: pressure still shows and says what to do; a person's own compaction works."""

    async def body() -> None:
        desk = await Desk.open(compact_timing="manual")
        with pytest.raises(ContextBlocked, match="compact by hand"):
            await desk.fill(60_000, summarizer=())
        view, facts = desk.session.view, desk.session.facts()
        assert not desk.of(CompactionDone) and pressure(view, facts).value == "blocked"
        assert "run /compact" in (low_line(facts.size(view), facts.limits) or "")
        assert isinstance(await compact(desk.session, trigger="manual"), CompactionSuccess)

    anyio.run(body)


# --- who is told ----------------------------------------------------------------------------------------------------


def test_those_who_loaded_something_are_told_of_a_boundary() -> None:
    """CMP-8: after the commit; one that fails is an event."""

    async def body() -> None:
        desk, told = await Desk.open(), list[Compacted]()
        await desk.fill(12_000, summarizer=())
        serve(desk.session, on_boundary=(lambda boundary: 1 // 0, told.append))  # type: ignore[assignment]
        outcome = await compact(desk.session, trigger="manual")
        assert isinstance(outcome, CompactionSuccess) and told == [desk.session.view.boundary]
        assert [event.reason for event in desk.of(BoundaryListenerFailed)] == ["ZeroDivisionError"]

    anyio.run(body)


# --- errors within ---------------------------------------------------------------------------------------------------


@pytest.mark.quick(2)
@pytest.mark.parametrize("first", ["too_long", "too_long_with_numbers", "body_too_large", "window_stop"])
def test_every_fault_inside_a_compaction_ends(first: Fault) -> None:
    """TURN-11, CMP-4: what makes the turn compact, then any fault of the model that writes the record, then another.

    The machine's test (`tests/machines/test_ladder.py`) has all sequences up to six; this is the real loop of both.
    """

    async def body() -> None:
        ended: Counter[str] = Counter()
        for second in get_args(Fault):
            for third in ("ok", "overloaded", first):
                desk = await Desk.open(keep_min_tokens=500, retry_attempts=2)
                await desk.fill(9_000)
                desk.model.upstream.script.extend([SUMMARY, "The end.", "The end."])
                chaos = ChaosModel(desk.model, [first, second, third])
                try:
                    reply = await run_turn(desk.session, "The prompt.", chaos)
                    ended["answered" if reply.text else "blank"] += 1
                except (ModelGaveUp, ContextBlocked) as e:
                    ended[type(e).__name__] += 1
                assert len(desk.of(ModelFailed)) + len(desk.of(ModelCalled)) < 30
                assert any("The prompt." in text for text in desk.texts), (second, third)
                assert not check_anthropic(to_request(desk.session.view, desk.session.facts()).body)
                ended["compacted"] += len(desk.of(CompactionDone))
                reopened = await memory_session(journal=desk.session.ports.journal)
                assert reopened.view == desk.session.view
        assert ended["answered"] > 20 and ended["compacted"] > 20, ended

    anyio.run(body)


def test_with_nothing_to_compact_that_is_the_reason_and_not_that_there_are_no_notes() -> None:
    """CMP-8: an outcome names what the last strategy says, also where that has no proposal at all."""

    async def no_notes(session: LiveSession, facts: Facts) -> AsyncIterator[CompactionPlan | str]:
        yield "no_notes: none were written yet"

    async def body() -> None:
        sink = ListSink()
        session = await memory_session(parts=SessionOptions(sink=sink))
        serve(session, strategies=(CompactionStrategy("session_memory", no_notes),))
        for record in (None, "A record of a person."):
            outcome = await compact(session, trigger="manual", record=record)
            assert isinstance(outcome, CompactionFailure) and outcome.reason.startswith("nothing_to_compact: ")
        failed = [(e.strategy, e.reason.split(":")[0]) for e in sink.events if isinstance(e, CompactionAttemptFailed)]
        assert failed == [
            ("session_memory", "no_notes"),
            ("ledger", "nothing_to_compact"),
            ("supplied", "nothing_to_compact"),
        ]

    anyio.run(body)
