"""/memory, /notes, /pin: what outlives the window, seen from within a chat (CLI-1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anyio import to_thread

from holdfast.cli.pinning import pins_of, show_pins, taken
from holdfast.cli.remembering import list_command
from holdfast.context.noted import CURSOR
from holdfast.engine.notes import SessionNotes, look
from holdfast.engine.pins import pin, unpin

if TYPE_CHECKING:
    from holdfast.cli.chat.talk import Chat


async def memory_command(chat: Chat, argument: str) -> None:
    """The memories of this project; with words, those that matter to them."""
    settings = chat.agent.session.settings
    state = f"on, agents may write: {settings.memory_mode}" if settings.memory else "off (the setting memory)"
    chat.screen.line(f"memory is {state}")

    def show() -> None:
        from holdfast.cli.remembering import search_command

        if argument:
            search_command(argument, chat.place.config, directory=None, is_user=False, limit=5, is_json=False)
        else:
            list_command(chat.place.config, directory=None, is_user=False, is_json=False)

    await to_thread.run_sync(show)


async def notes_command(chat: Chat, argument: str) -> None:
    """The notes that are kept of this session (SM-10)."""
    keeper = next((one for one in chat.agent.session.services.keepers if one.name == CURSOR), None)
    if not isinstance(keeper, SessionNotes) or not chat.agent.session.settings.notes:
        chat.screen.line("no notes are kept of this session (the setting notes)")
        return
    found = await look(keeper.file)
    if found.state != "written":
        chat.screen.line("the notes say nothing yet: they are written while the session runs")
        return
    chat.screen.line((found.data or b"").decode("utf-8", "replace").rstrip("\n"))


async def pin_command(chat: Chat, argument: str) -> None:
    """Pin a text, take a pin back (`remove ID`), or list the pins (RST-8)."""
    session = chat.agent.session
    first, _, rest = argument.partition(" ")
    if not argument:
        show_pins(pins_of(session))
        return
    if first == "remove" and rest.strip():
        gone = await unpin(session, rest.strip())
        chat.screen.line(f"removed {gone.id}: {taken(pins_of(session))}")
        return
    done = await pin(session, argument)
    chat.screen.line(f"pinned as {done.id}: {taken(pins_of(session))}")
