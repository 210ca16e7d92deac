"""The Messages API as Amazon Bedrock and Google's Vertex AI host it (GW-10).

What is said is the same, so sessions and views are those of Messages. The model stands in the path instead of the body;
Bedrock also says there whether it streams, and answers in frames of its own (`frames`). A request is read as one of the
Messages API that has these fields, and goes up without them.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from perdure.gateway.answers import MOST_BYTES
from perdure.gateway.anthropic import AnthropicProtocol
from perdure.gateway.frames import FramedReader, exception_frame
from perdure.gateway.requests import UNREADABLE, AnswerReader, ClientRequest, Unmanageable, fields_of

_BEDROCK = re.compile(r"/model/(?P<model>.+)/(?P<action>invoke|invoke-with-response-stream|count-tokens)\Z")
_VERTEX = re.compile(r"/publishers/anthropic/models/(?P<model>[^/]+):(?P<action>rawPredict|streamRawPredict)\Z")
_VERTEX_COUNTS = "count-tokens"  # where a model's name stands in other paths
_VERSION = b'"anthropic_version"'  # other publishers' models of the same paths have bodies of their own
_SIGNATURE = b"AWS4-HMAC-SHA256"


class BedrockMessages(AnthropicProtocol):
    """Messages as Bedrock answers them."""

    key_header = "authorization"

    def reader(
        self,
        incoming: ClientRequest,
        cap: int | None,
        *,
        is_stream: bool,
        most_bytes: int = MOST_BYTES,
        ours: str = "",
    ) -> AnswerReader:
        reader = super().reader(incoming, cap, is_stream=is_stream, most_bytes=most_bytes, ours=ours)
        return FramedReader(reader, most_bytes) if is_stream else reader

    def error_event(self, status: int, message: str) -> bytes:
        return exception_frame("modelStreamErrorException", f"perdure: {message}")

    def error_body(self, status: int, message: str) -> bytes:
        return msgspec.json.encode({"message": f"perdure: {message}"})


class VertexMessages(AnthropicProtocol):
    """Messages as Vertex answers them: as Anthropic does, for a key in another place."""

    key_header = "authorization"


Host = Literal["bedrock", "vertex"]
HOSTS: dict[Host, AnthropicProtocol] = {"bedrock": BedrockMessages(), "vertex": VertexMessages()}


@dataclass(frozen=True, slots=True)
class HostedCall:
    """What the path of a request says, and how its body is read."""

    host: Host
    kind: Literal["turn", "count"]
    added: bytes  # the fields that the Messages API has in the body

    @classmethod
    def of(cls, path: str) -> HostedCall | None:
        """The call that a path means, which is decoded; None for one of neither host."""
        if (found := _BEDROCK.search(path)) is not None:
            fields: dict[str, Any] = {"model": found["model"]}
            if found["action"] == "invoke-with-response-stream":
                fields["stream"] = True
            return cls("bedrock", "count" if found["action"] == "count-tokens" else "turn", _members(fields))
        if (found := _VERTEX.search(path)) is not None:
            is_count = found["model"] == _VERTEX_COUNTS
            return cls("vertex", "count" if is_count else "turn", b"" if is_count else _members({"model": found[1]}))
        return None

    @property
    def _is_wrapped(self) -> bool:
        return self.host == "bedrock" and self.kind == "count"

    def opened(self, body: bytes) -> bytes:
        """The body as one of the Messages API. Raises `Unmanageable` for what is none."""
        if self._is_wrapped:
            try:
                body = base64.b64decode(msgspec.json.decode(body)["input"]["invokeModel"]["body"])
            except (*UNREADABLE, binascii.Error, KeyError, TypeError):
                raise Unmanageable("not_messages") from None
        begin = body.find(b"{") + 1
        if _VERSION not in body or not begin:
            raise Unmanageable("not_messages")
        return b"{" + self.added + body[begin:]

    def closed(self, body: bytes) -> bytes:
        """A body of the Messages API as this host takes it."""
        if self.added:
            fields = fields_of(body)
            body = msgspec.json.encode({name: raw for name, raw in fields.items() if name not in self._names})
        if not self._is_wrapped:
            return body
        return msgspec.json.encode({"input": {"invokeModel": {"body": base64.b64encode(body).decode()}}})

    @property
    def _names(self) -> tuple[str, ...]:
        return ("model", "stream") if self.host == "bedrock" else ("model",)


def is_signed(headers: Iterable[tuple[bytes, bytes]], query: bytes) -> bool:
    """Whether a request carries AWS's signature of its host, its path and its body, which then have to stay."""
    return b"X-Amz-Signature=" in query or any(
        name == b"authorization" and value.lstrip().startswith(_SIGNATURE) for name, value in headers
    )


def _members(fields: dict[str, Any]) -> bytes:
    """Fields to stand before others of an object."""
    return msgspec.json.encode(fields)[1:-1] + b","
