"""Requests: a flattened view as the body of an Anthropic Messages or OpenAI Chat Completions call (TURN-9).

The body is a join of bytes that were made once. `cache_control` stands on at most four breakpoints and is no part of
what is hashed or counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from holdfast.context import openai_wire
from holdfast.context.policy import Facts
from holdfast.context.view import View
from holdfast.context.wire import Group, Part, flatten, joined
from holdfast.transcript.blocks import encode
from holdfast.transcript.records import Front

Protocol = Literal["anthropic", "openai"]

# A breakpoint finds an older cache entry at most this many blocks back; a longer turn needs one in between.
LOOKBACK_BLOCKS = 20
_NEVER_CACHED = ("thinking", "redacted_thinking")
_CLEARING_BETA = "context-management-2025-06-27"
_BINDING_BETA = "thinking-binding-controls-2026-08-01"


@dataclass(frozen=True, slots=True)
class Request:
    """A request, ready to send. `betas` go into the anthropic-beta header."""

    protocol: Protocol
    body: bytes
    groups: tuple[Group, ...]
    betas: tuple[str, ...] = ()

    def parts(self) -> list[tuple[str, Part]]:
        """The flattened block sequence, each with its role: what the prefix law speaks of (TURN-9b)."""
        return [(group.role, part) for group in self.groups for part in group.parts()]


def to_request(view: View, facts: Facts, *, protocol: Protocol = "anthropic", stream: bool = False) -> Request:
    """The request that the next model call sends."""
    groups = flatten(view)
    front = view.front or Front()
    settings = facts.settings
    model = front.model or view.state.calibration.model or ""
    most = settings.max_output_tokens or facts.model.max_output_tokens
    if protocol == "openai":
        head: dict[str, Any] = {"model": model, "max_completion_tokens": most}
        body = openai_wire.body(head, front, groups, stream=stream)
        return Request(protocol, body, tuple(groups))
    head = {"model": model, "max_tokens": most}
    betas: list[str] = []
    if settings.provider_clearing:
        head["context_management"] = {"edits": [_provider_clearing(facts)]}
        betas.append(_CLEARING_BETA)
    if settings.thinking == "provider" and facts.model.thinking_is_bound:
        head["thinking"] = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
        betas.append(_BINDING_BETA)
    if stream:
        head["stream"] = True
    return Request(protocol, _anthropic(head, front, groups, view, settings.cache_ttl), tuple(groups), tuple(betas))


def _provider_clearing(facts: Facts) -> dict[str, Any]:
    """Our clearing by size, said in the provider's words (TURN-4c)."""
    settings, limits = facts.settings, facts.limits
    return {
        "type": "clear_tool_uses_20250919",
        "trigger": {"type": "input_tokens", "value": limits.trigger - facts.reach_tokens},
        "keep": {"type": "tool_uses", "value": settings.microcompact_keep_last},
        "clear_at_least": {"type": "input_tokens", "value": limits.scaled(settings.microcompact_min_saved_tokens)},
    }


def _anthropic(head: dict[str, Any], front: Front, groups: list[Group], view: View, ttl: str) -> bytes:
    marker = b',"cache_control":{"type":"ephemeral"%b}}' % (b',"ttl":"1h"' if ttl == "1h" else b"")
    pieces = [encode(head)[:-1]]
    tools = [_unmarked(bytes(raw)) for raw in front.tools]
    system = [_unmarked(bytes(raw)) for raw in front.system]
    stable = len(system) if front.dynamic_from is None else front.dynamic_from
    if tools:
        if not stable:
            tools[-1] = _marked(tools[-1], marker)
        pieces.append(b',"tools":[' + b",".join(tools) + b"]")
    if system:
        if stable:
            system[stable - 1] = _marked(system[stable - 1], marker)
        pieces.append(b',"system":[' + b",".join(system) + b"]")
    marks = _breakpoints(groups, view.sent)
    # Everything before the first breakpoint is finished, and joined already but for what the last turn brought.
    finished = max(0, min(marks, default=0) - 1)
    messages = [_encoded(group, marks.get(n), marker) for n, group in enumerate(groups[finished:], finished)]
    start = joined(view, "anthropic", groups, finished, _plain)
    pieces += [b',"messages":[', start, b"," if finished else b"", b",".join(messages), b"]}"]
    return b"".join(pieces)


def _unmarked(raw: bytes) -> bytes:
    if b'"cache_control"' not in raw:
        return raw
    fields = msgspec.json.decode(raw)
    fields.pop("cache_control", None)
    return encode(fields)


def _marked(raw: bytes, marker: bytes) -> bytes:
    """A block with a breakpoint on it, its own bytes untouched."""
    return raw.rstrip()[:-1] + marker


def _encoded(group: Group, marked: int | None, marker: bytes) -> bytes:
    """An API message; only the few that carry a breakpoint are joined anew."""
    if marked is None:
        return _plain(group)
    raws = [part.raw for part in group.parts()]
    raws[marked] = _marked(raws[marked], marker)
    return _message(group.role, raws)


def _plain(group: Group) -> bytes:
    done = group.encoded.get("anthropic")
    if done is None:
        done = group.encoded["anthropic"] = _message(group.role, [part.raw for part in group.parts()])
    return done


def _message(role: str, raws: list[bytes]) -> bytes:
    return b'{"role":"%b","content":[' % role.encode() + b",".join(raws) + b"]}"


def _breakpoints(groups: list[Group], sent: int) -> dict[int, int]:
    """Group number to block number of each breakpoint in the messages: at most three (the front has one).

    The end of what was sent before (to read it from the cache), the end of the request (to write it), and, when more
    blocks lie between than a breakpoint looks back over, one on the way.
    """
    marks: dict[int, int] = {}
    tail = _last_cacheable(groups, len(groups) - 1)
    if tail is None:
        return marks
    marks[tail[0]] = tail[1]
    numbers = range(len(groups) - 1, -1, -1)
    before = next((n for n in numbers if groups[n].role == "user" and groups[n].first < sent), None)
    stable = None if before is None else _last_cacheable(groups, before)
    if stable is not None and stable[0] not in marks:
        marks[stable[0]] = stable[1]
        between = sum(len(g.blocks) + len(g.results) for g in groups[stable[0] + 1 : tail[0] + 1])
        if between >= LOOKBACK_BLOCKS and tail[0] - 1 > stable[0]:
            way = _last_cacheable(groups, tail[0] - 1)
            if way is not None and way[0] > stable[0]:
                marks[way[0]] = way[1]
    return marks


def _last_cacheable(groups: list[Group], number: int) -> tuple[int, int] | None:
    """The last block at or before a group that may carry a breakpoint."""
    for index in range(number, -1, -1):
        group = groups[index]
        for block in range(len(group.blocks) - 1, -1, -1):
            if group.blocks[block].kind not in _NEVER_CACHED:
                return index, len(group.results) + block
        if group.results:
            return index, len(group.results) - 1
    return None
