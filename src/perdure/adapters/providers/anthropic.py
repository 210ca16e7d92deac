"""Models behind Anthropic's Messages API: its stream of events, and calls over the official SDK (LIB-3; the extra
`anthropic`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.adapters.extras import install
from perdure.context.failures import ErrorResponse, classify
from perdure.context.replies import (
    BlockDone,
    Delta,
    ModelInfo,
    ProviderEdit,
    Reply,
    ReplyStarted,
    TextDelta,
    ThinkingDelta,
    ToolInputDelta,
)
from perdure.context.request import ModelRequest
from perdure.errors import BadSetting, KeyRefused, ModelDown, ModelError, StreamCut
from perdure.transcript.blocks import Block, block_of
from perdure.transcript.messages import ResponseId, Usage

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic


_USAGE = tuple(Usage.__struct_fields__)
_CALLS = ("tool_use", "server_tool_use", "mcp_tool_use")
# A call whose input never became JSON: cut by these, it can't be run and is left out.
_CUT = ("max_tokens", "model_context_window_exceeded")


class AnthropicReplyBuilder:
    """One answer in the making. Feed it events; it gives deltas, and at the end the reply."""

    def __init__(self) -> None:
        self._fields: dict[str, Any] = {}
        self._usage: dict[str, Any] = {}
        self._open: dict[int, dict[str, Any]] = {}
        self._inputs: dict[int, list[str]] = {}
        self._texts: dict[tuple[int, str], list[str]] = {}  # of fields that come in pieces, joined at their end
        self._done: dict[int, Block] = {}
        self._stop_reason: str | None = None
        self._edits: tuple[ProviderEdit, ...] = ()
        self._is_over = False

    def feed(self, event: dict[str, Any]) -> Iterator[Delta]:
        """Enter an event; what a reader should see of it."""
        match event.get("type"):
            case "message_start":
                self._fields = event["message"]
                self._enter_usage(self._fields.get("usage"))
                yield ReplyStarted(ResponseId(str(self._fields.get("id", ""))))
            case "content_block_start":
                yield from self._start(int(event["index"]), event["content_block"])
            case "content_block_delta":
                yield from self._delta(int(event["index"]), event["delta"])
            case "content_block_stop":
                yield from self._stop(int(event["index"]))
            case "message_delta":
                self._stop_reason = event.get("delta", {}).get("stop_reason") or self._stop_reason
                self._enter_usage(event.get("usage"))
                self._enter_edits(event.get("context_management"))
            case "message_stop":
                self._is_over = True
            case _:
                pass

    def _enter_usage(self, usage: dict[str, Any] | None) -> None:
        self._usage.update({name: value for name, value in (usage or {}).items() if value is not None})

    def _enter_edits(self, management: dict[str, Any] | None) -> None:
        edits = (management or {}).get("applied_edits") or ()
        self._edits = tuple(
            ProviderEdit(
                str(edit.get("type", "")),
                int(edit.get("cleared_tool_uses") or edit.get("cleared_thinking_turns") or 0),
                int(edit.get("cleared_input_tokens") or 0),
            )
            for edit in edits
        )

    def _start(self, index: int, block: dict[str, Any]) -> Iterator[Delta]:
        self._open[index] = dict(block)
        kind = block.get("type")
        if kind in _CALLS:
            self._inputs[index] = []
            yield ToolInputDelta(index, str(block.get("name", "")), "")
        elif kind == "text" and block.get("text"):
            yield TextDelta(index, block["text"])

    def _delta(self, index: int, delta: dict[str, Any]) -> Iterator[Delta]:
        block = self._open[index]
        match delta.get("type"):
            case "text_delta":
                self._add(index, "text", delta["text"])
                yield TextDelta(index, delta["text"])
            case "thinking_delta":
                self._add(index, "thinking", delta["thinking"])
                yield ThinkingDelta(index, delta["thinking"])
            case "signature_delta":
                self._add(index, "signature", delta["signature"])
            case "input_json_delta":
                self._inputs.setdefault(index, []).append(delta["partial_json"])
                yield ToolInputDelta(index, str(block.get("name", "")), delta["partial_json"])
            case "citations_delta":
                block["citations"] = block.get("citations") or []
                block["citations"].append(delta["citation"])
            case _:  # compaction_delta, and what is not known yet: its fields are the block's
                block.update({name: value for name, value in delta.items() if name != "type"})

    def _add(self, index: int, name: str, piece: str) -> None:
        """A piece of a field; what the block began with stands before the first."""
        if not isinstance(piece, str):
            raise TypeError(f"{name} is no text")
        pieces = self._texts.get((index, name))
        if pieces is None:
            pieces = self._texts[index, name] = [self._open[index].get(name, "")]
        pieces.append(piece)

    def _stop(self, index: int) -> Iterator[Delta]:
        block = self._open[index]
        for key in [key for key in self._texts if key[0] == index]:
            block[key[1]] = "".join(self._texts.pop(key))
        pieces = "".join(self._inputs.get(index, ()))
        if pieces:
            parsed = _object(pieces)
            if parsed is None:
                return  # decided when the stop reason is known
            block["input"] = parsed
        del self._open[index]
        self._done[index] = block_of(block)
        yield BlockDone(index, self._done[index])

    def reply(self) -> Reply:
        """The whole answer. Raises `StreamCut` when its end never came."""
        if not self._is_over:
            raise StreamCut("the stream ended before the answer did")
        reason = self._stop_reason or "end_turn"
        for index, block in self._open.items():  # calls whose input is no JSON
            if reason not in _CUT and block.get("type") in _CALLS:
                self._done[index] = block_of({**block, "input": {"_raw": "".join(self._inputs[index])}})
        usage, billed = _usages(self._usage)
        return Reply(
            response=ResponseId(str(self._fields.get("id", ""))),
            model=str(self._fields.get("model", "")),
            blocks=tuple(self._done[index] for index in sorted(self._done)),
            stop_reason=reason,
            usage=usage,
            billed=billed,
            edits=self._edits,
        )


def _object(text: str) -> msgspec.Raw | None:
    """A call's input as it was written; None when it is no JSON object."""
    try:
        value = msgspec.json.decode(text)
    except msgspec.MsgspecError:
        return None
    return msgspec.Raw(text.encode()) if isinstance(value, dict) else None


def _usages(fields: dict[str, Any]) -> tuple[Usage | None, Usage | None]:
    """The size of the context, and what is paid for. Where the API lists its iterations, a compaction among them is
    paid but is no part of the size, which the last message's states."""
    if not fields:
        return None, None
    steps = [step for step in fields.get("iterations") or () if isinstance(step, dict)]
    messages = [step for step in steps if step.get("type") == "message"]
    size = _usage(messages[-1]) if messages else _usage(fields)
    if not steps:
        return size, None
    paid = [_usage(step) for step in steps]
    billed = Usage(*(sum(getattr(step, name) for step in paid) for name in _USAGE))
    return size, billed if billed != size else None


def _usage(fields: dict[str, Any]) -> Usage:
    split = fields.get("cache_creation")
    hours = {"cache_creation_1h_tokens": (split or {}).get("ephemeral_1h_input_tokens")} if split else {}
    return Usage(**{name: int({**fields, **hours}.get(name) or 0) for name in _USAGE})


_COMPACTION_BETAS = ("compact-2026-01-12", "compact-2026-09-04")
_NOT_COUNTED = ("max_tokens", "stream", "metadata", "service_tier", "stop_sequences", "container")
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


class AnthropicModel:
    """`ports.Model` over `anthropic.AsyncAnthropic`.

    Without a `client` one is made, from `key` (never stored elsewhere) or the SDK's own ways to find one. `discover`
    asks the server for the window.
    """

    def __init__(
        self,
        model: str,
        *,
        client: AsyncAnthropic | None = None,
        key: str | None = None,
        base_url: str | None = None,
        window_tokens: int | None = None,
        max_output_tokens: int | None = None,
        timeout_seconds: float = 600.0,
    ) -> None:
        sdk = _sdk()
        if client is None:
            client = sdk.AsyncAnthropic(api_key=key, base_url=base_url, max_retries=0, timeout=timeout_seconds)
        self._sdk, self._client = sdk, client.with_options(max_retries=0)
        self._about = ModelInfo(
            id=model, protocol="anthropic", window_tokens=window_tokens, max_output_tokens=max_output_tokens
        )

    @property
    def about(self) -> ModelInfo:
        return self._about

    async def discover(self) -> ModelInfo:
        """Ask the server what it knows of the model (PRS-8). Raises a `ModelError` when it can't be asked."""
        try:
            info: Any = await self._client.get(f"/v1/models/{self._about.id}", cast_to=self._sdk.types.ModelInfo)
        except self._sdk.AnthropicError as e:
            raise self._error(e) from e
        window, output = getattr(info, "max_input_tokens", None), getattr(info, "max_tokens", None)
        self._about = replace(
            self._about,
            window_tokens=self._about.window_tokens or window,
            max_output_tokens=self._about.max_output_tokens or output,
        )
        return self._about

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply, None]:
        assembly = AnthropicReplyBuilder()
        try:
            response: Any = await self._client.post(
                "/v1/messages",
                cast_to=object,
                content=self._body(request),
                options={"headers": self._headers(request)},
                stream=True,
                stream_cls=self._sdk.AsyncStream[object],
            )
            async with response:
                async for event in response:
                    for delta in assembly.feed(event):
                        yield delta
        except self._sdk.AnthropicError as e:
            raise self._error(e) from e
        except transport_errors() as e:
            raise StreamCut(f"{type(e).__name__}: {e}") from e
        except (KeyError, TypeError, ValueError, AttributeError) as e:
            raise ModelDown(f"the server sent an event that can't be read: {type(e).__name__} {e}") from e
        yield assembly.reply()

    async def count(self, request: ModelRequest) -> int | None:
        """The provider's count of the prompt (TOK-7)."""
        fields = _FIELDS.decode(with_model_name(request.body, self._about.id))
        body = msgspec.json.encode({name: raw for name, raw in fields.items() if name not in _NOT_COUNTED})
        try:
            answer: Any = await self._client.post(
                "/v1/messages/count_tokens",
                cast_to=object,
                content=body,
                options={"headers": self._headers(request)},
            )
        except self._sdk.AnthropicError as e:
            raise self._error(e) from e
        tokens = answer.get("input_tokens") if isinstance(answer, dict) else None
        return tokens if isinstance(tokens, int) else None

    async def close(self) -> None:
        await self._client.close()

    def _body(self, request: ModelRequest) -> bytes:
        """The bytes as they are; what is missing goes behind everything else, so no prefix changes."""
        body = with_model_name(request.body, self._about.id)
        return body if request.stream else body[:-1] + b',"stream":true}'

    def _headers(self, request: ModelRequest) -> dict[str, str]:
        betas = dict.fromkeys(request.betas)
        if b'"type":"compaction"' in request.body:  # such blocks are only read with these
            betas.update(dict.fromkeys(_COMPACTION_BETAS))
        headers = {"Content-Type": "application/json"}
        return {**headers, "anthropic-beta": ",".join(betas)} if betas else headers

    def _error(self, error: Exception) -> ModelError:
        sdk = self._sdk
        if isinstance(error, sdk.APIStatusError):
            return classify(
                ErrorResponse(
                    status=error.status_code,
                    message=error.api_message or error.message,
                    kind=str(error.type or ""),
                    code=str(error.error_code or ""),
                    retry_after_seconds=retry_after(error.response.headers.get("retry-after")),
                )
            )
        if isinstance(error, sdk.APITimeoutError):
            return ModelDown("the server didn't answer in time")
        if isinstance(error, sdk.APIConnectionError):
            return ModelDown(f"{error.message} {error.__cause__ or ''}")
        if isinstance(error, sdk.CredentialsError):
            return KeyRefused(str(error))
        return ModelDown(f"{type(error).__name__}: {error}")


def _sdk() -> Any:
    try:
        import anthropic
    except ImportError as e:
        raise BadSetting(f"models of Anthropic need another package: {install('anthropic')}") from e
    return anthropic


def transport_errors() -> tuple[type[Exception], ...]:
    """What the SDK lets through when a stream breaks off."""
    import httpx2

    return (httpx2.HTTPError, httpx2.StreamError)


def with_model_name(body: bytes, model: str) -> bytes:
    """The body with its model in front, where whoever made it didn't know which one is asked."""
    return body if body.startswith(b'{"model":') else b'{"model":%b,%b' % (msgspec.json.encode(model), body[1:])


def retry_after(header: str | None) -> float | None:
    """Seconds of a Retry-After header; None for a date or nonsense."""
    try:
        return float(header) if header else None
    except ValueError:
        return None
