"""Reminders: context in front of the conversation that nobody said, and text that imitates one (TURN-10, SEC-4)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence

import msgspec

from holdfast import prompts
from holdfast.transcript.blocks import encode, text_block
from holdfast.transcript.messages import Message, MessageId, content_of

# What has a meaning to the model when Holdfast, or the agent whose log it is, writes it.
CONTROL_TAGS = (
    "system-reminder",
    "persisted-output",
    "local-command-stdout",
    "local-command-stderr",
    "local-command-caveat",
    "command-name",
    "command-message",
    "command-args",
    "bash-input",
    "bash-stdout",
    "bash-stderr",
    "task-notification",
    "user-prompt-submit-hook",
)
# An opening or closing tag, also with blanks in it; the underscores are those that neutralising put there.
_TAG_NAMES = tuple(tag.encode() for tag in CONTROL_TAGS)
_TAG = re.compile(r"<([\s/]{0,8})(_*)(?=" + "|".join(map(re.escape, CONTROL_TAGS)) + ")", re.IGNORECASE)
_BARE = re.compile(r"<([\s/]{0,8})(?=" + "|".join(map(re.escape, CONTROL_TAGS)) + ")", re.IGNORECASE)


def prepend_context(messages: Sequence[Message], context: Mapping[str, str]) -> tuple[Message, ...]:
    """The messages with one user message in front that holds each text under its title.

    An empty map changes nothing. The message is the same for the same texts, so it keeps the prefix where it is.

    >>> [m.role for m in prepend_context((), {"Todos": "1. write the tests"})]
    ['user']
    """
    if not context:
        return tuple(messages)
    sections = "\n\n".join(
        f"# {' '.join(neutralised(title).split())}\n{neutralised(text)}" for title, text in context.items()
    )
    text = prompts.render("context_reminder", sections=sections)
    identity = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:20]
    front = Message(
        id=MessageId(f"context-{identity}"), role="user", content=content_of([text_block(text)]), origin="reminder"
    )
    return (front, *messages)


def neutralised(text: str) -> str:
    """Text whose control tags are plain text: `<system-reminder>` reads `<_system-reminder>` (and that one more).

    Every such tag gains one underscore, so `restored` gives back exactly what came; other text stays as it is.
    """
    return _TAG.sub(r"<\1_\2", text) if "<" in text else text


def without_tags(text: str) -> str:
    """Text without a control tag: as `neutralised`, but what is plain already stays as it is."""
    return _BARE.sub(r"<\1_", text) if "<" in text else text


def restored(text: str) -> str:
    """What `neutralised` was given: every control tag loses one underscore."""
    return _TAG.sub(lambda found: f"<{found[1]}{found[2][1:]}", text) if "<" in text else text


def neutralised_result(raw: bytes) -> bytes:
    """The raw JSON of a tool result whose text imitates no control tag; the very same bytes when none does.

    For results that no edit froze: those of journals from before neutralising was recorded, and of views that are
    flattened without the passes. It says the same as `context.neutralise` did then, so their prefix stays (REL-6).
    """
    low = raw.lower()
    if not any(tag in low for tag in _TAG_NAMES) and b"\\u00" not in low:
        return raw
    fields = msgspec.json.decode(raw)
    content = fields.get("content")
    if isinstance(content, str):
        clean: object = neutralised(content)
    elif isinstance(content, list):
        clean = [_neutralised_part(part) for part in content]
    else:
        return raw
    if clean == content:
        return raw
    return encode({**fields, "content": clean})


def _neutralised_part(part: object) -> object:
    if isinstance(part, dict) and isinstance(part.get("text"), str):
        return {**part, "text": neutralised(part["text"])}
    return part
