"""Open and finished work, as the plan and todo tools of common agents state it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

_DONE = frozenset({"completed", "complete", "done", "cancelled", "canceled", "closed", "deleted", "x"})
_TEXTS = ("content", "step", "title", "subject", "text", "description", "task", "name")
_BOX = re.compile(
    r"^[^\S\n]*(?:(?:[-*]|\d{1,9}[.)])[^\S\n]*)?\[([ xX~/-]?)\][^\S\n]*(\S|\S.*\S)[^\S\n]*$", re.MULTILINE
)
_CREATED = re.compile(r"[Tt]ask #?(\w+) (?:created|added)")


class Todo(NamedTuple):
    """One piece of work. `key` is how the agent's tool names it later: an id, or the text itself."""

    key: str
    text: str
    status: str  # open, doing or done


class TodoChange(NamedTuple):
    """What a call did to the plan: all of it anew, or some entries of it."""

    todos: tuple[Todo, ...]
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
        return TodoChange((Todo(identity, text, _status(state) if state else ""),), is_whole=False)
    if text and re.search("create|add|new", name, re.IGNORECASE):
        return TodoChange((Todo("", text, "open"),), is_whole=False)
    return None


def created_key(result: str) -> str:
    """The id that a tool gave to a new entry, told by its result."""
    found = _CREATED.search(result[:200])
    return found[1] if found else ""


def _whole(arguments: Mapping[str, Any]) -> tuple[Todo, ...] | None:
    for key in ("todos", "plan", "task_list", "todoList", "items", "task_progress"):
        value = arguments.get(key)
        if isinstance(value, str) and _BOX.search(value):
            return tuple(Todo(text, text, _box(mark)) for mark, text in _BOX.findall(value))
        if isinstance(value, list) and (not value or isinstance(value[0], Mapping)):
            return tuple(todo for entry in value if (todo := _entry(entry)))
    return None


def _entry(entry: Any) -> Todo | None:
    if not isinstance(entry, Mapping):
        return None
    text = _text(entry)
    return Todo(text, " ".join(text.split()), _status(str(entry.get("status") or "pending"))) if text else None


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
