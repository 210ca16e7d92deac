"""The probe: from what was said before a compaction and after it, what the agent turned out to need (QLT-1).

The gold is mechanical. What the agent emits after the cut, though nobody showed it again, it must have kept: so a view
is as good as the share of it that it holds. Sections of docs/fidelity.md say how each axis is defined and why.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.bench import acts
from holdfast.bench.utterances import Utterance
from holdfast.bench.words import Name, names_in, sightings, words_around

HORIZON_TOKENS: Final = 40_000  # what is needed later than this is another story
FAR_TOKENS: Final = 10_000
LINE_CHARS: Final = 25
_LINE_LETTERS: Final = 10  # rulers and brackets are nobody's memory
CONTEXT_CHARS: Final = 100  # how far the words stand that a fact stood among
CONTEXT_WORDS: Final = (3, 5)
_PLACES: Final = 12  # of a fact, the last so many places before the cut are remembered

_NUMBERED: Final = re.compile(r"^\s*(?:[^\s:]+:)?\d+(?:→|\t|:|-|\|)")
_DIFF: Final = re.compile(r"^[+-](?![+-])")


@dataclass(frozen=True, slots=True)
class Fact:
    """A name that the agent needed: where it was last seen, where it was needed, and what it stood among."""

    name: Name
    seen_line: int
    needed_line: int
    age_tokens: int  # from its last sighting to the cut
    settings: tuple[frozenset[str], ...]

    @property
    def is_far(self) -> bool:
        return self.age_tokens > FAR_TOKENS

    @property
    def has_context(self) -> bool:
        """Whether it stood among words at all, so that it can be asked in context."""
        return bool(self.settings)


@dataclass(frozen=True, slots=True)
class Edited:
    """A file that was edited: how it is named, and whether its last part alone says which it is."""

    name: str
    file: str
    is_alone: bool


@dataclass(frozen=True, slots=True)
class Gold:
    """What a view behind the cut should hold, by axis."""

    facts: tuple[Fact, ...] = ()
    lines: tuple[str, ...] = ()
    anchors: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    edited: tuple[Edited, ...] = ()
    users: tuple[str, ...] = ()
    failing: tuple[str, ...] = ()
    todos: tuple[str, ...] = ()


def gold_of(before: Sequence[Utterance], after: Sequence[Utterance]) -> Gold:
    """The gold of a cut between what was said since the last boundary and what was said then."""
    lines, anchors = _needed_lines(before, after)
    return Gold(
        facts=tuple(_needed_facts(before, after)),
        lines=lines,
        anchors=anchors,
        commands=tuple(_needed_commands(before, after)),
        edited=tuple(_edited(before)),
        users=tuple(one.text for one in before if one.who == "user"),
        failing=tuple(acts.failing_tests(before)),
        todos=tuple(acts.open_todos(before)),
    )


def within_horizon(after: Sequence[Utterance]) -> Iterator[Utterance]:
    """What was said in the first 40,000 tokens behind the cut."""
    tokens = 0
    for one in after:
        if tokens >= HORIZON_TOKENS:
            return
        tokens += one.tokens
        yield one


# --- facts


def _needed_facts(before: Sequence[Utterance], after: Sequence[Utterance]) -> Iterator[Fact]:
    places: dict[Name, list[int]] = {}
    for index, one in enumerate(before):
        for name in set(names_in(one.text)):
            places.setdefault(name, []).append(index)
    end = before[-1].start_tokens + before[-1].tokens if before else 0
    shown_again: set[Name] = set()
    for one in within_horizon(after):
        names = dict.fromkeys(names_in(one.text))
        if one.who == "agent":
            for name in names:
                if name in places and name not in shown_again:
                    stood = places[name][-_PLACES:]
                    last = before[stood[-1]]
                    age = end - last.start_tokens - last.tokens
                    settings = tuple(dict.fromkeys(_settings([before[index].text for index in stood], name)))
                    yield Fact(name, last.line, one.line, age, settings)
        shown_again.update(names)


def _settings(texts: Sequence[str], name: Name) -> Iterator[frozenset[str]]:
    """The words around each place of a fact, of those places that have enough of them."""
    for text in texts:
        for start, end in places_of(text, name):
            words = words_around(text, start, end, CONTEXT_CHARS)
            if len(words) >= CONTEXT_WORDS[0]:
                yield words


def places_of(text: str, name: Name, most: int = 8) -> Iterator[tuple[int, int]]:
    """Where a fact stands in a text; at most so many places."""
    tail = name.key.rsplit("/", 1)[-1] if name.kind == "path" else name.key
    at = found = 0
    while found < most and (at := _next(text, tail, at, name)) >= 0:
        first = text.rfind("\n", 0, at) + 1
        last = text.find("\n", at)
        line = text[first : last if last >= 0 else len(text)]
        for sighting in sightings(line):
            if sighting.name == name and found < most:
                found += 1
                yield first + sighting.start, first + sighting.end
        at = first + len(line)


def _next(text: str, key: str, at: int, name: Name) -> int:
    """The next place where the spelling of a fact may stand; numbers and hashes have several."""
    if name.kind == "number" and len(key) > 3:
        match = re.compile(",?".join(key) if key.isdigit() else re.escape(key)).search(text, at)
        return match.start() if match else -1
    if name.kind == "hash":
        match = re.compile(re.escape(key), re.IGNORECASE).search(text, at)
        return match.start() if match else -1
    return text.find(key, at)


# --- lines


def _needed_lines(before: Sequence[Utterance], after: Sequence[Utterance]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    known = {line for one in before for line in line_forms(one.text)}
    lines: dict[str, None] = {}
    anchors: dict[str, None] = {}
    shown_again: set[str] = set()
    for one in within_horizon(after):
        if one.who != "agent":
            shown_again.update(line_forms(one.text))
            continue
        old = acts.old_texts(one.use) if one.use else ()
        new = acts.written_texts(one.use) if one.use else (one.text,)
        for texts, into in ((old, anchors), (new, lines)):
            for line in _plain_lines(texts):
                if line in known and line not in shown_again and line not in anchors and line not in lines:
                    into[line] = None
        shown_again.update(_plain_lines([one.text]))
    return tuple(lines), tuple(anchors)


def _plain_lines(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        for raw in text.splitlines():
            line = raw.strip()
            if len(line) >= LINE_CHARS and sum(c.isalnum() for c in line) >= _LINE_LETTERS:
                yield line


def line_forms(text: str) -> Iterator[str]:
    """The telling lines of a text, each as it stands and without the number, path or sign that a tool put before it."""
    for raw in text.splitlines():
        if len(raw) < LINE_CHARS:
            continue
        yield raw.strip()
        bare = _DIFF.sub("", _NUMBERED.sub("", raw, count=1), count=1).strip()
        if len(bare) >= LINE_CHARS:
            yield bare


# --- what was done


def _needed_commands(before: Sequence[Utterance], after: Sequence[Utterance]) -> Iterator[str]:
    """Commands that are run again, to the letter, and that nobody showed again."""
    known = {command for one in before if one.use and (command := acts.command_of(one.use))}
    done: set[str] = set()
    others: list[str] = []
    for one in within_horizon(after):
        command = acts.command_of(one.use) if one.use else None
        if command is None:
            if one.who != "agent":
                others.append(" ".join(one.text.split()))
        elif command in known and command not in done:
            done.add(command)
            if not any(command in text for text in others):
                yield command


def _edited(before: Sequence[Utterance]) -> Iterator[Edited]:
    """The files that were edited without an error, each once."""
    paths: dict[str, str] = {}
    for index, one in enumerate(before):
        if one.use is not None and not _failed(before, index):
            for path in acts.edited_paths(one.use):
                parts = [part for part in path.split("/") if part not in ("", ".", "..")]
                if parts:
                    paths.setdefault("/".join(parts[-2:]), parts[-1])
    seen = {name.key for one in before for name in names_in(one.text) if name.kind == "path"} if paths else set()
    for name, file in paths.items():
        others = {path for path in seen if path.rsplit("/", 1)[-1] == file and path != name}
        yield Edited(name, file, not others)


def _failed(before: Sequence[Utterance], index: int) -> bool:
    """Whether the call's own result says that it went wrong."""
    use = before[index].use
    for one in before[index + 1 : index + 30]:
        if use is not None and one.answers == use.id:
            return one.is_error
    return False
