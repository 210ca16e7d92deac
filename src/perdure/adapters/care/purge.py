"""A text or a message taken out of everything that is kept (SEC-12).

Sessions that hold it are locked first. What is named by its hash gets another name with its other content; journals are
written anew behind everything else, the one with the message last, so that whoever is killed in between can ask again.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import secrets
import shutil
import sqlite3
import sys
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from perdure.adapters.checkpoints.log import FOLDER as CHECKPOINTS
from perdure.adapters.checkpoints.log import LOG, PLAN
from perdure.adapters.journal import JOURNAL
from perdure.adapters.journal.append_file import LOCK, SessionLock, mark_path
from perdure.adapters.journal.blobs import HASH_NAME, packed, unpacked
from perdure.adapters.journal.disk import DISK, Disk, discard, write_new
from perdure.adapters.journal.projects import PROJECTS
from perdure.adapters.journal.reading import open_journal_reader
from perdure.adapters.journal.search import INDEX, discard_index
from perdure.adapters.journal.store import BLOBS, homes_of
from perdure.adapters.machine.rooted import RootedFolder
from perdure.adapters.machine.system import open_folder_lock, read_file, try_lock
from perdure.adapters.machine.trust import CONFIG
from perdure.adapters.memory.directory import CACHES
from perdure.adapters.memory.store import AUDIT, LOCK_SECONDS
from perdure.adapters.memory.store import LOCK as MEMORY_LOCK
from perdure.adapters.stores import Holds, StoreRoot
from perdure.context.view import THINKING, project
from perdure.errors import (
    DamagedLine,
    FileMissing,
    FileRefused,
    FolderBusy,
    JournalError,
    MalformedBlock,
    PerdureError,
    SessionNotFound,
)
from perdure.memory.files import Type
from perdure.memory.places import AGENTS, AGENTS_LOCAL, MEMORY
from perdure.memory.places import DISK as ANY_NAME
from perdure.memory.save import name_words
from perdure.text.purging import LEAST_CHARS, MARK, FixedPlaces, TextPurge
from perdure.transcript.blocks import Block, Text, ToolResult, ToolUse
from perdure.transcript.codec import decode_line, encode_line, seal, unseal
from perdure.transcript.messages import Message
from perdure.transcript.records import BlockChange, Compacted, Edit, Noted, Record, ThinkingDropped, Worded

PURGED = "purged"  # the kind of the note that a purge leaves in a journal
_SEQ = re.compile(rb'\{"seq":\d+,')
_BEFORE = "before"
_OBJECTS = "objects"
_LEAST_QUOTED = 24  # characters of a line of a message that others may have quoted
_MOST_QUOTED = 200
_QUOTE_CHARS = 300  # a longer line is looked for in pieces
_MEMORIES = frozenset({MEMORY, AGENTS, AGENTS_LOCAL})
_LOCK_SECONDS = 5.0  # for a hook of the plugin that is at work

What = Literal["journal", "blob", "checkpoints", "memory", "state", "file"]


@dataclass(frozen=True, slots=True)
class PurgedPlace:
    """A file that held it, and what kind of file that is."""

    path: Path
    what: What


@dataclass(slots=True)
class PurgeReport:
    """Where it was. `left` says where it still stands and why; `unread` what couldn't be looked into."""

    places: list[PurgedPlace] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class PurgedMessage:
    """A message of a session, or a call with its result, and the lines of it that nobody else said there."""

    session: Path
    message: str | None
    calls: frozenset[str]
    quotes: tuple[str, ...]

    def blanks(self, message: Message) -> tuple[int, ...]:
        """Which blocks of a message are meant."""
        if message.id == self.message:
            return tuple(range(len(message.blocks)))
        return tuple(n for n, block in enumerate(message.blocks) if _call_of(block) in self.calls)


def find_message(session: Path, identity: str, *, disk: Disk = DISK) -> PurgedMessage:
    """The message of a session that an id means, or the call and result of a recall id.

    Raises:
        SessionNotFound: The session has neither.
        JournalError: The journal can't be read.
    """
    with open_journal_reader(disk, session / JOURNAL) as reader:
        said = [p.record for p in reader.scan(reader.body).placed if isinstance(p.record, Message)]
    message = next((one for one in said if one.id == identity), None)
    calls = frozenset(call for one in said for block in one.blocks if (call := _call_of(block)) == identity and call)
    if message is None and not calls:
        raise SessionNotFound(
            f"{session.name}: no message, call or result has the id {identity!r}: `perdure search` names them"
        )
    if message is not None:
        calls = frozenset(call for block in message.blocks if block.type == "tool_result" and (call := _call_of(block)))
    target = PurgedMessage(session, message.id if message else None, calls, ())
    ours: dict[str, None] = {}
    others: set[str] = set()
    for one in said:
        meant = target.blanks(one)
        for number, block in enumerate(one.blocks):
            lines = [line.strip() for text in _texts_of(block) for line in text.splitlines()]
            (ours.update(dict.fromkeys(lines)) if number in meant else others.update(lines))
    alone = sorted((line for line in ours if line not in others), key=len, reverse=True)[:_MOST_QUOTED]
    pieces = dict.fromkeys(line[at : at + _QUOTE_CHARS] for line in alone for at in range(0, len(line), _QUOTE_CHARS))
    quotes = [piece for piece in pieces if len(piece) >= _LEAST_QUOTED][:_MOST_QUOTED]
    return PurgedMessage(session, target.message, calls, tuple(quotes))


def _call_of(block: Block) -> str | None:
    """The id of the call that a block is, or is the result of."""
    try:
        value = block.value
    except MalformedBlock:
        return None
    if isinstance(value, ToolUse):
        return value.id
    return value.tool_use_id if isinstance(value, ToolResult) else None


def _texts_of(block: Block) -> Iterator[str]:
    """Everything that a block says."""
    try:
        data = msgspec.json.decode(block.raw)
    except msgspec.MsgspecError:
        return
    waiting: list[Any] = [data]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict | list):
            waiting += one.values() if isinstance(one, dict) else one


def blank(raw: bytes) -> bytes:
    """A block of which only its kind and what it belongs to are left, so that calls and results stay pairs."""
    block = Block(raw)
    try:
        value = block.value
    except MalformedBlock:
        value = None
    if isinstance(value, ToolUse):
        return msgspec.json.encode({"type": "tool_use", "id": value.id, "name": value.name, "input": {}})
    if isinstance(value, ToolResult):
        left: dict[str, Any] = {"type": "tool_result", "tool_use_id": value.tool_use_id, "content": MARK}
        return msgspec.json.encode(left | ({"is_error": True} if value.is_error else {}))
    if block.type in THINKING:
        return msgspec.json.encode({"type": "thinking", "thinking": MARK, "signature": ""})
    if value is not None and not isinstance(value, Text) and "tool" in block.type:  # a call of the provider's
        return TextPurge(tuple(set(_texts_of(block)) - {"", block.type})).purged_json(raw, FixedPlaces())
    return msgspec.json.encode({"type": "text", "text": MARK})


@dataclass
class Purge:
    """One purge of a home. Call `look`, which changes nothing, or `carry_out`.

    Args:
        home: Where the sessions are. It and its folder of projects may be links; no other link is followed.
        texts: What to take out; none for a message.
        message: The message to take out instead.
        also: Folders of memories that stand elsewhere. On the way to their files no link is followed.
        beside: Where Perdure writes beside the home.
        by: Who asked for it.
        at: When, in seconds since 1970.
        disk: Through what journals and blobs are written.
    """

    home: Path
    by: str
    at: float
    texts: tuple[str, ...] = ()
    message: PurgedMessage | None = None
    also: tuple[Path, ...] = ()
    beside: tuple[StoreRoot, ...] = ()
    disk: Disk = DISK
    report: PurgeReport = field(default_factory=PurgeReport, init=False)
    _purge: TextPurge = field(init=False)
    _mine: tuple[Path, ...] = field(init=False)  # the home, and its projects where they are a link to elsewhere
    _roots: tuple[StoreRoot, ...] = field(init=False)
    _gone: list[Path] = field(default_factory=list, init=False)  # what to remove once no journal names it

    def __post_init__(self) -> None:
        self.home = self.home.resolve()
        projects = (self.home / PROJECTS).resolve()
        mine = (self.home,) if projects.is_relative_to(self.home) else (self.home, projects)
        self._mine = tuple(one for one in mine if one.is_dir())
        homes = (StoreRoot("home", one, "" if one == self.home else f"{PROJECTS}/") for one in self._mine)
        self._roots = (*homes, *self.beside, *(StoreRoot("memory", one) for one in self.also))
        self._purge = TextPurge(self.texts, self.message.quotes if self.message else ())

    def look(self) -> PurgeReport:
        """Where it stands. Raises `PerdureError` where it can't be taken out without breaking what holds it."""
        if self.message is not None and not any(map(self.message.session.resolve().is_relative_to, self._mine)):
            raise JournalError(f"{self.message.session}: not under {self.home}; purge it with that home")
        self._purge.names |= dict(self._new_names())
        for journal in self._journals():
            if self._new_lines(journal) is not None:
                self.report.places.append(PurgedPlace(journal, "journal"))
        for path in self._files():
            if (what := self._holds(path)) is not None:
                self.report.places.append(PurgedPlace(path, what))
        self._name_links()
        return self.report

    def carry_out(self) -> PurgeReport:
        """Take it out. `SessionBusy` while somebody else writes a session that holds it; nothing is changed then."""
        held = [place.path for place in self.look().places]
        sessions = {one for path in held for one in self._sessions_of(path)}
        self.report.unread.clear()
        with ExitStack() as locks:
            for directory in sorted(sessions):
                locks.callback(SessionLock.acquire(directory).release)
            for directory in sorted({one for path in held if (one := _memory_of(path)) is not None}):
                root, name = locks.enter_context(self._without_links(directory / MEMORY_LOCK))
                locks.enter_context(root.lock(name, seconds=LOCK_SECONDS))
            for folder in sorted({path.parent for path in held if self._kind(path) == "state"}):
                locks.enter_context(locked_folder(folder))
            mine = [path for path in self._files() if sessions.issuperset(self._sessions_of(path))]
            self._change([path for path in mine if self._holds(path) is not None])
            last = self.message.session.resolve() / JOURNAL if self.message else None
            for journal in sorted(self._journals(), key=lambda one: (one == last, one)):
                if journal.parent in sessions and (lines := self._new_lines(journal)) is not None:
                    discard(self.disk, mark_path(journal))  # it knows the lines of before
                    self._replace(journal, b"".join(lines))
            for path in self._gone:
                self._discard(path)
            self._forget_indexes()
            self._check()
        return self.report

    # --- where it is ------------------------------------------------------------------------------------------------

    def _journals(self) -> Iterator[Path]:
        for journal in sorted(one for root in self._mine for one in root.rglob(JOURNAL)):
            if journal.is_file() and not journal.is_symlink() and (self.message is None or self._has_message(journal)):
                yield journal

    def _new_names(self) -> Iterator[tuple[bytes, bytes]]:
        """The names of memories that were made from the texts, and others."""
        slugs = [slug for text in self.texts if len(slug := name_words(text)) >= LEAST_CHARS]
        taken: set[str] = set()
        for path in self._files():
            is_named = any(slug in path.name for slug in slugs) or self._purge.is_in(os.fsencode(path.name))
            if path.suffix != ".md" or not is_named:
                continue
            kind, underscore, _ = path.name.partition("_")
            beginning = kind + underscore if kind in get_args(Type) else ""
            for number in count(1):
                new = f"{beginning}purged_{number}.md"
                there = path.with_name(new)
                if new not in taken and (
                    not there.exists() or self._read(there) == self._purge.purged(self._read(path))
                ):
                    break
            taken.add(new)
            yield os.fsencode(path.name), new.encode()

    def _has_message(self, journal: Path) -> bool:
        """Whether the message may stand in this journal: that of its session, or of a fork."""
        assert self.message is not None
        data = read_file(journal)
        names = (self.message.message, *self.message.calls)
        return any(name.encode() in data for name in names if name)

    def _files(self) -> Iterator[Path]:
        """All other files that may hold it; of checkpoints the log of each session stands for all."""
        wanted = {journal.parent for journal in self._journals()} if self.message is not None else None
        for root in self._roots:
            if root.path.is_file():
                yield root.path
            for at, folders, names in os.walk(root.path):
                folder = Path(at)
                folders.sort()
                is_store = folder.parent.name == CHECKPOINTS and folder.name.partition(".")[0] == _OBJECTS
                if is_store and not self._is_memory(folder):
                    folders.clear()  # with what a change of them that was cut short left
                    yield folder
                    continue
                for path in (folder / name for name in sorted(names)):
                    if path.is_symlink() or not path.is_file():
                        continue
                    if self._kind(path) in ("journal", "derived", "own") or path.name in (JOURNAL, LOCK):
                        continue  # journals come apart from the rest, and what is made from others goes with them
                    is_apart = root.where == "home" and self._kind(path) != "state" and not self._is_memory(path)
                    if wanted is not None and is_apart and wanted.isdisjoint(path.parents):
                        continue  # what quotes a message stands with it, in a memory or in the plugin's state
                    yield path

    def _kind(self, path: Path) -> Holds:
        """How a text stands in a file. What isn't on the list of stores is searched like any text."""
        for root in self._roots:
            if path.is_relative_to(root.path):
                kind = root.kind_of(path)
                return "text" if kind is None else kind.holds
        return "text"

    def _name_links(self) -> None:
        """Links that lead out of what is searched: whoever made them, what they lead to isn't ours to change."""
        roots = tuple(root.path for root in self._roots)
        for root in roots:
            for path in sorted(root.rglob("*")):
                if path.is_symlink() and not any(map(Path(os.path.realpath(path)).is_relative_to, roots)):
                    self.report.unread.append(f"{path}: a link to elsewhere, which a purge doesn't follow")

    def _sessions_of(self, path: Path) -> Iterator[Path]:
        """The sessions in whose folders a file stands: its own, and the one that it belongs to."""
        yield from (folder for folder in path.parents if (folder / JOURNAL).is_file())

    def _holds(self, path: Path) -> What | None:
        try:
            if path.is_dir():
                return "checkpoints" if self.message is None and self._copies_of(path) else None
            if self._is_blob(path):
                self._refuse_name(path, path.name)
                return "blob" if self._blob(path) is not None else None
            data = self._read(path)
        except OSError as e:
            self.report.unread.append(f"{path}: {e.strerror or e}")
            return None
        except FileRefused as e:
            self.report.unread.append(str(e))
            return None
        if self._without(path, data) == data and os.fsencode(path.name) not in self._purge.names:
            return None
        return "memory" if self._is_memory(path) else "state" if self._kind(path) == "state" else "file"

    def _without(self, path: Path, data: bytes) -> bytes:
        """The bytes of a file without it; none for what can't be read any more and is made again."""
        match self._kind(path):
            case "state":
                head, _, body = data.partition(b"\n")
                try:
                    return self._purge.purged_json(head, None) + b"\n" + self._purge.purged_msgpack(body)
                except (msgspec.DecodeError, UnicodeDecodeError):
                    return b"" if self._purge.is_in(data) else data
            case "receipt":
                return _purged_receipt(data, self._purge)
            case "queue":
                ahead = path.with_name(f"{path.name}-wal")
                return b"" if self._purge.is_in(data + (ahead.read_bytes() if ahead.is_file() else b"")) else data
        return self._purge.purged(data)

    def _refuse_name(self, path: Path, name: str) -> None:
        """A name that was made from the content of a file: without it nobody finds that."""
        if any(text in name for text in self.texts):
            raise PerdureError(f"{path}: the text is also what something kept is called ({name}): purge a longer text")

    def _is_memory(self, path: Path) -> bool:
        """Whether a file stands in a folder of memories."""
        if self._is_outside(path) or _memory_of(path) is not None:
            return True
        return any(
            path.is_relative_to(one) and not _MEMORIES.isdisjoint(path.relative_to(one).parts) for one in self._mine
        )

    def _is_blob(self, path: Path) -> bool:
        return path.parent.name == BLOBS and not self._is_memory(path)

    @contextmanager
    def _without_links(self, path: Path) -> Iterator[tuple[RootedFolder, str]]:
        """The way to a file in a project, on which no link is followed, even one that was put there a moment ago."""
        with RootedFolder.open(Path(path.anchor), is_theirs=True, rules=ANY_NAME) as root:
            try:
                yield root, str(path.relative_to(path.anchor))
            except FileRefused as e:
                raise type(e)(f"{path}: {str(e).rpartition(': ')[2]}") from e

    def _is_outside(self, path: Path) -> bool:
        return any(map(path.is_relative_to, self.also))

    def _read(self, path: Path) -> bytes:
        if not self._is_outside(path):
            return read_file(path)
        with self._without_links(path) as (root, name):
            return root.read(name, limit_bytes=sys.maxsize - 1)

    def _discard(self, path: Path) -> None:
        if self._is_outside(path):
            with suppress(FileRefused), self._without_links(path) as (root, name):
                root.remove(name)
        else:
            discard(self.disk, path)
            self.disk.sync_directory(path.parent)

    def _blob(self, path: Path) -> bytes | None:
        """What a blob becomes; empty bytes for one that is damaged and holds it; None for one that doesn't."""
        stored = read_file(path)
        content = unpacked(stored)
        if content is None:
            part = zlib.decompressobj()
            with suppress(zlib.error):
                if self._purge.is_in(part.decompress(stored[1:])):
                    return b""
            self.report.unread.append(f"{path}: damaged, only its beginning could be searched")
            return b"" if self._purge.is_in(stored) else None
        if self.message is not None and _call_of(Block(content)) in self.message.calls:
            new = blank(content)
        else:
            new = self._purge.purged(content)
        return None if new == content else new

    def _copies_of(self, objects: Path) -> list[str]:
        """The copies of files among the checkpoints that hold it."""
        from perdure.adapters.checkpoints.objects import GitObjects

        store = GitObjects(objects)
        found = []
        try:
            for name in store.names():
                try:
                    data = store.get(name)
                except JournalError as e:
                    self.report.unread.append(str(e))
                    continue
                self._refuse_name(objects, name)
                if self._purge.is_in(data):
                    found.append(name)
        finally:
            store.close()
        return found

    # --- what becomes of it -----------------------------------------------------------------------------------------

    def _change(self, paths: Sequence[Path]) -> None:
        """Everything but the journals. What is named by its hash comes first, since others name it."""
        for path in paths:
            if self._is_blob(path):
                self._change_blob(path)
            elif path.is_dir():
                self._change_checkpoints(path)
            elif path.parent.name == _BEFORE or path.suffix == ".md":
                self._change_named(path)
        for path in paths:  # what names those, such as the log of a memory, and all that is left
            if path.is_file() and not self._is_blob(path):
                self._rewrite(path)
        for log in {folder / AUDIT for path in paths if (folder := _memory_of(path)) is not None}:
            self._rewrite(log)

    def _change_blob(self, path: Path) -> None:
        new = self._blob(path)
        self._gone.append(path)
        if not new or not HASH_NAME.fullmatch(path.name):
            return
        name = hashlib.sha256(new).hexdigest()
        self._purge.addresses[path.name.encode()] = name.encode()
        if not path.with_name(name).exists():
            self._replace(path.with_name(name), packed(new))

    def _change_named(self, path: Path) -> None:
        """A memory, notes, or what a memory said before: its hash is written down elsewhere, or is its name."""
        old = self._read(path)
        new = self._purge.purged(old)
        if path.parent.name == _BEFORE and HASH_NAME.fullmatch(path.name):
            target = path.with_name(hashlib.sha256(new).hexdigest())
            self._purge.addresses[path.name.encode()] = target.name.encode()
            self._replace(target, new)
            self._gone.append(path)
        else:
            before, after = (hashlib.sha256(data).hexdigest().encode() for data in (old, new))
            self._purge.addresses[before] = after

    def _change_checkpoints(self, objects: Path) -> None:
        from perdure.adapters.checkpoints.objects import GitObjects

        if objects.name != _OBJECTS and objects.with_name(_OBJECTS).is_dir():
            shutil.rmtree(objects, ignore_errors=True)
            return
        if (objects.parent / PLAN).exists():
            raise PerdureError(f"{objects.parent}: a rewind was interrupted: resume that session first, then purge")
        gone = self._copies_of(objects)
        self._purge.addresses |= {name.encode(): secrets.token_hex(20).encode() for name in gone}
        self._rewrite(objects.parent / LOG)
        discard(self.disk, objects.parent / "index.msgpack")  # made anew by the next look
        store = GitObjects(objects)
        try:
            store.keep_only(set(store.names()) - set(gone))
        finally:
            store.close()
        for beside in (".new", ".old"):
            shutil.rmtree(objects.with_name(objects.name + beside), ignore_errors=True)

    def _rewrite(self, path: Path) -> None:
        if path.is_symlink():
            return
        try:
            data = self._read(path)
        except (FileNotFoundError, FileMissing):
            return
        new = self._without(path, data)
        if new != data and self._kind(path) == "queue":
            _purge_queue(path, self._purge)
        elif (name := self._purge.names.get(os.fsencode(path.name))) is not None:
            self._replace(path.with_name(os.fsdecode(name)), new)
            self._gone.append(path)
        elif new != data and path not in self._gone:
            self._replace(path, new)

    def _replace(self, path: Path, data: bytes) -> None:
        """These bytes under this name, in one step; when it was written stays what it was."""
        try:
            if self._is_outside(path):
                with self._without_links(path) as (root, name):
                    there = root.stat(name)
                    root.write(name, data, mtime_ns=there.mtime_ns if there else None)
            else:
                self._replace_own(path, data)
        except (OSError, FileRefused) as e:
            why = e.strerror or e if isinstance(e, OSError) else str(e).removeprefix(f"{path}: ")
            told = "nothing is lost, but some of it still stands: mend that, or make room, and purge it again"
            raise PerdureError(f"{path}: {why}: the purge stopped here; {told}") from e

    def _replace_own(self, path: Path, data: bytes) -> None:
        draft = path.with_name(f"{path.name}.new-{secrets.token_hex(8)}")
        try:
            write_new(self.disk, draft, data)
            if path.exists():
                about = path.stat()
                os.utime(draft, ns=(about.st_atime_ns, about.st_mtime_ns))
            self.disk.rename(draft, path)
        except BaseException:
            discard(self.disk, draft)
            raise
        self.disk.sync_directory(path.parent)

    def _new_lines(self, journal: Path) -> list[bytes] | None:
        """The lines of a journal without it; None where it isn't there, or in a file that nobody can read as one."""
        try:
            return self._rewritten(journal)
        except JournalError as e:
            if self._purge.is_in(read_file(journal)):
                raise
            self.report.unread.append(str(e))
            return None

    def _rewritten(self, journal: Path) -> list[bytes] | None:
        """The lines of a journal without it, and a record that says so; None when it isn't there."""
        lines, was, now = list[bytes](), list[Record](), list[Record]()
        fixed, starts = FixedPlaces(), dict[str, int]()
        with open_journal_reader(self.disk, journal) as reader:
            scan = reader.scan(reader.body)
            raw_damage = b"".join(reader.read(one.offset, one.length) for one in scan.damage if one.length)
            body = self._purge.purged_json(unseal(scan.header_line), fixed)
            lines.append(scan.header_line + b"\n" if body == unseal(scan.header_line) else seal(body))
            is_changed = self._purge.is_in(raw_damage) or lines[0] != scan.header_line + b"\n"
            at = len(lines[0])
            for seq, line in enumerate(scan.lines, 1):
                old = reader.read(line.offset, line.length).rstrip(b"\n")
                try:
                    new, records = self._purged_line(old, line.records, seq, reader.header.version, fixed)
                except (DamagedLine, msgspec.MsgspecError) as e:
                    raise PerdureError(
                        f"{journal}: without that text line {scan.first_line + line.index} isn't one any more ({e}): "
                        "purge a longer text"
                    ) from None
                is_changed = is_changed or _SEQ.sub(b"", unseal(new)) != _SEQ.sub(b"", unseal(old))
                if any(isinstance(record, Compacted) for record in records):
                    records = tuple(_pointing(record, starts) for record in records)
                    new = encode_line(seq, records)
                starts |= {record.id: at for record in records if isinstance(record, Message)}
                at += len(new)
                lines.append(new)
                was += line.records
                now += records
        if fixed.names:
            told = ", ".join(sorted(fixed.names)[:3])
            raise PerdureError(f"{journal}: the text is also what the format itself says ({told}): purge a longer text")
        if not is_changed:
            return None
        if scan.news:
            raise JournalError(f"{journal}: damaged: `perdure doctor --repair` sets that aside first")
        lines.append(encode_line(len(scan.lines) + 1, self._said(was, now)))
        return lines

    def _purged_line(
        self, line: bytes, records: tuple[Record, ...], seq: int, version: int, fixed: FixedPlaces
    ) -> tuple[bytes, tuple[Record, ...]]:
        body = unseal(line)
        if self.message is not None:
            blanked = tuple(map(self._blanked, records))
            body = body if blanked == records else unseal(encode_line(seq, blanked))
        new = seal(_SEQ.sub(b'{"seq":%d,' % seq, self._purge.purged_json(body, fixed), count=1))
        return new, records if new == line + b"\n" else decode_line(new, version).records

    def _blanked(self, record: Record) -> Record:
        """A record without the message: what was said, and what an edit shows of it."""
        assert self.message is not None
        target = self.message
        if isinstance(record, Message) and (meant := target.blanks(record)):
            content = tuple(
                msgspec.Raw(blank(bytes(raw))) if number in meant else raw for number, raw in enumerate(record.content)
            )
            is_blank = content == record.content and record.wire is None
            return record if is_blank else msgspec.structs.replace(record, content=content, wire=None)
        if isinstance(record, Worded) and record.message == target.message and record.wire is not None:
            return msgspec.structs.replace(record, wire=None)
        if not isinstance(record, Edit | Compacted) or not record.changes:
            return record
        changes = tuple(
            change
            if change.is_gone
            or not (change.message == target.message or _call_of(Block(bytes(change.to))) in target.calls)
            else msgspec.structs.replace(change, to=msgspec.Raw(blank(bytes(change.to))))
            for change in record.changes
        )
        return msgspec.structs.replace(record, changes=changes)

    def _said(self, was: list[Record], now: list[Record]) -> tuple[Record, ...]:
        """What stands in the place of what was taken out: that it was, when and by whom; and the thinking that goes.

        Thinking behind a changed message was signed behind other words.
        """
        changed = [new.id for old, new in zip(was, now, strict=True) if isinstance(new, Message) and new != old]
        note = Noted(
            kind=PURGED,
            data={"at": self.at, "by": self.by, "what": "message" if self.message else "text", "messages": changed},
        )
        view = project(now)
        first = min((view.positions[one] for one in changed if one in view.positions), default=len(view.items))
        dropped = tuple(
            BlockChange(message=item.message.id, block=number)
            for item in view.items[first:]
            for number, block in enumerate(item.shown)
            if block is not None and block.type in THINKING
        )
        return (
            (note, ThinkingDropped(changes=dropped, reason="a purge changed what stood before")) if dropped else (note,)
        )

    # --- afterwards -------------------------------------------------------------------------------------------------

    def _forget_indexes(self) -> None:
        """They are made anew from what there is now."""
        for home in homes_of(self.home):
            discard_index(home / INDEX)
            shutil.rmtree(home / CACHES, ignore_errors=True)
            if home.is_dir():
                self.disk.sync_directory(home)

    def _check(self) -> None:
        """Look once more, and at names and at what belongs to the user as well."""
        self.report.unread.clear()
        self._name_links()
        found = [journal for journal in self._journals() if self._new_lines(journal) is not None]
        for path in (*found, *(path for path in self._files() if self._holds(path) is not None)):
            self.report.left.append(f"{path}: still holds it; purge it once more")
        if self.message is not None:
            return
        for path in (home / CONFIG for home in homes_of(self.home)):
            if path.is_file() and self._purge.is_in(read_file(path)):
                self.report.left.append(f"{path}: is yours to edit")
        for root in self._roots:
            for path in root.path.rglob("*"):
                if self._purge.is_in(os.fsencode(path.name)):
                    self.report.left.append(f"{path}: has it in its name; rename it")


def _memory_of(path: Path) -> Path | None:
    """The memory directory that a file stands in, by the log that is kept beside the memories."""
    return next((at for at in path.parents if (at / AUDIT).is_file()), None)


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Hold the lock of a session's folder among the plugin's data, where hooks write one at a time.

    Raises:
        FolderBusy: A hook holds it for longer than hooks take.
    """
    fd = open_folder_lock(folder)
    try:
        until = time.monotonic() + _LOCK_SECONDS
        while not try_lock(fd):
            if time.monotonic() >= until:
                raise FolderBusy(f"{folder}: a hook of the plugin is writing there; try again when it is done")
            time.sleep(0.01)
        yield
    finally:
        os.close(fd)


def _purged_receipt(data: bytes, purge: TextPurge) -> bytes:
    """Return a set-up's receipt without it. What it would put back isn't what stood there any more, so it puts back
    nothing: only what the set-up wrote is taken out then."""
    try:
        told = msgspec.json.decode(data, type=dict[str, Any])
        before = base64.b64decode(told["before"] or "")
    except (msgspec.MsgspecError, UnicodeDecodeError, KeyError, TypeError, ValueError):
        return purge.purged(data)
    if (new := purge.purged(before)) == before:
        return purge.purged(data)
    return purge.purged(msgspec.json.encode(told | {"before": base64.b64encode(new).decode(), "after": MARK}))


def _purge_queue(path: Path, purge: TextPurge) -> None:
    """Take it out of what the queue of background work says of failures."""
    with closing(sqlite3.connect(path, timeout=LOCK_SECONDS, isolation_level=None)) as db:
        db.execute("PRAGMA secure_delete = ON")
        found = db.execute("SELECT rowid, problem FROM work WHERE problem IS NOT NULL").fetchall()
        changed = [(purge.purged(why.encode()).decode(), row) for row, why in found if purge.is_in(why.encode())]
        db.executemany("UPDATE work SET problem = ? WHERE rowid = ?", changed)
        db.execute("VACUUM")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _pointing(record: Record, starts: dict[str, int]) -> Record:
    """A boundary with the place that its first kept message has now."""
    if not isinstance(record, Compacted):
        return record
    return msgspec.structs.replace(
        record, kept_from=min((starts[one] for one in record.kept if one in starts), default=0)
    )
