"""The request for a summary: the conversation's own request with an instruction appended, or one for another model.

For the conversation's own model not a byte before the instruction differs, so that all of it is read from the cache
(CMP-3). Another model gets no pictures and no thinking. What doesn't fit is dropped in whole API rounds, the oldest
first (CMP-4). Everything works on the groups of a flattened view; the view itself is never changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil
from typing import Any

import msgspec

from holdfast import prompts
from holdfast.context.items import THINKING
from holdfast.context.models import model_facts
from holdfast.context.policy import Facts
from holdfast.context.replies import About
from holdfast.context.requests import Request, to_request
from holdfast.context.thinking import closed
from holdfast.context.view import View
from holdfast.context.wire import Group, Part, flatten, with_words
from holdfast.transcript.blocks import Block, ToolResult, encode, text_block
from holdfast.transcript.tokens import base_tokens

_MEDIA = ("image", "document")
_DROP_PERCENT = 20  # CMP-4: when no gap is stated


@dataclass(frozen=True, slots=True)
class Ask:
    """A request for a summary, how many tokens it is taken for, and how many API rounds there are and were dropped."""

    request: Request
    tokens: int
    rounds: tuple[int, ...]  # the tokens of each round, the oldest first
    dropped: int


def is_own(view: View, about: About) -> bool:
    """Whether a model is the one of the conversation, so that its cached prefix can be read."""
    named = view.front.model if view.front else None
    return about.id == (named or view.state.calibration.model)


def summary_ask(view: View, facts: Facts, about: About, instruction: str, dropped: int = 0) -> Ask:
    """The request that asks a model for a summary, without the `dropped` oldest rounds."""
    own = is_own(view, about)
    groups = flatten(view)
    starts = round_starts(groups)
    sizes = _round_sizes(view, groups, starts)
    dropped = min(dropped, len(starts) - 1)
    loses_thinking = own and dropped > 0 and facts.model.thinking_is_bound
    if not own:
        groups = [plain(group) for group in groups]
        facts = facts_of(facts, about)
    if dropped:
        groups = _without(groups[starts[dropped] :], dropped, is_bound=loses_thinking)
    if about.protocol == "anthropic":
        groups = closed(view, groups, len(view.items), is_bare=not own or loses_thinking)
    groups = with_words(groups, instruction, about.protocol)
    model = None if own else about.id
    request = to_request(view, facts, protocol=about.protocol, stream=True, model=model, groups=groups)
    tokens = facts.size(view) - sum(sizes[:dropped]) + base_tokens(instruction)
    return Ask(request, tokens, tuple(sizes), dropped)


def round_starts(groups: Sequence[Group]) -> list[int]:
    """Where each API round begins: an answer and what came back for it. The first holds what stands before it, too."""
    starts = [number for number, group in enumerate(groups) if group.role == "assistant"]
    return [0, *starts[1:]]


def rounds_to_drop(sizes: Sequence[int], dropped: int, gap_tokens: int | None) -> int:
    """How many rounds to leave out after a refusal: as many more as the gap needs, else 20 %, at least one (CMP-4).

    The last round stays; the answer is `dropped` when nothing more can go.
    """
    left = len(sizes) - dropped
    if gap_tokens is None or gap_tokens <= 0:
        more = max(1, left * _DROP_PERCENT // 100)
    else:
        more, freed = 0, 0
        while freed < gap_tokens and more < left:
            freed += sizes[dropped + more]
            more += 1
    return min(dropped + more, len(sizes) - 1)


def overflow_tokens(facts: Facts, about: About, ask: Ask) -> int:
    """By how much a request is larger than what another model states of itself; 0 when it fits."""
    window = about.window_tokens or model_facts(about.id).window_tokens
    return max(0, ask.tokens + min(facts.settings.reserve_cap_tokens, window // 4) - window)


def _round_sizes(view: View, groups: Sequence[Group], starts: Sequence[int]) -> list[int]:
    """The tokens of each round, as the provider counts them."""
    ratio = view.state.calibration.ratio
    edges = [*(groups[start].first if start else 0 for start in starts), len(view.items)]
    sizes = []
    for first, end in pairwise(edges):
        shown = (item for item in view.items[first:end] if not item.is_hidden and item.message.agent_id is None)
        sizes.append(ceil(sum(item.size.live for item in shown) * ratio))
    return sizes


def facts_of(facts: Facts, about: About) -> Facts:
    """The facts for another model's request: its own limits, and none of what the provider does for ours."""
    known = model_facts(about.id)
    most = min(about.max_output_tokens or known.max_output_tokens, facts.settings.reserve_cap_tokens)
    settings = replace(
        facts.settings, max_output_tokens=most, provider_clearing=False, provider_compaction=False, thinking="drop"
    )
    return replace(facts, settings=settings, model=known)


def _without(groups: list[Group], count: int, *, is_bound: bool) -> list[Group]:
    """What is left of a conversation, with a line in the place of its beginning; bound thinking would not hold."""
    line = Part(text_block(prompts.render("full_dropped", count=str(count))).raw, "text")
    if is_bound:
        groups = [plain(group, keeps_media=True) for group in groups]
    return [Group("user", groups[0].first, [line]), *groups]


def plain(group: Group, *, keeps_media: bool = False) -> Group:
    """A group without thinking, and with words in the place of pictures and documents."""
    blocks = [part for part in group.blocks if part.kind not in THINKING]
    results = group.results
    if not keeps_media:
        blocks = [_named(part) for part in blocks]
        results = {call: _result_named(part) for call, part in results.items()}
    if not blocks and not results:
        blocks = [Part(text_block("[no text]").raw, "text")]
    return Group(group.role, group.first, blocks, dict(results), list(group.calls))


def _named(part: Part) -> Part:
    return part._replace(raw=text_block(f"[{part.kind}]").raw, kind="text") if part.kind in _MEDIA else part


def _result_named(part: Part) -> Part:
    """A tool result with `[image]` and `[document]` in the place of media; the very same when it has none."""
    if not any(kind.encode() in part.raw for kind in _MEDIA):
        return part
    value = Block(part.raw).value
    if not isinstance(value, ToolResult) or value.content is None or isinstance(value.content, str):
        return part
    inner = value.parts()
    if not any(one.kind in _MEDIA for one in inner):
        return part
    fields: dict[str, Any] = msgspec.json.decode(part.raw, type=dict[str, msgspec.Raw])
    fields["content"] = [
        msgspec.Raw(text_block(f"[{one.kind}]").raw if one.kind in _MEDIA else one.raw) for one in inner
    ]
    return part._replace(raw=encode(fields))
