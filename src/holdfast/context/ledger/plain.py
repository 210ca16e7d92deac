"""A plain ledger: the person's words, files, commands, errors, open todos and current work (CMP-5).

It is gathered from messages and merged with what was gathered before an earlier boundary, so it is always built from
what was said, never from a summary (CMP-13).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from holdfast.context.items import PATH_KEYS
from holdfast.settings import COMPACTABLE_TOOLS
from holdfast.transcript.blocks import Text, ToolResult, ToolUse
from holdfast.transcript.messages import Message
from holdfast.transcript.tokens import base_tokens

_COMMANDS = frozenset(COMPACTABLE_TOOLS[1])
_CHANGES = frozenset((*COMPACTABLE_TOOLS[6], *COMPACTABLE_TOOLS[7], "NotebookEdit"))
_TODOS = frozenset({"TodoWrite", "todo_write", "update_plan", "write_todos"})
_ERROR = re.compile(r"(?:Error|Exception|panic)[:!]|error[:\[]|\nE  |FAILED |fatal:")
_EXIT = re.compile(r"(?:exit(?:ed)?(?: with)? code|returncode>|Exit code:?)\s*:?\s*(\d+)", re.IGNORECASE)
_NOT_SPOKEN = ("<system-reminder>", "<local-command-stdout>", "<command-name>", "[Request interrupted")

# Share of the budget of each section, in order; what one leaves is handed on to the next.
_SHARES = (("words", 0.40), ("todos", 0.10), ("work", 0.15), ("files", 0.15), ("commands", 0.12), ("errors", 0.08))
_HEADINGS = {
    "words": "What the user said, word for word (oldest first)",
    "todos": "Open work",
    "work": "What was being done",
    "files": "Files",
    "commands": "Commands that were run (a record, not a request)",
    "errors": "Errors seen",
}
_KEPT = {"words": 400, "files": 300, "commands": 200, "errors": 60, "work": 6}


class Ledger(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the plain ledger knows. Lists are oldest first; files and commands map a name to its fact."""

    words: tuple[str, ...] = ()
    files: dict[str, str] = {}
    commands: dict[str, str] = {}
    errors: tuple[str, ...] = ()
    todos: tuple[str, ...] = ()
    work: tuple[str, ...] = ()

    def merged(self, later: Ledger) -> Ledger:
        """This ledger, gone on by a later one."""
        return Ledger(
            words=_unique((*self.words, *later.words))[-_KEPT["words"] :],
            files=_last({**_without(self.files, later.files), **later.files}, _KEPT["files"]),
            commands=_last({**_without(self.commands, later.commands), **later.commands}, _KEPT["commands"]),
            errors=_unique((*self.errors, *later.errors))[-_KEPT["errors"] :],
            todos=later.todos or self.todos,
            work=(later.work or self.work)[-_KEPT["work"] :],
        )

    def text(self, budget_tokens: int) -> str:
        """The ledger as Markdown, at most `budget_tokens` by the base rule; the first and last words come first."""
        lines = {
            "words": [f"- {words}" for words in self.words],
            "todos": [f"- [ ] {todo}" for todo in self.todos],
            "work": [f"- {text}" for text in self.work],
            "files": [f"- {path}: {fact}" for path, fact in self.files.items()],
            "commands": [f"- `{command}`: {outcome}" for command, outcome in self.commands.items()],
            "errors": [f"- {line}" for line in self.errors],
        }
        sections, spare = [], 0.0
        for name, share in _SHARES:
            spare += share * budget_tokens
            chosen = _fitting(lines[name], spare - base_tokens(_HEADINGS[name]) - 2, keep_first=name == "words")
            if chosen:
                section = f"## {_HEADINGS[name]}\n" + "\n".join(chosen)
                spare -= base_tokens(section) + 1
                sections.append(section)
        return "\n\n".join(sections)


def _fitting(lines: list[str], tokens: float, *, keep_first: bool) -> list[str]:
    """The newest lines that fit, in their order; with `keep_first` the very first one goes before the others."""
    order = list(range(len(lines)))[::-1]
    if keep_first and len(lines) > 1:
        order = [order[0], order[-1], *order[1:-1]]
    chosen = set()
    for index in order:
        cost = base_tokens(lines[index]) + 1
        if cost <= tokens:
            chosen.add(index)
            tokens -= cost
    return [lines[index] for index in sorted(chosen)]


def ledger_of(messages: Iterable[Message]) -> Ledger:
    """Gather the ledger of some messages."""
    gathered = _Gathering()
    for message in messages:
        gathered.take(message)
    return gathered.ledger()


class _Gathering:
    def __init__(self) -> None:
        self.words: list[str] = []
        self.files: dict[str, list[str]] = {}
        self.commands: dict[str, tuple[int, str]] = {}
        self.errors: list[str] = []
        self.todos: tuple[str, ...] = ()
        self.work: list[str] = []
        self._running: dict[str, str] = {}

    def take(self, message: Message) -> None:
        for block in message.blocks:
            value = block.value
            if isinstance(value, Text):
                self._text(message, value.text.strip())
            elif isinstance(value, ToolUse):
                self._call(value)
            elif isinstance(value, ToolResult):
                self._result(value)

    def _text(self, message: Message, text: str) -> None:
        if not text:
            return
        if message.origin == "user" and not text.startswith(_NOT_SPOKEN):
            self.words.append(text)
        elif message.origin == "model":
            self.work.append(" ".join(text.split())[:600])

    def _call(self, use: ToolUse) -> None:
        arguments = use.arguments()
        if use.name in _TODOS:
            self.todos = _open_todos(arguments)
        command = next((arguments[k] for k in ("command", "cmd") if isinstance(arguments.get(k), str)), None)
        if command is not None and use.name in _COMMANDS:
            line = " ".join(command.split())[:200]
            count = self.commands.pop(line, (0, ""))[0]
            self.commands[line] = (count + 1, "")
            self._running[use.id] = line
        path = next((arguments[k] for k in PATH_KEYS if isinstance(arguments.get(k), str)), None)
        if path:
            deeds = self.files.pop(path, [])
            deeds.append("changed" if use.name in _CHANGES else "read")
            self.files[path] = deeds

    def _result(self, result: ToolResult) -> None:
        text = result.text()
        line = self._running.pop(result.tool_use_id, None)
        found = _ERROR.search(text)
        if found:
            start = text.rfind("\n", 0, found.start()) + 1
            error = " ".join(text[start : start + 200].split("\n", 1)[0].split())
            if error and error not in self.errors:
                self.errors.append(error)
        if line is not None and line in self.commands:
            code = _EXIT.search(text[:400] + text[-200:])
            failed = bool(result.is_error) or bool(code and code[1] != "0")
            last = text.strip().rsplit("\n", 1)[-1][:120]
            outcome = (
                f"{'failed' if failed else 'ok'}{f' (exit {code[1]})' if code else ''}{f', {last}' if last else ''}"
            )
            self.commands[line] = (self.commands[line][0], outcome)

    def ledger(self) -> Ledger:
        return Ledger(
            words=_unique(tuple(self.words)),
            files={path: _deeds(deeds) for path, deeds in self.files.items()},
            commands={c: (f"{n} times, " if n > 1 else "") + (o or "no result") for c, (n, o) in self.commands.items()},
            errors=tuple(self.errors[-_KEPT["errors"] :]),
            todos=self.todos,
            work=tuple(self.work[-_KEPT["work"] :]),
        )


def _open_todos(arguments: dict[str, Any]) -> tuple[str, ...]:
    entries = arguments.get("todos") or arguments.get("plan") or []
    if not isinstance(entries, list):
        return ()
    found = []
    for entry in entries:
        if isinstance(entry, dict) and entry.get("status") not in ("completed", "cancelled"):
            text = entry.get("content") or entry.get("step") or entry.get("title")
            if text:
                mark = " (in progress)" if entry.get("status") == "in_progress" else ""
                found.append(f"{text}{mark}")
    return tuple(found)


def _deeds(deeds: list[str]) -> str:
    changes, reads = deeds.count("changed"), deeds.count("read")
    parts = [f"changed {changes} times" if changes > 1 else "changed"] if changes else []
    if reads:
        parts.append(f"read {reads} times" if reads > 1 else "read")
    return ", ".join(parts)


def _unique(lines: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(lines))


def _without(old: dict[str, str], new: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in old.items() if key not in new}


def _last(facts: dict[str, str], most: int) -> dict[str, str]:
    return dict(list(facts.items())[-most:])
