"""`holdfast rewind`, and what `holdfast run --rewind-files` does (CKP-3, CKP-5)."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.adapters.shadow.names import written
from holdfast.cli.door import EXIT_FAILED, EXIT_OK, EXIT_USAGE, clean, note, out, out_json, reference_of
from holdfast.cli.tables import plural, table
from holdfast.engine.checkpoints import Rewind, What
from holdfast.errors import BadSetting, RewindRefused, SessionNotFound
from holdfast.memory.checkpoints import Missed
from holdfast.memory.names import shown
from holdfast.ports import FileRewind, FileStep

if TYPE_CHECKING:
    from holdfast.adapters.config import Config

NEEDS_RESUME = "Error: --rewind-files requires --resume"
STANDS_ALONE = "Error: --rewind-files is a standalone operation and cannot be used with a prompt"
NEEDS_MESSAGE = "Error: --rewind-files requires a user message id"
_PATH_CHARS = 300
_MISSED_SHOWN = 20
_VERBS = {
    "write": "change",
    "create": "bring back",
    "delete": "delete",
    "link": "link",
    "folder": "make",
    "keep": "leave",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """What to go back to, with what; `to` is None for an undo."""

    to: str | None
    what: What = "both"
    is_dry: bool = False
    is_forced: bool = False


def rewind_command(reference: str, config: Config, asked: Asked, *, is_json: bool) -> int:
    """Rewind a session, or undo that."""
    import anyio

    done = anyio.run(_run, reference, config, asked)
    if is_json:
        out_json(_data(done, asked))
    else:
        _show(done, asked)
    return EXIT_OK


async def _run(reference: str, config: Config, asked: Asked) -> Rewind:
    from holdfast.adapters.files import SessionStore
    from holdfast.engine.checkpoints import rewind, undo_rewind
    from holdfast.wiring import Parts, file_checkpoints, open_session

    parts = Parts(settings=config.settings)
    directory = SessionStore(config.home).locate(reference_of(reference))
    session = await open_session(config.home, directory, read_only=asked.is_dry, parts=parts)
    try:
        project = (await session.world.journal.load()).header.project
        files = None
        if asked.what != "conversation":
            if not _is_there(project):
                raise SessionNotFound(f"{project or reference}: the project of this session isn't there any more")
            files = file_checkpoints(directory, project or "", parts, is_looking=asked.is_dry)
        try:
            if asked.to is None:
                return await undo_rewind(session, files, is_forced=asked.is_forced, is_dry=asked.is_dry)
            return await rewind(
                session, files, asked.to, what=asked.what, is_forced=asked.is_forced, is_dry=asked.is_dry
            )
        finally:
            if files is not None:
                files.close()
    finally:
        await (session.world.journal.close() if asked.is_dry else session.close())


def _is_there(project: str | None) -> bool:
    return project is not None and Path(project).is_dir()


def rewind_files(config: Config, *, message: str, resume: str | None, prompt: str | None) -> int:
    """`holdfast run --rewind-files MESSAGE --resume SESSION`: only that, without any turn of a model (CKP-5).

    Files that somebody else changed are not overwritten, and then nothing is. The exit code is 0 when the files stand
    as they did, 2 for what can't be asked, 1 for what can't be done.
    """
    import anyio

    if not resume:
        return _refused(NEEDS_RESUME)
    if prompt:
        return _refused(STANDS_ALONE)
    try:
        done = anyio.run(_run, resume, config, Asked(message, "code"))
    except RewindRefused as e:
        if "no user message" in str(e) or "user messages" in str(e) or "prompts to go back" in str(e):
            return _refused(f"{NEEDS_MESSAGE}: {e}")
        return _refused(f"Error: {e}", EXIT_FAILED)
    if done.files is not None:
        for line in (done.files.note, not_kept(done.files), *left(done.files)):
            if line:
                note(line)
    out(f"Files rewound to state at message {done.to}")
    return EXIT_OK


def _refused(text: str, code: int = EXIT_USAGE) -> int:
    sys.stderr.write(" ".join(clean(text).split()) + "\n")
    return code


def _show(done: Rewind, asked: Asked) -> None:
    would = "would go" if asked.is_dry else "went"
    if done.files is not None:
        _show_files(done.files, asked)
    if done.is_conversation:
        out(f"the conversation {would} {'forward again' if asked.to is None else f'back to before {done.to}'}")
    if done.prompt and done.is_conversation and asked.to is not None:
        out("\nthe prompt, to be edited:\n" + "\n".join(clean(line) for line in done.prompt.splitlines()))
    if asked.to is not None and not asked.is_dry:
        out("\nundo it with `holdfast rewind SESSION --undo`")


def _show_files(files: FileRewind, asked: Asked) -> None:
    missed = not_kept(files)
    if not files.steps:
        nothing = "no file that is kept has to change" if missed else "no file has to change"
        out(f"{nothing}{f': {files.note}' if files.note else ''}")
    else:
        _show_steps(files, asked)
    if missed:
        out(missed)


def _show_steps(files: FileRewind, asked: Asked) -> None:
    rows = [(_VERBS[s.action], shown(s.path, limit=_PATH_CHARS), _lines(s), s.conflict or s.left) for s in files.steps]
    table(("what", "file", "lines", "note"), rows)
    verb = "would change" if asked.is_dry else "changed"
    out(f"{plural(len(files.changes), 'file')} {verb}")
    if asked.is_dry and files.conflicts:
        out(f"{plural(len(files.conflicts), 'file')} changed by someone else: only --force overwrites them")


def not_kept(files: FileRewind) -> str:
    """One line of what a rewind doesn't put back, since nothing of it is kept (CKP-7); empty for nothing."""
    told = [f"{shown(m.path)} ({', '.join(filter(None, (m.why, m.what)))})" if m.path else m.why for m in files.missed]
    more = [f"and {len(told) - _MISSED_SHOWN:,} more (--json names them)"] if len(told) > _MISSED_SHOWN else []
    return f"not kept, so not put back: {'; '.join(told[:_MISSED_SHOWN] + more)}" if told else ""


def left(files: FileRewind) -> list[str]:
    """Lines of what is known and can't be put back."""
    return [f"left {shown(step.path)}: {step.left}" for step in files.steps if step.left]


def _lines(step: FileStep) -> str:
    if step.action == "keep":
        return ""
    return "binary" if step.is_binary else f"+{step.added} -{step.removed}"


def _data(done: Rewind, asked: Asked) -> dict[str, Any]:
    files = done.files
    return {
        "to": done.to,
        "undo": asked.to is None,
        "dry_run": asked.is_dry,
        "conversation": done.is_conversation,
        "prompt": done.prompt if done.is_conversation and asked.to is not None else None,
        "note": files.note or None if files is not None else None,
        "not_kept": [] if files is None else [_missed_data(missed) for missed in files.missed],
        "files": None if files is None else [_step_data(step) for step in files.steps],
    }


def _missed_data(missed: Missed) -> dict[str, Any]:
    return {"path": written(missed.path) or None, "why": missed.why, "what": missed.what or None}


def _step_data(step: FileStep) -> dict[str, Any]:
    return {
        "path": written(step.path),
        "action": step.action,
        "added": step.added,
        "removed": step.removed,
        "binary": step.is_binary,
        "conflict": step.conflict or None,
        "left": step.left or None,
    }


def chosen(*, code: bool, conversation: bool, both: bool) -> What:
    """The one of the three flags that was given; both without any."""
    if sum((code, conversation, both)) > 1:
        raise BadSetting("--code, --conversation and --both: give one of them")
    return "code" if code else "conversation" if conversation else "both"
