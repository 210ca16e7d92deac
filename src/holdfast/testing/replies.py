"""What a fake model says: scripts for answers and errors, and the answer as it comes back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from .model_rules import Violation

Block = dict[str, Any]
StopReason = Literal[
    "end_turn", "tool_use", "max_tokens", "stop_sequence", "pause_turn", "refusal",
    "model_context_window_exceeded", "compaction",
]  # fmt: skip


class UpstreamError(Exception):
    """An error answer. Raised by the fake upstream; as a scripted reply it is what the next request gets."""

    def __init__(
        self,
        status: int,
        type: str,
        message: str,
        *,
        retry_after: float | None = None,
        violations: Sequence[Violation] = (),
    ) -> None:
        super().__init__(f"{status} {type}: {message}")
        self.status = status
        self.type = type
        self.message = message
        self.violations = tuple(violations)
        self.headers = {} if retry_after is None else {"retry-after": f"{retry_after:g}"}

    @property
    def payload(self) -> dict[str, Any]:
        return {"type": "error", "error": {"type": self.type, "message": self.message}, "request_id": "req_fake"}

    @property
    def body(self) -> bytes:
        """The JSON body of the error answer."""
        return msgspec.json.encode(self.payload)


def rate_limited(retry_after: float | None = 1) -> UpstreamError:
    said = "This request would exceed your organization's rate limit."
    return UpstreamError(429, "rate_limit_error", said, retry_after=retry_after)


def overloaded() -> UpstreamError:
    return UpstreamError(529, "overloaded_error", "Overloaded")


def server_error() -> UpstreamError:
    return UpstreamError(500, "api_error", "Internal server error")


def prompt_too_long(tokens: int, maximum: int) -> UpstreamError:
    return UpstreamError(400, "invalid_request_error", f"prompt is too long: {tokens} tokens > {maximum} maximum")


def text(words: str) -> Block:
    return {"type": "text", "text": words}


def thinking(words: str = "") -> Block:
    """A thinking block that is not signed yet; the upstream signs it for the prefix it answers."""
    return {"type": "thinking", "thinking": words}


def tool_use(name: str, input: Mapping[str, Any] | None = None, *, id: str | None = None) -> Block:
    """A tool call; without an id the upstream gives one."""
    call = {"type": "tool_use", "name": name, "input": dict(input or {})}
    return call if id is None else {**call, "id": id}


@dataclass(frozen=True, slots=True)
class Script:
    """One scripted answer. Without a stop reason it is tool_use when there is a call, else end_turn."""

    content: tuple[Block, ...]
    stop_reason: StopReason | None = None
    output_tokens: int | None = None
    stop_sequence: str | None = None
    stop_details: dict[str, Any] | None = None


def say(
    *blocks: Block | str,
    stop_reason: StopReason | None = None,
    output_tokens: int | None = None,
    stop_details: dict[str, Any] | None = None,
) -> Script:
    """Script an answer: strings are text blocks; several tool_use blocks are a parallel batch."""
    content = tuple(text(block) if isinstance(block, str) else block for block in blocks)
    return Script(content, stop_reason, output_tokens, stop_details=stop_details)


Scripted = Script | UpstreamError | str


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts; the three input parts sum to the counted prompt."""

    input_tokens: int
    cache_read_input_tokens: int
    cache_creation_input_tokens: int
    output_tokens: int
    created_1h_tokens: int = 0

    @property
    def prompt_tokens(self) -> int:
        return self.input_tokens + self.cache_read_input_tokens + self.cache_creation_input_tokens

    def as_json(self) -> dict[str, Any]:
        return {
            "input_tokens": self.input_tokens,
            "cache_creation_input_tokens": self.cache_creation_input_tokens,
            "cache_read_input_tokens": self.cache_read_input_tokens,
            "cache_creation": {
                "ephemeral_5m_input_tokens": self.cache_creation_input_tokens - self.created_1h_tokens,
                "ephemeral_1h_input_tokens": self.created_1h_tokens,
            },
            "output_tokens": self.output_tokens,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer of the fake upstream."""

    id: str
    model: str
    content: tuple[Block, ...]
    stop_reason: StopReason
    usage: Usage
    stop_sequence: str | None = None
    stop_details: dict[str, Any] | None = None
    input_transformations: tuple[dict[str, Any], ...] = field(default=())

    @property
    def message(self) -> dict[str, Any]:
        """The Message object as the server's JSON has it."""
        message: dict[str, Any] = {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": list(self.content),
            "stop_reason": self.stop_reason,
            "stop_sequence": self.stop_sequence,
            "usage": self.usage.as_json(),
        }
        if self.stop_details is not None:
            message["stop_details"] = self.stop_details
        if self.input_transformations:
            message["input_transformations"] = list(self.input_transformations)
        return message

    @property
    def body(self) -> bytes:
        """The JSON body of the answer."""
        return msgspec.json.encode(self.message)

    @property
    def as_param(self) -> dict[str, Any]:
        """The assistant message to append to the next request."""
        return {"role": "assistant", "content": list(self.content)}
