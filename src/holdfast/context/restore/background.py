"""Background agents and tasks: id, state, where the result is (RST-5)."""

from __future__ import annotations

import msgspec

from holdfast import prompts
from holdfast.context.jobs import has_ended, heard
from holdfast.context.quoting import inline
from holdfast.context.restore.happened import Happened
from holdfast.context.restore.registry import Entry, Restored, Restorer, Room, Scene, Tracker
from holdfast.settings import Settings

KIND = "background"
TASKS_KEPT = 40
ENDED_KEPT = 6  # that ended without their result having been fetched


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
    for one in heard(happened):
        before = state.jobs.pop(one.id, None) if one.is_new else state.jobs.get(one.id)
        if before is None and not one.is_new:
            continue
        told = "" if one.has_ended else one.what  # a start says it best, then what was known
        what = told or (before.what if before else "") or one.what or "task"
        where = one.where or (before.where if before else None)
        state.jobs[one.id] = Job(what, one.state, where, one.is_fetched)
    for identity in [i for i, job in state.jobs.items() if job.is_fetched]:
        del state.jobs[identity]
    ended = [i for i, job in state.jobs.items() if has_ended(job.state)]
    for identity in [*ended[:-ENDED_KEPT], *list(state.jobs)[: max(0, len(state.jobs) - TASKS_KEPT)]]:
        state.jobs.pop(identity, None)
    return state


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
    jobs = sorted(both.items(), key=lambda pair: has_ended(pair[1].state))
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
