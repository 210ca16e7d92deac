"""A session's small promises: the breaker, reading only, requests without a front, words that may never change."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from tests.services import FixedClock

from perdure import Message, Session, Settings, Usage
from perdure.context import groups
from perdure.context.view import ContextView, project
from perdure.engine.compact import CompactionFailure, compact
from perdure.engine.session import LiveSession, ModelWindow
from perdure.engine.turn import prepare
from perdure.errors import CompactionRefused, ContextBlocked, MalformedBlock, ModelGaveUp, PerdureError
from perdure.testing import FakeUpstream, ModelRules, ScriptedModel, prompt_too_long, say, tool_use
from perdure.testing.models import CountingIds
from perdure.transcript.blocks import encode
from perdure.transcript.messages import ResponseId
from perdure.transcript.records import CompactionFailed, Front
from perdure.wiring import SessionOptions, create_session, memory_session, open_session

pytestmark = pytest.mark.unit


def failures(view: ContextView) -> int:
    return view.state.breaker.failures


def test_a_failure_by_hand_does_not_open_the_breaker() -> None:
    """PRS-5: automatic failures count; an attempt by hand closes the breaker."""
    auto = CompactionFailed(trigger="auto", reason="too_little")
    manual = CompactionFailed(trigger="manual", reason="too_little")
    assert failures(project([auto, auto])) == 2
    assert failures(project([auto, auto, manual])) == 0
    assert failures(project([manual, manual, manual])) == 0


def test_manual_compactions_of_a_tiny_session_leave_automatic_ones_on() -> None:
    """PRS-5: three refused attempts by hand, and the session still compacts when it has to."""

    async def run() -> None:
        session = await memory_session(parts=SessionOptions(window=ModelWindow(40_000, "setting")))
        await session.append(Message.of("user", "hello"))
        for _ in range(3):
            assert isinstance(await compact(session, trigger="manual"), CompactionFailure)
        for number in range(12):
            await session.append(Message.of("user", f"Part {number}: " + "some words to say. " * 900))
            await prepare(session)
            await session.append(Message.of("assistant", f"Noted {number}."))
        assert session.view.boundary is not None

    anyio.run(run)


def test_a_session_opened_for_reading_closes_without_writing(tmp_path: Path) -> None:
    """ENG-4: a reader leaves no trace, not even the metadata."""

    async def run() -> None:
        session = await create_session(tmp_path, project=tmp_path, session="one")
        await session.append(Message.of("user", "hello"))
        await session.close()

    async def read() -> None:
        reader = await open_session(tmp_path, "one", read_only=True)
        await reader.close()

    anyio.run(run)
    (journal,) = tmp_path.rglob("journal.jsonl")
    before = journal.read_bytes()
    anyio.run(read)
    assert journal.read_bytes() == before


def test_a_request_names_no_model_that_nobody_named() -> None:
    """TURN-9: without a front the adapter names its own model; an empty name would be refused."""

    async def run() -> None:
        session = await memory_session()
        await session.append(Message.of("user", "hello"))
        assert "model" not in json.loads((await prepare(session)).request.body)
        await session.record(Front(model="claude-sonnet-4-5"))
        assert json.loads((await prepare(session)).request.body)["model"] == "claude-sonnet-4-5"

    anyio.run(run)


def test_an_irreducible_front_stops_with_its_parts() -> None:
    """PRS-6: above the trigger though below the block threshold, the error names the parts and their sizes."""

    async def run() -> None:
        front = Front(model="m", system=(msgspec.Raw(encode({"type": "text", "text": "rule. " * 5_500})),))
        session = await memory_session(parts=SessionOptions(window=ModelWindow(16_000, "setting")))
        await session.record(front)
        await session.append(Message.of("user", "hello"))
        with pytest.raises(ContextBlocked, match=r"system prompt and tools [\d,]+, pins 0, last message"):
            await prepare(session)

    anyio.run(run)


def test_a_window_too_small_for_the_front_says_which_would_do() -> None:
    """PRS-3, PRS-6: the model has room, and only the setting has none."""

    async def run() -> None:
        front = Front(model="m", system=(msgspec.Raw(encode({"type": "text", "text": "rule. " * 5_500})),))
        settings = Settings(auto_compact_window=12_000)
        session = await memory_session(parts=SessionOptions(settings=settings, window=ModelWindow(200_000, "model")))
        await session.record(front)
        await session.append(Message.of("user", "hello"))
        with pytest.raises(ContextBlocked) as refused:
            await prepare(session)
        found = re.search(r"or auto_compact_window at least ([\d,]+) \(it is 12,000\)$", str(refused.value))
        assert found and str(refused.value).startswith("no room to compact into: ")
        session.configure(replace(settings, auto_compact_window=int(found[1].replace(",", ""))))
        assert (await prepare(session)).tokens > 0

    anyio.run(run)


def test_the_words_that_flattening_puts_in_never_change() -> None:
    """REL-5, REL-6: they stand in the prefix of sessions that exist; other words would move every one of them."""
    assert groups.NO_RESULT == "[No result: the call was interrupted before it returned]"
    assert groups.CONTINUES == "[The conversation continues]"
    synthetic = b'{"type":"tool_result","tool_use_id":"t","content":"%b","is_error":true}' % groups.NO_RESULT.encode()
    assert groups.synthetic_result("t").raw == synthetic  # type: ignore[arg-type]


async def _clearing_session(calls: int) -> tuple[LiveSession, FakeUpstream]:
    """A session of reads against the fake server, long enough that old results are cleared several times."""
    upstream = FakeUpstream(rules=ModelRules(window_tokens=60_000))
    session = await memory_session(
        parts=SessionOptions(settings=Settings(snip=False), window=ModelWindow(60_000, "setting"))
    )
    await session.record(Front(model="claude-opus-4-5"))
    await session.append(Message.of("user", "Read everything. " * 300))
    for number in range(calls):
        body = (await prepare(session)).request.body
        use = tool_use("Read", {"file_path": f"/src/{number}.py"}, id=f"toolu_{number}")
        reply = upstream.respond(body, reply=say(f"Reading {number}.", use), session="s")
        usage = msgspec.convert(reply.message["usage"], Usage, strict=False)
        content = reply.message["content"]
        await session.append(Message.of("assistant", content, response_id=ResponseId(f"r{number}"), usage=usage))
        text = f"line of file {number}\\n" * 400
        await session.append(
            Message.of("user", [{"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": text}])
        )
    return session, upstream


def test_a_clearing_reads_what_lies_before_it_from_the_cache() -> None:
    """TURN-5, SPD-7: the breakpoint at the frontier leaves something to read when a clearing moves the prefix."""

    async def run() -> None:
        session, upstream = await _clearing_session(90)
        assert len(session.view.cleared) > 20
        assert not upstream.statistics.violations
        assert upstream.statistics.writes_per_content_token < 1.45  # 1.54 without it

    anyio.run(run)


def test_the_next_session_starts_from_the_learned_ratio(tmp_path: Path) -> None:
    """TOK-4: what one session learned about a model's counting stands in the next one's journal from the start."""

    async def one(name: str, reports: int) -> float:
        session = await create_session(tmp_path, project=tmp_path, session=name)
        await session.record(Front(model="some-model"))
        for number in range(reports):
            await session.append(Message.of("user", "words and more words. " * 800))
            prompt = 2 * session.view.size.live
            usage = Usage(input_tokens=prompt, output_tokens=10)
            answer = Message.of(
                "assistant", "ok", usage=usage, model="some-model", response_id=ResponseId(f"r{number}")
            )
            await session.append(answer)
        ratio = session.view.state.calibration.ratio
        await session.close()
        return ratio

    learned = anyio.run(one, "first", 12)
    assert learned > 1.2
    assert anyio.run(one, "second", 0) == learned
    (tmp_path / "calibration.json").write_bytes(b"{broken")
    assert anyio.run(one, "third", 0) == 1.0


def test_a_rest_reads_for_the_ledger_and_changes_nothing() -> None:
    """CMP-5, SPD-1: what was said is read while nobody waits; the compaction is the same with and without."""

    async def run(rests: bool) -> tuple[str, ContextView]:
        ids = CountingIds()
        session = await memory_session(
            parts=SessionOptions(window=ModelWindow(40_000, "setting"), ids=ids, clock=FixedClock())
        )
        for number in range(30):
            await session.append(Message.of("user", f"Look at src/module_{number}.py and its tests. " * 120))
            await prepare(session)
            await session.append(Message.of("assistant", f"module_{number} exports function_{number}."))
            if rests:
                session.rest()
        assert session.view.boundary is not None
        return (await prepare(session)).request.body.decode(), session.view

    assert anyio.run(run, True) == anyio.run(run, False)


CALL = {"type": "tool_use", "id": "call_0", "name": "Read", "input": {}}


@pytest.mark.parametrize(
    "messages",
    [
        [Message.of("user", "a", id="m1"), Message.of("user", "b", id="m1")],
        [Message.of("assistant", [CALL]), Message.of("assistant", [CALL])],
        [Message.of("assistant", [CALL, CALL])],
    ],
)
def test_ids_are_refused_before_anything_is_written(messages: list[Message]) -> None:
    """ENG-2, REL-4: said twice in one append or in two, an id would make a message vanish or a request invalid."""

    async def run() -> None:
        session = await memory_session()
        with pytest.raises(PerdureError, match="already"):
            await session.append(*messages)
        assert not session.view.items
        if len(messages) > 1:
            await session.append(messages[0])
            with pytest.raises(PerdureError, match="already"):
                await session.append(messages[1])

    anyio.run(run)


def test_fields_of_a_message_are_read_before_it_is_said() -> None:
    """ENG-1: a usage as the API reports it is taken; text that is no Unicode is refused by name."""
    message = Message.of("assistant", "x", usage={"input_tokens": 5, "output_tokens": 1, "service_tier": "standard"})
    assert message.usage == Usage(input_tokens=5, output_tokens=1)
    with pytest.raises(MalformedBlock, match="surrogate"):
        Message.of("user", "\ud800")


def test_the_record_says_how_many_of_the_users_messages_it_leaves_out() -> None:
    """CMP-5: no word leaves the record in silence."""

    async def run() -> str:
        session = await memory_session(parts=SessionOptions(window=ModelWindow(60_000, "setting")))
        for number in range(80):
            await session.append(Message.of("user", f"REQ{number}: " + "please do this part as well. " * 60))
            await prepare(session)
            await session.append(Message.of("assistant", f"Done {number}."))
        assert session.view.boundary is not None
        return session.view.items[0].visible[0].raw.decode()

    assert "more, earlier, left out here" in anyio.run(run)


@pytest.mark.parametrize(
    ("settings", "says", "never"),
    [
        ({"compact": False}, "compaction is switched off (DISABLE_COMPACT or the setting compact): switch", "/compact"),
        (
            {"auto_compact": False},
            "compact by hand (/compact in a chat, `perdure compact`, or compact() in the",
            "switched",
        ),
    ],
)
def test_a_full_context_advises_what_works(settings: dict[str, Any], says: str, never: str) -> None:
    """Finding L9: with compaction switched off no command is advised that refuses, and each door's own is named."""

    async def main() -> None:
        given = Settings(window_tokens=20_000, **settings)
        session = await memory_session(parts=SessionOptions(settings=given))
        for _ in range(12):
            await session.append("word " * 6_000, Message.of("assistant", "Yes."))
        await session.append("Go on.")
        with pytest.raises(ContextBlocked) as blocked:
            await prepare(session)
        assert says in str(blocked.value) and never not in str(blocked.value)
        if not given.compact:
            with pytest.raises(CompactionRefused):
                await compact(session, trigger="manual")
        async with Session.in_memory(settings=settings) as face:
            with pytest.raises(ModelGaveUp) as gave_up:
                await face.run("Go on.", ScriptedModel([prompt_too_long(300_000, 200_000)] * 3))
            assert says in str(gave_up.value) and never not in str(gave_up.value)

    anyio.run(main)
