"""A client's log as far as it was read, carried from one hook to the next (PLG-1).

A log is read in parts, each up to a place where no call is open. A compaction of the client's is a checkpoint: the
memory is packed there (ADR 0008), and a rewind to what was said since starts again from it.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import msgspec

from perdure.adapters.machine.system import AT_ONCE, CLOSE_ON_EXEC, read_at
from perdure.compaction.ledger.memory import LedgerMemory, PackedLedger, pack_ledger
from perdure.compaction.ledger.reader import LedgerExtract, LedgerExtractor
from perdure.logs.claude_code import MainChain, is_shown_again
from perdure.logs.recording import LoggedCompaction, LoggedRewind, RecordedMessage, Step
from perdure.memory.trust.secrets import Redactor
from perdure.plugin.state import DAMAGED, StateHead, read_state, write_state
from perdure.transcript.messages import Message

PART_BYTES: Final = 128 * 1024  # of a log, read at once
MOST_LINE_BYTES: Final = 16 * 1024 * 1024  # a longer line is passed over
MOST_OPEN_BYTES: Final = 1024 * 1024  # read behind an open call; then those in the first half count as never answered
MOST_MEMORY_CHARS: Final = 1_200_000  # between two boundaries; then the memory is packed all the same
_BOUNDARIES = {"claude-code": b'"subtype":"compact_boundary"', "codex": b'"type":"compacted"'}


class CarriedBody(msgspec.Struct):
    """What was read. The checkpoint is the memory at the last boundary; `skips` are parts that were rewound."""

    memory: LedgerMemory = msgspec.field(default_factory=LedgerMemory)
    chain: MainChain = msgspec.field(default_factory=MainChain)
    checkpoint: str = ""
    checkpoint_offset: int = 0
    checkpoint_line: int = 1
    skips: list[tuple[int, int]] = []


@dataclass(slots=True)
class LogPart:
    """A part of a log; `is_closed`: nothing behind it answers what is open in it, as a boundary or a rewind follows."""

    start: int
    data: bytes
    is_closed: bool = False

    def place_of(self, line: int) -> int:
        """Where one of its lines begins, counted from 0."""
        at = 0
        for _ in range(line):
            at = self.data.find(b"\n", at) + 1
        return self.start + at


@dataclass
class CarriedLog:
    """A log that is read on. `read_on` takes in what is new, `memory_now` also what can't be settled yet."""

    folder: str
    fd: int
    head: StateHead
    body: CarriedBody
    size: int
    _saved: tuple[bytes, bytes] = (b"", b"")  # the state as it is on disk
    _encoded: bytes = field(default=b"", repr=False)  # the body, as long as it is what was read
    _redactor: Redactor = field(default_factory=Redactor, repr=False)
    _pace: float = 0.0  # seconds that a byte took in the last part; 0 before the first

    # --- reading ------------------------------------------------------------------------------------------------------

    def read_on(self, until: float | None = None) -> None:
        """Take in what came to the log, part by part, at least one; none is begun after `until` (monotonic seconds),
        nor one that would take longer than that at the pace of the last.

        With a time to keep, a checkpoint is made in the first part or not at all: it takes as long as a megabyte does.
        """
        is_free = True
        while True:
            is_packed = self.head.offset == self.body.checkpoint_offset
            if is_free and not is_packed and _size(self.body.memory) > MOST_MEMORY_CHARS:
                self._checkpoint()
                if until is not None:
                    return
            began, offset = time.monotonic(), self.head.offset
            if not self._read_part(until, may_pack=is_free):
                return
            is_free, now = until is None, time.monotonic()
            if until is not None and now >= until:
                return
            if self.head.offset > offset:  # else there was a rewind
                self._pace = (now - began) / (self.head.offset - offset)

    def memory_now(self) -> tuple[LedgerMemory, int]:
        """The memory with the end of the log, and how many bytes in front of that were not read yet.

        The state isn't changed by it, but the memory is not to be read on with.
        """
        self._encode()
        start = self._next_start()
        hole = max(0, self.size - 2 * PART_BYTES - start)
        data = read_at(self.fd, self.size - start - hole, start + hole)
        if hole:
            data = data[data.find(b"\n") + 1 :]
        steps = self._steps(data[: data.rfind(b"\n") + 1], MainChain() if hole else self.body.chain.copy())
        return self.body.memory.absorb(self._extracts(_messages(steps))), hole

    def _next_start(self) -> int:
        start = self.head.offset
        while ends := [end for first, end in self.body.skips if first <= start < end]:
            start = max(ends)
        return start

    def _read_part(self, until: float | None, *, may_pack: bool) -> bool:
        """Take in the next part; False when nothing more can be settled."""
        start, size = self._next_start(), PART_BYTES
        while (part := self._part(start, size)).data:
            if part.is_closed and not may_pack:
                return False
            if until is not None and self._pace and time.monotonic() + self._pace * len(part.data) > until:
                return False
            chain = self.body.chain.copy()
            steps = self._steps(part.data, chain)
            call = None if part.is_closed else _open_call(steps)
            if call is not None and part.place_of(call - self.head.line) == start:
                if len(part.data) < MOST_OPEN_BYTES:
                    if start + size >= self.size:
                        return False  # the log ends in an open call
                    size *= 2
                    continue
                middle = self.head.line + part.data.count(b"\n", 0, len(part.data) // 2)
                call = _open_call(steps, behind=max(call, middle))  # nobody answers those before it any more
            if call is not None:
                part = LogPart(start, part.data[: part.place_of(call - self.head.line) - start])
                chain = self.body.chain.copy()
                steps = self._steps(part.data, chain)
            self._take(part, steps, chain)
            return True
        return self._passed_over(start, until)

    def _part(self, start: int, size: int) -> LogPart:
        """Whole lines from a place on, one at least if the log has it; nothing behind a boundary."""
        end = min([self.size, *(first for first, _ in self.body.skips if first > start)])
        data = b""
        while start < end:
            wanted = min(size, end - start)
            data = read_at(self.fd, wanted, start)
            if b"\n" in data or len(data) < wanted or wanted >= min(end - start, MOST_LINE_BYTES):
                break
            size *= 4
        data = data[: data.rfind(b"\n") + 1]
        boundary = data.find(_BOUNDARIES[self.head.client])
        if boundary >= 0:
            data = data[: data.find(b"\n", boundary) + 1]
        return LogPart(start, data, is_closed=boundary >= 0 or start + len(data) == end < self.size)

    def _passed_over(self, start: int, until: float | None) -> bool:
        """Go behind a line that is too long to be one; False when it isn't that, but the end, or there is no time."""
        end = self._end_of_line(start + MOST_LINE_BYTES, until)
        if end is None:
            return False
        self._encoded = b""
        self.head.offset, self.head.line = end, self.head.line + 1
        return True

    def _end_of_line(self, at: int, until: float | None = None) -> int | None:
        """Behind the next end of a line from a place on; None where there is none, or no time to find it."""
        while at < self.size and (until is None or time.monotonic() < until):
            data = read_at(self.fd, MOST_LINE_BYTES, at)
            if b"\n" in data:
                return at + data.find(b"\n") + 1
            if not data:
                break
            at += len(data)
        return None

    def _steps(self, data: bytes, chain: MainChain) -> tuple[Step, ...]:
        if self.head.client == "codex":
            from perdure.logs.codex import read

            (recording,) = read(data, "log", first_line=self.head.line)
        else:
            from perdure.logs.claude_code import read as read_claude_code

            (recording,) = read_claude_code(data, "log", first_line=self.head.line, chain=chain)
        return recording.steps

    def _take(self, part: LogPart, steps: Sequence[Step], chain: MainChain) -> None:
        """Take in a part, whole."""
        self._encoded = b""
        messages = _messages(steps)
        known = {step.message.id for step in steps if isinstance(step, RecordedMessage)}
        for step in steps:
            if not isinstance(step, LoggedRewind) or step.to in known:
                continue
            if self._rewound(step.to, part.place_of(step.line - self.head.line)):
                return
        self.body.memory.absorb(self._extracts(messages))
        self.body.chain = chain
        self.head.offset = part.start + len(part.data)
        self.head.line += part.data.count(b"\n")
        if any(isinstance(step, LoggedCompaction) for step in steps):
            self.head.boundaries += 1
            self.head.is_given, self.head.is_due = self.head.is_due, False
            self._checkpoint()

    def _checkpoint(self) -> None:
        """Pack what is known here: nobody goes back behind it."""
        self._encoded = b""
        packed = pack_ledger(self.body.memory)
        self.body = CarriedBody(packed.memory(), MainChain(), packed.data, self.head.offset, self.head.line)

    def _rewound(self, to: str, back: int) -> bool:
        """Start again from the checkpoint, without what was said between a message and the place of the rewind."""
        at, wanted = self.body.checkpoint_offset, f'"uuid":"{to}"'.encode()
        while at < back:
            data = read_at(self.fd, min(MOST_LINE_BYTES, back - at), at)
            found = data.find(wanted)
            if found >= 0:
                skip = (self._end_of_line(at + found) or back, back)
                if skip in self.body.skips or skip[0] >= back:
                    return False
                skips = [*self.body.skips, skip]
                packed = PackedLedger(self.body.checkpoint)
                first, line = self.body.checkpoint_offset, self.body.checkpoint_line
                self.body = CarriedBody(packed.memory(), MainChain(), packed.data, first, line, skips)
                self.head.offset, self.head.line = first, line
                return True
            if not data:
                break
            at += data.rfind(b"\n") + 1 or len(data)
        return False

    def _extracts(self, messages: Sequence[Message]) -> Iterator[LedgerExtract]:
        """Return what messages say, without their secrets: the state is on disk for weeks (SEC-5)."""
        extractor = LedgerExtractor(redactor=self._redactor)
        return (extractor.extract(message) for message in messages)

    # --- keeping ------------------------------------------------------------------------------------------------------

    def save(self) -> None:
        """Replace the state, unless it is what was read."""
        state = (msgspec.json.encode(self.head), self._encode())
        if state != self._saved:
            write_state(self.folder, self.fd, self.head, state[1])
            self._saved = (msgspec.json.encode(self.head), state[1])

    def _encode(self) -> bytes:
        self._encoded = self._encoded or _ENCODE(self.body)
        return self._encoded


_ENCODE = msgspec.msgpack.Encoder().encode


def _size(memory: LedgerMemory) -> int:
    return sum(len(piece.text) + 40 for piece in memory.pieces)


def _open_call(steps: Sequence[Step], behind: int = 0) -> int | None:
    """The line up to which every call is answered before it; None when nothing is open. Looks behind a line only."""
    said = [step for step in steps if isinstance(step, RecordedMessage) and step.message.agent_id is None]
    answers = {result.tool_use_id: step.line for step in said for result in step.message.tool_results}
    calls = [(step.line, answers.get(use.id)) for step in said for use in step.message.tool_uses if step.line > behind]
    end = min((line for line, answer in calls if answer is None), default=None)
    if end is None:
        return None
    answered = [(line, answer) for line, answer in calls if answer is not None]
    for line, answer in sorted(answered, reverse=True):
        if line < end <= answer:
            end = line  # its answer came behind a call that is open
    return end


def _messages(steps: Sequence[Step]) -> list[Message]:
    """What was said, without what was rewound here, what the client lists by itself, and records of ours."""
    messages: list[Message] = []
    for step in steps:
        if isinstance(step, LoggedRewind):
            ids = [message.id for message in messages]
            if step.to in ids:
                del messages[ids.index(step.to) + 1 :]
        elif isinstance(step, RecordedMessage) and not (step.logged_only or is_shown_again(step.message)):
            messages.append(step.message)
    return messages


@contextmanager
def open_carried(folder: str, log: str) -> Iterator[CarriedLog]:
    """The log as far as it was read; from its beginning where that isn't known, or the log is another one.

    Raises:
        OSError: The log can't be read.
    """
    fd = os.open(log, os.O_RDONLY | AT_ONCE | CLOSE_ON_EXEC)
    try:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode):
            raise OSError(f"{log}: not a regular file")
        head, body = read_state(folder, log, fd, about.st_size)
        try:
            known = msgspec.msgpack.decode(body, type=CarriedBody) if body else CarriedBody()
        except DAMAGED:  # a damaged state: the log tells everything again
            head, body, known = StateHead(log=log, client=head.client, remembered=head.remembered), b"", CarriedBody()
        saved = (msgspec.json.encode(head), body)
        yield CarriedLog(folder, fd, head, known, about.st_size, saved, body)
    finally:
        os.close(fd)
