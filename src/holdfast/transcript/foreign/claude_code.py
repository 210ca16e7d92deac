"""Claude Code session logs: `projects/<project>/<session>.jsonl` and the logs of its sub-agents (ENG-6).

The order is the order of the lines. One API response spans several lines with the same `message.id` and repeats its
usage on each. What never reached the model (progress, notices, synthetic answers, titles) is not a message; what the
log's own system did to its context (compaction, microcompaction, a rewind) is a step of its own. `toolUseResult`
repeats the results and is never decoded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from holdfast.transcript.blocks import Block, text_block
from holdfast.transcript.foreign.claude_attachments import Shown, shown
from holdfast.transcript.foreign.claude_chain import Chain
from holdfast.transcript.foreign.mending import mended
from holdfast.transcript.foreign.reading import (
    BEYOND_READING,
    Ids,
    Problems,
    blocks,
    decoded,
    epoch,
    lines,
    readable,
    stem,
    what_is_wrong,
)
from holdfast.transcript.foreign.recording import (
    LoggedCompaction,
    LoggedMicrocompaction,
    LoggedRewind,
    Recording,
    Said,
    Step,
)
from holdfast.transcript.messages import (
    Message,
    MessageId,
    Origin,
    ResponseId,
    ToolUseId,
    Usage,
    content_of,
)

SIDECHAIN: Final = "sidechain"  # the agent id of side messages that don't name their agent
SYNTHETIC: Final = "<synthetic>"  # the "model" of messages that the program itself wrote for the screen
_COMMAND_OUTPUT: Final = ("<local-command-stdout>", "<local-command-stderr>", "<bash-stdout>", "<bash-stderr>")
_INJECTED: Final = ("[Request interrupted by user", "<task-notification>", "<system-reminder>")


class _CacheWrites(msgspec.Struct):
    ephemeral_1h_input_tokens: int | None = None


class _Tokens(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_creation: _CacheWrites | None = None


class _Body(msgspec.Struct):
    id: str | None = None
    model: str | None = None
    content: list[msgspec.Raw] | str | None = None
    usage: _Tokens | None = None
    stop_reason: str | None = None


class _Segment(msgspec.Struct, rename="camel"):
    head_uuid: str | None = None
    tail_uuid: str | None = None


class _Kept(msgspec.Struct):
    uuids: list[str] | None = None


class _Compact(msgspec.Struct, rename="camel"):
    trigger: str | None = None
    pre_tokens: int | None = None
    post_tokens: int | None = None
    preserved_segment: _Segment | None = None
    preserved_messages: _Kept | None = None


class _Micro(msgspec.Struct, rename="camel"):
    trigger: str | None = None
    pre_tokens: int | None = None
    tokens_saved: int | None = None
    compacted_tool_ids: list[str] | None = None
    cleared_attachment_uuids: list[str] | None = msgspec.field(default=None, name="clearedAttachmentUUIDs")


class _Sender(msgspec.Struct):
    kind: str | None = None


class Entry(msgspec.Struct, rename="camel"):
    """One line, as far as it matters; everything else on it is skipped undecoded."""

    type: str | None = None
    uuid: str | None = None
    parent_uuid: str | None = None
    session_id: str | None = None
    timestamp: str | None = None
    cwd: str | None = None
    git_branch: str | None = None
    agent_id: str | None = None
    subtype: str | None = None
    is_sidechain: bool | None = None
    is_meta: bool | None = None
    is_compact_summary: bool | None = None
    is_visible_in_transcript_only: bool | None = None
    is_api_error_message: bool | None = None
    prompt_source: str | None = None
    origin: _Sender | str | None = None
    message: _Body | None = None
    attachment: msgspec.Raw = msgspec.Raw(b"")
    compact_metadata: _Compact | None = None
    microcompact_metadata: _Micro | None = None
    custom_title: str | None = None
    ai_title: str | None = None
    summary: str | None = None


_DECODE = msgspec.json.Decoder(Entry).decode


def read(data: bytes, name: str) -> tuple[Recording, ...]:
    """The session in the file; `name` is the file's, used when no line names the session. Never raises."""
    reader = _Reader()
    for number, line in lines(data):
        reader.take(number, line)
    return (reader.recording(name),)


class _Reader:
    def __init__(self) -> None:
        self._problems = Problems()
        self._steps: list[Step] = []
        self._ids = Ids()
        self._chain = Chain()
        self._by_uuid: dict[str, tuple[Message, int]] = {}
        self._sessions: dict[str, int] = {}
        self._titles: dict[str, str] = {}
        self._cwd: str | None = None
        self._branch: str | None = None
        self._handlers: dict[str, Callable[[int, Entry], None]] = {
            "user": self._user,
            "assistant": self._assistant,
            "attachment": self._attachment,
            "system": self._system,
            "custom-title": lambda _, e: self._title("custom", e.custom_title),
            "ai-title": lambda _, e: self._title("ai", e.ai_title),
            "summary": lambda _, e: self._title("summary", e.summary),
        }

    def take(self, number: int, line: bytes) -> None:
        line = readable(line, number, self._problems)
        entry = decoded(_DECODE, Entry, line, number, self._problems) if line else None
        if entry is None:
            return
        if entry.type is None:
            self._problems.add(number, "entry without a type")
            return
        if entry.session_id is not None and entry.session_id not in self._sessions:
            if self._sessions:
                self._problems.add(number, f"a second session id in one file: {entry.session_id}")
            self._sessions[entry.session_id] = number
        self._cwd = self._cwd or entry.cwd
        self._branch = entry.git_branch or self._branch
        self._chain.link(entry.uuid, entry.parent_uuid)
        handle = self._handlers.get(entry.type)
        if handle is not None:
            try:
                handle(number, entry)
            except BEYOND_READING as e:
                self._problems.add(number, what_is_wrong(e))

    def _title(self, kind: str, title: str | None) -> None:
        if title:
            self._titles[kind] = title

    # --- messages

    def _content(self, number: int, entry: Entry) -> list[Block]:
        body = entry.message
        if body is None or body.content is None:
            where = "message" if body is None else "message.content"
            self._problems.add(number, f"{entry.type} entry without a readable {where}")
            return []
        if isinstance(body.content, str):
            return [text_block(body.content)] if body.content else []
        good = blocks(body.content, number, self._problems)
        return self._ids.without_repeated_calls(good, number, self._problems) if entry.type == "assistant" else good

    def _assistant(self, number: int, entry: Entry) -> None:
        body = entry.message
        if entry.is_api_error_message or (body is not None and body.model == SYNTHETIC):
            return
        if not self._is_repeat(number, entry):
            self._say(number, entry, "model", self._content(number, entry))

    def _user(self, number: int, entry: Entry) -> None:
        if entry.is_visible_in_transcript_only and not entry.is_compact_summary:
            return
        if self._is_repeat(number, entry):
            return
        content = self._content(number, entry)
        origin = _origin(entry, content)
        if origin == "user" and not entry.is_sidechain and content:
            back_to = self._chain.back_to(entry.parent_uuid)
            if back_to is not None:
                self._steps.append(LoggedRewind(to=back_to, line=number))
        self._say(number, entry, origin, content)

    def _attachment(self, number: int, entry: Entry) -> None:
        what = shown(bytes(entry.attachment))
        if isinstance(what, Shown) and not self._is_repeat(number, entry):
            content = blocks([msgspec.Raw(raw) for raw in what.blocks], number, self._problems)
            self._say(number, entry, "user" if what.is_typed else "reminder", content)
        elif isinstance(what, str):
            self._problems.add(number, what)

    def _is_repeat(self, number: int, entry: Entry) -> bool:
        """The same entry once more (a log written twice); the same uuid on other content is only given a new id."""
        before = self._by_uuid.get(entry.uuid or "")
        if before is None:
            return False
        content = entry.message.content if entry.message is not None else None
        given = [bytes(raw) for raw in content] if isinstance(content, list) else [text_block(content or "").raw]
        if entry.type == "attachment" or given == [bytes(raw) for raw in before[0].content]:
            self._problems.add(number, f"repeats line {before[1]}, with the same uuid {entry.uuid}: left out")
            return True
        self._problems.add(number, f"the uuid {entry.uuid} stands in line {before[1]} already: given a new one")
        return False

    def _say(self, number: int, entry: Entry, origin: Origin, content: list[Block]) -> None:
        content = mended(content, "assistant" if entry.type == "assistant" else "user", number, self._problems)
        if not content:
            return
        body = entry.message if entry.type == "assistant" else None
        message = Message(
            id=self._ids.message(entry.uuid, number),
            role="assistant" if entry.type == "assistant" else "user",
            content=content_of(content),
            origin=origin,
            at=epoch(entry.timestamp),
            response_id=ResponseId(body.id) if body is not None and body.id else None,
            model=body.model if body is not None else None,
            usage=_usage(body.usage) if body is not None else None,
            stop_reason=body.stop_reason if body is not None else None,
            agent_id=(entry.agent_id or SIDECHAIN) if entry.is_sidechain else None,
        )
        if entry.uuid:
            self._by_uuid.setdefault(entry.uuid, (message, number))
        is_summary = origin == "summary"
        self._steps.append(Said(message, number, logged_only=is_summary))
        if not entry.is_sidechain and not is_summary and entry.type != "attachment":
            response = (body.id or message.id) if body is not None else None
            self._chain.said(entry.uuid, message.id, response)

    # --- what the log's own system did

    def _system(self, number: int, entry: Entry) -> None:
        if entry.is_sidechain:
            return
        if entry.subtype == "compact_boundary":
            self._compacted(number, entry)
        elif entry.subtype == "microcompact_boundary":
            self._microcompacted(number, entry)

    def _compacted(self, number: int, entry: Entry) -> None:
        told = entry.compact_metadata
        if told is None:
            self._problems.add(number, "compact_boundary without compactMetadata")
            told = _Compact()
        kept: tuple[MessageId, ...] = ()
        if told.preserved_messages is not None and told.preserved_messages.uuids is not None:
            kept = self._chain.known(told.preserved_messages.uuids)
        elif told.preserved_segment is not None:
            kept = self._chain.segment(told.preserved_segment.head_uuid, told.preserved_segment.tail_uuid)
        boundary = entry.uuid or f"line-{number}"
        trigger = told.trigger or "auto"
        self._steps.append(LoggedCompaction(boundary, number, trigger, told.pre_tokens, told.post_tokens, kept))
        self._chain.boundary()

    def _microcompacted(self, number: int, entry: Entry) -> None:
        told = entry.microcompact_metadata
        if told is None:
            self._problems.add(number, "microcompact_boundary without microcompactMetadata")
            told = _Micro()
        self._steps.append(
            LoggedMicrocompaction(
                entry.uuid or f"line-{number}",
                number,
                told.trigger or "auto",
                tuple(ToolUseId(i) for i in told.compacted_tool_ids or ()),
                told.pre_tokens,
                told.tokens_saved,
                tuple(MessageId(i) for i in told.cleared_attachment_uuids or ()),
            )
        )

    # --- the whole

    def recording(self, name: str) -> Recording:
        said = [s.message for s in self._steps if isinstance(s, Said)]
        agents = {message.agent_id for message in said}
        session = next(iter(self._sessions), None) or stem(name)
        steps = self._steps
        if len(agents) == 1 and (agent := agents.pop()) is not None:
            steps = [_as_main(step) for step in steps]
            session = stem(name) if agent == SIDECHAIN else f"agent-{agent}"
            said = [s.message for s in steps if isinstance(s, Said)]
        return Recording(
            format="claude-code",
            session=session,
            steps=tuple(steps),
            problems=tuple(self._problems),
            model=next((m.model for m in reversed(said) if m.model and m.agent_id is None), None),
            title=self._titles.get("custom") or self._titles.get("ai") or self._titles.get("summary"),
            cwd=self._cwd,
            branch=self._branch,
        )


def _as_main(step: Step) -> Step:
    """A step of a file that is one sidechain: there it is the conversation itself."""
    if not isinstance(step, Said):
        return step
    return Said(msgspec.structs.replace(step.message, agent_id=None), step.line, step.logged_only)


def _origin(entry: Entry, content: list[Block]) -> Origin:
    if any(block.kind == "tool_result" for block in content):
        return "tool"
    if entry.is_compact_summary:
        return "summary"
    first = content[0].value if content and content[0].kind == "text" else None
    text = getattr(first, "text", "")
    if text.startswith(_COMMAND_OUTPUT):
        return "system"
    sender = entry.origin.kind if isinstance(entry.origin, _Sender) else entry.origin
    is_injected = text.startswith(_INJECTED) or entry.prompt_source == "system" or sender not in (None, "human")
    return "reminder" if entry.is_meta or is_injected else "user"


def _usage(told: _Tokens | None) -> Usage | None:
    if told is None:
        return None
    return Usage(
        input_tokens=told.input_tokens or 0,
        output_tokens=told.output_tokens or 0,
        cache_read_input_tokens=told.cache_read_input_tokens or 0,
        cache_creation_input_tokens=told.cache_creation_input_tokens or 0,
        cache_creation_1h_tokens=(told.cache_creation and told.cache_creation.ephemeral_1h_input_tokens) or 0,
    )
