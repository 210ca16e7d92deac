"""A copy from store to store that is killed shows no half session, and the next run makes it whole (SCL-1)."""

from __future__ import annotations

import asyncio
import os
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.contract.test_homes import said

from perdure.adapters.journal import FileStore
from perdure.ports.home import Home
from perdure.wiring.stores import contents_of, store_at

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

_KILLS = 7  # in each of two rounds
_COPIER = Path(__file__).with_name("copier.py")


def copied(source: str, target: str, home: Path, *, kill_at: int = 0) -> tuple[int, int, str]:
    """Run it; its exit code, how often it asked for anything, and what it said."""
    env = {**os.environ, "PERDURE_HOME": str(home)}
    words = [sys.executable, str(_COPIER), str(kill_at), source, target]
    done = subprocess.run(words, capture_output=True, text=True, env=env, timeout=120, check=False)
    calls = re.search(r"^calls (\d+)$", done.stdout, re.MULTILINE)
    return done.returncode, int(calls[1]) if calls else 0, done.stdout + done.stderr


async def contents(home: Home) -> dict[str, tuple[bytes, dict[str, bytes], dict[str, bytes]]]:
    found: dict[str, Any] = {}
    whole = contents_of(home)
    async for end in whole.ends():
        one = await whole.session(end.session)
        lines = b"".join([line async for group in one.lines() for line in group])
        blobs = {str(blob): await one.blobs.get(blob) for blob in await one.blobs.ids()}
        found[end.session] = lines, blobs, dict(await one.notes())
    return found


def kept(place: str) -> dict[str, Any]:
    async def main() -> dict[str, Any]:
        store = store_at(place)
        try:
            return await contents(store.home())
        finally:
            await store.close()

    return asyncio.run(main())


async def grow(home: Home, round_: int) -> None:
    """New lines, blobs and notes in three sessions, and a new session."""
    for name in ("s1", "s2", "s3", f"new{round_}"):
        stored = await (home.open(name) if await home.has(name) else home.create(name, project="/srv/p", created=1.0))
        await stored.blobs.put((os.urandom(3000), f"{name} {round_}".encode()))
        for number in range(4):
            await stored.journal.append((said(f"{round_}-{number}", "words " * 30),))
        await stored.notes.write(f"# {round_}".encode(), instead_of=await stored.notes.read())
        await stored.journal.close()


@pytest.mark.nightly
@pytest.mark.parametrize("way", ["into the database", "out of it"])
def test_a_killed_copy_is_made_whole_by_the_next(tmp_path: Path, postgres: str, way: str) -> None:
    """SCL-1: whenever that is, each session that is seen is one that the source had at some time, with its blobs."""
    chance = random.Random(way)
    folder = str(tmp_path / "files")
    source, target = (folder, postgres) if way == "into the database" else (postgres, folder)
    if way == "out of it":
        asyncio.run(_emptied(postgres))
    states: dict[str, list[Any]] = {}
    killed = resumed = 0
    for round_ in range(2):

        async def more(number: int = round_) -> None:
            store = store_at(source)
            await grow(store.home(), number)
            await store.close()

        asyncio.run(more())
        now = kept(source)
        for name, state in now.items():
            states.setdefault(name, []).append(state)
        probe = str(tmp_path / f"probe{round_}")
        code, calls, said_ = copied(source, probe, tmp_path)
        assert code == 0 and calls > 50, said_
        for at in sorted(chance.randint(1, calls) for _ in range(_KILLS)):
            code, _, said_ = copied(source, target, tmp_path, kill_at=at)
            assert code in (-9, 0), said_
            killed += code == -9
            seen = kept(target)
            for name, state in seen.items():
                if state not in states[name]:  # one that goes on may have blobs or notes ahead of its lines
                    lines, blobs, _ = state
                    assert any(lines == one[0] and one[1].items() <= blobs.items() for one in states[name]), name
            resumed += 0 < len(seen) < len(now)
        code, _, said_ = copied(source, target, tmp_path)
        assert code == 0 and kept(target) == now, said_
        code, _, said_ = copied(source, target, tmp_path)
        assert code == 0 and "unchanged" in said_ and "copied," not in said_ and "0 lines" in said_
    assert killed >= _KILLS and resumed, (killed, resumed)
    litter = [path.name for path in tmp_path.glob("files/projects/*/.copying-*")]
    assert not litter
    if way == "out of it":
        store = FileStore(Path(folder))
        assert len(asyncio.run(_listed(store.home()))) == 5


async def _listed(home: Home) -> Any:
    return await home.sessions()


async def _emptied(database: str) -> None:
    """The sessions of the test before go."""
    store = store_at(database)
    home = store.home()
    for info in await home.sessions():
        await home.delete(info.id)
    await store.close()
