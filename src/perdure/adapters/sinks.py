"""Where events go (OBS-1): nowhere, a list, the log, a file of JSON lines, or several of these.

A sink never fails the turn: what it can't write it drops, and says so once.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from perdure.adapters.extras import install
from perdure.adapters.machine.system import CLOSE_ON_EXEC
from perdure.errors import BadSetting
from perdure.events import Event
from perdure.ports.session import Sink

_LOG = logging.getLogger("perdure")
_ENCODER = msgspec.json.Encoder()
About = Callable[[], Mapping[str, str]]
"""Whose event it is that happens now: names beside the event's own fields, such as the session's id."""


def event_data(event: Event, about: About | None = None) -> dict[str, Any]:
    """An event as plain data: its name under `event`, whose it is, then its fields."""
    return {"event": type(event).__name__, **(about() if about else {}), **msgspec.structs.asdict(event)}


def event_line(event: Event, now: Callable[[], float] | None, about: About | None) -> bytes:
    """An event as a line of JSON, with the time that `now` gives, in `at`."""
    data = event_data(event, about)
    return _ENCODER.encode(data if now is None else {"at": now(), **data}) + b"\n"


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

    def __init__(self, logger: logging.Logger = _LOG, level: int = logging.INFO, *, about: About | None = None) -> None:
        self._logger = logger
        self._level = level
        self._about = about

    def emit(self, event: Event) -> None:
        if self._logger.isEnabledFor(self._level):
            data = event_data(event, self._about)
            shown = " ".join(f"{key}={value}" for key, value in data.items() if key != "event")
            self._logger.log(self._level, "%s %s", data["event"], shown, extra={"perdure": data})


class JsonlSink:
    """`ports.Sink` that appends a JSON line for each event to a private file, with the time `now` gives, in `at`.

    The file is opened for each line: nothing is held, and a file that is moved away is made again. When it can't be
    written, `problem` says why, and the events from then on are dropped. `about` says whose events they are.
    """

    def __init__(self, path: Path, now: Callable[[], float] | None = None, *, about: About | None = None) -> None:
        self._now, self._about = now, about
        self.problem: str | None = None
        self._path = path
        self._write(b"")

    def emit(self, event: Event) -> None:
        if self.problem is not None:
            return
        self._write(event_line(event, self._now, self._about))

    def _write(self, line: bytes) -> None:
        """One write on an append-only descriptor, so that lines of several processes don't mix."""
        try:
            fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | CLOSE_ON_EXEC, 0o600)
            try:
                os.write(fd, line)
            finally:
                os.close(fd)
        except OSError as e:
            self.problem = f"{self._path}: {e.strerror or e}: events are no longer written"
            _LOG.warning("%s", self.problem)


class LinesSink:
    """`ports.Sink` that hands each event as a line of JSON to something that writes it elsewhere."""

    def __init__(self, write: Callable[[bytes], None], now: Callable[[], float], about: About) -> None:
        self._write, self._now, self._about = write, now, about

    def emit(self, event: Event) -> None:
        self._write(event_line(event, self._now, self._about))


def sinks_of(
    names: Sequence[str],
    *,
    about: About,
    now: Callable[[], float],
    writer: Callable[[str], Callable[[bytes], None]] | None = None,
) -> list[Sink]:
    """The sinks that a setting names: `log`, `jsonl:PATH`, `otel` (OBS-1).

    Args:
        names: as in the setting `events`.
        about: whose events they are.
        now: the time that lines carry.
        writer: what appends lines to a path; without it each event is written at once.

    Raises:
        BadSetting: for any other name, and for a sink that can't be had.
    """
    made: list[Sink] = []
    for name in names:
        kind, _, rest = name.strip().partition(":")
        if kind == "log" and not rest:
            made.append(LoggingSink(about=about))
        elif kind == "jsonl" and rest:
            made.append(
                LinesSink(writer(rest), now, about) if writer else JsonlSink(Path(rest).expanduser(), now, about=about)
            )
        elif kind == "otel" and not rest:
            made.append(_otel(about))
        else:
            raise BadSetting(f"events: {name!r} is no sink: give log, jsonl:PATH or otel")
    return made


def _otel(about: About) -> Sink:
    try:
        from perdure.adapters.telemetry import OtelSink
    except ImportError as e:
        raise BadSetting(f"events: otel needs OpenTelemetry: {install('otel')}") from e
    return OtelSink(about)


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
