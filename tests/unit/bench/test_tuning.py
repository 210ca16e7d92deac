"""QLT-7: settings that are chosen without the session that is scored."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.bench.talk import log_of

from perdure.cli import main
from perdure.compaction.ledger import compact_messages
from perdure.compaction.ledger.facts import WEIGHTS
from perdure.compaction.ledger.render import compact_memory, memory_of_messages
from perdure.lab.bench.fidelity import FidelityOptions
from perdure.lab.bench.report import BEST_ON_ALL, LEFT_OUT
from perdure.lab.bench.scores import AXES, KeptCount
from perdure.lab.bench.tuning import TODAY, RecordTuning, Tried, chosen_rows, grid
from perdure.transcript.blocks import text_block
from perdure.transcript.messages import Message, MessageId, content_of

pytestmark = [pytest.mark.unit, pytest.mark.nightly]  # a benchmark of ours: nobody is harmed before the night


def tried(session: str, setting: int, kept: int, words: int = 10) -> Tried:
    tallies = dict.fromkeys(AXES, KeptCount(kept, 10)) | {"words": KeptCount(words, 10)}
    return Tried("cut", "10k", session, setting, tallies, 9_900)


def test_the_grid_begins_with_todays_settings() -> None:
    settings = grid()
    assert settings[0] == RecordTuning() and len(set(settings)) == len(settings) > 10


def test_each_session_is_scored_by_what_is_best_on_the_others() -> None:
    """What is good for a session alone isn't chosen for it."""
    found = [tried(name, 0, 5) for name in "abc"]
    found += [tried("a", 1, 9), tried("b", 1, 4), tried("c", 1, 4)]  # good for a alone
    found += [tried("a", 2, 3), tried("b", 2, 6), tried("c", 2, 6)]
    rest = range(3, len(grid()))
    found += [tried(name, setting, 0) for name in "abc" for setting in rest]
    done = chosen_rows(found, FidelityOptions(budgets=("10k",)))
    rows = {row.strategy: row.axes["facts"].percent for row in done.report.rows}
    assert rows[TODAY] == 50 and rows[LEFT_OUT] == pytest.approx(100 * (3 + 4 + 4) / 30)
    assert rows[BEST_ON_ALL] == pytest.approx(100 * (9 + 4 + 4) / 30)
    assert done.chosen["a"] == str(grid()[2]) and done.chosen["b"] == str(grid()[1])


def test_settings_that_lose_words_of_the_user_are_never_chosen() -> None:
    found = [tried(name, 0, 5) for name in "abc"]
    found += [tried(name, 1, 9, words=9) for name in "abc"]
    found += [tried(name, setting, 0) for name in "abc" for setting in range(2, len(grid()))]
    done = chosen_rows(found, FidelityOptions(budgets=("10k",)))
    assert set(done.chosen.values()) == {str(grid()[0])} and done.best == str(grid()[0])


def test_a_memory_that_was_weighed_as_usual_gives_the_usual_record() -> None:
    said = [
        Message(
            id=MessageId(f"m{number}"),
            role="assistant",
            origin="assistant",
            content=content_of([text_block(f"read_rows_{number} lives in src/part_{number}.py")]),
        )
        for number in range(300)
    ]
    memory = memory_of_messages(said)
    memory.weigh(WEIGHTS)
    assert compact_memory(memory, said, (1_000, 200)).text == compact_messages(said, 1_000, 200).text


@pytest.mark.nightly
def test_the_command_prints_all_three_and_what_was_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for log in range(2):
        lines = [("user", "please go on")]
        for number in range(220):
            lines.append(("assistant", f"row_{log}_{number} in src/part_{number % 9}.py: " + "lorem ipsum dolor " * 30))
            lines.append(("user", f"look at value_{number % 50} as well"))
        lines += [("assistant", f"So row_{log}_{number} it is.") for number in range(0, 90, 3)]
        log_of(lines, tmp_path / f"log{log}.jsonl")
    asked = ["bench", "fidelity", str(tmp_path), "--leave-one-out", "--budget", "2k", "--at", "cut"]
    assert main([*asked, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {row["strategy"] for row in told["rows"]} == {TODAY, LEFT_OUT, BEST_ON_ALL}
    assert set(told["settings"]["chosen"]) == {"log0", "log1"} and told["settings"]["tried"] == len(grid())
    assert main(asked) == 0
    shown = capsys.readouterr().out
    assert LEFT_OUT in shown and "chosen without a session:" in shown
    assert main([*asked, "--chains"]) == 2


def test_one_session_alone_leaves_nothing_to_choose_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """QLT-1, CLI-6: today's settings would be printed as if they had been chosen."""
    lines = [("user", "please go on")]
    for number in range(220):
        lines.append(("assistant", f"row_{number} in src/part_{number % 9}.py: " + "lorem ipsum dolor " * 30))
        lines.append(("user", f"look at value_{number % 50} as well"))
    lines += [("assistant", f"So row_{number} it is.") for number in range(0, 90, 3)]
    log_of(lines, tmp_path / "log.jsonl")
    assert main(["bench", "fidelity", str(tmp_path), "--leave-one-out", "--budget", "2k", "--at", "cut"]) == 2
    told = capsys.readouterr()
    assert told.out == "" and told.err.splitlines()[-1].startswith("perdure: --leave-one-out: only one session")
