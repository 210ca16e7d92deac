"""The Responses API of the fake upstream: its rules, encrypted reasoning, stored responses, and compaction."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NoReturn

import msgspec

from perdure.testing.block_rules import ModelRules, Violation
from perdure.testing.conversations import FakeConversations, item_page, shown_items
from perdure.testing.openai_rules import openai_error
from perdure.testing.request import DecodedBlock, DecodedMessage, DecodedRequest, ProtocolWays, open_body
from perdure.testing.responses_rules import (
    check_fields,
    check_item,
    check_order,
    check_responses,
    error_code,
    is_of_model,
    items_of,
    kind_of,
    named_tools,
)
from perdure.testing.upstream import Block, FakeUpstream, UpstreamError, UpstreamReply, say

Json = dict[str, Any]
_WAYS = ProtocolWays("input[{message}]", "call", lookback_blocks=None)
_KEY = b"perdure.testing"
_SEALED = "perdure-compaction."
_TEMPLATE_MODEL = "gpt-6-sol"  # of a prompt whose request names none
_OVERFLOW = "Your input exceeds the context window of this model. Please adjust your input and try again."
_UNREADABLE = "could not be verified. Reason: Encrypted content could not be decrypted or parsed."
_ECHOED: Mapping[str, Any] = {
    "background": False, "instructions": None, "max_output_tokens": None, "max_tool_calls": None, "metadata": {},
    "parallel_tool_calls": True, "previous_response_id": None, "prompt_cache_key": None, "reasoning": {},
    "service_tier": "default", "store": True, "temperature": 1.0, "text": {"format": {"type": "text"}},
    "tool_choice": "auto", "tools": [], "top_p": 1.0, "truncation": "disabled",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ResponseAnswer:
    """An answer, as it goes to the client. `keep` stores it, if that was asked for: a stream that breaks isn't stored.

    `contains` are all items that the model read, those of earlier responses included.
    """

    response: Json
    streams: bool
    obfuscates: bool  # whether deltas are padded, so that their size tells nothing
    keep: Callable[[], None]
    contains: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class KeptResponse:
    """A response that was asked to be kept."""

    response: Json
    items: tuple[bytes, ...]  # all that the model read
    output: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class IssuedItem:
    """What is remembered of an item that a model wrote: the reasoning in front of it."""

    reasoning_id: str
    encrypted: str


class FakeResponses:
    """`/v1/responses` of a `FakeUpstream` for one account: only its own responses and conversations are known to it.

    Script, window, cache and statistics are those of all protocols. Reasoning that is not where it was is removed and
    reported in `input_transformations`, as the real server does.
    """

    def __init__(self, upstream: FakeUpstream, account: str = "") -> None:
        self._upstream = upstream
        self._read: dict[tuple[ModelRules, bytes], tuple[Json, DecodedMessage]] = {}
        self._stored: dict[str, KeptResponse] = {}
        self._polled: dict[str, Json] = {}  # responses in the background that nobody asked for yet, as they begin
        self._issued: dict[str, IssuedItem] = {}  # by the id of an item and by that of a call
        self.conversations = FakeConversations(upstream.refuse, account)

    def create(self, body: bytes) -> ResponseAnswer:
        """Answer `POST /v1/responses`. Raises `UpstreamError`."""
        self._upstream.statistics.requests += 1
        asked = self._fields(body)
        rules = self._upstream.rules_of(asked["model"])
        earlier = self._earlier(asked)
        raw = [*earlier, *self._given(asked, body)]
        items = self._items(raw, rules, len(earlier))
        fields = asked | {"max_tokens": asked.get("max_output_tokens") or rules.max_output_tokens}
        request = self._decoded(fields, items, rules)
        is_trigger = bool(items) and kind_of(items[-1][0]) == "compaction_trigger"
        reply = self._upstream.answer(
            request,
            rules,
            session=str(asked.get("prompt_cache_key") or ""),
            reply=say(_compaction([item for item, _ in items])) if is_trigger else None,
            first=() if is_trigger else self._over_threshold(asked, request, [item for item, _ in items]),
            trims=asked.get("truncation") == "auto",
        )
        response = self._response(asked, reply, items)
        output = tuple(msgspec.json.encode(item) for item in response["output"])
        named, whole, is_stream = asked.get("conversation"), response, bool(asked.get("stream"))
        if named is not None:
            response["conversation"] = {"id": _conversation_id(named)}

        def keep() -> None:
            if named is not None:
                self.conversations.of(_conversation_id(named)).items += [*raw[len(earlier) :], *output]
            if asked.get("store") is not False:
                self._stored[whole["id"]] = KeptResponse(whole, tuple(raw), output)

        if not is_stream:
            keep()
        if asked.get("background") and not is_stream:
            response = {**response, "status": "queued", "output": [], "usage": None}
            self._polled[response["id"]] = response
        streaming = asked.get("stream_options")
        obfuscates = not isinstance(streaming, dict) or streaming.get("include_obfuscation") is not False
        return ResponseAnswer(response, is_stream, obfuscates, keep, tuple(raw))

    def compact(self, body: bytes) -> Json:
        """Answer `POST /v1/responses/compact`: what the user said, and one item in place of all else."""
        self._upstream.statistics.requests += 1
        asked = self._fields(body)
        rules = self._upstream.rules_of(asked["model"])
        earlier = self._earlier(asked)
        raw = [*earlier, *self._given(asked, body)]
        items = self._items(raw, rules, len(earlier))
        request = self._decoded(asked | {"max_tokens": rules.max_output_tokens}, items, rules)
        compaction = say(_compaction([item for item, _ in items]))
        reply = self._upstream.answer(request, rules, session="", reply=compaction)
        said = [{**item, "type": "message"} for item, _ in items if item.get("role") == "user"]
        output = [*said, *_output(reply, ())]
        return {"id": _id("resp", reply.id), "object": "response.compaction", "created_at": 0, "output": output} | {
            "usage": _usage(reply)
        }

    def count(self, body: bytes) -> Json:
        """Answer `POST /v1/responses/input_tokens`; of the rules, only those of fields and single items."""
        asked = self._fields({"model": "any", **self._object(body)})
        rules = self._upstream.rules_of(asked["model"])
        raw = [*self._earlier(asked), *self._given(asked, body)]
        blocks = [block for item in raw for block in self._item(item, rules)[1].blocks]
        head, _ = self._head(asked, rules)
        return {"object": "response.input_tokens", "input_tokens": sum(block.tokens for block in (*head, *blocks))}

    def stored(self, response: str) -> Json:
        """Answer `GET /v1/responses/{id}`; one in the background is on its way the first time."""
        begun, kept = self._polled.pop(response, None), self._kept(response)
        return kept.response if begun is None else {**begun, "status": "in_progress"}

    def cancel(self, response: str) -> Json:
        """Answer `POST /v1/responses/{id}/cancel`."""
        kept = self._kept(response)
        if not kept.response["background"]:
            self._upstream.refuse([Violation("cancel", "", "Cannot cancel a synchronous response.")])
        if (begun := self._polled.pop(response, None)) is None:
            return kept.response
        cancelled = {**begun, "status": "cancelled"}
        self._stored[response] = KeptResponse(cancelled, kept.items, ())
        return cancelled

    def delete(self, response: str) -> Json:
        """Answer `DELETE /v1/responses/{id}`."""
        self._kept(response)
        del self._stored[response]
        return {"id": response, "object": "response", "deleted": True}

    def input_items(self, response: str, *, after: str = "", limit: int = 20, newest_first: bool = True) -> Json:
        """Answer `GET /v1/responses/{id}/input_items`, a page of them."""
        shown = shown_items(self._kept(response).items)
        return item_page(shown, after=after, limit=limit, newest_first=newest_first)

    # --- reading --------------------------------------------------------------------------------------------------

    def _fields(self, body: bytes | Json) -> Json:
        """All but the items, which stay as they came."""
        asked = body if isinstance(body, dict) else self._object(body)
        if found := list(check_fields(asked)):
            self._upstream.refuse(found)
        return asked if asked.get("model") else asked | {"model": _TEMPLATE_MODEL}

    def _object(self, body: bytes) -> Json:
        try:
            asked = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            asked = None
        if not isinstance(asked, dict):
            self._upstream.refuse(check_responses(body))
        return asked

    def _given(self, asked: Json, body: bytes) -> list[bytes]:
        if isinstance(asked.get("input"), list):
            raw = open_body(body)["input"]
            return [bytes(item) for item in msgspec.json.decode(raw, type=list[msgspec.Raw])]
        return [msgspec.json.encode(item) for item in items_of(asked.get("input"))]

    def _earlier(self, asked: Json) -> list[bytes]:
        """The items of the response that this one continues, or of the conversation that it is in."""
        if (named := asked.get("conversation")) is not None:
            return self.conversations.of(_conversation_id(named)).items.copy()
        previous = asked.get("previous_response_id")
        if previous is None:
            return []
        if (kept := self._stored.get(previous)) is None:
            said = f"Previous response with id '{previous}' not found."
            self._upstream.refuse([Violation("previous_response", "previous_response_id", said)])
        return [*kept.items, *kept.output]

    def _items(self, raw: Sequence[bytes], rules: ModelRules, before: int) -> list[tuple[Json, DecodedMessage]]:
        """Every item with what the model reads of it; refused where they break a rule, alone or together."""
        found: list[Violation] = []
        items: list[tuple[Json, DecodedMessage]] = []
        for index, one in enumerate(raw):
            read = self._read.get((rules, one))
            if read is None:
                item = msgspec.json.decode(one)
                if broken := list(check_item(item, f"input[{index - before}]")):
                    found += broken
                    continue
                read = self._item(one, rules)
            items.append(self._resolved(read, rules))
        known = [item for item, _ in items]
        found = found or [*check_order(known, before), *self._unreadable(known), *self._reasoning_left_out(known)]
        if found:
            self._upstream.refuse(found)
        return items

    def _item(self, raw: bytes, rules: ModelRules) -> tuple[Json, DecodedMessage]:
        """One item, read once however often it is sent."""
        read = self._read.get((rules, raw))
        if read is None:
            item = msgspec.json.decode(raw)
            role = "assistant" if is_of_model(item) else "user"
            if kind_of(item) == "message" and item.get("role") in ("system", "developer"):
                role = "system"
            reader = self._upstream.reader(rules)
            blocks = _blocks(item)
            text = "".join(block["text"] for block in blocks if block["type"] == "text")
            decoded = tuple(reader.block(block, role) for block in blocks)
            read = self._read[rules, raw] = item, DecodedMessage(role, decoded, (), text=text)
        return read

    def _resolved(self, read: tuple[Json, DecodedMessage], rules: ModelRules) -> tuple[Json, DecodedMessage]:
        """What a reference stands for; an item that is nothing but an id is one."""
        item, _ = read
        kind, identity = kind_of(item), item.get("id")
        if kind != "item_reference" and (kind != "reasoning" or item.get("encrypted_content")):
            return read
        for kept in self._stored.values():
            for raw in kept.output:
                if msgspec.json.decode(raw)["id"] == identity:
                    return self._item(raw, rules)
        said = f"Item with id '{identity}' not found. Items are not persisted when `store` is set to false. Try again "
        self._not_there("item", f"{said}with `store` set to true, or remove this item from your input.")

    def _unreadable(self, items: Sequence[Json]) -> Iterator[Violation]:
        """Encrypted content that this server didn't write."""
        for index, item in enumerate(items):
            encrypted = item.get("encrypted_content")
            if kind_of(item) == "reasoning":
                is_ours = not encrypted or self._upstream.signed(encrypted, _summary(item))
            else:
                is_ours = kind_of(item) != "compaction" or _opened(str(encrypted)) is not None
            if not is_ours:
                said = f"The encrypted content for item {item.get('id')} {_UNREADABLE}"
                yield Violation("encrypted_content", f"input[{index}]", said)

    def _reasoning_left_out(self, items: Sequence[Json]) -> Iterator[Violation]:
        """Items that came with reasoning and come back without.

        They are known by their own id; those of the open loop also by the id of the call.
        """
        last_said = max((at for at, item in enumerate(items) if item.get("role") == "user"), default=-1)
        before: list[Json] = []  # the reasoning since something that isn't of the model
        for index, item in enumerate(items):
            if not is_of_model(item):
                before = []
            elif kind_of(item) == "reasoning":
                before.append(item)
            else:
                issued = self._issued.get(str(item.get("id")))
                if issued is None and index > last_said:
                    issued = self._issued.get(str(item.get("call_id")))
                if issued is None or any(
                    other.get("id") == issued.reasoning_id or other.get("encrypted_content") == issued.encrypted
                    for other in before
                ):
                    continue
                said = f"Item '{item.get('id')}' of type '{kind_of(item)}' was provided without its required "
                more = f"'reasoning' item: '{issued.reasoning_id}'."
                yield Violation("reasoning_missing", f"input[{index}]", said + more)

    def _decoded(self, asked: Json, items: Sequence[tuple[Json, DecodedMessage]], rules: ModelRules) -> DecodedRequest:
        effort = asked["reasoning"].get("effort") if isinstance(asked.get("reasoning"), dict) else None
        fields = {
            "model": asked["model"],
            "max_tokens": asked["max_tokens"],
            "tool_choice": asked.get("tool_choice"),
            "output_config": {"effort": effort},
            "thinking": {"block_binding": {"prefix_mismatch_behavior": "drop_block"}},
            "cache_control": {"type": "ephemeral", "ttl": "30m"},  # its own breakpoint, behind the last item
        }
        head, paths = self._head(asked, rules)
        messages = [message for _, message in items]
        tools = [_as_scripted(space, tool) for space, tool in named_tools(asked, [item for item, _ in items])]
        return DecodedRequest(fields, head, paths, tools, messages, ways=_WAYS)

    def _head(self, asked: Json, rules: ModelRules) -> tuple[tuple[DecodedBlock, ...], tuple[str, ...]]:
        reader = self._upstream.reader(rules)
        tools = [(f"tools[{at}]", tool, "tools") for at, tool in enumerate(asked.get("tools") or ())]
        parts = [*tools]
        if asked.get("prompt"):
            template = f"The template {msgspec.json.encode(asked['prompt']).decode()}, filled."
            parts.append(("prompt", {"type": "text", "text": template}, "top"))
        if asked.get("instructions"):
            parts.append(("instructions", {"type": "text", "text": asked["instructions"]}, "top"))
        return tuple(reader.block(part, role) for _, part, role in parts), tuple(path for path, _, _ in parts)

    # --- answering ------------------------------------------------------------------------------------------------

    def _over_threshold(self, asked: Json, request: DecodedRequest, items: Sequence[Json]) -> list[Block]:
        """A compaction in front of the answer, where the request says from which size on."""
        size = sum(block.tokens for message in request.messages for block in message.blocks)
        limits = [edit.get("compact_threshold") for edit in asked.get("context_management") or ()]
        return [_compaction(items)] if any(limit and size > limit for limit in limits) else []

    def _response(self, asked: Json, reply: UpstreamReply, items: Sequence[tuple[Json, DecodedMessage]]) -> Json:
        output = _output(reply, named_tools(asked, [item for item, _ in items]))
        self._remember(output)
        stops = {"max_tokens": "max_output_tokens", "refusal": "content_filter"}
        stops["model_context_window_exceeded"] = "max_output_tokens"
        reason = stops.get(reply.stop_reason)
        given = {name: asked[name] for name in _ECHOED if asked.get(name) is not None}
        response: Json = {
            "id": _id("resp", reply.id), "object": "response", "created_at": 0, "model": reply.model,
            "status": "incomplete" if reason else "completed", "error": None,
            "incomplete_details": {"reason": reason} if reason else None,
            **_ECHOED, **given, "output": output, "usage": _usage(reply),
        }  # fmt: skip
        if reply.input_transformations:
            removed = [items[int(told["path"][6:-1])][0].get("id") for told in reply.input_transformations]
            response["input_transformations"] = [
                {"type": "reasoning", "id": one, "action": "removed", "reason": "prefix_mismatch"} for one in removed
            ]
        return response

    def _remember(self, output: Sequence[Json]) -> None:
        reasoning: Json | None = None
        for item in output:
            if item["type"] == "reasoning":
                reasoning = item
            elif reasoning is not None:
                issued = IssuedItem(reasoning["id"], reasoning["encrypted_content"])
                self._issued[item["id"]] = issued
                if "call_id" in item:
                    self._issued[item["call_id"]] = issued

    def _kept(self, response: str) -> KeptResponse:
        if (kept := self._stored.get(response)) is None:
            self._not_there("response", f"Response with id '{response}' not found.")
        return kept

    def _not_there(self, rule: str, said: str) -> NoReturn:
        self._upstream.refuse([Violation(rule, "", said)], 404)


def _conversation_id(named: Any) -> str:
    return str(named["id"] if isinstance(named, dict) else named)


def responses_error(error: UpstreamError) -> Json:
    """An error as the Responses API words it: with the parameter and a code."""
    told = openai_error(error)
    inner = told["error"]
    if inner["code"] == "context_length_exceeded":
        inner |= {"message": _OVERFLOW, "param": "input"}
    elif error.violations:
        first = error.violations[0]
        inner |= {"param": first.path or None, "code": error_code(first.rule)}
    return told


def _id(kind: str, of: str, number: int | None = None) -> str:
    bare = of.partition("_")[2]
    return f"{kind}_{bare}" if number is None else f"{kind}_{bare}{number:02d}"


# --- items and blocks ----------------------------------------------------------------------------------------------


def _blocks(item: Mapping[str, Any]) -> list[Block]:
    """What the model reads of an item, as the blocks that the upstream counts, hashes and signs."""
    match kind := kind_of(item):
        case "message":
            return _parts(item.get("content"))
        case "function_call":
            try:
                given = msgspec.json.decode(item["arguments"] or "{}")
            except msgspec.DecodeError:
                given = item["arguments"]
            name = "__".join(filter(None, (item.get("namespace"), item["name"])))
            return [{"type": "tool_use", "id": item["call_id"], "name": name, "input": given}]
        case "custom_tool_call":
            name = "__".join(filter(None, (item.get("namespace"), item["name"])))
            return [{"type": "tool_use", "id": item["call_id"], "name": name, "input": {"input": item["input"]}}]
        case "function_call_output" | "custom_tool_call_output":
            return [{"type": "tool_result", "tool_use_id": item["call_id"], "content": _parts(item["output"])}]
        case "reasoning":
            return [{"type": "thinking", "thinking": _summary(item), "signature": item.get("encrypted_content") or ""}]
        case "compaction":
            sealed = str(item["encrypted_content"])
            return [{"type": "compaction", "content": _opened(sealed), "encrypted_content": sealed}]
        case "compaction_trigger":
            return []
        case _:
            return [{**{name: value for name, value in item.items() if name not in ("id", "status")}, "type": kind}]


def _parts(content: Any) -> list[Block]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    blocks: list[Block] = []
    for part in content or ():
        match part["type"]:
            case "input_text" | "output_text":
                blocks.append({"type": "text", "text": part["text"]})
            case "refusal":
                blocks.append({"type": "text", "text": part["refusal"]})
            case "input_image":
                source = {"type": "url", "url": part.get("image_url") or part.get("file_id")}
                blocks.append({"type": "image", "source": source})
            case _:
                blocks.append(dict(part))
    return blocks


def _summary(item: Mapping[str, Any]) -> str:
    return "".join(part["text"] for part in item["summary"])


def _as_scripted(space: str, tool: Mapping[str, Any]) -> Json:
    """A tool under the name by which a script calls it: `recall` of `mcp__perdure` is `mcp__perdure__recall`."""
    return {**tool, "name": f"{space}__{tool['name']}"} if space else dict(tool)


def _output(reply: UpstreamReply, tools: Sequence[tuple[str, Mapping[str, Any]]]) -> list[Json]:
    """The items of an answer, with tools by their namespaces. A call of a custom tool has its text in `input`."""
    customs = {_as_scripted(space, tool)["name"] for space, tool in tools if tool["type"] == "custom"}
    spaced = {_as_scripted(space, tool)["name"]: (space, tool["name"]) for space, tool in tools if space}
    has_calls = any(block["type"] == "tool_use" for block in reply.content)
    phase = "commentary" if has_calls else "final_answer"
    items: list[Json] = []
    for number, block in enumerate(reply.content):
        match block["type"]:
            case "text":
                part: Json = {"type": "output_text", "text": block["text"], "annotations": [], "logprobs": []}
                made = {"type": "message", "role": "assistant", "phase": phase, "content": [part]}
                items.append({"id": _id("msg", reply.id, number), "status": "completed", **made})
            case "thinking":
                summary = [{"type": "summary_text", "text": block["thinking"]}] if block["thinking"] else []
                made = {"type": "reasoning", "summary": summary, "encrypted_content": block["signature"]}
                items.append({"id": _id("rs", reply.id, number), **made})
            case "tool_use":
                call: Json = {"call_id": block["id"], "name": block["name"], "status": "completed"}
                if block["name"] in spaced:
                    call["namespace"], call["name"] = spaced[block["name"]]
                if block["name"] in customs:
                    if set(block["input"]) != {"input"}:
                        name = block["name"]
                        raise ValueError(f'{name} is a custom tool: script it as tool_use("{name}", {{"input": text}})')
                    made = {"type": "custom_tool_call", "input": block["input"]["input"]}
                    items.append({"id": _id("ctc", reply.id, number), **made, **call})
                else:
                    made = {"type": "function_call", "arguments": msgspec.json.encode(block["input"]).decode()}
                    items.append({"id": _id("fc", reply.id, number), **made, **call})
            case "compaction":
                made = {"type": "compaction", "encrypted_content": block["encrypted_content"]}
                items.append({"id": _id("cmp", reply.id, number), **made})
            case kind:
                raise ValueError(f"a scripted {kind} block has no form in the Responses API")
    return items


def _usage(reply: UpstreamReply) -> Json:
    usage = reply.usage
    details = {"cached_tokens": usage.cache_read_input_tokens, "cache_write_tokens": usage.cache_creation_input_tokens}
    thought = sum(len(block["thinking"]) // 4 for block in reply.content if block["type"] == "thinking")
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": details,
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": min(thought, usage.output_tokens)},
        "total_tokens": usage.prompt_tokens + usage.output_tokens,
    }


def _compaction(items: Sequence[Json]) -> Block:
    """A block in place of all these items, with what only this server can read."""
    content = f"{len(items)} items, {sha256(msgspec.json.encode(items)).hexdigest()[:16]}"
    return {"type": "compaction", "content": content, "encrypted_content": f"{_SEALED}{content}.{_mac(content)}"}


def _opened(sealed: str) -> str | None:
    """What stands in a compaction of ours; None: it is none."""
    content, _, mac = sealed.removeprefix(_SEALED).rpartition(".")
    is_ours = sealed.startswith(_SEALED) and hmac.compare_digest(mac.encode(), _mac(content).encode())
    return content if is_ours else None


def _mac(content: str) -> str:
    return hmac.new(_KEY, content.encode(), sha256).hexdigest()
