"""What is checked before anything is written: records that couldn't be read back or sent, and messages over the limits
(ENG-7, SEC-6).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, get_args

import msgspec

from perdure.errors import MalformedBlock, OverLimit, RecordRefused
from perdure.transcript.blocks import Block, check_sendable, not_json
from perdure.transcript.messages import Message, MessageId, Role
from perdure.transcript.records import BlockChange, Collapsed, Compacted, Edit, Front, Record

_TOKENS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[{]|[\]}]', re.DOTALL)
_LIST = msgspec.json.Decoder(list[msgspec.Raw])
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_PEELED = 4  # a text in a part of a result is so deep


@dataclass(frozen=True, slots=True)
class MessageLimits:
    """Of one message: bytes of its content, blocks, and how deep lists and objects may be nested."""

    bytes: int = 64_000_000
    blocks: int = 10_000
    depth: int = 100


def check_limits(message: Message, limits: MessageLimits) -> None:
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


RoleOf = Callable[[MessageId], "Role | None"]  # of a message in the view

_RECORDS: tuple[type, ...] = get_args(Record)
_MOST_DEPTH = 900  # of JSON; a little deeper, the decoders of some versions of Python give up
_ENCODE = msgspec.json.Encoder().encode
_DECODE = msgspec.json.Decoder(tuple[Record, ...]).decode


def check_record(record: Record, role_of: RoleOf) -> None:
    """Raise when no request could be made behind this record; cost follows the record, not the view.

    Raises `RecordRefused` for a front that can't be sent, and for an edit or a message whose blocks can't be;
    `MalformedBlock` for a block that an API would refuse where it stands.
    """
    if isinstance(record, Message):
        check_message(record)
    elif isinstance(record, Front):
        record.check()
    elif isinstance(record, Collapsed):
        check_message(record.projection)
    elif isinstance(record, Compacted):
        for message in (*record.summary, *record.carried):
            check_message(message)
        own = {message.id: message.role for message in (*record.summary, *record.carried)}
        _check_changes(record.changes, lambda identity: own.get(identity) or role_of(identity))
    if isinstance(record, Edit):
        _check_changes(record.changes, role_of)


def check_message(message: Message) -> None:
    """Raise `RecordRefused` or `MalformedBlock` when a message can't be part of a request."""
    check_shape(message)
    message.check()


def check_shape(message: Message) -> None:
    """Raise `RecordRefused` for a message whose role is unknown, or whose content holds no raw blocks."""
    if message.role not in get_args(Role):
        raise RecordRefused(f"{_named(message)}: its role {_short(message.role)} is none of user, assistant and system")
    content: Any = message.content
    if not isinstance(content, tuple) or not all(type(raw) is msgspec.Raw for raw in content):
        raise RecordRefused(f"{_named(message)}: its content isn't raw blocks; make it with Message.of(role, content)")


def _check_changes(changes: Iterable[BlockChange], role_of: RoleOf) -> None:
    for change in changes:
        if change.is_gone:
            continue
        block, at = Block(bytes(change.to)), f"message {_short(change.message)}, block {_short(change.block)}"
        try:
            check_sendable(block, role_of(change.message) or "system")
        except MalformedBlock as e:
            raise RecordRefused(f"an edit of {at}: {e}") from None
        if block.type == "compaction":  # it has its one place, which the provider's answer gives it
            raise RecordRefused(f"an edit of {at}: only a provider's answer holds a compaction block")


def readable(records: tuple[Record, ...]) -> tuple[Record, ...]:
    """The records as whoever opens the journal next will read them. Raises `RecordRefused` where that can't be.

    So a live session and a reopened one fold the same: a list given for a tuple, or a number for a key, is what it
    will have become.
    """
    for record in records:
        if not isinstance(record, _RECORDS):
            raise RecordRefused(
                f"{_short(record)} is no record: give a Front, a Pinned or another of the package's own"
            )
    try:
        back = _read_back(records)
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as e:
        raise RecordRefused(_why(records) or f"these records can't be written so that they can be read: {e}") from None
    if back == records:
        return records
    if wrong := _why(records):
        raise RecordRefused(wrong)
    return back


def _read_back(records: tuple[Record, ...]) -> tuple[Record, ...]:
    """The records from their own bytes. Raises `RecursionError` at the same depth in every version of Python."""
    raw = _ENCODE(records)
    if is_deep(raw, _MOST_DEPTH):
        raise RecursionError
    return _DECODE(raw)


def _why(records: tuple[Record, ...]) -> str:
    """Which record holds something that JSON doesn't, and where; empty when that isn't it."""
    for record in records:
        name = record.__struct_config__.tag
        try:
            wrong = not_json(record)
            if not wrong:
                _read_back((record,))
                continue
        except RecursionError:
            wrong = "nested too deeply to be written"
        except (msgspec.MsgspecError, TypeError, ValueError, OverflowError) as e:
            wrong = str(e).replace("$[0].", "").replace("$[0]", "it")
        return f"a record of type {name} can't be kept: {wrong}"
    return ""


def _named(message: Message) -> str:
    return f"message {message.id}" if message.id else "the message"


def _short(value: Any) -> str:
    return f"{value!r:.60}"
