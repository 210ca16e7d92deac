"""What of a memory travels in a boundary record: bounded, packed, and the same bytes everywhere (CMP-13, CMP-14).

It is built from what was said, never from a summary: after a boundary the memory is unpacked and goes on growing with
the messages behind it, so a fifth compaction is as good as a second.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Final, NamedTuple, TypeVar

import msgspec

from holdfast.context.ledger.evidence import Cover, Wanted, most_pieces
from holdfast.context.ledger.facts import facts_in
from holdfast.context.ledger.memory import Kept, Memory, Spoken, Task
from holdfast.context.ledger.sheet import clip
from holdfast.context.state import NOTHING_KNOWN, State

# CMP-14: a boundary is read back at every resume (SPD-3), so the ledger in it stays below this.
LIMIT_BYTES: Final = 40_000
_LEVEL = 6
_LEAST_FACTOR = 0.05
T = TypeVar("T")


class _Caps(NamedTuple):
    """How much of each part is kept, in entries or UTF-16 units; `scaled` shrinks all of it."""

    word_units: int = 64_000
    said_units: int = 1_500
    decisions: int = 60
    read_files: int = 150
    commands: int = 160
    command_units: int = 300
    errors: int = 50
    healed: int = 40
    done: int = 40
    facts: int = 2_400
    piece_units: int = 44_000

    def scaled(self, factor: float) -> _Caps:
        return _Caps(*(int(cap * factor) for cap in self))


class _Words(msgspec.Struct):
    """The words alone; all else in a memory is passed over."""

    words: list[Spoken] = []


class Ledger(msgspec.Struct, frozen=True, omit_defaults=True, dict=True):
    """A packed memory: zlib over JSON, in the 85 characters that need no escape in JSON."""

    data: str = ""

    @classmethod
    def of(cls, state: State) -> Ledger:
        """What the last boundary handed on; an empty one where there was none."""
        return _DECODER.decode(state.ledger)

    def encoded(self) -> msgspec.Raw:
        """As `State` carries it."""
        return msgspec.Raw(msgspec.json.encode(self)) if self.data else NOTHING_KNOWN

    def memory(self) -> Memory:
        """The memory, to go on with; a fresh one each time."""
        if not self.data:
            return Memory()
        memory = msgspec.json.decode(zlib.decompress(base64.b85decode(self.data)), type=Memory)
        for piece in memory.pieces:
            piece.keys = tuple(facts_in(piece.text))
        return memory

    @cached_property
    def spoken(self) -> tuple[Spoken, ...]:
        """What people said, word for word, oldest first."""
        if not self.data:
            return ()
        return tuple(msgspec.json.decode(zlib.decompress(base64.b85decode(self.data)), type=_Words).words)


_DECODER = msgspec.json.Decoder(Ledger)


def packed(memory: Memory) -> Ledger:
    """A memory as a checkpoint. Too large a one keeps less of everything but what is always named."""
    ranked = _Ranked.of(memory)
    factor = 1.0
    while True:
        raw = msgspec.json.encode(_bounded(memory, ranked, _Caps().scaled(factor)))
        data = base64.b85encode(zlib.compress(raw, _LEVEL)).decode()
        if len(data) <= LIMIT_BYTES or factor < _LEAST_FACTOR:
            return Ledger(data)
        factor *= min(0.95, LIMIT_BYTES / len(data))


class _Ranked(NamedTuple):
    """Facts by weight and pieces by what they add, the best first."""

    facts: list[str]
    pieces: list[Kept]

    @classmethod
    def of(cls, memory: Memory) -> _Ranked:
        weights = memory.weights()
        lasts = {key: fact.last for key, fact in memory.facts.items()}
        pieces = memory.pieces
        units = _Caps().piece_units
        if sum(map(_piece_units, pieces)) > units:
            cover = Cover(pieces, Wanted(weights, lasts, frozenset(), frozenset()), most=most_pieces(units))
            cover.take(units)
            pieces = cover.chosen
        return cls(sorted(weights, key=lambda key: (-weights[key], key)), pieces)


def _bounded(memory: Memory, ranked: _Ranked, caps: _Caps) -> Memory:
    """The memory without what weighs least: every changed file, open todo and failing test stays."""
    read = [path for path, file in memory.files.items() if not file.edits]
    forgotten = set(read[: max(0, len(read) - caps.read_files)])
    pieces = _within(ranked.pieces, caps.piece_units)
    sources = {piece.source for piece in pieces}
    facts = set(ranked.facts[: caps.facts])
    commands = _last(memory.commands, caps.commands)
    failing = {name: test for name, test in memory.tests.items() if test.is_failing}
    healed = _last({name: test for name, test in memory.tests.items() if not test.is_failing}, caps.healed)
    return Memory(
        tokens=memory.tokens,
        order=memory.order,
        words=_words(memory.words, caps.word_units),
        said=[_clipped(one, caps.said_units) for one in memory.said],
        decisions=_last(memory.decisions, caps.decisions),
        files={path: file for path, file in memory.files.items() if path not in forgotten},
        commands={clip(line, caps.command_units): known for line, known in commands.items()},
        errors=_last(memory.errors, caps.errors),
        tests={name: test for name, test in memory.tests.items() if name in failing or name in healed},
        todos=_todos(memory.todos, caps.done),
        background=_last(memory.background, caps.done),
        facts={key: fact for key, fact in memory.facts.items() if key in facts},
        pieces=[msgspec.structs.replace(piece, keys=()) for piece in pieces],
        titles={source: title for source, title in memory.titles.items() if source in sources},
    )


def _piece_units(piece: Kept) -> int:
    return len(piece.text) + 20


def _within(pieces: Sequence[Kept], units: int) -> list[Kept]:
    """The first pieces that fit, in the order in which they stood."""
    kept = []
    for piece in pieces:
        units -= _piece_units(piece)
        if units < 0:
            break
        kept.append(piece)
    return sorted(kept, key=lambda piece: piece.order)


def _words(words: list[Spoken], units: int) -> list[Spoken]:
    """The first and the last always, then the newest; a very long one keeps its beginning and its end."""
    each = max(400, units // 3)
    kept: dict[int, Spoken] = {}
    always = {0, len(words) - 1}
    for index in [*sorted(always, reverse=True), *range(len(words) - 2, 0, -1)] if words else ():
        one = _clipped(words[index], each)
        if index in always or len(one.text) <= units:
            kept[index] = one
            units -= len(one.text) + 20
    return [kept[index] for index in sorted(kept)]


def _clipped(one: Spoken, units: int) -> Spoken:
    return one if len(one.text) * 2 <= units else Spoken(one.id, one.at, clip(one.text, units), one.last)


def _last(entries: Mapping[str, T], most: int) -> dict[str, T]:
    return dict(list(entries.items())[-most:]) if most else {}


def _todos(todos: Mapping[str, Task], done: int) -> dict[str, Task]:
    finished = [key for key, task in todos.items() if task.status == "done"]
    gone = set(finished[: max(0, len(finished) - done)])
    return {key: task for key, task in todos.items() if key not in gone}
