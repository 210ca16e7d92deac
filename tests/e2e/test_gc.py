"""`perdure gc`, retention and quota: what nobody needs goes, what a session may need stays (SEC-12)."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.agents import bench, calls

from perdure import Message
from perdure.adapters.care.collect import Collected, HomeCollection
from perdure.adapters.journal import JOURNAL, SessionLock, SessionStore
from perdure.events import SessionsExpired
from perdure.transcript.records import Titled
from perdure.wiring import create_session, open_session

pytestmark = pytest.mark.e2e

DAY = 86_400


def aged(path: Path, days: float) -> Path:
    """The file, or folder with all in it, as if it was written so long ago."""
    at = time.time() - days * DAY
    for one in (*path.rglob("*"), path) if path.is_dir() else (path,):
        os.utime(one, (at, at))
    return path


def made(place: Path, name: str, *, days: float = 0, tags: tuple[str, ...] = (), words: int = 10) -> Path:
    async def body() -> Path:
        session = await create_session(place / "home", project=place, session=name)
        await session.append(Message.of("user", f"{name} " * words))
        if tags:
            await session.record(Titled(tags=tags))
        await session.close()
        return next(d for d in SessionStore(place / "home").directories() if d.name == name)

    return aged(anyio.run(body), days)


def test_what_nobody_needs_goes(place: Path, run: Callable[..., Any]) -> None:
    """SEC-12: a dry run names it with its size; what is young, whole or in use stays, to the byte."""

    async def offloaded() -> Path:
        bench_ = await bench(place / "p", home=place / "home")
        bench_.model.upstream.script.extend([calls(("Bash", {"command": "seq 1 30000"})), "done"])
        await bench_.agent.say("count")
        await bench_.agent.close()
        return next(SessionStore(place / "home").directories())

    session = anyio.run(offloaded)
    named = list((session / "blobs").iterdir())
    assert named
    orphan = session / "blobs" / ("0" * 64)
    orphan.write_bytes(b"=nobody names me")
    doomed = [
        orphan,
        session / f"{JOURNAL}.new-12ab",
        session / "blobs" / ".new-1-ab",
        session.parent / ".deleted-0123",
        session.parent / ".forking-x",
        session.parent / "lost",
    ]
    doomed[1].write_bytes(b"draft")
    doomed[2].write_bytes(b"draft")
    for folder, name in ((doomed[3], JOURNAL), (doomed[4], JOURNAL), (doomed[5], "journal.mark")):
        folder.mkdir()
        (folder / name).write_bytes(b"left")
    assert run("gc").out == "there is nothing that nobody needs\n"  # all of it may be at work
    for one in doomed:
        aged(one, 1)
    for one in named:
        aged(one, 1)
    before = {p: p.read_bytes() for p in (place / "home").rglob("*") if p.is_file() and p.name != "lock"}
    [told] = run("gc", "--dry-run", "--json").json
    expected = {str(one) for one in doomed if one.exists()}
    assert {one["path"] for one in told["gone"]} == expected and told["bytes"] > 0 and not told["removed"]
    assert {p: p.read_bytes() for p in before} == before
    lock = SessionLock.acquire(session)
    [told] = run("gc", "--dry-run", "--json").json
    lock.release()
    assert not {str(orphan), str(doomed[1]), str(doomed[2])} & {one["path"] for one in told["gone"]}
    done = run("gc")
    assert done.code == 0 and "freed" in done.out and not any(one.exists() for one in doomed)
    assert all(one.exists() for one in named) and run("doctor").code in (0, 1)
    assert run("gc").out == "there is nothing that nobody needs\n"


def test_drafts_of_a_journal_go_and_its_blobs_stay_beside_damage(place: Path, run: Callable[..., Any]) -> None:
    """SEC-12, ENG-9: what was set aside beside a journal is never removed, nor what it may name."""
    session = made(place, "s")
    draft = session / f"{JOURNAL}.new-12ab"
    draft.write_bytes(b"draft")
    others = [session.parent / "history.new-0123456789abcdef", session.parent / "memory" / "a.md.new-0123456789abcdef"]
    others.append(session.parent / "memory" / ".draft-0123456789abcdef")
    mine = session.parent / "memory" / "a.new-idea.md"
    mine.parent.mkdir()
    for one in (*others, mine):
        one.write_bytes(b"draft")
        aged(one, 3)
    (session / "blobs").mkdir()
    orphan = session / "blobs" / ("0" * 64)
    orphan.write_bytes(b"=x")
    torn = session / f"{JOURNAL}.torn-1"
    torn.write_bytes(b"torn")
    for one in (draft, orphan, torn):
        aged(one, 3)
    assert run("gc").code == 0
    assert not any(one.exists() for one in others) and mine.exists()
    assert not draft.exists() and orphan.exists() and torn.exists()


def test_old_sessions_go_where_the_settings_say_so(place: Path, run: Callable[..., Any]) -> None:
    """SEC-12: by age and by size, the oldest first; those that are tagged or in use stay; unset, nothing goes."""
    for name, days, tags in (
        ("old", 50, ()),
        ("kept", 60, ("keep",)),
        ("busy", 70, ()),
        ("middle", 20, ()),
        ("new", 0, ()),
    ):
        made(place, name, days=days, tags=tags, words=10_000)
    kept = {d.name: d for d in SessionStore(place / "home").directories()}
    assert run("search", "old").code == 0  # an index that knows them all
    assert run("gc").code == 0 and len(list(SessionStore(place / "home").directories())) == 5
    lock = SessionLock.acquire(kept["busy"])
    dry = run("gc", "--dry-run", "--set", "retention_days=30")
    assert "written last 50 days ago (retention_days)" in dry.out and kept["old"].exists()
    assert run("gc", "--set", "retention_days=30").code == 0
    assert {d.name for d in SessionStore(place / "home").directories()} == {"kept", "busy", "middle", "new"}
    assert run("gc", "--set", "max_home_bytes=1").code == 0
    lock.release()
    assert {d.name for d in SessionStore(place / "home").directories()} == {"kept", "busy", "new"}  # new is too young
    assert b"middle" not in (place / "home" / "index.db").read_bytes()


def test_a_session_deletes_old_ones_in_the_background(place: Path) -> None:
    """SEC-12: behind its first answer, said by an event; without the settings nothing is deleted."""
    old = made(place, "old", days=50)

    async def answered(**settings: Any) -> list[Any]:
        one = await bench(place / "p", ["hello"], home=place / "home", settings=settings)
        await one.agent.say("hi")
        await one.agent.close()
        return one.events(SessionsExpired)

    async def both() -> list[Any]:
        assert await answered() == [] and old.exists()
        return await answered(retention_days=30)

    [event] = anyio.run(both)
    assert event.sessions == 1 and event.bytes > 0 and not old.exists()


def test_a_tag_anywhere_in_a_journal_keeps_its_session(place: Path, run: Callable[..., Any]) -> None:
    """SEC-12: also one that a crash left far from both ends; taken back later, it keeps nothing."""

    async def body(name: str, *tags: tuple[str, ...]) -> None:
        session = await create_session(place / "home", project=place, session=name)
        for said in tags:
            await session.append(Message.of("user", "before " * 15_000))
            await session.record(Titled(tags=said))
        await session.append(Message.of("user", "after " * 15_000))
        await session.ports.journal.close()  # a crash: nothing is said at the end

    anyio.run(body, "kept", ("keep",))
    anyio.run(body, "taken-back", ("keep",), ())
    kept, other = (next(iter((place / "home").glob(f"projects/*/{name}"))) for name in ("kept", "taken-back"))
    for one in (kept, other):
        aged(one, 50)
    assert run("gc", "--set", "retention_days=30").code == 0
    assert kept.exists() and not other.exists()


@pytest.mark.parametrize("change", ["tag", "write"])
def test_what_happens_to_a_session_after_it_was_listed_counts(
    place: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SEC-12: one that is tagged, or goes on and is closed, between the listing and the deletion stays."""
    old = made(place, "old", days=50)
    listed = SessionStore.list

    async def body() -> None:
        session = await open_session(place / "home", "old")
        await (session.record(Titled(tags=("keep",))) if change == "tag" else session.append(Message.of("user", "on")))
        await session.close()

    def then_changed(store: SessionStore, project: Any = None) -> Any:
        found = listed(store, project)
        if any(info.directory == old for info in found):
            anyio.run(body)
            if change == "tag":
                aged(old, 50)
        return found

    monkeypatch.setattr(SessionStore, "list", then_changed)
    done = HomeCollection(place / "home", time.time(), retention_days=30).expire()
    assert old.exists() and not done.gone and not done.left


@pytest.mark.parametrize("damage", ["middle", "journal.jsonl.damaged-1", "journal.jsonl.torn-1", "blobs/aa.damaged-1"])
def test_damaged_sessions_stay_and_are_named(place: Path, damage: str, run: Callable[..., Any]) -> None:
    """SEC-12, ENG-9: damage far from both ends of a journal, or set aside beside it."""

    async def body() -> Path:
        session = await create_session(place / "home", project=place, session="hurt")
        for _ in range(3):
            await session.append(Message.of("user", "word " * 20_000))
        await session.close()
        return next(SessionStore(place / "home").directories())

    hurt = anyio.run(body)
    if damage == "middle":
        raw = bytearray((hurt / JOURNAL).read_bytes())
        raw[len(raw) // 2] ^= 1
        (hurt / JOURNAL).write_bytes(raw)
    else:
        (hurt / damage).parent.mkdir(exist_ok=True)
        (hurt / damage).write_bytes(b"damaged")
    aged(hurt, 50)
    assert SessionStore(place / "home").list()[0].problem is None
    for setting in ("retention_days=30", "max_home_bytes=1"):
        for flags in (("--dry-run",), ()):
            [told] = run("gc", "--json", *flags, "--set", setting).json
            assert hurt.exists() and not told["gone"] and len(told["kept"]) == 1 and str(hurt) in told["kept"][0]


def test_what_sessions_share_counts_once(place: Path) -> None:
    """SEC-12: stored results of forks are links to one file, which goes with the last of them."""
    big = 1_000_000
    first, second = made(place, "first", days=50), made(place, "second", days=40)
    blob = first / "blobs" / ("a" * 64)
    blob.parent.mkdir(exist_ok=True)
    blob.write_bytes(b"=" * big)
    (second / "blobs").mkdir(exist_ok=True)
    os.link(blob, second / "blobs" / blob.name)
    aged(first, 50)
    aged(second, 40)

    def collected(most: int, *, dry_run: bool) -> tuple[list[str], int]:
        done = Collected()
        HomeCollection(place / "home", time.time(), max_bytes=most)._expire(done, dry_run=dry_run)
        return [one.path.name for one in done.gone], done.bytes

    assert collected(big + 500_000, dry_run=True) == ([], 0), "it is counted once"
    names, freed = collected(1, dry_run=True)
    assert names == ["first", "second"] and big < freed < big + 500_000
    assert collected(1, dry_run=False) == (names, freed)


def test_a_quota_counts_that_the_index_goes_with_its_sessions(place: Path, run: Callable[..., Any]) -> None:
    """SEC-12: the index of a home is about as large as its sessions; no more of them go than have to."""
    for n in range(6):
        words = " ".join(hashlib.sha256(b"%d %d" % (n, word)).hexdigest() for word in range(4_000))
        made(place, f"s{n}", days=50 - n, words=1)

        async def more(n: int = n, words: str = words) -> None:
            session = await open_session(place / "home", f"s{n}")
            await session.append(Message.of("user", words))
            await session.close()

        anyio.run(more)
        aged(next((place / "home").glob(f"projects/*/s{n}")), 50 - n)
    assert run("search", "s0").code == 0
    home = place / "home"
    before = sum(one.stat().st_size for one in home.rglob("*") if one.is_file())
    assert (home / "index.db").stat().st_size > 0.4 * before
    most = before * 3 // 4
    [dry] = run("gc", "--dry-run", "--json", "--set", f"max_home_bytes={most}").json
    assert run("gc", "--set", f"max_home_bytes={most}").code == 0
    left = {directory.name for directory in SessionStore(home).directories()}
    assert left == {"s2", "s3", "s4", "s5"} and len(dry["gone"]) == 2
    assert sum(one.stat().st_size for one in home.rglob("*") if one.is_file()) <= most


def test_a_quota_deletes_nothing_that_would_free_nothing(place: Path, run: Callable[..., Any]) -> None:
    """SEC-12: all of whose files have another name elsewhere, as in a backup made of links."""
    old = made(place, "old", days=50)
    for one in [p for p in old.rglob("*") if p.is_file()]:
        os.link(one, place / f"backup-{one.name}")
    assert run("gc", "--set", "max_home_bytes=1").code == 0 and old.exists()
    assert run("gc", "--set", "retention_days=30").code == 0 and not old.exists()


@pytest.mark.parametrize("name", ["blobs", "checkpoints", "agents", "."])
def test_no_link_is_followed(place: Path, run: Callable[..., Any], name: str) -> None:
    """SEC-12: what stands behind one isn't the home's, however much it looks so; the link is named."""
    session = made(place, "s", days=3)
    elsewhere = place / "elsewhere"
    for one in ("objects", "objects.old", "a/blobs", "s/blobs", ".deleted-1"):
        (elsewhere / one).mkdir(parents=True)
    blob = "0" * 64
    for one in (blob, ".new-1", "objects.old/x", ".deleted-1/x", f"a/blobs/{blob}", f"s/blobs/{blob}"):
        (elsewhere / one).write_bytes(b"=mine")
    for one in ("a", "s"):
        (elsewhere / one / JOURNAL).write_bytes((session / JOURNAL).read_bytes())
    aged(elsewhere, 3)
    link = session / name if name != "." else session.parent.with_name("-linked")
    link.symlink_to(elsewhere)
    before = sorted(elsewhere.rglob("*"))
    done = run("gc")
    assert sorted(elsewhere.rglob("*")) == before and done.code == 1, done.out
    assert f"{link}: a link, which gc doesn't follow" in done.err and done.err.count("a link") == 1


def test_two_at_once_dont_trip_over_each_other(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SEC-12: what somebody else removes at the same moment is gone, and nothing to complain of."""
    for name in ("one", "two"):
        made(place, name, days=50)
    old = aged(next((place / "home").glob("projects/*/one")), 50)
    old.rename(old.with_name(".deleted-0123"))
    removed = shutil.rmtree
    monkeypatch.setattr(shutil, "rmtree", lambda path: [removed(path), removed(path)])
    done = HomeCollection(place / "home", time.time(), retention_days=30).collect()
    assert done.left == [] and [one.path.name for one in done.gone] == ["two"]
    assert not list((place / "home").glob("projects/*/*"))
