"""The sections of session notes, filled by code from what the ledger knows: for sessions without any model (SM-7)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.context.jobs import has_ended
from holdfast.context.ledger import files as trail
from holdfast.context.ledger.lists import file_trail, state_of
from holdfast.context.ledger.memory import Command, Memory, Spoken
from holdfast.context.ledger.sheet import Line, chosen_lines, clip, clock, short_id
from holdfast.transcript.tokens import UNITS_PER_TOKEN

_TITLE_WORDS, _LEAST_WORDS = 10, 5
_SECTION_TOKENS = 450  # far below SM-4: what code gathers stands in the ledger too, and whole in the journal
_SAID = 600
_WORKLOG = 16


def note_lines(memory: Memory) -> dict[str, tuple[str, ...]]:
    """The lines of each section of the template that ships; none where there is nothing to say."""
    files = file_trail(memory)
    end = memory.tokens
    sections: dict[str, Sequence[Line]] = {
        "Session Title": _title(memory),
        "Current State": _current(memory),
        "Task Specification": _task(memory),
        "Files and Functions": trail.edited_lines(files.files, end),
        "Workflow": _workflow(memory),
        "Errors & Corrections": _errors(memory),
        "Codebase and System Documentation": _system(files.root, trail.read_lines(files.files, end)),
        "Learnings": [Line(f"- {_flat(one.text)}", end - one.last) for one in memory.decisions.values()],
        "Key Results": _results(memory),
        "Worklog": _worklog(memory),
    }
    return {title: _chosen(lines) for title, lines in sections.items()}


def _chosen(lines: Sequence[Line]) -> tuple[str, ...]:
    """Those that fit, by rank, in the order given. Each is one line, and none looks like a heading."""
    chosen = chosen_lines(lines, _SECTION_TOKENS * UNITS_PER_TOKEN)
    return tuple(dict.fromkeys(_flat(chosen[index]) for index in sorted(chosen)))


def _flat(text: str) -> str:
    return " ".join(text.split())


def _words(said: Spoken, chars: int) -> str:
    at = clock(said.at)
    return f"- {at + ' ' if at else ''}{clip(_flat(said.text), chars)} · {short_id(said.id)}"


def _title(memory: Memory) -> list[Line]:
    """The first words that say something, five to ten of them."""
    for said in memory.words:
        words = _flat(said.text).split()
        if len(words) >= _LEAST_WORDS or said is memory.words[-1]:
            return [Line("- " + clip(" ".join(words[:_TITLE_WORDS]), 160), 0)] if words else []
    return []


def _current(memory: Memory) -> list[Line]:
    lines = []
    if memory.words:
        lines.append(Line(f"- asked last: {_words(memory.words[-1], _SAID)[2:]}", 0))
    if memory.said:
        lines.append(Line(f"- said last: {_words(memory.said[-1], _SAID)[2:]}", 1))
    running = [(key, task) for key, task in memory.background.items() if not has_ended(task.status)]
    told = "in the background, its end not heard of"
    lines += [Line(f"- {told}: {clip(task.text, 200)} (id {key})", 2) for key, task in running]
    for task in memory.todos.values():
        if task.status != "done":
            box = "~" if task.status == "doing" else " "
            lines.append(Line(f"- [{box}] {clip(task.text, 200)}", 3 - 0.5 * (box == "~")))
    lines += [Line(f"- fails: {name}", 4) for name, test in memory.tests.items() if test.is_failing]
    return lines


def _task(memory: Memory) -> list[Line]:
    """What people said: the first always, then the newest."""
    newest = len(memory.words) - 1
    return [
        Line(_words(said, _SAID), -1 if index == 0 else newest - index, short=_words(said, 160))
        for index, said in enumerate(memory.words)
    ]


def _workflow(memory: Memory) -> list[Line]:
    """Commands that were run more than once, or that passed last."""
    end = memory.tokens
    lines = []
    for command, known in memory.commands.items():
        if known.count > 1 or known.ok:
            rank = (end - known.last) / 30_000 - 1.5 * min(known.count - 1, 3)
            lines.append(Line(f"- `{clip(command, 240)}` → {_ended(known)}", rank, short=f"- `{clip(command, 100)}`"))
    return lines


def _ended(known: Command) -> str:
    return (
        state_of(known)
        + (f" ({known.count}×)" if known.count > 1 else "")
        + (f": {known.line[:80]}" if known.line else "")
    )


def _errors(memory: Memory) -> list[Line]:
    end = memory.tokens
    lines = []
    for text, trouble in memory.errors.items():
        over = " (over: the command passed later)" if trouble.is_over else ""
        lines.append(Line(f"- {clip(_flat(text), 240)}{over}", (end - trouble.last) * (2 if trouble.is_over else 1)))
    return lines


def _system(root: str, read: Iterable[Line]) -> list[Line]:
    lines = list(read)
    return [Line(f"- read below {root}:", -1), *lines] if lines and root else lines


def _results(memory: Memory) -> list[Line]:
    done = [task for task in memory.todos.values() if task.status == "done"]
    lines = [Line(f"- [x] {clip(task.text, 200)}", len(done) - index) for index, task in enumerate(done)]
    return lines + [Line(f"- passes now: {name}", 0.5) for name, test in memory.tests.items() if not test.is_failing]


def _worklog(memory: Memory) -> list[Line]:
    """What the assistant said it did, oldest first."""
    said = memory.said[-_WORKLOG:]
    return [Line(_words(one, 240), len(said) - index) for index, one in enumerate(said)]
