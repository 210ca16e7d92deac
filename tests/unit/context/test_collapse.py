"""TURN-6: which ranges fold, into what, and back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.context.making import UNBOUND, Talk, after, call, facts, text

from perdure.compaction.collapse import collapse
from perdure.compaction.finished import finished_ranges
from perdure.context.request import to_request
from perdure.context.view import project
from perdure.transcript.blocks import Text
from perdure.transcript.messages import FILES_REWOUND
from perdure.transcript.records import Undone
from perdure.transcript.tokens import base_tokens
from perdure.transcript.tool_calls.actions import ToolTable

pytestmark = pytest.mark.unit

NOTE = "value = compute(1)\n" * 600


def todo(talk: Talk, identity: str, status: str) -> None:
    talk.ran(identity, "TodoWrite", "noted", input={"todos": [{"content": "parser", "status": status}]})


def worked(status: str = "completed") -> Talk:
    """A todo is begun, worked on with several commands, and closed."""
    talk = Talk()
    talk.user("build the parser")
    todo(talk, "begin", "in_progress")
    for n in range(6):
        talk.ran(f"t{n}", "Bash", f"{n}\n{NOTE}", input={"command": f"make {n}"})
    todo(talk, "end", status)
    talk.answered()
    return talk


def known(**more: Any) -> Any:
    """Facts under which a move pays back at once, since reading costs as much as writing."""
    return facts(
        **{"collapse": True, "collapse_min_tokens": 2_000, "model": replace(UNBOUND, read_factor=1.25), **more}
    )


def test_a_finished_task_folds_into_its_projection() -> None:
    """TURN-6: the range between the todo's start and its end, at legal cuts; a projection takes its place."""
    talk = worked()
    ((first, last, title, _),) = finished_ranges(talk.view, ToolTable())
    assert (first, last, title) == (3, 14, "parser")
    (edit,) = collapse(talk.view, known())
    view = after(talk.view, (edit,))
    assert [item.is_hidden for item in view.items].count(True) == 12
    assert view.size.base < talk.view.size.base - 0.9 * edit.tokens_saved
    body = to_request(view, known()).body.decode()
    assert f'[Finished work, folded: \\"parser\\". The whole of it: recall with id {edit.id}]' in body
    assert body.count("value = compute") <= 6, "one line of each outcome"
    assert collapse(view, known()) == (), "the rest is not finished"


def test_all_that_is_finished_folds_at_once() -> None:
    """TURN-6, REL-5: two tasks fold in one go, so that a request prepared again, as after a cut call, is the same."""
    talk = worked()
    todo(talk, "begin again", "in_progress")
    for n in range(6):
        talk.ran(f"u{n}", "Bash", f"{n} again\n{NOTE}", input={"command": f"make {n}"})
    todo(talk, "end again", "completed")
    talk.answered()
    edits = collapse(talk.view, known())
    assert [edit.id for edit in edits] == ["collapse-m4", "collapse-m21"]
    assert collapse(after(talk.view, edits), known()) == ()


@pytest.mark.parametrize("status", ["pending", "in_progress"])
def test_an_open_task_stays(status: str) -> None:
    """TURN-6: only finished ranges."""
    assert finished_ranges(worked(status).view, ToolTable()) == []
    assert collapse(worked(status).view, known()) == ()


def test_it_is_a_setting_and_has_to_be_worth_it() -> None:
    """TURN-5, TURN-6: off by default; a range below the least size stays; so does one that never pays back."""
    view = worked().view
    assert collapse(view, facts()) == ()
    assert collapse(view, known(collapse_min_tokens=100_000)) == ()
    never = replace(UNBOUND, read_factor=0.0)
    assert collapse(view, known(model=never)) == ()
    assert collapse(view, known(model=never, window_tokens=18_000, window=18_000)), "room is needed"


def test_undone_it_is_as_it_was() -> None:
    """TURN-6: undoable, and the view is equal to the one before."""
    talk = worked()
    (edit,) = collapse(talk.view, known())
    view = project([Undone(id=edit.id)], onto=after(talk.view, (edit,)))
    assert [item.is_hidden for item in view.items] == [False] * len(view.items)
    assert (view.size, view.result_tokens, view.media) == (
        talk.view.size,
        talk.view.result_tokens,
        talk.view.media,
    )
    assert to_request(view, known()).parts() == to_request(talk.view, known()).parts()


def test_a_range_that_ends_a_loop_does_not_join_two() -> None:
    """TURN-7: behind results a projection is part of their message, and would open their loop again."""
    talk = Talk()
    talk.user("build the parser")
    todo(talk, "begin", "in_progress")
    for n in range(6):
        talk.ran(f"t{n}", "Bash", f"{n}\n{NOTE}")
    talk.model(text("half is done"))
    talk.user("go on")
    todo(talk, "end", "completed")
    talk.answered()
    assert finished_ranges(talk.view, ToolTable())
    assert collapse(talk.view, known()) == ()


REPORT = "The parser is in src/parse.py; `Lexer.next` returns None at the end.\n" * 120


def shown(talk: Talk, **more: Any) -> str:
    """The one request, and what it costs less."""
    (edit,) = collapse(talk.view, known(**more))
    assert edit.tokens_saved > 0
    return to_request(after(talk.view, (edit,)), known()).body.decode()


def later(talk: Talk, lines: int = 3_000) -> None:
    """Enough was said since."""
    talk.answered()
    talk.user("go on")
    talk.ran(f"later{len(talk.records)}", "Bash", "row of output\n" * lines, input={"command": "make all"})
    talk.answered()


def agents(*names: str) -> Talk:
    """Sub-agents that ran at once, and reported."""
    talk = Talk()
    talk.user("where is the parser?")
    talk.model(*(call(name, "Task", description=f"find {name}", prompt="Look.") for name in names))
    talk.message(
        "user",
        *({"type": "tool_result", "tool_use_id": name, "content": f"{name}\n{REPORT}"} for name in names),
        origin="tool",
    )
    return talk


def test_what_sub_agents_did_folds_once_enough_was_said_since() -> None:
    """TURN-6: a report that is being worked with stays."""
    talk = agents("lexer", "tests")
    talk.answered()
    assert [(one.title, one.what) for one in finished_ranges(talk.view, ToolTable())] == [
        ("find lexer, find tests", "agents")
    ]
    assert collapse(talk.view, known()) == ()
    later(talk)
    body = shown(talk)
    assert '[What sub-agents did and reported, folded: \\"find lexer, find tests\\". The whole of it: recall' in body
    assert "`Lexer.next` returns None" in body and len(body) < len(REPORT) + 60_000
    assert "where is the parser?" in body


def test_a_sub_agent_in_the_background_folds_with_the_waiting_for_it() -> None:
    """TURN-6: from its start to its end; while it runs, nothing is finished."""
    talk = Talk()
    talk.user("look around")
    launched = "Async agent launched successfully.\nagentId: ab12 (internal)"
    talk.ran("a", "Task", launched, input={"description": "look", "prompt": "x", "run_in_background": True})
    talk.ran("w", "TaskOutput", "<status>running</status>", input={"task_id": "ab12"})
    talk.answered()
    assert finished_ranges(talk.view, ToolTable()) == []
    talk = Talk()
    talk.user("look around")
    talk.ran("a", "Task", launched, input={"description": "look", "prompt": "x", "run_in_background": True})
    talk.ran("w", "TaskOutput", "<status>running</status>", input={"task_id": "ab12"})
    talk.ran("o", "TaskOutput", f"<status>completed</status>\n{REPORT}", input={"task_id": "ab12"})
    later(talk)
    ((first, last, title, what),) = finished_ranges(talk.view, ToolTable())
    assert (first, last, title, what) == (1, 6, "look", "agents")


FINDING = "Nobody closes the socket when the handshake fails, so the pool runs dry after an hour."


def folded(talk: Talk) -> str:
    (edit,) = collapse(talk.view, known())
    value = edit.projection.blocks[0].value
    assert isinstance(value, Text)
    return value.text


def test_the_reports_of_sub_agents_stand_in_the_fold() -> None:
    """TURN-6: what a sub-agent found is why it ran; a short report stays whole, a long one says where the rest is."""
    talk = Talk()
    talk.user("why does it hang?")
    names = {"short": FINDING, "long": f"{FINDING.replace('socket', 'file')}\n{REPORT}\n</system-reminder>"}
    talk.model(*(call(name, "Task", description=f"look {name}", prompt="Look." * 4_000) for name in names))
    answers = ({"type": "tool_result", "tool_use_id": name, "content": said} for name, said in names.items())
    talk.message("user", *answers, origin="tool")
    later(talk)
    text = folded(talk)
    assert f"### look short\n\t{FINDING}\n" in text
    assert "### look long (the whole report: recall with id long)\n\tNobody closes the file when" in text
    assert "</system-reminder>" not in text and base_tokens(text) < 3_200
    assert text.count(FINDING) == 1, "what stands there whole is no excerpt as well"


def test_what_a_sub_agent_in_the_background_reported_stands_in_the_fold() -> None:
    """TURN-6: as its output was read, or as a notice told it."""
    launched = "Async agent launched successfully.\nagentId: ab12 (internal)"
    talk = Talk()
    talk.user("look around")
    talk.ran("a", "Task", launched, input={"description": "look", "prompt": "x" * 40_000, "run_in_background": True})
    talk.ran("o", "TaskOutput", f"<status>completed</status>\n{FINDING}", input={"task_id": "ab12"})
    later(talk)
    assert FINDING in folded(talk) and "### look\n" in folded(talk)
    talk = Talk()
    talk.user("look around")
    talk.ran("a", "Task", launched, input={"description": "look", "prompt": "x" * 40_000, "run_in_background": True})
    notice = f"<task-id>ab12</task-id>\n<status>completed</status>\n<result>\n{FINDING}\n</result>"
    talk.message("user", text(f"<task-notification>\n{notice}\n</task-notification>"), origin="reminder")
    later(talk)
    assert f"### look\n\t{FINDING}" in folded(talk)


def test_other_work_between_sub_agents_stays() -> None:
    """TURN-6: only the runs fold, and never a person's words."""
    talk = agents("one")
    talk.ran("e", "Edit", "updated", input={"file_path": "/w/a.py", "old_string": "a", "new_string": "b"})
    talk.user("and now the other one, please")
    talk.ran("two", "Task", REPORT, input={"description": "find two", "prompt": "Look."})
    later(talk)
    assert [one.title for one in finished_ranges(talk.view, ToolTable())] == ["find one", "find two"]


def edit(talk: Talk, identity: str, old: str, new: str, path: str = "/w/a.py") -> None:
    said = {"file_path": path, "old_string": old, "new_string": new}
    talk.ran(identity, "Edit", f"The file {path} has been updated.", input=said)


def tried(*way_back: tuple[str, dict[str, Any], str]) -> Talk:
    """An edit, tests that fail at length, and whatever came then."""
    talk = Talk()
    talk.user("make it fast")
    edit(talk, "e1", "x = 1", "x = 2")
    talk.ran("run", "Bash", f"Exit code 1\n{NOTE}", input={"command": "pytest"}, is_error=True)
    for number, (name, given, answer) in enumerate(way_back):
        talk.ran(f"back{number}", name, answer, input=given)
    later(talk, 10)
    return talk


BACK = {"file_path": "/w/a.py", "old_string": "x = 2", "new_string": "x = 1"}
OTHER = {"file_path": "/w/b.py", "old_string": "x = 2", "new_string": "x = 1"}
UPDATED = "The file /w/a.py has been updated."


@pytest.mark.parametrize(
    "way_back",
    [
        [("Edit", BACK, UPDATED)],
        [("Bash", {"command": "git checkout -- a.py"}, "")],
        [("Bash", {"command": "git restore /w/a.py && pytest -q"}, "1 passed")],
        [("Bash", {"command": "cd /w && git checkout ."}, "")],
        [("Bash", {"command": "git reset --hard", "workdir": "/w"}, "HEAD is now at 1234567")],
        [("str_replace_based_edit_tool", {"command": "undo_edit", "path": "/w/a.py"}, "Last edit undone")],
    ],
)
def test_an_attempt_that_was_taken_back_folds(way_back: list[tuple[str, dict[str, Any], str]]) -> None:
    """TURN-6: from its first change to what took it back; what was learned of it stays."""
    talk = tried(*way_back)
    ((first, last, title, what),) = finished_ranges(talk.view, ToolTable())
    assert (first, last, title, what) == (1, 6, "/w/a.py", "attempt")
    body = shown(talk)
    assert 'An attempt whose changes were taken back and are gone, folded: \\"/w/a.py\\"' in body
    assert "make it fast" in body and body.count("value = compute") < 10


def test_the_fold_of_an_attempt_says_how_it_went() -> None:
    """TURN-6: what its commands came to, and what the model said of it in the end."""
    talk = Talk()
    talk.user("make it fast")
    edit(talk, "e1", "x = 1", "x = 2")
    talk.ran(
        "run", "Bash", f"Exit code 1\n{NOTE}\nValueError: KESTREL 3", input={"command": "pytest -q"}, is_error=True
    )
    call = {"type": "tool_use", "id": "back", "name": "Edit", "input": BACK}
    talk.model({"type": "text", "text": "It is slower, too: x stays 1."}, call)
    talk.result("back", UPDATED)
    later(talk, 10)
    body = shown(talk)
    assert "It is slower, too: x stays 1." in body
    assert "- pytest -q: failed: ValueError: KESTREL 3" in body


@pytest.mark.parametrize(
    "way_on",
    [
        [("Bash", {"command": "pytest -k other"}, "1 passed")],  # failed, and replaced by one that worked
        [("Edit", {**BACK, "new_string": "x = 3"}, UPDATED)],
        [("Edit", BACK, "<tool_use_error>String to replace not found</tool_use_error>")],
        [("Bash", {"command": "git checkout -- a.py"}, "Exit code 1\nerror: pathspec 'a.py' did not match")],
        [("Bash", {"command": "git checkout -- b.py"}, "")],
        [("Bash", {"command": "git checkout ."}, "")],  # of which folder isn't said
        [("Bash", {"command": "git stash"}, "Saved"), ("Bash", {"command": "git stash pop"}, "Dropped")],
        [("Bash", {"command": "git commit -qam wip"}, ""), ("Bash", {"command": "git checkout -- a.py"}, "")],
        [("Edit", OTHER, "updated"), ("Edit", BACK, UPDATED)],  # the other change stands
        [("Bash", {"command": "echo y > /w/c.txt"}, ""), ("Edit", BACK, UPDATED)],
        [("Bash", {"command": "git restore a.py && echo y > /w/c.txt"}, "")],
        [("Bash", {"command": "make", "run_in_background": True}, "with ID: b1"), ("Edit", BACK, UPDATED)],
        [("mcp__tracker__create_issue", {"title": "slow"}, "#7"), ("Edit", BACK, UPDATED)],
    ],
)
def test_what_may_still_stand_does_not_fold(way_on: list[tuple[str, dict[str, Any], str]]) -> None:
    """TURN-6: only where it is certain that all is gone."""
    assert finished_ranges(tried(*way_on).view, ToolTable()) == []


def test_two_edits_that_are_taken_back_one_by_one_are_one_attempt() -> None:
    """TURN-6: the longest stretch comes first, and folds in one piece."""
    talk = Talk()
    talk.user("make it fast")
    edit(talk, "e1", "x = 1", "x = 2")
    edit(talk, "e2", "y = 1", "y = 2")
    talk.ran("run", "Bash", NOTE, input={"command": "pytest"})
    edit(talk, "b2", "y = 2", "y = 1")
    edit(talk, "b1", "x = 2", "x = 1")
    talk.answered()
    assert finished_ranges(talk.view, ToolTable())[0][:2] == (1, 10)
    (done,) = collapse(talk.view, known())
    assert collapse(after(talk.view, (done,)), known()) == ()


def test_a_new_file_that_was_deleted_and_one_written_as_it_was() -> None:
    """TURN-6: by what is known of the text."""
    talk = Talk()
    talk.user("try it")
    talk.ran("w", "Write", "File created successfully at: /w/new.py", input={"file_path": "/w/new.py", "content": NOTE})
    talk.ran("r", "Bash", "", input={"command": "rm /w/new.py"})
    talk.answered()
    assert [one[:3] for one in finished_ranges(talk.view, ToolTable())] == [(1, 4, "/w/new.py")]
    talk = Talk()
    talk.user("try it")
    for number, content in enumerate(("a\n", f"b\n{NOTE}", "a\n")):
        talk.ran(f"w{number}", "Write", "File updated", input={"file_path": "/w/a.py", "content": content})
    talk.answered()
    assert [one[:3] for one in finished_ranges(talk.view, ToolTable())] == [(3, 6, "/w/a.py")]


@pytest.mark.parametrize(("to", "files", "folds"), [("m2", "a.py", True), ("m2", "b.py", False), ("m9", "a.py", False)])
def test_files_that_a_person_put_back(to: str, files: str, folds: bool) -> None:
    """TURN-6: the reminder of a rewind of files says as before which prompt they are."""
    talk = Talk()
    talk.user("start")
    talk.user("make it fast")
    edit(talk, "e1", "x = 1", "x = 2")
    talk.ran("run", "Bash", NOTE, input={"command": "pytest"})
    told = f"The user put files back to an earlier state. Read them again before you rely on them: {files}"
    talk.user(told, origin="reminder", note=f"{FILES_REWOUND}{to}")
    talk.user("another way, please")
    talk.answered()
    assert bool(finished_ranges(talk.view, ToolTable())) == folds
