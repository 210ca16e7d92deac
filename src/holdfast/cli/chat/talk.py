"""The conversation: read, obey or work, show; until somebody leaves (CLI-1, PRS-7)."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from holdfast.adapters.files import SessionStore
from holdfast.adapters.files.store import PROJECTS, slug_of
from holdfast.adapters.sinks import TeeSink
from holdfast.agent.progress import Asked, No, Yes
from holdfast.cli.chat.asking import ask
from holdfast.cli.chat.commands import COMMANDS, is_command, obey
from holdfast.cli.chat.opening import Place, Wanted, place_of
from holdfast.cli.chat.reading import (
    EditorReader,
    Interrupted,
    PlainReader,
    Reader,
    hearing,
    interruptible,
    is_terminal,
)
from holdfast.cli.chat.screen import Screen
from holdfast.cli.chat.spent import Spent
from holdfast.cli.chat.working import work
from holdfast.cli.door import EXIT_INTERRUPTED, EXIT_OK, note
from holdfast.cli.tables import usd
from holdfast.context.policy import low_line, percent_left
from holdfast.errors import BadSetting, HoldfastError

if TYPE_CHECKING:
    from holdfast.agent.loop import Agent

HISTORY = "history"  # beside the sessions of a project
_ENDS = {
    "interrupted": "interrupted; the session is as it was left, go on when you like",
    "turns": "stopped after {turns} calls of the model (the setting agent_turns); say something to go on",
    "refused": "the model refused to go on",
    "max_tokens": "the answer was cut at its limit; say something to go on",
    "stopped": "stopped",
}


class Chat:
    """One person's conversation. `draft` is what stands in the next prompt to be edited."""

    def __init__(self, place: Place, agent: Agent, screen: Screen, reader: Reader, spent: Spent) -> None:
        self.place, self.agent, self.screen, self.reader, self.spent = place, agent, screen, reader, spent
        self.draft = ""
        self.is_leaving = False

    async def talk(self) -> None:
        """Until the person leaves."""
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
                self.screen.line("(Ctrl-C again, or Ctrl-D, leaves)", "dim")
                continue
            pressed = 0
            if text:
                await self.take(text)

    async def take(self, text: str) -> None:
        """One thing that was typed. What goes wrong is a line, and the conversation goes on."""
        try:
            if is_command(text):
                await interruptible(lambda: obey(self, text))
            else:
                await interruptible(lambda: self.work(text))
        except Interrupted:
            self.screen.line(_ENDS["interrupted"], "yellow")
        except HoldfastError as e:
            self.screen.line(str(e), "red")
        except BrokenPipeError:  # nobody sees what is shown any more
            raise
        except OSError as e:
            self.screen.line(f"{e.filename or 'the machine'}: {e.strerror or e}", "red")
        if not is_command(text):
            self._status()

    async def work(self, text: str | None) -> None:
        """Have the agent work on a prompt; None goes on with what is there."""
        said = await work(self.agent, self.place, text, lambda line: self.screen.line(line, "yellow"))
        if said.stopped != "done":
            self.screen.line(_ENDS[said.stopped].format(turns=said.turns), "yellow")

    def _status(self) -> None:
        """Size, what is left, the price; and what to do when it is low (PRS-7)."""
        session = self.agent.session
        limits, size = session.limits, session.facts().size(session.view)
        parts = [f"{size:,} of {limits.window:,} tokens", f"{percent_left(size, limits):.0f}% left"]
        if self.spent.is_priced:
            parts.append(usd(self.spent.usd))
        if self.agent.mode != "default":
            parts.append(f"mode {self.agent.mode}")
        self.screen.line(f"[{', '.join(parts)}]", "dim")
        if (low := low_line(size, limits)) is not None:
            self.screen.line(low, "bold yellow")

    async def change(self, directory: Path | None) -> None:
        """Another session instead of this one: a new one, or the one in a directory."""
        agent = await self.place.agent(resume=directory)  # first: when that fails, this one stays
        before, self.agent = self.agent, agent
        agent.mode, self.screen.root = before.mode, agent.desk.machine.workspace.root
        await leave(before, self.place.home)


async def leave(agent: Agent, home: Path) -> bool:
    """Close a session; one in which nothing was said leaves nothing behind. True when it is kept."""
    session = agent.session
    with anyio.CancelScope(shield=True):
        await agent.close()
        if not session.view.state.messages:
            store = SessionStore(home)
            store.delete(store.locate(session.name))
            return False
    return True


async def chat(wanted: Wanted) -> int:
    """`holdfast chat`: open, talk, close. Returns the exit code."""
    place = await place_of(wanted)
    try:
        with hearing():
            return await _chat(place, wanted)
    finally:
        with anyio.CancelScope(shield=True):
            await place.models.close()


async def _chat(place: Place, wanted: Wanted) -> int:
    screen, spent = Screen(str(place.project)), Spent()
    reader = _reader(place)

    async def asked(question: Asked) -> Yes | No:
        return await ask(screen, reader, question)

    place.ask = asked if reader.can_ask else None
    place.on_progress = screen.progress
    place.also = TeeSink(screen, spent)
    directory = place.located(wanted)
    one = Chat(place, await place.agent(resume=directory, fork=wanted.fork), screen, reader, spent)
    screen.root = one.agent.desk.machine.workspace.root
    _greet(one, is_resumed=directory is not None)
    try:
        is_ended = await _until_ended(one)
    finally:
        is_kept = await leave(one.agent, place.home)
    if is_kept:
        screen.line(f"holdfast resume {one.agent.session.name} goes on from here", "dim")
    return EXIT_INTERRUPTED if is_ended else EXIT_OK


async def _until_ended(one: Chat) -> bool:
    """Talk; True when a signal ended it: then everything that runs is interrupted and closed as on leaving."""
    is_ended = False
    failed: list[Exception] = []
    async with anyio.create_task_group() as tasks:

        async def listen() -> None:
            nonlocal is_ended
            with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGHUP) as signals:
                async for _ in signals:
                    is_ended = True
                    tasks.cancel_scope.cancel()

        tasks.start_soon(listen)
        try:
            await one.talk()
        except Exception as e:  # carried out of the group, which would wrap it
            failed.append(e)
        tasks.cancel_scope.cancel()
    if failed:
        raise failed[0]
    return is_ended


def _reader(place: Place) -> Reader:
    if sys.stdin is None:
        raise BadSetting("chat: there is no standard input to read from; `holdfast run PROMPT` needs none")
    if not is_terminal():
        return PlainReader()
    history = place.home / PROJECTS / slug_of(place.project) / HISTORY
    try:
        return EditorReader(history, {name: what for name, (_, what) in COMMANDS.items()}, place.project)
    except ImportError:
        note("without prompt_toolkit lines are plain: pip install 'holdfast[chat]' brings editing and history")
        return PlainReader()


def _greet(one: Chat, *, is_resumed: bool) -> None:
    agent, limits = one.agent, one.agent.session.limits
    for line in one.place.told:
        one.screen.line(line, "yellow")
    window = agent.model.about.window_tokens or limits.window
    what = "going on with" if is_resumed else "session"
    one.screen.line(f"{what} {agent.session.name}, model {agent.model.about.id}, window {window:,} tokens", "bold")
    one.screen.line(f"{one.screen.root}; permission mode {agent.mode}; /help lists the commands", "dim")
