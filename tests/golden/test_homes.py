"""What released versions left on people's disks opens, reads the same, and can still be undone (REL-6, ENG-3, OPS-1).

homes/README.md says what is in there. Journals name the folder that they were made in, so where files are put back they
have to stand there.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import re
import shutil
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.services import FixedClock

from perdure.adapters.journal import verify
from perdure.cli import main
from perdure.context.request import to_request
from perdure.settings import Settings
from perdure.testing import ModelRules, check_anthropic, check_openai
from perdure.transcript.records import Offloaded
from perdure.wiring import SessionOptions, open_session

pytestmark = pytest.mark.golden

HOMES = Path(__file__).parent / "homes"
PLACE = Path("/tmp/golden-home-of-0.1")  # where the home of 0.1 was made
SHAPE = ModelRules(max_output_tokens=10**9, allow_unknown=True)  # one session's model isn't Anthropic's


def unpacked(into: Path) -> Path:
    """The home of 0.1 in a folder, and its project beside it."""
    with tarfile.open(HOMES / "0.1.tar.gz") as packed:
        packed.extractall(into, filter="tar")  # "data" would change modes
    return into / "home"


@pytest.fixture(scope="module")
def read_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For tests that only read."""
    return unpacked(tmp_path_factory.mktemp("old"))


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """In its own place, with its project: one test at a time."""
    lock = PLACE.with_suffix(".lock")
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        shutil.rmtree(PLACE, ignore_errors=True)
        PLACE.mkdir()
        if PLACE.resolve() != PLACE:
            pytest.skip(f"{PLACE} is another folder's name on this machine, and the journals name it")
        try:
            monkeypatch.setenv("PERDURE_HOME", str(unpacked(PLACE)))
            monkeypatch.setenv("HOME", str(PLACE))
            monkeypatch.chdir(PLACE / "app")
            yield PLACE / "home"
        finally:
            shutil.rmtree(PLACE, ignore_errors=True)


def journals(home: Path) -> list[Path]:
    return sorted(home.rglob("journal.jsonl"))


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]


async def told(home: Path, journal: Path) -> dict[str, Any]:
    """What there is to say of a session: what it shows, what would be sent, and all that was recorded."""
    parts = SessionOptions(settings=Settings(), clock=FixedClock())
    session = await open_session(home, journal.parent, read_only=True, whole=True, parts=parts)
    try:
        view, facts = session.view, session.facts()
        requests = {protocol: to_request(view, facts, protocol=protocol) for protocol in ("anthropic", "openai")}
        assert not check_anthropic(requests["anthropic"].body, model_rules=SHAPE)
        assert not check_openai(requests["openai"].body)
        loaded = await session.ports.journal.load(whole=True)
        originals = [
            (one.tool_use_id, len(await session.ports.blobs.get(one.blob)))
            for placed in loaded.records
            if isinstance(placed.record, Offloaded)
            for one in placed.record.stored
        ]
        messages = [
            f"{item.message.role} {item.message.origin} "
            + " ".join(f"{block.type}:{digest(block.raw)}" for block in item.visible)
            for item in view.items
        ]
        return {
            "session": session.id,
            "project": loaded.header.project,
            "records": len(loaded.records),
            "repairs": [repair.what for repair in loaded.repairs],
            "originals": originals,
            "pins": [pin.text for pin in view.state.pins],
            "view": messages,
            "requests": {name: f"{len(one.body)} {digest(one.body)}" for name, one in requests.items()},
        }
    finally:
        await session.close()


def test_every_session_is_what_it_was(read_home: Path, golden: Callable[[Path, str], None]) -> None:
    """REL-6, ENG-3: view, originals and the bytes of the next request, of every session; and reading writes nothing."""
    before = {path: path.read_bytes() for path in journals(read_home)}
    found = [anyio.run(told, read_home, path) for path in before]
    assert len(found) == 7 and not any(one["repairs"] for one in found)
    golden(HOMES / "0.1.txt", json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    assert {path: path.read_bytes() for path in journals(read_home)} == before


def test_every_journal_is_sound(read_home: Path) -> None:
    """REL-6: sums, numbers and places of every line."""
    assert [verify(path) for path in journals(read_home)] == [()] * 7


def run(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    code = main(words)
    shown = capsys.readouterr()
    assert code == 0, shown.err + shown.out
    return shown.out


def session_named(capsys: pytest.CaptureFixture[str], title: str) -> str:
    listed = json.loads("[" + ",".join(run(capsys, "sessions", "--json").splitlines()) + "]")
    rows = listed[0].get("sessions", listed)
    return next(row["session"] for row in rows if row["title"] == title)


def test_sessions_are_listed(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """SES-1: with their titles and tags."""
    shown = run(capsys, "sessions")
    for title in ("plain", "compacted", "rewound", "imported"):
        assert title in shown
    assert "utf-8" in run(capsys, "sessions", "show", session_named(capsys, "plain"))


def test_doctor_is_content(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """CLI-5: nothing on the disk of 0.1 is called wrong, and the folder is still trusted."""
    shown = run(capsys, "doctor")
    assert "7 of 7 are sound" in shown and "all is well" in shown and "trusted" in shown


def test_files_go_back_from_a_checkpoint(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """CKP-3, CKP-6: to before the first prompt, and forward again."""
    source = home.parent / "app" / "src"
    name = session_named(capsys, "plain")
    changed = {path.name: path.read_bytes() for path in source.iterdir()}
    run(capsys, "rewind", name, "-4", "--code")
    assert (source / "loader.py").read_text() == "def load(path):\n    return open(path).read()\n"
    assert (source / "keep.bin").read_bytes() == bytes(range(256)) and not (source / "new.py").exists()
    run(capsys, "rewind", name, "--undo")
    assert {path.name: path.read_bytes() for path in source.iterdir()} == changed


def test_a_conversation_goes_on(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """CMP-7, RET-1: its compaction can be taken back, its rewind undone, and originals recalled."""
    assert "line 1199" in run(capsys, "recall", session_named(capsys, "plain"), "c5")
    run(capsys, "uncompact", session_named(capsys, "compacted"))
    run(capsys, "compact", session_named(capsys, "compacted"))
    assert "Never push" in run(capsys, "pin", session_named(capsys, "plain"), "--list")


def test_notes_and_memories_are_there(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """MEM-1, MEM-11: found, listed with whose word they are, and the last change can be taken back."""
    assert "# " in run(capsys, "notes", "show", session_named(capsys, "compacted"))
    listed = run(capsys, "memory", "ls")
    assert "build" in listed and "tabs" in listed
    assert "make test" in run(capsys, "memory", "search", "how to build")
    assert "project_gone" in run(capsys, "memory", "log")
    run(capsys, "memory", "undo")


def test_settings_of_the_home_hold(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """CLI-3: the user's file, and the file of the trusted project."""
    shown = run(capsys, "config")
    assert "60000" in shown.replace(",", "") and "1500" in shown.replace(",", "")


# --- an update, in the place and under the name that 0.1 gave it ------------------------------------------------------

# Kinds of records that 0.1 knows (commit 827f0e0). It skips others: a session that holds one looks different there.
KNOWN_TO_0_1 = frozenset(
    "calibrated cleared collapsed compacted compaction_failed cursor front in_flight media_replaced message "
    "neutralised noted offloaded pinned repaired rewound settled snipped thinking_dropped titled undone".split()
)
# What reading adds to a home: indexes, which are made anew when they are missing, and the name of a project's folder.
MADE_BY_READING = re.compile(r"index\.db(-journal|-wal|-shm)?|memory-index/[0-9a-f]+\.msgpack|projects/[^/]+/project")


@pytest.fixture
def updated(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home where 0.1 had it, in its person's own folder, and nothing that says so."""
    monkeypatch.delenv("PERDURE_HOME")
    return home.rename(PLACE / ".holdfast")


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_an_update_changes_nothing_that_is_only_read(updated: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """OPS-1, CLI-3: sessions, searches, memories, notes and settings are found, and each file of 0.1 is as it was."""
    before = files(PLACE)
    assert "rewound" in run(capsys, "sessions")
    plain = session_named(capsys, "plain")
    assert "plain" in run(capsys, "search", "--all", "utf-8")
    assert "line 1199" in run(capsys, "recall", plain, "c5")
    assert "tabs" in run(capsys, "memory", "ls") and "make test" in run(capsys, "memory", "search", "how to build")
    assert "# " in run(capsys, "notes", "show", session_named(capsys, "compacted"))
    assert str(updated) in run(capsys, "config") and "all is well" in run(capsys, "doctor")
    run(capsys, "context", plain)
    run(capsys, "inspect", plain)
    run(capsys, "export", plain, "--out", str(PLACE / "app" / "plain.jsonl"))
    after = files(PLACE)
    assert {name: after.get(name) for name in before} == before
    new = {name.removeprefix(".holdfast/") for name in after.keys() - before.keys()} - {"app/plain.jsonl"}
    assert new and not [name for name in new if not MADE_BY_READING.fullmatch(name)]


def test_what_an_update_adds_0_1_can_read(updated: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """OPS-1, ENG-3: a session that goes on keeps its lines, and gains only kinds of records that 0.1 knows."""
    before = {path: path.read_bytes() for path in journals(updated)}
    plain, compacted = session_named(capsys, "plain"), session_named(capsys, "compacted")
    run(capsys, "run", "--resume", plain, "--model", "offline", "read src/loader.py")
    run(capsys, "pin", plain, "Mind the loader.")
    run(capsys, "rewind", plain, "-2", "--code")
    run(capsys, "uncompact", compacted)
    run(capsys, "compact", compacted)
    run(capsys, "sessions", "rename", compacted, "shrunk")
    changed = {path for path in before if path.read_bytes() != before[path]}
    assert {path.parent.name for path in changed} == {plain, compacted}
    for path in changed:
        whole = path.read_bytes()
        assert whole.startswith(before[path])
        added = [json.loads(line) for line in whole[len(before[path]) :].splitlines()]
        kinds = {record["type"] for line in added for record in line["records"]}
        assert kinds and kinds <= KNOWN_TO_0_1
    assert all(verify(path) == () for path in before)


def test_the_folders_of_0_1_are_renamed_when_asked_for(updated: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """OPS-1, CLI-3: all is found under the new name; memories keep their log, and a change in it can be undone."""
    run(capsys, "doctor", "--repair")
    assert not updated.exists() and not (PLACE / "app" / ".holdfast").exists()
    assert {path.parent.parent.parent.parent for path in journals(PLACE)} >= {PLACE / ".perdure"}
    shown = run(capsys, "doctor")
    assert "7 of 7 are sound" in shown and "trusted" in shown
    assert "line 1199" in run(capsys, "recall", session_named(capsys, "plain"), "c5")
    assert "project_gone" in run(capsys, "memory", "log")
    run(capsys, "memory", "undo")
    assert "60000" in run(capsys, "config").replace(",", "")
