"""What an append to a session in PostgreSQL costs, at 1, 8 and 32 writers of 2 KB (SCL-5): `python bench/postgres.py`.

The server is the one of the tests; with `--durable` it syncs each commit. Server and clients share the machine.
"""

from __future__ import annotations

import secrets
import statistics
import sys
import time

import anyio

from perdure.adapters.postgres.schema import migrate
from perdure.adapters.postgres.store import PostgresStore
from perdure.testing.postgres import PostgresServer
from perdure.transcript.blocks import text_block
from perdure.transcript.messages import Message, MessageId, content_of

WRITERS = (1, 8, 32)
APPENDS = 100  # of each writer


def said(number: int) -> Message:
    content = content_of([text_block(secrets.token_hex(900))])
    return Message(id=MessageId(f"m{number}"), role="user", content=content, origin="user")


async def measure(url: str) -> None:
    await migrate(url)
    store = PostgresStore(url, connections=max(WRITERS))
    home = store.home("bench")
    made = [await home.create(f"s{number}", project="/p", created=1.0) for number in range(max(WRITERS))]
    for writers in WRITERS:
        took: list[float] = []

        async def write(number: int, took: list[float] = took) -> None:
            for at in range(APPENDS):
                began = time.perf_counter()
                await made[number].journal.append((said(at),))
                took.append(time.perf_counter() - began)

        began, used = time.perf_counter(), time.process_time()
        async with anyio.create_task_group() as group:
            for number in range(writers):
                group.start_soon(write, number)
        seconds, used = time.perf_counter() - began, time.process_time() - used
        p99 = sorted(took)[int(len(took) * 0.99)] * 1e3
        print(
            f"{writers:3} writers  {len(took) / seconds:6.0f} appends/s  median {statistics.median(took) * 1e3:6.2f} ms"
            f"  p99 {p99:6.2f} ms  client's processor {used / len(took) * 1e3:.2f} ms each"
        )
    began = time.perf_counter()
    loaded = await home.load("s0")
    print(f"load of {len(loaded.records)} records  {(time.perf_counter() - began) * 1e3:.1f} ms")
    await store.close()


if __name__ == "__main__":
    with PostgresServer.start(is_durable="--durable" in sys.argv) as server:
        anyio.run(measure, server.database("bench"))
