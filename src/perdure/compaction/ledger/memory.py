"""What the ledger knows: folded from extracts in order, the pieces that say most of it, its way through boundaries
(CMP-5, CMP-13, CMP-14).

Everything is counted in whole numbers, so that a memory that went through a boundary is the one that lived on.
"""

from __future__ import annotations

import base64
import heapq
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import chain, groupby, repeat
from math import sqrt
from operator import attrgetter
from typing import Final, NamedTuple, TypeVar

import msgspec

from perdure.compaction.ledger.facts import VOICES, WEIGHTS, FactWeights, clip, facts_in, normal_path, recency, weight
from perdure.compaction.ledger.reader import (
    SAID,
    USER,
    AssistantWords,
    CallEnded,
    CommandRan,
    FilesRemoved,
    FileTouched,
    LedgerExtract,
    PlanChanged,
    ResultOutcome,
    TextPiece,
    TurnedDown,
    UserChose,
    UserWords,
    runner_end,
)
from perdure.compaction.ledger.repository import MAYBE, RepositoryNews, folder_of, may_be_same, within
from perdure.compaction.ledger.statements import is_finding, proposal_in, questions, refuses
from perdure.context.state import NOTHING_KNOWN, SessionState
from perdure.transcript.tokens import utf16_units
from perdure.transcript.tool_calls.background import BackgroundUpdate
from perdure.transcript.tool_calls.todos import TodoEntry, TodoUpdate

_KEPT_NAMES, _KEPT_SPANS = 12, 4
_LONGEST_SAID, _KEPT_SAID = 4_000, 8
_KEPT_REPORTS, _KEPT_REFUSALS = 2, 12
_LONGEST_DOUBT = 200
_LONGEST_ANSWER = 400  # of what a user said to what they turned down
_LONGEST_COMMAND = 2_000
_KEPT_COMMITS, _KEPT_PULLS, _KEPT_CONFLICTS = 12, 4, 30
_KEPT_CURES = 3
_STATUS = {"in_progress": "doing", **dict.fromkeys(("completed", "cancelled", "deleted"), "done")}
_PLACE = attrgetter("voice", "source")
_UNDONE = "`"  # how a fate begins that isn't certain: the command that ran


class LedgerFact(msgspec.Struct, array_like=True, gc=False):
    """`said`: the sum of its voices; `last`: where it last stood, in tokens; `crowd`: facts in its thinnest event."""

    said: int
    last: int
    crowd: int


class SpokenText(msgspec.Struct, array_like=True, gc=False):
    """A person's words, or the assistant's.

    `to` is what a short answer answers, and of what a user turned down, what they said to it; `report` is the id of the
    words of the assistant that a person's words came after.
    """

    id: str
    at: float | None
    text: str
    last: int = 0
    to: str = ""
    report: str = ""


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
    """A command: how often it ran and how it last ended.

    `ok`: None while it runs, or when nothing came back. `hidden`: what its good end hides, as in `CallEnded`.
    """

    count: int = 0
    last: int = 0
    at: float | None = None
    ok: bool | None = None
    code: int | None = None
    line: str = ""
    id: str = ""
    hidden: str = ""


class ErrorHistory(msgspec.Struct, array_like=True, gc=False):
    """An error line: how often it was seen, where, in which command, and whether that command passed later.

    `is_shown`: it was only seen in a text that was shown.
    """

    count: int
    last: int
    id: str
    command: str
    is_over: bool = False
    cures: list[str] = []  # files that were changed between the failure and the run that passed
    is_shown: bool = False


class CommitMade(msgspec.Struct, array_like=True, gc=False):
    """A commit; `pushed` is empty as long as nothing was pushed after it, and `MAYBE` when it may have been."""

    sha: str
    subject: str
    branch: str
    last: int
    pushed: str = ""
    folder: str = ""


class RepositoryState(msgspec.Struct):
    """What is known of version control: commits, the oldest first, and the files of a merge that has conflicts."""

    commits: list[CommitMade] = []
    branch: str = ""
    pulls: list[str] = []
    conflicts: list[str] = []
    since: int = 0  # since when there are conflicts
    is_behind: bool = False  # something was committed after the last commit that is known

    def learn(self, news: RepositoryNews, here: int) -> None:
        """Take in what a command did."""
        if news.pushed and news.is_pushed_first:
            self._pushed(news)
        if news.is_amended:
            del self.commits[-1:]
        if not news.is_dropped_last:
            self._take_back(news)
        known = {commit.sha for commit in self.commits}
        new = [
            CommitMade(sha, subject, on, here, folder=news.folder)
            for sha, subject, on in news.commits
            if sha not in known
        ]
        self.commits = [*self.commits, *new][-_KEPT_COMMITS:]
        if news.is_dropped_last:
            self._take_back(news)
        if new or news.is_settled or news.is_unseen:
            self.conflicts = []
        self.is_behind = news.is_unseen or (self.is_behind and not new)
        if news.conflicts:
            self.conflicts, self.since = list(news.conflicts)[:_KEPT_CONFLICTS], here
        if news.pushed and not news.is_pushed_first:
            self._pushed(news)
        if news.branch is not None:
            self.branch = "" if news.branch == MAYBE else news.branch
        if news.pull:
            self.pulls = [*(pull for pull in self.pulls if pull != news.pull), news.pull][-_KEPT_PULLS:]

    def _take_back(self, news: RepositoryNews) -> None:
        """Commits that a reset took away aren't there any more; of one to a commit that isn't known, none may be."""
        there = [commit for commit in self.commits if may_be_same(commit.folder, news.folder)]
        if news.head:
            at = next((i for i, one in enumerate(there) if _is_same_sha(one.sha, news.head)), -1)
            gone = there[-news.dropped :] if at < 0 and news.dropped else there[at + 1 :]
        else:
            gone = there[-news.dropped :] if news.dropped else []
        self.commits = [commit for commit in self.commits if not any(commit is one for one in gone)]

    def _pushed(self, news: RepositoryNews) -> None:
        """A push has the commit that it names, and what is in its repository: perhaps also folders around it."""
        branch = news.pushed
        named = [one for one in self.commits if news.pushed_to and _is_same_sha(one.sha, news.pushed_to)]
        folders = [news.folder, *(one.folder for one in named)]
        for commit in self.commits:
            if not any(may_be_same(commit.folder, folder) for folder in folders):
                if within(commit.folder, news.folder) or within(news.folder, commit.folder):
                    commit.pushed = commit.pushed or MAYBE
                continue
            if branch != MAYBE and (commit.branch == branch or not commit.branch):
                commit.pushed = branch
            elif not commit.pushed:
                commit.pushed = MAYBE


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
    reports: list[SpokenText] = []  # what the assistant said last before the user spoke
    decisions: dict[str, SpokenText] = {}
    refused: list[SpokenText] = []  # what the user turned down
    files: dict[str, FileHistory] = {}
    commands: dict[str, CommandHistory] = {}
    errors: dict[str, ErrorHistory] = {}
    tests: dict[str, FailedTest] = {}
    todos: dict[str, PlannedTask] = {}
    background: dict[str, PlannedTask] = {}
    facts: dict[str, LedgerFact] = {}
    pieces: list[EvidenceText] = []
    titles: dict[str, str] = {}
    repository: RepositoryState = msgspec.field(default_factory=RepositoryState)
    called: int = -1  # where the last call stood
    checked: int = -1  # where the last check passed: tests, a linter or a build
    check: str = ""
    home: str = ""  # the folder that the first call named beside its command

    def absorb(self, extracts: Iterable[LedgerExtract]) -> LedgerMemory:
        """Take in what some messages say, in order; returns itself."""
        self.__dict__.clear()  # what was weighed before
        for extract in extracts:
            self._pieces(extract.pieces)
            if extract.titles:
                self.titles.update(extract.titles)
                self.called = self.tokens
            for event in extract.events:
                self._event(event, extract.at)
            self.tokens += extract.tokens
        return self

    def _pieces(self, pieces: tuple[TextPiece, ...]) -> None:
        """Count facts once for each event: all pieces that one voice said in one place."""
        for (voice, source), some in groupby(pieces, _PLACE):
            said = list(some)
            self._count(dict.fromkeys(chain.from_iterable([piece.keys for piece in said])), VOICES[voice])
            self.pieces += [
                EvidenceText(self.tokens, voice, source, piece.text, order, piece.keys)
                for order, piece in enumerate(said, self.order)
            ]
            self.order += len(said)

    def _count(self, keys: dict[str, None], voice: int) -> None:
        facts, here, crowd = self.facts, self.tokens, len(keys)
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
            self._spoke(event)
        elif isinstance(event, AssistantWords):
            self.said.append(SpokenText(event.id, event.at, event.text[:_LONGEST_SAID], here))
            del self.said[:-_KEPT_SAID]
            for decision in event.decisions:
                self.decisions[decision] = SpokenText(event.id, event.at, decision, here)
        elif isinstance(event, TurnedDown):
            self._refused(SpokenText(event.id, event.at, event.what, here, event.words))
        elif isinstance(event, UserChose):
            asked = f"the user, asked “{event.question}”: {event.answer}"
            chosen = asked if event.answer else f"the user approved {event.question}"
            self.decisions[chosen] = SpokenText(event.id, event.at, chosen, here)
        elif isinstance(event, FileTouched):
            self._touched(event)
        elif isinstance(event, CommandRan):
            self.home = self.home or event.folder
            command = self._placed(event.command, event.folder)
            known = self.commands.pop(command, None) or CommandHistory()
            self.commands[command] = CommandHistory(known.count + 1, here, event.at, id=event.id)
        elif isinstance(event, CallEnded):
            self._ended(event)
        elif isinstance(event, PlanChanged):
            self._planned(event.update, at)
        elif isinstance(event, FilesRemoved):
            self._gone(event)
        elif isinstance(event, RepositoryNews):
            self.repository.learn(event, here)
        elif isinstance(event, BackgroundUpdate):
            known_task = self.background.get(event.id)
            if event.is_new or known_task:
                what = event.named(known_task.text if known_task else "")
                self.background[event.id] = PlannedTask(what, event.state, here, _since(known_task, event.state, at))

    def _spoke(self, event: UserWords) -> None:
        """A person spoke: what the assistant said last is what they answer, or turn down."""
        before = self.words[-1].last if self.words else -1
        report = self.said[-1] if self.said and self.said[-1].last > before else None
        open_refusal = self.refused[-1] if self.refused and not self.refused[-1].to else None
        if open_refusal is not None and open_refusal.last > before:
            open_refusal.to = clip(event.text, _LONGEST_ANSWER)
        elif report is not None and refuses(event.text):
            proposal = proposal_in(report.text, event.text[:40])
            self._refused(SpokenText(report.id, report.at, proposal, self.tokens, clip(event.text, _LONGEST_ANSWER)))
        if questions(event.text):
            self._questioned(event.text, before)
        if report is not None:
            self.reports = [*self.reports, report][-_KEPT_REPORTS:]
        to = proposal_in(report.text, event.text) if report is not None else ""
        self.words[1:] = [one for one in self.words[1:] if one.text != event.text]
        self.words.append(
            SpokenText(event.id, event.at, event.text, self.tokens, to, report.id if report is not None else "")
        )

    def _questioned(self, text: str, before: int) -> None:
        """What was decided or found out since the user spoke stands from now on with what they said to it."""
        for decision in self.decisions.values():
            if decision.last > before and not decision.to:
                decision.to = clip(text, _LONGEST_DOUBT)

    def _refused(self, what: SpokenText) -> None:
        """What was turned down isn't decided, nor is what the assistant said with it.

        What it had found out stands, unless it is what the user said no to.
        """
        with_it = self.said[-1].id if self.said else ""
        gone = [key for key, one in self.decisions.items() if one.id == with_it]
        for key in gone:
            if what.id == with_it or not is_finding(key):
                del self.decisions[key]
        self.refused = [*(one for one in self.refused if one.id != what.id), what][-_KEPT_REFUSALS:]

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

    def _placed(self, command: str, folder: str) -> str:
        """A command on one line; one that a call ran elsewhere than the first is another command, and says so."""
        line = one_line(command)
        return f"cd {folder} && {line}" if line and folder and folder != self.home else line

    def _folder(self, command: str) -> str:
        return folder_of(command) or self.home

    def _ended(self, event: CallEnded) -> None:
        what, here = event.what, self.tokens
        command = self._placed(event.command, event.folder)
        known = self.commands.get(command) if command else None
        if known is not None:
            known.ok, known.code, known.line, known.hidden = what.ok, what.code, what.line, event.hidden
        if event.is_check:
            self.checked, self.check = here, command
        for line in what.errors:
            trouble = self.errors.pop(line, None) or ErrorHistory(0, here, event.id, command)
            trouble.count, trouble.last, trouble.id, trouble.is_over = trouble.count + 1, here, event.id, False
            trouble.command, trouble.cures = command, []
            trouble.is_shown = event.is_shown and (trouble.is_shown or trouble.count == 1)
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
        where = self._folder(command)
        ran = _passed_with(command) if command and not what.errors else ()
        for trouble in self.errors.values():
            if (
                trouble.command in ran
                and may_be_same(where, self._folder(trouble.command))
                and trouble.last < self.tokens
                and not trouble.is_over
            ):
                trouble.is_over = True
                trouble.cures = self._changed_since(trouble.last)
        if not (what.is_green and event.runner):
            return
        for name, test in self.tests.items():
            before = self._folder(test.command)
            is_there = (
                may_be_same(where, before)
                or bool(within(before, where))
                or _is_of(name, test.command, within(where, before))
            )
            is_same = is_there and test.runner in (event.runner, "") and _covers(command, name, test.command)
            if test.command == command or is_same:
                test.is_failing = False

    def _changed_since(self, position: int) -> list[str]:
        changed = [(file.edited, path) for path, file in self.files.items() if file.edited > position and file.edits]
        return [path for _, path in sorted(changed, reverse=True)[:_KEPT_CURES]]

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

    def weigh(self, by: FactWeights) -> None:
        """Weigh facts in this way until something is taken in: a bench that compares ways."""
        self.__dict__.clear()
        self.__dict__["_weights"] = self._weighed(by)

    @cached_property
    def _weights(self) -> dict[str, float]:
        return self._weighed(WEIGHTS)

    def _weighed(self, by: FactWeights) -> dict[str, float]:
        lasts = {fact.last for fact in self.facts.values()}
        ages = {last: recency(self.tokens - last, by.floor) for last in lasts}
        return {key: weight(key, fact.said, fact.crowd) * ages[fact.last] for key, fact in self.facts.items()}

    @cached_property
    def heaviest(self) -> list[str]:
        """All facts by their weight as of now, the heaviest first; not to be changed."""
        return sorted(self._by_name, key=self._weights.__getitem__, reverse=True)

    @cached_property
    def densest(self) -> list[str]:
        """All facts by their weight for their length; not to be changed.

        How likely a fact is needed hardly depends on its length, but the room that it takes does. Of the weight the
        root: it tells apart what to show first, and overstates by how much.
        """
        worth = {key: sqrt(weight) / (len(key) + 2) for key, weight in self._weights.items()}
        return sorted(self._by_name, key=worth.__getitem__, reverse=True)

    @cached_property
    def _by_name(self) -> list[str]:
        return sorted(self.facts)

    @cached_property
    def alone(self) -> list[float]:
        """What each piece would be worth for its size, as of now, if nothing else were shown; not to be changed."""
        get = self._weights.get
        return [
            sum(map(get, piece.keys, repeat(0.0))) / (len(piece.text) + _HEADER_UNITS) if piece.keys else 0.0
            for piece in self.pieces
        ]


def _is_same_sha(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)


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


def _covers(command: str, test: str, failed: str) -> bool:
    """Whether a run of tests that passed ran this one, which failed in another run, and not only others (CMP-15)."""
    selected = _selection(command)
    if selected == _selection(failed):
        return True
    file = test.partition("::")[0] if "::" in test or "/" in test else ""
    paths = [word for flag, word in selected if not flag]
    if file and paths and not any(_is_in(word, test, file) for word in paths):
        return False
    before = [word for flag, word in _selection(failed) if not flag]
    if not file and paths and before and test not in " ".join(paths) and not _overlap(paths, before):
        return False
    return all(_names(flag, word, test) for flag, word in selected if flag)


def _is_of(test: str, failed: str, folder: str) -> bool:
    """Whether a test that failed in a run is one of a folder within that of the run."""
    words = _RUN_WORD.findall(failed[runner_end(failed) :])
    named = (test, *(word.strip("'\"").removeprefix("./") for word in words))
    return bool(folder) and any(f"{one}/".startswith(f"{folder}/") for one in named)


_RUN = re.compile(r"(?:'[^']*'|\"[^\"]*\"|[^;|&)'\"])*")
_RUN_WORD = re.compile(r"(?:'[^']*'|\"[^\"]*\"|\S)+")
_NARROWS = frozenset("-k -m -run --run -t --testNamePattern --grep -g --filter -R --ignore --deselect".split())
_ALL = frozenset({".", "./", "./...", "...", "all"})


def _selection(command: str) -> frozenset[tuple[str, str]]:
    """What a run of tests is narrowed to: paths and tests, and what its flags say; empty when all of them run."""
    start = runner_end(command)
    rest = _RUN.match(command, start)
    words = _RUN_WORD.findall(rest[0]) if rest is not None and start else []
    found: set[tuple[str, str]] = set()
    flag = ""
    for word in (one.strip("'\"") for one in words):
        name, is_given, value = word.partition("=")
        if flag:
            found.add((flag, word))
            flag = ""
        elif name in _NARROWS:
            flag = "" if is_given else name
            found |= {(name, value)} if is_given else set()
        elif not word.startswith("-") and word not in _ALL and ("/" in word or "::" in word or _TEST_WORD.match(word)):
            found.add(("", word.removeprefix("./")))
    return frozenset(found)


_TEST_WORD = re.compile(r"(?:Test|test_)\w|.+\.(?:py|[jt]sx?|rb|go|php|exs?)\Z")


def _is_in(word: str, test: str, file: str) -> bool:
    """Whether a path or name that was given to a runner is one of a test, or of a folder that it is in."""
    path, _, name = word.partition("::")
    path = path.rstrip("/.")
    return (path in file or file in path) and name.partition("[")[0] in test if path else name in test


def _overlap(some: list[str], others: list[str]) -> bool:
    """Whether one of the packages or folders is one of the others, or has one of them in it, or is in one."""
    parts = [[f"{path.removesuffix('...').rstrip('/')}/" for path in paths] for paths in (some, others)]
    return any(one.startswith(other) or other.startswith(one) for one in parts[0] for other in parts[1])


def _names(flag: str, word: str, test: str) -> bool:
    """Whether a flag that narrows a run leaves a test in."""
    words = re.findall(r"[\w.:/\[\]-]+", word)
    names = [one for one in words if one not in ("and", "or")]
    every = all if "and" in words else any
    if flag in ("--ignore", "--deselect"):
        return word.rstrip("/") not in test
    return flag != "-m" and "not" not in names and bool(names) and every(name in test for name in names)


def _passed_with(command: str) -> set[str]:
    """The commands that have passed when this one did: itself, and each that had to for the next to run."""
    if " && " not in command or "||" in command or ";" in command:
        return {command}
    return {command, *(part.strip() for part in command.split(" && "))}


def one_line(command: str) -> str:
    """A command on one line, bounded."""
    return " ".join(command[:_LONGEST_COMMAND].split())


_HEADER_UNITS = 30  # what it costs to open an excerpt of another call
_GAP_UNITS = 3
_LEAST_UNITS = 60
_OLDER = 0.5  # a fact that stands here, but stood elsewhere later
_LISTED = 0.6  # a fact that a list names already, without what it stood among
_AGAIN = 0.3  # what another place says of a fact that an excerpt holds already
_SPOKEN = 0.02
_GOAL_WORD = 0.06
_GOAL_MOST = 4
_WORD = re.compile(r"[A-Za-z_]{5,}")


@dataclass(frozen=True, slots=True)
class EvidenceTarget:
    """What evidence is to cover: the facts that no list names, and words of the goal."""

    listed: frozenset[str] = frozenset()
    shown: frozenset[str] = frozenset()  # stands in full elsewhere in the view: worth nothing here
    goal: frozenset[str] = frozenset()


def most_pieces(units: int) -> int:
    """How many pieces are worth looking at to fill so many units: several times what fits."""
    return 500 + units // 20


def goal_words(texts: Iterable[str]) -> frozenset[str]:
    """The words by which a piece is about the current goal."""
    found: set[str] = set()
    for text in texts:
        text = text[:2_000]
        if text.isascii():  # elsewhere, letters may become ASCII when they are lowered
            found.update(_WORD.findall(text.lower()))
        else:
            found.update(map(str.lower, _WORD.findall(text)))
    return frozenset(found)


@dataclass(slots=True)
class _EvidenceCandidate:
    piece: EvidenceText
    gains: dict[str, float]
    extra: float
    units: int


class EvidenceCover:
    """Greedy choice of the pieces that together say most for their size; `take` may be called again for more.

    No more than `most` pieces are looked at: those that would be worth most if they stood alone. What a piece is really
    worth is found out once it might be the next: until then it waits under the most that it can be.
    """

    def __init__(self, memory: LedgerMemory, wanted: EvidenceTarget, *, most: int) -> None:
        self.chosen: list[EvidenceText] = []
        self._memory, self._wanted = memory, wanted
        self._bounds = _bounds(memory, wanted)
        self._waiting = _best(self._bounds, most)
        self._candidates: dict[int, _EvidenceCandidate] = {}
        self._covered: dict[str, float] = {}
        self._opened: set[str] = set()
        self._heap: list[tuple[float, int]] = []

    def take(self, units: int, *, is_last: bool = False) -> int:
        """Choose pieces for at most `units` more; returns what is left of them. The last time, nothing is kept back."""
        heap = self._heap
        too_large: list[tuple[float, int]] = []
        while units > _LEAST_UNITS and self._has_next(units if is_last else None):
            stale, index = heapq.heappop(heap)
            candidate = self._candidates[index]
            if is_last and candidate.units > units:
                continue
            ratio = self._ratio(candidate)
            if -stale > ratio and self._has_next(units if is_last else None) and -heap[0][0] > ratio:
                heapq.heappush(heap, (-ratio, index))
                continue
            cost = self._cost(candidate)
            if cost > units:
                too_large.append((-ratio, index))
                continue
            units -= cost
            self._covered.update((key, self._covered.get(key, 1.0) * _AGAIN) for key in candidate.gains)
            self._opened.add(candidate.piece.source)
            self.chosen.append(candidate.piece)
        for entry in too_large:
            heapq.heappush(heap, entry)
        return units

    def _has_next(self, most: int | None) -> bool:
        """Whether a candidate of at most `most` units is left; the best of all then leads the heap."""
        heap, waiting, bounds, pieces = self._heap, self._waiting, self._bounds, self._memory.pieces
        while waiting and (not heap or bounds[waiting[-1]] >= -heap[0][0]):
            index = waiting.pop()
            if most is not None and len(pieces[index].text) > most:
                continue
            candidate = _candidate(self._memory, pieces[index], self._wanted)
            if candidate is not None:
                self._candidates[index] = candidate
                gain = sum(candidate.gains.values())  # as long as nothing was chosen, which is what it waited under
                heapq.heappush(heap, (-gain * (1 + candidate.extra) / (candidate.units + _HEADER_UNITS), index))
        return bool(heap)

    def _cost(self, candidate: _EvidenceCandidate) -> int:
        return candidate.units + (_GAP_UNITS if candidate.piece.source in self._opened else _HEADER_UNITS)

    def _ratio(self, candidate: _EvidenceCandidate) -> float:
        """The new weight that a piece brings for each unit; the bonus only sharpens what it brings."""
        covered = self._covered
        gain = sum(worth * covered.get(key, 1.0) for key, worth in candidate.gains.items())
        return gain * (1 + candidate.extra) / self._cost(candidate)


def _bounds(memory: LedgerMemory, wanted: EvidenceTarget) -> list[float]:
    """For each piece the most that it can be worth for its size."""
    shown, alone = wanted.shown, memory.alone
    if shown:
        get = memory.weights().get
        alone = [
            worth
            if shown.isdisjoint(piece.keys)
            else sum([get(key, 0.0) for key in piece.keys if key not in shown]) / (len(piece.text) + _HEADER_UNITS)
            for piece, worth in zip(memory.pieces, alone, strict=True)
        ]
    extra = 1 + _GOAL_WORD * min(len(wanted.goal), _GOAL_MOST) + _SPOKEN
    return [worth * extra for worth in alone]


def _best(bounds: list[float], most: int) -> list[int]:
    """The pieces that would be worth most if they stood alone, by index, the best last."""
    least = sorted(bounds)[-most] if len(bounds) > most else 0.0
    kept = [index for index, worth in enumerate(bounds) if worth >= least and worth > 0]
    return sorted(kept[:most], key=bounds.__getitem__)


def _candidate(memory: LedgerMemory, piece: EvidenceText, wanted: EvidenceTarget) -> _EvidenceCandidate | None:
    gains: dict[str, float] = {}
    weights, facts, here, shown, listed = memory.weights(), memory.facts, piece.last, wanted.shown, wanted.listed
    for key in piece.keys:
        worth = weights.get(key, 0.0)
        if not worth or key in shown:
            continue
        if key in listed:
            worth *= _LISTED
        if facts[key].last != here:
            worth *= _OLDER
        gains[key] = worth
    if not gains:
        return None
    words = wanted.goal & goal_words((piece.text,)) if wanted.goal else ()
    extra = _GOAL_WORD * min(len(words), _GOAL_MOST) + (_SPOKEN if piece.voice in (SAID, USER) else 0.0)
    return _EvidenceCandidate(piece, gains, extra, utf16_units(piece.text) + 2 + piece.text.count("\n"))


# CMP-14: a boundary is read back at every resume (SPD-3), so the ledger in it stays below this.
LIMIT_BYTES: Final = 40_000
_LEVEL = 6
_LEAST_FACTOR = 0.05
_FILLED, _AIM, _TRIES = 0.96, 0.99, 5  # a checkpoint that is too large is cut to so much of what fits
T = TypeVar("T")


class _PackedCaps(NamedTuple):
    """How much of each part is kept, in entries or UTF-16 units; `scaled` shrinks all of it."""

    word_units: int = 64_000
    said_units: int = 1_500
    decisions: int = 60
    read_files: int = 150
    commands: int = 160
    command_units: int = 300
    errors: int = 50
    healed: int = 40
    done: int = 40
    facts: int = 2_400
    piece_units: int = 44_000

    def scaled(self, factor: float) -> _PackedCaps:
        return _PackedCaps(*(int(cap * factor) for cap in self))


class _PackedWords(msgspec.Struct):
    """The words alone; all else in a memory is passed over."""

    words: list[SpokenText] = []


class PackedLedger(msgspec.Struct, frozen=True, omit_defaults=True, dict=True):
    """A packed memory: zlib over JSON, in the 85 characters that need no escape in JSON."""

    data: str = ""

    @classmethod
    def of(cls, state: SessionState) -> PackedLedger:
        """What the last boundary handed on; an empty one where there was none."""
        return _DECODER.decode(state.ledger)

    def encoded(self) -> msgspec.Raw:
        """As `SessionState` carries it."""
        return msgspec.Raw(msgspec.json.encode(self)) if self.data else NOTHING_KNOWN

    def memory(self, extracts: Iterable[LedgerExtract] = ()) -> LedgerMemory:
        """The memory, a fresh one each time, gone on with what some messages say."""
        memory = LedgerMemory()
        if self.data:
            memory = msgspec.json.decode(zlib.decompress(base64.b85decode(self.data)), type=LedgerMemory)
        for piece in memory.pieces:
            piece.keys = tuple(facts_in(piece.text))
        return memory.absorb(extracts)

    @cached_property
    def spoken(self) -> tuple[SpokenText, ...]:
        """What people said, word for word, oldest first."""
        if not self.data:
            return ()
        return tuple(msgspec.json.decode(zlib.decompress(base64.b85decode(self.data)), type=_PackedWords).words)


_DECODER = msgspec.json.Decoder(PackedLedger)


def pack_ledger(memory: LedgerMemory) -> PackedLedger:
    """A memory as a checkpoint. Too large a one keeps less of everything but what is always named.

    Compressing is the dear part. Less of the same text shrinks about as well, so that one try says how much fits.
    """
    ranked = _RankedFacts.of(memory)
    factor, raw = 1.0, _encoded(memory, ranked, 1.0)
    while True:
        packed = zlib.compress(raw, _LEVEL)
        size = -(-len(packed) * 5 // 4)  # as text: 5 characters for 4 bytes
        if size <= LIMIT_BYTES or factor < _LEAST_FACTOR:
            return PackedLedger(base64.b85encode(packed).decode())
        most = int(len(raw) * _AIM * LIMIT_BYTES / size)
        factor, raw = _less(memory, ranked, (factor, raw), most)


def _encoded(memory: LedgerMemory, ranked: _RankedFacts, factor: float) -> bytes:
    return msgspec.json.encode(_bounded(memory, ranked, _PackedCaps().scaled(factor)))


def _less(memory: LedgerMemory, ranked: _RankedFacts, before: tuple[float, bytes], most: int) -> tuple[float, bytes]:
    """The factor with which a memory takes at most so many bytes, and little less: between two that are tried."""
    above, size = before[0], len(before[1])
    below, fits = 0.0, b""
    middle = above / 2
    for _ in range(_TRIES):
        tried = _encoded(memory, ranked, middle)
        if len(tried) > most:
            above, size = middle, len(tried)
        else:
            below, fits = middle, tried
            if len(tried) > most * _FILLED:
                break
        middle = below + (above - below) * (most * _AIM - len(fits)) / (size - len(fits))
    return (below, fits) if fits else (middle, _encoded(memory, ranked, middle))


class _RankedFacts(NamedTuple):
    """Facts by weight and pieces by what they add, the best first; the same facts in the order of first mention."""

    facts: list[str]
    pieces: list[EvidenceText]
    mentioned: list[str]

    @classmethod
    def of(cls, memory: LedgerMemory) -> _RankedFacts:
        pieces = memory.pieces
        units = _PackedCaps().piece_units
        if sum(map(_piece_units, pieces)) > units:
            cover = EvidenceCover(memory, EvidenceTarget(), most=most_pieces(units))
            cover.take(units, is_last=True)
            pieces = cover.chosen
        best = memory.heaviest[: _PackedCaps().facts]
        kept = set(best)
        return cls(best, pieces, [key for key in memory.facts if key in kept])


def _bounded(memory: LedgerMemory, ranked: _RankedFacts, caps: _PackedCaps) -> LedgerMemory:
    """The memory without what weighs least: every changed file, open todo and failing test stays."""
    read = [path for path, file in memory.files.items() if not file.edits]
    forgotten = set(read[: max(0, len(read) - caps.read_files)])
    pieces = _within(ranked.pieces, caps.piece_units)
    sources = {piece.source for piece in pieces}
    facts = set(ranked.facts[: caps.facts])
    commands = _last(memory.commands, caps.commands)
    failing = {name: test for name, test in memory.tests.items() if test.is_failing}
    healed = _last({name: test for name, test in memory.tests.items() if not test.is_failing}, caps.healed)
    return LedgerMemory(
        tokens=memory.tokens,
        order=memory.order,
        words=_words(memory.words, caps.word_units),
        said=[_clipped(one, caps.said_units) for one in memory.said],
        reports=[_clipped(one, caps.said_units) for one in memory.reports],
        decisions=_last(memory.decisions, caps.decisions),
        refused=memory.refused,
        files={path: file for path, file in memory.files.items() if path not in forgotten},
        commands={clip(line, caps.command_units): known for line, known in commands.items()},
        errors=_last(memory.errors, caps.errors),
        tests={name: test for name, test in memory.tests.items() if name in failing or name in healed},
        todos=_todos(memory.todos, caps.done),
        background=_last(memory.background, caps.done),
        facts={key: memory.facts[key] for key in ranked.mentioned if key in facts},
        pieces=[msgspec.structs.replace(piece, keys=()) for piece in pieces],
        titles={source: title for source, title in memory.titles.items() if source in sources},
        repository=memory.repository,
        called=memory.called,
        checked=memory.checked,
        check=memory.check,
        home=memory.home,
    )


def _piece_units(piece: EvidenceText) -> int:
    return len(piece.text) + 20


def _within(pieces: Sequence[EvidenceText], units: int) -> list[EvidenceText]:
    """The first pieces that fit, in the order in which they stood."""
    kept = []
    for piece in pieces:
        units -= _piece_units(piece)
        if units < 0:
            break
        kept.append(piece)
    return sorted(kept, key=lambda piece: piece.order)


def _words(words: list[SpokenText], units: int) -> list[SpokenText]:
    """The first and the last always, then the newest; a very long one keeps its beginning and its end."""
    each = max(400, units // 3)
    kept: dict[int, SpokenText] = {}
    always = {0, len(words) - 1}
    for index in [*sorted(always, reverse=True), *range(len(words) - 2, 0, -1)] if words else ():
        one = _clipped(words[index], each)
        if index in always or len(one.text) <= units:
            kept[index] = one
            units -= len(one.text) + 20
    return [kept[index] for index in sorted(kept)]


def _clipped(one: SpokenText, units: int) -> SpokenText:
    return one if len(one.text) * 2 <= units else msgspec.structs.replace(one, text=clip(one.text, units))


def _last(entries: Mapping[str, T], most: int) -> dict[str, T]:
    return dict(list(entries.items())[-most:]) if most else {}


def _todos(todos: Mapping[str, PlannedTask], done: int) -> dict[str, PlannedTask]:
    finished = [key for key, task in todos.items() if task.status == "done"]
    gone = set(finished[: max(0, len(finished) - done)])
    return {key: task for key, task in todos.items() if key not in gone}
