"""The bridge from programs without an event loop: one loop in a thread of its own, for as long as anything is open.

`perdure.sync` is made of it and of nothing else: each of its methods hands the call of the same name over to the loop
and waits. What two threads ask of one object is done one after the other.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import anyio
from anyio.from_thread import BlockingPortal

from perdure.errors import SessionClosed, WrongLoop
from perdure.face.opening import Closable

T = TypeVar("T")
C = TypeVar("C", bound=Closable)


class _SharedLoop:
    """The loop that all share, in a thread that runs while anything is open.

    A forked process has no thread but one: there `forget` lets a new loop begin. Nothing may happen by itself when the
    old one is collected, such as the end of a generator that waits for a thread that isn't there.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Know of no loop."""
        self._lock, self._open = threading.Lock(), 0
        self._portal: BlockingPortal | None = None
        self._thread: threading.Thread | None = None

    def enter(self) -> BlockingPortal:
        """Return the way to the loop, for something that is opened."""
        with self._lock:
            if self._portal is None:
                started = Future[BlockingPortal]()
                self._thread = threading.Thread(target=_run, args=(started,), name="perdure-portal", daemon=True)
                self._thread.start()
                self._portal = started.result()
            self._open += 1
            return self._portal

    def leave(self) -> None:
        """Something was closed; the last one ends the loop."""
        with self._lock:
            self._open -= 1
            if self._open or self._portal is None or self._thread is None:
                return
            portal, thread = self._portal, self._thread
            self._portal = self._thread = None
        portal.call(portal.stop)
        thread.join()


def _run(started: Future[BlockingPortal]) -> None:
    async def serve() -> None:
        async with BlockingPortal() as portal:
            started.set_result(portal)
            await portal.sleep_until_stopped()

    try:
        anyio.run(serve)
    except BaseException as e:
        if not started.done():
            started.set_exception(e)
        raise


_LOOP: Final = _SharedLoop()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_LOOP.forget)


@dataclass(frozen=True, slots=True)
class _CallUnderWay:
    """The call that this code is a part of, as a tool or a callback is: what it holds, and its loop's thread."""

    locks: frozenset[threading.Lock] = frozenset()
    thread: int | None = None


_NO_CALL: Final = _CallUnderWay()
_under_way: ContextVar[_CallUnderWay] = ContextVar("perdure-call-under-way", default=_NO_CALL)


class Blocking(Generic[C]):
    """Something with an event loop of its own thread, used from any other thread. Made by `opened`."""

    def __init__(self, inner: C, portal: BlockingPortal, *, within: Blocking[Any] | None = None) -> None:
        self._inner, self._portal, self._within = inner, portal, within
        self._lock: threading.Lock = threading.Lock() if within is None else within._lock
        self._process = os.getpid()
        self._is_closed = False

    @property
    def _is_open(self) -> bool:
        return not self._is_closed and (self._within is None or self._within._is_open)

    def _wait(self, what: str, call: Callable[..., Awaitable[T]], /, *args: Any, **named: Any) -> T:
        """Have a coroutine run on the loop, and wait for what it gives."""
        self._check_process(what)
        check_thread(what)
        if self._lock in _under_way.get().locks:
            raise WrongLoop(_INSIDE.format(what))
        with self._lock:
            self._check_open(what)
            return waited(self._portal, lambda: call(*args, **named), self._lock)

    def _now(self, what: str, call: Callable[..., T], /, *args: Any, **named: Any) -> T:
        """Have a function run on the loop, where nothing changes meanwhile. A tool or a callback may do so, too."""

        async def once() -> T:
            return call(*args, **named)

        under_way = _under_way.get()
        if self._lock not in under_way.locks:
            return self._wait(what, once)
        self._check_process(what)
        self._check_open(what)
        if under_way.thread == threading.get_ident():
            return call(*args, **named)
        check_thread(what)
        return waited(self._portal, once)

    def _at_once(self, call: Callable[[], object]) -> None:
        """Have a function run on the loop, while another call may be under way."""
        self._check_process("interrupt")
        if not self._is_open:
            return
        if _under_way.get().thread == threading.get_ident():  # in a callback
            call()
        else:
            self._portal.start_task_soon(call)

    def _leave(self, what: str) -> None:
        """Close it, and the loop's thread if nothing else needs it; twice is no mistake."""
        if self._process != os.getpid():
            return  # the process that opened it closes it
        check_thread(what)
        if self._lock in _under_way.get().locks:
            raise WrongLoop(_INSIDE.format(what))
        with self._lock:
            if not self._is_open:
                return
            self._is_closed = True
            try:
                waited(self._portal, self._inner.close)
            finally:
                if self._within is None:  # else the loop is kept running by what this is a part of
                    _LOOP.leave()

    def _check_open(self, what: str) -> None:
        if not self._is_open:
            raise SessionClosed(f"{what}: it is closed: open it again")

    def _check_process(self, what: str) -> None:
        if self._process != os.getpid():
            raise WrongLoop(f"{what}: it was opened before this process was forked: open one in this process")


_INSIDE = "{} was called by a tool or a callback of a call that it would wait for: call it when that has returned"


def asked_of(session: Any, what: str, call: Callable[..., Awaitable[T]], /, *args: Any) -> T:
    """Have a tool answer about a session of this face."""
    if not isinstance(session, Blocking):
        raise WrongLoop(f"{what} takes a session of perdure.sync here; for one of perdure, import the tool from there")
    return session._wait(what, call, session._inner, *args)


def opened(what: str, open_it: Callable[[], Awaitable[C]]) -> tuple[C, BlockingPortal]:
    """Open something on the loop, which runs for as long as it isn't left."""
    check_thread(what)
    portal = _LOOP.enter()
    try:
        return waited(portal, open_it), portal
    except BaseException:
        _LOOP.leave()
        raise


async def as_coroutine(opening: Awaitable[C]) -> C:
    """Return what is opened as a coroutine, which a loop can be given."""
    return await opening


def check_thread(what: str) -> None:
    """Raise `WrongLoop` in a thread whose event loop would stand still while this one waits."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    if _under_way.get().thread == threading.get_ident():
        raise WrongLoop(_INSIDE.format(what))
    raise WrongLoop(
        f"perdure.sync: {what} would block the event loop that runs here: use it from perdure, with await, "
        "or call it in a thread, with asyncio.to_thread(…) or anyio.to_thread.run_sync(…)"
    )


def waited(portal: BlockingPortal, call: Callable[[], Awaitable[T]], *held: threading.Lock) -> T:
    """Run a coroutine on the loop. Ctrl-C cancels it, and waits until it has tidied up behind itself.

    `held` is what its tools and callbacks can't wait for. They know of it, since a context goes along into threads.
    """
    ended = threading.Event()

    async def run() -> T:
        _under_way.set(_CallUnderWay(_under_way.get().locks.union(held), threading.get_ident()))
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
