"""SM-3: the permit allows Edit on one path, in any spelling, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.memory.notes import form_of, template
from perdure.memory.permits import NotesEditPermit, apply_notes_edit, lexical

pytestmark = pytest.mark.unit

PATH = "/home/me/s/session-memory/summary.md"
PERMIT = NotesEditPermit(PATH, lambda path: lexical(path, folder="/home/me"))


@pytest.mark.parametrize(
    "path", [PATH, "//home/me/./s/session-memory//summary.md", "s/x/../session-memory/summary.md", "/../" + PATH]
)
def test_any_spelling_of_the_path(path: str) -> None:
    """SM-3."""
    assert PERMIT.denial("Edit", {"file_path": path}) is None


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("Write", {"file_path": PATH}),
        ("edit", {"file_path": PATH}),
        ("Edit ", {"file_path": PATH}),
        ("MultiEdit", {"file_path": PATH}),
        ("Bash", {"command": f"echo > {PATH}"}),
        ("Edit", {}),
        ("Edit", {"file_path": ""}),
        ("Edit", {"file_path": None}),
        ("Edit", {"file_path": [PATH]}),
        ("Edit", {"file_path": PATH + "\0"}),
        ("Edit", {"file_path": PATH + "/../x"}),
        ("Edit", {"file_path": PATH, "path": "/etc/passwd"}),
        ("Edit", {"file_path": "summary.md"}),
    ],
)
def test_anything_else_is_denied(tool: str, arguments: dict[str, Any]) -> None:
    """SM-3."""
    assert PERMIT.denial(tool, arguments) == f"only Edit on {PATH} is allowed"


@given(st.text(max_size=20), st.lists(st.sampled_from(["..", ".", "", "s", "session-memory", "summary.md", "x"])))
def test_nothing_gets_out(tool: str, parts: list[str]) -> None:
    """SM-3: what is allowed is that file."""
    path = "/home/me/" + "/".join(parts)
    is_allowed = PERMIT.denial(tool, {"file_path": path}) is None
    assert not is_allowed or (tool == "Edit" and lexical(path) == PATH)
    assert (PERMIT.denial("Edit", {"file_path": path}) is None) == (lexical(path) == PATH)


def test_edits() -> None:
    """SM-3, SM-1: an edit is exact, and takes no heading or description away."""
    form, text = form_of(None), template() + "- a\n- a\n"
    assert apply_notes_edit(text, {"old_string": "- a\n- a", "new_string": "- b"}, form) == (template() + "- b\n", None)
    for arguments, why in (
        ({"old_string": "- a", "new_string": "x"}, "2 times"),
        ({"old_string": "nowhere", "new_string": "x"}, "isn't in the file"),
        ({"old_string": "", "new_string": "x"}, "isn't in the file"),
        ({"old_string": "# Worklog", "new_string": "# Log"}, "have to stay: Worklog"),
        ({"old_string": form.sections[3].about, "new_string": ""}, "have to stay: Files and Functions"),
        ({"new_string": "x"}, "have to be texts"),
    ):
        after, said = apply_notes_edit(text, arguments, form)
        assert after == text and said is not None and why in said
