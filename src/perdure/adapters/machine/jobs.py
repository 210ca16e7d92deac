"""Background work on this process's event loop (`ports.Jobs`)."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable

_LOG = logging.getLogger("perdure")


class TaskJobs:
    """`ports.Jobs` as asyncio tasks. Work that raises is logged and forgotten; `close` cancels what still runs.

    A program may have a loop for each call. What still waits when its loop ends is over, and nobody is warned of it.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        task = asyncio.get_running_loop().create_task(_run(name, work), name=f"perdure-{name}")
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # of a loop that was closed under it
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def drain(self, seconds: float | None = None) -> bool:
        """Also waits for what the work itself starts."""
        loop = asyncio.get_running_loop()
        end = None if seconds is None else loop.time() + seconds
        while tasks := self._of(loop):
            left = None if end is None else end - loop.time()
            if left is not None and left <= 0:
                return False
            await asyncio.wait(tasks, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        return True

    async def close(self) -> None:
        tasks = self._of(asyncio.get_running_loop())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _of(self, loop: asyncio.AbstractEventLoop) -> set[asyncio.Task[None]]:
        return {task for task in self._tasks if task.get_loop() is loop}


class WaitingJobs:
    """`ports.Jobs` that lets work wait until somebody settles, and does it then, in the order in which it came.

    For replays and measures: a session has the same background work done at the same places in every run.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[str, Callable[[], Awaitable[None]]]] = deque()

    def start(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        self._waiting.append((name, work))

    async def drain(self, seconds: float | None = None) -> bool:
        """Does all of it, also what the work itself starts, however long that takes."""
        while self._waiting:
            await _run(*self._waiting.popleft())
        return True

    async def close(self) -> None:
        self._waiting.clear()


async def _run(name: str, work: Callable[[], Awaitable[None]]) -> None:
    try:
        await work()
    except Exception:  # the boundary to background work: nobody waits for it, so it must not vanish unseen
        _LOG.exception("background work failed: %s", name)
