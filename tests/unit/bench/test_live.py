"""What is read and run again behind compactions, against as many calls before them (QLT-5)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.bench.talk import log_of

from perdure.cli import main
from perdure.lab.bench.rework import CallHistory, measure
from perdure.transcript.blocks import ToolUse, block_of

pytestmark = pytest.mark.unit


def use(name: str, **given: Any) -> ToolUse:
    block = block_of({"type": "tool_use", "id": "x", "name": name, "input": given})
    assert isinstance(block.value, ToolUse)
    return block.value


def call(number: int, name: str, **given: Any) -> list[tuple[str, Any]]:
    answer = {"type": "tool_result", "tool_use_id": f"c{number}", "content": "done"}
    return [
        ("assistant", [{"type": "tool_use", "id": f"c{number}", "name": name, "input": given}]),
        ("user", [answer]),
    ]


def log_with(tmp_path: Path, *, again: int, name: str = "one") -> Path:
    """Thirty files are read; behind the boundary `again` of them once more, then new ones, twenty in all."""
    said: list[tuple[str, Any]] = [("user", "read it all")]
    for number in range(30):
        said += call(number, "Read", file_path=f"/repo/app/f{number}.py")
    said.append(("boundary", "thirty files were read"))
    for number in range(20):
        path = f"/repo/app/f{number}.py" if number < again else f"/repo/app/g{number}.py"
        said += call(100 + number, "Read", file_path=path)
    return log_of(said, tmp_path / f"{name}.jsonl")


def test_reading_again_and_needlessly() -> None:
    """Another part is another thing to see; what was changed since has to be looked at again."""
    acts = CallHistory()
    read, part = use("Read", file_path="/a/b.py"), use("Read", file_path="/a/b.py", offset=40)
    edit, run = use("Edit", file_path="/a/b.py", old_string="x", new_string="y"), use("Bash", command="pytest -q tests")
    other = use("Read", file_path="/a/c.py")
    found = [
        acts.add(one) for one in (read, read, part, run, run, other, edit, read, run, other, use("Task", prompt="x"))
    ]
    told = [(act.kind, act.again, act.needless) for act in found]
    assert told == [
        ("file", False, False),
        ("file", True, True),
        ("file", False, False),
        ("command", False, False),
        ("command", True, True),
        ("file", False, False),
        (None, False, False),
        ("file", True, False),
        ("command", True, False),
        ("file", True, True),
        (None, False, False),
    ]


def test_behind_a_boundary_against_before_it(tmp_path: Path) -> None:
    """QLT-5: the matched rate is taken off, and sessions are drawn for the interval."""
    files = [log_with(tmp_path, again=again, name=f"s{again}") for again in (0, 10, 20)]
    report = measure(files)
    assert len(report.boundaries) == 3 and report.after.calls == report.before.calls == 60
    assert report.before.again_percent == 0 and report.after.again_percent == report.difference == 50
    assert report.low is not None and report.high is not None and 0 <= report.low < 50 < report.high <= 100
    assert [one.after.files_again for one in report.boundaries] == [0, 10, 20]


def test_windows_end_at_the_next_boundary(tmp_path: Path) -> None:
    said: list[tuple[str, Any]] = [("user", "go")]
    for number in range(8):
        said += call(number, "Bash", command=f"make target-{number}")
    said += [("boundary", "one"), *call(20, "Bash", command="make target-1"), ("boundary", "two")]
    for number in range(8):
        said += call(30 + number, "Bash", command=f"make target-{number}")
    report = measure([log_of(said, tmp_path / "one.jsonl")])
    assert report.boundaries == () and report.left_out == 2, "one call between them tells nothing"
    near = measure([tmp_path / "one.jsonl"], calls=1)
    assert [(one.before.calls, one.after.calls, one.after.commands_again) for one in near.boundaries] == [(1, 1, 1)] * 2


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log_with(tmp_path, again=15)
    assert main(["bench", "live", str(tmp_path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["difference"] == 75 and told["after"]["needless_percent"] == 75 and len(told["boundaries"]) == 1
    assert main(["bench", "live", str(tmp_path)]) == 0
    assert "+75.0 points behind compactions" in capsys.readouterr().out
    assert main(["bench", "live", str(log_of([("user", "hi")], tmp_path / "two.jsonl"))]) == 0
    assert "no compaction" in capsys.readouterr().out
    (tmp_path / "bad.jsonl").write_text("nothing")
    assert main(["bench", "live", str(tmp_path / "bad.jsonl")]) == 1
    (tmp_path / "empty").mkdir()
    assert main(["bench", "live", str(tmp_path / "empty")]) == 3
