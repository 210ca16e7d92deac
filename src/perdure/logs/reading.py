"""What the readers of other programs' logs share: lines, tolerant decoding, mended blocks, and chat messages as one
recording (ENG-6).
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from perdure.errors import MalformedBlock
from perdure.logs.recording import Format, Problem, RecordedMessage, Recording, Step
from perdure.transcript.blocks import (
    NAME_CHARACTERS,
    TOOL_ID,
    Block,
    ToolUse,
    block_of,
    check_sendable,
    encode,
    sendable_id,
    text_block,
    tool_problem,
)
from perdure.transcript.messages import Message, MessageId, Origin, ResponseId, Role, ToolUseId, Usage, content_of
from perdure.transcript.records import Front, Record

S = TypeVar("S", bound=msgspec.Struct)

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
BEYOND_READING = (*UNREADABLE, MalformedBlock)  # what a handler may meet: nesting at the edge of what can be encoded
BOM = b"\xef\xbb\xbf"
_ESCAPE = re.compile(rb"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|(u[dD][89a-fA-F]..)|.)", re.DOTALL)
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])


def lines(data: bytes, first: int = 1) -> Iterator[tuple[int, bytes]]:
    """The lines that hold something, counted from `first`; without the byte order mark and line ends."""
    start, number, size = len(BOM) if data.startswith(BOM) else 0, first - 1, len(data)
    while start < size:
        end = data.find(b"\n", start)
        if end < 0:
            end = size
        number += 1
        line = data[start:end]
        start = end + 1
        if line and not line.isspace():
            yield number, line


class Problems:
    """What went wrong in one file, in the order in which it was found."""

    def __init__(self) -> None:
        self.found: list[Problem] = []

    def add(self, line: int, what: str) -> None:
        self.found.append(Problem(line, what))

    def __iter__(self) -> Iterator[Problem]:
        return iter(self.found)


def readable(line: bytes, number: int, problems: Problems) -> bytes:
    """The line without null bytes (a hole that a crash left) and in valid UTF-8; each repair is a problem."""
    if b"\0" in line:
        holes = line.count(b"\0")
        line = line.replace(b"\0", b"").strip()
        problems.add(number, f"{holes} null bytes left out (a hole in the file, as a crash leaves it)")
    if not line.isascii():
        try:
            line.decode()
        except UnicodeDecodeError as e:
            problems.add(number, f"not UTF-8 at byte {e.start}: unreadable characters were replaced")
            line = line.decode(errors="replace").encode()
    return line


def without_lone_surrogates(text: bytes) -> bytes:
    r"""JSON text whose half surrogate pairs (`\ud83d` alone, as cutting a JavaScript string makes) are `\ufffd`."""
    return _ESCAPE.sub(lambda m: rb"\ufffd" if m[1] else m[0], text)


def decode_leniently(
    decode: Callable[[bytes], S], shape: type[S], line: bytes, number: int, problems: Problems
) -> S | None:
    """The line as `shape`; fields of a wrong type are left out and named. None when it isn't a JSON object."""
    try:
        return decode(line)
    except msgspec.ValidationError:
        return _salvaged(shape, line, number, problems)
    except UNREADABLE as e:
        trouble = e
    repaired = without_lone_surrogates(line)
    if repaired != line:
        value: S | None
        try:
            value = decode(repaired)
        except msgspec.ValidationError:
            value = _salvaged(shape, repaired, number, problems)
        except UNREADABLE:
            value = None
        if value is not None:
            problems.add(number, "half of a surrogate pair was replaced by U+FFFD")
            return value
    problems.add(number, what_is_wrong(trouble))
    return None


def what_is_wrong(error: Exception | None) -> str:
    """A decoding error in plain words."""
    if isinstance(error, RecursionError | MalformedBlock):
        return "nested too deeply to be read"
    said = str(error)
    if said == "Input data was truncated":
        return "line is cut off: not complete JSON"
    return f"not JSON: {said.removeprefix('JSON is malformed: ')}"


def _salvaged(shape: type[S], raw: bytes, number: int, problems: Problems, at: str = "") -> S | None:
    """As many fields of `shape` as have the right type; `at` is the path to here, for the problem."""
    try:
        given = _OBJECT.decode(raw)
    except UNREADABLE:
        problems.add(number, f"{at or 'line'} is not a JSON object")
        return None
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(shape):
        part = given.get(field.encode_name)
        if part is None:
            continue
        path = f"{at}.{field.encode_name}" if at else field.encode_name
        try:
            values[field.name] = msgspec.json.decode(part, type=field.type)
        except msgspec.ValidationError as e:
            nested = next((a for a in _alternatives(field.type) if _is_shape(a)), None)
            if nested is not None and bytes(part).startswith(b"{"):
                values[field.name] = _salvaged(nested, bytes(part), number, problems, path)
            else:
                problems.add(number, f"{path}: {e}")
        except UNREADABLE as e:
            problems.add(number, f"{path}: {e}")
    return shape(**values)


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    return getattr(annotation, "__args__", ()) or (annotation,)


def _is_shape(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, msgspec.Struct)


def blocks(raws: Sequence[msgspec.Raw], number: int, problems: Problems) -> list[Block]:
    """The blocks that can be read, bytes as they are; for each that can't, a problem that names its field."""
    good = []
    for index, raw in enumerate(raws):
        try:
            good.append(Block(bytes(raw)).check())
        except MalformedBlock as e:
            problems.add(number, f"content[{index}]: {e}")
    return good


class RecordingIds:
    """Ids that are unique in one recording, made only from what stands in the file."""

    def __init__(self) -> None:
        self._messages: dict[str, int] = {}
        self._calls: dict[str, int] = {}

    def message(self, wanted: str | None, number: int) -> MessageId:
        """`wanted` if it is new, else one with the line in it."""
        name = wanted or f"line-{number}"
        if name in self._messages:
            name = f"{name}-line-{number}"
        while name in self._messages:
            name += "+"
        self._messages[name] = number
        return MessageId(name)

    def call(self, wanted: str) -> ToolUseId:
        """A tool_use id that no earlier call has."""
        name, again = wanted, 1
        while name in self._calls:
            again += 1
            name = f"{wanted}-{again}"
        self._calls[name] = 0
        return ToolUseId(name)

    def without_repeated_calls(self, given: list[Block], number: int, problems: Problems) -> list[Block]:
        """The blocks less every tool_use whose id an earlier line used: a log written twice, not a second call."""
        kept = []
        for block in given:
            if block.type == "tool_use" and isinstance(call := block.value, ToolUse):
                if call.id in self._calls:
                    problems.add(number, f"tool_use {call.id} stands in line {self._calls[call.id]} already: left out")
                    continue
                self._calls[call.id] = number
            kept.append(block)
        return kept


def epoch(stamp: str | None) -> float | None:
    """Seconds since the epoch of an ISO time with a zone; None when it isn't one."""
    if not stamp:
        return None
    try:
        moment = datetime.fromisoformat(stamp)
        return None if moment.tzinfo is None else moment.timestamp()
    except (ValueError, OverflowError):
        return None


def object_of(arguments: Any) -> dict[str, Any]:
    """Tool arguments as an object: as given, parsed from a JSON string, or the raw value under `_raw`."""
    if isinstance(arguments, str):
        try:
            parsed = msgspec.json.decode(arguments.encode("utf-8", "replace"))
        except UNREADABLE:
            return {"_raw": arguments}
        return parsed if isinstance(parsed, dict) else {"_raw": arguments}
    return arguments if isinstance(arguments, dict) else {"_raw": arguments}


def text_of_value(value: Any) -> str:
    """Any JSON value as text: a string as it is, else its JSON."""
    return value if isinstance(value, str) else encode(value).decode()


def stem(name: str) -> str:
    """The file's name without folders and without `.jsonl`, `.traj.json` and the like."""
    base = re.split(r"[\\/]", name)[-1]
    return re.sub(r"(?:\.(?:jsonl|ndjson|json|traj|txt|log))+$", "", base) or base or "unnamed"


def documents(data: bytes, problems: Problems) -> list[tuple[int, bytes]]:
    """The JSON values in a file with the line where each begins: the file as one value, else one on each line."""
    body = data.removeprefix(BOM)
    whole = _json(body)
    if whole is not None:
        return [(1, whole)]
    found = []
    for number, line in lines(data):
        line = readable(line, number, problems)
        value = _json(line) or _json(without_lone_surrogates(line))
        if value is None:
            problems.add(number, what_is_wrong(_trouble(line)))
        else:
            found.append((number, value))
    if found and any(value[:1] in b"[{" for _, value in found):
        return found
    repaired = Problems()
    whole = _json(without_lone_surrogates(readable(body, 1, repaired)))
    problems.found = repaired.found
    if whole is not None:
        return [(1, whole)]
    problems.add(0, what_is_wrong(_trouble(body)).replace("line", "file"))
    return []


def _json(text: bytes) -> bytes | None:
    """The text if it is one readable JSON value."""
    return text if text and _trouble(text) is None else None


def _trouble(text: bytes) -> Exception | None:
    try:
        text.decode()
        msgspec.json.decode(text)
    except UNREADABLE as e:
        return e
    return None


_AS_TEXT = "[A block of type {kind} that no request can hold]\n{text}"


def mended_blocks(
    content: Sequence[Block], role: str, number: int, problems: Problems, *, summary: bool = False
) -> list[Block]:
    """The blocks as a message of this role can send them; each repair, and each block left out, is a problem.

    Summaries of a provider's own (`compaction`) become text, but for `summary`: where it goes on itself.
    """
    good = []
    for index, block in enumerate(content):
        try:
            if block.type != "compaction" or summary:  # only its provider reads one, and only where it compacts
                check_sendable(_answering(block), role)
                good.append(_answering(block))
                continue
            wrong = "a summary of the provider's own"
        except MalformedBlock as e:
            wrong = str(e)
        try:
            better = _mended(block, role, f"call-{number}-{index}")
            check_sendable(better, role)
        except (*BEYOND_READING, UnicodeEncodeError):
            problems.add(number, f"content[{index}]: {wrong}: left out")
            continue
        shown = "as text" if better.type == "text" else "repaired"
        problems.add(number, f"content[{index}]: {wrong}: {shown}")
        good.append(better)
    return good


def mended_record(record: Record, number: int, problems: Problems) -> Record:
    """A record of a journal as it can be sent, always in the same way: whoever folds a journal takes it so.

    It may have been written before records were checked, or by somebody else. Only messages and fronts are changed.
    """
    if isinstance(record, Message) and record.agent_id is None:
        return mended_message(record, number, problems, summary=True)
    return mended_front(record, problems) if isinstance(record, Front) else record


def mended_message(message: Message, number: int, problems: Problems, *, summary: bool = False) -> Message:
    """The message with blocks that can be sent; itself when all can."""
    role: Role = message.role
    content = mended_blocks(message.blocks, role, number, problems, summary=summary)
    return message if content == list(message.blocks) else msgspec.structs.replace(message, content=content_of(content))


def mended_front(front: Front, problems: Problems) -> Front:
    """The front less the tools that no API takes, and with other blocks in the system prompt as text."""
    system = mended_blocks([Block(bytes(raw)) for raw in front.system if _has_type(raw)], "front", 0, problems)
    names: set[str] = set()
    tools = []
    for number, raw in enumerate(front.tools):
        if wrong := tool_problem(bytes(raw), names):
            problems.add(0, f"tools[{number}]: {wrong}: left out")
        else:
            tools.append(raw)
    stable = front.dynamic_from
    if stable is not None and not 0 <= stable <= len(system):
        stable = None
    better = msgspec.structs.replace(front, system=content_of(system), tools=tuple(tools), dynamic_from=stable)
    return front if better == front else better


def _has_type(raw: msgspec.Raw) -> bool:
    try:
        Block(bytes(raw))
    except MalformedBlock:
        return False
    return True


def _answering(block: Block) -> Block:
    """A result that names its call by the id that the call has here."""
    identity = getattr(block.value, "tool_use_id", "") if block.type == "tool_result" else ""
    if not identity or TOOL_ID.fullmatch(identity):
        return block
    return block_of({**_fields(block), "tool_use_id": sendable_id(identity)})


def _fields(block: Block) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.json.decode(block.raw)
    return fields


def _mended(block: Block, role: str, otherwise: str) -> Block:
    fields = _fields(block)
    if block.type == "tool_use" and role == "assistant":
        given = fields.get("input")
        fields |= {
            "id": sendable_id(str(fields.get("id") or "")) or otherwise,
            "name": str(fields.get("name") or "unnamed")[:NAME_CHARACTERS],
            "input": given if isinstance(given, dict) else {"_raw": given},
        }
        for name in ("caller", "toolset_name", "server_name"):
            fields.pop(name, None)
        return block_of(fields)
    if block.type == "tool_result" and role == "user":
        return _mended_result(fields)
    text = fields.get("content" if block.type == "compaction" else "text")
    if isinstance(text, str) and text.strip():
        return text_block(text)
    return text_block(_AS_TEXT.format(kind=block.type, text=block.raw.decode()))


def _mended_result(fields: dict[str, Any]) -> Block:
    """A result whose parts can't be sent where they stand: those become text, and no error holds media."""
    content = fields.get("content")
    parts: list[Any] = []
    for part in content if isinstance(content, list) else ():
        try:
            one = block_of(part) if isinstance(part, dict) else text_block(msgspec.json.encode(part).decode())
            check_sendable(block_of({"type": "tool_result", "tool_use_id": "x", "content": [part]}), "user")
        except MalformedBlock:
            kind = str(part.get("type"))[:40] if isinstance(part, dict) else type(part).__name__
            one = text_block(_AS_TEXT.format(kind=kind, text=msgspec.json.encode(part).decode()))
        parts.append(msgspec.Raw(one.raw))
    fields.pop("is_error", None)
    fields.pop("toolset_name", None)
    return block_of({**fields, "content": parts} if isinstance(content, list) else fields)


@dataclass(frozen=True, slots=True)
class ResponseInfo:
    """What is known about the API response that a model message came from."""

    usage: Usage | None = None
    model: str | None = None
    response_id: str | None = None
    stop_reason: str | None = None


NOTHING_KNOWN = ResponseInfo()


class TrajectoryBuilder:
    """Collects the messages of one trajectory."""

    def __init__(self, form: Format, session: str) -> None:
        self.form = form
        self.session = session
        self.problems = Problems()
        self.steps: list[Step] = []
        self.system: list[Block] = []
        self.tools: list[msgspec.Raw] = []
        self.model: str | None = None
        self.forks = 0  # how many lines less stand before each in the log that it was copied from
        self._ids = RecordingIds()
        self._open: deque[tuple[str, ToolUseId]] = deque()  # calls without a result, as (their id in the log, ours)

    def say(
        self,
        number: int,
        origin: Origin,
        content: Sequence[Block],
        *,
        answer: ResponseInfo = NOTHING_KNOWN,
        at: float | None = None,
        wanted: str | None = None,
        answered: Sequence[ToolUseId] = (),
    ) -> None:
        """A message, unless it is empty. `number` is its line or place in the file, and makes its id: a copy's, too."""
        role: Role = "assistant" if origin == "model" else "user"
        content = mended_blocks(content, role, number, self.problems)
        if not content:
            return
        self.model = answer.model or self.model
        message = Message(
            id=self._ids.message(wanted or f"message-{number - self.forks}", number - self.forks),
            role=role,
            content=content_of(content),
            origin=origin,
            at=at,
            response_id=ResponseId(answer.response_id) if answer.response_id else None,
            model=answer.model,
            usage=answer.usage,
            stop_reason=answer.stop_reason,
            answered=tuple(answered),
        )
        self.steps.append(RecordedMessage(message, number))

    def call(self, name: str, arguments: dict[str, Any], logged_id: str) -> Block:
        """A tool_use block; its id is the log's unless an earlier call had it."""
        ours = self._ids.call(sendable_id(logged_id) or "call")
        self._open.append((logged_id, ours))
        return block_of({"type": "tool_use", "id": ours, "name": name, "input": arguments})

    def adopt(self, block: Block) -> Block:
        """A block that came as it is: a tool_use is remembered as open."""
        logged_id = getattr(block.value, "id", None) if block.type == "tool_use" else None
        if logged_id is not None:
            ours = self._ids.call(sendable_id(logged_id) or "call")
            self._open.append((logged_id, ours))
            if ours != logged_id:
                return block_of(msgspec.json.decode(block.raw) | {"id": ours})
        return block

    def has_open_call(self) -> bool:
        return bool(self._open)

    def close_calls(self) -> None:
        """What is still open will not be answered any more."""
        self._open.clear()

    def answered(self, logged_id: str | None, number: int) -> str:
        """The id that a result has to name: that of the open call it answers (the oldest when it names none)."""
        for entry in self._open:
            if logged_id is None or entry[0] == logged_id:
                self._open.remove(entry)
                return entry[1]
        self.problems.add(number, f"result without a call: {logged_id or 'no id'}")
        return logged_id or f"no-call-{number}"

    def result(self, call: str, content: str | list[Any], is_error: bool = False) -> Block:
        """A tool_result block."""
        value: dict[str, Any] = {"type": "tool_result", "tool_use_id": call, "content": content}
        if is_error:
            value["is_error"] = True
        return block_of(value)

    def recording(self, **told: Any) -> Recording:
        front = mended_front(Front(system=content_of(self.system), tools=tuple(self.tools)), self.problems)
        return Recording(
            format=self.form,
            session=self.session,
            steps=tuple(self.steps),
            front=front,
            problems=tuple(self.problems),
            model=told.pop("model", None) or self.model,
            **told,
        )


def texts(text: str) -> list[Block]:
    """A text as content; nothing when it is blank."""
    return [text_block(text)] if text.strip() else []


def openai_usage(told: Any) -> Usage | None:
    """OpenAI's counts (chat completions or responses): the prompt includes what was cached."""
    if not isinstance(told, dict):
        return None
    prompt = _count(told, "prompt_tokens", "input_tokens")
    if prompt is None:
        return None
    details = told.get("prompt_tokens_details") or told.get("input_tokens_details") or told
    cached = (_count(details, "cached_tokens", "cached_input_tokens") or 0) if isinstance(details, dict) else 0
    if "cache_read_input_tokens" in told or "cache_creation_input_tokens" in told:
        return Usage(
            input_tokens=prompt,
            output_tokens=_count(told, "output_tokens", "completion_tokens") or 0,
            cache_read_input_tokens=_count(told, "cache_read_input_tokens") or 0,
            cache_creation_input_tokens=_count(told, "cache_creation_input_tokens") or 0,
        )
    cached = min(cached, prompt)
    output = _count(told, "completion_tokens", "output_tokens") or 0
    return Usage(input_tokens=prompt - cached, output_tokens=output, cache_read_input_tokens=cached)


def _count(told: dict[str, Any], *names: str) -> int | None:
    for name in names:
        value = told.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    return None
