"""The observer that has files saved before an agent's tools change them (CKP-1, CKP-2)."""

from __future__ import annotations

from typing import Any

from holdfast.ports import CHECKPOINTS, Call, Checkpoints
from holdfast.transcript.messages import MessageId

_SAY_WHAT_THEY_CHANGE = frozenset({"Write", "Edit", "MultiEdit"})  # before_change names the files


class Checkpointing:
    """`agent.observers.Observer` over `ports.Checkpoints`."""

    name = CHECKPOINTS

    def __init__(self, files: Checkpoints) -> None:
        self._files = files

    async def before_call(self, tool: str, arguments: dict[str, Any], prompt: MessageId) -> None:
        await self._files.begin(_call(tool, arguments, prompt))

    async def before_change(self, paths: tuple[str, ...], prompt: MessageId) -> None:
        await self._files.save(paths, Call("", prompt, looks=False))

    async def after_call(self, tool: str, arguments: dict[str, Any], prompt: MessageId) -> None:
        await self._files.end(_call(tool, arguments, prompt))


def _call(tool: str, arguments: dict[str, Any], prompt: MessageId) -> Call:
    is_background = arguments.get("run_in_background") in (True, "true")
    return Call(tool, prompt, looks=tool not in _SAY_WHAT_THEY_CHANGE, is_background=is_background)
