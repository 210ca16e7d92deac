"""Events as OpenTelemetry spans and metrics (OBS-1), by the GenAI conventions where there are any, else our own names.

Only `opentelemetry-api` is needed, and without an SDK set up by the host nothing is sent anywhere. Conventions of 2026:
https://github.com/open-telemetry/semantic-conventions-genai. Their names are written out here, since the package of
constants marks all of them as moved. No message text is ever in a span.
"""

from __future__ import annotations

import re
import time
from typing import Any

import msgspec
from opentelemetry import metrics, trace
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import SpanKind, Status, StatusCode, TracerProvider

from perdure.adapters.sinks import About
from perdure.context.models import model_spec
from perdure.events import (
    CompactionAttemptFailed,
    CompactionDone,
    Event,
    KeeperDone,
    KeeperFailed,
    ModelCalled,
    ModelFailed,
    PrefixMoved,
)

SCOPE = "perdure"
_SECOND = 1_000_000_000  # nanoseconds
NAMES = {"session": "gen_ai.conversation.id", "model": "gen_ai.request.model"}  # others are ours


class OtelSink:
    """`ports.Sink` that makes a span of what took time and an event on the current span of everything else.

    A call of a model is a span `chat MODEL`, a compaction `compact MODEL`, a keeper's run `keep NAME`. With
    `has_model_spans` off the calls are left out, for hosts whose SDK makes these spans itself. `about` names the
    session, under `session`, and whatever else the spans are to carry.
    """

    def __init__(
        self,
        about: About | None = None,
        *,
        has_model_spans: bool = True,
        tracers: TracerProvider | None = None,
        meters: MeterProvider | None = None,
    ) -> None:
        self._tracer = trace.get_tracer(SCOPE, tracer_provider=tracers)
        self._about = about
        self._has_model_spans = has_model_spans
        self._is_compacted = False
        self._model = ""
        meter = metrics.get_meter(SCOPE, meter_provider=meters)
        self._seconds = meter.create_histogram("gen_ai.client.operation.duration", unit="s")
        self._tokens = meter.create_histogram("gen_ai.client.token.usage", unit="{token}")
        self._rewritten = meter.create_counter("perdure.prefix.rewritten_tokens", unit="{token}")
        self._compacted = meter.create_counter("perdure.compaction.removed_tokens", unit="{token}")

    def emit(self, event: Event) -> None:
        match event:
            case ModelCalled():
                self._called(event)
            case ModelFailed():
                self._call(event, error=event.reason)
            case CompactionDone():
                self._is_compacted = True
                self._span("compact", event, name=f"compact {self._model}".strip(), compacted=True)
                self._compacted.add(max(0, event.tokens_before - event.tokens_after), {"strategy": event.strategy})
            case CompactionAttemptFailed():
                self._span("compact", event, name=f"compact {self._model}".strip(), error=event.reason.split(":")[0])
            case KeeperDone():
                self._span(None, event, name=f"keep {event.keeper}", seconds=event.seconds)
            case KeeperFailed():
                self._span(None, event, name=f"keep {event.keeper}", seconds=event.seconds, error=event.reason)
            case _:
                if isinstance(event, PrefixMoved):
                    self._rewritten.add(event.tokens_rewritten, {"reason": event.reason})
                trace.get_current_span().add_event(f"perdure.{_snake(event)}", self._common() | _own(event))

    def _common(self) -> dict[str, Any]:
        """Whose event it is."""
        about = self._about() if self._about else {}
        return {NAMES.get(name, f"{SCOPE}.{name}"): value for name, value in about.items()}

    def _called(self, event: ModelCalled) -> None:
        self._model = event.model
        about = {"gen_ai.request.model": event.model, "gen_ai.provider.name": model_spec(event.model).provider}
        for kind, count in (("input", event.prompt_tokens), ("output", event.output_tokens)):
            if count is not None:
                self._tokens.record(count, {**about, "gen_ai.token.type": kind})
        self._call(event)

    def _call(self, event: ModelCalled | ModelFailed, *, error: str | None = None) -> None:
        about = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": event.model,
            "gen_ai.provider.name": model_spec(event.model).provider,
        }
        self._seconds.record(event.seconds, {**about, **({"error.type": error} if error else {})})
        if self._has_model_spans:
            more = {**about, **(_answered(event) if isinstance(event, ModelCalled) else {})}
            self._span("chat", event, name=f"chat {event.model}", seconds=event.seconds, error=error, more=more)

    def _span(
        self,
        operation: str | None,
        event: Event,
        *,
        name: str,
        seconds: float = 0.0,
        error: str | None = None,
        compacted: bool = False,
        more: dict[str, Any] | None = None,
    ) -> None:
        """A span that has ended just now: events come when what they tell of is over."""
        ended = time.time_ns()
        told = self._common() | _own(event) | (more or {})
        if operation:
            told["gen_ai.operation.name"] = operation
        if compacted or (self._is_compacted and operation == "chat"):
            told["gen_ai.conversation.compacted"] = True
        kind = SpanKind.CLIENT if operation == "chat" else SpanKind.INTERNAL
        span = self._tracer.start_span(
            name, kind=kind, start_time=ended - round(seconds * _SECOND), attributes=told, record_exception=False
        )
        if error:
            span.set_attribute("error.type", error)
            span.set_status(Status(StatusCode.ERROR, error))
        span.end(ended)


def _answered(event: ModelCalled) -> dict[str, Any]:
    told = {
        "gen_ai.response.id": event.response_id,
        "gen_ai.response.finish_reasons": [event.stop_reason],
        "gen_ai.usage.input_tokens": event.prompt_tokens,  # cached ones are part of it
        "gen_ai.usage.output_tokens": event.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": event.cache_read_tokens,
    }
    return {name: value for name, value in told.items() if value is not None}


def _own(event: Event) -> dict[str, Any]:
    """An event's fields under our own names; what has no value is left out, as attributes have none."""
    prefix = f"perdure.{_snake(event)}"
    return {
        f"{prefix}.{name}": list(value) if isinstance(value, tuple) else value
        for name, value in msgspec.structs.asdict(event).items()
        if value is not None
    }


def _snake(event: Event) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", type(event).__name__).lower()
