"""Tools and items as any provider's API gives or takes them (LIB-10)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import anyio
import pytest

from perdure import Session
from perdure.adapters.providers.openai import OpenAIReplyBuilder
from perdure.context.replies import Reply
from perdure.errors import RecordRefused
from perdure.testing import ScriptedModel, check_anthropic, check_openai, check_responses

pytestmark = pytest.mark.unit

CHECKS: Any = {"anthropic": check_anthropic, "openai": check_openai, "responses": check_responses}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}

TOOLS: dict[str, dict[str, Any]] = {
    "Anthropic's": {"name": "weather", "description": "The weather.", "input_schema": SCHEMA},
    "Anthropic's, with its type": {"type": "custom", "name": "weather", "input_schema": SCHEMA},
    "Chat's": {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}},
    "flat": {
        "type": "function",
        "name": "weather",
        "description": "The weather.",
        "parameters": SCHEMA,
        "strict": True,
    },
    "flat, no parameters": {"type": "function", "name": "weather"},
    "Chat's custom": {"type": "custom", "custom": {"name": "weather", "format": {"type": "text"}}},
    "flat custom": {"type": "custom", "name": "weather", "description": "The weather.", "format": GRAMMAR},
}
OF_ONE_API = {
    "web_search": ("responses", {"type": "web_search", "search_context_size": "low"}),
    "mcp": ("responses", {"type": "mcp", "server_label": "docs", "server_url": "https://example.org"}),
    "web_search_20250305": ("anthropic", {"type": "web_search_20250305", "name": "web_search"}),
}


@pytest.mark.parametrize("protocol", CHECKS)
@pytest.mark.parametrize("tool", TOOLS.values(), ids=TOOLS)
def test_a_tool_of_any_api_goes_to_each(tool: dict[str, Any], protocol: Any) -> None:
    """Finding L2: flat, wrapped and custom definitions are taken, and said in the words of whoever is asked."""

    async def main() -> None:
        async with Session.in_memory() as session:
            await session.set_prefix(model="m", tools=[tool])
            await session.append("Weather?")
            request = (await session.prepare(protocol)).data
        assert CHECKS[protocol](request) == [] and len(request["tools"]) == 1
        assert "weather" in json.dumps(request["tools"])
        if protocol == "responses" and "name" in tool and "input_schema" not in tool:
            assert request["tools"] == [tool]

    anyio.run(main)


@pytest.mark.parametrize("kind", OF_ONE_API)
def test_a_tool_that_an_api_does_not_know_is_refused_by_name(kind: str) -> None:
    """Finding L2: it isn't left out of a request without a word; the API that knows it gets it as it is."""
    home, tool = OF_ONE_API[kind]

    async def main() -> None:
        async with Session.in_memory() as session:
            await session.set_prefix(model="m", tools=[TOOLS["flat"], tool])
            await session.append("Weather?")
            sent = (await session.prepare(home)).data["tools"][1]  # type: ignore[arg-type]
            assert tool.items() <= sent.items()
            for protocol in CHECKS.keys() - {home}:
                with pytest.raises(RecordRefused, match=rf"tools\[1\] \({kind}\) is unknown to .*: ask another API"):
                    await session.prepare(protocol)
            before = len(session.view.items)
            with pytest.raises(RecordRefused, match="unknown to Chat Completions"):
                await session.run("And now?", ScriptedModel(["Rain."], protocol="openai"))
            assert len(session.view.items) == before

    anyio.run(main)


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ({"type": "custom", "name": "weather", "input_shema": SCHEMA}, "did you mean input_schema?"),
        ({"type": "function", "name": "weather", "paramters": SCHEMA}, "did you mean parameters?"),
        ({"name": "weather", "parameters": SCHEMA}, "OpenAI's tools say what they are"),
        ({"type": "function", "parameters": SCHEMA}, "OpenAI's tools say what they are"),
        (
            {"type": "function", "name": "weather", "parameters": {"type": "string"}},
            "parameters is missing, or no JSON",
        ),
    ],
)
def test_a_slip_in_a_tool_is_still_said(tool: dict[str, Any], words: str) -> None:
    """LIB-10: what no API would take is refused where it is given."""

    async def main() -> None:
        async with Session.in_memory() as session:
            with pytest.raises(RecordRefused) as refused:
                await session.set_prefix(model="m", tools=[tool])
            assert words in str(refused.value)
            assert session.view.front is None

    asyncio.run(main())


CUSTOM_CALL = {"id": "call_1", "type": "custom", "custom": {"name": "weather", "input": '{"a": 1} and more'}}
CUSTOM_ITEM = {"type": "custom_tool_call", "call_id": "call_1", "name": "weather", "input": '{"a": 1} and more'}
CHAT = {
    "id": "c1",
    "object": "chat.completion",
    "model": "m",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "message": {"role": "assistant", "content": None, "tool_calls": [CUSTOM_CALL]},
        }
    ],
}
RESPONSE = {"id": "r1", "object": "response", "status": "completed", "model": "m", "output": [CUSTOM_ITEM]}


def _streamed() -> list[dict[str, Any]]:
    """The same answer in pieces, as Chat Completions streams it."""
    begun = {"index": 0, "id": "call_1", "type": "custom", "custom": {"name": "weather", "input": '{"a": 1}'}}
    more = {"index": 0, "custom": {"input": " and more"}}
    deltas = [{"choices": [{"index": 0, "delta": {"tool_calls": [one]}}]} for one in (begun, more)]
    return [*deltas, {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}]


def _built() -> list[dict[str, Any]]:
    builder = OpenAIReplyBuilder("m")
    for chunk in _streamed():
        list(builder.feed(chunk))
    reply = next(one for one in builder.finish() if isinstance(one, Reply))
    return [json.loads(block.raw) for block in reply.blocks]


@pytest.mark.parametrize("given", [CHAT, RESPONSE, CUSTOM_ITEM, {"role": "assistant", "content": _built()}])
def test_a_call_of_a_custom_tool_goes_round(given: dict[str, Any]) -> None:
    """Finding L2: its text stays a text, whoever made the call, and is said in each API's own way."""

    async def main() -> None:
        async with Session.in_memory() as session:
            await session.set_prefix(model="m", tools=[TOOLS["flat custom"]])
            await session.append("Weather?", given)
            (call,) = session.open_calls()
            assert call.input == {"input": '{"a": 1} and more'}
            await session.append({"role": "tool", "tool_call_id": "call_1", "content": "rain"})
            data = {protocol: (await session.prepare(protocol)).data for protocol in CHECKS}
        for protocol, request in data.items():
            assert CHECKS[protocol](request) == []
        assert data["openai"]["messages"][1]["tool_calls"] == [CUSTOM_CALL]
        kinds = [(one.get("type"), one.get("input") or one.get("output")) for one in data["responses"]["input"][1:]]
        assert kinds == [("custom_tool_call", CUSTOM_ITEM["input"]), ("custom_tool_call_output", "rain")]
        assert data["anthropic"]["messages"][1]["content"][0]["input"] == call.input

    anyio.run(main)


ITEMS: list[dict[str, Any]] = [
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "Oslo"}},
    {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "docs", "tools": []},
    {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "aGk="},
    {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "Rain."}]},
]


def test_items_of_any_kind_are_taken_one_by_one() -> None:
    """LIB-10: what a response holds may be appended item by item, and goes up again as it came."""

    async def main() -> None:
        async with Session.in_memory() as session:
            await session.set_prefix(model="m")
            await session.append("Weather?")
            for item in ITEMS:
                await session.append(item)
            await session.append("And now?")
            request = (await session.prepare("responses")).data
            for protocol in CHECKS:
                assert CHECKS[protocol]((await session.prepare(protocol)).data) == []
            for unknown in ({"type": "item_reference", "id": "ws_1"}, {"type": "mesage", "content": "x"}):
                with pytest.raises(RecordRefused):
                    await session.append(unknown)
        assert [one["type"] for one in request["input"][1:-1]] == [one["type"] for one in ITEMS]

    anyio.run(main)
