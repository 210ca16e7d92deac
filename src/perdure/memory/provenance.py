"""Whose word a text is that was made from a conversation: decided from the words, not from what a model says (MEM-10).

Information flows: whatever a model says after it read something from outside may come from there. So only two things
vouch for a line: something the user said that says the same, and what the model said before anything from outside was
in the conversation. All else derives from a tool's result. It is better to ask a person once too often.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise

from perdure.memory.changes import Origin, least_trusted
from perdure.text.frontmatter import front_matter
from perdure.text.words import plain_words, terms

SHARE = 0.6  # of a line's telling words, at least, stand in what vouches for it
_SENTENCE = re.compile(r"(?<=[.!?。！？;；])\s+|\n+")
_NEGATES = re.compile(
    r"\b(?:no|not|never|don'?t|do not|doesn'?t|isn'?t|aren'?t|won'?t|can'?t|cannot|without|avoid|stop|nor|neither"
    r"|forbid\w*)\b|n['’]t\b|不|别|勿",
    re.IGNORECASE,
)
_DATE = re.compile(r"\b\d{4}-\d\d(?:-\d\d)?\b")
_DECORATION = re.compile(r"[\s#>*\-=_`|~:.,;()\[\]]*")
# How memories are written, whatever they are about: such words vouch for nothing, and nobody has to have said them.
FRAMING = frozenset(
    t
    for word in """user users prefer prefers preferred preference preferences wants like likes asked ask project team
    reason why how apply applies application use uses used using rule always work works working role type feedback
    reference name description said says decided decision deadline memory note remember correction corrected new
    explicitly instead rather over today yesterday tomorrow week month""".split()
    for t in terms(word)
)
# Fields that only order a memory: what they may say is a word of ours.
_FIELDS = re.compile(r"(?:type|node_type|modified|updated|created|metadata)\s*:.*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class VouchedLine:
    """A line to be vouched for: its telling words, in order and as a set, and whether it says no."""

    words: tuple[str, ...]
    telling: frozenset[str]
    negates: bool

    @classmethod
    def of(cls, text: str) -> VouchedLine:
        words = _words(text)
        return cls(words, frozenset(words) - FRAMING, bool(_NEGATES.search(text)))

    def closeness(self, words: Sequence[str]) -> float:
        """The share of its pairs of neighbours that another text has as neighbours, too."""
        pairs = set(pairwise(self.words))
        return len(pairs & set(pairwise(words))) / len(pairs) if pairs else 0.0


@dataclass(frozen=True)
class WordsByOrigin:
    """What was said in a conversation, by whose word it is, each a text of its own.

    `assistant` is what the model said before anything from outside came in. `is_whole` says that nothing left the
    conversation, so that a word which isn't in `outside` didn't come from there.
    """

    user: tuple[str, ...] = ()
    assistant: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    is_whole: bool = True

    def origin(self, text: str, base: str | None = None) -> Origin:
        """The least trusted of the lines that `text` has and `base` hasn't; where nothing changed, the user's.

        More lines that go than come are an act of the model's own, which something from outside may have moved.
        """
        before, after = _lines(base or ""), _lines(text)
        known, kept = {line.strip() for line in before}, {line.strip() for line in after}
        new = [line for line in after if line.strip() not in known]
        gone = sum(line.strip() not in kept for line in before)
        removes: tuple[Origin, ...] = (("tool" if self.outside else "assistant"),) if gone > len(new) else ()
        return least_trusted((*removes, *map(self.origin_of, new))) if new or removes else "user"

    def origin_of(self, text: str) -> Origin:
        """Whose word a line is."""
        line = VouchedLine.of(text)
        if not line.telling:
            return _bare(text)
        for voice, units in (("user", self._users), ("assistant", self._assistants)):
            if any(self._vouches(unit, line) for unit in units):
                return "user" if voice == "user" else "assistant"
        return "tool"

    def _vouches(self, unit: VouchedLine, line: VouchedLine) -> bool:
        heard = frozenset(unit.words)
        rest = line.telling - heard
        if len(line.telling & heard) < SHARE * len(line.telling) or unit.negates != line.negates:
            return False
        if rest and (not self.is_whole or rest & self._outside_words):
            return False
        return self._outside_closeness(line) <= line.closeness(unit.words)

    def _outside_closeness(self, line: VouchedLine) -> float:
        """How closely something from outside says this line, with all of its telling words."""
        if not line.telling <= self._outside_words:
            return 0.0
        pairs = set(pairwise(line.words))
        return len(pairs & self._outside_pairs) / len(pairs) if pairs else 0.0

    @cached_property
    def _users(self) -> tuple[VouchedLine, ...]:
        return _units(self.user)

    @cached_property
    def _assistants(self) -> tuple[VouchedLine, ...]:
        return _units(self.assistant)

    @cached_property
    def _outside_words(self) -> frozenset[str]:
        return frozenset(word for text in self.outside for word in _words(text))

    @cached_property
    def _outside_pairs(self) -> frozenset[tuple[str, str]]:
        return frozenset(pair for text in self.outside for pair in pairwise(_words(text)))


def _bare(text: str) -> Origin:
    """Of a line without a telling word: a label such as **Why:** carries nothing; signs alone are no text of ours."""
    rest = _DATE.sub("", text)
    return "user" if _DECORATION.fullmatch(rest) or any(c.isalpha() for c in rest) else "tool"


def _units(texts: Iterable[str]) -> tuple[VouchedLine, ...]:
    """The sentences of texts, and each two that follow one another."""
    found: list[VouchedLine] = []
    for text in texts:
        sentences = [one for one in _SENTENCE.split(text) if one.strip()]
        found += [VouchedLine.of(one) for one in sentences]
        found += [VouchedLine.of(f"{one} {other}") for one, other in pairwise(sentences)]
    return tuple(found)


def _lines(text: str) -> list[str]:
    """The lines that say something: of the front matter the values, below it all but decoration."""
    front = front_matter(text)
    head = text[: front.start].split("\n") if front.is_present else []
    fields = [line for line in head if line.strip() not in ("", "---") and not _FIELDS.fullmatch(line.strip())]
    values = [re.sub(r"^\s*(?:name|description|keywords|tags)\s*:\s*", "", line) for line in fields]
    return [line for line in (*values, *front.body.split("\n")) if not _DECORATION.fullmatch(line)]


def _words(text: str) -> tuple[str, ...]:
    """The telling words of a text in their order, without endings; dates are left out, numbers aren't."""
    return tuple(term for word in plain_words(_DATE.sub(" ", text)) if (term := _term(word)))


@lru_cache(maxsize=1 << 16)
def _term(word: str) -> str:
    return next((one for one in terms(word) if one.isprintable()), "")
