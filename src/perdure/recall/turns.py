"""Which of the turns of conversations answer a question (MEM-15): one ranking for turns of a line and of two pages.

What a turn says is asked for with the turns around it, its speaker and its date. How much each of these counts follows
from how long turns are, which is measured as they come and not set:

* Who says much at a time says little with each word. An answer of two pages holds most words of any question about its
  matter, so what a speaker's words count falls with the mean length of that speaker's turns.
* Where turns are short, what one says is told by those around it ("What did you paint?" "A sunset."). Where they are
  long, each tells for itself, and its neighbours only blur which one it was.
* The longer turns are, the more being long is held against one.

Of turns that say the same of the same thing, and differ in the value, the newest stands first where a question asks how
it is now.
"""

from __future__ import annotations

import math
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Final

from perdure.text.scoring import K1, Postings, widen_terms
from perdure.text.stems import stem
from perdure.text.words import COUNT, MAY, MONTHS, WHEN, asked_terms, terms

# Chosen on BEAM 100K and the first five conversations of LoCoMo (docs/how/retrieval.md); none of them is sharp.
BRIEF_CHARS: Final = 220  # whose turns are no longer than this on the whole, is heard in full
SHORT_CHARS: Final = 130  # where turns are no longer than this on the whole, neighbours count in full
LENGTH_SHARE: Final = (0.4, 0.75)  # of being long that is held against a turn: where turns are short, and where long
NEXT_SHARES: Final = (0.5, 0.3)  # of what the turn before says, and the turn after
AROUND_SHARE: Final = 0.15  # two turns away
SPEAKER_WEIGHT: Final = 2.0
DATE_WEIGHT: Final = 1.0
SESSION_SHARE: Final = 0.25  # of the best turn's score, for turns of the best session
OTHER_SPEAKER: Final = 0.9  # a turn of somebody else than a question names
ONLY_ASKS: Final = 0.85  # a turn that only asks seldom answers

ROLES: Final = frozenset({"user", "assistant", "system", "tool", "human", "ai"})  # nobody's name
COMMON: Final = 10  # turns that hold a word: from here on it counts as little as its speaker's words do …
COMMON_SHARE: Final = 0.05  # … or this share of all, if those are fewer

_HEARD_SHARE: Final = 0.1  # of all turns that a speaker has to have to be the briefest one
_LEAST_SHARE: Final = 0.03  # of a neighbour's words that is worth the work
_SPEAKER = "\x02"
_ISO = re.compile(r"(\d{4})-(\d{1,2})(?:-(\d{1,2}))?")
_YEAR = re.compile(r"\b(?:19|20)\d\d\b")
_MONTH = r"jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
_DAY = re.compile(
    rf"\b(?P<first>\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?(?P<after>(?:{_MONTH})[a-z]*)"
    rf"|\b(?P<before>(?:{_MONTH})[a-z]*)\.?\s+(?P<second>\d{{1,2}})\b"
)
LOOKED_AT: Final = 5  # of the best, among which the newest of a value is looked for
LEAST_OF_OLD: Final = 0.4  # of an older turn's score that what stands in its place has at least
TOLD_ANEW: Final = 0.3  # of what an older turn gained, for the same words, by one that tells of a change
SAID_AGAIN: Final = 0.7  # … and by one that doesn't

_VALUE = re.compile(r"\d[\d,.:]*")
_CHANGED = re.compile(
    r"\b(?:now|newly|new|recent(?:ly)?|chang\w*|updat\w*|increas\w*|decreas\w*|reduc\w*|extend\w*|mov(?:ed|ing)"
    r"|reschedul\w*|adjust\w*|instead|no longer|any ?more|switch\w*|improv\w*|rais\w*|lower\w*|upgrad\w*|renam\w*"
    r"|replac\w*|migrat\w*|postpon\w*|delay\w*|push\w*|reach\w*|grow\w*|grew|expand\w*|rose|dropp\w*|revis\w*|add\w*"
    r"|finally|actually|correct\w*)\b",
    re.I,
)
_ASKS_VALUE = re.compile(
    r"\s*(?:(?:and|so|by|at|on|in|for|from|to|of) )?(?:how (?:many|much|long|old|often|big|large|far|fast)|when"
    r"|what(?:'s)?|which|where|who)\b",
    re.I,
)
_ASKS_MORE = re.compile(  # how it was, or of several values
    r"\b(?:did|was|were|had|first|ago|originally|initially|before|used to|order|list|summar\w*|across|total|between"
    r"|both|compare|all|each|throughout|over time|sequence|history|progress\w*)\b",
    re.I,
)
_QUESTION_MARKS = ("?", "？")
_SAYS = re.compile(r"[.!。！;\n]")
_TELL_OF_THEMSELVES = frozenset({WHEN, COUNT})  # a time says when the turn was that holds it, not its neighbours


@dataclass(frozen=True, slots=True, kw_only=True)
class DialogueTurn:
    """Something that was said. `time` is an ISO date, or any text; `session` says which turns are neighbours."""

    id: str
    text: str
    session: str = ""
    speaker: str = ""
    time: str = ""


@dataclass(slots=True)
class TurnLengths:
    """How long turns are, in characters: of each speaker, and on the whole."""

    turns: Counter[str] = field(default_factory=Counter)  # of each speaker
    chars: Counter[str] = field(default_factory=Counter)
    logs: float = 0.0

    def add(self, speaker: str, chars: int) -> None:
        """One turn more."""
        self.turns[speaker] += 1
        self.chars[speaker] += chars
        self.logs += math.log(max(1, chars))

    @property
    def mean(self) -> float:
        """How long a turn is in the mean."""
        return max(1.0, self.chars.total() / max(1, self.turns.total()))

    @property
    def shortness(self) -> float:
        """1 where turns are short, as in chats between people, and the nearer to 0 the longer they are."""
        return min(1.0, SHORT_CHARS / math.exp(self.logs / max(1, self.turns.total())))

    @property
    def length_share(self) -> float:
        """How much being long is held against a turn (BM25's b)."""
        short, long = LENGTH_SHARE
        return long - (long - short) * self.shortness

    def voices(self) -> dict[str, float]:
        """What a word of each speaker counts: less of those who say much at a time, 1 of the briefest."""
        means = {speaker: chars / self.turns[speaker] for speaker, chars in self.chars.items()}
        least = _HEARD_SHARE * self.turns.total()
        brief = max(BRIEF_CHARS, min((m for s, m in means.items() if self.turns[s] >= least), default=0.0))
        return {speaker: min(1.0, brief / max(1.0, mean)) for speaker, mean in means.items()}


@dataclass(frozen=True, slots=True)
class BeyondTurns:
    """What is known of all turns where those at hand are but the likeliest of them: how many there are, how many hold
    a term, and how long they are."""

    total: int
    holds: Mapping[str, int]
    lengths: TurnLengths


@dataclass(slots=True)
class DialogueIndex:
    """The turns of conversations, ready to be asked for. They come one by one, those of a session in their order."""

    turns: list[DialogueTurn]
    beyond: BeyondTurns | None = None
    lengths: TurnLengths = field(default_factory=TurnLengths)
    _said: dict[str, Postings] = field(default_factory=dict)
    _marked: dict[str, dict[int, float]] = field(default_factory=dict)  # speakers and dates
    _before: list[int] = field(default_factory=list)  # the turn before within the session, -1: none
    _after: list[int] = field(default_factory=list)
    _factors: list[float] = field(default_factory=list)
    _sessions: dict[str, int] = field(default_factory=dict)
    _session_of: list[int] = field(default_factory=list)
    _last: list[int] = field(default_factory=list)  # of each session
    _speakers: set[str] = field(default_factory=set)
    _norms: list[float] = field(default_factory=list)
    _voices: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        given, self.turns = self.turns, []
        for turn in given:
            self.add(turn)

    def __len__(self) -> int:
        return len(self.turns)

    def add(self, turn: DialogueTurn, counts: Mapping[str, int] | None = None, *, is_next: bool = True) -> None:
        """The next turn of its session, without `is_next` not right behind the one before.

        `counts`: of the terms that will be asked for, where they were counted already.
        """
        number = len(self.turns)
        self.turns.append(turn)
        self.lengths.add(turn.speaker, len(turn.text))
        self._norms = []
        session = self._sessions.setdefault(turn.session, len(self._sessions))
        self._session_of.append(session)
        if session == len(self._last):
            self._last.append(-1)
        before = self._last[session] if is_next else -1
        self._before.append(before)
        self._after.append(-1)
        if before >= 0:
            self._after[before] = number
        self._last[session] = number
        self._factors.append(ONLY_ASKS if only_asks(turn.text) else 1.0)
        for term, count in (terms(turn.text) if counts is None else counts).items():
            held = self._said.get(term)
            if held is None:
                held = self._said[term] = (array("I"), array("f"))
            held[0].append(number)
            held[1].append(count)
        for name in terms(turn.speaker) if turn.speaker.lower() not in ROLES else ():
            self._speakers.add(name)
            self._marked.setdefault(_SPEAKER + name, {})[number] = SPEAKER_WEIGHT
        for term in dates(turn.time):
            self._marked.setdefault(term, {})[number] = DATE_WEIGHT

    # --- asking

    def scores(self, query: str) -> list[float]:
        """What each turn scores, in their order; 0 for those that neither share anything with the question, nor those
        next to them."""
        wanted = {_SPEAKER + t if t in self._speakers else t: float(n) for t, n in asked_terms(query).items()}
        total, sessions = [0.0] * len(self.turns), [0.0] * len(self._sessions)
        gained_by: dict[str, dict[int, float]] = {}
        for term, count in widen_terms(self, wanted).items():
            best: dict[int, float] = {}
            gained_by[term] = self._gains(term, count)
            for number, gained in gained_by[term].items():
                total[number] += gained
                session = self._session_of[number]
                if gained > best.get(session, 0.0):
                    best[session] = gained
            for session, gained in best.items():
                sessions[session] += gained
        total = [x * f for x, f in zip(total, self._factors, strict=True)]
        if named := {n for term in wanted if term.startswith(_SPEAKER) for n in self._marked.get(term, ())}:
            total = [x if n in named else OTHER_SPEAKER * x for n, x in enumerate(total)]
        share = SESSION_SHARE * max(total, default=0.0) / (max(sessions, default=0.0) or 1.0)
        found = [x + share * sessions[n] if x else 0.0 for x, n in zip(total, self._session_of, strict=True)]
        if asks_for_now(query):
            self._newest_first(found, gained_by)
        return found

    def _newest_first(self, scores: list[float], gained_by: Mapping[str, Mapping[int, float]]) -> None:
        """Raise what says anew what an older turn near the top said, with another value, right above that."""
        top = sorted((n for n in range(len(scores)) if scores[n] > 0), key=lambda n: (-scores[n], n))[:LOOKED_AT]
        values = {n: set(_VALUE.findall(self.turns[n].text)) for n in top}
        fit = {n: scores[n] for n in top}
        for new in sorted(top):
            share = TOLD_ANEW if _CHANGED.search(self.turns[new].text) else SAID_AGAIN
            for old in sorted(top, key=lambda n: -scores[n]):
                if scores[old] <= scores[new]:
                    break
                if (
                    old < new
                    and self.turns[old].speaker == self.turns[new].speaker
                    and values[old]
                    and values[new] - values[old]
                    and fit[new] >= LEAST_OF_OLD * fit[old]
                    and _common(gained_by.values(), old, new) >= share
                ):
                    scores[new] = scores[old] * (1 + 1e-6 * fit[new] / fit[old])
                    break

    def weight(self, term: str) -> float:
        """How much it says that a turn holds this term; nothing for unknown ones."""
        holds = len(self._said[term][0]) if term in self._said else 0
        if self.beyond is not None:
            holds = self.beyond.holds.get(term, holds)
        return self._weight(holds + len(self._marked.get(term, ())))

    def _weight(self, holds: float) -> float:
        total = len(self.turns) if self.beyond is None else self.beyond.total
        return math.log(1 + (max(0.0, total - holds) + 0.5) / (holds + 0.5)) if holds else 0.0

    def _gains(self, term: str, count: float) -> dict[int, float]:
        """What the turns gain that hold a term, or stand near one that does."""
        held = dict(self._marked.get(term, ()))
        said = self._said.get(term)
        own: list[tuple[int, float]] = []
        known = None if self.beyond is None else self.beyond.holds.get(term)
        if said is not None:
            norms, voices = self._measured(known or len(said[0]))
            turns = self.turns
            own = [(n, times * voices.get(turns[n].speaker, 1.0) / norms[n]) for n, times in zip(*said, strict=True)]
            for number, weight in own:
                held[number] = held.get(number, 0.0) + weight
        holds = len(held)
        shortness = self._lengths.shortness
        if term not in _TELL_OF_THEMSELVES:
            self._hand_on(own, held, shortness)
        if known:
            holds = known + len(self._marked.get(term, ()))
        weight = count * self._weight(holds if known else holds ** (1 - shortness) * len(held) ** shortness)
        return {number: weight * x * (K1 + 1) / (x + K1) for number, x in held.items()}

    def _hand_on(self, own: Iterable[tuple[int, float]], held: dict[int, float], shortness: float) -> None:
        """Let the turns around those that hold a term have their part of it."""
        around = shortness * AROUND_SHARE
        for steps, share in zip((self._after, self._before), NEXT_SHARES, strict=True):
            for number, weight in own:
                at = steps[number]
                if at >= 0:
                    held[at] = held.get(at, 0.0) + shortness * share * weight
                    if around > _LEAST_SHARE and (at := steps[at]) >= 0:
                        held[at] = held.get(at, 0.0) + around * weight

    @property
    def _lengths(self) -> TurnLengths:
        return self.lengths if self.beyond is None else self.beyond.lengths

    def _measured(self, holds: int) -> tuple[list[float], dict[str, float]]:
        """What being long divides in each turn, as long as turns are now, and what a word that so many hold counts of
        each speaker: what hardly anybody says isn't said by chance, however long somebody talks."""
        lengths = self._lengths
        if len(self._norms) < len(self.turns):
            share, mean = lengths.length_share, lengths.mean
            self._norms = [1 - share + share * len(t.text) / mean for t in self.turns]
            self._voices = lengths.voices()
        total = len(self.turns) if self.beyond is None else self.beyond.total
        common = min(1.0, math.log(holds) / math.log(min(COMMON, max(2.0, COMMON_SHARE * total))))
        return self._norms, {speaker: voice**common for speaker, voice in self._voices.items()}


def _common(gained: Iterable[Mapping[int, float]], old: int, new: int) -> float:
    """The share of what a turn gains that another one gains for the same words."""
    pairs = [(held[old], held.get(new, 0.0)) for held in gained if old in held]
    whole = sum(before for before, _ in pairs)
    return sum(min(pair) for pair in pairs) / whole if whole else 0.0


def asks_for_now(query: str) -> bool:
    """Whether one value is asked for, as it is now."""
    return bool(_ASKS_VALUE.match(query)) and not _ASKS_MORE.search(query)


def dates(time: str) -> Counter[str]:
    """The terms by which a question may name the date in a text: month, day and year; none of the time of day."""
    words = _date_words(time)
    return Counter(MAY if word == "may" else stem(word.lstrip("0")) for word in words if word)


def date_parts(time: str) -> tuple[int, int, int] | None:
    """Year, month and day of the date in a text; None where it names no day."""
    words = [word for word in _date_words(time) if word]
    years = [int(word) for word in words if len(word) == 4 and word.isdigit()]
    days = [int(word) for word in words if len(word) <= 2 and word.isdigit() and 1 <= int(word) <= 31]
    months = [MONTHS.index(word) + 1 for word in words if word in MONTHS]
    try:
        return date(years[0], months[0], days[0]).timetuple()[:3] if years and months and days else None
    except ValueError:
        return None


def _date_words(time: str) -> list[str]:
    iso = _ISO.search(time)
    if iso is not None:
        return [iso[1], MONTHS[int(iso[2]) - 1] if 1 <= int(iso[2]) <= 12 else "", iso[3] or ""]
    low = time.lower()
    words = [found[0] for found in _YEAR.finditer(low)]
    for found in _DAY.finditer(low):
        name = found["after"] or found["before"]
        words += [found["first"] or found["second"], next(m for m in MONTHS if m.startswith(name[:3]))]
    return words


def only_asks(text: str) -> bool:
    """Whether a turn is a question and nothing else."""
    text = text.rstrip()
    return text.endswith(_QUESTION_MARKS) and not _SAYS.search(text)
