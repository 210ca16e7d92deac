"""The agent's tools, each through the whole loop (LIB-1, TURN-4)."""

# ruff: noqa: ASYNC240 - tests look at small files while nothing else runs

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest
from tests.agents import LONG_SLEEP, Bench, bench, is_running, texts, until

from perdure.agent.tools import STANDARD
from perdure.context.view import UNCHANGED
from perdure.engine.compact import compact
from perdure.testing import check_anthropic
from perdure.transcript.records import Pinned

pytestmark = pytest.mark.unit
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 40


def run(folder: Path, body: Callable[[Bench], Awaitable[None]], **more: object) -> None:
    async def inside() -> None:
        one = await bench(folder, **more)  # type: ignore[arg-type]
        try:
            await body(one)
        finally:
            await one.agent.close()
        assert not one.model.upstream.statistics.violations

    anyio.run(inside)


def test_definitions_are_valid_and_need_no_references(tmp_path: Path) -> None:
    """LIB-1: names as common coding agents use, schemas that any server takes."""
    names = [tool.name for tool in STANDARD]
    for name in "Read Write Edit MultiEdit Bash BashOutput KillShell Grep Glob TodoWrite Task Skill recall".split():
        assert name in names
    for tool in STANDARD:
        assert "$ref" not in str(tool.definition) and tool.definition["input_schema"]["type"] == "object"
        assert len(tool.definition["description"]) > 40
    edits = next(tool for tool in STANDARD if tool.name == "MultiEdit").definition["input_schema"]
    assert set(edits["properties"]["edits"]["items"]["required"]) == {"old_string", "new_string"}

    async def body(one: Bench) -> None:
        await one.agent.say("hello")
        request = one.model.requests[-1]
        assert not check_anthropic(request.body)
        assert one.agent.session.view.front.dynamic_from == 1

    run(tmp_path, body)


# --- Read -------------------------------------------------------------------------------------------------------------


def test_read_numbers_lines_and_says_how_to_go_on(tmp_path: Path) -> None:
    async def body(one: Bench) -> None:
        one.write("a.txt", "".join(f"line {n}\n" for n in range(1, 3001)))
        text, _ = await one.call("Read", file_path="a.txt", offset=10, limit=2)
        assert text == "    10\tline 10\n    11\tline 11"
        text, _ = await one.call("Read", file_path="a.txt")
        assert text.startswith("     1\tline 1\n") and "lines 1-2,000 of 3,000; read on with offset 2001" in text
        assert (await one.call("Read", file_path="a.txt", offset=3001)) == (
            "a.txt has 3,000 lines; there is no line 3,001",
            True,
        )
        one.write("empty", "")
        assert (await one.call("Read", file_path="empty"))[0] == "(The file is empty.)"

    run(tmp_path, body)


def test_read_refuses_what_is_no_text_and_shows_images(tmp_path: Path) -> None:
    async def body(one: Bench) -> None:
        one.write("a.bin", b"ab\0cd")
        assert "binary file" in (await one.call("Read", file_path="a.bin"))[0]
        assert "is a folder" in (await one.call("Read", file_path="."))[0]
        assert "does not exist" in (await one.call("Read", file_path="nope"))[0]
        assert (await one.call("Read", file_path="a\0b"))[1]
        os.mkfifo(one.folder / "pipe")
        assert "neither a file" in (await one.call("Read", file_path="pipe"))[0]
        one.write("a.png", PNG)
        await one.call("Read", file_path="a.png")
        assert [part.type for part in one.results()[-1].parts()] == ["image"]
        one.write("huge.txt", b"x" * 10_000_001)
        assert "over the limit" in (await one.call("Read", file_path="huge.txt"))[0]

    run(tmp_path, body)


def test_a_second_read_of_what_is_still_shown_is_a_pointer(tmp_path: Path) -> None:
    """TURN-4: tied to what the view shows and to the disk, so clearing and changes make it whole again."""

    async def body(one: Bench) -> None:
        one.write("a.txt", "one\ntwo\n" * 40)
        first, _ = await one.call("Read", file_path="a.txt")
        second, _ = await one.call("Read", file_path="a.txt")
        assert second.startswith(UNCHANGED) and not one.agent.session.view.worth.worthless
        assert (await one.call("Read", file_path="a.txt", limit=1))[0] == "     1\tone"
        one.write("a.txt", "one\nthree\n" * 40)
        third, _ = await one.call("Read", file_path="a.txt")
        assert "three" in third
        one.write("a.txt", "one\ntwo\n" * 40)
        assert (await one.call("Read", file_path="a.txt"))[0].startswith(UNCHANGED)
        await compact(one.agent.session, trigger="manual")
        await one.agent.session.record(Pinned(id="p", text="x"))
        again, _ = await one.call("Read", file_path="a.txt")
        assert again == first or again.startswith(UNCHANGED)

    run(tmp_path, body)


def test_a_cleared_read_is_not_answered_with_a_pointer(tmp_path: Path) -> None:
    """TURN-4: clearing a file read tells the read-state."""

    async def body(one: Bench) -> None:
        one.write("a.txt", "words and words\n" * 300)
        await one.call("Read", file_path="a.txt")
        for n in range(6):
            one.write(f"b{n}.txt", f"{n} others\n" * 300)
            await one.call("Read", file_path=f"b{n}.txt")
        clock = one.agent.session.ports.clock
        facts = one.agent.session.facts()
        from dataclasses import replace

        from perdure.context.passes import microcompact

        late = replace(facts, now=clock.now() + 10_000)
        await one.agent.session.commit(microcompact(one.agent.session.view, late), late)
        assert one.agent.session.view.cleared
        assert "words and words" in (await one.call("Read", file_path="a.txt"))[0]

    run(tmp_path, body)


# --- Write, Edit, MultiEdit -------------------------------------------------------------------------------------------


def test_edit_takes_exact_and_unique_texts_of_files_that_were_read(tmp_path: Path) -> None:
    async def body(one: Bench) -> None:
        path = one.write("a.py", "a = 1\nb = 1\n\nif a:\n    b = 2\n")
        edit = {"file_path": "a.py", "old_string": "a = 1", "new_string": "a = 3"}
        assert "has not been read yet" in (await one.call("Edit", **edit))[0]
        await one.call("Read", file_path="a.py")
        assert (await one.call("Edit", **edit))[1] is False
        assert path.read_text().startswith("a = 3\n")
        text, failed = await one.call("Edit", file_path="a.py", old_string="b = ", new_string="c = ")
        assert failed and "2 places (lines 2, 5)" in text
        text, failed = await one.call("Edit", file_path="a.py", old_string="if a:\n  b = 2", new_string="")
        assert failed and "At line 4 the same text stands with other white space" in text
        assert (await one.call("Edit", file_path="a.py", old_string="x", new_string="x"))[1]
        assert (await one.call("Edit", file_path="a.py", old_string="", new_string="x"))[1]
        await one.call("Edit", file_path="a.py", old_string="b = ", new_string="c = ", replace_all=True)
        assert path.read_text() == "a = 3\nc = 1\n\nif a:\n    c = 2\n"

    run(tmp_path, body)


def test_a_file_that_changed_since_has_to_be_read_again(tmp_path: Path) -> None:
    async def body(one: Bench) -> None:
        path = one.write("a.py", "a = 1\nb = 2\n")
        await one.call("Read", file_path="a.py")
        path.write_text("a = 1\nb = 3\n")
        edit = {"file_path": "a.py", "old_string": "a = 1", "new_string": "a = 9"}
        assert "was changed since you read it" in (await one.call("Edit", **edit))[0]
        assert "was changed since" in (await one.call("Write", file_path="a.py", content="x"))[0]
        await one.call("Read", file_path="a.py")
        assert not (await one.call("Edit", **edit))[1]
        assert not (await one.call("Write", file_path="a.py", content="new\n"))[1]
        assert path.read_text() == "new\n"

    run(tmp_path, body)


def test_what_was_read_is_known_from_the_journal_after_a_resume(tmp_path: Path) -> None:
    """CMP-8: the read-state is a fold of the view."""

    async def body() -> None:
        home, folder = tmp_path / "home", tmp_path / "p"
        one = await bench(folder, home=home)
        one.write("a.py", "a = 1\nb = 2\n")
        one.write("b.py", "a = 1\nb = 2\n")
        await one.call("Read", file_path="a.py")
        await one.call("Read", file_path="b.py")
        await one.agent.close()
        (folder / "b.py").write_text("a = 1\nb = 7\n")
        two = await bench(folder, home=home, resume=one.agent.session.id, model=one.model)
        edit = {"old_string": "a = 1", "new_string": "a = 9"}
        assert not (await two.call("Edit", file_path="a.py", **edit))[1]
        assert "was changed since" in (await two.call("Edit", file_path="b.py", **edit))[0]
        await two.agent.close()

    anyio.run(body)


def test_several_edits_are_made_all_or_none(tmp_path: Path) -> None:
    async def body(one: Bench) -> None:
        path = one.write("a.txt", "one two three\r\nfour\r\n")
        await one.call("Read", file_path="a.txt")
        good = {"old_string": "one", "new_string": "1"}
        text, failed = await one.call(
            "MultiEdit", file_path="a.txt", edits=[good, {"old_string": "zero", "new_string": "0"}]
        )
        assert failed and "edit 2 of 2" in text and path.read_bytes() == b"one two three\r\nfour\r\n"
        more = {"old_string": "three\nfour", "new_string": "3\n4"}
        assert not (await one.call("MultiEdit", file_path="a.txt", edits=[good, more]))[1]
        assert path.read_bytes() == b"1 two 3\r\n4\r\n"

    run(tmp_path, body)


def test_write_makes_folders_keeps_modes_and_leaves_no_drafts(tmp_path: Path) -> None:
    async def body(one: Bench) -> None:
        text, _ = await one.call("Write", file_path="src/deep/a.sh", content="echo é\n")
        path = one.folder / "src/deep/a.sh"
        assert path.read_text() == "echo é\n" and str(path) in text
        path.chmod(0o750)
        await one.call("Write", file_path="src/deep/a.sh", content="x\n")
        assert path.stat().st_mode & 0o777 == 0o750
        assert [p.name for p in path.parent.iterdir()] == ["a.sh"]
        assert "no regular file" in (await one.call("Write", file_path="src", content=""))[0]

    run(tmp_path, body)


# --- Bash -------------------------------------------------------------------------------------------------------------


def test_commands_keep_their_folder_and_say_how_they_ended(tmp_path: Path) -> None:
    async def body(one: Bench) -> None:
        (one.folder / "sub").mkdir()
        assert (await one.call("Bash", command="echo out; echo err >&2")) == ("out\nerr", False)
        assert (await one.call("Bash", command="true"))[0] == "(no output)"
        assert (await one.call("Bash", command="echo no; exit 3")) == ("Exit code 3\nno", True)
        await one.call("Bash", command="cd sub")
        assert (await one.call("Bash", command="pwd"))[0] == os.path.realpath(one.folder / "sub")
        text, _ = await one.call("Bash", command="cd / && pwd")
        assert text.startswith("/\n[the current folder is") and one.agent.context.cwd.endswith("sub")
        assert (await one.call("Bash", command="cat"))[0] == "(no output)"  # there is no input to wait for

    run(tmp_path, body)


def test_a_command_that_takes_too_long_ends_with_all_it_started(tmp_path: Path) -> None:
    async def body(one: Bench) -> None:
        text, failed = await one.call("Bash", command=f"echo begun; {LONG_SLEEP} & {LONG_SLEEP}", timeout=2_000)
        assert failed and text == "Command timed out after 2 s and was ended. Its output until then:\nbegun"
        await one.call("Bash", command=f"{LONG_SLEEP} & echo left")
        await until(lambda: not is_running(LONG_SLEEP))
        children = [p for p in Path("/proc").iterdir() if p.name.isdigit()]
        for child in children:  # no zombie of ours
            try:
                fields = (child / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            assert not (fields[1] == str(os.getpid()) and fields[0] == "Z")

    run(tmp_path, body)


def test_output_has_limits(tmp_path: Path) -> None:
    """TURN-2: what is said whole is offloaded by the engine; more than that stays in its file."""

    async def body(one: Bench) -> None:
        text, _ = await one.call("Bash", command="seq 1 1000")
        assert text.startswith("1\n2\n") and text.endswith("\n1000") and "bytes left out" in text
        where = text.partition("all of it is in ")[2].partition("]")[0]
        assert Path(where).read_text().count("\n") == 1000
        text, failed = await one.call("Bash", command="yes")
        assert failed and "wrote more than 50,000 bytes" in text

    run(tmp_path, body, settings={"command_shown_bytes": 2_000, "command_output_bytes": 50_000})


# --- Grep, Glob -------------------------------------------------------------------------------------------------------


def test_grep_and_glob_find_and_leave_out_what_is_ignored(tmp_path: Path) -> None:
    async def body(one: Bench) -> None:
        one.write("src/a.py", "import os\nx = 1\nimport re\n")
        one.write("src/b.txt", "import nothing\n")
        one.write("out/c.py", "import os\n")
        one.write(".gitignore", "out/\n")
        one.write("bin", b"import\0os")
        await one.call("Bash", command="git init -q .")
        found, _ = await one.call("Grep", pattern=r"import \w+", output_mode="content", glob="*.py", **{"-A": 1})
        root = os.path.realpath(one.folder)
        assert found.split("\n") == [
            f"{root}/src/a.py:1:import os",
            f"{root}/src/a.py-2-x = 1",
            f"{root}/src/a.py:3:import re",
        ]
        assert (await one.call("Grep", pattern="IMPORT", **{"-i": True}))[0].count("\n") == 1
        assert (await one.call("Grep", pattern="import", output_mode="count", path="src/a.py"))[0].endswith("a.py:2")
        assert (await one.call("Grep", pattern="zebra"))[0] == "No matches found"
        text, _ = await one.call("Grep", pattern="import (?=os)")
        assert text.startswith("No matches found") and "as it is written" in text
        assert (await one.call("Glob", pattern="**/*.py"))[0] == f"{root}/src/a.py"
        assert (await one.call("Glob", pattern="*.{py,txt}"))[0].count("\n") == 1
        assert (await one.call("Glob", pattern="../*"))[1]

    run(tmp_path, body, settings={"find_limit": 50})


# --- todos, skills, plans, recall -------------------------------------------------------------------------------------


def test_invalid_input_says_what_is_wrong_and_nothing_happens(tmp_path: Path) -> None:
    async def body(one: Bench) -> None:
        text, failed = await one.call("Write", file_path="a")
        assert failed and "content" in text and not (one.folder / "a").exists()
        assert "unknown field" in (await one.call("Read", file_path="a", lines=3))[0]
        assert (await one.call("TodoWrite", todos=[{"content": "x", "status": "maybe"}]))[1]
        assert "no tool 'Fly'" in (await one.call("Fly"))[0]

    run(tmp_path, body)


def test_a_skill_is_listed_and_loaded(tmp_path: Path) -> None:
    """RST-4: its instructions follow the results, so that they are known as a skill's."""
    skill = tmp_path / ".claude" / "skills" / "tidy" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: tidy\ndescription: >\n  For tidying\n  up.\n---\nSweep the floor.\n")

    async def body(one: Bench) -> None:
        _, failed = await one.call("Skill", skill="tidy", args="the kitchen")
        assert not failed
        said = texts(item.message for item in one.agent.session.view.items)
        assert f"Base directory for this skill: {skill.parent}" in said
        assert "Sweep the floor." in said and "ARGUMENTS: the kitchen" in said
        front = one.agent.session.view.front
        assert any(b"tidy: For tidying up." in bytes(tool) for tool in front.tools)
        assert "there is no skill" in (await one.call("Skill", skill="cook"))[0]

    run(tmp_path, body)


def test_recall_brings_back_what_left(tmp_path: Path) -> None:
    async def body(one: Bench) -> None:
        one.write("a.txt", "the needle\n" * 3)
        await one.call("Read", file_path="a.txt")
        identity = one.results()[-1].tool_use_id
        text, failed = await one.call("recall", id=identity)
        assert not failed and "the needle" in text
        assert (await one.call("recall", id="nothing-like-it"))[1]

    run(tmp_path, body)
