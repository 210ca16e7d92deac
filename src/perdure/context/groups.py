"""From a view to the groups of a request: one byte-stable path, with everything settled that a request can't leave
open (TURN-9).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import msgspec

from perdure.context.reminders import neutralised_result
from perdure.context.view import ContextView, ViewItem, item_of
from perdure.transcript.blocks import (
    SERVER_CALLS,
    SERVER_RESULTS,
    Block,
    ServerToolResult,
    ServerToolUse,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    encode,
    text_block,
)
from perdure.transcript.messages import Message, ToolUseId, WireFields

NO_RESULT = "[No result: the call was interrupted before it returned]"
CONTINUES = "[The conversation continues]"
INTERRUPTED = "[The call of {name}, which the provider runs itself, was interrupted]"
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_PARTS = msgspec.json.Decoder(list[msgspec.Raw])


# What a paused answer ends with: it is sent back as it came, and the provider goes on from there.
_RESENT = (*SERVER_CALLS, *SERVER_RESULTS)

Encode = Callable[["MessageGroup"], bytes]
# How many runs of finished groups are kept joined; a request has at most three breakpoints to part them.
_RUNS = 4


class WireBlock(NamedTuple):
    """One block of the request: its bytes, and where it came from (`position` -1: made up while flattening)."""

    raw: bytes
    kind: str
    position: int = -1
    block: int = -1
    wire: WireFields | None = None  # what its client said of the message in its own words
    extra: msgspec.Raw | None = None  # … and of this part of it
    is_ours: bool = False  # of a reminder, which no client says


_CONTINUES = WireBlock(text_block(CONTINUES).raw, "text")


@dataclass(slots=True)
class MessageGroup:
    """One API message in the making. `results` are kept apart, since they go first."""

    role: str
    first: int  # position of the first item in it
    blocks: list[WireBlock] = field(default_factory=list)
    results: dict[ToolUseId, WireBlock] = field(default_factory=dict)
    calls: list[ToolUseId] = field(default_factory=list)
    response: str | None = None
    encoded: dict[str, bytes] = field(default_factory=dict)  # by protocol; emptied when the group changes

    def parts(self) -> Iterator[WireBlock]:
        """The blocks in sending order."""
        yield from self.results.values()
        yield from self.blocks


@dataclass(slots=True)
class SeenResults:
    """What was seen of a view's results by whoever looks where the next clearing may begin; it goes on from there.

    `given` is all that this was seen with, beside the results and how they are shown.
    """

    given: Hashable = None
    count: int = 0  # results, in the order of the view
    first: int | None = None  # position of the oldest one that may go, of the tools that are cleared first …
    other: int | None = None  # … and of other tools
    other_tokens: int = 0  # of all that may go of other tools


@dataclass(slots=True)
class _FlatView:
    """The groups of a view up to `upto` items; kept with the view."""

    groups: list[MessageGroup] = field(default_factory=list)
    upto: int = 0
    seen: SeenResults | None = None
    joined: dict[int, tuple[int, bytearray]] = field(default_factory=dict)  # runs of groups: start to (end, bytes)


def joined_groups(
    view: ContextView, start: int, end: int, groups: list[MessageGroup], encode_group: Encode
) -> bytes | bytearray:
    """The groups from `start` to before `end`, encoded and joined by commas; only those since the last call are added.

    They must be finished: nothing is said into them any more. An edit before the end of what was joined starts anew.
    """
    flat = view.flat
    assert isinstance(flat, _FlatView)
    have, done = flat.joined.get(start, (start, bytearray()))
    if have > end:
        have, done = start, bytearray()
    for group in groups[have:end]:
        if done:
            done += b","
        done += encode_group(group)
    flat.joined[start] = (end, done)
    if len(flat.joined) > _RUNS:  # breakpoints move on; what began at an old one is not asked for again
        del flat.joined[min(flat.joined.keys() - {0, start})]
    return done


def seen_results(view: ContextView, given: Hashable) -> SeenResults:
    """What was seen of the results before, so that only those that came since are looked at.

    Nothing, when a block that was flattened is shown otherwise now, more is cleared or snipped, or `given` is another.
    """
    flat, given = view.flat, (len(view.cleared), len(view.snipped), given)
    if not isinstance(flat, _FlatView) or not flat.upto == len(view.items) == view.dirty:
        return SeenResults(given)  # how some are shown may still change without a word about it
    if flat.seen is None or flat.seen.given != given:
        flat.seen = SeenResults(given)
    return flat.seen


def flatten(view: ContextView) -> list[MessageGroup]:
    """The API messages of a view. The view keeps the result, so that the next call does only what is new."""
    flat = view.flat if isinstance(view.flat, _FlatView) else _FlatView()
    view.flat = flat
    if view.dirty < flat.upto:
        _forget(flat, view.dirty)
    projections = {view.positions[c.first]: c for c in view.collapses.values()}
    for position in range(flat.upto, len(view.items)):
        collapse = projections.get(position)
        if collapse is not None:
            _add(flat.groups, item_of(collapse.projection), position, view)
        _add(flat.groups, view.items[position], position, view)
    flat.upto = len(view.items)
    view.dirty = len(view.items)
    return _end_for_sending(flat.groups)


def unflattened_bytes(view: ContextView) -> int:
    """How much the next `flatten` looks through."""
    flat = view.flat if isinstance(view.flat, _FlatView) else _FlatView()
    return sum(len(block.raw) for item in view.items[min(flat.upto, view.dirty) :] for block in item.visible)


def unencoded_bytes(view: ContextView) -> int:
    """How much the next request flattens and encodes."""
    size = unflattened_bytes(view)
    for group in reversed(view.flat.groups if isinstance(view.flat, _FlatView) else ()):
        if group.encoded:
            break
        size += sum(len(part.raw) for part in group.parts())
    return size


def flatten_from_scratch(view: ContextView, upto: int) -> list[MessageGroup]:
    """The API messages of the first `upto` items, made from scratch: what was sent when there were no more.

    Words that only pass the turn on are left out: whoever asks has words of their own.
    """
    groups: list[MessageGroup] = []
    projections = {view.positions[c.first]: c for c in view.collapses.values()}
    for position in range(upto):
        if (collapse := projections.get(position)) is not None:
            _add(groups, item_of(collapse.projection), position, view)
        _add(groups, view.items[position], position, view)
    return without_passing_on(_end_for_sending(groups))


def without_passing_on(groups: list[MessageGroup]) -> list[MessageGroup]:
    """The groups without words at their end that only pass the turn on: nobody said them, a prompt replaces them."""
    last = groups[-1]
    return groups[:-1] if len(groups) > 1 and not last.results and last.blocks == [_CONTINUES] else groups


def with_words(groups: Sequence[MessageGroup], text: str) -> list[MessageGroup]:
    """The groups with words of ours as the last thing said, which no later request will hold."""
    kept, block, last = list(groups), WireBlock(text_block(text).raw, "text"), groups[-1]
    if last.role == "assistant":
        return [*kept, MessageGroup("user", last.first, [block])]
    blocks = [*last.blocks, block]
    return [*kept[:-1], MessageGroup(last.role, last.first, blocks, {**last.results}, [*last.calls])]


def _forget(flat: _FlatView, position: int) -> None:
    """Drop the groups that may hold the item at `position` or later ones.

    The group of an item starts at it or before; the API response it belongs to may have started up to two groups
    earlier. Only the start of an assistant group is a safe place to go on from: no later item belongs further back.
    """
    groups = flat.groups
    flat.joined.clear()
    flat.seen = None
    while groups and groups[-1].first >= position:
        groups.pop()
    del groups[-2:]
    flat.upto = 0
    while groups:
        last = groups.pop()
        if last.role == "assistant":
            flat.upto = last.first
            break


def _add(groups: list[MessageGroup], item: ViewItem, position: int, view: ContextView) -> None:
    message = item.message
    if item.is_hidden or message.agent_id is not None or message.role == "system":
        return
    if message.role == "assistant":
        _add_assistant(groups, item, position)
    else:
        _add_user(groups, item, position, view)


def _add_assistant(groups: list[MessageGroup], item: ViewItem, position: int) -> None:
    blocks = [(index, block) for index, block in _sent(item) if not _is_stray(groups, item, block)]
    if not blocks:
        return
    group = _group_for_response(groups, item.message.response_id)
    if group is None:
        if not groups:
            groups.append(MessageGroup("user", position, [_CONTINUES]))
        _answer_open_calls(groups, position)
        if groups[-1].role == "assistant":
            group = groups[-1]
        else:
            group = MessageGroup("assistant", position, response=item.message.response_id)
            groups.append(group)
    group.response = item.message.response_id
    group.encoded.clear()
    for index, block in blocks:
        group.blocks.append(_part(block, item.message, position, index))
        if isinstance(block.value, ToolUse):
            group.calls.append(ToolUseId(block.value.id))
    if groups[-1] is not group and groups[-1].blocks:
        _interrupt(groups)  # more of an answer that the user had spoken behind already


def _is_stray(groups: list[MessageGroup], item: ViewItem, block: Block) -> bool:
    """Whether a block is the result of a call of the provider's own that stands nowhere before it."""
    value = block.value
    if block.type not in SERVER_RESULTS or not isinstance(value, ServerToolResult):
        return False
    if value.tool_use_id in _server_ids(item.visible, SERVER_CALLS):
        return False
    said = (part for group in reversed(groups) if group.role == "assistant" for part in group.blocks)
    return all(
        value.tool_use_id not in _server_ids([Block(p.raw)], SERVER_CALLS) for p in said if p.kind in SERVER_CALLS
    )


def _server_ids(blocks: Iterable[Block], kinds: Collection[str]) -> set[str]:
    """The ids of the provider's own calls, or of those that its results answer."""
    values = (block.value for block in blocks if block.type in kinds)
    return {v.id if isinstance(v, ServerToolUse) else getattr(v, "tool_use_id", "") for v in values}


def _interrupted(group: MessageGroup) -> list[WireBlock] | None:
    """The blocks of an assistant group with its unanswered calls of the provider's own as text; None without any."""
    if not any(part.kind in SERVER_CALLS for part in group.blocks):
        return None
    answered = _server_ids([Block(p.raw) for p in group.blocks if p.kind in SERVER_RESULTS], SERVER_RESULTS)
    parts = []
    for part in group.blocks:
        value = Block(part.raw).value if part.kind in SERVER_CALLS else None
        if isinstance(value, ServerToolUse) and value.id not in answered:
            part = part._replace(raw=text_block(INTERRUPTED.format(name=value.name)).raw, kind="text")
        parts.append(part)
    return parts if parts != group.blocks else None


def _group_for_response(groups: list[MessageGroup], response: str | None) -> MessageGroup | None:
    """The assistant group that the same API response opened, even when results already follow it."""
    if response is None:
        return None
    for group in groups[-2:]:
        if group.role == "assistant" and group.response == response:
            return group
    return None


def _answer_open_calls(groups: list[MessageGroup], position: int) -> None:
    """Before another response begins, every call of the one before has its answer."""
    calls, answers = _exchange(groups)
    missing = [call for call in calls if answers is None or call not in answers.results]
    if not missing:
        return
    if answers is None:
        answers = MessageGroup("user", position)
        groups.append(answers)
    for call in missing:
        answers.results[call] = synthetic_result(call)
    answers.encoded.clear()


def _exchange(groups: list[MessageGroup]) -> tuple[list[ToolUseId], MessageGroup | None]:
    """The calls of the last response, and the user group after it, if any."""
    if groups and groups[-1].role == "assistant":
        return groups[-1].calls, None
    if len(groups) > 1:
        return groups[-2].calls, groups[-1]
    return [], groups[-1] if groups else None


def synthetic_result(call: ToolUseId) -> WireBlock:
    """The error that answers a call which has no result."""
    fields = {"type": "tool_result", "tool_use_id": call, "content": NO_RESULT, "is_error": True}
    return WireBlock(encode(fields), "tool_result")


def _add_user(groups: list[MessageGroup], item: ViewItem, position: int, view: ContextView) -> None:
    calls, group = _exchange(groups)
    for index, block in _sent(item):
        value = block.value
        call = ToolUseId(value.tool_use_id) if isinstance(value, ToolResult) else None
        if call is not None:
            is_answered = call in view.settled or (group is not None and call in group.results)
            if call not in calls or is_answered:
                continue
        if group is None:
            group = MessageGroup("user", position)
            groups.append(group)
        group.encoded.clear()
        if call is not None:
            said = block is item.message.blocks[index]
            part = _part(block, item.message, position, index)
            group.results[call] = part._replace(raw=neutralised_result(part.raw)) if said else part
        else:
            if not group.blocks:
                _interrupt(groups)
            group.blocks.append(_part(block, item.message, position, index))


def _interrupt(groups: list[MessageGroup]) -> None:
    """The user speaks behind the last answer: what the provider ran for it itself comes to no end any more."""
    if len(groups) > 1 and (parts := _interrupted(groups[-2])) is not None:
        groups[-2].blocks = parts
        groups[-2].encoded.clear()


def _sent(item: ViewItem) -> Iterator[tuple[int, Block]]:
    """The blocks that go into a request, with their index; the API refuses blank text and unsigned thinking."""
    for index, block in enumerate(item.shown):
        if block is not None and not item.is_hidden and is_sent(block):
            yield index, block


def is_sent(block: Block) -> bool:
    """Whether a block that is shown goes into a request."""
    value = block.value
    is_blank = isinstance(value, Text) and not value.text.strip()
    return not is_blank and not (isinstance(value, Thinking) and not value.signature)


def _part(block: Block, message: Message, position: int, index: int) -> WireBlock:
    """A block's bytes, without what the API would refuse: a breakpoint of its sender's, empty text inside a result."""
    raw = block.raw
    if b'"cache_control"' in raw or (block.type == "tool_result" and b'""' in raw):
        raw = _cleaned(raw)
    wire = message.wire
    extra = None if wire is None else wire.of_part(message.blocks, index)
    return WireBlock(raw, block.type, position, index, wire, extra, message.origin == "reminder" and wire is None)


def _cleaned(raw: bytes) -> bytes:
    """The block without breakpoints and empty text; as it came when it holds none. Other fields keep their bytes."""
    fields = _FIELDS.decode(raw)
    is_changed = fields.pop("cache_control", None) is not None
    content = bytes(fields.get("content", b""))
    if content.lstrip()[:1] == b"[" and bytes(fields["type"]) == b'"tool_result"':
        parts = [bytes(part) for part in _PARTS.decode(content)]
        clean = [_cleaned(part) for part in parts if not _is_empty_text(part)]
        if clean != parts:
            fields["content"] = msgspec.Raw(b"[" + b",".join(clean) + b"]")
            is_changed = True
    return encode(fields) if is_changed else raw


def _is_empty_text(raw: bytes) -> bool:
    value = Block(raw).value
    return isinstance(value, Text) and not value.text


RequiredThinking = Literal["none", "said", "first"]
"""What of its thinking an open loop has to bring back: nothing, all that was said in it, or that and a first block."""


def required_thinking(protocol: str, head: Mapping[str, Any] | None = None) -> RequiredThinking:
    """What a request has to hold of the open loop's thinking, by its protocol and by the fields of whoever asks."""
    given = (head or {}).get("thinking")
    if isinstance(given, msgspec.Raw):
        given = msgspec.json.decode(given)
    kind = given.get("type") if isinstance(given, Mapping) else None
    if protocol != "anthropic" or kind == "disabled":
        return "none"
    return "first" if kind == "enabled" else "said"


def lacks_turn(view: ContextView) -> bool:
    """Whether a request would have to end with words that nobody said: the model spoke last, and called nothing."""
    last = flatten(view)[-1]
    return not last.results and last.blocks == [_CONTINUES]


def _end_for_sending(groups: list[MessageGroup]) -> list[MessageGroup]:
    """The groups as sent: calls at the end answered, the user's turn last. The cached groups stay as they are."""
    if not groups:
        return [MessageGroup("user", 0, [_CONTINUES])]
    calls, answers = _exchange(groups)
    missing = [call for call in calls if answers is None or call not in answers.results]
    last = groups[-1]
    if last.role == "user" and not missing:
        return groups
    if last.role == "assistant" and not missing and last.blocks[-1].kind in _RESENT:
        return groups
    closing = MessageGroup("user", last.first)
    if last.role == "user":
        groups = groups[:-1]
        closing = MessageGroup("user", last.first, list(last.blocks), dict(last.results))
    for call in missing:
        closing.results[call] = synthetic_result(call)
    if not closing.results and not closing.blocks:
        if last.role == "assistant" and (parts := _interrupted(last)) is not None:
            groups = [
                *groups[:-1],
                MessageGroup("assistant", last.first, parts, calls=last.calls, response=last.response),
            ]
        closing.blocks.append(_CONTINUES)
    return [*groups, closing]
