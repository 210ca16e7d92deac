"""A process that is killed while an agent works: it compacts, keeps notes and memory, and takes checkpoints.

    python -m tests.faults.chaos

reads `HOME PROJECT SESSION LIFE TEARS` a line, forks a process for each, and says on its standard output what that one
was promised: `turn N` after a turn, `memory N` after a memory, `repaired …` for what it was told. With TEARS it dies in
the middle of a write to the journal now and then, with a part of the bytes written.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

import anyio
import anyio._backends._asyncio

from perdure import Settings, wiring
from perdure.adapters.checkpoints import checkpoints as _  # noqa: F401 - likewise: imported once, before the forks
from perdure.adapters.journal.disk import Disk
from perdure.adapters.memory.directory import file_memories
from perdure.agent.loop import AgentOptions
from perdure.engine.ask import JobModels
from perdure.events import Event, JournalRepaired
from perdure.memory.changes import SaveMemory, Stamp
from perdure.testing import ScriptedModel, say, tool_use
from perdure.wiring import SessionOptions
from perdure.wiring.memories import project_memories

WINDOW = 24_000
WORDS = 700  # of each prompt


def say_out(line: str) -> None:
    """One write, so that it is said whole or not at all."""
    os.write(1, line.replace("\n", " ").encode() + b"\n")


class Repairs:
    """A sink that passes on what was repaired."""

    def emit(self, event: Event) -> None:
        if isinstance(event, JournalRepaired):
            say_out(f"repaired {event.line} {event.what}")


def prompt_of(number: int) -> str:
    """What is said in a turn; no two are the same."""
    return f"turn {number}: " + " ".join(f"word{number}-{n}" for n in range(WORDS))


def answer_of(number: int) -> str:
    return f"answer {number}"


def memory_of(number: int) -> str:
    return f"The release of turn {number} is called Kestrel {number} and goes out on a Friday."


def tear(chance: random.Random) -> None:
    """Some writes to a journal put down only a part of their bytes, and the process dies."""
    real = Disk.write

    def write(self: Disk, fd: int, data: memoryview) -> int:
        if data[:7] == b'{"seq":' and chance.random() < 0.03:
            at = chance.randrange(1, len(data))
            real(self, fd, data[:at])
            say_out(f"torn {at}")
            os.kill(os.getpid(), signal.SIGKILL)
        return real(self, fd, data)

    Disk.write = write  # type: ignore[method-assign]


async def live(home: Path, project: Path, session: str, life: int) -> None:
    """Go on with the session, turn after turn, until the process is killed."""
    settings = Settings(window_tokens=WINDOW, memory_extract=False, memory_consolidate=False)
    parts = SessionOptions(settings=settings, sink=Repairs(), is_trusted=True)
    options = AgentOptions(mode="bypass", summarizer=(), helpers=JobModels())
    model = ScriptedModel()
    agent = await wiring.agent(project, model=model, home=home, resume=session, options=options, parts=parts)
    memories = file_memories(Path(project_memories(home, project, settings).where), settings)
    turn = life * 1_000
    while True:
        turn += 1
        file = project / f"{turn}.txt"
        memory = {"command": "create", "path": f"/memories/by-tool-{turn}.md", "file_text": "Something.\n"}
        model.upstream.script.extend(
            (
                say(
                    tool_use("Write", {"file_path": str(file), "content": f"file {turn}\n"}, id=f"w{turn}"),
                    tool_use("memory", memory, id=f"m{turn}"),
                ),
                answer_of(turn),
            )
        )
        said = await agent.say(prompt_of(turn))
        say_out(f"turn {turn} {said.prompt}")
        entry = SaveMemory(name=f"turn-{turn}.md", text=memory_of(turn) + "\n")
        await memories.write(entry, Stamp(origin="user", at=time.time()), mode="auto")
        say_out(f"memory {turn}")


def main() -> None:
    """The nursery: it imports everything once, and forks."""
    for line in sys.stdin:
        home, project, session, life, tears = line.split()
        child = os.fork()
        if child == 0:
            if tears == "1":
                tear(random.Random(int(life)))
            anyio.run(live, Path(home), Path(project), session, int(life))
        say_out(f"pid {child}")
        os.waitpid(child, 0)
        say_out("gone")


if __name__ == "__main__":
    main()
