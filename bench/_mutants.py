"""Mutants of an input: what a crash, another version, a hand or a hostile program could have made of it (ENG-7).

The same seed makes the same mutant. `json_mutant` changes what JSON says, in a document or in one of its lines;
`bytes_mutant` changes the bytes it stands in; `mutant` takes either.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

Place = tuple[Any, Any]  # what holds a value, and by which key

_ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1.5, 10**30, -(10**25), 2**63, 2**64, 1e308, "", " ", "x", "\ud83d", "\udc00x", "\0"),
    *("functions.Bash:0", "é" * 80, "0" * 300, [], {}, [None], [[]], {"": None}, [1, "a"], {"type": "text"}),
    *({"type": "text", "text": "told"}, {"type": "tool_use"}, "tool_use", "tool_result", "assistant", "user", "system"),
)
_NUMBERS = ("1e999", "-1e999", "1" * 400, "-0", "NaN", "01")
_DEPTHS = (40, 150, 600, 3_000)


def mutant(data: bytes, chance: random.Random) -> bytes:
    """One mutant, with one change or a few: three of four change what the JSON says."""
    changed = json_mutant(data, chance) if chance.random() < 0.75 else None
    return bytes_mutant(data, chance) if changed is None else changed


def json_mutant(data: bytes, chance: random.Random) -> bytes | None:
    """The same document, or JSONL, with values changed, moved, repeated or dropped; None when it is no JSON."""
    lines = [line for line in data.split(b"\n") if line.strip()]
    try:
        values = [json.loads(data)]
        is_lines = False
    except ValueError:
        try:
            values, is_lines = [json.loads(line) for line in lines], True
        except ValueError:
            return None
    if not values:
        return None
    for _ in range(chance.choice((1, 1, 1, 2, 3, 6))):
        _change(values, chance)
    texts = [json.dumps(value) for value in values]
    if chance.random() < 0.15:
        texts = [_with_depth(text, chance) for text in texts]
    if chance.random() < 0.1:
        texts = [text.replace(": 0", f": {chance.choice(_NUMBERS)}", 1) for text in texts]
    return "\n".join(texts).encode() + (b"\n" if is_lines else b"")


def _change(values: list[Any], chance: random.Random) -> None:
    places = list(_places(values))
    if not places:
        return
    holder, key = chance.choice(places)
    chance.choice(_CHANGES)(values, places, holder, key, chance)


def _places(value: Any) -> Iterator[Place]:
    """Every value inside, with what holds it; iterative, since some inputs are deep."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        keys: Any = list(one) if isinstance(one, dict) else range(len(one))
        for key in keys:
            yield one, key
            if isinstance(one[key], dict | list):
                waiting.append(one[key])


Change = Callable[[list[Any], list[Place], Any, Any, random.Random], None]


def _replaced(values: list[Any], places: list[Place], holder: Any, key: Any, chance: random.Random) -> None:
    holder[key] = json.loads(json.dumps(chance.choice(_ODD)))


def _dropped(values: list[Any], places: list[Place], holder: Any, key: Any, chance: random.Random) -> None:
    del holder[key]


def _repeated(values: list[Any], places: list[Place], holder: Any, key: Any, chance: random.Random) -> None:
    if isinstance(holder, list):
        holder.insert(chance.randrange(len(holder) + 1), json.loads(json.dumps(holder[key])))
    else:
        holder[f"{key}2"] = holder[key]


def _shuffled(values: list[Any], places: list[Place], holder: Any, key: Any, chance: random.Random) -> None:
    if isinstance(holder, list):
        chance.shuffle(holder)
    else:
        _moved(values, places, holder, key, chance)


def _moved(values: list[Any], places: list[Place], holder: Any, key: Any, chance: random.Random) -> None:
    """One value in the place of another: ids repeat, roles change, a block stands where a text did."""
    other, at = chance.choice(places)
    holder[key] = json.loads(json.dumps(other[at]))


def _same_key(values: list[Any], places: list[Place], holder: Any, key: Any, chance: random.Random) -> None:
    """A value of another place with the same key, such as the id of another call."""
    same = [(h, k) for h, k in places if k == key and isinstance(k, str) and h is not holder]
    if same:
        other, at = chance.choice(same)
        holder[key] = json.loads(json.dumps(other[at]))
    else:
        _replaced(values, places, holder, key, chance)


def _wrapped(values: list[Any], places: list[Place], holder: Any, key: Any, chance: random.Random) -> None:
    holder[key] = chance.choice(([holder[key]], {"content": holder[key]}, str(holder[key])[:200], [holder[key]] * 2))


_CHANGES: tuple[Change, ...] = (
    *(
        _replaced,
        _replaced,
        _replaced,
        _dropped,
        _dropped,
        _repeated,
        _shuffled,
        _moved,
        _same_key,
        _same_key,
        _wrapped,
    ),
)


def _with_depth(text: str, chance: random.Random) -> str:
    """A value nested deeper than most readers go; written as text, since no encoder would."""
    depth = chance.choice(_DEPTHS)
    deep = chance.choice(('{"a":' * depth + "1" + "}" * depth, "[" * depth + "]" * depth))
    return text.replace('"told"', deep, 1) if '"told"' in text else text.replace("{", '{"deep": ' + deep + ", ", 1)


def bytes_mutant(data: bytes, chance: random.Random) -> bytes:
    """The same bytes with some flipped, cut, repeated, moved, or overwritten."""
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 5))):
        at, length = chance.randrange(len(changed) + 1), chance.choice((1, 1, 4, 30, 400))
        piece = bytes(changed[at : at + length])
        kind = chance.randrange(7)
        if kind == 0 and changed:
            changed[min(at, len(changed) - 1)] ^= 1 << chance.randrange(8)
        elif kind == 1:
            del changed[at : at + length]
        elif kind == 2:
            changed[at:at] = piece
        elif kind == 3:
            changed[at : at + length] = bytes(chance.randrange(256) for _ in piece)
        elif kind == 4:
            changed[at : at + length] = b"\0" * len(piece)
        elif kind == 5:
            del changed[at:]
        else:
            changed[at:at] = chance.choice(
                (b"\xef\xbb\xbf", b"\r\n", b"\n\n", b"\xff\xfe", b"\\ud83d", b"}", b'"', b"[" * 50)
            )
    return bytes(changed)
