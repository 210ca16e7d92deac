"""Responses that a client asks for again, from the journals of its tenant's sessions (GW-6).

A response that goes on from another one is stored nowhere else, since its upstream is sent the whole history and told
to keep nothing. What was deleted is remembered by its id: nobody gets it again, and no response goes on from it.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from perdure.transcript.blocks import ToolResult, ToolUse
from perdure.transcript.history import begun_answer
from perdure.transcript.messages import Message, Usage
from perdure.transcript.records import Cursor, Front, Record, Rewound
from perdure.transcript.response_items import KEPT_ITEM, items_in_front, items_of, response_tool

DELETED: Final = "deleted-responses"  # the kind of document that is kept for each of them
DEFAULT_PAGE: Final = 20
MOST_PAGE: Final = 100
_MOST_DIGITS: Final = 18
_STARTS: Final = {"message": "msg"}  # of ids; clients tell by them what an item is
_UNFINISHED: Final = {
    "max_tokens": "max_output_tokens", "model_context_window_exceeded": "max_output_tokens", "refusal": "content_filter"
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """An answer, and the conversation that it answered, oldest first."""

    id: str
    asked: tuple[Message, ...]
    said: tuple[Message, ...]
    used: tuple[Usage, ...]  # for each answer of the model that made the one
    front: Front | None

    def response(self) -> dict[str, Any]:
        """The response as the API gives it; what only its request said is as by default."""
        last = self.said[-1] if self.said else self.asked[-1]
        broken = None if self.said else {"code": "server_error", "message": "the answer broke off before its end"}
        reason = _UNFINISHED.get(last.stop_reason or "")
        made = (response_tool(bytes(raw)) for raw in (self.front.tools if self.front else ()))
        tools = [tool for tool in made if tool]
        return {
            "id": self.id,
            "object": "response",
            "created_at": int(last.at or 0),
            "status": "failed" if broken else "incomplete" if reason else "completed",
            "error": broken,
            "incomplete_details": {"reason": reason} if reason else None,
            "model": last.model,
            "instructions": None,
            "tools": [msgspec.Raw(tool) for tool in tools],
            "tool_choice": "auto",
            "parallel_tool_calls": True,
            "previous_response_id": None,
            "store": True,
            "metadata": {},
            "output": [msgspec.Raw(raw) for message in self.said for raw in items_of(message.role, message.content)],
            "usage": _usage(self.used),
        }

    def input_items(self) -> list[bytes]:
        """What the answer was given."""
        front = items_in_front(self.front) if self.front else ()
        first = [msgspec.json.encode(msgspec.json.decode(raw)[KEPT_ITEM]) for raw in front]
        return [*first, *(raw for message in self.asked for raw in items_of(message.role, message.content))]

    def all_items(self) -> list[bytes]:
        """The same, and what was answered."""
        said = (raw for message in self.said for raw in items_of(message.role, message.content))
        return [*self.input_items(), *said]


def listed_items(raws: Iterable[bytes]) -> list[dict[str, Any]]:
    """Items as the API lists them. One that came without an id has one here, by what it says and how many said the
    same before it, so that it keeps that when others go."""
    items: list[dict[str, Any]] = []
    same: Counter[bytes] = Counter()
    for raw in raws:
        item: dict[str, Any] = msgspec.json.decode(raw)
        kind = item.setdefault("type", "message")
        if kind == "message" and isinstance(item.get("content"), str):
            part = "output_text" if item.get("role") == "assistant" else "input_text"
            item["content"] = [{"type": part, "text": item["content"]}]
        if not isinstance(item.get("id"), str):
            said = msgspec.json.encode(item, order="sorted")
            item["id"] = f"{_STARTS.get(kind, 'item')}_{hashlib.sha256(b'%d ' % same[said] + said).hexdigest()[:48]}"
            same[said] += 1
        items.append(item)
    return items


def number_in(text: str, default: int) -> int:
    """The number that a query says; the default for anything else, such as one that no list is as long as."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else default


def item_page(items: list[dict[str, Any]], asked: Mapping[str, str]) -> bytes:
    """The page of items that a query asks for; what can't be read of it is as if it weren't there."""
    limit = min(number_in(asked.get("limit", ""), 0), MOST_PAGE) or DEFAULT_PAGE
    ordered = items if asked.get("order") == "asc" else items[::-1]
    first = next((at + 1 for at, item in enumerate(ordered) if item["id"] == asked.get("after")), 0)
    page = ordered[first : first + limit]
    ids = [item["id"] for item in page] or [None]
    more = first + limit < len(items)
    told = {"object": "list", "data": page, "first_id": ids[0], "last_id": ids[-1], "has_more": more}
    return msgspec.json.encode(told)


def deletion(response: str) -> bytes:
    """What a client is told of a response that it had deleted."""
    return msgspec.json.encode({"id": response, "object": "response", "deleted": True})


def stored_response(records: Iterable[Record | None], response: str, hidden: str) -> StoredResponse | None:
    """The answer of this id in a journal; None where it isn't. One that broke off says nothing.

    `hidden` is the note of results of calls that the client never sees: an answer for which something was recalled is
    several in the journal, with these between them (GW-8).
    """
    spoken: list[Message] = []
    front: Front | None = None
    is_found, broken = False, None
    for record in records:
        match record:
            case Message() if record.agent_id is None and record.origin != "reminder":
                is_found = is_found or record.response_id == response
                spoken.append(record)
            case Rewound():
                if is_found:
                    break  # what was taken back was given all the same
                at = next((n for n, message in enumerate(spoken) if message.id == record.to), None)
                spoken = spoken if at is None else spoken[: at + 1]
            case Front() if not is_found:
                front = record
            case Cursor() if (begun := begun_answer(record)) is not None and begun[1] == response:
                at = next((n for n, message in enumerate(spoken) if message.id == begun[0].message), -1)
                broken = StoredResponse(response, _shown(spoken[: at + 1], hidden), (), (), front)
            case _:
                pass
    if not is_found:
        return broken
    begin = next(n for n, message in enumerate(spoken) if message.response_id == response)
    end = begin + 1
    while begin > 0 and _go_together(spoken[begin - 1], spoken[begin], hidden):
        begin -= 1
    while end < len(spoken) and _go_together(spoken[end - 1], spoken[end], hidden):
        end += 1
    asked, said = _shown(spoken[:begin], hidden), _shown(spoken[begin:end], hidden)
    used = {message.response_id: message.usage for message in spoken[begin:end] if message.usage is not None}
    return StoredResponse(response, asked, said, tuple(used.values()), front)


def _go_together(before: Message, after: Message, hidden: str) -> bool:
    """Whether two messages are of one answer; also where something was recalled for it behind the client's back."""
    are_ours = all(message.note == hidden or message.model is not None for message in (before, after))
    return are_ours and (hidden in (before.note, after.note) or before.response_id == after.response_id)


def _shown(messages: Sequence[Message], hidden: str) -> tuple[Message, ...]:
    """What a client sees: without hidden results, and the calls for them."""
    calls = {
        block.value.tool_use_id
        for message in messages
        for block in (message.blocks if message.note == hidden else ())
        if isinstance(block.value, ToolResult)
    }
    shown: list[Message] = []
    for message in messages:
        kept = tuple(
            raw
            for raw, block in zip(message.content, message.blocks, strict=True)
            if not (isinstance(block.value, ToolUse) and block.value.id in calls)
        )
        if kept and message.note != hidden:
            shown.append(message if len(kept) == len(message.content) else replace(message, content=kept))
    return tuple(shown)


def _usage(told: Sequence[Usage]) -> dict[str, Any] | None:
    """Usage as the API says it, of all answers of the model that made the one."""
    if not told:
        return None
    read = sum(one.cache_read_input_tokens for one in told)
    written = sum(one.cache_creation_input_tokens for one in told)
    prompt, output = sum(one.prompt_tokens for one in told), sum(one.output_tokens for one in told)
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": read, "cache_write_tokens": written},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": prompt + output,
    }
