"""The part of the demonstration that is killed: a process that goes on with the session until it dies.

Run as `python -m perdure.lab.demo.crash HOME SESSION`. It prints the id of a message once it is durable, and never
ends.
"""

from __future__ import annotations

import sys
from pathlib import Path

import anyio

from perdure.transcript.messages import Message
from perdure.wiring import open_session

_FILLER = "this line makes the write long enough to be cut in the middle. " * 100


async def append_forever(home: Path, name: str) -> None:
    session = await open_session(home, name)
    number = 0
    while True:
        number += 1
        await session.append(Message.of("user", f"Message {number} before the crash. {_FILLER}", origin="reminder"))
        print(session.view.items[-1].message.id, flush=True)


if __name__ == "__main__":
    anyio.run(append_forever, Path(sys.argv[1]), sys.argv[2])
