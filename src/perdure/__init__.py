"""Perdure: a context and memory engine for long-running LLM agents.

Everything that is said is kept in a journal; what the model sees is worked out from it, and always fits. `Session` is
a conversation, `Agent` a small coding agent, `perdure.sync` the same without an event loop, `perdure.core` the pure
level.

    import asyncio
    from perdure import Session

    async def main() -> None:
        async with Session.in_memory() as session:
            await session.append("What does src/app.py do?")
            request = await session.prepare()
            print(request.tokens, len(request.body))

    asyncio.run(main())
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perdure.agent.tools.tool import Tool as Tool
    from perdure.context.replies import Reply as Reply
    from perdure.context.view import ContextView as ContextView
    from perdure.engine.tools import memory_tool as memory_tool
    from perdure.engine.tools import recall_tool as recall_tool
    from perdure.engine.turn import PreparedRequest as PreparedRequest
    from perdure.errors import PerdureError as PerdureError
    from perdure.face.agent import Agent as Agent
    from perdure.face.agent import Permissions as Permissions
    from perdure.face.connecting import connect as connect
    from perdure.face.homes import SharedStore as SharedStore
    from perdure.face.session import CompactionResult as CompactionResult
    from perdure.face.session import Session as Session
    from perdure.settings import Settings as Settings
    from perdure.transcript.messages import Message as Message
    from perdure.transcript.messages import Usage as Usage

# name -> where it is defined; loaded when it is first used, so that the import stays light (LIB-6)
_FACE = {
    "Agent": "face.agent",
    "CompactionResult": "face.session",
    "ContextView": "context.view",
    "Message": "transcript.messages",
    "PerdureError": "errors",
    "Permissions": "face.agent",
    "PreparedRequest": "engine.turn",
    "Reply": "context.replies",
    "Session": "face.session",
    "Settings": "settings",
    "SharedStore": "face.homes",
    "Tool": "agent.tools.tool",
    "Usage": "transcript.messages",
    "connect": "face.connecting",
    "memory_tool": "engine.tools",
    "recall_tool": "engine.tools",
}

__version__ = "0.1.0"
__all__ = sorted(_FACE)  # noqa: PLE0605 - the table above is the one list of public names


def __getattr__(name: str) -> Any:
    if name not in _FACE:
        raise AttributeError(f"module 'perdure' has no attribute {name!r}")
    value = getattr(import_module(f"perdure.{_FACE[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_FACE])
