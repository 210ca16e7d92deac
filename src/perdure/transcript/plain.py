"""Messages as plain data, in Anthropic's words or OpenAI's, become messages of ours (ENG-7).

Nothing is guessed: a mistake is a `RecordRefused` that names the place and the remedy. Readers of foreign logs
(`logs.openai`) take the same forms, but must make the best of whatever a file holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from perdure.errors import MalformedBlock, RecordRefused
from perdure.transcript.blocks import (
    FIELDS,
    Block,
    check_sendable,
    check_written,
    encode,
    misspelt,
    raw_of,
    sendable_id,
    text_block,
)
from perdure.transcript.messages import Message, Role, Usage, WireFields, content_of

Data = Mapping[str, Any]
_SYSTEM: Final = ("system", "developer")
_SAID_WITH: Final = ("role", "content", "model", "stop_reason", "stop_sequence", "usage", "refusal", "name", "type")
_ROLES: Final = "user, assistant, tool or system"


def is_system(given: Any) -> bool:
    """Whether plain data is a system prompt said as a message, OpenAI's way."""
    return isinstance(given, Mapping) and given.get("role") in _SYSTEM


def system_text(given: Data, at: str = "the message") -> str:
    """The text of a system prompt that was said as a message."""
    content = given.get("content")
    parts = [content] if isinstance(content, str) else content if isinstance(content, Sequence) else []
    texts = [part.get("text") if isinstance(part, Mapping) else part for part in parts]
    if not texts or not all(isinstance(text, str) for text in texts):
        raise RecordRefused(f"{at}: a system message must hold text")
    return "\n\n".join(text for text in texts if isinstance(text, str))


def message_of(given: Any, at: str = "the message") -> Message:
    """One message from plain data: a text (of the user), or an object with role and content.

    OpenAI's `tool_calls`, `tool` messages and content parts become the blocks they stand for. Raises `RecordRefused`.
    """
    if isinstance(given, str):
        given = {"role": "user", "content": given}
    first = given[0] if isinstance(given, list | tuple) and given else given
    if isinstance(first, Mapping) and first.get("role") is None and first.get("type") in FIELDS:
        speaker = "assistant" if first["type"] in ("tool_use", "thinking") else "user"
        wrapped = f'{{"role": "{speaker}", "content": {"[block]" if first is given else "blocks"}}}'
        raise RecordRefused(f"{at} is only a {first['type']} block: say it in a message, as {wrapped}")
    if not isinstance(given, Mapping):
        raise RecordRefused(f"{at} must be a Message, a text, or an object with role and content, not {_type(given)}")
    role = given.get("role")
    if role is None:
        raise RecordRefused(f'{at} has no role: say who speaks, as in {{"role": "user", "content": "…"}}')
    try:
        if role == "tool":
            return _checked("user", [_answer(given, at)], given, at)
        if role == "user":
            return _checked("user", list(_parts(given, role, at)), given, at)
        if role == "assistant":
            if given.get("id") is None and (wrong := misspelt(given, ("tool_calls", "tool_call_id", *_SAID_WITH))):
                raise RecordRefused(f"{at}: {wrong}")
            said = _checked("assistant", [*_parts(given, role, at), *_calls(given, at)], given, at)
            wire = _ids_as_said(given)
            return said if wire is None else msgspec.structs.replace(said, wire=wire)
    except UnicodeEncodeError as e:
        raise RecordRefused(f"{at}: half a surrogate pair at character {e.start} of a text; replace it") from None
    raise RecordRefused(f"{at} has the unknown role {role!r:.40}: it must be {_ROLES}")


def openai_message(response: Data) -> Data:
    """The first choice of a Chat Completions response, as the message that it is, with what the response says of it."""
    choices = response.get("choices")
    first = choices[0] if isinstance(choices, Sequence) and not isinstance(choices, str) and choices else None
    message = first.get("message") if isinstance(first, Mapping) else None
    if not isinstance(first, Mapping) or not isinstance(message, Mapping):
        raise RecordRefused("the response has no choice with a message: append what a whole answer holds, not a chunk")
    told = {key: response[key] for key in ("id", "model", "usage") if response.get(key) is not None}
    reason = _FINISHED.get(str(first.get("finish_reason")))
    return {**told, **({"stop_reason": reason} if reason else {}), **message}


_FINISHED: Final = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "content_filter": "refusal"}


def _checked(role: Role, blocks: list[Block], given: Data, at: str) -> Message:
    if not blocks and role != "assistant":
        raise RecordRefused(f"{at} says nothing: its content is empty")
    for number, block in enumerate(blocks):
        try:
            check_sendable(block, role)
            if role == "user" or given.get("id") is None:  # a whole answer is as its provider made it
                check_written(block, role)
        except MalformedBlock as e:
            raise RecordRefused(f"{at}, content[{number}]: {_in_words(e)}") from None
    fields: dict[str, Any] = {}
    for key, name in (("model", "model"), ("stop_reason", "stop_reason"), ("id", "response_id")):
        if role == "assistant" and given.get(key) is not None:
            if not isinstance(given[key], str):
                raise RecordRefused(f"{at}: its {key} must be a text, not {_type(given[key])}")
            fields[name] = given[key]
    if role == "assistant" and given.get("usage") is not None:
        fields["usage"] = usage_of(given["usage"], f"{at}: its usage")
    answers = any(block.type == "tool_result" for block in blocks)
    origin = "model" if role == "assistant" else "tool" if answers else "user"
    return Message.of(role, blocks, origin=origin, **fields)


_MISSING = re.compile(r"Object missing required field `(\w+)`(?: - at `\$.*)?")
_OTHER_KIND = re.compile(r"Expected `([^`]+)`, got `(\w+)`(?: - at `\$\.?([^`]*)`)?")
_KINDS: Final = {"str": "a text", "array": "a list", "object": "an object", "null": "nothing", "int": "a number"}
_MEANT: Final = {"tool_use_id": ", the id of the tool_use that it answers"}


def _in_words(error: MalformedBlock) -> str:
    """What a decoder found wrong with a block, for who wrote it."""
    if found := _MISSING.fullmatch(error.detail):
        return f"this {error.kind} block needs `{found[1]}`{_MEANT.get(found[1], '')}"
    if found := _OTHER_KIND.fullmatch(error.detail):
        wanted = [_KINDS.get(kind, kind) for kind in found[1].split(" | ") if kind != "null"]
        given = _KINDS.get(found[2], found[2])
        return f"`{found[3]}` of this {error.kind} block must be {' or '.join(wanted)}, not {given}"
    return str(error)


def usage_of(given: Any, at: str = "usage") -> Usage:
    """What an API reported, in Anthropic's words or OpenAI's. Raises `RecordRefused`."""
    if isinstance(given, Usage):
        return given
    if not isinstance(given, Mapping):
        raise RecordRefused(f"{at} must be an object of counts, not {_type(given)}")
    if "prompt_tokens" in given:  # OpenAI's counts: what was cached is part of the prompt
        details = given.get("prompt_tokens_details")
        cached = details.get("cached_tokens") if isinstance(details, Mapping) else None
        prompt, cached = given["prompt_tokens"], cached or 0
        output = given.get("completion_tokens") or 0
        if not all(type(count) is int for count in (prompt, cached, output)):
            raise RecordRefused(f"{at} must hold whole numbers")
        return Usage(input_tokens=prompt - cached, output_tokens=output, cache_read_input_tokens=cached)
    details = given.get("input_tokens_details")  # so do those of the Responses API
    if isinstance(details, Mapping) and type(given.get("input_tokens")) is int:
        cached = int(details.get("cached_tokens") or 0)
        given = {**given, "input_tokens": given["input_tokens"] - cached, "cache_read_input_tokens": cached}
    known = {name: count for name, count in given.items() if name in Usage.__struct_fields__ and count is not None}
    try:
        return msgspec.convert(known, Usage)
    except msgspec.ValidationError as e:
        raise RecordRefused(f"{at} can't be read: {e}") from None


def _parts(given: Data, role: str, at: str) -> Iterator[Block]:
    content = given.get("content")
    if content is None:
        is_whole = "content" in given or given.get("id") is not None or len(given) == 1
        if role == "assistant" and (is_whole or given.get("tool_calls") or given.get("refusal")):
            audio = given.get("audio")
            texts = (given.get("refusal"), audio.get("transcript") if isinstance(audio, Mapping) else None)
            yield from (text_block(text) for text in texts if isinstance(text, str))
            return
        what = "nothing" if "content" in given else "no content"
        raise RecordRefused(f"{at} has {what} to say: give `content` a text or a list of blocks")
    if isinstance(content, str):
        if content or not given.get("tool_calls"):
            yield text_block(content)
        return
    if not isinstance(content, Sequence) or isinstance(content, bytes | bytearray):
        raise RecordRefused(f"{at}: its content must be a text or a list of blocks, not {_type(content)}")
    for number, part in enumerate(content):
        yield _part(part, f"{at}, content[{number}]")


def _part(part: Any, at: str) -> Block:
    if isinstance(part, Block):
        return part
    if isinstance(part, str):
        return text_block(part)
    if not isinstance(part, Mapping):
        raise RecordRefused(f"{at} must be a block, not {_type(part)}")
    kind = part.get("type")
    if not isinstance(kind, str):
        raise RecordRefused(f'{at} has no type: a text is {{"type": "text", "text": "…"}}')
    if kind in ("input_text", "output_text", "refusal"):
        text = part.get("refusal" if kind == "refusal" else "text")
        if not isinstance(text, str):
            raise RecordRefused(f"{at} ({kind}) holds no text")
        return text_block(text)
    if kind in ("image_url", "input_image"):
        image = part.get("image_url")
        url = image.get("url") if isinstance(image, Mapping) else image
        if not isinstance(url, str) or not url:
            raise RecordRefused(f"{at} ({kind}) has no url")
        return image_of(url)
    return _block(part, at)


def _block(value: Data, at: str) -> Block:
    raw = raw_of(value, at)
    try:
        return Block(raw)
    except MalformedBlock as e:
        raise RecordRefused(f"{at}: {e}") from None


def image_of(url: str) -> Block:
    """An image block from a data URL, or from an address."""
    head, comma, body = url.partition(",")
    if comma and head.startswith("data:") and head.endswith(";base64"):
        media = head[5:].split(";")[0] or "image/png"
        source = {"type": "base64", "media_type": media, "data": body}
    else:
        source = {"type": "url", "url": url}
    return Block(raw_of({"type": "image", "source": source}, "the image"))


def _calls(given: Data, at: str) -> Iterator[Block]:
    calls = given.get("tool_calls")
    if given.get("function_call") is not None:
        raise RecordRefused(f"{at}: function_call has no id that an answer could name; say it as tool_calls")
    if calls is None:
        return
    if not isinstance(calls, Sequence) or isinstance(calls, str | bytes):
        raise RecordRefused(f"{at}: its tool_calls must be a list, not {_type(calls)}")
    for number, call in enumerate(calls):
        where = f"{at}, tool_calls[{number}]"
        function = call.get("function", call.get("custom")) if isinstance(call, Mapping) else None
        if not isinstance(call, Mapping) or not isinstance(function, Mapping):
            raise RecordRefused(f"{where} has no function: give id, type and function with name and arguments")
        identity, name = call.get("id"), function.get("name")
        if not isinstance(identity, str) or not identity:
            raise RecordRefused(f"{where} has no id, so that no answer could name it")
        if not isinstance(name, str) or not name:
            raise RecordRefused(f"{where}: its function has no name")
        if wrong := misspelt(function, ("name", "arguments", "input")):
            raise RecordRefused(f"{where}: {wrong}")
        use = {"type": "tool_use", "id": sendable_id(identity), "name": name}
        if "custom" in call and isinstance(text := function.get("input"), str):  # as an item of Responses says it
            yield _block({**use, "input": {"input": text}, "response_item": {"type": "custom_tool_call"}}, where)
        else:
            yield _block({**use, "input": _arguments(function.get("arguments", function.get("input")), where)}, where)


def _ids_as_said(given: Data) -> WireFields | None:
    """The ids of calls that not every API takes, such as `functions.Bash:0`, which those who made them know."""
    ids = {sendable_id(call["id"]): call["id"] for call in given.get("tool_calls") or ()}
    odd = {ours: msgspec.Raw(encode({"id": theirs})) for ours, theirs in ids.items() if ours != theirs}
    return WireFields(protocol="openai", parts=odd) if odd else None


def _arguments(given: Any, at: str) -> Any:
    if given is None or given == "":
        return {}
    if isinstance(given, Mapping):
        return given
    if isinstance(given, str):
        try:
            value = msgspec.json.decode(given.encode())
        except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
            value = None
        return msgspec.Raw(given.encode()) if isinstance(value, dict) else {"_raw": given}  # as models make them
    raise RecordRefused(f"{at}: its arguments must be the text of a JSON object, not {_type(given)}")


def _answer(given: Data, at: str) -> Block:
    identity, content = given.get("tool_call_id"), given.get("content")
    if not isinstance(identity, str) or not identity:
        raise RecordRefused(f"{at} has no tool_call_id: say which call it answers")
    if not isinstance(content, str):
        if not isinstance(content, Sequence) or isinstance(content, bytes | bytearray):
            raise RecordRefused(f"{at}: its content must be a text or a list of parts, not {_type(content)}")
        parts = [_part(part, f"{at}, content[{number}]") for number, part in enumerate(content)]
        content = list(content_of(parts))
    return _block({"type": "tool_result", "tool_use_id": sendable_id(identity), "content": content}, at)


def _type(value: Any) -> str:
    return "nothing" if value is None else type(value).__name__
