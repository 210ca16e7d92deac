"""What messages say, each read once: tool calls, todos, outcomes and pieces of text with their facts; and the index of
what was read (CMP-5).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from perdure.compaction.ledger.facts import (
    clipped,
    counted_in,
    facts_in,
    kind_of,
    normal_path,
    pieces,
    short_path,
    unnumbered,
    without_reminders,
)
from perdure.compaction.ledger.repository import (
    RepositoryNews,
    answers,
    checks,
    hides_outcome,
    only_shows,
    repository_news,
    runs_checks,
    runs_no_tests,
    shows_log,
    starts_in_background,
)
from perdure.compaction.ledger.statements import decisions_in, is_said
from perdure.memory.trust.messages import without_secrets
from perdure.memory.trust.secrets import Redactor
from perdure.transcript.blocks import Block, Text, Thinking, ToolResult, ToolUse
from perdure.transcript.messages import Message, command_in, is_of_person, spoken_text
from perdure.transcript.tokens import base_tokens
from perdure.transcript.tool_calls.actions import (
    TO_THE_END,
    UNDONE,
    AnsweredCall,
    AskedCall,
    Happened,
    HistoryReader,
    MessageText,
    Span,
    ToolAction,
    ToolTable,
    tells_nothing,
)
from perdure.transcript.tool_calls.background import BackgroundUpdate, background_updates
from perdure.transcript.tool_calls.shell import Removal, exit_code, without_head
from perdure.transcript.tool_calls.todos import TodoUpdate, todo_update

if TYPE_CHECKING:  # who reads a log without a session, as the plugin's hooks do, pays for no view (PLG-1)
    from perdure.context.view import ContextView
    from perdure.settings import Settings

_TYPED_CHARS = 1_500  # numbers in a shorter message were typed, each for itself
_SAID_TIMES = 12  # as much as of a result can become evidence of what somebody said, or wrote into a file
_SUMMARY_CHARS = 3_000  # runners sum up at the end
_LINES = 400  # of a long result, so many lines at each end are looked at
_ERROR = re.compile(
    r"^\s*(?:E   +\S|\S*(?:Error|Exception|Fault)\b\s*[:(]|(?:error|fatal|panic|FATAL|ERROR|Error|ERR!)\b.{0,40}?[:\[]|"
    r"npm ERR!|error(?:\[\w+\])?:|FAIL\b|\S+\.\w+:\d+(?::\d+)?:\s*(?:error|fatal|undefined|cannot)|"
    r"\S+\.\w+\(\d+,\d+\): error|Traceback|bash: .*: |.*(?:command not found|[Nn]o such file or directory|"
    r"Permission denied|cannot find|is not defined|undefined:|assertion failed|String to replace not found|"
    r"has not been read|tool_use_error))",
)
# What a text must hold somewhere for one of these patterns to match; looking for plain text is many times faster.
_ERROR_HINTS = (
    *("Error", "error", "Exception", "Fault", "Fatal", "fatal", "FATAL", "panic", "ERROR", "ERR!", "FAIL", "Traceback"),
    *("not found", "o such", "denied", "cannot", "not defined", "undefined", "has not been", "assertion failed"),
)
_DULL = re.compile(
    r"^\s*(?:Traceback|FAIL$|exit status \d+$|Error: Exit code \d+$|Exit code \d+$|"
    r"(?:\d+[:-]?\s*)?[+-]?\s*(?:return|raise|throw|if|except|catch|panic\(|(?:\w+\.)+\w*(?:Error|Exception)\w*\())"
)
_FAILED = (
    re.compile(r"^\s*--- FAIL: (\S+)"),  # go
    re.compile(r"^(?:FAILED|ERROR) (\S+\.py(?:::[^\s\[]+(?:\[.*\](?= - |$)|\S*))?)"),  # pytest, short summary
    re.compile(r"^(\S+\.py::[^\s\[]+(?:\[.*\])?) (?:FAILED|ERROR)"),  # pytest -v
    re.compile(r"^(?:FAIL|ERROR): (test\w+ \([\w.]+\))"),  # unittest
    re.compile(r"^test (\S+) \.\.\. FAILED"),  # cargo
    re.compile(r"^\s*(?:FAIL|❯) +(\S+\.(?:test|spec)\.\w+)"),  # jest, vitest
    re.compile(r"^\s*(?:✕|✗|×|\(fail\)) (.{3,100}?)(?: \[?\(?[\d.]+ ?m?s\]?\)?)?$"),  # jest, vitest, bun
    re.compile(r"^\s*● (.{3,120} › .{3,100})$"),  # jest
    re.compile(r"^rspec (\./\S+)"),  # rspec
    re.compile(r"^not ok \d+ -? ?(.{3,100})$"),  # tap
    re.compile(r"^\[ERROR\] +(\w+(?:\.\w+)+):\d+"),  # maven
    re.compile(r"^\s*Failed (\w+(?:\.\w+)+) \["),  # dotnet
    re.compile(r"^(\w+(?:\.\w+)* > \w.{0,80}) FAILED$"),  # gradle
)
_PASSED = (
    re.compile(r"^\s*--- PASS: (\S+)"),
    re.compile(r"^(\S+\.py::[^\s\[]+(?:\[.*\])?) PASSED"),
    re.compile(r"^test (\S+) \.\.\. ok"),
    re.compile(r"^\s*(?:PASS|✓) +(\S+\.(?:test|spec)\.\w+)"),
    re.compile(r"^\s*(?:✓|✔|\(pass\)) (.{3,100}?)(?: \[?\(?[\d.]+ ?m?s\]?\)?)?$"),
    re.compile(r"^(test\w+ \([\w.]+\)) \.\.\. ok"),
)
_FAILED_HINTS = ("FAIL", "ERROR", "✕", "✗", "×", "(fail)", "●", "\nrspec ", "\nnot ok", "Failed ")
_PASSED_HINTS = ("--- PASS", "PASSED", "... ok", "✓", "✔", "(pass)", "PASS ")
_SUMMARY = re.compile(
    r"(?:=+ .*(?:passed|failed|error).* =+|\d+ (?:passed|failed|failing|passing|pass|fail)\b|^ok\s+\S+|^PASS$|^FAIL\b|"
    r"^Tests?:|^Ran \d+ tests?|test result:|Found \d+ errors?|All checks passed|Success: no issues|BUILD \w+|"
    r"^OK\b|files? changed|compiled|Successfully)",
    re.IGNORECASE,
)
# In small letters; the last three are what else is taken for an s or an i.
_SUMMARY_HINTS = (
    *("pass", "fail", "error", "ok", "test", "success", "build ", "changed", "compiled"),
    *("\u017f", "\u0131", "\u0307"),
)
_GREEN = re.compile(r"(?<!\d)[1-9]\d* pass(?:ed|ing)?\b|^(?:ok\s+\S|PASS$|OK\b)|test result: ok", re.MULTILINE)
_GREEN_HINTS = (" pass", "ok", "PASS", "OK")
_RED = re.compile(
    r"(?<!\d)[1-9]\d* (?:fail(?:ed|ing)?|errors?)\b|^FAIL(?:ED|\b)|--- FAIL|test result: FAILED", re.MULTILINE
)
_RED_HINTS = (" fail", " error", "FAIL")
# What runners say at their end, in their own words: `2 failed, 3 passed in 1s`, `Tests: 1 failed`, `Found 3 errors.`
_FAILURE = re.compile(
    r"(?:--- )?FAIL(?:\Z|[:\s]\s*\S)|FAILED(?:\Z| \(| \S+::)|FAILURES!|BUILD FAIL|test result: FAILED|Failed! |"
    r"not ok \d|# fail [1-9]|.*\b(?:Failures|Errors): [1-9]|make(?:\[\d+\])?: \*\*\* "
)
_COUNTED = re.compile(
    r"(?:(?:tests?|(?:test )?(?:files|suites)|found|with|total of) )?[1-9]\d* (?:tests? )?"
    r"(?:fail|failed|failing|failures?|errors?)"
    r"(?: tests?| generated| found| total)?"
    r"(?: (?:in [\d.]+ ?(?:ms|s|m|seconds?|files?)|out of \d+|during \w+)\b.*)?[.!]?",
    re.IGNORECASE,
)
_CLAUSE = re.compile(r"[,;:|()]|\band\b")
_FRAME = " =-!✖✗×❌#\t"
_RUNNER = re.compile(
    r"\b(pytest|go test|cargo (?:test|nextest)|jest|vitest|mocha|(?:npm|yarn|pnpm|bun)(?: run)? test\S*|rspec|phpunit|"
    r"unittest|tox|nox|ctest|mvn \S*test|gradlew? \S*test|dotnet test|swift test|mix test|make (?:test|check)\S*|"
    r"mise run test\S*|runtests\S*|bin/test\S*|rake test)"
)
_CLEAN = re.compile(
    r"\ball (?:checks |tests )?pass|success|no (?:issues|errors|problems)|\b0 (?:errors|issues|problems|failures)|"
    r"\b(?:exit\w*|status|code|rc)\W{1,3}0\b|compiled success|^PASS|^ok\b",
    re.IGNORECASE,
)
_LINTS = re.compile(r"\b(?:lint\w*|biome|eslint|prettier|ruff|mypy|tsc|fmt|format)\b")  # these name no tests
_STRIP = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass(frozen=True, slots=True)
class ResultOutcome:
    """What a result says. `code` is None when no exit code is told; `is_green` when tests ran and none failed.

    `ok` is None when nothing says how it ended: it runs on, or no code and no mark of an error came, but error lines.
    """

    ok: bool | None
    code: int | None
    line: str
    errors: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    passed: tuple[str, ...] = ()
    is_green: bool = False
    is_red: bool = False


def read_outcome(text: str, *, is_error: bool, is_run: bool) -> ResultOutcome:
    """Read a result. Only runs have tests and exit codes; errors are looked for in runs and in failed calls."""
    if not is_run and not is_error:
        return ResultOutcome(True, None, "")
    text = _STRIP.sub("", text) if "\x1b" in text else text
    code = exit_code(text) if is_run else None
    ok: bool | None = not is_error and (code is None or code == 0)
    lines = _ends(text)
    failed, passed = _tests(text, lines) if is_run else ((), ())
    end = text[-_SUMMARY_CHARS:]
    is_red = bool(failed) or (is_run and _has(end, _RED_HINTS) and bool(_RED.search(end)))
    is_green = is_run and bool(ok) and not is_red and _has(end, _GREEN_HINTS) and bool(_GREEN.search(end))
    errors = _errors(lines, [hint for hint in _ERROR_HINTS if hint in text]) if not is_green else ()
    return ResultOutcome(ok, code, _line(lines, errors, ok=bool(ok)), errors, failed, passed, is_green, is_red)


def says_failure(line: str) -> bool:
    """Whether in this line a test runner, a linter or a build tells of failures; a sentence with such words doesn't."""
    if _FAILURE.match(line):
        return True
    clauses = _CLAUSE.split(line) if any(char.isdigit() for char in line) else ()
    return any(_COUNTED.fullmatch(clause.strip(_FRAME)) for clause in clauses)


def runner_of(command: str) -> str:
    """The test runner that a command calls, if any: what a later green run of it heals."""
    found = _RUNNER.search(command)
    return found[1].split()[0] if found else ""


def runner_end(command: str) -> int:
    """Where the words begin that a command gives to its test runner; 0 when it calls none."""
    found = _RUNNER.search(command)
    return found.end() if found else 0


def _has(text: str, hints: tuple[str, ...]) -> bool:
    return any(hint in text for hint in hints)


def _ends(text: str) -> list[str]:
    lines = text.split("\n")
    return lines if len(lines) <= 2 * _LINES else [*lines[:_LINES], *lines[-_LINES:]]


def _tests(text: str, lines: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    failed = _named(_FAILED, lines) if _has(f"\n{text}", _FAILED_HINTS) else ()
    passed = _named(_PASSED, lines) if _has(text, _PASSED_HINTS) else ()
    return failed, tuple(name for name in passed if name not in failed)


def _named(patterns: tuple[re.Pattern[str], ...], lines: list[str]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for line in lines:
        if len(line) > 400:
            continue
        for pattern in patterns:
            match = pattern.match(line)
            if match:
                found[match[1].strip().rstrip(":")] = None
                break
    return tuple(found)[:60]


def _errors(lines: list[str], hints: list[str]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for line in lines if hints else ():
        head = line[:300]
        if (
            len(line) > 6
            and len(found) < 6
            and any(hint in head for hint in hints)
            and _ERROR.match(head)
            and not _DULL.match(line)
        ):
            found[" ".join(line.split())[:220]] = None
    return tuple(found)


def _line(lines: list[str], errors: tuple[str, ...], *, ok: bool) -> str:
    """The line that says best how it went: a summary, else for a failure its first error, else the last line."""
    told = [" ".join(line.split()) for line in lines[-40:] if line.strip() and not line.startswith("</")]
    summaries = _may_sum_up("\n".join(told))
    if ok and summaries and (red := next(filter(_is_red, reversed(told)), "")):
        return red.strip("= ")[:120]  # of several runs, the one that failed says whether all is well
    for line in reversed(told) if summaries else ():
        # In this order: a long line of digits is dear to search.
        if len(line) < 200 and _may_sum_up(line) and _SUMMARY.search(line):
            return line.strip("= ")[:120]
    if not ok and errors:
        return errors[0][:120]
    return told[-1][:100] if told else ""


def _is_red(line: str) -> bool:
    return len(line) < 200 and says_failure(line)


def _may_sum_up(text: str) -> bool:
    return _has(text.lower(), _SUMMARY_HINTS)


FAILURES, UNSEEN, ANSWER = "failures", "unseen", "answer"
SAID, INPUT, USER, OUTPUT, THOUGHT, REPORT = range(6)  # who said it; a report is what a sub-agent tells the agent

_ABOUT = ("subject", "description", "pattern", "query", "task_id", "bash_id", "session_id", "url", "prompt", "content")
_AWAY = re.compile(r"^\s*cd\s+\S+\s*(?:&&|;)\s*")  # where a command runs says nothing of what it does
_TITLE_CHARS = 44
_LINK = re.compile(r"https?://\S+")
_SAID_WITH_IT = re.compile(r"the user said:\s*(.+?)(?:\s*\n\nNote: The user's next message|\Z)", re.DOTALL)
_REFUSED_CHARS = 160  # of a command that was refused
_WORDS_CHARS = 600  # of what a user said to a call that they refused, or to a question


class TextPiece(msgspec.Struct, frozen=True, gc=False):
    """A piece of about 200 characters: who said it, its facts, and the call or message that it stands in."""

    voice: int
    text: str
    keys: tuple[str, ...]
    source: str


class UserWords(NamedTuple):
    """What a person said."""

    id: str
    at: float | None
    text: str


class AssistantWords(NamedTuple):
    """What the assistant told the user, and the sentences in it that state a decision."""

    id: str
    at: float | None
    text: str
    decisions: tuple[str, ...]


class TurnedDown(NamedTuple):
    """A user refused a call; `words` are what they said to it."""

    id: str
    at: float | None
    what: str
    words: str


class _CodexAnswer(msgspec.Struct):
    answers: list[str]


class _CodexAnswers(msgspec.Struct):
    answers: dict[str, _CodexAnswer]


class UserChose(NamedTuple):
    """A user answered a question of a tool, or approved a plan: then nothing more is known of the answer."""

    id: str
    at: float | None
    question: str
    answer: str


class FileTouched(NamedTuple):
    """A file was read or changed; `names` are the identifiers written into it.

    It isn't certain when a command failed that was to change it, or when a command was to print it.
    """

    path: str
    deed: str
    span: str
    names: tuple[str, ...]
    is_certain: bool = True


class FilesRemoved(NamedTuple):
    """Files were taken away, or put back to what they were; `is_certain` when the command says that it worked."""

    fate: Removal
    is_certain: bool


class CommandRan(NamedTuple):
    """A command was run; `folder`: where, as the call says it beside the command."""

    id: str
    at: float | None
    command: str
    runner: str
    folder: str = ""


class CallEnded(NamedTuple):
    """A call came back; `command` is empty when it wasn't a command."""

    id: str
    command: str
    runner: str
    what: ResultOutcome
    is_check: bool = False  # it passed, and ran tests, a linter or a build
    # How it ended isn't how its work did: well, as a pipe does, but tests told of `FAILURES`, or nobody saw (`UNSEEN`);
    # or with 1, which is an `ANSWER`.
    hidden: str = ""
    folder: str = ""
    is_shown: bool = False  # it only showed a text: what stands there of errors didn't happen here


class PlanChanged(NamedTuple):
    """The plan changed."""

    update: TodoUpdate


Event = (
    UserWords
    | AssistantWords
    | TurnedDown
    | UserChose
    | FileTouched
    | FilesRemoved
    | CommandRan
    | CallEnded
    | PlanChanged
    | BackgroundUpdate
    | RepositoryNews
)


@dataclass(frozen=True, slots=True)
class LedgerExtract:
    """All that the ledger takes from one message."""

    id: str
    at: float | None
    tokens: int
    pieces: tuple[TextPiece, ...]
    events: tuple[Event, ...]
    titles: tuple[tuple[str, str], ...] = ()  # a line for each call: its tool and what it was about
    happened: tuple[Happened, ...] = ()  # for the trackers of what comes back, so that nobody reads a call twice


class ToldCall(NamedTuple):
    """What the ledger takes from a call whose result has not come."""

    title: str
    events: tuple[Event, ...]  # what it does, if it is not refused


@dataclass(slots=True)
class LedgerExtractor:
    """Reads messages in order; it remembers open calls, the file that is open, and the tools of this agent."""

    history: HistoryReader = field(default_factory=HistoryReader)
    redactor: Redactor = field(default_factory=Redactor)  # SEC-5: what is read goes into records, notes and states
    _calls: dict[str, ToldCall] = field(default_factory=dict)
    _file: str = ""  # the file that an editor without paths has open
    _outputs: dict[str, str] = field(default_factory=dict)  # files that runs of tests write, by name, and the runner

    def copy(self) -> LedgerExtractor:
        """One that goes on from here by itself."""
        redactor = replace(self.redactor, families=[], marks=self.redactor.marks.copy())
        return LedgerExtractor(self.history.copy(), redactor, self._calls.copy(), self._file, self._outputs.copy())

    def extract(self, message: Message) -> LedgerExtract:
        """What a message says. Summaries and restored content are never a source: they repeat what was said."""
        found: list[TextPiece] = []
        events: list[Event] = []
        happened: list[Happened] = []
        tokens = 0
        if tells_nothing(message):
            return LedgerExtract(message.id, message.at, 0, (), ())
        message = without_secrets(message, self.redactor)
        for index, block in enumerate(message.blocks):
            value = block.value
            one = self.history.take(message, index, value)
            if one is not None:
                happened.append(one)
            if isinstance(one, MessageText):
                tokens += self._text(message, one, found, events)
            elif isinstance(value, ToolUse):
                tokens += self._use(message, self.history.open_calls[value.id], found, events)
            elif isinstance(value, ToolResult):
                tokens += self._result(message, value, one, found, events)
            elif isinstance(value, Thinking):
                _add(found, THOUGHT, value.thinking, message.id)
                tokens += base_tokens(value.thinking)
        titles = tuple((use.id, self._calls[use.id].title) for use in message.tool_uses if use.id in self._calls)
        return LedgerExtract(message.id, message.at, tokens, tuple(found), tuple(events), titles, tuple(happened))

    def _text(self, message: Message, said: MessageText, found: list[TextPiece], events: list[Event]) -> int:
        text = said.text
        tokens = base_tokens(text)
        if message.origin == "model":
            _add(found, SAID, text, message.id)
            if is_said(text):
                events.append(AssistantWords(message.id, message.at, text.strip(), decisions_in(text)))
            return tokens
        updates = list(background_updates(said))
        events += updates
        words = spoken_text(text) if is_of_person(message) else ""
        if words and _LINK.fullmatch(words):  # which by itself says nothing of what is wanted
            words = f"{command_in(text)} {words}".lstrip()
        if words:
            _add(found, USER, words, message.id)
            events.append(UserWords(message.id, message.at, words))
        else:
            _add(found, REPORT if any(one.result for one in updates) else OUTPUT, text, message.id)
        return tokens

    def _shown_run(self, command: str) -> str | None:
        """The runner whose output a command shows, from the file that it went to; None when it shows no such file."""
        found = (runner for name, runner in self._outputs.items() if name in command)
        return next(found, None) if runs_no_tests(command) else None

    def _use(self, message: Message, asked: AskedCall, found: list[TextPiece], events: list[Event]) -> int:
        use, arguments, action = asked
        text = "\n".join(_strings(arguments))
        _add(found, INPUT, text, use.id)
        names = _names(action.written)
        does: list[Event] = []
        if action.kind in ("edit", "write") and not action.files and self._file:
            does.append(FileTouched(self._file, "edit", "", names or _names(text)))
        for file in action.files:
            self._file = normal_path(file.path)
            written = names if file.kind in ("edit", "write") else ()
            does.append(FileTouched(self._file, file.kind, _lines(file.span), written))
        if action.kind == "run" and runs_checks(action.command):
            written_to = [file.path.rpartition("/")[2] for file in action.files if file.kind in ("edit", "write")]
            self._outputs.update(dict.fromkeys(written_to, runner_of(action.command)))
        if action.kind == "run" and action.command:
            does.append(CommandRan(use.id, message.at, action.command, runner_of(action.command), action.folder))
        planned = todo_update(action.kind, use.name, arguments)
        if planned is not None and planned.how != "added":  # what is added has its id from the result
            events.append(PlanChanged(planned))
        about = next((v for k in _ABOUT if isinstance(v := arguments.get(k), str) and v), action.command)
        subject = short_path(action.files[0].path) if action.files and not action.command else action.command or about
        title = " ".join(f"{use.name} {_AWAY.sub('', subject[:300])}".split())[:_TITLE_CHARS].rstrip()
        self._calls[use.id] = ToldCall(title, tuple(does))
        return base_tokens(text)

    def _result(
        self,
        message: Message,
        result: ToolResult,
        answered: Happened | None,
        found: list[TextPiece],
        events: list[Event],
    ) -> int:
        whole = result.text()
        told = self._calls.pop(result.tool_use_id, None)
        call = answered if isinstance(answered, AnsweredCall) and told is not None else None
        action = call.action if call else ToolAction("other")
        text = clipped(without_reminders(whole))
        if action.kind == "read":
            text = unnumbered(text)
        if action.kind != "todo":
            is_printed = action.kind in ("run", "input")
            said = without_head(text) if is_printed else text
            _add(found, REPORT if action.kind == "agent" else OUTPUT, said, result.tool_use_id)
        refused_by = message.refused_by(result.tool_use_id)  # its text may say so, too: that is the tool's (SEC-1)
        is_refused = refused_by is not None
        is_run = action.kind in ("run", "input", "stop")
        what = read_outcome(text, is_error=bool(result.is_error), is_run=is_run and not is_refused)
        shown_run = self._shown_run(action.command) if action.kind == "run" else None
        is_quoting = action.kind == "run" and shown_run is None and runs_no_tests(action.command)
        if is_quoting and not shows_log(action.command, of_tests=True):
            what = replace(what, failed=(), passed=())
        if is_run and _LINTS.search(action.command) and not runner_of(action.command):
            what = replace(what, failed=(), passed=())
        if is_run and what.errors and what.code is None and result.is_error is None:
            what = replace(what, ok=None)  # nothing says that it went well, and something that it may not have
        is_certain = bool(what.ok) and not whole.startswith(UNDONE)
        background = list(background_updates(call)) if call else []
        for one in background:
            if one.where and runs_checks(action.command):
                self._outputs[one.where.rpartition("/")[2]] = runner_of(action.command)
        if call and told and not is_refused:
            events += _done(told.events, is_run=is_run, is_certain=is_certain)
            written = {normal_path(file.path).rpartition("/")[2] for file in action.files if file.kind != "read"}
            for fate in action.removals if is_certain or is_run else ():
                events.append(
                    FilesRemoved(fate, is_certain and fate.is_sure and fate.path.rpartition("/")[2] not in written)
                )
        if is_refused:  # nothing was done, and the refusal is no error of the work
            if call and told and refused_by == "user":
                events.append(_turned_down(call, told.title, whole, message.at))
        elif action.kind == "run" and (
            any(not one.has_ended for one in background) or (what.ok and starts_in_background(action.command))
        ):
            started = ResultOutcome(None, None, "started in the background")
            events.append(CallEnded(result.tool_use_id, action.command, "", started, folder=action.folder))
            news = repository_news(action.command, "", ok=True, folder=action.folder)
            events += [news] if news is not None else []
        elif is_run or what.errors:
            command = action.command if action.kind == "run" else ""
            hidden = _hidden(command, what)
            runner = "" if is_quoting else runner_of(command) or shown_run or ""
            is_shown = bool(what.ok) and is_quoting and only_shows(command) and not shows_log(command)
            has_passed = bool(what.ok) and not (what.failed or what.is_red or what.errors or hidden) and checks(command)
            events.append(
                CallEnded(result.tool_use_id, command, runner, what, has_passed, hidden, action.folder, is_shown)
            )
            news = repository_news(command, text, ok=is_certain, folder=action.folder)
            events += [news] if news is not None else []
        if call and call.is_users and not is_refused:
            events += _answered(call, whole, message.at)
        if call and action.kind == "todo" and not result.is_error:
            planned = todo_update(action.kind, call.use.name, call.arguments, whole)
            if planned is not None and planned != todo_update(action.kind, call.use.name, call.arguments):
                events.append(PlanChanged(planned))
        events += background
        return base_tokens(whole)


def _hidden(command: str, what: ResultOutcome) -> str:
    """What is hidden behind the end of a command: failures of checks, whatever became of them, or an answer."""
    has_failures = what.is_red or what.errors or says_failure(what.line)
    if what.code == 1 and not has_failures and answers(command):
        return ANSWER
    if not what.ok or not command:
        return ""
    if says_failure(what.line):
        return FAILURES if runs_checks(command) else ""
    is_seen = what.is_green or (_CLEAN.search(what.line) and not what.errors)
    return UNSEEN if not is_seen and hides_outcome(command) else ""


def block_text(block: Block) -> str:
    """What a block says, as the ledger reads it."""
    value = block.value
    if isinstance(value, Text):
        return value.text
    if isinstance(value, ToolUse):
        return "\n".join(_strings(value.input))
    return value.text() if isinstance(value, ToolResult) else ""


def _lines(span: Span | None) -> str:
    """Which lines were read: 10-40, 10- or nothing."""
    return f"{span[0]}-{'' if span[1] >= TO_THE_END else span[1]}" if span else ""


def _done(events: tuple[Event, ...], *, is_run: bool, is_certain: bool) -> Iterator[Event]:
    """What a call did, as its result has it: an edit that failed changed nothing, a command that failed perhaps did."""
    for event in events:
        if not isinstance(event, FileTouched):
            yield event
        elif is_certain or (is_run and event.deed != "read"):
            yield event._replace(is_certain=is_certain and not (is_run and event.deed == "read"))


def _add(found: list[TextPiece], voice: int, text: str, source: str) -> None:
    text = clipped(text, _SAID_TIMES)
    is_shown = voice in (OUTPUT, REPORT, INPUT) or len(text) > _TYPED_CHARS
    counted = counted_in(text) if is_shown else frozenset[str]()
    for piece in pieces(text):
        keys = facts_in(piece)
        found.append(TextPiece(voice, piece, tuple([key for key in keys if key not in counted]), source))


def _strings(value: Any) -> Iterator[str]:
    """Every string of an input, in its order."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)


def _names(text: str) -> tuple[str, ...]:
    """The first identifiers of a text."""
    if not text:
        return ()
    names = [key for key in facts_in(text[:6_000]) if kind_of(key) == "name"]
    return tuple(names[:12])


def _answered(call: AnsweredCall, text: str, at: float | None) -> Iterator[Event]:
    """What the user chose, of the questions that a tool put to them; and that they approved a plan."""
    identity = call.use.id
    if call.action.kind == "plan":
        answer = "" if call.is_approval else text.strip()[:_WORDS_CHARS]
        yield UserChose(identity, at, f"the plan “{_plan_title(call)}”", answer)
        return
    asked = call.arguments.get("questions")
    asked = asked if isinstance(asked, list) else [call.arguments]
    questions = [q for one in asked if isinstance(one, dict) and isinstance(q := one.get("question"), str) and q]
    if (given := _answers_of_codex(text, asked)) is not None:
        yield from (UserChose(identity, at, question, answer[:_WORDS_CHARS]) for question, answer in given)
        return
    places = [text.find(f'"{question}"="') for question in questions]
    for index, question in enumerate(questions):
        if places[index] >= 0:
            start = places[index] + len(question) + 4
            end = next((place for place in places[index + 1 :] if place > start), len(text))
            answer = re.split(r'"(?=, ?\Z|\.?\s*\Z|\. [A-Z])', text[start:end].rstrip(), maxsplit=1)[0]
            yield UserChose(identity, at, question, answer[:_WORDS_CHARS])
        elif len(questions) == 1 and text.strip():
            yield UserChose(identity, at, question, text.strip()[:_WORDS_CHARS])


def _answers_of_codex(text: str, asked: list[Any]) -> list[tuple[str, str]] | None:
    """Questions with what was answered, where that is Codex's object of answers by the ids of questions."""
    try:
        found = msgspec.json.decode(text, type=_CodexAnswers).answers
    except msgspec.MsgspecError:
        return None
    questions = {one.get("id"): one.get("question") for one in asked if isinstance(one, dict)}
    told = ((questions.get(key), ", ".join(one.answers)) for key, one in found.items())
    return [(question, answer) for question, answer in told if isinstance(question, str) and question and answer]


def _turned_down(call: AnsweredCall, title: str, text: str, at: float | None) -> TurnedDown:
    """A call that the user refused, with what they said to it."""
    said = _SAID_WITH_IT.search(text)
    command = " ".join(call.action.command.split())
    named = f"{call.use.name} {command[:_REFUSED_CHARS]}" if command else title
    what = f"the plan “{_plan_title(call)}”" if call.action.kind == "plan" else named
    return TurnedDown(call.use.id, at, what, said[1].strip()[:_WORDS_CHARS] if said else "")


def _plan_title(call: AnsweredCall) -> str:
    plan = call.arguments.get("plan")
    lines = plan.split("\n") if isinstance(plan, str) else []
    return next((title[:120] for line in lines if (title := line.strip("# \t"))), call.use.name)


class ExtractIndex:
    """Extracts of messages in order. Reading a message is the dear part; folding extracts into a memory is cheap."""

    def __init__(self, tools: ToolTable | None = None, key: bytes = b"") -> None:
        self.tools = tools or ToolTable()
        self._extractor = LedgerExtractor(HistoryReader(self.tools), Redactor(key))
        self._extracts: list[LedgerExtract] = []

    def __len__(self) -> int:
        """How many messages were taken."""
        return len(self._extracts)

    def take(self, message: Message) -> None:
        """Read one message more. Summaries and restored content say nothing new, and are passed over."""
        self._extracts.append(self._extractor.extract(message))

    def copy(self) -> ExtractIndex:
        """One that goes on from here by itself; what was read is shared."""
        fresh = ExtractIndex(self.tools)
        fresh._extractor, fresh._extracts = self._extractor.copy(), self._extracts.copy()
        return fresh

    def extracts(self, first: int, last: int) -> list[LedgerExtract]:
        """What was read from the messages from `first` to `last` (not included)."""
        return self._extracts[first:last]

    def secrets(self) -> Mapping[str, str]:
        """Return the secrets in what was read, each with what stands for it."""
        return self._extractor.redactor.marks

    def history(self) -> HistoryReader:
        """A reader of what happened that goes on behind the last message that was taken."""
        return self._extractor.history.copy()


def index_of(view: ContextView, settings: Settings, key: bytes = b"") -> ExtractIndex:
    """The index of all messages of the view, by position, caught up.

    `LiveSession.rest` calls it while nobody waits, so that a compaction finds everything read; that calls it anyway.
    The view keeps it until a boundary or a rewind gives it other messages. `key`: for the ids of secrets.
    """
    index = _index_so_far(view, settings, key)
    for item in view.items[len(index) :]:
        index.take(item.message)
    view.index = index
    return index


def _index_so_far(view: ContextView, settings: Settings, key: bytes = b"") -> ExtractIndex:
    """The index that the view has, if it is of these messages and tools; else an empty one."""
    from perdure.context.policy import tool_table  # as above (PLG-1)

    tools = tool_table(settings)
    index = view.index
    if not isinstance(index, ExtractIndex) or index.tools != tools or len(index) > len(view.items):
        return ExtractIndex(tools, key)
    return index


def happened_around(
    view: ContextView, settings: Settings, first: int, middle: int
) -> tuple[list[Happened], list[Happened]]:
    """What happened in the messages from `first` on, before `middle` and from there; what the index has isn't read."""
    index = _index_so_far(view, settings)
    reader = index.history()

    def happened(begin: int, end: int) -> list[Happened]:
        known = [one for extract in index.extracts(begin, end) for one in extract.happened]
        unread = view.items[max(begin, len(index)) : end]
        return [*known, *reader.read(item.message for item in unread)]

    return happened(first, middle), happened(middle, len(view.items))
