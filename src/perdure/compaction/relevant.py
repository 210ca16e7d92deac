"""The facts that matter to a task: picked out by a model, or by code from the same sources (CMP-17)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from perdure import prompts
from perdure.text.scoring import IndexField, TextIndex, widen_terms
from perdure.text.words import asked_terms, terms

BY_CODE = "code"
TASK_CHARS = 4_000
SOURCES_CHARS = 48_000  # of what a model reads
FACT_CHARS = 500
_LEAST_WORDS = 3  # a shorter line says nothing by itself
_OF_BEST = 0.25  # so much of the best line's score
_FIELDS = {"text": IndexField(1.0, 0.4)}
_BACKGROUND = 20
_OBJECT = re.compile(r"\{.*\}", re.DOTALL)
_BULLET = re.compile(r"^\s*(?:[-*•]|\d{1,3}[.)])\s+")


@dataclass(frozen=True, slots=True)
class FactSource:
    """A text in which facts are looked for. `name` tells people where it stands: a memory's file, a session."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class RelevantFact:
    """One fact, and the name of the source that says it."""

    text: str
    source: str


@dataclass(frozen=True, slots=True)
class RelevantFacts:
    """The facts for a task, the most important first. `by` is the id of the model that picked them, or `code`.

    `why` says why no model picked them, where one was asked.
    """

    task: str
    facts: tuple[RelevantFact, ...] = ()
    by: str = BY_CODE
    why: str = ""


def facts_by_code(task: str, sources: Sequence[FactSource], limit: int) -> RelevantFacts:
    """The lines of the sources that hold most of the task's telling words, word for word."""
    ask = asked_terms(task[:TASK_CHARS])
    lines = {f"{number}": line for number, line in enumerate(_lines(sources))}
    index = TextIndex(_FIELDS, _BACKGROUND)
    index.fill((key, {"text": terms(line.text)}) for key, line in lines.items())
    scores = index.scores(widen_terms(index, ask)) if ask and lines else []
    best = max(scores, default=0.0)
    ranked = sorted((-score, number) for number, score in enumerate(scores) if score > 0 and score >= _OF_BEST * best)
    found = (lines[key] for _, number in ranked if (key := index.keys[number]) is not None)
    return RelevantFacts(task, tuple(dict.fromkeys(found))[:limit])


def _lines(sources: Iterable[FactSource]) -> Iterable[RelevantFact]:
    """The lines that say something by themselves, without their bullets."""
    for source in sources:
        for raw in source.text.split("\n"):
            line = " ".join(_BULLET.sub("", raw).split())
            if len(line.split()) >= _LEAST_WORDS and not line.startswith(("#", "<", "```")):
                yield RelevantFact(line[:FACT_CHARS], source.name)


def facts_prompt(task: str, sources: Sequence[FactSource], limit: int) -> tuple[str, str]:
    """What a model is asked: the system prompt, and the task with its sources, numbered from 1."""
    room = SOURCES_CHARS // max(1, len(sources))
    told = "\n\n".join(
        f"[{number}] {' '.join(source.name.split())}\n{_indented(source.text[:room])}"
        for number, source in enumerate(sources, 1)
    )
    system = prompts.render("facts_extract_system", limit=str(limit))
    return system, prompts.render("facts_extract", task=" ".join(task[:TASK_CHARS].split()), sources=told)


def _indented(text: str) -> str:
    """Behind a tab, so that nothing in a source looks like the number of another."""
    return "\n".join(f"\t{line}" for line in text.split("\n"))


def facts_in(answer: str, task: str, sources: Sequence[FactSource], limit: int, by: str) -> RelevantFacts | None:
    """The facts in a model's answer; None when it can't be read. One without a source that was given is left out."""
    found = _OBJECT.search(answer)
    try:
        value = msgspec.json.decode(found[0].encode()) if found else None
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None
    listed = value.get("facts") if isinstance(value, dict) else None
    if not isinstance(listed, list):
        return None
    facts: list[RelevantFact] = []
    for one in listed:
        text, number = (one.get("fact"), one.get("source")) if isinstance(one, dict) else (None, None)
        if not isinstance(text, str) or not text.strip() or not isinstance(number, int) or isinstance(number, bool):
            continue
        if 0 < number <= len(sources):
            facts.append(RelevantFact(" ".join(text.split())[:FACT_CHARS], sources[number - 1].name))
    if listed and not facts:
        return None
    return RelevantFacts(task, tuple(dict.fromkeys(facts))[:limit], by)
