"""Messages: who said what, when, in which API response, and what of it a person wrote (ENG-2, CMP-15)."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, NewType

import msgspec

from perdure.errors import MalformedBlock, RecordRefused
from perdure.transcript.blocks import (
    Block,
    Text,
    ToolResult,
    ToolUse,
    check_sendable,
    encode,
    one_line,
    raw_of,
    text_block,
)
from perdure.transcript.tokens import Size, block_size

MessageId = NewType("MessageId", str)
ToolUseId = NewType("ToolUseId", str)
ResponseId = NewType("ResponseId", str)
BlobId = NewType("BlobId", str)

FILES_REWOUND = "files_rewound:"  # the note of a reminder that files are as before a prompt, whose id stands behind it
MOST_TOKENS = 10**12  # that one response can have used, whatever is reported

Role = Literal["user", "assistant", "system"]
Origin = Literal["user", "model", "tool", "reminder", "restored", "summary", "system"]


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens that the provider reported for one API response. Cached and uncached input add up to the prompt.

    Attributes:
        input_tokens: of the prompt, neither read from the cache nor written to it.
        output_tokens: of the answer.
        cache_read_input_tokens: of the prompt, read from the cache.
        cache_creation_input_tokens: of the prompt, written to the cache.
        cache_creation_1h_tokens: the part of these that was written to live for an hour.

    Example:
        usage = Usage(input_tokens=100, output_tokens=20, cache_read_input_tokens=900)
        assert usage.prompt_tokens == 1_000 and usage.total_tokens == 1_020
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_creation_1h_tokens: int = 0

    def __post_init__(self) -> None:
        """No count is negative or beyond `MOST_TOKENS`: a log can say anything, and sums go on from it (TOK-3)."""
        for name in _COUNTS:
            count = getattr(self, name)
            if isinstance(count, int) and not 0 <= count <= MOST_TOKENS:
                msgspec.structs.force_setattr(self, name, 0 if count < 0 else MOST_TOKENS)

    @property
    def prompt_tokens(self) -> int:
        """The size of the request."""
        return self.input_tokens + self.cache_read_input_tokens + self.cache_creation_input_tokens

    @property
    def total_tokens(self) -> int:
        """What the context holds after the answer (TOK-3)."""
        return self.prompt_tokens + self.output_tokens


_COUNTS = Usage.__struct_fields__


class WireFields(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a client said of a message in the words of its protocol, where ours have no place for it (GW-7).

    A request in that protocol brings it back byte for byte, whatever else of the message is edited.

    Attributes:
        protocol: in whose words this is.
        role: the client's, of a message that is a reminder to us: `system` or `developer`.
        fields: of the message itself.
        parts: of its calls, by their ids, and of its other blocks, by their number among those that aren't thinking:
            an object whose fields are added to those of the part.
        is_list: the content came as a list of parts; servers that take only strings got one.
    """

    protocol: str
    role: str = ""
    fields: dict[str, msgspec.Raw] = {}
    parts: dict[str, msgspec.Raw] = {}
    is_list: bool = False

    def of_part(self, blocks: Sequence[Block], index: int) -> msgspec.Raw | None:
        """What is said of one of the message's blocks."""
        if not self.parts:
            return None
        value = blocks[index].value
        if isinstance(value, ToolUse):
            return self.parts.get(call_id_as_said(value.id))
        return self.parts.get(str(sum(block.type not in THOUGHT for block in blocks[:index])))


THOUGHT = ("thinking", "redacted_thinking")


class RefusedCall(msgspec.Struct, frozen=True, array_like=True):
    """A call that was never made, since a person (`user`) or their program (`host`) said no (CMP-15, SEC-1).

    Whoever runs the tools says so. It is never read from the text of a result alone: that is the tool's.
    """

    call: ToolUseId
    by: Literal["user", "host"] = "user"


class Message(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, dict=True, tag_field="type", tag="message"
):
    """One message of the conversation; as a journal record, the statement that it was said. Make one with `of`.

    Attributes:
        id: its id; without one, the session gives it.
        role: `user`, `assistant`, or `system`, which is kept but not sent.
        content: the raw JSON of each block; `blocks` reads them.
        origin: who or what it really comes from, such as `user`, `model`, `tool` or `reminder`.
        at: when it was said, in seconds since the epoch.
        response_id: the API response that it came from; several messages may share it, and repeat its usage.
        model: who said it, of an answer.
        usage: what the provider reported.
        stop_reason: why the answer ended.
        agent_id: of a sub-agent, whose messages are kept but aren't part of the main view.
        note: what kind of reminder it is, of a reminder.
        wire: what its client said of it that only its protocol has words for.
        refused: the calls among those that it answers that were never made, and who said no.
        answered: the calls among those that it answers whose results are a person's own words, such as the answer to a
            question that the program put to them. Whoever runs the tools says so, never the text of a result.

    Example:
        message = Message.of("user", "Hello", id="m1")
        assert message.blocks[0].type == "text"
        await session.append(message)
    """

    id: MessageId
    role: Role
    content: tuple[msgspec.Raw, ...]
    origin: Origin
    at: float | None = None
    response_id: ResponseId | None = None
    model: str | None = None
    usage: Usage | None = None
    stop_reason: str | None = None
    agent_id: str | None = None
    note: str | None = None
    wire: WireFields | None = None
    refused: tuple[RefusedCall, ...] = ()
    answered: tuple[ToolUseId, ...] = ()

    @classmethod
    def of(cls, role: Role, content: str | Sequence[Block | Mapping[str, Any] | str], **fields: Any) -> Message:
        """A message from plain data.

        Args:
            role: who speaks, `user` or `assistant`. A message of the role `system` is kept but not sent: the system
                prompt is part of the prefix.
            content: a text, or a list of texts and blocks in Anthropic's words.
            **fields: any others of a message. Without an origin, tool results come from tools, other words of the user
                from a person, and the assistant's from the model. A `usage` may be as the API reports it; `refused` has
                the ids of calls that the user turned down, and `answered` those of calls that the user answered.

        Returns:
            The message. It is said once it is appended to a session.

        Raises:
            MalformedBlock: some content is no block, or no valid text.

        Example:
            result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "rain"}
            assert Message.of("user", [result]).origin == "tool"
        """
        try:
            blocks = [text_block(content)] if isinstance(content, str) else _blocks(content)
        except UnicodeEncodeError as e:
            raise MalformedBlock("text", f"half a surrogate pair at character {e.start}; replace it") from None
        if isinstance(fields.get("usage"), Mapping):
            fields["usage"] = msgspec.convert(fields["usage"], Usage, strict=False)
        if "origin" not in fields:
            answers = any(block.type == "tool_result" for block in blocks)
            fields["origin"] = {"assistant": "model", "system": "system"}.get(role, "tool" if answers else "user")
        for name in ("refused", "answered"):
            if isinstance(fields.get(name), str):  # one id; else each of its letters would be one
                fields[name] = (fields[name],)
        if "refused" in fields:
            given = (RefusedCall(ToolUseId(one)) if isinstance(one, str) else one for one in fields["refused"])
            fields["refused"] = tuple(given)
        if "answered" in fields:
            fields["answered"] = tuple(fields["answered"])
        return cls(role=role, content=content_of(blocks), **{"id": MessageId(""), **fields})

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """The content as blocks; each keeps its bytes."""
        return tuple(Block(bytes(raw)) for raw in self.content)

    @cached_property
    def sizes(self) -> tuple[Size, ...]:
        """What each block weighs; taken once (TOK-5)."""
        return tuple(map(block_size, self.blocks))

    def refused_by(self, call: str) -> Literal["user", "host"] | None:
        """Who said no to a call that this message answers; None when it was made, or nothing is known."""
        return next((one.by for one in self.refused if one.call == call), None)

    @property
    def tool_uses(self) -> tuple[ToolUse, ...]:
        """The calls of tools in it, in order."""
        return tuple(b.value for b in self.blocks if b.type == "tool_use" and isinstance(b.value, ToolUse))

    @property
    def tool_results(self) -> tuple[ToolResult, ...]:
        """The results of tools in it, in order."""
        return tuple(b.value for b in self.blocks if b.type == "tool_result" and isinstance(b.value, ToolResult))

    def check(self) -> Message:
        """Raise `MalformedBlock` if an API would refuse a block where it stands (ENG-7); returns itself."""
        for number, block in enumerate(self.blocks):
            try:
                check_sendable(block, self.role)
            except MalformedBlock as e:
                if len(self.content) == 1:
                    raise
                raise MalformedBlock(e.kind, f"content[{number}]: {e.detail}") from None
        return self


def _blocks(content: Any) -> list[Block]:
    if not isinstance(content, Sequence) or isinstance(content, bytes | bytearray):
        raise MalformedBlock("content", f"it must be a text or a list of blocks, not {type(content).__name__}")
    return [one if isinstance(one, Block) else _block(one, f"content[{n}]") for n, one in enumerate(content)]


def _block(given: Any, at: str) -> Block:
    if isinstance(given, str):
        return text_block(given)
    if not isinstance(given, Mapping):
        raise MalformedBlock("content", f"{at} must be a block, not {type(given).__name__}")
    try:
        return Block(raw_of(given, at))
    except RecordRefused as e:
        raise MalformedBlock("content", str(e)) from None


def content_of(blocks: Sequence[Block]) -> tuple[msgspec.Raw, ...]:
    """Blocks as message content."""
    return tuple(msgspec.Raw(one_line(block.raw)) for block in blocks)


# --- calls and their results ------------------------------------------------------------------------------------------

_COUNTED = re.compile(r"(?:.*[^A-Za-z0-9])?[A-Za-z]{0,8}\d{1,6}\Z", re.DOTALL)  # and not drawn at random
_REPEATED = re.compile(r"__(?:again|hf)(\d+)\Z")  # 0.1 wrote `hf`


def call_id_as_said(call: str) -> str:
    """The id that a call came with."""
    return _REPEATED.sub("", call)


def count_call(call: str, counts: dict[str, int]) -> None:
    """Note of a call whose id was made unique which number it has, by the id as it was said."""
    found = _REPEATED.search(call) if "__" in call else None
    if found is not None:
        said = call[: found.start()]
        counts[said] = max(int(found[1]), counts.get(said, 1))


class CallIds:
    """Gives each call that joins a conversation an id that no other has, and tells which call a result answers.

    Some servers begin to count anew with every answer. Their second `call_0` is kept, and sent, as `call_0__again2`; a
    result for `call_0` answers the one of the two that waits for it.

    Args:
        called: the ids of the calls that are there.
        counts: what `count_call` knows of them.
        waiting: of these, the ones without a result.
        unseen: how many messages a compaction may have replaced; their calls had ids as well, and an undo brings them
            back, so an id that looks counted is none of its own then.
    """

    def __init__(
        self, called: Collection[str], waiting: Iterable[str], *, counts: Mapping[str, int], unseen: int = 0
    ) -> None:
        self._called, self._joined = called, set[str]()
        self._counts = dict(counts)
        self._unseen = unseen
        self.waiting: dict[str, None] = dict.fromkeys(waiting)

    def is_known(self, call: str) -> bool:
        """Whether a call of this id is there."""
        return call in self._called or call in self._joined

    def call(self, wanted: str) -> str:
        """The id of a call that joins now, and waits for its result."""
        said, name = call_id_as_said(wanted), wanted
        may_be_known = wanted == said and (said in self._counts or (self._unseen and _COUNTED.match(said)))
        if may_be_known or self.is_known(wanted):
            name = f"{said}__again{max(self._counts.get(said, 1), self._unseen) + 1}"
        self._joined.add(name)
        count_call(name, self._counts)
        self.waiting[name] = None
        return name

    def result(self, named: str) -> str | None:
        """The id of the call that a result answers, the oldest that waits; None when none does."""
        called_so = (call for call in self.waiting if call_id_as_said(call) == named)
        found = named if named in self.waiting else next(called_so, None)
        if found is not None:
            del self.waiting[found]
        return found


def with_call_ids(
    blocks: tuple[Block, ...], call: Callable[[str], str], result: Callable[[str], str]
) -> tuple[Block, ...]:
    """The blocks with the ids of calls, and those in their results, as these functions give them."""
    found = []
    for block in blocks:
        if block.type == "tool_use" and isinstance(block.value, ToolUse):
            block = _with_field(block, "id", block.value.id, call(block.value.id))
        elif block.type == "tool_result" and isinstance(block.value, ToolResult):
            block = _with_field(block, "tool_use_id", block.value.tool_use_id, result(block.value.tool_use_id))
        found.append(block)
    return blocks if all(new is old for new, old in zip(found, blocks, strict=True)) else tuple(found)


def with_own_calls(message: Message, call: Callable[[str], str], result: Callable[[str], str]) -> Message:
    """The message with these ids of calls, also in what it says of calls that a person refused or answered."""
    joined: dict[str, str] = {}

    def noted(named: str) -> str:
        joined[named] = result(named)
        return joined[named]

    blocks = with_call_ids(message.blocks, call, noted)
    if blocks is message.blocks:
        return message
    refused = tuple(RefusedCall(ToolUseId(joined.get(one.call, one.call)), one.by) for one in message.refused)
    answered = tuple(ToolUseId(joined.get(one, one)) for one in message.answered)
    return msgspec.structs.replace(message, content=content_of(blocks), refused=refused, answered=answered)


def _with_field(block: Block, name: str, before: str, value: str) -> Block:
    if value == before:
        return block
    fields: dict[str, Any] = msgspec.json.decode(block.raw, type=dict[str, msgspec.Raw])
    return Block(encode({**fields, name: value}))


# --- what a person wrote ----------------------------------------------------------------------------------------------

# Elements that programs write: Claude Code and its hooks and editors, Codex, Cline, Roo, Gemini.
_ELEMENTS = (
    "system-reminder", "persisted-output", "local-command-caveat", "local-command-stdout", "local-command-stderr",
    "command-name", "command-message", "command-args", "command-contents", "bash-input", "bash-stdout", "bash-stderr",
    "task-notification", "teammate-message", "cross-session-message", "channel-message", "user-prompt-submit-hook",
    "session-start-hook", "post-tool-use-hook", "user-memory-input", "ide_opened_file", "ide_selection",
    "ide_diagnostics", "new-diagnostics", "environment_context", "environment_details", "user_instructions",
    "permissions instructions", "turn_aborted", "subagent_notification", "user_shell_command", "hook_context",
    "session_context",
)  # fmt: skip
_NAMES = "|".join(map(re.escape, _ELEMENTS))
_OPENED = re.compile(rf"<({_NAMES})\b[^>\n]{{0,400}}>")
_WINDOW, _LONGEST_TAG = 64 * 1024, 512  # a window of a search, and more than such a tag has
# Any other custom element that is the whole text, as hosts wrap what they pass on: <a-host-note …>…</a-host-note>.
_WRAPPED = re.compile(r"\A<([a-z]{1,40}(?:-[a-z]{1,40}){1,4})\b[^>]*>.*</\1>\Z", re.DOTALL)
_MARK = re.compile(r"^\[Request interrupted by user[^\]\n]*\]$\n?", re.MULTILINE)
# How a text begins that a program wrote from its first word to its last.
_WHOLE = (
    "Caveat: The messages below were generated by the user while running local commands",
    "This session is being continued from a previous conversation",
    "Base directory for this skill: ",
    "Stop hook feedback:",
    "Stop hook blocking error",
    "# AGENTS.md instructions for ",
)
_COMMAND = re.compile(r"<command-name>\s*/?([\w:.-]+)\s*</command-name>")
_ARGUMENTS = re.compile(r"<command-args>(.*?)</command-args>", re.DOTALL)
# Commands to the program itself: what follows their name is for it, and the model never acts on it.
_OWN = frozenset(
    "add-dir agents background bashes bug clear color compact config context continue copy cost desktop doctor effort "
    "exit export extra-usage fast feedback fork help hooks ide install-github-app keybindings login logout mcp memory "
    "mobile model new output-style permissions plan plugin plugins privacy-settings quit release-notes reload-plugins "
    "remote-control remote-env rename reset resume rewind sandbox session settings skills stats status statusline "
    "stickers tag tasks terminal-setup theme think-back todos upgrade usage vim voice".split()
)


def spoken(message: Message) -> str:
    """What a person wrote in a message, nothing else of it; empty when nobody did.

    Args:
        message: Any message; one that holds results of tools may hold words beside them.

    Returns:
        The words as they were typed, those of several blocks on lines of their own.
    """
    return "\n".join(words for _, words in spoken_blocks(message))


def spoken_blocks(message: Message) -> Iterator[tuple[int, str]]:
    """The blocks that hold a person's words, by their number, with those words."""
    if not is_of_person(message):
        return
    for index, block in enumerate(message.blocks):
        if block.type == "text" and isinstance(value := block.value, Text) and (words := spoken_text(value.text)):
            yield index, words


def is_of_person(message: Message) -> bool:
    """Whether a person's words can stand in a message: one of theirs, or one that brings the results of tools.

    A message of a tool without a result is a log's way to hold a result as text.
    """
    if message.role != "user" or message.agent_id is not None:
        return False
    if message.origin == "tool":
        return any(block.type == "tool_result" for block in message.blocks)
    return message.origin == "user"


def spoken_text(text: str) -> str:
    """What a person wrote of a text that stands in a message of theirs.

    Of a slash command only the arguments are theirs, and only when they are for the model.
    """
    text = text.strip()
    if text.startswith(_WHOLE):
        return ""
    arguments = _arguments(text) if "<command-name>" in text else ""
    if "<" in text:
        text = "" if _WRAPPED.match(text) else _without_elements(text)
        text = "\n".join(part for part in (arguments, text) if part)
    if "[Request interrupted by user" in text:
        text = _MARK.sub("", text)
    return text.strip()


def _arguments(text: str) -> str:
    """What was typed behind the name of a slash command that is a prompt of its own."""
    name, given = _COMMAND.search(text), _ARGUMENTS.search(text)
    if name is None or given is None or name[1].lower() in _OWN or not _OPENED.match(text):
        return ""
    return given[1].strip()


def command_in(text: str) -> str:
    """The name of the slash command whose arguments are the words of a text, as it was typed: `/review`."""
    name = _COMMAND.search(text) if "<command-name>" in text and _arguments(text) else None
    return f"/{name[1]}" if name is not None else ""


def _openings(text: str) -> Iterator[re.Match[str]]:
    """Find the tags that open elements, in windows: one search keeps the interpreter's lock (ADR 0055)."""
    start = 0
    while start < len(text):
        border = start + _WINDOW
        for found in _OPENED.finditer(text, start, border + _LONGEST_TAG):
            if found.start() >= border:
                break
            yield found
            start = found.end()
        start = max(start, border)


def _without_elements(text: str) -> str:
    """A text without the elements that begin a line, or stand right behind one that does.

    One that the text begins with and doesn't close is all of it.
    """
    kept: list[str] = []
    at, open_ended = 0, set[str]()
    for opened in _openings(text):
        name = opened[1]
        begins = max(at, text.rfind("\n", at, opened.start()) + 1)
        if opened.start() < at or name in open_ended or text[begins : opened.start()].strip():
            continue
        close = f"</{name}>"
        end = text.find(close, opened.end())
        if end < 0:
            if not opened.start():
                return ""
            open_ended.add(name)
            continue
        kept.append(text[at : opened.start()])
        at = end + len(close)
    return "".join((*kept, text[at:])).strip()
