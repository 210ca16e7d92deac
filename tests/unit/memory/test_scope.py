"""MEM-14: a memory may be for some files of the project, and for some agents."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import anyio
import pytest

from perdure import Message, Settings
from perdure.adapters.journal.store import SessionStore
from perdure.adapters.memory.directory import FileMemories, JoinedMemories, MemoryDirectory
from perdure.engine.reminders import remind
from perdure.engine.session import LiveSession
from perdure.memory.consolidation import DatedMemory, overlapping_groups
from perdure.memory.files import topic
from perdure.memory.index_file import IndexLimits, index_excerpt
from perdure.memory.places import MemoryRights
from perdure.memory.retrieval import MemoryQuery, index_marks
from perdure.memory.scope import MAX_PATTERNS, MemoryScope, Work, named_paths
from perdure.transcript.blocks import Text
from perdure.wiring import SessionOptions, create_session
from perdure.wiring.sessions import subagent_session

pytestmark = pytest.mark.unit

WORK = Work("main", "/srv/app", ("/srv/app",))


def put(folder: Path, file: str, name: str, *more: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    front = ("---", f"name: {name}", f"description: {name}", "type: project", *more, "---", f"{name}, it says.", "")
    (folder / file).write_text("\n".join(front))


def asked(folder: Path, query: str, **more: Any) -> list[str]:
    directory = MemoryDirectory(folder)
    directory.rescan()
    return sorted(one.card.file for one in directory.ask(MemoryQuery(query=query, **more)))


def scope_of(*lines: str) -> MemoryScope:
    return topic("a.md", "\n".join(("---", "name: a", "description: b", "type: project", *lines, "---", "c"))).scope


@pytest.mark.parametrize(
    "lines",
    [
        ("scope:", "  paths: [src/**, 'docs/*.{md,txt}']", "  agent: Main"),
        ("scope: {paths: 'src/**, docs/*.{md,txt}', agent: [main]}",),
        ("hint: not: yaml", "scope:", "  paths:", "    - src/**", "    - docs/*.{md,txt}", "  agent: main"),
        ("hint: not: yaml", "scope:", "  paths: [src/**, docs/*.{md,txt}]", "  agent:", "  - main"),
    ],
)
def test_a_scope_is_read_in_every_spelling(lines: tuple[str, ...]) -> None:
    """MEM-14: as a list or with commas, strictly or line by line; braces keep theirs."""
    assert scope_of(*lines) == MemoryScope(("src/**", "docs/*.{md,txt}"), ("main",))


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (("scope: everywhere",), "isn't `paths:`"),
        (("scope: [a, b]",), "isn't `paths:`"),
        (("scope:", "  paths: {a: b}"), "no text"),
        (("scope:", "  paths: [[a], b]"), "no text"),
        (("scope:", "  agents: main"), "agents isn't read"),
        (("scope:", "  paths:", *(f"    - a{n}/**" for n in range(300))), "the first 50 count"),
        (("scope:", f"  paths: '{','.join(f'a{n}/**' for n in range(5_000))}'"), "the first 50 count"),
        (("scope:", f"  paths: ['{'{a,b}' * 9}']"), "the first 0 count"),
        (("scope:", f"  paths: ['{'{a,b}' * 40}']"), "too many patterns"),
        (("scope:", f"  agent: [{', '.join(f'a{n}' for n in range(500))}]"), "the first 20 count"),
    ],
)
def test_a_hostile_scope_is_one_warning(lines: tuple[str, ...], said: str) -> None:
    """MEM-14, SEC-6: bounded, in no time, never an exception."""
    began = time.perf_counter()
    found = topic("a.md", "\n".join(("---", "name: a", "description: b", "type: project", *lines, "---", "c")))
    assert time.perf_counter() - began < 2
    (problem,) = found.problems
    assert said in problem and len(problem) < 400
    assert len(found.scope.paths) <= MAX_PATTERNS


def test_thousands_of_globs_are_one_warning() -> None:
    """MEM-14, SEC-6: the first of them count, also where front matter has more values than it may."""
    lines = "\n".join(f"  - {n}" for n in range(5_000))
    for text in (f"scope:\n  paths:\n{lines}", "scope:\n  paths: [" + ",".join(map(str, range(10_000))) + "]"):
        found = topic("a.md", f"---\nname: a\ndescription: b\ntype: project\n{text}\n---\nc\n")
        assert len(found.problems) == 1 and "more than 1,000 values" in found.problems[0]
        assert "the first 50 count" in found.problems[0] and len(found.scope.paths) == MAX_PATTERNS


def test_only_what_holds_for_the_files_is_retrieved(tmp_path: Path) -> None:
    """MEM-14: relative to the project, or absolute; pinned ones, too; a person's search finds all."""
    put(tmp_path, "db.md", "Migrations lock", "scope: {paths: src/db/**}")
    put(tmp_path, "abs.md", "Migrations abroad", "scope: {paths: /etc/**}")
    put(tmp_path, "pin.md", "Rule", "pinned: true", "scope: {paths: '**/*.sql'}")
    put(tmp_path, "all.md", "Migrations always")
    pinned: dict[str, Any] = {"query": "migrations", "has_pins": True}
    assert asked(tmp_path, **pinned, work=WORK) == ["all.md"]
    assert asked(tmp_path, **pinned, work=WORK.about(["src/db/a.py"])) == ["all.md", "db.md"]
    assert asked(tmp_path, **pinned, work=WORK.about(["/srv/app/x/a.sql"])) == ["all.md", "pin.md"]
    assert asked(tmp_path, **pinned, work=WORK.about(["/etc/x", "../app/src/db/a"])) == ["abs.md", "all.md", "db.md"]
    assert asked(tmp_path, **pinned, work=WORK.about(["src/db/a"]), needs_paths=True) == ["db.md"]
    assert asked(tmp_path, "migrations") == ["abs.md", "all.md", "db.md"]


def test_only_the_agents_named_get_it(tmp_path: Path) -> None:
    """MEM-14: the main agent, or kinds of sub-agents, whatever the case of their names."""
    put(tmp_path, "main.md", "Deploys by hand", "scope: {agent: main}")
    put(tmp_path, "review.md", "Deploys reviewed", "scope: {agent: [Reviewer, explore]}")
    assert asked(tmp_path, "deploys", work=Work("main")) == ["main.md"]
    assert asked(tmp_path, "deploys", work=Work("reviewer")) == ["review.md"]
    assert asked(tmp_path, "deploys", work=Work("general-purpose")) == []


def test_what_supersedes_within_its_scope_leaves_the_older_one_elsewhere(tmp_path: Path) -> None:
    """MEM-14: spaces in one folder, tabs everywhere else."""
    put(tmp_path, "tabs.md", "Tabs or spaces")
    put(tmp_path, "spaces.md", "Tabs or spaces in web", "supersedes: tabs", "scope: {paths: web/**}")
    assert asked(tmp_path, "tabs or spaces", work=WORK) == ["tabs.md"]
    assert asked(tmp_path, "tabs or spaces", work=WORK.about(["web/a.ts"])) == ["spaces.md"]


def test_the_index_says_what_holds_no_more_and_where_the_rest_holds(tmp_path: Path) -> None:
    """MEM-14: at the lines; within the limits; untouched without marks; also the user's."""
    put(tmp_path / "p", "old.md", "Region")
    put(tmp_path / "p", "new.md", "Region now", "supersedes: old", "scope: {paths: src/**, agent: main}")
    put(tmp_path / "p", "any.md", "Any")
    put(tmp_path / "u", "mine.md", "Mine", "scope: {agent: explore}")
    text = "# M\n- [Old](old.md) — x\n- [New](new.md) — y\n- [Any](any.md) and [old](old.md)\n"
    (tmp_path / "p" / "MEMORY.md").write_text(text)
    both = JoinedMemories(FileMemories(tmp_path / "p"), {"user": FileMemories(tmp_path / "u")})
    index = anyio.run(both.index)
    assert index.text == text and index.marks["user/mine.md"] == "only for agent explore"
    limits = IndexLimits()
    assert index_excerpt(text, limits, modified={}, uses={}).text == text.strip()
    lines = index_excerpt(text, limits, modified={}, uses={}, marks=index.marks).text.split("\n")
    assert lines == [
        "# M",
        "- [Old](old.md) — x [superseded by new.md, only for src/**, agent main]",
        "- [New](new.md) — y [only for src/**, agent main]",
        "- [Any](any.md) and [old](old.md) [old.md: superseded by new.md, only for src/**, agent main]",
    ]
    small = index_excerpt(text, IndexLimits(lines=3, bytes=2_000), modified={}, uses={}, marks=index.marks)
    assert small.left_out and small.lines <= 3


def test_the_cache_keeps_the_scope(tmp_path: Path) -> None:
    """MEM-14: as read, in the next process."""
    put(tmp_path / "m", "a.md", "Region", "scope: {paths: src/**}")
    MemoryDirectory(tmp_path / "m", cache=tmp_path / "c").rescan()
    again = MemoryDirectory(tmp_path / "m", cache=tmp_path / "c")
    assert again.rescan() == 0 and index_marks(again.cards) == {"a.md": "only for src/**"}


def test_files_named_in_a_prompt() -> None:
    """MEM-14: with a slash or an ending; addresses and plain words are none."""
    said = 'See @src/a.py, `lib/b.ts:12:3` and "x.md". Also @"my file.c"; https://a.b/c.html, and so on... 3.5.'
    assert named_paths(said) == ("src/a.py", "lib/b.ts", "x.md", "my file.c")


def test_memories_with_a_scope_are_not_rewritten_into_others() -> None:
    """MEM-14, MEM-11: the text made of several would hold everywhere."""
    body = "The billing service deploys from the release branch with a signed tag.\n"
    front = "---\nname: Billing deploys\ndescription: billing service deploys\ntype: project\n"
    plain = {name: DatedMemory(name=name, text=f"{front}---\n{body}", at=1.0) for name in ("a.md", "b.md")}
    assert len(overlapping_groups(plain)) == 1
    scoped = DatedMemory(name="b.md", text=f"{front}scope: {{paths: src/**}}\n---\n{body}", at=1.0)
    assert overlapping_groups({**plain, "b.md": scoped}) == [] and scoped.place != plain["a.md"].place


def told(session: LiveSession, note: str) -> str:
    shown = [item.message for item in session.view.items if item.message.note == note]
    return "\n".join(b.value.text for m in shown for b in m.blocks if isinstance(b.value, Text))


def test_a_session_is_shown_them_when_a_call_touches_their_files(tmp_path: Path) -> None:
    """MEM-14: not before, not twice, from any folder of the work tree; the index says their scope."""
    home, web = tmp_path / "home", tmp_path / "work" / "web"
    (tmp_path / "work" / ".git").mkdir(parents=True)
    web.mkdir()
    put(home / "memory", "db.md", "Migration lock", "scope: {paths: web/db/**}")
    (home / "memory" / "MEMORY.md").write_text("- [Lock](db.md)\n")

    async def body() -> None:
        parts = SessionOptions(settings=Settings(memory=True, instructions=False), is_trusted=True)
        session = await create_session(home, project=str(web), parts=parts)

        async def call(number: int, path: str) -> None:
            use = {"type": "tool_use", "id": f"toolu_{number}", "name": "Read", "input": {"file_path": path}}
            back = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": "1\tx"}
            await session.append(Message.of("assistant", [use]), Message.of("user", [back], origin="tool"))
            await remind(session, "behind")

        await remind(session, "before")
        assert "- [Lock](db.md) [only for web/db/**]" in told(session, "memory_index")
        await session.append(Message.of("user", "Is there a migration lock?", origin="user"))
        await remind(session, "behind")
        await call(1, str(web / "main.py"))
        assert told(session, "memory") == ""
        await call(2, "db/one.py")
        assert "## user/db.md" in told(session, "memory") and "(holds only for web/db/**)" in told(session, "memory")
        before = len(session.view.items)
        await call(3, str(web / "db" / "two.py"))
        assert len(session.view.items) == before + 2
        await session.ports.journal.close()

    anyio.run(body)


@pytest.mark.parametrize(("agent", "is_shown"), [("reviewer", True), ("explore", False)])
def test_a_sub_agent_is_shown_those_of_its_kind(tmp_path: Path, agent: str, is_shown: bool) -> None:
    """MEM-14, MEM-13: by the name of its kind."""
    home = tmp_path / "home"
    put(home / "memory", "lock.md", "Migration lock", "scope: {agent: reviewer, paths: db/**}")

    async def body() -> str:
        parts = SessionOptions(settings=Settings(memory=True, instructions=False), is_trusted=True)
        store = SessionStore(home)
        parent = await store.create("parent", project=tmp_path, created=0.0, durability=parts.settings.durability)
        rights = MemoryRights(agent=agent)
        session = await subagent_session(parent, parts, "one", is_new=True, rights=rights, origin=None)
        await session.append(Message.of("user", "The migration lock of @db/a.sql, please", origin="user"))
        await remind(session, "behind")
        text = told(session, "memory")
        await session.ports.journal.close()
        await parent.journal.close()
        return text

    assert ("## user/lock.md" in anyio.run(body)) is is_shown
