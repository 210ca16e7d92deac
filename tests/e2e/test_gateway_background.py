"""Responses in the background, with OpenAI's SDK (GW-6)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
from tests.agents import until
from tests.gateways import fake, in_loop, serving, upstream

from perdure.gateway import background
from perdure.testing import CutStream, FakeServer, overloaded, say, thinking

pytestmark = pytest.mark.e2e
MODEL = "gpt-6-sol"
LONG = "a word " * 300


@asynccontextmanager
async def api(tmp_path: Path, way: str, *script: Any) -> AsyncIterator[tuple[openai.AsyncOpenAI, FakeServer]]:
    """The API itself, or the gateway in front of it."""
    async with fake(upstream(*script), delay_seconds=0.01) as server:
        if way == "direct":
            async with openai.AsyncOpenAI(api_key="k", base_url=f"{server.url}/v1", max_retries=0) as client:
                yield client, server
        else:
            async with serving(tmp_path, server) as at:
                yield at.gpt(max_retries=0), server


async def ended(client: openai.AsyncOpenAI, response: Any) -> Any:
    """The response once it is over, as the API's guide has one ask for it."""
    for _ in range(500):
        if response.status not in ("queued", "in_progress"):
            return response
        await asyncio.sleep(0.02)
        response = await client.responses.retrieve(response.id)
    raise AssertionError("it never ends")


@pytest.mark.parametrize("way", ["direct", "gateway"])
@in_loop
async def test_it_is_begun_asked_for_and_gone_on_from(tmp_path: Path, way: str) -> None:
    """GW-6, GW-7: as at the provider."""
    async with api(tmp_path, way, say(thinking("hm"), "one"), "two") as (client, server):
        begun = await client.responses.create(model=MODEL, input="first", background=True)
        assert begun.status in ("queued", "in_progress") and begun.background and begun.output == []
        done = await ended(client, begun)
        assert (done.status, done.output_text, done.id, done.background) == ("completed", "one", begun.id, True)
        assert done.usage.total_tokens > 0
        next_one = await client.responses.create(model=MODEL, input="next", previous_response_id=done.id)
        assert next_one.output_text == "two" and not server.upstream.statistics.violations
        with pytest.raises(openai.BadRequestError):
            await client.responses.create(model=MODEL, input="x", background=True, store=False)
        with pytest.raises(openai.BadRequestError):
            await client.responses.cancel(next_one.id)
        with pytest.raises(openai.NotFoundError):
            await client.responses.cancel("resp_unknown")


@in_loop
async def test_who_leaves_takes_it_up_again(tmp_path: Path) -> None:
    """GW-6: an answer goes on without its client, is counted, and its events are given again from any number on."""
    log = tmp_path / "access.jsonl"
    async with (
        fake(upstream(LONG), delay_seconds=0.01) as server,
        serving(tmp_path, server, access_log=str(log)) as at,
    ):
        client = at.gpt(max_retries=0)
        seen: list[Any] = []
        async with await client.responses.create(model=MODEL, input="go", background=True, stream=True) as events:
            async for event in events:
                seen.append(event)
                if len(seen) == 5:
                    break
        identity = seen[0].response.id
        assert seen[0].response.background and at.gateway.admission.in_flight == 1
        rest = await client.responses.retrieve(identity, stream=True, starting_after=seen[-1].sequence_number)
        seen += [event async for event in rest]
        assert [event.sequence_number for event in seen] == list(range(len(seen)))
        assert seen[-1].type == "response.completed" and seen[-1].response.output_text == LONG
        assert (await client.responses.retrieve(identity)).output_text == LONG
        assert at.metric("perdure_cancelled_total") == 0 and len(server.received) == 1
        await until(lambda: log.exists() and '"output_tokens"' in log.read_text())
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert {line["kind"] for line in lines} == {"background", "stored", "turn"}
    (turn,) = [line for line in lines if line["kind"] == "turn"]
    assert turn["ending"] == "whole" and turn["tenant"] and turn["session"]


@in_loop
async def test_one_that_is_cancelled_ends_upstream_too(tmp_path: Path) -> None:
    """GW-6: a second time is no error; nothing of it is in the session."""
    async with fake(upstream(LONG, "ok"), delay_seconds=0.05) as server, serving(tmp_path, server) as at:
        client = at.gpt(max_retries=0)
        begun = await client.responses.create(model=MODEL, input="go", background=True)
        for _ in range(2):
            assert (await client.responses.cancel(begun.id)).status == "cancelled"
        assert (await client.responses.retrieve(begun.id)).status == "cancelled"
        await until(lambda: not at.gateway.admission.in_flight)
        assert at.metric("perdure_cancelled_total") == 1
        assert at.held[0].head.count == 1, "nothing was answered"
        await client.responses.delete(begun.id)
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve(begun.id)


@in_loop
async def test_what_goes_wrong_is_said(tmp_path: Path) -> None:
    """GW-6: an upstream's error at once; an answer that breaks off as one that failed."""
    async with fake(upstream(overloaded(), "cut off"), delay_seconds=0.01) as server, serving(tmp_path, server) as at:
        client = at.gpt(max_retries=0)
        with pytest.raises(openai.APIStatusError) as raised:
            await client.responses.create(model=MODEL, input="go", background=True)
        assert raised.value.status_code == 529
        server.faults.append(CutStream())
        done = await ended(client, await client.responses.create(model=MODEL, input="go", background=True))
        assert done.status == "failed" and done.error and "broke off" in done.error.message


@in_loop
async def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """SEC-6: an answer without an end, which nobody is there to leave, is cut off; of those that are over, the oldest
    go first."""
    monkeypatch.setattr(background, "_MOST_KEPT_BYTES", 10_000)
    kept, event = background.BackgroundResponses(), b'data: {"type":"response.output_text.delta","delta":"%b"}\n\n'
    begun = b'data: {"type":"response.created","response":{"id":"resp_%d","status":"in_progress"}}\n\n'
    for number in range(3):
        one = background.BackgroundResponse(b"{}", 1_000_000)
        await one.take(
            {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]}
        )
        await one.take({"type": "http.response.body", "body": begun % number, "more_body": True})
        assert (await one.receive())["type"] == "http.request"
        for _ in range(5 if number < 2 else 100):
            await one.take({"type": "http.response.body", "body": event % (b"x" * 1_000), "more_body": True})
        if number == 2:
            async with asyncio.timeout(5):
                assert (await one.receive())["type"] == "http.disconnect"
        one.end()
        assert one.response["status"] == "failed" and one.bytes < 12_000
        kept.keep("alice", one, 0.0)
    assert [kept.of("alice", f"resp_{n}") is not None for n in range(3)] == [False, True, True]
    kept.keep("alice", one, 0.0)
    assert [kept.of("alice", f"resp_{n}") is not None for n in range(3)] == [False, False, True]


@in_loop
async def test_it_is_its_tenants_alone_and_a_later_window_is_the_upstreams(tmp_path: Path) -> None:
    """GW-6, GW-4: nobody else gets or cancels it; what is cheaper later passes through."""
    tenants = {name: {"key_env": name.upper(), "upstream_keys": {"openai": "SHARED"}} for name in ("alice", "bob")}
    environ = {"ALICE": "alice-key", "BOB": "bob-key", "SHARED": "shared-key"}
    async with (
        fake(upstream("one", "two"), delay_seconds=0.01) as server,
        serving(tmp_path, server, environ=environ, tenants=tenants) as at,
    ):
        client, other = (
            openai.AsyncOpenAI(api_key=f"{name}-key", base_url=f"{at.url}/v1", max_retries=0) for name in tenants
        )
        at.clients += [client, other]
        begun = await client.responses.create(model=MODEL, input="go", background=True)
        for refused in (other.responses.retrieve, other.responses.cancel, other.responses.delete):
            with pytest.raises(openai.NotFoundError):
                await refused(begun.id)
        await ended(client, begun)
        later: Any = {"background": True, "background_options": {"completion_window": "2h"}}
        raw = await client.responses.with_raw_response.create(model=MODEL, input="go", extra_body=later)
        assert raw.headers["x-perdure-reason"] == "background" and raw.parse().status == "queued"


@in_loop
async def test_it_ends_before_the_gateway_does(tmp_path: Path) -> None:
    """GW-6, GW-9: as other answers under way; the next process has it."""
    async with fake(upstream(LONG), delay_seconds=0.01) as server:
        async with serving(tmp_path, server) as at:
            begun = await at.gpt().responses.create(model=MODEL, input="go", background=True)
        async with serving(tmp_path, server) as at:
            assert (await at.gpt().responses.retrieve(begun.id)).output_text == LONG
