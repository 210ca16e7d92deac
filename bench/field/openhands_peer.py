"""OpenHands' `LLMSummarizingCondenser`, as its default agent sizes it (80 events) and by tokens."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

from loop import SUMMARISER, Part, Peer, Said, call_text, main

os.environ.update(LITELLM_LOCAL_MODEL_COST_MAP="True", OPENHANDS_SUPPRESS_BANNER="1")

from litellm.types.utils import ModelResponse
from openhands.sdk.context.condenser import LLMSummarizingCondenser
from openhands.sdk.context.view import View
from openhands.sdk.event import ActionEvent, Condensation, LLMConvertibleEvent, MessageEvent, ObservationEvent
from openhands.sdk.llm import LLM, LLMResponse, Message, MessageToolCall, TextContent
from openhands.sdk.llm.utils.metrics import MetricsSnapshot
from openhands.sdk.tool import Observation


class Result(Observation):
    """What a tool said."""


class ScriptedModel(LLM):
    """Writes summaries with the scripted summariser, and counts tokens as a fourth of the characters."""

    def completion(self, messages: list[Any], *given: Any, **more: Any) -> LLMResponse:
        text = SUMMARISER("\n".join(part.text for message in messages for part in message.content))
        said = Message(role="assistant", content=[TextContent(text=text)])
        return LLMResponse(message=said, metrics=MetricsSnapshot(), raw_response=ModelResponse())

    def get_token_count(self, messages: list[Any], *given: Any, **more: Any) -> int:
        texts = [part.text for message in messages for part in message.content]
        texts += [call.arguments for message in messages for call in message.tool_calls or ()]
        return sum(map(len, texts)) // 4


class Condensed(Peer):
    """A view of events; a condensation is appended to it as the conversation does, and the next view condensed anew."""

    def __init__(self, script: Mapping[str, Any], **how: Any) -> None:
        super().__init__(script)
        self.model = ScriptedModel(model="openai/bench", api_key="none", usage_id="bench")
        self.condenser = LLMSummarizingCondenser(llm=self.model, **how)
        self.view = View()
        self.actions: dict[str, str] = {}
        self.answers = 0

    def made(self, said: Said) -> list[Any]:
        if said["role"] == "tool":
            observation = Result(content=[TextContent(text=said["text"])], is_error=said["is_error"])
            return [
                ObservationEvent(
                    observation=observation,
                    action_id=self.actions[said["id"]],
                    tool_name=said["name"],
                    tool_call_id=said["id"],
                )
            ]
        text = [TextContent(text=said["text"])] if said["text"] else []
        if said["role"] == "user":
            return [MessageEvent(source="user", llm_message=Message(role="user", content=text))]
        self.answers += 1
        if not said["calls"]:
            return [MessageEvent(source="agent", llm_message=Message(role="assistant", content=text))]
        events: list[Any] = []
        for call in said["calls"]:
            arguments = json.dumps(call["arguments"])
            event = ActionEvent(
                thought=[] if events else text,
                action=None,
                tool_name=call["name"],
                tool_call_id=call["id"],
                tool_call=MessageToolCall(id=call["id"], name=call["name"], arguments=arguments, origin="completion"),
                llm_response_id=f"answer_{self.answers}",
            )
            self.actions[call["id"]] = event.id
            events.append(event)
        return events

    def add(self, made: list[Any]) -> None:
        for event in made:
            self.view.append_event(event)

    def prepared(self) -> Any:
        while isinstance(done := self.condenser.condense(self.view, agent_llm=self.model), Condensation):
            self.view.append_event(done)
        return LLMConvertibleEvent.events_to_messages(done.events)

    def parts(self, request: Any) -> Iterator[Part]:
        for message in request:
            text = "".join(part.text for part in message.content)
            if message.role == "tool":
                yield Part("result", text, message.tool_call_id)
                continue
            if text:
                yield Part(message.role, text)
            for call in message.tool_calls or ():
                yield Part("call", call_text({"name": call.name, "arguments": json.loads(call.arguments)}), call.id)


if __name__ == "__main__":
    main(
        {
            "condenser, default": lambda script: Condensed(script, max_size=80, keep_first=4),
            "condenser, by tokens": lambda script: Condensed(
                script, max_size=10_000, keep_first=4, max_tokens=int(script["window"] * 0.8)
            ),
        }
    )
