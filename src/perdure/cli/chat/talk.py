"""The conversation: read, obey or work, show; until somebody leaves (CLI-1, PRS-7)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import anyio

from perdure.adapters.extras import install
from perdure.adapters.journal import SessionStore
from perdure.adapters.journal.projects import ProjectFolders
from perdure.adapters.machine.system import STOP_SIGNALS
from perdure.adapters.sinks import TeeSink
from perdure.agent.loop import AgentLoop
from perdure.agent.permissions import PermissionRule
from perdure.agent.progress import Allow, Deny, PermissionQuestion, call_summary
from perdure.cli.arguments import short_name
from perdure.cli.chat.agents import Spending, session_named
from perdure.cli.chat.attachments import attached_files, run_own_command
from perdure.cli.chat.commands import COMMANDS, is_command, run_chat_command, waiting_memories
from perdure.cli.chat.reading import (
    CtrlCListener,
    PlainReader,
    PromptReader,
    UserInterrupt,
    interruptible,
    listen_for_ctrl_c,
)
from perdure.cli.chat.screen import Screen, edit_diff, model_name
from perdure.cli.output import EXIT_INTERRUPTED, EXIT_OK, clean, is_terminal, note, plain, plural, usd
from perdure.cli.room import room_line
from perdure.cli.words import model_change, shown_error
from perdure.context.policy import low_line
from perdure.errors import BadSetting, ModelGaveUp, PerdureError
from perdure.hooks import StartSource
from perdure.ports.session import Model
from perdure.transcript.blocks import Text
from perdure.transcript.messages import spoken
from perdure.wiring.factory import AgentFactory, close_session, work

Rules = tuple[PermissionRule, ...]
HISTORY = "history"  # beside the sessions of a project
_ENDS = {
    "turns": "stopped after {turns} calls of the model (the setting agent_turns); say something to continue",
    "refused": "the model refused to continue",
    "max_tokens": "the answer was cut at its limit; say something to continue",
    "stopped": "stopped: it wasn't done; say what to do next",
    "hook": "a hook stopped this",
}
_ASKED_DIFF_LINES = 20


class Chat:
    """One person's conversation. `draft` is what stands in the next prompt to be edited."""

    def __init__(
        self, factory: AgentFactory, agent: AgentLoop, screen: Screen, reader: PromptReader, spent: Spending
    ) -> None:
        self.factory, self.agent, self.screen, self.reader, self.spent = factory, agent, screen, reader, spent
        self.draft = ""
        self.is_leaving = False
        self._room: list[str] = []  # how full the window is, as it was said last

    async def talk(self) -> None:
        """Until the person leaves."""
        if self.agent.session.services.hooks:
            with self.reader.working():
                await self.start()
        pressed = 0
        while not self.is_leaving:
            draft, self.draft = self.draft, ""
            try:
                text = (await self.reader.prompt(draft)).strip()
            except EOFError:
                return
            except KeyboardInterrupt:
                pressed += 1
                if pressed > 1:
                    return
                self.screen.line("(press Ctrl-C again, or Ctrl-D, to leave)", "dim")
                continue
            pressed = 0
            if text:
                await self.take(text)

    async def take(self, text: str) -> None:
        """One thing that was typed. What goes wrong is a line, and the conversation goes on."""
        command = text.split(maxsplit=1)[0] if is_command(text) else ""
        is_done = False
        try:
            with self.reader.working():
                if is_command(text):
                    self.screen.begin("compacting" if command == "/compact" else f"running {command}")
                    await interruptible(lambda: run_chat_command(self, text))
                elif text.startswith("!") and text[1:].strip():
                    self.screen.begin("running your command")
                    await interruptible(lambda: run_own_command(self.agent, text[1:].strip(), self.screen))
                else:
                    await interruptible(lambda: self.work(text))
            is_done = True
        except UserInterrupt:
            self.screen.line(f"interrupted; {self._ended_by_it(text)}", "yellow")
            self.reader.take_back()
        except PerdureError as e:
            self.screen.line(shown_error(e), "red")
        except BrokenPipeError:  # nobody sees what is shown any more
            raise
        except OSError as e:
            self.screen.line(f"{e.filename or 'the machine'}: {e.strerror or e}", "red")
        if command in ("", "/retry"):
            self.show_room(only_news=not is_done)

    def _ended_by_it(self, text: str) -> str:
        """What became of what ran when the person interrupted it."""
        if text.split(maxsplit=1)[0] == "/compact":
            return "nothing was compacted"
        if text.startswith("!"):
            return "your command was ended"
        names = ["the command" if name == "Bash" else name for name in self.screen.running.values()]
        ended = f"{' and '.join(names)} {'was' if len(names) == 1 else 'were'} ended, " if names else ""
        others = (
            f" ({plural(len(on), 'background task')} still running)" if (on := self.agent.background.running) else ""
        )
        return f"{ended}the session is intact: continue when you like{others}"

    async def start(self) -> None:
        """Tell hooks that the session starts, before anything is said; Ctrl-C ends the waiting for them."""
        self.screen.begin("running the hooks of the start")
        try:
            await interruptible(self.agent.start)
        except UserInterrupt:
            self.screen.line("the hooks of the start were interrupted", "yellow")
        finally:
            self.screen.begin("")

    async def work(self, text: str | None) -> None:
        """Have the agent work on a prompt; None goes on with what is there."""
        self.screen.begin("asking the model")
        try:
            attached = await attached_files(self.agent, text, self.screen) if text else ()
        except PerdureError:
            self.draft = text or ""  # it wasn't sent
            raise
        said = await work(self.agent, self.factory, text, self._changed_model, attached)
        self.screen.begin("")
        if said.stopped != "done":
            self.screen.line(_ENDS[said.stopped].format(turns=said.turns), "yellow")
            self.reader.take_back()

    def _changed_model(self, error: ModelGaveUp, model: Model) -> None:
        self.screen.line(model_change(error, model), "yellow")

    @property
    def directory(self) -> Path:
        """Where the session is kept."""
        return SessionStore(self.factory.home).locate(self.agent.session.id)

    @property
    def name(self) -> str:
        """A part of the session's id that is enough to name it."""
        return short_name(self.directory)

    def model_line(self) -> str:
        """Which model is asked, and how large its window is."""
        about = self.agent.model.about
        return f"model {model_name(about)}, window {about.window_tokens or self.agent.session.limits.window:,} tokens"

    def show_room(self, *, only_news: bool = False) -> None:
        """Size, what is left, the price; and what to do where the person has to do something (PRS-7).

        With `only_news`, nothing where it would be what was said last.
        """
        session = self.agent.session
        facts = session.facts()
        limits, size = session.limits, facts.size(session.view)
        parts = [room_line(session.view, facts)]
        if self.spent.is_priced:
            parts.append(usd(self.spent.usd))
        if self.agent.mode != "default":
            parts.append(f"mode {self.agent.mode}")
        if only_news and parts == self._room:
            return
        self._room = parts
        self.screen.line(f"[{', '.join(parts)}]", "dim")
        if not limits.auto and (low := low_line(size, limits)) is not None:
            self.screen.line(low, "bold red" if size >= limits.error else "bold yellow")

    async def change(self, directory: Path | None) -> None:
        """Another session instead of this one: a new one, or the one in a directory."""
        source: StartSource | None = None if directory else "clear"
        agent = await self.factory.agent(resume=directory, source=source)  # first: when that fails, this one stays
        before, self.agent = self.agent, agent
        agent.mode, self.screen.root = before.mode, agent.context.machine.workspace.root
        await close_session(before, self.factory.home, "resume" if directory else "clear")
        await self.start()

    def change_rules(self, kind: str, change: Callable[[Rules], Rules]) -> None:
        """Change the rules that allow, ask or deny, here and in the sessions that follow in this chat."""
        context, config = self.agent.context, self.factory.config
        context.rules = replace(context.rules, **{kind: change(getattr(context.rules, kind))})
        name = f"permission_{kind}"
        kept = change(tuple(map(PermissionRule.of, getattr(config.settings, name))))
        settings = replace(config.settings, **{name: tuple(map(str, kept))})  # type: ignore[arg-type]
        self.factory.config = replace(config, settings=settings)

    def show_last_exchange(self) -> None:
        """What was said last in a session that is taken up again; nothing where the view holds no prompt."""
        items = self.agent.session.view.items
        at = next((n for n in reversed(range(len(items))) if spoken(items[n].message)), None)
        if at is None:
            return
        texts = (
            "\n".join(block.value.text for block in item.message.blocks if isinstance(block.value, Text))
            for item in items[:at:-1]
            if item.message.role == "assistant"
        )
        self.screen.past(spoken(items[at].message), next((text for text in texts if text.strip()), ""))


async def talk(factory: AgentFactory, *, resume: str | None, last: bool, fork: bool) -> int:
    """`perdure chat`: talk until the person leaves, and close. Returns the exit code."""
    with listen_for_ctrl_c() as ears:
        screen, spent = Screen(str(factory.project)), Spending()
        reader = _reader(factory, screen, ears)

        async def asked(question: PermissionQuestion) -> Allow | Deny:
            answer = await ask(screen, reader, question)
            if isinstance(answer, Deny):
                screen.refused = question.id
            return answer

        factory.ask = asked if reader.can_ask else None
        factory.on_progress = screen.progress
        factory.also = TeeSink(screen, spent)
        directory = session_named(factory, resume, last=last)
        one = Chat(factory, await factory.agent(resume=directory, fork=fork), screen, reader, spent)
        screen.root = one.agent.context.machine.workspace.root
        _greet(one, directory, is_copy=fork)
        if directory is not None:
            one.show_last_exchange()
            one.show_room()
        if waiting := await waiting_memories(one):
            are = "memory waits" if waiting == 1 else "memories wait"
            screen.line(f"- {waiting} {are} for your review: decide with /memory review", "cyan")
        try:
            is_ended = await _until_ended(one)
        finally:
            is_kept = await close_session(one.agent, factory.home, "prompt_input_exit")
        if is_kept:
            if is_ended:
                screen.line("Everything said so far is saved.")
            screen.line(f"perdure resume {one.name} continues this session", "dim")
        return EXIT_INTERRUPTED if is_ended else EXIT_OK


async def _until_ended(one: Chat) -> bool:
    """Talk; True when a signal ended it: then everything that runs is interrupted and closed as on leaving."""
    is_ended = False
    failed: list[Exception] = []
    async with anyio.create_task_group() as tasks:

        async def listen() -> None:
            nonlocal is_ended
            with anyio.open_signal_receiver(*STOP_SIGNALS) as signals:
                async for _ in signals:
                    is_ended = True
                    tasks.cancel_scope.cancel()

        tasks.start_soon(listen)
        tasks.start_soon(one.reader.run)
        try:
            await one.talk()
        except Exception as e:  # carried out of the group, which would wrap it
            failed.append(e)
        tasks.cancel_scope.cancel()
    if failed:
        raise failed[0]
    return is_ended


def _reader(factory: AgentFactory, screen: Screen, ears: CtrlCListener) -> PromptReader:
    if sys.stdin is None:
        raise BadSetting("chat: there is no standard input to read from; `perdure run PROMPT` needs none")
    if not (is_terminal() and sys.stdin.isatty()):
        return PlainReader()
    try:
        from perdure.cli.chat.completing import Completions
        from perdure.cli.chat.editor import EditorReader
    except ImportError:
        note(f"lines can't be edited here, as prompt_toolkit is missing: {install('chat')} adds editing and history")
        return PlainReader()
    history = ProjectFolders(factory.home, factory.project).place(HISTORY)
    found = EditorReader(
        history, Completions({name: what for name, (_, what) in COMMANDS.items()}, factory.project), ears
    )
    found.live, found.echo, found.doing = screen.live, screen.echo, lambda: screen.doing or "working"
    return found


def _greet(one: Chat, directory: Path | None, *, is_copy: bool) -> None:
    """Who answers, where, and in which session: a new one, the one in this directory, or a copy of it."""
    for line in one.factory.told:
        one.screen.line(line, "yellow")
    new = "continuing" if directory is not None and not is_copy else "new"
    copied = f" (a copy of {short_name(directory)})" if directory is not None and is_copy else ""
    one.screen.line(f"{new} session {one.name}{copied}, {one.model_line()}", "bold")
    one.screen.line(f"{one.screen.root}; permission mode {one.agent.mode}; /help lists the commands", "dim")


# --- the questions on the way -----------------------------------------------------------------------------------------


async def ask(screen: Screen, reader: PromptReader, asked: PermissionQuestion) -> Allow | Deny:
    """Put one question to the person. Ctrl-C and the end of the input refuse, and end the turn."""
    screen.asked = asked.id
    screen.line(f"? {asked.tool} {clean(call_summary(asked.arguments))}".rstrip(), "bold yellow")
    command = asked.arguments.get("command")
    if isinstance(command, str) and "\n" in command:  # what is allowed has to be seen whole
        for line in plain(command).splitlines():
            screen.line(f"  | {line}")
    plan = asked.arguments.get("plan")
    if isinstance(plan, str):
        screen.line(plan)
    screen.diff(edit_diff(asked.tool, asked.arguments, screen.root, most=_ASKED_DIFF_LINES))
    if asked.why:
        screen.line(f"  {asked.why}", "dim")
    choices = "y: yes, n: no" + (f", a: always {plain(str(asked.rule))}" if asked.rule is not None else "")
    screen.line(f"  {choices}" + "; or say what to do instead" * (not asked.is_own), "dim")
    while True:
        try:
            said = (await reader.answer("? ")).strip()
        except (KeyboardInterrupt, EOFError):
            return Deny(stops=True)
        match said.lower():
            case "y" | "yes":
                return Allow()
            case "a" | "always" if asked.rule is not None:
                return Allow(asked.rule)
            case "n" | "no":
                return Deny()
            case "" | "a" | "always":
                continue
            case _ if asked.is_own:
                screen.line("  answer y or n", "dim")
            case _:
                return Deny(said)
