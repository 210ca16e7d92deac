"""MEM-14: memories of the user are retrieved as those of a project are; superseded and pinned ones."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from perdure import Message, Settings
from perdure.adapters.memory.directory import FileMemories, JoinedMemories, MemoryDirectory
from perdure.engine.reminders import remind
from perdure.memory.files import topic
from perdure.memory.retrieval import MemoryQuery
from perdure.transcript.blocks import Text
from perdure.wiring import SessionOptions, create_session

pytestmark = pytest.mark.unit


def put(folder: Path, file: str, name: str, body: str, *more: str) -> None:
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "\n".join(("---", f"name: {name}", f"description: {name}", "type: project", *more, "---", body, ""))
    )


def asked(folder: Path, query: str, **more: object) -> list[str]:
    directory = MemoryDirectory(folder)
    directory.rescan()
    return [one.card.file for one in directory.ask(MemoryQuery(query=query, **more))]  # type: ignore[arg-type]


def test_the_value_that_holds_now_stands_in_the_place_of_older_ones(tmp_path: Path) -> None:
    """MEM-14: over several steps, also where only the oldest has the words of the question."""
    put(tmp_path, "project_region.md", "Deploy region of the site", "We deploy to Frankfurt.")
    put(tmp_path, "project_moved.md", "Moved", "Now Dublin.", "supersedes: project_region")
    put(tmp_path, "project_again.md", "Moved again", "Now Oslo.", "supersedes: [project_moved.md]")
    put(tmp_path, "project_lunch.md", "Lunch", "At noon.")
    assert asked(tmp_path, "which deploy region has the site?") == ["project_again.md"]


def test_what_supersedes_nothing_that_is_there_changes_nothing(tmp_path: Path) -> None:
    """MEM-14: a name that is gone, itself, and a circle."""
    put(tmp_path, "a.md", "Deploy region", "Oslo.", "supersedes: [gone.md, a.md]")
    assert asked(tmp_path, "deploy region") == ["a.md"]
    put(tmp_path, "a.md", "Deploy region", "Oslo.", "supersedes: b")
    put(tmp_path, "b.md", "Deploy region", "Rome.", "supersedes: a")
    assert sorted(asked(tmp_path, "deploy region")) == ["a.md", "b.md"]


def test_an_older_one_isn_t_shown_once_the_current_one_was(tmp_path: Path) -> None:
    """MEM-14: never alone."""
    put(tmp_path, "old.md", "Deploy region", "Rome.")
    put(tmp_path, "new.md", "Deploy region today", "Oslo.", "supersedes: old")
    assert asked(tmp_path, "deploy region", shown={"new.md": 1e12}) == []


def test_names_are_taken_beside_the_file() -> None:
    """MEM-14: with or without the ending, in its folder."""
    front = "---\nname: x\ndescription: y\nsupersedes: old, other/two.md\npinned: yes\n---\nz\n"
    found = topic("team/new.md", front)
    assert (found.supersedes, found.is_pinned) == (("team/old.md", "other/two.md"), True)


def test_pins_come_first_unasked_and_only_there(tmp_path: Path) -> None:
    """MEM-14: once, whatever is said; a search ranks by its words."""
    put(tmp_path, "rule.md", "Rule", "Never push on Fridays.", "pinned: true")
    put(tmp_path, "deploy.md", "Deploy region", "Oslo.")
    assert asked(tmp_path, "deploy region", has_pins=True) == ["rule.md", "deploy.md"]
    assert asked(tmp_path, "", has_pins=True) == ["rule.md"] and asked(tmp_path, "deploy region") == ["deploy.md"]
    assert asked(tmp_path, "deploy region", has_pins=True, shown={"rule.md": 1e12}) == ["deploy.md"]


def test_two_directories_answer_as_one(tmp_path: Path) -> None:
    """MEM-14: each by its own index, best first together; what was shown counts in its own."""
    put(tmp_path / "p", "deploy.md", "Deploy region", "Oslo.")
    put(tmp_path / "u", "tabs.md", "Tabs or spaces", "I want tabs.")

    async def body() -> None:
        both = JoinedMemories(FileMemories(tmp_path / "p"), {"user": FileMemories(tmp_path / "u")})
        assert not await both.is_empty()
        found = await both.find(MemoryQuery(query="tabs or spaces?"))
        assert ([one.card.file for one in found.chosen], found.scanned) == (["user/tabs.md"], 2)
        shown = MemoryQuery(query="tabs or spaces?", shown={"user/tabs.md": 1e12})
        assert not (await both.find(shown)).chosen
        read = await both.read(("deploy.md", "user/tabs.md"))
        assert [one.file for one in read] == ["deploy.md", "user/tabs.md"]
        assert dict(await both.used(("user/tabs.md",))) == {"user/tabs.md": 1}
        filled = await both.find(MemoryQuery(query="x"), fill=True)
        assert {card.file for card in filled.cards} == {"deploy.md", "user/tabs.md"}

    anyio.run(body)


def test_a_session_recalls_what_the_user_keeps_for_all_projects(tmp_path: Path) -> None:
    """MEM-14: at the door of any session, with the path under which the memory tool has it."""
    home = tmp_path / "home"
    put(home / "memory", "feedback_tabs.md", "Tabs or spaces", "I want tabs.", "supersedes: feedback_spaces")
    put(home / "memory", "feedback_spaces.md", "Spaces", "I want spaces.")
    (tmp_path / "work").mkdir()

    async def body() -> str:
        parts = SessionOptions(settings=Settings(memory=True, instructions=False), is_trusted=True)
        session = await create_session(home, project=str(tmp_path / "work"), parts=parts)
        await session.append(Message.of("user", "Do I want tabs or spaces here?", origin="user"))
        await remind(session, "behind")
        items = [item.message for item in session.view.items if item.message.note == "memory"]
        await session.ports.journal.close()
        return "\n".join(b.value.text for m in items for b in m.blocks if isinstance(b.value, Text))

    text = anyio.run(body)
    assert "## user/feedback_tabs.md" in text and "I want tabs." in text
    assert "supersedes feedback_spaces.md, which holds no more" in text and "I want spaces." not in text
