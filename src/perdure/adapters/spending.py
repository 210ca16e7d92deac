"""What calls of models cost, written down in the home so that caps hold over sessions and processes (OBS-2).

`spending/2026-11-22.jsonl` has the calls of a day, two lines each: what a call is expected to cost, before it is made,
and what it cost. A call without its second line (it runs, or its process was killed) counts as expected: with its
prompt and a long answer, or with what calls of its session cost on average, if that is more. A call that is expected to
pass a cap isn't made, however many run at a time. Nothing of it is written as long as no cap is set. In a home that
isn't files the same is a document for each day, in which what ended is added up for each session (SCL-1).

`spending/commands.jsonl` has what commands asked models beside any session: no journal says it.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import anyio.to_thread
import msgspec

from perdure.adapters.journal.disk import make_private
from perdure.adapters.machine.system import lock, open_itself, read_at, read_file
from perdure.context.cost import ForkSpending
from perdure.errors import JournalError, SpendingCapReached
from perdure.ports.home import Documents
from perdure.ports.session import Clock, Ids

FOLDER = "spending"
COMMANDS = "commands.jsonl"
_DAYS = "????-??-??.jsonl"


class SpentLine(msgspec.Struct, frozen=True, kw_only=True):
    """What a call is expected to cost or, when it `ended`, did cost. The last line of a call holds."""

    call: str
    session: str
    usd: float
    ended: bool = False


class _Day:
    """The calls of one day, as far as they were read. Without a path they are known to this process only."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.costs: dict[str, SpentLine] = {}
        self._read_bytes = 0

    def take(self, data: bytes) -> None:
        """Enter the lines behind those that were read before; what isn't a line of ours is left out."""
        whole = data[: data.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        for line in whole.splitlines():
            try:
                one = msgspec.json.decode(line, type=SpentLine)
            except (msgspec.DecodeError, UnicodeDecodeError):  # cut off by a crash, before its call was made
                continue
            self.costs[one.call] = one

    def catch_up(self, fd: int) -> None:
        """Read what others wrote."""
        size = os.fstat(fd).st_size
        if size < self._read_bytes:  # somebody cut it: all of it is read again
            self.costs, self._read_bytes = {}, 0
        self.take(read_at(fd, size - self._read_bytes, self._read_bytes))

    def usd(self, session: str | None = None) -> float:
        """The sum, of all sessions or of one."""
        return math.fsum(one.usd for one in self.costs.values() if session is None or one.session == session)

    def mean_usd(self, session: str) -> float:
        """What a session's calls cost on average that ended, and cost anything."""
        costs = [one.usd for one in self.costs.values() if one.session == session and one.ended and one.usd]
        return math.fsum(costs) / len(costs) if costs else 0.0

    def is_quiet(self, session: str | None) -> bool:
        """Whether no call is under way, of all sessions or of one."""
        return all(one.ended for one in self.costs.values() if session is None or one.session == session)


class _SharedDay(msgspec.Struct):
    """The same as a document: of each session what ended, and how many of that cost anything; what is under way."""

    ended: dict[str, tuple[float, int]] = msgspec.field(default_factory=dict)
    running: dict[str, SpentLine] = msgspec.field(default_factory=dict)

    def usd(self, session: str | None = None) -> float:
        ended = (usd for name, (usd, _) in self.ended.items() if session is None or name == session)
        running = (one.usd for one in self.running.values() if session is None or one.session == session)
        return math.fsum((*ended, *running))

    def mean_usd(self, session: str) -> float:
        usd, calls = self.ended.get(session, (0.0, 0))
        return usd / calls if calls else 0.0

    def is_quiet(self, session: str | None) -> bool:
        return not any(session is None or one.session == session for one in self.running.values())

    def enter(self, line: SpentLine) -> None:
        """Enter a call that begins, or has ended."""
        if not line.ended:
            self.running[line.call] = line
            return
        self.running.pop(line.call, None)
        usd, calls = self.ended.get(line.session, (0.0, 0))
        self.ended[line.session] = usd + line.usd, calls + bool(line.usd)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """What a session and everything that works for it may cost.

    Args:
        session: The session whose calls these are; sub-agents count with the session that they belong to.
        created: When the session began, in seconds since the epoch: earlier days aren't read.
        session_usd: The most that the session may cost, in US dollars; None for no cap.
        day_usd: Likewise of all sessions of the home on one day, by the machine's own calendar.
    """

    session: str
    created: float
    session_usd: float | None
    day_usd: float | None

    @property
    def first_day(self) -> str:
        """The day before the session began: the machine's calendar may have moved to another zone since."""
        return _date(self.created - 86_400)

    def begun(self, call: str, model: str, usd: float | None) -> SpentLine:
        """A call that costs at least so much. Raises `SpendingCapReached` where no price is known."""
        if usd is None:
            told = f'prices of {model} aren\'t known: give input_usd and output_usd in [models."{model}"] of the config'
            raise SpendingCapReached(f"a cap on spending is set, and the {told} file (0 for a server of your own)")
        return SpentLine(call=call, session=self.session, usd=usd)

    def checked(self, day: _Day | _SharedDay, line: SpentLine, spent: float, likely_usd: float) -> SpentLine:
        """The line to write of a call that may begin; `spent` is what the session cost on earlier days.

        Beside others a call counts as what is likely, though calls cost less so far: of many that are dearer each would
        pass the cap. One alone may try, as long as calls like those before it fit. Raises `SpendingCapReached`.
        """
        alone = max(line.usd, day.mean_usd(self.session))
        kept = max(alone, likely_usd)
        expected = alone if day.is_quiet(self.session if self.day_usd is None else None) else kept
        for cap, so_far, what, name in (
            (self.session_usd, spent + day.usd(self.session), "this session", "session_cap_usd"),
            (self.day_usd, day.usd(), "today", "day_cap_usd"),
        ):
            if cap is not None and round(so_far + expected, 9) > cap:
                told = f"{what} has cost {_usd(so_far)}, and the next call is expected to cost {_usd(expected)}"
                raise SpendingCapReached(f"the cap of {_usd(cap)} is reached: {told}; raise {name} to go on")
        return msgspec.structs.replace(line, usd=kept)


class CappedSpending:
    """`ports.SpendingCaps` on files. `home` shares the day's cap; None for a session in memory, which counts alone."""

    def __init__(self, home: Path | None, caps: Caps, *, clock: Clock, ids: Ids) -> None:
        self._folder = home / FOLDER if home is not None else None
        self._caps, self._clock, self._ids = caps, clock, ids
        self._days: dict[str, _Day] = {}
        self._calls: dict[str, str] = {}  # the day of each call under way
        self._guard = threading.Lock()

    async def admit(self, model: str, usd: float | None, *, likely_usd: float = 0.0) -> str:
        """The id of a call that may begin. Raises `SpendingCapReached`."""
        line, name = self._caps.begun(self._ids.new("call"), model, usd), _date(self._clock.now())
        return await anyio.to_thread.run_sync(self._admitted, name, line, likely_usd)

    async def settle(self, call: str, usd: float) -> None:
        """The call has ended, and cost this."""
        await anyio.to_thread.run_sync(self._settled, call, usd)

    def _admitted(self, name: str, line: SpentLine, likely_usd: float) -> str:
        with self._guard:
            spent = sum(self._day(other).usd(self._caps.session) for other in self._days_before(name))
            self._write(self._day(name), line, spent=spent, likely_usd=likely_usd)
            self._calls[line.call] = name
            return line.call

    def _settled(self, call: str, usd: float) -> None:
        with self._guard:
            line = SpentLine(call=call, session=self._caps.session, usd=usd, ended=True)
            self._write(self._day(self._calls.pop(call)), line)

    def _write(self, day: _Day, line: SpentLine, *, spent: float | None = None, likely_usd: float = 0.0) -> None:
        """Write a line; with `spent`, what the session cost on earlier days, only if the caps allow it."""
        if day.path is None:
            day.costs[line.call] = line if spent is None else self._caps.checked(day, line, spent, likely_usd)
            return
        try:
            make_private(day.path.parent)
            fd = open_itself(day.path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
            try:
                lock(fd)
                day.catch_up(fd)
                line = line if spent is None else self._caps.checked(day, line, spent, likely_usd)
                _write_lines(fd, (line,))
                day.catch_up(fd)
            finally:
                os.close(fd)
        except OSError as e:
            if spent is None:
                day.costs[line.call] = line  # known to this process at least
                return
            raise _unkept(f"{day.path} can't be written: {e.strerror or e}") from e

    def _day(self, name: str) -> _Day:
        if name not in self._days:
            day = self._days[name] = _Day(self._folder / f"{name}.jsonl" if self._folder is not None else None)
            if day.path is not None and day.path.is_file():
                day.take(read_file(day.path))
        return self._days[name]

    def _days_before(self, today: str) -> list[str]:
        """The days since the session began, but for this one."""
        kept = [path.stem for path in self._folder.glob(_DAYS)] if self._folder is not None else list(self._days)
        return sorted(name for name in kept if self._caps.first_day <= name != today)


class SharedSpending:
    """`ports.SpendingCaps` in the documents of a home, which several machines may share."""

    def __init__(self, documents: Documents, caps: Caps, *, clock: Clock, ids: Ids) -> None:
        self._documents, self._caps, self._clock, self._ids = documents, caps, clock, ids
        self._calls: dict[str, str] = {}  # the day of each call under way
        self._late: list[tuple[str, SpentLine]] = []  # what ended and isn't written yet, by day
        self._before: dict[str, float] = {}  # what the session cost on each earlier day

    async def admit(self, model: str, usd: float | None, *, likely_usd: float = 0.0) -> str:
        """The id of a call that may begin. Raises `SpendingCapReached`."""
        line, name = self._caps.begun(self._ids.new("call"), model, usd), _date(self._clock.now())
        with anyio.CancelScope(shield=True):
            try:
                spent = await self._spent_before(name)
                await self._change(name, lambda day: day.enter(self._caps.checked(day, line, spent, likely_usd)))
            except JournalError as e:
                raise _unkept(f"what is spent can't be written: {e}") from e
            self._calls[line.call] = name
        return line.call

    async def settle(self, call: str, usd: float) -> None:
        """The call has ended, and cost this. Where that can't be written, the next call that begins writes it."""
        name = self._calls.pop(call)
        self._late.append((name, SpentLine(call=call, session=self._caps.session, usd=usd, ended=True)))
        with anyio.CancelScope(shield=True), suppress(JournalError):
            await self._change(name, lambda day: None)

    async def _spent_before(self, today: str) -> float:
        """What the session cost on the days since it began, but for this one."""
        if self._caps.session_usd is None:
            return 0.0
        since, now = time.mktime(time.strptime(self._caps.first_day, "%Y-%m-%d")), self._clock.now()
        days = {_date(since + n * 43_200.0) for n in range(int((now - since) / 43_200.0) + 1)}  # days may be 23 hours
        for name in await self._documents.among(days - self._before.keys() - {today}):
            self._before[name] = (await self._read(name))[0].usd(self._caps.session)
        return math.fsum(usd for name, usd in self._before.items() if name != today)

    async def _change(self, name: str, change: Callable[[_SharedDay], None]) -> None:
        while True:
            day, version = await self._read(name)
            ended = [one for one in self._late if one[0] == name]
            for _, line in ended:
                day.enter(line)
            change(day)
            if await self._documents.put(name, msgspec.json.encode(day), instead_of=version) is not None:
                self._late = [one for one in self._late if one not in ended]
                return

    async def _read(self, name: str) -> tuple[_SharedDay, str | None]:
        kept = await self._documents.get(name)
        if kept is None:
            return _SharedDay(), None
        try:
            return msgspec.json.decode(kept.data, type=_SharedDay), kept.version
        except (msgspec.DecodeError, UnicodeDecodeError) as e:
            raise JournalError(f"{FOLDER} of {name}: it can't be read: {e}") from e


def write_of_command(home: Path, spent: Iterable[ForkSpending]) -> None:
    """Write down what a command asked models beside any session. Raises `OSError`."""
    path = home / FOLDER / COMMANDS
    make_private(path.parent)
    fd = open_itself(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
    try:
        lock(fd)
        _write_lines(fd, spent)
    finally:
        os.close(fd)


def read_of_commands(home: Path) -> list[ForkSpending]:
    """All that commands asked models beside any session; a line that isn't one of these is left out."""
    try:
        lines = read_file(home / FOLDER / COMMANDS).splitlines()
    except FileNotFoundError:
        return []
    found = []
    for line in lines:
        try:
            found.append(msgspec.json.decode(line, type=ForkSpending))
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
    return found


def _write_lines(fd: int, lines: Iterable[msgspec.Struct]) -> None:
    """Lines of JSON at the end of a file. Behind one that a crash cut off, ours begin on a line of their own."""
    size = os.fstat(fd).st_size
    start = b"\n" if size and read_at(fd, 1, size - 1) != b"\n" else b""
    os.write(fd, start + b"".join(msgspec.json.encode(line) + b"\n" for line in lines))


def _unkept(why: str) -> SpendingCapReached:
    return SpendingCapReached(f"a cap on spending is set, and {why}; no call is made")


def _usd(amount: float) -> str:
    """Dollars and cents, and of less than a cent what there is."""
    return f"${amount:.2f}" if amount >= 0.01 or not amount else f"${amount:.2g}"


def _date(at: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(at))
