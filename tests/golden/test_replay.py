"""CLI-2: the JSON contract of `holdfast replay`, field by field, on a made session in which every pass fires."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from holdfast.replay.options import ReplayOptions
from holdfast.replay.run import replay_recording
from holdfast.transcript.foreign.detect import read_recordings

HERE = Path(__file__).parent / "replay"
WINDOW = 60_000
THOUGHTS = "What it exports decides what the callers may rely on, so I note every name with its line. " * 14
CONTRACT = {
    "file", "format", "session", "window", "window_source", "usable", "trigger", "turns", "tokens_final", "compactions",
    "microcompactions", "offloads", "prefix_moves", "unexplained_prefix_moves", "cost", "logged", "problems",
    "invalid_requests", "cpu_ms_per_turn",
}  # fmt: skip


class Log:
    """A Claude Code log in the making."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.minutes = 0
        self.tokens = 9_000
        self.chars = 0

    def line(self, kind: str, message: dict[str, Any] | None = None, **fields: Any) -> str:
        uuid = f"00000000-0000-4000-8000-{len(self.lines):012d}"
        entry: dict[str, Any] = {
            "parentUuid": f"00000000-0000-4000-8000-{len(self.lines) - 1:012d}" if self.lines else None,
            "isSidechain": False,
            "type": kind,
            "uuid": uuid,
            "sessionId": "11111111-1111-4111-8111-111111111111",
            "cwd": "/home/dev/app",
            "version": "2.1.40",
            "timestamp": f"2026-03-01T{8 + self.minutes // 60:02d}:{self.minutes % 60:02d}:00.000Z",
            **({"message": message} if message else {}),
            **fields,
        }
        self.lines.append(json.dumps(entry).encode())
        return uuid

    def says(self, text: str) -> None:
        self.chars += len(text)
        self.line("user", {"role": "user", "content": text})

    def answers(self, number: int, *blocks: dict[str, Any]) -> None:
        """One API response; its usage is what was said so far, at a fifth more than characters over four."""
        self.minutes += 1
        self.tokens += self.chars * 3 // 10
        self.chars = sum(len(json.dumps(block)) for block in blocks)
        usage = {"input_tokens": 4, "cache_read_input_tokens": self.tokens, "output_tokens": self.chars * 3 // 10}
        for block in blocks:
            message = {"role": "assistant", "id": f"msg_{number}", "model": "claude-opus-4-5-20251101"}
            self.line("assistant", {**message, "type": "message", "content": [block], "usage": usage})

    def returns(self, identity: str, text: str) -> None:
        self.chars += len(text)
        block = {"type": "tool_result", "tool_use_id": identity, "content": text}
        self.line("user", {"role": "user", "content": [block]})


def made_session() -> bytes:
    """Prompts, reads (one of them twice), a huge command output, a logged compaction, an hour of silence."""
    log = Log()
    for number in range(70):
        if number % 5 == 0:
            log.says(f"Step {number // 5}: look at module {number} and tell me what it exports.")
        if number == 60:
            log.minutes += 90
        name, argument = [("Read", "file_path"), ("Bash", "command"), ("Grep", "pattern")][number % 3]
        identity = f"toolu_{number:03d}"
        use = {"type": "tool_use", "id": identity, "name": name, "input": {argument: f"src/module_{number % 17}.py"}}
        log.answers(number, {"type": "text", "text": f"I look at module {number}. " + THOUGHTS}, use)
        lines = 900 if number == 7 else 60 + 7 * number % 90
        log.returns(identity, "\n".join(f"{k:>5}\tdef function_{number}_{k}(v): return v + {k}" for k in range(lines)))
        if number == 20:
            boundary = {"trigger": "auto", "preTokens": log.tokens + log.chars // 4}
            log.line("system", subtype="compact_boundary", content="Conversation compacted", compactMetadata=boundary)
            log.line("user", {"role": "user", "content": "A summary."}, isCompactSummary=True)
    log.answers(99, {"type": "text", "text": "All modules are read."})
    return b"\n".join(log.lines) + b"\n"


def replayed() -> dict[str, Any]:
    (recording,) = read_recordings(made_session(), "made.jsonl")
    result = anyio.run(replay_recording, recording, "made.jsonl", ReplayOptions(window_tokens=WINDOW))
    assert result.pop("cpu_ms_per_turn") >= 0
    return result


def test_the_report_is_the_golden_one(golden: Callable[[Path, str], None]) -> None:
    """CLI-2: same recording, same report; `make golden` rewrites it and shows what changed."""
    golden(HERE / "made.json", json.dumps(replayed(), indent=1, ensure_ascii=False) + "\n")


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
            "turn message_id trigger strategy tokens_before tokens_after summary_tokens kept_tokens",
        ),
        ("microcompactions", "turn reason cleared tokens_saved"),
        ("offloads", "tool_use_id bytes preview_bytes"),
        ("prefix_moves", "turn reason tokens_rewritten"),
        ("cost", "input cache_write cache_read output usd"),
    ],
)
def test_entries_have_their_fields(name: str, fields: str) -> None:
    """CLI-2: the members of each entry."""
    value = replayed()[name]
    entry = value[0] if isinstance(value, list) else value
    assert set(fields.split()) <= entry.keys()
