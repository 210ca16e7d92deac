"""Everything that is read from outside, mutated: no internal error, and no invalid request (ENG-7, D9).

    python -m bench.fuzz [--mutants 5000] [--seed 1] [--only NAME]

Small made inputs (below; nothing of a recording) are mutated, and each mutant goes the whole way: read, replayed, said
into a session, prepared, its request held against the rules of the fake server. A refusal of the package's own is as
good as an answer; anything else is printed with the number that makes the mutant again, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import traceback
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from bench._mutants import bytes_mutant, mutant

from perdure.adapters.config import load
from perdure.adapters.journal.in_memory import MemoryJournal
from perdure.adapters.journal.store import FileCalibrations
from perdure.context.request import to_request
from perdure.engine.imports import import_recording
from perdure.engine.session import LiveSession
from perdure.engine.turn import prepare
from perdure.errors import ContextBlocked, PerdureError
from perdure.gateway import anthropic, openai
from perdure.gateway.requests import ParsedBody, Unmanageable, fields_of, list_of
from perdure.lab.replay.drive import ReplayOptions
from perdure.lab.replay.run import replay_recording
from perdure.logs.detect import read_recordings
from perdure.memory.index_file import index_entries, index_hooks
from perdure.testing import ModelRules, check_anthropic, check_openai
from perdure.text.frontmatter import front_matter
from perdure.text.markdown import compact_instructions, imports, sections, without_comments
from perdure.transcript.codec import encode_header, encode_line
from perdure.transcript.history import DigestLimits, NotDigestible
from perdure.transcript.messages import Message, MessageId
from perdure.transcript.records import Front, Header, Noted, Pinned, Titled
from perdure.wiring import memory_session, open_session

RULES = ModelRules(window_tokens=10_000_000, max_output_tokens=10**9, allow_unknown=True, max_messages=10**6)
HEADER = Header(format="perdure-journal", version=1, session="fuzzed", created=1_750_000_000.0)
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}


class Invalid(AssertionError):
    """A request that the server's rules refuse."""


# --- the seeds --------------------------------------------------------------------------------------------------------


def _lines(*values: Any) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def _use(number: int, **more: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"toolu_{number}", "name": "Read", "input": {"file_path": "a.py"}, **more}


def _answer(number: int, content: Any = "1: x = 1") -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": content}


PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgoAAAANSUhEUg=="}}
USAGE = {"input_tokens": 1200, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 40, "output_tokens": 30}


def claude_code() -> bytes:
    """A log with parallel calls, thinking, an attachment, a clearing, a compaction, a rewind and a sub-agent."""

    def entry(kind: str, uuid: str, parent: str | None, **more: Any) -> dict[str, Any]:
        stamp = {"sessionId": "s1", "timestamp": "2026-01-02T03:04:05.500Z", "cwd": "/p", "isSidechain": False}
        return {"parentUuid": parent, "type": kind, "uuid": uuid, **stamp, **more}

    def says(uuid: str, parent: str | None, content: Any, **more: Any) -> dict[str, Any]:
        return entry("user", uuid, parent, message={"role": "user", "content": content}, **more)

    def model(uuid: str, parent: str, response: str, *content: Any, **more: Any) -> dict[str, Any]:
        body = {
            "id": response,
            "role": "assistant",
            "model": "claude-opus-4-5",
            "content": list(content),
            "usage": USAGE,
        }
        return entry("assistant", uuid, parent, message={**body, "stop_reason": "tool_use"}, **more)

    thought = {"type": "thinking", "thinking": "told", "signature": "c2ln"}
    micro = {"trigger": "auto", "preTokens": 900, "tokensSaved": 100, "compactedToolIds": ["toolu_1"]}
    kept = {"trigger": "manual", "preTokens": 900, "postTokens": 90, "preservedMessages": {"uuids": ["a3", "r3"]}}
    file = {"type": "file", "filename": "b.py", "content": {"type": "text", "file": {"content": "y = 2"}}}
    return _lines(
        {"type": "summary", "summary": "told"},
        says("u1", None, "Please mend a.py"),
        entry("attachment", "t1", "u1", attachment=file),
        model("a1", "t1", "m1", thought, {"type": "text", "text": "I look."}),
        model("a2", "a1", "m1", _use(1), _use(2)),
        says("r1", "a2", [_answer(1)]),
        says("r2", "r1", [_answer(2, [{"type": "text", "text": "told"}, PICTURE])]),
        model("b1", "r2", "m9", {"type": "text", "text": "aside"}, isSidechain=True, agentId="x"),
        entry("system", "mb", None, subtype="microcompact_boundary", microcompactMetadata=micro),
        model("a3", "r2", "m2", _use(3)),
        says("r3", "a3", [_answer(3)]),
        entry("system", "cb", None, subtype="compact_boundary", compactMetadata=kept),
        says("s1", None, "Summary: told", isCompactSummary=True),
        says("u2", "s1", [{"type": "text", "text": "go on"}, PICTURE]),
        model("a4", "u2", "m3", {"type": "text", "text": "Done."}),
        says("u3", "s1", "rather like this"),
        model("a5", "u3", "m4", {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}}),
        model("a6", "a5", "m4", {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []}),
        says("u4", "a6", "thanks"),
    )


def codex() -> bytes:
    """A rollout with calls, reasoning, counts of tokens and a compaction."""
    stamp = "2026-01-02T03:04:05.500Z"

    def row(kind: str, **payload: Any) -> dict[str, Any]:
        return {"timestamp": stamp, "type": kind, "payload": payload}

    counts = {"input_tokens": 1200, "cached_input_tokens": 0, "output_tokens": 30, "total_tokens": 1230}
    return _lines(
        row("session_meta", id="c1", cwd="/p", originator="cli", instructions="Be careful."),
        row("turn_context", model="gpt-5", cwd="/p"),
        row("response_item", type="message", role="user", content=[{"type": "input_text", "text": "mend a.py"}]),
        row("response_item", type="reasoning", summary=[{"type": "summary_text", "text": "told"}], content=None),
        row("response_item", type="function_call", name="shell", arguments='{"command":["ls"]}', call_id="call_1"),
        row("response_item", type="function_call_output", call_id="call_1", output='{"output":"a.py"}'),
        row("event_msg", type="token_count", info={"last_token_usage": counts, "model_context_window": 272000}),
        row("response_item", type="custom_tool_call", name="apply_patch", input="*** Begin", call_id="call_2"),
        row("response_item", type="custom_tool_call_output", call_id="call_2", output="told"),
        row("compacted", message="told"),
        row("response_item", type="message", role="assistant", content=[{"type": "output_text", "text": "Done."}]),
    )


def swe_agent() -> bytes:
    """A trajectory with a history of messages."""
    history = [
        {"role": "system", "content": "told", "agent": "main"},
        {"role": "user", "content": "Mend it.", "is_demo": False},
        {"role": "assistant", "content": "I look.\n```\nls\n```", "thought": "I look.", "action": "ls"},
        {"role": "tool", "content": "a.py", "tool_call_ids": ["call_1"]},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "call_2", "function": {"name": "bash", "arguments": "{}"}}],
        },
        {"role": "user", "content": "told"},
    ]
    return json.dumps({"history": history, "trajectory": [], "info": {"model_stats": {}}, "environment": "e"}).encode()


def mini_swe_agent() -> bytes:
    """A trajectory of mini-swe-agent."""
    usage = {"prompt_tokens": 900, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 0}}
    messages = [
        {"role": "system", "content": "told"},
        {"role": "user", "content": "Mend it."},
        {
            "role": "assistant",
            "content": "```bash\nls\n```",
            "extra": {"response": {"id": "r1", "model": "m", "usage": usage}},
        },
        {"role": "user", "content": "<returncode>0</returncode>\n<output>a.py</output>"},
        {"role": "assistant", "content": "```bash\nsubmit\n```", "extra": {"timestamp": 1750000000.5}},
    ]
    info = {"exit_status": "Submitted", "config": {"model": {"model_name": "m"}}}
    return json.dumps({"info": info, "messages": messages, "trajectory_format": "mini-swe-agent-1"}).encode()


def chat() -> bytes:
    """A list of OpenAI's messages."""
    function = {"name": "look", "arguments": '{"path": "a.py"}'}
    tool = {"type": "function", "function": {"name": "look", "parameters": SCHEMA}}
    messages = [
        {"role": "system", "content": "told"},
        {
            "role": "user",
            "content": [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "http://x/y"}}],
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "told"},
        {"role": "assistant", "content": "Done.", "usage": {"prompt_tokens": 90, "completion_tokens": 2}},
    ]
    return json.dumps({"model": "gpt-4o", "messages": messages, "tools": [tool]}).encode()


def blocks(*, summary: bool = True) -> bytes:
    """A list of Anthropic's messages."""
    search = {"type": "search_result", "source": "s", "title": "t", "content": [_text("told")]}
    paper = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "told"}}
    made = [{"type": "compaction", "content": "told"}] if summary else []
    messages = [
        {"role": "user", "content": [{**_text("see"), "cache_control": {"type": "ephemeral"}}, paper, search]},
        {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "eA=="}, _use(1), _use(2)]},
        {"role": "user", "content": [_answer(1, [PICTURE]), {**_answer(2), "is_error": True}, _text("told")]},
        {"role": "assistant", "content": [*made, _text("Done.")]},
        {"role": "user", "content": "more"},
    ]
    tools = [{"name": "Read", "input_schema": SCHEMA, "cache_control": {"type": "ephemeral"}}]
    head = {"model": "m", "max_tokens": 100, "system": "told"}
    return json.dumps({**head, "messages": messages, "tools": tools}).encode()


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


async def own() -> bytes:
    """A journal of ours, with what a session records."""
    journal = MemoryJournal(HEADER, encode=True)
    session = await memory_session(journal=journal)
    await session.record(Front(model="m", system="told", tools=[{"name": "Read", "input_schema": SCHEMA}]))
    recording = read_recordings(claude_code(), "log.jsonl")[0]
    await import_recording(session, recording, b"told", file="log")
    await session.record(Pinned(id="p", text="told"), Titled(title="told", tags=("a",)), Noted(kind="k", data={"a": 0}))
    await session.append(Message.of("assistant", [_use(9)], id=MessageId("last"), usage=USAGE))
    await session.close()
    loaded = await MemoryJournal.load(journal, whole=True)
    seqs = sorted({placed.seq for placed in loaded.records})
    rows = [encode_line(s, tuple(p.record for p in loaded.records if p.seq == s)) for s in seqs]
    return encode_header(HEADER) + b"".join(rows)


CONFIG = b"""window_tokens = 64000
auto_compact_percent = 80.5
microcompact_tools = ["Read", "Bash"]
instructions_excludes = ["**/x.md"]
cache_ttl = "1h"
snip = true

[[models]]
prefix = "mine"
window_tokens = 32000
input_usd = 0.5

[gateway]
port = 4000
keep_days = 3
"""

MEMORY = b"""---
name: told
description: "how it was told"
type: feedback
metadata: {node: [a, b], other: "x: y"}
paths:
  - src/**/*.py
---
# A heading

- [told](feedback_told.md): the hook of it
@docs/style.md and `@not/this.md`
<!-- a comment -->
## Compact Instructions
Keep it.
```
@nor/this.md
```
"""


# --- the ways in ------------------------------------------------------------------------------------------------------


def checked(session: LiveSession) -> None:
    """Raise `Invalid` when the request of this moment breaks a rule of either protocol."""
    view, facts = session.view, session.facts()
    found = check_anthropic(to_request(view, facts, model="m").body, model_rules=RULES)
    found = found or check_openai(to_request(view, facts, protocol="openai", model="m").body)
    if found:
        raise Invalid(f"{found[0].rule} at {found[0].path}: {found[0].text}"[:300])


async def _prepared(session: LiveSession) -> None:
    try:
        await prepare(session)
    except ContextBlocked:
        return
    checked(session)


async def _log(data: bytes, name: str) -> None:
    for recording in read_recordings(data, name):
        if not recording.messages:
            continue
        result = await replay_recording(recording, name, ReplayOptions())
        if result["invalid_requests"]:
            raise Invalid(str([p["what"] for p in result["problems"] if "invalid request" in p["what"]])[:300])
        session = await memory_session(journal=MemoryJournal(HEADER, encode=True))
        await import_recording(session, recording, data, file=name)
        await _prepared(session)
        again = await LiveSession.load(session.ports)
        if again.view != session.view:
            raise Invalid("a reopened import is another one")
        await session.append("and now?")
        await _prepared(session)


def _resealed(data: bytes) -> bytes:
    """Lines whose JSON was changed, with the checksum that a writer would have given them."""
    rows = []
    for line in data.split(b"\n"):
        try:
            value = json.loads(line)
            value.pop("crc", None)
            raw = json.dumps(value).encode()
            rows.append(_sealed(raw))
        except (ValueError, AttributeError, TypeError, RecursionError):
            rows.append(line + b"\n" if line else b"")
    return b"".join(rows)


def _sealed(raw: bytes) -> bytes:
    return b'%b,"crc":"%08x"}\n' % (raw[:-1], zlib.crc32(raw[:-1]))


async def _journal(data: bytes, chance: random.Random, folder: Path) -> None:
    if chance.random() < 0.6:
        data = _resealed(data)
    directory = folder / "projects" / "p" / f"s{chance.getrandbits(60)}"
    directory.mkdir(parents=True)
    (directory / "journal.jsonl").write_bytes(data)
    session = await open_session(folder, directory)
    try:
        await _prepared(session)
        await session.append("and now?")
        await _prepared(session)
    finally:
        await session.close()
    await _log((directory / "journal.jsonl").read_bytes(), "journal.jsonl")


def _config(data: bytes, folder: Path) -> None:
    home, place = folder / "home", folder / "place"
    for at in (home, place / ".perdure"):
        at.mkdir(parents=True, exist_ok=True, mode=0o700)
    (home / "config.toml").write_bytes(data)
    load({"PERDURE_HOME": str(home)}, cwd=place)
    (home / "config.toml").write_bytes(b"")
    (place / ".perdure" / "config.toml").write_bytes(data)
    load({"PERDURE_HOME": str(home)}, cwd=place, trusts=True)


def _memory(data: bytes, folder: Path) -> None:
    text = data.decode("utf-8", "replace")
    found = front_matter(text)
    for name in ("name", "description", "type", "metadata", "paths"):
        found.text(name), found.several(name), found.inner(name)
    (
        index_entries(text),
        index_hooks(text),
        imports(text),
        sections(text),
        without_comments(text),
        compact_instructions(text),
    )


def _calibrations(data: bytes, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "calibration.json").write_bytes(data)
    FileCalibrations(folder).ratio("m")


async def _body(data: bytes, side: Any) -> None:
    try:
        fields = fields_of(data)
        raws = list_of(fields.get("messages"))
        incoming = side.read(data, ParsedBody(fields, raws))
        for raw in incoming.history:
            side.digest(bytes(raw), DigestLimits())
        messages, front = side.messages(incoming.history), side.front(incoming)
        side.head(incoming, 100)
    except (NotDigestible, Unmanageable):
        return
    session = await memory_session(journal=MemoryJournal(HEADER, encode=True))
    await session.record(front)
    for message in messages:
        await session.append(message)
    await _prepared(session)


async def _face(data: bytes) -> None:
    """The list as plain data, as a host would give it."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return
    session = await memory_session(journal=MemoryJournal(HEADER, encode=True))
    value = value if isinstance(value, dict) else {}
    try:
        await session.record(Front(model="m", system=value.get("system", ()), tools=value.get("tools", ())))
    except PerdureError:
        pass
    messages = value.get("messages")
    for message in messages if isinstance(messages, list) else [messages]:
        try:
            await session.append(message)
        except PerdureError:
            continue
    await _prepared(session)


@dataclass(frozen=True)
class Way:
    """A way in: its seed, and what a mutant goes through. `weight` is its share of the mutants."""

    seed: bytes
    run: Callable[[bytes, random.Random, Path], None]
    weight: int = 1
    mutate: Callable[[bytes, random.Random], bytes] = mutant


def _log_way(make: Callable[[], bytes], name: str, weight: int) -> Way:
    return Way(make(), lambda data, chance, folder: anyio.run(_log, data, name), weight)


def ways() -> dict[str, Way]:
    """Every way in, by name."""
    return {
        "claude_code": _log_way(claude_code, "log.jsonl", 6),
        "codex": _log_way(codex, "rollout.jsonl", 4),
        "swe_agent": _log_way(swe_agent, "run.traj", 2),
        "mini_swe_agent": _log_way(mini_swe_agent, "run.traj.json", 2),
        "openai": _log_way(chat, "chat.json", 3),
        "anthropic": _log_way(blocks, "blocks.json", 4),
        "journal": Way(anyio.run(own), lambda d, chance, folder: anyio.run(_journal, d, chance, folder), 4),
        "face": Way(blocks(), lambda d, chance, folder: anyio.run(_face, d), 2),
        "face_openai": Way(chat(), lambda d, chance, folder: anyio.run(_face, d), 1),
        "gateway_anthropic": Way(
            blocks(summary=False), lambda d, c, f: anyio.run(_body, d, anthropic.AnthropicProtocol()), 2
        ),
        "gateway_openai": Way(chat(), lambda d, c, f: anyio.run(_body, d, openai.OpenAIProtocol()), 1),
        "config": Way(CONFIG, lambda d, chance, folder: _config(d, folder), 1, bytes_mutant),
        "memory": Way(MEMORY, lambda d, chance, folder: _memory(d, folder), 1, bytes_mutant),
        "calibrations": Way(b'{"m": 1.5, "n": 2}', lambda d, chance, folder: _calibrations(d, folder), 1),
    }


def fuzz(mutants: int, seed: int, only: str = "") -> tuple[Counter[str], list[str]]:
    """So many mutants over all ways: how each went, and what should not have been, with how to make it again."""
    chosen = {name: way for name, way in ways().items() if name == only or not only}
    counts: Counter[str] = Counter()
    found: list[str] = []
    shares = sum(way.weight for way in chosen.values())
    with tempfile.TemporaryDirectory() as place:
        for name, way in chosen.items():
            for number in range(max(1, round(mutants * way.weight / shares))):
                chance = random.Random(f"{name}-{seed}-{number}")
                data = way.mutate(way.seed, chance) if number else way.seed
                counts[name] += 1
                try:
                    way.run(data, chance, Path(place) / f"{name}-{number}")
                    counts["taken"] += 1
                except PerdureError:
                    counts["refused"] += 1
                except Invalid as e:
                    counts["invalid"] += 1
                    found.append(f"{name} {seed} {number}: invalid: {e}")
                except Exception as e:  # what this looks for
                    counts["internal"] += 1
                    last = traceback.extract_tb(e.__traceback__)[-1]
                    where = f"{Path(last.filename).name}:{last.lineno}"
                    found.append(f"{name} {seed} {number}: {type(e).__name__} at {where}: {str(e)[:200]}")
    return counts, found


def main() -> int:
    parser = argparse.ArgumentParser(description="mutants of everything that is read")
    parser.add_argument("--mutants", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", choices=["", *ways()])
    given = parser.parse_args()
    counts, found = fuzz(given.mutants, given.seed, given.only)
    for line in found[:60]:
        print(line)
    ended = ("taken", "refused", "invalid", "internal")
    print(", ".join(f"{name} {count:,}" for name, count in counts.items() if name not in ended))
    total = sum(counts[name] for name in ended)
    print(f"{total:,} mutants: " + ", ".join(f"{name} {counts[name]:,}" for name in ended))
    return 1 if counts["invalid"] or counts["internal"] else 0


if __name__ == "__main__":
    sys.exit(main())
