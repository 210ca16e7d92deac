"""What a tool call does, told from its name and its input: for common agents by name patterns, for others by registry.

Claude Code, Codex, Gemini, Cline, Roo, OpenHands, SWE-agent, mini-swe-agent, Cursor and servers of tools all name the
same few deeds differently. A user adds a pattern for a tool of their own with `Tools.with_pattern`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from holdfast.context.restore.shell import Fate, fates_of

Deed = Literal["read", "edit", "write", "delete", "run", "search", "todo", "agent", "input", "web", "ask", "other"]
DEEDS: tuple[Deed, ...] = get_args(Deed)

_KNOWN: tuple[tuple[str, Deed], ...] = (
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
class Touch:
    """A file that a call reads or changes; `span` says which part was read, such as 10-40."""

    path: str
    deed: Deed
    span: str = ""


@dataclass(frozen=True, slots=True)
class Deeds:
    """What a call does: its deed, the command it runs, the files it touches and the text that it writes into them."""

    deed: Deed
    command: str = ""
    touches: tuple[Touch, ...] = ()
    fates: tuple[Fate, ...] = ()
    written: str = ""


@dataclass(frozen=True, slots=True)
class Tools:
    """The registry: name patterns and the deed of each. `own` are the user's, and come first.

    >>> Tools().with_pattern("deploy_.*", "run").deed("deploy_site")
    'run'
    """

    own: tuple[tuple[str, Deed], ...] = ()
    _seen: dict[str, Deed] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, entries: Iterable[str]) -> Tools:
        """The registry with entries of settings, such as `deploy_.*=run`; an unknown deed counts as `other`."""
        own: list[tuple[str, Deed]] = []
        for entry in entries:
            pattern, _, name = entry.rpartition("=")
            deed: Deed = next((known for known in DEEDS if known == name.strip()), "other")
            own.append((pattern.strip(), deed))
        return cls(tuple(own))

    def with_pattern(self, pattern: str, deed: Deed) -> Tools:
        """The registry with one more pattern, a regular expression for the whole name; case doesn't matter."""
        return Tools(((pattern, deed), *self.own))

    def deed(self, name: str) -> Deed:
        """What a tool of this name does."""
        if name not in self._seen:
            self._seen[name] = self._find(name)
        return self._seen[name]

    def _find(self, name: str) -> Deed:
        bare = re.split(r"__|\.|/|:", name)[-1] or name
        snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", bare)
        for pattern, deed in self.own:
            if re.fullmatch(pattern, name, re.IGNORECASE):
                return deed
        for pattern, deed in _KNOWN:
            if any(re.fullmatch(pattern, one, re.IGNORECASE) for one in (bare, snake)):
                return deed
        return "other"

    def deeds(self, name: str, arguments: Mapping[str, Any]) -> Deeds:
        """What one call does."""
        deed = self.deed(name)
        command = _command(arguments) if deed in ("run", "other", "input") else ""
        if deed == "edit" and arguments.get("command") in ("view", "create"):
            deed = "read" if arguments["command"] == "view" else "write"
        if command and deed == "other":
            deed = "run"
        if deed == "run":
            fates = (*_patch_fates(command), *fates_of(command))
            return Deeds("run", command, _shell_touches(command), fates, _shell_writes(command))
        if deed == "delete":
            paths = [path for path in (_first_string(arguments, _PATHS),) if path]
            return Deeds("delete", fates=tuple(Fate(path, "deleted", by=name) for path in paths))
        if deed in ("edit", "write", "read"):
            return _file_deeds(deed, arguments)
        return Deeds(deed, command)


def _first_string(arguments: Mapping[str, Any], names: tuple[str, ...]) -> str:
    return next((value for name in names if isinstance(value := arguments.get(name), str) and value), "")


def _command(arguments: Mapping[str, Any]) -> str:
    """The command line of a call; a list of arguments is joined, a shell's -c unwrapped."""
    value = next((arguments[key] for key in ("command", "cmd", "script", "code") if arguments.get(key)), "")
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        is_wrapped = len(value) >= 3 and value[1] in ("-c", "-lc", "-Command", "/c")
        return str(value[2]) if is_wrapped else " ".join(value)
    return value if isinstance(value, str) else ""


def _file_deeds(deed: Deed, arguments: Mapping[str, Any]) -> Deeds:
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
    touches = tuple(Touch(one, deed, span) for one in dict.fromkeys(paths))
    return Deeds(deed, touches=touches, fates=_patch_fates(patch), written=written)


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


def _patch_fates(text: str) -> tuple[Fate, ...]:
    """The files that a patch deletes, or moves."""
    if "*** " not in text:
        return ()
    gone = tuple(Fate(path, "deleted", by="apply_patch") for path in _DELETED.findall(text))
    moved = tuple(Fate(old, "moved", to, "apply_patch") for old, to in _MOVED_FROM.findall(text))
    return (*gone, *moved)


def _shell_touches(command: str) -> tuple[Touch, ...]:
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
    touches = [Touch(path.strip("'\""), "edit") for path in changed]
    return (*touches, *(Touch(path, "read") for path in read if path not in changed))


def _shell_writes(command: str) -> str:
    """What a command writes into files: its here-documents, or its patch."""
    if "<<" not in command:
        return ""
    return "\n".join(body for _, body in _HEREDOC.findall(command))
