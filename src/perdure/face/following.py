"""The messages of a history that somebody else owns, as they are given: which say the system prompt, and how the others
are read (LIB-4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from perdure.engine.follow import GivenMessage
from perdure.errors import RecordRefused
from perdure.transcript.blocks import FIELDS, encode, raw_of, whole_characters
from perdure.transcript.messages import Message, WireFields
from perdure.transcript.plain import is_system, message_of, openai_message, system_text
from perdure.transcript.response_items import REASONING, is_item, is_of_model, item_kind, message_of_items


@dataclass(frozen=True, slots=True)
class GivenHistory:
    """A history as it was given. Its first `lead` messages say the system prompt, which is `system`."""

    all: Sequence[Any]
    lead: int
    system: tuple[str, ...]
    messages: list[GivenMessage]


def read_history(given: Any) -> GivenHistory:
    """Take a history apart; the messages themselves are read when they are needed. Raises `RecordRefused`."""
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Sequence):
        raise RecordRefused(f"a history is the list of all its messages, not {type(given).__name__}")
    plain = [one if type(one) is dict and "role" in one else _plain(one, n) for n, one in enumerate(given, 1)]
    lead = next((n for n, one in enumerate(plain) if not is_system(one)), len(plain))
    system = tuple(system_text(one, _place(n)) for n, one in enumerate(plain[:lead], 1))
    messages: list[GivenMessage] = []
    waiting: list[tuple[int, bytes]] = []  # reasoning, and the item behind it, which is one message with it
    for number in range(lead, len(plain)):
        one = plain[number]
        try:
            raw = _raw(one, number + 1)
        except UnicodeEncodeError:  # its owner may send it all the same; here it is kept as far as it is text
            one = whole_characters(one)
            raw = _raw(one, number + 1)
        is_text = type(one) is dict and "role" in one and type(one.get("content")) is str
        kind, role = ("", "") if is_text or not _is_item(one) else item_kind(raw)
        if waiting and not (kind and is_of_model(kind, role)):
            messages.append(_of_items(waiting))
            waiting = []
        if kind:
            waiting.append((number, raw))
            if kind != REASONING:
                messages.append(_of_items(waiting))
                waiting = []
        else:
            messages.append(GivenMessage(raw, range(number, number + 1), partial(_read, one, number + 1)))
    if waiting:
        messages.append(_of_items(waiting))
    return GivenHistory(given, lead, system, messages)


def _place(number: int) -> str:
    return f"message {number} of the history"


def _plain(one: Any, number: int) -> Any:
    if not isinstance(one, Mapping | Message | str) and callable(as_dict := getattr(one, "to_dict", None)):
        one = as_dict()
    if isinstance(one, Mapping) and one.get("object") == "response":
        raise RecordRefused(f"{_place(number)} is a whole response: a history has the items of its output")
    return openai_message(one) if isinstance(one, Mapping) and "choices" in one else one


def _raw(one: Any, number: int) -> bytes:
    said = (one.role, one.content) if isinstance(one, Message) else one
    try:
        return encode(said)
    except UnicodeEncodeError:
        raise
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        return raw_of(said, _place(number))  # says what is wrong with it


def _is_item(one: Any) -> bool:
    if not isinstance(one, Mapping):
        return False
    return is_item(one) or ("role" not in one and isinstance(one.get("type"), str) and one["type"] not in FIELDS)


def _of_items(numbered: Sequence[tuple[int, bytes]]) -> GivenMessage:
    places, raws = range(numbered[0][0], numbered[-1][0] + 1), [raw for _, raw in numbered]
    return GivenMessage(b",".join(raws), places, partial(message_of_items, raws))


def _read(one: Any, number: int) -> Message:
    """A message of a history. Unlike one that is said now, it may be empty."""
    at = _place(number)
    if isinstance(one, Message):
        return one
    if is_system(one):
        wire = WireFields(protocol="openai", role=one["role"])
        return Message.of("user", system_text(one, at), origin="reminder", wire=wire)
    if isinstance(one, Mapping) and one.get("role") == "user" and not one.get("content"):
        return Message.of("user", "")
    return message_of(one, at)
