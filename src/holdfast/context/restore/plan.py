"""The plan that is in progress: its file, and what it says (RST-2)."""

from __future__ import annotations

import re

import msgspec

from holdfast import prompts
from holdfast.context.quoting import name as named
from holdfast.context.quoting import quoted, unquoted
from holdfast.context.restore.deeds import deeds_of
from holdfast.context.restore.happened import Happened, Used, Words
from holdfast.context.restore.play import NAME_CHARS, Place
from holdfast.context.restore.registry import Entry, Restored, Restorer, Room, Scene, Tracker
from holdfast.context.restore.texts import cut_to
from holdfast.context.restore.todos import Todos
from holdfast.settings import Settings

KIND = "plan"
_ASKS = frozenset({"exitplanmode", "exitspecmode", "planexit", "submitplan", "planmoderespond"})
_SAVED = re.compile(r"(?:plan has been saved to|plan file(?: is)?(?: at)?):? +(/\S+|[A-Za-z]:\\\S+)", re.IGNORECASE)
_PLAN_FILE = re.compile(r"[/\\]\.?(?:claude|cursor|codex|opencode)[/\\]plans?[/\\][^/\\]+\.md$", re.IGNORECASE)
_TOLD = re.compile(r"^(?:<system-reminder>\n)?The plan in (.+?):\n")


class Plan(msgspec.Struct):
    """A plan: `place` is the block that holds its text (a call's argument, or words), `path` its file."""

    path: str | None = None
    place: Place | None = None
    call: str | None = None  # the tool call whose argument is the plan
    state: str = ""  # proposed, approved; empty when there is none


def track(state: Plan, happened: Happened) -> Plan:
    """Take in a plan that was proposed, approved, or written to its file."""
    if isinstance(happened, Words):
        told = _TOLD.match(happened.text) if happened.origin != "user" else None
        if told is not None and len(told[1]) <= NAME_CHARS:
            return Plan(told[1], Place(happened.message, happened.block), state=state.state or "proposed")
        return state
    if happened.kind in _ASKS:
        return _asked(state, happened)
    for deed in deeds_of(happened):
        if _PLAN_FILE.search(deed.path) and deed.how in ("written", "edited"):
            state = Plan(deed.path, state=state.state or "proposed")
    return state


def _asked(state: Plan, used: Used) -> Plan:
    saved = _SAVED.search(used.text)
    path = (saved[1] if saved else None) or used.word("planFilePath", "plan_path", "path") or state.path
    text = used.word("plan", "response")
    approved = not used.has_failed
    return Plan(
        path if path and len(path) <= NAME_CHARS else None,
        None,
        used.use.id if text and len(used.use.id) <= NAME_CHARS else None,
        "approved" if approved else "proposed",
    )


def wants(scene: Scene) -> tuple[str, ...]:
    state = scene.states.get(KIND)
    return (state.path,) if isinstance(state, Plan) and state.path else ()


def restore(scene: Scene, room: Room) -> Restored | None:
    """The plan as its file says now; else as it was last said."""
    state = scene.states.get(KIND)
    if not isinstance(state, Plan) or not state.state or _is_done(scene):
        return None
    name = state.path or "plan"
    if _is_kept(scene, state):
        return None
    text = _text(scene, state)
    if text is None:
        return Restored((), (f"{name} (its content is not in the log any more)",)) if state.path else None
    head = f"The plan{f' in {named(state.path)}' if state.path else ''} ({state.state}):\n"
    whole = quoted(text)
    body = cut_to(whole, room.next - room.cost(head), room.cost)
    if body is None or not room.admits(head + body):
        return Restored((), (name,))
    return Restored((Entry("plan", head + body),), () if body == whole else (f"the end of {name}",))


def _is_done(scene: Scene) -> bool:
    """Every todo is done, so the plan isn't in progress any more."""
    todos = scene.states.get("todos")
    return isinstance(todos, Todos) and bool(todos.items) and all(t.state == "completed" for t in todos.items)


def _is_kept(scene: Scene, state: Plan) -> bool:
    """Whether the kept messages say the plan already."""
    if state.place is not None:
        return scene.is_kept(state.place.message)
    used = _call(scene, state)
    return used is not None and scene.is_kept(used.message)


def _call(scene: Scene, state: Plan) -> Used | None:
    if state.call is None:
        return None
    return next((u for u in scene.happened if isinstance(u, Used) and u.use.id == state.call), None)


def _text(scene: Scene, state: Plan) -> str | None:
    now = scene.files.get(state.path) if scene.files is not None and state.path else None
    if now is not None and now.text is not None:
        return now.text
    used = _call(scene, state)
    if used is not None:
        return used.word("plan", "response")
    written = _written(scene, state.path)
    if written is not None:
        return written
    if (said := scene.text_at(state.place)) is not None:
        return _TOLD.sub("", said).removesuffix("\n</system-reminder>")
    before = scene.text_at(scene.restored.get(KIND, {}).get("plan"))
    return unquoted(before.partition("\n")[2]) if before is not None else None


def _written(scene: Scene, path: str | None) -> str | None:
    """The text of a plan file as the calls in the view leave it."""
    known = None
    for used in scene.happened:
        if isinstance(used, Used):
            for deed in deeds_of(used):
                if deed.path == path:
                    known = deed.on(known)
    return "\n".join(line for run in known.runs for line in run.lines) if known is not None else None


def budget(settings: Settings) -> tuple[int, int]:
    return settings.restore_plan_tokens, settings.restore_plan_tokens


TRACKER = Tracker(KIND, Plan, track)
RESTORER = Restorer(KIND, restore, budget, lead=prompts.source("restored_plan"), rank=20, wants=wants)
