"""The server of a project on its transports: standard input and output, for the client that starts it, and HTTP."""

from __future__ import annotations

import hmac
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import uvicorn
from anyio.abc import TaskStatus
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings
from starlette.responses import JSONResponse

from perdure.adapters.config import Config
from perdure.adapters.listening import ListeningServer, foreign_page
from perdure.mcp.server import ProjectServer

if TYPE_CHECKING:
    from perdure.mcp.project import ServedProject


def project_server(
    config: Config,
    folder: Path,
    *,
    is_everywhere: bool = False,
    saves_at_once: bool = False,
    logs_of: Mapping[str, str] | None = None,
) -> ProjectServer:
    """The server of a project.

    Args:
        config: The settings that hold in its folder.
        folder: The project's.
        is_everywhere: Whether the sessions of all projects may be searched and recalled.
        saves_at_once: Whether what a model writes is saved without asking the user.
        logs_of: The environment by which clients find their own logs, if those are to be read, too.
    """

    def open_project() -> ServedProject:
        from perdure.mcp.project import ServedProject  # half a second's worth of modules, behind the first answers

        logs = None
        if logs_of is not None:
            from perdure.mcp.client_logs import ClientLogs

            logs = ClientLogs(config.home, config.settings, folder, logs_of)
        return ServedProject(config, folder, is_everywhere=is_everywhere, saves_at_once=saves_at_once, logs=logs)

    is_writable = config.settings.memory_mode in ("ask", "auto")
    return ProjectServer(open_project, has_memories=config.settings.memory, is_writable=is_writable)


async def serve_stdio(offered: ProjectServer, *, on_ready: Callable[[], None]) -> None:
    """Serve the client at the other end of standard input and output until it closes them, or ends this process.

    `on_ready` is called once Ctrl-C ends it.
    """
    async with anyio.create_task_group() as tasks:
        await tasks.start(_end_when_told)
        on_ready()
        async with stdio_server() as (incoming, outgoing):
            await offered.server.run(incoming, outgoing, offered.server.create_initialization_options())
        tasks.cancel_scope.cancel()


async def _end_when_told(*, task_status: TaskStatus[None]) -> None:
    """End at once: a thread waits for the client's next line, and nothing but that wakes it.

    What a call writes meanwhile is as safe as from a `kill -9` (REL-7).
    """
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for _ in signals:
            os._exit(0)


_MOST_SESSIONS = 100  # of clients with a handshake, each with its streams
_IDLE_SECONDS = 1_800.0
_CLOSING_SECONDS = 2


async def serve_http(
    offered: ProjectServer,
    host: str,
    port: int,
    *,
    token: str | None,
    allowed_hosts: tuple[str, ...],
    on_ready: Callable[[str], None],
) -> None:
    """Serve any number of clients at `/mcp` until SIGINT or SIGTERM.

    Args:
        offered: What is served.
        host: The address to listen on.
        port: The port; 0 takes a free one.
        token: What each request has to carry as its bearer token; None: nothing.
        allowed_hosts: Names beside the loopback's that a Host header may say.
        on_ready: Is told the address.

    Raises:
        BadSetting: Nothing can listen there.
    """
    inner = offered.server.streamable_http_app(
        max_sessions=_MOST_SESSIONS,
        session_idle_timeout=_IDLE_SECONDS,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),  # by `_GuardedApp`
    )
    options = uvicorn.Config(
        _GuardedApp(inner, token, allowed_hosts),
        host=host,
        port=port,
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_CLOSING_SECONDS,
    )
    await ListeningServer(options, lambda url: on_ready(f"{url}/mcp")).serve()


class _GuardedApp:
    """An ASGI application behind the gateway's rules of who may ask, and a token (SEC-7)."""

    def __init__(self, inner: Any, token: str | None, allowed_hosts: tuple[str, ...]) -> None:
        self._inner, self._allowed_hosts = inner, allowed_hosts
        self._wanted = None if token is None else f"bearer {token}".encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        await (self._inner if refusal is None else refusal)(scope, receive, send)

    def _refusal(self, scope: Any) -> JSONResponse | None:
        if foreign := foreign_page(scope["headers"], self._allowed_hosts):
            why = "this host name isn't served here; --allow-host allows it"
            why = why if foreign == "host" else "pages of other sites may not ask"
            return JSONResponse({"error": why}, 421 if foreign == "host" else 403)
        if self._wanted is None:
            return None
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        scheme, _, credential = given.partition(b" ")
        if hmac.compare_digest(scheme.lower() + b" " + credential.strip(), self._wanted):
            return None
        return JSONResponse({"error": "the bearer token is missing or wrong"}, 401, {"www-authenticate": "Bearer"})
