"""Requests: groups as the body of a call of Messages, of Chat Completions or of Responses (TURN-9)."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Any

import msgspec

from perdure.context.groups import MessageGroup, WireBlock, flatten, joined_groups
from perdure.context.models import CacheTtl
from perdure.context.passes import frontiers
from perdure.context.policy import Facts
from perdure.context.reminders import as_reminder
from perdure.context.replies import WireProtocol
from perdure.context.view import ContextView, advance
from perdure.transcript.blocks import (
    BLOCK_TYPES,
    OPENAI_PARTS,
    Block,
    Document,
    Image,
    Text,
    ToolResult,
    ToolUse,
    UnknownBlock,
    anthropic_tool,
    encode,
    text_block,
    unmarked,
)
from perdure.transcript.messages import Message, ToolUseId, WireFields, call_id_as_said
from perdure.transcript.records import Front
from perdure.transcript.response_items import (
    ITEM_MARK,
    KEPT_ITEM,
    call_kinds,
    in_plain_words,
    is_custom_call,
    items_of,
    response_tool,
    without_open_reasoning,
)

NO_TEXT = "(no text)"
_NOTHING_SAID = WireBlock(text_block(NO_TEXT).raw, "text")
INNER = ("function", "image_url")  # objects inside of parts, to whose fields a client may add


def _block_for_others(raw: bytes) -> bytes | None:
    """A block as wires other than the Responses API take it; None for one that says nothing there."""
    return in_plain_words(raw) if ITEM_MARK in raw else raw


def _plain_parts(parts: Iterable[WireBlock]) -> list[WireBlock]:
    """Parts without what only the Responses API knows of them; those that say nothing without it are left out."""
    plain = ((part, _block_for_others(part.raw)) for part in parts)
    return [part if raw is part.raw else part._replace(raw=raw, kind=Block(raw).type) for part, raw in plain if raw]


def openai_body(
    head: dict[str, Any],
    front: Front,
    groups: list[MessageGroup],
    *,
    stream: bool,
    lead: Sequence[msgspec.Raw] | None = None,
) -> bytes:
    """The request body; each group is encoded once. `lead` stands in the place of the front's system messages; then its
    tools are a client's own, too, and go as they came."""
    if stream:
        head = {**head, "stream": True, "stream_options": {"include_usage": True}}
    pieces = [encode(head)[:-1]]
    own = (_tool(msgspec.json.decode(raw)) for raw in front.tools)
    tools = [tool for tool in own if tool] if lead is None else list(front.tools)
    if tools:
        pieces.append(b',"tools":' + encode(tools))
    messages = [bytes(raw) for raw in lead or ()]
    system = "\n\n".join(text for raw in front.system if (text := _system_text(bytes(raw))))
    if system and lead is None:
        messages.append(encode({"role": "system", "content": system}))
    before: MessageGroup | None = None
    for group in groups:
        messages.append(_chat_messages(group, before, is_clients=lead is not None))
        before = group
    pieces.append(b',"messages":[' + b",".join(messages) + b"]}")
    return b"".join(pieces)


def _chat_messages(group: MessageGroup, before: MessageGroup | None, *, is_clients: bool = True) -> bytes:
    """The messages of a group; the one before it says by which ids its results are known.

    `is_clients`: a client's history knows none of our reminders, and its server may want the model to speak right
    behind results, so what only we say there stands in the last of these.
    """
    key = "openai, a client's" if is_clients else "openai"
    done = group.encoded.get(key)
    if done is None:
        is_joined = is_clients and group.results and group.blocks and all(part.is_ours for part in group.blocks)
        if not is_joined:
            messages = _messages(group, before)
        else:
            alone = replace(group, blocks=[], encoded={})
            messages, texts = _messages(alone, before), [Block(part.raw).value for part in group.blocks]
            _say_behind(messages[-1], [value.text for value in texts if isinstance(value, Text)])
        done = group.encoded[key] = b",".join(map(encode, messages))
    return done


def _say_behind(message: dict[str, Any], texts: list[str]) -> None:
    """Add texts to what a message says."""
    content = message["content"]
    if isinstance(content, str):
        message["content"] = "\n\n".join((content, *texts) if content else texts)
    else:
        message["content"] = [*content, *({"type": "text", "text": text} for text in texts)]


def messages_alone(messages: Sequence[Message], protocol: WireProtocol, *, is_stored: bool) -> bytes:
    """Messages, the first of them an answer of the model, as they stand in the request of a view that holds them.

    `is_stored`: the server keeps its answers, so items of the Responses API that it knows are enough (GW-6).
    """
    view = ContextView()
    for message in messages:
        advance(view, message)
    groups = flatten(view)  # a request begins with the user, who says nothing here
    if protocol == "anthropic":
        return b",".join(map(_plain, groups[1:]))
    if protocol == "responses":
        return b",".join(item for before, group in pairwise(groups) for item in _items(group, before, is_stored))
    return b",".join(_chat_messages(group, before) for before, group in pairwise(groups))


def group_data(
    role: str, parts: Sequence[WireBlock], before: MessageGroup | None, protocol: WireProtocol
) -> list[dict[str, Any]]:
    """Some blocks of a group, which follow the group `before`, as plain data: the messages or items that say them."""
    results = {ToolUseId(v.tool_use_id): p for p in parts if isinstance(v := Block(p.raw).value, ToolResult)}
    group = MessageGroup(role, 0, [part for part in parts if part.kind != "tool_result"], results)
    if protocol == "anthropic":
        raws = b"[" + _plain(group) + b"]"
    elif protocol == "responses":
        raws = b"[" + b",".join(_items(group, before, True)) + b"]"
    else:
        raws = b"[" + _chat_messages(group, before) + b"]"
    data: list[dict[str, Any]] = msgspec.json.decode(raws)
    return data


def _tool(tool: dict[str, Any]) -> dict[str, Any] | None:
    """A tool definition; None for tools that only Anthropic's servers run."""
    if "function" in tool or "custom" in tool:
        return tool
    if "input_schema" not in tool:
        return None
    function = {"name": tool["name"], "parameters": tool["input_schema"]}
    if tool.get("description"):
        function["description"] = tool["description"]
    return {"type": "function", "function": function}


_RUN_BY_ANTHROPIC = re.compile(r"\w+_20\d{6}|mcp_toolset")  # types of tools, such as web_search_20250305
_RUN_BY_OPENAI = frozenset(
    "apply_patch code_interpreter computer computer_use_preview file_search image_generation local_shell mcp namespace "
    "programmatic_tool_calling shell tool_search web_search web_search_2025_08_26 web_search_preview "
    "web_search_preview_2025_03_11".split()
)
_API = {"anthropic": "Messages", "openai": "Chat Completions", "responses": "Responses"}


def refused_tool(front: Front, protocol: WireProtocol) -> str:
    """Return what to say of the first tool that can't be said in this protocol; empty where all can."""
    for number, raw in enumerate(front.tools):
        tool = msgspec.json.decode(raw)
        kind = str(tool.get("type"))
        if {"function", "custom", "input_schema"} & tool.keys() or kind in ("None", "function", "custom"):
            continue
        if protocol == "openai":
            is_refused = True
        else:
            is_refused = bool(_RUN_BY_ANTHROPIC.fullmatch(kind)) if protocol == "responses" else kind in _RUN_BY_OPENAI
        if is_refused:
            named = f"tools[{number}] ({kind[:60]})"
            return f"{named} is unknown to {_API[protocol]}: ask another API, or leave it out with set_prefix(tools=…)"
    return ""


def _system_text(raw: bytes) -> str:
    value = Block(raw).value
    return value.text if isinstance(value, Text) else ""


@dataclass(slots=True)
class _Said:
    """An OpenAI message in the making: blocks that one role says, and what clients said around them in their words."""

    role: str
    fields: dict[str, msgspec.Raw]
    is_list: bool
    parts: list[tuple[Block, WireBlock]]

    def takes(self, role: str, fields: Mapping[str, msgspec.Raw]) -> bool:
        """Whether more can be said in it: servers want roles to take turns, unless a field can't hold for both."""
        if role != self.role or role not in ("user", "assistant"):
            return False
        has_calls = any(part.kind == "tool_use" for _, part in self.parts)  # whose results have to follow
        return has_calls or all(self.fields.get(name, value) == value for name, value in fields.items())


def _messages(group: MessageGroup, before: MessageGroup | None) -> list[dict[str, Any]]:
    ids = {} if before is None or not group.results else _ids(before)
    messages: list[dict[str, Any]] = []
    media: list[dict[str, Any]] = []
    for part in _plain_parts(group.results.values()):
        value = Block(part.raw).value
        assert isinstance(value, ToolResult)
        wire = _own(part)
        keeps_media = wire is not None and wire.is_list and not isinstance(value.content, str)
        made = _tool_message(value, wire if keeps_media or wire is None else _text_only(wire))
        messages.append({**made, "tool_call_id": ids.get(value.tool_use_id, value.tool_use_id)})
        media += [] if keeps_media else _media(value)
    said = _said_in(group)
    if media:
        if not said or said[0].role != "user":
            said.insert(0, _Said("user", {}, True, []))
        said[0].is_list = True
    for number, one in enumerate(said):
        if group.role == "assistant" and one.role == "assistant":
            messages.append(_assistant(one))
        elif (content := [*(media if not number else ()), *_content(one)]) or one.role != "user":
            messages.append({"role": one.role, "content": _joined(content, one.is_list), **one.fields})
    return messages


def _ids(group: MessageGroup) -> dict[str, Any]:
    """The ids of a group's calls as their client says them, where not every API would take those."""
    found: dict[str, Any] = {}
    for part in group.blocks:
        if part.kind == "tool_use" and part.extra is not None and isinstance(use := Block(part.raw).value, ToolUse):
            found[use.id] = _with_extra(_call(use), part)["id"]
    return found


def _own(part: WireBlock) -> WireFields | None:
    """What the client of this protocol said of the part's message."""
    return part.wire if part.wire is not None and part.wire.protocol == "openai" else None


def _text_only(wire: WireFields) -> WireFields:
    return msgspec.structs.replace(wire, parts={}, is_list=False)


def _said_in(group: MessageGroup) -> list[_Said]:
    """The messages that a group's blocks become; what follows each other in one role is one, as far as that can be."""
    found: list[_Said] = []
    plain = [(part, Block(raw)) for part in group.blocks if (raw := _block_for_others(part.raw))]
    for part, block in plain or ([(_NOTHING_SAID, Block(_NOTHING_SAID.raw))] if group.role == "assistant" else []):
        wire = _own(part)
        if part.wire is not None and part.wire.role and wire is None:
            block = as_reminder(block)  # a system message of another protocol
        role, fields = (wire.role or group.role, wire.fields) if wire is not None else (group.role, {})
        is_same = bool(found) and bool(found[-1].parts) and found[-1].parts[-1][1].position == part.position
        if not (found and (is_same or found[-1].takes(role, fields))):
            found.append(_Said(role, {}, False, []))
        last = found[-1]
        last.fields = {**fields, **last.fields}
        last.is_list = last.is_list or (wire is not None and wire.is_list)
        last.parts.append((block, part))
    return found


def _content(said: _Said) -> list[dict[str, Any]]:
    return [_with_extra(one, part) for block, part in said.parts for one in _user_part(block, _own(part) is not None)]


def _joined(content: list[dict[str, Any]], is_list: bool) -> str | list[dict[str, Any]]:
    """Texts as one string, which every server takes, unless their client sent a list or says more of one."""
    if is_list or any(set(part) != {"type", "text"} for part in content):
        return content
    return "\n\n".join(part["text"] for part in content)


def _with_extra(made: dict[str, Any], part: WireBlock) -> dict[str, Any]:
    """A part with what its client said besides; an inner object is added to the one of the same name."""
    if part.extra is None or _own(part) is None:
        return made
    extra = msgspec.json.decode(part.extra, type=dict[str, msgspec.Raw])
    if "id" in extra and call_id_as_said(made["id"]) != made["id"]:
        del extra["id"]  # it came twice, and was made one of its own
    return _added(made, extra)


def _added(made: dict[str, Any], extra: Mapping[str, msgspec.Raw]) -> dict[str, Any]:
    out = dict(made)
    for name, raw in extra.items():
        if isinstance(out.get(name), dict):
            out[name] = {**out[name], **msgspec.json.decode(raw, type=dict[str, msgspec.Raw])}
        elif name not in INNER:
            out[name] = raw
    return out


def _assistant(said: _Said) -> dict[str, Any]:
    texts = [_with_extra({"type": "text", "text": b.value.text}, p) for b, p in said.parts if isinstance(b.value, Text)]
    calls = [_with_extra(_call(b.value, p.raw), p) for b, p in said.parts if isinstance(b.value, ToolUse)]
    content = _joined(texts, said.is_list) if texts else (None if calls else NO_TEXT)
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if calls:
        message["tool_calls"] = calls
    return {**message, **{k: v for k, v in said.fields.items() if k != "content" or (calls and not texts)}}


def _call(use: ToolUse, raw: bytes = b"") -> dict[str, Any]:
    if ITEM_MARK in raw and is_custom_call(raw):
        return {"id": use.id, "type": "custom", "custom": {"name": use.name, "input": use.input.get("input", "")}}
    return {"id": use.id, "type": "function", "function": {"name": use.name, "arguments": _arguments(use)}}


def _arguments(use: ToolUse) -> str:
    """The arguments as the string they came as; `_raw` holds one that was no JSON."""
    arguments = use.input
    if set(arguments) == {"_raw"}:
        return str(arguments["_raw"])
    return bytes(use.raw_input).decode("utf-8", "replace")


def _tool_message(value: ToolResult, wire: WireFields | None) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "tool", "tool_call_id": value.tool_use_id}
    if wire is not None and wire.is_list:
        parts = [(part, wire.parts.get(str(n))) for n, part in enumerate(value.parts())]
        nested = [(one, extra) for part, extra in parts for one in _user_part(part, True)]
        message["content"] = [
            one if extra is None else _added(one, msgspec.json.decode(extra, type=dict[str, msgspec.Raw]))
            for one, extra in nested
        ]
    else:
        message["content"] = f"[error] {value.text()}" if value.is_error else value.text()
    return {**message, **(wire.fields if wire is not None else {})}


def _media(value: ToolResult) -> list[dict[str, Any]]:
    if isinstance(value.content, str):
        return []
    return [part for block in value.parts() if block.type != "text" for part in _user_part(block)]


def _user_part(block: Block, is_own: bool = False) -> list[dict[str, Any]]:
    """A block as a content part; of a kind that only its server knows, if it came from a client of this protocol."""
    value = block.value
    if isinstance(value, Text):
        return [{"type": "text", "text": value.text}]
    if isinstance(value, Image):
        source = value.source
        url = source.get("url") or f"data:{source.get('media_type', 'image/png')};base64,{source.get('data', '')}"
        return [{"type": "image_url", "image_url": {"url": url}}]
    if isinstance(value, Document):
        if value.source.get("type") == "text":
            return [{"type": "text", "text": str(value.source.get("data", ""))}]
        data = f"data:{value.source.get('media_type', 'application/pdf')};base64,{value.source.get('data', '')}"
        return [{"type": "file", "file": {"filename": value.title or "document.pdf", "file_data": data}}]
    is_unknown = is_own and isinstance(value, UnknownBlock) and block.type not in BLOCK_TYPES
    if block.type in OPENAI_PARTS or is_unknown:
        return [msgspec.json.decode(block.raw, type=dict[str, msgspec.Raw])]
    return [{"type": "text", "text": block.raw.decode("utf-8", "replace")}]


def responses_body(head: dict[str, Any], front: Front, groups: list[MessageGroup], *, stream: bool) -> bytes:
    """The request body of the Responses API. Of the front, what came as an item goes out as one."""
    if stream:
        head = {**head, "stream": True}
    system = [msgspec.json.decode(raw, type=dict[str, msgspec.Raw]) for raw in front.system]
    words = [msgspec.json.decode(block["text"]) for block in system if KEPT_ITEM not in block]
    if words:
        head = {**head, "instructions": "\n\n".join(words)}
    pieces = [encode(head)[:-1]]
    tools = [tool for raw in front.tools if (tool := response_tool(bytes(raw)))]
    if tools:
        pieces.append(b',"tools":[' + b",".join(tools) + b"]")
    items = [bytes(block[KEPT_ITEM]) for block in system if KEPT_ITEM in block]
    is_stored = encode(head.get("store")) != b"false"
    key = "responses" if is_stored else "responses, nothing stored"
    for number, group in enumerate(groups):
        done = group.encoded.get(key)
        if done is None:
            done = group.encoded[key] = b",".join(_items(group, groups[number - 1] if number else None, is_stored))
        if done:
            items.append(done)
    pieces.append(b',"input":[' + b",".join(items) + b"]}")
    return b"".join(pieces)


def _items(group: MessageGroup, before: MessageGroup | None, is_stored: bool) -> list[bytes]:
    """The items of a group; blocks of different messages are items of their own."""
    items: list[bytes] = []
    odd = [part.raw for part in before.blocks if ITEM_MARK in part.raw] if before and group.results else []
    calls = call_kinds(odd)  # a result that was told in another API's words is one of its call's kind
    for _, parts in groupby(group.parts(), key=lambda part: part.position):
        items += items_of(group.role, (part.raw for part in parts), calls)
    return without_open_reasoning(items, is_stored=is_stored) if group.role == "assistant" else items


# A breakpoint finds an older cache entry at most this many blocks back; a longer turn needs one in between.
LOOKBACK_BLOCKS = 20
_NEVER_CACHED = ("thinking", "redacted_thinking")
_CLEARING_BETA = "context-management-2025-06-27"
_COMPACTION_BETA = "compact-2026-01-12"
_LEAST_TRIGGER = 50_000  # the API takes no smaller one
_BINDING_BETA = "thinking-binding-controls-2026-08-01"


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A request, ready to send. `betas` go into the anthropic-beta header; `stream`: the body asks for a stream."""

    protocol: WireProtocol
    body: bytes
    groups: tuple[MessageGroup, ...]
    betas: tuple[str, ...] = ()
    stream: bool = False

    def parts(self) -> list[tuple[str, WireBlock]]:
        """The flattened block sequence, each with its role: what the prefix law speaks of (TURN-9b)."""
        return [(group.role, part) for group in self.groups for part in group.parts()]


def to_request(
    view: ContextView,
    facts: Facts,
    *,
    protocol: WireProtocol = "anthropic",
    stream: bool = False,
    model: str | None = None,
    groups: list[MessageGroup] | None = None,
    marks: dict[int, int] | None = None,
    head: Mapping[str, Any] | None = None,
    front_ttl: CacheTtl | None = None,
) -> ModelRequest:
    """The request that the next model call sends; to `model`, when it isn't the one of the conversation.

    With `groups`, what a helper asks once in the place of the view's own: it reads the cache, but writes nothing to it,
    and the provider doesn't compact it (PRS-5). `marks` are its breakpoints (group to block) where it knows better.
    `head` are the fields of whoever asks, as they are, in the place of ours (GW-2): all but system and tools, and of
    the messages only those that are part of the front in their protocol. `front_ttl` is how long they want the front
    cached, where that isn't as long as the rest.
    """
    once, groups = groups is not None, flatten(view) if groups is None else groups
    front = view.front or Front()
    settings = facts.settings
    if head is not None and protocol == "responses":
        return ModelRequest(protocol, responses_body(dict(head), front, groups, stream=False), _snapshot(groups))
    if head is not None and protocol == "openai":
        fields = {name: value for name, value in head.items() if name != "messages"}
        body = openai_body(fields, front, groups, stream=False, lead=head.get("messages", ()))
        return ModelRequest(protocol, body, _snapshot(groups))
    if head is not None:
        body = _marked_body(view, facts, dict(head), groups, marks=None, once=False, front_ttl=front_ttl)
        return ModelRequest(protocol, body, _snapshot(groups))
    model = model or front.model or view.state.calibration.model
    named = {"model": model} if model else {}  # an adapter that knows its model names it itself
    most = output_tokens(view, facts, protocol)
    if protocol == "openai":
        own: dict[str, Any] = {**named, "max_completion_tokens": most}
        body = openai_body(own, front, groups, stream=stream)
        return ModelRequest(protocol, body, _snapshot(groups), stream=stream)
    if protocol == "responses":
        own = {**named, "max_output_tokens": most, "store": False, "include": ["reasoning.encrypted_content"]}
        body = responses_body(own, front, groups, stream=stream)
        return ModelRequest(protocol, body, _snapshot(groups), stream=stream)
    own = {**named, "max_tokens": most}
    betas: list[str] = []
    edits = []
    if settings.provider_clearing:
        edits.append(_provider_clearing(facts))
        betas.append(_CLEARING_BETA)
    if settings.provider_compaction:
        edits += [] if once else [_provider_compaction(facts)]
        betas.append(_COMPACTION_BETA)
    if edits:
        own["context_management"] = {"edits": edits}
    if settings.thinking == "provider" and facts.model.thinking_is_bound:
        own["thinking"] = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
        betas.append(_BINDING_BETA)
    if stream:
        own["stream"] = True
    body = _marked_body(view, facts, own, groups, marks=marks, once=once)
    return ModelRequest(protocol, body, _snapshot(groups), tuple(betas), stream)


def _marked_body(
    view: ContextView,
    facts: Facts,
    head: dict[str, Any],
    groups: list[MessageGroup],
    *,
    marks: dict[int, int] | None,
    once: bool,
    front_ttl: CacheTtl | None = None,
) -> bytes:
    if marks is None:
        places = frontiers(view, facts)
        kept_from = places[view.state.responses % len(places)]  # two take turns, and both are kept alive
        marks = _breakpoints(groups, view, kept_from, once=once)
    ttl = facts.cache_ttl(view)
    marker = _marker(ttl)
    runs = _runs(groups, marks, marker, None if once else view)
    # What is to be kept longer has to stand in front of the rest.
    return _anthropic(head, view.front or Front(), runs, marker if ttl == "1h" or not front_ttl else _marker(front_ttl))


def _provider_compaction(facts: Facts) -> dict[str, Any]:
    """A summary by the provider itself, a little before ours is due; ours stays the fall-back."""
    trigger = facts.limits.trigger - facts.reach_tokens
    return {"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": max(_LEAST_TRIGGER, trigger)}}


def output_tokens(view: ContextView, facts: Facts, protocol: WireProtocol) -> int:
    """The longest answer to ask for. Most servers refuse one that doesn't fit behind the prompt; Anthropic's don't."""
    most = facts.settings.max_output_tokens or facts.model.max_output_tokens
    most = min(most, view.state.calibration.output_tokens or most)
    limits = facts.limits
    if protocol == "anthropic" and limits.window_source != "provider":
        return most
    return min(most, max(limits.reserve, limits.window - facts.size(view) * 5 // 4))


def _snapshot(groups: list[MessageGroup]) -> tuple[MessageGroup, ...]:
    """The groups as they are now: the view goes on to say things into the last two."""
    last = (
        MessageGroup(group.role, group.first, [*group.blocks], {**group.results}, [*group.calls])
        for group in groups[-2:]
    )
    return (*groups[:-2], *last)


def _provider_clearing(facts: Facts) -> dict[str, Any]:
    """Our clearing by size, said in the provider's words (TURN-4c)."""
    settings, limits = facts.settings, facts.limits
    return {
        "type": "clear_tool_uses_20250919",
        "trigger": {"type": "input_tokens", "value": limits.trigger - facts.reach_tokens},
        "keep": {"type": "tool_uses", "value": settings.microcompact_keep_last},
        "clear_at_least": {"type": "input_tokens", "value": limits.scaled(settings.microcompact_min_saved_tokens)},
    }


def _marker(ttl: CacheTtl) -> bytes:
    """What ends a block that carries a breakpoint."""
    lifetime = b',"ttl":"1h"' if ttl == "1h" else b""
    return b',"cache_control":{"type":"ephemeral"%b}}' % lifetime


def _anthropic(head: dict[str, Any], front: Front, runs: Iterable[bytes | bytearray], marker: bytes) -> bytes:
    pieces = [encode(head)[:-1]]
    tools = [unmarked(anthropic_tool(bytes(raw))) for raw in front.tools]
    system = [unmarked(_block_for_others(bytes(raw)) or b"") for raw in front.system]
    stable = len(system) if front.dynamic_from is None else front.dynamic_from
    if tools:
        if not stable:
            tools[-1] = _marked(tools[-1], marker)
        pieces.append(b',"tools":[' + b",".join(tools) + b"]")
    if system:
        if stable:
            system[stable - 1] = _marked(system[stable - 1], marker)
        pieces.append(b',"system":[' + b",".join(system) + b"]")
    pieces += [b',"messages":[', b",".join(runs), b"]}"]
    return b"".join(pieces)


def _runs(
    groups: list[MessageGroup], marks: dict[int, int], marker: bytes, view: ContextView | None
) -> Iterator[bytes | bytearray]:
    """The messages in pieces: runs of finished groups, joined already but for what the last turn brought, and the rest.

    The last two groups may still be said into, so they are never part of a run. Without a view nothing is kept joined.
    """
    start = 0
    for number in sorted(marks):
        end = min(number, len(groups) - 2)
        if view is not None and end > start:
            yield joined_groups(view, start, end, groups, _plain)
        for index in range(start if view is None else max(start, end), number + 1):
            yield _encoded(groups[index], marks.get(index), marker)
        start = number + 1
    for index in range(start, len(groups)):
        yield _encoded(groups[index], None, marker)


def _marked(raw: bytes, marker: bytes) -> bytes:
    """A block with a breakpoint on it, its own bytes untouched."""
    return raw.rstrip()[:-1] + marker


def _encoded(group: MessageGroup, marked: int | None, marker: bytes) -> bytes:
    """An API message; only the few that carry a breakpoint are joined anew."""
    if marked is None:
        return _plain(group)
    parts = list(group.parts())
    if raw := _block_for_others(parts[marked].raw):
        parts[marked] = parts[marked]._replace(raw=_marked(raw, marker), kind=Block(raw).type)
    return _message(group.role, parts)


def _plain(group: MessageGroup) -> bytes:
    done = group.encoded.get("anthropic")
    if done is None:
        done = group.encoded["anthropic"] = _message(group.role, list(group.parts()))
    return done


def _message(role: str, parts: list[WireBlock]) -> bytes:
    """An API message; behind that of a user, the system messages that its client sent after it."""
    fields: dict[str, msgspec.Raw] = {}
    own: list[bytes] = []
    system: dict[int, list[WireBlock]] = {}
    for part in _plain_parts(parts) or [_NOTHING_SAID]:
        if (wire := part.wire) is None:
            own.append(part.raw)
        elif wire.role:
            system.setdefault(part.position, []).append(part)
        else:
            own.append(part.raw)
            if wire.protocol == "anthropic":
                fields = {**wire.fields, **fields}
    messages = [_object(role, own, fields)] if own else []
    for some in system.values():
        wire = some[0].wire
        if own and wire is not None and wire.protocol == "anthropic":
            messages.append(_object(wire.role, [part.raw for part in some], wire.fields))
        else:  # it can stand behind what a user says, and nowhere else
            own += [as_reminder(Block(part.raw)).raw for part in some]
            messages[:1] = [_object(role, own, fields)]
    return b",".join(messages)


def _object(role: str, raws: list[bytes], fields: Mapping[str, msgspec.Raw]) -> bytes:
    more = b"," + encode(fields)[1:] if fields else b"}"
    return b'{"role":"%b","content":[' % role.encode() + b",".join(raws) + b"]" + more


def _breakpoints(groups: list[MessageGroup], view: ContextView, kept_from: int, *, once: bool) -> dict[int, int]:
    """Group number to block number of each breakpoint in the messages: at most three (the front has one).

    The end of the request, to write it to the cache; the end of what the cache holds (all that was sent, or after an
    edit what lies before it), to read it; and the frontier, before which nothing will be cleared any more: written
    once, it is what is left to read when the next clearing moves the prefix. Where a turn brings more blocks than a
    breakpoint looks back over, one on the way takes the frontier's place. What is asked `once` only reads.
    """
    marks: dict[int, int] = {}
    tail = last_cacheable(groups, len(groups) - 1)
    if tail is None:
        return marks
    if not once:
        marks[tail[0]] = tail[1]
    stable = last_cacheable(groups, _group_before(groups, view.sent if view.moved is None else view.moved))
    if stable is not None:
        marks.setdefault(*stable)
    start = stable[0] if stable else 0
    between = sum(len(g.blocks) + len(g.results) for g in groups[start + 1 : tail[0] + 1])
    is_long = not once and view.moved is None and between >= LOOKBACK_BLOCKS
    third = last_cacheable(groups, tail[0] - 1 if is_long else _group_before(groups, kept_from))
    if third is not None:
        marks.setdefault(*third)
    return marks


def _group_before(groups: list[MessageGroup], position: int) -> int:
    """The number of the last group before the one that holds an item; -1 when that is the first."""
    return bisect_right(groups, position, key=lambda group: group.first) - 2


def last_cacheable(groups: list[MessageGroup], number: int) -> tuple[int, int] | None:
    """The last block at or before a group that may carry a breakpoint."""
    for index in range(number, -1, -1):
        group = groups[index]
        for block in range(len(group.blocks) - 1, -1, -1):
            if group.blocks[block].kind not in _NEVER_CACHED:
                return index, len(group.results) + block
        if group.results:
            return index, len(group.results) - 1
    return None
