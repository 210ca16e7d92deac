"""CLI-2, CLI-6: one command says what somebody's own sessions cost, and what would have changed."""

from __future__ import annotations

import os
import re
import shlex
import time
from pathlib import Path
from typing import Any

import pytest
from tests.drawn import drawn
from tests.recordings.conftest import ABSENT, DATA
from tests.terminals import environment
from tests.unit.foreign.lines import Data, answer, call, entry, jsonl, result, text, user

from perdure.adapters.logs import find_logs
from perdure.lab.replay.drive import ReplayOptions
from perdure.lab.replay.run import replay_recording
from perdure.lab.replay.verdict import replay_sample, survey_logs

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("place")]

SONNET = "claude-sonnet-4-5"


def priced(line: Data, prompt: int, *, read: int, output: int = 100) -> Data:
    usage = {
        "input_tokens": 0,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": prompt - read,
        "output_tokens": output,
    }
    line["message"] |= {"usage": usage, "model": SONNET}
    return line


def compacted_log(name: str = "s1", turns: int = 30) -> list[Data]:
    """Reads files until the log compacts at about 180,000 tokens, and goes on with what was read before."""
    steps: list[Data] = [user("u0", None, "Find where prices are rounded twice in src/shop/pricing_rules.py")]
    size, last, parent = 20_000, 0, "u0"
    for turn in range(turns):
        used = f"toolu_{name}_{turn}"
        path = f"/w/src/shop/module_{turn}.py"
        steps.append(
            priced(answer(f"a{turn}", parent, call(used, file_path=path), response=f"{name}-m{turn}"), size, read=last)
        )
        steps.append(user(f"r{turn}", f"a{turn}", [result(used, f"def rounded_price_{turn}(): ...\n" * 600)]))
        last, size, parent = size, size + 5_500, f"r{turn}"
    told = {"trigger": "auto", "preTokens": size}
    steps.append(entry("system", "bound", None, subtype="compact_boundary", compactMetadata=told))
    steps.append(user("s0", None, "Some files were read.", isCompactSummary=True))
    steps.append(user("u1", "s0", "go on"))
    edit = {"file_path": "/w/src/shop/module_3.py", "old_string": "def rounded_price_3(): ...", "new_string": "pass"}
    for turn in range(4):
        steps.append(
            priced(
                answer(f"z{turn}", "u1", text("module_3.py has rounded_price_3"), call(f"e{turn}", **edit),
                       response=f"{name}-z{turn}"),
                30_000 + 1_000 * turn, read=0 if turn == 0 else 29_000 + 1_000 * turn,
            )
        )  # fmt: skip
        steps.append(user(f"y{turn}", f"z{turn}", [result(f"e{turn}", "The file has been updated.")]))
    return [{**one, "sessionId": name} for one in steps]


def write(path: Path, *entries: Data, seconds: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(jsonl(*entries))
    os.utime(path, (1_700_000_000 + seconds,) * 2)
    return path


def test_the_verdict_of_a_users_own_logs(run: Any, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CLI-2, CLI-6: without a folder; paid, ours, doing nothing, kept, findable; and nothing is written."""
    monkeypatch.setenv("HOME", str(place / "me"))
    write(place / "me" / ".claude" / "projects" / "-w" / "s1.jsonl", *compacted_log())
    ran = run("verdict")
    assert ran.code == 0, ran.err
    assert "Claude Code: 1 log" in ran.err and not (place / "home" / "projects").exists()
    for line in ("1 session, ", "paid: $", "replayed in ", "as it was", "with Perdure", "keeping it all"):
        assert line in ran.out
    assert "our record keeps" in ran.out and "findable now: nothing of it yet; `perdure import`" in ran.out
    assert run("import", "--yes").code == 0
    assert "findable now: all of it" in run("verdict").out


@pytest.mark.nightly
def test_the_sums_are_those_of_the_logs(run: Any, place: Path) -> None:
    """CLI-2: paid by the usage, doing nothing by the whole history, what left the window by what was said before."""
    log = write(place / "logs" / "s1.jsonl", *compacted_log())
    (found,) = (one["verdict"] for one in run("verdict", place / "logs", "--json").json)
    prompts = [20_000 + 5_500 * turn for turn in range(30)]
    written = prompts[-1] + 30_000 + 3 * 1_000
    read = sum(prompts[:-1]) + 30_000 + 31_000 + 32_000
    # Sonnet 4.5, dollars a million: 3.75 written, 0.30 read, 15 output
    assert found["paid_usd"] == pytest.approx((written * 3.75 + read * 0.30 + 34 * 100 * 15) / 1e6, rel=1e-6)
    assert found["sessions"] == 1 and found["calls"] == 34 and found["logged_compactions"] == 1
    assert found["left_messages"] == 61, "the prompt, and 30 calls with their results"
    replayed = found["replayed"]
    assert replayed["paid_usd"] == found["paid_usd"] and not replayed["is_cut"]
    (single,) = [one for one in run("replay", log, "--json").json if "verdict" not in one]
    assert replayed["ours_usd"] == single["cost"]["usd"]
    # With everything kept: the last prompt with its answer, what that brought (28 characters, 600 times), 1,000 a call.
    kept = prompts[-1] + 100 + 28 * 600 // 4
    prompts += [kept + 1_000 * turn for turn in range(4)]
    unmanaged = (prompts[-1] * 3.75 + sum(prompts[:-1]) * 0.30 + 34 * 100 * 15) / 1e6
    assert replayed["unmanaged_usd"] == pytest.approx(unmanaged, rel=0.002)
    assert replayed["unmanaged_beyond_window"] == 0
    assert found["facts"]["kept"] > found["facts"]["logged_kept"]


@pytest.mark.nightly
def test_calls_that_would_not_fit_are_counted(run: Any, place: Path) -> None:
    """CLI-2: doing nothing ends at the window."""
    write(place / "logs" / "s1.jsonl", *compacted_log(turns=33))
    (found,) = (one["verdict"] for one in run("verdict", place / "logs", "--json").json)
    assert found["replayed"]["unmanaged_beyond_window"] == 4


def rollout(session: str, *turns: tuple[str, int], parent: str = "", copied: bytes = b"") -> bytes:
    """A rollout of Codex: what was said in each turn, and what its answer took; a fork's begins with a copy."""

    def row(kind: str, **payload: Any) -> Data:
        return {"timestamp": "2026-01-02T03:04:05Z", "type": kind, "payload": payload}

    meta = row("session_meta", id=session, cwd="/w", **({"forked_from_id": parent} if parent else {}))
    rows = [row("turn_context", model="gpt-5")]
    for words, prompt in turns:
        rows += [
            row("response_item", type="message", role=role, content=[{"type": "input_text", "text": f"{words} {said}"}])
            for role, said in (("user", "asked"), ("assistant", "begun"), ("assistant", "done"))
        ]
        took = {"input_tokens": prompt, "output_tokens": 10, "total_tokens": prompt + 10}
        info = {"last_token_usage": took, "total_token_usage": {"total_tokens": prompt}}
        rows.append(row("event_msg", type="token_count", info=info))
    return jsonl(meta) + copied + jsonl(*rows)


def test_what_a_codex_fork_repeats_is_paid_once(place: Path) -> None:
    """CLI-2: the answers it began with are those of the original; those behind it are its own, at the same places.

    An answer of several messages is one.
    """
    original = rollout("p", ("one", 1_000), ("two", 2_000))
    begun = rollout("p", ("one", 1_000))
    logs = {"p": original, "whole": rollout("f1", ("three", 3_000), parent="p", copied=original)}
    logs["parted"] = rollout("f2", ("two otherwise", 2_000), parent="p", copied=begun)
    for n, (name, data) in enumerate(logs.items()):
        path = place / "logs" / f"rollout-{name}.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        os.utime(path, (1_700_000_000 + n,) * 2)
    found = survey_logs(find_logs([place / "logs"]).files, ReplayOptions(), lambda *_: None)
    assert found.repeated == 1 and sorted(one.calls for one in found.logs) == [2, 2], "one, three; two, two otherwise"


@pytest.mark.nightly
def test_what_a_resumed_log_repeats_is_paid_once(run: Any, place: Path) -> None:
    """CLI-2: an answer in two logs is one answer; a log that a newer one holds is left to that one."""
    whole = compacted_log()
    (alone,) = (one["verdict"] for one in run("verdict", write(place / "a" / "s1.jsonl", *whole), "--json").json)
    older = [{**one, "sessionId": "s0"} for one in whole[:21]]
    write(place / "b" / "older.jsonl", *older, seconds=1)
    write(place / "b" / "newer.jsonl", *whole, seconds=2)
    (found,) = (one["verdict"] for one in run("verdict", place / "b", "--json").json)
    assert found["repeated"] == 1 and found["sessions"] == 1
    assert (found["paid_usd"], found["calls"]) == (alone["paid_usd"], alone["calls"])
    write(
        place / "c" / "one.jsonl", *older, *({**one, "sessionId": "s0"} for one in compacted_log("s2")[:9]), seconds=1
    )
    write(place / "c" / "two.jsonl", *whole, seconds=2)
    (parted,) = (one["verdict"] for one in run("verdict", place / "c", "--json").json)
    assert parted["sessions"] == 2 and parted["calls"] == alone["calls"] + 4
    assert parted["replayed"]["sessions"] == 1, "what repeats another in part is counted, not compared"


@pytest.mark.nightly
def test_a_sample_holds_logs_that_compacted_and_others(run: Any, place: Path) -> None:
    """CLI-2: by turns, the most expensive of each first: else the largest windows would hide what compactions kept."""
    for n in range(3):
        write(place / "logs" / f"long{n}.jsonl", *compacted_log(f"l{n}", turns=33)[:66])
        write(place / "logs" / f"compacted{n}.jsonl", *compacted_log(f"c{n}", turns=24 + n))
    ran = run("verdict", place / "logs", "--seconds", "60", "--json")
    (all_of_it,) = (one["verdict"] for one in ran.json)
    assert all_of_it["replayed"]["sessions"] == 6 and all_of_it["facts"]["places"] == 3
    found = find_logs([place / "logs"])
    survey = survey_logs(found.files, ReplayOptions(), lambda *_: None)
    names: list[str] = []
    replay_sample(survey.logs, ReplayOptions(), 60, lambda done, of, name: names.append(name))
    assert names[::2] == ["compacted2.jsonl", "compacted1.jsonl", "compacted0.jsonl"]
    assert all(name.startswith("long") for name in names[1::2])


def test_a_log_on_which_the_engine_fails_is_named_and_left_out(
    run: Any, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CLI-2, CLI-5: one bad log doesn't end a run over hundreds."""
    for name in ("one", "two"):
        write(place / "logs" / f"{name}.jsonl", *compacted_log(name))

    async def replayed(recording: Any, name: str, options: ReplayOptions) -> Any:
        if "one" in name:
            raise KeyError("a defect")
        return await replay_recording(recording, name, options)

    monkeypatch.setattr("perdure.lab.replay.verdict.replay_recording", replayed)
    ran = run("verdict", place / "logs")
    assert ran.code == 1 and "one.jsonl: internal error (KeyError)" in ran.err
    assert "what cost most (1 session): 50% of what was paid" in ran.out


@pytest.mark.nightly
def test_where_nothing_has_a_price_the_rest_is_said(run: Any, place: Path) -> None:
    """CLI-2: unknown is unknown; a file that can't be read is named and makes the exit code 1."""
    write(place / "logs" / "s1.jsonl", user("u0", None, "Hello"), answer("a0", "u0", text("Hi."), response="m0"))
    ran = run("verdict", place / "logs")
    assert ran.code == 0 and "no comparison of prices" in ran.out and "facts kept: unknown" in ran.out
    (place / "logs" / "bad.jsonl").write_bytes(b"\xff\xfe no log\n")
    os.mkfifo(place / "logs" / "pipe.jsonl")
    ran = run("verdict", place / "logs")
    assert ran.code == 1 and "left out: " in ran.err and "bad.jsonl" in ran.err and "a pipe" in ran.err
    ran = run("verdict", place / "missing.jsonl")
    assert ran.code == 3 and ran.out == "" and "no such file or folder" in ran.err
    (place / "empty").mkdir()
    assert run("verdict", place / "empty").code == 3


@pytest.mark.nightly
def test_the_page_for_users_of_claude_code_runs(run: Any, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CLI-2, CLI-6: every command of docs/start/claude-code.md, in its order, for somebody who has such logs."""
    monkeypatch.setenv("HOME", str(place / "me"))
    write(place / "me" / ".claude" / "projects" / "-w" / "s1.jsonl", *compacted_log())
    page = (Path(__file__).parents[2] / "docs" / "start" / "claude-code.md").read_text().split("## From here on")[0]
    commands = re.findall(r"^\$ perdure (.*)$", page, re.MULTILINE)
    assert len(commands) >= 5
    for words in map(shlex.split, commands):
        ran = run(*words)
        assert ran.code == 0, (words, ran.err)
    assert "findable now: all of it" in run("verdict").out


@pytest.mark.nightly
@pytest.mark.skipif(not DATA.is_dir(), reason=ABSENT)
def test_it_takes_about_as_long_as_it_may(run: Any) -> None:
    """CLI-2: on 26 MB of real logs what cost most is replayed first, the last in part, and both are said."""
    began = time.process_time()
    ran = run("verdict", DATA / "claude_code", "--seconds", "1")
    assert ran.code == 0 and time.process_time() - began < 15
    assert "what cost most (" in ran.out and "the last in part" in ran.out
    (found,) = (one["verdict"] for one in run("verdict", DATA / "claude_code", "--seconds", "1", "--json").json)
    assert found["sessions"] == 11 and found["replayed"]["is_cut"]
    assert 0 < found["replayed"]["paid_usd"] < found["paid_usd"]


@pytest.mark.nightly
def test_nothing_of_the_progress_stays_on_the_screen(tmp_path: Path) -> None:
    """CLI-6: at a terminal the bars that say how far it is are gone from the lines of the verdict."""
    logs = [write(tmp_path / f"a-rather-long-name-of-a-log-{name}.jsonl", *compacted_log(name, 4)) for name in "ab"]
    with drawn("verdict", *map(str, logs), cwd=tmp_path, env=environment(tmp_path / "home"), columns=100) as one:
        assert one.end() == 0
        lines = one.seen
    (counted,) = [line for line in lines if line.startswith("2 sessions")]
    assert counted.endswith("model calls") and not [line for line in lines if "[####" in line]
