"""How a person leaves: everything comes out, clients are as they were, and nothing of Perdure stays (OPS-2)."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Iterator
from http.server import HTTPServer
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace
from tests.commands import command
from tests.e2e.test_setup import CLAUDE, FILES, Well, environ

from perdure.adapters.extras import release
from perdure.adapters.journal.home import FileHome
from perdure.adapters.journal.projects import folder_of_name
from perdure.context.view import ContextView
from perdure.engine.compact import compact
from perdure.transcript.codec import VERSION, decode_header, encode_header
from perdure.transcript.messages import Message, MessageId
from perdure.wiring import create_session, open_session

pytestmark = pytest.mark.e2e

ANSWER = "It is in line 7."


@pytest.fixture
def person(tmp_path: Path) -> Path:
    """A home directory with a project, and with clients that somebody has set up for themselves."""
    (tmp_path / "app").mkdir()
    for name, text in FILES.values():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    program = tmp_path / "bin" / "claude"
    program.parent.mkdir()
    program.write_text(CLAUDE)
    program.chmod(0o755)
    return tmp_path


@pytest.fixture
def url() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Well)
    server.health = b'{"service": "perdure", "status": "ok"}'  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def run(person: Path, *words: str | Path, code: int = 0) -> str:
    done = command(*words, cwd=person / "app", env=environ(person, person / "bin" / "claude"))
    assert done.returncode == code, (words, done.stdout, done.stderr)
    return done.stdout + done.stderr


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def talk(word: str, turns: int = 3) -> list[Message]:
    found = [Message.of("user", f"Find the {word} bug", id=MessageId(f"{word}-0"), at=1_750_000_000.0)]
    for turn in range(turns):
        use = {
            "type": "tool_use",
            "id": f"{word}{turn}",
            "name": "Bash",
            "input": {"command": f"grep -n {word} {turn}"},
        }
        result = {"type": "tool_result", "tool_use_id": f"{word}{turn}", "content": f"{word} line\n" * 700}
        found.append(Message.of("assistant", [use], id=MessageId(f"{word}-c{turn}"), at=1_750_000_001.0 + turn))
        found.append(Message.of("user", [result], id=MessageId(f"{word}-r{turn}"), at=1_750_000_001.0 + turn))
    return [*found, Message.of("assistant", ANSWER, id=MessageId(f"{word}-end"), at=1_750_000_010.0)]


def kept(home: Path, project: Path, name: str, *, is_compacted: bool = False) -> None:
    """A session with a talk about its own name."""

    async def body() -> None:
        session = await create_session(home, project=project, session=name)
        await session.append(*talk(name))
        if is_compacted:
            await compact(session, trigger="manual")
        await session.close()

    anyio.run(body)


def noted(home: Path, name: str, text: str) -> None:
    """What a keeper of notes would have written."""

    async def body() -> None:
        stored = await FileHome(home).open(name, read_only=True)
        assert await stored.notes.write(text.encode(), instead_of=await stored.notes.read())
        await stored.journal.close()

    anyio.run(body)


def goes_on(home: Path, name: str) -> None:
    """One more prompt, later than what was exported."""

    async def body() -> None:
        session = await open_session(home, name)
        await session.append(Message.of("user", "And the second one?", id=MessageId("more"), at=1_750_000_020.0))
        await session.close()

    anyio.run(body)


def said(home: Path, name: str) -> list[tuple[str, list[bytes]]]:
    """Everything that was said in a session, by role, with the bytes of its blocks."""

    async def body() -> list[tuple[str, list[bytes]]]:
        session = await open_session(home, name)
        try:
            view: ContextView = session.view
            return [(one.message.role, [bytes(raw) for raw in one.message.content]) for one in view.items]
        finally:
            await session.close()

    return anyio.run(body)


def of_log(path: Path) -> list[tuple[str, Any]]:
    """Roles and contents of a Claude Code log, summaries left out."""
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    return [
        (entry["type"], entry["message"]["content"])
        for entry in entries
        if entry["type"] in ("user", "assistant") and not entry.get("isCompactSummary")
    ]


def test_everything_comes_out_and_nothing_stays(person: Path, url: str) -> None:
    """OPS-2, PLG-1: set up, used, exported, taken back, deleted: each file of a client is byte for byte as before."""
    before, home, out = files(person), person / ".perdure", person / "export"
    run(person, "setup", "codex", "--gateway", "--url", url)
    run(person, "setup", "opencode", "--gateway", "--url", url)
    run(person, "setup", "claude-code", "--program", person / "bin" / "claude")
    kept(home, person / "app", "parser", is_compacted=True)
    run(person, "run", "say hello", "--model", "offline", "--trust")
    run(person, "memory", "add", "The staging database is read-only.")
    run(person, "memory", "add", "--user", "I write tests first.")
    run(person, "init", "--project")
    noted(home, "parser", "# What it is about\n\nThe parser, and the key ghp_" + "a1B2" * 9)

    shown = run(person, "export", "--all", "-o", out)
    assert "2 sessions: 2 exported" in shown
    project = out / "projects" / folder_of_name(str(person / "app"))
    assert [content for _, content in of_log(project / "parser.jsonl")] == [
        json.loads(b"[%s]" % b",".join(bytes(raw) for raw in one.content)) for one in talk("parser")
    ]
    assert ANSWER in (project / "parser.md").read_text()
    notes = (project / "parser.notes.md").read_text()
    assert "The parser, and the key {{secret:github-token:" in notes
    memories = {name: data for name, data in files(out).items() if "/memory/" in f"/{name}"}
    assert any(b"staging" in data for data in memories.values()) and any(b"tests first" in d for d in memories.values())

    for client in ("codex", "opencode", "claude-code"):
        run(person, "setup", client, "--remove")
    shutil.rmtree(home)  # what the page on stability says is left
    shutil.rmtree(person / "app" / ".perdure")
    for name, _ in FILES.values():
        assert (person / name).read_bytes() == before[name], name
    shutil.rmtree(out)
    assert files(person) == before


def test_an_export_can_be_imported(person: Path) -> None:
    """OPS-2, ENG-6: into a home where nothing is, with everything that was said."""
    home, out = person / ".perdure", person / "export"
    for name in ("parser", "lexer"):
        kept(home, person / "app", name)
    run(person, "export", "--all", "-o", out)
    was = {name: said(home, name) for name in ("parser", "lexer")}
    shutil.rmtree(home)
    run(person, "import", out / "projects")
    assert {name: said(home, name) for name in was} == was


def test_a_second_run_takes_what_went_on(person: Path) -> None:
    """OPS-2: unread where nothing went on; left alone where a file says something else; --force replaces it."""
    home, out = person / ".perdure", person / "export"
    for name in ("parser", "lexer"):
        kept(home, person / "app", name)
    assert "2 exported;" in run(person, "export", "--all", "-o", out)
    project = out / "projects" / folder_of_name(str(person / "app"))
    before = files(out)
    assert out.stat().st_mode & 0o077 == 0, "nobody else sees whose sessions there are"
    assert "2 exported before;" in run(person, "export", "--all", "-o", out)
    (project / "lexer.md").unlink()  # as a run that was stopped between two files leaves it
    assert "1 exported, 1 exported before;" in run(person, "export", "--all", "-o", out)
    assert files(out) == before

    (project / "parser.md").write_text("my own words")
    shown = run(person, "export", "--all", "-o", out, code=1)
    assert f"left: {project / 'parser.md'}: says something else than now; --force replaces it" in shown
    assert (project / "parser.md").read_text() == "my own words" and (project / "parser.jsonl").is_file()
    run(person, "export", "--all", "-o", out, "--force")
    assert files(out) == before

    goes_on(home, "lexer")
    shown = run(person, "export", "--all", "-o", out, code=1)
    assert f"lexer: left: {project / 'lexer.jsonl'}: is of before the session went on; --force replaces it" in shown
    assert files(out) == before
    assert "1 exported, 1 exported before;" in run(person, "export", "--all", "-o", out, "--force")
    assert b"And the second one?" in files(project)["lexer.jsonl"]


def test_force_looks_at_files_that_have_their_time(person: Path) -> None:
    """OPS-2, SEC-5: what was changed behind a file's time, or written by a version that knew fewer secrets."""
    home, out = person / ".perdure", person / "export"
    kept(home, person / "app", "parser")
    run(person, "export", "--all", "-o", out)
    before = files(out)
    project = out / "projects" / folder_of_name(str(person / "app"))
    for path in (project / "parser.md", project / "parser.jsonl"):
        about = path.stat()
        path.write_bytes(path.read_bytes() + b"more\n")
        os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert "1 exported before;" in run(person, "export", "--all", "-o", out), "without it, a file's time is believed"
    assert "1 exported;" in run(person, "export", "--all", "-o", out, "--force")
    assert files(out) == before


def test_what_another_version_may_have_written_is_said(person: Path) -> None:
    """OPS-2, SEC-5: until --force has written all of it anew; a copy of one form says nothing of the other."""
    home, out = person / ".perdure", person / "export"
    kept(home, person / "app", "parser")
    run(person, "export", "--all", "-o", out)
    mark = out / ".perdure-export"
    assert json.loads(mark.read_text()) == dict.fromkeys(("claude-code", "markdown"), release())
    told = "may have been written by Perdure 0.0.9; --force writes it as this version does"
    assert "may have been written" not in run(person, "export", "--all", "-o", out)
    mark.write_text(json.dumps({"claude-code": "0.0.9", "markdown": "0.0.9"}))
    assert told in run(person, "export", "--all", "-o", out)
    assert told not in run(person, "export", "--all", "-o", out, "--force", "--format", "markdown")
    assert told not in run(person, "export", "--all", "-o", out, "--format", "markdown")
    assert told in run(person, "export", "--all", "-o", out)
    for unreadable in ("", "[]", '{"markdown": 1}'):
        mark.write_text(unreadable)
        assert "written by another version of Perdure" in run(person, "export", "--all", "-o", out)
    run(person, "export", "--all", "-o", out, "--force")
    assert "may have been written" not in run(person, "export", "--all", "-o", out)


def test_what_fails_stops_nothing(person: Path) -> None:
    """OPS-2, CLI-5: what can't be read is named each time, the rest of it is written, and so are the others."""
    home, out = person / ".perdure", person / "export"
    for name in ("parser", "lexer", "linker"):
        kept(home, person / "app", name)
    below = home / "projects" / folder_of_name(str(person / "app"))
    lines = (below / "lexer" / "journal.jsonl").read_bytes().splitlines(keepends=True)
    (below / "lexer" / "journal.jsonl").write_bytes(b"".join([*lines[:2], b"x" * 50 + lines[2][50:], *lines[3:]]))
    newer = replace(decode_header(lines[0]), version=VERSION + 1)
    (below / "linker" / "journal.jsonl").write_bytes(encode_header(newer) + b"".join(lines[1:]))
    for _ in range(2):
        shown = run(person, "export", "--all", "-o", out, code=1)
        assert "lexer: damaged: " in shown and "linker: failed: " in shown
        assert ANSWER in (out / "projects" / below.name / "lexer.md").read_text()
    told = [json.loads(line) for line in run(person, "export", "--all", "-o", out, "--json", code=1).splitlines()]
    assert {one["session"]: one["outcome"] for one in told[:-1]} == {
        "parser": "exported before",
        "lexer": "damaged",
        "linker": "failed",
    }
    assert told[-1]["total"] | {"damaged": 1, "failed": 1, "left": 0} == told[-1]["total"]


def test_tenants_and_one_format(person: Path) -> None:
    """OPS-2, SCL-6: each tenant of a gateway in a folder of its own, or one alone."""
    home, out = person / ".perdure", person / "export"
    kept(home, person / "app", "parser")
    kept(home / "gateway" / "tenants" / "alice", person / "app", "lexer")
    run(person, "export", "--all", "-o", out, "--format", "markdown")
    below = f"projects/{folder_of_name(str(person / 'app'))}"
    mark = ".perdure-export"
    assert set(files(out)) == {mark, f"{below}/parser.md", f"tenants/alice/{mark}", f"tenants/alice/{below}/lexer.md"}
    run(person, "export", "--all", "--tenant", "alice", "-o", person / "hers", "--format", "claude-code")
    assert set(files(person / "hers")) == {f"tenants/alice/{mark}", f"tenants/alice/{below}/lexer.jsonl"}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "name one session or log, or say --all"),
        (("@last", "--all"), "name one session or log, or say --all"),
        (("--all", "--session", "x"), "--session is about one log"),
        (("--all", "-o", "-"), "-o names a folder"),
        (("--all", "-o", "../.claude/settings.json"), "is no folder"),
        (("--all", "--tenant", "nobody"), "nothing is kept of a tenant"),
    ],
)
def test_what_cant_be_meant_is_one_line(person: Path, words: tuple[str, ...], told: str) -> None:
    """OPS-2, CLI-5."""
    output = () if "-o" in words else ("-o", "out")
    done = command("export", *words, *output, cwd=person / "app", env=environ(person))
    assert done.returncode in (2, 3) and not done.stdout and told in done.stderr, done
    assert len(done.stderr.splitlines()) == 1 and not os.path.lexists(person / "app" / "out")
