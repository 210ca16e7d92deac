"""The boundary of a compaction, made whole by one pure call, and the test that it must pass (CMP-8, CMP-9, RST-1)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from perdure import prompts
from perdure.compaction.ledger.reader import ExtractIndex, block_text
from perdure.compaction.plan import CompactionPlan, Trigger, first_said, kept_items, missing_pins, summary_texts
from perdure.compaction.restore.registry import (
    NOTHING_BACK,
    BlockPosition,
    Cost,
    Restoration,
    RestoredEntry,
    RestoredMessages,
    Restorer,
    RestorerRegistry,
    RestoreScene,
    TokenRoom,
    TrackedScene,
    TrackerStates,
)
from perdure.context.accounting import least_trust
from perdure.context.cuts import open_loop
from perdure.context.policy import Facts, has_recall_tool
from perdure.context.reminders import indented, inline, quoted, without_tags, without_tokens
from perdure.context.state import SessionState, to_checkpoint
from perdure.context.view import THINKING, ContextView, ViewItem, size_tokens, view_behind
from perdure.memory.trust.secrets import redact, redact_record
from perdure.text.markdown import fenced
from perdure.transcript.blocks import text_block
from perdure.transcript.messages import Message, MessageId, content_of, spoken
from perdure.transcript.records import BlockChange, Compacted, RestoredItem, ResultMarks
from perdure.transcript.tokens import base_tokens, text_size
from perdure.transcript.tool_calls.actions import NAME_CHARS

_HOPELESS = 4  # times the trigger: however a model counts, it doesn't fit, so nothing more is made of it
WHOLE_SHARES = (1.0, 0.5, 0.25)  # of the room, tried in turn: a boundary that is still refused comes back with less


@dataclass(frozen=True, slots=True)
class BuiltBoundary:
    """What came of a plan: the boundary that may be committed, or why there is none (`refusal`).

    `plan` is the plan as it may be written, `secrets` the families of those that were in it; `failed` says what
    couldn't be brought back, and why.
    """

    plan: CompactionPlan
    boundary: Compacted | None = None
    refusal: str = ""
    secrets: tuple[str, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)


def build_boundary(
    view: ContextView,
    plan: CompactionPlan,
    facts: Facts,
    fetched: TrackedScene | None,
    registry: RestorerRegistry,
    *,
    identity: str,
    trigger: Trigger,
    focus: str = "",
) -> BuiltBoundary:
    """The boundary of a plan, with everything that comes back behind its summary, or why it must not be committed.

    `fetched` is what the restorers may look at, with the files as they are now; None: nothing comes back. `focus` is
    what somebody asked the record to look at. Nothing is read here: the same values give the same bytes.
    """
    if not plan.record.strip():
        return BuiltBoundary(plan, refusal="empty: the record holds no text")
    plan = _with_focus(plan, focus, "model" if trigger == "model" else "user")
    plan = replace(plan, record=_with_request(view, plan))
    if (tokens := base_tokens(plan.record)) > _HOPELESS * facts.limits.trigger:
        return BuiltBoundary(plan, refusal=f"over_trigger: {tokens:,} tokens, trigger {facts.limits.trigger:,}")
    known = view.index.secrets() if isinstance(view.index, ExtractIndex) else {}
    plan, secrets = without_secrets(plan, facts, known)

    def made_with(back: RestoredMessages) -> tuple[Compacted, str | None]:
        made = make_boundary(view, plan, facts, identity=identity, trigger=trigger, back=back)
        return made.boundary, refusal(view, made, facts, plan.promised)

    failed: dict[str, str] = {}
    if fetched is not None:
        failed |= fetched.failed
        bare = make_boundary(view, plan, facts, identity=identity, trigger=trigger)
        room, spare = _room_tokens(view, bare.boundary, facts)
        for tokens, more in dict.fromkeys((int(room * share), int(spare * share)) for share in WHOLE_SHARES):
            back, not_back = put_back(fetched, registry, tokens, identity=identity, spare_tokens=more)
            boundary, why = made_with(back)
            if why is None:
                return BuiltBoundary(plan, boundary, secrets=secrets, failed={**failed, **not_back})
        failed["all"] = "no room for what was to be restored"
    states = TrackerStates(states=fetched.saved) if fetched is not None else None
    boundary, why = made_with(RestoredMessages(in_play=states))
    if why is not None:
        return BuiltBoundary(plan, refusal=why, secrets=secrets)
    return BuiltBoundary(plan, boundary, secrets=secrets, failed=failed)


def _with_focus(plan: CompactionPlan, focus: str, who: str) -> CompactionPlan:
    """The plan with what somebody asked it to look at, in their own words (CMP-6)."""
    focus = " ".join(focus.split())
    if not focus or focus in plan.record:
        return plan
    return replace(plan, record=f"## The {who} asked this record to focus on\n{focus}\n\n{plan.record}")


def _room_tokens(view: ContextView, bare: Compacted, facts: Facts) -> tuple[int, int]:
    """Tokens that may come back: half may be filled afterwards (PRS-2, TURN-17), and it must stay a gain (CMP-9).

    The second number is what there is beyond the half, where the kept messages fill it alone: a todo list is short,
    and nowhere else.
    """
    trigger = facts.limits.trigger
    half = max(0, facts.half_tokens(view) - bare.tokens_after)
    spare = max(0, trigger // 50 - half)
    least = facts.settings.min_reduction_percent if bare.trigger != "manual" else 0
    gain = facts.size(view) * (100 - least) // 100 - bare.tokens_after - 1
    most = max(0, min(gain, trigger - 1 - bare.tokens_after))
    return min(half, most), min(spare, max(0, most - half))


# --- the record of it

WHERE_TO_LOOK = (
    "What a preview, a cleared result or this record names can be had again with the recall tool, by its id."
)


BY_HAND = (
    "There is no tool to recall it with: what a preview, a cleared result or this record names, a person gets by its "
    "id with `perdure recall`."
)


@dataclass(frozen=True, slots=True)
class Boundary:
    """A boundary, and the view that it makes: what its test looks at, before anything is committed."""

    boundary: Compacted
    view: ContextView


def make_boundary(
    view: ContextView,
    plan: CompactionPlan,
    facts: Facts,
    *,
    identity: str,
    trigger: Trigger,
    back: RestoredMessages = NOTHING_BACK,
) -> Boundary:
    """The boundary that a plan makes, with what comes back and the checkpoint of the fold (CMP-14)."""
    kept = kept_items(view, plan.start, plan.keep_from)
    text = _summary_text(view, plan, kept, WHERE_TO_LOOK if has_recall_tool(view, facts.settings) else BY_HAND)
    summary = Message(
        id=MessageId(f"summary-{identity}"),
        role="user",
        content=content_of([text_block(text)]),
        origin="summary",
        at=facts.now,
    )
    names = (_frame(plan), *plan.prompts, *back.prompts)
    first = first_said(view)
    boundary = Compacted(
        id=identity,
        trigger=trigger,
        strategy=plan.strategy,
        summary=(summary, *back.messages),
        kept=tuple(item.message.id for item in kept),
        in_front=plan.start,
        read=plan.start + max(0, first - plan.keep_from),
        carried=_carried(view, kept),
        changes=_changes(view, plan, facts),
        collapses=tuple(c for c in view.collapses.values() if not _leaves(plan, view.positions[c.first])),
        marks=_marks(view, plan),
        state=to_checkpoint(_state_after(view, plan, facts, back, trigger)),
        at=facts.now,
        tokens_before=facts.size(view),
        summary_tokens=text_size(text).base,
        kept_tokens=sum(item.size.base for item in kept if not item.is_hidden),
        prompts={name: prompts.version(name) for name in names},
        restored=back.rows,
        trust=least_trust(view, plan.keep_from).name.lower(),
    )
    after = view_behind(view, boundary)
    return Boundary(msgspec.structs.replace(boundary, tokens_after=size_tokens(after, facts.settings)), after)


def _leaves(plan: CompactionPlan, position: int) -> bool:
    return plan.start <= position < plan.keep_from


def _carried(view: ContextView, kept: Sequence[ViewItem]) -> tuple[Message, ...]:
    """The kept messages that an earlier boundary brought, and no line of the journal holds."""
    if view.boundary is None or not kept:
        return ()
    brought = {message.id for message in (*view.boundary.summary, *view.boundary.carried)}
    return tuple(item.message for item in kept if item.message.id in brought)


def _marks(view: ContextView, plan: CompactionPlan) -> ResultMarks:
    results = [r.id for r in view.results.values() if not _leaves(plan, r.position)]
    return ResultMarks(
        offloaded=tuple(i for i in results if i in view.frozen),
        cleared=tuple(i for i in results if i in view.cleared),
        snipped=tuple(i for i in results if i in view.snipped),
        settled=tuple(sorted(i for i in view.settled if not _leaves(plan, view.calls[i].position))),
        sent=min(view.sent, plan.start) + max(0, view.sent - plan.keep_from),
    )


_KEPT = "the messages after it are the latest ones, word for word"
_NOTHING_KEPT = "no message of before stands after it, and where it ends in the latest of it, that is word for word"


def _frame(plan: CompactionPlan) -> str:
    """The prompt that tells what the record is."""
    return "continuation_part" if plan.start else "continuation"


def _summary_text(view: ContextView, plan: CompactionPlan, kept: Sequence[ViewItem], where: str) -> str:
    record = _with_pins(view, without_tags(plan.record), kept)  # SEC-4; pins stay as they are (REL-14)
    values = {"how": plan.how, "where": where, "record": record}
    if not plan.start:
        values["behind"] = _KEPT if any(not item.is_hidden for item in kept) else _NOTHING_KEPT
    text = prompts.render(_frame(plan), **values)
    return text.encode("utf-8", "replace").decode("utf-8")  # a model can write half a surrogate pair; JSON can't


def without_secrets(
    plan: CompactionPlan, facts: Facts, known: Mapping[str, str]
) -> tuple[CompactionPlan, tuple[str, ...]]:
    """The plan as it may be written, without secrets; and their families (SEC-5).

    Nor has it special tokens, where the model's server may read them out of it (SEC-11). Pins stay as they are: they
    are the user's word on what stands there, byte for byte. `known`: the secrets of what the record is made of.
    """
    done = redact_record(plan.record, plan.promised, facts.secret_key, known)
    text, promised = done.text, done.promised
    if facts.model.reads_tokens:
        text, promised = without_tokens(text), tuple(map(without_tokens, promised))
    return replace(plan, record=text, promised=promised), done.families


def _with_request(view: ContextView, plan: CompactionPlan) -> str:
    """The latest request goes in whole, by code, when its message isn't kept: it decides what to do now."""
    latest = plan.ledger.spoken[-1:] if plan.latest is None else plan.latest
    is_kept = any(spoken(item.message) for item in view.items[plan.keep_from :])
    if is_kept or not latest or indented(latest[0].text) in plan.record:
        return plan.record
    if view.positions.get(MessageId(latest[0].id), plan.start) < plan.start:
        return plan.record  # it stands before the part that leaves
    return f"## The latest request of the user, word for word\n{quoted(latest[0].text)}\n\n{plan.record}"


def _with_pins(view: ContextView, record: str, kept: Sequence[ViewItem]) -> str:
    """Pins go in verbatim, by code, whatever the record says; unless an earlier summary that stays has them."""
    if not view.state.pins:
        return record
    told = [block_text(b) for item in kept if item.message.origin == "summary" for b in item.visible]
    pins = "\n".join(pin.text for pin in view.state.pins if not any(pin.text in text for text in told))
    return f"## Pinned by the user, word for word\n{fenced(pins)}\n\n{record}" if pins else record


def _kept_loop(view: ContextView, facts: Facts) -> int:
    """From where thinking stays: an open tool loop needs it back, unless it is bound to what goes (TURN-7)."""
    if facts.model.thinking_is_bound and facts.settings.thinking == "drop":
        return len(view.items)
    loop = open_loop(view)
    return len(view.items) if loop is None else loop


def _changes(view: ContextView, plan: CompactionPlan, facts: Facts) -> tuple[BlockChange, ...]:
    """How the kept messages show. Before the part that leaves nothing moves, so that their thinking holds."""
    loop = _kept_loop(view, facts)
    positions = (*range(plan.start), *range(plan.keep_from, len(view.items)))
    return tuple(change for p in positions for change in _frozen(view, p, drops_thinking=plan.keep_from <= p < loop))


def _frozen(view: ContextView, position: int, *, drops_thinking: bool) -> list[BlockChange]:
    """The changes that show a kept message as it is shown now, its thinking gone where another prefix voids it."""
    item = view.items[position]
    changes = []
    for index, (said, shown) in enumerate(zip(item.message.blocks, item.shown, strict=True)):
        if shown is None or (drops_thinking and shown.type in THINKING):
            changes.append(BlockChange(message=item.message.id, block=index))
        elif shown is not said:
            changes.append(BlockChange(message=item.message.id, block=index, to=msgspec.Raw(shown.raw)))
    return changes


def _state_after(
    view: ContextView, plan: CompactionPlan, facts: Facts, back: RestoredMessages, trigger: Trigger
) -> SessionState:
    """The state behind the boundary: the breaker closes, unless the window refilled too soon again (PRS-5, PRS-6).

    One that comes below the trigger finds no full window: it is no refill, and doesn't undo those before it (TURN-16).
    """
    state = view.state
    soon = state.breaker.boundaries > 0 and state.breaker.responses_since_boundary <= facts.settings.thrash_turns
    is_full = trigger == "reactive" or facts.size(view) >= facts.limits.trigger
    breaker = msgspec.structs.replace(
        state.breaker,
        failures=0,
        refills=state.breaker.refills + is_full if soon and trigger in ("auto", "reactive") else 0,
        responses_since_boundary=0,
        boundaries=state.breaker.boundaries + 1,
        waits=False,
    )
    in_play = state.in_play if back.in_play is None else back.in_play.encoded()
    if plan.cursor is not None:
        state = state.after(plan.cursor)
    return msgspec.structs.replace(
        state, breaker=breaker, ledger=plan.ledger.encoded(), in_play=in_play, held=None, requested=None
    )


def refusal(view: ContextView, made: Boundary, facts: Facts, promised: tuple[str, ...] = ()) -> str | None:
    """Why a boundary must not be committed; None when it may (CMP-9).

    Strictly smaller (automatic: by at least 10 %), under the trigger, the laws of the view hold, and each pin and each
    promised word is in place.
    """
    boundary, new = made.boundary, made.view
    after, before = boundary.tokens_after, boundary.tokens_before
    least = facts.settings.min_reduction_percent if boundary.trigger != "manual" else 0
    if after >= before or (before - after) * 100 < before * least:
        return f"too_little: {before:,} to {after:,} tokens"
    if after >= facts.limits.trigger:
        return f"over_trigger: {after:,} tokens, trigger {facts.limits.trigger:,}"
    if (broken := broken_law(view, new, boundary)) is not None:
        return f"law: {broken}"
    if missing_pins(new):
        return "pins: a pinned text is missing"
    texts = summary_texts(new)
    if any(all(without_tags(words) not in text for text in texts) for words in promised):
        return "words: what the user said is not there word for word"
    return None


def broken_law(view: ContextView, new: ContextView, boundary: Compacted) -> str | None:
    """Which law of the view a boundary breaks: order, kept bytes, pairs; None when all hold."""
    front = boundary.kept[: boundary.in_front]
    if tuple(item.message.id for item in new.items) != boundary.order:
        return "a kept message is missing or out of its place"
    if front and [item.message.id for item in view.items[: len(front)]] != [*front]:
        return "what stays in front isn't the beginning"
    for number, identity in enumerate(boundary.kept):
        old, now = view.items[view.positions[identity]], new.items[new.positions[identity]]
        if old.is_hidden != now.is_hidden or any(
            (then.raw if then else None) != (shown.raw if shown else None)
            for then, shown in zip(old.shown, now.shown, strict=True)
            if then is not shown
            and not (shown is None and number >= boundary.in_front and (then is not None and then.type in THINKING))
        ):
            return "a kept message doesn't show as it did"
    return _broken_pair(view, new)


def _broken_pair(view: ContextView, new: ContextView) -> str | None:
    """Every call keeps its result, and every result its call."""
    for identity, call in new.calls.items():
        if (identity in view.results) != (identity in new.results) and call is not None:
            return "a call is parted from its result"
        if (identity in view.open_calls) != (identity in new.open_calls):
            return "a call is open that wasn't, or the other way round"
    for identity, result in view.results.items():
        message = view.items[result.position].message.id
        if message in new.positions and identity not in new.results:
            return "a result is parted from its call"
    return None


# --- what comes back behind its summary

NAMES_SAID = 8  # of what was left out; the rest is a number
NAMES_RECORDED = 20
SHORT_RANK = 30  # up to this rank a restorer may use the spare tokens
NOTICE_TOKENS = 100  # kept free in each restorer's share to say what it left out


@dataclass(frozen=True, slots=True)
class _PutBack:
    """What one restorer brought back: its message, and the texts in it."""

    message: Message
    entries: tuple[RestoredEntry, ...]
    rows: tuple[RestoredItem, ...]


def token_cost(view: ContextView, facts: Facts) -> Cost:
    """What a text adds to the view, never less than by the base rule: budgets are by that one (TOK-1)."""
    calibration, settings = view.state.calibration, facts.settings
    is_anchored = calibration.overhead_tokens is not None

    def cost(text: str) -> int:
        size = text_size(text)
        if is_anchored:
            return max(size.base, math.ceil(calibration.ratio * size.live)) + 1
        return -(-size.blind * settings.margin_numerator // settings.margin_denominator) + 1

    return cost


def put_back(
    looked: TrackedScene, registry: RestorerRegistry, room_tokens: int, *, identity: str, spare_tokens: int = 0
) -> tuple[RestoredMessages, dict[str, str]]:
    """What comes back within the room, and which restorers failed, with why. `spare_tokens` are there beyond it for
    what is short and nowhere else: the todo list, the plan, background work.

    The more important (lower rank) take first; what is left is for the others, so that those give way in a fixed order.
    """
    scene, failed = looked.scene, dict[str, str]()
    cost = token_cost(scene.view, scene.facts)
    puts: dict[str, _PutBack] = {}
    left = room_tokens + spare_tokens
    for restorer in sorted(registry.restorers, key=lambda one: one.rank):
        room = left if restorer.rank <= SHORT_RANK else min(left, room_tokens)
        try:
            put, spent = _one(restorer, scene, room, cost, identity)
        except Exception as e:  # a named boundary: a restorer of the user's must not fail the compaction
            failed[restorer.kind] = f"{type(e).__name__}: {e}"
            continue
        if put is not None:
            puts[restorer.kind] = put
            left -= spent
    ordered = [(r, puts[r.kind]) for r in registry.restorers if r.kind in puts]
    places = {
        r.kind: {e.name: BlockPosition(put.message.id, 1 + i) for i, e in enumerate(put.entries)} for r, put in ordered
    }
    used = ("restored_file",) if places.get("files") else ()
    back = RestoredMessages(
        messages=tuple(put.message for _, put in ordered if put.message.content),
        rows=tuple(row for _, put in ordered for row in put.rows),
        in_play=TrackerStates(states=looked.saved, restored={kind: some for kind, some in places.items() if some}),
        prompts=used,
    )
    return back, failed


def _one(restorer: Restorer, scene: RestoreScene, left: int, cost: Cost, identity: str) -> tuple[_PutBack | None, int]:
    """What one restorer brings back, and what it takes of the room."""
    scaled = scene.facts.limits.scaled
    each, total = restorer.budget(scene.facts.settings)
    lead = cost(restorer.lead)
    notice = min(NOTICE_TOKENS, max(0, left) // 10)
    total = max(0, min(scaled(total), left - lead - notice))
    given = restorer.restore(scene, TokenRoom(min(scaled(each), total), total, cost))
    if given is None or not (given.entries or given.left_out):
        return None, 0
    fitted = _fitted(_harmless(given, scene.facts), TokenRoom(min(scaled(each), total), total, cost))
    spent = sum(cost(entry.text) for entry in fitted.entries) + (lead if fitted.entries else 0)
    said = _notice(restorer.kind, fitted.left_out, min(left - spent, NOTICE_TOKENS), cost)
    texts = [restorer.lead, *(entry.text for entry in fitted.entries)] if fitted.entries else []
    texts += [said] if said else []
    message = Message(
        id=MessageId(f"restored-{restorer.kind}-{identity}"),
        role="user",
        content=content_of([text_block(text) for text in texts]),
        origin="restored",
        note=restorer.kind,
        at=scene.facts.now,
    )
    rows = [RestoredItem(restorer.kind, e.name[:NAME_CHARS], text_size(e.text).base) for e in fitted.entries]
    if fitted.left_out:
        short = tuple(name[:NAME_CHARS] for name in fitted.left_out[:NAMES_RECORDED])
        rows.append(RestoredItem(restorer.kind, tokens=text_size(said).base if said else 0, left_out=short))
    return _PutBack(message, fitted.entries, tuple(rows)), spent + (cost(said) if said else 0)


def _harmless(given: Restoration, facts: Facts) -> Restoration:
    """What comes back without secrets, and without special tokens where a server may read them (SEC-5, SEC-11)."""

    def text(entry: RestoredEntry) -> str:
        clean = redact(entry.text, facts.secret_key).text
        return without_tokens(clean) if facts.model.reads_tokens else clean

    return replace(given, entries=tuple(replace(entry, text=text(entry)) for entry in given.entries))


def _fitted(given: Restoration, room: TokenRoom) -> Restoration:
    """Whatever a restorer thinks of budgets: entries that don't fit are left out, and so is a second of one name."""
    entries: dict[str, RestoredEntry] = {}
    left_out: list[str] = []
    for entry in given.entries:
        if entry.name not in entries and entry.text and room.admits(entry.text):
            entries[entry.name] = entry
        else:
            left_out.append(entry.name)
    return Restoration(tuple(entries.values()), (*left_out, *given.left_out))


def _notice(kind: str, names: Sequence[str], tokens: int, cost: Cost) -> str | None:
    """The line that says what was left out, with as many names as there is room for."""
    if not names:
        return None
    for count in range(min(NAMES_SAID, len(names)), -1, -1):
        listed = ", ".join(inline(name)[:160] for name in names[:count])
        more = len(names) - count
        rest = (f", and {more} more" if count else f"{more} of them") if more else ""
        text = prompts.render("restored_left_out", kind=kind.replace("_", " "), names=listed + rest)
        if cost(text) <= tokens:
            return text
    return None


def restored_counts(rows: Sequence[RestoredItem]) -> Mapping[str, tuple[int, int, int]]:
    """By kind: how many came back, their tokens, how many were left out."""
    found: dict[str, tuple[int, int, int]] = {}
    for row in rows:
        many, tokens, left = found.get(row.kind, (0, 0, 0))
        found[row.kind] = (many + bool(row.name), tokens + row.tokens, left + len(row.left_out))
    return found
