"""SM-1, SM-4, SM-6: the notes as a value: template, sections, budgets, variables, and files changed by hand."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perdure.errors import BadSetting
from perdure.memory.notes import (
    MARK,
    Notes,
    NotesBudget,
    NotesSection,
    completed_notes,
    fill,
    fill_lines,
    for_record,
    form_of,
    notes_state,
    oversized_sections,
    parse,
    render,
    template,
    update_prompt,
)
from perdure.transcript.tokens import base_tokens

pytestmark = pytest.mark.unit

FORM = form_of(None)
TITLES = [
    "Session Title",
    "Current State",
    "Task Specification",
    "Files and Functions",
    "Workflow",
    "Errors & Corrections",
    "Codebase and System Documentation",
    "Learnings",
    "Key Results",
    "Worklog",
]


def written(**bodies: str) -> Notes:
    by_title = {title.replace(" ", "_").replace("&", "and"): title for title in TITLES}
    own = {by_title[name]: body for name, body in bodies.items()}
    return Notes(tuple(NotesSection(one.title, one.about, own.get(one.title, "")) for one in FORM.sections))


def test_the_template_has_ten_sections_each_with_one_italic_line() -> None:
    """SM-1."""
    assert [one.title for one in FORM.sections] == TITLES
    assert all(one.about.startswith("_") and one.about.endswith("_") and not one.body for one in FORM.sections)
    assert render(FORM) == template()


@example("\r\r\n<")
@example("end\r")
@given(st.text(alphabet=st.sampled_from("#_*`~ \nab-<>!\r"), max_size=200))
def test_any_text_has_a_reading_that_stays(text: str) -> None:
    """SM-6: reading and writing once more changes nothing, and no word is lost."""
    once = render(parse(text))
    assert render(parse(once)) == once
    assert sorted(text.replace("#", "").split()) == sorted(once.replace("#", "").split())


def test_a_comment_in_a_code_block_is_no_heading() -> None:
    notes = parse("# Workflow\n_how_\n\n```sh\n# install\nmake\n```\n\n# Worklog\n- x\n")
    assert [one.title for one in notes.sections] == ["Workflow", "Worklog"]
    assert "# install" in notes.sections[0].own
    assert [one.title for one in parse("# Workflow\n```\nopen\n\n# Worklog\n- x\n").sections] == ["Workflow", "Worklog"]


@pytest.mark.parametrize(
    ("text", "state"),
    [
        (None, "missing"),
        ("", "emptied"),
        (" \n\n", "emptied"),
        ("just words", "broken"),
        ("# Something else\n\nwords", "broken"),
        (template(), "template"),
        (template().replace("\n\n", "\n\n\n"), "template"),
        (template() + "- did it\n", "written"),
        ("# Worklog\n- did it\n", "written"),
    ],
)
def test_what_state_a_file_is_in(text: str | None, state: str) -> None:
    """SM-6, CMP-2."""
    assert notes_state(text, FORM) == state


def test_sections_and_descriptions_come_back() -> None:
    """SM-1: never removed; what was written stays."""
    mine = parse("# Mine\nmy own\n\n# Current State\nhere\n\n# Worklog\n_x_\n- a\n")
    notes, back = completed_notes(mine, FORM)
    assert "Worklog" not in back and {"Current State", "Learnings"} <= set(back)
    assert {"my own", "here", "- a"} <= {one.own for one in notes.sections}
    assert [one.title for one in notes.sections if one.title != "Mine"] == TITLES
    assert completed_notes(notes, FORM) == (notes, ())


def test_code_replaces_only_what_code_wrote() -> None:
    """SM-6: lines by hand stay, above the mark and below."""
    first = fill_lines(FORM, {"Worklog": ("- one", "- two")}, None)
    text = render(first).replace("- two", "- two\n- by hand").replace(MARK, f"mine\n{MARK}")
    second = fill_lines(parse(text), {"Worklog": ("- three",)}, first)
    log = second.section("Worklog")
    assert log is not None and log.own == "mine\n- by hand" and log.filled == ("- three",)
    untouched = fill_lines(parse(render(first)), {"Worklog": ("- three",)}, None).section("Worklog")
    assert untouched is not None and untouched.own == "" and untouched.filled == ("- three",)
    unknown = fill_lines(parse(text), {"Worklog": ("- three",)}, None).section("Worklog")
    assert unknown is not None and unknown.own == "mine\n- one\n- two\n- by hand"


def test_the_budgets_of_a_compaction() -> None:
    """SM-4: cut by code, section by section, with the path; Current State and Errors & Corrections last."""
    long = "\n".join(f"- line {n} of many words here" for n in range(2_000))
    one = for_record(written(Worklog=long, Current_State="now"), NotesBudget(200, 12_000), "/s/summary.md")
    assert base_tokens(one) < 300 and "line 1999" in one and "line 1000 " not in one
    assert "stands in /s/summary.md]" in one and "### Current State\nnow" in one
    bodies = dict.fromkeys(("Current_State", "Errors_and_Corrections", "Learnings", "Worklog", "Workflow"), long)
    text = for_record(written(**bodies), NotesBudget(2_000, 4_500), "/s/summary.md")
    assert base_tokens(text) <= 4_500
    sizes = {part.split("\n")[0]: base_tokens(part) for part in text.split("### ")[1:]}
    assert min(sizes["Current State"], sizes["Errors & Corrections"]) > 1_800 > sizes["Learnings"]


def test_a_line_that_is_too_long_alone() -> None:
    """SM-4."""
    text = for_record(written(Learnings="x" * 100_000), NotesBudget(100, 12_000), "/p")
    assert base_tokens(text) <= 130 and "xxx" in text


def test_the_update_prompt_names_what_is_too_long() -> None:
    """SM-4."""
    assert oversized_sections(written(Worklog="short"), NotesBudget()) == ""
    told = oversized_sections(written(Worklog="word " * 4_000), NotesBudget())
    assert "Worklog: 5,000 tokens, allowed 2,000" in told and "Current State and Errors & Corrections last" in told
    many = dict.fromkeys(("Workflow", "Learnings", "Worklog", "Key_Results", "Current_State"), "word " * 1500)
    assert "the whole file" in oversized_sections(written(**many), NotesBudget(2_000, 9_000))


def test_the_prompt_of_an_update() -> None:
    """SM-1, SM-4: notes, path, budgets and what is too long; the user's own knows the same variables."""
    notes = written(Worklog="word " * 4_000, Current_State="half done {{notesPath}}")
    ours = update_prompt(notes, NotesBudget(), "/s/summary.md")
    assert "/s/summary.md" in ours and "half done {{notesPath}}" in ours and "Worklog: 5,000 tokens" in ours
    theirs = "{{currentNotes}}|{{notesPath}}|{{sectionTokens}}|{{fileTokens}}|{{oversized}}"
    assert update_prompt(FORM, NotesBudget(), "/p", theirs).startswith(
        f"{template().rstrip()}|/p|2,000|12,000|\n\nChange"
    )
    with pytest.raises(BadSetting, match=r"prompt.md: unknown variable \{\{notes\}\}"):
        update_prompt(FORM, NotesBudget(), "/p", "{{notes}}")


def test_variables() -> None:
    """SM-1: filled; an unknown one is an error that names it."""
    values = {"currentNotes": "N {{notesPath}}", "notesPath": "/p"}
    assert fill("{{currentNotes}} in {{ notesPath }}", values, where="prompt.md") == "N {{notesPath}} in /p"
    with pytest.raises(BadSetting, match=r"prompt.md: unknown variable \{\{notePath\}\}; known are .*notesPath"):
        fill("{{notePath}}", values, where="prompt.md")
    with pytest.raises(BadSetting, match="no section"):
        form_of("words", where="template.md")
