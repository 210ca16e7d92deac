"""CLI-2: the JSON contract of `perdure replay`, field by field, on a made session in which every pass fires."""

from __future__ import annotations

import contextlib
import functools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from tests.golden.made import reading

from perdure.cli import main
from perdure.context.request import ModelRequest
from perdure.errors import ModelError
from perdure.lab.replay.checks import JudgedModel
from perdure.lab.replay.drive import ReplayOptions
from perdure.lab.replay.run import replay_recording
from perdure.logs.detect import read_recordings
from perdure.settings import Settings
from perdure.testing import FakeServer, FakeUpstream, ScriptedModel

HERE = Path(__file__).parent / "replay"
WINDOW = 60_000
SUMMARY = "<analysis>what was read</analysis><summary>Modules were read one after the other.</summary>"
CONTRACT = {
    "file", "format", "session", "window", "window_source", "usable", "trigger", "turns", "tokens_final", "compactions",
    "microcompactions", "offloads", "prefix_moves", "unexplained_prefix_moves", "cost", "cache_writes", "logged",
    "problems", "invalid_requests", "cpu_ms_per_turn", "notes", "summarizer",
}  # fmt: skip


@functools.cache
def told() -> str:
    """The report on the made session, as it is printed; replayed once."""
    (recording,) = read_recordings(reading(), "made.jsonl")
    result = anyio.run(replay_recording, recording, "made.jsonl", ReplayOptions(window_tokens=WINDOW))
    assert result.pop("cpu_ms_per_turn") >= 0
    return json.dumps(result, indent=1, ensure_ascii=False) + "\n"


def replayed() -> dict[str, Any]:
    result: dict[str, Any] = json.loads(told())
    return result


def test_the_report_is_the_golden_one(golden: Callable[[Path, str], None]) -> None:
    """CLI-2: same recording, same report; `make golden` rewrites it and shows what changed."""
    golden(HERE / "made.json", told())


def test_the_contract_is_whole() -> None:
    """CLI-2: every promised field is there, and every list of the made session holds something to look at."""
    result = replayed()
    assert CONTRACT - {"cpu_ms_per_turn"} <= result.keys()
    for name in ("compactions", "microcompactions", "offloads", "prefix_moves"):
        assert result[name], name
    assert result["logged"]["compactions"]
    assert result["invalid_requests"] == result["unexplained_prefix_moves"] == 0


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        (
            "compactions",
            "turn message_id trigger strategy tokens_before tokens_after summary_tokens kept_tokens restored tried",
        ),
        ("microcompactions", "turn reason cleared tokens_saved"),
        ("offloads", "tool_use_id bytes preview_bytes"),
        ("prefix_moves", "turn reason tokens_rewritten"),
        ("cost", "input cache_write cache_read output usd"),
        ("cache_writes", "first again"),
    ],
)
def test_entries_have_their_fields(name: str, fields: str) -> None:
    """CLI-2: the members of each entry."""
    value = replayed()[name]
    entry = value[0] if isinstance(value, list) else value
    assert set(fields.split()) <= entry.keys()


def replayed_with(model: ScriptedModel, **settings: Any) -> dict[str, Any]:
    (recording,) = read_recordings(reading(), "made.jsonl")
    options = ReplayOptions(settings=Settings(window_tokens=WINDOW, **settings))
    return anyio.run(replay_recording, recording, "made.jsonl", options, (model,))


@pytest.mark.nightly
def test_notes_come_first_and_cost_no_call() -> None:
    """CMP-1, CMP-2: notes are kept as the session goes, and compaction from them asks nobody."""
    model = ScriptedModel([SUMMARY] * 9)
    result = replayed_with(model)
    assert {one["strategy"] for one in result["compactions"]} == {"session_memory"}
    assert result["notes"]["updates"] > 1 and not result["notes"]["failures"] and model.requests == []
    assert result["summarizer"]["requests"] == 0


def test_a_model_writes_the_records() -> None:
    """CMP-3, REL-4: without notes the model is asked; its requests are judged, counted and priced."""
    model = ScriptedModel([SUMMARY] * 9, id="claude-opus-4-5-20251101")
    result = replayed_with(model, notes=False)
    asked = result["summarizer"]
    assert result["compactions"] and {one["strategy"] for one in result["compactions"]} == {"full"}
    assert asked["requests"] == asked["answers"] == len(model.requests) == len(result["compactions"])
    assert asked["invalid"] == result["invalid_requests"] == result["unexplained_prefix_moves"] == 0
    assert asked["model"] == "claude-opus-4-5-20251101" and asked["output"] > 0 and asked["usd"] > 0
    assert result["compactions"][0]["tried"] == [
        {"strategy": "session_memory", "reason": "off: session notes are switched off (the setting notes)"}
    ]


@pytest.mark.nightly
def test_a_model_that_fails_leaves_the_ledger() -> None:
    """CMP-1: the next strategy is tried, and the report says why."""
    result = replayed_with(ScriptedModel(["nothing of use"] * 30), notes=False)
    assert {one["strategy"] for one in result["compactions"]} == {"ledger"}
    assert [one["strategy"] for one in result["compactions"][0]["tried"]][-1] == "full"


def test_an_invalid_request_is_counted() -> None:
    """REL-4: a request that breaks a rule is seen before it is sent, and the first is told."""

    async def asked() -> JudgedModel:
        judged = JudgedModel(ScriptedModel(["never mind"]))
        body = b'{"model":"m","max_tokens":9,"messages":[{"role":"assistant","content":"I begin"}]}'
        with contextlib.suppress(ModelError):
            async for _ in judged.stream(ModelRequest("anthropic", body, ())):
                pass
        return judged

    judged = anyio.run(asked)
    assert (judged.requests, judged.answers, judged.invalid) == (1, 0, 1)
    assert judged.first_violation


@pytest.mark.nightly
@pytest.mark.e2e
def test_a_model_is_asked_by_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """CLI-2: `--summarizer` takes the names of docs/use/models.md; an unknown one is said before anything runs."""
    log = tmp_path / "made.jsonl"
    log.write_bytes(reading())
    command = ["replay", str(log), "--json", "--window", "60k", "--set", "notes=false"]

    async def served() -> str:
        upstream = FakeUpstream(script=[SUMMARY] * 9)
        async with FakeServer(upstream) as server:
            name = f"vllm:some-model@{server.url}/v1"
            await anyio.to_thread.run_sync(lambda: main([*command, "--summarizer", name]))
            return name

    anyio.run(served)
    result = json.loads(capsys.readouterr().out)
    assert {one["strategy"] for one in result["compactions"]} == {"full"}
    assert result["summarizer"]["model"] == "some-model" and result["summarizer"]["invalid"] == 0
    assert main([*command, "--summarizer", "nobody:knows"]) == 2
    assert "names no model" in capsys.readouterr().err


def test_goldens_are_not_rewritten_by_workers() -> None:
    """CLI-2: each would write the file as it read it, without the rows of the others."""
    words = ("-m", "pytest", "-q", "-n", "2", "--rewrite-golden", "--collect-only", str(Path(__file__)))
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR and "--rewrite-golden goes without -n" in done.stderr
