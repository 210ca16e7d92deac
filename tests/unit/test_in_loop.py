"""What Ctrl-C does to a command that waits for a thread (CLI-5)."""

from __future__ import annotations

import os
import signal
import time

import anyio
import pytest

from perdure.cli.loop import in_loop


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_what_runs_in_a_thread_is_done_before_it_is_taken_back() -> None:
    """CLI-5: a cancellation of asyncio's would be told at once, and the thread would go on behind it."""
    happened: list[str] = []

    def made() -> None:
        interrupt()
        time.sleep(0.1)
        happened.append("made")

    async def body() -> None:
        try:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(made)
            await anyio.sleep(60)
        finally:
            happened.append("taken back")

    with pytest.raises(KeyboardInterrupt):
        in_loop(body)
    assert happened == ["made", "taken back"]


def test_a_second_one_waits_for_nothing() -> None:
    """CLI-5: what is shielded may hang."""
    begun = time.monotonic()

    async def body() -> None:
        with anyio.CancelScope(shield=True):
            interrupt()
            await anyio.sleep(0.05)
            interrupt()
            await anyio.sleep(60)

    with pytest.raises(KeyboardInterrupt):
        in_loop(body)
    assert time.monotonic() - begun < 30


def test_an_answer_is_given_and_the_handler_is_as_it_was() -> None:
    """CLI-5: what came in time isn't thrown away."""
    before = signal.getsignal(signal.SIGINT)

    async def body(word: str) -> str:
        interrupt()
        return word

    assert in_loop(body, "done") == "done"
    assert signal.getsignal(signal.SIGINT) is before
