"""What a tool call does, told from its name and its input: one table of the tools of common agents (RST-10, CMP-5).

Claude Code, Codex, Gemini and Qwen, Cline and Roo, OpenHands, SWE-agent, mini-swe-agent, opencode, Cursor and servers
of tools all name the same few actions differently. A user adds a pattern for a tool of their own with
`ToolTable.with_pattern`, or in the setting `ledger_tools`. A history is read as answered calls, and words that nobody
called for, in the order in which the results came; content is taken as it was said: what a pass offloaded or cleared
since is still known here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple, get_args

import msgspec

from perdure.transcript.blocks import ServerToolResult, ServerToolUse, Text, ToolResult, ToolUse
from perdure.transcript.messages import Message, MessageId
from perdure.transcript.tool_calls.patches import PatchedFile, is_patch, patched_files
from perdure.transcript.tool_calls.shell import Removal, ShellFile, join, read_shell

ActionKind = Literal[
    "read", "edit", "write", "delete", "run", "search", "todo", "plan", "agent", "input", "stop", "skill", "tools",
    "web", "ask", "other",
]  # fmt: skip
ACTION_KINDS: Final[tuple[ActionKind, ...]] = get_args(ActionKind)

_KNOWN: Final[tuple[tuple[str, ActionKind], ...]] = (
    # The first pattern that a name (without the prefix of its server) matches decides.
    (
        r"todo_?(write|read|list|md)|write_?todos|update_?plan|update_?todo_?list|manage_?todo_?list|"
        r"task_?(create|update|list|get)|task_?tracker",
        "todo",
    ),
    (r"exit_?(plan|spec)_?mode|plan_?exit|submit_?plan|plan_?mode_?respond", "plan"),
    (r"(use_?|load_?|invoke_?|activate_?)?skill", "skill"),
    (r"tool_?search(_tool_(regex|bm25))?|(search|find|load)_?tools", "tools"),
    (r"kill_?(shell|bash|terminal)|(task|shell)_?stop|stop_?task|close_?agent", "stop"),
    (
        r"(bash|shell|task|agent)_?output(_?tool)?|write_?stdin|read_?terminal\w*|send_?input|get_?terminal\w*|wait_?agent",
        "input",
    ),
    (r"task|agent|dispatch_?agent|spawn_?agent|new_?task|delegate\w*|sub_?agent\w*", "agent"),
    (r"ask\w*|request_?user_?input|followup\w*|exit_?plan\w*|plan_mode\w*|attempt_completion|submit|finish", "ask"),
    (r"web_?\w+|fetch\w*|browse\w*|google_\w+|url_\w+|http\w*", "web"),
    (
        r"(multi_?)?str_?replace\w*|(multi_?)?edit\w*|apply_?(patch|diff)|replace(_in_file|_\w+)?|replaceinfile|insert\w*|"
        r"patch\w*|search_?replace",
        "edit",
    ),
    (r"notebook_?edit|update_?file|modify_\w+|file_?edit(or)?|(text_?)?editor|diff_?edit", "edit"),
    (r"delete\w*|remove_\w+|rm", "delete"),
    (r"write\w*|create(_?file)?|new_?file|save_?file|add_?file|file_?write", "write"),
    (r"grep\w*|rg|search\w*|find\w*|glob\w*|ls|list\w*|codebase_search|file_search|tree", "search"),
    (r"read\w*|view\w*|open\w*|cat|goto|scroll_\w+|get_?file\w*|load_?file|(file|fs)_?read", "read"),
    (r"bash\w*|shell\w*|\w*exec\w*|run\w*|terminal\w*|local_?shell\w*|powershell|cmd|command|python|ipython\w*", "run"),
)
PATH_KEYS: Final = (
    "file_path", "path", "notebook_path", "filePath", "file_name", "filename", "file", "absolute_path", "target_file",
    "relative_path", "abs_path", "uri",
)  # fmt: skip
OLD_KEYS: Final = ("old_string", "old_str", "old_text", "oldString", "oldText", "search", "old")
NEW_KEYS: Final = ("new_string", "new_str", "new_text", "newString", "newText", "replace", "new")
TEXT_KEYS: Final = ("content", "file_text", "contents", "text")
_WRITTEN: Final = (*NEW_KEYS, *TEXT_KEYS, "insert_text", "new_source", "code_edit", "replacement")
_FROM: Final = ("offset", "start_line", "line_start", "startLine", "start", "line_number")
_COUNT, _TO = ("limit", "max_lines", "length"), ("end_line", "line_end", "endLine", "end")
_PATH_CHARS: Final = 400  # of an entry in a list of files; a longer one is no path
NAME_CHARS: Final = 500  # a longer path or label is no name
TO_THE_END: Final = 10**7  # the last line of a part that has no end

Span = tuple[int, int]
"""The first and the last line of a part of a file, from 1."""


@dataclass(frozen=True, slots=True)
class FileUse:
    """A file that a call reads, edits or writes; `span` is the part that was asked for."""

    path: str
    kind: ActionKind
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class ToolAction:
    """What a call asks to do, whatever came of it.

    `command` is the line that it runs, in the `folder` that it names, and `shell` what that does to files; `patch` the
    files of a patch; `written` is the text that goes into files.
    """

    kind: ActionKind
    command: str = ""
    files: tuple[FileUse, ...] = ()
    removals: tuple[Removal, ...] = ()
    written: str = ""
    shell: tuple[ShellFile, ...] = ()
    patch: tuple[PatchedFile, ...] = ()
    folder: str = ""


@dataclass(frozen=True, slots=True)
class ToolTable:
    """Name patterns and the action of each. `own` are the user's, and come first.

    `users` are the names of tools whose results are the user's own words, as who runs them says: no name says it alone,
    since where servers name their tools, any tool may be called `ask_user` (SEC-1).

    >>> ToolTable().with_pattern("deploy_.*", "run").kind("deploy_site")
    'run'
    """

    own: tuple[tuple[str, ActionKind], ...] = ()
    users: tuple[str, ...] = ()
    _seen: dict[str, ActionKind] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, entries: Iterable[str], users: Iterable[str] = ()) -> ToolTable:
        """The table with entries of settings, such as `deploy_.*=run`; an unknown action counts as `other`."""
        own: list[tuple[str, ActionKind]] = []
        for entry in entries:
            pattern, _, name = entry.rpartition("=")
            kind: ActionKind = next((known for known in ACTION_KINDS if known == name.strip()), "other")
            own.append((pattern.strip(), kind))
        return cls(tuple(own), tuple(users))

    def with_pattern(self, pattern: str, kind: ActionKind) -> ToolTable:
        """The table with one more pattern, a regular expression for the whole name; case doesn't matter."""
        return ToolTable(((pattern, kind), *self.own), self.users)

    def kind(self, name: str) -> ActionKind:
        """What a tool of this name does."""
        if name not in self._seen:
            self._seen[name] = self._find(name)
        return self._seen[name]

    def _find(self, name: str) -> ActionKind:
        bare = _bare(name)
        snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", bare).replace("-", "_")
        for pattern, kind in self.own:
            if re.fullmatch(pattern, name, re.IGNORECASE):
                return kind
        for pattern, kind in _KNOWN:
            if any(re.fullmatch(pattern, one, re.IGNORECASE) for one in (bare, snake)):
                return kind
        return "other"

    def action(self, name: str, arguments: Mapping[str, Any]) -> ToolAction:
        """What one call asks to do; paths are joined to the folder that it says."""
        kind = self.kind(name)
        command = command_of(arguments) if kind in ("run", "other", "input") else ""
        if kind == "edit" and arguments.get("command") in ("view", "create"):
            kind = "read" if arguments["command"] == "view" else "write"
        if kind == "run" or (command and kind == "other"):
            return _run(command, arguments)
        if kind == "delete":
            path = path_of(arguments)
            return ToolAction(kind, removals=(Removal(path, "deleted", by=name),) if path else ())
        if kind in ("read", "edit", "write"):
            return _on_files(kind, arguments)
        return ToolAction(kind, command)


def _bare(name: str) -> str:
    """The name of a tool without that of its server."""
    return re.split(r"__|\.|/|:", name)[-1] or name


def first_text(arguments: Mapping[str, Any], keys: Iterable[str]) -> str:
    """The first argument among these that is a text; empty when there is none."""
    for key in keys:
        value = arguments.get(key)
        if isinstance(value, str) and value:
            return value
    return ""


def path_of(arguments: Mapping[str, Any]) -> str:
    """The file that a call names; empty when it names none."""
    return first_text(arguments, PATH_KEYS).removeprefix("file://")


def command_of(arguments: Mapping[str, Any]) -> str:
    """The command line of a call; a list of arguments is joined, a shell's -c unwrapped."""
    value = next((arguments[key] for key in ("command", "cmd", "script", "code") if arguments.get(key)), "")
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        is_wrapped = len(value) >= 3 and value[1] in ("-c", "-lc", "-Command", "/c")
        return str(value[2]) if is_wrapped else " ".join(value)
    return value if isinstance(value, str) else ""


def span_of(arguments: Mapping[str, Any]) -> Span | None:
    """Which lines were asked for; None for all of them."""
    both = arguments.get("view_range") or arguments.get("line_range") or arguments.get("range")
    if isinstance(both, list) and len(both) == 2 and all(isinstance(one, int) for one in both):
        return (max(1, both[0]), both[1] if both[1] > 0 else TO_THE_END)
    start, count, end = (_positive(arguments, keys) for keys in (_FROM, _COUNT, _TO))
    if start is None and count is None and end is None:
        return None
    first = start or 1
    return (first, end or (first + count - 1 if count else TO_THE_END))


def _positive(arguments: Mapping[str, Any], keys: tuple[str, ...]) -> int | None:
    found = (value for key in keys if isinstance(value := arguments.get(key), int) and not isinstance(value, bool))
    return next((value for value in found if value > 0), None)


def _run(command: str, arguments: Mapping[str, Any]) -> ToolAction:
    if arguments.get("code") and not arguments.get("command") and not arguments.get("cmd"):
        return ToolAction("run", command)  # a program in another language than a shell's
    folder = first_text(arguments, ("workdir", "cwd")) or None
    read = read_shell(command, folder)
    patch = tuple(_joined(folder, file) for file in patched_files(command)) if "*** Begin Patch" in command else ()
    uses, gone = _patched(patch)
    changed = dict.fromkeys([*uses, *(FileUse(file.path, "edit") for file in read.files if file.how != "read")])
    paths = {use.path for use in changed}
    looked = dict.fromkeys(FileUse(file.path, "read") for file in read.files if file.how == "read")
    files = (*changed, *(use for use in looked if use.path not in paths))
    return ToolAction("run", command, files, (*gone, *read.removals), read.written, read.files, patch, folder or "")


def _joined(folder: str | None, file: PatchedFile) -> PatchedFile:
    return replace(file, path=join(folder, file.path), moved_to=file.moved_to and join(folder, file.moved_to))


def _on_files(kind: ActionKind, arguments: Mapping[str, Any]) -> ToolAction:
    path = path_of(arguments)
    paths = [path] if path else []
    for entry in arguments.get("files") or arguments.get("edits") or ():
        inner = path_of(entry) if isinstance(entry, Mapping) else entry
        if isinstance(inner, str) and inner and len(inner) < _PATH_CHARS:
            paths.append(inner)
    text = ""
    if kind == "edit" and not first_text(arguments, OLD_KEYS):
        text = next((value for value in arguments.values() if isinstance(value, str) and is_patch(value)), "")
    patch = tuple(patched_files(text)) if text else ()
    uses, removals = _patched(patch)
    span = span_of(arguments) if kind == "read" else None
    files = dict.fromkeys([*(FileUse(one, kind, span) for one in paths), *uses])
    return ToolAction(kind, "", tuple(files), removals, text or _written(arguments), patch=patch)


def _patched(patch: tuple[PatchedFile, ...]) -> tuple[list[FileUse], tuple[Removal, ...]]:
    """The files that a patch leaves changed or new, and those that it takes away."""
    uses: list[FileUse] = []
    gone: list[Removal] = []
    for file in patch:
        if file.is_deleted:
            gone.append(Removal(file.path, "deleted", by="apply_patch"))
        else:
            uses.append(FileUse(file.moved_to or file.path, "edit"))
        if file.moved_to:
            gone.append(Removal(file.path, "moved", file.moved_to, "apply_patch"))
    return uses, tuple(gone)


def _written(arguments: Mapping[str, Any]) -> str:
    edits = arguments.get("edits")
    nested = [first_text(e, _WRITTEN) for e in edits if isinstance(e, Mapping)] if isinstance(edits, list) else []
    return "\n".join(text for text in (first_text(arguments, _WRITTEN), *nested) if text)


# --- calls with their answers

# How results begin by which a tool says that it changed nothing, without being marked as an error.
UNDONE: Final = (
    *("Error", "error:", "<tool_use_error>", "apply_patch verification failed"),
    "Your proposed edit has introduced",
)

_APPROVAL: Final = re.compile(r"(?:the )?user (?:has )?approved\b", re.IGNORECASE)


@dataclass(eq=False)
class AnsweredCall:
    """A tool was called and answered. `message` is the one that holds the result, `block` where in it.

    `action` is what the call asked to do, with these `arguments`; `is_users`, whether its result is a person's answer.
    """

    use: ToolUse
    arguments: dict[str, Any]
    action: ToolAction
    result: ToolResult
    message: MessageId
    block: int
    is_users: bool = False
    file_actions: list[Any] | None = None  # what it did to files, once somebody worked it out

    @property
    def name(self) -> str:
        return self.use.name

    @cached_property
    def plain_name(self) -> str:
        """The name without its server and spelling: `mcp__fs__read_file` and `ReadFile` are both `readfile`."""
        return plain_name(self.use.name)

    @cached_property
    def text(self) -> str:
        """All text of the result, with plain line ends."""
        return self.result.text().replace("\r\n", "\n")

    @property
    def is_approval(self) -> bool:
        """A person approved what the call put to them, such as a plan."""
        return self.is_users and _APPROVAL.match(self.text) is not None

    @property
    def has_failed(self) -> bool:
        """The call did nothing: an error, or it was never made. Its own words decide nothing: they are the tool's."""
        return bool(self.result.is_error)

    def word(self, *keys: str) -> str | None:
        """The first argument among these that is a text."""
        return first_text(self.arguments, keys) or None


@dataclass(frozen=True)
class MessageText:
    """A text that stands in a message by itself; `origin` says whose it is."""

    text: str
    origin: str
    message: MessageId
    block: int


Happened = AnsweredCall | MessageText


def plain_name(name: str) -> str:
    """A tool's name without its server and spelling."""
    return name.rsplit("__", 1)[-1].lower().replace("_", "").replace("-", "").replace(".", "")


class AskedCall(NamedTuple):
    """A call whose result hasn't come."""

    use: ToolUse
    arguments: dict[str, Any]
    action: ToolAction


@dataclass
class HistoryReader:
    """Turns messages into what happened; remembers the calls that are still open."""

    table: ToolTable = field(default_factory=ToolTable)
    open_calls: dict[str, AskedCall] = field(default_factory=dict)

    def read(self, messages: Iterable[Message]) -> Iterator[Happened]:
        """What happened in these messages. Summaries and restored content repeat what was said, and tell nothing."""
        for message in messages:
            if tells_nothing(message):
                continue
            for index, block in enumerate(message.blocks):
                one = self.take(message, index, block.value)
                if one is not None:
                    yield one

    def take(self, message: Message, index: int, value: object) -> Happened | None:
        """What a block says that happened; `value` is what it holds."""
        if isinstance(value, ServerToolResult) and value.tool_use_id in self.open_calls:
            value = _found_by_server(value)
        if isinstance(value, ToolUse):
            self._asked(value)
        elif isinstance(value, ServerToolUse):
            if self.table.kind(value.name) == "tools":  # what else a provider runs, it does on no file of ours
                self._asked(ToolUse(value.id, value.name, value.raw_input))
        elif isinstance(value, ToolResult):
            asked = self.open_calls.pop(value.tool_use_id, None)
            if asked is not None:
                said_so = value.tool_use_id in message.answered or asked.use.name in self.table.users
                return AnsweredCall(*asked, value, message.id, index, said_so and not value.is_error)
        elif isinstance(value, Text):
            return MessageText(value.text, message.origin, message.id, index)
        return None

    def _asked(self, use: ToolUse) -> None:
        arguments = use.input
        self.open_calls[use.id] = AskedCall(use, arguments, self.table.action(use.name, arguments))

    def copy(self) -> HistoryReader:
        """One that goes on from here by itself."""
        return HistoryReader(self.table, self.open_calls.copy())


def tells_nothing(message: Message) -> bool:
    """Whether a message only repeats what was said, or belongs to a sub-agent's conversation."""
    return message.origin in ("summary", "restored") or message.agent_id is not None


def _found_by_server(searched: ServerToolResult) -> ToolResult:
    """What a search of the provider's own found among the tools, in the form in which a client's search says it."""
    content = msgspec.json.decode(searched.content)
    found = content.get("tool_references") if isinstance(content, dict) else None
    if not isinstance(found, list):
        return ToolResult(searched.tool_use_id, is_error=True)
    parts = [
        msgspec.Raw(msgspec.json.encode(one))
        for one in found
        if isinstance(one, dict) and isinstance(one.get("type"), str)
    ]
    return ToolResult(searched.tool_use_id, parts)
