"""When a memory directory was last put in order, and that only one does it at a time: `ports.MemoryUpkeep` (MEM-11).

<directory>/.holdfast/upkeep.json   when it was last done, and the sessions since then
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

import anyio.to_thread
import msgspec

from holdfast.adapters.memories import LOCK, LOCK_SECONDS, STATE
from holdfast.adapters.memory_box import Box, Opened, bytes_of

UPKEEP, ALONE = f"{STATE}/upkeep.json", f"{STATE}/upkeep.lock"
MOST_BYTES = 64 << 10
MOST_SESSIONS = 200  # more than any setting asks for needn't be remembered


class _Done(msgspec.Struct, frozen=True):
    at: float
    sessions: list[str] = []


class StoredUpkeep:
    """The upkeep of one directory; a file that is damaged counts as none."""

    def __init__(self, opened: Opened) -> None:
        self._opened = opened

    async def is_due(self, session: str, now: float, *, seconds: float, sessions: int) -> bool:
        def look() -> bool:
            with self._opened(True) as box, box.lock(LOCK, seconds=LOCK_SECONDS):
                done = _read(box) or _Done(now)
                if session not in done.sessions and len(done.sessions) < MOST_SESSIONS:
                    done = _Done(done.at, [*done.sessions, session])
                    _write(box, done)
                return now - done.at >= seconds and len(done.sessions) >= sessions

        return await anyio.to_thread.run_sync(look)

    async def done(self, now: float) -> None:
        def write() -> None:
            with self._opened(True) as box, box.lock(LOCK, seconds=LOCK_SECONDS):
                _write(box, _Done(now))

        await anyio.to_thread.run_sync(write)

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        held = ExitStack()

        def enter() -> None:
            box = held.enter_context(self._opened(True))
            held.enter_context(box.lock(ALONE, seconds=0.0))

        with held:
            await anyio.to_thread.run_sync(enter)
            yield


def _read(box: Box) -> _Done | None:
    data = bytes_of(box, UPKEEP, MOST_BYTES)
    try:
        return None if data is None else msgspec.json.decode(data, type=_Done)
    except msgspec.MsgspecError:
        return None


def _write(box: Box, done: _Done) -> None:
    box.write(UPKEEP, msgspec.json.encode(done), is_durable=False)
