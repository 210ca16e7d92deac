"""A project with sessions and memories, and clients of the Model Context Protocol that ask for them."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from mcp import Client
from tests.commands import command

from perdure.adapters.config import load
from perdure.mcp.serving import project_server
from perdure.transcript.messages import Message, MessageId
from perdure.wiring import create_session

ERAS = pytest.mark.parametrize("mode", ["auto", "legacy"], ids=["2026-07-28", "2025-11-25"])
PROGRAM = (sys.executable, "-m", "perdure", "mcp")


def in_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(**given: Any) -> None:
        anyio.run(functools.partial(test, **given))

    return run


class McpPlace:
    """A project with sessions, in a home of its own."""

    def __init__(self, folder: Path) -> None:
        self.home, self.project = folder / "home", folder / "project"
        self.project.mkdir()
        self.env = {"PERDURE_HOME": str(self.home), "HOME": str(folder), "PATH": os.environ["PATH"]}

    async def session(self, name: str, *said: Message, project: Path | None = None) -> None:
        session = await create_session(self.home, project=project or self.project, session=name)
        await session.append(*said)
        await session.close()

    async def perdure(self, *words: str) -> str:
        """A command of ours, beside a client; what it prints."""
        done = await anyio.to_thread.run_sync(functools.partial(command, *words, cwd=self.project, env=self.env))
        assert done.returncode == 0, done.stderr
        return done.stdout

    async def pending(self) -> list[dict[str, Any]]:
        """The changes that wait for the user."""
        waiting: list[dict[str, Any]] = json.loads(await self.perdure("memory", "review", "--json"))["pending"]
        return waiting

    @asynccontextmanager
    async def client(self, mode: str = "auto", asked: Any = None, **options: Any) -> AsyncIterator[Client]:
        """A client of a server in this process; `asked` answers what the server asks the user."""
        server = project_server(load(self.env, cwd=self.project), self.project, **options).server
        async with Client(server, mode=mode, elicitation_callback=asked) as client:
            yield client


@contextmanager
def served(place: McpPlace, *words: str, token: str = "") -> Iterator[str]:
    """`perdure mcp --http` in a process of its own; its address."""
    command_line = [*PROGRAM, "--project", str(place.project), "--http", "127.0.0.1:0", "--json", *words]
    env = place.env | ({"PERDURE_MCP_TOKEN": token} if token else {})
    with subprocess.Popen(command_line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout is not None and process.stderr is not None
        try:
            yield json.loads(process.stdout.readline())["url"]
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
            assert "Traceback" not in process.stderr.read()


def found(output: str, name: str) -> list[Message]:
    """A call of a tool, and its result."""
    call = {"type": "tool_use", "id": f"toolu_{name}", "name": "Bash", "input": {"command": "make test"}}
    result = {"type": "tool_result", "tool_use_id": f"toolu_{name}", "content": output}
    return [
        Message.of("user", f"Run the tests of {name}.", id=MessageId(f"m-{name}-asked"), at=1_750_000_000.0),
        Message.of("assistant", [call], id=MessageId(f"m-{name}-call")),
        Message.of("user", [result], id=MessageId(f"m-{name}-result")),
    ]


async def told(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """What a tool answers; it may not fail."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    assert isinstance(result.structured_content, dict)
    return result.structured_content


async def refused(client: Client, tool: str, **arguments: Any) -> str:
    """Why a tool doesn't answer: one line for the model."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error and len(result.content) == 1, result
    text: str = result.content[0].text  # type: ignore[union-attr]
    assert text.count("\n") == 0 and "Traceback" not in text and len(text) < 700
    return text
