"""What a listing says of a session, read from the first and last 64 KiB of its journal (ENG-5).

The engine re-appends the metadata after a compaction and on close, so the tail holds it. A damaged file is listed with
its problem; nothing here raises for what a file holds.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import HoldfastError, MalformedBlock
from holdfast.transcript.codec import decode_header, decode_line
from holdfast.transcript.messages import Message
from holdfast.transcript.records import Header, Record, Titled
from holdfast.transcript.spoken import spoken

EDGE_BYTES = 64 * 1024
HEADER_BYTES = 4 * 1024  # enough for every header we write; more is read when it isn't
PROMPT_CHARS = 200

_TITLED = b'{"type":"titled"'
_USER = b'"origin":"user"'
_TOOL = b'"origin":"tool"'
_TEXT = b'"type":"text"'
_NESTING = (b'{"type":"compacted"', b'{"type":"collapsed"')  # records that hold messages of their own
_MESSAGE = b'{"type":"message","id":'


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """One session of a listing. `messages` is None when only reading the whole journal would tell."""

    id: str
    directory: Path
    project: str
    modified: float
    bytes: int
    created: float | None = None
    title: str | None = None
    last_prompt: str | None = None
    messages: int | None = None
    tags: tuple[str, ...] = ()
    branch: str | None = None
    problem: str | None = None


@dataclass(slots=True)
class _Findings:
    """What was found so far, going from the newest line to the oldest: what is found first holds."""

    title: str | None = None
    tags: tuple[str, ...] | None = None
    branch: str | None = None
    last_prompt: str | None = None
    counted: int = 0
    is_counted: bool = False
    has_gap: bool = False  # lines between the edges would have to be counted too
    damaged: int = 0

    @property
    def is_complete(self) -> bool:
        return self.is_counted and None not in (self.title, self.tags, self.branch, self.last_prompt)

    def see_all(self, lines: list[bytes], version: int) -> None:
        """The lines, newest first, but for what follows the last line end: it is torn, or nothing."""
        for line in reversed(lines[:-1]):
            if self.is_complete:
                return
            self._see(line, version)

    def _see(self, line: bytes, version: int) -> None:
        wants_titled = _TITLED in line
        may_be_said = _USER in line or (_TOOL in line and _TEXT in line)
        wants_prompt = self.last_prompt is None and may_be_said
        wants_count = not self.is_counted and any(tag in line for tag in _NESTING)
        if wants_titled or wants_prompt or wants_count:
            try:
                records = decode_line(line, version).records
            except HoldfastError:
                self.damaged += 1
                return
            for record in reversed(records):
                self._see_record(record)
        elif not self.is_counted:
            self.counted += line.count(_MESSAGE)

    def _see_record(self, record: Record) -> None:
        if isinstance(record, Message):
            self.counted += not self.is_counted
            if self.last_prompt is None:
                self.last_prompt = _text(record)
        elif isinstance(record, Titled):
            self.title = record.title if self.title is None else self.title
            self.tags = record.tags if self.tags is None else self.tags
            self.branch = record.branch if self.branch is None else self.branch
            self.last_prompt = record.last_prompt if self.last_prompt is None else self.last_prompt
            if record.messages is not None and not self.is_counted:
                self.counted, self.is_counted = self.counted + record.messages, True


def _text(message: Message) -> str | None:
    """The start of what a person wrote."""
    try:
        words = spoken(message)
    except MalformedBlock:
        return None
    return " ".join(words[: PROMPT_CHARS * 4].split())[:PROMPT_CHARS] or None


def describe(journal: Path) -> SessionInfo:
    """What the edges of a journal say; its problem when they say nothing."""
    directory = journal.parent
    modified, size, header = 0.0, 0, None
    found, problem = _Findings(), None
    try:
        fd = os.open(journal, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        try:
            about = os.fstat(fd)
            modified, size = about.st_mtime, about.st_size
            header = _header(fd)
            _look(fd, size, header.version, found)
        finally:
            os.close(fd)
    except OSError as e:
        problem = f"{journal.name}: {e.strerror or e}"
    except HoldfastError as e:
        problem = f"{journal.name}: {e}"
    if problem is None and found.damaged:
        problem = f"{journal.name}: {found.damaged} damaged lines near its ends"
    return SessionInfo(
        id=directory.name,
        directory=directory,
        project=(header and header.project) or directory.parent.name,
        modified=modified,
        bytes=size,
        created=header.created if header else None,
        title=found.title,
        last_prompt=found.last_prompt,
        messages=found.counted if found.is_counted and not found.has_gap else None,
        tags=found.tags or (),
        branch=found.branch,
        problem=problem,
    )


def _header(fd: int) -> Header:
    line, newline, _ = os.pread(fd, HEADER_BYTES, 0).partition(b"\n")
    if not newline:
        line = os.pread(fd, EDGE_BYTES, 0).partition(b"\n")[0]
    return decode_header(line)


def _look(fd: int, size: int, version: int, found: _Findings) -> None:
    """Go through the complete lines at both ends, newest first, until everything is known."""
    tail_start = max(0, size - EDGE_BYTES)
    cut, *tail = os.pread(fd, EDGE_BYTES, tail_start).split(b"\n")
    found.see_all(tail, version)
    if tail_start == 0:
        found.is_counted = True
    elif not found.is_complete:
        first_seen = tail_start + len(cut) + 1
        head_end = min(EDGE_BYTES, first_seen)
        found.has_gap = not found.is_counted and head_end < first_seen
        _, *head = os.pread(fd, head_end, 0).split(b"\n")
        found.see_all(head, version)
        found.is_counted = found.is_counted or head_end == first_seen
