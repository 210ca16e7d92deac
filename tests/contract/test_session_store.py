"""Sessions at home: where they stand, how they are found and listed (ENG-4, ENG-5)."""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.services import FixedClock

from perdure.adapters.journal import DISK, FileBlobs, ListedSession, SessionStore, fork
from perdure.adapters.journal.projects import OWNER, PROJECTS, ProjectFolders, folder_name
from perdure.adapters.journal.store import BLOBS, checked_id, id_for
from perdure.adapters.machine.clock import RandomIds, SystemClock
from perdure.errors import DamagedLine, JournalError, SessionNotFound
from perdure.testing.models import CountingIds
from perdure.transcript.blocks import text_block
from perdure.transcript.messages import Message, MessageId, content_of
from perdure.transcript.records import Record, Titled

pytestmark = pytest.mark.contract


def said(name: str, text: str = "hello", **more: str) -> Message:
    content = content_of([text_block(text)])
    return Message(id=MessageId(name), role="user", content=content, origin="user", agent_id=more.get("agent_id"))


def made(
    home: Path, session: str, *lines: tuple[Record, ...], project: str = "/home/ann/proj", created: float = 5.0
) -> Path:
    async def body() -> Path:
        files = await SessionStore(home).create(session, project=project, created=created, durability="process")
        for records in lines:
            await files.journal.append(records)
        await files.journal.close()
        return files.directory

    return anyio.run(body)


def listed(home: Path) -> ListedSession:
    (info,) = SessionStore(home).list()
    return info


def test_the_layout_is_private(tmp_path: Path) -> None:
    """ENG-4: directories 0700, files 0600, whatever the umask."""
    before = os.umask(0)
    try:
        directory = made(tmp_path / "home", "s1", (said("m1"),))
    finally:
        os.umask(before)
    assert directory == tmp_path / "home" / PROJECTS / folder_name("/home/ann/proj") / "s1"
    for path in (tmp_path / "home").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    assert sorted(p.name for p in directory.iterdir()) == ["journal.jsonl", "journal.mark", "lock"]


def test_a_project_has_a_folder_of_its_own(tmp_path: Path) -> None:
    """ENG-4: its real path, composed, with dashes for people, and a digest that tells `a-b` from `a/b`."""
    assert re.fullmatch("-home-ann-My-proj-x_[0-9a-f]{16}", folder_name("/home/ann/My proj.x"))
    assert folder_name("/x/e\u0301") == folder_name("/x/\u00e9")
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert folder_name(tmp_path / "link") == folder_name(tmp_path / "real")
    alike = ["/x/a-b", "/x/a/b", "/x/a.b", "/x/a b", "/x/a_b", *(f"/x{'/y' * 300}{end}" for end in ("", "/", "z"))]
    assert len({folder_name(path) for path in alike}) == len({os.path.realpath(path) for path in alike})
    assert max(len(folder_name(path)) for path in alike) <= 220


def test_projects_that_are_called_alike_have_sessions_of_their_own(tmp_path: Path) -> None:
    """ENG-4: listed, opened and named by their project alone."""
    store = SessionStore(tmp_path)
    made(tmp_path, "s1", project="/x/a-b")
    made(tmp_path, "s2", project="/x/a/b")
    made(tmp_path, "s1", project="/x/a/b")
    assert [info.project for info in store.list("/x/a-b")] == ["/x/a-b"]
    assert sorted(path.name for path in store.newest("/x/a/b")) == ["s1", "s2"]
    with pytest.raises(SessionNotFound):
        store.named("s2", project="/x/a-b")


def of_before(home: Path, session: str, project: str, *, folder: str = "-x-a-b", created: float = 1.0) -> Path:
    """A session as homes have them that were made before a folder's name had a digest."""
    directory = made(home, session, (said(f"m-{session}"),), project=project, created=created)
    before = home / PROJECTS / folder / session
    before.parent.mkdir(exist_ok=True)
    return directory.rename(before)


def test_sessions_of_before_are_found_by_the_project_in_their_headers(tmp_path: Path) -> None:
    """ENG-4, SES-2: in a folder that several projects share, each has its own; what was moved there by hand stays."""
    store = SessionStore(tmp_path)
    dashed, nested = of_before(tmp_path, "s1", "/x/a-b"), of_before(tmp_path, "s2", "/x/a/b")
    moved = of_before(tmp_path, "s3", "/gone/elsewhere")
    assert set(store.directories("/x/a-b")) == {dashed, moved}
    assert set(store.directories("/x/a/b")) == {nested, moved}
    assert set(store.directories()) == {dashed, nested, moved}
    assert store.directory("s1", project="/x/a-b") == dashed
    assert store.directory("s1", project="/x/a/b").parent.name == folder_name("/x/a/b")
    with pytest.raises(JournalError, match="open it instead"):
        made(tmp_path, "s1", project="/x/a-b")
    made(tmp_path, "s1", project="/x/a/b")


@pytest.mark.parametrize("oldest", ["/x/a-b", "/x/a/b"])
def test_memories_of_before_are_those_of_the_project_that_began(tmp_path: Path, oldest: str) -> None:
    """ENG-4, MEM-1: of two that shared a folder one has them, for good, also once its sessions are deleted."""
    other = {"/x/a-b": "/x/a/b", "/x/a/b": "/x/a-b"}[oldest]
    of_before(tmp_path, "s1", oldest, created=1.0)
    of_before(tmp_path, "s2", other, created=2.0)
    shared = tmp_path / PROJECTS / "-x-a-b" / "memory"
    shared.mkdir()
    assert ProjectFolders(tmp_path, other).place("memory").parent.name == folder_name(other)
    assert ProjectFolders(tmp_path, oldest).place("memory") == shared
    SessionStore(tmp_path).delete("s1")
    assert ProjectFolders(tmp_path, other).place("memory").parent.name == folder_name(other)
    assert ProjectFolders(tmp_path, oldest).place("memory") == shared


def test_memories_of_before_without_a_session_are_those_of_the_first_that_comes(tmp_path: Path) -> None:
    """ENG-4, MEM-1: where a client's plugin alone wrote them, and never another's."""
    shared = tmp_path / PROJECTS / "-x-a-b" / "memory"
    shared.mkdir(parents=True)
    assert [ProjectFolders(tmp_path, one).place("memory") == shared for one in ("/x/a-b", "/x/a/b")] == [True, False]
    assert sorted(path.name for path in shared.parent.iterdir()) == ["memory", OWNER]
    own = ProjectFolders(tmp_path, "/y/c-d").place("memory")
    assert own.parent.name == folder_name("/y/c-d") and not own.exists()


def test_a_session_that_is_there_is_not_made_again(tmp_path: Path) -> None:
    made(tmp_path, "s1", (said("m1"),))
    with pytest.raises(JournalError, match="open it instead"):
        made(tmp_path, "s1")
    made(tmp_path / "other", "s1")


@pytest.mark.parametrize("session", ["", "../s", "a/b", ".hidden", "a b", "x" * 200, "a\n"])
def test_session_ids_are_plain_names(tmp_path: Path, session: str) -> None:
    """ENG-4: an id never leads anywhere else."""
    with pytest.raises(JournalError, match="not a session id"):
        made(tmp_path, session)


def test_what_others_call_a_conversation_becomes_an_id(tmp_path: Path) -> None:
    """LIB-4: the name itself where that can be; nothing that looks alike becomes one, and owners have their own."""
    for plain in ("run-7_b", "550e8400-e29b-41d4-a716-446655440000", "0" * 24, "langchain-" + "a" * 32):
        assert id_for(plain) == plain
    names = ["a/b", "a:b", "A-B", "a-B", "ann@example.org", "_a", "-", "memory", "日本", "x" * 200, "", "?", "\ud800"]
    names += ["\ud801", "a" * 50 + "/", "a" * 51 + "/", "a\n", "a\0b", "../a", '["a", "b"]', *map(id_for, names)]
    owned = [("a/b", "ann"), ("run-7_b", "ann"), ("c", "a b"), ("b c", "a"), ("", "a b c"), ("a b c", "")]
    ids = [*map(id_for, names), *(id_for(name, owner=owner) for name, owner in owned), "a-b"]
    assert len({one.casefold() for one in ids}) == len(ids) and ids[0].startswith("a-b-")
    assert id_for("ann@example.org").startswith("ann-example-org-")
    for identity in ids:
        made(tmp_path, identity)


_NAMES = st.text() | st.text("aA-_/: 0f", max_size=30) | st.text().map(id_for)


@given(_NAMES, _NAMES, st.sampled_from(["", "ann", "a b"]), st.sampled_from(["", "ann", "a b"]))
def test_no_two_names_have_one_id(one: str, other: str, owner: str, another: str) -> None:
    """LIB-4, ENG-4: whoever chooses the names, also by what ids look like; and every id is one."""
    ids = id_for(one, owner=owner), id_for(other, owner=another)
    assert (ids[0].casefold() == ids[1].casefold()) == ((one, owner) == (other, another))
    assert [checked_id(identity) for identity in ids] == [*ids]


def test_sessions_are_found_by_id_beginning_and_path(tmp_path: Path) -> None:
    one, two = made(tmp_path, "abc-1"), made(tmp_path, "abd-2", project="/elsewhere")
    store = SessionStore(tmp_path)
    made(tmp_path, "abc-12")
    assert store.locate("abc-1") == one and store.locate("abd") == two
    assert store.locate(two) == store.locate(two / "journal.jsonl") == store.locate(str(two)) == two.resolve()
    with pytest.raises(JournalError, match=r"names 3 sessions: .*abc-1, .*; give more of the id"):
        store.locate("ab")
    for nothing in ("zzz", "", "../abc-1", str(tmp_path / "none")):
        with pytest.raises(JournalError):
            store.locate(nothing)


def test_the_memory_of_a_project_is_no_session(tmp_path: Path) -> None:
    """ENG-4, MEM-1: it stands beside the sessions, so none may have its name."""
    directory = made(tmp_path, "one", (said("m1"),))
    (directory.parent / "memory").mkdir()
    assert [info.id for info in SessionStore(tmp_path).list()] == ["one"]
    with pytest.raises(SessionNotFound):
        SessionStore(tmp_path).locate("mem")
    with pytest.raises(JournalError, match="not a session id"):
        made(tmp_path, "memory", (said("m1"),), project="/elsewhere")


def test_a_deleted_session_is_gone(tmp_path: Path) -> None:
    made(tmp_path, "s1")
    kept = made(tmp_path, "s2")
    SessionStore(tmp_path).delete("s1")
    assert [info.id for info in SessionStore(tmp_path).list()] == ["s2"]
    assert list(kept.parent.iterdir()) == [kept]


def test_a_short_session_is_listed_wholly(tmp_path: Path) -> None:
    """ENG-5: the newest metadata hold, field by field; what was said later than they were is newer."""
    made(
        tmp_path,
        "s1",
        (said("m1", "first"), Titled(title="Old", tags=("a", "b"))),
        (said("m2", "second"), said("x", "not this", agent_id="agent-1")),
        (Titled(title="New", branch="main"),),
    )
    info = listed(tmp_path)
    assert (info.title, info.tags, info.branch, info.last_prompt) == ("New", ("a", "b"), "main", "second")
    assert (info.messages, info.created, info.project, info.problem) == (3, 5.0, "/home/ann/proj", None)
    assert info.bytes == (info.directory / "journal.jsonl").stat().st_size


@pytest.mark.parametrize("between_bytes", [1_000, 50_000, 65_000, 80_000, 130_000, 131_000, 500_000])
def test_a_long_session_is_listed_by_its_ends(tmp_path: Path, between_bytes: int) -> None:
    """ENG-5: the last 64 KiB hold the re-appended metadata; messages since are counted on."""
    filler = tuple((said(f"f{n}", "x" * 900),) for n in range(between_bytes // 1000))
    last = Titled(title="T", messages=1 + len(filler), last_prompt="as recorded", tags=())
    made(tmp_path, "s1", (said("m1", "first"), Titled(branch="main")), *filler, (last,), (said("m2", "then\n this"),))
    info = listed(tmp_path)
    assert (info.title, info.last_prompt, info.branch) == ("T", "then this", "main")
    assert info.messages == len(filler) + 2


@pytest.mark.parametrize("first_bytes", [100, 200_000], ids=["small", "large"])
@pytest.mark.parametrize("more", [0, 300, 2_000])
def test_what_the_ends_do_not_show_is_looked_for_in_between(tmp_path: Path, first_bytes: int, more: int) -> None:
    """ENG-5, finding A7: a session that was never closed is listed with its title, client, folder and count."""
    filler = tuple((said(f"f{n}", "x" * 900),) for n in range(more))
    about = Titled(title="T", client="Codex 1", folder="/srv/app")
    made(tmp_path, "s1", (said("m1", "first " * (first_bytes // 6)),), (said("m2", "so"), about), *filler)
    info = listed(tmp_path)
    assert (info.messages, info.title, info.client, info.folder) == (2 + more, "T", "Codex 1", "/srv/app")
    assert info.last_prompt and info.problem is None


@pytest.mark.parametrize("raw", [b"", b"garbage", b"\0" * 200_000, b"\n" * 200_000, b'{"format":"x"}\n' * 9])
def test_a_damaged_session_is_listed_with_its_problem(tmp_path: Path, raw: bytes) -> None:
    """ENG-5: a listing never raises for what a file holds."""
    directory = made(tmp_path, "s1", (said("m1"),))
    (directory / "journal.jsonl").write_bytes(raw)
    info = listed(tmp_path)
    assert info.id == "s1" and info.bytes == len(raw) and info.problem is not None
    (directory / "journal.jsonl").unlink()
    assert listed(tmp_path).problem is not None
    (directory / "journal.jsonl").mkdir()
    assert listed(tmp_path).problem is not None

    async def body() -> None:
        (directory / "journal.jsonl").rmdir()
        (directory / "journal.jsonl").write_bytes(raw)
        (directory / "journal.mark").unlink()  # with it the session opens, and says what is lost
        store = SessionStore(tmp_path)
        for _ in range(2):  # the lock is let go when opening fails
            with pytest.raises(DamagedLine):
                await store.open("s1")

    anyio.run(body)


def test_damaged_lines_are_passed_over(tmp_path: Path) -> None:
    directory = made(tmp_path, "s1", (said("m1", "one"),), (said("m2", "two"),))
    path = directory / "journal.jsonl"
    path.write_bytes(path.read_bytes().replace(b"two", b"tvo") + b"torn")
    info = listed(tmp_path)
    assert info.last_prompt == "one" and info.problem is not None and "1 damaged" in info.problem


def test_the_last_written_comes_first(tmp_path: Path) -> None:
    for number in range(3):
        directory = made(tmp_path, f"s{number}", project=f"/p{number % 2}")
        os.utime(directory / "journal.jsonl", (100 + number, 100 + number))
    store = SessionStore(tmp_path)
    assert [info.id for info in store.list()] == ["s2", "s1", "s0"]
    assert [info.id for info in store.list("/p0")] == ["s2", "s0"]
    assert SessionStore(tmp_path / "nothing").list() == ()


def test_random_ids_are_short_unique_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """REL-13: also when many are made at once, and when the clock is set back."""
    ids = RandomIds()
    made_now = [ids.new("m") for _ in range(5_000)]
    monkeypatch.setattr("time.time_ns", lambda: 5)
    made_now += [ids.new("m") for _ in range(100)]
    assert made_now == sorted(made_now) and len(set(made_now)) == len(made_now)
    assert {len(made) for made in made_now} == {22}
    assert RandomIds().new("s") != RandomIds().new("s")


def test_doubles() -> None:
    ids, clock = CountingIds(), FixedClock(10.0)
    assert [ids.new("a"), ids.new("a"), ids.new("b")] == ["a-1", "a-2", "b-1"]
    clock.advance(-2.5)
    assert clock.now() == 7.5 and SystemClock().now() > 1.7e9


def test_a_fork_has_the_blobs_by_links_and_keeps_them_alone(tmp_path: Path) -> None:
    """SES-1, RCL-2: what left the view costs a fork no room on the disk, and outlives the original and its damage."""

    async def body() -> None:
        store = SessionStore(tmp_path)
        files = await store.create("s1", project="/p", created=5.0)
        await files.journal.append((said("m1"),))
        (kept,) = await files.blobs.put((b"what left the view" * 100,))
        (files.directory / BLOBS / ".new-draft").write_bytes(b"litter")
        await files.journal.close()
        directory = await fork(store, "s1", "s2", created=6.0)
        mine, theirs = directory / BLOBS / kept, files.directory / BLOBS / kept
        assert mine.samefile(theirs) and [path.name for path in (directory / BLOBS).iterdir()] == [kept]
        FileBlobs(theirs.parent).set_aside(kept)
        store.delete("s1")
        assert await FileBlobs(directory / BLOBS).get(kept) == b"what left the view" * 100

    anyio.run(body)


def test_a_fork_where_there_are_no_links_has_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SES-1: some file systems have no hard links, and some not as many."""

    def refused(*_: object) -> None:
        raise OSError(errno.EMLINK, "Too many links")

    async def body() -> None:
        store = SessionStore(tmp_path)
        files = await store.create("s1", project="/p", created=5.0)
        (kept,) = await files.blobs.put((b"content",))
        await files.journal.close()
        monkeypatch.setattr(os, "link", refused)
        monkeypatch.setattr(DISK, "link", os.rename)  # of the journal itself
        directory = await fork(store, "s1", "s2", created=6.0)
        mine = directory / BLOBS / kept
        assert not mine.samefile(files.directory / BLOBS / kept)
        assert await FileBlobs(mine.parent).get(kept) == b"content"

    anyio.run(body)


def test_a_fork_of_a_past_has_no_notes_of_what_came_later(tmp_path: Path) -> None:
    """SES-1, GW-2: transactions stay whole, boundaries point to their messages, and notes go only with everything."""

    async def body() -> None:
        store = SessionStore(tmp_path)
        files = await store.create("s1", project="/p", created=5.0)
        for name in ("m1", "m2", "m3"):
            await files.journal.append((said(name), said(f"{name}b")))
        notes = files.directory / "session-memory" / "summary.md"
        notes.parent.mkdir()
        notes.write_text("m3 was said")
        loaded = await files.journal.load(whole=True)
        await files.journal.close()
        whole = await fork(store, "s1", "whole", created=6.0)
        past = await fork(store, "s1", "past", created=7.0, past=loaded.records[:3])
        assert (whole / "session-memory" / "summary.md").read_text() == "m3 was said"
        assert not (past / "session-memory").exists()
        for directory, count, lines in ((whole, 6, 3), (past, 3, 2)):
            made = await store.open(directory, read_only=True)
            found = await made.journal.load(whole=True)
            assert [p.record for p in found.records] == [p.record for p in loaded.records[:count]]
            assert found.records[-1].seq == lines and found.header.forked_from == "s1"

    anyio.run(body)
