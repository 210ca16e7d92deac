"""Models that there are without a key and without a network: they say so (LIB-3)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from secrets import token_hex
from typing import Any

import msgspec

from perdure.context.replies import BlockDone, Delta, ModelInfo, Reply, ReplyStarted, TextDelta, ToolInputDelta
from perdure.context.request import ModelRequest
from perdure.transcript.blocks import Block, encode, text_block
from perdure.transcript.messages import ResponseId

SAYS = (
    "No language model is set up, so this is Perdure itself answering, offline. Your message is kept in the session, "
    "for when there is one: set ANTHROPIC_API_KEY or OPENAI_API_KEY, or name a local model, for example with "
    "PERDURE_MAIN_MODELS=ollama:qwen3. Compaction, search, recall and replay work without one."
)


class OfflineModel:
    """`ports.Model` that answers every request with the same words. It reports no usage, since it reads nothing."""

    def __init__(self, says: str = SAYS) -> None:
        self._says = says
        self._count = 0

    @property
    def about(self) -> ModelInfo:
        return ModelInfo(id="offline", protocol="anthropic")

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply, None]:
        self._count += 1
        response, block = ResponseId(f"offline-{self._count}"), text_block(self._says)
        yield ReplyStarted(response)
        yield TextDelta(0, self._says)
        yield BlockDone(0, block)
        yield Reply(response=response, model="offline", blocks=(block,), stop_reason="end_turn")

    async def count(self, request: ModelRequest) -> int | None:
        return None

    async def close(self) -> None:
        pass


ORDERS = (
    "Until then this is a demonstration that understands five commands: `read FILE`, `find WORD`, `files GLOB`, "
    "`write FILE TEXT` and `run COMMAND`. They call the agent's real tools, with its real permissions. In a chat, "
    "/context shows what fills the window, /compact makes room, and /help lists the rest."
)
_DID = "That was the tool's answer. (I am Perdure's demonstration, not a language model.)"


class DemonstrationModel:
    """`ports.Model` that follows a few orders and otherwise says what it is. It reports no usage."""

    def __init__(self) -> None:
        self._count, self._run = 0, token_hex(4)  # ids are told apart from those of an earlier run

    @property
    def about(self) -> ModelInfo:
        return ModelInfo(id="offline", protocol="anthropic")

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply, None]:
        self._count += 1
        fields = msgspec.json.decode(request.body)
        tools = {tool.get("name") for tool in fields.get("tools", ())}
        call = _ordered(_last(fields["messages"]), tools)
        response = ResponseId(f"offline-{self._run}-{self._count}")
        yield ReplyStarted(response)
        if isinstance(call, str):
            block = text_block(call)
            yield TextDelta(0, call)
        else:
            name, given = call
            value = {"type": "tool_use", "id": f"toolu_{response}", "name": name, "input": given}
            block = Block(encode(value))
            yield ToolInputDelta(0, name, "")
        yield BlockDone(0, block)
        stop = "end_turn" if isinstance(call, str) else "tool_use"
        yield Reply(response=response, model="offline", blocks=(block,), stop_reason=stop)

    async def count(self, request: ModelRequest) -> int | None:
        return None

    async def close(self) -> None:
        pass


def _last(messages: list[dict[str, Any]]) -> str | None:
    """What was said last by a person; None when the last thing was the result of a tool."""
    content = messages[-1]["content"]
    if isinstance(content, str):
        return content
    if any(block.get("type") == "tool_result" for block in content):
        return None
    texts = [str(block.get("text", "")) for block in content if block.get("type") == "text"]
    return texts[-1] if texts else ""


def _ordered(said: str | None, tools: set[str | None]) -> str | tuple[str, dict[str, Any]]:
    """The answer, or the tool that an order means with its input."""
    if said is None:
        return _DID
    order, _, rest = said.strip().partition(" ")
    rest = rest.strip()
    name, _, text = rest.partition(" ")
    found: dict[str, tuple[str, dict[str, Any]]] = {
        "read": ("Read", {"file_path": rest}),
        "find": ("Grep", {"pattern": rest, "output_mode": "content"}),
        "files": ("Glob", {"pattern": rest}),
        "write": ("Write", {"file_path": name, "content": text + "\n"}),
        "run": ("Bash", {"command": rest}),
    }
    call = found.get(order.lower())
    if call is None or not rest or call[0] not in tools:
        return f"{SAYS}\n\n{ORDERS}"
    return call
