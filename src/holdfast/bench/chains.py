"""Compactions in a row, through the checkpoints of a real session, against one at the same end (CMP-13, QLT-3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.bench.baselines import Strategy
from holdfast.bench.live_view import LIVE, Shape, live_view, parts_of
from holdfast.bench.places import Place
from holdfast.bench.probe import Gold
from holdfast.bench.report import Chain, Pooled
from holdfast.bench.scores import score
from holdfast.transcript.messages import Message, MessageId


@dataclass(slots=True)
class Chains:
    """All chains of a run: for each budget, strategy and length the pools of `once`, `chained` and `naive`."""

    lengths: Sequence[int] = (3, 5)
    pools: dict[tuple[str, str, int], dict[str, Pooled]] = field(default_factory=dict)

    def measure(self, place: Place, gold: Gold, budget: tuple[str, Shape], naive: Strategy | None = None) -> None:
        """Every strategy and length at one place; a chain that can't be done there counts on neither side.

        `naive` is also run on its own results, as a compaction that forgets its journal would be.
        """
        name, shape = budget
        for strategy in LIVE if shape.memory_tokens is None else LIVE[:1]:
            once = live_view(place.before, shape, strategy)
            for length in self.lengths if once is not None else ():
                chained = live_view(place.before, shape, strategy, times=length)
                if once is None or chained is None:
                    continue
                views = {"once": once.text, "chained": chained.text}
                if naive is not None and shape.memory_tokens is not None:
                    views["naive"] = compacted_again(parts_of(place.before, length), naive, shape)
                pools = self.pools.setdefault((name, strategy, length), {})
                for how, text in views.items():
                    pools.setdefault(how, Pooled()).add(place.session, score(gold, text).tallies)

    def rows(self) -> tuple[Chain, ...]:
        def percents(pools: Mapping[str, Pooled], how: str) -> Mapping[str, float]:
            return pools[how].percents() if how in pools else {}

        return tuple(
            Chain(
                budget,
                strategy,
                length,
                len(pools["once"].sessions),
                *(percents(pools, how) for how in ("once", "chained", "naive")),
            )
            for (budget, strategy, length), pools in self.pools.items()
        )


def compacted_again(parts: Sequence[Sequence[Message]], strategy: Callable[..., str], shape: Shape) -> str:
    """Each compaction sees only the view that the last one left, and what was said since."""
    before: list[Message] = []
    text = ""
    for number, part in enumerate(parts):
        text = strategy([*before, *part], shape.memory_tokens or 0, shape.tail_tokens)
        before = [Message.of("user", text, id=MessageId(f"bench-summary-{number}"), origin="reminder")]
    return text
