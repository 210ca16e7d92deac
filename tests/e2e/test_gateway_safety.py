"""What must never happen at the gateway: SEC-7, REL-10, REL-15, GW-3, GW-4."""

from __future__ import annotations

import asyncio
import errno
import itertools
import logging
import os
import random
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import aiohttp
import aiohttp.web
import anthropic
import msgspec
import pytest
from tests.agents import until
from tests.gateways import KEY, WINDOW, StoresOfTest, config_of, fake, in_loop, kept_by, serving
from tests.tiers import NIGHTLY

from perdure.adapters.journal.disk import Disk
from perdure.adapters.sinks import event_data
from perdure.errors import BadSetting
from perdure.gateway.anthropic import AnthropicProtocol
from perdure.gateway.app import GatewayApp
from perdure.gateway.turns import TurnMaker
from perdure.testing import FakeUpstream, ModelRules, ScriptedAnswer, say
from perdure.testing.request import DecodedRequest

pytestmark = pytest.mark.e2e
HEADERS = {"x-api-key": KEY, "anthropic-version": "2023-06-01", "content-type": "application/json"}


def body_of(said: str, **more: Any) -> bytes:
    return msgspec.json.encode(
        {"model": "fake-model", "max_tokens": 50, "messages": [{"role": "user", "content": said}], **more}
    )


def ssrf_strings(evil: str) -> list[str]:
    """Ways in which people have made servers ask others: in a path, as hosts spelled oddly, with credentials."""
    hosts = [
        evil, "127.1", "0x7f000001", "2130706433", "0177.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "localhost.",
        "169.254.169.254", "metadata.google.internal", "evil.example", "127.0.0.1.nip.io", "①②⑦.⓪.⓪.①",
    ]  # fmt: skip
    shapes = [
        "//{h}/v1/messages", "/\\{h}/v1/messages", "/v1/messages@{h}", "@{h}/v1/messages", "/http://{h}/v1/messages",
        "http://{h}/v1/messages", "/v1/../../{h}", "/%2e%2e/%2e%2e//{h}", "/v1/messages%23@{h}", "/.{h}",
        "/v1/messages?url=http://{h}",
        "/v1/messages%0d%0aHost:%20{h}",
    ]  # fmt: skip
    return [shape.format(h=host) for host, shape in itertools.product(hosts, shapes)]


async def raw_request(port: int, target: str, extra: str = "", host: str = "127.0.0.1") -> bytes:
    """A request written by hand, as no client would."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = body_of("hello")
    head = f"POST {target} HTTP/1.1\r\nHost: {host}\r\nx-api-key: {KEY}\r\n{extra}"
    writer.write(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
    try:
        async with asyncio.timeout(5):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


@in_loop
async def test_no_request_makes_the_gateway_ask_somebody_else(tmp_path: Path) -> None:
    """SEC-7: 156 targets and 12 headers and fields that name another server: nobody connects to it."""
    calls: list[Any] = []

    async def caught(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        calls.append(writer.get_extra_info("peername"))
        writer.close()

    canary = await asyncio.start_server(caught, "127.0.0.1", 0)
    evil = f"127.0.0.1:{canary.sockets[0].getsockname()[1]}"
    async with fake() as server, serving(tmp_path, server) as at:
        server.routes[("POST", "/v1/redirect")] = {}
        port = int(at.url.rpartition(":")[2])
        targets = ssrf_strings(evil)
        assert len(targets) >= 150
        for target in targets:
            await raw_request(port, target)
        names = ["X-Forwarded-Host", "X-Forwarded-For", "Forwarded", "X-Original-URL", "X-Rewrite-URL", "X-Upstream",
                 "X-Host", "Referer", "api-base", "base-url"]  # fmt: skip
        for name in names:
            await raw_request(port, "/v1/messages", f"{name}: http://{evil}/\r\n")
        async with aiohttp.ClientSession() as http:
            for field in ("api_base", "base_url", "url", "proxy"):
                data = body_of("hello", **{field: f"http://{evil}/"})
                async with http.post(f"{at.url}/v1/messages", data=data, headers=HEADERS) as answer:
                    await answer.read()
        assert await raw_request(port, "/v1/messages", host=evil) and not calls
        assert await raw_request(port, "/v1/messages", host="evil.example")
    canary.close()
    assert calls == []
    assert all("evil" not in r.headers.get("host", "") for r in server.received)


@in_loop
async def test_a_redirect_is_handed_back_not_followed(tmp_path: Path) -> None:
    """SEC-7."""

    async def redirecting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 307 Moved\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    moved = await asyncio.start_server(redirecting, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{moved.sockets[0].getsockname()[1]}"
    async with fake() as server, serving(tmp_path, server, config=config_of(tmp_path, url)) as at:
        asked = aiohttp.request("POST", f"{at.url}/v1/x", data=b"{}", headers=HEADERS, allow_redirects=False)
        async with asked as answer:
            assert answer.status == 307 and answer.headers["location"] == "http://127.0.0.1:1/"
        config = config_of(tmp_path / "keyed", url)
        config.gateway["upstreams"]["openai"]["key_env"] = "UP_KEY"
        async with serving(tmp_path, server, config=config, environ={"UP_KEY": "mapped"}) as keyed:
            asked = aiohttp.request("POST", f"{keyed.url}/v1/x", data=b"{}", allow_redirects=False)
            async with asked as answer:  # a client that went there would take its key for the gateway along
                assert answer.status == 307 and "location" not in answer.headers
    moved.close()


@in_loop
async def test_metrics_are_told_by_a_gateway_s_own_address(tmp_path: Path) -> None:
    """SEC-7, OBS-1: as Prometheus asks a pod; by no other address or name, and nothing but these."""
    async with fake() as server, serving(tmp_path, server) as at:
        app = GatewayApp(at.gateway)

        async def status(path: str, host: str, method: str = "GET") -> int:
            sent: list[Any] = []
            scope = {
                **{"type": "http", "method": method, "path": path, "query_string": b"", "server": ("10.1.2.3", 8787)},
                "headers": [(b"host", host.encode())],
            }

            async def receive() -> dict[str, Any]:
                return {"type": "http.request", "body": b"", "more_body": False}

            async def send(message: Any) -> None:
                sent.append(message)

            await app(scope, receive, send)
            return int(sent[0]["status"])

        assert await status("/metrics", "10.1.2.3:8787") == 200
        assert await status("/metrics", "10.1.2.4:8787") == 421
        assert await status("/metrics", "evil.example") == 421
        assert await status("/perdure/status", "10.1.2.3:8787") == 421
        assert await status("/v1/messages", "10.1.2.3:8787", "POST") == 421


@in_loop
async def test_other_hosts_and_other_sites_are_refused(tmp_path: Path) -> None:
    """SEC-7: a page that rebinds its name to this machine, or asks from a browser, gets nothing."""
    async with fake() as server, serving(tmp_path, server, allowed_hosts=["models.local"]) as at:
        async with aiohttp.ClientSession() as http:

            async def status(**headers: str) -> int:
                async with http.post(f"{at.url}/v1/messages", data=body_of("x"), headers={**HEADERS, **headers}) as a:
                    return a.status

            assert await status(Host="evil.example") == 421
            assert await status(Host="127.0.0.1.evil.example") == 421
            assert await status(Host="user@127.0.0.1") == 421
            assert await status(Origin="https://evil.example") == 403
            assert await status(Origin="null") == 403
            assert await status(Host="models.local:8787") == 200
            assert await status(Host="localhost:1") == 200
        assert len(server.received) == 2


@in_loop
async def test_headers_of_the_connection_and_ours_stay_here(tmp_path: Path) -> None:
    """SEC-7, GW-7: what belongs to one hop, or to the gateway, isn't passed on; nor is what a browser added."""
    ours = {
        "proxy-authorization": "x",
        "x-forwarded-for": "1.2.3.4",
        "x-perdure-session": "mine",
        "x-real-ip": "1.2.3.4",
    }
    ours |= {"connection": "keep-alive, x-of-this-hop", "x-of-this-hop": "1", "te": "trailers", "via": "1.1 proxy"}
    browsers = {"cookie": "a=b", "origin": "http://localhost:3000"}
    async with fake() as server, serving(tmp_path, server) as at:
        async with aiohttp.ClientSession() as http:
            headers = {**HEADERS, **ours, **browsers, "anthropic-beta": "one,two"}
            async with http.post(f"{at.url}/v1/messages", data=body_of("x"), headers=headers) as answer:
                assert answer.status == 200 and "set-cookie" not in answer.headers
        sent = server.received[-1].headers
        assert not set(sent) & (set(ours) - {"connection"}) and "x-of-this-hop" not in str(sent)
        assert "cookie" not in sent and sent["anthropic-beta"] == "one,two" and sent["x-api-key"] == KEY


@in_loop
async def test_keys_are_nowhere_but_on_the_wire(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str], kept_on: StoresOfTest
) -> None:
    """SEC-7: canary keys, the client's, the tenant's and the mapped one: no log, file, event or page holds them."""
    caplog.set_level(logging.DEBUG, logger="perdure")
    caplog.set_level(logging.DEBUG, logger="uvicorn")
    caplog.set_level(logging.DEBUG, logger="aiohttp")
    mapped, bearer = "canary-mapped-987", "canary-bearer-654"
    environ = {"UP_KEY": mapped}
    config = config_of(tmp_path, "", usage="capped")
    async with fake() as server:
        config = config_of(tmp_path, server.url)
        config.gateway["upstreams"]["openai"]["key_env"] = "UP_KEY"  # type: ignore[index]
        async with serving(tmp_path, server, config=config, environ=environ) as at, aiohttp.ClientSession() as http:
            for n in range(5):
                async with http.post(f"{at.url}/v1/messages?key={KEY}", data=body_of(f"x{n}"), headers=HEADERS) as a:
                    await a.read()
                chat = {"authorization": f"Bearer {bearer}", "content-type": "application/json"}
                data = body_of(f"y{n}")
                async with http.post(f"{at.url}/v1/chat/completions", data=data, headers=chat) as a:
                    assert a.status == 200
            async with http.post(f"{at.url}/v1/messages", data=b"not json", headers=HEADERS) as a:
                await a.read()
            pages, owner = [], {"x-api-key": (tmp_path / "gateway" / "page.key").read_text().strip()}
            for page in ("/perdure/status", "/metrics", "/healthz", "/readyz"):
                async with http.get(f"{at.url}{page}", headers=owner) as a:
                    assert a.status == 200
                    pages.append(await a.text())
            events = [str(event_data(e)) for e in at.sink.events]
        assert any(r.headers.get("authorization") == f"Bearer {mapped}" for r in server.received)
        assert all(bearer not in str(r.headers) for r in server.received)
    out = capfd.readouterr()
    said = "\n".join([*pages, *events, caplog.text, out.out, out.err])
    files = kept_on.contents(tmp_path)
    assert any(b"y4" in data for data in files.values()), "this is where all of it is kept"
    for key in (KEY, mapped, bearer):
        assert key not in said
        assert not any(key.encode() in data or key in name for name, data in files.items())


@in_loop
async def test_tenants_are_apart(tmp_path: Path) -> None:
    """GW-4: the same conversation under two keys is two sessions; strangers get nothing; each sees only its own."""
    environ = {"ALICE": "alice-key", "BOB": "bob-key", "BIG": "big-key"}
    tenants = {"alice": {"key_env": "ALICE", "upstream_keys": {"anthropic": "BIG"}}, "bob": {"key_env": "BOB"}}
    async with fake() as server, serving(tmp_path, server, environ=environ, tenants=tenants) as at:
        async with aiohttp.ClientSession() as http:

            async def ask(key: str, path: str = "/v1/messages") -> tuple[int, dict[str, Any]]:
                headers = {**HEADERS, "x-api-key": key}
                method = "POST" if path.startswith("/v1") else "GET"
                async with http.request(method, f"{at.url}{path}", data=body_of("hi"), headers=headers) as a:
                    return a.status, await a.json()

            assert (await ask("alice-key"))[0] == (await ask("bob-key"))[0] == 200
            assert (await ask("nobody"))[0] == (await ask(""))[0] == 401
            async with http.post(f"{at.url}/healthz", data=b"{}") as answer:  # a probe's path is open for reading only
                assert answer.status == 401
            async with http.get(f"{at.url}/healthz") as answer:
                assert answer.status == 200
            _, status = await ask("bob-key", "/perdure/status")
            assert list(status["tenants"]) == ["bob"] and len(status["tenants"]["bob"]) == 1
        assert [r.headers["x-api-key"] for r in server.received] == ["big-key", "bob-key"]
        assert set(await at.gateway.store.tenants()) == {"alice", "bob"}
        ids = [held.id for some in at.gateway.tenants_open().values() for held in some]
        assert len(set(ids)) == 2


@in_loop
async def test_no_answer_crosses_when_clients_leave(tmp_path: Path) -> None:
    """SEC-7, GW-3: 40 % of the requests are cancelled somewhere; everybody else gets their own answer.

    150 requests here; the promise in full is 3,000, at night.
    """
    await crossing(tmp_path, requests=3_000 if NIGHTLY else 150)


async def crossing(home: Path, *, requests: int) -> None:
    class Echo(FakeUpstream):
        """Answers every request with its last word."""

        def reply_to(self, request: DecodedRequest) -> ScriptedAnswer:
            return say(f"echo {request.messages[-1].text} " + "x" * 400)

    chance, can_socket = random.Random(7), find_spec("websockets") is not None
    upstream = Echo(rules=ModelRules(window_tokens=WINDOW))
    async with fake(upstream, delay_seconds=0.001) as server, serving(home, server) as at:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=24)) as http:
            done = cancelled = 0

            async def one(n: int) -> None:
                nonlocal done, cancelled
                path, said = chance.choice(("/v1/messages", "/v1/chat/completions", "/v1/responses")), f"word-{n}-"
                stream, by_socket = chance.random() < 0.7, can_socket and chance.random() < 0.3
                data = body_of(said, stream=stream)
                if path == "/v1/responses":
                    data = msgspec.json.encode({"model": "m", "input": said, "stream": stream, "store": False})

                async def asked() -> bytes:
                    if by_socket and path == "/v1/responses":
                        async with http.ws_connect(f"{at.url}{path}", headers=HEADERS) as socket:
                            await socket.send_bytes(data[:-1] + b',"type":"response.create"}')
                            events = b""
                            while b'"response.completed"' not in events:
                                events += (await socket.receive_str()).encode()
                            return events
                    async with http.post(f"{at.url}{path}", data=data, headers=HEADERS) as answer:
                        return await answer.read()

                if chance.random() < 0.4:
                    try:
                        async with asyncio.timeout(chance.random() * 0.03):
                            await asked()
                    except TimeoutError:
                        cancelled += 1
                    return
                got = await asked()
                assert said.encode() in got, got[:200]
                words = {w for w in got.decode().replace('"', " ").split() if w.startswith("word-")}
                assert words <= {said}, words
                done += 1

            running: set[asyncio.Task[None]] = set()
            for n in range(requests):
                running.add(asyncio.create_task(one(n)))
                if len(running) >= 24:
                    finished, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                    for task in finished:
                        task.result()
            await asyncio.gather(*running)
        assert done + cancelled <= requests and cancelled > requests // 10 and done > requests // 2
        await until(lambda: not at.gateway.admission.in_flight)
        for some in at.gateway.tenants_open().values():
            assert not any(held.users for held in some)


@in_loop
async def test_a_client_that_leaves_ends_the_call_upstream(tmp_path: Path) -> None:
    """GW-3."""
    upstream = FakeUpstream(rules=ModelRules(window_tokens=WINDOW), script=["a b c d " * 2_000])
    async with fake(upstream, delay_seconds=0.05) as server, serving(tmp_path, server) as at:
        data = body_of("x", stream=True)
        async with aiohttp.request("POST", f"{at.url}/v1/messages", data=data, headers=HEADERS) as answer:
            await answer.content.readany()
            answer.close()
        await until(lambda: not at.gateway.admission.in_flight and at.metric("perdure_cancelled_total") == 1)
        (held,) = [held for some in at.gateway.tenants_open().values() for held in some]
        assert held.head.count == 1 and not held.users


class Boom(Exception):
    """Something nobody thought of."""


@pytest.mark.parametrize("place", ["links", "begin", "_begun", "answered", "after"])
def test_whatever_breaks_inside_the_request_goes_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """REL-15: an exception anywhere in context management lets the request through unmodified, and is counted."""

    async def boom(*args: Any, **named: Any) -> Any:
        raise Boom(f"canary text {KEY}")

    def boom_now(*args: Any, **named: Any) -> Any:
        raise Boom("now")

    monkeypatch.setattr(TurnMaker, place, boom_now if place == "links" else boom)

    @in_loop
    async def run() -> None:
        async with fake() as server, serving(tmp_path, server) as at:
            server.upstream.script.extend(["one", "two"])
            for n, stream in enumerate((False, True)):
                async with aiohttp.ClientSession() as http:
                    data = body_of("hello", stream=stream)
                    async with http.post(f"{at.url}/v1/messages", data=data, headers=HEADERS) as answer:
                        assert answer.status == 200
                        got = await answer.read()
                        assert (b"one", b"two")[n] in got
                assert server.received[-1].body == data
            if place == "answered":
                assert at.metric("perdure_unrecorded_total", reason="Boom") == 2
            elif place != "after":
                assert at.metric("perdure_passed_total", reason="Boom") == 2

    run()


@pytest.mark.only_on("files", "a disk is full; for a database that is away, see test_gateway_shared.py")
@in_loop
async def test_a_full_disk_does_not_stop_the_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """REL-10, REL-15: nothing can be recorded, everything is answered; when space returns the session goes on."""
    is_full = False
    write = Disk.write

    def full(self: Disk, fd: int, data: memoryview) -> int:
        if is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(self, fd, data)

    monkeypatch.setattr(Disk, "write", full)
    async with fake() as server, serving(tmp_path, server) as at:
        client, messages = at.claude(max_retries=0), list[Any]()

        async def turn(said: str) -> None:
            messages.append({"role": "user", "content": said})
            answer = await client.messages.create(model="fake-model", max_tokens=50, messages=messages)
            messages.append({"role": "assistant", "content": answer.content})

        await turn("before")
        is_full = True
        await turn("while it is full")
        await turn("and still")
        async with aiohttp.ClientSession() as http, http.get(f"{at.url}/readyz") as answer:
            assert answer.status == 503
        async with aiohttp.ClientSession() as http, http.get(f"{at.url}/metrics") as answer:
            assert b"\nperdure_store_ready 0.0\n" in await answer.read(), "an alarm can see it (OBS-2)"
        is_full = False
        await turn("after")
        async with aiohttp.ClientSession() as http, http.get(f"{at.url}/readyz") as answer:
            assert answer.status == 200
        async with aiohttp.ClientSession() as http, http.get(f"{at.url}/metrics") as answer:
            assert b"\nperdure_store_ready 1.0\n" in await answer.read()
        assert 0 < at.metric("perdure_store_append_seconds") < 60
        assert at.metric("perdure_passed_total", reason="journal") == 2
        (held,) = [held for some in at.gateway.tenants_open().values() for held in some]
        assert held.head.count == len(messages) == 8


@in_loop
async def test_limits_on_body_depth_and_blocks(tmp_path: Path) -> None:
    """SEC-6: too large is refused; too deep or too many is passed on unread, and counted."""
    deep = '{"a":' * 300 + "1" + "}" * 300
    nested = b'{"model":"m","max_tokens":5,"messages":[{"role":"user","content":[{"type":"odd","x":%b}]}]}'
    async with fake() as server, serving(tmp_path, server, max_body_bytes=100_000, max_blocks=50) as at:
        async with aiohttp.ClientSession() as http:

            async def status(data: bytes) -> int:
                async with http.post(f"{at.url}/v1/messages", data=data, headers=HEADERS) as a:
                    return a.status

            assert await status(body_of("x" * 100_000)) == 413
            many = [{"role": "user", "content": [{"type": "text", "text": "x"}] * 60}]
            assert await status(msgspec.json.encode({"model": "m", "max_tokens": 5, "messages": many})) == 200
            await status(nested % deep.encode())
            await status(b"[" * 50_000)
        assert at.metric("perdure_passed_total", reason="too_many_blocks") == 1
        assert at.metric("perdure_passed_total", reason="too_deep") == 1
        assert at.metric("perdure_passed_total", reason="not_json") == 1


async def half_sent(port: int, key: str) -> asyncio.StreamWriter:
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nx-api-key: {key}\r\nContent-Length: 100000\r\n\r\n{{"
    writer.write(head.encode())
    await writer.drain()
    return writer


@in_loop
@pytest.mark.parametrize("keys", [1, 600])
async def test_half_sent_bodies_keep_nobody_out(tmp_path: Path, keys: int) -> None:
    """GW-3, SEC-6: 600 bodies that never end, of one client or of as many, and another one is answered."""
    async with fake() as server, serving(tmp_path, server) as at:
        port = int(at.url.rpartition(":")[2])
        writers = [await half_sent(port, f"key-{n % keys}") for n in range(600)]
        await until(lambda: at.gateway.admission.in_flight >= 512)
        for _ in range(3):
            said = [{"role": "user", "content": "hello"}]
            answer = await at.claude(max_retries=0).messages.create(model="fake-model", max_tokens=50, messages=said)
            assert answer.content
        assert at.gateway.admission.in_flight <= 512
        for writer in writers:
            writer.close()


@in_loop
async def test_one_tenant_leaves_places_for_others(tmp_path: Path) -> None:
    """GW-3: who has many requests under way is told to come back before nobody else finds a place."""
    async with (
        fake(delay_seconds=0.5) as server,
        serving(tmp_path, server, max_waiting=32) as at,
        aiohttp.ClientSession() as http,
    ):

        async def status(key: str, said: str) -> int:
            headers = {**HEADERS, "x-api-key": key}
            async with http.post(f"{at.url}/v1/messages", data=body_of(said), headers=headers) as answer:
                return answer.status

        many = [asyncio.create_task(status("greedy", f"word {n}")) for n in range(40)]
        await until(
            lambda: at.metric("perdure_refused_total", reason="busy") == 8 and at.gateway.admission.waiting == 8
        )
        assert await status("modest", "hello") == 200
        assert sorted(await asyncio.gather(*many)) == [200] * 32 + [503] * 8


@in_loop
async def test_a_head_that_never_ends_is_cut_off(tmp_path: Path) -> None:
    """SEC-6: neither a connection that says nothing nor half a head is waited for without an end."""
    async with fake() as server, serving(tmp_path, server, body_seconds=0.2) as at:
        port = int(at.url.rpartition(":")[2])
        for said in (b"", b"POST /v1/messages HTTP/1.1\r\nHost: 127"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(said)
            async with asyncio.timeout(5):
                assert await reader.read() == b""
            writer.close()


@in_loop
async def test_what_follows_a_body_is_no_header(tmp_path: Path) -> None:
    """SEC-7: trailers name neither a host nor a tenant, and none goes upstream."""
    environ = {"ALICE": "alice-key"}
    async with (
        fake() as server,
        serving(tmp_path, server, environ=environ, tenants={"alice": {"key_env": "ALICE"}}) as at,
    ):
        port = int(at.url.rpartition(":")[2])

        async def asked(head: str, trailers: str, *, is_split: bool) -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            body = body_of("hello")
            writer.write(f"POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\n{head}".encode())
            writer.write(b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n")
            if is_split:
                await writer.drain()
                await asyncio.sleep(0.05)
            writer.write(b"%x\r\n%b\r\n0\r\n%b\r\n" % (len(body), body, trailers.encode()))
            async with asyncio.timeout(5):
                answer = await reader.read()
            writer.close()
            return answer

        for is_split in (False, True):
            stolen = await asked("", "x-api-key: alice-key\r\n", is_split=is_split)
            assert stolen.startswith(b"HTTP/1.1 401")
            more = "anthropic-beta: sneaked-in\r\nx-api-key: mallory\r\nhost: evil.example\r\n"
            fine = await asked("x-api-key: alice-key\r\n", more, is_split=is_split)
            assert fine.startswith(b"HTTP/1.1 200")
        assert len(server.received) == 2
        assert all("anthropic-beta" not in r.headers for r in server.received)
        assert list(at.gateway.tenants_open()) == ["alice"]


@in_loop
async def test_an_upstream_that_is_down_is_said_in_the_clients_words(tmp_path: Path) -> None:
    """GW-1: and one that breaks off in the middle doesn't look finished."""
    from perdure.testing import CutStream

    async with fake() as server, serving(tmp_path, server, config=config_of(tmp_path, "http://127.0.0.1:1")) as at:
        with pytest.raises(anthropic.InternalServerError, match="upstream can't be reached"):
            await at.claude(max_retries=0).messages.create(
                model="m", max_tokens=5, messages=[{"role": "user", "content": "x"}]
            )
    async with fake() as server, serving(tmp_path, server) as at:
        server.faults.append(CutStream(after_events=3))
        async with aiohttp.ClientSession() as http:
            with pytest.raises(aiohttp.ClientError):
                async with http.post(f"{at.url}/v1/messages", data=body_of("x", stream=True), headers=HEADERS) as a:
                    await a.read()
        (held,) = [held for some in at.gateway.tenants_open().values() for held in some]
        assert held.head.count == 1


@in_loop
async def test_a_new_configuration_holds_from_the_next_request_on(tmp_path: Path) -> None:
    """GW-4: and one that can't be used changes nothing."""
    async with fake() as first, fake() as second, serving(tmp_path, first) as at:
        client = at.claude(max_retries=0)

        async def ask() -> None:
            await client.messages.create(model="m", max_tokens=5, messages=[{"role": "user", "content": "x"}])

        await ask()
        at.gateway.reload(config_of(tmp_path, second.url))
        await ask()
        with pytest.raises(BadSetting):
            at.gateway.reload(config_of(tmp_path, "ftp://nowhere"))
        await ask()
        assert (len(first.received), len(second.received)) == (1, 2)


@in_loop
async def test_an_error_without_an_end_isnt_collected(tmp_path: Path) -> None:
    """SEC-6, SPD-8: it is passed on as it comes once it is larger than what is read of an answer."""
    half, has_come = b"x" * 2_000_000, asyncio.Event()

    async def refused(request: aiohttp.web.Request) -> aiohttp.web.StreamResponse:
        answer = aiohttp.web.StreamResponse(status=400)
        await answer.prepare(request)
        await answer.write(half)
        await has_come.wait()
        await answer.write(b"end")
        return answer

    app = aiohttp.web.Application()
    app.router.add_post("/{path:.*}", refused)
    runner = aiohttp.web.AppRunner(app)
    await runner.setup()
    site = aiohttp.web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        async with fake() as server:
            server_url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            async with serving(tmp_path, server, config=config_of(tmp_path, server_url)) as at:
                asked = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
                for path in ("messages", "messages/count_tokens"):
                    has_come.clear()
                    headers, url = {"x-api-key": KEY}, f"{at.url}/v1/{path}"
                    async with (
                        asyncio.timeout(20),
                        aiohttp.request("POST", url, json=asked, headers=headers) as answer,
                    ):
                        assert answer.status == 400
                        assert await answer.content.readexactly(len(half)) == half
                        has_come.set()
                        assert await answer.content.read() == b"end"
    finally:
        has_come.set()
        await runner.cleanup()


@in_loop
async def test_a_front_of_any_size_is_read_beside_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SPD-8, SEC-6: 100,000 tools held up everybody for half a second."""
    seen: list[bool] = []
    front = AnthropicProtocol.front

    def noted(self: AnthropicProtocol, incoming: Any) -> Any:
        seen.append(threading.current_thread() is threading.main_thread())
        return front(self, incoming)

    monkeypatch.setattr(AnthropicProtocol, "front", noted)
    async with fake() as server, serving(tmp_path, server) as at:
        tools: Any = [{"name": f"tool{n}", "input_schema": {"type": "object"}} for n in range(900)]
        said: Any = [{"role": "user", "content": "hi"}]
        await at.claude(max_retries=0).messages.create(model="m", max_tokens=9, messages=said, tools=tools)
    assert seen == [False]


@in_loop
async def test_who_sends_too_slowly_loses_the_place(tmp_path: Path) -> None:
    """GW-3: a hundred clients that send nothing don't keep the others waiting."""
    async with fake() as server, serving(tmp_path, server, body_seconds=0.2, max_waiting=150) as at:
        port = int(at.url.rpartition(":")[2])
        slow = [await asyncio.open_connection("127.0.0.1", port) for _ in range(100)]
        for _, writer in slow:
            writer.write(b"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{")
        asked = aiohttp.request("POST", f"{at.url}/v1/messages", data=body_of("x"), headers=HEADERS)
        async with asked as answer:
            assert answer.status == 200
        heads = [await reader.readuntil(b"\r\n") for reader, _ in slow]
        assert all(b" 408 " in head for head in heads)
        for _, writer in slow:
            writer.close()


@pytest.mark.both_stores
@in_loop
async def test_sessions_leave_memory_and_come_back(tmp_path: Path) -> None:
    """GW-3: memory is bounded; a session that was closed goes on where it was."""
    async with fake() as server, serving(tmp_path, server, open_sessions=3) as at:
        client, talks = at.claude(max_retries=0), [list[Any]() for _ in range(8)]
        for n in range(2):
            for number, messages in enumerate(talks):
                messages.append({"role": "user", "content": f"talk {number}, {n}"})
                said = await client.messages.create(model="fake-model", max_tokens=50, messages=messages)
                messages.append({"role": "assistant", "content": said.content})
        await until(lambda: sum(map(len, at.gateway.tenants_open().values())) <= 3)
        async with kept_by(tmp_path) as home:
            assert len(await home.sessions()) == 8
        held = [held for some in at.gateway.tenants_open().values() for held in some]
        assert {one.head.count for one in held} == {4}
