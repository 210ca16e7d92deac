"""Secrets replaced inside JSON, and in records with the words that were promised of them (SEC-5).

What is scanned are the texts that the JSON holds, not their escaped form; a value is looked at with its name too, since
`{"password": "…"}` tells by the name alone. JSON without a secret keeps its bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from holdfast.memory.trust.secrets import find_secrets, redact, stand_ins

_BOUND = frozenset({"signature", "encrypted_content", "thinking"})  # changed, they no longer hold
_IDS = frozenset({"type", "id", "tool_use_id", "uuid", "parentUuid", "sessionId"})
_NAMED_CHARS = 400
_EVERYWHERE_CHARS = 12  # a value so long is the same secret wherever it stands


@dataclass(frozen=True, slots=True)
class RedactedJson:
    """The JSON, and the families of what was replaced in it."""

    raw: bytes
    families: tuple[str, ...] = ()


def redact_json(raw: bytes, key: bytes = b"") -> RedactedJson:
    """JSON without the secrets in its texts; the very bytes when there is none, or when it is no JSON."""
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError):
        return RedactedJson(raw)
    families: list[str] = []
    changed = _walked(value, "", key, families)
    return RedactedJson(msgspec.json.encode(changed), tuple(families)) if families else RedactedJson(raw)


def redact_log(data: bytes, key: bytes = b"") -> bytes:
    """A log without secrets: one JSON value, or one a line; lines without any keep their bytes."""
    done = redact_json(data, key)
    if done.families:
        return done.raw
    return b"\n".join(redact_json(line, key).raw for line in data.split(b"\n"))


def _walked(value: Any, name: str, key: bytes, families: list[str]) -> Any:
    if isinstance(value, str):
        return value if name in _BOUND or name in _IDS else _text(value, name, key, families)
    if isinstance(value, list):
        return [_walked(one, name, key, families) for one in value]
    if isinstance(value, dict):
        return {k: _walked(one, k, key, families) for k, one in value.items()}
    return value


def _text(text: str, name: str, key: bytes, families: list[str]) -> str:
    done = redact(text, key)
    if done.findings:
        families += [one.family for one in done.findings]
        return done.text
    if name and 0 < len(text) <= _NAMED_CHARS and '"' not in text:
        before = f'{name}="'
        for one in find_secrets(f'{before}{text}"'):
            if one.start == len(before) and one.end == len(before) + len(text):
                families.append(one.family)
                return redact(f'{before}{text}"', key).text[len(before) : -1]
    return text


@dataclass(frozen=True, slots=True)
class RedactedRecord:
    """A record without secrets, and what was promised to stand in it, as far as it still can."""

    text: str
    promised: tuple[str, ...]
    families: tuple[str, ...] = ()


def redact_record(text: str, promised: tuple[str, ...], key: bytes = b"") -> RedactedRecord:
    """A record as it may be written. The same long value is replaced wherever it stands, found there or not.

    Words that were promised and hold a secret stand there with its mark: the journal has them word for word.
    """
    done = redact(text, key)
    if not done.findings:
        return RedactedRecord(text, promised)
    after = _replaced(done.text, stand_ins(text, key))
    kept = tuple(words for words in promised if words in after or words not in text)
    return RedactedRecord(after, kept, tuple(one.family for one in done.findings))


def _replaced(text: str, marks: Mapping[str, str]) -> str:
    for value, mark in marks.items():
        if len(value) >= _EVERYWHERE_CHARS:
            text = text.replace(value, mark)
    return text
