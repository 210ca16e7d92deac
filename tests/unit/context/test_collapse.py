"""TURN-6: which ranges fold, into what, and back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.context.making import UNBOUND, Talk, after, facts, text

from perdure.compaction.collapse import collapse, finished_ranges
from perdure.context.request import to_request
from perdure.context.view import project
from perdure.transcript.records import Undone
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
    ((first, last, title),) = finished_ranges(talk.view, ToolTable())
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
