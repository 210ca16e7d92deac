"""The fake upstream's Responses API, met by OpenAI's own SDK (GW-6)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import openai
import pytest
from tests.gateways import in_loop

from perdure.testing import (
    CutStream,
    ErrorInStream,
    FakeServer,
    FakeUpstream,
    ModelRules,
    overloaded,
    rate_limited,
    say,
    thinking,
    tool_use,
)
from perdure.testing.server import HeldStream

pytestmark = pytest.mark.contract

READ: Any = {
    "type": "function",
    "name": "read",
    "description": "reads a file",
    "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
    "strict": False,
}
PATCH: Any = {"type": "custom", "name": "patch", "description": "changes a file"}
BATCH = say(thinking("two files"), "I read both.", tool_use("read", {"path": "a"}), tool_use("read", {"path": "b"}))


@dataclass
class Place:
    client: openai.AsyncOpenAI
    server: FakeServer

    async def create(self, given: Any, **more: Any) -> Any:
        return await self.client.responses.create(model="gpt-6-sol", input=given, **more)

    async def stream(self, given: Any, **more: Any) -> list[Any]:
        stream = await self.client.responses.create(model="gpt-6-sol", input=given, stream=True, **more)
        return [event async for event in stream]

    async def refused(self, given: Any, **more: Any) -> openai.APIStatusError:
        with pytest.raises(openai.APIStatusError) as raised:
            await self.create(given, **more)
        return raised.value

    @property
    def violations(self) -> dict[str, int]:
        return dict(self.server.upstream.statistics.violations)


@asynccontextmanager
async def place(*script: Any, window: int = 200_000, **more: Any) -> AsyncIterator[Place]:
    rules = ModelRules(window_tokens=window, min_cacheable_tokens=1)
    async with (
        FakeServer(FakeUpstream(rules=rules, script=script), **more) as server,
        openai.AsyncOpenAI(api_key="none", base_url=f"{server.url}/v1", max_retries=0) as client,
    ):
        yield Place(client, server)


def said(words: str) -> dict[str, Any]:
    return {"role": "user", "content": words}


def result(call: Any, output: Any = "done") -> dict[str, Any]:
    return {"type": f"{call.type}_output", "call_id": call.call_id, "output": output}


def sent_back(response: Any) -> list[Any]:
    return [item.model_dump(exclude_none=True) for item in response.output]


@in_loop
async def test_a_tool_loop_with_reasoning_whole_and_streamed() -> None:
    """GW-6: reasoning, a text and two calls at once, answered; every event is one that the SDK knows."""
    async with place(BATCH, "Both are empty.") as here:
        events = await here.stream("look", tools=[READ], store=False)
        first = events[-1].response
        assert [item.type for item in first.output] == ["reasoning", "message", "function_call", "function_call"]
        assert first.output[0].summary[0].text == "two files" and first.output[0].encrypted_content
        given = [said("look"), *sent_back(first), *(result(call) for call in first.output[2:])]
        second = await here.create(given, tools=[READ], store=False)
        assert (second.output_text, second.status) == ("Both are empty.", "completed")
        assert not here.violations


@in_loop
async def test_the_events_come_in_the_order_of_the_real_server() -> None:
    """GW-6: announced, filled, done, one item after the other, counted without a gap."""
    async with place(BATCH) as here:
        events = await here.stream("look", tools=[READ, PATCH])
        assert [event.sequence_number for event in events] == list(range(len(events)))
        kinds = [event.type.removeprefix("response.") for event in events]
        assert kinds[:2] == ["created", "in_progress"] and kinds[-1] == "completed"
        filled = [kind for kind in kinds[2:-1] if not kind.endswith("delta")]
        assert filled == [
            *("output_item.added", "reasoning_summary_part.added", "reasoning_summary_text.done"),
            *("reasoning_summary_part.done", "output_item.done"),
            *("output_item.added", "content_part.added", "output_text.done", "content_part.done", "output_item.done"),
            *(["output_item.added", "function_call_arguments.done", "output_item.done"] * 2),
        ]
        assert all(event.obfuscation for event in events if event.type.endswith("delta"))
        words = "".join(event.delta for event in events if event.type == "response.output_text.delta")
        assert words == "I read both."
        plain = await here.stream("look", stream_options={"include_obfuscation": False})
        assert not any(hasattr(event, "obfuscation") and event.obfuscation for event in plain)


@in_loop
async def test_a_custom_tool_is_called_with_text() -> None:
    """GW-6: what the model gives to a custom tool is text, and so is its result."""
    async with place(say(tool_use("patch", {"input": "*** Begin"})), "ok") as here:
        first = await here.create("go", tools=[PATCH])
        (call,) = first.output
        assert (call.type, call.input) == ("custom_tool_call", "*** Begin")
        await here.create([result(call)], previous_response_id=first.id)
        assert here.server.upstream.statistics.answered == 2 and not here.violations


@in_loop
async def test_stored_responses() -> None:
    """GW-6: what is stored can be continued, fetched, listed, streamed again and deleted; what isn't, can't."""
    async with place(BATCH, "done") as here:
        first = await here.create("look", tools=[READ])
        calls = [item for item in first.output if item.type == "function_call"]
        second = await here.create([result(call) for call in calls], previous_response_id=first.id)
        assert second.output_text == "done" and second.previous_response_id == first.id

        responses = here.client.responses
        assert (await responses.retrieve(second.id)).output_text == "done"
        listed = [item async for item in await responses.input_items.list(second.id, limit=2, order="asc")]
        assert [item.type for item in listed] == [
            *("message", "reasoning", "message", "function_call", "function_call"),
            *("function_call_output", "function_call_output"),
        ]
        again = [event async for event in await responses.retrieve(second.id, stream=True, starting_after=1)]
        assert again[0].sequence_number == 2 and again[-1].type == "response.completed"

        await responses.delete(second.id)
        with pytest.raises(openai.NotFoundError):
            await responses.retrieve(second.id)
        error = await here.refused("go on", previous_response_id=second.id)
        assert (error.status_code, error.code, error.param) == (
            *(400, "previous_response_not_found"),
            "previous_response_id",
        )
        unkept = await here.create("hello", store=False)
        assert (await here.refused("go on", previous_response_id=unkept.id)).code == "previous_response_not_found"


@in_loop
async def test_an_item_can_be_named_by_its_id_only_where_it_is_stored() -> None:
    """GW-6: an `item_reference`, and reasoning without its content."""
    async with place(say(thinking("hm"), "yes"), say(thinking("hm"), "yes")) as here:
        kept = await here.create("a")
        given = [said("a"), *({"type": "item_reference", "id": item.id} for item in kept.output), said("b")]
        await here.create(given)
        unkept = await here.create("a", store=False)
        error = await here.refused([said("a"), {"type": "item_reference", "id": unkept.output[0].id}, said("b")])
        assert error.status_code == 404 and "Items are not persisted when `store` is set to false" in str(error)


@in_loop
async def test_the_window_and_the_cache() -> None:
    """GW-6: an input that is too long is refused without numbers; what was sent before is read from the cache."""
    async with place(window=1_000) as here:
        first = await here.create("a" * 2_000, store=False)
        again = await here.create([said("a" * 2_000), *sent_back(first), said("more")], store=False)
        assert again.usage.input_tokens_details.cached_tokens == first.usage.input_tokens > 0
        assert again.usage.total_tokens == again.usage.input_tokens + again.usage.output_tokens
        error = await here.refused("b" * 8_000)
        assert (error.status_code, error.code, error.param) == (400, "context_length_exceeded", "input")
        assert "Your input exceeds the context window of this model." in str(error)
        trimmed = await here.create([said("b" * 8_000), said("and now")], truncation="auto")
        assert 0 < trimmed.usage.input_tokens < 1_000
        counted = await here.client.responses.input_tokens.count(model="gpt-6-sol", input="a" * 2_000)
        assert counted.input_tokens == first.usage.input_tokens


@in_loop
async def test_an_overflow_may_come_in_the_stream() -> None:
    """GW-6, TURN-6: behind a status of 200, as an error and a failed response."""
    async with place(window=1_000, overflow_in_stream=True) as here:
        error, failed = await here.stream("b" * 8_000)
        assert (error.type, error.code) == ("error", "context_length_exceeded")
        assert (failed.type, failed.response.error.code) == ("response.failed", "context_length_exceeded")


@in_loop
async def test_errors_in_and_before_a_stream() -> None:
    """GW-6: scripted errors, a cut and an error in mid-stream reach the SDK as its own exceptions."""
    async with place(rate_limited(3), overloaded()) as here:
        error = await here.refused("a")
        assert (error.status_code, error.code, error.response.headers["retry-after"]) == (
            429,
            "rate_limit_exceeded",
            "3",
        )
        assert (await here.refused("a")).status_code == 529
        here.server.faults.extend([ErrorInStream(overloaded()), CutStream()])
        *begun, error, failed = await here.stream("a")
        assert (len(begun), error.message, failed.response.status) == (3, "Overloaded", "failed")
        assert [error.sequence_number, failed.sequence_number] == [3, 4]
        with pytest.raises(openai.APIConnectionError):
            await here.stream("a")


@in_loop
async def test_an_answer_that_ends_early_is_incomplete() -> None:
    """GW-6: with its reason, and a last event that says so."""
    async with place(say("it was lo", stop_reason="max_tokens")) as here:
        events = await here.stream("tell", max_output_tokens=16)
        assert events[-1].type == "response.incomplete"
        assert events[-1].response.incomplete_details.reason == "max_output_tokens"


@in_loop
async def test_reasoning_stays_with_what_it_led_to() -> None:
    """GW-6: left out, alone, from elsewhere, or behind another prefix."""
    async with place(BATCH) as here:
        first = await here.create("look", tools=[READ], store=False)
        reasoning, text, *calls = sent_back(first)
        outputs = [result(call) for call in first.output[2:]]
        error = await here.refused([said("look"), text, *calls, *outputs], tools=[READ])
        assert f"provided without its required 'reasoning' item: '{reasoning['id']}'" in str(error)
        bare = [{name: value for name, value in call.items() if name != "id"} for call in calls]
        error = await here.refused([said("look"), *bare, *outputs], tools=[READ])
        assert "without its required 'reasoning' item" in str(error), "a call's own id is enough"
        error = await here.refused([said("look"), reasoning, said("and?")])
        assert "provided without its required following item" in str(error)
        foreign = {**reasoning, "encrypted_content": "gAAAAABforeign"}
        error = await here.refused([said("look"), foreign, text, *calls, *outputs], tools=[READ])
        assert error.code == "invalid_encrypted_content"
        assert set(here.violations) == {"reasoning_missing", "reasoning_alone", "encrypted_content"}

        whole = [reasoning, text, *calls, *outputs]
        moved = await here.create([said("another beginning"), *whole], tools=[READ])
        (told,) = moved.input_transformations
        assert (told.id, told.action, told.reason) == (reasoning["id"], "removed", "prefix_mismatch")
        kept = await here.create([said("look"), *whole], tools=[READ])
        assert kept.input_transformations is None


@in_loop
async def test_a_shortened_context_in_one_item() -> None:
    """GW-6: by its own door, by a trigger, and from a size on; it reads its own item, and nobody else's."""
    async with place("a" * 400, "short") as here:
        given = [said("b" * 4_000), said("and the rest")]
        first = await here.create(given)
        compacted = await here.client.responses.compact(model="gpt-6-sol", input=[*given, *sent_back(first)])
        assert [item.type for item in compacted.output] == ["message", "message", "compaction"]
        assert (compacted.object, compacted.output[0].content) == ("response.compaction", "b" * 4_000)

        triggered = await here.create([*given, *sent_back(first), {"type": "compaction_trigger"}])
        (item,) = sent_back(triggered)
        assert item["type"] == "compaction"
        after = await here.create([*given, item, said("next")])
        assert after.usage.input_tokens < 200, "what stands before the item isn't read"

        over = await here.create(
            [said("c" * 6_000)], context_management=[{"type": "compaction", "compact_threshold": 1_000}]
        )
        assert [item.type for item in over.output] == ["compaction", "message"]
        foreign = {"type": "compaction", "encrypted_content": "of another organization"}
        assert (await here.refused([foreign, said("next")])).code == "invalid_encrypted_content"


@in_loop
async def test_broken_rules_are_answered_as_the_real_server_does() -> None:
    """GW-6: code and parameter name what is wrong."""
    async with place() as here:
        call = {"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{}"}
        output = {"type": "function_call_output", "call_id": "c1", "output": "x"}
        error = await here.refused([said("a"), call])
        assert "No tool output found for function call c1." in str(error)
        error = await here.refused([said("a"), output, call])
        assert "No tool call found for function call output with call_id c1." in str(error)
        error = await here.refused("a", extra_body={"max_tokens": 10})
        assert (error.code, error.param) == ("unknown_parameter", "max_tokens")
        error = await here.refused([{**said("a"), "cache_control": {}}])
        assert (error.code, error.param) == ("unknown_parameter", "input[0].cache_control")
        nested: Any = {"type": "function", "function": {"name": "read"}}
        error = await here.refused("a", tools=[nested])
        assert "function" in str(error) and error.param == "tools[0].function"
        assert (await here.refused("a", conversation="conv_1")).status_code == 404


@in_loop
async def test_a_response_is_stored_for_its_account_once_it_is_whole() -> None:
    """GW-11: another key doesn't know its id; of a stream that broke, or wasn't to be kept, none does."""
    async with place("one", "two " * 30, "three") as at:
        kept = await at.create("the word is heron")
        at.server.faults.append(CutStream(after_events=5))
        with pytest.raises(openai.APIConnectionError):
            await at.stream("and on")
        broken = at.server.read[-1].response
        unkept = await at.create("and on", store=False)
        async with openai.AsyncOpenAI(api_key="other", base_url=f"{at.server.url}/v1", max_retries=0) as other:
            for client, identity in ((other, kept.id), (at.client, broken), (at.client, unkept.id)):
                with pytest.raises(openai.BadRequestError) as told:
                    await client.responses.create(model="gpt-6-sol", input="go on", previous_response_id=identity)
                assert told.value.code == "previous_response_not_found"
                with pytest.raises(openai.NotFoundError):
                    await client.responses.retrieve(identity)


@in_loop
async def test_the_server_says_what_its_model_read() -> None:
    """GW-11: whoever said it: the request, or the response that it goes on from."""
    async with place("one", "two") as at:
        first = await at.create("the word is heron")
        second = await at.create("go on", previous_response_id=first.id)
        assert [one.response for one in at.server.read] == [first.id, second.id]
        assert [item["role"] for item in at.server.read[-1].items] == ["user", "assistant", "user"]
        assert "heron" in at.server.read[-1].said and "one" in at.server.read[-1].said


@in_loop
async def test_a_stream_that_is_held_goes_on_when_it_is_told_to() -> None:
    """LIB-3: so that something can happen in the middle of an answer, without a clock."""
    async with place("one") as at:
        hold = HeldStream(after_events=2)
        at.server.faults.append(hold)
        stream = await at.client.responses.create(model="gpt-6-sol", input="hi", stream=True)
        seen = [(await anext(stream)).type for _ in range(2)]
        assert seen == ["response.created", "response.in_progress"]
        hold.go_on.set()
        assert [event.type async for event in stream][-1] == "response.completed"
