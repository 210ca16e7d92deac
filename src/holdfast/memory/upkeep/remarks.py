"""What a person says that is worth keeping, found by rules: for work without a model (MEM-3, MEM-6).

A remark has to hold beyond the moment and be understood alone. So a sentence that points at something (`this`, `here`,
`line 40`), asks, or only says what to do next is none, however much it corrects; rather nothing than junk.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from holdfast.memory.retrieval.words import STOP_WORDS, plain_words
from holdfast.memory.topics import Type
from holdfast.memory.upkeep.dates import absolute, day_of

LEAST_WORDS = 3
MOST_WORDS = 60
MOST_CHARS = 600
NAME_CHARS = 70
STEM_WORDS = 6
_NO_SPEECH = frozenset(">|$#<{[/")  # a quotation, a table, a command, a heading, a tag, data
LONG_TEXT = 4_000  # a message beyond it is pasted, not said

_FENCE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[\"'A-Z`(])|\n+|(?<=[。！？])")
_LEAD = re.compile(
    r"^\s*(?:[-*+]\s+|\d+[.)]\s+)?"
    r"(?:(?:no|nope|ok(?:ay)?|hey|hm+|well|also|and|but|oh|sorry|actually|btw|by the way|fyi|note"
    r"|important|wait)[,:;.!]?\s+"
    r"(?:actually[, ]+)?)*",
    re.IGNORECASE,
)
_TOLD = re.compile(
    r"^(?:please\s+)?(?:(?:can|could|would)\s+you\s+)?(?:please\s+)?(?:always\s+)?"
    r"(?:remember|keep in mind|make a (?:mental )?note|note|don'?t forget|never forget|for (?:future )?reference)\b"
    r"(?:\s+(?:that|this)\b)?[:,]?\s+(?!to\b|when\b|how\b|what\b|the time\b|last\b)",
    re.IGNORECASE,
)
_LASTING = re.compile(
    r"\b(?:always|never|from now on|going forward|in (?:the )?future|every ?time|whenever|each time"
    r"|as a rule|by default"
    r"|in general|generally|in this (?:project|repo|repository|codebase|code base)|in all|for all"
    r"|any ?time|any new|all new"
    r"|i (?:told|asked) you (?:before|already)|how many times|stop)\b",
    re.IGNORECASE,
)
_PASSING = re.compile(
    r"\b(?:this|that|these|those|it|its|here|there|them|they|above|below|now|for now|yet|just|again|instead of that"
    r"|line \d+|the (?:same|other|previous|last|next|first|second|current|following|file|function|test"
    r"|tests|error|bug|change"
    r"|changes|plan|commit|branch|pr|output|result|issue|command|script|class|method))\b|^\s*(?:ok|yes|great|thanks)\b",
    re.IGNORECASE,
)
_ASKS = re.compile(
    r"[?:]\s*$|^(?:can|could|would|should|do|does|did|is|are|was|were|what|why|how|when|where|which|who"
    r"|let'?s|i think|maybe"
    r"|if)\b",
    re.IGNORECASE,
)
_VERB = (
    r"(?:use|using|add|adding|write|writing|create|creating|commit|committing|push|pushing|run|running|mock|mocking|put"
    r"|putting|call|install|import|include|hard-?code|skip|edit|touch|delete|remove|deploy|format|name|log|print|assume"
    r"|guess|summari[sz]e|explain|ask|test|merge|rebase|squash|sign|mention|leave|keep|start|make|prefer|do|go|repeat)"
)
_ORDER = re.compile(
    r"(?:please\s+)?(?:from now on|going forward|in (?:the )?future)?,?\s*(?:please\s+)?"
    r"(?:you (?:should|must|need to)\s+)?"
    rf"(?:always\s+|never\s+)?{_VERB}\b",
    re.IGNORECASE,
)
_TOOL_OVER = re.compile(
    r"^(?:please\s+)?(?:use|prefer)\s+\S.{0,60}?(?:\binstead of\b|\brather than\b|\bover\b|,\s*not\b|\bnot\b)\s+\S",
    re.I,
)
_CORRECTS = re.compile(
    rf"^(?:please\s+)?(?:(?:don'?t|do not|never|avoid|always)\s+(?:ever\s+)?{_VERB}|(?:stop|avoid)\s+\w+ing)\b", re.I
)
_PREFERS = re.compile(
    r"^(?:i(?:'d| would)? (?:really |always |usually |generally )?(?:prefer|like|love|hate|dislike)\b"
    r"(?! (?:to|us|you|it)\b)"
    r"|i (?:always|never|usually) (?:want|use|like|work)\b|i(?:'d| would) rather\b|i don'?t (?:like|want you to)\b"
    r"|my (?:favou?rite|preferred|preference)\b)",
    re.IGNORECASE,
)
_IS_ME = re.compile(
    r"^(?:i(?:'m| am) (?:an?|the|on|based|responsible|new to|a\w* senior)\b(?! (?:bit|little|lot|fan of th|few))"
    r"|i work (?:at|on|for|as|in|with)\b|my (?:name|role|job|title|team|timezone|time zone|background|email|github)\b"
    r"|call me\b|i live in\b)",
    re.IGNORECASE,
)
_DECIDED = re.compile(
    r"^we(?:'ve| have)? (?:decided|agreed|chose|chosen|switched|moved|migrated|settled on"
    r"|standardi[sz]ed|deploy|release|ship"
    r"|don'?t use|never|always|only use|only support|no longer)\b|\b(?:deadline|code freeze|feature freeze|launch"
    r"|go-?live|release date|demo|due date)\b[^.]{0,40}\b(?:is|on|by|at|moves?d?|due)\b|\bis due\b"
    r"|\bwe (?:deploy|release|ship) "
    r"(?:on|every|to|from|with|by)\b|\b(?:production|staging) (?:is|runs|lives) (?:on|at|in)\b",
    re.IGNORECASE,
)
_POINTS = re.compile(
    r"\b(?:docs?|documentation|dashboard|board|tracker|tickets?|issues|wiki|runbook|spec|design|logs"
    r"|metrics|bugs|linear|jira"
    r"|grafana|notion|slack|confluence)\b[^.]{0,60}\b(?:is|are|live|lives|tracked|found|kept|at|in)\b.*https?://",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Remark:
    """Something that a person said and that is worth keeping: its type, and the sentence with its dates made true."""

    type: Type
    text: str
    at: float

    @property
    def name(self) -> str:
        """A title: the sentence, cut at a word."""
        text = self.text.rstrip(".!。！ ")
        return text if len(text) <= NAME_CHARS else text[:NAME_CHARS].rsplit(" ", 1)[0].rstrip(",;: ") + " …"

    @property
    def stem(self) -> str:
        """The first words of it, for a file's name; the type stands before them."""
        words = [word for word in plain_words(self.text) if word.isalnum() and word not in STOP_WORDS][:STEM_WORDS]
        return f"{self.type}_{'_'.join(words)}"[:80].rstrip("_") or self.type

    @property
    def body(self) -> str:
        return f"{self.text}\n\nSaid by the user on {day_of(self.at).isoformat()}.\n"


def remarks(text: str, at: float) -> tuple[Remark, ...]:
    """What in a message of a person is worth keeping, said at a time in seconds since the epoch."""
    if len(text) > LONG_TEXT or text.lstrip().startswith("<"):
        return ()
    found: dict[str, Remark] = {}
    for sentence in _sentences(text):
        remark = _remark(sentence, at)
        if remark is not None:
            found.setdefault(remark.text.lower(), remark)
    return tuple(found.values())


def _sentences(text: str) -> Iterator[str]:
    for part in _SENTENCE.split(_FENCE.sub("\n", text)):
        sentence = " ".join(part.split())
        if (
            sentence
            and len(sentence) <= MOST_CHARS
            and not sentence.startswith((">", "|", "$", "#", "<", "{", "[", "/"))
        ):
            yield sentence


def _remark(sentence: str, at: float) -> Remark | None:
    bare = sentence[_end(_LEAD, sentence) :]
    told = _TOLD.match(bare)
    said = bare[told.end() :] if told else bare
    if not LEAST_WORDS <= len(said.split()) <= MOST_WORDS:
        return None
    kind = _kind(said, is_told=told is not None)
    if kind is None:
        return None
    true = absolute(said, at)
    return Remark(kind, true[0].upper() + true[1:], at)


def _kind(said: str, *, is_told: bool) -> Type | None:
    if _ASKS.search(said):
        return None
    lasts = bool(_LASTING.search(said))
    points = bool(_PASSING.search(_LASTING.sub(" ", said)))
    if points and not is_told:
        return None  # nobody will know what it was about
    if _POINTS.search(said):
        return "reference"
    if _IS_ME.search(said) or _PREFERS.search(said):
        return "user"
    if _CORRECTS.search(said) or _TOOL_OVER.search(said):
        return "feedback"
    if _DECIDED.search(said):
        return "project"
    if is_told:
        return "feedback" if lasts else "project"
    return "feedback" if lasts and _ORDER.match(said) else None


def _end(pattern: re.Pattern[str], text: str) -> int:
    found = pattern.match(text)
    return found.end() if found else 0
