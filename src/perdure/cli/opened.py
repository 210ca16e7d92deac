"""What a command looks at: a session of ours by its name, or the sessions in a log of another agent."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from perdure.cli.arguments import located
from perdure.cli.kept import HERE, KeptIn
from perdure.cli.loop import in_loop
from perdure.cli.output import note, plural, short_path, size
from perdure.context.models import model_spec
from perdure.context.policy import Facts, facts_at, thresholds
from perdure.context.view import ContextView
from perdure.errors import BadSetting, SessionNotFound
from perdure.logs.recording import LoggedCompaction, LoggedMicrocompaction, Problem, RecordedMessage, Recording
from perdure.transcript.messages import Message
from perdure.transcript.records import Compacted, Record

if TYPE_CHECKING:
    from perdure.adapters.config import Config
    from perdure.adapters.logs import FoundLogs


@dataclass(frozen=True, slots=True)
class BoundarySeen:
    """A compaction in the history; `after` is how many messages were said before it."""

    after: int
    id: str
    trigger: str
    tokens_before: int | None
    tokens_after: int | None


@dataclass(frozen=True, slots=True)
class ReadSession:
    """One session: everything that was said, and the view at its end."""

    name: str
    format: str
    session: str
    messages: tuple[Message, ...]
    view: ContextView
    facts: Facts
    boundaries: tuple[BoundarySeen, ...] = ()
    microcompactions: int = 0
    problems: tuple[Problem, ...] = ()
    title: str | None = None
    cwd: str | None = None
    branch: str | None = None
    compactions: tuple[Compacted, ...] = ()  # ours only
    records: tuple[Record, ...] = ()  # ours only
    key: bytes = b""  # by which the store that it stands in numbers secrets (SEC-5); of files, the home's own


OneSession = TypeVar("OneSession", ReadSession, Recording)


def read_sessions(
    reference: str, config: Config, *, session: str | None = None, kept: KeptIn = HERE
) -> list[ReadSession]:
    """The sessions that a reference means. Raises `SessionNotFound`, or what reading the file raises."""
    if is_log(reference):
        found = [_foreign(one, reference, config) for one in recordings_in(reference)]
    else:
        found = [in_loop(_read_own, reference, config, kept)]
    return found if session is None else [chosen(found, reference, session)]


def read_session(reference: str, config: Config, *, session: str | None = None, kept: KeptIn = HERE) -> ReadSession:
    """The one session that a reference means. Raises as `read_sessions` and `chosen` do."""
    return chosen(read_sessions(reference, config, kept=kept), reference, session)


def recordings_in(reference: str) -> tuple[Recording, ...]:
    """The sessions in a log of another agent. Raises what reading it raises."""
    from perdure.logs.detect import read_recordings

    path = Path(reference)
    return read_recordings(path.read_bytes(), path.name)


def chosen(found: Sequence[OneSession], reference: str, session: str | None) -> OneSession:
    """The one of a file's sessions that `--session` names, or that there is.

    Raises:
        SessionNotFound: There is none, or none of this name.
        BadSetting: There are several, and none was named.
    """
    named = [one for one in found if session in (None, one.session)]
    if not named and session is None:
        raise SessionNotFound(f"{reference}: there is no session in it")
    if not named:
        raise SessionNotFound(f"{reference}: no session {session!r} in it; `perdure inspect` lists them")
    if len(named) > 1:
        names = ", ".join(one.session for one in named[:3]) + (", …" if len(named) > 3 else "")
        raise BadSetting(f"{reference}: holds {plural(len(named), 'session')} ({names}): choose one with --session")
    return named[0]


def is_log(reference: str) -> bool:
    """Whether a reference is a file that another agent wrote, and not a session of ours."""
    from perdure.logs.detect import HEAD_BYTES, detect

    path = Path(reference)
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return detect(file.read(HEAD_BYTES), path.name) != "perdure"


def named_logs(files: Sequence[Path], *, has_sessions: bool = False) -> FoundLogs:
    """The logs that a person named, or that stand in folders they named. One that can't be read is among them.

    With `has_sessions`, what is no file may name a session of ours, as in other commands.

    Raises:
        SessionNotFound: Nothing of it is there.
    """
    from perdure.adapters.logs import find_logs

    if has_sessions:
        files = [_journal_or_log(file, is_alone=len(files) == 1) for file in files]
    names = ", ".join(map(str, files))
    if not any(os.path.lexists(file) for file in files):
        raise SessionNotFound(f"{names}: no such file or folder")
    found = find_logs(files)
    if not found.files and not found.refused:
        raise SessionNotFound(f"{names}: there are no logs in it (*.jsonl, *.json, *.traj)")
    return found


def _journal_or_log(named: Path, *, is_alone: bool) -> Path:
    """Return the journal of a session of ours, or the name of a file as it was given."""
    from perdure.adapters.journal import JOURNAL

    if len(named.parts) > 1 or os.path.lexists(named):
        return named
    try:
        return located(str(named)) / JOURNAL
    except SessionNotFound:
        if is_alone:
            raise
        return named  # one of several that isn't there is said with the others


def client_logs() -> FoundLogs:
    """The logs that clients keep on this machine; says which, and where.

    Raises:
        SessionNotFound: No client keeps any here.
    """
    from perdure.adapters.logs import find_logs, places_of_clients
    from perdure.adapters.machine.clients import claude_folder, codex_folder

    places = places_of_clients(os.environ)
    found = [(client, folder, find_logs([folder])) for client, folder in places]
    for client, folder, logs in found:
        note(f"{client}: {plural(len(logs.files), 'log')}, {size(logs.bytes)} in {short_path(str(folder))}")
    if not any(logs.files for _, _, logs in found):
        claude, codex = claude_folder(os.environ) / "projects", codex_folder(os.environ) / "sessions"
        raise SessionNotFound(
            f"no logs of Claude Code ({short_path(str(claude))}) or Codex ({short_path(str(codex))}) here: "
            "name a file or a folder"
        )
    return find_logs([folder for _, folder in places])


def _foreign(recording: Recording, name: str, config: Config) -> ReadSession:
    from perdure.compaction.logged import view_as_logged
    from perdure.lab.replay.drive import ReplayOptions, window_of

    window = window_of(recording, ReplayOptions(settings=config.settings, models=config.models))
    model = model_spec(recording.model, config.models)
    limits = thresholds(config.settings, model, window.tokens, window.source)
    said, boundaries = 0, []
    for step in recording.steps:
        said += isinstance(step, RecordedMessage) and not step.logged_only
        if isinstance(step, LoggedCompaction):
            boundaries.append(BoundarySeen(said, step.message_id, step.trigger, step.pre_tokens, step.post_tokens))
    return ReadSession(
        name=name,
        format=recording.format,
        session=recording.session,
        messages=recording.messages,
        view=view_as_logged(recording),
        facts=Facts(settings=config.settings, limits=limits, model=model),
        boundaries=tuple(boundaries),
        microcompactions=sum(isinstance(step, LoggedMicrocompaction) for step in recording.steps),
        problems=recording.problems,
        title=recording.title,
        cwd=recording.cwd,
        branch=recording.branch,
    )


async def _read_own(reference: str, config: Config, kept: KeptIn) -> ReadSession:
    from perdure.context.view import project
    from perdure.logs.reading import Problems, mended_record
    from perdure.transcript.records import Cleared

    place = kept if kept.store else replace(kept, store=str(config.home))
    async with place.session(reference) as named:
        stored = await named.opened(read_only=True)
        try:
            loaded = await stored.journal.load(whole=True)
        finally:
            await stored.journal.close()
        key = await named.home.secret_key() if kept.is_database else b""
    problems = Problems()
    records = [mended_record(placed.record, placed.seq + 1, problems) for placed in loaded.records]
    view = project(records)
    messages, compactions, boundaries = [], [], []
    for record in records:
        if isinstance(record, Message):
            messages.append(record)
        elif isinstance(record, Compacted):
            compactions.append(record)
            boundaries.append(
                BoundarySeen(len(messages), record.id, record.trigger, record.tokens_before, record.tokens_after)
            )
    title = view.state.title
    return ReadSession(
        name=reference,
        format="perdure",
        session=loaded.header.session,
        messages=tuple(messages),
        view=view,
        facts=facts_at(view, config.settings, config.models),
        boundaries=tuple(boundaries),
        microcompactions=sum(isinstance(record, Cleared) for record in records),
        problems=(*(Problem(repair.line, repair.what) for repair in loaded.repairs), *problems),
        title=title.title,
        cwd=loaded.header.project,
        branch=title.branch,
        compactions=tuple(compactions),
        records=tuple(records),
        key=key,
    )
