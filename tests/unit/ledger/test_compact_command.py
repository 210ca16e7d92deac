"""CMP-5, QLT-1: `perdure compact FILE --at LINE` prints what survives, by the contract that others measure with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perdure.cli.app import run

pytestmark = pytest.mark.unit


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A list of messages, one on each line, as OpenAI clients write them."""
    said = [{"role": "user", "content": "Rename parse_date"}]
    for number in range(1, 9):
        said += [
            {"role": "assistant", "content": f"I'll look at module_{number}.py because it calls parse_date."},
            {"role": "user", "content": f"Then see other_{number}.py"},
        ]
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in said))
    return path


def test_the_json_contract(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compact", str(log), "--at", "6", "--strategy", "ledger", "--budget", "1k", "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert set(done) == {"text", "tokens", "kept", "dropped"}
    assert 0 < done["tokens"] <= 1_000 and isinstance(done["kept"], list) and isinstance(done["dropped"], dict)
    assert "Rename parse_date" in done["text"] and "module_2.py" in done["text"]
    assert "module_3.py" not in done["text"], "line 6 is where it is cut"


def test_a_tail_stands_outside_the_budget(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compact", str(log), "--at", "18", "--budget", "300", "--tail", "200", "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert done["tokens"] <= 500 and done["text"].rstrip().endswith("Then see other_8.py")


def test_for_people(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compact", str(log), "--at", "18", "--budget", "200"]) == 0
    assert "tokens; kept: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["--at", "1"], 3), (["--at", "9", "--strategy", "magic"], 2), (["--at", "9", "--budget", "lots"], 2)],
)
def test_what_cannot_be_measured(log: Path, arguments: list[str], code: int) -> None:
    assert run(["compact", str(log), *arguments]) == code


def test_what_leaves_nothing_to_see_is_refused(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """CLI-6: a budget without room for a record, and a line that the log doesn't have."""
    count = len(log.read_text().splitlines())
    assert run(["compact", str(log), "--at", "9", "--budget", "199"]) == 2
    assert capsys.readouterr().err == "perdure: --budget 199: a record needs at least 200 tokens\n"
    assert run(["compact", str(log), "--at", str(count + 2)]) == 2
    said = f"perdure: --at {count + 2}: {log} has {count} lines; --at {count + 1} takes all of them\n"
    assert capsys.readouterr().err == said
    assert run(["compact", str(log), "--at", str(count + 1)]) == 0
