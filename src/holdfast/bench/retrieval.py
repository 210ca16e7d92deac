"""How well memories, turns and sessions are found: several rankers over one file of questions (QLT-4, SPD-4).

The form of the file is described in docs/retrieval.md: `{"corpus": [items], "queries": [questions with evidence]}`.
"""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from holdfast.bench.questions import Corpus, Item, Kind, Question
from holdfast.errors import BadSetting
from holdfast.memory.retrieval.dialogue import Dialogue, Sessions, Turn, best, newness
from holdfast.memory.retrieval.index import Field, Index
from holdfast.memory.retrieval.memories import SEARCH_FLOOR, Card, Wanted, counts_of, empty_index, ranked
from holdfast.memory.retrieval.words import asked, plain_words, terms
from holdfast.memory.topics import TYPES, Topic

DEPTH: Final = 10
RANDOM_RUNS: Final = 20  # a single shuffle says little
PLAIN_FIELDS: Final = {"text": Field(1.0, 0.75)}  # as BM25 is usually set

Scores = Callable[[Question, int], Sequence[float]]
"""What each item of a group scores for a question, of which only the first so many may be found."""
Made = Callable[[Sequence[Item]], Scores]


@dataclass(frozen=True, slots=True)
class Row:
    """One ranker: shares of 1, means over questions; milliseconds of one question, and of making the index."""

    ranker: str
    questions: int
    recall_5: float
    recall_10: float
    ndcg_5: float
    ndcg_10: float
    hit_5: float
    mrr: float
    p50_ms: float
    p99_ms: float
    build_ms: float


def run(corpus: Corpus, names: Sequence[str] = ()) -> list[Row]:
    """Every ranker (or those named) over all questions. `BadSetting` for a ranker there is none of."""
    rankers = rankers_of(corpus.kind)
    unknown = [name for name in names if name not in rankers]
    if unknown:
        raise BadSetting(f"ranker {unknown[0]!r}: for {corpus.kind} there are {', '.join(rankers)}")
    return [_measured(name, rankers[name], corpus) for name in names or rankers]


def rankers_of(kind: Kind) -> dict[str, Made]:
    """The rankers that make sense for a kind of corpus; `full` is what Holdfast does."""
    common: dict[str, Made] = {
        "random": _random,
        "recency": _recency,
        "bm25": _plain(lambda text: Counter(plain_words(text))),
        "stemmed": _plain(terms),
    }
    if kind == "turns":
        return {**common, "neighbours": _neighbours, "full": _turns}
    return {**common, "full": _sessions if kind == "sessions" else _memories}


# --- rankers ---------------------------------------------------------------------------------------------------------


def _random(items: Sequence[Item]) -> Scores:
    def scores(question: Question, end: int) -> Sequence[float]:
        chance = random.Random(f"{question.id}")
        return [0.01 + chance.random() for _ in items]

    return scores


def _recency(items: Sequence[Item]) -> Scores:
    return lambda question, end: [newness(end - 1 - n) if n < end else 0.0 for n in range(len(items))]


def _plain(counted: Callable[[str], Any]) -> Made:
    def made(items: Sequence[Item]) -> Scores:
        index = Index(PLAIN_FIELDS)
        index.fill((str(n), {"text": counted(item.all_text)}) for n, item in enumerate(items))
        ask = asked if counted is terms else counted
        return lambda question, end: index.scores(ask(question.text))

    return made


def _neighbours(items: Sequence[Item]) -> Scores:
    """BM25 over each turn with the turn before and after it, all alike."""
    index = Index(PLAIN_FIELDS)
    near = [
        [
            items[at].all_text
            for at in (n - 1, n, n + 1)
            if 0 <= at < len(items) and items[at].session == items[n].session
        ]
        for n in range(len(items))
    ]
    index.fill((str(n), {"text": terms("\n".join(texts))}) for n, texts in enumerate(near))
    return lambda question, end: index.scores(asked(question.text))


def _turns(items: Sequence[Item]) -> Scores:
    dialogue = Dialogue([_turn(item) for item in items])
    return lambda question, end: dialogue.scores(question.text)


def _sessions(items: Sequence[Item]) -> Scores:
    sessions = Sessions([_turn(item) for item in items])
    return lambda question, end: sessions.scores(question.text, at=end)


def _turn(item: Item) -> Turn:
    text = item.all_text if item.name or item.description else item.text
    return Turn(id=item.id, text=text, session=item.session, speaker=item.speaker, time=item.time)


def _memories(items: Sequence[Item]) -> Scores:
    index, cards, numbers = empty_index(), {}, {}
    texts = []
    for number, item in enumerate(items):
        kind = next((one for one in TYPES if one == item.type), None)
        topic = Topic(
            file=item.id,
            name=item.name,
            description=item.description,
            type=kind,
            keywords=item.keywords,
            body=item.text,
            has_front_matter=True,
        )
        texts.append((item.id, counts_of(topic)))
        cards[item.id] = Card(file=item.id, name=item.name, description=item.description, type=kind)
        numbers[item.id] = number
    index.fill(texts)

    def scores(question: Question, end: int) -> Sequence[float]:
        found = [0.0] * len(items)
        for one in ranked(index, cards, Wanted(query=question.text, limit=DEPTH, floor=SEARCH_FLOOR)):
            found[numbers[one.card.file]] = one.score
        return found

    return scores


# --- measures --------------------------------------------------------------------------------------------------------


def _measured(name: str, made: Made, corpus: Corpus) -> Row:
    sums = dict.fromkeys(("recall_5", "recall_10", "ndcg_5", "ndcg_10", "hit_5", "mrr"), 0.0)
    spent: list[float] = []
    build = 0.0
    count = 0
    for items, questions in corpus.groups():
        began = time.perf_counter()
        scores = made(items)
        build += time.perf_counter() - began
        for question in questions:
            end = corpus.end(items, question)
            runs = RANDOM_RUNS if name == "random" else 1
            for number in range(runs):
                one = msgspec.structs.replace(question, id=f"{question.id} {number}")
                began = time.perf_counter()
                places = best(scores(one, end), DEPTH, among=range(end))
                spent.append(time.perf_counter() - began)
                for key, value in measures([items[n].id for n in places], question.evidence).items():
                    sums[key] += value / runs
            count += 1
    spent.sort()
    means = {key: value / (count or 1) for key, value in sums.items()}
    return Row(
        ranker=name,
        questions=count,
        p50_ms=1000 * quantile(spent, 0.5),
        p99_ms=1000 * quantile(spent, 0.99),
        build_ms=1000 * build,
        **means,
    )


def measures(found: Sequence[str], evidence: Sequence[str]) -> dict[str, float]:
    """What one answer is worth: recall, nDCG with gains of 1, whether any is among the first five, 1 over the place."""
    wanted = set(evidence)
    hits = [one in wanted for one in found]
    first = next((n for n, hit in enumerate(hits, 1) if hit), None)
    return {
        "recall_5": sum(hits[:5]) / len(wanted),
        "recall_10": sum(hits[:10]) / len(wanted),
        "ndcg_5": _ndcg(hits[:5], len(wanted), 5),
        "ndcg_10": _ndcg(hits[:10], len(wanted), 10),
        "hit_5": float(any(hits[:5])),
        "mrr": 1 / first if first else 0.0,
    }


def _ndcg(hits: Sequence[bool], wanted: int, depth: int) -> float:
    gained = sum(1 / math.log2(n + 1) for n, hit in enumerate(hits, 1) if hit)
    return gained / sum(1 / math.log2(n + 1) for n in range(1, min(wanted, depth) + 1))


def quantile(sorted_values: Sequence[float], share: float) -> float:
    """The value below which a share of the values is; 0 without values."""
    if not sorted_values:
        return 0.0
    return sorted_values[min(len(sorted_values) - 1, int(share * len(sorted_values)))]
