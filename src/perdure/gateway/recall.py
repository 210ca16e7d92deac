"""Recall for clients: a tool of ours in their requests, whose calls are answered here, unseen by them (GW-8, RCL-3)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

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
_NAME_HEADERS = (b"x-perdure-session", b"x-claude-code-session-id", b"session_id", b"session-id", b"conversation_id")
_NAME_CHARS = 200
_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_USERS_SESSION = re.compile(rf"session(?:_|_id\W+)({_UUID})")  # Claude Code's `user_…_session_…`, and its JSON
# An id that was drawn for one conversation: a UUID, or as long a word of letters and digits.
_DRAWN = re.compile(rf"{_UUID}|(?<![A-Za-z0-9])(?=[A-Za-z0-9]*[0-9])(?=[A-Za-z0-9]*[A-Za-z])[A-Za-z0-9]{{20,}}")
_LEAST_CHARS = 600
_CHARS_PER_TOKEN = 3
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
    fields["tools"] = _extended(fields["tools"], side.recall_tool(name))
    return msgspec.json.encode(fields)


def going_on(side: ClientProtocol, body: bytes, said: Sequence[Message], *, has_tool: bool) -> bytes:
    """The request that follows an answer with calls of ours: what was sent, the answer, and their results.

    Without `has_tool`, our tool, which is the last, isn't offered any more.
    """
    fields = fields_of(body)
    fields[side.array] = _extended(fields[side.array], messages_alone(said, side.protocol))
    if not has_tool:
        fields["tools"] = msgspec.Raw(msgspec.json.encode(list_of(fields["tools"])[:-1]))
    return msgspec.json.encode(fields)


def _extended(array: msgspec.Raw, items: bytes) -> msgspec.Raw:
    """An array that isn't empty with items behind its own."""
    return msgspec.Raw(bytes(array).rstrip()[:-1] + b"," + items + b"]")


def client_session(headers: Iterable[tuple[bytes, bytes]], incoming: ClientRequest) -> str:
    """The client's own id of its session, by which its histories belong together; empty where it sends none.

    A client that compacts its history itself, or clears it, begins a new one under the same id. Only what names a
    session counts: a key for the cache, or a person, may be shared by conversations that mustn't see each other.
    """
    given = {name: value.decode("latin-1")[:_NAME_CHARS] for name, value in headers if name in _NAME_HEADERS}
    for header in _NAME_HEADERS:
        if given.get(header, "").strip():
            return given[header].strip()
    metadata = incoming.value("metadata")
    user = metadata.get("user_id") if isinstance(metadata, dict) else None
    if isinstance(user, str) and (found := _USERS_SESSION.search(user)):
        return found[1]
    conversation = incoming.value("conversation")
    conversation = conversation.get("id") if isinstance(conversation, dict) else conversation
    for given_id in (conversation, incoming.value("prompt_cache_key")):
        if isinstance(given_id, str) and (given_id is conversation or _DRAWN.search(given_id)):
            return given_id[:_NAME_CHARS]
    return ""


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
