"""Purged everywhere: a search of every byte of the home finds a canary before, and nowhere after (SEC-12)."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from tests.agents import bench, calls
from tests.commands import command
from tests.search_bytes import files_with
from tests.terminals import environment
from tests.tiers import NIGHTLY

from perdure import Message
from perdure.adapters.care.purge import PURGED, Purge, find_message
from perdure.adapters.journal import JOURNAL, SessionLock, SessionStore
from perdure.adapters.journal.disk import Disk
from perdure.engine.compact import compact
from perdure.errors import PerdureError, SessionBusy, SessionNotFound
from perdure.transcript.records import Noted
from perdure.wiring import fork_session, open_session

pytestmark = pytest.mark.e2e

WORD = "zqcanary4711"
CANARY = f'Zqcanary4711-"Größe"/{WORD[2:]}\\end'


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A place as `spread` makes it, and the session in it: made once, since that takes a second."""
    place = tmp_path_factory.mktemp("purge") / "place"
    with pytest.MonkeyPatch.context() as patched:
        for name in [one for one in os.environ if one.startswith(("PERDURE_", "CLAUDE_", "DISABLE_"))]:
            patched.delenv(name)
        directory = spread(place)
    shutil.copytree(place, place.with_name("pristine"), symlinks=True)
    return place, directory


@pytest.fixture
def place(made: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The place as it was made, whatever the test before did to it."""
    place, _ = made
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(place.with_name("pristine"), place, symlinks=True)
    monkeypatch.setenv("PERDURE_HOME", str(place / "home"))
    with contextlib.chdir(place):
        yield place


@pytest.fixture
def directory(made: tuple[Path, Path], place: Path) -> Path:
    """The session with the canary."""
    return made[1]


def spread(place: Path) -> Path:
    """A home with the canary in every kind of place that there is; its session."""
    home, project = place / ".perdure", place / "project"

    async def work() -> Path:
        # Behind a turn the extractor would ask the same model, and take one of the answers that are meant for the next.
        made = await bench(project, home=home, settings={"memory_extract": False})
        made.model.upstream.script.extend(
            [
                calls(("Write", {"file_path": str(project / "a.py"), "content": f"KEY = '{CANARY}'\n"})),
                calls(("Bash", {"command": f"printf '%s\\n' 'made by {WORD}'; seq 1 30000"})),
                "It is done.",
            ]
        )
        await made.agent.say(f"Remember {CANARY}, please")
        await made.agent.session.append(
            Message.of("user", [{"type": "text", "text": json.dumps({"nested": json.dumps({"key": CANARY})})}])
        )
        change = calls(("Write", {"file_path": str(project / "a.py"), "content": "KEY = None\n"}))
        made.model.upstream.script.extend([change, f"You said {CANARY}.", *["fine"] * 6])
        await made.agent.say("what did I say?")
        await compact(made.agent.session, trigger="manual")
        await made.agent.say(f"and after it: {CANARY}")
        directory = next(SessionStore(home).directories())
        await made.agent.close()
        await (await fork_session(home, directory)).close()
        return directory

    directory = anyio.run(work)
    log = place / "old.jsonl"
    said = {"role": "user", "content": f"an old log with {CANARY}"}
    log.write_text(json.dumps({"type": "user", "uuid": "u1", "sessionId": "s", "cwd": str(project),
                               "timestamp": "2026-01-01T00:00:00Z", "message": said}) + "\n")  # fmt: skip
    env = environment(place)
    for words in (
        ("memory", "add", f"we met at {CANARY}", "--file", "key.md"),
        ("memory", "add", f"we met at {CANARY}, still", "--user", "--file", "own.md"),
        ("memory", "rm", "key.md"),
        ("memory", "search", "met"),
        ("import", str(log)),
        ("search", WORD),
    ):
        done = command(*words, cwd=project, env=env)
        assert done.returncode in (0, 1), done.stderr
    notes = directory / "session-memory" / "summary.md"
    notes.parent.mkdir(exist_ok=True)
    notes.write_text(f"# Session Title\n\n{CANARY}\n")
    (directory.parent / "history").write_text(f"# 2026\n+say {CANARY}\n")
    with (directory / JOURNAL).open("ab") as journal:
        journal.write(json.dumps({"seq": 99, "torn": CANARY}).encode())
    command("doctor", "--repair", cwd=project, env=env)  # sets it aside beside the journal
    objects = directory / "checkpoints" / "objects"
    shutil.copytree(objects, objects.with_name("objects.old"))  # as a thinning that was killed leaves it
    return directory


def where(home: Path) -> set[str]:
    """In what kinds of files the canary is found by a search that knows nothing of them."""
    found = set()
    for path in files_with(home, WORD, WORD[2:]):
        parts = path.relative_to(home).parts
        kind = next(
            (p for p in parts if p in ("blobs", "objects", "objects.old", "session-memory", "memory")), path.name
        )
        found.add("torn" if ".torn-" in kind else "before" if "before" in parts else kind)
    return found


def test_a_purged_canary_is_found_nowhere(place: Path, directory: Path) -> None:
    """SEC-12: planted in every place that there is, found there by a control, and after the purge in none."""
    home, project = place / ".perdure", place / "project"
    assert where(home) >= {
        "objects.old",
        JOURNAL, "blobs", "objects", "session-memory", "memory", "before", "history", "torn", "index.db",
    }  # fmt: skip
    env = environment(place)
    # Two texts: the secret, and what is left of its word elsewhere.
    for text in (CANARY, WORD):
        dry = command("purge", "--dry-run", cwd=project, env=env, given=text)
        assert dry.returncode == 0 and "found in" in dry.stdout
        done = command("purge", "--yes", cwd=project, env=env, given=text)
        assert (done.returncode, done.stdout[:11]) == (0, "purged from"), done.stderr
    assert files_with(home, WORD, WORD[2:]) == []

    async def look() -> None:
        session = await open_session(home, directory, read_only=True, whole=True)
        loaded = await session.ports.journal.load(whole=True)
        notes = [one.record for one in loaded.records if isinstance(one.record, Noted) and one.record.kind == PURGED]
        assert [note.data["what"] for note in notes] == ["text", "text"] and notes[0].data["messages"]
        assert all(note.data["by"] and note.data["at"] for note in notes)
        made = await bench(project, home=home, resume=directory.name)  # its server checks every request
        made.model.upstream.script.append("going on")
        assert (await made.agent.say("go on")).stopped == "done"
        await made.agent.close()

    anyio.run(look)
    doctor = command("doctor", cwd=project, env=env)
    assert "problem " not in doctor.stdout, doctor.stdout
    again = command("purge", "--yes", cwd=project, env=env, given=CANARY)
    assert again.stdout == "it is nowhere in what Perdure keeps\n"
    assert command("search", "please", cwd=project, env=env).returncode == 0  # the index is made anew


class DeadDisk(Disk):
    """Works for so many changes, and then not at all, as for a process that was killed."""

    def __init__(self, changes: int) -> None:
        self.left = changes

    def _change(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt

    def write(self, fd: int, data: memoryview) -> int:
        self._change()
        return super().write(fd, data)

    def rename(self, old: Path, new: Path) -> None:
        self._change()
        super().rename(old, new)

    def unlink(self, path: Path) -> None:
        self._change()
        super().unlink(path)

    def sync_directory(self, path: Path) -> None:
        self._change()
        super().sync_directory(path)


STRIDE = 150  # of some hundred changes; each of them is the last one in `make nightly`


@pytest.mark.quick(1)
@pytest.mark.parametrize("is_message", [False, True], ids=["text", "message"])
def test_a_purge_that_is_killed_anywhere_can_be_run_again(place: Path, directory: Path, is_message: bool) -> None:
    """SEC-12: whatever change is the last one, the session opens, and the next purge finishes."""
    home = place / ".perdure"
    pristine = place / "pristine"
    shutil.copytree(home, pristine, symlinks=True)
    count = 0
    while True:
        shutil.rmtree(home)
        shutil.copytree(pristine, home, symlinks=True)
        job = purge_of(home, directory, is_message, DeadDisk(count))
        try:
            job.carry_out()
            break
        except KeyboardInterrupt:
            pass
        for session in SessionStore(home).directories():
            anyio.run(opened, home, session)
        assert purge_of(home, directory, is_message, Disk()).carry_out().left == []
        left = files_with(home, WORD[2:]) if not is_message else []
        assert left == [], (count, left)
        if is_message:
            assert MARKED not in (directory / JOURNAL).read_text()
        count += 1 if count < 6 or NIGHTLY else STRIDE
    assert count > 5


MARKED = "Remember Zq"


def purge_of(home: Path, directory: Path, is_message: bool, disk: Disk) -> Purge:
    if not is_message:
        return Purge(home, "me", 1.0, texts=(CANARY, CANARY[4:], WORD, WORD[2:]), disk=disk)
    first = find_message(directory, anyio.run(first_message, home, directory))
    return Purge(home, "me", 1.0, message=first, disk=disk)


async def first_message(home: Path, directory: Path) -> str:
    session = await open_session(home, directory, read_only=True, whole=True)
    loaded = await session.ports.journal.load(whole=True)
    return next(
        one.record.id for one in loaded.records if isinstance(one.record, Message) and one.record.origin == "user"
    )


async def opened(home: Path, session: Path) -> None:
    live = await open_session(home, session)
    await live.close()


def test_a_call_is_purged_with_its_result_and_its_blob(place: Path, directory: Path) -> None:
    """SEC-12: by its recall id, from the session and its fork; calls and results stay pairs, and recall says so."""
    home, project = place / ".perdure", place / "project"

    async def call() -> str:
        session = await open_session(home, directory, read_only=True, whole=True)
        loaded = await session.ports.journal.load(whole=True)
        uses = [block.value for one in loaded.records if isinstance(one.record, Message) for block in one.record.blocks]
        return next(use.id for use in uses if getattr(use, "name", "") == "Bash")

    identity = anyio.run(call)
    env = environment(place)
    assert "made by" in command("recall", directory.name, identity, cwd=project, env=env).stdout
    done = command("purge", directory.name, identity, "--yes", cwd=project, env=env)
    assert done.returncode == 0 and "stored result" in done.stdout, done.stderr
    assert command("recall", directory.name, identity, cwd=project, env=env).stdout == "(purged)"
    assert [path for path in files_with(home, f"made by {WORD}") if "memory" not in path.parts] == []
    assert "problem " not in command("doctor", cwd=project, env=env).stdout


def test_a_session_that_somebody_else_writes_isnt_purged(place: Path, directory: Path) -> None:
    """SEC-12: one line that names who has it, and nothing is changed, in other sessions either."""
    home, project = place / ".perdure", place / "project"
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file() and path.name != "lock"}
    lock = SessionLock.acquire(directory)
    try:
        with pytest.raises(SessionBusy):
            Purge(home, "me", 1.0, texts=(CANARY,)).carry_out()
        done = command("purge", "--yes", cwd=project, env=environment(place), given=CANARY)
    finally:
        lock.release()
    assert done.returncode == 4 and "is being written by" in done.stderr and done.stderr.count("\n") == 1
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize(
    ("words", "given", "told"),
    [
        ((), "abc", "fewer than 6 characters"),
        ((), "x1" * 5_000, "at most 8,000 are looked for"),
        ((), "content", "also what the format itself says"),
        (("@last",), "", "give a session and the id of a message"),
        (("@last", "nobody"), "", "has the id 'nobody'"),
        ((), CANARY, "--yes purges it"),
    ],
)
def test_what_cant_be_purged_is_one_line(place: Path, words: tuple[str, ...], given: str, told: str) -> None:
    """SEC-12: too short, a word of the format, an unknown id, nobody to ask: nothing is changed."""
    before = files_with(place / ".perdure", WORD)
    done = command("purge", *words, cwd=place / "project", env=environment(place), given=given)
    assert done.returncode in (1, 2, 3) and told in done.stderr and done.stderr.count("\n") == 1
    assert files_with(place / ".perdure", WORD) == before


@pytest.mark.usefixtures("place")
def test_a_text_in_the_path_of_the_project_is_purged(tmp_path: Path) -> None:
    """SEC-12: it stands in the header of each journal, and in the copy that its mark has; the session goes on."""
    home, project, env = tmp_path / ".perdure", tmp_path / "project-of-acme", environment(tmp_path)
    project.mkdir()

    async def said() -> str:
        made = await bench(project, ["hello"], home=home, settings={"memory_extract": False})
        await made.agent.say("hi")
        await made.agent.close()
        return made.agent.session.id

    identity = anyio.run(said)
    done = command("purge", "--yes", cwd=tmp_path, env=env, given="project-of-acme")
    assert done.stderr.count("has it in its name; rename it") == 1, done.stderr  # the folder of the project's sessions
    assert [path.parent.name for path in files_with(home, "project-of-acme")] == ["projects"]
    assert "problem " not in command("doctor", cwd=tmp_path, env=env).stdout
    anyio.run(opened, home, next(path for path in SessionStore(home).directories() if path.name == identity))


@pytest.mark.parametrize("what", ["journal", "session", "blob", "copy"])
def test_what_names_something_kept_isnt_purged(place: Path, directory: Path, what: str) -> None:
    """SEC-12: a word of the header, an id of a session, a hash: refused in a line, and nothing is changed."""
    home = place / ".perdure"
    blob = next((directory / "blobs").iterdir()).name
    copy = next(path for path in (directory / "checkpoints" / "objects").rglob("*") if path.is_file())
    text = {"journal": "journal", "session": directory.name[:14], "blob": blob, "copy": copy.parent.name + copy.name}
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file() and path.name != "lock"}
    done = command("purge", "--yes", cwd=place / "project", env=environment(place), given=text[what])
    assert done.returncode == 1 and "purge a longer text" in done.stderr and done.stderr.count("\n") == 1
    assert {path: path.read_bytes() for path in before} == before


def test_an_unknown_message_is_said(directory: Path) -> None:
    """SEC-12."""
    with pytest.raises(SessionNotFound, match="no message, call or result"):
        find_message(directory, "m-nobody")


def test_a_file_that_is_no_journal_stops_nobody_else(place: Path, directory: Path) -> None:
    """SEC-12: it is named as not searched where it doesn't hold the text, and refused where it does."""
    home, project, env = place / ".perdure", place / "project", environment(place)
    broken = directory.with_name("broken") / JOURNAL
    broken.parent.mkdir()
    broken.write_bytes(b"no journal\n")
    done = command("purge", "--yes", cwd=project, env=env, given=CANARY)
    assert done.returncode == 1 and "not searched" in done.stderr and "broken" in done.stderr
    assert files_with(directory, CANARY[4:]) == []
    broken.write_text(f"no journal, {CANARY}\n")
    assert command("purge", "--yes", cwd=project, env=env, given=CANARY).returncode == 1
    assert files_with(home, CANARY[4:]) == [broken]


def test_a_link_in_a_project_isnt_followed(place: Path) -> None:
    """SEC-12, SEC-2: whoever wrote the project chose where it leads; the user's file stays, the link is said."""
    project, vault = place / "project", place / "me" / "vault"
    vault.mkdir(parents=True)
    (vault / "passwords.md").write_text(f"mine: {CANARY}\n")
    (project / ".perdure").mkdir(exist_ok=True)
    (project / ".perdure" / "agent-memory").symlink_to("../../me/vault")
    behind = project / ".perdure" / "agent-memory-local"
    behind.mkdir()
    (behind / "a.md").symlink_to(vault / "passwords.md")
    (behind / "b.md").write_text(f"ours: {CANARY}\n")
    done = command("purge", "--yes", cwd=project, env=environment(place), given=CANARY)
    assert (vault / "passwords.md").read_text() == f"mine: {CANARY}\n" and CANARY not in (behind / "b.md").read_text()
    assert done.returncode == 1 and str(project / ".perdure" / "agent-memory") in done.stderr
    assert "a.md: a link to elsewhere" in done.stderr


@pytest.mark.parametrize("name", ["projects", ""], ids=["projects", "home"])
def test_a_home_behind_a_link_is_searched(place: Path, directory: Path, name: str) -> None:
    """SEC-12: the user's own choice in their own home; a link below that leads elsewhere is said, and not followed."""
    home, project = place / ".perdure", place / "project"
    (home / name).rename(place / "disk")
    (home / name).symlink_to(place / "disk")
    other = place / "other"
    other.mkdir()
    (other / "note.md").write_text(f"{CANARY}\n")
    (directory / "more").symlink_to(other)
    for text in (CANARY, WORD):
        done = command("purge", "--yes", cwd=project, env=environment(place), given=text)
        assert done.stdout.startswith("purged from"), done.stderr
        assert "more: a link to elsewhere" in done.stderr and done.returncode == 1
    assert files_with(place / "disk", WORD, WORD[2:]) == [] and (other / "note.md").read_text() == f"{CANARY}\n"


def test_memories_behind_a_link_in_the_home_stay(place: Path, directory: Path) -> None:
    """SEC-12: no setting says that they are there; the link is named."""
    project = place / "project"
    memory, elsewhere = directory.parent / "memory", place / "memories"
    memory.rename(elsewhere)
    memory.symlink_to(elsewhere)
    before = {one: one.read_bytes() for one in elsewhere.rglob("*") if one.is_file()}
    done = command("purge", "--yes", cwd=project, env=environment(place), given=CANARY)
    assert done.returncode == 1 and f"{memory}: a link to elsewhere" in done.stderr
    assert before and {one: one.read_bytes() for one in before} == before


def test_memories_are_renamed_whatever_form_their_names_have(place: Path, directory: Path) -> None:
    """SEC-12: also where the text stands in the name alone, and behind a linked folder that the settings name."""
    home, project, env = place / ".perdure", place / "project", environment(place)
    elsewhere = place / "memories"
    (directory.parent / "memory").rename(elsewhere)
    (place / "link").symlink_to(elsewhere)
    (home / "config.toml").write_text(f'memory_directory = "{place / "link"}"\n')
    for name in ("Zq-Canary-4711x.md", "project_Zq-Canary-4711x.md"):
        (elsewhere / name).write_text("---\nname: x\n---\nnothing of it\n")
    with (elsewhere / "MEMORY.md").open("a") as index:
        index.write("- [x](Zq-Canary-4711x.md): nothing\n")
    done = command("purge", "--yes", cwd=project, env=env, given="Zq-Canary-4711x")
    assert done.returncode == 0, done.stderr
    assert files_with(elsewhere, "canary-4711x") == []
    names = sorted(one.name for one in elsewhere.glob("*purged*"))
    assert len(names) == 2 and any(f"]({name})" in (elsewhere / "MEMORY.md").read_text() for name in names)


class FullDisk(Disk):
    """Has room for so many bytes more."""

    def __init__(self, room: int) -> None:
        self.room = room

    def write(self, fd: int, data: memoryview) -> int:
        if self.room <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.room -= len(data)
        return super().write(fd, data)


def test_a_full_disk_stops_a_purge_with_one_line(place: Path, directory: Path) -> None:
    """SEC-12: which names the file and what to do; nothing half written stays, and with room it is finished."""
    home = place / ".perdure"
    for room in (0, 1_000, 10_000):
        with pytest.raises(PerdureError, match=r"/.*: No space left on device: the purge stopped here; .* again$"):
            purge_of(home, directory, False, FullDisk(room)).carry_out()
        assert list(home.rglob("*.new-*")) == []
        for session in SessionStore(home).directories():
            anyio.run(opened, home, session)
    assert purge_of(home, directory, False, Disk()).carry_out().left == []
    assert files_with(home, WORD[2:]) == []


@pytest.mark.parametrize("when", ["before it is listed", "before it is written", "before it is removed"])
def test_a_folder_that_is_swapped_for_a_link_meanwhile_leads_nowhere(
    tmp_path: Path, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SEC-12, SEC-2: who can write in a project chooses no file of the user's, however quick they are."""
    folder, vault = tmp_path / "project" / ".perdure" / "agent-memory", tmp_path / "vault"
    for one, text in ((folder, "ours"), (vault, "mine")):
        one.mkdir(parents=True)
        for name in ("a.md", f"{WORD}x.md"):
            (one / name).write_text(f"{text}: {WORD}x\n")
    (tmp_path / "home").mkdir()

    def swap() -> None:
        if not folder.is_symlink():
            folder.rename(folder.with_name("old"))
            folder.symlink_to(vault)

    def first(name: str) -> None:
        real = getattr(Purge, name)
        monkeypatch.setattr(Purge, name, lambda *given: (swap(), real(*given))[1])

    first({"before it is listed": "look", "before it is written": "_rewrite", "before it is removed": "_discard"}[when])
    job = Purge(tmp_path / "home", "me", 1.0, texts=(f"{WORD}x",), also=(folder,))
    if when == "before it is written":
        with pytest.raises(PerdureError, match=r"a\.md: a symbolic link is on the way"):
            job.carry_out()
    else:
        assert any("a symbolic link is on the way" in line for line in job.carry_out().unread)
    assert {one.name: one.read_text() for one in vault.iterdir()} == dict.fromkeys(
        ("a.md", f"{WORD}x.md"), f"mine: {WORD}x\n"
    )


def test_a_folder_of_memories_may_have_any_name(place: Path) -> None:
    """SEC-12: also one that folders of sessions have, and below a home whose own path has such a name."""
    place = place / "memory"
    place.mkdir()
    directory, home, project = spread(place), place / ".perdure", place / "project"
    made = [directory.parent / "memory" / name / "azure.md" for name in ("blobs", "before", "checkpoints/objects")]
    for path in made:
        path.parent.mkdir(parents=True)
        path.write_text(f"storage: {CANARY}\n")
    done = command("purge", "--yes", cwd=project, env=environment(place), given=CANARY)
    assert done.returncode == 0 and "stored result" in done.stdout, done.stderr
    assert [path.read_text() for path in made] == ["storage: (purged)\n"] * 3
    assert files_with(home, CANARY) == []
