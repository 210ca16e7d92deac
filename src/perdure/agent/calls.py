"""Running what an answer calls for: those that look beside each other, the others in their order (LIB-1).

Whatever happens, each call has its result in the end: of the tool, of a refusal, or of the interruption.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Literal

import anyio

from perdure.agent.hooks import changed_input, response_of, tell_hooks
from perdure.agent.permissions import PermissionDecision, PermissionRule, ToolEffects, decide
from perdure.agent.progress import (
    Allow,
    Ask,
    Deny,
    OnProgress,
    PermissionQuestion,
    PermissionRefused,
    ToolEnded,
    ToolStarted,
)
from perdure.agent.tool_context import ToolContext, notify_observers
from perdure.agent.tools.tool import Tool, ToolInvocation, ToolOutcome, ToolRefused
from perdure.engine.hooks import hook_messages
from perdure.errors import PerdureError
from perdure.events import PermissionDecided, ToolCalled
from perdure.hooks import HookEvent, HookOutcome, Notification, PostToolUse, PostToolUseFailure, PreToolUse
from perdure.transcript.blocks import ToolUse
from perdure.transcript.messages import Message, MessageId, RefusedCall, ToolUseId
from perdure.transcript.tool_calls.refusals import denied

INTERRUPTED_CALL = "Interrupted by the user before it ended; what it did until then is done."
NOT_RUN = "Not run: the user stopped before it."
NOT_RUN_BY_HOOK = "Not run: a hook of the user's stopped before it."
LOST_CALL = "The session ended before this call had a result; whether it did anything is not known."


@dataclass(slots=True)
class ToolBatch:
    """The calls of one answer, and their outcomes as they come."""

    uses: tuple[ToolInvocation, ...]
    outcomes: dict[str, ToolOutcome] = field(default_factory=dict)
    begun: set[str] = field(default_factory=set)
    stopped_by: str = ""  # "user", who refused a call and wants to speak, or "hook"

    @classmethod
    def of(cls, uses: Sequence[ToolUse], prompt: MessageId) -> ToolBatch:
        return cls(tuple(ToolInvocation(use.id, use.name, use.input, prompt) for use in uses))

    def messages(self) -> tuple[Message, ...]:
        """The results in the order of the calls, and what follows them. Calls without one were interrupted."""
        outcomes = [self.outcomes.get(use.id) or self._missing(use) for use in self.uses]
        blocks = [result_block(use.id, outcome) for use, outcome in zip(self.uses, outcomes, strict=True)]
        behind = [message for outcome in outcomes for message in outcome.behind]
        refused = tuple(
            RefusedCall(ToolUseId(use.id), outcome.refused_by)
            for use, outcome in zip(self.uses, outcomes, strict=True)
            if outcome.refused_by is not None
        )
        answered = tuple(
            use.id
            for use, outcome in zip(self.uses, outcomes, strict=True)
            if outcome.is_users and not outcome.is_error
        )
        return (Message.of("user", blocks, origin="tool", refused=refused, answered=answered), *behind)

    def _missing(self, use: ToolInvocation) -> ToolOutcome:
        if use.id not in self.begun:
            return _not_made(self.not_run)
        return ToolOutcome("\n".join(part for part in (INTERRUPTED_CALL, use.partial) if part), is_error=True)

    @property
    def not_run(self) -> str:
        """What to say of a call that wasn't made any more."""
        return NOT_RUN_BY_HOOK if self.stopped_by == "hook" else NOT_RUN


def _not_made(why: str, *, by: Literal["user", "host"] = "host") -> ToolOutcome:
    """The outcome of a call that somebody said no to."""
    return ToolOutcome(why, is_error=True, refused_by=by)


def result_block(identity: str, outcome: ToolOutcome) -> dict[str, Any]:
    """An outcome as a block of the Messages API."""
    content: Any = outcome.content
    if isinstance(content, str):
        content = content.encode("utf-8", "replace").decode() or "(no output)"
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": identity, "content": content}
    return {**block, "is_error": True} if outcome.is_error else block


def _failure(tool: str, e: Exception) -> tuple[ToolOutcome, str]:
    """What a failure is to the model, and in one word."""
    if isinstance(e, OSError):
        place = f"{e.filename}: " if e.filename is not None else ""
        return ToolOutcome(f"{place}{e.strerror or e}", is_error=True), "error"
    if isinstance(e, ToolRefused | PerdureError):
        return ToolOutcome(str(e), is_error=True), "error"
    return ToolOutcome(f"{tool} failed: {type(e).__name__}: {e}", is_error=True), "failed"


@dataclass(slots=True)
class ToolRunner:
    """Runs batches with an agent's tools, within its permissions."""

    context: ToolContext
    tools: Mapping[str, Tool[Any]]
    on_progress: OnProgress | None = None
    _asking: anyio.Lock = field(default_factory=anyio.Lock)

    async def run(self, batch: ToolBatch) -> None:
        """Fill in the outcomes. Cancelled, it leaves those that are there."""
        limiter = anyio.CapacityLimiter(self.context.session.settings.agent_parallel)
        for is_parallel, group in groupby(batch.uses, self._is_parallel):
            some = tuple(group)
            if not is_parallel:
                for use in some:
                    await self._one(batch, use)
                continue
            async with anyio.create_task_group() as tasks:
                for use in some:
                    tasks.start_soon(self._limited, batch, use, limiter)

    def _is_parallel(self, use: ToolInvocation) -> bool:
        tool = self.tools.get(use.name)
        return tool is not None and tool.is_parallel

    async def _limited(self, batch: ToolBatch, use: ToolInvocation, limiter: anyio.CapacityLimiter) -> None:
        async with limiter:
            await self._one(batch, use)

    async def _one(self, batch: ToolBatch, use: ToolInvocation) -> None:
        if batch.stopped_by:
            return
        session = self.context.session
        clock, how = session.ports.clock, "interrupted"
        began = clock.now()
        outcome: ToolOutcome | None = None
        try:
            outcome, how = await self._tried(batch, use)
            batch.outcomes[use.id] = outcome
        finally:
            seconds = clock.now() - began
            text = outcome.text if outcome is not None else ""
            session.emit(ToolCalled(use.name, use.id, how, seconds, len(text)))
            if outcome is not None and self.on_progress is not None:
                self.on_progress(ToolEnded(use.id, use.name, text, outcome.is_error, seconds))

    async def _tried(self, batch: ToolBatch, use: ToolInvocation) -> tuple[ToolOutcome, str]:
        """The outcome of a call, and in one word how it ended."""
        try:
            tool = self.tools.get(use.name)
            if tool is None:
                raise ToolRefused(f"there is no tool {use.name!r}: {', '.join(self.tools)}")
            given = tool.read(use.arguments)
            before = await self._before(batch, use)
            if before.updated_input is not None and before.block is None:
                use.arguments = dict(before.updated_input)
                given = tool.read(use.arguments)
                changed = {"the input": changed_input(use.name, use.id, use.arguments)}
                before = replace(before, context={**changed, **before.context})
            behind = hook_messages(PreToolUse, before.context)
            effects = await tool.touches(self.context, given) if tool.touches else ToolEffects(tool.name)
            rule = tool.rule(given) if tool.rule else None
            refusal = _not_made(batch.not_run) if batch.stopped_by else None
            refusal = refusal or await self._refusal(batch, use, effects, rule, before)
            if refusal is not None:
                return replace(refusal, behind=behind), "denied"
            batch.begun.add(use.id)
            if self.on_progress is not None:
                self.on_progress(ToolStarted(use.id, use.name, use.arguments))
            outcome, how = await self._watched(batch, use, lambda: tool.run(self.context, use, given), tool.is_watched)
        except Exception as e:  # the boundary to tools: a failure of one is its result, and the work goes on
            return _failure(use.name, e)
        return replace(outcome, behind=(*behind, *outcome.behind)), how

    async def _before(self, batch: ToolBatch, use: ToolInvocation) -> HookOutcome:
        """What hooks say to a call that is about to be made."""
        before = await tell_hooks(
            self.context, PreToolUse, tool_name=use.name, tool_input=use.arguments, tool_use_id=use.id
        )
        self._stop_for(batch, before)
        return before

    async def _after(self, batch: ToolBatch, use: ToolInvocation, outcome: ToolOutcome) -> tuple[Message, ...]:
        """What hooks say to a call that was made, for the model."""
        call = {"tool_name": use.name, "tool_input": use.arguments, "tool_use_id": use.id}
        if outcome.is_error:
            event: type[HookEvent] = PostToolUseFailure
            after = await tell_hooks(self.context, PostToolUseFailure, **call, error=outcome.text)
        else:
            event = PostToolUse
            done = response_of(use.name, use.arguments, outcome)
            after = await tell_hooks(self.context, PostToolUse, **call, tool_response=done)
        self._stop_for(batch, after)
        blocked = {after.by: after.block} if after.block is not None else {}
        return hook_messages(event, {**after.context, **blocked})

    def _stop_for(self, batch: ToolBatch, outcome: HookOutcome) -> None:
        if outcome.stop is not None:
            batch.stopped_by = "hook"
            for tell in self.context.session.services.on_hook:
                tell(outcome.by, outcome.stop)

    async def _watched(
        self, batch: ToolBatch, use: ToolInvocation, run: Callable[[], Awaitable[ToolOutcome]], is_watched: bool
    ) -> tuple[ToolOutcome, str]:
        """Make a call between those who observe it; what hooks change behind it, such as its format, is part of it."""
        context = self.context
        if not is_watched or not context.observers:
            return await self._made(batch, use, run)
        await notify_observers(context, use.name, lambda one: one.before_call(use.name, use.arguments, use.prompt))
        try:
            return await self._made(batch, use, run)
        finally:
            with anyio.CancelScope(shield=True):
                await notify_observers(
                    context, use.name, lambda one: one.after_call(use.name, use.arguments, use.prompt)
                )

    async def _made(
        self, batch: ToolBatch, use: ToolInvocation, run: Callable[[], Awaitable[ToolOutcome]]
    ) -> tuple[ToolOutcome, str]:
        """The outcome of a call that may be made, with what hooks say to it."""
        try:
            outcome = await run()
            how = "error" if outcome.is_error else "ok"
        except Exception as e:  # the boundary to tools, again: hooks are told of this one
            outcome, how = _failure(use.name, e)
        batch.outcomes[use.id] = outcome  # it stands, also when its hooks are interrupted
        return replace(outcome, behind=(*outcome.behind, *await self._after(batch, use, outcome))), how

    async def _refusal(
        self,
        batch: ToolBatch,
        use: ToolInvocation,
        effects: ToolEffects,
        rule: PermissionRule | None,
        hooked: HookOutcome,
    ) -> ToolOutcome | None:
        """Why a call may not be made; None when it may. A person is asked one question at a time."""
        verdict = self._verdict(effects, hooked)
        if verdict.decision == "ask":
            if rule is not None and (hooked.permission == "ask" or not self._helps(rule, effects)):
                rule = None
            async with self._asking:
                if batch.stopped_by:
                    return _not_made(batch.not_run)
                verdict = self._verdict(effects, hooked)  # an answer just now may have settled it
                if verdict.decision == "ask":
                    return await self._asked(batch, use, verdict, rule)
        self._decided(use, verdict.decision, verdict.by)
        if verdict.decision == "allow":
            return None
        if self.on_progress is not None:
            self.on_progress(PermissionRefused(use.id, use.name, verdict))
        return _not_made(f"Permission denied: {verdict.why}. Find another way, or say what you need.")

    def _verdict(self, effects: ToolEffects, hooked: HookOutcome) -> PermissionDecision:
        """What rules, the mode and hooks say together.

        A hook's yes answers only what the mode would ask about: not what a rule forbids or asks for, nor what touches
        files that others obey, or leaves the project or the sandbox.
        """
        by = f"hook {hooked.by}"
        if hooked.block is not None:
            return PermissionDecision("deny", by, f"a hook refuses it: {hooked.block}")
        verdict = decide(effects, self.context.policy)
        if hooked.permission == "ask" and verdict.decision == "allow":
            return PermissionDecision("ask", by, hooked.reason or "a hook says to ask")
        if hooked.permission == "allow" and verdict.decision == "ask" and verdict.by == f"mode {self.context.mode}":
            return PermissionDecision("allow", by, "")
        return verdict

    def _helps(self, rule: PermissionRule, effects: ToolEffects) -> bool:
        """Whether a call is allowed with one more rule: a redirect to a file, for one, isn't by that of its command."""
        policy = self.context.policy
        return decide(effects, replace(policy, rules=policy.rules.allowing(rule))).decision == "allow"

    async def _asked(
        self, batch: ToolBatch, use: ToolInvocation, verdict: PermissionDecision, rule: PermissionRule | None
    ) -> ToolOutcome | None:
        context = self.context
        if context.ask is None:
            self._decided(use, "deny", "nobody to ask")
            if self.on_progress is not None:
                self.on_progress(PermissionRefused(use.id, use.name, verdict, rule))
            return _not_made(
                f"Permission denied: it would have to be asked for ({verdict.why}), and nobody is there to ask."
            )
        answer = await self._answer(context.ask, PermissionQuestion(use.id, use.name, use.arguments, verdict.why, rule))
        if isinstance(answer, Deny):
            self._decided(use, "deny", "the user")
            if answer.stops:
                batch.stopped_by = "user"
            return _not_made(denied("Nothing was done.", answer.message), by="user")
        if answer.rule is not None:
            context.rules = context.rules.allowing(answer.rule)
        self._decided(use, "allow", "the user")
        use.let = "approved"
        return None

    async def _answer(self, ask: Ask, question: PermissionQuestion) -> Allow | Deny:
        """Ask a person, and tell hooks that they are needed; those aren't waited for once the answer is there."""
        answers: list[Allow | Deny] = []
        failed: list[Exception] = []
        async with anyio.create_task_group() as tasks:

            async def notify() -> None:
                message = f"Perdure needs your permission to use {question.tool}"
                await tell_hooks(self.context, Notification, message=message, notification_type="permission_prompt")

            tasks.start_soon(notify)
            try:
                answers.append(await ask(question))
            except Exception as e:  # carried out of the group, which would wrap it
                failed.append(e)
            tasks.cancel_scope.cancel()
        if failed:
            raise failed[0]
        return answers[0]

    def _decided(self, use: ToolInvocation, decision: str, by: str) -> None:
        self.context.session.emit(PermissionDecided(use.name, use.id, decision, by))


def answer_unanswered(open_calls: Iterable[str], text: str) -> Message:
    """One message that answers these calls with why they have no result."""
    blocks = [result_block(identity, ToolOutcome(text, is_error=True)) for identity in open_calls]
    return Message.of("user", blocks, origin="tool")
