"""What models cost while a chat runs, from the events of the engine (OBS-1)."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.events import Event, ModelCalled


@dataclass(slots=True)
class Sum:
    """Calls of one model for one job; tokens as it reported them."""

    calls: int = 0
    read: int = 0
    cached: int = 0
    written: int = 0
    usd: float | None = None


@dataclass(slots=True)
class Spent:
    """`ports.Sink` that adds up."""

    rows: dict[tuple[str, str], Sum] = field(default_factory=dict)

    def emit(self, event: Event) -> None:
        if not isinstance(event, ModelCalled):
            return
        one = self.rows.setdefault((event.job, event.model), Sum())
        one.calls += 1
        one.read += event.prompt_tokens or 0
        one.cached += event.cache_read_tokens or 0
        one.written += event.output_tokens or 0
        if event.usd is not None:
            one.usd = (one.usd or 0.0) + event.usd

    @property
    def usd(self) -> float:
        """US dollars, of what has a price."""
        return sum(one.usd or 0.0 for one in self.rows.values())

    @property
    def is_priced(self) -> bool:
        """Whether anything that was asked has a price."""
        return any(one.usd is not None for one in self.rows.values())
