"""Scoring a compacted view against the gold: what of it the same eyes find again (QLT-1)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from perdure.lab.bench.probe import (
    CONTEXT_CHARS,
    CONTEXT_WORDS,
    EditedFile,
    FactName,
    Gold,
    NeededName,
    names_in,
    places_of,
    words_around,
)

AXES: Final = (
    "facts", "far", "context", "line", "anchor", "commands", "edited",
    "user", "words", "failing", "errors", "todos", "first", "last",
)  # fmt: skip
_SHINGLE_WORDS: Final = 8
_RUN_CHARS: Final = 80
_VERBATIM: Final = 0.9  # so much of a user message must stand in the view word for word
_BEGINNING_CHARS: Final = 200  # the first and the last message may be cut behind this
_LINE_CHARS: Final = 120  # a longer line may be cut behind this
_WIDER: Final = 2  # in a view, words may stand this much farther from a fact than they did
_QUOTED: Final = re.compile(r"^[ \t>|]+", re.MULTILINE)


class KeptCount(NamedTuple):
    """So many kept, of so many."""

    kept: int
    of: int

    def plus(self, other: KeptCount) -> KeptCount:
        return KeptCount(self.kept + other.kept, self.of + other.of)

    @property
    def percent(self) -> float | None:
        return 100 * self.kept / self.of if self.of else None


@dataclass(frozen=True, slots=True)
class Score:
    """What of the gold a view kept, by axis, and which facts it lost."""

    tallies: Mapping[str, KeptCount]
    lost: tuple[NeededName, ...] = field(default=())


class ViewText:
    """A view's text as the probe looks at it. JSON escapes are read both as they stand and undone."""

    def __init__(self, text: str) -> None:
        self.text = text + "\n" + _unescaped(text) if "\\" in text else text
        self.names: set[FactName] = set(names_in(self.text))
        self.flat = flat(self.text)

    def holds_words(self, words: str) -> bool:
        """Whether 90 % of some words stand here verbatim, in runs of eight."""
        kept = self.kept_chars(words)
        return kept.kept >= _VERBATIM * kept.of

    def kept_chars(self, words: str) -> KeptCount:
        """How many characters of some words stand here in runs of eight words."""
        runs = _runs(flat(words))
        kept = runs if flat(words) in self.flat else [run for run in runs if run in self.flat]
        return KeptCount(sum(map(len, kept)), sum(map(len, runs)))

    def begins(self, words: str) -> bool:
        return flat(words)[:_BEGINNING_CHARS] in self.flat

    def holds_in_context(self, fact: NeededName) -> bool:
        """Whether the fact stands among enough of the words that it stood among in one place before."""
        for start, end in places_of(self.text, fact.name, most=40):
            here = words_around(self.text, start, end, CONTEXT_CHARS * _WIDER)
            if any(len(here & words) >= _enough(len(words)) for words in fact.settings):
                return True
        return False

    def holds_file(self, edited: EditedFile) -> bool:
        if FactName("path", edited.name) in self.names or (
            edited.is_alone and FactName("file", edited.file) in self.names
        ):
            return True
        return _stands(edited.name if not edited.is_alone else edited.file, self.text.replace("\\", "/"))

    def shows(self, line: str) -> bool:
        """Whether a line stands here, or its beginning, apart from blanks."""
        return flat(line)[:_LINE_CHARS] in self.flat

    def holds_name(self, name: str) -> bool:
        return _stands(flat(name), self.flat)


@dataclass(frozen=True, slots=True)
class GoldItem:
    """One thing that an axis asks for, as a person would name it, and whether a view holds it."""

    name: str
    is_kept: bool


def score(gold: Gold, text: str) -> Score:
    """The tallies of a view."""
    view = ViewText(text)
    tallies = {axis: _tally(items) for axis, items in items_of(gold, view).items()}
    tallies["words"] = _sum(view.kept_chars(words) for words in gold.users)
    lost = tuple(fact for fact in gold.facts if fact.name not in view.names)
    return Score({axis: tallies[axis] for axis in AXES}, lost)


def items_of(gold: Gold, view: ViewText) -> dict[str, list[GoldItem]]:
    """All that the gold asks for, by axis and in its order: every axis but `words`, which counts characters."""
    facts = [(fact, GoldItem(fact.name.key, fact.name in view.names)) for fact in gold.facts]
    return {
        "facts": [item for _, item in facts],
        "far": [item for fact, item in facts if fact.is_far],
        "context": [
            GoldItem(item.name, item.is_kept and view.holds_in_context(fact))
            for fact, item in facts
            if fact.has_context
        ],
        "line": [GoldItem(line, line in view.text) for line in gold.lines],
        "anchor": [GoldItem(line, line in view.text) for line in gold.anchors],
        "commands": [GoldItem(command, command in view.flat) for command in gold.commands],
        "edited": [GoldItem(edited.name, view.holds_file(edited)) for edited in gold.edited],
        "user": [GoldItem(words, view.holds_words(words)) for words in gold.users],
        "failing": [GoldItem(name, view.holds_name(name)) for name in gold.failing],
        "errors": [GoldItem(error, view.shows(error)) for error in gold.errors],
        "todos": [GoldItem(todo, flat(todo) in view.flat) for todo in gold.todos],
        "first": [GoldItem(words, view.begins(words)) for words in gold.users[:1]],
        "last": [GoldItem(words, view.begins(words)) for words in gold.users[-1:]],
    }


def _tally(items: Sequence[GoldItem]) -> KeptCount:
    return KeptCount(sum(item.is_kept for item in items), len(items))


def flat(text: str) -> str:
    """Text in single blanks, without marks of quotation before its lines."""
    return " ".join(_QUOTED.sub("", text).split())


def _runs(words: str) -> list[str]:
    """Some words in runs of eight; where a script has no blanks, in runs of so many characters."""
    parts = words.split(" ")
    runs = [" ".join(parts[at : at + _SHINGLE_WORDS]) for at in range(0, len(parts), _SHINGLE_WORDS)]
    return [run[at : at + _RUN_CHARS] for run in runs for at in range(0, len(run), _RUN_CHARS)]


def _sum(tallies: Iterable[KeptCount]) -> KeptCount:
    total = KeptCount(0, 0)
    for tally in tallies:
        total = total.plus(tally)
    return total


def _enough(words: int) -> int:
    """At least 3 to 5 of the words: half of them within these bounds."""
    least, most = CONTEXT_WORDS
    return min(most, max(least, words // 2))


def _stands(name: str, text: str) -> bool:
    """Whether a name stands in a text by itself, not inside a longer one."""
    return re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text) is not None


def _unescaped(text: str) -> str:
    return text.replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"').replace("\\\\", "\\")
