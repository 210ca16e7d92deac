"""The Responses API over a WebSocket, with OpenAI's SDK and by hand (GW-6)."""

from __future__ import annotations

import asyncio
import gc
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from tests.agents import until
from tests.gateways import KEY, fake, in_loop, serving, upstream

from perdure.events import CompactionDone
from perdure.gateway import sockets
from perdure.gateway.sockets import ResponseSocket, SocketAnswer, SocketRequest
from perdure.testing import CutStream, FakeUpstream, ModelRules, overloaded, say, thinking, tool_use

pytest.importorskip("websockets", reason="no WebSocket can be served without the package websockets")
pytestmark = pytest.mark.e2e

READ: Any = {"type": "function", "name": "Read", "parameters": {"type": "object"}, "strict": False}
HEADERS = {"authorization": f"Bearer {KEY}", "openai-beta": "responses_websockets=2026-02-06"}


async def response(connection: Any, **fields: Any) -> Any:
    """The response to a `response.create`, with an error where it fails."""
    await connection.send({"type": "response.create", "model": "gpt-6-sol", "store": False} | fields)
    async for event in connection:
        if event.type in ("error", "response.failed"):
            return event
        if event.type in ("response.completed", "response.incomplete"):
            return event.response
    raise AssertionError("the connection ended")


@pytest.mark.nightly
@in_loop
async def test_a_long_conversation_with_new_items_only(tmp_path: Path) -> None:
    """GW-6: 40 turns with reasoning far beyond the window, nothing stored; no error, no violation upstream."""
    turns = 40
    script: list[Any] = []
    for n in range(turns):
        script += [
            say(thinking(f"hm {n}"), tool_use("Read", {"path": f"{n}.py"})),
            say(thinking("so"), f"done with {n}"),
        ]
    async with fake(upstream(*script)) as server, serving(tmp_path, server) as at:
        async with at.gpt(max_retries=0).responses.connect() as connection:
            last = None
            for n in range(turns):
                given: Any = f"Look at file {n}. " + f"Remark {n}: keep it short. " * 250
                for _ in range(2):
                    said = await response(connection, input=given, tools=[READ], previous_response_id=last)
                    assert said.status == "completed", said
                    last = said.id
                    calls = [item for item in said.output if item.type == "function_call"]
                    output = f"line of file {n}: value = {n * 7}\n" * 200
                    given = [{"type": "function_call_output", "call_id": c.call_id, "output": output} for c in calls]
                assert said.output_text == f"done with {n}"
        stats = server.upstream.statistics
        assert stats.answered == 2 * turns and not stats.violations
        assert any(isinstance(event, CompactionDone) for event in at.sink.events)
        assert len(at.held) == 1, "one session"
        assert not any("previous_response_id" in body for body in at.bodies)
        assert all("responses_websockets" not in r.headers.get("openai-beta", "") for r in server.received)


@pytest.mark.both_stores
@in_loop
async def test_streams_of_one_connection_run_side_by_side(tmp_path: Path) -> None:
    """GW-6: `stream_id` multiplexes; a stream goes on from another's response; nothing crosses."""
    async with fake(FakeUpstream(script=["first"]), delay_seconds=0.01) as server, serving(tmp_path, server) as at:
        async with at.gpt(max_retries=0).responses.connect() as connection:
            first = await response(connection, input="begin")
            names = [f"stream {n}" for n in range(8)]
            server.upstream.script.extend(["a word " * 40] * len(names))
            for name in names:
                await connection.send({
                    "type": "response.create", "model": "gpt-6-sol", "input": name, "stream_id": name, "store": False,
                    "previous_response_id": first.id,
                })  # fmt: skip
            begun: list[str] = []
            over: dict[str, Any] = {}
            async for event in connection:
                assert event.stream_id in names
                if event.type == "response.created":
                    begun.append(event.stream_id)
                if event.type == "response.completed":
                    assert len(begun) > 1 or over, "they run side by side"
                    over[event.stream_id] = event.response
                    if len(over) == len(names):
                        break
        assert len({one.id for one in over.values()}) == len(names)
        sent = {body["input"][-1]["content"]: body["input"] for body in at.bodies[1:]}
        assert set(sent) == set(names) and all(len(items) == 3 for items in sent.values())


@in_loop
async def test_an_event_that_is_none_of_the_api_ends_no_connection() -> None:
    """GW-7: other responses are under way on it; the client gets what came, as well as a message can hold it."""
    sent: list[str] = []
    heard: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message["text"])

    async def on_whole(response: Any) -> None:
        heard.append(response)

    answer = SocketAnswer(SocketRequest(b"", "", 0, None), send, on_whole, 1_000)
    head = [(b"content-type", b"text/event-stream")]
    await answer.take({"type": "http.response.start", "status": 200, "headers": head})
    await answer.take({"type": "http.response.body", "body": b'data: ["response.completed"]\n\ndata: "\xff"\n\n'})
    assert sent == ['["response.completed"]', '"\ufffd"'] and not heard and not answer.is_over


@in_loop
async def test_a_connection_remembers_no_stream_that_is_over(tmp_path: Path) -> None:
    """GW-3: a client may name a new one for each response, for as long as it is connected."""
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(fake())
        at = await stack.enter_async_context(serving(tmp_path, server))
        http = await stack.enter_async_context(aiohttp.ClientSession())
        ws = await stack.enter_async_context(http.ws_connect(f"{at.url}/v1/responses", headers=HEADERS))
        for n in range(3):
            asked = {"type": "response.create", "model": "m", "input": "a", "stream_id": f"s{n}", "generate": False}
            await ws.send_json(asked)
            while (await ws.receive_json())["type"] != "response.completed":
                pass
        held = [one for one in gc.get_objects() if isinstance(one, ResponseSocket)]
        assert held
        await until(lambda: not any(one._turns for one in held))


@in_loop
async def test_a_connection_can_be_warmed_up(tmp_path: Path) -> None:
    """GW-6: with `generate: false` nobody is asked, and the next request goes on from there."""
    async with fake() as server, serving(tmp_path, server) as at, at.gpt().responses.connect() as connection:
        warm = await response(connection, input="the beginning", generate=False)
        assert warm.output == [] and not server.received
        said = await response(connection, input="the end", previous_response_id=warm.id)
        assert said.output_text == "ok"
        assert [item["content"] for item in at.bodies[0]["input"]] == ["the beginning", "the end"]


@in_loop
async def test_errors_are_said_and_the_connection_goes_on(tmp_path: Path) -> None:
    """GW-6, GW-7: an error of the upstream, a broken answer, an unknown response and nonsense."""
    async with (
        fake(upstream(overloaded())) as server,
        serving(tmp_path, server) as at,
        aiohttp.ClientSession() as http,
        http.ws_connect(f"{at.url}/v1/responses", headers=HEADERS) as ws,
    ):

        async def told(said: str) -> dict[str, Any]:
            await ws.send_str(said)
            event: dict[str, Any] = {"type": ""}
            while event["type"] not in ("error", "response.completed"):
                event = msgspec.json.decode(await ws.receive_str())
            return event

        create = '{"type":"response.create","model":"m","input":"a","store":false%s}'
        refused = await told(create % "")
        assert (refused["status"], refused["error"]["message"]) == (529, "Overloaded")
        server.faults.append(CutStream())
        assert (await told(create % ""))["status"] == 502
        unknown = await told(create % ',"previous_response_id":"resp_1","stream_id":"s"')
        assert (unknown["error"]["code"], unknown["stream_id"]) == ("previous_response_not_found", "s")
        assert (await told(create % ',"max_tokens":1'))["error"]["code"] == "unknown_parameter"
        for nonsense in ("", "[]", "{", '{"type":"response.create","input":7}', '{"type":"response.steer"}'):
            assert (await told(nonsense))["status"] == 400
        assert (await told(create % ""))["type"] == "response.completed"


@in_loop
async def test_no_event_of_an_upstream_ends_the_connection() -> None:
    """REL-15, SEC-6: bytes that are no text, and events that aren't objects."""
    sent: list[bytes] = []

    async def served(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": sent.pop(0)})

    for odd in (b'"\xff response.completed"', b'["response.completed"]', b"7", b'{"type":"\xff"}'):
        sent.append(b"data: " + odd + b'\n\ndata: {"type":"response.completed","response":{"id":"r","output":7}}\n\n')
        told: list[Any] = []
        asks = [{"type": "websocket.receive", "text": '{"type":"response.create","model":"m","input":"a"}'}]
        over = asyncio.Event()

        async def receive(asks: list[Any] = asks, over: asyncio.Event = over) -> Any:
            if asks:
                return asks.pop()
            await over.wait()
            return {"type": "websocket.disconnect"}

        async def send(message: Any, told: list[Any] = told, over: asyncio.Event = over) -> None:
            told.append(message)
            if '"response":{"id"' in message.get("text", ""):
                over.set()

        async def knows(_: str) -> bool:
            return False

        socket = ResponseSocket(
            {"type": "websocket", "headers": [], "path": "/v1/responses"}, served, knows, receive, send,
            ends=asyncio.Event(), most_bytes=1_000_000, drain_seconds=1.0,
        )  # fmt: skip
        async with asyncio.timeout(10):
            await socket.run()
        assert len(told) == 3, "accepted, the odd event, and the end"


@in_loop
async def test_what_a_connection_remembers_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SEC-6: warming up asks nobody and is in nobody's quota; it can't fill the memory, nor can names of streams."""
    monkeypatch.setattr(sockets, "MOST_REMEMBERED_BYTES", 1_000_000)
    held: list[ResponseSocket] = []
    made = ResponseSocket.__init__

    def noted(self: ResponseSocket, *args: Any, **named: Any) -> None:
        held.append(self)
        made(self, *args, **named)

    monkeypatch.setattr(ResponseSocket, "__init__", noted)
    async with (
        fake() as server,
        serving(tmp_path, server) as at,
        aiohttp.ClientSession() as http,
        http.ws_connect(f"{at.url}/v1/responses", headers=HEADERS) as ws,
    ):
        for number in range(8):
            warm = {"type": "response.create", "model": "m", "generate": False, "input": "x" * 400_000}
            await ws.send_json(warm | {"stream_id": f"s{number}" * 500})
            event: dict[str, Any] = {"type": ""}
            while event["type"] != "response.completed":
                event = msgspec.json.decode(await ws.receive_str())
            assert len(event["stream_id"]) <= 200
        (socket,) = held
        assert 0 < at.gateway.remembered.bytes_of(socket._tenant) <= 1_000_000
        assert len(socket._turns) <= 1
        assert not server.received


@in_loop
async def test_who_leaves_ends_what_runs(tmp_path: Path) -> None:
    """GW-1: a client that closes in the middle of an answer ends the upstream's, too."""
    async with fake(upstream("a word " * 400), delay_seconds=0.02) as server, serving(tmp_path, server) as at:
        async with aiohttp.ClientSession() as http, http.ws_connect(f"{at.url}/v1/responses", headers=HEADERS) as ws:
            await ws.send_str('{"type":"response.create","model":"m","input":"a","store":false}')
            await ws.receive_str()
        await until(lambda: at.metric("perdure_cancelled_total") == 1 and not at.gateway.admission.in_flight)


@in_loop
async def test_who_may_not_come_in_is_told_so_before_the_upgrade(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """SEC-7: other sites and other hosts; and a path where no WebSocket is served."""
    async with fake() as server, serving(tmp_path, server) as at, aiohttp.ClientSession() as http:

        async def status(path: str = "/v1/responses", **headers: str) -> int:
            with pytest.raises(aiohttp.WSServerHandshakeError) as raised:
                await http.ws_connect(f"{at.url}{path}", headers={**HEADERS, **headers})
            return raised.value.status

        assert await status(Origin="https://evil.example") == 403
        assert await status(Host="evil.example") == 421
        assert await status("/v1/realtime") == 426
        assert not server.received and not caplog.messages, "a refusal is no error of ours"


@in_loop
async def test_where_no_socket_can_be_served_it_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GW-6: 426, by which clients fall back to HTTP; nothing goes upstream."""
    monkeypatch.setattr("perdure.gateway.serving.WEBSOCKETS", "none")
    async with fake(FakeUpstream(rules=ModelRules())) as server, serving(tmp_path, server) as at:
        async with aiohttp.ClientSession() as http:
            with pytest.raises(aiohttp.WSServerHandshakeError) as raised:
                await http.ws_connect(f"{at.url}/v1/responses", headers=HEADERS)
        assert raised.value.status == 426 and not server.received


@in_loop
async def test_answers_under_way_end_before_the_gateway_does(tmp_path: Path) -> None:
    """GW-6, GW-9: as those over HTTP; then the connection is closed with 1012, by which clients connect again."""
    async with fake(upstream("a word " * 100), delay_seconds=0.02) as server, aiohttp.ClientSession() as http:
        async with AsyncExitStack() as stack:
            at = await stack.enter_async_context(serving(tmp_path, server))
            working = await http.ws_connect(f"{at.url}/v1/responses", headers=HEADERS)
            idle = await http.ws_connect(f"{at.url}/v1/responses", headers=HEADERS)
            await working.send_str('{"type":"response.create","model":"m","input":"a","store":false}')
            await working.receive_str()
            ending = asyncio.create_task(stack.aclose())
            closed = await idle.receive()
            assert (closed.type, closed.data) == (aiohttp.WSMsgType.CLOSE, 1012) and not ending.done()
            await working.send_str('{"type":"response.create","model":"m","input":"b","store":false}')
            told = [event async for event in working]
            await ending
        kinds = [msgspec.json.decode(event.data)["type"] for event in told]
        assert kinds[-1] == "response.completed" and "error" in kinds and working.close_code == 1012
        assert len(server.received) == 1


@in_loop
async def test_what_no_session_has_is_remembered_by_the_connection(tmp_path: Path) -> None:
    """GW-6, GW-7: what passes through has all that was said before, and can be gone on from, with nothing stored."""
    async with fake(upstream("one", "two", "three")) as server, serving(tmp_path, server) as at:
        async with at.gpt(max_retries=0).responses.connect() as connection:
            first = await response(connection, input="a")
            template: Any = {"model": None, "prompt": {"id": "pmpt_1"}}
            second = await response(connection, input="b", previous_response_id=first.id, **template)
            third = await response(connection, input="c", previous_response_id=second.id)
        assert third.output_text == "three" and at.metric("perdure_passed_total", reason="prompt") == 1
        assert [len(body["input"]) for body in at.bodies] == [1, 3, 5]
