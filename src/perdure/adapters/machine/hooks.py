"""Hooks that are shell commands: JSON on stdin, an exit code, and what they print (CMP-10).

Each runs in a process group of its own, in the agent's folder, and is gone with all that it started when it ends, takes
too long, or its session ends.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from subprocess import PIPE

import anyio
import anyio.abc

from perdure.adapters.machine.system import end_group, needs_unix
from perdure.hooks import (
    SESSION_END_SECONDS,
    Hook,
    HookDecision,
    HookEvent,
    SessionEnd,
    SessionStart,
    decision_of,
    wants,
)
from perdure.settings import HookCommand, Settings

SCRIPT = "hooks.sh"  # beside the journal: what hooks at a start set for later commands, made anew at each opening
_MOST_BYTES = 1_000_000  # of what a hook prints; the rest is read and dropped, so that it isn't held up
_SHELL = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"
_REST_SECONDS = 1.0  # for what stands in the pipes, when a child that it left behind still holds them


def hooks_of(settings: Settings, *, project: str | None = None, transcript: str = "") -> tuple[Hook, ...]:
    """The hooks that the settings name.

    Args:
        settings: with `hooks`, and how long one may take.
        project: the project's folder, where commands run unless the agent is elsewhere.
        transcript: the path of the session's journal.
    """
    if settings.hooks:
        needs_unix("the setting hooks", "whose shell isn't the one that hooks are written for")
    seconds = settings.hook_timeout_seconds
    return tuple(
        shell_hook(one, timeout_seconds=seconds, project=project, transcript=transcript) for one in settings.hooks
    )


def shell_hook(
    command: HookCommand, *, timeout_seconds: float = 60.0, project: str | None = None, transcript: str = ""
) -> Hook:
    """A hook that runs a command at its event.

    Args:
        command: what runs, and when.
        timeout_seconds: for a command that doesn't say how long it may take.
        project: as for `hooks_of`; it is `$CLAUDE_PROJECT_DIR`.
        transcript: as for `hooks_of`.
    """
    root = _folder(project, os.getcwd())  # a session may come from another machine

    async def run(told: HookEvent) -> HookDecision:
        cwd = _folder(told.cwd, root)
        given = told.as_json(cwd=cwd, transcript_path=transcript)
        environ = {**os.environ, "CLAUDE_PROJECT_DIR": root}
        if isinstance(told, SessionStart) and transcript:
            environ["CLAUDE_ENV_FILE"] = os.path.join(os.path.dirname(transcript), SCRIPT)
        code, output, errors = await _run(command.command, given.encode(), cwd, environ)
        return decision_of(told, code, output, errors)

    is_end = command.event == SessionEnd.__name__
    seconds = command.seconds or (min(SESSION_END_SECONDS, timeout_seconds) if is_end else timeout_seconds)
    is_async = command.is_async and not is_end  # whoever ends has to wait, or the command would end at once
    return Hook(command.command, run, seconds, lambda told: wants(command, told), is_async)


def _folder(wanted: str | None, otherwise: str) -> str:
    return os.path.abspath(wanted) if wanted and os.path.isdir(wanted) else otherwise


async def _run(command: str, given: bytes, cwd: str, environ: Mapping[str, str]) -> tuple[int, str, str]:
    with anyio.CancelScope(shield=True):  # a cancelled start must not leave a command that nobody knows of
        process = await anyio.open_process(
            [_SHELL, "-c", command],
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            cwd=cwd,
            env=environ,
            start_new_session=True,
        )
    output, errors = bytearray(), bytearray()
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_read, process.stdout, output)
            tasks.start_soon(_read, process.stderr, errors)
            tasks.start_soon(_write, process.stdin, given)
            code = await process.wait()
            tasks.cancel_scope.deadline = anyio.current_time() + _REST_SECONDS
    finally:
        end_group(process.pid, at_once=True)
        with anyio.CancelScope(shield=True):
            await process.aclose()
    return code, output.decode("utf-8", "replace"), errors.decode("utf-8", "replace")


async def _read(stream: anyio.abc.ByteReceiveStream | None, into: bytearray) -> None:
    assert stream is not None
    async for chunk in stream:
        into += chunk[: max(0, _MOST_BYTES - len(into))]


async def _write(stream: anyio.abc.ByteSendStream | None, given: bytes) -> None:
    assert stream is not None
    try:
        await stream.send(given)
        await stream.aclose()
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):  # it doesn't read, and needn't
        pass
