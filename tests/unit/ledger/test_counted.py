"""CMP-5, findings P1 and P2: what counts as a name in a record, and what only was counted or wrapped."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.plugins import ClaudeCodeLog

from perdure import Message
from perdure.compaction.ledger.facts import counted_in, facts_in
from perdure.compaction.ledger.memory import LedgerMemory
from perdure.compaction.ledger.render import RecordSurroundings, memory_of_messages, render
from perdure.logs.claude_code import read

pytestmark = pytest.mark.unit
HEAD = "## Names and values that came up"


def printed(*outputs: str) -> LedgerMemory:
    """What is known of a session in which commands printed this."""
    messages = [Message.of("user", "Please look at the numbers of the harbour.")]
    for number, text in enumerate(outputs):
        use = {"type": "tool_use", "id": f"t{number}", "name": "Bash", "input": {"command": f"show {number}"}}
        result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": text}
        messages += [Message.of("assistant", [use]), Message.of("user", [result])]  # type: ignore[list-item]
    return memory_of_messages(messages)


def numbers(text: str) -> list[str]:
    """The numbers of three digits and more that stand in a text by themselves."""
    return re.findall(r"(?<![\w.])\d{3,}(?![\w.])", text)


def test_runs_are_no_names() -> None:
    """Finding P1: six outputs of `seq` filled the list with a thousand integers."""
    outputs = ["\n".join(map(str, range(start, start + 400))) for start in range(1_000, 7_000, 1_000)]
    memory = printed(*outputs, "the server listens on port 48123")
    assert numbers(" ".join(memory.facts)) == ["48123"]
    text = render(memory, 5_000, RecordSurroundings()).text
    assert len(numbers(text)) <= 2 * len(outputs), text  # a command's last line says how it ended


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(f"{n * 317 % 9973:8} src/part{n % 7}.py" for n in range(30)),  # wc -l
        "\n".join(f"id{n},{n * 7919 % 100_003},{n * 104_729 % 99_991}" for n in range(1, 30)),  # CSV
        "\n".join(f"| {n} | {n * 7919 % 100_003} | {n * 31}.250 |" for n in range(100, 130)),  # a table
        " ".join(map(str, range(1_000, 1_400))),
        str(list(range(1_000, 1_400))),
        "\n".join(f"Processed {n} of 5000 rows" for n in range(1_000, 5_000, 100)),
        "\n".join(f"-rw-r--r-- 1 root root {n * 7919 % 100_003:7} Nov 23 10:{n:02} notes" for n in range(10, 40)),
    ],
    ids=["wc", "csv", "table", "line", "list", "counter", "ls"],
)
def test_columns_tables_and_counters_are_no_names(text: str) -> None:
    """Finding P1: neither what `wc`, a query, a table nor a counter prints."""
    assert numbers(" ".join(printed(text).facts)) == []


def test_names_that_are_numbered_through_are_none() -> None:
    """Finding P1: `item_101` to `item_140`; a few of them, or others, are names."""
    text = "\n".join(f"loaded item_{n} well" for n in range(101, 141))
    assert not [one for one in printed(text).facts if "item_" in one]
    assert counted_in("loaded item_101 well\nloaded item_102 well\nloaded item_103 well\nloaded item_104 well") == set()
    errors = "\n".join(f"error E{n}: no such thing" for n in (1001, 2307, 4412, 5120, 7001, 8123, 8999, 9817, 9990))
    assert counted_in(errors) == set()


def test_numbers_that_say_something_are_values() -> None:
    """CMP-5: a value stands in a line of its own shape."""
    text = "listening on 48123\nprocess 31337 started by root\nexit status 143\nsee issue #26411 for why"
    assert counted_in(text) == set()
    assert {"48123", "31337", "143", "26411"} <= facts_in(text).keys()


def test_the_clients_own_tags_are_no_names(tmp_path: Path) -> None:
    """Finding P2: `command-name` and `local-command-caveat` wrap what a client says itself."""
    log = ClaudeCodeLog(tmp_path / "log.jsonl")
    log.user("<local-command-caveat>Caveat: The messages below are of local commands.</local-command-caveat>")
    log.user(
        "<command-name>/model</command-name>\n<command-message>model</command-message>\n<command-args></command-args>"
    )
    log.user("<local-command-stdout>Set model to harbour-kelp-4</local-command-stdout>")
    log.user("Build the tide_table module, please.")
    log.run(
        "cat tide_table.py", "def high_water(): ...\n<task-notification><task-id>b1x2</task-id></task-notification>"
    )
    (recording,) = read(log.path.read_bytes(), "log")
    text = render(memory_of_messages(recording.messages), 4_000, RecordSurroundings()).text
    names = text.partition(HEAD)[2]
    assert not [one for one in ("command-name", "local-command", "command-message", "task-id") if one in names]
    memory = memory_of_messages(recording.messages)
    assert "tide_table.py" in memory.facts and "command-name" not in memory.facts
