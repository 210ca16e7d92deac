"""The model that a replay asks for records: its requests are counted and judged, and what they cost (CMP-3, REL-4)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from holdfast.context.economics import usage_usd
from holdfast.context.models import ModelFacts, model_facts
from holdfast.context.replies import About, Delta, Reply
from holdfast.context.requests import Request
from holdfast.ports import Model
from holdfast.testing import check_anthropic, check_openai
from holdfast.testing.model_rules import ModelRules
from holdfast.transcript.messages import Usage

# Only the shape is judged here: what doesn't fit the model's window, the model itself refuses (CMP-4).
_RULES = ModelRules(window_tokens=10_000_000, max_output_tokens=10**9, allow_unknown=True)


@dataclass(slots=True)
class JudgedModel:
    """`ports.Model`: the model behind it, with each request held against the rules of its wire before it goes out."""

    model: Model
    requests: int = 0
    answers: int = 0
    invalid: int = 0
    first_violation: str | None = None
    usage: list[Usage] = field(default_factory=list)

    @property
    def about(self) -> About:
        return self.model.about

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        self._judge(request)
        async with aclosing(self.model.stream(request)) as said:
            async for one in said:
                if isinstance(one, Reply):
                    self.answers += 1
                    paid = one.billed or one.usage
                    self.usage += [paid] if paid else []
                yield one

    def _judge(self, request: Request) -> None:
        self.requests += 1
        if request.protocol == "openai":
            found = check_openai(request.body)
        else:
            found = check_anthropic(request.body, model_rules=_RULES)
        if found:
            self.invalid += 1
            self.first_violation = self.first_violation or f"{found[0].rule}: {found[0].text}"

    async def count(self, request: Request) -> int | None:
        return await self.model.count(request)

    async def close(self) -> None:
        await self.model.close()


def summarizer_result(models: tuple[JudgedModel, ...], known: tuple[ModelFacts, ...]) -> dict[str, Any] | None:
    """What was asked of the summarising models, in the documented form (docs/replay.md); None when there is none."""
    if not models:
        return None
    usd: float | None = 0.0
    for model in models:
        facts = model_facts(model.about.id, known)
        for one in model.usage:
            usd = None if usd is None or facts.input_usd is None else usd + usage_usd(one, facts)
    usage = [one for model in models for one in model.usage]
    return {
        "model": models[0].about.id,
        "requests": sum(model.requests for model in models),
        "answers": sum(model.answers for model in models),
        "invalid": sum(model.invalid for model in models),
        "input": sum(one.input_tokens for one in usage),
        "cache_write": sum(one.cache_creation_input_tokens for one in usage),
        "cache_read": sum(one.cache_read_input_tokens for one in usage),
        "output": sum(one.output_tokens for one in usage),
        "usd": None if usd is None else round(usd, 6),
    }
