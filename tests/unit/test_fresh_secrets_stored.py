"""SEC-5, findings R1, R3 and R11: fresh secrets, asked to be remembered, in results, in calls, in pasted text: none is
in anything that Perdure writes but its journals.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path

import anyio
import msgspec
import pytest
from tests.commands import command
from tests.fresh_secrets import FRESH
from tests.plugins import SESSION, ClaudeCodeLog

from perdure import Message, Settings
from perdure.context.view import project
from perdure.engine.compact import CompactionSuccess, compact
from perdure.gateway.titles import titled
from perdure.lab.report.timeline import _short
from perdure.plugin.carried import CarriedBody, open_carried
from perdure.plugin.hook import answer, session_folder
from perdure.plugin.record import record
from perdure.transcript.blocks import Text
from perdure.wiring import SessionOptions, background, create_session

pytestmark = pytest.mark.unit
LEAST = 3  # a shorter value stands in other words


def left_in(text: str) -> list[str]:
    """The names of the secrets that stand in a text, as they were said or as JSON writes them."""
    forms = (
        (name, {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]})
        for name, _, value in FRESH
    )
    return [name for name, values in forms if any(value in text for value in values)]


def texts_of(folder: Path) -> Iterator[tuple[Path, str]]:
    """Every file below a folder, and its name, but for journals and what lies beside them to be found again."""
    for path in sorted(folder.rglob("*")):
        yield path, path.name
        if path.is_file():
            yield path, path.read_bytes().decode("utf-8", "replace")


def test_no_fresh_secret_is_in_what_the_plugin_keeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PLG-1, SEC-5: neither in its state, nor in its record, nor in a memory, its name or the index."""
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "client"))
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path))
    log = ClaudeCodeLog(tmp_path / "client" / "projects" / "-srv-app" / "log.jsonl")
    log.user("Remember that we deploy on Fridays.")
    for _, text, _ in FRESH:
        log.user(f"Please remember that {text}")
        log.run("cat notes.txt", f"line one\n{text}\nline three")
        log.run(text)
        log.user(f"Have a look at this page:\n\n{text}\n\nand never change generated files.")
    data = str(tmp_path / "data")
    given = {"session_id": SESSION, "transcript_path": str(log.path), "cwd": str(tmp_path)}
    answer({**given, "hook_event_name": "PreCompact"}, data)
    folder = session_folder(data, SESSION)
    with open_carried(folder, str(log.path)) as carried:
        carried.read_on()
        carried.save()
        told = record(carried, 60_000)
    answer({**given, "hook_event_name": "SessionEnd"}, data)
    memories = [text for path, text in texts_of(tmp_path / "home") if path.suffix == ".md"]
    assert any("deploy on Fridays" in text for text in memories) and "never change generated files" in told
    assert left_in(told) == []
    for path, text in (*texts_of(tmp_path / "data"), *texts_of(tmp_path / "home")):
        assert left_in(text) == [], path
    state = (Path(folder) / "state").read_bytes().partition(b"\n")[2]
    assert left_in(str(msgspec.to_builtins(msgspec.msgpack.decode(state, type=CarriedBody).memory))) == []


def test_no_fresh_secret_is_in_records_notes_and_exports(tmp_path: Path) -> None:
    """SEC-5: what a compaction writes, the notes, and `export --all` in both formats."""
    home, told = tmp_path / "home", list[str]()
    settings = Settings(
        restore=False, window_tokens=400_000, keep_min_tokens=100, keep_max_tokens=500, keep_min_texts=1
    )

    async def go() -> None:
        session = await create_session(home, project=tmp_path, session="s1", parts=SessionOptions(settings=settings))
        keepers = background(session)
        try:
            for number, (_, text, _) in enumerate(FRESH):
                use = {"type": "tool_use", "id": f"t{number}", "name": "Bash", "input": {"command": text}}
                result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": f"one\n{text}\nthree"}
                await session.append(
                    Message.of("user", f"Please remember that {text}"),
                    Message.of("assistant", [use]),  # type: ignore[list-item]
                    Message.of("user", [result]),
                    Message.of("assistant", "Done."),
                )
            await session.append(Message.of("user", "Go on."), Message.of("assistant", "Yes."))
            keepers.after_reply(session)
            await keepers.drain(session)
            done = await compact(session, trigger="manual")
            assert isinstance(done, CompactionSuccess)
            for message in done.boundary.summary:
                told.extend(block.value.text for block in message.blocks if isinstance(block.value, Text))
        finally:
            await keepers.close(session)
            await session.close()

    anyio.run(go)
    assert left_in("\n".join(told)) == []
    for path, text in texts_of(home):
        if path.suffix == ".md":
            assert left_in(text) == [], path
    environ = {**os.environ, "HOME": str(tmp_path), "PERDURE_HOME": str(home)}
    out = tmp_path / "out"
    done = command("export", "--all", "-o", str(out), cwd=tmp_path, env=environ)
    assert done.returncode == 0, done.stderr
    files = [(path, text) for path, text in texts_of(out) if path.is_file()]
    assert {path.suffix for path, _ in files} >= {".jsonl", ".md"}
    assert {path.name: left_in(text) for path, text in files if left_in(text)} == {}


def test_no_fresh_secret_is_cut_into_a_title_or_a_report(tmp_path: Path) -> None:
    """SEC-5, finding R1: what is cut for a title or a line of a report was without secrets before."""
    for number, (name, text, value) in enumerate(FRESH):
        said = Message.of("user", f"{'word ' * 11}{text}", id=f"m{number}")
        title = asyncio.run(titled(project((said,)), ""))
        shown = (title.title or "") if title is not None else ""
        cut = value.split("\n")[0][: max(6, len(value) // 2)]
        assert cut not in shown and cut not in _short(said.blocks[0].value.text), name  # type: ignore[union-attr]
