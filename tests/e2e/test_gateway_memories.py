"""Memories of tenants, of projects that their clients name; kept by gateways or by workers (MEM-1, SCL-2, SEC-7)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anthropic
import anyio
import pytest
from tests.gateways import Running, config_of, fake, in_loop, kept_by, serving, store_of, upstream

from perdure.adapters.sinks import NullSink
from perdure.engine.extraction import NAME as EXTRACTION
from perdure.errors import BadSetting, ClaimLost
from perdure.gateway.config import gateway_config, settings_of
from perdure.gateway.gateway import Gateway
from perdure.gateway.upkeep import SessionUpkeep
from perdure.memory.changes import SaveMemory, Stamp
from perdure.ports.home import Home
from perdure.settings import Settings
from perdure.testing.server import FakeServer
from perdure.transcript.records import Cursor
from perdure.wiring import memories_of
from perdure.wiring.remembering import OpenedMemories
from perdure.wiring.worker import Worker

pytestmark = pytest.mark.e2e

OF_WORKERS = pytest.mark.only_on("postgres", "on files a session is the gateway's for as long as it is open")
ROUTES = {"routes": {"desk": {"anthropic": "anthropic", "settings": {"memory": True}}}}
DEPLOYS = "Remember that Anna deploys to staging on Fridays."
FACT = "Anna deploys to staging on Fridays"
RULE = "From now on, always run the linter before you commit."


def front(folder: str | None) -> str:
    """A system prompt as coding agents have it."""
    return "You are a coding agent.\n" + (f"Working directory: {folder}\n" if folder is not None else "")


async def ask(
    at: Running, messages: list[Any], folder: str | None = "/srv/shop", route: str = "desk", key: str = ""
) -> None:
    client = anthropic.AsyncAnthropic(
        api_key=key or "key-of-anna", base_url=f"{at.url}/{route}".rstrip("/"), max_retries=0
    )
    at.clients.append(client)
    said = await client.messages.create(model="fake-model", max_tokens=500, messages=messages, system=front(folder))
    messages.append({"role": "assistant", "content": said.content[0].text})  # type: ignore[union-attr]


async def said(at: Running, text: str, *more: Any, **how: Any) -> str:
    """What went upstream for a new conversation that begins so."""
    await ask(at, [{"role": "user", "content": text}, *more], **how)
    return str(at.bodies[-1]["messages"])


def opened(home: Home, project: str) -> OpenedMemories:
    return memories_of(home, project, Settings(), NullSink(), is_remote=True)


async def texts(home: Home, project: str = "/srv/shop") -> dict[str, str]:
    """The memories of a project of a tenant."""
    found = opened(home, project).own
    assert found is not None
    read = [(one.name, await found.store.read(one.name)) for one in (await found.store.listing()).files]
    return {name: one.text for name, one in read if one is not None}


@in_loop
async def test_a_project_of_a_tenant_has_memories_by_its_name(tmp_path: Path) -> None:
    """MEM-2, MEM-7, SEC-7: what a user says to remember, the next conversation in that folder knows, in any process;
    another folder, another tenant and another route don't."""
    async with fake(upstream(*["ok"] * 9)) as server:
        async with serving(tmp_path, server, **ROUTES) as at:
            assert "Remembered as" in await said(at, DEPLOYS)
        async with serving(tmp_path, server, **ROUTES) as at:
            told = await said(at, "Who deploys to staging?")
            assert FACT in told and "MEMORY.md" not in told.partition("Who deploys")[2]
            others: list[Any] = [{"folder": "/srv/other"}, {"key": "key-of-ben"}, {"route": ""}, {"folder": None}]
            for n, other in enumerate(others):
                got = await said(at, f"{n}. Who deploys to staging?", **other)
                assert FACT not in got, (other, got[:3000])
        tenants = await (store := store_of(tmp_path)).tenants()
        await store.close()
        kept = []
        for tenant in tenants:
            async with kept_by(tmp_path, tenant) as home:
                kept.append(sorted(await texts(home)))
        assert sorted(map(len, kept)) == [0, 2]
        assert not server.upstream.statistics.violations


@in_loop
async def test_a_folder_of_this_machine_is_a_name_as_well(tmp_path: Path) -> None:
    """SEC-7: nothing that stands at that path here is read for a client: no memories, no repository, no link."""
    real, link = tmp_path / "real", tmp_path / "link"
    planted = real / ".perdure" / "memory"
    planted.mkdir(parents=True)
    (planted / "MEMORY.md").write_text(f"- [Deploys](d.md) — {FACT}\n")
    (real / "CLAUDE.md").write_text(FACT)
    link.symlink_to(real)
    async with fake(upstream(*["ok"] * 9)) as server, serving(tmp_path / "home", server, **ROUTES) as at:
        assert FACT not in await said(at, "Who deploys to staging?", folder=str(real))
        assert "Remembered as" in await said(at, DEPLOYS, folder=str(real))
        assert FACT not in await said(at, "I ask you: who deploys to staging?", folder=str(link))
        assert FACT in await said(at, "Tell me who deploys to staging.", folder=str(real))


@in_loop
async def test_what_a_turn_left_to_remember_is_saved_behind_it(tmp_path: Path) -> None:
    """MEM-6, TURN-12: without a worker the gateway does it itself."""
    async with fake(upstream(*["ok"] * 9)) as server:
        async with serving(tmp_path, server, **ROUTES) as at:
            await said(at, RULE)
        async with kept_by(tmp_path) as home:
            assert any("linter" in text for text in (await texts(home)).values())


def upkeep_of(tmp_path: Path, server: FakeServer, store: Any, **table: Any) -> SessionUpkeep:
    return SessionUpkeep(Gateway(config_of(tmp_path / "worker", server.url, **(table or ROUTES)), {}, store=store))


async def wanted(home: Path, count: int) -> None:
    """Wait until so much work is due, which a gateway says behind its answers."""
    store = store_of(home)
    with anyio.fail_after(60):
        while (await store.work.backlog()).waiting < count:  # noqa: ASYNC110 - a table announces nothing
            await anyio.sleep(0.01)
    await store.close()


async def cursors(home: Home) -> int:
    """How often a journal says how far it was read for memories."""
    count = 0
    for one in await home.sessions():
        records = (await home.load(one.id)).records
        count += sum(isinstance(p.record, Cursor) and p.record.name == EXTRACTION for p in records)
    return count


@OF_WORKERS
@in_loop
async def test_a_worker_saves_what_a_turn_left_to_remember(tmp_path: Path) -> None:
    """SCL-2, MEM-6: the gateway only says that it is due; the session goes on in it afterwards, and says it once."""
    async with (
        fake(upstream(*["ok"] * 9)) as server,
        serving(tmp_path, server, background="workers", **ROUTES) as at,
    ):
        messages: list[Any] = [{"role": "user", "content": RULE}]
        await ask(at, messages)
        await wanted(tmp_path, 2)
        async with kept_by(tmp_path) as home:
            assert await texts(home) == {}
        for _ in range(2):
            store = store_of(tmp_path)
            worker = Worker(store.work, "w", upkeep_of(tmp_path, server, store).work_of)
            await worker.run(until_idle=True)
            assert worker.counts.failed == 0
            await store.close()
            async with kept_by(tmp_path) as home:
                kept = await texts(home)
                assert len(kept) == 2 and any("linter" in text for text in kept.values()) and await cursors(home) >= 1
            messages.append({"role": "user", "content": "Go on."})
            await ask(at, messages)
        async with kept_by(tmp_path) as home:
            assert len(await home.sessions()) == 1
        assert not server.upstream.statistics.violations
        assert "linter" in await said(at, "What do I do before a commit? Lint?")


@OF_WORKERS
@in_loop
async def test_a_worker_that_lost_its_claim_leaves_no_memory(tmp_path: Path) -> None:
    """SCL-2, SCL-3: what it found is dropped with its claim, and whoever has it now saves it, once."""
    async with (
        fake(upstream(*["ok"] * 9)) as server,
        serving(tmp_path, server, background="workers", **ROUTES) as at,
    ):
        await said(at, RULE)
        await wanted(tmp_path, 2)
        store = store_of(tmp_path)
        claims = await store.work.claim("late", limit=9, seconds=0.0)
        late = next(one for one in claims if one.kind == "memory:desk")
        upkeep = upkeep_of(tmp_path, server, store)
        work = upkeep.work_of(late.kind)
        assert work is not None
        async with work(late) as commit:
            other = await store.work.claim("other", limit=9, seconds=60.0)
            with pytest.raises(ClaimLost):
                async with store.work.finishing(late):
                    await commit()
        async with kept_by(tmp_path) as home:
            assert await texts(home) == {} and await cursors(home) == 0
        claim = next(one for one in other if one.kind == "memory:desk")
        async with work(claim) as commit, store.work.finishing(claim):
            await commit()
        async with kept_by(tmp_path) as home:
            assert len(await texts(home)) == 2 and await cursors(home) == 1
        await store.close()


@OF_WORKERS
@in_loop
async def test_a_worker_puts_a_directory_in_order(tmp_path: Path) -> None:
    """MEM-11, SCL-2: duplicates become one, when it is due; with one undo."""
    often = {"memory": True, "memory_consolidate_hours": 0.0, "memory_consolidate_sessions": 1}
    table = {"routes": {"desk": {"anthropic": "anthropic", "settings": often}}}
    async with (
        fake(upstream(*["ok"] * 9)) as server,
        serving(tmp_path, server, background="workers", **table) as at,
    ):
        await said(at, DEPLOYS)
        async with kept_by(tmp_path) as home:
            memories = opened(home, "/srv/shop").own
            assert memories is not None
            bodies = (
                "Use pnpm instead of npm in this project.\nCI caches its store.",
                "use pnpm instead of npm in this project",
            )
            for name, body in zip(("feedback_pnpm.md", "feedback_pnpm_2.md"), bodies, strict=True):
                text = f"---\nname: pnpm\ndescription: pnpm\ntype: feedback\n---\n\n{body}\n"
                stamp = Stamp(origin="user", at=1.0, by="user")
                await memories.store.write(SaveMemory(name=name, text=text), stamp, mode="auto")
        await said(at, "Is that all?")
        await wanted(tmp_path, 3)
        store = store_of(tmp_path)
        # One after the other: a save beside it makes the consolidation begin again later, which counts as a failure.
        worker = Worker(store.work, "w", upkeep_of(tmp_path, server, store, **table).work_of, places=1)
        await worker.run(until_idle=True)
        assert worker.counts.failed == 0
        await store.close()
        async with kept_by(tmp_path) as home:
            assert [name for name in await texts(home) if "pnpm" in name] == ["feedback_pnpm.md"]
            found = opened(home, "/srv/shop").own
            assert found is not None
            await found.store.undo(None, Stamp(origin="user", at=9.0, by="user"))
            assert len([name for name in await texts(home) if "pnpm" in name]) == 2


def test_what_a_route_may_say_of_memories(tmp_path: Path) -> None:
    """CLI-5, SEC-7: instruction files, and a folder of memories, are those of a project that the route names."""

    def configured(**settings: Any) -> None:
        gateway = gateway_config({"routes": {"desk": {"settings": settings}}})
        assert settings_of(gateway.routes["desk"], Settings(), "desk").memory
        Gateway(config_of(tmp_path, "http://127.0.0.1:1", routes={"desk": {"settings": settings}}), {}, secret=b"s")

    configured(memory=True)
    for wrong, why in (({"instructions": True}, "needs a folder"), ({"memory_directory": "/srv/notes"}, "set project")):
        with pytest.raises(BadSetting, match=why) as caught:
            configured(memory=True, **wrong)
        assert "gateway.routes.desk" in str(caught.value)
