"""What the readers of foreign logs share: lines, tolerant decoding, blocks, ids and times (ENG-1, ENG-6).

A log is evidence: it may be cut off, hold null bytes, or come from a version that nobody has seen. Nothing here raises
for what is in a file; whatever can't be read becomes a `Problem` in plain words, and the rest is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from holdfast.errors import MalformedBlock
from holdfast.transcript.blocks import Block, ToolUse, encode
from holdfast.transcript.foreign.recording import Problem
from holdfast.transcript.messages import MessageId, ToolUseId

S = TypeVar("S", bound=msgspec.Struct)

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
BEYOND_READING = (*UNREADABLE, MalformedBlock)  # what a handler may meet: nesting at the edge of what can be encoded
BOM = b"\xef\xbb\xbf"
_ESCAPE = re.compile(rb"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|(u[dD][89a-fA-F]..)|.)", re.DOTALL)
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])


def lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The lines that hold something, counted from 1; without the byte order mark and line ends."""
    start, number, size = len(BOM) if data.startswith(BOM) else 0, 0, len(data)
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


def decoded(decode: Callable[[bytes], S], shape: type[S], line: bytes, number: int, problems: Problems) -> S | None:
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


class Ids:
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
            if block.kind == "tool_use" and isinstance(call := block.value, ToolUse):
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


def plain(value: Any) -> str:
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
