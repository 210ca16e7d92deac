"""How much may come in with one message: bytes, blocks, depth of its JSON (SEC-6).

Checked before anything is stored, so that nothing which can't be handled later gets into a journal. Counting brackets
tells most messages apart at the speed of a search; only one that has many of them is looked at closely.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from holdfast.errors import OverLimit
from holdfast.transcript.messages import Message

_TOKENS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[{]|[\]}]', re.DOTALL)


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
        data = bytes(raw)
        if data.count(b"[") + data.count(b"{") > limits.depth and depth(data) > limits.depth:
            raise OverLimit(
                f"message {message.id or '(new)'}, block {number}: JSON nested deeper than {limits.depth:,}: "
                "flatten it, or raise max_json_depth"
            )


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
