"""The sections of the ledger: what each says, and how it gives way when room is scarce (CMP-5, CMP-12)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple

from holdfast.context.jobs import has_ended
from holdfast.context.ledger import files as trail
from holdfast.context.ledger.extract import SAID, THOUGHT, USER
from holdfast.context.ledger.facts import facts_in, kind_of
from holdfast.context.ledger.memory import Command, File, Kept, Memory, Spoken, Task, Trouble
from holdfast.context.ledger.sheet import Line, Sheet, clip, clock, short_id
from holdfast.context.quoting import indented, inline, name, quoted
from holdfast.transcript.tokens import utf16_units

_BULK_UNITS = 2_400  # pasted, rather than typed: goes in after what was typed
_COMMAND_CHARS, _SHORT_COMMAND = 300, 100
_VOICE = {SAID: "Assistant", USER: "User", THOUGHT: "Assistant, thinking"}
_MUST_MOST = 0.6  # of the budget, for what is always named
_KIND_NAMES = {"path": "Paths", "file": "Files", "name": "Names", "flag": "Flags", "value": "Values", "url": "URLs"}


class Trail(NamedTuple):
    """The files by the path that is shown, and the directory that these paths are below."""

    files: dict[str, File]
    root: str


def file_trail(memory: Memory) -> Trail:
    """The files of a memory as they are shown."""
    root = trail.root_of(memory.files)
    return Trail(trail.merged(memory.files, root), root)


# --- what is always named -------------------------------------------------------------------------------------------


def must(sheet: Sheet, memory: Memory, known: Trail, whole: int) -> None:
    """Every changed file, open todo and failing test: in full where room is, else shorter, never left out."""
    end = memory.tokens
    room = int(min(_MUST_MOST * whole, sheet.units))
    edited = trail.edited_lines(known.files, end)
    todos = [
        Line(
            f"- [{_box(task)}] {inline(task.text)}{_when(task)}",
            index,
            short=f"- [ ] {clip(inline(task.text), 60)}",
        )
        for index, task in enumerate(memory.todos.values())
        if task.status != "done"
    ]
    failing = [
        Line(
            f"- {inline(test)} ({clip(inline(run.command), 90)}) · {short_id(run.id)}",
            -run.last,
            run.id,
            short=f"- {inline(test)}",
        )
        for test, run in memory.tests.items()
        if run.is_failing
    ]
    heading = f"Files changed (below {name(known.root)})" if known.root else "Files changed"
    parts = (
        ("todos", 20, "Open work", todos, [inline(t.text) for t in memory.todos.values() if t.status != "done"]),
        ("failing", 22, "Tests that fail", failing, [inline(n) for n, t in memory.tests.items() if t.is_failing]),
        (
            "edited",
            30,
            heading,
            edited,
            [trail.bare_name(path, file) for path, file in known.files.items() if trail.is_changed(file)],
        ),
    )
    for index, (section, place, title, lines, names) in enumerate(parts):
        if lines:
            left = sum(_least(other[4]) for other in parts[index + 1 :] if other[3])
            room -= _put_all(sheet, (section, place, title), lines, names, (room - left, sheet.units - left))


def _least(names: Sequence[str]) -> int:
    return utf16_units(trail.grouped(list(names))) + 80


def _put_all(
    sheet: Sheet, where: tuple[str, int, str], lines: list[Line], names: list[str], rooms: tuple[int, int]
) -> int:
    """A section that names all; as many full lines as fit into the first room, if need be bare names in the second."""
    section, place, title = where
    before = sheet.units
    short = sum(utf16_units(line.short) + 1 for line in lines) + utf16_units(title) + 6
    if short <= rooms[0]:
        body = "\n".join(_longest(lines, rooms[0] - short))
    else:
        body = _bare(names, max(0, min(sheet.units, rooms[1]) - utf16_units(title) - 8))
    if sheet.put(section, place, title, body):
        sheet.tell(section, lines, ())
    else:
        sheet.tell(section, (), lines)
    return before - sheet.units


def _bare(names: list[str], units: int) -> str:
    """All names, in the fullest form that fits: by directory, the last parts alone, or cut."""
    last = list(dict.fromkeys(name(one).rpartition("/")[2] for one in names))
    each = max(6, units // max(1, len(last)) - 2)
    forms = (trail.grouped(names), ", ".join(last), ", ".join(clip(one, each) for one in last))
    return next((form for form in forms if utf16_units(form) <= units), clip(forms[-1], units))


def _longest(lines: list[Line], spare: int) -> list[str]:
    """Each line in its short form, or in full while room lasts, by rank; at most half of a section's room each."""
    full: set[int] = set()
    for index in sorted(range(len(lines)), key=lambda i: (lines[i].rank, i)):
        more = utf16_units(lines[index].text) - utf16_units(lines[index].short)
        if more <= spare:
            full.add(index)
            spare -= max(0, more)
    return [line.text if index in full else line.short for index, line in enumerate(lines)]


# --- what people said ----------------------------------------------------------------------------------------------


_LEFT_OUT_UNITS = 80  # the line that says how many of the user's messages had no room


def words(sheet: Sheet, memory: Memory, tail: frozenset[str], shares: tuple[float, float, float], whole: int) -> None:
    """What the user said, word for word: the last and the first from their own reserves, then the newest first."""
    said = [one for one in memory.words if one.id not in tail]
    if not said:
        return
    first, last, rest = (int(share * whole) for share in shares)
    room = min(first + last + rest, sheet.units - 80) - _LEFT_OUT_UNITS
    chosen: dict[int, str] = {}
    newest = len(said) - 1
    for index, reserve in ((newest, max(last, room // 2)), (0, max(first, room // 2))):
        if index not in chosen:
            text = _spoken(said[index], min(reserve, room))
            if text:
                chosen[index] = text
                room -= utf16_units(text) + 1
    order = sorted(range(newest - 1, 0, -1), key=lambda i: utf16_units(said[i].text) > _BULK_UNITS)
    for index in order:
        text = _spoken(said[index], utf16_units(indented(said[index].text)) + 60)
        if utf16_units(text) + 1 > room and room > 400:
            text = _spoken(said[index], min(room - 1, 400))
        if utf16_units(text) + 1 <= room:
            chosen[index] = text
            room -= utf16_units(text) + 1
    body = "\n".join(chosen[index] for index in sorted(chosen))
    if chosen and len(chosen) < len(said):
        gone = len(said) - len(chosen)
        body += f"\n- ({gone} more, earlier, left out here; recall or search has {'them' if gone > 1 else 'it'})"
    if sheet.put("words", 10, "What the user said, word for word (the last decides)", body):
        lines = [Line(one.text[:100], 0, one.id) for one in said]
        sheet.tell("words", [lines[i] for i in sorted(chosen)], [lines[i] for i in range(len(said)) if i not in chosen])


def _spoken(one: Spoken, units: int) -> str:
    lead = f"- {clock(one.at)} {short_id(one.id)}: ".replace("-  ", "- ")
    room = units - utf16_units(lead)
    if room < 24:
        return ""
    return lead + clip(indented(one.text), room)


def _box(task: Task) -> str:
    return "~" if task.status == "doing" else " "


def _when(task: Task) -> str:
    """The time since when an entry stands so, to put behind it (CMP-12)."""
    return f", {'' if task.status == 'done' else 'since '}{clock(task.at)}" if task.at is not None else ""


# --- what was done -------------------------------------------------------------------------------------------------


def work(sheet: Sheet, memory: Memory, tail: frozenset[str], units: float) -> None:
    """Where the work stands: what the assistant said last, what runs in the background, what is done."""
    lines: list[Line] = []
    lines += [
        Line(f"- in the background, its end not heard of: {inline(task.text)} (id {name(key)}{_when(task)})", -2, key)
        for key, task in memory.background.items()
        if not has_ended(task.status)
    ]
    said = [one for one in memory.said if one.id not in tail]
    each = int(units * 0.45)
    for age, one in enumerate(reversed(said[-5:])):
        text = clip(inline(one.text), each if age == 0 else 360)
        lines.append(Line(f"- {clock(one.at)} {text}".replace("-  ", "- "), age * 2 - 1, one.id))
    sheet.list("work", 24, "Where the work stands (latest first)", lines, int(units * 0.8))
    done = [task for task in memory.todos.values() if task.status == "done"]
    healed = [test for test, run in memory.tests.items() if not run.is_failing]
    finished = [
        Line(f"- [x] {inline(task.text)}{_when(task)}", -index, short=f"- [x] {clip(inline(task.text), 50)}")
        for index, task in enumerate(done)
    ]
    finished += [
        Line(f"- {inline(task.status)} in the background: {inline(task.text)}", 0.25, key)
        for key, task in memory.background.items()
        if has_ended(task.status)
    ]
    finished += [Line(f"- passes now: {inline(test)}", 0.5) for test in healed]
    sheet.list("done", 26, "Done", finished, int(units * 0.6))


def commands(sheet: Sheet, memory: Memory, behind: str, units: float) -> None:
    """Commands, once each, as a record of what happened: how often, and how the last run ended."""
    end = memory.tokens
    lines = []
    flat = " ".join(behind.split())
    for command, known in memory.commands.items():
        if command in flat:
            continue
        shown, short = clip(inline(command), _COMMAND_CHARS), clip(inline(command), _SHORT_COMMAND)
        age = (end - known.last) / 30_000
        rank = age - 1.5 * min(known.count - 1, 3) - (0.5 if known.ok is False else 0)
        rank += utf16_units(shown) / 400
        how = _ended(known)
        lines.append(Line(f"- {shown} → {how}", rank, known.id, f"- {short}"))
    sheet.list("commands", 40, "Commands that were run (a record, not a request)", lines, int(units))


def _ended(command: Command) -> str:
    often = f" ({command.count}×)" if command.count > 1 else ""
    return f"{state_of(command)}{often}{f': {inline(command.line[:70])}' if command.line else ''}"


def state_of(command: Command) -> str:
    """How the last run of a command ended."""
    if command.ok is None:
        return "ran" if command.line else "no result"
    return "ok" if command.ok else f"failed ({'error' if command.code in (None, 0) else command.code})"


def read(sheet: Sheet, memory: Memory, known: Trail, units: float) -> None:
    """Files that were read and not changed."""
    heading = f"Files read (below {name(known.root)})" if known.root else "Files read"
    sheet.list("read", 32, heading, trail.read_lines(known.files, memory.tokens), int(units))


def errors(sheet: Sheet, memory: Memory, units: float) -> None:
    """Error lines, once each, with whether the command that showed them passed later."""
    end = memory.tokens
    lines = [_trouble(text, trouble, end) for text, trouble in memory.errors.items()]
    sheet.list("errors", 44, "Errors seen", lines, int(units))


def _trouble(text: str, trouble: Trouble, end: int) -> Line:
    over = ", resolved: the command passed later" if trouble.is_over else ""
    often = f" ({trouble.count}×)" if trouble.count > 1 else ""
    text = inline(text)
    shown = f"- {text}{often}{over} · {short_id(trouble.id)}"
    return Line(shown, (end - trouble.last) * (2 if trouble.is_over else 1), trouble.id, f"- {clip(text, 100)}{over}")


def decisions(sheet: Sheet, memory: Memory, tail: frozenset[str], units: float) -> None:
    """What the assistant decided or found out, in its words."""
    end = memory.tokens
    known = [one for one in memory.decisions.values() if one.id not in tail]
    lines = [Line(f"- {inline(one.text)}", end - one.last, one.id) for one in known]
    sheet.list("decisions", 46, "Decided and found out", lines, int(units))


# --- names and excerpts --------------------------------------------------------------------------------------------


def evidence(sheet: Sheet, memory: Memory, body: str, sources: Sequence[str]) -> None:
    """The excerpts; what no excerpt is of is told with the ids of the latest."""
    if sheet.put("evidence", 80, "Excerpts, word for word (… marks a gap)", body):
        sheet.kept += [{"section": "evidence", "id": source} for source in sources]
    known = set(sources) if body else set()
    others = list(dict.fromkeys(piece.source for piece in memory.pieces if piece.source not in known))
    if others:
        sheet.dropped["evidence"] = {"count": len(others), "recall": others[-20:]}


def names(sheet: Sheet, weights: Mapping[str, float], lasts: Mapping[str, int], covered: Set[str]) -> None:
    """The heaviest facts that nothing on the sheet shows, as lists of names by kind."""
    room = sheet.units - 60
    ranked = sorted((key for key in weights if key not in covered), key=lambda key: (-weights[key], key))
    paths: dict[str, str] = {}
    for key in ranked:
        if "/" in key:
            paths.setdefault(key.rpartition("/")[2], key)
    chosen: dict[str, str] = {}
    seen = set(covered)
    for key in ranked:
        shown = paths.get(key, key)
        if key in seen:
            continue
        kind = kind_of(shown)
        cost = utf16_units(shown) + 2 + (0 if kind in chosen.values() else 12)
        if cost > room:
            if room < 24:
                break
            continue
        room -= cost
        chosen[shown] = kind
        seen.update(facts_in(shown))
    latest = sorted(chosen, key=lambda key: (-lasts.get(key, 0), key))
    groups = [
        f"{title}: {', '.join(name(key) for key in latest if chosen[key] == kind)}"
        for kind, title in _KIND_NAMES.items()
        if kind in chosen.values()
    ]
    sheet.put("names", 50, "Names and values that came up (latest first)", "\n".join(groups))
    left = sum(1 for key in ranked if key not in seen)
    if left:
        sheet.dropped["names"] = {"count": left, "recall": []}
    if chosen:
        sheet.kept.append({"section": "names", "count": len(chosen)})


def names_units(weights: Mapping[str, float], covered: Set[str]) -> int:
    """What it would cost to name all facts that nothing shows."""
    return sum(len(key) + 2 for key in weights if key not in covered) + 120


def excerpts(chosen: Sequence[Kept], titles: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """Pieces as text, those of one call under one heading; and the ids of their calls and messages."""
    lines: list[str] = []
    before: Kept | None = None
    for piece in sorted(chosen, key=lambda one: one.order):
        if before is None or piece.source != before.source:
            title = titles.get(piece.source) or _VOICE.get(piece.voice, "Context")
            lines.append(f"[{inline(title)} · {short_id(piece.source)}]")
        elif piece.order != before.order + 1:
            lines.append("…")
        lines.append(quoted(piece.text))
        before = piece
    return "\n".join(lines), tuple(dict.fromkeys(piece.source for piece in sorted(chosen, key=lambda one: one.order)))
