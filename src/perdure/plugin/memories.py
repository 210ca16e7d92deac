"""What a person said in a client's session, kept as memories by the rules that need no model (PLG-1, MEM-6)."""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec

from perdure.adapters.machine.system import AT_ONCE, CLOSE_ON_EXEC, read_at
from perdure.logs.recording import RecordedMessage
from perdure.memory.remarks import Remark, remarks
from perdure.plugin.state import DAMAGED, StateHead, read_state, write_state
from perdure.transcript.messages import spoken

END_BYTES = 512 * 1024  # of a log, behind what was read of it


class _HeardWords(msgspec.Struct, array_like=True):
    """A person's words in a state: the beginning of what the ledger keeps of them."""

    id: str
    at: float | None
    text: str


class _KnownWords(msgspec.Struct):
    words: list[_HeardWords] = []


class _KnownBody(msgspec.Struct):
    memory: _KnownWords = msgspec.field(default_factory=_KnownWords)


def remember(folder: str, log: str, project: str, session: str, *, is_kept: bool) -> None:
    """Save what was said since the last time and is worth keeping; nothing more is imported where nothing is.

    Args:
        folder: Where the session's state is.
        log: The client's log.
        project: The folder that the client works in.
        session: The client's id of the session.
        is_kept: Whether this process may replace the state.
    """
    fd = os.open(log, os.O_RDONLY | AT_ONCE | CLOSE_ON_EXEC)
    try:
        size = os.fstat(fd).st_size
        head, body = read_state(folder, log, fd, size)
        said = [one for one in _words(head, body, fd, size) if (one.at or 0.0) > head.remembered]
        found = [(one.id, remark) for one in said for remark in remarks(one.text, one.at or time.time())]
        if found and os.path.isabs(project):
            _save(found, Path(project), session)
        if said and is_kept:
            head.remembered = max(one.at or 0.0 for one in said)
            write_state(folder, fd, head, body)
    finally:
        os.close(fd)


def _words(head: StateHead, body: bytes, fd: int, size: int) -> list[_HeardWords]:
    """What a person said, as the state has it, and in the end of the log that wasn't read yet."""
    begin = head.offset
    try:
        known = msgspec.msgpack.decode(body, type=_KnownBody).memory.words if body else []
    except DAMAGED:  # the log tells its end again
        known, begin = [], 0
    start = max(begin, size - END_BYTES)
    data = read_at(fd, size - start, start)
    if start > begin:
        data = data[data.find(b"\n") + 1 :]
    if head.client == "codex":
        from perdure.logs.codex import read
    else:
        from perdure.logs.claude_code import read
    (recording,) = read(data[: data.rfind(b"\n") + 1], "log", first_line=head.line)
    heard = [step.message for step in recording.steps if isinstance(step, RecordedMessage) and not step.logged_only]
    return [*known, *(_HeardWords(one.id, one.at, text) for one in heard if (text := spoken(one)))]


def _save(found: list[tuple[str, Remark]], project: Path, session: str) -> None:
    import anyio

    from perdure.adapters.config import load
    from perdure.adapters.sinks import TeeSink, sinks_of
    from perdure.engine.guarded_memory import ExtractionCounts, save_remark
    from perdure.memory.changes import Stamp
    from perdure.wiring import guarded_memory, project_memories

    config = load(os.environ, cwd=project)
    settings = config.settings
    if not (settings.memory and settings.memory_extract) or settings.memory_mode in ("off", "read-only"):
        return
    search = project_memories(config.home, project, settings)
    sinks = sinks_of(settings.events, about=lambda: {"door": "plugin", "session": session}, now=time.time)
    memory = guarded_memory(Path(search.where), settings, TeeSink(*sinks))

    async def saving() -> None:
        tally = ExtractionCounts()
        for message, remark in found:
            stamp = Stamp(origin="user" if remark.is_typed else "web", at=time.time(), session=session, message=message)
            await save_remark(memory, search, remark, stamp, tally)

    anyio.run(saving)
