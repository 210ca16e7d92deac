"""The todo list: all of its items, as they stood (RST-3)."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from holdfast import prompts
from holdfast.context.quoting import inline
from holdfast.context.restore.happened import Happened, Used
from holdfast.context.restore.registry import Entry, Restored, Restorer, Room, Scene, Tracker
from holdfast.settings import Settings

KIND = "todos"
TODOS_KEPT = 120
TODO_CHARS = 300
_LISTS: Final = frozenset("todowrite writetodos updateplan todolist tasktracker managetodolist".split())
_MARKDOWN: Final = frozenset({"updatetodolist", "todomd"})
_STATES: Final = {
    "todo": "pending", "done": "completed", "complete": "completed", "inprogress": "in_progress", "x": "completed",
    "-": "in_progress", "~": "in_progress", "": "pending", " ": "pending", "active": "in_progress",
    "not-started": "pending", "in-progress": "in_progress",
}  # fmt: skip
_CREATED = re.compile(r"Task #(\S+) created")
_ROW = re.compile(r"^[^\S\n]*(?:[-*] |\d{1,9}[.)] )?\[(?P<mark>[ xX~-]?)\] +(?P<text>.+)$", re.MULTILINE)
_TASK_ROW = re.compile(r"^#(?P<id>\S+) \[(?P<state>\w+)\] (?P<text>.+)$", re.MULTILINE)


class Todo(msgspec.Struct, frozen=True, omit_defaults=True):
    """One item. `id` is set where the agent gives ids."""

    text: str
    state: str = "pending"
    id: str | None = None


class Todos(msgspec.Struct):
    """The list as it stands."""

    items: list[Todo] = []


def track(state: Todos, happened: Happened) -> Todos:
    """Take in a call that writes the list, or one of its items."""
    if not isinstance(happened, Used) or happened.has_failed:
        return state
    kind, given = happened.kind, happened.arguments
    if kind in _LISTS:
        items = next((v for k in ("todos", "plan", "task_list", "items", "todoList") if (v := given.get(k))), None)
        if isinstance(items, list):
            found = [todo for one in items if (todo := _todo(one)) is not None]
            state.items = _merged(state.items, found) if given.get("merge") is True else found
    elif kind in _MARKDOWN and isinstance(given.get("todos"), str):
        state.items = _rows(given["todos"])
    elif isinstance(given.get("task_progress"), str):
        state.items = _rows(given["task_progress"]) or state.items
    elif kind in ("taskcreate", "taskupdate", "tasklist"):
        _tasks(state, happened)
    del state.items[TODOS_KEPT:]
    return state


def _todo(one: Any) -> Todo | None:
    if isinstance(one, str):
        one = {"content": one}
    if not isinstance(one, dict):
        return None
    keys = ("content", "step", "title", "text", "subject", "description", "task")
    text = next((v for k in keys if isinstance(v := one.get(k), str) and v.strip()), None)
    if text is None:
        return None
    identity = one.get("id")
    name = str(identity)[:40] if isinstance(identity, str | int) and not isinstance(identity, bool) else None
    return Todo(_clipped(text), _state(one.get("status")), name)


def _state(value: Any) -> str:
    word = value.strip().lower() if isinstance(value, str) else "pending"
    return _STATES.get(word, word)[:20]


def _clipped(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= TODO_CHARS else text[: TODO_CHARS - 1] + "…"


def _rows(text: str) -> list[Todo]:
    """A list in Markdown, as Roo and Cline write it."""
    return [Todo(_clipped(row["text"]), _state(row["mark"])) for row in _ROW.finditer(text)]


def _merged(old: list[Todo], new: list[Todo]) -> list[Todo]:
    """Cursor's way: items of the same id are replaced, others are added."""
    by_id = {todo.id: todo for todo in new}
    kept = [by_id.pop(todo.id, todo) for todo in old]
    return [*kept, *(todo for todo in new if todo.id in by_id)]


def _tasks(state: Todos, used: Used) -> None:
    """Claude Code's tasks: created and updated one by one."""
    given = used.arguments
    if used.kind == "tasklist":
        rows = [Todo(_clipped(r["text"]), _state(r["state"]), r["id"][:40]) for r in _TASK_ROW.finditer(used.text)]
        state.items = rows or state.items
    elif used.kind == "taskcreate":
        created, todo = _CREATED.search(used.text), _todo(given)
        if todo is not None:
            identity = created[1][:40] if created else str(len(state.items) + 1)
            title = _clipped(given["subject"]) if isinstance(given.get("subject"), str) else todo.text
            state.items = [*state.items, Todo(title, "pending", identity)]
    else:
        identity = str(given.get("taskId", given.get("id")))
        if _state(given.get("status")) == "deleted":
            state.items = [todo for todo in state.items if todo.id != identity]
        else:
            state.items = [_updated(todo, given) if todo.id == identity else todo for todo in state.items]


def _updated(todo: Todo, given: dict[str, Any]) -> Todo:
    text = given.get("subject")
    state = _state(given["status"]) if isinstance(given.get("status"), str) else todo.state
    return Todo(_clipped(text) if isinstance(text, str) and text.strip() else todo.text, state, todo.id)


def restore(scene: Scene, room: Room) -> Restored | None:
    """All items, in their order; where they don't fit, what is done gives way first."""
    state = scene.states.get(KIND)
    if not isinstance(state, Todos) or not state.items or all(t.state == "completed" for t in state.items):
        return None
    dropped: list[Todo] = []
    items = list(state.items)
    while items and room.cost(_text(items)) > room.next:
        victim = next((t for t in items if t.state == "completed"), items[-1])
        items.remove(victim)
        dropped.append(victim)
    left = tuple(todo.text[:80] for todo in dropped)
    text = _text(items)
    if not items or not room.admits(text):
        return Restored((), tuple(todo.text[:80] for todo in state.items))
    return Restored((Entry("todos", text),), left)


def _text(items: list[Todo]) -> str:
    return "\n".join(inline(f"- [{t.state}] {f'#{t.id} ' if t.id else ''}{t.text}") for t in items)


def budget(settings: Settings) -> tuple[int, int]:
    return settings.restore_todos_tokens, settings.restore_todos_tokens


TRACKER = Tracker(KIND, Todos, track)
RESTORER = Restorer(KIND, restore, budget, lead=prompts.source("restored_todos"), rank=10)
