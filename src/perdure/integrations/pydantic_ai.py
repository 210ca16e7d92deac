"""Pydantic AI: a capability by which an agent runs for as long as it likes (LIB-4).

    from perdure.integrations.pydantic_ai import PerdureCapability

    async with Session.create(".", settings={"window_tokens": 60_000}) as session:
        agent = Agent("openai:gpt-5.5", capabilities=[PerdureCapability(session)])
        result = await agent.run("…", usage_limits=UsageLimits(request_limit=None))

A capability is for one conversation; for several, give each run its own: `agent.run(…, capabilities=[…])`.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import anyio.to_thread
from pydantic_ai import ModelContextWindowExceededError, RunContext, Tool
from pydantic_ai import exceptions as pydantic_errors
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import (
    BinaryContent,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    RetryPromptPart,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AgentToolset, FunctionToolset
from pydantic_core import SchemaValidator, core_schema

from perdure import sync
from perdure.engine.follow import ShownHistory, ShownMessage
from perdure.engine.tools import recall_tool
from perdure.errors import PromptTooLong
from perdure.face.session import Session
from perdure.transcript.blocks import IMAGE_TYPES, NAME_CHARACTERS, sendable_id
from perdure.transcript.messages import Usage

# Some versions prepare each attempt at a request, and ask again for who raises this; before them (2.62) a request is
# prepared once, and whoever wants it asked again asks.
_ASK_AGAIN: type[Exception] | None = getattr(pydantic_errors, "RetryModelRequest", None)

Json = dict[str, Any]
D = TypeVar("D")


@dataclass
class PerdureCapability(AbstractCapability[Any]):
    """Keeps what the model is sent within its window, however long the conversation is.

    Old results of tools are shortened, and when that isn't enough, what is old is compacted into a record. Everything
    stays in the session, from which the model gets back what it needs by the tool `recall`.

    Args:
        session: where the conversation is kept, open for as long as the agent runs; of `perdure`, or of `perdure.sync`
            for `run_sync`.
        persistent: whether the run's own history is shortened as well, so that `all_messages()` stays small; else each
            request is.
        recall: whether the model is offered the tool `recall`.

    Example:
        capability = PerdureCapability(session, persistent=True)
    """

    session: Session | sync.Session
    persistent: bool = False
    recall: bool = True
    _usage: Usage | None = field(default=None, init=False)

    def get_toolset(self) -> AgentToolset[Any] | None:
        """The tool `recall`, if the model is to have it."""
        return FunctionToolset([self._recall_tool()]) if self.recall else None

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Shorten the run's own history, if it is to be."""
        if not self.persistent:
            return request_context if _ASK_AGAIN is not None else await self._shaped(request_context)
        messages = list(request_context.messages)
        shown = await self._follow(request_context, messages)
        if not shown.is_changed:
            return request_context
        kept = list(_shown(shown, messages))
        ctx.messages[:] = kept
        await self._call("rebase", _plain(kept))
        return replace(request_context, messages=kept)

    async def prepare_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Have the model see what fits, where each attempt is prepared."""
        return request_context if _ASK_AGAIN is None else await self._shaped(request_context)

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """Hear what the request really took."""
        used = response.usage
        if used.input_tokens:
            read, written = used.cache_read_tokens, used.cache_write_tokens
            self._usage = Usage(max(0, used.input_tokens - read - written), used.output_tokens, read, written)
        return response

    async def on_model_request_error(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, error: Exception
    ) -> ModelResponse:
        """Compact, and ask again, where the model finds the request too long all the same."""
        if getattr(request_context, "attempt", 1) == 1:
            is_smaller = await self._call("refused", error)
            if not is_smaller and isinstance(error, ModelContextWindowExceededError):
                is_smaller = await self._call("refused", PromptTooLong(str(error)))
            if is_smaller and _ASK_AGAIN is not None:
                raise _ASK_AGAIN
            if is_smaller:
                again = await self._shaped(request_context)
                asked = again.model_request_parameters
                return await again.model.request(again.messages, again.model_settings, asked)
        raise error

    async def _shaped(self, request: ModelRequestContext) -> ModelRequestContext:
        messages = list(request.messages)
        shown = await self._follow(request, messages)
        return replace(request, messages=list(_shown(shown, messages))) if shown.is_changed else request

    async def _follow(self, request: ModelRequestContext, messages: Sequence[ModelMessage]) -> ShownHistory:
        asked = request.model_request_parameters
        instructions = [part.content for part in asked.instruction_parts or ()]
        system = [*instructions, *(part.content for part in _parts(messages) if isinstance(part, SystemPromptPart))]
        tools = [_definition(tool) for tool in (*asked.function_tools, *asked.output_tools)]
        await self._call("set_prefix", model=request.model.model_name, system=system, tools=tools)
        usage, self._usage = self._usage, None
        await self._call("follow", _plain(messages), usage=usage)
        shown: ShownHistory = await self._call("shown", "anthropic")
        return shown

    async def _call(self, name: str, *given: Any, **named: Any) -> Any:
        method: Callable[..., Any] = partial(getattr(self.session, name), *given, **named)
        if isinstance(self.session, Session):
            return await method()
        return await anyio.to_thread.run_sync(method)

    def _recall_tool(self) -> Tool[Any]:
        async def recall(**arguments: Any) -> str:
            if isinstance(self.session, Session):
                return await recall_tool.run(self.session, arguments)
            return await anyio.to_thread.run_sync(sync.recall_tool.run, self.session, arguments)

        definition = recall_tool.definition
        tool = Tool.from_schema(recall, definition["name"], definition["description"], definition["input_schema"])
        # It checks nothing by itself: a list of arguments, which a model may make, would end the run.
        tool.function_schema.validator = SchemaValidator(core_schema.dict_schema(core_schema.str_schema()))
        return tool


def _definition(tool: ToolDefinition) -> Json:
    described = {"description": tool.description} if tool.description else {}
    return {"name": tool.name, **described, "input_schema": tool.parameters_json_schema}


# --- Pydantic AI's messages, and plain ones ---------------------------------------------------------------------------


def _parts(messages: Sequence[ModelMessage]) -> Iterator[ModelRequestPart]:
    return (part for message in messages if isinstance(message, ModelRequest) for part in message.parts)


def _plain(messages: Sequence[ModelMessage]) -> list[Json]:
    """The messages in Anthropic's words, one for each; instructions and system prompts are the prefix."""
    return [_plain_one(message) for message in messages]


def _plain_one(message: ModelMessage) -> Json:
    if isinstance(message, ModelRequest):
        blocks = [block for part in message.parts for block in _of_request(part)]
        results = [block for block in blocks if block["type"] == "tool_result"]
        return {"role": "user", "content": [*results, *(block for block in blocks if block["type"] != "tool_result")]}
    said: list[Json] = []
    for part in message.parts:
        if isinstance(part, TextPart):
            said.append(_text(part.content))
        elif isinstance(part, ToolCallPart):
            said.append({"type": "tool_use", "id": _id(part), "name": _name(part), "input": _arguments(part)})
    return {"role": "assistant", "content": said}


def _of_request(part: ModelRequestPart) -> Iterator[Json]:
    if isinstance(part, ToolReturnPart):
        yield _result(_id(part), part.model_response_str(), is_error=part.outcome != "success")
    elif isinstance(part, RetryPromptPart) and part.tool_name is not None:
        yield _result(_id(part), part.model_response(), is_error=True)
    elif isinstance(part, UserPromptPart):
        contents = [part.content] if isinstance(part.content, str) else part.content
        yield from (_content(one) for one in contents)
    elif not isinstance(part, SystemPromptPart):
        yield _text(_words_of(part))


def _id(part: ToolCallPart | ToolReturnPart | RetryPromptPart) -> str:
    """The id of a call as every API takes it; some servers make ids such as `functions.read:0`."""
    return sendable_id(part.tool_call_id) or "unknown"


def _name(part: ToolCallPart) -> str:
    return part.tool_name[:NAME_CHARACTERS] or "unknown"


def _arguments(part: ToolCallPart) -> Json:
    """The arguments of a call; numbers that JSON doesn't have, as Python's reader takes them, are texts."""
    given = part.args
    if isinstance(given, str) and ("NaN" in given or "Infinity" in given):
        with suppress(ValueError, RecursionError):
            if isinstance(found := json.loads(given, parse_constant=str), dict):
                return found
    return part.args_as_dict()


def _words_of(part: ModelRequestPart) -> str:
    """Words for a part that only Pydantic AI knows how to say."""
    return part.model_response() if isinstance(part, RetryPromptPart) else str(getattr(part, "content", part.part_kind))


def _result(call: str, content: str, *, is_error: bool) -> Json:
    return {"type": "tool_result", "tool_use_id": call, "content": content, **({"is_error": True} if is_error else {})}


def _content(one: UserContent) -> Json:
    if isinstance(one, str):
        return _text(one)
    if isinstance(one, BinaryContent) and one.is_image:
        if one.media_type in IMAGE_TYPES and one.data:
            source = {"type": "base64", "media_type": one.media_type, "data": one.base64}
            return {"type": "image", "source": source}
        return _text(f"[a picture: {one.media_type}]")
    if isinstance(one, ImageUrl):
        return {"type": "image", "source": {"type": "url", "url": one.url}}
    return _text(f"[{type(one).__name__}: {getattr(one, 'url', getattr(one, 'identifier', ''))}]")


def _text(words: str) -> Json:
    return {"type": "text", "text": words}


def _shown(shown: ShownHistory, given: Sequence[ModelMessage]) -> Iterator[ModelMessage]:
    """What the model is to see: the run's own messages, copies of them where they changed, and words of ours."""
    for one in shown.messages:
        own = [given[place] for place in one.given]
        yield from own if one.is_as_given else _changed(one, own)


def _changed(one: ShownMessage, own: Sequence[ModelMessage]) -> Iterator[ModelMessage]:
    for data in one.data:
        blocks = [_text(data["content"])] if isinstance(data["content"], str) else data["content"]
        if data["role"] == "assistant":
            yield _changed_response(blocks, next((m for m in own if isinstance(m, ModelResponse)), ModelResponse([])))
        else:
            requests = [message for message in own if isinstance(message, ModelRequest)]
            kept = requests[-1] if requests else ModelRequest([])
            yield replace(kept, parts=list(_request_parts(blocks, list(_parts(requests)))))


def _request_parts(blocks: Sequence[Json], own: Sequence[ModelRequestPart]) -> Iterator[ModelRequestPart]:
    """The parts of a request, as much as possible its own: results with what is shown of them, and what was said."""
    returns = [part for part in own if isinstance(part, ToolReturnPart | RetryPromptPart) and part.tool_name]
    others = [part for part in own if part not in returns and not isinstance(part, UserPromptPart)]
    yield from others
    for number, block in enumerate(block for block in blocks if block["type"] == "tool_result"):
        text = _words(block.get("content", ""))
        like: Any = returns[number] if number < len(returns) else ToolReturnPart("unknown", "")
        is_same = isinstance(like, ToolReturnPart) and like.model_response_str() == text
        yield replace(like, tool_call_id=_own_id(like, block["tool_use_id"]), **({} if is_same else {"content": text}))
    known = {_words_of(part) for part in others}
    said: list[UserContent] = []
    for block in blocks:
        source = block.get("source") or {}
        if block["type"] == "text" and block["text"] not in known:
            said.append(block["text"])
        elif block["type"] == "image" and source["type"] == "base64":
            said.append(BinaryContent(b64decode(source["data"]), media_type=source["media_type"]))
        elif block["type"] == "image":
            said.append(ImageUrl(source["url"]))
    if said:
        yield UserPromptPart(said[0] if len(said) == 1 and isinstance(said[0], str) else said)


def _changed_response(blocks: Sequence[Json], own: ModelResponse) -> ModelResponse:
    """An answer with what is shown of its texts and calls; thinking and what else it has stay."""
    uses = iter([block for block in blocks if block["type"] == "tool_use"])
    texts = iter([block["text"] for block in blocks if block["type"] == "text"])
    parts: list[Any] = []
    for part in own.parts:
        if isinstance(part, ToolCallPart):
            use = next(uses, None)
            parts += [] if use is None else [replace(part, tool_call_id=_own_id(part, use["id"]), args=use["input"])]
        elif isinstance(part, TextPart):
            text = next(texts, None)
            parts += [] if text is None else [replace(part, content=text)]
        else:
            parts.append(part)
    parts += [TextPart(text) for text in texts]
    parts += [ToolCallPart(use["name"], use["input"], use["id"]) for use in uses]
    return replace(own, parts=parts)


def _own_id(part: Any, shown: str) -> str:
    """The id of a part, unless it came twice, and is shown as one of our own."""
    return str(part.tool_call_id) if _id(part) == shown else shown


def _words(content: Any) -> str:
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)
