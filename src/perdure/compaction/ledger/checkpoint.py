"""What the ledger knows, as it travels in a boundary record, and the index that keeps it up to date (CMP-13,
CMP-14).
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Final, NamedTuple, TypeVar

import msgspec

from perdure.compaction.ledger.facts import facts_in
from perdure.compaction.ledger.memory import EvidenceText, LedgerMemory, PlannedTask, SpokenText
from perdure.compaction.ledger.reader import LedgerExtract, LedgerExtractor
from perdure.compaction.ledger.render import EvidenceCover, EvidenceTarget, clip, most_pieces
from perdure.context.state import NOTHING_KNOWN, SessionState
from perdure.context.view import ContextView
from perdure.settings import Settings
from perdure.transcript.messages import Message
from perdure.transcript.tool_calls.actions import ToolTable

# CMP-14: a boundary is read back at every resume (SPD-3), so the ledger in it stays below this.
LIMIT_BYTES: Final = 40_000
_LEVEL = 6
_LEAST_FACTOR = 0.05
T = TypeVar("T")


class _PackedCaps(NamedTuple):
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

    def scaled(self, factor: float) -> _PackedCaps:
        return _PackedCaps(*(int(cap * factor) for cap in self))


class _PackedWords(msgspec.Struct):
    """The words alone; all else in a memory is passed over."""

    words: list[SpokenText] = []


class PackedLedger(msgspec.Struct, frozen=True, omit_defaults=True, dict=True):
    """A packed memory: zlib over JSON, in the 85 characters that need no escape in JSON."""

    data: str = ""

    @classmethod
    def of(cls, state: SessionState) -> PackedLedger:
        """What the last boundary handed on; an empty one where there was none."""
        return _DECODER.decode(state.ledger)

    def encoded(self) -> msgspec.Raw:
        """As `SessionState` carries it."""
        return msgspec.Raw(msgspec.json.encode(self)) if self.data else NOTHING_KNOWN

    def memory(self) -> LedgerMemory:
        """The memory, to go on with; a fresh one each time."""
        if not self.data:
            return LedgerMemory()
        memory = msgspec.json.decode(zlib.decompress(base64.b85decode(self.data)), type=LedgerMemory)
        for piece in memory.pieces:
            piece.keys = tuple(facts_in(piece.text))
        return memory

    @cached_property
    def spoken(self) -> tuple[SpokenText, ...]:
        """What people said, word for word, oldest first."""
        if not self.data:
            return ()
        return tuple(msgspec.json.decode(zlib.decompress(base64.b85decode(self.data)), type=_PackedWords).words)


_DECODER = msgspec.json.Decoder(PackedLedger)


def pack_ledger(memory: LedgerMemory) -> PackedLedger:
    """A memory as a checkpoint. Too large a one keeps less of everything but what is always named."""
    ranked = _RankedFacts.of(memory)
    factor = 1.0
    while True:
        raw = msgspec.json.encode(_bounded(memory, ranked, _PackedCaps().scaled(factor)))
        data = base64.b85encode(zlib.compress(raw, _LEVEL)).decode()
        if len(data) <= LIMIT_BYTES or factor < _LEAST_FACTOR:
            return PackedLedger(data)
        factor *= min(0.95, LIMIT_BYTES / len(data))


class _RankedFacts(NamedTuple):
    """Facts by weight and pieces by what they add, the best first."""

    facts: list[str]
    pieces: list[EvidenceText]

    @classmethod
    def of(cls, memory: LedgerMemory) -> _RankedFacts:
        weights = memory.weights()
        lasts = {key: fact.last for key, fact in memory.facts.items()}
        pieces = memory.pieces
        units = _PackedCaps().piece_units
        if sum(map(_piece_units, pieces)) > units:
            cover = EvidenceCover(
                pieces, EvidenceTarget(weights, lasts, frozenset(), frozenset()), most=most_pieces(units)
            )
            cover.take(units)
            pieces = cover.chosen
        return cls(sorted(weights, key=lambda key: (-weights[key], key)), pieces)


def _bounded(memory: LedgerMemory, ranked: _RankedFacts, caps: _PackedCaps) -> LedgerMemory:
    """The memory without what weighs least: every changed file, open todo and failing test stays."""
    read = [path for path, file in memory.files.items() if not file.edits]
    forgotten = set(read[: max(0, len(read) - caps.read_files)])
    pieces = _within(ranked.pieces, caps.piece_units)
    sources = {piece.source for piece in pieces}
    facts = set(ranked.facts[: caps.facts])
    commands = _last(memory.commands, caps.commands)
    failing = {name: test for name, test in memory.tests.items() if test.is_failing}
    healed = _last({name: test for name, test in memory.tests.items() if not test.is_failing}, caps.healed)
    return LedgerMemory(
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


def _piece_units(piece: EvidenceText) -> int:
    return len(piece.text) + 20


def _within(pieces: Sequence[EvidenceText], units: int) -> list[EvidenceText]:
    """The first pieces that fit, in the order in which they stood."""
    kept = []
    for piece in pieces:
        units -= _piece_units(piece)
        if units < 0:
            break
        kept.append(piece)
    return sorted(kept, key=lambda piece: piece.order)


def _words(words: list[SpokenText], units: int) -> list[SpokenText]:
    """The first and the last always, then the newest; a very long one keeps its beginning and its end."""
    each = max(400, units // 3)
    kept: dict[int, SpokenText] = {}
    always = {0, len(words) - 1}
    for index in [*sorted(always, reverse=True), *range(len(words) - 2, 0, -1)] if words else ():
        one = _clipped(words[index], each)
        if index in always or len(one.text) <= units:
            kept[index] = one
            units -= len(one.text) + 20
    return [kept[index] for index in sorted(kept)]


def _clipped(one: SpokenText, units: int) -> SpokenText:
    return one if len(one.text) * 2 <= units else SpokenText(one.id, one.at, clip(one.text, units), one.last)


def _last(entries: Mapping[str, T], most: int) -> dict[str, T]:
    return dict(list(entries.items())[-most:]) if most else {}


def _todos(todos: Mapping[str, PlannedTask], done: int) -> dict[str, PlannedTask]:
    finished = [key for key, task in todos.items() if task.status == "done"]
    gone = set(finished[: max(0, len(finished) - done)])
    return {key: task for key, task in todos.items() if key not in gone}


class ExtractIndex:
    """Extracts of messages in order. Reading a message is the dear part; folding extracts into a memory is cheap."""

    def __init__(self, tools: ToolTable | None = None) -> None:
        self.tools = tools or ToolTable()
        self._extractor = LedgerExtractor(self.tools)
        self._extracts: list[LedgerExtract] = []

    def __len__(self) -> int:
        """How many messages were taken."""
        return len(self._extracts)

    def take(self, message: Message) -> None:
        """Read one message more. Summaries and restored content say nothing new, and are passed over."""
        self._extracts.append(self._extractor.extract(message))

    def memory(self, before: PackedLedger, first: int, last: int) -> LedgerMemory:
        """What is known after the messages from `first` to `last` (not included), going on from a checkpoint."""
        return before.memory().absorb(self.extracts(first, last))

    def extracts(self, first: int, last: int) -> list[LedgerExtract]:
        """What was read from the messages from `first` to `last` (not included)."""
        return self._extracts[first:last]


def index_of(view: ContextView, settings: Settings) -> ExtractIndex:
    """The index of all messages of the view, by position, caught up.

    `LiveSession.rest` calls it while nobody waits, so that a compaction finds everything read; that calls it anyway.
    The view keeps it until a boundary or a rewind gives it other messages.
    """
    tools = ToolTable.of(settings.ledger_tools)
    index = view.index
    if not isinstance(index, ExtractIndex) or index.tools != tools or len(index) > len(view.items):
        index = ExtractIndex(tools)
    for item in view.items[len(index) :]:
        index.take(item.message)
    view.index = index
    return index
