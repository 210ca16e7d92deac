"""One verdict on all the logs that somebody has: what was paid, what Perdure would have changed, what left the windows
(CLI-2, CLI-6).
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, zip_longest
from typing import Any

import anyio

from perdure.adapters.logs import LogFile, read_log
from perdure.context.models import ModelSpec, model_spec
from perdure.errors import PerdureError
from perdure.lab.replay.cost import LogHistory, TokenCost, UnmanagedCost, logged_cost
from perdure.lab.replay.drive import ReplayOptions, outputs, window_of
from perdure.lab.replay.run import one_line, replay_recording
from perdure.logs.detect import read_recordings
from perdure.logs.recording import LoggedCompaction, LoggedMicrocompaction, RecordedMessage, Recording
from perdure.transcript.messages import MessageId, Usage
from perdure.transcript.tokens import block_size

Result = dict[str, Any]
OnProgress = Callable[[int, int, str], None]
_FIRST_RATE = 600_000.0  # bytes a second of a replay, until one was measured
_LEAST_SHARE = 0.05  # of a session: less of it isn't worth beginning


def verdict(results: Sequence[Result]) -> Result | None:
    """What the logs paid against ours, over the sessions where both are known; None when there are none (CLI-6)."""
    both = _priced(results)
    if not both:
        return None
    ours, logged = [one["cost"] for one in both], [one["logged"]["cost"] for one in both]
    return {
        "sessions": len(both),
        "of": len(results),
        "paid_usd": round(sum(one["usd"] for one in logged), 6),
        "ours_usd": round(sum(one["usd"] for one in ours), 6),
        "compactions": sum(_count(one["compactions"]) for one in both),
        "logged_compactions": sum(_count(one["logged"]["compactions"]) for one in both),
        "cache_write_tokens": sum(one["cache_write"] for one in ours),
        "logged_cache_write_tokens": sum(one["cache_write"] for one in logged),
        "facts": facts_of_all(results),
    }


def _priced(results: Sequence[Result]) -> list[Result]:
    """Those for which both prices are known."""
    return [
        one
        for one in results
        if "error" not in one and None not in (one["cost"]["usd"], one["logged"]["cost"]["usd"]) and _has_usage(one)
    ]


def _count(found: int | Sequence[Any]) -> int:
    return found if isinstance(found, int) else len(found)


def facts_of_all(results: Sequence[Result]) -> Result | None:
    """What was needed behind the logs' own compactions, and who kept how much of it; None where nobody can tell."""
    known = [one["facts"] for one in results if "facts" in one]
    return {name: sum(one[name] for one in known) for name in known[0]} if known else None


def _has_usage(result: Result) -> bool:
    """Whether the log says what its calls took; without, it seems to have paid nothing."""
    cost = result["logged"]["cost"]
    return any(cost[name] for name in ("input", "cache_write", "cache_read"))


@dataclass(frozen=True, slots=True)
class SurveyedLog:
    """One session of a log, as far as reading it tells. Its price is None where none is known, or no usage.

    `repeats`: a part of its answers stands in a newer log, where it is counted.
    """

    file: LogFile
    number: int  # of the session within the file
    format: str
    bytes: int
    calls: int
    paid_usd: float | None
    compactions: int
    left_messages: int
    left_tokens: int
    repeats: bool


@dataclass(slots=True)
class Survey:
    """All logs, read once."""

    logs: list[SurveyedLog] = field(default_factory=list)
    repeated: int = 0  # sessions that a newer log holds whole
    failed: list[str] = field(default_factory=list)
    seen: set[tuple[str, str]] = field(default_factory=set)

    def as_dict(self) -> Result:
        """The sums (docs/use/replay.md)."""
        priced = [one for one in self.logs if one.paid_usd is not None]
        return {
            "sessions": len(self.logs),
            "repeated": self.repeated,
            "failed": len(self.failed),
            "bytes": sum(one.bytes for one in self.logs),
            "calls": sum(one.calls for one in self.logs),
            "priced_sessions": len(priced),
            "paid_usd": round(sum(one.paid_usd or 0 for one in priced), 6),
            "logged_compactions": sum(one.compactions for one in self.logs),
            "left_messages": sum(one.left_messages for one in self.logs),
            "left_tokens": sum(one.left_tokens for one in self.logs),
        }


def survey_logs(files: Sequence[LogFile], options: ReplayOptions, on_progress: OnProgress) -> Survey:
    """Read all logs, the newest first: what a resumed session repeats of an older log counts once."""
    found, total, done = Survey(), sum(file.bytes for file in files), 0
    for file in sorted(files, key=lambda file: (file.mtime_ns, file.path), reverse=True):
        on_progress(done, total, file.path.name)
        done += file.bytes
        try:
            _survey_file(file, options, found)
        except (PerdureError, OSError) as e:
            found.failed.append(str(e) if isinstance(e, PerdureError) else f"{file.path}: {e.strerror or e}")
    return found


def _survey_file(file: LogFile, options: ReplayOptions, found: Survey) -> None:
    recordings = [one for one in read_recordings(read_log(file.path)[0], file.path.name) if one.messages]
    for number, recording in enumerate(recordings):
        answers = _answers(recording)
        new = {key: usage for key, usage in answers.items() if key not in found.seen}
        if answers and not new:
            found.repeated += 1
            continue
        found.seen |= new.keys()
        found.logs.append(_surveyed(recording, file, number, file.bytes // len(recordings), answers, new, options))


def _answers(recording: Recording) -> dict[tuple[str, str], Usage]:
    """What the answers took; those of Claude Code have ids of the provider, which no answer of another session has.

    Others have a place in a log, which means the same in a copy of it only behind the same words. An answer may be
    several messages; it stands where the first of them does.
    """
    is_named, said = recording.format == "claude-code", hashlib.sha256()
    begun: dict[str, str] = {}
    answers: dict[tuple[str, str], Usage] = {}
    for message in recording.messages:
        if not is_named:
            for block in message.content:
                said.update(block)
        if message.usage is not None and message.usage.total_tokens and message.agent_id is None:
            answer = message.response_id or message.id
            if not is_named and answer not in begun:
                begun[answer] = f"{recording.root or recording.session} {said.hexdigest()}"
            answers[begun.get(answer, ""), answer] = message.usage
    return answers


def _surveyed(
    recording: Recording,
    file: LogFile,
    number: int,
    size: int,
    answers: Mapping[tuple[str, str], Usage],
    new: Mapping[tuple[str, str], Usage],
    options: ReplayOptions,
) -> SurveyedLog:
    paid = logged_cost(new.values(), _model(recording, options))
    repeats = len(new) < len(answers)
    compactions = sum(isinstance(step, LoggedCompaction) for step in recording.steps)
    left_messages, left_tokens = (0, 0) if repeats else left_context(recording)
    return SurveyedLog(
        file=file,
        number=number,
        format=recording.format,
        bytes=size,
        calls=len(new),
        paid_usd=paid.usd if new else None,
        compactions=compactions,
        left_messages=left_messages,
        left_tokens=left_tokens,
        repeats=repeats,
    )


def _model(recording: Recording, options: ReplayOptions) -> ModelSpec:
    return model_spec(options.model or recording.model, options.models)


def left_context(recording: Recording) -> tuple[int, int]:
    """How many messages the log's own compactions took out of the window, and the tokens of all that left it.

    By the base estimate, characters / 4, with what the log cleared.
    """
    inside: dict[MessageId, int] = {}
    messages = tokens = 0
    for step in recording.steps:
        if isinstance(step, RecordedMessage) and not step.logged_only and step.message.agent_id is None:
            inside[step.message.id] = sum(block_size(block).base for block in step.message.blocks)
        elif isinstance(step, LoggedCompaction):
            gone = [inside.pop(identity) for identity in list(inside) if identity not in step.kept]
            messages, tokens = messages + len(gone), tokens + sum(gone)
        elif isinstance(step, LoggedMicrocompaction):
            tokens += step.tokens_saved or 0
    return messages, tokens


def unmanaged_cost(recording: Recording, options: ReplayOptions) -> UnmanagedCost:
    """What the calls of a log would take if nothing ever left the context."""
    model, window = _model(recording, options), window_of(recording, options)
    log = LogHistory(options.settings, model.tokens_ratio)
    found = UnmanagedCost(TokenCost(model), window.tokens, outputs(recording))
    for step in recording.steps:
        found.add(step, log)
        log.add(step)
    return found


@dataclass(slots=True)
class Sample:
    """What was replayed of some logs: results as of `replay`, with what doing nothing would have cost beside them."""

    results: list[Result] = field(default_factory=list)
    is_cut: bool = False  # the last one only in its first part
    failed: list[str] = field(default_factory=list)


def replay_sample(
    logs: Iterable[SurveyedLog], options: ReplayOptions, seconds: float, on_progress: OnProgress
) -> Sample:
    """Replay as many logs as the time allows, by turns one that compacted and one that didn't, the dearest first.

    Of the last one only the first part. Logs without a price come last, the largest first: what their compactions kept
    can still be told. Something is replayed in any case.
    """
    order = sorted((one for one in logs if not one.repeats), key=lambda one: (-(one.paid_usd or 0), -one.bytes))
    compacted, others = [one for one in order if one.compactions], [one for one in order if not one.compactions]
    found, began, read, rate = Sample(), time.monotonic(), 0, _FIRST_RATE
    for log in filter(None, chain.from_iterable(zip_longest(compacted, others))):
        passed = time.monotonic() - began
        share = (seconds - passed) * rate / max(1, log.bytes)
        if share < _LEAST_SHARE and found.results:
            break
        on_progress(round(passed), round(seconds), log.file.path.name)
        try:
            found.results.append(_replayed(log, share, options))
        except Exception as e:  # a named boundary, as in `replay`: one bad log must not end a run over hundreds
            found.failed.append(f"{log.file.path}: {one_line(e)}")
            continue
        if share < 1:
            found.is_cut = True
            break
        read += log.bytes
        rate = read / max(0.001, time.monotonic() - began)
    return found


def _replayed(log: SurveyedLog, share: float, options: ReplayOptions) -> Result:
    path = log.file.path
    recordings = [one for one in read_recordings(read_log(path)[0], path.name) if one.messages]
    if log.number >= len(recordings):
        raise PerdureError("it was changed while it was read")
    recording = recordings[log.number]
    if share < 1:
        recording = replace(recording, steps=recording.steps[: round(len(recording.steps) * share)])
    result = anyio.run(replay_recording, recording, str(path), options)
    unmanaged = unmanaged_cost(recording, options)
    return {**result, "unmanaged": {"usd": unmanaged.cost.usd, "beyond_window": unmanaged.beyond_window}}


def verdict_of_sample(survey: Survey, sample: Sample) -> Result:
    """The whole verdict, as `perdure verdict --json` gives it (docs/use/replay.md)."""
    found = verdict(sample.results)
    if found is None:
        return {**survey.as_dict(), "replayed": None, "facts": facts_of_all(sample.results)}
    priced = _priced(sample.results)
    facts = found.pop("facts")
    return {
        **survey.as_dict(),
        "replayed": {
            **found,
            "of": len(survey.logs),
            "is_cut": sample.is_cut,
            "calls": sum(one["turns"] for one in priced),
            "unmanaged_usd": round(sum(one["unmanaged"]["usd"] for one in priced), 6),
            "unmanaged_beyond_window": sum(one["unmanaged"]["beyond_window"] for one in priced),
        },
        "facts": facts,
    }
