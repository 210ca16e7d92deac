"""Requests beside the conversation: a fork on its cached prefix, and a small one of its own (SM-3, MEM-6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from perdure.compaction.summary import facts_of, is_own, plain
from perdure.context.cuts import legal_cuts
from perdure.context.groups import MessageGroup, WireBlock, flatten_from_scratch, with_words
from perdure.context.models import model_spec
from perdure.context.policy import Facts
from perdure.context.replies import ModelInfo, Reply
from perdure.context.request import ModelRequest, last_cacheable, to_request
from perdure.context.thinking import closed_groups
from perdure.context.view import THINKING, ContextView, project, tokens_from
from perdure.transcript.blocks import Block, Text, Thinking, encode, text_block
from perdure.transcript.messages import Message, MessageId, ToolUseId
from perdure.transcript.records import Front
from perdure.transcript.tokens import base_tokens


def side_request(
    about: ModelInfo, facts: Facts, *, system: str, text: str, output_tokens: int
) -> tuple[ModelRequest, int]:
    """The request, and how many tokens it is taken for."""
    front = Front(model=about.id, system=(msgspec.Raw(text_block(system).raw),))
    said = msgspec.structs.replace(Message.of("user", text, origin="reminder"), id=MessageId("aside"))
    settings = replace(
        facts.settings,
        max_output_tokens=output_tokens,
        provider_clearing=False,
        provider_compaction=False,
        thinking="drop",
    )
    plain = replace(facts, settings=settings, model=model_spec(about.id))
    request = to_request(project((front, said)), plain, protocol=about.protocol, stream=True)
    return request, base_tokens(system) + base_tokens(text)


_SERVER_CALLS = ("server_tool_use", "mcp_tool_use")
_GOES_BACK = ("text", "tool_use", *THINKING)


@dataclass(frozen=True, slots=True)
class ForkTurn:
    """One turn of a fork: what the model answered, and what it was told then."""

    reply: Reply
    results: tuple[tuple[ToolUseId, str, bool], ...] = ()  # call, text, and whether it is an error
    words: str = ""


@dataclass(frozen=True, slots=True)
class ForkBase:
    """Where a fork begins: behind `upto` items of the view, of which `message` is the last. `tokens` is its size.

    `end` is where the last request of the conversation ended in it, as group and block; None when nothing of it is
    known to be in the cache.
    """

    upto: int
    message: MessageId
    groups: tuple[MessageGroup, ...]
    end: tuple[int, int] | None
    tokens: int
    is_own: bool


def fork_base(view: ContextView, facts: Facts, about: ModelInfo) -> ForkBase | None:
    """Where a fork for this model begins; None when no pair is closed that was sent."""
    most = _end_of_answer(view)
    for upto in reversed([cut for cut in legal_cuts(view, loops=False) if 0 < cut <= most]):
        groups = flatten_from_scratch(view, upto)
        if _waits_for_server(groups):
            continue
        own = is_own(view, about)
        end = _end_of_cached(view, upto, groups) if own else None
        tokens = max(1, facts.size(view) - round(tokens_from(view, upto) * view.state.calibration.ratio))
        kept = groups if own else [plain(group) for group in groups]
        if about.protocol == "anthropic":
            kept = closed_groups(view, kept, upto, is_bare=not own)
        return ForkBase(upto, view.items[upto - 1].message.id, tuple(kept), end, tokens, own)
    return None


def fork_request(
    view: ContextView, facts: Facts, base: ForkBase, about: ModelInfo, said: tuple[str, Sequence[ForkTurn]]
) -> tuple[ModelRequest, int]:
    """The next request of a fork, and how many tokens it is taken for. `said`: the instruction, and what came of it.

    The first one writes nothing to the cache, as most forks have one turn. From the second on, what the turns before
    brought is written once, to be read by the next.
    """
    instruction, exchanges = said
    groups = with_words(base.groups, instruction)
    tokens = base.tokens + base_tokens(instruction)
    for one in exchanges:
        groups += _exchange(one, about)
        usage = one.reply.usage
        tokens += usage.output_tokens if usage else sum(base_tokens(block.raw.decode()) for block in one.reply.blocks)
        tokens += sum(base_tokens(text) for _, text, _ in one.results) + base_tokens(one.words)
    marks = dict([base.end]) if base.end is not None else {}
    if exchanges and (last := last_cacheable(groups, len(groups) - 1)) is not None:
        marks[last[0]] = last[1]
    facts = facts if base.is_own else facts_of(facts, about)
    model = None if base.is_own else about.id
    request = to_request(
        view, facts, protocol=about.protocol, stream=True, model=model, groups=groups, marks=dict(sorted(marks.items()))
    )
    return request, tokens


def can_go_on(reply: Reply) -> bool:
    """Whether an answer can be sent back for another turn: it says something, and no tool of the provider's is open."""
    return all(block.type in _GOES_BACK for block in reply.blocks) and any(_is_sent(block) for block in reply.blocks)


def _end_of_answer(view: ContextView) -> int:
    """Behind the last message of the last answer; what was sent where none came."""
    end = min(view.sent, len(view.items))
    response = None
    for position in range(end, len(view.items)):
        message = view.items[position].message
        if message.role != "assistant" or message.origin != "model":
            continue
        if position > view.sent and (response is None or message.response_id != response):
            break
        response, end = message.response_id, position + 1
    return end


def _end_of_cached(view: ContextView, upto: int, groups: Sequence[MessageGroup]) -> tuple[int, int] | None:
    """The last block that the last request wrote to the cache and that still stands behind the same prefix.

    Behind a boundary nothing was sent until there is an answer that it didn't keep.
    """
    answer = view.items[view.sent].message.id if view.sent < len(view.items) else None
    if view.boundary is not None and (answer is None or answer in view.boundary.kept):
        return None
    end = min(view.sent, upto)
    is_moved = view.moved is not None and view.moved < end
    before = flatten_from_scratch(view, view.moved if is_moved and view.moved is not None else end)
    found = last_cacheable(before, len(before) - (2 if is_moved else 1))
    if found is None:
        return None
    number, block = found
    ours = list(groups[number].parts()) if number < len(groups) else []
    theirs = list(before[number].parts())
    return found if ours[: block + 1] == theirs[: block + 1] else None


def _waits_for_server(groups: Sequence[MessageGroup]) -> bool:
    """Whether a tool that the provider runs has no result yet: then nothing but results may be said."""
    last = next((group for group in reversed(groups) if group.role == "assistant"), None)
    if last is None:
        return False
    called, answered = set(), set()
    for part in last.blocks:
        if part.kind in _SERVER_CALLS:
            called.add(msgspec.json.decode(part.raw).get("id"))
        elif part.kind.endswith("_tool_result"):
            answered.add(msgspec.json.decode(part.raw).get("tool_use_id"))
    return bool(called - answered)


def _exchange(one: ForkTurn, about: ModelInfo) -> list[MessageGroup]:
    """The answer and what it was told, as API messages."""
    first = 0  # no item of the view stands in them
    blocks = [WireBlock(block.raw, block.type) for block in one.reply.blocks if _is_sent(block)]
    said = MessageGroup("assistant", first, blocks, calls=[call for call, _, _ in one.results])
    told = MessageGroup("user", first)
    for call, text, is_error in one.results:
        fields = {"type": "tool_result", "tool_use_id": call, "content": text}
        told.results[call] = WireBlock(encode({**fields, "is_error": True} if is_error else fields), "tool_result")
    if not one.words:
        return [said, told]
    if not told.results:
        return [said, *with_words([MessageGroup("assistant", first)], one.words)[1:]]
    return [said, *with_words([told], one.words)]


def _is_sent(block: Block) -> bool:
    """As for the view itself: the API refuses blank text and unsigned thinking."""
    value = block.value
    if isinstance(value, Text):
        return bool(value.text.strip())
    return not (isinstance(value, Thinking) and not value.signature)
