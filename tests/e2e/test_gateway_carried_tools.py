"""Recall for clients whose tools are in an `additional_tools` item, as those of Codex's own models are.

GW-8, RCL-3; finding G1.
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.gateways import KEY, CodingClient, Running, config_of, fake, in_loop, lose_index, serving, vault_codes

from perdure.events import CompactionDone, PrefixMoved
from perdure.gateway.recall import MOST_ROUNDS
from perdure.testing import FakeServer, FakeUpstream, ModelRules, say, thinking, tool_use
from perdure.testing.request import DecodedRequest

pytestmark = pytest.mark.e2e
CODE = re.compile(r"QX-\d{4}")
QUESTION = "Which entry code has the vault of Lisbon?"
SMALL = 24_000
_SCHEMA = {"type": "object", "properties": {"cell": {"type": "string"}}}
EXEC = {"type": "custom", "name": "exec", "description": "Run JavaScript", "format": {"type": "text"}}
WAIT = {"type": "function", "name": "wait", "parameters": _SCHEMA, "strict": False, "description": "Wait"}
SPACES = [
    {"type": "namespace", "name": "functions", "description": "", "tools": [EXEC, WAIT]},
    {"type": "namespace", "name": "clock", "description": "Time", "tools": [{**WAIT, "name": "sleep"}]},
]
PLACES = {"in namespaces": (SPACES, True), "bare": ([EXEC, WAIT], False), "custom only": ([EXEC], True)}


def is_output(item: dict[str, Any]) -> bool:
    return str(item.get("type")).endswith("_output")


class Coder(FakeUpstream):
    """A model that runs a script when it is told to look, and recalls what it is asked for and doesn't see."""

    at: Running
    server: FakeServer

    def reply_to(self, request: DecodedRequest) -> Any:
        said = msgspec.json.decode(self.server.received[-1].body)["input"]
        if results := list(itertools.takewhile(is_output, reversed(said))):
            found = CODE.search(msgspec.json.encode(results).decode())
            return say(thinking("hm"), f"The code is {found[0]}." if found else "I have read it.")
        names = [tool.get("name", "") for tool in request.tools]
        if QUESTION in self.at.said and (recalls := [name for name in names if name.endswith("recall")]):
            return say(thinking("hm"), tool_use(recalls[-1], {"query": "vault Lisbon entry code"}))
        return say(thinking("hm"), tool_use("exec", {"input": "look()"})) if "Look at" in self.at.said else None


class Carrier(CodingClient):
    """A client that carries its tools in the first item, and has no key `tools`."""

    def __init__(self, at: Running, tools: list[Any], *, is_stream: bool = True) -> None:
        super().__init__(at, "responses", is_stream=is_stream)
        item = {"type": "additional_tools", "id": "at_1", "role": "developer", "tools": tools}
        self.lead: list[Any] = [item, {"type": "message", "role": "developer", "content": "You are a coder."}]

    async def go_on(self, **more: Any) -> tuple[str, list[Any]]:
        """Ask; the answer's text, and the calls in it by name and id."""
        lead = [] if "previous_response_id" in more else self.lead
        asked: dict[str, Any] = {"model": "fake-model", "input": [*lead, *self.messages], "store": False, **more}
        responses = self.at.gpt(max_retries=0).responses
        if self.is_stream:
            async with responses.stream(**asked) as stream:
                async for _ in stream:
                    pass
                said = await stream.get_final_response()
        else:
            said = await responses.create(**asked)
        self.answers.append(said)
        self.messages += [item.model_dump(exclude_none=True) for item in said.output]
        texts = [part.text for item in said.output if item.type == "message" for part in item.content]
        calls = [(item.name, item.call_id) for item in said.output if item.type.endswith("_call")]
        return "\n\n".join(texts), calls

    async def answer(self, *results: tuple[str, str], **more: Any) -> tuple[str, list[Any]]:
        outputs = [{"type": "custom_tool_call_output", "call_id": call, "output": text} for call, text in results]
        self.messages += outputs
        return await self.go_on(**more)

    async def work(self, turns: int) -> None:
        """Turns that fill the window."""
        for n in range(turns):
            _, calls = await self.say(f"Look at {n}. " + f"Remark {n}: keep it short. " * 300)
            assert [name for name, _ in calls] == ["exec"]
            await self.answer((calls[0][1], f"line of file {n}: value {n * 7}\n" * 400))


def coder(window: int = SMALL) -> Coder:
    return Coder(rules=ModelRules(window_tokens=window))


def heard(server: FakeServer, at: Running) -> None:
    """Let the model of a server hear what the person of a gateway's client says."""
    assert isinstance(server.upstream, Coder)
    server.upstream.at, server.upstream.server = at, server


def small(url: str, home: Path) -> Any:
    route = {"anthropic": "anthropic", "openai": "openai", "settings": {"window_tokens": SMALL}}
    return config_of(home, url, routes={"default": route})


def offered(body: dict[str, Any]) -> list[str]:
    """The names of the tools in the item that carries them."""
    tools = next(item["tools"] for item in body["input"] if item.get("type") == "additional_tools")
    return [one["name"] for tool in tools for one in tool.get("tools", [tool])]


def checked(at: Running, client: CodingClient) -> None:
    """Nothing of ours reached the client, nothing that went up broke a rule, and every move was announced."""
    stats = at.upstream.statistics
    assert not stats.violations and not stats.refused and not stats.failed
    assert len(stats.prefix_moves) <= len([e for e in at.sink.events if isinstance(e, PrefixMoved)])
    assert "recall" not in "".join(answer.model_dump_json() for answer in client.answers)
    assert "There is no recall tool here" not in str(at.bodies[-1])


@pytest.mark.parametrize(("tools", "is_stream"), PLACES.values(), ids=PLACES)
@in_loop
async def test_a_client_that_carries_its_tools_recalls(tmp_path: Path, tools: list[Any], is_stream: bool) -> None:
    """Finding G1: the tool stands where the client's stand, from the first request on, and brings the fact back."""
    async with fake(coder()) as server, serving(tmp_path, server, config=small(server.url, tmp_path)) as at:
        heard(server, at)
        client = Carrier(at, tools, is_stream=is_stream)
        _, calls = await client.say("Look at the codes.")
        await client.answer((calls[0][1], vault_codes()))
        while len([e for e in at.sink.events if isinstance(e, CompactionDone)]) < 1:
            await client.work(1)
        first = len(at.bodies)
        text, calls = await client.say(QUESTION)
        assert (text, calls) == ("The code is QX-1333.", [])
        asked, again = at.bodies[first:]
        assert "QX-1333" not in str(asked) and "QX-1333" in str(again)
        theirs = [one["name"] for tool in tools for one in tool.get("tools", [tool])]
        spot = 2 if tools is SPACES else len(theirs)
        assert {tuple(offered(body)) for body in at.bodies} == {(*theirs[:spot], "recall", *theirs[spot:])}
        assert all("tools" not in body for body in at.bodies)
        assert len({msgspec.json.encode(body["input"][:2]) for body in at.bodies}) == 1, "the front never moves"
        await client.work(1)
        assert len(at.held) == 1
        checked(at, client)


@in_loop
async def test_who_goes_on_by_an_id_keeps_the_tool(tmp_path: Path) -> None:
    """Finding G1: a request that continues an answer says no tools again; ours is there, also after a restart."""
    async with fake(coder(100_000)) as server:
        config = config_of(tmp_path, server.url)
        async with serving(tmp_path, server, config=config) as at:
            heard(server, at)
            client = Carrier(at, SPACES)
            _, calls = await client.say("Look at the codes.")
            await client.answer((calls[0][1], "entry code: of the vault of Lisbon it is QX-4711"))
            previous = client.answers[-1].id
        lose_index(tmp_path)
        async with serving(tmp_path, server, config=config) as at:
            heard(server, at)
            client = Carrier(at, SPACES)
            text, _ = await client.say(QUESTION, previous_response_id=previous)
            assert text == "The code is QX-4711."
            assert [offered(body) for body in at.bodies[-2:]] == [["exec", "wait", "recall", "sleep"]] * 2
            http = at.gpt(max_retries=0).responses
            page = await http.input_items.list(client.answers[-1].id, limit=100)
            assert "recall" not in page.model_dump_json() and "sleep" in page.model_dump_json()
        assert not server.upstream.statistics.violations and not server.upstream.statistics.refused


@in_loop
async def test_a_name_of_any_namespace_is_the_clients(tmp_path: Path) -> None:
    """Finding G1: ours has a name that no namespace has; a call of another's tool `recall` reaches the client."""
    theirs = {"type": "namespace", "name": "mcp__notes", "description": "Notes", "tools": [{**WAIT, "name": "recall"}]}
    script = [say(tool_use("mcp__notes__recall", {"cell": "1"})), "fine"]
    async with fake(FakeUpstream(script=script)) as server, serving(tmp_path, server) as at:
        client = Carrier(at, [*SPACES, theirs])
        _, calls = await client.say("Do it.")
        assert [name for name, _ in calls] == ["recall"] and client.messages[-1]["namespace"] == "mcp__notes"
        client.messages.append({"type": "function_call_output", "call_id": calls[0][1], "output": "done"})
        await client.go_on()
        assert offered(at.bodies[-1]) == ["exec", "wait", "perdure__recall", "sleep", "recall"]


@in_loop
async def test_a_tool_found_later_under_our_name_is_the_clients(tmp_path: Path) -> None:
    """Finding G1: tools that come later may have a tool of our name in their namespace; its calls are the client's."""
    script = [say(tool_use("mcp__notes__recall", {"cell": "1"})), "fine"]
    async with fake(FakeUpstream(script=script)) as server, serving(tmp_path, server) as at:
        client = Carrier(at, SPACES)
        late = {"type": "namespace", "name": "mcp__notes", "description": "N", "tools": [{**WAIT, "name": "recall"}]}
        client.messages += [
            {"role": "user", "content": "Find it."},
            {"type": "additional_tools", "id": "at_2", "role": "developer", "tools": [late]},
        ]
        _, calls = await client.say("Do it.")
        assert [name for name, _ in calls] == ["recall"] and len(at.bodies) == 1
        assert offered(at.bodies[0]) == ["exec", "wait", "recall", "sleep"]


@in_loop
async def test_a_model_that_only_recalls_is_asked_without_the_tool(tmp_path: Path) -> None:
    """Finding G1, GW-8: behind the most rounds the item is the client's own again."""
    loop = [say(tool_use("recall", {"query": "more"}, id="call_0")) for _ in range(20)]
    async with fake(FakeUpstream(script=loop)) as server, serving(tmp_path, server) as at:
        client = Carrier(at, SPACES)
        await client.say("Do it.")
        assert ["recall" in offered(body) for body in at.bodies] == [True] * MOST_ROUNDS + [False]
        assert at.bodies[-1]["input"][0] == client.lead[0]
        assert not at.upstream.statistics.violations


PERMITS: dict[str, Any] = {
    "responses": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "Read"}]},
    "openai": {
        "type": "allowed_tools",
        "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "Read"}}]},
    },
}


@pytest.mark.parametrize("wire", PERMITS)
@in_loop
async def test_a_list_of_permitted_tools_permits_ours(tmp_path: Path, wire: str) -> None:
    """Finding G1: where the client permits only some tools, ours may be called; the client reads its own choice."""
    loop = [say(tool_use("recall", {"query": "more"}, id="call_0")) for _ in range(20)]
    async with fake(FakeUpstream(script=loop)) as server, serving(tmp_path, server) as at:
        client = CodingClient(at, wire, is_stream=False)
        await client.say("Do it.", tool_choice=PERMITS[wire])
        permits = [body["tool_choice"].get("allowed_tools", body["tool_choice"])["tools"] for body in at.bodies]
        names = [[one.get("name") or one["function"]["name"] for one in permit] for permit in permits]
        assert names == [["Read", "recall"]] * MOST_ROUNDS + [["Read"]]
        assert "recall" not in client.answers[-1].model_dump_json()


@in_loop
async def test_a_client_without_tools_is_told_how(tmp_path: Path) -> None:
    """RCL-3: an empty list of carried tools is none: nothing is offered, and the text says who has the originals."""
    upstream = FakeUpstream(rules=ModelRules(window_tokens=SMALL))
    async with (
        fake(upstream) as server,
        serving(tmp_path, server, config=small(server.url, tmp_path)) as at,
    ):
        client = Carrier(at, [])
        while not [e for e in at.sink.events if isinstance(e, CompactionDone)]:
            await client.say("Remark: keep it short. " * 900)
        await client.say("Go on.")
        last = at.bodies[-1]
        assert last["input"][0] == client.lead[0] and "tools" not in last
        assert str(last).count("There is no recall tool here") == 1 and KEY not in str(last)


_LITE = "ws_request_header_x_openai_internal_codex_responses_lite"


@in_loop
async def test_a_socket_keeps_the_tool_and_says_how_to_read_the_request(tmp_path: Path) -> None:
    """Finding G1: as Codex does by default: warmed up with the tools, then only new items. Headers of a message's
    metadata go up, but for keys and whatever else isn't the provider's."""
    pytest.importorskip("websockets", reason="no WebSocket can be served without the package websockets")
    told = {
        _LITE: "true",
        "ws_request_header_authorization": "Bearer mine",
        "ws_request_header_x_openai_a": "b\r\nc: d",
    }
    script = [say(tool_use("exec", {"input": "look()"})), "done"]
    async with fake(FakeUpstream(script=script)) as server, serving(tmp_path, server) as at:
        lead = Carrier(at, SPACES).lead
        async with at.gpt(max_retries=0).responses.connect() as connection:

            async def ask(given: list[Any], last: str | None, **more: Any) -> Any:
                known = {"previous_response_id": last} if last else {}
                asked = {"model": "fake-model", "store": False, "input": given, "client_metadata": told}
                await connection.send({"type": "response.create", **asked, **known, **more})
                async for event in connection:
                    if event.type in ("error", "response.completed"):
                        return event.response
                raise AssertionError("the connection ended")

            warm = await ask(lead, None, generate=False)
            first = await ask([{"role": "user", "content": "Look."}], warm.id)
            output = {"type": "custom_tool_call_output", "call_id": first.output[0].call_id, "output": "seen"}
            await ask([output], first.id)
        assert [offered(body) for body in at.bodies] == [["exec", "wait", "recall", "sleep"]] * 2
        assert [r.headers.get("x-openai-internal-codex-responses-lite") for r in server.received] == ["true"] * 2
        assert all(r.headers["authorization"] == f"Bearer {KEY}" for r in server.received)
        assert not any("x-openai-a" in r.headers or "c" in r.headers for r in server.received)
        assert not at.upstream.statistics.violations
