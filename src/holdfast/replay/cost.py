"""What a replayed session costs, with the provider's prompt cache followed call by call (TURN-5, CLI-2)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from holdfast.context.economics import usage_usd
from holdfast.context.models import CACHE_SECONDS, CacheTtl, ModelFacts
from holdfast.transcript.messages import Usage


@dataclass(slots=True)
class Cost:
    """Tokens by how they are paid for. `usd` is None where the model's price isn't known."""

    model: ModelFacts
    ttl: CacheTtl = "5m"  # how long the provider keeps what the last call wrote
    input: int = 0
    cache_write: int = 0
    cache_write_1h: int = 0  # of it, what was written for an hour
    cache_read: int = 0
    output: int = 0

    def is_cold(self, seconds: float) -> bool:
        """Whether the cache has expired so long after the last call."""
        return seconds > CACHE_SECONDS[self.ttl]

    def call(self, prompt_tokens: int, read_tokens: int, output_tokens: int, *, ttl: CacheTtl | None = None) -> None:
        """One call, of whose prompt `read_tokens` were in the cache; the rest is written, for `ttl` from now on."""
        self.ttl = ttl or self.ttl
        read = min(max(read_tokens, 0), prompt_tokens)
        if prompt_tokens < self.model.cache_minimum_tokens:
            self.input += prompt_tokens
        else:
            self.cache_read += read
            self.cache_write += prompt_tokens - read
            self.cache_write_1h += prompt_tokens - read if self.ttl == "1h" else 0
        self.output += output_tokens

    @property
    def usd(self) -> float | None:
        if self.model.input_usd is None:
            return None
        usage = Usage(
            input_tokens=self.input,
            cache_creation_input_tokens=self.cache_write,
            cache_creation_1h_tokens=self.cache_write_1h,
            cache_read_input_tokens=self.cache_read,
            output_tokens=self.output,
        )
        return round(usage_usd(usage, self.model), 6)

    def as_dict(self) -> dict[str, Any]:
        return {
            "input": self.input,
            "cache_write": self.cache_write,
            "cache_read": self.cache_read,
            "output": self.output,
            "usd": self.usd,
        }


def logged_cost(usage: Iterable[Usage], model: ModelFacts) -> Cost:
    """What the log says was paid, from its usage, counted once for each response."""
    cost = Cost(model)
    for one in usage:
        cost.input += one.input_tokens
        cost.cache_write += one.cache_creation_input_tokens
        cost.cache_write_1h += one.cache_creation_1h_tokens
        cost.cache_read += one.cache_read_input_tokens
        cost.output += one.output_tokens
    return cost
