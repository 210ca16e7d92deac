"""The bridge from programs without an event loop: one loop in a thread of its own, for as long as anything is open.

`perdure.sync` is made of it and of nothing else: each of its methods hands the call of the same name over to the loop
and waits. What two threads ask of one object is done one after the other.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from anyio.from_thread import BlockingPortal, BlockingPortalProvider

from perdure.errors import SessionClosed, WrongLoop
from perdure.face.opening import Closable

T = TypeVar("T")
C = TypeVar("C", bound=Closable)

_PORTALS = BlockingPortalProvider()


class Blocking(Generic[C]):
    """Something with an event loop of its own thread, used from any other thread. Made by `opened`."""

    def __init__(self, inner: C, portal: BlockingPortal, *, within: Blocking[Any] | None = None) -> None:
        self._inner, self._portal, self._within = inner, portal, within
        self._lock: threading.Lock = threading.Lock() if within is None else within._lock
        self._is_closed = False

    @property
    def _is_open(self) -> bool:
        return not self._is_closed and (self._within is None or self._within._is_open)

    def _wait(self, what: str, call: Callable[..., Awaitable[T]], /, *args: Any, **named: Any) -> T:
        """Have a coroutine run on the loop, and wait for what it gives."""
        check_thread(what)
        with self._lock:
            if not self._is_open:
                raise SessionClosed(f"{what}: it is closed: open it again")
            return waited(self._portal, lambda: call(*args, **named))

    def _now(self, what: str, call: Callable[..., T], /, *args: Any, **named: Any) -> T:
        """Have a function run on the loop, where nothing changes meanwhile."""

        async def once() -> T:
            return call(*args, **named)

        return self._wait(what, once)

    def _at_once(self, call: Callable[[], object]) -> None:
        """Have a function run on the loop, while another call may be under way."""
        if self._is_open:
            self._portal.start_task_soon(call)

    def _leave(self, what: str) -> None:
        """Close it, and the loop's thread if nothing else needs it; twice is no mistake."""
        check_thread(what)
        with self._lock:
            if not self._is_open:
                return
            self._is_closed = True
            try:
                waited(self._portal, self._inner.close)
            finally:
                if self._within is None:  # else the loop is kept running by what this is a part of
                    _PORTALS.__exit__(None, None, None)


def asked_of(session: Any, what: str, call: Callable[..., Awaitable[T]], /, *args: Any) -> T:
    """Have a tool answer about a session of this face."""
    if not isinstance(session, Blocking):
        raise WrongLoop(f"{what} takes a session of perdure.sync here; for one of perdure, import the tool from there")
    return session._wait(what, call, session._inner, *args)


def opened(what: str, open_it: Callable[[], Awaitable[C]]) -> tuple[C, BlockingPortal]:
    """Open something on the loop, which runs for as long as it isn't left."""
    check_thread(what)
    portal = _PORTALS.__enter__()
    try:
        return waited(portal, open_it), portal
    except BaseException:
        _PORTALS.__exit__(None, None, None)
        raise


async def as_coroutine(opening: Awaitable[C]) -> C:
    """What is opened, as a coroutine, which a loop can be given."""
    return await opening


def check_thread(what: str) -> None:
    """Raise `WrongLoop` in a thread whose event loop would stand still while this one waits."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise WrongLoop(f"perdure.sync: {what} would block the event loop that runs here: use it from perdure, with await")


def waited(portal: BlockingPortal, call: Callable[[], Awaitable[T]]) -> T:
    """Run a coroutine on the loop. Ctrl-C cancels it, and waits until it has tidied up behind itself."""
    ended = threading.Event()

    async def run() -> T:
        try:
            return await call()
        finally:
            ended.set()

    future = portal.start_task_soon(run)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        ended.wait()
        raise
