"""One conversation in an editor: a prompt at a time, what is shown of it in order, questions on the way (ACP-1)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import anyio

from perdure.acp.updates import Update, call_data, call_ended, chunk, compaction, plan, replayed, text_content
from perdure.adapters.machine.edits import proposed_edits
from perdure.agent.permissions import Mode
from perdure.agent.progress import (
    AgentProgress,
    Allow,
    AnswerReceived,
    BackgroundEnded,
    Deny,
    HookMessage,
    MemoryUpdated,
    PermissionQuestion,
    RunResult,
    SubagentProgress,
    ToolEnded,
    ToolStarted,
)
from perdure.context.replies import TextDelta, ThinkingDelta
from perdure.engine.compact import CompactionSuccess, compact, uncompact
from perdure.engine.rewind import conversation
from perdure.engine.session import pin
from perdure.engine.tools import recall
from perdure.errors import ModelGaveUp, PerdureError
from perdure.events import CompactionDone, Event, ModelCalled
from perdure.ports.session import Model
from perdure.recall.queries import RecallRequest
from perdure.text.cleaning import controls_removed
from perdure.transcript.messages import Message
from perdure.wiring.factory import close_session, work

if TYPE_CHECKING:
    from perdure.agent.loop import AgentLoop
    from perdure.wiring.factory import AgentFactory

MODES: tuple[tuple[Mode, str, str], ...] = (
    ("default", "Ask", "Asks before it changes anything"),
    ("accept_edits", "Accept edits", "Edits files of the project unasked, and asks before it runs commands"),
    ("plan", "Plan", "Reads and plans, and changes nothing"),
    ("bypass", "Bypass", "Does everything unasked that no rule forbids"),
)
COMMANDS: dict[str, tuple[str, str]] = {  # name: (what it does, a hint at what stands behind it)
    "compact": ("Make room in the context window now", "what to keep above all"),
    "undo": ("Take the last compaction back", ""),
    "context": ("Show how full the context window is", ""),
    "recall": ("Show the original that an id stands for", "an id, as a record or a cleared result names it"),
    "pin": ("Keep a text in the context whatever is compacted", "the text"),
}
_STOPS = {
    "done": "end_turn",
    "hook": "end_turn",
    "stopped": "end_turn",
    "interrupted": "cancelled",
    "turns": "max_turn_requests",
    "refused": "refusal",
    "max_tokens": "max_tokens",
}
Notify = Callable[[str, dict[str, Any]], Awaitable[None]]
Request = Callable[[str, dict[str, Any]], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Wording:
    """How an error, an event, a failed compaction and the fill of the window read, in a person's words."""

    error: Callable[[PerdureError], str]
    event: Callable[[Event], str | None]
    not_compacted: Callable[[str], str]
    room: Callable[[AgentLoop], str]


@dataclass(frozen=True, slots=True)
class EditorLink:
    """The way to the editor, and what it said it can do. `reports`: it shows compactions."""

    notify: Notify
    request: Request
    wording: Wording
    reports: bool


class EditorSession:
    """A conversation that an editor has open. Made by `EditorSession.opened`."""

    def __init__(self, link: EditorLink, factory: AgentFactory, notes: Sequence[str]) -> None:
        self._link, self._factory = link, factory
        self._notes = tuple(notes)
        self._agent: AgentLoop | None = None
        self._updates: asyncio.Queue[Update | asyncio.Event] = asyncio.Queue()
        self._teller: asyncio.Task[None] | None = None
        self._scope: anyio.CancelScope | None = None
        self._working = asyncio.Lock()
        self._usd: float | None = None
        self._mode: Mode = "default"
        factory.ask, factory.on_progress, factory.also = self._ask, self._progress, self

    @classmethod
    async def opened(
        cls, link: EditorLink, factory: AgentFactory, directory: Path | None, notes: Sequence[str]
    ) -> EditorSession:
        """A new session, or the one in a directory; the person is told the notes before the first answer.

        Raises what `AgentFactory.agent` raises.
        """
        made = cls(link, factory, notes)
        made._agent = await factory.agent(resume=directory)
        made._mode = made.agent.mode
        made._teller = asyncio.create_task(made._tell())
        return made

    @property
    def agent(self) -> AgentLoop:
        assert self._agent is not None
        return self._agent

    @property
    def id(self) -> str:
        return self.agent.session.id

    @property
    def root(self) -> str:
        return self.agent.context.machine.workspace.root

    @property
    def is_at_work(self) -> bool:
        return self._working.locked()

    # --- what the editor asks for -------------------------------------------------------------------------------------

    async def prompt(self, said: Message, text: str, attached: Sequence[Message]) -> str:
        """Work on a prompt, or do what a command says; the protocol's reason why it ended."""
        for line in self._notes:
            self._updates.put_nowait(chunk("agent_message_chunk", f"_{line}_\n\n"))
        self._notes = ()
        async with self._working:
            return await self._worked(said, text, attached)

    async def _worked(self, said: Message, text: str, attached: Sequence[Message]) -> str:
        stopped = "cancelled"
        try:
            with anyio.CancelScope() as self._scope:
                command, _, argument = text.strip().partition(" ")
                if command.removeprefix("/") in COMMANDS and command.startswith("/"):
                    await self._command(command.removeprefix("/"), argument.strip())
                    stopped = "end_turn"
                else:
                    stopped = self._ended(await work(self.agent, self._factory, said, self._changed_model, attached))
        finally:
            self._scope = None
            self._say_room()
            with anyio.CancelScope(shield=True):
                await self._shown()
        return stopped

    def cancel(self) -> None:
        """End the prompt that is worked on; what was done until then stays."""
        if self._scope is not None:
            self._scope.cancel()

    async def replay(self) -> None:
        """Show the whole conversation again, as `session/load` asks."""
        for update in replayed(await conversation(self.agent.session), self.root, reports=self._link.reports):
            self._updates.put_nowait(update)
        await self._shown()

    def introduce(self) -> None:
        """Which commands there are."""
        listed = [
            {"name": name, "description": what, **({"input": {"hint": hint}} if hint else {})}
            for name, (what, hint) in COMMANDS.items()
        ]
        self._updates.put_nowait({"sessionUpdate": "available_commands_update", "availableCommands": listed})
        if self.agent.session.view.items:
            self._say_room()

    def modes(self) -> dict[str, Any]:
        listed = [{"id": name, "name": title, "description": what} for name, title, what in MODES]
        return {"currentModeId": self._mode, "availableModes": listed}

    def set_mode(self, mode: str) -> bool:
        """Set the permission mode. False for one that isn't there."""
        found = next((one for one in get_args(Mode) if one == mode), None)
        if found is not None:
            self.agent.mode = self._mode = found
        return found is not None

    async def close(self) -> None:
        """End what is worked on, and close the session; one in which nothing was said leaves nothing behind."""
        self.cancel()
        with anyio.CancelScope(shield=True):
            async with self._working:
                await close_session(self.agent, self._factory.home)
            if self._teller is not None:
                self._teller.cancel()
                with suppress(asyncio.CancelledError):
                    await self._teller

    # --- what it is shown ---------------------------------------------------------------------------------------------

    async def _tell(self) -> None:
        """Send the updates in their order; once nobody listens, they are dropped."""
        is_heard = True
        while True:
            update = await self._updates.get()
            if isinstance(update, asyncio.Event):
                update.set()
            elif is_heard:
                try:
                    await self._link.notify("session/update", {"sessionId": self.id, "update": update})
                except (ConnectionError, OSError):
                    is_heard = False

    async def _shown(self) -> None:
        """Wait until everything so far was sent."""
        if self._teller is not None and not self._teller.done():
            mark = asyncio.Event()
            self._updates.put_nowait(mark)
            await mark.wait()

    def _progress(self, progress: AgentProgress, whose: str = "") -> None:
        """What the agent tells, as updates. Of a sub-agent only its calls are shown: its words go to the agent."""
        put = self._updates.put_nowait
        match progress:
            case TextDelta() if not whose and progress.text:
                put(chunk("agent_message_chunk", progress.text))
            case ThinkingDelta() if not whose and progress.text:
                put(chunk("agent_thought_chunk", progress.text))
            case AnswerReceived():
                for use in Message.of("assistant", progress.reply.blocks).tool_uses:
                    edits = proposed_edits(use.name, use.input, self.root)
                    data = call_data(use.id, use.name, use.input, self.root, edits, whose=whose)
                    put({"sessionUpdate": "tool_call", "status": "pending", **data})
            case ToolStarted():
                running = {"toolCallId": progress.id, "status": "in_progress"}
                put({"sessionUpdate": "tool_call_update", **running, "rawInput": progress.arguments})
                if progress.tool == "TodoWrite" and not whose and (listed := plan(progress.arguments)) is not None:
                    put(listed)
            case ToolEnded():
                put(call_ended(progress.id, progress.tool, progress.text, is_error=progress.is_error))
                self._tell_mode()
            case MemoryUpdated():
                self._aside(progress.text)
            case HookMessage():
                self._aside(f"hook {progress.hook}: {progress.text}")
            case BackgroundEnded():
                self._aside(f"ended in the background: {progress.work.what}")
            case SubagentProgress():
                self._progress(progress.progress, whose or progress.agent)

    def emit(self, event: Event) -> None:
        """`ports.Sink`: compactions, what was paid, and what a person should hear of."""
        if isinstance(event, ModelCalled) and event.usd is not None:
            self._usd = (self._usd or 0.0) + event.usd
        boundary = self._agent.session.view.boundary if self._agent is not None else None
        if isinstance(event, CompactionDone) and boundary is not None and self._link.reports:
            self._updates.put_nowait(compaction(boundary))
        elif (line := self._link.wording.event(event)) is not None:
            self._aside(line)

    def _aside(self, line: str) -> None:
        self._updates.put_nowait(chunk("agent_thought_chunk", f"{line}\n"))

    def _tell_mode(self) -> None:
        if self.agent.mode != self._mode:  # by a tool: plan mode begins and ends
            self._mode = self.agent.mode
            self._updates.put_nowait({"sessionUpdate": "current_mode_update", "currentModeId": self._mode})

    def _say_room(self) -> None:
        session = self.agent.session
        facts = session.facts()
        update: Update = {
            "sessionUpdate": "usage_update",
            "used": facts.size(session.view),
            "size": facts.limits.window,
        }
        if self._usd is not None:
            update["cost"] = {"amount": round(self._usd, 6), "currency": "USD"}
        self._updates.put_nowait(update)

    def _changed_model(self, error: ModelGaveUp, model: Model) -> None:
        self._aside(f"{self._link.wording.error(error)}; continuing with {model.about.id}")

    def _ended(self, result: RunResult) -> str:
        if result.stopped == "turns":
            self._aside(f"stopped after {result.turns} calls of the model: say more to continue")
        return _STOPS[result.stopped]

    # --- questions ----------------------------------------------------------------------------------------------------

    async def _ask(self, asked: PermissionQuestion) -> Allow | Deny:
        """Have the editor ask the person. What is no answer ends the turn, as Ctrl-C does."""
        edits = proposed_edits(asked.tool, asked.arguments, self.root)
        data = call_data(asked.id, asked.tool, asked.arguments, self.root, edits)
        if asked.why:
            data["content"] = [
                {"type": "content", "content": text_content(controls_removed(asked.why))},
                *data.get("content", []),
            ]
        options = [{"optionId": "allow", "name": "Allow", "kind": "allow_once"}]
        if asked.rule is not None:
            options.append(
                {"optionId": "always", "name": controls_removed(f"Always allow {asked.rule}"), "kind": "allow_always"}
            )
        options.append({"optionId": "reject", "name": "Reject", "kind": "reject_once"})
        await self._shown()  # the call that is asked about comes first
        try:
            given = await self._link.request(
                "session/request_permission", {"sessionId": self.id, "toolCall": data, "options": options}
            )
        except (ConnectionError, PerdureError):  # nobody is there to ask any more, or they can't be asked
            return Deny(stops=True)
        outcome = given.get("outcome") if isinstance(given, dict) else None
        chosen = outcome.get("optionId") if isinstance(outcome, dict) and outcome.get("outcome") == "selected" else None
        if chosen == "allow":
            return Allow()
        if chosen == "always" and asked.rule is not None:
            return Allow(asked.rule)
        return Deny(stops=chosen != "reject")

    # --- commands -----------------------------------------------------------------------------------------------------

    async def _command(self, name: str, argument: str) -> None:
        session = self.agent.session
        say = self._updates.put_nowait
        await self.agent.open()
        match name:
            case "compact":
                outcome = await compact(session, trigger="manual", focus=argument)
                if isinstance(outcome, CompactionSuccess):
                    line = self._link.wording.room(self.agent)
                else:
                    line = f"not compacted: {self._link.wording.not_compacted(outcome.reason)}; nothing was changed"
            case "undo":
                done = await uncompact(session)
                line = f"undone: {done.tokens_before:,} -> {done.tokens_after:,} tokens"
            case "context":
                line = self._link.wording.room(self.agent)
            case "recall":
                if not argument:
                    raise PerdureError("/recall: which id? A record, or the mark of a cleared result, names it")
                line = (await recall(session, RecallRequest(id=argument))).body
            case _:
                if not argument:
                    raise PerdureError("/pin: give the text to keep")
                await pin(session, argument)
                line = "pinned"
        say(chunk("agent_message_chunk", f"{line}\n"))
