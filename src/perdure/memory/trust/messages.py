"""Messages without secrets: what everything that is written of a conversation is made from (SEC-5)."""

from __future__ import annotations

import msgspec

from perdure.memory.trust.secrets import Redactor
from perdure.transcript.messages import Message


def without_secrets(message: Message, redactor: Redactor) -> Message:
    """Return the message with marks in place of secrets; the message itself where it holds none.

    Whatever is cut, joined or named from its texts later is made of this one: a scanner that sees a part of a text
    misses what the rest of it tells.
    """
    content = tuple(msgspec.Raw(redactor.json(bytes(raw))) for raw in message.content)
    if all(new == old for new, old in zip(content, message.content, strict=True)):
        return message
    return msgspec.structs.replace(message, content=content)
