"""Driving the session live: the stand-in's answers, a fake server that checks every request, the tools' real output."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from holdfast.adapters.machine import RandomIds
from holdfast.demo import tools
from holdfast.demo.script import Round, rounds
from holdfast.engine.session import LiveSession
from holdfast.engine.turn import prepare
from holdfast.events import Event
from holdfast.testing import FakeUpstream, ModelRules, say, text, tool_use
from holdfast.transcript.blocks import encode
from holdfast.transcript.messages import Message, ResponseId, Usage
from holdfast.transcript.records import Front

MODEL = "claude-opus-4-5-demo"
WINDOW_TOKENS = 200_000
SYSTEM = (
    "You are a careful reviewer of Python code. You read before you judge, you name files and lines, and you change "
    "nothing unless you are asked to."
)


@dataclass(slots=True)
class Fired:
    """The sink of the demonstration: every event, with the turn in which it came."""

    turn: int = 0
    events: list[tuple[int, Event]] = field(default_factory=list)

    def emit(self, event: Event) -> None:
        self.events.append((self.turn, event))

    def of(self, kind: type[Any]) -> list[tuple[int, Any]]:
        return [(turn, event) for turn, event in self.events if isinstance(event, kind)]


@dataclass(slots=True)
class Live:
    """A running session between the script and the fake server."""

    session: LiveSession
    fired: Fired
    upstream: FakeUpstream = field(default_factory=lambda: FakeUpstream(rules=ModelRules(window_tokens=WINDOW_TOKENS)))
    script: Iterator[Round] = field(default_factory=rounds)
    said_tokens: int = 0
    last_body: bytes = b""
    ids: RandomIds = field(default_factory=RandomIds)

    async def begin(self) -> None:
        """Record what stands before the messages."""
        definitions = tuple(msgspec.Raw(encode(tool)) for tool in tools.DEFINITIONS)
        system = (msgspec.Raw(encode({"type": "text", "text": SYSTEM})),)
        await self.session.record(Front(model=MODEL, system=system, tools=definitions))

    async def until(self, tokens: int, on_turn: Callable[[int, int], None]) -> None:
        """Go on until so many tokens were said; `on_turn(said, size)` after each answer."""
        while self.said_tokens < tokens:
            await self.turn(next(self.script))
            on_turn(self.said_tokens, self.session.facts().size(self.session.view))

    async def turn(self, step: Round) -> None:
        """One exchange: the prompt if there is one, the request, the answer, the tools."""
        if step.prompt is not None:
            await self._say(Message.of("user", step.prompt))
        self.fired.turn += 1
        prepared = await prepare(self.session)
        self.last_body = prepared.request.body
        uses = [tool_use(name, arguments, id=self.ids.new("toolu")) for name, arguments in step.calls]
        reply = self.upstream.respond(prepared.request.body, reply=say(text(step.says), *uses), session="demo")
        await self._say(_answer(reply.message))
        if uses:
            await self._say(Message.of("user", [_result(use) for use in uses]))
        self.session.rest()

    async def _say(self, message: Message) -> None:
        await self.session.append(message)
        self.said_tokens += self.session.view.items[-1].size.live


def _answer(message: dict[str, Any]) -> Message:
    usage = msgspec.convert(message["usage"], Usage, strict=False)
    return Message.of(
        "assistant",
        message["content"],
        response_id=ResponseId(message["id"]),
        model=MODEL,
        usage=usage,
        stop_reason=message["stop_reason"],
    )


def _result(use: dict[str, Any]) -> dict[str, Any]:
    output, failed = tools.run(use["name"], use["input"])
    return {"type": "tool_result", "tool_use_id": use["id"], "content": output, "is_error": failed}
