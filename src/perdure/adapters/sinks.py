"""Where events go (OBS-1): nowhere, a list, the log, a file of JSON lines, or several of these.

A sink never fails the turn: what it can't write it drops, and says so once.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from perdure.adapters.extras import install
from perdure.errors import BadSetting
from perdure.events import Event
from perdure.ports.session import Sink

_LOG = logging.getLogger("perdure")
_ENCODER = msgspec.json.Encoder()


def event_data(event: Event) -> dict[str, Any]:
    """An event as plain data: its name under `event`, then its fields."""
    return {"event": type(event).__name__, **msgspec.structs.asdict(event)}


class NullSink:
    """`ports.Sink` that forgets everything: for a part without a session, which would tell its own listeners."""

    def emit(self, event: Event) -> None:
        pass


class ListSink:
    """`ports.Sink` that keeps all events, in `events`."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def emit(self, event: Event) -> None:
        self.events.append(event)


class LoggingSink:
    """`ports.Sink` that writes to the standard logger `perdure`, with the fields in `extra["perdure"]`."""

    def __init__(self, logger: logging.Logger = _LOG, level: int = logging.INFO) -> None:
        self._logger = logger
        self._level = level

    def emit(self, event: Event) -> None:
        if self._logger.isEnabledFor(self._level):
            data = event_data(event)
            shown = " ".join(f"{key}={value}" for key, value in data.items() if key != "event")
            self._logger.log(self._level, "%s %s", data["event"], shown, extra={"perdure": data})


class JsonlSink:
    """`ports.Sink` that appends a JSON line for each event to a private file, with the time `now` gives, in `at`.

    The file is opened for each line: nothing is held, and a file that is moved away is made again. When it can't be
    written, `problem` says why, and the events from then on are dropped.
    """

    def __init__(self, path: Path, now: Callable[[], float] | None = None) -> None:
        self._now = now
        self.problem: str | None = None
        self._path = path
        self._write(b"")

    def emit(self, event: Event) -> None:
        if self.problem is not None:
            return
        data = event_data(event)
        if self._now is not None:
            data = {"at": self._now(), **data}
        self._write(_ENCODER.encode(data) + b"\n")

    def _write(self, line: bytes) -> None:
        """One write on an append-only descriptor, so that lines of several processes don't mix."""
        try:
            fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
            try:
                os.write(fd, line)
            finally:
                os.close(fd)
        except OSError as e:
            self.problem = f"{self._path}: {e.strerror or e}: events are no longer written"
            _LOG.warning("%s", self.problem)


def sinks_of(names: Sequence[str], *, session: str, now: Callable[[], float]) -> list[Sink]:
    """The sinks that a setting names: `log`, `jsonl:PATH`, `otel`. Raises `BadSetting` for any other (OBS-1)."""
    made: list[Sink] = []
    for name in names:
        kind, _, rest = name.strip().partition(":")
        if kind == "log" and not rest:
            made.append(LoggingSink())
        elif kind == "jsonl" and rest:
            made.append(JsonlSink(Path(rest).expanduser(), now))
        elif kind == "otel" and not rest:
            made.append(_otel(session))
        else:
            raise BadSetting(f"events: {name!r} is no sink: give log, jsonl:PATH or otel")
    return made


def _otel(session: str) -> Sink:
    try:
        from perdure.adapters.telemetry import OtelSink
    except ImportError as e:
        raise BadSetting(f"events: otel needs OpenTelemetry: {install('otel')}") from e
    return OtelSink(session)


class TeeSink:
    """`ports.Sink` that hands every event to several sinks; one that fails is left out from then on."""

    def __init__(self, *sinks: Sink) -> None:
        self._sinks = list(sinks)

    def emit(self, event: Event) -> None:
        for sink in list(self._sinks):
            try:
                sink.emit(event)
            except Exception as e:  # the boundary to code that isn't ours: it must not fail the turn
                self._sinks.remove(sink)
                _LOG.warning("a sink failed and is left out: %s (%s)", type(sink).__name__, type(e).__name__)
                _LOG.debug("where it failed", exc_info=e)
