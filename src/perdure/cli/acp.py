"""`perdure acp`: the agent in an editor that speaks the Agent Client Protocol (ACP-1)."""

from __future__ import annotations

import logging
import os
import stat
import sys
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING

import typer

from perdure.adapters.machine.system import NO_AGENT, needs_unix
from perdure.cli.agent import ModelName, PermissionMode, Trust, flags_of
from perdure.cli.arguments import Sets, examples, family
from perdure.cli.output import EXIT_OK, note_if_typed
from perdure.errors import BadSetting

if TYPE_CHECKING:
    from perdure.events import Event

app = family()


@app.command(epilog=examples("perdure acp", "perdure acp --model ollama:qwen3", "perdure acp --mode accept_edits"))
def acp(*, model: ModelName = None, mode: PermissionMode = None, trust: Trust = False, sets: Sets = None) -> None:
    """Run the agent for an editor, over the Agent Client Protocol.

    An editor such as Zed starts this command and speaks with it over standard input and output; it ends with the
    editor. It keeps its sessions where chat does, so each can go on with the other's.
    """
    import anyio

    needs_unix("perdure acp", NO_AGENT)
    try:
        from perdure.acp.server import EditorServer, FolderAgents, serve
        from perdure.acp.session import Wording
    except ImportError as e:
        from perdure.adapters.extras import install

        raise BadSetting(f"editors need another package ({e.name}): {install('acp')}") from e
    from perdure.adapters.config import load
    from perdure.adapters.extras import release
    from perdure.agent.loop import AgentLoop
    from perdure.cli.chat.agents import telling
    from perdure.cli.room import room_line
    from perdure.cli.words import compaction_failure, shown_error
    from perdure.wiring.factory import agent_factory

    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="perdure: %(message)s")
    flags = flags_of(sets, model, mode)

    def agents_in(folder: Path) -> FolderAgents:
        config = load(os.environ, cwd=folder, flags=flags, trusts=trust)
        notes = [f"{warning.name}: {warning.reason}" for warning in config.warnings]
        if config.unapproved:
            held = ", ".join(config.unapproved)
            notes.append(f"{folder} isn't trusted, so it isn't used: {held}; `perdure trust` in a terminal trusts it")
        return FolderAgents(agent_factory(config, folder, trusts=trust), tuple(notes))

    def event_line(event: Event) -> str | None:
        told = telling(event)
        return told[0] if told is not None and told[1] != "dim" else None

    def room(agent: AgentLoop) -> str:
        return room_line(agent.session.view, agent.session.facts())

    for stream, what in ((sys.stdin, "input"), (sys.stdout, "output")):
        if not _is_piped(stream):
            raise BadSetting(
                f"an editor starts this command and speaks with it through pipes; standard {what} isn't one"
            )
    load(os.environ, cwd=Path.cwd(), flags=flags)  # a wrong flag is said at once, where somebody sees it
    wording = Wording(error=shown_error, event=event_line, not_compacted=compaction_failure, room=room)
    on_ready = partial(note_if_typed, "an editor such as Zed")
    anyio.run(partial(serve, EditorServer(agents_in, wording, release()), on_ready=on_ready))
    raise typer.Exit(EXIT_OK)


def _is_piped(stream: IO[str] | None) -> bool:
    """Whether it can be waited for: a pipe, a socket, or a terminal, where somebody tries it."""
    if stream is None:
        return False
    mode = os.fstat(stream.fileno()).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stream.isatty()
