"""`perdure chat`, `run` and `resume`: the commands in which the agent works (CLI-1, SES-1)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perdure.adapters.machine.system import NO_AGENT, needs_unix
from perdure.cli.arguments import (
    SESSION_HELP,
    Json,
    Sets,
    complete_models,
    complete_sessions,
    configured,
    examples,
    family,
    located,
)
from perdure.errors import BadSetting

app = family()
NO_MODEL = (
    "no model is set up, and no model server answers on this machine: set ANTHROPIC_API_KEY or OPENAI_API_KEY, or name "
    "one, as in --model ollama:qwen3 (--model offline is a demonstration without any)"
)

Resume = Annotated[
    str | None,
    typer.Option("--resume", metavar="SESSION", help="Continue this session.", autocompletion=complete_sessions),
]
Last = Annotated[bool, typer.Option("--last", help="Continue the last session of this folder.")]
Fork = Annotated[bool, typer.Option("--fork", help="Continue in a copy; the session itself stays as it is.")]
ModelName = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="NAME",
        help="A model as provider:model[@URL][#KEY], the URL of a server, or offline.",
        autocompletion=complete_models,
    ),
]
PermissionMode = Annotated[
    str | None,
    typer.Option("--mode", metavar="MODE", help="What it may do unasked: default, accept_edits, plan or bypass."),
]
Trust = Annotated[bool, typer.Option("--trust", help="Trust this folder for now: use its settings, skills and agents.")]


@app.command(epilog=examples("perdure chat", "perdure chat --model ollama:qwen3", "perdure chat --last"))
def chat(
    *,
    resume: Resume = None,
    last: Last = False,
    fork: Fork = False,
    model: ModelName = None,
    mode: PermissionMode = None,
    trust: Trust = False,
    sets: Sets = None,
) -> None:
    """Talk with the agent about this folder.

    It reads, searches, edits and runs commands, and asks before it changes anything. /help lists what you can type.
    Without a key or a model server on this machine you see a demonstration.
    """
    _converse(resume, last, fork, trust, flags_of(sets, model, mode))


@app.command(epilog=examples("perdure resume 7k2q9x", "perdure resume --last", "perdure resume 7k2q9x --fork"))
def resume(
    session: Annotated[
        str | None, typer.Argument(metavar="SESSION", help=SESSION_HELP, autocompletion=complete_sessions)
    ] = None,
    *,
    last: Last = False,
    fork: Fork = False,
    model: ModelName = None,
    mode: PermissionMode = None,
    trust: Trust = False,
    sets: Sets = None,
) -> None:
    """Continue a session, as chat --resume SESSION does."""
    if session is None and not last:
        raise BadSetting("resume: which session? Give its id, or --last; `perdure sessions` lists them")
    _converse(session, last, fork, trust, flags_of(sets, model, mode))


@app.command(
    epilog=examples(
        'perdure run "why do the tests fail?"',
        'perdure run "fix the typo in README.md" --mode accept_edits',
        "perdure run - --json < prompt.txt",
        "perdure run --resume 7k2q9x --rewind-files prompt-12",
    )
)
def run(
    prompt: Annotated[
        str | None, typer.Argument(metavar="PROMPT", help="What to do; - reads it from standard input.")
    ] = None,
    *,
    resume: Resume = None,
    last: Last = False,
    fork: Fork = False,
    model: ModelName = None,
    mode: PermissionMode = None,
    max_turns: Annotated[
        int | None, typer.Option("--max-turns", min=1, metavar="N", help="Call the model at most N times.")
    ] = None,
    rewind_to: Annotated[
        str | None,
        typer.Option("--rewind-files", metavar="MESSAGE", help="With --resume: only put files back to before it."),
    ] = None,
    trust: Trust = False,
    sets: Sets = None,
    json: Json = False,
) -> None:
    """Have the agent work on one prompt, without questions.

    What the permissions don't allow is refused. The exit code is 0 when the work is done, 1 when it failed or was cut
    short, 130 when it was interrupted. With --json, everything that happens is printed as a line of its own, and the
    last line says how it ended.
    """
    import anyio

    needs_unix("perdure run", NO_AGENT)
    from perdure.adapters.providers.connect import OFFLINE
    from perdure.cli.chat.agents import factory_here
    from perdure.cli.chat.headless import prompt_of
    from perdure.cli.chat.headless import run as run_headless
    from perdure.cli.history import rewind_files

    if rewind_to is not None:
        raise typer.Exit(rewind_files(configured(sets or ()), message=rewind_to, resume=resume, prompt=prompt))
    if prompt is None:
        raise BadSetting("PROMPT: say what to do, or - to read it from standard input")
    _check(resume, last, fork)
    text = prompt_of(prompt)

    async def body() -> int:
        async with factory_here(flags_of(sets, model, mode, max_turns), trusts=trust) as factory:
            if factory.is_demonstration and OFFLINE not in factory.config.settings.main_models:
                raise BadSetting(NO_MODEL)
            return await run_headless(factory, text, resume=resume, last=last, fork=fork, is_json=json)

    raise typer.Exit(anyio.run(body))


def _check(resume: str | None, last: bool, fork: bool) -> None:
    if resume is not None and last:
        raise BadSetting("--resume can't be combined with --last: each of them names a session")
    if fork and resume is None and not last:
        raise BadSetting("--fork: of which session? Add --resume SESSION or --last")


def _converse(resume: str | None, last: bool, fork: bool, trusts: bool, flags: list[str]) -> None:
    import anyio

    needs_unix("perdure chat", NO_AGENT)
    from perdure.cli.chat.agents import factory_here
    from perdure.cli.chat.talk import talk
    from perdure.cli.trust import settle
    from perdure.wiring.factory import project_of

    _check(resume, last, fork)
    if not trusts:  # a person is asked about the folders that they are about to work in (SEC-8)
        folders = [Path.cwd()]
        if resume is not None:
            project = project_of(located(resume))
            folders += [project] if project is not None and project.is_dir() else []
        settle(folders, tuple(flags))

    async def body() -> int:
        async with factory_here(flags, trusts=trusts) as factory:
            return await talk(factory, resume=resume, last=last, fork=fork)

    raise typer.Exit(anyio.run(body))


def flags_of(sets: list[str] | None, model: str | None, mode: str | None, max_turns: int | None = None) -> list[str]:
    """The options as settings, which is what they are."""
    flags = [*(sets or ())]
    flags += [f"main_models={model}"] if model is not None else []
    flags += [f"permission_mode={mode.replace('-', '_')}"] if mode else []
    return flags + ([f"agent_turns={max_turns}"] if max_turns is not None else [])
