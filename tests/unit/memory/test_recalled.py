"""MEM-4, MEM-5: what the model is shown of a memory, and what a model that chooses is asked and answers."""

from __future__ import annotations

import pytest

from perdure.memory.files import Topic
from perdure.memory.recalled import (
    RecalledMemory,
    age,
    cut_body,
    memories_told,
    recalled_text,
    selection,
    selection_prompt,
)
from perdure.memory.retrieval import DAY_SECONDS, MemoryCard
from perdure.transcript.tokens import base_tokens

pytestmark = pytest.mark.unit
CARDS = {
    name: MemoryCard(file=name, name=f"About {name}", description="d\nd", type="user") for name in ("a.md", "b.md")
}


def body(text: str) -> Topic:
    return Topic(file="project_x.md", name="X", description="what", type="project", body=text, has_front_matter=True)


def test_a_memory_comes_with_its_source_and_age() -> None:
    text = recalled_text(
        RecalledMemory(body("Fact."), 1_000_000.0), now=1_000_000.0 + 47 * DAY_SECONDS, budget_tokens=100
    )
    assert "## project_x.md\n(memory of the type project; saved 1970-01-12T13:46:40Z: saved 47 days ago; check" in text
    assert text.endswith("Fact.")


@pytest.mark.parametrize(("days", "words"), [(0, "saved today"), (1, "saved 1 day ago; check"), (-3, "saved today")])
def test_ages_in_words(days: int, words: str) -> None:
    assert age(days * DAY_SECONDS).startswith(words)


def test_what_was_shown_can_be_read_back() -> None:
    text = recalled_text(RecalledMemory(body("## other.md\nFact."), 1_000_000.7), now=2_000_000.0, budget_tokens=100)
    assert memories_told(f"Lead.\n\n{text}\n\nmore") == {"project_x.md": 1_000_000.0}


@pytest.mark.parametrize("text", ["line of text\n" * 4_000, "x" * 50_000], ids=["lines", "one line"])
def test_a_long_body_is_cut_within_the_budget_with_a_notice(text: str) -> None:
    cut = cut_body(body(text), 500)
    assert base_tokens(cut) <= 500
    assert cut.split("\n")[-1].startswith("[Cut here: ")
    assert "Read project_x.md for the rest" in cut


def test_a_short_body_stays_as_it_is() -> None:
    assert cut_body(body("Fact."), 500) == "Fact."


def test_the_question_to_a_model_has_a_line_for_each_memory() -> None:
    text = selection_prompt("what do I like?", list(CARDS.values()), ("Bash",))
    assert text.startswith("Select memories relevant to: what do I like?")
    assert "Tools used just now: Bash" in text
    assert "- a.md [user] About a.md: d d\n- b.md" in text


@pytest.mark.parametrize(
    ("answer", "files"),
    [
        ('{"files": ["b.md", "a.md"]}', ("b.md", "a.md")),
        ('Here:\n```json\n{"files": ["b.md"]}\n```', ("b.md",)),
        ('["a.md"]', ("a.md",)),
        ('{"files": []}', ()),
        ('{"files": ["b.md", "gone.md", "b.md"]}', ("b.md",)),
        ('{"files": ["gone.md"]}', None),  # it named only what isn't there: no answer
        ('{"files": "a.md"}', None),
        ('{"files": [1]}', None),
        ("none of them", None),
        ("", None),
        ('{"files": ["a.md"', None),
    ],
)
def test_answers_of_a_model(answer: str, files: tuple[str, ...] | None) -> None:
    assert selection(answer, CARDS, 5) == files


def test_a_model_cannot_choose_more_than_wanted() -> None:
    assert selection('{"files": ["a.md", "b.md"]}', CARDS, 1) == ("a.md",)
