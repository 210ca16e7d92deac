"""The tool-result budget: large results move to blobs before they are ever sent, and what stands in their place
(TURN-2).
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

import msgspec

from perdure.context.policy import Facts
from perdure.context.reminders import neutralised
from perdure.context.view import ContextView
from perdure.settings import COMPACTABLE_TOOLS
from perdure.transcript.blocks import Block, ToolResult, encode
from perdure.transcript.messages import BlobId, ToolUseId
from perdure.transcript.records import BlockChange, Offloaded, StoredOriginal
from perdure.transcript.tokens import block_size


def blob_id(content: bytes) -> BlobId:
    """The address of some bytes in the blob store: their SHA-256 in hex."""
    return BlobId(hashlib.sha256(content).hexdigest())


def original(view: ContextView, identity: ToolUseId) -> bytes:
    """The bytes of a result's block as it was said."""
    result = view.results[identity]
    return view.items[result.position].message.blocks[result.block].raw


def stored(view: ContextView, identity: ToolUseId) -> StoredOriginal:
    """The address under which a result's original is kept."""
    raw = original(view, identity)
    return StoredOriginal(tool_use_id=identity, blob=blob_id(raw), bytes=len(raw))


def with_text(view: ContextView, identity: ToolUseId, text: str, *, keep_media: bool = False) -> BlockChange:
    """The change that shows `text` in place of a result's content; every other field of the block stays.

    With `keep_media`, images and documents of the result stay behind the text.
    """
    result = view.results[identity]
    item = view.items[result.position]
    block = item.message.blocks[result.block]
    fields: dict[str, Any] = msgspec.json.decode(block.raw, type=dict[str, msgspec.Raw])
    media: list[Any] = []
    if keep_media and isinstance(block.value, ToolResult):
        media = [msgspec.Raw(part.raw) for part in block.value.parts() if part.type != "text"]
    fields["content"] = [{"type": "text", "text": text}, *media] if media else text
    return BlockChange(message=item.message.id, block=result.block, to=msgspec.Raw(encode(fields)))


_COMMAND_TOOLS = frozenset(COMPACTABLE_TOOLS[1])
_ERROR_LINE = re.compile(
    r"\b(?:error|exception|traceback|failed|failure|fatal|panic|cannot|undefined|not found|denied|assert\w*)\b|^E  ",
    re.IGNORECASE,
)
_PREVIEW_FLOOR_CHARS = 400
_LIMIT_FLOOR_CHARS = 2_000
_ERROR_LINES = 8
_ERROR_LINE_CHARS = 160


def tool_result_budget(view: ContextView, facts: Facts) -> tuple[Offloaded, ...]:
    """Offload what is over its tool's limit, then the largest until the message is under its own.

    Looks only at results that no answered request held, so a decision is taken once and holds for good.
    """
    if not facts.settings.offload or len(view.items) == view.sent:
        return ()
    fresh = _fresh_results(view, facts)
    if not fresh:
        return ()
    chosen = [i for i, text in fresh.items() if len(text) > _limit_chars(view, i, facts)]
    chosen += _over_message_limit(fresh, chosen, facts)
    edits = (_offload(view, identity, fresh[identity], facts) for identity in chosen)
    return tuple(edit for edit in edits if _shrinks(view, edit))


def _shrinks(view: ContextView, edit: Offloaded) -> bool:
    """A text of a few rare characters can be shorter than its preview."""
    change = edit.changes[0]
    before, after = view.items[view.positions[change.message]].sizes[change.block], block_size(Block(bytes(change.to)))
    return after.base < before.base and after.live < before.live


def _fresh_results(view: ContextView, facts: Facts) -> dict[ToolUseId, str]:
    found: dict[ToolUseId, str] = {}
    for item in view.items[view.sent :]:
        for block in item.message.blocks:
            value = block.value
            if not isinstance(value, ToolResult):
                continue
            identity = ToolUseId(value.tool_use_id)
            call = view.calls.get(identity)
            is_done = identity not in view.results or identity in view.frozen or identity in view.cleared
            if call is None or is_done or call.name in facts.settings.offload_exempt_tools:
                continue
            found[identity] = value.text()
    return found


def _limit_chars(view: ContextView, identity: ToolUseId, facts: Facts) -> int:
    settings = facts.settings
    limit = settings.result_limits_chars.get(view.calls[identity].name, settings.result_limit_chars)
    return facts.limits.scaled(limit, floor=_LIMIT_FLOOR_CHARS)


def _over_message_limit(fresh: dict[ToolUseId, str], chosen: list[ToolUseId], facts: Facts) -> list[ToolUseId]:
    """The largest results, until the rest of the merged message fits its limit."""
    limit = facts.limits.scaled(facts.settings.message_limit_bytes, floor=2 * _LIMIT_FLOOR_CHARS)
    rest = {i: len(text.encode("utf-8", "surrogatepass")) for i, text in fresh.items() if i not in chosen}
    total, more = sum(rest.values()), []
    for identity in sorted(rest, key=lambda i: -rest[i]):
        if total <= limit or rest[identity] <= _LIMIT_FLOOR_CHARS:
            break
        total -= rest[identity]
        more.append(identity)
    return more


def _offload(view: ContextView, identity: ToolUseId, text: str, facts: Facts) -> Offloaded:
    chars = facts.limits.scaled(facts.settings.preview_chars, floor=_PREVIEW_FLOOR_CHARS)
    preview = preview_of(neutralised(text), identity, chars, is_command=view.calls[identity].name in _COMMAND_TOOLS)
    return Offloaded(
        changes=(with_text(view, identity, preview, keep_media=True),),
        stored=(stored(view, identity),),
        preview_bytes=len(preview.encode()),
        reason="result over its limit",
    )


def preview_of(text: str, identity: str, chars: int, *, is_command: bool) -> str:
    """The stable text that stands for an offloaded result: what it is, how to recall it, and `chars` of it.

    Command output shows its end and the lines that look like errors as well, since that is where outcomes stand.
    """
    lines = text.count("\n") + 1
    lead = (
        f"<persisted-output>\nThis result was too large to show whole ({len(text):,} characters, {lines:,} lines). "
        f'All of it is kept: recall with id "{identity}" (by line range or pattern).'
    )
    if not is_command:
        return f"{lead}\n\nPreview, the beginning:\n{_head(text, chars)}\n</persisted-output>"
    errors = _error_lines(text)
    spare = max(chars // 4, chars - sum(len(line) + 1 for line in errors))
    head, tail = _head(text, spare // 2), _tail(text, spare - spare // 2)
    middle = "\n".join(["Lines that look like errors:", *errors, ""]) + "\n" if errors else ""
    return f"{lead}\n\nPreview, the beginning:\n{head}\n\n{middle}The end:\n{tail}\n</persisted-output>"


def _head(text: str, chars: int) -> str:
    """The first characters, cut at a line end where one is near."""
    cut = text[:chars]
    at = cut.rfind("\n", chars // 2)
    return (cut[:at] if at > 0 else cut).rstrip()


def _tail(text: str, chars: int) -> str:
    cut = text[-chars:]
    at = cut.find("\n", 0, chars // 2)
    return cut[at + 1 :].rstrip()


def _error_lines(text: str) -> list[str]:
    found: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        if _ERROR_LINE.search(line[:400]):
            found.append(f"{number}: {line.strip()[:_ERROR_LINE_CHARS]}")
            if len(found) == _ERROR_LINES:
                break
    return found
