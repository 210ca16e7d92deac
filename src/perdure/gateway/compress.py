"""What LiteLLM's `headroom` guardrail asks of a compression service: `/v1/compress` and `/v1/retrieve/{hash}` (GW-10).

It sends messages without their session, some of them left out, and puts back what it gets place by place. So nothing is
remembered of a conversation, and the same text is always shortened to the same one: results of tools that are too long
show a part of themselves, and where all together take too much, so do the older ones, several at a time.

Nothing is shortened before the original can be had back: by its hash, by the tenant who sent it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from perdure.context.models import ModelSpec
from perdure.context.passes import preview_of
from perdure.context.policy import thresholds
from perdure.context.reminders import neutralised
from perdure.errors import JournalError
from perdure.gateway.requests import UNREADABLE, Unmanageable, fields_of, list_of
from perdure.ports.home import HomeBlobs
from perdure.settings import Settings
from perdure.transcript.tokens import live_tokens_bytes

COMPRESS: Final = "/v1/compress"
RETRIEVE: Final = re.compile(r"/v1/retrieve/([0-9a-fA-F]{12,24})\Z")
_HASH_CHARS = 24  # of a hash as it is told
_TOOL = "headroom_retrieve"  # which the guardrail offers the model, and which hosts may give a name in front
_RESULTS = ("tool", "function")
_STEP = 8  # results that begin to show a part at once, so that what stands before them seldom changes
_PREVIEW_FLOOR_CHARS, _LIMIT_FLOOR_CHARS = 400, 2_000


@dataclass(frozen=True, slots=True)
class CompressedMessages:
    """What is answered, and the originals that have to be kept before it is; `given` is what came."""

    given: Sequence[msgspec.Raw]
    messages: Sequence[msgspec.Raw]
    before_tokens: int
    after_tokens: int
    originals: tuple[bytes, ...]

    def untouched(self) -> CompressedMessages:
        """The same with nothing compressed."""
        return CompressedMessages(self.given, self.given, self.before_tokens, self.before_tokens, ())

    def body(self) -> bytes:
        """The answer."""
        hashes = [_hash(original) for original in self.originals]
        told = {"messages": self.messages, "tokens_before": self.before_tokens, "tokens_after": self.after_tokens}
        return msgspec.json.encode(
            {**told, "tokens_saved": self.before_tokens - self.after_tokens, "ccr_hashes": hashes}
        )


@dataclass(frozen=True, slots=True)
class _LongResult:
    """A result of a tool that may show a part of itself."""

    number: int  # of its message
    fields: dict[str, Any]
    text: str


def model_in(body: bytes) -> str:
    """The model that the messages of a body are for; empty where it isn't said. Raises `Unmanageable`."""
    try:
        return str(msgspec.json.decode(fields_of(body).get("model", b'""')) or "")
    except UNREADABLE:
        raise Unmanageable("not_json") from None


def compressed(body: bytes, settings: Settings, model: ModelSpec) -> CompressedMessages:
    """The messages of a body, as many as there were, such that they fit. Raises `Unmanageable` for no such body."""
    raws = list_of(fields_of(body).get("messages"))
    if not raws:
        raise Unmanageable("no_messages")
    limits = thresholds(settings, model, settings.window_tokens or model.window_tokens, "setting")
    chars = limits.scaled(settings.preview_chars, floor=_PREVIEW_FLOOR_CHARS)
    sizes = [live_tokens_bytes(bytes(raw)) for raw in raws]
    before, shown, originals = sum(sizes), list(raws), list[bytes]()

    def shorten(one: _LongResult) -> None:
        original = one.text.encode("utf-8", "surrogatepass")
        how = f'call {_TOOL} with hash "{_hash(original)}"'
        preview = preview_of(neutralised(one.text), how, chars, is_command=True)
        is_text = isinstance(one.fields["content"], str)
        content: Any = preview if is_text else [{"type": "text", "text": preview}]
        raw = msgspec.json.encode({**one.fields, "content": content})
        if (size := live_tokens_bytes(raw)) < sizes[one.number]:
            shown[one.number], sizes[one.number] = msgspec.Raw(raw), size
            originals.append(original)

    limit = limits.scaled(settings.result_limit_chars, floor=_LIMIT_FLOOR_CHARS)
    older: list[_LongResult] = []
    for one in _long_results(raws, 2 * chars):
        if len(one.text) > limit:
            shorten(one)
        else:
            older.append(one)
    while older and sum(sizes) > limits.trigger // 2:  # the rest of the request isn't seen here
        for one in older[:_STEP]:
            shorten(one)
        del older[:_STEP]
    return CompressedMessages(raws, shown, before, sum(sizes), tuple(originals))


def _long_results(raws: Sequence[msgspec.Raw], least_chars: int) -> list[_LongResult]:
    """The results of tools that are longer than that, but for those that were got back: the model asked for them."""
    found: list[_LongResult] = []
    retrieved: set[str] = set()
    for number, raw in enumerate(raws):
        try:
            fields = msgspec.json.decode(raw)
        except UNREADABLE:
            raise Unmanageable("malformed_message") from None
        if not isinstance(fields, dict):
            raise Unmanageable("malformed_message")
        retrieved.update(_retrieving(fields))
        text = _text_of(fields.get("content"))
        is_result = fields.get("role") in _RESULTS and str(fields.get("tool_call_id")) not in retrieved
        if is_result and len(text) > least_chars:
            found.append(_LongResult(number, fields, text))
    return found


def _retrieving(fields: dict[str, Any]) -> Iterator[str]:
    """The ids of calls in a message that got something back."""
    calls = fields.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        match call:
            case {"id": str(identity), "function": {"name": str(name)}} if name.split("__")[-1] == _TOOL:
                yield identity


def _text_of(content: object) -> str:
    """The text of a content that is nothing else; else empty."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    plain = [part["text"] for part in parts if isinstance(part, dict) and set(part) == {"type", "text"}]
    texts = [text for text in plain if isinstance(text, str)]
    return "\n".join(texts) if len(texts) == len(parts) else ""


def _hash(original: bytes) -> str:
    return hashlib.sha256(original).hexdigest()[:_HASH_CHARS]


class CompressedOriginals:
    """What a tenant's messages said before, by hash."""

    def __init__(self, blobs: HomeBlobs) -> None:
        self._blobs = blobs

    async def put(self, originals: tuple[bytes, ...]) -> None:
        """Keep them, durably. Raises `JournalError`."""
        if originals:
            await self._blobs.put(originals)

    async def get(self, beginning: str) -> str | None:
        """The one whose hash begins so; None where there is none, or several."""
        found = await self._blobs.named(beginning.lower())
        if len(found) != 1:
            return None
        try:
            return (await self._blobs.get(found[0])).decode("utf-8", "replace")
        except JournalError:
            return None
