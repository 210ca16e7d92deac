"""Caps on spending for clients of the gateway: the same hard stop, in each protocol's own form (OBS-2)."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import anthropic
import msgspec
import openai
import pytest
from tests.gateways import WINDOW, Running, config_of, fake, in_loop, serving, upstream

from perdure.adapters.journal.home import FileHome
from perdure.adapters.spending import FOLDER
from perdure.settings import Settings
from perdure.testing import say, text

pytestmark = pytest.mark.e2e

PRICED = "claude-sonnet-4-6"  # 3 and 15 dollars for a million tokens
LONG = "word " * 3_000


def capped(**caps: float) -> Settings:
    return Settings(window_tokens=WINDOW, durability="process", notes=False, **caps)


async def asked(gate: Running, history: list[dict[str, str]], model: str = PRICED) -> str:
    said = await gate.claude(max_retries=2).messages.create(model=model, max_tokens=50, messages=history)  # type: ignore[arg-type]
    return said.content[0].text  # type: ignore[union-attr]


async def settled(at: Running) -> tuple[float, int] | None:
    """What calls cost of the only tenant, and how many of them cost anything, once none is under way."""
    async with asyncio.timeout(20):
        while (found := await spent(at)) is not None and found[2]:  # noqa: ASYNC110 - nobody announces it
            await asyncio.sleep(0.02)
    return found and found[:2]


async def spent(at: Running) -> tuple[float, int, int] | None:
    """The same, and how many are under way."""
    (tenant,) = at.gateway.tenants_open()
    home = at.gateway.store.home(tenant)
    if isinstance(home, FileHome):
        files = [path.read_bytes() for path in (home.path / FOLDER).glob("*.jsonl")]
        calls = {one["call"]: one for data in files for one in map(msgspec.json.decode, data.splitlines())}
        paid = [one["usd"] for one in calls.values() if one["ended"] and one["usd"]]
        return (sum(paid), len(paid), sum(not one["ended"] for one in calls.values())) if files else None
    kept = await home.documents(FOLDER).get(time.strftime("%Y-%m-%d"))
    day = kept and msgspec.json.decode(kept.data)
    return day and (*map(sum, zip(*day["ended"].values(), strict=True)), len(day["running"]))  # type: ignore[return-value]


@in_loop
async def test_a_client_meets_the_cap_of_its_session(tmp_path: Path) -> None:
    """OBS-2: calls are admitted and settled; at the cap the client gets one line, once, and the upstream no request."""
    async with fake(upstream()) as server:
        config = config_of(tmp_path, server.url, settings=capped(session_cap_usd=0.03))
        async with serving(tmp_path, server, config=config) as gate:
            history: list[dict[str, str]] = []
            with pytest.raises(anthropic.APIStatusError) as caught:
                for turn in range(50):
                    history.append({"role": "user", "content": f"{turn} {LONG}"})
                    history.append({"role": "assistant", "content": await asked(gate, history)})
            assert caught.value.status_code == 402 and 2 <= len(history) <= 20
            error = caught.value.body["error"]  # type: ignore[index]
            assert error["type"] == "billing_error"
            assert error["message"].startswith("perdure: the cap of $0.03 is reached: this session has cost $0.0")
            assert error["message"].endswith("raise session_cap_usd to go on")
            reached = len(server.received)
            with pytest.raises(anthropic.APIStatusError):
                await asked(gate, history)
            assert len(server.received) == reached == len(history) // 2
            assert gate.metric("perdure_refused_total", reason="spending_cap") == 2
            assert await asked(gate, [{"role": "user", "content": "another session"}]) == "ok"
            paid, whole = (gate.metric("perdure_usd_total", kind=kind) for kind in ("paid", "whole"))
            assert 0.02 < paid == pytest.approx(whole), "nothing was left out of these requests"
            assert await settled(gate) == (pytest.approx(paid), reached + 1)


@in_loop
async def test_in_the_words_of_the_other_protocol(tmp_path: Path) -> None:
    """OBS-2: an OpenAI client, streaming as well; a model whose price isn't known is refused while a cap is set."""
    async with fake() as server:
        config = config_of(tmp_path, server.url, settings=capped(day_cap_usd=5))
        async with serving(tmp_path, server, config=config) as gate:
            for is_stream in (False, True):
                with pytest.raises(openai.APIStatusError) as caught:
                    await gate.gpt(max_retries=2).chat.completions.create(
                        model="fake-model", messages=[{"role": "user", "content": "hi"}], stream=is_stream
                    )
                assert caught.value.status_code == 402
                assert "the prices of fake-model aren't known" in str(caught.value)
        assert not server.received


@in_loop
async def test_what_fails_upstream_costs_nothing(tmp_path: Path) -> None:
    """OBS-2: an error is settled with nothing; an answer with what the upstream reported."""
    script = upstream(say(text("fine")))
    async with fake(script) as server:
        config = config_of(tmp_path, server.url, settings=capped(session_cap_usd=5))
        async with serving(tmp_path, server, config=config) as gate:
            assert await asked(gate, [{"role": "user", "content": LONG}]) == "fine"
            with pytest.raises(anthropic.APIStatusError):
                await gate.claude(max_retries=0).messages.create(
                    model=PRICED,
                    max_tokens=50,
                    messages=[{"role": "user", "content": LONG}],
                    extra_body={"temperature": 9},
                )
            usd, calls = await settled(gate) or (0.0, 0)
            assert usd > 0.005 and calls == 1


@in_loop
async def test_without_a_cap_nothing_is_written(tmp_path: Path) -> None:
    """OBS-2."""
    async with fake() as server, serving(tmp_path, server) as gate:
        assert await asked(gate, [{"role": "user", "content": "hi"}], model="fake-model") == "ok"
        assert await settled(gate) is None
