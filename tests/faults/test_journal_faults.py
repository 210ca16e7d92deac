"""Journal and blobs when disks fail, processes die and files are tampered with (REL-1, REL-2, REL-8, REL-9, REL-10)."""

# ruff: noqa: ASYNC220, ASYNC230, ASYNC240 - the test itself may block; nothing else runs on its loop

from __future__ import annotations

import errno
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.tiers import TIMES

from perdure.adapters.journal import DISK, Disk, FileBlobs, FileJournal, SessionLock, SessionStore, verify
from perdure.errors import DamagedLine, JournalError, JournalLost, NewerFormat, SessionBusy
from perdure.ports.session import LoadedJournal
from perdure.transcript.blocks import text_block
from perdure.transcript.codec import FORMAT, VERSION, encode_line
from perdure.transcript.messages import BlobId, Message, MessageId, content_of
from perdure.transcript.records import Compacted, Header, Noted, Record, Repaired

pytestmark = pytest.mark.faults

HEADER = Header(format=FORMAT, version=VERSION, session="s1", created=1.0)
KILLS = 20 * TIMES or 4
FLIPS = 500 * TIMES or 60


def said(name: str, text: str = "hello") -> Message:
    return Message(id=MessageId(name), role="user", content=content_of([text_block(text)]), origin="user")


def boundary(name: str, kept: tuple[str, ...] = (), kept_from: int = 0) -> Compacted:
    ids = tuple(MessageId(k) for k in kept)
    return Compacted(id=name, trigger="auto", strategy="full", summary=(), kept=ids, kept_from=kept_from)


def names(loaded: LoadedJournal) -> list[str]:
    return [p.record.id for p in loaded.records if isinstance(p.record, Message | Compacted)]


class Unsynced(Disk):
    """Fast: for tests that never lose power."""

    def sync_data(self, fd: int) -> None:
        pass

    def sync_directory(self, path: Path) -> None:
        pass


async def load(path: Path, *, read_only: bool = False, whole: bool = False, disk: Disk = DISK) -> LoadedJournal:
    journal = await FileJournal.open(path, read_only=read_only, disk=disk)
    try:
        return await journal.load(whole=whole)
    finally:
        await journal.close()


async def written(path: Path, count: int, *, disk: Disk = DISK, text: str = "hello") -> FileJournal:
    """A new journal with messages m1, m2, …, still open."""
    journal = await FileJournal.create(path, HEADER, disk=disk)
    for number in range(1, count + 1):
        await journal.append((said(f"m{number}", f"{text} {number}"),))
    return journal


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


# --- T1: kill -9 ---------------------------------------------------------------------------------------------------

# One process imports everything and forks a writer for each line it reads. A writer opens the journal (repairing what
# the one before left) and appends from three tasks; it says "ack" after the durability point, and then is killed.
NURSERY = """
import os, sys, anyio
import anyio._backends._asyncio  # here, not once in every writer
from pathlib import Path
from perdure.adapters.journal import FileJournal
from perdure.transcript.blocks import text_block
from perdure.transcript.messages import Message, content_of

def message(name, size):
    return Message(id=name, role="user", content=content_of([text_block("x" * size)]), origin="user")

async def task(journal, round, number):
    n = 0
    while True:
        name = f"{round}.{number}.{n}"
        await journal.append((message(name, n * 977 % 9000), message(name + "'", 10)))
        os.write(1, f"ack {name}\\n".encode())
        n += 1

async def work(path, durability, round):
    journal = await FileJournal.open(Path(path), durability=durability)
    await journal.load()
    async with anyio.create_task_group() as group:
        for number in range(3):
            group.start_soon(task, journal, round, number)

for line in sys.stdin:
    path, durability, round = line.split()
    child = os.fork()
    if child == 0:
        anyio.run(work, path, durability, round)
    os.write(1, f"pid {child}\\n".encode())
    os.waitpid(child, 0)
    os.write(1, b"gone\\n")
"""


def killed(nursery: subprocess.Popen[bytes], order: str, seconds: float, *, after_ack: bool = False) -> set[str]:
    """Let one writer live for so long, from its first acknowledgement on if asked; what it acknowledged."""
    assert nursery.stdin is not None and nursery.stdout is not None
    nursery.stdin.write(order.encode() + b"\n")
    nursery.stdin.flush()
    acknowledged: set[str] = set()
    pid = 0
    for line in nursery.stdout:
        word, _, rest = line.decode().strip().partition(" ")
        if word == "gone":
            return acknowledged
        if word == "pid":
            pid = int(rest)
        if word == "ack":
            acknowledged.add(rest)
        if word == ("ack" if after_ack else "pid") and len(acknowledged) == after_ack:
            time.sleep(seconds)
            os.kill(pid, signal.SIGKILL)
    raise AssertionError("the nursery died")


@pytest.mark.parametrize("durability", ["commit", "process"])
def test_kill_9_loses_nothing_acknowledged(path: Path, durability: str) -> None:
    """REL-1, REL-2: killed at random moments, reopened by the next writer on the same file, checked each time."""
    chance = random.Random(durability)
    acknowledged: list[str] = []

    async def begin() -> None:
        await (await FileJournal.create(path, HEADER)).close()

    async def check() -> None:
        found = names(await load(path, whole=True, read_only=True))
        assert len(found) == len(set(found)), "a record stands twice"
        assert found[1::2] == [f"{name}'" for name in found[::2]], "half a transaction"
        present = set(found)
        lost = [name for name in acknowledged if name not in present]
        assert not lost, lost
        for tasks in {name.rpartition(".")[0] for name in found}:
            numbers = [int(n.rpartition(".")[2]) for n in found[::2] if n.rpartition(".")[0] == tasks]
            assert numbers == list(range(len(numbers))), tasks

    anyio.run(begin)
    with subprocess.Popen([sys.executable, "-c", NURSERY], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as nursery:
        for round in range(max(1, KILLS // 2)):
            order, seconds = f"{path} {durability} r{round}", chance.uniform(0, 0.03)
            acknowledged += killed(nursery, order, seconds, after_ack=round % 2 == 1)  # a slow machine gets there too
            if round % 10 == 9:
                anyio.run(check)
        assert nursery.stdin is not None
        nursery.stdin.close()
    anyio.run(check)
    assert acknowledged
    assert all("torn tail" not in problem.what for problem in verify(path)[:-1])


# --- T2b: the n-th call fails --------------------------------------------------------------------------------------


class Died(BaseException):
    """The process ended here; nothing after this reaches the disk."""


class Failing(Disk):
    """The n-th call that changes something, or promises it, goes wrong in the given way."""

    def __init__(self, nth: int, kind: str) -> None:
        self._left = nth
        self._kind = kind
        self.is_dead = False
        self._synced: dict[tuple[int, int], int] = {}
        self._paths: dict[int, Path] = {}

    @property
    def has_fired(self) -> bool:
        return self._left <= 0

    def _step(self, do: Callable[[], Any], partly: Callable[[], Any] | None = None) -> Any:
        if self.is_dead:
            raise Died
        self._left -= 1
        if self._left != 0:
            return do()
        match self._kind:
            case "EIO" | "ENOSPC":
                raise OSError(getattr(errno, self._kind), os.strerror(getattr(errno, self._kind)))
            case "part":
                return (partly or do)()
            case "part, then ENOSPC":
                _ = partly and partly()
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            case "part, then death":
                self.is_dead = True
                _ = partly and partly()
                raise Died
            case "death after it":
                self.is_dead = True
                do()
                raise Died
            case _:  # power
                self.is_dead = True
                self._lose_power()
                raise Died

    def _lose_power(self) -> None:
        """What was never synced is gone, but for the half of it that reached the disk by chance."""
        for file in set(self._paths.values()):
            if file.exists():
                about = file.stat()
                synced = self._synced.get((about.st_dev, about.st_ino), 0)
                os.truncate(file, synced + max(0, about.st_size - synced) // 2)

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        def really() -> int:
            fd = DISK.open(path, flags, mode)
            if flags & (os.O_WRONLY | os.O_RDWR):
                self._paths[fd] = path
                about = os.fstat(fd)
                self._synced.setdefault((about.st_dev, about.st_ino), about.st_size)
            return fd

        if not flags & (os.O_WRONLY | os.O_RDWR):
            return really()
        return int(self._step(really))

    def write(self, fd: int, data: memoryview) -> int:
        return int(self._step(lambda: os.write(fd, data), lambda: os.write(fd, data[: max(1, len(data) // 2)])))

    def write_at(self, fd: int, data: bytes, offset: int) -> int:
        return int(self._step(lambda: os.pwrite(fd, data, offset), lambda: os.pwrite(fd, data[:60], offset)))

    def sync_data(self, fd: int) -> None:
        def really() -> None:
            about = os.fstat(fd)
            self._synced[about.st_dev, about.st_ino] = about.st_size

        self._step(really)

    def sync_directory(self, path: Path) -> None:
        self._step(lambda: None)

    def truncate(self, fd: int, size: int) -> None:
        def really() -> None:
            os.ftruncate(fd, size)
            about = os.fstat(fd)
            self._synced[about.st_dev, about.st_ino] = min(size, self._synced.get((about.st_dev, about.st_ino), size))

        self._step(really)

    def rename(self, old: Path, new: Path) -> None:
        self._step(lambda: os.rename(old, new))

    def link(self, old: Path, new: Path) -> None:
        self._step(lambda: os.link(old, new))

    def unlink(self, path: Path) -> None:
        self._step(lambda: os.unlink(path))


class Story:
    """A session that opens a damaged journal, appends, stores a blob, and opens again; what it was promised."""

    def __init__(self, home: Path, disk: Failing) -> None:
        self.home = home
        self.disk = disk
        self.acknowledged: list[str] = []
        self.refused: list[str] = []
        self.unsure: list[str] = []
        self.blobs: dict[BlobId, bytes] = {}

    async def tell(self) -> None:
        try:
            await self._create()
            for part in (1, 2):
                await self._session(part)
        except* Died:
            pass

    async def _create(self) -> None:
        for _ in range(2):
            try:
                await (await FileJournal.create(self.home / "new.jsonl", HEADER, disk=self.disk)).close()
                return
            except JournalError:
                if (self.home / "new.jsonl").exists():  # made, but the disk would not promise it
                    return

    async def _session(self, part: int) -> None:
        journal = None
        for _ in range(2):
            try:
                journal = await FileJournal.open(self.home / "journal.jsonl", disk=self.disk)
                break
            except JournalError:
                continue
        assert journal is not None, "one fault must not keep the session from opening twice"
        await journal.load()
        for number in range(3):
            await self._append(journal, f"p{part}.{number}")
        blobs = FileBlobs(self.home / "blobs", disk=self.disk)
        contents = (b"a" * 5000, f"part {part}".encode() * 300)
        try:
            ids = await blobs.put(contents)
            self.blobs.update(zip(ids, contents, strict=True))
        except JournalError:
            pass
        async with anyio.create_task_group() as group:
            for number in range(3, 6):
                group.start_soon(self._append, journal, f"p{part}.{number}")
        await journal.close()

    async def _append(self, journal: FileJournal, name: str) -> None:
        self.unsure.append(name)
        try:
            await journal.append((said(name, "x" * 300),))
            self.acknowledged.append(name)
        except JournalError as e:
            if self.disk.is_dead:
                raise Died from None  # another task of the same process met its end first
            assert not isinstance(e, JournalLost), e
            self.refused.append(name)
        self.unsure.remove(name)


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    "kind", ["EIO", "ENOSPC", "part", "part, then ENOSPC", "part, then death", "death after it", "power"]
)
def test_whichever_call_fails_nothing_acknowledged_is_lost(tmp_path: Path, kind: str) -> None:
    """REL-1, REL-2, REL-10: fail the 1st call, the 2nd, … until a run is clean; check what the next open sees."""
    base = tmp_path / "base"
    base.mkdir()

    async def begin() -> None:
        await (await written(base / "journal.jsonl", 6)).close()

    anyio.run(begin)
    damage_line(base / "journal.jsonl", 3)
    torn = b'{"seq":7,"records":[{"type":"mess'
    with open(base / "journal.jsonl", "ab") as file:
        file.write(torn)
    nth = 0
    while True:
        nth += 1
        home = tmp_path / f"run{nth}"
        shutil.copytree(base, home)
        story = Story(home, Failing(nth, kind))
        anyio.run(story.tell)
        check_story(story, torn, f"{kind} at call {nth}")
        shutil.rmtree(home)
        if not story.disk.has_fired:
            break
    assert nth > 30, "the story touches the disk more often than that"


def check_story(story: Story, torn: bytes, where: str) -> None:
    async def check() -> None:
        path = story.home / "journal.jsonl"
        journal = await FileJournal.open(path)
        loaded = await journal.load(whole=True)
        found = names(loaded)
        told = [name for name in found if name.startswith("p")]
        assert found[:5] == ["m1", "m3", "m4", "m5", "m6"], where
        assert len(set(found)) == len(found), where
        assert [name for name in told if name in story.acknowledged] == story.acknowledged, where
        allowed = set(story.acknowledged) | set(story.unsure)
        assert set(told) <= allowed, f"{where}: refused, but there: {set(told) - allowed}"
        repaired = [p.record for p in loaded.records if isinstance(p.record, Repaired)]
        assert any(r.line == 3 for r in repaired), where
        assert all(r.quarantine is None or (story.home / r.quarantine).exists() for r in repaired), where
        assert any(file.read_bytes() == torn for file in story.home.glob("journal.jsonl.torn-*")), where
        await journal.append((said("after"),))
        await journal.close()
        again = await load(path, whole=True)
        assert names(again) == [*found, "after"] and again.repairs == (), where
        for blob, content in story.blobs.items():
            assert await FileBlobs(story.home / "blobs").get(blob) == content, where
        for file in (story.home / "blobs").glob("[0-9a-f]*"):
            await FileBlobs(story.home / "blobs").get(BlobId(file.name))
        if (story.home / "new.jsonl").exists():
            assert (await load(story.home / "new.jsonl")).header == HEADER, where

    anyio.run(check)


class Once(Disk):
    """The next sync fails with this; the bytes were written before it."""

    error: BaseException | None = None

    def sync_data(self, fd: int) -> None:
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        DISK.sync_data(fd)


def test_what_was_refused_is_taken_back_at_once(path: Path) -> None:
    """REL-10: a failed sync leaves whole lines behind; the next reader must not see what the engine was refused."""

    async def body() -> None:
        journal = await written(path, 2, disk=(disk := Once()))
        disk.error = OSError(errno.EIO, os.strerror(errno.EIO))
        with pytest.raises(JournalError, match="nothing was recorded"):
            await journal.append((said("refused"),))
        assert names(await load(path, read_only=True)) == ["m1", "m2"]
        assert b"refused" in path.with_name("journal.jsonl.refused-1").read_bytes()
        loaded = await journal.load()
        assert [(r.line, r.quarantine) for r in loaded.repairs] == [(4, "journal.jsonl.refused-1")]
        await journal.close()

    anyio.run(body)


def test_a_fault_of_any_other_kind_is_looked_into_as_well(path: Path) -> None:
    """REL-10: after an error that isn't the disk's, what is on disk is compared before the next append."""

    async def body() -> None:
        journal = await written(path, 2, disk=(disk := Once()))
        disk.error = MemoryError()
        with pytest.raises(MemoryError):
            await journal.append((said("unknown"),))
        await journal.append((said("m3"),))
        await journal.close()
        assert names(await load(path)) == ["m1", "m2", "m3"]

    anyio.run(body)


# --- T3: torn and flipped ------------------------------------------------------------------------------------------


def line_starts(raw: bytes) -> list[int]:
    starts = [0]
    while (at := raw.find(b"\n", starts[-1])) >= 0:
        starts.append(at + 1)
    return starts


def damage_line(path: Path, line: int) -> None:
    """Flip one bit in the middle of a line."""
    raw = bytearray(path.read_bytes())
    starts = line_starts(bytes(raw))
    raw[(starts[line - 1] + starts[line]) // 2] ^= 1
    path.write_bytes(raw)


def test_cut_anywhere_every_earlier_record_is_there(path: Path) -> None:
    """REL-2: at each byte of the last 8 KB (in CI each third, and where a line ends).

    The torn line is set aside byte for byte and said, and work goes on.
    """
    disk = Unsynced()

    async def body() -> None:
        await (await written(path, 24, text="x" * 300, disk=disk)).close()
        raw = path.read_bytes()
        starts = line_starts(raw)
        cut = path.with_name("cut.jsonl")
        for length in range(len(raw) - 8192, len(raw)):
            if length % 3 and length not in starts and TIMES <= 1:
                continue
            whole_lines = sum(start <= length for start in starts) - 2
            cut.write_bytes(raw[:length])
            cut.with_suffix(".mark").unlink(missing_ok=True)  # as if it had never been acknowledged
            is_clean = length in starts
            loaded = await load(cut, read_only=True, disk=disk)
            assert names(loaded) == [f"m{n}" for n in range(1, whole_lines + 1)], length
            assert [r.line for r in loaded.repairs] == ([] if is_clean else [whole_lines + 2]), length
            if length % 17:
                continue
            journal = await FileJournal.open(cut, disk=disk)
            assert len((await journal.load()).repairs) == (not is_clean)
            await journal.append((said("after"),))
            await journal.close()
            loaded = await load(cut, disk=disk)
            assert names(loaded)[-2:] == [f"m{whole_lines}", "after"] and not loaded.repairs, length
            aside = cut.with_name("cut.jsonl.torn-1")
            assert is_clean or aside.read_bytes() == raw[starts[whole_lines + 1] : length], length
            aside.unlink(missing_ok=True)

    anyio.run(body)


def test_every_flipped_bit_is_found_and_said_once(path: Path) -> None:
    """REL-2, ENG-3: at random places; only the lines that were hit are missing, and they stand in the side file."""
    disk = Unsynced()
    chance = random.Random(3)

    async def body() -> None:
        journal = await written(path, 30, text="x" * 100, disk=disk)
        receipt = await journal.append((said("kept"),))
        await journal.append((boundary("b", ("kept",), receipt.offset),))
        for number in range(40, 60):
            await journal.append((said(f"m{number}"), Noted(kind="x")))
        await journal.close()
        raw = path.read_bytes()
        starts = line_starts(raw)
        every = names(await load(path, whole=True, read_only=True))
        for at in (chance.randrange(starts[1], len(raw)) for _ in range(FLIPS)):
            flipped = bytearray(raw)
            flipped[at] ^= 1 << chance.randrange(8)
            path.write_bytes(flipped)
            index = sum(start <= at for start in starts) - 2
            hit = set(every[index : index + 1 + (raw[at : at + 1] == b"\n")])
            loaded = await load(path, read_only=True, whole=True, disk=disk)
            assert loaded.repairs, at
            assert set(every) - set(names(loaded)) <= hit, at
            assert names(loaded) == [name for name in every if name in names(loaded)], at
            quick = await load(path, read_only=True, disk=disk)
            assert names(quick)[-1] in every[-2:], at
            assert verify(path), at
            if at % 20 == 0:
                first = await load(path, whole=True, disk=disk)
                second = await load(path, whole=True, disk=disk)
                assert first.repairs and not second.repairs and names(second) == names(loaded), at
                for beside in path.parent.glob("journal.jsonl.*"):
                    beside.unlink()

    anyio.run(body)


def test_a_damaged_boundary_falls_back_to_the_one_before(path: Path) -> None:
    """CMP-14, REL-2: the view before the compaction is still all there."""

    async def body() -> None:
        journal = await written(path, 3)
        first = await journal.append((boundary("b1"),))
        await journal.append((said("m5"),))
        await journal.append((boundary("b2"),))
        await journal.append((said("m7"),))
        await journal.close()
        damage_line(path, 7)
        loaded = await load(path)
        assert names(loaded) == ["b1", "m5", "m7"] and loaded.records[0].offset == first.offset
        assert [r.line for r in loaded.repairs] == [7]
        damage_line(path, 5)
        loaded = await load(path)
        assert names(loaded) == ["m1", "m2", "m3", "m5", "m7"] and loaded.whole
        assert [r.line for r in loaded.repairs] == [5]

    anyio.run(body)


def test_damage_before_the_boundary_is_left_to_verify(path: Path) -> None:
    """ENG-3, SPD-3: a quick open doesn't look there; verify does, and a whole load repairs it once."""

    async def body() -> None:
        journal = await written(path, 5)
        await journal.append((boundary("b"),))
        await journal.close()
        damage_line(path, 3)
        assert (await load(path)).repairs == ()
        assert [(p.line, "aside" in p.what) for p in verify(path)] == [(3, False)]
        assert [r.line for r in (await load(path, whole=True)).repairs] == [3]
        assert (await load(path, whole=True)).repairs == ()
        assert [(p.line, "aside" in p.what) for p in verify(path)] == [(3, True)]

    anyio.run(body)


def test_missing_and_repeated_lines_are_said(path: Path) -> None:
    """ENG-3: sequence numbers count lines; a hole and a repetition are damage, and neither stops the session."""

    async def body() -> None:
        await (await written(path, 6)).close()
        lines = path.read_bytes().splitlines(keepends=True)
        cut = b"".join([*lines[:3], *lines[4:6], lines[5], lines[6]])
        path.write_bytes(cut)
        loaded = await load(path)
        assert names(loaded) == ["m1", "m2", "m4", "m5", "m6"]
        assert sorted((r.line, r.what.partition(" (")[0].partition(":")[0]) for r in loaded.repairs) == [
            (4, "sequence jumps from 2 to 4"),
            (6, "the line is repeated"),
        ]
        assert {r.quarantine for r in loaded.repairs} == {"journal.jsonl.before-1"}
        assert (await load(path, whole=True)).repairs == ()
        assert path.with_name("journal.jsonl.before-1").read_bytes() == cut

    anyio.run(body)


def test_a_reader_changes_nothing(path: Path) -> None:
    """REL-2: opened read-only, damage is reported and left."""

    async def body() -> None:
        await (await written(path, 6)).close()
        damage_line(path, 4)
        with open(path, "ab") as file:
            file.write(b"torn")
        before = path.read_bytes()
        journal = await FileJournal.open(path, read_only=True)
        loaded = await journal.load()
        assert [r.line for r in loaded.repairs] == [4, 8]
        with pytest.raises(JournalError, match="read-only"):
            await journal.append((said("never"),))
        await journal.close()
        assert path.read_bytes() == before
        assert sorted(p.name for p in path.parent.iterdir()) == [path.name, "journal.mark"]

    anyio.run(body)


@pytest.mark.parametrize("raw", [b"", b"\n", b"garbage", b"garbage\n", b"\0" * 70_000, b'{"format":"x"}\n'])
def test_without_a_header_there_is_no_journal(path: Path, raw: bytes) -> None:
    """ENG-3: said with the file's name; the file is left as it is."""
    path.write_bytes(raw)

    async def body() -> None:
        with pytest.raises(DamagedLine, match=r"journal\.jsonl"):
            await FileJournal.open(path)

    anyio.run(body)
    assert path.read_bytes() == raw and verify(path)


def test_a_newer_record_is_refused_and_left(path: Path) -> None:
    """ENG-3: also in the last line, which would be cut if it were only damaged."""

    async def body() -> None:
        await (await written(path, 2)).close()
        newer = encode_line(3, (Noted(kind="x"),)).replace(b'"noted"', b'"wished"')[:-19]
        with open(path, "ab") as file:
            file.write(b'%b,"crc":"%08x"}\n' % (newer, zlib.crc32(newer)))
        before = path.read_bytes()
        with pytest.raises(NewerFormat, match=r"journal\.jsonl: line 4"):
            await FileJournal.open(path)
        assert path.read_bytes() == before

    anyio.run(body)


# --- REL-9: tampering ----------------------------------------------------------------------------------------------


def _replace(path: Path) -> None:
    shutil.copy(path, path.with_name("copy"))
    os.replace(path.with_name("copy"), path)


def _append(path: Path) -> None:
    with open(path, "ab") as file:
        file.write(encode_line(99, (Noted(kind="x"),)))


SABOTAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "unlink": (os.unlink, "deleted"),
    "move": (lambda path: os.rename(path, path.with_name("elsewhere")), "deleted or moved"),
    "cut": (lambda path: os.truncate(path, path.stat().st_size - 7), "was cut from"),
    "empty": (lambda path: os.truncate(path, 0), "was cut from"),
    "replace": (_replace, "replaced"),
    "second writer": (_append, "another program"),
}


@pytest.mark.parametrize("durability", ["commit", "process"])
@pytest.mark.parametrize("how", sorted(SABOTAGE))
def test_what_was_acknowledged_and_is_gone_fails_loudly(path: Path, how: str, durability: Any) -> None:
    """REL-9: the next append and the next load say what happened, and go on saying it."""
    sabotage, said_so = SABOTAGE[how]

    async def body() -> None:
        await (await written(path, 3)).close()
        journal = await FileJournal.open(path, durability=durability)
        await journal.append((said("m4"),))
        sabotage(path)
        for _ in range(2):
            with pytest.raises(JournalLost, match=said_so):
                await journal.append((said("m5"),))
            with pytest.raises(JournalLost, match=said_so):
                await journal.load(whole=True)
        await journal.close()

    anyio.run(body)


def test_after_a_fault_the_file_is_compared_with_what_was_acknowledged(path: Path) -> None:
    """REL-9, REL-10: changed bytes near the end don't pass unseen when the file has to be opened anew."""

    async def body() -> None:
        journal = await written(path, 3, disk=(disk := Full()))
        disk.free_bytes = 10
        with pytest.raises(JournalError):
            await journal.append((said("m4"),))  # a few bytes of it stay behind: there is no space to set them aside
        disk.free_bytes = 10**6
        damage_line(path, 4)
        with pytest.raises(JournalLost, match="changed near its end"):
            await journal.append((said("m4"),))

    anyio.run(body)


# --- REL-10: no space ----------------------------------------------------------------------------------------------


class Full(Disk):
    """A disk with so many bytes left."""

    free_bytes = 10**6

    def write(self, fd: int, data: memoryview) -> int:
        if self.free_bytes <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = os.write(fd, data[: self.free_bytes])
        self.free_bytes -= taken
        return taken


@pytest.mark.parametrize("left", [0, 50])
def test_a_session_that_could_not_be_made_leaves_no_folder(tmp_path: Path, left: int) -> None:
    """REL-10, ENG-5: a listing would show it as a broken one."""

    async def body() -> None:
        disk = Full()
        disk.free_bytes = left
        store = SessionStore(tmp_path, disk=disk)
        with pytest.raises(JournalError, match="nothing was recorded; free some space"):
            await store.create("s1", project="/p", created=5.0)
        assert not store.list() and not list(tmp_path.rglob("s1"))
        disk.free_bytes = 10**6
        files = await store.create("s1", project="/p", created=5.0)
        await files.journal.close()
        with pytest.raises(JournalError):
            await store.create("s1", project="/p", created=5.0)
        assert [info.problem for info in store.list()] == [None]

    anyio.run(body)


@pytest.mark.parametrize("left", [0, 1, 50, 200, 400])
def test_a_full_disk_loses_nothing_and_work_goes_on(path: Path, left: int) -> None:
    """REL-10: refused appends leave no trace; when space returns the same journal takes records again."""

    async def body() -> None:
        disk = Full()
        journal = await written(path, 3, disk=disk)
        disk.free_bytes = left
        for _ in range(3):
            with pytest.raises(JournalError, match="nothing was recorded; free some space"):
                await journal.append((said("refused", "x" * 500),))
        assert names(await journal.load(whole=True)) == ["m1", "m2", "m3"]
        disk.free_bytes = 10**6
        await journal.append((said("m4"),))
        assert names(await journal.load(whole=True)) == ["m1", "m2", "m3", "m4"]
        await journal.close()
        loaded = await load(path, whole=True)
        assert names(loaded) == ["m1", "m2", "m3", "m4"] and not loaded.repairs and not verify(path)

    anyio.run(body)


def test_a_damaged_session_opens_on_a_full_disk(path: Path) -> None:
    """REL-2, REL-10: it can be read at once; the repair is made before the first append."""

    async def body() -> None:
        disk = Full()
        await (await written(path, 5)).close()
        damage_line(path, 3)
        with open(path, "ab") as file:
            file.write(b"torn")
        disk.free_bytes = 0
        journal = await FileJournal.open(path, disk=disk)
        loaded = await journal.load()
        assert names(loaded) == ["m1", "m3", "m4", "m5"] and [r.line for r in loaded.repairs] == [3, 7]
        with pytest.raises(JournalError, match="free some space"):
            await journal.append((said("refused"),))
        disk.free_bytes = 10**6
        assert (await journal.append((said("m6"),))).seq == 7
        await journal.close()
        assert path.with_name("journal.jsonl.torn-1").read_bytes() == b"torn"
        assert (await load(path)).repairs == ()

    anyio.run(body)


@pytest.fixture
def file_limit() -> Iterator[Callable[[int], None]]:
    """The largest file that the process may write, as the kernel enforces it."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda limit: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_the_kernels_own_limit(path: Path, file_limit: Callable[[int], None]) -> None:
    """REL-10: a real short write and a real error, through the real disk."""

    async def body() -> None:
        journal = await written(path, 3)
        file_limit(path.stat().st_size + 300)
        for _ in range(2):
            with pytest.raises(JournalError, match="nothing was recorded"):
                await journal.append((said("refused", "x" * 5000),))
        file_limit(10**9)
        await journal.append((said("m4", "x" * 5000),))
        await journal.close()
        assert names(await load(path, whole=True)) == ["m1", "m2", "m3", "m4"]

    anyio.run(body)


# --- one writer, many readers --------------------------------------------------------------------------------------

HOLDER = """
import sys
from pathlib import Path
from perdure.adapters.journal import SessionLock
lock = SessionLock.acquire(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.readline()
lock.release()
print("released", flush=True)
sys.stdin.readline()
"""


def test_two_processes_never_write_one_session(tmp_path: Path) -> None:
    """REL-8, ENG-4: the second is told who writes; a release and a death both let it in."""

    async def body() -> None:
        store = SessionStore(tmp_path)
        files = await store.create("s1", project=tmp_path, created=1.0)
        with pytest.raises(SessionBusy, match="this process"):
            await store.open("s1")
        await files.journal.append((said("m1"),))
        await files.journal.close()
        for ending in ("release", "death"):
            command = [sys.executable, "-c", HOLDER, str(files.directory)]
            with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
                assert other.stdin is not None and other.stdout is not None
                assert other.stdout.readline() == b"held\n"
                with pytest.raises(SessionBusy, match=rf"process {other.pid} on .* since .*: close it there"):
                    await store.open("s1")
                with pytest.raises(SessionBusy):
                    store.delete("s1")
                reader = await store.open("s1", read_only=True)
                assert names(await reader.journal.load())[0] == "m1"
                if ending == "death":
                    other.kill()
                    other.wait()
                else:
                    other.stdin.write(b"\n")
                    other.stdin.flush()
                    assert other.stdout.readline() == b"released\n"
                again = await store.open("s1")
                await again.journal.append((said(ending),))
                await again.journal.close()
                other.kill()
        assert names(await load(files.directory / "journal.jsonl")) == ["m1", "release", "death"]

    anyio.run(body)


def test_a_stale_holder_is_taken_over(tmp_path: Path) -> None:
    """ENG-4: a name in the file without a lock behind it is only a name."""
    (tmp_path / "lock").write_text('{"pid":1,"host":"elsewhere","started":1.0,"lease_until":9e9}')
    lock = SessionLock.acquire(tmp_path)
    assert lock.is_held
    lock.release()
    lock.release()
    (tmp_path / "lock").write_bytes(b"\xff garbage")
    SessionLock.acquire(tmp_path).release()


def test_a_writer_that_lost_its_lock_stops(tmp_path: Path) -> None:
    """REL-8: whoever no longer holds the lock may not append."""

    async def body() -> None:
        lock = SessionLock.acquire(tmp_path)
        journal = await FileJournal.create(tmp_path / "journal.jsonl", HEADER, lock=lock)
        lock.release()
        with pytest.raises(SessionBusy):
            await journal.append((said("m1"),))
        await journal.close()

    anyio.run(body)


def test_readers_see_whole_transactions_while_another_writes(path: Path) -> None:
    """REL-3: what a reader sees is always a beginning of what is written, in whole transactions."""

    async def body() -> None:
        journal = await written(path, 1)
        is_done = False
        seen: list[int] = []

        async def write() -> None:
            nonlocal is_done
            for number in range(150):
                pair: tuple[Record, ...] = (said(f"a{number}", "x" * (number * 101 % 4000)), said(f"b{number}"))
                await journal.append(pair)
            is_done = True

        async def read() -> None:
            while not is_done:
                found = names(await load(path, read_only=True))
                expected = ["m1", *(f"{half}{n}" for n in range(150) for half in "ab")]
                assert found == expected[: len(found)] and len(found) % 2 == 1
                seen.append(len(found))

        async with anyio.create_task_group() as group:
            group.start_soon(write)
            group.start_soon(read)
            group.start_soon(read)
        assert len(set(seen)) > 3
        assert path.parent.joinpath("journal.jsonl.torn-1").exists() is False

    anyio.run(body)
