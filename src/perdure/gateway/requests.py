"""A request as a client sent it, taken apart only as far as is needed (GW-2, GW-3)."""

from __future__ import annotations

import json
import re
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, overload

import msgspec

from perdure.context.models import CacheTtl
from perdure.context.replies import Reply, WireProtocol
from perdure.transcript.blocks import Block, ToolUse, one_line
from perdure.transcript.history import DigestLimits, NotDigestible
from perdure.transcript.messages import Message, Role
from perdure.transcript.records import Front
from perdure.transcript.response_items import DEFAULT_NAMESPACE, namespace_of

_ARRAYS = {name: re.compile(rb'"%b"[ \t\r\n]*:[ \t\r\n]*(?=\[)' % name.encode()) for name in ("messages", "input")}
_SPACE = b" \t\r\n"
_SEPARATORS = frozenset(b" \t\r\n,")
MOST_FIELDS_BYTES = 512 * 1024  # of a body, beside what is said, the prompt and the tools
LARGE_BODY_BYTES = 1024 * 1024  # bodies of so much and more are few at a time
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LIST = msgspec.json.Decoder(list[msgspec.Raw])


UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class Unmanageable(Exception):
    """A request that only its own server understands; it passes through as it is. The argument is a short reason."""

    @property
    def reason(self) -> str:
        return str(self.args[0])


# --- bodies, read as far as they are new ------------------------------------------------------------------------------


class MessageSlices(Sequence[msgspec.Raw]):
    """Messages as places in a body, cut out when they are asked for."""

    def __init__(self, body: bytes, begins: Sequence[int], ends: Sequence[int]) -> None:
        self.body, self.begins, self.ends = body, begins, ends

    def __len__(self) -> int:
        return len(self.ends)

    @overload
    def __getitem__(self, at: int) -> msgspec.Raw: ...

    @overload
    def __getitem__(self, at: slice) -> MessageSlices: ...

    def __getitem__(self, at: int | slice) -> msgspec.Raw | MessageSlices:
        if isinstance(at, slice):
            return MessageSlices(self.body, self.begins[at], self.ends[at])
        return msgspec.Raw(self.body[self.begins[at] : self.ends[at]])

    def __iter__(self) -> Iterator[msgspec.Raw]:
        return (msgspec.Raw(self.body[a:b]) for a, b in zip(self.begins, self.ends, strict=True))


@dataclass(frozen=True, slots=True)
class ReadBody:
    """A body that was read, with the links of its messages from `lead` on."""

    body: bytes
    start: int
    begins: list[int]
    ends: list[int]
    lead: int
    links: list[bytes]

    def common(self, body: bytes) -> int:
        """How many messages the two bodies begin with, to the byte."""
        low, high, at, own = 0, len(self.ends), 0, memoryview(self.body)
        trial = high
        while low < high:
            end = self.ends[trial - 1]
            if body.startswith(own[at:end], at):
                low, at = trial, end
            else:
                high = trial - 1
            trial = (low + high + 1) // 2
        return low


def taken_apart(body: bytes, seen: ReadBody | None = None, name: str = "messages") -> ParsedBody:
    """A body, whose messages are in the field `name`; what an earlier one began with, to the byte, isn't read again.

    Raises `Unmanageable`.
    """
    if seen is not None and (taken := _behind(seen, body, seen.common(body), name)) is not None:
        return taken
    check_fields(body)
    fields = fields_of(body)
    raw = fields.get(name)
    if raw is not None and bytes(memoryview(raw)[:1]) == b'"':
        return ParsedBody(fields, [])
    messages = list_of(raw)
    return (
        _parse_messages(body, fields, messages, bytes(raw), name)
        if raw is not None and messages
        else ParsedBody(fields, messages)
    )


def _parse_messages(
    body: bytes, fields: dict[str, msgspec.Raw], messages: list[msgspec.Raw], array: bytes, name: str
) -> ParsedBody:
    for found in _ARRAYS[name].finditer(body):
        start = found.end() + 1
        if body.startswith(array, start - 1):
            rest = fields_of(body[:start] + body[start - 2 + len(array) :])
            if bytes(rest.get(name, b"")) == b"[]":  # it is this one, and no other of the same text
                return ParsedBody(fields, MessageSlices(body, *_message_spans(body, start, messages)), start)
            break
    return ParsedBody(fields, messages)


def _message_spans(body: bytes, at: int, raws: Sequence[msgspec.Raw]) -> tuple[list[int], list[int]]:
    """Where messages begin and end that stand behind each other from a place on."""
    begins: list[int] = []
    ends: list[int] = []
    for raw in raws:
        while body[at] in _SEPARATORS:
            at += 1
        begins.append(at)
        at += memoryview(raw).nbytes
        ends.append(at)
    return begins, ends


@dataclass(slots=True)
class BodyCache:
    """The last bodies of conversations, by the seed of their chains. Memory is bounded: the longest unused go."""

    most_bytes: int = 64 * 1024 * 1024
    most: int = 512  # bodies: each request looks through them, and small ones weigh more than they hold
    _seen: OrderedDict[tuple[bytes, bytes], ReadBody] = field(default_factory=OrderedDict)
    _bytes: int = 0

    def seen(self, seed: bytes, body: bytes) -> ReadBody | None:
        """The latest body of the same seed that begins with the same message."""
        for key in reversed(self._seen):
            seen = self._seen[key]
            if key[0] == seed and body.startswith(seen.body[: seen.ends[seen.lead]]):
                return seen
        return None

    def keep(self, seed: bytes, taken: ParsedBody, lead: int, links: list[bytes]) -> None:
        """Remember a body by its links, which begin behind its first `lead` messages."""
        messages = taken.messages
        if not isinstance(messages, MessageSlices) or taken.start < 0 or len(links) < 2:
            return
        ends = list(messages.ends[: lead + len(links) - 1])
        begins = list(messages.begins[: len(ends)])
        key = (seed, links[1])
        self._forget(key)
        self._seen[key] = ReadBody(messages.body, taken.start, begins, ends, lead, links)
        self._bytes += len(messages.body)
        while self._bytes > self.most_bytes or len(self._seen) > self.most:
            self._forget(next(iter(self._seen)))

    def _forget(self, key: tuple[bytes, bytes]) -> None:
        gone = self._seen.pop(key, None)
        self._bytes -= len(gone.body) if gone else 0


def _behind(seen: ReadBody, body: bytes, count: int, name: str) -> ParsedBody | None:
    """The body read from behind its first `count` messages on; None when that can't be done."""
    if count <= seen.lead:
        return None
    tail = body[seen.ends[count - 1] :].lstrip(_SPACE)
    if tail[:1] == b",":
        tail = tail[1:].lstrip(_SPACE)
        if tail[:1] == b"]":
            return None
    short = body[: seen.start] + tail
    try:
        fields = fields_of(short)
        new = list_of(fields.get(name))
    except Unmanageable:
        return None
    if not short.startswith(bytes(fields[name]), seen.start - 1):
        return None  # another field of this name stands behind it, and the last one holds
    begins, ends = _message_spans(short, seen.start, new)
    shift = len(body) - len(short)
    places = ([*seen.begins[:count], *(n + shift for n in begins)], [*seen.ends[:count], *(n + shift for n in ends)])
    known = count - seen.lead
    return ParsedBody(fields, MessageSlices(body, *places), seen.start, seen.links[: known + 1], count)


@dataclass(frozen=True, slots=True)
class ParsedBody:
    """A body taken apart: its fields, its messages, and the links of those that are known already.

    The field of the messages holds what is new only. `start` is the place behind the bracket that opens them; -1 where
    it couldn't be told. The first `known` messages were read before.
    """

    fields: dict[str, msgspec.Raw]
    messages: Sequence[msgspec.Raw]
    start: int = -1
    links: Sequence[bytes] = ()
    known: int = 0


# --- requests, and the protocols that say what they mean --------------------------------------------------------------


class ConversationTurn(NamedTuple):
    """A conversation that a request names, as it was then: its version, how many items waited behind the answer that
    it had come to, and what the request adds to it."""

    id: str
    version: int
    added: int
    items: tuple[msgspec.Raw, ...]


@dataclass(frozen=True, slots=True)
class ClientRequest:
    """A request. `history` are the messages that make the conversation; `prefill` the beginning of the answer to it.

    `lead` are messages before the history that belong to the front, and `skipped` how many others aren't part of it.
    `continues` is the id of an answer of ours, or a sealed place, that the history goes on from. `wants_compaction`: it
    asks for nothing else. `conversation` is the one of ours that it goes on with. `fetched` is the id of an answer that
    only the upstream had: the history says all that was before it.
    """

    body: bytes
    fields: dict[str, msgspec.Raw]
    history: Sequence[msgspec.Raw]
    prefill: msgspec.Raw | None = None
    lead: Sequence[msgspec.Raw] = ()
    taken: ParsedBody | None = None
    skipped: int = 0
    continues: str = ""
    wants_compaction: bool = False
    conversation: ConversationTurn | None = None
    fetched: str = ""

    @property
    def is_stream(self) -> bool:
        return bytes(self.fields.get("stream", b"")).strip() == b"true"

    @property
    def model(self) -> str:
        return str(self.value("model") or "")

    @property
    def tools(self) -> list[msgspec.Raw]:
        """The tools that it offers, as they came. Raises `Unmanageable` where that isn't a list."""
        given = self.fields.get("tools")
        return [] if given is None or bytes(given) == b"null" else list_of(given)

    def value(self, name: str) -> Any:
        """A field's plain value; None when it isn't there."""
        raw = self.fields.get(name)
        try:
            return None if raw is None else msgspec.json.decode(raw)
        except UNREADABLE:
            return None


class CacheTtls(NamedTuple):
    """How long a client wants its front cached, and its messages; None where it doesn't say."""

    front: CacheTtl | None = None
    messages: CacheTtl | None = None


class AnswerReader(Protocol):
    """Reads an answer on its way to the client.

    `feed` gives the bytes to pass on; what ends the answer is held back until `end` is asked for. `reply` is the whole
    answer, or raises a `ModelError` when it isn't whole; `so_far` is what came of it, where a client may go on from
    that. `go_on`: what is fed from now on is another answer, which the client is to see as the rest of this one.
    `is_broken`: something was left out, and what follows can't be read, so nothing more may be passed on.
    """

    @property
    def is_broken(self) -> bool: ...

    @property
    def so_far(self) -> Callable[[], Reply] | None: ...

    def feed(self, data: bytes) -> bytes: ...

    def end(self) -> bytes: ...

    def reply(self) -> Reply: ...

    def go_on(self) -> None: ...


SaidMessage = tuple[Role, tuple[Block, ...]]
"""A message of an answer, as the client will say it in its next request."""


class ClientProtocol(Protocol):
    """One protocol, as clients and servers speak it. `array` is the field of a body that has the messages, `key_header`
    where a key belongs that we send.

    `answered` are the messages of one answer. `reader` leaves calls of the tool `ours` out of what the client sees, and
    `said` are the messages that it will then say of answers that follow each other. `recall_tool` defines that tool
    under a name, as a front has it, and `sent_tool` as a body has it. `tool_name` reads the name of a front's tool, and
    `is_full` says whether so many are the most that a server takes. `begins` says whether a stream that began so is an
    answer; while it is False, it needs more bytes to tell. It raises the `ModelError` that stands in the place of an
    answer. `error_event` is an error in a stream that has begun.
    """

    protocol: WireProtocol
    array: str
    key_header: str

    def read(self, body: bytes, taken: ParsedBody) -> ClientRequest: ...

    def digest(self, raw: bytes | msgspec.Raw, limits: DigestLimits) -> bytes: ...

    def messages(self, raws: Sequence[msgspec.Raw]) -> list[Message]: ...

    def front(self, incoming: ClientRequest) -> Front: ...

    def head(self, incoming: ClientRequest, most_tokens: int | None) -> dict[str, Any]: ...

    def answered(self, reply: Reply) -> list[SaidMessage]: ...

    def cache_ttls(self, incoming: ClientRequest) -> CacheTtls: ...

    def reader(
        self, incoming: ClientRequest, cap: int | None, *, is_stream: bool, most_bytes: int, ours: str
    ) -> AnswerReader: ...

    def tool_name(self, tool: bytes) -> str: ...

    def recall_tool(self, name: str) -> bytes: ...

    def sent_tool(self, name: str) -> bytes: ...

    def is_full(self, tools: int) -> bool: ...

    def said(self, replies: Sequence[Reply], ours: str) -> list[SaidMessage]: ...

    def begins(self, data: bytes) -> bool: ...

    def error_body(self, status: int, message: str) -> bytes: ...

    def error_event(self, status: int, message: str) -> bytes: ...


def is_call_of(block: Block, tool: str) -> bool:
    """Whether a block is a call of the tool of that name, which is in no namespace but the default one."""
    is_named = isinstance(block.value, ToolUse) and block.value.name == tool
    return is_named and namespace_of(block) in ("", DEFAULT_NAMESPACE)


def calls_of(blocks: Iterable[Block], tool: str) -> list[ToolUse]:
    """The calls of the tool of that name among some blocks."""
    return [block.value for block in blocks if isinstance(block.value, ToolUse) and is_call_of(block, tool)]


def fields_of(body: bytes | msgspec.Raw) -> dict[str, msgspec.Raw]:
    """The fields of a body. Raises `Unmanageable` when it isn't an object."""
    try:
        return _FIELDS.decode(body)
    except UNREADABLE:
        raise Unmanageable("not_json") from None


class _RepeatedName(Exception):
    """An object says a name twice. The argument is the name."""


def repeated_name(body: bytes) -> str | None:
    """Return a name that some object of a body says twice, of which readers may take either; None where none does.

    Raises `Unmanageable` for what can't be read.
    """
    try:
        _EACH_OBJECT.decode(body.decode())
    except _RepeatedName as e:
        return str(e.args[0])
    except (ValueError, RecursionError):
        raise Unmanageable("not_json") from None
    return None


def _refuse_repeated(pairs: list[tuple[str, Any]]) -> None:
    names = {name for name, _ in pairs}
    if len(names) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        raise _RepeatedName(next(name for name, count in counts.items() if count > 1))


_EACH_OBJECT = json.JSONDecoder(
    object_pairs_hook=_refuse_repeated, parse_int=bool, parse_float=bool, parse_constant=bool, strict=False
)


class _LargeFields(msgspec.Struct):
    """The fields of a body that may be large."""

    messages: msgspec.Raw = msgspec.Raw()
    input: msgspec.Raw = msgspec.Raw()
    tools: msgspec.Raw = msgspec.Raw()
    system: msgspec.Raw = msgspec.Raw()
    instructions: msgspec.Raw = msgspec.Raw()


_LARGE_FIELDS = msgspec.json.Decoder(_LargeFields)


def check_fields(body: bytes) -> None:
    """Refuse a body with too much in fields that are small in any other, before they are read: they may be millions.

    Raises `Unmanageable`.
    """
    if len(body) > MOST_FIELDS_BYTES:
        try:
            large = _LARGE_FIELDS.decode(body)
        except UNREADABLE:
            raise Unmanageable("not_json") from None
        named = (large.messages, large.input, large.tools, large.system, large.instructions)
        if len(body) - sum(memoryview(one).nbytes for one in named) > MOST_FIELDS_BYTES:
            raise Unmanageable("fields_too_large")


class _SaidPart(msgspec.Struct):
    text: str = ""


class _SaidMessage(msgspec.Struct):
    role: str
    content: str | list[_SaidPart]


_SAID = msgspec.json.Decoder(_SaidMessage)


def check_text(raw: msgspec.Raw, limits: DigestLimits) -> None:
    """Refuse a message whose texts are too large before more copies of them are made than one (as `digest` does).

    Raises `NotDigestible`.
    """
    if memoryview(raw).nbytes <= limits.text:
        return
    try:
        said = _SAID.decode(raw)
    except UNREADABLE:
        return  # whoever reads the whole of it sees what it says
    texts = [said.content] if isinstance(said.content, str) else [part.text for part in said.content]
    if said.role != "tool" and sum(map(len, texts)) > limits.text:
        raise NotDigestible("text_too_large")


def unread_fields(fields: Mapping[str, msgspec.Raw], read: Collection[str]) -> dict[str, msgspec.Raw]:
    """The fields of an object that nobody here reads, each with its own bytes, in one line as a journal keeps them."""
    return {name: msgspec.Raw(one_line(bytes(raw))) for name, raw in fields.items() if name not in read}


def list_of(raw: msgspec.Raw | None) -> list[msgspec.Raw]:
    """The items of an array. Raises `Unmanageable` when it is none."""
    try:
        return _LIST.decode(raw) if raw is not None else []
    except UNREADABLE:
        raise Unmanageable("no_messages") from None


def scaled_count(value: int, share: float) -> int:
    """A count on a meter that reads `share` of the truth; what isn't nothing stays something."""
    return max(1, int(value * share)) if value else 0


async def read_body(
    chunks: AsyncIterator[bytes], most_bytes: int, on_large: Callable[[], Awaitable[None]] | None = None
) -> bytes | None:
    """All bytes of a body; None when there are more than allowed. `on_large` is asked before one becomes large."""
    parts: list[bytes] = []
    size = 0
    async for chunk in chunks:
        size += len(chunk)
        if size > most_bytes:
            return None
        if size >= LARGE_BODY_BYTES and on_large is not None:
            await on_large()
            on_large = None
        parts.append(chunk)
    return parts[0] if len(parts) == 1 else b"".join(parts)


# --- which session of its client it is of -----------------------------------------------------------------------------

_NAME_HEADERS = (b"x-perdure-session", b"x-claude-code-session-id", b"session_id", b"session-id", b"conversation_id")
_NAME_CHARS = 200
_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_USERS_SESSION = re.compile(rf"session(?:_|_id\W+)({_UUID})")  # Claude Code's `user_…_session_…`, and its JSON
# An id that was drawn for one conversation: a UUID, or as long a word of letters and digits.
_DRAWN = re.compile(rf"{_UUID}|(?<![A-Za-z0-9])(?=[A-Za-z0-9]*[0-9])(?=[A-Za-z0-9]*[A-Za-z])[A-Za-z0-9]{{20,}}")


def client_session(headers: Iterable[tuple[bytes, bytes]], incoming: ClientRequest) -> str:
    """The client's own id of its session, by which its histories belong together; empty where it sends none.

    A client that compacts its history itself, or clears it, begins a new one under the same id. Only what names a
    session counts: a key for the cache, or a person, may be shared by conversations that mustn't see each other.
    """
    given = {name: value.decode("latin-1")[:_NAME_CHARS] for name, value in headers if name in _NAME_HEADERS}
    for header in _NAME_HEADERS:
        if given.get(header, "").strip():
            return given[header].strip()
    metadata = incoming.value("metadata")
    user = metadata.get("user_id") if isinstance(metadata, dict) else None
    if isinstance(user, str) and (found := _USERS_SESSION.search(user)):
        return found[1]
    named = incoming.value("conversation")
    named = named.get("id") if isinstance(named, dict) else named
    conversation = named if incoming.conversation is None else incoming.conversation.id
    for given_id in (conversation, incoming.value("prompt_cache_key")):
        if isinstance(given_id, str) and (given_id is conversation or _DRAWN.search(given_id)):
            return given_id[:_NAME_CHARS]
    return ""
