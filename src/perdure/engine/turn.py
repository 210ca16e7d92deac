"""The turn: passes in their order, the compaction check, the request, the call and its ladder (TURN-1 to TURN-13)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from perdure.compaction.collapse import CHEAP_PASSES, collapse
from perdure.context.failures import locate_block, path_in
from perdure.context.groups import (
    CONTINUES,
    RequiredThinking,
    lacks_turn,
    required_thinking,
    unencoded_bytes,
    unflattened_bytes,
)
from perdure.context.models import CacheTtl
from perdure.context.passes import CLOSING_PASSES, READING_PASSES, Pass
from perdure.context.policy import Facts, Pressure, compaction_need, least_window, percent_left, pressure_at
from perdure.context.replies import ModelInfo, Reply, WireProtocol
from perdure.context.request import ModelRequest, to_request
from perdure.context.state import REQUESTED
from perdure.context.thinking import closing_lines, is_broken
from perdure.context.view import ContextView
from perdure.engine.ask import (
    Action,
    DeliverAnswer,
    EmptyAnswer,
    GiveUp,
    GoodAnswer,
    JobModels,
    ModelCall,
    OnDelta,
    RecoveryLadder,
    RemedyLimits,
    RemedyUseless,
    WindowStop,
    append_reply,
    apply,
    call,
    own,
    record_model,
    step,
    with_background_models,
)
from perdure.engine.session import LARGE_BYTES, LiveSession, run_aside, run_aside_of
from perdure.errors import BadRequest, ContextBlocked, ModelError, ModelGaveUp, PromptTooLong, SpendingCapReached
from perdure.events import CompactionChecked, LadderGaveUp
from perdure.ports.session import Model
from perdure.settings import Settings
from perdure.transcript.messages import Message
from perdure.transcript.records import Edit, Noted
from perdure.transcript.tokens import NOTHING, base_tokens

if TYPE_CHECKING:  # what a request doesn't need is imported where it is needed (LIB-6)
    from perdure.engine.background import Keepers
    from perdure.engine.compact import CompactionOutcome

WINDOW_STOP = "model_context_window_exceeded"


async def run_turn(
    session: LiveSession,
    prompt: str | Message | Sequence[Message] | None,
    model: Model,
    keepers: Keepers | None = None,
    *,
    source: str = "user",
    on_delta: OnDelta | None = None,
    summarizer: Sequence[Model] | None = None,
    helpers: JobModels | None = None,
) -> Reply:
    """Say something, ask the model, and append what it answers (TURN-8, TURN-11, TURN-12).

    `prompt` is what a person says, or messages (results of tools, with what was said along); None asks again with what
    is there. `on_delta` sees the answer as it comes: a second `ReplyStarted` means that the first try was lost. Keepers
    run in the background afterwards; they never delay the turn and never fail it. `summarizer` are the models that
    write a record when the context has to be compacted: () to do it without a model (CMP-1). `helpers` are the models
    of the jobs beside it, such as the session's notes and the choice of memories: `JobModels()` to do them without a
    model (SM-3, SM-7). Both hold for this turn and for what it starts. None: what the session was given when it was
    opened, else this model, where no setting says `offline`.

    Raises `ContextBlocked` when the view is full and nothing more can go (nothing was sent then), and `ModelGaveUp`,
    which says what was tried. Cancelled, it keeps the whole blocks of the answer; the session stays valid in any case.

        from perdure.testing import ScriptedModel
        session = await memory_session()
        reply = await run_turn(session, "What is 6 times 7?", ScriptedModel(["42"]))
        assert reply.text == "42"
    """
    if keepers is not None:
        await keepers.collect(session)
    session.held_with(model)
    with with_background_models(session, own(session, summarizer=summarizer, helpers=helpers)):
        await _reminded(session, "before")
        await session.append(*_messages(prompt), *session.taken_late())
        reply = await _ask(session, model, source, on_delta)
        await rest_aside(session)
        if keepers is not None:
            keepers.after_reply(session, source)
    return reply


async def _reminded(session: LiveSession, moment: Literal["before", "behind"]) -> None:
    if session.services.reminders:
        from perdure.engine.reminders import remind

        await remind(session, moment)


async def rest_aside(session: LiveSession) -> None:
    """As `LiveSession.rest`, in a thread, once there is enough to read; a little more is read by the compaction."""
    settings, key, size = session.settings, session.ports.secret_key, session.view.unread_bytes
    if size > LARGE_BYTES:
        from perdure.compaction.ledger.reader import index_of

        await run_aside_of(session.view, lambda view: index_of(view, settings, key), size_bytes=size)


def _messages(prompt: str | Message | Sequence[Message] | None) -> Sequence[Message]:
    if isinstance(prompt, str):
        return (Message.of("user", prompt),)
    return (prompt,) if isinstance(prompt, Message) else prompt or ()


async def _ask(session: LiveSession, model: Model, source: str, on_delta: OnDelta | None) -> Reply:
    """Prepare, call, and climb the ladder until there is an answer or nothing is left to try (TURN-11)."""
    about = model.about
    await record_model(session, about)
    ladder = RecoveryLadder(rungs=RemedyLimits.of(session.settings))
    while True:
        prepared = await prepare(session, source=source, protocol=about.protocol, stream=True)
        said = await call(session, model, ModelCall(prepared.request, prepared.tokens), on_delta)
        if isinstance(said, SpendingCapReached):
            raise said
        ladder, action = step(ladder, _outcome(said))
        if isinstance(said, Reply) and (isinstance(action, DeliverAnswer) or said.stop_reason == WINDOW_STOP):
            said = await append_reply(session, about, said, prepared.request)
        if isinstance(action, DeliverAnswer) and isinstance(said, Reply):
            return said
        if isinstance(action, DeliverAnswer | GiveUp):
            raise _given_up(session, about, action, prepared.request)
        from perdure.engine.compact import compact_reactively

        shrink = partial(compact_reactively, session, source)
        useless = await apply(session, about, action, prepared.request, source, shrink=shrink)
        if useless is not None:
            ladder, action = step(ladder, RemedyUseless(useless))
            raise _given_up(session, about, action, prepared.request)


def _outcome(said: Reply | ModelError) -> GoodAnswer | EmptyAnswer | WindowStop | ModelError:
    if isinstance(said, ModelError):
        return said
    if said.stop_reason == WINDOW_STOP:
        return WindowStop()
    return EmptyAnswer() if said.is_empty and said.stop_reason == "end_turn" else GoodAnswer()


def _given_up(session: LiveSession, about: ModelInfo, action: Action, request: ModelRequest) -> ModelGaveUp:
    """The error that ends a turn; it says what was tried, and what a person can do."""
    assert isinstance(action, GiveUp)
    session.emit(LadderGaveUp(about.id, action.last.reason, action.tried))
    advice, window, source = "", session.limits.window, session.limits.window_source
    stated = session.view.state.calibration.window_tokens
    if session.settings.window_tokens:
        window, source = session.settings.window_tokens, "setting"
    if isinstance(action.last, PromptTooLong):
        advice = _by_hand(session.settings)
        if stated and stated < window:
            advice = f"the window is {window:,} by {source}, the model's is {stated:,}: lower it"
    if isinstance(action.last, BadRequest) and about.protocol == "anthropic":  # whose messages are counted as ours
        advice = _refused_for_good(session.view, request, action.last)
    return ModelGaveUp(action.last, action.tried, advice=advice)


def _refused_for_good(view: ContextView, request: ModelRequest, error: BadRequest) -> str:
    """Which message holds what the provider refuses, and how the session gets rid of it; empty when it didn't say."""
    from perdure.engine.rewind import is_prompt

    path = path_in(error.detail)
    place = locate_block(request.groups, path)
    if place is None:
        return ""
    position = place[0].position
    said = view.items[position].message
    advice = f"{path} is the {place[0].kind} in message {said.id}, and would be refused again"
    prompt = next((item.message.id for item in view.items[position::-1] if is_prompt(item.message)), None)
    return f"{advice}: rewind({prompt!r}) takes it back" if prompt else advice


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A request that is ready to be sent.

    Attributes:
        request: as the engine keeps it, with the blocks it is made of.
        tokens: its size.
        outcome: what compaction had to say, if it was due.

    Example:
        await session.append("Hello")
        request = await session.prepare()
        assert request.data["max_tokens"] > 0 and request.tokens > 0
    """

    request: ModelRequest
    tokens: int
    outcome: CompactionOutcome | None = None

    @property
    def body(self) -> bytes:
        """The request's body, as it has to be sent for the provider's cache to know it again."""
        return self.request.body

    @property
    def data(self) -> dict[str, Any]:
        """The body as plain data, such as for `client.messages.create(**request.data)`."""
        found: dict[str, Any] = msgspec.json.decode(self.request.body)
        return found

    @property
    def headers(self) -> dict[str, str]:
        """Headers that the request needs beside those of any."""
        return {"anthropic-beta": ",".join(self.request.betas)} if self.request.betas else {}


async def prepare(
    session: LiveSession,
    *,
    source: str = "user",
    protocol: WireProtocol = "anthropic",
    stream: bool = False,
    head: Mapping[str, Any] | None = None,
) -> PreparedRequest:
    """Bring the view in shape for the next model call and make the request, under the `head` of who asks if given.

    Raises `ContextBlocked` when the view stays above the block threshold; nothing was sent then, and nothing is lost.
    """
    done = await ready_view(session, source, wanted=required_thinking(protocol, head))
    request = await make_request(session, session.facts(source), protocol=protocol, stream=stream, head=head)
    return PreparedRequest(request, done.tokens, done.outcome)


async def make_request(
    session: LiveSession,
    facts: Facts,
    *,
    protocol: WireProtocol,
    stream: bool,
    head: Mapping[str, Any] | None = None,
    front_ttl: CacheTtl | None = None,
) -> ModelRequest:
    """The request of the session's view. One whose parts are large and new is made aside; nobody else may use the
    session meanwhile, as at any time."""
    view = session.view
    make = partial(to_request, view, facts, protocol=protocol, stream=stream, head=head, front_ttl=front_ttl)
    return await run_aside(unencoded_bytes(view), make)


@dataclass(frozen=True, slots=True)
class ReadyView:
    """A view in shape for the next model call: its size, and what compaction had to say, if it was due."""

    tokens: int
    outcome: CompactionOutcome | None = None


async def ready_view(session: LiveSession, source: str = "user", *, wanted: RequiredThinking = "said") -> ReadyView:
    """As `prepare`, without making the request. `wanted` is what that has to hold of an open loop's thinking."""
    await _pass_turn(session)
    facts = session.facts(source)
    for _ in range(2):
        view = session.view
        new_bytes = sum(len(raw) for item in view.items[view.sent :] for raw in item.message.content)
        for shrink in CHEAP_PASSES + CLOSING_PASSES:
            if shrink is collapse and not facts.settings.collapse:
                continue
            if edits := await _shrunk(session.view, facts, shrink, new_bytes):
                await session.commit(edits, facts)
        said = len(session.view.items)
        await _reminded(session, "behind")  # after the passes: what they cleared may be needed again at once
        outcome = await _compact_if_due(session, facts)
        if (wanted == "first" or session.view.thoughtless >= 0) and is_broken(session.view, wanted):
            await session.append(*closing_lines())
        if outcome is not None or len(session.view.items) == said:
            break  # else what came last may fill the window: a request prepared again would be another one (REL-5)
    size = facts.size(session.view)
    is_hopeless = False
    if outcome is not None:
        from perdure.engine.compact import CompactionFailure

        has_failed = isinstance(outcome, CompactionFailure) and size >= facts.limits.trigger
        is_hopeless = has_failed and sum(fixed_parts(session).values()) >= facts.limits.trigger
    if is_hopeless or pressure_at(size, facts.limits) is Pressure.BLOCKED:
        raise ContextBlocked(blocked_text(session, facts, size))
    return ReadyView(size, outcome)


async def _shrunk(view: ContextView, facts: Facts, shrink: Pass, new_bytes: int) -> tuple[Edit, ...]:
    """What a pass says. Those that read all of what is new do it aside where that is much; the others look at counts,
    and have mostly nothing to do."""
    if new_bytes <= LARGE_BYTES or not (shrink in READING_PASSES or shrink is collapse):
        return tuple(shrink(view, facts))
    return await run_aside_of(view, lambda seen: tuple(shrink(seen, facts)), size_bytes=new_bytes)


async def _pass_turn(session: LiveSession) -> None:
    """A request has to end with the user; when the model spoke last, a recorded line passes it the turn."""
    view = session.view
    if not view.items or not await run_aside(unflattened_bytes(view), lambda: lacks_turn(view)):
        return
    await session.append(Message.of("user", CONTINUES, origin="reminder"))


async def _compact_if_due(session: LiveSession, facts: Facts) -> CompactionOutcome | None:
    size = facts.size(session.view)
    limits = facts.limits
    session.emit(
        CompactionChecked(
            tokens=size,
            level=pressure_at(size, limits).value,
            usable_tokens=limits.usable,
            source=facts.source,
            window_tokens=limits.window,
            warning_tokens=limits.warning,
            error_tokens=limits.error,
            trigger_tokens=limits.trigger if limits.auto else None,
            block_tokens=limits.block,
            percent_left=round(percent_left(size, limits), 1),
        )
    )
    wanted = session.view.state.requested
    if wanted is None and compaction_need(session.view, facts) is None:
        return None
    from perdure.compaction.plan import is_due
    from perdure.engine.compact import CompactionSuccess, CompactionVeto, compact

    if wanted is not None and is_due(session.view, facts):
        outcome = await compact(session, trigger="model", source=facts.source, focus=wanted.focus)
        if isinstance(outcome, CompactionVeto):
            await session.record(Noted(kind=REQUESTED, data={}))  # put off: asking at each turn would be no answer
    elif compaction_need(session.view, facts) is not None:
        outcome = await compact(session, trigger="auto", source=facts.source)
    else:
        return None
    if isinstance(outcome, CompactionSuccess):
        for shrink in CLOSING_PASSES:
            await session.commit(shrink(session.view, facts), facts)
        await _reminded(session, "behind")  # INS-4: what the kept results touched
    return outcome


def fixed_parts(session: LiveSession) -> dict[str, int]:
    """The tokens that no compaction can reduce, by what they are, counted as the whole view is (PRS-6)."""
    view, settings = session.view, session.settings
    calibration = view.state.calibration
    last = view.items[-1].size if view.items else NOTHING
    pins = sum(base_tokens(pin.text) for pin in view.state.pins)
    if view.anchor is None:
        margin = settings.margin_numerator / settings.margin_denominator
        front, latest = round(view.front_size.blind * margin), round(last.blind * margin)
    else:
        front = view.front_size.live if calibration.overhead_tokens is None else calibration.overhead_tokens
        latest = round(last.live * calibration.ratio)
    return {"system prompt and tools": front, "pins": pins, "last message": latest}


def _by_hand(settings: Settings) -> str:
    """Return what a person can do about a full context, at whatever door they are."""
    if not settings.compact:
        return "compaction is switched off (DISABLE_COMPACT or the setting compact): switch it on, or start afresh"
    return "compact by hand (/compact in a chat, `perdure compact`, or compact() in the library), or start afresh"


def blocked_text(session: LiveSession, facts: Facts, size: int) -> str:
    """What to say when no call can be made: how much must go, what it consists of, and what helps (TURN-13, PRS-6)."""
    limits, breaker, fixed = facts.limits, session.view.state.breaker, fixed_parts(session)
    parts = ", ".join(f"{name} {tokens:,}" for name, tokens in fixed.items())
    by_hand = _by_hand(facts.settings)
    counted, stays = facts.settings.auto_compact_window or limits.window, sum(fixed.values())
    if stays >= limits.trigger:
        advice = f"what can't be reduced ({parts}) is itself above the trigger of {limits.trigger:,}: make it smaller"
        if counted < limits.window:
            least = least_window(facts.settings, facts.model, stays)
            larger = f"at least {least:,}" if least < limits.window else "unset"
            advice += f", or auto_compact_window {larger} (it is {counted:,})"
    elif not facts.settings.compact:
        advice = by_hand
    elif not limits.auto:
        advice = f"auto-compaction is off: {by_hand}, or switch it on"
    elif breaker.refills >= facts.settings.thrash_refills:
        advice = (
            f"auto-compaction stopped: the window was full again right after the last {breaker.refills} compactions; "
            f"read less at a time, or {by_hand}"
        )
    elif breaker.failures >= facts.settings.breaker_failures:
        advice = f"auto-compaction stopped after {breaker.failures} failures: {by_hand}"
    else:
        advice = f"compaction could not reduce it ({parts}): {by_hand}"
    if size < limits.block:
        return f"no room to compact into: {size:,} tokens; {advice}"
    limit = f"the limit of {limits.block:,} (window {limits.window:,})"
    return f"context is full: {size:,} tokens, {size - limits.block:,} over {limit}; {advice}"
