"""What the agent did, read from its calls: files edited, commands run, lines written, work that is open (QLT-1).

By names of tools and keys that common agents use. The probe's own reading; the engine has another.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from holdfast.bench.utterances import Utterance
from holdfast.transcript.blocks import ToolUse

_PATH_KEYS: Final = ("file_path", "path", "notebook_path", "filePath", "filename", "absolute_path", "target_file")
_COMMAND_KEYS: Final = ("command", "cmd", "script")
_OLD_KEYS: Final = ("old_string", "old_str", "oldString", "old_text", "search")
_NEW_KEYS: Final = ("new_string", "new_str", "newString", "new_text", "content", "file_text", "insert_text",
                    "new_source", "replacement", "replacement_text", "code_edit")  # fmt: skip
_EDITS: Final = re.compile(r"edit|write|patch|replace|create_file|^create$|^insert$|notebook", re.IGNORECASE)
_READS: Final = re.compile(r"(?:^|_)(?:read|view|open|cat)(?:_|$)|^Read$|^NotebookRead$|ReadFile", re.IGNORECASE)
_PART_KEYS: Final = ("offset", "limit", "start_line", "end_line", "line_start", "line_end", "view_range", "pages")
_SHELLS: Final = re.compile(r"bash|shell|exec|terminal|run_|powershell|command|test", re.IGNORECASE)
_PATCHED: Final = re.compile(r"^\*\*\* (?:Update|Add|Delete) File: (.+?)\s*$", re.MULTILINE)
_CD: Final = re.compile(r"^cd\s+(?:\"[^\"]*\"|'[^']*'|\S+)\s*(?:&&|;)\s*")
_COMMAND_CHARS: Final = 200  # a longer command is known by its beginning
_LEAST_COMMAND_CHARS: Final = 6

_FAILED: Final = tuple(
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        r"^\s*--- FAIL: (\S+)",  # go
        r"^FAILED (\S+::\S.*?)(?: - .*)?$",  # pytest, the short summary
        r"^(\S+::\S+)\s+FAILED\b",  # pytest -v
        r"^test (\S+) \.\.\. FAILED$",  # cargo
        r"^(?:FAIL|ERROR): (\w+) \(",  # unittest
        r"^\(fail\) (.+?)(?: \[[\d.]+ ?m?s\])?$",  # bun
        r"^\s*● (.+ › .+?)$",  # jest
        r"^\s*[✕✗] (.{4,}?)(?: \(?\d+(?:\.\d+)? ?m?s\)?)?$",  # jest, mocha
        r"^not ok \d+ -? ?(.+?)(?: # .*)?$",  # TAP
    )
)


def edited_paths(use: ToolUse) -> list[str]:
    """The files that a call changes, as it spells them, with / between the parts."""
    arguments = use.arguments()
    paths = [found for text in _texts(arguments) if "*** " in text for found in _PATCHED.findall(text)]
    if _EDITS.search(use.name) and arguments.get("command") not in ("view", "undo_edit"):
        paths += [arguments[key] for key in _PATH_KEYS if isinstance(arguments.get(key), str)][:1]
    return [re.sub(r"[\\/]+", "/", path) for path in paths]


def read_path(use: ToolUse) -> str | None:
    """The file that a call reads, with the part of it where it names one: another part is another thing to see."""
    arguments = use.arguments()
    if not (_READS.search(use.name) or arguments.get("command") == "view"):
        return None
    path = next((arguments[key] for key in _PATH_KEYS if isinstance(arguments.get(key), str)), None)
    if path is None:
        return None
    part = ",".join(str(arguments[key]) for key in _PART_KEYS if arguments.get(key) is not None)
    path = re.sub(r"[\\/]+", "/", path)
    return f"{path}#{part}" if part else path


def command_of(use: ToolUse) -> str | None:
    """The shell command of a call: its first line, in single blanks, without a leading change of directory."""
    if not _SHELLS.search(use.name):
        return None
    for key in _COMMAND_KEYS:
        given = use.arguments().get(key)
        text = " ".join(map(str, given)) if isinstance(given, list) else given
        if isinstance(text, str) and text.strip():
            first = _CD.sub("", " ".join(text.strip().splitlines()[0].split()))
            return first[:_COMMAND_CHARS] if len(first) >= _LEAST_COMMAND_CHARS else None
    return None


def old_texts(use: ToolUse) -> Iterator[str]:
    """What an edit names as the text to replace: it has to know it to the letter."""
    for name, text in _keyed(use.arguments()):
        if name in _OLD_KEYS:
            yield text
        elif "*** Update File: " in text:
            yield "\n".join(line[1:] for line in text.splitlines() if line[:1] in ("-", " "))


def written_texts(use: ToolUse) -> Iterator[str]:
    """What a call writes: new texts of edits, contents of files, all of a command but its first line."""
    for name, text in _keyed(use.arguments()):
        if name in _NEW_KEYS:
            yield text
        elif "*** " in text and _PATCHED.search(text):
            yield "\n".join(line[1:] for line in text.splitlines() if line.startswith("+"))
        elif name in _COMMAND_KEYS and "\n" in text.strip():
            yield text.strip().split("\n", 1)[1]


def _keyed(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Every text of an input with the key that it stands under."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _keyed(inner, str(key))
    elif isinstance(value, list):
        for inner in value:
            yield from _keyed(inner, name)


def _texts(value: Any) -> Iterator[str]:
    return (text for _, text in _keyed(value))


def failing_tests(said: Sequence[Utterance]) -> list[str]:
    """The tests that the output of a command reports as failed, also those that passed later."""
    failed: dict[str, None] = {}
    for one in said:
        if one.who == "environment" and _SHELLS.search(one.tool):
            for pattern in _FAILED:
                failed.update(dict.fromkeys(name.strip() for name in pattern.findall(one.text)))
    return list(failed)


_CREATED: Final = re.compile(r"Task #(\d+) created")


def open_todos(said: Sequence[Utterance]) -> list[str]:
    """The todos that are not done: of the last list that was written whole, or task by task."""
    whole: list[str] = []
    tasks: dict[str, str] = {}
    asked: list[str] = []
    for one in said:
        if one.tool == "TaskCreate" and asked:
            created = _CREATED.search(one.text)
            subject = asked.pop(0)
            if created:
                tasks[created[1]] = subject
        if one.use is None:
            continue
        arguments = one.use.arguments()
        if one.use.name == "TaskCreate":
            asked.append(str(arguments.get("subject", "")))
        elif one.use.name == "TaskUpdate" and arguments.get("status") in ("completed", "deleted", "cancelled"):
            tasks.pop(str(arguments.get("taskId", "")), None)
        elif one.use.name in ("TodoWrite", "update_plan", "todo_write"):
            items = arguments.get("todos", arguments.get("plan"))
            whole = list(_open_items(items)) if isinstance(items, list) else whole
    return [todo for todo in [*whole, *tasks.values()] if todo.strip()]


def _open_items(items: list[Any]) -> Iterator[str]:
    for item in items:
        if isinstance(item, dict) and item.get("status") not in ("completed", "cancelled", "deleted"):
            yield str(item.get("content", item.get("step", "")))
