"""CLI-2: the verdict of a replay: what the logs paid, what ours pays, and what that buys."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from tests.calls import used

from perdure.cli.replay import summary
from perdure.lab.replay.drive import ReplayOptions
from perdure.lab.replay.run import kept_facts, replay_recording
from perdure.lab.replay.verdict import facts_of_all, unmanaged_cost, verdict
from perdure.logs.recording import LoggedCompaction, LoggedMicrocompaction, RecordedMessage, Recording
from perdure.settings import Settings
from perdure.transcript.messages import Message, MessageId, ResponseId, Usage

pytestmark = pytest.mark.unit


def recording(summary_text: str | None) -> Recording:
    """Long work, a compaction of the log's own, and a call that needs a path and a name from before it."""
    steps: list[Any] = []

    def say(*messages: Message, logged_only: bool = False) -> None:
        steps.extend(RecordedMessage(message, len(steps) + 1, logged_only) for message in messages)

    say(Message.of("user", "Fix the retry limit.", id=MessageId("u1")))
    needed = "def reconnect_backoff(limit_seconds=417):\n    return RetryPlanner(limit_seconds)\n"
    say(*used("Read", {"file_path": "/w/src/network/retry_planner.py"}, needed))
    for n in range(40):
        say(*used("Bash", {"command": f"make step{n}"}, f"row {n}: lorem ipsum dolor sit amet\n" * 90))
    say(Message.of("assistant", "reconnect_backoff in src/network/retry_planner.py has to change.", origin="model"))
    if summary_text is not None:
        steps.append(LoggedCompaction("boundary", len(steps) + 1, "auto", 150_000))
        say(Message.of("user", summary_text, id=MessageId("s1"), origin="summary"), logged_only=True)
    say(Message.of("assistant", "I go on with reconnect_backoff in src/network/retry_planner.py.", origin="model"))
    edit = {"file_path": "/w/src/network/retry_planner.py", "old_string": "limit_seconds=417", "new_string": "x=1"}
    say(*used("Edit", edit, "The file has been updated."))
    return Recording("claude-code", "made", tuple(steps), model="claude-sonnet-4-5")


def test_facts_that_were_needed_are_counted_for_both() -> None:
    """CLI-2, QLT-1: a summary that names nothing keeps nothing, one that names all keeps as much as ours."""
    poor = kept_facts(recording("Some files were read."), Settings())
    assert poor is not None and poor["places"] == 1 and poor["needed"] >= 2
    assert poor["logged_kept"] == 0 and poor["kept"] == poor["needed"]
    rich = kept_facts(recording("src/network/retry_planner.py: reconnect_backoff, limit_seconds=417"), Settings())
    assert rich is not None and rich["logged_kept"] > 0


def test_without_a_compaction_in_the_log_nothing_is_said_of_facts() -> None:
    """CLI-2: unknown is unknown."""
    assert kept_facts(recording(None), Settings()) is None


def test_the_verdict_ends_with_the_facts_or_says_that_they_are_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    """CLI-2: also where no price is known."""
    from perdure.cli.replay import _kept, _show_verdict

    results = []
    for text in ("Some files were read.", None):
        result = anyio.run(replay_recording, recording(text), "made.jsonl", ReplayOptions())
        assert ("facts" in result) == (text is not None)
        results.append(_kept(result))
    summary(results)
    _show_verdict(verdict(results), facts_of_all(results))
    told = capsys.readouterr().out
    assert "no verdict on the price" in told
    assert "the work needed after 1 compaction of the logs, our record keeps 100%, theirs 0%" in told
    _show_verdict(None, facts_of_all(results[1:]))
    assert "facts kept: unknown" in capsys.readouterr().out


def called(number: int, prompt: int, *, at: float) -> RecordedMessage:
    message = Message.of(
        "assistant",
        "Done.",
        id=MessageId(f"a{number}"),
        origin="model",
        usage=Usage(cache_creation_input_tokens=prompt, output_tokens=10),
        response_id=ResponseId(f"r{number}"),
        at=at,
    )
    return RecordedMessage(message, number)


def test_what_keeping_everything_costs() -> None:
    """CLI-2: what the log cleared or compacted is in every later prompt; a cache that expired is written anew."""
    steps: list[Any] = [
        called(1, 50_000, at=0.0),
        LoggedMicrocompaction("m", 2, "auto", (), tokens_saved=20_000),
        called(2, 40_000, at=10.0),  # 60,000 with what was cleared
        LoggedCompaction("b", 3, "auto"),
        RecordedMessage(Message.of("user", "s" * 8_000, id=MessageId("s"), origin="summary"), 4, logged_only=True),
        RecordedMessage(Message.of("user", "n" * 4_000, id=MessageId("n")), 5),
        called(3, 10_000, at=20.0),  # 60,010 at the boundary, and 1,000 since; the summary would not be there
        called(4, 12_000, at=2_000.0),
    ]
    found = unmanaged_cost(
        Recording("claude-code", "made", tuple(steps), model="claude-sonnet-4-5"), ReplayOptions(window_tokens=63_000)
    )
    assert (found.calls, found.beyond_window) == (4, 1)
    assert found.cost.cache_read == 50_000 + 60_000
    assert found.cost.cache_write == 50_000 + 10_000 + 1_010 + 63_010
