"""Sinks, and the wiring that hands them to sessions (OBS-1, ENG-4)."""

from __future__ import annotations

import json
import logging
import stat
from pathlib import Path

import anyio
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from perdure.adapters.sinks import JsonlSink, ListSink, LoggingSink, NullSink, TeeSink, sinks_of
from perdure.adapters.telemetry import OtelSink
from perdure.errors import BadSetting, SessionBusy, SessionNotFound
from perdure.events import CompactionDone, Event, MessageAppended, ModelCalled, ModelFailed, PrefixMoved, SettingIgnored
from perdure.settings import Settings
from perdure.transcript.blocks import text_block
from perdure.transcript.messages import Message, MessageId, content_of
from perdure.wiring import SessionOptions, create_session, memory_session, open_session

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


def test_a_sink_that_raises_fails_no_turn() -> None:
    """OBS-1: also when it is the only one; it is not called again."""

    async def body() -> None:
        broken = Broken()
        session = await memory_session(parts=SessionOptions(sink=broken))
        await session.append("one")
        await session.append("two")
        assert len(session.view.items) == 2 and broken.calls == 1

    anyio.run(body)


def test_lines_of_json_in_a_private_file(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    sink = JsonlSink(path, now=lambda: 5.0)
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
    with caplog.at_level(logging.INFO, logger="perdure"):
        LoggingSink().emit(SettingIgnored("name", "why"))
    assert caplog.messages == ["SettingIgnored name=name reason=why"]


def said(text: str) -> Message:
    return Message(id=MessageId(text), role="user", content=content_of([text_block(text)]), origin="user")


def test_sessions_on_files_and_in_memory(tmp_path: Path) -> None:
    async def live() -> None:
        sink = ListSink()
        session = await create_session(tmp_path, project=tmp_path, session="s", parts=SessionOptions(sink=sink))
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


# --- OpenTelemetry


def traced() -> tuple[OtelSink, InMemorySpanExporter, InMemoryMetricReader]:
    spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracers = TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    return OtelSink(lambda: {"session": "s1"}, tracers=tracers, meters=MeterProvider([reader])), spans, reader


CALLED = ModelCalled("claude-x", "main", "r1", "end_turn", 1.5, 90, 100, 60, 7, 0.01)


def test_calls_and_compactions_are_spans_by_the_conventions() -> None:
    """OBS-1: GenAI names, cached tokens within the input, and that the conversation is a compacted one from then on."""
    sink, spans, reader = traced()
    sink.emit(CALLED)
    sink.emit(CompactionDone("auto", "ledger", 1000, 300, 100, 200))
    sink.emit(CALLED)
    sink.emit(ModelFailed("claude-x", "main", "overloaded", 529, 0.5))
    first, compacted, second, failed = spans.get_finished_spans()
    assert [s.name for s in (first, compacted, failed)] == ["chat claude-x", "compact claude-x", "chat claude-x"]
    told = dict(first.attributes or {})
    assert told["gen_ai.usage.input_tokens"] == 100 and told["gen_ai.usage.cache_read.input_tokens"] == 60
    assert told["gen_ai.conversation.id"] == "s1" and told["gen_ai.provider.name"] == "anthropic"
    assert "gen_ai.conversation.compacted" not in told and (second.attributes or {})["gen_ai.conversation.compacted"]
    assert first.end_time is not None and first.start_time is not None
    assert first.end_time - first.start_time == 1_500_000_000
    assert (failed.attributes or {})["error.type"] == "overloaded" and not failed.status.is_ok
    assert (compacted.attributes or {})["perdure.compaction_done.strategy"] == "ledger"
    data = reader.get_metrics_data()
    assert data is not None
    names = {m.name for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics}
    assert {"gen_ai.client.operation.duration", "perdure.compaction.removed_tokens"} <= names


def test_other_events_stand_on_the_span_that_is_open() -> None:
    sink, spans, _ = traced()
    tracer = TracerProvider()
    tracer.add_span_processor(SimpleSpanProcessor(spans))
    with tracer.get_tracer("host").start_as_current_span("turn"):
        sink.emit(EVENT)
    (turn,) = spans.get_finished_spans()
    (event,) = turn.events
    assert event.name == "perdure.prefix_moved"
    assert dict(event.attributes or {})["perdure.prefix_moved.tokens_rewritten"] == 40
    assert "perdure.prefix_moved.usd" not in (event.attributes or {}), "what has no value is left out"


def test_a_setting_names_the_sinks(tmp_path: Path) -> None:
    """OBS-1: off by default; a session made with the setting writes there; an unknown name is refused."""
    assert sinks_of((), about=dict, now=lambda: 1.0) == []
    path = tmp_path / "events.jsonl"

    async def talk() -> None:
        session = await create_session(
            tmp_path / "home",
            project=tmp_path,
            parts=SessionOptions(settings=Settings(events=("log", f"jsonl:{path}", "otel"))),
        )
        await session.append(Message.of("user", "hello secret words"))
        await session.close()

    anyio.run(talk)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert any(line["event"] == "MessageAppended" for line in lines) and "secret" not in path.read_text()
    for bad in ("jsonl", "jsonl:", "otel:x", "syslog"):
        with pytest.raises(BadSetting, match="is no sink"):
            sinks_of((bad,), about=dict, now=lambda: 1.0)
