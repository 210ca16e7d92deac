"""A session remembers its settings, and what is given overrides (LIB-9); other words that went unheard (finding L6)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from perdure import Agent, Message, Session, Settings
from perdure.compaction.ledger import compact_messages
from perdure.context.state import SETTINGS
from perdure.core import project
from perdure.engine.ask import JobModels
from perdure.engine.session import Services
from perdure.settings import REMEMBERED
from perdure.testing import ScriptedModel
from perdure.transcript.records import Noted

pytestmark = pytest.mark.unit


async def _in_force(home: Path, settings: Any = None, **more: Any) -> Settings:
    async with Session.named("letters", home, home=home / "home", settings=settings, **more) as session:
        return session.settings


def test_settings_are_remembered_and_overridden(tmp_path: Path) -> None:
    """LIB-9, finding L6: the window isn't the default again; what is given in an object holds from then on."""

    async def main() -> None:
        table = {"result_limits_chars": {"Bash": 1_000}, "ledger_tools": "a=run"}
        given = {"window_tokens": 32_000, "policy": "thrifty", **table}
        made = await _in_force(tmp_path, given)
        assert await _in_force(tmp_path) == made
        assert await _in_force(tmp_path, {"auto_compact": False}) == (later := _with(made, auto_compact=False))
        assert await _in_force(tmp_path) == later
        assert (await _in_force(tmp_path, {"window_tokens": None})).window_tokens is None
        assert await _in_force(tmp_path) == _with(later, window_tokens=None)
        assert (await _in_force(tmp_path, Settings(window_tokens=64_000))).policy == "thrifty"
        async with Session.open("letters", home=tmp_path / "home", read_only=True) as session:
            assert session.limits.window == 64_000

    anyio.run(main)


def _with(settings: Settings, **more: Any) -> Settings:
    return replace(settings, **more)


def test_settings_outlive_a_compaction_and_are_written_once(tmp_path: Path) -> None:
    """LIB-9: they stand in the checkpoint; opening a session as it was writes nothing."""

    async def main() -> None:
        notes = 0
        async with Session.create(".", home=tmp_path, id="s", settings={"window_tokens": 32_000}) as session:
            await session.append("Hello. " * 3_000, {"role": "assistant", "content": "Hi. " * 3_000}, "Go on.")
            assert (await session.compact()).done
        for _ in range(2):
            async with Session.open("s", home=tmp_path) as session:
                assert session.limits.window == 32_000
                loaded = await session.ports.journal.load(whole=True)
                notes = sum(isinstance(one.record, Noted) and one.record.kind == SETTINGS for one in loaded.records)
        assert notes == 1

    anyio.run(main)


def test_an_agent_remembers_them_too(tmp_path: Path) -> None:
    """LIB-9: an agent that goes on with a session has its window."""

    async def main() -> None:
        async def opened(**more: Any) -> int:
            model = ScriptedModel(["Yes."], window_tokens=None)
            async with Agent.create(tmp_path, model=model, home=tmp_path / "home", **more) as agent:
                await agent.run("Hello")
                ids.append(agent.session.id)
                return agent.session.limits.window

        ids: list[str] = []
        assert await opened(settings={"window_tokens": 48_000}) == 48_000
        assert await opened(resume=ids[0]) == 48_000

    anyio.run(main)


def test_a_journal_says_nothing_of_what_runs_or_asks(tmp_path: Path) -> None:
    """SEC-8: a journal may come from anybody; it only says how the context is kept, as far as that is usable."""
    said = {"hooks": {"Stop": []}, "trusted_folders": ["/**"], "notes_models": ["openai:x@http://127.0.0.1:9/v1"]}
    assert not {"retention_days", "user_tools", "redact_at_ingest", "day_cap_usd", *said} & REMEMBERED

    async def main() -> None:
        async with Session.create(".", home=tmp_path, id="s") as session:
            note = Noted(kind=SETTINGS, data={**said, "window_tokens": -5, "policy": "odd", "keep_min_texts": 2})
            await session.record(note)
        async with Session.open("s", home=tmp_path) as session:
            assert session.settings == Settings(keep_min_texts=2)

    anyio.run(main)


def test_a_summarizer_among_the_helpers_writes_the_record() -> None:
    """Finding L6: `Services(helpers=JobModels(summarizer=…))` is heard; `summarizer` itself comes first."""
    by_helper, by_name = (
        ScriptedModel(["<summary>By the helper.</summary>"]),
        ScriptedModel(["<summary>Named.</summary>"]),
    )

    async def asked(services: Services) -> tuple[int, int]:
        async with Session.in_memory(services=services, settings={"window_tokens": 32_000}) as session:
            await session.append("Hello. " * 3_000, {"role": "assistant", "content": "Hi. " * 3_000}, "Go on.")
            await session.compact()
        return len(by_helper.requests), len(by_name.requests)

    async def main() -> None:
        helpers = JobModels(summarizer=(by_helper,))
        assert await asked(Services(helpers=helpers)) == (1, 0)
        assert await asked(Services(helpers=helpers, summarizer=(by_name,))) == (1, 1)
        assert await asked(Services(helpers=helpers, summarizer=())) == (1, 1)

    anyio.run(main)


SAID = [
    Message.of("user", "Move the invoices, and never touch ledger.py."),
    Message.of("assistant", "I look."),
    Message.of("user", "Use port 8443."),
    Message.of("assistant", "The port is set."),
]


def test_messages_without_an_id_are_all_kept_at_the_pure_level() -> None:
    """Finding L6: `Message.of` leaves the id empty; neither a record nor a fold takes all of them for the first."""
    text = compact_messages(SAID, 400).text
    assert "## What the user said, word for word" in text and "message-1: Move the invoices" in text
    view = project(SAID)
    assert [item.message.blocks for item in view.items] == [one.blocks for one in SAID]
    again = project(SAID[2:], onto=project(SAID[:2]))
    assert [item.message.id for item in again.items] == [item.message.id for item in view.items]
