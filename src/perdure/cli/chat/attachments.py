"""What a person brings into the conversation: files named with @, and the output of commands behind ! (CLI-6).

The model reads both as quotations. Neither counts as the person's word: a file may say anything (SEC-1, MEM-10).
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio

from perdure import prompts
from perdure.agent.permissions import ToolEffects, decide
from perdure.agent.progress import Deny, PermissionQuestion
from perdure.agent.tool_context import ToolContext
from perdure.agent.tools.bash import BASH, BashInput
from perdure.agent.tools.files import READ, ReadInput
from perdure.agent.tools.tool import ToolInvocation, ToolOutcome, ToolRefused
from perdure.cli.output import plural
from perdure.context import reminders
from perdure.errors import PerdureError
from perdure.transcript.blocks import text_block
from perdure.transcript.messages import Message

if TYPE_CHECKING:
    from perdure.agent.loop import AgentLoop
    from perdure.cli.chat.screen import Screen

OWN_COMMAND = "own_command"  # the note of what a command of the person's own wrote
_MENTION = re.compile(r"(?:(?<=\s)|\A)@(?:\"([^\"\n]+)\"|([^\s\"@]+))")
_TRAILING = ".,;:!?)]}'"
_MOST_FILES = 20
_SHOWN_LINES = 200  # of a command's output


def mentions(text: str) -> list[str]:
    """The names behind an @ in a prompt, each once, as they were written."""
    return list(dict.fromkeys(quoted or plain for quoted, plain in _MENTION.findall(text)))


async def attached_files(agent: AgentLoop, text: str, screen: Screen) -> tuple[Message, ...]:
    """The files that a prompt names with @, quoted. What names no file stays a word, and that is said.

    Raises:
        PerdureError: A file may not be read, can't be, or is too large; nothing is to be sent then, which it says.
    """
    try:
        return await _attached_files(agent, text, screen)
    except PerdureError as e:
        raise PerdureError(f"{e}; the prompt wasn't sent") from None


async def _attached_files(agent: AgentLoop, text: str, screen: Screen) -> tuple[Message, ...]:
    context, found = agent.context, list[Message]()
    named = {name: await _path(context, name) for name in mentions(text)}
    files = {path for path in named.values() if path is not None}
    if len(files) > _MOST_FILES:
        raise PerdureError(f"{len(files)} files are named with @: attach at most {_MOST_FILES} at once")
    for name, path in named.items():
        if path is None:
            screen.line(f"  @{name.rstrip(_TRAILING)}: no such file, so nothing is attached for it", "dim")
        if path is None or path not in files:
            continue
        files.remove(path)
        await _allowed(context, "Read", {"file_path": path}, await _reads(context, path))
        use = ToolInvocation(context.session.ports.ids.new("attached"), READ.name, {"file_path": path}, context.prompt)
        try:
            outcome = await READ.run(context, use, ReadInput(file_path=path))
        except ToolRefused as e:
            raise PerdureError(f"@{e}") from None
        found.append(_attached(path, outcome))
        what = plural(len(outcome.text.splitlines()), "line") if isinstance(outcome.content, str) else "an image"
        screen.brief(f"  @{path}: {what} attached", "dim")
    return tuple(found)


async def _path(context: ToolContext, name: str) -> str | None:
    """The file that a name means, without what only ends the sentence; None when there is none."""
    for one in dict.fromkeys((name, name.rstrip(_TRAILING))):
        if one and (await context.resolve(one)).kind == "file":
            return one
    return None


async def _reads(context: ToolContext, path: str) -> ToolEffects:
    return ToolEffects("Read", "look", (await context.where(path),))


def _attached(path: str, outcome: ToolOutcome) -> Message:
    if isinstance(outcome.content, str):
        return reminders.attached_file(path, outcome.content)
    said = prompts.render("attached_file", path=reminders.name(path), text="(an image)")
    return Message.of("user", [text_block(said), *outcome.content], origin="reminder", note=reminders.ATTACHED)


async def run_own_command(agent: AgentLoop, command: str, screen: Screen) -> None:
    """Run a command that the person typed behind !, show what it writes, and quote it to the model.

    Raises:
        PerdureError: A rule forbids it, or the person was asked because of a rule, and said no.
    """
    await agent.open()
    context = agent.context
    given = {"command": command}
    assert BASH.touches is not None
    await _allowed(context, BASH.name, given, await BASH.touches(context, BashInput(command=command)), is_own=True)
    identity = context.session.ports.ids.new("command")
    use = ToolInvocation(identity, BASH.name, given, context.prompt, let="approved")
    try:
        outcome = await BASH.run(context, use, BashInput(command=command))
    except anyio.get_cancelled_exc_class():
        with anyio.CancelScope(shield=True):
            await _tell(agent, screen, command, use.partial, "interrupted")
        raise
    except ToolRefused as e:
        raise PerdureError(f"!{command}: {e}") from None
    await _tell(agent, screen, command, outcome.text, "it failed" if outcome.is_error else "it succeeded")


async def _tell(agent: AgentLoop, screen: Screen, command: str, text: str, state: str) -> None:
    lines = text.splitlines()
    for line in lines[:_SHOWN_LINES]:
        screen.line(f"  {line}", "dim")
    if len(lines) > _SHOWN_LINES:
        screen.line(f"  … {len(lines) - _SHOWN_LINES:,} more lines", "dim")
    quoted = {"command": reminders.quoted(command), "text": reminders.quoted(text or "(none)")}
    said = prompts.render("own_command", state=state, **quoted)
    await agent.session.append(Message.of("user", [text_block(said)], origin="reminder", note=OWN_COMMAND))


async def _allowed(
    context: ToolContext, tool: str, given: dict[str, Any], touch: ToolEffects, *, is_own: bool = False
) -> None:
    """Raise `PerdureError` unless the rules let the person do this, or they say so when a rule wants them asked.

    A command of one's own needs no permission beside the rules: one has typed it.
    """
    policy = replace(context.policy, mode="default")  # the mode is about what the agent does
    verdict = decide(touch, policy)
    what = f"!{given['command']}" if is_own else f"@{given['file_path']}"
    if verdict.decision == "deny":
        raise PerdureError(f"{what}: {verdict.why}; /permissions lists the rules")
    if verdict.decision == "allow" or (is_own and not verdict.by.startswith("rule ")):
        return
    if context.ask is None:
        raise PerdureError(f"{what}: it would have to be asked for ({verdict.why}), and nobody is there to ask")
    identity = context.session.ports.ids.new("asked")
    if isinstance(await context.ask(PermissionQuestion(identity, tool, given, verdict.why, is_own=True)), Deny):
        raise PerdureError(f"{what}: not {'run' if is_own else 'attached'}, as you said")
