"""GW-10: the Messages API as Bedrock and Vertex host it, on the same sessions and views."""

from __future__ import annotations

import base64
import logging
from pathlib import Path
from typing import Any

import aiohttp
import anthropic
import msgspec
import pytest
from tests.gateways import KEY, Running, fake, in_loop, serving

from perdure.events import CompactionDone
from perdure.gateway.frames import FrameBuffer
from perdure.settings import Settings
from perdure.testing import ErrorInStream, FakeUpstream, ModelRules, RawAnswer, overloaded, say, thinking, tool_use

pytestmark = pytest.mark.e2e
BEDROCK = "us.anthropic.claude-opus-5-5-v1:0"
VERTEX = "claude-opus-5-5@20260901"
ON_VERTEX = f"/v1/projects/p/locations/us-east5/publishers/anthropic/models/{VERTEX}"
TOOLS: list[Any] = [{"name": "Read", "input_schema": {"type": "object"}}]
HOSTS = ("bedrock", "vertex")


def client_of(at: Running, host: str, **more: Any) -> Any:
    """Anthropic's own client for a host, unmodified."""
    made: Any
    if host == "bedrock":
        made = anthropic.AsyncAnthropicBedrock(api_key=KEY, aws_region="us-east-1", base_url=at.url, **more)
    else:
        made = anthropic.AsyncAnthropicVertex(
            access_token=KEY, region="us-east5", project_id="p", base_url=f"{at.url}/v1", **more
        )
    at.clients.append(made)
    return made


class Reader(FakeUpstream):
    """Calls a tool until there are results enough, then ends its turn; it thinks before."""

    def respond(self, body: bytes, **more: Any) -> Any:
        number = self.statistics.answered
        said = (
            say(thinking(f"and {number}?"), f"Reading {number}.", tool_use("Read", {"file_path": f"f{number}.py"}))
            if number % 5 < 4
            else say(thinking("enough"), f"Done {number}.")
        )
        return super().respond(body, reply=said, session="s", **more)


@pytest.mark.quick(1)
@pytest.mark.parametrize("host", HOSTS)
@in_loop
async def test_a_session_beyond_the_window(tmp_path: Path, host: str) -> None:
    """GW-10, GW-2: its SDK holds a session through compactions; the host refuses nothing, form and rules included."""
    window, settings = 40_000, Settings(window_tokens=40_000, durability="process")
    upstream = Reader(rules=ModelRules(window_tokens=window), leading_may_go=False)
    messages: list[Any] = []
    async with fake(upstream) as server, serving(tmp_path, server, settings=settings) as at:
        client, model = client_of(at, host, max_retries=0), BEDROCK if host == "bedrock" else VERTEX
        asked = {"model": model, "max_tokens": 2_000, "tools": TOOLS, "thinking": {"type": "adaptive"}}
        for n in range(40):
            last = messages[-1]["content"] if messages else []
            results = [
                {"type": "tool_result", "tool_use_id": block["id"], "content": f"line of {n}: value {n * 7}\n" * 300}
                for block in last
                if block["type"] == "tool_use"
            ]
            messages.append({"role": "user", "content": results or f"Read file {n}. " + f"Remark {n}. " * 2_000})
            if host == "vertex" and n % 2:
                async with client.messages.stream(messages=messages, **asked) as stream:
                    said = await stream.get_final_message()
            else:
                said = await client.messages.create(messages=messages, **asked)
            messages.append({"role": "assistant", "content": [b.model_dump(exclude_none=True) for b in said.content]})
        assert [event for event in at.sink.events if isinstance(event, CompactionDone)]
        assert len(at.held) == 1 and at.metric("perdure_passed_total", reason="not_messages") == 0
        sent = [request for request in server.received if request.body]
    statistics = upstream.statistics
    assert statistics.answered == 40 and not statistics.violations and statistics.refused == 0
    assert all({"model", "anthropic_version"} & set(body) == {"anthropic_version"} for body in at.bodies)
    assert len({request.path for request in sent}) == (1 if host == "bedrock" else 2)
    assert {request.headers["authorization"] for request in sent} == {f"Bearer {KEY}"}


# --- Bedrock's frames -------------------------------------------------------------------------------------------------


def body_of(text: str = "hello", **more: Any) -> bytes:
    fields = {"anthropic_version": "bedrock-2023-05-31", "max_tokens": 500, **more}
    return msgspec.json.encode({**fields, "messages": [{"role": "user", "content": text}]})


async def posted(
    url: str, path: str, body: bytes, headers: dict[str, str] | None = None
) -> tuple[int, dict[str, str], bytes]:
    given = {"content-type": "application/json", "authorization": f"Bearer {KEY}", **(headers or {})}
    async with aiohttp.ClientSession() as client, client.post(f"{url}{path}", data=body, headers=given) as answer:
        return answer.status, {name.lower(): value for name, value in answer.headers.items()}, await answer.read()


STREAMED = f"/model/{BEDROCK}/invoke-with-response-stream"


def events_in(data: bytes) -> list[Any]:
    frames = FrameBuffer(1 << 20).feed(data)
    return [msgspec.json.decode(base64.b64decode(msgspec.json.decode(one.payload)["bytes"])) for one in frames]


@in_loop
async def test_frames_of_a_stream_reach_the_client_as_they_came(tmp_path: Path) -> None:
    """GW-10, GW-1: nothing is edited, so nothing is changed but the last frame's padding."""
    upstream = FakeUpstream(rules=ModelRules(window_tokens=100_000), script=["ok " * 200, "ok " * 200])
    async with fake(upstream) as server, serving(tmp_path, server) as at:
        _, headers, direct = await posted(server.url, STREAMED, body_of())
        status, told, through = await posted(at.url, STREAMED, body_of())
        assert status == 200 and told["content-type"] == headers["content-type"] == "application/vnd.amazon.eventstream"
        assert told["x-perdure-mode"] == "untouched" and server.received[-1].body == body_of()
        before, after = events_in(direct), events_in(through)
        assert [{**e, "message": 0} for e in before] == [{**e, "message": 0} for e in after]
        (held,) = at.held
        assert held.session.view.state.responses == 1, "the answer was read along and recorded"


@in_loop
async def test_recall_is_answered_within_frames(tmp_path: Path) -> None:
    """GW-8, GW-10: our tool's call is hidden, and what the model says then goes on in the same stream of frames."""
    script = [say("Let me look.", tool_use("recall", {"query": "code"})), "There is none."]
    upstream = FakeUpstream(rules=ModelRules(window_tokens=100_000), script=script)
    async with fake(upstream) as server, serving(tmp_path, server) as at:
        status, _, data = await posted(at.url, STREAMED, body_of(tools=TOOLS))
        seen = events_in(data)
        assert status == 200 and b"recall" not in msgspec.json.encode(seen)
        starts = [event["index"] for event in seen if event["type"] == "content_block_start"]
        assert starts == [0, 1] and [event["type"] for event in seen].count("message_start") == 1
        assert seen[-2]["delta"]["stop_reason"] == "end_turn" and upstream.statistics.answered == 2
        assert not upstream.statistics.violations
        assert [tool["name"] for tool in at.bodies[0]["tools"]] == ["Read", "recall"]


@in_loop
async def test_an_exception_in_a_stream_and_a_refusal_are_the_clients_to_see(tmp_path: Path) -> None:
    """GW-10: as Bedrock words them; what is ours comes in its form, too."""
    async with (
        fake() as server,
        serving(tmp_path, server, tenants={"ann": {"key_env": "ANN"}}, environ={"ANN": KEY}) as at,
    ):
        server.faults.append(ErrorInStream(overloaded(), after_events=2))
        status, _, data = await posted(at.url, STREAMED, body_of())
        *_, last = FrameBuffer(1 << 20).feed(data)
        assert status == 200 and last.headers[":exception-type"] == "modelStreamErrorException"
        status, _, told = await posted(at.url, STREAMED, body_of(anthropic_version="v0"))
        assert status == 400 and "bedrock-2023-05-31" in msgspec.json.decode(told)["message"]
        status, _, told = await posted(at.url, STREAMED, body_of(), {"authorization": "Bearer stranger"})
        assert (status, msgspec.json.decode(told)) == (401, {"message": "perdure: no tenant has this key"})


# --- keys and signatures ----------------------------------------------------------------------------------------------

SIGNED = {
    "authorization": "AWS4-HMAC-SHA256 Credential=AKIA/20260101/us-east-1/bedrock/aws4_request, SignedHeaders=host, "
    "Signature=00ff",
    "x-amz-date": "20260101T000000Z",
    "x-amz-security-token": "session-token",
    "x-amz-content-sha256": "00ff",
}


@in_loop
async def test_a_signed_request_passes_as_it_came_and_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """GW-10, GW-7: another body would break its signature: header, metric and log say so, and what is needed."""
    async with fake() as server, serving(tmp_path, server) as at:
        with caplog.at_level(logging.WARNING, "perdure.gateway"):
            for _ in range(2):
                status, told, _ = await posted(at.url, STREAMED, body_of(), SIGNED)
        assert (status, told["x-perdure-mode"], told["x-perdure-reason"]) == (200, "passed", "aws_signature")
        sent = server.received[-1]
        assert sent.body == body_of() and {name: sent.headers[name] for name in SIGNED} == SIGNED
        assert at.metric("perdure_passed_total", reason="aws_signature") == 2 and not at.held
        assert sum("AWS_BEARER_TOKEN_BEDROCK" in record.getMessage() for record in caplog.records) == 1


@pytest.mark.parametrize(("path", "host"), [(STREAMED, "bedrock"), (f"{ON_VERTEX}:rawPredict", "vertex")])
@in_loop
async def test_a_configured_key_takes_the_place_of_whatever_the_client_sent(
    tmp_path: Path, path: str, host: str
) -> None:
    """GW-10, SEC-7: then a signed request is managed as any other, and nothing of its signature goes up."""
    async with fake() as server:
        upstreams = {host: {"url": server.url, "key_env": "UP"}}
        async with serving(tmp_path, server, upstreams=upstreams, environ={"UP": "upstream-key"}) as at:
            version = "bedrock-2023-05-31" if host == "bedrock" else "vertex-2023-10-16"
            status, told, _ = await posted(at.url, path, body_of(anthropic_version=version), SIGNED)
            assert (status, told["x-perdure-mode"]) == (200, "untouched") and len(at.held) == 1
            sent = server.received[-1].headers
            assert sent["authorization"] == "Bearer upstream-key"
            assert not {"x-api-key", "x-amz-security-token"} & set(sent)


@in_loop
async def test_a_key_beside_a_token_that_changes_says_whose_sessions_they_are(tmp_path: Path) -> None:
    """GW-10, GW-4: Google's tokens last an hour; with a fixed `x-api-key`, which stays here, the session goes on."""
    async with fake() as server, serving(tmp_path, server) as at:
        history: list[Any] = [{"role": "user", "content": "hi"}]
        for token in ("first", "second"):
            body = {"anthropic_version": "vertex-2023-10-16", "max_tokens": 9, "messages": history}
            headers = {"authorization": f"Bearer {token}", "x-api-key": "me"}
            _, told, said = await posted(at.url, f"{ON_VERTEX}:rawPredict", msgspec.json.encode(body), headers)
            history += [{"role": "assistant", "content": msgspec.json.decode(said)["content"]}]
            history += [{"role": "user", "content": "and?"}]
            sent = server.received[-1].headers
            assert sent["authorization"] == f"Bearer {token}" and "x-api-key" not in sent
        assert len(at.held) == 1 and at.held[0].head.count == 4 and told["x-perdure-mode"] == "untouched"


# --- counting, and what isn't managed ---------------------------------------------------------------------------------


@in_loop
async def test_counts_are_of_what_would_be_sent(tmp_path: Path) -> None:
    """GW-10, GW-1: in each host's form, and no higher than a client's meter may read."""
    history = [{"role": "user", "content": "word " * 60_000}]
    inner = {"anthropic_version": "bedrock-2023-05-31", "max_tokens": 1, "messages": history}
    wrapped = {"input": {"invokeModel": {"body": base64.b64encode(msgspec.json.encode(inner)).decode()}}}
    async with fake() as server, serving(tmp_path, server) as at:
        status, _, told = await posted(at.url, f"/model/{BEDROCK}/count-tokens", msgspec.json.encode(wrapped))
        assert (status, msgspec.json.decode(told)) == (200, {"inputTokens": 50_000})
        count = await client_of(at, "vertex").messages.count_tokens(model=VERTEX, messages=history)
        assert count.input_tokens == 50_000
        assert server.received[-1].path.endswith("/count-tokens:rawPredict")


@in_loop
async def test_models_of_other_makers_pass(tmp_path: Path) -> None:
    """GW-10, GW-7: their bodies are nobody's business here; and without an upstream of that name there is none."""
    async with fake() as server, serving(tmp_path, server) as at:
        for path, body, reason in (
            ("/model/amazon.nova-pro-v1:0/invoke", b'{"inputText": "hi"}', "not_messages"),
            ("/model/amazon.nova-pro-v1:0/converse", b'{"messages": []}', "path"),
        ):
            server.routes["POST", path] = RawAnswer(b'{"results": []}')
            status, told, _ = await posted(at.url, path, body)
            assert (status, told["x-perdure-reason"]) == (200, reason) and server.received[-1].body == body
    async with fake() as server, serving(tmp_path, server, upstreams={"anthropic": {"url": server.url}}) as at:
        status, _, told = await posted(at.url, STREAMED, body_of())
        assert status == 404 and "no upstream is configured" in msgspec.json.decode(told)["message"]
