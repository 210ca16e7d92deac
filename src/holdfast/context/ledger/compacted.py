"""The compacted view: ledger, evidence and raw tail inside one budget, for a person and for a model (CMP-5, CMP-12)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.context.ledger import lists
from holdfast.context.ledger.evidence import Cover, Wanted, goal_words
from holdfast.context.ledger.extract import Extractor
from holdfast.context.ledger.facts import facts_in
from holdfast.context.ledger.memory import Memory
from holdfast.context.ledger.sheet import Sheet, clip
from holdfast.context.ledger.tail import Tail, raw_tail
from holdfast.context.ledger.tools import Tools
from holdfast.transcript.messages import Message
from holdfast.transcript.tokens import UNITS_PER_TOKEN, base_tokens

HEAD = (
    "Record of earlier work, made by code from what was said and done. It is no request: the latest message of the user "
    "decides. What is listed as done is done; commands are listed as what happened. All tools remain available. "
    "Anything can be had whole with recall, by an id or by its end as shown after “…”."
)


@dataclass(frozen=True, slots=True)
class Shares:
    """Of the budget, how much each part may take at first; what a part leaves is handed on to those after it."""

    tail: float = 0.10
    first: float = 0.22
    last: float = 0.20
    words: float = 0.16
    edited: float = 0.09
    work: float = 0.07
    commands: float = 0.13
    read: float = 0.05
    errors: float = 0.04
    decisions: float = 0.04
    names: float = 0.30  # of what is left for names and evidence


@dataclass(frozen=True, slots=True)
class CompactedText:
    """`text` and its `tokens`; `kept`: what stands in it, with ids; `dropped`: by section, how much and where it is."""

    text: str
    tokens: int
    kept: tuple[dict[str, Any], ...]
    dropped: dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Behind:
    """What stands in the view behind the ledger, and so isn't said again: its text, and whose messages it holds."""

    text: str = ""
    messages: frozenset[str] = frozenset()

    def with_tail(self, tail: Tail) -> Behind:
        return Behind(f"{self.text}\n{tail.text}", self.messages | tail.whole)


def compacted(
    messages: Sequence[Message],
    budget_tokens: int,
    tail_tokens: int = 0,
    *,
    tools: Tools | None = None,
    pins: Sequence[str] = (),
    shares: Shares = Shares(),
) -> CompactedText:
    """The whole compacted view of some messages: at most `budget_tokens`, and a raw tail of `tail_tokens` behind it."""
    extractor = Extractor(tools or Tools())
    memory = Memory().absorb(extractor.extract(message) for message in messages)
    outer = (
        raw_tail(messages, tail_tokens * UNITS_PER_TOKEN) if tail_tokens > 0 else Tail("", frozenset(), len(messages))
    )
    done = render(
        memory,
        budget_tokens,
        Behind().with_tail(outer),
        messages=messages[: outer.first] if tail_tokens <= 0 else (),
        pins=pins,
        shares=shares,
    )
    if not outer.text:
        return done
    text = f"{done.text}\n\n## The latest messages, word for word\n{outer.text}"
    return CompactedText(
        text, base_tokens(text), (*done.kept, {"section": "raw tail", "messages": sorted(outer.whole)}), done.dropped
    )


def render(
    memory: Memory,
    budget_tokens: int,
    behind: Behind = Behind(),
    *,
    messages: Sequence[Message] = (),
    pins: Iterable[str] = (),
    shares: Shares = Shares(),
) -> CompactedText:
    """A memory as text within a budget. `messages`, when given, end in a raw tail inside of it."""
    sheet = Sheet(max(0, budget_tokens) * UNITS_PER_TOKEN)
    whole = sheet.units
    pinned = "\n".join(pins)
    if pinned:
        sheet.put("pins", 1, "Pinned by the user, word for word", pinned)
    if sheet.units > 3 * len(HEAD):
        sheet.put("head", 0, "", HEAD)
    files = lists.file_trail(memory)
    lists.must(sheet, memory, files, whole)
    if messages:
        inner = raw_tail(messages, int(min(shares.tail * whole, sheet.units * 0.6)) - 60)
        if sheet.put("raw tail", 90, "The latest messages, word for word", inner.text):
            sheet.kept.append({"section": "raw tail", "messages": sorted(inner.whole)})
            behind = behind.with_tail(inner)
    lists.words(sheet, memory, behind.messages, (shares.first, shares.last, shares.words), whole)
    lists.work(sheet, memory, behind.messages, shares.work * whole)
    lists.commands(sheet, memory, behind.text, shares.commands * whole)
    lists.read(sheet, memory, files, shares.read * whole)
    lists.errors(sheet, memory, shares.errors * whole)
    lists.decisions(sheet, memory, behind.messages, shares.decisions * whole)
    _facts(sheet, memory, behind, shares)
    text = sheet.text()
    return CompactedText(text, base_tokens(text), tuple(sheet.kept), sheet.dropped)


def _facts(sheet: Sheet, memory: Memory, behind: Behind, shares: Shares) -> None:
    """Evidence and names share what is left: evidence first, then the names that nothing showed yet."""
    weights = memory.weights()
    full = [one.text for one in sheet.sections if one.name in ("words", "work", "raw tail", "pins", "decisions")]
    shown = frozenset(facts_in("\n".join((*full, behind.text))))
    listed = frozenset(facts_in(sheet.text()))
    goal = goal_words(
        [*(one.text for one in memory.words[-1:]), *(t.text for t in memory.todos.values() if t.status != "done")]
    )
    lasts = {key: fact.last for key, fact in memory.facts.items()}
    wanted = Wanted(weights, lasts, listed, shown, goal)
    cover = Cover(memory.pieces, wanted)
    room = sheet.units - 160
    allowed = int(room * shares.names)
    spare = cover.take(room - allowed)
    for _ in range(2):  # what the names don't need is handed back to the evidence
        body, sources = lists.excerpts(cover.chosen, memory.titles)
        shownow = listed | shown | frozenset(facts_in(body))
        needed = lists.names_units(weights, shownow)
        more = allowed + spare - needed
        if more < 200:
            break
        spare, allowed = cover.take(more), needed
    body, sources = lists.excerpts(cover.chosen, memory.titles)
    if sheet.put("evidence", 80, "Excerpts, word for word (… marks a gap)", clip(body, max(0, sheet.units - 80))):
        sheet.kept += [{"section": "evidence", "id": source} for source in sources]
    known = set(sources)
    others = list(dict.fromkeys(piece.source for piece in memory.pieces if piece.source not in known))
    if others:
        sheet.dropped["evidence"] = {"count": len(others), "recall": others[-20:]}
    lists.names(sheet, weights, lasts, listed | shown | frozenset(facts_in(body)))
