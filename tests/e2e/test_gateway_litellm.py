"""GW-10: what LiteLLM's `headroom` guardrail asks for, at the gateway."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest
from tests.gateways import KEY, Running, fake, in_loop, serving, store_of

from perdure.adapters.care.purge import Purge
from perdure.errors import JournalError
from perdure.ports.home import HomeBlobs
from perdure.settings import Settings

pytestmark = pytest.mark.e2e
LONG = "a line of a long result, number 7 of many\n" * 3_000
HASH = hashlib.sha256(LONG.encode()).hexdigest()[:24]
ASKED: dict[str, Any] = {
    "messages": [{"role": "user", "content": "hi"}, {"role": "tool", "tool_call_id": "a", "content": LONG}],
    "model": "m",
    "config": {"mode": "ccr"},
}


async def asked(at: Running, method: str, path: str, key: str = KEY, **more: Any) -> tuple[int, Any]:
    client = aiohttp.ClientSession(headers={"authorization": f"Bearer {key}"})
    async with client, client.request(method, f"{at.url}{path}", **more) as answer:
        return answer.status, await answer.json()


@in_loop
async def test_what_was_compressed_comes_back_to_its_tenant_alone(tmp_path: Path) -> None:
    """GW-10, GW-4: by hash, after a restart too; for anybody else there is nothing."""
    async with fake() as server:
        async with serving(tmp_path, server) as at:
            status, told = await asked(at, "POST", "/v1/compress", json=ASKED)
            assert status == 200 and told["ccr_hashes"] == [HASH] and len(told["messages"]) == 2
            assert told["tokens_saved"] > 20_000 and HASH in told["messages"][1]["content"]
            assert at.metric("perdure_requests_total", route="default", kind="compress", mode="view") == 1
        async with serving(tmp_path, server) as at:
            assert await asked(at, "GET", f"/v1/retrieve/{HASH}?query=x") == (200, {"original_content": LONG})
            status, told = await asked(at, "GET", f"/v1/retrieve/{HASH}", key="somebody-else")
            assert status == 404 and HASH in told["error"]["message"]
            assert (await asked(at, "GET", "/v1/retrieve/" + "0" * 24))[0] == 404
        assert not server.received, "no model is asked"


@in_loop
async def test_bad_bodies_and_plain_routes(tmp_path: Path) -> None:
    """GW-10: one clear line for what is no conversation; a route that isn't managed passes the paths on."""
    async with fake() as server:
        routes = {"plain": {"openai": "openai", "is_managed": False}, "default": {"openai": "openai"}}
        async with serving(tmp_path, server, routes=routes, max_body_bytes=500_000) as at:
            status, told = await asked(at, "POST", "/v1/compress", json={"messages": []})
            assert status == 400 and "at least one message" in told["error"]["message"]
            status, told = await asked(at, "POST", "/v1/compress", json={"messages": [LONG * 5]})
            assert status == 413
            assert (await asked(at, "POST", "/plain/v1/compress", json=ASKED))[0] == 404
            assert server.received[-1].path == "/v1/compress"


@in_loop
async def test_nothing_is_shortened_that_cannot_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GW-10, REL-15: a disk that takes nothing costs the saving, never a marker without what is behind it."""

    async def refused(self: HomeBlobs, contents: tuple[bytes, ...]) -> Any:
        raise JournalError("no space")

    monkeypatch.setattr(type(store_of(tmp_path).home().blobs), "put", refused)
    async with fake() as server, serving(tmp_path, server) as at:
        status, told = await asked(at, "POST", "/v1/compress", json=ASKED)
        assert status == 200 and told["messages"] == ASKED["messages"] and told["tokens_saved"] == 0
        assert told["ccr_hashes"] == [] and at.metric("perdure_unrecorded_total", reason="compress") == 1


@pytest.mark.only_on("files", "a purge is of a folder")
@in_loop
async def test_a_purge_finds_originals(tmp_path: Path) -> None:
    """SEC-12, GW-10: what is taken out of everything that is kept is taken out of these."""
    secret = "the vault's code is 4711-0815"
    body = {**ASKED, "messages": [{"role": "tool", "tool_call_id": "a", "content": f"{LONG}{secret}\n{LONG}"}]}
    settings = Settings(window_tokens=100_000, durability="process")
    async with fake() as server, serving(tmp_path, server, settings=settings) as at:
        _, told = await asked(at, "POST", "/v1/compress", json=body)
        (digest,) = told["ccr_hashes"]
        report = await anyio.to_thread.run_sync(Purge(tmp_path, "me", 0.0, (secret,)).carry_out)
        assert [place.what for place in report.places] == ["blob"] and not report.left
        assert (await asked(at, "GET", f"/v1/retrieve/{digest}"))[0] == 404
