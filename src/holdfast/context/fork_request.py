"""The request of a fork: the conversation's last request with a helper's instruction behind it (SM-3, MEM-6). Pure.

A fork goes along with its conversation up to the last closed pair, and at most to the end of the last answer: what came
later was never sent, and no pass has looked at it yet. For the conversation's own model not a byte before that differs
from what was sent, and a breakpoint stands where the last request ended, so that all of it is read from the cache.
Another model gets neither thinking nor pictures, as for a summary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from holdfast.context.cuts import legal_cuts
from holdfast.context.full_request import facts_of, is_own, plain
from holdfast.context.items import THINKING
from holdfast.context.keep import tokens_from
from holdfast.context.policy import Facts
from holdfast.context.replies import About, Reply
from holdfast.context.requests import Request, last_cacheable, to_request
from holdfast.context.thinking import closed
from holdfast.context.view import View
from holdfast.context.wire import Group, Part, flattened, with_words
from holdfast.transcript.blocks import Block, Text, Thinking, encode
from holdfast.transcript.messages import MessageId, ToolUseId
from holdfast.transcript.tokens import base_tokens

_SERVER_CALLS = ("server_tool_use", "mcp_tool_use")
_GOES_BACK = ("text", "tool_use", *THINKING)


@dataclass(frozen=True, slots=True)
class Exchange:
    """One turn of a fork: what the model answered, and what it was told then."""

    reply: Reply
    results: tuple[tuple[ToolUseId, str, bool], ...] = ()  # call, text, and whether it is an error
    words: str = ""


@dataclass(frozen=True, slots=True)
class Base:
    """Where a fork begins: behind `upto` items of the view, of which `message` is the last. `tokens` is its size.

    `end` is where the last request of the conversation ended in it, as group and block; None when nothing of it is
    known to be in the cache.
    """

    upto: int
    message: MessageId
    groups: tuple[Group, ...]
    end: tuple[int, int] | None
    tokens: int
    is_own: bool


def fork_base(view: View, facts: Facts, about: About) -> Base | None:
    """Where a fork for this model begins; None when no pair is closed that was sent."""
    most = _end_of_answer(view)
    for upto in reversed([cut for cut in legal_cuts(view, loops=False) if 0 < cut <= most]):
        groups = flattened(view, upto)
        if _waits_for_server(groups):
            continue
        own = is_own(view, about)
        end = _end_of_cached(view, upto, groups) if own else None
        tokens = max(1, facts.size(view) - round(tokens_from(view, upto) * view.state.calibration.ratio))
        kept = groups if own else [plain(group) for group in groups]
        if about.protocol == "anthropic":
            kept = closed(view, kept, upto, is_bare=not own)
        return Base(upto, view.items[upto - 1].message.id, tuple(kept), end, tokens, own)
    return None


def fork_request(
    view: View, facts: Facts, base: Base, about: About, said: tuple[str, Sequence[Exchange]]
) -> tuple[Request, int]:
    """The next request of a fork, and how many tokens it is taken for. `said`: the instruction, and what came of it.

    The first one writes nothing to the cache, as most forks have one turn. From the second on, what the turns before
    brought is written once, to be read by the next.
    """
    instruction, exchanges = said
    groups = with_words(base.groups, instruction, about.protocol)
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
    return all(block.kind in _GOES_BACK for block in reply.blocks) and any(_is_sent(block) for block in reply.blocks)


def _end_of_answer(view: View) -> int:
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


def _end_of_cached(view: View, upto: int, groups: Sequence[Group]) -> tuple[int, int] | None:
    """The last block that the last request wrote to the cache and that still stands behind the same prefix.

    Behind a boundary nothing was sent until there is an answer that it didn't keep.
    """
    answer = view.items[view.sent].message.id if view.sent < len(view.items) else None
    if view.boundary is not None and (answer is None or answer in view.boundary.kept):
        return None
    end = min(view.sent, upto)
    is_moved = view.moved is not None and view.moved < end
    before = flattened(view, view.moved if is_moved and view.moved is not None else end)
    found = last_cacheable(before, len(before) - (2 if is_moved else 1))
    if found is None:
        return None
    number, block = found
    ours = list(groups[number].parts()) if number < len(groups) else []
    theirs = list(before[number].parts())
    return found if ours[: block + 1] == theirs[: block + 1] else None


def _waits_for_server(groups: Sequence[Group]) -> bool:
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


def _exchange(one: Exchange, about: About) -> list[Group]:
    """The answer and what it was told, as API messages."""
    first = 0  # no item of the view stands in them
    blocks = [Part(block.raw, block.kind) for block in one.reply.blocks if _is_sent(block)]
    said = Group("assistant", first, blocks, calls=[call for call, _, _ in one.results])
    told = Group("user", first)
    for call, text, is_error in one.results:
        fields = {"type": "tool_result", "tool_use_id": call, "content": text}
        told.results[call] = Part(encode({**fields, "is_error": True} if is_error else fields), "tool_result")
    if not one.words:
        return [said, told]
    if not told.results:
        return [said, *with_words([Group("assistant", first)], one.words, about.protocol)[1:]]
    return [said, *with_words([told], one.words, about.protocol)]


def _is_sent(block: Block) -> bool:
    """As for the view itself: the API refuses blank text and unsigned thinking."""
    value = block.value
    if isinstance(value, Text):
        return bool(value.text.strip())
    return not (isinstance(value, Thinking) and not value.signature)
