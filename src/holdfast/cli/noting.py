"""`holdfast notes`: show, edit or find the notes of a session (SM-10)."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.door import EXIT_FAILED, EXIT_OK, note, out, out_json, reference_of
from holdfast.cli.tables import table
from holdfast.errors import BadSetting

if TYPE_CHECKING:
    from holdfast.adapters.config import Config
    from holdfast.engine.notes import Found

_SAYS = {
    "missing": "no notes yet: they are written while the session runs",
    "emptied": "the file is empty; the next update puts it aside and makes new notes",
    "broken": "no section of the template is in the file; the next update puts it aside and makes new notes",
    "template": "the notes say nothing yet",
}


def path_command(reference: str, config: Config, *, is_json: bool) -> None:
    """Where the file is, or will be."""
    path = _path(reference, config)
    if is_json:
        out_json({"path": str(path), "exists": path.is_file()})
    else:
        out(str(path))


def show_command(reference: str, config: Config, *, is_sizes: bool, is_json: bool) -> int:
    """The notes as they are now; with sizes, what each section takes."""
    path = _path(reference, config)
    found = _found(path, config)
    if is_json:
        out_json(_data(path, found))
    elif found.state in _SAYS:
        note(f"{path}: {_SAYS[found.state]}")
    elif is_sizes:
        data = _data(path, found)
        table(("section", "tokens"), [(one["title"], one["tokens"]) for one in data["sections"]])
        out(f"{data['tokens']:,} of {config.settings.notes_file_tokens:,} tokens")
    else:
        out((found.data or b"").decode("utf-8").rstrip("\n"))
    if (fault := _prompt_fault(path, found, config)) is not None:
        note(f"{fault}; code writes the notes until it is gone")
    return EXIT_FAILED if found.state in ("emptied", "broken") else EXIT_OK


def edit_command(reference: str, config: Config) -> int:
    """Open the file in the user's editor. It may be edited at any time, also while the session runs (SM-6)."""
    import anyio

    from holdfast.memory.notes import render, whole

    path = _path(reference, config)
    found = _found(path, config)
    if found.state == "missing":
        anyio.run(_create, path, render(found.form).encode())
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not editor:
        raise BadSetting(f"no editor: set EDITOR, or edit {path} in any way you like")
    code = subprocess.run([*shlex.split(editor), str(path)], check=False).returncode
    if code:
        note(f"{editor} ended with {code}; the file is as it left it")
        return EXIT_FAILED
    found = _found(path, config)
    if found.state in ("emptied", "broken"):
        note(f"{path}: {_SAYS[found.state]}")
        return EXIT_FAILED
    back = whole(found.notes, found.form)[1]
    if back:
        note(f"these headings or their italic lines are gone and will come back: {', '.join(back)}")
    return EXIT_OK


def _path(reference: str, config: Config) -> Path:
    from holdfast.adapters.files import SessionStore
    from holdfast.adapters.files.notes import notes_path

    return notes_path(SessionStore(config.home).locate(reference_of(reference)))


def _found(path: Path, config: Config) -> Found:
    import anyio

    from holdfast.adapters.files.notes import FileNotes
    from holdfast.engine.notes import look

    return anyio.run(look, FileNotes(path.parent.parent, config.home))


def _prompt_fault(path: Path, found: Found, config: Config) -> str | None:
    """What is wrong with the user's own prompt; nothing when there is none (SM-1)."""
    import anyio

    from holdfast.adapters.files.notes import FileNotes
    from holdfast.engine.notes_fork import PROMPT
    from holdfast.memory.budgets import Budget, update_prompt

    try:
        custom = anyio.run(FileNotes(path.parent.parent, config.home).custom, PROMPT)
        update_prompt(found.form, Budget(), str(path), custom)
    except BadSetting as e:
        return str(e)
    return None


async def _create(path: Path, data: bytes) -> None:
    from holdfast.adapters.files.notes import FileNotes

    await FileNotes(path.parent.parent, None).write(data, instead_of=None)


def _data(path: Path, found: Found) -> dict[str, Any]:
    from holdfast.memory.budgets import section_tokens

    is_read = found.state in ("template", "written")
    sections = [{"title": one.title, "tokens": section_tokens(one), "text": one.body} for one in found.notes.sections]
    return {
        "path": str(path),
        "state": found.state,
        "tokens": sum(one["tokens"] for one in sections) if is_read else 0,
        "sections": sections if is_read else [],
    }
