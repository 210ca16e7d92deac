"""Putting a memory directory in order: duplicates, dates, the index, and memories on one subject made into one
(MEM-11).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import msgspec

from perdure import prompts
from perdure.memory.changes import DeleteMemory, MemoryBatch, Origin, SaveMemory, is_conflict, least_trusted
from perdure.memory.dates import absolute, day_of
from perdure.memory.files import INDEX, TYPES, Topic, topic
from perdure.memory.index_file import IndexLimits, fits_limits, index_entries, normalised_index
from perdure.memory.places import is_memory
from perdure.memory.save import index_line, memory_text
from perdure.memory.scope import MemoryScope
from perdure.text.frontmatter import front_matter
from perdure.text.words import terms

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
class DatedMemory:
    """A file of the directory: what it says, when that was last said (seconds), and on whose word."""

    name: str
    text: str
    at: float
    is_dated: bool = True  # whether `at` is known for certain, so that dates may follow from it
    origin: Origin = "assistant"

    @cached_property
    def topic(self) -> Topic:
        return topic(self.name, self.text)

    @property
    def place(self) -> tuple[str, str | None, MemoryScope]:
        """Its folder, its type and its scope; memories of two places never become one."""
        return self.name.rpartition("/")[0], self.topic.type, self.topic.scope


@dataclass(frozen=True, slots=True)
class DroppedLine:
    """A line that isn't in the result, and why."""

    file: str
    line: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsolidationPlan:
    """What is to be done. `texts` are the files that are written or, with None, removed; `origins` whose word they are.

    `merged` says into which file another went. `left` are findings that nobody should act on unseen.
    """

    texts: Mapping[str, str | None] = field(default_factory=dict)
    origins: Mapping[str, Origin] = field(default_factory=dict)
    merged: Mapping[str, str] = field(default_factory=dict)
    dropped: tuple[DroppedLine, ...] = ()
    left: tuple[str, ...] = ()

    def batch(self, files: Mapping[str, DatedMemory]) -> MemoryBatch | None:
        """The changes, to be made together; None when there are none."""
        changes: list[SaveMemory | DeleteMemory] = []
        for name, text in sorted(self.texts.items()):
            base = files[name].text if name in files else None
            if text is None and base is not None:
                changes.append(DeleteMemory(name=name, base=base))
            elif text is not None and text != base:
                changes.append(SaveMemory(name=name, text=text, base=base))
        origins = tuple(self.origins.get(one.name, "assistant") for one in changes)
        return MemoryBatch(name=NAME, changes=tuple(changes), origins=origins) if changes else None


def plan_consolidation(files: Mapping[str, DatedMemory], limits: IndexLimits) -> ConsolidationPlan:
    """All that can be done without a model."""
    plan = plan_indexed(files, plan_dated(files, plan_deduplicated(files, ConsolidationPlan())), limits)
    return replace(plan, left=(*plan.left, *_findings(files, plan)))


def files_after(files: Mapping[str, DatedMemory], plan: ConsolidationPlan) -> dict[str, DatedMemory]:
    """The files as they are once a plan is carried out."""
    now = {name: one for name, one in files.items() if plan.texts.get(name, "") is not None}
    for name, text in plan.texts.items():
        if text is not None:
            old = files.get(name)
            origin = plan.origins.get(name, old.origin if old else "assistant")
            at, is_dated = (old.at, old.is_dated) if old else (0.0, False)
            now[name] = DatedMemory(name=name, text=text, at=at, is_dated=is_dated, origin=origin)
    return now


# --- duplicates -----------------------------------------------------------------------------------------------------


def plan_deduplicated(files: Mapping[str, DatedMemory], plan: ConsolidationPlan) -> ConsolidationPlan:
    """Memories that say the same become one: that with more to say, of equals the one named in the index, the older."""
    named = {
        _file_named(name, entry.file)
        for name, one in files.items()
        if _is_index(name)
        for entry in index_entries(one.text)
    }
    memories = [one for name, one in files.items() if is_memory(name) and not is_conflict(name) and name != OLDER]
    memories.sort(key=lambda one: (-len(one.topic.body), one.name not in named, one.at, one.name))
    seen: list[tuple[DatedMemory, dict[str, int]]] = []
    for one in memories:
        said = dict(terms(f"{one.topic.name}\n{one.topic.body}"))
        twin = next((other for other, terms_ in seen if _is_same(one, said, other, terms_)), None)
        if twin is None:
            seen.append((one, said))
        else:
            plan = plan_merged(files, plan, twin.name, one)
    return plan


def _is_same(one: DatedMemory, said: Mapping[str, int], other: DatedMemory, others: Mapping[str, int]) -> bool:
    """Whether two files of one folder and type say the same, alike also in words that turn a meaning round."""
    if one.place != other.place:
        return False
    if _plain(one.topic.body) == _plain(other.topic.body):
        return bool(_plain(one.topic.body))
    if len(said) >= LEAST_TERMS and _lines(one) <= _lines(other):
        return True
    shared = said.keys() & others.keys()
    alike = min(len(shared) / max(1, len(said)), len(shared) / max(1, len(others)))
    return alike >= SAME_SHARE and len(shared) >= LEAST_TERMS and _turns(one) == _turns(other)


def _lines(one: DatedMemory) -> set[str]:
    return {plain for line in one.topic.body.split("\n") if (plain := _plain(line))}


def _turns(one: DatedMemory) -> tuple[frozenset[str], frozenset[str]]:
    """The words that turn a meaning round, and the numbers: where they differ, two texts contradict one another."""
    words = re.findall(r"\b(?:not|no|never|don'?t|always|only|without|except|until|before|after)\b", one.text.lower())
    return frozenset(words), frozenset(re.findall(r"\d+(?:[.:-]\d+)*", one.topic.body))


def plan_merged(
    files: Mapping[str, DatedMemory], plan: ConsolidationPlan, into: str, gone: DatedMemory
) -> ConsolidationPlan:
    """One memory goes into another: the lines that the other hasn't are put behind its own."""
    text = plan.texts.get(into) or files[into].text
    known = {_plain(line) for line in text.split("\n")}
    front = front_matter(gone.text)
    more, dropped = [], list(plan.dropped)
    for line in front.body.strip("\n").split("\n"):
        if not _plain(line) or _plain(line) in known:
            dropped += [DroppedLine(gone.name, line, f"stands in {into}")] if _plain(line) else []
        else:
            more.append(line)
    description = gone.topic.description if gone.topic.has_front_matter else ""
    if description and _plain(description) not in known and not set(terms(description)) <= set(terms(text)):
        more.append(description)
    new = f"{text.rstrip()}\n\n" + "\n".join(more) + "\n" if more else text
    origin = least_trusted((plan.origins.get(into, files[into].origin), gone.origin))
    return replace(
        plan,
        texts={**plan.texts, gone.name: None} | ({into: new} if more else {}),
        origins={**plan.origins, into: origin, gone.name: origin},
        merged={**plan.merged, gone.name: into},
        dropped=tuple(dropped),
    )


def _plain(line: str) -> str:
    """A line as it counts: without decoration, case and blanks."""
    return " ".join(re.sub(r"^[\s>*+#-]+|[*_`]+", "", line).split()).rstrip(".").lower()


# --- dates ----------------------------------------------------------------------------------------------------------


def plan_dated(files: Mapping[str, DatedMemory], plan: ConsolidationPlan) -> ConsolidationPlan:
    """Relative dates become dates, as of the day that the memory says, or was last written on."""
    texts, origins, left = dict(plan.texts), dict(plan.origins), list(plan.left)
    for name, one in files_after(files, plan).items():
        if not is_memory(name) or name == OLDER:
            continue
        text = "\n".join(absolute(line, one.at) if not _STAMPED.search(line) else line for line in one.text.split("\n"))
        if text != one.text and not one.is_dated:
            left.append(f"{name}: says when by relative dates, and nothing says of which day")
        elif text != one.text:
            texts[name], origins[name] = text, one.origin
    return replace(plan, texts=texts, origins=origins, left=tuple(left))


# --- the index ------------------------------------------------------------------------------------------------------


def plan_indexed(files: Mapping[str, DatedMemory], plan: ConsolidationPlan, limits: IndexLimits) -> ConsolidationPlan:
    """The index of each folder that has one, and of the top: no dead or double lines, one a memory, in budget."""
    now = files_after(files, plan)
    for name, one in now.items():
        if is_memory(name) and not one.topic.body.strip() and not one.topic.has_front_matter:
            plan = replace(plan, texts={**plan.texts, name: None}, origins={**plan.origins, name: one.origin})
    now = files_after(files, plan)
    folders = {name.rpartition("/")[0] for name in now if _is_index(name)}
    folders |= {""} if any(is_memory(name) and "/" not in name for name in now) else set()
    for folder in sorted(folders):
        plan = _plan_index(folder, now, plan, limits)
    return plan


def _plan_index(
    folder: str, now: Mapping[str, DatedMemory], plan: ConsolidationPlan, limits: IndexLimits
) -> ConsolidationPlan:
    name, older = (f"{folder}/{one}" if folder else one for one in (INDEX, OLDER))
    old = now[name].text if name in now else ""
    lines, dropped = list[str](), list(plan.dropped)
    known: set[str] = (
        {_file_named(older, entry.file) for entry in index_entries(now[older].text)} if older in now else set()
    )
    known.add(older)
    has_older = older in now
    dead = _dead_files(name, old, now, plan)
    for line in old.rstrip().split("\n") if old else ():
        named = [_file_named(name, entry.file) for entry in index_entries(line)]
        gone = [one for one in named if one in dead]
        again = [one for one in named if one in known and one != older and (line in lines or not _has_hook(line))]
        if named and len(gone) + len(again) == len(named):
            why = f"{gone[0]} isn't there" if gone else f"{again[0]} has a line already"
            dropped.append(
                DroppedLine(name, line, f"in {plan.merged[gone[0]]} now" if gone and gone[0] in plan.merged else why)
            )
            continue
        known |= set(named)
        lines.append(line)
    new = [one for n, one in sorted(now.items()) if n.rpartition("/")[0] == folder and is_memory(n) and n not in known]
    lines += [index_line(one.name.rpartition("/")[2], one.topic) for one in new if not is_conflict(one.name)]
    text = "\n".join(lines) + "\n"
    moved: list[str] = []
    if not fits_limits(normalised_index(text), limits):
        lines, moved = _within_limits(lines, now, folder, limits)
        text = "\n".join(lines) + "\n"
    texts = dict(plan.texts)
    if moved:
        before = now[older].text if has_older else _OLDER_HEAD
        texts[older] = f"{before.rstrip()}\n" + "\n".join(moved) + "\n"
    if text != old and (lines or name in now):
        texts[name] = text
    return replace(plan, texts=texts, dropped=tuple(dropped))


def _dead_files(name: str, index: str, now: Mapping[str, DatedMemory], plan: ConsolidationPlan) -> set[str]:
    """Files that an index names and that aren't there. Where many are missing, the directory is rather not complete."""
    files = {
        _file_named(name, entry.file)
        for entry in index_entries(index)
        if entry.file.endswith(".md") and "://" not in entry.file
    }
    gone = {one for one in files if one not in now and not one.startswith(("/", "..", "~"))}
    ours = {one for one in gone if one in plan.texts}
    return gone if len(gone - ours) <= max(FEW_DEAD, len(files) * DEAD_SHARE) else ours


def _has_hook(line: str) -> bool:
    return any(entry.hook for entry in index_entries(line))


_OLDER_HEAD = "---\nname: Older memories\ndescription: Lines that don't fit into the index\ntype: reference\n---\n\n"


def _within_limits(
    lines: list[str], now: Mapping[str, DatedMemory], folder: str, limits: IndexLimits
) -> tuple[list[str], list[str]]:
    """An index within its budget: long lines cut at a word, then the lines of the oldest files moved out of it."""
    lines = [_shortened(line) if index_entries(line) else line for line in lines]
    moved: list[str] = []

    def at(line: str) -> float:
        name = _file_named(f"{folder}/{INDEX}" if folder else INDEX, index_entries(line)[0].file)
        return now[name].at if name in now else 0.0

    oldest = sorted((line for line in lines if index_entries(line)), key=at)
    link = f"- [Older memories]({OLDER}) — lines that don't fit here"
    lines = [line for line in lines if not line.startswith("- [Older memories](")]
    while oldest and not fits_limits(normalised_index("\n".join((*lines, link))), limits):
        line = oldest.pop(0)
        if line in lines:
            lines.remove(line)
            moved.append(line)
    return ([*lines, link] if moved or OLDER in now else lines), moved


def _shortened(line: str) -> str:
    if len(line) <= SHORT_LINE:
        return line
    end = line.find(")") + 1
    return line[: max(end, SHORT_LINE - 2)].rsplit(" ", 1)[0] + " …" if end < SHORT_LINE else line[:end]


def _is_index(name: str) -> bool:
    return name.rpartition("/")[2] == INDEX


def _file_named(index: str, file: str) -> str:
    """The name of a file that an index names."""
    folder = index.rpartition("/")[0]
    return f"{folder}/{file}" if folder else file


# --- what is left ---------------------------------------------------------------------------------------------------


def _findings(files: Mapping[str, DatedMemory], plan: ConsolidationPlan) -> Sequence[str]:
    now = files_after(files, plan)
    found = [f"{name}: a text that couldn't be merged: look at both" for name in sorted(now) if is_conflict(name)]
    for name, one in sorted(now.items()):
        if _is_index(name):
            links = [_file_named(name, entry.file) for entry in index_entries(one.text) if entry.file.endswith(".md")]
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
                and _file_named(name, path) not in now
            ):
                into = plan.merged.get(_file_named(name, path))
                found.append(f"{name}: names {path}, which " + (f"is in {into} now" if into else "isn't there"))
    return found


ALIKE = 0.35  # of the terms of two memories: they may be about one subject
MOST_IN_GROUP = 6
MOST_CHARS = 12_000  # of a group
HELD_SHARE = 0.5  # of the terms of a line, in the line that is said to hold it
NEW_SHARE = 0.2  # of the terms of a result, at most, that no source has
_OBJECT = re.compile(r"\{.*\}", re.DOTALL)

Group = Sequence[DatedMemory]


class _RewrittenLine(msgspec.Struct, frozen=True):
    text: str
    of: list[str] = []


class _RewriteDrop(msgspec.Struct, frozen=True):
    line: str
    reason: str
    newer: str = ""


class _RewriteAnswer(msgspec.Struct, frozen=True):
    keep_apart: bool = False
    into: str = ""
    name: str = ""
    description: str = ""
    lines: list[_RewrittenLine] = []
    dropped: list[_RewriteDrop] = []


_NEGATES = re.compile(
    r"\b(?:no|not|never|don'?t|do not|doesn'?t|isn'?t|aren'?t|won'?t|can'?t|cannot|without|avoid|stop|nor|neither"
    r"|forbid\w*)\b|n['’]t\b|不|别|勿",
    re.IGNORECASE,
)
# How memories are written, whatever they are about: such words make no two of them alike.
FRAMING = frozenset(
    t
    for word in """user users prefer prefers preferred preference preferences wants like likes asked ask project team
    reason why how apply applies application use uses used using rule always work works working role type feedback
    reference name description said says decided decision deadline memory note remember correction corrected new
    explicitly instead rather over today yesterday tomorrow week month""".split()
    for t in terms(word)
)


def overlapping_groups(files: Mapping[str, DatedMemory]) -> list[list[DatedMemory]]:
    """Groups of memories that may be about one subject: of one folder and type, alike in their words."""
    memories = [one for name, one in sorted(files.items()) if is_memory(name) and name.rpartition("/")[2] != OLDER]
    # The front matter of a text made of several would have no room for what each of these says there.
    memories = [one for one in memories if not (one.topic.supersedes or one.topic.is_pinned or one.topic.scope)]
    said = {
        one.name: set(terms(f"{one.topic.name} {one.topic.description} {one.topic.body}")) - FRAMING for one in memories
    }
    groups: list[list[DatedMemory]] = []
    for one in memories:
        for group in groups:
            first = group[0]
            mine, theirs = said[one.name], said[first.name]
            is_alike = len(mine & theirs) >= ALIKE * max(1, min(len(mine), len(theirs)))
            is_near = one.place == first.place
            size = sum(len(other.text) for other in group) + len(one.text)
            if is_alike and is_near and len(group) < MOST_IN_GROUP and size <= MOST_CHARS:
                group.append(one)
                break
        else:
            groups.append([one])
    return [group for group in groups if len(group) > 1]


def question(group: Group) -> str:
    """What a model is asked: the memories with their dates, each line with its number."""
    parts = []
    for number, one in enumerate(group, 1):
        head = f"## {number}. {one.name} (last written {day_of(one.at).isoformat()}): {one.topic.name}"
        parts.append(
            "\n".join(
                (
                    head,
                    *(f"{key} {line}" for key, (_, line) in _numbered(group).items() if key.startswith(f"{number}.")),
                )
            )
        )
    return prompts.render("memory_consolidate", memories="\n\n".join(parts))


def _numbered(group: Group) -> dict[str, tuple[DatedMemory, str]]:
    """Every line of the group that says something, by its number."""
    found: dict[str, tuple[DatedMemory, str]] = {}
    for number, one in enumerate(group, 1):
        description = [one.topic.description] if one.topic.has_front_matter and one.topic.description else []
        lines = [line for line in (*description, *one.topic.body.split("\n")) if terms(line)]
        found |= {f"{number}.{n}": (one, line) for n, line in enumerate(lines, 1)}
    return found


def rewritten(group: Group, answer: str, plan: ConsolidationPlan) -> ConsolidationPlan:
    """The plan with what a model answered, if that accounts for every line; else with a word on why it doesn't."""
    names = ", ".join(one.name for one in group)
    found = _OBJECT.search(answer)
    try:
        said = msgspec.json.decode(found[0].encode(), type=_RewriteAnswer) if found else None
    except (msgspec.MsgspecError, UnicodeEncodeError):
        said = None
    if said is None:
        return replace(plan, left=(*plan.left, f"{names}: the model's answer can't be read"))
    if said.keep_apart:
        return plan
    why = _fault_in(group, said)
    if why:
        return replace(plan, left=(*plan.left, f"{names}: the model's answer was refused: {why}"))
    [into] = [one for one in group if one.name == said.into]
    body = "\n".join(line.text for line in said.lines)
    kind = into.topic.type or TYPES[2]
    text = memory_text(name=said.name or into.topic.name, description=said.description, type=kind, body=body)
    origin = least_trusted(one.origin for one in group)
    numbered = _numbered(group)
    others = [one for one in group if one is not into]
    return replace(
        plan,
        texts={**plan.texts, into.name: text, **dict.fromkeys((one.name for one in others), None)},
        origins={**plan.origins, **dict.fromkeys((one.name for one in group), origin)},
        merged={**plan.merged, **dict.fromkeys((one.name for one in others), into.name)},
        dropped=(
            *plan.dropped,
            *(DroppedLine(numbered[d.line][0].name, numbered[d.line][1], d.reason) for d in said.dropped),
        ),
    )


def _fault_in(group: Group, said: _RewriteAnswer) -> str:
    """What is wrong with an answer; nothing when every line is accounted for."""
    numbered = _numbered(group)
    if said.into not in {one.name for one in group}:
        return "it names no memory of the group to stay"
    named = {key for line in said.lines for key in line.of} | {
        key for drop in said.dropped for key in (drop.line, drop.newer) if key
    }
    if unknown := sorted(named - numbered.keys()):
        return f"there is no line {unknown[0]}"
    held = set()
    for line in said.lines:
        now = set(terms(line.text))
        for key in line.of:
            before = set(terms(numbered[key][1]))
            is_turned = bool(_NEGATES.search(numbered[key][1])) != bool(_NEGATES.search(line.text))
            has_numbers = _numbers(numbered[key][1]) <= _numbers(line.text)
            if len(before & now) >= HELD_SHARE * len(before) and has_numbers and not is_turned:
                held.add(key)
    for drop in said.dropped:
        if not drop.reason.strip():
            return f"line {drop.line} is dropped without a reason"
        is_same = any(drop.newer == key for key in held)
        if not is_same or numbered[drop.newer][0].at < numbered[drop.line][0].at:
            return f"line {drop.line} is dropped without newer evidence that stays"
    lost = numbered.keys() - held - {drop.line for drop in said.dropped}
    if lost:
        return f"line {min(lost)} is neither in the result nor dropped"
    sources = set(
        terms(" ".join(line for _, line in numbered.values()) + " " + " ".join(one.topic.name for one in group))
    )
    result = set(terms(f"{said.name} {said.description} " + " ".join(line.text for line in said.lines)))
    if len(result - sources - FRAMING) > NEW_SHARE * len(result):
        return "it says what no memory of the group says"
    return ""


def _numbers(text: str) -> set[str]:
    return set(re.findall(r"\d+(?:[.:-]\d+)*", text))
