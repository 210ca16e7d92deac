"""Models behind the Chat Completions API, over the official SDK: OpenAI and every compatible server (LIB-3).

The extra `openai`. The bytes of a request are sent as they are; only one field has another name for servers that know
its older one. It never tries again by itself: retries are the ladder's (TURN-11).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.adapters.anthropic import named, retry_after, transport_errors
from holdfast.adapters.openai_chunks import Assembly
from holdfast.adapters.windows import Probe, window_of
from holdfast.context.recovery import Said, classify
from holdfast.context.replies import About, Delta, Reply
from holdfast.context.requests import Request
from holdfast.errors import BadSetting, ModelDown, ModelError, StreamCut

if TYPE_CHECKING:
    from openai import AsyncOpenAI

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
        host = self._client.base_url.host
        self._is_compatible = host != "api.openai.com" if is_compatible is None else is_compatible
        self._about = About(
            id=model, protocol="openai", window_tokens=window_tokens, max_output_tokens=max_output_tokens
        )

    @property
    def about(self) -> About:
        return self._about

    async def discover(self) -> About:
        """Ask the server for the model's window (PRS-8); what it doesn't say stays unknown. Never raises."""
        if self._about.window_tokens is None:
            window = await window_of(self._about.id, self._probe)
            self._about = replace(self._about, window_tokens=window)
        return self._about

    async def _probe(self, asked: Probe) -> Any:
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

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        def taken() -> set[str]:
            return {call for group in request.groups for call in group.calls}

        assembly = Assembly(self._about.id, window_tokens=self._about.window_tokens, taken=taken)
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
                    for delta in assembly.take(self._whole(await response.response.aread())):
                        yield delta
                else:
                    async for chunk in response:
                        if isinstance(chunk, dict):
                            for delta in assembly.take(_checked(chunk)):
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

    async def count(self, request: Request) -> int | None:
        """Chat Completions have no count; vLLM and llama.cpp have one of their own, which is asked (TOK-7)."""
        if not self._is_compatible:
            return None
        fields = msgspec.json.decode(request.body)
        body = {"model": self._about.id, "messages": fields["messages"], "tools": fields.get("tools")}
        answer = await self._probe(Probe("/tokenize", body=body))
        tokens = answer.get("count") if isinstance(answer, dict) else None
        return tokens if isinstance(tokens, int) else None

    async def close(self) -> None:
        await self._client.close()

    def _body(self, request: Request) -> bytes:
        body = named(request.body, self._about.id)
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
                return classify(_said(200, error.body, error.message))
            said = _said(error.status_code, error.body, error.message)
            wait = retry_after(error.response.headers.get("retry-after"))
            return classify(replace(said, retry_after_seconds=wait))
        return ModelDown(f"{type(error).__name__}: {error}")


def _checked(chunk: dict[str, Any]) -> dict[str, Any]:
    """A chunk that is no error in disguise."""
    if chunk.get("error") or chunk.get("object") == "error":
        raise classify(_said(200, chunk, "the server sent an error"))
    return chunk


def _sdk() -> Any:
    try:
        import openai
    except ImportError as e:
        raise BadSetting(
            "models of OpenAI and compatible servers need the extra: pip install 'holdfast[openai]'"
        ) from e
    return openai


def _said(status: int, body: object, message: str) -> Said:
    """What an error body says: some servers wrap the error object, some send it bare, some only a text."""
    fields = body if isinstance(body, dict) else {}
    inner = fields.get("error")
    fields = inner if isinstance(inner, dict) else fields
    words = fields.get("message") or (inner if isinstance(inner, str) else None) or message
    if fields.get("detail"):  # FastAPI's own
        words = f"{words} {fields['detail']}"
    return Said(
        status=status,
        message=str(words),
        kind=str(fields.get("type") or ""),
        code=str(fields.get("code") or ""),
        extra=fields,
    )
