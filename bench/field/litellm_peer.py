"""LiteLLM's `trim_messages` and `compress`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

from loop import Part, Peer, Said, call_text, main

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # without it the import asks the network

from litellm.compression import compress
from litellm.utils import trim_messages

MODEL = "claude-sonnet-4-5"  # chooses the counter of tokens


class LiteLLM(Peer):
    """The messages of a caller who keeps all of them."""

    is_stateless = True

    def __init__(self, script: Mapping[str, Any]) -> None:
        super().__init__(script)
        self.history: list[Any] = []

    def made(self, said: Said) -> list[Any]:
        if said["role"] == "user":
            return [{"role": "user", "content": said["text"]}]
        if said["role"] == "tool":
            return [{"role": "tool", "tool_call_id": said["id"], "content": said["text"]}]
        message: dict[str, Any] = {"role": "assistant", "content": said["text"]}
        if said["calls"]:
            message["tool_calls"] = [
                {
                    "id": call["id"],
                    "type": "function",
                    "function": {"name": call["name"], "arguments": json.dumps(call["arguments"])},
                }
                for call in said["calls"]
            ]
        return [message]

    def add(self, made: list[Any]) -> None:
        self.history += made

    def parts(self, request: Any) -> Iterator[Part]:
        for message in request:
            content = message.get("content") or ""
            text = content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)
            if message["role"] == "tool":
                yield Part("result", text, message["tool_call_id"])
                continue
            if text:
                yield Part(message["role"], text)
            for call in message.get("tool_calls") or ():
                called = call["function"]
                arguments = json.loads(called["arguments"])
                yield Part("call", call_text({"name": called["name"], "arguments": arguments}), call["id"])


class Trim(LiteLLM):
    """To 75 % of the window, its default ratio."""

    def prepared(self) -> Any:
        return trim_messages(list(self.history), max_tokens=int(self.window * 0.75))


class Compress(LiteLLM):
    """`compress` before each call."""

    def __init__(self, script: Mapping[str, Any], trigger: int | None = None) -> None:
        super().__init__(script)
        self.how = {} if trigger is None else {"compression_trigger": trigger}

    def prepared(self) -> Any:
        return compress(self.history, MODEL, **self.how)["messages"]


if __name__ == "__main__":
    main(
        {
            "trim": Trim,
            "compress, default": Compress,
            "compress, scaled": lambda script: Compress(script, trigger=int(script["window"] * 0.8)),
        }
    )
