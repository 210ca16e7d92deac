"""MEM-4, QLT-6: names of memories that stand in a question, slips, and when nothing is shown unasked."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from perdure.memory.asked import asked_question, common_terms, mended_term
from perdure.memory.files import Topic
from perdure.memory.retrieval import (
    SEARCH_FLOOR,
    MemoryCard,
    MemoryQuery,
    counts_of,
    empty_index,
    rank_memories,
)
from perdure.text.scoring import TextIndex

pytestmark = pytest.mark.unit

MEMORIES = (
    ("pipelines.md", "Functional pipelines", "Data goes through pipe() rather than loops", ("pipe",)),
    ("ci.md", "Continuous integration", "Runs on every merge and deploys to staging", ("CI pipeline",)),
    ("cluster.md", "Cluster", "Services run on EKS with Helm charts", ("k8s", "kube")),
    ("redis.md", "Redis", "A cache and rate limiter on a single node", ()),
    ("login.md", "Login depends on Redis", "Without it nobody can log in", ("session backend",)),
    ("queue.md", "Dead letters", "Failed messages wait in Redis for an admin", ("DLQ",)),
    ("mongo.md", "Raw driver", "Collections are typed by hand", ("MongoDB",)),
    ("novel.md", "Novel", "Chapter seven has another narrator", ()),
)


def made(memories: Iterable[tuple[str, str, str, tuple[str, ...]]]) -> tuple[TextIndex, dict[str, MemoryCard]]:
    index, cards, texts = empty_index(), {}, []
    for file, name, description, keywords in memories:
        topic = Topic(file=file, name=name, description=description, keywords=keywords, has_front_matter=True)
        texts.append((file, {**counts_of(topic), "file": {}}))
        cards[file] = MemoryCard(file=file, name=name, description=description, keywords=keywords)
    index.fill(texts)
    return index, cards


def shown(query: str, *, is_unasked: bool = True) -> list[str]:
    index, cards = made(MEMORIES)
    floor = {} if is_unasked else {"floor": SEARCH_FLOOR}
    wanted = MemoryQuery(query=query, is_unasked=is_unasked, limit=10, **floor)
    return [one.card.file for one in rank_memories(index, cards, wanted)]


def test_a_keyword_is_found_however_much_else_is_said() -> None:
    long = "we talked about the landing page and the team had doubts in the last review, I am not sure any more what "
    assert shown(f"{long} the right call is: should kube restart the pods on the weekend or on demand?") == [
        "cluster.md"
    ]


def test_the_longest_name_takes_its_words() -> None:
    assert shown("how does our CI pipeline keep secrets?") == ["ci.md"]
    assert shown("functional pipelines or loops?")[0] == "pipelines.md"


def test_who_says_a_name_alone_means_what_is_called_so() -> None:
    """QLT-6: not what mentions it; what has it in a longer name is meant once more of that is said."""
    assert shown("What do we have Redis for?") == ["redis.md"]
    assert set(shown("does login depend on anything but Redis?")) == {"login.md", "redis.md"}
    assert shown("does the login depend on Redis?") == ["login.md"]  # its whole name, the longer one
    found = shown("What do we have Redis for?", is_unasked=False)
    assert found[0] == "redis.md" and "login.md" in found  # who searches gets more


def test_several_names_are_several_memories() -> None:
    assert set(shown("when k8s restarts, who replays the DLQ of MongoDB?")) == {"cluster.md", "queue.md", "mongo.md"}


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("clutser", "cluster"),
        ("clustter", "cluster"),
        ("reedis", "redis"),
        ("cluster", ""),
        ("bluster", ""),  # another first letter
        ("claster", ""),  # a letter in another's place is another word
        ("heln", ""),  # too short
    ],
)
def test_slips_are_mended(word: str, meant: str) -> None:
    index, _ = made(MEMORIES)
    (said,) = asked_question(index, word).order
    (want,) = asked_question(index, meant or word).order
    assert said == want and bool(mended_term(index, asked_question(empty_index(), word).order[0])) == bool(meant)


def test_a_slip_in_a_name_names_it() -> None:
    assert shown("how is the clutser called?") == ["cluster.md"]


def test_a_single_word_of_many_brings_nothing_unasked() -> None:
    query = "did the reviewers like the opening chapter of the biography about Lisbon?"
    assert shown(query) == []
    assert shown(query, is_unasked=False) == ["novel.md"]
    assert shown("which chapter?") == ["novel.md"]  # all that was said


def test_a_name_in_code_counts_once() -> None:
    index, _ = made(MEMORIES)
    assert "db" not in asked_question(index, "MongoDB collections").terms
    assert "db" in asked_question(empty_index(), "MongoDB collections").terms  # unknown, its parts may help


def test_a_word_that_many_memories_hold_names_none() -> None:
    many = [(f"agent_{n}.md", "Agents", f"Agents of kind {n} wait", ("agents",)) for n in range(30)]
    index, cards = made([*many, *MEMORIES])
    wanted = MemoryQuery(query="which agents may use the staging database of the shop?", is_unasked=True, limit=50)
    assert {one.card.file for one in rank_memories(index, cards, wanted)} <= {"ci.md"}


def test_a_pasted_text_takes_no_time_that_grows_faster_than_it() -> None:
    """SEC-6: names are looked for in a bounded part of it, slips in a bounded number of words."""
    index, cards = made(MEMORIES)
    words = " ".join(f"word{chr(97 + n % 26)}{chr(97 + n // 26 % 26)}{chr(97 + n // 676 % 26)}" for n in range(20_000))
    asked = asked_question(index, f"{words} how does Redis do?")
    assert len(asked.order) == 2 * 500
    found = rank_memories(index, cards, MemoryQuery(query=f"{words} how does Redis do?", is_unasked=True))
    assert [one.card.file for one in found] == ["redis.md"]


def test_who_lists_every_word_is_not_meant_by_each_question() -> None:
    """MEM-4, SEC-1: else one memory would push out all others, whatever is asked."""
    words = ("redis", "pods", "cluster", "deploy", "release", "merge", "staging", "limit", "cache")
    index, cards = made((*MEMORIES, ("all.md", "Notes", "Ask me about everything", words)))
    found = rank_memories(index, cards, MemoryQuery(query="what runs on a merge and deploys to staging?", limit=10))
    assert "ci.md" in [one.card.file for one in found]
    few, cards = made((*MEMORIES, ("all.md", "Notes", "Ask me about everything", words[:2])))
    asked = MemoryQuery(query="what about the pods?", limit=10, is_unasked=True)
    assert [one.card.file for one in rank_memories(few, cards, asked)] == ["all.md"]


ORDINARY = (
    ("ci.md", "Continuous integration", "Tests run on every merge", ()),
    ("pytest.md", "How we call pytest", "Run the tests with -n 4, and never the slow tests alone", ()),
    ("mocks.md", "No mocks", "Tests talk to a real database", ()),
    *(
        (f"{name}.md", name, f"Its tests are below tests/{name}", ())
        for name in ("orders", "billing", "search", "mail")
    ),
    ("notes.md", "Notes", "Things to know", ("test", "build", "quarkbeam")),
)


def test_a_keyword_that_several_memories_hold_is_no_name() -> None:
    """MEM-4: else one memory with ordinary words as keywords is meant by each question that says one of them."""
    index, cards = made((*MEMORIES, *ORDINARY))
    asked = MemoryQuery(query="how do I run the tests with pytest?", limit=10, is_unasked=True)
    assert next(one.card.file for one in rank_memories(index, cards, asked)) == "pytest.md"
    assert "notes.md" not in [one.card.file for one in rank_memories(index, cards, asked)]
    named = MemoryQuery(query="and what was it about the quarkbeam again?", limit=10, is_unasked=True)
    assert [one.card.file for one in rank_memories(index, cards, named)] == ["notes.md"]


def test_a_keyword_that_is_said_all_the_time_is_no_name() -> None:
    """MEM-4: which words are ordinary here, the session tells."""
    index, cards = made((*MEMORIES, *ORDINARY))
    question = "please look why the build of the importer takes so long since the weekend"
    said = [f"The build of step {n} is done: the importer reads what it should." for n in range(3)]
    assert common_terms(said) >= {"build"} and not common_terms(said[:2])

    def found(common: Iterable[str]) -> list[str]:
        asked = MemoryQuery(query=question, limit=10, is_unasked=True, common=frozenset(common))
        return [one.card.file for one in rank_memories(index, cards, asked)]

    assert found(()) == ["notes.md"] and not found(common_terms(said))
