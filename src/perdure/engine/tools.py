"""The tools that any agent can offer: recall, compaction, memory (RCL-1, CMP-6, MEM-7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import msgspec

from perdure import prompts
from perdure.compaction.plan import is_too_early
from perdure.context.provenance import MEMORY_TOOL
from perdure.context.state import REQUESTED, RequestedCompaction
from perdure.engine.guarded_memory import over_limits
from perdure.engine.remember import MemoryAccess, MemoryMount, MountedPath
from perdure.engine.session import LiveSession
from perdure.errors import (
    FileMissing,
    JournalError,
    MemoryChanged,
    MemoryRefused,
    NameTaken,
    PerdureError,
    SessionNotFound,
    WrongLoop,
)
from perdure.events import CompactionRequested
from perdure.memory.changes import TRUST, Change, DeleteMemory, MemoryProposal, RenameMemory, SaveMemory, WriteResult
from perdure.memory.files import INDEX
from perdure.memory.tool_texts import (
    FROM_OUTSIDE,
    MemoryToolError,
    content,
    directory_listing,
    insert_lines,
    no_such_path_text,
    replace_passage,
)
from perdure.memory.trust.labels import TrustLevel
from perdure.ports.session import Blobs, FoundSessions
from perdure.ports.session import LoadedJournal as Loaded
from perdure.ports.session import SearchHit as Hit
from perdure.ports.session import SearchResults as Found
from perdure.recall.originals import Original, Originals, blob_original
from perdure.recall.queries import (
    LIMIT_CHARS,
    RECALL_TOOL,
    BadRecall,
    RecalledText,
    RecallRequest,
    range_of,
    recalled_part,
)
from perdure.transcript.blocks import encode
from perdure.transcript.messages import BlobId
from perdure.transcript.records import Noted

_BLOB_CHARS = 64
_IDS_NAMED = 5


async def recall(session: LiveSession, wanted: RecallRequest, *, other: str | None = None) -> RecalledText:
    """What an id stands for, in this session or another of its project. Raises `BadRecall` when it is unknown."""
    return recalled_part(await original(session, wanted.id, other=other), wanted)


async def original(session: LiveSession, identity: str, *, other: str | None = None) -> Original:
    """The exact original behind an id, or behind a beginning of one that no other id has."""
    if other is not None:
        if session.ports.archive is None:
            raise BadRecall("no other session can be reached from here")
        loaded, blobs = await session.ports.archive.load(other)
    else:
        if (shown := in_view(session, identity)) is not None:
            return shown
        loaded, blobs = await session.ports.journal.load(whole=True), session.ports.blobs
    return await original_in(loaded, blobs, identity)


def in_view(session: LiveSession, identity: str) -> Original | None:
    """The original of something that is in the view, as said, whatever is shown in its place."""
    view = session.view
    if identity not in view.positions and identity not in view.results:
        return None
    return Originals(item.message for item in view.items).find(identity)


async def original_in(loaded: Loaded, blobs: Blobs, identity: str) -> Original:
    """The same, of a journal that was read."""
    originals = Originals(placed.record for placed in loaded.records)
    named = originals.matching_ids(identity.strip())
    if len(named) > 1:
        more = f" and {len(named) - _IDS_NAMED} more" if len(named) > _IDS_NAMED else ""
        raise BadRecall(
            f"{identity[:80]!r} begins {len(named)} ids: {', '.join(named[:_IDS_NAMED])}{more}; give more of it"
        )
    found = originals.find(named[0]) if named else None
    if found is not None:
        return found
    blob = named[0] if named else identity.strip()
    if len(blob) == _BLOB_CHARS:
        try:
            return blob_original(blob, await blobs.get(BlobId(blob)))
        except JournalError:
            pass  # said below, in the words of who asked
    raise BadRecall(f"nothing here has the id {identity[:80]!r}: search for what it says instead")


async def search(session: LiveSession, query: str, *, limit: int = 10, sessions: tuple[str, ...] = ()) -> Found:
    """Everything that fits a query, in this session and the others of its project, best first."""
    if session.ports.archive is None:
        raise PerdureError("nothing can be searched here: the session has no archive")
    return await session.ports.archive.search(query, limit=limit, sessions=sessions)


async def search_sessions(session: LiveSession, prompt: str, *, limit: int = 5) -> FoundSessions:
    """The other sessions of its project that matter to a prompt, best first (MEM-15)."""
    if session.ports.archive is None:
        raise PerdureError("nothing can be searched here: the session has no archive")
    return await session.ports.archive.sessions(prompt, limit=limit, without={session.id})


_MOST_HITS = 20
_HITS = 8
_ALSO = 5
_RECALL_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "description": "Id of a result, message, summary or stored text; or its beginning."},
        "query": {"type": "string", "description": "Words to search for, instead of an id."},
        "session": {"type": "string", "description": "Another session, as a search result names it."},
        "lines": {"type": "string", "description": 'Lines of the original: "10-20", "10-" or "7".'},
        "pattern": {"type": "string", "description": "Only lines that match this regular expression (RE2)."},
        "chars": {"type": "string", "description": 'Characters of the original: "1-20000".'},
        "limit": {"type": "integer", "description": f"Search results, at most {_MOST_HITS}.", "minimum": 1},
    },
    "additionalProperties": False,
}


def recall_definition(others: str) -> dict[str, Any]:
    """The recall tool as the Messages API takes it; `others` says which other sessions are searched."""
    about = prompts.render("recall_tool", others=others)
    return {"name": RECALL_TOOL, "description": about, "input_schema": _RECALL_SCHEMA}


class RecallTool:
    """The tool by which a model gets back what left its context.

    Attributes:
        name: `recall`, as the model calls it.

    Example:
        await session.set_prefix(tools=[recall_tool])
        await session.append("The number is 7.")
        text = await recall_tool.run(session, {"query": "number"})
        assert "The number is 7." in text
    """

    name = RECALL_TOOL

    @property
    def definition(self) -> dict[str, Any]:
        """As the Messages API takes it; `set_prefix` takes the tool itself."""
        return recall_definition("other sessions of the project")

    @property
    def definition_json(self) -> bytes:
        """The same as bytes, for `Front.tools`."""
        return encode(self.definition)

    async def run(self, session: LiveSession, arguments: Mapping[str, Any] | str) -> str:
        """Answer a call of the model.

        Args:
            session: whose past is asked for.
            arguments: the input of the tool use, or the JSON of it, as OpenAI's APIs give it.

        Returns:
            The content of the result. What can't be done is said in it: a model can only go on from what it reads.

        Example:
            assert "recall failed" in await recall_tool.run(session, {"id": "unknown"})
        """
        _check_face(session, "recall_tool")
        return await recall_answer(session, arguments)


recall_tool = RecallTool()


async def recall_answer(
    session: LiveSession,
    arguments: Mapping[str, Any] | str,
    *,
    within: Sequence[str] | None = None,
    limit_chars: int = LIMIT_CHARS,
) -> str:
    """The content of the result of a call of the recall tool.

    Args:
        session: whose past is asked for.
        arguments: the input of the call, whatever the model wrote there.
        within: the only other sessions that may be looked into, the likeliest first; an id that this session doesn't
            have is looked for in them, too. None: all of the project, if the call names one.
        limit_chars: the most that is given at once.
    """
    try:
        return await _recalled(session, _recall_arguments(arguments), within, limit_chars)
    except PerdureError as e:
        return f"recall failed: {e}"


def _check_face(session: object, tool: str) -> None:
    if not isinstance(session, LiveSession):
        raise WrongLoop(f"{tool}.run takes a session of perdure; for one of perdure.sync, import the tool from there")


def _as_written(arguments: Mapping[str, Any] | str) -> Mapping[str, Any] | None:
    """The arguments of a call, whatever the model wrote there; None where that is no object."""
    given: Any = arguments
    if isinstance(arguments, str):
        try:
            given = msgspec.json.decode(arguments or "{}")
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return None
    return given if isinstance(given, Mapping) else None


def _recall_arguments(written: Mapping[str, Any] | str) -> dict[str, Any]:
    arguments = _as_written(written)
    if arguments is None:
        raise BadRecall("its arguments have to be a JSON object with id or query")
    unknown = sorted(set(arguments) - _RECALL_SCHEMA["properties"].keys())
    if unknown:
        raise BadRecall(f"unknown arguments {', '.join(unknown)}: give id or query")
    given = {name: value for name, value in arguments.items() if value not in (None, "")}
    for name, value in given.items():
        wanted = int if name == "limit" else str
        if isinstance(value, int) and not isinstance(value, bool) and wanted is str:
            given[name] = str(value)  # lines: 7
        elif not isinstance(value, wanted) or isinstance(value, bool):
            raise BadRecall(f"{name} has to be {'a number' if wanted is int else 'a text'}")
    if ("id" in given) == ("query" in given):
        raise BadRecall("give either id or query")
    return given


async def _recalled(session: LiveSession, given: dict[str, Any], within: Sequence[str] | None, limit_chars: int) -> str:
    other = given.get("session")
    if within is not None and other is not None:
        if other != session.id and other not in within:
            raise BadRecall(f"no session {other[:80]!r} can be reached from here")
        other = None if other == session.id else other
    if "query" in given:
        limit = max(1, min(given.get("limit", _HITS), _MOST_HITS))
        reach = (other,) if other else () if within is None else (session.id, *within)
        found = await search(session, given["query"], limit=limit, sessions=reach)
        while found.hits and len(found_text(found, given["query"])) > limit_chars:
            found = replace(found, hits=found.hits[:-1], note="there is no room for more")
        return found_text(found, given["query"])
    wanted = RecallRequest(
        id=given["id"],
        lines=range_of(given["lines"], what="lines") if "lines" in given else None,
        chars=range_of(given["chars"], what="chars") if "chars" in given else None,
        pattern=given.get("pattern"),
        limit_chars=limit_chars,
    )
    try:
        return (await recall(session, wanted, other=other)).framed()
    except BadRecall:
        for linked in within or () if other is None else ():
            with suppress(BadRecall, SessionNotFound, JournalError):
                return (await recall(session, wanted, other=linked)).framed()
        raise


def found_text(found: Found, query: str) -> str:
    """Search results as text: the place of each, and what it says there."""
    note = f"\n[{found.note}]" if found.note else ""
    if not found.hits:
        return f"Nothing that was said fits {query!r}. Try fewer or other words.{note}"
    rows = [_hit_rows(number, hit) for number, hit in enumerate(found.hits, 1)]
    return "\n\n".join(rows) + f'\n\n[recall with id "…" gives the whole; for another session, name it too]{note}'


def _hit_rows(number: int, hit: Hit) -> str:
    who = f"result of {hit.tool}" if hit.role == "tool" and hit.tool else hit.role
    when = f", {_shown_time(hit.at)}" if hit.at is not None else ""
    also = ""
    if hit.also:
        more = f" and {len(hit.also) - _ALSO} more" if len(hit.also) > _ALSO else ""
        also = f"\n   the same text also: {', '.join(f'{s}/{i}' for s, i, _ in hit.also[:_ALSO])}{more}"
    shown = "\n".join(f"   {line}" for line in hit.snippet.split("\n"))
    return f'{number}. id "{hit.id}", session {hit.session}, {who}{when}, line {hit.line}\n{shown}{also}'


def _shown_time(at: float) -> str:
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):
        return "at an unknown time"


COMPACT_TOOL = "compact_context"
_MOST_CHARS = 2_000
_COMPACT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "focus": {"type": "string", "description": "What the record should keep in detail, for the work that follows."}
    },
    "additionalProperties": False,
}
OFF = "Compaction is switched off for this session. Go on without it."
WAITING = "A compaction was asked for already and will be done at the next point where no work is open. Go on."
ACCEPTED = "It will be done at the next point where no work is open. Go on; what was said last stays word for word."


class CompactTool:
    """Has a `definition` for a request's tools, and `run`, which gives the text of the tool's result."""

    name = COMPACT_TOOL

    @property
    def definition(self) -> dict[str, Any]:
        """As the Messages API takes it."""
        return {
            "name": self.name,
            "description": prompts.source("compact_tool").strip(),
            "input_schema": _COMPACT_SCHEMA,
        }

    @property
    def definition_json(self) -> bytes:
        """The same as bytes, for `Front.tools`."""
        return encode(self.definition)

    async def run(self, session: LiveSession, arguments: Mapping[str, Any]) -> str:
        """Answer a call. A request that comes too early is put off once; asked for again, it is accepted."""
        focus = arguments.get("focus") or ""
        if set(arguments) - {"focus"} or not isinstance(focus, str):
            return "compact_context failed: it takes a text, focus, and nothing else"
        if not session.settings.compact:
            return OFF
        before, facts = session.view.state.requested, session.facts()
        if before is not None and before.is_accepted:
            return WAITING
        accepted = before is not None or not is_too_early(session.view, facts)
        wanted = RequestedCompaction(
            focus=focus[:_MOST_CHARS].encode("utf-8", "replace").decode(), is_accepted=accepted
        )
        await session.record(Noted(kind=REQUESTED, data=msgspec.to_builtins(wanted)))
        percent = facts.size(session.view) * 100 // max(1, facts.limits.trigger)
        session.emit(CompactionRequested(accepted, percent))
        if accepted:
            return ACCEPTED
        return (
            f"Not yet: only {percent}% of the room is taken, and a compaction loses detail. Go on with the work. "
            "If you call this again, it will be done."
        )


compact_tool = CompactTool()


COMMANDS = ("view", "create", "str_replace", "insert", "delete", "rename")
_TEXT = {"type": "string"}
_MEMORY_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "command": {"type": "string", "enum": list(COMMANDS)},
        "path": {**_TEXT, "description": "A file or directory, such as /memories/user_role.md; not for rename."},
        "view_range": {
            "type": "array",
            "items": {"type": "integer"},
            "description": "view: first and last line, [10, 20]; -1 for the end.",
        },
        "file_text": {**_TEXT, "description": "create: the whole text."},
        "old_str": {**_TEXT, "description": "str_replace: what stands there now, verbatim."},
        "new_str": {**_TEXT, "description": "str_replace: what is to stand there."},
        "insert_line": {"type": "integer", "description": "insert: the line to put it behind."},
        "insert_text": {**_TEXT, "description": "insert: the text."},
        "old_path": {**_TEXT, "description": "rename: the path now."},
        "new_path": {**_TEXT, "description": "rename: the new path."},
    },
    "required": ["command"],
    "additionalProperties": False,
}
_NEEDED: dict[str, tuple[tuple[str, type], ...]] = {
    "view": (("path", str),),
    "create": (("path", str), ("file_text", str)),
    "str_replace": (("path", str), ("old_str", str)),
    "insert": (("path", str), ("insert_line", int), ("insert_text", str)),
    "delete": (("path", str),),
    "rename": (("old_path", str), ("new_path", str)),
}
_CHANGED = "{path} was changed by somebody else meanwhile: view it, and try again."


@dataclass(frozen=True, slots=True)
class MemoryToolResult:
    """The text of the tool's result, and whether it is an error."""

    text: str
    is_error: bool = False


class MemoryTool:
    """The tool by which a model keeps memories that outlive the session.

    Attributes:
        name: `memory`, as the model calls it.
        native: how Anthropic's API knows the tool by itself.

    Example:
        await session.set_prefix(tools=[memory_tool])
        answer = await memory_tool.run(session, {"command": "view", "path": "/memories"})
        assert answer.is_error  # a session in memory has no memories
    """

    name = MEMORY_TOOL
    native: Mapping[str, str] = {"type": "memory_20250818", "name": MEMORY_TOOL}

    @property
    def definition(self) -> dict[str, Any]:
        """As the Messages API takes it, and what any other model understands."""
        return {"name": self.name, "description": prompts.source("memory_tool"), "input_schema": _MEMORY_SCHEMA}

    @property
    def definition_json(self) -> bytes:
        """The same as bytes, for `Front.tools`."""
        return encode(self.definition)

    async def run(self, session: LiveSession, arguments: Mapping[str, Any] | str) -> MemoryToolResult:
        """Answer a call of the model.

        Args:
            session: whose memories are meant, those of its project and of its user.
            arguments: the input of the tool use, or the JSON of it, as OpenAI's APIs give it.

        Returns:
            `text`, the content of the result, and `is_error`. What can't be done is said in it.

        Example:
            answer = await memory_tool.run(session, {"command": "view", "path": "/memories"})
            print(answer.text)
        """
        _check_face(session, "memory_tool")
        access = session.services.memories
        if access is None:
            return MemoryToolResult("Error: there is no persistent memory in this session", is_error=True)
        try:
            return await _MemoryCommand(session, access, _memory_arguments(arguments)).answer()
        except MemoryToolError as e:
            return MemoryToolResult(str(e), is_error=True)
        except MemoryRefused as e:
            return MemoryToolResult(f"Error: not saved. {e}", is_error=True)
        except PerdureError as e:
            return MemoryToolResult(f"Error: {e}", is_error=True)


memory_tool = MemoryTool()


def _memory_arguments(written: Mapping[str, Any] | str) -> dict[str, Any]:
    """The arguments of a command that are needed and of the right kind."""
    arguments = _as_written(written)
    if arguments is None:
        raise MemoryToolError("Error: its arguments have to be a JSON object with command")
    command = arguments.get("command")
    if command not in COMMANDS:
        raise MemoryToolError(f"Error: command has to be one of {', '.join(COMMANDS)}")
    for name, kind in _NEEDED[command]:
        value = arguments.get(name)
        if not isinstance(value, kind) or isinstance(value, bool):
            what = "a number" if kind is int else "a text"
            raise MemoryToolError(f"Error: {command} needs {name}, {what}")
    new, span = arguments.get("new_str"), arguments.get("view_range")
    if new is not None and not isinstance(new, str):
        raise MemoryToolError("Error: new_str has to be a text")
    if span is not None and not (isinstance(span, list) and all(type(one) is int for one in span)):
        raise MemoryToolError("Error: view_range has to be two numbers")
    return dict(arguments)


@dataclass(frozen=True, slots=True)
class _MemoryCommand:
    session: LiveSession
    access: MemoryAccess
    given: dict[str, Any]

    async def answer(self) -> MemoryToolResult:
        command: str = self.given["command"]
        if command == "view":
            return await self._view(self.given["path"])
        if command == "rename":
            return await self._rename(self.given["old_path"], self.given["new_path"])
        path: str = self.given["path"]
        place = self.access.place(path, writes=True)
        if command == "delete":
            return await self._delete(path, place)
        if command == "create":
            return await self._create(path, place)
        return await self._edit(path, place, command)

    async def _view(self, path: str) -> MemoryToolResult:
        place = self.access.place(path)
        read = await place.mount.memory.store.read(place.name) if place.name else None
        if read is not None:
            text = read.text.encode("utf-8", "replace").decode()
            shown = content(path, text, self.given.get("view_range"))
            known = await place.mount.memory.store.provenance()
            if place.name in known and TRUST[known[place.name].least] is TrustLevel.OUTSIDE:
                shown += f"\n{FROM_OUTSIDE}"
            return MemoryToolResult(shown)
        files = await self._files(place)
        if not files and place.name:
            raise MemoryToolError(no_such_path_text(path, "view"))
        return MemoryToolResult(directory_listing(path, files))

    async def _files(self, place: MountedPath) -> list[tuple[str, int]]:
        """The files at a place and below it, with those of directories that are mounted there."""
        at = place.mount.path(place.name)
        found: list[tuple[str, int]] = []
        for mount in self.access.mounts:
            if mount.right != "none" and (mount is place.mount or mount.at.startswith(f"{at}/")):
                listed = await mount.memory.store.listing()
                found += [(mount.path(one.name), one.bytes) for one in listed.files]
        return [(path, size) for path, size in found if path.startswith(f"{at}/")]

    async def _create(self, path: str, place: MountedPath) -> MemoryToolResult:
        if not place.name or await self._files(place) or await place.mount.memory.store.read(place.name) is not None:
            raise MemoryToolError(f"Error: File {path} already exists")
        change = SaveMemory(name=place.name, text=self.given["file_text"])
        return await self._saved(path, place, change, f"File created successfully at: {path}")

    async def _edit(self, path: str, place: MountedPath, command: str) -> MemoryToolResult:
        read = await place.mount.memory.store.read(place.name) if place.name else None
        if read is None:
            raise MemoryToolError(no_such_path_text(path, command))
        if command == "str_replace":
            text, said = replace_passage(path, read.text, self.given["old_str"], self.given.get("new_str") or "")
        else:
            text, said = insert_lines(path, read.text, self.given["insert_line"], self.given["insert_text"])
        return await self._saved(path, place, SaveMemory(name=place.name, text=text, base=read.text), said)

    async def _saved(self, path: str, place: MountedPath, change: SaveMemory, said: str) -> MemoryToolResult:
        done = await self._made(place.mount, change)
        if isinstance(done, MemoryProposal):
            return MemoryToolResult(_waits(path, done))
        if done.outcome == "conflict":
            beside = place.mount.path(done.beside)
            return MemoryToolResult(
                f"Error: {path} was changed by somebody else meanwhile, in the same lines: what is there stays, and "
                f"your text was kept at {beside}. View both, put them together in {path}, and delete {beside}.",
                is_error=True,
            )
        if done.outcome == "merged":
            said += "\n[Somebody else changed it meanwhile: both changes are in it now. View it before you go on.]"
        if place.name.rpartition("/")[2] == INDEX:
            store, settings = place.mount.memory.store, self.session.settings
            problem = await over_limits(store, settings, place.name, path=path)
            if problem is not None:
                return MemoryToolResult(f"Error: {problem}", is_error=True)
        return MemoryToolResult(said)

    async def _delete(self, path: str, place: MountedPath) -> MemoryToolResult:
        if not place.name:
            raise MemoryToolError(f"Cannot delete the {place.mount.at} directory itself")
        done = await self._each(place, lambda name, base: DeleteMemory(name=name, base=base))
        if not done:
            raise MemoryToolError(no_such_path_text(path, "delete"))
        waits = any(isinstance(one, MemoryProposal) for one in done)
        return MemoryToolResult(_waits(path, *done) if waits else f"Successfully deleted {path}")

    async def _rename(self, old: str, new: str) -> MemoryToolResult:
        source, target = self.access.place(old, writes=True), self.access.place(new, writes=True)
        if not source.name:
            raise MemoryToolError(f"Cannot rename the {source.mount.at} directory itself")
        if source.mount is not target.mount:
            raise MemoryToolError(
                f"Error: {old} and {new} are in different memories: create it there, and delete {old} then"
            )
        taken = await target.mount.memory.store.read(target.name) if target.name else None
        if not target.name or taken is not None or await self._files(target):
            raise MemoryToolError(f"Error: The destination {new} already exists")

        def moved(name: str, base: str) -> RenameMemory:
            return RenameMemory(name=name, to=target.name + name[len(source.name) :], base=base)

        try:
            done = await self._each(source, moved)
        except NameTaken:
            raise MemoryToolError(f"Error: The destination {new} already exists") from None
        if not done:
            raise MemoryToolError(no_such_path_text(old, "rename"))
        waits = any(isinstance(one, MemoryProposal) for one in done)
        return MemoryToolResult(_waits(old, *done) if waits else f"Successfully renamed {old} to {new}")

    async def _each(self, place: MountedPath, change: Any) -> list[WriteResult | MemoryProposal]:
        """Make a change of a file, or of every file in a directory."""
        store = place.mount.memory.store
        below = [file[len(place.mount.at) + 1 :] for file, _ in await self._files(place)]
        done = []
        for name in below or [place.name]:
            read = await store.read(name)
            if read is not None:
                done.append(await self._made(place.mount, change(name, read.text)))
        return done

    async def _made(self, mount: MemoryMount, change: Change) -> WriteResult | MemoryProposal:
        try:
            return await self.access.change(self.session, mount, change)
        except (MemoryChanged, FileMissing):
            raise MemoryToolError(f"Error: {_CHANGED.format(path=mount.path(change.name))}") from None


def _waits(path: str, *done: WriteResult | MemoryProposal) -> str:
    """What is said of a change that a person has to approve first."""
    why = next((one.why for one in done if isinstance(one, MemoryProposal)), "")
    return f"Not done yet: the change of {path} waits for approval ({why}). It isn't in the memory; don't try again."
