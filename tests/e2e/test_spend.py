"""`perdure spend`: what was spent, by day, session, model and kind of call, from the journals (OBS-2, SM-9)."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.terminals import served

from perdure import Message, Session, Settings
from perdure.cli.arguments import configured
from perdure.cli.spend import session_total
from perdure.context.cost import ForkSpending, spending_record
from perdure.engine.compact import compact
from perdure.engine.session import LiveSession
from perdure.testing import FakeUpstream, ModelRules, ScriptedModel
from perdure.transcript.messages import Usage
from perdure.transcript.records import Noted
from perdure.wiring import SessionOptions, create_session, fork_session, open_session

pytestmark = pytest.mark.e2e

MILLION = Usage(1_000_000, 0)


async def answered(session: LiveSession, response: str, model: str, at: float) -> None:
    said = {"response_id": response, "model": model, "usage": MILLION, "at": at}
    await session.append(Message.of("user", "and?", at=at), Message.of("assistant", "yes", **said))


@pytest.fixture
def spent(place: Path) -> float:
    """Two sessions, one with a fork, of two days; when the later day is."""
    now = time.time()

    async def make() -> None:
        first = await create_session(place / "home", project=place, session="first")
        await answered(first, "r1", "claude-sonnet-4-5", now - 200_000)
        usage = Usage(1_000, 200, 50_000, 3_000)
        for job, usd in (("notes", 0.25), ("summarizer", 0.5), ("notes", None)):
            paid = ForkSpending(job=job, model="m", at=now - 10 * (usd or 1), turns=2, usage=usage, usd=usd)
            await first.record(spending_record(paid))
        await first.record(Noted(kind="spent", data={"job": 3}))
        await first.close()
        fork = await fork_session(place / "home", "first")
        await answered(fork, "r2", "claude-sonnet-4-5", now)
        await fork.close()
        other = await create_session(place / "home", project=place, session="second")
        await answered(other, "r3", "mine", now)
        await other.close()

    anyio.run(make)
    return now


def test_what_was_spent_is_added_up(spent: float, run: Callable[..., Any]) -> None:
    """OBS-2: what a fork has from another session counts once; a call without a price is said, not taken for free."""
    [told] = run("spend", "--by", "model", "--json").json
    assert [(row["model"], row["calls"], row["usd"], row["unknown"]) for row in told["rows"]] == [
        ("claude-sonnet-4-5", 2, 6.0, 0), ("m", 6, 0.75, 2), ("mine", 1, 0.0, 1),
    ]  # fmt: skip
    assert (told["usd"], told["unknown"]) == (6.75, 3)
    [by_day] = run("spend", "--json").json
    assert [row["usd"] for row in by_day["rows"]] == [3.0, 3.75] and by_day["by"] == "day"
    [by_session] = run("spend", "--by", "session", "--json").json
    rows = {row["session"]: row["usd"] for row in by_session["rows"]}
    assert rows["first"] == 3.75 and rows["second"] == 0.0 and sorted(rows.values()) == [0.0, 3.0, 3.75]
    [late] = run("spend", "--since", "1d", "--by", "job", "--json").json
    assert {row["job"]: row["usd"] for row in late["rows"]} == {"main": 3.0, "summarizer": 0.5, "notes": 0.25}
    shown = run("spend", "--by", "job").out
    assert "conversation" in shown and "$6.75 in total, and 3 calls at a price that isn't known" in shown


def test_a_chat_says_the_same_of_its_session(place: Path, spent: float, run: Callable[..., Any]) -> None:
    """OBS-2, CLI-6: /status has the sum of `perdure spend SESSION`, helpers and calls without a price included."""
    for name, words in (
        ("first", "$3.75 and 2 calls at a price that isn't known"),
        ("second", "1 call at a price that isn't known"),
    ):
        [told] = run("spend", name, "--json").json
        (directory,) = (place / "home").glob(f"projects/*/{name}")
        assert session_total(configured(), directory) == words
        assert str(told["unknown"]) in words and (not told["usd"] or f"${told['usd']:,.2f}" in words)


def test_of_one_session(spent: float, run: Callable[..., Any]) -> None:
    """SM-9: by kind of call, with what the notes have used of their hour; what outlives the process is all of it."""
    [told] = run("spend", "first", "--json").json
    assert told["by"] == "job" and told["last_hour"] == {"runs": 2, "tokens": 108_400}
    assert "notes in the last hour: 2 of 60 runs" in run("spend", "first").out
    assert run("spend", "nobody").code == 3
    assert run("spend", "--since", "1d", "second", "--by", "model").out.count("unknown") == 1


def test_nothing(place: Path, run: Callable[..., Any]) -> None:
    """OBS-2."""
    assert run("spend").out == "nothing was spent\n"
    assert run("spend", "--since", "sometime").code == 2


def test_a_summary_by_a_model_is_recorded(tmp_path: Path) -> None:
    """OBS-2: what a call beside the conversation cost comes into the journal with the next record, once."""

    async def body() -> list[Noted]:
        parts = SessionOptions(settings=Settings(notes=False))
        session = await create_session(tmp_path / "home", project=tmp_path, session="s", parts=parts)
        for n in range(12):
            await session.append(Message.of("user", f"question {n} " + "word " * 400))
            await session.append(Message.of("assistant", f"answer {n} " + "word " * 400, response_id=f"r{n}"))
        writer = ScriptedModel(
            ["<summary>" + "What was said. " * 20 + "</summary>"],
            upstream=FakeUpstream(rules=ModelRules(window_tokens=200_000)),
            id="claude-sonnet-4-5",
        )
        session.configure(session.settings, summarizer=(writer,))
        await compact(session, trigger="manual")
        assert writer.requests
        await session.close()
        again = await open_session(tmp_path / "home", "s", read_only=True, whole=True)
        loaded = await again.ports.journal.load(whole=True)
        return [p.record for p in loaded.records if isinstance(p.record, Noted) and p.record.kind == "spent"]

    [noted] = anyio.run(body)
    assert (noted.data["job"], noted.data["model"], noted.data["turns"]) == ("summarizer", "claude-sonnet-4-5", 1)
    assert noted.data["usd"] > 0


def test_sessions_that_ran_are_counted(tmp_path: Path, place: Path, run: Callable[..., Any]) -> None:
    """OBS-2: an answer of a model in a session of the library."""

    async def body() -> None:
        model = ScriptedModel(["hello"], upstream=FakeUpstream(), id="claude-sonnet-4-5")
        async with Session.create(place, home=place / "home") as session:
            await session.run("hi", model)

    anyio.run(body)
    [told] = run("spend", "--by", "model", "--json").json
    assert [row["model"] for row in told["rows"]] == ["claude-sonnet-4-5"] and told["usd"] > 0


def test_what_commands_ask_beside_any_session_is_counted(
    place: Path, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """OBS-2, CMP-17: the facts for a task that a model picks, once each, whatever else stands in the file."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-test")
    folder = place / "notes"
    folder.mkdir()
    (folder / "deploy.md").write_text("---\nname: Deploys\ntype: project\n---\nDeploys on Friday, from release.\n")
    asked = ("memory", "facts", "deploy", "--dir", folder)
    assert run(*asked).code == 0 and run("spend").out == "nothing was spent\n"
    answer = '{"facts": [{"fact": "Deploys on Friday.", "source": 1}]}'
    with served([answer, answer]) as server:
        for _ in range(2):
            [told] = run(*asked, "--model", server.name, "--json").json
            assert told["by"] == "claude-sonnet-4-5"
            with (place / "home" / "spending" / "commands.jsonl").open("a") as file:
                file.write('{"cut off')
    [told] = run("spend", "--by", "job", "--json").json
    [row] = told["rows"]
    assert (row["job"], row["calls"]) == ("facts", 2) and row["usd"] > 0
    assert [one["session"] for one in run("spend", "--by", "session", "--json").json[0]["rows"]] == ["commands"]
    assert "picking facts" in run("spend", "--by", "job").out
    assert (place / "home" / "spending" / "commands.jsonl").stat().st_mode & 0o777 == 0o600


def test_a_cap_for_the_day_holds_for_commands_too(
    place: Path, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """OBS-2: what sessions have spent today leaves less for a command; code answers then, and says why."""
    folder = place / "notes"
    folder.mkdir()
    (folder / "deploy.md").write_text("---\nname: Deploys\ntype: project\n---\nDeploys on Friday, from release.\n")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-test")
    monkeypatch.setenv("PERDURE_DAY_CAP_USD", "0.5")
    today = place / "home" / "spending" / time.strftime("%Y-%m-%d.jsonl")
    today.parent.mkdir(parents=True)
    today.write_text('{"call": "c", "session": "s", "usd": 0.6, "ended": true}\n')
    with served(["never asked"]) as server:
        [told] = run("memory", "facts", "deploy", "--dir", folder, "--model", server.name, "--json").json
        assert told["by"] == "code" and "spending_cap" in told["why"] and not server.bodies
