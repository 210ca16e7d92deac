"""Text of others that imitates our control tags is made plain, once, before it is ever sent (SEC-4, TURN-10).

Recorded as an edit, so that the bytes are frozen: a later version that knows other tags sends the same prefix (REL-5,
REL-6). Every imitated tag gains one underscore, which `reminders.restored` takes away again. What was answered already,
such as an imported log, stays as it was sent then.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from holdfast.context.policy import Facts
from holdfast.context.reminders import CONTROL_TAGS, neutralised
from holdfast.context.view import View
from holdfast.transcript.blocks import encode
from holdfast.transcript.edits import Change, Neutralised

_TAGS = tuple(tag.encode() for tag in CONTROL_TAGS)
_TEXTS = frozenset({"text", "data", "title", "context"})  # what a model reads of results and documents
_INSIDE = frozenset({"content", "source"})
_KINDS = ("tool_result", "document", "search_result")


def neutralise(view: View, facts: Facts) -> tuple[Neutralised, ...]:
    """The new results, and with the setting `all` the user's new words, without imitated tags. Scans only what is new.

    Our own reminders, what was restored, and what the model said are left alone.
    """
    if facts.settings.neutralise == "off" or len(view.items) == view.sent:
        return ()
    changes = tuple(_changes(view, facts.settings.neutralise == "all"))
    return (Neutralised(changes=changes, reason="text that imitates a control tag"),) if changes else ()


def _changes(view: View, takes_words: bool) -> Iterator[Change]:
    for item in view.items[view.sent :]:
        message = item.message
        if item.is_hidden or message.role != "user" or message.origin not in ("user", "tool"):
            continue
        for index, (said, shown) in enumerate(zip(message.blocks, item.shown, strict=True)):
            if shown is not said or not (said.kind in _KINDS or (takes_words and said.kind == "text")):
                continue
            raw = neutral(said.raw)
            if raw is not said.raw:
                yield Change(message=message.id, block=index, to=msgspec.Raw(raw))


def neutral(raw: bytes) -> bytes:
    """The JSON of a block with no imitated tag in what a model reads of it; the very same bytes when there was none."""
    low = raw.lower()
    if not any(tag in low for tag in _TAGS) and b"\\u00" not in low:
        return raw
    fields = msgspec.json.decode(raw)
    clean = {key: _neutral(value, key) for key, value in fields.items()}
    return raw if clean == fields else encode(clean)


def _neutral(value: Any, key: str) -> Any:
    if isinstance(value, str):
        return neutralised(value) if key in _TEXTS or key in _INSIDE else value
    if key not in _INSIDE:
        return value
    if isinstance(value, list):
        return [{k: _neutral(v, k) for k, v in one.items()} if isinstance(one, dict) else one for one in value]
    return {k: _neutral(v, k) for k, v in value.items()} if isinstance(value, dict) else value
