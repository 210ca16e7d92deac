"""`holdfast replay`: results as JSON lines, or as a report (CLI-2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.door import EXIT_FAILED, EXIT_OK, Progress, note, out_json
from holdfast.cli.replay_report import report, summary
from holdfast.cli.tables import plural

if TYPE_CHECKING:
    from holdfast.adapters.config import Config

SUFFIXES = (".jsonl", ".json", ".traj")


def replay_command(
    paths: Sequence[Path],
    config: Config,
    *,
    model: str | None,
    summarizer: str | None,
    jobs: int,
    forks: bool,
    is_json: bool,
) -> int:
    """Replay all files, whatever happens to any of them; the exit code says whether one failed."""
    import os

    from holdfast.adapters.connecting import OFFLINE, connect
    from holdfast.replay.options import ReplayOptions
    from holdfast.replay.run import replay_files

    files, others = found_files(paths)
    asked = summarizer or OFFLINE
    connect(asked, os.environ)  # a name that can't be asked is said once, before anything runs
    options = ReplayOptions(settings=config.settings, model=model, models=config.models, summarizer=asked, forks=forks)
    progress = Progress()
    results: list[dict[str, Any]] = []
    for result in _results(replay_files(files, options, jobs=jobs, on_progress=progress), paths, files):
        progress.clear()
        if is_json:
            out_json(result)
        else:
            report(result)
        results.append(_kept(result))
    progress.clear()
    if not is_json and len(results) > 1:
        summary(results)
    if others:
        note(f"{plural(others, 'JSON file')} in the folders left out: no sessions in them")
    failed = [result for result in results if "error" in result]
    if failed and (len(results) > 1 or is_json):
        note(f"{len(failed)} of {len(results)} failed; each has its reason above")
    return EXIT_FAILED if failed else EXIT_OK


def _results(
    replayed: Iterator[dict[str, Any]], paths: Sequence[Path], files: Sequence[Path]
) -> Iterator[dict[str, Any]]:
    yield from replayed
    if not files:
        for path in paths:
            yield {"file": str(path), "error": "there are no sessions in this folder (*.jsonl, *.json, *.traj)"}


def _kept(result: dict[str, Any]) -> dict[str, Any]:
    """What the summary needs of a result, so that a long run doesn't fill the memory."""
    names = (
        "file",
        "error",
        "session",
        "turns",
        "tokens_final",
        "cost",
        "invalid_requests",
        "unexplained_prefix_moves",
        "forks",
    )
    short = {name: result[name] for name in names if name in result}
    for name in ("compactions", "microcompactions", "offloads", "prefix_moves", "problems"):
        short[name] = len(result.get(name, ()))
    return short


def found_files(paths: Sequence[Path]) -> tuple[list[Path], int]:
    """The files named, and the logs in the folders named; and how many JSON files there hold something else."""
    files: dict[Path, None] = {}
    others = 0
    for path in paths:
        if not path.is_dir():
            files[path] = None
            continue
        for found in sorted(p for p in path.rglob("*") if p.suffix in SUFFIXES and p.is_file()):
            if _is_something_else(found):
                others += 1
            else:
                files[found] = None
    return list(files), others


def _is_something_else(path: Path) -> bool:
    """Whether a file in a folder is good JSON, but of no log that is known: settings, data, an index."""
    import msgspec

    from holdfast.transcript.foreign.detect import HEAD_BYTES, detect

    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
            if not head.strip() or detect(head, path.name) is not None:
                return False
            data = head + file.read()
    except OSError:
        return False
    if len(data) > len(head) and detect(data, path.name) is not None:
        return False
    for text in (data, data.split(b"\n", 1)[0]):
        try:
            msgspec.json.decode(text, type=msgspec.Raw)
        except (msgspec.MsgspecError, RecursionError):
            continue
        return True
    return False
