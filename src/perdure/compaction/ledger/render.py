"""The record that the ledger writes: sections, evidence word for word and the raw tail, inside one budget (CMP-5,
CMP-12, SM-7).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from perdure.compaction.ledger.facts import clip, facts_in, without_reminders
from perdure.compaction.ledger.handover import (
    BELOW,
    FAILING,
    FIRST_BELOW,
    HAND_OVER,
    HEADINGS,
    SECTIONS,
    SHARE,
    TASK,
    TODOS,
    HandOver,
    ended,
    error_line,
    is_told,
    short_command,
    state_of,
)
from perdure.compaction.ledger.memory import (
    CommandHistory,
    EvidenceCover,
    EvidenceTarget,
    EvidenceText,
    FileHistory,
    LedgerMemory,
    PlannedTask,
    SpokenText,
    goal_words,
    most_pieces,
)
from perdure.compaction.ledger.reader import SAID, THOUGHT, USER, LedgerExtractor
from perdure.compaction.ledger.sheet import Sheet, SheetLine, chosen_lines, clock, short_id
from perdure.context.reminders import INDENT, indented, inline, name, quoted
from perdure.text.markdown import fenced
from perdure.transcript.blocks import Text, ToolResult, ToolUse
from perdure.transcript.messages import Message, MessageId, spoken_blocks
from perdure.transcript.tokens import UNITS_PER_TOKEN, base_tokens, utf16_units
from perdure.transcript.tool_calls.actions import HistoryReader, ToolTable
from perdure.transcript.tool_calls.background import has_ended

_NAMES = 6
_LONG_PATH = 64


def root_of(files: Iterable[str]) -> str:
    """The directory that is best named once, as it saves most in all the paths below it; empty if there is none.

    Two parts of most of these paths stay in their lines, so that files can be told from their namesakes.
    """
    below: Counter[str] = Counter()
    deep: Counter[str] = Counter()
    for path in files:
        if _is_absolute(path):
            parts = path.split("/")
            above = ["/".join(parts[:depth]) for depth in range(2, len(parts))]
            below.update(above)
            deep.update(above[:-1])
    roots = [directory for directory, count in deep.items() if directory[1:] != ":" and count * 2 > below[directory]]
    return max(roots, key=lambda directory: (below[directory] * len(directory), len(directory)), default="")


def _is_absolute(path: str) -> bool:
    return path.startswith("/") or path[1:3] == ":/"


def relative(path: str, root: str) -> str:
    """A path below the root; one far from it shows its last parts."""
    if root and path.startswith(f"{root}/"):
        return path[len(root) + 1 :]
    if len(path) > _LONG_PATH:
        return "…/" + "/".join(path.split("/")[-3:])
    return path


def merged(files: Mapping[str, FileHistory], root: str) -> dict[str, FileHistory]:
    """Files by the path that is shown: one named both from the root and in full is one file."""
    found: dict[str, FileHistory] = {}
    for path, file in files.items():
        shown = relative(path, root)
        known = found.pop(shown, None)
        if known is not None:
            file = FileHistory(
                edits=known.edits + file.edits,
                reads=known.reads + file.reads,
                last=max(known.last, file.last),
                edited=max(known.edited, file.edited),
                spans=list(dict.fromkeys((*known.spans, *file.spans)))[-4:],
                names=list(dict.fromkeys((*file.names, *known.names))),
                fate=(file if file.edited >= known.edited else known).fate,
            )
        found[shown] = file
    return found


def is_changed(file: FileHistory) -> bool:
    """Whether a file was changed in any way: written, or taken away."""
    return bool(file.edits or file.fate)


def bare_name(path: str, file: FileHistory) -> str:
    """A changed file where there is room for its name only; one that is gone says so even then."""
    return f"{path} ({inline(file.fate.split(' ')[0])})" if file.fate[:1] not in ("", "`") else path


def edited_lines(files: Mapping[str, FileHistory], end: int) -> list[SheetLine]:
    """A line for each changed file, the latest first; the short form is the path alone."""
    changed = sorted(
        ((path, file) for path, file in files.items() if is_changed(file)), key=lambda pair: -pair[1].edited
    )
    lines = []
    for shown, file in changed:
        told = [inline(file.fate)] if file.fate else []
        told += [f"changed {file.edits}×" if file.edits > 1 else "changed"] if file.edits else []
        told += (
            [f"read {file.reads}×" + (f" lines {', '.join(file.spans)}" if file.spans else "")] if file.reads else []
        )
        written = [one for one in file.names if one not in shown][:_NAMES]
        told += [f"last wrote {', '.join(written)}"] if written else []
        path, fate = name(shown), f" ({inline(file.fate)})" if file.fate else ""
        lines.append(SheetLine(f"- {path} ({'; '.join(told)})", end - file.edited, short=f"- {path}{fate}"))
    return lines


def read_lines(files: Mapping[str, FileHistory], end: int) -> list[SheetLine]:
    """A line for each file that was only read, the latest first."""
    lines = []
    for shown, file in sorted(files.items(), key=lambda pair: -pair[1].last):
        if is_changed(file) or not file.reads:
            continue
        spans = f" ({', '.join(file.spans)})" if file.spans else ""
        path = name(shown)
        lines.append(SheetLine(f"- {path}{spans}", (end - file.last) / (1 + file.reads), short=f"- {path}"))
    return lines


def grouped(paths: list[str]) -> str:
    """Paths on one line, by their directory: `a/: x.py, y.py`."""
    groups: dict[str, list[str]] = {}
    for path in paths:
        directory, _, last = name(path).rpartition("/")
        groups.setdefault(directory, []).append(last)
    return "; ".join(
        f"{directory}/: {', '.join(names)}" if directory else ", ".join(names) for directory, names in groups.items()
    )


BULK_UNITS = 2_400  # pasted, rather than typed: goes in after what was typed
_COMMAND_CHARS, _SHORT_COMMAND, _FAILING_COMMAND = 300, 100, 90
_AWAY = re.compile(r"cd ([\w./~:@+-]{2,120})(?= ?(?:&&|;) ?\S)")
_LEAST_AWAY = 3  # commands that go to a folder, for it to be named once
_VOICE = {SAID: "Assistant", USER: "User", THOUGHT: "Assistant, thinking"}
_MUST_MOST = 0.6  # of the budget, for what is always named


class FileTrail(NamedTuple):
    """The files by the path that is shown, and the directory that these paths are below."""

    files: dict[str, FileHistory]
    root: str


def file_trail(memory: LedgerMemory) -> FileTrail:
    """The files of a memory as they are shown."""
    root = root_of(memory.files)
    return FileTrail(merged(memory.files, root), root)


# --- what is always named -------------------------------------------------------------------------------------------


def always_named(sheet: Sheet, memory: LedgerMemory, known: FileTrail, whole: int) -> None:
    """Every changed file, open todo and failing test: in full where room is, else shorter, never left out.

    Todos and tests belong to the hand-over, unless they alone are most of what it may be.
    """
    end = memory.tokens
    room = int(min(_MUST_MOST * whole, sheet.units))
    edited = edited_lines(known.files, end)
    todos = [
        SheetLine(
            f"- [{_box(task)}] {inline(task.text)}{_when(task)}",
            index,
            short=f"- [ ] {clip(inline(task.text), 60)}",
        )
        for index, task in enumerate(memory.todos.values())
        if task.status != "done"
    ]
    failing = [
        SheetLine(
            f"- {inline(test)} ({short_command(run.command, _FAILING_COMMAND)}) · {short_id(run.id)}",
            -run.last,
            run.id,
            short=f"- {inline(test)}",
        )
        for test, run in reversed(memory.tests.items())
        if run.is_failing
    ]
    heading = f"Files changed (below {name(known.root)})" if known.root else "Files changed"
    parts = (
        (
            "todos",
            TODOS,
            "Open work (in the order of the plan)",
            todos,
            [inline(t.text) for t in memory.todos.values() if t.status != "done"],
        ),
        ("failing", FAILING, "Tests that fail", failing, [inline(n) for n, t in memory.tests.items() if t.is_failing]),
        (
            "edited",
            30,
            heading,
            edited,
            [bare_name(path, file) for path, file in known.files.items() if is_changed(file)],
        ),
    )
    for index, (section, place, title, lines, names) in enumerate(parts):
        if lines:
            left = sum(_least_units(other[4]) for other in parts[index + 1 :] if other[3])
            room -= _put_section(sheet, (section, place, title), lines, names, (room - left, sheet.units - left))
    if hand_over_units(sheet) > whole // SHARE // 2:
        for written in sheet.sections:
            written.place += FIRST_BELOW if written.place in (FAILING, TODOS) else 0


def hand_over_units(sheet: Sheet) -> int:
    """How much of the hand-over stands on a sheet."""
    return sum(utf16_units(section.text) + 2 for section in sheet.sections if TASK <= section.place < FIRST_BELOW)


def _least_units(names: Sequence[str]) -> int:
    return utf16_units(grouped(list(names))) + 80


def _put_section(
    sheet: Sheet, where: tuple[str, int, str], lines: list[SheetLine], names: list[str], rooms: tuple[int, int]
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
    forms = (grouped(names), ", ".join(last), ", ".join(clip(one, each) for one in last))
    return next((form for form in forms if utf16_units(form) <= units), clip(forms[-1], units))


def _longest(lines: list[SheetLine], spare: int) -> list[str]:
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


def words(
    sheet: Sheet, memory: LedgerMemory, tail: frozenset[str], shares: tuple[float, float, float], whole: int
) -> None:
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
            text = spoken_line(said[index], min(reserve, room))
            if text:
                chosen[index] = text
                room -= utf16_units(text) + 1
    order = sorted(range(newest - 1, 0, -1), key=lambda i: utf16_units(said[i].text) > BULK_UNITS)
    for index in order:
        text = spoken_line(said[index], utf16_units(indented(said[index].text)) + 60 + 2 * utf16_units(said[index].to))
        if utf16_units(text) + 1 > room and room > 400:
            text = spoken_line(said[index], min(room - 1, 400))
        if utf16_units(text) + 1 <= room:
            chosen[index] = text
            room -= utf16_units(text) + 1
    body = "\n".join(chosen[index] for index in sorted(chosen, reverse=True))
    if chosen and len(chosen) < len(said):
        gone = len(said) - len(chosen)
        body += f"\n- ({gone} more, earlier, left out here; recall or search has {'them' if gone > 1 else 'it'})"
    if sheet.put("words", 20, "What the user said, word for word (the latest decides)", body):
        lines = [SheetLine(one.text[:100], 0, one.id) for one in said]
        sheet.tell("words", [lines[i] for i in sorted(chosen)], [lines[i] for i in range(len(said)) if i not in chosen])


def spoken_line(one: SpokenText, units: int | None = None) -> str:
    """Words of the user as an item, a short answer with what it answers; empty when there is no room for it."""
    to = f", to “{inline(one.to)}”" if one.to else ""
    lead = f"- {clock(one.at)} {short_id(one.id)}{to}: ".replace("-  ", "- ")
    if units is None:
        return lead + indented(one.text)
    if to and utf16_units(lead) > units // 2:
        return spoken_line(SpokenText(one.id, one.at, one.text), units)
    room = units - utf16_units(lead)
    return lead + clip(indented(one.text), room) if room >= 24 else ""


def _box(task: PlannedTask) -> str:
    return "~" if task.status == "doing" else " "


def _when(task: PlannedTask) -> str:
    """The time since when an entry stands so, to put behind it (CMP-12)."""
    return f", {'' if task.status == 'done' else 'since '}{clock(task.at)}" if task.at is not None else ""


# --- what was done -------------------------------------------------------------------------------------------------


def done(sheet: Sheet, memory: LedgerMemory, units: float) -> None:
    """What is done: steps of the plan, background work that ended, and tests that pass again."""
    planned = [task for task in memory.todos.values() if task.status == "done"]
    finished = [
        SheetLine(f"- [x] {inline(task.text)}{_when(task)}", age, short=f"- [x] {clip(inline(task.text), 50)}")
        for age, task in enumerate(reversed(planned))
    ]
    finished += [
        SheetLine(f"- {inline(task.status)} in the background: {inline(task.text)}", 0.25, key)
        for key, task in reversed(memory.background.items())
        if has_ended(task.status)
    ]
    finished += [
        SheetLine(f"- passes now: {inline(test)}", 0.5)
        for test, run in reversed(memory.tests.items())
        if not run.is_failing
    ]
    sheet.list("done", 26, "Done", finished, int(units))


def commands(sheet: Sheet, memory: LedgerMemory, behind: str, told: Set[str], units: float) -> None:
    """Commands, once each, as a record of what happened: how often, and how the last run ended."""
    end = memory.tokens
    lines = []
    flat = " ".join(behind.split())
    listed = {line: known for line, known in memory.commands.items() if line not in told and line not in flat}
    folder = _common_folder(listed)
    for command, known in reversed(listed.items()):
        line = inline(_with_gap(command, folder))
        shown, short = clip(line, _COMMAND_CHARS), clip(line, _SHORT_COMMAND)
        age = (end - known.last) / 30_000
        rank = age - 1.5 * min(known.count - 1, 3) - (0.5 if known.ok is False else 0)
        rank += utf16_units(shown) / 400
        how = ended(known)
        lines.append(SheetLine(f"- {shown} → {how}", rank, known.id, f"- {short}"))
    away = f"; `cd …` stands for `cd {name(folder)}`" if folder else ""
    sheet.list("commands", 40, f"Commands that were run (a record, not a request{away})", lines, int(units))


def _common_folder(commands: Iterable[str]) -> str:
    """The folder that these commands go to first, again and again; empty when there is none."""
    folders = Counter(found[1] for command in commands if (found := _AWAY.match(command)) is not None)
    folder, count = folders.most_common(1)[0] if folders else ("", 0)
    return folder if count >= _LEAST_AWAY else ""


def _with_gap(command: str, folder: str) -> str:
    """A command with a gap in place of the folder that the heading names: which ones go there is seen (CMP-15)."""
    found = _AWAY.match(command)
    return command if found is None or found[1] != folder else f"cd …{command[found.end() :]}"


def read(sheet: Sheet, memory: LedgerMemory, known: FileTrail, units: float) -> None:
    """Files that were read and not changed."""
    heading = f"Files read (below {name(known.root)})" if known.root else "Files read"
    sheet.list("read", 32, heading, read_lines(known.files, memory.tokens), int(units))


def errors(sheet: Sheet, memory: LedgerMemory, told: str, units: float) -> None:
    """Error lines, once each, with whether the command that showed them passed later; but for those told above."""
    lines = [error_line(text, trouble, memory) for text, trouble in reversed(memory.errors.items())]
    sheet.list("errors", 44, "Other errors seen", [line for line in lines if not _is_told(line, told)], int(units))


def _is_told(line: SheetLine, told: str) -> bool:
    return line.text in told or line.short in told


# --- names and excerpts --------------------------------------------------------------------------------------------


def evidence(sheet: Sheet, memory: LedgerMemory, body: str, sources: Sequence[str]) -> None:
    """The excerpts; what no excerpt is of is told with the ids of the latest."""
    if sheet.put("evidence", 80, "Excerpts, word for word (… marks a gap)", body):
        sheet.kept += [{"section": "evidence", "id": source} for source in sources]
    known = set(sources) if body else set()
    others = list(dict.fromkeys(piece.source for piece in memory.pieces if piece.source not in known))
    if others:
        sheet.dropped["evidence"] = {"count": len(others), "recall": others[-20:]}


_WORDS = re.compile(r"(?:[A-Z]{1,2}|[a-z]+)/(?:[A-Z]{1,2}|[a-z]+)\Z")


class NameList(NamedTuple):
    """Facts that are to be listed, by weight; what they take, and how many have no room."""

    names: tuple[str, ...]
    units: int
    left: int


def name_list(memory: LedgerMemory, covered: Set[str], room: int) -> NameList:
    """The facts that nothing on the sheet shows and that weigh most for their length, as many as fit."""
    ranked = [key for key in memory.densest if key not in covered]
    paths: dict[str, str] = {}
    for key in [key for key in ranked if "/" in key]:
        paths.setdefault(key.rpartition("/")[2], key)
    chosen: list[str] = []
    seen = set(covered)
    units = 0
    for key in ranked:
        if key in seen:
            continue
        shown = paths.get(key, key)
        cost = utf16_units(shown) + 2
        if units + cost > room:
            if room - units < _LEAST_NAME:
                break
            continue
        units += cost
        chosen.append(shown)
        seen.update((shown,) if shown.isidentifier() or shown.isdigit() else facts_in(shown))
    return NameList(tuple(chosen), units, len(ranked) - sum(map(seen.__contains__, ranked)))


def names_together(names: Sequence[str], pieces: Sequence[EvidenceText]) -> str:
    """Names as they came up together, in the order in which they stood there, the latest first: `a, b; c, d`.

    What a name stood beside says more of it than its kind or its letters.
    """
    wanted = set(names)
    ends = {piece.source: piece.order for piece in pieces}
    found: dict[int, list[str]] = {}
    for piece in reversed(pieces):
        if not wanted:
            break
        if not wanted.isdisjoint(piece.keys):
            here = [key for key in reversed(piece.keys) if key in wanted]
            wanted.difference_update(here)
            found.setdefault(ends[piece.source], []).extend(dict.fromkeys(here))
    together = [found[end][::-1] for end in sorted(found, reverse=True)]
    elsewhere = [key for key in names if key in wanted]  # no piece of it is left
    return "; ".join(", ".join(map(name, some)) for some in (*together, elsewhere) if some)


_ROOTED = re.compile(r"(?<![\w.:/-])(?:~|\.{1,2})?/[\w.@+-]+(?:/[\w.@+-]+)+")


def word_pairs(memory: LedgerMemory) -> frozenset[str]:
    """Words with a slash between them, such as `and/or`: no path, unless a tool was given it as a file or folder."""
    found = {key for key in memory.facts if "/" in key and _WORDS.match(key)}
    return frozenset(found - places_of(memory)) if found else frozenset()


def places_of(memory: LedgerMemory) -> frozenset[str]:
    """The last two parts of all files and folders that tools were given."""
    paths = [*memory.files, *(path for command in memory.commands for path in _ROOTED.findall(command))]
    found: set[str] = set()
    for path in paths:
        parts = [part for part in path.split("/") if part not in ("", ".", "..", "~")]
        found.update("/".join(parts[end - 2 : end]) for end in range(2, len(parts) + 1))
    return frozenset(found)


def excerpts(chosen: Sequence[EvidenceText], titles: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """Pieces as text, those of one call under one heading; and the ids of their calls and messages."""
    lines: list[str] = []
    before: EvidenceText | None = None
    for piece in sorted(chosen, key=lambda one: one.order):
        if before is None or piece.source != before.source:
            title = titles.get(piece.source) or _VOICE.get(piece.voice, "Context")
            lines.append(f"[{inline(title)} · {short_id(piece.source)}]")
        elif piece.order != before.order + 1:
            lines.append("…")
        lines.append(quoted(piece.text))
        before = piece
    return "\n".join(lines), tuple(dict.fromkeys(piece.source for piece in sorted(chosen, key=lambda one: one.order)))


_TITLE_WORDS, _LEAST_WORDS = 10, 5
_SECTION_TOKENS = 450  # far below SM-4: what code gathers stands in the ledger too, and whole in the journal
_SAID = 600
_WORKLOG = 16


def note_lines(memory: LedgerMemory) -> dict[str, tuple[str, ...]]:
    """The lines of each section of the template that ships; none where there is nothing to say."""
    files = file_trail(memory)
    end = memory.tokens
    sections: dict[str, Sequence[SheetLine]] = {
        "Session Title": _title(memory),
        "Current State": _current(memory),
        "Task Specification": _task(memory),
        "Files and Functions": edited_lines(files.files, end),
        "Workflow": _workflow(memory),
        "Errors & Corrections": _errors(memory),
        "Codebase and System Documentation": _system(files.root, read_lines(files.files, end)),
        "Learnings": [SheetLine(f"- {_flat(one.text)}", end - one.last) for one in memory.decisions.values()],
        "Key Results": _results(memory),
        "Worklog": _worklog(memory),
    }
    return {title: _chosen(lines) for title, lines in sections.items()}


def _chosen(lines: Sequence[SheetLine]) -> tuple[str, ...]:
    """Those that fit, by rank, in the order given. Each is one line, and none looks like a heading."""
    chosen = chosen_lines(lines, _SECTION_TOKENS * UNITS_PER_TOKEN)
    return tuple(dict.fromkeys(_flat(chosen[index]) for index in sorted(chosen)))


def _flat(text: str) -> str:
    return " ".join(text.split())


def _words(said: SpokenText, chars: int) -> str:
    at = clock(said.at)
    text = _flat(clip(said.text, 100 * chars))  # nobody needs all of a text that is larger than any window
    return f"- {at + ' ' if at else ''}{clip(text, chars)} · {short_id(said.id)}"


def _title(memory: LedgerMemory) -> list[SheetLine]:
    """The first words that say something, five to ten of them."""
    for said in memory.words:
        words = said.text.split(maxsplit=_TITLE_WORDS)
        if len(words) >= _LEAST_WORDS or said is memory.words[-1]:
            return [SheetLine("- " + clip(" ".join(words[:_TITLE_WORDS]), 160), 0)] if words else []
    return []


def _current(memory: LedgerMemory) -> list[SheetLine]:
    lines = []
    if memory.words:
        lines.append(SheetLine(f"- asked last: {_words(memory.words[-1], _SAID)[2:]}", 0))
    if memory.said:
        lines.append(SheetLine(f"- said last: {_words(memory.said[-1], _SAID)[2:]}", 1))
    running = [(key, task) for key, task in memory.background.items() if not has_ended(task.status)]
    told = "in the background, its end not heard of"
    lines += [SheetLine(f"- {told}: {clip(task.text, 200)} (id {key})", 2) for key, task in running]
    for task in memory.todos.values():
        if task.status != "done":
            box = "~" if task.status == "doing" else " "
            lines.append(SheetLine(f"- [{box}] {clip(task.text, 200)}", 3 - 0.5 * (box == "~")))
    lines += [SheetLine(f"- fails: {name}", 4) for name, test in memory.tests.items() if test.is_failing]
    return lines


def _task(memory: LedgerMemory) -> list[SheetLine]:
    """What people said: the first always, then the newest."""
    newest = len(memory.words) - 1
    return [
        SheetLine(_words(said, _SAID), -1 if index == 0 else newest - index, short=_words(said, 160))
        for index, said in enumerate(memory.words)
    ]


def _workflow(memory: LedgerMemory) -> list[SheetLine]:
    """Commands that were run more than once, or that passed last."""
    end = memory.tokens
    lines = []
    for command, known in memory.commands.items():
        if known.count > 1 or known.ok:
            rank = (end - known.last) / 30_000 - 1.5 * min(known.count - 1, 3)
            lines.append(
                SheetLine(f"- `{clip(command, 240)}` → {_last_run(known)}", rank, short=f"- `{clip(command, 100)}`")
            )
    return lines


def _last_run(known: CommandHistory) -> str:
    return (
        state_of(known)
        + (f" ({known.count}×)" if known.count > 1 else "")
        + (f": {known.line[:80]}" if known.line else "")
    )


def _errors(memory: LedgerMemory) -> list[SheetLine]:
    end = memory.tokens
    lines = []
    for text, trouble in memory.errors.items():
        over = " (over: the command passed later)" if trouble.is_over else ""
        lines.append(
            SheetLine(f"- {clip(_flat(text), 240)}{over}", (end - trouble.last) * (2 if trouble.is_over else 1))
        )
    return lines


def _system(root: str, read: Iterable[SheetLine]) -> list[SheetLine]:
    lines = list(read)
    return [SheetLine(f"- read below {root}:", -1), *lines] if lines and root else lines


def _results(memory: LedgerMemory) -> list[SheetLine]:
    done = [task for task in memory.todos.values() if task.status == "done"]
    lines = [SheetLine(f"- [x] {clip(task.text, 200)}", len(done) - index) for index, task in enumerate(done)]
    return lines + [
        SheetLine(f"- passes now: {name}", 0.5) for name, test in memory.tests.items() if not test.is_failing
    ]


def _worklog(memory: LedgerMemory) -> list[SheetLine]:
    """What the assistant said it did, oldest first."""
    said = memory.said[-_WORKLOG:]
    return [SheetLine(_words(one, 240), len(said) - index) for index, one in enumerate(said)]


_LEAST_PART = 200
_NAMES_SPARE = 120  # an excerpt may be a little longer than it was taken for
_LEAST_NAME = 24  # names are hardly ever shorter, with what parts them
_LEAST_LEFT = 200  # less than that holds no other excerpt


@dataclass(frozen=True, slots=True)
class RawTail:
    """`text`; `whole` are the ids of the messages that stand in it in full; `first` is the position where it starts."""

    text: str
    whole: frozenset[str]
    first: int


NO_TAIL = RawTail("", frozenset(), 0)


def raw_tail(messages: Sequence[Message], units: int, told: str = "") -> RawTail:
    """The last messages that fit; the oldest of them is cut at a line, with the gap marked.

    Of what was `told` above, on one line, only that it was said.
    """
    parts: list[str] = []
    whole: set[str] = set()
    first = len(messages)
    for position in range(len(messages) - 1, -1, -1):
        message = messages[position]
        entries = list(_entries(message, told))
        is_whole = True
        for entry in reversed(entries):
            cost = utf16_units(entry) + 1
            if cost > units:
                cut = _end_of(entry, units - 8)
                parts += [cut] if cut else []
                is_whole, units = False, 0
                break
            parts.append(entry)
            units -= cost
        if not is_whole:
            break
        first = position
        whole.add(message.id)
    return RawTail("\n".join(reversed(parts)), frozenset(whole), first)


_ABOVE = f"{INDENT}(said in the hand-over)"


def _entries(message: Message, told: str) -> Iterator[str]:
    if message.agent_id is not None or message.origin == "summary":
        return
    said = dict(spoken_blocks(message))
    for index, block in enumerate(message.blocks):
        value = block.value
        if isinstance(value, Text) and (text := said.get(index) or without_reminders(value.text).strip()):
            speaker = "User" if index in said else "Assistant" if message.origin == "model" else "System"
            at = clock(message.at)
            yield f"[{speaker}{f' {at}' if at else ''}]\n{_ABOVE if is_told(text, told) else quoted(text)}"
        elif isinstance(value, ToolUse):
            yield f"[{inline(value.name)} · {short_id(value.id)}]\n{quoted(_input(value))}"
        elif isinstance(value, ToolResult) and (text := without_reminders(value.text()).strip()):
            yield f"[Result · {short_id(value.tool_use_id)}]\n{quoted(text)}"


def _input(use: ToolUse) -> str:
    """The input as lines `name: value`, so that what was written stands there as it was, not as JSON."""
    arguments = use.input
    if not arguments:
        return bytes(use.raw_input).decode(errors="replace")
    return "\n".join(f"{key}: {_shown(value)}" for key, value in arguments.items())


def _shown(value: object) -> str:
    if isinstance(value, str):
        return value if "\n" not in value else f"\n{value}"
    if isinstance(value, list):
        return "\n".join(f"- {_shown(one)}" for one in value)
    if isinstance(value, dict):
        return "; ".join(f"{key}: {_shown(one)}" for key, one in value.items())
    return str(value)


def _end_of(entry: str, units: int) -> str:
    """The end of an entry, from a line start, behind its heading."""
    heading, _, text = entry.partition("\n")
    room = units - utf16_units(heading) - 7
    if room < _LEAST_PART:
        return ""
    part = text[-room:]
    while utf16_units(part) > room:
        part = part[(utf16_units(part) - room + 1) // 2 :]
    cut = part.find("\n") + 1
    part = part[cut:] if 0 < cut < len(part) // 2 else INDENT + part.lstrip(INDENT)
    return f"{heading}\n[…]\n{part}"


HEAD = (
    "Record of earlier work, made by code from what was said and done. It is no request: the latest message of the "
    "user decides. What is listed as done is done; commands are listed as what happened. Lists have the newest first. "
    "All tools remain available. "
    "Lines behind a tab are quoted from the conversation, files and tools: nothing in them is a part of this record."
)
RECALL = "Anything named here can be had whole with recall, by its id, or by the end of it that stands after “…”."
_ROOM_TOKENS = (6_500, 9_000)  # left for names and evidence: scarce up to the first, plenty from the second
_LEAST_UNITS = 800  # a smaller record has no parts
TAIL_HEADING = "The latest of it, word for word"
_SEEN_IN_FULL = frozenset({"words", "raw tail", "pins"}) | SECTIONS


@dataclass(frozen=True, slots=True)
class SectionShares:
    """Of the budget, how much each part may take at first; what a part leaves is handed on to those after it."""

    tail: float = 0.10
    first: float = 0.22
    last: float = 0.20
    words: float = 0.16
    done: float = 0.05
    commands: float = 0.13
    read: float = 0.05
    errors: float = 0.04
    names: float = 0.35  # of what is left for names and evidence, when that is scarce …
    names_in_plenty: float = 0.60  # … and when it is plenty: more excerpts then repeat what others say

    def of_names(self, units: int) -> float:
        """The share of the names in so much room."""
        scarce, plenty = (tokens * UNITS_PER_TOKEN for tokens in _ROOM_TOKENS)
        plentiful = min(max((units - scarce) / (plenty - scarce), 0.0), 1.0)
        return self.names + (self.names_in_plenty - self.names) * plentiful


@dataclass(frozen=True, slots=True)
class CompactedText:
    """`text` and its `tokens`; `kept`: what stands in it, with ids; `dropped`: by section, how much and where it is."""

    text: str
    tokens: int
    kept: tuple[dict[str, Any], ...]
    dropped: dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSurroundings:
    """What stands around the record: `lead` and `pins` go into it; `behind` stands in the view behind it already.

    `messages`, when given, end in a raw tail inside the record; `known` are ids of messages that stand behind it whole.
    """

    lead: str = f"{HEAD} {RECALL}"
    pins: tuple[str, ...] = ()
    behind: str = ""
    known: frozenset[str] = frozenset()
    messages: Sequence[Message] = ()


def compact_messages(
    messages: Sequence[Message],
    budget_tokens: int,
    tail_tokens: int = 0,
    *,
    tools: ToolTable | None = None,
    pins: Iterable[str] = (),
    shares: SectionShares | None = None,
) -> CompactedText:
    """The whole compacted view of some messages: at most `budget_tokens`, and a raw tail of `tail_tokens` behind it."""
    messages = [  # by its id a message is known as said: without ids, all would be the first
        message if message.id else msgspec.structs.replace(message, id=MessageId(f"message-{number}"))
        for number, message in enumerate(messages, 1)
    ]
    memory = memory_of_messages(messages, tools)
    return compact_memory(memory, messages, (budget_tokens, tail_tokens), pins=tuple(pins), shares=shares)


def compact_memory(
    memory: LedgerMemory,
    messages: Sequence[Message],
    tokens: tuple[int, int],
    *,
    pins: tuple[str, ...] = (),
    shares: SectionShares | None = None,
) -> CompactedText:
    """The whole compacted view of messages whose memory is known; `tokens` are those of the record and the raw tail."""
    budget_tokens, tail_tokens = tokens
    if tail_tokens <= 0:
        return render(memory, budget_tokens, RecordSurroundings(pins=pins, messages=messages), shares)
    heading = f"## {TAIL_HEADING}\n"
    tail = raw_tail(messages, tail_tokens * UNITS_PER_TOKEN - utf16_units(heading) - 2)
    done = render(memory, budget_tokens, RecordSurroundings(pins=pins, behind=tail.text, known=tail.whole), shares)
    text = f"{done.text}\n\n{heading}{tail.text}" if tail.text else done.text
    return CompactedText(text, base_tokens(text), (*done.kept, *_told(tail)), done.dropped)


def memory_of_messages(messages: Iterable[Message], tools: ToolTable | None = None) -> LedgerMemory:
    """The memory of some messages, from cold."""
    extractor = LedgerExtractor(HistoryReader(tools or ToolTable()))
    return LedgerMemory().absorb(extractor.extract(message) for message in messages)


def digest(messages: Iterable[Message], budget_tokens: int, tools: ToolTable | None = None, *, said: str = "") -> str:
    """A short record of a finished range, without framing or raw tail. `said` stands beside it already."""
    return render(memory_of_messages(messages, tools), budget_tokens, RecordSurroundings(lead="", behind=said)).text


def render(
    memory: LedgerMemory, budget_tokens: int, around: RecordSurroundings, shares: SectionShares | None = None
) -> CompactedText:
    """A memory as text of at most `budget_tokens`."""
    shares = shares or SectionShares()
    sheet = Sheet(max(0, budget_tokens) * UNITS_PER_TOKEN)
    whole = sheet.units
    files = file_trail(memory)
    has_parts = sheet.units > _LEAST_UNITS
    sheet.units -= HEADINGS * has_parts
    sheet.put("pins", 1, "Pinned by the user, word for word", fenced("\n".join(around.pins)) if around.pins else "")
    if sheet.units > 4 * len(around.lead):
        sheet.put("lead", 0, "", around.lead)
    always_named(sheet, memory, files, whole)
    over = HandOver(memory, files.files, around.known)
    over.put(sheet, whole, hand_over_units(sheet))
    around = _with_tail(sheet, around, int(shares.tail * whole), over.told)
    words(sheet, memory, around.known | over.shown, (shares.first, shares.last, shares.words), whole)
    done(sheet, memory, shares.done * whole)
    commands(sheet, memory, around.behind, over.commands, shares.commands * whole)
    read(sheet, memory, files, shares.read * whole)
    errors(sheet, memory, over.told, shares.errors * whole)
    _facts(sheet, memory, around.behind, shares)
    has_parts = has_parts and any(TASK <= section.place < FIRST_BELOW for section in sheet.sections)
    text = sheet.text({TASK: HAND_OVER, FIRST_BELOW: BELOW} if has_parts else {})
    return CompactedText(text, base_tokens(text), tuple(sheet.kept), sheet.dropped)


def _with_tail(sheet: Sheet, around: RecordSurroundings, units: int, told: str) -> RecordSurroundings:
    """Put the raw tail onto the sheet, if one is wanted; what it says isn't said again."""
    if not around.messages:
        return around
    tail = raw_tail(around.messages, min(units, sheet.units // 2) - 60, told)
    if not sheet.put("raw tail", 90, TAIL_HEADING, tail.text):
        return around
    sheet.kept += _told(tail)
    return RecordSurroundings(behind=f"{around.behind}\n{tail.text}", known=around.known | tail.whole)


def _told(tail: RawTail) -> list[dict[str, Any]]:
    return [{"section": "raw tail", "messages": sorted(tail.whole)}] if tail.text else []


def _facts(sheet: Sheet, memory: LedgerMemory, behind: str, shares: SectionShares) -> None:
    """Evidence and names share what is left: evidence first, then the names that nothing showed yet.

    What the names turn out not to need is handed back to the evidence, once more each time.
    """
    full = [one.text for one in sheet.sections if one.name in _SEEN_IN_FULL]
    shown = frozenset(facts_in("\n".join((*full, behind))))
    listed = frozenset(facts_in(sheet.text({})))
    covered = listed | shown | word_pairs(memory)
    cover = EvidenceCover(memory, EvidenceTarget(listed, shown, _goal(memory)), most=most_pieces(sheet.units))
    room = sheet.units - 160  # without both headings
    cover.take(room - int(room * shares.of_names(room)))
    while True:
        body, sources = excerpts(cover.chosen, memory.titles)
        free = room - utf16_units(body)
        told = covered | facts_in(body).keys()
        named = name_list(memory, told, free)
        left = free - named.units - _NAMES_SPARE
        if left < _LEAST_LEFT or cover.take(left) == left:
            break
    evidence(sheet, memory, clip(body, max(0, sheet.units - 80)), sources)
    named = name_list(memory, told, sheet.units - 60)
    listing = names_together(named.names, memory.pieces)
    sheet.put("names", 50, "Names and values that came up", f"- {listing}" if listing else "")
    if named.left:
        sheet.dropped["names"] = {"count": named.left, "recall": []}
    if named.names:
        sheet.kept.append({"section": "names", "count": len(named.names)})


def _goal(memory: LedgerMemory) -> frozenset[str]:
    """The words of the latest request and of open work."""
    tasks = [task.text for task in memory.todos.values() if task.status != "done"]
    return goal_words([*(one.text for one in memory.words[-1:]), *tasks])
