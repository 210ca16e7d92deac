"""Instruction files and memories for clients that have none, from a route's project (GW-2, GW-3, INS-1, MEM-2)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.gateways import Running, fake, in_loop, serving, upstream

from perdure.events import CompactionDone
from perdure.testing import say, tool_use

pytestmark = pytest.mark.e2e
RULE = "Use tabs in all sources."
NESTED = "Sources under deep are typed."
MEMORY = "Anna deploys to staging on Fridays."


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with instruction files and memories; the user's own are none."""
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    folder = tmp_path / "project"
    memory = tmp_path / "memory"
    for place in (folder / "deep", memory):
        place.mkdir(parents=True)
    (folder / "CLAUDE.md").write_text(RULE)
    (folder / "deep" / "CLAUDE.md").write_text(NESTED)
    (memory / "MEMORY.md").write_text("# Memory\n- [Deploys](project_deploy.md) — who and when\n")
    about = "---\nname: Deploys\ndescription: who deploys to staging and when\ntype: project\n---\n"
    (memory / "project_deploy.md").write_text(f"{about}{MEMORY}\n")
    return folder


def route(project: Path, **settings: Any) -> dict[str, Any]:
    told = {"instructions": True, "memory": True, "memory_directory": str(project.parent / "memory"), **settings}
    routes = {"desk": {"anthropic": "anthropic", "openai": "openai", "project": str(project), "settings": told}}
    return {"routes": routes}


def texts(message: Any) -> list[str]:
    """The texts of a message of a body."""
    content = message["content"]
    return [content] if isinstance(content, str) else [part.get("text", "") for part in content]


def bare(value: Any) -> Any:
    """Without breakpoints, which wander."""
    if isinstance(value, dict):
        return {key: bare(inner) for key, inner in value.items() if key != "cache_control"}
    return [bare(one) for one in value] if isinstance(value, list) else value


async def ask(at: Running, messages: list[Any]) -> None:
    client = at.claude(max_retries=0).with_options(base_url=f"{at.url}/desk")
    said = await client.messages.create(model="fake-model", max_tokens=500, messages=messages)
    messages.append({"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in said.content]})


@in_loop
async def test_reminders_go_up_and_the_clients_history_stays_its_own(tmp_path: Path, project: Path) -> None:
    """GW-3: in the first user message, the same bytes each time and after a restart; the chain is the client's."""
    home, messages = tmp_path / "home", [{"role": "user", "content": "hello"}]
    async with fake(upstream("one", "two", "three")) as server:
        for text in ("and then?", "who deploys to staging?"):
            async with serving(home, server, **route(project)) as at:
                await ask(at, messages)
                messages.append({"role": "user", "content": text})
        async with serving(home, server, **route(project)) as at:
            await ask(at, messages)
            (held,) = at.held
            assert held.head.count == len(messages) == 6
        first, second, third = [bare(body["messages"]) for body in at.bodies]
        assert RULE in "".join(texts(first[0])) and "- [Deploys]" in "".join(texts(first[0]))
        assert texts(first[0])[-1] == "hello"
        assert second[: len(first)] == first and third[: len(second)] == second
        asked = texts(third[-1])
        assert "who deploys to staging?" in asked[0] and MEMORY in asked[-1]
        assert not any(RULE in str(message) or MEMORY in str(message) for message in messages)
        assert server.upstream.statistics.refused == 0 and not server.upstream.statistics.violations
        assert not server.upstream.statistics.prefix_moves


@in_loop
async def test_who_asks_again_is_reminded_once(tmp_path: Path, project: Path) -> None:
    """GW-2: the answer is rewound, and what was added to the question stays: the same body goes up again."""
    async with (
        fake(upstream("one", "two", "three")) as server,
        serving(tmp_path / "home", server, **route(project)) as at,
    ):
        messages = [{"role": "user", "content": "who deploys to staging?"}]
        await ask(at, list(messages))
        await ask(at, messages)
        messages.append({"role": "user", "content": "thanks"})
        await ask(at, messages)
        first, again, later = [bare(body["messages"]) for body in at.bodies]
        assert first == again == later[:1] and MEMORY in texts(first[0])[-1]
        assert len(at.held) == 1


@in_loop
async def test_nested_files_come_with_the_results_that_touch_them(tmp_path: Path, project: Path) -> None:
    """INS-4: a path of the client's in the project's folder brings that folder's file; one outside brings nothing."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "CLAUDE.md").write_text("never this")
    paths = [str(project / "deep" / "a.py"), str(tmp_path / "outside" / "b.py")]
    calls = [say(tool_use("Read", {"file_path": path}, id=f"toolu_{n}")) for n, path in enumerate(paths)]
    async with fake(upstream(*calls, "done")) as server, serving(tmp_path / "home", server, **route(project)) as at:
        messages: list[Any] = [{"role": "user", "content": "look"}]
        for n in range(2):
            await ask(at, messages)
            result = {"type": "tool_result", "tool_use_id": f"toolu_{n}", "content": "text"}
            messages.append({"role": "user", "content": [result]})
        await ask(at, messages)
        bodies = [str(body["messages"]) for body in at.bodies]
        assert [NESTED in body for body in bodies] == [False, True, True]
        assert "never this" not in bodies[-1]
        assert not server.upstream.statistics.violations and not server.upstream.statistics.prefix_moves


@in_loop
async def test_they_come_back_after_a_compaction(tmp_path: Path, project: Path) -> None:
    """RST-7, RST-9: every body holds the instructions once, before the compaction and behind it."""
    turns = 14
    async with (
        fake(upstream(*[f"done {n}" for n in range(turns)])) as server,
        serving(tmp_path / "home", server, **route(project)) as at,
    ):
        messages: list[Any] = []
        for n in range(turns):
            messages.append({"role": "user", "content": f"Part {n}. " + f"Remark {n}: keep it short. " * 1_500})
            await ask(at, messages)
        assert [e for e in at.sink.events if isinstance(e, CompactionDone)]
        assert all(str(body["messages"]).count(RULE) == 1 for body in at.bodies)
        assert "- [Deploys]" in str(at.bodies[-1]["messages"])
        (held,) = at.held
        assert held.head.count == 2 * turns
        assert not server.upstream.statistics.violations


@in_loop
async def test_the_other_protocol_and_a_history_that_was_there_before(tmp_path: Path, project: Path) -> None:
    """GW-1: over Chat Completions; a history that began elsewhere is reminded at its beginning."""
    async with fake(upstream("one")) as server, serving(tmp_path / "home", server, **route(project)) as at:
        client = at.gpt(max_retries=0).with_options(base_url=f"{at.url}/desk/v1")
        history: list[Any] = [
            {"role": "system", "content": "You help."},
            {"role": "user", "content": "hello"},
            {"role": "assistant", "content": "hi"},
            {"role": "user", "content": "who deploys to staging?"},
        ]
        await client.chat.completions.create(model="fake-gpt", messages=history)
        sent = at.bodies[0]["messages"]
        roles = [message["role"] for message in sent]
        assert roles[0] == "system" and roles.count("assistant") == 1
        assert RULE in str(sent[1]) and RULE not in str(sent[2:]) and MEMORY in str(sent[-1])


@in_loop
async def test_other_routes_know_nothing_of_it(tmp_path: Path, project: Path) -> None:
    """SEC-7: only the route that names the project; the default route sends the client's own bytes."""
    async with fake(upstream("one")) as server, serving(tmp_path / "home", server, **route(project)) as at:
        await at.claude().messages.create(
            model="fake-model", max_tokens=50, messages=[{"role": "user", "content": f"read {project}/CLAUDE.md"}]
        )
        assert RULE not in str(at.bodies[0])
