"""The notes of a session: a Markdown file of sections as a value, and how long they may be (SM-1, SM-4, SM-6)."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Literal

from perdure import prompts
from perdure.errors import BadSetting
from perdure.transcript.tokens import UNITS_PER_TOKEN, base_tokens

MARK = "<!-- filled by Perdure from the session; lines of your own go above this one"

_VARIABLE = re.compile(r"\{\{\s*(\w+)\s*\}\}")
_HEADING = re.compile(r"# +(\S.*?)\s*#*\s*")
_ITALIC = re.compile(r"_[^_].*_|\*[^*\s].*\*")
_NAMES = re.escape(MARK).replace("Perdure", "(?:Perdure|Holdfast)")  # 0.1's name
_MARKED = re.compile(_NAMES + r"(?: \((\w+)\))? -->")
_FENCE = re.compile(r"\s{0,3}(```|~~~)")

NotesState = Literal["missing", "emptied", "broken", "template", "written"]


@dataclass(frozen=True, slots=True)
class NotesSection:
    """`about` is its description as it stands; `own` what was written; `filled` what code put there, line by line."""

    title: str
    about: str = ""
    own: str = ""
    filled: tuple[str, ...] = ()
    seal: str = field(default="", compare=False)  # the checksum in the mark, as it was read

    @property
    def body(self) -> str:
        """All that it says, without its description."""
        return "\n".join(part for part in (self.own, "\n".join(self.filled)) if part)


@dataclass(frozen=True, slots=True)
class Notes:
    """The sections in their order; `lead` is what stands before the first."""

    sections: tuple[NotesSection, ...] = ()
    lead: str = ""

    def section(self, title: str) -> NotesSection | None:
        return next((one for one in self.sections if one.title == title), None)


def template() -> str:
    """The template that ships: ten sections."""
    return prompts.source("notes_template") + "\n"


# --- text to value and back -----------------------------------------------------------------------------------------


def parse(text: str) -> Notes:
    """The notes that a text holds. Any text has a reading; a heading inside a code fence is none."""
    lines = [line.rstrip("\r") for line in text.split("\n")]  # as Windows ends them, also twice over
    heads, is_open = _heads(lines, fences=True)
    if is_open:  # a fence that nobody closed would swallow every section behind it
        heads, _ = _heads(lines, fences=False)
    starts = [*heads, len(lines)]
    sections = tuple(_section(lines[start:end]) for start, end in pairwise(starts))
    return Notes(sections, _trimmed(lines[: starts[0]]))


def _heads(lines: list[str], *, fences: bool) -> tuple[list[int], bool]:
    heads, fence = [], ""
    for index, line in enumerate(lines):
        mark = _FENCE.match(line) if fences else None
        if mark and (not fence or fence == mark[1]):
            fence = "" if fence else mark[1]
        elif not fence and _HEADING.fullmatch(line):
            heads.append(index)
    return heads, bool(fence)


def _section(lines: list[str]) -> NotesSection:
    found = _HEADING.fullmatch(lines[0])
    assert found is not None
    rest = lines[1:]
    while rest and not rest[0].strip():
        rest = rest[1:]
    about = rest[0].strip() if rest and _ITALIC.fullmatch(rest[0].strip()) else ""
    rest = rest[1:] if about else rest
    marks = [(index, match) for index, line in enumerate(rest) if (match := _MARKED.fullmatch(line.strip()))]
    mark, seal = (marks[0][0], marks[0][1][1] or "") if marks else (len(rest), "")
    filled = tuple(line for line in rest[mark + 1 :] if line.strip() and not _MARKED.fullmatch(line.strip()))
    return NotesSection(found[1], about, _trimmed(rest[:mark]), filled, seal)


def _trimmed(lines: list[str]) -> str:
    return "\n".join(lines).strip("\n").rstrip()


def render(notes: Notes) -> str:
    """The notes as the file holds them."""
    parts = [notes.lead] if notes.lead else []
    for one in notes.sections:
        lines = [f"# {one.title}", *([one.about] if one.about else [])]
        lines += ["", one.own] if one.own else []
        lines += ["", f"{MARK} ({lines_checksum(one.filled)}) -->", *one.filled] if one.filled else []
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def lines_checksum(lines: Sequence[str]) -> str:
    """The checksum of lines below a mark."""
    text = "\n".join(lines)
    return f"{zlib.crc32(text.encode('utf-8', 'replace')):08x}"


# --- what state a file is in ----------------------------------------------------------------------------------------


def notes_state(text: str | None, form: Notes) -> NotesState:
    """What a file is: not there, emptied by hand, broken (no section of the template is left), untouched, or written.

    None is a file that isn't there; one that isn't text at all is broken, and the caller's to say.
    """
    if text is None:
        return "missing"
    if not text.strip():
        return "emptied"
    notes = parse(text)
    titles = {one.title for one in form.sections}
    if not any(one.title in titles for one in notes.sections):
        return "broken"
    return "template" if is_template(notes, form) else "written"


def is_template(notes: Notes, form: Notes) -> bool:
    """Whether nothing was written yet: every section says what the template has it say."""
    if notes.lead not in ("", form.lead):
        return False
    given = {one.title: one.body for one in form.sections}
    return all(one.body in ("", given.get(one.title, "")) for one in notes.sections)


def completed_notes(notes: Notes, form: Notes) -> tuple[Notes, tuple[str, ...]]:
    """The notes with every section and description of the template, and the titles of those that had to come back."""
    sections, back = list(notes.sections), []
    place = 0
    for wanted in form.sections:
        index = next((i for i, one in enumerate(sections) if one.title == wanted.title), None)
        if index is None:
            sections.insert(place, replace(wanted, own="", filled=()))
            back.append(wanted.title)
            place += 1
            continue
        if wanted.about and not sections[index].about:
            sections[index] = replace(sections[index], about=wanted.about)
            back.append(wanted.title)
        place = index + 1
    return Notes(tuple(sections), notes.lead), tuple(back)


# --- filling by code ------------------------------------------------------------------------------------------------


def fill_lines(notes: Notes, lines: Mapping[str, tuple[str, ...]], before: Notes | None) -> Notes:
    """The notes with other lines below the marks. `before`: what code left there, None when that isn't known.

    A line below a mark that code didn't write was written by somebody: it moves above the mark, and stays (SM-6).
    """
    return Notes(tuple(_filled(one, lines.get(one.title, ()), before) for one in notes.sections), notes.lead)


def adopt_filled(notes: Notes) -> Notes:
    """The notes as a model is given them: what code filled in is text like any other, to be rewritten or left out."""
    return Notes(tuple(replace(one, own=one.body, filled=(), seal="") for one in notes.sections), notes.lead)


def _filled(one: NotesSection, lines: tuple[str, ...], before: Notes | None) -> NotesSection:
    old = before.section(one.title) if before is not None else None
    known = {*lines, *(old.filled if old is not None else ())}
    is_ours = one.seal == lines_checksum(one.filled)
    strange = [] if is_ours else [line for line in one.filled if line not in known]
    own = "\n".join(part for part in (one.own, *strange) if part)
    said = set(own.split("\n"))
    return replace(one, own=own, filled=tuple(line for line in lines if line not in said))


# --- templates and prompts of the user's ----------------------------------------------------------------------------


def fill(text: str, values: Mapping[str, str], *, where: str) -> str:
    """A prompt with its variables filled. An unknown one is a `BadSetting` that names it; `where` starts the error."""
    for name in _VARIABLE.findall(text):
        if name not in values:
            known = ", ".join(f"{{{{{one}}}}}" for one in values)
            raise BadSetting(f"{where}: unknown variable {{{{{name}}}}}; known are {known}")
    return _VARIABLE.sub(lambda found: values[found[1]], text)


def form_of(text: str | None, *, where: str = "template.md") -> Notes:
    """The template as a value: the user's, else the one that ships. One without a section is a `BadSetting`."""
    form = parse(text if text is not None else template())
    if not form.sections:
        raise BadSetting(f"{where}: holds no section; begin each with a line such as `# Current State`")
    return form


LAST_TO_GO = ("Current State", "Errors & Corrections")
NEWEST_LAST = frozenset({"Worklog"})  # of these the end counts, of the others the beginning


@dataclass(frozen=True, slots=True)
class NotesBudget:
    """Tokens that a section and the whole file may take."""

    section_tokens: int = 2_000
    file_tokens: int = 12_000


def section_tokens(one: NotesSection) -> int:
    """What a section takes, without its heading and description."""
    return base_tokens(one.body)


def oversized_sections(notes: Notes, budget: NotesBudget) -> str:
    """What a model is told to trim, with sizes; nothing while all is within the budgets."""
    sizes = {one.title: section_tokens(one) for one in notes.sections}
    total, lines = sum(sizes.values()), []
    large = sorted(((size, title) for title, size in sizes.items() if size > budget.section_tokens), reverse=True)
    lines += [f"- {title}: {size:,} tokens, allowed {budget.section_tokens:,}" for size, title in large]
    if total > budget.file_tokens:
        lines.append(f"- the whole file: {total:,} tokens, allowed {budget.file_tokens:,}")
        if not large:
            largest = sorted(((size, title) for title, size in sizes.items()), reverse=True)[:3]
            lines += [f"- {title}: {size:,} tokens" for size, title in largest]
    if not lines:
        return ""
    last = " and ".join(LAST_TO_GO)
    return "\n".join(("Too long, and to be shortened now; shorten " + last + " last:", *lines))


def update_prompt(
    notes: Notes, budget: NotesBudget, path: str, custom: str | None = None, *, has_tool: bool = True
) -> str:
    """What a model is asked that updates the notes: our prompt, or the user's `prompt.md` with its variables filled.

    How edits are made is always ours to say: by the tool Edit, or as text where the conversation has no such tool.
    """
    how = prompts.source("notes_by_tool" if has_tool else "notes_by_text")
    values = {
        "currentNotes": render(notes).rstrip("\n"),
        "notesPath": path,
        "sectionTokens": f"{budget.section_tokens:,}",
        "fileTokens": f"{budget.file_tokens:,}",
        "oversized": oversized_sections(notes, budget),
    }
    if custom is not None:
        return f"{fill(custom, values, where='prompt.md').rstrip()}\n\n{how}"
    return prompts.render("notes_update", **values, how=how).rstrip()


def for_record(notes: Notes, budget: NotesBudget, path: str) -> str:
    """The notes as a compaction takes them in: what they say, within the budgets, and where the whole file is."""
    texts = {one.title: one.body for one in notes.sections if one.body.strip()}
    texts = {title: _cut(title, text, budget.section_tokens, path) for title, text in texts.items()}
    head = f"All of it stands in {path}."
    over = base_tokens(_joined(head, texts)) - budget.file_tokens
    last = [title for title in LAST_TO_GO if title in texts]
    for title in (*reversed([title for title in texts if title not in last]), *reversed(last)):
        if over <= 0:
            break
        size = base_tokens(texts[title])
        texts[title] = _cut(title, texts[title], max(0, size - over), path)
        over = base_tokens(_joined(head, texts)) - budget.file_tokens
    return _joined(head, texts)


def _joined(head: str, texts: dict[str, str]) -> str:
    return "\n\n".join((head, *(f"### {title}\n{text}" for title, text in texts.items())))


def _cut(title: str, text: str, tokens: int, path: str) -> str:
    """The text within so many tokens, at line ends, with a line that says where the rest is."""
    if base_tokens(text) <= tokens:
        return text
    note = f"[cut here; the rest of this section stands in {path}]"
    room = tokens - base_tokens(note) - 1
    is_newest_last = title in NEWEST_LAST
    lines = text.split("\n")
    kept: list[str] = []
    for line in reversed(lines) if is_newest_last else lines:
        cost = base_tokens(line + "\n")
        if cost > room:
            part = _clipped(line, room) if not kept else ""
            kept += [part] if part else []
            break
        kept.append(line)
        room -= cost
    return "\n".join((note, *reversed(kept)) if is_newest_last else (*kept, note))


def _clipped(line: str, tokens: int) -> str:
    """The beginning of a line that is too long alone."""
    part = line[: max(0, tokens) * UNITS_PER_TOKEN]
    while part and base_tokens(part) > tokens:
        part = part[: len(part) * 9 // 10]
    return part
