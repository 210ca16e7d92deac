"""`ports.Model`: what every model does, scripted or behind the official SDKs on a loopback server (LIB-3, TURN-11)."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal

import anyio
import msgspec
import pytest

from perdure.adapters.providers.anthropic import AnthropicModel
from perdure.adapters.providers.openai import OpenAIModel
from perdure.context.models import UNKNOWN
from perdure.context.policy import Facts, thresholds
from perdure.context.replies import BlockDone, Delta, Reply, ReplyStarted, TextDelta
from perdure.context.request import ModelRequest, to_request
from perdure.context.view import ContextView, project
from perdure.errors import (
    BadRequest,
    KeyRefused,
    ModelDown,
    ModelError,
    ModelUnknown,
    Overloaded,
    PromptTooLong,
    RateLimited,
    StreamCut,
)
from perdure.ports.session import Model
from perdure.settings import Settings
from perdure.testing import (
    CutStream,
    ErrorInStream,
    FakeServer,
    FakeUpstream,
    ModelRules,
    RawAnswer,
    ScriptedModel,
    UpstreamError,
    overloaded,
    prompt_too_long,
    rate_limited,
    say,
    server_error,
    thinking,
    tool_use,
)
from perdure.transcript.messages import Message, MessageId
from perdure.transcript.records import Front

pytestmark = pytest.mark.contract

Kind = Literal["scripted", "scripted_openai", "anthropic", "openai"]
KINDS: tuple[Kind, ...] = ("scripted", "scripted_openai", "anthropic", "openai")
WIRED: tuple[Kind, ...] = ("anthropic", "openai")


@dataclass
class Place:
    """A model to try, and what stands behind it."""

    kind: Kind
    model: Model
    upstream: FakeUpstream
    server: FakeServer | None

    def request(self, words: str = "What is 6 times 7?", **more: Any) -> ModelRequest:
        return request_of(view_of(words), self.model, **more)


def view_of(words: str) -> ContextView:
    tool = {"name": "Read", "description": "reads", "input_schema": {"type": "object"}}
    front = Front(model="fake", tools=(msgspec.Raw(msgspec.json.encode(tool)),))
    return project([front, Message.of("user", words, id=MessageId("m1"))])


def request_of(view: ContextView, model: Model, *, stream: bool = True) -> ModelRequest:
    settings = Settings()
    facts = Facts(settings=settings, limits=thresholds(settings, UNKNOWN, 200_000, "default"))
    return to_request(view, facts, protocol=model.about.protocol, stream=stream)


@asynccontextmanager
async def place(kind: Kind, *script: Any, window: int = 200_000, **server: Any) -> AsyncIterator[Place]:
    upstream = FakeUpstream(rules=ModelRules(window_tokens=window), script=script)
    if kind == "scripted":
        yield Place(kind, ScriptedModel(upstream=upstream, id="fake"), upstream, None)
        return
    if kind == "scripted_openai":
        yield Place(kind, ScriptedModel(upstream=upstream, id="fake", protocol="openai"), upstream, None)
        return
    server["faults"] = deque(server.get("faults", ()))
    async with FakeServer(upstream, **server) as fake:
        model: Model
        if kind == "anthropic":
            model = AnthropicModel("fake", key="k", base_url=fake.url)
        else:
            model = OpenAIModel("fake", base_url=fake.url + "/v1")
        try:
            yield Place(kind, model, upstream, fake)
        finally:
            await model.close()


async def asked(model: Model, request: ModelRequest) -> tuple[list[Delta], Reply]:
    everything = [one async for one in model.stream(request)]
    *deltas, reply = everything
    assert isinstance(reply, Reply) and not any(isinstance(delta, Reply) for delta in deltas)
    return deltas, reply  # type: ignore[return-value]


@pytest.mark.parametrize("kind", KINDS)
def test_deltas_then_one_reply(kind: Kind) -> None:
    async def body() -> None:
        words = "The answer is 42, as it has always been. " * 5
        async with place(kind, say(words, tool_use("Read", {"path": "ä/b.txt", "n": 3}))) as here:
            deltas, reply = await asked(here.model, here.request())
            assert isinstance(deltas[0], ReplyStarted) and deltas[0].response == reply.response
            assert "".join(d.text for d in deltas if isinstance(d, TextDelta)) == words
            assert tuple(d.block for d in deltas if isinstance(d, BlockDone)) == reply.blocks
            text, use = reply.blocks
            assert reply.text == words and text.type == "text" and reply.stop_reason == "tool_use"
            fields = msgspec.json.decode(use.raw)
            assert (fields["name"], fields["input"]) == ("Read", {"path": "ä/b.txt", "n": 3})
            assert reply.usage is not None and reply.usage.prompt_tokens > 5 and reply.usage.output_tokens > 10

    anyio.run(body)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("kind", WIRED)
def test_the_bytes_of_the_request_are_sent_as_they_are(kind: Kind, stream: bool) -> None:
    async def body() -> None:
        async with place(kind, "ok") as here:
            request = here.request("odd  spacing, ünïcödé, \u2028 and \\u0041", stream=stream)
            await asked(here.model, request)
            assert here.server is not None
            sent = here.server.received[-1].body
            if kind == "openai":
                sent = sent.replace(b'"max_tokens":', b'"max_completion_tokens":', 1)
            messages = sent.index(b'"messages":')
            assert sent[messages:].startswith(request.body[request.body.index(b'"messages":') : -1])
            assert not stream or sent == request.body
            assert msgspec.json.decode(sent)["stream"] is True

    anyio.run(body)


@pytest.mark.parametrize("kind", WIRED)
def test_a_request_that_names_no_model_gets_the_one_that_is_asked(kind: Kind) -> None:
    async def body() -> None:
        async with place(kind, "ok") as here:
            view = project([Message.of("user", "hello", id=MessageId("m1"))])
            await asked(here.model, request_of(view, here.model))
            assert here.server is not None
            assert here.server.received[-1].body.startswith(b'{"model":"fake",')

    anyio.run(body)


ERRORS: list[tuple[UpstreamError, type[ModelError]]] = [
    (rate_limited(7), RateLimited),
    (overloaded(), Overloaded),
    (server_error(), ModelDown),
    (prompt_too_long(205_123, 200_000), PromptTooLong),
    (UpstreamError(401, "authentication_error", "invalid key"), KeyRefused),
    (UpstreamError(404, "not_found_error", "model: fake"), ModelUnknown),
    (UpstreamError(400, "invalid_request_error", "tools.0: no"), BadRequest),
]


@pytest.mark.parametrize(("error", "expected"), ERRORS, ids=[e.__name__ for _, e in ERRORS])
@pytest.mark.parametrize("kind", KINDS)
def test_errors_are_typed_and_nothing_is_tried_twice(
    kind: Kind, error: UpstreamError, expected: type[ModelError]
) -> None:
    async def body() -> None:
        async with place(kind, error, "never asked for") as here:
            with pytest.raises(ModelError) as caught:
                await asked(here.model, here.request())
            assert type(caught.value) is expected
            assert here.upstream.statistics.requests == 1
            if isinstance(caught.value, RateLimited):
                assert caught.value.retry_after_seconds == 7.0
            if isinstance(caught.value, PromptTooLong):
                assert (caught.value.tokens, caught.value.maximum) == (205_123, 200_000)

    anyio.run(body)


@pytest.mark.parametrize("kind", KINDS)
def test_a_window_that_is_too_small_is_told_with_numbers(kind: Kind) -> None:
    async def body() -> None:
        async with place(kind, window=2_000) as here:
            with pytest.raises(PromptTooLong) as caught:
                await asked(here.model, here.request("word " * 4_000))
            assert caught.value.maximum == 2_000 and (caught.value.tokens or 0) > 2_000

    anyio.run(body)


@pytest.mark.parametrize("after", [1, 3, 6])
@pytest.mark.parametrize("kind", WIRED)
def test_a_stream_that_breaks_off_is_cut(kind: Kind, after: int) -> None:
    async def body() -> None:
        async with place(kind, "word " * 100, "again", faults=[CutStream(after)]) as here:
            with pytest.raises(StreamCut):
                await asked(here.model, here.request())
            _, reply = await asked(here.model, here.request())
            assert reply.text == "again"

    anyio.run(body)


@pytest.mark.parametrize("kind", WIRED)
def test_an_error_behind_a_status_of_200_is_an_error(kind: Kind) -> None:
    async def body() -> None:
        fault = ErrorInStream(UpstreamError(529, "overloaded_error", "Overloaded"), after_events=2)
        async with place(kind, "word " * 100, faults=[fault]) as here:
            with pytest.raises(Overloaded):
                await asked(here.model, here.request())

    anyio.run(body)


@pytest.mark.parametrize("kind", WIRED)
def test_nonsense_is_a_server_that_is_down_or_a_cut(kind: Kind) -> None:
    async def body() -> None:
        bodies = [
            RawAnswer(b"data: {broken\n\n", content_type="text/event-stream"),
            RawAnswer(
                b'event: content_block_stop\ndata: {"type":"content_block_stop"}\n\n', content_type="text/event-stream"
            ),
            RawAnswer(b"<html>", status=502, content_type="text/html"),
            RawAnswer(b"", content_type="text/event-stream"),
        ]
        async with place(kind, *["ok"] * 4, faults=bodies) as here:
            for _ in bodies:
                with pytest.raises((ModelDown, StreamCut)):
                    await asked(here.model, here.request())

    anyio.run(body)


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_can_be_left_early_and_the_model_used_again(kind: Kind) -> None:
    async def body() -> None:
        async with place(kind, "word " * 500, "again") as here:
            async with aclosing(here.model.stream(here.request())) as stream:
                async for delta in stream:
                    if isinstance(delta, TextDelta):
                        break
            _, reply = await asked(here.model, here.request())
            assert reply.text == "again"

    anyio.run(body)


@pytest.mark.parametrize("kind", WIRED)
def test_nobody_there_is_down(kind: Kind) -> None:
    async def body() -> None:
        async with place(kind) as here:
            assert here.server is not None
            url, request = here.server.url, here.request()
        model = (
            AnthropicModel("fake", key="k", base_url=url) if kind == "anthropic" else OpenAIModel("fake", base_url=url)
        )
        with pytest.raises(ModelDown):
            await asked(model, request)
        await model.close()

    anyio.run(body)


@pytest.mark.parametrize("kind", KINDS)
def test_counting_is_the_providers_or_nothing(kind: Kind) -> None:
    """TOK-7."""

    async def body() -> None:
        async with place(kind, "ok") as here:
            request = here.request("word " * 100)
            counted = await here.model.count(request)
            _, reply = await asked(here.model, request)
            if here.model.about.protocol == "openai":
                assert counted is None
            else:
                assert reply.usage is not None and counted == reply.usage.prompt_tokens

    anyio.run(body)


# --- what only one of them has --------------------------------------------------------------------------------------


def test_anthropic_counts_without_what_that_endpoint_refuses() -> None:
    async def body() -> None:
        async with place("anthropic") as here:
            assert here.server is not None
            await here.model.count(here.request())
            assert set(msgspec.json.decode(here.server.received[-1].body)) == {"model", "tools", "messages"}

    anyio.run(body)


def test_anthropic_betas_go_into_the_header() -> None:
    async def body() -> None:
        async with place("anthropic", "ok", "ok") as here:
            assert here.server is not None
            request = here.request()
            request = ModelRequest("anthropic", request.body, request.groups, ("context-management-2025-06-27",), True)
            await asked(here.model, request)
            assert here.server.received[-1].headers["anthropic-beta"] == "context-management-2025-06-27"
            await asked(here.model, here.request())
            assert "anthropic-beta" not in here.server.received[-1].headers

    anyio.run(body)


def test_anthropic_thinking_comes_back_with_its_signature() -> None:
    async def body() -> None:
        async with place("anthropic", say(thinking("hm " * 50), "so")) as here:
            _, reply = await asked(here.model, here.request())
            fields = msgspec.json.decode(reply.blocks[0].raw)
            assert fields["thinking"] == "hm " * 50 and fields["signature"].startswith("perdure1.")

    anyio.run(body)


def test_anthropic_tells_its_window() -> None:
    """PRS-8."""

    async def body() -> None:
        async with place("anthropic", model={"max_input_tokens": 500_000, "max_tokens": 9_000}) as here:
            assert isinstance(here.model, AnthropicModel)
            about = await here.model.discover()
            assert (about.window_tokens, about.max_output_tokens) == (500_000, 9_000) and here.model.about is about

    anyio.run(body)


def test_compatible_servers_tell_their_window() -> None:
    """PRS-8, LIB-3: over the SDK, under and beside the API's path."""

    async def body() -> None:
        async with place("openai", model={"max_model_len": 32_768}) as here:
            assert isinstance(here.model, OpenAIModel)
            assert (await here.model.discover()).window_tokens == 32_768
        routes = {("GET", "/props"): {"default_generation_settings": {"n_ctx": 8_192}}}
        async with place("openai", routes=routes) as here:
            assert isinstance(here.model, OpenAIModel)
            assert (await here.model.discover()).window_tokens == 8_192
        routes = {("POST", "/api/show"): {"parameters": "num_ctx 6000"}}
        async with place("openai", routes=routes) as here:
            assert isinstance(here.model, OpenAIModel)
            assert (await here.model.discover()).window_tokens == 6_000
            assert here.server is not None and msgspec.json.decode(here.server.received[-1].body) == {"model": "fake"}

    anyio.run(body)


def test_vllm_counts() -> None:
    async def body() -> None:
        async with place("openai", routes={("POST", "/tokenize"): {"count": 17, "tokens": [1]}}) as here:
            assert await here.model.count(here.request()) == 17

    anyio.run(body)


@pytest.mark.parametrize(
    "body_bytes",
    [
        b'{"error":{"code":400,"message":"the request exceeds the available context size","type":'
        b'"exceed_context_size_error","n_prompt_tokens":1407,"n_ctx":256}}',
        b'{"object":"error","message":"This model\'s maximum context length is 256 tokens. However, your request '
        b'has 1407 input tokens.","code":400}',
    ],
)
def test_an_error_that_calls_itself_a_success(body_bytes: bytes) -> None:
    async def body() -> None:
        async with place("openai", "ok", faults=[RawAnswer(body_bytes)]) as here:
            with pytest.raises(PromptTooLong) as caught:
                await asked(here.model, here.request())
            assert (caught.value.tokens, caught.value.maximum) == (1_407, 256)

    anyio.run(body)


def test_a_server_that_does_not_stream_is_understood() -> None:
    async def body() -> None:
        whole = {
            "id": "c1",
            "model": "m",
            "choices": [
                {"index": 0, "message": {"role": "assistant", "content": "all at once"}, "finish_reason": "stop"}
            ],
            "usage": {"prompt_tokens": 5, "completion_tokens": 3},
        }
        async with place("openai", "ok", faults=[RawAnswer(msgspec.json.encode(whole))]) as here:
            _, reply = await asked(here.model, here.request())
            assert reply.text == "all at once" and reply.usage is not None

    anyio.run(body)


def test_ids_that_stand_in_the_conversation_already_are_changed() -> None:
    async def body() -> None:
        view = view_of("go")
        use = {"type": "tool_use", "id": "call_0", "name": "Read", "input": {}}
        result = {"type": "tool_result", "tool_use_id": "call_0", "content": "x"}
        view = project(
            [
                Message.of("assistant", [use], id=MessageId("m2")),
                Message.of("user", [result], id=MessageId("m3")),
            ],
            onto=view,
        )

        async with place("openai", say(tool_use("Read", {"p": 1}, id="call_0"))) as here:
            _, reply = await asked(here.model, request_of(view, here.model))
            assert msgspec.json.decode(reply.blocks[0].raw)["id"].startswith("call_")
            assert msgspec.json.decode(reply.blocks[0].raw)["id"] != "call_0"

    anyio.run(body)
