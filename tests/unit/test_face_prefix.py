"""The prefix as programs say it: what of it changes (LIB-10), and what changes nothing (TURN-7)."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from perdure import Session
from perdure.adapters.sinks import ListSink
from perdure.context.accounting import account
from perdure.errors import RecordRefused
from perdure.events import PrefixMoved
from perdure.testing import check_anthropic
from perdure.transcript.history import message_digest
from perdure.transcript.records import Front
from perdure.wiring import SessionOptions, memory_session

pytestmark = pytest.mark.unit

MARK = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
MARKER = "__SYSTEM_PROMPT_DYNAMIC_BOUNDARY__"
STABLE = "You move invoices. " * 20
TOOL = {"name": "read", "description": "Reads a file.", "input_schema": {"type": "object", "properties": {}}}
ANSWER = {"role": "assistant", "content": "Hi"}


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


async def _fronts(session: Session) -> list[Front]:
    loaded = await session.ports.journal.load(whole=True)
    return [one.record for one in loaded.records if isinstance(one.record, Front)]


def test_a_breakpoint_of_ones_own_is_no_other_prefix() -> None:
    """Finding L8: `cache_control` isn't counted, and toggling it records nothing and announces nothing."""

    async def main() -> None:
        sink = ListSink()
        session = await memory_session(parts=SessionOptions(sink=sink, kind=Session))
        assert isinstance(session, Session)
        await session.set_prefix(model="m", system=[text(STABLE)], tools=[TOOL])
        size = session.view.front_size
        await session.append("Hello", ANSWER)
        before = (await session.prepare()).data
        await session.set_prefix(model="m", system=[text(STABLE, **MARK)], tools=[{**TOOL, **MARK}])
        assert session.view.front_size == size and len(await _fronts(session)) == 1
        assert (await session.prepare()).data == before
        with pytest.raises(RecordRefused, match="cache_control: there is no field 'typ'"):
            await session.set_prefix(system=[text(STABLE, cache_control={"typ": "ephemeral"})])
        # So is one that somebody recorded who doesn't go through the face.
        await session.record(Front(model="m", system=[text(STABLE, **MARK)], tools=[TOOL]))
        assert session.view.front_size == size
        assert not [one for one in sink.events if isinstance(one, PrefixMoved)]
        await session.set_prefix(system="Another one.")
        assert len([one for one in sink.events if isinstance(one, PrefixMoved)]) == 1

    anyio.run(main)


async def _seen(mark: dict[str, Any]) -> tuple[Any, ...]:
    """Return what a session counts, sends and knows its messages by, with this on each of its blocks."""
    call = {"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "a.py"}, **mark}
    hits = {"type": "search_result", "source": "b", "title": "B", "content": [text("two")], **mark}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": [text("one", **mark), hits], **mark}
    async with Session.in_memory() as session:
        await session.record(Front(model="m", system=[text(STABLE, **mark)], tools=[{**TOOL, **mark}]))
        await session.append(
            {"role": "user", "content": [text("Hello", **mark)]},
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [result, text("Go on.", **mark)]},
        )
        counted = [item.sizes for item in session.view.items]
        known = [message_digest(item.message) for item in session.view.items]
        return counted, known, account(session.view, session.facts()), (await session.prepare()).data


def test_a_breakpoint_in_a_message_counts_nothing_and_is_sent_by_us_alone() -> None:
    """Finding L8, for messages: sizes, accounting, digests and the request are those without `cache_control`."""
    assert anyio.run(_seen, MARK) == anyio.run(_seen, {})


def _breakpoint(request: dict[str, Any]) -> list[str]:
    return [one["text"] for one in request["system"] if "cache_control" in one]


def test_the_part_that_changes_stands_behind_the_breakpoint() -> None:
    """Finding M3: `dynamic` is a part of its own; each part is left as it is where only the other is said."""

    async def main() -> None:
        async with Session.in_memory() as session:
            await session.set_prefix(model="m", system=STABLE, tools=[TOOL], dynamic="Today is Monday.")
            await session.append("Hello")
            for day in ("Monday", "Tuesday"):
                await session.set_prefix(dynamic=f"Today is {day}.")
                request = (await session.prepare()).data
                assert [one["text"] for one in request["system"]] == [STABLE, f"Today is {day}."]
                assert _breakpoint(request) == [STABLE] and check_anthropic(request) == []
            assert (await session.prepare("openai")).data["messages"][0]["content"].endswith("Today is Tuesday.")
            assert (await session.prepare("responses")).data["instructions"].endswith("Today is Tuesday.")
            await session.set_prefix(system="Be brief.")
            assert [one["text"] for one in (await session.prepare()).data["system"]] == [
                "Be brief.",
                "Today is Tuesday.",
            ]
            await session.set_prefix(dynamic="")
            request = (await session.prepare()).data
            assert [one["text"] for one in request["system"]] == ["Be brief."] == _breakpoint(request)
            await session.set_prefix(system="", dynamic=["Today is Friday.", text("It rains.")])
            request = (await session.prepare()).data
            assert len(request["system"]) == 2 and _breakpoint(request) == []
            assert "cache_control" in request["tools"][-1]

    anyio.run(main)


@pytest.mark.parametrize(
    "system",
    [
        [STABLE, MARKER, "Today is Monday."],
        [text(STABLE), text(MARKER), text("Today is Monday.")],
        f"{STABLE}\n{MARKER}\nToday is Monday.",
    ],
)
def test_the_marker_of_the_source_document_parts_the_prompt(system: Any) -> None:
    """Finding M3: the document's marker is understood, and never shown to a model."""

    async def main() -> None:
        async with Session.in_memory() as session:
            await session.set_prefix(model="m", system=system)
            await session.append("Hello")
            request = (await session.prepare()).data
            assert MARKER not in str(request)
            assert [one["text"].strip() for one in request["system"]] == [STABLE.strip(), "Today is Monday."]
            assert [one.strip() for one in _breakpoint(request)] == [STABLE.strip()]
            with pytest.raises(RecordRefused, match="given twice"):
                await session.set_prefix(system=system, dynamic="Today is Friday.")
            await session.set_prefix(system=f"Never write {MARKER} into a file.")
            assert MARKER in str((await session.prepare()).data)

    anyio.run(main)
