"""The Messages API as Bedrock and Vertex AI host it: paths, what they ask of bodies, and Bedrock's frames (GW-10)."""

import base64
import json
import re
import struct
import zlib
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import unquote

from perdure.testing.block_rules import Violation
from perdure.testing.upstream import FakeUpstream, UpstreamError

_BEDROCK = re.compile(r"/model/([^/]+)/(invoke|invoke-with-response-stream|count-tokens)")
_VERTEX = re.compile(
    r"/v1/projects/[^/]+/locations/[^/]+/publishers/anthropic/models/([^/:]+):(rawPredict|streamRawPredict)"
)
_VERSIONS = {"bedrock": "bedrock-2023-05-31", "vertex": "vertex-2023-10-16"}
_DATED = re.compile(r"20\d\d-\d\d-\d\d")  # what Anthropic's SDK says since 2.12, to all hosts


@dataclass(frozen=True, slots=True)
class HostedRequest:
    """A request as a path of Bedrock or of Vertex means it."""

    host: Literal["bedrock", "vertex"]
    model: str
    is_stream: bool
    is_count: bool

    @classmethod
    def of(cls, path: str) -> "HostedRequest | None":
        """What a path, as it was sent, means; None for one of neither host."""
        if (found := _BEDROCK.fullmatch(path)) is not None:
            action = found[2]
            return cls("bedrock", unquote(found[1]), action.endswith("stream"), action == "count-tokens")
        if (found := _VERTEX.fullmatch(path)) is not None:
            return cls("vertex", unquote(found[1]), found[2] == "streamRawPredict", found[1] == "count-tokens")
        return None

    def messages_body(self, body: bytes, authorization: str, upstream: FakeUpstream) -> bytes:
        """The body as one of the Messages API; refuses what this host refuses."""
        if not authorization:
            raise UpstreamError(403, "AccessDeniedException", "Missing Authentication Token")
        fields: dict[str, Any] = json.loads(body)
        if self.host == "bedrock" and self.is_count:
            fields = json.loads(base64.b64decode(fields["input"]["invokeModel"]["body"]))
        found = [Violation(f"{self.host}_form", "", said) for said in self._wrong(fields)]
        if found:
            upstream.refuse(found)
        fields.pop("anthropic_version")
        fields.pop("anthropic_beta", None)
        named: dict[str, Any] = {} if "model" in fields else {"model": self.model}
        if self.host == "bedrock" and self.is_stream:
            named["stream"] = True
        return json.dumps({**named, **fields}).encode()

    def _wrong(self, fields: dict[str, Any]) -> list[str]:
        wrong = []
        version = str(fields.get("anthropic_version"))
        if version != _VERSIONS[self.host] and not _DATED.fullmatch(version):
            wrong.append(f"anthropic_version: Input should be '{_VERSIONS[self.host]}'")
        in_path = ("model", "stream") if self.host == "bedrock" else ("model",)
        if not (self.host == "vertex" and self.is_count):
            wrong += [f"#: extraneous key [{name}] is not permitted" for name in in_path if name in fields]
        if self.host == "vertex" and not self.is_count and bool(fields.get("stream")) != self.is_stream:
            wrong.append("stream: doesn't say what the path says")
        return wrong

    def error(self, error: UpstreamError) -> dict[str, Any]:
        """An error as this host words it."""
        return {"message": error.message} if self.host == "bedrock" else error.payload


def chunk_frame(event: bytes) -> bytes:
    """A server-sent event as a frame of Bedrock's, which pads some of them."""
    data = next(line[6:] for line in event.split(b"\n") if line.startswith(b"data: "))
    payload = json.dumps({"bytes": base64.b64encode(data).decode(), "p": "abcdefghij"[: len(data) % 10]})
    return _frame({":event-type": "chunk", ":content-type": "application/json", ":message-type": "event"}, payload)


def error_frame(error: UpstreamError) -> bytes:
    """An error after the stream has begun, as Bedrock sends it."""
    headers = {":exception-type": "modelStreamErrorException", ":content-type": "application/json"}
    return _frame({**headers, ":message-type": "exception"}, json.dumps({"message": error.message}))


def _frame(headers: dict[str, str], payload: str) -> bytes:
    named = b"".join(struct.pack(f"!B{len(n)}sBH{len(v)}s", len(n), n.encode(), 7, len(v), v.encode())
                     for n, v in headers.items())  # fmt: skip
    prelude = struct.pack("!II", 16 + len(named) + len(payload.encode()), len(named))
    whole = prelude + struct.pack("!I", zlib.crc32(prelude)) + named + payload.encode()
    return whole + struct.pack("!I", zlib.crc32(whole))
