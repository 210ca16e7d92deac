"""Several gateways over one store: a session goes on in any of them, and has one owner at a time (GW-5, SCL-3)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import anthropic
import msgspec
import openai
import pytest
from tests.agents import until
from tests.gateways import WINDOW, Running, config_of, fake, in_loop, serving, upstream

from perdure.adapters.journal.memory_home import MemoryHomes
from perdure.errors import JournalError
from perdure.gateway.sessions import CachedSession, TenantSessions
from perdure.ports.home import Home, Store
from perdure.settings import Settings
from perdure.testing import FakeUpstream, ModelRules, UpstreamReply, say, thinking, tool_use
from perdure.testing.server import FakeServer
from perdure.transcript.messages import Message
from perdure.transcript.texts import texts_of
from perdure.wiring.stores import store_at

if TYPE_CHECKING:
    from perdure.testing.postgres import PostgresServer

pytestmark = [pytest.mark.e2e, pytest.mark.only_on("files", "these name their stores themselves")]


@asynccontextmanager
async def two(
    tmp_path: Path, server: FakeServer, store: Store, another: Store | None = None
) -> AsyncIterator[tuple[Running, Running]]:
    other_store = another or store
    async with serving(tmp_path, server, store=store) as one, serving(tmp_path, server, store=other_store) as other:
        yield one, other


@pytest.fixture(params=("memory", "postgres"))
def open_store(request: pytest.FixtureRequest) -> Callable[[], Store]:
    """Opens the store of a test, as one more process would."""
    if request.param == "memory":
        shared = MemoryHomes(waits=2.0)
        return lambda: shared
    return partial(store_at, request.getfixturevalue("postgres"))


class Talk:
    """A client that says its whole history to whichever gateway is asked."""

    def __init__(self, model: str = "fake-model") -> None:
        self.messages, self.model = list[Any](), model

    async def say(self, at: Running, text: str) -> str:
        self.messages.append({"role": "user", "content": text})
        answer = await at.claude(max_retries=0).messages.create(model=self.model, max_tokens=50, messages=self.messages)
        said = str(answer.content[0].text)  # type: ignore[union-attr]
        self.messages.append({"role": "assistant", "content": said})
        return said


def home_of(at: Running) -> Home:
    """The home of the only tenant that asked this gateway."""
    (tenant,) = at.gateway.tenants_open()
    return at.gateway.store.home(tenant)


async def words_in(home: Home) -> list[str]:
    """What was said in the only session."""
    (info,) = await home.sessions()
    records = [placed.record for placed in (await home.load(info.id)).records]
    return ["".join(texts_of(one.blocks)) for one in records if isinstance(one, Message)]


def forks(*gateways: Running) -> float:
    return sum(at.metric("perdure_forks_total") for at in gateways)


@in_loop
async def test_a_session_goes_on_in_whichever_gateway_is_asked(tmp_path: Path, open_store: Callable[[], Store]) -> None:
    """GW-5, SCL-3: each request may come to another one; nothing is lost, said twice or forked."""
    store, said = open_store(), [f"answer {n}" for n in range(6)]
    async with fake(upstream(*said)) as server, two(tmp_path, server, open_store(), open_store()) as (one, other):
        talk, expected = Talk(), list[str]()
        for n, at in enumerate((one, other, one, one, other, one)):
            assert await talk.say(at, f"question {n}") == said[n]
            expected += [f"question {n}", said[n]]
        assert await words_in(home_of(one)) == expected
        assert forks(one, other) == 0 and not server.upstream.statistics.violations
        for at in (one, other):
            assert len(at.held) <= 1 and at.metric("perdure_passed_total", reason="journal") == 0
    await store.close()


@in_loop
async def test_the_folder_that_a_gateway_stands_in_is_no_project(
    tmp_path: Path, open_store: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """GW-5, RCL-1: sessions of a tenant are one project, wherever their gateways were started."""
    store, folders = open_store(), [tmp_path / "a", tmp_path / "b"]
    async with fake(upstream("one", "two")) as server, two(tmp_path, server, open_store(), open_store()) as gateways:
        for at, folder in zip(gateways, folders, strict=True):
            folder.mkdir()
            monkeypatch.chdir(folder)
            await Talk().say(at, f"begun in {folder.name}")
        kept = await home_of(gateways[0]).sessions()
        assert len(kept) == 2 and len({one.project for one in kept}) == 1
    await store.close()


@in_loop
async def test_a_session_is_named_by_whichever_gateway_answered_first(
    tmp_path: Path, open_store: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """GW-9, SCL-3: also where that one is killed, or loses the session, as soon as its client is answered."""
    store = open_store()
    async with (
        fake(upstream("one", "two")) as server,
        two(tmp_path, server, open_store(), open_store()) as (one, other),
    ):

        async def killed(_: object) -> None:
            """Nothing comes after the answer."""

        monkeypatch.setattr(one.gateway.active.turns, "after", killed)
        talk = Talk()
        await talk.say(one, "Mend the parser")
        await talk.say(other, "And its test")
        (info,) = await home_of(other).sessions()
        assert info.title == "Mend the parser" and str(info.client).startswith("Anthropic's SDK")
    await store.close()


@in_loop
async def test_a_session_is_nobody_elses_while_a_request_is_under_way(tmp_path: Path) -> None:
    """SCL-3: however long its model takes; the other gateway passes what it is asked through as it came."""
    now, store = [1_000.0], MemoryHomes(clock=lambda: now[0], lease_seconds=3.0)
    async with fake(upstream("first", "slow", "beside")) as server, two(tmp_path, server, store) as (one, other):
        talk = Talk()
        await talk.say(one, "hello")
        begun, go_on = asyncio.Event(), asyncio.Event()
        asked = one.gateway.client.send

        async def held_up(*given: Any, **named: Any) -> Any:
            begun.set()
            await go_on.wait()
            return await asked(*given, **named)

        one.gateway.client.send = held_up  # type: ignore[method-assign]
        slow = asyncio.create_task(talk.say(one, "and on"))
        await begun.wait()
        for _ in range(4):  # longer than a lease, by the store's clock
            await asyncio.sleep(1.1)
            now[0] += 2.0
        branch = Talk()
        branch.messages = talk.messages[:-1]
        await branch.say(other, "meanwhile")
        assert other.metric("perdure_passed_total", reason="journal") == 1
        go_on.set()
        await slow
        assert one.metric("perdure_unrecorded_total", reason="journal") == 0
        assert (await words_in(home_of(one)))[:3] == ["hello", "first", "and on"]


@in_loop
async def test_an_owner_that_was_paused_writes_nothing_more_and_opens_the_session_again(tmp_path: Path) -> None:
    """SCL-3: its answer reaches the client, who says it again; what the new owner wrote stands."""
    now, store = [1_000.0], MemoryHomes(clock=lambda: now[0])
    async with fake(upstream("first", "second", "third")) as server, serving(tmp_path, server, store=store) as at:
        talk = Talk()
        await talk.say(at, "hello")
        (held,) = at.held
        asked = at.gateway.client.send

        async def paused(*given: Any, **named: Any) -> Any:
            now[0] += 1_000.0
            home = home_of(at)
            thief = await home.open(held.id)
            await thief.journal.append((Message.of("user", "from elsewhere", note="thief"),))
            await thief.journal.close()
            return await asked(*given, **named)

        at.gateway.client.send = paused  # type: ignore[method-assign]
        assert await talk.say(at, "and on") == "second"
        at.gateway.client.send = asked  # type: ignore[method-assign]
        assert held.journal.is_lost
        assert await words_in(home_of(at)) == ["hello", "first", "from elsewhere"]
        assert await talk.say(at, "further") == "third"
        assert (await words_in(home_of(at)))[3:] == ["and on", "second", "further", "third"]
        (again,) = at.held
        assert again.session is not held.session and not again.journal.is_lost
        async with aiohttp.ClientSession() as http, http.get(f"{at.url}/readyz") as answer:
            assert answer.status == 200


@in_loop
async def test_who_goes_on_elsewhere_at_once_is_known_there(
    tmp_path: Path, open_store: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """GW-5, SCL-3: what was said is the store's before a client sees the end of its answer, however slow the store."""
    left = TenantSessions.left

    async def slowly(self: TenantSessions, held: CachedSession) -> None:
        await asyncio.sleep(0.3)
        await left(self, held)

    monkeypatch.setattr(TenantSessions, "left", slowly)
    stores = open_store(), open_store()
    async with fake() as server, two(tmp_path, server, *stores) as (one, other):
        talk = Talk()
        for at in (one, other):
            await talk.say(at, "hello")
        assert len(await home_of(one).sessions()) == 1
        first = await one.gpt().responses.create(model="m", input="hello")
        second = await other.gpt().responses.create(model="m", input="and on", previous_response_id=first.id)
        assert second.status == "completed" and not server.upstream.statistics.violations


@in_loop
async def test_what_one_gateway_knows_every_gateway_knows(tmp_path: Path, open_store: Callable[[], Store]) -> None:
    """GW-5, GW-6, GW-9: stored answers and their deletion, conversations, and what a tenant used today."""
    stores, more = (open_store(), open_store()), {"limits": {"tokens_per_day": 10_000}}
    async with (
        fake(upstream("one", "two", "three")) as server,
        serving(tmp_path, server, store=stores[0], **more) as one,
        serving(tmp_path, server, store=stores[1], **more) as other,
    ):
        first = await one.gpt().responses.create(model="m", input="hello")
        kept = await one.gpt().conversations.create(items=[{"role": "user", "content": "of a heron"}])
        asked, client = one.gpt(max_retries=0).responses, other.gpt(max_retries=0)
        second = await client.responses.create(model="m", input="and on", previous_response_id=first.id)
        assert (await asked.retrieve(second.id)).output_text == "two"
        said = await client.responses.create(model="m", input="what?", conversation=kept.id)
        assert said.output_text == "three" and "of a heron" in str(other.bodies[-1]["input"])
        items = [item async for item in await one.gpt().conversations.items.list(kept.id, order="asc")]
        assert len(items) == 3
        assert not server.upstream.statistics.violations
        await client.responses.delete(second.id)  # also upstream, which was never told to keep it
        for at in (one, other):
            with pytest.raises(openai.NotFoundError):
                await at.gpt(max_retries=0).responses.retrieve(second.id)
        (tenant,) = other.gateway.tenants_open()
        now, limits = other.gateway.clock.now(), other.gateway.active.gateway.limits
        await other.gateway.usage.save(now)
        used = (await one.gateway.usage.of(tenant, now + 6, limits)).today(now)
        assert used.requests >= 3 and used.prompt_tokens > 20


@in_loop
async def test_a_cap_on_spending_holds_at_all_gateways_together(
    tmp_path: Path, open_store: Callable[[], Store]
) -> None:
    """GW-5, OBS-2: of a session that moves between them, and of a day; it is full for both where it is for one."""
    for caps in ({"session_cap_usd": 0.03}, {"day_cap_usd": 0.03}):
        home, stores = tmp_path / next(iter(caps)), (open_store(), open_store())
        async with fake() as server:
            settings = Settings(window_tokens=WINDOW, durability="process", notes=False, **caps)
            config = config_of(home, server.url, settings=settings)
            async with (
                serving(home, server, config=config, store=stores[0]) as one,
                serving(home, server, config=config, store=stores[1]) as other,
            ):
                talk = Talk(model="claude-sonnet-4-6")  # 3 and 15 dollars for a million tokens
                with pytest.raises(anthropic.APIStatusError, match=r"the cap of \$0.03 is reached"):
                    for number in range(20):
                        await talk.say((one, other)[number % 2], f"{number} " + "word " * 3_000)
                assert 2 <= len(talk.messages) // 2 <= 6, "and not twice as many"
                for at in (one, other):
                    with pytest.raises(anthropic.APIStatusError):
                        await talk.say(at, "once more")
                    talk.messages.pop()
                assert sum(at.metric("perdure_refused_total", reason="spending_cap") for at in (one, other)) == 3


@pytest.mark.nightly
@in_loop
async def test_a_database_that_is_away_does_not_stop_the_proxy(
    tmp_path: Path, postgres_server: PostgresServer, postgres: str
) -> None:
    """GW-5, REL-15: what can't be recorded is answered all the same; once it is back, the session goes on there."""
    async with fake() as server, serving(tmp_path, server, store=store_at(postgres)) as at:
        talk = Talk()

        async def ready() -> int:
            async with aiohttp.ClientSession() as http, http.get(f"{at.url}/readyz") as answer:
                return answer.status

        await talk.say(at, "before")
        (held,) = at.held
        await until(lambda: not held.users and held.journal._journal._held_until == 0.0)  # type: ignore[attr-defined]
        await asyncio.to_thread(postgres_server.kill)
        try:
            for said in ("while it is away", "and still"):
                assert await talk.say(at, said) == "ok"
            assert await ready() == 503 and at.metric("perdure_passed_total", reason="journal") == 2
        finally:
            await asyncio.to_thread(postgres_server.resume)
        await talk.say(at, "after")
        (held,) = at.held
        assert await ready() == 200 and held.head.count == len(talk.messages) == 8 and forks(at) == 0
        assert (await words_in(home_of(at)))[::2] == ["before", "while it is away", "and still", "after"]


class Thinker(FakeUpstream):
    """Thinks before each call of a tool; what it thought holds behind the same beginning only."""

    def respond(self, body: bytes, **more: Any) -> UpstreamReply:
        number = self.statistics.answered
        call = tool_use("Read", {"file_path": f"src/file_{number}.py"})
        return super().respond(body, reply=say(thinking(f"What does {number} hold?"), call), session="s", **more)


class Loop:
    """A client in a loop of tools, whose model thinks."""

    def __init__(self) -> None:
        self.messages: list[Any] = [{"role": "user", "content": [{"type": "text", "text": "Read all files."}]}]

    async def step(self, at: Running) -> tuple[int, Any]:
        """One call more; the status and the headers of the answer."""
        asked = {"model": "claude-opus-5-5", "max_tokens": 2_000, "messages": self.messages}
        asked |= {"tools": [{"name": "Read", "input_schema": {"type": "object"}}], "thinking": {"type": "adaptive"}}
        headers = {"x-api-key": "one-key"}
        async with (
            aiohttp.ClientSession() as http,
            http.post(f"{at.url}/v1/messages", json=asked, headers=headers) as got,
        ):
            if got.status == 200:
                content = (await got.json())["content"]
                result = f"line {len(self.messages)} of a file\n" * 500
                block = {"type": "tool_result", "tool_use_id": content[-1]["id"], "content": result}
                self.messages += [{"role": "assistant", "content": content}, {"role": "user", "content": [block]}]
            return got.status, got.headers


def messages_of(server: FakeServer) -> list[list[Any]]:
    """The messages of each request, without breakpoints of caches."""
    bodies = (msgspec.json.decode(re.sub(rb',?"cache_control":\{[^{}]*\}', b"", r.body)) for r in server.received)
    return [body["messages"] for body in bodies]


def thinker(window: int) -> Thinker:
    return Thinker(rules=ModelRules(window_tokens=window))


@pytest.mark.parametrize("window", [20_000, 100_000])
@in_loop
async def test_what_somebody_else_has_is_sent_as_its_session_shows_it(tmp_path: Path, window: int) -> None:
    """SCL-3, GW-7: also where that is shorter than what the client has; what the model thought goes on to hold."""
    store, settings = MemoryHomes(waits=0.1), Settings(window_tokens=window, durability="process")
    async with (
        fake(thinker(window)) as server,
        serving(tmp_path, server, store=store, settings=settings) as one,
        serving(tmp_path, server, store=store, settings=settings) as other,
    ):
        loop = Loop()
        for _ in range(16):
            status, headers = await loop.step(one)
            assert status == 200
        assert headers["x-perdure-mode"] == ("view" if window == 20_000 else "untouched")
        (held,) = one.held
        thief = await home_of(one).open(held.id)
        before, moved = messages_of(server)[-1], len(server.upstream.statistics.prefix_moves)
        status, headers = await loop.step(other)
        assert (status, headers["x-perdure-mode"], headers["x-perdure-reason"]) == (200, "passed", "journal")
        assert messages_of(server)[-1][: len(before)] == before
        await thief.journal.close()
        assert (await loop.step(one))[0] == 200
        assert not server.upstream.statistics.violations, server.upstream.statistics.violations
        assert len(server.upstream.statistics.prefix_moves) == moved


@in_loop
async def test_what_a_gateway_knows_may_be_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SCL-3, GW-7: what another one decided since is read before anything is sent that can't be recorded."""
    store, settings = MemoryHomes(), Settings(window_tokens=20_000, durability="process")
    async with (
        fake(thinker(20_000)) as server,
        serving(tmp_path, server, store=store, settings=settings) as one,
        serving(tmp_path, server, store=store, settings=settings) as other,
    ):
        loop = Loop()
        for number in range(16):
            assert (await loop.step(other if number == 2 else one))[0] == 200
        before = messages_of(server)[-1]

        async def away(_: object) -> bool:
            raise JournalError("the connection was lost")

        monkeypatch.setattr("perdure.gateway.sessions.LateSyncJournal.hold", away)
        status, headers = await loop.step(other)
        assert (status, headers["x-perdure-mode"], headers["x-perdure-reason"]) == (200, "passed", "journal")
        assert messages_of(server)[-1][: len(before)] == before
        assert not server.upstream.statistics.violations


@in_loop
async def test_a_history_that_needs_its_session_is_to_be_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GW-7, REL-15: as a fault that passes, not as a prompt that is too long: then clients would give up."""
    store, settings = MemoryHomes(), Settings(window_tokens=20_000, durability="process")
    async with (
        fake(thinker(20_000)) as server,
        serving(tmp_path, server, store=store, settings=settings) as one,
        serving(tmp_path, server, store=store, settings=settings) as other,
    ):
        loop = Loop()
        for _ in range(16):
            assert (await loop.step(one))[0] == 200
        with monkeypatch.context() as patched:

            async def away(*_: object, **__: object) -> Any:
                raise JournalError("the database is away")

            patched.setattr("perdure.gateway.sessions.open_session", away)
            status, headers = await loop.step(other)
            assert status == 503 and headers["retry-after"] == "2"
            assert other.metric("perdure_refused_total", reason="journal") == 1
        status, headers = await loop.step(other)
        assert (status, headers["x-perdure-mode"]) == (200, "view")
