"""The gateway behind official SDKs that know nothing of it (GW-1, GW-2, GW-3)."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import aiohttp
import anthropic
import msgspec
import openai
import pytest
from tests.gateways import KEY, WINDOW, Running, fake, in_loop, lose_index, serving

from perdure.events import CompactionDone, PrefixMoved, ResultOffloaded, ResultsCleared
from perdure.gateway import turns
from perdure.testing import FakeUpstream, ModelRules, say, text, thinking, tool_use

pytestmark = pytest.mark.e2e
TOOLS: list[Any] = [
    {
        "name": "Read",
        "description": "Read a file",
        "input_schema": {"type": "object", "properties": {"file_path": {"type": "string"}}},
    }
]


async def ask(client: anthropic.AsyncAnthropic, messages: list[Any], **more: Any) -> Any:
    async with client.messages.stream(model="fake-model", max_tokens=500, messages=messages, **more) as stream:
        return await stream.get_final_message()


@in_loop
async def test_what_needs_nothing_passes_through_byte_for_byte(tmp_path: Path) -> None:
    """GW-1: bodies go up as they came; a stream comes down as it was sent."""
    body = (
        b'{"model":"fake-model",  "max_tokens": 99,"messages":[{"role":"user","content":"caf\\u00e9"}], "stream":true}'
    )
    async with fake() as server, serving(tmp_path, server) as at:
        async with aiohttp.ClientSession() as http:
            headers = {"x-api-key": KEY, "anthropic-version": "2023-06-01", "content-type": "application/json"}
            async with http.post(f"{server.url}/v1/messages", data=body, headers=headers) as direct:
                expected = await direct.read()
            async with http.post(f"{at.url}/v1/messages", data=body, headers=headers) as through:
                got = await through.read()
                assert through.headers["x-perdure-mode"] == "untouched"
        assert server.received[1].body == body
        first, second = (re.search(rb"msg_[0-9a-f]{9}", answer) for answer in (expected, got))
        assert first and second and first[0] != second[0] and got.replace(second[0], first[0]) == expected


def prompt_tokens(usage: Any) -> int:
    return usage.input_tokens + (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0)


def script_of(turns: int) -> list[Any]:
    """A read and a word for each turn."""
    script: list[Any] = []
    for n in range(turns):
        call = tool_use("Read", {"file_path": f"src/file_{n}.py"}, id=f"toolu_{n}")
        script += [say(thinking(f"hm {n}"), text(f"reading {n}"), call), f"done with {n}"]
    return script


async def talk(at: Running, client: anthropic.AsyncAnthropic, turns: int, messages: list[Any], start: int = 0) -> None:
    """Some turns of a tool loop, with a pasted text each."""
    for n in range(start, start + turns):
        messages.append({"role": "user", "content": f"Look at file {n}. " + f"Remark {n}: keep it short. " * 250})
        for _ in range(2):
            said = await ask(client, messages, tools=TOOLS, system="You help.")
            messages.append({"role": "assistant", "content": said.content})
            calls = [block for block in said.content if block.type == "tool_use"]
            if calls:
                result = f"line of file {n}: value_{n} = {n * 7}\n" * 200
                block = {"type": "tool_result", "tool_use_id": calls[0].id, "content": result}
                messages.append({"role": "user", "content": [block]})


@in_loop
async def test_a_long_conversation_through_the_anthropic_sdk(tmp_path: Path) -> None:
    """GW-2, GW-3: 44 turns of tools far beyond the window; the client sees no error, the server no violation."""
    turns = 44
    upstream = FakeUpstream(rules=ModelRules(window_tokens=WINDOW), script=script_of(turns))
    async with fake(upstream) as server, serving(tmp_path, server) as at:
        client, messages = at.claude(max_retries=0), list[Any]()
        await talk(at, client, turns, messages)
        compactions = [e for e in at.sink.events if isinstance(e, CompactionDone)]
        moves = [e for e in at.sink.events if isinstance(e, PrefixMoved)]
        stats = upstream.statistics
        assert compactions
        assert stats.refused == 0 and not stats.violations
        assert 0 < len(stats.prefix_moves) <= len(moves)
        (held,) = at.held
        assert held.head.count == len(messages) == 4 * turns
        assert messages[-1]["content"][0].text == f"done with {turns - 1}"


@pytest.mark.nightly
@in_loop
async def test_a_compaction_alone_is_what_goes_upstream(tmp_path: Path) -> None:
    """GW-2: where nothing was offloaded or cleared before, a compaction is the first that the view shows otherwise."""
    upstream = FakeUpstream(rules=ModelRules(window_tokens=WINDOW))
    async with fake(upstream) as server, serving(tmp_path, server) as at:
        client, messages = at.gpt(max_retries=0), list[Any]()
        tools: Any = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
        for n in range(60):
            messages.append({"role": "user", "content": f"What of {n}? " + f"Remark {n}: keep it short. " * 400})
            said = await client.chat.completions.create(model="m", messages=messages, tools=tools)
            messages.append({"role": "assistant", "content": said.choices[0].message.content})
        compactions = [e for e in at.sink.events if isinstance(e, CompactionDone)]
        sizes = [len(msgspec.json.encode(body)) for body in at.bodies]
        assert 0 < len(compactions) <= 4 and len(upstream.statistics.prefix_moves) == len(compactions)
        assert max(sizes) < WINDOW * 4 < len(msgspec.json.encode(messages))
        assert not upstream.statistics.refused


@in_loop
async def test_a_long_conversation_through_the_openai_sdk(tmp_path: Path) -> None:
    """GW-1, GW-2: the same over Chat Completions, streamed and not, with ids that a server counts anew each time."""
    turns = 36
    script: list[Any] = []
    for n in range(turns):
        script += [say(tool_use("Read", {"file_path": f"src/file_{n}.py"}, id="call_0")), f"done with {n}"]
    upstream = FakeUpstream(rules=ModelRules(window_tokens=WINDOW), script=script)
    tools: Any = [{"type": "function", "function": {"name": "Read", "parameters": {"type": "object"}}}]
    async with fake(upstream) as server, serving(tmp_path, server) as at:
        client = at.gpt(max_retries=0)
        messages: list[Any] = [{"role": "system", "content": "You help."}]
        for n in range(turns):
            messages.append({"role": "user", "content": f"Look at {n}. " + f"Remark {n}: keep it short. " * 250})
            for step in range(2):
                if n % 2:
                    answer = await client.chat.completions.create(model="fake-gpt", messages=messages, tools=tools)
                    said = answer.choices[0].message
                else:
                    async with client.chat.completions.stream(model="fake-gpt", messages=messages, tools=tools) as s:
                        said = (await s.get_final_completion()).choices[0].message
                kept = {"role", "content", "tool_calls"}
                messages.append(said.model_dump(include=kept, exclude_none=True))
                if step == 0:
                    assert said.tool_calls and said.tool_calls[0].id == "call_0"
                    result = f"line of file {n}: value_{n} = {n * 7}\n" * 200
                    messages.append({"role": "tool", "tool_call_id": "call_0", "content": result})
        stats = upstream.statistics
        assert stats.refused == 0 and not stats.violations
        assert any(isinstance(e, CompactionDone) for e in at.sink.events)
        assert len(stats.prefix_moves) <= len([e for e in at.sink.events if isinstance(e, PrefixMoved)])
        (held,) = at.held
        assert held.head.count == len(messages) - 1
        assert at.metric("perdure_passed_total", reason="PerdureError") == 0


@in_loop
async def test_what_was_done_is_told_in_headers_and_the_meter_stays_low(tmp_path: Path) -> None:
    """GW-2: usage as the client expects; the headers say what was done."""
    big, cap = "word " * 40_000, WINDOW * 30 // 100
    async with fake() as server, serving(tmp_path, server, usage_cap_percent=30) as at:
        answer = await at.claude().messages.with_raw_response.create(
            model="fake-model", max_tokens=50, messages=[{"role": "user", "content": big}]
        )
        said = await answer.parse()
        assert abs(prompt_tokens(said.usage) - cap) < 5
        assert int(answer.headers["x-perdure-view-tokens"]) > 40_000
        assert answer.headers["x-perdure-session"].startswith("session-")
        streamed = await ask(at.claude(), [{"role": "user", "content": big + "!"}])
        assert abs(prompt_tokens(streamed.usage) - cap) < 5
    async with fake() as server, serving(tmp_path / "other", server, usage="upstream") as at:
        said = await at.claude().messages.create(
            model="fake-model", max_tokens=50, messages=[{"role": "user", "content": big}]
        )
        assert prompt_tokens(said.usage) > 40_000


@pytest.mark.both_stores
@in_loop
async def test_two_clients_a_fork_and_an_edit_each_get_their_own_view(tmp_path: Path) -> None:
    """GW-2: interleaved clients, a fork from the middle and an edited message: nobody sees what isn't theirs."""
    async with fake() as server, serving(tmp_path, server) as at:
        server.upstream.script.extend(f"answer {n}" for n in range(100))
        client = at.claude(max_retries=0)
        talks: dict[str, list[Any]] = {"red": [], "blue": []}
        for n in range(6):
            for name, messages in talks.items():
                said = "same start" if n == 0 else f"{name} says {n}"
                messages.append({"role": "user", "content": said})
                messages.append({"role": "assistant", "content": (await ask(client, messages)).content})
        fork = [*talks["red"][:6], {"role": "user", "content": "another way"}]
        fork.append({"role": "assistant", "content": (await ask(client, fork)).content})
        fork.append({"role": "user", "content": "and on"})
        await ask(client, fork)
        edited = [dict(m) for m in talks["blue"]]
        edited[4] = {"role": "user", "content": "blue says something else"}
        forks = at.metric("perdure_forks_total")
        await ask(client, [*edited, {"role": "user", "content": "go on"}])
        assert sorted(held.head.count for held in at.held) == [10, 12, 14], "edited, not another conversation"
        assert at.metric("perdure_forks_total") == forks and at.metric("perdure_edited_total") == 1
        await ask(client, [*talks["blue"], {"role": "user", "content": "as it was"}])
        assert b"blue says 2" in server.received[-1].body and b"something else" not in server.received[-1].body
        await ask(client, [*talks["red"], {"role": "user", "content": "red goes on"}])
        last = server.received[-1]
        for held in at.held:
            shown = " ".join(b.raw.decode() for item in held.session.view.items for b in item.visible)
            assert not ("red says 5" in shown and "blue says 5" in shown)
            assert not ("another way" in shown and "red says 3" in shown)
        assert b"red goes on" in last.body and b"another way" not in last.body
        assert not server.upstream.statistics.violations


@pytest.mark.nightly
@in_loop
async def test_a_client_that_rewrites_its_last_message_has_one_session(tmp_path: Path) -> None:
    """GW-2: aider puts a reminder behind what is said last, and leaves it out of the next request. That is one
    conversation, and what was compacted stays compacted: not every request has to do it again."""
    upstream = FakeUpstream(rules=ModelRules(window_tokens=WINDOW), script=[f"answer {n}" for n in range(60)])
    async with fake(upstream) as server, serving(tmp_path, server) as at:
        client = at.claude(max_retries=0)
        messages: list[Any] = [{"role": "user", "content": "No files."}, {"role": "assistant", "content": "Ok."}]
        for n in range(60):
            said = f"part {n}: " + f"number {n} of many words " * 400
            last = {"role": "user", "content": f"{said} Reply in English."}
            answer = await ask(client, [*messages, last])
            messages += [{"role": "user", "content": said}, {"role": "assistant", "content": answer.content}]
            assert len(at.held) == 1
            sent = server.received[-1].body
            assert sent.count(b"Reply in English.") == 1 and b"The conversation continues" not in sent
        compacted = at.metric("perdure_compactions_total", trigger="auto", strategy="ledger")
        assert 2 <= compacted <= 8 and at.metric("perdure_edited_total") == 59
        (held,) = at.held
        name, summary = held.id, held.session.view.items[0].message.id
        assert not upstream.statistics.violations and not upstream.statistics.refused
    async with fake(upstream) as server, serving(tmp_path, server) as at:
        upstream.script.append("goes on")
        await ask(at.claude(max_retries=0), [*messages, {"role": "user", "content": "and now?"}])
        (held,) = at.held
        assert held.id == name and at.metric("perdure_edited_total") == 1, "a restart makes no difference"
        assert held.session.view.items[0].message.id == summary


@pytest.mark.nightly
@in_loop
async def test_a_fork_shares_the_past_of_a_compacted_session(tmp_path: Path) -> None:
    """GW-2, REL-5: from behind a compaction the fork's view is the parent's, byte for byte, and so is its prefix."""
    upstream = FakeUpstream(rules=ModelRules(window_tokens=WINDOW), script=script_of(40))
    async with fake(upstream) as server, serving(tmp_path, server) as at:
        client, messages = at.claude(max_retries=0), list[Any]()
        await talk(at, client, 40, messages)
        (parent,) = at.held
        assert parent.session.view.boundary is not None
        before = len(server.received)
        await ask(client, [*messages, {"role": "user", "content": "one way"}], tools=TOOLS, system="You help.")
        await ask(
            client,
            [
                *messages,
                {"role": "user", "content": "one way"},
                {"role": "assistant", "content": "ok"},
                {"role": "user", "content": "further"},
            ],
            tools=TOOLS,
            system="You help.",
        )
        await ask(client, [*messages, {"role": "user", "content": "other way"}], tools=TOOLS, system="You help.")
        one, other = (msgspec.json.decode(r.body)["messages"] for r in (server.received[before], server.received[-1]))
        assert len(at.held) == 2

        def bare(message: Any) -> Any:
            return [{k: v for k, v in b.items() if k != "cache_control"} for b in message["content"]]

        assert list(map(bare, one[:-1])) == list(map(bare, other[:-1]))
        assert bare(one[-1])[-1]["text"] == "one way" and bare(other[-1])[-1]["text"] == "other way"
        child = next(held for held in at.held if held.id != parent.id)
        assert child.session.view.boundary is not None
        assert not upstream.statistics.violations


@in_loop
async def test_a_client_that_parts_our_answer_has_one_session(tmp_path: Path) -> None:
    """GW-2: goose puts the time between the words of the last answer and its call, and takes it out again."""
    script = [say(f"Part {n}.", tool_use("run", {"number": n})) for n in range(8)]
    tool: Any = {"type": "function", "function": {"name": "run", "parameters": {"type": "object"}}}
    async with fake(FakeUpstream(script=list(script), strict=False)) as server, serving(tmp_path, server) as at:
        messages: list[Any] = [{"role": "user", "content": "Read all parts."}]
        for n in range(8):
            shown = list(messages)
            if n:
                answer, result = shown[-2:]
                time = {"role": "user", "content": f"<info-msg>It is {n} o'clock.</info-msg>"}
                words = {"role": "assistant", "content": answer["content"]}
                shown[-2:] = [words, time, {**answer, "content": None}, result]
            made = await at.gpt().chat.completions.create(model="m", messages=shown, tools=[tool])
            said = made.choices[0].message
            assert said.tool_calls
            messages.append(
                {"role": "assistant", "content": said.content, "tool_calls": [said.tool_calls[0].to_dict()]}
            )
            messages.append({"role": "tool", "tool_call_id": said.tool_calls[0].id, "content": f"part {n} " * 50})
            assert len(at.held) == 1 and at.metric("perdure_edited_total") == max(n - 1, 0)
            assert server.received[-1].body.count(b"o'clock") == min(n, 1)
        assert not server.upstream.statistics.violations


@in_loop
async def test_a_restart_finds_the_session_again_even_without_its_index(tmp_path: Path) -> None:
    """GW-2, REL-12: the journal is the truth; the index on disk is made anew from it."""
    upstream = FakeUpstream(rules=ModelRules(window_tokens=WINDOW), script=script_of(48))
    messages: list[Any] = []
    async with fake(upstream) as server:
        async with serving(tmp_path, server) as at:
            await talk(at, at.claude(max_retries=0), 40, messages)
            (first,) = at.held
            name, sent = first.id, len(server.received)
        async with serving(tmp_path, server) as at:
            await talk(at, at.claude(max_retries=0), 4, messages, start=40)
            (again,) = at.held
            assert again.id == name and again.head.count == len(messages)
        lose_index(tmp_path)
        async with serving(tmp_path, server) as at:
            await talk(at, at.claude(max_retries=0), 4, messages, start=44)
            (again,) = at.held
            assert again.id == name and again.head.count == len(messages)
        assert len(server.received) > sent
        assert len(upstream.statistics.prefix_moves) <= 12
        assert not upstream.statistics.violations and upstream.statistics.refused == 0


@in_loop
async def test_asking_again_rewinds_the_answer_instead_of_forking(tmp_path: Path) -> None:
    """GW-2: a client that regenerates, or words the answer its own way, stays in its session."""
    async with fake() as server, serving(tmp_path, server) as at:
        server.upstream.script.extend(["first try", "second try", "third"])
        client, messages = at.claude(), [{"role": "user", "content": "hello"}]
        assert (await ask(client, messages)).content[0].text == "first try"
        assert (await ask(client, messages)).content[0].text == "second try"
        messages += [{"role": "assistant", "content": "in my own words"}, {"role": "user", "content": "next"}]
        await ask(client, messages)
        (held,) = at.held
        shown = " ".join(b.raw.decode() for item in held.session.view.items for b in item.visible)
        assert "in my own words" in shown and "first try" not in shown and "second try" not in shown
        assert held.head.count == 4


@in_loop
async def test_an_upstream_that_says_too_long_is_answered_by_a_compaction(tmp_path: Path) -> None:
    """GW-2, TURN-11: its window is smaller than anybody knew; the client sees an answer."""
    upstream = FakeUpstream(rules=ModelRules(window_tokens=40_000))
    async with fake(upstream) as server, serving(tmp_path, server) as at:
        client, messages = at.claude(max_retries=0), list[Any]()
        for n in range(30):
            messages.append({"role": "user", "content": f"Part {n}. " + f"number {n} of many words " * 450})
            messages.append({"role": "assistant", "content": (await ask(client, messages)).content})
        assert at.metric("perdure_recovered_total", reason="prompt_too_long") >= 1
        (held,) = at.held
        assert held.head.count == 60


@in_loop
async def test_thinking_that_a_client_leaves_out_is_put_back(tmp_path: Path) -> None:
    """GW-2: a history without its thinking is the same conversation; the session still has it."""
    async with fake() as server, serving(tmp_path, server) as at:
        server.upstream.script.extend([say(thinking("deep"), text("one")), "two"])
        client, messages = at.claude(), [{"role": "user", "content": "hello"}]
        said = await ask(client, messages)
        kept = [block for block in said.content if block.type != "thinking"]
        messages += [{"role": "assistant", "content": kept}, {"role": "user", "content": "more"}]
        await ask(client, messages)
        (held,) = at.held
        assert held.head.count == 4
        assert any(block.type == "thinking" for item in held.session.view.items for block in item.visible)


@in_loop
async def test_counting_counts_the_view(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GW-1, GW-2: count_tokens of a history whose session was compacted is that of what would be sent.

    SPD-8: that is made whole each time, so a large one is made beside the loop.
    """
    threads, make = list[int](), turns.to_request

    def watched(*given: Any, **more: Any) -> Any:
        threads.append(threading.get_ident())
        return make(*given, **more)

    monkeypatch.setattr(turns, "to_request", watched)
    upstream = FakeUpstream(rules=ModelRules(window_tokens=WINDOW), script=script_of(40))
    async with fake(upstream) as server, serving(tmp_path, server, usage="upstream") as at:
        client, messages = at.claude(), list[Any]()
        few = await client.messages.count_tokens(model="fake-model", messages=[{"role": "user", "content": "hello"}])
        assert 0 < few.input_tokens < 50
        await talk(at, client, 40, messages)
        messages.append({"role": "user", "content": "next"})
        count = await client.messages.count_tokens(
            model="fake-model", messages=messages, system="You help.", tools=TOOLS
        )
        whole = upstream.count_tokens(
            msgspec.json.encode(
                {
                    "model": "m",
                    "messages": [{"role": "user", "content": "x" * sum(len(str(m["content"])) for m in messages)}],
                }
            )
        )["input_tokens"]
        assert count.input_tokens < WINDOW < whole
        assert threads and threading.get_ident() not in threads


@in_loop
async def test_models_and_unknown_paths_pass_through(tmp_path: Path) -> None:
    """GW-1: what isn't managed is passed on, with its query."""
    async with fake() as server, serving(tmp_path, server) as at:
        server.routes[("POST", "/v1/embeddings")] = {"object": "list", "data": []}
        assert [m.id async for m in at.claude().models.list()] == ["fake"]
        assert [m.id async for m in at.gpt().models.list()] == ["fake"]
        made = await at.gpt().post("/embeddings", cast_to=object, body={"input": "x"})
        assert made == {"object": "list", "data": []}
        with pytest.raises(openai.NotFoundError):
            await at.gpt(max_retries=0).get("/nowhere", cast_to=object)


@in_loop
async def test_big_results_are_offloaded_before_they_are_ever_sent(tmp_path: Path) -> None:
    """GW-2, TURN-2: and the bytes that replace them stay the same in every later request."""
    async with fake() as server, serving(tmp_path, server) as at:
        server.upstream.script.append(say(tool_use("Read", {"file_path": "big.txt"}, id="toolu_1")))
        client, messages = at.claude(), [{"role": "user", "content": "Read it"}]
        messages.append({"role": "assistant", "content": (await ask(client, messages, tools=TOOLS)).content})
        block = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "0123456789 and so on\n" * 6_000}
        messages.append({"role": "user", "content": [block]})
        messages.append({"role": "assistant", "content": (await ask(client, messages, tools=TOOLS)).content})
        messages.append({"role": "user", "content": "thanks"})
        await ask(client, messages, tools=TOOLS)
        first, second = (body["messages"][2]["content"][0] for body in at.bodies[1:3])
        first.pop("cache_control", None), second.pop("cache_control", None)
        assert first == second and len(str(first)) < 5_000
        assert any(isinstance(e, ResultOffloaded) for e in at.sink.events)
        assert not any(isinstance(e, ResultsCleared | PrefixMoved) for e in at.sink.events)
        assert not server.upstream.statistics.prefix_moves


@in_loop
async def test_a_route_has_its_own_upstream_and_settings(tmp_path: Path) -> None:
    """GW-4: by the first part of the path; one that isn't managed is a plain proxy."""
    routes = {
        "small": {"anthropic": "anthropic", "settings": {"window_tokens": 8_000}},
        "plain": {"anthropic": "anthropic", "is_managed": False},
    }
    async with fake() as server, serving(tmp_path, server, routes=routes) as at:
        for route in ("small", "plain", "nowhere"):
            client = anthropic.AsyncAnthropic(api_key=KEY, base_url=f"{at.url}/{route}", max_retries=0)
            at.clients.append(client)
            messages: list[Any] = []
            if route == "nowhere":
                with pytest.raises(anthropic.NotFoundError):
                    await ask(client, [{"role": "user", "content": "x"}])
                continue
            for n in range(8):
                messages.append({"role": "user", "content": f"{route} {n} " + "and more words " * 400})
                messages.append({"role": "assistant", "content": (await ask(client, messages)).content})
        (held,) = [one for one in at.held if one.route == "small"]
        assert held.route == "small" and held.session.limits.window == 8_000
        assert any(isinstance(e, CompactionDone) for e in at.sink.events)
        assert server.received[-1].path == "/nowhere/v1/messages"
        assert [len(b["messages"]) for b in at.bodies if "plain" in str(b["messages"][0])] == list(range(1, 16, 2))


@in_loop
async def test_the_begun_answer_of_a_client_goes_behind_the_view(tmp_path: Path) -> None:
    """GW-2: a prefill is no message of the history, and is passed on as it is."""
    rules = ModelRules(window_tokens=WINDOW, prefill=True)
    upstream = FakeUpstream(rules=rules, script=["{}", "x", '"a": 1}'])
    async with fake(upstream) as server, serving(tmp_path, server) as at:
        client = at.claude(max_retries=0)
        first: list[Any] = [{"role": "user", "content": "hello"}]
        await ask(client, first)
        block = {"type": "tool_result", "tool_use_id": "t1", "content": "a line of a file\n" * 6_000}
        call = {"type": "tool_use", "id": "t1", "name": "Read", "input": {"file_path": "a"}}
        history: list[Any] = [
            {"role": "user", "content": "read"},
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [block]},
        ]
        await ask(client, history, tools=TOOLS)
        await ask(client, [*history, {"role": "assistant", "content": "{"}], tools=TOOLS)
        sent = at.bodies[-1]["messages"]
        assert sent[-1] == {"role": "assistant", "content": "{"} and len(str(sent[2])) < 5_000
        assert at.metric("perdure_unrecorded_total", reason="prefill") == 1


@pytest.mark.parametrize(("agent", "refused"), [("claude-cli/2.1.197 (external, cli)", ["t1"]), ("my-agent/1.0", [])])
@in_loop
async def test_of_claude_code_alone_it_is_known_which_calls_were_refused(
    tmp_path: Path, agent: str, refused: list[str]
) -> None:
    """CMP-15, SEC-1: it words the failures of its own tools; what a server brings, or another client, is as it is."""
    no = "The user doesn't want to proceed with this tool use. To tell you how to proceed, the user said:\nnot yet"
    calls = [
        {"type": "tool_use", "id": f"t{n}", "name": name, "input": {}} for n, name in ((1, "Edit"), (2, "mcp__a__b"))
    ]
    results = [{"type": "tool_result", "tool_use_id": f"t{n}", "content": no, "is_error": True} for n in (1, 2)]
    async with fake() as server, serving(tmp_path, server) as at:
        client = anthropic.AsyncAnthropic(api_key=KEY, base_url=at.url, default_headers={"user-agent": agent})
        messages: list[Any] = [{"role": "user", "content": "Mend it"}, {"role": "assistant", "content": calls}]
        await ask(client, [*messages, {"role": "user", "content": results}])
        await client.close()
        (held,) = at.held
        said = [item.message for item in held.session.view.items]
        assert [one.call for message in said for one in message.refused] == refused
