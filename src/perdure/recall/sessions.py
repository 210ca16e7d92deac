"""Which earlier sessions matter to a prompt (MEM-15): by what they were for, the files they touched, and all that was
said in them.

Three rankings are brought to one scale each and added up, not fused by rank: one that says little then can't push down
what another one is sure of. Sessions that touched the files of the best gain by that.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from perdure.recall.queries import ASKS
from perdure.text.scoring import K1, IndexField, beginnings, widen_terms
from perdure.text.synonyms import similar_terms
from perdure.text.words import STOP_WORDS, asked_terms, plain_words, terms
from perdure.transcript.blocks import ServerToolUse, ToolUse
from perdure.transcript.messages import Message, spoken
from perdure.transcript.records import Record, Titled
from perdure.transcript.texts import first_words
from perdure.transcript.tool_calls.actions import NAME_CHARS, ToolTable

MOST_FILES: Final = 60  # of a session that are known of
MOST_TERMS: Final = 200  # of its prompts
MOST_WORDS: Final = 24  # of a prompt that are looked for in all that was said
MOST_SESSIONS: Final = 2_000  # that are ranked: the newest
SHOWN: Final = 5  # words and files in a reason
_PROMPT_CHARS: Final = 2_000
_FIRST_COUNTS: Final = 2  # what a session began with says what it is for
_READ, _EDITED = 0.3, 1.0  # of a file
_PATH_PARTS: Final = 2  # of a path that are its name
_NOT_IN_NAMES = re.compile(r"[^\w]+|_")

# Chosen on the histories of three public repositories (bench/sessions.py), in round numbers.
HEAD_FIELDS: Final = {"titled": IndexField(2.0, 0.4), "asked": IndexField(1.0, 0.4), "named": IndexField(2.0, 0.2)}
BODY: Final = IndexField(1.0, 0.3)
BODY_SHARE: Final = 0.8  # of what was said, beside title, prompts and files
FILES_SHARE: Final = 1.0  # of having touched the files of the best
MUCH_SHARE: Final = 0.15  # of having touched many files that others touch
TASK_RECENCY: Final = 0.3  # of a task's score; a question asks for what was said, whenever that was
BEST: Final = 10  # sessions whose files count
FLOOR: Final = 0.2  # of the best one's score: less is noise

QUESTION_MARKS: Final = ("?", "？")


class SessionCard(msgspec.Struct, omit_defaults=True):
    """What is known of a session beside all that was said in it. Terms are those of `text.words`, with their counts.

    `pieces` counts what was said; `files` holds how much each was touched, by its path within the project.
    """

    title: str = ""
    ended: float | None = None
    pieces: int = 0
    is_titled: bool = False
    asked: dict[str, int] = {}
    files: dict[str, float] = {}

    # made of the above, so that nothing has to be taken apart when somebody asks
    titled: dict[str, int] = {}
    named: dict[str, int] = {}
    sizes: tuple[int, int, int] = (0, 0, 0)

    def learn(self, records: Iterable[Record], project: str) -> None:
        """Take in what a session gained."""
        title, files = self.title, len(self.files)
        for record in records:
            if isinstance(record, Titled) and record.title:
                self.title, self.is_titled = record.title, True
            elif isinstance(record, Message) and record.origin not in ("summary", "restored", "reminder"):
                self._hear(record, project)
        if self.title != title:
            self.titled = dict(terms(self.title))
        if len(self.files) != files:
            self.named = dict(terms("\n".join(map(name_of, self.files))))
        self.measure()

    def measure(self) -> None:
        """Count how long title, prompts and names are."""
        titled, asked, named = (sum(counts.values()) for counts in _heads_of(self))
        self.sizes = (titled, asked, named)

    def _hear(self, message: Message, project: str) -> None:
        self.pieces += max(1, len(message.tool_results))
        self.ended = max(self.ended or 0.0, message.at or 0.0) or None
        if message.role == "assistant":
            for path, share in _touched(message, project):
                if path in self.files or len(self.files) < MOST_FILES:
                    self.files[path] = max(share, self.files.get(path, 0.0))
                elif share == _EDITED and (least := next((p for p, s in self.files.items() if s < share), None)):
                    del self.files[least]
                    self.files[path] = share
        elif words := spoken(message):
            if not self.title:
                self.title = first_words((message,)) or ""
            counts = _FIRST_COUNTS if not self.asked else 1
            for term in terms(words[:_PROMPT_CHARS]):
                if term in self.asked or len(self.asked) < MOST_TERMS:
                    self.asked[term] = self.asked.get(term, 0) + counts


def _touched(message: Message, project: str) -> Iterator[tuple[str, float]]:
    """The files that the calls of a message name, and how much they are touched."""
    for block in message.blocks:
        if block.type not in ("tool_use", "server_tool_use") or not isinstance(
            value := block.value, ToolUse | ServerToolUse
        ):
            continue
        try:
            arguments: Any = msgspec.json.decode(value.raw_input)
        except (msgspec.MsgspecError, RecursionError):
            continue
        action = _TOOLS.action(value.name, arguments if isinstance(arguments, dict) else {})
        for use in action.files:
            path = _within(use.path, project)
            if path and len(path) <= NAME_CHARS:
                yield path, _READ if use.kind == "read" else _EDITED


_TOOLS: Final = ToolTable()


def _within(path: str, project: str) -> str:
    """A path as it is called in the project."""
    path = path.replace("\\", "/").removeprefix("./")
    return path.removeprefix(f"{project.rstrip('/')}/") if project else path


def name_of(path: str) -> str:
    """The words of a file's name and of its folder's."""
    return _NOT_IN_NAMES.sub(" ", "/".join(path.rsplit("/", _PATH_PARTS)[-_PATH_PARTS:]))


# --- asking -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AskedSessions:
    """A prompt taken apart. `words` are those to be looked for in all that was said, each with its term."""

    prompt: str
    terms: Mapping[str, int]
    words: Mapping[str, str]

    @classmethod
    def of(cls, prompt: str) -> AskedSessions:
        """That of a text, of which only the beginning counts when it is long."""
        asked = asked_terms(prompt)
        words: dict[str, str] = {}
        for word in plain_words(prompt):
            if word in STOP_WORDS:
                continue
            for term in terms(word):
                if term in asked and term.isprintable():
                    words.setdefault(term, word)
            if len(words) >= MOST_WORDS:
                break
        return cls(prompt, asked, words)


@dataclass(frozen=True, slots=True)
class RankedSession:
    """One that matters: its number among those that were given, how much, and why."""

    number: int
    score: float
    words: tuple[str, ...]
    files: tuple[str, ...]


Held = Mapping[str, Mapping[int, float]]
"""By term: how many pieces of which sessions hold it."""


class SessionRanking:
    """How well sessions fit a prompt. They are given oldest first; `held` has the terms of `AskedSessions.words`."""

    def __init__(self, asked: AskedSessions, cards: Sequence[SessionCard], held: Held) -> None:
        self.asked, self._cards, self._held = asked, cards, held
        self._holding = _holders(cards, asked.terms)
        touching = Counter(path for card in cards for path in card.files)
        self._rarity_of = {path: math.log(1 + len(cards) / count) for path, count in touching.items()}
        self._wanted = widen_terms(self, {term: float(count) for term, count in asked.terms.items()})
        self.scores = self._scored()

    def best(self, limit: int) -> list[RankedSession]:
        """The best, best first, with the reasons."""
        highest = max(self.scores, default=0.0) or 1.0
        fitting = (n for n, x in enumerate(self.scores) if x > FLOOR * highest)
        order = sorted(fitting, key=lambda n: (-self.scores[n], -n))[:limit]
        return [RankedSession(n, round(self.scores[n] / highest, 4), self._words(n), self._paths(n)) for n in order]

    def weight(self, term: str) -> float:
        """How much it says that title, prompts or files of a session hold a term; nothing for unknown ones."""
        holding = self._holding.get(term)
        return _weight(len(holding), len(self._cards)) if holding else 0.0

    # --- the rankings

    def _scored(self) -> list[float]:
        heads, bodies = _to_one(self._heads()), _to_one(self._bodies())
        said = _to_one([head + BODY_SHARE * body for head, body in zip(heads, bodies, strict=True)])
        files = _to_one(self._files(said))
        found = [x + FILES_SHARE * y for x, y in zip(said, files, strict=True)]
        if is_question(self.asked.prompt):
            return found
        much, end = _to_one(self._much()), len(found) - 1
        more = [MUCH_SHARE * m + TASK_RECENCY * newness_score(end - n) for n, m in enumerate(much)]
        return [x + y if x else 0.0 for x, y in zip(found, more, strict=True)]

    def _heads(self) -> list[float]:
        """By title, prompts and the names of files."""
        forms = tuple(HEAD_FIELDS.values())
        sizes = [card.sizes for card in self._cards]
        averages = [_average(field) for field in zip(*sizes, strict=True)]
        found = [0.0] * len(self._cards)
        for term, wanted in self._wanted.items():
            weight = self.weight(term) * wanted
            for number in self._holding.get(term, ()):
                share = 0.0
                for counts, form, size, average in zip(
                    _heads_of(self._cards[number]), forms, sizes[number], averages, strict=True
                ):
                    if term in counts:
                        share += _share(form, counts[term], size / average)
                found[number] += weight * share * (K1 + 1) / (share + K1)
        return found

    def _bodies(self) -> list[float]:
        """By all that was said."""
        found, average = [0.0] * len(self._cards), _average(card.pieces for card in self._cards)
        for by_session in self._held.values():
            weight = _weight(len(by_session), len(self._cards))
            for number, count in by_session.items():
                share = _share(BODY, count, self._cards[number].pieces / average)
                found[number] += weight * share * (K1 + 1) / (share + K1)
        return found

    def _files(self, said: Sequence[float]) -> list[float]:
        """By the files that the best touched; a file that everybody touches says little."""
        votes: dict[str, float] = {}
        for number in sorted(range(len(said)), key=lambda n: (-said[n], -n))[:BEST]:
            files = self._cards[number].files if said[number] else {}
            spread = math.sqrt(sum(self._rarity_of[path] * share for path, share in files.items()))
            for path, share in files.items():
                votes[path] = votes.get(path, 0.0) + said[number] ** 2 * share * self._rarity_of[path] / spread
        return [sum(share * votes.get(path, 0.0) for path, share in card.files.items()) for card in self._cards]

    def _much(self) -> list[float]:
        """By how many files that others touched as well."""
        alone = math.log(1 + len(self._cards))
        return [math.log1p(sum(self._rarity_of[path] < alone for path in card.files)) for card in self._cards]

    # --- why

    def _words(self, number: int) -> tuple[str, ...]:
        written = self.asked.words
        held = {term for counts in _heads_of(self._cards[number]) for term in counts if term in self._wanted}
        held |= {term for term, by_session in self._held.items() if number in by_session}
        telling = sorted((term for term in held if term in written), key=lambda term: (-self._rarity(term), term))
        return tuple(dict.fromkeys(written[term] for term in telling))[:SHOWN]

    def _rarity(self, term: str) -> float:
        return self.weight(term) or _weight(len(self._held.get(term, ())), len(self._cards))

    def _paths(self, number: int) -> tuple[str, ...]:
        """Its files: those that the prompt names first, then those that it touched most and others didn't."""
        files = self._cards[number].files

        def named(path: str) -> float:
            return sum(self._wanted.get(term, 0.0) for term in terms(name_of(path)))

        order = sorted(files, key=lambda path: (-named(path), -files[path], -self._rarity_of[path], path))
        return tuple(order[:SHOWN])


def _holders(cards: Sequence[SessionCard], asked: Iterable[str]) -> dict[str, list[int]]:
    """Which cards hold each term that a question may be widened to."""
    possible = {term for one in asked for term in (one, *similar_terms(one), *beginnings(one))}
    found: dict[str, list[int]] = {}
    for number, card in enumerate(cards):
        for term in (possible & card.titled.keys()) | (possible & card.asked.keys()) | (possible & card.named.keys()):
            found.setdefault(term, []).append(number)
    return found


def _heads_of(card: SessionCard) -> tuple[Mapping[str, int], ...]:
    """In the order of `HEAD_FIELDS`."""
    return card.titled, card.asked, card.named


def _share(form: IndexField, count: float, size: float) -> float:
    return form.weight * count / (1 - form.length_share + form.length_share * size)


def _to_one(scores: Sequence[float]) -> list[float]:
    best = max(scores, default=0.0)
    return [x / best for x in scores] if best else list(scores)


def _weight(holds: int, total: int) -> float:
    return math.log(1 + (total - holds + 0.5) / (holds + 0.5))


def _average(sizes: Iterable[int]) -> float:
    held = [size for size in sizes if size]
    return sum(held) / len(held) if held else 1.0


def newness_score(rank: int) -> float:
    """What being the newest but so many counts, 0 to 1."""
    return 1 / (1 + rank / 10)


def is_question(prompt: str) -> bool:
    """Whether somebody wants to know something, and not to have something done."""
    return prompt.rstrip(" \"'”").endswith(QUESTION_MARKS) or ASKS.match(prompt) is not None
