"""CMP-5, CMP-12, QLT-2: what the compacted view holds, in which order, and what gives way."""

from __future__ import annotations

import pytest
from tests.unit.ledger.talk import Talk

from perdure.compaction.ledger import compact_messages
from perdure.compaction.ledger.facts import facts_in
from perdure.compaction.ledger.memory import EvidenceText
from perdure.compaction.ledger.render import memory_of_messages, name_list, names_together
from perdure.transcript.messages import Message, MessageId
from perdure.transcript.tokens import base_tokens

pytestmark = pytest.mark.unit


def busy() -> Talk:
    talk = Talk().user("Make the parser read lists")
    for number in range(40):
        path = f"/home/me/app/src/part_{number % 7}.py"
        talk.ran("Read", {"file_path": path}, "\n".join(f"{n:6}→def name_{number}_{n}(x): pass" for n in range(30)))
        talk.ran("Edit", {"file_path": path, "old_string": "x", "new_string": f"def edited_name_{number}(): pass"})
        talk.bash(f"pytest -q -k part_{number}", f"{number} passed in 1s")
    return talk.says("I decided to keep the tokenizer because the lexer is slow.").user("Now write the docs")


def test_a_view_for_people_and_models() -> None:
    """CMP-12: framing, the words of the user, open and done apart, commands as a record, where to recall the rest."""
    text = busy().text(3_000)
    assert text.startswith("Record of earlier work") and "the latest message of the user decides" in text
    assert "All tools remain available" in text and "recall" in text.split("\n")[0]
    order = ["# Hand-over", "# What it rests on", "Files changed (below /home/me/app)", "a record, not a request"]
    places = [text.index(heading) for heading in order]
    assert places == sorted([*places, text.index("Excerpts")])[: len(places)]
    assert "Make the parser read lists" in text and "Now write the docs" in text
    assert "I decided to keep the tokenizer because the lexer is slow." in text


def test_the_budget_holds_and_the_tail_stands_outside() -> None:
    messages = busy().messages
    for budget in (50, 200, 500, 2_000, 8_000):
        done = compact_messages(messages, budget)
        assert done.tokens == base_tokens(done.text) <= budget
        assert compact_messages(messages, budget, 1_000).tokens <= budget + 1_000
    tailed = compact_messages(messages, 500, 1_000).text
    assert tailed.rstrip().endswith("Now write the docs") and tailed.count("Now write the docs") == 1


def test_what_was_kept_and_dropped_is_told_with_ids() -> None:
    done = compact_messages(busy().messages, 1_500)
    assert {"task", "exchange", "edited", "commands"} <= {entry["section"] for entry in done.kept}
    assert done.dropped["commands"]["count"] and all(
        one.startswith("call-") for one in done.dropped["commands"]["recall"]
    )


def test_commands_stand_once_with_count_and_outcome() -> None:
    talk = Talk().user("Go").bash("make test", "Exit code 1\n3 failed", is_error=True).bash("make test", "5 passed")
    assert "make test → ok (2×): 5 passed" in talk.says("done").user("x" * 9_000).text()


def test_windows_paths_are_one_trail() -> None:
    """Windows paths must be normalised or the file trail is lost."""
    talk = Talk().user("Go")
    talk.ran("Edit", {"file_path": "D:\\site\\src\\pages\\index.js", "old_string": "a", "new_string": "b"})
    talk.ran("Read", {"file_path": "d:/site/src/pages/index.js"}).ran("Read", {"file_path": "D:\\site\\src\\app.js"})
    text = talk.text()
    assert "Files changed (below D:/site)" in text and "- src/pages/index.js (changed; read 1×)" in text


def test_the_folder_of_most_files_is_named_once_whatever_was_changed_elsewhere() -> None:
    """CMP-5: files of a scratch folder and of a memory folder don't lengthen the paths of the project's."""
    talk = Talk().user("start")
    for number in range(8):
        talk.ran("Read", {"file_path": f"/home/me/project/src/part{number}/code.py"}, "x = 1")
    for number in range(5):
        talk.ran("Write", {"file_path": f"/tmp/session/scratch/plan{number}.md", "content": "words"})
    text = talk.text()
    assert "Files changed (below /home/me/project/src)" in text and "\n- /tmp/session/scratch/plan1.md" in text
    assert "\n- part3/code.py\n" in text


def test_what_the_names_leave_is_filled_with_excerpts() -> None:
    """CMP-5: a list of names that is shorter than its share leaves no room unused while there is more to quote."""
    talk = Talk().user("start")
    for number in range(400):
        talk.bash(f"git show {number}", f"some/folder{number}/module_{number}.py: changed for reason number {number}")
    done = compact_messages(talk.messages, 8_000)
    assert done.dropped["evidence"]["count"] > 0 and 7_800 <= done.tokens <= 8_000


def test_names_stand_with_those_they_came_up_with() -> None:
    """QLT-2: the latest first, each in the order in which it was said; not sorted by kind or letter."""
    first = "zebra_stripe then Apple.py then --mango-flag"
    second = "quince_count before banana_split"
    listed = names_together(
        ["banana_split", "Apple.py", "zebra_stripe", "gone_long_ago", "--mango-flag", "quince_count"],
        [
            EvidenceText(0, 0, "m1", first, 0, tuple(facts_in(first))),
            EvidenceText(9, 0, "m2", second, 1, tuple(facts_in(second))),
        ],
    )
    assert listed == "quince_count, banana_split; zebra_stripe, Apple.py, --mango-flag; gone_long_ago"


def test_of_names_of_the_same_weight_the_shorter_are_listed() -> None:
    """QLT-2: as many as fit are worth more than one that is long."""
    long, short = "a_name_that_takes_the_room_of_four_others", ["get_row", "put_row", "pop_row"]
    memory = memory_of_messages([Message.of("assistant", " ".join((long, *short)))])
    found = name_list(memory, frozenset(), 4 * len(short[0]))
    assert set(found.names) == set(short) and found.left == 1 and found.units <= 4 * len(short[0])


@pytest.mark.parametrize("how", ["result", "notification"])
def test_what_a_sub_agent_reports_counts_as_much_as_words_of_the_agent(how: str) -> None:
    """QLT-2: a report was written for the agent to go on with; a listing only scrolls by."""
    report = "The parser lives in rowParser, its state in rowState."
    use = {"type": "tool_use", "id": "t1", "name": "Task", "input": {"description": "look", "prompt": "look around"}}
    if how == "result":
        back = [{"type": "tool_result", "tool_use_id": "t1", "content": report}]
    else:
        note = f"<task-notification>\n<task-id>t1</task-id>\n<status>completed</status>\n<result>{report}</result>"
        back = [{"type": "text", "text": f"{note}\n</task-notification>"}]
    listing = {"type": "tool_use", "id": "t2", "name": "Bash", "input": {"command": "ls"}}
    listed = {"type": "tool_result", "tool_use_id": "t2", "content": report.replace("row", "col")}
    memory = memory_of_messages(
        [
            Message.of("assistant", [use]),
            Message.of("user", back, origin="user" if how == "result" else "reminder"),
            Message.of("assistant", [listing]),
            Message.of("user", [listed]),
        ]
    )
    assert memory.facts["rowParser"].said == 4 * memory.facts["colParser"].said


def test_many_changed_files_are_all_named_when_room_is_scarce() -> None:
    talk = Talk().user("Go")
    for number in range(60):
        talk.ran("Write", {"file_path": f"/home/me/app/src/deep/folder/module_{number}.py", "content": "x"})
    done = compact_messages(talk.messages, 400)
    assert done.tokens <= 400 and all(f"module_{number}.py" in done.text for number in range(60))


def test_pins_stand_first_word_for_word() -> None:
    done = compact_messages(busy().messages, 600, pins=("never touch main",))
    assert "## Pinned by the user, word for word\n```\nnever touch main\n```" in done.text


def test_summaries_and_restored_content_are_no_source() -> None:
    """CMP-13: built from what was said, never from the last summary."""
    talk = busy()
    before = talk.text()
    summary = Message.of("user", "the_secret_of_the_summary", id=MessageId("s"), origin="summary")
    restored = Message.of("user", "the_restored_thing", id=MessageId("r"), origin="restored")
    assert compact_messages([summary, restored, *talk.messages], 4_000).text == before


def test_of_a_command_only_what_was_typed_for_the_model_is_kept() -> None:
    """CMP-15: the echo of a command and what it printed are no words of a person; what it is to work on is."""
    talk = Talk().user("<command-name>/review</command-name><command-args>the parser</command-args>")
    talk.user("<local-command-stdout>gone</local-command-stdout>").user("<bash-input>git status</bash-input>")
    assert [one.text for one in talk.memory.words] == ["the parser"]


def test_an_empty_history_and_no_budget() -> None:
    assert compact_messages([], 1_000).tokens <= 1_000
    assert compact_messages(busy().messages, 0).text == ""
