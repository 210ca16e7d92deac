"""The Responses API through the gateway, with OpenAI's SDK (GW-6)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest
from tests.gateways import KEY, WINDOW, Running, config_of, fake, history, in_loop, lose_index, serving

from perdure.events import CompactionDone, PrefixMoved
from perdure.settings import Settings
from perdure.testing import ErrorInStream, FakeUpstream, ModelRules, say, text, thinking, tool_use
from perdure.testing.upstream import prompt_too_long, server_error

pytestmark = pytest.mark.e2e
READ: Any = {"type": "function", "name": "Read", "parameters": {"type": "object"}, "strict": False}
PATCH: Any = {"type": "custom", "name": "apply_patch", "description": "Edits files", "format": {"type": "text"}}
HEADERS = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}


def upstream(*script: Any) -> FakeUpstream:
    return FakeUpstream(rules=ModelRules(window_tokens=WINDOW), script=list(script))


def script_of(turns: int) -> list[Any]:
    """Two calls at once, of a function and of a custom tool, and a word, for each turn; with reasoning."""
    script: list[Any] = []
    for n in range(turns):
        read = tool_use("Read", {"file_path": f"src/file_{n}.py"}, id=f"call_{n}")
        patch = tool_use("apply_patch", {"input": f"*** Begin Patch {n}\n*** End Patch"}, id=f"call_p{n}")
        script += [say(thinking(f"hm {n}"), text(f"reading {n}"), read, patch), say(thinking("so"), f"done with {n}")]
    return script


async def ask(client: openai.AsyncOpenAI, items: list[Any], *, stream: bool, **more: Any) -> Any:
    fields = {"model": "fake-gpt", **history(items), "store": False, "tools": [READ, PATCH], **more}
    if not stream:
        return await client.responses.create(**fields)
    async with client.responses.stream(**fields) as events:
        return await events.get_final_response()


def as_codex_says(item: Any) -> dict[str, Any]:
    """An item without what the server gave it."""
    return {name: value for name, value in item.model_dump(exclude_none=True).items() if name not in ("id", "status")}


async def talk(client: openai.AsyncOpenAI, items: list[Any], turns: int, said: Any, start: int = 0) -> None:
    for n in range(start, start + turns):
        prompt = f"Look at file {n}. " + f"Remark {n}: keep it short. " * 250
        items.append({"type": "message", "role": "user", "content": [{"type": "input_text", "text": prompt}]})
        for _ in range(2):
            answer = await ask(client, items, stream=bool(n % 2), instructions="You help.")
            items += [said(item) for item in answer.output]
            for item in answer.output:
                if item.type == "function_call":
                    output = f"line of file {n}: value_{n} = {n * 7}\n" * 200
                    items.append({"type": "function_call_output", "call_id": item.call_id, "output": output})
                elif item.type == "custom_tool_call":
                    items.append({"type": "custom_tool_call_output", "call_id": item.call_id, "output": "ok"})
        assert answer.output_text == f"done with {n}"


@pytest.mark.quick(1)
@pytest.mark.parametrize("said", [lambda item: item.model_dump(exclude_none=True), as_codex_says], ids=["sdk", "codex"])
@in_loop
async def test_a_long_conversation_through_the_responses_api(tmp_path: Path, said: Any) -> None:
    """GW-6: 40 turns of parallel calls far beyond the window, streamed and not; no error, no violation upstream."""
    turns = 40
    async with fake(upstream(*script_of(turns))) as server, serving(tmp_path, server) as at:
        items: list[Any] = [{"role": "developer", "content": "Be brief."}]
        await talk(at.gpt(max_retries=0), items, turns, said)
        stats = server.upstream.statistics
        assert stats.refused == 0 and not stats.violations
        assert any(isinstance(e, CompactionDone) for e in at.sink.events)
        assert len(stats.prefix_moves) <= len([e for e in at.sink.events if isinstance(e, PrefixMoved)])
        (held,) = at.held
        reasoning = sum(item.get("type") == "reasoning" for item in items)
        assert held.head.count == len(items) - 1 - reasoning, "each with the reasoning in front of it"
        assert at.metric("perdure_forks_total") == 0
        last = at.bodies[-1]
        assert last["instructions"] == "You help." and last["input"][0] == items[0]
        assert last["tools"][:2] == [READ, PATCH] and last["tools"][2]["name"] == "recall" and last["store"] is False


async def post(at: Running, body: bytes, path: str = "/v1/responses") -> tuple[bytes, Any]:
    async with aiohttp.ClientSession() as http, http.post(at.url + path, data=body, headers=HEADERS) as answer:
        return await answer.read(), answer.headers


@in_loop
async def test_what_needs_nothing_passes_through_byte_for_byte(tmp_path: Path) -> None:
    """GW-6: a request goes up as it came, at `/v1/responses` and at `/responses`, a string as well as a list."""
    one = b'{"model": "fake-gpt",  "input":"caf\\u00e9", "store":false}'
    two = b'{"model":"fake-gpt","input":[ {"role":"user", "content":"hi"} ],"stream":true}'
    async with fake() as server, serving(tmp_path, server) as at:
        for body, path in ((one, "/v1/responses"), (two, "/responses"), (one, "/responses")):
            answer, headers = await post(at, body, path)
            assert headers["x-perdure-mode"] == "untouched" and b'"ok"' in answer
            assert server.received[-1].body == body and server.received[-1].path == "/v1/responses"
        assert len(at.held) == 2, "the same words are the same session"


@in_loop
async def test_the_same_history_is_one_session_after_a_restart_and_when_asked_again(tmp_path: Path) -> None:
    """GW-6: an answer of several items that the client doesn't take up is taken back, also by another process."""
    script = [say(thinking("hm"), text("first"), tool_use("Read", {}, id="call_1")), "second", "third"]
    async with fake(upstream(*script)) as server:
        items: list[Any] = [{"role": "user", "content": "hello"}]
        async with serving(tmp_path, server) as at:
            await ask(at.gpt(), items, stream=False)
            assert at.held[0].head.count == 3
        async with serving(tmp_path, server) as at:
            answer = await ask(at.gpt(), items, stream=True)
            assert answer.output_text == "second"
            assert at.held[0].head.count == 2 and at.metric("perdure_forks_total") == 0
            items += [{"role": "assistant", "content": "second"}, {"role": "user", "content": "and now?"}]
            assert (await ask(at.gpt(), items, stream=False)).output_text == "third"
            assert at.held[0].head.count == 4 and len(at.held) == 1


@in_loop
async def test_counting_counts_what_would_be_sent(tmp_path: Path) -> None:
    """GW-6: `input_tokens` of a session that was shrunk is the view's."""
    turns, small = 12, Settings(window_tokens=30_000, durability="process")
    async with fake(upstream(*script_of(turns))) as server:
        config = config_of(tmp_path, server.url, settings=small, usage="upstream")
        async with serving(tmp_path, server, config=config) as at:
            await _counted(at, turns)


async def _counted(at: Running, turns: int) -> None:
    items: list[Any] = []
    await talk(at.gpt(max_retries=0), items, turns, as_codex_says)
    items.append({"role": "user", "content": "How much is it?"})
    counted = await at.gpt().responses.input_tokens.count(model="fake-gpt", input=items, tools=[READ, PATCH])
    async with openai.AsyncOpenAI(api_key=KEY, base_url=f"{at.server.url}/v1") as client:
        direct = await client.responses.input_tokens.count(model="fake-gpt", input=items, tools=[READ, PATCH])
    assert counted.input_tokens < direct.input_tokens / 2
    assert json.loads(at.server.received[-2].body)["tools"][:2] == [READ, PATCH]


@pytest.mark.parametrize("stream", [False, True])
@in_loop
async def test_a_meter_never_reads_more_than_its_share(tmp_path: Path, stream: bool) -> None:
    """GW-6: usage is capped, also in the last event of a stream."""
    async with fake() as server, serving(tmp_path, server, usage_cap_percent=1) as at:
        answer = await ask(at.gpt(), [{"role": "user", "content": "word " * 5_000}], stream=stream)
        usage = answer.usage
        assert usage.input_tokens == WINDOW // 100
        assert usage.total_tokens == usage.input_tokens + usage.output_tokens
        assert usage.input_tokens_details.cached_tokens <= usage.input_tokens
        assert at.metric("perdure_tokens_total", kind="prompt") + at.metric("perdure_tokens_total", kind="cache_write")


@in_loop
async def test_an_overflow_is_answered_by_a_smaller_request(tmp_path: Path) -> None:
    """GW-6: `context_length_exceeded` makes the gateway shrink the view, and the client sees the answer."""
    small = FakeUpstream(rules=ModelRules(window_tokens=30_000), script=[])
    async with fake(small) as server, serving(tmp_path, server) as at:
        items: list[Any] = []
        for n in range(12):
            items += [{"role": "user", "content": f"Remark {n}: keep it short. " * 500}]
            answer = await ask(at.gpt(max_retries=0), items, stream=bool(n % 2))
            items += [as_codex_says(item) for item in answer.output]
        assert at.metric("perdure_recovered_total", reason="prompt_too_long") >= 1
        assert set(small.statistics.violations) <= {"window"}


@pytest.mark.nightly
@in_loop
async def test_a_history_from_elsewhere_is_taken_over_with_its_parallel_calls(tmp_path: Path) -> None:
    """GW-6: a client that comes with all of its history at once, more than the window holds, is answered."""
    turns = 40
    async with fake(upstream(*script_of(turns), "at last")) as server:
        items: list[Any] = []
        async with serving(tmp_path / "one", server) as at:
            await talk(at.gpt(max_retries=0), items, turns, as_codex_says)
        items.append({"role": "user", "content": "Sum it up."})
        async with serving(tmp_path / "other", server) as at:
            answer = await ask(at.gpt(max_retries=0), items, stream=True)
            assert answer.output_text == "at last"
            sent = at.bodies[-1]["input"]
        stats = server.upstream.statistics
        assert not stats.violations
        calls = {one["call_id"]: one["output"] for one in sent if one.get("type") == "function_call_output"}
        assert calls and not any("interrupted" in output for output in calls.values())


async def chat_on(client: openai.AsyncOpenAI, turns: int, previous: str | None, start: int = 0, **more: Any) -> str:
    """A conversation of which the client sends only what is new; the id of its last answer."""
    for n in range(start, start + turns):
        items: list[Any] = [{"role": "user", "content": f"Look at {n}. " + f"Remark {n}: keep it short. " * 250}]
        for _ in range(2):
            fields = {"model": "fake-gpt", "tools": [READ, PATCH], "input": items, **more}
            if previous is not None:
                fields["previous_response_id"] = previous
            if n % 2:
                async with client.responses.stream(**fields) as events:
                    answer: Any = await events.get_final_response()
            else:
                answer = await client.responses.create(**fields)
            assert answer.previous_response_id == previous
            previous, items = answer.id, []
            for item in answer.output:
                if item.type == "function_call":
                    output = f"line of file {n}: value_{n} = {n * 7}\n" * 200
                    items.append({"type": "function_call_output", "call_id": item.call_id, "output": output})
                elif item.type == "custom_tool_call":
                    items.append({"type": "custom_tool_call_output", "call_id": item.call_id, "output": "ok"})
        assert answer.output_text == f"done with {n}"
    assert previous is not None
    return previous


@pytest.mark.quick(1)
@pytest.mark.parametrize("more", [{}, {"store": False}], ids=["stored", "not stored"])
@in_loop
async def test_a_conversation_of_which_only_the_new_is_sent(tmp_path: Path, more: Any) -> None:
    """GW-6: `previous_response_id` is resolved here, also after a restart without the index; upstream gets all."""
    turns = 30
    async with fake(upstream(*script_of(turns + 1))) as server:
        async with serving(tmp_path, server) as at:
            previous = await chat_on(at.gpt(max_retries=0), turns, None, instructions="You help.", **more)
            (held,) = at.held
            assert any(isinstance(e, CompactionDone) for e in at.sink.events)
            assert at.metric("perdure_forks_total") == 0
            later = at.bodies[1:]
            assert all("previous_response_id" not in body and body["store"] is False for body in later)
            assert all(body["instructions"] == "You help." for body in later)
        lose_index(tmp_path)
        async with serving(tmp_path, server) as at:
            await chat_on(at.gpt(max_retries=0), 1, previous, turns, instructions="You help.", **more)
            assert [one.id for one in at.held] == [held.id] and at.metric("perdure_forks_total") == 0
        stats = server.upstream.statistics
        assert not stats.violations and stats.refused == 0


@pytest.mark.both_stores
@in_loop
async def test_an_answer_can_be_continued_twice(tmp_path: Path) -> None:
    """GW-6: from the same answer two conversations go on, and each keeps what the developer said first."""
    async with fake(upstream("one", "two", "three", "four")) as server, serving(tmp_path, server) as at:
        client = at.gpt(max_retries=0)
        first: list[Any] = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "start"}]
        begun = await client.responses.create(model="fake-gpt", input=first)
        left = await client.responses.create(model="fake-gpt", input="left", previous_response_id=begun.id)
        right = await client.responses.create(model="fake-gpt", input="right", previous_response_id=begun.id)
        again = await client.responses.create(model="fake-gpt", input="more", previous_response_id=left.id)
        assert [left.output_text, right.output_text, again.output_text] == ["two", "three", "four"]
        words = [[one["content"] for one in body["input"] if one["role"] != "assistant"] for body in at.bodies[1:]]
        assert words == [
            ["Be brief.", "start", "left"],
            ["Be brief.", "start", "right"],
            ["Be brief.", "start", "left", "more"],
        ]
        assert len(at.held) == 2


@in_loop
async def test_an_answer_that_nobody_here_gave_is_asked_of_the_upstream(tmp_path: Path) -> None:
    """GW-6: an unknown id gets the upstream's own error; one of another tenant's is unknown."""
    async with fake(upstream("one")) as server, serving(tmp_path, server) as at:
        begun = await at.gpt().responses.create(model="fake-gpt", input="start", store=False)
        for key, previous in ((KEY, "resp_unheard_of"), ("another-key", begun.id)):
            async with openai.AsyncOpenAI(api_key=key, base_url=f"{at.url}/v1", max_retries=0) as client:
                with pytest.raises(openai.BadRequestError) as told:
                    await client.responses.create(model="fake-gpt", input="on", previous_response_id=previous)
            assert told.value.code == "previous_response_not_found"
            assert told.value.response.headers["x-perdure-mode"] == "passed"
        assert at.metric("perdure_passed_total", reason="unknown_answer") == 2


@pytest.mark.nightly
@pytest.mark.parametrize("form", ["compact", "trigger", "trigger in a stream"])
@in_loop
async def test_a_client_that_compacts_goes_on_where_it_was(tmp_path: Path, form: str) -> None:
    """GW-6: it gets exactly one item for its history, a sealed place of ours; and the session goes on, compacted."""
    turns = 6
    async with fake(upstream(*script_of(2 * turns))) as server, serving(tmp_path, server) as at:
        client, items = at.gpt(max_retries=0), list[Any]()
        items.append({"role": "developer", "content": "Be brief."})
        await talk(client, items, turns, as_codex_says)
        asked = server.upstream.statistics.requests
        if form == "compact":
            done: Any = await client.responses.compact(model="fake-gpt", input=items, instructions="You help.")
            assert done.object == "response.compaction"
        else:
            trigger = [*items, {"type": "compaction_trigger"}]
            done = await ask(client, trigger, stream=form != "trigger", instructions="You help.")
            assert done.status == "completed"
        assert server.upstream.statistics.requests == asked, "nobody else was asked"
        (item,) = done.output
        assert item.type == "compaction" and done.usage.total_tokens > 0
        (held,) = at.held
        assert any(isinstance(e, CompactionDone) and e.trigger == "manual" for e in at.sink.events)
        items = [items[0], {"role": "user", "content": "Look at file 0."}, as_codex_says(item)]
        await talk(client, items, turns, as_codex_says, start=turns)
        assert [one.id for one in at.held] == [held.id] and at.metric("perdure_forks_total") == 0
        sent = at.bodies[-1]["input"]
        assert sent[0] == items[0] and "compaction" not in [one.get("type") for one in sent]
        assert done.usage.output_tokens < done.usage.input_tokens and held.session.view.boundary is not None
        assert not server.upstream.statistics.violations


@in_loop
async def test_a_compaction_survives_a_restart_and_is_nobody_elses(tmp_path: Path) -> None:
    """GW-6: the place is found again with the index lost; another tenant's, a forged and a foreign one pass through."""
    async with fake(upstream("one", "two", "three", "four")) as server:
        first: list[Any] = [{"role": "user", "content": "The word is heron. " * 2_000}]
        async with serving(tmp_path, server) as at:
            answer = await ask(at.gpt(), first, stream=False)
            said = [as_codex_says(item) for item in answer.output]
            done = await at.gpt().responses.compact(model="fake-gpt", input=[*first, *said])
        lose_index(tmp_path)
        sealed = as_codex_says(done.output[0])
        forged = {**sealed, "encrypted_content": sealed["encrypted_content"][:-8] + "AAAAAAA="}
        foreign = {"type": "compaction", "encrypted_content": "gAAAAsomebody"}
        async with serving(tmp_path, server) as at:
            more: list[Any] = [{"role": "user", "content": "What was it?"}]
            assert (await ask(at.gpt(), [sealed, *more], stream=False)).output_text == "two"
            assert "heron" in json.dumps(at.bodies[-1]["input"])
            for key, item in (("another-key", sealed), (KEY, forged), (KEY, foreign)):
                async with openai.AsyncOpenAI(api_key=key, base_url=f"{at.url}/v1", max_retries=0) as client:
                    with pytest.raises(openai.BadRequestError) as told:
                        await ask(client, [item, *more], stream=False)
                assert told.value.code == "invalid_encrypted_content"
                assert at.bodies[-1]["input"] == [item, *more]


@pytest.mark.parametrize("events", [0, 1, 2])
@in_loop
async def test_an_overflow_that_a_stream_begins_with_is_answered_by_a_smaller_request(
    tmp_path: Path, events: int
) -> None:
    """GW-6: a server may say it behind a status of 200, before any item; the client sees the answer alone."""
    async with fake(upstream("one", "two", "three")) as server, serving(tmp_path, server) as at:
        client = at.gpt(max_retries=0)
        items: list[Any] = [{"role": "user", "content": "word " * 5_000}]
        items += [as_codex_says(item) for item in (await ask(client, items, stream=True)).output]
        items += [{"role": "user", "content": "word " * 5_000}]
        server.faults.append(ErrorInStream(prompt_too_long(120_000, 100_000), after_events=events))
        assert (await ask(client, items, stream=True)).output_text == "three"
        assert at.metric("perdure_recovered_total", reason="prompt_too_long") == 1
        assert any(isinstance(e, CompactionDone) and e.trigger == "reactive" for e in at.sink.events)


@in_loop
async def test_an_error_behind_the_first_item_is_the_clients_to_see(tmp_path: Path) -> None:
    """GW-6: what was begun is passed on as it comes and isn't recorded; nor is an error of another kind helped."""
    async with fake(upstream("one", "two", "three")) as server, serving(tmp_path, server) as at:
        client, items = at.gpt(max_retries=0), [{"role": "user", "content": "hello"}]
        for after, status in ((5, 400), (2, 500)):
            error = prompt_too_long(120_000, 100_000) if status == 400 else server_error()
            server.faults.append(ErrorInStream(error, after_events=after))
            events = await client.responses.create(
                model="fake-gpt", input=items, store=False, tools=[READ, PATCH], stream=True
            )
            *_, last = [event async for event in events]
            assert last.type == "response.failed" and last.response.error.message, "in the server's own words"
            assert at.held[0].head.count == 1
        assert (await ask(client, items, stream=True)).output_text == "three"
        assert at.held[0].head.count == 2 and at.metric("perdure_recovered_total", reason="prompt_too_long") == 0


def as_reference(item: Any) -> dict[str, Any]:
    """An item as clients say it that rely on their server to have it."""
    return {"type": "item_reference", "id": item.id}


@in_loop
async def test_items_that_a_client_only_names_are_known(tmp_path: Path) -> None:
    """GW-6: references to items of earlier answers are read as those, also after a restart without the index."""
    turns = 30
    async with fake(upstream(*script_of(turns + 1))) as server:
        items: list[Any] = []
        async with serving(tmp_path, server) as at:
            await talk(at.gpt(max_retries=0), items, turns, as_reference)
            (held,) = at.held
            assert any(isinstance(e, CompactionDone) for e in at.sink.events)
            assert (
                at.metric("perdure_forks_total") == 0
                and at.metric("perdure_passed_total", reason="item_reference") == 0
            )
        lose_index(tmp_path)
        async with serving(tmp_path, server) as at:
            await talk(at.gpt(max_retries=0), items, 1, as_reference, start=turns)
            assert [one.id for one in at.held] == [held.id] and at.metric("perdure_forks_total") == 0
            sent = at.bodies[-1]["input"]
            assert "function_call" in [one.get("type") for one in sent]
            assert "item_reference" not in [one.get("type") for one in sent]
        assert not server.upstream.statistics.violations


@in_loop
async def test_items_that_nobody_here_gave_are_asked_of_the_upstream(tmp_path: Path) -> None:
    """GW-6: a reference to what the account has from before passes through as it came; another tenant's is unknown."""
    async with fake(upstream("one", "two")) as server, serving(tmp_path, server) as at:
        first: list[Any] = [{"role": "user", "content": "hi"}]
        async with openai.AsyncOpenAI(api_key="another-key", base_url=f"{server.url}/v1") as direct:
            begun = await direct.responses.create(model="fake-gpt", input=first)
        items = [*first, as_reference(begun.output[0]), {"role": "user", "content": "on"}]
        async with openai.AsyncOpenAI(api_key="another-key", base_url=f"{at.url}/v1", max_retries=0) as client:
            answer = await client.responses.with_raw_response.create(model="fake-gpt", input=items)
            assert answer.headers["x-perdure-mode"] == "passed" and answer.parse().output_text == "two"
            assert answer.headers["x-perdure-reason"] == "item_reference"
        assert at.bodies[-1]["input"] == items
        with pytest.raises(openai.NotFoundError):
            await at.gpt(max_retries=0).responses.create(model="fake-gpt", input=items)
