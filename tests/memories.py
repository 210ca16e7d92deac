"""A session with memory directories that live in the process, and a tool call as an agent makes it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
from tests.services import serve

from perdure import Message, Settings
from perdure.adapters.memory.store import InMemoryFolder, StoredMemories
from perdure.adapters.sinks import ListSink
from perdure.engine.guarded_memory import GuardedMemory
from perdure.engine.remember import MemoryAccess, MemoryMount
from perdure.engine.session import LiveSession
from perdure.engine.tools import MemoryToolResult, memory_tool
from perdure.memory.changes import Stamp
from perdure.wiring import SessionOptions, memory_session

HAND = Stamp(origin="user", at=1.0, by="user")


class Desk:
    """A session, its memories and its events."""

    def __init__(self, session: LiveSession, sink: ListSink, stores: dict[str, StoredMemories]) -> None:
        self.session, self.sink, self.stores = session, sink, stores
        self._calls = 0

    @property
    def store(self) -> StoredMemories:
        return self.stores["/memories"]

    async def user(self, text: str) -> None:
        await self.session.append(Message.of("user", text))

    async def model(self, text: str = "Well.") -> None:
        await self.session.append(Message.of("assistant", text))

    async def result(self, tool: str, arguments: dict[str, Any], text: str) -> None:
        """The model calls a tool, and this is what comes back."""
        self._calls += 1
        use = {"type": "tool_use", "id": f"toolu_{self._calls}", "name": tool, "input": arguments}
        back = {"type": "tool_result", "tool_use_id": use["id"], "content": text}
        await self.session.append(Message.of("assistant", [use]), Message.of("user", [back]))

    async def memory(self, command: str, **arguments: Any) -> MemoryToolResult:
        """The model calls the memory tool; its result stands in the view as any other."""
        given = {"command": command, **arguments}
        answer = await memory_tool.run(self.session, given)
        await self.result("memory", given, answer.text)
        return answer

    async def text(self, name: str) -> str | None:
        read = await self.store.read(name)
        return None if read is None else read.text


async def desk(mode: Any = "auto", *, rights: dict[str, Any] | None = None, settings: Settings | None = None) -> Desk:
    sink = ListSink()
    session = await memory_session(parts=SessionOptions(settings=settings or Settings(), sink=sink))
    stores = {at: StoredMemories(InMemoryFolder()) for at in rights or {"/memories": "write"}}
    serve(
        session,
        memories=MemoryAccess(
            tuple(
                MemoryMount(at, GuardedMemory(store, sink, mode), (rights or {}).get(at, "write"))
                for at, store in stores.items()
            )
        ),
    )
    return Desk(session, sink, stores)


def played(do: Callable[[Desk], Awaitable[None]], mode: Any = "auto", **more: Any) -> None:
    async def go() -> None:
        await do(await desk(mode, **more))

    anyio.run(go)
