"""Recall for clients: a tool of ours in their requests, whose calls are answered here, unseen by them (GW-8, RCL-3)."""

from __future__ import annotations

from collections.abc import Sequence

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

MOST_ROUNDS = 8  # in which an answer may recall; then the model is asked without the tool, so that it answers
_NAMES = (RECALL_TOOL, *(f"perdure{number or ''}__{RECALL_TOOL}" for number in (0, *range(2, 10))))
_LEAST_CHARS = 600
_CHARS_PER_TOKEN = 3
LINKED = "those that its client says belong to it"  # the sessions that a client's model can look into
NO_ROOM = "recall failed: there is no room for it now. Ask for a part of it, or go on without."


def tool_name(side: ClientProtocol, tools: Sequence[msgspec.Raw], before: str) -> str:
    """The name under which these tools of a client get ours: the one that it had before, unless it is the client's.

    Empty where the client offers no tools, or as many as its server takes.
    """
    if not tools or side.is_full(len(tools)):
        return ""
    taken = {side.tool_name(bytes(tool)).lower() for tool in tools}
    return next((name for name in (before, *_NAMES) if name and name not in taken), "")


def name_in(front: Front | None, side: ClientProtocol) -> str:
    """The name that our tool has in a front, as its last tool; empty where it isn't."""
    last = bytes(front.tools[-1]) if front is not None and front.tools else b""
    return next((name for name in _NAMES if RECALL_TOOL.encode() in last and last == side.recall_tool(name)), "")


def with_tool(side: ClientProtocol, incoming: ClientRequest, name: str) -> bytes:
    """The client's body with our tool behind its own; every other field and message keeps its bytes."""
    fields, taken = dict(incoming.fields), incoming.taken
    if taken is not None and isinstance(taken.messages, MessageSlices):
        messages = taken.messages
        fields[side.array] = msgspec.Raw(b"[" + messages.body[taken.start : messages.ends[-1]] + b"]")
    fields["tools"] = _extended(fields["tools"], side.sent_tool(name))
    return msgspec.json.encode(fields)


def going_on(side: ClientProtocol, body: bytes, said: Sequence[Message], *, has_tool: bool) -> bytes:
    """The request that follows an answer with calls of ours: what was sent, the answer, and their results.

    Without `has_tool`, our tool, which is the last, isn't offered any more.
    """
    fields = fields_of(body)
    array, is_stored = fields[side.array], bytes(fields.get("store", b"")) != b"false"
    if bytes(array).lstrip()[:1] == b'"':  # what is asked may be a text alone
        array = msgspec.Raw(b'[{"role":"user","content":' + bytes(array) + b"}]")
    fields[side.array] = _extended(array, messages_alone(said, side.protocol, is_stored=is_stored))
    if not has_tool:
        fields["tools"] = msgspec.Raw(msgspec.json.encode(list_of(fields["tools"])[:-1]))
    return msgspec.json.encode(fields)


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
    return msgspec.structs.replace(front, tools=front.tools[:-1]) if name_in(front, side) else front
