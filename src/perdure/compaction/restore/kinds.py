"""What comes back besides files: instructions, plan, skills, todos, tools, background tasks (RST-2 to RST-9)."""

from __future__ import annotations

import posixpath
import re
from typing import Any, Final

import msgspec

from perdure import prompts
from perdure.compaction.restore import files
from perdure.compaction.restore.registry import (
    BlockPosition,
    Restoration,
    RestoredEntry,
    Restorer,
    RestorerRegistry,
    RestoreScene,
    TokenRoom,
    Tracker,
)
from perdure.context.instructions import ShownInstructions, block_text, head_line_path, unpack_instructions
from perdure.context.reminders import inline, neutralised, quoted, unquoted
from perdure.context.reminders import name as named
from perdure.memory.instructions import fit_files
from perdure.settings import Settings
from perdure.text.cleaning import cut_to
from perdure.transcript.tool_calls.actions import NAME_CHARS, AnsweredCall, Happened, MessageText
from perdure.transcript.tool_calls.background import background_updates, has_ended
from perdure.transcript.tool_calls.files import file_actions
from perdure.transcript.tool_calls.todos import todo_update

SESSION_START = "session_start"
MEMORY_INDEX = "memory_index"


def _given(name: str, scene: RestoreScene, room: TokenRoom) -> Restoration | None:
    text = scene.given.get(name)
    if not text:
        return None
    body = cut_to(neutralised(text), room.next, room.cost)
    if body is None or not room.admits(body):
        return Restoration((), (name.replace("_", " "),))
    left = () if body == neutralised(text) else (f"the end of the {name.replace('_', ' ')}",)
    return Restoration((RestoredEntry(name, body),), left)


def _start(scene: RestoreScene, room: TokenRoom) -> Restoration | None:
    return _given(SESSION_START, scene, room)


def _memory(scene: RestoreScene, room: TokenRoom) -> Restoration | None:
    return _given(MEMORY_INDEX, scene, room)


def _start_budget(settings: Settings) -> tuple[int, int]:
    return settings.restore_start_tokens, settings.restore_start_tokens


def _memory_budget(settings: Settings) -> tuple[int, int]:
    return settings.restore_memory_tokens, settings.restore_memory_tokens


START = Restorer(SESSION_START, _start, _start_budget, lead=prompts.source("restored_start"), rank=50)
MEMORY = Restorer(MEMORY_INDEX, _memory, _memory_budget, lead=prompts.source("restored_memory"), rank=60)


INSTRUCTIONS_KIND = "instructions"


def restore_instructions(scene: RestoreScene, room: TokenRoom) -> Restoration | None:
    """All files that load at the start of a session; where they don't fit, the nearest stay whole (INS-5)."""
    given = scene.given.get(INSTRUCTIONS_KIND)
    if not given:
        return None
    kept = ShownInstructions().follow(scene.view, scene.keep_from).files
    is_there = {(path, known.revision) for path, known in kept.items() if known.is_whole}
    files = [file for file in unpack_instructions(given) if (head_line_path(file.path), file.revision) not in is_there]
    entries: list[RestoredEntry] = []
    left_out: list[str] = []
    for fitted in fit_files(files, room.next, room.cost):
        path, text = fitted.file.path, block_text(fitted)
        if room.admits(text):
            entries.append(RestoredEntry(path, text))
        if fitted.is_cut:
            left_out.append(path if not fitted.text else f"the end of {path}")
    return Restoration(tuple(entries), tuple(left_out))


def instructions_budget(settings: Settings) -> tuple[int, int]:
    return settings.instructions_tokens, settings.instructions_tokens


INSTRUCTIONS_RESTORER = Restorer(
    INSTRUCTIONS_KIND, restore_instructions, instructions_budget, lead=prompts.source("restored_instructions"), rank=15
)


PLAN_KIND = "plan"
_SAVED = re.compile(r"(?:plan has been saved to|plan file(?: is)?(?: at)?):? +(/\S+|[A-Za-z]:\\\S+)", re.IGNORECASE)
_PLAN_FILE = re.compile(r"[/\\]\.?(?:claude|cursor|codex|opencode)[/\\]plans?[/\\][^/\\]+\.md$", re.IGNORECASE)
_TOLD = re.compile(r"^(?:<system-reminder>\n)?The plan in (.+?):\n")


class AgentPlan(msgspec.Struct):
    """A plan: `place` is the block that holds its text (a call's argument, or words), `path` its file."""

    path: str | None = None
    place: BlockPosition | None = None
    call: str | None = None  # the tool call whose argument is the plan
    state: str = ""  # proposed, approved; empty when there is none


def track_plan(state: AgentPlan, happened: Happened) -> AgentPlan:
    """Take in a plan that was proposed, approved, or written to its file."""
    if isinstance(happened, MessageText):
        told = _TOLD.match(happened.text) if happened.origin != "user" else None
        if told is not None and len(told[1]) <= NAME_CHARS:
            return AgentPlan(told[1], BlockPosition(happened.message, happened.block), state=state.state or "proposed")
        return state
    if happened.action.kind == "plan":
        return _plan_shown(state, happened)
    for deed in file_actions(happened):
        if _PLAN_FILE.search(deed.path) and deed.how in ("written", "edited"):
            state = AgentPlan(deed.path, state=state.state or "proposed")
    return state


def _plan_shown(state: AgentPlan, used: AnsweredCall) -> AgentPlan:
    saved = _SAVED.search(used.text)
    path = (saved[1] if saved else None) or used.word("planFilePath", "plan_path", "path") or state.path
    text = used.word("plan", "response")
    return AgentPlan(
        path if path and len(path) <= NAME_CHARS else None,
        None,
        used.use.id if text and len(used.use.id) <= NAME_CHARS else None,
        "approved" if used.is_approval else "proposed",
    )


def plan_wanted(scene: RestoreScene) -> tuple[str, ...]:
    state = scene.states.get(PLAN_KIND)
    return (state.path,) if isinstance(state, AgentPlan) and state.path else ()


def restore_plan(scene: RestoreScene, room: TokenRoom) -> Restoration | None:
    """The plan as its file says now; else as it was last said."""
    state = scene.states.get(PLAN_KIND)
    if not isinstance(state, AgentPlan) or not state.state or _is_done(scene):
        return None
    name = state.path or "plan"
    if _is_kept(scene, state):
        return None
    text = _text(scene, state)
    if text is None:
        return Restoration((), (f"{name} (its content is not in the log any more)",)) if state.path else None
    head = f"The plan{f' in {named(state.path)}' if state.path else ''} ({state.state}):\n"
    whole = quoted(text)
    body = cut_to(whole, room.next - room.cost(head), room.cost)
    if body is None or not room.admits(head + body):
        return Restoration((), (name,))
    return Restoration((RestoredEntry("plan", head + body),), () if body == whole else (f"the end of {name}",))


def _is_done(scene: RestoreScene) -> bool:
    """Every todo is done, so the plan isn't in progress any more."""
    todos = scene.states.get("todos")
    return isinstance(todos, RestoredTodos) and bool(todos.items) and all(t.state == "completed" for t in todos.items)


def _is_kept(scene: RestoreScene, state: AgentPlan) -> bool:
    """Whether the kept messages say the plan already."""
    if state.place is not None:
        return scene.is_kept(state.place.message)
    used = _call(scene, state)
    return used is not None and scene.is_kept(used.message)


def _call(scene: RestoreScene, state: AgentPlan) -> AnsweredCall | None:
    if state.call is None:
        return None
    return next((u for u in scene.happened if isinstance(u, AnsweredCall) and u.use.id == state.call), None)


def _text(scene: RestoreScene, state: AgentPlan) -> str | None:
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
    before = scene.text_at(scene.restored.get(PLAN_KIND, {}).get("plan"))
    return unquoted(before.partition("\n")[2]) if before is not None else None


def _written(scene: RestoreScene, path: str | None) -> str | None:
    """The text of a plan file as the calls in the view leave it."""
    known = None
    for used in scene.happened:
        if isinstance(used, AnsweredCall):
            for deed in file_actions(used):
                if deed.path == path:
                    known = deed.on(known)
    return "\n".join(line for run in known.runs for line in run.lines) if known is not None else None


def plan_budget(settings: Settings) -> tuple[int, int]:
    return settings.restore_plan_tokens, settings.restore_plan_tokens


PLAN_TRACKER = Tracker(PLAN_KIND, AgentPlan, track_plan)
PLAN_RESTORER = Restorer(
    PLAN_KIND, restore_plan, plan_budget, lead=prompts.source("restored_plan"), rank=20, wants=plan_wanted
)


SKILLS_KIND = "skills"
SKILLS_KEPT = 30
_BASE = re.compile(r"\ABase directory for this skill: (.+)\n")
_FILE = re.compile(r"(?:^|[/\\])([^/\\]+)[/\\]SKILL\.md$")
_LISTED = "<system-reminder>\nSkills in use in this session:\n"
_LISTED_NAME = re.compile(r"^### (.+)$", re.MULTILINE)
_ARGUMENTS = "\nARGUMENTS: "
_ONLY_SAYS_SO = re.compile(  # that the skill is loaded; what it says comes in a message of its own
    r"(?:(?:launch|load|execut|invok|activat)(?:ing|ed)\b|(?:using|running|started|starting|execute) .{0,80}\bskill\b)"
    r".*|(?:ok|done|success\w*)\W*",
    re.IGNORECASE,
)


class InvokedSkill(msgspec.Struct, frozen=True, omit_defaults=True):
    """An invoked skill: the file it is in, and the block that said what it says."""

    path: str | None = None
    place: BlockPosition | None = None


class InvokedSkills(msgspec.Struct):
    """Skills by name, the most recent last; `waiting` was called and hasn't said its instructions yet."""

    invoked: dict[str, InvokedSkill] = {}
    waiting: str | None = None


def track_skills(state: InvokedSkills, happened: Happened) -> InvokedSkills:
    """Take in a call of a skill, the instructions behind it, or a read of a skill's file."""
    if isinstance(happened, MessageText):
        _skill_told(state, happened)
    elif happened.action.kind == "skill" and not happened.has_failed:
        name = happened.word("skill", "command", "name", "skill_name")
        if name:
            state.waiting = name[:NAME_CHARS]
            told = happened.text.strip()  # some agents answer with the instructions themselves, however short
            is_told = bool(told) and told != name and not _ONLY_SAYS_SO.fullmatch(told)
            place = BlockPosition(happened.message, happened.block) if is_told else None
            _put(state, state.waiting, InvokedSkill(None, place))
    elif isinstance(happened, AnsweredCall):
        for deed in file_actions(happened):
            found = _FILE.search(deed.path)
            if found and deed.how == "read":
                _put(state, found[1], InvokedSkill(deed.path, BlockPosition(happened.message, happened.block)))
    return state


def _skill_told(state: InvokedSkills, words: MessageText) -> None:
    base = _BASE.match(words.text) if words.origin != "model" else None
    if base is not None and len(base[1]) <= NAME_CHARS:
        folder = base[1].strip().rstrip("/\\")
        name = state.waiting or posixpath.basename(folder.replace("\\", "/"))
        separator = "\\" if "\\" in folder else "/"
        _put(state, name, InvokedSkill(f"{folder}{separator}SKILL.md", BlockPosition(words.message, words.block)))
        state.waiting = None
    elif words.text.startswith(_LISTED):
        for found in _LISTED_NAME.finditer(words.text):
            if len(found[1]) <= NAME_CHARS and found[1] not in state.invoked and _starts_skill(words.text, found):
                _put(state, found[1], InvokedSkill(None, BlockPosition(words.message, words.block)))


def _starts_skill(text: str, found: re.Match[str]) -> bool:
    """Only the first heading is certainly a skill's name; those of a skill's own text look the same."""
    return found.start() == len(_LISTED)


def _put(state: InvokedSkills, name: str, skill: InvokedSkill) -> None:
    before = state.invoked.pop(name, None)
    if before is not None:
        skill = InvokedSkill(skill.path or before.path, skill.place or before.place)
    state.invoked[name] = skill
    while len(state.invoked) > SKILLS_KEPT:
        del state.invoked[next(iter(state.invoked))]


def skills_wanted(scene: RestoreScene) -> tuple[str, ...]:
    return tuple(skill.path for _, skill in _candidates(scene)[:8] if skill.path and skill.path.startswith("/"))


def _candidates(scene: RestoreScene) -> list[tuple[str, InvokedSkill]]:
    """Skills whose instructions left the view, newest first."""
    state = scene.states.get(SKILLS_KIND)
    if not isinstance(state, InvokedSkills):
        return []
    found = reversed(state.invoked.items())
    return [(name, skill) for name, skill in found if skill.place is None or not scene.is_kept(skill.place.message)]


def restore_skills(scene: RestoreScene, room: TokenRoom) -> Restoration | None:
    """As many as there is room for, newest first, each cut to its share."""
    entries: list[RestoredEntry] = []
    left_out: list[str] = []
    for name, skill in _candidates(scene):
        text = _skill_text(scene, name, skill)
        if text is None:
            left_out.append(f"{name} (its text is not in the log any more)")
            continue
        head = f"### Skill {inline(name)}" + (f" ({named(skill.path)})" if skill.path else "") + "\n"
        body = cut_to(quoted(text), room.next - room.cost(head) - 1, room.cost)
        if body is None or not room.admits(head + body):
            left_out.append(name)
        else:
            entries.append(RestoredEntry(name, head + body))
    return Restoration(tuple(entries), tuple(left_out)) if entries or left_out else None


def _skill_text(scene: RestoreScene, name: str, skill: InvokedSkill) -> str | None:
    now = scene.files.get(skill.path) if scene.files is not None and skill.path else None
    if now is not None and now.text is not None:
        return now.text
    said = scene.text_at(skill.place)
    if said is None and skill.place is not None:
        calls = (one for one in scene.happened if isinstance(one, AnsweredCall))
        said = next((c.text for c in calls if (c.message, c.block) == (skill.place.message, skill.place.block)), None)
    if said is not None:
        return said.removeprefix(_LISTED).split(_ARGUMENTS)[0].rstrip("\n")
    before = scene.text_at(scene.restored.get(SKILLS_KIND, {}).get(name))
    return unquoted(before.partition("\n")[2]) if before is not None else None


def skills_budget(settings: Settings) -> tuple[int, int]:
    return settings.restore_skill_tokens, settings.restore_skills_tokens


SKILLS_TRACKER = Tracker(SKILLS_KIND, InvokedSkills, track_skills)
SKILLS_RESTORER = Restorer(
    SKILLS_KIND, restore_skills, skills_budget, lead=prompts.source("restored_skills"), rank=70, wants=skills_wanted
)


TODOS_KIND = "todos"
TODOS_KEPT = 120
TODO_CHARS = 300


class RestoredTodo(msgspec.Struct, frozen=True, omit_defaults=True):
    """One item. `id` is set where the agent gives ids."""

    text: str
    state: str = "pending"
    id: str | None = None


class RestoredTodos(msgspec.Struct):
    """The list as it stands."""

    items: list[RestoredTodo] = []


def track_todos(state: RestoredTodos, happened: Happened) -> RestoredTodos:
    """Take in a call that writes the list, or some of its items."""
    if not isinstance(happened, AnsweredCall) or happened.has_failed:
        return state
    update = todo_update(happened.action.kind, happened.name, happened.arguments, happened.text)
    if update is None:
        return state
    items = [RestoredTodo(_clipped(one.text), one.state, one.id or None) for one in update.items]
    match update.how:
        case "all":
            state.items = items
        case "merged":  # Cursor's way: items of the same id are replaced, others are added
            new = {todo.id: todo for todo in items}
            state.items = [*(new.pop(todo.id, todo) for todo in state.items), *new.values()]
        case "added":
            state.items += [msgspec.structs.replace(todo, id=todo.id or str(len(state.items) + 1)) for todo in items]
        case "changed":
            state.items = [_changed(todo, items[0]) for todo in state.items]
            state.items = [todo for todo in state.items if todo.id != items[0].id or todo.state != "deleted"]
    del state.items[TODOS_KEPT:]
    return state


def _changed(todo: RestoredTodo, to: RestoredTodo) -> RestoredTodo:
    return RestoredTodo(to.text or todo.text, to.state or todo.state, todo.id) if todo.id == to.id else todo


def _clipped(text: str) -> str:
    return text if len(text) <= TODO_CHARS else text[: TODO_CHARS - 1] + "…"


def restore_todos(scene: RestoreScene, room: TokenRoom) -> Restoration | None:
    """All items, in their order; where they don't fit, what is done gives way first."""
    state = scene.states.get(TODOS_KIND)
    if not isinstance(state, RestoredTodos) or not state.items or all(t.state == "completed" for t in state.items):
        return None
    dropped: list[RestoredTodo] = []
    items = list(state.items)
    while items and room.cost(_todos_text(items)) > room.next:
        victim = next((t for t in items if t.state == "completed"), items[-1])
        items.remove(victim)
        dropped.append(victim)
    left = tuple(todo.text[:80] for todo in dropped)
    text = _todos_text(items)
    if not items or not room.admits(text):
        return Restoration((), tuple(todo.text[:80] for todo in state.items))
    return Restoration((RestoredEntry("todos", text),), left)


def _todos_text(items: list[RestoredTodo]) -> str:
    return "\n".join(inline(f"- [{t.state}] {f'#{t.id} ' if t.id else ''}{t.text}") for t in items)


def todos_budget(settings: Settings) -> tuple[int, int]:
    return settings.restore_todos_tokens, settings.restore_todos_tokens


TODOS_TRACKER = Tracker(TODOS_KIND, RestoredTodos, track_todos)
TODOS_RESTORER = Restorer(TODOS_KIND, restore_todos, todos_budget, lead=prompts.source("restored_todos"), rank=10)


TOOLS_KIND = "tools"
NAMES_KEPT = 150
TOOL_NAME_CHARS = 120
PLACES_KEPT = 4  # announcements of one sort: the first and the last deltas
_SORTS: Final = {
    "Tools that can be loaded": "deferred tools",
    "Kinds of agents that can be called": "agents",
    "Instructions of MCP servers": "tool servers",
    "Skills that can be used": "skills",
}
_FUNCTION: Final = re.compile(r"<function>(\{.*?\})</function>", re.DOTALL)
_DEFINING: Final = ("input_schema", "parameters", "inputSchema", "description")  # a name alone defines nothing
_MOST_NAMED: Final = 8  # of the tools whose definitions have no room
_ENTRY: Final = "definition of "
_TOOLS_TOLD = re.compile(r"\A<system-reminder>\n(" + "|".join(_SORTS) + r"):\n")


class LoadedTools(msgspec.Struct):
    """Tools that a search found and loaded, and where listings were announced, by sort."""

    loaded: list[str] = []
    told: dict[str, list[BlockPosition]] = {}


def track_tools(state: LoadedTools, happened: Happened) -> LoadedTools:
    """Take in a tool search, or an announcement."""
    if isinstance(happened, MessageText):
        found = _TOOLS_TOLD.match(happened.text) if happened.origin != "model" else None
        if found is not None:
            places = state.told.setdefault(_SORTS[found[1]], [])
            places.append(BlockPosition(happened.message, happened.block))
            del places[1 : max(1, len(places) - PLACES_KEPT + 1)]
    elif happened.action.kind == "tools" and not happened.has_failed:
        for name in _definitions(happened):
            if name in state.loaded:
                state.loaded.remove(name)
            state.loaded.append(name[:TOOL_NAME_CHARS])
        del state.loaded[:-NAMES_KEPT]
    return state


def _definitions(used: AnsweredCall) -> dict[str, Any]:
    """What a search found by name: definitions, and None for one that the result only refers to (`tool_reference`)."""
    found: dict[str, Any] = {}
    for part in used.result.parts():
        if part.type == "tool_reference":
            value = msgspec.json.decode(part.raw)
            found[str(value.get("tool_name") or value.get("name") or "")] = None
    text = used.text.strip()
    texts = [text] if text.startswith(("[", "{")) else _FUNCTION.findall(text)
    for one in () if found else texts:
        try:
            found |= _defined(msgspec.json.decode(one))
        except msgspec.MsgspecError:
            continue
    return {name: definition for name, definition in found.items() if name}


def _defined(value: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(value, list):
        return {name: definition for one in value for name, definition in _defined(one, prefix).items()}
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return {}
    if isinstance(value.get("tools"), list):
        return _defined(value["tools"], f"{value['name']}.")
    is_whole = any(value.get(key) for key in _DEFINING)
    return {prefix + value["name"]: value if is_whole else None}


def restore_tools(scene: RestoreScene, room: TokenRoom) -> Restoration | None:
    """What was loaded, with the definitions as far as neither requests nor kept messages have them; then listings."""
    state = scene.states.get(TOOLS_KIND)
    if not isinstance(state, LoadedTools):
        return None
    entries: list[RestoredEntry] = []
    left_out: list[str] = []
    if state.loaded:
        text = inline("Tools found and loaded by a search: " + ", ".join(state.loaded))
        cut = cut_to(text, room.next, room.cost)
        if cut is not None and room.admits(cut):
            entries.append(RestoredEntry("loaded", cut))
            _put_definitions(scene, state, room, entries, left_out)
        else:
            left_out.append(f"{len(state.loaded)} loaded tools")
    for sort, places in state.told.items():
        text_now = _listing_text(scene, sort, places)
        if text_now == "":
            continue  # the kept messages still say it
        if text_now is None:
            left_out.append(f"{sort} (not in the log any more)")
            continue
        head = f"### {sort}\n"
        body = cut_to(quoted(text_now), room.next - room.cost(head) - 1, room.cost)
        if body is not None and room.admits(head + body):
            entries.append(RestoredEntry(sort, head + body))
        else:
            left_out.append(sort)
    return Restoration(tuple(entries), tuple(left_out)) if entries or left_out else None


def _put_definitions(
    scene: RestoreScene, state: LoadedTools, room: TokenRoom, entries: list[RestoredEntry], left_out: list[str]
) -> None:
    """Behind the names, in half of the room that they leave; the listings have the rest."""
    most = room.used + (room.total - room.used) // 2
    without: list[str] = []
    for name, definition in _lost_definitions(scene, state.loaded):
        text = f"### {inline(name)}\n{quoted(definition)}"
        if room.used + room.cost(text) <= most and room.admits(text):
            entries.append(RestoredEntry(_ENTRY + name, text))
        else:
            without.append(inline(name))
    if without:
        more = f" and {len(without) - _MOST_NAMED} more" if len(without) > _MOST_NAMED else ""
        left_out.append(f"the definitions of {', '.join(without[:_MOST_NAMED])}{more}")


def _lost_definitions(scene: RestoreScene, loaded: list[str]) -> list[tuple[str, str]]:
    """The definitions that the next request wouldn't show any more, as JSON, the tools found last first."""
    front = scene.view.state.front
    in_front = {tool.get("name"): tool for tool in map(msgspec.json.decode, front.tools)} if front is not None else {}
    shown = {name for name, tool in in_front.items() if not tool.get("defer_loading")}
    found: dict[str, Any] = {}
    for one in scene.happened:
        if isinstance(one, AnsweredCall) and one.action.kind == "tools" and not one.has_failed:
            definitions = _definitions(one)
            if scene.is_kept(one.message):
                shown |= definitions.keys()
            found |= {name: definition for name, definition in definitions.items() if definition is not None}
    lost: list[tuple[str, str]] = []
    for name in reversed(loaded):
        if name in shown:
            continue
        definition = found.get(name) or in_front.get(name)
        before = scene.text_at(scene.restored.get(TOOLS_KIND, {}).get(_ENTRY + name))
        if definition is not None:
            told = {key: value for key, value in definition.items() if key not in ("defer_loading", "cache_control")}
            lost.append((name, msgspec.json.encode(told).decode()))
        elif before is not None:
            lost.append((name, unquoted(before.partition("\n")[2])))
    return lost


def _listing_text(scene: RestoreScene, sort: str, places: list[BlockPosition]) -> str | None:
    """What was announced, oldest first; empty when all of it is kept, None when none of it is known any more."""
    gone = [place for place in places if not scene.is_kept(place.message)]
    if not gone:
        return ""
    before = scene.text_at(scene.restored.get(TOOLS_KIND, {}).get(sort))
    texts = [unquoted(before.partition("\n")[2])] if before is not None else []
    said = [text for place in gone if (text := scene.text_at(place)) is not None]
    texts += [_TOOLS_TOLD.sub("", text).removesuffix("\n</system-reminder>") for text in said]
    return "\n".join(texts) or None


def tools_budget(settings: Settings) -> tuple[int, int]:
    return settings.restore_tools_tokens, settings.restore_tools_tokens


TOOLS_TRACKER = Tracker(TOOLS_KIND, LoadedTools, track_tools)
TOOLS_RESTORER = Restorer(TOOLS_KIND, restore_tools, tools_budget, lead=prompts.source("restored_tools"), rank=40)


BACKGROUND_KIND = "background"
TASKS_KEPT = 40
ENDED_KEPT = 6  # that ended without their result having been fetched


class BackgroundJob(msgspec.Struct, frozen=True, omit_defaults=True):
    """One background job, as last heard. `is_fetched`: it ended and its result was seen."""

    what: str
    state: str = "running"
    where: str | None = None
    is_fetched: bool = False


class BackgroundJobs(msgspec.Struct):
    """Background jobs by id, the most recent last."""

    jobs: dict[str, BackgroundJob] = {}


def track_background(state: BackgroundJobs, happened: Happened) -> BackgroundJobs:
    """Take in a start, a look, an end, or a notice."""
    updates = list(background_updates(happened))
    for one in updates:
        before = state.jobs.pop(one.id, None) if one.is_new else state.jobs.get(one.id)
        if before is None and not one.is_new:
            continue
        where = one.where or (before.where if before else None)
        state.jobs[one.id] = BackgroundJob(one.named(before.what if before else ""), one.state, where, one.is_fetched)
    if not updates:
        return state
    for identity in [i for i, job in state.jobs.items() if job.is_fetched]:
        del state.jobs[identity]
    ended = [i for i, job in state.jobs.items() if has_ended(job.state)]
    for identity in [*ended[:-ENDED_KEPT], *list(state.jobs)[: max(0, len(state.jobs) - TASKS_KEPT)]]:
        state.jobs.pop(identity, None)
    return state


def restore_background(scene: RestoreScene, room: TokenRoom) -> Restoration | None:
    """One line for each, the ones that run first. What our own registry says counts more than words (SES-3)."""
    state = scene.states.get(BACKGROUND_KIND)
    told = state.jobs if isinstance(state, BackgroundJobs) else {}
    known = scene.view.state.in_flight
    ours = {
        i: BackgroundJob(f"{one.kind}: {one.what}", one.state, one.where or None)
        for i, one in known.items()
        if not one.is_told
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
    entries = (RestoredEntry("tasks", "\n".join(lines)),) if lines else ()
    return Restoration(entries, tuple(left_out))


def background_budget(settings: Settings) -> tuple[int, int]:
    return settings.restore_background_tokens, settings.restore_background_tokens


BACKGROUND_TRACKER = Tracker(BACKGROUND_KIND, BackgroundJobs, track_background)
BACKGROUND_RESTORER = Restorer(
    BACKGROUND_KIND, restore_background, background_budget, lead=prompts.source("restored_background"), rank=30
)


# In the order in which restored things stand behind the summary: what changes least first, what is nearest to the
# work last. Who gives way when room is short is said by `rank`: files first, the todo list last.
STANDARD = RestorerRegistry(
    trackers=(files.TRACKER, TODOS_TRACKER, PLAN_TRACKER, SKILLS_TRACKER, BACKGROUND_TRACKER, TOOLS_TRACKER),
    restorers=(
        INSTRUCTIONS_RESTORER,
        START,
        MEMORY,
        TOOLS_RESTORER,
        SKILLS_RESTORER,
        files.RESTORER,
        PLAN_RESTORER,
        BACKGROUND_RESTORER,
        TODOS_RESTORER,
    ),
)
