"""Recall for clients: a tool of ours in their requests, whose calls are answered here, unseen by them (GW-8, RCL-3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from perdure.context.reminders import neutralised_result
from perdure.context.request import messages_alone
from perdure.engine.session import LiveSession
from perdure.engine.tools import recall_answer
from perdure.gateway.requests import ClientProtocol, ClientRequest, MessageSlices, fields_of, list_of
from perdure.recall.queries import LIMIT_CHARS, RECALL_TOOL
from perdure.transcript.blocks import Block, ToolUse, block_of
from perdure.transcript.messages import Message
from perdure.transcript.records import Front
from perdure.transcript.response_items import KEPT_ITEM, carries_tools, front_tools, with_carried, without_carried

MOST_ROUNDS = 8  # in which an answer may recall; then the model is asked without the tool, so that it answers
_NAMES = (RECALL_TOOL, *(f"perdure{number or ''}__{RECALL_TOOL}" for number in (0, *range(2, 10))))
_LEAST_CHARS = 600
_CHARS_PER_TOKEN = 3
LINKED = "those that its client says belong to it"  # the sessions that a client's model can look into
NO_ROOM = "recall failed: there is no room for it now. Ask for a part of it, or go on without."


def tool_name(side: ClientProtocol, front: Front, before: str) -> str:
    """The name under which the tools of a client get ours: the one that it had before, unless it is the client's.

    Empty where the client offers no tools, or as many as its server takes.
    """
    tools = front_tools(front)
    if not tools or side.is_full(len(tools)):
        return ""
    taken = {side.tool_name(tool).lower() for tool in tools}
    return next((name for name in (before, *_NAMES) if name and name not in taken), "")


def name_in(front: Front | None, side: ClientProtocol) -> str:
    """The name that our tool has in a front, behind the client's; empty where it isn't."""
    if front is None:
        return ""
    offered = [bytes(raw) for raw in (*front.tools[-1:], *filter(carries_tools, front.system))]
    offered = [raw for raw in offered if RECALL_TOOL.encode() in raw]
    return next((name for name in _NAMES if any(_is_in(one, side, name) for one in offered)), "")


def _is_in(offered: bytes, side: ClientProtocol, name: str) -> bool:
    return offered == side.recall_tool(name) or side.sent_tool(name) in offered


def front_with_tool(front: Front, side: ClientProtocol, name: str) -> Front:
    """Add our tool behind the client's, where those are: in `tools`, or else in the item that carries them."""
    carriers = [n for n, block in enumerate(front.system) if carries_tools(block)]
    if front.tools or not carriers:
        return msgspec.structs.replace(front, tools=(*front.tools, msgspec.Raw(side.recall_tool(name))))
    block = msgspec.json.decode(front.system[carriers[-1]], type=dict[str, msgspec.Raw])
    (item,) = with_carried([bytes(block[KEPT_ITEM])], side.sent_tool(name))
    changed = msgspec.Raw(msgspec.json.encode({**block, KEPT_ITEM: msgspec.Raw(item)}))
    return msgspec.structs.replace(
        front, system=(*front.system[: carriers[-1]], changed, *front.system[carriers[-1] + 1 :])
    )


def with_tool(side: ClientProtocol, incoming: ClientRequest, name: str) -> bytes:
    """The client's body with our tool behind its own; every other field and message keeps its bytes."""
    fields, taken = dict(incoming.fields), incoming.taken
    lead = [] if incoming.tools else with_carried([bytes(raw) for raw in incoming.lead], side.sent_tool(name))
    if taken is not None and isinstance(taken.messages, MessageSlices):
        messages = taken.messages
        start = messages.begins[len(lead)] if lead else taken.start
        pieces = [*lead, messages.body[start : messages.ends[-1]]]
        fields[side.array] = msgspec.Raw(b"[" + b",".join(pieces) + b"]")
    elif taken is not None and lead:
        pieces = [*lead, *(bytes(raw) for raw in taken.messages[len(lead) :])]
        fields[side.array] = msgspec.Raw(b"[" + b",".join(pieces) + b"]")
    if incoming.tools:
        fields["tools"] = _extended(fields["tools"], side.sent_tool(name))
    return msgspec.json.encode(with_permit(fields, name))


def with_permit(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The fields of a body whose tool choice, where it permits only some tools, permits ours as well."""
    asked = fields.get("tool_choice")
    choice = msgspec.json.decode(asked) if asked is not None and b"allowed_tools" in bytes(asked) else None
    if not isinstance(choice, dict) or choice.get("type") != "allowed_tools":
        return dict(fields)
    inner = choice.get("allowed_tools")  # of Chat Completions, which names a function one level deeper
    permits, ours = (choice, {"name": name}) if inner is None else (inner, {"function": {"name": name}})
    if isinstance(permits, dict) and isinstance(permits.get("tools"), list):
        permits["tools"].append({"type": "function", **ours})
    return {**fields, "tool_choice": msgspec.Raw(msgspec.json.encode(choice))}


def going_on(
    side: ClientProtocol, body: bytes, said: Sequence[Message], ours: str, incoming: ClientRequest, *, has_tool: bool
) -> bytes:
    """The request that follows an answer with calls of ours: what was sent, the answer, and their results.

    Without `has_tool`, our tool isn't offered any more.
    """
    fields = fields_of(body)
    if not has_tool:
        fields |= {name: raw for name, raw in incoming.fields.items() if name == "tool_choice"}
        fields |= _without_tool(fields, side, ours)
    array, is_stored = fields[side.array], bytes(fields.get("store", b"")) != b"false"
    if bytes(array).lstrip()[:1] == b'"':  # what is asked may be a text alone
        array = msgspec.Raw(b'[{"role":"user","content":' + bytes(array) + b"}]")
    fields[side.array] = _extended(array, messages_alone(said, side.protocol, is_stored=is_stored))
    return msgspec.json.encode(fields)


def _without_tool(fields: Mapping[str, msgspec.Raw], side: ClientProtocol, ours: str) -> dict[str, msgspec.Raw]:
    """The field of a body in which our tool is, without it."""
    tools = list_of(fields.get("tools"))
    if tools and side.tool_name(bytes(tools[-1])) == ours:
        return {"tools": msgspec.Raw(msgspec.json.encode(tools[:-1]))}
    return {side.array: msgspec.Raw(without_carried(bytes(fields[side.array]), side.sent_tool(ours)))}


def _extended(array: msgspec.Raw, items: bytes) -> msgspec.Raw:
    """An array that isn't empty with items behind its own."""
    return msgspec.Raw(bytes(array).rstrip()[:-1] + b"," + items + b"]")


async def results_of(
    session: LiveSession, calls: Sequence[ToolUse], linked: Sequence[str], sent_tokens: int
) -> list[Block]:
    """The results of calls of the recall tool, as long together as there is room behind a request of that size."""
    room = (session.limits.block - sent_tokens) * _CHARS_PER_TOKEN // max(1, len(calls))
    limit = max(_LEAST_CHARS, min(LIMIT_CHARS, room))
    texts = [await recall_answer(session, call.input, within=linked, limit_chars=limit) for call in calls]
    return [result_of(call.id, text) for call, text in zip(calls, texts, strict=True)]


def result_of(call: str, text: str) -> Block:
    """The result of a call of ours, as it goes up."""
    block = block_of({"type": "tool_result", "tool_use_id": call, "content": text})
    return Block(neutralised_result(block.raw))


def without_tool(front: Front, side: ClientProtocol) -> Front:
    """A front without our tool."""
    name = name_in(front, side)
    if not name:
        return front
    if front.tools and bytes(front.tools[-1]) == side.recall_tool(name):
        return msgspec.structs.replace(front, tools=front.tools[:-1])
    system = (msgspec.Raw(without_carried(bytes(block), side.sent_tool(name))) for block in front.system)
    return msgspec.structs.replace(front, system=tuple(system))
