"""MEM-3: topic files in both schemas, read leniently, and nothing that is wrong with one unsaid."""

from __future__ import annotations

import pytest

from perdure.memory.files import topic

pytestmark = pytest.mark.unit

FLAT = "---\nname: Tests first\ndescription: Red before green\ntype: feedback\n---\n\nWrite the test first.\n"
NESTED = (
    '---\nname: tests-first\ndescription: "Red: before green"\nmetadata: \n  node_type: memory\n  type: feedback\n---\n'
    "<!-- a banner\nof two lines -->\nWrite the test first.\n"
)


def test_both_schemas_give_the_same_fields() -> None:
    flat, nested = topic("feedback_a.md", FLAT), topic("feedback_b.md", NESTED)
    assert (flat.name, flat.description, flat.type) == ("Tests first", "Red before green", "feedback")
    assert (nested.name, nested.description, nested.type) == ("tests-first", "Red: before green", "feedback")
    assert flat.problems == nested.problems == ()
    assert nested.body == "Write the test first."


def test_bad_yaml_is_read_by_line_and_said() -> None:
    found = topic("x.md", "---\nname: a: b\ndescription: Rules: one: two\ntype: project\n---\nBody.\n")
    assert (found.name, found.description, found.type) == ("a: b", "Rules: one: two", "project")
    assert any("read line by line" in one for one in found.problems)


@pytest.mark.parametrize(
    ("text", "name", "problem"),
    [
        ("# A heading\n\nSome text.\n", "A heading", "no front matter"),
        ("Only text.\n", "user role", "no front matter"),
        ("---\ndescription: d\ntype: user\n---\nText\n", "user role", "no name"),
        ("---\nname: n\ntype: user\n---\nText\n", "n", "no description"),
        ("---\nname: n\ndescription: d\n---\nText\n", "n", "no type"),
        ("---\nname: n\ndescription: d\ntype: odd\n---\nText\n", "n", "type 'odd' isn't one of"),
        ("---\nname: n\ndescription: d\ntype: user\n---\n", "n", "nothing below"),
        ("", "user role", "empty"),
    ],
)
def test_a_file_with_something_missing_has_a_reading_and_a_problem(text: str, name: str, problem: str) -> None:
    found = topic("user_role.md", text)
    assert found.name == name
    assert any(problem in one for one in found.problems), found.problems
    assert found.type == "user"  # said by the file's name where the front matter doesn't


def test_control_characters_and_invisible_ones_go() -> None:
    found = topic("x.md", "---\nname: a\u202eb\ndescription: d\ntype: user\n---\r\nli\x07ne\u200b\r\nnext\n")
    assert found.name == "ab"
    assert found.body == "line\nnext"


def test_keywords_come_as_a_list_or_with_commas() -> None:
    listed = topic("x.md", "---\nname: n\ndescription: d\ntype: user\nkeywords: [a, b]\n---\nt\n")
    commas = topic("x.md", "---\nname: n\ndescription: d\ntype: user\ntags: a, b\n---\nt\n")
    assert listed.keywords == commas.keywords == ("a", "b")
