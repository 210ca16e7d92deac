"""Running hooks: all that want an event beside each other, and what they add to the conversation (CMP-10).

Those that nobody waits for run as jobs of the session. What they add joins the conversation with the next turn; they
end with the session at the latest.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

from perdure import prompts
from perdure.context.reminders import inline, quoted
from perdure.errors import PerdureError
from perdure.events import HookFailed
from perdure.hooks import Hook, HookDecision, HookEvent, HookOutcome, outcome_of
from perdure.transcript.messages import Message

if TYPE_CHECKING:
    from perdure.engine.session import LiveSession

NOTE = "hook"


def hook_fields(session: LiveSession) -> dict[str, Any]:
    """Whose conversation it is, for any event: a sub-agent's goes by the session that it works for."""
    services = session.services
    return {"session_id": services.parent or session.id, "agent_id": services.agent}


async def run_hooks(session: LiveSession, told: HookEvent) -> HookOutcome:
    """Tell every hook that wants this event, and put together what they want.

    A hook that fails or takes too long is reported as `HookFailed`, and otherwise as if it weren't there. One that is
    async is started, and not waited for.
    """
    wanted, jobs = [hook for hook in session.services.hooks if hook.matches(told)], session.services.hook_jobs
    if jobs is not None:
        for hook in (one for one in wanted if one.is_async):
            jobs.start(f"hook-{type(told).__name__}", partial(_hear_later, session, hook, told))
        wanted = [hook for hook in wanted if not hook.is_async]
    if not wanted:
        return HookOutcome()
    said = [HookDecision()] * len(wanted)

    async def ask(number: int, hook: Hook) -> None:
        said[number] = await _decision(session, hook, told)

    if len(wanted) == 1:  # nearly always: there is nobody to run beside
        await ask(0, wanted[0])
    else:
        async with anyio.create_task_group() as tasks:
            for number, hook in enumerate(wanted):
                tasks.start_soon(ask, number, hook)
    for hook, one in zip(wanted, said, strict=True):
        _show(session, hook, one)
    return outcome_of([(hook.name, one) for hook, one in zip(wanted, said, strict=True)])


async def _hear_later(session: LiveSession, hook: Hook, told: HookEvent) -> None:
    said = await _decision(session, hook, told)
    _show(session, hook, said)
    if said.context.strip():
        session.hear_late(*hook_messages(type(told), {hook.name: said.context}))


def _show(session: LiveSession, hook: Hook, said: HookDecision) -> None:
    for tell in session.services.on_hook if said.message else ():
        tell(hook.name, said.message)


async def _decision(session: LiveSession, hook: Hook, told: HookEvent) -> HookDecision:
    try:
        with anyio.fail_after(hook.timeout_seconds):
            return await hook.run(told) or HookDecision()
    except Exception as e:  # a named boundary: a hook must not break the session
        why = str(e) if isinstance(e, PerdureError) else type(e).__name__
        if isinstance(e, TimeoutError):
            why = f"it took longer than {hook.timeout_seconds:g} seconds"
        session.emit(HookFailed(hook.name, type(told).__name__, why))
        return HookDecision()


def hook_messages(event: type[HookEvent], said: Mapping[str, str]) -> tuple[Message, ...]:
    """What hooks add to the conversation, by their names, as one reminder; none when they add nothing."""
    if not said:
        return ()
    sections = "\n\n".join(f"## {inline(name)}\n{quoted(text)}" for name, text in said.items())
    text = prompts.render("hook_context", event=event.__name__, sections=sections)
    return (Message.of("user", text, origin="reminder", note=NOTE),)
