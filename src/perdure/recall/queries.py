"""Looking for what was said, and how much of it is given back (RCL-1)."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from perdure.errors import PerdureError
from perdure.recall.originals import Original
from perdure.text.patterns import compile_pattern
from perdure.text.stems import stem
from perdure.text.words import STOP_WORDS, asked_terms, folded

MAX_TERMS = 32  # of one query; what goes beyond is left out
MAX_WORDS = 64  # of all its terms together: a page that was pasted is found by its beginning
SNIPPET_CHARS = 240

_UNSPACED = "\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7af\U00020000-\U0003ffff"
_EACH_UNSPACED = re.compile(f"([{_UNSPACED}])")
_EACH_SPACED = re.compile(f" ([{_UNSPACED}]) ")
_WORD = re.compile(f"[{_UNSPACED}]|[^\\W_{_UNSPACED}]+")
_NAME = re.compile(r"[^\W_][_/\\.:=<>(){}\[\]#@*-]+[^\W_]|[a-z0-9][A-Z]|\d[A-Za-z]|[A-Za-z]\d")
ASKS = re.compile(
    r"\s*(?:who|whom|whose|what|which|when|where|why|how|is|are|was|were|do|does|did|has|have|had|can|could|would|should"
    r"|tell me|show me|remind me)\b",
    re.I,
)
_QUOTED_QUESTION = re.compile(r'\s*"([^"]*[?？]\s*)"\s*')
_CHUNK = re.compile(r'"([^"]*)"|(\S+)')
_CAMEL = re.compile(r"\b[A-Za-z][A-Za-z0-9]*?(?:[a-z0-9][A-Z]|[A-Z][A-Z][a-z])[A-Za-z0-9]*")
_CAMEL_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


@dataclass(frozen=True, slots=True)
class QueryTerm:
    """A part of a query: words that stand together."""

    written: str
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BestLine:
    """Where a text fits best: the line (from 1), where that line starts (characters), and what it says."""

    line: int
    offset: int
    snippet: str


def terms_of(query: str) -> tuple[QueryTerm, ...]:
    """The terms of a query, each once, in its order; of a long query those at its beginning."""
    found: dict[tuple[str, ...], QueryTerm] = {}
    room = MAX_WORDS
    for quoted, bare in _CHUNK.findall(unquoted_question(query)):
        words = tuple(words_of(quoted or bare))
        if not words or words in found:
            continue
        if not room or len(found) == MAX_TERMS:
            break
        found[words] = QueryTerm(quoted or bare, words[:room])
        room -= len(words[:room])
    return tuple(found.values())


def unquoted_question(query: str) -> str:
    """The question that a query is, without the quotes around the whole of it."""
    found = _QUOTED_QUESTION.fullmatch(query)
    return found[1] if found else query


def words_of(text: str) -> list[str]:
    """The words of a text, without case and accents."""
    return _WORD.findall(folded(text))


def space_unspaced_scripts(text: str) -> str:
    """The text with blanks around each character of a script that has none between its words."""
    return text if text.isascii() else _EACH_UNSPACED.sub(r" \1 ", text)


def join_unspaced_scripts(text: str) -> str:
    """The text that was spaced by `space_unspaced_scripts`, as it was."""
    return text if text.isascii() else _EACH_SPACED.sub(r"\1", text)


def camel_parts(text: str) -> str:
    """The parts of every camelCase name in a text, each name once."""
    names = dict.fromkeys(_CAMEL.findall(text))
    return " . ".join(" ".join(_CAMEL_PART.findall(name)) for name in names)


IN_WORDS = 3  # plain words make a question of what begins like one
UNSPACED_WORDS = 5  # characters of a script without blanks in a row are no word any more


def is_in_words(query: str, terms: Sequence[QueryTerm]) -> bool:
    """Whether somebody asks in words, whatever these are in the text that answers; else they list what stands there."""
    query = unquoted_question(query)
    if '"' in query or not asked_terms(query):
        return False
    plain = [term.words for term in terms if not _is_name(term)]
    unspaced = max((sum(_EACH_UNSPACED.fullmatch(word) is not None for word in words) for words in plain), default=0)
    if unspaced >= UNSPACED_WORDS:
        return True
    return sum(map(len, plain)) >= IN_WORDS and bool("?" in query or ASKS.match(query))


def terms_apart(terms: Iterable[QueryTerm]) -> tuple[QueryTerm, ...]:
    """What a question in words is looked for by: its names, its words without those that say nothing, and each two
    neighbouring characters of scripts without blanks."""
    found: dict[tuple[str, ...], QueryTerm] = {}
    for term in terms:
        if _is_name(term):
            found.setdefault(term.words, term)
        else:
            for run in _runs(term.words):
                found.setdefault(run, QueryTerm("".join(run), run))
    telling = [term for run, term in found.items() if len(run) > 1 or run[0] not in STOP_WORDS]
    return tuple(telling or found.values())[:MAX_TERMS]


def _is_name(term: QueryTerm) -> bool:
    return _NAME.search(term.written) is not None


def _runs(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for number, word in enumerate(words):
        if not _EACH_UNSPACED.fullmatch(word):
            yield (word,)
        elif number + 1 < len(words) and _EACH_UNSPACED.fullmatch(words[number + 1]):
            yield (word, words[number + 1])
        elif number == 0 or not _EACH_UNSPACED.fullmatch(words[number - 1]):
            yield (word,)


# --- fitting ----------------------------------------------------------------------------------------------------------

# Of texts that a query fits equally well, the one that is about little else goes first, and the newest.
_FOCUS = 0.8
_AS_WRITTEN = 0.6
_NEWNESS = 0.1


def weighted_score(score: float, *, coverage: float, newness: float) -> float:
    """A score by words, with what else counts: the share of the text that was asked for, its age (0 to 1, newest 1)."""
    return score * (1 + _FOCUS * min(1.0, coverage)) * (1 + _NEWNESS * newness)


def verbatim(text: str, terms: Sequence[QueryTerm]) -> float:
    """What a text gains by holding the terms just as they were written, case and all."""
    return 1 + _AS_WRITTEN * sum(term.written in text for term in terms) / (len(terms) or 1)


def stems_of(text: str) -> list[str]:
    """The stems of a text's words, and of the parts of its camelCase names."""
    return [stem(word) for word in words_of(f"{text}\n{camel_parts(text)}")]


@dataclass(frozen=True, slots=True)
class CountedWords:
    """Of some texts how often each holds each term, how many words it has, and how many different ones."""

    counts: Sequence[Sequence[int]]
    lengths: Sequence[int]
    different: Sequence[int]

    @classmethod
    def of(cls, texts: Sequence[str], terms: Sequence[QueryTerm]) -> CountedWords:
        """Counted by stems; a term of several words is a phrase."""
        folded_texts = [stems_of(text) for text in texts]
        phrases = [" ".join(stem(word) for word in term.words) for term in terms]
        joined = [f" {' '.join(words)} " for words in folded_texts]
        counts = [[text.count(f" {phrase} ") for phrase in phrases] for text in joined]
        return cls(counts, list(map(len, folded_texts)), [len(set(words)) for words in folded_texts])

    @property
    def holding(self) -> list[int]:
        """How many texts hold each term."""
        return [sum(1 for count in column if count) for column in zip(*self.counts, strict=True)]

    def scores(self, *, holding: Sequence[int] = (), total: int = 0) -> list[tuple[float, int]]:
        """BM25 and the number of different words, for each text: the ranking of a search without an index.

        Where the texts are only those of many that an index found, `holding` says how many hold each term, of `total`.
        """
        average = sum(self.lengths) / (len(self.lengths) or 1) or 1
        weights = [term_weight(holds, total or len(self.lengths)) for holds in holding or self.holding]
        scores: list[tuple[float, int]] = []
        for row, length, different in zip(self.counts, self.lengths, self.different, strict=True):
            norm = 1.2 * (0.25 + 0.75 * length / average)
            score = sum(w * n * 2.2 / (n + norm) for w, n in zip(weights, row, strict=True) if n)
            scores.append((score, different))
        return scores


def term_weight(holds: int, total: int) -> float:
    """How much a term says that stands in so many of all texts."""
    return max(1e-6, math.log(1 + (total - holds + 0.5) / (holds + 0.5)))


# --- showing ----------------------------------------------------------------------------------------------------------


def best_spot(text: str, terms: Iterable[QueryTerm]) -> BestLine:
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
    return BestLine(best + 1, offset, _snippet(lines, best, _column(low[best], wanted)))


def _column(line: str, wanted: Sequence[re.Pattern[str]]) -> int:
    """Where in a line the terms stand together, the rarest counting most: a line of JSON may hold a whole file."""
    found = sorted((match.start(), n) for n, pattern in enumerate(wanted) for match in pattern.finditer(line))
    counts = Counter(n for _, n in found)
    near, seen, weight, best, column = 0, Counter[int](), 0.0, 0.0, 0
    for at, n in found:
        seen[n] += 1
        weight += 1 / counts[n] if seen[n] == 1 else 0
        while at - found[near][0] > SNIPPET_CHARS // 2:
            gone = found[near][1]
            seen[gone] -= 1
            weight -= 1 / counts[gone] if not seen[gone] else 0
            near += 1
        if weight > best + 1e-9:
            best, column = weight, found[near][0]
    return column


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


RECALL_TOOL = "recall"
LIMIT_CHARS = 20_000  # below every tool's limit for a result (TURN-2)
MATCH_CHARS = 400  # of one matching line
_RANGE = re.compile(r"\s*(\d{1,12})\s*(?:(-|\.\.|:|,)\s*(\d{1,12})?\s*)?")


class BadRecall(PerdureError):
    """What was asked for can't be given; the message says what can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallRequest:
    """What a recall asks for: an id, and a part of what it stands for; without one, its beginning."""

    id: str
    lines: tuple[int, int | None] | None = None
    chars: tuple[int, int | None] | None = None
    pattern: str | None = None
    limit_chars: int = LIMIT_CHARS


@dataclass(frozen=True, slots=True)
class RecalledText:
    """What a recall gives: exact text (`body`), where it stands in the whole, and what to ask for the rest.

    `lines` and `chars` are the ranges that `body` covers; None for matching lines, which `matches` counts.
    """

    original: Original
    body: str
    total_lines: int
    lines: tuple[int, int] | None = None
    chars: tuple[int, int] | None = None
    matches: int | None = None
    left_out: str = ""

    @property
    def is_whole(self) -> bool:
        return self.body == self.original.text

    def framed(self) -> str:
        """The result of the tool: what this is, the text, and what is left out."""
        original = self.original
        size = f"{self.total_lines:,} lines, {len(original.text):,} characters"
        lead = f"[recalled {original.id}: {original.what}; {size}{'' if self.is_whole else '; ' + self._part()}]"
        note = f"\n[{self.left_out}]" if self.left_out else ""
        return f"{lead}\n{self.body}{note}"

    def _part(self) -> str:
        if self.matches is not None:
            return f"{self.matches:,} matching lines"
        if self.chars is not None:
            return f"characters {self.chars[0]}-{self.chars[1]}"
        return f"lines {self.lines[0]}-{self.lines[1]}" if self.lines else "nothing of it"


def range_of(text: str, *, what: str) -> tuple[int, int | None]:
    """A range as it is written: `7`, `10-20`, `10-` (to the end)."""
    found = _RANGE.fullmatch(text)
    if found is None:
        raise BadRecall(f"{what} {text[:40]!r}: write 10-20, 10- or 7")
    first = int(found[1])
    last = first if found[2] is None else (int(found[3]) if found[3] else None)
    if first < 1 or (last is not None and last < first):
        raise BadRecall(f"{what} {text[:40]!r}: they count from 1, the first no greater than the last")
    return first, last


def recalled_part(original: Original, wanted: RecallRequest) -> RecalledText:
    """The part of an original that was asked for, as far as the limit allows."""
    text = original.text
    total = text.count("\n") + 1
    if wanted.pattern is not None:
        return _matching(original, wanted, total)
    if wanted.chars is not None:
        first, last = wanted.chars
        return _characters(original, (first, min(last or len(text), len(text))), total, wanted.limit_chars)
    first, last = wanted.lines or (1, None)
    if first > total:
        raise BadRecall(f"{original.id} has {total:,} lines: there is no line {first:,}")
    return _lines(original, (first, min(last or total, total)), total, wanted.limit_chars)


def _lines(original: Original, span: tuple[int, int], total: int, limit: int) -> RecalledText:
    first, last = span
    if (first, last) == (1, total) and len(original.text) <= limit:
        return RecalledText(original, original.text, total, lines=span)
    rows = original.text.split("\n")
    end, room = first - 1, limit
    while end < last and len(rows[end]) <= room:
        room -= len(rows[end]) + 1
        end += 1
    if end < first:  # not even one line fits
        start = sum(len(row) + 1 for row in rows[: first - 1]) + 1
        return _characters(original, (start, start + len(rows[first - 1]) - 1), total, limit)
    left = f'left out: lines {end + 1}-{last}; ask for them with lines "{end + 1}-{last}", or with a pattern'
    body = "\n".join(rows[first - 1 : end])
    return RecalledText(original, body, total, lines=(first, end), left_out=left if end < last else "")


def _characters(original: Original, span: tuple[int, int], total: int, limit: int) -> RecalledText:
    text = original.text
    first, last = span
    if first > max(1, len(text)):
        raise BadRecall(f"{original.id} has {len(text):,} characters: there is no character {first:,}")
    end = min(last, first + limit - 1)
    after = f"{end + 1}-{min(len(text), end + limit)}"
    left = f'left out: characters {end + 1}-{len(text)}; ask for them with chars "{after}", or with a pattern'
    return RecalledText(
        original, text[first - 1 : end], total, chars=(first, end), left_out=left if end < len(text) else ""
    )


def _matching(original: Original, wanted: RecallRequest, total: int) -> RecalledText:
    """Lines that match, each behind its number."""
    pattern = compile_pattern(wanted.pattern or "")
    first, last = wanted.lines or (1, None)
    found: list[str] = []
    matches, room, stopped = 0, wanted.limit_chars, 0
    for number, line in enumerate(original.text.split("\n")[first - 1 : last], first):
        span = pattern.find(line)
        if span is None:
            continue
        matches += 1
        row = f"{number}: {_around(line, span)}"
        if stopped or len(row) > room:
            stopped = stopped or number
            continue
        room -= len(row) + 1
        found.append(row)
    notes = [pattern.note] if pattern.note else []
    if stopped:
        notes.append(
            f"{matches - len(found):,} of {matches:,} matching lines left out, from line {stopped} on: "
            f'ask again with lines "{stopped}-" and the same pattern'
        )
    if not matches:
        notes.append(f"no line matches {wanted.pattern!r}")
    return RecalledText(original, "\n".join(found), total, matches=matches, left_out="; ".join(notes))


def _around(line: str, span: tuple[int, int]) -> str:
    """A line, or the part of a long one around the match."""
    if len(line) <= MATCH_CHARS:
        return line
    start = max(0, min(span[0] - MATCH_CHARS // 4, len(line) - MATCH_CHARS))
    end = start + MATCH_CHARS
    return f"{'…' if start else ''}{line[start:end]}{'…' if end < len(line) else ''} (from character {start + 1})"
