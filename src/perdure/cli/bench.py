"""`perdure bench`: the engine measured on the user's own recordings (QLT-1, QLT-4, QLT-5, QLT-6, SPD-4)."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli.arguments import Force, Json, complete_models, configured, examples, family
from perdure.cli.output import EXIT_FAILED, EXIT_OK, Progress, clean, note, out, out_json, plural, table
from perdure.errors import BadSetting, SessionNotFound

if TYPE_CHECKING:
    from perdure.adapters.config import Config
    from perdure.lab.bench.precision import PrecisionFolder, PrecisionRow
    from perdure.lab.bench.public import PublicRow, PublicSet
    from perdure.lab.bench.reading import ReadingOptions, ReadingReport
    from perdure.lab.bench.retrieval import Corpus, RetrievalRow
    from perdure.lab.bench.rework import CallCounts, LiveReport


app = family(
    "Measure the engine on your own recordings.",
    "perdure bench live ~/.claude/projects",
    "perdure bench fidelity logs/",
)
_SHOWN = 40
_PLACES = 5
_NAMES = {
    "recall_5": "recall@5",
    "recall_10": "recall@10",
    "ndcg_5": "ndcg@5",
    "ndcg_10": "ndcg@10",
    "hit_5": "hit@5",
}

Logs = Annotated[list[Path], typer.Argument(metavar="FILE", help="Logs, or folders of logs.")]


@app.command(
    "live",
    epilog=examples(
        "perdure bench live ~/.claude/projects",
        "perdure bench live logs/ --calls 40",
        "perdure bench live logs/ --model anthropic:claude-sonnet-5-5 --cap 5",
    ),
)
def live(
    files: Logs,
    *,
    calls: Annotated[int, typer.Option(min=1, metavar="N", help="Compare N calls on either side of each.")] = 20,
    model: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="A model that reads the views, too.", autocompletion=complete_models),
    ] = None,
    strategy: Annotated[
        list[str] | None,
        typer.Option("--strategy", metavar="NAME", help="Only views of this one; may be repeated."),
    ] = None,
    at: Annotated[str | None, typer.Option(metavar="PLACE", help="Read views at: cut, boundary.")] = None,
    budget: Annotated[str, typer.Option(metavar="TOKENS", help="Of views: default, 10k, 12k+10k.")] = "default",
    questions: Annotated[int, typer.Option(min=1, metavar="N", help="Ask N questions in all.")] = 20,
    replicates: Annotated[int, typer.Option(min=3, metavar="N", help="Ask each N times.")] = 3,
    cap: Annotated[float | None, typer.Option(min=0, metavar="USD", help="Stop before it costs more.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask before calls are paid for.")] = False,
    json: Json = False,
) -> None:
    """Measure what agents do again after compactions.

    How much is read and run again after the compactions in your logs, compared with as many calls right before them:
    agents repeat themselves without a compaction, too. With --model, it also answers questions from the views that
    compactions leave; what that costs is said first. Stopped by Ctrl-C, the same command goes on where it was.
    """
    from perdure.cli.opened import named_logs
    from perdure.lab.bench import reading
    from perdure.lab.bench.rework import as_plain, measure

    if at not in (None, "cut", "boundary"):
        raise BadSetting(f"--at {at}: give cut or boundary")
    options = reading.ReadingOptions(
        strategies=tuple(dict.fromkeys(strategy or ())) or reading.READ,
        where="cut" if at == "cut" else "boundary" if at == "boundary" else None,
        budget=budget,
        questions=questions,
        replicates=replicates,
    )
    options.check()
    config = configured()
    found = named_logs(files).paths
    views = _views_read(found, options, model, cap, config, is_agreed=yes) if model else None
    progress = Progress()
    report = measure(found, calls=calls, on_progress=progress)
    progress.clear()
    command = _to_measure(files, config)
    if json:
        told = (
            reading.as_plain(views) if views else {"measured": False, "strategies": options.strategies, "by": command}
        )
        out_json({**as_plain(report), "views": told})
    else:
        _show_live(report)
        shown = reading.as_unmeasured(options.strategies, command) if views is None else reading.as_table(views)
        out("\n" + "\n".join(clean(line) for line in shown.splitlines()))
    if views is not None and views.stopped:
        note(f"stopped: {views.stopped}; the same command goes on from here")
        raise typer.Exit(EXIT_FAILED)
    if len(report.skipped) == len(found):
        note(f"none of the files could be read; {clean(report.skipped[0][0])}: {clean(report.skipped[0][1])}")
        raise typer.Exit(EXIT_FAILED)


def _to_measure(files: Sequence[Path], config: Config) -> str:
    """The command that has a model read the views of these files."""
    import os
    import shlex

    from perdure.adapters.providers.connect import OFFLINE, default_names

    names = (*config.settings.main_models, *default_names(os.environ), "anthropic:claude-sonnet-5-5")
    name = next(one for one in names if one != OFFLINE)
    return f"perdure bench live {shlex.join(map(str, files))} --model {shlex.quote(name)}"


def _views_read(
    files: Sequence[Path], options: ReadingOptions, name: str, cap: float | None, config: Config, *, is_agreed: bool
) -> ReadingReport | None:
    """Say what it costs, ask, and have the model read; None when there is nothing to ask."""
    import os
    from dataclasses import replace

    import anyio

    from perdure.adapters.memory.directory import CACHES
    from perdure.adapters.providers.connect import OFFLINE, connect
    from perdure.context.models import model_spec
    from perdure.lab.bench import reading
    from perdure.lab.bench.answers import KeptAnswers
    from perdure.wiring import command_session
    from perdure.wiring.factory import discover_window

    if name.strip() == OFFLINE:
        raise BadSetting("--model offline: views are read by a model; write provider:model")
    about = connect(name, os.environ, known=config.models).about  # said now if it can't be asked
    progress = Progress()
    plan = reading.plan_reading(files, options, on_progress=progress)
    progress.clear()
    if not plan.questions:
        note("no view was read: no session is long enough, or no line asks for a single name")
        return None
    note(reading.estimate_words(plan, plan.estimate(model_spec(about.id, config.models)), name))
    answers = KeptAnswers(config.home / CACHES / f"bench-{plan.signature(name)}.jsonl")
    if answers.found:
        note(f"{plural(len(answers.found), 'answer')} of an earlier run will be used again")
    if answers.unread:
        note(f"{answers.path}: {plural(answers.unread, 'line')} can't be read and will be asked again")
    if not is_agreed:
        if sys.stdin is None or not sys.stdin.isatty():
            raise BadSetting("calls are paid for: --yes starts without asking, --cap USD says what it may cost")
        if not typer.confirm("Start?", err=True):
            raise typer.Exit(EXIT_FAILED)
    settings = config.settings
    if cap is not None:
        least = cap if settings.session_cap_usd is None else min(cap, settings.session_cap_usd)
        settings = replace(settings, session_cap_usd=least)

    async def body() -> ReadingReport:
        model = connect(name, os.environ, known=config.models)
        try:
            await discover_window(model)
            async with command_session(config.home, settings=settings, known=config.models, tell=note) as payer:
                return await reading.read_views(plan, model, payer, answers, on_progress=progress)
        finally:
            await model.close()

    try:
        report = anyio.run(body)
    except KeyboardInterrupt:
        progress.clear()
        note(f"{plural(len(answers.found), 'answer')} kept: the same command goes on from here")
        raise
    progress.clear()
    cost = "an unknown price" if report.usd is None else f"${report.usd:,.4f}"
    note(
        f"{plural(report.calls, 'call')} for {cost}, {report.input_tokens:,} tokens in and {report.output_tokens:,} out"
        + (f"; {plural(report.reused, 'answer')} used again" if report.reused else "")
    )
    return report


def _show_live(report: LiveReport) -> None:
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


def _cells(before: CallCounts, after: CallCounts) -> tuple[str, str, str, str]:
    shares = (before.again_percent, after.again_percent, before.needless_percent, after.needless_percent)
    first, second, third, fourth = ("-" if share is None else f"{share:.1f}" for share in shares)
    return first, second, third, fourth


@app.command(
    "fidelity",
    epilog=examples(
        "perdure bench fidelity logs/",
        "perdure bench fidelity logs/ --budget 10k --gate facts@10k=92",
        "perdure bench fidelity logs/ --leave-one-out",
    ),
)
def fidelity(
    files: Logs,
    *,
    budget: Annotated[
        list[str] | None,
        typer.Option("--budget", metavar="TOKENS", help="10k, 12k+10k (memory and raw tail), summary+10k, default."),
    ] = None,
    strategy: Annotated[
        list[str] | None, typer.Option("--strategy", metavar="NAME", help="Only this one; may be repeated.")
    ] = None,
    at: Annotated[str | None, typer.Option(metavar="PLACE", help="Measure only at: cut, boundary.")] = None,
    gate: Annotated[
        str, typer.Option(metavar="GATES", help="Bars that have to be met, e.g. facts@10k=92,chain@10k=1.")
    ] = "",
    lost: Annotated[int, typer.Option(min=0, metavar="N", help="Show N of the lost facts.")] = 0,
    chains: Annotated[
        bool, typer.Option("--chains", help="Also compact three and five times in a row; this takes a while.")
    ] = False,
    leave_one_out: Annotated[
        bool,
        typer.Option("--leave-one-out", help="The ledger alone, and each session by settings chosen on all others."),
    ] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print tables in Markdown.")] = False,
    json: Json = False,
) -> None:
    """Measure what compactions keep of what was needed later.

    Cuts recorded sessions, compacts what came before, and looks for what came up after. Nothing leaves this machine.
    The exit code is 1 when a gate isn't met.
    """

    # Chains take as long as all the rest: they are run when asked for, or when a gate is about one.
    from perdure.cli.opened import named_logs
    from perdure.lab.bench import fidelity, report, tuning

    gates = report.gates_of(gate)
    unknown = sorted(set(strategy or ()) - set(fidelity.STRATEGIES))
    if unknown:
        raise BadSetting(f"--strategy {unknown[0]}: there are {', '.join(fidelity.STRATEGIES)}")
    if at not in (None, "cut", "boundary"):
        raise BadSetting(f"--at {at}: give cut or boundary")
    if leave_one_out and (strategy or chains or lost or report.chained_in(gates) or fidelity.DEFAULT in (budget or ())):
        raise BadSetting(
            "--leave-one-out is of the ledger at sizes such as 10k: not default, --strategy, --chains, --lost"
        )
    found = named_logs(files).paths
    options = fidelity.FidelityOptions(
        budgets=tuple(budget or ()) or (tuning.BUDGETS if leave_one_out else fidelity.DEFAULT_BUDGETS),
        chain_budgets=tuple(dict.fromkeys((*(fidelity.CHAINED if chains else ()), *report.chained_in(gates)))),
        strategies={name: fidelity.STRATEGIES[name] for name in strategy or fidelity.STRATEGIES},
        where=("cut", "boundary") if at is None else ("cut",) if at == "cut" else ("boundary",),
    )
    progress = Progress()
    left_out = tuning.leave_one_out(found, options, on_progress=progress) if leave_one_out else None
    measured = left_out.report if left_out else fidelity.run(found, options, on_progress=progress)
    progress.clear()
    failed = report.failures(measured, gates)
    if json:
        told = {**report.as_plain(measured), "gates": {"asked": [one.text for one in gates], "failed": failed}}
        out_json({**told, **({"settings": tuning.as_plain(left_out)} if left_out else {})})
    else:
        show = report.as_markdown if markdown else report.as_table
        out("\n".join(clean(line) for line in show(measured, lost=lost).splitlines()))
        if left_out:
            out(f"\n{tuning.as_text(left_out)}")
    for failure in failed:
        note(f"gate failed: {failure}")
    if len(measured.skipped) == len(found):
        note(f"none of the files could be measured; {clean(measured.skipped[0][0])}: {clean(measured.skipped[0][1])}")
        raise typer.Exit(EXIT_FAILED)
    raise typer.Exit(EXIT_FAILED if failed else EXIT_OK)


@app.command(
    "beside",
    epilog=examples(
        "perdure bench beside ~/.claude/projects/my-project",
        "perdure bench beside session.jsonl --at 331 --width 200",
        "perdure bench beside logs/ --budget 12k --out texts",
    ),
)
def beside(
    files: Logs,
    *,
    budget: Annotated[
        str, typer.Option(metavar="TOKENS", help="Of the record: summary (as large as that), 12k, 12k+10k, default.")
    ] = "summary",
    at: Annotated[int | None, typer.Option(min=1, metavar="LINE", help="Only the compaction at this line.")] = None,
    width: Annotated[
        int | None, typer.Option(min=20, metavar="N", help="Columns to use; by default all of the terminal.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FOLDER", help="Write the texts as files instead.")
    ] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Put our records beside the summaries in your logs.

    At each compaction that a log shows: the record that code makes of the same messages, the log's own summary, and
    what each has that the other lacks, of what was needed later. Nothing leaves this machine.
    """
    from perdure.cli.beside import columns_of, show, write
    from perdure.cli.opened import named_logs
    from perdure.lab.bench.beside import as_plain, compare

    found = named_logs(files).paths
    progress = Progress()
    report = compare(found, budget=budget, at=at, on_progress=progress)
    progress.clear()
    if at is not None and report.lines and all(line != at for _, line in report.lines):
        places = ", ".join(f"{clean(file)}:{line}" for file, line in report.lines[:_PLACES])
        more = f" and {len(report.lines) - _PLACES} more" if len(report.lines) > _PLACES else ""
        raise SessionNotFound(f"--at {at}: no compaction is logged at that line; there is one at {places}{more}")
    if json:
        out_json(as_plain(report))
    elif report.places:
        show(report, width or columns_of(), with_texts=folder is None)
    elif len(report.skipped) < len(found):
        out(f"no compaction with a summary to compare in {plural(report.files, 'file')}")
    if folder is not None and report.places:
        written = write(report, folder, force=force)
        note(f"wrote {plural(written, 'file')} to {folder}")
    for why, count in Counter(why for _, _, why in report.left_out).items():
        note(f"{plural(count, 'compaction')} left out: {why}")
    if len(report.skipped) == len(found):
        note(f"none of the files could be read; {clean(report.skipped[0][0])}: {clean(report.skipped[0][1])}")
        raise typer.Exit(EXIT_FAILED)


@app.command(
    "retrieval",
    epilog=examples("perdure bench retrieval questions.json", "perdure bench retrieval --timing --size 10000"),
)
def retrieval(
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="A corpus with questions, as JSON.")] = None,
    *,
    ranker: Annotated[
        list[str] | None, typer.Option("--ranker", metavar="NAME", help="Only this one; may be repeated.")
    ] = None,
    timing: Annotated[
        bool, typer.Option("--timing", help="Measure the time of a question, by the number of memories.")
    ] = False,
    size: Annotated[
        list[int] | None, typer.Option("--size", min=1, metavar="N", help="With --timing: only N memories.")
    ] = None,
    json: Json = False,
) -> None:
    """Measure how well and how fast things are found.

    Memories, turns or sessions, by several rankers, with one file of questions; docs/how/retrieval.md has its form.
    """
    from perdure.lab.bench import retrieval

    if file is None and not timing:
        raise BadSetting("bench retrieval: name a file of questions (docs/how/retrieval.md), or --timing, or both")
    found: dict[str, object] = {}
    if file is not None:
        corpus = retrieval.read(file)
        rows = retrieval.run(corpus, ranker or ())
        found |= {
            "kind": corpus.kind,
            "items": len(corpus.items),
            "questions": len(corpus.questions),
            "rankers": {row.ranker: _row(row) for row in rows},
        }
        if not json:
            _show_retrieval(corpus, rows)
    if timing:
        if not json:
            note("making up memories; the largest size takes a while")
        timings = retrieval.time_retrieval(size or retrieval.SIZES)
        found["timing"] = [asdict(one) for one in timings]
        if not json:
            head = ("memories", "p50 ms", "p99 ms", "seconds to index")
            table(head, [(t.memories, t.p50_ms, t.p99_ms, t.build_seconds) for t in timings])
    if json:
        out_json(found)


def _row(row: RetrievalRow) -> dict[str, float]:
    data = {name: value for name, value in asdict(row).items() if name != "ranker"}
    return {_NAMES.get(name, name): round(value, 4) for name, value in data.items()}


def _show_retrieval(corpus: Corpus, rows: Sequence[RetrievalRow]) -> None:
    out(
        f"{plural(len(corpus.questions), 'question')} over {plural(len(corpus.items), 'item')} ({corpus.kind}); "
        "percent, and milliseconds a question"
    )
    head = ("ranker", "recall@5", "recall@10", "nDCG@5", "nDCG@10", "hit@5", "MRR", "p50 ms", "p99 ms")
    names = ("recall_5", "recall_10", "ndcg_5", "ndcg_10", "hit_5", "mrr")
    shares = [[round(100 * getattr(row, name), 1) for name in names] for row in rows]
    table(head, [(row.ranker, *some, row.p50_ms, row.p99_ms) for row, some in zip(rows, shares, strict=True)])


@app.command(
    "public",
    epilog=examples(
        "perdure bench public locomo/ beam/",
        "perdure bench public beam/chats/500K --ranker bm25 --ranker full",
        "perdure bench public precisionMemBench/ --official",
    ),
)
def public(
    folders: Annotated[
        list[Path], typer.Argument(metavar="FOLDER", help="Folders of LoCoMo, BEAM or PrecisionMemBench.")
    ],
    *,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="SET", help="Only this one: locomo, beam, precision; may be repeated."),
    ] = None,
    ranker: Annotated[
        list[str] | None, typer.Option("--ranker", metavar="NAME", help="Only this one; may be repeated.")
    ] = None,
    official: Annotated[
        bool, typer.Option("--official", help="Run PrecisionMemBench's own runner, a program in that folder.")
    ] = False,
    json: Json = False,
) -> None:
    """Measure retrieval on public benchmarks.

    LoCoMo and BEAM, in folders that you fetched: whether the messages that their authors name as evidence are found,
    by several rankers; with `--ranker search` by `perdure search` itself, which takes longer. PrecisionMemBench by its
    own runner, with Node.js. Nothing is fetched and no model is asked; docs/measured/benchmarks.md says where the sets
    are.
    """
    from perdure.lab.bench.public import found_folders, measured_set, public_sets

    progress = Progress()
    here = found_folders(folders, only or (), on_look=progress.tell)
    progress.clear()
    sets = []
    for one in public_sets(here):
        rows = measured_set(one, ranker or (), on_ranker=progress.tell)
        progress.clear()
        if json:
            sets.append(_public_row(one, rows))
        else:
            _show_public(one, rows)
    for folder in (one for found in here for one in found.precision):
        measured = _precision_rows(folder, progress) if official else []
        if json:
            sets.append(_precision_row(folder, measured))
        else:
            _show_precision(folder, measured)
    if json:
        out_json({"sets": sets})


def _precision_rows(folder: PrecisionFolder, progress: Progress) -> list[PrecisionRow]:
    """What we get: told what the benchmark's contract sends, and told all that it knows of its beliefs."""
    from perdure.cli.bench_service import benched_memories

    rows = []
    for told, known in (("as the contract sends", {}), ("with the fields of the seed", folder.beliefs())):
        with benched_memories(known) as url:
            rows.append(folder.run(url, f"perdure, {told}", progress.tell))
        progress.clear()
    return rows


def _precision_row(folder: PrecisionFolder, rows: Sequence[PrecisionRow]) -> dict[str, object]:
    from perdure.lab.bench.precision import PUBLISHED

    return {
        "name": "PrecisionMemBench",
        "files": dict(folder.files),
        "sha256": folder.digest,
        "as_published": folder.digest == PUBLISHED,
        "systems": {row.system: asdict(row) for row in rows},
        "reported": {row.system: asdict(row) for row in folder.baselines()},
    }


def _whose_files(*, is_published: bool) -> str:
    return f"{'' if is_published else 'not '}those of docs/measured/benchmarks.md"


def _show_precision(folder: PrecisionFolder, rows: Sequence[PrecisionRow]) -> None:
    from perdure.lab.bench.precision import PUBLISHED

    known = _whose_files(is_published=folder.digest == PUBLISHED)
    out(f"PrecisionMemBench: {plural(len(folder.files), 'file')}, sha256 {folder.digest} ({known})")
    if not rows:
        out("not run: --official runs the program of its authors in a copy of that folder; below is what they report\n")
    head = ("system", "passed", "of", "active", "precision", "recall", "p50 ms", "turns passed", "of")
    table(
        head,
        [
            (
                clean(one.system),
                one.passed,
                one.cases,
                one.active,
                None if one.precision is None else round(100 * one.precision, 1),
                None if one.recall is None else round(100 * one.recall, 1),
                one.p50_ms,
                one.turns_passed,
                one.turns,
            )
            for one in (*rows, *folder.baselines())
        ],
    )
    for row in rows:
        out(f"\nnot passed by {row.system}:")
        for line in row.failed:
            out(f"  {clean(line)}")


def _public_row(one: PublicSet, rows: Sequence[PublicRow]) -> dict[str, object]:
    return {
        "name": one.name,
        "files": dict(sorted(one.files.items())),
        "sha256": one.digest,
        "as_published": one.is_as_published,
        "items": len(one.corpus.items),
        "conversations": len({question.group for question in one.corpus.questions}),
        "questions": len(one.corpus.questions),
        "left_out": dict(one.left_out),
        "tuned_on": sorted(one.tuned),
        "rankers": {
            row.ranker: {
                **_row(row.all),
                "newest_first": None if row.newest_first is None else round(row.newest_first, 4),
                "parts": {name: _row(part) for name, part in row.parts.items()},
                "categories": {name: _row(part) for name, part in row.categories.items()},
            }
            for row in rows
        },
    }


def _show_public(one: PublicSet, rows: Sequence[PublicRow]) -> None:
    corpus = one.corpus
    asked = len(corpus.questions) + sum(one.left_out.values())
    talks = len({question.group for question in corpus.questions})
    reasons = ", ".join(f"{count:,} left out: {clean(why)}" for why, count in one.left_out.items())
    out(
        f"{clean(one.name)}: {len(corpus.questions):,} of {plural(asked, 'question')} over "
        f"{plural(len(corpus.items), 'message')} of {plural(talks, 'conversation')}"
        f"{f' ({reasons})' if reasons else ''}"
    )
    known = _whose_files(is_published=one.is_as_published)
    out(f"{plural(len(one.files), 'file')}, sha256 {one.digest} ({known}; --json lists all)")
    out("percent, and milliseconds a question\n")
    head = ["ranker", "recall@5", "recall@10", "nDCG@10", "hit@5"]
    has_updates = any(row.newest_first is not None for row in rows)
    names = ("recall_5", "recall_10", "ndcg_10", "hit_5")
    lines: list[tuple[str | float | None, ...]] = []
    for row in rows:
        shares: list[float | None] = [round(100 * getattr(row.all, name), 1) for name in names]
        if has_updates:
            shares.append(None if row.newest_first is None else round(100 * row.newest_first, 1))
        lines.append((row.ranker, *shares, row.all.p50_ms))
    table((*head, *(("newest first",) if has_updates else ()), "p50 ms"), lines)
    out("\nrecall@5 / @10 by part and by kind of question")
    kinds = list(dict.fromkeys(name for row in rows for name in (*row.parts, *row.categories)))
    lines = []
    for kind in kinds:
        parts = [{**row.parts, **row.categories}[kind] for row in rows]
        recalls = [f"{100 * part.recall_5:.1f} / {100 * part.recall_10:.1f}" for part in parts]
        lines.append((clean(kind), parts[0].questions, *recalls))
    rankers = [row.ranker for row in rows]
    table(("", "questions", *rankers), lines, numbers=rankers)
    out("")
