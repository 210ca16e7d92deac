"""What an agent sees of the machine: files, search and commands, as the ports promise (LIB-1, SEC-6, SES-3)."""

# ruff: noqa: ASYNC240 - tests look at small files while nothing else runs

from __future__ import annotations

import os
import shutil
from pathlib import Path

import anyio
import pytest

from perdure.adapters.machine.shell import LocalShell
from perdure.adapters.machine.workspace import LocalFinder, LocalWorkspace, documents, surroundings
from perdure.ports.machine import MatchedLine, TextSearch

pytestmark = pytest.mark.contract


# --- files -----------------------------------------------------------------------------------------------------------


def test_a_path_is_told_where_it_really_leads(tmp_path: Path) -> None:
    async def body() -> None:
        folder, other = tmp_path / "p", tmp_path / "p-other"
        (folder / "sub").mkdir(parents=True)
        other.mkdir()
        (folder / "a").write_text("abc")
        (folder / "out").symlink_to(other)
        (folder / "back").symlink_to(folder / "a")
        (folder / "loop").symlink_to(folder / "loop")
        work = LocalWorkspace(folder)
        spot = await work.resolve("sub/../a")
        assert (spot.path, spot.kind, spot.is_inside, spot.size_bytes) == (f"{work.root}/a", "file", True, 3)
        assert (await work.resolve("a", cwd=f"{work.root}/sub")).path == f"{work.root}/sub/a"
        assert (await work.resolve("back")).path == f"{work.root}/a"
        for path in ("out/x", "../p-other", str(other), "~", "/"):
            assert not (await work.resolve(path)).is_inside, path
        assert (await work.resolve("none")).kind == "nothing" and (await work.resolve("a/b")).kind == "nothing"
        assert (await work.resolve("sub")).kind == "folder"
        assert (await work.resolve("loop")).kind == "other"
        for path in ("a\0b", "\ud800"):
            with pytest.raises(OSError, match="not a path"):
                await work.resolve(path)

    anyio.run(body)


def test_reading_and_writing_follow_no_link_that_was_put_there_since(tmp_path: Path) -> None:
    async def body() -> None:
        work = LocalWorkspace(tmp_path)
        secret = tmp_path / "secret"
        secret.mkdir()
        (secret / "f").write_text("secret")
        (tmp_path / "f").symlink_to(secret / "f")
        (tmp_path / "d").symlink_to(secret)
        for path in (f"{work.root}/f", f"{work.root}/d/f"):
            with pytest.raises(OSError):
                await work.read(path, limit_bytes=10)
            with pytest.raises(OSError):
                await work.write(path, b"mine")
        assert (secret / "f").read_text() == "secret"
        assert await work.read(f"{work.root}/secret/f", limit_bytes=3) == b"secr"  # one byte more says that it is cut
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(OSError, match="not a regular file"):
            await work.read(f"{work.root}/pipe", limit_bytes=10)

    anyio.run(body)


def test_a_failed_write_leaves_the_file_and_no_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        work = LocalWorkspace(tmp_path)
        (tmp_path / "a").write_text("old")

        def full(source: str, target: str) -> None:
            raise OSError(28, "no space left", target)

        monkeypatch.setattr(os, "rename", full)
        with pytest.raises(OSError, match="no space left"):
            await work.write(f"{work.root}/a", b"new")
        assert [p.name for p in tmp_path.iterdir()] == ["a"] and (tmp_path / "a").read_text() == "old"

    anyio.run(body)


def test_documents_stay_in_their_folder(tmp_path: Path) -> None:
    (tmp_path / "skills" / "one").mkdir(parents=True)
    (tmp_path / "skills" / "two").mkdir()
    (tmp_path / "skills" / "one" / "SKILL.md").write_text("one")
    (tmp_path / "private").write_text("private")
    (tmp_path / "skills" / "two" / "SKILL.md").symlink_to(tmp_path / "private")
    assert list(documents(tmp_path / "skills", "*/SKILL.md").values()) == ["one"]
    assert documents(tmp_path / "none", "*.md") == {}


def test_the_branch_is_read_without_running_git(tmp_path: Path) -> None:
    assert surroundings(tmp_path)["Git"] == "not a repository"
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/a/branch\n")
    assert surroundings(tmp_path)["Git branch"] == "a/branch"


# --- search ----------------------------------------------------------------------------------------------------------

RIPGREP = shutil.which("rg")


@pytest.fixture(params=["ours", "ripgrep"])
def finder(request: pytest.FixtureRequest) -> LocalFinder:
    if request.param == "ripgrep" and RIPGREP is None:
        pytest.skip("ripgrep is not installed here")
    return LocalFinder("" if request.param == "ours" else RIPGREP)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "t"
    for name, text in {
        "a.py": "one\nTwo (2)\nthree\n",
        "deep/b.py": "two\r\n",
        "deep/c.txt": "two",
        ".hidden/d.py": "two\n",
        "e.bin": "two\0",
    }.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    (folder / "link.py").symlink_to("/etc/passwd")
    return folder


def test_lines_are_found_with_what_stands_around_them(finder: LocalFinder, tree: Path) -> None:
    async def body() -> None:
        root = os.path.realpath(tree)

        async def found(pattern: str, path: str = "", **more: object) -> list[str]:
            wanted = TextSearch(pattern=pattern, path=f"{root}/{path}".rstrip("/"), **more)  # type: ignore[arg-type]
            lines = (await finder.lines(wanted, limit=50)).lines
            return [f"{line.path.removeprefix(root)}:{line.number}:{line.text}" for line in lines]

        assert await found("two") == ["/.hidden/d.py:1:two", "/deep/b.py:1:two", "/deep/c.txt:1:two"]
        assert len(await found("two", ignores_case=True)) == 4
        assert await found("t[wx]o", glob="*.py", path="deep") == ["/deep/b.py:1:two"]
        assert await found("Two", path="a.py", before=1, after=1) == ["/a.py:1:one", "/a.py:2:Two (2)", "/a.py:3:three"]
        assert await found("Two (2", path="a.py") == ["/a.py:2:Two (2)"]  # no pattern: as it is written
        assert await found("root") == []  # a link isn't followed
        cut = await finder.lines(TextSearch(pattern="t", path=root), limit=2)
        assert len(cut.lines) == 2 and cut.is_cut and isinstance(cut.lines[0], MatchedLine)

    anyio.run(body)


def test_a_pattern_is_never_slow(finder: LocalFinder, tmp_path: Path) -> None:
    """SEC-6."""
    (tmp_path / "a").write_text("a" * 30_000 + "\n")

    async def body() -> None:
        with anyio.fail_after(20):
            found = await finder.lines(TextSearch(pattern="(a+)+$b", path=str(tmp_path)), limit=5)
        assert not found.lines

    anyio.run(body)


RIPGREP_STUB = r"""#!/bin/sh
case "$*" in *"--regexp (x"*) exit 2 ;; esac
cat <<'END'
{"type":"begin","data":{"path":{"text":"./a.py"}}}
{"type":"context","data":{"path":{"text":"./a.py"},"lines":{"text":"one\n"},"line_number":1,"submatches":[]}}
{"type":"match","data":{"path":{"text":"./a.py"},"lines":{"text":"two\n"},"line_number":2,"submatches":[]}}
{"type":"match","data":{"path":{"bytes":"/w=="},"lines":{"text":"x"},"line_number":1,"submatches":[]}}
{"type":"summary","data":{"stats":{"matches":1}}}
END
"""


def test_what_ripgrep_says_is_read(tree: Path, tmp_path: Path) -> None:
    """Its documented JSON; the program itself takes part in the tests above where it is installed."""
    program = tmp_path / "rg"
    program.write_text(RIPGREP_STUB)
    program.chmod(0o755)

    async def body() -> None:
        root, finder = os.path.realpath(tree), LocalFinder(str(program))
        found = await finder.lines(TextSearch(pattern="t", path=root, before=1), limit=5)
        assert found.lines == (MatchedLine(f"{root}/a.py", 1, "one", False), MatchedLine(f"{root}/a.py", 2, "two"))
        assert (await finder.lines(TextSearch(pattern="t", path=root), limit=1)).is_cut
        literal = await finder.lines(TextSearch(pattern="(x", path=root), limit=5)  # it doesn't understand that
        assert not literal.lines and "as it is written" in literal.note

    anyio.run(body)


def test_files_are_found_newest_first_without_what_is_ignored(tree: Path) -> None:
    async def body() -> None:
        root, finder = os.path.realpath(tree), LocalFinder()
        for number, name in enumerate(("deep/b.py", "a.py", ".hidden/d.py")):
            os.utime(tree / name, (2_000_000_000 - number, 2_000_000_000 - number))
        found = await finder.files("**/*.py", root, limit=10)
        assert [p.removeprefix(root) for p in found.paths[:3]] == ["/deep/b.py", "/a.py", "/.hidden/d.py"]
        assert (await finder.files("*.py", root, limit=1)).is_cut
        process = await anyio.run_process(["git", "init", "-q", root])
        assert process.returncode == 0
        (tree / ".gitignore").write_text("deep/\n")
        found = await finder.files("**/*", root, limit=10)
        assert not any("/deep/" in path or "/.git/" in path for path in found.paths)

    anyio.run(body)


# --- commands --------------------------------------------------------------------------------------------------------


def test_a_command_writes_its_own_end(tmp_path: Path) -> None:
    """SES-3: so that it is known even when nobody waited for it."""

    async def body() -> None:
        shell, cwd = LocalShell(tmp_path / "commands"), os.path.realpath(tmp_path)
        command = await shell.start("c1", "echo out; cd /; exit 7", cwd=cwd)
        ended = await command.wait()
        assert (ended.code, ended.cwd) == (7, "/")
        assert await shell.read(command.output, offset=0, limit_bytes=100) == b"out\n"
        assert await shell.read(command.output, offset=-2, limit_bytes=100) == b"t\n"
        again = await shell.find("c1")
        assert again is not None and (await again.wait()).code == 7
        assert await shell.find("c2") is None
        assert (tmp_path / "commands").stat().st_mode & 0o777 == 0o700
        assert all(p.stat().st_mode & 0o077 == 0 for p in (tmp_path / "commands").glob("*.output"))
        await shell.discard(command.output)
        assert not list((tmp_path / "commands").iterdir())

    anyio.run(body)


@pytest.mark.parametrize("command", ["exit 3", "false; exec sh -c 'exit 3'", "trap - EXIT; exit 3", "(exit 3)"])
def test_exit_codes_come_through(tmp_path: Path, command: str) -> None:
    async def body() -> None:
        started = await LocalShell(tmp_path / "c").start("c", command, cwd=str(tmp_path))
        assert (await started.wait()).code == 3

    anyio.run(body)


def test_stopping_reaches_what_ignores_signals_and_what_was_left_behind(tmp_path: Path) -> None:
    async def body() -> None:
        shell = LocalShell(tmp_path / "c")
        started = await shell.start("c", "trap '' TERM; echo $$; (trap '' TERM; sleep 987660) & sleep 987660", cwd="/")
        with anyio.fail_after(10):
            while not started.size_bytes():  # noqa: ASYNC110 - a file that grows tells nobody
                await anyio.sleep(0.02)
        await started.stop()
        left = await anyio.run_process(["pgrep", "-f", "sleep 987660"], check=False)
        assert left.returncode == 1

    anyio.run(body)


def test_only_outputs_of_the_session_can_be_read_and_removed(tmp_path: Path) -> None:
    async def body() -> None:
        shell = LocalShell(tmp_path / "c")
        for path in ("/etc/passwd", f"{tmp_path}/c/../x.output", f"{tmp_path}/c/x"):
            with pytest.raises(OSError):
                await shell.read(path, offset=0, limit_bytes=1)
            with pytest.raises(OSError):
                await shell.discard(path)
        for name in ("", "../x", "a/b", ".hidden"):
            with pytest.raises(OSError):
                await shell.start(name, "true", cwd="/")

    anyio.run(body)
