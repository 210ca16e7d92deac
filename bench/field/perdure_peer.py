"""Perdure, offline: its defaults, and the thrifty policy."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from loop import Loop, Part, Peer, Said, call_text, main

from perdure import Message, Settings, Usage, recall_tool
from perdure.adapters.journal.in_memory import MemoryNotes
from perdure.adapters.machine.jobs import WaitingJobs
from perdure.context.models import model_spec
from perdure.engine.background import Keepers
from perdure.engine.session import LiveSession, ModelWindow
from perdure.engine.turn import prepare
from perdure.testing.models import CountingIds
from perdure.transcript.records import Front
from perdure.wiring import SessionOptions, memory_session

WAIT = Loop()
MODEL = "claude-sonnet-5-5"


class RecordedClock:
    """The time of the call that comes next."""

    at = 0.0

    def now(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.at += seconds


class Perdure(Peer):
    """A session in memory, with its recall tool. Reading along and keeping notes count as time of the turn, too."""

    def __init__(self, script: Mapping[str, Any], **settings: Any) -> None:
        super().__init__(script)
        self.clock = RecordedClock()
        self.settings = Settings(recall_tool=True, **settings)
        self.times = iter([call["at"] for call in script["calls"]])
        WAIT(self.open())

    async def open(self) -> None:
        parts = SessionOptions(
            settings=self.settings,
            model=model_spec(MODEL),
            window=ModelWindow(self.window, "setting"),
            clock=self.clock,
            ids=CountingIds(),
        )
        notes = MemoryNotes() if self.settings.notes else None
        self.session: LiveSession = await memory_session("bench", notes=notes, parts=parts)
        self.keepers = Keepers(WaitingJobs(), self.session.services.keepers)
        await self.session.record(Front(model=MODEL, system=self.system, tools=[recall_tool.definition]))

    def made(self, said: Said) -> list[Any]:
        if said["role"] == "user":
            return [Message.of("user", said["text"])]
        if said["role"] == "tool":
            block = {"type": "tool_result", "tool_use_id": said["id"], "content": said["text"]}
            return [Message.of("user", [block | ({"is_error": True} if said["is_error"] else {})])]
        blocks: list[Any] = [{"type": "text", "text": said["text"]}] if said["text"] else []
        blocks += [
            {"type": "tool_use", "id": call["id"], "name": call["name"], "input": call["arguments"]}
            for call in said["calls"]
        ]
        usage = Usage(said["prompt_tokens"], said["output_tokens"]) if said["prompt_tokens"] else None
        return [Message.of("assistant", blocks, model=MODEL, usage=usage)]

    def add(self, made: list[Any]) -> None:
        WAIT(self._add(made))

    async def _add(self, made: list[Any]) -> None:
        for message in made:
            await self.session.append(message)
        self.session.rest()
        if made and made[-1].role == "assistant":
            self.keepers.after_reply(self.session)
            await self.keepers.drain(self.session)

    def prepared(self) -> Any:
        self.clock.at = next(self.times) or self.clock.at
        return WAIT(prepare(self.session)).request.body

    def parts(self, request: Any) -> Iterator[Part]:
        body = json.loads(request)
        yield Part("system", json.dumps(body["tools"]))
        for block in body["system"][1:]:  # what stands behind the host's own
            yield Part("system", block["text"])
        for message in body["messages"]:
            content = message["content"]
            for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
                if block["type"] == "text":
                    yield Part(message["role"], block["text"])
                elif block["type"] == "tool_use":
                    call = {"name": block["name"], "arguments": block["input"]}
                    yield Part("call", call_text(call), block["id"])
                else:
                    said = block.get("content", "")
                    text = said if isinstance(said, str) else "\n".join(one.get("text", "") for one in said)
                    yield Part("result", text, block["tool_use_id"])


if __name__ == "__main__":
    main(
        {
            "default": Perdure,
            "thrifty": lambda script: Perdure(script, policy="thrifty"),
        }
    )
