"""Forks: a helper that asks a model on the conversation's cached prefix, within a permit (SM-3, MEM-6, SEC-3).

A fork begins at the last closed pair of what was sent, asks for one thing, and runs the calls that its permit allows;
every other call is answered with the permit's words. It reads a copy of the view and changes nothing of the session:
what it says is in its own journal, in memory. It never prepares or compacts (PRS-5), and ends with the first error that
waiting doesn't mend.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from perdure.compaction.side_requests import ForkBase, ForkTurn, can_go_on, fork_base, fork_request
from perdure.context.cost import ForkSpending, add_usage, usage_usd
from perdure.context.models import CacheTtl, ModelSpec, model_spec
from perdure.context.policy import Facts
from perdure.context.replies import ModelInfo, Reply
from perdure.context.request import ModelRequest
from perdure.context.view import ContextView
from perdure.engine.ask import Job, JobModels, ask_job
from perdure.engine.session import LiveSession
from perdure.errors import ModelError
from perdure.events import ForkEnded, ModelFellBack
from perdure.ports.session import Model
from perdure.transcript.blocks import Block, ToolUse
from perdure.transcript.messages import Message, MessageId, ToolUseId, Usage

Permit = Callable[[str, Mapping[str, Any]], str | None]
"""Why a call of a tool with these arguments is denied; None when it is allowed. A pure function, asked at each call."""

_BROKEN_OFF = {"max_tokens": "cut_off", "model_context_window_exceeded": "cut_off", "refusal": "refused"}


@dataclass(frozen=True, slots=True)
class ForkToolResult:
    """What a tool says to a fork."""

    text: str
    is_error: bool = False


async def no_reply(text: str) -> str | None:
    """The answer to a fork that called nothing: it is done."""
    return None


def always_continue(answers: Sequence[ForkToolResult]) -> bool:
    """A fork goes on after its calls, until it makes none."""
    return True


def tool_definitions(view: ContextView) -> dict[str, Mapping[str, Any]]:
    """The tools that a conversation has, and so its forks, by name; as either protocol defines one."""
    found: dict[str, Mapping[str, Any]] = {}
    for raw in view.front.tools if view.front else ():
        tool = msgspec.json.decode(raw)
        tool = tool.get("function") or tool
        found[tool.get("name", "")] = tool
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkTask:
    """What a fork is for.

    `run` does an allowed call. `continues` says after the calls of a turn whether the model is to see the answers;
    `reply` what to say to a model that called nothing (None: it is done). There are at most `most_turns` calls of it.
    """

    job: Job
    instruction: str
    permit: Permit
    run: Callable[[str, Mapping[str, Any]], Awaitable[ForkToolResult]]
    continues: Callable[[Sequence[ForkToolResult]], bool] = always_continue
    reply: Callable[[str], Awaitable[str | None]] = no_reply
    most_turns: int = 4


@dataclass(slots=True)
class ForkResult:
    """A fork as it ran. `reason` is empty when it ended by itself, else why it ended: its first word is a code.

    `covers` is the last message of the conversation that it saw, at position `upto` - 1. `journal` holds what it was
    asked, what it said, and what it was told: its own, nothing of it is in the conversation. `usage` is the sum of all
    turns, `usd` their price, None where that isn't known.
    """

    job: Job
    about: ModelInfo
    covers: MessageId | None = None
    upto: int = 0
    reason: str = ""
    turns: int = 0
    allowed: int = 0
    denied: int = 0
    usage: Usage = field(default_factory=Usage)
    usd: float | None = None
    journal: list[Message] = field(default_factory=list)
    is_error: bool = False  # it ended with an error of the model, so another model may be asked

    def spending(self, at: float) -> ForkSpending | None:
        """What it cost, for the journal; None when no answer came."""
        if not self.turns:
            return None
        return ForkSpending(
            job=self.job,
            model=self.about.id,
            at=at,
            turns=self.turns,
            usage=self.usage,
            usd=self.usd,
            ended=self.reason.split(":")[0],
        )

    def ended(self) -> ForkEnded:
        """The event that says so."""
        usage = self.usage
        return ForkEnded(
            self.job,
            self.about.id,
            self.turns,
            self.allowed,
            self.denied,
            usage.input_tokens,
            usage.output_tokens,
            usage.cache_read_input_tokens,
            usage.cache_creation_input_tokens,
            self.usd,
            self.reason.split(":")[0],
        )

    def hear(self, said: Reply, prices: ModelSpec, ttl: CacheTtl) -> None:
        """Enter an answer into the journal, and what it cost."""
        self.turns += 1
        self.journal.append(
            Message.of("assistant", said.blocks, response_id=said.response, model=self.about.id, usage=said.usage)
        )
        paid = said.billed or said.usage
        if paid is None:
            return
        self.usage = add_usage(self.usage, paid)
        if prices.input_usd is not None:
            self.usd = (self.usd or 0.0) + usage_usd(paid, prices, ttl)


async def run_fork(
    session: LiveSession, view: ContextView, facts: Facts, models: Sequence[Model], task: ForkTask
) -> ForkResult:
    """Run a fork, with the first of these models that answers. Never raises for what a model does.

    `view` is the caller's copy; there has to be a model. One that fails before its first answer gives way to the next;
    behind that the task may have been begun, so its error ends the fork.
    """
    left = list(models)
    while True:
        model = left.pop(0)
        fork = await _fork_with(session, view, facts, model, task)
        session.emit(fork.ended())
        if not left or fork.turns or not fork.is_error:
            return fork
        session.emit(ModelFellBack(task.job, left[0].about.id, fork.reason))


async def _fork_with(session: LiveSession, view: ContextView, facts: Facts, model: Model, task: ForkTask) -> ForkResult:
    about = model.about
    fork = ForkResult(task.job, about)
    base = fork_base(view, facts, about)
    if base is None:
        fork.reason = "nothing_closed: no pair of what was sent is closed"
        return fork
    fork.covers, fork.upto = base.message, base.upto
    fork.journal.append(Message.of("user", task.instruction, origin="reminder"))
    exchanges: list[ForkTurn] = []
    while not fork.reason:
        said = await _next_answer(session, view, facts, model, (base, task, exchanges))
        if isinstance(said, str | ModelError):
            fork.is_error = isinstance(said, ModelError)
            fork.reason = said if isinstance(said, str) else f"model_failed: {said.reason}"
            break
        fork.hear(said, facts.model if base.is_own else model_spec(about.id), facts.cache_ttl(view))
        exchange = await _answer_calls(fork, task, said)
        if exchange is None:
            break
        exchanges.append(exchange)
    return fork


async def _next_answer(
    session: LiveSession,
    view: ContextView,
    facts: Facts,
    model: Model,
    at: tuple[ForkBase, ForkTask, Sequence[ForkTurn]],
) -> Reply | ModelError | str:
    """The next answer, or why there is none: a request that can't fit isn't sent."""
    base, task, exchanges = at
    about = model.about
    request, tokens = fork_request(view, facts, base, about, (task.instruction, exchanges))
    window = facts.limits.window if base.is_own else about.window_tokens or model_spec(about.id).window_tokens
    if tokens >= window:
        return f"too_long: {tokens:,} tokens, and the window of {about.id} is {window:,}"

    def asking(_: ModelInfo) -> tuple[ModelRequest, int]:
        return request, tokens

    chain: dict[str, tuple[Model, ...]] = {task.job: (model,)}
    return await ask_job(session, JobModels(**chain), task.job, asking)


async def _answer_calls(fork: ForkResult, task: ForkTask, said: Reply) -> ForkTurn | None:
    """Run what was called, or answer what was said; None when the fork is over, with the reason in it if there is one.

    Of an answer that was broken off nothing is run: its last call may be half of what was meant.
    """
    if said.stop_reason in _BROKEN_OFF:
        fork.reason = f"{_BROKEN_OFF[said.stop_reason]}: the answer ended with {said.stop_reason}"
        return None
    uses = said.tool_uses
    answers = [await _answer_call(fork, task, use) for use in uses]
    words = None if uses else await task.reply(said.text)
    exchange = ForkTurn(
        said,
        tuple((ToolUseId(use.id), one.text, one.is_error) for use, one in zip(uses, answers, strict=True)),
        words or "",
    )
    told: list[Block | dict[str, Any]] = [
        {"type": "tool_result", "tool_use_id": call, "content": text, "is_error": is_error}
        for call, text, is_error in exchange.results
    ]
    told += [{"type": "text", "text": words}] if words else []
    if told:
        fork.journal.append(Message.of("user", told, origin="reminder"))
    if words is None and not (uses and task.continues(answers)):
        return None
    if fork.turns >= task.most_turns:
        fork.reason = f"turns: it wasn't done after {task.most_turns} turns"
    elif not can_go_on(said):
        fork.reason = "open: the answer holds what can't be gone on with"
    return exchange


async def _answer_call(fork: ForkResult, task: ForkTask, use: ToolUse) -> ForkToolResult:
    """The answer to one call: the tool's, where the permit allows it, else the permit's (SEC-3)."""
    denial = task.permit(use.name, use.input)
    if denial is not None:
        fork.denied += 1
        return ForkToolResult(denial, is_error=True)
    fork.allowed += 1
    return await task.run(use.name, use.input)
