"""The step "restore" of a compaction: read what is wanted, and bring it back (CMP-8, RST-1 to RST-9).

Whatever fails here is an event and is left out; a compaction never fails for it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from holdfast.context.acceptance import refusal
from holdfast.context.compaction import Made, Plan, made
from holdfast.context.policy import Facts
from holdfast.context.restore.back import counted, put_back
from holdfast.context.restore.play import Back, InPlay
from holdfast.context.restore.registry import FileNow, Registry, Scene
from holdfast.context.restore.scene import Looked, look
from holdfast.context.view import View
from holdfast.engine.aside import aside_of
from holdfast.engine.session import LiveSession
from holdfast.events import FileReadBack, Restored, RestoreFailed
from holdfast.transcript.edits import Compacted

WHOLE_SHARES = (1.0, 0.5, 0.25)  # of the room, tried in turn: a boundary that is still refused comes back with less


async def with_restored(session: LiveSession, plan: Plan, facts: Facts, without: Made) -> Compacted:
    """The boundary with what comes back behind its summary. `without` is the one that may be committed as it is."""
    bare = without.boundary
    if not facts.settings.restore:
        return bare
    looked = await _looked(session, plan, facts)
    restored = partial(_restored, plan, facts, bare, looked, session.services.registry)
    boundary, failed, brought = await aside_of(session.view, restored)
    _tell(session, {**looked.failed, **failed}, brought)
    return boundary


def _restored(
    plan: Plan, facts: Facts, bare: Compacted, looked: Looked, registry: Registry, view: View
) -> tuple[Compacted, dict[str, str], Compacted]:
    """The boundary, what couldn't be brought back, with the reasons, and the boundary that says what was."""
    room, spare = room_tokens(view, bare, facts)
    for share in WHOLE_SHARES:
        tokens, more = int(room * share), int(spare * share)
        back, failed = put_back(looked, registry, tokens, identity=bare.id, spare_tokens=more)
        whole = made(view, plan, facts, identity=bare.id, trigger=bare.trigger, back=back)
        if refusal(view, whole, facts, plan.promised) is None:
            return whole.boundary, failed, whole.boundary
    only_known = Back(in_play=InPlay(states=looked.saved))
    known = made(view, plan, facts, identity=bare.id, trigger=bare.trigger, back=only_known)
    return known.boundary, {"all": "no room for what was to be restored"}, bare


def room_tokens(view: View, bare: Compacted, facts: Facts) -> tuple[int, int]:
    """Tokens that may come back: half of the trigger may be filled afterwards (PRS-2), and it must stay a gain (CMP-9).

    The second number is what there is beyond the half, where the kept messages fill it alone: a todo list is short,
    and nowhere else.
    """
    trigger = facts.limits.trigger
    half = max(0, trigger // 2 - bare.tokens_after)
    spare = max(0, trigger // 50 - half)
    least = facts.settings.min_reduction_percent if bare.trigger != "manual" else 0
    gain = facts.size(view) * (100 - least) // 100 - bare.tokens_after - 1
    most = max(0, min(gain, trigger - 1 - bare.tokens_after))
    return min(half, most), min(spare, max(0, most - half))


async def _looked(session: LiveSession, plan: Plan, facts: Facts) -> Looked:
    """The trackers' view of things, with the files as they are now and what the host gives."""
    looked = await aside_of(session.view, lambda view: look(view, plan.keep_from, facts, session.services.registry))
    given: dict[str, str] = {}
    for name, source in session.services.sources.items():
        try:
            text = await source()
        except Exception as e:  # a named boundary: a host's source must not fail the compaction
            looked.failed[name] = f"{type(e).__name__}: {e}"
            continue
        if text:
            given[name] = text
    scene = replace(looked.scene, given=given)
    return replace(looked, scene=replace(scene, files=await _files(session, scene, looked.failed)))


async def _files(session: LiveSession, scene: Scene, failed: dict[str, str]) -> dict[str, FileNow] | None:
    """The files that restorers want, as they are now; None where there is no disk to ask."""
    files = session.world.files
    if files is None:
        return None
    wanted: dict[str, None] = {}
    for restorer in session.services.registry.restorers:
        try:
            wanted.update(dict.fromkeys(restorer.wants(scene)))
        except Exception as e:  # a named boundary: a restorer of the user's must not fail the compaction
            failed[restorer.kind] = f"{type(e).__name__}: {e}"
    try:
        found = await files.read(tuple(wanted), limit_bytes=scene.facts.settings.restore_file_max_bytes)
    except Exception as e:  # a named boundary: what was read before is still known from the log
        failed["disk"] = f"{type(e).__name__}: {e}"
        return None
    for file in found:
        session.world.sink.emit(FileReadBack(file.text is not None, file.why))
    return {file.path: file for file in found}


def _tell(session: LiveSession, failed: dict[str, str], boundary: Compacted) -> None:
    emit = session.world.sink.emit
    for name, reason in failed.items():
        emit(RestoreFailed(name, reason.split(":")[0]))
    for kind, (entries, tokens, left_out) in counted(boundary.restored).items():
        emit(Restored(kind, entries, tokens, left_out))
