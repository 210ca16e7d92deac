"""The only place where adapters meet the engine: sessions, agents and models on this machine, or in memory."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perdure.wiring.agents import agent as agent
    from perdure.wiring.agents import file_checkpoints as file_checkpoints
    from perdure.wiring.memories import guarded_memory as guarded_memory
    from perdure.wiring.memories import project_memories as project_memories
    from perdure.wiring.parts import SessionOptions as SessionOptions
    from perdure.wiring.parts import background as background
    from perdure.wiring.parts import command_session as command_session
    from perdure.wiring.parts import connect_models as connect_models
    from perdure.wiring.parts import connected as connected
    from perdure.wiring.parts import memory_session as memory_session
    from perdure.wiring.remembering import memories_of as memories_of
    from perdure.wiring.sessions import create_session as create_session
    from perdure.wiring.sessions import fork_session as fork_session
    from perdure.wiring.sessions import open_session as open_session
    from perdure.wiring.sessions import with_notes as with_notes

# name -> where it is defined; a program that keeps a conversation in memory loads nothing for disks (LIB-6)
_WIRED = {
    "SessionOptions": "parts",
    "agent": "agents",
    "background": "parts",
    "command_session": "parts",
    "connect_models": "parts",
    "connected": "parts",
    "create_session": "sessions",
    "file_checkpoints": "agents",
    "fork_session": "sessions",
    "guarded_memory": "memories",
    "memories_of": "remembering",
    "memory_session": "parts",
    "open_session": "sessions",
    "project_memories": "memories",
    "with_notes": "sessions",
}
__all__ = sorted(_WIRED)  # noqa: PLE0605 - the table above is the one list of names


def __getattr__(name: str) -> Any:
    if name not in _WIRED:
        raise AttributeError(f"module 'perdure.wiring' has no attribute {name!r}")
    value = getattr(import_module(f"perdure.wiring.{_WIRED[name]}"), name)
    globals()[name] = value
    return value
