"""What a session's answers cost, beside what they would have cost with the whole history in each request (OBS-1)."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.context.economics import usage_usd
from holdfast.context.models import CACHE_SECONDS, CacheTtl, ModelFacts
from holdfast.transcript.messages import Usage


@dataclass(slots=True)
class Spent:
    """Since the session was opened here. Dollars are None as long as no model with a known price answered.

    `whole_usd` is a reckoning: each time the client's whole history, the part that the request before held read from
    the provider's cache while that is warm, whatever the window. `spared_tokens` are estimated from bytes.
    """

    answers: int = 0
    spared_tokens: int = 0
    paid_usd: float | None = None
    whole_usd: float | None = None
    _known_tokens: int = 0
    _at: float = 0.0

    def answered(self, usage: Usage, spared_tokens: int, model: ModelFacts, now: float, ttl: CacheTtl) -> None:
        """Count an answer to a request that left out `spared_tokens` of its client's history."""
        self.answers += 1
        self.spared_tokens += spared_tokens
        whole = usage.prompt_tokens + spared_tokens
        read = min(self._known_tokens, whole) if now - self._at <= CACHE_SECONDS[ttl] else 0
        self._known_tokens, self._at = whole, now
        if model.input_usd is None:
            return
        told = Usage(
            cache_read_input_tokens=read, cache_creation_input_tokens=whole - read, output_tokens=usage.output_tokens
        )
        paid = usage_usd(usage, model, ttl)
        self.paid_usd = (self.paid_usd or 0.0) + paid
        self.whole_usd = (self.whole_usd or 0.0) + (usage_usd(told, model, ttl) if spared_tokens else paid)

    @property
    def saved_usd(self) -> float | None:
        """What shorter requests saved; below zero right after a compaction, whose new prefix is written once."""
        return None if self.paid_usd is None or self.whole_usd is None else self.whole_usd - self.paid_usd
