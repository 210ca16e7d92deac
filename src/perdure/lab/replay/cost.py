"""What a replayed session costs, beside what the log's own system did (TURN-5, CLI-2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from perdure.context.cost import usage_usd
from perdure.context.models import CACHE_SECONDS, CacheTtl, ModelSpec
from perdure.context.passes import select_by_size
from perdure.logs.recording import LoggedCompaction, LoggedMicrocompaction, LoggedRewind, RecordedMessage, Step
from perdure.settings import Settings
from perdure.transcript.blocks import ToolResult, ToolUse
from perdure.transcript.messages import Message, MessageId, ToolUseId, Usage
from perdure.transcript.tokens import NOTHING, Size, block_size, text_size


@dataclass(slots=True)
class TokenCost:
    """Tokens by how they are paid for. `usd` is None where the model's price isn't known."""

    model: ModelSpec
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


@dataclass(slots=True)
class CacheWrites:
    """What the writes to the provider's cache are made of (SPD-7): tokens that no call had sent, and others, by why."""

    first: int = 0
    again: dict[str, int] = field(default_factory=dict)

    def call(self, written_tokens: int, fresh_tokens: int, why: str) -> None:
        """One call. What it wrote beyond what is new in it stood behind a place from which on nothing could be read."""
        first = min(written_tokens, fresh_tokens) if why else written_tokens
        self.first += first
        if written_tokens > first:
            self.again[why] = self.again.get(why, 0) + written_tokens - first

    def as_dict(self) -> dict[str, Any]:
        return {"first": self.first, "again": self.again}


def logged_cost(usage: Iterable[Usage], model: ModelSpec) -> TokenCost:
    """What the log says was paid, from its usage, counted once for each response."""
    cost = TokenCost(model)
    for one in usage:
        cost.input += one.input_tokens
        cost.cache_write += one.cache_creation_input_tokens
        cost.cache_write_1h += one.cache_creation_1h_tokens
        cost.cache_read += one.cache_read_input_tokens
        cost.output += one.output_tokens
    return cost


# A context smaller than this is mostly what the log doesn't show, and teaches no ratio.
_TEACHES_TOKENS = 5_000


@dataclass(slots=True)
class LogHistory:
    """The history as the log's system saw it, in running sums. Feed it every step in order."""

    settings: Settings
    prior_ratio: float = 1.0  # reported tokens for each estimated one, before anything was learned
    unseen: int = 0  # tokens of the first request that the log doesn't show: system prompt, tools, earlier history
    compactions: list[dict[str, Any]] = field(default_factory=list)
    microcompactions: list[dict[str, Any]] = field(default_factory=list)
    size: Size = NOTHING  # of what the log's context holds
    usage: list[Usage] = field(default_factory=list)  # one for each API response
    _messages: dict[MessageId, Size] = field(default_factory=dict)
    _order: list[MessageId] = field(default_factory=list)
    _names: dict[ToolUseId, str] = field(default_factory=dict)
    _results: dict[ToolUseId, int] = field(default_factory=dict)  # base tokens since the last boundary
    _cleared: set[ToolUseId] = field(default_factory=set)
    _response: str | None = None
    _reported: int | None = None  # the last reported total
    _after: int = 0  # base tokens since then
    _pair: tuple[int, int] | None = None  # a reported prompt, and the live estimate of what it held

    def add(self, step: Step) -> None:
        """Go one step on."""
        if isinstance(step, RecordedMessage):
            if step.message.agent_id is None:
                self._said(step.message)
        elif isinstance(step, LoggedCompaction):
            self._compacted(step)
        elif isinstance(step, LoggedMicrocompaction):
            self._microcompacted(step)
        elif isinstance(step, LoggedRewind):
            self._rewound(step)

    @property
    def tokens(self) -> int:
        """Our size at this place: the last reported usage and the base estimate of what came after, without margin."""
        if self._reported is None:
            return -(-self.size.blind * self.settings.margin_numerator // self.settings.margin_denominator)
        return self._reported + self._after

    @property
    def ratio(self) -> float | None:
        """Reported tokens for each estimated one, over the log's whole context; from before its first compaction.

        Behind a compaction the log holds more than it shows (restored files, reminders), so it teaches nothing.
        """
        if self._pair is None:
            return None
        prompt, live = self._pair
        return min(max((prompt - self.unseen) / live, 0.5), 2.0)

    def _said(self, message: Message) -> None:
        size = NOTHING
        for block in message.blocks:
            value, one = block.value, block_size(block)
            size = size.plus(one)
            if isinstance(value, ToolUse):
                self._names[ToolUseId(value.id)] = value.name
            elif isinstance(value, ToolResult):
                self._results[ToolUseId(value.tool_use_id)] = one.base
        self._messages[message.id] = size
        self._order.append(message.id)
        self.size = self.size.plus(size)
        usage = message.usage
        before = self.size.live - size.live
        if usage and not self.usage:
            self.unseen = max(0, usage.prompt_tokens - round(before * self.prior_ratio))
        if usage and before >= _TEACHES_TOKENS and message.response_id != self._response and not self.compactions:
            self._pair = (usage.prompt_tokens, before)
        if message.role != "assistant":
            self._after += size.base
        elif usage is None or usage.total_tokens == 0:
            self._after += 0 if message.response_id == self._response and self._response else size.base
        elif message.response_id is not None and message.response_id == self._response:
            self._reported = max(self._reported or 0, usage.total_tokens)
            self.usage[-1] = usage
        else:
            self._response, self._reported, self._after = message.response_id, usage.total_tokens, 0
            self.usage.append(usage)

    def _compacted(self, step: LoggedCompaction) -> None:
        entry = {
            "message_id": step.message_id,
            "trigger": step.trigger,
            "pre_tokens": step.pre_tokens,
            "our_tokens": self.tokens,
        }
        self.compactions.append(entry)
        kept = {i: self._messages[i] for i in step.kept if i in self._messages}
        self._messages, self._order = kept, list(kept)
        self.size = NOTHING
        for size in kept.values():
            self.size = self.size.plus(size)
        self._results, self._cleared = {}, set()
        self._reported, self._after, self._response = None, 0, None

    def _microcompacted(self, step: LoggedMicrocompaction) -> None:
        settings = self.settings
        tools = frozenset(settings.microcompact_tools)
        candidates = [
            (identity, tokens)
            for identity, tokens in self._results.items()
            if identity not in self._cleared and self._names.get(identity) in tools
        ]
        chosen, saved = select_by_size(
            candidates,
            keep_tokens=settings.microcompact_keep_tokens,
            keep_last=settings.microcompact_keep_last,
            min_saved=settings.microcompact_min_saved_tokens,
        )
        entry = {
            "ids": list(step.ids),
            "our_ids": chosen,
            "tokens_saved": step.tokens_saved,
            "our_tokens_saved": saved,
        }
        self.microcompactions.append(entry)
        for identity in step.ids:
            self._cleared.add(identity)
            tokens = self._results.get(identity, 0)
            marker = text_size("[Old tool result content cleared]").base
            self.size = self.size.minus(Size(max(0, tokens - marker), max(0, tokens - marker), max(0, tokens - marker)))

    def _rewound(self, step: LoggedRewind) -> None:
        if step.to not in self._messages:
            return
        while self._order and self._order[-1] != step.to:
            self.size = self.size.minus(self._messages.pop(self._order.pop()))
        self._reported = None
        self._after = 0


@dataclass(slots=True)
class UnmanagedCost:
    """What a log's calls would take if nothing ever left the context: the whole history each time, and the cache alone.

    Up to the log's first compaction that is what was reported. From then on each prompt is larger by what the log's own
    system had taken out. Feed it every step in order, beside the history of the same log.
    """

    cost: TokenCost
    window_tokens: int
    outputs: Mapping[str, int] = field(default_factory=dict)  # of each response, by its id
    calls: int = 0
    beyond_window: int = 0  # calls that couldn't have been made
    _gone: int = 0  # tokens that the log's system took out
    _grown: int | None = None  # since a boundary: what the context would hold by now
    _response: str | None = None
    _last_prompt: int = 0
    _last_at: float | None = None

    def add(self, step: Step, log: LogHistory) -> None:
        """Go one step on; the history must not have seen the step yet."""
        if isinstance(step, LoggedCompaction):
            self._grown = (self._grown or log.tokens + self._gone) if log.usage else None
        elif isinstance(step, LoggedMicrocompaction):
            self._gone += step.tokens_saved or 0
        elif isinstance(step, RecordedMessage) and not step.logged_only and step.message.agent_id is None:
            self._said(step.message)

    def _said(self, message: Message) -> None:
        usage = message.usage
        is_new = message.response_id is None or message.response_id != self._response
        if message.role == "assistant" and usage is not None and usage.total_tokens and is_new:
            self._response = message.response_id
            self._called(usage, message)
        elif self._grown is not None:
            self._grown += sum(block_size(block).base for block in message.blocks)

    def _called(self, usage: Usage, message: Message) -> None:
        if self._grown is not None:
            self._gone, self._grown = max(self._gone, self._grown - usage.prompt_tokens), None
        prompt, at = usage.prompt_tokens + self._gone, message.at
        is_cold = at is not None and self._last_at is not None and self.cost.is_cold(at - self._last_at)
        ttl: CacheTtl | None = "1h" if usage.cache_creation_1h_tokens else None
        output = self.outputs.get(message.response_id or "", usage.output_tokens)
        self.cost.call(prompt, 0 if is_cold else self._last_prompt, output, ttl=ttl)
        self.calls += 1
        self.beyond_window += prompt + output > self.window_tokens
        self._last_prompt, self._last_at = prompt, at if at is not None else self._last_at
