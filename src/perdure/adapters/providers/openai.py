"""Models behind the Chat Completions API: its chunks, the window of a server, and calls over the official SDK
(LIB-3).
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from perdure.adapters.extras import install
from perdure.adapters.providers.anthropic import retry_after, transport_errors, with_model_name
from perdure.context.failures import ErrorResponse, classify
from perdure.context.replies import (
    BlockDone,
    Delta,
    ModelInfo,
    Reply,
    ReplyStarted,
    TextDelta,
    ThinkingDelta,
    ToolInputDelta,
)
from perdure.context.request import ModelRequest
from perdure.errors import BadSetting, ModelDown, ModelError, StreamCut
from perdure.transcript.blocks import NAME_CHARACTERS, Block, block_of, sendable_id, text_block
from perdure.transcript.messages import ResponseId, Usage, WireFields

if TYPE_CHECKING:
    from openai import AsyncOpenAI


_STOPS = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}

_PLATFORMS: dict[str, Literal["Linux", "MacOS", "Windows"]] = {"linux": "Linux", "darwin": "MacOS", "win32": "Windows"}


@dataclass(slots=True)
class _PartialCall:
    identity: str = ""
    name: str = ""
    is_custom: bool = False  # called with a text
    pieces: list[str] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict)


class OpenAIReplyBuilder:
    """One answer in the making. `taken` gives the ids of calls that the conversation holds, when asked."""

    def __init__(
        self, model: str, *, window_tokens: int | None = None, taken: Callable[[], Collection[str]] = tuple
    ) -> None:
        self._model = model
        self._window = window_tokens
        self._taken_before = taken
        self._response = ""
        self._thought: list[str] = []
        self._text: list[str] = []
        self._calls: dict[int, _PartialCall] = {}
        self._more: dict[str, Any] = {}
        self._parts: dict[str, msgspec.Raw] = {}  # what calls say besides, by their ids
        self._finish: str | None = None
        self._usage: dict[str, Any] | None = None

    @property
    def has_begun(self) -> bool:
        return bool(self._response)

    @property
    def has_text(self) -> bool:
        return bool(self._text)

    @property
    def first_call(self) -> int:
        """The index of the first call among the blocks that have come."""
        return bool(self._thought) + bool(self._text)

    def feed(self, chunk: dict[str, Any]) -> Iterator[Delta]:
        """Enter a chunk; what a reader should see of it. The indices are those of the blocks in the reply."""
        if not self._response:
            self._response = str(chunk.get("id") or "chat")
            self._model = str(chunk.get("model") or self._model)
            yield ReplyStarted(ResponseId(self._response))
        if isinstance(chunk.get("usage"), dict):
            self._usage = chunk["usage"]
        for choice in chunk.get("choices") or ():
            if choice.get("index") not in (None, 0):
                continue
            self._finish = choice.get("finish_reason") or self._finish
            yield from self._delta(choice.get("delta") or choice.get("message") or {})

    def _delta(self, delta: dict[str, Any]) -> Iterator[Delta]:
        thought = delta.get("reasoning_content") or delta.get("reasoning")
        if isinstance(thought, str) and thought:
            self._thought.append(thought)
            yield ThinkingDelta(0, thought)
        _add(self._more, delta, _READ)
        words = delta.get("content") or delta.get("refusal")
        if isinstance(words, str) and words:
            self._text.append(words)
            yield TextDelta(int(bool(self._thought)), words)
        for number, piece in enumerate(delta.get("tool_calls") or ()):
            yield self._piece(number, piece)

    def _piece(self, number: int, piece: dict[str, Any]) -> ToolInputDelta:
        """A piece of a call. Without an index it goes on with the last call, unless it brings a new id or name."""
        function = piece.get("function") or piece.get("custom") or {}
        index = piece.get("index")
        if not isinstance(index, int):
            last = max(self._calls, default=-1)
            is_new = bool(function.get("name")) or bool(piece.get("id")) or number > 0
            index = last + 1 if is_new or last < 0 else last
        elif index in self._calls and piece.get("id") and self._calls[index].identity not in ("", piece["id"]):
            index = max(self._calls) + 1  # some servers give every call the index 0
        call = self._calls.setdefault(index, _PartialCall())
        call.identity = call.identity or str(piece.get("id") or "")
        call.name = call.name or str(function.get("name") or "")
        call.is_custom = call.is_custom or "custom" in piece
        _add(call.more, piece, _READ_OF_CALL)
        arguments = function.get("input") if call.is_custom else function.get("arguments")
        text = arguments if isinstance(arguments, str) else "" if arguments is None else _text_of(arguments)
        call.pieces.append(text)
        return ToolInputDelta(self.first_call + index, call.name, text)

    def finish(self) -> Iterator[Delta | Reply]:
        """The blocks, now that they are whole, and the reply. Raises `StreamCut` when the end never came."""
        if self._finish is None:
            raise StreamCut("the stream ended before the answer did")
        blocks = tuple(self._blocks())
        yield from (BlockDone(index, block) for index, block in enumerate(blocks))
        usage = _usage(self._usage)
        yield Reply(
            response=ResponseId(self._response),
            model=self._model,
            blocks=blocks,
            stop_reason=self._stop_reason(usage),
            usage=usage,
            wire=self._wire(),
        )

    def _wire(self) -> WireFields | None:
        fields = {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in self._more.items()}
        return WireFields(protocol="openai", fields=fields, parts=self._parts) if fields or self._parts else None

    def _blocks(self) -> Iterator[Block]:
        if self._thought:  # unsigned: kept in the journal, never sent
            yield block_of({"type": "thinking", "thinking": "".join(self._thought), "signature": ""})
        if self._text:
            yield text_block("".join(self._text))
        taken = set(self._taken_before()) if self._calls else set()
        for index in sorted(self._calls):
            call = self._calls[index]
            text = "".join(call.pieces)
            arguments = {"input": text} if call.is_custom else _arguments(text)
            is_cut = self._finish == "length" and index == max(self._calls) and isinstance(arguments, dict)
            if not is_cut:
                name = call.name[:NAME_CHARACTERS] or "unnamed"
                identity = self._unique(call, index, taken)
                if identity == sendable_id(call.identity) != call.identity:
                    call.more["id"] = call.identity
                if call.more:
                    self._parts[identity] = msgspec.Raw(msgspec.json.encode(call.more))
                kept = {"response_item": {"type": "custom_tool_call"}} if call.is_custom else {}
                yield block_of({"type": "tool_use", "id": identity, "name": name, "input": arguments, **kept})

    def _unique(self, call: _PartialCall, index: int, taken: set[str]) -> str:
        """The call's id; one of our own when it has none, or one that stands in the conversation already."""
        identity = sendable_id(call.identity)
        if not identity or identity in taken:
            seed = f"{self._response} {index} {identity} {len(taken)}"
            identity = f"call_{hashlib.sha256(seed.encode()).hexdigest()[:24]}"
        taken.add(identity)
        return identity

    def _stop_reason(self, usage: Usage | None) -> str:
        reason = _STOPS.get(self._finish or "", "end_turn")
        if reason == "end_turn" and self._calls:
            return "tool_use"
        if reason == "max_tokens" and usage and self._window and usage.total_tokens >= self._window - 1:
            return "model_context_window_exceeded"
        return reason


_READ = frozenset({"role", "content", "refusal", "tool_calls", "function_call", "annotations", "audio"})
_READ_OF_CALL = frozenset({"index", "id", "type", "function", "custom"})


def _add(known: dict[str, Any], piece: dict[str, Any], read: Collection[str]) -> None:
    """Add what a piece says that nobody here reads: texts and lists go on, anything else takes the place of before."""
    for name, value in piece.items():
        before = known.get(name)
        if name in read or value is None:
            continue
        goes_on = isinstance(value, str | list) and type(before) is type(value)
        known[name] = before + value if goes_on else value


def _text_of(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _arguments(text: str) -> msgspec.Raw | dict[str, str]:
    """A call's arguments as they were written; what is no JSON object is kept under `_raw`."""
    if not text.strip():
        return msgspec.Raw(b"{}")
    try:
        value = msgspec.json.decode(text)
    except msgspec.MsgspecError:
        return {"_raw": text}
    return msgspec.Raw(text.encode()) if isinstance(value, dict) else {"_raw": text}


def _usage(fields: dict[str, Any] | None) -> Usage | None:
    """Usage in our words: there, prompt tokens include the cached ones; here the parts add up to the prompt."""
    if not fields or not fields.get("prompt_tokens"):
        return None
    details = fields.get("prompt_tokens_details") or {}
    read, written = int(details.get("cached_tokens") or 0), int(details.get("cache_write_tokens") or 0)
    prompt = int(fields["prompt_tokens"])
    return Usage(max(0, prompt - read - written), int(fields.get("completion_tokens") or 0), read, written)


@dataclass(frozen=True, slots=True)
class WindowProbe:
    """A question: a path under the API (`is_api`) or beside it; with a body it is posted."""

    path: str
    body: dict[str, Any] | None = None
    is_api: bool = False


Ask = Callable[[WindowProbe], Awaitable[Any]]


async def window_of(model: str, ask: Ask) -> int | None:
    """The window in tokens; None when the server doesn't say."""
    listed = await ask(WindowProbe("/models", is_api=True))
    entry = _entry(listed, model)
    # vLLM; OpenRouter; some proxies
    if (window := _first(entry, "max_model_len", "context_length", "context_window", "max_input_tokens")) is not None:
        return window
    for find in (_llama_cpp, _lm_studio, _ollama):
        if (window := await find(model, ask)) is not None:
            return window
    return None


async def _llama_cpp(model: str, ask: Ask) -> int | None:
    """llama-server: the context of one slot, which is what a request has."""
    props = await ask(WindowProbe("/props"))
    return _first(_object(_object(props).get("default_generation_settings")), "n_ctx") or _first(
        _object(props), "n_ctx"
    )


async def _lm_studio(model: str, ask: Ask) -> int | None:
    listed = await ask(WindowProbe("/api/v0/models"))
    return _first(_entry(listed, model), "loaded_context_length", "max_context_length")


async def _ollama(model: str, ask: Ask) -> int | None:
    """Ollama: what the loaded model runs with, else what its Modelfile sets, else the server's default of 4,096."""
    running = _object(await ask(WindowProbe("/api/ps"))).get("models")
    for entry in running if isinstance(running, list) else ():
        names = (_object(entry).get("name"), _object(entry).get("model"))
        if (model in names or f"{model}:latest" in names) and (window := _first(entry, "context_length")) is not None:
            return window
    shown = _object(await ask(WindowProbe("/api/show", body={"model": model})))
    if not shown:
        return None
    for line in str(shown.get("parameters") or "").splitlines():
        words = line.split()
        if len(words) == 2 and words[0] == "num_ctx" and words[1].isdigit():
            return int(words[1])
    best = max(_lengths(shown.get("model_info")), default=None)
    return None if best is None else min(best, OLLAMA_DEFAULT)


OLLAMA_DEFAULT = 4_096


def _lengths(info: object) -> Iterator[int]:
    for name, value in _object(info).items():
        if name.endswith(".context_length") and isinstance(value, int):
            yield value


def _entry(listed: object, model: str) -> dict[str, Any]:
    """The model's entry in a list of models; the only one, when there is just one."""
    data = _object(listed).get("data")
    entries = [_object(one) for one in data] if isinstance(data, list) else []
    named = [one for one in entries if one.get("id") == model]
    return named[0] if named else entries[0] if len(entries) == 1 else {}


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _first(fields: dict[str, Any], *names: str) -> int | None:
    for name in names:
        value = fields.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


# A key has to be there for the SDK; local servers take any.
NO_KEY = "none"
_NEW_FIELD, _OLD_FIELD = b'"max_completion_tokens":', b'"max_tokens":'


class OpenAIModel:
    """`ports.Model` over `openai.AsyncOpenAI`.

    Without a `client` one is made, from `key` (never stored elsewhere), else from OPENAI_API_KEY, else without one.
    `is_compatible`: another server than OpenAI's own, so the older name of the limit of an answer is used.
    `discover` asks the server for the window.
    """

    def __init__(
        self,
        model: str,
        *,
        client: AsyncOpenAI | None = None,
        key: str | None = None,
        base_url: str | None = None,
        window_tokens: int | None = None,
        max_output_tokens: int | None = None,
        timeout_seconds: float = 600.0,
        is_compatible: bool | None = None,
    ) -> None:
        sdk = _sdk()
        if client is None:
            client = sdk.AsyncOpenAI(api_key=key or NO_KEY, base_url=base_url, max_retries=0, timeout=timeout_seconds)
        self._sdk, self._client = sdk, client.with_options(max_retries=0)
        # The SDK would run `uname` to learn it, and whatever is first on the PATH under that name (SEC-8).
        self._client._platform = _PLATFORMS.get(sys.platform, "Unknown")
        host = self._client.base_url.host
        self._is_compatible = host != "api.openai.com" if is_compatible is None else is_compatible
        self._about = ModelInfo(
            id=model, protocol="openai", window_tokens=window_tokens, max_output_tokens=max_output_tokens
        )

    @property
    def about(self) -> ModelInfo:
        return self._about

    async def discover(self) -> ModelInfo:
        """Ask the server for the model's window (PRS-8); what it doesn't say stays unknown. Never raises."""
        if self._about.window_tokens is None:
            window = await window_of(self._about.id, self._probe)
            self._about = replace(self._about, window_tokens=window)
        return self._about

    async def _probe(self, asked: WindowProbe) -> Any:
        """One question to the server; None when it has no answer."""
        base = self._client.base_url
        path = base.path.rstrip("/") if asked.is_api else base.path.rstrip("/").removesuffix("/v1")
        url = str(base.copy_with(raw_path=(path + asked.path).encode()))
        try:
            if asked.body is None:
                return await self._client.get(url, cast_to=object)
            return await self._client.post(url, cast_to=object, body=asked.body)
        except (self._sdk.OpenAIError, *transport_errors(), ValueError):
            return None

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply, None]:
        def taken() -> set[str]:
            return {call for group in request.groups for call in group.calls}

        assembly = OpenAIReplyBuilder(self._about.id, window_tokens=self._about.window_tokens, taken=taken)
        try:
            response: Any = await self._client.post(
                "/chat/completions",
                cast_to=object,
                content=self._body(request),
                options={"headers": {"Content-Type": "application/json"}},
                stream=True,
                stream_cls=self._sdk.AsyncStream[object],
            )
            async with response:
                if "text/event-stream" not in response.response.headers.get("content-type", "text/event-stream"):
                    for delta in assembly.feed(self._whole(await response.response.aread())):
                        yield delta
                else:
                    async for chunk in response:
                        if isinstance(chunk, dict):
                            for delta in assembly.feed(_checked(chunk)):
                                yield delta
        except self._sdk.APIConnectionError as e:
            raise (StreamCut(str(e.__cause__ or e)) if assembly.has_begun else self._error(e)) from e
        except self._sdk.OpenAIError as e:
            raise self._error(e) from e
        except transport_errors() as e:
            raise StreamCut(f"{type(e).__name__}: {e}") from e
        except (KeyError, TypeError, ValueError, AttributeError) as e:
            raise ModelDown(f"the server sent a chunk that can't be read: {type(e).__name__} {e}") from e
        for last in assembly.finish():
            yield last

    def _whole(self, body: bytes) -> dict[str, Any]:
        """A server that didn't stream: its answer in one piece, or the error that it called a success."""
        answer = msgspec.json.decode(body)
        if not isinstance(answer, dict):
            raise ModelDown("the server sent no object")
        return _checked(answer)

    async def count(self, request: ModelRequest) -> int | None:
        """Chat Completions have no count; vLLM and llama.cpp have one of their own, which is asked (TOK-7)."""
        if not self._is_compatible:
            return None
        fields = msgspec.json.decode(request.body)
        body = {"model": self._about.id, "messages": fields["messages"], "tools": fields.get("tools")}
        answer = await self._probe(WindowProbe("/tokenize", body=body))
        tokens = answer.get("count") if isinstance(answer, dict) else None
        return tokens if isinstance(tokens, int) else None

    async def close(self) -> None:
        await self._client.close()

    def _body(self, request: ModelRequest) -> bytes:
        body = with_model_name(request.body, self._about.id)
        if self._is_compatible:  # it stands in the head, before any content
            body = body.replace(_NEW_FIELD, _OLD_FIELD, 1)
        if not request.stream:
            body = body[:-1] + b',"stream":true,"stream_options":{"include_usage":true}}'
        return body

    def _error(self, error: Exception) -> ModelError:
        sdk = self._sdk
        if isinstance(error, sdk.APITimeoutError):
            return ModelDown("the server didn't answer in time")
        if isinstance(error, sdk.APIConnectionError):
            return ModelDown(f"{error.message} {error.__cause__ or ''}")
        if isinstance(error, sdk.APIError):
            if not isinstance(error, sdk.APIStatusError):  # in the middle of a stream
                return classify(_error_response(200, error.body, error.message))
            said = _error_response(error.status_code, error.body, error.message)
            wait = retry_after(error.response.headers.get("retry-after"))
            return classify(replace(said, retry_after_seconds=wait))
        return ModelDown(f"{type(error).__name__}: {error}")


def _checked(chunk: dict[str, Any]) -> dict[str, Any]:
    """A chunk that is no error in disguise."""
    if chunk.get("error") or chunk.get("object") == "error":
        raise classify(_error_response(200, chunk, "the server sent an error"))
    return chunk


def _sdk() -> Any:
    try:
        import openai
    except ImportError as e:
        raise BadSetting(f"models of OpenAI and compatible servers need another package: {install('openai')}") from e
    return openai


def _error_response(status: int, body: object, message: str) -> ErrorResponse:
    """What an error body says: some servers wrap the error object, some send it bare, some only a text."""
    fields = body if isinstance(body, dict) else {}
    inner = fields.get("error")
    fields = inner if isinstance(inner, dict) else fields
    words = fields.get("message") or (inner if isinstance(inner, str) else None) or message
    if fields.get("detail"):  # FastAPI's own
        words = f"{words} {fields['detail']}"
    return ErrorResponse(
        status=status,
        message=str(words),
        kind=str(fields.get("type") or ""),
        code=str(fields.get("code") or ""),
        extra=fields,
    )
