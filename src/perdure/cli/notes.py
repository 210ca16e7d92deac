"""`perdure notes`: the notes kept of a session (SM-10)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perdure.cli.arguments import Json, SessionName, configured, examples, family, located, open_editor
from perdure.cli.output import EXIT_FAILED, EXIT_OK, for_stdout, note, out, out_json, table
from perdure.errors import BadSetting

if TYPE_CHECKING:
    from perdure.adapters.config import Config
    from perdure.engine.notes import NotesOnDisk


app = family("Show, edit or find the notes kept of a session.", "perdure notes show @last", "perdure notes edit @last")
_SAYS = {
    "missing": "no notes yet: they are written while the session runs",
    "emptied": "the file is empty; the next update sets it aside and starts new notes",
    "broken": "no section of the template is in the file; the next update sets it aside and starts new notes",
    "template": "the notes say nothing yet",
}


@app.command(epilog=examples("perdure notes show @last", "perdure notes show 7k2q9x --sizes"))
def show(
    session: SessionName,
    *,
    sizes: Annotated[bool, typer.Option("--sizes", help="Only show how long each section is.")] = False,
    json: Json = False,
) -> None:
    """Show the notes as they are now."""
    config = configured()
    path = _path(session, config)
    found = _found(path, config)
    if json:
        out_json(_notes_data(path, found))
    elif found.state in _SAYS:
        note(f"{path}: {_SAYS[found.state]}")
    elif sizes:
        data = _notes_data(path, found)
        table(("section", "tokens"), [(one["title"], one["tokens"]) for one in data["sections"]])
        out(f"{data['tokens']:,} of {config.settings.notes_file_tokens:,} tokens")
    else:
        out(for_stdout((found.data or b"").decode("utf-8", "replace").rstrip("\n")))
    if (fault := _prompt_fault(path, found, config)) is not None:
        note(f"{fault}; until that is mended, code writes the notes")
    raise typer.Exit(EXIT_FAILED if found.state in ("emptied", "broken") else EXIT_OK)


@app.command(epilog=examples("perdure notes edit @last"))
def edit(session: SessionName, *, json: Json = False) -> None:
    """Open the notes in your editor ($VISUAL or $EDITOR).

    What you write stays; the next update starts from it. You can edit while the session runs.
    """
    import anyio

    from perdure.memory.notes import completed_notes, render

    config = configured()
    path = _path(session, config)
    found = _found(path, config)
    if found.state == "missing":
        anyio.run(_create, path, render(found.form).encode())
    open_editor(path)
    found = _found(path, config)
    if found.state in ("emptied", "broken"):
        note(f"{path}: {_SAYS[found.state]}")
        raise typer.Exit(EXIT_FAILED)
    if back := completed_notes(found.notes, found.form)[1]:
        note(f"these headings or their italic lines are gone and will come back: {', '.join(back)}")
    if json:
        out_json({"path": str(path), "will_come_back": list(back)})


@app.command(epilog=examples("perdure notes path @last"))
def path(session: SessionName, *, json: Json = False) -> None:
    """Print where the notes are, or will be."""
    place = _path(session, configured())
    if json:
        out_json({"path": str(place), "exists": place.is_file()})
    else:
        out(str(place))


def _path(reference: str, config: Config) -> Path:
    from perdure.adapters.memory.notes import notes_path

    return notes_path(located(reference))


def _found(path: Path, config: Config) -> NotesOnDisk:
    import anyio

    from perdure.adapters.memory.notes import FileNotes
    from perdure.engine.notes import read_notes_file

    return anyio.run(read_notes_file, FileNotes(path.parent.parent, config.home))


def _prompt_fault(path: Path, found: NotesOnDisk, config: Config) -> str | None:
    """What is wrong with the user's own prompt; nothing when there is none (SM-1)."""
    import anyio

    from perdure.adapters.memory.notes import FileNotes
    from perdure.engine.notes import PROMPT
    from perdure.memory.notes import NotesBudget, update_prompt

    try:
        custom = anyio.run(FileNotes(path.parent.parent, config.home).custom, PROMPT)
        update_prompt(found.form, NotesBudget(), str(path), custom)
    except BadSetting as e:
        return str(e)
    return None


async def _create(path: Path, data: bytes) -> None:
    from perdure.adapters.memory.notes import FileNotes

    await FileNotes(path.parent.parent, None).write(data, instead_of=None)


def _notes_data(path: Path, found: NotesOnDisk) -> dict[str, Any]:
    from perdure.memory.notes import section_tokens

    is_read = found.state in ("template", "written")
    sections = [{"title": one.title, "tokens": section_tokens(one), "text": one.body} for one in found.notes.sections]
    return {
        "path": str(path),
        "state": found.state,
        "tokens": sum(one["tokens"] for one in sections) if is_read else 0,
        "sections": sections if is_read else [],
    }
