"""A store is copied into another whole, and again from where it ended (SCL-1).

FROM is a home of files or a database, and so is TO. What both hold is compared as bytes.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import shutil
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.contract.test_homes import boundary, said
from tests.tiers import examples

from perdure.adapters.journal import JOURNAL
from perdure.engine.turn import prepare
from perdure.errors import JournalError
from perdure.memory.changes import SaveMemory, Stamp
from perdure.ports.contents import HomeContents
from perdure.ports.home import Home, Store
from perdure.ports.memory import MemoryStore
from perdure.settings import Settings
from perdure.transcript.history import CLIENT, NAMED, HistoryPosition
from perdure.transcript.messages import MessageId
from perdure.transcript.records import Cursor, Noted, Record, Titled
from perdure.wiring import open_session
from perdure.wiring.copies import CopiedSession, CopySums, StoreCopy
from perdure.wiring.imports import LogImports
from perdure.wiring.stores import contents_of, store_at

if TYPE_CHECKING:
    from perdure.testing.postgres import PostgresServer

pytestmark = [pytest.mark.contract, pytest.mark.timeout(240)]

USER = Stamp(origin="user", at=1.0, session="s1", message="m1")
DATA = Path(__file__).parents[3] / "shared" / "data"


class Places:
    """The two stores of a test: a folder, and a tenant of the module's database; both named by the same tenant."""

    def __init__(self, folder: Path, database: str) -> None:
        self.folder, self.database, self.tenant = folder, database, f"t{secrets.token_hex(8)}"
        self.opened: list[Store] = []

    def files(self, name: str = "one") -> Store:
        return self._opened(store_at(self.folder / name))

    def postgres(self) -> Store:
        return self._opened(store_at(self.database))

    def _opened(self, store: Store) -> Store:
        self.opened.append(store)
        return store

    def home(self, store: Store) -> Home:
        return store.home(self.tenant)

    async def copy(self, source: Store, target: Store, **more: Any) -> tuple[CopySums, list[CopiedSession]]:
        sums, told = CopySums(), list[CopiedSession]()
        work = StoreCopy(source, target, sums, on_session=told.append, on_progress=lambda *_: None, **more)
        await work.run((self.tenant,))
        return sums, told


@pytest.fixture
def places(tmp_path: Path, postgres: str) -> Places:
    return Places(tmp_path, postgres)


def run(places: Places, body: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        try:
            await body()
        finally:
            for store in places.opened:
                await store.close()

    asyncio.run(main())


async def begun(home: Home, session: str, *lines: tuple[Record, ...], **more: Any) -> Any:
    """A session of these lines, closed."""
    made = await home.create(session, project="/srv/project", created=1.5, **more)
    for records in lines:
        await made.journal.append(records)
    return made


async def kept(home: Home) -> dict[str, Any]:
    """All that a home keeps of sessions, as bytes."""
    contents, found = contents_of(home), dict[str, Any]()
    async for end in contents.ends():
        one = await contents.session(end.session)
        found[end.session] = (
            b"".join([line async for group in one.lines() for line in group]),
            {blob: await one.blobs.get(blob) for blob in await one.blobs.ids()},
            dict(await one.notes()),
            round(end.modified, 3),
        )
    return found


def memories_of(home: Home) -> MemoryStore:
    """Those of the project, as a client on another machine has it."""
    return home.memories(home.memory_roots("/srv/project", is_remote=True).kept).store


async def remember(home: Home, name: str, text: str) -> None:
    read = await memories_of(home).read(name)
    change = SaveMemory(name=name, text=text, base=read.text if read else None)
    assert (await memories_of(home).write(change, USER, mode="auto")).outcome == "written"


async def remembered(home: Home) -> tuple[dict[str, str], list[Any], list[float]]:
    """The memories with the log of what was done to them, and when they were changed."""
    store = memories_of(home)
    files = (await store.listing()).files
    texts = {one.name: read.text for one in files if (read := await store.read(one.name)) is not None}
    return texts, list(await store.entries()), [round(one.mtime, 3) for one in files]


async def many_things(home: Home) -> None:
    """A home with something of every kind."""
    one = await begun(home, "session-one", (said("m1", "hello"), said("m2", "there", "assistant")), (said("m3"),))
    blobs = await one.blobs.put((b"an image", os.urandom(200_000)))
    await one.journal.append((Noted(kind="mine", data={"blob": blobs[0]}), Titled(title="Walrus", tags=("a", "b"))))
    await one.journal.append((boundary("b1", kept=("m3",), kept_from=700), said("m4", "and äöü \u2028 \U0001f9ad")))
    await one.journal.append((Cursor(name=NAMED, message=MessageId("m4"), digest="a conversation"),))
    assert await one.notes.write(b"# First", instead_of=None)
    await one.notes.set_aside()
    assert await one.notes.write(b"# Notes", instead_of=None)
    await one.journal.close()
    await home.fork("session-one", "session-two", created=3.0)
    await (await begun(home, "empty")).journal.close()
    await home.blobs.put((b"of nobody", b"z" * 100_000))
    await home.documents("conversations").put("c1", b'{"a": 1}', instead_of=None)
    await home.documents("usage").put("usage", b'{"days": {}}', instead_of=None)
    await home.documents("deleted-responses").put("resp_1", b"", instead_of=None)
    await contents_of(home).keep_document("session-memory/config", "template.md", b"# Template", 4.0)
    await contents_of(home).keep_learned({"a-model": 1.25})
    await remember(home, "build.md", "Use make.\n")
    user = home.memories(home.memory_roots("/srv/project", is_remote=True).home + "/memory").store
    await user.write(SaveMemory(name="me.md", text="I like walruses.\n"), USER, mode="auto")


async def beside(store: Store, home: Home) -> Any:
    """All else that it keeps, but for links."""
    contents = contents_of(home)
    documents = {}
    for kind in ("conversations", "usage", "deleted-responses", "session-memory/config"):
        for name in await contents.documents(kind):
            documents[kind, name] = await contents.document(kind, name)
    blobs = {blob: await home.blobs.get(blob) for blob in await home.blobs.ids()}
    memories = {place: await contents.memory_files(place) for place in await contents.memories()}
    assert len(memories) in (0, 2)
    return documents, blobs, await contents.key(), memories


@pytest.mark.quick(1)
@pytest.mark.parametrize("blobs", ["in the database", "in a bucket"])
@pytest.mark.parametrize("way", ["into the database", "out of it"])
def test_everything_arrives_as_it_is(places: Places, way: str, blobs: str, request: pytest.FixtureRequest) -> None:
    """SCL-1: journals, blobs, notes, documents, the key, calibrations, work; and once more there is nothing to do."""
    if blobs == "in a bucket":
        places.database = request.getfixturevalue("postgres_with_bucket")[0]

    async def body() -> None:
        source, target = places.files(), places.postgres()
        if way == "out of it":
            source, target = target, source
        of, to = places.home(source), places.home(target)
        await many_things(of)
        key = await of.secret_key()
        await source.work.want(places.tenant, "session-one", "session_memory:default", 7)
        sums, told = await places.copy(source, target)
        assert sums.is_whole and dict(sums.outcomes) == {"copied": 3} and not any(one.said for one in told)
        assert await kept(to) == await kept(of) and len(await kept(to)) == 3
        assert await beside(target, to) == await beside(source, of)
        assert await to.secret_key() == key
        await to.links.flush()
        assert (await target.work.wanted(places.tenant))[0][:5] == (
            places.tenant, "session-one", "session_memory:default", 0, 7,
        )  # fmt: skip
        assert await contents_of(to).learned() == {"a-model": 1.25}
        assert set(await to.links.named("a conversation")) == {"session-one", "session-two"}
        (listed,) = [info for info in await to.sessions() if info.id == "session-one"]
        (there,) = [info for info in await of.sessions() if info.id == "session-one"]
        assert (listed.title, listed.tags, listed.messages) == (there.title, there.tags, there.messages)
        before = (await kept(to), await beside(target, to))
        for more in ({}, {"verifies": True}, {"is_dry": True}):
            sums, _ = await places.copy(source, target, **more)
            assert (dict(sums.outcomes), sums.lines, sums.bytes) == ({"unchanged": 3}, 0, 0)
            assert not +sums.beside
        assert (await kept(to), await beside(target, to)) == before

    run(places, body)


def test_what_came_since_is_added(places: Places) -> None:
    """SCL-1: a session that went on goes on in the target; there it can be found by what was said since."""

    async def body() -> None:
        source, target = places.files(), places.postgres()
        of, to = places.home(source), places.home(target)
        made = await begun(of, "s1", (said("m1"),))
        answer = replace(said("a1", "yes", "assistant"), response_id="resp_1")
        await made.journal.append((answer,))
        sums, told = await places.copy(source, target)
        assert told[0].outcome == "copied" and told[0].said == (
            "it is open for writing: run this again for what comes after",
        )
        place = HistoryPosition(2, b"l" * 32, answer.id)
        await made.journal.append((place.cursor(CLIENT),))
        await made.blobs.put((b"news",))
        await made.notes.write(b"# Notes", instead_of=None)
        await made.journal.close()
        sums, told = await places.copy(source, target, is_dry=True)
        assert dict(sums.outcomes) == {"continued": 1} and (await kept(to)) != await kept(of)
        assert (sums.lines, sums.blobs) == (1, 1)  # that there are to copy
        sums, told = await places.copy(source, target)
        assert dict(sums.outcomes) == {"continued": 1} and (sums.lines, sums.blobs) == (1, 1) and not told[0].said
        assert await kept(to) == await kept(of)
        assert await to.links.longest([place.link]) == ("s1", 2)
        found = await to.links.of_answer("resp_1")  # which was said in a line of the first run
        assert found is not None and found[:3] == (place.link, "s1", 2)
        back = places.files("two")
        await places.copy(target, back)
        more = await of.open("s1")
        await more.journal.append((said("m9"),))
        await more.journal.close()
        await places.copy(source, target)
        sums, _ = await places.copy(target, back)
        assert dict(sums.outcomes) == {"continued": 1} and await kept(places.home(back)) == await kept(of)
        again = await places.home(back).open("s1")
        assert not (await again.journal.load(whole=True)).repairs
        await again.journal.append((said("m10"),))
        await again.journal.close()
        sums, _ = await places.copy(target, back)
        assert dict(sums.outcomes) == {"unchanged": 1}  # it went on there, and nothing is missing

    run(places, body)


@pytest.mark.parametrize("way", ["into the database", "out of it"])
def test_another_session_of_an_id_stays_as_it_is(places: Places, way: str) -> None:
    """SCL-1: it is refused in a line, and nothing of it changes; the others are copied."""

    async def body() -> None:
        source, target = places.files(), places.postgres()
        if way == "out of it":
            source, target = target, source
        of, to = places.home(source), places.home(target)
        for home, text in ((of, "here"), (to, "there")):
            await (await begun(home, "s1", (said("m1", text),))).journal.close()
        await (await begun(of, "s2", (said("m1"),))).journal.close()
        before = (await kept(to))["s1"]
        for _ in range(2):
            sums, told = await places.copy(source, target)
            (refused,) = [one for one in told if one.outcome == "refused"]
            assert refused.session == "s1" and "another session of this id" in refused.said[0]
            assert not sums.is_whole and (await kept(to))["s1"] == before
        assert (await kept(to))["s2"] == (await kept(of))["s2"]
        written = await to.open("s2")
        more = await of.open("s2")
        await more.journal.append((said("m2"),))
        await more.journal.close()
        _, told = await places.copy(source, target)
        (busy,) = [one for one in told if one.session == "s2"]
        assert busy.outcome == "failed" and "is being written by" in busy.said[0]
        await written.journal.close()

    run(places, body)


def test_two_projects_with_one_id(places: Places) -> None:
    """SCL-1: another store has one session of an id: the second is refused, and not mixed with the first."""

    async def body() -> None:
        source, target = places.files(), places.postgres()
        of = places.home(source)
        for project in ("/srv/a", "/srv/b"):
            made = await of.create("s1", project=project, created=1.0)
            await made.journal.append((said(project),))
            await made.journal.close()
        sums, told = await places.copy(source, target)
        assert not sums.is_whole and "copied" not in sums.outcomes
        assert any("session of this id" in text for one in told for text in one.said)

    run(places, body)


def _damaged(path: Path, kind: str) -> None:
    data = path.read_bytes()
    lines = data.splitlines(keepends=True)
    match kind:
        case "a byte":
            at = len(lines[0]) + len(lines[1]) // 2
            path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        case "a line":
            path.write_bytes(b"".join([*lines[:2], *lines[3:]]))
        case "the end":
            path.write_bytes(b"".join(lines[:-1]))
        case "the header":
            path.write_bytes(b"nonsense\n" + b"".join(lines[1:]))
        case "the order":
            path.write_bytes(b"".join([lines[0], lines[2], lines[1], *lines[3:]]))


@pytest.mark.parametrize("kind", ["a byte", "a line", "the end", "the header", "the order"])
def test_a_damaged_session_isnt_taken_for_whole(places: Places, kind: str) -> None:
    """SCL-1, ENG-9: what can be read of it is copied, the copy says in its journal that it isn't all, and so are we."""

    async def body() -> None:
        source, target = places.files(), places.postgres()
        of, to = places.home(source), places.home(target)
        made = await begun(of, "s1", *[(said(f"m{number}", "word " * 20),) for number in range(5)])
        await made.journal.close()
        await (await begun(of, "s2", (said("m1"),))).journal.close()
        (path,) = places.folder.glob(f"one/**/s1/{JOURNAL}")
        _damaged(path, kind)
        source_bytes = path.read_bytes()
        readable = [p.record for p in (await of.load("s1")).records]
        for outcome in ("copied", "unchanged"):
            sums, told = await places.copy(source, target)
            (one,) = [one for one in told if one.session == "s1"]
            assert one.outcome == outcome and one.is_damaged and "is damaged" in one.said[0]
            assert not sums.is_whole
        first, *records = [p.record for p in (await to.load("s1")).records]
        assert "copied from a damaged journal" in first.what  # type: ignore[union-attr]
        assert records == readable and len(records) >= 4
        assert path.read_bytes() == source_bytes and not list(path.parent.glob(f"{JOURNAL}.*"))
        opened = await to.open("s1")
        assert not (await opened.journal.load(whole=True)).repairs
        await opened.journal.close()

    run(places, body)


def test_a_torn_end_is_told(places: Places) -> None:
    """SCL-1: bytes that are no line yet, or never were acknowledged, don't come along, and aren't passed over."""

    async def body() -> None:
        source, target = places.files(), places.postgres()
        of = places.home(source)
        await (await begun(of, "s1", (said("m1"),), (said("m2"),))).journal.close()
        (path,) = places.folder.glob(f"one/**/{JOURNAL}")
        whole = path.read_bytes()
        path.write_bytes(whole + b'{"seq":3,"rec')
        _, told = await places.copy(source, target)
        assert told[0].outcome == "copied" and "13 bytes at the end" in told[0].said[0]
        assert (await kept(places.home(target)))["s1"][0] == whole

    run(places, body)


def test_a_damaged_blob_is_told(places: Places) -> None:
    """SCL-1: the others come along; and `verifies` puts right what is damaged in the target."""

    async def body() -> None:
        source, target = places.files(), places.files("two")
        of, to = places.home(source), places.home(target)
        made = await begun(of, "s1", (said("m1"),))
        good, bad = await made.blobs.put((b"good", b"bad"))
        await made.journal.close()
        (path,) = places.folder.glob(f"one/**/{bad}")
        stored = path.read_bytes()
        path.write_bytes(b"=other")
        sums, told = await places.copy(source, target)
        assert told[0].outcome == "copied" and told[0].is_damaged and "damaged" in told[0].said[0]
        assert list((await kept(to))["s1"][1]) == [good] and not sums.is_whole
        path.write_bytes(stored)
        assert (await places.copy(source, target))[0].blobs == 0
        sums, told = await places.copy(source, target, verifies=True)
        assert sums.blobs == 1 and sums.is_whole
        (path,) = places.folder.glob(f"two/**/{good}")
        path.write_bytes(b"=other")
        sums, _ = await places.copy(source, target, verifies=True)
        assert sums.blobs == 1 and await kept(to) == await kept(of)

    run(places, body)


def test_what_only_files_can_keep_is_said(places: Places) -> None:
    """SCL-1: checkpoints and sub-agents' sessions don't come along, and neither do settings."""

    async def body() -> None:
        source, target = places.files(), places.postgres()
        made: Any = await begun(places.home(source), "s1", (said("m1"),))
        await made.journal.close()
        for name in ("checkpoints/objects", "agents/a1", "agents/a2"):
            (made.directory / name).mkdir(parents=True)
        (made.home / "config.toml").write_text("[models]\n")
        sums, _ = await places.copy(source, target)
        assert dict(sums.stays) == {"sessions' checkpoints": 1, "sub-agents' sessions": 2, "config.toml": 1}

    run(places, body)


def test_a_tenant_whose_name_files_can_not_have_stops_no_other(places: Places) -> None:
    """SCL-1, SEC-7: nothing is written outside of the target; what stays behind is said."""

    async def body() -> None:
        source, target = places.postgres(), places.files()
        bad = f"../../{places.tenant}"
        for tenant in (bad, places.tenant):
            made = await begun(source.home(tenant), "s1", (said("m1"),))
            await made.journal.close()
        sums = CopySums()
        work = StoreCopy(source, target, sums, on_session=lambda _: None, on_progress=lambda *_: None)
        await work.run((bad, places.tenant))
        assert dict(sums.outcomes) == {"copied": 1} and not sums.is_whole
        assert len(sums.wrong) == 1 and bad in sums.wrong[0] and "not the name of a tenant" in sums.wrong[0]
        assert list(await target.tenants()) == [places.tenant]
        assert [path.name for path in places.folder.iterdir()] == ["one"]

    run(places, body)


def test_the_newer_document_counts(places: Places) -> None:
    """SCL-1: what was written in the target since then isn't overwritten by the next run."""

    async def body() -> None:
        source, target = places.files(), places.postgres()
        of, to = contents_of(places.home(source)), contents_of(places.home(target))

        async def state(contents: HomeContents) -> dict[str, bytes | None]:
            return {name: await contents.document("conversations", name) for name in ("a", "b", "c")}

        for name in ("a", "b", "c"):
            await of.keep_document("conversations", name, b"1", 100.0)
        await places.copy(source, target)
        await of.keep_document("conversations", "a", b"2", 200.0)
        await to.keep_document("conversations", "b", b"3", 300.0)
        sums, _ = await places.copy(source, target)
        assert dict(+sums.beside) == {"documents": 1}
        assert await state(to) == {"a": b"2", "b": b"3", "c": b"1"}

    run(places, body)


def test_blobs_of_a_copy_that_failed_are_deleted_from_the_bucket(
    places: Places, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, postgres_server: PostgresServer
) -> None:
    """SCL-1, SCL-6: the session never was; what was put for it is written down to be deleted, and then isn't there."""
    places.database = request.getfixturevalue("postgres_with_bucket")[0]
    database = places.database.rpartition("/")[2]

    def due() -> int:
        rows = postgres_server.execute(
            "SELECT count(*) FROM perdure.blob_deletions WHERE session IS NOT NULL",
            url=postgres_server.url_of(database),
        )
        return int(rows[0][0])

    async def lost(*_: Any) -> None:
        raise JournalError("the connection was lost")

    async def body() -> None:
        source, target = places.files(), places.postgres()
        made = await begun(places.home(source), "s1", (said("m1"),))
        await made.blobs.put((b"an image",))
        await made.journal.close()
        before = due()
        with monkeypatch.context() as patched:
            patched.setattr("perdure.adapters.postgres.contents.PostgresSessionWriting.publish", lost)
            _, told = await places.copy(source, target)
        assert told[0].outcome == "failed" and due() == before + 1 and await kept(places.home(target)) == {}
        assert (await places.copy(source, target))[0].is_whole
        assert due() == before + 1 and await kept(places.home(target)) == await kept(places.home(source))

    run(places, body)


@pytest.mark.parametrize("way", ["into the database", "out of it"])
def test_memories_move_with_their_log(places: Places, way: str) -> None:
    """SCL-1, MEM-9: as they are, also their age; the log says which side went on; what parted is told and stays."""

    async def body() -> None:
        source, target = places.files(), places.postgres()
        if way == "out of it":
            source, target = target, source
        of, to = places.home(source), places.home(target)
        await (await begun(of, "s1")).journal.close()  # which says what the project's path is
        await remember(of, "build.md", "Use make.\n")
        await remember(of, "tests.md", "They are in tests/.\n")
        sums, _ = await places.copy(source, target)
        assert dict(+sums.beside)["directories of memories"] == 1 and sums.is_whole and not +sums.stays
        assert await remembered(to) == await remembered(of) and len((await remembered(to))[0]) == 2
        await remember(of, "build.md", "Use ninja.\n")
        assert (await places.copy(source, target))[0].is_whole
        assert await remembered(to) == await remembered(of)
        await remember(to, "new.md", "Only there.\n")
        there = await remembered(to)
        sums, _ = await places.copy(source, target)
        assert sums.is_whole and not +sums.beside and await remembered(to) == there
        await remember(of, "other.md", "Only here.\n")
        sums, _ = await places.copy(source, target)
        assert not sums.is_whole and "are others, and stay" in sums.wrong[0] and await remembered(to) == there

    run(places, body)


def test_memories_of_a_folder_that_nobody_knows_are_said(places: Places) -> None:
    """SCL-1: the name of a folder doesn't give the path of its project back; a session of it, or below it, does."""

    async def body() -> None:
        source, target = places.files(), places.postgres()
        of = places.home(source)
        await remember(of, "build.md", "Use make.\n")
        sums, _ = await places.copy(source, target)
        assert dict(+sums.stays) == {"memory of projects": 1} and not +sums.beside
        made = await of.create("s1", project="/srv/project/below", created=1.0)
        await made.journal.close()
        sums, _ = await places.copy(source, target)
        assert not +sums.stays and await remembered(places.home(target)) == await remembered(of)

    run(places, body)


def test_what_reads_back_otherwise_is_not_kept(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """SCL-1: a target that changes what it is given is found out before anybody sees the session, on both kinds."""
    from perdure.adapters.journal.contents import FileSessionWriting
    from perdure.adapters.postgres.journal import JournalRow

    real_take, real_read = FileSessionWriting.take, JournalRow.read.__func__  # type: ignore[attr-defined]

    def take(self: FileSessionWriting, lines: Sequence[bytes]) -> None:
        real_take(self, [line.replace(b"hello", b"hullo") for line in lines])

    def read(cls: type[JournalRow], line: bytes, offset: int, records: tuple[Record, ...]) -> JournalRow:
        return real_read(cls, line.replace(b"hello", b"hullo"), offset, records)  # type: ignore[no-any-return]

    async def body() -> None:
        source = places.files()
        await (await begun(places.home(source), "s1", (said("m1", "hello"),))).journal.close()
        for target in (places.files("two"), places.postgres()):
            with monkeypatch.context() as patched:
                patched.setattr(FileSessionWriting, "take", take)
                patched.setattr(JournalRow, "read", classmethod(read))
                sums, told = await places.copy(source, target)
            assert told[0].outcome == "failed" and "reads back otherwise" in told[0].said[0] and not sums.is_whole
            assert await kept(places.home(target)) == {}
            assert (await places.copy(source, target))[0].is_whole
            assert await kept(places.home(target)) == await kept(places.home(source))

    run(places, body)


def test_a_store_that_goes_away_ends_the_run(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """SCL-1: one line, instead of one for each session."""

    async def body() -> None:
        source, target = places.files(), places.postgres()
        for number in range(3):
            await (await begun(places.home(source), f"s{number}", (said("m1"),))).journal.close()

        async def gone() -> Sequence[str]:
            raise JournalError("the database is away")

        async def broken(*_: Any, **__: Any) -> None:
            raise JournalError("no connection")

        monkeypatch.setattr("perdure.adapters.postgres.contents.PostgresSessionWriting.append", broken)
        monkeypatch.setattr(target, "tenants", gone)
        with pytest.raises(JournalError, match="the database is away"):
            await places.copy(source, target)

    run(places, body)


# --- the law of the round trip ----------------------------------------------------------------------------------------

_texts = st.text(max_size=40) | st.sampled_from(["", "x" * 5000, "\u2028", "\x00", '"}\n{"seq":1,', "🦭" * 300])
_lines = st.lists(st.lists(_texts, min_size=1, max_size=3), max_size=8)


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:Generating overly large repr")  # else it hides what failed
@settings(examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(sessions=st.lists(_lines, min_size=1, max_size=3), cuts=st.lists(st.integers(0, 8), min_size=3, max_size=3))
def test_there_and_back_again(places: Places, sessions: list[list[list[str]]], cuts: list[int]) -> None:
    """SCL-1: files, database, files: the same bytes, also when sessions grow between two runs."""
    places.tenant = f"t{secrets.token_hex(8)}"

    async def body() -> None:
        source, middle, back = places.files(), places.postgres(), places.files("two")
        of = places.home(source)

        async def grow(number: int, lines: list[list[str]]) -> None:
            name = f"s{number}"
            stored = await (of.open(name) if await of.has(name) else of.create(name, project="/srv/p", created=1.0))
            for at, texts in enumerate(lines):
                await stored.blobs.put((f"{texts}".encode("utf-8", "surrogatepass"),))
                records: tuple[Record, ...] = tuple(said(f"{secrets.token_hex(4)}", text) for text in texts)
                await stored.journal.append((*records, boundary(f"b{at}")) if at % 3 == 2 else records)
            await stored.journal.close()

        try:
            for part in (False, True):
                for number, lines in enumerate(sessions):
                    await grow(number, lines[cuts[number] :] if part else lines[: cuts[number]])
                for store, other in ((source, middle), (middle, back)):
                    sums, told = await places.copy(store, other)
                    assert sums.is_whole, [(one.outcome, one.said) for one in told]
            assert await kept(places.home(back)) == await kept(of) == await kept(places.home(middle))
        finally:
            for store in (source, middle, back):
                await store.close()

    asyncio.run(body())


def _without_place(body: bytes) -> bytes:
    """A request without the words that say where a command finds the original."""
    return re.sub(rb"and so does a shell [^.]*\.", b"", body)


@pytest.mark.nightly
@pytest.mark.skipif(not DATA.is_dir(), reason="there are no recordings")
def test_recordings_there_and_back_make_the_same_next_request(places: Places) -> None:
    """SCL-1, SCL-4: real sessions, with their blobs; each goes on with the request that it would have made."""
    logs = sorted((DATA / "claude_code").rglob("*.jsonl"), key=lambda path: path.stat().st_size)[:4]
    logs += sorted((DATA / "codex").rglob("*.jsonl"), key=lambda path: path.stat().st_size)[:2]
    assert len(logs) == 6

    async def body() -> None:
        source, middle, back = places.files(), places.postgres(), places.files("two")
        of = places.home(source)
        imports = LogImports(Path(of.name), Settings(), Path("/srv/p"), has_many=True)
        for log in logs:
            await imports.take(log, lambda _: None)
        assert (await places.copy(source, middle))[0].is_whole
        assert (await places.copy(middle, back))[0].is_whole
        journals, returned = (
            {path.parent.name: path for path in places.folder.glob(f"{name}/**/{JOURNAL}")} for name in ("one", "two")
        )
        assert len(journals) >= 6 and returned.keys() == journals.keys()
        for name, path in journals.items():
            assert path.read_bytes() == returned[name].read_bytes()
        assert await kept(places.home(back)) == await kept(of)
        for name in journals:
            bodies = []
            for store in (source, middle, back):
                session = await open_session(places.home(store), name)
                bodies.append((await prepare(session)).request.body)
                await session.close()
            assert bodies[0] == bodies[2]
            # In a database, a person is told of another way to recall what was moved out.
            assert _without_place(bodies[0]) == _without_place(bodies[1])

    run(places, body)
    shutil.rmtree(places.folder)
