"""A session with memory directories that live in the process, and a tool call as an agent makes it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
from tests.services import serve

from holdfast import Message, Session, Settings, memory_session
from holdfast.adapters.memories import StoredMemories
from holdfast.adapters.memory_box import HeldBox
from holdfast.adapters.sinks import ListSink
from holdfast.engine.memory_tool import Answer, memory_tool
from holdfast.engine.mounts import Access, Mount
from holdfast.engine.remembering import Memory
from holdfast.memory.changes import Stamp
from holdfast.wiring import Parts

HAND = Stamp(origin="user", at=1.0, by="user")


class Desk:
    """A session, its memories and its events."""

    def __init__(self, session: Session, sink: ListSink, stores: dict[str, StoredMemories]) -> None:
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

    async def memory(self, command: str, **arguments: Any) -> Answer:
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
    session = await memory_session(parts=Parts(settings=settings or Settings(), sink=sink))
    stores = {at: StoredMemories(HeldBox().opened) for at in rights or {"/memories": "write"}}
    serve(
        session,
        memories=Access(
            tuple(Mount(at, Memory(store, sink, mode), (rights or {}).get(at, "write")) for at, store in stores.items())
        ),
    )
    return Desk(session, sink, stores)


def played(do: Callable[[Desk], Awaitable[None]], mode: Any = "auto", **more: Any) -> None:
    async def go() -> None:
        await do(await desk(mode, **more))

    anyio.run(go)
