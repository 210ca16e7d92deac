"""A summary by a model: the request for it, its answer as a plan, and one made ahead of time (CMP-3, CMP-6)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil
from typing import Any

import msgspec

from perdure import prompts
from perdure.compaction.boundary import make_boundary
from perdure.compaction.from_notes import CURSOR, covered_until, keep_behind
from perdure.compaction.ledger.memory import SpokenText
from perdure.compaction.ledger.reader import block_text
from perdure.compaction.ledger.render import BULK_UNITS, RecordSurroundings, render, spoken_line
from perdure.compaction.plan import CompactionPlan, can_leave, kept_items, leaving_history, summary_budget
from perdure.context.groups import MessageGroup, WireBlock, flatten, with_words
from perdure.context.models import model_spec
from perdure.context.policy import Facts
from perdure.context.reminders import indented, quoted
from perdure.context.replies import ModelInfo, Reply
from perdure.context.request import ModelRequest, to_request
from perdure.context.state import PrecomputedSummary
from perdure.context.thinking import closed_groups
from perdure.context.view import THINKING, ContextView
from perdure.transcript.blocks import Block, ToolResult, encode, text_block
from perdure.transcript.messages import MessageId
from perdure.transcript.tokens import UNITS_PER_TOKEN, base_tokens, utf16_units

FAILED = "Failed to generate conversation summary"
NO_TEXT = f"no_text: {FAILED}: the response held no valid text"
ONLY_ANALYSIS = f"only_analysis: {FAILED}: the response held no valid text, only its analysis"
CUT_OFF = f"cut_off: {FAILED}: the response was cut at the output limit"
CALLED_TOOL = f"called_tool: {FAILED}: the response called a tool, which was refused"
_WORDS_PER_TOKEN = 0.6
_SUMMARY_SHARE = 0.75  # of the budget; the ledger has the rest
_CERTAIN_SHARE = 3.0  # what leaves beyond so many budgets is more than any record of it
_ASKED_SHARE = 0.5  # models write more than they are asked for
_QUOTED_CHARS = 160
_CUT_MARK = " […] "  # an earlier boundary shortened it, so it is nobody's words any more
_ANALYSIS_OPENS = re.compile(r"<analysis>", re.I)
_ANALYSIS_CLOSES = re.compile(r"</analysis>", re.I)
_SUMMARY_OPENS = re.compile(r"<summary>", re.I)
_SUMMARY_CLOSES = re.compile(r"</summary>", re.I)
_TITLES = (
    "primary request",
    "key technical concepts",
    "files and code",
    "errors and fixes",
    "problem solving",
    "all user messages",
    "pending tasks",
    "current work",
    "next step",
)
_ENOUGH_TITLES = 3  # an answer without tags is a record if it shows as many; else the model went on with the work
_LEAST_WORDS = 30  # fewer are no record of a session that was worth compacting
_LEAD_CHARS = 400  # in which a summary says that it is one
_SUMMARISING = ("summary", "summaris", "summariz", "the user", "conversation", "this session", "so far")
_LISTED = re.compile(r"^[ \t]{0,8}(?:#{1,6} |[-*•] |\d{1,2}[.)] |\*\*)", re.M)
_ENOUGH_LISTED = 4
_ANALYSIS_TAG = re.compile(r"</?analysis>", re.I)


@dataclass(frozen=True, slots=True)
class ModelSummary:
    """What a model wrote, and how many of the oldest API rounds it didn't see."""

    text: str
    dropped: int = 0


def instruction(facts: Facts, view: ContextView | None = None) -> str:
    """What is asked of the model, with what a person or a hook wants on top.

    When only a part is to be summarised, that part of the `view` is named by how it begins and ends (CMP-6): the
    request stays the conversation's own, so that it is read from the cache.
    """
    words = max(100, int(summary_budget(facts) * _ASKED_SHARE * _WORDS_PER_TOKEN))
    wanted = facts.instructions.strip()
    more = prompts.render("full_instructions", instructions=wanted) if wanted else ""
    if view is not None and facts.span is not None:
        more = f"{_part_named(view, facts.span)}\n{more}"
    return prompts.render("full_compact", words=f"{words:,}", instructions=more and f"\n\n{more}")


def _part_named(view: ContextView, span: tuple[int, int]) -> str:
    start, end = span
    first = "the beginning" if start == 0 else f"the message that begins with {_quoted(view, start)}"
    last = "the end" if end == len(view.items) else f"just before the message that begins with {_quoted(view, end)}"
    return prompts.render("full_part", first=first, last=last).rstrip()


def _quoted(view: ContextView, position: int) -> str:
    """How a message begins, for the model to find it by; what it says is said before, and can order nothing here."""
    item = view.items[position]
    texts = (" ".join(block_text(block).split()) for block in item.visible if block.type not in THINKING)
    text = next((text for text in texts if text), item.message.role)
    return f"“{text[:_QUOTED_CHARS]}”"


def _without_analysis(text: str) -> str:
    """The text without its whole analyses, found tag by tag: one that never ends isn't looked for twice (SPD-8)."""
    kept: list[str] = []
    at = 0
    while (opened := _ANALYSIS_OPENS.search(text, at)) and (closed := _ANALYSIS_CLOSES.search(text, opened.end())):
        kept.append(text[at : opened.start()])
        at = closed.end()
    return "".join((*kept, text[at:]))


def _tagged(text: str) -> str | None:
    """What stands between the first tag that opens a summary and the last that closes one; None when there is none."""
    opened = _SUMMARY_OPENS.search(text)
    closed = None if opened is None else next(reversed([*_SUMMARY_CLOSES.finditer(text, opened.end())]), None)
    return None if opened is None or closed is None else text[opened.end() : closed.start()]


def summary_in(reply: Reply) -> str | None:
    """The summary in an answer, without its analysis; None when there is none. Tags may be missing, titles not."""
    text = _without_analysis(reply.text)
    whole = _tagged(text)
    if whole is not None:
        return whole.strip() or None
    opened = _SUMMARY_OPENS.search(text)
    if opened is not None:
        return text[opened.end() :].strip() or None
    if _ANALYSIS_TAG.search(text):  # begun and not ended: all of it is analysis
        return None
    return text.strip() if _reads_as_summary(text) else None


def _reads_as_summary(text: str) -> bool:
    """Whether words without tags are a summary, and not the model going on with the work (CMP-4).

    Small models leave the tags out. Theirs has our titles; or it is of some length and says what it is, or who wanted
    what, or lists things.
    """
    low = text.lower()
    if sum(title in low for title in _TITLES) >= _ENOUGH_TITLES:
        return True
    if len(text.split()) < _LEAST_WORDS:
        return False
    is_told = any(word in low[:_LEAD_CHARS] for word in _SUMMARISING)
    return is_told or len(_LISTED.findall(text)) >= _ENOUGH_LISTED


def fault_of(reply: Reply, facts: Facts) -> str | None:
    """Why an answer is no summary, with its reason code; None when it is one."""
    if reply.stop_reason in ("max_tokens", "model_context_window_exceeded"):
        return CUT_OFF
    if reply.stop_reason == "refusal":
        return f"refused: {FAILED}: the model refused"
    has_tags = _tagged(reply.text) is not None
    if any(block.type == "tool_use" for block in reply.blocks) and not has_tags:
        return CALLED_TOOL
    text = summary_in(reply)
    if text is None:
        return ONLY_ANALYSIS if _ANALYSIS_TAG.search(reply.text) else NO_TEXT
    tokens, most = base_tokens(text), _most_tokens(facts)
    if tokens > most:
        return f"too_long: {FAILED}: it takes {tokens:,} tokens of the {most:,} that it may"
    return None


def _most_tokens(facts: Facts) -> int:
    return int(summary_budget(facts) * _SUMMARY_SHARE)


def too_little(view: ContextView, facts: Facts, starts: Sequence[int]) -> str | None:
    """Why no summary could make the view smaller, with its reason code; None when one might: known before it is paid.

    A record holds more than a model's words, so of a short conversation there is nothing to gain. Tried with the
    shortest summary, and only where little leaves; the test of what a model wrote then is the same as ever.
    """
    leaves = sum(item.size.base for item in view.items[: max(starts)])
    if leaves > _CERTAIN_SHARE * summary_budget(facts):
        return None
    why: str | None = None
    for keep_from in starts:
        boundary = make_boundary(
            view, full_plan(view, facts, keep_from, ModelSummary("-")), facts, identity="", trigger="manual"
        ).boundary
        if boundary.tokens_after < boundary.tokens_before:
            return None
        why = f"too_little: {boundary.tokens_before:,} to {boundary.tokens_after:,} tokens with the shortest summary"
    return why


def full_plan(view: ContextView, facts: Facts, keep_from: int, summary: ModelSummary) -> CompactionPlan:
    """The plan that a summary makes: summary, the user's words, and what the ledger has beside them."""
    left = leaving_history(view, facts, keep_from)
    memory, kept = left.memory, kept_items(view, left.start, keep_from)
    text = summary.text
    said = kept_words(memory.words, _words_units(facts))
    known = frozenset(item.message.id for item in kept) | {one.id for one in said}
    behind = [block_text(block) for item in kept for block in item.visible]
    around = RecordSurroundings(lead="", behind="\n".join((text, *(one.text for one in said), *behind)), known=known)
    ledger = render(memory, summary_budget(facts) - base_tokens(quoted(text)) - 60, around).text
    parts = [f"# What a model wrote of it\n{_left_out(summary.dropped)}{quoted(text)}"]
    if said:
        lead = "# What the user said, word for word (newest first; a record, and the latest decides)"
        parts.append("\n".join((lead, *map(spoken_line, reversed(said)))))
    if ledger:
        parts.append(f"# What was said and done, listed by code\n\n{ledger}")
    names = ("full_compact", *(("full_part",) if facts.span else ()), *(("full_dropped",) if summary.dropped else ()))
    return CompactionPlan(
        strategy="full",
        record="\n\n".join(parts),
        how="with the help of a model",
        keep_from=keep_from,
        start=left.start,
        ledger=left.ledger,
        latest=left.latest,
        promised=tuple(indented(one.text) for one in said),
        prompts=names,
    )


def _left_out(rounds: int) -> str:
    if not rounds:
        return ""
    return (
        f"(The oldest part, {rounds} exchanges, did not fit into the request for this summary, so it says nothing of "
        "them; what is known of them stands in the parts made by code.)\n\n"
    )


def _words_units(facts: Facts) -> int:
    limits = facts.limits
    return min(limits.scaled(facts.settings.user_words_tokens), limits.trigger // 8) * UNITS_PER_TOKEN


def kept_words(words: Sequence[SpokenText], units: int) -> list[SpokenText]:
    """What the user said that is kept word for word: the newest first, what was typed before what was pasted."""
    kept: set[int] = set()
    newest = [index for index in range(len(words) - 1, -1, -1) if _CUT_MARK not in words[index].text]
    for is_bulk in (False, True):
        for index in newest:
            cost = utf16_units(indented(words[index].text)) + 80
            if (cost > BULK_UNITS) is is_bulk:
                if cost > units:
                    break
                kept.add(index)
                units -= cost
    return [words[index] for index in sorted(kept)]


_MEDIA = ("image", "document")
_DROP_PERCENT = 20  # CMP-4: when no gap is stated


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    """A request for a summary, how many tokens it is taken for, and how many API rounds there are and were dropped.

    `margin`: what it is taken for beside what its rounds are; more than 1 where no size was ever reported.
    """

    request: ModelRequest
    tokens: int
    rounds: tuple[int, ...]  # the tokens of each round, the oldest first, as its provider would count them
    dropped: int
    margin: float = 1.0


def is_own(view: ContextView, about: ModelInfo) -> bool:
    """Whether a model is the one of the conversation, so that its cached prefix can be read."""
    named = view.front.model if view.front else None
    return about.id == (named or view.state.calibration.model)


def summary_ask(
    view: ContextView, facts: Facts, about: ModelInfo, instruction: str, dropped: int = 0
) -> SummaryRequest:
    """The request that asks a model for a summary, without the `dropped` oldest rounds."""
    own = is_own(view, about)
    groups = flatten(view)
    starts = round_starts(groups)
    sizes = _round_sizes(view, groups, starts)
    margin = _margin_of(view, facts)
    dropped = min(dropped, len(starts) - 1)
    loses_thinking = own and dropped > 0 and facts.model.thinking_is_bound
    if not own:
        groups = [plain(group) for group in groups]
        facts = facts_of(facts, about)
    if dropped:
        groups = _without(groups[starts[dropped] :], dropped, is_bound=loses_thinking)
    if about.protocol == "anthropic":
        groups = closed_groups(view, groups, len(view.items), is_bare=not own or loses_thinking)
    groups = with_words(groups, instruction)
    model = None if own else about.id
    request = to_request(view, facts, protocol=about.protocol, stream=True, model=model, groups=groups)
    tokens = max(0, facts.size(view) - round(sum(sizes[:dropped]) * margin)) + base_tokens(instruction)
    return SummaryRequest(request, tokens, tuple(sizes), dropped, margin)


def round_starts(groups: Sequence[MessageGroup]) -> list[int]:
    """Where each API round begins: an answer and what came back for it. The first holds what stands before it, too."""
    starts = [number for number, group in enumerate(groups) if group.role == "assistant"]
    return [0, *starts[1:]]


def rounds_to_drop(sizes: Sequence[int], dropped: int, gap_tokens: int | None) -> int:
    """How many rounds to leave out after a refusal: as many more as the gap needs, else 20 %, at least one (CMP-4).

    The last round stays; the answer is `dropped` when nothing more can go.
    """
    left = len(sizes) - dropped
    if gap_tokens is None or gap_tokens <= 0:
        more = max(1, left * _DROP_PERCENT // 100)
    else:
        more, freed = 0, 0
        while freed < gap_tokens and more < left:
            freed += sizes[dropped + more]
            more += 1
    return min(dropped + more, len(sizes) - 1)


def overflow_tokens(facts: Facts, about: ModelInfo, ask: SummaryRequest) -> int:
    """By how much a request is larger than what another model states of itself, in tokens of rounds; 0 when it fits."""
    window = about.window_tokens or model_spec(about.id).window_tokens
    return max(0, ceil((ask.tokens + _room_for_answer(facts, about) - window) / ask.margin))


def _room_for_answer(facts: Facts, about: ModelInfo) -> int:
    """What another model's window keeps free behind a prompt."""
    window = about.window_tokens or model_spec(about.id).window_tokens
    return min(facts.settings.reserve_cap_tokens, window // 4)


def _round_sizes(view: ContextView, groups: Sequence[MessageGroup], starts: Sequence[int]) -> list[int]:
    """The tokens of each round, as the provider counts them."""
    ratio = view.state.calibration.ratio
    edges = [*(groups[start].first if start else 0 for start in starts), len(view.items)]
    sizes = []
    for first, end in pairwise(edges):
        shown = (item for item in view.items[first:end] if not item.is_hidden and item.message.agent_id is None)
        sizes.append(ceil(sum(item.size.live for item in shown) * ratio))
    return sizes


def _margin_of(view: ContextView, facts: Facts) -> float:
    """How much larger a view is taken for than its rounds are: no size was reported, so it counts by another rule."""
    if view.anchor is not None or not view.size.live:
        return 1.0
    settings = facts.settings
    blind = view.size.blind * settings.margin_numerator / settings.margin_denominator
    return max(0.1, blind / (view.size.live * view.state.calibration.ratio))


def facts_of(facts: Facts, about: ModelInfo) -> Facts:
    """The facts for another model's request: its own limits, and none of what the provider does for ours."""
    known, wanted = model_spec(about.id), facts.settings.max_output_tokens
    most = min(about.max_output_tokens or known.max_output_tokens, _room_for_answer(facts, about))
    most = min(most, wanted) if wanted else most  # some servers write on behind the end of their window
    settings = replace(
        facts.settings, max_output_tokens=most, provider_clearing=False, provider_compaction=False, thinking="drop"
    )
    return replace(facts, settings=settings, model=known)


def _without(groups: list[MessageGroup], count: int, *, is_bound: bool) -> list[MessageGroup]:
    """What is left of a conversation, with a line in the place of its beginning; bound thinking would not hold."""
    line = WireBlock(text_block(prompts.render("full_dropped", count=str(count))).raw, "text")
    if is_bound:
        groups = [plain(group, keeps_media=True) for group in groups]
    return [MessageGroup("user", groups[0].first, [line]), *groups]


def plain(group: MessageGroup, *, keeps_media: bool = False) -> MessageGroup:
    """A group without thinking, and with words in the place of pictures and documents."""
    blocks = [part for part in group.blocks if part.kind not in THINKING]
    results = group.results
    if not keeps_media:
        blocks = [_named(part) for part in blocks]
        results = {call: _result_named(part) for call, part in results.items()}
    if not blocks and not results:
        blocks = [WireBlock(text_block("[no text]").raw, "text")]
    return MessageGroup(group.role, group.first, blocks, dict(results), list(group.calls))


def _named(part: WireBlock) -> WireBlock:
    return part._replace(raw=text_block(f"[{part.kind}]").raw, kind="text") if part.kind in _MEDIA else part


def _result_named(part: WireBlock) -> WireBlock:
    """A tool result with `[image]` and `[document]` in the place of media; the very same when it has none."""
    if not any(kind.encode() in part.raw for kind in _MEDIA):
        return part
    value = Block(part.raw).value
    if not isinstance(value, ToolResult) or value.content is None or isinstance(value.content, str):
        return part
    inner = value.parts()
    if not any(one.type in _MEDIA for one in inner):
        return part
    fields: dict[str, Any] = msgspec.json.decode(part.raw, type=dict[str, msgspec.Raw])
    fields["content"] = [
        msgspec.Raw(text_block(f"[{one.type}]").raw if one.type in _MEDIA else one.raw) for one in inner
    ]
    return part._replace(raw=encode(fields))


HOW = "with the help of a model, ahead of time"


def digest_of(view: ContextView, end: int) -> str:
    """A hash of what the model sees of the items before a position: which messages, and the bytes they show as."""
    digest = hashlib.sha256((view.boundary.id if view.boundary else "").encode())
    for item in view.items[:end]:
        digest.update(b"\0" + item.message.id.encode())
        for block in item.visible:
            digest.update(b"\1" + block.raw)
    for collapse in view.collapses.values():
        digest.update(b"\2" + collapse.id.encode())
    return digest.hexdigest()


def stale(view: ContextView, held: PrecomputedSummary) -> str | None:
    """Why a held summary can't stand for what it covers any more; None when nothing of that has changed."""
    position = view.positions.get(MessageId(held.message))
    if position is None:
        return "gone: the last message that it covers isn't in the view"
    if digest_of(view, position + 1) != held.digest:
        return "changed: an edit touched what it covers"
    return None


def held_plan(view: ContextView, facts: Facts, held: PrecomputedSummary) -> CompactionPlan | str:
    """The plan that a held summary makes, or why there is none."""
    why = stale(view, held)
    if why is not None:
        return why
    if facts.instructions.strip() != held.instructions.strip():
        return "instructions: it was made with others"
    position = keep_behind(view, facts, view.positions[MessageId(held.message)] + 1)
    if not can_leave(view, position):
        return "nothing_to_compact: no message stands before those to keep"
    return replace(full_plan(view, facts, position, ModelSummary(held.text, held.dropped)), how=HOW)


def is_wanted(view: ContextView, facts: Facts) -> bool:
    """Whether a summary should be made now: near the trigger, none held, and no notes that cost nothing (CMP-2)."""
    settings, limits = facts.settings, facts.limits
    if not settings.precompute or not limits.auto or facts.source != "user":
        return False
    if not limits.warning <= facts.size(view) < limits.trigger:
        return False
    if settings.notes and isinstance(covered_until(view, view.state.cursors.get(CURSOR)), int):
        return False
    held = view.state.held
    return held is None or stale(view, held) is not None
