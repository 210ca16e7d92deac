"""Open and finished work, as the todo and plan tools of common agents state it (CMP-5, RST-3)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple

from perdure.transcript.tool_calls.actions import ActionKind, first_text

_LISTS: Final = ("todos", "plan", "task_list", "todoList", "items", "task_progress")
_TEXTS: Final = ("content", "step", "title", "subject", "text", "description", "task", "name")
_STATES: Final = {
    **dict.fromkeys(("", "todo", "open", "not_started"), "pending"),
    **dict.fromkeys(("x", "done", "complete", "closed", "finished"), "completed"),
    **dict.fromkeys(("-", "~", "/", "inprogress", "active", "doing", "started"), "in_progress"),
    "canceled": "cancelled",
}
_BOX = re.compile(
    r"^[^\S\n]*(?:(?:[-*]|\d{1,9}[.)])[^\S\n]*)?\[([ xX~/-]?)\][^\S\n]*(\S|\S.*\S)[^\S\n]*$", re.MULTILINE
)
_CREATED = re.compile(r"[Tt]ask #?(\w+) (?:created|added)")
_LISTED = re.compile(r"^#(?P<id>\S+) \[(?P<state>\w+)\] (?P<text>.+)$", re.MULTILINE)
_ID_CHARS: Final = 40


class TodoEntry(NamedTuple):
    """One piece of work. `state`: pending, in_progress, completed, or another word of the agent's.

    `id` is how the agent's tool names it, where it gives ids. In a change, an empty text or state is as it was.
    """

    text: str
    state: str
    id: str = ""


class TodoUpdate(NamedTuple):
    """What a call says of the list: `all` of it anew; some to be `merged` in by their ids; one `added` or `changed`.

    Where `has_ids`, entries are named by their ids from then on, and not by what they say.
    """

    how: Literal["all", "merged", "added", "changed"]
    items: tuple[TodoEntry, ...]
    has_ids: bool = False


def todo_update(
    kind: ActionKind, name: str, arguments: Mapping[str, Any], result: str | None = None
) -> TodoUpdate | None:
    """What a call says of the list, and its `result`, where it is known; None when it says nothing of it."""
    if kind != "todo":  # Cline tells its progress along with any call
        rows = todo_rows(arguments.get("task_progress"))
        return TodoUpdate("all", rows) if rows else None
    whole = _whole(arguments)
    if whole is not None:
        return TodoUpdate("merged" if arguments.get("merge") is True else "all", whole)
    text = " ".join(first_text(arguments, _TEXTS).split())
    if text and re.search("create|add|new", name, re.IGNORECASE):
        created = _CREATED.search(result[:200]) if result else None
        return TodoUpdate(
            "added", (TodoEntry(text, "pending", created[1][:_ID_CHARS] if created else ""),), has_ids=True
        )
    identity = next((str(arguments[key]) for key in ("taskId", "task_id", "id") if arguments.get(key)), "")
    state = arguments.get("status")
    if identity:
        state = _state(state) if isinstance(state, str) and state else ""
        return TodoUpdate("changed", (TodoEntry(text, state, identity[:_ID_CHARS]),), has_ids=True)
    found = _LISTED.finditer(result or "")
    listed = tuple(TodoEntry(row["text"], _state(row["state"]), row["id"][:_ID_CHARS]) for row in found)
    return TodoUpdate("all", listed, has_ids=True) if listed else None


def todo_rows(text: Any) -> tuple[TodoEntry, ...]:
    """A list in Markdown, as Roo and Cline write it."""
    return tuple(TodoEntry(row, _state(mark)) for mark, row in _BOX.findall(text)) if isinstance(text, str) else ()


def _whole(arguments: Mapping[str, Any]) -> tuple[TodoEntry, ...] | None:
    for key in _LISTS:
        value = arguments.get(key)
        if isinstance(value, str) and (rows := todo_rows(value)):
            return rows
        if isinstance(value, list):
            entries = tuple(_entries(value))
            if entries or not value:
                return entries
    return None


def _entries(value: Iterable[Any]) -> Iterable[TodoEntry]:
    for entry in value:
        given = {"content": entry} if isinstance(entry, str) else entry
        if isinstance(given, Mapping) and (text := " ".join(first_text(given, _TEXTS).split())):
            identity = given.get("id")
            is_name = isinstance(identity, str | int) and not isinstance(identity, bool)
            yield TodoEntry(text, _state(given.get("status")), str(identity)[:_ID_CHARS] if is_name else "")


def _state(word: Any) -> str:
    plain = word.strip().lower().replace("-", "_") if isinstance(word, str) else ""
    return _STATES.get(word.strip() if plain == "_" else plain, plain)[:20]
