"""Back to an earlier prompt, from within a chat (CKP-4). The one place to hang the rewind of files onto (CKP-3)."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.engine.session import Session, prompt_line
from holdfast.transcript.blocks import Text
from holdfast.transcript.edits import Rewound
from holdfast.transcript.messages import Message, MessageId


@dataclass(frozen=True, slots=True)
class Place:
    """A prompt that the view holds, word for word. `before` is the message that would be the last one; None: none."""

    prompt: Message
    line: str
    before: MessageId | None


def places(session: Session) -> list[Place]:
    """The prompts that can be gone back to, oldest first."""
    items = [item.message for item in session.view.items if not item.is_hidden]
    found: list[Place] = []
    for number, message in enumerate(items):
        line = prompt_line(message)
        if line is None or message.role != "user" or message.tool_results:
            continue
        found.append(Place(message, line, items[number - 1].id if number else None))
    return found


def text_of(message: Message) -> str:
    """What a person wrote, to be edited."""
    return "\n".join(block.value.text for block in message.blocks if isinstance(block.value, Text))


async def rewind(session: Session, to: Place) -> str:
    """Take the conversation back to before a prompt; its text comes back for editing. Nothing is erased.

    The first prompt of a session has nothing before it: start a new session instead.
    """
    assert to.before is not None, "the first prompt is gone back to by a new session"
    await session.record(Rewound(to=to.before, reason="asked for"))
    return text_of(to.prompt)
