"""`perdure doctor`, and what it brings back: blobs, cut journals, lines that were put aside (D5, ENG-9)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from perdure.adapters.journal import FileBlobs, SessionStore
from perdure.cli import main
from perdure.context.passes import blob_id
from perdure.transcript.blocks import text_block
from perdure.transcript.messages import BlobId, Message, MessageId, ToolUseId, content_of
from perdure.transcript.records import Noted, Offloaded, StoredOriginal

pytestmark = pytest.mark.e2e

RESULT = msgspec.Raw(b'{"type":"tool_result","tool_use_id":"t1","content":"' + b"line\\n" * 900 + b'"}')
LOST = b"nobody else has these bytes"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def doctor(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str]:
    capsys.readouterr()
    code = main(["doctor", *args])
    return code, capsys.readouterr().out


def said(name: str, *content: Any) -> Message:
    blocks = content or content_of([text_block(name)])
    return Message(id=MessageId(name), role="user", content=blocks, origin="user")


def made(home: Path) -> tuple[Path, BlobId, BlobId]:
    """A session with a result that left the view, whose bytes its journal holds, and a blob that nothing else has."""

    async def body() -> tuple[Path, BlobId, BlobId]:
        files = await SessionStore(home).create("s1", project=home, created=1.0)
        stored, alone = await files.blobs.put((bytes(RESULT), LOST))
        await files.journal.append((said("m1", RESULT),))
        edit = Offloaded(stored=(StoredOriginal(ToolUseId("t1"), stored, len(bytes(RESULT))),))
        await files.journal.append((edit, Noted(kind="other", data={"blob": alone})))
        await files.journal.append((said("m2"),))
        await files.journal.close()
        return files.directory, stored, alone

    return anyio.run(body)


def get(directory: Path, blob: BlobId) -> bytes:
    return anyio.run(FileBlobs(directory / "blobs").get, blob)


def test_damaged_and_missing_blobs(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """D5, ENG-9: named with what uses them; what the journal holds comes back, and a damaged one is kept aside."""
    directory, stored, alone = made(home)
    assert doctor(capsys)[0] == 0
    for harm in ("flip", "remove"):
        for blob in (stored, alone):
            path = directory / "blobs" / blob
            raw = bytearray(path.read_bytes())
            raw[len(raw) // 2] ^= 1
            path.write_bytes(raw) if harm == "flip" else path.unlink()
        code, out = doctor(capsys)
        how = "is damaged" if harm == "flip" else "is gone"
        assert code == 1 and f"blob {stored[:12]} {how}" in out and "(result t1, offloaded in line 3)" in out
        assert f"blob {alone[:12]} {how}" in out and "(noted in line 3)" in out and "all is well" not in out
        code, out = doctor(capsys, "--repair")
        assert code == 1 and f"blob {stored[:12]}: restored" in out and f"blob {alone[:12]} is gone" in out
        assert get(directory, stored) == bytes(RESULT)
        assert len(list((directory / "blobs").glob("*.damaged-*"))) == 2
        anyio.run(FileBlobs(directory / "blobs").put, (LOST,))
        assert doctor(capsys)[0] == 0


def test_a_damaged_blob_is_stored_again(tmp_path: Path) -> None:
    """RCL-2, ENG-9: whoever puts the same bytes is told that they are there, so they have to be."""
    blobs = FileBlobs(tmp_path / "blobs")
    (blob,) = anyio.run(blobs.put, (LOST,))
    (tmp_path / "blobs" / blob).write_bytes(b"=other")
    assert anyio.run(blobs.put, (LOST,)) == (blob,) == (blob_id(LOST),)
    assert anyio.run(blobs.get, blob) == LOST
    assert (tmp_path / "blobs" / f"{blob}.damaged-1").read_bytes() == b"=other"


def test_a_cut_journal(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """D5, ENG-9: by whole lines, so that nothing in it tells."""
    directory, _, _ = made(home)
    journal = directory / "journal.jsonl"
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:-1]))
    code, out = doctor(capsys)
    assert code == 1 and "the last line that was acknowledged is missing" in out
    assert doctor(capsys, "--repair")[0] == 0
    code, out = doctor(capsys)
    assert code == 0 and "lines are missing before this one" in out, "what is gone for good isn't said any more"
    assert "set aside" not in out, "nothing was: it was gone"


def test_a_file_that_is_no_journal_is_named_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """CLI-3: one line, with the file and where to turn."""
    other = tmp_path / "log.jsonl"
    other.write_bytes(b'{"type":"user"}\n')
    code, out = doctor(capsys, str(other))
    assert code == 1 and out.count(str(other)) == 1 and "perdure inspect" in out


def test_a_damaged_header_and_a_repeated_line(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """D5, ENG-9: said, mended, and everything is there again."""
    directory, _, _ = made(home)
    journal = directory / "journal.jsonl"
    whole = journal.read_bytes()
    lines = whole.splitlines(keepends=True)
    damaged = lines[0].replace(b"journal", b"jounral") + lines[3] + b"".join(lines[1:])
    journal.write_bytes(damaged)
    code, out = doctor(capsys)
    assert code == 1 and "the header is damaged" in out and "repeated" in out
    assert doctor(capsys, "--repair")[0] == 0 and journal.read_bytes().startswith(whole)
    assert (directory / "journal.jsonl.before-1").read_bytes() == damaged
    code, out = doctor(capsys)
    assert code == 0 and "journal.jsonl.before-1: the journal before it was rewritten" in out


def test_journals_of_sub_agents_and_of_the_gateway(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """ENG-9: every journal at home is looked at, not only those that are listed."""
    directory, _, _ = made(home)
    raw = bytearray((directory / "journal.jsonl").read_bytes())
    raw[-30] ^= 1
    child = directory / "agents" / "a1"
    tenant = home / "gateway" / "tenants" / "t1" / "projects" / "p" / "s9"
    for place in (child, tenant):
        place.mkdir(parents=True, mode=0o700)
        (place / "journal.jsonl").write_bytes(raw)
        (place / "journal.jsonl").chmod(0o600)
    code, out = doctor(capsys)
    assert code == 1 and "session a1: line 4" in out and "session s9: line 4" in out and "1 of 3 are sound" in out


def test_a_repair_counts_what_it_did(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """CLI-3, SES-1: as many damaged pieces, folders and files as there were, and as many again set aside earlier."""
    directory, _, _ = made(home)
    journal = directory / "journal.jsonl"

    async def more() -> None:
        files = await SessionStore(home).open("s1")
        for number in range(3, 9):
            await files.journal.append((said(f"m{number}"),))
        await files.journal.close()

    anyio.run(more)
    lines = journal.read_bytes().splitlines(keepends=True)
    for number in (4, 6, 8):  # none beside another: each is a piece of its own
        damaged = bytearray(lines[number])
        damaged[len(damaged) // 2] ^= 1
        lines[number] = bytes(damaged)
    journal.write_bytes(b"".join(lines))
    open_files = [journal, *sorted(path for path in (directory / "blobs").iterdir() if path.is_file())]
    for path in open_files:
        path.chmod(0o644)
    (directory / "blobs").chmod(0o755)
    code, out = doctor(capsys)
    assert code == 1 and "line 5: " in out and "line 7: " in out and "line 9: " in out and "--repair" in out
    code, out = doctor(capsys, "--repair")
    assert code == 0 and "repaired: 3 damaged pieces set aside and recorded" in out
    (closed,) = [line for line in out.splitlines() if "closed to other users" in line]
    assert "repaired: 1 folder and " in closed and f" and {len(open_files)} files closed" in closed
    code, out = doctor(capsys)
    assert code == 0 and "3 damaged pieces set aside earlier" in out and "all is well" in out
    code, out = doctor(capsys, "--repair")
    assert code == 0 and "repaired" not in out, "a second one finds nothing to do"


def test_meaning_that_is_switched_off_is_not_said_to_be_there(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """MEM-15: whether the package is there or not."""
    monkeypatch.setenv("PERDURE_RETRIEVAL_SEMANTIC", "false")
    _, told = doctor(capsys)
    assert "note     semantic: switched off by the setting retrieval_semantic\n" in told
    monkeypatch.delenv("PERDURE_RETRIEVAL_SEMANTIC")
    _, told = doctor(capsys)
    assert " semantic: " in told and "switched off" not in told
