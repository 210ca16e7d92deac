"""`holdfast bench live`: what was read and run again behind the compactions in the user's own logs (QLT-5)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.cli.door import EXIT_FAILED, EXIT_NOT_FOUND, EXIT_OK, Progress, clean, note, out, out_json
from holdfast.cli.replaying import found_files
from holdfast.cli.tables import plural, table

if TYPE_CHECKING:
    from holdfast.bench.live import LiveReport, Window

_SHOWN = 40


def live_command(paths: Sequence[Path], *, calls: int, is_json: bool) -> int:
    """Measure and print. Logs without a compaction measure nothing, and that is said."""
    from holdfast.bench.live import as_plain, measure

    files, _ = found_files(paths)
    if not files:
        note(f"{', '.join(map(str, paths))}: no sessions there (*.jsonl, *.json, *.traj)")
        return EXIT_NOT_FOUND
    progress = Progress()
    report = measure(files, calls=calls, on_progress=progress)
    progress.clear()
    if is_json:
        out_json(as_plain(report))
    else:
        _show(report)
    if len(report.skipped) == len(files):
        note(f"none of the files could be read; {clean(report.skipped[0][0])}: {clean(report.skipped[0][1])}")
        return EXIT_FAILED
    return EXIT_OK


def _show(report: LiveReport) -> None:
    if not report.boundaries:
        out(f"no compaction with calls around it in {plural(report.files, 'file')}")
        return
    rows: list[tuple[str | int | float | None, ...]] = []
    for one in report.boundaries[:_SHOWN]:
        place = f"{clean(one.file).rsplit('/', 1)[-1]}:{one.line}"
        rows.append((place if len(place) <= 48 else f"…{place[-47:]}", one.after.calls, *_cells(one.before, one.after)))
    rows.append(("all", report.after.calls, *_cells(report.before, report.after)))
    table(("boundary", "calls", "again before", "after", "needless before", "after"), rows)
    if (hidden := len(report.boundaries) - _SHOWN) > 0:
        out(f"… and {hidden} more (--json lists all)")
    out(
        f"\n{plural(len(report.boundaries), 'compaction')}: of the files read and commands run in the "
        f"{report.calls} calls on either side, in percent"
    )
    if report.difference is not None:
        bounds = "" if report.low is None else f" (95 %: {report.low:+.1f} to {report.high:+.1f})"
        out(f"read or run again with nothing changed since: {report.difference:+.1f} points behind compactions{bounds}")
    if report.left_out:
        out(f"{plural(report.left_out, 'compaction')} left out: too few calls around")


def _cells(before: Window, after: Window) -> tuple[str, str, str, str]:
    shares = (before.again_percent, after.again_percent, before.needless_percent, after.needless_percent)
    first, second, third, fourth = ("-" if share is None else f"{share:.1f}" for share in shares)
    return first, second, third, fourth
