"""What a command looks at: a session of ours by its name, or the sessions in a log of another agent."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.cli.arguments import located
from perdure.cli.output import plural
from perdure.context.models import model_spec
from perdure.context.policy import Facts, thresholds
from perdure.context.view import ContextView
from perdure.errors import BadSetting, SessionNotFound
from perdure.logs.recording import LoggedCompaction, LoggedMicrocompaction, Problem, RecordedMessage, Recording
from perdure.transcript.messages import Message
from perdure.transcript.records import Compacted, Record

if TYPE_CHECKING:
    from perdure.adapters.config import Config


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


def read_sessions(reference: str, config: Config, *, session: str | None = None) -> list[ReadSession]:
    """The sessions that a reference means. Raises `SessionNotFound`, or what reading the file raises."""
    path = Path(reference)
    if path.is_file() and not is_journal(path):
        from perdure.logs.detect import read_recordings

        found = [_foreign(one, reference, config) for one in read_recordings(path.read_bytes(), path.name)]
    else:
        found = [_own(reference, config)]
    if session is not None:
        found = [one for one in found if one.session == session]
        if not found:
            raise SessionNotFound(f"{reference}: no session {session!r} in it; `perdure inspect` lists them")
    return found


def read_session(reference: str, config: Config, *, session: str | None = None) -> ReadSession:
    """The one session that a reference means."""
    found = read_sessions(reference, config, session=session)
    if len(found) == 1:
        return found[0]
    if not found:
        raise SessionNotFound(f"{reference}: there is no session in it")
    names = ", ".join(one.session for one in found[:3])
    raise BadSetting(f"{reference}: holds {plural(len(found), 'session')} ({names}, …): choose one with --session")


def is_journal(path: Path) -> bool:
    from perdure.logs.detect import HEAD_BYTES, detect

    with path.open("rb") as file:
        return detect(file.read(HEAD_BYTES), path.name) == "perdure"


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


def _own(reference: str, config: Config) -> ReadSession:
    import anyio

    return anyio.run(_read_own, reference, config)


async def _read_own(reference: str, config: Config) -> ReadSession:
    from perdure.adapters.journal import SessionStore
    from perdure.context.view import project
    from perdure.logs.reading import Problems, mended_record
    from perdure.transcript.records import Cleared

    files = await SessionStore(config.home).open(located(reference, config.home), read_only=True)
    try:
        loaded = await files.journal.load(whole=True)
    finally:
        await files.journal.close()
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
        facts=facts_of(view, config),
        boundaries=tuple(boundaries),
        microcompactions=sum(isinstance(record, Cleared) for record in records),
        problems=(*(Problem(repair.line, repair.what) for repair in loaded.repairs), *problems),
        title=title.title,
        cwd=loaded.header.project,
        branch=title.branch,
        compactions=tuple(compactions),
        records=tuple(records),
    )


def facts_of(view: ContextView, config: Config) -> Facts:
    """As `LiveSession.limits` has it: the user's window, else what a provider stated, else the model's (PRS-8)."""
    named = view.front.model if view.front else None
    model = model_spec(named or view.state.calibration.model, config.models)
    stated = view.state.calibration.window_tokens
    settings = config.settings
    if settings.window_tokens:
        limits = thresholds(settings, model, settings.window_tokens, "setting")
    elif stated:
        limits = thresholds(settings, model, stated, "provider")
    else:
        limits = thresholds(settings, model, model.window_tokens, "model" if model.prefix else "default")
    return Facts(settings=settings, limits=limits, model=model)
