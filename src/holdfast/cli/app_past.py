"""The commands about what left the view: compact, uncompact, recall, search, import (RCL-1, CMP-11, SES-2)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.door import configured
from holdfast.errors import BadSetting

Json = Annotated[bool, typer.Option("--json", help="One JSON object a line, for programs.")]
Sets = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting; may be repeated.")]
Session = Annotated[str, typer.Argument(metavar="SESSION", help="An id, its beginning, or a path.")]

SessionOrLog = Annotated[
    str, typer.Argument(metavar="SESSION|FILE", help="A session kept here; with --at, a log to measure on.")
]
Text = Annotated[
    Path | None, typer.Option("--summary", metavar="FILE", help="Commit this text as the record; - for stdin.")
]
Writer = Annotated[str | None, typer.Option(metavar="NAME", help="The model that writes the record; else code does.")]
From = Annotated[str | None, typer.Option("--from", metavar="MESSAGE", help="Only this message and what follows it.")]
UpTo = Annotated[str | None, typer.Option("--up-to", metavar="MESSAGE", help="Only what stands before this message.")]
Hooks = Annotated[
    list[str] | None, typer.Option("--hook", metavar="COMMAND", help="A shell command to ask before and tell after.")
]


def add_to(app: typer.Typer) -> None:
    """Put these commands behind the others."""
    app.command("compact")(compact)
    app.command("uncompact")(uncompact)
    app.command("rewind", context_settings={"ignore_unknown_options": True})(rewind)
    app.command("recall")(recall)
    app.command("search")(search)
    app.command("import")(import_log)


def compact(
    reference: SessionOrLog,
    *,
    focus: Annotated[str, typer.Option(metavar="TEXT", help="What the record should look at.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be kept and dropped.")] = False,
    edit: Annotated[bool, typer.Option("--edit", help="Open the record in $EDITOR before it is committed.")] = False,
    summary: Text = None,
    model: Writer = None,
    start: From = None,
    end: UpTo = None,
    hook: Hooks = None,
    at: Annotated[int | None, typer.Option(min=1, metavar="LINE", help="Measure on a log: compact before it.")] = None,
    strategy: Annotated[str | None, typer.Option(metavar="NAME", help="With --at: the strategy; ledger.")] = None,
    budget: Annotated[str | None, typer.Option(metavar="TOKENS", help="With --at: what all may cost; 10k.")] = None,
    tail: Annotated[str | None, typer.Option(metavar="TOKENS", help="With --at: a raw tail outside it; 0.")] = None,
    sets: Sets = None,
    json: Json = False,
) -> None:
    """Replace the older part of a session by a record of it.

    With --from or --up-to a part gives way and all else stays word for word. Nothing is lost: recall and search bring
    back what left, and uncompact undoes it.
    """
    measured = {"--strategy": strategy, "--budget": budget, "--tail": tail}
    live = {"--focus": focus, "--dry-run": dry_run, "--edit": edit, "--summary": summary}
    live |= {"--from": start, "--up-to": end, "--hook": hook}
    odd = [flag for flag, value in (measured if at is None else live).items() if value]
    if odd:
        raise BadSetting(f"{odd[0]} goes {'only' if at is None else 'not'} with --at, which measures on a log")
    if at is not None:
        from holdfast.cli.compacting import measure_command

        strategy, budget, tail = strategy or "ledger", budget or "10k", tail or "0"
        raise typer.Exit(
            measure_command(Path(reference), at=at, strategy=strategy, budget=budget, tail=tail, is_json=json)
        )
    from holdfast.cli.undoing import Asked, compact_command

    asked = Asked(focus, dry_run, edit, summary, model, start, end, tuple(hook or ()))
    raise typer.Exit(compact_command(reference, configured(sets or ()), asked, is_json=json))


def uncompact(session: Session, *, sets: Sets = None, json: Json = False) -> None:
    """Bring back the view before the last compaction.

    What was said since stays. Automatic compaction then waits until the window is nearly full.
    """
    from holdfast.cli.undoing import uncompact_command

    uncompact_command(session, configured(sets or ()), is_json=json)


def rewind(
    session: Session,
    to: Annotated[
        str | None, typer.Argument(metavar="[TO]", help="A user message: its id, its beginning, or -N prompts back.")
    ] = None,
    *,
    code: Annotated[bool, typer.Option("--code", help="Only the files.")] = False,
    conversation: Annotated[bool, typer.Option("--conversation", help="Only what the model sees.")] = False,
    both: Annotated[bool, typer.Option("--both", help="Both; this is what happens without a flag, too.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Also files that someone else changed since.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Take back the last rewind.")] = False,
    sets: Sets = None,
    json: Json = False,
) -> None:
    """Go back to before a prompt: the files, the conversation, or both.

    All files or none. What stands there is saved first, so --undo brings it back.
    """
    from holdfast.cli.rewinding import Asked, chosen, rewind_command

    what = chosen(code=code, conversation=conversation, both=both)
    if undo and (to is not None or code or conversation or both):
        raise BadSetting(
            "--undo takes back the whole last rewind: it goes without TO and without --code, --conversation"
        )
    if to is None and not undo:
        raise BadSetting("say where to go back to: a user message, or -1 for the last prompt")
    if to is not None and to.startswith("-") and not to[1:].isdigit():
        raise BadSetting(f"{to}: no such option")
    asked = Asked(to, what, dry_run, force)
    raise typer.Exit(rewind_command(session, configured(sets or ()), asked, is_json=json))


def recall(
    session: Session,
    identity: Annotated[str, typer.Argument(metavar="ID", help="Of a result, message, boundary, blob; or its start.")],
    *,
    lines: Annotated[str | None, typer.Option(metavar="A-B", help="Only these lines; A- is to the end.")] = None,
    pattern: Annotated[str | None, typer.Option(metavar="P", help="Only lines that match (RE2), numbered.")] = None,
    chars: Annotated[str | None, typer.Option(metavar="A-B", help="Only these characters.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, metavar="CHARS", help="Show no more than this.")] = None,
    json: Json = False,
) -> None:
    """Show the original of something that was said.

    Byte for byte, whether it is in the window, cleared, offloaded or compacted away.
    """
    from holdfast.cli.recalling import recall_command

    recall_command(
        session, identity, configured(), lines=lines, pattern=pattern, chars=chars, limit=limit, is_json=json
    )


def search(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="Words; what stands together counts together.")],
    *,
    session: Annotated[str | None, typer.Option(metavar="S", help="Only this session.")] = None,
    project: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Another project than this folder's.")] = None,
    is_all: Annotated[bool, typer.Option("--all", help="The sessions of all projects.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=1000, metavar="N", help="At most so many results.")] = 10,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Make the index anew first.")] = False,
    json: Json = False,
) -> None:
    """Find what was said in this project's sessions.

    Best and newest first; each names its place and the id with which recall brings back the whole.
    """
    from holdfast.cli.recalling import Scope, search_command

    scope = Scope(session=session, project=project, is_all=is_all)
    search_command(query, configured(), scope, limit=limit, rebuild=rebuild, is_json=json)


def import_log(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A log of another agent.")],
    *,
    project: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Its project; else this folder.")] = None,
    name: Annotated[str | None, typer.Option("--as", metavar="ID", help="The id of the session.")] = None,
    which: Annotated[str | None, typer.Option("--session", metavar="ID", help="Only this one of the file.")] = None,
    json: Json = False,
) -> None:
    """Make a session of a recorded one.

    Everything that was said, in its order; an export of an unchanged import gives the bytes of the file.
    """
    from holdfast.cli.importing import import_command

    import_command(file, configured(), project=project, name=name, which=which, is_json=json)
