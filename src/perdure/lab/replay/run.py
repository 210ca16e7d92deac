"""Replaying files: one result for each trajectory, and no bad file ever stops the run (CLI-2)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import anyio

from perdure.adapters.logs import read_log
from perdure.compaction.ledger import compact_messages
from perdure.errors import PerdureError
from perdure.lab.bench.places import cuts_of_recording
from perdure.lab.bench.probe import gold_of, shown, utterances_of
from perdure.lab.bench.scores import score
from perdure.lab.replay.checks import JudgedModel, summarizer_result
from perdure.lab.replay.cost import TokenCost, logged_cost
from perdure.lab.replay.drive import ReplayDrive, ReplayOptions
from perdure.logs.detect import read_recordings
from perdure.logs.recording import Recording
from perdure.ports.session import Model
from perdure.settings import Settings
from perdure.transcript.records import Record
from perdure.wiring import connected

OnProgress = Callable[[int, int, str], None]


def replay_files(
    paths: Sequence[Path], options: ReplayOptions, *, jobs: int = 1, on_progress: OnProgress | None = None
) -> Iterator[dict[str, Any]]:
    """Replay files in order; one dict for each trajectory, or {"file", "error"} for a file that can't be read.

    `on_progress(done, all, name)` is called after each file. With `jobs` > 1 files run in that many processes; the
    results still come in order.
    """
    if jobs > 1 and len(paths) > 1:
        with ProcessPoolExecutor(max_workers=jobs) as pool:
            results = pool.map(_replay_listed, paths, [options] * len(paths))
            yield from _reported(paths, results, on_progress)
    else:
        yield from _reported(paths, (_replay_listed(path, options) for path in paths), on_progress)


def _reported(
    paths: Sequence[Path], results: Iterator[list[dict[str, Any]]], on_progress: OnProgress | None
) -> Iterator[dict[str, Any]]:
    for done, (path, found) in enumerate(zip(paths, results, strict=True), 1):
        if on_progress is not None:
            on_progress(done, len(paths), path.name)
        yield from found


def _replay_listed(path: Path, options: ReplayOptions) -> list[dict[str, Any]]:
    return list(replay_file(path, options))


def replay_file(path: Path, options: ReplayOptions) -> Iterator[dict[str, Any]]:
    """Replay one file; anything that goes wrong with it becomes its result."""
    try:
        recordings = read_recordings(read_log(path)[0], path.name)
    except (PerdureError, OSError) as e:
        yield {"file": str(path), "error": one_line(e)}
        return
    for recording in recordings:
        try:
            yield anyio.run(_replay_connected, recording, str(path), options)
        except Exception as e:  # a named boundary: one bad trajectory must not end a run over hundreds of files
            yield {
                "file": str(path),
                "session": recording.session,
                "error": one_line(e),
            }


def one_line(error: Exception) -> str:
    """What went wrong with a log, on one line; anything that nobody foresaw is a defect of ours."""
    if isinstance(error, OSError) and error.strerror:
        return f"can't read the file: {error.strerror}"
    words = " ".join(str(error).split()) or type(error).__name__
    is_foreseen = isinstance(error, PerdureError | OSError)
    return words if is_foreseen else f"internal error ({type(error).__name__}): {words}; please report it"


async def _replay_connected(recording: Recording, name: str, options: ReplayOptions) -> dict[str, Any]:
    async with connected((options.summarizer,), os.environ) as models:
        return await replay_recording(recording, name, options, models)


async def replay_recording(
    recording: Recording, name: str, options: ReplayOptions, summarizers: Sequence[Model] = ()
) -> dict[str, Any]:
    """Drive one recording through the engine and say what happened, in the documented form (docs/use/replay.md).

    `summarizers` are asked for records in this order, before the ledger.
    """
    drive, _ = await drive_recording(recording, options, summarizers)
    drive.kept_facts = kept_facts(recording, drive.session.settings)
    return result_of(drive, name)


async def drive_recording(
    recording: Recording, options: ReplayOptions, summarizers: Sequence[Model] = ()
) -> tuple[ReplayDrive, tuple[Record, ...]]:
    """Drive one recording through the engine; also everything that was recorded on the way."""
    drive = await ReplayDrive.start(recording, options, tuple(JudgedModel(model) for model in summarizers))
    await drive.run()
    loaded = await drive.session.ports.journal.load(whole=True)
    return drive, tuple(placed.record for placed in loaded.records)


_LEAST_TOKENS = 20_000  # before a compaction of the log; less teaches nothing


def kept_facts(recording: Recording, settings: Settings) -> dict[str, int] | None:
    """Of the facts that were needed behind the log's compactions: how many our record has, and how many its own.

    The probe and the places are those of `perdure bench fidelity`. None where no compaction shows what it kept.
    """
    found = {"places": 0, "needed": 0, "kept": 0, "logged_kept": 0}
    for place in cuts_of_recording(recording, recording.session, shares=(), least_tokens=_LEAST_TOKENS):
        gold = gold_of(utterances_of(place.before, place.lines), utterances_of(place.after, place.lines))
        if place.summary is None or not gold.facts:
            continue
        ours = compact_messages(place.before, settings.summary_budget_tokens, settings.keep_min_tokens).text
        kept, logged = (score(gold, text).tallies["facts"] for text in (ours, shown(place.summary)))
        found["places"] += 1
        found["needed"] += kept.of
        found["kept"] += kept.kept
        found["logged_kept"] += logged.kept
    return found if found["places"] else None


def result_of(drive: ReplayDrive, name: str) -> dict[str, Any]:
    """The JSON contract of `perdure replay`; see docs/use/replay.md."""
    session, recording = drive.session, drive.recording
    limits = session.limits
    problems = [{"line": p.line, "what": p.what} for p in recording.problems] + drive.problems
    if drive.check.first_violation:
        problems.append({"line": 0, "what": f"an invalid request: {drive.check.first_violation}"})
    problems += [
        {"line": 0, "what": f"an invalid request to {one.about.id}: {one.first_violation}"}
        for one in drive.summarizers
        if one.first_violation
    ]
    forks = drive.forks
    if forks is not None and forks.stand_in.first_violation:
        problems.append({"line": 0, "what": f"an invalid request of a fork: {forks.stand_in.first_violation}"})
    logged: TokenCost = logged_cost(drive.log.usage, session.model)
    return {
        "file": name,
        "format": recording.format,
        "session": recording.session,
        "model": session.view.front.model if session.view.front else None,
        "window": limits.window,
        "window_source": limits.window_source,
        "usable": limits.usable,
        "trigger": limits.trigger,
        "turns": drive.turns,
        "tokens_final": session.facts().size(session.view),
        "compactions": drive.compactions,
        "microcompactions": drive.microcompactions,
        "offloads": drive.offloads,
        "prefix_moves": drive.moves,
        "unexplained_prefix_moves": drive.check.unexplained,
        "cost": drive.cost.as_dict(),
        "cache_writes": drive.writes.as_dict(),
        "logged": {
            "compactions": drive.log.compactions,
            "microcompactions": drive.log.microcompactions,
            "cost": logged.as_dict(),
        },
        "problems": problems,
        "notes": {"updates": drive.notes_updates, "failures": drive.notes_failures},
        "summarizer": summarizer_result(drive.summarizers, drive.options.models),
        "invalid_requests": drive.check.invalid,
        "cpu_ms_per_turn": round(drive.cpu_seconds * 1000 / max(1, drive.turns), 3),
        **({"forks": forks.as_dict()} if forks is not None else {}),
        **({"facts": drive.kept_facts} if drive.kept_facts is not None else {}),
    }
