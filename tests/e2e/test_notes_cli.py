"""SM-10, SM-6: `perdure notes show|edit|path`."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path

import anyio
import pytest
from tests.commands import Done, command

from perdure.memory.notes import parse, template
from perdure.wiring import create_session

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


def test_what_an_editor_broke_is_said(home: Path) -> None:
    """SM-6."""
    wipe = f"{sys.executable} -c \"open(__import__('sys').argv[1],'w')\""
    done = perdure(home, "edit", "s1", editor=wipe)
    assert done.returncode == 1 and "sets it aside" in done.stderr
    less = f"{sys.executable} -c \"open(__import__('sys').argv[1],'w').write('# Worklog\\\\n- y')\""
    done = perdure(home, "edit", "s1", editor=less)
    assert done.returncode == 0 and "will come back: Session Title" in done.stderr
    assert perdure(home, "show", "nobody").returncode == 3
