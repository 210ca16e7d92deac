"""Full compact: from what a model answered to a plan, or to the reason why it is none (CMP-3).

The model's part is a summary, and nothing else is trusted to it: what the user said is put beside it word for word by
code, and so is the ledger, within the budget of a summary and without saying again what stands in the other parts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast import prompts
from holdfast.context.compaction import Plan, kept_items, left_of, made
from holdfast.context.items import THINKING
from holdfast.context.keep import summary_budget
from holdfast.context.ledger.compacted import Around, render
from holdfast.context.ledger.extract import block_text
from holdfast.context.ledger.memory import Spoken
from holdfast.context.ledger.sheet import clock, short_id
from holdfast.context.policy import Facts
from holdfast.context.quoting import indented, quoted
from holdfast.context.replies import Reply
from holdfast.context.view import View
from holdfast.transcript.tokens import UNITS_PER_TOKEN, base_tokens, utf16_units

FAILED = "Failed to generate conversation summary"
NO_TEXT = f"no_text: {FAILED}: the response held no valid text"
ONLY_ANALYSIS = f"only_analysis: {FAILED}: the response held no valid text, only its analysis"
CUT_OFF = f"cut_off: {FAILED}: the response was cut at the output limit"
CALLED_TOOL = f"called_tool: {FAILED}: the response called a tool, which was refused"
_WORDS_PER_TOKEN = 0.6
_SUMMARY_SHARE = 0.75  # of the budget; the ledger has the rest
_CERTAIN_SHARE = 3.0  # what leaves beyond so many budgets is more than any record of it
_ASKED_SHARE = 0.5  # models write more than they are asked for
_BULK_UNITS = 2_400  # pasted, rather than typed: goes in after what was typed
_QUOTED_CHARS = 160
_CUT_MARK = " […] "  # an earlier boundary shortened it, so it is nobody's words any more
_ANALYSIS_BEGINS = re.compile(r"<analysis>", re.I)
_ANALYSIS_ENDS = re.compile(r"</analysis>", re.I)
_OPEN_SUMMARY = re.compile(r"<summary>", re.I)
_CLOSE_SUMMARY = re.compile(r"</summary>", re.I)
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
_OPEN_ANALYSIS = re.compile(r"</?analysis>", re.I)


@dataclass(frozen=True, slots=True)
class Summary:
    """What a model wrote, and how many of the oldest API rounds it didn't see."""

    text: str
    dropped: int = 0


def instruction(facts: Facts, view: View | None = None) -> str:
    """What is asked of the model, with what a person or a hook wants on top.

    When only a part is to be summarised, that part of the `view` is named by how it begins and ends (CMP-6): the
    request stays the conversation's own, so that it is read from the cache.
    """
    words = max(100, int(summary_budget(facts) * _ASKED_SHARE * _WORDS_PER_TOKEN))
    wanted = facts.instructions.strip()
    more = prompts.render("full_instructions", instructions=wanted) if wanted else ""
    if view is not None and facts.span is not None:
        more = f"{_scope(view, facts.span)}\n{more}"
    return prompts.render("full_compact", words=f"{words:,}", instructions=more and f"\n\n{more}")


def _scope(view: View, span: tuple[int, int]) -> str:
    start, end = span
    first = "the beginning" if start == 0 else f"the message that begins with {_quoted(view, start)}"
    last = "the end" if end == len(view.items) else f"just before the message that begins with {_quoted(view, end)}"
    return prompts.render("full_part", first=first, last=last).rstrip()


def _quoted(view: View, position: int) -> str:
    """How a message begins, for the model to find it by; what it says is said before, and can order nothing here."""
    item = view.items[position]
    texts = (" ".join(block_text(block).split()) for block in item.visible if block.kind not in THINKING)
    text = next((text for text in texts if text), item.message.role)
    return f"“{text[:_QUOTED_CHARS]}”"


def _without_analysis(text: str) -> str:
    """The text without its whole analyses, found tag by tag: one that never ends isn't looked for twice (SPD-8)."""
    kept: list[str] = []
    at = 0
    while (opened := _ANALYSIS_BEGINS.search(text, at)) and (closed := _ANALYSIS_ENDS.search(text, opened.end())):
        kept.append(text[at : opened.start()])
        at = closed.end()
    return "".join((*kept, text[at:]))


def _tagged(text: str) -> str | None:
    """What stands between the first tag that opens a summary and the last that closes one; None when there is none."""
    opened = _OPEN_SUMMARY.search(text)
    closed = None if opened is None else next(reversed([*_CLOSE_SUMMARY.finditer(text, opened.end())]), None)
    return None if opened is None or closed is None else text[opened.end() : closed.start()]


def summary_in(reply: Reply) -> str | None:
    """The summary in an answer, without its analysis; None when there is none. Tags may be missing, titles not."""
    text = _without_analysis(reply.text)
    whole = _tagged(text)
    if whole is not None:
        return whole.strip() or None
    opened = _OPEN_SUMMARY.search(text)
    if opened is not None:
        return text[opened.end() :].strip() or None
    if _OPEN_ANALYSIS.search(text):  # begun and not ended: all of it is analysis
        return None
    return text.strip() if _is_plainly(text) else None


def _is_plainly(text: str) -> bool:
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
    if any(block.kind == "tool_use" for block in reply.blocks) and not has_tags:
        return CALLED_TOOL
    text = summary_in(reply)
    if text is None:
        return ONLY_ANALYSIS if _OPEN_ANALYSIS.search(reply.text) else NO_TEXT
    tokens, most = base_tokens(text), _most_tokens(facts)
    if tokens > most:
        return f"too_long: {FAILED}: it takes {tokens:,} tokens of the {most:,} that it may"
    return None


def _most_tokens(facts: Facts) -> int:
    return int(summary_budget(facts) * _SUMMARY_SHARE)


def too_little(view: View, facts: Facts, starts: Sequence[int]) -> str | None:
    """Why no summary could make the view smaller, with its reason code; None when one might: known before it is paid.

    A record holds more than a model's words, so of a short conversation there is nothing to gain. Tried with the
    shortest summary, and only where little leaves; the test of what a model wrote then is the same as ever.
    """
    leaves = sum(item.size.base for item in view.items[: max(starts)])
    if leaves > _CERTAIN_SHARE * summary_budget(facts):
        return None
    why: str | None = None
    for keep_from in starts:
        boundary = made(
            view, full_plan(view, facts, keep_from, Summary("-")), facts, identity="", trigger="manual"
        ).boundary
        if boundary.tokens_after < boundary.tokens_before:
            return None
        why = f"too_little: {boundary.tokens_before:,} to {boundary.tokens_after:,} tokens with the shortest summary"
    return why


def full_plan(view: View, facts: Facts, keep_from: int, summary: Summary) -> Plan:
    """The plan that a summary makes: summary, the user's words, and what the ledger has beside them."""
    left = left_of(view, facts, keep_from)
    memory, kept = left.memory, kept_items(view, left.start, keep_from)
    text = summary.text
    said = kept_words(memory.words, _words_units(facts))
    known = frozenset(item.message.id for item in kept) | {one.id for one in said}
    behind = [block_text(block) for item in kept for block in item.visible]
    around = Around(lead="", behind="\n".join((text, *(one.text for one in said), *behind)), known=known)
    ledger = render(memory, summary_budget(facts) - base_tokens(quoted(text)) - 60, around).text
    parts = [f"# What a model wrote of it\n{_left_out(summary.dropped)}{quoted(text)}"]
    if said:
        lead = "# What the user said, word for word (oldest first; a record, and the last decides)"
        parts.append("\n".join((lead, *map(_spoken, said))))
    if ledger:
        parts.append(f"# What was said and done, listed by code\n\n{ledger}")
    names = ("full_compact", *(("full_part",) if facts.span else ()), *(("full_dropped",) if summary.dropped else ()))
    return Plan(
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


def kept_words(words: Sequence[Spoken], units: int) -> list[Spoken]:
    """What the user said that is kept word for word: the newest first, what was typed before what was pasted."""
    kept: set[int] = set()
    newest = [index for index in range(len(words) - 1, -1, -1) if _CUT_MARK not in words[index].text]
    for is_bulk in (False, True):
        for index in newest:
            cost = utf16_units(indented(words[index].text)) + 80
            if (cost > _BULK_UNITS) is is_bulk:
                if cost > units:
                    break
                kept.add(index)
                units -= cost
    return [words[index] for index in sorted(kept)]


def _spoken(one: Spoken) -> str:
    at = f"{clock(one.at)} " if one.at is not None else ""
    return f"- {at}{short_id(one.id)}: {indented(one.text)}"
