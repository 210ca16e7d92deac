"""`perdure instructions`: what loads, why, what doesn't, approvals (INS-3, INS-5, CLI-5)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.commands import Done, command

pytestmark = pytest.mark.e2e


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = (tmp_path / "project").resolve()
    (folder / ".git").mkdir(parents=True)
    (folder / "CLAUDE.md").write_text("Use tabs. See @style.md and @../secret.md.\n")
    (folder / "style.md").write_text("Short lines.\n")
    (folder / "src").mkdir()
    (folder / "src" / "CLAUDE.md").write_text("Typed.\n")
    (tmp_path / "secret.md").write_text("outside\n")
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / "CLAUDE.md").write_text("Be brief.\n")
    return folder


def perdure(project: Path, *words: str, **environ: str) -> Done:
    home = project.parent
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(home), "PERDURE_HOME": str(home / "kept"), **environ}
    return command("instructions", *words, cwd=project, env=environ)


def data(project: Path, *words: str, **environ: str) -> dict[str, Any]:
    done = perdure(project, *words, "--json", **environ)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_what_loads_and_why(project: Path) -> None:
    told = data(project, "src/a.py")
    files = {Path(one["path"]).relative_to(project.parent).as_posix(): one for one in told["files"]}
    assert list(files) == [".claude/CLAUDE.md", "project/CLAUDE.md", "project/style.md", "project/src/CLAUDE.md"]
    assert [one["scope"] for one in files.values()] == ["user", "project", "project", "project"]
    assert files["project/style.md"]["imported_by"] == str(project / "CLAUDE.md")
    assert files["project/src/CLAUDE.md"]["trigger"] == str(project / "src" / "a.py")
    assert [one["code"] for one in told["skipped"]] == ["not_approved"]
    assert told["tokens"] == sum(one["tokens"] for one in told["files"]) and told["project"] == str(project)
    assert told["enabled"] is False and told["budget_tokens"] == 40_000
    table = perdure(project).stdout
    assert "imported by" in table and "not approved" in table and "3 files" in table and "--approve" in table
    assert data(project, "--cwd", str(project / "src"))["files"][-1]["path"].endswith("src/CLAUDE.md")


def test_approve_and_revoke(project: Path) -> None:
    done = perdure(project, "--approve", "../secret.md")
    assert done.returncode == 0 and "may be imported" in done.stdout
    assert str(project.parent / "secret.md") in [one["path"] for one in data(project)["files"]]
    assert data(project, "--revoke", str(project.parent / "secret.md"))["revoked"]
    assert [one["code"] for one in data(project)["skipped"]] == ["not_approved"]
    done = perdure(project, "--approve", "nothing.md")
    assert done.returncode == 2 and "no such file" in done.stderr and "Traceback" not in done.stderr


def test_excludes_of_all_scopes_together(project: Path) -> None:
    """INS-5, SEC-8: globs merge over the user's scopes, and a project leaves nothing out; a small window, less room."""
    own = project.parent / "kept" / "config.toml"
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_text('instructions_excludes = ["**/style.md"]\n')
    (project / ".perdure").mkdir()
    (project / ".perdure" / "config.toml").write_text('instructions_excludes = ["**"]\n')
    told = data(project, "--set", "instructions_excludes=~/.claude/*")
    assert [Path(one["path"]).name for one in told["files"]] == ["CLAUDE.md"]
    assert sorted(one["code"] for one in told["skipped"]) == ["excluded", "excluded", "not_approved"]
    (project / "CLAUDE.md").write_text("# A\n" + "word " * 9_000 + "\n# B\nend")
    small = data(project, "--set", "window_tokens=16k")
    assert small["budget_tokens"] < 5_000 and small["files"][-1]["sent_tokens"] < small["files"][-1]["tokens"]
    assert "are sent" in perdure(project, "--set", "window_tokens=16k").stdout


def test_a_folder_that_is_not_there(project: Path) -> None:
    done = perdure(project, "--cwd", "/nowhere/at/all")
    assert done.returncode == 2 and "no such folder" in done.stderr
