"""Spans and metrics over OTLP, for a process that is its own host, such as the gateway (GW-9, OBS-1)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode

from perdure.adapters.sinks import About
from perdure.adapters.telemetry import NAMES, SCOPE, OtelSink

_SECOND = 1_000_000_000  # nanoseconds
_TIMEOUT_SECONDS = 5  # for one export; a collector that is away holds up nothing but these


class OtlpExport:
    """Sends spans and metrics to a collector, from threads of the SDK.

    What the standard variables say (`OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_RESOURCE_ATTRIBUTES`, …) is heeded.
    """

    def __init__(self, url: str) -> None:
        """`url` is the collector's, such as `http://127.0.0.1:4318`."""
        about = Resource.create({"service.name": "perdure-gateway"})
        base = url.rstrip("/")
        spans = OTLPSpanExporter(endpoint=f"{base}/v1/traces", timeout=_TIMEOUT_SECONDS)
        metrics = OTLPMetricExporter(endpoint=f"{base}/v1/metrics", timeout=_TIMEOUT_SECONDS)
        self._tracers = TracerProvider(resource=about, shutdown_on_exit=False)
        self._tracers.add_span_processor(BatchSpanProcessor(spans))
        self._meters = MeterProvider([PeriodicExportingMetricReader(metrics)], resource=about, shutdown_on_exit=False)
        self._tracer = self._tracers.get_tracer(SCOPE)

    def sink(self, about: About) -> OtelSink:
        """What exports the events of a session."""
        return OtelSink(about, tracers=self._tracers, meters=self._meters)

    def request(self, told: Mapping[str, Any]) -> None:
        """Export a request that has just ended, by its line in the access log."""
        ended = time.time_ns()
        status = told.get("status")
        names = {**NAMES, "status": "http.response.status_code", "client": "user_agent.original"}
        attributes = {names.get(name, f"{SCOPE}.{name}"): value for name, value in told.items() if name != "time"}
        span = self._tracer.start_span(
            f"request {told.get('kind', '')}".strip(),
            kind=SpanKind.SERVER,
            start_time=ended - round(told["ms"] / 1e3 * _SECOND),
            attributes=attributes,
        )
        if status is None or status >= 500 or told["ending"] == "broken":
            span.set_status(Status(StatusCode.ERROR, told.get("reason")))
        span.end(ended)

    def close(self) -> None:
        """Send what is waiting."""
        self._tracers.shutdown()
        self._meters.shutdown(_TIMEOUT_SECONDS * 1_000)
