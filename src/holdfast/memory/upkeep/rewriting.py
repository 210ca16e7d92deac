"""Memories on one subject, made into one by a model, and the proof that no fact got lost (MEM-11). Pure.

The model gets numbered lines and accounts for each: in which line of the result it is, or why it was dropped. What it
leaves out, adds, or drops without newer evidence makes the whole answer void, and the memories stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec

from holdfast import prompts
from holdfast.memory.changes import least_trusted
from holdfast.memory.directory import is_memory
from holdfast.memory.retrieval.words import terms
from holdfast.memory.topics import TYPES
from holdfast.memory.upkeep.dates import day_of
from holdfast.memory.upkeep.order import OLDER, Dropped, Kept, Order
from holdfast.memory.upkeep.origins import FRAMING, Line
from holdfast.memory.upkeep.saving import memory_text

ALIKE = 0.35  # of the terms of two memories: they may be about one subject
MOST_IN_GROUP = 6
MOST_CHARS = 12_000  # of a group
HELD_SHARE = 0.5  # of the terms of a line, in the line that is said to hold it
NEW_SHARE = 0.2  # of the terms of a result, at most, that no source has
_OBJECT = re.compile(r"\{.*\}", re.DOTALL)

Group = Sequence[Kept]


class _Line(msgspec.Struct, frozen=True):
    text: str
    of: list[str] = []


class _Drop(msgspec.Struct, frozen=True):
    line: str
    reason: str
    newer: str = ""


class _Answer(msgspec.Struct, frozen=True):
    keep_apart: bool = False
    into: str = ""
    name: str = ""
    description: str = ""
    lines: list[_Line] = []
    dropped: list[_Drop] = []


def contested(files: Mapping[str, Kept]) -> list[list[Kept]]:
    """Groups of memories that may be about one subject: of one folder and type, alike in their words."""
    memories = [one for name, one in sorted(files.items()) if is_memory(name) and name.rpartition("/")[2] != OLDER]
    said = {
        one.name: set(terms(f"{one.topic.name} {one.topic.description} {one.topic.body}")) - FRAMING for one in memories
    }
    groups: list[list[Kept]] = []
    for one in memories:
        for group in groups:
            first = group[0]
            is_near = _alike(said[one.name], said[first.name]) >= ALIKE and one.topic.type == first.topic.type
            is_there = one.name.rpartition("/")[0] == first.name.rpartition("/")[0]
            size = sum(len(other.text) for other in group) + len(one.text)
            if is_near and is_there and len(group) < MOST_IN_GROUP and size <= MOST_CHARS:
                group.append(one)
                break
        else:
            groups.append([one])
    return [group for group in groups if len(group) > 1]


def _alike(one: set[str], other: set[str]) -> float:
    return len(one & other) / max(1, min(len(one), len(other)))


def system_prompt() -> str:
    return prompts.source("memory_consolidate_system")


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


def _numbered(group: Group) -> dict[str, tuple[Kept, str]]:
    """Every line of the group that says something, by its number."""
    found: dict[str, tuple[Kept, str]] = {}
    for number, one in enumerate(group, 1):
        description = [one.topic.description] if one.topic.has_front_matter and one.topic.description else []
        lines = [line for line in (*description, *one.topic.body.split("\n")) if terms(line)]
        found |= {f"{number}.{n}": (one, line) for n, line in enumerate(lines, 1)}
    return found


def rewritten(group: Group, answer: str, order: Order) -> Order:
    """The order with what a model answered, if that accounts for every line; else with a word on why it doesn't."""
    names = ", ".join(one.name for one in group)
    found = _OBJECT.search(answer)
    try:
        said = msgspec.json.decode(found[0].encode(), type=_Answer) if found else None
    except (msgspec.MsgspecError, UnicodeEncodeError):
        said = None
    if said is None:
        return replace(order, left=(*order.left, f"{names}: the model's answer can't be read"))
    if said.keep_apart:
        return order
    why = _refused(group, said)
    if why:
        return replace(order, left=(*order.left, f"{names}: the model's answer was refused: {why}"))
    [into] = [one for one in group if one.name == said.into]
    body = "\n".join(line.text for line in said.lines)
    kind = into.topic.type or TYPES[2]
    text = memory_text(name=said.name or into.topic.name, description=said.description, type=kind, body=body)
    origin = least_trusted(one.origin for one in group)
    numbered = _numbered(group)
    others = [one for one in group if one is not into]
    return replace(
        order,
        texts={**order.texts, into.name: text, **dict.fromkeys((one.name for one in others), None)},
        origins={**order.origins, **dict.fromkeys((one.name for one in group), origin)},
        merged={**order.merged, **dict.fromkeys((one.name for one in others), into.name)},
        dropped=(
            *order.dropped,
            *(Dropped(numbered[d.line][0].name, numbered[d.line][1], d.reason) for d in said.dropped),
        ),
    )


def _refused(group: Group, said: _Answer) -> str:
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
            is_turned = Line.of(numbered[key][1]).negates != Line.of(line.text).negates
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
