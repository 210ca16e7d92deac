"""Claude Code session logs: the main log, the logs of sub-agents, attachments, and where a person went back (ENG-6)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from perdure.logs.reading import (
    BEYOND_READING,
    UNREADABLE,
    Problems,
    RecordingIds,
    blocks,
    decode_leniently,
    epoch,
    lines,
    mended_blocks,
    readable,
    stem,
    what_is_wrong,
)
from perdure.logs.recording import (
    LoggedCompaction,
    LoggedMicrocompaction,
    LoggedRewind,
    RecordedMessage,
    Recording,
    Step,
)
from perdure.transcript.blocks import Block, Text, ToolResult, ToolUse, encode, text_block
from perdure.transcript.messages import (
    Message,
    MessageId,
    Origin,
    RefusedCall,
    ResponseId,
    ToolUseId,
    Usage,
    content_of,
)
from perdure.transcript.tool_calls.refusals import answered_calls, refused_calls

Data = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ShownAttachment:
    """What a model sees of an attachment, as raw blocks; `is_typed` when they are the user's own words."""

    blocks: tuple[bytes, ...]
    is_typed: bool = False


def shown_attachment(raw: bytes) -> ShownAttachment | str | None:
    """None for what no model sees; a string says what is wrong with the attachment."""
    try:
        data = msgspec.json.decode(raw) if raw else None
    except UNREADABLE as e:
        return f"attachment: {what_is_wrong(e)}"
    if not isinstance(data, dict) or not isinstance(data.get("type"), str):
        return "attachment without a type"
    if data["type"] == "queued_command":
        return _queued(data)
    picture = _picture(data)
    if picture is not None:
        return picture
    tell = _TELL.get(data["type"])
    text = tell(data) if tell is not None else ""
    return ShownAttachment((_reminder(text),)) if text else None


def _reminder(text: str) -> bytes:
    return encode({"type": "text", "text": f"<system-reminder>\n{text}\n</system-reminder>"})


def _text(value: Any) -> str:
    """Text of a string, a list of strings or blocks, or an object that holds either under a usual name."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(part for part in map(_text, value) if part)
    if isinstance(value, dict):
        for key in ("content", "text", "file", "cells", "source", "message"):
            if key in value:
                return _text(value[key])
    return ""


def _name(data: Data) -> str:
    for key in ("filename", "path", "planFilePath", "displayPath", "uri", "name"):
        if isinstance(data.get(key), str):
            return str(data[key])
    return "unnamed"


def _titled(lead: str, body: str) -> str:
    return f"{lead}:\n{body}" if body else ""


def _queued(data: Data) -> ShownAttachment | None:
    prompt = data.get("prompt")
    parts = prompt if isinstance(prompt, list) else [{"type": "text", "text": prompt}]
    content = tuple(encode(p) for p in parts if isinstance(p, dict) and p.get("text", "-"))
    text = _text(prompt)
    sender = data.get("origin")
    kind = sender.get("kind") if isinstance(sender, dict) else sender
    is_typed = kind in (None, "human") and data.get("commandMode", "prompt") == "prompt" and not data.get("isMeta")
    if is_typed and not text.startswith("<task-notification>"):
        return ShownAttachment(content, is_typed=True) if content and (text or isinstance(prompt, list)) else None
    return ShownAttachment((_reminder(_titled("This came in while you were working", text)),)) if text else None


def _picture(data: Data) -> ShownAttachment | None:
    """An attached image file, as the image itself."""
    content = data.get("content")
    if data["type"] != "file" or not isinstance(content, dict) or content.get("type") != "image":
        return None
    file = content.get("file")
    if not isinstance(file, dict) or not isinstance(file.get("base64"), str):
        return None
    source = {"type": "base64", "media_type": str(file.get("type") or "image/png"), "data": file["base64"]}
    lead = _reminder(f"The user attached the image {_name(data)}:")
    return ShownAttachment((lead, encode({"type": "image", "source": source})))


def _todos(data: Data) -> str:
    items = data.get("content")
    rows = []
    for item in items if isinstance(items, list) else []:
        if isinstance(item, dict):
            words = item.get("content") or item.get("subject") or ""
            number = f"#{item['id']} " if item.get("id") else ""
            rows.append(f"- [{item.get('status', 'pending')}] {number}{_text(words)}")
    return _titled("The to-do list as it stands (no need to mention this)", "\n".join(rows))


def _memories(data: Data) -> str:
    given = data.get("memories")
    parts = [f"{_name(m)}:\n{_text(m)}" for m in given if isinstance(m, dict)] if isinstance(given, list) else []
    return _titled("Memories that may be relevant", "\n\n".join(parts))


def _skills(data: Data) -> str:
    given = data.get("skills")
    parts = [f"### {_name(s)}\n{_text(s)}" for s in given if isinstance(s, dict)] if isinstance(given, list) else []
    return _titled("Skills in use in this session", "\n\n".join(parts))


def _diagnostics(data: Data) -> str:
    rows = []
    for file in data.get("files") or () if isinstance(data.get("files"), list) else ():
        found = file.get("diagnostics") if isinstance(file, dict) else None
        for item in found if isinstance(found, list) else ():
            if isinstance(item, dict):
                rows.append(f"- {_name(file)}: {item.get('severity', '')} {_text(item.get('message'))}")
    return _titled("New diagnostics", "\n".join(rows))


def _delta(lead: str, key: str) -> Callable[[Data], str]:
    def tell(data: Data) -> str:
        removed = data.get("removedNames") or data.get("removedTypes")
        gone = f"\nNo longer available: {_text(removed)}" if removed else ""
        return _titled(lead, (_text(data.get(key)) + gone).strip())

    return tell


def _field(lead: str, *keys: str) -> Callable[[Data], str]:
    """Lead-in, file name where `{}` stands, and the first of the fields that holds text."""

    def tell(data: Data) -> str:
        body = next((text for text in (_text(data.get(key)) for key in keys) if text), "")
        return _titled(lead.format(_name(data)), body)

    return tell


def _note(words: str) -> Callable[[Data], str]:
    return lambda data: words.format(_name(data))


def _hook_success(data: Data) -> str:
    """A hook's plain output is context only at the start of a session and beside a prompt."""
    if data.get("hookEvent") not in ("SessionStart", "UserPromptSubmit"):
        return ""
    return _titled(f"Hook {data.get('hookName', '')} said", _text(data.get("content")).strip())


def _blocked(data: Data) -> str:
    error = data.get("blockingError")
    words = _text(error.get("blockingError")) if isinstance(error, dict) else _text(error)
    return _titled(f"Hook {data.get('hookName', '')} stopped this", words)


def _async_hook(data: Data) -> str:
    response = data.get("response")
    specific = response.get("hookSpecificOutput") if isinstance(response, dict) else None
    return _titled("A hook added", _text(specific.get("additionalContext")) if isinstance(specific, dict) else "")


def _status(data: Data) -> str:
    words = [_text(data.get(key)) for key in ("description", "status", "deltaSummary")]
    return _titled("A background task reports", " ".join(word for word in words if word))


# What the program lists by itself, and lists again behind a compaction: nothing that was said or found.
_SKILLS, _AGENTS, _TOOLS, _SERVERS = _LISTS = (
    "Skills that can be used",
    "Kinds of agents that can be called",
    "Tools that can be loaded",
    "Instructions of MCP servers",
)


RECORD_MARK: Final = "<perdure-record"  # how a record of ours begins that was put into the context of a client's model


def is_shown_again(message: Message) -> bool:
    """Whether a message is no source for a record: a list that the program shows by itself, or a record of ours."""
    if message.origin not in ("reminder", "system"):
        return False
    first = message.blocks[0].value if message.origin == "reminder" else None
    is_listing = isinstance(first, Text) and first.text.startswith(_LISTED)
    return is_listing or any(RECORD_MARK.encode() in bytes(raw) for raw in message.content)


_LISTED = tuple(f"<system-reminder>\n{lead}:" for lead in _LISTS)
_TELL: Final[dict[str, Callable[[Data], str]]] = {
    "file": _field("The user attached {}", "content"),
    "new_file": _field("The user attached {}", "content"),
    "directory": _field("The user attached the folder {}", "content"),
    "new_directory": _field("The user attached the folder {}", "content"),
    "already_read_file": _note("The user attached {}, which was read before and is unchanged."),
    "pdf_reference": _note("The user attached the PDF {}; read the pages that are needed."),
    "compact_file_reference": _note("{} was read before the summary; read it again if its content is needed."),
    "nested_memory": _field("Instructions from {}", "content"),
    "relevant_memories": _memories,
    "edited_text_file": _field("{} was changed by the user or by a tool, on purpose; how it looks now", "snippet"),
    "edited_image_file": _note("The image {} was changed by the user or by a tool, on purpose."),
    "plan_file_reference": _field("The plan in {}", "planContent", "content"),
    "plan_mode": _note("Plan mode is on: plan, and change nothing but the plan file ({})."),
    "plan_mode_reentry": _note("Plan mode is on again; the plan file is {}."),
    "plan_mode_exit": _note("Plan mode is over: changes may be made. The plan file is {}."),
    "auto_mode": _note("Auto mode is on: go on without asking where it is safe."),
    "auto_mode_exit": _note("Auto mode is over."),
    "invoked_skills": _skills,
    "todo": _todos,
    "todo_reminder": _todos,
    "task_reminder": _todos,
    "skill_listing": _field(_SKILLS, "content"),
    "dynamic_skill": _field("Skills found in {}", "skillNames"),
    "agent_listing_delta": _delta(_AGENTS, "addedLines"),
    "deferred_tools_delta": _delta(_TOOLS, "addedLines"),
    "mcp_instructions_delta": _delta(_SERVERS, "addedBlocks"),
    "mcp_resource": _field("The MCP resource {}", "content"),
    "hook_additional_context": lambda d: _titled(f"Hook {d.get('hookName', '')} added", _text(d.get("content"))),
    "hook_success": _hook_success,
    "hook_blocking_error": _blocked,
    "hook_stopped_continuation": lambda d: _titled(f"Hook {d.get('hookName', '')} stopped", _text(d.get("message"))),
    "async_hook_response": _async_hook,
    "selected_lines_in_ide": _field("The user selected these lines in {}", "content"),
    "opened_file_in_ide": _note("The user opened {} in the editor; it may not matter."),
    "output_style": _field("The output style is set", "style"),
    "critical_system_reminder": _field("Reminder", "content"),
    "total_tokens_reminder": _field("Tokens", "text"),
    "read_truncation_notice": _field("What was read of {} was cut", "content", "text", "message"),
    "date_change": _field("The date is now", "newDate"),
    "diagnostics": _diagnostics,
    "task_status": _status,
    "agent_mention": _field("The user asks for the agent", "agentType"),
    "goal_status": _field("The goal", "content", "text", "condition"),
    "ultramemory": _field("Memory", "content"),
    "memory_update": _field("Memory was updated", "content", "text"),
}


class MainChain(msgspec.Struct):
    """The main chain as far as it was read: what a reader of the next part of the log has to know.

    `parents` and `ids` are those of every entry that has a uuid, and of every one that was said. `alive` holds what was
    said since the last boundary and wasn't abandoned, in order; `answered` the ancestors that a typed prompt already
    followed; `round` what was said since the latest response began; `calls` the tools of calls that wait, by their ids.
    """

    parents: dict[str, str | None] = {}
    ids: dict[str, MessageId] = {}
    alive: dict[str, None] = {}
    answered: set[str] = set()
    round: set[str] = set()
    response: str | None = None
    calls: dict[str, str] = {}

    def copy(self) -> MainChain:
        """Another one that goes on from here."""
        return MainChain(
            self.parents.copy(),
            self.ids.copy(),
            self.alive.copy(),
            self.answered.copy(),
            self.round.copy(),
            self.response,
            self.calls.copy(),
        )

    def link(self, uuid: str | None, parent: str | None) -> None:
        """Every entry that has a uuid, said or not."""
        if uuid and uuid not in self.parents:
            self.parents[uuid] = parent

    def add_message(self, uuid: str | None, message: MessageId, response: str | None = None) -> None:
        """A message of the main chain; `response` when it is part of an API response."""
        if not uuid:
            return
        if response is not None and response != self.response:
            self.response = response
            self.round = set()
        self.ids[uuid] = message
        self.alive[uuid] = None
        self.round.add(uuid)

    def boundary(self) -> None:
        """A compaction: nobody goes back behind it."""
        self.alive = {}
        self.answered = set()
        self.round = set()
        self.response = None

    def back_to(self, parent: str | None) -> MessageId | None:
        """For a typed prompt about to be said: the message that it goes back to, or None when it just follows."""
        ancestor = self._ancestor(parent)
        if ancestor is None:
            return None
        followed = ancestor in self.answered
        self.answered.add(ancestor)
        if not followed or ancestor in self.round or ancestor not in self.alive:
            return None
        order = list(self.alive)
        for gone in order[order.index(ancestor) + 1 :]:
            del self.alive[gone]
        return self.ids[ancestor]

    def _ancestor(self, parent: str | None) -> str | None:
        """The nearest entry upwards that was said."""
        seen: set[str] = set()
        while parent is not None and parent not in self.ids:
            if parent in seen:
                return None
            seen.add(parent)
            parent = self.parents.get(parent)
        return parent

    def segment(self, head: str | None, tail: str | None) -> tuple[MessageId, ...]:
        """What was said from `head` to `tail`, both included; only the ends if no path leads from one to the other."""
        path: dict[str, None] = {}
        at = tail
        while at is not None and at not in path:
            path[at] = None
            if at == head:
                return self.kept_ids(list(path)[::-1])
            at = self.parents.get(at)
        return self.kept_ids([uuid for uuid in (head, tail) if uuid])

    def kept_ids(self, uuids: list[str]) -> tuple[MessageId, ...]:
        """The ids of those that were said, each once."""
        return tuple(dict.fromkeys(self.ids[uuid] for uuid in uuids if uuid in self.ids))


SIDECHAIN: Final = "sidechain"  # the agent id of side messages that don't name their agent
SYNTHETIC: Final = "<synthetic>"  # the "model" of messages that the program itself wrote for the screen
_COMMAND_OUTPUT: Final = ("<local-command-stdout>", "<local-command-stderr>", "<bash-stdout>", "<bash-stderr>")
_REJECTED: Final = b'"User rejected tool use"'  # what a log has beside a result that the user refused
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


class _KeptMessages(msgspec.Struct):
    uuids: list[str] | None = None


class _CompactMetadata(msgspec.Struct, rename="camel"):
    trigger: str | None = None
    pre_tokens: int | None = None
    post_tokens: int | None = None
    preserved_segment: _Segment | None = None
    preserved_messages: _KeptMessages | None = None


class _Micro(msgspec.Struct, rename="camel"):
    trigger: str | None = None
    pre_tokens: int | None = None
    tokens_saved: int | None = None
    compacted_tool_ids: list[str] | None = None
    cleared_attachment_uuids: list[str] | None = msgspec.field(default=None, name="clearedAttachmentUUIDs")


class _Ours(msgspec.Struct):
    """What an export of ours says of the calls that an entry answers; where it stands, nothing else is told of them."""

    refused: dict[str, Literal["user", "host"]] = {}
    answered: list[str] = []


class _Sender(msgspec.Struct):
    kind: str | None = None


class ClaudeCodeLine(msgspec.Struct, rename="camel"):
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
    tool_use_result: msgspec.Raw = msgspec.Raw(b"")
    tool_denial_kind: str | None = None
    perdure: _Ours | None = None
    version: str | None = None
    prompt_source: str | None = None
    origin: _Sender | str | None = None
    message: _Body | None = None
    attachment: msgspec.Raw = msgspec.Raw(b"")
    compact_metadata: _CompactMetadata | None = None
    microcompact_metadata: _Micro | None = None
    custom_title: str | None = None
    ai_title: str | None = None
    summary: str | None = None

    @property
    def is_aside(self) -> bool:
        """Whether a sub-agent said it, or was told it; not all versions that name the agent mark the line as well."""
        return bool(self.is_sidechain or self.agent_id)


_DECODE = msgspec.json.Decoder(ClaudeCodeLine).decode


def read(data: bytes, name: str, *, first_line: int = 1, chain: MainChain | None = None) -> tuple[Recording, ...]:
    """The session in the file; `name` is the file's, used when no line names the session. Never raises.

    A part of a file is read with the number of its first line and the chain of what stands before it, which goes on.
    """
    reader = _ClaudeCodeReader(chain or MainChain())
    for number, line in lines(data, first_line):
        reader.take(number, line)
    return (reader.recording(name),)


class _ClaudeCodeReader:
    def __init__(self, chain: MainChain) -> None:
        self._problems = Problems()
        self._steps: list[Step] = []
        self._ids = RecordingIds()
        self._chain = chain
        self._by_uuid: dict[str, tuple[Message, int]] = {}
        self._sessions: dict[str, int] = {}
        self._titles: dict[str, str] = {}
        self._cwd: str | None = None
        self._branch: str | None = None
        self._handlers: dict[str, Callable[[int, ClaudeCodeLine], None]] = {
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
        entry = decode_leniently(_DECODE, ClaudeCodeLine, line, number, self._problems) if line else None
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

    def _content(self, number: int, entry: ClaudeCodeLine) -> list[Block]:
        body = entry.message
        if body is None or body.content is None:
            where = "message" if body is None else "message.content"
            self._problems.add(number, f"{entry.type} entry without a readable {where}")
            return []
        if isinstance(body.content, str):
            return [text_block(body.content)] if body.content else []
        good = blocks(body.content, number, self._problems)
        return self._ids.without_repeated_calls(good, number, self._problems) if entry.type == "assistant" else good

    def _assistant(self, number: int, entry: ClaudeCodeLine) -> None:
        body = entry.message
        if entry.is_api_error_message or (body is not None and body.model == SYNTHETIC):
            return
        if not self._is_repeat(number, entry):
            self._say(number, entry, "model", self._content(number, entry))

    def _user(self, number: int, entry: ClaudeCodeLine) -> None:
        if entry.is_visible_in_transcript_only and not entry.is_compact_summary:
            return
        if self._is_repeat(number, entry):
            return
        content = self._content(number, entry)
        origin = _origin(entry, content)
        if origin == "user" and not entry.is_aside and content:
            back_to = self._chain.back_to(entry.parent_uuid)
            if back_to is not None:
                self._steps.append(LoggedRewind(to=back_to, line=number))
        self._say(number, entry, origin, content)

    def _attachment(self, number: int, entry: ClaudeCodeLine) -> None:
        what = shown_attachment(bytes(entry.attachment))
        if isinstance(what, ShownAttachment) and not self._is_repeat(number, entry):
            content = blocks([msgspec.Raw(raw) for raw in what.blocks], number, self._problems)
            self._say(number, entry, "user" if what.is_typed else "reminder", content)
        elif isinstance(what, str):
            self._problems.add(number, what)

    def _is_repeat(self, number: int, entry: ClaudeCodeLine) -> bool:
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

    def _say(self, number: int, entry: ClaudeCodeLine, origin: Origin, content: list[Block]) -> None:
        content = mended_blocks(content, "assistant" if entry.type == "assistant" else "user", number, self._problems)
        if not content:
            return
        body = entry.message if entry.type == "assistant" else None
        refused, answered = self._user_words(entry, content)
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
            agent_id=(entry.agent_id or SIDECHAIN) if entry.is_aside else None,
            refused=refused,
            answered=answered,
        )
        if entry.uuid:
            self._by_uuid.setdefault(entry.uuid, (message, number))
        is_summary = origin == "summary"
        self._steps.append(RecordedMessage(message, number, logged_only=is_summary))
        if not entry.is_aside and not is_summary and entry.type != "attachment":
            response = (body.id or message.id) if body is not None else None
            self._chain.add_message(entry.uuid, message.id, response)

    def _user_words(
        self, entry: ClaudeCodeLine, content: list[Block]
    ) -> tuple[tuple[RefusedCall, ...], tuple[ToolUseId, ...]]:
        """The calls answered here that were never made, and those that the user answered; they wait by their ids."""
        calls, results = self._chain.calls, list[ToolResult]()
        for block in content:
            value = block.value if block.type in ("tool_use", "tool_result") else None
            if isinstance(value, ToolUse):
                calls[value.id] = value.name
            elif isinstance(value, ToolResult):
                results.append(value)
        kind = entry.tool_denial_kind
        marked: Literal["user", "host", ""] = "user" if bytes(entry.tool_use_result) == _REJECTED else ""
        if kind is not None:
            marked = "user" if kind.startswith("user") else "host"
        if entry.perdure is not None:
            ids = [ToolUseId(result.tool_use_id) for result in results]
            no = entry.perdure.refused
            refused = tuple(RefusedCall(one, no[one]) for one in ids if one in no)
            answered = tuple(one for one in ids if one in entry.perdure.answered)
        else:
            refused = refused_calls(results, calls, entry.version or "", marked=marked)
            answered = answered_calls(results, calls, "claude-code")
        for result in results:
            calls.pop(result.tool_use_id, None)
        return refused, answered

    # --- what the log's own system did

    def _system(self, number: int, entry: ClaudeCodeLine) -> None:
        if entry.is_aside:
            return
        if entry.subtype == "compact_boundary":
            self._compacted(number, entry)
        elif entry.subtype == "microcompact_boundary":
            self._microcompacted(number, entry)

    def _compacted(self, number: int, entry: ClaudeCodeLine) -> None:
        told = entry.compact_metadata
        if told is None:
            self._problems.add(number, "compact_boundary without compactMetadata")
            told = _CompactMetadata()
        kept: tuple[MessageId, ...] = ()
        if told.preserved_messages is not None and told.preserved_messages.uuids is not None:
            kept = self._chain.kept_ids(told.preserved_messages.uuids)
        elif told.preserved_segment is not None:
            kept = self._chain.segment(told.preserved_segment.head_uuid, told.preserved_segment.tail_uuid)
        boundary = entry.uuid or f"line-{number}"
        trigger = told.trigger or "auto"
        self._steps.append(LoggedCompaction(boundary, number, trigger, told.pre_tokens, told.post_tokens, kept))
        self._chain.boundary()

    def _microcompacted(self, number: int, entry: ClaudeCodeLine) -> None:
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
        said = [s.message for s in self._steps if isinstance(s, RecordedMessage)]
        agents = {message.agent_id for message in said}
        session = next(iter(self._sessions), None) or stem(name)
        steps, is_sub_agent = self._steps, False
        if len(agents) == 1 and (agent := agents.pop()) is not None:
            is_sub_agent = True
            steps = [_as_main(step) for step in steps]
            session = stem(name) if agent == SIDECHAIN else f"agent-{agent}"
            said = [s.message for s in steps if isinstance(s, RecordedMessage)]
        return Recording(
            format="claude-code",
            session=session,
            steps=tuple(steps),
            problems=tuple(self._problems),
            model=next((m.model for m in reversed(said) if m.model and m.agent_id is None), None),
            title=self._titles.get("custom") or self._titles.get("ai") or self._titles.get("summary"),
            cwd=self._cwd,
            branch=self._branch,
            is_sub_agent=is_sub_agent,
        )


def _as_main(step: Step) -> Step:
    """A step of a file that is one sidechain: there it is the conversation itself."""
    if not isinstance(step, RecordedMessage):
        return step
    return RecordedMessage(msgspec.structs.replace(step.message, agent_id=None), step.line, step.logged_only)


def _origin(entry: ClaudeCodeLine, content: list[Block]) -> Origin:
    if any(block.type == "tool_result" for block in content):
        return "tool"
    if entry.is_compact_summary:
        return "summary"
    first = content[0].value if content and content[0].type == "text" else None
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
