"""Bash, BashOutput and KillShell: commands, in front or in the background (LIB-1, SES-3)."""

from __future__ import annotations

import re
from typing import Annotated

import anyio
from msgspec import Meta

from perdure.agent.commands import only_looks_or_shows, parse_command, paths_in_command
from perdure.agent.permissions import OF_EDITS, OF_FILES, PermissionRule, ToolEffects, folders_of, has_rule_for
from perdure.agent.tool_context import ToolContext
from perdure.agent.tools.tool import Tool, ToolInput, ToolInvocation, ToolOutcome, ToolRefused, output_text
from perdure.memory.places import name_for_people as one_line
from perdure.ports.machine import CommandExit as Ended
from perdure.ports.machine import PermissionSource as Let
from perdure.ports.machine import RunningCommand as Command

_LOOKS_EVERY_SECONDS = 0.2
_RULE_WORDS = 2
_MOST_HIDDEN = 1_000
_REFUSED = re.compile(
    "(?i)read-only file system|permission denied|operation not permitted|could not resolve|network is unreachable"
    "|name resolution|EROFS|EACCES|EPERM|ENETUNREACH|EAI_AGAIN|getaddrinfo|no such file"
)
_MOST_BELOW = 50_000  # files that are looked at below the folders which a command goes through
_TWO_WORDS = frozenset("git npm pnpm yarn cargo go docker kubectl make uv pip poetry gh".split())


class BashInput(ToolInput, frozen=True):
    command: Annotated[str, Meta(description="The command line, for bash.", min_length=1)]
    description: Annotated[str, Meta(description="What it does, in a few words.")] = ""
    timeout: Annotated[float, Meta(description="Milliseconds after which it is ended.", gt=0)] | None = None
    outside_sandbox: Annotated[
        bool, Meta(description="Run it outside of the sandbox, which a person is asked about.")
    ] = False
    run_in_background: Annotated[bool, Meta(description="Go on while it runs; see BashOutput.")] = False


class BashOutputInput(ToolInput, frozen=True):
    bash_id: Annotated[str, Meta(description="The id of the background command or agent.")]
    wait: Annotated[float, Meta(description="Seconds to wait for its end, at most 600.", ge=0)] = 0.0


class KillShellInput(ToolInput, frozen=True):
    shell_id: Annotated[str, Meta(description="The id of the background command or agent.")]


async def bash(context: ToolContext, use: ToolInvocation, given: BashInput) -> ToolOutcome:
    """Run a command to its end, or start one in the background."""
    if "\0" in given.command:
        raise ToolRefused("the command holds a NUL character")
    let: Let = "looks" if use.let == "allowed" and only_looks_or_shows(given.command) else use.let
    hidden = await _hidden(context) if let != "approved" and context.machine.shell.notice else ()
    if given.run_in_background:
        work = await context.background.start_command(given.command, context.cwd, given.description, let, hidden)
        return ToolOutcome(
            f"Command running in background with ID: {work.id}. Output is being written to: {work.where}"
        )
    name = context.session.ports.ids.new("command")
    command = await context.machine.shell.start(name, given.command, cwd=context.cwd, let=let, hidden=hidden)
    return await _to_its_end(context, use, given, command, context.machine.shell.notice if let != "approved" else "")


async def _to_its_end(
    context: ToolContext, use: ToolInvocation, given: BashInput, command: Command, notice: str
) -> ToolOutcome:
    settings = context.session.settings
    seconds = min((given.timeout or settings.command_seconds * 1_000) / 1_000, settings.command_most_seconds)
    ended: Ended | None = None
    keeps_output = False
    try:
        with anyio.move_on_after(seconds):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_watch_size, command, settings.command_output_bytes, tasks.cancel_scope)
                ended = await command.wait()
                tasks.cancel_scope.cancel()
        size = command.size_bytes()
        text, keeps_output = await _output(context, command)  # before it is stopped: shells speak of that, too
        if ended is not None:
            note = _sandboxed(text, notice) if ended.code != 0 else ""
            return _outcome(text, ended.code, note + await _followed(context, ended.cwd))
        why = f"timed out after {seconds:g} s"
        if size > settings.command_output_bytes:
            why = f"wrote more than {settings.command_output_bytes:,} bytes"
        return ToolOutcome(f"Command {why} and was ended. Its output until then:\n{text}", is_error=True)
    except anyio.get_cancelled_exc_class():
        with anyio.CancelScope(shield=True):
            text, _ = await _output(context, command)
            use.partial = f"Its output until then:\n{text}" if text else ""
        raise
    finally:
        with anyio.CancelScope(shield=True):
            if ended is None:
                await command.stop()
            if not keeps_output:
                await context.machine.shell.discard(command.output)


async def _watch_size(command: Command, most: int, scope: anyio.CancelScope) -> None:
    while command.size_bytes() <= most:  # noqa: ASYNC110 - a file that grows tells nobody
        await anyio.sleep(_LOOKS_EVERY_SECONDS)
    scope.cancel()


async def _output(context: ToolContext, command: Command) -> tuple[str, bool]:
    """What a command wrote; the middle of a very long output stays in its file only."""
    shell, most, size = context.machine.shell, context.session.settings.command_shown_bytes, command.size_bytes()
    if size <= most:
        return output_text(await shell.read(command.output, offset=0, limit_bytes=most)).rstrip("\n"), False
    head = output_text(await shell.read(command.output, offset=0, limit_bytes=most // 2))
    tail = output_text(await shell.read(command.output, offset=-(most // 2), limit_bytes=most // 2))
    left = f"[{size - most:,} of {size:,} bytes left out; all of it is in {command.output}]"
    return f"{head}\n{left}\n{tail}".rstrip("\n"), True


async def _followed(context: ToolContext, cwd: str | None) -> str:
    """The next command starts where this one ended, as long as that is in the project."""
    if cwd is None or cwd == context.cwd:
        return ""
    try:
        spot = await context.machine.workspace.resolve(cwd)
    except OSError:  # a name that is no text (CKP-7), or a folder that nobody may look into
        return f"\n[the current folder is {context.cwd} again: {one_line(cwd)} can't be worked in]"
    if spot.kind == "folder" and spot.is_inside:
        context.cwd = spot.path
        return ""
    return f"\n[the current folder is {context.cwd} again: {cwd} is outside the project]"


def _outcome(text: str, code: int | None, note: str) -> ToolOutcome:
    if code == 0:
        return ToolOutcome(f"{text or '(no output)'}{note}")
    said = "Command was ended by a signal" if code is None or code < 0 else f"Exit code {code}"
    return ToolOutcome(f"{said}\n{text}{note}", is_error=True)


def _sandboxed(text: str, notice: str) -> str:
    """Why a command may have failed: what a sandbox refuses looks like a fault of the machine."""
    return f"\n[{notice}; outside_sandbox asks a person to run it without]" if notice and _REFUSED.search(text) else ""


async def _hidden(context: ToolContext) -> tuple[str, ...]:
    """The files that rules forbid to read, as they are now; the sandbox hides them from whatever a command runs."""
    policy, workspace = context.policy, context.machine.workspace
    forbidden = [rule for rule in policy.rules.deny if rule.tool == "Read" and rule.pattern is not None]
    if not forbidden:
        return ()
    named = await workspace.leads([path for rule in forbidden for path in folders_of(rule, policy)])
    below, _ = await workspace.below([policy.root], limit=_MOST_BELOW)  # the nearest: docs/use/security.md says so
    inside = tuple(f"{path}/" for path in named)
    more = [p for p in below if not p.startswith(inside) and has_rule_for(forbidden, p, policy)]
    if len(more) > _MOST_HIDDEN:
        raise ToolRefused(
            "rules forbid more files than the sandbox can hide one by one: forbid folders, or ask to run it"
        )
    return tuple(dict.fromkeys((*named, *more)))


async def bash_output(context: ToolContext, use: ToolInvocation, given: BashOutputInput) -> ToolOutcome:
    """What a background command wrote since the last look, and how it stands."""
    return ToolOutcome(await context.background.new_output(given.bash_id, min(given.wait, 600.0)))


async def kill_shell(context: ToolContext, use: ToolInvocation, given: KillShellInput) -> ToolOutcome:
    """End a background command or agent, with all that it started."""
    work = await context.background.stop(given.shell_id)
    return ToolOutcome(f"{work.id} is {work.state}.")


async def _touches(context: ToolContext, given: BashInput) -> ToolEffects:
    """What the command names, and where that leads on the disk (SEC-9)."""
    policy, workspace, command = context.policy, context.machine.workspace, given.command
    named = paths_in_command(command, context.cwd, policy.home)
    leads = await workspace.leads([one.path for one in named.paths])
    limiting = (*policy.rules.deny, *policy.rules.ask)
    found: tuple[str, ...] = ()
    is_all = True
    if named.below and any(rule.tool in OF_FILES for rule in limiting):
        found, is_all = await workspace.below(named.below, limit=_MOST_BELOW)
    more = tuple(path for path in found if has_rule_for(limiting, path, policy))
    may_lead: list[str] = []
    editing = [rule for rule in limiting if rule.tool in OF_EDITS]
    for folders, rules in ((named.perhaps, limiting), (named.operands, editing)):
        if folders and any(rule.tool in OF_FILES for rule in rules):
            found, _ = await workspace.below(folders, limit=_MOST_BELOW)
            may_lead += (path for path in found if has_rule_for(rules, path, policy))
    git = await workspace.git_doubt((context.cwd, *leads)) if "git" in command else ""
    return ToolEffects(
        "Bash",
        "command",
        command=command,
        cwd=context.cwd,
        leads=(*leads, *more),
        is_walked=is_all,
        may_lead=tuple(may_lead),
        git=git,
        is_unboxed=given.outside_sandbox and bool(context.machine.shell.notice),
    )


def _rule(given: BashInput) -> PermissionRule | None:
    """The first words of a single plain command: `git commit:*`, not `git:*`."""
    plain = parse_command(given.command)
    if plain is None or len(plain) != 1 or plain[0].assigned or plain[0].is_expanded or not plain[0].words:
        return None
    words = plain[0].words
    size = _RULE_WORDS if words[0] in _TWO_WORDS and len(words) > 1 and not words[1].startswith("-") else 1
    if any(" " in word or "\n" in word for word in words[:size]):
        return None
    return PermissionRule("Bash", f"{' '.join(words[:size])}:*")


BASH = Tool("Bash", BashInput, bash, _touches, _rule, is_watched=True)
BASH_OUTPUT = Tool("BashOutput", BashOutputInput, bash_output, is_parallel=True)
KILL_SHELL = Tool("KillShell", KillShellInput, kill_shell)
