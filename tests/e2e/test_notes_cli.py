"""SM-10, SM-6: `perdure notes show|edit|path`."""

from __future__ import annotations

import json
import stat
import sys
import time
from pathlib import Path

import anyio
import pytest
from tests.commands import Done, command

from perdure.context.cost import ForkSpending, spending_record
from perdure.memory.notes import parse, template
from perdure.transcript.messages import Usage
from perdure.transcript.records import Noted
from perdure.wiring import create_session, open_session

pytestmark = pytest.mark.e2e


@pytest.fixture
def home(tmp_path: Path) -> Path:
    async def make() -> None:
        session = await create_session(tmp_path, project=tmp_path, session="s1")
        await session.close()

    anyio.run(make)
    return tmp_path


def perdure(home: Path, *words: str, editor: str | None = None) -> Done:
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(home), "PERDURE_HOME": str(home)}
    if editor is not None:
        environ["EDITOR"] = editor
    return command("notes", *words, cwd=home, env=environ)


def test_show_edit_and_path(home: Path) -> None:
    path = Path(perdure(home, "path", "s1").stdout.strip())
    assert path.parts[-2:] == ("session-memory", "summary.md") and not path.exists()
    none = perdure(home, "show", "s1")
    assert none.returncode == 0 and "no notes yet" in none.stderr and not none.stdout
    assert "no editor" in perdure(home, "edit", "s1").stderr
    assert path.read_text() == template() and stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "say nothing yet" in perdure(home, "show", "s1").stderr

    done = perdure(
        home, "edit", "s1", editor=f"{sys.executable} -c \"open(__import__('sys').argv[1],'a').write('- x')\""
    )
    assert done.returncode == 0, done.stderr
    assert perdure(home, "show", "s1").stdout.endswith("- x\n")
    told = json.loads(perdure(home, "show", "s1", "--json").stdout)
    assert told["state"] == "written" and told["path"] == str(path) and told["sections"][-1]["text"] == "- x"
    assert [one["title"] for one in told["sections"]] == [one.title for one in parse(template()).sections]
    assert "Worklog" in perdure(home, "show", "s1", "--sizes").stdout


def test_a_prompt_with_an_unknown_variable_is_said(home: Path) -> None:
    """SM-1: an error that names it, where a person looks."""
    config = home / "session-memory" / "config"
    config.mkdir(parents=True)
    (config / "prompt.md").write_text("{{notesPath}} {{transcript}}")
    told = perdure(home, "show", "s1")
    assert "prompt.md: unknown variable {{transcript}}; known are {{currentNotes}}" in told.stderr
    (config / "prompt.md").write_text("{{notesPath}}")
    assert "prompt.md" not in perdure(home, "show", "s1").stderr


def test_spend(home: Path) -> None:
    """SM-9: from the journal, so that it outlives the process; null where a price isn't known."""
    assert "nothing was spent" in perdure(home, "spend", "s1").stdout

    async def spends() -> None:
        session = await open_session(home, "s1")
        for model, usd, ended in (("m", 0.25, ""), ("m", 0.5, "no_edits"), ("free", None, "")):
            usage = Usage(1_000, 200, 50_000, 3_000)
            spent = ForkSpending(job="notes", model=model, at=time.time(), turns=2, usage=usage, usd=usd, ended=ended)
            await session.record(spending_record(spent))
        await session.record(Noted(kind="spent", data={"job": 3}))
        await session.close()

    anyio.run(spends)
    told = json.loads(perdure(home, "spend", "s1", "--json").stdout)
    assert told["runs"] == 3 and told["usd"] is None and told["last_hour"] == {"runs": 3, "tokens": 162_600}
    [one, other] = told["jobs"]
    assert (one["model"], one["runs"], one["failed"], one["turns"], one["usd"]) == ("m", 2, 1, 4, 0.75)
    assert (one["cache_read"], one["cache_write"], one["input"], one["output"]) == (100_000, 6_000, 2_000, 400)
    assert other["usd"] is None
    shown = perdure(home, "spend", "s1").stdout
    assert "no_edits" not in shown and "3 of 60 runs" in shown and "0.75" in shown
    assert perdure(home, "spend", "nobody").returncode == 3


def test_what_an_editor_broke_is_said(home: Path) -> None:
    """SM-6."""
    wipe = f"{sys.executable} -c \"open(__import__('sys').argv[1],'w')\""
    done = perdure(home, "edit", "s1", editor=wipe)
    assert done.returncode == 1 and "sets it aside" in done.stderr
    less = f"{sys.executable} -c \"open(__import__('sys').argv[1],'w').write('# Worklog\\\\n- y')\""
    done = perdure(home, "edit", "s1", editor=less)
    assert done.returncode == 0 and "will come back: Session Title" in done.stderr
    assert perdure(home, "show", "nobody").returncode == 3
