"""Models without a network, behind the port of the real ones, and ids without chance."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import AsyncGenerator, Iterable, Iterator
from dataclasses import replace
from hashlib import sha256
from typing import Literal

from perdure.context.failures import ErrorResponse, classify
from perdure.context.replies import (
    BlockDone,
    Delta,
    ModelInfo,
    ReplyStarted,
    StopReason,
    TextDelta,
    ThinkingDelta,
    ToolInputDelta,
    WireProtocol,
)
from perdure.context.replies import Reply as ModelReply
from perdure.context.request import ModelRequest
from perdure.errors import BadRequest, BodyTooLarge, MediaRefused, ModelDown, ModelError, StreamCut, ThinkingRefused
from perdure.logs.recording import Recording
from perdure.ports.session import Model
from perdure.testing.block_rules import ModelRules
from perdure.testing.openai_rules import respond_to_chat
from perdure.testing.upstream import (
    FakeUpstream,
    Scripted,
    UpstreamError,
    UpstreamReply,
    overloaded,
    prompt_too_long,
    rate_limited,
    server_error,
)
from perdure.transcript.blocks import Block, Text, Thinking, ToolUse, block_of, text_block
from perdure.transcript.messages import Message, ResponseId
from perdure.transcript.messages import Usage as ReportedUsage

CHARS = 40  # of a delta
Fault = Literal[
    "ok",
    "cut",
    "rate_limited",
    "overloaded",
    "server_error",
    "too_long",
    "too_long_with_numbers",
    "body_too_large",
    "media",
    "thinking",
    "empty",
    "only_thinking",
    "only_analysis",
    "output_limit",
    "window_stop",
    "bad_request",
]
"""What a call of a `ChaosModel` can be hit by."""


def error_of(error: UpstreamError) -> ModelError:
    """What an error answer means, as the adapters would say it."""
    wait = error.headers.get("retry-after")
    return classify(
        ErrorResponse(
            status=error.status,
            message=error.message,
            kind=error.type,
            retry_after_seconds=float(wait) if wait else None,
        )
    )


def deltas_of(response: str, blocks: Iterable[Block]) -> Iterator[Delta]:
    """An answer as it would stream."""
    yield ReplyStarted(ResponseId(response))
    for index, block in enumerate(blocks):
        match block.value:
            case Text(text=text):
                yield from (TextDelta(index, text[at : at + CHARS]) for at in range(0, len(text), CHARS))
            case Thinking(thinking=text):
                yield from (ThinkingDelta(index, text[at : at + CHARS]) for at in range(0, len(text), CHARS))
            case ToolUse(name=name, raw_input=given):
                yield ToolInputDelta(index, name, "")
                yield ToolInputDelta(index, name, bytes(given).decode())
            case _:
                pass
        yield BlockDone(index, block)


class ScriptedModel:
    """`ports.Model` that says what you script, through a `FakeUpstream` that refuses invalid requests.

    A script holds texts, `say(...)` and errors, one for each call; when it is used up, every answer is "ok".
    `window_tokens` is what it states of itself (None: nothing), and what the upstream has, unless one is given; its
    other limits are those of the model `id`. With `protocol="openai"` it is asked in Chat Completions. `requests` are
    all that were sent; `upstream.statistics` tells what the cache and the rules made of them.
    """

    def __init__(
        self,
        script: Iterable[Scripted] = (),
        *,
        upstream: FakeUpstream | None = None,
        id: str = "scripted",
        window_tokens: int | None = 200_000,
        protocol: WireProtocol = "anthropic",
    ) -> None:
        rules = replace(ModelRules.of(id), window_tokens=window_tokens or 200_000)
        self.upstream = upstream or FakeUpstream(rules=rules)
        self.upstream.script.extend(script)
        self.requests: list[ModelRequest] = []
        self.is_closed = False
        self._about = ModelInfo(id=id, protocol=protocol, window_tokens=window_tokens)

    @property
    def about(self) -> ModelInfo:
        return self._about

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | ModelReply, None]:
        self.requests.append(request)
        try:
            if self._about.protocol == "openai":
                reply = respond_to_chat(self.upstream, request.body, session="scripted")
            else:
                reply = self.upstream.respond(request.body, session="scripted")
        except UpstreamError as e:
            raise error_of(e) from None
        blocks = tuple(block_of(block) for block in reply.content)
        for delta in deltas_of(reply.id, blocks):
            yield delta
        yield _reply(reply, blocks)

    async def count(self, request: ModelRequest) -> int | None:
        if self._about.protocol == "openai":
            return None  # no server of that protocol counts
        return self.upstream.count_tokens(request.body)["input_tokens"]

    async def close(self) -> None:
        self.is_closed = True


def _reply(reply: UpstreamReply, blocks: tuple[Block, ...]) -> ModelReply:
    usage = reply.usage
    return ModelReply(
        response=ResponseId(reply.id),
        model=reply.model,
        blocks=blocks,
        stop_reason=reply.stop_reason,
        usage=ReportedUsage(
            usage.input_tokens,
            usage.output_tokens,
            usage.cache_read_input_tokens,
            usage.cache_creation_input_tokens,
        ),
    )


class ReplayingModel:
    """`ports.Model` that gives the answers of a recorded session, one for each call, whatever it is asked.

    With `reports_usage` they come with the usage that was recorded, which fits only where the request does, too. After
    the last answer a call is refused.
    """

    def __init__(self, recording: Recording, *, reports_usage: bool = False) -> None:
        self._answers = deque(_responses(recording))
        self._reports_usage = reports_usage
        self._about = ModelInfo(
            id=recording.model or "replaying", protocol="anthropic", window_tokens=recording.window_tokens
        )
        self.requests: list[ModelRequest] = []

    @property
    def about(self) -> ModelInfo:
        return self._about

    @property
    def remaining(self) -> int:
        """How many answers there still are."""
        return len(self._answers)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | ModelReply, None]:
        self.requests.append(request)
        if not self._answers:
            raise BadRequest("the recording has no more answers")
        messages = self._answers.popleft()
        blocks = tuple(block for message in messages for block in message.blocks)
        last = messages[-1]
        response = last.response_id or ResponseId(last.id)
        for delta in deltas_of(response, blocks):
            yield delta
        has_calls = any(block.type == "tool_use" for block in blocks)
        yield ModelReply(
            response=response,
            model=last.model or self._about.id,
            blocks=blocks,
            stop_reason=last.stop_reason or ("tool_use" if has_calls else "end_turn"),
            usage=last.usage if self._reports_usage else None,
        )

    async def count(self, request: ModelRequest) -> int | None:
        return None

    async def close(self) -> None:
        pass


def _responses(recording: Recording) -> Iterator[list[Message]]:
    """The messages of each API response of the main conversation."""
    group: list[Message] = []
    for message in recording.messages:
        if message.role != "assistant" or message.agent_id is not None:
            continue
        if group and (message.response_id is None or message.response_id != group[-1].response_id):
            yield group
            group = []
        group.append(message)
    if group:
        yield group


class ChaosModel:
    """`ports.Model` that fails as planned before it lets another one answer: a fault for each call, then none.

    A fault never uses up an answer of the model inside. `met` counts what was sent into each fault.
    """

    def __init__(self, inner: Model, faults: Iterable[Fault] = (), *, retry_after_seconds: float | None = 1.0) -> None:
        self._inner = inner
        self._faults = deque(faults)
        self._retry_after = retry_after_seconds
        self._count = 0

    @property
    def about(self) -> ModelInfo:
        return self._inner.about

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | ModelReply, None]:
        fault = self._faults.popleft() if self._faults else "ok"
        self._count += 1
        if fault == "ok":
            async for delta in self._inner.stream(request):
                yield delta
            return
        # an id of its own, also in a session that another process began
        response = ResponseId(f"chaos-{self._count}-{sha256(request.body).hexdigest()[:9]}")
        if fault == "cut":
            yield ReplyStarted(response)
            yield TextDelta(0, "And then it")
            raise StreamCut("the connection was closed")
        elif (answer := _odd_answer(fault)) is not None:
            blocks, stop_reason = answer
            for odd in deltas_of(response, blocks):
                yield odd
            yield ModelReply(
                response=response,
                model=self.about.id,
                blocks=blocks,
                stop_reason=stop_reason,
                usage=None,
            )
        else:
            raise self._error(fault, request)

    def _error(self, fault: Fault, request: ModelRequest) -> ModelError:
        window = self.about.window_tokens or 200_000
        match fault:
            case "rate_limited":
                return error_of(rate_limited(self._retry_after))
            case "overloaded":
                return error_of(overloaded())
            case "server_error":
                return error_of(server_error())
            case "too_long":
                return error_of(UpstreamError(400, "invalid_request_error", "prompt is too long"))
            case "too_long_with_numbers":
                return error_of(prompt_too_long(window + len(request.body) // 40, window))
            case "body_too_large":
                return BodyTooLarge("Request exceeds the maximum size", status=413)
            case "media":
                return MediaRefused("messages.0.content.0.image: Could not process image", status=400)
            case "thinking":
                return ThinkingRefused("messages.1.content.0: Invalid `signature` in `thinking` block", status=400)
            case "bad_request":
                return BadRequest("tools.0.name: invalid", status=400)
            case _:
                return ModelDown(fault)

    async def count(self, request: ModelRequest) -> int | None:
        return await self._inner.count(request)

    async def close(self) -> None:
        await self._inner.close()


def _odd_answer(fault: Fault) -> tuple[tuple[Block, ...], StopReason] | None:
    match fault:
        case "empty":
            return (), "end_turn"
        case "only_thinking":
            return (block_of({"type": "thinking", "thinking": "hm", "signature": "none"}),), "end_turn"
        case "only_analysis":
            return (text_block("<analysis>\nIt was long.\n</analysis>"),), "end_turn"
        case "output_limit":
            return (text_block("The first of many points is th"),), "max_tokens"
        case "window_stop":
            return (text_block("The answer would have been"),), "model_context_window_exceeded"
        case _:
            return None


class CountingIds:
    """`ports.Ids`: `kind-1`, `kind-2`, … for each kind on its own."""

    def __init__(self) -> None:
        self._made: Counter[str] = Counter()

    def new(self, kind: str) -> str:
        self._made[kind] += 1
        return f"{kind}-{self._made[kind]}"
