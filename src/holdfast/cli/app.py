"""The commands and their options; what each does stands in a module that is imported when it runs (SPD-5)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli import app_notes, app_past, app_serve
from holdfast.cli.door import Door, configured, out

app = typer.Typer(
    name="holdfast",
    help="Context and memory for long-running LLM agents: replay, inspect and keep sessions.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
sessions_app = typer.Typer(
    help="List, show or delete sessions kept here.", invoke_without_command=True, rich_markup_mode=None
)
app.add_typer(sessions_app, name="sessions")
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
    sets: Sets = None,
    jobs: Annotated[int, typer.Option(min=1, metavar="N", help="Files at once, each in its own process.")] = 1,
    json: Json = False,
) -> None:
    """Run recorded sessions through the engine.

    As if they were live: tells where passes and compactions fire, what moves the cached prefix, and what it all costs.
    """
    from holdfast.cli.replaying import replay_command

    flags = [*(sets or ())]
    flags += [f"window_tokens={window}"] if window else []
    flags += [f"max_output_tokens={max_output}"] if max_output else []
    raise typer.Exit(replay_command(files, configured(flags), model=model, jobs=jobs, is_json=json))


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
    sets: Sets = None,
    json: Json = False,
) -> None:
    """Show what fills the window, and what is left.

    A grid of a hundred cells and a table, as the view is now.
    """
    from holdfast.cli.window import context_command

    context_command(session, configured(sets or ()), session=which, is_json=json)


@sessions_app.callback()
def _sessions(
    context: typer.Context,
    project: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Only the sessions of this project.")] = None,
    json: Json = False,
) -> None:
    if context.invoked_subcommand is None:
        from holdfast.cli.sessions import list_command

        list_command(project, is_json=json)


@sessions_app.command("list")
def sessions_list(
    project: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Only the sessions of this project.")] = None,
    json: Json = False,
) -> None:
    """List the sessions, last written first. Reads only the ends of their journals."""
    from holdfast.cli.sessions import list_command

    list_command(project, is_json=json)


@sessions_app.command("show")
def sessions_show(
    session: Annotated[str, typer.Argument(metavar="SESSION", help="An id, its beginning, or a path.")],
    json: Json = False,
) -> None:
    """Show what is known of one session."""
    from holdfast.cli.sessions import show_command

    show_command(session, is_json=json)


@sessions_app.command("delete")
def sessions_delete(
    session: Annotated[str, typer.Argument(metavar="SESSION", help="An id, its beginning, or a path.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
    json: Json = False,
) -> None:
    """Delete a session with everything it stored, for good."""
    from holdfast.cli.sessions import delete_command

    raise typer.Exit(delete_command(session, is_sure=yes, is_json=json))


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
    json: Json = False,
) -> None:
    """Check this machine and every journal on it.

    The exit code is 1 when something is wrong.
    """
    from holdfast.cli.doctor import doctor_command

    raise typer.Exit(doctor_command(paths or [], is_json=json))


@bench_app.command("fidelity")
def bench_fidelity(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Logs, or folders of logs.")],
    *,
    budget: Annotated[
        list[str] | None,
        typer.Option("--budget", metavar="TOKENS", help="10k, 12k+10k (memory and raw tail), summary, summary+10k."),
    ] = None,
    strategy: Annotated[
        list[str] | None, typer.Option("--strategy", metavar="NAME", help="Only this one; may be repeated.")
    ] = None,
    at: Annotated[str | None, typer.Option(metavar="PLACE", help="Only at: cut, boundary.")] = None,
    gate: Annotated[
        str, typer.Option(metavar="GATES", help="Bars for the ledger, e.g. facts@10k=92,chain@10k=1; exit code 1.")
    ] = "",
    lost: Annotated[int, typer.Option(min=0, metavar="N", help="Show so many lost facts.")] = 0,
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
            form="json" if json else "markdown" if markdown else "table",
        )
    )


app_past.add_to(app)
app_notes.add_to(app)
app_serve.add_to(app)
