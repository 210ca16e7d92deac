"""MEM-1, MEM-12: a directory on disk: scans, the index that stays and the one in a file, worktrees of a repository."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import anyio
import pytest

from perdure.adapters.machine.folder_calls import OsCalls
from perdure.adapters.machine.repositories import memory_roots, project_root
from perdure.adapters.memory.directory import FileMemories, MemoryDirectory, cache_of
from perdure.memory.retrieval import MemoryQuery
from perdure.ports.memory import MemoryIndex

pytestmark = pytest.mark.unit


def write(folder: Path, file: str, about: str, body: str = "Body.") -> Path:
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"---\nname: {about}\ndescription: {about}\ntype: project\n---\n{body}\n")
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    home = tmp_path / "memory"
    write(home, "project_deploy.md", "Deploys on Friday")
    write(home, "team/project_review.md", "Reviews need two people")
    write(home, ".hidden/project_x.md", "Deploys in secret")
    (home / "MEMORY.md").write_text("# Memory\n- [Deploys](project_deploy.md) — the pelican rule\n")
    (home / "notes.txt").write_text("deploys")
    return home


def found(directory: MemoryDirectory, query: str, *, is_sure: bool = False) -> list[str]:
    return [one.card.file for one in directory.ask(MemoryQuery(query=query, floor=0.05), is_sure=is_sure)]


def edit_in_place(folder: Path) -> None:
    """Change a memory so that no folder tells."""
    before = folder.stat().st_mtime_ns
    path = folder / "project_deploy.md"
    path.write_text(path.read_text().replace("Friday", "Sunday mornings"))
    os.utime(folder, ns=(before, before))


def everything(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {str(p): (p.stat().st_mtime_ns, p.read_bytes()) for p in folder.rglob("*") if p.is_file()}


def test_memories_are_found_in_the_directory_and_its_folders_and_nothing_else(folder: Path) -> None:
    directory = MemoryDirectory(folder)
    assert found(directory, "when are deploys?") == ["project_deploy.md"]
    assert found(directory, "who reviews?") == ["team/project_review.md"]
    assert set(directory.cards) == {"project_deploy.md", "team/project_review.md"}


def test_what_the_index_says_of_a_memory_finds_it(folder: Path) -> None:
    assert found(MemoryDirectory(folder), "what is the pelican rule?") == ["project_deploy.md"]


def test_reading_writes_nothing_into_the_directory(folder: Path, tmp_path: Path) -> None:
    before = everything(folder)
    directory = MemoryDirectory(folder, cache=cache_of(tmp_path / "home", folder))
    directory.rescan()
    directory.read("project_deploy.md")
    assert everything(folder) == before
    assert sorted(p.name for p in folder.iterdir()) == [
        ".hidden",
        "MEMORY.md",
        "notes.txt",
        "project_deploy.md",
        "team",
    ]


def test_files_that_come_and_go_are_seen_by_the_times_of_folders(folder: Path) -> None:
    directory = MemoryDirectory(folder)
    assert found(directory, "zebra crossing") == []
    write(folder, "project_zebra.md", "Zebra crossing")
    os.utime(folder, ns=(1, 1))  # another time than it had, however coarse the clock of the disk is
    assert found(directory, "zebra crossing") == ["project_zebra.md"]
    (folder / "project_zebra.md").unlink()
    os.utime(folder, ns=(2, 2))
    assert found(directory, "zebra crossing") == []


def test_edits_in_place_are_found_by_a_rescan(folder: Path) -> None:
    directory = MemoryDirectory(folder)
    directory.rescan()
    edit_in_place(folder)
    assert found(directory, "sunday mornings") == []  # no folder tells
    assert found(directory, "sunday mornings", is_sure=True) == ["project_deploy.md"]
    assert directory.rescan() == 0


def test_the_cache_file_brings_the_index_back_without_reading_the_files(folder: Path, tmp_path: Path) -> None:
    cache = cache_of(tmp_path / "home", folder)
    MemoryDirectory(folder, cache=cache).rescan()
    assert cache.stat().st_mode & 0o777 == 0o600
    again = MemoryDirectory(folder, cache=cache)
    assert again.rescan() == 0  # nothing had to be read
    assert found(again, "when are deploys?") == ["project_deploy.md"]


@pytest.mark.parametrize("damage", [b"", b"\x00" * 99, None])
def test_a_damaged_cache_file_is_made_anew(folder: Path, tmp_path: Path, damage: bytes | None) -> None:
    cache = cache_of(tmp_path / "home", folder)
    MemoryDirectory(folder, cache=cache).rescan()
    whole = cache.read_bytes()
    cache.write_bytes(whole[: len(whole) // 2] if damage is None else damage)
    again = MemoryDirectory(folder, cache=cache)
    assert again.rescan() == 2
    assert found(again, "when are deploys?") == ["project_deploy.md"]
    assert MemoryDirectory(folder, cache=cache).rescan() == 0


def test_only_memories_of_the_directory_can_be_read(folder: Path) -> None:
    (folder / "project_link.md").symlink_to("/etc/passwd")
    directory = MemoryDirectory(folder)
    directory.rescan()
    assert "project_link.md" not in directory.cards
    for file in ("../x.md", "/etc/passwd", "MEMORY.md", "project_link.md", "team/../../x.md"):
        with pytest.raises(OSError):
            directory.read(file)


class Swapping(OsCalls):
    """Somebody who puts a link in the place of the folder, right before it is read."""

    def __init__(self, folder: Path, outside: Path, *, has_beneath: bool | None) -> None:
        self.folder, self.outside, self.has_beneath = folder, outside, has_beneath

    def open_root(self, path: str) -> int:
        if not self.folder.is_symlink():
            shutil.rmtree(self.folder)
            self.folder.symlink_to(self.outside)
        return super().open_root(path)


@pytest.mark.parametrize("has_beneath", [None, False])
def test_what_a_link_or_a_second_name_leads_to_is_not_read(
    folder: Path, tmp_path: Path, has_beneath: bool | None
) -> None:
    """SEC-2: not even by a folder that is swapped between the look at it and the reading; and the doctor says why."""
    outside = tmp_path / "outside"
    write(outside, "project_review.md", "The secret of somebody else")
    directory = MemoryDirectory(folder, calls=Swapping(folder / "team", outside, has_beneath=has_beneath))
    assert found(directory, "secret of somebody") == []
    assert [one.file for one in directory.unread] == ["team/project_review.md"]
    with pytest.raises(OSError, match=r"link|no folder"):
        directory.read("team/project_review.md")

    (folder / "project_twice.md").hardlink_to(outside / "project_review.md")
    directory = MemoryDirectory(folder)
    assert found(directory, "secret of somebody") == []
    assert [(one.file, "hard link" in one.why) for one in directory.unread] == [("project_twice.md", True)]


def test_the_port_answers_for_a_directory_that_is_not_there_and_sees_it_come(tmp_path: Path) -> None:
    async def go() -> None:
        memories = FileMemories(tmp_path / "memory")
        assert (await memories.find(MemoryQuery(query="deploys"))).scanned == 0
        assert await memories.index() == MemoryIndex()
        write(tmp_path / "memory", "project_deploy.md", "Deploys on Friday")
        (tmp_path / "memory" / "MEMORY.md").write_text("# M\n")
        result = await memories.find(MemoryQuery(query="when are deploys?"), fill=False)
        assert [one.card.file for one in result.chosen] == ["project_deploy.md"]
        index = await memories.index()
        assert index.text == "# M\n"
        assert set(index.modified) == {"project_deploy.md"}
        topics = await memories.read(("gone.md", "project_deploy.md"))
        assert [topic.file for topic in topics] == ["project_deploy.md"]
        memories.wait_for_rescan()

    anyio.run(go)


def test_edits_in_place_are_found_by_the_rescan_behind_a_question(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.adapters.memory.directory.RESCAN_SECONDS", 0.0)

    async def go() -> None:
        memories = FileMemories(folder)
        await memories.find(MemoryQuery(query="deploys"))
        memories.wait_for_rescan()
        edit_in_place(folder)
        assert not (await memories.find(MemoryQuery(query="sunday mornings"))).chosen
        memories.wait_for_rescan()
        assert (await memories.find(MemoryQuery(query="sunday mornings"))).chosen
        memories.wait_for_rescan()

    anyio.run(go)


def test_worktrees_share_the_root_of_their_repository(tmp_path: Path) -> None:
    main = tmp_path / "main"

    def git(*words: str) -> None:
        who = ["-c", "user.name=n", "-c", "user.email=n@example.org"]
        subprocess.run(["git", "-C", str(main), *who, *words], check=True, capture_output=True)

    main.mkdir()
    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "x")
    git("worktree", "add", "-q", str(tmp_path / "tree"))
    (tmp_path / "tree" / "src").mkdir()
    assert project_root(tmp_path / "tree" / "src") == main.resolve() == project_root(main)
    assert memory_roots(tmp_path, tmp_path / "tree").kept == memory_roots(tmp_path, main).kept


def test_a_link_that_points_at_a_repository_that_does_not_know_it_is_no_worktree(tmp_path: Path) -> None:
    other, ours = tmp_path / "other" / ".git" / "worktrees" / "x", tmp_path / "ours"
    other.mkdir(parents=True)
    ours.mkdir()
    (other / "commondir").write_text("../..\n")
    (other / "gitdir").write_text("/somewhere/else/.git\n")
    (ours / ".git").write_text(f"gitdir: {other}\n")
    assert project_root(ours) == ours.resolve()
