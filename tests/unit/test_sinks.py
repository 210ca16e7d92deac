"""Sinks, and the wiring that hands them to sessions (OBS-1, ENG-4)."""

from __future__ import annotations

import json
import logging
import stat
from pathlib import Path

import anyio
import pytest

from holdfast.adapters.sinks import JsonlSink, ListSink, LoggingSink, NullSink, TeeSink
from holdfast.errors import SessionBusy, SessionNotFound
from holdfast.events import Event, MessageAppended, PrefixMoved, SettingIgnored
from holdfast.transcript.blocks import text_block
from holdfast.transcript.messages import Message, MessageId, content_of
from holdfast.wiring import Parts, create_session, memory_session, open_session

pytestmark = pytest.mark.unit

EVENT = PrefixMoved(reason="cleared", position=3, tokens_rewritten=40, usd=None)


class Broken:
    """A sink of somebody else's."""

    def __init__(self) -> None:
        self.calls = 0

    def emit(self, event: Event) -> None:
        self.calls += 1
        raise RuntimeError("no room")


def test_one_broken_sink_does_not_silence_the_others(caplog: pytest.LogCaptureFixture) -> None:
    broken, kept = Broken(), ListSink()
    sink = TeeSink(broken, NullSink(), kept)
    sink.emit(EVENT)
    sink.emit(EVENT)
    assert kept.events == [EVENT, EVENT] and broken.calls == 1
    assert "left out" in caplog.text


def test_lines_of_json_in_a_private_file(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    sink = JsonlSink(path, now=lambda: 5.0)
    sink.emit(EVENT)
    sink.close()
    sink.emit(EVENT)
    (line,) = path.read_text().splitlines()
    told = {"at": 5.0, "event": "PrefixMoved", "reason": "cleared", "position": 3, "tokens_rewritten": 40, "usd": None}
    assert json.loads(line) == told
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_that_cannot_be_written_is_said_and_never_raised(tmp_path: Path) -> None:
    sink = JsonlSink(tmp_path / "no" / "folder.jsonl")
    sink.emit(EVENT)
    assert sink.problem is not None and "no longer written" in sink.problem


def test_the_log_gets_the_fields(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="holdfast"):
        LoggingSink().emit(SettingIgnored("name", "why"))
    assert caplog.messages == ["SettingIgnored name=name reason=why"]


def said(text: str) -> Message:
    return Message(id=MessageId(text), role="user", content=content_of([text_block(text)]), origin="user")


def test_sessions_on_files_and_in_memory(tmp_path: Path) -> None:
    async def live() -> None:
        sink = ListSink()
        session = await create_session(tmp_path, project=tmp_path, session="s", parts=Parts(sink=sink))
        await session.append(said("hello"))
        assert [type(event) for event in sink.events] == [MessageAppended]
        with pytest.raises(SessionBusy):
            await open_session(tmp_path, "s")
        reader = await open_session(tmp_path, "s", read_only=True)
        assert len(reader.view.items) == 1
        await session.close()
        again = await open_session(tmp_path, "s")
        await again.append(said("more"))
        assert len(again.view.items) == 2
        await again.close()
        with pytest.raises(SessionNotFound):
            await open_session(tmp_path, "t")
        volatile = await memory_session()
        await volatile.append(said("gone soon"))
        assert len(volatile.view.items) == 1

    anyio.run(live)
