"""LangChain's `trim_messages`, `SummarizationMiddleware` and `ContextEditingMiddleware`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from uuid import uuid4

from langchain.agents.middleware import (
    ClearToolUsesEdit,
    ContextEditingMiddleware,
    ModelRequest,
    ModelResponse,
    SummarizationMiddleware,
)
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage, get_buffer_string, trim_messages
from langchain_core.messages.utils import count_tokens_approximately
from langgraph.graph.message import add_messages
from loop import SUMMARISER, Part, Peer, Said, call_text, main

MODEL = FakeListChatModel(responses=["not asked"])


class LangChain(Peer):
    """A history as the graph's state holds it."""

    def __init__(self, script: Mapping[str, Any]) -> None:
        super().__init__(script)
        self.history: list[Any] = []

    def made(self, said: Said) -> list[Any]:
        if said["role"] == "user":
            return [HumanMessage(said["text"], id=str(uuid4()))]
        if said["role"] == "tool":
            return [ToolMessage(said["text"], tool_call_id=said["id"], name=said["name"], id=str(uuid4()))]
        calls = [{"id": call["id"], "name": call["name"], "args": call["arguments"]} for call in said["calls"]]
        answer = AIMessage(said["text"], tool_calls=calls, id=str(uuid4()))
        if prompt := said["prompt_tokens"]:
            output = said["output_tokens"]
            answer.usage_metadata = {
                "input_tokens": prompt,
                "output_tokens": output,
                "total_tokens": prompt + output,
            }
        return [answer]

    def add(self, made: list[Any]) -> None:
        self.history += made

    def parts(self, request: Any) -> Iterator[Part]:
        for message in request:
            text = message.text if isinstance(message.text, str) else message.text()
            if message.type == "tool":
                yield Part("result", text, message.tool_call_id)
            else:
                if text:
                    yield Part("assistant" if message.type == "ai" else "user", text)
                for call in getattr(message, "tool_calls", ()):
                    yield Part("call", call_text({"name": call["name"], "arguments": call["args"]}), call["id"])


class Trim(LangChain):
    """`trim_messages` before each call; nothing is stored."""

    is_stateless = True

    def __init__(self, script: Mapping[str, Any], **how: Any) -> None:
        super().__init__(script)
        self.how = {"strategy": "last", "token_counter": count_tokens_approximately, **how}
        self.most = int(self.window * 0.8)

    def prepared(self) -> Any:
        return trim_messages(self.history, max_tokens=self.most, **self.how)


class Summarize(LangChain):
    """`SummarizationMiddleware`; what it returns goes into the state as the graph's reducer does it."""

    def __init__(self, script: Mapping[str, Any], **how: Any) -> None:
        super().__init__(script)
        self.middleware = SummarizationMiddleware(
            MODEL,
            trigger=("tokens", int(self.window * 0.8)),
            summarizer=lambda messages: SUMMARISER(get_buffer_string(messages)),
            **how,
        )

    def prepared(self) -> Any:
        update = self.middleware.before_model({"messages": self.history}, None)  # type: ignore[arg-type]
        if update is not None:
            self.history = add_messages(self.history, update["messages"])
        return list(self.history)


class Edit(LangChain):
    """`ContextEditingMiddleware`; what it edits isn't stored."""

    is_stateless = True

    def __init__(self, script: Mapping[str, Any], edit: ClearToolUsesEdit | None = None) -> None:
        super().__init__(script)
        self.middleware = ContextEditingMiddleware(edits=None if edit is None else [edit])

    def prepared(self) -> Any:
        sent: list[Any] = []

        def handler(request: ModelRequest[Any]) -> ModelResponse[Any]:
            sent.extend(request.messages)
            return ModelResponse(result=[AIMessage("not asked")])

        state: Any = {"messages": self.history}
        self.middleware.wrap_model_call(ModelRequest(model=MODEL, messages=self.history, state=state), handler)
        return sent


if __name__ == "__main__":
    main(
        {
            "trim, default": Trim,
            "trim, documented": lambda script: Trim(script, start_on="human", end_on=("human", "tool")),
            "summarise, default": Summarize,
            "summarise, whole": lambda script: Summarize(
                script, trim_tokens_to_summarize=None, keep=("tokens", script["window"] // 10)
            ),
            "clear, default": Edit,
            "clear, scaled": lambda script: Edit(
                script, ClearToolUsesEdit(trigger=script["window"] // 2, clear_at_least=script["window"] // 10)
            ),
        }
    )
