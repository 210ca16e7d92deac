"""MEM-7, MEM-8, MEM-9, MEM-10: `perdure memory add|edit|rm|review|undo|log`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.commands import command, command_at_terminal

from perdure.adapters.memory.directory import file_memories
from perdure.memory.changes import DeleteMemory, SaveMemory, Stamp

pytestmark = pytest.mark.e2e


class Shell:
    def __init__(self, tmp_path: Path) -> None:
        self.cwd, self.notes, self.drafts = tmp_path, tmp_path / "notes", tmp_path / "drafts"
        self.drafts.mkdir()

    def __call__(self, *words: str, stdin: str = "", editor: str = "", code: int = 0) -> str:
        environ = {"PATH": "/usr/bin:/bin", "HOME": str(self.cwd), "PERDURE_HOME": str(self.cwd / "home")}
        environ |= {"EDITOR": editor} if editor else {}
        environ |= {"TMPDIR": str(self.drafts)}
        done = command("memory", *words, "--dir", self.notes, cwd=self.cwd, env=environ, given=stdin)
        assert done.returncode == code, done.stdout + done.stderr
        assert done.stderr.count("\n") <= 1, done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout + done.stderr

    def json(self, *words: str, code: int = 0) -> Any:
        return json.loads(self(*words, "--json", code=code))

    def text(self, name: str) -> str:
        return (self.notes / name).read_text()


@pytest.fixture
def memory(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_add_rm_and_undo_keep_the_index_right(memory: Shell) -> None:
    said = memory.json("add", "Never push to main.", "--about", "branches only")
    assert (said["file"], said["outcome"], said["warning"]) == ("feedback_never_push_to_main.md", "written", None)
    assert memory.text("MEMORY.md") == "- [Never push to main](feedback_never_push_to_main.md) — branches only\n"
    assert "type: feedback\n---\n\nNever push to main.\n" in memory.text("feedback_never_push_to_main.md")
    memory("add", "-", "--name", "Anna", "--type", "project", "--file", "team/anna", stdin="Anna deploys.\n")
    assert memory.text("team/anna.md").startswith("---\nname: Anna\n")
    assert "this memory already exists" in memory("add", "x", "--file", "team/anna.md", code=1)
    assert "1." in memory("search", "who deploys?")
    assert "removed" in memory("rm", "feedback_never_push_to_main")
    assert memory.text("MEMORY.md") == "- [Anna](team/anna.md) — Anna deploys\n"
    assert "push" not in memory.text("MEMORY.md")
    memory("undo")  # the file and its line are one thing
    assert "push" in memory.text("MEMORY.md")
    assert (memory.notes / "feedback_never_push_to_main.md").exists()
    entries = memory.json("log")["entries"]
    assert [entry["mode"] for entry in entries[:2]] == ["undo", "undo"]
    assert all(entry["stamp"].keys() <= {"origin", "by", "at", "batch"} for entry in entries)
    assert {(entry["stamp"]["origin"], entry["stamp"]["by"]) for entry in entries} == {("user", "user")}
    assert "no memory 'nope'" in memory("rm", "nope", code=3)
    assert "no change has this id" in memory("undo", "nope", code=1)


def test_edit_keeps_the_schema_and_merges(memory: Shell, tmp_path: Path) -> None:
    """MEM-3, MEM-9: nothing but the edit changes; what others wrote meanwhile stays, or it is said."""
    memory.notes.mkdir()
    nested = "---\nname: a\ndescription: b\nmetadata:\n  node_type: memory\n  type: project\n---\none\ntwo\nthree\n"
    path = memory.notes / "a.md"
    path.write_text(nested)
    assert "saved" in memory("edit", "a", editor="sed -i s/one/ONE/")
    assert path.read_text() == nested.replace("one", "ONE")
    assert "nothing changed" in memory("edit", "a", editor="true")
    other = tmp_path / "other.sh"
    other.write_text(f'#!/bin/sh\nsed -i s/three/THREE/ "{path}"\nsed -i s/ONE/1/ "$1"\n')
    assert "with what others changed" in memory("edit", "a", editor=f"sh {other}")
    assert path.read_text().endswith("---\n1\ntwo\nTHREE\n")
    other.write_text(f'#!/bin/sh\nsed -i s/two/2/ "{path}"\nsed -i s/two/TWO/ "$1"\n')
    assert "your text is in a.conflict-" in memory("edit", "a", editor=f"sh {other}", code=1)
    assert "nothing was saved" in memory("edit", "a", editor="false", code=1)
    key = "AKIA" + "IOSFODNN7EXAMPL" + "Q"
    refused = memory("edit", "a", editor=f"sed -i s/1/{key}/", code=1)
    assert key not in refused
    assert key in Path(refused.rsplit(" ", 1)[1].strip()).read_text()


def test_review(memory: Shell) -> None:
    """MEM-8, MEM-10: what waits is shown as diffs, and decided by id or all at once; its origin stays with it."""
    store = file_memories(memory.notes)

    async def propose() -> list[str]:
        first = Stamp(origin="tool", at=1.0, session="s1", message="m1")
        await store.write(SaveMemory(name="old.md", text="old\n"), Stamp(origin="user", at=0.0), mode="auto")
        changes = (
            SaveMemory(name="a.md", text="A\n"),
            DeleteMemory(name="old.md", base="old\n"),
            SaveMemory(name="c.md", text="C\x1b[31m\n"),
            SaveMemory(name="d.md", text="D\n"),
        )
        return [(await store.propose(change, first, "it derives from a tool")).id for change in changes]

    a, old, c, d = anyio.run(propose)
    rows = memory.json("review")["pending"]
    assert {row["file"] for row in rows} == {"a.md", "old.md", "c.md", "d.md"}
    assert next(row for row in rows if row["id"] == old)["diff"].endswith("-old\n")
    shown = memory("review")
    assert "+A" in shown
    assert "\x1b" not in shown
    assert "4 changes waiting" in shown
    assert "approved, and written" in memory("review", "--approve", a, "--reject", c)
    (memory.notes / "old.md").write_text("other\n")
    assert "still waits" in memory("review", "--approve", old, code=1)
    decided = memory.json("review", "--approve-all", "--reject", old)["decided"]
    assert {row["id"]: row["outcome"] for row in decided} == {d: "written", old: "rejected"}
    assert memory.json("review")["pending"] == []
    assert "no change with this id waits" in memory("review", "--approve", a, code=3)
    assert {name: one.least for name, one in anyio.run(store.provenance).items()}["a.md"] == "tool"
    assert "can't be combined" in memory("review", "--approve-all", "--reject-all", code=2)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo terminals")
def test_review_on_a_terminal_asks_for_each(memory: Shell) -> None:
    store = file_memories(memory.notes)

    async def propose() -> None:
        for number, name in enumerate(("a.md", "b.md", "c.md", "d.md")):
            await store.propose(
                SaveMemory(name=name, text="x\n"), Stamp(origin="web", at=float(number)), "it is of the web"
            )

    anyio.run(propose)
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(memory.cwd), "PERDURE_HOME": str(memory.cwd / "home")}
    words = ("memory", "review", "--dir", memory.notes)
    done = command_at_terminal(*words, cwd=memory.cwd, env=environ, typed=b"a\nr\nwhat?\ns\nq\n")
    assert done.returncode == 0, done.stdout
    assert "1 of 4" in done.stdout
    assert "approved, and written" in done.stdout
    assert [one.change.name for one in anyio.run(store.pending)] == ["c.md", "d.md"]
    assert sorted(path.name for path in memory.notes.glob("*.md")) == ["MEMORY.md", "a.md"]


def test_what_is_refused_is_one_line(memory: Shell) -> None:
    """MEM-2, MEM-10, CLI-5: secrets by rule and never by value; bad names; an index over its limits is told."""
    key = "gh" + "p_" + "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8"
    said = memory("add", f"the key is {key}", code=1)
    assert "secret:github-token" in said
    assert key.lower() not in said.lower()
    assert not memory.notes.exists() or not list(memory.notes.glob("*.md"))
    assert "goes through" in memory("add", "x", "--file", "../x", code=2)
    assert "isn't one of" in memory("add", "x", "--type", "note", code=2)
    assert "nothing to save" in memory("add", " ", code=2)
    memory.notes.mkdir(exist_ok=True)
    (memory.notes / "MEMORY.md").write_text("- x\n" * 200)
    assert "201 lines, over its limit of 200" in memory("add", "one more")


def test_what_is_no_text_is_refused(memory: Shell) -> None:
    """MEM-10, CLI-5: bytes that aren't UTF-8 would spoil the index, too; without standard input there is one line."""
    assert "not in UTF-8" in memory("add", os.fsdecode(b"caf\xe9"), code=2)
    assert not list(memory.notes.glob("*.md"))
    started = [sys.executable, "-m", "perdure", "memory", "add", "-", "--dir", str(memory.notes)]
    closed = ["sh", "-c", 'exec "$@" <&-', "sh", *started]
    done = subprocess.run(closed, capture_output=True, text=True, check=False, cwd=memory.cwd)
    assert done.returncode == 2
    assert "no standard input" in done.stderr
    words = ("memory", "add", "-", "--dir", str(memory.notes))
    done = command(*words, cwd=memory.cwd, env=os.environ, given=b"\xff\xfe")
    assert done.returncode == 2, done.stderr
    assert not list(memory.notes.glob("*.md"))


def test_an_editor_that_fails_leaves_no_copy(memory: Shell) -> None:
    """MEM-7: nothing was saved, so nothing of the memory stays elsewhere."""
    memory("add", "Anna deploys.", "--file", "anna")
    assert "nothing was saved" in memory("edit", "anna", editor="false", code=1)
    assert "can't be run" in memory("edit", "anna", editor="no-such-editor", code=2)
    assert not list(memory.drafts.iterdir())
