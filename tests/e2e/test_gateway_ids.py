"""Ids of responses at several gateways: each that a client has seen can be continued (GW-11, findings A1 and A2)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from tests.agents import until
from tests.gateways import KEY, Running, fake, in_loop, serving, upstream

from perdure.adapters.journal.memory_home import MemoryHomes
from perdure.errors import JournalError
from perdure.gateway.turns import TurnMaker
from perdure.ports.home import Store
from perdure.ports.session import PlacedRecord
from perdure.testing import CutStream, FakeServer, say, tool_use
from perdure.testing.server import HeldStream
from perdure.transcript.messages import Message
from perdure.wiring.stores import store_at

pytestmark = [pytest.mark.e2e, pytest.mark.only_on("files", "these name their stores themselves")]

TENANTS = {name: {"key_env": name.upper(), "upstream_keys": {"openai": "SHARED"}} for name in ("alice", "bob")}
ENVIRON = {"ALICE": "alice-key", "BOB": "bob-key", "SHARED": "shared-key"}
ACCOUNTS = ("own", "shared")
READ: Any = {"type": "function", "name": "Read", "parameters": {"type": "object"}, "strict": False}


@asynccontextmanager
async def gateways(
    tmp_path: Path, server: FakeServer, account: str, *stores: Store
) -> AsyncIterator[tuple[Running, Running]]:
    """Two gateways; the account of the upstream is the client's own, or shared by the tenants."""
    more: dict[str, Any] = {"environ": ENVIRON, "tenants": TENANTS} if account == "shared" else {}
    first, second = stores[0], stores[-1]
    async with (
        serving(tmp_path, server, store=first, **more) as one,
        serving(tmp_path, server, store=second, **more) as other,
    ):
        yield one, other


class Asked:
    """An answer to a request for a response: its status, headers, and body or events."""

    def __init__(self, answer: aiohttp.ClientResponse, body: bytes) -> None:
        self.status, self.headers, self.body = answer.status, answer.headers, body
        is_stream = answer.content_type == "text/event-stream"
        self.events = events_of(body) if is_stream else []
        self.response: Any = self.events[0]["response"] if self.events else msgspec.json.decode(body)
        if self.events and "response" in self.events[-1]:
            self.response = self.events[-1]["response"]

    @property
    def id(self) -> str:
        return str(self.response["id"])


def events_of(body: bytes) -> list[Any]:
    return [msgspec.json.decode(one.partition(b"data: ")[2]) for one in body.split(b"\n\n") if b"data: " in one]


def request_of(given: Any, account: str, previous: str | None, more: dict[str, Any]) -> dict[str, Any]:
    key = KEY if account == "own" else "alice-key"
    body = {"model": "gpt-6-sol", "input": given, **({"previous_response_id": previous} if previous else {}), **more}
    return {"json": body, "headers": {"authorization": f"Bearer {key}"}}


async def ask(at: Running, given: Any, account: str = "own", previous: str | None = None, **more: Any) -> Asked:
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{at.url}/v1/responses", **request_of(given, account, previous, more)) as answer,
    ):
        body = b""
        try:
            async for chunk in answer.content.iter_any():
                body += chunk
        except aiohttp.ClientError:
            pass  # it broke off
        return Asked(answer, body)


@asynccontextmanager
async def begun(at: Running, given: Any, account: str, previous: str | None = None) -> AsyncIterator[str]:
    """The id of a response whose stream is under way."""
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{at.url}/v1/responses", **request_of(given, account, previous, {"stream": True})) as answer,
    ):
        assert answer.status == 200, await answer.text()
        body = b""
        while b"\n\n" not in body:
            body += await answer.content.readany()
        yield str(events_of(body)[0]["response"]["id"])


def said_in(records: Sequence[PlacedRecord]) -> str:
    """All that the messages of a journal say."""
    return msgspec.json.encode([one.record.content for one in records if isinstance(one.record, Message)]).decode()


def kill(at: Running) -> None:
    """From now on this gateway does nothing to its sessions any more, as one that was killed."""

    async def never(*_: object, **__: object) -> Any:
        raise JournalError("this process is no more")

    for held in at.held:
        for name in ("append", "store", "sync", "hold", "release", "close"):
            setattr(held.journal, name, never)


class Away:
    """Has stores be away: whatever they are asked fails, until they are back."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[None]:
        async def away(*_: object, **__: object) -> Any:
            raise JournalError("the database is away")

        with self._patch.context() as patched:
            for name in ("MemoryHome.create", "MemoryHome.open", "MemoryHome.load", "MemoryHome.fork"):
                patched.setattr(f"perdure.adapters.journal.memory_home.{name}", away)
            for name in ("hold", "sync", "release"):
                patched.setattr(f"perdure.adapters.journal.memory_home.OwnedJournal.{name}", away)
            for name in ("longest", "of_answer", "named"):
                patched.setattr(f"perdure.adapters.journal.memory_home.MemoryLinks.{name}", away)
            for name in ("get", "among", "put", "delete"):
                patched.setattr(f"perdure.adapters.journal.memory_home.MemoryDocuments.{name}", away)
            yield


def homes(now: list[float] | None = None) -> MemoryHomes:
    clock = [1_000.0] if now is None else now
    return MemoryHomes(clock=lambda: clock[0], lease_seconds=5.0)


@pytest.mark.parametrize("account", ACCOUNTS)
@in_loop
async def test_an_id_of_a_stream_whose_gateway_was_killed_goes_on(tmp_path: Path, account: str) -> None:
    """GW-11, finding A1: until the killed gateway's lease ends it is 503 with `Retry-After`; then both ids go on."""
    now = [1_000.0]
    store = homes(now)
    async with fake(upstream("one", "two " * 30, "three", "four", "five")) as server:
        async with gateways(tmp_path, server, account, store) as (one, other):
            first = await ask(one, "the word is heron", account)
            server.faults.append(HeldStream(after_events=4))
            async with begun(one, "and the number is 7", account, first.id) as second:
                kill(one)
                for previous in (first.id, second):
                    refused = await ask(other, "go on", account, previous)
                    assert refused.status == 503 and int(refused.headers["retry-after"]) > 0, refused.body
                now[0] += 6.0
                third = await ask(other, "and the colour is red", account, second)
                assert third.status == 200 and third.headers["x-perdure-mode"] == "view", third.body
                for word in ("the word is heron", "one", "and the number is 7", "and the colour is red"):
                    assert word in server.read[-1].said
                again = await ask(other, "another number: 8", account, first.id)
                assert again.status == 200 and "the number is 7" not in server.read[-1].said
                assert "the word is heron" in server.read[-1].said
                last = await ask(other, "and on", account, third.id)
                assert last.status == 200 and "the colour is red" in server.read[-1].said
        assert not server.upstream.statistics.violations


@in_loop
async def test_an_id_is_kept_before_its_client_sees_it(tmp_path: Path, postgres: str) -> None:
    """GW-11, finding A1: in a database, while the stream that names it is still under way."""
    open_store: Callable[[], Store] = partial(store_at, postgres)
    stores, hold = (open_store(), open_store()), HeldStream(after_events=4)
    async with (
        fake(upstream("one", "two " * 30, "three")) as server,
        gateways(tmp_path, server, "own", *stores) as (one, other),
    ):
        first = await ask(one, "the word is heron")
        server.faults.append(hold)
        async with begun(one, "the number is 7", "own", first.id) as second:
            reader = open_store()
            (tenant,) = await reader.tenants()
            known = await reader.home(tenant).links.of_answer(second)
            assert known is not None and known.messages == 3
            (info,) = await reader.home(tenant).sessions()
            assert "the number is 7" in said_in((await reader.home(tenant).load(info.id)).records)
            await reader.close()
            busy = await ask(other, "go on", "own", second)
            assert busy.status == 503 and "retry-after" in busy.headers
            hold.go_on.set()


@pytest.mark.parametrize("account", ACCOUNTS)
@in_loop
async def test_a_request_that_needs_its_session_waits_for_a_store_that_is_away(
    tmp_path: Path, account: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GW-11, finding A2: all that leans on what is stored gets 503 with `Retry-After`; nothing gets a 4xx."""
    away, store = Away(monkeypatch), homes()
    async with fake(upstream("one", "two", "three")) as server, gateways(tmp_path, server, account, store) as both:
        first = await ask(both[0], "the word is heron", account)
        item = first.response["output"][0]["id"]
        key = {"authorization": f"Bearer {KEY if account == 'own' else 'alice-key'}"}
        async with aiohttp.ClientSession(headers=key) as http:
            async with http.post(f"{both[0].url}/v1/conversations", json={}) as made:
                conversation = (await made.json())["id"]
            compact = {"model": "gpt-6-sol", "previous_response_id": first.id, "input": "what was it?"}
            async with http.post(f"{both[0].url}/v1/responses/compact", json=compact) as told:
                (sealed,) = (await told.json())["output"]
            bodies: list[dict[str, Any]] = [
                {"input": "on", "previous_response_id": first.id},
                {"input": "on", "conversation": conversation},
                {"input": [{"role": "user", "content": "hi"}, {"type": "item_reference", "id": item}]},
                {"input": [sealed, {"role": "user", "content": "on"}]},
            ]
            async with away():
                before = len(server.received)
                for at in both:
                    for ending in ("", "/input_tokens", "/compact"):
                        for body in bodies:
                            url = f"{at.url}/v1/responses{ending}"
                            async with http.post(url, json={"model": "gpt-6-sol", **body}) as told:
                                is_counted = told.status == 200 and ending == "/input_tokens" and at is both[0]
                                if not (is_counted and item in str(body)):  # which this one has in memory
                                    assert (told.status, "retry-after" in told.headers) == (503, True), (ending, body)
                    for method, path in (
                        ("GET", f"responses/{first.id}"),
                        ("GET", f"responses/{first.id}/input_items"),
                        ("DELETE", f"responses/{first.id}"),
                        ("POST", f"responses/{first.id}/cancel"),
                        ("GET", f"conversations/{conversation}"),
                        ("GET", f"conversations/{conversation}/items"),
                    ):
                        async with http.request(method, f"{at.url}/v1/{path}") as told:
                            assert (told.status, "retry-after" in told.headers) == (503, True), (method, path)
                assert {one.path for one in server.received[before:]} <= {"/v1/responses/input_tokens"}
        for at in both:
            assert (await ask(at, "on", account, first.id)).status == 200
            assert "the word is heron" in server.read[-1].said


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("account", ACCOUNTS)
@in_loop
async def test_what_began_while_the_store_was_away_goes_on_and_is_recorded(
    tmp_path: Path, account: str, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GW-11, REL-15, finding A2: it passes, marked; its id goes on at every gateway, and all of it is recorded then."""
    away, store = Away(monkeypatch), homes()
    async with fake(upstream("one", "two", "three")) as server, gateways(tmp_path, server, account, store) as both:
        async with away():
            first = await ask(both[0], "the word is heron", account, stream=stream)
            assert first.status == 200 and first.headers["x-perdure-mode"] == "passed"
            assert first.headers["x-perdure-reason"] == "journal"
            assert {event["response"]["id"] for event in first.events if "response" in event} <= {first.id}
            assert (await ask(both[0], "go on", account, first.id)).status == 503
        for at in (both[1], both[0]):
            second = await ask(at, "go on", account, first.id)
            assert second.status == 200 and second.headers["x-perdure-mode"] != "passed", second.body
            assert second.response["previous_response_id"] == first.id
            assert "the word is heron" in server.read[-1].said and "one" in server.read[-1].said
        third = await ask(both[0], "and on", account, second.id)
        assert third.status == 200 and "the word is heron" in server.read[-1].said
        (tenant,) = [name for name in await store.tenants() if name]
        kept = [await store.home(tenant).load(info.id) for info in await store.home(tenant).sessions()]
        assert kept and all("the word is heron" in said_in(loaded.records) for loaded in kept)


@in_loop
async def test_an_id_that_passed_is_its_tenants_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GW-11, SEC-7: of one account upstream, nobody else can continue, read or delete it, nor change its seal."""
    away, store = Away(monkeypatch), homes()
    async with fake(upstream("one")) as server, gateways(tmp_path, server, "shared", store) as (one, _):
        async with away():
            first = await ask(one, "my secret", "shared")
        asked, bare = len(server.received), first.id.rpartition(".")[0]
        async with aiohttp.ClientSession() as http:
            for key, name in (
                *(("bob-key", name) for name in (first.id, bare)),
                *(("alice-key", name) for name in (bare, f"{bare}.{'0' * 24}", f"{bare}x{first.id[len(bare) :]}")),
            ):
                head = {"authorization": f"Bearer {key}"}
                body = {"model": "gpt-6-sol", "input": "go on", "previous_response_id": name}
                async with http.post(f"{one.url}/v1/responses", json=body, headers=head) as told:
                    assert told.status == 400, (key, name)
                for method in ("GET", "DELETE"):
                    async with http.request(method, f"{one.url}/v1/responses/{name}", headers=head) as told:
                        assert told.status == 404, (key, name, method)
        assert len(server.received) == asked, "the account isn't asked, which has it"
        async with aiohttp.ClientSession(headers={"authorization": "Bearer alice-key"}) as http:
            async with http.get(f"{one.url}/v1/responses/{first.id}") as told:
                assert told.status == 200 and (await told.json())["id"] == first.id
            async with http.delete(f"{one.url}/v1/responses/{first.id}") as told:
                assert told.status == 200 and (await told.json())["id"] == first.id
        assert (await ask(one, "go on", "shared", first.id)).status == 400


@pytest.mark.parametrize("account", ACCOUNTS)
@in_loop
async def test_an_id_of_a_stream_that_broke_goes_on(tmp_path: Path, account: str) -> None:
    """GW-11: where the upstream broke it off, and where its client left."""
    async with fake(upstream("one", "two " * 30, "three", "four " * 30, "five")) as server:
        async with gateways(tmp_path, server, account, homes()) as both:
            first = await ask(both[0], "the word is heron", account)
            server.faults.append(CutStream(after_events=5))
            second = await ask(both[0], "the number is 7", account, first.id, stream=True)
            assert second.events[-1]["type"] != "response.completed"
            third = await ask(both[1], "go on", account, second.id)
            assert third.status == 200, third.body
            assert "heron" in server.read[-1].said and "the number is 7" in server.read[-1].said
            server.faults.append(HeldStream(after_events=4))
            async with begun(both[1], "the colour is red", account, third.id) as fourth:
                pass
            await until(lambda: not any(held.users for held in both[1].held))
            fifth = await ask(both[0], "go on", account, fourth)
            assert fifth.status == 200 and "the colour is red" in server.read[-1].said
        assert not server.upstream.statistics.violations


@in_loop
async def test_results_of_a_call_that_came_before_a_stream_broke(tmp_path: Path) -> None:
    """GW-11: a client may have run it; then what it gave is no reason to refuse the request."""
    looking = say("I look.", tool_use("Read", {"path": "a"}), "and " * 100)
    async with fake(upstream(looking, "two")) as server, gateways(tmp_path, server, "own", homes()) as both:
        server.faults.append(CutStream(after_events=16))
        first = await ask(both[0], "look", stream=True, tools=[READ])
        done = [event["item"] for event in first.events if event["type"] == "response.output_item.done"]
        (call,) = [item for item in done if item["type"] == "function_call"]
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "a heron"}
        second = await ask(both[1], [result], "own", first.id, tools=[READ])
        assert second.status == 200, second.body
        assert "a heron" in server.read[-1].said and not server.upstream.statistics.violations


@pytest.mark.parametrize("stream", [True, False])
@in_loop
async def test_an_answer_waits_for_the_store_before_its_end(
    tmp_path: Path, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GW-11: a client that has seen the end of an answer can rely on it, also where the store was away just then."""
    away, store = Away(monkeypatch), homes()
    async with fake(upstream("one", "two " * 30, "three")) as server, gateways(tmp_path, server, "own", store) as both:
        first = await ask(both[0], "the word is heron")
        tried, answered = asyncio.Event(), TurnMaker.answered
        hold = HeldStream(after_events=4)
        if stream:
            server.faults.append(hold)

        async def noted(self: TurnMaker, *given: Any) -> Any:
            if not hold.go_on.is_set():
                await hold.go_on.wait()
            try:
                return await answered(self, *given)
            except JournalError:
                tried.set()
                raise

        monkeypatch.setattr(TurnMaker, "answered", noted)
        slow = asyncio.create_task(ask(both[0], "the number is 7", "own", first.id, stream=stream))
        await until(lambda: len(server.read) == 2 and both[0].metric("perdure_answers_total", status="2xx") >= 2)
        async with away():
            hold.go_on.set()
            await tried.wait()
            assert not slow.done()
        second = await slow
        assert second.status == 200 and second.response["status"] == "completed"
        third = await ask(both[1], "go on", "own", second.id)
        assert third.status == 200 and "two two" in server.read[-1].said and "the number is 7" in server.read[-1].said


@in_loop
async def test_an_answer_whose_session_went_on_elsewhere_is_kept_all_the_same(tmp_path: Path) -> None:
    """GW-11: a paused gateway lost its session, or the same was asked twice at once; each answer's id goes on."""
    now = [1_000.0]
    store = homes(now)
    async with fake(upstream("one", "two " * 30, "three", "four", "five", "six")) as server:
        async with gateways(tmp_path, server, "own", store) as both:
            first = await ask(both[0], "the word is heron")
            hold = HeldStream(after_events=4)
            server.faults.append(hold)
            slow = asyncio.create_task(ask(both[0], "the number is 7", "own", first.id, stream=True))
            await until(lambda: len(server.read) == 2 and both[0].held[0].head.count == 3)
            await until(lambda: both[0].metric("perdure_answers_total", status="2xx") >= 2)
            twice = await ask(both[0], "the number is 7", "own", first.id)
            now[0] += 6.0
            taken = await ask(both[1], "the number is 8", "own", first.id)
            assert (twice.status, taken.status) == (200, 200)
            hold.go_on.set()
            second = await slow
            for asked in (second, twice, taken):
                for at in both:
                    assert (await ask(at, "go on", "own", asked.id)).status == 200
                    assert asked.response["output"][0]["content"][0]["text"].strip() in server.read[-1].said
                    assert "heron" in server.read[-1].said
        assert not server.upstream.statistics.violations
