"""Bounds of what tenants hold: each its share, and all together so much (GW-12)."""

from __future__ import annotations

import asyncio
import io
import json
import threading
import time
from contextlib import nullcontext
from pathlib import Path

import aiohttp
import msgspec
import pytest
from tests.gateways import fake, in_loop, serving

from perdure.compaction.ledger.statements import demands_in
from perdure.context.reminders import neutralised, restored
from perdure.context.view import CallInView, WorthlessResults
from perdure.engine.session import run_aside
from perdure.gateway import sockets
from perdure.gateway.admission import Admission, Refusal
from perdure.gateway.requests import check_text
from perdure.gateway.sockets import MOST_REMEMBERED, ConnectionMemory, RememberedResponse
from perdure.transcript.blocks import ToolResult
from perdure.transcript.history import DigestLimits, NotDigestible
from perdure.transcript.messages import ToolUseId, spoken_text


def test_what_connections_remember_is_bounded_for_each_tenant_and_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """GW-12, finding R2: over all connections of a tenant; and beyond what all may have, who has most loses it."""
    monkeypatch.setattr(sockets, "MOST_REMEMBERED_BYTES", 1_000)
    monkeypatch.setattr(sockets, "MOST_REMEMBERED_IN_ALL", 2_500)
    memory = ConnectionMemory()
    for number in range(25):
        memory.put("greedy", f"connection {number}", "r", RememberedResponse(b"x" * 400, None))
        assert memory.bytes_of("greedy") <= 1_000
    assert memory.get("greedy", "connection 24", "r") and not memory.get("greedy", "connection 0", "r")
    memory.put("small", "c", "r", RememberedResponse(b"y" * 300, None))
    for tenant in ("greedy", "second", "third"):
        memory.put(tenant, "c", "a", RememberedResponse(b"x" * 1_000, None))
    assert memory.get("small", "c", "r") is not None, "it never had most"
    assert sum(map(memory.bytes_of, ("greedy", "small", "second", "third"))) <= 2_500
    memory.forget("small", "c")
    assert memory.get("small", "c", "r") is None and memory.bytes_of("small") == 0


def test_a_connection_remembers_so_many_responses_and_the_last() -> None:
    """GW-12: as many as before, each once, the newest however large it is."""
    memory = ConnectionMemory()
    for number in range(MOST_REMEMBERED + 3):
        memory.put("t", "c", f"r{number}", RememberedResponse(b"x", None))
    assert memory.bytes_of("t") == MOST_REMEMBERED and memory.get("t", "c", "r2") is None
    memory.put("t", "c", "r5", RememberedResponse(b"xx", None))
    assert memory.bytes_of("t") == MOST_REMEMBERED + 1


@in_loop
async def test_places_are_taken_by_weight() -> None:
    """GW-12: a tenant has so many, the last quarter is for those who hold none, and what is left lets others in."""
    room = Admission()
    first = await room.enter("greedy", 256, own=64, seconds=0, weight=60)
    with pytest.raises(Refusal):
        await room.enter("greedy", 256, own=64, seconds=0, weight=5)
    more = await room.enter("greedy", 256, own=64, seconds=0, weight=4)
    held = [await room.enter(name, 256, own=64, seconds=0, weight=64) for name in ("b", "c", "d")]
    with pytest.raises(Refusal):
        await room.enter("late", 256, own=64, seconds=0, weight=1)
    first.keep(10)
    late = await room.enter("late", 256, own=64, seconds=0, weight=50)
    for one in (first, more, late, *held):
        one.keep(0)
    assert not room.in_flight


def body(**fields: object) -> bytes:
    return json.dumps({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "a"}]} | fields).encode()


TOO_MUCH = {
    "text_too_large": body(messages=[{"role": "user", "content": "<" * (4 * 1024 * 1024 + 1)}]),
    "too_many_tools": body(tools=[{"name": f"tool_{n}", "input_schema": {}} for n in range(1_001)]),
    "front_too_large": body(system="x" * (2 * 1024 * 1024)),
    "too_many_blocks": body(messages=[{"role": "user", "content": [{"type": "text", "text": "a"}] * 10_001}]),
    "fields_too_large": body(**{f"field {n}": 1 for n in range(40_000)}),
}


@pytest.mark.parametrize("reason", TOO_MUCH)
@in_loop
async def test_what_would_stall_others_isnt_read(reason: str, tmp_path: Path) -> None:
    """GW-12, finding R8: it passes as it came, and the answer names the bound."""
    async with fake() as server, serving(tmp_path, server) as at, aiohttp.ClientSession() as http:
        data = TOO_MUCH[reason]
        async with http.post(f"{at.url}/v1/messages", data=io.BytesIO(data), headers={"x-api-key": "k"}) as answer:
            await answer.read()
            told = (answer.headers["x-perdure-mode"], answer.headers["x-perdure-reason"])
        assert told == ("passed", reason) and server.received[-1].body == data
        assert not at.held


@pytest.mark.parametrize("role", ["user", "assistant", "tool"])
def test_texts_are_measured_before_a_message_is_read(role: str) -> None:
    """GW-12, finding R2: as the digest would refuse them, which only counts what is a text."""
    limits = DigestLimits(text=20)
    for content in ("x" * 21, [{"type": "text", "text": "x" * 11}] * 2):
        raw = msgspec.Raw(json.dumps({"role": role, "content": content}).encode())
        with nullcontext() if role == "tool" else pytest.raises(NotDigestible, match="text_too_large"):
            check_text(raw, limits)
    for said in (
        {"content": "x" * 20},
        {"content": [{"type": "image", "data": "x" * 99}]},
        {"content": 7, "a": "x" * 99},
    ):
        check_text(msgspec.Raw(json.dumps({"role": role, **said}).encode()), limits)


def test_a_large_result_isnt_written_anew_to_find_out_that_it_is_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """GW-12, finding R8: the event loop asks whether a result replaces another, and 30 MB would hold it up."""
    monkeypatch.setattr(ToolResult, "parts", None)
    found = WorthlessResults()
    for identity in ("a", "b"):
        found.answered(CallInView(ToolUseId(identity), "Bash", 0, 0), ToolResult(identity, "x" * 500))
    assert found.worthless == {"a": "repeated"}


def test_millions_of_brackets_are_searched_in_a_moment() -> None:
    """GW-12, finding R8: many characters with which a tag may begin cost little more than other text."""

    def spent(text: str) -> float:
        began = time.process_time()
        assert neutralised(text, tokens=True) == text and spoken_text(text) == text
        return time.process_time() - began

    spent("<a" * 1_000)  # patterns are compiled with the first
    assert spent("<" * 2_000_000) < 1.0 + 10 * spent("ab" * 1_000_000)


@pytest.mark.parametrize("text", ["<<SYS>> a", "<<<SYS>>", "<</SYS>>", "<<system-reminder>", "<< s>", "<<<|im_end|>"])
def test_tags_behind_brackets_are_still_found(text: str) -> None:
    """SEC-4, SEC-11: what looks past brackets quickly sees each that begins something."""
    shown = neutralised(text, tokens=True)
    assert restored(shown, tokens=True) == text
    if "s>" not in text:
        assert shown != text


@pytest.mark.parametrize("at", [64 * 1024 - 20, 64 * 1024 - 1, 64 * 1024, 64 * 1024 + 1])
def test_an_element_at_the_edge_of_a_window_is_left_out(at: int) -> None:
    """GW-12: a search in windows finds what one search finds."""
    words = "word\n" * (at // 5) + "\n" * (at % 5)
    text = f"{words}\n<system-reminder>hidden</system-reminder>\nand on"
    assert "hidden" not in spoken_text(text) and spoken_text(text).endswith("and on")


@in_loop
async def test_huge_work_keeps_no_other_waiting() -> None:
    """GW-12, finding R8: another tenant's long work, done aside, isn't behind one that takes seconds."""
    may_end, began = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def huge() -> bool:
        loop.call_soon_threadsafe(began.set)
        return may_end.wait(20)

    waiting = asyncio.create_task(run_aside(30_000_000, huge))
    await began.wait()
    async with asyncio.timeout(20):
        assert await run_aside(100_000, lambda: "read") == "read"
    assert not waiting.done()
    may_end.set()
    assert await waiting


def test_no_demand_is_looked_for_in_a_line_that_nobody_typed() -> None:
    """GW-12, finding R8: one search of a line of megabytes would hold up all others."""
    demand = "You must never push to main without a review."
    assert demands_in(f"Hello there.\n{demand}") == (demand,)
    assert demands_in(f"{'x' * 100_000} {demand}\n{demand}") == (demand,)
