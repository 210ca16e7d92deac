"""How much may come in with one message: bytes, blocks, depth of its JSON (SEC-6).

Checked before anything is stored, so that nothing which can't be handled later gets into a journal. Few brackets mean
little depth, and a long text at the top of a block is skipped as a whole: only what nests is looked at closely.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import msgspec

from holdfast.errors import OverLimit
from holdfast.transcript.messages import Message

_TOKENS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[{]|[\]}]', re.DOTALL)
_LIST = msgspec.json.Decoder(list[msgspec.Raw])
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_PEELED = 4  # a text in a part of a result is so deep


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one message: bytes of its content, blocks, and how deep lists and objects may be nested."""

    bytes: int = 64_000_000
    blocks: int = 10_000
    depth: int = 100


def check_limits(message: Message, limits: Limits) -> None:
    """Raise `OverLimit` when a message is larger, has more blocks, or is nested deeper than may come in."""
    if len(message.content) > limits.blocks:
        raise OverLimit(
            f"message {message.id or '(new)'} has {len(message.content):,} blocks, more than {limits.blocks:,}: "
            "split it, or raise max_message_blocks"
        )
    size = sum(map(len, message.content))
    if size > limits.bytes:
        raise OverLimit(
            f"message {message.id or '(new)'} has {size:,} bytes, more than {limits.bytes:,}: "
            "split it, or raise max_message_bytes"
        )
    for number, raw in enumerate(message.content):
        if is_deep(bytes(raw), limits.depth):
            raise OverLimit(
                f"message {message.id or '(new)'}, block {number}: JSON nested deeper than {limits.depth:,}: "
                "flatten it, or raise max_json_depth"
            )


def is_deep(raw: bytes, limit: int, peeled: int = 0) -> bool:
    """Whether JSON is nested deeper than that. The first levels are taken apart, which skips texts at full speed."""
    if raw.count(b"[") + raw.count(b"{") <= limit:
        return False
    first = raw[:64].lstrip()[:1]
    if peeled == _PEELED or first not in (b"[", b"{"):
        return first != b'"' and depth(raw) > limit
    if limit < 1:
        return True
    try:
        parts = _LIST.decode(raw) if first == b"[" else list(_OBJECT.decode(raw).values())
    except RecursionError:
        return True
    except msgspec.MsgspecError:
        return depth(raw) > limit  # what is wrong with it is for the block's own check to say
    return any(is_deep(bytes(part), limit - 1, peeled + 1) for part in parts)


def depth(raw: bytes) -> int:
    """How deep lists and objects are nested in JSON; brackets in texts don't count."""
    level = most = 0
    for found in _TOKENS.finditer(raw):
        first = raw[found.start()]
        if first in b"[{":
            level += 1
            most = max(most, level)
        elif first in b"]}":
            level -= 1
    return most
