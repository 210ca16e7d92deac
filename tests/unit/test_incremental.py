"""TOK-5, TURN-1: work is done for what is new, and nothing before the last boundary is looked at again."""

from __future__ import annotations

import anyio
import pytest

from perdure import Message
from perdure.engine.compact import compact
from perdure.engine.session import LiveSession
from perdure.engine.turn import prepare
from perdure.transcript import messages
from perdure.transcript.blocks import Block
from perdure.transcript.tokens import Size
from perdure.wiring import memory_session

pytestmark = pytest.mark.unit


async def grown(turns: int) -> LiveSession:
    session = await memory_session()
    for turn in range(turns):
        call = {"type": "tool_use", "id": f"c{turn}", "name": "Bash", "input": {"command": "ls"}}
        result = {"type": "tool_result", "tool_use_id": f"c{turn}", "content": "words " * 200}
        await session.append(Message.of("user", f"prompt {turn}"), Message.of("assistant", [call]))
        await session.append(Message.of("user", [result]), Message.of("assistant", "done"))
    return session


def test_a_message_is_counted_once_however_long_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """TOK-5: appending costs work for that message alone, and preparing a turn counts nothing again."""
    counted: list[bytes] = []
    size_of = messages.block_size

    def counting(block: Block) -> Size:
        counted.append(block.raw)
        return size_of(block)

    async def body() -> None:
        for turns in (5, 50):
            session = await grown(turns)
            await prepare(session)
            counted.clear()
            await session.append(Message.of("user", "one more"))
            await prepare(session)
            assert len(counted) == 1, f"after {turns} turns"

    monkeypatch.setattr(messages, "block_size", counting)
    anyio.run(body)


def test_a_turn_starts_at_the_last_boundary() -> None:
    """TURN-1: behind a compaction the view holds its record and what it kept, and a pass sees nothing else."""

    async def body() -> None:
        session = await grown(40)
        before = [item.message.id for item in session.view.items]
        await compact(session, trigger="manual")
        boundary = session.view.boundary
        assert boundary is not None and session.view.past is None
        assert tuple(item.message.id for item in session.view.items) == boundary.order
        gone = set(before) - set(boundary.kept)
        assert gone and not gone & session.view.positions.keys()
        assert not {f"c{turn}" for turn in range(5)} & session.view.results.keys()

    anyio.run(body)
