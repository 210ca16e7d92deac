"""QLT-6: public benchmarks are recognised, read with what is left out said, and measured; a broken file is one line."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import BadSetting, ForeignFormat, SessionNotFound
from perdure.lab.bench import public

pytestmark = pytest.mark.unit

SAID = (
    ("Ann", "D1:1", "My old dentist is in Bonn."),
    ("Bob", "D1:2", "I keep two llamas on the farm."),
    ("Ann", "D1:3", "Tomorrow I fly to Lisbon."),
)


def written(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def locomo(folder: Path, **changes: Any) -> Path:
    """A folder of LoCoMo's form: one conversation of two sessions."""
    dialogue: dict[str, Any] = {
        "sample_id": "conv-26",
        "conversation": {
            "speaker_a": "Ann",
            "session_1": [{"speaker": a, "dia_id": b, "text": c} for a, b, c in SAID],
            "session_1_date_time": "1:56 pm on 8 May, 2023",
            "session_2": [
                {"speaker": "Bob", "dia_id": "D2:1", "text": "Look!", "blip_caption": "a photo of a heron"},
                {"speaker": "Ann", "dia_id": "D2:2", "text": "Nice."},
            ],
            "session_2_date_time": "9 June, 2023",
        },
        "qa": [
            {"question": "Which animals does Bob keep?", "answer": 2, "evidence": ["D1:2"], "category": 4},
            {"question": "Where does Ann fly and what did Bob show?", "evidence": ["D1:3; D2:01"], "category": 1},
            {"question": "Nobody knows.", "evidence": [], "category": 3},
            {"question": "Nobody said.", "evidence": ["D9:9"], "category": 3},
        ],
    }
    written(folder / "data" / "locomo10.json", [dialogue | changes])
    return folder


def sets(folder: Path, *only: str) -> list[public.PublicSet]:
    return list(public.public_sets(public.found_folders([folder], only)))


def message(number: int, role: str, text: str) -> dict[str, Any]:
    return {"id": number, "role": role, "content": text}


def beam(folder: Path, *, chat: Any = None, asked: Any = None, size: str = "100K", name: str = "1") -> Path:
    """A folder of BEAM's form: one chat of two batches, in which a value changes."""
    here = folder / "chats" / size / name
    batches = [
        {
            "batch_number": 1,
            "time_anchor": "March-15-2024",
            "turns": [[message(0, "user", "The api answers in 400ms. ->-> 1,1"), message(1, "assistant", "I see.")]],
        },
        {
            "batch_number": 2,
            "turns": [
                [{**message(2, "user", "The api answers in 250ms now. ->-> 2,3"), "time_anchor": "April-2-2024"}]
            ],
        },
    ]
    questions = {
        "knowledge_update": [
            {
                "question": "How fast does the api answer?",
                "source_chat_ids": {"original_info": [0], "updated_info": [2]},
            }
        ],
        "event_ordering": [{"question": "What came first of the api?", "source_chat_ids": [[0], [2]]}],
        "abstention": [{"question": "What did I eat?"}],
    }
    written(here / "chat.json", batches if chat is None else chat)
    written(here / "probing_questions" / "probing_questions.json", questions if asked is None else asked)
    return folder


def test_locomo_is_read_with_its_evidence_as_it_is_meant(tmp_path: Path) -> None:
    """QLT-6: each turn with speaker, date and caption; questions that nothing answers are counted apart."""
    (one,) = sets(locomo(tmp_path))
    assert (one.name, len(one.corpus.items)) == ("LoCoMo", 5)
    assert [question.evidence for question in one.corpus.questions] == [
        ("conv-26 D1:2",),
        ("conv-26 D1:3", "conv-26 D2:1"),
    ]
    assert one.left_out == {"no evidence named": 1, "evidence that isn't there": 1}
    assert list(one.categories.values()) == ["single-hop", "multi-hop"]
    shown = next(item for item in one.corpus.items if item.id == "conv-26 D2:1")
    assert (shown.text, shown.speaker, shown.time) == ("Look!\n[shares a photo of a heron]", "Bob", "9 June, 2023")
    data = (tmp_path / "data" / "locomo10.json").read_bytes()
    assert one.files == {"locomo10.json": hashlib.sha256(data).hexdigest()} and not one.is_as_published


def test_beam_is_read_by_size_with_what_was_updated(tmp_path: Path) -> None:
    """QLT-6: messages without their index, dates of their batches, evidence however deep it is listed."""
    beam(tmp_path, size="500K", name="7")
    first, second = sets(beam(tmp_path))
    assert [first.name, second.name] == ["BEAM 128K", "BEAM 500K"]
    assert [item.text for item in first.corpus.items] == [
        "The api answers in 400ms.",
        "I see.",
        "The api answers in 250ms now.",
    ]
    assert [item.time for item in first.corpus.items] == ["2024-03-15", "2024-03-15", "2024-04-02"]
    assert [question.evidence for question in first.corpus.questions] == [("100K/1 0", "100K/1 2")] * 2
    assert list(first.updates.values()) == [(frozenset({"100K/1 2"}), frozenset({"100K/1 0"}))]
    assert first.left_out == {"no evidence named": 1}
    assert {first.part_of(question) for question in first.corpus.questions} == {"tuned on"}
    assert {second.part_of(question) for question in second.corpus.questions} == {"only checked"}


def test_a_shortened_chat_goes_before_the_whole_one_and_a_missing_one_is_said(tmp_path: Path) -> None:
    """QLT-6: as its authors measure; questions to a chat that wasn't fetched are left out, with the reason."""
    beam(tmp_path)
    short = [{"turns": [[message(0, "user", "The api is slow.")]]}]
    written(tmp_path / "chats" / "100K" / "1" / "chat_trunecated.json", short)
    beam(tmp_path, name="2")
    (tmp_path / "chats" / "100K" / "2" / "chat.json").unlink()
    (one,) = sets(tmp_path)
    assert [item.text for item in one.corpus.items] == ["The api is slow."]
    assert one.left_out == {"no evidence named": 1, "its chat isn't there": 3}


def test_every_ranker_is_measured_by_kind_and_part(tmp_path: Path) -> None:
    """QLT-6: every baseline over the same questions; the newest value is looked for where one changed."""
    (one,) = sets(beam(tmp_path))
    rows = {row.ranker: row for row in public.measured_set(one)}
    assert rows.keys() == {"random", "recency", "bm25", "stemmed", "fts5", "neighbours", "full"}
    (searched,) = public.measured_set(one, ["search"])
    assert searched.all.recall_5 == 1.0, "it writes journals first, so it is only measured when it is named"
    assert rows["bm25"].all.recall_5 == rows["fts5"].all.recall_5 == 1.0
    assert rows["recency"].newest_first == 1.0 and rows["bm25"].newest_first == 0.0
    assert rows["full"].categories.keys() == {"event ordering", "knowledge update"}
    (locomo_set,) = sets(locomo(tmp_path), "locomo")
    (row,) = public.measured_set(locomo_set, ["full"])
    assert row.newest_first is None and row.parts["tuned on"].questions == 2


@pytest.mark.parametrize(
    ("broken", "text"),
    [
        ("{", "locomo10.json: "),
        ([1], "locomo10.json: Expected `object`"),
        ([{"sample_id": "a", "qa": [], "conversation": {"session_1": "x"}}], "a, session_1: Expected `array`"),
        ([{"sample_id": "a", "qa": [], "conversation": {}}], "no question has evidence"),
        ("[" * 100_000, "locomo10.json: "),
    ],
)
def test_a_broken_file_is_one_line(tmp_path: Path, broken: Any, text: str) -> None:
    """QLT-6, SEC-6: with the file, the place and what was expected there."""
    written(tmp_path / "locomo10.json", broken)
    with pytest.raises(ForeignFormat) as caught:
        sets(tmp_path)
    assert text in str(caught.value) and "\n" not in str(caught.value)


def test_ids_that_come_twice_are_refused(tmp_path: Path) -> None:
    """QLT-6: else a message could be found for another one."""
    beam(tmp_path, chat=[{"turns": [[message(0, "user", "a"), message(0, "user", "b")]]}])
    with pytest.raises(ForeignFormat, match="two messages have the id '100K/1 0'"):
        sets(tmp_path)


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    """QLT-6: a folder that isn't there, one with something else, a set that the folder doesn't have or nobody knows."""
    with pytest.raises(SessionNotFound, match="no such folder"):
        sets(tmp_path / "nope")
    with pytest.raises(SessionNotFound, match="nothing of LoCoMo, BEAM or PrecisionMemBench"):
        sets(tmp_path)
    locomo(tmp_path)
    with pytest.raises(SessionNotFound, match="nothing of beam"):
        sets(tmp_path, "beam")
    with pytest.raises(BadSetting, match="--only squad: there are locomo, beam, precision"):
        sets(tmp_path, "squad")


def test_links_are_not_followed_and_other_files_are_left_alone(tmp_path: Path) -> None:
    """QLT-6: what was fetched may hold anything."""
    locomo(tmp_path / "there")
    here = tmp_path / "here"
    locomo(here / "a")
    (here / "b").symlink_to(tmp_path / "there", target_is_directory=True)
    locomo(here / "node_modules")
    assert len(public.look_through(here).locomo) == 1


def test_an_id_of_thousands_of_digits_is_none(tmp_path: Path) -> None:
    """QLT-6, SEC-6: no number is so long; it is evidence that isn't there, and a session that is none."""
    long = "9" * 5_000
    talk = {
        "speaker_a": "Ann",
        "session_1": [{"speaker": a, "dia_id": b, "text": c} for a, b, c in SAID],
        f"session_{long}": [],
    }
    qa = [
        {"question": "Who?", "evidence": [f"D{long}:1", f"D1:{long}"], "category": 1},
        {"question": "Which animals does Bob keep?", "evidence": ["D1:2"], "category": 4},
    ]
    (one,) = sets(locomo(tmp_path, conversation=talk, qa=qa))
    assert len(one.corpus.questions) == 1 and one.left_out == {"evidence that isn't there": 1}


def test_a_large_folder_is_not_walked_without_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """QLT-6: how far it is, now and then."""
    monkeypatch.setattr(public, "_TOLD_EACH", 10)
    locomo(tmp_path)
    for number in range(25):
        (tmp_path / f"d{number:02}").mkdir()
        (tmp_path / f"d{number:02}" / "a.txt").touch()
    told: list[str] = []
    public.found_folders([tmp_path], on_look=told.append)
    assert len(told) >= 2 and told[0].startswith(f"{tmp_path}: ") and told[0].endswith(" files and folders looked at")
