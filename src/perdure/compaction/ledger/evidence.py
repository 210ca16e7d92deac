"""Choosing evidence, word for word: the cover of the wanted facts by pieces of text, and the raw tail (CMP-5)."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat

from perdure.compaction.ledger.facts import without_reminders
from perdure.compaction.ledger.memory import EvidenceText
from perdure.compaction.ledger.reader import SAID, USER
from perdure.compaction.ledger.render import clock, short_id
from perdure.context.reminders import INDENT, inline, quoted
from perdure.transcript.blocks import Text, ToolResult, ToolUse
from perdure.transcript.messages import Message
from perdure.transcript.spoken import spoken_blocks
from perdure.transcript.tokens import utf16_units

_HEADER_UNITS = 30  # what it costs to open an excerpt of another call
_GAP_UNITS = 3
_LEAST_UNITS = 60
_OLDER = 0.5  # a fact that stands here, but stood elsewhere later
_LISTED = 0.6  # a fact that a list names already, without what it stood among
_AGAIN = 0.3  # what another place says of a fact that an excerpt holds already
_GOAL_WORD = 0.06
_GOAL_MOST = 4
_WORD = re.compile(r"[A-Za-z_]{5,}")


@dataclass(frozen=True, slots=True)
class EvidenceTarget:
    """What evidence is to cover: weights of facts, where each stood last, what lists name, and words of the goal."""

    weights: Mapping[str, float]
    lasts: Mapping[str, int]
    listed: frozenset[str]
    shown: frozenset[str]  # stands in full elsewhere in the view: worth nothing here
    goal: frozenset[str] = frozenset()


def most_pieces(units: int) -> int:
    """How many pieces are worth looking at to fill so many units: several times what fits."""
    return 500 + units // 20


def goal_words(texts: Iterable[str]) -> frozenset[str]:
    """The words by which a piece is about the current goal."""
    return frozenset(word.lower() for text in texts for word in _WORD.findall(text[:2_000]))


@dataclass(slots=True)
class _EvidenceCandidate:
    piece: EvidenceText
    gains: dict[str, float]
    extra: float
    units: int


class EvidenceCover:
    """Greedy choice of the pieces that together say most for their size; `take` may be called again for more.

    No more than `most` pieces are looked at: those that would be worth most if they stood alone.
    """

    def __init__(self, pieces: list[EvidenceText], wanted: EvidenceTarget, *, most: int) -> None:
        self.chosen: list[EvidenceText] = []
        self._candidates = [c for piece in _best(pieces, wanted, most) if (c := _candidate(piece, wanted)) is not None]
        self._covered: dict[str, float] = {}
        self._opened: set[str] = set()
        self._heap = [(-self._ratio(c), index) for index, c in enumerate(self._candidates)]
        heapq.heapify(self._heap)

    def take(self, units: int) -> int:
        """Choose pieces for at most `units` more; returns what is left of them."""
        heap = self._heap
        too_large: list[tuple[float, int]] = []
        while heap and units > _LEAST_UNITS:
            stale, index = heapq.heappop(heap)
            candidate = self._candidates[index]
            ratio = self._ratio(candidate)
            if heap and -heap[0][0] > ratio and -stale > ratio:
                heapq.heappush(heap, (-ratio, index))
                continue
            cost = self._cost(candidate)
            if cost > units:
                too_large.append((-ratio, index))
                continue
            units -= cost
            self._covered.update((key, self._covered.get(key, 1.0) * _AGAIN) for key in candidate.gains)
            self._opened.add(candidate.piece.source)
            self.chosen.append(candidate.piece)
        for entry in too_large:
            heapq.heappush(heap, entry)
        return units

    def _cost(self, candidate: _EvidenceCandidate) -> int:
        return candidate.units + (_GAP_UNITS if candidate.piece.source in self._opened else _HEADER_UNITS)

    def _ratio(self, candidate: _EvidenceCandidate) -> float:
        """The new weight that a piece brings for each unit; the bonus only sharpens what it brings."""
        covered = self._covered
        gain = sum(worth * covered.get(key, 1.0) for key, worth in candidate.gains.items())
        return gain * (1 + candidate.extra) / self._cost(candidate)


def _best(pieces: list[EvidenceText], wanted: EvidenceTarget, most: int) -> list[EvidenceText]:
    if len(pieces) <= most:
        return pieces
    get = {key: worth for key, worth in wanted.weights.items() if key not in wanted.shown}.get
    alone = [sum(map(get, piece.keys, repeat(0.0))) / (len(piece.text) + _HEADER_UNITS) for piece in pieces]
    least = heapq.nlargest(most, alone)[-1]
    return [piece for piece, worth in zip(pieces, alone, strict=True) if worth >= least and worth > 0][:most]


def _candidate(piece: EvidenceText, wanted: EvidenceTarget) -> _EvidenceCandidate | None:
    gains: dict[str, float] = {}
    for key in piece.keys:
        worth = wanted.weights.get(key, 0.0)
        if not worth or key in wanted.shown:
            continue
        if key in wanted.listed:
            worth *= _LISTED
        if wanted.lasts.get(key, -1) != piece.last:
            worth *= _OLDER
        gains[key] = worth
    if not gains:
        return None
    words = {word.lower() for word in _WORD.findall(piece.text)} & wanted.goal if wanted.goal else ()
    extra = _GOAL_WORD * min(len(words), _GOAL_MOST) + (0.02 if piece.voice in (SAID, USER) else 0.0)
    return _EvidenceCandidate(piece, gains, extra, utf16_units(piece.text) + 2 + piece.text.count("\n"))


_LEAST_PART = 200


@dataclass(frozen=True, slots=True)
class RawTail:
    """`text`; `whole` are the ids of the messages that stand in it in full; `first` is the position where it starts."""

    text: str
    whole: frozenset[str]
    first: int


NO_TAIL = RawTail("", frozenset(), 0)


def raw_tail(messages: Sequence[Message], units: int) -> RawTail:
    """The last messages that fit; the oldest of them is cut at a line, with the gap marked."""
    parts: list[str] = []
    whole: set[str] = set()
    first = len(messages)
    for position in range(len(messages) - 1, -1, -1):
        message = messages[position]
        entries = list(_entries(message))
        is_whole = True
        for entry in reversed(entries):
            cost = utf16_units(entry) + 1
            if cost > units:
                cut = _end_of(entry, units - 8)
                parts += [cut] if cut else []
                is_whole, units = False, 0
                break
            parts.append(entry)
            units -= cost
        if not is_whole:
            break
        first = position
        whole.add(message.id)
    return RawTail("\n".join(reversed(parts)), frozenset(whole), first)


def _entries(message: Message) -> Iterator[str]:
    if message.agent_id is not None or message.origin == "summary":
        return
    said = dict(spoken_blocks(message))
    for index, block in enumerate(message.blocks):
        value = block.value
        if isinstance(value, Text) and (text := said.get(index) or without_reminders(value.text).strip()):
            speaker = "User" if index in said else "Assistant" if message.origin == "model" else "System"
            at = clock(message.at)
            yield f"[{speaker}{f' {at}' if at else ''}]\n{quoted(text)}"
        elif isinstance(value, ToolUse):
            yield f"[{inline(value.name)} · {short_id(value.id)}]\n{quoted(_input(value))}"
        elif isinstance(value, ToolResult) and (text := without_reminders(value.text()).strip()):
            yield f"[Result · {short_id(value.tool_use_id)}]\n{quoted(text)}"


def _input(use: ToolUse) -> str:
    """The input as lines `name: value`, so that what was written stands there as it was, not as JSON."""
    arguments = use.input
    if not arguments:
        return bytes(use.raw_input).decode(errors="replace")
    return "\n".join(f"{key}: {_shown(value)}" for key, value in arguments.items())


def _shown(value: object) -> str:
    if isinstance(value, str):
        return value if "\n" not in value else f"\n{value}"
    if isinstance(value, list):
        return "\n".join(f"- {_shown(one)}" for one in value)
    if isinstance(value, dict):
        return "; ".join(f"{key}: {_shown(one)}" for key, one in value.items())
    return str(value)


def _end_of(entry: str, units: int) -> str:
    """The end of an entry, from a line start, behind its heading."""
    heading, _, text = entry.partition("\n")
    room = units - utf16_units(heading) - 7
    if room < _LEAST_PART:
        return ""
    part = text[-room:]
    while utf16_units(part) > room:
        part = part[(utf16_units(part) - room + 1) // 2 :]
    cut = part.find("\n") + 1
    part = part[cut:] if 0 < cut < len(part) // 2 else INDENT + part.lstrip(INDENT)
    return f"{heading}\n[…]\n{part}"
