"""The server that an editor starts: it reads requests of the protocol, and answers each, also the odd ones (ACP-1)."""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import anyio
import msgspec
from acp.agent.router import build_agent_router
from acp.connection import Connection
from acp.exceptions import RequestError
from acp.schema import (
    AudioContentBlock,
    BlobResourceContents,
    EmbeddedResourceContentBlock,
    ImageContentBlock,
    ResourceContentBlock,
    TextContentBlock,
)
from pydantic import ValidationError

from perdure.acp.session import MODES, EditorLink, EditorSession, Wording
from perdure.adapters.config import home_of
from perdure.adapters.journal.store import SessionStore
from perdure.adapters.machine.system import STOP_SIGNALS
from perdure.context.reminders import attached_file
from perdure.context.reminders import name as shown_name
from perdure.errors import PerdureError
from perdure.transcript.blocks import IMAGE_TYPES, text_block
from perdure.transcript.messages import Message
from perdure.wiring.factory import AgentFactory, project_of

VERSION = 1  # of the protocol on the wire
_MOST_LINE = 64 * 1024 * 1024  # bytes of one request: pictures come within
_LISTED = 50  # sessions on a page
_CLOSING_SECONDS = 5  # in which an editor that hung up may still read what is said at the end

PromptBlock = (
    TextContentBlock | ImageContentBlock | AudioContentBlock | ResourceContentBlock | EmbeddedResourceContentBlock
)


@dataclass(frozen=True, slots=True)
class FolderAgents:
    """What makes agents for a folder, entered to find its models, and what a person should know of it before."""

    factory: AbstractAsyncContextManager[AgentFactory]
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class EditorServer:
    """The methods of the protocol, by the names that the SDK's router calls. `agents_in` makes agents for a folder."""

    agents_in: Callable[[Path], FolderAgents]
    wording: Wording
    version: str
    connection: Connection | None = None
    reports: bool = False
    _open: dict[str, tuple[EditorSession, AsyncExitStack]] = field(default_factory=dict)
    _opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    _unanswered: dict[asyncio.Task[Any], EditorSession] = field(default_factory=dict)

    # --- the connection -----------------------------------------------------------------------------------------------

    def heard(self, method: str, params: Any) -> None:
        """See a request as it came: the SDK doesn't know yet that a client can show compactions."""
        if method == "initialize" and isinstance(params, dict):
            found: Any = params
            for name in ("clientCapabilities", "session", "compaction"):
                found = found.get(name) if isinstance(found, dict) else None
            self.reports = isinstance(found, dict)

    def _link(self) -> EditorLink:
        assert self.connection is not None

        async def request(method: str, params: dict[str, Any]) -> Any:
            assert self.connection is not None
            try:
                return await self.connection.send_request(method, params)
            except RequestError as e:
                raise PerdureError(f"the editor refused {method}: {e}") from None

        return EditorLink(self.connection.send_notification, request, self.wording, self.reports)

    async def close(self) -> None:
        """Close every session; what runs in them is interrupted."""
        with anyio.CancelScope(shield=True):
            for name in tuple(self._open):
                await self._close(name)

    async def _close(self, name: str) -> None:
        session, stack = self._open.pop(name)
        try:
            await session.close()
        finally:
            await stack.aclose()

    # --- sessions -----------------------------------------------------------------------------------------------------

    async def initialize(self, protocol_version: int, **_: Any) -> dict[str, Any]:
        return {
            "protocolVersion": VERSION,
            "agentInfo": {"name": "perdure", "title": "Perdure", "version": self.version},
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
                "mcpCapabilities": {"http": False, "sse": False},
                "sessionCapabilities": {"list": {}, "resume": {}, "close": {}},
            },
            "authMethods": [],
        }

    async def new_session(self, cwd: str, mcp_servers: Sequence[Any] | None = None, **_: Any) -> dict[str, Any]:
        session = await self._opened(_folder(cwd), None, mcp_servers)
        return {"sessionId": session.id, "modes": session.modes()}

    async def load_session(
        self, cwd: str, session_id: str, mcp_servers: Sequence[Any] | None = None, **_: Any
    ) -> dict[str, Any]:
        session = await self._continued(cwd, session_id, mcp_servers)
        await session.replay()
        return {"modes": session.modes()}

    async def resume_session(
        self, session_id: str, cwd: str, mcp_servers: Sequence[Any] | None = None, **_: Any
    ) -> dict[str, Any]:
        session = await self._continued(cwd, session_id, mcp_servers)
        return {"modes": session.modes()}

    async def close_session(self, session_id: str, **_: Any) -> dict[str, Any]:
        self._known(session_id)
        await self._close(session_id)
        return {}

    async def list_sessions(self, cwd: str | None = None, cursor: str | None = None, **_: Any) -> dict[str, Any]:
        if cursor is not None and not (cursor.isdecimal() and len(cursor) < 10):
            raise _invalid(f"cursor: {cursor[:80]!r} is none that this agent gave")
        store, start = SessionStore(home_of(os.environ)), int(cursor or 0)
        project = str(_folder(cwd)) if cwd is not None else None
        found = await anyio.to_thread.run_sync(store.list, project)
        page: dict[str, Any] = {
            "sessions": [
                {
                    "sessionId": one.id,
                    "cwd": one.project,
                    "title": one.title or one.last_prompt or "",
                    **_updated(one.modified),
                }
                for one in found[start : start + _LISTED]
            ]
        }
        if start + _LISTED < len(found):
            page["nextCursor"] = str(start + _LISTED)
        return page

    async def _continued(self, cwd: str, name: str, servers: Sequence[Any] | None) -> EditorSession:
        """A session that is there, opened again; one that this editor has open already stays as it is."""
        folder = _folder(cwd)
        if name in self._open:
            return self._known(name)
        try:
            directory = SessionStore(home_of(os.environ)).named(name)
        except PerdureError as e:
            raise self._refused(e) from None
        if directory.name != name:
            raise _invalid(f"sessionId: there is no session {name[:80]!r}")
        return await self._opened(project_of(directory) or folder, directory, servers)

    async def _opened(self, folder: Path, directory: Path | None, servers: Sequence[Any] | None) -> EditorSession:
        async with self._opening:  # two requests for one session are two for the same one
            if directory is not None and directory.name in self._open:
                return self._known(directory.name)
            async with AsyncExitStack() as stack:
                try:
                    here = self.agents_in(folder)
                    factory = await stack.enter_async_context(here.factory)
                    notes = [*here.notes, *factory.told]
                    if servers:
                        names = ", ".join(str(getattr(one, "name", "")) for one in servers)
                        notes.append(f"MCP servers of the editor aren't used by Perdure's agent: {names}")
                    session = await EditorSession.opened(self._link(), factory, directory, notes)
                except PerdureError as e:
                    raise self._refused(e) from None
                self._open[session.id] = session, stack.pop_all()
        if (task := asyncio.current_task()) is not None:
            self._unanswered[task] = session
        return session

    def sent(self) -> None:
        """A message went out: an editor knows a session once the request that opened it, which this task works on, was
        answered; then it hears of the commands."""
        if (task := asyncio.current_task()) is not None and (session := self._unanswered.pop(task, None)) is not None:
            session.introduce()

    def _known(self, name: str) -> EditorSession:
        if name not in self._open:
            raise _invalid(f"sessionId: {name[:80]!r} isn't open here; load it or resume it first")
        return self._open[name][0]

    # --- prompts ------------------------------------------------------------------------------------------------------

    async def prompt(self, session_id: str, prompt: Sequence[PromptBlock], **_: Any) -> dict[str, Any]:
        session = self._known(session_id)
        if session.is_at_work:
            raise RequestError(-32600, "a prompt is being worked on in this session: cancel it, or wait for its end")
        said, text, attached = _read(prompt)
        try:
            return {"stopReason": await session.prompt(said, text, attached)}
        except PerdureError as e:
            raise self._refused(e) from None

    async def cancel(self, session_id: str, **_: Any) -> None:
        if session_id in self._open:
            self._known(session_id).cancel()

    async def set_session_mode(self, session_id: str, mode_id: str, **_: Any) -> dict[str, Any]:
        if not self._known(session_id).set_mode(mode_id):
            raise _invalid(f"modeId: {mode_id[:80]!r} is none of {', '.join(name for name, _, _ in MODES)}")
        return {}

    def _refused(self, error: PerdureError) -> RequestError:
        return RequestError(-32603, self.wording.error(error))


def _updated(at: float) -> dict[str, str]:
    try:
        return {"updatedAt": datetime.fromtimestamp(at, UTC).isoformat()}
    except (ValueError, OverflowError, OSError):  # a file may be of any year
        return {}


def _invalid(text: str) -> RequestError:
    return RequestError(-32602, text)


def _misfit(error: ValidationError) -> RequestError:
    """What is wrong with a request, in a line: the SDK would send back all that it holds."""
    first = error.errors(include_input=False, include_url=False, include_context=False)[0]
    return _invalid(f"{'.'.join(map(str, first['loc']))[:200]}: {first['msg'][:200]}")


def _folder(cwd: str) -> Path:
    path = Path(cwd)
    try:
        is_there = "\0" not in cwd and path.is_absolute() and path.is_dir()
    except OSError:  # too long, or in a place where nobody may look
        is_there = False
    if not is_there:
        raise _invalid(f"cwd: {cwd[:200]!r}: give the absolute path of a folder that is there")
    return path


def _read(blocks: Iterable[PromptBlock]) -> tuple[Message, str, list[Message]]:
    """A prompt as a message, its words, and what it brings along: quoted, as files may say anything (SEC-1)."""
    content: list[Any] = []
    attached: list[Message] = []
    words: list[str] = []
    for block in blocks:
        if isinstance(block, TextContentBlock):
            words.append(block.text)
            content.append(text_block(block.text))
        elif isinstance(block, ImageContentBlock):
            content.append(_image(block))
        elif isinstance(block, ResourceContentBlock):
            words.append(f"@{shown_name(_place(block.uri))}")
            content.append(text_block(words[-1]))
        elif isinstance(block, EmbeddedResourceContentBlock):
            if isinstance(block.resource, BlobResourceContents):
                raise _invalid(f"prompt: {block.resource.uri[:200]}: only texts can be attached")
            words.append(f"@{shown_name(_place(block.resource.uri))}")
            content.append(text_block(words[-1]))
            attached.append(attached_file(_place(block.resource.uri), block.resource.text))
        else:
            raise _invalid("prompt: audio can't be read here, as promptCapabilities says")
    is_all_words = len(words) == len(content)  # pictures bring none
    if is_all_words and not any(word.strip() for word in words):
        raise _invalid("prompt: it is empty")
    return Message.of("user", content), "\n".join(words), attached


def _image(block: ImageContentBlock) -> dict[str, Any]:
    if block.mime_type not in IMAGE_TYPES:
        raise _invalid(f"prompt: {block.mime_type[:80]!r}: give a picture as {', '.join(IMAGE_TYPES)}")
    try:
        base64.b64decode(block.data, validate=True)
    except (binascii.Error, ValueError):
        raise _invalid("prompt: the data of a picture isn't base64") from None
    return {"type": "image", "source": {"type": "base64", "media_type": block.mime_type, "data": block.data}}


def _place(uri: str) -> str:
    """Where a resource is: the path of a file, else its address."""
    try:
        parts = urlsplit(uri)
    except ValueError:  # such as http://[x
        return uri
    return unquote(parts.path) if parts.scheme == "file" else uri


class MessageLines:
    """The SDK's `Transport`: a message a line. What is no message is answered as the protocol of calls says."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, sent: Callable[[], None]) -> None:
        self._reader, self._writer, self._sent = reader, writer, sent

    async def receive(self) -> dict[str, Any] | None:
        """The next message; None when the editor has hung up."""
        while True:
            try:
                line = await self._reader.readline()
                if not line:
                    return None
                message = msgspec.json.decode(line)
            except (ValueError, RecursionError):  # no JSON, or a line beyond all bounds
                await self._refuse(-32700, "not a message: a line of JSON is expected")
                continue
            if isinstance(message, dict) and "method" not in message:
                if type(message.get("id")) is int:  # as our questions have; anything else answers none of them
                    return _sound_answer(message)
            elif isinstance(message, dict) and isinstance(message["method"], str):
                return message
            else:
                await self._refuse(-32600, "not a message: an object with a method is expected")

    async def _refuse(self, code: int, text: str) -> None:
        await self.send({"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": text}})

    async def send(self, message: dict[str, Any]) -> None:
        self._writer.write(msgspec.json.encode(message) + b"\n")
        try:
            await self._writer.drain()
        except ConnectionError:
            if "method" in message:  # who asks, or tells, has to know; for an answer nobody waits any more
                raise
        self._sent()

    async def close(self) -> None:
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()


def _sound_answer(message: dict[str, Any]) -> dict[str, Any]:
    """An answer whose error, if it is one, is an object, as the SDK takes it to be."""
    return message if isinstance(message.get("error"), dict | None) else {**message, "error": {}}


async def _streams() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Standard input and output. (Of the SDK's, the output waits for ever at a full pipe whose reader is gone.)"""
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader(limit=_MOST_LINE)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), sys.stdout
    )
    return reader, asyncio.StreamWriter(transport, protocol, None, loop)


async def serve(server: EditorServer, *, on_ready: Callable[[], None]) -> None:
    """Speak over standard input and output until the editor hangs up, or the process is told to end.

    `on_ready` is called once Ctrl-C ends it.
    """
    reader, writer = await _streams()
    sys.stdout = sys.stderr  # nothing else may write between the messages
    route = build_agent_router(server, use_unstable_protocol=True)  # type: ignore[arg-type] # plain data is an answer

    async def handle(method: str, params: Any, is_notification: bool) -> Any:
        server.heard(method, params)
        try:
            return await route(method, params, is_notification)
        except ValidationError as e:
            raise _misfit(e) from None

    server.connection = connection = Connection(handle, MessageLines(reader, writer, server.sent), listening=False)
    listening = asyncio.create_task(connection.main_loop())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, *STOP_SIGNALS):
        loop.add_signal_handler(number, listening.cancel)
    on_ready()
    try:
        await listening
    finally:
        loop.call_later(_CLOSING_SECONDS, writer.transport.abort)  # whoever waits to say something goes on
        with anyio.CancelScope(shield=True):
            await server.close()
            await connection.close()
