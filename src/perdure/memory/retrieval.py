"""Which memories matter now: a ranking by what they say, how new and how used they are (MEM-4)."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nlargest

from perdure.memory.asked import AskedQuestion, AskedWeights, Name, asked_question, said_names, telling_names
from perdure.memory.files import Topic
from perdure.memory.scope import EVERYWHERE, MemoryScope, Work
from perdure.memory.trust.labels import TrustLevel
from perdure.text.scoring import Counts, IndexField, TextIndex, widen_terms
from perdure.text.synonyms import similar_terms
from perdure.text.words import SELF, STOP_WORDS, asked_terms, plain_words, terms

MEMORY_FIELDS = {
    "name": IndexField(2.0, 0.2),
    "description": IndexField(1.5, 0.2),
    "keywords": IndexField(2.0, 0.0),
    "file": IndexField(1.5, 0.0),
    "type": IndexField(1.0, 0.0),
    "hook": IndexField(0.5, 0.2),  # its line in MEMORY.md
    "body": IndexField(0.4, 0.5),
}
BACKGROUND = 50  # memories thought beside the real ones, so that a directory of three has telling words, too
TURN_FLOOR = 0.25  # unasked: rather nothing than noise
SEARCH_FLOOR = 0.1  # somebody asked for it
TELLING_TERMS = 6  # of a question, the rarest: what a memory could hold at best is reckoned by them
LEAST_TERMS = 2.0  # one word alone promises little: `hello` isn't a question about memories that say it
SCORE_OF_A_TERM = 1.3  # of a term that stands in the name or the description
RECENCY_SHARE = 0.1  # a memory of today gains so much over an old one
RECENCY_DAYS = 30.0
USE_SHARE = 0.03  # for each doubling of how often it was used, up to …
USE_DOUBLINGS = 5
TYPE_SHARES: Mapping[str | None, float] = {"feedback": 0.05, "user": 0.05}  # they hold for all work
DAY_SECONDS = 86_400.0
MOST_WORDS = 5  # named in a reason
ASKED_SHARE = 0.2  # of the best one's score: what fits so much less isn't meant
UNASKED_SHARE = 0.5
MOST_NAMED = 50  # of the best are looked at for their names
NAMED_SCORE = 0.5  # of what is possible: at least, for a memory that is named, and needed beside it

_WARNS = re.compile(
    r"\b(?:warn\w*|gotchas?|caveats?|caution|careful|beware|pitfalls?|traps?|danger\w*|never|avoid|broken?|breaks?|fails?"
    r"|failure|bugs?|known issues?|workarounds?|limitations?|don'?t|do not|must not|hangs?|crash\w*|deprecated)\b"
    r"|⚠|注意|警告",
    re.IGNORECASE,
)
_TOOL_PART = re.compile(r"__|[\s./:]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCard:
    """What is known of a memory without its body. `modified` is in seconds since the epoch, `uses` counts recalls.

    `supersedes` are those of the memories that it names that it may stand in the place of (`may_supersede`).
    """

    file: str
    name: str
    description: str = ""
    type: str | None = None
    keywords: tuple[str, ...] = ()
    modified: float = 0.0
    size: int = 0
    problems: tuple[str, ...] = ()
    supersedes: tuple[str, ...] = ()
    is_pinned: bool = False
    scope: MemoryScope = EVERYWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryQuery:
    """What is asked, and what decides beside the words.

    `shown` holds what this session saw of a memory (`modified` of it then): it isn't shown again unless it changed.
    `tools` were used in the last turns: notes on how to use them are left out, warnings are not. `now` in seconds.
    `has_pins`: pinned memories come first, whatever is asked. `work`: only memories that hold for it; None, as where a
    person searches: all. `needs_paths`: only memories that are for some files. `is_unasked`: nobody asked for memories,
    so that none is better than one that hardly fits. `by_meaning`: nearness in meaning counts as well, where something
    can tell it. `common` are terms said all the time in this session (`memory.asked.common_terms`).
    """

    query: str
    limit: int = 5
    floor: float = TURN_FLOOR
    shown: Mapping[str, float] = field(default_factory=dict)
    tools: Collection[str] = ()
    uses: Mapping[str, int] = field(default_factory=dict)
    now: float | None = None
    has_pins: bool = False
    work: Work | None = None
    needs_paths: bool = False
    is_unasked: bool = False
    by_meaning: bool = False
    common: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class RankedMemory:
    """A memory that matters; `score` is 0 to 1 and a little more, `why` is a line for people."""

    card: MemoryCard
    score: float
    why: str


def empty_index() -> TextIndex:
    """An index for memories, with none in it."""
    return TextIndex(MEMORY_FIELDS, BACKGROUND)


def counts_of(topic: Topic, hook: str = "") -> Counts:
    """What the index takes of a memory: bodies as well, though only descriptions are shown in lists.

    `hook` is what the line of `MEMORY.md` says of it: other words for the same, more often than not.
    """
    file = topic.file.removesuffix(".md")
    return {
        "hook": terms(hook),
        "name": terms(topic.name),
        "description": terms(topic.description) if topic.has_front_matter else Counter(),  # else it is the first line
        "keywords": terms(" ".join(topic.keywords)),
        "file": terms(re.sub(r"[_\-/.]+", " ", file)),
        "type": Counter({SELF: 1}) if topic.type == "user" else Counter(),
        "body": terms(topic.body),
    }


def rank_memories(index: TextIndex, cards: Mapping[str, MemoryCard], wanted: MemoryQuery) -> tuple[RankedMemory, ...]:
    """The memories for a question, best first, at most `limit`; none when nothing is above the floor.

    Where one that was superseded fits, the one that holds now stands in its place (MEM-14).
    """
    if wanted.needs_paths and not any(card.scope.paths for card in cards.values()):
        return ()
    held = current_memories(cards, wanted.work)
    pinned = [card for card in cards.values() if wanted.has_pins and card.is_pinned and card.file not in held]
    first = [RankedMemory(card, 1.0, "pinned") for card in pinned if not is_left_out(card, wanted)][: wanted.limit]
    asked = asked_question(index, wanted.query)
    if not asked.terms:
        return tuple(first)
    found: dict[str, float] = dict.fromkeys((one.card.file for one in first), 0.0)
    scores = index.scores(widen_terms(index, asked.terms))
    possible = _possible(index, asked.terms)
    for number, score in _fitting(index, cards, asked, scores, possible, wanted):
        key = index.keys[number]
        card = cards.get(held.get(key, key)) if key is not None else None
        if card is None or is_left_out(card, wanted):
            continue
        if card.file not in found or found[card.file]:  # what is pinned stands first already
            rank = -min(1.0, score / possible) * _prior(card, wanted)
            found[card.file] = min(rank, found.get(card.file, 0.0))
    ranked = sorted((rank, file) for file, rank in found.items() if rank)
    others = (RankedMemory(cards[file], round(-rank, 4), _why(index, cards[file], wanted)) for rank, file in ranked)
    return (*first, *others)[: wanted.limit]


def _fitting(
    index: TextIndex,
    cards: Mapping[str, MemoryCard],
    asked: AskedQuestion,
    scores: Sequence[float],
    possible: float,
    wanted: MemoryQuery,
) -> Iterator[tuple[int, float]]:
    """The numbers of those that fit, and what they score.

    Unasked, one has to hold more than a single word of many; and where memories are named, others have to fit as well.
    """

    def called(number: int) -> tuple[Name, ...]:
        card = cards.get(index.keys[number] or "")
        return telling_names(index, card.name, card.keywords, wanted.common) if card is not None else ()

    top = nlargest(MOST_NAMED, scores) or [0.0]
    least = max(wanted.floor * possible, (UNASKED_SHARE if wanted.is_unasked else ASKED_SHARE) * top[0])
    lowest = min(least, top[-1])
    near = [(number, score) for number, score in enumerate(scores) if score >= lowest and score > 0.0]
    names = said_names(index, called, asked, [number for number, score in near if score >= top[-1]])
    if names.named and wanted.is_unasked:
        least = max(least, NAMED_SCORE * possible)
    weights = AskedWeights.of(index, asked) if wanted.is_unasked else None
    for number, score in near:
        left = score - names.lost.get(number, 0.0)
        if number in names.named:
            yield number, max(score, NAMED_SCORE * possible)
        elif left >= least and (weights is None or weights.are_covered(index, number, names.taken.get(number, ()))):
            yield number, left


def current_memories(cards: Mapping[str, MemoryCard], work: Work | None = None) -> dict[str, str]:
    """Of each memory that was superseded the one that holds now, both by their files; where two claim it, the newer.

    One that doesn't hold for this work supersedes nothing there.
    """
    after: dict[str, str] = {}
    claiming = (card for card in cards.values() if card.supersedes and (work is None or card.scope.covers(work)))
    for card in sorted(claiming, key=lambda card: card.modified):
        after |= {old: card.file for old in card.supersedes if old in cards and old != card.file}
    found: dict[str, str] = {}
    for old in after:
        now, seen = after[old], {old}
        while now in after and now not in seen:
            seen.add(now)
            now = after[now]
        if now not in seen:  # in a circle nothing is the current one
            found[old] = now
    return found


@dataclass(frozen=True, slots=True)
class MemoryWriter:
    """Who wrote the file of a memory, as far as that is recorded.

    `level` is that of the word it stood on when a writer of ours left it, None where none did; `is_as_left`, whether it
    still says what that writer wrote. Else it was edited around us, and whose word it is now isn't known.
    """

    level: TrustLevel | None = None
    is_as_left: bool = False

    def __str__(self) -> str:
        who = {None: "nobody on record", TrustLevel.USER: "the user", TrustLevel.MODEL: "the assistant"}
        edited = "" if self.level is None or self.is_as_left else ", edited since by nobody on record"
        return who.get(self.level, "a tool or the web") + edited


def may_supersede(new: MemoryWriter, old: MemoryWriter, *, is_pinned: bool) -> bool:
    """Whether a memory may stand in the place of another: not of one on a more trusted word than its own (SEC-1).

    What isn't as a writer of ours left it claims nothing by that writer's word, and loses nothing of it. A person's
    editor wrote it as likely as not, so that only the user's word takes its place, or another such file where it never
    stood on more than a tool's. What is pinned gives way to the user's word alone.
    """
    if new.is_as_left and new.level == TrustLevel.USER:
        return True
    if is_pinned or (new.is_as_left and not old.is_as_left):
        return False
    claim = new.level if new.is_as_left and new.level is not None else TrustLevel.OUTSIDE
    return claim >= (old.level or TrustLevel.OUTSIDE)


def index_marks(cards: Mapping[str, MemoryCard]) -> dict[str, str]:
    """What an index has to say of files beside their lines: what superseded one, what one holds only for (MEM-14)."""
    marks = {card.file: str(card.scope) for card in cards.values() if card.scope}
    for old, now in current_memories(cards).items():
        within = f", {marks[now]}" if now in marks else ""
        marks[old] = f"superseded by {now}{within}"
    return marks


def candidates(index: TextIndex, cards: Mapping[str, MemoryCard], wanted: MemoryQuery) -> tuple[MemoryCard, ...]:
    """What a model may choose from: the best by the ranking, then the newest, at most `limit` together."""
    best = [one.card for one in rank_memories(index, cards, wanted)]
    taken = {card.file for card in best}
    if len(best) < wanted.limit:
        newest = sorted(cards.values(), key=lambda card: (-card.modified, card.file))
        taken |= current_memories(cards, wanted.work).keys()
        best += [card for card in newest if card.file not in taken and not is_left_out(card, wanted)]
    return tuple(best[: wanted.limit])


def is_left_out(card: MemoryCard, wanted: MemoryQuery) -> bool:
    """Whether a memory isn't to be shown now, however well it fits."""
    seen = wanted.shown.get(card.file)
    if seen is not None and int(card.modified) <= seen:
        return True
    is_elsewhere = wanted.work is not None and not card.scope.covers(wanted.work)
    if is_elsewhere or (wanted.needs_paths and not card.scope.paths):
        return True
    return card.type in ("reference", None) and any(_is_usage(card, tool) for tool in wanted.tools)


def _is_usage(card: MemoryCard, tool: str) -> bool:
    """Whether a memory is about how to use a tool: it names the tool, and warns of nothing."""
    about = f"{card.name} {card.description} {' '.join(card.keywords)} {card.file.replace('_', ' ')}"
    names = {part.lower() for part in _TOOL_PART.split(tool) if len(part) > 2 and part.lower() != "mcp"}
    words = set(plain_words(about.replace("_", " ")))
    held = names & words or (tool.lower() in about.lower())
    return bool(held) and not _WARNS.search(about)


def _possible(index: TextIndex, ask: Mapping[str, float]) -> float:
    """What a memory would score that holds the telling terms of the question; unknown terms count as rare ones."""
    weights = sorted((index.weight(term) or index.rare for term in ask), reverse=True)[:TELLING_TERMS]
    return max(sum(weights), LEAST_TERMS * index.rare) * SCORE_OF_A_TERM


def _prior(card: MemoryCard, wanted: MemoryQuery) -> float:
    """What speaks for a memory whatever is asked."""
    factor = 1.0 + TYPE_SHARES.get(card.type, 0.0)
    if wanted.now is not None and card.modified:
        factor += RECENCY_SHARE * 0.5 ** (max(0.0, wanted.now - card.modified) / (RECENCY_DAYS * DAY_SECONDS))
    return factor + USE_SHARE * min(USE_DOUBLINGS, math.log2(1 + wanted.uses.get(card.file, 0)))


def _why(index: TextIndex, card: MemoryCard, wanted: MemoryQuery) -> str:
    """The words of the question that a memory holds, by where, those that say most first."""
    ask = asked_terms(wanted.query)
    written = {other: word for term in ask for other, word in similar_terms(term).items()}
    for word in plain_words(wanted.query):
        written |= dict.fromkeys(terms(word), word) if word not in STOP_WORDS else {}
    head = set(terms(f"{card.name} {card.description} {' '.join(card.keywords)} {card.file.replace('_', ' ')}"))
    number = index.numbers[card.file]
    held = [t for t in index.matched(ask, number) if t.isprintable()]
    held = held or [t for t in index.matched(widen_terms(index, ask), number) if t.isprintable()]
    about, says = [t for t in held if t in head], [t for t in held if t not in head]
    parts = [
        f"{where} {', '.join(written.get(t, t) for t in some[:MOST_WORDS])}"
        for where, some in (("about", about), ("says", says))
        if some
    ]
    if SELF in ask and card.type == "user":
        parts.append("about the user")
    uses = wanted.uses.get(card.file, 0)
    return "; ".join((*parts, *((f"used {uses:,} times",) if uses > 1 else ()))) or "fits"
