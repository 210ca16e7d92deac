"""MEM-1, MEM-4, MEM-7, MEM-8, MEM-10, MEM-13: memories of an agent and its sub-agents, on a disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.agents import Bench, bench, texts

from perdure.adapters.machine.repositories import memory_roots
from perdure.adapters.memory.directory import FileMemories, cache_of, file_memories
from perdure.agent.progress import MemoryUpdated
from perdure.memory.changes import SaveMemory, Stamp
from perdure.memory.places import project_directory
from perdure.memory.retrieval import MemoryQuery
from perdure.testing import say, tool_use

pytestmark = pytest.mark.e2e


class Place:
    def __init__(self, tmp_path: Path) -> None:
        self.project, self.home = tmp_path / "project", tmp_path / "home"
        self.project.mkdir()
        self.memory = Path(project_directory(memory_roots(self.home, self.project)))

    def save(self, name: str, text: str) -> None:
        path = self.memory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    async def bench(self, *script: Any, **more: Any) -> Bench:
        return await bench(self.project, script, home=self.home, **more)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def tools_of(one: Bench) -> set[str]:
    front = one.agent.session.view.front
    assert front is not None
    import msgspec

    return {msgspec.json.decode(tool)["name"] for tool in front.tools}


def shown(one: Bench) -> str:
    return texts(item.message for item in one.agent.session.view.items)


def test_the_tool_writes_where_sessions_look(place: Place) -> None:
    """MEM-7: saved by one session, shown at the start of the next; MEM-10: behind a tool's result it waits."""

    async def go() -> None:
        one = await place.bench()
        text, is_error = await one.call(
            "memory", command="create", path="/memories/MEMORY.md", file_text="- [Deploys](d.md) — Fridays\n"
        )
        assert (text, is_error) == ("File created successfully at: /memories/MEMORY.md", False)
        assert "memory" in tools_of(one)
        await one.call("Bash", command="echo hello")
        text, is_error = await one.call("memory", command="create", path="/memories/x.md", file_text="From outside.\n")
        assert "waits for approval" in text
        one.agent.mode = "plan"
        text, is_error = await one.call("memory", command="delete", path="/memories/MEMORY.md")
        assert is_error
        assert "plan mode" in text
        await one.agent.close()
        assert sorted(path.name for path in place.memory.glob("*.md")) == ["MEMORY.md"]
        next_one = await place.bench("hello")
        await next_one.agent.say("hello")
        assert "- [Deploys](d.md) — Fridays" in shown(next_one)
        await next_one.agent.close()

    anyio.run(go)


def test_on_the_users_word(place: Place) -> None:
    """MEM-7: kept before the model answers, told to whoever watches, with the session and the message in the log."""

    async def go() -> None:
        one = await place.bench("I'll keep to that.")
        said = await one.agent.say("Remember that we deploy on Fridays.")
        lines = [event.text for event in one.seen if isinstance(event, MemoryUpdated)]
        assert lines == ["Remembered as project_we_deploy_on_fridays.md: we deploy on Fridays"]
        assert lines[0].replace("as project_", "as /memories/project_") in shown(one)
        entry = (await file_memories(place.memory).entries())[0]
        assert (entry.stamp.origin, entry.stamp.message) == ("user", said.prompt)
        assert entry.stamp.session == one.agent.session.id
        await one.agent.close()

    anyio.run(go)


@pytest.mark.parametrize(
    ("settings", "has_tool"),
    [({"memory": False}, False), ({"memory_mode": "off"}, False), ({"memory_mode": "read-only"}, True)],
)
def test_switches(place: Place, settings: dict[str, Any], has_tool: bool) -> None:
    """MEM-1, MEM-8: off is off; read-only looks and changes nothing, on nobody's word."""

    async def go() -> None:
        place.save("MEMORY.md", "- [A](a.md)\n")
        one = await place.bench("ok", settings=settings)
        await one.agent.say("Remember that we deploy on Fridays.")
        assert ("memory" in tools_of(one)) is has_tool
        if has_tool:
            assert (await one.call("memory", command="delete", path="/memories/MEMORY.md"))[1]
        assert [path.name for path in place.memory.glob("*.md")] == ["MEMORY.md"]
        await one.agent.close()

    anyio.run(go)


def test_team_and_user_indexes_at_the_start(place: Place) -> None:
    """MEM-1: `team/` has an index of its own, and the user's directory is there for all projects."""

    async def go() -> None:
        place.save("team/MEMORY.md", "- [Style](style.md) — ours\n")
        (place.home / "memory").mkdir(parents=True)
        (place.home / "memory" / "MEMORY.md").write_text("- [Me](me.md) — a tester\n")
        one = await place.bench("hi", "hi")
        await one.agent.say("hello")
        assert "# /memories/team/MEMORY.md\n- [Style](style.md) — ours" in shown(one)
        assert "# /memories/user/MEMORY.md\n- [Me](me.md) — a tester" in shown(one)
        place.save("team/MEMORY.md", "- [Style](style.md) — theirs\n")
        await one.agent.say("and now?")
        assert "+ - [Style](style.md) — theirs" in shown(one)
        await one.agent.close()

    anyio.run(go)


KIND = """---
name: keeper
description: keeps things
memory: local
memory_user: none
---
Keep things.
"""


def test_sub_agents_have_rights_of_their_own(place: Place) -> None:
    """MEM-13, MEM-10: scopes and rights by kind; what a sub-agent writes is never more trusted than its task."""

    async def go() -> None:
        folder = place.project / ".claude" / "agents"
        folder.mkdir(parents=True)
        (folder / "keeper.md").write_text(KIND)
        place.save("MEMORY.md", "- [A](a.md)\n")
        one = await place.bench()

        async def child(kind: str, *calls: dict[str, Any]) -> list[tuple[str, bool]]:
            """What a sub-agent's own calls of the memory tool answer."""
            uses = say(*(tool_use("memory", call) for call in calls))
            ask = say(tool_use("Task", {"description": "keep", "prompt": "Keep it.", "subagent_type": kind}))
            one.model.upstream.script.extend([ask, uses, "kept", "done"])
            seen: list[Any] = []
            before = len(one.seen)
            await one.agent.say("go on")
            for event in one.seen[before:]:
                inner = getattr(event, "progress", None)
                if inner is not None and type(inner).__name__ == "ToolEnded":
                    seen.append((inner.text, inner.is_error))
            return seen

        def save(path: str) -> dict[str, Any]:
            return {"command": "create", "path": path, "file_text": "kept\n"}

        local, project, user = "/memories/agent/local/k.md", "/memories/k.md", "/memories/user/k.md"
        answers = await child("keeper", save(local), save(project), save(user))
        assert answers == [
            (f"File created successfully at: {local}", False),
            (f"Error: {project} may only be read by this agent", True),
            (f"Error: {user} isn't open to this agent, but for /memories/agent/local, /memories", True),
        ]
        own = place.project / ".perdure" / "agent-memory-local" / "keeper"
        assert (own / "k.md").read_text() == "kept\n"
        assert not (place.memory / "k.md").exists()
        assert [text for text, _ in await child("general-purpose", save(project))] == [
            f"Error: {project} may only be read by this agent"
        ]
        # now results of tools (of Task) stand in the parent's view, so what it asks for may be theirs
        (waits,) = await child("keeper", save("/memories/agent/local/late.md"))
        assert "waits for approval" in waits[0]
        assert not (own / "late.md").exists()
        await one.agent.close()

    anyio.run(go)


def test_what_was_let_through_is_shown_as_data(place: Place) -> None:
    """MEM-5, MEM-10: a memory from outside says so when it is recalled, and what is made from it waits again."""

    async def go() -> None:
        store = file_memories(place.memory)
        text = "---\nname: Staging cluster\ndescription: where staging runs\ntype: project\n---\nOn zz9.\n"
        stamp = Stamp(origin="tool", at=1.0, session="s", message="m")
        await store.approve((await store.propose(SaveMemory(name="staging.md", text=text), stamp, "a tool")).id)
        one = await place.bench("On zz9.")
        await one.agent.say("Where does the staging cluster run?")
        assert "(memory of the type project, from the result of a tool; saved " in shown(one)
        said, _ = await one.call("memory", command="create", path="/memories/copy.md", file_text="Staging: zz9.\n")
        assert "waits for approval" in said
        await one.agent.close()

    anyio.run(go)


def test_uses_are_counted_beside_the_directory(place: Place) -> None:
    """MEM-4: what was shown counts for the ranking; the user's files aren't touched."""

    async def go() -> None:
        text = "---\nname: Deploys\ndescription: when deploys go out\ntype: project\n---\nOn Fridays.\n"
        place.save("deploys.md", text)
        place.save("MEMORY.md", "- [Deploys](deploys.md)\n")
        for _ in range(2):
            one = await place.bench("Fridays.")
            await one.agent.say("When do deploys go out?")
            assert "On Fridays." in shown(one)
            await one.agent.close()
        assert {path.name for path in place.memory.iterdir()} - {".perdure"} == {"deploys.md", "MEMORY.md"}
        assert (place.memory / "deploys.md").read_text() == text
        memories = FileMemories(place.memory, cache=cache_of(place.home, place.memory))
        assert await memories.used() == {"deploys.md": 2}
        found = await memories.find(MemoryQuery(query="when do deploys go out"))
        assert "used 2 times" in found.chosen[0].why
        memories.wait_for_rescan()

    anyio.run(go)
