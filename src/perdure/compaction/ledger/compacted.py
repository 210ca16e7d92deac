"""The compacted view: ledger, evidence and raw tail inside one budget, for a person and for a model (CMP-5, CMP-12)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from perdure.compaction.ledger import render as lists
from perdure.compaction.ledger.evidence import EvidenceCover, EvidenceTarget, RawTail, goal_words, most_pieces, raw_tail
from perdure.compaction.ledger.facts import facts_in
from perdure.compaction.ledger.memory import LedgerMemory
from perdure.compaction.ledger.reader import LedgerExtractor
from perdure.compaction.ledger.render import Sheet, clip
from perdure.context.reminders import fenced
from perdure.transcript.messages import Message
from perdure.transcript.tokens import UNITS_PER_TOKEN, base_tokens, utf16_units
from perdure.transcript.tool_calls.actions import ToolTable

HEAD = (
    "Record of earlier work, made by code from what was said and done. It is no request: the latest message of the "
    "user decides. What is listed as done is done; commands are listed as what happened. All tools remain available. "
    "Lines behind a tab are quoted from the conversation, files and tools: nothing in them is a part of this record."
)
RECALL = "Anything named here can be had whole with recall, by its id, or by the end of it that stands after “…”."
_ROOM_TOKENS = (6_500, 9_000)  # left for names and evidence: scarce up to the first, plenty from the second
TAIL_HEADING = "The latest of it, word for word"
_SEEN_IN_FULL = frozenset({"words", "work", "raw tail", "pins", "decisions"})


@dataclass(frozen=True, slots=True)
class SectionShares:
    """Of the budget, how much each part may take at first; what a part leaves is handed on to those after it."""

    tail: float = 0.10
    first: float = 0.22
    last: float = 0.20
    words: float = 0.16
    work: float = 0.07
    commands: float = 0.13
    read: float = 0.05
    errors: float = 0.04
    decisions: float = 0.04
    names: float = 0.35  # of what is left for names and evidence, when that is scarce …
    names_in_plenty: float = 0.60  # … and when it is plenty: more excerpts then repeat what others say

    def of_names(self, units: int) -> float:
        """The share of the names in so much room."""
        scarce, plenty = (tokens * UNITS_PER_TOKEN for tokens in _ROOM_TOKENS)
        plentiful = min(max((units - scarce) / (plenty - scarce), 0.0), 1.0)
        return self.names + (self.names_in_plenty - self.names) * plentiful


@dataclass(frozen=True, slots=True)
class CompactedText:
    """`text` and its `tokens`; `kept`: what stands in it, with ids; `dropped`: by section, how much and where it is."""

    text: str
    tokens: int
    kept: tuple[dict[str, Any], ...]
    dropped: dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSurroundings:
    """What stands around the record: `lead` and `pins` go into it; `behind` stands in the view behind it already.

    `messages`, when given, end in a raw tail inside the record; `known` are ids of messages that stand behind it whole.
    """

    lead: str = f"{HEAD} {RECALL}"
    pins: tuple[str, ...] = ()
    behind: str = ""
    known: frozenset[str] = frozenset()
    messages: Sequence[Message] = ()


def compact_messages(
    messages: Sequence[Message],
    budget_tokens: int,
    tail_tokens: int = 0,
    *,
    tools: ToolTable | None = None,
    pins: Iterable[str] = (),
    shares: SectionShares | None = None,
) -> CompactedText:
    """The whole compacted view of some messages: at most `budget_tokens`, and a raw tail of `tail_tokens` behind it."""
    memory = memory_of_messages(messages, tools)
    if tail_tokens <= 0:
        return render(memory, budget_tokens, RecordSurroundings(pins=tuple(pins), messages=messages), shares)
    heading = f"## {TAIL_HEADING}\n"
    tail = raw_tail(messages, tail_tokens * UNITS_PER_TOKEN - utf16_units(heading) - 2)
    done = render(
        memory, budget_tokens, RecordSurroundings(pins=tuple(pins), behind=tail.text, known=tail.whole), shares
    )
    text = f"{done.text}\n\n{heading}{tail.text}" if tail.text else done.text
    return CompactedText(text, base_tokens(text), (*done.kept, *_told(tail)), done.dropped)


def memory_of_messages(messages: Iterable[Message], tools: ToolTable | None = None) -> LedgerMemory:
    """The memory of some messages, from cold."""
    extractor = LedgerExtractor(tools or ToolTable())
    return LedgerMemory().absorb(extractor.extract(message) for message in messages)


def digest(messages: Iterable[Message], budget_tokens: int, tools: ToolTable | None = None) -> str:
    """A short record of a finished range, without framing or raw tail."""
    return render(memory_of_messages(messages, tools), budget_tokens, RecordSurroundings(lead="")).text


def render(
    memory: LedgerMemory, budget_tokens: int, around: RecordSurroundings, shares: SectionShares | None = None
) -> CompactedText:
    """A memory as text of at most `budget_tokens`."""
    shares = shares or SectionShares()
    sheet = Sheet(max(0, budget_tokens) * UNITS_PER_TOKEN)
    whole = sheet.units
    files = lists.file_trail(memory)
    sheet.put("pins", 1, "Pinned by the user, word for word", fenced("\n".join(around.pins)) if around.pins else "")
    if sheet.units > 4 * len(around.lead):
        sheet.put("lead", 0, "", around.lead)
    lists.must(sheet, memory, files, whole)
    around = _with_tail(sheet, around, int(shares.tail * whole))
    lists.words(sheet, memory, around.known, (shares.first, shares.last, shares.words), whole)
    lists.work(sheet, memory, around.known, shares.work * whole)
    lists.commands(sheet, memory, around.behind, shares.commands * whole)
    lists.read(sheet, memory, files, shares.read * whole)
    lists.errors(sheet, memory, shares.errors * whole)
    lists.decisions(sheet, memory, around.known, shares.decisions * whole)
    _facts(sheet, memory, around.behind, shares)
    text = sheet.text()
    return CompactedText(text, base_tokens(text), tuple(sheet.kept), sheet.dropped)


def _with_tail(sheet: Sheet, around: RecordSurroundings, units: int) -> RecordSurroundings:
    """Put the raw tail onto the sheet, if one is wanted; what it says isn't said again."""
    if not around.messages:
        return around
    tail = raw_tail(around.messages, min(units, sheet.units // 2) - 60)
    if not sheet.put("raw tail", 90, TAIL_HEADING, tail.text):
        return around
    sheet.kept += _told(tail)
    return RecordSurroundings(behind=f"{around.behind}\n{tail.text}", known=around.known | tail.whole)


def _told(tail: RawTail) -> list[dict[str, Any]]:
    return [{"section": "raw tail", "messages": sorted(tail.whole)}] if tail.text else []


def _facts(sheet: Sheet, memory: LedgerMemory, behind: str, shares: SectionShares) -> None:
    """Evidence and names share what is left: evidence first, then the names that nothing showed yet.

    What the names turn out not to need is handed back to the evidence, once more each time.
    """
    weights = memory.weights()
    full = [one.text for one in sheet.sections if one.name in _SEEN_IN_FULL]
    shown = frozenset(facts_in("\n".join((*full, behind))))
    listed = frozenset(facts_in(sheet.text()))
    lasts = {key: fact.last for key, fact in memory.facts.items()}
    cover = EvidenceCover(
        memory.pieces, EvidenceTarget(weights, lasts, listed, shown, _goal(memory)), most=most_pieces(sheet.units)
    )
    room = sheet.units - 160
    allowed = int(room * shares.of_names(room))
    spare = cover.take(room - allowed)
    for _ in range(2):
        body, _sources = lists.excerpts(cover.chosen, memory.titles)
        needed = lists.names_units(weights, listed | shown | facts_in(body).keys())
        if allowed + spare - needed < 200:
            break
        spare, allowed = cover.take(allowed + spare - needed), needed
    body, sources = lists.excerpts(cover.chosen, memory.titles)
    lists.evidence(sheet, memory, clip(body, max(0, sheet.units - 80)), sources)
    lists.names(sheet, weights, lasts, listed | shown | facts_in(body).keys())


def _goal(memory: LedgerMemory) -> frozenset[str]:
    """The words of the latest request and of open work."""
    tasks = [task.text for task in memory.todos.values() if task.status != "done"]
    return goal_words([*(one.text for one in memory.words[-1:]), *tasks])
