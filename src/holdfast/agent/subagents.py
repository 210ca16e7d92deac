"""Sub-agents: agents with a journal of their own beside the session, that answer one task (SES-3)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import anyio
from msgspec.structs import replace

from holdfast.agent.background import RESULT_CHARS, Background, State
from holdfast.agent.progress import Said
from holdfast.agent.skills import Scope
from holdfast.agent.tools.tool import Refused
from holdfast.engine.session import LiveSession
from holdfast.transcript.records import InFlight

_WHAT_CHARS = 200


class Child(Protocol):
    """An agent, as its parent sees it."""

    session: LiveSession

    async def say(self, prompt: str) -> Said: ...

    async def close(self) -> None: ...


@dataclass(slots=True)
class Subagents:
    """Starts sub-agents. `make` gives one of a scope with an id, its journal new or (`resumes`) taken up again."""

    session: LiveSession
    background: Background
    scopes: Mapping[str, Scope]
    make: Callable[[str, Scope, bool], Awaitable[Child]]
    where: Callable[[str], str]
    _busy: set[str] = field(default_factory=set)

    async def run(self, scope: str, task: str, what: str, *, behind: bool, resume: str | None = None) -> str:
        """Do a task: in front, its last words come back; in the background (`behind`), how to ask for them."""
        kind = self.scopes.get(scope)
        if kind is None:
            raise Refused(f"there is no kind of agent {scope!r}: {', '.join(self.scopes)}")
        identity = resume or self.session.world.ids.new("agent")
        if resume is not None and not any(w.id == resume and w.kind == "agent" for w in self.background.works):
            raise Refused(f"no agent has the id {resume[:80]!r}")
        if identity in self._busy:
            raise Refused(f"{identity} is at work: wait for it (BashOutput), or stop it (KillShell)")
        began = self.session.world.clock.now()
        work = InFlight(id=identity, kind="agent", what=what[:_WHAT_CHARS], where=self.where(identity), began=began)
        self._busy.add(identity)
        if behind:
            await self.background.start_agent(work, lambda: self._done(identity, kind, task, resume is not None))
            return (
                f"Async agent launched.\nagentId: {identity}\noutput_file: {work.where}\n"
                "You are told when it ends; BashOutput with this id shows how it stands."
            )
        return await self._in_front(work, kind, task, resume is not None)

    async def _in_front(self, work: InFlight, kind: Scope, task: str, resumes: bool) -> str:
        await self.background.note(work)
        ended = _with(work, "stopped", "")
        try:
            text = await self._done(work.id, kind, task, resumes)
            ended = _with(work, "completed", text)
        except Exception as e:
            ended = _with(work, "failed", f"{type(e).__name__}: {e}")
            raise
        finally:
            with anyio.CancelScope(shield=True):
                await self.background.note(ended)
        return f"{text}\n\nagentId: {work.id} (to go on with it: Task with resume)"

    async def _done(self, identity: str, kind: Scope, task: str, resumes: bool) -> str:
        try:
            child = await self.make(identity, kind, resumes)
            try:
                said = await child.say(task)
            finally:
                with anyio.CancelScope(shield=True):
                    await child.close()
        finally:
            self._busy.discard(identity)
        if said.stopped != "done":
            return f"{said.text}\n[the agent ended early: {said.stopped}]".strip()
        return said.text or "(the agent said nothing)"


def _with(work: InFlight, state: State, result: str) -> InFlight:
    """How some work ended that ran in front, so that its caller was told."""
    return replace(work, state=state, result=result[:RESULT_CHARS], is_told=True)
