"""What the words of an assistant are: decisions and findings with their reasons, announcements, and the proposal that a
short answer of the user answers (CMP-15, CMP-16).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_LEAST, _MOST, _WITH_REASON = 25, 320, 520
_EACH = 4  # of a message
_SENTENCES = re.compile(r"(?<=[^\s.][.!?])\s+|(?<=[^\s.][.!?][)\"”’`*])\s+|(?<=[。！？])")
_ITEM = re.compile(r"\s*(?:>\s*)*(?:[-*•+]|\d{1,2}[.)])\s+")
_LABEL = re.compile(r"\A(?:THOUGHT|Thought|DISCUSSION|Observation):\s*")  # how some agents begin each answer
_FENCE = re.compile(r"^\s*(?:```|~~~)")
# How a sentence begins that says what comes next. What was announced may never have been done.
_BEFORE = (
    r"(?:(?:ok|okay|great|good|perfect|excellent|now|first|next|then|so|alright|right|sure|yes|also|and|but|finally|"
    r"instead|therefore|meanwhile|before that|after that|with that|in the meantime)\b[\s,.!:;—–-]*)*"
)
_STEP = re.compile(
    _BEFORE + r"(?:I(?:['’]ll|['’]d (?:like|suggest|recommend)| will(?! not\b)| shall| need to| have to| want to|"
    r"['’]m (?:going to|about to|now)| am (?:going to|about to|now)| can| should| could)|"
    r"let(?: me|['’]s| us)|we(?:['’]ll| will(?! not\b)| need to| should| can| could)|"
    r"(?:going|time|next(?: step)?:?) to|I(?:['’]m| am) \w+ing|(?:you|please)\b)",
    re.IGNORECASE,
)
_STEP_WITHIN = re.compile(r"\b(?:I['’](?:ll|m \w+ing)|I will (?!not)|let me)\b", re.IGNORECASE)
_NOW = re.compile(r"now (?!that|the|it|all|both|there|every|each|this|I have|we have|only)[a-z]+ ", re.IGNORECASE)
_DOING = re.compile(r"(?:now |still )?[a-z]+ing\b(?!.*\b(?:is|was|are|were|would|because|so that)\b)", re.IGNORECASE)
_OFFERED = re.compile(
    r"(?:and |or )|(?:(?:so|but|then),? )?(?:if|suppose|unless|another (?:approach|option|way))\b|"
    r"(?:fix(?: suggestion)?|suggestion|recommendation|option \w+|proposed[\w ]*|absolutely|exactly|agreed)"
    r"\b\s*[:,—–-]",
    re.IGNORECASE,
)
_POINTING = re.compile(
    r"(?:confirmed[\s,—–-]+)?(?:and |but |so )?(?:this|that|it|they|these|those|he|she|both|which)(?:['’]\w+)?\b",
    re.IGNORECASE,
)
_ASKING = re.compile(
    r"\bif you(?:['’]d)? (?:want|like|prefer)|\b(?:want|would you like|do you want) me to\b|\bshould (?:I|we)\b|"
    r"\blet me know\b|\btell me if\b|\byou['’]d rather\b|\bsay (?:the word|go)\b|\bwould you\b",
    re.IGNORECASE,
)
_GUESS = re.compile(
    r"\b(?:maybe|perhaps|might|may (?:be|have)|possibly|probably|likely|I (?:think|suspect|believe|wonder|assume)|"
    r"could be|seems?|presumably|apparently|strongly suggests?)\b",
    re.IGNORECASE,
)
_REASON = re.compile(
    r"\bbecause\b|\bso that\b|\bsince\b(?! (?:then|\d|the (?:last|first)))|\bas (?:it|they|that|this|the|there|we|I)\b|"
    r"\bdue to\b|\bcaused by\b|\botherwise\b|\bwhich (?:is why|means|lets|keeps|avoids|would)\b|\bin order to\b|"
    r"\bto (?:avoid|keep|prevent|ensure|make sure)\b|\bgiven (?:that|the)\b|\breason\b|\bmeans that\b|"
    r"因为|由于|所以|\bweil\b|\bdamit\b",
    re.IGNORECASE,
)
_FOUND = re.compile(
    r"\broot cause\b|\bcaused by\b|\b(?:turns?|turned) out\b|"
    r"\bthe (?:[\w`/-]+ ){0,2}(?:problem|issue|bug|cause|reason|culprit|failure|error|catch|fix|difference|blocker)\b"
    r"(?: [\w`/.-]+){0,3} (?:is|was|are|were|lies|comes)\b|"
    r"\b(?:I|we)(?:['’]ve| have)? (?:found|confirmed|verified|discovered|traced|reproduced|learned)\b|^confirmed\b|"
    r"\b(?:fails?|failed|failing|breaks|broke|happens|happened|crashes|crashed|was (?:missing|wrong|broken))\b.{0,40}"
    r"\b(?:because|since|as|when)\b|\b(?:that|this|which) is why\b|\bbecause\b|"
    r"根本原因|原因是|因为|\bUrsache\b|\bweil\b",
    re.IGNORECASE,
)
_CHOSE = re.compile(
    r"\b(?:I|we)(?:['’]ve| have)? (?:decided|chose|chosen|opted|settled|picked|kept|left|went with|skipped|deferred|"
    r"dropped|reverted)\b|"
    r"\bdecision\b|\bdecided\b|\binstead of\b|\brather than\b|\b(?:deliberate|intentional)(?:ly)?\b|\bon purpose\b|"
    r"\bby design\b|\b(?:I|we|it) (?:won['’]t|will not|shouldn['’]t|should not|must)\b|\b(?:won['’]t|will not) (?:be|"
    r"fix|change|touch|add|use)\b|\bmust (?:not|never|stay|be|go|have)\b|\bnot worth\b|"
    r"\bthe (?:right|better|best|simplest|cleanest|robust|correct|proper|chosen) "
    r"(?:fix|way|approach|place|option|choice|solution|call|move|one)\b|"
    r"\b(?:keeping|leaving|choosing|using|skipping)\b.{3,80}\b(?:because|since|so that|as|instead|to avoid)\b|"
    r"决定|而不是|\bentschieden\b|\bstatt\b",
    re.IGNORECASE,
)
_NEXT_REASON = re.compile(
    r"(?:This|That|It|The reason|Reason|Why)\b.{0,30}\b(?:because|since|so that|is|was)\b.*\b(?:because|since|so)\b|"
    r"Because\b|Otherwise\b|Since\b|So that\b|(?:This|That) way\b|(?:The )?[Rr]eason:?\b|That['’]s because\b|"
    r"Without (?:it|this|that)\b",
)
_ENDS = re.compile(r"[.!。！][)\"”’'`*]*\Z|[)`]\Z")
_STARTS = re.compile(r"[A-Z`\"“‘'(\[_]|[^\x00-\x7f]|\w+[_./(]|[a-z]+[A-Z]")
_CELLS = re.compile(r"\s\|\s")
_NOTHING = ("No response requested", "API Error", "[Request interrupted", "(no content)")


class Statement(NamedTuple):
    """A sentence of the assistant, with its reason behind it where one was given."""

    text: str
    weight: int  # 2: it has its reason; 1: it doesn't


def unlabelled(text: str) -> str:
    """A text without the word that some agents begin each answer with."""
    return _LABEL.sub("", text, count=1)


def is_said(text: str) -> bool:
    """Whether an answer says anything: a program wrote it where none came."""
    return bool(text.strip()) and not text.lstrip().startswith(_NOTHING)


def decisions_in(text: str) -> tuple[str, ...]:
    """The sentences that state what was decided or found out, each with its reason; at most four of a message.

    Not what was announced, asked, guessed or offered; no rows of tables, no scraps of lists.
    """
    found: dict[str, Statement] = {}
    for line in _lines(text):
        sentences = [sentence for part in _SENTENCES.split(line) if (sentence := part.strip())]
        used = -1
        for index, sentence in enumerate(sentences):
            if index <= used or not _is_statement(sentence):
                continue
            if _POINTING.match(sentence):  # what it points at stands before it
                before = sentences[index - 1] if index - 1 > used else ""
                if not before or not _ends_well(before) or _is_step(before) or len(before) + len(sentence) > _MOST:
                    continue
                sentence = f"{before} {sentence}"
            has_reason = bool(_REASON.search(sentence))
            following = sentences[index + 1] if index + 1 < len(sentences) else ""
            is_why = bool(following) and bool(_NEXT_REASON.match(following)) and _ends_well(following)
            if is_why and not has_reason and len(sentence) + len(following) < _WITH_REASON:
                sentence, has_reason, used = f"{sentence} {following}", True, index + 1
            if not has_reason and not _ENDS.search(sentence):
                continue
            found.setdefault(sentence, Statement(sentence, 1 + has_reason))
    if len(found) <= _EACH:
        return tuple(found)
    best = sorted(found.values(), key=lambda one: -one.weight)[:_EACH]
    return tuple(one.text for one in found.values() if one in best)


def _lines(text: str) -> Iterator[str]:
    """Lines of prose: without code, headings, rows of tables, and the marks of lists and of emphasis."""
    is_code = False
    for line in text.split("\n"):
        if _FENCE.match(line):
            is_code = not is_code
            continue
        bare = line.strip()
        if is_code or len(bare) < _LEAST or bare[0] in "|#" or _CELLS.search(bare):
            continue
        item = _ITEM.match(bare)
        yield _LABEL.sub("", (bare[item.end() :] if item else bare).replace("**", "").lstrip("✅❌⚠️ "))


def _ends_well(sentence: str) -> bool:
    return sentence[-1] not in ":?,;…" and not sentence.endswith(("...", " because", " since"))


def _is_statement(sentence: str) -> bool:
    if not (_LEAST <= len(sentence) <= _MOST and _ends_well(sentence) and _STARTS.match(sentence)):
        return False
    if not (_FOUND.search(sentence) or _CHOSE.search(sentence)):
        return False
    if _is_step(sentence) or _ASKING.search(sentence) or _OFFERED.match(sentence):
        return False
    return not _GUESS.search(sentence)


def _is_step(sentence: str) -> bool:
    return bool(
        _STEP.match(sentence) or _STEP_WITHIN.search(sentence) or _NOW.match(sentence) or _DOING.match(sentence)
    )


def is_finding(statement: str) -> bool:
    """Whether a statement says how something is, and not what to do."""
    return not _CHOSE.search(statement)


def announced_in(text: str) -> str:
    """What the end of a text announces as next; empty when it announces nothing."""
    end = text.rstrip()[-600:].split("\n")
    sentences = [part.strip() for line in end[-3:] for part in _SENTENCES.split(line) if part.strip()]
    found = [sentence for sentence in sentences[-2:] if _STEP.match(sentence) and not _ASKING.search(sentence)]
    return found[-1] if found and found[-1] is sentences[-1] else ""


_LEFT = re.compile(
    r"\bnext (?:up|step|steps|in the plan|is|on the list)\b|\bfollow-?ups?\b|"
    r"\bremaining (?:work|steps?|tasks?|items?)\b|\bwhat(?:['’]s| is) left\b|"
    r"\bstill (?:to do|open|missing|need(?:s|ed)?|left|pending)\b|\bnot (?:yet )?(?:done|started)\b|\bleft to do\b|"
    r"\bTODO\b|\bready for\b|\bwaiting (?:for|on)\b",
    re.IGNORECASE,
)


def next_in(text: str) -> str:
    """What a text says is still to be done: its last sentence that does, and what follows a heading that does."""
    lines = [line for line in text.replace("**", "").split("\n") if line.strip()]
    for index in range(len(lines) - 1, max(-1, len(lines) - 12), -1):
        if lines[index].lstrip()[0] in "|`":
            continue
        if lines[index].rstrip()[-1] in ":：" or lines[index].startswith("#"):
            if _LEFT.search(lines[index]) and index + 1 < len(lines):
                return "; ".join(line.strip(" -*#•") for line in lines[index + 1 : index + 5])
            continue
        for sentence in reversed(_SENTENCES.split(lines[index])):
            if _LEFT.search(sentence) and not sentence.rstrip().endswith("?"):
                return sentence.strip(" -*#•")
    return ""


_DEMAND = re.compile(
    r"(?:and |but |also |please |so )*(?:(?:do not|don['’]t|never|always|make sure|ensure|keep|only|avoid|no|stick to|"
    r"be careful|remember)\b|(?:you|we|it|this|that|they|everything|nothing)\b.{0,40}\b(?:must|never|mustn['’]t|should "
    r"(?:not|never|only|always)|shouldn['’]t|has to|have to|needs? to (?:stay|be))\b)|"
    r".{0,60}\b(?:i (?:actually )?(?:prefer|want|don['’]t want|insist|expect))\b",
    re.IGNORECASE,
)
_DEMANDS = 4  # of a message
_TYPED = 64 * 1024  # characters of a line that somebody may have typed; one search of a longer one holds up others


def demands_in(text: str) -> tuple[str, ...]:
    """Sentences of a user that demand or forbid something for good; at most four of a message."""
    found = [
        sentence
        for line in _lines(text)
        if len(line) <= _TYPED
        for part in _SENTENCES.split(line)
        if 15 <= len(sentence := part.strip()) <= 240 and _DEMAND.match(sentence) and sentence[-1] not in "?:"
    ]
    return tuple(found[:_DEMANDS])


def told_in(text: str) -> str:
    """A text without the announcement at its end; empty when all of it only announces a step."""
    lines = text.rstrip().split("\n")
    parts = [part for part in _SENTENCES.split(lines[-1]) if part.strip()]
    while parts and (_is_step(parts[-1].strip()) or parts[-1].rstrip()[-1] in ":："):
        lines[-1] = lines[-1][: lines[-1].rindex(parts.pop())]
    return "\n".join(lines).strip()


_SHORT_ANSWER = 160
_BARE_QUESTION = 30  # a longer one is no answer
_BARE_ANSWER = 60  # what is longer, and answers no question, can be understood by itself
_PROPOSAL = 320
_NUMBERED = re.compile(r"(?<![\w#./:-])#?(\d{1,2})(?![\w./:%-]|\.\d)")
_ORDINALS = {"first": 1, "second": 2, "third": 3, "fourth": 4, "fifth": 5}
_ORDINAL = re.compile(rf"\b({'|'.join(_ORDINALS)})\b", re.IGNORECASE)
_OPTION = re.compile(r"^[\s|>*_#-]*(\d{1,2})[\s.):*|]+\S")
_MOST_OPTIONS = 5


def proposal_in(text: str, answer: str) -> str:
    """What of an assistant's last words a short answer answers: the options that it names, and the last question.

    Where nothing was asked, the last paragraph. Empty where the answer can be understood by itself.
    """
    is_question = answer.rstrip().endswith(("?", "？")) and len(answer) > _BARE_QUESTION
    if not is_said(text) or len(answer) > _SHORT_ANSWER or is_question:
        return ""
    paragraphs = [part.strip() for part in re.split(r"\n\s*\n", text.strip()) if part.strip()]
    asked = [part for part in paragraphs[-3:] if "?" in part or "？" in part]
    options = _options(text, answer)
    if not asked and not options and len(answer) > _BARE_ANSWER:
        return ""
    last = (asked or paragraphs)[-1]
    room = _PROPOSAL - sum(len(option) + 2 for option in options)
    parts = [*options, *([_end(last, max(room, 120))] if not any(last in option for option in options) else [])]
    return "\n".join(parts)


def _options(text: str, answer: str) -> list[str]:
    wanted = {int(number) for number in _NUMBERED.findall(answer)}
    wanted |= {_ORDINALS[word.lower()] for word in _ORDINAL.findall(answer)}
    if not wanted:
        return []
    found: dict[int, str] = {}
    for line in text.split("\n"):
        option = _OPTION.match(line)
        if option and int(option[1]) in wanted:
            found[int(option[1])] = line.strip()[:160]
    return list(found.values())[:_MOST_OPTIONS]


def _end(text: str, chars: int) -> str:
    """The end of a text, from the beginning of a line or sentence where there is one."""
    if len(text) <= chars:
        return text
    part = text[-chars:]
    starts = [found.end() for found in re.finditer(r"\n|[.!?:]\s", part) if found.end() < len(part) * 0.6]
    return f"… {part[starts[0] :] if starts else part.lstrip()}"


_REFUSING = re.compile(
    r"\s*(?:(?:hmm+|well|oh|wait|actually|ok|sorry)[\s,.!:-]+)*(?:no\b(?! (?:problem|worries|need to|rush))|"
    r"nope\b|don['’]?t\b|do not\b|stop\b|please (?:don['’]?t|do not|stop)\b|never ?mind\b|not (?:like )?that\b|"
    r"revert (?:that|this|it)\b|undo (?:that|this|it)\b|nein\b|non\b|不要|不用|不对|不是|别)",
    re.IGNORECASE,
)


def refuses(answer: str) -> bool:
    """Whether the words of a user turn down what was proposed to them."""
    return bool(_REFUSING.match(answer[:200]))


_QUESTIONING = re.compile(
    r"\s*(?:(?:hmm+|well|oh|wait|actually|ok|sorry|hey)[\s,.!:-]+)*(?:(?:but|so) )?(?:but\b|why\b|are you sure\b|"
    r"really\?|I (?:don['’]t|do not) (?:think|agree|believe|understand why)\b|I disagree\b|I doubt\b|"
    r"(?:that|this|it)(?:['’]s| is| was) (?:not|wrong|incorrect|false)\b|that (?:isn['’]t|doesn['’]t|can['’]t)\b|"
    r"(?:shouldn['’]t|isn['’]t|doesn['’]t) (?:it|that|this|we)\b|wrong\b|aber\b|warum\b|为什么|但是)",
    re.IGNORECASE,
)


def questions(answer: str) -> bool:
    """Whether the words of a user doubt, question or turn down what was said before."""
    return refuses(answer) or bool(_QUESTIONING.match(answer[:200]))


_ASKED = re.compile(r"[^\s].*\?[)*_”\"]*\Z", re.DOTALL)


def question_in(text: str) -> str:
    """The question that a text ends with; empty when it ends otherwise."""
    lines = [line.strip() for line in text.rstrip().split("\n") if line.strip()]
    last = _SENTENCES.split(lines[-1])[-1].strip(" -*#•") if lines else ""
    return last if _ASKED.match(last) else ""
