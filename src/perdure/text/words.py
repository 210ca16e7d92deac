"""The terms of a text, as the index counts them and as a question asks for them (MEM-4).

A term is a word without case, accents and ending. A name in code gives its parts and itself (`FileNotFoundError`,
`hold_open_seconds`). Scripts that are written without blanks give each two neighbouring characters. A text that holds
a time, or a number, carries one term more for each, which questions that begin with *when* or *how many* ask for.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

from perdure.text.stems import stem

WHEN = "\x01when"
COUNT = "\x01count"
SELF = "\x01self"
MAY = "\x01may"  # the month, not the verb
MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july", "august", "september", "october"),
    *("november", "december"),
)

_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
    "\uf900-\ufaff\U00020000-\U0003ffff"
)
_RUN = re.compile(f"[{_UNSPACED}]+|[^\\W_{_UNSPACED}]+")
_ASCII_RUN = re.compile(r"[a-z0-9]+")
_IS_UNSPACED = re.compile(f"[{_UNSPACED}]")
_CODE = re.compile(r"[A-Za-z0-9_]+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NUMBER = re.compile(r"(\d+)(?:st|nd|rd|th)?\Z")
_IS_NAME = re.compile(r"_|[a-z0-9][A-Z]|[A-Z]{2}[a-z]")

STOP_WORDS = frozenset(
    """a about after again all also am an and any are as at be because been before being between both but by came can
    cannot come could did do does doing don done down during each even every few for from further get gets getting give
    go goes going gone got had has have having he her here hers him himself his how however i if in into is isn it its
    itself just know let lets like ll m made make many may maybe me might mine more most much must my myself need no
    nor not now of off ok okay on once one only or other our ours out over own please put re really s said same say
    says see shall she should so some something such sure t take tell than thank thanks that the their theirs them
    then there these they thing things think this those though through to too under until up upon us ve very want wants
    was way we well went were what when where whether which while who whom whose why will with would yeah yes yet you
    your yours yourself doesn didn won wouldn shouldn couldn aren wasn weren hasn haven hadn d""".split()
)
_TIMES = frozenset(
    """january february march april june july august september october november december jan feb mar apr jun jul aug
    sep sept oct nov dec monday tuesday wednesday thursday friday saturday sunday yesterday today tomorrow tonight ago
    week weeks weekend weekends month months year years morning evening afternoon night summer winter spring autumn
    recently lately""".split()
)
_NUMBERS = frozenset(
    """two three four five six seven eight nine ten eleven twelve dozen hundred thousand twice couple several half
    first second third""".split()
)
_TELLS_WHEN = re.compile(rf"(?<![^\W_])(?:{'|'.join(sorted(_TIMES))}|(?:19|20)\d\d)(?![^\W_])")
_TELLS_COUNT = re.compile(rf"(?<![^\W_])(?:(?!(?:19|20)\d\d(?![^\W_]))\d+|{'|'.join(sorted(_NUMBERS))})(?![^\W_])")
_ASKS_WHEN = re.compile(
    r"\bwhen\b|\bwhat (?:date|day|month|year|time)\b|\bhow long ago\b|\bwhich (?:date|day|month|year)\b"
)
_ASKS_COUNT = re.compile(r"\bhow (?:many|much|long|old|often)\b")
_ASKS_SELF = re.compile(
    r"\bwho (?:am i|i am)\b|\babout (?:me|myself)\b|\bhow do i (?:like|prefer|want)\b"
    r"|\bmy (?:role|name|job|title|background|profile|preferences?|experience|expertise|timezone|habits)\b"
    r"|\bi (?:like|prefer|work)\b"
)
_MAY = re.compile(
    r"\bMay,? +\d|\d(?:st|nd|rd|th)? (?:of )?May\b|\b(?:[Ii]n|[Ll]ast|[Nn]ext|[Dd]uring|[Ss]ince|[Oo]f) May\b"
)
_SHORT_TERM = 2
_MOST_ENDINGS = 40  # characters; `stem` takes fewer away
_YEAR = re.compile(r"(?:19|20)\d\d\Z")


def folded(text: str) -> str:
    """Without case and accents."""
    if text.isascii():
        return text.lower()
    parts = unicodedata.normalize("NFKD", text)
    plain = "".join(c for c in parts if not unicodedata.combining(c)) if parts != text else text
    return unicodedata.normalize("NFC", plain).lower()


def plain_words(text: str) -> list[str]:
    """The words of a text as they stand, but for case and accents: what a ranking without stemming goes by."""
    low = folded(text)
    return _ASCII_RUN.findall(low) if low.isascii() else [w for run in _RUN.findall(low) for w in _split(run)]


def terms(text: str) -> Counter[str]:
    """The terms of a text, each with how often it comes."""
    found: Counter[str] = Counter()
    for word, count in Counter(plain_words(_with_parts_of_names(text))).items():
        term, mark = _term_of(word)
        if term:
            found[term] += count
        if mark:
            found[mark] = 1
    if "May" in text and _MAY.search(text):
        found[MAY] = found[WHEN] = 1
    return found


def ordered_terms(text: str) -> list[str]:
    """The terms of a text in their order, without those more of names and times: to see whether a name stands in it."""
    return [term for word in plain_words(text) if (term := _term_of(word)[0])]


def parts_of_names(text: str) -> frozenset[str]:
    """The terms that only stand for parts of names in code, such as `mongo` and `db` for `MongoDB`."""
    if not _IS_NAME.search(text):
        return frozenset()
    return frozenset(terms(text)) - frozenset(ordered_terms(text)) - {WHEN, COUNT}


def asked_terms(query: str) -> Counter[str]:
    """The terms that a question asks for."""
    found = terms(query)
    found.pop(WHEN, None)
    found.pop(COUNT, None)
    low = query.lower()
    if _ASKS_WHEN.search(low):
        found[WHEN] = 1
    if _ASKS_COUNT.search(low):
        found[COUNT] = 1
    if _ASKS_SELF.search(low):
        found[SELF] = 1
    return found


def counts_of(text: str, asked: Iterable[str]) -> Counter[str]:
    """How often a text holds each of some terms, as `terms` has it: faster, where the text is long and they are few."""
    found: Counter[str] = Counter()
    low = folded(text)
    humps = text if len(text) == len(low) and _IS_NAME.search(text) else ""
    for term in asked:
        if term == MAY:
            count = int("May" in text and _MAY.search(text) is not None)
        elif term == WHEN:
            count = int(_TELLS_WHEN.search(low) is not None or ("May" in text and _MAY.search(text) is not None))
        elif term == COUNT:
            count = int(_TELLS_COUNT.search(low) is not None)
        elif _IS_UNSPACED.match(term):
            count = low.count(term)
        else:
            count = _times(term, low, humps)
        if count:
            found[term] = count
    return found


def _times(term: str, low: str, humps: str) -> int:
    """How many words of a text, and parts of names in it, have this term."""
    beginning = term[:-1] if len(term) > _SHORT_TERM else term  # `happi` of `happy`
    count, at = 0, low.find(beginning)
    while at >= 0:
        word = _RUN.match(low, at, at + len(term) + _MOST_ENDINGS)  # of a longer one the term is another (SPD-8)
        end = word.end() if word else at + len(beginning)
        if not at or not low[at - 1].isalnum():
            count += word is not None and _term_of(word[0])[0] == term
            if humps and word is not None and (inner := _HUMP.search(humps, at, end)):  # the first part of a name
                count += _term_of(low[at : inner.start()])[0] == term
        elif humps and _HUMP.match(humps, at):
            inner = _HUMP.search(humps, at + 1, end)
            count += _term_of(low[at : inner.start() if inner else end])[0] == term
            end = at + len(beginning)
        at = low.find(beginning, end if not humps else at + 1)
    return count


@lru_cache(maxsize=1 << 17)
def _term_of(word: str) -> tuple[str, str]:
    """The term of a word, nothing for a stop word; and the term more that it brings along."""
    mark = WHEN if word in _TIMES or _YEAR.match(word) else COUNT if word in _NUMBERS or word.isdigit() else ""
    if word in STOP_WORDS:
        return "", mark
    number = _NUMBER.match(word)
    return (number[1].lstrip("0") or "0" if number else stem(word)), mark


def _split(run: str) -> list[str]:
    """A run of a script without blanks by each two neighbours; any other is a word."""
    if not _IS_UNSPACED.match(run):
        return [run]
    return [run[n : n + 2] for n in range(len(run) - 1)] or [run]


def _with_parts_of_names(text: str) -> str:
    """The text with the parts of names in code behind it, and those names in one piece."""
    if not _IS_NAME.search(text):
        return text
    names = [name for name in _CODE.findall(text) if _IS_NAME.search(name)]
    parts = [_HUMP.sub(" ", name) for name in names if "_" not in name]
    whole = [name.replace("_", "") for name in names if "_" in name]
    return " ".join((text, *parts, *whole))
