"""ENG-7: what couldn't become a valid request, or be read back, is refused before anything is written."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from perdure.adapters.config import load
from perdure.adapters.journal.in_memory import MemoryJournal
from perdure.cli.opened import read_session
from perdure.context.request import to_request
from perdure.engine.rewind import prompts, rewind_conversation
from perdure.engine.session import LiveSession
from perdure.errors import MalformedBlock, PerdureError, RecordRefused
from perdure.lab.report.timeline import timeline
from perdure.testing import ModelRules, check_anthropic, check_openai
from perdure.transcript.blocks import text_block, tool_problem
from perdure.transcript.messages import MOST_TOKENS, Message, MessageId, Usage
from perdure.transcript.records import (
    BlockChange,
    Calibrated,
    Collapsed,
    Compacted,
    Cursor,
    Front,
    Header,
    Neutralised,
    Noted,
    Pinned,
    Titled,
)
from perdure.wiring import create_session, memory_session, open_session

HEADER = Header(format="perdure-journal", version=1, session="s", created=0.0)
SCHEMA = {"type": "object", "properties": {}}
RULES = ModelRules(allow_unknown=True)


def deep(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {"type": "text", "text": "x"}
    for _ in range(levels):
        value = {"type": "text", "text": "x", "more": value}
    return value


def use(identity: Any = "toolu_1", name: Any = "Read", given: Any = None) -> dict[str, Any]:
    return {"type": "tool_use", "id": identity, "name": name, "input": {} if given is None else given}


def answer(identity: str, content: Any = "ok", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": identity, "content": content, **more}


Act = Callable[[LiveSession], Awaitable[Any]]


def said(*messages: Any) -> Act:
    return lambda session: session.append(*messages)


def recorded(make: Callable[[], Any]) -> Act:
    async def act(session: LiveSession) -> None:
        await session.record(make())

    return act


MISTAKES: dict[str, tuple[Act, str]] = {
    "no role": (said({"content": "hello"}), "has no role"),
    "unknown role": (said({"role": "robot", "content": "hello"}), "unknown role 'robot'"),
    "no content": (said({"role": "user"}), "has no content to say"),
    "content None": (said({"role": "user", "content": None}), "has nothing to say"),
    "empty content": (said({"role": "user", "content": []}), "content is empty"),
    "content a number": (said({"role": "user", "content": 3}), "not int"),
    "bytes": (said({"role": "user", "content": b"hello"}), "not bytes"),
    "bytes in a block": (said({"role": "user", "content": [{"type": "text", "text": b"x"}]}), "text is bytes"),
    "a set": (said({"role": "assistant", "content": [use(given={"a": {1, 2}})]}), "input.a is set"),
    "NaN": (said({"role": "assistant", "content": [use(given={"a": float("nan")})]}), "input.a is nan"),
    "half a pair": (said({"role": "user", "content": "\ud83d"}), "half a surrogate pair"),
    "half a pair in a block": (said({"role": "user", "content": [{"type": "text", "text": "\udc00"}]}), "surrogate"),
    "a key that is no text": (said({"role": "assistant", "content": [use(given={1: 2})]}), "key that is no text: 1"),
    "3,000 levels": (said({"role": "user", "content": [deep(3_000)]}), "nested too deeply"),
    "300 levels": (said({"role": "user", "content": [deep(300)]}), "nested deeper than 100"),
    "a block without a type": (said({"role": "user", "content": [{"text": "x"}]}), "has no type"),
    "no message at all": (said(17), "must be a Message, a text, or an object"),
    "a call by the user": (said({"role": "user", "content": [use()]}), "can't stand in a message of the user"),
    "a result by the model": (said({"role": "assistant", "content": [answer("x")]}), "message of the assistant"),
    "an image by the model": (
        said({"role": "assistant", "content": [{"type": "image", "source": {"type": "url", "url": "http://x"}}]}),
        "message of the assistant",
    ),
    "a bad id": (said({"role": "assistant", "content": [use("call.1")]}), "'call.1' has other characters"),
    "an empty id": (said({"role": "assistant", "content": [use("")]}), "other characters"),
    "an empty name": (said({"role": "assistant", "content": [use(name="")]}), "`name` must have 1 to 200"),
    "a long name": (said({"role": "assistant", "content": [use(name="n" * 201)]}), "`name` must have 1 to 200"),
    "input no object": (said({"role": "assistant", "content": [use(given=[1])]}), "`input` is no object"),
    "the same id twice": (said({"role": "assistant", "content": [use("a"), use("a")]}), "was called already"),
    "an unknown id": (said({"role": "user", "content": [answer("toolu_9")]}), "'toolu_9', which nobody called"),
    "an unknown id, OpenAI": (said({"role": "tool", "tool_call_id": "c9", "content": "x"}), "which nobody called"),
    "no tool_call_id": (said({"role": "tool", "content": "x"}), "no tool_call_id"),
    "tool_calls no list": (said({"role": "assistant", "tool_calls": 7}), "tool_calls must be a list"),
    "a nameless function": (
        said({"role": "assistant", "tool_calls": [{"id": "a", "function": {"arguments": "{}"}}]}),
        "function has no name",
    ),
    "an image that is none": (
        said({"role": "user", "content": [{"type": "image", "source": {"type": "base64", "data": "?"}}]}),
        "`source.media_type` is missing",
    ),
    "an image in an error": (
        said(
            {"role": "assistant", "content": [use("a")]},
            {"role": "user", "content": [answer("a", [{"type": "image", "source": {"type": "url", "url": "u"}}])]}
            | {"is_error": True},
            {"role": "user", "content": [answer("a", [{"type": "search_result"}])]},
        ),
        "search_result",
    ),
    "usage of another kind": (said({"role": "assistant", "content": "x", "usage": {"input_tokens": "9"}}), "usage"),
    "a late system message": (
        said({"role": "user", "content": "x"}, {"role": "system", "content": "y"}),
        "can only come first",
    ),
    "a message with a false role": (
        lambda s: s.append(Message(id=MessageId(""), role="robot", content=(), origin="user")),  # type: ignore[arg-type]
        "none of user, assistant and system",
    ),
    "a message of plain content": (
        lambda s: s.append(Message(id=MessageId(""), role="user", content=("hi",), origin="user")),  # type: ignore[arg-type]
        "make it with Message.of",
    ),
    "raw bytes that are no JSON": (
        lambda s: s.append(
            Message(
                id=MessageId(""),
                role="user",
                origin="user",
                content=(msgspec.Raw(b'{"type":"text","text":"\\ud83d"}'),),
            )
        ),
        "malformed",
    ),
    "a number that nothing holds": (
        lambda s: s.append(
            Message(
                id=MessageId(""),
                role="assistant",
                origin="model",
                content=(msgspec.Raw(b'{"type":"tool_use","id":"a","name":"b","input":{"x":1e999}}'),),
            )
        ),
        "out of range",
    ),
    "a false origin": (
        lambda s: s.append(Message.of("user", "hi", origin="nobody")),
        "nobody",
    ),
    "a tool without a schema": (
        recorded(lambda: Front(system=("You are helpful",), tools=({"name": "x"},))),
        "tools[0]",
    ),
    "a tool without a name": (recorded(lambda: Front(tools=[{"input_schema": SCHEMA}])), "it has no name"),
    "two tools of one name": (
        recorded(lambda: Front(tools=[{"name": "x", "input_schema": SCHEMA}] * 2)),
        "another tool is called 'x'",
    ),
    "a tool that is a text": (recorded(lambda: Front(tools=["x"])), "must be an object, not str"),  # type: ignore[list-item]
    "tools by name": (recorded(lambda: Front(tools="x")), "must be a list of definitions"),
    "a system that is bytes": (recorded(lambda: Front(system=b"x")), "not bytes"),  # type: ignore[arg-type]
    "a system with an image": (
        recorded(lambda: Front(system=[{"type": "image", "source": {"type": "url", "url": "u"}}])),
        "holds text alone",
    ),
    "a model that is a number": (recorded(lambda: Front(model=5)), "`str | null`, got `int` - at `model`"),  # type: ignore[arg-type]
    "a boundary beyond the system": (recorded(lambda: Front(system="a", dynamic_from=7)), "must be 0 to 1, not 7"),
    "raw JSON that is none": (recorded(lambda: Front(tools=(msgspec.Raw(b"{"),))), "record of type front"),
    "no record": (recorded(lambda: {"type": "pinned"}), "is no record"),
    "a title that is a number": (recorded(lambda: Titled(title=5)), "record of type titled"),  # type: ignore[arg-type]
    "a title of bytes": (recorded(lambda: Titled(title=b"x")), "title is bytes"),  # type: ignore[arg-type]
    "a ratio that is NaN": (recorded(lambda: Calibrated(model="m", ratio=float("nan"))), "ratio is nan"),
    "a note with a function": (recorded(lambda: Noted(kind="k", data={"f": print})), "data.f is builtin_function"),
    "a note with NaN": (recorded(lambda: Noted(kind="k", data={"f": [float("inf")]})), "data.f[0] is inf"),
    "a deep note": (recorded(lambda: Noted(kind="k", data=deep(3_000))), "nested too deeply"),
    "a pin without a name": (recorded(lambda: Pinned(id=None)), "record of type pinned"),  # type: ignore[arg-type]
    "a cursor to a number": (recorded(lambda: Cursor(name="a", message=3)), "record of type cursor"),  # type: ignore[arg-type]
    "an edit that is no block": (
        lambda s: s.commit((Neutralised(changes=(BlockChange(MessageId("first"), 0, msgspec.Raw(b"{")),)),), s.facts()),
        "record of type neutralised",
    ),
    "an edit that can't stand there": (
        lambda s: s.commit(
            (Neutralised(changes=(BlockChange(MessageId("first"), 0, msgspec.Raw(msgspec.json.encode(use()))),)),),
            s.facts(),
        ),
        "can't stand in a message of the user",
    ),
    "a projection of plain content": (
        recorded(
            lambda: Collapsed(
                id="c",
                first=MessageId("first"),
                last=MessageId("first"),
                projection=Message(id=MessageId("p"), role="user", content=("x",), origin="summary"),  # type: ignore[arg-type]
            )
        ),
        "malformed content block",
    ),
    **{
        f"a boundary with a state that can't be read: {state!r}": (
            lambda s, state=state: s.commit_boundary(
                Compacted(id="b", trigger="manual", strategy="supplied", summary=(), state=msgspec.Raw(state))
            ),
            "state",
        )
        for state in (b'{"messages":"x"}', b'{"ledger":[]}', b'{"in_play":{"states":1}}')
    },
}


async def begun(session: LiveSession) -> LiveSession:
    await session.record(Front(model="m", system="You are helpful.", tools=[{"name": "Read", "input_schema": SCHEMA}]))
    await session.append(Message.of("user", "hello", id=MessageId("first")))
    return session


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line_and_changes_nothing(name: str) -> None:
    """ENG-7: one clear line, and journal, blobs and view are as they were; in memory sessions too."""
    act, words = MISTAKES[name]

    async def main() -> None:
        journal = MemoryJournal(HEADER)
        session = await begun(await memory_session(journal=journal))
        before, view = (await journal.load(whole=True)).records, session.view.copy()
        with pytest.raises(PerdureError) as caught:
            await act(session)
        assert words in str(caught.value)
        assert "\n" not in str(caught.value)
        assert (await journal.load(whole=True)).records == before
        assert session.view == view
        await session.append({"role": "user", "content": "and it goes on"})
        assert not check_anthropic(to_request(session.view, session.facts()).body, model_rules=RULES)

    anyio.run(main)


@pytest.mark.parametrize("name", ["a tool without a schema", "bytes", "an empty name", "a deep note", "a set"])
def test_nothing_reaches_the_disk(name: str, tmp_path: Path) -> None:
    """ENG-7: not a byte of the journal moves, no blob is left, and whoever opens the session next finds it well."""
    act, _ = MISTAKES[name]

    def files() -> dict[str, bytes]:
        return {str(p): p.read_bytes() for p in tmp_path.rglob("*") if p.is_file() and "index" not in p.name}

    async def main() -> None:
        session = await begun(await create_session(tmp_path, project=tmp_path, session="s"))
        before = files()
        with pytest.raises((RecordRefused, MalformedBlock)):
            await act(session)
        assert files() == before
        await session.close()
        again = await open_session(tmp_path, "s")
        body = to_request(again.view, again.facts()).body
        assert not check_anthropic(body, model_rules=RULES)
        assert b"You are helpful." in body
        await again.close()

    anyio.run(main)


@pytest.mark.parametrize(
    "raw",
    [b'{"type":"text"}', b'{"type":"tool_use","name":"x"}', b'{"type":"tool_use","id":"a b","name":"","input":5}'],
)
def test_what_was_written_unchecked_is_no_trap(raw: bytes, tmp_path: Path) -> None:
    """ENG-7, CKP-4: a journal of before records were checked is opened, rewound and reported like any other."""

    async def main() -> None:
        session = await create_session(tmp_path, project=tmp_path, session="s")
        await session.append("hello")
        old = Message(id=MessageId("a1"), role="assistant", content=(msgspec.Raw(raw),), origin="model", at=1.0)
        await session.ports.journal.append((old,))
        await session.close()
        again = await open_session(tmp_path, "s")
        await again.append("and now?")
        prompt = (await prompts(again))[-1]
        assert (prompt.text, prompt.before) == ("and now?", "a1")
        await rewind_conversation(again, prompt.message.id)
        assert [item.message.id for item in again.view.items][1:] == ["a1"]
        await again.close()

    anyio.run(main)
    told = read_session("s", load({"PERDURE_HOME": str(tmp_path)}, cwd=tmp_path))
    assert timeline(told.records, lambda view: told.facts).all_turns == 1
    assert told.problems


def test_plain_data_is_taken_everywhere() -> None:
    """ENG-7: texts, dicts, Anthropic's and OpenAI's messages and tools make valid requests for both."""

    async def main() -> None:
        session = await memory_session()
        tool = {"type": "function", "function": {"name": "look", "parameters": SCHEMA, "description": "looks"}}
        await session.record(Front(model="m", tools=[tool, {"name": "Read", "input_schema": SCHEMA}]))
        await session.append(
            {"role": "system", "content": "You are helpful."},
            {"role": "user", "content": "What is in a.py?"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "functions.look:0",
                        "type": "function",
                        "function": {"name": "look", "arguments": '{"p": 1}'},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "functions.look:0", "content": "nothing"},
            {
                "role": "assistant",
                "content": [{"type": "text", "text": "Then I read it."}, use("toolu_1")],
                "usage": {"input_tokens": 10, "output_tokens": 5, "cache_creation": {"x": 1}},
                "id": "msg_1",
                "model": "claude-x",
            },
            {"role": "user", "content": [answer("toolu_1", [{"type": "text", "text": "x = 1"}]), "and now?"]},
        )
        await session.append("One more thing", {"role": "user", "content": [{"type": "input_text", "text": "please"}]})
        view, facts = session.view, session.facts()
        body = to_request(view, facts).body
        assert not check_anthropic(body, model_rules=RULES)
        assert not check_openai(to_request(view, facts, protocol="openai").body)
        sent = msgspec.json.decode(body)
        assert sent["system"][0]["text"] == "You are helpful."
        assert [t["name"] for t in sent["tools"]] == ["look", "Read"]
        assert [m["role"] for m in sent["messages"]] == ["user", "assistant", "user", "assistant", "user"]
        assert sent["messages"][1]["content"] == [
            {"type": "tool_use", "id": "functions_look_0", "name": "look", "input": {"p": 1}}
        ]
        assert view.items[3].message.usage == Usage(input_tokens=10, output_tokens=5)
        assert view.items[3].message.response_id == "msg_1"
        assert [item.message.origin for item in view.items[:3]] == ["user", "model", "tool"]

    anyio.run(main)


def test_a_front_of_plain_data_is_what_raw_blocks_would_be() -> None:
    """ENG-7: texts and dicts become raw blocks when the front is made, so a live session is what a reopened one is."""
    raw = (msgspec.Raw(text_block("You").raw),)
    assert Front(system="You") == Front(system=["You"]) == Front(system=[{"type": "text", "text": "You"}])
    assert Front(system="You").system == raw
    assert Front(system="  ").system == ()


def test_a_tool_that_a_server_runs_itself_needs_no_name() -> None:
    """GW-6: Codex and others send them beside tools of their own; each is known by its type."""
    for tool in ({"type": "web_search"}, {"type": "image_generation"}, {"type": "mcp_toolset", "mcp_server_name": "m"}):
        assert tool_problem(msgspec.json.encode(tool), set()) == ""
    assert tool_problem(msgspec.json.encode({"type": "function", "parameters": SCHEMA}), set()) == "it has no name"


def test_counts_of_usage_are_bounded() -> None:
    """ENG-7: a log may state any number; no sum overflows for it."""
    assert Usage(input_tokens=10**400, output_tokens=-7) == Usage(input_tokens=MOST_TOKENS, output_tokens=0)
    raw = b'{"input_tokens":' + b"9" * 500 + b"}"
    assert msgspec.json.decode(raw, type=Usage).input_tokens == MOST_TOKENS


def test_what_is_applied_is_what_is_read_back() -> None:
    """ENG-7: a list in the place of a tuple is the tuple that a reopened session will have."""

    async def main() -> None:
        journal = MemoryJournal(HEADER)
        session = await begun(await memory_session(journal=journal))
        await session.record(Titled(tags=["a", "b"]))  # type: ignore[arg-type]
        assert session.view.state.title.tags == ("a", "b")
        again = await LiveSession.load(session.ports)
        assert again.view == session.view

    anyio.run(main)
