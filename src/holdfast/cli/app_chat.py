"""The commands in which the agent works: chat, run, resume, init (CLI-1, SES-1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.errors import BadSetting

if TYPE_CHECKING:
    from holdfast.cli.chat.opening import Wanted

Json = Annotated[bool, typer.Option("--json", help="One JSON object a line, for programs.")]
Sets = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting; may be repeated.")]
Resume = Annotated[str | None, typer.Option("--resume", metavar="ID", help="Go on with this session.")]
Last = Annotated[bool, typer.Option("--last", help="Go on with the last session of this folder.")]
Fork = Annotated[bool, typer.Option("--fork", help="Go on in a copy; the session itself stays as it is.")]
Model = Annotated[
    str | None,
    typer.Option("--model", metavar="NAME", help="provider:model[@URL][#KEY], the URL of a server, or offline."),
]
Mode = Annotated[
    str | None, typer.Option("--mode", metavar="MODE", help="Permissions: default, accept_edits, plan, bypass.")
]
Trust = Annotated[
    bool, typer.Option("--trust", help="Trust this folder this time: its settings, skills and agents are used.")
]


def add_to(app: typer.Typer) -> None:
    """Put these commands behind the others."""
    app.command("chat")(chat)
    app.command("run")(run)
    app.command("resume")(resume)
    app.command("init")(init)


def chat(
    *,
    resume: Resume = None,
    last: Last = False,
    fork: Fork = False,
    model: Model = None,
    mode: Mode = None,
    trust: Trust = False,
    sets: Sets = None,
) -> None:
    """Talk with the agent about this folder.

    It reads, searches, edits and runs commands, and asks before it changes anything. /help lists what can be typed.
    Without a key and a model server on this machine it is a demonstration.
    """
    _chat(_wanted(resume, last, fork, model=model, mode=mode, trust=trust, sets=sets))


def resume(
    session: Annotated[str | None, typer.Argument(metavar="[ID]", help="An id, its beginning, or a path.")] = None,
    *,
    last: Last = False,
    fork: Fork = False,
    model: Model = None,
    mode: Mode = None,
    trust: Trust = False,
    sets: Sets = None,
) -> None:
    """Go on with a session: chat --resume ID, or chat --last."""
    if session is None and not last:
        raise BadSetting("resume: which session? Give its id, or --last; `holdfast sessions` lists them")
    _chat(_wanted(session, last, fork, model=model, mode=mode, trust=trust, sets=sets))


def run(
    prompt: Annotated[str | None, typer.Argument(metavar="[PROMPT]", help="What to do; - reads it from stdin.")] = None,
    *,
    resume: Resume = None,
    last: Last = False,
    fork: Fork = False,
    model: Model = None,
    mode: Mode = None,
    max_turns: Annotated[
        int | None, typer.Option("--max-turns", min=1, metavar="N", help="At most so many calls of the model.")
    ] = None,
    rewind_to: Annotated[
        str | None,
        typer.Option("--rewind-files", metavar="MESSAGE", help="With --resume: only put files back to that message."),
    ] = None,
    trust: Trust = False,
    sets: Sets = None,
    json: Json = False,
) -> None:
    """Have the agent work on one prompt, without anybody to ask.

    What permissions don't allow is refused. The exit code is 0 when it is done, 1 when it failed or was cut short, 130
    when it was interrupted. With --json everything that happens is a line, and the last one says how it ended.
    """
    import anyio

    if rewind_to is not None:
        from holdfast.cli.door import configured
        from holdfast.cli.rewinding import rewind_files

        raise typer.Exit(rewind_files(configured(sets or ()), message=rewind_to, resume=resume, prompt=prompt))
    if prompt is None:
        raise BadSetting("PROMPT: say what to do, or - to read it from standard input")
    from holdfast.cli.chat.headless import run as run_headless

    said = prompt
    wanted = _wanted(resume, last, fork, model=model, mode=mode, trust=trust, sets=sets, max_turns=max_turns)

    async def body() -> int:
        return await run_headless(said, wanted, is_json=json)

    raise typer.Exit(anyio.run(body))


def init(
    *,
    project: Annotated[bool, typer.Option("--project", help="For this folder, in .holdfast/config.toml.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
    json: Json = False,
) -> None:
    """Write a config file with the settings that are changed most, each with what it does."""
    from holdfast.cli.starting import init_command

    init_command(is_project=project, force=force, is_json=json)


def _wanted(
    resume: str | None,
    last: bool,
    fork: bool,
    *,
    model: str | None,
    mode: str | None,
    trust: bool,
    sets: list[str] | None,
    max_turns: int | None = None,
) -> Wanted:
    from holdfast.cli.chat.opening import Wanted

    mode = mode.replace("-", "_") if mode else None
    return Wanted(
        resume=resume,
        last=last,
        fork=fork,
        model=model,
        mode=mode,
        trust=trust,
        sets=tuple(sets or ()),
        max_turns=max_turns,
    )


def _chat(wanted: Wanted) -> None:
    import anyio

    from holdfast.cli.chat.opening import settled
    from holdfast.cli.chat.talk import chat as talk

    settled(wanted)
    raise typer.Exit(anyio.run(talk, wanted))
