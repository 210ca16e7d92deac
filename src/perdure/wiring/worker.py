"""A worker: takes work from a queue, does it, and has what came of it committed with "done" (SCL-2, SCL-3)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Final

import anyio

from perdure.errors import ClaimLost, JournalError, SessionBusy
from perdure.ports.home import Claim, WorkQueue

LEASE_SECONDS: Final = 30.0  # for so long nobody else takes the work of a worker that was lost
_POLL_SECONDS: Final = (0.25, 1.0)  # between two questions that found nothing
_LATER_SECONDS: Final = 20.0  # until a session is tried again that somebody is at, or a kind that is unknown here

Commit = Callable[[], Awaitable[None]]
Work = Callable[[Claim], AbstractAsyncContextManager[Commit]]


@dataclass(slots=True)
class WorkCounts:
    """What came of claims. `lost` were taken by another worker before they were finished."""

    done: int = 0
    failed: int = 0
    released: int = 0
    lost: int = 0


@dataclass(slots=True)
class Worker:
    """Does up to `places` pieces of work at a time, each as `work_of` its kind says (None: it doesn't know that).

    Entering a piece of work does it, which may take minutes, and writes nothing: it gives the function that does. That
    is called once, within `WorkQueue.finishing`; then the work is left. `on_end` hears what came of each claim, by the
    names of `WorkCounts`.
    """

    queue: WorkQueue
    name: str
    work_of: Callable[[str], Work | None]
    places: int = 4
    lease_seconds: float = LEASE_SECONDS
    on_end: Callable[[str], None] = lambda outcome: None
    chance: Random = field(default_factory=Random)
    counts: WorkCounts = field(default_factory=WorkCounts, init=False)
    problem: str = field(default="", init=False)  # why the queue couldn't be asked last; empty when it could
    _busy: int = field(default=0, init=False)
    _is_stopped: bool = field(default=False, init=False)
    _news: anyio.Event = field(default_factory=anyio.Event, init=False)  # a piece of work ended, or `stop`

    async def run(self, *, until_idle: bool = False) -> None:
        """Work until `stop`; cancelled, what is under way is given back.

        Args:
            until_idle: Return, too, when nothing is due and nothing is under way any more.
        """
        async with anyio.create_task_group() as group:
            while not self._is_stopped or self._busy:
                found = await self._claimed()
                for claim in found:
                    self._busy += 1
                    group.start_soon(self._one, claim)
                if until_idle and not self._busy and not self.problem:
                    return
                if found and self._busy < self.places:
                    continue
                with anyio.move_on_after(self.chance.uniform(*_POLL_SECONDS)):
                    await self._news.wait()
                self._news = anyio.Event()

    def stop(self) -> None:
        """Take nothing more; `run` returns when what is under way is done."""
        self._is_stopped = True
        self._news.set()

    async def _claimed(self) -> list[Claim]:
        if self._is_stopped or self._busy >= self.places:
            return []
        try:
            found = await self.queue.claim(self.name, limit=self.places - self._busy, seconds=self.lease_seconds)
        except JournalError as e:
            self.problem = str(e)
            return []
        self.problem = ""
        return list(found)

    async def _one(self, claim: Claim) -> None:
        try:
            await self._done(claim)
        except ClaimLost:
            self.counts.lost += 1
            self.on_end("lost")
        except SessionBusy:
            await self._given_back(claim, _LATER_SECONDS)
        except Exception as e:  # the boundary to what kinds do: it ends no worker
            self.counts.failed += 1
            self.on_end("failed")
            await self._told(partial(self.queue.fail, claim, f"{type(e).__name__}: {e}"))
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self._given_back(claim, 0.0)
            raise
        finally:
            self._busy -= 1
            self._news.set()

    async def _done(self, claim: Claim) -> None:
        if (work := self.work_of(claim.kind)) is None:
            await self._given_back(claim, _LATER_SECONDS)  # a newer program wanted it, and one of those will take it
            return
        is_finishing = False

        async def renew(scope: anyio.CancelScope) -> None:
            """Say that somebody is at it; it ends when somebody else is. While it is committed, the fence tells."""
            while True:
                await anyio.sleep(self.lease_seconds / 3)
                with suppress(JournalError):  # the store may come back in time
                    if not await self.queue.renew(claim, seconds=self.lease_seconds) and not is_finishing:
                        scope.cancel()

        try:
            async with anyio.create_task_group() as group:
                group.start_soon(renew, group.cancel_scope)
                async with work(claim) as commit:
                    is_finishing = True
                    async with self.queue.finishing(claim):
                        await commit()
                    self.counts.done += 1
                    self.on_end("done")
                group.cancel_scope.cancel()
        except ExceptionGroup as e:
            raise e.exceptions[0] from None
        if not is_finishing:
            raise ClaimLost(f"{claim.kind} of session {claim.session}: another worker has taken it meanwhile")

    async def _given_back(self, claim: Claim, seconds: float) -> None:
        self.counts.released += 1
        self.on_end("released")
        await self._told(partial(self.queue.release, claim, seconds=seconds))

    async def _told(self, tell: Callable[[], Awaitable[None]]) -> None:
        """Say what became of a claim; where that can't be said, its time runs out."""
        try:
            await tell()
        except JournalError as e:
            self.problem = str(e)
