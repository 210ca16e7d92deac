"""An agent in a folder of a test, with a model that says what it is told, and everything it tells."""

# ruff: noqa: ASYNC240 - tests look at small files while nothing else runs

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import anyio

from perdure import Message, Settings, wiring
from perdure.adapters.sinks import ListSink
from perdure.agent.loop import AgentLoop, AgentOptions
from perdure.agent.permissions import PermissionRules
from perdure.agent.progress import AgentProgress, Allow, Deny, PermissionQuestion
from perdure.ports.session import Model
from perdure.testing import ScriptedModel, say, tool_use
from perdure.testing.upstream import Scripted, ScriptedAnswer
from perdure.transcript.blocks import ToolResult
from perdure.wiring import SessionOptions

# It ends when it is stopped. No other process of tests has its number: those that run at once see each other's.
LONG_SLEEP = f"sleep {1_000_000_000 + os.getpid()}"


class Bench:
    """An agent with its model, its events, and what it showed. `answers` is what a person says to each question."""

    def __init__(self, folder: Path, agent: AgentLoop, model: Any, sink: ListSink) -> None:
        self.folder, self.agent, self.model, self.sink = folder, agent, model, sink
        self.seen: list[AgentProgress] = []
        self.asked: list[PermissionQuestion] = []
        self.answers: list[Allow | Deny] = []

    async def _ask(self, asked: PermissionQuestion) -> Allow | Deny:
        self.asked.append(asked)
        return self.answers.pop(0) if self.answers else Deny()

    def write(self, name: str, text: str | bytes) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def events(self, *kinds: type) -> list[Any]:
        return [event for event in self.sink.events if isinstance(event, kinds)]

    def results(self) -> list[ToolResult]:
        """All results that the view holds, as they were said."""
        return [r for item in self.agent.session.view.items for r in item.message.tool_results]

    async def call(self, name: str, **arguments: Any) -> tuple[str, bool]:
        """Have the model call one tool: the text of its result, and whether it is an error."""
        self.model.upstream.script.appendleft("done")
        self.model.upstream.script.appendleft(say(tool_use(name, arguments)))
        await self.agent.say("go on")
        last = self.results()[-1]
        return last.text(), bool(last.is_error)

    async def records(self, kind: type) -> list[Any]:
        loaded = await self.agent.session.ports.journal.load(whole=True)
        return [placed.record for placed in loaded.records if isinstance(placed.record, kind)]


async def bench(
    folder: Path,
    script: Iterable[Scripted] = (),
    *,
    home: Path | None = None,
    resume: str | None = None,
    model: Model | None = None,
    mode: Any = "bypass",
    rules: PermissionRules | None = None,
    is_alone: bool = False,
    observers: tuple[Any, ...] = (),
    settings: dict[str, Any] | None = None,
    is_trusted: bool | None = True,
) -> Bench:
    """A bench in a folder, which is trusted; `is_alone`: nobody is there to be asked."""
    sink, scripted = ListSink(), model or ScriptedModel(script)
    folder.mkdir(parents=True, exist_ok=True)
    made: list[Bench] = []
    options = AgentOptions(
        ask=None if is_alone else lambda asked: made[0]._ask(asked),
        on_progress=lambda progress: made[0].seen.append(progress) if made else None,
        mode=mode,
        rules=rules,
        observers=observers,
        summarizer=(),
    )
    parts = SessionOptions(settings=Settings(**{"notes": False, **(settings or {})}), sink=sink, is_trusted=is_trusted)
    agent = await wiring.agent(folder, model=scripted, home=home, resume=resume, options=options, parts=parts)
    made.append(Bench(folder, agent, scripted, sink))
    return made[0]


def calls(*uses: tuple[str, dict[str, Any]]) -> ScriptedAnswer:
    """One answer with these calls."""
    return say(*(tool_use(name, arguments) for name, arguments in uses))


def texts(messages: Iterable[Message]) -> str:
    return "\n".join(str(getattr(b.value, "text", "")) for m in messages for b in m.blocks if b.type == "text")


def is_running(command: str) -> bool:
    """Whether a process has this command on its command line."""
    return subprocess.run(["pgrep", "-f", command], check=False, capture_output=True).returncode == 0


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds that nobody announces: a file, a counter, another process."""
    with anyio.fail_after(20):
        while not holds():  # noqa: ASYNC110
            await anyio.sleep(0.01)
