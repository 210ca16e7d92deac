"""The hand-over that a record begins with: what a colleague who takes over would be told (CMP-16).

It is made of what was said and done, without a model: the task, where it stands, the last exchange, what was decided
and turned down, what failed, and what is next. What stands here isn't said again below.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from perdure.compaction.ledger.facts import clip
from perdure.compaction.ledger.memory import CommandHistory, ErrorHistory, FileHistory, LedgerMemory, SpokenText
from perdure.compaction.ledger.reader import ANSWER, FAILURES, runner_of
from perdure.compaction.ledger.repository import MAYBE, checks
from perdure.compaction.ledger.sheet import Sheet, SheetLine, clock, day, short_id
from perdure.compaction.ledger.statements import announced_in, demands_in, next_in, question_in, told_in, unlabelled
from perdure.context.reminders import indented, inline, name
from perdure.transcript.tokens import UNITS_PER_TOKEN, utf16_units
from perdure.transcript.tool_calls.background import has_ended

HAND_OVER, BELOW = "Hand-over", "What it rests on"
SHARE = 4  # at most one in so many parts of a record
# Where each section stands; those of the hand-over are below `FIRST_BELOW`.
TASK, INSISTS, STATE, FAILING, EXCHANGE, DECIDED, REFUSED, FAILED, NEXT, TODOS = range(2, 12)
FIRST_BELOW = 12
SECTIONS = frozenset({"task", "state", "exchange", "decisions", "insists", "refused", "failed", "next"})
_SHORT = 8_000  # units: as if a session had so many at least
_LEAST = 500  # units: in less, a hand-over says nothing that the words of the user don't say better
HEADINGS = utf16_units(f"# {HAND_OVER}\n\n# {BELOW}\n\n")
_REPORT = 1_800  # units of what the assistant had said before the user spoke last
_QUOTING = ("task", "exchange")  # the parts that have messages of the user
_BELOW = " … (more below)"
_BEGINNING = 700  # units of a request that stands whole below
_FILES, _COMMANDS, _RUNS, _BEFORE = 5, 2, 3, 5
_COMMAND_UNITS, _RESULT_UNITS = 110, 70
_COMMITS = 4
ANSWERED = "ended with 1, which says no"
MASKED = "ended without an error, with failures in its output"


class HandOverPart(NamedTuple):
    """A section of the hand-over: its share of the room, and who makes its lines of so much room."""

    section: str
    place: int
    heading: str
    share: float
    lines: Callable[[int], Sequence[SheetLine]]


@dataclass(slots=True)
class HandOver:
    """What goes into the hand-over of a memory; `said`: ids of messages that stand behind the record."""

    memory: LedgerMemory
    files: dict[str, FileHistory]
    known: frozenset[str]
    shown: set[str] = field(default_factory=set)  # words of the user that stand here whole
    commands: set[str] = field(default_factory=set)  # those that stand here whole, with how they ended
    told: str = ""  # all that stands in it so far, on one line

    def put(self, sheet: Sheet, whole: int, taken: int) -> None:
        """Put as much of it onto a sheet as it may be: at most a quarter of the record, less what is `taken` of that.

        Of a short session less is told than of a long one. What a part leaves is handed on.
        """
        room = min(whole, max(self.memory.tokens * UNITS_PER_TOKEN, _SHORT)) // SHARE - taken
        room = min(room - HEADINGS, sheet.units)
        if room < _LEAST:
            return
        parts = (
            HandOverPart("task", TASK, "The task", 0.26, self._task),
            HandOverPart("exchange", EXCHANGE, "The last exchange", 0.26, self._exchange),
            HandOverPart("state", STATE, "Where the work stands", 0.26, self._state),
            HandOverPart("next", NEXT, "What is next", 0.05, self._next),
            HandOverPart("refused", REFUSED, "Turned down by the user", 0.10, self._refused),
            HandOverPart(
                "decisions",
                DECIDED,
                "Decided and found out (as of then: what the user said later decides)",
                0.26,
                self._decisions,
            ),
            HandOverPart("insists", INSISTS, "What the user insists on", 0.08, self._insists),
            HandOverPart("failed", FAILED, "What failed, and how it ended", 0.15, self._failed),
        )
        all_of_it, spare = room, 0
        for part in parts:
            before = sheet.units
            most = min(int(part.share * all_of_it) + spare, room)
            lines = part.lines(most - utf16_units(part.heading) - 8)
            if lines:
                listed = sheet.list(part.section, part.place, part.heading, lines, most)
                if part.section in _QUOTING:
                    self.shown.update(line.id for line in listed if not line.text.endswith(_BELOW))
                self.told += " ".join(" ".join(line.text for line in listed).split()) + " "
            room -= before - sheet.units
            spare = max(0, most - (before - sheet.units))
        shown = self.told
        self.commands = {
            line for line, known in self.memory.commands.items() if f"{inline(line)} → {ended(known)}" in shown
        }

    # --- its parts

    def _insists(self, _room: int) -> list[SheetLine]:
        """Sentences of the user that demand or forbid, from messages that don't stand whole in the hand-over."""
        others = [one for one in self.memory.words if one.id not in self.shown and one.id not in self.known]
        found = {inline(text): (one, age) for age, one in enumerate(reversed(others)) for text in demands_in(one.text)}
        return [
            SheetLine(f"- {_clock(one.at)}{text}", age, one.id)
            for text, (one, age) in found.items()
            if text not in self.told
        ]

    def _task(self, room: int) -> list[SheetLine]:
        """The long requests since the first one, and the first one, which goes in before them, unless it is `known`."""
        words = self.memory.words
        if not words:
            return []
        asked = "asked first, " if len(words) > 1 else "asked, "
        units = room if len(words) == 1 else max(room // 2, 400)
        is_known = words[0].id in self.known
        first = [] if is_known else [self._words(words[0], f"{asked}{day(words[0].at)} ", units)]
        since = [one for one in words[1:-1] if not one.to and one.id not in self.known][-3:]
        later = [self._words(one, "asked later, ", max(room // 4, 200), rank=2) for one in reversed(since)]
        return [line for line in (*later, *first) if line.text]

    def _exchange(self, room: int) -> list[SheetLine]:
        """What the user said last, and what the assistant had said before it."""
        memory = self.memory
        if not memory.words:
            return []
        last = memory.words[-1]
        report = next((one for one in memory.reports if one.id == last.report), None)
        if report is None and len(memory.words) == 1:
            return []
        lines = []
        is_only = len(memory.words) == 1  # it stands in the task
        if last.id not in self.known and not is_only:
            lines.append(self._words(last, "the user, ", max(room * 2 // 3, room - 1_200)))
        if report is not None and report.id not in self.known:
            left = room - sum(utf16_units(line.text) for line in lines)
            lead = f"- {'before it, ' if is_only else 'in answer to '}the assistant{_comma(report.at)}: "
            if left > 160:
                lines.append(SheetLine(f"{lead}{_told(report.text, min(left - 60, _REPORT))}", 1, report.id))
        return lines

    def _words(self, one: SpokenText, lead: str, room: int, rank: int = 0) -> SheetLine:
        """Words of the user: whole where there is room, and then not said again; else how they begin."""
        lead = f"- {lead}{clock(one.at)}".rstrip().rstrip(",") + f" · {short_id(one.id)}: "
        text = indented(one.text)
        if utf16_units(lead) + utf16_units(text) <= room:
            return SheetLine(lead + text, rank, one.id)
        left = min(room, _BEGINNING) - utf16_units(lead) - 24
        return SheetLine(f"{lead}{_beginning(one.text, left)}{_BELOW}" if left > 60 else "", rank, one.id)

    def _state(self, room: int) -> list[SheetLine]:
        """The last deeds and words, what was done since the user spoke, tests, and what runs in the background."""
        memory = self.memory
        lines: list[SheetLine] = []
        answered = memory.words[-1].report if memory.words else ""
        said = [one for one in memory.said if one.id not in self.known and one.id != answered]
        deeds = self._deeds(said[-1].last - 1 if said else -1) or self._deeds(-1)[:1] or self._calls()
        lines += [
            SheetLine(f"- done {'before' if age else 'last'}: {deed}", age / 4)
            for age, deed in enumerate(deeds[:_RUNS])
        ]
        lines += [
            SheetLine(
                f"- in the background, its end not heard of: {inline(task.text)} (id {name(key)}{_since(task.at)})",
                -1,
                key,
            )
            for key, task in reversed(memory.background.items())
            if not has_ended(task.status)
        ]
        if said:
            left = max(room // 2 - sum(utf16_units(line.text) for line in lines), 200)
            lines.append(
                SheetLine(f"- the assistant{_comma(said[-1].at)}: {_told(said[-1].text, left)}", 0, said[-1].id)
            )
        for age, one in enumerate(reversed(said[-_BEFORE:-1])):
            text = told_in(one.text)
            if len(text) > 40:
                lines.append(SheetLine(f"- before that{_comma(one.at)}: {_told(text, 300)}", 5 + age, one.id))
        told = "".join(line.text for line in lines)
        runs = [run for run in self._runs() if run not in told]
        lines += [SheetLine(f"- tests: {run}", 2 + index) for index, run in enumerate(runs)]
        lines += self._versions()
        done = self._done_since()
        return [*lines, SheetLine(f"- {done}", 1)] if done else lines

    def _deeds(self, position: int) -> list[str]:
        """Changes and commands after a position, the newest first."""
        done = [
            (file.edited, f"{name(path)} {inline(file.fate) if file.fate else 'changed'}")
            for path, file in self.files.items()
            if file.edited > position
        ]
        done += [
            (known.last, f"ran {short_command(command, _COMMAND_UNITS)} → {ended(known)}")
            for command, known in self.memory.commands.items()
            if known.last > position
        ]
        return [text for _, text in sorted(done, key=lambda pair: -pair[0])]

    def _calls(self) -> list[str]:
        """The last calls, where no tool runs commands or changes files."""
        return [f"called {inline(title)}" for title in reversed(list(self.memory.titles.values())[-_RUNS:])]

    def _done_since(self) -> str:
        """How much was done since the user spoke last, in a sentence."""
        memory = self.memory
        if not memory.words:
            return ""
        start = memory.words[-1].last
        changed = sorted(
            ((file.edited, path) for path, file in self.files.items() if file.edited > start), key=lambda pair: -pair[0]
        )
        ran = sum(known.last > start for known in memory.commands.values())
        done = [task for task in memory.todos.values() if task.status == "done"]
        told = []
        if len(changed) + ran <= _RUNS:
            pass  # they stand there one by one
        elif changed:
            more = len(changed) - _FILES
            names = ", ".join(name(path) for _, path in changed[:_FILES])
            told.append(f"changed {names}{f' and {more} more' if more > 0 else ''}")
        if len(changed) + ran > _RUNS and ran:
            told.append(f"ran {ran} command{'s' * (ran > 1)}")
        steps = f"{len(done)} of {len(memory.todos)} planned steps are done" if memory.todos else ""
        since = f"since the user spoke last: {'; '.join(told)}" if told else ""
        return ". ".join(part for part in (since, steps) if part)

    def _runs(self) -> list[str]:
        """The last runs of tests."""
        runs = [
            (known.last, command, known)
            for command, known in self.memory.commands.items()
            if checks(command) and runner_of(command.partition("<<")[0])
        ]
        last = {
            runner_of(command.partition("<<")[0]): (command, known)
            for _, command, known in sorted(runs, key=lambda run: run[0])
        }
        newest = [(command, known) for command, known in reversed(last.values())][:_COMMANDS]
        return [f"{short_command(command, _COMMAND_UNITS)} → {ended(known)}" for command, known in newest]

    def _versions(self) -> list[SheetLine]:
        """What was changed after the last check that passed, a merge with conflicts, commits and what is pushed."""
        memory, repository = self.memory, self.memory.repository
        lines = []
        if memory.checked >= 0 and (paths := self._changed(memory.checked)):
            check = short_command(memory.check, _COMMAND_UNITS)
            lines.append(SheetLine(f"- not checked since: {paths}; passed before: {check}", 0.3))
        if repository.conflicts:
            changed = [path for path, file in self.files.items() if file.edited > repository.since]
            left = [one for one in repository.conflicts if not any(_is_same(one, path) for path in changed)]
            others = f", without those that were changed since ({len(repository.conflicts) - len(left)})"
            if left:
                what = f"- conflicts of a merge, no commit since: {', '.join(map(name, left))}"
                lines.append(SheetLine(what + others * (len(left) < len(repository.conflicts)), 0.2))
        if repository.commits:
            newest = list(reversed(repository.commits))[:_COMMITS]
            told = "; ".join(f"{one.sha} {clip(inline(one.subject), 90)}{_pushed(one.pushed)}" for one in newest)
            lines.append(SheetLine(f"- committed: {told}", 0.4, short=f"- committed: {told.partition('; ')[0]}"))
            if not repository.is_behind and (paths := self._changed(repository.commits[-1].last)):
                lines.append(SheetLine(f"- changed since the last commit: {paths}", 0.6))
        where = [f"branch, when last told: {name(repository.branch)}"] if repository.branch else []
        where += [f"pull requests opened: {', '.join(map(name, reversed(repository.pulls)))}"] * bool(repository.pulls)
        return [*lines, SheetLine(f"- {'; '.join(where)}", 0.5)] if where else lines

    def _changed(self, position: int) -> str:
        """The files that were changed after a position, by name."""
        changed = sorted(
            ((file.edited, path) for path, file in self.files.items() if file.edited > position and not file.fate),
            key=lambda pair: -pair[0],
        )
        more = len(changed) - _FILES
        return ", ".join(name(path) for _, path in changed[:_FILES]) + (f" and {more} more" if more > 0 else "")

    def _next(self, _room: int) -> list[SheetLine]:
        """That the user waits for an answer, or what the assistant announced and nothing was done after."""
        memory = self.memory
        start = memory.words[-1].last if memory.words else -1
        if memory.words and memory.words[-1].id not in self.known and not self._is_answered(start):
            return [SheetLine("- the user's last message: nothing was said or done since", 0)]
        last = memory.said[-1] if memory.said else None
        if last is None or last.id in self.known:
            return []
        if memory.called >= last.last:  # what was announced was begun, and how far it came stands above
            begun = announced_in(last.text) if memory.words and last.last > start else ""
            told = f"- announced and begun{_comma(last.at)}: {clip(inline(begun), 240)}"
            return [SheetLine(told, 0, last.id)] if begun else []
        if last.last < start:
            return []
        if announced := announced_in(last.text):
            return [SheetLine(f"- announced last{_comma(last.at)}: {clip(inline(announced), 240)}", 0, last.id)]
        if asked := question_in(last.text):
            return [SheetLine(f"- the assistant asked{_comma(last.at)}: {clip(inline(asked), 240)}", 0, last.id)]
        if left := next_in(last.text):
            return [SheetLine(f"- the assistant{_comma(last.at)}: {clip(inline(left), 360)}", 0, last.id)]
        return []

    def _is_answered(self, start: int) -> bool:
        memory = self.memory
        return memory.tokens > start and (
            any(one.last > start for one in memory.said[-1:]) or any(fact.last > start for fact in memory.pieces[-1:])
        )

    def _refused(self, _room: int) -> list[SheetLine]:
        lines = []
        for age, one in enumerate(reversed(self.memory.refused)):
            words = f", with: {clip(inline(one.to), 260)}" if one.to else ""
            lines.append(SheetLine(f"- {_clock(one.at)}{clip(inline(one.text), 200)}{words}", age, one.id))
        return lines

    def _decisions(self, _room: int) -> list[SheetLine]:
        """What was decided and found out, unless it was quoted above."""
        end = self.memory.tokens
        known = [one for one in self.memory.decisions.values() if one.id not in self.known]
        return [
            SheetLine(f"- {_clock(one.at)}{text}{_doubted(one.to)}", end - one.last, one.id)
            for one in reversed(known)
            if (text := inline(one.text)) not in self.told
        ]

    def _failed(self, _room: int) -> list[SheetLine]:
        found = reversed(self.memory.errors.items())
        return [error_line(text, trouble, self.memory) for text, trouble in found if not trouble.is_shown]


_AWAY = re.compile(r"cd [^\s;&|]{1,120} ?(?:&&|;) ?(?=\S)")


def short_command(command: str, units: int) -> str:
    """A command of about so many units, and in front of them whole the folder that it goes to first: what was run
    elsewhere is another thing.
    """
    line = inline(command)
    found = _AWAY.match(line)
    start = found.end() if found is not None else 0
    return line[:start] + clip(line[start:], units)


def ended(known: CommandHistory) -> str:
    """How the last run of a command ended, how often it ran, and the line that says it best."""
    often = f" ({known.count}×)" if known.count > 1 else ""
    says = f": {inline(known.line[:_RESULT_UNITS])}" if _says(known.line) else ""
    return f"{state_of(known)}{often}{says}"


def _says(line: str) -> bool:
    """Whether a line of output tells a reader something."""
    return line[:1] not in ("", "{", "[", "<", "}", "]") and any(char.isalnum() for char in line)


def state_of(known: CommandHistory) -> str:
    """How the last run of a command ended."""
    if known.ok is None:
        return "ran" if known.line else "no result"
    if known.hidden == ANSWER:
        return ANSWERED
    if known.ok and known.hidden:
        return MASKED if known.hidden == FAILURES else "ran"
    return "ok" if known.ok else f"failed ({'error' if known.code in (None, 0) else known.code})"


def error_line(text: str, trouble: ErrorHistory, memory: LedgerMemory) -> SheetLine:
    """An error, and how it ended."""
    over = ", resolved: the command passed later" if trouble.is_over else ""
    if trouble.cures:
        over += f", after changes to {', '.join(name(path.rpartition('/')[2]) for path in trouble.cures)}"
    often = f" ({trouble.count}×)" if trouble.count > 1 else ""
    text = inline(text)
    shown = f"- {text}{often}{over} · {short_id(trouble.id)}"
    rank = (memory.tokens - trouble.last) * (2 if trouble.is_over else 1) / trouble.count
    return SheetLine(shown, rank, trouble.id, f"- {clip(text, 100)}{over}")


def _doubted(words: str) -> str:
    return f" (the user then: “{inline(words)}”)" if words else ""


def _pushed(state: str) -> str:
    return " (pushed)" if state not in ("", MAYBE) else "" if state else " (nothing pushed since)"


def _is_same(one: str, other: str) -> bool:
    """Whether two paths are of one file, as far as their ends say."""
    return one == other or one.endswith(f"/{other}") or other.endswith(f"/{one}")


def is_told(text: str, told: str) -> bool:
    """Whether a text stands whole in what was told, which is on one line."""
    return bool(told) and " ".join(_lean(text).split()) in told


def _clock(at: float | None) -> str:
    return f"{clock(at)} " if at is not None else ""


def _comma(at: float | None) -> str:
    return f", {clock(at)}" if at is not None else ""


def _since(at: float | None) -> str:
    """The time since when it is so, to put behind it (CMP-12)."""
    return f", since {clock(at)}" if at is not None else ""


_GAPS = re.compile(r"\s*\[…\](?:\s*\[…\])+")
_CODE = re.compile(r"^\s*(```|~~~).*?(?:^\s*\1\s*$|\Z)", re.DOTALL | re.MULTILINE)


def _told(text: str, units: int) -> str:
    """What of a text of the assistant tells most in so much room: without code, its beginning and its end."""
    text = unlabelled(text)
    return _GAPS.sub(" […]", _both_ends(_CODE.sub("[…]", text) if utf16_units(text) > units else text, units))


def _lean(text: str) -> str:
    """A text on lines behind a tab, without empty lines and marks of emphasis."""
    return indented("\n".join(line.rstrip() for line in text.replace("**", "").split("\n") if line.strip()))


def _beginning(text: str, units: int) -> str:
    """How a text begins, up to the end of a line or a word."""
    lean = _lean(text)
    if utf16_units(lean) <= units:
        return lean
    part = lean[:units]
    at = max(part.rfind("\n"), part.rfind(". ") + 1)
    return (part[:at] if at > units // 2 else part.rpartition(" ")[0] or part).rstrip()


def _both_ends(text: str, units: int) -> str:
    """The beginning and, more of it, the end of a text: there it asks or proposes."""
    lean = _lean(text)
    if utf16_units(lean) <= units:
        return lean
    head = _beginning(text, units * 2 // 5)
    tail = lean[-(units - utf16_units(head) - 8) :]
    cut = min((found for mark in ("\n", ". ") if (found := tail.find(mark)) >= 0), default=-1)
    tail = tail[cut + 1 :] if 0 <= cut < len(tail) // 2 else tail
    return f"{head} […] {tail.strip()}"
