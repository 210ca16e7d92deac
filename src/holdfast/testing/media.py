"""Images and documents: types, sizes, and the dimensions of a picture read from its first bytes."""

import binascii
import struct
from collections.abc import Iterator, Mapping
from typing import Any

from .model_rules import Found, ModelRules

IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
MEDIA = frozenset({"image", "document"})


def media_findings(block: Mapping[str, Any], path: str, rules: ModelRules) -> Iterator[Found]:
    source, kind = block["source"], block["type"]
    if source["type"] != "base64":
        return
    allowed = IMAGE_TYPES if kind == "image" else frozenset({"application/pdf"})
    if source["media_type"] not in allowed:
        wanted = " or ".join(f"'{name}'" for name in sorted(allowed))
        yield Found("media_type", path, f"{kind}.source.base64.media_type: Input should be {wanted}")
    try:
        raw = binascii.a2b_base64(source["data"], strict_mode=True)
    except (ValueError, binascii.Error):
        raw = b""
    if not raw:
        yield Found("media_data", path, f"{kind}.source.base64.data: invalid base64 data")
    if kind == "image":
        yield from _picture_findings(raw, len(source["data"]), path, rules)


def _picture_findings(raw: bytes, encoded_bytes: int, path: str, rules: ModelRules) -> Iterator[Found]:
    limit = rules.max_image_bytes
    if encoded_bytes > limit:
        said = f"image exceeds {limit // 2**20} MB maximum: {encoded_bytes} bytes > {limit} bytes"
        yield Found("image_bytes", path, f"image.source.base64: {said}")
    if max(picture_size(raw)) > rules.max_image_side:
        said = f"At least one of the image dimensions exceed max allowed size: {rules.max_image_side} pixels"
        yield Found("image_side", path, f"image.source.base64.data: {said}")


def measure(block: Mapping[str, Any]) -> tuple[int, int]:
    """(bytes of base64 text, longest side in pixels or 0) of an image or document block."""
    source = block.get("source")
    data = source.get("data") if isinstance(source, dict) and source.get("type") == "base64" else None
    if not isinstance(data, str):
        return 0, 0
    if block.get("type") != "image":
        return len(data), 0
    try:
        return len(data), max(picture_size(binascii.a2b_base64(data)))
    except ValueError:
        return len(data), 0


def picture_size(raw: bytes) -> tuple[int, int]:
    """Width and height of a PNG, GIF or JPEG; (0, 0) when they cannot be told."""
    if raw[:8] == b"\x89PNG\r\n\x1a\n" and len(raw) >= 24:
        width, height = struct.unpack(">II", raw[16:24])
        return width, height
    if raw[:4] == b"GIF8" and len(raw) >= 10:
        width, height = struct.unpack("<HH", raw[6:10])
        return width, height
    return _jpeg_size(raw) if raw[:2] == b"\xff\xd8" else (0, 0)


def _jpeg_size(raw: bytes) -> tuple[int, int]:
    at = 2
    while at + 9 <= len(raw) and raw[at] == 0xFF:
        code, length = raw[at + 1], int.from_bytes(raw[at + 2 : at + 4], "big")
        if 0xC0 <= code <= 0xCF and code not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", raw[at + 5 : at + 9])
            return width, height
        at += 2 + length
    return 0, 0
