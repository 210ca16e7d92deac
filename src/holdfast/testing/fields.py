"""Rules that can be decided from one content block alone: its fields, their types, and where it may stand."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from .media import media_findings
from .model_rules import Found, ModelRules


class Marker(msgspec.Struct, forbid_unknown_fields=True):
    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] | None = None
    scope: str | None = None


class _Marked(msgspec.Struct, kw_only=True):
    cache_control: Marker | None = None


class _Base64(msgspec.Struct, tag="base64", forbid_unknown_fields=True):
    media_type: str
    data: str


class _Url(msgspec.Struct, tag="url", forbid_unknown_fields=True):
    url: str


class _File(msgspec.Struct, tag="file", forbid_unknown_fields=True):
    file_id: str


class _PlainText(msgspec.Struct, tag="text", forbid_unknown_fields=True):
    media_type: Literal["text/plain"]
    data: str


class _Content(msgspec.Struct, tag="content", forbid_unknown_fields=True):
    content: str | list[dict[str, Any]]


class Text(_Marked):
    text: str
    citations: list[dict[str, Any]] | None = None


class Image(_Marked):
    source: _Base64 | _Url | _File
    transformations: Any = None


class Document(_Marked):
    source: _Base64 | _PlainText | _Content | _Url | _File
    title: str | None = None
    context: str | None = None
    citations: dict[str, Any] | None = None


class SearchResult(_Marked):
    source: str
    title: str
    content: list[dict[str, Any]]
    citations: dict[str, Any] | None = None


class Thinking(msgspec.Struct):
    thinking: str
    signature: str


class RedactedThinking(msgspec.Struct):
    data: str


class ToolUse(_Marked):
    id: str
    name: str
    input: dict[str, Any]
    caller: dict[str, Any] | None = None
    toolset_name: str | None = None


class ToolResult(_Marked):
    tool_use_id: str
    content: str | list[dict[str, Any]] | None = None
    is_error: bool | None = None
    toolset_name: str | None = None


class ServerToolUse(_Marked):
    id: str
    name: str
    input: dict[str, Any]
    caller: dict[str, Any] | None = None
    server_name: str | None = None


class ServerToolResult(_Marked):
    tool_use_id: str
    content: Any
    caller: dict[str, Any] | None = None
    is_error: bool | None = None


class Compaction(_Marked):
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
    "text": Text, "image": Image, "document": Document, "search_result": SearchResult, "thinking": Thinking,
    "redacted_thinking": RedactedThinking, "tool_use": ToolUse, "tool_result": ToolResult, "compaction": Compaction,
    "container_upload": ContainerUpload, "tool_reference": ToolReference,
    **dict.fromkeys(SERVER_CALLS, ServerToolUse), **dict.fromkeys(SERVER_RESULTS, ServerToolResult),
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


def check_block(block: Any, place: str, path: str, rules: ModelRules) -> Iterator[Found]:
    """Findings about one block; `place` is the role of its message or the type of the block it is nested in."""
    if not isinstance(block, dict):
        yield Found("block_shape", path, "Input should be a valid dictionary or object to extract fields from")
        return
    kind = block.get("type")
    if not isinstance(kind, str):
        yield Found("block_shape", path, "Unable to extract tag using discriminator 'type'")
        return
    if kind not in _TYPES:
        if not rules.allow_unknown:
            yield Found("unknown_block", path, f"Input tag '{kind}' found using 'type' does not match any expected tag")
        return
    if kind not in _PLACES[place]:
        allowed = "assistant" if kind in _PLACES["assistant"] else "user"
        yield Found("wrong_place", path, f"`{kind}` blocks can only be in `{allowed}` messages")
        return
    problem = _field_problem(block, kind, path, rules)
    if problem is not None:
        yield problem
        return
    yield from _RULES.get(kind, _no_rule)(block, place, path, rules)
    yield from _nested(block, kind, path, rules)


def _field_problem(block: Mapping[str, Any], kind: str, path: str, rules: ModelRules) -> Found | None:
    """The first wrong field of a known block, in the wording of the real server (which puts the tag into the path)."""
    if kind in THINKING and "cache_control" in block:
        said = f"{kind}.cache_control: Extra inputs are not permitted"
        return Found("marker_on_thinking", path, said)
    shape = _TYPES[kind]
    if shape is None:
        return None
    extra = sorted(set(block) - set(shape.__struct_fields__) - {"type"})
    if extra and not rules.allow_unknown:
        return Found("unknown_field", path, f"{kind}.{extra[0]}: Extra inputs are not permitted")
    try:
        msgspec.convert(block, shape)
    except msgspec.ValidationError as error:
        return Found("block_fields", path, f"{kind}.{explain(str(error))}")
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


def _no_rule(block: Mapping[str, Any], place: str, path: str, rules: ModelRules) -> Iterator[Found]:
    return iter(())


def _text(block: Mapping[str, Any], place: str, path: str, rules: ModelRules) -> Iterator[Found]:
    if not block["text"]:
        if block.get("cache_control") is not None:
            said = "text.cache_control: cache_control cannot be set for empty text blocks"
            yield Found("marker_on_empty_text", path, said)
        yield Found("empty_text", path, "text content blocks must be non-empty")
    if block.get("citations") and place != "assistant":
        yield Found("user_citations", path, "text.citations: citations are not permitted outside assistant messages")


def _thinking(block: Mapping[str, Any], place: str, path: str, rules: ModelRules) -> Iterator[Found]:
    if not block["signature"]:
        yield Found("thinking_signature", path, "Invalid `signature` in `thinking` block")


def _redacted(block: Mapping[str, Any], place: str, path: str, rules: ModelRules) -> Iterator[Found]:
    if not block["data"]:
        yield Found("thinking_signature", path, "Invalid `data` in `redacted_thinking` block")


def _tool_use(block: Mapping[str, Any], place: str, path: str, rules: ModelRules) -> Iterator[Found]:
    if not re.fullmatch(rules.tool_id_pattern, block["id"]):
        yield Found("tool_id", path, f"tool_use.id: String should match pattern '^{rules.tool_id_pattern}$'")
    if not 1 <= len(block["name"]) <= 200:
        yield Found("tool_name", path, "tool_use.name: String should have between 1 and 200 characters")


def _tool_result(block: Mapping[str, Any], place: str, path: str, rules: ModelRules) -> Iterator[Found]:
    content = block.get("content")
    if block.get("is_error") and isinstance(content, list) and any(part.get("type") != "text" for part in content):
        yield Found("error_result", path, "tool_result: all content must be type `text` if `is_error` is true")


def _document(block: Mapping[str, Any], place: str, path: str, rules: ModelRules) -> Iterator[Found]:
    if place == "assistant":
        yield Found("assistant_document", path, "`document` blocks are not permitted directly in `assistant` messages")
    yield from media_findings(block, path, rules)


def _image(block: Mapping[str, Any], place: str, path: str, rules: ModelRules) -> Iterator[Found]:
    yield from media_findings(block, path, rules)


def _compaction(block: Mapping[str, Any], place: str, path: str, rules: ModelRules) -> Iterator[Found]:
    if block["content"] == "":
        yield Found("compaction_empty", path, "compaction.content: String should have at least 1 character")


_RULES = {
    "text": _text, "thinking": _thinking, "redacted_thinking": _redacted, "tool_use": _tool_use,
    "tool_result": _tool_result, "document": _document, "image": _image, "compaction": _compaction,
}  # fmt: skip


def _nested(block: Mapping[str, Any], kind: str, path: str, rules: ModelRules) -> Iterator[Found]:
    place, parts = nested_blocks(block, kind)
    for index, part in enumerate(parts):
        yield from check_block(part, kind, f"{path}.{place}.{index}", rules)


def nested_blocks(block: Mapping[str, Any], kind: str) -> tuple[str, list[Any]]:
    """The blocks inside a block, with the path to them."""
    if kind in ("tool_result", "search_result"):
        place, parts = "content", block.get("content")
    elif kind == "document" and isinstance(block.get("source"), dict):
        place, parts = "source.content", block["source"].get("content")
    else:
        return "", []
    return place, parts if isinstance(parts, list) else []
