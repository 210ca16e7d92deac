"""A model reads the view: questions with mechanical gold, and how often it claims what isn't there (QLT-5).

Each question is a line that stood before the cut with one name taken out of it: which name stood there? Code decides
whether the answer names it, so no model's opinion enters. Every question is asked twice over: of the view, and of the
same view without any line that holds the name. There the only right answer is UNKNOWN, so whatever else is said is a
false positive: a guess, or something that the model knew before. A score means nothing without that rate beside it.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from perdure import prompts
from perdure.engine.turn import run_turn
from perdure.errors import PerdureError
from perdure.lab.bench.places import BenchCut
from perdure.lab.bench.probe import FactName, Gold, NeededName, Utterance, names_in, places_of, utterances_of
from perdure.lab.bench.scores import flat
from perdure.ports.session import Model
from perdure.settings import Settings
from perdure.wiring import SessionOptions as Parts
from perdure.wiring import memory_session

UNKNOWN: Final = "UNKNOWN"
BLANK: Final = "_____"
REPLICATES: Final = 3
_LINE_CHARS: Final = (30, 300)  # shorter lines ask for nothing in particular, longer ones for anything
_ANSWER_CHARS: Final = 160
_WORDS: Final = 4  # that a line must hold beside the name, to say which place is meant
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
OnProgress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class Judge:
    """Who is asked, and how much: `questions` for each strategy at each budget. `model` makes it, in the event loop."""

    model: Callable[[], Model]
    questions: int = 20
    replicates: int = REPLICATES
    seed: int = 0


@dataclass(frozen=True, slots=True)
class ClozeQuestion:
    """A line with a blank, and the name that fills it."""

    session: str
    line: str
    name: FactName
    view: str


@dataclass(frozen=True, slots=True)
class Judged:
    """What a model made of the views of one strategy at one budget; all shares in percent of answers.

    `correct`: the name itself, from the view. `false_positive`: anything but UNKNOWN where the view says nothing of it.
    `held`: questions whose name the view holds at all, which is what a perfect reader could reach. `agreeing`:
    questions whose replicates were all right or all wrong.
    """

    model: str
    budget: str
    strategy: str
    questions: int
    replicates: int
    answers: int
    failed: int
    correct: float
    unknown: float
    wrong: float
    held: float
    false_positive: float
    right_without_view: float
    agreeing: float


def questions_of(place: BenchCut, gold: Gold, view: str) -> Iterator[ClozeQuestion]:
    """The questions of a place: for each needed fact the last telling line that it stood in, and no other name did."""
    said = utterances_of(place.before, place.lines)
    everything = flat("\n".join(one.text for one in said))
    for fact in gold.facts:
        line = _line_of(fact, said)
        if line is not None and _is_one_answer(line, everything):
            yield ClozeQuestion(place.session, line, fact.name, view)


def _line_of(fact: NeededName, said: Sequence[Utterance]) -> str | None:
    least, most = _LINE_CHARS
    for one in reversed(said):
        if one.line > fact.seen_line:
            continue
        for start, end in places_of(one.text, fact.name):
            first = one.text.rfind("\n", 0, start) + 1
            last = one.text.find("\n", end)
            line = flat(one.text[first:start] + BLANK + one.text[end : last if last >= 0 else len(one.text)])
            rest = line.replace(BLANK, " ")
            is_telling = least <= len(line) <= most and sum(word.isalpha() for word in rest.split()) >= _WORDS
            if is_telling and fact.name not in set(names_in(rest)):
                return line
        if one.line < fact.seen_line:
            return None
    return None


def _is_one_answer(line: str, everything: str) -> bool:
    """Whether only one thing ever stood in the blank."""
    before, _, behind = line.partition(BLANK)
    pattern = re.compile(rf"{re.escape(before)}(\S{{1,{_ANSWER_CHARS}}}?){re.escape(behind)}")
    return len({match[1].strip("`'\",;:.()") for match in pattern.finditer(everything)}) == 1


def sample_questions(questions: Sequence[ClozeQuestion], most: int, seed: int) -> list[ClozeQuestion]:
    """So many questions, of as many sessions as there are, the same ones in any process."""
    dice = random.Random(seed)
    by_session: dict[str, list[ClozeQuestion]] = {}
    for question in questions:
        by_session.setdefault(question.session, []).append(question)
    for some in by_session.values():
        dice.shuffle(some)
    found: list[ClozeQuestion] = []
    while len(found) < most and any(by_session.values()):
        for some in by_session.values():
            if some and len(found) < most:
                found.append(some.pop())
    return found


def without_lines_naming(view: str, name: FactName) -> str:
    """The view without any line that names it: what the question then asks for isn't there."""
    return "\n".join(line for line in view.splitlines() if name not in set(names_in(line)))


async def judge_all(
    asked: Judge, found: Mapping[tuple[str, str], Sequence[ClozeQuestion]], on_progress: OnProgress | None = None
) -> tuple[Judged, ...]:
    """All strategies at all budgets, one after the other; the model is closed at the end."""
    model = asked.model()
    try:
        return tuple(
            [
                await judge(
                    model,
                    sample_questions(questions, asked.questions, asked.seed),
                    about,
                    replicates=asked.replicates,
                    on_progress=on_progress,
                )
                for about, questions in found.items()
                if questions
            ]
        )
    finally:
        await model.close()


async def judge(
    model: Model,
    questions: Sequence[ClozeQuestion],
    about: tuple[str, str],
    *,
    replicates: int = REPLICATES,
    on_progress: OnProgress | None = None,
) -> Judged:
    """Ask every question, one a prompt, of the view and of the view without the answer, so often each.

    `about`: budget and strategy that the views are of. A call that fails is counted and no answer.
    """
    counts = dict.fromkeys(("correct", "unknown", "wrong", "claimed", "silent", "right", "failed"), 0)
    agreeing = done = 0
    for question in questions:
        told: set[bool] = set()
        for view, is_control in ((question.view, False), (without_lines_naming(question.view, question.name), True)):
            for _ in range(replicates):
                answer = await _ask_one(model, question, view)
                done += 1
                if on_progress is not None:
                    on_progress(done, len(questions) * replicates * 2, f"{about[1]} at {about[0]}")
                if answer is None:
                    counts["failed"] += 1
                    continue
                is_right = names_it(answer, question.name)
                if is_control:
                    counts["claimed" if is_right or not is_unknown(answer) else "silent"] += 1
                    counts["right"] += is_right
                else:
                    told.add(is_right)
                    counts["correct" if is_right else "unknown" if is_unknown(answer) else "wrong"] += 1
        agreeing += len(told) == 1
    return _judge_one(model.about.id, about, questions, replicates, {**counts, "agreeing": agreeing})


def _judge_one(
    model: str, about: tuple[str, str], questions: Sequence[ClozeQuestion], replicates: int, counts: Mapping[str, int]
) -> Judged:
    held = sum(question.name in set(names_in(question.view)) for question in questions)
    asked = counts["correct"] + counts["unknown"] + counts["wrong"]
    controls = counts["claimed"] + counts["silent"]

    def percent(part: int, of: int) -> float:
        return 100 * part / of if of else 0.0

    return Judged(
        model,
        *about,
        questions=len(questions),
        replicates=replicates,
        answers=asked + controls,
        failed=counts["failed"],
        correct=percent(counts["correct"], asked),
        unknown=percent(counts["unknown"], asked),
        wrong=percent(counts["wrong"], asked),
        held=percent(held, len(questions)),
        false_positive=percent(counts["claimed"], controls),
        right_without_view=percent(counts["right"], controls),
        agreeing=percent(counts["agreeing"], len(questions)),
    )


async def _ask_one(model: Model, question: ClozeQuestion, view: str) -> str | None:
    """One answer, in a session of its own; None when the model gave none."""
    settings = Settings(auto_compact=False, notes=False, offload=False)
    session = await memory_session("judge", parts=Parts(settings=settings))
    kind = _KINDS[question.name.kind]
    prompt = prompts.render("judge_question", kind=kind, unknown=UNKNOWN, record=view, line=question.line, blank=BLANK)
    try:
        return (await run_turn(session, prompt, model, summarizer=())).text
    except PerdureError:
        return None


def is_unknown(answer: str) -> bool:
    """Whether an answer says that the record doesn't tell."""
    words = answer.strip().strip("`'\".").upper()
    return words in ("", UNKNOWN) or (words.startswith(UNKNOWN) and len(words) < len(UNKNOWN) + 80)


def names_it(answer: str, name: FactName) -> bool:
    """Whether an answer names it, and nothing else: a list of everything is no answer."""
    found = dict.fromkeys(names_in(answer.strip().strip("`'\"")))
    same = [one for one in found if one == name or name.key.endswith(f"/{one.key}") or one.key.endswith(f"/{name.key}")]
    return name in found and len(found) - len(same) <= 1
