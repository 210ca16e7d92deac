"""Compaction as a transaction: restore, verify, commit as one record; its undo and its preview (CMP-8, CMP-11)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial

from perdure.compaction.boundary import build_boundary, restored_counts
from perdure.compaction.plan import CompactionPart, CompactionPlan, Trigger, span_of
from perdure.compaction.plan import CompactionPart as Chosen
from perdure.compaction.restore.registry import CurrentFile, RestoreScene, TrackedScene, track_scene
from perdure.context.cost import rewrite_price
from perdure.context.instructions import compact_instructions_shown
from perdure.context.policy import Facts
from perdure.context.view import ContextView, size_tokens
from perdure.engine.session import LiveSession
from perdure.engine.strategies import AHEAD, propose_plans, run_post_hooks, run_pre_hooks, supplied_record
from perdure.engine.threads import run_aside_of
from perdure.errors import CompactionRefused
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
)
from perdure.transcript.records import Compacted, CompactionFailed, Undone


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

    `record` is a text to commit instead of what a strategy would write; it has to pass the same test. Raises
    `CompactionRefused` when compaction is off or already runs, or when nothing of the part can leave.
    """
    if not session.settings.compact:
        raise CompactionRefused(
            "compaction is switched off (DISABLE_COMPACT or the setting compact); switch it on first"
        )
    wish = CompactionRequest(trigger=trigger, source=source, record=record, focus=focus, part=part)
    with session.compacting():
        found = await _hooked(session, wish)
        if isinstance(found, CompactionProposal):
            done = await _committed(session, found)
            await run_post_hooks(session, found.boundary)
            return done
        if isinstance(found, CompactionVeto):
            return found
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
    if hooked.blocked is not None:
        session.emit(CompactionBlocked(wish.trigger, hooked.blocked.split(":")[0]))
        return CompactionVeto(f"blocked: {hooked.blocked}")
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
    reason = ""  # the last one that was given: that of the strategy that needs nobody
    plans = propose_plans(session, facts) if wish.record is None else supplied_record(session, facts, wish.record)
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
    price = rewrite_price(rewritten, session.model, session.facts().cache_ttl(session.view))
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
        raise CompactionRefused("there is no compaction to undo: the view holds everything that was said")
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
    part: Chosen | None = None,
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
