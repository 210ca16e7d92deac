"""Invoked skills: their instructions, newest first (RST-4). What they were asked to do once is not repeated."""

from __future__ import annotations

import posixpath
import re

import msgspec

from holdfast import prompts
from holdfast.context.quoting import inline, quoted, unquoted
from holdfast.context.quoting import name as named
from holdfast.context.restore.deeds import deeds_of
from holdfast.context.restore.happened import Happened, Used, Words
from holdfast.context.restore.play import NAME_CHARS, Place
from holdfast.context.restore.registry import Entry, Restored, Restorer, Room, Scene, Tracker
from holdfast.context.restore.texts import cut_to
from holdfast.settings import Settings

KIND = "skills"
SKILLS_KEPT = 30
_TOOLS = frozenset({"skill", "useskill", "loadskill", "invokeskill", "activateskill"})
_BASE = re.compile(r"\ABase directory for this skill: (.+)\n")
_FILE = re.compile(r"(?:^|[/\\])([^/\\]+)[/\\]SKILL\.md$")
_LISTED = "<system-reminder>\nSkills in use in this session:\n"
_LISTED_NAME = re.compile(r"^### (.+)$", re.MULTILINE)
_ARGUMENTS = "\nARGUMENTS: "


class Skill(msgspec.Struct, frozen=True, omit_defaults=True):
    """An invoked skill: the file it is in, and the block that said what it says."""

    path: str | None = None
    place: Place | None = None


class Skills(msgspec.Struct):
    """Skills by name, the most recent last; `waiting` was called and hasn't said its instructions yet."""

    invoked: dict[str, Skill] = {}
    waiting: str | None = None


def track(state: Skills, happened: Happened) -> Skills:
    """Take in a call of a skill, the instructions behind it, or a read of a skill's file."""
    if isinstance(happened, Words):
        _words(state, happened)
    elif happened.kind in _TOOLS and not happened.has_failed:
        name = happened.word("skill", "command", "name", "skill_name")
        if name:
            state.waiting = name[:NAME_CHARS]
            is_told = len(happened.text) > 400  # some agents answer with the instructions themselves
            place = Place(happened.message, happened.block) if is_told else None
            _put(state, state.waiting, Skill(None, place))
    elif isinstance(happened, Used):
        for deed in deeds_of(happened):
            found = _FILE.search(deed.path)
            if found and deed.how == "read":
                _put(state, found[1], Skill(deed.path, Place(happened.message, happened.block)))
    return state


def _words(state: Skills, words: Words) -> None:
    base = _BASE.match(words.text) if words.origin != "model" else None
    if base is not None and len(base[1]) <= NAME_CHARS:
        folder = base[1].strip().rstrip("/\\")
        name = state.waiting or posixpath.basename(folder.replace("\\", "/"))
        separator = "\\" if "\\" in folder else "/"
        _put(state, name, Skill(f"{folder}{separator}SKILL.md", Place(words.message, words.block)))
        state.waiting = None
    elif words.text.startswith(_LISTED):
        for found in _LISTED_NAME.finditer(words.text):
            if len(found[1]) <= NAME_CHARS and found[1] not in state.invoked and _starts_skill(words.text, found):
                _put(state, found[1], Skill(None, Place(words.message, words.block)))


def _starts_skill(text: str, found: re.Match[str]) -> bool:
    """Only the first heading is certainly a skill's name; those of a skill's own text look the same."""
    return found.start() == len(_LISTED)


def _put(state: Skills, name: str, skill: Skill) -> None:
    before = state.invoked.pop(name, None)
    if before is not None:
        skill = Skill(skill.path or before.path, skill.place or before.place)
    state.invoked[name] = skill
    while len(state.invoked) > SKILLS_KEPT:
        del state.invoked[next(iter(state.invoked))]


def wants(scene: Scene) -> tuple[str, ...]:
    return tuple(skill.path for _, skill in _candidates(scene)[:8] if skill.path and skill.path.startswith("/"))


def _candidates(scene: Scene) -> list[tuple[str, Skill]]:
    """Skills whose instructions left the view, newest first."""
    state = scene.states.get(KIND)
    if not isinstance(state, Skills):
        return []
    found = reversed(state.invoked.items())
    return [(name, skill) for name, skill in found if skill.place is None or not scene.is_kept(skill.place.message)]


def restore(scene: Scene, room: Room) -> Restored | None:
    """As many as there is room for, newest first, each cut to its share."""
    entries: list[Entry] = []
    left_out: list[str] = []
    for name, skill in _candidates(scene):
        text = _text(scene, name, skill)
        if text is None:
            left_out.append(f"{name} (its text is not in the log any more)")
            continue
        head = f"### Skill {inline(name)}" + (f" ({named(skill.path)})" if skill.path else "") + "\n"
        body = cut_to(quoted(text), room.next - room.cost(head) - 1, room.cost)
        if body is None or not room.admits(head + body):
            left_out.append(name)
        else:
            entries.append(Entry(name, head + body))
    return Restored(tuple(entries), tuple(left_out)) if entries or left_out else None


def _text(scene: Scene, name: str, skill: Skill) -> str | None:
    now = scene.files.get(skill.path) if scene.files is not None and skill.path else None
    if now is not None and now.text is not None:
        return now.text
    said = scene.text_at(skill.place)
    if said is None and skill.place is not None:
        said = next((u.text for u in scene.happened if isinstance(u, Used) and u.message == skill.place.message), None)
    if said is not None:
        return said.removeprefix(_LISTED).split(_ARGUMENTS)[0].rstrip("\n")
    before = scene.text_at(scene.restored.get(KIND, {}).get(name))
    return unquoted(before.partition("\n")[2]) if before is not None else None


def budget(settings: Settings) -> tuple[int, int]:
    return settings.restore_skill_tokens, settings.restore_skills_tokens


TRACKER = Tracker(KIND, Skills, track)
RESTORER = Restorer(KIND, restore, budget, lead=prompts.source("restored_skills"), rank=70, wants=wants)
