"""Where events go (OBS-1): nowhere, a list, the log, a file of JSON lines, or several of these.

A sink never fails the turn: what it can't write it drops, and says so once.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from io import FileIO
from pathlib import Path
from typing import Any

import msgspec

from holdfast.events import Event
from holdfast.ports import Sink

_LOG = logging.getLogger("holdfast")
_ENCODER = msgspec.json.Encoder()


def as_data(event: Event) -> dict[str, Any]:
    """An event as plain data: its name under `event`, then its fields."""
    return {"event": type(event).__name__, **dataclasses.asdict(event)}


class NullSink:
    """`ports.Sink` that forgets everything."""

    def emit(self, event: Event) -> None:
        pass


class ListSink:
    """`ports.Sink` that keeps all events, in `events`."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def emit(self, event: Event) -> None:
        self.events.append(event)


class LoggingSink:
    """`ports.Sink` that writes to the standard logger `holdfast`, with the fields in `extra["holdfast"]`."""

    def __init__(self, logger: logging.Logger = _LOG, level: int = logging.INFO) -> None:
        self._logger = logger
        self._level = level

    def emit(self, event: Event) -> None:
        if self._logger.isEnabledFor(self._level):
            data = as_data(event)
            shown = " ".join(f"{key}={value}" for key, value in data.items() if key != "event")
            self._logger.log(self._level, "%s %s", data["event"], shown, extra={"holdfast": data})


class JsonlSink:
    """`ports.Sink` that appends a JSON line for each event to a private file, with the time `now` gives, in `at`.

    When the file can't be written, `problem` says why, and the events from then on are dropped.
    """

    def __init__(self, path: Path, now: Callable[[], float] | None = None) -> None:
        self._now = now
        self.problem: str | None = None
        self._path = path
        self._file: FileIO | None = None
        try:
            path.touch(mode=0o600)
            self._file = path.open("ab", buffering=0)
        except OSError as e:
            self._fail(e)

    def emit(self, event: Event) -> None:
        if self._file is None:
            return
        data = as_data(event)
        if self._now is not None:
            data = {"at": self._now(), **data}
        try:
            self._file.write(_ENCODER.encode(data) + b"\n")
        except OSError as e:
            self.close()
            self._fail(e)

    def close(self) -> None:
        """Let go of the file; later events are dropped."""
        if self._file is not None:
            file, self._file = self._file, None
            file.close()

    def _fail(self, error: OSError) -> None:
        self.problem = f"{self._path}: {error.strerror or error}: events are no longer written"
        _LOG.warning("%s", self.problem)


class TeeSink:
    """`ports.Sink` that hands every event to several sinks; one that fails is left out from then on."""

    def __init__(self, *sinks: Sink) -> None:
        self._sinks = list(sinks)

    def emit(self, event: Event) -> None:
        for sink in list(self._sinks):
            try:
                sink.emit(event)
            except Exception:  # the boundary to code that isn't ours: it must not fail the turn
                self._sinks.remove(sink)
                _LOG.warning("a sink failed and is left out: %r", sink, exc_info=True)
