"""An offline validator of Anthropic Messages API requests: order, pairs, markers, thinking; with the texts of the real
server.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import msgspec

from perdure.testing.block_rules import (
    SERVER_CALLS,
    SERVER_RESULTS,
    THINKING,
    CacheControl,
    ModelRules,
    Violation,
    explain,
)
from perdure.testing.request import DecodedMessage, DecodedRequest, RequestReader, UnreadableBody, model_of


@dataclass(slots=True)
class RoleTurn:
    """Consecutive messages of one role; the server reads them as one."""

    role: str
    members: list[tuple[int, DecodedMessage]]

    def ids(self, *kinds: str) -> Iterator[tuple[str, str]]:
        """(path, id) of every block of these kinds."""
        for index, message in self.members:
            for at, link in message.linked(*kinds):
                yield f"messages.{index}.content.{at}", link

    @property
    def path(self) -> str:
        return f"messages.{self.members[0][0]}"

    @property
    def last_kind(self) -> str:
        blocks = self.members[-1][1].blocks
        return blocks[-1].kind if blocks else ""


def _structure(request: DecodedRequest, rules: ModelRules, *, strict: bool) -> Iterator[Violation]:
    if not request.messages:
        if not request.violations:
            yield Violation("no_messages", "messages", "messages: at least one message is required")
        return
    turns = _turns(request.messages)
    yield from _order(turns, rules, strict)
    yield from _ending(request, turns[-1], rules)
    yield from _system_messages(turns, rules)
    yield from _pairs(turns)
    yield from _server_tools(turns)
    yield from _markers(request, rules)
    yield from _media(request.messages, rules)
    yield from _compaction(request)
    yield from _thinking_first(request)


def _turns(messages: Sequence[DecodedMessage]) -> list[RoleTurn]:
    turns: list[RoleTurn] = []
    for index, message in enumerate(messages):
        if turns and turns[-1].role == message.role:
            turns[-1].members.append((index, message))
        else:
            turns.append(RoleTurn(message.role, [(index, message)]))
    return turns


def _order(turns: Sequence[RoleTurn], rules: ModelRules, strict: bool) -> Iterator[Violation]:
    first = turns[0].members[0][1]
    starts_compacted = first.role == "assistant" and first.blocks[:1] and first.blocks[0].kind == "compaction"
    if first.role != "user" and not starts_compacted:
        yield Violation("first_message", "messages.0", 'messages: first message must use the "user" role')
    if not strict:
        return
    for turn in turns:
        for index, _ in turn.members[1:]:
            said = 'messages: roles must alternate between "user" and "assistant", but found multiple '
            yield Violation("alternation", f"messages.{index}", f'{said}"{turn.role}" roles in a row')


def _ending(request: DecodedRequest, last: RoleTurn, rules: ModelRules) -> Iterator[Violation]:
    # a paused server tool or a compaction is resent as it came; a compaction request may end anywhere
    resent = last.last_kind in SERVER_CALLS | SERVER_RESULTS | {"compaction"}
    if last.role == "assistant" and not (rules.prefill or resent or "compaction" in request.fields):
        said = "This model does not support assistant message prefill. The conversation must end with a user message."
        yield Violation("prefill", f"messages.{last.members[-1][0]}", said)


def _system_messages(turns: Sequence[RoleTurn], rules: ModelRules) -> Iterator[Violation]:
    for at, turn in enumerate(turns):
        if turn.role != "system":
            continue
        before = turns[at - 1] if at else None
        if not rules.system_messages:
            yield Violation("system_message", turn.path, "role 'system' is not supported on this model")
        elif not any(message.blocks for _, message in turn.members):
            continue  # what only sets the effort stands anywhere
        elif before is None or not (before.role == "user" or before.last_kind in SERVER_RESULTS):
            said = "a system message must directly follow a user message or a server tool result"
            yield Violation("system_message", turn.path, f"{turn.path}: {said}")
        elif at + 1 < len(turns) and turns[at + 1].role != "assistant":
            said = "a system message must be last or be followed by an assistant message"
            yield Violation("system_message", turn.path, f"{turn.path}: {said}")


def _pairs(turns: Sequence[RoleTurn]) -> Iterator[Violation]:
    """Every call is answered in the next user message, results first, once, and by nothing else (TURN-9)."""
    called: set[str] = set()
    for turn in turns:
        for path, link in turn.ids("tool_use"):
            if link in called:
                yield Violation("duplicate_tool_use", path, f"{path}: `tool_use` ids must be unique")
            called.add(link)
    open_ids: list[str] = []
    asked = None
    for turn in [*turns, RoleTurn("", [])]:
        answers = list(turn.ids("tool_result")) if turn.role == "user" else []
        yield from _answers(turn, answers, open_ids)
        missing = sorted(set(open_ids) - {link for _, link in answers})
        if missing and asked is not None:
            yield _unanswered("unanswered_tool_use", asked.path, missing)
        open_ids = [link for _, link in turn.ids("tool_use")] if turn.role == "assistant" else []
        asked = turn


def _answers(turn: RoleTurn, answers: Sequence[tuple[str, str]], expected: Sequence[str]) -> Iterator[Violation]:
    seen: set[str] = set()
    for path, link in answers:
        if link not in expected:
            said = f"{path}: unexpected `tool_use_id` found in `tool_result` blocks: {link}. Each `tool_result` block "
            more = "must have a corresponding `tool_use` block in the previous message."
            yield Violation("orphan_result", path, said + more)
        elif link in seen:
            said = f"each tool_use must have a single result. Found multiple `tool_result` blocks with id: {link}"
            yield Violation("duplicate_result", path, f"{path}: {said}")
        seen.add(link)
    plain = False
    for index, message in turn.members if answers else ():
        first = len(message.blocks) if message.first_plain is None else message.first_plain
        late = [link for at, link in message.linked("tool_result") if plain or at > first]
        if late:
            yield _unanswered("results_first", f"messages.{index}", late)
        plain = plain or message.first_plain is not None


def _unanswered(rule: str, path: str, ids: Sequence[str]) -> Violation:
    said = f"`tool_use` ids were found without `tool_result` blocks immediately after: {', '.join(ids)}. "
    more = "Each `tool_use` block must have a corresponding `tool_result` block in the next message."
    return Violation(rule, path, f"{path}: {said}{more}")


def _server_tools(turns: Sequence[RoleTurn]) -> Iterator[Violation]:
    """Server results follow their call; while a server call is open, the user may send only tool results."""
    called: set[str] = set()
    answered: set[str] = set()
    for turn, after in pairwise([*turns, RoleTurn("", [])]):
        calls = [link for _, link in turn.ids(*SERVER_CALLS)]
        called.update(calls)
        for path, link in turn.ids(*SERVER_RESULTS):
            answered.add(link)
            if link not in called:
                yield Violation("orphan_server_result", path, f"{path}: no server tool call found with id {link}")
        unresolved = [link for link in calls if link not in answered]
        plain = any(message.first_plain is not None for _, message in after.members)
        if unresolved and after.role == "user" and plain:
            said = f"server tool use {unresolved[0]} is not resolved: only `tool_result` blocks may follow it"
            yield Violation("unresolved_server_tool", after.path, f"{after.path}: {said}")


def _markers(request: DecodedRequest, rules: ModelRules) -> Iterator[Violation]:
    head = zip(request.head_paths, request.head, strict=True)
    blocks = [(f"{path}.cache_control", block.ttls) for path, block in head if block.ttls]
    for index, message in enumerate(request.messages):
        for at, block in enumerate(message.blocks):
            if block.ttls:
                blocks.append((f"messages.{index}.content.{at}.cache_control", block.ttls))
    marks = [(path, ttl) for path, ttls in blocks for ttl in ttls]
    auto = request.fields.get("cache_control")
    last = request.messages[-1].blocks[-1:]
    if isinstance(auto, dict):
        ttl = str(auto.get("ttl") or "5m")
        if not (last and last[0].ttls):
            marks.append(("cache_control", ttl))
        elif last[0].ttls[-1] != ttl:
            said = "cache_control: the last block already has a marker with another ttl"
            yield Violation("automatic_marker", "cache_control", said)
    if len(marks) > rules.max_markers:
        said = f"A maximum of {rules.max_markers} blocks with cache_control may be provided. Found {len(marks)}."
        yield Violation("marker_count", marks[rules.max_markers][0], said)
    for (_, before), (path, ttl) in pairwise(marks):
        if before == "5m" and ttl == "1h":
            said = "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block. Note that "
            more = "blocks are processed in the following order: `tools`, `system`, `messages`."
            yield Violation("marker_order", path, f"{path}.ttl: {said}{more}")


def _media(messages: Sequence[DecodedMessage], rules: ModelRules) -> Iterator[Violation]:
    count = sum(message.media for message in messages)
    if count > rules.media_limit:
        said = f"messages: Too many images and documents: {count} > {rules.media_limit} maximum"
        yield Violation("media_count", "messages", said)
    size = sum(message.media_bytes for message in messages)
    if size > rules.max_media_bytes:
        said = f"messages: images and documents exceed {rules.max_media_bytes} bytes: {size}"
        yield Violation("media_bytes", "messages", said)
    if count <= rules.many_images:
        return
    for index, message in enumerate(messages):
        if message.longest_side > rules.many_images_side:
            said = "At least one of the image dimensions exceed max allowed size for many-image requests: "
            path = f"messages.{index}"
            yield Violation("many_images_side", path, f"{path}: {said}{rules.many_images_side} pixels")


def _compaction(request: DecodedRequest) -> Iterator[Violation]:
    """A compaction block is first and the only one, unless the server's own threshold compaction is on."""
    placed = [
        (index, at, block.summary)
        for index, message in enumerate(request.messages)
        for at, block in enumerate(message.blocks)
        if block.kind == "compaction"
    ]
    managed = request.fields.get("context_management")
    edits = managed.get("edits") if isinstance(managed, dict) else None
    threshold = any(str(edit.get("type")).startswith("compact_") for edit in edits or () if isinstance(edit, dict))
    if not threshold and sum(summary for _, _, summary in placed) > 1:
        said = "messages: only one compaction block with content is allowed"
        yield Violation("compaction_ambiguous", "messages", said)
    for index, at, _ in placed:
        if at != 0 or (index != 0 and not threshold):
            path = f"messages.{index}.content.{at}"
            yield Violation("compaction_misplaced", path, f"{path}: a compaction block must come first")


def open_loop(messages: Sequence[DecodedMessage]) -> list[int]:
    """Indices of the assistant messages of the tool loop that the request continues, first to last."""
    loop: list[int] = []
    at = len(messages) - 1
    while at >= 0 and messages[at].role == "system":
        at -= 1
    while at >= 0 and any(block.kind == "tool_result" for block in messages[at].blocks):
        at -= 1
        while at >= 0 and messages[at].role == "assistant":
            loop.append(at)
            at -= 1
        while at >= 0 and messages[at].role == "system":
            at -= 1
    return loop[::-1]


def _thinking_first(request: DecodedRequest) -> Iterator[Violation]:
    loop = open_loop(request.messages)
    if request.thinking.get("type") != "enabled" or not loop:
        return
    blocks = request.messages[loop[0]].blocks
    if blocks and blocks[0].kind not in THINKING:
        path = f"messages.{loop[0]}.content.0"
        yield Violation("thinking_first", path, expected_thinking(path, blocks[0].kind))


def expected_thinking(path: str, kind: str) -> str:
    said = f"{path}.type: Expected `thinking` or `redacted_thinking`, but found `{kind}`. When `thinking` is enabled, "
    return f"{said}a final `assistant` message must start with a thinking block."


_FIELDS = frozenset(
    "model max_tokens messages system tools tool_choice thinking output_config cache_control container metadata "
    "service_tier speed stop_sequences stream diagnostics inference_geo context_management compaction thread "
    "mcp_servers fallbacks fallback_credit_token".split()
)
_SAMPLING = ("temperature", "top_p", "top_k")
_CHOICES = frozenset({"auto", "any", "tool", "none"})


def check_anthropic(
    body: bytes | Mapping[str, Any], *, model_rules: ModelRules | None = None, strict: bool = True
) -> list[Violation]:
    """Every rule the request breaks, in the order of the checks; an empty list is a valid request.

    Without `model_rules` the limits are those of the model that the request names, as far as Perdure knows it. `strict`
    refuses consecutive messages of one role, which the server would merge; TURN-9 says we merge them.
    """
    raw = body if isinstance(body, bytes) else msgspec.json.encode(body)
    reader = RequestReader(model_rules or ModelRules.of(model_of(raw)), count=lambda block: 0)
    return violations_of(raw, reader, strict=strict)[1]


def violations_of(body: bytes, reader: RequestReader, *, strict: bool) -> tuple[DecodedRequest | None, list[Violation]]:
    """The request as read (None when it is not JSON), and what is wrong with it."""
    limit = reader.rules.max_body_bytes
    if len(body) > limit:
        said = f"Request exceeds the maximum size: {len(body)} bytes > {limit} bytes"
        return None, [Violation("body_bytes", "", said)]
    try:
        request = reader.read(body)
    except UnreadableBody as error:
        return None, [Violation("json", "", str(error))]
    found = [*_parameters(request, reader.rules), *request.violations]
    found.extend(_structure(request, reader.rules, strict=strict))
    return request, found


def _parameters(request: DecodedRequest, rules: ModelRules) -> Iterator[Violation]:
    fields = request.fields
    for name, kind in (("model", str), ("max_tokens", int)):
        if name not in fields:
            yield Violation("required_field", name, f"{name}: Field required")
        elif not isinstance(fields[name], kind) or isinstance(fields[name], bool):
            wanted = "string" if kind is str else "integer"
            yield Violation("required_field", name, f"{name}: Input should be a valid {wanted}")
    for name in sorted(set(fields) - _FIELDS - set(_SAMPLING)):
        yield Violation("request_field", name, f"{name}: Extra inputs are not permitted")
    for name in _SAMPLING:
        if name in fields and not rules.sampling:
            yield Violation("sampling", name, f"{name}: Extra inputs are not permitted")
    if len(request.messages) > rules.max_messages:
        said = f"messages: List should have at most {rules.max_messages} items after validation"
        yield Violation("message_count", "messages", said)
    yield from _max_tokens(request, rules)
    yield from _thinking(request)
    yield from _tools(request.tools)
    yield from _tool_choice(request, rules)
    yield from _marker(fields, "")
    if "compaction" in fields and "context_management" in fields:
        said = "compaction: cannot be combined with `context_management`"
        yield Violation("compaction_request", "compaction", said)


def _max_tokens(request: DecodedRequest, rules: ModelRules) -> Iterator[Violation]:
    asked, model = request.fields.get("max_tokens"), request.fields.get("model")
    if not isinstance(asked, int):
        return
    if asked > rules.max_output_tokens:
        said = f"max_tokens: {asked} > {rules.max_output_tokens}, which is the maximum allowed number of output tokens"
        yield Violation("max_tokens", "max_tokens", f"{said} for {model}")
    if asked < 0 or (asked == 0 and request.fields.get("stream")):
        said = "max_tokens: Input should be greater than or equal to 1"
        yield Violation("max_tokens", "max_tokens", said)


def _thinking(request: DecodedRequest) -> Iterator[Violation]:
    thinking = request.thinking
    if not thinking:
        return
    if thinking.get("type") not in ("adaptive", "enabled", "disabled", "between_tools"):
        said = "thinking.type: Input should be 'adaptive', 'enabled', 'disabled' or 'between_tools'"
        yield Violation("thinking_config", "thinking", said)
    if thinking.get("type") != "enabled":
        return
    budget, limit = thinking.get("budget_tokens"), request.fields.get("max_tokens")
    if not isinstance(budget, int) or budget < 1024:
        said = "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"
        yield Violation("thinking_config", "thinking", said)
    elif isinstance(limit, int) and budget >= limit:
        said = "`max_tokens` must be greater than `thinking.budget_tokens`."
        yield Violation("thinking_config", "thinking", said)


def _tools(tools: list[Any]) -> Iterator[Violation]:
    names: set[str] = set()
    for index, tool in enumerate(tools):
        path = f"tools.{index}"
        if not isinstance(tool, dict):
            yield Violation("tools", path, f"{path}: Input should be a valid dictionary")
            continue
        yield from _marker(tool, path)
        name, kind = tool.get("name"), tool.get("type")
        if not isinstance(name, str) or not name:
            if kind != "mcp_toolset":
                yield Violation("tools", path, f"{path}.name: Field required")
            continue
        if name in names:
            yield Violation("tool_names", path, "tools: Tool names must be unique.")
        names.add(name)
        schema = tool.get("input_schema")
        if kind in (None, "custom") and not (isinstance(schema, dict) and schema.get("type") == "object"):
            yield Violation("tools", path, f"{path}.custom.input_schema.type: Input should be 'object'")


def _tool_choice(request: DecodedRequest, rules: ModelRules) -> Iterator[Violation]:
    choice = request.fields.get("tool_choice")
    if choice is None:
        return
    kind = choice.get("type") if isinstance(choice, dict) else None
    if kind not in _CHOICES:
        said = "tool_choice: Input tag found using 'type' does not match any of the expected tags"
        yield Violation("tool_choice", "tool_choice", said)
        return
    if kind in ("any", "tool"):
        if not rules.forced_tool_choice or request.thinking.get("type") == "enabled":
            said = "Thinking may not be enabled when tool_choice forces tool use."
            yield Violation("tool_choice", "tool_choice", said)
        names = {tool.get("name") for tool in request.tools if isinstance(tool, dict)}
        if kind == "tool" and choice.get("name") not in names:
            said = f"Tool '{choice.get('name')}' not found in provided tools"
            yield Violation("tool_choice", "tool_choice", said)
    if not request.tools:
        said = "tool_choice: may only be specified while providing tools"
        yield Violation("tool_choice", "tool_choice", said)


def _marker(owner: Mapping[str, Any], path: str) -> Iterator[Violation]:
    """The shape of the cache marker on the request itself or on a tool."""
    marker = owner.get("cache_control")
    if marker is None:
        return
    where = f"{path}.cache_control".lstrip(".")
    try:
        msgspec.convert(marker, CacheControl)
    except msgspec.ValidationError as error:
        yield Violation("marker_shape", where, f"{where}.{explain(str(error))}")
