"""MEM-4, QLT-4: terms, the index, and the rankings of memories, turns and sessions."""

from __future__ import annotations

from collections import Counter

import pytest

from perdure.lab.bench.retrieval import CorpusItem, SessionIndex, best_positions
from perdure.memory.files import Topic
from perdure.memory.retrieval import (
    DAY_SECONDS,
    MemoryCard,
    MemoryQuery,
    RankedMemory,
    candidates,
    counts_of,
    empty_index,
    rank_memories,
)
from perdure.recall.sessions import is_question
from perdure.recall.turns import DialogueIndex, DialogueTurn, dates, only_asks
from perdure.text.scoring import IndexField, TextIndex
from perdure.text.stems import stem
from perdure.text.words import COUNT, MAY, SELF, WHEN, asked_terms, terms

pytestmark = pytest.mark.unit


# --- terms


@pytest.mark.parametrize(
    "words",
    [
        "paint paints painted painting painter",
        "deploy deploys deployed deployment",
        "study studies studying",
        "run runs running",
    ],
)
def test_words_of_one_stem_meet(words: str) -> None:
    assert len({stem(word) for word in words.split()}) == 1


@pytest.mark.parametrize("word", ["this", "bus", "sing", "need", "news", "api", "über", "x86"])
def test_short_words_and_other_scripts_stay_apart_from_their_endings(word: str) -> None:
    assert stem(word)
    assert len(stem(word)) >= 3


def test_names_in_code_give_their_parts_and_themselves() -> None:
    found = terms("FileNotFoundError hold_open_seconds")
    assert {"file", "found", "error", "hold", "open", "filenotfounderr", "holdopensecond"} <= found.keys()


def test_scripts_without_blanks_give_each_two_neighbours() -> None:
    assert {"喜欢", "欢听"} <= terms("我喜欢听音乐").keys()
    assert terms("猫") == Counter({"猫": 1})


def test_accents_and_case_do_not_matter() -> None:
    assert terms("Café RÉSUMÉ") == terms("cafe resume")


def test_questions_for_a_time_a_number_or_oneself_ask_for_texts_that_hold_one() -> None:
    assert WHEN in asked_terms("When did she leave?")
    assert WHEN not in asked_terms("She left yesterday")  # it tells, and doesn't ask
    assert WHEN in terms("She left yesterday")
    assert COUNT in asked_terms("how many cats?")
    assert COUNT in terms("three cats")
    assert SELF in asked_terms("who am I?")
    assert MAY in asked_terms("on May 6th")
    assert MAY not in asked_terms("may I go?")


# --- the index


def filled(texts: dict[str, str]) -> TextIndex:
    index = TextIndex({"text": IndexField(1.0, 0.5)})
    index.fill((key, {"text": terms(text)}) for key, text in texts.items())
    return index


def test_rare_terms_say_more_than_common_ones() -> None:
    index = filled({"a": "cat dog", "b": "cat fish", "c": "cat bird"})
    scores = index.scores({"cat": 1, "fish": 1})
    assert scores[index.numbers["b"]] == max(scores)
    assert index.weight("fish") > index.weight("cat") > index.weight("unknown") == 0


def test_a_text_that_went_or_changed_is_no_longer_found_by_its_words() -> None:
    index = filled({str(n): f"word{chr(97 + n % 26)} common" for n in range(200)})
    for n in range(150):
        index.drop(str(n))
    index.put("199", {"text": terms("zebra")})
    assert len(index) == 50
    assert len(index.keys) < 100  # the dead were swept out
    assert {index.keys[n] for n in best_positions(index.scores({"common": 1}), 99)} == {str(n) for n in range(150, 199)}
    assert [index.keys[n] for n in best_positions(index.scores({"zebra": 1}), 9)] == ["199"]


def test_it_survives_being_packed() -> None:
    index = filled({"a": "cat dog", "b": "cat fish"})
    again = TextIndex.unpacked(index.fields, index.packed())
    assert again.scores({"fish": 1}) == index.scores({"fish": 1})
    again.put("c", {"text": terms("fish fish")})
    assert best_positions(again.scores({"fish": 1}), 9) == [2, 1]
    assert set(again.matched(["cat", "fish", "dog"], 1)) == {"fish", "cat"}


# --- memories


def made(**said: tuple[str, str, str, str]) -> tuple[TextIndex, dict[str, MemoryCard]]:
    """Memories from name, description, type and body, by file."""
    index, cards = empty_index(), {}
    texts = []
    for stem_, (name, description, kind, body) in said.items():
        file = f"{stem_}.md"
        one = Topic(file=file, name=name, description=description, type=kind, body=body, has_front_matter=True)  # type: ignore[arg-type]
        texts.append((file, counts_of(one)))
        cards[file] = MemoryCard(file=file, name=name, description=description, type=kind, modified=1_000.0)
    index.fill(texts)
    return index, cards


CORPUS = made(
    feedback_tests=("Real tests", "tests have to use real scenarios", "feedback", "No mocks in tests of the parser."),
    project_deploy=("Deploys on Friday", "who deploys, and when", "project", "Anna deploys to staging with helm."),
    reference_grep=("Grep usage", "how to use the Grep tool", "reference", "Use -n for line numbers."),
    reference_grep_traps=("Grep gotchas", "warnings about the Grep tool", "reference", "It never sees hidden files."),
    user_role=("Role", "data scientist, new to frontend", "user", "Explain React by comparison with pandas."),
    project_many=("Many things", "a list", "project", "staging parser numbers files pandas helm " * 20),
)


def found(query: str, **more: object) -> list[str]:
    return [one.card.file for one in rank_memories(*CORPUS, MemoryQuery(query=query, **more))]  # type: ignore[arg-type]


def test_names_and_descriptions_count_more_than_bodies_and_bodies_are_found() -> None:
    assert found("when do we deploy?")[0] == "project_deploy.md"
    assert "project_deploy.md" in found("what is helm for on staging", floor=0.05)


def test_words_used_in_place_of_each_other_meet() -> None:
    assert "project_deploy.md" in found("who releases on Friday?")


def test_rather_nothing_than_noise() -> None:
    assert found("what will the weather be in Lisbon tomorrow") == []
    assert found("the and of to") == []
    assert found("") == []


def test_a_directory_with_one_memory_has_telling_words_too() -> None:
    index, cards = made(project_deploy=("Deploys on Friday", "who deploys, and when", "project", "Anna."))
    assert rank_memories(index, cards, MemoryQuery(query="when do we deploy?"))
    assert not rank_memories(index, cards, MemoryQuery(query="what will the weather be tomorrow?"))


def test_at_most_as_many_as_wanted_best_first_with_a_reason() -> None:
    chosen = rank_memories(*CORPUS, MemoryQuery(query="grep tool warnings", limit=2, floor=0.01))
    assert chosen[0].card.file == "reference_grep_traps.md"
    assert len(chosen) == 2
    assert chosen[0].score >= chosen[1].score
    assert "about warnings" in chosen[0].why


def test_what_was_shown_is_left_out_until_it_changes() -> None:
    assert found("when do we deploy?", shown={"project_deploy.md": 1_000.0}) == []
    assert found("when do we deploy?", shown={"project_deploy.md": 999.0})[0] == "project_deploy.md"


@pytest.mark.parametrize("tool", ["Grep", "mcp__search__grep"])
def test_usage_notes_of_a_tool_in_use_are_left_out_and_warnings_are_kept(tool: str) -> None:
    files = found("grep tool", tools=(tool,))
    assert "reference_grep.md" not in files
    assert "reference_grep_traps.md" in files


def test_feedback_about_a_tool_is_no_usage_note() -> None:
    index, cards = made(feedback_bash=("Bash habits", "use Bash with care for quoting", "feedback", "x"))
    assert rank_memories(index, cards, MemoryQuery(query="bash quoting", tools=("Bash",)))


def test_recency_and_use_decide_between_equals() -> None:
    index, cards = made(a=("Cache keys", "cache keys", "project", "x"), b=("Cache keys", "cache keys", "project", "x"))
    now = 400 * DAY_SECONDS
    cards["b.md"] = MemoryCard(file="b.md", name="Cache keys", description="cache keys", type="project", modified=now)

    def first(**more: object) -> RankedMemory:
        return rank_memories(index, cards, MemoryQuery(query="cache keys", now=now, **more))[0]  # type: ignore[arg-type]

    assert first().card.file == "b.md"
    used = first(uses={"a.md": 40})
    assert used.card.file == "a.md"
    assert "used 40 times" in used.why


def test_who_am_i_finds_what_is_known_of_the_user() -> None:
    assert found("who am I?")[0] == "user_role.md"


def test_a_model_may_choose_from_the_best_and_then_the_newest() -> None:
    index, cards = CORPUS
    some = candidates(index, cards, MemoryQuery(query="deploy", limit=4, floor=0.0, shown={"user_role.md": 1_000.0}))
    assert some[0].file == "project_deploy.md"
    assert len(some) == 4
    assert "user_role.md" not in {
        card.file
        for card in candidates(index, cards, MemoryQuery(query="x", limit=99, shown={"user_role.md": 1_000.0}))
    }


# --- turns and sessions


TALK = DialogueIndex(
    [
        DialogueTurn(
            id="1", session="s1", speaker="Ann", time="2023-05-06", text="What did you paint last weekend, Bob?"
        ),
        DialogueTurn(id="2", session="s1", speaker="Bob", time="2023-05-06", text="A sunset over the lake."),
        DialogueTurn(id="3", session="s1", speaker="Ann", time="2023-05-06", text="Lovely."),
        DialogueTurn(id="4", session="s2", speaker="Bob", time="2023-07-01", text="The dog is ill."),
        DialogueTurn(id="5", session="s2", speaker="Ann", time="2023-07-01", text="Poor dog! I saw the vet yesterday."),
        DialogueTurn(
            id="6", session="s2", speaker="Bob", time="2023-07-01", text="My sister saw the vet, too, she said so."
        ),
    ]
)


def turns(query: str) -> list[str]:
    return [TALK.turns[n].id for n in best_positions(TALK.scores(query), 9)]


def test_an_answer_is_found_by_the_question_before_it() -> None:
    assert "2" in turns("What did Bob paint?")[:2]


def test_turns_of_another_session_are_no_neighbours() -> None:
    assert "4" not in turns("lovely")


def test_a_question_for_a_time_prefers_who_said_it_and_a_turn_that_names_one() -> None:
    assert turns("When did Ann see the vet?")[0] == "5"


def test_a_date_finds_its_session() -> None:
    assert set(turns("What happened on May 6th?")[:3]) == {"1", "2", "3"}


@pytest.mark.parametrize("text", ["2023-05-08T10:00", "1:56 pm on 8 May, 2023", "May 8, 2023", "8th of May 2023"])
def test_dates_in_many_forms_give_the_same_terms(text: str) -> None:
    assert dates(text) == Counter({"2023": 1, MAY: 1, "8": 1})


def test_only_questions_are_told_from_what_says_something() -> None:
    assert only_asks("Where do you live?")
    assert not only_asks("I live in Rome. And you?")
    assert is_question("what did we decide")
    assert not is_question("Fix the parser")


def test_a_task_prefers_recent_sessions_and_a_question_does_not() -> None:
    texts = ["parser work on tokens", "parser work on tokens", "something else", "more of it"]
    sessions = SessionIndex([CorpusItem(id=str(n), text=text) for n, text in enumerate(texts)])
    assert best_positions(sessions.scores("go on with the parser tokens"), 1) == [1]
    question = sessions.scores("what did we do about parser tokens?")
    assert question[0] == question[1]
    assert sessions.scores("go on with the parser tokens", at=1)[1:] == [0.0, 0.0, 0.0]
