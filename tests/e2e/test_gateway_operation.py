"""The gateway for who runs it: what it logs, who may ask how much, and what it says of itself (GW-9)."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import aiohttp.web
import anthropic
import pytest
from tests.agents import until
from tests.commands import command
from tests.gateways import KEY, CodingClient, Running, config_of, fake, in_loop, serving, upstream

from perdure.adapters.journal.disk import Disk
from perdure.adapters.lines import LineFile
from perdure.errors import BadSetting
from perdure.events import ModelCalled
from perdure.gateway.admission import Admission, Refusal
from perdure.gateway.gateway import Gateway
from perdure.settings import Settings
from perdure.testing import CutStream, overloaded, say, tool_use

pytestmark = pytest.mark.e2e
SECRET = "the-words-of-a-message"
HELLO: Any = [{"role": "user", "content": SECRET}]


async def lines(path: Path, *, until: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
    """The lines of a log, once they are there."""
    for _ in range(200):
        text = await asyncio.to_thread(path.read_text)
        told = [json.loads(line) for line in text.splitlines()]
        if until(told):
            return told
        await asyncio.sleep(0.02)
    raise AssertionError(f"not in the log: {told}")


@in_loop
async def test_each_request_is_one_line_without_a_word_of_it(tmp_path: Path) -> None:
    """GW-9, U11: who asked what of whom, what was done, how much, how long; never text, and never a key."""
    log = tmp_path / "access.jsonl"
    async with fake() as server, serving(tmp_path, server, access_log=str(log)) as at:
        claude = at.claude(max_retries=0, default_headers={"user-agent": "claude-cli/2.1.197 (external, cli)"})
        raw = await claude.messages.with_raw_response.create(model="m-one", max_tokens=50, messages=HELLO)
        async with claude.messages.stream(model="m-one", max_tokens=50, messages=HELLO) as stream:
            await stream.get_final_message()
        await at.gpt(max_retries=0).models.list(extra_query={"key": KEY})
        async with aiohttp.ClientSession() as http:
            for page in ("/healthz", "/metrics", "/perdure"):
                await http.get(f"{at.url}{page}")
            async with http.post(f"{at.url}/v1/messages", data=b"{}", headers={"host": "evil.example"}) as answer:
                assert answer.status == 421
        told = await lines(log, until=lambda told: len(told) >= 4)
        (held,) = at.held
    one, two, other, refused = sorted(told, key=lambda line: str(line["time"]))
    assert len(told) == 4 and SECRET not in log.read_text() and KEY not in log.read_text()
    assert one["request"] == raw.headers["x-perdure-request"] != two["request"]
    assert one["tenant"].startswith("key-") and one["session"] == held.id == two["session"]
    assert one["client"] == "claude-cli/2.1.197" and one["time"].endswith("Z")
    assert (one["upstream"], one["protocol"], one["kind"], one["route"]) == (
        "anthropic",
        "anthropic",
        "turn",
        "default",
    )
    assert (one["model"], one["mode"], one["status"], one["ending"]) == ("m-one", "untouched", 200, "whole")
    assert one["bytes_in"] == one["bytes_up"] > 50 and one["bytes_out"] > 100
    assert one["prompt_tokens"] > 0 and one["output_tokens"] > 0 and 0 < one["first_byte_ms"] <= one["ms"]
    assert two["stream"] is True and "stream" not in one
    assert (other["kind"], other["mode"], other["reason"]) == ("other", "passed", "path")
    assert (refused["status"], refused["reason"]) == (421, "host")


@in_loop
async def test_the_access_log_says_how_a_request_ended(tmp_path: Path) -> None:
    """GW-9: an upstream that can't be reached or breaks off, a client that goes away."""
    log = tmp_path / "access.jsonl"
    config = config_of(tmp_path, "http://127.0.0.1:1", access_log=str(log))
    async with fake() as server, serving(tmp_path, server, config=config) as at:
        with pytest.raises(anthropic.InternalServerError):
            await at.claude(max_retries=0).messages.create(model="m", max_tokens=5, messages=HELLO)
        (down,) = await lines(log, until=bool)
    assert (down["status"], down["reason"], down["upstream"]) == (502, "upstream_down", "anthropic")
    other = tmp_path / "other.jsonl"
    slow = upstream("a b c d " * 200, "a b c d " * 2_000)
    async with fake(slow, delay_seconds=0.05) as server, serving(tmp_path, server, access_log=str(other)) as at:
        server.faults.append(CutStream(after_events=3))
        with pytest.raises(Exception):  # noqa: B017 - whatever the SDK says of a stream that breaks off
            async with at.claude(max_retries=0).messages.stream(model="m", max_tokens=5, messages=HELLO) as stream:
                await stream.get_final_message()
        body = b'{"model":"m","max_tokens":50000,"stream":true,"messages":[{"role":"user","content":"x"}]}'
        async with aiohttp.request("POST", f"{at.url}/v1/messages", data=body) as answer:
            await answer.content.readany()
            answer.close()
        cut, left = await lines(other, until=lambda told: len(told) == 2)
    assert (cut["ending"], cut["reason"]) == ("broken", "upstream_broke_off")
    assert (left["ending"], left["status"]) == ("cancelled", 200)


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("wire", ["anthropic", "openai", "responses"])
@in_loop
async def test_what_was_recalled_for_an_answer_is_counted_with_it(tmp_path: Path, wire: str, is_stream: bool) -> None:
    """GW-9, GW-8: the line of a request has the tokens and the price of all answers that made the one."""
    log, calls = tmp_path / "access.jsonl", [say(tool_use("recall", {"query": f"word {n}"})) for n in range(3)]
    async with fake(upstream("first", *calls, "found")) as server, serving(tmp_path, server, access_log=str(log)) as at:
        client = CodingClient(at, wire, is_stream=is_stream)
        await client.say("remember this word")
        text, _ = await client.say("which word?", model="claude-opus-4-1")
        assert text == "found"
        first, second = await lines(log, until=lambda told: len(told) == 2)
        called = [event for event in at.sink.events if isinstance(event, ModelCalled)]
    assert len(called) == 5 and first["prompt_tokens"] == called[0].prompt_tokens
    assert second["prompt_tokens"] == sum(event.prompt_tokens or 0 for event in called[1:]), "not the last one's alone"
    assert second["output_tokens"] == sum(event.output_tokens or 0 for event in called[1:])
    assert second["usd"] == pytest.approx(sum(event.usd or 0 for event in called[1:]), abs=1e-5)


@in_loop
async def test_events_name_tenant_session_and_request(tmp_path: Path) -> None:
    """GW-9, U11: the setting `events` is heeded, and every line of it can be told apart from the others'."""
    path, log = tmp_path / "events.jsonl", tmp_path / "access.jsonl"
    settings = Settings(window_tokens=100_000, durability="process", events=(f"jsonl:{path}",))
    async with fake() as server:
        config = config_of(tmp_path, server.url, settings=settings, access_log=str(log))
        async with serving(tmp_path, server, config=config) as at:
            await at.claude(max_retries=0).messages.create(model="m-one", max_tokens=50, messages=HELLO)
            with pytest.raises(anthropic.APIStatusError):
                server.upstream.script.append(overloaded())
                await at.claude(max_retries=0).messages.create(model="m-two", max_tokens=50, messages=HELLO)
            told = await lines(path, until=lambda told: any(line["event"] == "ModelFailed" for line in told))
            access = await lines(log, until=lambda told: len(told) == 2)
            (held,) = at.held
    (called,) = [line for line in told if line["event"] == "ModelCalled"]
    assert {line["session"] for line in told} == {held.id} and len({line["tenant"] for line in told}) == 1
    assert called["request"] == access[0]["request"] and called["upstream"] == "anthropic"
    assert called["model"] == "m-one" and called["prompt_tokens"] == access[0]["prompt_tokens"]
    appended = next(line for line in told if line["event"] == "MessageAppended")
    assert {"tenant", "session", "request", "upstream", "at"} <= appended.keys()
    assert SECRET not in path.read_text() and KEY not in path.read_text()


@in_loop
async def test_an_upstream_that_is_down_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """GW-9, U11: and that it answers again."""
    with caplog.at_level(logging.WARNING, "perdure.gateway"):
        async with fake() as server:
            down = config_of(tmp_path, "http://127.0.0.1:1")
            async with serving(tmp_path, server, config=down) as at:
                for _ in range(3):
                    with pytest.raises(anthropic.InternalServerError):
                        await at.claude(max_retries=0).messages.create(model="m", max_tokens=5, messages=HELLO)
                at.gateway.reload(config_of(tmp_path, server.url))
                await at.claude(max_retries=0).messages.create(model="m", max_tokens=5, messages=HELLO)
    said = [record.getMessage() for record in caplog.records if "upstream" in record.getMessage()]
    assert said == [
        "the upstream anthropic can't be reached (ClientConnectorError)",
        "the upstream anthropic answers again",
    ]


@in_loop
async def test_probes_answer_any_host(tmp_path: Path) -> None:
    """GW-9, U11: a kubelet asks by the address of a pod; nothing else is told to such a host."""
    async with fake() as server, serving(tmp_path, server) as at, aiohttp.ClientSession() as http:

        async def status(path: str) -> int:
            async with http.get(f"{at.url}{path}", headers={"host": "10.1.2.3:8787"}) as answer:
                return answer.status

        assert [await status(path) for path in ("/healthz", "/readyz")] == [200, 200]
        assert [await status(path) for path in ("/metrics", "/perdure", "/perdure/status")] == [421, 421, 421]


def test_lines_are_appended_by_a_thread_and_survive_rotation(tmp_path: Path) -> None:
    """GW-9: a file that is moved away is made again; one that can't be written is refused at the start."""
    path = tmp_path / "log.jsonl"
    file = LineFile(str(path))
    file.write(b"one\n")
    file.write(b"two\n")
    file.close()
    assert path.read_bytes() == b"one\ntwo\n" and path.stat().st_mode & 0o777 == 0o600
    path.rename(tmp_path / "old")
    file = LineFile(str(path))
    file.write(b"three\n")
    file.close()
    assert path.read_bytes() == b"three\n"
    with pytest.raises(BadSetting, match="can't be appended"):
        LineFile(str(tmp_path / "no" / "folder"))


# --- limits of tenants ----------------------------------------------------------------------------------------------

TWO: dict[str, Any] = {
    "environ": {"A": "alice-key", "B": "bob-key"},
    "tenants": {
        "alice": {"key_env": "A", "limits": {"requests_per_minute": 2}},
        "bob": {"key_env": "B", "limits": {"tokens_per_day": 1}},
    },
}


async def post(
    at: Running, key: str, path: str = "/v1/messages", said: str = "hello"
) -> tuple[int, Mapping[str, str], Any]:
    body = {"model": "m", "max_tokens": 20, "messages": [{"role": "user", "content": said}]}
    headers = {"authorization": f"Bearer {key}"} if "chat" in path else {"x-api-key": key}
    async with aiohttp.request("POST", f"{at.url}{path}", json=body, headers=headers) as answer:
        return answer.status, answer.headers, await answer.json()


@in_loop
async def test_requests_a_minute_are_limited_in_the_protocols_own_words(tmp_path: Path) -> None:
    """GW-9: 429 with retry-after, as each SDK knows it; another tenant isn't touched."""
    async with fake() as server, serving(tmp_path, server, **TWO) as at:
        assert [(await post(at, "alice-key"))[0] for _ in range(2)] == [200, 200]
        status, headers, body = await post(at, "alice-key")
        assert status == 429 and 25 <= int(headers["retry-after"]) <= 31
        assert body["error"]["type"] == "rate_limit_error" and "2 requests a minute" in body["error"]["message"]
        status, _, body = await post(at, "alice-key", "/v1/chat/completions")
        assert (status, body["error"]["code"]) == (429, "rate_limit_exceeded")
        client = anthropic.AsyncAnthropic(api_key="alice-key", base_url=at.url, max_retries=0)
        with pytest.raises(anthropic.RateLimitError):
            await client.messages.create(model="m", max_tokens=20, messages=HELLO)
        await client.close()
        assert (await post(at, "bob-key"))[0] == 200
        assert at.metric("perdure_refused_total", reason="requests_per_minute") == 3


@pytest.mark.both_stores
@in_loop
async def test_a_days_quota_holds_over_a_restart(tmp_path: Path) -> None:
    """GW-9: tokens of prompts and answers; the SDKs don't ask again by themselves; the status shows what is used."""
    async with fake() as server:
        async with serving(tmp_path, server, **TWO) as at:
            assert (await post(at, "bob-key"))[0] == 200
        async with serving(tmp_path, server, **TWO) as at:
            status, headers, body = await post(at, "bob-key", said="another")
            assert status == 429 and headers["x-should-retry"] == "false" and 0 < int(headers["retry-after"]) <= 86_400
            assert "quota of 1 tokens" in body["error"]["message"]
            async with aiohttp.request("GET", f"{at.url}/perdure/status", headers={"x-api-key": "bob-key"}) as answer:
                used = (await answer.json())["usage"]
            assert (
                list(used) == ["bob"] and used["bob"]["tokens"] > 1 and used["bob"]["limits"] == {"tokens_per_day": 1}
            )
            assert (await post(at, "alice-key"))[0] == 200
        assert len(server.received) == 2


@in_loop
async def test_dollars_count_for_a_quota_also_of_an_answer_that_was_left(tmp_path: Path) -> None:
    """GW-9: who hangs up before the usage comes has spent the prompt all the same."""
    table = {"limits": {"usd_per_day": 0.0001}, "access_log": str(tmp_path / "log")}
    said = "word " * 2_000
    async with (
        fake(upstream("a b c d " * 2_000), delay_seconds=0.05) as server,
        serving(tmp_path, server, **table) as at,
    ):
        body: dict[str, Any] = {"model": "claude-opus-4-1", "max_tokens": 20, "stream": True}
        body |= {"messages": [{"role": "user", "content": said}]}
        async with aiohttp.request("POST", f"{at.url}/v1/messages", json=body) as answer:
            await answer.content.readany()
            answer.close()
        (left,) = await lines(tmp_path / "log", until=bool)
        assert left["ending"] == "cancelled" and left["estimated"] and left["usd"] > 0.0001
        async with aiohttp.request("POST", f"{at.url}/v1/messages", json=body) as answer:
            assert answer.status == 429 and "$0.00" in (await answer.json())["error"]["message"]


def test_places_go_to_whoever_holds_fewest() -> None:
    """GW-9, GW-3: in a queue the tenant that came last and holds nothing is next, and nobody waits for ever."""

    async def body() -> None:
        places, order = Admission(), list[str]()

        async def ask(tenant: str, seconds: float = 5.0, own: int | None = None, most: int = 16) -> None:
            try:
                async with places.answered(tenant, most, own=own, seconds=seconds):
                    order.append(tenant)
                    await asyncio.sleep(0.05)
            except Refusal as e:
                order.append(f"{tenant} {e.status} {e.reason}")

        asked = [asyncio.create_task(ask("greedy")) for _ in range(16)]  # the last four aren't for who holds many
        await asyncio.sleep(0)
        asked += [asyncio.create_task(ask(f"modest {n}")) for n in range(5)]  # there is none left for the fifth
        await asyncio.gather(*asked)
        assert order == ["greedy"] * 12 + [f"modest {n}" for n in range(5)] + ["greedy"] * 4
        order.clear()
        asked = [asyncio.create_task(ask("one", own=1)) for _ in range(2)]
        await asyncio.gather(*asked, ask("one", 0.01, own=1), ask("late"))
        assert order == ["one", "late", "one 429 concurrent", "one"] and places.in_flight == 0
        order.clear()
        await asyncio.gather(*(ask("many", 0.01, most=4) for _ in range(8)))
        assert order == ["many"] * 3 + ["many 503 busy"] * 5

    asyncio.run(body())


@in_loop
async def test_a_client_that_leaves_the_queue_takes_no_place(tmp_path: Path) -> None:
    """GW-9, GW-3."""
    limits = {"concurrent": 1}
    async with fake(delay_seconds=0.1) as server, serving(tmp_path, server, limits=limits) as at:

        async def asked(said: str) -> int:
            body = {"model": "m", "max_tokens": 20, "stream": True, "messages": [{"role": "user", "content": said}]}
            async with aiohttp.request("POST", f"{at.url}/v1/messages", json=body) as answer:
                await answer.read()
                return answer.status

        first = asyncio.create_task(asked("one"))
        await until(lambda: bool(server.received))
        second = asyncio.create_task(asked("two"))
        await until(lambda: at.gateway.admission.waiting == 1)
        second.cancel()
        await until(lambda: at.gateway.admission.waiting == 0)
        third = asyncio.create_task(asked("three"))
        assert await first == 200 and await third == 200
        await until(lambda: not at.gateway.admission.in_flight)
        assert len(server.received) == 2


async def follows(at: Running, link: str) -> None:
    """A report is for who may read its tenant's words, or has a ticket from one who may, once and for a minute."""

    async def got(path: str, key: str = "") -> tuple[int, Mapping[str, str], str]:
        headers = {"x-api-key": key} if key else {}
        async with aiohttp.request("GET", f"{at.url}{path}", headers=headers) as answer:
            return answer.status, answer.headers, await answer.text()

    status, headers, page = await got(link, "alice-key")
    assert status == 200 and "Mend &lt;it&gt;" in page and "compaction at" in page
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'") and "frame-ancestors 'none'" in policy
    assert (headers["cache-control"], headers["referrer-policy"]) == ("no-store", "no-referrer")
    for path, key in ((link, "bob-key"), (f"{link}/..", "alice-key"), ("/perdure/report/alice/none", "alice-key")):
        status, _, text = await got(path, key)
        assert status in (400, 404) and "Mend" not in text
    assert (await got(link))[0] == (await got(link, "wrong"))[0] == 401
    assert (await got(f"{link}?ticket=made-up"))[0] == (await got(f"{link}?open=1", "bob-key"))[0] == 404
    opens = [json.loads((await got(f"{link}?open=1", "alice-key"))[2])["at"] for _ in range(2)]
    assert (await got(opens[0].replace("alice", "bob")))[0] == 404, "it opens this report and no other"
    assert "Mend" in (await got(opens[1]))[2] and (await got(opens[1]))[0] == 404, "once"
    again = json.loads((await got(f"{link}?open=1", "alice-key"))[2])["at"]
    assert (await got(f"{again}&open=1"))[0] == 404, "a ticket gets nobody another one"
    late = at.gateway.reports.ticket(link.removeprefix("/perdure/report/"), at.gateway.clock.now() - 61)
    assert (await got(f"{link}?ticket={late}"))[0] == 404


@pytest.mark.parametrize("table", [{}, {"allowed_hosts": ["models.example"]}, {"status": "own"}, {"status": "all"}])
@pytest.mark.parametrize("is_keyless", [False, True])
@in_loop
async def test_without_tenants_words_are_for_the_owner_of_the_home(
    tmp_path: Path, table: dict[str, Any], is_keyless: bool
) -> None:
    """GW-4, GW-13, SEC-7, finding R5: any user of the machine can ask, so titles and reports need the key in a file
    that only the gateway's own user can read."""
    async with fake() as server, serving(tmp_path, server, **table) as at, aiohttp.ClientSession() as http:
        own = {} if is_keyless else {"x-api-key": "own"}
        said = {"model": "m", "max_tokens": 10, "messages": [{"role": "user", "content": "Mend it"}]}
        async with http.post(f"{at.url}/v1/messages", json=said, headers=own) as answer:
            assert answer.status == 200
        (held,) = at.held
        (tenant,) = at.gateway.tenants_open()
        where = tmp_path / "gateway" / "page.key"
        assert where.stat().st_mode & 0o777 == 0o600
        owner = where.read_text().strip()
        callers = {"nobody": {}, "another": {"x-api-key": "another"}, "owner": {"x-api-key": owner}}
        callers |= {"bearer": {"authorization": f"Bearer {owner}"}} | ({} if is_keyless else {"own": own})
        for name, headers in callers.items():
            sees = name in ("own", "owner", "bearer")
            texts = []
            for path in ("/perdure/status", "/perdure", f"/perdure/report/{tenant}/{held.id}"):
                async with http.get(f"{at.url}{path}", headers=headers) as got:
                    texts.append(await got.text())
                    assert name != "nobody" or table.get("status") == "all" or got.status in (401, 404)
            assert ["Mend it" in text for text in texts] == [sees] * 3, name
            lists = sees or (table.get("status") == "all")
            assert [held.id in text for text in texts[:2]] == [lists] * 2, name
        async with http.get(f"{at.url}/perdure/report/{tenant}/{held.id}?open=1", headers=callers["owner"]) as got:
            link = (await got.json())["at"]
        async with http.get(f"{at.url}{link}") as got:
            assert "Mend it" in await got.text(), "the ticket of its own page"


def test_only_a_gateway_that_starts_makes_the_key_of_its_pages(tmp_path: Path) -> None:
    """GW-13: a worker, or whoever only looks at a configuration, writes none."""
    Gateway(config_of(tmp_path, "http://127.0.0.1:1"), {}, secret=b"s")
    assert not (tmp_path / "gateway").exists()


@in_loop
async def test_with_tenants_the_key_of_the_home_opens_nothing(tmp_path: Path) -> None:
    """GW-4, GW-13: there, words are their tenant's alone."""
    async with fake() as server, serving(tmp_path, server, **TWO) as at, aiohttp.ClientSession() as http:
        await post(at, "alice-key")
        key = (tmp_path / "gateway" / "page.key").read_text().strip()
        async with http.get(f"{at.url}/perdure/status", headers={"x-api-key": key}) as got:
            assert got.status == 401


@in_loop
async def test_sessions_are_kept_as_long_as_their_tenant_wants(tmp_path: Path) -> None:
    """GW-9, U11: `keep_days` of a tenant, and of those that aren't configured."""
    tenants = {"alice": {"key_env": "A", "keep_days": 2}, "bob": {"key_env": "B"}}
    async with fake() as server, serving(tmp_path, server, environ=TWO["environ"], tenants=tenants, keep_days=1) as at:
        for key in ("alice-key", "bob-key"):
            await post(at, key)
        for held in (closed := at.held):
            await at.gateway.sessions(held.sink.tenant).let_go(held)
        sessions = {held.sink.tenant: held.id for held in closed}
        assert sessions.keys() == {"alice", "bob"}
        now, config = at.gateway.clock.now(), at.gateway.active.gateway
        assert await at.gateway._expired(config, now + 1.5 * 86_400) == 0
        assert await at.gateway._expired(config, now + 2.5 * 86_400) == 1
        homes = {name: at.gateway.store.home(name) for name in sessions}
        assert [await homes[name].has(sessions[name]) for name in ("alice", "bob")] == [False, True]


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"limits": {"tokens_per_day": 0}}, "gateway.limits: tokens_per_day = 0: has to be more than 0"),
        ({"limits": {"tokens": 5}}, "gateway: limits: unknown entry 'tokens'"),
        ({"tenants": {"a": {"key_env": "A", "limits": {"usd_per_day": -1}}}}, "gateway.tenants.a.limits: usd_per_day"),
        ({"tenants": {"a": {"key_env": "A", "keep_days": 0}}}, "gateway.tenants.a: keep_days = 0"),
        ({"otlp": "collector:4318"}, "gateway: otlp = 'collector:4318'"),
        ({"queue_seconds": -1}, "gateway: queue_seconds = -1: has to be from 0"),
        ({"access_log": "/nowhere/at/all"}, "lines can't be appended"),
    ],
)
def test_what_limits_cannot_be_is_said_at_the_start(table: dict[str, Any], said: str, tmp_path: Path) -> None:
    """GW-9, CLI-5: one line for each mistake."""
    with pytest.raises(BadSetting) as e:
        Gateway(config_of(tmp_path, "http://127.0.0.1:1", **table), {"A": "key"})
    assert said in str(e.value) and "\n" not in str(e.value)


# --- what a person sees ---------------------------------------------------------------------------------------------


def test_a_person_recognises_a_conversation(tmp_path: Path) -> None:
    """GW-9, U11: by its first real words, client and folder, on the page and in `sessions`; others see no words."""
    said = [
        {"type": "text", "text": "<system-reminder>be brief</system-reminder>"},
        {"type": "text", "text": "Mend <it>"},
    ]
    tenants = {"alice": {"key_env": "A"}, "bob": {"key_env": "B"}}
    system, agent = "Working directory: /srv/shop", {"user-agent": "claude-cli/2.1.197 (external, cli)"}

    async def talk() -> str:
        more: dict[str, Any] = {"environ": TWO["environ"], "tenants": tenants, "status": "all"}
        async with fake() as server, serving(tmp_path, server, **more) as at:
            client = anthropic.AsyncAnthropic(api_key="alice-key", base_url=at.url, default_headers=agent)
            messages: Any = [{"role": "user", "content": said}]
            await client.messages.create(model="m", max_tokens=20, system=system, messages=messages)
            await client.close()
            (held,) = at.held
            await until(lambda: held.session.view.state.title.title is not None)

            async def page(key: str) -> str:
                async with aiohttp.request("GET", f"{at.url}/perdure", headers={"x-api-key": key}) as answer:
                    return await answer.text()

            own, other = await page("alice-key"), await page("bob-key")
            assert "Mend &lt;it&gt;" in own and "Claude Code 2.1.197 · /srv/shop" in own
            assert f"perdure report {held.id}" in own and "today: 1 request" in own
            assert "Mend" not in other and "/srv/shop" not in other and held.id in other
            link = f"/perdure/report/alice/{held.id}"
            assert f'href="{link}"' in own and "a class" not in other
            await follows(at, link)
            return str(held.id)

    name, env = asyncio.run(talk()), {**os.environ, "PERDURE_HOME": str(tmp_path)}
    shown = command("sessions", "--gateway", "--json", cwd=tmp_path, env=env)
    (one,) = map(json.loads, shown.stdout.splitlines())
    assert (one["session"], one["title"], one["client"]) == (name, "Mend <it>", "Claude Code 2.1.197")
    assert (one["folder"], one["tenant"]) == ("/srv/shop", "alice") and one["bytes"] > 500
    table = command("sessions", "--gateway", "--grep", "srv/shop", cwd=tmp_path, env=env).stdout
    assert "Mend" in table and "perdure report" in table
    assert "--gateway lists those" in command("sessions", cwd=tmp_path, env=env).stdout
    report = command("report", name, "-o", "report.html", cwd=tmp_path, env=env)
    assert report.returncode == 0 and "Mend &lt;it&gt;" in (tmp_path / "report.html").read_text()


@in_loop
async def test_spans_and_metrics_go_to_a_collector(tmp_path: Path) -> None:
    """GW-9: over OTLP, only while it is set, of open sessions, too; names by the conventions, no word of a message."""
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http.trace_exporter", reason="needs the extra otel")
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    got: dict[str, list[bytes]] = {}

    async def collect(request: aiohttp.web.Request) -> aiohttp.web.Response:
        data = await request.read()
        got.setdefault(request.path, []).append(data)
        return aiohttp.web.Response()

    app = aiohttp.web.Application()
    app.router.add_post("/{path:.*}", collect)
    runner = aiohttp.web.AppRunner(app)
    await runner.setup()
    site = aiohttp.web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    collector = f"http://127.0.0.1:{runner.addresses[0][1]}"
    async with fake() as server, serving(tmp_path, server) as at:
        claude = at.claude(max_retries=0)
        await claude.messages.create(model="unseen", max_tokens=50, messages=HELLO)
        at.gateway.reload(config_of(tmp_path, server.url, otlp=collector))
        await claude.messages.create(model="claude-opus-4-1", max_tokens=50, messages=HELLO)
        (held,) = at.held
        session = held.id
        at.gateway.reload(config_of(tmp_path, server.url, otlp="http://127.0.0.1:1"))
        await until(lambda: "/v1/traces" in got)  # what waits is sent before the export ends
        at.gateway.reload(config_of(tmp_path, server.url))
        await claude.messages.create(model="unseen", max_tokens=50, messages=HELLO)
    await runner.cleanup()
    assert got.keys() == {"/v1/traces", "/v1/metrics"}
    read = [ExportTraceServiceRequest.FromString(data) for data in got["/v1/traces"]]
    found = {s.name: s for r in read for g in r.resource_spans for scope in g.scope_spans for s in scope.spans}
    assert found.keys() >= {"chat claude-opus-4-1", "request turn"} and "chat unseen" not in found
    asked = {one.key: one.value for one in found["request turn"].attributes}
    assert (
        asked["gen_ai.conversation.id"].string_value == session
        and asked["perdure.upstream"].string_value == "anthropic"
    )
    assert asked["http.response.status_code"].int_value == 200
    called = {one.key: one.value for one in found["chat claude-opus-4-1"].attributes}
    assert (
        called["gen_ai.conversation.id"].string_value == session and called["gen_ai.usage.input_tokens"].int_value > 0
    )
    assert called["perdure.tenant"].string_value.startswith("key-")
    everything = b"".join(data for some in got.values() for data in some)
    assert SECRET.encode() not in everything and KEY.encode() not in everything


@in_loop
async def test_a_collector_that_is_away_delays_nobody(tmp_path: Path) -> None:
    """GW-9: requests are answered as without one."""
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http.trace_exporter", reason="needs the extra otel")
    async with fake() as server, serving(tmp_path, server, otlp="http://127.0.0.1:1") as at:
        async with asyncio.timeout(5):
            await at.claude(max_retries=0).messages.create(model="m", max_tokens=50, messages=HELLO)


@in_loop
async def test_answers_that_end_together_close_a_session_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """GW-3, GW-9: each of them sees that too many sessions are in memory, and one of them closes the oldest."""
    async with fake() as server, serving(tmp_path, server, open_sessions=2) as at:
        answers = await asyncio.gather(*(post(at, f"k{n % 3}", said=f"talk {n}") for n in range(60)))
        assert {status for status, _, _ in answers} == {200}
        await until(lambda: not at.gateway.admission.in_flight)
        await at.gateway.jobs.drain()
        assert len(at.held) <= 2
    assert "background work failed" not in caplog.text


@pytest.mark.only_on("files", "a disk is slow; nothing of a database is waited for in a way that holds the loop")
@in_loop
async def test_a_slow_disk_holds_the_loop_of_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GW-9, SPD-8: a new tenant's first session, its usage, and what a closed one has learned are synced aside."""
    quick = Disk.sync_data

    def slow(disk: Disk, fd: int) -> None:
        time.sleep(0.3)
        quick(disk, fd)

    async with fake() as server, serving(tmp_path, server, open_sessions=1) as at:
        await post(at, "first")
        monkeypatch.setattr(Disk, "sync_data", slow)
        longest, is_over = 0.0, False

        async def tick() -> None:
            nonlocal longest
            while not is_over:
                began = time.perf_counter()
                await asyncio.sleep(0.005)
                longest = max(longest, time.perf_counter() - began)

        ticking = asyncio.create_task(tick())
        long = "some words and more of them, " * 2_000  # so long that its report teaches how the model counts
        assert [(await post(at, key, said=long))[0] for key in ("one", "two", "three")] == [200] * 3
        await at.gateway.jobs.drain()
        await at.gateway.usage.save(at.gateway.clock.now())
        is_over = True
        await ticking
        assert longest < 0.25, f"the loop was held for {longest:.2f} s"
        monkeypatch.undo()
