"""The server of the protocol: what it offers, each call answered, each failure said (MCP-1).

One server speaks the stateless protocol of 2026-07-28 and those with a handshake before it; which one, the first
request of a client says. What the tools need is loaded behind the first answers, so that a client that starts the
server doesn't wait for it.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio.to_thread
import mcp_types as wire
import msgspec
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from perdure import __version__, prompts
from perdure.errors import PerdureError
from perdure.mcp.tools import MOST_BYTES, TOOLS, CallRefused, OfferedTool, as_text, schema_of

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

    from perdure.mcp.project import ServedProject

_LOG = logging.getLogger("perdure.mcp")
_MARKDOWN = "text/markdown"
_MOST_OF_ERROR = 600  # characters: it may quote what it was given


class ProjectServer:
    """One project, offered to any number of clients.

    `open_project` loads what the tools need, and `is_writable` says whether memories may be changed at all.
    """

    def __init__(self, open_project: Callable[[], ServedProject], *, has_memories: bool, is_writable: bool) -> None:
        self._open = open_project
        self._opened: ServedProject | None = None
        self._opening = anyio.Lock()
        self._tools = {
            name: tool
            for name, tool in TOOLS.items()
            if not name.startswith("memory_") or (has_memories and (is_writable or not tool.is_writing))
        }
        self.server: Server[None] = Server(
            "perdure",
            version=__version__,
            title="Perdure",
            instructions=prompts.source("mcp_instructions"),
            lifespan=self._lived,
            get_tool_input_schema=lambda name: schema_of(self._tools[name].takes) if name in self._tools else None,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
        )

    @asynccontextmanager
    async def _lived(self, server: Server[None]) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._project)
            yield
            tasks.cancel_scope.cancel()

    async def _project(self) -> ServedProject:
        async with self._opening:
            if self._opened is None:
                self._opened = await anyio.to_thread.run_sync(self._open)
            return self._opened

    # --- tools

    async def _list_tools(
        self, context: ServerRequestContext[None], asked: wire.PaginatedRequestParams | None
    ) -> wire.ListToolsResult:
        _check_cursor(asked)
        return wire.ListToolsResult(tools=[_described(tool) for tool in self._tools.values()])

    async def _call_tool(
        self, context: ServerRequestContext[None], asked: wire.CallToolRequestParams
    ) -> wire.CallToolResult:
        tool = self._tools.get(asked.name)
        if tool is None:
            raise MCPError(wire.INVALID_PARAMS, f"no tool is called {asked.name[:80]!r}: {', '.join(self._tools)}")
        try:
            arguments = tool.arguments(asked.arguments)
            result = await (await self._project()).answer(
                arguments, _client_of(context), context.session.report_progress
            )
            encoded = msgspec.json.encode(result)
            if len(encoded) > MOST_BYTES:
                raise CallRefused("the answer is too large: ask for less of it")
        except PerdureError as e:
            return _failed(str(e))
        except (OSError, ValueError, RecursionError, MemoryError) as e:  # a disk or a file that nobody foresaw
            _LOG.error("%s: %s: %s", tool.name, type(e).__name__, e)
            return _failed(f"{tool.name} failed: {type(e).__name__}: the log of `perdure mcp` says more")
        said = wire.TextContent(type="text", text=as_text(result))
        return wire.CallToolResult(content=[said], structured_content=msgspec.json.decode(encoded))

    # --- resources

    async def _list_resources(
        self, context: ServerRequestContext[None], asked: wire.PaginatedRequestParams | None
    ) -> wire.ListResourcesResult:
        project = await self._project()
        try:
            page, following = await project.resources.page(asked.cursor if asked is not None else None)
        except PerdureError as e:
            raise MCPError(wire.INVALID_PARAMS, str(e)) from None
        shown = [wire.Resource(uri=one.uri, name=one.name, mime_type=_MARKDOWN, size=one.bytes) for one in page]
        return wire.ListResourcesResult(resources=shown, next_cursor=following)

    async def _list_templates(
        self, context: ServerRequestContext[None], asked: wire.PaginatedRequestParams | None
    ) -> wire.ListResourceTemplatesResult:
        _check_cursor(asked)
        from perdure.mcp.resources import TEMPLATES

        templates = [
            wire.ResourceTemplate(uri_template=uri, name=name, description=about, mime_type=_MARKDOWN)
            for uri, (name, about) in TEMPLATES.items()
        ]
        return wire.ListResourceTemplatesResult(resource_templates=templates)

    async def _read_resource(
        self, context: ServerRequestContext[None], asked: wire.ReadResourceRequestParams
    ) -> wire.ReadResourceResult:
        project = await self._project()
        try:
            text = await project.resources.text(asked.uri)
        except PerdureError as e:
            raise MCPError(wire.INVALID_PARAMS, str(e), {"uri": asked.uri}) from None
        return wire.ReadResourceResult(
            contents=[wire.TextResourceContents(uri=asked.uri, mime_type=_MARKDOWN, text=text)]
        )


def _described(tool: OfferedTool) -> wire.Tool:
    hints = wire.ToolAnnotations(
        title=tool.title,
        read_only_hint=not tool.is_writing,
        destructive_hint=tool.removes,
        idempotent_hint=tool.removes or not tool.is_writing,
        open_world_hint=False,
    )
    return wire.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=schema_of(tool.takes),
        output_schema=schema_of(tool.gives),
        annotations=hints,
    )


def _client_of(context: ServerRequestContext[None]) -> str:
    """What a client calls itself, as it stands in logs."""
    params = context.session.client_params
    return "".join(c for c in params.client_info.name[:60] if c.isprintable()) if params is not None else "unknown"


def _failed(why: str) -> wire.CallToolResult:
    """A failure that the model reads."""
    text = why.encode("utf-8", "replace").decode()
    text = text if len(text) <= _MOST_OF_ERROR else f"{text[:_MOST_OF_ERROR]}…"
    return wire.CallToolResult(content=[wire.TextContent(type="text", text=text)], is_error=True)


def _check_cursor(asked: Any) -> None:
    if asked is not None and asked.cursor is not None:
        raise MCPError(wire.INVALID_PARAMS, "cursor: this list has one page: begin without one")
