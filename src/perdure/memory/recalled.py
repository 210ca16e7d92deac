"""Memories as the model is shown them, and how one is asked which of them matter (MEM-4, MEM-5)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from perdure import prompts
from perdure.memory.files import Topic
from perdure.memory.retrieval import DAY_SECONDS, MemoryCard
from perdure.transcript.tokens import UNITS_PER_TOKEN, base_tokens

FRESH_DAYS = 1  # younger ones needn't be checked against what changed since
QUERY_CHARS = 4_000  # of what the user said goes to a model that chooses
DESCRIPTION_CHARS = 200

_HEAD = re.compile(r"^## (?P<file>.+)\n\([^\n]*; saved (?P<at>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)[^\n]*\)$", re.MULTILINE)
_END = "\n</system-reminder>"
_OBJECT = re.compile(r"\{.*\}|\[.*\]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class RecalledMemory:
    """A memory to be shown: what it says, and when it was saved (seconds since the epoch)."""

    topic: Topic
    modified: float


def recalled_text(one: RecalledMemory, *, now: float, budget_tokens: int, source: str = "") -> str:
    """A memory with where it is from and how old it is, its body within so many tokens (MEM-5)."""
    topic = one.topic
    kind = f"memory of the type {topic.type}" if topic.type else "memory"  # what it is about, not whose word it is
    where = f", {source}" if source else ""
    head = f"## {_one_line(topic.file)}\n({kind}{where}; saved {_iso(one.modified)}: {age(now - one.modified)})"
    older = (
        f"(supersedes {', '.join(map(_one_line, topic.supersedes))}, which holds no more)" if topic.supersedes else ""
    )
    holds = f"(holds {topic.scope})" if topic.scope else ""
    about = (topic.name, topic.description if topic.has_front_matter else "", older, holds)
    lead = "\n".join(text for text in about if text)
    return f"{head}\n\n{lead}\n\n{cut_body(topic, budget_tokens)}".rstrip()


def age(seconds: float) -> str:
    """How old a memory is, in words, and what follows from that."""
    days = int(max(0.0, seconds) // DAY_SECONDS)
    if days < FRESH_DAYS:
        return "saved today"
    ago = "1 day" if days == 1 else f"{days:,} days"
    return f"saved {ago} ago; check files and functions it names before relying on it"


def cut_body(topic: Topic, budget_tokens: int) -> str:
    """The body, cut at a line end when it is too long, with a notice that says so and where the rest is."""
    if base_tokens(topic.body) <= budget_tokens:
        return topic.body
    notice = f"[Cut here: {base_tokens(topic.body):,} tokens in all. Read {_one_line(topic.file)} for the rest.]"
    room = max(0, budget_tokens - base_tokens(notice) - 1) * UNITS_PER_TOKEN
    head = topic.body[:room]
    while head and base_tokens(f"{head}\n{notice}") > budget_tokens:  # characters that count as two
        head = head[: len(head) * 9 // 10]
    kept = head[: head.rfind("\n")] if "\n" in head else head
    return f"{kept}\n{notice}"


def memories_told(text: str) -> dict[str, float]:
    """Which memories a text of ours showed, and as of when."""
    found = {}
    for head in _HEAD.finditer(text):
        found[head["file"]] = datetime.strptime(head["at"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()
    return found


def index_told(texts: Iterable[str], put_back: str | None = None) -> str | None:
    """The index as texts of ours told it, in their order: shown whole, put back, changed. None: they show none.

    `put_back` is what a compaction put back, where that is known; the text that shows it may be cut. The lines are
    those that were told; after a change they are not in the order of the file.
    """
    shown, changes = _lead("memory_index"), _lead("memory_index_changed")
    back = _lead("restored_memory")
    lines: list[str] | None = None
    for text in texts:
        text = text.removesuffix(_END)
        if shown in text:
            lines = text.partition(shown)[2].partition("\n\n")[2].split("\n")
        elif back in text:
            lines = (put_back or text.partition(back)[2].strip("\n")).split("\n")
        elif lines is not None and changes in text:
            for line in text.partition(changes)[2].split("\n"):
                lines = [one for one in lines if one != line[2:]] if line.startswith("- ") else lines
                lines += [line[2:]] if line.startswith("+ ") else []
    return None if lines is None else "\n".join(lines)


def _lead(name: str) -> str:
    """The words with which a text of this prompt begins, before anything is filled in."""
    return prompts.source(name).partition("\n")[0].partition("{{")[0]


# --- a model that chooses ---------------------------------------------------------------------------------------------


def selection_prompt(query: str, cards: Sequence[MemoryCard], tools: Sequence[str]) -> str:
    """What a model is asked: the question, and a line for each memory it may choose."""
    lines = []
    for card in cards:
        about = _one_line(card.description)[:DESCRIPTION_CHARS]
        lines.append(f"- {_one_line(card.file)} [{card.type or 'untyped'}] {_one_line(card.name)}: {about}")
    return prompts.render(
        "memory_select",
        query=query[:QUERY_CHARS],
        tools=", ".join(dict.fromkeys(tools)) or "none",
        memories="\n".join(lines),
    )


def selection(answer: str, cards: Mapping[str, MemoryCard], limit: int) -> tuple[str, ...] | None:
    """The files that a model chose, in its order; None when its answer can't be read.

    Names that don't exist are ignored. When it named only such, it misread the list: that is no answer either.
    """
    found = _OBJECT.search(answer)
    try:
        value = msgspec.json.decode(found[0].encode()) if found else None
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None
    named = value.get("files") if isinstance(value, dict) else value
    if not isinstance(named, list) or not all(isinstance(one, str) for one in named):
        return None
    known = tuple(dict.fromkeys(one for one in named if one in cards))[:limit]
    return None if named and not known else known


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _iso(at: float) -> str:
    return datetime.fromtimestamp(int(at), UTC).isoformat().replace("+00:00", "Z")
