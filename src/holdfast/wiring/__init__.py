"""The only place where adapters meet the engine: sessions, agents and models on this machine, or in memory."""

from __future__ import annotations

from holdfast.wiring.agents import (
    agent,
    file_checkpoints,
)
from holdfast.wiring.models import (
    connect_models,
    connected,
)
from holdfast.wiring.sessions import (
    Parts,
    background,
    create_session,
    fork_session,
    memory_session,
    open_session,
    project_memories,
    with_notes,
)

__all__ = [
    "Parts",
    "agent",
    "background",
    "connect_models",
    "connected",
    "create_session",
    "file_checkpoints",
    "fork_session",
    "memory_session",
    "open_session",
    "project_memories",
    "with_notes",
]
