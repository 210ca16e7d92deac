"""An offline validator of Anthropic Messages API requests, with the texts of the real server."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from .fields import Marker, explain
from .model_rules import ModelRules, Violation
from .request import Reader, Request, Unreadable
from .structure import structure_violations

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

    `strict` refuses consecutive messages of one role, which the server would merge; TURN-9 says we merge them.
    """
    reader = Reader(model_rules or ModelRules(), count=lambda block: 0)
    return violations_of(body if isinstance(body, bytes) else msgspec.json.encode(body), reader, strict=strict)[1]


def violations_of(body: bytes, reader: Reader, *, strict: bool) -> tuple[Request | None, list[Violation]]:
    """The request as read (None when it is not JSON), and what is wrong with it."""
    limit = reader.rules.max_body_bytes
    if len(body) > limit:
        said = f"Request exceeds the maximum size: {len(body)} bytes > {limit} bytes"
        return None, [Violation("body_bytes", "", said)]
    try:
        request = reader.read(body)
    except Unreadable as error:
        return None, [Violation("json", "", str(error))]
    found = [*_parameters(request, reader.rules), *request.violations]
    found.extend(structure_violations(request, reader.rules, strict=strict))
    return request, found


def _parameters(request: Request, rules: ModelRules) -> Iterator[Violation]:
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


def _max_tokens(request: Request, rules: ModelRules) -> Iterator[Violation]:
    asked, model = request.fields.get("max_tokens"), request.fields.get("model")
    if not isinstance(asked, int):
        return
    if asked > rules.max_output_tokens:
        said = f"max_tokens: {asked} > {rules.max_output_tokens}, which is the maximum allowed number of output tokens"
        yield Violation("max_tokens", "max_tokens", f"{said} for {model}")
    if asked < 0 or (asked == 0 and request.fields.get("stream")):
        said = "max_tokens: Input should be greater than or equal to 1"
        yield Violation("max_tokens", "max_tokens", said)


def _thinking(request: Request) -> Iterator[Violation]:
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


def _tool_choice(request: Request, rules: ModelRules) -> Iterator[Violation]:
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
        msgspec.convert(marker, Marker)
    except msgspec.ValidationError as error:
        yield Violation("marker_shape", where, f"{where}.{explain(str(error))}")
