"""Finding turns of a conversation, and whole sessions (QLT-4).

What answers a question is often said without its words: they stand in the turn before (*What did you paint?* - *A
sunset.*), or around it. So each turn is indexed with its neighbours, at less weight, and the session that speaks of
the matter as a whole lends some of its score to all its turns.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from holdfast.memory.retrieval.asking import widened
from holdfast.memory.retrieval.index import Field, Index
from holdfast.memory.retrieval.stems import stem
from holdfast.memory.retrieval.words import COUNT, MAY, MONTHS, WHEN, asked, terms

# Found on our own questions over another corpus (docs/retrieval.md); none of them is sharp.
TURN_FIELDS = {
    "own": Field(1.0, 0.4),
    "before": Field(0.5, 0.4),
    "after": Field(0.3, 0.4),
    "around": Field(0.15, 0.4),  # two turns away
    "speaker": Field(2.0, 0.0),
    "date": Field(1.0, 0.0),
}
SESSION_FIELDS = {"own": Field(1.0, 0.4), "date": Field(1.0, 0.0)}
SESSION_SHARE = 0.25  # of the best turn's score, for turns of the best session
ONLY_ASKS = 0.85  # a turn that only asks seldom answers
TASK_RECENCY = 0.5  # of a task's score; a question asks for what was said, whenever that was

_SPEAKER = "\x02"
_ISO = re.compile(r"(\d{4})-(\d{1,2})(?:-(\d{1,2}))?")
_YEAR = re.compile(r"\b(?:19|20)\d\d\b")
_MONTH = r"jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
_DAY = re.compile(
    rf"\b(?P<first>\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?(?P<after>(?:{_MONTH})[a-z]*)"
    rf"|\b(?P<before>(?:{_MONTH})[a-z]*)\.?\s+(?P<second>\d{{1,2}})\b"
)
_ASKS = re.compile(
    r"\s*(?:who|whom|whose|what|which|when|where|why|how|is|are|was|were|do|does|did|has|have|had|can|could|would)\b",
    re.I,
)
_QUESTION_MARKS = ("?", "？")
_SAYS = re.compile(r"[.!。！;\n]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Something that was said. `time` is an ISO date, or any text; `session` says which turns are neighbours."""

    id: str
    text: str
    session: str = ""
    speaker: str = ""
    time: str = ""


@dataclass(slots=True)
class Dialogue:
    """The turns of conversations, in their order, ready to be asked for."""

    turns: Sequence[Turn]
    _turns: Index = field(init=False)
    _sessions: Index = field(init=False)
    _factors: list[float] = field(init=False)
    _session_numbers: list[int] = field(init=False)
    _speakers: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        own = [terms(turn.text) for turn in self.turns]
        speakers = [Counter({_SPEAKER + t: n for t, n in terms(turn.speaker).items()}) for turn in self.turns]
        self._speakers = frozenset(term[1:] for names in speakers for term in names)
        self._turns = Index(TURN_FIELDS)
        self._turns.fill(
            (
                str(n),
                {
                    "own": own[n],
                    "before": self._near(own, n, -1),
                    "after": self._near(own, n, 1),
                    "around": self._near(own, n, -2, 2),
                    "speaker": speakers[n],
                    "date": dates(turn.time),
                },
            )
            for n, turn in enumerate(self.turns)
        )
        whole: dict[str, Counter[str]] = {}
        times: dict[str, str] = {}
        for n, turn in enumerate(self.turns):
            whole.setdefault(turn.session, Counter()).update(own[n])
            times.setdefault(turn.session, turn.time)
        self._sessions = Index(SESSION_FIELDS)
        self._sessions.fill((name, {"own": said, "date": dates(times[name])}) for name, said in whole.items())
        self._session_numbers = [self._sessions.numbers[turn.session] for turn in self.turns]
        self._factors = [ONLY_ASKS if only_asks(turn.text) else 1.0 for turn in self.turns]

    def _near(self, own: Sequence[Counter[str]], number: int, *steps: int) -> Counter[str]:
        found: Counter[str] = Counter()
        for at in (number + step for step in steps):
            if 0 <= at < len(own) and self.turns[at].session == self.turns[number].session:
                found.update(own[at])
        found.pop(WHEN, None)  # a time says when the turn was that holds it, not its neighbours
        found.pop(COUNT, None)
        return found

    def scores(self, query: str) -> list[float]:
        """What each turn scores, in their order; 0 for those that share nothing with the question."""
        wanted = {_SPEAKER + t if t in self._speakers else t: float(n) for t, n in asked(query).items()}
        alone = [x * f for x, f in zip(self._turns.scores(widened(self._turns, wanted)), self._factors, strict=True)]
        sessions = self._sessions.scores(widened(self._sessions, wanted))
        best, best_session = max(alone, default=0.0) or 1.0, max(sessions, default=0.0) or 1.0
        share = SESSION_SHARE * best / best_session
        return [x + share * sessions[n] if x else 0.0 for x, n in zip(alone, self._session_numbers, strict=True)]


@dataclass(slots=True)
class Sessions:
    """Whole sessions, or other long texts, ready to be asked for: each is one item, oldest first."""

    items: Sequence[Turn]
    _index: Index = field(init=False)

    def __post_init__(self) -> None:
        self._index = Index(SESSION_FIELDS)
        self._index.fill((str(n), {"own": terms(i.text), "date": dates(i.time)}) for n, i in enumerate(self.items))

    def scores(self, query: str, *, at: int | None = None) -> list[float]:
        """What each item scores. For a task, that it was lately counts as well; `at`: only items before this one."""
        wanted = {term: float(count) for term, count in asked(query).items()}
        found = self._index.scores(widened(self._index, wanted))
        end = len(found) if at is None else min(at, len(found))
        best = max(found[:end], default=0.0) or 1.0
        found = [x / best for x in found[:end]] + [0.0] * (len(found) - end)
        if is_question(query):
            return found
        return [x + (TASK_RECENCY * newness(end - 1 - n) if n < end else 0.0) for n, x in enumerate(found)]


def newness(rank: int) -> float:
    """What being the newest but so many counts, 0 to 1."""
    return 1 / (1 + rank / 5)


def dates(time: str) -> Counter[str]:
    """The terms by which a question may name the date in a text: month, day and year; none of the time of day."""
    iso = _ISO.search(time)
    if iso is not None:
        month = MONTHS[int(iso[2]) - 1] if 1 <= int(iso[2]) <= 12 else ""
        words = [iso[1], month, iso[3] or ""]
    else:
        low = time.lower()
        words = [found[0] for found in _YEAR.finditer(low)]
        for found in _DAY.finditer(low):
            name = found["after"] or found["before"]
            words += [found["first"] or found["second"], next(m for m in MONTHS if m.startswith(name[:3]))]
    return Counter(MAY if word == "may" else stem(word.lstrip("0")) for word in words if word)


def only_asks(text: str) -> bool:
    """Whether a turn is a question and nothing else."""
    text = text.rstrip()
    return text.endswith(_QUESTION_MARKS) and not _SAYS.search(text)


def is_question(query: str) -> bool:
    """Whether somebody wants to know something, and not to have something done."""
    return query.rstrip(" \"'”").endswith(_QUESTION_MARKS) or _ASKS.match(query) is not None


def best(scores: Sequence[float], limit: int, *, among: Iterable[int] | None = None) -> list[int]:
    """The numbers of the best, best first; of equals the earlier. Those that score nothing are none."""
    numbers = range(len(scores)) if among is None else among
    return sorted((n for n in numbers if scores[n] > 0), key=lambda n: (-scores[n], n))[:limit]
