"""What people say when they want something kept or forgotten: "remember that …", "forget about …" (MEM-7).

Read by patterns, so it works without a model and costs nothing. Only whole sentences that begin so count, outside of
quotes and code, in the first or last paragraph: what is pasted in the middle of a message is nobody's wish. Questions
("do you remember …?") and "forget it" are none either.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from holdfast.memory.sentences import sentences
from holdfast.memory.topics import Type

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
class Wish:
    """Something to be kept, or a subject to be forgotten, in the user's own words."""

    act: Literal["remember", "forget"]
    text: str


def wishes(text: str) -> tuple[Wish, ...]:
    """What a message asks to keep or to forget, in its order."""
    plain = _QUOTED.sub("", _FENCE.sub("\n\n", text))
    paragraphs = [one for one in re.split(r"\n\s*\n", plain) if one.strip()]
    ends = paragraphs[:1] + (paragraphs[-1:] if len(paragraphs) > 1 else [])
    found = [wish for one in ends for wish in _of_paragraph(one)]
    return tuple(dict.fromkeys(found))


def _of_paragraph(text: str) -> list[Wish]:
    head, colon, rest = text.strip().partition("\n")
    listed = _REMEMBERS.match(f"{head} x") if head.rstrip().endswith((":", "：")) and colon else None
    if listed is not None and rest.strip() and len(rest) <= MOST_CHARS:
        return [Wish("remember", rest.strip())]  # "Remember:" and a list under it
    return [wish for one in sentences(text) if (wish := _of_sentence(one)) is not None]


def _of_sentence(sentence: str) -> Wish | None:
    if _ASKS.search(sentence) or len(sentence) > MOST_CHARS:
        return None
    low = sentence.rstrip(_END)
    for act, patterns in (("remember", (_REMEMBERS, _REMEMBERS_JA)), ("forget", (_FORGETS, _FORGETS_JA))):
        for pattern in patterns:
            found = pattern.match(sentence) if pattern in (_REMEMBERS, _FORGETS) else pattern.fullmatch(low)
            what = found["what"].strip(" ,，") if found else ""
            if what and not _NOTHING.fullmatch(what.rstrip(_END)) and not (act == "forget" and _GOES_ON.search(what)):
                return Wish("remember" if act == "remember" else "forget", what)
    return None


def kind_of(text: str) -> Type:
    """The type of a memory in the user's words: about them, a place to look, a correction, or else of the project."""
    if _CORRECTS.search(text):
        return "feedback"
    if _SELF.search(text):
        return "user"
    return "reference" if _PLACE.search(text) else "project"
