"""The agent: say something, ask the model, run what it calls for, until it calls for nothing more (LIB-1, level 3)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import anyio
import msgspec

from perdure import prompts
from perdure.agent.background import BackgroundTasks, ChildAgent, Subagents
from perdure.agent.calls import INTERRUPTED_CALL, LOST_CALL, ToolBatch, ToolRunner, answer_unanswered
from perdure.agent.hooks import MOST_HELD, tell_hooks
from perdure.agent.permissions import Mode, PermissionRule, PermissionRules
from perdure.agent.progress import (
    AgentProgress,
    AnswerReceived,
    Ask,
    OnProgress,
    RunResult,
    Stopped,
    SubagentProgress,
    one_at_a_time,
)
from perdure.agent.skills import SubagentType, listing, skills_of, subagent_types
from perdure.agent.tool_context import Machine, ReadState, ToolContext, ToolObserver
from perdure.agent.tools import STANDARD
from perdure.agent.tools.talk import MEMORY
from perdure.agent.tools.tool import Tool
from perdure.context.reminders import prepend_context
from perdure.context.replies import Reply
from perdure.context.view import INTERRUPTED, ContextView
from perdure.engine.ask import JobModels
from perdure.engine.background import Keepers
from perdure.engine.hooks import hook_messages
from perdure.engine.rewind import RewindResult, What, rewind, undo_rewind
from perdure.engine.session import LiveSession
from perdure.engine.turn import run_turn
from perdure.errors import PerdureError, RewindRefused
from perdure.hooks import (
    EndReason,
    SessionEnd,
    SessionStart,
    StartSource,
    Stop,
    SubagentStop,
    UserPromptSubmit,
)
from perdure.memory.changes import Origin
from perdure.memory.places import MemoryRights
from perdure.ports.machine import FileDifference, FileRewinder
from perdure.ports.session import Jobs, Model
from perdure.transcript.blocks import Block, encode, text_block
from perdure.transcript.messages import Message, MessageId
from perdure.transcript.records import Front

_NEWS = "surroundings"
_LISTED = {"Task": "Kinds of agents:", "Skill": "Skills that are installed:"}


def front_of(
    model: str, tools: Iterable[Tool[Any]], context: ToolContext, scopes: Mapping[str, SubagentType], more: str = ""
) -> Front:
    """The front of an agent as it is now."""
    stable = "\n\n".join(part for part in (prompts.source("agent_system"), more) if part)
    lines = {"Working directory": context.machine.workspace.root, "Plan file": context.machine.plan_file}
    facts = "\n".join(
        f"{name}: {' '.join(value.split())}" for name, value in {**lines, **context.machine.surroundings}.items()
    )
    system = (text_block(stable), text_block(prompts.render("agent_environment", facts=facts)))
    lists = {
        "Task": {name: scope.description for name, scope in scopes.items()},
        "Skill": {name: skill.description for name, skill in context.skills.items()},
    }
    return Front(
        model=model,
        system=tuple(msgspec.Raw(block.raw) for block in system),
        tools=tuple(msgspec.Raw(_definition(tool, lists.get(tool.name, {}))) for tool in _offered(tools, context)),
        dynamic_from=1,
    )


def is_alike(before: Front, now: Front) -> bool:
    """Whether two fronts differ in nothing but the facts of the surroundings."""
    size = now.dynamic_from
    return (
        (before.tools, before.dynamic_from) == (now.tools, size)
        and before.system[:size] == now.system[:size]
        and len(before.system) == len(now.system)
    )


def changed_surroundings(view: ContextView, now: Front) -> Message | None:
    """The facts that are others than the conversation was told, for the model; None when it knows them all."""
    if view.front is None or not is_alike(view.front, now):
        return None
    known = _facts(view.front)
    for item in view.items:
        if item.message.note == _NEWS:
            known |= _lines("".join(getattr(block.value, "text", "") for block in item.message.blocks))
    changed = "\n".join(f"{name}: {value}" for name, value in _facts(now).items() if known.get(name) != value)
    if not changed:
        return None
    (message,) = prepend_context((), {"What is otherwise now than when this conversation began": changed})
    return Message.of("user", list(message.blocks), origin="reminder", note=_NEWS)


def _facts(front: Front) -> dict[str, str]:
    blocks = (Block(bytes(raw)) for raw in front.system[front.dynamic_from :])
    return _lines("\n".join(str(getattr(block.value, "text", "")) for block in blocks))


def _lines(text: str) -> dict[str, str]:
    return {name: value for name, colon, value in (line.partition(": ") for line in text.splitlines()) if colon}


def _offered(tools: Iterable[Tool[Any]], context: ToolContext) -> Iterable[Tool[Any]]:
    """Without skills nobody needs the tool that loads them, without memories none that writes them."""
    missing = {"Skill"} if not context.skills else set()
    if context.session.services.memories is None or context.session.settings.memory_mode == "off":
        missing.add(MEMORY.name)
    return (tool for tool in tools if tool.name not in missing)


def _definition(tool: Tool[Any], listed: Mapping[str, str]) -> bytes:
    definition = tool.definition
    if listed:
        text = f"{definition['description']}\n\n{_LISTED[tool.name]}\n{listing(listed)}"
        definition = {**definition, "description": text}
    return encode(definition)


OpenChild = Callable[[str, bool, MemoryRights | None, Origin | None], Awaitable[LiveSession]]

_STOPS: dict[str, Stopped] = {"max_tokens": "max_tokens", "refusal": "refused"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOptions:
    """How an agent works, beside the settings; each has a default.

    ask          answers what permissions leave open; without one such calls are refused
    on_progress  sees deltas, tools and background work as they come
    rules, mode  what is allowed; None: what the session's settings say
    tools        what it has; others can be added
    observers    stand around tools that change things (CKP-1)
    system       is added to the stable part of the system prompt
    summarizer   the models that write a record when the context is compacted, as `run_turn` takes them
    helpers      the models of work in the background, as `run_turn` takes them
    source       how hooks are told that the session starts; None: `startup` or `resume`, as it is
    prompt       the message of another session that everything is done for: a sub-agent's
    """

    ask: Ask | None = None
    on_progress: OnProgress | None = None
    rules: PermissionRules | None = None
    mode: Mode | None = None
    tools: tuple[Tool[Any], ...] = STANDARD
    observers: tuple[ToolObserver, ...] = ()
    system: str = ""
    summarizer: Sequence[Model] | None = None
    helpers: JobModels | None = None
    source: StartSource | None = None
    prompt: MessageId = MessageId("")  # noqa: RUF009 - a NewType of str, immutable


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentServices:
    """What an agent needs to have others work beside it: tasks of its own, and sessions beside its own.

    `jobs` makes a new set of tasks. `open_session` gives the session of a sub-agent: a new one, or (True) the one of
    that id, with memories as far as its rights go (None: without) and on whose word it works (MEM-13); `where` is where
    its journal stands. `files` goes back to earlier states of files (CKP-3). `cleanup` takes away what nobody needs
    once it is closed.
    """

    jobs: Callable[[], Jobs]
    open_session: OpenChild
    where: Callable[[str], str] = str
    files: FileRewinder | None = None
    cleanup: Callable[[], object] = lambda: None


class AgentLoop:
    """A small coding agent on a session, a model and a machine. Made by `perdure.wiring.agent`.

    One prompt at a time: `say` runs until the model calls for nothing more. `interrupt` ends it from anywhere; the
    session stays valid, with everything that was done until then.

        from perdure import wiring
        from perdure.testing import ScriptedModel
        agent = await wiring.agent(".", model=ScriptedModel(["There is nothing to do."]))
        said = await agent.say("Tidy up.")
        assert said.text == "There is nothing to do." and said.stopped == "done"
        await agent.close()
    """

    def __init__(
        self,
        session: LiveSession,
        model: Model,
        machine: Machine,
        services: AgentServices,
        *,
        options: AgentOptions | None = None,
        keepers: Keepers | None = None,
    ) -> None:
        self.session, self.model, self.options = session, model, options or AgentOptions()
        self._services, self._keepers = services, keepers
        settings = session.settings
        rules = self.options.rules or PermissionRules.of(
            allow=settings.permission_allow, ask=settings.permission_ask, deny=settings.permission_deny
        )
        self.background = BackgroundTasks(session, machine.shell, services.jobs(), self.options.on_progress)
        self.context = ToolContext(
            machine=machine,
            session=session,
            background=self.background,
            rules=rules,
            mode=self.options.mode or settings.permission_mode,
            cwd=machine.workspace.root,
            reads=ReadState(session),
            ask=one_at_a_time(self.options.ask) if self.options.ask is not None else None,
            observers=self.options.observers,
            skills=skills_of(machine.skill_files),
        )
        self._scopes = subagent_types(machine.agent_files)
        self.context.subagents = Subagents(session, self.background, self._scopes, self._child, services.where)
        self._caller = ToolRunner(
            self.context, {tool.name: tool for tool in self.options.tools}, self.options.on_progress
        )
        self._scope: anyio.CancelScope | None = None
        self._has_started = self._is_open = False
        self._said_at_start: tuple[Message, ...] = ()
        self._calls = self._turns = 0

    # --- the loop -----------------------------------------------------------------------------------------------------

    async def say(self, prompt: str | Message | None = None, *, attached: Sequence[Message] = ()) -> RunResult:
        """Work on a prompt until it is done; None goes on with what is there. `attached` is said right behind it.

        Raises what `run_turn` raises (`ContextBlocked`, `ModelGaveUp`); the session stays valid then, too, so saying
        None tries again.
        """
        if self._scope is not None:
            raise PerdureError("the agent is at work: wait for it, or interrupt it first")
        self._calls = self._turns = 0
        with anyio.CancelScope() as self._scope:
            try:
                return await self._until_done(prompt, attached)
            except anyio.get_cancelled_exc_class():
                with anyio.CancelScope(shield=True):
                    await self._tidy()
                raise
            finally:
                self._scope = None
        return self._said("", "interrupted")

    async def _until_done(self, prompt: str | Message | None, attached: Sequence[Message]) -> RunResult:
        await self.open()
        await self.background.announce_ended()
        said, is_refused = await self._submitted((*self._prompted(prompt), *attached))
        if is_refused:
            return self._said("", "hook")
        held = 0
        while self._turns < self.session.settings.agent_turns:
            reply = await self._asked(said)
            uses = Message.of("assistant", reply.blocks).tool_uses
            if not uses and reply.stop_reason != "pause_turn":
                ended = _STOPS.get(reply.stop_reason, "done")
                said = await self._held_back(reply.text, held) if ended == "done" else ()
                if not said:
                    return self._said(reply.text, ended)
                held += 1
                continue
            if uses:
                batch = ToolBatch.of(uses, self.context.prompt)
                self._calls += len(uses)
                try:
                    await self._caller.run(batch)
                finally:
                    with anyio.CancelScope(shield=True):
                        await self.session.append(*batch.messages())
                if batch.stopped_by:
                    return self._said(reply.text, "hook" if batch.stopped_by == "hook" else "stopped")
            await self.background.announce_ended()
            said = ()
        return self._said("", "turns")

    async def _asked(self, said: tuple[Message, ...]) -> Reply:
        self._turns += 1
        options = self.options
        reply = await run_turn(
            self.session,
            said,
            self.model,
            self._keepers,
            on_delta=options.on_progress,
            summarizer=options.summarizer,
            helpers=options.helpers,
        )
        if options.on_progress is not None:
            options.on_progress(AnswerReceived(reply))
        return reply

    def _prompted(self, prompt: str | Message | None) -> tuple[Message, ...]:
        """The prompt with its id, which is what everything is done for (CKP-1)."""
        if prompt is None:
            return ()
        message = Message.of("user", prompt) if isinstance(prompt, str) else prompt
        if not message.id:
            message = msgspec.structs.replace(message, id=MessageId(self.session.ports.ids.new("message")))
        self.context.prompt = self.options.prompt or message.id
        return (message,)

    async def _submitted(self, said: tuple[Message, ...]) -> tuple[tuple[Message, ...], bool]:
        """A prompt with what hooks add to it, and whether they refuse it: then the model never sees it."""
        services = self.session.services  # of a sub-agent: its task is its parent's word
        if not services.hooks or services.agent is not None or not any(one.origin == "user" for one in said):
            return said, False
        text = "\n".join(getattr(block.value, "text", "") for block in said[0].blocks if block.type == "text")
        outcome = await tell_hooks(self.context, UserPromptSubmit, prompt=text)
        refused = outcome.block if outcome.stop is None else outcome.stop
        if refused is not None:
            self._tell_person(outcome.by, refused)
        return (*said, *hook_messages(UserPromptSubmit, outcome.context)), refused is not None

    async def _held_back(self, text: str, held: int) -> tuple[Message, ...]:
        """What hooks want done before the agent stops; nothing once they wanted something too often."""
        if not self.session.services.hooks:
            return ()
        event = Stop if self.session.services.agent is None else SubagentStop
        outcome = await tell_hooks(self.context, event, stop_hook_active=held > 0, last_assistant_message=text)
        if outcome.stop is not None:
            self._tell_person(outcome.by, outcome.stop)
        if outcome.block is None or outcome.stop is not None:
            return ()
        if held >= MOST_HELD:
            self._tell_person(outcome.by, f"it kept the agent from stopping {held} times in a row; now it stops")
            return ()
        return hook_messages(event, {**outcome.context, outcome.by: outcome.block})

    def _tell_person(self, hook: str, text: str) -> None:
        for tell in self.session.services.on_hook:
            tell(hook, text)

    def _said(self, text: str, stopped: Stopped) -> RunResult:
        return RunResult(text, stopped, self._calls, self._turns, self.context.prompt)

    async def rewind(
        self, to: str, *, what: What = "both", is_forced: bool = False, is_dry: bool = False
    ) -> RewindResult:
        """Go back to before a user message (its id, a beginning of one, or -N): files, conversation, or both (CKP-3).

        The message's text comes back, to be edited. Raises `RewindRefused`, and then nothing was changed.
        """
        self._check_rests()
        done = await rewind(self.session, self._services.files, to, what=what, is_forced=is_forced, is_dry=is_dry)
        await self._stand()
        return done

    async def undo_rewind(self, *, is_forced: bool = False, is_dry: bool = False) -> RewindResult:
        """Take back the last rewind, files and conversation. Raises as `rewind` does."""
        self._check_rests()
        done = await undo_rewind(self.session, self._services.files, is_forced=is_forced, is_dry=is_dry)
        await self._stand()
        return done

    async def changed_files(self) -> tuple[FileDifference, ...]:
        """What the agent changed in files since the session began, as far as they aren't as they were.

        Raises `RewindRefused` where no checkpoints are kept.
        """
        if self._services.files is None:
            raise RewindRefused("this session has no checkpoints of files (the setting checkpoints is off)")
        return await self._services.files.differences()

    def _check_rests(self) -> None:
        if self._scope is not None:
            raise PerdureError("the agent is at work: wait for it, or interrupt it first")

    async def _stand(self) -> None:
        """Commands start in the project again when the folder they stood in is gone."""
        if (await self.context.resolve(self.context.cwd)).kind != "folder":
            self.context.cwd = self.context.machine.workspace.root

    def interrupt(self) -> None:
        """End the prompt that is worked on, at once; nothing when none is."""
        if self._scope is not None:
            self._scope.cancel()

    async def _tidy(self) -> None:
        """After an interruption: every call of a half answer is answered, and the place is marked (TURN-11)."""
        open_calls = self.session.view.open_calls
        results = (answer_unanswered(open_calls, INTERRUPTED_CALL),) if open_calls else ()
        await self.session.append(*results, Message.of("user", f"{INTERRUPTED}]", origin="reminder"))

    async def start(self) -> None:
        """Once: tell hooks that the session starts. What they add waits for the first prompt, so that a session in
        which nothing is said stays empty. `open` does it, if nobody did."""
        if self._has_started:
            return
        self._has_started = True
        if self._was_planning() and self.context.mode != "plan":
            self.context.mode_before, self.context.mode = self.context.mode, "plan"
        if not self.session.services.hooks or self.session.services.agent is not None:
            return
        view = self.session.view
        is_new = not view.items and view.boundary is None
        source = self.options.source or ("startup" if is_new else "resume")
        outcome = await tell_hooks(self.context, SessionStart, source=source, model=self.model.about.id)
        self._said_at_start = hook_messages(SessionStart, outcome.context)

    async def open(self) -> None:
        """Once: the front, and what an earlier process left open (SES-3). `say` does it, if nobody did."""
        if self._is_open:
            return
        await self.start()
        front = front_of(
            self.model.about.id, self._caller.tools.values(), self.context, self._scopes, self.options.system
        )
        before = self.session.view.front
        if before is None or not is_alike(before, front):
            await self.session.record(front)
        if open_calls := self.session.view.open_calls:
            await self.session.append(answer_unanswered(open_calls, LOST_CALL))
        if (told := changed_surroundings(self.session.view, front)) is not None:
            await self.session.append(told)
        self.context.prompt = next(
            (item.message.id for item in reversed(self.session.view.items) if item.message.origin == "user"),
            self.context.prompt,
        )
        await self.background.resume()
        await self.session.append(*self._said_at_start)
        self._is_open = True

    def _was_planning(self) -> bool:
        """Whether the session stopped in plan mode."""
        for call in reversed(self.session.view.calls.values()):
            result = self.session.view.results.get(call.id)
            if call.name in ("EnterPlanMode", "ExitPlanMode") and result is not None and not result.is_error:
                return call.name == "EnterPlanMode"
        return False

    # --- what a door needs --------------------------------------------------------------------------------------------

    @property
    def mode(self) -> Mode:
        """The permission mode, which tools may have changed (plan mode)."""
        return self.context.mode

    @mode.setter
    def mode(self, mode: Mode) -> None:
        self.context.mode = mode

    def allow(self, *rules: PermissionRule) -> None:
        """Allow more, in this session."""
        self.context.rules = self.context.rules.allowing(*rules)

    async def close(self, reason: EndReason = "other") -> None:
        """End background work, let keepers end, and close the session. The model is the caller's to close.

        `reason` is what hooks are told.
        """
        try:
            if self._has_started and self.session.services.hooks and self.session.services.agent is None:
                await tell_hooks(self.context, SessionEnd, reason=reason)
            await self.background.close()
            if self._keepers is not None:
                await self._keepers.close(self.session)
        finally:
            await self.session.close()
            if self.context.subagents is not None:
                self._services.cleanup()

    # --- sub-agents ---------------------------------------------------------------------------------------------------

    async def _child(self, identity: str, scope: SubagentType, resumes: bool) -> ChildAgent:
        """A sub-agent: the same model and machine, a session of its own, and never more permissions than now."""
        memories = self.session.services.memories  # whatever its task derives from, what it writes does, too
        origin = await memories.origin(self.session) if memories is not None else None
        rights = scope.rights if memories is not None else None
        session = await self._services.open_session(identity, resumes, rights, origin)
        session.configure(self.session.settings)
        wanted = None if scope.tools is None else set(scope.tools)
        tools = tuple(t for t in self.options.tools if t.name != "Task" and (wanted is None or t.name in wanted))
        options = replace(
            self.options,
            tools=tuple(tool for tool in tools if tool.name not in ("EnterPlanMode", "ExitPlanMode")),
            ask=self.context.ask,
            rules=self.context.rules,
            mode="plan" if scope.only_looks else self.context.mode,
            on_progress=self._passing(identity),
            prompt=self.context.prompt,
            system="\n\n".join(part for part in (self.options.system, scope.body) if part),
        )
        child = AgentLoop(session, self.model, self.context.machine, self._services, options=options)
        child.context.subagents, child.context.agent_type = None, scope.name
        child.context.failure_session = self.context.failure_session or self.session
        child.context.failures = self.context.failures
        return child

    def _passing(self, identity: str) -> OnProgress | None:
        heard = self.options.on_progress
        if heard is None:
            return None

        def passed(progress: AgentProgress) -> None:
            heard(SubagentProgress(identity, progress))

        return passed
