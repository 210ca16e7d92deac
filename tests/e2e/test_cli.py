"""The command line, from its door: every command, for people and for programs, and every way to fail (CLI-2, CLI-5)."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.commands import command, command_at_terminal

from perdure.adapters.journal import SessionLock
from perdure.engine.compact import compact
from perdure.logs.export import to_claude_code
from perdure.transcript.blocks import block_of, text_block
from perdure.transcript.messages import Message, MessageId, ResponseId, Usage, content_of
from perdure.transcript.records import Titled
from perdure.wiring import create_session

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("place")]

CONTRACT = {
    "file", "format", "session", "window", "window_source", "usable", "trigger", "turns", "tokens_final", "compactions",
    "microcompactions", "offloads", "prefix_moves", "unexplained_prefix_moves", "cost", "logged", "problems",
    "invalid_requests", "cpu_ms_per_turn",
}  # fmt: skip


def messages(turns: int = 4, words: int = 200) -> list[Message]:
    """A small session: a prompt, some commands with their output, an answer; usage as a provider reports it."""
    found: list[Message] = []
    size = 8_000

    def add(role: str, block: dict[str, Any], **more: Any) -> None:
        number = len(found)
        message = Message(
            id=MessageId(f"m{number}"),
            role=role,  # type: ignore[arg-type]
            content=content_of([block_of(block)]),
            at=1_750_000_000.0 + number,
            **more,
        )
        found.append(message)

    def answer(block: dict[str, Any]) -> None:
        usage = Usage(input_tokens=size, output_tokens=20)
        add(
            "assistant",
            block,
            origin="model",
            model="claude-opus-4-5",
            usage=usage,
            response_id=ResponseId(f"r{len(found)}"),
        )

    add("user", {"type": "text", "text": "Find the bug in parser.py"}, origin="user")
    for turn in range(turns):
        answer({"type": "tool_use", "id": f"c{turn}", "name": "Bash", "input": {"command": f"grep -n x {turn}"}})
        output = " ".join(f"line{turn}-{n}" for n in range(words))
        add("user", {"type": "tool_result", "tool_use_id": f"c{turn}", "content": output}, origin="tool")
        size += words * 4
    answer({"type": "text", "text": "It is in line 7."})
    return found


def log_bytes(**shape: int) -> bytes:
    return b"".join(to_claude_code(messages(**shape), session="s1", cwd="/project", version="2.1.0"))


@pytest.fixture
def log(place: Path) -> Path:
    path = place / "log.jsonl"
    path.write_bytes(log_bytes())
    return path


@pytest.fixture
def kept(place: Path) -> str:
    """A session of ours, compacted once."""

    async def make() -> None:
        session = await create_session(place / "home", project=place, session="ours")
        await session.record(Titled(title="The \x1b[31mparser bug"))
        await session.append(*messages(turns=30, words=500))
        await compact(session, trigger="manual")
        await session.append(
            Message(id=MessageId("more"), role="user", content=content_of([text_block("go on")]), origin="user")
        )
        await session.close()

    anyio.run(make)
    return "ours"


# --- replay


def test_replay_for_programs_keeps_its_contract(run: Any, log: Path) -> None:
    """CLI-2: one object a line."""
    ran = run("replay", log, "--json")
    (result,) = ran.json
    assert ran.code == 0 and result.keys() >= CONTRACT
    assert (result["file"], result["format"], result["session"]) == (str(log), "claude-code", "s1")
    assert (result["turns"], result["window"], result["window_source"]) == (5, 200_000, "default")
    assert (result["invalid_requests"], result["unexplained_prefix_moves"]) == (0, 0)
    assert result["cost"].keys() == {"input", "cache_write", "cache_read", "output", "usd"}


def test_replay_takes_a_window_an_output_limit_a_model_and_settings(run: Any, log: Path) -> None:
    (result,) = run(
        "replay", log, "--json", "--window", "50k", "--max-output", "4k", "--set", "trigger_offset_tokens=1k"
    ).json
    assert (result["window"], result["window_source"]) == (50_000, "setting")
    assert (result["usable"], result["trigger"]) == (46_000, 45_000)
    (result,) = run("replay", log, "--json", "--model", "claude-opus-4-5[1m]").json
    assert result["window"] == 1_000_000


@pytest.mark.nightly
def test_replay_for_people_tells_what_fires(run: Any, place: Path) -> None:
    path = place / "long.jsonl"
    path.write_bytes(log_bytes(turns=30, words=2_000))
    ran = run("replay", path, "--window", "60k")
    assert ran.code == 0
    for words in ("format claude-code", "window 60,000 (from: setting)", "31 turns", "cost with caching $"):
        assert words in ran.out
    assert "30 large results offloaded" in ran.out
    whole = run("replay", path, "--window", "60k", "--set", "offload=false")
    assert "microcompaction" in whole.out and "results cleared (size)" in whole.out
    assert "prefix move" in whole.out


def test_one_bad_file_never_stops_the_run(run: Any, place: Path, log: Path) -> None:
    (place / "bad.jsonl").write_bytes(b"\x00\x01 nonsense")
    (place / "empty.jsonl").write_bytes(b"")
    ran = run("replay", place / "bad.jsonl", place / "missing.jsonl", place / "empty.jsonl", log, "--json")
    assert ran.code == 1
    assert ["error" in result for result in ran.json if "verdict" not in result] == [True, True, True, False]
    assert all("\n" not in result["error"] for result in ran.json[:3])
    people = run("replay", place / "bad.jsonl", log)
    assert people.code == 1 and "failed" in people.out and "5 turns" in people.out
    assert "1 of 2 failed" in people.err


def test_folders_are_searched_and_other_json_is_left_out(run: Any, place: Path) -> None:
    (place / "logs" / "deep").mkdir(parents=True)
    (place / "logs" / "a.jsonl").write_bytes(log_bytes())
    (place / "logs" / "deep" / "b.json").write_text(
        '[{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]'
    )
    (place / "logs" / "package.json").write_text('{"name": "not a session"}')
    (place / "logs" / "notes.txt").write_text("nothing")
    ran = run("replay", place / "logs", "--json")
    *results, last = ran.json
    assert ran.code == 0 and [result["format"] for result in results] == ["claude-code", "openai"]
    assert last["verdict"]["sessions"] == 1 and last["verdict"]["of"] == 2, "one of them says what it paid"
    assert "1 JSON file" in ran.err
    (place / "none").mkdir()
    assert run("replay", place / "none").code == 3


@pytest.mark.nightly
def test_several_files_end_with_a_table_and_may_run_in_processes(place: Path, log: Path) -> None:
    other = place / "other.jsonl"
    other.write_bytes(log.read_bytes())
    words = [sys.executable, "-m", "perdure", "replay", str(log), str(other), "--jobs", "2"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "2 sessions, 10 turns, 0 failed" in done.stdout
    assert "verdict on 2 sessions: the logs paid $" in done.stdout and "what that buys: " in done.stdout
    assert done.stdout.index("log.jsonl") < done.stdout.index("other.jsonl"), "in the order asked for"


def test_our_own_journals_replay(run: Any, kept: str, place: Path) -> None:
    journal = next((place / "home").rglob("journal.jsonl"))
    (result,) = run("replay", journal, "--json").json
    assert (result["format"], result["session"], result["turns"]) == ("perdure", "ours", 31)


# --- inspect and context


def test_inspect_accounts_for_everything(run: Any, log: Path) -> None:
    (data,) = run("inspect", log, "--json").json
    assert sum(category["tokens"] for category in data["categories"]) == data["tokens"]
    assert data["tokens"] + data["free"] + data["reserve"] == data["window"]
    assert data["messages"] == {"user": 5, "assistant": 5} and data["responses"] == 5
    assert data["anomalies"] == [] and data["boundaries"] == []
    people = run("inspect", log)
    for words in ("tool results", "Bash", "reserve for the answer", "no compactions", "nothing odd"):
        assert words in people.out


def test_inspect_tells_what_is_odd(run: Any, place: Path) -> None:
    lines = log_bytes().splitlines(keepends=True)
    odd = place / "odd.jsonl"
    odd.write_bytes(b"".join(lines[:-2]) + b'{"type": "user", "broken\n')
    (data,) = run("inspect", odd, "--json").json
    assert [anomaly["kind"] for anomaly in data["anomalies"]] == ["calls_without_result"]
    assert data["problems"][0]["line"] == len(lines) - 1
    assert "calls without a result: 1 (c3)" in run("inspect", odd).out


def test_inspect_shows_our_boundaries(run: Any, kept: str) -> None:
    (data,) = run("inspect", kept, "--json").json
    (boundary,) = data["boundaries"]
    assert boundary["trigger"] == "manual" and boundary["tokens_before"] > boundary["tokens_after"] > 0
    assert data["format"] == "perdure" and "summary" in [category["name"] for category in data["categories"]]


def test_context_is_text_in_a_pipe(run: Any, log: Path) -> None:
    ran = run("context", log)
    grid = [line.split() for line in ran.out.splitlines() if len(line) == 21 and line.startswith("  ")]
    assert len(grid) == 10 and all(len(row) == 10 for row in grid)
    assert grid[-1][-10:] == ["x"] * 10, "a reserve of 10 % is ten cells"
    assert "\x1b" not in ran.out and ". free" in ran.out
    assert "  (a cell is 2,000 tokens; anything smaller still has a cell of its own)\n" in ran.out
    assert "until auto-compaction at 167,000\n" in ran.out and "calls stop at 177,000\n" in ran.out
    assert "  context low: from 147,000; almost full: from 157,000\n" in ran.out
    assert "Context low" not in ran.out


def test_context_warns_when_it_is_low(run: Any, log: Path) -> None:
    """PRS-7."""
    ran = run("context", log, "--set", "window_tokens=13k")
    command = f"perdure compact {shlex.quote(str(log))}"
    assert f"Context almost full (0% left): run `{command}` to compact and continue" in ran.out
    (data,) = run("context", log, "--json", "--set", "window_tokens=13k").json
    assert data["percent_left"] == 0 and data["pressure"] == "blocked"
    off = run("context", log, "--set", "window_tokens=13k", "--set", "compact=false")
    assert "compaction is off; switch on the setting compact, or start a new session" in off.out


def test_a_file_with_several_sessions_asks_which(run: Any, place: Path) -> None:
    lists = [[{"role": "user", "content": f"hi {n}"}, {"role": "assistant", "content": "ho"}] for n in range(2)]
    path = place / "two.jsonl"
    path.write_text("".join(json.dumps({"messages": one}) + "\n" for one in lists))
    names = [data["session"] for data in run("inspect", path, "--json").json]
    assert len(set(names)) == 2
    ran = run("context", path)
    assert ran.code == 2 and "--session" in ran.err and ran.err.count("\n") == 1
    assert run("context", path, "--session", names[1]).code == 0
    assert run("context", path, "--session", "nobody").code == 3


# --- sessions


def test_sessions_lists_shows_and_deletes(run: Any, kept: str, place: Path) -> None:
    """ENG-5: title, prompt and count come from the ends of the journal."""
    (info,) = run("sessions", "--json").json
    assert (info["session"], info["messages"], info["last_prompt"]) == ("ours", 63, "go on")
    listed = run("sessions", "list")
    assert "ours" in listed.out and "\x1b" not in listed.out, "nothing in a title reaches the terminal"
    assert run("sessions", "--project", place / "elsewhere").out.startswith("no sessions")
    (shown,) = run("sessions", "show", "our", "--json").json
    assert shown["session"] == "ours" and shown["held_by"] is None
    asked = run("sessions", "delete", "ours")
    assert asked.code == 2 and "--yes" in asked.err
    assert run("sessions", "delete", "ours", "--yes").code == 0
    assert run("sessions", "--json").out == ""
    assert run("sessions", "show", "ours").code == 3


def test_a_busy_session_is_not_deleted(run: Any, kept: str, place: Path) -> None:
    lock = SessionLock.acquire(next((place / "home").rglob("journal.jsonl")).parent)
    try:
        ran = run("sessions", "delete", "ours", "--yes")
        assert ran.code == 4 and f"process {os.getpid()}" in ran.err and ran.err.count("\n") == 1
        assert run("inspect", "ours").code == 0, "looking at it needs no lock"
        assert "is being written by" in run("doctor").out
    finally:
        lock.release()


# --- export


def test_an_unchanged_log_is_exported_byte_for_byte(run: Any, place: Path) -> None:
    data = log_bytes() + b'{"type":"progress","weird": 1 }\n'
    source, target = place / "in.jsonl", place / "out.jsonl"
    source.write_bytes(data)
    assert run("export", source, "--format", "claude-code", "-o", target).code == 0
    assert target.read_bytes() == data
    again = run("export", source, "-o", target)
    assert again.code == 2 and "--force" in again.err
    target.write_text("something else")
    assert run("export", source, "-o", target, "--force").code == 0 and target.read_bytes() == data
    assert sorted(p.name for p in place.iterdir()) == ["in.jsonl", "out.jsonl"], "no draft is left"


def test_export_never_writes_over_its_source(run: Any, log: Path, place: Path) -> None:
    before = log.read_bytes()
    (place / "link.jsonl").symlink_to(log)
    for target in (log, place / "link.jsonl"):
        ran = run("export", log, "-o", target, "--force")
        assert ran.code == 2 and "is the file that is exported" in ran.err
    assert log.read_bytes() == before
    assert run("export", log, "-o", place).code == 2
    assert run("export", log, "-o", place / "no" / "folder.jsonl").code == 2
    assert run("export", log, "-o", place / "x", "--format", "word").code == 2


@pytest.mark.parametrize("command", ["export", "report"])
def test_no_device_pipe_or_link_is_replaced_by_what_is_written(run: Any, log: Path, place: Path, command: str) -> None:
    """ENG-6: `-o /dev/full --force` of a root user must not take the device away from everybody."""
    pipe, link, behind = place / "pipe", place / "link", place / "behind"
    os.mkfifo(pipe)
    behind.write_text("old")
    link.symlink_to(behind)
    ran = run(command, log, "-o", pipe, "--force")
    assert ran.code == 2 and "-o -" in ran.err and pipe.is_fifo()
    assert run(command, log, "-o", link, "--force").code == 0
    assert link.is_symlink() and behind.stat().st_size > 3


def test_our_sessions_are_exported_with_their_boundaries(run: Any, kept: str, place: Path) -> None:
    target = place / "ours.jsonl"
    assert run("export", kept, "-o", target, "--json").code == 0
    (ours,), (theirs,) = run("inspect", kept, "--json").json, run("inspect", target, "--json").json
    assert theirs["format"] == "claude-code" and theirs["title"] == ours["title"]
    assert theirs["messages"] == ours["messages"]
    assert [b["tokens_before"] for b in theirs["boundaries"]] == [b["tokens_before"] for b in ours["boundaries"]]


# --- config and doctor


def test_config_names_the_source_of_each_value(run: Any, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PRS-3, PRS-4."""
    (place / "home").mkdir()
    (place / "home" / "config.toml").write_text("snip = false\n")
    monkeypatch.setenv("CLAUDE_AUTOCOMPACT_PCT_OVERRIDE", "500")
    monkeypatch.setenv("DISABLE_AUTO_COMPACT", "1")
    ran = run("config", "--json", "--set", "preview_chars=10")
    (data,) = ran.json
    settings = data["settings"]
    assert settings["snip"]["value"] is False
    assert settings["snip"]["source"] == f"user file {place / 'home' / 'config.toml'}"
    assert settings["auto_compact"]["source"] == "environment DISABLE_AUTO_COMPACT"
    assert settings["preview_chars"]["source"] == "flag --set preview_chars"
    assert settings["collapse"]["source"] == "default"
    assert "auto_compact_percent" in ran.err and len(data["warnings"]) == 1
    assert run("config", "snip").out.startswith("false  (from: user file ")
    assert "what led nowhere" in run("config", "snip").out and "what led nowhere" in settings["snip"]["description"]
    assert "\n  collapse " in run("config").out and "\n  collapse " not in run("config", "--changed").out


def test_an_unusable_setting_is_one_line(run: Any, place: Path) -> None:
    (place / "home").mkdir()
    (place / "home" / "config.toml").write_text("snippp = false\n")
    ran = run("config")
    assert ran.code == 2 and ran.out == ""
    assert ran.err.count("\n") == 1 and "config.toml" in ran.err and "did you mean snip?" in ran.err
    assert run("sessions").code == 0, "what needs no settings works without them"
    assert run("doctor").code == 1


def test_doctor_finds_damage(run: Any, kept: str, place: Path) -> None:
    assert run("doctor").code == 0
    (checks,) = [[f for f in run("doctor", "--json").json if f["check"] == "sessions"]]
    assert checks == [{"check": "sessions", "state": "ok", "what": "1 of 1 are sound"}]
    journal = next((place / "home").rglob("journal.jsonl"))
    data = journal.read_bytes()
    journal.write_bytes(data[:500] + b"X" + data[501:])
    os.chmod(journal, 0o644)
    ran = run("doctor")
    assert ran.code == 1 and "checksum mismatch" in ran.out and "chmod 600" in ran.out
    assert run("doctor", journal.parent).code == 1
    assert run("doctor", place / "nothing").code == 3


def test_doctor_mends_what_it_finds(run: Any, kept: str, place: Path) -> None:
    """SES-1: damage is set aside, nothing readable is lost, files are the owner's alone; a second run finds nothing."""
    journal = next((place / "home").rglob("journal.jsonl"))
    journal.write_bytes(journal.read_bytes() + b'{"torn')
    os.chmod(journal, 0o644)
    (before,) = run("sessions", "show", "ours", "--json").json
    ran = run("doctor", "--repair")
    assert ran.code == 0 and "1 damaged piece set aside" in ran.out and "closed to other users" in ran.out
    assert run("doctor").code == 0 and "repaired" not in run("doctor", "--repair").out
    (after,) = run("sessions", "show", "ours", "--json").json
    assert after["title"] == before["title"] and len(after["beside"]) == 1
    assert journal.stat().st_mode & 0o077 == 0


def test_a_session_that_is_written_is_not_mended(run: Any, kept: str, place: Path) -> None:
    journal = next((place / "home").rglob("journal.jsonl"))
    journal.write_bytes(journal.read_bytes() + b'{"torn')
    lock = SessionLock.acquire(journal.parent)
    try:
        ran = run("doctor", "--repair")
        assert ran.code == 1 and "not repaired" in ran.out and journal.read_bytes().endswith(b'{"torn')
    finally:
        lock.release()


def test_sessions_are_renamed_and_tagged(run: Any, kept: str) -> None:
    """SES-1, ENG-5: the listing shows it; what can't be is said."""
    assert run("sessions", "rename", "our", " A new  name ").out == "ours is now 'A new name'\n"
    assert run("sessions", "tag", "our", "red", "blue", "red").out == "ours: red, blue\n"
    assert run("sessions", "tag", "our", "--remove", "red", "--json").json == [{"session": "ours", "tags": ["blue"]}]
    (info,) = run("sessions", "--json").json
    assert (info["title"], info["tags"]) == ("A new name", ["blue"])
    assert run("sessions", "tag", "our", "two words").code == 2
    assert "has no tag 'red'; it has: blue" in run("sessions", "tag", "our", "--remove", "red").err
    assert run("sessions", "rename", "our", " ").code == 2 and run("sessions", "rename", "nobody", "x").code == 3


def test_a_fork_goes_on_alone(run: Any, kept: str, place: Path) -> None:
    """SES-1: a new id, the same view to the byte, and the original untouched whatever happens to the fork."""
    journal = next((place / "home").rglob("journal.jsonl"))
    before = journal.read_bytes()
    (made,) = run("sessions", "fork", "ours", "--title", "Another way", "--json").json
    assert made["forked_from"] == "ours" and made["title"] == "Another way"
    contexts = [run("context", name, "--json").json[0] for name in ("ours", made["session"])]
    assert contexts[0]["categories"] == contexts[1]["categories"]
    assert run("compact", made["session"]).code == 0 and run("doctor").code == 0
    assert journal.read_bytes() == before
    assert run("sessions", "delete", made["session"], "--yes").code == 0
    assert [info["session"] for info in run("sessions", "--json").json] == ["ours"]


# --- a page


def test_a_report_of_a_log_and_of_a_session(run: Any, log: Path, kept: str, place: Path) -> None:
    """CLI-4: one file that needs nothing else; ours says how to recall, a log what its own system did."""
    ran = run("report", log, "-o", "log.html", "--json")
    (made,) = ran.json
    page = (place / "log.html").read_text()
    assert made["turns"] == 5 and made["bytes"] == len(page.encode())
    assert "as Perdure would have managed it" in page and "what the log itself paid" in page
    assert run("report", "ours", "-o", place / "ours.html").out.strip().endswith("open it in a browser")
    page = (place / "ours.html").read_text()
    assert "perdure recall ours ID" in page and "Find the bug in parser.py" in page and "manual" in page
    assert run("report", log, "-o", "log.html").code == 2, "nothing is written over"
    assert run("report", log, "-o", "log.html", "--force").code == 0
    assert run("report", log, "-o", log, "--force").code == 2 and run("report", "nobody", "-o", "x.html").code == 3


def test_a_report_holds_no_secrets(run: Any, place: Path) -> None:
    """SEC-5: reports are shared; what looks like a key is replaced, wherever it was said."""
    key = "ghp_" + "a1B2c3D4e5" * 3 + "F6g7H8"
    said = Message.of("user", f"use {key} to push", id=MessageId("m0"))
    log = place / "log.jsonl"
    log.write_bytes(b"".join(to_claude_code([said, *messages()[1:]], session="s1", cwd="/p", version="2.1.0")))
    assert run("import", log).code == 0
    (info,) = run("sessions", "--json").json
    assert run("compact", info["session"]).code in (0, 1)
    assert run("report", info["session"], "-o", "page.html").code == 0
    assert key not in (place / "page.html").read_text()


@pytest.mark.parametrize("command", ["report", "export"])
def test_a_full_disk_names_the_file(
    run: Any, log: Path, place: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """CLI-5: what -o couldn't write is named, not the standard output; and nothing is left of it."""

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    ran = run(command, log, "-o", "out.file")
    assert ran.code == 1 and "out.file: No space left" in ran.err and "standard output" not in ran.err
    assert not [p for p in place.iterdir() if "out.file" in p.name]


# --- every way to end


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["replya", "x"], 2, "Did you mean 'replay'?"),
        (["replay"], 2, "FILE"),
        (["replay", "x", "--jobs", "0"], 2, "--jobs"),
        (["replay", "x", "--set", "snipp=1"], 2, "did you mean snip?"),
        (["inspect", "nobody"], 3, "no session 'nobody'"),
        (["context", "no/such/file"], 3, "no/such/file"),
        (["export", "nobody", "-o", "x"], 3, "no session"),
        (["config", "snipp"], 2, "did you mean snip?"),
    ],
)
def test_errors_are_one_line_with_a_code(run: Any, arguments: list[str], code: int, words: str) -> None:
    """CLI-5: what, where, what to do."""
    ran = run(*arguments)
    assert ran.code == code and ran.out == ""
    assert ran.err.startswith("perdure: ") and ran.err.count("\n") == 1
    assert words in ran.err


def test_only_debug_shows_a_traceback(place: Path) -> None:
    plain = command("inspect", "nobody", cwd=Path.cwd(), env=os.environ)
    assert plain.returncode == 3 and "Traceback" not in plain.stderr
    told = command("--debug", "inspect", "nobody", cwd=Path.cwd(), env=os.environ)
    assert told.returncode == 3 and "Traceback" in told.stderr


def test_a_defect_is_one_line_too(run: Any, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("odd\nthing")

    monkeypatch.setattr("perdure.context.accounting.account", broken)
    ran = run("inspect", log)
    assert ran.code == 1 and "internal error: RuntimeError: odd thing; --debug shows where" in ran.err


def test_an_interrupt_is_one_line(run: Any, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("perdure.context.accounting.account", interrupted)
    ran = run("inspect", log)
    assert ran.code == 130 and ran.err.strip() == "perdure: interrupted"


def test_a_closed_pipe_is_quiet(log: Path) -> None:
    words = [sys.executable, "-m", "perdure", "inspect", "--json", str(log)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as started:
        assert started.stdout is not None and started.stderr is not None
        started.stdout.close()
        err = started.stderr.read()
    assert started.returncode == 0 and err == b""


@pytest.mark.skipif(sys.platform == "win32", reason="a shell is needed")
def test_an_output_that_is_full_or_closed_is_one_line_or_nothing(log: Path) -> None:
    """CLI-5: no traceback, and a place."""
    inspecting = shlex.join([sys.executable, "-m", "perdure", "inspect", str(log)])
    closed = subprocess.run(["sh", "-c", f"{inspecting} >&-"], capture_output=True, check=False)
    assert closed.returncode == 0 and closed.stderr == b""
    if Path("/dev/full").exists():
        full = subprocess.run(["sh", "-c", f"{inspecting} >/dev/full"], capture_output=True, check=False)
        assert full.returncode == 1
        assert full.stderr.decode().strip() == "perdure: standard output: No space left on device"


def test_a_home_that_cannot_be_made_is_a_problem(run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """CLI-5: doctor says so before the first session fails."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "file" / "home"))
    ran = run("doctor")
    assert ran.code == 1 and "can't be created" in ran.out and "all is well" not in ran.out


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo terminals")
def test_on_a_narrow_terminal_a_table_is_a_list(log: Path) -> None:
    """CLI-5: numbers are never cut or folded."""
    wide, narrow = (seen_on_a_terminal(["inspect", str(log)], columns) for columns in ("120", "30"))
    assert "\u2500" in wide and "\u2500" not in narrow
    assert re.search(r"(?m)^tokens +[\d,]+\r?$", narrow)


def seen_on_a_terminal(arguments: list[str], columns: str, no_color: str = "") -> str:
    environ = {**os.environ, "TERM": "xterm-256color", "COLUMNS": columns, "NO_COLOR": no_color}
    done = command_at_terminal(*arguments, cwd=Path.cwd(), env=environ)
    assert done.returncode == 0
    return done.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo terminals")
@pytest.mark.parametrize("no_color", ["", "1"])
def test_colours_on_a_terminal_only_and_never_with_no_color(log: Path, no_color: str) -> None:
    seen = seen_on_a_terminal(["context", str(log)], "120", no_color)
    assert ("\x1b[" in seen) == (not no_color)
    assert ("■" in seen) == (not no_color)


def test_help_and_version(place: Path) -> None:
    done = command("--help", cwd=place, env=os.environ)
    assert done.returncode == 0
    for name in ("replay", "inspect", "context", "sessions", "export", "config", "doctor"):
        assert f"  {name} " in done.stdout
    assert command("--version", cwd=place, env=os.environ).stdout.startswith("perdure ")


def test_help_loads_no_engine() -> None:
    """SPD-5: commands import what they need when they run."""
    code = "import sys; from perdure.cli import main; main(['--help']); print(*sorted(sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stderr.split())
    assert not {"msgspec", "anyio", "rich"} & loaded
    ours = {name for name in loaded if name.startswith("perdure.") and not name.startswith("perdure.cli")}
    names_only = {"perdure.adapters", "perdure.adapters.journal", "perdure.adapters.machine"}
    assert ours <= {"perdure.errors", "perdure.adapters.machine.system", *names_only}
