"""Conversations of the Responses API, by name, with OpenAI's SDK (GW-6)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest
from tests.agents import until
from tests.gateways import KEY, Running, fake, in_loop, kept_by, serving, upstream

from perdure.events import CompactionDone
from perdure.gateway.conversations import CONVERSATIONS
from perdure.testing import CutStream, FakeServer, FakeUpstream, say, thinking, tool_use

pytestmark = pytest.mark.e2e
READ: Any = {"type": "function", "name": "Read", "parameters": {"type": "object"}, "strict": False}
MODEL = "gpt-6-sol"


@asynccontextmanager
async def api(tmp_path: Path, way: str, *script: Any) -> AsyncIterator[tuple[openai.AsyncOpenAI, FakeServer]]:
    """The API itself, or the gateway in front of it."""
    async with fake(upstream(*script)) as server:
        if way == "direct":
            async with openai.AsyncOpenAI(api_key="k", base_url=f"{server.url}/v1", max_retries=0) as client:
                yield client, server
        else:
            async with serving(tmp_path, server) as at:
                yield at.gpt(max_retries=0), server


def texts(page: Any) -> list[str]:
    return [item.content[0].text for item in page.data if item.type == "message"]


@pytest.mark.parametrize("way", ["direct", "gateway"])
@in_loop
async def test_a_conversation_is_what_it_is_at_the_provider(tmp_path: Path, way: str) -> None:
    """GW-6, GW-7: made with items, asked in, read, added to, taken from, named anew, deleted."""
    async with api(tmp_path, way, "Hello Ada.", "Two.", "Still here.") as (client, server):
        conversations, create = client.conversations, client.responses.create
        made = await conversations.create(
            items=[{"type": "message", "role": "user", "content": "I am Ada."}], metadata={"who": "ada"}
        )
        assert made.id.startswith("conv_") and made.metadata == {"who": "ada"}
        said = await create(model=MODEL, conversation=made.id, input="Say hello.")
        assert said.output_text == "Hello Ada." and said.conversation and said.conversation.id == made.id
        listed = await conversations.items.list(made.id, order="asc")
        assert texts(listed) == ["I am Ada.", "Say hello.", "Hello Ada."] and listed.data[2].id == said.output[0].id
        added = await conversations.items.create(made.id, items=[{"role": "user", "content": "And one and one?"}])
        assert texts(added) == ["And one and one?"] and not added.has_more
        said = await create(model=MODEL, conversation={"id": made.id}, input=[])
        assert said.output_text == "Two."
        newest = await conversations.items.list(made.id, limit=2)
        assert texts(newest) == ["Two.", "And one and one?"] and newest.has_more
        one = await conversations.items.retrieve(newest.data[1].id, conversation_id=made.id)
        assert one == newest.data[1]
        assert (await conversations.items.delete(newest.data[1].id, conversation_id=made.id)).id == made.id
        everything = ["I am Ada.", "Say hello.", "Hello Ada.", "Two."]
        assert texts(await conversations.items.list(made.id, order="asc")) == everything
        said = await create(model=MODEL, conversation=made.id, input="And now?")
        assert said.output_text == "Still here."
        assert texts(await conversations.items.list(made.id, order="asc")) == [*everything, "And now?", "Still here."]
        assert (await conversations.update(made.id, metadata={"who": "eve"})).metadata == {"who": "eve"}
        assert (await conversations.retrieve(made.id)).metadata == {"who": "eve"}
        many: Any = [{"role": "user", "content": "x"}] * 21
        for refused in (
            conversations.items.create(made.id, items=many),
            conversations.create(items=[{"type": "message", "role": "king", "content": "x"}]),  # type: ignore[list-item]
            create(model=MODEL, conversation=made.id, previous_response_id=said.id, input="both"),
        ):
            with pytest.raises(openai.BadRequestError):
                await refused
        with pytest.raises(openai.NotFoundError):
            await conversations.items.retrieve("msg_1", conversation_id=made.id)
        with pytest.raises(openai.NotFoundError):
            await client.get(f"/conversations/{made.id}/nothing", cast_to=object)
        assert (await conversations.delete(made.id)).deleted
        for gone in (
            conversations.retrieve(made.id),
            conversations.items.list(made.id),
            create(model=MODEL, conversation=made.id, input="hello?"),
        ):
            with pytest.raises(openai.NotFoundError):
                await gone
        if way == "gateway":
            assert not any(r.path.startswith("/v1/conversations") for r in server.received if r.method == "POST")


async def long_talk(at: Running, conversation: str, turns: range) -> None:
    """Turns that fill the window, each with a call; nothing is said twice."""
    create = at.gpt(max_retries=0).responses.create
    for n in turns:
        given: Any = f"Look at file {n}. " + f"Remark {n}: keep it short. " * 250
        for _ in range(2):
            said = await create(model=MODEL, conversation=conversation, input=given, tools=[READ])
            calls = [item for item in said.output if item.type == "function_call"]
            output = f"line of file {n}: value = {n * 7}\n" * 200
            given = [{"type": "function_call_output", "call_id": call.call_id, "output": output} for call in calls]
        assert said.output_text == f"done with {n}"


@pytest.mark.nightly
@in_loop
async def test_a_conversation_of_any_length_over_a_restart(tmp_path: Path) -> None:
    """GW-6: 40 turns with reasoning far beyond the window; the upstream never hears of a conversation, and `items`
    still has all of it."""
    turns = 40
    script: list[Any] = []
    for n in range(turns):
        script += [
            say(thinking(f"hm {n}"), tool_use("Read", {"path": f"{n}.py"})),
            say(thinking("so"), f"done with {n}"),
        ]
    async with fake(upstream(*script)) as server:
        async with serving(tmp_path, server) as at:
            made = await at.gpt().conversations.create()
            await long_talk(at, made.id, range(25))
        async with serving(tmp_path, server) as at:
            await long_talk(at, made.id, range(25, turns))
            assert any(isinstance(event, CompactionDone) for event in at.sink.events)
            assert len(at.held) == 1, "one session"
            items = [item async for item in await at.gpt().conversations.items.list(made.id, order="asc", limit=100)]
        assert not server.upstream.statistics.violations
        assert not any("conversation" in body or "previous_response_id" in body for body in at.bodies)
        kinds = ["message", "reasoning", "function_call", "function_call_output", "reasoning", "message"]
        assert [item.type for item in items] == kinds * turns
        assert len({item.id for item in items}) == len(items)
        async with kept_by(tmp_path) as home:
            kept = await home.documents(CONVERSATIONS).get(made.id)
        assert kept and 0 < len(kept.data) < 1_000, "what was said stands in the session alone"


@in_loop
async def test_answers_at_the_same_time_all_join_it(tmp_path: Path) -> None:
    """GW-6: of four requests at once none waits for another, and none is lost."""
    async with (
        fake(
            FakeUpstream(script=["hello", *(f"answer {n}" for n in range(4)), "the end"]), delay_seconds=0.02
        ) as server,
        serving(tmp_path, server) as at,
    ):
        client = at.gpt(max_retries=0)
        made = await client.conversations.create()
        await client.responses.create(model=MODEL, conversation=made.id, input="hi")

        async def ask(n: int) -> None:
            async with client.responses.stream(model=MODEL, conversation=made.id, input=f"question {n}") as stream:
                assert (await stream.get_final_response()).conversation.id == made.id

        await asyncio.gather(*map(ask, range(4)))
        said = texts(await client.conversations.items.list(made.id, order="asc"))
        assert said[:2] == ["hi", "hello"] and sorted(said[2:]) == sorted(
            text for n in range(4) for text in (f"question {n}", f"answer {n}")
        )
        await client.responses.create(model=MODEL, conversation=made.id, input="last")
        assert len(at.bodies[-1]["input"]) == 11


@in_loop
async def test_an_answer_that_breaks_off_or_is_left_changes_nothing(tmp_path: Path) -> None:
    """GW-6: what was asked joins a conversation with its answer."""
    async with (
        fake(upstream("a word " * 400, "cut off", "ok"), delay_seconds=0.02) as server,
        serving(tmp_path, server) as at,
    ):
        client = at.gpt(max_retries=0)
        made = await client.conversations.create()
        asked = {"model": MODEL, "conversation": made.id}
        async with await client.responses.create(**asked, input="left", stream=True) as events:
            await anext(aiter(events))
        await until(lambda: at.metric("perdure_cancelled_total") == 1)
        server.faults.append(CutStream())
        async with await client.responses.create(**asked, input="cut", stream=True) as events:
            with pytest.raises(openai.APIConnectionError):
                [event async for event in events]
        assert (await client.conversations.items.list(made.id)).data == []
        await client.responses.create(model=MODEL, conversation=made.id, input="asked")
        assert texts(await client.conversations.items.list(made.id, order="asc")) == ["asked", "ok"]


@in_loop
async def test_a_compaction_in_a_conversation(tmp_path: Path) -> None:
    """GW-6: a trigger compacts its session; what was said in front of the trigger is kept."""
    async with fake(upstream("one", "two")) as server, serving(tmp_path, server) as at:
        client = at.gpt(max_retries=0)
        made = await client.conversations.create()
        await client.responses.create(model=MODEL, conversation=made.id, input="first")
        trigger: Any = [{"role": "user", "content": "second"}, {"type": "compaction_trigger"}]
        told = await client.responses.create(model=MODEL, conversation=made.id, input=trigger)
        assert [item.type for item in told.output] == ["compaction"] and told.conversation.id == made.id
        assert texts(await client.conversations.items.list(made.id, order="asc")) == ["first", "one", "second"]
        await client.responses.create(model=MODEL, conversation=made.id, input="third")
        assert texts(await client.conversations.items.list(made.id, order="asc"))[2:] == ["second", "third", "two"]


@in_loop
async def test_a_deleted_response_stays_in_its_conversation(tmp_path: Path) -> None:
    """GW-6: nobody gets it by its id; the conversation goes on."""
    async with fake(upstream("one", "two")) as server, serving(tmp_path, server) as at:
        client = at.gpt(max_retries=0)
        made = await client.conversations.create()
        first = await client.responses.create(model=MODEL, conversation=made.id, input="first")
        await client.responses.delete(first.id)
        assert (await client.responses.create(model=MODEL, conversation=made.id, input="second")).output_text == "two"
        assert len(at.bodies[-1]["input"]) == 3


@pytest.mark.both_stores
@in_loop
async def test_nobody_elses(tmp_path: Path) -> None:
    """GW-6, GW-4: one that the upstream has is the upstream's; where tenants share its key, it isn't asked."""
    async with fake(upstream("one", "two")) as server:
        async with openai.AsyncOpenAI(api_key=KEY, base_url=f"{server.url}/v1") as direct:
            theirs = await direct.conversations.create(metadata={"at": "provider"})
        async with serving(tmp_path / "own", server) as at:
            assert (await at.gpt().conversations.retrieve(theirs.id)).metadata == {"at": "provider"}
            raw = await at.gpt().responses.with_raw_response.create(model=MODEL, conversation=theirs.id, input="hello")
            assert raw.headers["x-perdure-reason"] == "conversation" and raw.parse().output_text == "one"
            assert at.metric("perdure_passed_total", reason="conversation") == 1
        tenants = {name: {"key_env": name.upper(), "upstream_keys": {"openai": "SHARED"}} for name in ("alice", "bob")}
        environ = {"ALICE": "alice-key", "BOB": "bob-key", "SHARED": "shared-key"}
        async with serving(tmp_path / "shared", server, environ=environ, tenants=tenants) as at:
            alice = openai.AsyncOpenAI(api_key="alice-key", base_url=f"{at.url}/v1", max_retries=0)
            bob = openai.AsyncOpenAI(api_key="bob-key", base_url=f"{at.url}/v1", max_retries=0)
            at.clients += [alice, bob]
            hers, asked = await alice.conversations.create(), len(server.received)
            for identity in (hers.id, theirs.id):
                for refused in (
                    bob.conversations.retrieve(identity),
                    bob.conversations.delete(identity),
                    bob.conversations.items.list(identity),
                    bob.responses.create(model=MODEL, conversation=identity, input="tell me"),
                ):
                    with pytest.raises(openai.NotFoundError):
                        await refused
            assert len(server.received) == asked, "the account isn't asked, which has it"
            assert (await alice.conversations.retrieve(hers.id)).id == hers.id


@in_loop
async def test_other_apis_have_that_path_too(tmp_path: Path) -> None:
    """GW-7: what OpenAI's API wouldn't be asked passes through."""
    async with fake() as server, serving(tmp_path, server) as at:
        server.routes["POST", "/v1/conversations"] = {"object": "conversation.response"}
        told: Any = await at.gpt().post("/conversations", body={"inputs": "hi", "model": "m"}, cast_to=object)
        assert told == {"object": "conversation.response"}
        server.routes["GET", "/conversations/7"] = {"of": "somebody else's API"}
        async with aiohttp.request("GET", f"{at.url}/conversations/7") as answer:
            assert await answer.json() == {"of": "somebody else's API"}
