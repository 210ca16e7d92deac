"""Reading a request body, once per distinct message: what later rules, hashes and counts need, kept by its bytes."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import msgspec

from perdure.testing.block_rules import (
    MEDIA,
    SERVER_RESULTS,
    THINKING,
    BlockViolation,
    ModelRules,
    Violation,
    check_block,
    measure,
    nested_blocks,
)

TokenCounter = Callable[[Mapping[str, Any]], int]
IMAGE_TOKENS = 2000
_MESSAGE_FIELDS = frozenset({"role", "content"})
_SYSTEM_FIELDS = _MESSAGE_FIELDS | {"clear_at", "output_config"}


def count_tokens(block: Mapping[str, Any]) -> int:
    """The default counter: UTF-16 units of the block's compact JSON / 4, and 2,000 for each image."""
    if block.get("type") == "image":
        return IMAGE_TOKENS
    images = 0
    content = block.get("content")
    if isinstance(content, list) and any(isinstance(part, dict) and part.get("type") == "image" for part in content):
        rest = [part for part in content if not (isinstance(part, dict) and part.get("type") == "image")]
        images, block = len(content) - len(rest), {**block, "content": rest}
    raw = msgspec.json.encode(block)
    units = len(raw) if raw.isascii() else len(raw.decode().encode("utf-16-le")) // 2
    return int(units / 4 + 0.5) + images * IMAGE_TOKENS


@dataclass(frozen=True, slots=True)
class DecodedBlock:
    """What is remembered of one block (or one tool, or one part of the system prompt)."""

    kind: str
    digest: bytes  # of the role and the canonical bytes, cache markers left out
    tokens: int
    ttls: tuple[str, ...] = ()  # cache markers on it or inside it, in order
    link: str = ""  # id of a call, or the id that a result answers
    seal: str = ""  # signature of a thinking block
    body: str = ""  # text of a thinking block
    summary: bool = False  # a compaction block that has content


@dataclass(frozen=True, slots=True)
class DecodedMessage:
    """One message, read. `found` are the rules it breaks on its own."""

    role: str
    blocks: tuple[DecodedBlock, ...]
    found: tuple[BlockViolation, ...]
    media: int = 0
    media_bytes: int = 0
    longest_side: int = 0
    text: str = ""  # of its text blocks
    first_plain: int | None = None  # the first block that is not a tool_result

    def linked(self, *kinds: str) -> Iterator[tuple[int, str]]:
        return ((at, block.link) for at, block in enumerate(self.blocks) if block.kind in kinds)


@dataclass(frozen=True, slots=True)
class ProtocolWays:
    """What the server does in one way in one protocol, and in another way in others."""

    path: str  # of a block, in errors
    call_prefix: str  # of the ids that it gives to calls
    lookback_blocks: int | None  # how far before a breakpoint the cache is read; None: to the beginning


MESSAGES = ProtocolWays("messages.{message}.content.{block}", "toolu", lookback_blocks=20)


@dataclass(slots=True)
class DecodedRequest:
    """A body, read. Messages are shared with earlier requests that sent the same bytes."""

    fields: dict[str, Any]  # everything but messages, system and tools
    head: tuple[DecodedBlock, ...] = ()  # tools, then system
    head_paths: tuple[str, ...] = ()
    tools: list[Any] = field(default_factory=list)
    messages: list[DecodedMessage] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)
    ways: ProtocolWays = MESSAGES

    @property
    def thinking(self) -> Mapping[str, Any]:
        value = self.fields.get("thinking")
        return value if isinstance(value, dict) else {}


class UnreadableBody(ValueError):
    """The body is not a JSON object."""


class RequestReader:
    """Turns bodies into requests. Every distinct message is decoded, checked, hashed and counted once."""

    def __init__(self, rules: ModelRules, count: TokenCounter = count_tokens) -> None:
        self.rules = rules
        self._count = count
        self._messages: dict[bytes, DecodedMessage] = {}
        self._heads: dict[tuple[bytes, bytes], DecodedRequest] = {}

    def read(self, body: bytes) -> DecodedRequest:
        raw = open_body(body)
        head = self._head(bytes(raw.pop("tools", b"")), bytes(raw.pop("system", b"")))
        listed = raw.pop("messages", None)
        fields = {name: msgspec.json.decode(value) for name, value in raw.items()}
        request = DecodedRequest(fields, head.head, head.head_paths, head.tools, violations=list(head.violations))
        if listed is None:
            request.violations.append(Violation("required_field", "messages", "messages: Field required"))
            return request
        try:
            items = msgspec.json.decode(listed, type=list[msgspec.Raw])
        except msgspec.ValidationError:
            request.violations.append(Violation("required_field", "messages", "messages: Input should be a valid list"))
            return request
        request.messages = [self._message(bytes(item)) for item in items]
        for index, message in enumerate(request.messages):
            request.violations.extend(found.at(f"messages.{index}") for found in message.found)
        return request

    def _message(self, raw: bytes) -> DecodedMessage:
        facts = self._messages.get(raw)
        if facts is None:
            facts = self._messages[raw] = self._read_message(msgspec.json.decode(raw))
        return facts

    def _read_message(self, message: Any) -> DecodedMessage:
        if not isinstance(message, dict):
            return DecodedMessage("", (), (BlockViolation("message_shape", "", "Input should be a valid dictionary"),))
        role = message.get("role")
        content = message.get("content")
        found = list(_message_findings(message, self.rules))
        if role not in ("user", "assistant", "system") or not isinstance(content, str | list):
            return DecodedMessage(role if isinstance(role, str) else "", (), tuple(found))
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if blocks and content != "":
            found.extend(self._block_findings(blocks, role))
        known = [block for block in blocks if isinstance(block, dict)]
        media = [measure(item) for item in _media(known)]
        plain = (at for at, block in enumerate(known) if block.get("type") != "tool_result")
        return DecodedMessage(
            role,
            tuple(self.block(block, role) for block in known),
            tuple(found),
            media=len(media),
            media_bytes=sum(size for size, _ in media),
            longest_side=max((side for _, side in media), default=0),
            text="".join(block["text"] for block in known if isinstance(block.get("text"), str)),
            first_plain=next(plain, None),
        )

    def _block_findings(self, blocks: list[Any], role: str) -> Iterator[BlockViolation]:
        for index, block in enumerate(blocks):
            yield from check_block(block, role, f"content.{index}", self.rules)
        texts = [b.get("text") if isinstance(b, dict) and b.get("type") == "text" else None for b in blocks]
        if all(isinstance(text, str) and text and not text.strip() for text in texts):
            yield BlockViolation("blank_text", "", "text content blocks must contain non-whitespace text")

    def block(self, block: Mapping[str, Any], role: str) -> DecodedBlock:
        clean = without_cache_control(block)
        raw = role.encode() + b"\n" + msgspec.json.encode(clean)
        kind = str(block.get("type"))
        link = block.get("tool_use_id") if kind == "tool_result" or kind in SERVER_RESULTS else block.get("id")
        seal = block.get("data") if kind == "redacted_thinking" else block.get("signature")
        return DecodedBlock(
            kind,
            sha256(raw).digest(),
            self._count(clean),
            ttls=tuple(_ttls(block)),
            link=link if isinstance(link, str) else "",
            seal=seal if kind in THINKING and isinstance(seal, str) else "",
            body=str(block.get("thinking", "")) if kind == "thinking" else "",
            summary=kind == "compaction" and bool(block.get("content")),
        )

    def _head(self, tools: bytes, system: bytes) -> DecodedRequest:
        """Tools and system prompt; kept by their bytes, for they seldom change."""
        known = self._heads.get((tools, system))
        if known is None:
            known = self._heads[tools, system] = self._read_head(tools, system)
        return known

    def _read_head(self, raw_tools: bytes, raw_system: bytes) -> DecodedRequest:
        request = DecodedRequest({})
        tools = msgspec.json.decode(raw_tools) if raw_tools else []
        system = msgspec.json.decode(raw_system) if raw_system else []
        if not isinstance(tools, list):
            request.violations.append(Violation("tools", "tools", "tools: Input should be a valid list"))
            tools = []
        if not isinstance(system, str | list):
            request.violations.append(Violation("system", "system", "system: Input should be a valid list"))
            system = []
        blocks = system if isinstance(system, list) else [{"type": "text", "text": system}] if system else []
        for index, block in enumerate(blocks):
            finds = check_block(block, "search_result", "", self.rules)  # text only, citations refused
            request.violations.extend(found.at(f"system.{index}") for found in finds)
        # a deferred tool is not part of the prompt until it is found
        pairs = [(f"tools.{i}", t, "tools") for i, t in enumerate(tools) if _loaded(t)]
        pairs += [(f"system.{i}", b, "top") for i, b in enumerate(blocks) if isinstance(b, dict)]
        request.tools = tools
        request.head = tuple(self.block(block, role) for _, block, role in pairs)
        request.head_paths = tuple(path for path, _, _ in pairs)
        return request


def open_body(body: bytes) -> dict[str, msgspec.Raw]:
    try:
        return msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnreadableBody(f"The request body is not valid JSON: {error}") from error


def model_of(body: bytes) -> str:
    """The model that a request names; empty for one that can't be read."""
    try:
        return str(msgspec.json.decode(open_body(body).get("model", b'""')))
    except (UnreadableBody, msgspec.DecodeError):
        return ""


def without_cache_control(block: Mapping[str, Any]) -> dict[str, Any]:
    """The block without cache markers, its own fields in alphabetical order. What lies deeper keeps its order."""
    clean = {name: block[name] for name in sorted(block) if name != "cache_control"}
    place, parts = nested_blocks(block, str(block.get("type")))
    if parts:
        inner = [without_cache_control(part) if isinstance(part, dict) else part for part in parts]
        if place == "content":
            clean["content"] = inner
        else:
            clean["source"] = {**block["source"], "content": inner}
    return clean


def _ttls(block: Mapping[str, Any]) -> Iterator[str]:
    for part in nested_blocks(block, str(block.get("type")))[1]:
        if isinstance(part, dict):
            yield from _ttls(part)
    marker = block.get("cache_control")
    if isinstance(marker, dict):
        yield str(marker.get("ttl") or "5m")


def _media(blocks: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for block in blocks:
        if block.get("type") in MEDIA:
            yield block
        parts = nested_blocks(block, str(block.get("type")))[1]
        yield from _media([part for part in parts if isinstance(part, dict)])


def _loaded(tool: Any) -> bool:
    return isinstance(tool, dict) and not tool.get("defer_loading")


def _message_findings(message: Mapping[str, Any], rules: ModelRules) -> Iterator[BlockViolation]:
    role, content = message.get("role"), message.get("content")
    for name in sorted(set(message) - (_SYSTEM_FIELDS if role == "system" else _MESSAGE_FIELDS)):
        yield BlockViolation("message_field", name, "Extra inputs are not permitted")
    if role not in ("user", "assistant", "system"):
        yield BlockViolation("role", "role", "Input should be 'user', 'assistant' or 'system'")
    if "content" not in message:
        yield BlockViolation("message_shape", "content", "Field required")
    elif not isinstance(content, str | list):
        yield BlockViolation("message_shape", "content", "Input should be a valid string or list")
    elif not (content or (role == "system" and message.get("output_config"))):  # which only sets the effort
        yield BlockViolation("empty_content", "", f"{role} messages must have non-empty content")
