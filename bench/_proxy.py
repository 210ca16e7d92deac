"""A way to a database on which connections are cut, answers get lost, and all of it becomes slow."""

from __future__ import annotations

import asyncio
import contextlib
import time
from multiprocessing.connection import Connection


class DatabaseProxy:
    """Between the database and all who use it: connections are cut, answers get lost or come late."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._links: set[asyncio.StreamWriter] = set()
        self._losing, self._held_until = 0, 0.0

    async def serve(self, listens: int, orders: Connection) -> None:
        """Listen at a port. Orders are `cut` so many connections, `lose` so many answers, `hold` all for seconds."""
        loop = asyncio.get_running_loop()
        loop.add_reader(orders.fileno(), lambda: self._ordered(*orders.recv()))
        await (await asyncio.start_server(self._connected, "127.0.0.1", listens)).serve_forever()

    def _ordered(self, order: str, value: float) -> None:
        if order == "cut":
            for writer in list(self._links)[: int(value)]:
                writer.transport.abort()
        elif order == "lose":
            self._losing += int(value)
        else:
            self._held_until = time.monotonic() + value

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            answers, asks = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            writer.transport.abort()
            return
        self._links.add(writer)
        pumps = [asyncio.create_task(self._up(reader, asks)), asyncio.create_task(self._down(answers, writer))]
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in pumps:
            pump.cancel()
        self._links.discard(writer)
        for one in (writer, asks):
            one.transport.abort()

    async def _up(self, reader: asyncio.StreamReader, asks: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(2**16):
                asks.write(data)
                await asks.drain()

    async def _down(self, answers: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await answers.read(2**16):
                if self._losing:
                    self._losing -= 1
                    return
                await asyncio.sleep(max(0.0, self._held_until - time.monotonic()))
                writer.write(data)
                await writer.drain()


def run(listens: int, port: int, orders: Connection) -> None:
    """The proxy, as a process of its own."""
    asyncio.run(DatabaseProxy(port).serve(listens, orders))
