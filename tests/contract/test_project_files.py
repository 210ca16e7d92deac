"""RST-1: the `Files` port on a disk: text of regular files of a sensible size, and a reason for everything else."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import anyio
import pytest

from perdure.adapters.machine.workspace import ProjectFiles
from perdure.compaction.restore.registry import CurrentFile

pytestmark = pytest.mark.contract


def read(project: Path, *paths: str, limit: int = 1_000) -> list[CurrentFile]:
    async def body() -> list[CurrentFile]:
        return list(await ProjectFiles(project).read(paths, limit_bytes=limit))

    return anyio.run(body)


def test_texts_relative_and_absolute_in_the_order_asked(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes("é = 1\r\n".encode())
    (tmp_path / "b.py").write_text("")
    found = read(tmp_path, str(tmp_path / "b.py"), "a.py")
    assert found == [CurrentFile(str(tmp_path / "b.py"), ""), CurrentFile("a.py", "é = 1\n")]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("missing", "no longer on disk"),
        ("a.py/below", "no longer on disk"),
        ("folder", "not a regular file"),
        ("link", "a symbolic link now"),
        ("big", "too large (2,000 bytes)"),
        ("binary", "not a text file"),
        ("latin", "not a text file"),
        ("nul\0", "not a path"),
    ],
)
def test_why_there_is_no_text(tmp_path: Path, name: str, why: str) -> None:
    (tmp_path / "a.py").write_text("x")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a.py")
    (tmp_path / "big").write_bytes(b"x" * 2_000)
    (tmp_path / "binary").write_bytes(b"a\0b")
    (tmp_path / "latin").write_bytes(b"\xe9")
    assert read(tmp_path, name) == [CurrentFile(name, None, why)]


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pipes in folders")
def test_a_pipe_does_not_make_it_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert read(tmp_path, "pipe") == [CurrentFile("pipe", None, "not a regular file")]


def test_nothing_asked_nothing_read(tmp_path: Path) -> None:
    assert read(tmp_path) == []
