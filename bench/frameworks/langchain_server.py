"""A chat model of LangChain's whose server is the fake one, asked in Chat Completions: its own client isn't needed."""

from __future__ import annotations

from typing import Any

import msgspec
from langchain_core.exceptions import ContextOverflowError
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, convert_to_openai_messages
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.utils.function_calling import convert_to_openai_tool

from perdure.testing import UpstreamError
from perdure.testing.openai_rules import respond_to_chat


class ServerModel(BaseChatModel):
    """Asks `upstream`; a prompt that is too long is an error of the type `overflow`."""

    upstream: Any
    model_name: str = "fake"
    tools: Any = ()
    overflow: type[Exception] = ContextOverflowError

    @property
    def _llm_type(self) -> str:
        return "server"

    def bind_tools(self, tools: Any, **more: Any) -> Runnable[Any, Any]:
        return self.model_copy(update={"tools": [convert_to_openai_tool(tool) for tool in tools]})

    def _generate(self, messages: list[BaseMessage], *args: Any, **more: Any) -> ChatResult:
        said = convert_to_openai_messages(messages)
        for one in said:
            one.pop("name", None)  # as LangChain's own client leaves it out
        body = {"model": "fake", "max_completion_tokens": 500, "messages": said, "tools": self.tools}
        try:
            reply = respond_to_chat(self.upstream, msgspec.json.encode(body), session="one")
        except UpstreamError as e:
            raise (self.overflow(e.message) if "too long" in e.message else e) from None
        text = "".join(block["text"] for block in reply.content if block["type"] == "text")
        uses = [block for block in reply.content if block["type"] == "tool_use"]
        calls = [{"id": use["id"], "name": use["name"], "args": use["input"]} for use in uses]
        read, written = reply.usage.cache_read_input_tokens, reply.usage.cache_creation_input_tokens
        prompt = reply.usage.input_tokens + read + written
        used: Any = {
            "input_tokens": prompt,
            "output_tokens": reply.usage.output_tokens,
            "total_tokens": prompt + reply.usage.output_tokens,
            "input_token_details": {"cache_read": read, "cache_creation": written},
        }
        answer = AIMessage(text, tool_calls=calls, usage_metadata=used)
        return ChatResult(generations=[ChatGeneration(message=answer)])
