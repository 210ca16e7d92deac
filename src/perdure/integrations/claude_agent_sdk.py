"""The Claude Agent SDK: sessions kept in Perdure's home, a record beside each summary, and recall and memory as tools
(LIB-4).

The SDK's own program holds the conversation and compacts it; what is said here is read from the transcript that it
writes. So a session of ours follows that transcript, and answers what the tools ask.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
from claude_agent_sdk import (
    ClaudeAgentOptions,
    HookMatcher,
    SdkMcpTool,
    SessionKey,
    SessionStoreEntry,
    SessionStoreListEntry,
    SessionSummaryEntry,
    create_sdk_mcp_server,
    fold_session_summary,
)

from perdure import prompts
from perdure.adapters.journal.store import SessionStore as Sessions
from perdure.adapters.journal.store import id_for
from perdure.adapters.transcripts import Entry, TranscriptFolder
from perdure.compaction.logged import record_of
from perdure.compaction.parts import PARTS, fitted_parts
from perdure.engine.imports import import_recording
from perdure.engine.tools import memory_tool, recall_tool
from perdure.errors import BadSetting, PerdureError, SessionNotFound
from perdure.face.homes import home_folder, path_of
from perdure.face.session import Session
from perdure.logs.claude_code import is_shown_again
from perdure.logs.detect import read_recordings
from perdure.logs.recording import RecordedMessage, Recording
from perdure.settings import Settings

_LOG = logging.getLogger("perdure")
SERVER: Final = "perdure"  # the tools are mcp__perdure__recall and mcp__perdure__memory
FOLDER: Final = "transcripts"  # of the home
_HOOK_SECONDS: Final = 60.0
_Answer = dict[str, Any]


class PerdureSessionStore:
    """A session store of the Claude Agent SDK that keeps transcripts in Perdure's home.

    They lie there as Claude Code keeps its own, so `perdure import`, `search` and `report` read them.

    Args:
        home: where Perdure keeps things; by default where the `perdure` command does.

    Example:
        options = ClaudeAgentOptions(session_store=PerdureSessionStore(), resume=session_id)
    """

    def __init__(self, home: str | Path | None = None) -> None:
        self.home = home_folder(home)
        self._folder = TranscriptFolder(self.home / FOLDER)

    async def append(self, key: SessionKey, entries: Sequence[SessionStoreEntry]) -> None:
        """Keep entries of a transcript, durably, but for those that are there already.

        Args:
            key: of the session, or of what belongs to it.
            entries: in order.

        Raises:
            NameRefused: the key can't be the name of a file.
            OSError: the disk refuses.
        """
        fold = None if key.get("subpath") else partial(_folded, key)
        await anyio.to_thread.run_sync(self._folder.append, _parts(key), entries, fold)

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """All entries of a transcript; None where there is none.

        Args:
            key: as for `append`.

        Raises:
            NameRefused: the key can't be the name of a file.
            OSError: the disk refuses.
        """
        found: list[SessionStoreEntry] | None = await anyio.to_thread.run_sync(self._folder.load, _parts(key))
        return found

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """The sessions of a project, each with the time of its last entry.

        Args:
            project_key: as the SDK's `project_key_for_directory` makes it.
        """
        found = await anyio.to_thread.run_sync(self._folder.sessions, project_key)
        return [{"session_id": session, "mtime": mtime} for session, mtime in found]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """What the SDK shows of the sessions of a project, without reading them.

        Args:
            project_key: as for `list_sessions`.
        """
        found = await anyio.to_thread.run_sync(self._folder.summaries, project_key)
        return [{"session_id": session, "mtime": mtime, "data": data} for session, mtime, data in found]

    async def delete(self, key: SessionKey) -> None:
        """Delete a transcript, and with a session everything that belongs to it, what was imported from it among that.

        Args:
            key: as for `append`.

        Raises:
            SessionBusy: the session is being written to just now; nothing was deleted.
        """
        await anyio.to_thread.run_sync(self._delete, key)

    async def list_subkeys(self, key: Mapping[str, Any]) -> list[str]:
        """What belongs to a session, such as the transcripts of its sub-agents.

        Args:
            key: of the session.
        """
        return await anyio.to_thread.run_sync(self._folder.belongings, key["project_key"], key["session_id"])

    def _delete(self, key: SessionKey) -> None:
        if not key.get("subpath"):
            sessions = Sessions(self.home)
            followed = [one for one in sessions.directories() if one.name == id_for(key["session_id"])]
            if len(followed) == 1:  # not by `delete` of a name, which may be a part of another's, or a path
                sessions.delete(followed[0])
        self._folder.delete(_parts(key))


class PerdureMemory:
    """What a conversation of the Claude Agent SDK gets from Perdure: a store, a record at each compaction, and tools.

    One conversation at a time; for several at once, make one for each. Use it with `async with`, or `close` it.

    Args:
        project: the folder that the conversation is about: its memories and other sessions are found.
        home: where Perdure keeps things; by default where the `perdure` command does.
        settings: as `Session.create` takes them.

    Example:
        async with PerdureMemory(".") as memory:
            options = memory.options(ClaudeAgentOptions(allowed_tools=["Bash"]))
            async for message in query(prompt="Fix the failing test.", options=options):
                print(message)
    """

    def __init__(
        self,
        project: str | Path = ".",
        *,
        home: str | Path | None = None,
        settings: Settings | Mapping[str, Any] | None = None,
    ) -> None:
        self.project = Path(path_of(project, "project"))
        self.store = PerdureSessionStore(home)
        self._settings = settings
        self._lock = anyio.Lock()
        self._session: Session | None = None
        self._id = ""  # of the conversation, as the SDK names it
        self._transcript = Path()
        self._size = -1  # of the transcript, when it was read last
        self._due: dict[int, str] = {}  # the parts of a record that their hooks didn't ask for yet

    def options(self, given: ClaudeAgentOptions | None = None) -> ClaudeAgentOptions:
        """Options for `query` or a client, with Perdure's parts added to them.

        Args:
            given: options of your own, which stay as they are.

        Returns:
            New options. A session store that is given stays, and so do other hooks, servers and allowed tools.

        Raises:
            BadSetting: another server has the name `perdure`, or the servers are in a file.
        """
        given = given or ClaudeAgentOptions()
        if not isinstance(given.mcp_servers, dict) or SERVER in given.mcp_servers:
            raise BadSetting(f"mcp_servers must be a dict without {SERVER!r}, so that Perdure's own can be added")
        mine: dict[str, list[Callable[..., Awaitable[_Answer]]]] = {
            "UserPromptSubmit": [self._began],
            "PreCompact": [self._before_compaction],
            "SessionStart": [partial(self._started, part) for part in range(PARTS)],
        }
        hooks: dict[Any, list[HookMatcher]] = {name: list(some) for name, some in (given.hooks or {}).items()}
        for name, some in mine.items():
            hooks.setdefault(name, []).append(HookMatcher(hooks=[*map(_harmless, some)], timeout=_HOOK_SECONDS))
        tools = (_tool(recall_tool.definition, self._recall), _tool(memory_tool.definition, self._remember))
        return replace(
            given,
            session_store=given.session_store or (None if given.enable_file_checkpointing else self.store),
            hooks=hooks,
            mcp_servers={**given.mcp_servers, SERVER: create_sdk_mcp_server(SERVER, tools=list(tools))},
            allowed_tools=[*given.allowed_tools, *(f"mcp__{SERVER}__{tool.name}" for tool in tools)],
        )

    async def session(self) -> Session:
        """The conversation as a session of Perdure, with all that its transcript says by now.

        Returns:
            A session to search, recall from and look at. What is said in it isn't said to the SDK's agent.

        Raises:
            SessionNotFound: no conversation has begun.
            JournalError: it can't be kept, or another process is writing it.
        """
        async with self._followed() as session:
            return session

    async def close(self) -> None:
        """Let go of the session. What was said stays; twice is no mistake."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def __aenter__(self) -> PerdureMemory:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    # --- the transcript -----------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _followed(self) -> AsyncIterator[Session]:
        """The session as the transcript is by now; nobody else uses it meanwhile."""
        async with self._lock:
            if not self._id:
                raise SessionNotFound("no conversation has begun: give this memory's options to query or a client")
            if self._session is None:
                self._session = await Session.named(
                    self._id, self.project, home=self.store.home, settings=self._settings
                )
            await self._follow(self._session)
            yield self._session

    async def _follow(self, session: Session) -> None:
        """Say what came to the transcript since it was read last."""
        try:
            data = await anyio.to_thread.run_sync(self._transcript.read_bytes)
        except FileNotFoundError:
            return  # nothing was said yet
        if len(data) == self._size:
            return
        recording = await anyio.to_thread.run_sync(self._recording, data)
        if recording is not None:
            loaded = await session.ports.journal.load(whole=True)
            known = [placed.record for placed in loaded.records]
            await import_recording(session, recording, data, file=self._transcript.name, known=known, keeps_log=False)
        self._size = len(data)

    def _recording(self, data: bytes) -> Recording | None:
        found = [one for one in read_recordings(data, self._transcript.name) if one.messages]
        recording = next((one for one in found if one.session == self._id), next(iter(found), None))
        if recording is None:
            return None
        said = (
            one for one in recording.steps if not (isinstance(one, RecordedMessage) and is_shown_again(one.message))
        )
        return replace(recording, steps=tuple(said))

    # --- hooks --------------------------------------------------------------------------------------------------------

    async def _began(self, told: Mapping[str, Any], *_: object) -> _Answer:
        """Learn which conversation it is."""
        if (named := str(told["session_id"])) != self._id:
            async with self._lock:
                await self.close()
                self._id, self._size = named, -1
        self._transcript = Path(told["transcript_path"])
        return {}

    async def _before_compaction(self, told: Mapping[str, Any], *more: object) -> _Answer:
        """Take in what the agent is about to forget."""
        await self._began(told, *more)
        self._due.clear()
        await self.session()
        return {}

    async def _started(self, part: int, told: Mapping[str, Any], *more: object) -> _Answer:
        """Behind a compaction, give a part of our record of what was forgotten; the first to come makes all of them."""
        await self._began(told, *more)
        if told.get("source") != "compact":
            return {}
        async with self._followed() as session:
            if part not in self._due:
                self._due = dict(enumerate(await anyio.to_thread.run_sync(_record_parts, session)))
            text = self._due.pop(part, None)
        return {"hookSpecificOutput": {"hookEventName": "SessionStart", "additionalContext": text}} if text else {}

    # --- tools --------------------------------------------------------------------------------------------------------

    async def _recall(self, arguments: dict[str, Any]) -> _Answer:
        async with self._followed() as session:
            text = await recall_tool.run(session, arguments)
        return {"content": [{"type": "text", "text": text}]}

    async def _remember(self, arguments: dict[str, Any]) -> _Answer:
        async with self._followed() as session:
            done = await memory_tool.run(session, arguments)
        return {"content": [{"type": "text", "text": done.text}], "is_error": done.is_error}


def _parts(key: Mapping[str, Any]) -> tuple[str, ...]:
    subpath = key.get("subpath")
    return (key["project_key"], key["session_id"], *(subpath.split("/") if subpath else ()))


def _folded(key: SessionKey, before: dict[str, Any] | None, entries: Sequence[Entry]) -> dict[str, Any]:
    told: Any = before and {"session_id": key["session_id"], "mtime": 0, "data": before}
    data: dict[str, Any] = fold_session_summary(told, key, list(entries))["data"]
    return data


def _record_parts(session: Session) -> list[str]:
    def rendered(tokens: int) -> str:
        record = record_of(session.view, session.settings, tokens, secret_key=session.ports.secret_key)
        return prompts.render("record_beside_summary", tool=f"mcp__{SERVER}__{recall_tool.name}", record=record)

    return fitted_parts(rendered)


def _harmless(hook: Callable[..., Awaitable[_Answer]]) -> Any:
    """The hook, such that the agent goes on without it when it can't do its part."""

    async def called(told: Mapping[str, Any], *more: object) -> _Answer:
        try:
            return await hook(told, *more)
        except (PerdureError, OSError) as e:
            _LOG.warning("%s of the Claude Agent SDK: %s", told.get("hook_event_name"), e)
            return {}

    return called


def _tool(definition: Mapping[str, Any], answer: Callable[[dict[str, Any]], Awaitable[_Answer]]) -> SdkMcpTool[Any]:
    """A tool of ours as the SDK takes it; what goes wrong is said to the model."""

    async def handler(arguments: dict[str, Any]) -> _Answer:
        try:
            return await answer(arguments)
        except PerdureError as e:
            return {"content": [{"type": "text", "text": f"{definition['name']} failed: {e}"}], "is_error": True}

    return SdkMcpTool(definition["name"], definition["description"], dict(definition["input_schema"]), handler)
