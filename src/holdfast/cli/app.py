"""The commands and their options; what each does stands in a module that is imported when it runs (SPD-5)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli import (
    app_chat,
    app_instructions,
    app_memory,
    app_notes,
    app_past,
    app_serve,
    app_sessions,
    app_trust,
)
from holdfast.cli.door import Door, configured, out

app = typer.Typer(
    name="holdfast",
    help="Context and memory for long-running LLM agents: replay, inspect and keep sessions.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
bench_app = typer.Typer(help="Measure the engine on your own recordings.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(bench_app, name="bench")

Json = Annotated[bool, typer.Option("--json", help="One JSON object a line, for programs.")]
Sets = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting; may be repeated.")]
Reference = Annotated[str, typer.Argument(metavar="FILE|SESSION", help="A log, a journal, or the id of a session.")]
Which = Annotated[str | None, typer.Option("--session", metavar="ID", help="Which one, when a file holds several.")]


def _version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import PackageNotFoundError, version

        try:
            out(f"holdfast {version('holdfast')}")
        except PackageNotFoundError:
            out("holdfast (run from its sources)")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    door: Door = context.obj
    door.debug = debug


@app.command()
def replay(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", readable=False, help="Logs, or folders of logs.")],
    *,
    window: Annotated[str | None, typer.Option(metavar="TOKENS", help="The model's window, e.g. 200k or 1M.")] = None,
    max_output: Annotated[str | None, typer.Option(metavar="TOKENS", help="The model's output limit.")] = None,
    model: Annotated[str | None, typer.Option(metavar="ID", help="The model, instead of the one in the log.")] = None,
    summarizer: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Who writes records: offline (the default), or a model's name.")
    ] = None,
    sets: Sets = None,
    jobs: Annotated[int, typer.Option(min=1, metavar="N", help="Files at once, each in its own process.")] = 1,
    forks: Annotated[
        bool, typer.Option("--forks", help="Check the requests for session notes, too, and what they read cached.")
    ] = False,
    json: Json = False,
) -> None:
    """Run recorded sessions through the engine.

    As if they were live: tells where passes and compactions fire, what moves the cached prefix, and what it all costs.
    """
    from holdfast.cli.replaying import replay_command

    flags = [*(sets or ())]
    flags += [f"window_tokens={window}"] if window else []
    flags += [f"max_output_tokens={max_output}"] if max_output else []
    raise typer.Exit(
        replay_command(
            files, configured(flags), model=model, summarizer=summarizer, jobs=jobs, forks=forks, is_json=json
        )
    )


@app.command()
def inspect(
    file: Reference,
    *,
    session: Which = None,
    sets: Sets = None,
    json: Json = False,
) -> None:
    """Tell what a session consists of.

    Tokens by category at its end, compactions, and what is odd about it.
    """
    from holdfast.cli.inspecting import inspect_command

    inspect_command(file, configured(sets or ()), session=session, is_json=json)


@app.command()
def context(
    session: Reference,
    *,
    which: Which = None,
    exact: Annotated[
        str | None, typer.Option(metavar="MODEL|FILE", help="Have the provider count it too, or a tokenizer.json.")
    ] = None,
    sets: Sets = None,
    json: Json = False,
) -> None:
    """Show what fills the window, and what is left.

    A grid of a hundred cells and a table, as the view is now.
    """
    from holdfast.cli.window import context_command

    context_command(session, configured(sets or ()), session=which, exact=exact, is_json=json)


@app.command()
def pin(
    session: Annotated[str, typer.Argument(metavar="SESSION", help="An id, its beginning, or a path.")],
    text: Annotated[str | None, typer.Argument(metavar="[TEXT]", help="What must survive, word for word.")] = None,
    *,
    is_list: Annotated[bool, typer.Option("--list", help="Show the pins of the session.")] = False,
    remove: Annotated[str | None, typer.Option("--remove", metavar="ID", help="Take this pin back.")] = None,
    sets: Sets = None,
    json: Json = False,
) -> None:
    """Pin a text, so that it survives every compaction word for word.

    Pins share a budget (the setting pins_tokens), which shrinks with the window; one that doesn't fit is refused.
    """
    from holdfast.cli.pinning import pin_command

    pin_command(session, configured(sets or ()), text=text, is_list=is_list, remove=remove, is_json=json)


@app.command()
def export(
    file: Reference,
    *,
    output: Annotated[Path, typer.Option("--out", "-o", metavar="OUT", help="The file to write; - for stdout.")],
    form: Annotated[str, typer.Option("--format", metavar="FORMAT", help="claude-code.")] = "claude-code",
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
    session: Which = None,
    json: Json = False,
) -> None:
    """Write a session as a Claude Code log.

    A Claude Code log that nobody changed keeps its bytes.
    """
    from holdfast.cli.exporting import export_command

    export_command(file, output, configured(), form=form, force=force, session=session, is_json=json)


@app.command()
def report(
    file: Reference,
    *,
    output: Annotated[Path, typer.Option("--out", "-o", metavar="OUT", help="The page to write; - for stdout.")],
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
    session: Which = None,
    sets: Sets = None,
    json: Json = False,
) -> None:
    """Write a session as one page for a browser.

    Tokens over turns, what fired, what it cost, and what each compaction dropped and where it is. The page holds parts
    of the conversation and loads nothing from anywhere.
    """
    from holdfast.cli.reporting import report_command

    report_command(file, output, configured(sets or ()), force=force, session=session, is_json=json)


@app.command()
def config(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Only this setting.")] = None,
    *,
    sets: Sets = None,
    changed: Annotated[bool, typer.Option("--changed", help="Only what isn't a default.")] = False,
    json: Json = False,
) -> None:
    """Show every setting and where it came from."""
    from holdfast.cli.configuring import config_command

    config_command(name, configured(sets or ()), is_changed_only=changed, is_json=json)


@app.command()
def doctor(
    paths: Annotated[
        list[Path] | None, typer.Argument(metavar="[PATH...]", help="Sessions or folders to check.")
    ] = None,
    *,
    repair: Annotated[bool, typer.Option("--repair", help="Set damage aside, and close files to others.")] = False,
    json: Json = False,
) -> None:
    """Check this machine and every journal on it.

    The exit code is 1 when something is wrong.
    """
    from holdfast.cli.doctor import doctor_command

    raise typer.Exit(doctor_command(paths or [], repairs=repair, is_json=json))


@bench_app.command("live")
def bench_live(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Logs, or folders of logs.")],
    *,
    calls: Annotated[int, typer.Option(min=1, metavar="N", help="So many on either side of a compaction.")] = 20,
    json: Json = False,
) -> None:
    """How much is read and run again behind the compactions in your logs.

    Against as many calls right before them: agents repeat themselves without a compaction, too.
    """
    from holdfast.cli.bench_live import live_command

    raise typer.Exit(live_command(files, calls=calls, is_json=json))


@bench_app.command("fidelity")
def bench_fidelity(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Logs, or folders of logs.")],
    *,
    budget: Annotated[
        list[str] | None,
        typer.Option("--budget", metavar="TOKENS", help="10k, 12k+10k (memory and raw tail), summary+10k, default."),
    ] = None,
    strategy: Annotated[
        list[str] | None, typer.Option("--strategy", metavar="NAME", help="Only this one; may be repeated.")
    ] = None,
    at: Annotated[str | None, typer.Option(metavar="PLACE", help="Only at: cut, boundary.")] = None,
    gate: Annotated[
        str, typer.Option(metavar="GATES", help="Bars for the ledger, e.g. facts@10k=92,chain@10k=1; exit code 1.")
    ] = "",
    lost: Annotated[int, typer.Option(min=0, metavar="N", help="Show so many lost facts.")] = 0,
    chains: Annotated[
        bool, typer.Option("--chains", help="Compact three and five times in a row, too; takes its time.")
    ] = False,
    judge: Annotated[str | None, typer.Option(metavar="MODEL", help="A model that has to read the views, too.")] = None,
    questions: Annotated[int, typer.Option(min=1, metavar="N", help="So many for the judge, of each view.")] = 20,
    markdown: Annotated[bool, typer.Option("--markdown", help="Tables in Markdown.")] = False,
    json: Json = False,
) -> None:
    """Tell what a compaction keeps of what the agent needed afterwards.

    Cuts recorded sessions, compacts what came before, and looks for what came up after. Nothing leaves this machine.
    """
    from holdfast.cli.benching import fidelity_command

    raise typer.Exit(
        fidelity_command(
            files,
            budgets=budget or (),
            strategies=strategy or (),
            where=at,
            gate=gate,
            lost=lost,
            is_chained=chains,
            judge=(judge, questions) if judge else None,
            form="json" if json else "markdown" if markdown else "table",
        )
    )


@bench_app.command("retrieval")
def bench_retrieval(
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="A corpus with questions, as JSON.")] = None,
    *,
    ranker: Annotated[
        list[str] | None, typer.Option("--ranker", metavar="NAME", help="Only this one; may be repeated.")
    ] = None,
    timing: Annotated[bool, typer.Option("--timing", help="What a question costs, by the number of memories.")] = False,
    size: Annotated[
        list[int] | None, typer.Option("--size", min=1, metavar="N", help="With --timing: only so many memories.")
    ] = None,
    json: Json = False,
) -> None:
    """Tell how well and how fast memories, turns and sessions are found.

    Several rankers over one file of questions with evidence; docs/retrieval.md has its form.
    """
    from holdfast.cli.retrieving import retrieval_command

    raise typer.Exit(retrieval_command(file, rankers=ranker or (), is_timing=timing, sizes=size or (), is_json=json))


app_chat.add_to(app)
app_past.add_to(app)
app_notes.add_to(app)
app_sessions.add_to(app)
app_memory.add_to(app)
app_instructions.add_to(app)
app_trust.add_to(app)
app_serve.add_to(app)
