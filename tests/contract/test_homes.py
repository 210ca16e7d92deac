"""What every store of homes does (SCL-1, SCL-3, SCL-4, SCL-6): one suite for all of `STORES`.

A store under test is made anew for each test, as a `Place`: what several processes have in common. Each `Place.store()`
is a process of its own.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace
from tests.gateways import lose_index

from perdure.adapters.journal import FileStore
from perdure.adapters.journal.home import FileHome
from perdure.adapters.journal.memory_home import MemoryHomes
from perdure.adapters.journal.store import SessionStore
from perdure.errors import JournalError, JournalLost, SessionBusy, SessionNotFound
from perdure.ports.home import Home, KnownLink, Store
from perdure.ports.session import LoadedJournal
from perdure.transcript.blocks import text_block
from perdure.transcript.codec import encode_header, encode_line
from perdure.transcript.history import CLIENT, NAMED, HistoryPosition
from perdure.transcript.messages import BlobId, Message, MessageId, content_of
from perdure.transcript.records import Compacted, Cursor, Noted, Record, Titled, Undone

pytestmark = pytest.mark.contract

STORES = ("files", "memory", "postgres", "pooled", "bucket")  # pooled: behind a transaction pooler
PROJECT = "/srv/project"


class Place:
    """Where the stores of a test are: `store` opens one more, as another process would."""

    def __init__(self, kind: str, make: Callable[..., Store]) -> None:
        self.kind = kind
        self._make = make
        self.opened: list[Store] = []

    def store(self, **more: Any) -> Store:
        self.opened.append(self._make(**more))
        return self.opened[-1]


@pytest.fixture(params=STORES)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def place(kind: str, request: pytest.FixtureRequest) -> Iterator[Place]:
    if kind == "files":
        folder = request.getfixturevalue("tmp_path")
        yield Place(kind, lambda **_: FileStore(folder))
        return
    if kind == "memory":
        shared = MemoryHomes(waits=0.5)
        yield Place(kind, lambda **_: shared)
        return
    from perdure.adapters.postgres.store import PostgresStore

    asked = request.getfixturevalue
    url = asked(kind) if kind != "bucket" else asked("postgres_with_bucket")[0]
    yield Place(kind, lambda **more: PostgresStore(url, **{"waits": 0.2, **more}))


def run(place: Place, body: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        try:
            await body()
        finally:
            for store in place.opened:
                await store.close()

    anyio.run(main)


def in_home(place: Place, body: Callable[[Home], Awaitable[None]]) -> None:
    """Run it in a new home."""

    async def main() -> None:
        await body(place.store().home(new_name()))

    run(place, main)


def new_name() -> str:
    return f"t{secrets.token_hex(8)}"


def said(name: str, text: str = "hello", role: Any = "user") -> Message:
    more: Any = {"origin": "user"} if role == "user" else {"origin": "model", "model": "m"}
    return Message(id=MessageId(name), role=role, content=content_of([text_block(text)]), **more)


def boundary(name: str, *, kept: tuple[str, ...] = (), kept_from: int = 0) -> Compacted:
    return Compacted(
        id=name,
        trigger="auto",
        strategy="full",
        summary=(said(f"{name}-summary"),),
        kept=tuple(MessageId(k) for k in kept),
        kept_from=kept_from,
    )


def names(loaded: LoadedJournal) -> list[str]:
    return [getattr(p.record, "id", type(p.record).__name__) for p in loaded.records]


async def begun(home: Home, session: str = "s1", *records: Record, **more: Any) -> Any:
    """A new session with these records, a line each."""
    made = await home.create(session, project=PROJECT, created=1.5, **more)
    for record in records:
        await made.journal.append((record,))
    return made


# --- journals ---------------------------------------------------------------------------------------------------------


def test_a_new_session_is_empty_and_is_there(place: Place) -> None:
    """SCL-1: what was made can be found, opened and loaded."""

    async def body(home: Home) -> None:
        assert not await home.has("s1")
        made = await begun(home)
        assert await made.journal.load() == LoadedJournal(header=made.header, records=(), whole=True)
        assert await home.has("s1") and not await home.has("s")
        assert (made.header.session, made.header.project, made.header.created) == ("s1", PROJECT, 1.5)
        await made.journal.close()

    in_home(place, body)


def test_records_come_back_in_order_with_their_place(place: Place) -> None:
    """SCL-1, ENG-3: numbers count lines from 1; records of one append share its line; a reader sees the same."""

    async def body(home: Home) -> None:
        made = await begun(home)
        first = await made.journal.append((said("a"), said("b")))
        second = await made.journal.append((Noted(kind="x", data={"n": [1, {"m": None}]}),))
        assert (first.seq, second.seq) == (1, 2) and 0 < first.offset < second.offset
        loaded = await made.journal.load()
        assert names(loaded) == ["a", "b", "Noted"] and loaded.whole and loaded.repairs == ()
        assert [(p.seq, p.offset) for p in loaded.records] == [(1, first.offset)] * 2 + [(2, second.offset)]
        assert loaded == await home.load("s1")
        await made.journal.close()

    in_home(place, body)


def test_concurrent_appends_hold_in_the_order_of_the_calls(place: Place) -> None:
    """SCL-1, REL-1: what is written together keeps order and numbers."""

    async def body(home: Home) -> None:
        made = await begun(home)
        receipts: dict[int, Any] = {}

        async def one(number: int) -> None:
            receipts[number] = await made.journal.append((said(f"m{number}", "x" * (number * 37 % 500)),))

        async with anyio.create_task_group() as group:
            for number in range(100):
                group.start_soon(one, number)
        loaded = await made.journal.load()
        assert names(loaded) == [f"m{n}" for n in range(100)]
        assert [(p.seq, p.offset) for p in loaded.records] == [
            (receipts[n].seq, receipts[n].offset) for n in range(100)
        ]
        await made.journal.close()

    in_home(place, body)


def test_bytes_and_offsets_are_those_of_a_file(place: Place, tmp_path: Path) -> None:
    """SCL-1: a journal is the same bytes wherever it stands, so that it can be copied line by line."""
    records: tuple[Record, ...] = (
        said("a"),
        said("é\u2028", "ü" * 300),
        Titled(title="t"),
        Noted(kind="k", data={"x": 1.5}),
    )

    async def body(home: Home) -> None:
        made = await begun(home)
        receipts = [await made.journal.append((record, Noted(kind="n"))) for record in records]
        await made.journal.close()
        file = await SessionStore(tmp_path).create("s1", project=PROJECT, created=1.5)
        assert receipts == [await file.journal.append((record, Noted(kind="n"))) for record in records]
        await file.journal.close()
        text = (file.directory / "journal.jsonl").read_bytes()
        there = await home.load("s1")
        assert encode_header(there.header) == text[: receipts[0].offset]
        for receipt, record in zip(receipts, records, strict=True):
            line = encode_line(receipt.seq, (record, Noted(kind="n")))
            assert text[receipt.offset : receipt.offset + len(line)] == line
        [listed] = await home.sessions()
        assert listed.bytes == len(text)

    in_home(place, body)


def test_loading_starts_at_the_last_boundary(place: Place) -> None:
    """SPD-3, CMP-14: before it only what it kept; the whole journal is there for who asks for it."""

    async def body(home: Home) -> None:
        made = await begun(home, "s1", said("a"), boundary("b1"), said("b"))
        kept = await made.journal.append((said("c"),))
        await made.journal.append((Noted(kind="between"), said("d")))
        await made.journal.append(
            (said("e"), boundary("b2", kept=("c", "e"), kept_from=kept.offset), Titled(title="t"))
        )
        await made.journal.append((said("f"),))
        await made.journal.close()
        opened = await home.open("s1")
        loaded = await opened.journal.load()
        assert names(loaded) == ["c", "e", "b2", "Titled", "f"] and not loaded.whole
        whole = await opened.journal.load(whole=True)
        assert whole.whole and names(whole) == ["a", "b1", "b", "c", "Noted", "d", "e", "b2", "Titled", "f"]
        await opened.journal.append((Undone(id="b2"),))
        assert names(await opened.journal.load())[0] == "b1"
        await opened.journal.append((Undone(id="b1"),))
        assert (await opened.journal.load()).whole
        await opened.journal.close()

    in_home(place, body)


def test_a_boundary_that_keeps_nothing_is_read_from_itself(place: Place) -> None:
    """SPD-3: also when other appends are written together with it."""

    async def body(home: Home) -> None:
        made = await begun(home, "s1", said("a"))
        async with anyio.create_task_group() as group:
            for record in (said("b"), boundary("b1"), said("c")):
                group.start_soon(made.journal.append, (record,))
        assert names(await made.journal.load()) == ["b1", "c"]
        await made.journal.close()

    in_home(place, body)


def test_what_cannot_be_written_harms_nobody_else(place: Place) -> None:
    """REL-10: an append that is refused says why; those beside it and behind it hold."""

    async def body(home: Home) -> None:
        made = await begun(home)
        with pytest.raises(JournalError, match="JSON"):
            await made.journal.append((Noted(kind="x", data={"n": object()}),))
        assert (await made.journal.append((said("a"),))).seq == 1
        assert names(await made.journal.load()) == ["a"]
        await made.journal.close()

    in_home(place, body)


def test_durability_process_is_durable_after_a_sync(place: Place) -> None:
    """REL-1: what was acknowledged so far is there for others after `sync`, and after `close`."""

    async def body(home: Home) -> None:
        made = await begun(home, "s1", said("a"), said("b"), durability="process")
        await made.journal.sync()
        assert names(await home.load("s1")) == ["a", "b"]
        await made.journal.append((said("c"),))
        assert names(await made.journal.load()) == ["a", "b", "c"]
        await made.journal.append((said("d"),))
        await made.journal.close()
        assert names(await home.load("s1")) == ["a", "b", "c", "d"]

    in_home(place, body)


def test_a_closed_journal_takes_nothing(place: Place) -> None:
    """ENG-4: who has closed a session isn't its writer any more; closing twice does no harm."""

    async def body(home: Home) -> None:
        made = await begun(home, "s1", said("a"))
        await made.journal.close()
        await made.journal.close()
        with pytest.raises(JournalError, match="closed"):
            await made.journal.append((said("b"),))
        assert names(await home.load("s1")) == ["a"]

    in_home(place, body)


def test_a_reader_cannot_write(place: Place) -> None:
    """ENG-4: whoever opened a session to read it, while another writes it."""

    async def body(home: Home) -> None:
        made = await begun(home, "s1", said("a"))
        reader = await home.open("s1", read_only=True)
        with pytest.raises(JournalError, match="read-only"):
            await reader.journal.append((said("x"),))
        await made.journal.append((said("b"),))
        assert names(await reader.journal.load()) == ["a", "b"]
        await reader.journal.close()
        await made.journal.append((said("c"),))
        await made.journal.close()

    in_home(place, body)


# --- owners -----------------------------------------------------------------------------------------------------------


def test_a_session_has_one_owner_at_a_time(place: Place) -> None:
    """SCL-3, ENG-4: another one gets `SessionBusy` with a line that says whose it is, until the first has closed it."""

    async def body() -> None:
        tenant = new_name()
        first, second = place.store().home(tenant), place.store().home(tenant)
        made = await begun(first, "s1", said("a"))
        for home in (first, second):
            with pytest.raises(SessionBusy, match="being written by"):
                await home.open("s1")
        await made.journal.close()
        opened = await second.open("s1")
        assert (await opened.journal.append((said("b"),))).seq == 2
        await opened.journal.close()
        assert names(await first.load("s1")) == ["a", "b"]

    run(place, body)


def test_the_same_id_is_made_once(place: Place) -> None:
    """ENG-4: also when several want it at once."""

    async def body() -> None:
        tenant = new_name()
        homes = [place.store().home(tenant) for _ in range(2)]
        made: list[Any] = []
        refused: list[JournalError] = []

        async def make(home: Home) -> None:
            try:
                made.append(await home.create("s1", project=PROJECT, created=1.0))
            except JournalError as e:
                refused.append(e)

        async with anyio.create_task_group() as group:
            for number in range(6):
                group.start_soon(make, homes[number % 2])
        assert len(made) == 1 and len(refused) == 5
        await made[0].journal.close()

    run(place, body)


def test_an_owner_that_rests_lets_others_in_and_goes_on_if_nobody_was(place: Place) -> None:
    """SCL-3: `release` says whether others may come in; whoever was overtaken is told so before it goes on."""

    async def body() -> None:
        tenant = new_name()
        first, second = place.store().home(tenant), place.store().home(tenant)
        made = await begun(first, "s1", said("a"), durability="process")
        await made.journal.append((said("b"),))
        if not await made.journal.release():  # the owner has it for as long as it is open
            with pytest.raises(SessionBusy):
                await second.open("s1")
            await made.journal.hold()
            return await made.journal.close()
        assert names(await second.load("s1")) == ["a", "b"]
        await made.journal.hold()
        with pytest.raises(SessionBusy):
            await second.open("s1")
        await made.journal.append((said("c"),))
        await made.journal.release()
        await made.journal.append((said("d"),))  # which holds it as well
        await made.journal.sync()
        with pytest.raises(SessionBusy):
            await second.open("s1")
        await made.journal.release()
        other = await second.open("s1")
        assert names(await other.journal.load()) == ["a", "b", "c", "d"]
        await other.journal.append((said("e"),))
        await other.journal.release()
        with pytest.raises(JournalLost):
            await made.journal.hold()
        await made.journal.append((said("late"),))
        with pytest.raises(JournalLost):
            await made.journal.sync()
        with pytest.raises(JournalLost):
            await made.journal.close()
        assert names(await first.load("s1")) == ["a", "b", "c", "d", "e"]
        await other.journal.close()

    run(place, body)


def test_an_open_waits_a_moment_for_an_owner_to_rest(place: Place) -> None:
    """SCL-3: two requests of one client may come to two gateways, one right after the other."""

    async def body() -> None:
        tenant = new_name()
        first, second = place.store().home(tenant), place.store(waits=5.0).home(tenant)
        made = await begun(first, "s1", said("a"))
        if not await made.journal.release():
            return await made.journal.close()
        await made.journal.hold()

        async def rest() -> None:
            await anyio.sleep(0.3)
            await made.journal.release()

        async with anyio.create_task_group() as group:
            group.start_soon(rest)
            other = await second.open("s1")
        assert names(await other.journal.load()) == ["a"]
        await other.journal.close()
        with pytest.raises(JournalLost):
            await made.journal.hold()
        await made.journal.close()

    run(place, body)


# --- finding ----------------------------------------------------------------------------------------------------------


def test_a_session_is_named_by_its_id_or_the_beginning_of_one(place: Place) -> None:
    """CLI-6: the only one that begins so; what names none, or several, is said."""

    async def body(home: Home) -> None:
        for session in ("session-abc1", "session-abd2", "session-ab"):
            await (await begun(home, session)).journal.close()
        assert (await home.open("session-abc", read_only=True)).id == "session-abc1"
        assert (await home.open("session-ab", read_only=True)).id == "session-ab"
        with pytest.raises(SessionNotFound, match=r"several|\d sessions"):
            await home.open("session-a", read_only=True)
        for wrong in ("nothing", "", "../etc", "%"):
            with pytest.raises(SessionNotFound):
                await home.open(wrong)
        with pytest.raises(SessionNotFound):
            await home.delete("session-abc")

    in_home(place, body)


@pytest.mark.parametrize("wrong", ["", "a/b", "../x", ".hidden", "a" * 129, "a b", "é", "a\0"])
def test_an_id_that_could_be_a_path_is_refused(place: Place, wrong: str) -> None:
    """SEC-2: wherever sessions stand, the same ids are good."""

    async def body(home: Home) -> None:
        with pytest.raises(JournalError, match="not a session id"):
            await begun(home, wrong)
        assert not list(await home.sessions())

    in_home(place, body)


def test_a_listing_says_what_the_sessions_say_of_themselves(place: Place) -> None:
    """ENG-5: newest first, with title, tags, last prompt and the number of messages; of one project, or of all."""

    async def body(home: Home) -> None:
        first = await begun(home, "s1", said("a", "first question"), said("b", "answer", "assistant"))
        await first.journal.append(
            (Titled(title="A title", tags=("x", "y"), branch="main"), said("c", "second\nquestion"))
        )
        await first.journal.close()
        await anyio.sleep(0.02)
        second = await home.create("s2", project="/srv/other", created=3.0)
        await second.journal.append((Titled(title="Other", client="cli", folder="/f"),))
        await second.journal.close()
        newest, oldest = await home.sessions()
        assert (newest.id, newest.project, newest.title, newest.client, newest.folder) == (
            "s2",
            "/srv/other",
            "Other",
            "cli",
            "/f",
        )
        assert (oldest.id, oldest.title, oldest.tags, oldest.branch) == ("s1", "A title", ("x", "y"), "main")
        assert (oldest.last_prompt, oldest.messages, oldest.created) == ("second question", 3, 1.5)
        assert oldest.problem is None and newest.modified >= oldest.modified > 0
        assert [one.id for one in await home.sessions(PROJECT)] == ["s1"]
        assert [one.id for one in await home.sessions(before=newest.modified + 60)] == ["s2", "s1"]
        assert list(await home.sessions(before=oldest.modified - 60)) == []
        assert [one.id for one in await home.sessions(since=newest.modified)] == ["s2"]
        assert [one.id for one in await home.sessions(ids=("s1", "nobody"))] == ["s1"]
        assert list(await home.sessions(ids=())) == []

    in_home(place, body)


def test_a_listing_comes_in_pages(place: Place) -> None:
    """ENG-5, SCL-1: so many at a time, each behind the last, without a gap or one twice, also in one project."""

    async def body(home: Home) -> None:
        for number in range(7):
            made = await home.create(f"s{number}", project=PROJECT if number % 2 else "/srv/other", created=1.0)
            await made.journal.close()
        everything = [one.id for one in await home.sessions()]
        paged: list[str] = []
        page = await home.sessions(limit=3)
        while page:
            assert len(page) <= 3
            paged += [one.id for one in page]
            page = await home.sessions(behind=page[-1], limit=3)
        assert paged == everything and len(everything) == 7
        first = await home.sessions(PROJECT, limit=1)
        rest = await home.sessions(PROJECT, behind=first[0])
        assert {one.id for one in (*first, *rest)} == {"s1", "s3", "s5"} and len(rest) == 2

    in_home(place, body)


def test_a_part_of_an_id_names_a_session(place: Place) -> None:
    """CLI-6, SCL-1: the one that begins so is meant before one that only holds it; several are none."""

    async def body(home: Home) -> None:
        for name in ("session-abc7", "session-xyzabc", "session-xyz8"):
            await (await home.create(name, project=PROJECT, created=1.0)).journal.close()
        for part, meant in (("session-abc7", "session-abc7"), ("zabc", "session-xyzabc"), ("bc7", "session-abc7")):
            assert (await home.open(part, read_only=True)).id == meant, part
        for part in ("xyz", "session-", "nothing"):
            with pytest.raises(SessionNotFound):
                await home.open(part, read_only=True)

    in_home(place, body)


def test_a_fork_goes_on_from_a_copy(place: Place) -> None:
    """SES-3, SCL-1: messages, blobs and notes come along; boundaries point to where their messages stand now."""

    async def body(home: Home) -> None:
        made = await begun(home, "s1", said("a"))
        kept = await made.journal.append((said("b"),))
        await made.journal.append((boundary("b1", kept=("b",), kept_from=kept.offset),))
        [blob] = await made.blobs.put((b"stored",))
        assert await made.notes.write(b"notes", instead_of=None)
        await home.fork("s1", "s2", created=9.0)
        forked = await home.open("s2")
        assert names(await forked.journal.load()) == ["b", "b1"]
        assert names(await forked.journal.load(whole=True)) == ["a", "b", "b1"]
        assert (forked.header.forked_from, forked.header.created, forked.header.project) == ("s1", 9.0, PROJECT)
        assert await forked.blobs.get(blob) == b"stored" and await forked.notes.read() == b"notes"
        await forked.journal.append((said("c"),))
        assert names(await home.load("s1")) == ["a", "b", "b1"]
        await forked.journal.close()
        past = (await made.journal.load(whole=True)).records[:1]
        await home.fork("s1", "s3", created=9.0, past=past)
        third = await home.open("s3", read_only=True)
        assert names(await third.journal.load()) == ["a"] and await third.notes.read() is None
        with pytest.raises(JournalError, match="there is a session"):
            await home.fork("s1", "s2", created=9.0)
        assert names(await home.load("s2")) == ["a", "b", "b1", "c"]
        await made.journal.close()

    in_home(place, body)


def test_a_deleted_session_is_gone(place: Place) -> None:
    """SES-2: with its blobs and notes; not while somebody writes it. The same id can be made anew."""

    async def body(home: Home) -> None:
        made = await begun(home, "s1", said("a"))
        [blob] = await made.blobs.put((b"stored",))
        with pytest.raises(SessionBusy):
            await home.delete("s1")
        await made.journal.close()
        await home.delete("s1")
        assert not await home.has("s1") and not list(await home.sessions())
        for ask in (home.open, home.load, home.delete):
            with pytest.raises(SessionNotFound):
                await ask("s1")
        again = await begun(home, "s1")
        assert (await again.journal.load()).records == ()
        with pytest.raises(JournalError, match=r"no such blob|there is no blob"):
            await again.blobs.get(blob)
        await again.journal.close()

    in_home(place, body)


# --- beside the journal -----------------------------------------------------------------------------------------------


def test_blobs_come_back_byte_for_byte(place: Place) -> None:
    """RCL-2: the same bytes are one blob, those of a session aren't another's, and an unknown one is an error."""

    async def body(home: Home) -> None:
        made, other = await begun(home, "s1"), await begun(home, "s2")
        contents = (b"", b"plain", b"x" * 100_000, bytes(range(256)) * 50, b"plain")
        blobs = await made.blobs.put(contents)
        assert await made.blobs.put(contents) == blobs and blobs[1] == blobs[4]
        assert [await made.blobs.get(blob) for blob in blobs] == list(contents)
        assert await made.blobs.put(()) == ()
        for blobs_of, name in ((other.blobs, blobs[0]), (home.blobs, blobs[0]), (made.blobs, BlobId("0" * 64))):
            with pytest.raises(JournalError, match=r"no such blob|there is no blob"):
                await blobs_of.get(name)
        with pytest.raises(JournalError, match="not the id of a blob"):
            await made.blobs.get(BlobId("../../etc/passwd"))
        [own] = await home.blobs.put((b"of no session",))
        assert await home.blobs.get(own) == b"of no session"
        assert list(await home.blobs.named(own[:7])) == [own] == list(await home.blobs.named(own))
        assert not await home.blobs.named("xyz") and not await home.blobs.named(blobs[0][:12])
        assert list(await made.blobs.ids()) == sorted(set(blobs)) and list(await home.blobs.ids()) == [own]
        assert not await other.blobs.ids()
        assert await home.blobs.forget(1.0) == 0 and await home.blobs.get(own) == b"of no session"
        assert await home.blobs.forget(4e9) == 1 and not await home.blobs.named(own)
        assert await made.blobs.get(blobs[1]) == b"plain"
        await made.journal.close()
        await other.journal.close()

    in_home(place, body)


def test_notes_are_replaced_only_while_they_are_what_was_read(place: Place) -> None:
    """SM-1, SM-6: in one step; what somebody else wrote meanwhile stays."""

    async def body(home: Home) -> None:
        made = await begun(home)
        notes = made.notes
        assert await notes.read() is None and await notes.custom("template.md") is None
        assert await notes.write(b"one", instead_of=None)
        assert not await notes.write(b"two", instead_of=None) and not await notes.write(b"two", instead_of=b"zero")
        assert await notes.write(b"two", instead_of=b"one") and await notes.read() == b"two"
        asides = set()
        for text in (b"two", b"three"):
            asides.add(await notes.set_aside())
            assert await notes.read() is None
            assert await notes.write(text, instead_of=None)
        assert len(asides) == 2 and notes.path not in asides
        await made.journal.close()

    in_home(place, body)


def test_documents_are_replaced_only_by_who_knows_their_version(place: Place) -> None:
    """SCL-3: of two who change one at once, one is told so; kinds don't see each other's names."""

    async def body(home: Home) -> None:
        documents = home.documents("conversations")
        assert await documents.get("one") is None
        first = await documents.put("one", b"1", instead_of=None)
        assert first is not None and await documents.put("one", b"x", instead_of=None) is None
        second = await documents.put("one", b"2", instead_of=first)
        assert second is not None and second != first and await documents.put("one", b"x", instead_of=first) is None
        found = await documents.get("one")
        assert found is not None and (found.data, found.version) == (b"2", second) and found.modified > 0
        assert await home.documents("usage").get("one") is None
        await documents.delete("one")
        await documents.delete("one")
        assert await documents.get("one") is None
        again = await documents.put("one", b"3", instead_of=None)
        assert again not in (None, first, second)
        assert await documents.among({"one", "two"}) == {"one"} and await documents.among(set()) == set()
        assert await home.documents("others").among({"one"}) == set()
        assert await documents.forget(found.modified - 60) == 0 and await documents.get("one") is not None
        assert await documents.forget(found.modified + 60) == 1 and await documents.get("one") is None

    in_home(place, body)


def test_the_secret_key_is_made_once(place: Place) -> None:
    """SEC-5: also by several processes at once; another home has another one."""

    async def body() -> None:
        tenant = new_name()
        keys: list[bytes] = []

        async def ask() -> None:
            keys.append(await place.store().home(tenant).secret_key())

        async with anyio.create_task_group() as group:
            for _ in range(4):
                group.start_soon(ask)
        assert len(set(keys)) == 1 and len(keys[0]) == 32
        assert await place.store().home(new_name()).secret_key() != keys[0]

    run(place, body)


# --- tenants ----------------------------------------------------------------------------------------------------------


def test_a_home_never_sees_what_another_one_holds(place: Place) -> None:
    """SCL-6: neither sessions nor blobs, documents or keys, though the names are the same."""

    async def body() -> None:
        store = place.store()
        one, two = store.home(new_name()), store.home(new_name())
        made = await begun(one, "s1", said("mine"))
        [blob] = await one.blobs.put((b"mine",))
        await one.documents("d").put("n", b"mine", instead_of=None)
        assert not await two.has("s1") and not list(await two.sessions()) and await two.documents("d").get("n") is None
        with pytest.raises(SessionNotFound):
            await two.open("s1")
        with pytest.raises(JournalError):
            await two.blobs.get(blob)
        other = await begun(two, "s1", said("theirs"))
        await two.documents("d").put("n", b"theirs", instead_of=None)
        await other.journal.close()
        await two.delete("s1")
        assert names(await one.load("s1")) == ["mine"]
        await made.journal.close()

    run(place, body)


def test_a_deleted_tenant_is_gone_and_the_others_are_not(place: Place) -> None:
    """SCL-6: all that a tenant kept goes; the name is free again."""

    async def body() -> None:
        store, tenants = place.store(), (new_name(), new_name())
        for name in tenants:
            home = store.home(name)
            made = await begun(home, "s1", said("a"))
            await made.blobs.put((b"x",))
            await home.documents("d").put("n", b"x", instead_of=None)
            await home.secret_key()
            await made.journal.close()
        await store.delete_tenant(tenants[0])
        await store.delete_tenant(tenants[0])
        assert tenants[0] not in await store.tenants() and tenants[1] in await store.tenants()
        gone = store.home(tenants[0])
        assert not await gone.has("s1") and await gone.documents("d").get("n") is None
        assert names(await store.home(tenants[1]).load("s1")) == ["a"]
        assert (await (await begun(gone, "s1")).journal.load()).records == ()

    run(place, body)


def test_nothing_is_made_before_something_is_kept(place: Place) -> None:
    """SCL-1: asking a home that doesn't exist leaves nothing behind."""

    async def body() -> None:
        store, name = place.store(), new_name()
        home = store.home(name)
        assert not list(await home.sessions()) and await home.documents("d").forget(1e12) == 0
        assert name not in await store.tenants()
        assert 0 <= await store.probe() < 60

    run(place, body)


# --- links and calibrations -------------------------------------------------------------------------------------------


def test_links_find_the_session_that_knows_the_longest_beginning(place: Place) -> None:
    """GW-4: the session that was there first keeps a link; what was forgotten isn't found."""

    async def body() -> None:
        tenant = new_name()
        links, other = place.store().home(tenant).links, place.store().home(tenant).links
        keys = [bytes([n]) * 32 for n in range(6)]
        assert await links.longest(keys) is None and await links.longest([]) is None
        links.enter([KnownLink(keys[0], "s1", 1), KnownLink(keys[1], "s1", 2), KnownLink(keys[1], "s2", 2)])
        links.enter([KnownLink(keys[2], "s2", 3)])
        assert await links.longest(keys[:2]) == ("s1", 2)
        assert await links.longest([keys[5], *keys[:3]]) == ("s2", 3)
        await links.flush()
        assert await other.longest(keys) == ("s2", 3)
        await links.forget("s2")
        assert await links.longest(keys) == ("s1", 2)
        await links.close()
        await other.close()

    run(place, body)


def test_links_find_where_an_answer_ended(place: Place) -> None:
    """GW-6: by the id of the answer, or of an item of it, whatever is in it; as long as its session is known."""

    async def body(home: Home) -> None:
        links, odd = home.links, "resp_é\ud800"
        one, two = KnownLink(b"1" * 32, "s1", 2, "resp_1"), KnownLink(b"2" * 32, "s1", 4, odd)
        links.enter([one, one._replace(answer="item_1"), two])
        assert await links.of_answer("resp_1") == one and await links.of_answer(odd) == two
        assert await links.of_answer("item_1") == one._replace(answer="item_1")
        assert await links.of_answer("resp_2") is None and await links.of_answer("") is None
        links.enter([two._replace(answer="resp_1")])
        assert await links.of_answer("resp_1") == two._replace(answer="resp_1")
        await links.forget("s1")
        assert await links.of_answer("resp_1") is None
        await links.close()

    in_home(place, body)


def test_links_know_the_sessions_of_a_name(place: Place) -> None:
    """GW-4: newest first; a session has one name at a time."""

    async def body(home: Home) -> None:
        links = home.links
        links.name("s1", "mine")
        await links.flush()
        await anyio.sleep(1.1 if place.kind == "files" else 0.01)
        links.name("s2", "mine")
        assert await links.named("mine") == ["s2", "s1"] and await links.named("") == []
        links.name("s2", "other\ud800")
        assert await links.named("mine") == ["s1"] and await links.named("other\ud800") == ["s2"]
        links.name("s2", "")
        assert await links.named("other\ud800") == []
        await links.close()

    in_home(place, body)


def test_links_are_those_of_the_journals(place: Place) -> None:
    """GW-4, SCL-3: what a session appended is found by another process, also when nobody entered it."""
    if place.kind == "memory":
        pytest.skip("what is in memory ends with the process that enters it")

    async def body() -> None:
        tenant = new_name()
        first, second = place.store().home(tenant), place.store().home(tenant)
        made = await first.create("s1", project=str(getattr(first, "path", PROJECT)), created=1.0)
        answer = replace(said("a", role="assistant"), response_id="resp_1")
        position = HistoryPosition(2, b"l" * 32, answer.id)
        named = Cursor(name=NAMED, message=answer.id, digest="mine")
        await made.journal.append((answer, position.cursor(CLIENT), named))
        await made.journal.close()
        assert await second.links.longest([position.link]) == ("s1", position.count)
        assert await second.links.of_answer("resp_1") == KnownLink(position.link, "s1", position.count, "resp_1")
        assert await second.links.named("mine") == ["s1"]
        await second.links.close()

    run(place, body)


def test_calibrations_are_learned_and_remembered(place: Place) -> None:
    """TOK-4: by the sessions that are opened later, also elsewhere."""

    async def body() -> None:
        tenant = new_name()
        store = place.store()
        made = await begun(store.home(tenant), "s1")
        assert store.home(tenant).calibrations.ratio("m") is None
        store.home(tenant).calibrations.learn("m", 1.25)
        assert store.home(tenant).calibrations.ratio("m") == 1.25
        await made.journal.close()
        await store.close()
        other = place.store().home(tenant)
        opened = await other.open("s1")
        assert other.calibrations.ratio("m") == 1.25 and other.calibrations.ratio("other") is None
        await opened.journal.close()

    run(place, body)


# --- searching --------------------------------------------------------------------------------------------------------


async def talked(home: Home, session: str, project: Any, *texts: str) -> None:
    made = await home.create(session, project=project, created=1.0)
    for number, text in enumerate(texts):
        await made.journal.append((replace(said(f"{session}-{number}", text), at=float(number)),))
    await made.journal.close()


def hits(found: Any) -> list[tuple[str, str]]:
    return [(hit.session, hit.message) for hit in found.hits]


def test_only_what_was_said_since_a_time_is_found(place: Place) -> None:
    """CLI-6, RCL-1: a text that was said before and after has its later places only."""

    async def body(home: Home) -> None:
        now = time.time()
        for name, texts, at in (
            ("s1", ("the parser fails", "a parser again"), now - 9_000),
            ("s2", ("the parser fails",), now),
        ):
            made = await home.create(name, project=PROJECT, created=1.0)
            for number, text in enumerate(texts):
                await made.journal.append((replace(said(f"{name}-{number}", text), at=at),))
            await made.journal.close()
        archive = home.archive()
        assert len((await archive.search("parser")).hits) == 2
        (hit,) = (await archive.search("parser", since=now - 60)).hits
        assert (hit.session, hit.snippet, hit.also) == ("s2", "the parser fails", ())
        assert not (await archive.search("parser", sessions=("s1",), since=now - 60)).hits
        assert not (await archive.search("parser", since=now + 60)).hits
        assert len((await archive.search("parser", since=now - 10_000)).hits) == 2

    in_home(place, body)


def test_what_was_said_is_found_in_all_sessions_or_those_of_a_project(place: Place, tmp_path: Path) -> None:
    """RCL-1, SES-2: also what was appended a moment ago; a text that was said twice is one hit."""

    async def body(home: Home) -> None:
        one, two = tmp_path / "one", tmp_path / "two"
        await talked(home, "s1", one, "the parser drops trailing commas", "tests pass", "unrelated words only")
        await talked(home, "s2", two, "another parser, for dates", "tests pass")
        everything = home.archive()
        assert sorted(hits(await everything.search("parser"))) == [("s1", "s1-0"), ("s2", "s2-0")]
        assert hits(await everything.search("parsers trailing comma"))[0] == ("s1", "s1-0")
        assert hits(await home.archive(str(one)).search("parser")) == [("s1", "s1-0")]
        assert hits(await everything.search("parser", sessions=["s2"])) == [("s2", "s2-0")]
        [both] = (await everything.search("tests pass")).hits
        assert len(both.also) == 1 and {both.session, both.also[0][0]} == {"s1", "s2"}
        assert not (await everything.search("nowhere")).hits and not (await everything.search("")).hits
        made = await home.open("s1")
        await made.journal.append((said("new", "a quokka was seen"),))
        [hit] = (await everything.search("QUOKKA")).hits
        assert (hit.session, hit.id, hit.message, hit.role, hit.line) == ("s1", "new", "new", "user", 1)
        assert "quokka" in hit.snippet and hit.journal_offset == (await made.journal.load()).records[-1].offset
        with pytest.raises(SessionBusy):
            await home.delete("s1")
        await made.journal.close()
        await home.delete("s1")
        assert hits(await everything.search("parser")) == [("s2", "s2-0")]
        assert not (await everything.search("quokka")).hits

    in_home(place, body)


def test_sessions_are_ranked_for_a_prompt(place: Place, tmp_path: Path) -> None:
    """MEM-15: by what they were for, what was said and the files they touched; also what was appended a moment ago."""

    async def body(home: Home) -> None:
        one, two = tmp_path / "one", tmp_path / "two"
        await talked(home, "s1", one, "mend the tokenizer", "it drops commas, says the quokka")
        await talked(home, "s2", one, "write the release notes", "done")
        await talked(home, "s3", two, "another tokenizer, for dates")
        everything, own = home.archive(), home.archive(str(one))
        best = (await own.sessions("make the tokenizer faster")).sessions
        assert [one.session for one in best] == ["s1"]
        assert (best[0].title, best[0].words, best[0].score) == ("mend the tokenizer", ("tokenizer",), 1.0)
        assert {one.session for one in (await everything.sessions("tokenizer")).sessions} == {"s1", "s3"}
        assert [one.session for one in (await everything.sessions("who saw a quokka?")).sessions] == ["s1"]
        assert not (await own.sessions("tokenizer", without={"s1"})).sessions
        assert not (await own.sessions("tokenizer", since=time.time())).sessions
        assert not (await own.sessions("zzqq")).sessions
        assert "no words" in (await own.sessions("...")).note
        path = str(one / "src" / "lexing.py")
        call = {"type": "tool_use", "id": "toolu_1", "name": "Write", "input": {"file_path": path, "content": "x"}}
        for name in ("s1", "s2"):
            made = await home.open(name)
            edit = Message.of("assistant", [call], id=MessageId(f"{name}-edit"), origin="model", at=9.0)
            await made.journal.append((edit,))
            await made.journal.close()
        best = (await own.sessions("make the tokenizer faster")).sessions
        assert [one.session for one in best] == ["s1", "s2"]  # which touched the same file
        assert best[0].files == best[1].files and best[0].files[0].endswith("lexing.py")
        await home.delete("s1")
        assert [one.session for one in (await everything.sessions("tokenizer")).sessions] == ["s3"]

    in_home(place, body)


def test_the_best_fit_comes_first_and_odd_queries_harm_nothing(place: Place, tmp_path: Path) -> None:
    """RCL-1: names in camelCase by their parts, scripts without blanks, and what a database could take amiss."""

    async def body(home: Home) -> None:
        texts = (
            "rename getUserName in the handler", "get the user a name", "数据库迁移失败了",
            "it's a 'quoted' \\ back:slash & co", "x" * 5000, "nul \0 and halves", "common words here",
            *(f"common filler {n}" for n in range(30)),
        )  # fmt: skip
        await talked(home, "s1", tmp_path, *texts)
        archive = home.archive()
        for query, first in (
            ("getUserName", "s1-0"), ("common words", "s1-6"), ("迁移", "s1-2"), ("back:slash", "s1-3"),
            ("it's", "s1-3"), ("x" * 5000, "s1-4"), ("halves", "s1-5"),
        ):  # fmt: skip
            assert hits(await archive.search(query))[0] == ("s1", first), query
        for odd in ("'", "\\", "a\0b", "\ud800", ":*", "!(", "&|", "%s %b", "' OR 1=1 --", "😀"):
            await archive.search(odd)

    in_home(place, body)


def test_another_session_of_the_project_is_loaded_whole(place: Place, tmp_path: Path) -> None:
    """RCL-1: with its blobs; one of another project isn't found."""

    async def body(home: Home) -> None:
        await talked(home, "s1", tmp_path / "one", "a", "b")
        await talked(home, "s2", tmp_path / "two", "c")
        loaded, blobs = await home.archive(str(tmp_path / "one")).load("s1")
        assert names(loaded) == ["s1-0", "s1-1"] and loaded.whole
        with pytest.raises(JournalError):
            await blobs.get(BlobId("0" * 64))
        with pytest.raises(SessionNotFound):
            await home.archive(str(tmp_path / "one")).load("s2")
        with pytest.raises(SessionNotFound):
            await home.archive(str(tmp_path / "one")).search("c", sessions=["s2"])

    in_home(place, body)


def test_an_answer_that_began_is_known_by_its_id(place: Place) -> None:
    """GW-11: by the place that it begins behind, from the journal alone; once it is whole, by the place of its end."""
    if place.kind == "memory":
        pytest.skip("what is in memory ends with the process that enters it")

    async def body() -> None:
        tenant = new_name()
        first = place.store().home(tenant)
        made = await first.create("s1", project=str(getattr(first, "path", PROJECT)), created=1.0, durability="process")
        question = said("q")
        asked = HistoryPosition(1, b"k" * 32, question.id)
        await made.journal.append((question, asked.cursor(CLIENT), asked.begun("resp:1")))
        await made.journal.store()
        while_open = place.store().home(tenant)
        assert await while_open.links.of_answer("resp:1") == KnownLink(asked.link, "s1", 1, "resp:1")
        await while_open.links.close()
        answer = replace(said("a", role="assistant"), response_id="resp:1")
        ended = HistoryPosition(2, b"l" * 32, answer.id)
        await made.journal.append((answer, ended.cursor(CLIENT)))
        await made.journal.close()
        second = place.store().home(tenant)
        if isinstance(second, FileHome):  # the journals alone say it
            lose_index(second.path)
        assert await second.links.of_answer("resp:1") == KnownLink(ended.link, "s1", 2, "resp:1")
        await second.links.close()

    run(place, body)


def test_an_index_that_cannot_be_asked_says_so(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """GW-11, finding A2: what is known must never pass for unknown while a disk or a database is away."""
    if place.kind == "memory":
        pytest.skip("it is always there")

    async def body(home: Home) -> None:
        links = home.links
        links.enter([KnownLink(b"1" * 32, "s1", 2, "resp_1")])
        assert await links.longest([b"1" * 32]) == ("s1", 2)
        await links.close()
        with monkeypatch.context() as patched:

            def away(*_: object, **__: object) -> Any:
                raise OSError("no space left") if place.kind == "files" else JournalError("the connection was refused")

            where = "journal.links.FileLinks._open" if place.kind == "files" else "postgres.database.Database.ask"
            patched.setattr(f"perdure.adapters.{where}", away)
            for question in (links.longest([b"1" * 32]), links.of_answer("resp_1"), links.named("mine")):
                with pytest.raises(JournalError):
                    await question
        assert await links.of_answer("resp_1") == KnownLink(b"1" * 32, "s1", 2, "resp_1")
        await links.close()

    in_home(place, body)
