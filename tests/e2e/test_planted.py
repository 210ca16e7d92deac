"""SEC-9: what runs without a question can't run what a repository or an edit planted. With the real git and bash."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.agents import Bench, bench
from tests.tiers import NIGHTLY

from perdure.agent.permissions import PermissionRules

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.anyio,
    pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed here"),
]
# What is allowed, and the mode: in CI each of them with one of the others.
ALLOWED = PermissionRules.of(allow=["Bash(git status:*)", "Bash(git log:*)", "Bash(git show:*)"])
EACH = [
    (rules, mode)
    for number, rules in enumerate((None, ALLOWED))
    for place, mode in enumerate(("default", "accept_edits", "plan"))
    if NIGHTLY or number == place % 2
]
LOOKS = ("git status", "git status -s", "git log --stat", "git branch -vv", "git rev-parse HEAD")


def git(folder: Path, *words: str) -> None:
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    named = ["-c", "user.name=x", "-c", "user.email=x@y", "-c", "protocol.file.allow=always"]
    subprocess.run(["git", *named, *words], cwd=folder, env=environment, check=True, capture_output=True)


def repository(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q", "-b", "main")
    (folder / "a.txt").write_text("one\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    return folder


def add(folder: Path, text: str) -> None:
    with open(folder / ".git" / "config", "a") as file:
        file.write(text)


def _filters(project: Path, evil: Path) -> None:
    add(project, f'[filter "x"]\n\tclean = {evil}\n')
    (project / ".gitattributes").write_text("* filter=x\n")
    (project / "a.txt").write_text("two\n")


def _info_filters(project: Path, evil: Path) -> None:
    add(project, f'[filter "x"]\n\tprocess = {evil}\n')
    (project / ".git" / "info").mkdir(exist_ok=True)
    (project / ".git" / "info" / "attributes").write_text("* filter=x\n")
    (project / "a.txt").write_text("two\n")


def _included(project: Path, evil: Path) -> None:
    (project / "more").write_text(f"[core]\n\tfsmonitor = {evil}\n")
    add(project, "[include]\n\tpath = ../more\n")


def _signatures(project: Path, evil: Path) -> None:
    add(project, f"[log]\n\tshowSignature = true\n[gpg]\n\tprogram = {evil}\n")
    body = subprocess.run(["git", "cat-file", "commit", "HEAD"], cwd=project, capture_output=True, check=True).stdout
    head, _, rest = body.partition(b"\n\n")
    signed = head + b"\ngpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----\n\n" + rest
    made = subprocess.run(
        ["git", "hash-object", "-t", "commit", "-w", "--stdin"],
        cwd=project,
        input=signed,
        capture_output=True,
        check=True,
    )
    git(project, "update-ref", "refs/heads/main", made.stdout.decode().strip())


def _index_hook(project: Path, evil: Path) -> None:
    hook = project / ".git" / "hooks" / "post-index-change"
    hook.parent.mkdir(exist_ok=True)
    shutil.copy(evil, hook)
    os.utime(project / "a.txt", (1, 1))


def _hooks_path(project: Path, evil: Path) -> None:
    folder = project / "tools"
    folder.mkdir()
    shutil.copy(evil, folder / "post-index-change")
    add(project, "[core]\n\thooksPath = tools\n")
    os.utime(project / "a.txt", (1, 1))


def _submodule(project: Path, evil: Path) -> None:
    inner = repository(project.parent / "inner")
    git(project, "submodule", "add", "-q", str(inner), "sub")
    git(project, "commit", "-qm", "sub")
    config = project / ".git" / "modules" / "sub" / "config"
    config.write_text(config.read_text() + f"[core]\n\tfsmonitor = {evil}\n")


def _embedded(project: Path, evil: Path) -> None:
    inner = repository(project / "inner")
    git(project, "add", "inner")
    git(project, "commit", "-qm", "inner")
    add(inner, f"[core]\n\tfsmonitor = {evil}\n")


def _ancestor(project: Path, evil: Path) -> None:
    shutil.rmtree(project / ".git")
    repository(project.parent)
    add(project.parent, f"[core]\n\tfsmonitor = {evil}\n[diff]\n\texternal = {evil}\n")


def _pointed(project: Path, evil: Path) -> None:
    shutil.move(project / ".git", project / "data")
    (project / ".git").write_text("gitdir: data\n")
    with open(project / "data" / "config", "a") as file:
        file.write(f"[core]\n\tfsmonitor = {evil}\n[diff]\n\texternal = {evil}\n")


def _bare(project: Path, evil: Path) -> None:
    shutil.rmtree(project / ".git")
    for name, text in {"HEAD": "ref: refs/heads/main\n", "objects/x": "", "refs/x": ""}.items():
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text(text)
    (project / "config").write_text(
        f"[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = .\n\tfsmonitor = {evil}\n"
    )


def _program(project: Path, evil: Path) -> None:
    """A program of the project's on the search path, under the name of a harmless one."""
    folder = project / "node_modules" / ".bin"
    folder.mkdir(parents=True)
    shutil.copy(evil, folder / "git")
    shutil.copy(evil, folder / "ls")


def _plain(text: str) -> Callable[[Path, Path], None]:
    def plant(project: Path, evil: Path) -> None:
        add(project, text.replace("EVIL", str(evil)))

    return plant


PLANTED: dict[str, Callable[[Path, Path], None]] = {
    "fsmonitor": _plain("[core]\n\tfsmonitor = EVIL\n"),
    "fsmonitor in odd writing": _plain('[CORE]\n\tFsMonitor = "EVIL"\n'),
    "fsmonitor behind its section": _plain("[core] fsmonitor = EVIL\n"),
    "fsmonitor over two lines": _plain(
        "[core]\n\tfsmon\\\nitor = EVIL\n\tfsmonitor = EV\\\nIL\n[core]\n\tfsmonitor = EVIL\n"
    ),
    "pager": _plain("[core]\n\tpager = EVIL\n[pager]\n\tstatus = EVIL\n\tlog = EVIL\n\tbranch = EVIL\n"),
    "external diff": _plain("[diff]\n\texternal = EVIL\n"),
    "alias": _plain("[alias]\n\tstatus = !EVIL\n\tlog = !EVIL\n"),
    "work tree": _plain("[core]\n\tworktree = ../..\n\tfsmonitor = EVIL\n"),
    "partial clone": _plain(
        "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tpartialClone = o\n"
        '[remote "o"]\n\turl = ssh://x/y\n\tpromisor = true\n[core]\n\tsshCommand = EVIL\n'
    ),
    "filters": _filters,
    "filters of its own attributes": _info_filters,
    "included": _included,
    "signatures": _signatures,
    "index hook": _index_hook,
    "hooks path": _hooks_path,
    "submodule": _submodule,
    "embedded repository": _embedded,
    "repository above": _ancestor,
    "repository pointed to": _pointed,
    "bare repository": _bare,
    "program on the path": _program,
}


@pytest.fixture
def evil(tmp_path: Path) -> Path:
    """A program that leaves a mark when it is run."""
    program = tmp_path / "evil"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\nexit 1\n")
    program.chmod(0o755)
    return program


@pytest.mark.quick(8)
@pytest.mark.parametrize("name", PLANTED)
async def test_looking_runs_nothing_that_was_planted(
    name: str, tmp_path: Path, evil: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SEC-9: each way that git has to run what a repository names; nobody is there to be asked."""
    project = repository(tmp_path / "outer" / "project")
    PLANTED[name](project, evil)
    monkeypatch.setenv("PATH", f"{project}/node_modules/.bin:{os.environ['PATH']}")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    for number, (rules, mode) in enumerate(EACH):
        b = await bench(project, mode=mode, rules=rules, is_alone=True, settings={"checkpoints": False})
        looks = (*LOOKS, "ls", "git show HEAD", "git status -v")
        for command in looks if NIGHTLY else looks[number % 2 :: 2]:  # in CI every other one under each rule
            await b.call("Bash", command=command)
        await b.call("Glob", pattern="**/*")
        await b.call("Grep", pattern="x")
        await b.agent.close()
        assert not (tmp_path / "ran").exists(), (name, mode, rules)


@pytest.mark.quick(5)
@pytest.mark.parametrize(
    "name",
    [
        "fsmonitor", "fsmonitor in odd writing", "filters", "included", "signatures", "index hook", "hooks path",
        "submodule", "embedded repository", "repository above", "alias", "repository pointed to", "bare repository",
        "program on the path",
    ],
)  # fmt: skip
def test_what_was_planted_would_run(name: str, tmp_path: Path, evil: Path) -> None:
    """The plants are real: git runs them when nothing is in the way (but an alias can't stand for its own commands)."""
    project = repository(tmp_path / "outer" / "project")
    PLANTED[name](project, evil)
    environment = {
        **os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "PATH": f"{project}/node_modules/.bin:{os.environ['PATH']}",
    }  # fmt: skip
    for command in LOOKS:
        subprocess.run(["bash", "-c", command], cwd=project, env=environment, capture_output=True, check=False)
    assert (tmp_path / "ran").exists() is (name != "alias")


async def test_an_edit_can_not_plant_a_repository(tmp_path: Path, evil: Path) -> None:
    """SEC-9: a bare repository is four files with ordinary names."""
    project = tmp_path / "project"
    b = await bench(project, mode="accept_edits", is_alone=True, settings={"checkpoints": False})
    text = f"[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = .\n\tfsmonitor = {evil}\n"
    for name, content in {"HEAD": "ref: refs/heads/m\n", "config": text, "objects/x": "", "refs/x": ""}.items():
        await b.call("Write", file_path=str(project / name), content=content)
    said, is_error = await b.call("Bash", command="git status")
    assert not (project / "HEAD").exists() and (project / "config").exists()
    (project / "HEAD").write_text("ref: refs/heads/m\n")  # by another way
    said, is_error = await b.call("Bash", command="git status")
    assert is_error and "looks like a repository" in said
    b.agent.mode = "bypass"
    await b.call("Bash", command="git status")  # asked or not: git takes none that isn't named
    assert not (tmp_path / "ran").exists()
    await b.agent.close()


async def test_in_a_plain_repository_looking_needs_no_question(tmp_path: Path) -> None:
    project = repository(tmp_path / "project")
    git(project, "remote", "add", "origin", "https://example.org/x.git")
    git(project, "config", "branch.main.remote", "origin")
    b: Bench = await bench(project, is_alone=True, settings={"checkpoints": False})
    for command in LOOKS:
        said, is_error = await b.call("Bash", command=command)
        assert not is_error, (command, said)
    work = tmp_path / "work"
    git(project, "worktree", "add", "-q", str(work))
    b = await bench(work, is_alone=True, settings={"checkpoints": False})
    said, is_error = await b.call("Bash", command="git status")
    assert not is_error and "working tree clean" in said
    await b.agent.close()
