"""The turn end to end (TURN-8, TURN-11, TURN-12, TURN-13): the ladder, what an interruption leaves, small windows."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator
from typing import Any, get_args

import anyio
import msgspec
import pytest
from tests.services import FixedClock

from perdure import Message, Settings
from perdure.adapters.providers.anthropic import AnthropicModel
from perdure.adapters.providers.offline import OfflineModel
from perdure.adapters.providers.openai import OpenAIModel
from perdure.adapters.sinks import ListSink
from perdure.context.models import ModelSpec
from perdure.context.replies import BlockDone, Delta, ModelInfo, ProviderEdit, Reply, ReplyStarted, TextDelta
from perdure.context.request import ModelRequest, to_request
from perdure.engine.ask import JobModels, ask_job
from perdure.engine.session import LiveSession
from perdure.engine.turn import run_turn
from perdure.errors import ContextBlocked, ModelError, ModelGaveUp, PromptTooLong, RateLimited
from perdure.events import (
    AnswerInterrupted,
    CompactionDone,
    LadderGaveUp,
    LadderStepped,
    ModelCalled,
    ModelFailed,
    ModelFellBack,
    PrefixMoved,
    PromptCutByServer,
    ProviderEdited,
    RetryWaited,
    WindowLearned,
)
from perdure.logs.recording import RecordedMessage, Recording
from perdure.ports.session import Model
from perdure.testing import (
    ChaosModel,
    FakeServer,
    FakeUpstream,
    Fault,
    ModelRules,
    ReplayingModel,
    ScriptedModel,
    UpstreamError,
    check_anthropic,
    overloaded,
    rate_limited,
    say,
    server_error,
    thinking,
    tool_use,
)
from perdure.transcript.blocks import text_block
from perdure.transcript.messages import MessageId, ResponseId, Usage
from perdure.transcript.records import Calibrated, Compacted, MediaReplaced, Noted, Settled, ThinkingDropped
from perdure.wiring import SessionOptions, memory_session

pytestmark = pytest.mark.e2e

BOUND = ModelSpec(prefix="bound", thinking_is_bound=True)


class Desk:
    """A session with its events and a clock that doesn't wait."""

    def __init__(self) -> None:
        self.sink, self.clock = ListSink(), FixedClock()
        self.session: LiveSession

    @classmethod
    async def open(cls, *, model: ModelSpec | None = None, **settings: Any) -> Desk:
        desk = cls()
        parts = SessionOptions(settings=Settings(**settings), sink=desk.sink, clock=desk.clock, model=model)
        desk.session = await memory_session(parts=parts)
        return desk

    def events(self, *kinds: type) -> list[Any]:
        return [event for event in self.sink.events if isinstance(event, kinds)]

    async def records(self, *kinds: type) -> list[Any]:
        loaded = await self.session.ports.journal.load(whole=True)
        return [placed.record for placed in loaded.records if isinstance(placed.record, kinds)]

    async def messages(self) -> list[Message]:
        return await self.records(Message)


def results(reply: Reply, content: Any = "done") -> list[Message]:
    uses = Message.of("assistant", reply.blocks).tool_uses
    return [Message.of("user", [{"type": "tool_result", "tool_use_id": use.id, "content": content} for use in uses])]


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}

# --- the plain way --------------------------------------------------------------------------------------------------


def test_an_answer_is_appended_with_its_usage_and_response() -> None:
    """TURN-12, LIB-1."""

    async def body() -> None:
        desk = await Desk.open()
        model, deltas = ScriptedModel(["The answer is 42."]), []
        reply = await run_turn(desk.session, "What is 6 times 7?", model, on_delta=deltas.append)
        asked, answered = await desk.messages()
        assert asked.origin == "user" and answered.origin == "model"
        assert answered.response_id == reply.response and answered.stop_reason == "end_turn"
        assert answered.usage == reply.usage is not None and answered.model == "scripted"
        assert "".join(d.text for d in deltas if isinstance(d, TextDelta)) == reply.text == "The answer is 42."
        assert desk.session.view.front is not None and desk.session.view.front.model == "scripted"
        (called,) = desk.events(ModelCalled)
        assert called.prompt_tokens == reply.usage.prompt_tokens and called.job == "main"

    anyio.run(body)


def test_tool_results_go_on_with_the_turn() -> None:
    async def body() -> None:
        desk = await Desk.open()
        model = ScriptedModel([say("let me see", tool_use("Read", {"path": "a"})), "it says hello"])
        reply = await run_turn(desk.session, "what is in a?", model)
        assert reply.stop_reason == "tool_use"
        reply = await run_turn(desk.session, results(reply, "hello"), model)
        assert reply.text == "it says hello" and not model.upstream.statistics.violations

    anyio.run(body)


def test_the_offline_model_says_what_it_is() -> None:
    async def body() -> None:
        desk = await Desk.open()
        reply = await run_turn(desk.session, "hello", OfflineModel())
        assert "offline" in reply.text and reply.usage is None
        assert [m.role for m in await desk.messages()] == ["user", "assistant"]

    anyio.run(body)


def test_a_recording_answers_again() -> None:
    async def body() -> None:
        use = {"type": "tool_use", "id": "t1", "name": "Read", "input": {}}
        messages = [
            Message.of("user", "go", id=MessageId("a")),
            Message.of("assistant", "so", id=MessageId("b"), response_id=ResponseId("r1")),
            Message.of("assistant", [use], id=MessageId("c"), response_id=ResponseId("r1")),
            Message.of("assistant", "done", id=MessageId("d"), response_id=ResponseId("r2")),
        ]
        steps = tuple(RecordedMessage(message, line) for line, message in enumerate(messages))
        model = ReplayingModel(Recording(format="perdure", session="s", steps=steps))
        desk = await Desk.open()
        reply = await run_turn(desk.session, "go", model)
        assert [block.type for block in reply.blocks] == ["text", "tool_use"] and reply.response == "r1"
        reply = await run_turn(desk.session, results(reply), model)
        assert reply.text == "done" and model.remaining == 0
        with pytest.raises(ModelGaveUp, match="no more answers"):
            await run_turn(desk.session, "more", model)

    anyio.run(body)


# --- the ladder -----------------------------------------------------------------------------------------------------


def test_overloaded_and_rate_limits_wait_as_the_server_says() -> None:
    async def body() -> None:
        desk = await Desk.open()
        model = ScriptedModel([rate_limited(20), overloaded(), server_error(), "at last"])
        reply = await run_turn(desk.session, "hello", model)
        assert reply.text == "at last"
        assert desk.clock.slept == [20.0, 2.0, 4.0]
        assert [(e.reason, e.seconds) for e in desk.events(RetryWaited)] == [
            ("rate_limited", 20.0),
            ("overloaded", 2.0),
            ("down", 4.0),
        ]
        assert [e.reason for e in desk.events(ModelFailed)] == ["rate_limited", "overloaded", "down"]
        assert len(await desk.messages()) == 2

    anyio.run(body)


def test_giving_up_says_what_was_tried_and_loses_nothing() -> None:
    async def body() -> None:
        desk = await Desk.open(retry_attempts=2)
        model = ScriptedModel([overloaded()] * 3)
        with pytest.raises(ModelGaveUp, match=r"tried: waited 1 s \(overloaded\), waited 2 s \(overloaded\)"):
            await run_turn(desk.session, "hello", model)
        (gave_up,) = desk.events(LadderGaveUp)
        assert gave_up.reason == "overloaded"
        reply = await run_turn(desk.session, None, model)
        assert reply.text == "ok" and [m.role for m in await desk.messages()] == ["user", "assistant"]

    anyio.run(body)


def test_cut_streams_are_asked_again_twice() -> None:
    async def body() -> None:
        desk = await Desk.open()
        deltas: list[Delta] = []
        model = ChaosModel(ScriptedModel(["whole"]), ["cut", "cut"])
        reply = await run_turn(desk.session, "hello", model, on_delta=deltas.append)
        assert reply.text == "whole" and len([d for d in deltas if isinstance(d, ReplyStarted)]) == 3
        assert len(await desk.messages()) == 2
        with pytest.raises(ModelGaveUp, match="stream_cut"):
            await run_turn(desk.session, "more", ChaosModel(ScriptedModel(), ["cut"] * 3))

    anyio.run(body)


async def filled(desk: Desk, model: Model, *, reads: int = 12, words: int = 900) -> None:
    """A conversation with some weight: a request, and files read for it."""
    session = desk.session
    await session.append(Message.of("user", "Please read the files and tell me what they do."))
    for number in range(reads):
        use = {"type": "tool_use", "id": f"toolu_{number}", "name": "Read", "input": {"path": f"f{number}.py"}}
        text = f"line {number} of the file\n" * words
        result = {"type": "tool_result", "tool_use_id": use["id"], "content": text}
        await session.append(
            Message.of("assistant", [{"type": "text", "text": f"Reading {number}."}, use]),
            Message.of("user", [result]),
        )


@pytest.mark.parametrize("has_numbers", [True, False])
def test_too_long_compacts_once_and_learns_the_window(has_numbers: bool) -> None:
    """TURN-11, TOK-4, PRS-8: the table says 200,000, the server knows better."""

    async def body() -> None:
        desk = await Desk.open()
        # it refuses by itself and with numbers, or says only that it is too long
        upstream = FakeUpstream(rules=ModelRules(window_tokens=32_000 if has_numbers else 1_000_000))
        if not has_numbers:
            upstream.script.append(UpstreamError(400, "invalid_request_error", "prompt is too long"))
        model = ScriptedModel(upstream=upstream, id="mystery", window_tokens=None)
        await filled(desk, model)
        before = desk.session.facts().size(desk.session.view)
        assert before > 32_000
        reply = await run_turn(desk.session, "And now?", model)
        assert reply.text == "ok"
        (boundary,) = await desk.records(Compacted)
        assert boundary.trigger == "reactive"
        limits = desk.session.limits
        assert limits.window_source == "provider" and limits.window <= before * 1.01
        assert desk.events(WindowLearned) and desk.events(CompactionDone)
        assert not has_numbers or limits.window == 32_000

    anyio.run(body)


def test_an_answer_that_may_not_be_that_long_is_asked_for_shorter() -> None:
    async def body() -> None:
        desk = await Desk.open()
        model = ScriptedModel()
        model.upstream.script.append(
            UpstreamError(
                400,
                "invalid_request_error",
                "max_tokens: 32000 > 8192, which is the maximum allowed number of output tokens for old",
            )
        )
        reply = await run_turn(desk.session, "hello", model)
        assert reply.text == "ok" and not await desk.records(Compacted)
        assert [msgspec.json.decode(r.body)["max_tokens"] for r in model.requests] == [32_000, 8_192]
        await run_turn(desk.session, "more", model)
        assert msgspec.json.decode(model.requests[-1].body)["max_tokens"] == 8_192, "learned for good"

    anyio.run(body)


def test_a_window_set_too_large_is_named_when_nothing_helps() -> None:
    async def body() -> None:
        desk = await Desk.open(window_tokens=150_000)
        model = ScriptedModel(window_tokens=1_000)
        await desk.session.append(Message.of("user", "word " * 6_000))
        with pytest.raises(ModelGaveUp, match=r"the window is 150,000 by setting, the model's is 1,000: lower it"):
            await run_turn(desk.session, "hello " * 2_000, model)

    anyio.run(body)


def test_a_media_error_drops_the_named_block() -> None:
    async def body() -> None:
        desk = await Desk.open()
        said = "messages.0.content.1.image.source.base64: Could not process image"
        model = ScriptedModel([UpstreamError(400, "invalid_request_error", said), "I see nothing"])
        prompt = Message.of("user", [{"type": "text", "text": "look"}, IMAGE, {"type": "text", "text": "well?"}])
        reply = await run_turn(desk.session, prompt, model)
        assert reply.text == "I see nothing"
        (edit,) = await desk.records(MediaReplaced)
        assert [c.block for c in edit.changes] == [1] and edit.reason == "refused by the provider"
        assert b"refused it" in model.requests[-1].body and b"base64" not in model.requests[-1].body
        assert b"base64" in (await desk.messages())[0].blocks[1].raw, "the journal keeps it"
        (stepped,) = desk.events(LadderStepped)
        assert (stepped.remedy, stepped.helped) == ("DropMedia", True)

    anyio.run(body)


def test_a_thinking_error_drops_thinking() -> None:
    async def body() -> None:
        desk = await Desk.open(model=BOUND)
        model = ScriptedModel([say(thinking("hm"), "one")])
        await run_turn(desk.session, "first", model)
        said = "messages.1.content.0: Invalid `signature` in `thinking` block."
        model.upstream.script.extend([UpstreamError(400, "invalid_request_error", said), "two"])
        reply = await run_turn(desk.session, "second", model)
        assert reply.text == "two"
        (edit,) = await desk.records(ThinkingDropped)
        assert len(edit.changes) == 1 and b'"thinking"' not in model.requests[-1].body

    anyio.run(body)


def test_an_error_with_nothing_to_drop_ends_at_once() -> None:
    async def body() -> None:
        desk = await Desk.open()
        said = "messages.0.content.0.image: Could not process image"
        model = ScriptedModel([UpstreamError(400, "invalid_request_error", said)])
        with pytest.raises(ModelGaveUp, match=r"left media out \(no use: there is nothing of the kind\)"):
            await run_turn(desk.session, "no image here", model)

    anyio.run(body)


def test_an_answer_that_meets_the_window_is_kept_and_goes_on_after_a_compaction() -> None:
    async def body() -> None:
        desk = await Desk.open(summarizer_models=("offline",))
        model = ScriptedModel()
        await filled(desk, model)
        model.upstream.script.extend([say("The answer would", stop_reason="model_context_window_exceeded"), "be 42."])
        reply = await run_turn(desk.session, "Go on.", model)
        assert reply.text == "be 42."
        assert len(await desk.records(Compacted)) == 1
        texts = [m.blocks[0].raw for m in await desk.messages() if m.role == "assistant"][-2:]
        assert b"The answer would" in texts[0] and b"be 42." in texts[1]

    anyio.run(body)


def test_an_empty_answer_is_asked_for_once_more() -> None:
    async def body() -> None:
        desk = await Desk.open()
        reply = await run_turn(desk.session, "hello", ChaosModel(ScriptedModel(["words"]), ["empty"]))
        assert reply.text == "words"
        reply = await run_turn(desk.session, "again", ChaosModel(ScriptedModel(["words"]), ["empty", "only_thinking"]))
        assert reply.is_empty
        reply = await run_turn(desk.session, "more", ScriptedModel(["fine"]))
        assert reply.text == "fine"

    anyio.run(body)


def test_any_sequence_of_faults_ends_and_leaves_a_valid_session() -> None:
    """TURN-11: a sample of what the machine's test does exhaustively, through the real loop."""

    async def body() -> None:
        chance = random.Random(7)
        faults: tuple[Fault, ...] = get_args(Fault)
        for _ in range(60):
            desk = await Desk.open(retry_attempts=3)
            inner = ScriptedModel(upstream=FakeUpstream())
            await filled(desk, inner, reads=chance.choice([0, 3, 30]))
            plan = chance.choices(faults, k=chance.randint(1, 6))
            try:
                reply = await run_turn(desk.session, "The prompt.", ChaosModel(inner, plan))
                assert isinstance(reply, Reply)
            except ModelGaveUp as e:
                assert e.last.reason != "gave_up"
            except ContextBlocked:
                assert {"too_long", "too_long_with_numbers"} & set(plan)
            said = [m for m in await desk.messages() if m.origin == "user"]
            assert any(b"The prompt." in block.raw for m in said for block in m.blocks), plan
            request = to_request(desk.session.view, desk.session.facts())
            assert not check_anthropic(request.body), plan
            assert inner.upstream.statistics.violations.total() == 0, plan

    anyio.run(body)


# --- full, interrupted ----------------------------------------------------------------------------------------------


def test_a_full_context_is_refused_before_the_call() -> None:
    """TURN-13."""

    async def body() -> None:
        desk = await Desk.open(window_tokens=20_000, auto_compact=False)
        model = ScriptedModel()
        for _ in range(4):
            await desk.session.append(Message.of("user", "many different words " * 800))
        with pytest.raises(ContextBlocked, match=r"tokens, [\d,]+ over .*auto-compaction is off"):
            await run_turn(desk.session, "and now?", model)
        assert not model.requests and len(await desk.messages()) == 5

    anyio.run(body)


def test_a_context_that_refills_at_once_is_said_to() -> None:
    """PRS-6: why nothing is compacted any more, how often that failed, and what to do."""

    async def body() -> None:
        desk = await Desk.open(window_tokens=20_000, thrash_refills=5)
        for _ in range(4):
            await desk.session.append(Message.of("user", "many different words " * 800))
        view = desk.session.view
        breaker = msgspec.structs.replace(view.state.breaker, refills=5)
        view.state = msgspec.structs.replace(view.state, breaker=breaker)
        with pytest.raises(
            ContextBlocked, match=r"right after the last 5 compactions; read less at a time, or compact"
        ):
            await run_turn(desk.session, "and now?", ScriptedModel())

    anyio.run(body)


class Stalling:
    """A model that says some deltas and then nothing more."""

    def __init__(self, *deltas: Delta) -> None:
        self.deltas, self.stalled, self.ended = deltas, anyio.Event(), False

    @property
    def about(self) -> ModelInfo:
        return ModelInfo(id="stalling", protocol="anthropic")

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply, None]:
        try:
            for delta in self.deltas:
                yield delta
            self.stalled.set()
            await anyio.sleep_forever()
        finally:
            self.ended = True

    async def count(self, request: ModelRequest) -> int | None:
        return None

    async def close(self) -> None:
        pass


async def interrupted(desk: Desk, model: Stalling) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(run_turn, desk.session, "hello", model)
        await model.stalled.wait()
        group.cancel_scope.cancel()
    assert model.ended


def test_an_interruption_keeps_whole_blocks_and_settles_calls() -> None:
    async def body() -> None:
        desk = await Desk.open()
        use = Message.of("assistant", [{"type": "tool_use", "id": "t1", "name": "Read", "input": {}}]).blocks[0]
        model = Stalling(
            ReplyStarted(ResponseId("r1")), BlockDone(0, text_block("So.")), BlockDone(1, use), TextDelta(2, "half a")
        )
        await interrupted(desk, model)
        _, kept = await desk.messages()
        assert [b.type for b in kept.blocks] == ["text", "tool_use"]
        assert (kept.stop_reason, kept.response_id) == ("interrupted", "r1")
        (event,) = desk.events(AnswerInterrupted)
        assert (event.kept_blocks, event.dropped_blocks) == (2, 1)
        model_after = ScriptedModel(["fine"])
        reply = await run_turn(desk.session, "go on", model_after)
        assert reply.text == "fine" and not model_after.upstream.statistics.violations
        (settled,) = await desk.records(Settled)
        assert settled.tool_use_ids == ("t1",)

    anyio.run(body)


def test_an_interruption_without_a_whole_block_is_recorded() -> None:
    async def body() -> None:
        desk = await Desk.open()
        await interrupted(desk, Stalling(ReplyStarted(ResponseId("r1")), TextDelta(0, "half a")))
        assert [m.role for m in await desk.messages()] == ["user"]
        (noted,) = await desk.records(Noted)
        assert noted.kind == "answer_dropped" and noted.data["response"] == "r1"
        reply = await run_turn(desk.session, "go on", ScriptedModel(["fine"]))
        assert reply.text == "fine"

    anyio.run(body)


def test_a_reader_that_fails_ends_the_call_like_an_interruption() -> None:
    async def body() -> None:
        desk = await Desk.open()

        def reader(delta: Delta) -> None:
            if isinstance(delta, BlockDone):
                raise RuntimeError("the terminal is gone")

        with pytest.raises(RuntimeError):
            await run_turn(desk.session, "hello", ScriptedModel(["words"]), on_delta=reader)
        assert [m.stop_reason for m in await desk.messages()] == [None, "interrupted"]

    anyio.run(body)


# --- other models, other jobs ---------------------------------------------------------------------------------------


def test_another_model_is_recorded_and_brings_its_window() -> None:
    """PRS-8: what a model states of itself, and never that of the one before."""

    async def body() -> None:
        desk = await Desk.open()
        await run_turn(desk.session, "one", ScriptedModel(id="small", window_tokens=16_000))
        assert (desk.session.limits.window, desk.session.limits.window_source) == (16_000, "provider")
        await run_turn(desk.session, "two", ScriptedModel(id="large", window_tokens=500_000))
        assert desk.session.limits.window == 500_000
        assert [r.window_tokens for r in await desk.records(Calibrated)] == [16_000, 500_000]
        await run_turn(desk.session, "three", ScriptedModel(id="large", window_tokens=500_000))
        assert len(await desk.records(Calibrated)) == 2
        await run_turn(desk.session, "four", ScriptedModel(id="silent", window_tokens=None))
        assert desk.session.limits.window_source == "default"

    anyio.run(body)


def test_a_job_falls_back_to_its_next_model() -> None:
    async def body() -> None:
        desk = await Desk.open(retry_attempts=1)
        bad, good = ScriptedModel([overloaded(), overloaded()], id="bad"), ScriptedModel(["notes"], id="good")
        models = JobModels(main=(good,), notes=(bad, good))
        await desk.session.append(Message.of("user", "hello"))

        def asking(about: ModelInfo) -> tuple[ModelRequest, int]:
            view, facts = desk.session.view, desk.session.facts()
            return to_request(view, facts, protocol=about.protocol, stream=True, model=about.id), 10

        reply = await ask_job(desk.session, models, "notes", asking)
        assert isinstance(reply, Reply) and reply.text == "notes"
        (fell,) = desk.events(ModelFellBack)
        assert (fell.job, fell.model, fell.reason) == ("notes", "good", "gave_up")
        assert len(await desk.messages()) == 1, "a job says nothing in the conversation"
        nobody = await ask_job(desk.session, JobModels(), "selector", asking)
        assert isinstance(nobody, ModelError)
        long = ScriptedModel([UpstreamError(400, "invalid_request_error", "prompt is too long")])
        error = await ask_job(desk.session, JobModels(summarizer=(long,)), "summarizer", asking)
        assert isinstance(error, PromptTooLong), "the caller makes another request"
        far = ScriptedModel([rate_limited(100_000)])
        error = await ask_job(desk.session, JobModels(summarizer=(far,)), "summarizer", asking)
        assert isinstance(error, RateLimited)
        await models.close()
        assert bad.is_closed and good.is_closed

    anyio.run(body)


class Summarising(Stalling):
    """A provider that makes a summary of its own in its first answer."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply, None]:
        summary = {"type": "compaction", "content": "They read files.", "encrypted_content": "e"}
        blocks = (Message.of("assistant", [summary]).blocks[0], text_block("On we go."))
        yield ReplyStarted(ResponseId("r1"))
        size, billed = Usage(input_tokens=1_000, output_tokens=20), Usage(input_tokens=60_000, output_tokens=900)
        about = self.about
        yield Reply(
            response=ResponseId("r1"),
            model=about.id,
            blocks=blocks,
            stop_reason="end_turn",
            usage=size,
            billed=billed,
            edits=(ProviderEdit("clear_tool_uses_20250919", 3, 500),),
        )


def test_what_the_provider_does_to_the_context_is_sized_and_not_learned_from() -> None:
    """TURN-4, LIB-3: context editing and compaction blocks of the API, with our history untouched."""

    async def body() -> None:
        desk = await Desk.open(provider_clearing=True, provider_compaction=True)
        inner = ScriptedModel()
        await filled(desk, inner)
        ratio = desk.session.view.state.calibration.ratio
        await run_turn(desk.session, "And now?", Summarising())
        session = desk.session
        assert session.facts().size(session.view) == 1_020, "the last message of the iterations, not the compaction"
        assert session.view.state.calibration.ratio == ratio
        (edited,) = desk.events(ProviderEdited)
        assert (edited.kind, edited.cleared, edited.cleared_tokens) == ("clear_tool_uses_20250919", 3, 500)
        request = to_request(session.view, session.facts())
        assert b'"compaction","content":"They read files."' in request.body
        edits = msgspec.json.decode(request.body)["context_management"]["edits"]
        assert [edit["type"] for edit in edits] == ["clear_tool_uses_20250919", "compact_20260112"]
        assert request.betas == ("context-management-2025-06-27", "compact-2026-01-12")

    anyio.run(body)


def test_a_server_that_cuts_the_prompt_is_found_out() -> None:
    """LIB-3: Ollama reads the end of a long prompt only, and reports fewer tokens than were sent."""

    async def body() -> None:
        desk = await Desk.open(summarizer_models=("offline",))
        async with FakeServer(FakeUpstream(script=["I forgot", "I know"]), cuts_at=4_090) as server:
            model = OpenAIModel("qwen", base_url=server.url + "/v1")
            await filled(desk, model, reads=4, words=600)
            reply = await run_turn(desk.session, "What do they do?", model)
            await model.close()
        assert reply.text == "I know"
        (cut,) = desk.events(PromptCutByServer)
        assert (cut.reported_tokens, cut.window_tokens) == (4_090, 4_096)
        assert (desk.session.limits.window, desk.session.limits.window_source) == (4_096, "provider")
        assert len(await desk.records(Compacted)) == 1

    anyio.run(body)


@pytest.mark.parametrize("kind", ["anthropic", "openai"])
def test_sixty_calls_in_a_small_window(kind: str) -> None:
    """TURN-8: a session that never ends at the window, over the wire, without one refused request."""

    async def body() -> None:
        desk = await Desk.open(summarizer_models=("offline",))
        chance = random.Random(3)
        tools = ("Read", "Task", "AskColleague")  # results of the last two are never cleared
        script = [say(f"Step {n}.", tool_use(tools[n % 3], {"path": f"src/file{n}.py"})) for n in range(60)]
        upstream = FakeUpstream(rules=ModelRules(window_tokens=32_000), script=script)
        async with FakeServer(upstream, model={"max_model_len": 32_000, "max_input_tokens": 32_000}) as server:
            model: AnthropicModel | OpenAIModel
            if kind == "anthropic":
                model = AnthropicModel("small", key="k", base_url=server.url)
            else:
                model = OpenAIModel("small", base_url=server.url + "/v1")
            await model.discover()
            said: Any = "Read all files and fix the bug in the parser. Never touch the tests."
            for _ in range(60):
                reply = await run_turn(desk.session, said, model)
                assert reply.stop_reason == "tool_use"
                content = "\n".join(f"{n}: value_{chance.randrange(10**6)} = call()" for n in range(150))
                said = results(reply, content)
            await model.close()
        statistics = upstream.statistics
        assert statistics.refused == 0 and not statistics.violations and statistics.requests == 60
        boundaries = await desk.records(Compacted)
        assert len(boundaries) >= 3 and all(b.trigger == "auto" for b in boundaries)
        assert desk.session.limits.window_source == "provider"
        assert len(statistics.prefix_moves) <= len(desk.events(PrefixMoved)), "the prefix moves with a reason only"
        calls = desk.events(ModelCalled)
        assert len(calls) == 60 and all(c.prompt_tokens < 32_000 for c in calls)
        if kind == "anthropic":
            for received in server.received[1:]:
                assert msgspec.json.decode(received.body)["stream"] is True and not check_anthropic(received.body)

    anyio.run(body)
