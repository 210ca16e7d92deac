"""The passes that make a view ready to be sent: each looks at `(View, Facts)` and proposes edits; the session commits.

Results of tools are offloaded when they come in, and snipped or cleared later (TURN-2 to TURN-5); imitated control tags
become plain text (SEC-4); what a request may not hold, or may not leave open, is settled (TURN-9b). No pass calls a
model, and one with nothing to do costs nothing. `compaction/collapse.py` has the last pass, and the order of them all.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby, islice
from typing import Any, Literal

import msgspec

from perdure.context.cost import first_position, pays_back
from perdure.context.cuts import follows_results
from perdure.context.groups import seen_results
from perdure.context.policy import Facts, has_recall_tool
from perdure.context.reminders import neutralised, neutralised_parts
from perdure.context.thinking import is_postponed
from perdure.context.view import WORTH_CHARS, ContextView, ResultInView, progress_lines, project
from perdure.settings import COMMAND_TOOLS
from perdure.transcript.blocks import Block, ToolResult, encode, text_block
from perdure.transcript.messages import BlobId, MessageId, ToolUseId
from perdure.transcript.records import (
    BlockChange,
    Cleared,
    Edit,
    MediaReplaced,
    Neutralised,
    Offloaded,
    Settled,
    Snipped,
    StoredOriginal,
)
from perdure.transcript.response_items import front_tools
from perdure.transcript.tokens import Size, block_size, image_bytes, image_edge, text_size
from perdure.transcript.tool_calls.actions import ToolTable

Pass = Callable[[ContextView, Facts], tuple[Edit, ...]]


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


def _size(view: ContextView, identity: ToolUseId) -> Size:
    """The size of a result as it is shown."""
    result = view.results[identity]
    return view.items[result.position].sizes[result.block]


def _saved(view: ContextView, identity: ToolUseId, text: str) -> int:
    """Tokens that showing `text` in place of a result frees, by the base rule; none when the live estimate would not
    fall as well."""
    before, after = _size(view, identity), text_size(text)
    return before.base - after.base if before.live > after.live else 0


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
    offers_tools = view.front is not None and bool(front_tools(view.front))
    if offers_tools and not has_recall_tool(view, facts.settings) and facts.size(view) < facts.limits.trigger:
        return ()  # TURN-17: what only a person can bring back, the model reads once
    chosen = [i for i, text in fresh.items() if len(text) > _limit_chars(view, i, facts)]
    chosen += _over_message_limit(view, fresh, chosen, facts)
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
    return facts.scaled(view, limit, floor=_LIMIT_FLOOR_CHARS)


def _over_message_limit(
    view: ContextView, fresh: dict[ToolUseId, str], chosen: list[ToolUseId], facts: Facts
) -> list[ToolUseId]:
    """The largest results, until the rest of the merged message fits its limit."""
    limit = facts.scaled(view, facts.settings.message_limit_bytes, floor=2 * _LIMIT_FLOOR_CHARS)
    rest = {i: len(text.encode("utf-8", "surrogatepass")) for i, text in fresh.items() if i not in chosen}
    total, more = sum(rest.values()), []
    for identity in sorted(rest, key=lambda i: -rest[i]):
        if total <= limit or rest[identity] <= _LIMIT_FLOOR_CHARS:
            break
        total -= rest[identity]
        more.append(identity)
    return more


def _offload(view: ContextView, identity: ToolUseId, text: str, facts: Facts) -> Offloaded:
    chars = facts.scaled(view, facts.settings.preview_chars, floor=_PREVIEW_FLOOR_CHARS)
    name = view.calls[identity].name
    is_command = name in COMMAND_TOOLS or _tool_table(facts.settings.ledger_tools).kind(name) == "run"
    how = f'recall with id "{identity}" (by line range or pattern)'
    preview = preview_of(neutralised(text), how, chars, is_command=is_command)
    return Offloaded(
        changes=(with_text(view, identity, preview, keep_media=True),),
        stored=(stored(view, identity),),
        preview_bytes=len(preview.encode()),
        reason="result over its limit",
    )


def preview_of(text: str, how: str, chars: int, *, is_command: bool) -> str:
    """The stable text that stands for an offloaded result: what it is, `how` to get it back, and `chars` of it.

    Command output shows its end and the lines that look like errors as well, since that is where outcomes stand.
    """
    lines = text.count("\n") + 1
    lead = (
        f"<persisted-output>\nThis result was too large to show whole ({len(text):,} characters, {lines:,} lines). "
        f"All of it is kept: {how}."
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


# Attachments that were true when they were shown and can be had again: recalled memories, nested instruction files.
OLD_ATTACHMENTS = ("memory", "nested_instructions")
ATTACHMENT_CLEARED = "[Old attachment cleared; recall with id {id}]"
_LEAST_PASSED_BY_TOKENS = 40  # attachments and images below this cost about what would stand in their place
IMAGE_CLEARED = "[Old image cleared; recall with id {id}]"


_LEAST_LARGE_TOKENS = 100
# Whose results nobody can have again by asking once more: what a person or another agent said, the state of the work.
_NOT_AGAIN = frozenset({"todo", "plan", "agent", "ask", "skill", "tools", "stop", "input"})


def cleared_text(identity: str) -> str:
    """What stands in the place of a cleared result (TURN-4)."""
    return f"[Old tool result content cleared; recall with id {identity}]"


def select_by_size(
    candidates: Sequence[tuple[ToolUseId, int]], *, keep_tokens: int, keep_last: int, min_saved: int
) -> tuple[list[ToolUseId], int]:
    """The rule of the recordings: oldest first while more than `keep_tokens` remain, never the last `keep_last`.

    `candidates` are (id, tokens by the base rule) in order. Returns the ids and the tokens saved; nothing when fewer
    than `min_saved` would be.
    """
    remaining = sum(tokens for _, tokens in candidates)
    chosen: list[ToolUseId] = []
    saved = 0
    for identity, tokens in candidates[: max(0, len(candidates) - keep_last)]:
        if remaining <= keep_tokens:
            break
        chosen.append(identity)
        remaining -= tokens
        saved += tokens
    return (chosen, saved) if saved >= min_saved else ([], 0)


def microcompact(view: ContextView, facts: Facts) -> tuple[Cleared, ...]:
    """Clear old results when the cache is cold anyway, or when they are many and the window is nearly full."""
    settings = facts.settings
    if not settings.microcompact or settings.provider_clearing:
        return ()
    if settings.idle_clear and facts.is_cold(view):
        first = [identity for identity, _ in candidates(view, facts)]
        others = [identity for identity, _ in candidates(view, facts, other_tools=True) if identity not in first]
        old = {i for some in (first, others) for i in some[: max(0, len(some) - settings.idle_keep_last)]}
        edit = _clear(view, [i for i in view.results if i in old], "idle", "the cache is cold")
        return (edit,) if _may_move(view, edit, facts) else ()
    return _by_size(view, facts)


def _by_size(view: ContextView, facts: Facts, *, along: bool = False) -> tuple[Cleared, ...]:
    """`along`: the prefix moves in any case, so nothing has to be full, and what goes has only to be worth it."""
    settings, limits = facts.settings, facts.limits
    keep_tokens = facts.scaled(view, settings.microcompact_keep_tokens)
    if sum(view.result_tokens.values()) <= keep_tokens:
        return ()
    size = facts.size(view)
    if size < limits.trigger - facts.reach_tokens and not along:
        return ()
    min_saved = facts.scaled(view, settings.microcompact_min_saved_tokens)
    every = candidates(view, facts, other_tools=True)
    named = [(identity, tokens) for identity, tokens in every if _is_first_choice(view, identity, facts)]
    for found in (named, every):  # the tools of the settings are the first choice (TURN-17)
        ids, saved = select_by_size(
            found, keep_tokens=keep_tokens, keep_last=settings.microcompact_keep_last, min_saved=min_saved
        )
        saved -= sum(tokens for i, tokens in found if i in ids and view.results[i].position >= view.sent)
        if saved >= min_saved:
            break
    else:
        return ()
    edit = _clear(view, ids, "size", "old results fill the window")
    if not _may_move(view, edit, facts):
        return ()
    if size < limits.trigger and not along and not pays_back(view, (edit,), saved, facts):
        return ()
    # What is left may be enough for the other tools' turn. Where more is left, and written again, than there is room
    # made, it is now, as the prefix would soon be moved once more (SPD-7).
    left = project((edit,), onto=view)
    is_soon = 2 * facts.size(left) > limits.trigger - facts.reach_tokens
    return (edit, *(_by_size(left, facts, along=True) if is_soon else ()))


def _may_move(view: ContextView, edit: Cleared, facts: Facts) -> bool:
    """Whether the edit changes anything, and no open loop behind what it changes holds bound thinking (TURN-7)."""
    first = first_position(view, (edit,))
    return first is not None and not is_postponed(view, first, facts)


def candidates(view: ContextView, facts: Facts, *, other_tools: bool = False) -> list[tuple[ToolUseId, int]]:
    """Results still shown that may be cleared, in order, with their tokens by the base rule: those of the tools of the
    settings, and with `other_tools` also large ones of any other whose call can be made again."""
    least, found = least_large_tokens(view, facts), list[tuple[ToolUseId, int]]()
    for identity, result in view.results.items():
        if identity in view.cleared or identity in view.snipped:
            continue
        is_first_choice = _is_first_choice(view, identity, facts)
        if not (is_first_choice or other_tools):
            continue
        tokens = _size(view, identity).base
        if (is_first_choice or tokens >= least) and _is_candidate(view, result, facts):
            found.append((identity, tokens))
    return found


def least_large_tokens(view: ContextView, facts: Facts) -> int:
    """From how many tokens on a result is large enough to be cleared whatever its tool (TURN-17)."""
    return facts.scaled(view, facts.settings.microcompact_large_tokens, floor=_LEAST_LARGE_TOKENS)


def _is_first_choice(view: ContextView, identity: ToolUseId, facts: Facts) -> bool:
    return view.calls[identity].name in facts.settings.microcompact_tools


@lru_cache(maxsize=32)
def _tool_table(own: tuple[str, ...]) -> ToolTable:
    return ToolTable.of(own)


def _is_candidate(view: ContextView, result: ResultInView, facts: Facts) -> bool:
    name = view.calls[result.id].name
    if name not in facts.settings.microcompact_tools:
        kind = _tool_table(facts.settings.ledger_tools).kind(name)
        if kind in _NOT_AGAIN or name in facts.settings.offload_exempt_tools:
            return False
    item = view.items[result.position]
    if item.is_hidden or item.shown[result.block] is None:
        return False
    return not (facts.settings.microcompact_spare_errors and result.is_error)


def frontiers(view: ContextView, facts: Facts) -> tuple[int, ...]:
    """Where the next clearing by size may begin: at the oldest result that it may take of the tools of the settings,
    and, where those of other tools fill half of what makes a clearing, at the oldest of these as well (SPD-7).

    The end of the view when there is nothing to take.
    """
    least, settings = least_large_tokens(view, facts), facts.settings
    tools = (settings.microcompact_tools, settings.offload_exempt_tools, settings.ledger_tools)
    seen = seen_results(view, (least, *tools, settings.microcompact_spare_errors))
    for identity, result in islice(view.results.items(), seen.count, None):
        if identity in view.cleared or identity in view.snipped:
            continue
        is_first_choice, tokens = _is_first_choice(view, identity, facts), _size(view, identity).base
        if seen.first is not None if is_first_choice else tokens < least:
            continue
        if _is_candidate(view, result, facts) and _saved(view, identity, cleared_text(identity)) > 0:
            if is_first_choice:
                seen.first = result.position
            else:
                seen.other = result.position if seen.other is None else min(seen.other, result.position)
                seen.other_tokens += tokens
    seen.count = len(view.results)
    end = len(view.items)
    first, other = (end if place is None else place for place in (seen.first, seen.other))
    if seen.first is None:
        return (other,)
    half = max(1, facts.scaled(view, settings.microcompact_min_saved_tokens) // 2)
    return (first, other) if other < first and seen.other_tokens >= half else (first,)


def _clear(view: ContextView, ids: list[ToolUseId], trigger: Literal["size", "idle"], reason: str) -> Cleared:
    """The edit that clears results, with the images and old attachments among what it passes."""
    # What no answered request held is the model's to read first.
    sent = [identity for identity in ids if view.results[identity].position < view.sent]
    saved = {i: tokens for i in sent if (tokens := _saved(view, i, cleared_text(i))) > 0}
    attachments, images = _passed_by(view, max((view.results[i].position for i in saved), default=-1))
    passed_by = (*attachments, *images)
    sizes = (view.items[view.positions[change.message]].sizes[change.block] for change in passed_by)
    return Cleared(
        trigger=trigger,
        tool_use_ids=tuple(saved),
        changes=(*(with_text(view, i, cleared_text(i)) for i in saved), *passed_by),
        stored=tuple(stored(view, identity) for identity in saved),
        attachments=tuple(dict.fromkeys(MessageId(change.message) for change in attachments)),
        images=len(images),
        tokens_saved=sum(saved.values()) + sum(size.base for size in sizes),
        reason=reason,
    )


def _passed_by(view: ContextView, last: int) -> tuple[list[BlockChange], list[BlockChange]]:
    """Old attachments and old images up to position `last` that are still shown."""
    attachments: list[BlockChange] = []
    images: list[BlockChange] = []
    for item in view.items[: last + 1]:
        message = item.message
        if item.is_hidden or message.role != "user":
            continue
        for index, block in enumerate(item.shown):
            if block is None:
                continue
            size = item.sizes[index]
            if min(size.base, size.live) <= _LEAST_PASSED_BY_TOKENS:
                continue
            if message.note in OLD_ATTACHMENTS and block.type == "text":
                attachments.append(
                    BlockChange(message=message.id, block=index, to=_raw(ATTACHMENT_CLEARED.format(id=message.id)))
                )
            elif block.type == "image":
                images.append(
                    BlockChange(message=message.id, block=index, to=_raw(IMAGE_CLEARED.format(id=message.id)))
                )
    return attachments, images


def _raw(text: str) -> msgspec.Raw:
    return msgspec.Raw(text_block(text).raw)


_LEAST_SNIPPED_TOKENS = WORTH_CHARS // 4
_SNIPPED = {
    "superseded": "[Superseded by a later read of the same file; recall with id {id}]",
    "repeated": "[The same result came again later; recall with id {id}]",
    "chatter": "[Progress output left out; recall with id {id}. It ended with:]\n{last}",
}


def snip(view: ContextView, facts: Facts) -> tuple[Snipped, ...]:
    """One edit with everything that is worthless now, or none."""
    worth = view.worth
    if not facts.settings.snip or not (worth.worthless or worth.interruptions):
        return ()
    if not facts.is_cold(view) and facts.size(view) < facts.limits.trigger - facts.reach_tokens:
        return ()
    edit = _snipped(view, 0)
    if edit is not None and not _is_worth_it(view, edit, facts):
        # What lies behind another edit of this turn is rewritten anyway, and costs nothing more (TURN-16).
        moved = [at for at in (first_position(view, microcompact(view, facts)), view.moved) if at is not None]
        edit = _snipped(view, min(moved)) if moved else None
    if edit is None or is_postponed(view, min(view.positions[change.message] for change in edit.changes), facts):
        return ()
    return (edit,)


def _snipped(view: ContextView, position: int) -> Snipped | None:
    """The edit that takes everything worthless from a position on; None when nothing is."""
    takeable = [i for i in view.worth.worthless if _is_takeable(view, i) and view.results[i].position >= position]
    texts = {identity: _snipped_text(view, identity) for identity in takeable}
    saved = {i: tokens for i, text in texts.items() if (tokens := _saved(view, i, text)) > 0}
    aborted, aborted_tokens = _aborted(view, position)
    changes = [*(with_text(view, identity, texts[identity]) for identity in saved), *aborted]
    if not changes:
        return None
    return Snipped(
        changes=tuple(changes),
        stored=tuple(stored(view, identity) for identity in saved),
        tokens_saved=sum(saved.values()) + aborted_tokens,
        reason="worthless history",
    )


def _is_worth_it(view: ContextView, edit: Snipped, facts: Facts) -> bool:
    """Whether it is worth a rewritten prefix of its own; in a dead cache anything is."""
    least = facts.scaled(view, facts.settings.snip_min_saved_tokens)
    is_enough = edit.tokens_saved >= least and pays_back(view, (edit,), edit.tokens_saved, facts)
    return facts.is_cold(view) or is_enough


def _is_takeable(view: ContextView, identity: ToolUseId) -> bool:
    """Whether a result is shown as it came and was sent already (what is new is the model's to read first)."""
    result = view.results.get(identity)
    if result is None or result.position >= view.sent or view.items[result.position].is_hidden:
        return False
    if identity in view.cleared or identity in view.snipped or identity in view.frozen:
        return False
    return _size(view, identity).base >= _LEAST_SNIPPED_TOKENS


def _snipped_text(view: ContextView, identity: ToolUseId) -> str:
    """What stands in the place of a worthless result (TURN-3)."""
    last = ""
    if view.worth.worthless[identity] == "chatter":
        result = view.results[identity]
        value = view.items[result.position].message.blocks[result.block].value
        last = "\n".join(progress_lines(value.text())[-5:]) if isinstance(value, ToolResult) else ""
    return _SNIPPED[view.worth.worthless[identity]].format(id=identity, last=last)


def _aborted(view: ContextView, position: int) -> tuple[list[BlockChange], int]:
    """Turns that the person interrupted before any tool had run: the model's unfinished words go, theirs stay."""
    changes: list[BlockChange] = []
    tokens = 0
    for end in view.worth.interruptions:
        if end >= view.sent:
            break
        start = end
        while start > 0 and view.items[start - 1].message.role == "assistant":
            start -= 1
        between = view.items[start:end]
        if any(item.message.tool_uses or item.is_hidden for item in between) or follows_results(view, start):
            continue
        worth = sum(item.size.base for item in between)
        if worth < _LEAST_SNIPPED_TOKENS or start < position:
            continue
        tokens += worth
        for item in between:
            changes += [
                BlockChange(message=item.message.id, block=i) for i, b in enumerate(item.shown) if b is not None
            ]
    return changes, tokens


# --- text that imitates our control tags ------------------------------------------------------------------------------

# Recorded as an edit, so that the bytes are frozen: a later version that knows other tags sends the same prefix (REL-5,
# REL-6). Every imitated tag gains one underscore, which `reminders.restored` takes away again. What was answered
# already, such as an imported log, stays as it was sent then.
_TEXTS = frozenset({"text", "data", "title", "context"})  # what a model reads of results and documents
_INSIDE = frozenset({"content", "source"})
_KINDS = ("tool_result", "document", "search_result")
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
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
    blocks = [_FIELDS.decode(raw) for raw in raws]
    texts = [msgspec.json.decode(block["text"]) for block in blocks]
    made = neutralised_parts(texts, tokens=tokens)
    return [
        raw if text == clean else encode({**block, "text": clean})
        for raw, block, text, clean in zip(raws, blocks, texts, made, strict=True)
    ]


def neutral(raw: bytes, *, tokens: bool = False) -> bytes:
    """The JSON of a block with no imitated tag in what a model reads of it.

    The very same bytes when there was none, and in every field that isn't read (GW-7).
    """
    if not _HINT.search(raw):
        return raw
    fields = _FIELDS.decode(raw)
    said = {key: msgspec.json.decode(value) for key, value in fields.items() if key in _TEXTS or key in _INSIDE}
    clean = {key: made for key, value in said.items() if (made := _neutral(value, key, tokens)) != value}
    return encode({**fields, **clean}) if clean else raw


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


# --- what a request may not hold, or leave open -----------------------------------------------------------------------

MEDIA_REPLACED = "[{kind} left out: more or larger media than a request may hold; recall with id {id}]"
_MEDIA = ("image", "document")
Medium = tuple[int, int, int, int]  # item, block, part (-1: the block itself), bytes
# Replacing a few more at once moves the prefix once instead of at every new image (TURN-9b: in chunks).
_CHUNK = 10


def media_limits(view: ContextView, facts: Facts) -> tuple[MediaReplaced, ...]:
    """Replace what a request may not hold: images whose edges or bytes are too many, and the oldest media while
    there are too many, or too many bytes of them."""
    if not view.media:
        return ()
    limit, most = facts.model.max_image_edge_pixels, facts.model.max_image_bytes
    edges = {place: image_edge(_medium(view, place)) for place in shown_media(view)}
    dropped = [place for place, edge in edges.items() if limit is not None and edge > limit]
    if most is not None:
        large = (place for place in edges if place[3] > most and image_bytes(_medium(view, place)) > most)
        dropped = list(dict.fromkeys([*dropped, *large]))
    for place in dropped:
        del edges[place]
    dropped += _oldest(list(edges), max(edges.values(), default=0), facts)
    if not dropped:
        return ()
    replaced: dict[tuple[int, int], set[int]] = {}
    for position, block, part, _ in dropped:
        replaced.setdefault((position, block), set()).add(part)
    changes = tuple(without_media(view, position, block, parts) for (position, block), parts in replaced.items())
    return (MediaReplaced(changes=changes, reason="media over the limits of a request"),)


def _oldest(shown: list[Medium], edge: int, facts: Facts) -> list[Medium]:
    """Those that are over the limits of count and bytes, and a few more at once. A request with many images takes only
    small ones: with a larger one among them, fewer are kept, the newest."""
    model = facts.model
    most = facts.settings.max_images or model.max_images
    if model.max_image_edge_pixels is not None and edge > model.many_image_edge_pixels:
        most = min(most, model.many_images)
    left = sum(size for _, _, _, size in shown)
    if len(shown) <= most and left <= facts.settings.max_media_bytes:
        return []
    drop = 0
    while len(shown) - drop > most or left > facts.settings.max_media_bytes:
        left -= shown[drop][3]
        drop += 1
    return shown[: drop + min(_CHUNK, most // 4)]


def _medium(view: ContextView, place: Medium) -> Block:
    position, index, part, _ = place
    block = view.items[position].shown[index]
    assert block is not None
    if part < 0:
        return block
    assert isinstance(block.value, ToolResult)
    return block.value.parts()[part]


def shown_media(view: ContextView) -> Iterator[Medium]:
    """(item, block, part, bytes) of each image or document shown, oldest first; part -1: the block itself."""
    for position, item in enumerate(view.items):
        if item.is_hidden:
            continue
        for index, block in enumerate(item.shown):
            if block is None:
                continue
            if block.type in _MEDIA:
                yield position, index, -1, len(block.raw)
            elif isinstance(block.value, ToolResult) and not isinstance(block.value.content, str):
                for number, part in enumerate(block.value.parts()):
                    if part.type in _MEDIA:
                        yield position, index, number, len(part.raw)


def without_media(
    view: ContextView, position: int, index: int, parts: set[int], words: str = MEDIA_REPLACED
) -> BlockChange:
    """The change that shows `words` in place of some media of a block (part -1: the block itself)."""
    item = view.items[position]
    block = item.shown[index]
    assert block is not None
    if -1 in parts:
        raw = _placeholder(block, item.message.id, words).raw
    else:
        raw = _result_without(block, parts, words)
    return BlockChange(message=item.message.id, block=index, to=msgspec.Raw(raw))


def _placeholder(block: Block, identity: str, words: str) -> Block:
    return text_block(words.format(kind=block.type.capitalize(), id=identity))


def _result_without(block: Block, parts: set[int], words: str) -> bytes:
    fields: dict[str, Any] = msgspec.json.decode(block.raw, type=dict[str, msgspec.Raw])
    value = block.value
    assert isinstance(value, ToolResult)
    fields["content"] = [
        msgspec.Raw(_placeholder(part, value.tool_use_id, words).raw if number in parts else part.raw)
        for number, part in enumerate(value.parts())
    ]
    return encode(fields)


def settle_open_calls(view: ContextView, facts: Facts) -> tuple[Settled, ...]:
    """Answer for good, with a synthetic error, every call that has no result when a request is made."""
    if not view.open_calls:
        return ()
    return (Settled(tool_use_ids=tuple(view.open_calls), reason="no result when the request was made"),)


# TURN-9b: what flattening would have to decide anew each time is decided once, just before a request.
CLOSING_PASSES: tuple[Pass, ...] = (media_limits, settle_open_calls)
# Those that look through the bytes of what is new, or of images.
READING_PASSES: tuple[Pass, ...] = (tool_result_budget, neutralise, media_limits)
