"""Whose log a file is, told by its content, our own journals included (ENG-6)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from perdure.errors import DamagedLine, ForeignFormat, MalformedBlock, NewerFormat
from perdure.logs import claude_code, codex, openai, swe_agent
from perdure.logs.reading import BOM, UNREADABLE, Problems, mended_front, mended_message
from perdure.logs.recording import (
    Format,
    LoggedCompaction,
    LoggedMicrocompaction,
    LoggedRewind,
    RecordedMessage,
    Recording,
    Step,
)
from perdure.transcript.codec import FORMATS_READ, decode_header, decode_line
from perdure.transcript.messages import Message
from perdure.transcript.records import Cleared, Compacted, Front, Header, Record, Rewound, Titled


def _read_journal(data: bytes, name: str) -> tuple[Recording, ...]:
    """A journal of ours as one recording. Damaged lines become problems; a newer version is a `ForeignFormat`."""
    lines = data.split(b"\n")
    try:
        header = decode_header(lines[0])
    except (DamagedLine, NewerFormat) as e:
        raise ForeignFormat(f"{name}: line 1: {e}") from None
    return (_recording(header, list(enumerate(lines[1:], 2)), name),)


def _recording(header: Header, lines: list[tuple[int, bytes]], name: str) -> Recording:
    steps: list[Step] = []
    problems = Problems()
    front, title = Front(), None
    for number, line in lines:
        if not line.strip():
            continue
        try:
            records = decode_line(line, header.version).records
        except NewerFormat as e:
            raise ForeignFormat(f"{name}: line {number}: {e}") from None
        except DamagedLine as e:
            problems.add(number, str(e))
            continue
        for record in records:
            try:
                steps += _steps(record, number, problems)
            except MalformedBlock as e:
                problems.add(number, str(e))
            if isinstance(record, Front):
                front = record
            elif isinstance(record, Titled):
                title = record.title or title
    models = [s.message.model for s in steps if isinstance(s, RecordedMessage) and s.message.model]
    return Recording(
        format="perdure",
        session=header.session,
        steps=tuple(steps),
        front=mended_front(front, problems),
        problems=tuple(problems),
        model=models[-1] if models else front.model,
        title=title,
        cwd=header.project,
    )


def _steps(record: Record, line: int, problems: Problems) -> Iterator[Step]:
    if isinstance(record, Message):
        yield RecordedMessage(mended_message(record, line, problems), line)
    elif isinstance(record, Compacted):
        yield LoggedCompaction(record.id, line, record.trigger, record.tokens_before, record.tokens_after, record.kept)
        for message in record.summary:
            yield RecordedMessage(message, line, logged_only=True)
    elif isinstance(record, Cleared):
        yield LoggedMicrocompaction(
            f"line-{line}", line, record.trigger, record.tool_use_ids, None, record.tokens_saved, record.attachments
        )
    elif isinstance(record, Rewound):
        yield LoggedRewind(record.to, line)


HEAD_BYTES: Final = 65_536
_LINES: Final = 200  # so many lines at most are looked at
_CUT_BYTES: Final = 2**20  # of a cut JSON value, in which the keys are looked for that tell what it is
READ: Final = "Perdure, Claude Code, Codex, SWE-agent, mini-swe-agent, and lists of OpenAI or Anthropic messages"

_CLAUDE_TYPES: Final = frozenset(
    "user assistant system attachment progress summary custom-title ai-title tag last-prompt mode permission-mode "
    "agent-name agent-setting agent-color pr-link queue-operation file-history-snapshot file-history-delta "
    "content-replacement".split()
)
_CLAUDE_KEYS: Final = frozenset({"sessionId", "parentUuid", "leafUuid", "isSnapshotUpdate", "isSidechain"})
_CODEX_TYPES: Final = frozenset("session_meta response_item event_msg turn_context compacted".split())
_CODEX_ITEMS: Final = frozenset("reasoning function_call function_call_output local_shell_call".split())
_ESCAPED_OR_TOKEN: Final = re.compile(r'"((?:[^"\\]++|\\.)*+)("\s*:|"|\Z)|[\[\]{}]', re.DOTALL)

Members = dict[str, msgspec.Raw]
_OBJECT = msgspec.json.Decoder(Members)
_LIST = msgspec.json.Decoder(list[msgspec.Raw])


def detect(head: bytes, name: str) -> Format | None:
    """The format of a file that begins with `head`; None when no reader knows it. The name only breaks ties."""
    head = head.removeprefix(BOM).lstrip(b"\0 \t\r\n")
    for line in head.split(b"\n", _LINES)[:_LINES]:
        form = _of_line(line.strip(b"\0 \t\r"))
        if form is not None:
            return form
    return _of_document(head, name)


def read_recordings(data: bytes, name: str) -> tuple[Recording, ...]:
    """The sessions in a file of any format that is read. Raises `ForeignFormat` and nothing else."""
    form = detect(data[:HEAD_BYTES], name) or (detect(data, name) if len(data) > HEAD_BYTES else None)
    if form == "claude-code":
        return claude_code.read(data, name)
    if form == "codex":
        return codex.read(data, name)
    if form in ("swe-agent", "mini-swe-agent"):
        return swe_agent.read(data, name)
    if form == "openai":
        return openai.read(data, name)
    if form == "perdure":
        return _read_journal(data, name)
    raise ForeignFormat(f"{name}: {_looks_like(data)}; what can be read: {READ}")


def _looks_like(data: bytes) -> str:
    head = data[:HEAD_BYTES].removeprefix(BOM).strip(b"\0 \t\r\n")
    if not data:
        return "the file is empty"
    if not head:
        return "the file holds nothing but blanks"
    if head[:1] in b"{[":
        return "JSON, but not of a log that is known"
    try:
        head.decode()
    except UnicodeDecodeError as e:
        if e.start < len(head) - 4:
            return "binary data"
    return "text, but not JSON"


def _of_line(line: bytes) -> Format | None:
    """A line that is a JSON object by itself."""
    if not line.startswith(b"{"):
        return None
    try:
        members = _OBJECT.decode(line)
    except UNREADABLE:
        return None
    kind = _string(members, "type")
    if _string(members, "format") in FORMATS_READ:
        return "perdure"
    if kind in _CODEX_TYPES and "payload" in members:
        return "codex"
    if kind is not None and _CLAUDE_KEYS & members.keys():
        return "claude-code"
    if kind in _CODEX_ITEMS or (kind is None and {"id", "timestamp", "instructions"} <= members.keys()):
        return "codex"
    if kind in _CLAUDE_TYPES and {"message", "uuid"} <= members.keys():
        return "claude-code"
    return _of_members(set(members), members)


def _of_members(keys: set[str], members: Members) -> Format | None:
    """An object that is a message, or a whole run."""
    form = _string(members, "trajectory_format")
    if form is not None and form.startswith("mini-swe-agent"):
        return "mini-swe-agent"
    if "history" in keys and ("trajectory" in keys or "info" in keys):
        return "swe-agent"
    if "messages" in keys and "info" in keys and b"mini" in bytes(members.get("info", msgspec.Raw(b"mini"))):
        return "mini-swe-agent"
    if "trajectory" in keys and _holds(members.get("trajectory"), "action", "observation"):
        return "swe-agent"
    if {"action", "observation"} <= keys:
        return "swe-agent"
    if "role" in keys and keys & {"content", "tool_calls", "function_call"}:
        return "openai"
    if any(_holds(members.get(key), *pair) for key in openai.LISTS for pair in (("role",), ("from", "value"))):
        return "openai"
    for value in members.values():
        if bytes(value).startswith(b"[") and (inner := _first(value)) is not None and set(inner) & set(openai.LISTS):
            return _of_members(set(inner), inner)
    return None


def _holds(value: msgspec.Raw | None, *keys: str) -> bool:
    inner = _first(value) if value is not None else None
    return inner is not None and set(keys) <= inner.keys()


def _first(value: msgspec.Raw) -> Members | None:
    """The first object of an array."""
    try:
        items = _LIST.decode(value)
        return _OBJECT.decode(items[0]) if items else None
    except UNREADABLE:
        return None


def _string(members: Members, key: str) -> str | None:
    try:
        return msgspec.json.decode(members[key], type=str) if key in members else None
    except UNREADABLE:
        return None


def _of_document(head: bytes, name: str) -> Format | None:
    """One JSON value over many lines, or one that is longer than the head."""
    try:
        if head.startswith(b"["):
            first = _first(msgspec.Raw(head))
            if first is not None:
                return _of_members(set(first), first) or _of_line(bytes(_LIST.decode(head)[0]))
        elif head.startswith(b"{"):
            members = _OBJECT.decode(head)
            return _of_members(set(members), members)
    except UNREADABLE:
        pass
    return _of_cut_document(head[:_CUT_BYTES], name) if head[:1] in (b"{", b"[") else None


def _of_cut_document(head: bytes, name: str) -> Format | None:
    """What the keys tell that stand near the top of a cut JSON value."""
    shallow, deeper = _keys(head.decode(errors="replace"))
    if head[:1] == b"{" and {"type", "payload"} <= shallow:
        return "codex"
    if head[:1] == b"{" and {"parentUuid", "sessionId"} <= shallow:
        return "claude-code"
    if "history" in shallow or ("trajectory" in shallow and {"action", "observation"} <= deeper):
        return "swe-agent"
    if {"action", "observation"} <= shallow:
        return "swe-agent"
    if "trajectory_format" in shallow or "mini_version" in deeper:
        return "mini-swe-agent"
    if "info" in shallow and shallow <= {"info", "messages"} and not name.endswith(".jsonl"):
        return "mini-swe-agent"
    if "role" in shallow or (shallow & set(openai.LISTS) and deeper & {"role", "from"}):
        return "openai"
    return None


def _keys(text: str) -> tuple[set[str], set[str]]:
    """The keys of the outermost object (or of the objects in the outermost list), and those below them."""
    shallow: set[str] = set()
    deeper: set[str] = set()
    depth = 0
    top = 2 if text.startswith("[") else 1
    for found in _ESCAPED_OR_TOKEN.finditer(text):
        token = found[0]
        if token in ("{", "["):
            depth += 1
        elif token in ("}", "]"):
            depth -= 1
        elif token.endswith(":"):
            (shallow if depth <= top else deeper).add(found[1])
    return shallow, deeper
