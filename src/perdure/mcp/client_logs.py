"""What clients keep of a project in logs of their own, so that it is found and recalled like any session (RCL-3)."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path

import anyio
import anyio.to_thread

from perdure.adapters.logs import FoundLogs, LogFile, logs_of_project
from perdure.errors import PerdureError
from perdure.logs.detect import read_recordings
from perdure.recall.originals import Original, Originals
from perdure.settings import Settings
from perdure.wiring.imports import LogImports

OnProgress = Callable[[float, float, str], Awaitable[None]]
_LINES = 20  # of a log that are read for an id: its call and its result stand before all that quotes it
_SHARE = 10  # of the time: a log that grows all the while is read again that much less often than it takes


@dataclass(slots=True)
class ClientLogs:
    """The logs that Claude Code and Codex write in a project's folder; each becomes a session, and goes on in it."""

    home: Path
    settings: Settings
    folder: Path
    environ: Mapping[str, str]
    _imports: LogImports | None = None
    _next: dict[Path, float] = field(default_factory=dict)  # when a log may be read again
    _alone: anyio.Lock = field(default_factory=anyio.Lock)

    async def take(self, on_progress: OnProgress) -> str:
        """Take in what is new in them; what couldn't be, in a line, or nothing.

        It can be cancelled between two logs, and goes on with the next call. A log that was read just now isn't read
        again.
        """
        async with self._alone:
            found = await anyio.to_thread.run_sync(self._logs)
            if self._imports is None:
                make = partial(LogImports, self.home, self.settings, self.folder, has_many=True)
                self._imports = await anyio.to_thread.run_sync(make)
            failed = len(found.refused)
            new = [log for log in found.files if not self._imports.unchanged(log)]
            new = [log for log in new if time.monotonic() >= self._next.get(log.path, 0.0)]
            total, done = sum(log.bytes for log in new), 0
            for log in new:
                await on_progress(done, total, f"reading {log.path.name}")
                failed += not await self._take_one(self._imports, log)
                done += log.bytes
        return f"{failed} of the client's logs couldn't be read: `perdure import` names them" if failed else ""

    async def result_of(self, identity: str) -> tuple[str, Original] | None:
        """The result, or the call, of an id, from the lines that name it: in a large log they are had at once."""
        return await anyio.to_thread.run_sync(self._result_of, identity)

    def _result_of(self, identity: str) -> tuple[str, Original] | None:
        for log in reversed(self._logs().files):
            lines = _lines_with(log.path, identity.encode())
            with suppress(PerdureError):
                for one in read_recordings(lines, log.path.name) if lines else ():
                    originals = Originals(one.messages)
                    named = originals.matching_ids(identity)
                    found = originals.find(named[0]) if len(named) == 1 else None
                    if found is not None and found.kind in ("result", "call"):
                        return one.session, found
        return None

    def _logs(self) -> FoundLogs:
        return logs_of_project(self.folder, self.environ)

    async def _take_one(self, imports: LogImports, log: LogFile) -> bool:
        began = time.monotonic()
        try:  # in a thread with a loop of its own: reading a log is work for seconds, and others wait for answers
            await anyio.to_thread.run_sync(anyio.run, partial(imports.take, log.path, lambda told: None))
        except (PerdureError, OSError):
            return False
        finally:
            self._next[log.path] = time.monotonic() + _SHARE * (time.monotonic() - began)
        return True


def _lines_with(log: Path, text: bytes) -> bytes:
    """The first lines of a log that hold a text: what is quoted later was said there. Of what can't be read, none."""
    lines: list[bytes] = []
    try:
        with log.open("rb") as file:  # not mapped: where a client cuts its log meanwhile, that would end this process
            lines += islice((line for line in file if text in line), _LINES)
    except OSError:
        return b""
    return b"".join(lines)
