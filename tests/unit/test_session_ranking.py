"""Which earlier sessions matter to a prompt (MEM-15)."""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.recall.sessions import MOST_FILES, AskedSessions, SessionCard, SessionRanking
from perdure.text.words import terms
from perdure.transcript.messages import Message, MessageId
from perdure.transcript.records import Record, Titled


def said(text: str, at: float = 1.0) -> Message:
    return Message.of("user", text, id=MessageId(text[:20]), at=at)


def called(*calls: tuple[str, dict[str, Any]], at: float = 1.0) -> Message:
    blocks = [
        {"type": "tool_use", "id": f"toolu_{n}", "name": name, "input": given} for n, (name, given) in enumerate(calls)
    ]
    return Message.of("assistant", blocks, id=MessageId("called"), origin="model", at=at)


def card(*records: Record) -> SessionCard:
    made = SessionCard()
    made.learn(records, "/home/ann/app")
    return made


def ranked(prompt: str, *cards: SessionCard, held: dict[str, dict[int, float]] | None = None) -> list[int]:
    return [one.number for one in SessionRanking(AskedSessions.of(prompt), cards, held or {}).best(10)]


FILLER = [
    card(said(f"something else number {n}"), called(("Read", {"file_path": f"/home/ann/app/o{n}.py"})))
    for n in range(9)
]


def test_a_card_knows_title_prompts_and_files() -> None:
    """MEM-15: paths as the project calls them; what was edited counts more; a title replaces the first words."""
    made = card(said("make the parser keep comments", 5.0))
    assert made.title == "make the parser keep comments"
    made.learn(
        (
            called(
                ("Read", {"file_path": "/home/ann/app/src/lexer.py"}),
                ("Edit", {"file_path": "/home/ann/app/src/parser.py", "old_string": "a", "new_string": "b"}),
                ("Bash", {"command": "sed -i s/a/b/ docs/grammar.md"}),
                at=9.0,
            ),
            Titled(title="Comments survive"),
        ),
        "/home/ann/app",
    )
    assert (made.title, made.ended) == ("Comments survive", 9.0)
    assert made.files["src/parser.py"] > made.files["src/lexer.py"] > 0 and "docs/grammar.md" in made.files
    assert terms("parser comments").keys() <= made.asked.keys()
    assert terms("lexer").keys() <= made.named.keys() and terms("survive").keys() <= made.titled.keys()


def test_a_card_stays_small_and_keeps_what_was_edited() -> None:
    """MEM-15: however long a session is."""
    reads = [called(("Read", {"file_path": f"/home/ann/app/r{n}.py"})) for n in range(500)]
    made = card(
        said(" ".join(f"word{n}" for n in range(5_000))),
        *reads,
        called(("Write", {"file_path": "/home/ann/app/last.py", "content": "x"})),
    )
    assert len(made.files) == MOST_FILES and "last.py" in made.files
    assert len(msgspec.msgpack.encode(made)) < 10_000


def test_what_a_session_was_for_counts_more_than_what_it_mentions() -> None:
    """MEM-15: title and prompts before a word that stands somewhere in it."""
    about, mentions = card(said("mend the tokenizer")), card(said("write the release notes"))
    cards = (mentions, about, *FILLER)
    assert ranked("speed up the tokenizer", *cards, held={"token": {0: 1.0, 1: 1.0}})[0] == 1


def test_all_that_was_said_is_looked_at() -> None:
    """MEM-15: bodies matter: a word that stands in no title and no prompt finds its session."""
    (found, *_) = ranked("where did the quokka come from?", *FILLER, held={"quokka": {4: 2.0}})
    assert found == 4


def test_sessions_of_the_same_files_come_along() -> None:
    """MEM-15: a session whose words don't fit, but which edited the file of one that does."""
    edit = ("Edit", {"file_path": "/home/ann/app/src/tokens.py", "old_string": "a", "new_string": "b"})
    fits, same = card(said("mend the tokenizer"), called(edit)), card(said("why is it so slow"), called(edit))
    assert ranked("the tokenizer drops commas", *FILLER[:4], same, *FILLER[4:], fits)[:2] == [10, 4]


def test_newer_ones_come_first_for_a_task_and_not_for_a_question() -> None:
    """MEM-15: of two that fit alike."""
    old, new = card(said("mend the tokenizer")), card(said("mend the tokenizer"))
    cards = (old, *FILLER, new)
    assert ranked("extend the tokenizer", *cards)[0] == 10
    scores = SessionRanking(AskedSessions.of("what did we do to the tokenizer?"), cards, {}).scores
    assert scores[0] == scores[10]


def test_it_says_why() -> None:
    """MEM-15: the words of the prompt that it holds, and files, first those that the prompt names."""
    made = card(
        said("mend the tokenizer"),
        called(
            ("Read", {"file_path": "/home/ann/app/zz.py"}), ("Read", {"file_path": "/home/ann/app/src/lexer_rules.py"})
        ),
    )
    (best, *_) = SessionRanking(AskedSessions.of("the lexer and tokenizers"), (*FILLER, made), {}).best(1)
    assert best.words == ("lexer", "tokenizers") or best.words == ("tokenizers", "lexer")
    assert best.files[0] == "src/lexer_rules.py" and best.score == 1.0


def test_odd_prompts_and_no_sessions_harm_nothing() -> None:
    """MEM-15: nothing fits, and nothing is there."""
    assert ranked("zzqq", *FILLER) == [] and ranked("", *FILLER) == [] and ranked("a parser") == []
    assert ranked("\ud800 \0 ' OR zz=zz", *FILLER) == []
