"""OPS-1: what `make release-check` does with each installation, done with this one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tools.release_check import ROOT, a_log

pytestmark = pytest.mark.e2e


@pytest.mark.nightly
def test_the_smoke_test_passes_here_and_can_fail(tmp_path: Path) -> None:
    """OPS-1: with a version that isn't ours, that one step fails, and every other one is passed."""
    log, example, empty = tmp_path / "log.jsonl", tmp_path / "example.py", tmp_path / "empty"
    log.write_text(a_log())
    example.write_text("import perdure\nprint('tokens', perdure.__version__)\n")
    empty.mkdir()
    words = ["--example", example, "--log", log, "--version", "9.9.9", "--extras"]
    command = [sys.executable, "-I", ROOT / "tools" / "smoke.py", *words]
    done = subprocess.run(command, cwd=empty, capture_output=True, text=True, timeout=110, check=False)
    steps = {one["step"]: one for one in map(json.loads, done.stdout.splitlines())}
    assert {"verdict", "import", "search", "serve", "mcp", "doctor"} <= steps.keys(), done.stderr
    failed = [name for name, one in steps.items() if not one["ok"]]
    assert failed == ["version"] and done.returncode == 1, steps
