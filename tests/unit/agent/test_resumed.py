"""A session that is taken up again keeps its front; what is otherwise now is said at its end (SES-1, TURN-9)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.agents import bench, calls
from tests.terminals import parts

from perdure.context.request import to_request
from perdure.events import CompactionDone, CompactionRequested
from perdure.transcript.records import Front

pytestmark = pytest.mark.unit


def bytes_of(one: Any) -> bytes:
    session = one.agent.session
    return to_request(session.view, session.facts(), protocol="anthropic", stream=True).body


def test_another_branch_moves_no_prefix_and_is_told_once(tmp_path: Path) -> None:
    async def body() -> None:
        home, folder = tmp_path / "home", tmp_path / "p"
        (folder / ".git").mkdir(parents=True)
        (folder / ".git" / "HEAD").write_text("ref: refs/heads/one\n")
        one = await bench(folder, ["hello"], home=home)
        await one.agent.say("go")
        before, name = bytes_of(one), one.agent.session.id
        await one.agent.close()
        (folder / ".git" / "HEAD").write_text("ref: refs/heads/two\n")
        for _ in range(2):
            again = await bench(folder, ["hello"], home=home, resume=name)
            await again.agent.open()
            news = [i.message for i in again.agent.session.view.items if i.message.note == "surroundings"]
            assert len(news) == 1 and b"Git branch: two" in bytes(news[0].content[0])
            stays = parts(before)[:-1]  # but for the line that passes the turn, which nobody was sent
            assert parts(bytes_of(again))[: len(stays)] == stays
            assert len(await again.records(Front)) == 1
            await again.agent.close()

    anyio.run(body)


def test_a_model_may_ask_for_a_compaction(tmp_path: Path) -> None:
    """CMP-6: the wish is kept while the call is open, and fulfilled before the next request."""

    async def body() -> None:
        script: list[Any] = [calls(("Bash", {"command": f"seq {n}0000 {n}4000"})) for n in range(1, 9)]
        script += [calls(("compact_context", {"focus": "numbers"})), calls(("compact_context", {})), "done"]
        one = await bench(tmp_path, script)
        said = await one.agent.say("count")
        assert said.text == "done" and one.events(CompactionRequested)
        assert [event.trigger for event in one.events(CompactionDone)] == ["model"]
        assert not one.model.upstream.statistics.violations
        await one.agent.close()

    anyio.run(body)
