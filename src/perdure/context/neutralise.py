"""Text of others that imitates our control tags is made plain, once, before it is ever sent (SEC-4, SEC-11, TURN-10).

Recorded as an edit, so that the bytes are frozen: a later version that knows other tags sends the same prefix (REL-5,
REL-6). Every imitated tag gains one underscore, which `reminders.restored` takes away again. What was answered already,
such as an imported log, stays as it was sent then.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import msgspec

from perdure.context.policy import Facts
from perdure.context.reminders import neutralised, neutralised_parts
from perdure.context.view import ContextView
from perdure.transcript.blocks import encode
from perdure.transcript.records import BlockChange, Neutralised

_TEXTS = frozenset({"text", "data", "title", "context"})  # what a model reads of results and documents
_INSIDE = frozenset({"content", "source"})
_KINDS = ("tool_result", "document", "search_result")
# What the JSON of a text that has to be changed holds at least; also in escapes.
_HINT = re.compile(rb"<|\[_*/?(?:INST|SYS|AVAIL|TOOL)|Human:|Assistant:|\\u00", re.IGNORECASE)


def neutralise(view: ContextView, facts: Facts) -> tuple[Neutralised, ...]:
    """The new results, and with the setting `all` the user's new words, without imitated tags. Scans only what is new.

    Our own reminders, what was restored, and what the model said are left alone.
    """
    if facts.settings.neutralise == "off" or len(view.items) == view.sent:
        return ()
    changes = tuple(_changes(view, facts.settings.neutralise == "all", facts.model.reads_tokens))
    return (Neutralised(changes=changes, reason="text that imitates a control tag"),) if changes else ()


def _changes(view: ContextView, takes_words: bool, tokens: bool) -> Iterator[BlockChange]:
    for item in view.items[view.sent :]:
        message = item.message
        if item.is_hidden or message.role != "user" or message.origin not in ("user", "tool"):
            continue
        blocks = list(enumerate(zip(message.blocks, item.shown, strict=True)))
        for is_text, run in groupby(blocks, key=lambda one: one[1][0].type == "text"):
            fresh = [(index, said.raw) for index, (said, shown) in run if shown is said]
            if is_text:
                made = neutral_texts([raw for _, raw in fresh], tokens=tokens) if takes_words else []
            else:
                fresh = [(index, raw) for index, raw in fresh if message.blocks[index].type in _KINDS]
                made = [neutral(raw, tokens=tokens) for _, raw in fresh]
            for (index, raw), clean in zip(fresh, made, strict=False):
                if clean is not raw:
                    yield BlockChange(message=message.id, block=index, to=msgspec.Raw(clean))


def neutral_texts(raws: list[bytes], *, tokens: bool = False) -> list[bytes]:
    """Text blocks that follow each other, which a model reads as one text, without imitated tags."""
    if not any(map(_HINT.search, raws)):
        return raws
    blocks = [msgspec.json.decode(raw) for raw in raws]
    made = neutralised_parts([block["text"] for block in blocks], tokens=tokens)
    return [
        raw if block["text"] == text else encode({**block, "text": text})
        for raw, block, text in zip(raws, blocks, made, strict=True)
    ]


def neutral(raw: bytes, *, tokens: bool = False) -> bytes:
    """The JSON of a block with no imitated tag in what a model reads of it; the very same bytes when there was none."""
    if not _HINT.search(raw):
        return raw
    fields = msgspec.json.decode(raw)
    clean = {key: _neutral(value, key, tokens) for key, value in fields.items()}
    return raw if clean == fields else encode(clean)


def _neutral(value: Any, key: str, tokens: bool) -> Any:
    if isinstance(value, str):
        return neutralised(value, tokens=tokens) if key in _TEXTS or key in _INSIDE else value
    if key not in _INSIDE:
        return value
    if isinstance(value, list):
        return _neutral_parts(value, tokens)
    return {k: _neutral(v, k, tokens) for k, v in value.items()} if isinstance(value, dict) else value


def _neutral_parts(parts: list[Any], tokens: bool) -> list[Any]:
    """The parts of a result: texts that follow each other are one text to the model."""
    clean: list[Any] = []
    for is_text, run in groupby(parts, key=lambda one: isinstance(one, dict) and isinstance(one.get("text"), str)):
        some = list(run)
        if is_text:
            texts = neutralised_parts([one["text"] for one in some], tokens=tokens)
            some = [{**one, "text": text} for one, text in zip(some, texts, strict=True)]
        clean += [
            {k: v if k == "text" else _neutral(v, k, tokens) for k, v in one.items()} if isinstance(one, dict) else one
            for one in some
        ]
    return clean
