"""Conversations of the Responses API, which a client names instead of saying what was said before (GW-6).

What was said stands in the journal of a session, as with any client. Kept of a conversation is the answer that it has
come to, and the items that were added behind it. A request that names one is read as one that goes on from that answer
with these items, so the upstream never hears of it.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

import anyio
import msgspec
from msgspec.structs import replace

from perdure.errors import JournalError, MalformedBlock
from perdure.gateway.requests import UNREADABLE, ConversationTurn, Unmanageable, fields_of, list_of
from perdure.gateway.responses import input_items
from perdure.gateway.stored import StoredResponse, item_page, listed_items
from perdure.ports.home import Documents
from perdure.transcript.response_items import item_kind, message_of_items

CONVERSATIONS: Final = "conversations"  # the kind of document that they are kept as
MOST_ITEMS: Final = 20  # that may be added at a time
_PATH = re.compile(r"(?:/openai)?(?:/v1)?/conversations(?:/(?P<id>[^/]+)(?P<items>/items(?:/(?P<item>[^/]+))?)?)?\Z")
_OURS = re.compile(r"conv_[0-9a-f]{48}\Z")
_OF_ONE = frozenset({"items", "metadata"})  # what a new conversation may be told; other APIs have this path, too

Data = dict[str, Any]


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """One conversation: the answer that it has come to, if any, and the items behind that."""

    id: str
    created_at: int
    metadata: dict[str, str] = {}
    last: str = ""
    added: tuple[msgspec.Raw, ...] = ()
    version: int = 0  # another one wherever what was there before isn't there any more, or elsewhere

    def told(self) -> bytes:
        """The conversation as the API gives it."""
        known = {"id": self.id, "object": "conversation", "created_at": self.created_at, "metadata": self.metadata}
        return msgspec.json.encode(known)


def joined(body: bytes, known: Conversation) -> tuple[bytes, ConversationTurn]:
    """A body that names a conversation as one that names none. Raises `Unmanageable`."""
    fields = fields_of(body)
    if bytes(fields.get("previous_response_id", b"null")) != b"null":
        raise Unmanageable("conversation")  # the API allows one of them
    said = input_items(fields.get("input"))
    fields = {name: raw for name, raw in fields.items() if name not in ("conversation", "previous_response_id")}
    fields["input"] = msgspec.Raw(b"[%b]" % b",".join(bytes(raw) for raw in (*known.added, *said)))
    if known.last:
        fields["previous_response_id"] = msgspec.Raw(msgspec.json.encode(known.last))
    new = tuple(raw for raw in said if b"compaction_trigger" not in bytes(raw) or not _is_trigger(raw))
    return msgspec.json.encode(fields), ConversationTurn(known.id, known.version, len(known.added), new)


def _is_trigger(raw: msgspec.Raw) -> bool:
    try:
        return item_kind(raw)[0] == "compaction_trigger"
    except MalformedBlock:
        return False


class Conversations:
    """A tenant's conversations, each a document of its home."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._turn = anyio.Lock()  # whoever has lost against another process begins anew; here they wait

    async def get(self, identity: str) -> Conversation | None:
        """A conversation by its id; None for one that isn't known here."""
        return (await self._read(identity))[0] if _OURS.match(identity) else None

    async def create(self, items: Iterable[msgspec.Raw], metadata: dict[str, str], now: float) -> Conversation:
        """A new one. Raises `JournalError` where it can't be kept."""
        identity = f"conv_{secrets.token_hex(24)}"
        made = Conversation(id=identity, created_at=int(now), metadata=metadata, added=tuple(items))
        await self._documents.put(identity, msgspec.json.encode(made), instead_of=None)
        return made

    async def change(self, identity: str, change: Callable[[Conversation], Conversation]) -> Conversation | None:
        """Change one, durably; None when it is gone. Raises `JournalError` where that can't be kept."""
        async with self._turn:
            while True:
                known, version = await self._read(identity)
                if known is None:
                    return None
                known = change(known)
                if await self._documents.put(identity, msgspec.json.encode(known), instead_of=version) is not None:
                    return known

    async def answered(self, turn: ConversationTurn, response: str, output: Iterable[bytes]) -> None:
        """An answer is over: what was asked and answered joins the conversation.

        Where the conversation is what it was when it was asked, it has come to that answer. Otherwise, or where the
        session doesn't have the answer (`response` is empty), its items are added behind what is there by now.
        """

        def gone_on(known: Conversation) -> Conversation:
            if response and known.version == turn.version:
                return replace(known, last=response, added=known.added[turn.added :], version=known.version + 1)
            return replace(known, added=(*known.added, *turn.items, *map(msgspec.Raw, output)))

        with anyio.CancelScope(shield=True):
            await self.change(turn.id, gone_on)

    async def delete(self, identity: str) -> None:
        """Forget one; what was said stays in its session."""
        async with self._turn:
            await self._documents.delete(identity)

    async def _read(self, identity: str) -> tuple[Conversation | None, str | None]:
        kept = await self._documents.get(identity)
        if kept is None:
            return None, None
        try:
            return msgspec.json.decode(kept.data, type=Conversation), kept.version
        except UNREADABLE as e:
            raise JournalError(f"{identity}: {e}: the conversation can't be read") from e


# --- what clients ask about them --------------------------------------------------------------------------------------


class ConversationRefused(Exception):
    """What a client asked for can't be done: a status, and why."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class ConversationCall(NamedTuple):
    """What is asked: of all conversations, of one, of its items, or of one of these."""

    method: str
    conversation: str
    of_items: bool
    item: str

    @classmethod
    def of(cls, method: str, path: str) -> ConversationCall | None:
        """The call that a path means; None for one that is about no conversation."""
        found = _PATH.match(path)
        return found and cls(method, found["id"] or "", found["items"] is not None, found["item"] or "")

    @property
    def is_openais(self) -> bool:
        """Whether it is about a conversation that OpenAI's API would have made."""
        return _OURS.match(self.conversation) is not None


async def conversation_answer(
    kept: Conversations,
    stored: Callable[[str], Any],
    call: ConversationCall,
    body: bytes,
    query: Mapping[str, str],
    now: float,
) -> bytes | None:
    """What is answered to a call; None where it is about a conversation that isn't known here.

    `stored` gives the answer of an id, with what it answered. Raises `ConversationRefused` and `JournalError`.
    """
    if not call.conversation:
        fields = _fields(body)
        if call.method != "POST" or not fields.keys() <= _OF_ONE:
            return None
        return (await kept.create(_new_items(fields), _metadata(fields), now)).told()
    known = await kept.get(call.conversation)
    if known is None:
        return None
    if not call.of_items:
        if call.method == "DELETE":
            await kept.delete(known.id)
            return msgspec.json.encode({"id": known.id, "object": "conversation.deleted", "deleted": True})
        if call.method == "POST":
            metadata = _metadata(_fields(body))
            return _still(await kept.change(known.id, lambda one: replace(one, metadata=metadata)), known).told()
        return known.told()
    said: StoredResponse | None = await stored(known.last) if known.last else None
    raws = [*(said.all_items() if said else ()), *map(bytes, known.added)]
    if call.item:
        return await _about_item(kept, known, raws, call)
    if call.method == "POST":
        new = _new_items(_fields(body))
        _still(await kept.change(known.id, lambda one: replace(one, added=(*one.added, *new))), known)
        added = listed_items([*raws, *map(bytes, new)])[len(raws) :]
        return item_page(added, {"limit": str(MOST_ITEMS), "order": "asc"})
    return item_page(listed_items(raws), query)


async def _about_item(kept: Conversations, known: Conversation, raws: list[bytes], call: ConversationCall) -> bytes:
    items = listed_items(raws)
    place = next((n for n, item in enumerate(items) if item["id"] == call.item), None)
    if place is None:
        raise ConversationRefused(404, f"Item '{call.item}' not found in conversation '{known.id}'.")
    if call.method != "DELETE":
        return msgspec.json.encode(items[place])
    rest = tuple(map(msgspec.Raw, (*raws[:place], *raws[place + 1 :])))

    def without(one: Conversation) -> Conversation:
        if one.version != known.version:
            raise ConversationRefused(409, "The conversation went on meanwhile; delete the item again.")
        behind = one.added[len(known.added) :]
        return replace(one, last="", added=(*rest, *behind), version=one.version + 1)

    return _still(await kept.change(known.id, without), known).told()


def _still(changed: Conversation | None, known: Conversation) -> Conversation:
    if changed is None:
        raise ConversationRefused(404, f"Conversation with id '{known.id}' not found.")
    return changed


def _fields(body: bytes) -> dict[str, msgspec.Raw]:
    try:
        return fields_of(body) if body.strip() else {}
    except Unmanageable:
        raise ConversationRefused(400, "the body is no JSON object") from None


def _metadata(fields: Mapping[str, msgspec.Raw]) -> dict[str, str]:
    try:
        return msgspec.json.decode(fields.get("metadata", b"null"), type=dict[str, str] | None) or {}
    except UNREADABLE:
        raise ConversationRefused(400, "Invalid type for 'metadata': write it as an object of strings.") from None


def _new_items(fields: Mapping[str, msgspec.Raw]) -> list[msgspec.Raw]:
    raw = fields.get("items")
    try:
        items = [] if raw is None or bytes(raw) == b"null" else list_of(raw)
    except Unmanageable:
        raise ConversationRefused(400, "Invalid type for 'items': write it as a list of items.") from None
    if len(items) > MOST_ITEMS:
        raise ConversationRefused(400, f"Invalid 'items': at most {MOST_ITEMS} may be added at a time.")
    for number, item in enumerate(items):
        try:
            message_of_items([item])
        except MalformedBlock as e:
            raise ConversationRefused(400, f"Invalid 'items[{number}]': {e}") from None
        if item_kind(item)[0] in ("item_reference", "compaction_trigger"):
            raise ConversationRefused(400, f"Invalid 'items[{number}]': say the item itself.")
    return [msgspec.Raw(bytes(item)) for item in items]
