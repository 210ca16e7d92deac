"""Instruction files through a session: first message, resume, nested, changed, compacted (INS-1 to INS-6, RST-7)."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.folders import PLACES, Table, TableFiles
from tests.services import serve

from perdure.adapters.memory.instructions import (
    APPROVALS,
    MAX_BYTES,
    DiskInstructions,
    DiskReader,
    approvals,
    approve,
    places_of,
)
from perdure.adapters.sinks import ListSink
from perdure.compaction.summary import instruction
from perdure.context.accounting import account
from perdure.context.instructions import compact_instructions_shown, start_message
from perdure.engine.compact import CompactionRequest, CompactionSuccess, compact, proposal
from perdure.engine.instructions import with_instructions
from perdure.engine.reminders import HostReminder, ordered_sources, remind
from perdure.engine.session import LiveSession
from perdure.engine.turn import prepare, run_turn
from perdure.errors import BadSetting
from perdure.events import InstructionsChanged, InstructionsLoaded, ReminderFailed
from perdure.memory.instructions import MISSING, fit_files
from perdure.memory.trust.labels import TrustLevel, trust
from perdure.settings import Settings
from perdure.testing import ScriptedModel, say, tool_use
from perdure.transcript.blocks import Text
from perdure.transcript.messages import Message
from perdure.wiring import SessionOptions, create_session, memory_session, open_session

pytestmark = pytest.mark.e2e

ROOT = PLACES.root
TABLE = {
    f"{ROOT}/CLAUDE.md": "Use tabs.\n\n# Compact Instructions\nKeep all ticket numbers.",
    f"{ROOT}/src/CLAUDE.md": "Sources are typed.",
    f"{ROOT}/docs/CLAUDE.md": "Docs are short.",
}


async def opened(table: Table, **more: Any) -> tuple[LiveSession, ListSink]:
    sink = ListSink()
    session = await memory_session(parts=SessionOptions(settings=Settings(**more), sink=sink))
    session.services = with_instructions(session, session.services, TableFiles(table))
    return session, sink


def told(message: Message) -> str:
    return "".join(block.value.text for block in message.blocks if isinstance(block.value, Text))


def reminders(session: LiveSession) -> list[Message]:
    return [item.message for item in session.view.items if item.message.note in ("instructions", "nested_instructions")]


def read(path: str) -> Any:
    return say(tool_use("Read", {"file_path": path}))


def results(session: LiveSession, text: str = "text") -> list[Message]:
    blocks = [{"type": "tool_result", "tool_use_id": i, "content": text} for i in session.view.open_calls]
    return [Message.of("user", blocks)]


def test_they_stand_in_the_first_user_message() -> None:
    """INS-1, TOK-6: a reminder before the prompt, counted as instructions, the user's words alone in the ledger."""

    async def body() -> None:
        session, sink = await opened(Table(dict(TABLE)))
        model = ScriptedModel(["ok", "ok"])
        await run_turn(session, "hello", model)
        first, prompt = (item.message for item in session.view.items[:2])
        assert (first.origin, first.note, prompt.origin) == ("reminder", "instructions", "user")
        assert told(first).startswith("<system-reminder>\n") and told(first).endswith("</system-reminder>")
        assert f"## {ROOT}/CLAUDE.md\n(project: of the project; whole " in told(first) and "Use tabs." in told(first)
        assert "Sources are typed" not in told(first) and "may or may not be relevant" in told(first)
        request = (await prepare(session)).request
        groups = request.parts()
        assert [role for role, _ in groups][:2] == ["user", "user"]
        assert account(session.view, session.facts()).tokens("instructions") > 20
        await run_turn(session, "again", model)
        assert len(reminders(session)) == 1
        assert [e for e in sink.events if isinstance(e, InstructionsLoaded)] == [InstructionsLoaded("start", 1, 15)]

    anyio.run(body)


def test_a_resumed_session_sends_the_same_bytes(tmp_path: Path) -> None:
    """REL-5: the text is frozen in the journal; what changed meanwhile comes at the end (INS-6)."""

    async def body() -> None:
        project = tmp_path / "p"
        (project / ".git").mkdir(parents=True)
        (project / "CLAUDE.md").write_text("One.\n")
        places = replace(PLACES, cwd=str(project.resolve()), root=str(project.resolve()), user=None, managed=None)
        parts = SessionOptions(settings=Settings(instructions=True), places=places)
        session = await create_session(tmp_path / "home", project=project, session="s", parts=parts)
        await run_turn(session, "hello", ScriptedModel(["ok"]))
        body_before = (await prepare(session)).request.body
        await session.close()
        (project / "CLAUDE.md").write_text("One.\nTwo.\n")
        session = await open_session(tmp_path / "home", "s", parts=parts)
        assert (await prepare(session)).request.body == body_before
        await run_turn(session, "go on", ScriptedModel(["ok"]))
        first, change = reminders(session)
        assert "Two." not in told(first) and "+Two." in told(change)
        await session.close()

    anyio.run(body)


def test_nested_files_load_once_at_the_end() -> None:
    """INS-4: read, edit, grep, bash path; again only after they were forgotten."""

    async def body() -> None:
        session, _ = await opened(Table(dict(TABLE)))
        calls = [
            read(f"{ROOT}/src/a.py"),
            read("src/b.py"),
            say(tool_use("Bash", {"command": "cd docs && grep -rn x docs/guide/intro.md | head"})),
        ]
        model = ScriptedModel([*calls, "done"])
        await run_turn(session, "look", model)
        for _ in calls:
            await run_turn(session, results(session), model)
        notes = [message.note for message in reminders(session)]
        assert notes == ["instructions", "nested_instructions", "nested_instructions"]
        assert "Sources are typed." in told(reminders(session)[1]) and "Docs are short." in told(reminders(session)[2])
        assert not model.upstream.statistics.violations

    anyio.run(body)


@pytest.mark.parametrize(
    "call",
    [
        ("Grep", {"pattern": "x", "path": "src"}),
        ("Glob", {"pattern": "src/**/*.py"}),
        ("Edit", {"file_path": "src/a.py", "old_string": "a", "new_string": "b"}),
        ("apply_patch", {"input": "*** Begin Patch\n*** Update File: src/a.py\n@@\n-a\n+b\n*** End Patch"}),
        ("Bash", {"command": "sed -n 1,5p ./src/a.py"}),
        ("shell", {"command": ["bash", "-lc", "ls src/"]}),
        ("Bash", {"command": "cd src && ls"}),
        ("mcp__fs__read_file", {"path": f"{ROOT}/src/a.py"}),
    ],
)
def test_any_tool_that_touches_a_path(call: tuple[str, dict[str, Any]]) -> None:
    """INS-4."""

    async def body() -> None:
        session, _ = await opened(Table(dict(TABLE)))
        model = ScriptedModel([say(tool_use(*call)), "done"])
        await run_turn(session, "look", model)
        await run_turn(session, results(session), model)
        assert [m.note for m in reminders(session)] == ["instructions", "nested_instructions"]

    anyio.run(body)


def test_a_failed_call_touches_nothing() -> None:
    async def body() -> None:
        session, _ = await opened(Table(dict(TABLE)))
        model = ScriptedModel([read("src/a.py"), "done"])
        await run_turn(session, "look", model)
        (message,) = results(session)
        block = {
            **{"type": "tool_result", "content": "no", "is_error": True},
            "tool_use_id": message.tool_results[0].tool_use_id,
        }
        await run_turn(session, [Message.of("user", [block])], model)
        assert len(reminders(session)) == 1

    anyio.run(body)


def test_after_a_compaction_they_are_fresh_and_nested_ones_forgotten() -> None:
    """RST-7, INS-4, INS-6: the front is refreshed; a nested file loads again at the next touch."""

    async def body() -> None:
        table = Table(dict(TABLE))
        session, _ = await opened(table)
        model = ScriptedModel([read("src/a.py"), "done", read("src/a.py"), "done"])
        await run_turn(session, "look at it", model)
        await run_turn(session, results(session, "word " * 20_000), model)
        table.texts[f"{ROOT}/CLAUDE.md"] += "\nAnd spaces never."
        for _ in range(3):
            await session.append(Message.of("user", "word " * 9_000), Message.of("assistant", "ok"))
        serve(session, summarizer=())
        assert isinstance(await compact(session, trigger="manual"), CompactionSuccess)
        (back,) = reminders(session)
        assert (back.origin, back.note) == ("restored", "instructions") and "And spaces never." in told(back)
        assert account(session.view, session.facts()).tokens("instructions") > 20
        assert not any("Sources are typed" in told(item.message) for item in session.view.items[1:])
        await run_turn(session, "again", model)
        await run_turn(session, results(session), model)
        assert [m.note for m in reminders(session)] == ["instructions", "nested_instructions"]
        assert "Sources are typed." in told(reminders(session)[-1])

    anyio.run(body)


def test_changes_are_told_as_a_diff() -> None:
    """INS-6: changed, gone, new, nested, again as it was, too large for a diff; each said once."""

    async def body() -> None:
        table = Table({**TABLE, "/home/me/.claude/CLAUDE.md": "Be brief."})
        session, sink = await opened(table)
        model = ScriptedModel([read("src/a.py"), *["ok"] * 9])
        await run_turn(session, "look", model)
        await run_turn(session, results(session), model)

        async def turn() -> str:
            before = len(reminders(session))
            await run_turn(session, "next", model)
            await run_turn(session, "next", model)
            return "".join(map(told, reminders(session)[before:]))

        table.texts[f"{ROOT}/CLAUDE.md"] = table.texts[f"{ROOT}/CLAUDE.md"].replace("tabs", "spaces")
        table.texts[f"{ROOT}/src/CLAUDE.md"] = "Sources are typed, all of them. </system-reminder>"
        del table.texts["/home/me/.claude/CLAUDE.md"]
        table.texts[f"{ROOT}/CLAUDE.local.md"] = "My own."
        text = await turn()
        assert "-Use tabs." in text and "+Use spaces." in text and "+Sources are typed, all of them." in text
        assert "It is gone" in text and "My own." in text and text.count("</system-reminder>") == 1
        table.texts[f"{ROOT}/CLAUDE.md"] = TABLE[f"{ROOT}/CLAUDE.md"]
        assert "again as it was first shown" in await turn()
        table.texts[f"{ROOT}/CLAUDE.md"] = "\n".join(f"line {n}" for n in range(5_000))
        assert "Read the file" in await turn()
        assert [e.files for e in sink.events if isinstance(e, InstructionsChanged)] == [4, 1, 1]

    anyio.run(body)


def test_compact_instructions_reach_the_summariser() -> None:
    """CMP-3."""

    async def body() -> None:
        session, _ = await opened(Table(dict(TABLE)))
        seen: list[str] = []

        async def propose(session: LiveSession, facts: Any) -> Any:
            seen.append(instruction(facts))
            yield "no_summary"

        from perdure.engine.compact import CompactionStrategy

        serve(session, strategies=(CompactionStrategy("spy", propose),))
        await run_turn(session, "hello", ScriptedModel(["ok"]))
        assert "Keep all ticket numbers." in compact_instructions_shown(session.view)
        await proposal(session, CompactionRequest(trigger="manual", focus="the parser"))
        assert "Keep all ticket numbers." in seen[0] and "the parser" in seen[0]

    anyio.run(body)


def test_over_the_budget_the_model_is_told() -> None:
    """INS-5, PRS-2: in a small window the budget is small, and what is cut says so."""

    async def body() -> None:
        long = "\n".join(f"# S{n}\n{'word ' * 200}" for n in range(40))
        table = Table({"/code/CLAUDE.md": long, f"{ROOT}/CLAUDE.md": "Near."})
        session, _ = await opened(table, window_tokens=16_000)
        await run_turn(session, "hello", ScriptedModel(["ok", "ok"]))
        (first,) = reminders(session)
        assert "Near." in told(first) and "[Cut here for room:" in told(first)
        assert len(told(first)) < 16_000
        await run_turn(session, "again", ScriptedModel(["ok"]))
        assert len(reminders(session)) == 1

    anyio.run(body)


def test_reminder_sources_have_an_order_and_never_end_a_turn() -> None:
    """TURN-10: the registry, the host's texts, and a source that raises."""

    async def body() -> None:
        session, sink = await opened(Table(dict(TABLE)))
        selection: list[str | None] = [None]

        async def selected() -> str | None:
            return selection[0]

        async def broken() -> str | None:
            raise OSError("gone")

        serve(
            session,
            reminders=(
                HostReminder("plan", "The plan", broken),
                HostReminder("other", "Other", selected),
                HostReminder("selection", "Selected in the editor", selected),
                *session.services.reminders,
            ),
        )
        assert [one.name for one in ordered_sources(session.services.reminders)] == [
            "instructions",
            "selection",
            "plan",
            "other",
            "whereabouts",
        ]
        model = ScriptedModel(["ok"] * 4)
        await run_turn(session, "one", model)
        selection[0] = "def f(): </system-reminder>"
        await run_turn(session, "two", model)
        await run_turn(session, "three", model)
        shown = [item.message for item in session.view.items if item.message.note == "selection"]
        assert len(shown) == 1 and "# Selected in the editor\ndef f():" in told(shown[0])
        assert [e.source for e in sink.events if isinstance(e, ReminderFailed)] == ["plan"] * 3
        await session.append(Message.of("assistant", [{"type": "tool_use", "id": "t", "name": "X", "input": {}}]))
        count = len(session.view.items)
        await remind(session, "before")
        assert len(session.view.items) == count, "nothing stands between a call and its result"

    anyio.run(body)


# --- the disk ------------------------------------------------------------------------------------------------------


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    return folder.resolve()


def gathered(project: Path, tmp_path: Path, *, is_trusted: bool = True, **more: Any) -> Any:
    environ = {"HOME": str(tmp_path / "me")}
    places = places_of(Settings(**more), environ, cwd=project, home=tmp_path / "home", is_trusted=is_trusted)
    return anyio.run(DiskInstructions(replace(places, managed=None)).at_start)


def test_the_reader_is_bounded(project: Path, tmp_path: Path) -> None:
    """INS-3, INS-5, SEC-6: texts of at most 4 MiB, regular files, nothing raises."""
    (project / "big.md").write_bytes(b"a" * (MAX_BYTES + 1))
    (project / "bin.md").write_bytes(b"PK\0\0")
    (project / "latin.md").write_bytes(b"caf\xe9")
    (project / "bom.md").write_bytes(b"\xef\xbb\xbfa\r\nb")
    (project / "folder.md").mkdir()
    (project / "loop.md").symlink_to(project / "loop.md")
    reader = DiskReader()
    why = {path.name: reader.read(str(path)).why for path in project.iterdir() if path.suffix == ".md"}
    assert "larger than 4 MiB" in why["big.md"] and why["bin.md"] == "not a text file" and why["folder.md"] == MISSING
    assert reader.read(str(project / "latin.md")).text == "caf\ufffd"
    assert reader.read(str(project / "bom.md")).text == "a\nb"
    assert reader.read(str(project / "loop.md")).text is None and reader.read("a\0b").text is None
    (project / "latin.md").write_text("changed")
    assert reader.read(str(project / "latin.md")).text == "changed"


@pytest.mark.skipif(sys.platform == "win32", reason="links")
def test_links_of_rules_are_followed_once(project: Path, tmp_path: Path) -> None:
    """INS-2, INS-3: a cycle of folders ends; a link out of the project needs approval."""
    rules = project / ".claude" / "rules"
    (rules / "deep").mkdir(parents=True)
    (rules / "deep" / "a.md").write_text("deep rule")
    (rules / "again").symlink_to(rules / "deep")
    (rules / "deep" / "up").symlink_to(rules)
    outside = tmp_path / "shared.md"
    outside.write_text("shared rule")
    (rules / "shared.md").symlink_to(outside)
    found = gathered(project, tmp_path)
    assert [file.text for file in found.files] == ["deep rule"]
    assert [one.code for one in found.skipped] == ["not_approved"]
    approve(tmp_path / "home", cwd=project, path=str(outside))
    assert [file.text for file in gathered(project, tmp_path).files] == ["deep rule", "shared rule"]


def test_approvals_are_kept_by_project(project: Path, tmp_path: Path) -> None:
    """INS-3."""
    home, outside = tmp_path / "home", tmp_path / "o.md"
    outside.write_text("outside")
    (project / "CLAUDE.md").write_text("See @../o.md")
    assert [one.code for one in gathered(project, tmp_path).skipped] == ["not_approved"]
    real = approve(home, cwd=project, path="../o.md")
    assert approvals(home) == {str(project): [real]} and (home / APPROVALS).stat().st_mode & 0o777 == 0o600
    assert [file.text for file in gathered(project, tmp_path).files] == ["See @../o.md", "outside"]
    approve(home, cwd=project, path=str(outside), revoke=True)
    assert len(gathered(project, tmp_path).files) == 1
    with pytest.raises(BadSetting, match="no such file"):
        approve(home, cwd=project, path="nowhere.md")
    (home / APPROVALS).write_text("[")
    with pytest.raises(BadSetting, match="can't be read"):
        gathered(project, tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="links")
def test_a_project_named_by_another_way(project: Path, tmp_path: Path) -> None:
    """INS-4: a touched path counts by where it leads."""
    (project / "src").mkdir()
    (project / "src" / "CLAUDE.md").write_text("nested")
    (tmp_path / "way").symlink_to(project)
    files = DiskInstructions(replace(PLACES, cwd=str(project), root=str(project), user=None, managed=None))
    for path, count in ((f"{tmp_path}/way/src/a.py", 1), (f"{tmp_path}/src/a.py", 0), ("src/a.py", 1)):
        assert len(anyio.run(files.touched, (path,)).files) == count


def test_a_project_leaves_out_what_is_its_own_and_nothing_of_the_user(project: Path, tmp_path: Path) -> None:
    """SEC-8: its excludes would hide the user's instructions otherwise, and what the user says of all projects."""
    (tmp_path / "me" / ".claude").mkdir(parents=True)
    (tmp_path / "me" / ".claude" / "CLAUDE.md").write_text("mine")
    (project / "CLAUDE.md").write_text("theirs")
    (project / ".claude").mkdir()
    (project / ".claude" / "settings.json").write_text('{"claudeMdExcludes": ["**"]}')
    assert [file.text for file in gathered(project, tmp_path).files] == ["mine"]
    assert [file.text for file in gathered(project, tmp_path, is_trusted=False).files] == ["mine", "theirs"]


def test_what_a_stranger_says_is_framed_as_text_of_the_project(project: Path, tmp_path: Path) -> None:
    """SEC-8: CLAUDE.local.md is the user's own only where the folder is trusted."""
    for name in ("CLAUDE.md", "CLAUDE.local.md"):
        (project / name).write_text(name)
    assert [file.scope for file in gathered(project, tmp_path).files] == ["project", "local"]
    strange = gathered(project, tmp_path, is_trusted=False).files
    assert [(file.scope, file.is_strange) for file in strange] == [("project", True)] * 2
    message = start_message(fit_files(strange, 40_000))
    assert message is not None
    for block in message.blocks[1:-1]:
        assert isinstance(block.value, Text)
        assert "(project: text of the project, whose folder the user has not said to trust; whole" in block.value.text
        assert trust(message, block) == TrustLevel.PROJECT


def test_nothing_outside_is_opened_to_find_out_that_it_may_not_be(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SEC-8, INS-3: imports, links, links to folders of rules, and the hop after the last are refused unopened."""
    secret = tmp_path / "elsewhere"
    (secret / "rules").mkdir(parents=True)
    (secret / "rules" / "r.md").write_text("outside")
    (secret / "s.md").write_text("outside")
    (project / ".claude").mkdir()
    (project / ".claude" / "rules").symlink_to(secret / "rules")
    (project / ".claude" / "CLAUDE.md").symlink_to(secret / "s.md")
    (project / "CLAUDE.md").write_text(f"@{secret}/s.md @../elsewhere/s.md @one.md @link/s.md")
    (project / "link").symlink_to(secret)
    for n, name in enumerate(("one", "two", "three", "four"), 2):
        (project / f"{name}.md").write_text(f"{name} @{('', '', 'two', 'three', 'four', 'link/s')[n]}.md")
    opened: list[str] = []
    real_open, real_scan = os.open, os.scandir

    def watched(path: Any, *rest: Any, **more: Any) -> int:
        opened.append(os.path.realpath(os.fspath(path)))
        return real_open(path, *rest, **more)

    def scanned(path: Any) -> Any:
        if not isinstance(path, int):  # a folder that is open already, as pytest's own clearing up has it
            opened.append(os.path.realpath(os.fspath(path)))
        return real_scan(path)

    monkeypatch.setattr(os, "open", watched)
    monkeypatch.setattr(os, "scandir", scanned)
    found = gathered(project, tmp_path)
    assert [Path(file.path).name for file in found.files] == ["CLAUDE.md", "one.md", "two.md", "three.md", "four.md"]
    assert {one.code for one in found.skipped} == {"not_approved", "depth"}
    assert opened and not [path for path in opened if path.startswith(str(secret.resolve()))]


def test_claude_code_settings_exclude_too(project: Path, tmp_path: Path) -> None:
    """INS-5: a setup made for Claude Code works as it is."""
    (project / "CLAUDE.md").write_text("a")
    (project / ".claude").mkdir()
    (project / ".claude" / "CLAUDE.md").write_text("b")
    (project / ".claude" / "settings.json").write_text('{"claudeMdExcludes": ["**/.claude/CLAUDE.md", 7]}')
    assert [file.text for file in gathered(project, tmp_path).files] == ["a"]
    assert len(gathered(project, tmp_path, is_trusted=False).files) == 2, "SEC-8: a stranger leaves nothing out"
    (project / ".claude" / "settings.json").write_text("{broken")
    assert len(gathered(project, tmp_path).files) == 2
    assert len(gathered(project, tmp_path, instructions_excludes=(f"{project}/CLAUDE.md",)).files) == 1
