"""pydantic-ai-harness: clearing, summarising, and both in tiers as its README recommends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from loop import SUMMARISER, Loop, Part, Peer, Said, call_text, main
from pydantic_ai import RunContext
from pydantic_ai.messages import (
    CompactionPart,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestContext, ModelRequestParameters
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage, RunUsage
from pydantic_ai_harness.compaction import (
    ClearToolResults,
    DeduplicateFileReads,
    SlidingWindowCompaction,
    SummarizingCompaction,
    TieredCompaction,
)

WAIT = Loop()


def summary(messages: list[Any], info: AgentInfo) -> ModelResponse:
    """What the model of a summary gets, handed to the scripted summariser."""
    texts = [part.content for message in messages for part in message.parts if isinstance(part, UserPromptPart)]
    return ModelResponse(parts=[TextPart(SUMMARISER("\n".join(map(str, texts))))])


MODEL = FunctionModel(summary)


class Harness(Peer):
    """A history as a run holds it; a capability's hook is called before each request, as the agent does it."""

    def __init__(self, script: Mapping[str, Any], capability: Any) -> None:
        super().__init__(script)
        self.capability = capability
        self.context: Any = RunContext(deps=None, model=MODEL, usage=RunUsage(), messages=[])

    def made(self, said: Said) -> list[Any]:
        if said["role"] == "user":
            return [ModelRequest(parts=[UserPromptPart(said["text"])])]
        if said["role"] == "tool":
            return [ModelRequest(parts=[ToolReturnPart(said["name"], said["text"], said["id"])])]
        parts: list[Any] = [TextPart(said["text"])] if said["text"] else []
        parts += [ToolCallPart(call["name"], call["arguments"], call["id"]) for call in said["calls"]]
        usage = RequestUsage(input_tokens=said["prompt_tokens"], output_tokens=said["output_tokens"])
        return [ModelResponse(parts=parts, usage=usage)]

    def add(self, made: list[Any]) -> None:
        self.context.messages += made

    def prepared(self) -> Any:
        messages = self.context.messages
        request = ModelRequestContext(
            model=MODEL,
            messages=list(messages),
            model_settings=None,
            model_request_parameters=ModelRequestParameters(),
        )
        return WAIT(self.capability.before_model_request(self.context, request)).messages

    def parts(self, request: Any) -> Iterator[Part]:
        for message in request:
            for part in message.parts:
                if isinstance(part, ToolReturnPart):
                    yield Part("result", part.model_response_str(), part.tool_call_id)
                elif isinstance(part, ToolCallPart):
                    call = {"name": part.tool_name, "arguments": part.args_as_dict()}
                    yield Part("call", call_text(call), part.tool_call_id)
                elif isinstance(part, TextPart):
                    yield Part("assistant", part.content)
                elif isinstance(part, (UserPromptPart, CompactionPart)):
                    yield Part("user", str(part.content))


def tiered(script: Mapping[str, Any]) -> Harness:
    """The tiers of its README, with its share of a window: 120,000 of 200,000."""
    tiers = [
        DeduplicateFileReads(file_key=read_file),
        ClearToolResults(max_tokens=1, keep_pairs=3),
        SummarizingCompaction(max_messages=1, keep_messages=20),
    ]
    return Harness(script, TieredCompaction(tiers=tiers, target_tokens=int(script["window"] * 0.6)))


def read_file(call: ToolCallPart) -> str | None:
    """Which file a call reads, whole."""
    arguments = call.args_as_dict()
    is_whole = not {"offset", "limit", "view_range"} & arguments.keys()
    path = arguments.get("file_path") or arguments.get("path")
    return str(path) if call.tool_name == "Read" and path and is_whole else None


if __name__ == "__main__":
    main(
        {
            "clear": lambda script: Harness(
                script, ClearToolResults(max_fraction=0.7, context_window=script["window"])
            ),
            "slide": lambda script: Harness(
                script, SlidingWindowCompaction(max_fraction=0.8, context_window=script["window"])
            ),
            "summarise": lambda script: Harness(
                script, SummarizingCompaction(max_fraction=0.8, context_window=script["window"])
            ),
            "tiers, documented": tiered,
        }
    )
