"""How a person's message is read for the memory: what it asks to keep or to forget, what in it is worth keeping, and
which of its sentences stand for themselves (MEM-3, MEM-6, MEM-7, MEM-10).

Read by patterns, so it works without a model and costs nothing. What is fenced or quoted in a message is nobody's word,
and neither is the rest of it where that is so long that it was pasted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from perdure.memory.dates import absolute, day_of
from perdure.memory.files import Topic, Type
from perdure.memory.trust.secrets import secrets_of
from perdure.text.cleaning import sentences, unmarked
from perdure.text.frontmatter import front_matter
from perdure.text.words import asked_terms, terms

MOST_CHARS = 2_000  # of what is kept on a person's word; more is a document, not a sentence
_POLITE = (
    r"(?:(?:and|also|ok(?:ay)?|hey|please|pls|btw|by the way|so|then|und|bitte|et|s'il te pla[iî]t|por favor|y|e|"
    r"per favore|alsjeblieft|en|пожалуйста|请|また|あと|(?:can|could|would) you|always)[,:，、]?\s*)*"
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
_FENCE = re.compile(r"```.*?(?:```|\Z)|^~~~.*?(?:^~~~\s*$|\Z)", re.MULTILINE | re.DOTALL)
_FENCE_LINE = re.compile(r"^[^\S\n]*(?:`{3,}|~{3,})[^\S\n]*(?P<info>.*)$", re.MULTILINE)
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
    is_typed: bool = True  # else it stands in something that was pasted, and a person decides


def _speech(text: str) -> str:
    """A message without what it fences or quotes."""
    return _QUOTED.sub("", _FENCE.sub("\n\n", text))


def typed_text(text: str) -> str:
    """What a person typed of a message: what it says without fences and quotations; nothing where that was pasted, too.

    A page that was pasted may hold fences of its own, and what it says between them is nobody's here. So of a message
    too long to be typed only what stands before its first fence and behind its last one counts.
    """
    fences = list(_FENCE_LINE.finditer(text)) if len(text) > LONG_TEXT else []
    if fences:
        is_closed = len(fences) > 1 and fences[-1]["info"] == ""
        text = text[: fences[0].start()] + (f"\n\n{text[fences[-1].end() :]}" if is_closed else "")
    said = _unintroduced(_unquoted(_speech(text)))
    return _lead(said) if _is_document(said) else said


# Whoever wrote a page can choose its words, so no rule finds where an unmarked paste begins. These only tell a message
# that may hold one from a few typed lines; what is worth keeping in it waits for a person.
_QUOTATION = re.compile(
    r"\"[^\"]*(?:\"|\Z)|“[^”]*(?:”|\Z)|„[^“”]*(?:[“”]|\Z)|«[^»]*(?:»|\Z)|「[^」]*(?:」|\Z)|『[^』]*(?:』|\Z)|`[^`\n]*`"
)
_QUOTED_WORDS = 5  # a shorter quotation is a name or a term
_INTRODUCES = re.compile(
    r"\b(?:page|site|website|read-?me|docs?|documents?|documentation|article|text|e-?mail|mail|logs?|output|issue|ticket|thread"
    r"|post|comment|snippet|paste\w*|wiki|transcript|changelog|summari[sz]e|translate|proofread|explain|rewrite|tl;?dr"
    r"|say|says|said|wrote|writes|reads|resume|zusammenfass\w*|[üu]bersetz\w*|r[ée]sume[zr]?|traduis|traduce|riassumi)\b"
    r"[^\n.!?:]{0,80}[:：]\s|(?:要約|翻訳|总结|翻译)[^\n。:：]{0,40}[:：]",
    re.IGNORECASE,
)
_MARKUP = re.compile(r"^\s{0,3}(?:#{1,6}\s|[=-]{3,}\s*$|\||\[?!\[|</?[a-zA-Z!]|\$ |>>> )", re.MULTILINE)
_TYPED_CHARS, _TYPED_LINES, _TYPED_PARAGRAPHS = 1_200, 5, 4


def _unquoted(said: str) -> str:
    """The text without its longer quotations; one that isn't closed goes up to the end."""
    return _QUOTATION.sub(lambda found: found[0] if len(found[0].split()) < _QUOTED_WORDS else "\n\n", said)


def _unintroduced(said: str) -> str:
    """The text up to where it introduces somebody else's: "summarise this page: …"."""
    found = _INTRODUCES.search(said)
    return said[: found.end()] if found else said


def _is_document(said: str) -> bool:
    """Whether a text may have been pasted as a whole: it is marked up, or longer than people type."""
    lines = [line for line in said.split("\n") if line.strip() and not _LISTED.match(line)]
    is_long = len(said) > _TYPED_CHARS or len(lines) > _TYPED_LINES or len(_paragraphs(said)) > _TYPED_PARAGRAPHS
    return is_long or _MARKUP.search(said) is not None


def _lead(said: str) -> str:
    """The order to remember something that a message begins with; nothing where it begins otherwise."""
    first = next(iter(sentences(said.strip()[:MOST_CHARS])), "")
    return first if _REMEMBERS.match(first) else ""


def _paragraphs(text: str) -> list[str]:
    return [one for one in re.split(r"\n\s*\n", text) if one.strip()]


def memory_requests(text: str) -> tuple[MemoryRequest, ...]:
    """What a message asks to keep or to forget, in its order.

    Only whole sentences of the first or last paragraph that begin so count: what is pasted into the middle of a message
    is nobody's wish. Questions ("do you remember …?") and "forget it" are none either.
    """
    paragraphs = _paragraphs(_speech(text))
    ends = paragraphs[:1] + (paragraphs[-1:] if len(paragraphs) > 1 else [])
    found = [wish for one in ends for wish in _of_paragraph(one)]
    typed = _joined(typed_text(text)) if found else ""
    return tuple(dict.fromkeys(replace(one, is_typed=_joined(one.text) in typed) for one in found))


def _joined(text: str) -> str:
    return " ".join(text.split())


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
_NO_SPEECH = tuple(">|$#<{[/")  # a quotation, a table, a command, a heading, a tag, data
LONG_TEXT = 4_000  # characters; what is longer was pasted, not typed

_LEAD = re.compile(
    r"^\s*(?:[-*+]\s+|\d+[.)]\s+)?"
    r"(?:(?:(?:no|nope)[,:;.!]|(?:ok(?:ay)?|hey|hm+|well|also|and|but|oh|sorry|actually|btw|by the way|fyi|note"
    r"|important|wait)[,:;.!]?)\s+"  # "no mocks" says no, "no, mocks" doesn't
    r"(?:actually[, ]+)?)*",
    re.IGNORECASE,
)
_NOTED = re.compile(  # said in passing: worth keeping where the rest of it is, and no order to keep it
    rf"{_POLITE}(?:remember,|keep in mind|make a (?:mental )?note|note|for (?:future )?reference)"
    r"(?:\s+(?:that|this)\b)?[:,]?\s+(?!to\b)",
    re.IGNORECASE,
)
_VAGUE = re.compile(r"(?:when|how|what|the time|last)\b", re.IGNORECASE)  # "remember what I said"
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
_UNDECIDED = re.compile(
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
_STANDING_ORDER = re.compile(
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
    heard: frozenset[str] = frozenset()  # the secrets in the message, as it was said
    is_typed: bool = True  # else it stands in something that was pasted, and a person decides

    @property
    def body(self) -> str:
        return f"{self.text}\n\nSaid by the user on {day_of(self.at).isoformat()}.\n"


def remarks(text: str, at: float) -> tuple[Remark, ...]:
    """What in a message of a person is worth keeping, said at a time in seconds since the epoch.

    A remark has to hold beyond the moment and be understood alone. So a sentence that points at something (`this`,
    `here`, `line 40`), asks, or only says what to do next is none, however much it corrects; rather nothing than junk.
    """
    if text.lstrip().startswith("<"):
        return ()
    found: dict[str, Remark] = {}
    whole = _speech(text)
    for said, is_typed in ((typed_text(text), True), (whole if len(whole) <= LONG_TEXT else "", False)):
        for one in sentences(said):
            sentence = _joined(one)
            is_speech = len(sentence) <= REMARK_CHARS and not sentence.startswith(_NO_SPEECH)
            remark = _remark(sentence, at) if is_speech else None
            if remark is not None:
                found.setdefault(remark.text.lower(), replace(remark, is_typed=is_typed))
    heard = secrets_of(text) if found else frozenset[str]()
    return tuple(replace(one, heard=heard) for one in found.values())


def _remark(sentence: str, at: float) -> Remark | None:
    bare = sentence[_end(_LEAD, sentence) :]
    told = _told(bare)
    said = told or bare
    if not LEAST_WORDS <= len(said.split()) <= MOST_WORDS:
        return None
    kind = _kind(said, is_told=bool(told))
    if kind is None:
        return None
    true = absolute(said, at)
    return Remark(kind, true[0].upper() + true[1:], at)


def _told(sentence: str) -> str:
    """What somebody is told to keep in mind, as an order or in passing; nothing when it is only something to do."""
    asked = _of_sentence(sentence)
    if asked is not None:
        is_task = sentence[: sentence.rfind(asked.text)].rstrip().lower().endswith(" to")
        told = asked.text if asked.act == "remember" and not is_task else ""
    else:
        told = sentence[_end(_NOTED, sentence) :] if _NOTED.match(sentence) else ""
    return "" if _VAGUE.match(told) else told


def _kind(said: str, *, is_told: bool) -> Type | None:
    if _UNDECIDED.search(said):
        return None
    lasts = bool(_LASTING.search(said))
    points = bool(_PASSING.search(_LASTING.sub(" ", said)))
    if points and not is_told:
        return None  # nobody will know what it was about
    if _POINTS.search(said):
        return "reference"
    if _IS_ME.search(said) or _PREFERS.search(said):
        return "user"
    if _STANDING_ORDER.search(said) or _TOOL_OVER.search(said):
        return "feedback"
    if _DECIDED.search(said):
        return "project"
    if is_told:
        return "feedback" if lasts else "project"
    return "feedback" if lasts and _ORDER.match(said) else None


def _end(pattern: re.Pattern[str], text: str) -> int:
    found = pattern.match(text)
    return found.end() if found else 0


# --- which of its sentences stand for themselves ----------------------------------------------------------------------

_LISTED = re.compile(r"\s*(?:[-*+•]|\d{1,3}[.)])\s+")
_ENDED = re.compile(r"[.!?…:;。！？：；][\"'”’»)\]*`]*\s*$")
_LONG_LINE = 60  # a line of so many characters that ends no sentence was wrapped
# What ties a line to the one before it, where that ends no sentence. In some languages, as far as a list can.
_TIES = re.compile(
    r"\s*(?:but|and|or|if|unless|except|only|once|until|till|before|after|when|while|as long as|provided|instead|though"
    r"|although|however|otherwise|not|without|nur|au(?:ß|ss)er|aber|wenn|falls|sofern|solange|sobald|bevor|nachdem|nicht"
    r"|mais|sauf|seulement|si|quand|avant|apr[eè]s|pas|pero|salvo|s[oó]lo|cuando|antes|despu[eé]s|ma|solo|tranne|quando"
    r"|prima|dopo|mas|exceto|apenas|depois|maar|tenzij|alleen|als|voordat|nadat|niet|но|только|если|кроме|когда|после)\b"
    r"|\s*(?:但|除非|只|如果|除了|而且|ただし|もし|でも)",
    re.IGNORECASE,
)
# A sentence that takes back or narrows what was said before it: "Only after Bob approves."
_NARROWS = re.compile(
    r"\s*(?:(?:but|and|or|aber|mais|pero|ma|mas|maar|но)\s+)?(?:"
    r"(?:only|just|nur|seulement|s[oó]lo|solo|apenas|alleen|только)\s+(?:if|when|after|before|once|on|in|for|with|until|by"
    r"|at|from|wenn|nach|bei|am|im|mit|si|apr[eè]s|avec|despu[eé]s|con|dopo|se|als|na|если|после)\b"
    r"|(?:unless|except|not|otherwise|as long as|provided|au(?:ß|ss)er|es sei denn|nicht|sauf|salvo|tranne|exceto"
    r"|tenzij|niet|кроме|just kidding|never ?mind|scratch that|no,? wait|on second thought)\b"
    r"|(?:if|when|once|until|after|before|wenn|falls|sobald|nachdem|si|quand|se|als|если|когда)\b[^,，:：]*$)"
    r"|\s*(?:但|除非|只有|除了|ただし)",
    re.IGNORECASE,
)
# What a list stands below that turns what its items say, makes it somebody else's, or leaves it open.
_TURNS = re.compile(
    r"\b(?:never|no|not|don['’]?t|do not|doesn['’]?t|isn['’]?t|aren['’]?t|won['’]?t|can['’]?t|cannot|without|avoid\w*"
    r"|stop|wrong|bad|forbid\w*|prohibit\w*|except|unless|if|when|whenever|after|before|once|until|only|instead|maybe|perhaps"
    r"|could|might|options?|ideas?|examples?|e\.g|consider\w*|questions?|old|former\w*|previous\w*|was|were|used to"
    r"|says?|said|wr[io]te\w*|written|according|quot\w+|cit\w+|claims?|claimed|suggest\w*|recommend\w*|outputs?|logs?|errors?"
    r"|returns?|prints?|shows?|pages?|readme|docs?|documentation|issues?|reviews?|reviewer\w*|comments?|findings?|asks?|asked"
    r"|tells?|told|from|nie|niemals|nicht|kein\w*|ohne|wenn|falls|nur|jamais|pas|sans|sauf|si|nunca|sin|s[oó]lo|mai|non|senza"
    r"|se|n[aã]o|sem|nooit|geen|zonder|als|не|никогда|без|если)\b|[?？不勿没沒莫禁]|(?<![识識特分类類级級区區个個差])[别別](?!名)|如(?!下)|ない|しない|もし",
    re.IGNORECASE,
)
_OPENING = re.compile(  # how a sentence may begin without saying anything by it; "no mocks" and "wait for Bob" do
    r"(?:(?:no|nope|ok(?:ay)?|hey|hm+|well|also|and|but|oh|sorry|actually|btw|by the way|fyi|note|important|wait|yes)"
    r"[,:;.!]\s+|(?:please|bitte|por favor|per favore|alsjeblieft|пожалуйста),?\s+)*",
    re.IGNORECASE,
)
_PAIRS = (("“", "”"), ("«", "»"), ("(", ")"), ("「", "」"), ("『", "』"))
_CITED = re.compile(r"\s*([\"“„«「『]).*[\"”“»」』][.!?。！？]?\s*", re.DOTALL)


def statements(text: str) -> tuple[str, ...]:
    """The sentences of a person's message that say by themselves what was meant, each as it stands.

    A part of a sentence can say the opposite of it. So neither a line that was wrapped is one, nor what stands inside a
    quotation. An item below "never do these:" counts only together with that line, a sentence that the next one narrows
    ("Only after Bob approves.") only together with that; and what follows "the page says:" is somebody else's.
    The order to remember something says what is to be remembered.
    """
    found: list[str] = []
    blocks: list[str] = []
    head, is_open = "", False  # the line that what follows hangs on, and whether nothing followed it yet
    text = typed_text(text)
    paragraphs = [_unwrapped(one) for one in _paragraphs(text)]
    for number, lines in enumerate(paragraphs, 1):
        beneath = paragraphs[number][0] if number < len(paragraphs) else ""
        if not (is_open or _LISTED.match(lines[0])):
            head = ""
        for line, following in zip(lines, [*lines[1:], beneath], strict=True):
            item = unmarked(line).strip()
            if head:
                found.append(f"{head} {item}")
                blocks.append(item)
            else:
                found += _closed(sentences(item))
            last = (_closed(sentences(item)) or [item])[-1]
            has_list = _LISTED.match(following) is not None
            ends = item.endswith((":", "：")) or (has_list and not _LISTED.match(line) and not _ENDED.search(line))
            if ends and not (has_list and (_is_order(last) or not _TURNS.search(last))):
                head, is_open, blocks = last, True, []
            else:
                is_open = False
        if head and len(blocks) > 1:
            found.append(" ".join((head, *blocks)))
    found = [one for one in _narrowed(found) if not _CITED.fullmatch(one)]
    told = [asked.text for asked in memory_requests(text) if asked.act == "remember"]
    bare = [one[_end(_OPENING, one) :] for one in found]
    return tuple(dict.fromkeys(one for one in (*found, *bare, *told) if one.strip()))


def _is_order(line: str) -> bool:
    return _REMEMBERS.match(f"{line} x") is not None


def _unwrapped(paragraph: str) -> list[str]:
    """The lines of a paragraph, those put together that only the width of a page, or a quotation, held apart."""
    lines: list[str] = []
    for line in paragraph.split("\n"):
        if not line.strip():
            continue
        before = lines[-1] if lines else ""
        hangs = not _ENDED.search(before) and (len(before) >= _LONG_LINE or line[0].isspace() or _TIES.match(line))
        if before and (_is_unclosed(before) or (hangs and not _LISTED.match(line))):
            lines[-1] = f"{before.rstrip()} {line.strip()}"
        else:
            lines.append(line)
    return lines


def _is_unclosed(text: str) -> bool:
    """Whether a quotation or a bracket goes on behind it."""
    return text.count('"') % 2 == 1 or any(text.count(one) > text.count(other) for one, other in _PAIRS)


def _closed(pieces: Iterable[str]) -> list[str]:
    """Sentences, those put together that one quotation or bracket holds."""
    whole: list[str] = []
    for piece in pieces:
        if whole and _is_unclosed(whole[-1]):
            whole[-1] = f"{whole[-1]} {piece}"
        else:
            whole.append(piece)
    return whole


def _narrowed(pieces: Iterable[str]) -> list[str]:
    """Sentences, each with those behind it that take a part of it back."""
    whole: list[str] = []
    for piece in pieces:
        if whole and _NARROWS.match(piece):
            whole[-1] = f"{whole[-1]} {piece}"
        else:
            whole.append(piece)
    return whole


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
    headed = [topic for topic, _ in found if topic.has_front_matter]
    whole = [topic.file for topic in headed if wanted <= set(terms(f"{topic.name} {topic.description}"))]
    if whole:
        return tuple(ForgetMatch(file, None) for file in whole)
    kept = ((topic.file, text, _without(text, wanted)) for topic, text in found)
    return tuple(ForgetMatch(file, left) for file, text, left in kept if left != text)


def _without(text: str, wanted: set[str]) -> str | None:
    """The text without the lines that say all of it; None when only headings are left."""
    start = front_matter(text).start
    lines = text[start:].split("\n")
    left = [line for line in lines if not wanted <= set(terms(line))]
    if len(left) == len(lines):
        return text
    says = any(line.strip() and not line.lstrip().startswith("#") for line in left)
    return text[:start] + "\n".join(left) if says else None
