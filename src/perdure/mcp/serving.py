"""The server on its transports: standard input and output, for the client that starts it, and HTTP (MCP-1)."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from mcp.server.stdio import stdio_server

from perdure.adapters.config import Config
from perdure.mcp.server import ProjectServer

if TYPE_CHECKING:
    from perdure.mcp.project import ServedProject


def project_server(
    config: Config, folder: Path, *, is_everywhere: bool = False, saves_at_once: bool = False
) -> ProjectServer:
    """The server of a project.

    Args:
        config: The settings that hold in its folder.
        folder: The project's.
        is_everywhere: Whether the sessions of all projects may be searched and recalled.
        saves_at_once: Whether what a model writes is saved without asking the user.
    """

    def open_project() -> ServedProject:
        from perdure.mcp.project import ServedProject  # half a second's worth of modules, behind the first answers

        return ServedProject(config, folder, is_everywhere=is_everywhere, saves_at_once=saves_at_once)

    is_writable = config.settings.memory_mode in ("ask", "auto")
    return ProjectServer(open_project, has_memories=config.settings.memory, is_writable=is_writable)


async def serve_stdio(offered: ProjectServer) -> None:
    """Serve the client at the other end of standard input and output until it closes them, or ends this process."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_end_when_told)
        async with stdio_server() as (incoming, outgoing):
            await offered.server.run(incoming, outgoing, offered.server.create_initialization_options())
        tasks.cancel_scope.cancel()


async def _end_when_told() -> None:
    """End at once: a thread waits for the client's next line, and nothing but that wakes it.

    What a call writes meanwhile is as safe as from a `kill -9` (REL-7).
    """
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            os._exit(0)
