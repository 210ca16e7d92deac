"""How well and how fast memories, turns and sessions are found (QLT-4, SPD-4)."""

from __future__ import annotations

import itertools
import math
import random
import re
import sqlite3
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from perdure.adapters.logs import read_log
from perdure.adapters.semantic import semantic_index, semantic_state
from perdure.errors import BadSetting, ForeignFormat
from perdure.lab.bench.searched import SearchedStore
from perdure.memory.files import TYPES, Topic
from perdure.memory.meaning import compared_text, rank_by_meaning
from perdure.memory.retrieval import SEARCH_FLOOR, MemoryCard, MemoryQuery, counts_of, empty_index, rank_memories
from perdure.ports.memory import MeaningIndex
from perdure.recall.sessions import MOST_FILES, AskedSessions, SessionCard, SessionRanking, name_of, newness_score
from perdure.recall.turns import DialogueIndex, DialogueTurn, dates
from perdure.text.scoring import IndexField, TextIndex
from perdure.text.words import asked_terms, plain_words, terms

Kind = Literal["turns", "sessions", "memories"]


class CorpusItem(msgspec.Struct, frozen=True, kw_only=True):
    """Something to be found. Only `id` and a text are needed; the rest makes it a turn, a session or a memory."""

    id: str
    text: str = ""
    session: str = ""
    speaker: str = ""
    time: str = ""
    order: float | None = None
    group: str = ""
    name: str = ""
    description: str = ""
    type: str = ""
    keywords: tuple[str, ...] = ()

    @property
    def all_text(self) -> str:
        """All that it says, as a ranker without fields takes it."""
        parts = (self.speaker, self.name, self.description, " ".join(self.keywords), self.text)
        return "\n".join(part for part in parts if part)


class CorpusQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A question and the ids of the items that answer it. `before`: only items earlier than this one's id or order."""

    text: str = msgspec.field(name="query", default="")
    evidence: tuple[str, ...] = ()
    id: str = ""
    group: str = ""
    before: str | float | None = None


class _CorpusFile(msgspec.Struct, frozen=True, kw_only=True):
    corpus: tuple[CorpusItem, ...]
    queries: tuple[CorpusQuestion, ...]
    kind: Kind | None = None


@dataclass(frozen=True, slots=True)
class Corpus:
    """Items and questions. Items with a group are found by questions of that group, those without by all."""

    kind: Kind
    items: tuple[CorpusItem, ...]
    questions: tuple[CorpusQuestion, ...]

    def groups(self) -> Iterator[tuple[Sequence[CorpusItem], Sequence[CorpusQuestion]]]:
        """The items of each group in their order, oldest first, and its questions."""
        for name in dict.fromkeys(question.group for question in self.questions):
            items = [item for item in self.items if not item.group or not name or item.group == name]
            if any(item.order is not None for item in items):
                first = {item.session: n for n, item in reversed(list(enumerate(items)))}
                place = first if self.kind == "turns" else {}  # turns may be counted within their session
                items.sort(key=lambda i: (place.get(i.session, 0), i.order if i.order is not None else float("inf")))
            elif items and all(item.time for item in items) and self.kind != "turns":
                items.sort(key=lambda item: item.time)
            yield items, [question for question in self.questions if question.group == name]

    def end(self, items: Sequence[CorpusItem], question: CorpusQuestion) -> int:
        """How many of the items a question may find: all, or those before what it names."""
        before = question.before
        if before is None:
            return len(items)
        if isinstance(before, str):
            return next((n for n, item in enumerate(items) if item.id == before), len(items))
        return sum(1 for n, item in enumerate(items) if (item.order if item.order is not None else n) < before)


def read(path: Path) -> Corpus:
    """The corpus in a file. Raises `ForeignFormat` with one line of what is wrong where, or what `read_log` raises."""
    data = read_log(path)[0]
    try:
        file = msgspec.json.decode(_plain(data), type=_CorpusFile, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError) as e:
        raise ForeignFormat(f"{path}: {e}: see docs/how/retrieval.md for the form") from None
    return checked_corpus(file, path)


def _plain(data: bytes) -> bytes:
    """The file with the other names that its fields may have."""
    value = msgspec.json.decode(data)
    if not isinstance(value, dict) or not all(isinstance(value.get(name), list) for name in ("corpus", "queries")):
        raise msgspec.DecodeError("not an object with lists corpus and queries")
    for item in value["corpus"]:
        if isinstance(item, dict):
            for name in ("id", "session", "speaker", "time", "group"):
                if item.get(name) is None:
                    item.pop(name, None)
                elif not isinstance(item[name], str):
                    item[name] = str(item[name])
            if not isinstance(item.get("order"), int | float):
                item.pop("order", None)
    for query in value["queries"]:
        if isinstance(query, dict):
            for ours, theirs in (("query", "text"), ("query", "question"), ("evidence", "evidence_ids")):
                if ours not in query and theirs in query:
                    query[ours] = query[theirs]
            evidence = query.get("evidence") or ()
            query["evidence"] = [str(one) for one in (evidence if isinstance(evidence, list | tuple) else (evidence,))]
            for name in ("id", "group"):
                if name in query:
                    query[name] = str(query[name])
    return msgspec.json.encode(value)


def checked_corpus(file: _CorpusFile, path: Path) -> Corpus:
    """The corpus of a file that says what it has to; questions without any evidence in it are left out."""
    ids = {item.id for item in file.corpus}
    if len(ids) != len(file.corpus):
        twice = next(item.id for n, item in enumerate(file.corpus) if item.id in {i.id for i in file.corpus[:n]})
        raise ForeignFormat(f"{path}: two items have the id {twice!r}: ids have to be unique in a file")
    known = []
    for number, question in enumerate(file.queries, 1):
        evidence = tuple(dict.fromkeys(one for one in question.evidence if one in ids))
        if question.text.strip() and evidence:
            identity = question.id or str(number)
            known.append(msgspec.structs.replace(question, evidence=evidence, id=identity))
    if not known:
        raise ForeignFormat(f"{path}: no question has evidence in the corpus: see docs/how/retrieval.md for the form")
    return Corpus(file.kind or _kind(file.corpus), file.corpus, tuple(known))


def _kind(items: Sequence[CorpusItem]) -> Kind:
    if any(item.session for item in items):
        return "turns"
    return "memories" if any(item.name or item.description or item.type for item in items) else "sessions"


_WORD = re.compile(r"\w+")


@dataclass(slots=True)
class SessionIndex:
    """Whole sessions, or other long texts, oldest first, ready to be asked for as the product asks for sessions.

    A text that isn't one of a session any more tells its files by their paths, and its title by its first line; each
    other line is a piece of what was said.
    """

    items: Sequence[CorpusItem]
    _cards: list[SessionCard] = field(init=False)
    _pieces: dict[str, dict[int, float]] = field(init=False)

    def __post_init__(self) -> None:
        self._cards = [_card(item) for item in self.items]
        self._pieces = {}
        for number, item in enumerate(self.items):
            for term, count in Counter(term for line in item.all_text.split("\n") for term in terms(line)).items():
                self._pieces.setdefault(term, {})[number] = float(count)
            for term in dates(item.time):
                self._pieces.setdefault(term, {})[number] = 1.0

    def scores(self, query: str, *, at: int | None = None) -> list[float]:
        """What each item scores; `at`: only items before this one may be found."""
        end = len(self.items) if at is None else min(at, len(self.items))
        asked = AskedSessions.of(query)
        pieces = {term: self._pieces.get(term, {}) for term in asked.words}
        held = {term: {n: x for n, x in by.items() if n < end} for term, by in pieces.items()}
        found = SessionRanking(asked, self._cards[:end], held).scores
        return found + [0.0] * (len(self.items) - end)


_PATH = re.compile(r"(?<![\w/.:-])(?:[\w.-]+/)+[\w-][\w.-]*\.[A-Za-z]\w{0,7}(?![\w/])")


def _card(item: CorpusItem) -> SessionCard:
    """What is known of an item beside all that it says."""
    paths = Counter(path.removeprefix("./") for path in _PATH.findall(item.text))
    files = [*(one for one in item.keywords if "/" in one or "." in one), *(path for path, _ in paths.most_common())]
    known = dict.fromkeys(dict.fromkeys(files[:MOST_FILES]), 1.0)
    title = item.name or (item.text.strip().split("\n", 1)[0][:200] if known else "")
    card = SessionCard(
        title=title,
        pieces=1 + item.all_text.count("\n"),
        asked=dict(terms(item.description)),
        files=known,
        titled=dict(terms(title)),
        named=dict(terms("\n".join(map(name_of, known)))),
    )
    card.measure()
    return card


def best_positions(scores: Sequence[float], limit: int, *, among: Iterable[int] | None = None) -> list[int]:
    """The numbers of the best, best first; of equals the earlier. Those that score nothing are none."""
    numbers = range(len(scores)) if among is None else among
    return sorted((n for n in numbers if scores[n] > 0), key=lambda n: (-scores[n], n))[:limit]


DEPTH: Final = 10
RANDOM_RUNS: Final = 20  # a single shuffle says little
PLAIN_FIELDS: Final = {"text": IndexField(1.0, 0.75)}  # as BM25 is usually set

Scores = Callable[[CorpusQuestion, int], Sequence[float]]
"""What each item of a group scores for a question, of which only the first so many may be found."""
Made = Callable[[Sequence[CorpusItem]], Scores]


@dataclass(frozen=True, slots=True)
class RetrievalRow:
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


def run(corpus: Corpus, names: Sequence[str] = ()) -> list[RetrievalRow]:
    """Every ranker (or those named) over all questions. `BadSetting` for a ranker there is none of."""
    return [row_of(name, *answers_of(name, corpus)) for name in named_rankers(corpus.kind, names)]


def named_rankers(kind: Kind, names: Sequence[str] = ()) -> Sequence[str]:
    """Those named, or all that there are for a kind of corpus. `BadSetting` for one that there isn't."""
    rankers = rankers_of(kind)
    unknown = [name for name in names if name not in rankers]
    if unknown:
        raise BadSetting(f"ranker {unknown[0]!r}: for {kind} there are {', '.join(rankers)}")
    return names or tuple(rankers)


def rankers_of(kind: Kind) -> dict[str, Made]:
    """The rankers that make sense for a kind of corpus; `full_summary` is what Perdure does."""
    common: dict[str, Made] = {
        "random": _random,
        "recency": _recency,
        "bm25": _retrieval_plain(lambda text: Counter(plain_words(text))),
        "stemmed": _retrieval_plain(terms),
        "fts5": _fts5,
    }
    if kind == "turns":
        return {**common, "neighbours": _neighbours, "full": _turns, "search": _searched}
    if kind == "sessions":
        return {**common, "full": _sessions}
    semantic: dict[str, Made] = {"semantic": _by_meaning} if semantic_state().is_there else {}
    return {**common, "full": _memories, **semantic}


# --- rankers ---------------------------------------------------------------------------------------------------------


def _random(items: Sequence[CorpusItem]) -> Scores:
    def scores(question: CorpusQuestion, end: int) -> Sequence[float]:
        chance = random.Random(f"{question.id}")
        return [0.01 + chance.random() for _ in items]

    return scores


def _recency(items: Sequence[CorpusItem]) -> Scores:
    return lambda question, end: [newness_score(end - 1 - n) if n < end else 0.0 for n in range(len(items))]


def _retrieval_plain(counted: Callable[[str], Any]) -> Made:
    def made(items: Sequence[CorpusItem]) -> Scores:
        index = TextIndex(PLAIN_FIELDS)
        index.fill((str(n), {"text": counted(item.all_text)}) for n, item in enumerate(items))
        ask = asked_terms if counted is terms else counted
        return lambda question, end: index.scores(ask(question.text))

    return made


def _fts5(items: Sequence[CorpusItem]) -> Scores:
    """SQLite's full text index with its stemmer, any word of the question, ranked by its own BM25."""
    database = sqlite3.connect(":memory:")
    database.execute("CREATE VIRTUAL TABLE texts USING fts5(text, tokenize='porter unicode61')")
    database.executemany("INSERT INTO texts (rowid, text) VALUES (?, ?)", enumerate(item.all_text for item in items))

    def scores(question: CorpusQuestion, end: int) -> Sequence[float]:
        found = [0.0] * len(items)
        words = dict.fromkeys(_WORD.findall(question.text))
        if words:
            asked = " OR ".join(f'"{word}"' for word in words)
            for number, rank in database.execute("SELECT rowid, bm25(texts) FROM texts WHERE texts MATCH ?", (asked,)):
                found[number] = max(-rank, 1e-12)  # it gives words that most texts hold next to nothing, or less
        return found

    weakref.finalize(scores, database.close)  # Python 3.13 warns of a connection that nobody closes
    return scores


def _neighbours(items: Sequence[CorpusItem]) -> Scores:
    """BM25 over each turn with the turn before and after it, all alike."""
    index = TextIndex(PLAIN_FIELDS)
    near = [
        [
            items[at].all_text
            for at in (n - 1, n, n + 1)
            if 0 <= at < len(items) and items[at].session == items[n].session
        ]
        for n in range(len(items))
    ]
    index.fill((str(n), {"text": terms("\n".join(texts))}) for n, texts in enumerate(near))
    return lambda question, end: index.scores(asked_terms(question.text))


def _turns(items: Sequence[CorpusItem]) -> Scores:
    dialogue = DialogueIndex([_turn(item) for item in items])
    return lambda question, end: dialogue.scores(question.text)


def _searched(items: Sequence[CorpusItem]) -> Scores:
    store = SearchedStore([_turn(item) for item in items])
    return lambda question, end: store.scores(question.text, limit=DEPTH if end == len(items) else len(items))


def _sessions(items: Sequence[CorpusItem]) -> Scores:
    sessions = SessionIndex(items)
    return lambda question, end: sessions.scores(question.text, at=end)


def _turn(item: CorpusItem) -> DialogueTurn:
    text = item.all_text if item.name or item.description else item.text
    return DialogueTurn(id=item.id, text=text, session=item.session, speaker=item.speaker, time=item.time)


def _by_meaning(items: Sequence[CorpusItem]) -> Scores:
    """What Perdure uses for memories with the extra `semantic`."""
    return _memories(items, meaning=semantic_index())


def _memories(items: Sequence[CorpusItem], meaning: MeaningIndex | None = None) -> Scores:
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
        cards[item.id] = MemoryCard(
            file=item.id, name=item.name, description=item.description, type=kind, keywords=item.keywords
        )
        numbers[item.id] = number
        if meaning is not None:
            meaning.put(item.id, compared_text(cards[item.id]))
    index.fill(texts)

    def scores(question: CorpusQuestion, end: int) -> Sequence[float]:
        found = [0.0] * len(items)
        wanted = MemoryQuery(query=question.text, limit=DEPTH, floor=SEARCH_FLOOR)
        near = meaning.near(question.text) if meaning is not None else {}
        for one in rank_by_meaning(index, cards, wanted, near) if near else rank_memories(index, cards, wanted):
            found[numbers[one.card.file]] = one.score
        return found

    return scores


# --- measures --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RankedAnswer:
    """What one ranker found for one question: the ids of each run, best first, what they are worth, and seconds."""

    question: CorpusQuestion
    runs: tuple[tuple[str, ...], ...]
    values: Mapping[str, float]
    spent: tuple[float, ...]


def answers_of(name: str, corpus: Corpus) -> tuple[list[RankedAnswer], float]:
    """What a ranker finds for each question, and the seconds in which it was made ready."""
    made = rankers_of(corpus.kind)[name]
    answers: list[RankedAnswer] = []
    build = 0.0
    for items, questions in corpus.groups():
        began = time.perf_counter()
        scores = made(items)
        build += time.perf_counter() - began
        for question in questions:
            end = corpus.end(items, question)
            found: list[tuple[str, ...]] = []
            spent: list[float] = []
            for number in range(RANDOM_RUNS if name == "random" else 1):
                one = msgspec.structs.replace(question, id=f"{question.id} {number}")
                began = time.perf_counter()
                places = best_positions(scores(one, end), DEPTH, among=range(end))
                spent.append(time.perf_counter() - began)
                found.append(tuple(items[n].id for n in places))
            worth = [measures(one, question.evidence) for one in found]
            values = {key: sum(one[key] for one in worth) / len(worth) for key in worth[0]}
            answers.append(RankedAnswer(question, tuple(found), values, tuple(spent)))
    return answers, build


def row_of(name: str, answers: Sequence[RankedAnswer], build: float = 0.0) -> RetrievalRow:
    """The means over some questions."""
    spent = sorted(seconds for one in answers for seconds in one.spent)
    count = len(answers) or 1
    keys = ("recall_5", "recall_10", "ndcg_5", "ndcg_10", "hit_5", "mrr")
    return RetrievalRow(
        ranker=name,
        questions=len(answers),
        p50_ms=1000 * quantile(spent, 0.5),
        p99_ms=1000 * quantile(spent, 0.99),
        build_ms=1000 * build,
        **{key: sum(one.values[key] for one in answers) / count for key in keys},
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


SIZES = (100, 1_000, 10_000, 100_000)
QUESTIONS = 60
_VOCABULARY = 30_000
_BODY_TERMS, _HEAD_TERMS = 80, 8


@dataclass(frozen=True, slots=True)
class RetrievalTiming:
    """Of one size: milliseconds of a question at the median and at the worst, and seconds to make the index."""

    memories: int
    p50_ms: float
    p99_ms: float
    build_seconds: float


def time_retrieval(sizes: Sequence[int] = SIZES, *, seed: int = 7) -> list[RetrievalTiming]:
    """Measure each size with the same questions."""
    return [_timed(size, seed) for size in sizes]


def _timed(size: int, seed: int) -> RetrievalTiming:
    chance = random.Random(seed)
    words = [f"word{_letters(n)}" for n in range(_VOCABULARY)]
    weights = list(itertools.accumulate(1 / (n + 10) for n in range(_VOCABULARY)))

    def drawn(count: int) -> list[str]:
        return chance.choices(words, cum_weights=weights, k=count)

    index = empty_index()
    cards: dict[str, MemoryCard] = {}

    def made() -> list[tuple[str, dict[str, Counter[str]]]]:
        texts = []
        for number in range(size):
            file = f"note_{number}.md"
            head = drawn(_HEAD_TERMS)
            cards[file] = MemoryCard(
                file=file, name=" ".join(head[:3]), description=" ".join(head), modified=float(number)
            )
            texts.append(
                (file, {"name": Counter(head[:3]), "description": Counter(head), "body": Counter(drawn(_BODY_TERMS))})
            )
        return texts

    texts = made()
    began = time.perf_counter()
    index.fill(texts)
    build = time.perf_counter() - began
    spent = []
    for _ in range(QUESTIONS):
        query = " ".join(drawn(chance.randrange(3, 14)))
        began = time.perf_counter()
        rank_memories(index, cards, MemoryQuery(query=query, now=float(size)))
        spent.append(1000 * (time.perf_counter() - began))
    spent.sort()
    return RetrievalTiming(size, quantile(spent, 0.5), quantile(spent, 0.99), build)


def _letters(number: int) -> str:
    """A number in letters, so that it is a word."""
    found = ""
    while True:
        number, digit = divmod(number, 20)
        found = "bcdfghjklmnpqrtvwxza"[digit] + found
        if not number:
            return found
