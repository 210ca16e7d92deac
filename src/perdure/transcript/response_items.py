"""Items of the Responses API as messages of a conversation, and back (GW-6, ADR 0045).

A message is one item, with the reasoning that stands in front of it, since a server wants both or none. Text, images,
calls and their results become the blocks that they are in every other wire, so that the view can shrink them; all
that such a block doesn't say stands beside it as it came, in `response_item` (of the item) and `response_part` (of the
part of its content). Whatever else there is, such as reasoning and what the provider's own tools did, is kept whole, as
a block of the type `response_item`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from perdure.errors import MalformedBlock
from perdure.transcript.blocks import Block, Document, Image, Text, ToolResult, ToolUse, encode, sendable_id
from perdure.transcript.messages import Message, Origin, Role, call_id_as_said
from perdure.transcript.plain import image_of
from perdure.transcript.records import Front

KEPT_ITEM: Final = "response_item"
KEPT_PART: Final = "response_part"
REASONING: Final = "reasoning"
# What a call says it is to do, by the type of the call. The first two have a name of their own.
_CALLS: Final = {
    "function_call": "arguments",
    "custom_tool_call": "input",
    "local_shell_call": "action",
    "shell_call": "action",
    "apply_patch_call": "operation",
    "computer_call": "action",
}
_RESULTS: Final = frozenset(f"{kind}_output" for kind in _CALLS)
_SYSTEM: Final = ("developer", "system")
_CARRIER: Final = "additional_tools"  # an item that carries tools to the model
_OTHERS_OF_SYSTEM: Final = (_CARRIER, "configuration_update")
DEFAULT_NAMESPACE: Final = "functions"  # its tools are called by their bare names, like those of none
_OTHER_ITEMS: Final = (  # those that are no calls and no results; one by reference alone can't be sent again
    *(REASONING, "program", "program_output", "tool_search_output", *_OTHERS_OF_SYSTEM),
    *("mcp_list_tools", "mcp_approval_request", "mcp_approval_response"),
)
_OWN_PARTS: Final = ("input_", "output_", "refusal")
_TEXTS: Final = ("input_text", "output_text", "text")
_NO_SCREEN: Final = (  # a screen of one pixel, where a screenshot left the view
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5Erk"
    "Jggg=="
)

Fields = dict[str, msgspec.Raw]
_FIELDS: Final = msgspec.json.Decoder(Fields)
_LIST: Final = msgspec.json.Decoder(list[msgspec.Raw])
_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class _ItemTag(msgspec.Struct):
    type: str | None = None
    role: str = ""


_TAG: Final = msgspec.json.Decoder(_ItemTag)


def _decoded(raw: msgspec.Raw | None) -> Any:
    return None if raw is None else msgspec.json.decode(raw)


# --- items as messages ------------------------------------------------------------------------------------------------


def item_kind(raw: bytes | msgspec.Raw) -> tuple[str, str]:
    """The type of an item and, of a message, its role. Raises `MalformedBlock`."""
    try:
        tag = _TAG.decode(raw)
    except _UNREADABLE as e:
        raise MalformedBlock("item", str(e)) from None
    return tag.type or ("message" if tag.role else "item_reference"), tag.role


def is_item(given: Mapping[str, Any]) -> bool:
    """Whether plain data is an item of the Responses API, and nothing that another API has."""
    kind, content = given.get("type"), given.get("content")
    if "role" in given:
        parts = content if isinstance(content, list) else []
        return any(isinstance(part, dict) and str(part.get("type")).startswith(_OWN_PARTS) for part in parts)
    return isinstance(kind, str) and (kind in _OTHER_ITEMS or kind.endswith(("_call", "_call_output")))


def is_of_front(kind: str, role: str) -> bool:
    """Whether an item tells the model how to behave; those that begin a history belong to the front."""
    return (kind == "message" and role in _SYSTEM) or kind in _OTHERS_OF_SYSTEM


def is_of_model(kind: str, role: str) -> bool:
    """Whether an item is one of an answer's."""
    return _speaker(kind, role)[0] == "assistant"


def _speaker(kind: str, role: str) -> tuple[Role, Origin]:
    if is_of_front(kind, role):
        return "user", "system"
    if kind == "message":
        if role not in ("user", "assistant"):
            raise MalformedBlock("message", f"there is no role {role!r:.40}")
        return ("assistant", "model") if role == "assistant" else ("user", "user")
    if kind in _RESULTS or kind.endswith(("_output", "_response")):
        return "user", "tool"
    return "assistant", "model"


def message_of_items(raws: Sequence[bytes | msgspec.Raw]) -> Message:
    """The message of an item and of the reasoning in front of it. Raises `MalformedBlock`."""
    role, origin = _speaker(*item_kind(raws[-1]))
    try:
        blocks = [_kept(raw) for raw in raws[:-1]] + _blocks(raws[-1])
    except (*_UNREADABLE, KeyError, TypeError, AttributeError) as e:
        raise MalformedBlock("item", f"it can't be read: {type(e).__name__}") from None
    return Message.of(role, blocks, origin=origin).check()


def answer_messages(blocks: Iterable[Block]) -> list[tuple[Role, tuple[Block, ...]]]:
    """The blocks of an answer as the messages that a client will say it in, one for each item."""
    messages: list[tuple[Role, list[Block]]] = []
    is_open = False  # the last message waits for more: it is reasoning only, or the beginning of a text
    for block in blocks:
        kind = _kept_kind(block)
        is_text = block.type not in ("tool_use", "tool_result", KEPT_ITEM)
        role: Role = _speaker(kind, "")[0] if kind else "user" if block.type == "tool_result" else "assistant"
        goes_on = is_text and is_open and messages[-1][1][-1].type != KEPT_ITEM and KEPT_ITEM not in _fields(block)
        follows = is_open and role == "assistant" and messages[-1][1][-1].type == KEPT_ITEM
        if goes_on or follows:
            messages[-1][1].append(block)
        else:
            messages.append((role, [block]))
        is_open = is_text or kind == REASONING
    return [(role, tuple(found)) for role, found in messages]


def _kept_kind(block: Block) -> str:
    """The type of an item that is kept whole; empty for any other block."""
    return item_kind(_fields(block)["item"])[0] if block.type == KEPT_ITEM else ""


def _fields(block: Block) -> Fields:
    return _FIELDS.decode(block.raw)


def _kept(raw: bytes | msgspec.Raw) -> Block:
    return Block(encode({"type": KEPT_ITEM, "item": msgspec.Raw(bytes(raw))}))


def _blocks(raw: bytes | msgspec.Raw) -> list[Block]:
    kind, role = item_kind(raw)
    item = _FIELDS.decode(raw)
    if kind == "message":
        return _said(item, role)
    if kind in _CALLS:
        return [_call(kind, item)]
    if kind in _RESULTS:
        return [_result(kind, item)]
    return [_kept(raw)]


def _said(item: Fields, role: str) -> list[Block]:
    """A message. What its template holds of `type` and `content` tells where it was said in shorter words."""
    rest: dict[str, Any] = {name: value for name, value in item.items() if name not in ("type", "role", "content")}
    if "type" not in item:
        rest["type"] = None
    if role in _SYSTEM:
        rest["role"] = role
    content = item["content"]
    if bytes(content)[:1] == b'"':
        parts: list[dict[str, Any]] = [{"type": "text", "text": _decoded(content)}]
        rest["content"] = ""
    else:
        parts = [_part(part, role) for part in _LIST.decode(content)]
        if not parts:
            parts, rest["content"] = [{"type": "text", "text": ""}], []
    if rest:
        parts[0][KEPT_ITEM] = rest
    return [Block(encode(part)) for part in parts]


def _part(raw: msgspec.Raw, role: str) -> dict[str, Any]:
    """A part of a message or of a result as a block."""
    part = _FIELDS.decode(raw)
    kind = _decoded(part.get("type"))
    block: dict[str, Any] | None = None
    told = {"type"}
    if kind in _TEXTS or kind == "refusal":
        said = "refusal" if kind == "refusal" else "text"
        told.add(said)
        block = {"type": "text", "text": str(_decoded(part[said]))}
    elif kind in ("input_image", "computer_screenshot") and isinstance(url := _decoded(part.get("image_url")), str):
        told.add("image_url")
        block = _image(url)
    if block is None:
        return {"type": KEPT_PART, "part": msgspec.Raw(bytes(raw))}
    rest: dict[str, Any] = {name: value for name, value in part.items() if name not in told}
    if kind != _usual_part(block["type"], role):
        rest["type"] = kind
    return {**block, KEPT_PART: rest} if rest else block


def _image(url: str) -> dict[str, Any] | None:
    """An image; None for one that can't be said in another wire, or not in the same words again."""
    try:
        block = image_of(url).check()
        fields: dict[str, Any] = msgspec.json.decode(block.raw)
        Message.of("user", [block]).check()
    except MalformedBlock:
        return None
    return fields if _url(fields["source"]) == url else None


def _usual_part(block: str, role: str) -> str:
    return "input_image" if block == "image" else "output_text" if role == "assistant" else "input_text"


def _call(kind: str, item: Fields) -> Block:
    field = _CALLS[kind]
    named = _decoded(item["call_id"])
    name = _decoded(item["name"]) if "name" in item else kind.removesuffix("_call")
    rest: dict[str, Any] = {k: v for k, v in item.items() if k not in ("type", "call_id", "name", field)}
    if kind != "function_call":
        rest["type"] = kind
    if kind == "function_call":
        arguments, is_exact = _arguments(str(_decoded(item[field])))
        if not is_exact:
            rest[field] = item[field]
    elif kind == "custom_tool_call":
        arguments = {"input": _decoded(item[field])}
    else:
        arguments = msgspec.Raw(bytes(item[field])) if field in item else {}
    if sendable_id(named) != named:
        rest["call_id"] = named
    use = {"type": "tool_use", "id": sendable_id(named), "name": name, "input": arguments}
    return Block(encode({**use, KEPT_ITEM: rest} if rest else use))


def _arguments(text: str) -> tuple[msgspec.Raw | dict[str, str], bool]:
    """Arguments as an object, or as text under `_raw`; and whether the same text can be made of it again."""
    try:
        value = msgspec.json.decode(text)
    except _UNREADABLE:
        return {"_raw": text}, True
    if not isinstance(value, dict) or "_raw" in value:
        return {"_raw": text}, True
    return msgspec.Raw(text.encode()), not ("\n" in text or "\r" in text)  # the lines of a journal hold none


def _result(kind: str, item: Fields) -> Block:
    named = _decoded(item.get("call_id")) or _decoded(item["id"])
    rest: dict[str, Any] = {k: v for k, v in item.items() if k not in ("type", "call_id", "output")}
    if kind != "function_call_output":
        rest["type"] = kind
    if not _decoded(item.get("call_id")):
        rest["call_id"] = None
    elif sendable_id(named) != named:
        rest["call_id"] = named
    result: dict[str, Any] = {"type": "tool_result", "tool_use_id": sendable_id(named)}
    output = item.get("output")
    if output is not None and (content := _content(kind, output)) is not None:
        result["content"] = content
    elif output is not None:
        rest["output"] = output
    return Block(encode({**result, KEPT_ITEM: rest} if rest else result))


def _content(kind: str, output: msgspec.Raw) -> Any:
    """What a call gave back, as a result has it; None for what no wire knows."""
    first = bytes(output)[:1]
    if first == b'"':
        return _decoded(output)
    if kind == "computer_call_output":
        return [_part(output, "")]
    if first != b"[":
        return None
    parts = _LIST.decode(output)
    return [_stdout(part) if kind == "shell_call_output" else _part(part, "") for part in parts]


def _stdout(raw: msgspec.Raw) -> dict[str, Any]:
    part = _FIELDS.decode(raw)
    return {
        "type": "text",
        "text": _decoded(part["stdout"]),
        KEPT_PART: {k: v for k, v in part.items() if k != "stdout"},
    }


# --- messages as items ------------------------------------------------------------------------------------------------


def items_of(role: str, raws: Iterable[bytes], calls: Mapping[str, str] | None = None) -> Iterator[bytes]:
    """The items of a message, from its blocks. `calls` has types of calls by id, for results that don't tell it."""
    said: list[Any] = []
    rest: Mapping[str, Any] = {}
    for raw in raws:
        block = Block(raw)
        kind = block.type
        fields = _FIELDS.decode(raw)
        own = _FIELDS.decode(fields[KEPT_ITEM]) if KEPT_ITEM in fields else None
        if said and (own is not None or kind in (KEPT_ITEM, "tool_use", "tool_result")):
            yield _message_item(role, said, rest)
            said, rest = [], {}
        if kind == KEPT_ITEM:
            yield bytes(fields["item"])
        elif isinstance(block.value, ToolUse):
            yield _call_item(block.value, own or {})
        elif isinstance(block.value, ToolResult):
            yield _result_item(block.value, own or {}, (calls or {}).get(block.value.tool_use_id, "function_call"))
        elif part := _written_part(block, fields, role):
            rest = own or rest
            said.append(part)
    if said:
        yield _message_item(role, said, rest)


def named_items(message: Message) -> dict[str, bytes]:
    """The items of a message by the ids that their server gave them."""
    if not any(b'"response_item"' in bytes(raw) for raw in message.content):
        return {}
    items = ((item, _FIELDS.decode(item).get("id")) for item in items_of(message.role, map(bytes, message.content)))
    return {str(_decoded(identity)): item for item, identity in items if identity is not None}


def without_open_reasoning(items: Sequence[bytes], *, is_stored: bool) -> list[bytes]:
    """The items of an answer as a server takes them: reasoning only in front of the item that it came with.

    Where the server stores nothing, reasoning without its encrypted content is nothing to it; what followed it goes
    without its id then, by which the server would miss it.
    """
    kept: list[bytes] = []
    waiting: list[bytes] = []
    is_lost = False
    for item in items:
        if item_kind(item)[0] == REASONING:
            if is_stored or _decoded(_FIELDS.decode(item).get("encrypted_content")):
                waiting.append(item)
            else:
                is_lost = True
            continue
        if is_lost:
            item = encode({name: value for name, value in _FIELDS.decode(item).items() if name != "id"})
        kept += [*waiting, item]
        waiting, is_lost = [], False
    return kept


def _message_item(role: str, parts: list[Any], rest: Mapping[str, Any]) -> bytes:
    content: Any = parts
    if "content" in rest:
        only = parts[0].get("text") if len(parts) == 1 else None
        is_string = bytes(rest["content"]) == b'""'
        content = only if is_string and only is not None else [] if not is_string and only == "" else parts
    shown = {name: value for name, value in rest.items() if name not in ("type", "content")}
    kind = {} if "type" in rest else {"type": "message"}
    return encode({**kind, "role": role, **shown, "content": content})


def _written_part(block: Block, fields: Fields, role: str) -> dict[str, Any] | msgspec.Raw | None:
    """A block as a part of a message or of a result; None for one that only another wire has words for."""
    if block.type == KEPT_PART:
        return fields["part"]
    rest: dict[str, Any] = _FIELDS.decode(fields[KEPT_PART]) if KEPT_PART in fields else {}
    value = block.value
    kind = _decoded(rest.pop("type", None)) or _usual_part(block.type, role)
    if isinstance(value, Text):
        return {"type": kind, "refusal" if kind == "refusal" else "text": value.text, **rest}
    if isinstance(value, Image):
        return {"type": kind, "image_url": _url(value.source), **rest}
    if role == "assistant":
        return None
    if isinstance(value, Document):
        if value.source.get("type") == "text":
            return {"type": "input_text", "text": str(value.source.get("data", ""))}
        data = f"data:{value.source.get('media_type', 'application/pdf')};base64,{value.source.get('data', '')}"
        return {"type": "input_file", "filename": value.title or "document.pdf", "file_data": data}
    return {"type": "input_text", "text": block.raw.decode("utf-8", "replace")}


def _url(source: Mapping[str, Any]) -> str:
    return str(source.get("url") or f"data:{source.get('media_type', 'image/png')};base64,{source.get('data', '')}")


def _call_item(use: ToolUse, rest: Fields) -> bytes:
    kind = _decoded(rest.get("type")) or "function_call"
    field = _CALLS[kind]
    shown: dict[str, Any] = {name: value for name, value in rest.items() if name not in ("type", "call_id", field)}
    item: dict[str, Any] = {"type": kind, "call_id": _call_id(use.id, rest)}
    if kind in ("function_call", "custom_tool_call"):
        item["name"] = use.name
    if kind == "function_call":
        item[field] = _arguments_text(use, rest.get(field))
    elif kind == "custom_tool_call":
        item[field] = use.input.get("input", "")
    elif bytes(use.raw_input) != b"{}":
        item[field] = use.raw_input
    return encode({**item, **shown})


def _arguments_text(use: ToolUse, kept: msgspec.Raw | None) -> str:
    if kept is not None and msgspec.json.decode(text := _decoded(kept)) == use.input:
        return str(text)
    arguments = use.input
    if set(arguments) == {"_raw"}:
        return str(arguments["_raw"])
    return bytes(use.raw_input).decode("utf-8", "replace")


def _call_id(identity: str, rest: Fields) -> str:
    """The id of a call as it came, unless another call had it already."""
    named = _decoded(rest.get("call_id"))
    return named if isinstance(named, str) and call_id_as_said(identity) == identity else identity


def call_kinds(raws: Iterable[bytes]) -> dict[str, str]:
    """The types of the calls among some blocks, by their ids."""
    calls = (block for block in map(Block, raws) if block.type == "tool_use")
    own = ((block, _FIELDS.decode(_fields(block).get(KEPT_ITEM, b"{}"))) for block in calls)
    return {getattr(block.value, "id", ""): _decoded(rest.get("type")) or "function_call" for block, rest in own}


def is_custom_call(raw: bytes) -> bool:
    """Whether a block calls a custom tool, which takes a text."""
    return "custom_tool_call" in call_kinds([raw]).values()


def _result_item(result: ToolResult, rest: Fields, call: str) -> bytes:
    kind = _decoded(rest.get("type")) or f"{call}_output"
    item: dict[str, Any] = {"type": kind}
    if not rest and call == "local_shell_call":
        item["id"] = result.tool_use_id
    elif "call_id" not in rest or _decoded(rest["call_id"]) is not None:
        item["call_id"] = _call_id(result.tool_use_id, rest)
    if not rest and call == "apply_patch_call":
        item["status"] = "failed"
    item |= {name: value for name, value in rest.items() if name not in ("type", "call_id")}
    if result.content is not None:
        item["output"] = _output(kind, result)
    return encode(item)


def _output(kind: str, result: ToolResult) -> Any:
    text = f"[error] {result.text()}" if result.is_error else None
    parts = result.parts() if text is None else ()
    if kind == "computer_call_output":
        shown = [part for block in parts if (part := _written_part(block, _fields(block), ""))]
        is_shown = len(shown) == 1 and parts[0].type != "text"
        return shown[0] if is_shown else {"type": "computer_screenshot", "image_url": _NO_SCREEN}
    if kind == "shell_call_output":
        return [_shell_output(block) for block in parts] if text is None else [_shell_said(text)]
    if text is not None or isinstance(result.content, str):
        return text if text is not None else result.content
    return [part for block in parts if (part := _written_part(block, _fields(block), ""))]


def _shell_output(block: Block) -> dict[str, Any]:
    fields = _fields(block)
    text = block.value.text if isinstance(block.value, Text) else ""
    return {"stdout": text, **_FIELDS.decode(fields[KEPT_PART])} if KEPT_PART in fields else _shell_said(text)


def _shell_said(text: str) -> dict[str, Any]:
    return {"stdout": text, "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}


def items_in_front(front: Front) -> tuple[msgspec.Raw, ...]:
    """What of a system prompt came as items, which a request that continues an answer doesn't say again."""
    return tuple(raw for raw in front.system if KEPT_ITEM in _FIELDS.decode(raw))


# --- tools ------------------------------------------------------------------------------------------------------------


def tool_of_response(raw: bytes) -> msgspec.Raw:
    """A tool definition as Chat Completions has it, which the front knows; the provider's own tools as they came."""
    tool = _FIELDS.decode(raw)
    kind = _decoded(tool.get("type"))
    if kind not in ("function", "custom") or kind in tool:
        return msgspec.Raw(raw)
    return msgspec.Raw(encode({"type": kind, kind: {name: value for name, value in tool.items() if name != "type"}}))


def response_tool(raw: bytes) -> bytes | None:
    """A tool definition of the front in the words of this wire; None for tools that only Anthropic's servers run."""
    tool = _FIELDS.decode(raw)
    kind = _decoded(tool.get("type"))
    if kind in ("function", "custom") and kind in tool:
        return encode({"type": kind, **_FIELDS.decode(tool[kind])})
    if "input_schema" in tool:
        known = {"type": "function", "name": tool["name"], "parameters": tool["input_schema"]}
        return encode({**known, **({"description": tool["description"]} if "description" in tool else {})})
    return raw


def front_tools(front: Front) -> list[bytes]:
    """Return every tool definition of a front: in `tools`, in items that carry tools, in namespaces."""
    carried = (raw for item in items_in_front(front) for raw in _carried(_FIELDS.decode(item)[KEPT_ITEM]))
    return [one for raw in (*carried, *front.tools) for one in _in_namespace(bytes(raw))]


def carries_tools(block: bytes | msgspec.Raw) -> bool:
    """Whether a block of a system prompt is an item that carries tools."""
    return KEPT_ITEM in (fields := _FIELDS.decode(block)) and bool(_carried(fields[KEPT_ITEM]))


def _carried(item: bytes | msgspec.Raw) -> list[msgspec.Raw]:
    if _CARRIER.encode() not in bytes(item):
        return []
    fields = _FIELDS.decode(item)
    return _LIST.decode(fields["tools"]) if "tools" in fields and _decoded(fields.get("type")) == _CARRIER else []


def _in_namespace(tool: bytes) -> list[bytes]:
    """The tools of a namespace; any other tool alone."""
    fields = _FIELDS.decode(tool)
    is_one = _decoded(fields.get("type")) == "namespace" and "tools" in fields
    return [bytes(raw) for raw in _LIST.decode(fields["tools"])] if is_one else [tool]


def with_carried(items: Sequence[bytes], tool: bytes) -> list[bytes]:
    """Add a tool to the last of some items that carries tools: among those of no namespace or of the default one."""
    at = next((n for n in range(len(items) - 1, -1, -1) if _carried(items[n])), None)
    if at is None:
        return list(items)
    tools = _carried(items[at])
    default = next((n for n, one in enumerate(tools) if _is_default(one)), None)
    if default is None:
        tools.append(msgspec.Raw(tool))
    else:
        space = _FIELDS.decode(tools[default])
        space["tools"] = msgspec.Raw(encode([*_LIST.decode(space["tools"]), msgspec.Raw(tool)]))
        tools[default] = msgspec.Raw(encode(space))
    changed = encode({**_FIELDS.decode(items[at]), "tools": tools})
    return [*items[:at], changed, *items[at + 1 :]]


def _is_default(tool: msgspec.Raw) -> bool:
    fields = _FIELDS.decode(tool)
    is_named = _decoded(fields.get("name")) == DEFAULT_NAMESPACE and "tools" in fields
    return is_named and _decoded(fields.get("type")) == "namespace"


def without_carried(item: bytes, tool: bytes) -> bytes:
    """Remove a tool that `with_carried` added, from an item that may carry it."""
    for piece in (b"," + tool, tool):
        if piece in item:
            return item.replace(piece, b"", 1)
    return item


def namespace_of(block: Block) -> str:
    """Return the namespace that a call names for its tool; empty where it names none, and in any other block."""
    if b'"namespace"' not in block.raw or not isinstance(block.value, ToolUse):
        return ""
    named = _decoded(_FIELDS.decode(_fields(block).get(KEPT_ITEM, msgspec.Raw(b"{}"))).get("namespace"))
    return named if isinstance(named, str) else ""


# --- for other wires --------------------------------------------------------------------------------------------------

ITEM_MARK: Final = b'"response_'  # stands in every block that needs it


def in_plain_words(raw: bytes) -> bytes | None:
    """A block as any wire takes it, without what only this one knows; None for one that says nothing there."""
    if ITEM_MARK not in raw:
        return raw
    fields = _FIELDS.decode(raw)
    kind = _decoded(fields["type"])
    if kind == KEPT_ITEM:
        item, _ = item_kind(fields["item"])
        return None if item == REASONING else encode({"type": "text", "text": f"[{item}]"})
    if kind == KEPT_PART:
        part = _decoded(_FIELDS.decode(fields["part"]).get("type"))
        return encode({"type": "text", "text": f"[{part}]"})
    shown: dict[str, Any] = {name: value for name, value in fields.items() if name not in (KEPT_ITEM, KEPT_PART)}
    content = bytes(fields.get("content", b""))
    if kind == "tool_result" and ITEM_MARK in content and content[:1] == b"[":
        plain = (in_plain_words(bytes(part)) for part in _LIST.decode(content))
        shown["content"] = [msgspec.Raw(part) for part in plain if part is not None]
    elif len(shown) == len(fields):
        return raw
    return encode(shown)
