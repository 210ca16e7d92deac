"""Stored responses at the gateway: fetched, listed, deleted, by their tenant alone (GW-6)."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest
from tests.gateways import KEY, Running, config_of, fake, in_loop, serving, upstream

from perdure.testing import FakeServer, say, thinking, tool_use

pytestmark = pytest.mark.e2e
READ: Any = {"type": "function", "name": "Read", "parameters": {"type": "object"}, "strict": False}


def script() -> list[Any]:
    return [say(thinking("let me look"), "I look.", tool_use("Read", {"path": "a"})), say("It is ", "empty.")]


async def talked(at: Running) -> tuple[Any, Any]:
    """Two responses, the second of which goes on from the first."""
    create = at.gpt().responses.create
    first = await create(model="gpt-6-sol", input="look", tools=[READ], instructions="You help.")
    call = first.output[-1]
    result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "nothing"}
    second = await create(model="gpt-6-sol", input=[result], tools=[READ], previous_response_id=first.id)
    return first, second


@in_loop
async def test_a_response_is_given_again_as_it_was(tmp_path: Path) -> None:
    """GW-6: also the one that its upstream was told not to keep, also after a restart."""
    async with fake(upstream(*script())) as server:
        async with serving(tmp_path, server) as at:
            first, second = await talked(at)
            assert at.bodies[1]["store"] is False
        async with serving(tmp_path, server) as at:
            responses = at.gpt().responses
            for made in (first, second):
                again = await responses.retrieve(made.id)
                assert again.output == made.output and again.output_text == made.output_text
                assert (again.usage.total_tokens, again.model, again.status) == (
                    *(made.usage.total_tokens, made.model),
                    "completed",
                )
            assert again.tools[0].name == "Read"
            pages = [item async for item in await responses.input_items.list(second.id, order="asc", limit=2)]
            assert [item.type for item in pages] == [
                *("message", "reasoning", "message", "function_call"),
                "function_call_output",
            ]
            assert pages[0].content[0].text == "look" and pages[1] == first.output[0]
            newest = await responses.input_items.list(second.id, limit=1)
            assert newest.data[0].output == "nothing" and newest.has_more


@pytest.mark.both_stores
@in_loop
async def test_what_is_deleted_is_gone_here_and_upstream(tmp_path: Path) -> None:
    """GW-6: nobody gets it again or goes on from it, also after a restart; the upstream forgets what it had."""
    async with fake(upstream(*script())) as server:
        async with serving(tmp_path, server) as at:
            first, second = await talked(at)
            responses = at.gpt(max_retries=0).responses
            await responses.delete(first.id)
            await responses.delete(second.id)
            deleted = [r.path for r in server.received if r.method == "DELETE"]
            assert deleted == [f"/v1/responses/{first.id}", f"/v1/responses/{second.id}"]
            for gone in (first.id, second.id):
                with pytest.raises(openai.NotFoundError):
                    await responses.delete(gone)
        async with serving(tmp_path, server) as at:
            responses = at.gpt(max_retries=0).responses
            for gone in (first.id, second.id):
                with pytest.raises(openai.NotFoundError):
                    await responses.retrieve(gone)
                with pytest.raises(openai.BadRequestError) as raised:
                    await responses.create(model="gpt-6-sol", input="go on", previous_response_id=gone)
                assert raised.value.code == "previous_response_not_found"


@pytest.mark.both_stores
@in_loop
async def test_another_tenant_has_no_part_in_it(tmp_path: Path) -> None:
    """GW-6, GW-4: not even where both are the same account upstream."""
    async with fake(upstream(*script())) as server:
        tenants = {name: {"key_env": name.upper(), "upstream_keys": {"openai": "SHARED"}} for name in ("alice", "bob")}
        environ = {"ALICE": "alice-key", "BOB": "bob-key", "SHARED": "shared-key"}
        async with serving(tmp_path, server, environ=environ, tenants=tenants) as at:
            alice = openai.AsyncOpenAI(api_key="alice-key", base_url=f"{at.url}/v1", max_retries=0)
            bob = openai.AsyncOpenAI(api_key="bob-key", base_url=f"{at.url}/v1", max_retries=0)
            at.clients += [alice, bob]
            made = await alice.responses.create(model="gpt-6-sol", input="my secret", tools=[READ])
            asked = len(server.received)
            for refused in (bob.responses.retrieve(made.id), bob.responses.delete(made.id)):
                with pytest.raises(openai.NotFoundError):
                    await refused
            with pytest.raises(openai.BadRequestError) as raised:
                await bob.responses.create(model="gpt-6-sol", input="go on", previous_response_id=made.id)
            assert raised.value.code == "previous_response_not_found"
            assert len(server.received) == asked, "the account isn't asked, which has it"
            assert (await alice.responses.retrieve(made.id)).output == made.output


@in_loop
async def test_no_spelling_reaches_what_is_another_tenants(tmp_path: Path) -> None:
    """GW-6, SEC-7: of one account upstream, a tenant names another's response, conversation or item in ways that only
    the upstream might understand. It isn't asked, whatever it would make of that."""
    async with fake(upstream(*script())) as server:
        tenants = {name: {"key_env": name.upper(), "upstream_keys": {"openai": "SHARED"}} for name in ("alice", "bob")}
        environ = {"ALICE": "alice-key", "BOB": "bob-key", "SHARED": "shared-key"}
        async with serving(tmp_path, server, environ=environ, tenants=tenants) as at:
            alice = openai.AsyncOpenAI(api_key="alice-key", base_url=f"{at.url}/v1", max_retries=0)
            at.clients.append(alice)
            made = await alice.responses.create(model="gpt-6-sol", input="my secret", tools=[READ])
            theirs, item, asked = made.id.encode(), made.output[0].id.encode(), len(server.received)
            named = b'{"model":"m","input":"go on","previous_response_id":"%b"}' % theirs
            conversation = b'"conv_' + b"0" * 48 + b'"'
            bodies = [
                (b'{"model":"m","input":"go on","previous\\u005fresponse_id":"%b"}' % theirs, ""),
                (b'{"model":"m","input":"go on","conv\\u0065rsation":%b}' % conversation, ""),
                (b'{"model":"m","input":"go on","conv\\u0065rsation":{"id":%b}}' % conversation, ""),
                (named[:-1] + b',"metadata":' + b"[" * 1_500 + b"]" * 1_500 + b"}", ""),
                (named[:-1] + b',"top_p":NaN}', ""),
                (named[:-1] + b',"user":"\\ud800"}', ""),
                (named.replace(b"go on", b"\xff"), ""),
                (b"\xef\xbb\xbf" + named, ""),
                (named.decode().encode("utf-16"), ""),
                (gzip.compress(named[:9]) + gzip.compress(named[9:]), "gzip"),
                (gzip.compress(gzip.compress(named)), "gzip, gzip"),
                (named, "unheard-of"),
                (b'{"model":"m","input":[{"type":"item_reference","id":"%b"}]}' % item, ""),
                (b'{"model":"m","input":[{"type":"item\\u005freference","id":"%b"}]}' % item, ""),
                (b'{"model":"m","input":[{"id":"%b"}]}' % item, ""),
                (b'{"model":"m","input":[{"id":"%b","type":null}]}' % item, ""),
            ]
            heads = {"authorization": "Bearer bob-key", "content-type": "application/json"}
            async with aiohttp.ClientSession() as bob:
                for ending in ("", "/compact", "/input_tokens"):
                    for body, encoding in bodies:
                        more = {"content-encoding": encoding} if encoding else {}
                        url = f"{at.url}/v1/responses{ending}"
                        async with bob.post(url, data=body, headers=heads | more) as told:
                            assert 400 <= told.status < 500, (ending, body[:200])
                            assert "error" in await told.json()
                one = f"{at.url}/v1/responses/{made.id}"
                ways = ["/", "//", "/input_items/", "/cancel/", "//cancel", "/anything"]
                for method in ("GET", "HEAD", "POST", "DELETE", "PATCH"):
                    for url in (*(one + way for way in ways), one.replace("/responses/", "/responses//"), one.upper()):
                        url = url.replace("HTTP://", "http://")
                        async with bob.request(method, url, headers=heads, allow_redirects=False) as told:
                            assert 400 <= told.status < 500, (method, url)
                    url = f"{at.url}/v1/conversations/{conversation.decode()[1:-1]}"
                    for way in ("", "/", "/items/", "/items/msg_1/", "//items"):
                        async with bob.request(method, url + way, headers=heads, allow_redirects=False) as told:
                            assert 400 <= told.status < 500, (method, url + way)
            assert [request.path for request in server.received[asked:]] == []


@in_loop
async def test_what_isnt_ours_is_the_upstreams(tmp_path: Path) -> None:
    """GW-7: a response from before, and a route that isn't managed."""
    async with FakeServer(upstream()) as server:
        async with openai.AsyncOpenAI(api_key=KEY, base_url=f"{server.url}/v1") as direct:
            made = await direct.responses.create(model="gpt-6-sol", input="hello")
        config = config_of(tmp_path, server.url)
        async with serving(tmp_path, server, config=config) as at:
            assert (await at.gpt().responses.retrieve(made.id)).output == made.output
            await at.gpt().responses.delete(made.id)
            with pytest.raises(openai.NotFoundError):
                await at.gpt().responses.retrieve(made.id)


@in_loop
async def test_a_template_that_the_provider_fills(tmp_path: Path) -> None:
    """GW-6, GW-7: it goes up with the view; where only the template names the model, the request passes through with
    all that was said before, since the upstream was told to store none of it."""
    async with fake(upstream("one", "two", "three")) as server, serving(tmp_path, server) as at:
        create, template = (
            at.gpt(max_retries=0).responses.with_raw_response.create,
            {"id": "pmpt_1", "variables": {"a": "b"}},
        )
        last, said = None, list[Any]()
        for model in ("gpt-6-sol", "gpt-6-sol", openai.omit):
            raw = await create(model=model, input="go on", prompt=template, previous_response_id=last)  # type: ignore[arg-type]
            last = raw.parse().id
            said.append((raw.headers["x-perdure-mode"], raw.headers.get("x-perdure-reason")))
        assert said == [("untouched", None), ("view", None), ("passed", "prompt")]
        assert [len(body["input"]) for body in at.bodies[1:]] == [3, 5]
        assert all(body["prompt"] == template for body in at.bodies)
        assert not server.upstream.statistics.violations
