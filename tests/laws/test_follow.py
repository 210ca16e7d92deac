"""LIB-4: a session that follows a history which somebody else owns is the one that was told of it live."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.histories import FORMATS, Step, messages_of, plans
from tests.services import FixedClock
from tests.tiers import examples
from tests.worlds import HEADER

from perdure import Message, Session
from perdure.adapters.journal.in_memory import MemoryJournal
from perdure.adapters.machine.clock import RandomIds
from perdure.context.replies import WireProtocol
from perdure.errors import JournalError, RecordRefused
from perdure.settings import Settings
from perdure.testing import FakeUpstream, ModelRules
from perdure.testing.models import CountingIds
from perdure.testing.openai_rules import respond_to_chat
from perdure.wiring import SessionOptions, memory_session

pytestmark = pytest.mark.laws
SMALL = Settings(window_tokens=8_000)
TOOL = {"name": "read", "description": "a tool", "input_schema": {"type": "object"}}


async def opened(journal: MemoryJournal | None = None) -> Session:
    """A session in memory whose clock stands still; without a journal to go on with, its ids count."""
    ids = RandomIds() if journal else CountingIds()
    parts = SessionOptions(settings=SMALL, clock=FixedClock(), ids=ids, kind=Session)
    session = await memory_session(journal=journal or MemoryJournal(HEADER, encode=True), parts=parts)
    assert isinstance(session, Session)
    return session


async def prefixed(session: Session) -> None:
    await session.set_prefix(model="fake", system="You read files.", tools=[TOOL])


def answered(new: list[Any], format: WireProtocol) -> list[Any]:
    """What a program appends that asks by itself: calls of the Responses API come in one answer."""
    calls = [one for one in new if one.get("type") == "function_call"]
    if format != "responses" or not calls:
        return new
    response = {"object": "response", "id": f"resp_{calls[0]['call_id']}", "status": "completed", "output": calls}
    return [response, *new[len(calls) :]]


@examples(40)
@given(plans(), st.sampled_from(FORMATS))
def test_following_a_history_is_being_told_of_it(steps: list[Step], format: WireProtocol) -> None:
    """LIB-4: the same requests as when each message is appended, and the same messages, whole, are given back."""

    async def scenario() -> None:
        live, following, history = await opened(), await opened(), list[Any]()
        await prefixed(live)
        await prefixed(following)
        for new in messages_of(steps, format):
            await live.append(*answered(new, format))
            history += new
            await following.follow(history)
            given_back = await following.shown(format)
            request = await live.prepare(format)
            assert (await following.prepare(format)).body == request.body and given_back.tokens == request.tokens
            if not given_back.is_changed:
                assert all(one is own for one, own in zip(given_back.data, history, strict=True))
            for message in given_back.messages:
                own = [history[place] for place in message.given]
                assert (message.data == own) is message.is_as_given or not own

    anyio.run(scenario)


@examples(40)
@given(plans(), st.sampled_from(FORMATS))
def test_what_is_shown_can_be_sent_and_is_known_again(steps: list[Step], format: WireProtocol) -> None:
    """LIB-4, TURN-9: what an owner puts in the place of its history is read as it stands, and shown as it stands."""

    async def scenario() -> None:
        session, history = await opened(), list[Any]()
        await prefixed(session)
        for new in messages_of(steps, format):
            history += new
            await session.follow(history)
            before = await session.shown(format)
            history = before.data
            await session.rebase(history)
            said = len(session.view.items)
            await session.follow(history)
            after = await session.shown(format)
            assert after.data == history and not after.is_changed and len(session.view.items) == said
            if format == "openai":
                body = {"model": "fake", "max_completion_tokens": 500, "messages": history}
                respond_to_chat(FakeUpstream(rules=ModelRules(window_tokens=10_000)), msgspec.json.encode(body))

    anyio.run(scenario)


async def said_in(session: Session) -> list[Message]:
    """Everything that its journal holds of the history."""
    loaded = await session.ports.journal.load(whole=True)
    return [one.record for one in loaded.records if isinstance(one.record, Message) and one.record.origin != "reminder"]


@examples(40)
@given(plans(), st.sampled_from(FORMATS), st.data())
def test_an_edited_history_is_gone_back_in(steps: list[Step], format: WireProtocol, data: st.DataObject) -> None:
    """LIB-4: behind the last place that it still comes by, the session says what the history says, also once it is
    opened again; coming back to what was said before says nothing twice."""

    async def scenario() -> None:
        journal = MemoryJournal(HEADER, encode=True)
        session, history = await opened(journal), list[Any]()
        await prefixed(session)
        ends = [0]
        for new in messages_of(steps, format):
            history += new
            await session.follow(history)
            await session.shown(format)
            ends.append(len(history))
        whole, cut = list(history), data.draw(st.sampled_from(ends))
        if data.draw(st.booleans()):
            session = await opened(journal)
        history = [*history[:cut], *([{"role": "assistant", "content": "Yes."}] if cut else [])]
        history.append({"role": "user", "content": "Something else."})
        await session.follow(history)
        given_back = await session.shown(format)
        places = [place for message in given_back.messages for place in message.given]
        assert places == sorted(places) and len(set(places)) == len(places) and places[-1] == len(history) - 1
        said = len(await said_in(session))
        await session.follow(whole)
        await session.shown(format)
        assert len(await said_in(session)) == said, "what was said before was said again"

    anyio.run(scenario)


EDITS = ("changed", "shortened", "left out", "put in", "doubled", "swapped", "shuffled")


def edited(history: list[Any], how: str, data: st.DataObject) -> list[Any]:
    """The history as its owner may leave it, well formed or not; ids of calls stand twice where it is doubled."""
    at, copy = data.draw(st.integers(0, len(history) - 1)), list(history)
    other = {"role": data.draw(st.sampled_from(("user", "assistant"))), "content": "Something else."}
    match how:
        case "changed":
            copy[at] = other
        case "shortened":
            copy = copy[: at + 1]
        case "left out":
            copy = copy[:at] + copy[at + 1 :] or copy
        case "put in":
            copy.insert(at, other)
        case "doubled":
            copy = copy[: at + 1] + copy[at:]
        case "swapped":
            copy[at], copy[at - 1] = copy[at - 1], copy[at]
        case _:
            copy = data.draw(st.permutations(copy))
    return copy


@examples(40)
@given(plans(), st.sampled_from(FORMATS), st.lists(st.sampled_from(EDITS), min_size=1, max_size=5), st.data())
def test_whatever_an_owner_does_each_message_stands_once(
    steps: list[Step], format: WireProtocol, edits: list[str], data: st.DataObject
) -> None:
    """LIB-4: edits anywhere, of what is edited already or of what was there before; a disk that refuses on the way; and
    a session that is opened again knows the history just as well."""

    async def scenario() -> None:
        journal = MemoryJournal(HEADER, encode=True)
        session, whole = await opened(journal), [one for new in messages_of(steps, format) for one in new]
        await prefixed(session)
        history = whole
        for how in edits:
            history = edited(data.draw(st.sampled_from((history, whole))), how, data)
            written, append = data.draw(st.sampled_from((None, 0, 1))), journal.append
            if written is not None:
                left = iter(range(written))

                async def failing(*records: Any, left: Any = left, append: Any = append) -> Any:
                    if next(left, None) is None:
                        raise JournalError("the disk is full")
                    return await append(*records)

                journal.append = failing  # type: ignore[method-assign]
                with suppress(JournalError, RecordRefused):
                    await session.follow(history)
                journal.append = append  # type: ignore[method-assign]
            try:
                await session.follow(history)
            except RecordRefused:
                continue
            shown = await session.shown(format)
            places = [place for message in shown.messages for place in message.given]
            assert len(set(places)) == len(places) and shown.given == len(history)
            said = len(await said_in(session))
            session = await opened(journal) if data.draw(st.booleans()) else session
            await session.follow(history)
            assert (await session.shown(format)).data == shown.data, "the same history was shown in another way"
            assert len(await said_in(session)) == said, "what was said before was said again"

    anyio.run(scenario)
