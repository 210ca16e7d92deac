"""Names of files in our own files, which hold texts: what is no UTF-8 in a name has its own form there (CKP-7).

A name is bytes. In memory it is a `str` as `os.fsdecode` makes one, whose lone surrogates stand for bytes that aren't
UTF-8. In JSON and msgpack each of these is a NUL and two hex digits: no name holds a NUL, so every other name
stands there as it is, and nothing is ambiguous.
"""

from __future__ import annotations

import re
from typing import Any

_LONE = re.compile("[\udc80-\udcff]")
_WRITTEN = re.compile("\0([0-9a-f]{2})")


def written(name: str) -> str:
    """A name as it stands in a file of ours."""
    return name if name.isascii() else _LONE.sub(lambda found: f"\0{ord(found[0]) - 0xDC00:02x}", name)


def read(text: str) -> str:
    """The name again."""
    return _WRITTEN.sub(lambda found: chr(0xDC00 + int(found[1], 16)), text) if "\0" in text else text


def all_written(value: Any) -> Any:
    """Every text in a value of plain lists and dicts, as `written` has it."""
    return _mapped(value, written)


def all_read(value: Any) -> Any:
    """The inverse of `all_written`."""
    return _mapped(value, read)


def _mapped(value: Any, how: Any) -> Any:
    if isinstance(value, str):
        return how(value)
    if isinstance(value, dict):
        return {how(key): _mapped(inner, how) for key, inner in value.items()}
    return [_mapped(inner, how) for inner in value] if isinstance(value, list | tuple) else value
