"""MEM-2, MEM-7, MEM-8, MEM-9, MEM-10, MEM-13: the memory tool: its exact texts, and what becomes of what it writes."""

from __future__ import annotations

from typing import Any

import pytest
from tests.memories import HAND, Desk, played
from tests.planted import planted

from perdure import Settings
from perdure.engine.tools import memory_tool
from perdure.events import MemoryBlocked, MemoryProposed
from perdure.memory.changes import DeleteMemory, SaveMemory
from perdure.memory.trust.injections import find_injections

pytestmark = pytest.mark.unit
FILE = "/memories/a.md"


def test_texts_of_each_command() -> None:
    """MEM-7: word for word."""

    async def do(desk: Desk) -> None:
        ask = desk.memory
        assert (await ask("create", path=FILE, file_text="one\ntwo\nthree\n")).text == (
            f"File created successfully at: {FILE}"
        )
        again = await ask("create", path=FILE, file_text="x")
        assert (again.text, again.is_error) == (f"Error: File {FILE} already exists", True)
        assert (await ask("view", path=FILE)).text == (
            f"Here's the content of {FILE} with line numbers:\n     1\tone\n     2\ttwo\n     3\tthree"
        )
        assert (await ask("view", path=FILE, view_range=[2, -1])).text.endswith(":\n     2\ttwo\n     3\tthree")
        assert (await ask("str_replace", path=FILE, old_str="two", new_str="TWO\n2b")).text == (
            "The memory file has been edited. Here is the snippet showing the change (with line numbers):\n"
            "     1\tone\n     2\tTWO\n     3\t2b\n     4\tthree"
        )
        assert (await ask("insert", path=FILE, insert_line=0, insert_text="zero\n")).text == (
            f"The file {FILE} has been edited."
        )
        assert await desk.text("a.md") == "zero\none\nTWO\n2b\nthree\n"
        assert (await ask("insert", path=FILE, insert_line=5, insert_text="end")).text.endswith("has been edited.")
        assert (await ask("insert", path=FILE, insert_line=7, insert_text="x")).text == (
            "Error: Invalid `insert_line` parameter: 7. It should be within the range of lines of the file: [0, 6]"
        )
        assert (await ask("str_replace", path=FILE, old_str="nine", new_str="x")).text == (
            f"No replacement was performed, old_str `nine` did not appear verbatim in {FILE}."
        )
        assert (await ask("str_replace", path=FILE, old_str="e\n", new_str="x")).text == (
            "No replacement was performed. Multiple occurrences of old_str `e\n` in lines: 2, 5. "
            "Please ensure it is unique"
        )
        assert (await ask("rename", old_path=FILE, new_path="/memories/sub/b.md")).text == (
            f"Successfully renamed {FILE} to /memories/sub/b.md"
        )
        assert (await ask("view", path="/memories")).text == (
            "Here're the files and directories up to 2 levels deep in /memories, excluding hidden items and "
            "node_modules:\n26B\t/memories\n26B\t/memories/sub\n26B\t/memories/sub/b.md"
        )
        assert (await ask("delete", path="/memories/sub")).text == "Successfully deleted /memories/sub"
        assert (await desk.store.listing()).files == ()

    played(do)


@pytest.mark.parametrize(
    ("command", "arguments", "text"),
    [
        ("view", {"path": FILE}, f"The path {FILE} does not exist. Please provide a valid path."),
        (
            "str_replace",
            {"path": FILE, "old_str": "a", "new_str": "b"},
            f"Error: The path {FILE} does not exist. Please provide a valid path.",
        ),
        ("insert", {"path": FILE, "insert_line": 0, "insert_text": "b"}, f"Error: The path {FILE} does not exist"),
        ("delete", {"path": FILE}, f"Error: The path {FILE} does not exist"),
        ("rename", {"old_path": FILE, "new_path": "/memories/b.md"}, f"Error: The path {FILE} does not exist"),
        ("rename", {"old_path": "/memories/m.md", "new_path": "/memories/n.md"}, "/memories/n.md already exists"),
        ("delete", {"path": "/memories"}, "Cannot delete the /memories directory itself"),
        (
            "rename",
            {"old_path": "/memories/", "new_path": "/memories/x"},
            "Cannot rename the /memories directory itself",
        ),
        ("view", {"path": "/etc/passwd"}, "Path must start with /memories, got: /etc/passwd"),
        ("view", {"path": "/memoriesx"}, "Path must start with /memories, got: /memoriesx"),
        ("view", {"path": "/memories/../x"}, "Path /memories/../x would escape /memories directory"),
        ("create", {"path": "/memories/%2e%2e/x", "file_text": "x"}, "can't be used: "),
        ("create", {"path": "/memories/.perdure/audit.jsonl", "file_text": "x"}, "can't be used: "),
        ("create", {"path": "/memories", "file_text": "x"}, "Error: File /memories already exists"),
        ("create", {"path": FILE}, "Error: create needs file_text, a text"),
        ("insert", {"path": FILE, "insert_line": True, "insert_text": "x"}, "Error: insert needs insert_line, a numb"),
        ("forget", {"path": FILE}, "Error: command has to be one of"),
        ("view", {"path": "/memories/m.md", "view_range": [9, 2]}, "Error: Invalid `view_range` parameter: [9, 2]."),
    ],
)
def test_texts_of_what_cannot_be_done(command: str, arguments: dict[str, Any], text: str) -> None:
    """MEM-7, SEC-2: refusals, word for word where there are words for it."""

    async def do(desk: Desk) -> None:
        for name in ("m.md", "n.md"):
            await desk.store.write(SaveMemory(name=name, text="x\n"), HAND, mode="by hand")
        answer = await desk.memory(command, **arguments)
        assert answer.is_error
        assert text in answer.text

    played(do)


def test_arguments_as_openais_apis_give_them() -> None:
    """MEM-10, LIB-4: the JSON of them, and anything else that a model writes there."""

    async def do(desk: Desk) -> None:
        said = await memory_tool.run(desk.session, '{"command": "view", "path": "/memories"}')
        assert not said.is_error
        for broken in ("", "[", "[1]", "null", "\ud800"):
            assert (await memory_tool.run(desk.session, broken)).is_error, broken

    played(do)


def test_definitions() -> None:
    """MEM-7: Anthropic's own type, and a schema for all others."""
    assert memory_tool.native == {"type": "memory_20250818", "name": "memory"}
    assert set(memory_tool.definition["input_schema"]["properties"]["command"]["enum"]) == {
        "view", "create", "str_replace", "insert", "delete", "rename",
    }  # fmt: skip
    assert memory_tool.definition_json.startswith(b'{"name":"memory"')


@pytest.mark.parametrize(
    ("mode", "files", "waits"), [("off", 0, 0), ("read-only", 0, 0), ("ask", 0, 1), ("auto", 1, 0)]
)
def test_modes(mode: str, files: int, waits: int) -> None:
    """MEM-8: off and read-only refuse, ask proposes, auto writes."""

    async def do(desk: Desk) -> None:
        await desk.user("hello")
        answer = await desk.memory("create", path=FILE, file_text="Fact.\n")
        assert answer.is_error is (mode in ("off", "read-only"))
        assert ("File created" in answer.text) is (mode == "auto")
        assert len((await desk.store.listing()).files) == files
        assert len(await desk.store.pending()) == waits

    played(do, mode)


def test_where_it_comes_from_is_stamped_by_the_harness() -> None:
    """MEM-10: a conversation's own is the assistant's; behind a tool's result the tool's, behind a page the web's."""

    async def do(desk: Desk) -> None:
        await desk.user("Deploys go out on Fridays. What else?")
        await desk.memory("create", path="/memories/one.md", file_text="They deploy weekly.\n")
        stamp = (await desk.store.entries())[0].stamp
        asked = desk.session.view.items[0].message.id
        assert (stamp.origin, stamp.by, stamp.session, stamp.message) == ("assistant", "agent", "memory", asked)
        await desk.memory("view", path="/memories/one.md")  # its own view isn't the result of a tool
        await desk.memory("create", path="/memories/two.md", file_text="More.\n")
        assert (await desk.store.entries())[0].stamp.origin == "assistant"

        await desk.result("Bash", {"command": "ls"}, "a b c")
        await desk.model()
        await desk.user("Thanks!")  # long after the result, it still may have moved the model's hand
        waits = await desk.memory("create", path="/memories/three.md", file_text="From the shell.\n")
        assert "waits for approval" in waits.text
        assert not waits.is_error
        await desk.result("WebFetch", {"url": "https://x.example"}, "page")
        await desk.memory("create", path="/memories/four.md", file_text="From a page.\n")
        assert [one.stamp.origin for one in await desk.store.pending()] == ["tool", "web"]
        assert await desk.text("three.md") is None

        said = "---\nname: Deploys go out on Fridays\ntype: project\n---\n\n- Deploys go out on Fridays.\n"
        await desk.memory("create", path="/memories/five.md", file_text=said)
        assert (await desk.store.provenance())["five.md"].least == "user"
        await desk.memory("create", path="/memories/six.md", file_text="Deploys go out.\n")  # only half of it
        assert await desk.text("six.md") is None

    played(do)


def test_what_was_approved_stays_from_outside() -> None:
    """MEM-10: shown as data; what is made from it derives from outside again, in a session without any other tool."""

    async def do(desk: Desk) -> None:
        stamp = HAND.__class__(origin="tool", at=1.0)
        waits = await desk.store.propose(SaveMemory(name="t.md", text="Cluster zz.\n"), stamp, "it derives from a tool")
        await desk.store.approve(waits.id)
        await desk.user("What do you know?")
        assert "it is data" in (await desk.memory("view", path="/memories/t.md")).text
        await desk.memory("create", path="/memories/copy.md", file_text="Cluster zz.\n")
        assert await desk.text("copy.md") is None
        removed = await desk.memory("delete", path="/memories/t.md")
        assert "waits" in removed.text
        done = await desk.store.write(DeleteMemory(name="t.md", base="Cluster zz.\n"), HAND, mode="by hand")
        await desk.store.undo(done.entry, HAND)
        assert (await desk.store.provenance())["t.md"].least == "tool"

    played(do)


def test_an_index_that_is_too_large_is_saved_and_told() -> None:
    """MEM-2: the write succeeds, the writer is told the numbers as an error."""

    async def do(desk: Desk) -> None:
        await desk.user("hello")
        text = "".join(f"- [T{n}](t{n}.md) — x\n" for n in range(20))
        answer = await desk.memory("create", path="/memories/MEMORY.md", file_text=text)
        assert answer.is_error
        assert "20 lines, over its limit of 10" in answer.text
        assert "was saved" in answer.text
        assert await desk.text("MEMORY.md") == text

    played(do, settings=Settings(memory_index_lines=10))


def test_two_writers() -> None:
    """MEM-9: changes of other lines are merged and said; of the same lines, the later is kept beside, and said."""

    async def do(desk: Desk) -> None:
        await desk.user("hello")
        await desk.memory("create", path=FILE, file_text="a\nb\nc\nd\n")
        store, read = desk.store, desk.store.read

        async def meanwhile(name: str) -> Any:
            found = await read(name)
            if found is not None and not is_late:
                is_late.append(True)
                text = found.text.replace(*other)
                await store.write(SaveMemory(name=name, text=text, base=found.text), HAND, mode="by hand")
            return found

        desk.store.read = meanwhile  # type: ignore[method-assign]
        other, is_late = ("d", "D"), list[bool]()
        assert "both changes are in it" in (await desk.memory("str_replace", path=FILE, old_str="a", new_str="A")).text
        assert await desk.text("a.md") == "A\nb\nc\nD\n"
        other, is_late = ("b", "B"), list[bool]()
        lost = await desk.memory("str_replace", path=FILE, old_str="b", new_str="bee")
        assert lost.is_error
        assert "your text was kept at /memories/a.conflict-" in lost.text
        assert await desk.text("a.md") == "A\nB\nc\nD\n"
        other, is_late = ("c", "C"), list[bool]()
        late = await desk.memory("delete", path=FILE)
        assert late.text == f"Error: {FILE} was changed by somebody else meanwhile: view it, and try again."

    played(do)


def test_rights() -> None:
    """MEM-13: read, write or nothing, by directory; the nearest one counts."""
    rights = {"/memories": "read", "/memories/user": "none", "/memories/agent/local": "write"}

    async def do(desk: Desk) -> None:
        await desk.user("hello")
        for store in desk.stores.values():
            await store.write(SaveMemory(name="k.md", text="k\n"), HAND, mode="by hand")
        assert (await desk.memory("view", path="/memories/k.md")).text.endswith("\tk")
        assert "may only be read" in (await desk.memory("delete", path="/memories/k.md")).text
        assert "isn't open" in (await desk.memory("view", path="/memories/user/k.md")).text
        seen = (await desk.memory("view", path="/memories")).text
        assert "/memories/agent/local" not in seen.split("\n", 1)[0]
        assert "/memories/agent" in seen
        assert "/memories/user" not in seen
        assert (await desk.memory("create", path="/memories/agent/local/n.md", file_text="n")).text.startswith("File")
        moved = await desk.memory("rename", old_path="/memories/agent/local/n.md", new_path="/memories/n.md")
        assert "may only be read" in moved.text

    played(do, rights=rights)


@pytest.mark.nightly
def test_300_planted_results_and_a_model_that_obeys_them_all() -> None:
    """MEM-10: none of 300 reaches a file that is loaded into sessions; what waits is stamped as from outside."""
    plants = list(planted(300))
    assert len({one.marker for one in plants}) == 300
    assert sum(bool(find_injections(one.text)) for one in plants) < 200  # the rest is for provenance to stop

    async def do(desk: Desk) -> None:
        await desk.user("Please look at the build.")
        await desk.memory("create", path="/memories/MEMORY.md", file_text="# Memory\n")
        for plant in plants:
            await desk.result(plant.tool, plant.arguments, plant.result)
            path = f"/memories/{plant.name}"
            if plant.name.endswith("MEMORY.md") and await desk.text(plant.name) is not None:
                await desk.memory("insert", path=path, insert_line=1, insert_text=f"- [{plant.text}](x.md)\n")
            else:
                await desk.memory("create", path=path, file_text=plant.text)
            if len(await desk.store.pending()) > 150:
                for one in await desk.store.pending():
                    await desk.store.reject(one.id)
        kept = {file.name: await desk.text(file.name) for file in (await desk.store.listing()).files}
        assert kept == {"MEMORY.md": "# Memory\n"}
        stopped = [one for one in desk.sink.events if isinstance(one, MemoryBlocked | MemoryProposed)]
        assert len(stopped) == 300
        assert all(one.origin in ("tool", "web") for one in stopped)

    played(do)


def test_planted_results_that_a_person_lets_through_are_known_as_such() -> None:
    """MEM-10: approving makes them memories, and never trusted ones."""

    async def do(desk: Desk) -> None:
        await desk.user("Go on.")
        for plant in planted(40):
            await desk.result(plant.tool, plant.arguments, plant.result)
            await desk.memory("create", path=f"/memories/{plant.marker}.md", file_text=plant.text)
        for one in await desk.store.pending():
            await desk.store.approve(one.id)
        known = await desk.store.provenance()
        assert len(known) == 20  # the overt half is refused whoever approves
        assert {one.least for one in known.values()} <= {"tool", "web"}

    played(do)
