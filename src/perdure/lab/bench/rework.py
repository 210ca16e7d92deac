"""What compactions cost in real work: how much the agent read and ran again behind them, in the user's logs (QLT-5).

For each boundary the calls right behind it are held against as many right before it, in the same session: agents read
and run things twice without any compaction, too, and only what is more behind a boundary can be its doing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from perdure.adapters.logs import read_log
from perdure.errors import PerdureError
from perdure.lab.bench.fidelity import OnProgress
from perdure.lab.bench.probe import command_of, edited_paths, read_path
from perdure.lab.bench.report import drawn_sessions
from perdure.logs.detect import read_recordings
from perdure.logs.recording import LoggedCompaction, RecordedMessage, Recording

CALLS: Final = 20  # looked at on either side of a boundary
LEAST_CALLS: Final = 5  # fewer than that tell nothing
_DRAWS: Final = 500
_INTERVAL: Final = (0.025, 0.975)

Kind = Literal["file", "command"]


@dataclass(frozen=True, slots=True)
class LoggedCall:
    """A call in the session's order. `again`: done before; `needless`: and nothing that it shows was changed since.

    `kind` is None for a call that neither reads a file nor runs a command.
    """

    kind: Kind | None
    again: bool = False
    needless: bool = False


@dataclass(slots=True)
class CallHistory:
    """Reads calls in order; it remembers what was read, run and changed."""

    _files: dict[str, int] = field(default_factory=dict)  # when each was last read
    _commands: dict[str, int] = field(default_factory=dict)
    _edits: dict[str, int] = field(default_factory=dict)
    _last_edit: int = -1
    _count: int = 0

    def add(self, use: Any) -> LoggedCall:
        """What a call is, in the light of those before it. A command shows files, so any edit may change its output."""
        self._count += 1
        edited = edited_paths(use)
        for one in edited:
            self._edits[one] = self._last_edit = self._count
        if edited:
            return LoggedCall(None)
        if (path := read_path(use)) is not None:
            last = self._files.get(path)
            self._files[path] = self._count
            changed = self._edits.get(path.split("#", 1)[0], -1)
            return LoggedCall("file", last is not None, last is not None and changed < last)
        if (command := command_of(use)) is not None:
            last = self._commands.get(command)
            self._commands[command] = self._count
            return LoggedCall("command", last is not None, last is not None and self._last_edit < last)
        return LoggedCall(None)


@dataclass(frozen=True, slots=True)
class CallCounts:
    """The acts of some calls, counted."""

    calls: int = 0
    files: int = 0
    files_again: int = 0
    commands: int = 0
    commands_again: int = 0
    needless: int = 0

    @classmethod
    def of(cls, acts: Sequence[LoggedCall]) -> CallCounts:
        files = [act for act in acts if act.kind == "file"]
        commands = [act for act in acts if act.kind == "command"]
        return cls(
            len(acts),
            len(files),
            sum(act.again for act in files),
            len(commands),
            sum(act.again for act in commands),
            sum(act.needless for act in acts),
        )

    def plus(self, other: CallCounts) -> CallCounts:
        return CallCounts(
            self.calls + other.calls,
            self.files + other.files,
            self.files_again + other.files_again,
            self.commands + other.commands,
            self.commands_again + other.commands_again,
            self.needless + other.needless,
        )

    @property
    def again_percent(self) -> float | None:
        """Of the reads and runs, how many had been done before."""
        acts = self.files + self.commands
        return 100 * (self.files_again + self.commands_again) / acts if acts else None

    @property
    def needless_percent(self) -> float | None:
        """Of the reads and runs, how many had been done before with nothing changed since."""
        acts = self.files + self.commands
        return 100 * self.needless / acts if acts else None


@dataclass(frozen=True, slots=True)
class LoggedBoundary:
    """One compaction in a log, with as many calls before it as behind it."""

    file: str
    session: str
    line: int
    trigger: str
    before: CallCounts
    after: CallCounts


@dataclass(frozen=True, slots=True)
class LiveReport:
    """All of a run; `low` and `high` bound the difference of needless acts, by sessions drawn with replacement."""

    boundaries: tuple[LoggedBoundary, ...]
    before: CallCounts
    after: CallCounts
    low: float | None
    high: float | None
    calls: int
    files: int
    left_out: int  # boundaries with too few calls on a side
    skipped: tuple[tuple[str, str], ...]

    @property
    def difference(self) -> float | None:
        """How many more of the reads and runs were needless behind boundaries than before them, in points."""
        return _difference(self.before, self.after)


def _difference(before: CallCounts, after: CallCounts) -> float | None:
    if before.needless_percent is None or after.needless_percent is None:
        return None
    return after.needless_percent - before.needless_percent


def measure(files: Sequence[Path], *, calls: int = CALLS, on_progress: OnProgress | None = None) -> LiveReport:
    """Measure logs; those that can't be read are left out and said."""
    found: list[LoggedBoundary] = []
    skipped: list[tuple[str, str]] = []
    left_out = 0
    for done, path in enumerate(files, 1):
        recordings: Sequence[Recording] = ()
        try:
            recordings = read_recordings(read_log(path)[0], path.name)
        except OSError as e:
            skipped.append((str(path), f"can't be read: {e.strerror or e}"))
        except PerdureError as e:
            skipped.append((str(path), str(e)))
        for recording in recordings:
            for boundary in boundaries_of(recording, str(path), calls):
                if boundary.after.calls < min(calls, LEAST_CALLS):
                    left_out += 1
                else:
                    found.append(boundary)
        if on_progress is not None:
            on_progress(done, len(files), path.name)
    low, high = _interval(found)
    before, after = _pooled(found)
    return LiveReport(tuple(found), before, after, low, high, calls, len(files), left_out, tuple(skipped))


def boundaries_of(recording: Recording, file: str, calls: int) -> Iterator[LoggedBoundary]:
    """The compactions of a log with the calls around each; those behind one end at the next."""
    acts: list[LoggedCall] = []
    places: list[tuple[int, LoggedCompaction]] = []
    reader = CallHistory()
    for step in recording.steps:
        if isinstance(step, LoggedCompaction):
            places.append((len(acts), step))
        elif isinstance(step, RecordedMessage) and not step.logged_only and step.message.agent_id is None:
            acts.extend(map(reader.add, step.message.tool_uses))
    cuts = [0, *(at for at, _ in places), len(acts)]
    for number, (at, step) in enumerate(places, 1):
        start, end = cuts[number - 1], cuts[number + 1]
        count = min(calls, end - at, at - start)
        before, after = CallCounts.of(acts[at - count : at]), CallCounts.of(acts[at : at + count])
        yield LoggedBoundary(file, recording.session, step.line, step.trigger, before, after)


def _pooled(boundaries: Sequence[LoggedBoundary]) -> tuple[CallCounts, CallCounts]:
    before, after = CallCounts(), CallCounts()
    for one in boundaries:
        before, after = before.plus(one.before), after.plus(one.after)
    return before, after


def _interval(boundaries: Sequence[LoggedBoundary]) -> tuple[float | None, float | None]:
    by_session: dict[str, list[LoggedBoundary]] = {}
    for one in boundaries:
        by_session.setdefault(one.session, []).append(one)
    found = []
    for draw in drawn_sessions(sorted(by_session), _DRAWS, 0):
        difference = _difference(*_pooled([one for name in draw for one in by_session[name]]))
        if difference is not None:
            found.append(difference)
    if not found:
        return None, None
    found.sort()
    low, high = (found[min(len(found) - 1, int(share * len(found)))] for share in _INTERVAL)
    return low, high


def as_plain(report: LiveReport) -> dict[str, Any]:
    """The report as plain values, for JSON."""
    import msgspec

    plain: dict[str, Any] = msgspec.to_builtins(report)
    plain["difference"] = report.difference
    for name, window in (("before", report.before), ("after", report.after)):
        plain[name] |= {"again_percent": window.again_percent, "needless_percent": window.needless_percent}
    return plain
