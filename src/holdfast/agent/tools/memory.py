"""memory: the persistent memory, as Anthropic's tool has it (MEM-7). What it may do, `memory_mode` and the gate say."""

from __future__ import annotations

from typing import Any

from holdfast.agent.desk import Desk
from holdfast.agent.tools.tool import Input, Outcome, Refused, Tool, Use
from holdfast.context.derived import TOOL
from holdfast.engine.memory_tool import memory_tool


class MemoryInput(Input, frozen=True):
    command: str
    path: str | None = None
    view_range: list[int] | None = None
    file_text: str | None = None
    old_str: str | None = None
    new_str: str | None = None
    insert_line: int | None = None
    insert_text: str | None = None
    old_path: str | None = None
    new_path: str | None = None


async def run(desk: Desk, use: Use, given: MemoryInput) -> Outcome:
    """Look into the memory, or change it; in plan mode nothing is changed."""
    if desk.mode == "plan" and given.command != "view":
        raise Refused("plan mode is on: the memory may be viewed, and nothing in it is changed")
    answer = await memory_tool.run(desk.session, use.arguments)
    return Outcome(answer.text, is_error=answer.is_error)


class _Memory(Tool[MemoryInput]):
    """The engine's own definition counts."""

    @property
    def definition(self) -> dict[str, Any]:
        return memory_tool.definition


MEMORY = _Memory(TOOL, MemoryInput, run)
