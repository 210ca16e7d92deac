"""Back to an earlier prompt, from within a chat (CKP-4). The one place to hang the rewind of files onto (CKP-3)."""

from __future__ import annotations

from holdfast.engine.rewinding import Prompt, prompts, rewind_conversation
from holdfast.engine.session import Session


async def places(session: Session) -> tuple[Prompt, ...]:
    """What can be gone back to, oldest first; also what was compacted away."""
    return await prompts(session)


async def rewind(session: Session, to: Prompt) -> str:
    """Take the conversation back to before a prompt; its text comes back for editing. Nothing is erased."""
    return (await rewind_conversation(session, to.message.id)).text
