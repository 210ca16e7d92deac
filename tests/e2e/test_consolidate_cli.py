"""MEM-11, CLI-5: `perdure memory consolidate`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.commands import Done, command

pytestmark = pytest.mark.e2e
NOTE = "---\nname: pnpm\ndescription: pnpm\ntype: feedback\n---\n\nUse pnpm instead of npm here.\n"


def perdure(*words: str, home: Path) -> Done:
    environ = {k: v for k, v in os.environ.items() if not k.endswith("_API_KEY")} | {"PERDURE_HOME": str(home)}
    return command("memory", "consolidate", *words, cwd=home, env=environ)


def test_consolidate(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "a.md").write_text(NOTE)
    (folder / "b.md").write_text(NOTE)
    shown = perdure("--dir", str(folder), "--dry-run", home=tmp_path)
    assert shown.returncode == 0 and "nothing was written" in shown.stdout and (folder / "b.md").exists()
    assert not (folder / ".perdure").exists()
    done = json.loads(perdure("--dir", str(folder), "--json", home=tmp_path).stdout)
    assert (done["outcome"], done["merged"], done["model"]) == ("written", {"b.md": "a.md"}, "offline")
    assert (done["removed"], done["changed"]) == (["b.md"], ["MEMORY.md"])  # nothing of b.md was missing in a.md
    assert done["diff"].startswith("--- ") and done["change"]
    assert sorted(path.name for path in folder.glob("*.md")) == ["MEMORY.md", "a.md"]
    again = perdure("--dir", str(folder), home=tmp_path)
    assert again.returncode == 0 and again.stdout == "nothing to do\n"


def test_bad_input(tmp_path: Path) -> None:
    gone = perdure("--dir", str(tmp_path / "gone"), home=tmp_path)
    assert gone.returncode != 0 and "no such directory" in gone.stderr and "Traceback" not in gone.stderr
    assert perdure("--json", home=tmp_path).returncode == 0
