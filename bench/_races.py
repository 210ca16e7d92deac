"""Processes that edit one memory directory at once, some of them killed: nothing acknowledged is lost (REL-7, MEM-9).

Each writer reads a file, thinks for a moment, adds a line of its own or changes its last one, and notes in a file of
its own, with one write, what was acknowledged. Killed writers are started again until all edits are done.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from pathlib import Path
from random import Random

import anyio

from perdure.memory.changes import SaveMemory, Stamp
from perdure.ports.memory import MemoryStore

Open = Callable[[Path], MemoryStore]


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """`edits` of each of `writers`, over `files`; every `kill_every_seconds` one of them is killed (0: none)."""

    writers: int
    edits: int
    files: int = 4
    kill_every_seconds: float = 0.0
    seed: int = 1


@dataclass(slots=True)
class Raced:
    """What came of it. `lost` are acknowledged lines in no file, `partial` what a reader saw of half a file."""

    acknowledged: int = 0
    conflicts: int = 0
    merged: int = 0
    kills: int = 0
    reads: int = 0
    seconds: float = 0.0
    lost: list[str] = field(default_factory=list)
    partial: list[str] = field(default_factory=list)


END = "- end of the file\n"


def race(folder: Path, opened: Open, plan: Race) -> Raced:
    """Run it, and look at what is there afterwards. The folder gets `memory` and `acknowledged`."""
    acknowledged, memory = folder / "acknowledged", folder / "memory"
    acknowledged.mkdir(parents=True)
    anyio.run(_begin, opened(memory), plan)
    context = multiprocessing.get_context("fork")
    stop = context.Event()
    reader = context.Process(target=_reader, args=(folder, opened, plan, stop))
    reader.start()
    result, began = Raced(), time.monotonic()

    def start(number: int) -> BaseProcess:
        process = context.Process(target=_writer, args=(folder, opened, plan, number))
        process.start()
        return process

    running = {number: start(number) for number in range(plan.writers)}
    chance = Random(plan.seed)
    while running:
        time.sleep(plan.kill_every_seconds or 0.02)
        alive = [number for number, process in running.items() if process.is_alive()]
        if plan.kill_every_seconds and alive:
            victim = running[chance.choice(alive)]
            os.kill(victim.pid or 0, signal.SIGKILL)
            result.kills += 1
        for number, process in list(running.items()):
            if not process.is_alive():
                process.join()
                if process.exitcode == 0:
                    del running[number]
                else:
                    running[number] = start(number)
    result.seconds = time.monotonic() - began
    stop.set()
    reader.join()
    seen = (folder / "seen").read_text().splitlines() if reader.exitcode == 0 else ["0", "the reader failed"]
    result.reads, result.partial = int(seen[0]), seen[1:]
    _counted(acknowledged, memory, result)
    return result


async def _begin(store: MemoryStore, plan: Race) -> None:
    for number in range(plan.files):
        await store.write(SaveMemory(name=f"{number}.md", text=END), _stamp(), mode="auto")


def _stamp() -> Stamp:
    return Stamp(origin="user", at=time.time())


def _writer(folder: Path, opened: Open, plan: Race, number: int) -> None:
    log = os.open(folder / "acknowledged" / str(number), os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    done = os.read(log, 1 << 24).count(b"\n")
    anyio.run(_edits, folder, opened(folder / "memory"), plan, number, (log, done))
    os.close(log)


async def _edits(folder: Path, store: MemoryStore, plan: Race, number: int, log: tuple[int, int]) -> None:
    chance = Random(f"{plan.seed} {number} {log[1]} {os.getpid()}")
    for count in range(log[1], plan.edits):
        name = f"{chance.randrange(plan.files)}.md"
        read = await store.read(name)
        base = read.text if read else ""
        line = f"- writer {number} edit {count} of {os.getpid()}\n"
        if count:
            await anyio.sleep(chance.random() / 500)
        else:
            _meet(folder / "acknowledged", plan.writers)
        text = _with(base, line, f"- writer {number} ", is_change=chance.random() < 0.3)
        done = await store.write(SaveMemory(name=name, text=text, base=base), _stamp(), mode="auto")
        os.write(log[0], f"{done.outcome}\t{line}".encode())


def _meet(logs: Path, writers: int) -> None:
    """Wait until each writer has read once, so that their first edits race on any machine."""
    while len(list(logs.iterdir())) < writers:
        time.sleep(0.002)


def _with(base: str, line: str, mine: str, *, is_change: bool) -> str:
    """The line before the end; or, for a change, behind a line that was ours."""
    lines = base.splitlines(keepends=True)
    own = [at for at, one in enumerate(lines) if one.startswith(mine)]
    if is_change and own:
        at = own[-1]
        lines[at] = f"{lines[at].rstrip()} (seen)\n"
        return "".join((*lines[: at + 1], line, *lines[at + 1 :]))
    return "".join((*lines[:-1], line, *lines[-1:]))


def _reader(folder: Path, opened: Open, plan: Race, stop: Event) -> None:
    async def watch() -> list[str]:
        store, reads, partial = opened(folder / "memory"), 0, list[str]()
        while not stop.is_set():
            for number in range(plan.files):
                read = await store.read(f"{number}.md")
                reads += 1
                if read is None or not read.text.endswith(END):
                    partial.append(f"{number}.md: {len(read.text) if read else 'gone'}")
        return [str(reads), *partial]

    (folder / "seen").write_text("\n".join(anyio.run(watch)))


def _counted(acknowledged: Path, memory: Path, result: Raced) -> None:
    text = "\n".join(path.read_text() for path in memory.glob("*.md")).replace(" (seen)", "")
    present = {f"{line}\n" for line in text.splitlines()}
    for path in sorted(acknowledged.iterdir()):
        for entry in path.read_text().splitlines(keepends=True):
            outcome, _, line = entry.partition("\t")
            result.acknowledged += 1
            result.conflicts += outcome == "conflict"
            result.merged += outcome == "merged"
            if line not in present:
                result.lost.append(line)
