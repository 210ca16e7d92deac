"""Back to an earlier prompt, from within a chat: the conversation, the files, or both (CKP-3, CKP-4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from holdfast.cli.rewinding import left, not_kept
from holdfast.cli.tables import plural
from holdfast.engine.checkpoints import Rewind, What
from holdfast.engine.rewinding import Prompt, prompts
from holdfast.errors import BadSetting

if TYPE_CHECKING:
    from holdfast.cli.chat.talk import Chat

_WHAT: dict[str, What] = {what: what for what in get_args(What)}


async def places(chat: Chat) -> tuple[Prompt, ...]:
    """What can be gone back to, oldest first; also what was compacted away."""
    return await prompts(chat.agent.session)


async def rewind(chat: Chat, to: Prompt, words: list[str]) -> Rewind:
    """Go back to before a prompt; nothing is erased. Raises `RewindRefused` for files that somebody else changed."""
    unknown = [word for word in words if word not in _WHAT and word != "force"]
    if unknown:
        raise BadSetting(f"/rewind {unknown[0]}: give code, conversation or both, and force to write over others' work")
    what: What = next((_WHAT[word] for word in words if word in _WHAT), "both")
    return await chat.agent.rewind(to.message.id, what=what, is_forced="force" in words)


async def forth(chat: Chat) -> Rewind:
    """Take the last rewind back."""
    return await chat.agent.undo_rewind()


def told(done: Rewind, *, is_undone: bool = False) -> list[str]:
    """What was done, or undone, in lines for people."""
    lines = []
    if done.is_conversation:
        back = "the conversation is back there; what came after it stays in the journal"
        lines.append("the conversation is what it was before the rewind" if is_undone else back)
    if done.files is not None:
        count = len(done.files.changes)
        missed = not_kept(done.files)
        nothing = "no file that is kept had changed" if missed else "no file had changed"
        lines.append(plural(count, "file") + " put back" if count else done.files.note or nothing)
        lines += [*left(done.files), *([missed] if missed else [])]
    return lines
