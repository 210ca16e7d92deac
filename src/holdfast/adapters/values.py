"""Values of settings as people write them: in TOML with its types, in the environment and in flags as text.

Text takes `200_000`, `200,000`, `200k` and `1M` for numbers, true/false, yes/no, on/off and 1/0 for switches, `none`
where nothing is a value, commas between names, and `Bash=30000,Grep=20000` for tables.
"""

from __future__ import annotations

import difflib
import math
import types
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from holdfast.settings import Settings

_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})
_FACTORS = {"k": 1_000, "m": 1_000_000}
_WANTED: dict[object, str] = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}

# PRS-3: a value that can't be used is ignored with a warning, wherever it stands.
MAY_BE_IGNORED = frozenset({"auto_compact_window", "auto_compact_percent"})
# What is no size: at least 1 where 0 would mean "never" or divide by nothing.
_AT_LEAST_ONE = frozenset(
    "window_tokens max_output_tokens auto_compact_window breaker_failures thrash_refills thrash_turns preview_chars "
    "result_limit_chars message_limit_bytes max_media_bytes margin_numerator margin_denominator "
    "agent_turns agent_parallel read_lines read_line_chars find_limit command_shown_bytes".split()
)


class Unusable(Exception):
    """A value can't be used; the text says why."""


def nearest(name: str, names: tuple[str, ...], *, cutoff: float = 0.6) -> str:
    """`: did you mean …?`, or nothing when no name is near."""
    found = difflib.get_close_matches(name, names, n=1, cutoff=cutoff)
    return f": did you mean {found[0]}?" if found else ""


@cache
def _hints(owner: type) -> dict[str, Any]:
    return get_type_hints(owner)


def parsed(name: str, given: object, before: Any) -> Any:
    """A setting's value from what was written; a table is laid over the one that was there `before`."""
    value = _converted(_hints(Settings)[name], given)
    if isinstance(value, dict):
        return {**before, **value}
    _check_range(name, value)
    return value


def number_type(owner: type, name: str, given: object) -> Any:
    """The value of a field of another dataclass of plain numbers, switches and texts, none of them negative."""
    value = _converted(_hints(owner)[name], given)
    if isinstance(value, int | float) and value < 0:
        raise Unusable("has to be 0 or more")
    if name == "window_tokens" and not value:
        raise Unusable("has to be 1 or more")
    return value


def _converted(kind: Any, given: object) -> Any:
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _optional(kind, given)
    if origin is Literal:
        return _one_of(get_args(kind), given)
    if origin is tuple:
        return _names(given)
    if origin is dict:
        return _table(given)
    if kind is bool:
        return _switch(given)
    if kind in (int, float):
        return _number(kind, given)
    if not isinstance(given, str):
        raise Unusable(f"has to be {_WANTED[str]}")
    return given


def _optional(kind: Any, given: object) -> Any:
    if given is None or (isinstance(given, str) and given.strip().lower() in ("none", "null", "")):
        return None
    return _converted(next(part for part in get_args(kind) if part is not type(None)), given)


def _one_of(choices: tuple[Any, ...], given: object) -> Any:
    if given not in choices:
        raise Unusable(f"has to be one of {', '.join(map(str, choices))}")
    return given


def _switch(given: object) -> bool:
    if isinstance(given, bool):
        return given
    word = given.strip().lower() if isinstance(given, str) else ""
    if word not in _TRUE | _FALSE:
        raise Unusable(f"has to be {_WANTED[bool]}")
    return word in _TRUE


def _number(kind: type, given: object) -> int | float:
    value: float | None = None
    if isinstance(given, str):
        value = _from_text(given)
    elif isinstance(given, int | float) and not isinstance(given, bool):
        value = given
    if value is None or not math.isfinite(value) or (kind is int and value != int(value)):
        raise Unusable(f"has to be {_WANTED[kind]}")
    return int(value) if kind is int else float(value)


def _from_text(text: str) -> float | None:
    word = text.strip().lower().replace(",", "").replace("_", "")
    factor = _FACTORS.get(word[-1:], 1)
    word = word[:-1] if factor > 1 else word
    try:
        value = int(word) if word.lstrip("+-").isdigit() else float(word)
    except ValueError:
        return None
    return value * factor


def _names(given: object) -> tuple[str, ...]:
    if isinstance(given, str):
        return tuple(part.strip() for part in given.split(",") if part.strip())
    if isinstance(given, list | tuple) and all(isinstance(part, str) for part in given):
        return tuple(given)
    raise Unusable("has to be a list of names")


def _table(given: object) -> dict[str, int]:
    if isinstance(given, str):
        pairs = [part.partition("=") for part in given.split(",") if part.strip()]
        if not all(equals for _, equals, _ in pairs):
            raise Unusable("has to be entries like Bash=30000, with commas between")
        given = {name.strip(): value for name, _, value in pairs}
    if not isinstance(given, dict):
        raise Unusable("has to be a table of names and numbers")
    table = {str(name): int(_number(int, value)) for name, value in given.items()}
    if any(value < 0 for value in table.values()):
        raise Unusable("has to hold numbers of 0 or more")
    return table


def _check_range(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    if name == "auto_compact_percent" and not 0 < value <= 100:
        raise Unusable("has to be above 0 and at most 100")
    if name == "min_reduction_percent" and not 0 <= value <= 100:
        raise Unusable("has to be from 0 to 100")
    if name in _AT_LEAST_ONE and value < 1:
        raise Unusable("has to be 1 or more")
    if value < 0:
        raise Unusable("has to be 0 or more")
