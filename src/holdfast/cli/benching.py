"""`holdfast bench`: what survives a compaction, on the user's own recordings (QLT-1)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.cli.door import EXIT_FAILED, EXIT_NOT_FOUND, EXIT_OK, Progress, clean, note, out, out_json
from holdfast.cli.replaying import found_files

if TYPE_CHECKING:
    from holdfast.bench.judge import Judge


def fidelity_command(
    paths: Sequence[Path],
    *,
    budgets: Sequence[str],
    strategies: Sequence[str],
    where: str | None,
    gate: str,
    lost: int,
    is_chained: bool = False,
    judge: tuple[str, int] | None = None,
    form: str,
) -> int:
    """Measure, print in the form asked for (table, markdown, json), and say which gates failed in the exit code.

    Chains take as long as all the rest: they are run when asked for, or when a gate is about one. `judge`: the name
    of a model that reads the views, and how many questions it gets of each.
    """
    from holdfast.bench import fidelity, report, tables

    gates = report.gates_of(gate)
    _check(strategies, where)
    files, _ = found_files(paths)
    if not files:
        note(f"{', '.join(map(str, paths))}: no sessions there (*.jsonl, *.json, *.traj)")
        return EXIT_NOT_FOUND
    options = fidelity.Options(
        budgets=tuple(budgets) or (fidelity.DEFAULT_BUDGETS if judge is None else (fidelity.DEFAULT,)),
        chain_budgets=tuple(dict.fromkeys((*(fidelity.CHAINED if is_chained else ()), *report.chained_in(gates)))),
        judge=_judge(*judge) if judge is not None else None,
        strategies={name: fidelity.STRATEGIES[name] for name in strategies or fidelity.STRATEGIES},
        where=("cut", "boundary") if where is None else ("cut",) if where == "cut" else ("boundary",),
    )
    progress = Progress()
    found = fidelity.run(files, options, on_progress=progress)
    progress.clear()
    failed = report.failures(found, gates)
    if form == "json":
        out_json({**report.as_plain(found), "gates": {"asked": [one.text for one in gates], "failed": failed}})
    else:
        show = tables.as_markdown if form == "markdown" else tables.as_table
        out("\n".join(clean(line) for line in show(found, lost=lost).splitlines()))
    for failure in failed:
        note(f"gate failed: {failure}")
    unread = len(found.skipped)
    if unread == len(files):
        note(f"none of the files could be measured; {clean(found.skipped[0][0])}: {clean(found.skipped[0][1])}")
        return EXIT_FAILED
    return EXIT_FAILED if failed else EXIT_OK


def _check(strategies: Sequence[str], where: str | None) -> None:
    from holdfast.bench import fidelity
    from holdfast.errors import BadSetting

    unknown = sorted(set(strategies) - set(fidelity.STRATEGIES))
    if unknown:
        raise BadSetting(f"strategy {unknown[0]!r}: there are {', '.join(fidelity.STRATEGIES)}")
    if where not in (None, "cut", "boundary"):
        raise BadSetting(f"place {where!r}: cut or boundary")


def _judge(name: str, questions: int) -> Judge:
    """The model of a name, made now, so that a name that can't be asked is said before anything is measured."""
    import os

    from holdfast.adapters.connecting import OFFLINE, connect
    from holdfast.bench.judge import Judge
    from holdfast.errors import BadSetting

    if name.strip() == OFFLINE:
        raise BadSetting("--judge offline: a judge has to be a model; write provider:model")
    connect(name, os.environ)
    return Judge(lambda: connect(name, os.environ), questions)
