"""An offline validator of Responses API requests: fields, items and their order, with the texts of the real server."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from perdure.testing.block_rules import Violation

_FIELDS = frozenset(
    "access_programs background background_options context_management conversation image include input instructions "
    "max_output_tokens max_tool_calls metadata model moderation parallel_tool_calls previous_response_id prompt "
    "prompt_cache_key prompt_cache_options prompt_cache_retention reasoning safety_identifier service_tier store "
    "stream stream_options temperature text tool_choice tools top_logprobs top_p truncation user "
    "client_metadata".split()  # the last one is Codex's, undocumented and taken
)
_TYPES: Mapping[str, tuple[type, ...]] = {
    "model": (str,), "input": (str, list), "instructions": (str,), "store": (bool,), "stream": (bool,),
    "tools": (list,), "include": (list,), "reasoning": (dict,), "text": (dict,), "metadata": (dict,),
    "max_output_tokens": (int,), "parallel_tool_calls": (bool,), "previous_response_id": (str,),
    "conversation": (str, dict), "context_management": (list,), "stream_options": (dict,), "prompt_cache_key": (str,),
    "tool_choice": (str, dict), "background": (bool,),
}  # fmt: skip
_NAMES = {str: "a string", list: "an array", bool: "a boolean", dict: "an object", int: "an integer"}
_INCLUDABLE = frozenset({
    "file_search_call.results", "web_search_call.results", "web_search_call.action.sources",
    "message.input_image.image_url", "computer_call_output.output.image_url", "code_interpreter_call.outputs",
    "reasoning.encrypted_content", "message.output_text.logprobs",
})  # fmt: skip
LEAST_OUTPUT = 16
LEAST_THRESHOLD = 1_000


def _fields(required: str, optional: str = "") -> tuple[tuple[str, ...], frozenset[str]]:
    return tuple(required.split()), frozenset({"type", *required.split(), *optional.split()})


# of each kind of item: the fields that it must have, and all that it may have
_ITEMS: Mapping[str, tuple[tuple[str, ...], frozenset[str]]] = {
    "message": _fields("role content", "id status phase"),
    "reasoning": _fields("summary", "id content encrypted_content status"),
    "function_call": _fields("call_id name arguments", "id status caller namespace async"),
    "function_call_output": _fields("call_id output", "id status caller name namespace"),
    "custom_tool_call": _fields("call_id name input", "id status caller namespace async"),
    "custom_tool_call_output": _fields("call_id output", "id status caller"),
    "local_shell_call": _fields("call_id action", "id status"),
    "local_shell_call_output": _fields("id output", "status"),
    "shell_call": _fields("call_id action", "id status caller environment"),
    "shell_call_output": _fields("call_id output", "id status caller max_output_length"),
    "apply_patch_call": _fields("call_id operation", "id status caller"),
    "apply_patch_call_output": _fields("call_id status", "id output caller"),
    "computer_call": _fields("call_id", "id action actions pending_safety_checks status"),
    "computer_call_output": _fields("call_id output", "id acknowledged_safety_checks status"),
    "file_search_call": _fields("id queries", "results status"),
    "web_search_call": _fields("", "id action status"),
    "code_interpreter_call": _fields("id container_id", "code outputs status"),
    "image_generation_call": _fields(
        "id", "status result action background error output_format quality revised_prompt size svg_usage"
    ),
    "mcp_list_tools": _fields("id server_label tools", "error"),
    "mcp_approval_request": _fields("id server_label name arguments"),
    "mcp_approval_response": _fields("approval_request_id approve", "id reason"),
    "mcp_call": _fields("id server_label name arguments", "approval_request_id error output status"),
    "tool_search_call": _fields("arguments", "id call_id execution status"),
    "tool_search_output": _fields("tools", "id call_id execution status"),
    "additional_tools": _fields("tools", "id role"),
    "configuration_update": _fields("", "id reasoning text"),
    "program": _fields("call_id code fingerprint", "id"),
    "program_output": _fields("call_id result", "id status"),
    "compaction": _fields("encrypted_content", "id"),
    "compaction_trigger": _fields("", "id"),
    "item_reference": _fields("id"),
}
_UNDOCUMENTED = {"internal_chat_message_metadata_passthrough"}  # Codex says it of any item, and it is taken
_STRINGS = frozenset({"call_id", "name", "arguments", "input", "encrypted_content"})
_ID_STARTS = {
    "message": "msg", "function_call": "fc", "reasoning": "rs", "custom_tool_call": "ctc", "web_search_call": "ws",
    "file_search_call": "fs", "code_interpreter_call": "ci", "image_generation_call": "ig", "compaction": "cmp",
}  # fmt: skip
_LONGEST_ID = 64
_PARTS: Mapping[str, tuple[str, frozenset[str]]] = {  # the text of a part, if it has one, and all its fields
    "input_text": ("text", _fields("text", "prompt_cache_breakpoint")[1]),
    "input_image": ("", _fields("detail file_id image_url prompt_cache_breakpoint")[1]),
    "input_file": ("", _fields("file_id file_data file_url filename detail prompt_cache_breakpoint")[1]),
    "input_audio": ("", _fields("input_audio")[1]),
    "output_text": ("text", _fields("text", "annotations logprobs")[1]),
    "refusal": ("refusal", _fields("refusal")[1]),
}
_ASKED = ("input_text", "input_image", "input_file", "input_audio")
_SAID = ("output_text", "refusal")
_ROLES = {"user": _ASKED, "system": _ASKED, "developer": _ASKED, "assistant": _SAID}
CALLS = {  # calls that the client answers, and the items that do
    "function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output",
    "local_shell_call": "local_shell_call_output", "apply_patch_call": "apply_patch_call_output",
    "computer_call": "computer_call_output",
}  # fmt: skip
OUTPUTS = {output: call for call, output in CALLS.items()}
_TOOLS = frozenset(
    "function custom namespace tool_search web_search web_search_2025_08_26 web_search_preview file_search mcp shell "
    "web_search_preview_2025_03_11 code_interpreter image_generation local_shell apply_patch computer "
    "computer_use_preview programmatic_tool_calling".split()
)
_FUNCTION = _fields("name", "description parameters strict allowed_callers async defer_loading output_schema")[1]
_CUSTOM = _fields("name", "description format allowed_callers async defer_loading")[1]
_NAMED_TOOLS = {"function": _FUNCTION, "custom": _CUSTOM, "namespace": _fields("name description tools")[1]}
DEFAULT_NAMESPACE = "functions"  # its tools are called by their bare names, like those of none
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]+")
_CODES = {  # of an error, by the rule that was broken
    "request_field": "unknown_parameter", "item_field": "unknown_parameter", "field_type": "invalid_type",
    "field_value": "invalid_value", "item_id": "invalid_value", "role": "invalid_value",
    "required_field": "missing_required_parameter",
    "item_kind": "invalid_value", "content_part": "invalid_value", "id_length": "string_above_max_length",
    "least": "integer_below_min_value", "previous_response": "previous_response_not_found",
    "encrypted_content": "invalid_encrypted_content", "window": "context_length_exceeded",
}  # fmt: skip


def check_responses(body: bytes | Mapping[str, Any]) -> list[Violation]:
    """Every rule that a Responses request breaks; an empty list is a valid request.

    What only the server can know isn't checked: stored responses, and whether encrypted content is its own.
    """
    try:
        request = msgspec.json.decode(body) if isinstance(body, bytes) else dict(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return [Violation("json", "", f"We could not parse the JSON body of your request. ({error})")]
    if not isinstance(request, dict):
        return [Violation("json", "", "We could not parse the JSON body of your request.")]
    found = list(check_fields(request))
    items = items_of(request.get("input"))
    for index, item in enumerate(items):
        found.extend(check_item(item, f"input[{index}]"))
    continues = any(request.get(name) is not None for name in ("previous_response_id", "conversation"))
    if not found and not continues:  # else only the server knows what stands before
        found.extend(check_order(items))
    return found


def items_of(given: Any) -> list[Any]:
    """The items of an `input`: a string is the message of a user."""
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    return given if isinstance(given, list) else []


def kind_of(item: Mapping[str, Any]) -> str:
    """What an item is; `type` may be left out of messages and references."""
    kind = item.get("type")
    if kind is None:
        return "message" if "role" in item else "item_reference"
    return str(kind)


def is_of_model(item: Mapping[str, Any]) -> bool:
    """Whether a model wrote this item."""
    kind = kind_of(item)
    if kind == "message":
        return item.get("role") == "assistant"
    ours = ("mcp_approval_response", "additional_tools", "configuration_update", "compaction_trigger")
    return kind not in ours and not kind.endswith("_output")


def named_tools(request: Mapping[str, Any], items: Sequence[Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Every tool that a model is offered with its namespace (empty for the default one): those of `tools` and those of
    `additional_tools` items."""
    carriers = [item for item in items if isinstance(item, dict) and kind_of(item) == "additional_tools"]
    found: list[tuple[str, Mapping[str, Any]]] = []
    for tool in (one for carrier in (request, *carriers) for one in _listed(carrier.get("tools"))):
        if isinstance(tool, dict) and tool.get("type") == "namespace":
            space = "" if tool.get("name") == DEFAULT_NAMESPACE else str(tool.get("name"))
            found += [(space, inner) for inner in _listed(tool.get("tools")) if isinstance(inner, dict)]
        elif isinstance(tool, dict):
            found.append(("", tool))
    return found


def error_code(rule: str) -> str | None:
    """The `code` of the error for a broken rule."""
    return _CODES.get(rule)


# --- fields --------------------------------------------------------------------------------------------------------


def check_fields(request: Mapping[str, Any]) -> Iterator[Violation]:
    """Everything but the items."""
    for name in sorted(set(request) - _FIELDS):
        yield _unknown("request_field", name)
    if request.get("model") is None and request.get("prompt") is None:
        yield _missing("model")
    for name, types in _TYPES.items():
        value = request.get(name)
        if value is not None and (not isinstance(value, types) or (bool not in types and isinstance(value, bool))):
            yield _wrong_type(name, types, value)
    if not any(request.get(name) for name in ("input", "previous_response_id", "prompt", "conversation")):
        said = "One of 'input', 'previous_response_id', 'prompt' or 'conversation' must be provided."
        yield Violation("required_field", "input", said)
    if request.get("previous_response_id") is not None and request.get("conversation") is not None:
        said = (
            "Mutually exclusive parameters: 'previous_response_id' and 'conversation'. Ensure you are only providing "
        )
        yield Violation("exclusive", "previous_response_id", f"{said}one of them.")
    if request.get("background") and request.get("store") is False:
        yield Violation("background_store", "background", "Background mode requires 'store' to be true.")
    if request.get("truncation") not in (None, "auto", "disabled"):
        yield _wrong_value("field_value", "truncation", request["truncation"], ("auto", "disabled"))
    for index, name in enumerate(_listed(request.get("include"))):
        if name not in _INCLUDABLE:
            yield _wrong_value("field_value", f"include[{index}]", name, sorted(_INCLUDABLE))
    yield from _at_least("max_output_tokens", request.get("max_output_tokens"), LEAST_OUTPUT)
    for index, edit in enumerate(_listed(request.get("context_management"))):
        path = f"context_management[{index}]"
        if not isinstance(edit, dict) or edit.get("type") != "compaction":
            yield _wrong_value("field_value", f"{path}.type", edit, ("compaction",))
        else:
            yield from _at_least(f"{path}.compact_threshold", edit.get("compact_threshold"), LEAST_THRESHOLD)
    for index, tool in enumerate(_listed(request.get("tools"))):
        yield from _tool(tool, f"tools[{index}]")
    tools = [tool for _, tool in named_tools(request, items_of(request.get("input")))]
    yield from _tool_choice(request.get("tool_choice"), tools)


def _tool(tool: Any, path: str, kinds: Collection[str] = _TOOLS) -> Iterator[Violation]:
    kind = tool.get("type") if isinstance(tool, dict) else None
    if kind is None:
        yield _missing(f"{path}.type")
    elif kind not in kinds:
        yield _wrong_value("field_value", f"{path}.type", kind, sorted(kinds))
    elif kind in _NAMED_TOOLS:
        name = tool.get("name")
        for stranger in sorted(set(tool) - _NAMED_TOOLS[kind]):
            yield _unknown("item_field", f"{path}.{stranger}")
        if name is None:
            yield _missing(f"{path}.name")
        elif not isinstance(name, str) or not _TOOL_NAME.fullmatch(name):
            said = f"Invalid '{path}.name': string does not match pattern. Expected a string that matches the pattern "
            yield Violation("field_value", f"{path}.name", f"{said}'^[a-zA-Z0-9_-]+$'.")
        if not isinstance(tool.get("parameters"), dict | None):
            yield _wrong_type(f"{path}.parameters", (dict,), tool["parameters"])
        if kind == "namespace":
            for field in ("description", "tools"):
                if tool.get(field) is None:
                    yield _missing(f"{path}.{field}")
            for index, inner in enumerate(_listed(tool.get("tools"))):
                yield from _tool(inner, f"{path}.tools[{index}]", ("function", "custom"))


def _tool_choice(choice: Any, tools: Sequence[Any]) -> Iterator[Violation]:
    if isinstance(choice, str):
        if choice not in ("none", "auto", "required"):
            yield _wrong_value("field_value", "tool_choice", choice, ("none", "auto", "required"))
        elif choice == "required" and not tools:
            said = "Tool choice 'required' must be specified with 'tools' parameter."
            yield Violation("tool_choice", "tool_choice", said)
    elif isinstance(choice, dict) and (kind := choice.get("type")) in ("function", "custom"):
        there = {tool.get("name") for tool in tools if isinstance(tool, dict) and tool.get("type") == kind}
        if choice.get("name") not in there:
            said = f"Tool choice '{choice.get('name')}' not found in 'tools' parameter."
            yield Violation("tool_choice", "tool_choice", said)


def _at_least(path: str, value: Any, least: int) -> Iterator[Violation]:
    if isinstance(value, int) and value < least:
        said = f"Invalid '{path}': integer below minimum value. Expected a value >= {least}, but got {value} instead."
        yield Violation("least", path, said)


# --- items ---------------------------------------------------------------------------------------------------------


def check_item(item: Any, path: str) -> Iterator[Violation]:
    """What can be decided from one item alone."""
    if not isinstance(item, dict):
        yield _wrong_type(path, (dict,), item)
        return
    kind = kind_of(item)
    if kind not in _ITEMS:
        yield _wrong_value("item_kind", path, kind, sorted(_ITEMS))
        return
    required, known = _ITEMS[kind]
    for name in sorted(set(item) - known - _UNDOCUMENTED):
        yield _unknown("item_field", f"{path}.{name}")
    for name in required:
        if item.get(name) is None:
            yield _missing(f"{path}.{name}")
    for name in _STRINGS & set(item):
        if not isinstance(item[name], str | None):
            yield _wrong_type(f"{path}.{name}", (str,), item[name])
    yield from _ids(item, kind, path)
    match kind:
        case "message":
            yield from _message(item, path)
        case "function_call_output" | "custom_tool_call_output":
            yield from _content(item.get("output"), _ASKED, f"{path}.output")
        case "reasoning":
            for index, part in enumerate(_listed(item.get("summary"))):
                if not isinstance(part, dict) or part.get("type") != "summary_text":
                    yield _wrong_value("content_part", f"{path}.summary[{index}]", part, ("summary_text",))
        case "additional_tools":
            if item.get("role") != "developer":
                yield _wrong_value("role", f"{path}.role", item.get("role"), ("developer",))
            for index, tool in enumerate(_listed(item.get("tools"))):
                yield from _tool(tool, f"{path}.tools[{index}]")
        case _:
            pass


def _ids(item: Mapping[str, Any], kind: str, path: str) -> Iterator[Violation]:
    start, identity = _ID_STARTS.get(kind), item.get("id")
    if start is not None and isinstance(identity, str) and not identity.startswith(start):
        said = f"Invalid '{path}.id': '{identity}'. Expected an ID that begins with '{start}'."
        yield Violation("item_id", f"{path}.id", said)
    call = item.get("call_id")
    if isinstance(call, str) and not 0 < len(call) <= _LONGEST_ID:
        bound = f"maximum length {_LONGEST_ID}" if call else "minimum length 1"
        said = f"Invalid '{path}.call_id': {'string too long' if call else 'empty string'}. Expected a string with "
        yield Violation("id_length", f"{path}.call_id", f"{said}{bound}, but got one with length {len(call)} instead.")


def _message(item: Mapping[str, Any], path: str) -> Iterator[Violation]:
    role = item.get("role")
    if role not in _ROLES:
        yield _wrong_value("role", f"{path}.role", role, ("assistant", "system", "developer", "user"))
        return
    yield from _content(item.get("content"), _ROLES[role], f"{path}.content")


def _content(content: Any, kinds: Collection[str], path: str) -> Iterator[Violation]:
    if isinstance(content, str | None):
        return
    if not isinstance(content, list):
        yield _wrong_type(path, (str, list), content)
        return
    for index, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else None
        where = f"{path}[{index}]"
        if kind not in kinds:
            yield _wrong_value("content_part", where, kind, tuple(kinds))
            continue
        words, known = _PARTS[str(kind)]
        for name in sorted(set(part) - known):
            yield _unknown("item_field", f"{where}.{name}")
        if words and not isinstance(part.get(words), str):
            yield _missing(f"{where}.{words}")


# --- their order ---------------------------------------------------------------------------------------------------


def check_order(items: Sequence[Mapping[str, Any]], before: int = 0) -> Iterator[Violation]:
    """Calls and their outputs, reasoning and what it led to, over all items that the model is to read.

    The first `before` are of earlier responses: paths count from behind them.
    """
    open_calls: dict[tuple[str, str], int] = {}
    answered: set[tuple[str, str]] = set()
    ids: set[str] = set()
    for index, item in enumerate(items):
        kind, path = kind_of(item), f"input[{max(0, index - before)}]"
        identity = item.get("id")
        if isinstance(identity, str) and kind not in ("item_reference", "local_shell_call_output"):
            if identity in ids:
                said = f"Duplicate item found with id {identity}. Remove duplicate items from your input and try again."
                yield Violation("duplicate_item", "input", said)
            ids.add(identity)
        if kind in CALLS:
            key = kind, str(item.get("call_id"))
            if key in open_calls or key in answered:
                said = f"Duplicate {_called(kind)} found with call_id {key[1]}."
                yield Violation("duplicate_call", path, said)
            open_calls[key] = index
        elif kind in OUTPUTS:
            call = OUTPUTS[kind]
            key = call, str(item.get("id" if kind == "local_shell_call_output" else "call_id"))
            if key in answered:
                said = f"Duplicate {_called(call)} output found with call_id {key[1]}."
                yield Violation("duplicate_output", path, said)
            elif open_calls.pop(key, None) is None:
                said = f"No tool call found for {_called(call)} output with call_id {key[1]}."
                yield Violation("orphan_output", path, said)
            answered.add(key)
        elif kind == "reasoning":
            behind = next((other for other in items[index + 1 :] if kind_of(other) != "reasoning"), None)
            if behind is None or not is_of_model(behind):
                said = f"Item '{identity}' of type 'reasoning' was provided without its required following item."
                yield Violation("reasoning_alone", path, said)
        elif kind == "compaction_trigger" and index + 1 < len(items):
            said = "'compaction_trigger' must be the final input item."
            yield Violation("trigger_last", path, said)
    for (kind, call), _ in open_calls.items():
        yield Violation("unanswered_call", "input", f"No tool output found for {_called(kind)} {call}.")


def _called(kind: str) -> str:
    return kind.replace("_", " ")


# --- how the server words it ---------------------------------------------------------------------------------------


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _unknown(rule: str, path: str) -> Violation:
    return Violation(rule, path, f"Unknown parameter: '{path}'.")


def _missing(path: str) -> Violation:
    return Violation("required_field", path, f"Missing required parameter: '{path}'.")


def _wrong_value(rule: str, path: str, value: Any, known: Sequence[str]) -> Violation:
    shown = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    names = ", ".join(f"'{name}'" for name in known[:-1])
    listed = f"{names}, and '{known[-1]}'" if names else f"'{known[-1]}'"
    return Violation(rule, path, f"Invalid value: '{shown}'. Supported values are: {listed}.")


def _wrong_type(path: str, types: tuple[type, ...], value: Any) -> Violation:
    wanted = " or ".join(_NAMES[one] for one in types)
    got = _NAMES.get(type(value), "null" if value is None else "a number")
    said = f"Invalid type for '{path}': expected {wanted}, but got {got} instead."
    return Violation("field_type", path, said)
