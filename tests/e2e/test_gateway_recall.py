"""What left the view of a gateway's client comes back: by our tool, unseen by the client, or by a command.

GW-8, GW-2, GW-3, RCL-1.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import anthropic
import anyio.to_thread
import msgspec
import openai
import pytest
from tests.commands import command
from tests.gateways import (
    KEY,
    CodingClient,
    Running,
    StoresOfTest,
    config_of,
    fake,
    in_loop,
    lose_index,
    serving,
    vault_codes,
)

from perdure.events import CompactionDone, PrefixMoved
from perdure.gateway.recall import MOST_ROUNDS
from perdure.gateway.requests import ClientRequest, ConversationTurn, client_session
from perdure.settings import Settings
from perdure.testing import FakeServer, FakeUpstream, ModelRules, say, thinking, tool_use

pytestmark = pytest.mark.e2e
COMMAND = re.compile(r"`perdure recall (session-\w+) X`")


def upstream(turns: int) -> FakeUpstream:
    script: list[Any] = []
    for n in range(turns):
        script += [say(tool_use("Read", {"file_path": f"f{n}.py"}, id=f"toolu_{n}")), f"done {n}"]
    rules = ModelRules(window_tokens=100_000)
    return FakeUpstream(rules=rules, script=script)


@in_loop
async def test_it_is_told_once_where_originals_are_and_the_command_works(tmp_path: Path, kept_on: StoresOfTest) -> None:
    """It stands once in each body that needs it, also behind compactions, and what it names gives the original."""
    turns = 12
    async with fake(upstream(turns)) as server, serving(tmp_path, server) as at:
        client, messages = at.claude(max_retries=0), list[Any]()
        for n in range(turns):
            messages.append({"role": "user", "content": f"Look at {n}. " + f"Remark {n}: keep it short. " * 1_500})
            for _ in range(2):
                said = await client.messages.create(model="fake-model", max_tokens=500, messages=messages)
                messages.append(
                    {"role": "assistant", "content": [b.model_dump(exclude_none=True) for b in said.content]}
                )
                if calls := [block for block in said.content if block.type == "tool_use"]:
                    content = f"line of file {n}: value {n * 7}\n" * 3_000
                    result = {"type": "tool_result", "tool_use_id": calls[0].id, "content": content}
                    messages.append({"role": "user", "content": [result]})
        assert [e for e in at.sink.events if isinstance(e, CompactionDone)]
        stats = server.upstream.statistics
        moves = len([e for e in at.sink.events if type(e).__name__ == "PrefixMoved"])
        assert not stats.violations and stats.refused == 0 and len(stats.prefix_moves) <= moves
        told = [str(body["messages"]).count("There is no recall tool here") for body in at.bodies]
        assert told == [0] + [1] * (len(told) - 1), "once, from the first offloaded result on"
        last = str(at.bodies[-1]["messages"])
        assert "with the recall tool" not in last and "a person gets by its id" in last
        (session,) = set(COMMAND.findall(last))
        env = {"PERDURE_HOME": str(tmp_path)}
        if kept_on.kind != "files":  # as the model is told
            assert "PERDURE_STORE and PERDURE_TENANT say where it is kept" in last
            (tenant,) = at.gateway.tenants_open()
            env |= {"PERDURE_STORE": kept_on.place(tmp_path), "PERDURE_TENANT": tenant}
        recall = partial(command, "recall", session, "toolu_0", cwd=tmp_path, env=env)
        assert (await anyio.to_thread.run_sync(recall)).stdout.startswith("line of file 0: value 0\n" * 3_000)
        assert f"GET /perdure/recall/{session}/X" in last
        async with aiohttp.ClientSession(headers={"x-api-key": KEY}) as http:
            async with http.get(f"{at.url}/perdure/recall/{session}/toolu_0") as answer:
                assert answer.status == 200 and await answer.text() == "line of file 0: value 0\n" * 3_000
            async with http.get(f"{at.url}/perdure/recall/{session}/toolu_3?lines=2-3") as answer:
                assert await answer.text() == "line of file 3: value 21\n" * 1 + "line of file 3: value 21"
            async with http.get(f"{at.url}/perdure/recall/{session}/nothing") as answer:
                assert answer.status == 404 and "nothing here has the id" in await answer.text()
            other = {"x-api-key": "another-key"}
            async with http.get(f"{at.url}/perdure/recall/{session}/toolu_0", headers=other) as answer:
                assert answer.status == 404 and await answer.text() == "you have no such session here\n"


# --- with tools: the model recalls by itself --------------------------------------------------------------------------

CODE = re.compile(r"QX-\d{4}")
QUESTION = "Which entry code has the vault of Lisbon?"
WIRES = [(wire, is_stream) for wire in ("anthropic", "openai", "responses") for is_stream in (False, True)]


class Obedient(FakeUpstream):
    """A model that reads a file when it is told to look, and recalls what it is asked for and doesn't see."""

    thinks = True
    server: FakeServer
    at: Running

    def reply_to(self, request: Any) -> Any:
        asked = msgspec.json.decode(self.server.received[-1].body)
        said = asked.get("messages") or asked["input"]
        results = list(itertools.takewhile(is_result, reversed(said)))
        thought = [thinking("hm")] if self.thinks else []
        if results:
            found = CODE.search(msgspec.json.encode(results).decode())
            return say(*thought, f"The code is {found[0]}." if found else "I have read it.")
        if QUESTION in self.at.said:
            tools = [tool.get("function", tool) for tool in asked["tools"]]
            recalls = [tool["name"] for tool in tools if "no longer in view" in tool.get("description", "")]
            call = tool_use(recalls[-1], {"query": "vault Lisbon entry code"})
            also = [tool_use("Read", {"file_path": "now.py"})] if "besides" in self.at.said else []
            return say(*thought, "Let me look that up.", call, *also)
        return say("Reading.", tool_use("Read", {"file_path": "file.py"})) if "Look at" in self.at.said else None


def is_result(said: dict[str, Any]) -> bool:
    content = said.get("content")
    is_block = isinstance(content, list) and content[0]["type"] == "tool_result"
    return is_block or said.get("role") == "tool" or said.get("type") == "function_call_output"


def seen_by(client: CodingClient) -> str:
    """Everything that the client was ever told."""
    return "".join(answer.model_dump_json() for answer in client.answers)


def said_in(body: dict[str, Any]) -> list[Any]:
    return body["input"] if "input" in body else body["messages"]


def said_by(client: CodingClient) -> int:
    """How many messages; reasoning belongs to the item behind it."""
    return sum(one.get("type") != "reasoning" for one in client.messages)


def tools_of(body: dict[str, Any]) -> list[Any]:
    return [{name: value for name, value in tool.items() if name != "cache_control"} for tool in body["tools"]]


def checked(at: Running, client: CodingClient) -> None:
    """Nothing of ours reached the client, and nothing that went up broke a rule."""
    stats = at.upstream.statistics
    assert not stats.violations and stats.refused == 0 and stats.failed == 0
    assert len(stats.prefix_moves) <= len([e for e in at.sink.events if isinstance(e, PrefixMoved)])
    assert "recall" not in seen_by(client)


SMALL = 16_000


SMALL_ROUTE: Any = {
    "routes": {"default": {"anthropic": "anthropic", "openai": "openai", "settings": {"window_tokens": SMALL}}}
}


@asynccontextmanager
async def obedient(wire: str, window: int = SMALL) -> AsyncIterator[FakeServer]:
    upstream = Obedient(rules=ModelRules(window_tokens=window))
    upstream.thinks = wire != "openai"  # Chat Completions have no place for it
    async with fake(upstream) as server:
        upstream.server = server
        yield server


@asynccontextmanager
async def recalling(home: Path, server: FakeServer, **more: Any) -> AsyncIterator[Running]:
    """A gateway in front of such a model, which hears what its person says."""
    async with serving(home, server, **more) as at:
        assert isinstance(server.upstream, Obedient)
        server.upstream.at = at
        yield at


@pytest.mark.quick(1)
@pytest.mark.parametrize(("wire", "is_stream"), WIRES)
@in_loop
async def test_an_obedient_model_quotes_what_left_the_view_ten_compactions_ago(
    tmp_path: Path, wire: str, is_stream: bool
) -> None:
    """GW-8: the client sees one answer, with the usage of both; the session goes on where the client is."""
    async with obedient(wire) as server, recalling(tmp_path, server, **SMALL_ROUTE) as at:
        client = CodingClient(at, wire, is_stream=is_stream)
        _, calls = await client.say("Look at the codes.")
        await client.answer((calls[0][1], vault_codes()))
        while len([e for e in at.sink.events if isinstance(e, CompactionDone)]) < 10:
            await client.work(1)
        first = len(at.bodies)
        text, calls = await client.say(QUESTION)
        assert text == "Let me look that up.\n\nThe code is QX-1333." and not calls
        asked, again = at.bodies[first:]
        assert "QX-1333" not in str(asked) and "QX-1333" in str(again)
        names = [t.get("name") or t["function"]["name"] for t in asked["tools"]]
        assert names == ["Read", "recall"], "last, from the first request on"
        assert len({msgspec.json.encode(tools_of(body)) for body in at.bodies}) == 1
        await client.work(2)
        (held,) = at.held
        assert held.head.count == said_by(client)
        checked(at, client)


@pytest.mark.quick(2)
@pytest.mark.parametrize(("wire", "is_stream"), WIRES)
@in_loop
async def test_a_recall_beside_the_clients_own_call(tmp_path: Path, wire: str, is_stream: bool) -> None:
    """GW-8: the client sees its own call alone; behind its result, our call and result stand where they belong."""
    async with obedient(wire) as server, recalling(tmp_path, server) as at:
        client = CodingClient(at, wire, is_stream=is_stream)
        _, calls = await client.say("Look at the codes.")
        await client.answer((calls[0][1], "entry code: of the vault of Lisbon it is QX-4711"))
        text, calls = await client.say(f"{QUESTION} Read now.py besides.")
        assert text == "Let me look that up." and [name for name, _ in calls] == ["Read"]
        text, calls = await client.answer((calls[0][1], "nothing new"))
        assert text == "The code is QX-4711." and not calls
        last = said_in(at.bodies[-1])
        if wire == "responses":
            assert [item.get("name") for item in last[-4:-2]] == ["recall", "Read"]
            assert [item["call_id"] for item in last[-4:-2]] == [item["call_id"] for item in last[-2:]]
        elif wire == "anthropic":
            said, results = last[-2:]
            uses = [block for block in said["content"] if block["type"] == "tool_use"]
            assert [use["name"] for use in uses] == ["recall", "Read"]
            assert [block["tool_use_id"] for block in results["content"]] == [use["id"] for use in uses]
        else:
            said, *results = last[-3:]
            assert [call["function"]["name"] for call in said["tool_calls"]] == ["recall", "Read"]
            assert [one["tool_call_id"] for one in results] == [call["id"] for call in said["tool_calls"]]
        await client.say("Look at it again.")
        assert len(at.held) == 1 and at.held[0].head.count == said_by(client)
        checked(at, client)


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("besides", ["", " Read now.py besides."])
@in_loop
async def test_who_goes_on_by_the_id_of_such_an_answer(tmp_path: Path, besides: str, is_stream: bool) -> None:
    """GW-8, GW-6: the id is that of the whole answer, also after a restart without the index."""
    async with obedient("responses") as server:
        config = config_of(tmp_path, server.url)
        async with recalling(tmp_path, server, config=config) as at:
            client = CodingClient(at, "responses", is_stream=is_stream)
            _, calls = await client.say("Look at the codes.")
            await client.answer((calls[0][1], "entry code: of the vault of Lisbon it is QX-4711"))
            _, calls = await client.say(f"{QUESTION}{besides}")
            previous = client.answers[-1].id
        lose_index(tmp_path)
        async with recalling(tmp_path, server, config=config) as at:
            client = CodingClient(at, "responses", is_stream=is_stream)
            if calls:
                text, _ = await client.answer((calls[0][1], "nothing new"), previous_response_id=previous)
                assert text == "The code is QX-4711."
            else:
                text, _ = await client.say("Look at it again.", previous_response_id=previous)
                assert text == "Reading."
            sent = said_in(at.bodies[-1])
            made = [item["call_id"] for item in sent if item.get("type") == "function_call"]
            answered = [item["call_id"] for item in sent if item.get("type") == "function_call_output"]
            assert made == answered and len(made) == 2 + len(calls)
        assert not server.upstream.statistics.violations and not server.upstream.statistics.refused


def prompt_of(answer: Any) -> int:
    used = answer.usage
    return int(used.prompt_tokens if hasattr(used, "prompt_tokens") else used.input_tokens)


@pytest.mark.quick(2)
@pytest.mark.parametrize(("wire", "is_stream"), WIRES)
@in_loop
async def test_what_a_client_offers_and_wants_is_respected(tmp_path: Path, wire: str, is_stream: bool) -> None:
    """GW-8: a tool of that name is the client's, and ours has another one, which it keeps; a header turns it off."""
    script = [say(tool_use("recall", {"query": "x"})), "fine", "off", "on again", "no tools"]
    async with fake(FakeUpstream(script=script)) as server, serving(tmp_path, server) as at:
        client = CodingClient(at, wire, is_stream=is_stream, tools=("recall", "Read"))
        _, calls = await client.say("Do it.")
        assert [name for name, _ in calls] == ["recall"], "the client's own"
        client.tools = client.tools[1:]
        await client.answer((calls[0][1], "done"))
        await client.say("Go on.", extra_headers={"x-perdure-recall": "off"})
        await client.say("Go on.")
        names = [[t.get("name") or t["function"]["name"] for t in body["tools"]] for body in at.bodies]
        both, ours = ["recall", "Read", "perdure__recall"], ["Read", "perdure__recall"]
        assert names == [both, ours, ["Read"], ours]
        client.tools = []
        del client.messages[:]
        more: Any = {"tools": anthropic.NOT_GIVEN if wire == "anthropic" else openai.NOT_GIVEN}
        await client.say("Hello", **more)
        assert "tools" not in at.bodies[-1] and not at.upstream.statistics.violations


@pytest.mark.parametrize(("wire", "is_stream"), WIRES)
@in_loop
async def test_with_the_setting_off_bytes_are_as_they_came(tmp_path: Path, wire: str, is_stream: bool) -> None:
    """GW-8: `recall_tool = false` for all, or for a route."""
    async with fake() as direct, fake() as server:
        settings = Settings(recall_tool=False, durability="process")
        config = config_of(tmp_path, server.url, settings=settings)
        async with serving(tmp_path, server, config=config) as at:
            client = CodingClient(at, wire, is_stream=is_stream)
            await client.say("Hello")
            plain = CodingClient(at, wire, is_stream=is_stream)
            at.url, at.clients = direct.url, at.clients
            await plain.say("Hello")
            assert server.received[0].body == direct.received[0].body


@pytest.mark.quick(2)
@pytest.mark.parametrize(("wire", "is_stream"), WIRES)
@in_loop
async def test_a_small_model_that_misuses_it_never_hurts_the_client(tmp_path: Path, wire: str, is_stream: bool) -> None:
    """GW-8: unknown arguments, unknown ids, nonsense and loops end in an answer, with every request valid."""
    calls = [{"query": 7}, {}, {"id": "nowhere"}, {"_raw": "{broken"}, {"query": "x", "id": "y"}, {"lines": "4"}]
    loop = [say(tool_use("recall", {"query": "more"}, id="call_0")) for _ in range(20)]
    script = [say(tool_use("recall", one, id="call_0")) for one in calls] + ["Never mind."]
    async with fake(FakeUpstream(script=[*script, *loop])) as server, serving(tmp_path, server) as at:
        client = CodingClient(at, wire, is_stream=is_stream)
        assert await client.say("Do it.") == ("Never mind.", [])
        assert len(at.bodies) == len(script)
        assert await client.say("Do it again.") == ("", [])
        assert len(at.bodies) == len(script) + MOST_ROUNDS + 1
        assert [len(body["tools"]) for body in at.bodies[len(script) :]] == [2] * MOST_ROUNDS + [1]
        assert "recall failed" in str(said_in(at.bodies[2]))
        if wire != "responses":
            client.messages.pop()  # clients don't keep an answer that says nothing
        server.upstream.script.clear()
        assert await client.say("Thanks.") == ("ok", [])
        assert "recall" not in seen_by(client) and not at.upstream.statistics.violations
        assert at.upstream.statistics.refused == 0


@pytest.mark.parametrize(("wire", "is_stream"), WIRES)
@in_loop
async def test_what_a_forced_tool_and_one_call_at_a_time_ask_for(tmp_path: Path, wire: str, is_stream: bool) -> None:
    """GW-8: the client gets the call that it forced, once, and never more than one where it wants one."""
    script = [say(tool_use("recall", {"query": "x"})), say(tool_use("Read", {"file_path": "a"}))]
    async with fake(FakeUpstream(script=script)) as server, serving(tmp_path, server) as at:
        client = CodingClient(at, wire, is_stream=is_stream)
        more: dict[str, Any] = {"tool_choice": {"type": "any", "disable_parallel_tool_use": True}}
        if wire != "anthropic":
            more = {"tool_choice": "required", "parallel_tool_calls": False}
        text, calls = await client.say("Do it.", **more)
        assert text == "" and [name for name, _ in calls] == ["Read"]
        assert all(body["tool_choice"] == more["tool_choice"] for body in at.bodies) and len(at.bodies) == 2
        checked(at, client)


@pytest.mark.quick(2)
@pytest.mark.parametrize(("wire", "is_stream"), WIRES)
@in_loop
async def test_the_meter_reads_what_both_answers_used(tmp_path: Path, wire: str, is_stream: bool) -> None:
    """GW-8, GW-2: usage is that of all answers together, below what the client's meter may read."""
    for usage in ("upstream", "capped"):
        async with (
            obedient(wire, 100_000) as server,
            recalling(tmp_path / usage, server, usage=usage, usage_cap_percent=1) as at,
        ):
            client = CodingClient(at, wire, is_stream=is_stream)
            await client.say(f"{QUESTION} " + "padding " * 4_000)
            stats = at.upstream.statistics
            told = client.answers[-1].usage
            paid = stats.plain_tokens + stats.read_tokens + stats.written_tokens
            seen = prompt_of(client.answers[-1])
            if wire == "anthropic":
                seen += (told.cache_read_input_tokens or 0) + (told.cache_creation_input_tokens or 0)
            output = told.completion_tokens if wire == "openai" else told.output_tokens
            assert output == stats.output_tokens and len(at.bodies) == 2
            assert seen == paid if usage == "upstream" else abs(seen - 1_000) < 5


SESSION_ID = "0b9f3a52-6f0e-4a35-9f7e-2f5b1c0de111"
SAID_BY = {
    "header": ({"extra_headers": {"x-claude-code-session-id": SESSION_ID}}, "anthropic"),
    "own header": ({"extra_headers": {"x-perdure-session": "my work"}}, "openai"),
    "user": ({"metadata": {"user_id": f"user_ab12_account__session_{SESSION_ID}"}}, "anthropic"),
    "user as JSON": ({"metadata": {"user_id": f'{{"device_id":"d","session_id":"{SESSION_ID}"}}'}}, "anthropic"),
    "cache key": ({"prompt_cache_key": SESSION_ID}, "openai"),
}


@pytest.mark.quick(2)
@pytest.mark.parametrize("kind", SAID_BY)
@in_loop
async def test_what_was_said_before_the_clients_own_compaction_is_found(tmp_path: Path, kind: str) -> None:
    """GW-8: histories of one session of the client belong together, also for another process and without the index."""
    more, wire = SAID_BY[kind]
    async with obedient(wire) as server:
        config = config_of(tmp_path, server.url)
        async with recalling(tmp_path, server, config=config) as at:
            client = CodingClient(at, wire, is_stream=True)
            _, calls = await client.say("Look at the codes.", **more)
            await client.answer((calls[0][1], "entry code: of the vault of Lisbon it is QX-4711"), **more)
            del client.messages[:]  # it goes on from a summary of its own
            text, _ = await client.say(f"Summary: we looked at codes. {QUESTION}", **more)
            assert text.endswith("The code is QX-4711.") and len(at.held) == 2
        lose_index(tmp_path)
        async with recalling(tmp_path, server, config=config) as at:
            client = CodingClient(at, wire, is_stream=False)
            text, _ = await client.say(f"Summary: on with it. {QUESTION}", **more)
            assert text.endswith("The code is QX-4711.") and "recall" not in seen_by(client)
            assert not at.upstream.statistics.violations and not at.upstream.statistics.refused


@pytest.mark.both_stores
@pytest.mark.parametrize(
    "other",
    [
        {},
        {"extra_headers": {"x-claude-code-session-id": SESSION_ID.replace("0b9f", "1b9f")}},
        {"extra_headers": {"x-claude-code-session-id": SESSION_ID, "x-api-key": "another-tenant"}},
    ],
)
@in_loop
async def test_nobody_finds_what_was_said_in_sessions_of_others(tmp_path: Path, other: dict[str, Any]) -> None:
    """GW-8, SEC-7: neither of another session of the client, nor of another tenant, by search or by name."""
    more: Any = {"extra_headers": {"x-claude-code-session-id": SESSION_ID}}
    async with obedient("anthropic") as server, recalling(tmp_path, server) as at:
        client = CodingClient(at, "anthropic", is_stream=False)
        _, calls = await client.say("Look at the codes.", **more)
        await client.answer((calls[0][1], "entry code: of the vault of Lisbon it is QX-4711"), **more)
        (held,) = at.held
        del client.messages[:]
        text, _ = await client.say(QUESTION, **other)
        assert text.endswith("I have read it.") and "QX-4711" not in str(at.bodies[-1])
        for wanted in ({"query": "QX", "session": held.id}, {"id": calls[0][1]}, {"id": "x", "session": held.id}):
            at.upstream.script.append(say(tool_use("recall", wanted)))
            await client.say("Try it.", **other)
            last = str(at.bodies[-1]["messages"][-1])
            assert "recall failed" in last and "QX-4711" not in last


@in_loop
async def test_a_session_belongs_to_whoever_goes_on_with_it(tmp_path: Path) -> None:
    """GW-8: two conversations that begin alike aren't linked by that."""
    one, two = ({"extra_headers": {"x-claude-code-session-id": SESSION_ID[:-1] + end}} for end in "12")
    async with obedient("anthropic") as server, recalling(tmp_path, server) as at:
        first, second = (CodingClient(at, "anthropic", is_stream=False) for _ in range(2))
        await first.say("Hi", **one)
        await second.say("Hi", **two)  # the same session, as far as anybody can tell
        _, calls = await second.say("Look at the codes.", **two)
        await second.answer((calls[0][1], "entry code: of the vault of Lisbon it is QX-4711"), **two)
        await first.say("And now?", **one)
        text, _ = await first.say(QUESTION, **one)
        assert text.endswith("I have read it.") and "QX-4711" not in seen_by(first)


@pytest.mark.parametrize(
    ("headers", "fields", "name"),
    [
        ({"session_id": "s-1"}, {}, "s-1"),
        ({}, {"conversation": {"id": "conv_1"}}, "conv_1"),
        ({}, {"prompt_cache_key": "ses_5f2a81b09ffe3c7aQ2sTb1"}, "ses_5f2a81b09ffe3c7aQ2sTb1"),
        ({}, {"prompt_cache_key": "customer-support-prompt-2026-02"}, ""),
        ({}, {"metadata": {"user_id": "7c9e6679-7425-40de-944b-e07fc1f90ae7"}}, ""),
        ({}, {"metadata": "odd", "prompt_cache_key": 7, "conversation": None}, ""),
    ],
)
def test_only_what_names_a_session_links_sessions(headers: dict[str, str], fields: dict[str, Any], name: str) -> None:
    """GW-8: a key that many conversations share, or a person's id, isn't one."""
    raw = {field: msgspec.Raw(msgspec.json.encode(value)) for field, value in fields.items()}
    given = [(key.encode(), value.encode()) for key, value in headers.items()]
    kept = fields.get("conversation")  # one that is kept here, as the request was read
    turn = ConversationTurn(kept["id"], 0, 0, ()) if kept else None
    assert client_session(given, ClientRequest(b"", raw, (), conversation=turn)) == name
