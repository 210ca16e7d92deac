"""Hooks that are shell commands: JSON on stdin, exit 2 blocks, anything else but 0 is a failure (CMP-10)."""

from __future__ import annotations

import os
import signal
from dataclasses import asdict
from subprocess import PIPE
from typing import Any

import anyio
import anyio.abc
import msgspec

from perdure.compaction.hooks import Hook, HookDecision, HookEvent, PostCompact, PreCompact
from perdure.errors import PerdureError
from perdure.settings import Settings

_BLOCKS = 2
_MOST_BYTES = 1_000_000


EVENTS = (PreCompact.__name__, PostCompact.__name__)


def hooks_of(settings: Settings, *, cwd: str | None = None) -> tuple[Hook, ...]:
    """The hooks that the settings name: commands that run in `cwd`, the project's folder (CMP-10)."""
    seconds = settings.hook_timeout_seconds
    cwd = cwd if cwd and os.path.isdir(cwd) else None  # a session may come from another machine
    named = ((settings.pre_compact_hooks, EVENTS[:1]), (settings.post_compact_hooks, EVENTS[1:]))
    return tuple(
        shell_hook(command, timeout_seconds=seconds, cwd=cwd, events=events)
        for commands, events in named
        for command in commands
    )


def shell_hook(
    command: str, *, timeout_seconds: float = 60.0, cwd: str | None = None, events: tuple[str, ...] = EVENTS
) -> Hook:
    """A hook that runs a command at these events. Its stdin is one JSON object with `event`, one of their names.

    Exit 0: what it prints is a JSON object with the fields of `HookDecision`, or plain text, which is added to the
    instructions (before) or to the conversation (after). Exit 2: what it writes to stderr is why it blocks.
    """

    async def run(told: HookEvent) -> HookDecision | None:
        if type(told).__name__ not in events:
            return None
        given = msgspec.json.encode({"event": type(told).__name__, **asdict(told)})
        code, output, errors = await _run(command, given, cwd)
        if code == _BLOCKS:
            return HookDecision(block=" ".join(errors.split())[:500] or "the hook gave no reason")
        if code != 0:
            raise PerdureError(f"{command}: ended with {code}: {errors.strip()[:200]}")
        return _answer(output.strip(), told)

    return Hook(command, run, timeout_seconds)


def _answer(text: str, told: HookEvent) -> HookDecision:
    try:
        fields: Any = msgspec.json.decode(text) if text.startswith("{") else None
    except msgspec.DecodeError:
        fields = None
    if isinstance(fields, dict):
        return msgspec.convert(fields, HookDecision)
    return HookDecision(add_instructions=text) if isinstance(told, PreCompact) else HookDecision(context=text)


async def _run(command: str, given: bytes, cwd: str | None) -> tuple[int, str, str]:
    process = await anyio.open_process(
        ["/bin/sh", "-c", command], stdin=PIPE, stdout=PIPE, stderr=PIPE, cwd=cwd, start_new_session=True
    )
    output, errors = bytearray(), bytearray()
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_read, process.stdout, output)
            tasks.start_soon(_read, process.stderr, errors)
            tasks.start_soon(_write, process.stdin, given)
        code = await process.wait()
    finally:
        if process.returncode is None:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:  # it ended just now
                pass
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
