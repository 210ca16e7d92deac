"""What one message says, read once as it arrives: tool calls, todos, outcomes and pieces of text with their facts
(CMP-5).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, get_args

from perdure.compaction import background_tasks
from perdure.compaction.background_tasks import BackgroundUpdate
from perdure.compaction.ledger.facts import (
    clipped,
    facts_in,
    kind_of,
    normal_path,
    pieces,
    short_path,
    unnumbered,
    without_reminders,
)
from perdure.compaction.restore import calls as told
from perdure.compaction.restore.calls import ShellRemoval, shell_removals
from perdure.transcript.blocks import Block, Text, Thinking, ToolResult, ToolUse
from perdure.transcript.messages import Message
from perdure.transcript.spoken import is_of_person, spoken_text
from perdure.transcript.tokens import base_tokens

ActionKind = Literal[
    "read", "edit", "write", "delete", "run", "search", "todo", "agent", "input", "web", "ask", "other"
]
DEEDS: tuple[ActionKind, ...] = get_args(ActionKind)

_KNOWN: tuple[tuple[str, ActionKind], ...] = (
    # The first pattern that a name (without the prefix of its server) matches decides.
    (
        r"todo_?write|todo_?read|write_todos|update_plan|update_todo_list|task_?(create|update|list|get)|task_tracker",
        "todo",
    ),
    (r"bash_?output|task_?output|kill_?(shell|bash)|write_stdin|read_terminal\w*|send_input|get_terminal\w*", "input"),
    (r"task|agent|dispatch_agent|spawn_agent|new_task|delegate\w*|sub_?agent\w*", "agent"),
    (r"ask\w*|followup\w*|exit_?plan\w*|plan_mode\w*|attempt_completion|submit|finish", "ask"),
    (r"web_?\w+|fetch\w*|browse\w*|google_\w+|url_\w+|http\w*", "web"),
    (
        r"str_replace\w*|(multi_?)?edit\w*|apply_(patch|diff)|replace(_in_file|_\w+)?|insert\w*|patch\w*|search_replace",
        "edit",
    ),
    (r"notebook_?edit|update_file|modify_\w+|file_editor|editor|diff_edit", "edit"),
    (r"delete\w*|remove_\w+|rm", "delete"),
    (r"write\w*|create(_?file)?|new_file|save_file|add_file", "write"),
    (r"grep\w*|rg|search\w*|find\w*|glob\w*|ls|list\w*|codebase_search|file_search|tree", "search"),
    (r"read\w*|view\w*|open\w*|cat|goto|scroll_\w+|get_file\w*|load_file", "read"),
    (r"bash\w*|shell\w*|\w*exec\w*|run\w*|terminal\w*|local_shell\w*|powershell|cmd|command|python|ipython\w*", "run"),
)
_PATHS = (
    "file_path", "path", "notebook_path", "filePath", "file_name", "filename", "file", "absolute_path", "target_file",
    "relative_path", "abs_path", "uri",
)  # fmt: skip
_OLD = ("old_string", "old_str", "old_text", "oldString", "search", "old")
_NEW = (
    "new_string", "new_str", "new_text", "newString", "replace", "new", "content", "file_text", "contents", "text",
    "insert_text", "new_source", "code_edit", "replacement",
)  # fmt: skip
_FROM = ("offset", "start_line", "line_start", "startLine", "start", "line_number")
_COUNT, _TO = ("limit", "max_lines", "length"), ("end_line", "line_end", "endLine", "end")
_PATCHED = re.compile(r"^\*\*\* (?:Update|Add) File: (.+?)\s*$", re.MULTILINE)
_DELETED = re.compile(r"^\*\*\* Delete File: (.+?)\s*$", re.MULTILINE)
_MOVED_FROM = re.compile(r"^\*\*\* Update File: (.+?)\s*\n\*\*\* Move to: (.+?)\s*$", re.MULTILINE)
_MOVED = re.compile(r"^\*\*\* Move to: (.+?)\s*$", re.MULTILINE)
_DIFFED = re.compile(r"^\+\+\+ (?:b/)?(\S+)", re.MULTILINE)
# Files that a shell command changes: redirections, in-place edits, tee; and those that it takes away or moves.
_REDIRECTED = re.compile(r"(?<![0-9&<>=-])>{1,2}\s*([\w./~+@\\:-]*[\w-]+\.\w[\w.-]*)(?=\s|$|;|\))")
_IN_PLACE = re.compile(r"\b(?:sed\s+(?:-\w+\s+)*-i\S*|perl\s+-p?i\S*)\s+(.*?)(?=$|\n|&&|\|\||;\s|\|)", re.MULTILINE)
_TEE = re.compile(r"\btee\s+(?:-a\s+)?([\w./~+@-]+\.\w+)")
_READ = re.compile(r"(?:^|[;&|]\s*)(?:cat|head|tail|less|nl|sed -n|bat|wc)\s+([^|;&<>\n]+)", re.MULTILINE)
_ARGUMENT = re.compile(r"(?:[A-Za-z]:)?[\w./~+@\\-]*[\w-]+\.[A-Za-z]\w{0,9}\Z")
_HEREDOC = re.compile(r"<<-?\s*['\"]?(\w+)['\"]?.*?\n(.*?)\n\s*\1\b", re.DOTALL)


@dataclass(frozen=True, slots=True)
class FileUse:
    """A file that a call reads or changes; `span` says which part was read, such as 10-40."""

    path: str
    deed: ActionKind
    span: str = ""


@dataclass(frozen=True, slots=True)
class ToolAction:
    """What a call does: its deed, the command it runs, the files it touches and the text that it writes into them."""

    deed: ActionKind
    command: str = ""
    touches: tuple[FileUse, ...] = ()
    fates: tuple[ShellRemoval, ...] = ()
    written: str = ""


@dataclass(frozen=True, slots=True)
class ToolTable:
    """The registry: name patterns and the deed of each. `own` are the user's, and come first.

    >>> Tools().with_pattern("deploy_.*", "run").deed("deploy_site")
    'run'
    """

    own: tuple[tuple[str, ActionKind], ...] = ()
    _seen: dict[str, ActionKind] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, entries: Iterable[str]) -> ToolTable:
        """The registry with entries of settings, such as `deploy_.*=run`; an unknown deed counts as `other`."""
        own: list[tuple[str, ActionKind]] = []
        for entry in entries:
            pattern, _, name = entry.rpartition("=")
            deed: ActionKind = next((known for known in DEEDS if known == name.strip()), "other")
            own.append((pattern.strip(), deed))
        return cls(tuple(own))

    def with_pattern(self, pattern: str, deed: ActionKind) -> ToolTable:
        """The registry with one more pattern, a regular expression for the whole name; case doesn't matter."""
        return ToolTable(((pattern, deed), *self.own))

    def deed(self, name: str) -> ActionKind:
        """What a tool of this name does."""
        if name not in self._seen:
            self._seen[name] = self._find(name)
        return self._seen[name]

    def _find(self, name: str) -> ActionKind:
        bare = re.split(r"__|\.|/|:", name)[-1] or name
        snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", bare)
        for pattern, deed in self.own:
            if re.fullmatch(pattern, name, re.IGNORECASE):
                return deed
        for pattern, deed in _KNOWN:
            if any(re.fullmatch(pattern, one, re.IGNORECASE) for one in (bare, snake)):
                return deed
        return "other"

    def deeds(self, name: str, arguments: Mapping[str, Any]) -> ToolAction:
        """What one call does."""
        deed = self.deed(name)
        command = _command(arguments) if deed in ("run", "other", "input") else ""
        if deed == "edit" and arguments.get("command") in ("view", "create"):
            deed = "read" if arguments["command"] == "view" else "write"
        if command and deed == "other":
            deed = "run"
        if deed == "run":
            fates = (*_patch_fates(command), *shell_removals(command))
            return ToolAction("run", command, _shell_touches(command), fates, _shell_writes(command))
        if deed == "delete":
            paths = [path for path in (_first_string(arguments, _PATHS),) if path]
            return ToolAction("delete", fates=tuple(ShellRemoval(path, "deleted", by=name) for path in paths))
        if deed in ("edit", "write", "read"):
            return _file_deeds(deed, arguments)
        return ToolAction(deed, command)


def _first_string(arguments: Mapping[str, Any], names: tuple[str, ...]) -> str:
    return next((value for name in names if isinstance(value := arguments.get(name), str) and value), "")


def _command(arguments: Mapping[str, Any]) -> str:
    """The command line of a call; a list of arguments is joined, a shell's -c unwrapped."""
    value = next((arguments[key] for key in ("command", "cmd", "script", "code") if arguments.get(key)), "")
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        is_wrapped = len(value) >= 3 and value[1] in ("-c", "-lc", "-Command", "/c")
        return str(value[2]) if is_wrapped else " ".join(value)
    return value if isinstance(value, str) else ""


def _file_deeds(deed: ActionKind, arguments: Mapping[str, Any]) -> ToolAction:
    patch = next((v for v in arguments.values() if isinstance(v, str) and ("*** " in v or "\n+++ " in v)), "")
    path = _first_string(arguments, _PATHS)
    paths = [path] if path else []
    for entry in arguments.get("files") or arguments.get("edits") or ():
        inner = _first_string(entry, _PATHS) if isinstance(entry, Mapping) else entry
        if isinstance(inner, str) and inner and len(inner) < 400:
            paths.append(inner)
    if deed == "edit" and patch:
        paths += _patched(patch) or _DIFFED.findall(patch)
    span = _span(arguments) if deed == "read" else ""
    written = patch if deed == "edit" and patch else _written(arguments)
    touches = tuple(FileUse(one, deed, span) for one in dict.fromkeys(paths))
    return ToolAction(deed, touches=touches, fates=_patch_fates(patch), written=written)


def _written(arguments: Mapping[str, Any]) -> str:
    edits = arguments.get("edits")
    nested = [_first_string(e, _NEW) for e in edits if isinstance(e, Mapping)] if isinstance(edits, list) else []
    return "\n".join(text for text in (_first_string(arguments, _NEW), *nested) if text)


def _span(arguments: Mapping[str, Any]) -> str:
    """Which lines were read: 10-40, 10- or nothing."""
    both = arguments.get("view_range") or arguments.get("line_range") or arguments.get("range")
    if isinstance(both, list) and len(both) == 2 and all(isinstance(one, int) for one in both):
        return f"{both[0]}-{both[1] if both[1] >= 0 else ''}"
    start = next((v for k in _FROM if isinstance(v := arguments.get(k), int)), None)
    count = next((v for k in _COUNT if isinstance(v := arguments.get(k), int)), None)
    end = next((v for k in _TO if isinstance(v := arguments.get(k), int)), None)
    if end is None and count is not None:
        end = (start or 1) + count - 1
    if start is None and end is None:
        return ""
    return f"{start or 1}-{'' if end is None else end}"


def _patched(text: str) -> list[str]:
    """The files that a patch leaves changed or new."""
    return [*_PATCHED.findall(text), *_MOVED.findall(text)] if "*** " in text else []


def _patch_fates(text: str) -> tuple[ShellRemoval, ...]:
    """The files that a patch deletes, or moves."""
    if "*** " not in text:
        return ()
    gone = tuple(ShellRemoval(path, "deleted", by="apply_patch") for path in _DELETED.findall(text))
    moved = tuple(ShellRemoval(old, "moved", to, "apply_patch") for old, to in _MOVED_FROM.findall(text))
    return (*gone, *moved)


def _shell_touches(command: str) -> tuple[FileUse, ...]:
    """The files that a shell command plainly reads or changes, without those inside of here-documents."""
    patched = _patched(command)
    bare = _HEREDOC.sub(r"<<\1", command) if "<<" in command else command
    changed = [*patched, *_REDIRECTED.findall(bare), *_TEE.findall(bare)]
    for rest in _IN_PLACE.findall(bare):
        changed += [word for word in rest.split()[1:] if _ARGUMENT.match(word.strip("'\""))]
    changed = [path for path in dict.fromkeys(changed) if not path.startswith(("/dev/", "&"))]
    read: dict[str, None] = {}
    for rest in _READ.findall(bare):
        read.update(dict.fromkeys(word for word in rest.split() if _ARGUMENT.match(word)))
    touches = [FileUse(path.strip("'\""), "edit") for path in changed]
    return (*touches, *(FileUse(path, "read") for path in read if path not in changed))


def _shell_writes(command: str) -> str:
    """What a command writes into files: its here-documents, or its patch."""
    if "<<" not in command:
        return ""
    return "\n".join(body for _, body in _HEREDOC.findall(command))


_DONE = frozenset({"completed", "complete", "done", "cancelled", "canceled", "closed", "deleted", "x"})
_TEXTS = ("content", "step", "title", "subject", "text", "description", "task", "name")
_BOX = re.compile(
    r"^[^\S\n]*(?:(?:[-*]|\d{1,9}[.)])[^\S\n]*)?\[([ xX~/-]?)\][^\S\n]*(\S|\S.*\S)[^\S\n]*$", re.MULTILINE
)
_CREATED = re.compile(r"[Tt]ask #?(\w+) (?:created|added)")


class PlanItem(NamedTuple):
    """One piece of work. `key` is how the agent's tool names it later: an id, or the text itself."""

    key: str
    text: str
    status: str  # open, doing or done


class TodoChange(NamedTuple):
    """What a call did to the plan: all of it anew, or some entries of it."""

    todos: tuple[PlanItem, ...]
    is_whole: bool


def todo_change(name: str, arguments: Mapping[str, Any]) -> TodoChange | None:
    """What a call of a todo tool says; None when it changes nothing, such as a listing."""
    whole = _whole(arguments)
    if whole is not None:
        return TodoChange(whole, is_whole=True)
    identity = next((str(arguments[key]) for key in ("taskId", "task_id", "id") if arguments.get(key)), "")
    text = _text(arguments)
    if identity:
        state = str(arguments.get("status") or "")
        return TodoChange((PlanItem(identity, text, _status(state) if state else ""),), is_whole=False)
    if text and re.search("create|add|new", name, re.IGNORECASE):
        return TodoChange((PlanItem("", text, "open"),), is_whole=False)
    return None


def created_key(result: str) -> str:
    """The id that a tool gave to a new entry, told by its result."""
    found = _CREATED.search(result[:200])
    return found[1] if found else ""


def _whole(arguments: Mapping[str, Any]) -> tuple[PlanItem, ...] | None:
    for key in ("todos", "plan", "task_list", "todoList", "items", "task_progress"):
        value = arguments.get(key)
        if isinstance(value, str) and _BOX.search(value):
            return tuple(PlanItem(text, text, _box(mark)) for mark, text in _BOX.findall(value))
        if isinstance(value, list) and (not value or isinstance(value[0], Mapping)):
            return tuple(todo for entry in value if (todo := _entry(entry)))
    return None


def _entry(entry: Any) -> PlanItem | None:
    if not isinstance(entry, Mapping):
        return None
    text = _text(entry)
    return PlanItem(text, " ".join(text.split()), _status(str(entry.get("status") or "pending"))) if text else None


def _text(entry: Mapping[str, Any]) -> str:
    texts = (entry.get(key) for key in _TEXTS)
    return next((text for text in texts if isinstance(text, str) and text), "")


def _status(word: str) -> str:
    word = word.lower().replace("-", "_")
    if word in _DONE:
        return "done"
    return "doing" if word in ("in_progress", "active", "doing", "started") else "open"


def _box(mark: str) -> str:
    return "done" if mark in ("x", "X") else "open" if mark in ("", " ") else "doing"


# Where common agents put the exit code: at the beginning of the result, or in its last line. What stands elsewhere is
# what the command printed: a log, a page of a manual, the end of another command.
_EXIT_HEAD = re.compile(
    r"\s*(?:Chunk ID: .*\n|Wall time: .*\n)*(?:<returncode>\s*|Process exited with code |Exit code:? |"
    r"Command failed with exit code |\{.{0,40}\"exit_code\": ?)(-?\d{1,3})\b",
    re.IGNORECASE,
)
_EXIT_JSON = re.compile(r"\"exit_code\": ?(-?\d{1,3})\b")
_EXIT_LINE = re.compile(
    r"^(?:\[.{0,60}exit code:? (-?\d{1,3})\.?\]?|\[?Process exited with code (-?\d{1,3})\]?|Exit Code: (-?\d{1,3}))$",
    re.IGNORECASE,
)
_LAST_LINES = 4  # behind the code OpenHands tells the folder and the interpreter, Gemini the signal
_SUMMARY_CHARS = 3_000  # runners sum up at the end
_LINES = 400  # of a long result, so many lines at each end are looked at
_ERROR = re.compile(
    r"^\s*(?:E   +\S|\S*(?:Error|Exception|Fault)\b\s*[:(]|(?:error|fatal|panic|FATAL|ERROR|Error|ERR!)\b.{0,40}?[:\[]|"
    r"npm ERR!|error(?:\[\w+\])?:|FAIL\b|\S+\.\w+:\d+(?::\d+)?:\s*(?:error|fatal|undefined|cannot)|"
    r"\S+\.\w+\(\d+,\d+\): error|Traceback|bash: .*: |.*(?:command not found|No such file or directory|"
    r"Permission denied|cannot find|is not defined|undefined:|assertion failed|String to replace not found|"
    r"has not been read|tool_use_error))",
)
_ERROR_HINT = re.compile(
    r"[Ee]rror|Exception|Fault|[Ff]atal|FATAL|panic|ERROR|ERR!|FAIL|Traceback|not found|No such|denied|cannot|"
    r"not defined|undefined|has not been|assertion failed"
)
_DULL = re.compile(r"^\s*(?:Traceback|FAIL$|exit status \d+$|Error: Exit code \d+$|Exit code \d+$)")
_FAILED = (
    re.compile(r"^\s*--- FAIL: (\S+)"),  # go
    re.compile(r"^(?:FAILED|ERROR) (\S+\.py\S*)"),  # pytest, short summary
    re.compile(r"^(\S+\.py::\S+) (?:FAILED|ERROR)"),  # pytest -v
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
    re.compile(r"^(\S+\.py::\S+) PASSED"),
    re.compile(r"^test (\S+) \.\.\. ok"),
    re.compile(r"^\s*(?:PASS|✓) +(\S+\.(?:test|spec)\.\w+)"),
    re.compile(r"^\s*(?:✓|✔|\(pass\)) (.{3,100}?)(?: \[?\(?[\d.]+ ?m?s\]?\)?)?$"),
    re.compile(r"^(test\w+ \([\w.]+\)) \.\.\. ok"),
)
_FAILED_HINT = re.compile(
    r"FAIL|ERROR|✕|✗|×|\(fail\)|●|^rspec |^not ok|Failed ",
    re.MULTILINE,
)
_PASSED_HINT = re.compile(r"--- PASS|PASSED|\.\.\. ok|✓|✔|\(pass\)|PASS ")
_SUMMARY = re.compile(
    r"(?:=+ .*(?:passed|failed|error).* =+|\d+ (?:passed|failed|failing|passing|pass|fail)\b|^ok\s+\S+|^PASS$|^FAIL\b|"
    r"^Tests?:|^Ran \d+ tests?|test result:|Found \d+ errors?|All checks passed|Success: no issues|BUILD \w+|"
    r"^OK\b|files? changed|compiled|Successfully)",
    re.IGNORECASE,
)
_GREEN = re.compile(
    r"(?:^|\D)(?<!\d)([1-9]\d*) (?:passed|passing|pass)\b|^ok\s+\S+|^PASS$|^OK\b|test result: ok", re.MULTILINE
)
_RED = re.compile(
    r"(?:^|\D)([1-9]\d*) (?:failed|failing|fail|errors?)\b|^FAIL\b|--- FAIL|^FAILED|test result: FAILED", re.MULTILINE
)
_RUNNER = re.compile(
    r"\b(pytest|go test|cargo (?:test|nextest)|jest|vitest|mocha|(?:npm|yarn|pnpm|bun)(?: run)? test\S*|rspec|phpunit|"
    r"unittest|tox|nox|ctest|mvn \S*test|gradlew? \S*test|dotnet test|swift test|mix test|make (?:test|check)\S*|"
    r"mise run test\S*|runtests\S*|bin/test\S*|rake test)"
)
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
    code = _exit_code(text) if is_run else None
    ok: bool | None = not is_error and (code is None or code == 0)
    lines = _ends(text)
    failed, passed = _tests(text, lines) if is_run else ((), ())
    end = text[-_SUMMARY_CHARS:]
    is_red = bool(failed) or (is_run and bool(_RED.search(end)))
    is_green = is_run and bool(ok) and not is_red and bool(_GREEN.search(end))
    errors = _errors(lines) if not is_green and _ERROR_HINT.search(text) else ()
    return ResultOutcome(ok, code, _line(lines, errors, ok=bool(ok)), errors, failed, passed, is_green, is_red)


def runner_of(command: str) -> str:
    """The test runner that a command calls, if any: what a later green run of it heals."""
    found = _RUNNER.search(command)
    return found[1].split()[0] if found else ""


def _exit_code(text: str) -> int | None:
    head = _EXIT_HEAD.match(text)
    if head is None and text.startswith("{"):
        head = _EXIT_JSON.search(text, max(0, len(text) - 300))
    if head is not None:
        return int(head[1])
    for line in reversed(text[-600:].rstrip().split("\n")[-_LAST_LINES:]):
        found = _EXIT_LINE.match(line.strip())
        if found is not None:
            return int(found[1] or found[2] or found[3])
    return None


def _ends(text: str) -> list[str]:
    lines = text.split("\n")
    return lines if len(lines) <= 2 * _LINES else [*lines[:_LINES], *lines[-_LINES:]]


def _tests(text: str, lines: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    failed = _named(_FAILED, lines) if _FAILED_HINT.search(text) else ()
    passed = _named(_PASSED, lines) if _PASSED_HINT.search(text) else ()
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


def _errors(lines: list[str]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for line in lines:
        if (
            len(line) > 6
            and len(found) < 6
            and _ERROR_HINT.search(line, 0, 300)
            and _ERROR.match(line[:300])
            and not _DULL.match(line)
        ):
            found[" ".join(line.split())[:220]] = None
    return tuple(found)


def _line(lines: list[str], errors: tuple[str, ...], *, ok: bool) -> str:
    """The line that says best how it went: a summary, else for a failure its first error, else the last line."""
    told = [" ".join(line.split()) for line in lines[-40:] if line.strip() and not line.startswith("</")]
    for line in reversed(told):
        if len(line) < 200 and _SUMMARY.search(line):  # in this order: a long line of digits is dear to search
            return line.strip("= ")[:120]
    if not ok and errors:
        return errors[0][:120]
    return told[-1][:100] if told else ""


SAID, INPUT, USER, OUTPUT, THOUGHT = range(5)  # who said it; the order is that of the counts of a fact

_DECIDED = re.compile(
    r"\b(?:I(?:'ll| will| decided| chose| am going to|'m going to)|[Ww]e(?:'ll| will| should| decided)|[Ll]et's|"
    r"[Dd]ecision|[Dd]ecided|[Ii]nstead of|[Rr]oot cause|"
    r"[Tt]he (?:fix|problem|issue|bug|cause|reason|plan|approach)\b.{0,40}?\b(?:is|was)|"
    r"[Bb]ecause|[Ss]o that|[Mm]ust (?:not )?|[Ww]on't|[Ff]ixed|[Cc]onfirmed|[Ff]ound (?:it|the))\b"
)
_ABOUT = ("subject", "description", "pattern", "query", "task_id", "bash_id", "session_id", "url", "prompt", "content")
_AWAY = re.compile(r"^\s*cd\s+\S+\s*(?:&&|;)\s*")  # where a command runs says nothing of what it does
_EXTRACT_FAILED = ("Error", "error:", "apply_patch verification failed", "Your proposed edit has introduced")
_TITLE_CHARS = 44
_SENTENCES = re.compile(r"(?<=[.!?])\s+|\n+")
# A call that was never done: a person, a hook or the host refused it. What a failing program prints begins otherwise.
_REFUSED = re.compile(
    r"\s*(?:The user doesn't want to (?:proceed|take this action)|\[Request interrupted by user|<tool_use_error>|"
    r"Permission to use |Permission denied by|(?:PreToolUse:?\S* )?(?:[Hh]ook|operation)\b.{0,80}\bblocked|"
    r"This command requires approval|Claude requested permissions)"
)


class TextPiece(NamedTuple):
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

    fate: ShellRemoval
    is_certain: bool


class CommandRan(NamedTuple):
    """A command was run."""

    id: str
    at: float | None
    command: str
    runner: str


class CallEnded(NamedTuple):
    """A call came back; `command` is empty when it wasn't a command."""

    id: str
    command: str
    runner: str
    what: ResultOutcome


class PlanChanged(NamedTuple):
    """The plan changed."""

    change: TodoChange


Event = (
    UserWords | AssistantWords | FileTouched | FilesRemoved | CommandRan | CallEnded | PlanChanged | BackgroundUpdate
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


@dataclass(slots=True)
class OpenCall:
    """A call whose result has not come."""

    use: ToolUse
    deeds: ToolAction
    added: str  # an entry of the plan, whose id the result will tell
    title: str
    events: tuple[Event, ...]  # what it does, if it is not refused


@dataclass(slots=True)
class LedgerExtractor:
    """Reads messages in order; it remembers open calls, the file that is open, and the tools of this agent."""

    tools: ToolTable = field(default_factory=ToolTable)
    _calls: dict[str, OpenCall] = field(default_factory=dict)
    _file: str = ""  # the file that an editor without paths has open

    def extract(self, message: Message) -> LedgerExtract:
        """What a message says. Summaries and restored content are never a source: they repeat what was said."""
        found: list[TextPiece] = []
        events: list[Event] = []
        tokens = 0
        if message.origin in ("summary", "restored") or message.agent_id is not None:
            return LedgerExtract(message.id, message.at, 0, (), ())
        for index, block in enumerate(message.blocks):
            value = block.value
            if isinstance(value, Text):
                tokens += self._text(message, value.text, found, events)
            elif isinstance(value, ToolUse):
                tokens += self._use(message, value, found, events)
            elif isinstance(value, ToolResult):
                tokens += self._result(message, index, found, events)
            elif isinstance(value, Thinking):
                _add(found, THOUGHT, value.thinking, message.id)
                tokens += base_tokens(value.thinking)
        titles = tuple((use.id, self._calls[use.id].title) for use in message.tool_uses if use.id in self._calls)
        return LedgerExtract(message.id, message.at, tokens, tuple(found), tuple(events), titles)

    def _text(self, message: Message, text: str, found: list[TextPiece], events: list[Event]) -> int:
        tokens = base_tokens(text)
        if message.origin == "model":
            _add(found, SAID, text, message.id)
            if text.strip():
                events.append(AssistantWords(message.id, message.at, text.strip(), _decisions(text)))
            return tokens
        events += background_tasks.background_updates(told.MessageText(text, message.origin, message.id, 0))
        words = spoken_text(text) if is_of_person(message) else ""
        if words:
            _add(found, USER, words, message.id)
            events.append(UserWords(message.id, message.at, words))
        else:
            _add(found, OUTPUT, text, message.id)
        return tokens

    def _use(self, message: Message, use: ToolUse, found: list[TextPiece], events: list[Event]) -> int:
        arguments = use.input
        deeds = self.tools.deeds(use.name, arguments)
        text = "\n".join(_strings(arguments))
        _add(found, INPUT, text, use.id)
        names = _names(deeds.written)
        does: list[Event] = []
        if deeds.deed in ("edit", "write") and not deeds.touches and self._file:
            does.append(FileTouched(self._file, "edit", "", names or _names(text)))
        for touch in deeds.touches:
            self._file = normal_path(touch.path)
            does.append(
                FileTouched(self._file, touch.deed, touch.span, names if touch.deed in ("edit", "write") else ())
            )
        if deeds.deed == "run" and deeds.command:
            does.append(CommandRan(use.id, message.at, deeds.command, runner_of(deeds.command)))
        added = ""
        if deeds.deed == "todo":
            change = todo_change(use.name, arguments)
            if change is not None and (change.is_whole or change.todos[0].key):
                events.append(PlanChanged(change))
            elif change is not None:
                added = change.todos[0].text
        about = next((v for k in _ABOUT if isinstance(v := arguments.get(k), str) and v), deeds.command)
        subject = short_path(deeds.touches[0].path) if deeds.touches and not deeds.command else deeds.command or about
        title = " ".join(f"{use.name} {_AWAY.sub('', subject[:300])}".split())[:_TITLE_CHARS].rstrip()
        self._calls[use.id] = OpenCall(use, deeds, added, title, tuple(does))
        return base_tokens(text)

    def _result(self, message: Message, index: int, found: list[TextPiece], events: list[Event]) -> int:
        result = message.blocks[index].value
        assert isinstance(result, ToolResult)
        whole = result.text()
        call = self._calls.pop(result.tool_use_id, None)
        deeds = call.deeds if call else ToolAction("other")
        text = clipped(without_reminders(whole))
        if deeds.deed == "read":
            text = unnumbered(text)
        if deeds.deed != "todo":
            _add(found, OUTPUT, text, result.tool_use_id)
        is_refused = bool(_REFUSED.match(whole)) and (bool(result.is_error) or whole.startswith(told.DENIED))
        is_run = deeds.deed in ("run", "input")
        what = read_outcome(text, is_error=bool(result.is_error), is_run=is_run and not is_refused)
        if is_run and what.errors and what.code is None and result.is_error is None:
            what = replace(what, ok=None)  # nothing says that it went well, and something that it may not have
        is_certain = bool(what.ok) and not whole.startswith(_EXTRACT_FAILED)
        background = (
            list(background_tasks.background_updates(told.AnsweredCall(call.use, result, message.id, index)))
            if call
            else []
        )
        if call and not is_refused:
            events += _done(call.events, is_run=is_run, is_certain=is_certain)
            written = {normal_path(touch.path).rpartition("/")[2] for touch in deeds.touches if touch.deed != "read"}
            for fate in deeds.fates if is_certain or is_run else ():
                events.append(FilesRemoved(fate, is_certain and fate.path.rpartition("/")[2] not in written))
        if is_refused:
            pass  # nothing was done, and the refusal is no error of the work
        elif background and any(not one.has_ended for one in background) and deeds.deed == "run":
            started = ResultOutcome(None, None, "started in the background")
            events.append(CallEnded(result.tool_use_id, deeds.command, "", started))
        elif is_run or what.errors:
            command = deeds.command if deeds.deed == "run" else ""
            events.append(CallEnded(result.tool_use_id, command, runner_of(command), what))
        if call and call.added and not result.is_error:
            entry = PlanItem(created_key(whole) or call.added, call.added, "open")
            events.append(PlanChanged(TodoChange((entry,), is_whole=False)))
        events += background
        return base_tokens(whole)


def block_text(block: Block) -> str:
    """What a block says, as the ledger reads it."""
    value = block.value
    if isinstance(value, Text):
        return value.text
    if isinstance(value, ToolUse):
        return "\n".join(_strings(value.input))
    return value.text() if isinstance(value, ToolResult) else ""


def _done(events: tuple[Event, ...], *, is_run: bool, is_certain: bool) -> Iterator[Event]:
    """What a call did, as its result has it: an edit that failed changed nothing, a command that failed perhaps did."""
    for event in events:
        if not isinstance(event, FileTouched):
            yield event
        elif is_certain or (is_run and event.deed != "read"):
            yield event._replace(is_certain=is_certain and not (is_run and event.deed == "read"))


def _add(found: list[TextPiece], voice: int, text: str, source: str) -> None:
    for piece in pieces(text):
        found.append(TextPiece(voice, piece, tuple(facts_in(piece)), source))


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


def _decisions(text: str) -> tuple[str, ...]:
    """Sentences that state what was decided or found out, at most 4 of a message."""
    found = [s.strip() for s in _SENTENCES.split(text) if 25 <= len(s) <= 320 and _DECIDED.search(s)]
    return tuple(s.lstrip("-*# ") for s in found[:4])
