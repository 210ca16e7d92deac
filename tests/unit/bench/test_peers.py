"""What `bench/peers.py` counts, the same for all peers (SPD-6)."""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perdure import Message

pytestmark = pytest.mark.unit

BENCH = Path(__file__).parents[3] / "bench"


def module(monkeypatch: pytest.MonkeyPatch, name: str, path: Path) -> Any:
    """A script of the bench, which finds its siblings as when it is started."""
    monkeypatch.syspath_prepend(str(BENCH))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, made)
    spec.loader.exec_module(made)
    return made


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Any:
    return module(monkeypatch, "peers_loop", BENCH / "field" / "loop.py")


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> Any:
    return module(monkeypatch, "peers_bench", BENCH / "peers.py")


def test_the_cache_is_followed_part_by_part(loop: Any) -> None:
    """SPD-6: what a request shares with the last one is read, unless five minutes went by; all else is uncached."""
    meter = loop.Meter(window=1_000)
    one, two, three = (loop.Part("user", letter * 400) for letter in "abc")
    meter.sent([one, two], 0.0)
    assert (meter.counts.read, meter.counts.uncached, meter.counts.breaks) == (0, 200, 0)
    meter.sent([one, two, three], 60.0)
    assert (meter.counts.read, meter.counts.uncached, meter.counts.breaks) == (200, 300, 0)
    meter.sent([one, three], 120.0)
    assert (meter.counts.read, meter.counts.uncached, meter.counts.breaks) == (300, 400, 1)
    meter.sent([one, three], 500.0)
    assert (meter.counts.read, meter.counts.uncached, meter.counts.breaks) == (300, 600, 1)
    meter.sent([loop.Part("user", "d" * 4_004)], 501.0)
    assert (meter.counts.beyond, meter.counts.breaks, meter.counts.largest) == (1, 2, 1_001)


@pytest.mark.parametrize(
    ("kinds", "is_valid"),
    [
        ("user call:1 result:1", True),
        ("user call:1 call:2 result:2 result:1 assistant", True),
        ("user", True),
        ("", False),
        ("system", False),
        ("result:1 user", False),
        ("user call:1 user", False),
        ("user call:1", False),
        ("user call:1 call:2 result:1 assistant result:2", False),
    ],
)
def test_requests_that_a_provider_refuses_are_counted(loop: Any, kinds: str, is_valid: bool) -> None:
    """SPD-6: each call has its result behind it, each result its call before it."""
    parts = [loop.Part(kind.split(":")[0], "words", kind.partition(":")[2]) for kind in kinds.split()]
    assert loop.is_valid(parts) is is_valid


def test_the_scripted_summariser_copies_telling_lines(loop: Any) -> None:
    """SPD-6: it invents nothing, keeps to its size, and takes the lines that name something new."""
    summariser = loop.Summariser()
    dull = ["all is well here and nothing is said of it"] * 3_000
    told = summariser("\n".join([*dull, "see src/a/b.py and --flag", *dull, "error 40412 in load_config"]))
    assert told.splitlines() == ["see src/a/b.py and --flag", "error 40412 in load_config"]
    assert (summariser.calls, summariser.written) == (1, loop.tokens_of(told))
    long = summariser("\n".join(f"line {n} is in file_{n}.py" for n in range(10_000)))
    assert loop.tokens_of(long) <= loop.SUMMARY_TOKENS


def test_a_recording_becomes_calls_with_what_was_said_before(peers: Any) -> None:
    """SPD-6: answers in several messages are one call; calls that nobody answered are left out."""
    use = {"type": "tool_use", "id": "t1", "name": "Read", "input": {"path": "a.py"}}
    lost = use | {"id": "t2"}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "x = 1"}
    said = [
        Message.of("user", "Read it."),
        Message.of("assistant", "I will."),
        Message.of("assistant", [use, lost]),
        Message.of("user", [result]),
        Message.of("user", "Well?"),
        Message.of("assistant", "It is 1."),
    ]
    calls, lines = peers.calls_of([(message, line) for line, message in enumerate(said, 1)])
    assert lines == [2, 6]
    assert [[one["role"] for one in call["said"]] for call in calls] == [["user"], ["tool", "user"]]
    assert [call["id"] for call in calls[0]["answer"]["calls"]] == ["t1"]
    assert calls[1]["said"][0] == {"role": "tool", "id": "t1", "name": "Read", "text": "x = 1", "is_error": False}


def test_our_own_peer_runs_a_script(tmp_path: Path) -> None:
    """SPD-6: a process drives a session, shows the views that are asked for, and says what it came to."""
    answer = {"role": "assistant", "text": "", "calls": [{"id": "t0", "name": "Read", "arguments": {"path": "a.py"}}]}
    result = {"role": "tool", "id": "t0", "name": "Read", "text": "x = 1", "is_error": False}
    flags = {"at": None, "measured": False}
    calls = [
        {"said": [{"role": "user", "text": "Read a.py."}], "answer": answer, "watched": False, **flags},
        {"said": [result], "answer": {"role": "assistant", "text": "1", "calls": []}, "watched": True, **flags},
    ]
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"system": "Work.", "window": 100_000, "calls": calls}))
    command = [sys.executable, str(BENCH / "field" / "perdure_peer.py"), str(script), "default"]
    told = [json.loads(line) for line in subprocess.check_output(command, text=True).splitlines()]
    (view,) = [one for one in told if "view" in one]
    done = told[-1]["done"]
    assert view["view"] == 1 and "x = 1" in view["text"] and "Read a.py." in view["text"]
    assert (done["calls"], done["breaks"], done["invalid"], done["beyond"]) == (2, 0, 0, 0)
    assert done["read"] > 0 and len(done["timed"]) == 2


def test_without_recordings_the_bench_says_so(tmp_path: Path) -> None:
    """SPD-6: it is skipped with a clear reason where there is nothing to measure."""
    done = subprocess.run(
        [sys.executable, str(BENCH / "peers.py"), str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"skipped: no recording of 60,000 tokens or more in {tmp_path}\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--only", "nobody"], "--only: no peer's name begins with 'nobody'; there are perdure, langchain,"),
        (["--window", "0"], "--window: 0 is too small; 10,000 tokens are the least"),
        (["--price-of", "nothing"], "--price-of: no price is known for nothing"),
        (["nowhere"], "nowhere isn't there; name recordings, or folders of them"),
    ],
)
def test_a_command_line_that_cannot_be_followed_is_one_line(
    peers: Any, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    """SPD-6: what is wrong, and what there is instead, before anything is measured."""
    with pytest.raises(SystemExit) as ended:
        peers.asked_for(arguments)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err.splitlines()[-1]


GIVEN = argparse.Namespace(window=100_000, price_of="claude-sonnet-5-5", seconds=30.0)


@pytest.mark.nightly
def test_a_peer_is_measured_from_its_process_to_the_tables(peers: Any, tmp_path: Path) -> None:
    """SPD-6: what a process prints becomes a row: counts, price, and the facts in view beside a record of ours."""
    said = [
        Message.of("user", "Look at src/loader/parse_config.py and tell me its limit."),
        Message.of("assistant", "I will."),
    ]
    later = [Message.of("assistant", "Its limit in src/loader/parse_config.py is as you said.")]
    gold = peers.gold_of(peers.utterances_of(said, {}), peers.utterances_of(later, {}))
    assert gold.facts
    calls, _ = peers.calls_of([(message, 0) for message in [*said, Message.of("user", "Go on."), *later]])
    calls[1]["watched"] = True
    session = peers.Session("tiny", calls, {1: peers.Place(tuple(said), gold)})
    row = peers.Row(peers.SETTINGS[0])
    asyncio.run(peers.measure(row, [session], None, tmp_path, GIVEN))
    assert row.said == []
    assert (row.calls, row.of, row.places, row.breaks, row.beyond) == (2, 2, 1, 0, 0)
    assert row.kept["facts"] == (len(gold.facts), len(gold.facts)) and row.usd > 0
    assert peers.cost_cells(row)[:5] == ["perdure: default", "2", "0", "0", "0"]
    assert "| 100 |" in peers.table([peers.VIEWS, peers.view_cells(row)], is_markdown=True)


@pytest.mark.nightly
def test_a_peer_that_fails_says_why_once(peers: Any, tmp_path: Path) -> None:
    """SPD-6: what couldn't be measured is a row of dashes with its reason, and the others go on."""
    calls = [{"said": [], "answer": {"role": "nobody"}, "at": None, "measured": False, "watched": False}]
    row = peers.Row(peers.SETTINGS[0])
    sessions = [peers.Session("broken", calls), peers.Session("also", calls)]
    asyncio.run(peers.measure(row, sessions, None, tmp_path, GIVEN))
    assert row.said == ["broken: KeyError: 'text'"] and row.calls == 0
    assert set(peers.cost_cells(row)[1:]) == set(peers.view_cells(row)[1:]) == {"–"}


def test_calls_that_were_not_made_are_told(peers: Any) -> None:
    """SPD-6: the row of a peer that was stopped doesn't pass for one of the whole session."""
    row = peers.Row(peers.SETTINGS[0], calls=3, of=5)
    assert peers.cost_cells(row)[1] == "3 of 5"


def test_a_package_that_cannot_be_installed_is_tried_once(peers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """SPD-6: without a network each of its rows says why, in one line, and the other packages are tried."""
    tried = []

    def install(client: Any) -> None:
        tried.append(client.package)
        if client.package == "langchain":
            lines = b"WARNING: Retrying\nERROR: No matching distribution found for langchain\n[notice] a new pip"
            raise subprocess.CalledProcessError(1, "pip", stderr=lines)

    monkeypatch.setattr(peers, "install", install)
    rows = [peers.Row(peer) for peer in peers.SETTINGS if peer.package in ("perdure", "langchain", "litellm")]
    peers.install_all(rows)
    assert tried.count("langchain") == 1 and "litellm" in tried and "perdure" not in tried
    said = {row.peer.package: row.said for row in rows}
    assert said["langchain"] == ["can't be installed: ERROR: No matching distribution found for langchain"]
    assert said["perdure"] == said["litellm"] == []


def test_a_run_that_is_stopped_leaves_no_process(peers: Any, tmp_path: Path) -> None:
    """SPD-6: whoever stops it waits for nothing, and the peer's process ends as well."""
    script = tmp_path / "slow.py"
    script.write_text("import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(600)\n")

    async def stop_when_heard() -> int:
        heard: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        slow = peers.PeerSetting("perdure", "", str(script), "slow")
        driven = asyncio.create_task(peers.drive(slow, script, 1.0, heard.set_result))
        pid = await heard
        driven.cancel()
        with pytest.raises(asyncio.CancelledError):
            await driven
        return pid

    pid = asyncio.run(asyncio.wait_for(stop_when_heard(), 60))
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
