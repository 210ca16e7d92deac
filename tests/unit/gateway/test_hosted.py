"""Bodies of Bedrock and of Vertex, read as those of the Messages API and written back (GW-10)."""

from __future__ import annotations

import base64

import msgspec
import pytest

from perdure.context.models import UNKNOWN, model_spec
from perdure.gateway.hosted import HostedCall, is_signed
from perdure.gateway.requests import Unmanageable

pytestmark = pytest.mark.unit
BODY = b' {"max_tokens": 9, "messages": [{"role": "user", "content": "h\\u00e9"}], "anthropic_version": "v"}'
VERTEX = "/v1/projects/p/locations/l/publishers/anthropic/models"


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/model/us.anthropic.claude-x-v1:0/invoke", ("bedrock", "turn", {"model": "us.anthropic.claude-x-v1:0"})),
        ("/model/m/invoke-with-response-stream", ("bedrock", "turn", {"model": "m", "stream": True})),
        ("/model/arn:aws:bedrock:us:1:p/x/invoke", ("bedrock", "turn", {"model": "arn:aws:bedrock:us:1:p/x"})),
        ("/model/m/count-tokens", ("bedrock", "count", {"model": "m"})),
        (f"{VERTEX}/claude-x@1:rawPredict", ("vertex", "turn", {"model": "claude-x@1"})),
        (f"{VERTEX}/claude-x@1:streamRawPredict", ("vertex", "turn", {"model": "claude-x@1"})),
        (f"{VERTEX}/count-tokens:rawPredict", ("vertex", "count", {})),
        ("/model/m/converse", None),
        (f"{VERTEX.replace('anthropic', 'google')}/gemini:rawPredict", None),
        ("/v1/messages", None),
    ],
)
def test_a_path_says_what_the_body_does_not(path: str, meant: object) -> None:
    """GW-10: the model and whether it streams; other paths and publishers are none of ours."""
    call = HostedCall.of(path)
    if meant is None or call is None:
        assert call is meant
        return
    wrapped = msgspec.json.encode({"input": {"invokeModel": {"body": base64.b64encode(BODY).decode()}}})
    is_wrapped = (call.host, call.kind) == ("bedrock", "count")
    opened = call.opened(wrapped if is_wrapped else BODY)
    added = {name: value for name, value in msgspec.json.decode(opened).items() if name in ("model", "stream")}
    assert (call.host, call.kind, added) == meant
    assert opened.endswith(BODY[2:]), "what the client wrote keeps its bytes"
    closed = call.closed(opened)
    closed = base64.b64decode(msgspec.json.decode(closed)["input"]["invokeModel"]["body"]) if is_wrapped else closed
    assert msgspec.json.decode(closed) == msgspec.json.decode(BODY)
    assert b'[{"role": "user", "content": "h\\u00e9"}]' in closed


@pytest.mark.parametrize("body", [b"", b"null", b'{"inputText": "hi"}', b'{"schemaVersion": "messages-v1"}'])
def test_bodies_of_other_models_are_not_read(body: bytes) -> None:
    """GW-10: Bedrock has models of other makers under the same paths."""
    for path in ("/model/m/invoke", "/model/m/count-tokens"):
        call = HostedCall.of(path)
        assert call is not None
        with pytest.raises(Unmanageable):
            call.opened(body)


def test_models_are_known_by_the_names_that_their_hosts_give_them() -> None:
    """GW-10: by which their windows and prices are."""
    known = model_spec("claude-sonnet-4-5")
    names = (
        "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
        "anthropic.claude-sonnet-4-5",
        "claude-sonnet-4-5@20250929",
    )
    assert known is not UNKNOWN
    assert all(model_spec(name) == known for name in (*names, f"arn:aws:bedrock:us:1:inference-profile/{names[0]}"))
    assert model_spec("anthropic.") == UNKNOWN


def test_a_signature_of_awss_is_seen() -> None:
    """GW-10: in the header, or in the query of an address that was signed beforehand."""
    signed = (b"authorization", b"AWS4-HMAC-SHA256 Credential=AKIA/20260101/us-east-1/bedrock/aws4_request")
    assert is_signed([signed], b"") and is_signed([], b"X-Amz-Date=1&X-Amz-Signature=ab")
    assert not is_signed([(b"authorization", b"Bearer x")], b"a=b")
