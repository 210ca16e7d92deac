"""A model reads a view: questions with mechanical gold, and how often it claims what isn't there (QLT-5).

Each question is a line that stood before the cut with one name taken out of it: which name stood there? Code decides
whether the answer names it, so no model's opinion enters. Every question is asked twice over: of the view, and of the
same view without any line that holds the name or shows how it is spelt. There the only right answer is UNKNOWN, so
whatever else is said is a false positive: a guess, or something that the model knew before. A score means nothing
without that rate beside it.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from perdure import prompts
from perdure.context.groups import flatten
from perdure.context.models import model_spec
from perdure.context.replies import ModelInfo, Reply
from perdure.context.request import ModelRequest, to_request
from perdure.context.view import project
from perdure.engine.ask import JobModels, ask_job
from perdure.engine.session import LiveSession
from perdure.errors import SpendingCapReached
from perdure.lab.bench.places import BenchCut
from perdure.lab.bench.probe import FactName, Gold, NeededName, Utterance, names_in, places_of, utterances_of
from perdure.lab.bench.scores import flat
from perdure.ports.session import Model
from perdure.transcript.blocks import text_block
from perdure.transcript.messages import Message, MessageId
from perdure.transcript.records import Front
from perdure.transcript.tokens import base_tokens

UNKNOWN: Final = "UNKNOWN"
BLANK: Final = "_____"
REPLICATES: Final = 3
OUTPUT_TOKENS: Final = 2_000  # a name takes ten; some models think first
_LINE_CHARS: Final = (30, 300)  # shorter lines ask for nothing in particular, longer ones for anything
_ANSWER_CHARS: Final = 160
_WORDS: Final = 4  # that a line must hold beside the name, to say which place is meant
_HEDGED_CHARS: Final = 80  # behind an UNKNOWN; what is longer says something else
_RULES_TOKENS: Final = 110  # of what stands before a view, and around a line
_QUESTION_TOKENS: Final = 30
_TELLING: Final = 4  # letters and digits that show how a name is spelt
_KINDS: Final = {
    "path": "the end of a path",
    "file": "the name of a file",
    "name": "an identifier",
    "kebab": "a name with hyphens",
    "flag": "a flag of a command",
    "url": "a URL",
    "hash": "the beginning of a hash",
    "number": "a number",
}
_LONG_CHARS: Final = 400
_PIECE: Final = re.compile(r"\S*(?:\s+\S+){0,12}\s*")  # of a long line
_LETTERS: Final = re.compile(r"[^a-z0-9]+")
_DIGITS: Final = re.compile(r"\d+")
_NUMBERED: Final = re.compile(r"^\d+(?:→|[:\t] ?) ?")  # put in front of lines by tools


@dataclass(frozen=True, slots=True)
class ClozeQuestion:
    """A line with a blank, and the name that fills it. `place` is the number of the cut whose views are asked."""

    session: str
    line: str
    name: FactName
    place: int = 0

    @property
    def is_alike(self) -> tuple[str, str]:
        """What questions share that ask for the same, or nearly: lines that differ in numbers alone."""
        return self.session, _DIGITS.sub("0", self.line)


# --- questions ------------------------------------------------------------------------------------------------------


def questions_of(place: BenchCut, gold: Gold, number: int = 0) -> list[ClozeQuestion]:
    """The questions of a place: for each needed fact the last telling line that it stood in, and no other name did."""
    said = utterances_of(place.before, place.lines)
    everything = flat("\n".join(one.text for one in said))
    found: dict[tuple[str, str], ClozeQuestion] = {}
    for fact in gold.facts:
        line = _line_of(fact, said)
        if line is not None and _is_one_answer(line, everything):
            question = ClozeQuestion(place.session, line, fact.name, number)
            found.setdefault(question.is_alike, question)
    return list(found.values())


def _line_of(fact: NeededName, said: Sequence[Utterance]) -> str | None:
    least, most = _LINE_CHARS
    for one in reversed(said):
        if one.line > fact.seen_line:
            continue
        for start, end in places_of(one.text, fact.name):
            first = one.text.rfind("\n", 0, start) + 1
            last = one.text.find("\n", end)
            line = flat(one.text[first:start] + BLANK + one.text[end : last if last >= 0 else len(one.text)])
            line = _NUMBERED.sub("", line)
            rest = line.replace(BLANK, " ")
            is_telling = least <= len(line) <= most and sum(word.isalpha() for word in rest.split()) >= _WORDS
            if is_telling and line.count(BLANK) == 1 and not shows_spelling(rest, fact.name):
                return line
        if one.line < fact.seen_line:
            return None
    return None


def _is_one_answer(line: str, everything: str) -> bool:
    """Whether only one thing ever stood in the blank."""
    return len({filled.strip("`'\",;:.()") for filled in _fillings(line, everything)}) == 1


def _fillings(line: str, text: str) -> Iterator[str]:
    """What stands in the blank of a line, wherever a text holds the rest of it."""
    before, _, behind = line.partition(BLANK)
    ends = re.escape(behind) or r"(?!\S)"
    for match in re.finditer(rf"{re.escape(before)}(\S{{1,{_ANSWER_CHARS}}}?){ends}", text):
        yield match[1]


def sample_questions(questions: Iterable[ClozeQuestion], most: int, seed: int) -> list[ClozeQuestion]:
    """So many questions, of as many sessions as there are, the same ones in any process; none twice."""
    dice = random.Random(seed)
    by_session: dict[str, list[ClozeQuestion]] = {}
    for question in {one.is_alike: one for one in questions}.values():
        by_session.setdefault(question.session, []).append(question)
    for some in by_session.values():
        dice.shuffle(some)
    found: list[ClozeQuestion] = []
    while len(found) < most and any(by_session.values()):
        for some in by_session.values():
            if some and len(found) < most:
                found.append(some.pop())
    return found


def shows_spelling(text: str, name: FactName) -> bool:
    """Whether a text names it, or gives away how it is spelt: in another case, with other signs, within a longer name.

    Of a path, the stem of its file is enough.
    """
    if name in set(names_in(text)):
        return True
    known = _LETTERS.sub("", text.lower())
    whole = _LETTERS.sub("", name.key.lower())
    if name.kind in ("path", "file"):
        stem = _LETTERS.sub("", name.key.rsplit("/", 1)[-1].split(".", 1)[0].lower())
        if len(stem) >= _TELLING and stem in known:
            return True
    return len(whole) >= _TELLING and whole in known


def without_lines_naming(view: str, name: FactName) -> str:
    """The view without any line that names it or shows how it is spelt: what the question then asks for isn't there.

    Of a long line, such as one of JSON, the pieces go that do.
    """
    lines = ("".join(_pieces_without(line, name)) for line in view.splitlines() if not _is_short_and_shows(line, name))
    return "\n".join(lines)


def _is_short_and_shows(line: str, name: FactName) -> bool:
    return len(line) <= _LONG_CHARS and shows_spelling(line, name)


def _pieces_without(line: str, name: FactName) -> Iterator[str]:
    if len(line) <= _LONG_CHARS or not shows_spelling(line, name):
        yield line
        return
    for piece in _PIECE.findall(line):
        if not shows_spelling(piece, name):
            yield piece


# --- what a view holds ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HeldAnswer:
    """Where the answer to a question stands in a view: its name anywhere; its line, word for word; in which third.

    `third` is None for a name that isn't there, or stands in several.
    """

    name: bool
    line: bool
    third: int | None = None


def held_in(view: str, question: ClozeQuestion) -> HeldAnswer:
    """What a perfect reader could find: the line where it stands, the name if something else tells that it fits."""
    places = [start for start, _ in places_of(view, question.name, most=1_000)]
    thirds = {min(2, start * 3 // max(1, len(view))) for start in places}
    is_named = question.name in set(names_in(view))
    has_line = is_named and any(question.name in set(names_in(one)) for one in _fillings(question.line, flat(view)))
    return HeldAnswer(is_named, has_line, thirds.pop() if is_named and len(thirds) == 1 else None)


# --- asking ---------------------------------------------------------------------------------------------------------


def question_request(about: ModelInfo, session: LiveSession, question: ClozeQuestion, view: str) -> ModelRequest:
    """The request for one answer. All questions about a view share its beginning, so it is read from the cache.

    The view stands between tags that nothing in it can close; it is quoted material, not the system's words.
    """
    tag = f"record-{hashlib.sha256(view.encode('utf-8', 'replace')).hexdigest()[:8]}"
    rules = prompts.render("judge_rules", unknown=UNKNOWN)
    asked = prompts.render("judge_question", kind=_KINDS[question.name.kind], line=question.line, blank=BLANK)
    said = Message.of("user", [text_block(f"<{tag}>\n{view}\n</{tag}>"), text_block(asked)], origin="reminder")
    front = Front(model=about.id, system=(msgspec.Raw(text_block(rules).raw),))
    shown = project((front, msgspec.structs.replace(said, id=MessageId("question"))))
    facts = session.facts("bench")
    most = min(OUTPUT_TOKENS, facts.settings.max_output_tokens or OUTPUT_TOKENS)
    settings = replace(facts.settings, max_output_tokens=most, thinking="drop")
    facts = replace(facts, settings=settings, model=model_spec(about.id))
    return to_request(shown, facts, protocol=about.protocol, stream=True, groups=flatten(shown), marks={0: 0})


def question_tokens(question: ClozeQuestion, view: str) -> tuple[int, int]:
    """How many tokens a prompt takes by the base rule: what questions about the same view share, and the rest."""
    return _RULES_TOKENS + base_tokens(view), _QUESTION_TOKENS + base_tokens(question.line)


async def ask_one(session: LiveSession, model: Model, question: ClozeQuestion, view: str) -> str | None:
    """One answer; None when the model gave none. Raises `SpendingCapReached`."""

    def asking(about: ModelInfo) -> tuple[ModelRequest, int]:
        request = question_request(about, session, question, view)
        return request, sum(question_tokens(question, view))

    said = await ask_job(session, JobModels(extractor=(model,)), "extractor", asking)
    if isinstance(said, SpendingCapReached):
        raise said
    return said.text if isinstance(said, Reply) else None


def is_unknown(answer: str) -> bool:
    """Whether an answer says that the record doesn't tell."""
    words = answer.strip().strip("`'\"*.").upper()
    return words in ("", UNKNOWN) or (words.startswith(UNKNOWN) and len(words) < len(UNKNOWN) + _HEDGED_CHARS)


def names_it(answer: str, question: ClozeQuestion) -> bool:
    """Whether an answer names it, and nothing else: neither a list nor a guess behind an UNKNOWN is an answer.

    What the line itself says may be repeated, and what stands in one piece with the name, such as its folder.
    """
    if answer.strip().strip("`'\"*.").upper().startswith(UNKNOWN):
        return False
    name, own = question.name, set(names_in(question.line.replace(BLANK, " ")))
    has_named = False
    for piece in answer.split():
        plain = piece.strip("`'\"*,;:.()").replace("\\", "/").rstrip("/")
        found = set(names_in(piece.strip("`'\"")))
        if name in found or f"/{plain}".endswith(f"/{name.key}"):
            has_named = True
        elif any(one not in own and not name.key.endswith(f"/{one.key}") for one in found):
            return False
    return has_named


@dataclass(slots=True)
class QuestionAnswers:
    """What came of one question: answers of the view, and of the view without the name (`claimed`, `silent`).

    `lucky`: of the latter, those that named it all the same; `named`: that said its name, and perhaps more.
    """

    question: ClozeQuestion
    held: HeldAnswer
    right: int = 0
    unknown: int = 0
    wrong: int = 0
    claimed: int = 0
    silent: int = 0
    lucky: int = 0
    failed: int = 0

    def add(self, answer: str | None, *, is_control: bool) -> None:
        """Count one answer. A name behind an UNKNOWN is no answer to the view, and a claim without it."""
        if answer is None:
            self.failed += 1
            return
        is_right, said = names_it(answer, self.question), set(names_in(answer))
        if is_control:
            is_named = self.question.name in said
            self.lucky += is_named
            silent = is_unknown(answer) and not is_named
            self.silent, self.claimed = self.silent + silent, self.claimed + (not silent)
        elif is_right:
            self.right += 1
        elif is_unknown(answer):
            self.unknown += 1
        else:
            self.wrong += 1

    @property
    def asked(self) -> int:
        """Answers that the view got."""
        return self.right + self.unknown + self.wrong

    @property
    def controls(self) -> int:
        return self.claimed + self.silent

    @property
    def is_agreed(self) -> bool:
        """Whether all answers of the view were right, or none was."""
        return self.asked > 0 and self.right in (0, self.asked)


def prompts_of(question: ClozeQuestion, view: str, replicates: int) -> Iterator[tuple[str, bool]]:
    """The views that a question is asked of, and whether each is a control."""
    for text, is_control in ((view, False), (without_lines_naming(view, question.name), True)):
        for _ in range(replicates):
            yield text, is_control
