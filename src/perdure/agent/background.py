"""Background work of an agent: commands and sub-agents that run beside the conversation (SES-3)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import anyio
from msgspec.structs import replace

from perdure.agent.progress import BackgroundEnded, OnProgress, RunResult
from perdure.agent.skills import SubagentType
from perdure.agent.tools.tool import ToolRefused, output_text
from perdure.context.reminders import neutralised
from perdure.engine.session import LiveSession
from perdure.events import BackgroundChanged
from perdure.ports.machine import CommandExit as Ended
from perdure.ports.machine import PermissionSource as Let
from perdure.ports.machine import RunningCommand as Command
from perdure.ports.machine import Shell
from perdure.ports.session import Jobs
from perdure.transcript.messages import Message
from perdure.transcript.records import InFlight

State = Literal["running", "completed", "failed", "stopped", "lost"]
_WHAT_CHARS = 200
_LOOK_BYTES = 100_000  # of new output in one look
_RESULT_CHARS = 20_000
_NOTHING_NEW = "(no new output)"


class ChildAgent(Protocol):
    """An agent, as its parent sees it."""

    session: LiveSession

    async def say(self, prompt: str) -> RunResult: ...

    async def close(self) -> None: ...


@dataclass(slots=True)
class Subagents:
    """Starts sub-agents. `make` gives one of a scope with an id, its journal new or (`resumes`) taken up again."""

    session: LiveSession
    background: BackgroundTasks
    scopes: Mapping[str, SubagentType]
    make: Callable[[str, SubagentType, bool], Awaitable[ChildAgent]]
    where: Callable[[str], str]
    _busy: set[str] = field(default_factory=set)

    async def run(self, scope: str, task: str, what: str, *, behind: bool, resume: str | None = None) -> str:
        """Do a task: in front, its last words come back; in the background (`behind`), how to ask for them."""
        kind = self.scopes.get(scope)
        if kind is None:
            raise ToolRefused(f"there is no kind of agent {scope!r}: {', '.join(self.scopes)}")
        identity = resume or self.session.ports.ids.new("agent")
        if resume is not None and not any(w.id == resume and w.kind == "agent" for w in self.background.works):
            raise ToolRefused(f"no agent has the id {resume[:80]!r}")
        if identity in self._busy:
            raise ToolRefused(f"{identity} is at work: wait for it (BashOutput), or stop it (KillShell)")
        began = self.session.ports.clock.now()
        work = InFlight(id=identity, kind="agent", what=what[:_WHAT_CHARS], where=self.where(identity), began=began)
        self._busy.add(identity)
        if behind:
            await self.background.start_agent(work, lambda: self._done(identity, kind, task, resume is not None))
            return (
                f"Async agent launched.\nagentId: {identity}\noutput_file: {work.where}\n"
                "You are told when it ends; BashOutput with this id shows how it stands."
            )
        return await self._in_front(work, kind, task, resume is not None)

    async def _in_front(self, work: InFlight, kind: SubagentType, task: str, resumes: bool) -> str:
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

    async def _done(self, identity: str, kind: SubagentType, task: str, resumes: bool) -> str:
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
    return replace(work, state=state, result=result[:_RESULT_CHARS], is_told=True)


class BackgroundTasks:
    """The work of one agent. Ids are those of the journal's `in_flight` records."""

    def __init__(self, session: LiveSession, shell: Shell, jobs: Jobs, on_progress: OnProgress | None = None) -> None:
        self._session, self._shell, self._jobs = session, shell, jobs
        self._on_progress = on_progress
        self._commands: dict[str, Command] = {}
        self._scopes: dict[str, anyio.CancelScope] = {}
        self._ended: dict[str, anyio.Event] = {}
        self._waiting: dict[str, InFlight] = {}  # not in the journal yet
        self._offsets: dict[str, int] = {}
        self._recording = anyio.Lock()

    @property
    def works(self) -> tuple[InFlight, ...]:
        """All that is known, as of now."""
        return tuple({**self._session.view.state.in_flight, **self._waiting}.values())

    @property
    def running(self) -> tuple[InFlight, ...]:
        return tuple(work for work in self.works if work.state == "running")

    @property
    def news(self) -> tuple[InFlight, ...]:
        """What ended, and the model wasn't told of."""
        return tuple(work for work in self.works if work.state != "running" and not work.is_told)

    async def start_command(
        self, command: str, cwd: str, what: str = "", let: Let = "approved", hidden: Sequence[str] = ()
    ) -> InFlight:
        """Start a command that somebody let run, and record it; one that can't be recorded is stopped again."""
        self._admit()
        ids, clock = self._session.ports.ids, self._session.ports.clock
        identity = ids.new("command")
        running = await self._shell.start(identity, command, cwd=cwd, let=let, hidden=hidden, outlives=True)
        label = what or " ".join(command.split())
        work = InFlight(id=identity, kind="command", what=label[:_WHAT_CHARS], where=running.output, began=clock.now())
        try:
            await self._record(work)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await running.stop()
            raise
        self._watch(work, running)
        return work

    async def start_agent(self, work: InFlight, run: Callable[[], Awaitable[str]]) -> None:
        """Run a sub-agent beside the conversation; what it returns is its result."""
        self._admit()
        await self._record(work)
        scope = anyio.CancelScope()
        self._scopes[work.id], self._ended[work.id] = scope, anyio.Event()

        async def watched() -> None:
            state: State = "stopped"
            result = ""
            try:
                with scope:
                    result, state = await run(), "completed"
            except Exception as e:  # the boundary to a sub-agent: its failure is its result
                state, result = "failed", f"{type(e).__name__}: {e}"
            finally:
                self._over(work.id, state, result, None)

        self._jobs.start(work.id, watched)

    async def note(self, work: InFlight) -> None:
        """Record how some work stands that runs in front."""
        await self._record(work)

    def _admit(self) -> None:
        most = self._session.settings.agent_background
        if len(self.running) >= most:
            raise ToolRefused(f"{most} commands and agents run in the background already: end one first (KillShell)")

    def _watch(self, work: InFlight, command: Command) -> None:
        self._commands[work.id], self._ended[work.id] = command, anyio.Event()

        async def watched() -> None:
            ended: Ended | None = None
            try:
                ended = await command.wait()
            finally:
                if ended is not None:
                    self._over(work.id, "completed" if ended.code == 0 else _word(ended.code), "", ended.code)

        self._jobs.start(work.id, watched)

    def _over(self, identity: str, state: State, result: str, code: int | None) -> None:
        """Some work ended; the journal hears of it at the next safe place."""
        known = next((work for work in self.works if work.id == identity), None)
        if known is None or known.state != "running":
            return
        now = self._session.ports.clock.now()
        ended = replace(known, state=state, ended=now, result=result[:_RESULT_CHARS], code=code)
        self._waiting[identity] = ended
        if (event := self._ended.get(identity)) is not None:
            event.set()
        self._session.emit(BackgroundChanged(identity, ended.kind, ended.state, code))
        if self._on_progress is not None:
            self._on_progress(BackgroundEnded(ended))

    async def _record(self, *works: InFlight) -> None:
        async with self._recording:
            await self._session.record(*works)
        for work in works:
            if self._waiting.get(work.id) == work:
                del self._waiting[work.id]
            if work.state == "running":
                self._session.emit(BackgroundChanged(work.id, work.kind, work.state, None))

    async def announce_ended(self) -> None:
        """Say what ended, for the model, and record it. Only the session's owner calls this, between turns."""
        news = self.news
        if not news:
            return
        notices = [Message.of("user", _notice(work), origin="reminder") for work in news]
        told = tuple(replace(work, is_told=True) for work in news)
        with anyio.CancelScope(shield=True):
            async with self._recording:
                await self._session.append(*notices, also=told)  # said and known to be said, or neither
            for work in news:
                if self._waiting.get(work.id) == work:
                    del self._waiting[work.id]

    async def resume(self) -> None:
        """Take up what an earlier process left running: its commands may run still, its sub-agents don't."""
        for work in self.running:
            if work.id in self._ended:
                continue
            command = await self._shell.find(work.id) if work.kind == "command" else None
            if command is not None:
                self._watch(work, command)
            else:
                self._ended[work.id] = anyio.Event()
                self._over(work.id, "lost", "", None)

    def _known(self, identity: str) -> InFlight:
        work = next((work for work in self.works if work.id == identity), None)
        if work is None:
            ids = ", ".join(work.id for work in self.works) or "there is none"
            raise ToolRefused(f"no background work has the id {identity[:80]!r}: {ids}")
        return work

    async def new_output(self, identity: str, seconds: float = 0.0) -> str:
        """New output since the last look, and the state; waits for the end at most so long."""
        work = self._known(identity)
        event = self._ended.get(identity)
        if seconds and work.state == "running" and event is not None:
            with anyio.move_on_after(seconds):
                await event.wait()
            work = self._known(identity)
        text = work.result if work.kind == "agent" else await self._new_output(work)
        if work.state != "running" and not work.is_told:
            self._waiting.pop(identity, None)
            await self._record(replace(work, is_told=True))
        code = f"\n<exit_code>{work.code}</exit_code>" if work.code is not None else ""
        return f"<status>{work.state}</status>{code}\n<output>\n{text or _NOTHING_NEW}\n</output>"

    async def _new_output(self, work: InFlight) -> str:
        offset = self._offsets.get(work.id, 0)
        command = self._commands.get(work.id)
        size = command.size_bytes() if command is not None else None
        if size is not None and size - offset > _LOOK_BYTES:
            skipped, offset = size - offset - _LOOK_BYTES, size - _LOOK_BYTES
            lead = f"[{skipped:,} bytes left out; all of it is in {work.where}]\n"
        else:
            lead = ""
        data = await self._shell.read(work.where, offset=offset, limit_bytes=_LOOK_BYTES)
        if work.state == "running" or len(data) == _LOOK_BYTES:
            data = data[: len(data) - _begun(data)]  # the rest of a character comes with the next look
        self._offsets[work.id] = offset + len(data)
        return (lead + output_text(data)).rstrip("\n")

    async def stop(self, identity: str) -> InFlight:
        """End some work, with all that it started."""
        work = self._known(identity)
        if work.state != "running":
            raise ToolRefused(f"{identity} is not running: it is {work.state}")
        await self._stopped(work)
        self._over(identity, "stopped", "", None)
        told = replace(self._known(identity), is_told=True)
        self._waiting.pop(identity, None)
        await self._record(told)
        return told

    async def _stopped(self, work: InFlight) -> None:
        if (command := self._commands.get(work.id)) is not None:
            await command.stop()
        elif (scope := self._scopes.get(work.id)) is not None:
            scope.cancel()
            await self._ended[work.id].wait()

    async def close(self) -> None:
        """End everything that still runs, and record how it ended."""
        for work in self.running:
            await self._stopped(work)
            self._over(work.id, "stopped", "", None)
        await self._jobs.close()
        if self._waiting:
            await self._record(*self._waiting.values())


def _begun(data: bytes) -> int:
    """How many bytes at the end begin a character of UTF-8 whose others are missing; 0 where it isn't UTF-8 anyway."""
    for back in range(1, min(4, len(data) + 1)):
        lead = data[-back]
        if lead >= 0xC0:
            wanted = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
            return back if back < wanted and lead < 0xF8 else 0
        if lead < 0x80:
            return 0
    return 0


def _word(code: int | None) -> State:
    """The state of a command that ended with anything but success."""
    return "lost" if code is None else "stopped" if code < 0 else "failed"


def _notice(work: InFlight) -> str:
    """How the model is told of an end; what the work said is data."""
    how = {"completed": "completed", "failed": "failed", "stopped": "was stopped", "lost": "ended while nobody looked"}
    code = f" (exit code {work.code})" if work.code is not None else ""
    more = ", and can be taken up with Task and resume" if work.kind == "agent" and work.state == "lost" else ""
    what = neutralised(" ".join(work.what.split())).replace("<", "(")
    rows = [
        "<task-notification>",
        f"<task-id>{work.id}</task-id>",
        f"<status>{work.state}</status>",
        f"<output-file>{work.where}</output-file>" if work.where else "",
        f"<summary>The {work.kind} “{what}” {how.get(work.state, work.state)}{code}{more}</summary>",
        f"<result>\n{neutralised(work.result)}\n</result>" if work.result else "",
        "</task-notification>",
    ]
    return "\n".join(row for row in rows if row)
