"""MEM-2: the index in context, its limits, what is left out over them, and what a writer is told."""

from __future__ import annotations

import pytest

from perdure.memory.index_file import (
    IndexLimits,
    index_changes,
    index_entries,
    index_excerpt,
    index_hooks,
    normalised_index,
    too_large,
)

pytestmark = pytest.mark.unit


def index(count: int, *, hook: str = "what it says") -> str:
    half = count // 2
    lines = [f"- [Note {n}](note_{n}.md) — {hook}" for n in range(count)]
    return "\n".join(["# Memory", "## Old", *lines[:half], "## New", *lines[half:]])


def test_entries_have_title_file_hook_section_and_line() -> None:
    found = index_entries("# M\n## Feedback\n- [Tests first](./feedback_tests.md) — red before green\n* [B](b.md): why")
    assert [(e.title, e.file, e.hook, e.section, e.line) for e in found] == [
        ("Tests first", "feedback_tests.md", "red before green", "Feedback", 3),
        ("B", "b.md", "why", "Feedback", 4),
    ]


def test_links_within_a_hook_are_entries_of_their_own() -> None:
    assert [e.file for e in index_entries("- [A](a.md) — see also [B](b.md)")] == ["a.md", "b.md"]
    assert index_hooks("- [A](a.md) — see also [B](b.md)") == {"a.md": "A see also [B](b.md)", "b.md": "B"}


def test_front_matter_comments_and_control_characters_are_not_counted() -> None:
    text = "---\nname: x\n---\n<!-- " + "long " * 9_000 + "-->\n# Memory\n- [A](a.md) — b\x07\n"
    assert normalised_index(text) == "# Memory\n- [A](a.md) — b"
    assert index_excerpt(text, IndexLimits(), modified={}, uses={}).left_out == 0


def test_an_index_within_both_limits_is_shown_as_it_is() -> None:
    text = index(150)
    assert index_excerpt(text, IndexLimits(), modified={}, uses={}).text == text


@pytest.mark.parametrize("text", [index(400), index(180, hook="é" * 100)], ids=["lines", "bytes"])
def test_over_a_limit_it_is_cut_at_a_line_end_with_a_warning_that_says_how_to_mend_it(text: str) -> None:
    found = index_excerpt(text, IndexLimits(), modified={}, uses={})
    assert found.lines <= 200
    assert found.bytes <= 25_000
    assert found.bytes == len(found.text.encode())
    kept, _, warning = found.text.rpartition("\n")
    assert set(kept.strip().split("\n")) <= set(text.split("\n"))  # whole lines only
    assert "200 lines and 25,000 bytes" in warning
    assert "Move details into topic files" in warning
    assert found.left_out == len(text.split("\n")) - len(kept.strip().split("\n"))


def test_over_the_budget_headings_and_the_newest_and_most_used_entries_stay_in_the_order_of_the_file() -> None:
    text = index(400)
    modified = {f"note_{n}.md": float(n) for n in range(400)}
    found = index_excerpt(text, IndexLimits(), modified=modified, uses={"note_3.md": 9})
    lines = found.text.split("\n")
    assert {"# Memory", "## Old", "## New"} <= set(lines)
    files = [entry.file for entry in index_entries(found.text)]
    assert "note_399.md" in files  # the newest is never the one that is lost
    assert "note_3.md" in files  # and the most used isn't either
    assert "note_4.md" not in files
    numbers = [int(file[5:-3]) for file in files]
    assert numbers == sorted(numbers)


def test_a_writer_is_told_the_numbers_and_what_to_do() -> None:
    assert too_large(index(100), IndexLimits()) is None
    said = too_large(index(300), IndexLimits())
    assert said is not None
    assert "303 lines, over its limit of 200" in said
    assert "was saved" in said
    assert "under 140 lines" in said


def test_changes_are_lines_that_came_and_went() -> None:
    assert index_changes("a\nb", "a\nc") == "- b\n+ c"
    assert index_changes("a", "a") == ""
