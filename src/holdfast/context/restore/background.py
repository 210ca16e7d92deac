"""Background agents and tasks: id, state, where the result is (RST-5)."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from holdfast import prompts
from holdfast.context.quoting import inline
from holdfast.context.restore.deeds import SHELLS, command_of
from holdfast.context.restore.happened import Happened, Used, Words
from holdfast.context.restore.play import NAME_CHARS
from holdfast.context.restore.registry import Entry, Restored, Restorer, Room, Scene, Tracker
from holdfast.settings import Settings

KIND = "background"
TASKS_KEPT = 40
ENDED_KEPT = 6  # that ended without their result having been fetched
_AGENTS: Final = frozenset({"task", "agent", "spawnagent", "delegate", "dispatchagent"})
_ASKS: Final = frozenset({"bashoutput", "taskoutput", "agentoutput", "writestdin", "getterminaloutput", "waitagent"})
_STOPS: Final = frozenset({"killshell", "killbash", "taskstop", "killterminal", "closeagent"})
_IDS: Final = ("bash_id", "shell_id", "task_id", "agent_id", "agentId", "session_id", "id", "terminal_id")
_RUNNING = re.compile(
    r"(?:running in (?:the )?background with ID: |process running with session ID )(\S+)", re.IGNORECASE
)
_AGENT = re.compile(r"^agentId: (\S+)", re.MULTILINE)
_WHERE = re.compile(r"(?:output_file: |Output is being written to: |<output-file>)(\S+?)(?:</output-file>|\.?\s|\Z)")
_STATUS = re.compile(r"<status>(\w+)</status>")
_NOTICE = re.compile(r"<task-id>([^<\n]{1,200})</task-id>")
_SUMMARY = re.compile(r"<summary>([^<\n]{1,300})")
_EXITED = re.compile(r"^Process exited with code (-?\d+)$", re.MULTILINE)


def _running(text: str) -> re.Match[str] | None:
    return _RUNNING.search(text) if "unning " in text else None


class Job(msgspec.Struct, frozen=True, omit_defaults=True):
    """One background job, as last heard. `is_fetched`: it ended and its result was seen."""

    what: str
    state: str = "running"
    where: str | None = None
    is_fetched: bool = False


class Jobs(msgspec.Struct):
    """Background jobs by id, the most recent last."""

    jobs: dict[str, Job] = {}


def track(state: Jobs, happened: Happened) -> Jobs:
    """Take in a start, a look, an end, or a notice."""
    if isinstance(happened, Words):
        if happened.text.lstrip().startswith("<task-notification>") and happened.origin != "model":
            _notice(state, happened.text)
    elif happened.kind in _STOPS:
        _heard(state, happened, "stopped")
    elif happened.kind in _ASKS:
        _asked(state, happened)
    elif not happened.has_failed:
        _started(state, happened)
    for identity in [i for i, job in state.jobs.items() if job.is_fetched]:
        del state.jobs[identity]
    ended = [i for i, job in state.jobs.items() if job.state != "running"]
    for identity in [*ended[:-ENDED_KEPT], *list(state.jobs)[: max(0, len(state.jobs) - TASKS_KEPT)]]:
        state.jobs.pop(identity, None)
    return state


def _started(state: Jobs, used: Used) -> None:
    found = None
    if used.kind in SHELLS:
        found = _running(used.text[:4_000])
        what = f"command: {' '.join((command_of(used) or '').split())[:200]}"
    elif used.kind in _AGENTS and (used.arguments.get("run_in_background") or "launched" in used.text[:200]):
        found = _AGENT.search(used.text) or _running(used.text[:4_000])
        what = f"agent: {(used.word('description', 'name', 'task') or used.word('prompt') or '')[:200]}"
    if found is None or len(found[1]) > 200:
        return
    where = _WHERE.search(used.text)
    state.jobs[found[1].rstrip(".,)")] = Job(what, "running", where[1][:NAME_CHARS] if where else None)


def _identity(used: Used) -> str | None:
    value = next((v for key in _IDS if (v := used.arguments.get(key)) is not None), None)
    return str(value) if isinstance(value, str | int) else None


def _heard(state: Jobs, used: Used, word: str, *, is_fetched: bool = True) -> None:
    identity = _identity(used)
    job = state.jobs.get(identity) if identity else None
    if identity and job is not None:
        state.jobs[identity] = Job(job.what, word[:30], job.where, is_fetched)


def _asked(state: Jobs, used: Used) -> None:
    """A look at a job: its result was seen when it had ended."""
    if used.has_failed:
        return
    status = _STATUS.search(used.text)
    word = status[1] if status else "running"
    exited = _EXITED.search(used.text[:2_000])
    if exited:
        word = "completed" if exited[1] == "0" else f"failed (exit {exited[1]})"
    elif status is None and used.kind in ("writestdin",) and not _running(used.text[:2_000]):
        word = "completed"
    _heard(state, used, word, is_fetched=word not in ("running", "pending"))


def _notice(state: Jobs, text: str) -> None:
    """The agent's own notice of an end; the result may stand in it."""
    found, status, where = _NOTICE.search(text), _STATUS.search(text), _WHERE.search(text)
    if found is None:
        return
    before, summary = state.jobs.pop(found[1], None), _SUMMARY.search(text)
    what = before.what if before else (summary[1][:200] if summary else "task")
    place = where[1][:NAME_CHARS] if where else (before.where if before else None)
    state.jobs[found[1]] = Job(what, status[1] if status else "ended", place, is_fetched="<result>" in text)


def restore(scene: Scene, room: Room) -> Restored | None:
    """One line for each, the ones that run first. What our own registry says counts more than words (SES-3)."""
    state = scene.states.get(KIND)
    told = state.jobs if isinstance(state, Jobs) else {}
    known = scene.view.state.in_flight
    ours = {
        i: Job(f"{one.kind}: {one.what}", one.state, one.where or None) for i, one in known.items() if not one.is_told
    }
    both = {**{i: job for i, job in told.items() if i not in known}, **ours}
    if not both:
        return None
    jobs = sorted(both.items(), key=lambda pair: pair[1].state != "running")
    lines: list[str] = []
    left_out: list[str] = []
    for identity, job in jobs:
        where = f"; its result: {job.where}" if job.where else ""
        line = inline(f"- {identity} ({job.state}), {job.what}{where}")
        if room.admits(line + "\n"):
            lines.append(line)
        else:
            left_out.append(identity)
    entries = (Entry("tasks", "\n".join(lines)),) if lines else ()
    return Restored(entries, tuple(left_out))


def budget(settings: Settings) -> tuple[int, int]:
    return settings.restore_background_tokens, settings.restore_background_tokens


TRACKER = Tracker(KIND, Jobs, track)
RESTORER = Restorer(KIND, restore, budget, lead=prompts.source("restored_background"), rank=30)
