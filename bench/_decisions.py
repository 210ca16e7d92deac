"""The index of decisions, docs/adr/README.md, made of the decision records themselves: by subject, with their states.

A record says in its head what it is about (`Subject`), in one line what was decided (`In short`), and whether that
holds (`Status`). A record that lacks one of these, or that says something else there, is an error that names it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "adr"
INDEX = FOLDER / "README.md"
SUBJECTS = (
    "Records and the view",
    "Requests and their price",
    "Compaction",
    "Memory and instructions",
    "Search and recall",
    "Security",
    "The agent",
    "The gateway",
    "Stores for many machines",
    "Other programs' histories",
    "The library and the house",
)
MOST_CHARS = 140  # of a decision in one line
_FIELD = re.compile(r"^- \*\*([A-Z][a-z ]+)\*\*: (.+)$", re.M)
_STATE = re.compile(r"proposed|accepted(?:; .+)?|replaced by \[ADR \d{4}\]\(\d{4}-[^)]+\.md\)")
_HEAD = """\
# Decisions

Why Perdure is as it is: one decision a page, with what else was looked at, what it costs, and what would change our
mind. A decision is not rewritten when a later one changes it; its state says what of it still holds.
"""
_FOOT = """
This page is written by `make house ARGS=--decisions` from the heads of the records. A new one begins as a copy of the
[template](0000-template.md), and takes the next free number.
"""


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """The head of a decision record."""

    number: int
    file: str
    title: str
    state: str
    subject: str
    short: str


class BadRecord(ValueError):
    """A record whose head doesn't say what the index needs."""


def record_in(path: Path) -> DecisionRecord:
    """The head of a record. Raises `BadRecord` with what is missing."""
    head = path.read_text(encoding="utf-8").partition("\n## ")[0]
    title = re.match(rf"# ADR {path.name[:4]}: (.+)", head)
    fields = dict(_FIELD.findall(head))
    wrong = []
    if title is None:
        wrong.append(f"its first line has to be `# ADR {path.name[:4]}: what was decided`")
    if not _STATE.fullmatch(fields.get("Status", "")):
        wrong.append("it needs `- **Status**: accepted` (or proposed, or replaced by a link)")
    if fields.get("Subject") not in SUBJECTS:
        wrong.append(f"it needs `- **Subject**: …`, one of: {', '.join(SUBJECTS)}")
    if not 0 < len(fields.get("In short", "")) <= MOST_CHARS:
        wrong.append(f"it needs `- **In short**: …`, the decision in at most {MOST_CHARS} characters")
    if wrong or title is None:
        raise BadRecord(f"{path.name}: {'; '.join(wrong)}; then `make house ARGS=--decisions`")
    number, state = int(path.name[:4]), fields["Status"]
    return DecisionRecord(
        number, path.name, title[1][:1].upper() + title[1][1:], state, fields["Subject"], fields["In short"]
    )


def records(folder: Path = FOLDER) -> list[DecisionRecord]:
    """All records of a folder by number, but for the template. Raises `BadRecord`."""
    return [record_in(path) for path in sorted(folder.glob("[0-9]*.md")) if not path.name.startswith("0000")]


def index_of(found: Sequence[DecisionRecord]) -> str:
    """The page."""
    lines = [_HEAD]
    for subject in SUBJECTS:
        mine = [one for one in found if one.subject == subject]
        if mine:
            lines += [f"## {subject}\n", "| no. | decision | in short | state |", "|---|---|---|---|"]
            lines += [
                f"| {one.number:04} | [{_cell(one.title)}]({one.file}) | {_cell(one.short)} | {_state(one)} |"
                for one in mine
            ]
            lines.append("")
    if skipped := _skipped({one.number for one in found}):
        lines.append(f"Numbers that no decision has: {', '.join(f'{number:04}' for number in skipped)}.")
    return "\n".join(lines) + "\n" + _FOOT


def _state(one: DecisionRecord) -> str:
    """The state as a reader wants it: `holds`, and with what a later decision changed."""
    said = one.state.replace("accepted", "holds", 1) if one.state.startswith("accepted") else one.state
    return _cell(re.sub(r"\[ADR (\d{4})\]", r"[\1]", said))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _skipped(numbers: set[int]) -> list[int]:
    return sorted(set(range(1, max(numbers, default=0))) - numbers)
