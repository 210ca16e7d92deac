"""ENG-8: an import is what replay is: the log's view and size, one message a line, restored from its source."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.unit.foreign.lines import Data, answer, call, entry, jsonl, result, text, user

from perdure.compaction.ledger.memory import PackedLedger
from perdure.compaction.logged import view_as_logged
from perdure.context.request import to_request
from perdure.context.state import LOGGED
from perdure.context.view import size_tokens
from perdure.engine.imports import source_of
from perdure.engine.session import LiveSession
from perdure.lab.replay.cost import LogHistory
from perdure.logs.detect import read_recordings
from perdure.settings import Settings
from perdure.testing import ModelRules, check_anthropic
from perdure.transcript.codec import decode_line
from perdure.transcript.messages import Message
from perdure.transcript.records import Cleared, Compacted
from perdure.wiring import SessionOptions, open_session

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("place")]


def used(entry: Data, prompt: int) -> Data:
    entry["message"]["usage"] = {"input_tokens": prompt, "output_tokens": 10}
    return entry


def compacted_log() -> bytes:
    """A log that cleared results, compacted, and went on; what it reports behind that is a fifth of what was said."""
    steps: list[Data | bytes] = [user("u0", None, "Find the bug in parser.py and mend it")]
    size, parent = 30_000, "u0"
    for turn in range(12):
        name = f"c{turn}"
        steps.append(
            used(
                answer(f"a{turn}", parent, text("I look."), call(name, file_path=f"f{turn}.py"), response=f"m{turn}"),
                size,
            )
        )
        steps.append(user(f"r{turn}", f"a{turn}", [result(name, f"line {turn} of the file\n" * 800)]))
        size, parent = size + 4_000, f"r{turn}"
        if turn == 6:
            told = {"trigger": "auto", "preTokens": size, "tokensSaved": 9_000, "compactedToolIds": ["c0", "c1"]}
            steps.append(entry("system", "micro", None, subtype="microcompact_boundary", microcompactMetadata=told))
    told = {"trigger": "auto", "preTokens": size, "preservedMessages": {"uuids": ["a11", "r11"]}}
    steps.append(entry("system", "bound", None, subtype="compact_boundary", compactMetadata=told))
    steps.append(user("s0", None, "This session continues. The parser was read.", isCompactSummary=True))
    steps.append(user("u1", "s0", "go on"))
    steps.append(used(answer("z0", "u1", text("It is in line 7."), response="z0"), 21_000))
    steps.append(user("u2", "z0", "thank you"))
    return jsonl(*steps)


@pytest.fixture
def log(place: Path) -> Path:
    path = place / "log.jsonl"
    path.write_bytes(compacted_log())
    return path


def journal(place: Path) -> Path:
    return next((place / "home").rglob("journal.jsonl"))


async def opened(place: Path, name: str = "s1") -> LiveSession:
    session = await open_session(place / "home", name)
    await session.close()
    return session


def test_an_import_of_a_log_that_compacted_has_its_view_and_its_size(run: Any, log: Path, place: Path) -> None:
    """ENG-8: boundaries and clearing become ours; the size is what was reported of that very view."""
    before = run("context", log, "--json").json[0]
    assert run("import", log).code == 0
    session = anyio.run(opened, place)
    (recording,) = read_recordings(log.read_bytes(), log.name)
    logged, history = view_as_logged(recording), LogHistory(Settings())
    for step in recording.steps:
        history.add(step)
    base = Settings(estimator="base")
    assert size_tokens(session.view, base) == size_tokens(logged, base) == history.tokens
    assert 21_010 < size_tokens(session.view) < 21_050
    assert run("context", "s1", "--json").json[0]["tokens"] == before["tokens"]
    body = to_request(session.view, session.facts()).body
    assert not check_anthropic(body, model_rules=ModelRules())
    assert b"This session continues." in body and b"line 11 of the file" in body and b"line 3 of" not in body
    assert [item.message.id for item in session.view.items] == ["s0", "a11", "r11", "u1", "z0", "u2"]
    records = [r for line in journal(place).read_bytes().splitlines()[1:] for r in decode_line(line).records]
    assert [r.id for r in records if isinstance(r, Compacted)] == ["bound"]
    assert [r.tool_use_ids for r in records if isinstance(r, Cleared)] == [("c0", "c1")]


def test_what_left_the_view_can_be_found_and_recalled(run: Any, log: Path, place: Path) -> None:
    """ENG-8, RCL-2: what the log's own system compacted away or cleared is there, by id and by words."""
    assert run("import", log).code == 0
    assert "line 1 of the file" in run("recall", "s1", "c1").out
    assert "line 3 of the file" in run("recall", "s1", "c3").out
    session = anyio.run(opened, place)
    known = " ".join(word.text for word in PackedLedger.of(session.view.state).spoken)
    assert "Find the bug in parser.py" in known, "a later compaction knows what the log's own had left"


def test_an_import_teaches_nothing_about_counting(run: Any, log: Path, place: Path) -> None:
    """ENG-8, TOK-4: usage of a log stands for more than it shows; neither this session nor the next learns of it."""
    assert run("import", log).code == 0
    session = anyio.run(opened, place)
    assert session.view.state.calibration.overhead_tokens is None and session.view.state.calibration.ratio == 1.0
    assert not list((place / "home").rglob("calibration.json"))
    assert {i.message.note for i in session.view.items if i.message.usage} == {LOGGED}


def test_one_message_a_line(run: Any, log: Path, place: Path) -> None:
    """ENG-8: a damaged line costs one message at most."""
    assert run("import", log).code == 0
    for line in journal(place).read_bytes().splitlines()[1:]:
        assert sum(isinstance(record, Message) for record in decode_line(line).records) <= 1


@pytest.mark.parametrize("redacts", [False, True])
def test_a_damaged_line_comes_back_from_the_source(run: Any, log: Path, place: Path, redacts: bool) -> None:
    """ENG-8, REL-2: a byte flipped in the middle of a line: it is as it was, which is recorded and said."""
    if redacts:
        log.write_bytes(log.read_bytes().replace(b"thank you", b"the key is ghp_" + b"a1B2c3D4e5" * 3 + b"F6g7H8"))
        (place / "home").mkdir(mode=0o700, exist_ok=True)
        (place / "home" / "config.toml").write_text("redact_at_ingest = true\n")
    assert run("import", log).code == 0
    path = journal(place)
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    at = len(lines[0])
    for number, line in enumerate(lines[1:-2], 2):  # the last two are the note of the source, and metadata
        if number % 4 == 0:
            place_of = at + len(line) // 2
            path.write_bytes(whole[:place_of] + bytes([whole[place_of] ^ 1]) + whole[place_of + 1 :])
            ran = run("doctor", "--repair")
            assert ran.code == 0 and f"line {number}: restored from the log" in ran.out, ran.out
            after = path.read_bytes()
            assert after.startswith(whole), f"line {number} isn't as it was"
            assert b"restored from the log" in after
        at += len(line)


def test_a_session_outside_of_a_store_is_restored_without_a_key(run: Any, log: Path, place: Path) -> None:
    """ENG-8, SEC-5: a folder that was copied elsewhere has no home, so no key is made in some folder above it."""
    assert run("import", log).code == 0
    outside = place / "a" / "b" / "c" / "copied"
    shutil.copytree(journal(place).parent, outside)
    path = outside / "journal.jsonl"
    whole = path.read_bytes()
    middle = whole.index(b"thank you")
    path.write_bytes(whole[:middle] + b"X" + whole[middle + 1 :])

    async def body() -> None:
        session = await open_session(
            place / "home", outside, parts=SessionOptions(settings=Settings(redact_at_ingest=True))
        )
        await session.close()

    anyio.run(body)
    assert b"restored from the log" in path.read_bytes()
    assert not list((place / "a").rglob("secret-ids.key"))


def test_damage_that_was_set_aside_before_is_restored_by_the_import_or_by_doctor(
    run: Any, log: Path, place: Path
) -> None:
    """ENG-8: `import` of the same log, or `doctor --repair`, brings the line back that an opening had set aside."""
    for number, command in enumerate((("import", log), ("doctor", "--repair"))):
        assert run("import", log).code == 0
        path = journal(place)
        whole = path.read_bytes()
        middle = whole.index(f"line {number + 3} of the file".encode())
        path.write_bytes(whole[:middle] + b"X" + whole[middle + 1 :])
        ran = run(*command)
        assert ran.code == 0, ran.err
        assert "restored" in ran.out
        assert path.read_bytes().startswith(whole)
        assert run("context", "s1").code == 0


def test_a_damaged_import_that_somebody_went_on_with(run: Any, log: Path, place: Path) -> None:
    """ENG-8: what was said since stays behind the restored lines."""
    assert run("import", log).code == 0

    async def goes_on() -> None:
        session = await open_session(place / "home", "s1")
        await session.append("one thing more")
        await session.close()

    anyio.run(goes_on)
    path = journal(place)
    whole = path.read_bytes()
    middle = whole.index(b'"text":"thank you"')
    path.write_bytes(whole[:middle] + b"X" + whole[middle + 1 :])
    session = anyio.run(opened, place)
    assert session.view.items[-1].message.blocks[0].raw == b'{"type":"text","text":"one thing more"}'
    assert path.read_bytes().startswith(whole)


def test_the_same_log_again_adds_only_what_is_new(run: Any, log: Path, place: Path) -> None:
    """ENG-8: nothing is doubled; a log that grew brings what came to it; the export is the log again."""
    whole = log.read_bytes()
    rows = whole.splitlines(keepends=True)
    for cut in (5, 16, len(rows) - 1):
        log.write_bytes(b"".join(rows[:cut]))
        (first,) = run("import", log, "--json").json
        assert not first["is_there"]
        ran = run("import", log)
        assert ran.code == 0 and "imported before, nothing new" in ran.out
        log.write_bytes(whole)
        (grown,) = run("import", log, "--json").json
        assert grown["is_there"] and grown["messages"] == 28 - first["messages"]
        session = anyio.run(opened, place)
        (recording,) = read_recordings(whole, log.name)
        logged = view_as_logged(recording)
        assert [i.message.id for i in session.view.items] == [i.message.id for i in logged.items]
        assert size_tokens(session.view) == size_tokens(logged)
        assert run("export", "s1", "-o", "out.jsonl", "--force").code == 0
        assert (place / "out.jsonl").read_bytes() == whole
        assert run("sessions", "delete", "s1", "--yes").code == 0


def test_what_is_no_import_of_it_is_left_alone(run: Any, log: Path, place: Path) -> None:
    """ENG-8: a session that went on, and another log of the same name, are refused in one line."""
    assert run("import", log).code == 0
    other = jsonl(user("x0", None, "something else entirely"))
    log.write_bytes(other)
    ran = run("import", log)
    assert ran.code == 2 and "another log of that name" in ran.err and ran.err.count("\n") == 1
    log.write_bytes(compacted_log() + jsonl(user("u3", "u2", "and more")))

    async def goes_on() -> None:
        session = await open_session(place / "home", "s1")
        await session.append("one thing more")
        await session.close()

    anyio.run(goes_on)
    before = journal(place).read_bytes()
    ran = run("import", log)
    assert ran.code == 2 and "has been continued since it was imported" in ran.err
    assert journal(place).read_bytes() == before


def test_an_import_whose_end_is_missing_isnt_to_be_deleted_once_somebody_went_on(
    run: Any, log: Path, place: Path
) -> None:
    """ENG-8: nothing that was said since is given up for an import."""
    assert run("import", log).code == 0
    path = journal(place)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:10]))
    ran = run("import", log)
    assert ran.code == 2 and "sessions delete s1" in ran.err and ran.err.count("\n") == 1

    async def goes_on() -> None:
        session = await open_session(place / "home", "s1")
        await session.append("one thing more")
        await session.close()

    anyio.run(goes_on)
    ran = run("import", log)
    assert ran.code == 2 and "continued since" in ran.err and "delete" not in ran.err and "--as" in ran.err


def test_an_export_of_an_import_is_the_log(run: Any, log: Path, place: Path) -> None:
    """ENG-6, ENG-8: what nobody changed has the same bytes, compacted or not."""
    assert run("import", log).code == 0
    assert run("export", "s1", "-o", "out.jsonl").code == 0
    assert (place / "out.jsonl").read_bytes() == log.read_bytes()
    records = [r for line in journal(place).read_bytes().splitlines()[1:] for r in decode_line(line).records]
    source = source_of(tuple(records))
    assert source is not None and source.messages == 28
    assert json.loads(journal(place).read_bytes().splitlines()[0])["source"] == str(log)


def test_a_folder_of_logs_is_imported_file_by_file(run: Any, log: Path, place: Path) -> None:
    """CLI-6, CLI-5: each log with its outcome and a sum; a bad one fails alone, and the exit code says so."""
    logs, recorded = place / "logs", place / "api"
    (logs / "deeper").mkdir(parents=True)
    recorded.mkdir()
    log.rename(logs / "a.jsonl")
    entries = [user("u0", None, "Hello"), answer("a0", "u0", text("Hi."), response="m0")]
    (logs / "deeper" / "b.jsonl").write_bytes(
        jsonl(*({**one, "sessionId": "s2", "cwd": str(recorded)} for one in entries))
    )
    (logs / "c.jsonl").write_bytes(b"\xff\xfe no log\n")
    (logs / "d.jsonl").write_bytes(jsonl({"type": "summary", "summary": "Nothing yet", "leafUuid": "x"}))
    (logs / "settings.json").write_bytes(b'{"theme": "dark"}')
    ran = run("import", logs)
    assert ran.code == 1
    lines = ran.out.splitlines()
    assert lines[0].startswith("s1: 28 messages imported from ") and "a.jsonl" in lines[0]
    assert any(line.startswith("failed: ") and "c.jsonl" in line for line in lines)
    assert any(line.startswith("skipped: ") and "d.jsonl" in line for line in lines)
    assert lines[-1] == "4 files: 2 imported, 1 without a conversation, 1 failed" and "skipped 1 JSON file" in ran.err
    projects = {one["session"]: one["project"] for one in run("sessions", "--json").json}
    assert projects == {"s1": "/p", "s2": str(recorded)}, "where it was recorded, whether that is here or not"

    (logs / "c.jsonl").unlink()
    with (logs / "deeper" / "b.jsonl").open("ab") as file:
        file.write(jsonl({**user("u1", "a0", "And more"), "sessionId": "s2", "cwd": str(recorded)}))
    again = run("import", logs / "a.jsonl", logs / "deeper", "--json")
    first, second, total = again.json
    assert (first["session"], first["is_there"], first["messages"]) == ("s1", True, 0)
    assert (second["session"], second["is_there"], second["messages"]) == ("s2", True, 1)
    assert total["total"].pop("seconds") >= 0 and total["total"].pop("bytes") > 0
    assert total == {
        "total": {
            "files": 2, "imported": 0, "updated": 1, "imported_before": 1, "without_a_conversation": 0, "skipped": 0,
            "failed": 0, "messages": 1,
        }
    }  # fmt: skip
    assert run("import", logs).code == 0 and len(run("sessions", "--json").json) == 2


def test_what_several_logs_cannot_be_given_is_one_line(run: Any, log: Path, place: Path) -> None:
    """CLI-5: one id for many sessions, and a folder without logs."""
    (place / "empty").mkdir()
    for words, code, what in (
        (("import", place, "--as", "api"), 2, "--as"),
        (("import", log, log, "--session", "s1"), 2, "--session"),
        (("import", place / "empty"), 3, "no logs"),
    ):
        ran = run(*words)
        assert ran.code == code and what in ran.err and ran.err.count("\n") == 1


def test_a_project_holds_all_that_is_imported_for_it(run: Any, log: Path, place: Path) -> None:
    """CLI-6: --project is for whoever brings logs from elsewhere; the home directory is no project."""
    (place / "logs").mkdir()
    for name, cwd in (("s2", str(place)), ("s3", str(Path.home()))):
        entry = {**user("u0", None, "Hello"), "sessionId": name, "cwd": cwd}
        (place / "logs" / f"{name}.jsonl").write_bytes(jsonl(entry))
    (place / "api").mkdir()
    assert run("import", place / "logs" / "s2.jsonl", place / "logs" / "s3.jsonl", "--project", place / "api").code == 0
    assert {one["project"] for one in run("sessions", "--json").json} == {str(place / "api")}
    for one in ("s2", "s3"):
        assert run("sessions", "delete", one, "--yes").code == 0
    assert run("import", place / "logs").code == 0
    assert {one["project"] for one in run("sessions", "--json").json} == {str(place)}
