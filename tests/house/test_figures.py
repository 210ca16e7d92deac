"""The script behind `make house` runs and prints figures (issue H)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.house

SCRIPT = Path(__file__).parents[2] / "bench" / "house.py"


def printed(*arguments: str) -> str:
    done = subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_kind_of_work_is_measured_and_compared(tmp_path: Path) -> None:
    before: dict[str, Any] = json.loads(printed("--json"))
    assert before["figures"]["source files"] > 0 < before["figures"]["code lines"]
    for work, counts in before["work"].items():
        entered: dict[str, list[str]] = before["entered"][work]
        assert counts["files"] == len(entered) > 5, work
        assert counts["functions"] == sum(map(len, entered.values())), work
        assert not any(path.startswith("testing/") for path in entered), work
    assert any(path.startswith("gateway/") for path in before["entered"]["gateway"])
    assert any(path.startswith("cli/") for path in before["entered"]["run"])

    before["work"]["turn"]["files"] = 987
    file = tmp_path / "before.json"
    file.write_text(json.dumps(before))
    rows = printed("--compare", str(file), "--names").splitlines()
    (turn,) = (row.split() for row in rows if row.startswith("turn, files"))
    assert turn[2] == "987" and turn[-1] == "20" and 5 < int(turn[3]) < 987
    assert f"turn: {turn[3]} files" in rows
