"""RCL-3: whatever stands in the place of content names a means that its reader has, through every door."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.calls import numbered, used

import perdure
from perdure import Session, recall_tool
from perdure.transcript.messages import Message

pytestmark = pytest.mark.e2e

SOURCES = Path(perdure.__file__).parent
ROOMS = ("context", "compaction", "engine", "gateway", "memory", "transcript")
STANDS_FOR = re.compile(
    r"^\[(?!\^)[^\]\n]*\b(?:cleared|left out|folded|superseded|came again|shortened|no longer|cut|omitted)\b", re.I
)
# What brings the content back where it isn't the recall tool.
OTHER_MEANS = {
    "[The memory index is cut here: ": "",  # what stands before it names the directory
    "[Cut here for room: ": "Read the file for the rest",
    "[Cut here: ": "for the rest",  # of a memory, by its path
    "[cut here; the rest of this section stands in ": "stands in ",  # the file of the notes
    "[The results above were read; the thinking between them is no longer shown]": "",  # no content: it is never shown
}


def texts_in(path: Path) -> list[str]:
    """All texts of a source file; of an f-string its parts, a question mark for what is filled in."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.JoinedStr):
            parts = [str(one.value) if isinstance(one, ast.Constant) else "?" for one in node.values]
            found.append("".join(parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(node.value)
    return found


def test_every_marker_in_the_sources_names_a_means() -> None:
    """RCL-3: a new marker without its recall fails here."""
    markers = {
        t for room in ROOMS for path in (SOURCES / room).rglob("*.py") for t in texts_in(path) if STANDS_FOR.match(t)
    }
    assert len(markers) >= 8
    for text in markers:
        other = next((means for start, means in OTHER_MEANS.items() if text.startswith(start)), None)
        # The parts of an f-string stand in the tree by themselves, too; the whole one is judged.
        is_part = any(text != whole and text in whole for whole in markers)
        assert is_part or "recall with id" in text or (other is not None and other in text), text


LONG = "\n".join(f"row {n}: value = compute({n})" for n in range(900))


NAMED = re.compile(r'recall with id \\?"?([\w-]+)')
SMALL = {"window_tokens": 60_000, "microcompact_keep_tokens": 2_000, "microcompact_min_saved_tokens": 2_000}


async def shortened(session: Any, tools: list[Any]) -> list[str]:
    """The requests of a session in which results are offloaded, cleared and superseded, and boundaries are made."""
    await session.set_prefix(model="claude-sonnet-4-5", system="Be brief.", tools=tools)
    await session.append("look around, please")
    said = []
    for n in range(24):
        command = used(
            "Bash", {"command": f"make {n}"}, LONG * 4 if n % 6 == 0 else f"{n} {LONG[n * 50 : 6_000 + n * 50]}"
        )
        for messages in (
            used("Read", {"file_path": f"/w/{n // 2}.py"}, numbered(f"{n} {LONG[n * 70 : 5_000 + n * 70]}")),
            command,
        ):
            await session.append(*messages)
            said.append((await session.prepare()).request.body.decode())
        await session.append(Message.of("assistant", f"step {n} is done", origin="model"), "go on")
    await session.compact()
    return [*said, (await session.prepare()).request.body.decode()]


async def originals(session: Any, said: list[str]) -> set[str]:
    """All ids that the requests named, each brought back."""
    named = {found for body in said for found in NAMED.findall(body)} - {"X"}  # as whoever has them is told of
    for one in named:
        assert await session.recall(one)
    return named


TOOL = {"name": "Bash", "description": "Runs a command.", "input_schema": {"type": "object"}}
WITHOUT = "There is no recall tool here"


@pytest.mark.quick(2)
@pytest.mark.parametrize("kept", ["memory", "disk"])
@pytest.mark.parametrize("has_tool", [True, False])
def test_a_library_session_names_the_tool_or_who_else_has_it(tmp_path: Path, kept: str, *, has_tool: bool) -> None:
    """RCL-3: the tool where the request has it; else, once, the command, or the program that keeps the session."""

    async def body() -> None:
        create = Session.in_memory(settings=SMALL)
        if kept == "disk":
            create = Session.create(tmp_path, home=tmp_path / "home", settings=SMALL)
        async with create as session:
            said = await shortened(session, [TOOL, *([recall_tool] if has_tool else [])])
            assert len(await originals(session, said)) > 10
            shown = "\n".join(said)
            for marker in ("Old tool result content cleared", "All of it is kept", "Superseded by a later read"):
                assert marker in shown, marker
            with_marker = [one for one in said if NAMED.search(one)]
            assert {one.count(WITHOUT) for one in with_marker} == ({0} if has_tool else {1})
            assert ("with the recall tool, by its id" in said[-1]) == has_tool, "in the record"
            assert ("with `perdure recall`" in said[-1]) == (not has_tool)
            assert (f"`perdure recall {session.id} X`" in said[-1]) == (kept == "disk" and not has_tool)
            assert ("can be had from that program" in said[-1]) == (kept == "memory" and not has_tool)

    anyio.run(body)


def test_the_host_s_word_counts_over_the_tools_of_the_request(tmp_path: Path) -> None:
    """RCL-3: a host that answers recalls in its own way says so with the setting."""

    async def body() -> None:
        async with Session.in_memory(settings={**SMALL, "recall_tool": True}) as session:
            assert not any(WITHOUT in one for one in await shortened(session, [TOOL]))

    anyio.run(body)
