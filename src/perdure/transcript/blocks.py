"""Content blocks: the bytes that came, a typed reading of them, and what of them can be sent (ENG-1, ENG-7).

A `Block` owns the exact JSON bytes of one content block. Its `value` is a reading, made on first use, and never the
source for encoding: whatever a provider, a tool or a newer version put into the block goes out again byte for byte.
Types that we know must have their shape (`MalformedBlock` otherwise), and the fields that every API checks; types
and fields that we don't know are kept.
"""

from __future__ import annotations

import binascii
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from perdure.errors import MalformedBlock, RecordRefused, nearest


class Text(msgspec.Struct, frozen=True):
    text: str


class Image(msgspec.Struct, frozen=True):
    source: dict[str, Any]


class Document(msgspec.Struct, frozen=True):
    source: dict[str, Any]
    title: str | None = None


class Thinking(msgspec.Struct, frozen=True):
    thinking: str
    signature: str = ""


class RedactedThinking(msgspec.Struct, frozen=True):
    data: str


class ToolUse(msgspec.Struct, frozen=True):
    """A call of a tool by the model: its `id`, the tool's `name`, and its `input`."""

    id: str
    name: str
    raw_input: msgspec.Raw = msgspec.field(name="input")

    def __repr__(self) -> str:
        return f"ToolUse(id={self.id!r}, name={self.name!r}, input={bytes(self.raw_input).decode('utf-8', 'replace')})"

    @property
    def input(self) -> dict[str, Any]:
        """The input as an object; {} when it isn't one (a model can send anything)."""
        try:
            value = msgspec.json.decode(self.raw_input)
        except msgspec.MsgspecError:  # valid JSON that no number type holds, such as 1e999
            return {}
        return value if isinstance(value, dict) else {}


class ToolResult(msgspec.Struct, frozen=True):
    """What a tool gave back to the call `tool_use_id`."""

    tool_use_id: str
    content: str | list[msgspec.Raw] | None = None
    is_error: bool | None = None

    def parts(self) -> tuple[Block, ...]:
        """Nested blocks; a string content is one text block, no content is none."""
        if self.content is None:
            return ()
        if isinstance(self.content, str):
            return (text_block(self.content),) if self.content else ()
        return tuple(Block(bytes(part)) for part in self.content)

    def text(self) -> str:
        """All text of the result, parts joined by newlines; media left out."""
        if self.content is None or isinstance(self.content, str):
            return self.content or ""
        return "\n".join(v.text for v in (part.value for part in self.parts()) if isinstance(v, Text))


class ServerToolUse(msgspec.Struct, frozen=True):
    """A call that the provider ran itself; it is answered inside the same assistant message."""

    id: str
    name: str
    raw_input: msgspec.Raw = msgspec.field(name="input")


class ServerToolResult(msgspec.Struct, frozen=True):
    tool_use_id: str
    content: msgspec.Raw = msgspec.Raw(b"null")


class CompactionBlock(msgspec.Struct, frozen=True):
    """A summary made by the provider itself; everything before it is ignored upstream."""

    content: str | None = None


class UnknownBlock(msgspec.Struct, frozen=True):
    """A block type we don't know; only its bytes matter."""


Value = (
    Text
    | Image
    | Document
    | Thinking
    | RedactedThinking
    | ToolUse
    | ToolResult
    | ServerToolUse
    | ServerToolResult
    | CompactionBlock
    | UnknownBlock
)

_SHAPES: dict[str, type[Value]] = {
    "text": Text,
    "image": Image,
    "document": Document,
    "thinking": Thinking,
    "redacted_thinking": RedactedThinking,
    "tool_use": ToolUse,
    "tool_result": ToolResult,
    "server_tool_use": ServerToolUse,
    "mcp_tool_use": ServerToolUse,
    "compaction": CompactionBlock,
}
_DECODERS: dict[str, msgspec.json.Decoder[Any]] = {kind: msgspec.json.Decoder(shape) for kind, shape in _SHAPES.items()}
_SERVER_RESULT = msgspec.json.Decoder(ServerToolResult)


class _Tag(msgspec.Struct):
    type: str


_TAG = msgspec.json.Decoder(_Tag)
_ENCODE = msgspec.json.Encoder().encode
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class Block:
    """One content block: `raw` bytes, `type`, and `value`, the typed reading.

    Two blocks are equal when their bytes are. Construction checks only that there is a type; `check()` or the first
    use of `value` raises `MalformedBlock` when a known type hasn't its shape.
    """

    __slots__ = ("_value", "raw", "type")

    raw: bytes
    type: str

    def __init__(self, raw: bytes) -> None:
        try:
            self.type = _TAG.decode(raw).type
        except _UNREADABLE as e:
            raise MalformedBlock("content", str(e)) from None
        self.raw = raw
        self._value: Value | None = None

    @property
    def value(self) -> Value:
        """The block by its type, such as a text or a tool use; a type that isn't known has no reading."""
        if self._value is None:
            self._value = self._read()
        return self._value

    def check(self) -> Block:
        """Raise `MalformedBlock` if a known type hasn't its shape; returns itself."""
        _ = self.value
        return self

    def _read(self) -> Value:
        decoder = _DECODERS.get(self.type)
        if decoder is None:
            if not self.type.endswith("_tool_result"):
                return UnknownBlock()
            decoder = _SERVER_RESULT
        try:
            value: Value = decoder.decode(self.raw)
        except _UNREADABLE as e:
            raise MalformedBlock(self.type, str(e)) from None
        return value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Block) and other.raw == self.raw

    def __hash__(self) -> int:
        return hash(self.raw)

    def __repr__(self) -> str:
        return f"Block({self.raw[:80]!r}{'…' if len(self.raw) > 80 else ''})"


def encode(value: Any) -> bytes:
    """Compact JSON of a plain value; the one way in which Perdure makes JSON of its own."""
    return _ENCODE(value)


def text_block(text: str) -> Block:
    """A text block with the given text."""
    return Block(_ENCODE({"type": "text", "text": text}))


def block_of(value: dict[str, Any]) -> Block:
    """A block from a plain object, encoded once; from then on its bytes are what counts."""
    return Block(_ENCODE(value))


def one_line(raw: bytes) -> bytes:
    """The same JSON without line breaks between tokens, so that it fits a line of the journal.

    Inside a JSON string a line break is always escaped, so every literal one is insignificant whitespace.
    """
    if b"\n" in raw or b"\r" in raw:
        return raw.replace(b"\n", b" ").replace(b"\r", b" ")
    return raw


TOOL_ID: Final = re.compile(r"[a-zA-Z0-9_-]+")
NAME_CHARACTERS: Final = 200  # of a tool
IMAGE_TYPES: Final = ("image/gif", "image/jpeg", "image/png", "image/webp")
_NOT_IN_IDS = re.compile(r"[^a-zA-Z0-9_-]")
SERVER_CALLS: Final = ("server_tool_use", "mcp_tool_use")
SERVER_RESULTS: Final = frozenset(
    f"{name}_tool_result"
    for name in (
        *("web_search", "web_fetch", "code_execution", "bash_code_execution", "text_editor_code_execution"),
        *("tool_search", "mcp", "advisor"),
    )
)
_ASSISTANT = frozenset(
    ("text", "tool_use", "thinking", "redacted_thinking", "server_tool_use", "mcp_tool_use", "compaction", "fallback")
) | {"mcp_tool_listing"}
_USER = frozenset(("text", "image", "document", "search_result", "tool_result", "container_upload"))
_IN_RESULT = frozenset(("text", "image", "search_result", "document", "tool_reference", "browser_state"))
_PLACES: Final[dict[str, frozenset[str]]] = {
    "user": _USER,
    "assistant": _ASSISTANT | SERVER_RESULTS,
    "tool_result": _IN_RESULT,
    "search_result": frozenset(("text",)),
    "document": frozenset(("text", "image")),
    "front": frozenset(("text",)),
}
OPENAI_PARTS: Final = ("file", "input_audio")  # come in that protocol's own words, and go out in them
BLOCK_TYPES: Final = frozenset().union(*_PLACES.values(), ("tool_addition", "tool_removal"))

Data = dict[str, Any]


class Unsendable(MalformedBlock):
    """A block that no API takes, though it has the shape of its type."""


def sendable_id(identity: str) -> str:
    """A call's id in the characters that every API takes; some servers make ids such as `functions.Bash:0`."""
    return _NOT_IN_IDS.sub("_", identity)


def check_sendable(block: Block, role: str) -> None:
    """Raise `MalformedBlock` when an API would refuse a block in a message of this role.

    A role that isn't sent (`system`) may hold anything that is JSON.
    """
    block.check()
    try:
        fields = msgspec.json.decode(block.raw)
    except (msgspec.MsgspecError, UnicodeDecodeError) as e:
        raise MalformedBlock(block.type, f"not JSON: {e}") from None
    except RecursionError:
        raise MalformedBlock(block.type, "nested too deeply to be read") from None
    if role in _PLACES:
        _check(fields, block.type, role)


def _check(fields: Data, kind: str, place: str) -> None:
    if kind not in BLOCK_TYPES:
        return
    if kind not in _PLACES[place]:
        raise Unsendable(kind, f"it can't stand in {_PLACE_NAMES.get(place, f'a {place} block')}")
    rule = _RULES.get(kind)
    if rule is not None:
        rule(fields, place)


def check_written(block: Block, role: str) -> None:
    """Raise `Unsendable` for a slip of the pen in a block that a program wrote, and not a provider or a log.

    In a message of the user every type has to be known; in one of the assistant none may look like a known one. A
    field may be unknown, since APIs grow, but not look like a known one: a provider would refuse it for good.
    """
    known = {"user": _USER.union(OPENAI_PARTS), "assistant": _PLACES["assistant"]}.get(role)
    if known is None:
        return
    if block.type not in known | BLOCK_TYPES:
        if hint := nearest(block.type, sorted(known), cutoff=0.6 if role == "user" else 0.85):
            raise Unsendable(block.type, f"there is no such type{hint}")
        if role == "user":
            raise Unsendable(block.type, f"there is no such type: write one of {', '.join(sorted(known))}")
    cutoff = _LIKE_ANOTHER if role == "user" else _MUCH_LIKE_ANOTHER
    if wrong := _misspelt_field(block.raw, block.type, cutoff):
        raise Unsendable(block.type, wrong)
    parts = block.value.content if isinstance(block.value, ToolResult) else None
    for number, part in enumerate(parts if isinstance(parts, list) else ()):
        kind = Block(bytes(part)).type
        if kind not in _IN_RESULT.union(OPENAI_PARTS):
            hint = nearest(kind, sorted(_IN_RESULT)) or f": write one of {', '.join(sorted(_IN_RESULT))}"
            raise Unsendable("tool_result", f"content[{number}]: there is no type {kind!r:.60} in a result{hint}")
        if wrong := _misspelt_field(bytes(part), kind, cutoff):
            raise Unsendable("tool_result", f"content[{number}]: {wrong}")


def _misspelt_field(raw: bytes, kind: str, cutoff: float) -> str:
    if kind not in FIELDS:
        return ""
    fields: dict[str, msgspec.Raw] = _RAW_FIELDS.decode(raw)
    if wrong := misspelt(fields, FIELDS[kind], cutoff=cutoff):
        return wrong
    marker = bytes(fields.get("cache_control", b""))
    if marker.startswith(b"{") and (wrong := misspelt(_RAW_FIELDS.decode(marker), _MARKER, cutoff=cutoff)):
        return f"cache_control: {wrong}"
    return ""


_LIKE_ANOTHER: Final = 0.75  # contents and content 0.93, error and is_error 0.77, tool_use_name and tool_use_id 0.75
_MUCH_LIKE_ANOTHER: Final = 0.85  # where providers have fields that we don't know: input_schema and output_schema 0.80


def misspelt(given: Iterable[object], known: Iterable[str], *, cutoff: float = _MUCH_LIKE_ANOTHER) -> str:
    """What to say of the first field that isn't known and looks like one that is; empty when there is none."""
    names = sorted(known)
    for field in given:
        if isinstance(field, str) and field not in names and (hint := nearest(field.lower(), names, cutoff=cutoff)):
            return f"there is no field {field!r:.60}{hint}"
    return ""


_RAW_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_MARKER: Final = ("type", "ttl", "scope")
_USE: Final = ("type", "id", "name", "input", "caller", "cache_control")
FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "text": ("type", "text", "citations", "cache_control"),
    "image": ("type", "source", "transformations", "cache_control"),
    "document": ("type", "source", "title", "context", "citations", "cache_control"),
    "search_result": ("type", "source", "title", "content", "citations", "cache_control"),
    "thinking": ("type", "thinking", "signature"),
    "redacted_thinking": ("type", "data"),
    "tool_use": (*_USE, "toolset_name"),
    "tool_result": ("type", "tool_use_id", "content", "is_error", "toolset_name", "cache_control"),
    "container_upload": ("type", "file_id", "cache_control"),
    "tool_reference": ("type", "tool_name", "cache_control"),
    "compaction": ("type", "content", "encrypted_content", "signature", "tool_changes", "cache_control"),
    **dict.fromkeys(SERVER_CALLS, (*_USE, "server_name")),
    **dict.fromkeys(SERVER_RESULTS, ("type", "tool_use_id", "content", "caller", "is_error", "cache_control")),
}
"""The fields of each known type. Others pass, unless a program wrote one that looks like one of these."""


_PLACE_NAMES = {
    "user": "a message of the user",
    "assistant": "a message of the assistant",
    "front": "the system prompt, which holds text alone",
}


def _nested(part: Any, place: str, at: str) -> None:
    if not isinstance(part, dict) or not isinstance(part.get("type"), str):
        raise Unsendable(place, f"{at} is no block with a type")
    try:
        Block(encode(part)).check()
        _check(part, part["type"], place)
    except MalformedBlock as e:
        raise Unsendable(place, f"{at}: {e}") from None


def _some(fields: Data, key: str, kind: str) -> str:
    value = fields.get(key)
    if not isinstance(value, str) or not value:
        raise Unsendable(kind, f"`{key}` is no text, or an empty one")
    return value


def _text(fields: Data, place: str) -> None:
    citations = fields.get("citations")
    if citations is not None and not (isinstance(citations, list) and all(isinstance(c, dict) for c in citations)):
        raise Unsendable("text", "`citations` is no list of objects")
    if citations and place != "assistant":
        raise Unsendable("text", "citations can only stand in what the assistant said")
    if not fields["text"] and place in ("search_result", "document", "front"):
        raise Unsendable("text", "`text` is empty")


def _tool_use(fields: Data, place: str) -> None:
    if not TOOL_ID.fullmatch(fields["id"]):
        raise Unsendable("tool_use", f"id {fields['id'][:80]!r} has other characters than a-z, A-Z, 0-9, _ and -")
    if not 1 <= len(fields["name"]) <= NAME_CHARACTERS:
        raise Unsendable("tool_use", f"`name` must have 1 to {NAME_CHARACTERS} characters")
    _server_use(fields, place)
    _optional(fields, "tool_use", toolset_name=str)


def _server_use(fields: Data, place: str) -> None:
    kind = fields["type"]
    if not isinstance(fields["input"], dict):
        raise Unsendable(kind, "`input` is no object")
    _optional(fields, kind, caller=dict, server_name=str)


def _server_result(fields: Data, place: str) -> None:
    if "content" not in fields:
        raise Unsendable(fields["type"], "without `content`")
    _optional(fields, fields["type"], caller=dict, is_error=bool)


def _optional(fields: Data, kind: str, **types: type) -> None:
    for key, wanted in types.items():
        value = fields.get(key)
        if value is not None and not isinstance(value, wanted):
            raise Unsendable(kind, f"`{key}` is no {wanted.__name__}")


def _tool_result(fields: Data, place: str) -> None:
    content = fields.get("content")
    _optional(fields, "tool_result", toolset_name=str)
    if not isinstance(content, list):
        return
    for index, part in enumerate(content):
        _nested(part, "tool_result", f"content[{index}]")
    if fields.get("is_error") and any(part["type"] != "text" for part in content):
        raise Unsendable("tool_result", "an error (`is_error`) can hold text alone")


def _image(fields: Data, place: str) -> None:
    _source(fields["source"], "image")


def _source(source: Data, kind: str) -> None:
    shape = source.get("type")
    wanted = _SOURCES.get(str(shape), ())
    if not wanted or (kind == "image" and shape in ("text", "content")):
        raise Unsendable(kind, f"`source.type` {str(shape)[:40]!r} isn't one that is known")
    for key in wanted:
        if not isinstance(source.get(key), str) and not (key == "content" and isinstance(source.get(key), list)):
            raise Unsendable(kind, f"`source.{key}` is missing, or no text")
    if over := sorted(set(source) - {"type", *wanted}):
        raise Unsendable(kind, f"`source` has a field too many: {over[0][:40]}")
    if shape == "base64":
        allowed = IMAGE_TYPES if kind == "image" else ("application/pdf",)
        if source["media_type"] not in allowed:
            raise Unsendable(kind, f"`source.media_type` is none of {', '.join(allowed)}")
        try:
            is_whole = bool(binascii.a2b_base64(source["data"], strict_mode=True))
        except (ValueError, binascii.Error):
            is_whole = False
        if not is_whole:
            raise Unsendable(kind, "`source.data` is no base64")
    elif shape == "text" and source["media_type"] != "text/plain":
        raise Unsendable(kind, "`source.media_type` of a text must be text/plain")


_SOURCES: Final = {
    "base64": ("media_type", "data"),
    "url": ("url",),
    "file": ("file_id",),
    "text": ("media_type", "data"),
    "content": ("content",),
}


def _document(fields: Data, place: str) -> None:
    _source(fields["source"], "document")
    _optional(fields, "document", title=str, context=str, citations=dict)
    parts = fields["source"].get("content")
    for index, part in enumerate(parts if isinstance(parts, list) else ()):
        _nested(part, "document", f"source.content[{index}]")


def _search_result(fields: Data, place: str) -> None:
    _some(fields, "source", "search_result")
    _some(fields, "title", "search_result")
    _optional(fields, "search_result", citations=dict)
    parts = fields.get("content")
    if not isinstance(parts, list):
        raise Unsendable("search_result", "`content` is no list of text blocks")
    for index, part in enumerate(parts):
        _nested(part, "search_result", f"content[{index}]")


def _redacted(fields: Data, place: str) -> None:
    _some(fields, "data", "redacted_thinking")


def _compaction(fields: Data, place: str) -> None:
    if fields.get("content", "") == "":
        raise Unsendable("compaction", "`content` is empty")
    _optional(fields, "compaction", encrypted_content=str, signature=str)


def _upload(fields: Data, place: str) -> None:
    _some(fields, "file_id", "container_upload")


def _reference(fields: Data, place: str) -> None:
    _some(fields, "tool_name", "tool_reference")


_RULES: Final[dict[str, Callable[[Data, str], None]]] = {
    "text": _text,
    "image": _image,
    "document": _document,
    "search_result": _search_result,
    "redacted_thinking": _redacted,
    "tool_use": _tool_use,
    "tool_result": _tool_result,
    "server_tool_use": _server_use,
    "mcp_tool_use": _server_use,
    "compaction": _compaction,
    "container_upload": _upload,
    "tool_reference": _reference,
    **dict.fromkeys(SERVER_RESULTS, _server_result),
}

# --- plain data -------------------------------------------------------------------------------------------------------


def raw_of(value: Any, what: str) -> bytes:
    """Plain data as JSON. Raises `RecordRefused` naming `what`, and the place in it, for what JSON can't hold."""
    try:
        wrong = not_json(value)
        if not wrong:
            return encode(value)
    except RecursionError:
        wrong = "nested too deeply to be written"
    raise RecordRefused(f"{what}: {wrong}")


def whole_characters(value: Any) -> Any:
    """Plain data without halves of surrogate pairs, which no encoding has: names of files may hold some."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {whole_characters(name): whole_characters(one) for name, one in value.items()}
    return [whole_characters(one) for one in value] if isinstance(value, list | tuple) else value


def not_json(value: Any, at: str = "") -> str:
    """What in some plain data JSON can't hold, and where; empty when all is well."""
    where = at or "it"
    if value is None or isinstance(value, bool | int | msgspec.Raw):
        return ""
    if isinstance(value, str):
        return "" if value.isascii() or not _HALF.search(value) else f"{where} holds half a surrogate pair; replace it"
    if isinstance(value, float):
        return "" if math.isfinite(value) else f"{where} is {value}, which JSON has no number for"
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if not isinstance(key, str):
                return f"{where} has a key that is no text: {key!r:.40}"
            if wrong := not_json(key, "a key") or not_json(inner, f"{at}.{key}" if at else key):
                return wrong
        return ""
    if isinstance(value, list | tuple):
        return next((wrong for i, inner in enumerate(value) if (wrong := not_json(inner, f"{at}[{i}]"))), "")
    if isinstance(value, msgspec.Struct):
        fields = {name: getattr(value, name) for name in value.__struct_fields__}
        return not_json(fields, at)
    return f"{where} is {type(value).__name__}, which JSON has no value for"


_HALF = re.compile("[\ud800-\udfff]")

# --- the front --------------------------------------------------------------------------------------------------------


def system_raws(given: Any) -> tuple[msgspec.Raw, ...]:
    """A system prompt as raw blocks, from a text or from texts and blocks. A blank text says nothing: left out."""
    if isinstance(given, str | Mapping | Block | msgspec.Raw):
        given = (given,)
    if not isinstance(given, Iterable) or isinstance(given, bytes | bytearray):
        raise RecordRefused(f"system must be a text, or a list of texts and blocks, not {_type(given)}")
    raws = []
    for number, one in enumerate(given):
        if isinstance(one, str):
            if not one.strip():
                continue
            one = {"type": "text", "text": one}
        raws.append(_raw(one, f"system[{number}]", "a text or a block"))
    return tuple(raws)


DYNAMIC_BOUNDARY: Final = "__SYSTEM_PROMPT_DYNAMIC_BOUNDARY__"  # the Claude Agent SDK's


def parted_system(given: Any) -> tuple[tuple[msgspec.Raw, ...], tuple[msgspec.Raw, ...] | None]:
    """Return the parts of a system prompt before and behind the marker line of its dynamic part, which the model isn't
    shown; None for the second where there is none."""
    raws = system_raws(given)
    for number, raw in enumerate(raws):
        if DYNAMIC_BOUNDARY.encode() not in bytes(raw) or not isinstance(said := Block(bytes(raw)).value, Text):
            continue
        if len(parts := _MARKER_LINE.split(said.text, maxsplit=1)) > 1:
            before, behind = system_raws(parts[0].rstrip()), system_raws(parts[1].lstrip())
            return (*raws[:number], *before), (*behind, *raws[number + 1 :])
    return raws, None


_MARKER_LINE = re.compile(rf"^[ \t]*{DYNAMIC_BOUNDARY}[ \t]*$", re.MULTILINE)


def tool_raws(given: Any) -> tuple[msgspec.Raw, ...]:
    """Tool definitions as raw objects: Anthropic's and OpenAI's, each as it came."""
    if not isinstance(given, Sequence) or isinstance(given, str | bytes | bytearray):
        raise RecordRefused(f"tools must be a list of definitions, not {_type(given)}")
    return tuple(_raw(one, f"tools[{number}]", "an object") for number, one in enumerate(given))


def unmarked(raw: bytes) -> bytes:
    """Return a block or a definition without its cache breakpoint, which wanders; all else keeps its bytes."""
    if b'"cache_control"' not in raw:
        return raw
    fields: dict[str, msgspec.Raw] = _RAW_FIELDS.decode(raw)
    return encode({name: value for name, value in fields.items() if name != "cache_control"})


def _raw(one: Any, at: str, wanted: str) -> msgspec.Raw:
    if isinstance(one, msgspec.Raw):
        return one
    if isinstance(one, Block):
        return msgspec.Raw(one.raw)
    if not isinstance(one, Mapping):
        raise RecordRefused(f"{at} must be {wanted}, not {_type(one)}")
    return msgspec.Raw(raw_of(one, at))


def _type(value: Any) -> str:
    return "nothing" if value is None else f"{type(value).__name__}"


def check_front(model: Any, system: Iterable[Any], tools: Iterable[Any], dynamic_from: Any) -> None:
    """Raise `RecordRefused` when no request could be made with this front (ENG-7)."""
    if model is not None and (not isinstance(model, str) or not model.strip()):
        raise RecordRefused(f"model must be the name of a model, not {model!r:.60}")
    system = tuple(system)
    for number, raw in enumerate(system):
        try:
            check_sendable(Block(bytes(raw)), "front")
        except MalformedBlock as e:
            raise RecordRefused(f"system[{number}]: {e}") from None
    names: set[str] = set()
    for number, raw in enumerate(tools):
        if wrong := tool_problem(bytes(raw), names):
            raise RecordRefused(f"tools[{number}]: {wrong}")
    if dynamic_from is not None and not (type(dynamic_from) is int and 0 <= dynamic_from <= len(system)):
        raise RecordRefused(f"dynamic_from must be 0 to {len(system)}, not {dynamic_from!r:.40}")


def check_front_written(system: Iterable[msgspec.Raw], tools: Iterable[msgspec.Raw]) -> None:
    """Raise `RecordRefused` for a slip of the pen in a system prompt or in tools that a program wrote."""
    for number, raw in enumerate(system):
        if wrong := _misspelt_field(bytes(raw), "text", _LIKE_ANOTHER):
            raise RecordRefused(f"system[{number}]: {wrong}")
    for number, raw in enumerate(tools):
        try:
            tool = msgspec.json.decode(raw)
        except _UNREADABLE:
            continue  # said by `check_front`
        if isinstance(tool, dict) and (wrong := _tool_slip(tool)):
            raise RecordRefused(f"tools[{number}]: {wrong}")


def _tool_slip(tool: Data) -> str:
    function, kind = tool.get("function", tool.get("custom")), tool.get("type")
    if isinstance(function, dict):
        known = (
            _FUNCTION if kind == "function" else (*_FUNCTION, *_TOOL)
        )  # one of Anthropic's with a slip looks the same
        wrong = misspelt(function, known)
        return f"{kind}: {wrong}" if wrong else misspelt(tool, ("type", "function", "custom", "cache_control"))
    if kind == "function" or (kind is None and "parameters" in tool and "input_schema" not in tool):
        return _UNWRAPPED
    if kind not in (None, "custom"):
        return ""  # a tool of the provider's own has fields of its own
    wrong = misspelt(tool, _TOOL)
    marker = tool.get("cache_control")
    if not wrong and isinstance(marker, dict) and (inner := misspelt(marker, _MARKER)):
        return f"cache_control: {inner}"
    return wrong


_FUNCTION: Final = ("name", "description", "parameters", "strict", "format")
_TOOL: Final = (
    *("type", "name", "description", "input_schema", "cache_control", "strict", "defer_loading"),
    *("input_examples", "output_schema", "allowed_callers", "eager_input_streaming"),
)
_UNWRAPPED: Final = (
    'OpenAI\'s tools say what they are: {"type": "function", "name": "…", "parameters": {…}}, or the same in '
    "`function`; Anthropic's have no type, and call their parameters input_schema"
)


def tool_problem(raw: bytes, names: set[str]) -> str:
    """What is wrong with a tool definition; empty when an API takes it. Its name joins `names`."""
    try:
        tool = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as e:
        return f"not JSON: {e}"
    if not isinstance(tool, dict):
        return "no object"
    function = tool.get("function", tool.get("custom"))
    is_openai = isinstance(function, dict)
    inner: Data = function if isinstance(function, dict) else tool
    name = inner.get("name")
    kind = tool.get("type")
    if kind is not None and not isinstance(kind, str):
        return "its type is no text"
    if not isinstance(name, str) or not name:
        return "it has no name" if kind in (None, "function", "custom") else ""  # servers' own are known by their type
    if name in names:
        return f"another tool is called {name[:80]!r} already"
    names.add(name)
    schema = inner.get("parameters" if is_openai else "input_schema")
    if is_openai:
        return "" if schema is None or _is_schema(schema) else _SCHEMA.format("parameters")
    return "" if kind not in (None, "custom") or _is_schema(schema) else _SCHEMA.format("input_schema")


_SCHEMA = '{} is missing, or no JSON schema of an object: give {{"type": "object", "properties": {{…}}}}'


def _is_schema(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("type") == "object"


def anthropic_tool(raw: bytes) -> bytes:
    """A tool definition in Anthropic's words; OpenAI's in the same shape, any other as it came."""
    if b'"function"' not in raw and b'"custom"' not in raw:
        return raw
    tool = msgspec.json.decode(raw)
    function = tool.get("function", tool.get("custom"))
    if not isinstance(function, dict):
        return raw
    shaped = {"name": function.get("name", "unnamed"), "description": function.get("description") or ""}
    schema = _TEXT_INPUT if tool.get("type") == "custom" else {"type": "object", "properties": {}}
    return encode({**shaped, "input_schema": function.get("parameters") or schema})


_TEXT_INPUT: Final = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
"""Of a custom tool, which is called with a text: its calls hold it as `input`, in every protocol."""
