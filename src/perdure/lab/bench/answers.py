"""A model whose answers are paid for once: within the caps, written down, kept until the run is over (QLT-5, OBS-2).

A run of `perdure bench live --model` that was broken off goes on where it was: what was answered stands in the home,
beside its caches, by the hash of what was asked and how often. When the run is over the file goes; a purge takes it at
any time.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

import msgspec

from perdure.adapters.journal.disk import make_private
from perdure.adapters.machine.system import open_itself
from perdure.context.cost import ForkSpending, add_usage, spending_record, usage_usd
from perdure.context.replies import Delta, ModelInfo, Reply
from perdure.context.request import ModelRequest
from perdure.engine.ask import within_caps
from perdure.engine.session import LiveSession
from perdure.errors import MalformedBlock, SpendingCapReached
from perdure.memory.trust.secrets import redact_json
from perdure.ports.session import Model
from perdure.transcript.blocks import Block
from perdure.transcript.messages import Message, ResponseId, Usage

JOB = "bench"


class KeptAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer as it is kept. `key` is the hash of the model and of what it was asked, and which answer to it."""

    key: str
    response: str
    model: str
    stop: str
    blocks: list[msgspec.Raw]


class KeptAnswers:
    """The answers of a run, in a file of its own (0600); without a path they are forgotten."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.found: dict[str, KeptAnswer] = {}
        self.unread = 0  # lines that can't be read: cut off by a crash, or edited; they are asked again
        if path is not None and path.is_file():
            for line in path.read_bytes().splitlines():
                try:
                    one = msgspec.json.decode(line, type=KeptAnswer)
                    Message.of("assistant", [Block(bytes(raw)) for raw in one.blocks]).check()
                except (msgspec.DecodeError, UnicodeDecodeError, MalformedBlock):
                    self.unread += 1
                    continue
                self.found[one.key] = one

    def keep(self, key: str, reply: Reply) -> None:
        """Write an answer down, without its secrets (SEC-5). Raises `OSError`."""
        blocks = [msgspec.Raw(redact_json(bytes(block.raw)).raw) for block in reply.blocks]
        one = KeptAnswer(key=key, response=reply.response, model=reply.model, stop=reply.stop_reason, blocks=blocks)
        self.found[key] = one
        if self.path is None:
            return
        make_private(self.path.parent)
        fd = open_itself(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(fd, msgspec.json.encode(one) + b"\n")
        finally:
            os.close(fd)

    def forget(self) -> None:
        """The run is over."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


class PaidModel:
    """`ports.Model` that asks another one, within the caps of a session, and only for what isn't known yet."""

    def __init__(self, inner: Model, payer: LiveSession, answers: KeptAnswers) -> None:
        self._inner, self._payer, self._answers = inner, payer, answers
        self._asked: Counter[str] = Counter()  # how often what was answered in this run
        self.called = self.reused = 0
        self.paid = Usage()
        self.usd: float | None = 0.0  # None: a price isn't known
        self.capped: SpendingCapReached | None = None

    @property
    def about(self) -> ModelInfo:
        return self._inner.about

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply, None]:
        asked = hashlib.sha256(self.about.id.encode() + b"\0" + request.body).hexdigest()
        key = f"{asked[:32]}.{self._asked[asked]}"
        known = self._answers.found.get(key)
        if known is not None:
            self._asked[asked] += 1
            self.reused += 1
            yield _again(known)
            return
        reply: Reply | None = None
        try:
            async with (
                within_caps(self._payer, self.about.id, len(request.body) // 4) as cost,
                aclosing(self._inner.stream(request)) as stream,
            ):
                async for part in stream:
                    cost.has_begun = True
                    if isinstance(part, Reply):
                        reply, cost.usage = part, part.billed or part.usage
                        break
                    yield part
        except SpendingCapReached as e:
            self.capped = e
            raise
        if reply is not None:  # behind the caps: whoever got it may not come back
            self._asked[asked] += 1
            self._bill(reply)
            self._answers.keep(key, reply)
            yield reply

    def _bill(self, reply: Reply) -> None:
        self.called += 1
        paid = reply.billed or reply.usage
        if paid is None:
            self.usd = None
            return
        spec = self._payer.services.facts_of(self.about.id)
        usd = usage_usd(paid, spec) if spec.input_usd is not None else None
        self.paid = add_usage(self.paid, paid)
        self.usd = None if usd is None or self.usd is None else self.usd + usd
        now = self._payer.ports.clock.now()
        spent = ForkSpending(job=JOB, model=self.about.id, at=now, turns=1, usage=paid, usd=usd)
        self._payer.owe(spending_record(spent))

    async def count(self, request: ModelRequest) -> int | None:
        return await self._inner.count(request)

    async def close(self) -> None:
        await self._inner.close()


def _again(one: KeptAnswer) -> Reply:
    """An answer that was paid for earlier: it costs nothing now."""
    blocks = tuple(Block(bytes(raw)) for raw in one.blocks)
    return Reply(response=ResponseId(one.response), model=one.model, blocks=blocks, stop_reason=one.stop)
