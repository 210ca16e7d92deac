"""Putting a memory directory in order, as a plan of changes: duplicates, dates, the index, what is dead (MEM-11). Pure.

Nothing that a memory says is lost: each line of the files that go is in the file that stays, or listed as dropped with
the reason. What isn't sure is left as it is, and said.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from holdfast.memory.changes import Batch, Delete, Origin, Save, is_conflict, least_trusted
from holdfast.memory.contents import Limits, entries, fits, normalised
from holdfast.memory.directory import is_memory
from holdfast.memory.frontmatter import front_matter
from holdfast.memory.retrieval.words import terms
from holdfast.memory.topics import INDEX, Topic, topic
from holdfast.memory.upkeep.dates import absolute
from holdfast.memory.upkeep.saving import index_line

SAME_SHARE = 0.9  # of the terms of either of two memories, in the other: they say the same
LEAST_TERMS = 4  # shorter ones are alike by chance
SHORT_LINE = 110  # of an index that is over its budget
FEW_DEAD = 3  # lines of an index without a file: that many are taken out …
DEAD_SHARE = 0.25  # … or this share of them; of more it is only said
OLDER = "older_memories.md"  # where lines of the index go that don't fit
NAME = "consolidation"
_LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
_STAMPED = re.compile(r"\d{4}-\d\d-\d\d")


@dataclass(frozen=True, kw_only=True)
class Kept:
    """A file of the directory: what it says, when that was last said (seconds), and on whose word."""

    name: str
    text: str
    at: float
    is_dated: bool = True  # whether `at` is known for certain, so that dates may follow from it
    origin: Origin = "assistant"

    @cached_property
    def topic(self) -> Topic:
        return topic(self.name, self.text)


@dataclass(frozen=True, slots=True)
class Dropped:
    """A line that isn't in the result, and why."""

    file: str
    line: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is to be done. `texts` are the files that are written or, with None, removed; `origins` whose word they are.

    `merged` says into which file another went. `left` are findings that nobody should act on unseen.
    """

    texts: Mapping[str, str | None] = field(default_factory=dict)
    origins: Mapping[str, Origin] = field(default_factory=dict)
    merged: Mapping[str, str] = field(default_factory=dict)
    dropped: tuple[Dropped, ...] = ()
    left: tuple[str, ...] = ()

    def batch(self, files: Mapping[str, Kept]) -> Batch | None:
        """The changes, to be made together; None when there are none."""
        changes: list[Save | Delete] = []
        for name, text in sorted(self.texts.items()):
            base = files[name].text if name in files else None
            if text is None and base is not None:
                changes.append(Delete(name=name, base=base))
            elif text is not None and text != base:
                changes.append(Save(name=name, text=text, base=base))
        origins = tuple(self.origins.get(one.name, "assistant") for one in changes)
        return Batch(name=NAME, changes=tuple(changes), origins=origins) if changes else None


def ordered(files: Mapping[str, Kept], limits: Limits) -> Order:
    """All that can be done without a model."""
    order = indexed(files, dated(files, deduplicated(files, Order())), limits)
    return replace(order, left=(*order.left, *_findings(files, order)))


def standing(files: Mapping[str, Kept], order: Order) -> dict[str, Kept]:
    """The files as they are once an order is carried out."""
    now = {name: one for name, one in files.items() if order.texts.get(name, "") is not None}
    for name, text in order.texts.items():
        if text is not None:
            old = files.get(name)
            origin = order.origins.get(name, old.origin if old else "assistant")
            at, is_dated = (old.at, old.is_dated) if old else (0.0, False)
            now[name] = Kept(name=name, text=text, at=at, is_dated=is_dated, origin=origin)
    return now


# --- duplicates -----------------------------------------------------------------------------------------------------


def deduplicated(files: Mapping[str, Kept], order: Order) -> Order:
    """Memories that say the same become one: that with more to say, of equals the one named in the index, the older."""
    named = {_in(name, entry.file) for name, one in files.items() if _is_index(name) for entry in entries(one.text)}
    memories = [one for name, one in files.items() if is_memory(name) and not is_conflict(name) and name != OLDER]
    memories.sort(key=lambda one: (-len(one.topic.body), one.name not in named, one.at, one.name))
    seen: list[tuple[Kept, dict[str, int]]] = []
    for one in memories:
        said = _said(one)
        twin = next((other for other, terms_ in seen if _is_same(one, said, other, terms_)), None)
        if twin is None:
            seen.append((one, said))
        else:
            order = merged(files, order, twin.name, one)
    return order


def _said(one: Kept) -> dict[str, int]:
    return dict(terms(f"{one.topic.name}\n{one.topic.body}"))


def _is_same(one: Kept, said: Mapping[str, int], other: Kept, others: Mapping[str, int]) -> bool:
    """Whether two files of one folder and type say the same, alike also in words that turn a meaning round."""
    if one.name.rpartition("/")[0] != other.name.rpartition("/")[0] or one.topic.type != other.topic.type:
        return False
    if _plain(one.topic.body) == _plain(other.topic.body):
        return bool(_plain(one.topic.body))
    if len(said) >= LEAST_TERMS and _lines(one) <= _lines(other):
        return True
    shared = said.keys() & others.keys()
    alike = min(len(shared) / max(1, len(said)), len(shared) / max(1, len(others)))
    return alike >= SAME_SHARE and len(shared) >= LEAST_TERMS and _turns(one) == _turns(other)


def _lines(one: Kept) -> set[str]:
    return {plain for line in one.topic.body.split("\n") if (plain := _plain(line))}


def _turns(one: Kept) -> tuple[frozenset[str], frozenset[str]]:
    """The words that turn a meaning round, and the numbers: where they differ, two texts contradict one another."""
    words = re.findall(r"\b(?:not|no|never|don'?t|always|only|without|except|until|before|after)\b", one.text.lower())
    return frozenset(words), frozenset(re.findall(r"\d+(?:[.:-]\d+)*", one.topic.body))


def merged(files: Mapping[str, Kept], order: Order, into: str, gone: Kept) -> Order:
    """One memory goes into another: the lines that the other hasn't are put behind its own."""
    text = order.texts.get(into) or files[into].text
    known = {_plain(line) for line in text.split("\n")}
    front = front_matter(gone.text)
    more, dropped = [], list(order.dropped)
    for line in front.body.strip("\n").split("\n"):
        if not _plain(line) or _plain(line) in known:
            dropped += [Dropped(gone.name, line, f"stands in {into}")] if _plain(line) else []
        else:
            more.append(line)
    description = gone.topic.description if gone.topic.has_front_matter else ""
    if description and _plain(description) not in known and not set(terms(description)) <= set(terms(text)):
        more.append(description)
    new = f"{text.rstrip()}\n\n" + "\n".join(more) + "\n" if more else text
    origin = least_trusted((order.origins.get(into, files[into].origin), gone.origin))
    return replace(
        order,
        texts={**order.texts, gone.name: None} | ({into: new} if more else {}),
        origins={**order.origins, into: origin, gone.name: origin},
        merged={**order.merged, gone.name: into},
        dropped=tuple(dropped),
    )


def _plain(line: str) -> str:
    """A line as it counts: without decoration, case and blanks."""
    return " ".join(re.sub(r"^[\s>*+#-]+|[*_`]+", "", line).split()).rstrip(".").lower()


# --- dates ----------------------------------------------------------------------------------------------------------


def dated(files: Mapping[str, Kept], order: Order) -> Order:
    """Relative dates become dates, as of the day that the memory says, or was last written on."""
    texts, origins, left = dict(order.texts), dict(order.origins), list(order.left)
    for name, one in standing(files, order).items():
        if not is_memory(name) or name == OLDER:
            continue
        text = "\n".join(absolute(line, one.at) if not _STAMPED.search(line) else line for line in one.text.split("\n"))
        if text != one.text and not one.is_dated:
            left.append(f"{name}: says when by relative dates, and nothing says of which day")
        elif text != one.text:
            texts[name], origins[name] = text, one.origin
    return replace(order, texts=texts, origins=origins, left=tuple(left))


# --- the index ------------------------------------------------------------------------------------------------------


def indexed(files: Mapping[str, Kept], order: Order, limits: Limits) -> Order:
    """The index of each folder that has one, and of the top: no dead or double lines, one a memory, in budget."""
    now = standing(files, order)
    for name, one in now.items():
        if is_memory(name) and not one.topic.body.strip() and not one.topic.has_front_matter:
            order = replace(order, texts={**order.texts, name: None}, origins={**order.origins, name: one.origin})
    now = standing(files, order)
    folders = {name.rpartition("/")[0] for name in now if _is_index(name)}
    folders |= {""} if any(is_memory(name) and "/" not in name for name in now) else set()
    for folder in sorted(folders):
        order = _index(folder, now, order, limits)
    return order


def _index(folder: str, now: Mapping[str, Kept], order: Order, limits: Limits) -> Order:
    name, older = (f"{folder}/{one}" if folder else one for one in (INDEX, OLDER))
    old = now[name].text if name in now else ""
    lines, dropped = list[str](), list(order.dropped)
    known: set[str] = {_in(older, entry.file) for entry in entries(now[older].text)} if older in now else set()
    known.add(older)
    has_older = older in now
    dead = _dead(name, old, now, order)
    for line in old.rstrip().split("\n") if old else ():
        named = [_in(name, entry.file) for entry in entries(line)]
        gone = [one for one in named if one in dead]
        again = [one for one in named if one in known and one != older and (line in lines or _hookless(line))]
        if named and len(gone) + len(again) == len(named):
            why = f"{gone[0]} isn't there" if gone else f"{again[0]} has a line already"
            dropped.append(
                Dropped(name, line, f"in {order.merged[gone[0]]} now" if gone and gone[0] in order.merged else why)
            )
            continue
        known |= set(named)
        lines.append(line)
    new = [one for n, one in sorted(now.items()) if n.rpartition("/")[0] == folder and is_memory(n) and n not in known]
    lines += [index_line(one.topic) for one in new if not is_conflict(one.name)]
    text = "\n".join(lines) + "\n"
    moved: list[str] = []
    if not fits(normalised(text), limits):
        lines, moved = _within(lines, now, folder, limits)
        text = "\n".join(lines) + "\n"
    texts = dict(order.texts)
    if moved:
        before = now[older].text if has_older else _OLDER_HEAD
        texts[older] = f"{before.rstrip()}\n" + "\n".join(moved) + "\n"
    if text != old and (lines or name in now):
        texts[name] = text
    return replace(order, texts=texts, dropped=tuple(dropped))


def _dead(name: str, index: str, now: Mapping[str, Kept], order: Order) -> set[str]:
    """Files that an index names and that aren't there. Where many are missing, the directory is rather not complete."""
    files = {
        _in(name, entry.file) for entry in entries(index) if entry.file.endswith(".md") and "://" not in entry.file
    }
    gone = {one for one in files if one not in now and not one.startswith(("/", "..", "~"))}
    ours = {one for one in gone if one in order.texts}
    return gone if len(gone - ours) <= max(FEW_DEAD, len(files) * DEAD_SHARE) else ours


def _hookless(line: str) -> bool:
    return not any(entry.hook for entry in entries(line))


_OLDER_HEAD = "---\nname: Older memories\ndescription: Lines that don't fit into the index\ntype: reference\n---\n\n"


def _within(lines: list[str], now: Mapping[str, Kept], folder: str, limits: Limits) -> tuple[list[str], list[str]]:
    """An index within its budget: long lines cut at a word, then the lines of the oldest files moved out of it."""
    lines = [_short(line) if entries(line) else line for line in lines]
    moved: list[str] = []

    def at(line: str) -> float:
        name = _in(f"{folder}/{INDEX}" if folder else INDEX, entries(line)[0].file)
        return now[name].at if name in now else 0.0

    oldest = sorted((line for line in lines if entries(line)), key=at)
    link = f"- [Older memories]({OLDER}) — lines that don't fit here"
    lines = [line for line in lines if not line.startswith("- [Older memories](")]
    while oldest and not fits(normalised("\n".join((*lines, link))), limits):
        line = oldest.pop(0)
        if line in lines:
            lines.remove(line)
            moved.append(line)
    return ([*lines, link] if moved or OLDER in now else lines), moved


def _short(line: str) -> str:
    if len(line) <= SHORT_LINE:
        return line
    end = line.find(")") + 1
    return line[: max(end, SHORT_LINE - 2)].rsplit(" ", 1)[0] + " …" if end < SHORT_LINE else line[:end]


def _is_index(name: str) -> bool:
    return name.rpartition("/")[2] == INDEX


def _in(index: str, file: str) -> str:
    """The name of a file that an index names."""
    folder = index.rpartition("/")[0]
    return f"{folder}/{file}" if folder else file


# --- what is left ---------------------------------------------------------------------------------------------------


def _findings(files: Mapping[str, Kept], order: Order) -> Sequence[str]:
    now = standing(files, order)
    found = [f"{name}: a text that couldn't be merged: look at both" for name in sorted(now) if is_conflict(name)]
    for name, one in sorted(now.items()):
        if _is_index(name):
            links = [_in(name, entry.file) for entry in entries(one.text) if entry.file.endswith(".md")]
            found += [
                f"{name}: names {link}, which isn't there" for link in links if "://" not in link and link not in now
            ]
        if not is_memory(name):
            continue
        for link in dict.fromkeys(_LINK.findall(one.topic.body)):
            path = link.split("#")[0].removeprefix("./")
            if (
                path.endswith(".md")
                and not path.startswith(("/", "..", "~"))
                and "://" not in path
                and _in(name, path) not in now
            ):
                into = order.merged.get(_in(name, path))
                found.append(f"{name}: names {path}, which " + (f"is in {into} now" if into else "isn't there"))
    return found
