"""Hooks around a compaction: asked in their order, each within its time; a failing one breaks nothing (CMP-10)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import anyio
import msgspec

from holdfast.context.hooked import Answer, Hook, PostCompact, PreCompact, Told
from holdfast.context.reminders import prepend_context
from holdfast.engine.session import LiveSession
from holdfast.events import HookFailed
from holdfast.transcript.edits import Compacted
from holdfast.transcript.messages import MessageId


@dataclass(frozen=True, slots=True)
class Hooked:
    """What came of the hooks before a compaction."""

    instructions: str
    blocked: str | None = None
    summary: str | None = None


async def before(session: LiveSession, trigger: str, instructions: str) -> Hooked:
    """Ask the hooks whether and how to compact. The first that blocks ends it."""
    hooked = Hooked(instructions)
    for hook in session.services.hooks:
        told = PreCompact(
            trigger="manual" if trigger == "manual" else "auto",
            instructions=hooked.instructions,
            session=session.name,
            agent=session.services.agent,
            tokens=session.facts().size(session.view),
            window_tokens=session.limits.window,
            messages=len(session.view.items),
        )
        answer = await _asked(session, hook, told)
        if answer.block is not None:
            return replace(hooked, blocked=f"{hook.name}: {answer.block}")
        wanted = hooked.instructions if answer.instructions is None else answer.instructions
        wanted = "\n".join(part for part in (wanted, answer.add_instructions) if part)
        hooked = Hooked(wanted, None, answer.summary or hooked.summary)
    return hooked


async def after(session: LiveSession, boundary: Compacted) -> None:
    """Tell the hooks what was done; what they add joins the conversation as a reminder."""
    text = "".join(getattr(block.value, "text", "") for block in boundary.summary[0].blocks)
    told = PostCompact(
        trigger="manual" if boundary.trigger == "manual" else "auto",
        strategy=boundary.strategy,
        session=session.name,
        agent=session.services.agent,
        summary=text,
        tokens_before=boundary.tokens_before,
        tokens_after=boundary.tokens_after,
        kept=len(boundary.kept),
    )
    added = {hook.name: (await _asked(session, hook, told)).context for hook in session.services.hooks}
    context = {name: text for name, text in added.items() if text.strip()}
    for message in prepend_context((), context):
        await session.append(msgspec.structs.replace(message, id=MessageId(""), at=None))


async def _asked(session: LiveSession, hook: Hook, told: Told) -> Answer:
    try:
        with anyio.fail_after(hook.timeout_seconds):
            return await hook.run(told) or Answer()
    except Exception as e:  # a named boundary: a hook must not break the session
        session.world.sink.emit(HookFailed(hook.name, type(told).__name__, type(e).__name__))
        return Answer()
