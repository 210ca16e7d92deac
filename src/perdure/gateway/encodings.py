"""Bodies that a client compressed: read where that can be done, and written again in the same encoding (GW-7)."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

_PIECE_BYTES = 256 * 1024  # of what is read at a time: a few bytes can stand for very many
_GZIP, _ZLIB = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS
TOO_LARGE = "encoded_too_large"  # why a body isn't read that is sound
_FAST = 1  # a view is compressed while its client waits


class UnreadableEncoding(Exception):
    """A body that can't be read here, or is larger than allowed once it is. The argument is a short reason."""


class _Codec(NamedTuple):
    read: Callable[[bytes], Iterator[bytes]]  # in pieces; raises an error of its library, or `EOFError`
    write: Callable[[bytes], bytes]


def decoded(body: bytes, encoding: str, most_bytes: int) -> bytes:
    """What a body says.

    Args:
        body: as it came.
        encoding: the value of its header `content-encoding`.
        most_bytes: how large the result may be.

    Raises:
        UnreadableEncoding: it is in an encoding that isn't known here, damaged, or too large.
    """
    parts: list[bytes] = []
    size = 0
    pieces = _codec(encoding).read(body)
    while True:
        try:
            piece = next(pieces, None)
        except Exception:  # each library has errors of its own
            raise UnreadableEncoding("encoding_damaged") from None
        if piece is None:
            return b"".join(parts)
        size += len(piece)
        if size > most_bytes:
            raise UnreadableEncoding(TOO_LARGE)
        parts.append(piece)


def encoded(body: bytes, encoding: str) -> bytes:
    """A body in an encoding that `decoded` reads."""
    return _codec(encoding).write(body)


def _codec(encoding: str) -> _Codec:
    match encoding.strip().lower():
        case "gzip" | "x-gzip":
            return _Codec(partial(_unzipped, _GZIP), lambda body: gzip.compress(body, _FAST, mtime=0))
        case "deflate":
            return _Codec(partial(_unzipped, _ZLIB), lambda body: zlib.compress(body, _FAST))
        case "zstd" if zstd := _first("compression.zstd", "backports.zstd"):
            return _Codec(partial(_unzstd, zstd), lambda body: bytes(zstd.compress(body)))
        case "br" if brotli := _first("brotli"):
            return _Codec(partial(_unbrotli, brotli), lambda body: bytes(brotli.compress(body, quality=_FAST)))
        case _:
            raise UnreadableEncoding("encoding_unknown")


def _first(*modules: str) -> Any:
    """The first of these modules that is installed; nothing else needs any of them."""
    for name in modules:
        try:
            return import_module(name)
        except ImportError:
            continue
    return None


def _unzipped(bits: int, body: bytes) -> Iterator[bytes]:
    reader = zlib.decompressobj(bits)
    while body and not reader.eof:
        yield reader.decompress(body, _PIECE_BYTES)
        body = reader.unconsumed_tail
    if not reader.eof or reader.unused_data:
        raise EOFError


def _unzstd(zstd: Any, body: bytes) -> Iterator[bytes]:
    reader = zstd.ZstdDecompressor()
    yield reader.decompress(body, _PIECE_BYTES)
    while not reader.eof and not reader.needs_input:
        yield reader.decompress(b"", _PIECE_BYTES)
    if not reader.eof or reader.unused_data:
        raise EOFError


def _unbrotli(brotli: Any, body: bytes) -> Iterator[bytes]:
    reader = brotli.Decompressor()
    while piece := reader.process(body, output_buffer_limit=_PIECE_BYTES):
        yield piece
        body = b""
    if not reader.is_finished():
        raise EOFError
