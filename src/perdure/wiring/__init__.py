"""The only place where adapters meet the engine: sessions, agents and models on this machine, or in memory."""

from __future__ import annotations

from perdure.wiring.agents import agent, file_checkpoints
from perdure.wiring.models import connect_models, connected
from perdure.wiring.sessions import (
    SessionOptions,
    background,
    create_session,
    fork_session,
    memory_session,
    open_session,
    project_memories,
    with_notes,
)

__all__ = [
    "SessionOptions",
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
