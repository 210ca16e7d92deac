"""CLI-6, ENG-6: importing all that clients keep: whole or not at all, again, from hostile folders, two at once."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from tests.recordings.conftest import ABSENT, DATA
from tests.unit.foreign.lines import Data, answer, call, entry, jsonl, result, text, user

from perdure.adapters import logs
from perdure.adapters.journal import FileJournal
from perdure.adapters.journal.search import open_search_index
from perdure.adapters.journal.store import IMPORT_DRAFT, SessionFiles, SessionStore
from perdure.compaction.logged import view_as_logged
from perdure.context.view import ContextView
from perdure.engine.session import LiveSession
from perdure.logs.detect import read_recordings
from perdure.settings import Settings
from perdure.wiring import imports, open_session

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("place")]


def uuid(session: int, number: int) -> str:
    return f"{session:08x}-0000-4000-8000-{number:012x}"


def conversation(session: int, turns: int, *, name: str | None = None, cwd: str = "/src/shop") -> list[Data]:
    """A log of Claude Code: in each turn a prompt, a call with its result, and an answer."""
    entries: list[Data] = []
    parent = None
    for turn in range(turns):
        ids = [uuid(session, 4 * turn + step) for step in range(4)]
        used = f"toolu_{session}_{turn}"
        entries += [
            user(ids[0], parent, f"Please look at module {session}-{turn}"),
            answer(ids[1], ids[0], call(used, file_path=f"m{turn}.py"), response=f"msg_{session}_{turn}_a"),
            user(ids[2], ids[1], [result(used, f"contents of m{turn}, the {'x' * 40}")]),
            answer(ids[3], ids[2], text(f"Module {session}-{turn} is fine."), response=f"msg_{session}_{turn}_b"),
        ]
        parent = ids[3]
    return [{**one, "sessionId": name or uuid(session, 0), "cwd": cwd} for one in entries]


def codex_log(session: str, *words: str) -> bytes:
    """A rollout of Codex."""
    meta = {"id": session, "cwd": "/src/api", "timestamp": "2026-01-02T03:04:05Z"}
    rows: list[Data] = [{"timestamp": "2026-01-02T03:04:05Z", "type": "session_meta", "payload": meta}]
    for said in words:
        for role, kind in (("user", "input_text"), ("assistant", "output_text")):
            item = {"type": "message", "role": role, "content": [{"type": kind, "text": f"{said} ({role})"}]}
            rows.append({"timestamp": "2026-01-02T03:04:06Z", "type": "response_item", "payload": item})
    return jsonl(*rows)


def codex_fork(session: str, original: bytes, *words: str) -> bytes:
    """A rollout that a fork begins: a line of its own, those of the original with new times, and what came then."""
    own, *more = codex_log(session, *words).splitlines(keepends=True)
    known = msgspec.json.decode(original.splitlines()[0])["payload"]["id"]
    own = own.replace(b'"payload":{', b'"payload":{"forked_from_id":"' + known.encode() + b'",')
    return own + original.replace(b"2026-01-02", b"2026-03-04") + b"".join(more)


@pytest.fixture
def user_home(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a user of both clients has: two sessions of Claude Code, one with a sub-agent, and one of Codex."""
    home = place / "me"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("CODEX_HOME", raising=False)
    projects = home / ".claude" / "projects" / "-src-shop"
    side = [
        {**one, "isSidechain": True, "agentId": "a1b2", "sessionId": uuid(1, 0)}
        for one in conversation(7, 1, name=uuid(1, 0))
    ]
    write(projects / f"{uuid(1, 0)}.jsonl", jsonl(*conversation(1, 3)), 1_000)
    write(projects / uuid(1, 0) / "subagents" / "agent-a1b2.jsonl", jsonl(*side), 1_001)
    write(projects / f"{uuid(2, 0)}.jsonl", jsonl(*conversation(2, 2, cwd="/src/site")), 1_002)
    rollouts = home / ".codex" / "sessions" / "2026" / "01" / "02"
    write(rollouts / "rollout-2026-01-02T03-04-05-c0de.jsonl", codex_log("c0de", "Mend the parser"), 1_003)
    return home


def write(path: Path, data: bytes, seconds: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (1_700_000_000 + seconds,) * 2)
    return path


def everything(place: Path) -> dict[str, bytes]:
    """Every journal and blob, by its path."""
    found = (path for path in (place / "home" / "projects").rglob("*") if path.is_file() and path.name != "lock")
    return {str(path.relative_to(place)): path.read_bytes() for path in found}


def test_without_a_folder_everything_that_clients_keep_is_imported(run: Any, user_home: Path) -> None:
    """CLI-6: the places are found and said; sessions have titles, clients and projects; both clients are searched."""
    ran = run("import")
    assert ran.code == 0, ran.err
    assert "Claude Code: 3 logs" in ran.err and "Codex: 1 log" in ran.err and "in ~/.claude/projects" in ran.err
    assert ran.out.splitlines()[-1] == "4 files: 4 imported"
    listed = {one["session"]: one for one in run("sessions", "--json").json}
    assert listed[uuid(1, 0)]["title"] == "Please look at module 1-0"
    assert listed[uuid(1, 0)]["project"] == "/src/shop" and listed[uuid(2, 0)]["project"] == "/src/site"
    assert listed[uuid(1, 0)]["client"] == "Claude Code" and listed["c0de"]["client"] == "Codex"
    assert listed["agent-a1b2"]["tags"] == ["sub-agent"] and listed[uuid(1, 0)]["tags"] == []
    assert next(iter(listed)) == "c0de", "the newest log is the session written last"
    assert listed["c0de"]["modified"].startswith("2023-11-1"), "when its log was"
    assert "Codex" in run("sessions").out
    (hit,) = run("search", "--all", "--places", "parser", "--limit", "1", "--json").json
    assert (hit["session"], hit["client"], hit["title"]) == ("c0de", "Codex", "Mend the parser (user)")
    shown = run("search", "--all", "--places", "module", "2-1").out
    assert "Please look at module 2-0, /src/site, Claude Code" in shown
    shown = run("search", "--all", "look at module 2-0").out
    assert f"cd /src/site && claude --resume {uuid(2, 0)}\n   perdure resume {uuid(2, 0)[:8]}" in shown
    assert "codex resume" not in run("search", "--all", "mend the parser").out, "it has no id of Codex's"
    only = run("search", "module", "--project", "/src/site", "--json").json
    assert only and {one["session"] for one in only} == {uuid(2, 0)}
    assert "contents of m1" in run("recall", uuid(1, 0)[:8], "toolu_1_1").out


def test_a_search_before_the_first_import_names_it(run: Any) -> None:
    """CLI-6: other words wouldn't help."""
    ran = run("search", "--all", "--places", "module")
    assert ran.code == 0 and "no sessions in" in ran.out and "`perdure import`" in ran.out
    assert run("search", "module", "--json").out == ""


def test_the_first_search_has_nothing_to_take_in(run: Any, user_home: Path, place: Path) -> None:
    """CLI-6, SES-2: the index is filled by the import; a damaged or impossible one doesn't stop it."""
    (place / "home").mkdir(mode=0o700)
    (place / "home" / "index.db").mkdir()
    assert run("import").code == 0 and "without an index" in run("search", "--all", "--places", "module").err
    (place / "home" / "index.db").rmdir()
    write(user_home / ".claude" / "projects" / "-src-shop" / "new.jsonl", jsonl(*conversation(9, 1)), 3_000)
    assert run("import").code == 0
    journals = [directory / "journal.jsonl" for directory in SessionStore(place / "home").directories()]
    with open_search_index(place / "home" / "index.db") as index:
        assert index.refresh(journals, forget_others=True) == 0 and len(journals) == 5
    assert run("search", "--all", "--places", "Module 9-0 is fine", "--json").json[0]["session"] == uuid(9, 0)


def test_without_any_client_it_says_where_it_looked(run: Any, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CLI-5: one line with what to do."""
    monkeypatch.setenv("HOME", str(place))
    ran = run("import")
    assert ran.code == 3 and "~/.claude/projects" in ran.err and ran.err.count("\n") == 1


def test_a_second_run_reads_only_what_is_new(run: Any, user_home: Path, place: Path, monkeypatch: Any) -> None:
    """CLI-6: files that haven't changed aren't opened; what came to a log goes on in its session."""
    assert run("import").code == 0
    before = everything(place)
    read: list[str] = []

    def reads(path: Path) -> tuple[bytes, logs.LogFile]:
        read.append(path.name)
        return logs.read_log(path)

    monkeypatch.setattr("perdure.wiring.imports.read_log", reads)
    ran = run("import")
    assert ran.code == 0 and ran.out.strip() == "4 files: 4 imported before"
    assert read == [] and everything(place) == before
    grown = user_home / ".claude" / "projects" / "-src-shop" / f"{uuid(1, 0)}.jsonl"
    write(grown, jsonl(*conversation(1, 5)), 2_000)
    first = run("sessions", "--json").json[0]["session"]
    (told, *_, total) = [one for one in run("import", "--json").json if one.get("messages") or "total" in one]
    assert read == [grown.name] and told["messages"] == 8 and told["session"] == uuid(1, 0)
    assert total["total"]["updated"] == 1 and total["total"]["imported_before"] == 3
    assert (first, run("sessions", "--json").json[0]["session"]) == ("c0de", uuid(1, 0))
    assert run("export", uuid(1, 0), "-o", "out.jsonl").code == 0
    assert Path("out.jsonl").read_bytes() == grown.read_bytes()
    assert len(run("search", "--all", "--places", "module", "1-4", "--limit", "50", "--json").json) == len(
        {one["id"] for one in run("search", "--all", "--places", "module", "1-4", "--limit", "50", "--json").json}
    )


def test_a_log_cut_in_the_middle_of_a_line_goes_on_where_it_was_cut(run: Any, place: Path) -> None:
    """CLI-6: a client was writing while it was read."""
    whole = jsonl(*conversation(3, 4))
    log = write(place / "logs" / "a.jsonl", whole[: len(whole) * 2 // 3], 1)
    (first, _) = run("import", place / "logs", "--json").json
    assert first["problems"] == 1 and 0 < first["messages"] < 16
    write(log, whole, 2)
    (second, _) = run("import", place / "logs", "--json").json
    assert first["messages"] + second["messages"] == 16 and second["problems"] == 0
    assert run("export", uuid(3, 0), "-o", "out.jsonl").code == 0 and Path("out.jsonl").read_bytes() == whole


@pytest.mark.parametrize("is_older_first", [True, False])
def test_a_codex_fork_that_goes_on_with_all_of_another_is_one_conversation(
    run: Any, place: Path, is_older_first: bool
) -> None:
    """CLI-6: nothing is there twice, whichever is imported first; the answers are those of the longer one."""
    names = [f"{n:08d}-0000-4000-8000-000000000000" for n in (1, 2)]
    original = codex_log(names[0], "Mend the parser", "Test the parser")
    logs = place / "logs"
    write(logs / "rollout-1.jsonl", original, 1 if is_older_first else 2)
    write(logs / "rollout-2.jsonl", codex_fork(names[1], original, "Ship the parser"), 2 if is_older_first else 1)
    assert run("import", logs).code == 0
    (listed,) = run("sessions", "--json").json
    assert listed["messages"] == 6
    (hit,) = run("search", "--all", "--places", '"Mend the parser (user)"', "--json").json
    assert hit["also"] == []
    before = everything(place)
    assert run("import", logs).out.splitlines()[-1].startswith("2 files: ") and everything(place) == before


def test_a_codex_fork_that_parts_from_another_is_a_session_of_its_own(run: Any, place: Path) -> None:
    """CLI-6: each holds what was said in it alone; a second import changes nothing."""
    names = [f"{n:08d}-0000-4000-8000-000000000000" for n in (1, 2)]
    begun, logs = codex_log(names[0], "Mend the parser"), place / "logs"
    write(logs / "rollout-1.jsonl", begun + codex_log(names[0], "Keep tabs").split(b"\n", 1)[1], 1)
    write(logs / "rollout-2.jsonl", codex_fork(names[1], begun, "Keep spaces"), 2)
    assert run("import", logs).code == 0
    listed = {one["session"]: one["messages"] for one in run("sessions", "--json").json}
    assert listed == {names[0]: 4, names[1]: 4}
    for words, name in (("tabs", names[0]), ("spaces", names[1])):
        assert {one["session"] for one in run("search", "--all", "--places", words, "--json").json} == {name}
    before = everything(place)
    assert run("import", logs).code == 0 and everything(place) == before


@pytest.mark.parametrize("is_older_first", [True, False])
def test_a_resumed_log_that_repeats_another_is_one_conversation(run: Any, place: Path, is_older_first: bool) -> None:
    """CLI-6: resuming may copy all records to a log with another session id: one session holds both."""
    older = [*conversation(4, 2)]
    newer = [{**one, "sessionId": uuid(5, 0)} for one in conversation(4, 4)]
    write(place / "logs" / "older.jsonl", jsonl(*older), 1 if is_older_first else 3)
    write(place / "logs" / "newer.jsonl", jsonl(*newer), 2)
    ran = run("import", place / "logs")
    assert ran.code == 0
    assert (" 1 imported, 1 updated" if is_older_first else " 1 imported, 1 imported before") in ran.out
    (session,) = run("sessions", "--json").json
    assert session["messages"] == 16
    hits = run("search", "--all", "--places", '"Please look at module 4-1"', "--json").json
    assert sum("Please look at module 4-1" in one["snippet"] for one in hits) == 1 and not hits[0]["also"]
    assert run("import", place / "logs").code == 0 and len(run("sessions", "--json").json) == 1


def test_a_log_that_parts_from_its_copy_is_a_session_of_its_own(run: Any, place: Path) -> None:
    """CLI-6: two ways to go on from the same beginning are both kept, and found again by their files."""
    write(place / "logs" / "one.jsonl", jsonl(*conversation(4, 3)), 1)
    other = [*conversation(4, 2), *conversation(6, 2)]
    write(place / "logs" / "two.jsonl", jsonl(*({**one, "sessionId": uuid(4, 0)} for one in other)), 2)
    assert run("import", place / "logs").code == 0
    assert {one["session"] for one in run("sessions", "--json").json} == {uuid(4, 0), f"{uuid(4, 0)}-2"}
    before = everything(place)
    assert run("import", place / "logs").out.strip() == "2 files: 2 imported before" and everything(place) == before


def test_a_log_imported_alone_before_is_the_same_session(run: Any, user_home: Path) -> None:
    """CLI-6: whatever id and project it got then."""
    log = user_home / ".claude" / "projects" / "-src-shop" / f"{uuid(2, 0)}.jsonl"
    assert run("import", log, "--as", "site", "--project", user_home).code == 0
    assert run("import").out.splitlines()[-1] == "4 files: 3 imported, 1 imported before"
    assert uuid(2, 0) not in {one["session"] for one in run("sessions", "--json").json}


def test_a_session_somebody_went_on_with_keeps_what_was_said_and_the_log_gets_its_own(
    run: Any, user_home: Path, place: Path
) -> None:
    """CLI-6: a log that went on as well doesn't stop the run, then or later."""
    assert run("import").code == 0
    script = (
        "import anyio, sys\nfrom pathlib import Path\nfrom perdure.wiring import open_session\n"
        "async def go():\n s = await open_session(Path(sys.argv[1]), sys.argv[2])\n await s.append('one more')\n"
        " await s.close()\nanyio.run(go)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(place / "home"), uuid(1, 0)], check=True)
    log = user_home / ".claude" / "projects" / "-src-shop" / f"{uuid(1, 0)}.jsonl"
    write(log, jsonl(*conversation(1, 4)), 9_000)
    ran = run("import")
    assert ran.code == 0 and f"{uuid(1, 0)}-2: 16 messages imported" in ran.out
    assert {one["session"] for one in run("search", "--all", "--places", "one", "more", "--json").json} == {uuid(1, 0)}
    assert run("import").out.strip() == "4 files: 4 imported before"


def test_a_hostile_folder_is_named_line_by_line_and_the_rest_is_imported(
    run: Any, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CLI-5, SEC-8: links, pipes, sockets, sizes, depth, odd bytes and names: nothing is followed or waited for."""
    monkeypatch.setattr(logs, "LARGEST_BYTES", 1_000_000)
    folder, outside = place / "logs", place / "outside"
    write(folder / "good.jsonl", jsonl(*conversation(1, 2)), 1)
    write(outside / "private.jsonl", jsonl(*conversation(2, 2)), 1)
    (folder / "link.jsonl").symlink_to(outside / "private.jsonl")
    (folder / "linked").symlink_to(outside)
    (folder / "circle").symlink_to(folder)
    os.mkfifo(folder / "pipe.jsonl")
    with socket.socket(socket.AF_UNIX) as bound:
        monkeypatch.chdir(folder)
        bound.bind("socket.jsonl")
        monkeypatch.chdir(place)
    with (folder / "huge.jsonl").open("wb") as file:
        file.truncate(3_000_000_000)
    write(folder / "bytes.jsonl", b"\xff\xfe\x00 no log\n", 2)
    odd = jsonl(*conversation(3, 1)).replace(b"is fine", b"is \xff\xfefine")
    write(folder / "latin.jsonl", odd, 3)
    write(folder / "nested.jsonl", jsonl(*conversation(5, 1)) + b"[" * 500_000 + b"\n", 4)
    write(folder / "half.jsonl", jsonl(*conversation(6, 2))[:-40], 5)
    name = os.fsencode(folder) + b"/\xff\n\x1b[31m.jsonl"
    with open(name, "wb") as file:
        file.write(jsonl(*conversation(8, 1)))
    deep = folder
    for _ in range(40):
        deep = deep / ("d" * 90)
    try:
        os.makedirs(deep)
    except OSError:
        pass
    here = os.open(folder, os.O_RDONLY)
    try:  # deeper than any path may be long
        for _ in range(60):
            os.mkdir("e" * 90, dir_fd=here)
            inner = os.open("e" * 90, os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = inner
    finally:
        os.close(here)
    began = time.monotonic()
    ran = run("import", folder)
    assert ran.code == 1 and time.monotonic() - began < 30
    skipped = [line for line in ran.out.splitlines() if line.startswith("skipped: ")]
    for what, why in (
        ("link.jsonl", "a symbolic link"), ("/linked", "a symbolic link"), ("/circle", "a symbolic link"),
        ("pipe.jsonl", "a pipe"), ("socket.jsonl", "a socket"), ("huge.jsonl", "3.0 GB"), ("eee", "File name too long"),
    ):  # fmt: skip
        assert sum(what in line and why in line for line in skipped) == 1, (what, ran.out)
    (failed,) = [line for line in ran.out.splitlines() if line.startswith("failed: ")]
    assert "bytes.jsonl" in failed
    names = {one["session"] for one in run("sessions", "--json").json}
    assert names == {uuid(n, 0) for n in (1, 3, 5, 6, 8)}, "and nothing from outside"
    assert "\x1b" not in ran.out
    shutil.rmtree(folder, ignore_errors=True)


def test_a_pipe_that_is_named_is_refused_at_once(run: Any, place: Path) -> None:
    """CLI-5: nobody may ever write to it."""
    os.mkfifo(place / "pipe.jsonl")
    ran = run("import", place / "pipe.jsonl")
    assert ran.code == 1 and "a pipe, not a file" in ran.err and ran.err.count("\n") == 1


def started(place: Path, folder: Path, *more: str) -> subprocess.Popen[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PERDURE")}
    environ["PERDURE_HOME"] = str(place / "home")
    words = [sys.executable, "-m", "perdure", "import", str(folder), *more]
    return subprocess.Popen(words, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def many(folder: Path, sessions: int, turns: int = 60) -> Path:
    for n in range(1, sessions + 1):
        write(folder / f"{n}.jsonl", jsonl(*conversation(n, turns)), n)
    return folder


def drafts(place: Path) -> list[Path]:
    return list((place / "home" / "projects").glob(f"*/{IMPORT_DRAFT}*"))


def whole_sessions(run: Any, place: Path, turns: int = 60) -> int:
    """How many sessions there are; each is whole, and `doctor` finds no fault."""
    listed = run("sessions", "--json").json if (place / "home" / "projects").exists() else []
    assert all(one["messages"] == 4 * turns and one["problem"] is None for one in listed)
    return len(listed)


@pytest.mark.quick(1)
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_what_is_in_is_whole_wherever_it_is_stopped(run: Any, place: Path, sent: signal.Signals) -> None:
    """CLI-6, REL-1: Ctrl-C, a termination or a kill at any point; the next run goes on with the rest."""
    folder, counts = many(place / "logs", 8), []
    for lines in (0, 1, 3):  # of output to wait for, then for the draft of the next one
        running = started(place, folder)
        assert running.stdout is not None
        for _ in range(lines):
            running.stdout.readline()
        while running.poll() is None and not drafts(place):
            time.sleep(0.001)
        running.send_signal(sent)
        _, err = running.communicate(timeout=60)
        assert "Traceback" not in err, err
        counts.append(whole_sessions(run, place))
        if sent != signal.SIGKILL:
            assert running.returncode == 130 and "stopped: " in err and not drafts(place)
    assert counts == sorted(counts) and 1 <= counts[-1] < 8
    assert run("import", folder).code == 0 and whole_sessions(run, place) == 8
    for left in drafts(place):
        os.utime(left, (1, 1))
    assert run("gc").code == 0 and not drafts(place)


@pytest.mark.parametrize("stops_after", [1, 6, 11])
def test_an_update_that_was_stopped_goes_on_in_the_same_session(
    run: Any, place: Path, monkeypatch: pytest.MonkeyPatch, stops_after: int
) -> None:
    """CLI-6: what came to a log is added a message at a time; the rest of it isn't taken for somebody else's words."""
    log = write(place / "logs" / "a.jsonl", jsonl(*conversation(3, 2)), 1)
    assert run("import", place / "logs").code == 0
    boundary = entry("system", uuid(3, 900), None, subtype="compact_boundary", compactMetadata={"trigger": "auto"})
    summary = user(uuid(3, 901), None, "Two modules were looked at.", isCompactSummary=True)
    told = [{**one, "sessionId": uuid(3, 0)} for one in (boundary, summary)]
    grown = [*conversation(3, 5)[:12], *told, *conversation(3, 5)[12:]]
    write(log, jsonl(*grown), 2)
    really, said = LiveSession.append, 0

    async def append(self: LiveSession, *messages: Any, **more: Any) -> Any:
        nonlocal said
        said += isinstance(self.ports.journal, FileJournal)  # in memory the lines of before are made again
        if said > stops_after:
            raise OSError(28, "No space left on device")
        return await really(self, *messages, **more)

    with monkeypatch.context() as patched:
        patched.setattr(LiveSession, "append", append)
        assert run("import", place / "logs").code == 1
    ran = run("import", place / "logs")
    assert ran.code == 0 and re.search(rf": {12 - stops_after} new messages? added", ran.out)
    (session,) = run("sessions", "--json").json
    assert session["messages"] == 20
    (recording,) = read_recordings(log.read_bytes(), log.name)

    async def held() -> ContextView:
        one = await open_session(place / "home", uuid(3, 0))
        await one.close()
        return one.view

    view, wanted = anyio.run(held), view_as_logged(recording)
    assert [item.message.id for item in view.items] == [item.message.id for item in wanted.items]
    assert run("import", place / "logs").out.strip() == "1 file: 1 imported before"


@pytest.mark.nightly
def test_two_updates_at_once_double_nothing(run: Any, place: Path) -> None:
    """CLI-6, ENG-4: the second waits for the first, and finds nothing left to add."""
    folder = many(place / "logs", 4)
    assert run("import", folder).code == 0
    for n in range(1, 5):
        write(folder / f"{n}.jsonl", jsonl(*conversation(n, 90)), 100 + n)
    both = [started(place, folder, "--json") for _ in range(2)]
    ended = [one.communicate(timeout=120) for one in both]
    assert [one.returncode for one in both] == [0, 0], ended
    assert sum(json.loads(out.splitlines()[-1])["total"]["messages"] for out, _ in ended) == 4 * 4 * 30
    assert whole_sessions(run, place, 90) == 4


def test_a_session_that_another_takes_between_two_looks_is_waited_for(
    run: Any, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CLI-6: it is opened twice, to see what it holds and to add; another import may be quicker in between."""
    folder = many(place / "logs", 1)
    assert run("import", folder).code == 0
    write(folder / "1.jsonl", jsonl(*conversation(1, 90)), 101)
    opens = imports.open_session

    async def after_another(home: Path, directory: Path, **more: Any) -> LiveSession:
        if not taken:
            taken.append(await SessionStore(home).open(directory, durability="process"))
            ending.append(asyncio.create_task(ends(taken[0])))
        return await opens(home, directory, **more)

    async def ends(other: SessionFiles) -> None:
        await asyncio.sleep(0.2)
        await other.journal.close()

    taken: list[SessionFiles] = []
    ending: list[asyncio.Task[None]] = []
    monkeypatch.setattr(imports, "open_session", after_another)
    told: list[imports.ImportedLog] = []
    anyio.run(imports.LogImports(place / "home", Settings(), has_many=True).take, folder / "1.jsonl", told.append)
    assert taken and [one.messages for one in told] == [120]


@pytest.mark.nightly
def test_two_imports_at_once_make_each_session_once(run: Any, place: Path) -> None:
    """CLI-6, ENG-4: both end well, and together they imported each log once."""
    folder = many(place / "logs", 10)
    both = [started(place, folder, "--json") for _ in range(2)]
    ended = [one.communicate(timeout=120) for one in both]
    assert [one.returncode for one in both] == [0, 0], ended
    totals = [json.loads(out.splitlines()[-1])["total"] for out, _ in ended]
    assert sum(one["imported"] for one in totals) == 10 and sum(one["failed"] for one in totals) == 0
    assert all(one["imported"] + one["imported_before"] == 10 for one in totals)
    assert whole_sessions(run, place) == 10
    assert len({path.name for path in SessionStore(place / "home").directories()}) == 10


@pytest.mark.skipif(not DATA.is_dir(), reason=ABSENT)
def test_real_logs_are_imported_once_and_found(run: Callable[..., Any], place: Path) -> None:
    """CLI-6, SES-2: real logs of both clients, then again, then one that grew; the exports are the logs."""
    folder = place / "logs"
    claude, codex = (sorted((DATA / name).glob("*.jsonl")) for name in ("claude_code/entireio_cli", "codex/agentv"))
    real = [*claude[:2], codex[-1]]
    for number, path in enumerate(real):
        write(folder / path.name, path.read_bytes(), number)
    grown = folder / real[0].name
    lines = grown.read_bytes().splitlines(keepends=True)
    write(grown, b"".join(lines[: len(lines) // 2]), 0)
    assert run("import", folder).out.splitlines()[-1] == "3 files: 3 imported"
    write(grown, b"".join(lines), 10)
    ran = run("import", folder)
    assert ran.out.splitlines()[-1] == "3 files: 1 updated, 2 imported before"
    for path in real[:2]:
        assert run("export", path.stem, "-o", "out.jsonl", "--force").code == 0
        assert Path("out.jsonl").read_bytes() == path.read_bytes()
    (hit, *_) = run("search", "--all", "--places", "checkpoint", "--json").json
    assert hit["client"] in ("Claude Code", "Codex") and re.match(r"\d{4}-", hit["at"])


def test_a_log_of_a_folder_that_cant_be_is_imported(run: Any, place: Path) -> None:
    """CLI-6: where somebody was at work may be a path that this machine refuses to look at."""
    write(place / "logs" / "far.jsonl", jsonl(*conversation(1, 1, cwd="/" + "y" * 10_000)), 1)
    done = run("import", "logs")
    assert done.code == 0 and "1 file: 1 imported" in done.out.replace("1 new", "1 imported"), done.err[:300]
