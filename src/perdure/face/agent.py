"""`Agent`: the small coding agent, as programs use it (LIB-1, LIB-5)."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from anyio import CancelScope, to_thread

from perdure.errors import BadSetting
from perdure.face.connecting import connect
from perdure.face.homes import home_of_program, path_of
from perdure.face.opening import Closable, Opening
from perdure.face.session import Session, model_of, options_of, remember_settings

if TYPE_CHECKING:
    from perdure.agent.loop import AgentLoop
    from perdure.agent.permissions import Mode
    from perdure.agent.progress import OnProgress, PermissionQuestion, RunResult
    from perdure.agent.tools.tool import Tool
    from perdure.engine.rewind import RewindResult, What
    from perdure.engine.session import Services
    from perdure.ports.home import Home
    from perdure.ports.session import Model
    from perdure.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Permissions:
    """What an agent may do: a mode, and rules such as `Bash(git status:*)`, `Edit(src/**)` or the name of a tool.

    Attributes:
        mode: `default` asks for what changes something, `accept_edits` for commands only, `plan` lets it only look,
            `bypass` asks for nothing. None: as the settings say.
        allow: what needs no question.
        ask: what is always asked for.
        deny: what is never done; it wins over the others.
        answer: answers a question with True or False, or as `perdure.agent.progress` has it; it may be a coroutine.
            Without it, what would be asked for is refused.

    Example:
        careful = Permissions(mode="accept_edits", allow=["Bash(pytest:*)"], deny=["Read(.env)"])
        assert careful.deny == ["Read(.env)"]
    """

    mode: Mode | None = None
    allow: Sequence[str] = ()
    ask: Sequence[str] = ()
    deny: Sequence[str] = ()
    answer: Callable[[PermissionQuestion], Any] | None = None


class Agent:
    """A small coding agent in a folder: it reads, edits, runs commands and searches until the work is done.

    Make one with `Agent.create`, as `async with Agent.create(".", model="anthropic:claude-…") as agent`.

    Attributes:
        session: its conversation, a `Session`.

    Example:
        from perdure.testing import ScriptedModel
        async with Agent.create(".", model=ScriptedModel(["There is nothing to do."]), in_memory=True) as agent:
            done = await agent.run("Tidy up.")
            assert done.text == "There is nothing to do." and done.stopped == "done"
    """

    def __init__(self, loop: AgentLoop, session: Session, owned: tuple[Closable, ...] = ()) -> None:
        self.session = session
        self._loop, self._owned = loop, owned

    @classmethod
    def create(
        cls,
        folder: str | Path = ".",
        *,
        model: Model | str,
        permissions: Permissions | None = None,
        resume: str | Path | None = None,
        home: str | Path | Home | None = None,
        in_memory: bool = False,
        system: str = "",
        tools: Sequence[Tool[Any]] = (),
        settings: Settings | Mapping[str, Any] | None = None,
        services: Services | None = None,
        on_progress: OnProgress | None = None,
    ) -> Opening[Agent]:
        """Open an agent for a folder, with a new session or an earlier one.

        Args:
            folder: where it works.
            model: whom it asks: a model, or its name, as `connect` takes it.
            permissions: what it may do; by default what the settings say, and nothing that would have to be asked for.
            resume: the session to go on with: its id, the beginning of one, or a path.
            home: where sessions are kept, as `Session.create` takes it; by default where the `perdure` command keeps
                them. In a database, what is about files of this machine is kept as long as the agent: checkpoints,
                outputs of commands, and what sub-agents say to their models.
            in_memory: keep nothing; the session ends with this process.
            system: what to add to its system prompt.
            tools: more tools, beside its own. They run without a question, unless a rule says `ask` or `deny`.
            settings: `Settings`, or an object with some of them.
            services: hooks and other extensions of your own.
            on_progress: sees answers, tools and background work as they come.

        Returns:
            The agent, to be awaited or entered with `async with`.

        Raises:
            BadSetting: a setting, a rule or the name of the model can't be used.
            SessionNotFound: no session is meant by `resume`, or more than one.
            SessionBusy: another process has it open.

        Example:
            from perdure.testing import ScriptedModel
            allowed = Permissions(mode="plan")
            async with Agent.create(".", model=ScriptedModel(["Yes."]), permissions=allowed, in_memory=True) as agent:
                assert (await agent.run("Is this a repository?")).text == "Yes."
        """

        async def opened() -> Agent:
            from perdure.agent.loop import AgentOptions
            from perdure.agent.permissions import Mode, PermissionRules
            from perdure.agent.tools import STANDARD
            from perdure.agent.tools.tool import Tool
            from perdure.wiring.agents import agent

            if in_memory and resume is not None:
                raise BadSetting("resume: a session in memory can't be gone on with; leave out in_memory")
            given, root = permissions or Permissions(), path_of(folder, "folder")
            if not await to_thread.run_sync(Path(root).is_dir):
                raise BadSetting(f"{root}: there is no such folder for the agent to work in")
            if given.mode is not None and given.mode not in get_args(Mode):
                raise BadSetting(
                    f"there is no permission mode {given.mode!r:.40}: write one of {', '.join(get_args(Mode))}"
                )
            for tool in tools:
                if not isinstance(tool, Tool):
                    raise BadSetting(f"{tool!r:.60} is no Tool: make one with Tool.of(…)")
                if tool.name in {one.name for one in STANDARD}:
                    raise BadSetting(f"the agent has a tool called {tool.name!r} already: give yours another name")
            parts = options_of(Session, settings, services)
            rules = None
            if given.allow or given.ask or given.deny:
                rules = PermissionRules.of(
                    allow=_rules(given.allow, "allow"), ask=_rules(given.ask, "ask"), deny=_rules(given.deny, "deny")
                )
            options = AgentOptions(
                ask=None if given.answer is None else _asking(given.answer),
                on_progress=on_progress,
                rules=rules,
                mode=given.mode,
                tools=(*STANDARD, *tools),
                system=system,
            )
            asked = connect(model) if isinstance(model, str) else model_of(model)
            kept_in, store = (None, None) if in_memory else home_of_program(home)
            owned: tuple[Closable, ...] = (*((asked,) if isinstance(model, str) else ()), *((store,) if store else ()))
            try:
                loop = await agent(root, model=asked, home=kept_in, resume=resume, options=options, parts=parts)
                assert isinstance(loop.session, Session)
                loop.session._leave_background_to_agent()
                try:
                    await remember_settings(loop.session, settings)
                    await loop.start()
                except BaseException:
                    await loop.close()
                    raise
            except BaseException:
                with CancelScope(shield=True):
                    for one in owned:
                        await one.close()
                raise
            return cls(loop, loop.session, owned)

        return Opening("Agent.create(…)", opened)

    async def run(self, prompt: str | None = None) -> RunResult:
        """Work on a prompt until it is done.

        Args:
            prompt: what to do; None goes on with what is there, such as after an error.

        Returns:
            How it ended: `text`, the last answer; `stopped`, why it ended (`done`, `interrupted`, `turns` …); `calls`,
            how many tools were used.

        Raises:
            ModelGaveUp: the model didn't answer, and nothing helped. The session stays valid.
            ContextBlocked: the context is full and nothing more can go.

        Example:
            done = await agent.run("Run the tests and mend what fails.")
            print(done.text)
        """
        return await self._loop.say(prompt)

    def interrupt(self) -> None:
        """End the prompt that is worked on, at once, from any task; what was done stays, and `run` returns.

        Example:
            agent.interrupt()  # nothing is being worked on, so nothing happens
        """
        self._loop.interrupt()

    def allow(self, *rules: str) -> None:
        """Allow more from now on.

        Args:
            *rules: as in `Permissions.allow`.

        Raises:
            BadSetting: it is no rule.

        Example:
            agent.allow("Bash(pytest:*)")
        """
        from perdure.agent.permissions import PermissionRule

        self._loop.allow(*(PermissionRule.of(text) for text in _rules(rules, "allow")))

    async def rewind(self, to: str | int = -1, *, what: What = "both") -> RewindResult:
        """Go back to before a prompt: the files, the conversation, or both.

        Args:
            to: -1 for the last prompt, -2 for the one before it, or the id of a message, or its beginning.
            what: `code` for the files, `conversation`, or `both`.

        Returns:
            What was done: `prompt`, to be said again in other words, and `files`.

        Raises:
            RewindRefused: it can't be done; nothing was changed, and the message says why.

        Example:
            await agent.run("Tidy up.")
            assert (await agent.rewind(what="conversation")).prompt == "Tidy up."
        """
        return await self._loop.rewind(str(to), what=what)

    async def undo_rewind(self) -> RewindResult:
        """Take back the last rewind, files and conversation.

        Returns:
            What was done.

        Raises:
            RewindRefused: there is none, or it can't be done.

        Example:
            await agent.run("Tidy up.")
            await agent.rewind(what="conversation")
            await agent.undo_rewind()
        """
        return await self._loop.undo_rewind()

    async def close(self) -> None:
        """End background work and close the session; a model that was given by its name, and a database, as well.

        Example:
            await agent.close()
        """
        try:
            await self._loop.close()
        finally:
            for one in self._owned:
                await one.close()


def _rules(given: Any, what: str) -> Sequence[str]:
    if isinstance(given, str) or not all(isinstance(one, str) for one in given):
        raise BadSetting(f"{what} must be a list of rules such as ['Bash(git status:*)'], not {given!r:.60}")
    rules: Sequence[str] = given
    return rules


def _asking(answer: Callable[[PermissionQuestion], Any]) -> Callable[[PermissionQuestion], Awaitable[Any]]:
    """A question answered by True or False as well."""
    from perdure.agent.progress import Allow, Deny

    async def ask(question: PermissionQuestion) -> Any:
        said = answer(question)
        said = await said if inspect.isawaitable(said) else said
        return (Allow() if said else Deny()) if isinstance(said, bool) else said

    return ask
