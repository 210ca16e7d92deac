"""The slash commands of a chat: their names, what they do, and where that is done (CLI-1)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, get_args

from holdfast.adapters.files import SessionStore
from holdfast.adapters.values import nearest
from holdfast.agent.permissions import Mode
from holdfast.cli.chat import rewinding
from holdfast.cli.chat.keeping import memory_command, notes_command, pin_command
from holdfast.cli.chat.room import autocompact_command, compact_command, context_command, cost_command, undo_command
from holdfast.cli.door import cut
from holdfast.cli.tables import table
from holdfast.errors import BadSetting

if TYPE_CHECKING:
    from holdfast.cli.chat.talk import Chat

Does = Callable[["Chat", str], Awaitable[None]]
_SHOWN = 15  # of sessions and prompts, in a list to choose from


async def help_command(chat: Chat, argument: str) -> None:
    """All commands."""
    table(("command", "what it does"), [(f"/{name}", what) for name, (_, what) in COMMANDS.items()])
    chat.screen.line("Alt-Enter or a backslash before Enter begins another line; Ctrl-C interrupts; Ctrl-D leaves")


async def exit_command(chat: Chat, argument: str) -> None:
    """Leave."""
    chat.is_leaving = True


async def clear_command(chat: Chat, argument: str) -> None:
    """A new session; the one so far stays as it is."""
    before = chat.agent.session.name
    await chat.change(None)
    chat.screen.line(f"a new session: {chat.agent.session.name}; the one before is {before} (/resume goes back)")


async def resume_command(chat: Chat, argument: str) -> None:
    """Go on with another session of this project."""
    store = SessionStore(chat.place.home)
    if not argument:
        found = [info for info in store.list(chat.place.project) if info.id != chat.agent.session.name][:_SHOWN]
        if not found:
            chat.screen.line("there is no other session of this project")
            return
        rows = [(cut(i.id, 36), i.messages, cut(i.title or i.last_prompt or "", 60)) for i in found]
        table(("session", "messages", "title or last prompt"), rows)
        chat.screen.line("/resume ID goes on with one; its beginning is enough")
        return
    directory = store.locate(argument)
    if directory.name == chat.agent.session.name:
        raise BadSetting(f"/resume {argument}: this is that session")
    await chat.change(directory)
    chat.screen.line(f"going on with {chat.agent.session.name}")


async def rewind_command(chat: Chat, argument: str) -> None:
    """Back to before an earlier prompt, with the files; its text is there to be edited (CKP-3, CKP-4)."""
    if argument == "undo":
        for line in rewinding.told(await rewinding.forth(chat), is_undone=True):
            chat.screen.line(line)
        return
    found = await rewinding.places(chat)
    if not found:
        chat.screen.line("nothing was said yet that could be gone back to")
        return
    number, *words = argument.split() or [""]
    if not number:
        rows = [(number, cut(one.text, 80)) for number, one in enumerate(found, 1)]
        table(("", "prompt"), rows[-_SHOWN:])
        chat.screen.line("/rewind NUMBER [code|conversation|both] goes back to before it; /rewind undo takes that back")
        return
    if not number.isdecimal() or not 1 <= int(number) <= len(found):
        raise BadSetting(f"/rewind {number}: give a number from 1 to {len(found)}; /rewind lists them")
    to = found[int(number) - 1]
    done = await rewinding.rewind(chat, to, words)
    if done.is_conversation:
        chat.draft = done.prompt
    chat.screen.line(f"back to before: {cut(to.text, 80)}")
    for line in rewinding.told(done):
        chat.screen.line(line)


async def retry_command(chat: Chat, argument: str) -> None:
    """Ask the model again with what is there, for instance after an error."""
    await chat.work(None)


async def mode_command(chat: Chat, argument: str) -> None:
    """Show the permission mode, or set it for this chat."""
    modes: dict[str, Mode] = {mode: mode for mode in get_args(Mode)}
    if argument:
        mode = modes.get(argument.replace("-", "_"))
        if mode is None:
            raise BadSetting(f"/mode {argument}: give one of {', '.join(modes)}{nearest(argument, tuple(modes))}")
        chat.agent.mode = mode
    chat.screen.line(f"permission mode: {chat.agent.mode}")


COMMANDS: dict[str, tuple[Does, str]] = {
    "context": (context_command, "what fills the window"),
    "compact": (compact_command, "replace what is old by a record of it; [FOCUS] says what to look at"),
    "autocompact": (autocompact_command, "what auto-compaction does; [WINDOW|on|off|default] sets it"),
    "clear": (clear_command, "begin a new session; this one is kept"),
    "memory": (memory_command, "the memories of this project; [WORDS] searches them"),
    "notes": (notes_command, "the notes kept of this session"),
    "pin": (pin_command, "pin [TEXT], so that it survives compactions; remove ID; or list"),
    "rewind": (rewind_command, "go back to before an earlier prompt; [NUMBER] [code|conversation|both], or undo"),
    "resume": (resume_command, "go on with another session; [ID]"),
    "undo": (undo_command, "take the last compaction back"),
    "retry": (retry_command, "ask the model again with what is there, as after an error"),
    "mode": (mode_command, "the permission mode; [default|accept_edits|plan|bypass] sets it"),
    "cost": (cost_command, "what this chat cost so far"),
    "help": (help_command, "this list"),
    "exit": (exit_command, "leave, as Ctrl-D does"),
}


def is_command(text: str) -> bool:
    """Whether a line is meant as a command; a path that begins with a slash isn't."""
    word = text.split(maxsplit=1)[0]
    return word.startswith("/") and "/" not in word[1:] and "." not in word


async def obey(chat: Chat, text: str) -> None:
    """Do what a command says. Raises `BadSetting` for one that there isn't."""
    name, _, argument = text[1:].partition(" ")
    if name not in COMMANDS:
        raise BadSetting(f"/{name}: there is no such command{nearest(name, tuple(COMMANDS))}; /help lists all")
    await COMMANDS[name][0](chat, argument.strip())
