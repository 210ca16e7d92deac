"""What a question says of memories: its terms, slips mended, and the names of memories that stand in it (MEM-4).

A memory whose whole name or keyword is said is meant, however much else is said. The longest name takes its words: who
says `CI pipeline` doesn't name a memory about functional pipelines. What has a memory of its own isn't what another one
is about that mentions it; and who says nothing but a name means what is called so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from string import ascii_lowercase

from perdure.text.scoring import MOST_OF_ONE, TextIndex, widen_terms
from perdure.text.synonyms import similar_terms
from perdure.text.words import asked_terms, ordered_terms, parts_of_names

EMPTY_TERMS = frozenset({"use", "instead", "via", "back"})  # they say as little as stop words: whatever is kept is used
LEAST_MENDED = 5  # letters of a word in which a slip is looked for
MOST_MENDED = 40  # words of a question are looked at for slips
MOST_SAID = 500  # terms at the beginning of a question, and at its end, in which names are looked for
MOST_KEYWORDS = 6  # of a memory are names of it
TELLING_SHARE = 0.5  # of a rare term's weight: a word that many memories hold is no name of one
KEYWORD_SHARE = 0.6  # the same for a keyword of one word, which anybody may list
COMMON_SHARE, COMMON_LEAST = 0.2, 3  # of what was said in a session, and so many: who holds a term of it isn't meant
SHARED_NAME = 0.5  # of what a said name counts is lost to memories whose longer names hold it
UNKNOWN_SHARE = 1 / 3  # of a rare term's weight, for what no memory says
COVERED_SHARE = 0.5  # of a question has to be held by what holds a single term of it

Name = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AskedQuestion:
    """The terms that a question asks for, and those that it says in their order."""

    terms: Mapping[str, float]
    order: Name


@dataclass(frozen=True, slots=True)
class SaidNames:
    """The numbers of the memories that a question names, and what it takes from the scores of others, by number."""

    named: frozenset[int] = frozenset()
    lost: Mapping[int, float] = field(default_factory=dict)
    taken: Mapping[int, Collection[str]] = field(default_factory=dict)


def asked_question(index: TextIndex, query: str) -> AskedQuestion:
    """What is asked of the memories of an index."""
    terms = {term: float(count) for term, count in asked_terms(query).items() if term not in EMPTY_TERMS}
    order = ordered_terms(query)
    if len(order) > 2 * MOST_SAID:  # of a text that was pasted, what stands around it
        order = order[:MOST_SAID] + order[-MOST_SAID:]
    for term in parts_of_names(query):  # `MongoDB` says one thing, not three, to who knows it
        whole = [one for one in order if one != term and (one.startswith(term) or one.endswith(term))]
        if whole and all(map(index.knows, whole)):
            terms.pop(term, None)
    left = MOST_MENDED
    for at, term in enumerate(order):
        if left > 0 and _may_be_mended(index, term):
            left -= 1
            mended = mended_term(index, term)
            if not mended:
                continue
            order[at] = mended
            terms[mended] = max(terms.get(mended, 0.0), terms.pop(term, 0.0))
    return AskedQuestion(terms, tuple(order))


def mended_term(index: TextIndex, term: str) -> str:
    """The term that is meant by one that no memory holds, if there is one a slip away; else nothing."""
    if not _may_be_mended(index, term):
        return ""
    near = filter(index.knows, _one_slip_away(term))
    return max(near, key=lambda one: (index.weight(one), one), default="")


def _may_be_mended(index: TextIndex, term: str) -> bool:
    is_word = len(term) >= LEAST_MENDED and term.isascii() and term.isalpha()
    return is_word and not index.knows(term) and not any(map(index.knows, similar_terms(term)))


def _one_slip_away(term: str) -> Iterator[str]:
    """What it may have been: a letter missing, one doubled, two swapped, behind the first two and before the last.

    A letter in another's place is no slip here: too many words differ in one.
    """
    for at in range(2, len(term)):
        before, behind = term[:at], term[at:]
        if before[-1] == behind[0]:
            yield before + behind[1:]
        if len(behind) > 1:
            yield before + behind[1] + behind[0] + behind[2:]
        for letter in ascii_lowercase:
            yield before + letter + behind


def said_names(
    index: TextIndex, called: Callable[[int], tuple[Name, ...]], asked: AskedQuestion, best: Sequence[int]
) -> SaidNames:
    """The names that stand in a question, of the memories that fit it best, by number. `called`: the names of one."""
    begins: dict[str, list[int]] = {}
    for at, term in enumerate(asked.order):
        begins.setdefault(term, []).append(at)
    spans: dict[tuple[int, int], list[int]] = {}
    for number in best:
        for name in called(number):
            if len(name) > 1 or index.weight(name[0]) >= TELLING_SHARE * index.rare:
                for at in begins.get(name[0], ()):
                    if asked.order[at : at + len(name)] == name:
                        spans.setdefault((at, at + len(name)), []).append(number)
    longest = _longest(spans)
    if not longest:
        return SaidNames()
    named = frozenset(number for span in longest for number in spans[span])
    said = {asked.order[a:b] for a, b in longest}
    lost: dict[int, float] = {}
    taken: dict[int, set[str]] = {}
    for number in best:
        if number not in named:
            lost[number] = 0.0
            for name in said:
                worth = sum(_worth(index, asked, term, number) for term in name)
                has_it = any(_is_in(name, one) for one in called(number))
                lost[number] += SHARED_NAME * worth if has_it else worth
                taken.setdefault(number, set()).update(() if has_it else name)
    return SaidNames(named, lost, taken)


def _worth(index: TextIndex, asked: AskedQuestion, term: str, number: int) -> float:
    return min(MOST_OF_ONE, asked.terms.get(term, 0.0)) * index.share(term, number)


def _longest(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Those that lie within no other."""
    found = []
    reached = 0
    for span in sorted(spans, key=lambda span: (span[0], -span[1])):
        if span[1] > reached:
            found.append(span)
            reached = span[1]
    return found


def _is_in(name: Name, other: Name) -> bool:
    return any(other[at : at + len(name)] == name for at in range(len(other) - len(name) + 1))


@dataclass(frozen=True, slots=True)
class AskedWeights:
    """How much each term of a question says, and by which terms of the index it is held."""

    weights: Mapping[str, float]
    held_by: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, index: TextIndex, asked: AskedQuestion) -> AskedWeights:
        """For all memories of an index."""
        weights = {term: index.weight(term) or UNKNOWN_SHARE * index.rare for term in asked.terms}
        return cls(weights, {term: tuple(widen_terms(index, {term: 1.0})) for term in asked.terms})

    def are_covered(self, index: TextIndex, number: int, taken: Collection[str]) -> bool:
        """Whether a memory holds two terms, or most of what the question says; those `taken` by others don't count."""
        held = [
            term
            for term, by in self.held_by.items()
            if term not in taken and any(index.share(one, number) for one in by)
        ]
        return len(held) > 1 or sum(map(self.weights.__getitem__, held)) >= COVERED_SHARE * sum(self.weights.values())


def common_terms(texts: Iterable[str]) -> frozenset[str]:
    """The terms that are said again and again: as a keyword such a word tells nothing of what is asked now."""
    said = [frozenset(ordered_terms(text)) for text in texts]
    holds = Counter(chain.from_iterable(said))
    least = max(COMMON_LEAST, COMMON_SHARE * len(said))
    return frozenset(term for term, count in holds.items() if count >= least)


def telling_names(index: TextIndex, name: str, keywords: tuple[str, ...], common: Collection[str]) -> tuple[Name, ...]:
    """What a memory is called, without keywords that are ordinary words here: `test`, `build`, `config`.

    Which these are, the memories and the session tell: what several hold, or is said all the time, is no name of one.
    """
    own = names_of(name, ())
    return tuple(
        one
        for one in names_of(name, keywords)
        if len(one) > 1 or one in own or (one[0] not in common and index.weight(one[0]) >= KEYWORD_SHARE * index.rare)
    )


@lru_cache(maxsize=1 << 14)
def names_of(name: str, keywords: tuple[str, ...]) -> tuple[Name, ...]:
    """What a memory is called, in terms. Who lists more keywords than anything has names is called by its name alone:

    else one that lists every ordinary word would be meant by each question, and push out all others.
    """
    found = (tuple(ordered_terms(one)) for one in (name, *(keywords if len(keywords) <= MOST_KEYWORDS else ())))
    return tuple(dict.fromkeys(one for one in found if one))
