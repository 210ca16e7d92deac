"""SPD-8: what takes long leaves the event loop, on values that nobody changes meanwhile."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from perdure import Message, Settings
from perdure.adapters.journal import journal
from perdure.compaction import plan as deciding
from perdure.compaction.ledger import reader
from perdure.compaction.ledger.reader import index_of
from perdure.context.view import ContextView
from perdure.engine import compact as compaction
from perdure.engine import compact as strategies
from perdure.engine import session as leaving
from perdure.engine import session as sessions
from perdure.engine import turn
from perdure.engine.compact import CompactionFailure, CompactionSuccess, compact
from perdure.engine.rewind import rewind_to
from perdure.engine.session import LARGE_BYTES, LiveSession, run_aside
from perdure.engine.turn import prepare
from perdure.testing import ScriptedModel
from perdure.wiring import SessionOptions, create_session, memory_session, open_session

pytestmark = pytest.mark.unit
LARGE = "a word and a line of /some/path.py:12\n" * 3_000
WIDE = SessionOptions(settings=Settings(window_tokens=1_000_000, durability="process"))
PLACES: tuple[tuple[Any, str], ...] = (
    (strategies, "ledger_plan"),
    (compaction, "track_scene"),
    (compaction, "build_boundary"),
    (deciding, "index_of"),
    (sessions, "_read"),
    (sessions, "_folded"),
    (turn, "to_request"),
    (journal, "encode_line"),
)


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> dict[str, set[int]]:
    """Which threads did each piece of work."""
    seen: dict[str, set[int]] = {}
    for module, name in PLACES:
        _watch(monkeypatch, seen, module, name)
    return seen


def _watch(monkeypatch: pytest.MonkeyPatch, seen: dict[str, set[int]], module: Any, name: str) -> None:
    real: Callable[..., Any] = getattr(module, name)

    @wraps(real)
    def watched(*args: Any, **more: Any) -> Any:
        seen.setdefault(name, set()).add(threading.get_ident())
        return real(*args, **more)

    monkeypatch.setattr(module, name, watched)


async def talked(session: LiveSession, text: str = LARGE) -> LiveSession:
    for number in range(3):
        await session.append(Message.of("user", f"{number} {text}"), Message.of("assistant", f"so {number}"))
    return session


@pytest.mark.nightly
def test_a_large_session_is_worked_on_beside_the_loop(tmp_path: Path, threads: dict[str, set[int]]) -> None:
    """SPD-8: saying, preparing, compacting and opening: nothing of it in the loop's thread once it is large."""

    async def run() -> None:
        session = await talked(await create_session(tmp_path, project="/p", parts=WIDE))
        threads.clear()  # also of what was still small
        await session.append(Message.of("user", LARGE))
        assert threading.get_ident() not in threads["encode_line"]
        await prepare(session)
        assert isinstance(await compact(session, trigger="manual"), CompactionSuccess)
        await talked(session)
        await session.close()
        threads.pop("encode_line")
        await (await open_session(tmp_path, session.id, parts=WIDE)).close()
        threads.pop("encode_line")
        assert len(threads) == len(PLACES) - 1
        assert all(threading.get_ident() not in some for some in threads.values()), threads

    asyncio.run(run())


def test_a_small_session_needs_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """SPD-1: a thread costs more than little work does."""

    async def none(*args: Any, **more: Any) -> Any:
        raise AssertionError("a thread for little work")

    async def run() -> None:
        session = await talked(await memory_session(), "a few words")
        monkeypatch.setattr(leaving.anyio.to_thread, "run_sync", none)
        await prepare(session)
        assert isinstance(await compact(session, trigger="manual"), CompactionSuccess | CompactionFailure)

    asyncio.run(run())


@pytest.mark.parametrize("times", [1, 99])
def test_what_is_said_meanwhile_is_not_lost(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """CMP-8: a session that changed while its record was made is looked at again; one that never rests stays whole."""
    judged, said = compaction.build_boundary, list[str]()

    async def run() -> None:
        session = await talked(await memory_session(parts=WIDE), LARGE[:LARGE_BYTES])
        loop = asyncio.get_running_loop()

        def slow(*args: Any, **more: Any) -> Any:
            done = judged(*args, **more)
            if len(said) < times:
                said.append(f"meanwhile {len(said)}")
                asyncio.run_coroutine_threadsafe(session.append(Message.of("user", said[-1])), loop).result(10)
            return done

        monkeypatch.setattr(compaction, "build_boundary", slow)
        outcome = await compact(session, trigger="manual")
        shown = "\n".join(str(block.value) for item in session.view.items for block in item.visible)
        assert all(text in shown for text in said)
        if times == 1:
            assert isinstance(outcome, CompactionSuccess) and len(said) == 1
        else:
            assert isinstance(outcome, CompactionFailure) and outcome.reason.startswith("changed")
            assert session.view.boundary is None

    asyncio.run(run())


def test_work_that_fails_aside_fails_as_it_does_here() -> None:
    def broken() -> None:
        raise ValueError("broken")

    async def run() -> None:
        for size in (0, LARGE_BYTES + 1):
            with pytest.raises(ValueError, match="broken"):
                await run_aside(size, broken)

    asyncio.run(run())


def test_without_a_loop_nobody_is_held_up() -> None:
    coroutine = run_aside(LARGE_BYTES + 1, lambda: 42)
    with pytest.raises(StopIteration) as end:
        coroutine.send(None)
    assert end.value.value == 42


def test_a_turn_rests_beside_the_loop(threads: dict[str, set[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    """SPD-8: reading for the ledger after an answer, too."""
    _watch(monkeypatch, threads, reader, "index_of")

    async def run() -> None:
        session = await memory_session(parts=WIDE)
        await turn.run_turn(session, LARGE, ScriptedModel(["fine"]))
        assert threading.get_ident() not in threads["index_of"]
        assert session.view.index is not None and len(session.view.index) == 2

    asyncio.run(run())


def test_short_turns_are_read_for_the_ledger_once_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """SPD-1, CMP-5: the ledger reads nothing after a short turn; what several said is read at once."""
    read: list[int] = []

    def counted(view: ContextView, settings: Settings, *more: Any) -> Any:
        read.append(len(view.items))
        return index_of(view, settings)

    monkeypatch.setattr(reader, "index_of", counted)

    async def run() -> None:
        session = await memory_session(parts=WIDE)
        for _ in range(6):
            await turn.run_turn(session, LARGE[: LARGE_BYTES // 5], ScriptedModel(["fine"]))
            assert session.view.unread_bytes <= LARGE_BYTES
        assert read == [10]

    asyncio.run(run())


def test_what_was_read_of_other_messages_is_no_index() -> None:
    """SPD-8: a view that holds as many messages as before, but others, doesn't take over what was read of those."""

    async def run() -> None:
        session = await talked(await memory_session(parts=WIDE))
        view, loop = session.view, asyncio.get_running_loop()

        async def otherwise() -> None:
            await rewind_to(session, view.items[3].message.id)
            await session.append(Message.of("user", "no"), Message.of("assistant", "fine"))

        def meanwhile(seen: ContextView) -> None:
            index_of(seen, session.settings)
            asyncio.run_coroutine_threadsafe(otherwise(), loop).result(10)

        count = len(view.items)
        await leaving.run_aside_of(view, meanwhile)
        assert session.view is view and len(view.items) == count
        assert view.index is None

    asyncio.run(run())


def test_what_fails_aside_is_let_go_of_at_once() -> None:
    """GW-12: an error that knew what it was raised in would keep what was looked through until a collection."""

    class Large(bytearray):
        pass

    async def fails(large: Large) -> None:
        def work() -> None:
            raise ValueError(len(large))

        with pytest.raises(ValueError, match="3"):
            await run_aside(LARGE_BYTES + 1, work)

    async def failed() -> weakref.ref[Large]:
        large = Large(b"abc")
        await fails(large)
        kept = weakref.ref(large)
        del large
        for _ in range(2):  # the thread lets go of its last work once it has told of it, at the latest with the next
            await run_aside(LARGE_BYTES + 1, lambda: None)
        return kept

    gc.disable()
    try:
        assert asyncio.run(failed())() is None
    finally:
        gc.enable()
