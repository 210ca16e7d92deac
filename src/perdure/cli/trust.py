"""`perdure trust`, and the question about a folder before a conversation begins (SEC-8)."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli.arguments import Json, examples, family, home
from perdure.cli.output import EXIT_NOT_FOUND, EXIT_OK, clean, note, out, out_json, table
from perdure.errors import BadSetting, SessionNotFound

if TYPE_CHECKING:
    from perdure.adapters.config import Config, UnapprovedFile


app = family()


@app.command(epilog=examples("perdure trust", "perdure trust ~/src/project --remove", "perdure trust --list"))
def trust(
    folder: Annotated[Path | None, typer.Argument(metavar="FOLDER", help="The folder; without it, this one.")] = None,
    *,
    remove: Annotated[bool, typer.Option("--remove", help="Forget what you said about the folder.")] = False,
    is_list: Annotated[bool, typer.Option("--list", help="Show every folder you have answered for.")] = False,
    json: Json = False,
) -> None:
    """Trust a folder: use its settings, skills, agents and hooks.

    Trust covers the whole repository, with its work trees. Without it, only the folder's instruction files are used,
    as plain text. Commands that the folder would run are shown to you, and trusted as they are now: when they change,
    you are asked again.
    """
    if is_list and (remove or folder is not None):
        raise BadSetting("--list can't be combined with anything else")
    place = (folder or Path.cwd()).absolute()
    if is_list:
        code = _list(is_json=json)
    elif remove:
        code = _remove(place, is_json=json)
    elif not place.is_dir():
        raise SessionNotFound(f"{place}: no such folder")
    else:
        code = _trust(place, is_json=json)
    raise typer.Exit(code)


def _trust(folder: Path, *, is_json: bool) -> int:
    """Trust a folder, with what it runs as it is now; at a terminal that is shown and asked about."""
    from perdure.adapters.machine.repositories import is_no_project
    from perdure.adapters.machine.trust import remember

    config = _config(folder)
    root = config.folder.root
    remember(config.home, root, is_trusted=True)
    asks = sys.stdin is not None and sys.stdin.isatty() and not is_json
    runs = _config(folder).unseen
    for unseen in runs:
        answer = _answered([*_running(root, unseen), "May it run these?"]) if asks else True
        if answer is not None:
            remember(config.home, root, is_trusted=True, runs={unseen.file: unseen.digest}, wanted=answer)
    if is_json:
        told = {unseen.file: [str(command) for command in unseen.commands] for unseen in runs}
        out_json({"root": str(root), "is_trusted": True, "runs": told})
        return EXIT_OK
    out(f"{clean(str(root))} is trusted from now on")
    if why := is_no_project(str(root)):
        out(f"only the folder itself, not those below it: {why}")
    for unseen in () if asks else runs:
        for line in [*_running(root, unseen), "it may, as it is now"]:
            out(clean(line))
    return EXIT_OK


def _remove(folder: Path, *, is_json: bool) -> int:
    """Take the answer about a folder back; it will be asked about again."""
    from perdure.adapters.machine.trust import forget

    config = _config(folder)
    root = config.folder.root
    is_removed = forget(config.home, root)
    now = _config(folder).folder
    if is_json:
        out_json({"root": str(root), "is_removed": is_removed, "is_trusted": now.is_trusted})
    elif is_removed:
        out(f"{clean(str(root))}: your answer about it is forgotten")
    else:
        note(f"{root}: you never answered for it; `perdure trust --list` shows the folders you did")
    if now.is_trusted:
        note(f"{root} is still trusted: {now.why}")
    return EXIT_OK if is_removed else EXIT_NOT_FOUND


def _list(*, is_json: bool) -> int:
    """Show every folder that was answered for."""
    from perdure.adapters.machine.trust import trust_answers

    known = trust_answers(home())
    if is_json:
        out_json([{"root": root, "is_trusted": yes, "since": since} for root, (yes, since) in known.items()])
    elif known:
        rows = [(root, "yes" if yes else "no", since) for root, (yes, since) in known.items()]
        table(("folder", "trusted", "since"), rows)
    else:
        out("you haven't answered for any folder yet")
    return EXIT_OK


def settle(folders: Iterable[Path], flags: tuple[str, ...]) -> None:
    """Ask about folders before a conversation begins: each once, and again about what runs when that changed.

    Asked is only where somebody can answer, and where something depends on it. The end of the input answers nothing:
    then nothing is remembered, and the folder stays as it is.
    """
    from perdure.adapters.config import load
    from perdure.adapters.machine.trust import remember

    if sys.stdin is None or not sys.stdin.isatty():
        return
    for folder in dict.fromkeys(folders):
        config = load(os.environ, cwd=folder, flags=flags)
        root = config.folder.root
        if config.unapproved and not config.folder.is_answered:
            answer = _answered(_question(config))
            if answer is None:
                return
            remember(config.home, root, is_trusted=answer)
            config = load(os.environ, cwd=folder, flags=flags)
        for unseen in config.unseen:
            if config.folder.runs_not.get(unseen.file) == unseen.digest:
                continue
            answer = _answered([*_running(root, unseen), "May it run these?"])
            if answer is None:
                return
            remember(config.home, root, is_trusted=True, runs={unseen.file: unseen.digest}, wanted=answer)


def _config(folder: Path) -> Config:
    from perdure.adapters.config import load

    return load(os.environ, cwd=folder)


def _question(config: Config) -> list[str]:
    return [
        f"{config.folder.root} holds {', '.join(config.unapproved)}, which say how the agent works here.",
        "Say yes only if you know who wrote them. Without, its instruction files are read all the same, as its text.",
        "Trust this folder?",
    ]


def _running(root: Path, unseen: UnapprovedFile) -> list[str]:
    return [f"{root / unseen.file} runs", *(f"  {command}" for command in unseen.commands)]


def _answered(lines: list[str]) -> bool | None:
    """Yes or no; None when the input ended."""
    for line in lines[:-1]:
        out(clean(line))
    while True:
        sys.stdout.write(f"{clean(lines[-1])} y: yes, n: no, continue without: ")
        sys.stdout.flush()
        said = sys.stdin.readline()
        if not said:
            out()
            return None
        match said.strip().lower():
            case "y" | "yes":
                return True
            case "n" | "no":
                return False
