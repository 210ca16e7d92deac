"""CMP-5, RST-3: one reader of the lists of common agents, for the record and for what comes back behind it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.calls import tracked, used
from tests.unit.ledger.talk import Talk

from perdure.compaction.restore import kinds
from perdure.transcript.tool_calls.todos import TodoEntry, TodoUpdate, todo_update

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("name", "given", "result", "expected"),
    [
        (
            "TodoWrite",
            {"todos": [{"content": "a  b", "status": "done"}, {"content": "c", "status": "blocked"}]},
            None,
            TodoUpdate("all", (TodoEntry("a b", "completed"), TodoEntry("c", "blocked"))),
        ),
        (
            "update_plan",
            {"plan": ["first", "second"]},
            None,
            TodoUpdate("all", (TodoEntry("first", "pending"), TodoEntry("second", "pending"))),
        ),
        ("update_plan", {"plan": []}, None, TodoUpdate("all", ())),
        (
            "todo_write",
            {"merge": True, "todos": [{"id": 1, "content": "a", "status": "in-progress"}]},
            None,
            TodoUpdate("merged", (TodoEntry("a", "in_progress", "1"),)),
        ),
        ("TaskCreate", {"subject": "a"}, None, TodoUpdate("added", (TodoEntry("a", "pending"),), has_ids=True)),
        (
            "TaskCreate",
            {"subject": "a"},
            "Task #4 created successfully: a",
            TodoUpdate("added", (TodoEntry("a", "pending", "4"),), has_ids=True),
        ),
        (
            "TaskUpdate",
            {"taskId": "4", "status": "completed"},
            None,
            TodoUpdate("changed", (TodoEntry("", "completed", "4"),), has_ids=True),
        ),
        ("TaskList", {}, None, None),
        (
            "TaskList",
            {},
            "#4 [completed] a\n#5 [in_progress] b",
            TodoUpdate("all", (TodoEntry("a", "completed", "4"), TodoEntry("b", "in_progress", "5")), has_ids=True),
        ),
        ("TodoWrite", {"todos": [None, 3, {}]}, None, None),
    ],
)
def test_what_a_call_says_of_the_list(
    name: str, given: dict[str, Any], result: str | None, expected: TodoUpdate | None
) -> None:
    assert todo_update("todo", name, given, result) == expected


def test_progress_that_is_told_along_with_any_call() -> None:
    """Cline ticks its list off in the arguments of other calls; a call without one says nothing of the list."""
    rows = TodoUpdate("all", (TodoEntry("one", "completed"), TodoEntry("two", "pending")))
    assert todo_update("read", "read_file", {"path": "a", "task_progress": "- [x] one\n- [ ] two"}) == rows
    assert todo_update("read", "read_file", {"path": "a", "todos": [{"content": "a"}]}) is None
    talk = Talk().user("Go").ran("read_file", {"path": "a.py", "task_progress": "- [x] one\n- [ ] two"})
    assert {task.text: task.status for task in talk.memory.todos.values()} == {"one": "done", "two": "open"}


def test_the_record_and_what_comes_back_agree() -> None:
    """CMP-5, RST-3: entries that are merged in, and a list that a tool was asked for."""
    first = {"todos": [{"id": "a", "content": "one", "status": "pending"}, {"id": "b", "content": "two"}]}
    second = {"merge": True, "todos": [{"id": "a", "content": "one", "status": "completed"}]}
    state = tracked(kinds.TODOS_TRACKER, used("todo_write", first), used("todo_write", second))
    talk = Talk().user("Go").ran("todo_write", first).ran("todo_write", second)
    assert [(todo.text, todo.state) for todo in state.items] == [("one", "completed"), ("two", "pending")]
    assert {task.text: task.status for task in talk.memory.todos.values()} == {"one": "done", "two": "open"}
    talk = Talk().user("Go").ran("TaskList", {}, "#4 [completed] write\n#5 [in_progress] test")
    assert {task.text: task.status for task in talk.memory.todos.values()} == {"write": "done", "test": "doing"}
