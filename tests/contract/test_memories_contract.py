"""What every store of memories does: files, held in the process, in a database (MEM-8 to MEM-11, REL-7, SCL-4)."""

from __future__ import annotations

import secrets
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest

from perdure.adapters.memory.directory import file_memories
from perdure.adapters.memory.store import (
    MOST_FILE_BYTES,
    InMemoryFolder,
    OpenedFolder,
    StoredFolder,
    StoredMemories,
)
from perdure.adapters.postgres.database import Database
from perdure.adapters.postgres.memories import PostgresFolder
from perdure.errors import FileMissing, FileRefused, FileTooLarge, MemoryChanged, MemoryRefused, NameRefused, NameTaken
from perdure.memory.changes import (
    Change,
    DeleteMemory,
    MemoryBatch,
    MemoryProposal,
    RenameMemory,
    SaveMemory,
    Stamp,
    WriteResult,
    diff,
    digest_of,
)
from perdure.ports.memory import MemoryStore

pytestmark = pytest.mark.contract

KINDS = ("files", "held", "postgres")
BASE = "# Notes\n- one\n- two\n"


@dataclass(frozen=True)
class EachTime:
    """A directory in a database that is opened for each thing anew, as by as many processes."""

    url: str
    tenant: str = field(default_factory=lambda: secrets.token_hex(8))

    async def run(self, do: Callable[[OpenedFolder], Any], *, create: bool) -> Any:
        async with self._opened() as folder:
            return await folder.run(do, create=create)

    async def is_there(self) -> bool:
        async with self._opened() as folder:
            return await folder.is_there()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        async with self._opened() as folder, folder.alone():
            yield

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[StoredFolder]:
        db = Database(self.url)
        try:
            yield PostgresFolder(db, self.tenant, "/projects/p/memory")
        finally:
            await db.close()


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> StoredMemories:
    if request.param == "files":
        return file_memories(tmp_path / "m" / "memory")
    if request.param == "held":
        return StoredMemories(InMemoryFolder())
    return StoredMemories(EachTime(request.getfixturevalue("postgres")))


def by(origin: str = "user", at: float = 1.0, message: str = "m1") -> Stamp:
    return Stamp(origin=origin, at=at, session="s1", message=message)  # type: ignore[arg-type]


def save(
    store: StoredMemories, name: str, text: str, base: str | None = None, stamp: Stamp | None = None
) -> WriteResult:
    async def go() -> WriteResult:
        return await store.write(SaveMemory(name=name, text=text, base=base), stamp or by(), mode="auto")

    return anyio.run(go)


def text(store: StoredMemories, name: str) -> str | None:
    found = anyio.run(store.read, name)
    return None if found is None else found.text


def undo(store: StoredMemories, entry: str | None = None) -> tuple[WriteResult, ...]:
    return anyio.run(store.undo, entry, by(at=9.0))


def test_an_empty_directory(store: StoredMemories) -> None:
    """MEM-8: it is the port, and holds nothing yet."""
    port: MemoryStore = store
    assert port
    assert anyio.run(store.listing).files == ()
    assert anyio.run(store.entries) == () and anyio.run(store.pending) == ()
    assert text(store, "no.md") is None


def test_what_was_saved_is_read_and_listed(store: StoredMemories) -> None:
    """REL-7: whole, with the digest of its bytes; our own state is no memory."""
    assert save(store, "MEMORY.md", BASE).outcome == "written"
    assert save(store, "team/b.md", "ü").outcome == "written"
    listing = anyio.run(store.listing)
    assert [(f.name, f.bytes, f.digest) for f in listing.files] == [
        ("MEMORY.md", len(BASE), digest_of(BASE.encode())),
        ("team/b.md", 2, digest_of("ü".encode())),
    ]
    assert save(store, "team/b.md", "new", "ü").digest == digest_of(b"new")
    assert anyio.run(store.listing).files[1].digest == digest_of(b"new")
    for name in (".perdure/audit.jsonl", "../x", "a\u202eb"):
        with pytest.raises(NameRefused):
            anyio.run(store.read, name)
        with pytest.raises(NameRefused):
            save(store, name, "x")
    with pytest.raises(FileTooLarge):
        save(store, "big.md", "x" * 5_000_000)


def test_edits_of_different_lines_are_merged(store: StoredMemories) -> None:
    """MEM-9: both stay; the answer says that somebody else wrote, and the digest is of what stands there."""
    save(store, "a.md", BASE)
    save(store, "a.md", BASE.replace("one", "ONE"), BASE)
    done = save(store, "a.md", BASE + "- three\n", BASE)
    assert done.outcome == "merged" and text(store, "a.md") == "# Notes\n- ONE\n- two\n- three\n"
    assert done.digest == digest_of(b"# Notes\n- ONE\n- two\n- three\n")
    assert save(store, "a.md", text(store, "a.md") or "", "long ago").outcome == "unchanged"


def test_the_later_of_two_edits_of_a_line_is_kept_beside(store: StoredMemories) -> None:
    """MEM-9: what stands there stays, the other text is a file beside it, and both are said; the same text once."""
    save(store, "a.md", BASE)
    save(store, "a.md", BASE.replace("one", "ONE"), BASE)
    done = save(store, "a.md", BASE.replace("one", "uno"), BASE)
    assert (done.outcome, done.name) == ("conflict", "a.md")
    assert text(store, "a.md") == BASE.replace("one", "ONE") and text(store, done.beside) == BASE.replace("one", "uno")
    assert save(store, "a.md", BASE.replace("one", "uno"), BASE).beside == done.beside
    assert len(anyio.run(store.listing).files) == 2
    entry = anyio.run(store.entries)[0]
    assert (entry.name, entry.wanted, entry.outcome) == (done.beside, "a.md", "conflict")


def test_what_was_made_or_removed_meanwhile_is_a_conflict(store: StoredMemories) -> None:
    """MEM-9: two who make one file; one who edits what another removed."""
    save(store, "a.md", "first")
    assert save(store, "a.md", "second").outcome == "conflict"
    assert save(store, "gone.md", "edited", "as it was").outcome == "conflict"
    assert text(store, "a.md") == "first" and text(store, "gone.md") is None


def test_removing_and_renaming_need_what_was_read(store: StoredMemories) -> None:
    """MEM-9: compare and swap on the content, too; a name that is taken stays."""
    save(store, "a.md", "a")
    save(store, "b.md", "b")
    wrong: list[tuple[type[FileRefused], DeleteMemory | RenameMemory]] = [
        (MemoryChanged, DeleteMemory(name="a.md", base="other")),
        (MemoryChanged, RenameMemory(name="a.md", to="c.md", base="other")),
        (NameTaken, RenameMemory(name="a.md", to="b.md", base="a")),
        (FileMissing, DeleteMemory(name="no.md", base="")),
        (NameRefused, RenameMemory(name="a.md", to=".perdure/lock", base="a")),
    ]
    for error, change in wrong:
        with pytest.raises(error):
            anyio.run(write, store, change)
    assert anyio.run(write, store, RenameMemory(name="a.md", to="t/c.md", base="a")).outcome == "renamed"
    assert anyio.run(write, store, DeleteMemory(name="b.md", base="b")).outcome == "deleted"
    assert [file.name for file in anyio.run(store.listing).files] == ["t/c.md"]


async def write(store: StoredMemories, change: SaveMemory | DeleteMemory | RenameMemory) -> WriteResult:
    return await store.write(change, by(at=3.0), mode="auto")


def test_every_write_is_in_the_log(store: StoredMemories) -> None:
    """MEM-8: newest first, with its source and mode, and what it said before and after."""
    save(store, "a.md", "one", stamp=by("assistant", 1.0, "m7"))
    save(store, "a.md", "two", "one", stamp=by("user", 2.0, "m9"))
    anyio.run(write, store, RenameMemory(name="a.md", to="b.md", base="two"))
    last, second, first = anyio.run(store.entries)
    assert (first.before, first.after, first.mode) == (None, digest_of(b"one"), "auto")
    assert (second.stamp.session, second.stamp.message, second.stamp.at) == ("s1", "m9", 2.0)
    assert (second.before, second.after) == (digest_of(b"one"), digest_of(b"two"))
    assert (last.action, last.name, last.to) == ("rename", "a.md", "b.md")

    async def named() -> int:
        return len(await store.entries(name="b.md")) + 10 * len(await store.entries(limit=1))

    assert anyio.run(named) == 11


def test_undo_takes_back_one_after_the_other(store: StoredMemories) -> None:
    """MEM-8: the last that was not taken back yet; each kind of change; then there is nothing left."""
    save(store, "a.md", "one")
    save(store, "a.md", "two", "one")
    anyio.run(write, store, RenameMemory(name="a.md", to="b.md", base="two"))
    anyio.run(write, store, DeleteMemory(name="b.md", base="two"))
    for expected in ({"b.md": "two"}, {"a.md": "two"}, {"a.md": "one"}, {}):
        undo(store)
        there = {file.name: text(store, file.name) for file in anyio.run(store.listing).files}
        assert there == expected
    with pytest.raises(FileMissing, match="nothing to undo"):
        undo(store)


def test_an_undo_can_be_taken_back(store: StoredMemories) -> None:
    """MEM-8: it is a change like any other, by its id."""
    save(store, "a.md", "one")
    entry = save(store, "a.md", "two", "one").entry
    (back,) = undo(store, entry)
    assert text(store, "a.md") == "one" and anyio.run(store.entries)[0].of == entry
    undo(store, back.entry)
    assert text(store, "a.md") == "two"
    with pytest.raises(FileMissing):
        undo(store, "nothing")


def test_undo_refuses_what_was_changed_since(store: StoredMemories) -> None:
    """MEM-8: nobody's later words are lost by it."""
    entry = save(store, "a.md", "one").entry
    save(store, "a.md", "two", "one")
    with pytest.raises(MemoryChanged):
        undo(store, entry)
    assert text(store, "a.md") == "two"


def test_provenance_is_the_last_stamp_and_the_least_origin(store: StoredMemories) -> None:
    """MEM-10, SEC-1: who edits what came from the web doesn't make it trusted; a file made anew starts anew."""
    save(store, "a.md", "one", stamp=by("web", 1.0))
    save(store, "a.md", "two", "one", stamp=by("user", 2.0))
    save(store, "b.md", "x", stamp=by("assistant"))
    known = anyio.run(store.provenance)
    assert (known["a.md"].stamp.origin, known["a.md"].least) == ("user", "web")
    assert known["a.md"].digest == digest_of(b"two") and known["b.md"].least == "assistant"
    anyio.run(write, store, RenameMemory(name="a.md", to="c.md", base="two"))
    anyio.run(write, store, DeleteMemory(name="b.md", base="x"))
    save(store, "b.md", "y", stamp=by("user"))
    known = anyio.run(store.provenance)
    assert set(known) == {"b.md", "c.md"} and (known["c.md"].least, known["b.md"].least) == ("web", "user")


def propose(store: StoredMemories, change: SaveMemory, at: float = 1.0) -> MemoryProposal:
    return anyio.run(store.propose, change, by("tool", at), "it derives from a tool")


def test_what_waits_can_be_approved_or_rejected(store: StoredMemories) -> None:
    """MEM-8: as a diff, oldest first; approved it is written with its own stamp, and merged if need be."""
    save(store, "a.md", BASE)
    second = propose(store, SaveMemory(name="b.md", text="b"), 2.0)
    first = propose(store, SaveMemory(name="a.md", text=BASE + "- three\n", base=BASE), 1.0)
    assert anyio.run(store.pending) == (first, second)
    assert "+- three" in diff(first.change, BASE) and "--- /dev/null" in diff(second.change, None)
    save(store, "a.md", BASE.replace("one", "ONE"), BASE)
    assert anyio.run(store.approve, first.id).outcome == "merged"
    entry = anyio.run(store.entries)[0]
    assert (entry.mode, entry.stamp.origin) == ("approved", "tool")
    anyio.run(store.reject, second.id)
    assert anyio.run(store.pending) == () and text(store, "b.md") is None
    for wrong in (first.id, "../../x", "", "a/b"):
        with pytest.raises(FileMissing):
            anyio.run(store.approve, wrong)


def test_the_inbox_is_bounded(store: StoredMemories, monkeypatch: pytest.MonkeyPatch) -> None:
    """MEM-10: who floods it is stopped, and nobody's proposal is dropped for it."""
    monkeypatch.setattr("perdure.adapters.memory.store.MOST_PENDING", 2)
    for number in range(2):
        propose(store, SaveMemory(name=f"{number}.md", text="x"))
    with pytest.raises(MemoryRefused) as error:
        propose(store, SaveMemory(name="3.md", text="x"))
    assert error.value.rule == "inbox-full" and len(anyio.run(store.pending)) == 2


def test_many_writers_in_one_process_lose_nothing(store: StoredMemories) -> None:
    """REL-7: each reads, adds a line and writes; all lines are there."""

    async def writer(number: int) -> None:
        for count in range(10):
            read = await store.read("a.md")
            base = read.text if read else None
            await anyio.lowlevel.checkpoint()
            line = f"{number}-{count}"
            done = await store.write(
                SaveMemory(name="a.md", text=f"{base or ''}{line}\n", base=base), by(), mode="auto"
            )
            if done.outcome == "conflict":  # two made the file: the text is beside it
                await store.write(SaveMemory(name="a.md", text=f"{line}\n", base=""), by(), mode="auto")

    async def go() -> None:
        await store.write(SaveMemory(name="a.md", text="begin\n"), by(), mode="auto")
        async with anyio.create_task_group() as group:
            for number in range(4):
                group.start_soon(writer, number)

    anyio.run(go)
    lines = (text(store, "a.md") or "").split()
    assert sorted(lines) == sorted(["begin", *(f"{n}-{c}" for n in range(4) for c in range(10))])


def test_what_is_deferred_waits_and_is_made_of_what_stands_there_by_then(store: StoredMemories) -> None:
    """SCL-2: nothing is seen before the commit; what somebody wrote meanwhile is merged; nothing waits twice."""
    save(store, "a.md", BASE, stamp=by("web"))
    propose(store, SaveMemory(name="w.md", text="waits"))

    async def go() -> None:
        late = await store.deferred()
        read = await late.read("a.md")
        assert read is not None and read.text == BASE and len(await late.pending()) == 1
        assert (await late.provenance())["a.md"].least == "web"
        assert [one.digest for one in (await late.listing()).files] == [
            one.digest for one in (await store.listing()).files
        ]
        await late.write(SaveMemory(name="a.md", text=BASE + "- three\n", base=BASE), by(), mode="auto")
        await late.write(SaveMemory(name="b.md", text="b"), by(), mode="auto")
        await late.propose(SaveMemory(name="c.md", text="c"), by("tool"), "it derives from a tool")
        await late.done(5.0)
        now = await late.read("a.md")
        assert now is not None and now.text == BASE + "- three\n" and len(await late.pending()) == 2
        assert [one.name for one in (await store.listing()).files] == ["a.md"] and len(await store.pending()) == 1
        await store.write(SaveMemory(name="a.md", text=BASE.replace("one", "ONE"), base=BASE), by(), mode="auto")
        for _ in range(2):
            await late.commit()
        assert len(await store.pending()) == 2 and len(await store.entries()) == 4

    anyio.run(go)
    assert text(store, "a.md") == "# Notes\n- ONE\n- two\n- three\n" and text(store, "b.md") == "b"


# --- files only -----------------------------------------------------------------------------------------------------


def test_an_existing_directory_stays_as_it_is(tmp_path: Path) -> None:
    """MEM-1, MEM-10: what is known of a file stands beside the files, out of sight of git, and private."""
    folder = tmp_path / "memory"
    folder.mkdir()
    (folder / "MEMORY.md").write_text(BASE)
    (folder / "MEMORY.md").chmod(0o644)
    store = file_memories(folder)
    assert text(store, "MEMORY.md") == BASE and list(folder.iterdir()) == [folder / "MEMORY.md"]
    save(store, "MEMORY.md", BASE + "x", BASE)
    assert (folder / "MEMORY.md").read_text() == BASE + "x"
    assert (folder / ".perdure" / ".gitignore").read_text() == "*\n"
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (folder / ".perdure").rglob("*")}
    assert modes == {0o600, 0o700}


def test_a_damaged_log_loses_only_what_is_damaged(tmp_path: Path) -> None:
    """MEM-8: a line that a crash cut off is left out, and the next one begins a line of its own."""
    store = file_memories(tmp_path / "m")
    save(store, "a.md", "one")
    log = tmp_path / "m" / ".perdure" / "audit.jsonl"
    with log.open("ab") as file:
        file.write(b'{"id": "torn')
    save(store, "a.md", "two", "one")
    assert [entry.after for entry in anyio.run(store.entries)] == [digest_of(b"two"), digest_of(b"one")]
    log.unlink()
    assert anyio.run(store.entries) == () and anyio.run(store.provenance) == {}
    save(store, "a.md", "three", "two")
    assert len(anyio.run(store.entries)) == 1


def test_a_hand_in_the_files_is_no_conflict_with_the_log(tmp_path: Path) -> None:
    """MEM-9, MEM-10: what somebody wrote with an editor is merged with, and has no provenance."""
    store = file_memories(tmp_path / "m")
    save(store, "a.md", BASE)
    (tmp_path / "m" / "a.md").write_text(BASE.replace("one", "ONE"))
    assert save(store, "a.md", BASE + "- three\n", BASE).outcome == "merged"
    (tmp_path / "m" / "a.md").write_text("by hand")
    known = anyio.run(store.provenance)["a.md"]
    found = anyio.run(store.read, "a.md")
    assert found is not None and found.digest != known.digest
    with pytest.raises(MemoryChanged):
        undo(store)


def batch(store: StoredMemories, *changes: SaveMemory | DeleteMemory | RenameMemory) -> WriteResult:
    async def go() -> WriteResult:
        return await store.write(MemoryBatch(name="tidy", changes=changes), by(at=2.0), mode="auto")

    return anyio.run(go)


def texts(store: StoredMemories) -> dict[str, str | None]:
    return {file.name: text(store, file.name) for file in anyio.run(store.listing).files}


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (SaveMemory(name="z.md", text="x" * (MOST_FILE_BYTES + 1)), FileTooLarge),
        (SaveMemory(name="../z.md", text="x"), NameRefused),
        (RenameMemory(name="b.md", to="../z.md", base=BASE), NameRefused),
        (RenameMemory(name="b.md", to="c.md", base=BASE), NameTaken),
        (RenameMemory(name="b.md", to="new.md", base=BASE), NameTaken),
        (DeleteMemory(name="b.md", base="something else"), MemoryChanged),
        (SaveMemory(name="b.md", text="mine", base="something else"), MemoryChanged),
    ],
)
def test_a_batch_of_which_one_cant_be_done_does_nothing(store: StoredMemories, bad: Change, error: type) -> None:
    """MEM-11, REL-7: all checks come before the first write."""
    for name in ("a.md", "b.md", "c.md"):
        save(store, name, BASE)
    entries = anyio.run(store.entries)
    with pytest.raises(error):
        batch(store, SaveMemory(name="new.md", text="new"), DeleteMemory(name="a.md", base=BASE), bad)
    with pytest.raises(error):
        batch(store, bad, SaveMemory(name="new.md", text="new"), DeleteMemory(name="a.md", base=BASE))
    assert set(texts(store)) == {"a.md", "b.md", "c.md"} and anyio.run(store.entries) == entries


def test_a_batch_is_made_and_taken_back_as_one(store: StoredMemories) -> None:
    """MEM-11: what adds comes first; one undo takes all of it back, or none of it."""
    save(store, "a.md", BASE)
    save(store, "b.md", BASE)
    merged = SaveMemory(name="all.md", text="all")
    done = batch(store, DeleteMemory(name="a.md", base=BASE), RenameMemory(name="b.md", to="c.md", base=BASE), merged)
    assert done.outcome == "written" and texts(store) == {"all.md": "all", "c.md": BASE}
    save(store, "all.md", "changed", "all")
    with pytest.raises(MemoryChanged):
        undo(store, done.entry)
    assert texts(store) == {"all.md": "changed", "c.md": BASE}
    undo(store)
    assert {one.name for one in undo(store, done.entry)} == {"all.md", "a.md", "b.md"}
    assert texts(store) == {"a.md": BASE, "b.md": BASE}


def test_a_plan_that_nobody_can_read_closes_nothing(tmp_path: Path) -> None:
    """REL-7: a damaged plan is set aside."""
    store = file_memories(tmp_path / "m" / "memory")
    save(store, "a.md", BASE)
    plan = tmp_path / "m/memory/.perdure/batch.json"
    plan.write_bytes(b"{ no plan")
    assert text(store, "a.md") == BASE and not plan.exists()
    assert list(plan.parent.glob("batch.json.damaged-*"))
