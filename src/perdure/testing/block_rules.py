"""Rules that can be decided from one content block alone: its fields, media, and what a model accepts."""

from __future__ import annotations

import binascii
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from perdure.context.models import UNKNOWN, model_spec


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule: its name, where, and the text the real server would answer with."""

    rule: str
    path: str
    text: str


@dataclass(frozen=True, slots=True)
class BlockViolation:
    """A broken rule inside one message. `path` is relative to it, so the finding can be kept with its bytes."""

    rule: str
    path: str
    said: str

    def at(self, base: str) -> Violation:
        path = ".".join(part for part in (base, self.path) if part)
        return Violation(self.rule, path, f"{path}: {self.said}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRules:
    """Limits and switches of one model. The defaults are a 200,000-token model of 2026; `of` has those of a model that
    Perdure knows by name.
    """

    window_tokens: int = 200_000
    max_output_tokens: int = 64_000
    min_cacheable_tokens: int = 1024
    max_body_bytes: int = 32_000_000
    max_messages: int = 100_000
    max_markers: int = 4
    max_media: int | None = None  # None: 100, or 600 for windows over 200,000
    max_image_bytes: int = 5 * 1024 * 1024  # of the base64 text
    max_image_side: int = 8000
    many_images: int = 20  # above this many images ...
    many_images_side: int = 2000  # ... each must be this small
    max_media_bytes: int = 32_000_000  # all base64 text of a request together
    tool_id_pattern: str = r"[a-zA-Z0-9_-]+"
    prefill: bool = False  # may a request end with an assistant message
    system_messages: bool = True  # role "system" in the middle of a conversation
    sampling: bool = False  # temperature, top_p, top_k (gone since API version 2026-10-21)
    forced_tool_choice: bool = True
    output_must_fit: bool = False  # older models: input + max_tokens over the window is refused
    allow_unknown: bool = False  # accept block types and fields that are not in the tables

    @classmethod
    def of(cls, model: str) -> ModelRules:
        """The limits that Perdure's own table has of a model; the defaults for a model that isn't in it."""
        spec = model_spec(model)
        if spec is UNKNOWN:
            return cls()
        return cls(
            window_tokens=spec.window_tokens,
            max_output_tokens=spec.max_output_tokens,
            min_cacheable_tokens=spec.cache_minimum_tokens,
            max_media=spec.max_images,
        )

    @property
    def media_limit(self) -> int:
        """The most images and documents in a request: `max_media`, or what goes with the window."""
        if self.max_media is not None:
            return self.max_media
        return 100 if self.window_tokens <= 200_000 else 600


IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
MEDIA = frozenset({"image", "document"})


def media_findings(block: Mapping[str, Any], path: str, rules: ModelRules) -> Iterator[BlockViolation]:
    source, kind = block["source"], block["type"]
    if source["type"] != "base64":
        return
    allowed = IMAGE_TYPES if kind == "image" else frozenset({"application/pdf"})
    if source["media_type"] not in allowed:
        wanted = " or ".join(f"'{name}'" for name in sorted(allowed))
        yield BlockViolation("media_type", path, f"{kind}.source.base64.media_type: Input should be {wanted}")
    try:
        raw = binascii.a2b_base64(source["data"], strict_mode=True)
    except (ValueError, binascii.Error):
        raw = b""
    if not raw:
        yield BlockViolation("media_data", path, f"{kind}.source.base64.data: invalid base64 data")
    if kind == "image":
        yield from _picture_findings(raw, len(source["data"]), path, rules)


def _picture_findings(raw: bytes, encoded_bytes: int, path: str, rules: ModelRules) -> Iterator[BlockViolation]:
    limit = rules.max_image_bytes
    if encoded_bytes > limit:
        said = f"image exceeds {limit // 2**20} MB maximum: {encoded_bytes} bytes > {limit} bytes"
        yield BlockViolation("image_bytes", path, f"image.source.base64: {said}")
    if max(picture_size(raw)) > rules.max_image_side:
        said = f"At least one of the image dimensions exceed max allowed size: {rules.max_image_side} pixels"
        yield BlockViolation("image_side", path, f"image.source.base64.data: {said}")


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


class CacheControl(msgspec.Struct, forbid_unknown_fields=True):
    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] | None = None
    scope: str | None = None


class _Marked(msgspec.Struct, kw_only=True):
    cache_control: CacheControl | None = None


class _Base64(msgspec.Struct, tag="base64", forbid_unknown_fields=True):
    media_type: str
    data: str


class _Url(msgspec.Struct, tag="url", forbid_unknown_fields=True):
    url: str


class _FileSource(msgspec.Struct, tag="file", forbid_unknown_fields=True):
    file_id: str


class _PlainText(msgspec.Struct, tag="text", forbid_unknown_fields=True):
    media_type: Literal["text/plain"]
    data: str


class _Content(msgspec.Struct, tag="content", forbid_unknown_fields=True):
    content: str | list[dict[str, Any]]


class TextShape(_Marked):
    text: str
    citations: list[dict[str, Any]] | None = None


class ImageShape(_Marked):
    source: _Base64 | _Url | _FileSource
    transformations: Any = None


class DocumentShape(_Marked):
    source: _Base64 | _PlainText | _Content | _Url | _FileSource
    title: str | None = None
    context: str | None = None
    citations: dict[str, Any] | None = None


class SearchResult(_Marked):
    source: str
    title: str
    content: list[dict[str, Any]]
    citations: dict[str, Any] | None = None


class ThinkingShape(msgspec.Struct):
    thinking: str
    signature: str


class RedactedThinkingShape(msgspec.Struct):
    data: str


class ToolUseShape(_Marked):
    id: str
    name: str
    input: dict[str, Any]
    caller: dict[str, Any] | None = None
    toolset_name: str | None = None


class ToolResultShape(_Marked):
    tool_use_id: str
    content: str | list[dict[str, Any]] | None = None
    is_error: bool | None = None
    toolset_name: str | None = None


class ServerToolUseShape(_Marked):
    id: str
    name: str
    input: dict[str, Any]
    caller: dict[str, Any] | None = None
    server_name: str | None = None


class ServerToolResultShape(_Marked):
    tool_use_id: str
    content: Any
    caller: dict[str, Any] | None = None
    is_error: bool | None = None


class CompactionShape(_Marked):
    content: str | None
    encrypted_content: str | None = None
    signature: str | None = None
    tool_changes: Any = None


class ContainerUpload(_Marked):
    file_id: str


class ToolReference(_Marked):
    tool_name: str


SERVER_CALLS = frozenset({"server_tool_use", "mcp_tool_use"})
SERVER_RESULTS = frozenset(
    "web_search_tool_result web_fetch_tool_result code_execution_tool_result bash_code_execution_tool_result "
    "text_editor_code_execution_tool_result tool_search_tool_result mcp_tool_result advisor_tool_result".split()
)
THINKING = frozenset({"thinking", "redacted_thinking"})
_TYPES: dict[str, type[msgspec.Struct] | None] = {
    "text": TextShape, "image": ImageShape, "document": DocumentShape, "search_result": SearchResult,
    "thinking": ThinkingShape, "redacted_thinking": RedactedThinkingShape, "compaction": CompactionShape,
    "tool_use": ToolUseShape, "tool_result": ToolResultShape,
    "container_upload": ContainerUpload, "tool_reference": ToolReference,
    **dict.fromkeys(SERVER_CALLS, ServerToolUseShape), **dict.fromkeys(SERVER_RESULTS, ServerToolResultShape),
    # beta blocks whose fields are not checked
    "mcp_tool_listing": None, "fallback": None, "browser_state": None, "tool_addition": None, "tool_removal": None,
}  # fmt: skip
_PLACES: dict[str, frozenset[str]] = {
    "user": frozenset({"text", "image", "document", "search_result", "tool_result", "container_upload"}),
    "assistant": frozenset({"text", "tool_use", "compaction", "mcp_tool_listing", "fallback", "document"})
    | THINKING
    | SERVER_CALLS
    | SERVER_RESULTS,
    "system": frozenset({"text", "tool_addition", "tool_removal"}),
    "tool_result": frozenset({"text", "image", "search_result", "document", "tool_reference", "browser_state"}),
    "search_result": frozenset({"text"}),
    "document": frozenset({"text", "image"}),
}
_EXPECTED = {"str": "string", "int": "integer", "object": "dictionary", "array": "list", "bool": "boolean"}


def check_block(block: Any, place: str, path: str, rules: ModelRules) -> Iterator[BlockViolation]:
    """Findings about one block; `place` is the role of its message or the type of the block it is nested in."""
    if not isinstance(block, dict):
        yield BlockViolation("block_shape", path, "Input should be a valid dictionary or object to extract fields from")
        return
    kind = block.get("type")
    if not isinstance(kind, str):
        yield BlockViolation("block_shape", path, "Unable to extract tag using discriminator 'type'")
        return
    if kind not in _TYPES:
        if not rules.allow_unknown:
            yield BlockViolation(
                "unknown_block", path, f"Input tag '{kind}' found using 'type' does not match any expected tag"
            )
        return
    if kind not in _PLACES[place]:
        allowed = "assistant" if kind in _PLACES["assistant"] else "user"
        yield BlockViolation("wrong_place", path, f"`{kind}` blocks can only be in `{allowed}` messages")
        return
    problem = _field_problem(block, kind, path, rules)
    if problem is not None:
        yield problem
        return
    if kind in _RULES:
        yield from _RULES[kind](block, place, path, rules)
    inside, parts = nested_blocks(block, kind)
    for index, part in enumerate(parts):
        yield from check_block(part, kind, f"{path}.{inside}.{index}", rules)


def _field_problem(block: Mapping[str, Any], kind: str, path: str, rules: ModelRules) -> BlockViolation | None:
    """The first wrong field of a known block, in the wording of the real server (which puts the tag into the path)."""
    if kind in THINKING and "cache_control" in block:
        said = f"{kind}.cache_control: Extra inputs are not permitted"
        return BlockViolation("marker_on_thinking", path, said)
    shape = _TYPES[kind]
    if shape is None:
        return None
    extra = sorted(set(block) - set(shape.__struct_fields__) - {"type"})
    if extra and not rules.allow_unknown:
        return BlockViolation("unknown_field", path, f"{kind}.{extra[0]}: Extra inputs are not permitted")
    try:
        msgspec.convert(block, shape)
    except msgspec.ValidationError as error:
        return BlockViolation("block_fields", path, f"{kind}.{explain(str(error))}")
    return None


def explain(error: str) -> str:
    """Rewrite a msgspec message the way the real server words it."""
    text, _, where = error.partition(" - at `$")
    place = where.strip(".`").replace("[", ".").replace("]", "")
    if found := re.fullmatch(r"Object missing required field `(.+)`", text):
        place, text = f"{place}.{found[1]}".strip("."), "Field required"
    elif found := re.fullmatch(r"Object contains unknown field `(.+)`", text):
        place, text = f"{place}.{found[1]}".strip("."), "Extra inputs are not permitted"
    elif found := re.match(r"Expected `(\w+)", text):
        text = f"Input should be a valid {_EXPECTED.get(found[1], found[1])}"
    return f"{place}: {text}" if place else text


def _text(block: Mapping[str, Any], place: str, path: str, rules: ModelRules) -> Iterator[BlockViolation]:
    if not block["text"]:
        if block.get("cache_control") is not None:
            said = "text.cache_control: cache_control cannot be set for empty text blocks"
            yield BlockViolation("marker_on_empty_text", path, said)
        yield BlockViolation("empty_text", path, "text content blocks must be non-empty")
    if block.get("citations") and place != "assistant":
        yield BlockViolation(
            "user_citations", path, "text.citations: citations are not permitted outside assistant messages"
        )


def _thinking(block: Mapping[str, Any], place: str, path: str, rules: ModelRules) -> Iterator[BlockViolation]:
    if not block["signature"]:
        yield BlockViolation("thinking_signature", path, "Invalid `signature` in `thinking` block")


def _redacted(block: Mapping[str, Any], place: str, path: str, rules: ModelRules) -> Iterator[BlockViolation]:
    if not block["data"]:
        yield BlockViolation("thinking_signature", path, "Invalid `data` in `redacted_thinking` block")


def _tool_use(block: Mapping[str, Any], place: str, path: str, rules: ModelRules) -> Iterator[BlockViolation]:
    if not re.fullmatch(rules.tool_id_pattern, block["id"]):
        yield BlockViolation("tool_id", path, f"tool_use.id: String should match pattern '^{rules.tool_id_pattern}$'")
    if not 1 <= len(block["name"]) <= 200:
        yield BlockViolation("tool_name", path, "tool_use.name: String should have between 1 and 200 characters")


def _tool_result(block: Mapping[str, Any], place: str, path: str, rules: ModelRules) -> Iterator[BlockViolation]:
    content = block.get("content")
    if block.get("is_error") and isinstance(content, list) and any(part.get("type") != "text" for part in content):
        yield BlockViolation("error_result", path, "tool_result: all content must be type `text` if `is_error` is true")


def _document(block: Mapping[str, Any], place: str, path: str, rules: ModelRules) -> Iterator[BlockViolation]:
    if place == "assistant":
        yield BlockViolation(
            "assistant_document", path, "`document` blocks are not permitted directly in `assistant` messages"
        )
    yield from media_findings(block, path, rules)


def _image(block: Mapping[str, Any], place: str, path: str, rules: ModelRules) -> Iterator[BlockViolation]:
    yield from media_findings(block, path, rules)


def _compaction(block: Mapping[str, Any], place: str, path: str, rules: ModelRules) -> Iterator[BlockViolation]:
    if block["content"] == "":
        yield BlockViolation("compaction_empty", path, "compaction.content: String should have at least 1 character")


_RULES = {
    "text": _text, "thinking": _thinking, "redacted_thinking": _redacted, "tool_use": _tool_use,
    "tool_result": _tool_result, "document": _document, "image": _image, "compaction": _compaction,
}  # fmt: skip


def nested_blocks(block: Mapping[str, Any], kind: str) -> tuple[str, list[Any]]:
    """The blocks inside a block, with the path to them."""
    if kind in ("tool_result", "search_result"):
        place, parts = "content", block.get("content")
    elif kind == "document" and isinstance(block.get("source"), dict):
        place, parts = "source.content", block["source"].get("content")
    else:
        return "", []
    return place, parts if isinstance(parts, list) else []
