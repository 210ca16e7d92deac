"""LIB-5: the face takes plain data, refuses natural mistakes in one clear line, and gives plain data."""

from __future__ import annotations

import gc
import json
import pydoc
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

import perdure.sync
from perdure import Agent, Message, Permissions, Session, Tool, connect, memory_tool, recall_tool
from perdure.errors import (
    BadSetting,
    ModelGaveUp,
    NotAwaited,
    PerdureError,
    RecordRefused,
    SessionBusy,
    SessionClosed,
    SessionInUse,
    SessionNotFound,
    WrongLoop,
)
from perdure.testing import ScriptedModel, check_anthropic, say, tool_use
from perdure.transcript.blocks import FIELDS
from perdure.transcript.messages import CallIds, count_call

pytestmark = pytest.mark.unit

USE = {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Oslo"}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "rain"}
OBJECT = {"type": "object", "properties": {}}
TOOL = {"name": "weather", "description": "The weather.", "input_schema": OBJECT}


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(content)}


def assistant(*content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(content)}


# What is done by mistake, and what the message has to say.
SAID: dict[str, tuple[Any, str]] = {
    "no content": ({"role": "user"}, "no content to say: give `content` a text or a list of blocks"),
    "no role": ({"content": "x"}, "no role: say who speaks"),
    "an empty text": ("", "its text is empty"),
    "a blank text": (" \n", "its text is empty"),
    "nothing": (None, "must be a Message, a text, or an object with role and content, not nothing"),
    "a number": (3, "not int"),
    "bytes": (b"x", "not bytes"),
    "a list in place of several": ([{"role": "user", "content": "x"}], "not list"),
    "an unknown role": (
        {"role": "bot", "content": "x"},
        "unknown role 'bot': it must be user, assistant, tool or system",
    ),
    "a number as content": ({"role": "user", "content": 3}, "must be a text or a list of blocks, not int"),
    "one block as content": ({"role": "user", "content": {"type": "text", "text": "x"}}, "list of blocks, not dict"),
    "a block without a type": (user({"text": "x"}), 'content[0] has no type: a text is {"type": "text"'),
    "a text block without text": (user({"type": "text"}), "content[0]: this text block needs `text`"),
    "a use by the user": (user(USE), "it can't stand in a message of the user"),
    "a result by the assistant": (assistant(RESULT), "it can't stand in a message of the assistant"),
    "a result that nobody called for": (user(RESULT), "answers 't1', which nobody called"),
    "OpenAI's, without an id": ({"role": "tool", "content": "x"}, "no tool_call_id: say which call it answers"),
    "OpenAI's, for no call": (
        {"role": "tool", "tool_call_id": "c", "content": "x"},
        "answers 'c', which nobody called",
    ),
    "an image without a source": (user({"type": "image"}), "content[0]: this image block needs `source`"),
    "a result without the id of its call": (
        user({"type": "tool_result", "content": "rain"}),
        "this tool_result block needs `tool_use_id`, the id of the tool_use that it answers",
    ),
    "a result that is an object": (
        user({**RESULT, "content": {"rain": 1}}),
        "`content` of this tool_result block must be a text or a list, not an object",
    ),
    "a number as a text": (user({"type": "text", "text": 3}), "`text` of this text block must be a text, not a number"),
    "a slip in a type": (user({"type": "tool_reslt", "tool_use_id": "t1"}), "no such type: did you mean tool_result?"),
    "an unknown type": (user({"type": "hologram"}), "there is no such type: write one of container_upload, document"),
    "an unknown type in a result": (
        user({**RESULT, "content": [{"type": "txt", "text": "rain"}]}),
        "content[0]: there is no type 'txt' in a result: did you mean text?",
    ),
    "a slip by the assistant": (assistant({**USE, "type": "tool_ues"}), "no such type: did you mean tool_use?"),
    "a slip in a Message": (Message.of("user", [{"type": "tool_reslt"}]), "did you mean tool_result?"),
    "a slip in a field of a result": (
        user({"type": "tool_result", "tool_use_id": "t1", "contents": "rain"}),
        "there is no field 'contents': did you mean content?",
    ),
    "a field in other letters": (user({**RESULT, "isError": True}), "no field 'isError': did you mean is_error?"),
    "a slip in a field in a result": (
        user({**RESULT, "content": [{"type": "text", "text": "rain", "cachecontrol": {}}]}),
        "content[0]: there is no field 'cachecontrol': did you mean cache_control?",
    ),
    "a slip in a cache marker": (
        user({"type": "text", "text": "x", "cache_control": {"type": "ephemeral", "tl": "1h"}}),
        "cache_control: there is no field 'tl': did you mean ttl?",
    ),
    "a slip in a field of a use": (assistant({**USE, "toolsetname": "x"}), "did you mean toolset_name?"),
    "a slip in a field of a Message": (Message.of("user", [{**RESULT, "iserror": True}]), "did you mean is_error?"),
    "a slip in OpenAI's calls": (
        {**assistant("x"), "tool_cals": []},
        ": there is no field 'tool_cals': did you mean tool_calls?",
    ),
    "a key that is a number": ({**assistant(USE), 3: "x", "tool_cals": []}, "there is no field 'tool_cals'"),
    "a slip in OpenAI's arguments": (
        {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "w", "argument": "{}"}}]},
        "tool_calls[0]: there is no field 'argument': did you mean arguments?",
    ),
    "a result without a message": (
        RESULT,
        'only a tool_result block: say it in a message, as {"role": "user", "content": [block]}',
    ),
    "results without a message": (
        [RESULT],
        'only a tool_result block: say it in a message, as {"role": "user", "content": blocks}',
    ),
    "an input that is a text": (assistant({**USE, "input": "{}"}), "`input` is no object"),
    "a use without an id": (
        assistant({"type": "tool_use", "name": "w", "input": {}}),
        "tool_use block needs `id`",
    ),
    "what JSON has no value for": (user({"type": "text", "text": {1}}), "text is set, which JSON has no value for"),
    "half a character": ("\ud800", "half a surrogate pair"),
    "a chunk of a stream": (
        {"choices": [{"delta": {"content": "x"}}]},
        "append what a whole answer holds, not a chunk",
    ),
}

PREFIXES: dict[str, tuple[dict[str, Any], str]] = {
    "a number as system": ({"system": 3}, "system must be a text, or a list of texts and blocks, not int"),
    "an image as system": ({"system": [{"type": "image"}]}, "system[0]: malformed image block"),
    "one tool in place of a list": ({"tools": TOOL}, "tools must be a list of definitions, not dict"),
    "a name as tools": ({"tools": "weather"}, "tools must be a list of definitions, not str"),
    "a tool without a schema": ({"tools": [{"name": "x"}]}, "tools[0]: input_schema is missing"),
    "a tool without a name": ({"tools": [{"input_schema": OBJECT}]}, "tools[0]: it has no name"),
    "a slip in a tool": (
        {"tools": [{**TOOL, "descripton": "x"}]},
        "tools[0]: there is no field 'descripton': did you mean",
    ),
    "a slip in OpenAI's tool": (
        {"tools": [{"type": "function", "function": {"name": "x", "paramters": OBJECT}}]},
        "tools[0]: function: there is no field 'paramters': did you mean parameters?",
    ),
    "a function that doesn't say so": (
        {"tools": [{"name": "x", "parameters": OBJECT}]},
        'tools[0]: OpenAI\'s tools say what they are: {"type": "function", "name":',
    ),
    "a slip in the system prompt": (
        {"system": [{"type": "text", "text": "x", "cachecontrol": None}]},
        "system[0]: there is no field 'cachecontrol'",
    ),
    "a tool twice": ({"tools": [recall_tool, recall_tool]}, "tools[1]: another tool is called 'recall' already"),
    "a function as a tool": ({"tools": [print]}, "tools[0] must be an object, not builtin_function_or_method"),
    "a number as model": ({"model": 3}, "3 is no model"),
    "a blank model": ({"model": " "}, "model must be the name of a model"),
}


async def records(session: Session) -> list[Any]:
    return [placed.record for placed in (await session.ports.journal.load(whole=True)).records]


async def refused(do: Awaitable[Any], words: str) -> PerdureError:
    with pytest.raises(PerdureError) as told:
        await do
    assert words in str(told.value) and "\n" not in str(told.value)
    return told.value


@pytest.mark.parametrize("name", SAID)
def test_what_cannot_be_said_is_refused_before_anything_is_written(name: str) -> None:
    """LIB-5, ENG-7: on its own, and behind something that could have been said."""
    given, words = SAID[name]

    async def body() -> None:
        async with Session.in_memory() as session:
            await session.append("Hello")
            before, view = await records(session), session.messages()
            await refused(session.append(given), words)
            await refused(session.append("this one is fine", given), words)
            await refused(session.run(["fine", given] if isinstance(given, list) else given, ScriptedModel()), "")
            assert await records(session) == before and session.messages() == view

    anyio.run(body if given is not None else lambda: _without_run(given, words))


async def _without_run(given: Any, words: str) -> None:
    """`anyio.run(None)` is no mistake: it asks with what is there."""
    async with Session.in_memory() as session:
        await refused(session.append(given), words)
        assert not await records(session)


@pytest.mark.parametrize("name", PREFIXES)
def test_a_prefix_that_no_request_could_have_is_refused(name: str) -> None:
    """LIB-5, ENG-7, finding D6: and what stood there before stays."""
    given, words = PREFIXES[name]

    async def body() -> None:
        async with Session.in_memory() as session:
            await session.set_prefix(model="claude-sonnet-5-5", system="You are helpful.", tools=[TOOL])
            before = await records(session)
            await refused(session.set_prefix(**given), words)
            assert await records(session) == before

    anyio.run(body)


def test_wrong_order_is_refused() -> None:
    async def body() -> None:
        async with Session.in_memory() as session:
            await refused(session.prepare(), "nothing was said yet: append a message first")
            await refused(session.run(None, ScriptedModel()), "nothing was said yet")
            await session.append("What is the weather?", assistant(USE))
            await refused(session.append(user({**RESULT, "tool_use_id": "t2"})), "answers 't2', which nobody called")
            await session.append(user(RESULT))
            await refused(session.append(user(RESULT)), "answers 't1', which has its result already")
            await refused(session.append({"role": "system", "content": "x"}), "use set_prefix(system=…)")
            await refused(session.run({"role": "system", "content": "x"}, ScriptedModel()), "use set_prefix(system=…)")

    anyio.run(body)


@pytest.mark.parametrize(
    ("do", "words"),
    [
        (lambda s: s.run("hi"), "no model to ask: give one to run"),
        (lambda s: s.run("hi", "cloude"), "'cloude' names no model"),
        (lambda s: s.run("hi", "openai:gpt-6#PERDURE_NO_SUCH_KEY"), "needs a key: set PERDURE_NO_SUCH_KEY"),
        (lambda s: s.run("hi", ScriptedModel), "is no model: give its name, or what connect gives"),
        (lambda s: s.prepare("gemini"), "'gemini' is no protocol here: write 'anthropic', 'openai' or 'responses'"),
        (lambda s: s.rewind(), "the session has 0 prompts to go back to"),
        (lambda s: s.rewind("nope"), "nothing in this session has that id"),
        (lambda s: s.undo_rewind(), "there is no rewind to undo"),
        (lambda s: s.undo_compaction(), "there is no compaction to undo"),
        (lambda s: s.recall("nope"), "nothing here has the id 'nope'"),
        (lambda s: s.recall(3), "id must be a text, not int"),
        (lambda s: s.pin(""), "nothing to pin"),
        (lambda s: s.unpin("x"), "no pin 'x'"),
        (lambda s: s.compact(focus=3), "focus must be a text, not int"),
    ],
)
def test_other_mistakes_with_a_session(do: Callable[[Session], Awaitable[Any]], words: str) -> None:
    async def body() -> None:
        async with Session.in_memory() as session:
            if "protocol" in words:
                await session.append("Hello")
            await refused(do(session), words)

    anyio.run(body)


def test_a_request_waits_for_the_results_of_tools() -> None:
    """LIB-5, TURN-9: calls are given up only when somebody says something else; a late result is refused, not lost."""
    other = {**USE, "id": "t2"}
    late = user({**RESULT, "tool_use_id": "t2"})

    async def body() -> None:
        async with Session.in_memory() as session:
            await session.append("Weather?", assistant(USE, other))
            before = await records(session)
            await refused(
                session.append(assistant(USE)), "'t1' was called already and has no result yet: append it once"
            )
            words = "no result yet for weather (t1), weather (t2): append what each tool gave"
            await refused(session.prepare(), words)
            await refused(session.prepare("openai"), words)
            await refused(session.run(None, ScriptedModel()), words)
            await refused(session.run(user(RESULT), ScriptedModel()), "no result yet for weather (t2): append what")
            assert await records(session) == before and [one.id for one in session.open_calls()] == ["t1", "t2"]
            await session.append(user(RESULT))
            await refused(session.prepare(), "no result yet for weather (t2)")
            assert [(one.id, one.input) for one in session.open_calls()] == [("t2", {"city": "Oslo"})]
            await session.append("Never mind.")
            request = await session.prepare()
            results = {one["tool_use_id"]: one["content"] for one in request.data["messages"][-1]["content"][:2]}
            assert results["t1"] == "rain" and "No result" in str(results["t2"]) and not session.open_calls()
            for given in (late, Message.of("user", late["content"])):
                await refused(session.append(given), "answers 't2', but the model was told that there is no result")

    anyio.run(body)


def test_what_a_crash_came_between_is_there_again(tmp_path: Path) -> None:
    """LIB-5: a program that goes on may answer the calls that were open, or say something else."""

    async def body() -> None:
        for identity in ("answered", "given-up"):
            async with Session.create(tmp_path, home=tmp_path / "home", id=identity) as session:
                await session.append("Weather?", assistant(USE))
            async with Session.open(identity, home=tmp_path / "home") as session:
                (use,) = session.open_calls()
                model = ScriptedModel(["It rains."])
                await session.set_prefix(tools=[TOOL])
                said = user({**RESULT, "tool_use_id": use.id}) if identity == "answered" else "Never mind."
                await session.run(said, model)
                sent = json.dumps(json.loads(model.requests[0].body)["messages"])
                assert ("rain" in sent, "No result" in sent) == (identity == "answered", identity == "given-up")

    anyio.run(body)


def test_a_call_that_was_turned_down_keeps_that_under_its_own_id(tmp_path: Path) -> None:
    """CMP-15, LIB-5: also where a server counts its calls anew, and each gets an id of its own."""

    async def body() -> None:
        async with Session.create(tmp_path, home=tmp_path / "home") as session:
            await session.append("Weather?")
            for number in range(2):
                use = {"type": "tool_use", "id": "call_0", "name": f"tool_{number}", "input": {}}
                await session.append({"role": "assistant", "content": [use]})
                no = {"type": "tool_result", "tool_use_id": "call_0", "content": "no", "is_error": True}
                await session.append(Message.of("user", [no], refused=["call_0"]))
            said = [one.call for item in session.view.items for one in item.message.refused]
            assert said == ["call_0", "call_0__again2"]

    anyio.run(body)


def test_a_server_may_count_its_calls_anew_in_each_answer(tmp_path: Path) -> None:
    """LIB-5: `append` and `run` keep them apart, and each result finds its call, also in another process."""
    home = tmp_path / "home"

    def call(name: str) -> dict[str, Any]:
        return {"id": "call_0", "type": "function", "function": {"name": name, "arguments": "{}"}}

    async def body() -> None:
        async with Session.create(tmp_path, home=home, id="mine") as session:
            await session.append("Weather?")
            for number in range(3):
                await session.append({"role": "assistant", "content": None, "tool_calls": [call(f"tool_{number}")]})
                await session.append({"role": "tool", "tool_call_id": "call_0", "content": f"result {number}"})
            again = {"role": "tool", "tool_call_id": "call_0", "content": "x"}
            await refused(session.append(again), "answers 'call_0', which has its result already")
        async with Session.open("mine", home=home) as session:
            told = (await session.prepare("openai")).data["messages"]
            uses = {one["tool_calls"][0]["id"]: one["tool_calls"][0] for one in told if one.get("tool_calls")}
            results = {one["tool_call_id"]: one["content"] for one in told if one["role"] == "tool"}
            assert list(uses) == ["call_0", "call_0__again2", "call_0__again3"] == list(results)
            assert [one["function"]["name"] for one in uses.values()] == ["tool_0", "tool_1", "tool_2"]
            assert list(results.values()) == ["result 0", "result 1", "result 2"]
            assert await session.recall("call_0__again2") == "result 1"
        for number in range(2):  # a server that was started anew
            model = ScriptedModel([say(tool_use("weather", {"city": "Oslo"}, id="toolu_1")), "It rains."])
            async with Session.open("mine", home=home) as session:
                await session.set_prefix(tools=[TOOL])
                (use,) = (await session.run("Weather?", model)).tool_uses
                assert [one.id for one in session.open_calls()] == [use.id]
                assert use.id.endswith("__again2") == (number == 1)
                assert (await session.run(user({**RESULT, "tool_use_id": use.id}))).text == "It rains."

    anyio.run(body)


def test_each_call_of_one_answer_has_an_id_of_its_own() -> None:
    """LIB-5: `run` gives out ids that differ; of an answer that is appended, the results could not be told apart."""

    async def body() -> None:
        async with Session.in_memory() as session:
            await session.append("Weather?")
            await refused(session.append(assistant(USE, USE)), "'t1' was called already and has no result yet")
            twice = ScriptedModel([say(tool_use("weather", {}, id="t1"), tool_use("weather", {}, id="t1"))])
            await session.set_prefix(tools=[TOOL])
            uses = (await session.run(None, twice)).tool_uses
            assert [use.id for use in uses] == ["t1", "t1__again2"]

    anyio.run(body)


def test_ids_that_a_compaction_replaced_are_not_given_again() -> None:
    """LIB-5, CMP-11: what is kept tells how far a server counted; an undo brings no two calls of one id together."""
    behind = CallIds((), (), counts={}, unseen=9)
    drawn = ("call_9aBcD3fGh1jKlMnOpQrStUvW", "toolu_01A09q90qw90lq917835lq9", "aB3dE5f7G")
    assert [behind.call(one) for one in ("call_0", *drawn, "call_0")] == ["call_0__again10", *drawn, "call_0__again11"]
    called, counts = ("call_0__again7", "call_1", "call_0_of_mine"), dict[str, int]()
    for one in called:
        count_call(one, counts)
    ids = CallIds(called, ("call_1",), counts=counts)
    assert [ids.call(one) for one in ("call_0", "call_0", "call_1", "call_2", "call_0__again12")] == [
        *("call_0__again8", "call_0__again9", "call_1__again2", "call_2", "call_0__again12")
    ]
    assert [ids.result(one) for one in ("call_0", "call_1", "call_1", "call_1", "call_0__again12")] == [
        *("call_0__again8", "call_1", "call_1__again2", None, "call_0__again12")
    ]


def test_an_undone_compaction_brings_no_id_twice() -> None:
    """LIB-5, CMP-11: also where a server began to count anew behind it."""
    result = {**RESULT, "tool_use_id": "call_0"}

    async def body() -> None:
        async with Session.in_memory(settings={"window_tokens": 60_000}) as session:
            await session.append("Weather?", assistant({**USE, "id": "call_0"}), user(result))
            for number in range(30):
                await session.append(f"Question {number}: " + "words " * 300, Message.of("assistant", "Answer. " * 200))
            assert (await session.compact()).done and "call_0" not in session.view.calls
            await session.append("Again?", assistant({**USE, "id": "call_0"}), user({**result, "content": "snow"}))
            assert (await session.undo_compaction()).done
            await session.set_prefix(model="claude-sonnet-5-5", tools=[TOOL])
            request = await session.prepare()
            assert not check_anthropic(request.body)
            blocks = [block for message in request.data["messages"] for block in message["content"]]
            assert [one["content"] for one in blocks if one["type"] == "tool_result"] == ["rain", "snow"]

    anyio.run(body)


def test_fields_that_look_like_no_slip_are_kept() -> None:
    """LIB-5, ENG-1: APIs grow; and what a provider says of its own accord isn't ours to correct."""
    result, tool = {**RESULT, "shade": 1}, {**TOOL, "output_schema": OBJECT, "input_examples": []}
    native = {"type": "web_search_20260209", "name": "web_search", "max_usage": 3}

    async def body() -> None:
        async with Session.in_memory() as session:
            await session.set_prefix(tools=[tool, native])
            use = {**USE, "callers": {"type": "direct"}}
            await session.append("Weather?", {"id": "msg_1", **assistant(use)}, user(result))
            assert session.messages()[1:] == [assistant(use), user(result)]

    anyio.run(body)


def test_the_fields_that_are_known_are_those_that_the_fake_server_takes() -> None:
    """LIB-5: what a program may write and what is refused for good is one list."""
    from perdure.testing.block_rules import _TYPES

    shapes = {kind: {"type", *shape.__struct_fields__} for kind, shape in _TYPES.items() if shape is not None}
    assert {kind: set(fields) for kind, fields in FIELDS.items()} == shapes


def test_what_a_provider_refuses_for_good_is_named_and_can_be_taken_back() -> None:
    """LIB-5, TURN-11: the error says which message it is, and what frees the session of it."""

    async def body() -> None:
        async with Session.in_memory() as session:
            model = ScriptedModel([say(tool_use("weather", {"city": "Oslo"}, id="t1")), "Rain.", "Hello."])
            await session.set_prefix(tools=[TOOL])
            await session.run("Weather?", model)
            prompt, answer = (item.message.id for item in session.view.items)
            with pytest.raises(ModelGaveUp, match=r"tool_result.shade: Extra inputs are not permitted") as told:
                await session.run(user({**RESULT, "shade": 1}))
            refused = session.view.items[2].message.id
            assert f"messages.2.content.0 is the tool_result in message {refused}, and would be" in str(told.value)
            assert str(told.value).endswith(f"rewind({prompt!r}) takes it back")
            assert await session.rewind(prompt) == "Weather?" and answer not in session.view.positions
            assert (await session.run("Hello")).text == "Rain."

    anyio.run(body)


def test_help_shows_what_programs_use() -> None:
    """LIB-5: neither `help` nor `dir` shows what the engine is made of, and a session isn't made by its class."""
    told = pydoc.render_doc(Session, renderer=pydoc.plaintext)
    assert "set_prefix(" in told and "open_calls(" in told
    assert not [word for word in ("commit_boundary", "SessionPorts", "_keepers", "taken_for") if word in told]
    with pytest.raises(BadSetting, match=r"open a session with Session.create\(…\)"):
        Session()  # type: ignore[call-arg]

    async def body() -> None:
        async with Session.in_memory() as session:
            assert dir(session) == dir(Session) and "view" in dir(session) and "ports" not in dir(session)

    anyio.run(body)


def test_strangers_of_a_provider_are_kept() -> None:
    """ENG-1, LIB-5: an answer may hold what we don't know yet, however it is called."""
    stranger, other = {"type": "tool_uses", "of": "tomorrow"}, {"type": "hologram", "data": "x"}

    async def body() -> None:
        async with Session.in_memory() as session:
            await session.append("Hello", {"id": "msg_1", **assistant(stranger)})
            await session.append(assistant(other))
            assert session.messages()[1] == assistant(stranger, other)

    anyio.run(body)


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("anthropic:claude-sonnet-5-5", "claude-sonnet-5-5"),
        ("ollama:qwen3:8b@http://127.0.0.1:9/v1", "qwen3:8b"),
        ("qwen3:8b", "qwen3:8b"),
        ("claude-sonnet-5-5", "claude-sonnet-5-5"),
    ],
)
def test_the_prefix_takes_a_model_as_connect_does(given: str, sent: str) -> None:
    """LIB-5: a model is named in one way everywhere."""

    async def body() -> None:
        async with Session.in_memory() as session:
            await session.append("Hello")
            await session.set_prefix(model=given)
            assert (await session.prepare()).data["model"] == sent

    anyio.run(body)


def test_the_faces_are_not_mixed() -> None:
    """LIB-5: a session of one face given to a tool of the other, and `with` where `async with` is meant."""

    async def body() -> None:
        async with Session.in_memory() as session:
            with pytest.raises(WrongLoop, match=r"recall_tool.run takes a session of perdure.sync here"):
                perdure.sync.recall_tool.run(session, {"query": "x"})  # type: ignore[arg-type]
        with pytest.raises(NotAwaited, match=r"write `async with Session.in_memory\(…\) as …`"), Session.in_memory():
            pass

    anyio.run(body)
    with perdure.sync.Session.in_memory() as session:

        async def other() -> None:
            for asked in (recall_tool.run(session, {}), memory_tool.run(session, {})):  # type: ignore[arg-type]
                await refused(asked, "takes a session of perdure; for one of perdure.sync")

        anyio.run(other)


def test_a_closed_session_says_so() -> None:
    async def body() -> None:
        session = await Session.in_memory(id="mine")
        await session.append("Hello")
        await session.close()
        await session.close()
        calls = (session.append("x"), session.prepare(), session.run("x", ScriptedModel()), session.compact())
        for do in (*calls, session.recall("x"), session.search("x"), session.pin("x"), session.rewind()):
            told = await refused(do, "the session mine is closed: open it again with Session.open('mine')")
            assert isinstance(told, SessionClosed)
        assert session.messages() and "closed" in repr(session)

    anyio.run(body)


def test_who_forgets_to_await_is_told() -> None:
    opening = Session.create(".", home="home")
    with pytest.raises(
        NotAwaited, match=r"was not awaited: write `await Session.create\(…\)`, .* import it from perdure.sync$"
    ):
        opening.append("x")  # type: ignore[attr-defined]
    assert not Path("home").exists() and not hasattr(opening, "__len__")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del opening
        gc.collect(1)  # nothing was begun, so nothing complains


def test_a_session_that_is_not_there_is_looked_for_where_it_should_be(tmp_path: Path, monkeypatch: Any) -> None:
    """LIB-5, CLI-5: the command that lists sessions looks into the home that the program gave."""
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "mine"))

    async def body() -> None:
        await refused(
            Session.open("nope", home=tmp_path / "its home").__aenter__(),
            f"no session 'nope' under {tmp_path}/its home/projects: "
            f"`PERDURE_HOME='{tmp_path}/its home' perdure sessions` lists them",
        )
        await refused(Session.open("nope").__aenter__(), "mine/projects: `perdure sessions` lists them")

    anyio.run(body)


class _Lines:
    """A model whose stream is no async generator."""

    def __init__(self, stream: Callable[[Any], Any]) -> None:
        self.about, self.stream = ScriptedModel().about, stream


async def _no_generator(request: Any) -> list[Any]:
    return []


@pytest.mark.parametrize(
    ("stream", "given"), [(lambda request: iter([]), "list_iterator"), (_no_generator, "coroutine")]
)
def test_a_model_whose_stream_is_no_generator_is_told(stream: Callable[[Any], Any], given: str) -> None:
    """LIB-3, LIB-5: in words, and the session stays as it is."""

    async def body() -> None:
        async with Session.in_memory() as session:
            words = f"_Lines.stream must be an async generator, which yields deltas and then a Reply; it gave {given}"
            await refused(session.run("Hello", _Lines(stream)), words)  # type: ignore[arg-type]
            assert (await session.run(None, ScriptedModel(["Hi."]))).text == "Hi."

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        anyio.run(body)
        gc.collect(1)


def test_two_writers(tmp_path: Path) -> None:
    """LIB-5: another holder of the session, and another task on the same object; readers may be there."""

    async def body() -> None:
        async with Session.create(tmp_path, home=tmp_path / "home", id="mine") as session:
            assert isinstance(await refused(_open(tmp_path, "mine"), "is being written by process"), SessionBusy)
            found: list[PerdureError] = []

            async def speak(text: str) -> None:
                try:
                    await session.run(text, ScriptedModel([f"You said {text}."]))
                except SessionInUse as e:
                    found.append(e)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(speak, "one")
                tasks.start_soon(speak, "two")
            assert [str(one) for one in found] == [
                "the session mine is in use by another task: await one call before the next"
            ]
            assert len(session.messages()) == 2
            async with Session.open("mine", home=tmp_path / "home", read_only=True) as reader:
                assert reader.messages() == session.messages()
                await refused(reader.append("x"), "opened read-only")
        assert isinstance(await refused(_open(tmp_path, "other"), "no session 'other'"), SessionNotFound)
        await refused(_open(tmp_path, "min"), "there is no session 'min': did you mean 'mine'?")

    anyio.run(body)


async def _open(folder: Path, name: str) -> Session:
    return await Session.open(name, home=folder / "home")


@pytest.mark.parametrize(
    ("do", "words"),
    [
        (
            lambda: Session.in_memory(settings={"windw_tokens": 3}),
            "no setting 'windw_tokens': did you mean window_tokens?",
        ),
        (
            lambda: Session.in_memory(settings={"window_tokens": "many"}),
            "window_tokens: 'many': has to be a whole number",
        ),
        (lambda: Session.in_memory(settings=3), "settings must be Settings, or an object with some of them, not int"),
        (
            lambda: Session.create(".", home=3),
            "home must be the path of a folder, postgresql://user@host/database or store.home(…), not 3",
        ),
        (lambda: Session.create(""), "project must be the path of a folder, not ''"),
        (lambda: connect("cloude:x"), "'cloude:x' names no model"),
        (lambda: connect(3), "must be a text such as 'anthropic:claude-…', not int"),
        (lambda: Tool.of(print, name="x", description="x", input_schema={}), "the tool 'x': input_schema is missing"),
        (lambda: Tool.of(print, name="", description="x", input_schema=OBJECT), "the tool '': it has no name"),
    ],
)
def test_mistakes_that_need_no_session(do: Callable[[], Any], words: str) -> None:
    with pytest.raises(PerdureError) as told:
        do()
    assert words in str(told.value)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"folder": "no-such-folder"}, "there is no such folder for the agent to work in"),
        ({"model": "cloude"}, "'cloude' names no model"),
        ({"permissions": Permissions(allow="Bash")}, "allow must be a list of rules such as ['Bash(git status:*)']"),
        ({"permissions": Permissions(deny=["Bash("])}, "not a permission rule: 'Bash('"),
        ({"permissions": Permissions(mode="yolo")}, "no permission mode 'yolo': write one of default, accept_edits"),  # type: ignore[arg-type]
        ({"tools": [TOOL]}, "is no Tool: make one with Tool.of(…)"),
        (
            {"tools": [Tool.of(print, name="Bash", description="x", input_schema=OBJECT)]},
            "the agent has a tool called 'Bash' already",
        ),
        ({"resume": "x"}, "leave out in_memory"),
    ],
)
def test_mistakes_with_an_agent(more: dict[str, Any], words: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)

    async def body() -> None:
        given = {"folder": ".", "model": ScriptedModel(), "in_memory": True, **more}
        with pytest.raises(PerdureError) as told:
            await Agent.create(**given)
        assert words in str(told.value)

    anyio.run(body)


# --- what is right ---------------------------------------------------------------------------------------------------


def test_both_protocols_in_and_out() -> None:
    """LIB-5: OpenAI's messages come in as they are, a whole response too, and both protocols go out."""

    async def body() -> None:
        async with Session.in_memory() as session:
            function = {"name": "weather", "description": "The weather.", "parameters": OBJECT}
            await session.set_prefix(
                model="gpt-6", system=("Be brief.",), tools=[{"type": "function", "function": function}]
            )
            await session.append({"role": "user", "content": [{"type": "text", "text": "Weather?"}]})
            call = {
                "id": "call_1",
                "type": "function",
                "function": {"name": "weather", "arguments": '{"city": "Oslo"}'},
            }
            message = {"role": "assistant", "content": None, "refusal": None, "tool_calls": [call]}
            choice = {"index": 0, "finish_reason": "tool_calls", "message": message}
            usage = {"prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 40}}
            await session.append({"id": "chatcmpl-1", "model": "gpt-6-1", "choices": [choice], "usage": usage})
            said = session.view.items[-1].message
            assert said.usage is not None and said.usage.cache_read_input_tokens == 40
            assert (said.response_id, said.model, said.stop_reason) == ("chatcmpl-1", "gpt-6-1", "tool_use")
            assert said.tool_uses[0].input == {"city": "Oslo"}
            await session.append({"role": "tool", "tool_call_id": "call_1", "content": "rain"})
            assert session.messages("openai") == [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "Weather?"},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
            ]
            assert session.messages()[1:] == [
                assistant({"type": "tool_use", "id": "call_1", "name": "weather", "input": {"city": "Oslo"}}),
                user({"type": "tool_result", "tool_use_id": "call_1", "content": "rain"}),
            ]
            asked = await session.prepare("openai")
            assert json.loads(asked.body) == asked.data and asked.data["messages"] == session.messages("openai")
            assert asked.data["tools"] == [{"type": "function", "function": function}]
            other = await session.prepare()
            assert other.data["model"] == "gpt-6" and other.data["tools"][0]["input_schema"] == OBJECT
            assert other.tokens > 0 and other.headers == {}

    anyio.run(body)


class FromSdk:
    """An answer as the SDKs give it: an object that knows its plain data."""

    def to_dict(self) -> dict[str, Any]:
        usage = {"input_tokens": 10, "output_tokens": 2}
        return {
            "id": "msg_1",
            "type": "message",
            "model": "claude",
            "usage": usage,
            **assistant({"type": "text", "text": "Hi."}),
        }


def test_the_answer_of_an_sdk_is_taken_as_it_is() -> None:
    async def body() -> None:
        async with Session.in_memory() as session:
            await session.append("Hello", FromSdk())
            assert session.messages() == [
                user({"type": "text", "text": "Hello"}),
                assistant({"type": "text", "text": "Hi."}),
            ]
            assert session.view.items[-1].message.usage is not None

    anyio.run(body)


def test_a_loop_with_tools_and_a_resume(tmp_path: Path) -> None:
    """LIB-5: `reply.tool_uses` has id, name and input; the session goes on in another process with the same bytes."""
    model = ScriptedModel([say(tool_use("weather", {"city": "Oslo"}, id="t1")), "It rains.", "Still raining."])

    async def body() -> None:
        async with Session.create(tmp_path, home=tmp_path / "home", id="mine") as session:
            await session.set_prefix(model=model, system="Be brief.", tools=[TOOL, recall_tool, memory_tool])
            reply = await session.run("Weather?")
            (use,) = reply.tool_uses
            assert (use.id, use.name, use.input) == ("t1", "weather", {"city": "Oslo"})
            assert repr(use) == "ToolUse(id='t1', name='weather', input={\"city\":\"Oslo\"})"
            reply = await session.run(user(RESULT))
            assert reply.text == "It rains." and not reply.tool_uses
            assert [block.type for block in reply.blocks] == ["text"]
            said, before = session.messages(), len(await records(session))
            await session.set_prefix(model="scripted", system="Be brief.", tools=[TOOL, recall_tool, memory_tool])
            assert len(await records(session)) == before  # the same prefix again is no new one
        async with Session.open("mine", home=tmp_path / "home") as session:
            assert session.messages() == said and session.id == "mine"
            assert (await session.run("And now?", model)).text == "Still raining."

    anyio.run(body)


def test_the_context_is_shrunk_and_brought_back() -> None:
    async def body() -> None:
        async with Session.in_memory(settings={"window_tokens": 60_000}) as session:
            for number in range(30):
                await session.append(f"Question {number}: " + "words " * 300, Message.of("assistant", "Answer. " * 200))
            before, pin = session.context_usage().size, await session.pin("The port is 8080.")
            done = await session.compact(focus="the port")
            assert done.done and done.tokens_after < done.tokens_before and done.strategy == "ledger"
            assert session.context_usage().size < before
            assert "The port is 8080." in json.dumps(session.messages())
            undone = await session.undo_compaction()
            assert undone.tokens_after > undone.tokens_before
            await session.unpin(pin)
            assert (await session.rewind()).startswith("Question 29")
            await session.undo_rewind()
            hit = (await session.search("Question 7")).hits[0]
            assert "Question 7:" in await session.recall(hit.id)
        async with Session.in_memory() as session:
            assert "nothing_to_compact" in (await session.compact()).reason

    anyio.run(body)


def test_an_agent_with_a_tool_of_ones_own(tmp_path: Path) -> None:
    """LIB-5: functions, blocking or not, as tools; a question is answered by True or False."""
    asked: list[str] = []

    def blocking(given: dict[str, Any]) -> str:
        return f"rain in {given['city']}"

    async def waiting(given: dict[str, Any]) -> dict[str, Any]:
        await anyio.lowlevel.checkpoint()
        return {"snow": given["city"]}

    def answer(question: Any) -> bool:
        asked.append(question.tool)
        return bool(question.tool == "snow")

    schema = {**OBJECT, "required": ["city"]}
    tools = [
        Tool.of(blocking, name="rain", description="Rain.", input_schema=schema),
        Tool.of(waiting, name="snow", description="Snow.", input_schema=schema),  # type: ignore[arg-type]
    ]
    uses = [tool_use("rain", {"city": "Oslo"}), tool_use("rain", {}), tool_use("snow", {"city": "Bergen"})]

    async def body() -> None:
        model = ScriptedModel([say(*uses), "Wet."])
        permissions = Permissions(ask=["snow"], answer=answer)
        async with Agent.create(tmp_path, model=model, permissions=permissions, tools=tools, in_memory=True) as agent:
            done = await agent.run("Weather?")
            assert (done.text, done.stopped, done.calls) == ("Wet.", "done", 3)
            results = [block["content"] for block in agent.session.messages()[-2]["content"]]
            assert results[0] == "rain in Oslo" and results[2] == '{"snow":"Bergen"}'
            assert results[1] == "Invalid input for rain: city missing. Correct the input."
            assert asked == ["snow"]

    anyio.run(body)


def test_bad_setting_and_refusals_are_perdures() -> None:
    """Every mistake can be caught by one class."""
    assert issubclass(BadSetting, PerdureError) and issubclass(RecordRefused, PerdureError)
    assert issubclass(NotAwaited, AttributeError)


@pytest.mark.parametrize("model", ["claude-opus-5", "claude-haiku-4-5", "gpt-6", "gpt-5.4-mini", "unheard-of"])
def test_scripted_tool_calls_in_either_protocol_and_again_when_resumed(tmp_path: Path, model: str) -> None:
    """LIB-3: no request of ours is refused for what any model takes, and no id comes twice in a session."""

    async def body() -> None:
        for protocol in ("anthropic", "openai"):
            for _ in range(2):
                name = f"s-{protocol}"
                try:
                    session = await Session.open(name, home=tmp_path)
                except SessionNotFound:
                    session = await Session.create(tmp_path, home=tmp_path, id=name)
                async with session:
                    script = [say("Let me see.", tool_use("weather", {"city": "Oslo"})), "Rain."]
                    scripted = ScriptedModel(script, id=model, protocol=protocol)
                    await session.set_prefix(tools=[TOOL])
                    reply = await session.run("What is the weather?", scripted)
                    (use,) = reply.tool_uses
                    reply = await session.run(user({**RESULT, "tool_use_id": use.id}), scripted)
                    assert reply.text == "Rain."
                    assert scripted.upstream.statistics.refused == 0 == scripted.upstream.statistics.failed
                    has_calls = b'"tool_calls"' in scripted.requests[-1].body
                    assert has_calls == (protocol == "openai")

    anyio.run(body)


@pytest.mark.parametrize("name", ["ann@example.org", "conversation-1", "Ann", "../../etc/passwd", "日本語", "\ud800"])
def test_any_name_of_a_conversation_has_one_session(name: str, tmp_path: Path) -> None:
    """LIB-4: begun once and gone on with, from any folder and by either face; the name is what listings show."""

    async def main() -> str:
        async with Session.named(name, tmp_path / "app", home=tmp_path / "home") as session:
            await session.append("The number is 7.")
            return session.id

    tmp_path.joinpath("app").mkdir()
    identity = anyio.run(main)
    with perdure.sync.Session.named(name, tmp_path / "elsewhere", home=tmp_path / "home") as session:
        assert session.id == identity and len(session.view.items) == 1
        shown = name if name.isprintable() else ascii(name)
        assert session.view.state.title.title == (None if name == identity else shown)
    with perdure.sync.Session.named(f"{name} ", home=tmp_path / "home") as other:
        assert other.id != identity and not other.view.items
    with perdure.sync.Session.named(name, owner="bob", home=tmp_path / "home") as theirs:
        assert theirs.id != identity and not theirs.view.items
    assert len(list((tmp_path / "home").rglob("journal.jsonl"))) == 3


def test_a_name_is_no_part_of_an_id_and_no_path(tmp_path: Path) -> None:
    """LIB-4: sessions that `open` would find by less than their id, or by a path, are somebody else's."""
    home = tmp_path / "home"
    with perdure.sync.Session.create(tmp_path, home=home, id="session-run-10") as there:
        there.append("Somebody else's words.")
    (folder,) = home.rglob("session-run-10")
    for name in ("run-10", "run", "session-run-1", "SESSION-RUN-10", str(folder)):
        with perdure.sync.Session.named(name, tmp_path, home=home) as session:
            assert not session.view.items, name


def test_the_same_id_in_several_projects_is_the_projects_own(tmp_path: Path) -> None:
    """LIB-4: where a program has given the id twice by itself; from a third folder it can't be told which is meant."""
    home = tmp_path / "home"
    for project in ("one", "two"):
        tmp_path.joinpath(project).mkdir()
        perdure.sync.Session.create(tmp_path / project, home=home, id="talk").close()
    for project in ("one", "two"):
        with perdure.sync.Session.named("talk", tmp_path / project, home=home) as session:
            assert str(session._inner.ports.journal.header.project).endswith(project)
    with pytest.raises(SessionNotFound, match="'talk' names 2 sessions"):
        perdure.sync.Session.named("talk", tmp_path / "three", home=home)


def test_a_named_session_is_busy_while_somebody_writes_it(tmp_path: Path) -> None:
    """LIB-4, ENG-4: of those who begin it at once one has it, and the others are told, as of any session."""

    async def main() -> list[str]:
        said = []

        async def begin() -> None:
            try:
                async with Session.named("a b", tmp_path, home=tmp_path / "home") as session:
                    await session.append("Hello")
                    await anyio.sleep(0.2)
                    said.append("ok")
            except SessionBusy:
                said.append("busy")

        async with anyio.create_task_group() as group:
            for _ in range(4):
                group.start_soon(begin)
        return said

    assert sorted(anyio.run(main)) == ["busy", "busy", "busy", "ok"]
    with perdure.sync.Session.named("a b", home=tmp_path / "home") as session:
        assert len(session.view.items) == 1 and session.view.state.title.title == "a b"


def test_a_title_that_a_person_gave_stays(tmp_path: Path) -> None:
    """LIB-4: the name is shown only where nothing else is, also where a crash came before it was kept."""
    from perdure.adapters.journal.store import id_for
    from perdure.transcript.records import Titled

    perdure.sync.Session.create(tmp_path, home=tmp_path / "home", id=id_for("a b")).close()

    async def main(title: str | None) -> str | None:
        async with Session.named("a b", tmp_path, home=tmp_path / "home") as session:
            if title is not None:
                await session.record(Titled(title=title))
            return session.view.state.title.title

    assert [anyio.run(main, one) for one in (None, "Mine", None)] == ["a b", "Mine", "Mine"]
