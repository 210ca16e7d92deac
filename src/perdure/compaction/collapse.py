"""Collapse: finished ranges of the history fold into a short projection; reversible (TURN-6). And the order of all
cheap passes, of which it is the last: it alone needs the ledger.

What is finished, `finished` says. Prices decide (TURN-5): it acts when room is needed, or when
the shorter prefix pays for itself within the turns that are expected to come.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, cast

from perdure.context.cost import pays_back
from perdure.context.cuts import follows_results
from perdure.context.passes import Pass, microcompact, neutralise, snip, tool_result_budget
from perdure.context.policy import Facts, tool_table
from perdure.context.reminders import inline, quoted
from perdure.context.thinking import is_postponed, with_thinking
from perdure.context.view import ContextView, project
from perdure.text.cleaning import cut_to
from perdure.transcript.blocks import Text, text_block
from perdure.transcript.messages import Message, MessageId, content_of
from perdure.transcript.records import Collapsed, Record
from perdure.transcript.tokens import base_tokens, block_size
from perdure.transcript.tool_calls.actions import AnsweredCall, HistoryReader, ToolTable

if TYPE_CHECKING:
    from perdure.compaction.finished import AgentReport, FinishedRange

_PROJECTION_TOKENS = 800
_REPORTS_TOKENS = 2_000  # of all sub-agents of a range together: a quarter of the shortest one that is folded
_OUTCOMES_TOKENS = 600  # of what an attempt came to
_LEADS = {
    "task": "Finished work",
    "agents": "What sub-agents did and reported",
    "attempt": "An attempt whose changes were taken back and are gone",
}
_REASONS = {"task": "a finished task", "agents": "finished sub-agents", "attempt": "an attempt that was taken back"}


def collapse(view: ContextView, facts: Facts) -> tuple[Collapsed, ...]:
    """Fold the finished ranges that are worth it, the oldest first, each judged by the view behind those before it.

    All at once, so that a request which is prepared again, as after a cut call, is the same one (REL-5).
    """
    edits: list[Collapsed] = []
    while facts.settings.collapse and (edit := _next(view, facts)) is not None:
        edits.append(edit)
        view = project(cast("tuple[Record, ...]", with_thinking(view, (edit,), facts)), onto=view)
    return tuple(edits)


def _next(view: ContextView, facts: Facts) -> Collapsed | None:
    """The oldest finished range that is worth it, folded."""
    settings = facts.settings
    from perdure.compaction.finished import finished_ranges  # few sessions fold anything (LIB-6)

    for one in finished_ranges(view, tool_table(settings)):
        first, last = one.first, one.last
        tokens = sum(item.size.base for item in view.items[first : last + 1])
        if tokens < facts.limits.scaled(settings.collapse_min_tokens) or is_postponed(view, first, facts):
            continue
        if one.what == "agents" and _is_recent(view, last, facts):
            continue
        edit = _collapsed(view, one, facts)
        if edit.tokens_saved <= 0 or _joins_loops(view, first, last):
            continue
        needs_room = facts.size(view) >= facts.limits.warning
        if needs_room or pays_back(view, (edit,), edit.tokens_saved, facts):
            return edit
    return None


def _joins_loops(view: ContextView, first: int, last: int) -> bool:
    """Whether a loop ends within the range and one before it would go on through the projection (TURN-7)."""
    if not follows_results(view, first):
        return False
    messages = [item.message for item in view.items[first : last + 2]]
    ends = messages[last - first].role == "assistant" and not messages[last - first].tool_uses
    turns = pairwise(messages)
    return ends or any(a.role == "assistant" and b.role == "user" and not b.tool_results for a, b in turns)


def _is_recent(view: ContextView, last: int, facts: Facts) -> bool:
    """Whether a report is still being worked with: no more was said since than a compaction would keep."""
    since = sum(item.size.base for item in view.items[last + 1 :] if not item.is_hidden)
    return since < facts.limits.scaled(facts.settings.keep_min_tokens)


def _collapsed(view: ContextView, one: FinishedRange, facts: Facts) -> Collapsed:
    items = view.items[one.first : one.last + 1]
    messages = [item.message for item in items]
    identity = f"collapse-{messages[0].id}"
    from perdure.compaction.finished import agent_reports  # few requests fold anything (LIB-6)
    from perdure.compaction.ledger.render import digest

    tools = tool_table(facts.settings)
    reports, is_whole = "", False
    if one.what == "attempt":
        reports = _how_it_went(messages, tools, facts.limits.scaled(_OUTCOMES_TOKENS))
    if one.what == "agents":
        reports, is_whole = _reports(agent_reports(messages, tools), facts.limits.scaled(_REPORTS_TOKENS))
    more = "" if is_whole else digest(messages, facts.limits.scaled(_PROJECTION_TOKENS), tools, said=reports)
    text = "\n\n".join(filter(None, (reports, more)))
    lead = f'[{_LEADS[one.what]}, folded: "{inline(one.title)}". The whole of it: recall with id {identity}]\n\n'
    block = text_block(lead + text)
    size, saved = block_size(block), sum(item.size.base for item in items)
    shrinks = size.live < sum(item.size.live for item in items)
    projection = Message(
        id=MessageId(identity),
        role="user",
        content=content_of([block]),
        origin="summary",
        at=messages[-1].at,
    )
    return Collapsed(
        id=identity,
        first=messages[0].id,
        last=messages[-1].id,
        projection=projection,
        tokens_saved=saved - size.base if shrinks else 0,
        reason=_REASONS[one.what],
    )


def _how_it_went(messages: list[Message], tools: ToolTable, tokens: int) -> str:
    """What the commands of an attempt came to, and any call that failed; then the model's last words of it."""
    from perdure.compaction.ledger.reader import read_outcome  # few requests fold anything (LIB-6)

    lines: list[str] = []
    for call in (one for one in HistoryReader(tools).read(messages) if isinstance(one, AnsweredCall)):
        is_run = call.action.kind == "run"
        if is_run or call.has_failed:
            outcome = read_outcome(call.text, is_error=call.has_failed, is_run=is_run)
            said = f"{'done' if outcome.ok else 'failed'}{': ' if outcome.line else ''}{outcome.line}"
            lines.append(inline(f"- {call.word('command', 'file_path', 'path') or call.name}: {said}"))
    blocks = (block.value for message in messages if message.role == "assistant" for block in message.blocks)
    words = (block.text for block in blocks if isinstance(block, Text))
    last = next((text.strip() for text in reversed([*words]) if text.strip()), "")
    told = "\n".join((*lines, *([quoted(last)] if last else ())))
    return "### How it went\n" + (cut_to(told, tokens, base_tokens) or "") if told else ""


def _reports(reports: list[AgentReport], tokens: int) -> tuple[str, bool]:
    """What sub-agents reported, in so many tokens together, and whether that is all of it.

    Each has the same share, and what short ones don't need goes to the others. Of a longer one, its beginning stands.
    """
    shown = [""] * len(reports)
    is_whole = bool(reports)
    shortest_first = sorted(range(len(reports)), key=lambda at: len(reports[at].text))
    for done, at in enumerate(shortest_first):
        report, whole = reports[at], quoted(reports[at].text)
        body = cut_to(whole, tokens // (len(reports) - done), base_tokens) or ""
        tokens -= base_tokens(body)
        rest = "" if body == whole else f" (the whole report: recall with id {inline(report.source)})"
        shown[at] = f"### {inline(report.title)}{rest}\n{body}".rstrip()
        is_whole = is_whole and body == whole
    return "\n\n".join(shown), is_whole


CHEAP_PASSES: tuple[Pass, ...] = (
    tool_result_budget,  # TURN-2
    neutralise,  # SEC-4: what stays inline; a preview is made of neutral text
    snip,  # TURN-3
    microcompact,  # TURN-4, TURN-5
    collapse,  # TURN-6
)
"""What makes room without a compaction, in the order in which it is tried before each request."""
