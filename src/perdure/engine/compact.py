"""How a session is compacted: hooks, strategies in their order, one record to commit; its undo, preview, and summaries
made ahead of time (CMP-1, CMP-3, CMP-6, CMP-8, CMP-10, CMP-11).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial

import msgspec

from perdure.compaction.boundary import build_boundary, restored_counts
from perdure.compaction.from_notes import CURSOR, noted_plan
from perdure.compaction.plan import CompactionPart, CompactionPlan, Trigger, can_leave, keep_from, ledger_plan, span_of
from perdure.compaction.restore.registry import CurrentFile, RestoreScene, TrackedScene, track_scene
from perdure.compaction.summary import (
    ModelSummary,
    SummaryRequest,
    digest_of,
    fault_of,
    full_plan,
    held_plan,
    instruction,
    is_own,
    is_wanted,
    overflow_tokens,
    rounds_to_drop,
    stale,
    summary_ask,
    summary_in,
    too_little,
)
from perdure.context.cuts import legal_cuts
from perdure.context.instructions import compact_instructions_shown
from perdure.context.policy import Facts, comes_in_pause, pause_facts
from perdure.context.replies import ModelInfo, Reply
from perdure.context.request import ModelRequest
from perdure.context.state import HELD, PUT_OFF, PrecomputedSummary
from perdure.context.view import ContextView, project, size_tokens
from perdure.engine.ask import JobModels, ask_job, background_models
from perdure.engine.hooks import hook_fields, hook_messages, run_hooks
from perdure.engine.notes import SessionNotes
from perdure.engine.session import LiveSession, run_aside_of
from perdure.errors import BodyTooLarge, CompactionRefused, ModelError, ModelGaveUp, PromptTooLong
from perdure.events import (
    BoundaryListenerFailed,
    CompactionAttemptFailed,
    CompactionBlocked,
    CompactionDone,
    FileReadBack,
    HeldSummaryUsed,
    PrefixMoved,
    Restored,
    RestoreFailed,
    SecretsRedacted,
    SummaryHeld,
    SummaryInputDropped,
)
from perdure.hooks import HookOutcome, PostCompact, PreCompact, SessionStart
from perdure.memory.notes import NotesState
from perdure.ports.session import Model
from perdure.transcript.records import Compacted, CompactionFailed, Noted, Rewound, Undone
from perdure.transcript.tokens import base_tokens


async def run_pre_hooks(session: LiveSession, trigger: str, instructions: str) -> HookOutcome:
    """Ask the hooks whether and how to compact; `instructions` of the outcome are those that hold then."""
    if not session.services.hooks:
        return HookOutcome(instructions=instructions)
    told = PreCompact(
        **hook_fields(session),
        trigger="manual" if trigger == "manual" else "auto",
        custom_instructions=instructions,
        tokens=session.facts().size(session.view),
        window_tokens=session.limits.window,
        messages=len(session.view.items),
    )
    outcome = await run_hooks(session, told)
    wanted = instructions if outcome.instructions is None else outcome.instructions
    return replace(outcome, instructions="\n".join(part for part in (wanted, *outcome.context.values()) if part))


async def run_post_hooks(session: LiveSession, boundary: Compacted) -> None:
    """Tell the hooks what was done, and that the conversation starts again; what they add joins it (RST-7)."""
    if not session.services.hooks:
        return
    text = "".join(getattr(block.value, "text", "") for block in boundary.summary[0].blocks)
    compacted = PostCompact(
        **hook_fields(session),
        trigger="manual" if boundary.trigger == "manual" else "auto",
        compact_summary=text,
        strategy=boundary.strategy,
        tokens_before=boundary.tokens_before,
        tokens_after=boundary.tokens_after,
        kept=len(boundary.kept),
    )
    model = session.view.front.model if session.view.front is not None else None
    begun = SessionStart(**hook_fields(session), source="compact", model=model)
    for told in (compacted, begun):
        outcome = await run_hooks(session, told)
        if added := hook_messages(type(told), outcome.context):
            await session.append(*added)


Propose = Callable[[LiveSession, Facts], AsyncIterator["CompactionPlan | str"]]


@dataclass(frozen=True, slots=True)
class CompactionStrategy:
    """One way to compact. `propose` yields plans in the order in which they are to be tried, or why it has none (a
    reason that starts with a reason code). It changes nothing; what it raises is a reason as well.
    """

    name: str
    propose: Propose


async def propose_plans(
    session: LiveSession, facts: Facts, *, asks_models: bool = True
) -> AsyncGenerator[tuple[str, CompactionPlan | str], None]:
    """All proposals for the view as it is, each with its strategy's name; an exception ends only its own strategy."""
    models = background_models(session).summarizer if asks_models else ()
    by_model = (full_summary(models),) if models else ()
    own = session.services.strategies if facts.span is None else ()  # those choose for themselves what leaves
    for strategy in (*own, AHEAD, *by_model, LEDGER):
        try:
            async for plan in strategy.propose(session, facts):
                yield strategy.name, plan
        except Exception as e:  # a named boundary: the next strategy is tried, and the reason is an event
            yield strategy.name, f"error: {type(e).__name__}"


async def _ahead(session: LiveSession, facts: Facts) -> AsyncIterator[CompactionPlan | str]:
    held = session.view.state.held
    if held is not None and facts.span is None:
        yield await run_aside_of(session.view, lambda view: held_plan(view, facts, held))


AHEAD = CompactionStrategy("precomputed", _ahead)


async def _ledger(session: LiveSession, facts: Facts) -> AsyncIterator[CompactionPlan | str]:
    positions = tail_starts(session.view, facts)
    if not positions:
        yield "nothing_to_compact: no message stands before the messages to keep"
    for position in positions:
        for has_text in (True, False):  # without, for when even the text is too much
            yield await run_aside_of(session.view, partial(_ledger_plan, facts, position, has_text))


def _ledger_plan(facts: Facts, position: int, has_text: bool, view: ContextView) -> CompactionPlan:
    return ledger_plan(view, facts, position, has_text=has_text)


def tail_starts(view: ContextView, facts: Facts) -> list[int]:
    """Where the kept messages may start: the usual raw tail, then none, for when even that doesn't fit.

    Where only a part is to be summarised, they start behind it (CMP-6).
    """
    if facts.span is not None:
        return [facts.span[1]]
    last = legal_cuts(view, loops=False)[-1]  # not the end while a call is open
    starts = dict.fromkeys((min(keep_from(view, facts), last), last))
    return [position for position in starts if can_leave(view, position)]


LEDGER = CompactionStrategy("ledger", _ledger)


async def supplied_record(
    session: LiveSession, facts: Facts, record: str
) -> AsyncGenerator[tuple[str, CompactionPlan | str], None]:
    """A record that a person wrote or edited, in the place of the ledger's; no model is asked (CMP-11)."""
    async for plan in _ledger(session, facts):
        if isinstance(plan, CompactionPlan):
            plan = replace(plan, strategy="supplied", record=record.strip(), how="and edited by hand")
        yield "supplied", plan


DROPS = 3  # CMP-4: how often a request may lose its oldest rounds


def full_summary(models: Sequence[Model]) -> CompactionStrategy:
    """The strategy that lets a model write the record; `models` in the order in which they are asked."""

    async def propose(session: LiveSession, facts: Facts) -> AsyncIterator[CompactionPlan | str]:
        starts = tail_starts(session.view, facts)
        if not starts:
            return
        if (why := await run_aside_of(session.view, lambda view: too_little(view, facts, starts))) is not None:
            yield why
            return
        for model in models:
            said = await write_summary(session, session.view, facts, model)
            if isinstance(said, str):
                yield said
                continue
            for start in starts:
                yield await run_aside_of(session.view, partial(_plan, facts, start, said))

    return CompactionStrategy("full", propose)


def _plan(facts: Facts, keep_from: int, said: ModelSummary, view: ContextView) -> CompactionPlan:
    return full_plan(view, facts, keep_from, said)


async def write_summary(session: LiveSession, view: ContextView, facts: Facts, model: Model) -> ModelSummary | str:
    """What a model writes of a view, or why it doesn't. One answer is asked for; only the request is made smaller."""
    about, text, dropped = model.about, instruction(facts, view), 0
    fitting = summary_ask(view, facts, about, text)
    if not is_own(view, about) and (gap := overflow_tokens(facts, about, fitting)):
        dropped = _dropped(session, about, fitting, gap)
    for attempt in range(DROPS + 1):
        ask = summary_ask(view, facts, about, text, dropped)
        said = await _answer_of(session, model, ask)
        if isinstance(said, Reply):
            fault = fault_of(said, facts)
            return fault or ModelSummary(summary_in(said) or "", ask.dropped)
        if not isinstance(said, PromptTooLong | BodyTooLarge) or attempt == DROPS:
            return f"model_failed: {said.reason}"
        dropped = _dropped(session, about, ask, said.gap_tokens if isinstance(said, PromptTooLong) else None)
        if dropped == ask.dropped:
            return f"model_failed: {said.reason}, and nothing more can be left out"
    raise AssertionError("the last attempt returns")


def _dropped(session: LiveSession, about: ModelInfo, ask: SummaryRequest, gap_tokens: int | None) -> int:
    dropped = rounds_to_drop(ask.rounds, ask.dropped, gap_tokens)
    if dropped > ask.dropped:
        session.emit(SummaryInputDropped(about.id, dropped, len(ask.rounds), gap_tokens))
    return dropped


async def _answer_of(session: LiveSession, model: Model, ask: SummaryRequest) -> Reply | ModelError:
    def asking(about: ModelInfo) -> tuple[ModelRequest, int]:
        return ask.request, ask.tokens

    said = await ask_job(session, JobModels(summarizer=(model,)), "summarizer", asking, billed_as="summarizer")
    return said.last if isinstance(said, ModelGaveUp) else said


def from_notes(notes: SessionNotes) -> CompactionStrategy:
    """Compaction from the notes, before any other strategy (CMP-1, CMP-2)."""

    async def propose(session: LiveSession, facts: Facts) -> AsyncIterator[CompactionPlan | str]:
        if not facts.settings.notes:
            yield "off: session notes are switched off (the setting notes)"
            return
        if notes.began is not None:
            await notes.wait_for_update(facts)
        # Before the file: notes that are written meanwhile know more than the cursor says, never less.
        cursor = notes.cursor or session.view.state.cursors.get(CURSOR)
        if cursor is None:
            yield "no_notes: no update of them is in the journal"
            return
        found = await notes.found()
        if found.state != "written":
            yield _why_not(found.state)
        else:
            whence, prepared, said = (cursor, notes.file.path), notes.prepared, found.notes
            yield await run_aside_of(session.view, lambda view: noted_plan(view, facts, said, whence, prepared))

    return CompactionStrategy("session_memory", propose)


def _why_not(state: NotesState) -> str:
    match state:
        case "missing":
            return "resumed_without_notes: the journal names an update, and the file is gone"
        case "template" | "emptied":
            return "empty_template: the notes say nothing yet"
        case _:
            return "broken_notes: no section of the template is in the file"


_TRIES = 2  # between two boundaries: what keeps changing isn't worth a third summary


class PrecomputedSummaryKeeper:
    """The keeper that writes summaries ahead of time (`engine.background.Keeper`)."""

    name = "precompute"

    def __init__(self, session: LiveSession) -> None:
        self._session = session
        self._tried: tuple[str, int] = ("", 0)  # since which boundary, and how often
        self._is_running = False
        self._made: PrecomputedSummary | None = None  # in the journal a little later

    def is_due(self, view: ContextView, facts: Facts) -> bool:
        session = self._session
        if self._is_running or session.is_compacting or facts.size(view) < facts.limits.warning:
            return False
        is_ready = self._made is not None and stale(view, self._made) is None
        if is_ready or not self._models or not is_wanted(view, facts):
            return False
        boundary = view.boundary.id if view.boundary else ""
        since, tries = self._tried
        tries = tries if since == boundary else 0
        self._tried = (boundary, tries + 1)
        return tries < _TRIES

    @property
    def _models(self) -> tuple[Model, ...]:
        return background_models(self._session).summarizer

    async def keep(self, view: ContextView, facts: Facts) -> Sequence[Noted]:
        """Ask for the summary of everything up to the last closed pair; hooks may block it."""
        self._is_running = True
        try:
            held = await self._summarised(view, facts)
        finally:
            self._is_running = False
        if held is None:
            return ()
        self._made = held
        return (Noted(kind=HELD, data=msgspec.to_builtins(held)),)

    async def _summarised(self, view: ContextView, facts: Facts) -> PrecomputedSummary | None:
        session, emit = self._session, self._session.emit
        hooked = await run_pre_hooks(session, "precomputed", facts.instructions)
        if hooked.block is not None:
            emit(CompactionBlocked("precomputed", hooked.by, hooked.block))
            return None
        end = legal_cuts(view, loops=False)[-1]
        if not can_leave(view, end):
            return None
        if end < len(view.items):  # a call that waits for its result isn't over, and no part of it
            view = project([Rewound(to=view.items[end - 1].message.id)], onto=view)
        for model in self._models:
            said = await write_summary(session, view, replace(facts, instructions=hooked.instructions or ""), model)
            if isinstance(said, str):
                emit(CompactionAttemptFailed("precomputed", "full", said))
                continue
            emit(SummaryHeld(model.about.id, end, base_tokens(said.text)))
            return PrecomputedSummary(
                message=view.items[end - 1].message.id,
                digest=digest_of(view, end),
                text=said.text,
                model=model.about.id,
                dropped=said.dropped,
                instructions=hooked.instructions or "",
            )
        return None


async def _fetch(session: LiveSession, plan: CompactionPlan, facts: Facts) -> TrackedScene | None:
    """What a boundary may bring back: the trackers' view of things, the host's texts, and the files as they are now."""
    if not facts.settings.restore:
        return None
    looked = await run_aside_of(
        session.view, lambda view: track_scene(view, plan.keep_from, facts, session.services.restorers)
    )
    given: dict[str, str] = {}
    for name, source in session.services.sources.items():
        try:
            text = await source()
        except Exception as e:  # a named boundary: a host's source must not fail the compaction
            looked.failed[name] = f"{type(e).__name__}: {e}"
            continue
        if text:
            given[name] = text
    scene = replace(looked.scene, given=given)
    return replace(looked, scene=replace(scene, files=await _files(session, scene, looked.failed)))


async def _files(session: LiveSession, scene: RestoreScene, failed: dict[str, str]) -> dict[str, CurrentFile] | None:
    """The files that restorers want, as they are now; None where there is no disk to ask."""
    files = session.ports.files
    if files is None:
        return None
    wanted: dict[str, None] = {}
    for restorer in session.services.restorers.restorers:
        try:
            wanted.update(dict.fromkeys(restorer.wants(scene)))
        except Exception as e:  # a named boundary: a restorer of the user's must not fail the compaction
            failed[restorer.kind] = f"{type(e).__name__}: {e}"
    try:
        found = await files.read(tuple(wanted), limit_bytes=scene.facts.settings.restore_file_max_bytes)
    except Exception as e:  # a named boundary: what was read before is still known from the log
        failed["disk"] = f"{type(e).__name__}: {e}"
        return None
    for file in found:
        session.emit(FileReadBack(file.text is not None, file.why))
    return {file.path: file for file in found}


def _tell(session: LiveSession, failed: Mapping[str, str], boundary: Compacted) -> None:
    emit = session.emit
    for name, reason in failed.items():
        emit(RestoreFailed(name, reason.split(":")[0]))
    for kind, (entries, tokens, left_out) in restored_counts(boundary.restored).items():
        emit(Restored(kind, entries, tokens, left_out))


_LOOKS = 3  # at a session that changes while it is looked at


@dataclass(frozen=True, slots=True)
class CompactionSuccess:
    """The view is now the boundary's."""

    boundary: Compacted


@dataclass(frozen=True, slots=True)
class CompactionFailure:
    """Nothing changed; `reason` starts with a reason code."""

    reason: str


@dataclass(frozen=True, slots=True)
class CompactionVeto(CompactionFailure):
    """A hook didn't want it. That is no failure of compaction, so the breaker doesn't count it (CMP-10)."""


CompactionOutcome = CompactionSuccess | CompactionFailure


@dataclass(frozen=True, slots=True)
class CompactionProposal:
    """A boundary that passed its test, and the plan behind it; nothing is committed (CMP-11)."""

    plan: CompactionPlan
    boundary: Compacted
    strategy: str  # whose plan it is; "precomputed" for one that a model wrote ahead of time


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionRequest:
    """What is asked of a compaction. `record` is a text to commit instead of what a strategy would write.

    `focus` is what a person wants the record to look at; `part` is what to summarise, when not all that isn't recent.
    """

    trigger: Trigger
    source: str = "user"
    record: str | None = None
    focus: str = ""
    part: CompactionPart | None = None
    instructions: str | None = None  # for a model; None: the focus


async def compact(
    session: LiveSession,
    *,
    trigger: Trigger,
    source: str = "user",
    record: str | None = None,
    focus: str = "",
    part: CompactionPart | None = None,
) -> CompactionOutcome:
    """Replace old history, or a `part` of the view, by a record of it (CMP-6, CMP-8).

    `record` is a text to commit instead of what a strategy would write; it has to pass the same test. An automatic one
    below the trigger that changes nothing is no failure, since the session goes on as well without it: it is put off
    until the next answer (TURN-16). Raises `CompactionRefused` when compaction is off or already runs, or when nothing
    of the part can leave.
    """
    if not session.settings.compact:
        raise CompactionRefused(
            "compaction is switched off (DISABLE_COMPACT or the setting compact); switch it on first"
        )
    wish = CompactionRequest(trigger=trigger, source=source, record=record, focus=focus, part=part)
    facts = session.facts(source)
    is_early = trigger == "auto" and facts.size(session.view) < facts.limits.trigger
    with session.compacting():
        found = await _hooked(session, wish)
        if isinstance(found, CompactionProposal):
            done = await _committed(session, found)
            await run_post_hooks(session, found.boundary)
            return done
        if is_early:
            await session.record(Noted(kind=PUT_OFF, data={"reason": found.reason}))
        elif not isinstance(found, CompactionVeto):
            await session.record(CompactionFailed(trigger=trigger, reason=found.reason))
        return found


async def compact_reactively(session: LiveSession, source: str = "user") -> str | None:
    """Compact because a model refused a request as too long. Returns why that changed nothing (TURN-11)."""
    try:
        outcome = await compact(session, trigger="reactive", source=source)
    except CompactionRefused as e:
        return str(e)
    return outcome.reason if isinstance(outcome, CompactionFailure) else None


async def _hooked(session: LiveSession, wish: CompactionRequest) -> CompactionProposal | CompactionFailure:
    """The proposal that the hooks agree with. One that they supply and that fails the test isn't the last word."""
    hooked = await run_pre_hooks(session, wish.trigger, wish.focus)
    if hooked.block is not None:
        session.emit(CompactionBlocked(wish.trigger, hooked.by, hooked.block))
        return CompactionVeto(f"blocked: {hooked.by}: {hooked.block}")
    if wish.record is None and hooked.summary is not None:
        found = await proposal(session, replace(wish, record=hooked.summary))
        if isinstance(found, CompactionProposal):
            return found
    return await proposal(session, replace(wish, instructions=hooked.instructions))


async def proposal(session: LiveSession, wish: CompactionRequest) -> CompactionProposal | CompactionFailure:
    """What `compact` would commit now. Changes nothing."""
    view, emit = session.view, session.emit
    asked = wish.focus if wish.instructions is None else wish.instructions
    wanted = "\n\n".join(part for part in (compact_instructions_shown(view), asked) if part)
    span = span_of(view, wish.part) if wish.part is not None else None
    facts = replace(session.facts(wish.source), instructions=wanted, span=span)
    is_pause = wish.trigger == "auto" and comes_in_pause(view, facts)
    if is_pause:
        facts = pause_facts(facts)
    reason = ""  # the last one that was given: that of the strategy that needs nobody
    # In a pause no model is asked: it would read all that the cache has lost, and that costs more than is spared.
    if wish.record is None:
        plans = propose_plans(session, facts, asks_models=not is_pause)
    else:
        plans = supplied_record(session, facts, wish.record)
    async with aclosing(plans) as proposals:
        async for name, plan in proposals:
            found = await _boundary_or_refusal(session, wish, facts, plan) if isinstance(plan, CompactionPlan) else plan
            if not isinstance(found, str):
                return CompactionProposal(*found, name)
            reason = found
            emit(CompactionAttemptFailed(wish.trigger, name, reason))
    return CompactionFailure(reason)


async def _boundary_or_refusal(
    session: LiveSession, wish: CompactionRequest, facts: Facts, plan: CompactionPlan
) -> tuple[CompactionPlan, Compacted] | str:
    """The boundary of a plan, with what comes back; or why it must not be committed.

    The work is done aside, so the session may have been changed meanwhile; then it is done again (CMP-8).
    """
    for _ in range(_LOOKS):
        seen, identity = session.changes, session.ports.ids.new("boundary")
        fetched = await _fetch(session, plan, facts)
        if session.changes != seen:
            continue
        build = partial(
            build_boundary,
            plan=plan,
            facts=facts,
            fetched=fetched,
            registry=session.services.restorers,
            identity=identity,
            trigger=wish.trigger,
            focus=wish.focus,
        )
        built = await run_aside_of(session.view, build)
        if built.secrets:
            session.emit(SecretsRedacted("summary", tuple(sorted(set(built.secrets))), len(built.secrets)))
        if built.boundary is None:
            return built.refusal
        if session.changes == seen:
            _tell(session, built.failed, built.boundary)
            return built.plan, built.boundary
    return "changed: the session was changed again and again while its record was made"


async def _committed(session: LiveSession, found: CompactionProposal) -> CompactionSuccess:
    boundary, emit, held = found.boundary, session.emit, session.view.state.held
    rewritten = _rewritten_tokens(session.view, boundary)
    boundary = await session.commit_boundary(boundary)
    emit(_done(boundary))
    if held is not None and found.strategy == AHEAD.name:
        emit(HeldSummaryUsed(held.model))
    price = session.facts().rewrite_usd(session.view, rewritten)
    emit(PrefixMoved("compacted", boundary.in_front, rewritten, price))
    for tell in session.services.on_boundary:
        try:
            tell(boundary)
        except Exception as e:  # a named boundary: whoever forgets what was loaded must not fail the compaction
            emit(BoundaryListenerFailed(type(e).__name__))
    return CompactionSuccess(boundary)


def _rewritten_tokens(view: ContextView, boundary: Compacted) -> int:
    """The tokens that are written to the cache again: all, but what stays in front."""
    items = view.items[: boundary.in_front]
    front = sum(item.size.live for item in items if not item.is_hidden) if items else 0
    stays = view.front_size.live + front if items else 0
    return max(0, boundary.tokens_after - round(stays * view.state.calibration.ratio))


def _done(boundary: Compacted) -> CompactionDone:
    return CompactionDone(
        boundary.trigger,
        boundary.strategy,
        boundary.tokens_before,
        boundary.tokens_after,
        boundary.summary_tokens,
        boundary.kept_tokens,
    )


@dataclass(frozen=True, slots=True)
class UncompactResult:
    """The view before the compaction is back, with what was said since. Sizes are in tokens."""

    boundary: Compacted
    tokens_before: int
    tokens_after: int


async def uncompact(session: LiveSession, *, reason: str = "asked for") -> UncompactResult:
    """Take back the last compaction, as a record: nothing that was said since is lost.

    Automatic compaction then waits for the block threshold, or it would do at once what was just undone. Raises
    `CompactionRefused` when the view stands on no compaction, or one is running.
    """
    if session.is_compacting:
        raise CompactionRefused("a compaction of this session is running; wait for it to end")
    boundary = session.view.boundary
    if boundary is None:
        raise CompactionRefused("there is no compaction to undo")
    before = size_tokens(session.view)
    await session.record(Undone(id=boundary.id, reason=reason))
    return UncompactResult(boundary, before, size_tokens(session.view))


@dataclass(frozen=True, slots=True)
class PreviewPart:
    """Some of what a compaction would keep, drop or bring back: a message, or a restored thing. Tokens by TOK-1."""

    id: str
    what: str
    tokens: int


@dataclass(frozen=True, slots=True)
class CompactionPreview:
    """What a compaction would do: the record it would leave, and every message kept and dropped, with sizes."""

    plan: CompactionPlan
    boundary: Compacted
    kept: tuple[PreviewPart, ...]
    dropped: tuple[PreviewPart, ...]
    restored: tuple[PreviewPart, ...]


async def preview(
    session: LiveSession,
    *,
    trigger: Trigger = "manual",
    record: str | None = None,
    focus: str = "",
    part: CompactionPart | None = None,
) -> CompactionPreview | CompactionFailure:
    """What `compact` would do now. Changes nothing, records nothing, tells nobody."""
    quiet = replace(session, ports=replace(session.ports, sink=None))
    found = await proposal(quiet, CompactionRequest(trigger=trigger, record=record, focus=focus, part=part))
    return _preview(session.view, found) if isinstance(found, CompactionProposal) else found


def _preview(view: ContextView, found: CompactionProposal) -> CompactionPreview:
    kept = set(found.boundary.kept)
    parts = [
        (
            item.message.id in kept,
            PreviewPart(item.message.id, _what(item.message.role, item.message.origin), item.size.base),
        )
        for item in view.items
        if not item.is_hidden
    ]
    parts += [
        (c.first in kept, PreviewPart(c.id, "folded work", sum(len(raw) for raw in c.projection.content) // 4))
        for c in view.collapses.values()
    ]
    restored = tuple(PreviewPart(back.name, back.kind, back.tokens) for back in found.boundary.restored if back.name)
    return CompactionPreview(
        plan=found.plan,
        boundary=found.boundary,
        kept=tuple(part for is_kept, part in parts if is_kept),
        dropped=tuple(part for is_kept, part in parts if not is_kept),
        restored=restored,
    )


def _what(role: str, origin: str) -> str:
    names = {"user": "your words", "model": "answer", "tool": "tool results", "summary": "earlier summary"}
    return names.get(origin, f"{role}, {origin}")
