"""Tools that were deferred and found, agent listings, instructions of tool servers (RST-6)."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from holdfast import prompts
from holdfast.context.quoting import inline, quoted, unquoted
from holdfast.context.restore.happened import Happened, Used, Words
from holdfast.context.restore.play import Place
from holdfast.context.restore.registry import Entry, Restored, Restorer, Room, Scene, Tracker
from holdfast.context.restore.texts import cut_to
from holdfast.settings import Settings

KIND = "tools"
NAMES_KEPT = 150
NAME_CHARS = 120
PLACES_KEPT = 4  # announcements of one sort: the first and the last deltas
_SEARCHES: Final = frozenset({"toolsearch", "searchtools", "findtools", "loadtools"})
_SORTS: Final = {
    "Tools that can be loaded": "deferred tools",
    "Kinds of agents that can be called": "agents",
    "Instructions of MCP servers": "tool servers",
    "Skills that can be used": "skills",
}
_TOLD = re.compile(r"\A<system-reminder>\n(" + "|".join(_SORTS) + r"):\n")


class Tools(msgspec.Struct):
    """Tools that a search found and loaded, and where listings were announced, by sort."""

    loaded: list[str] = []
    told: dict[str, list[Place]] = {}


def track(state: Tools, happened: Happened) -> Tools:
    """Take in a tool search, or an announcement."""
    if isinstance(happened, Words):
        found = _TOLD.match(happened.text) if happened.origin != "model" else None
        if found is not None:
            places = state.told.setdefault(_SORTS[found[1]], [])
            places.append(Place(happened.message, happened.block))
            del places[1 : max(1, len(places) - PLACES_KEPT + 1)]
    elif happened.kind in _SEARCHES and not happened.has_failed:
        for name in _found(happened):
            if name in state.loaded:
                state.loaded.remove(name)
            state.loaded.append(name[:NAME_CHARS])
        del state.loaded[:-NAMES_KEPT]
    return state


def _found(used: Used) -> list[str]:
    """The names in a result: `tool_reference` blocks, or definitions as JSON."""
    names: list[str] = []
    for part in used.result.parts():
        if part.kind == "tool_reference":
            value = msgspec.json.decode(part.raw)
            names.append(str(value.get("tool_name") or value.get("name") or ""))
    if not names and used.text.lstrip().startswith(("[", "{")):
        try:
            names = _named(msgspec.json.decode(used.text))
        except msgspec.MsgspecError:
            return []
    return [name for name in names if name]


def _named(value: Any, prefix: str = "") -> list[str]:
    if isinstance(value, list):
        return [name for one in value for name in _named(one, prefix)]
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return []
    if isinstance(value.get("tools"), list):
        return _named(value["tools"], f"{value['name']}.")
    return [prefix + value["name"]]


def restore(scene: Scene, room: Room) -> Restored | None:
    """What was loaded, with the definitions as far as the front of the requests hasn't them; then the listings."""
    state = scene.states.get(KIND)
    if not isinstance(state, Tools):
        return None
    entries: list[Entry] = []
    left_out: list[str] = []
    if state.loaded:
        text = inline("Tools found and loaded by a search: " + ", ".join(state.loaded))
        cut = cut_to(text, room.next, room.cost)
        if cut is not None and room.admits(cut):
            entries.append(Entry("loaded", cut))
        else:
            left_out.append(f"{len(state.loaded)} loaded tools")
    for sort, places in state.told.items():
        text_now = _text(scene, sort, places)
        if text_now == "":
            continue  # the kept messages still say it
        if text_now is None:
            left_out.append(f"{sort} (not in the log any more)")
            continue
        head = f"### {sort}\n"
        body = cut_to(quoted(text_now), room.next - room.cost(head) - 1, room.cost)
        if body is not None and room.admits(head + body):
            entries.append(Entry(sort, head + body))
        else:
            left_out.append(sort)
    return Restored(tuple(entries), tuple(left_out)) if entries or left_out else None


def _text(scene: Scene, sort: str, places: list[Place]) -> str | None:
    """What was announced, oldest first; empty when all of it is kept, None when none of it is known any more."""
    gone = [place for place in places if not scene.is_kept(place.message)]
    if not gone:
        return ""
    before = scene.text_at(scene.restored.get(KIND, {}).get(sort))
    texts = [unquoted(before.partition("\n")[2])] if before is not None else []
    texts += [_body(said) for place in gone if (said := scene.text_at(place)) is not None]
    return "\n".join(texts) or None


def _body(said: str) -> str:
    return _TOLD.sub("", said).removesuffix("\n</system-reminder>")


def budget(settings: Settings) -> tuple[int, int]:
    return settings.restore_tools_tokens, settings.restore_tools_tokens


TRACKER = Tracker(KIND, Tools, track)
RESTORER = Restorer(KIND, restore, budget, lead=prompts.source("restored_tools"), rank=40)
