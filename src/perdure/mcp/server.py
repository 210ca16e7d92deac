"""The server of the protocol: what it offers, each call answered, each failure said (MCP-1).

One server speaks the stateless protocol of 2026-07-28 and those with a handshake before it; which one, the first
request of a client says. What the tools need is loaded behind the first answers, so that a client that starts the
server doesn't wait for it.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import anyio.to_thread
import mcp_types as wire
import msgspec
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from perdure import __version__, prompts
from perdure.errors import PerdureError
from perdure.mcp.asking import ask_user, decided
from perdure.mcp.tools import (
    MOST_BYTES,
    TOOLS,
    CallRefused,
    OfferedTool,
    ProposedChange,
    Result,
    as_text,
    schema_of,
)

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
            tasks.start_soon(self._opened_early)
            yield
            tasks.cancel_scope.cancel()

    async def _opened_early(self) -> None:
        with suppress(PerdureError):  # each call says so
            await self._project()

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
    ) -> wire.CallToolResult | wire.InputRequiredResult:
        tool = self._tools.get(asked.name)
        if tool is None:
            raise MCPError(wire.INVALID_PARAMS, f"no tool is called {asked.name[:80]!r}: {', '.join(self._tools)}")
        try:
            arguments, project = tool.arguments(asked.arguments), await self._project()
            result: Result | ProposedChange | wire.InputRequiredResult | None = None
            if tool.is_writing:
                result = await decided(project, asked)
            if result is None:
                result = await project.answer(arguments, _client_of(context), context.session.report_progress)
            if isinstance(result, ProposedChange):
                result = await ask_user(context, project, result, asked)
            return result if isinstance(result, wire.InputRequiredResult) else _succeeded(result)
        except PerdureError as e:
            return _failed(str(e))
        except Exception as e:  # the outermost boundary: whatever happens is one line
            return _failed(f"{tool.name} failed: {_logged(e)}")

    # --- resources

    async def _list_resources(
        self, context: ServerRequestContext[None], asked: wire.PaginatedRequestParams | None
    ) -> wire.ListResourcesResult:
        with _told_as_errors():
            resources = (await self._project()).resources
            page, following = await resources.page(asked.cursor if asked is not None else None)
        shown = [wire.Resource(uri=one.uri, name=one.name, mime_type=_MARKDOWN, size=one.bytes) for one in page]
        return wire.ListResourcesResult(resources=shown, next_cursor=following)

    async def _list_templates(
        self, context: ServerRequestContext[None], asked: wire.PaginatedRequestParams | None
    ) -> wire.ListResourceTemplatesResult:
        _check_cursor(asked)
        with _told_as_errors():
            listed = (await self._project()).resources.templates
        shown = [
            wire.ResourceTemplate(uri_template=uri, name=name, description=about, mime_type=_MARKDOWN)
            for uri, (name, about) in listed.items()
        ]
        return wire.ListResourceTemplatesResult(resource_templates=shown)

    async def _read_resource(
        self, context: ServerRequestContext[None], asked: wire.ReadResourceRequestParams
    ) -> wire.ReadResourceResult:
        with _told_as_errors(uri=asked.uri):
            text = await (await self._project()).resources.text(asked.uri)
        content = wire.TextResourceContents(uri=asked.uri, mime_type=_MARKDOWN, text=text)
        return wire.ReadResourceResult(contents=[content])


@contextmanager
def _told_as_errors(**about: str) -> Iterator[None]:
    """Failures as errors of the protocol, which hosts show."""
    try:
        yield
    except PerdureError as e:
        raise MCPError(wire.INVALID_PARAMS, str(e), about or None) from None
    except Exception as e:  # the outermost boundary: whatever happens is one line
        raise MCPError(wire.INTERNAL_ERROR, _logged(e)) from None


def _logged(error: Exception) -> str:
    """What nobody foresaw, in a word; the log has where it was, and nobody what it says: it may quote what was said."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    _LOG.error("%s in %s, line %s; please report it", type(error).__name__, place.name, place.lineno)
    return f"{type(error).__name__}; the server's log has where"


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


def _succeeded(result: Result) -> wire.CallToolResult:
    encoded = msgspec.json.encode(result)
    if len(encoded) > MOST_BYTES:
        raise CallRefused("the answer is too large: ask for less of it")
    said = wire.TextContent(type="text", text=as_text(result))
    return wire.CallToolResult(content=[said], structured_content=msgspec.json.decode(encoded))


def _failed(why: str) -> wire.CallToolResult:
    """A failure that the model reads."""
    text = why.encode("utf-8", "replace").decode()
    text = text if len(text) <= _MOST_OF_ERROR else f"{text[:_MOST_OF_ERROR]}…"
    return wire.CallToolResult(content=[wire.TextContent(type="text", text=text)], is_error=True)


def _check_cursor(asked: Any) -> None:
    if asked is not None and asked.cursor is not None:
        raise MCPError(wire.INVALID_PARAMS, "cursor: this list has one page: begin without one")
