"""CMP-5, CMP-12: open and finished work, as the tools of common agents state it."""

from __future__ import annotations

import pytest
from tests.unit.ledger.talk import Talk

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("name", "given"),
    [
        (
            "TodoWrite",
            {"todos": [{"content": "write", "status": "completed"}, {"content": "test", "status": "pending"}]},
        ),
        (
            "update_plan",
            {"plan": [{"step": "write", "status": "completed"}, {"step": "test", "status": "in_progress"}]},
        ),
        ("update_todo_list", {"todos": "[x] write\n[-] test"}),
        ("task_tracker", {"command": "plan", "task_list": [{"title": "write", "status": "done"}, {"title": "test"}]}),
    ],
)
def test_plans_of_common_agents(name: str, given: dict[str, object]) -> None:
    talk = Talk().user("Go").ran(name, given)
    assert {task.text: task.status == "done" for task in talk.memory.todos.values()} == {"write": True, "test": False}
    text = talk.text()
    assert "- [x] write" in text.split("## Done")[1] and "test" in text.split("## Open work")[1].split("##")[0]


def test_tasks_by_id() -> None:
    """Claude Code names tasks by an id that the result of their creation tells."""
    talk = Talk().user("Go").ran("TaskCreate", {"subject": "Write the parser"}, "Task #4 created successfully: Write")
    talk.ran("TaskCreate", {"subject": "Test the parser"}, "Task #5 created successfully: Test")
    talk.ran("TaskUpdate", {"taskId": "4", "status": "in_progress"})
    assert "- [~] Write the parser" in talk.text()
    talk.ran("TaskUpdate", {"taskId": "4", "status": "completed"})
    assert "- [x] Write the parser" in talk.text() and "- [ ] Test the parser" in talk.text()


def test_background_work_in_flight() -> None:
    started = "Command running in background with ID: b12345"
    talk = Talk().user("Go").ran("Bash", {"command": "make serve", "run_in_background": True}, started)
    assert "in the background, its end not heard of: command: make serve (id b12345, since 22:15)" in talk.text()
    notice = "<task-notification>\n<task-id>b12345</task-id>\n<status>completed</status>\n</task-notification>"
    assert "its end not heard of" not in talk.user(notice).text()


def test_open_and_finished_work_has_times() -> None:
    """CMP-12: since when it is open or under way, and when it was done; telling it again changes nothing."""
    todos = [{"content": "parse", "status": "in_progress"}, {"content": "test", "status": "pending"}]
    talk = Talk().user("Go").ran("TodoWrite", {"todos": todos}).says("on it").says("still")
    talk.ran("TodoWrite", {"todos": [{"content": "parse", "status": "completed"}, todos[1]]})
    text = talk.text()
    assert "- [x] parse, 22:18" in text and "- [ ] test, since 22:14" in text
