"""Looking for what was said: the words of a query and of a text, how well they fit, and the line to show.

Words are runs of letters and digits, without case and accents; a character of a script that is written without blanks
is a word of its own. What stands together in a query (`snake_case`, `src/view.py`, `a.b.c`, "in quotes") has to stand
together in the text; its parts can be looked for as well, those of camelCase too.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

MAX_TERMS = 32  # of one query; what goes beyond is left out
SNIPPET_CHARS = 240

_UNSPACED = "\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7af\U00020000-\U0003ffff"
_EACH_UNSPACED = re.compile(f"([{_UNSPACED}])")
_WORD = re.compile(f"[{_UNSPACED}]|[^\\W_{_UNSPACED}]+")
_CHUNK = re.compile(r'"([^"]*)"|(\S+)')
_CAMEL = re.compile(r"\b[A-Za-z][A-Za-z0-9]*?(?:[a-z0-9][A-Z]|[A-Z][A-Z][a-z])[A-Za-z0-9]*")
_CAMEL_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_ENDINGS = ("ingly", "edly", "ing", "ies", "ed", "es", "s")


@dataclass(frozen=True, slots=True)
class Term:
    """A part of a query: words that stand together."""

    written: str
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a text fits best: the line (from 1), where that line starts (characters), and what it says."""

    line: int
    offset: int
    snippet: str


def terms_of(query: str) -> tuple[Term, ...]:
    """The terms of a query, each once, in its order."""
    found: dict[tuple[str, ...], Term] = {}
    for quoted, bare in _CHUNK.findall(query):
        words = tuple(words_of(quoted or bare))
        if words:
            found.setdefault(words, Term(quoted or bare, words))
    return tuple(found.values())[:MAX_TERMS]


def words_of(text: str) -> list[str]:
    """The words of a text, folded."""
    return _WORD.findall(folded(text))


def folded(text: str) -> str:
    """Without case and accents."""
    if text.isascii():
        return text.lower()
    parts = unicodedata.normalize("NFKD", text)
    plain = "".join(c for c in parts if not unicodedata.combining(c)) if parts != text else text
    return unicodedata.normalize("NFC", plain).lower()


def spaced(text: str) -> str:
    """The text with blanks around each character of a script that has none between its words."""
    return text if text.isascii() else _EACH_UNSPACED.sub(r" \1 ", text)


def camel_parts(text: str) -> str:
    """The parts of every camelCase name in a text, each name once."""
    names = dict.fromkeys(_CAMEL.findall(text))
    return " . ".join(" ".join(_CAMEL_PART.findall(name)) for name in names)


def stem(word: str) -> str:
    """A word without a common English ending: as near to a real stemmer as a search without an index needs."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


# --- fitting ----------------------------------------------------------------------------------------------------------

# Of texts that a query fits equally well, the one that is about little else goes first, and the newest.
_FOCUS = 0.8
_AS_WRITTEN = 0.6
_NEWNESS = 0.1


def weighed(score: float, *, coverage: float, newness: float) -> float:
    """A score by words, with what else counts: the share of the text that was asked for, its age (0 to 1, newest 1)."""
    return score * (1 + _FOCUS * min(1.0, coverage)) * (1 + _NEWNESS * newness)


def verbatim(text: str, terms: Sequence[Term]) -> float:
    """What a text gains by holding the terms just as they were written, case and all."""
    return 1 + _AS_WRITTEN * sum(term.written in text for term in terms) / (len(terms) or 1)


def word_scores(texts: Sequence[str], terms: Sequence[Term]) -> list[tuple[float, int]]:
    """BM25 and the number of different words, for each text: the ranking of a search without an index."""
    folded_texts = [[stem(word) for word in words_of(f"{text}\n{camel_parts(text)}")] for text in texts]
    phrases = [" ".join(stem(word) for word in term.words) for term in terms]
    joined = [f" {' '.join(words)} " for words in folded_texts]
    counts = [[text.count(f" {phrase} ") for phrase in phrases] for text in joined]
    average = sum(map(len, folded_texts)) / (len(texts) or 1) or 1
    weights = []
    for number in range(len(phrases)):
        holds = sum(1 for row in counts if row[number])
        weights.append(max(1e-6, math.log(1 + (len(texts) - holds + 0.5) / (holds + 0.5))))
    scores = []
    for words, row in zip(folded_texts, counts, strict=True):
        norm = 1.2 * (0.25 + 0.75 * len(words) / average)
        total = sum(w * n * 2.2 / (n + norm) for w, n in zip(weights, row, strict=True) if n)
        scores.append((total, len(set(words))))
    return scores


# --- showing ----------------------------------------------------------------------------------------------------------


def best_spot(text: str, terms: Iterable[Term]) -> Spot:
    """The line that holds the most of the terms, the rarest counting most; the first line when none does."""
    wanted = [re.compile(r"[\W_]*".join(map(re.escape, term.words))) for term in terms]
    lines = text.split("\n")
    low = [folded(line) for line in lines]
    hits = [[n for n, line in enumerate(low) if pattern.search(line)] for pattern in wanted]
    weight: Counter[int] = Counter()
    for found in hits:
        for number in found:
            weight[number] += 1 / len(found)  # type: ignore[assignment]  # a Counter counts in any number
    best = max(weight, key=lambda n: (weight[n], -n), default=0)
    offset = sum(len(line) + 1 for line in lines[:best])
    column = min((m.start() for p in wanted if (m := p.search(low[best]))), default=0)
    return Spot(best + 1, offset, _snippet(lines, best, column))


def _snippet(lines: list[str], number: int, column: int) -> str:
    """The line from near the find on, with what follows while there is room."""
    line = lines[number]
    start = 0 if column < SNIPPET_CHARS // 2 else column - SNIPPET_CHARS // 4
    shown = ("…" if start else "") + line[start:].rstrip()
    for more in lines[number + 1 : number + 4]:
        if len(shown) >= SNIPPET_CHARS:
            break
        shown += "\n" + more.rstrip()
    return shown if len(shown) <= SNIPPET_CHARS else shown[:SNIPPET_CHARS].rstrip() + "…"
