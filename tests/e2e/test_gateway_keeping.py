"""What the gateway writes and keeps: summaries by a model, fronts, long first histories, retention (GW-2 to GW-4)."""

from __future__ import annotations

import time
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from tests.gateways import KEY, Running, StoresOfTest, fake, in_loop, kept_by, serving, store_of, upstream

from perdure.errors import JournalError
from perdure.events import CompactionDone
from perdure.gateway.config import GatewayConfig
from perdure.gateway.gateway import Gateway
from perdure.ports.session import PlacedRecord
from perdure.transcript.records import Front

pytestmark = pytest.mark.e2e
SUMMARY = """<analysis>hidden</analysis>
<summary>
1. Primary Request and Intent: the person wants remarks kept short.
2. Key Technical Concepts: remarks.
3. Files and Code Sections: none.
4. Errors and fixes: none.
5. Problem Solving: none.
6. All user messages: keep it short.
7. Pending Tasks: none.
8. Current Work: SUMMARY-BY-A-MODEL.
9. Optional Next Step: go on.
</summary>"""


async def lines_of(home: Path) -> list[list[PlacedRecord]]:
    """The records of the only session, line by line."""
    async with kept_by(home) as kept:
        (info,) = await kept.sessions()
        records = (await kept.load(info.id)).records
    return [list(line) for _, line in groupby(records, key=lambda placed: placed.seq)]


async def ask(at: Running, messages: list[Any], **more: Any) -> None:
    client = at.claude(max_retries=0)
    said = await client.messages.create(model="fake-model", max_tokens=500, messages=messages, **more)
    messages.append({"role": "assistant", "content": said.content[0].text})


@in_loop
async def test_a_model_of_the_gateways_own_writes_the_record(tmp_path: Path) -> None:
    """CMP-1: `summarizer_models` are asked with the gateway's own key; the client's never goes there."""
    turns = 12
    async with (
        fake(upstream(*[f"done {n}" for n in range(turns)])) as server,
        fake(upstream(SUMMARY, SUMMARY)) as other,
    ):
        settings = {"summarizer_models": f"anthropic:small@{other.url}#SUMMARY_KEY", "notes": False}
        routes = {"default": {"anthropic": "anthropic", "settings": settings}}
        environ = {"SUMMARY_KEY": "key-of-the-gateway"}
        async with serving(tmp_path, server, environ=environ, routes=routes) as at:
            messages: list[Any] = []
            for n in range(turns):
                messages.append({"role": "user", "content": f"Part {n}. " + f"Remark {n}: keep it short. " * 1_500})
                await ask(at, messages)
            done = [e for e in at.sink.events if isinstance(e, CompactionDone)]
            assert [e.strategy for e in done] == ["full"]
            assert "SUMMARY-BY-A-MODEL" in str(at.bodies[-1]["messages"]) and "hidden" not in str(at.bodies[-1])
            sent = str([r.headers for r in other.received])
            assert other.received and "key-of-the-gateway" in sent and KEY not in sent
            assert not server.upstream.statistics.violations and not other.upstream.statistics.violations


@in_loop
async def test_a_system_prompt_that_tells_the_time_fills_no_journal(tmp_path: Path) -> None:
    """GW-2: it goes upstream as it is, shaped or not; the journal holds it once, and its tools."""
    large = {"name": "Read", "description": "Reads. " * 3_000, "input_schema": {"type": "object"}}
    turns = 12
    async with fake(upstream(*[f"done {n}" for n in range(turns)])) as server, serving(tmp_path, server) as at:
        messages: list[Any] = []
        for n in range(turns):
            messages.append({"role": "user", "content": f"Part {n}. " + "Keep it short. " * 2_500})
            await ask(at, messages, system=f"It is {n} o'clock. " + "Help. " * 2_000, tools=[large])
        assert [e for e in at.sink.events if isinstance(e, CompactionDone)]
        for n, body in enumerate(at.bodies):
            assert f"It is {n} o'clock." in str(body["system"])
    fronts = [line for line in await lines_of(tmp_path) if isinstance(line[0].record, Front)]
    assert len(fronts) == 1, "a boundary has a copy of its own, beside these"


@pytest.mark.both_stores
@in_loop
async def test_a_long_first_history_comes_in_whole_and_is_found_again(tmp_path: Path) -> None:
    """GW-3: taken up in parts, so that others have their turn; it holds together, also after a restart."""
    history: list[Any] = []
    for n in range(30):
        call = {"type": "tool_use", "id": f"toolu_{n}", "name": "Read", "input": {"file_path": f"f{n}"}}
        result = {"type": "tool_result", "tool_use_id": f"toolu_{n}", "content": f"line {n} of it\n" * 2_000}
        history += [{"role": "user", "content": f"look at {n}"}, {"role": "assistant", "content": [call]}]
        history += [{"role": "user", "content": [result]}, {"role": "assistant", "content": f"seen {n}"}]
    history.append({"role": "user", "content": "and now?"})
    async with fake(upstream("one", "two")) as server:
        for _ in range(2):
            async with serving(tmp_path, server) as at:
                await ask(at, history)
                history.append({"role": "user", "content": "go on"})
                (held,) = [held for some in at.gateway.tenants_open().values() for held in some]
                assert held.head.count == len(history) - 1
        assert server.upstream.statistics.refused == 0 and not server.upstream.statistics.violations
    begins = [line[0].offset for line in await lines_of(tmp_path)]
    assert max(end - begin for begin, end in pairwise(begins)) < 700_000 < begins[-1]


@in_loop
async def test_what_is_too_old_goes_also_where_the_store_was_away(
    tmp_path: Path, kept_on: StoresOfTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GW-4, SCL-6: who looks for it goes on when the store is back."""
    real, refused = Gateway._expired, list[float]()

    async def away(self: Gateway, config: GatewayConfig, now: float) -> int:
        if len(refused) < 2:
            refused.append(now)
            raise JournalError("the database is away")
        return await real(self, config, now)

    async with fake(upstream("ok")) as server:
        async with serving(tmp_path, server) as at:
            await at.claude().messages.create(model="m", max_tokens=50, messages=[{"role": "user", "content": "hello"}])
            (held,) = at.held
        await kept_on.age(tmp_path, held.id, days=10)
        monkeypatch.setattr(Gateway, "_expired", away)
        monkeypatch.setattr("perdure.gateway.gateway.RETENTION_SECONDS", 0.05)
        async with serving(tmp_path, server, keep_days=3) as at:
            home = at.gateway.store.home(held.sink.tenant)
            with anyio.fail_after(20.0):
                while await home.has(held.id):  # noqa: ASYNC110 - there is no event for it
                    await anyio.sleep(0.05)
    assert len(refused) == 2


@in_loop
async def test_what_strangers_left_goes_after_its_days_and_nothing_else(tmp_path: Path, kept_on: StoresOfTest) -> None:
    """GW-4: `keep_days`; what is open, younger, or a tenant's stays."""
    sessions: list[str] = []
    tenants: list[str] = []
    async with fake(upstream(*["ok"] * 6)) as server:
        for key in ("one", "two"):
            async with serving(tmp_path, server) as at:
                client = at.claude().with_options(api_key=key)
                await client.messages.create(
                    model="m", max_tokens=50, messages=[{"role": "user", "content": f"hello from {key}"}]
                )
                (held,) = at.held
                sessions.append(held.id)
                tenants.append(held.sink.tenant)
        old, young = sessions
        await kept_on.age(tmp_path, old, days=10)

        async def are_there() -> list[bool]:
            store = store_of(tmp_path)
            there = [await store.home(tenant).has(one) for tenant, one in zip(tenants, sessions, strict=True)]
            await store.close()
            return there

        async with serving(tmp_path, server) as at:
            config = msgspec.structs.replace(at.gateway.active.gateway, keep_days=30)
            assert await at.gateway._expired(config, time.time()) == 0
            assert await are_there() == [True, True]
        async with serving(tmp_path, server, keep_days=3) as at:
            while (await are_there())[0]:
                await at.gateway.is_ready()
        assert await are_there() == [False, True]
        await kept_on.age(tmp_path, young, days=10)
        known = {tenants[1]: {"key_env": "K"}}
        async with serving(tmp_path, server, environ={"K": "k"}, tenants=known, keep_days=3) as at:
            assert await at.gateway._expired(at.gateway.active.gateway, time.time()) == 0
        assert await are_there() == [False, True]
