"""Models behind Anthropic's Messages API, over the official SDK (LIB-3; the extra `anthropic`).

The request's bytes are sent as they are, so the cached prefix is ours to the last byte; the SDK brings transport, keys,
headers and typed errors. It never tries again by itself: retries are the ladder's (TURN-11).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.adapters.anthropic_events import Assembly
from holdfast.context.recovery import Said, classify
from holdfast.context.replies import About, Delta, Reply
from holdfast.context.requests import Request
from holdfast.errors import BadSetting, KeyRefused, ModelDown, ModelError, StreamCut

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

_COMPACTION_BETAS = ("compact-2026-01-12", "compact-2026-09-04")
_CONTEXT_BETA = "context-management-2025-06-27"
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
        self._about = About(
            id=model, protocol="anthropic", window_tokens=window_tokens, max_output_tokens=max_output_tokens
        )

    @property
    def about(self) -> About:
        return self._about

    async def discover(self) -> About:
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

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        assembly = Assembly()
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
                    for delta in assembly.take(event):
                        yield delta
        except self._sdk.AnthropicError as e:
            raise self._error(e) from e
        except transport_errors() as e:
            raise StreamCut(f"{type(e).__name__}: {e}") from e
        except (KeyError, TypeError, ValueError, AttributeError) as e:
            raise ModelDown(f"the server sent an event that can't be read: {type(e).__name__} {e}") from e
        yield assembly.reply()

    async def count(self, request: Request) -> int | None:
        """The provider's count of the prompt (TOK-7)."""
        fields = _FIELDS.decode(named(request.body, self._about.id))
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

    def _body(self, request: Request) -> bytes:
        """The bytes as they are; what is missing goes behind everything else, so no prefix changes."""
        body = named(request.body, self._about.id)
        return body if request.stream else body[:-1] + b',"stream":true}'

    def _headers(self, request: Request) -> dict[str, str]:
        betas = dict.fromkeys(request.betas)
        if b'"type":"compaction"' in request.body:  # such blocks are only read with these
            betas.update(dict.fromkeys(_COMPACTION_BETAS))
        headers = {"Content-Type": "application/json"}
        return {**headers, "anthropic-beta": ",".join(betas)} if betas else headers

    def _error(self, error: Exception) -> ModelError:
        sdk = self._sdk
        if isinstance(error, sdk.APIStatusError):
            return classify(
                Said(
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
        raise BadSetting("models of Anthropic need the extra: pip install 'holdfast[anthropic]'") from e
    return anthropic


def transport_errors() -> tuple[type[Exception], ...]:
    """What the SDK lets through when a stream breaks off."""
    import httpx2

    return (httpx2.HTTPError, httpx2.StreamError)


def named(body: bytes, model: str) -> bytes:
    """The body with its model in front, where whoever made it didn't know which one is asked."""
    return body if body.startswith(b'{"model":') else b'{"model":%b,%b' % (msgspec.json.encode(model), body[1:])


def retry_after(header: str | None) -> float | None:
    """Seconds of a Retry-After header; None for a date or nonsense."""
    try:
        return float(header) if header else None
    except ValueError:
        return None
