"""`perdure notes`: the notes kept of a session (SM-10)."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perdure.cli.arguments import Json, SessionName, configured, examples, family, open_editor
from perdure.cli.kept import KeptIn, NamedSession, StoreUrl, TenantName
from perdure.cli.loop import in_loop
from perdure.cli.output import EXIT_FAILED, EXIT_OK, for_stdout, note, out, out_json, table
from perdure.errors import BadSetting, PerdureError

if TYPE_CHECKING:
    from perdure.adapters.config import Config
    from perdure.engine.notes import NotesOnDisk
    from perdure.ports.session import NotesFile


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
    store: StoreUrl = None,
    tenant: TenantName = None,
    json: Json = False,
) -> None:
    """Show the notes as they are now."""

    config = configured()

    async def read() -> tuple[str, NotesOnDisk, str | None]:
        from perdure.engine.notes import read_notes_file

        async with KeptIn(store, tenant).session(session) as named:
            file = await _file_of(named, config)
            found = await read_notes_file(file)
            return file.path, found, await _prompt_fault(file, found)

    path, found, fault = in_loop(read)
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
    if fault is not None:
        note(f"{fault}; until that is mended, code writes the notes")
    raise typer.Exit(EXIT_FAILED if found.state in ("emptied", "broken") else EXIT_OK)


@app.command(epilog=examples("perdure notes edit @last"))
def edit(session: SessionName, *, store: StoreUrl = None, tenant: TenantName = None, json: Json = False) -> None:
    """Open the notes in your editor ($VISUAL or $EDITOR).

    What you write stays; the next update starts from it. You can edit while the session runs.
    """
    import anyio

    from perdure.memory.notes import completed_notes

    config = configured()

    async def changed() -> tuple[str, NotesOnDisk]:
        from perdure.engine.notes import read_notes_file
        from perdure.memory.notes import render

        async with KeptIn(store, tenant).session(session) as named:
            file = await _file_of(named, config)
            found = await read_notes_file(file)
            if found.state == "missing":
                await file.write(render(found.form).encode(), instead_of=None)
            if isinstance(named.reference, Path):
                await anyio.to_thread.run_sync(open_editor, Path(file.path))
            else:
                await _edited_copy(file)
            return file.path, await read_notes_file(file)

    path, found = in_loop(changed)
    if found.state in ("emptied", "broken"):
        note(f"{path}: {_SAYS[found.state]}")
        raise typer.Exit(EXIT_FAILED)
    if back := completed_notes(found.notes, found.form)[1]:
        note(f"these headings or their italic lines are gone and will come back: {', '.join(back)}")
    if json:
        out_json({"path": path, "will_come_back": list(back)})


@app.command(epilog=examples("perdure notes path @last"))
def path(session: SessionName, *, store: StoreUrl = None, tenant: TenantName = None, json: Json = False) -> None:
    """Print where the notes are, or will be."""

    kept, config = KeptIn(store, tenant), configured()
    kept.only_files("the notes of a session in a database are no file: `perdure notes show` and `edit` work on them")

    async def named_path() -> Path:
        async with kept.session(session) as named:
            return Path((await _file_of(named, config)).path)

    place = in_loop(named_path)
    if json:
        out_json({"path": str(place), "exists": place.is_file()})
    else:
        out(str(place))


async def _file_of(named: NamedSession, config: Config) -> NotesFile:
    """The notes of a session, which needn't be readable for that."""
    if isinstance(named.reference, Path):
        from perdure.adapters.memory.notes import FileNotes

        return FileNotes(named.reference, config.home)
    return (await named.opened(read_only=True)).notes


async def _edited_copy(file: NotesFile) -> None:
    """Have a person edit notes that aren't in a file. Where somebody else changed them meanwhile, the copy stays.

    Raises:
        PerdureError: That happened; the message says where the copy is.
    """
    import anyio

    from perdure.adapters.stores import DRAFTS

    before = await file.read()
    copy = Path(tempfile.mkdtemp(prefix=DRAFTS)) / "notes.md"

    def edited() -> bytes:
        copy.write_bytes(before or b"")
        open_editor(copy)
        return copy.read_bytes()

    after = await anyio.to_thread.run_sync(edited)
    if after != before and not await file.write(after, instead_of=before):
        raise PerdureError(f"{file.path}: changed by somebody else meanwhile; what you wrote is in {copy}")
    await anyio.to_thread.run_sync(shutil.rmtree, copy.parent)


async def _prompt_fault(file: NotesFile, found: NotesOnDisk) -> str | None:
    """What is wrong with the user's own prompt; nothing when there is none (SM-1)."""
    from perdure.engine.notes import PROMPT
    from perdure.memory.notes import NotesBudget, update_prompt

    try:
        update_prompt(found.form, NotesBudget(), file.path, await file.custom(PROMPT))
    except BadSetting as e:
        return str(e)
    return None


def _notes_data(path: str, found: NotesOnDisk) -> dict[str, Any]:
    from perdure.memory.notes import section_tokens

    is_read = found.state in ("template", "written")
    sections = [{"title": one.title, "tokens": section_tokens(one), "text": one.body} for one in found.notes.sections]
    return {
        "path": path,
        "state": found.state,
        "tokens": sum(one["tokens"] for one in sections) if is_read else 0,
        "sections": sections if is_read else [],
    }
