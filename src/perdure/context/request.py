"""Requests: groups as the body of a call of Messages, of Chat Completions or of Responses (TURN-9)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import msgspec

from perdure.context.groups import MessageGroup, WireBlock, clearing_frontier, flatten, joined_groups
from perdure.context.models import CacheTtl
from perdure.context.passes import frontier
from perdure.context.policy import Facts
from perdure.context.replies import WireProtocol
from perdure.context.view import ContextView, advance
from perdure.transcript.blocks import (
    OPENAI_PARTS,
    Block,
    Document,
    Image,
    Text,
    ToolResult,
    ToolUse,
    anthropic_tool,
    encode,
    text_block,
)
from perdure.transcript.messages import Message
from perdure.transcript.records import Front
from perdure.transcript.response_items import (
    KEPT_ITEM,
    call_kinds,
    in_plain_words,
    items_of,
    response_tool,
    without_open_reasoning,
)

NO_TEXT = "(no text)"


def _plain_raws(group: MessageGroup) -> list[bytes]:
    """The blocks of a group without what only the Responses API knows of them."""
    return [raw for part in group.parts() if (raw := in_plain_words(part.raw))] or [text_block(NO_TEXT).raw]


def openai_body(head: dict[str, Any], front: Front, groups: list[MessageGroup], *, stream: bool) -> bytes:
    """The request body; each group is encoded once."""
    if stream:
        head = {**head, "stream": True, "stream_options": {"include_usage": True}}
    pieces = [encode(head)[:-1]]
    tools = [_tool(msgspec.json.decode(raw)) for raw in front.tools]
    if tools:
        pieces.append(b',"tools":' + encode([tool for tool in tools if tool]))
    messages = []
    system = "\n\n".join(text for raw in front.system if (text := _system_text(bytes(raw))))
    if system:
        messages.append(encode({"role": "system", "content": system}))
    messages += map(_chat_messages, groups)
    pieces.append(b',"messages":[' + b",".join(messages) + b"]}")
    return b"".join(pieces)


def _chat_messages(group: MessageGroup) -> bytes:
    done = group.encoded.get("openai")
    if done is None:
        done = group.encoded["openai"] = b",".join(encode(message) for message in _messages(group))
    return done


def messages_alone(messages: Sequence[Message], protocol: WireProtocol) -> bytes:
    """Messages, the first of them an answer of the model, as they stand in the request of a view that holds them."""
    view = ContextView()
    for message in messages:
        advance(view, message)
    _, *groups = flatten(view)  # a request begins with the user, who says nothing here
    return b",".join(_plain(group) if protocol == "anthropic" else _chat_messages(group) for group in groups)


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


def _system_text(raw: bytes) -> str:
    value = Block(raw).value
    return value.text if isinstance(value, Text) else ""


def _messages(group: MessageGroup) -> list[dict[str, Any]]:
    blocks = [Block(raw) for raw in _plain_raws(group)]
    if group.role == "assistant":
        return [_assistant(blocks)]
    results = [b.value for b in blocks if isinstance(b.value, ToolResult)]
    messages = [_tool_message(value) for value in results]
    content = [part for value in results for part in _media(value)]
    content += [part for b in blocks if b.type != "tool_result" for part in _user_part(b)]
    if content:
        only = content[0]["text"] if len(content) == 1 and content[0]["type"] == "text" else None
        messages.append({"role": "user", "content": only or content})
    return messages


def _assistant(blocks: list[Block]) -> dict[str, Any]:
    text = "\n\n".join(b.value.text for b in blocks if isinstance(b.value, Text))
    calls = [
        {
            "id": b.value.id,
            "type": "function",
            "function": {"name": b.value.name, "arguments": _arguments(b.value)},
        }
        for b in blocks
        if isinstance(b.value, ToolUse)
    ]
    message: dict[str, Any] = {"role": "assistant", "content": text or (None if calls else NO_TEXT)}
    if calls:
        message["tool_calls"] = calls
    return message


def _arguments(use: ToolUse) -> str:
    """The arguments as the string they came as; `_raw` holds one that was no JSON."""
    arguments = use.input
    if set(arguments) == {"_raw"}:
        return str(arguments["_raw"])
    return bytes(use.raw_input).decode("utf-8", "replace")


def _tool_message(value: ToolResult) -> dict[str, Any]:
    text = value.text()
    if value.is_error:
        text = f"[error] {text}"
    return {"role": "tool", "tool_call_id": value.tool_use_id, "content": text}


def _media(value: ToolResult) -> list[dict[str, Any]]:
    if isinstance(value.content, str):
        return []
    return [part for block in value.parts() if block.type != "text" for part in _user_part(block)]


def _user_part(block: Block) -> list[dict[str, Any]]:
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
    if block.type in OPENAI_PARTS:
        return [msgspec.json.decode(block.raw)]
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
    for position, parts in groupby(group.parts(), key=lambda part: part.position):
        calls = call_kinds(part.raw for part in before.blocks) if before and position < 0 else None
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
) -> ModelRequest:
    """The request that the next model call sends; to `model`, when it isn't the one of the conversation.

    With `groups`, what a helper asks once in the place of the view's own: it reads the cache, but writes nothing to it,
    and the provider doesn't compact it (PRS-5). `marks` are its breakpoints (group to block) where it knows better.
    `head` are the fields of whoever asks, as they are, in the place of ours (GW-2): all but messages, system and tools.
    """
    once, groups = groups is not None, flatten(view) if groups is None else groups
    front = view.front or Front()
    settings = facts.settings
    if head is not None and protocol != "anthropic":
        make = openai_body if protocol == "openai" else responses_body
        return ModelRequest(protocol, make(dict(head), front, groups, stream=False), _snapshot(groups))
    if head is not None:
        body = _marked_body(view, facts, dict(head), groups, marks=None, once=False)
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
) -> bytes:
    if marks is None:
        marks = _breakpoints(groups, view, clearing_frontier(view, lambda: frontier(view, facts)), once=once)
    marker = _marker(facts.cache_ttl(view))
    runs = _runs(groups, marks, marker, None if once else view)
    return _anthropic(head, view.front or Front(), runs, marker)


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
    tools = [_unmarked(anthropic_tool(bytes(raw))) for raw in front.tools]
    system = [_unmarked(in_plain_words(bytes(raw)) or b"") for raw in front.system]
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


def _unmarked(raw: bytes) -> bytes:
    if b'"cache_control"' not in raw:
        return raw
    fields = msgspec.json.decode(raw)
    fields.pop("cache_control", None)
    return encode(fields)


def _marked(raw: bytes, marker: bytes) -> bytes:
    """A block with a breakpoint on it, its own bytes untouched."""
    return raw.rstrip()[:-1] + marker


def _encoded(group: MessageGroup, marked: int | None, marker: bytes) -> bytes:
    """An API message; only the few that carry a breakpoint are joined anew."""
    if marked is None:
        return _plain(group)
    parts = list(group.parts())
    raws = [in_plain_words(part.raw) or b"" for part in parts]
    if raws[marked]:
        raws[marked] = _marked(raws[marked], marker)
    return _message(group.role, [raw for raw in raws if raw] or [text_block(NO_TEXT).raw])


def _plain(group: MessageGroup) -> bytes:
    done = group.encoded.get("anthropic")
    if done is None:
        done = group.encoded["anthropic"] = _message(group.role, _plain_raws(group))
    return done


def _message(role: str, raws: list[bytes]) -> bytes:
    return b'{"role":"%b","content":[' % role.encode() + b",".join(raws) + b"]}"


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
