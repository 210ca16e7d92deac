"""How long notes may be, and how they are cut for a compaction: by code, section by section (SM-4)."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast import prompts
from holdfast.memory.notes import Notes, Section, fill, render
from holdfast.transcript.tokens import UNITS_PER_TOKEN, base_tokens

LAST_TO_GO = ("Current State", "Errors & Corrections")
NEWEST_LAST = frozenset({"Worklog"})  # of these the end counts, of the others the beginning


@dataclass(frozen=True, slots=True)
class Budget:
    """Tokens that a section and the whole file may take."""

    section_tokens: int = 2_000
    file_tokens: int = 12_000


def section_tokens(one: Section) -> int:
    """What a section takes, without its heading and description."""
    return base_tokens(one.body)


def oversized(notes: Notes, budget: Budget) -> str:
    """What a model is told to trim, with sizes; nothing while all is within the budgets."""
    sizes = {one.title: section_tokens(one) for one in notes.sections}
    total, lines = sum(sizes.values()), []
    large = sorted(((size, title) for title, size in sizes.items() if size > budget.section_tokens), reverse=True)
    lines += [f"- {title}: {size:,} tokens, allowed {budget.section_tokens:,}" for size, title in large]
    if total > budget.file_tokens:
        lines.append(f"- the whole file: {total:,} tokens, allowed {budget.file_tokens:,}")
        if not large:
            lines += [f"- {title}: {size:,} tokens" for size, title in sorted(_pairs(sizes), reverse=True)[:3]]
    if not lines:
        return ""
    last = " and ".join(LAST_TO_GO)
    return "\n".join(("Too long, and to be shortened now; shorten " + last + " last:", *lines))


def _pairs(sizes: dict[str, int]) -> list[tuple[int, str]]:
    return [(size, title) for title, size in sizes.items()]


def update_prompt(notes: Notes, budget: Budget, path: str, custom: str | None = None, *, has_tool: bool = True) -> str:
    """What a model is asked that updates the notes: our prompt, or the user's `prompt.md` with its variables filled.

    How edits are made is always ours to say: by the tool Edit, or as text where the conversation has no such tool.
    """
    how = prompts.source("notes_by_tool" if has_tool else "notes_by_text")
    values = {
        "currentNotes": render(notes).rstrip("\n"),
        "notesPath": path,
        "sectionTokens": f"{budget.section_tokens:,}",
        "fileTokens": f"{budget.file_tokens:,}",
        "oversized": oversized(notes, budget),
    }
    if custom is not None:
        return f"{fill(custom, values, where='prompt.md').rstrip()}\n\n{how}"
    return prompts.render("notes_update", **values, how=how).rstrip()


def for_record(notes: Notes, budget: Budget, path: str) -> str:
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
