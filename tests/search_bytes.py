"""Every byte of a folder searched for a word, however it is packed. Knows nothing of the formats of this package."""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

_STREAM = re.compile(rb"\x78[\x01\x5e\x9c\xda]")
_RUN = re.compile(rb"[!-~]{12,}")
_TOKEN = re.compile(rb"[0-9A-Za-z!#$%&()*+;<=>?@^_`{|}~-]{12,}")
_BASE64 = re.compile(rb"[A-Za-z0-9+/]{12,}={0,2}")


def files_with(folder: Path, *words: str) -> list[Path]:
    """The files in whose name or bytes one of the words stands, in small letters or large ones."""
    wanted = [word.lower().encode() for word in words]
    found = []
    for path in sorted(folder.rglob("*")):
        data = str(path.name).encode() + b"\n" + (path.read_bytes() if path.is_file() else b"")
        if any(word in layer.lower() for layer in _layers(data, 3) for word in wanted):
            found.append(path)
    return found


def _layers(data: bytes, depth: int) -> Iterator[bytes]:
    """The bytes, without escapes, and whatever can be unpacked of them."""
    yield data
    yield data.decode("utf-16-le", "ignore").encode()
    yield data[1:].decode("utf-16-le", "ignore").encode()
    if b"\\" in data:
        yield re.sub(rb"\\u([0-9a-fA-F]{4})", lambda m: chr(int(m[1], 16)).encode("utf-8", "replace"), data)
    if b"%" in data:
        yield re.sub(rb"%([0-9a-fA-F]{2})", lambda m: bytes((int(m[1], 16),)), data)
    if not depth:
        return
    for stream in _STREAM.finditer(data):
        try:
            inner = zlib.decompressobj().decompress(data[stream.start() :])
        except zlib.error:
            continue
        if inner:
            yield from _layers(inner, depth - 1)
    for run in _RUN.finditer(data):
        for token in _TOKEN.findall(run.group()):
            try:
                yield from _layers(base64.b85decode(token), depth - 1)
            except ValueError:
                pass
        for token in _BASE64.findall(run.group()):
            for shift in range(4):
                part = token[shift:].rstrip(b"=")
                try:
                    yield from _layers(base64.b64decode(part[: len(part) // 4 * 4]), depth - 1)
                except binascii.Error:
                    continue
