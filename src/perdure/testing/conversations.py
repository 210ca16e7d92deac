"""Conversations of the fake upstream's Responses API: made, read, changed, and added to by answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, NoReturn

import msgspec

from perdure.testing.block_rules import Violation
from perdure.testing.responses_rules import check_item, kind_of

Json = dict[str, Any]
MOST_ITEMS = 20  # that may be added at a time


@dataclass(slots=True)
class KeptConversation:
    """A conversation, oldest item first."""

    metadata: Json = field(default_factory=dict)
    items: list[bytes] = field(default_factory=list)


@dataclass(slots=True)
class FakeConversations:
    """`/v1/conversations`. `refuse` raises for what breaks a rule, with a status."""

    refuse: Callable[[Sequence[Violation], int], NoReturn]
    account: str = ""
    kept: dict[str, KeptConversation] = field(default_factory=dict)

    def respond(self, method: str, path: str, body: bytes, query: Mapping[str, str]) -> Json:
        """Answer a request below `/v1/conversations`."""
        identity, _, rest = path.strip("/").partition("/")
        asked = msgspec.json.decode(body) if body else {}
        match method, identity, rest:
            case "POST", "", "":
                of_account = sha256(f"{self.account} {len(self.kept)}".encode())
                identity = f"conv_{of_account.hexdigest()[:48]}"
                self.kept[identity] = KeptConversation(asked.get("metadata") or {}, self._new(asked))
                return self._told(identity)
            case "GET", _, "":
                return self._told(identity)
            case "POST", _, "":
                self.of(identity).metadata = asked["metadata"]
                return self._told(identity)
            case "DELETE", _, "":
                self.of(identity)
                del self.kept[identity]
                return {"id": identity, "object": "conversation.deleted", "deleted": True}
            case "POST", _, "items":
                kept, new = self.of(identity).items, self._new(asked)
                kept += new
                return item_page(shown_items(kept)[-len(new) :], newest_first=False)
            case "GET", _, "items":
                items, newest_first = shown_items(self.of(identity).items), query.get("order") != "asc"
                limit = int(query.get("limit") or 20)
                return item_page(items, after=query.get("after", ""), limit=limit, newest_first=newest_first)
            case _ if rest.startswith("items/"):
                return self._item(method, identity, rest.removeprefix("items/"))
        self.refuse([Violation("path", "", f"Invalid URL ({method} {path})")], 404)

    def of(self, identity: str) -> KeptConversation:
        """The conversation of that id."""
        if identity not in self.kept:
            said = f"Conversation with id '{identity}' not found."
            self.refuse([Violation("conversation", "", said)], 404)
        return self.kept[identity]

    def _told(self, identity: str) -> Json:
        known = {"id": identity, "object": "conversation", "created_at": 0}
        return {**known, "metadata": self.of(identity).metadata}

    def _item(self, method: str, identity: str, item: str) -> Json:
        kept = self.of(identity)
        found = {one["id"]: at for at, one in enumerate(shown_items(kept.items))}
        if item not in found:
            said = f"Item '{item}' not found in conversation '{identity}'."
            self.refuse([Violation("conversation_item", "", said)], 404)
        if method == "GET":
            return shown_items(kept.items)[found[item]]
        del kept.items[found[item]]
        return self._told(identity)

    def _new(self, asked: Json) -> list[bytes]:
        items = asked.get("items") or []
        broken = [one for at, item in enumerate(items) for one in check_item(item, f"items[{at}]")]
        if len(items) > MOST_ITEMS:
            said = f"Invalid 'items': array too long. Expected an array with maximum length {MOST_ITEMS}."
            broken.append(Violation("field_value", "items", said))
        if broken:
            self.refuse(broken, 400)
        return [msgspec.json.encode(item) for item in items]


def shown_items(raws: Iterable[bytes]) -> list[Json]:
    """Items as they are listed: each with an id, messages with their parts."""
    items: list[Json] = []
    for at, raw in enumerate(raws):
        item = msgspec.json.decode(raw)
        digest = sha256(b"%d " % at + raw).hexdigest()[:9]
        shown: Json = {"id": f"msg_{digest}" if kind_of(item) == "message" else f"item_{digest}", **item}
        if kind_of(item) == "message":
            shown["type"] = "message"
            if isinstance(item["content"], str):
                kind = "output_text" if item["role"] == "assistant" else "input_text"
                shown["content"] = [{"type": kind, "text": item["content"]}]
        items.append(shown)
    return items


def item_page(items: list[Json], *, after: str = "", limit: int = 20, newest_first: bool = True) -> Json:
    """A page of listed items."""
    ordered = items[::-1] if newest_first else items
    first = next((at + 1 for at, item in enumerate(ordered) if item["id"] == after), 0)
    page = ordered[first : first + limit]
    ids = [item["id"] for item in page] or [""]
    more = first + limit < len(ordered)
    return {"object": "list", "data": page, "first_id": ids[0], "last_id": ids[-1], "has_more": more}
