"""What a person wants kept or forgotten: said outright, or worth keeping by rules (MEM-3, MEM-6, MEM-7)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from perdure.memory.dates import absolute, day_of
from perdure.memory.files import Topic, Type
from perdure.text.cleaning import sentences
from perdure.text.frontmatter import front_matter
from perdure.text.words import asked_terms, terms

MOST_CHARS = 2_000  # of what is kept on a person's word; more is a document, not a sentence
_POLITE = (
    r"(?:(?:and|also|ok(?:ay)?|hey|please|pls|btw|by the way|so|then|und|bitte|et|s'il te pla[iî]t|por favor|y|e|"
    r"per favore|alsjeblieft|en|пожалуйста|请|また|あと)[,:，、]?\s*)*"
)
_REMEMBER = (
    r"remember(?! (?:when|how|the time|if|whether|me\b))(?:[ ]+(?:this|that|to)\b)?[: ]",
    r"(?:do not|don['’]t|never) forget(?:[ ]+(?:that|to)\b)?[: ]",
    r"(?:keep|bear) in mind that ",
    r"merke?[ ](?:dir|euch)(?:[ ]bitte)?(?:[ ,]*dass)?[:, ]",
    r"vergiss[ ]nicht(?:[ ,]*dass)?[:, ]",
    r"(?:souviens-toi|rappelle-toi|retiens|souvenez-vous|retenez)(?:[ ](?:que|de)\b|[ ]qu['’])?[: ]?",
    r"(?:n['’]oublie(?:z)? pas)(?:[ ](?:que|de)\b|[ ]qu['’])?[: ]?",
    r"(?:recuerda|acu[eé]rdate de|no olvides)(?:[ ]que\b)?[: ]",
    r"(?:ricorda(?:ti)?|non dimenticare)(?:[ ](?:che|di)\b)?[: ]",
    r"(?:lembre-se(?: de)?|lembra(?:-te)?|n[aã]o esque[cç]as?)(?:[ ]que\b)?[: ]",
    r"onthoud(?:[ ]dat\b)?[: ]",
    r"запомни(?:те)?(?:,?[ ]что)?[:, ]",
    r"(?:记住|記住|请记住|記得|记得|别忘了|不要忘记)[:：,，]?\s*",
)
_FORGET = (
    # never the bare verb: "forget the tests, just commit" is about now
    r"forget[ ]+(?:about|that|what i (?:said|told you) about|everything about|the memory (?:about|that))[ ](?!it\b)",
    r"vergiss[ ]*(?:alles [uü]ber|das mit|,? ?dass|was ich [uü]ber)[ ]",
    r"oublie(?:z)?[ ](?:que|ce que j'ai dit sur|tout sur)[ ]",
    r"olvida(?:te)?[ ](?:que|lo de|lo que dije de)[ ]",
    r"dimentica[ ](?:che|quello che ho detto su)[ ]",
    r"esque[cç]a[ ](?:que|o que eu disse sobre)[ ]",
    r"vergeet[ ](?:dat|wat ik zei over)[ ]",
    r"забудь(?:те)?,?[ ](?:о|об|про|что)[ ]",
    r"(?:请?忘掉|请忘记|忘记关于)[:：,，]?\s*(?:关于)?",
)
_REMEMBERS = re.compile(rf"{_POLITE}(?:{'|'.join(_REMEMBER)})\s*(?P<what>\S.*)", re.IGNORECASE | re.DOTALL)
_FORGETS = re.compile(rf"{_POLITE}(?:{'|'.join(_FORGET)})\s*(?P<what>\S.*)", re.IGNORECASE | re.DOTALL)
_REMEMBERS_JA = re.compile(
    r"(?P<what>.+?)(?:を|ことを|と|って)?(?:覚えて|憶えて|記憶して|忘れないで)(?:おいて)?(?:ください|下さい|くれ|ね)?"
)
_FORGETS_JA = re.compile(r"(?P<what>.+?)(?:のこと)?(?:を|は)?忘れて(?:ください|下さい|くれ|ね)?")
_ASKS = re.compile(r"[?？]\s*$")
_NOTHING = re.compile(
    r"(?:it|this|that|everything|all|all of it|me|what i said|das|es|alles|[cç]a|cela|tout|eso|todo|ciò|tutto|isso|"
    r"tudo|dat|это|всё|这个|那个|一切|それ|これ|全部)",
    re.IGNORECASE,
)
_FENCE = re.compile(r"^(?:```|~~~).*?^(?:```|~~~)\s*$", re.MULTILINE | re.DOTALL)
_QUOTED = re.compile(r"^[^\S\n]*>.*$", re.MULTILINE)
_CORRECTS = re.compile(
    r"\b(?:always|never|don['’]t|do not|instead|rather than|must|should|avoid|immer|nie(?:mals)?|toujours|jamais"
    r"|siempre|nunca)\b|不要|总是|必须",
    re.IGNORECASE,
)
_SELF = re.compile(r"\b(?:i|i['’]m|my|me|we prefer|ich|mein\w*|je|mon|ma|mi|yo|я|мой)\b|我|私", re.IGNORECASE)
_PLACE = re.compile(r"https?://|\b(?:docs?|documentation|wiki|dashboard|api|url|link)\b", re.IGNORECASE)
_GOES_ON = re.compile(r"[,;，；]")  # "forget about the tests, let's ship"
_END = " .!。！"


@dataclass(frozen=True, slots=True)
class MemoryRequest:
    """Something to be kept, or a subject to be forgotten, in the user's own words."""

    act: Literal["remember", "forget"]
    text: str


def memory_requests(text: str) -> tuple[MemoryRequest, ...]:
    """What a message asks to keep or to forget, in its order."""
    plain = _QUOTED.sub("", _FENCE.sub("\n\n", text))
    paragraphs = [one for one in re.split(r"\n\s*\n", plain) if one.strip()]
    ends = paragraphs[:1] + (paragraphs[-1:] if len(paragraphs) > 1 else [])
    found = [wish for one in ends for wish in _of_paragraph(one)]
    return tuple(dict.fromkeys(found))


def _of_paragraph(text: str) -> list[MemoryRequest]:
    head, colon, rest = text.strip().partition("\n")
    listed = _REMEMBERS.match(f"{head} x") if head.rstrip().endswith((":", "：")) and colon else None
    if listed is not None and rest.strip() and len(rest) <= MOST_CHARS:
        return [MemoryRequest("remember", rest.strip())]  # "Remember:" and a list under it
    return [wish for one in sentences(text) if (wish := _of_sentence(one)) is not None]


def _of_sentence(sentence: str) -> MemoryRequest | None:
    if _ASKS.search(sentence) or len(sentence) > MOST_CHARS:
        return None
    low = sentence.rstrip(_END)
    for act, patterns in (("remember", (_REMEMBERS, _REMEMBERS_JA)), ("forget", (_FORGETS, _FORGETS_JA))):
        for pattern in patterns:
            found = pattern.match(sentence) if pattern in (_REMEMBERS, _FORGETS) else pattern.fullmatch(low)
            what = found["what"].strip(" ,，") if found else ""
            if what and not _NOTHING.fullmatch(what.rstrip(_END)) and not (act == "forget" and _GOES_ON.search(what)):
                return MemoryRequest("remember" if act == "remember" else "forget", what)
    return None


def kind_of(text: str) -> Type:
    """The type of a memory in the user's words: about them, a place to look, a correction, or else of the project."""
    if _CORRECTS.search(text):
        return "feedback"
    if _SELF.search(text):
        return "user"
    return "reference" if _PLACE.search(text) else "project"


LEAST_WORDS = 3
MOST_WORDS = 60
REMARK_CHARS = 600
_NO_SPEECH = frozenset(">|$#<{[/")  # a quotation, a table, a command, a heading, a tag, data
LONG_TEXT = 4_000  # a message beyond it is pasted, not said

_REMARKS_FENCE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
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
_REMARKS_ASKS = re.compile(
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
_REMARKS_CORRECTS = re.compile(
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
    for part in _SENTENCE.split(_REMARKS_FENCE.sub("\n", text)):
        sentence = " ".join(part.split())
        if (
            sentence
            and len(sentence) <= REMARK_CHARS
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
    if _REMARKS_ASKS.search(said):
        return None
    lasts = bool(_LASTING.search(said))
    points = bool(_PASSING.search(_LASTING.sub(" ", said)))
    if points and not is_told:
        return None  # nobody will know what it was about
    if _POINTS.search(said):
        return "reference"
    if _IS_ME.search(said) or _PREFERS.search(said):
        return "user"
    if _REMARKS_CORRECTS.search(said) or _TOOL_OVER.search(said):
        return "feedback"
    if _DECIDED.search(said):
        return "project"
    if is_told:
        return "feedback" if lasts else "project"
    return "feedback" if lasts and _ORDER.match(said) else None


def _end(pattern: re.Pattern[str], text: str) -> int:
    found = pattern.match(text)
    return found.end() if found else 0


@dataclass(frozen=True, slots=True)
class ForgetMatch:
    """A memory that is meant; `text` is what stays of its file, None: nothing."""

    file: str
    text: str | None


def forget_matches(about: str, found: Iterable[tuple[Topic, str]]) -> tuple[ForgetMatch, ...]:
    """Of memories with the texts of their files, those that say all that was named; where lines do, only these go.

    One whose name or description says it goes as a whole.
    """
    wanted = set(asked_terms(about))
    if not wanted:
        return ()
    found = list(found)
    whole = [topic.file for topic, _ in found if topic.has_front_matter and wanted <= set(terms(_topic_words(topic)))]
    if whole:
        return tuple(ForgetMatch(file, None) for file in whole)
    kept = ((topic.file, text, _without(text, wanted)) for topic, text in found)
    return tuple(ForgetMatch(file, left) for file, text, left in kept if left != text)


def _topic_words(topic: Topic) -> str:
    return f"{topic.name} {topic.description}"


def _without(text: str, wanted: set[str]) -> str | None:
    """The text without the lines that say all of it; None when only headings are left."""
    start = front_matter(text).start
    lines = text[start:].split("\n")
    left = [line for line in lines if not wanted <= set(terms(line))]
    if len(left) == len(lines):
        return text
    says = any(line.strip() and not line.lstrip().startswith("#") for line in left)
    return text[:start] + "\n".join(left) if says else None
