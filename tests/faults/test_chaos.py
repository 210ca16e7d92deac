"""Killed, or cut off from power, while an agent works: nothing promised is lost, nothing unreported (REL-1, ENG-9).

Compactions, notes, memory and checkpoints happen all the time, and some writes to the journal are torn. Much longer
with `make nightly TIMES=40`.
"""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest
from tests.tiers import TIMES

from perdure.adapters.journal import FileJournal, SessionStore
from perdure.adapters.memory.notes import notes_path
from perdure.cli import main
from perdure.ports.session import LoadedJournal
from perdure.transcript.messages import Message
from perdure.transcript.records import Compacted, Cursor, Repaired

from .chaos import answer_of, memory_of, prompt_of

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600 * max(1, TIMES))]

SESSION = "s1"
_SHUTDOWN = 0x8004587D  # FS_IOC_SHUTDOWN: the file system stops at once
_NO_FLUSH = 2  # and nothing that it holds back is written


@dataclass
class Promises:
    """What the processes said, one after the other."""

    turns: list[tuple[int, str]] = field(default_factory=list)
    memories: list[int] = field(default_factory=list)
    torn: int = 0
    repaired: list[str] = field(default_factory=list)

    def hear(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        match word:
            case "turn":
                number, _, prompt = rest.partition(" ")
                self.turns.append((int(number), prompt))
            case "memory":
                self.memories.append(int(rest))
            case "torn":
                self.torn += 1
            case "repaired":
                self.repaired.append(rest)


@contextmanager
def nursery() -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", f"{__package__}.chaos"]
    root = Path(__file__).parent.parent.parent
    with subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdin is not None
        yield running
        running.stdin.close()


def lived(running: subprocess.Popen[bytes], order: str, seconds: float, end: object, promises: Promises) -> None:
    """One process, for so long from its first turn on: then `end` is called with its id."""
    assert running.stdin is not None and running.stdout is not None and callable(end)
    running.stdin.write(order.encode() + b"\n")
    running.stdin.flush()
    pid, timer = 0, None
    for line in running.stdout:
        said = line.decode().strip()
        if said == "gone":
            if timer is not None:
                timer.cancel()
                timer.join()  # it may be at it: nothing of this life reaches into the next
            return
        if said.startswith("pid "):
            pid = int(said[4:])
            timer = threading.Timer(seconds, end, (pid,))
            timer.start()
        promises.hear(said)
    raise AssertionError("the nursery died")


def kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it died in the middle of a write


def lives(directory: Path, promises: Promises, count: int, *, torn: bool = False) -> Iterator[tuple[int, float]]:
    """Numbers of lives and how many times as long as usual they last: some more where a busy machine did too little."""
    for life in range(1, count + 40):
        if life > count and not missing(directory, promises, torn=torn):
            return
        yield life, max(1.0, (life - count) / 2)
    raise AssertionError(f"it never happened: {missing(directory, promises, torn=torn)}")


def missing(directory: Path, promises: Promises, *, torn: bool) -> str:
    """What has to happen among the kills and hasn't yet."""
    records = [placed.record for placed in anyio.run(whole, directory).records]
    kinds = {Compacted: "a compaction", Cursor: "memories read", Message: "a message"}
    never = [name for kind, name in kinds.items() if not any(isinstance(record, kind) for record in records)]
    told = {"a memory": promises.memories, "a turn": promises.turns, "a torn write": promises.torn or not torn}
    return ", ".join((*never, *(name for name, there in told.items() if not there)))


async def begun(home: Path, project: Path) -> Path:
    files = await SessionStore(home).create(SESSION, project=project, created=1.0)
    await files.journal.close()
    return files.directory


async def whole(directory: Path) -> LoadedJournal:
    journal = await FileJournal.open(directory / "journal.jsonl", read_only=True)
    try:
        return await journal.load(whole=True)
    finally:
        await journal.close()


def check(directory: Path, project: Path, promises: Promises, *, has_files: bool = True) -> LoadedJournal:
    """Everything that was promised is there, once and in its order."""
    loaded = anyio.run(whole, directory)
    messages = [p.record for p in loaded.records if isinstance(p.record, Message)]
    ids = [message.id for message in messages]
    assert len(ids) == len(set(ids)), "a message stands twice"
    said = ["".join(getattr(b.value, "text", "") for b in m.blocks if b.type == "text") for m in messages]
    places = {text: number for number, text in enumerate(said)}
    at = -1
    for number, prompt in promises.turns:
        assert prompt in ids, f"the prompt of turn {number} is lost"
        asked = next(n for n, text in enumerate(said) if prompt_of(number) in text)
        assert at < asked < places[answer_of(number)], f"turn {number} isn't in its place, or isn't whole"
        at = places[answer_of(number)]
        if has_files:
            assert (project / f"{number}.txt").read_text() == f"file {number}\n"
    kept = "".join(path.read_text() for path in directory.parent.rglob("memory/turn-*.md"))
    lost = [number for number in promises.memories if memory_of(number) not in kept]
    assert not lost, f"memories of turns {lost} are lost"
    if notes_path(directory).exists():
        notes = notes_path(directory).read_text()
        assert notes.startswith("#") and notes.endswith("\n"), "half of the notes"
    return loaded


def ended(directory: Path, project: Path, promises: Promises, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    """After the last process: the doctor finds nothing, all of it happened, and the files can be rewound."""
    monkeypatch.setenv("PERDURE_HOME", str(home))
    assert main(["doctor", "--repair", str(directory)]) == 0
    loaded = check(directory, project, promises)
    repairs = [p.record for p in loaded.records if isinstance(p.record, Repaired)]
    assert sum("torn tail" in r.what for r in repairs) >= promises.torn, "torn, and nobody was told"
    _, first = promises.turns[0]
    assert main(["rewind", SESSION, first]) == 0
    left = [number for number, _ in promises.turns if (project / f"{number}.txt").exists()]
    assert not left, f"files of turns {left}, which the checkpoints don't know"


@pytest.mark.nightly
def test_kill_9_while_everything_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """REL-1, REL-2, ENG-9: 0 lost, 0 unreported."""
    home, project, promises, chance = tmp_path / "home", tmp_path / "project", Promises(), random.Random(8)
    project.mkdir()
    directory = anyio.run(begun, home, project)
    with nursery() as running:
        for life, times in lives(directory, promises, 6 * TIMES or 1, torn=True):
            order = f"{home} {project} {SESSION} {life} {int(life % 3 != 0)}"
            lived(running, order, times * chance.uniform(0.2, 1.5), kill, promises)
            if life % 2 == 0:
                check(directory, project, promises)
    ended(directory, project, promises, monkeypatch, home)


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own in a file, whose power can be cut."""
    if os.name != "posix" or os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
        pytest.skip("needs root and mkfs.ext4, to mount a file system of its own and cut its power")
    image, place = tmp_path / "image", tmp_path / "volume"
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(128 * 1024 * 1024)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True)
    if not mounted(image, place):
        pytest.skip("loop devices can't be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=False)


def mounted(image: Path, place: Path) -> bool:
    return (
        subprocess.run(["mount", "-o", "loop", str(image), str(place)], check=False, capture_output=True).returncode
        == 0
    )


def cut_power(place: Path) -> None:
    """From now on nothing reaches the disk: not what is written, nor what was written and not synced."""
    fd = os.open(place, os.O_RDONLY)
    try:
        fcntl.ioctl(fd, _SHUTDOWN, struct.pack("I", _NO_FLUSH))
    finally:
        os.close(fd)


def power_returns(image: Path, place: Path) -> None:
    for _ in range(600):
        gone = subprocess.run(["umount", str(place)], check=False, capture_output=True)
        if gone.returncode == 0:
            break
        time.sleep(0.05)
    assert gone.returncode == 0, gone.stderr.decode()
    assert mounted(image, place)


@pytest.mark.nightly
def test_power_cuts_while_everything_happens(volume: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """REL-1, ENG-9: real ones: the file system stops, and is mounted again as the disk has it."""
    home, project, promises, chance = volume / "home", volume / "project", Promises(), random.Random(9)
    project.mkdir()
    directory = anyio.run(begun, home, project)

    def cut(pid: int) -> None:
        cut_power(volume)
        kill(pid)

    with nursery() as running:
        for life, times in lives(directory, promises, 4 * TIMES or 1):
            order = f"{home} {project} {SESSION} {life} 0"
            lived(running, order, times * chance.uniform(0.3, 1.5), cut, promises)
            power_returns(tmp_path / "image", volume)
            check(directory, project, promises, has_files=False)
    monkeypatch.setenv("PERDURE_HOME", str(home))
    assert main(["doctor", "--repair", str(directory)]) == 0
    lost = [what for what in promises.repaired if "acknowledged" in what]
    assert not lost, "a cut of power looked like a loss"
    check(directory, project, promises, has_files=False)
