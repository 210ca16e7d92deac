"""What the ledger knows, folded from extracts in order: the state behind every rendering, and behind the checkpoint.

Everything is counted in whole numbers, so that a memory that went through a boundary is the one that lived on.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import cached_property

import msgspec

from perdure.compaction.ledger.facts import VOICES, normal_path, recency, weight
from perdure.compaction.ledger.reader import (
    AssistantWords,
    CallEnded,
    CommandRan,
    FilesRemoved,
    FileTouched,
    LedgerExtract,
    PlanChanged,
    ResultOutcome,
    TextPiece,
    UserWords,
)
from perdure.transcript.tool_calls.background import BackgroundUpdate
from perdure.transcript.tool_calls.todos import TodoEntry, TodoUpdate

_KEPT_NAMES, _KEPT_SPANS = 12, 4
_LONGEST_SAID, _KEPT_SAID = 4_000, 8
_LONGEST_COMMAND = 2_000
_STATUS = {"in_progress": "doing", **dict.fromkeys(("completed", "cancelled", "deleted"), "done")}
_UNDONE = "`"  # how a fate begins that isn't certain: the command that ran


class LedgerFact(msgspec.Struct, array_like=True, gc=False):
    """`said`: the sum of its voices; `last`: where it last stood, in tokens; `crowd`: facts in its thinnest event."""

    said: int
    last: int
    crowd: int


class SpokenText(msgspec.Struct, array_like=True, gc=False):
    """A person's words, or the assistant's."""

    id: str
    at: float | None
    text: str
    last: int = 0


class EvidenceText(msgspec.Struct, array_like=True, gc=False):
    """A piece of text that can serve as evidence. Its facts are read anew behind a boundary."""

    last: int
    voice: int
    source: str
    text: str
    order: int
    keys: tuple[str, ...] = ()


class FileHistory(msgspec.Struct, array_like=True):
    """What was done with a file."""

    edits: int = 0
    reads: int = 0
    last: int = 0
    edited: int = -1
    spans: list[str] = []
    names: list[str] = []
    fate: str = ""  # what became of it since it was last written: deleted, moved to …, or what may have undone it


class CommandHistory(msgspec.Struct, array_like=True, gc=False):
    """A command: how often it ran and how it last ended. `ok`: None while it runs, or when nothing came back."""

    count: int = 0
    last: int = 0
    at: float | None = None
    ok: bool | None = None
    code: int | None = None
    line: str = ""
    id: str = ""


class ErrorHistory(msgspec.Struct, array_like=True, gc=False):
    """An error line: how often it was seen, where, in which command, and whether that command passed later."""

    count: int
    last: int
    id: str
    command: str
    is_over: bool = False


class FailedTest(msgspec.Struct, array_like=True, gc=False):
    """A test that failed at least once."""

    last: int
    id: str
    runner: str
    command: str
    is_failing: bool = True


class PlannedTask(msgspec.Struct, array_like=True, gc=False):
    """An entry of the plan, or work in the background; `at`: since when its status is what it is (CMP-12)."""

    text: str
    status: str
    last: int = 0
    at: float | None = None


class LedgerMemory(msgspec.Struct, dict=True):
    """All of it. Dicts are in the order of first mention; what changes moves nothing."""

    tokens: int = 0
    order: int = 0
    words: list[SpokenText] = []
    said: list[SpokenText] = []
    decisions: dict[str, SpokenText] = {}
    files: dict[str, FileHistory] = {}
    commands: dict[str, CommandHistory] = {}
    errors: dict[str, ErrorHistory] = {}
    tests: dict[str, FailedTest] = {}
    todos: dict[str, PlannedTask] = {}
    background: dict[str, PlannedTask] = {}
    facts: dict[str, LedgerFact] = {}
    pieces: list[EvidenceText] = []
    titles: dict[str, str] = {}

    def absorb(self, extracts: Iterable[LedgerExtract]) -> LedgerMemory:
        """Take in what some messages say, in order; returns itself."""
        self.__dict__.clear()  # what was weighed before
        for extract in extracts:
            self._pieces(extract.pieces)
            self.titles.update(extract.titles)
            for event in extract.events:
                self._event(event, extract.at)
            self.tokens += extract.tokens
        return self

    def _pieces(self, pieces: tuple[TextPiece, ...]) -> None:
        """Count facts once for each event: all pieces that one voice said in one place."""
        here, start = self.tokens, 0
        while start < len(pieces):
            first = pieces[start]
            end = start + 1
            keys = dict.fromkeys(first.keys)
            while end < len(pieces) and pieces[end].source == first.source and pieces[end].voice == first.voice:
                keys.update(dict.fromkeys(pieces[end].keys))
                end += 1
            self._count(keys, VOICES[first.voice], here)
            for piece in pieces[start:end]:
                self.pieces.append(EvidenceText(here, piece.voice, piece.source, piece.text, self.order, piece.keys))
                self.order += 1
            start = end

    def _count(self, keys: Iterable[str], voice: int, here: int) -> None:
        facts = self.facts
        crowd = len(list(keys))
        for key in keys:
            fact = facts.get(key)
            if fact is None:
                facts[key] = LedgerFact(voice, here, crowd)
            else:
                fact.said += voice
                fact.last = here
                if crowd < fact.crowd:
                    fact.crowd = crowd

    def _event(self, event: object, at: float | None) -> None:
        here = self.tokens
        if isinstance(event, UserWords):
            self.words[1:] = [one for one in self.words[1:] if one.text != event.text]
            self.words.append(SpokenText(event.id, event.at, event.text, here))
        elif isinstance(event, AssistantWords):
            self.said.append(SpokenText(event.id, event.at, event.text[:_LONGEST_SAID], here))
            del self.said[:-_KEPT_SAID]
            for decision in event.decisions:
                self.decisions[decision] = SpokenText(event.id, event.at, decision, here)
        elif isinstance(event, FileTouched):
            self._touched(event)
        elif isinstance(event, CommandRan):
            command = one_line(event.command)
            known = self.commands.pop(command, None) or CommandHistory()
            self.commands[command] = CommandHistory(known.count + 1, here, event.at, id=event.id)
        elif isinstance(event, CallEnded):
            self._ended(event)
        elif isinstance(event, PlanChanged):
            self._planned(event.update, at)
        elif isinstance(event, FilesRemoved):
            self._gone(event)
        elif isinstance(event, BackgroundUpdate):
            known_task = self.background.get(event.id)
            if event.is_new or known_task:
                what = event.named(known_task.text if known_task else "")
                self.background[event.id] = PlannedTask(what, event.state, here, _since(known_task, event.state, at))

    def _touched(self, event: FileTouched) -> None:
        file = self.files.pop(event.path, None) or FileHistory()
        self.files[event.path] = file
        file.last = self.tokens
        if event.deed == "read":
            file.reads += 1
            if event.is_certain and not file.fate.startswith(f"{_UNDONE}git"):
                file.fate = ""  # it is there
            if event.span and event.span not in file.spans:
                file.spans = [*file.spans, event.span][-_KEPT_SPANS:]
            return
        file.edits += 1
        file.edited = self.tokens
        file.fate = "" if event.is_certain else "by a command that failed"
        older = [name for name in file.names if name not in event.names]
        file.names = [*event.names, *older][:_KEPT_NAMES]

    def _gone(self, event: FilesRemoved) -> None:
        """Files that a command took away. Of a pattern, or when the command failed, only that it ran is certain."""
        fate, path = event.fate, normal_path(event.fate.path) if event.fate.path else ""
        touched = [known for known in self.files if _is_under(known, path)]
        is_certain = event.is_certain and not set(path) & set("*?[{") and (path[:1] == "/" or len(touched) == 1)
        for known in touched:
            file = self.files[known]
            if fate.how == "undone":
                file.fate = f"{_UNDONE}{fate.by}` ran later" if file.edits else file.fate
            elif not is_certain:
                file.fate = f"{_UNDONE}{fate.by}` ran later and may have taken it away"
            elif fate.how == "deleted":
                file.fate = "deleted"
            elif known.endswith(path):
                self._moved(known, fate.to if fate.to[:1] == "/" else known.removesuffix(path) + normal_path(fate.to))
            else:
                self._moved(known, "")
            if is_certain and fate.how != "undone":
                file.edited = self.tokens

    def _moved(self, old: str, new: str) -> None:
        file = self.files[old]
        file.fate = f"moved to {new}" if new else "moved away"
        if new:
            names = list(dict.fromkeys((*file.names, *(self.files.get(new) or FileHistory()).names)))[:_KEPT_NAMES]
            self.files[new] = FileHistory(max(1, file.edits), 0, self.tokens, self.tokens, [], names)

    def _ended(self, event: CallEnded) -> None:
        what, here = event.what, self.tokens
        command = one_line(event.command)
        known = self.commands.get(command) if command else None
        if known is not None:
            known.ok, known.code, known.line = what.ok, what.code, what.line
        for line in what.errors:
            trouble = self.errors.pop(line, None) or ErrorHistory(0, here, event.id, command)
            trouble.count, trouble.last, trouble.id, trouble.is_over = trouble.count + 1, here, event.id, False
            self.errors[line] = trouble
        for name in what.failed:
            self.tests.pop(name, None)
            self.tests[name] = FailedTest(here, event.id, event.runner, command)
        self._healed(event, what, command)

    def _healed(self, event: CallEnded, what: ResultOutcome, command: str) -> None:
        """A run that passed resolves the errors and the tests of its command, and a green one those of its runner."""
        for name in what.passed:
            if name in self.tests:
                self.tests[name].is_failing = False
        if not what.ok or what.failed or what.is_red:
            return
        for trouble in self.errors.values():
            if command and trouble.command == command and trouble.last < self.tokens and not what.errors:
                trouble.is_over = True
        if not (what.is_green and event.runner):
            return
        for name, test in self.tests.items():
            if test.command == command or (test.runner == event.runner and _covers(command, name)):
                test.is_failing = False

    def _planned(self, update: TodoUpdate, at: float | None) -> None:
        """Take in what a call says of the list. Work that was done stays known when a new list leaves it out."""
        told = {(todo.id if update.has_ids else "") or todo.text: todo for todo in update.items}
        if update.how == "all":
            known = self.todos
            done = {key: task for key, task in known.items() if task.status == "done"}
            new = {key: _told(known.get(key), todo, self.tokens, at) for key, todo in told.items()}
            self.todos = {**done, **new}
            return
        for key, todo in told.items():
            task = self.todos.get(key)
            if task is not None or todo.text:
                self.todos[key] = _told(task, todo, self.tokens, at)

    def weights(self) -> dict[str, float]:
        """The weight of every fact, as of now; not to be changed."""
        return self._weights

    @cached_property
    def _weights(self) -> dict[str, float]:
        ages = {last: recency(self.tokens - last) for last in {fact.last for fact in self.facts.values()}}
        return {key: weight(key, fact.said, fact.crowd) * ages[fact.last] for key, fact in self.facts.items()}


def _is_under(known: str, path: str) -> bool:
    """Whether a file that is known is the one at a path, lies in the folder at it, or fits a pattern; "" is all."""
    if not path or known == path or known.startswith(f"{path}/"):
        return True
    if set(path) & set("*?[{"):
        return fnmatchcase(known, path) or (path[:1] != "/" and fnmatchcase(known, f"*/{path}"))
    return path[:1] != "/" and (known.endswith(f"/{path}") or f"/{path}/" in known)


def _since(known: PlannedTask | None, status: str, at: float | None) -> float | None:
    """Since when it is so: an entry that is only told again keeps its time."""
    return known.at if known is not None and known.status == status else at


def _told(known: PlannedTask | None, todo: TodoEntry, here: int, at: float | None) -> PlannedTask:
    status = _STATUS.get(todo.state, "open") if todo.state else known.status if known else "open"
    return PlannedTask(known.text if known and known.text else todo.text, status, here, _since(known, status, at))


def _covers(command: str, test: str) -> bool:
    """Whether a run of a test runner that passed ran this test too: it named it, or it named none."""
    selected = [
        word for word in command.replace("=", " ").split() if "::" in word or word.startswith(("Test", "test_"))
    ]
    return not selected or any(word.strip("'\"^$") in test or test in word for word in selected)


def one_line(command: str) -> str:
    """A command on one line, bounded."""
    return " ".join(command[:_LONGEST_COMMAND].split())
