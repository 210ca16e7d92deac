"""The model that there is without a key and without a network: it says so (spec/00, LIB-3)."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from holdfast.context.replies import About, BlockDone, Delta, Reply, Started, TextDelta
from holdfast.context.requests import Request
from holdfast.transcript.blocks import text_block
from holdfast.transcript.messages import ResponseId

SAYS = (
    "No language model is set up, so this is Holdfast itself answering, offline. Your message is in the session and "
    "will be there when a model is: set ANTHROPIC_API_KEY or OPENAI_API_KEY, or name a local one, for example "
    "HOLDFAST_MAIN_MODELS=ollama:qwen3. Everything else works without one: summaries, notes, search, recall and replay."
)


class OfflineModel:
    """`ports.Model` that answers every request with the same words. It reports no usage, since it reads nothing."""

    def __init__(self, says: str = SAYS) -> None:
        self._says = says
        self._count = 0

    @property
    def about(self) -> About:
        return About(id="offline", protocol="anthropic")

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        self._count += 1
        response, block = ResponseId(f"offline-{self._count}"), text_block(self._says)
        yield Started(response)
        yield TextDelta(0, self._says)
        yield BlockDone(0, block)
        yield Reply(response=response, model="offline", blocks=(block,), stop_reason="end_turn")

    async def count(self, request: Request) -> int | None:
        return None

    async def close(self) -> None:
        pass
