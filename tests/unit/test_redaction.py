"""SEC-5: no secret in records, notes, exports and events; the journal keeps the bytes that came, by default."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.commands import command

from perdure import Message, Settings
from perdure.adapters.journal.disk import Disk
from perdure.adapters.journal.store import secret_key
from perdure.adapters.memory.notes import notes_path
from perdure.adapters.sinks import ListSink
from perdure.engine.background import Keepers
from perdure.engine.compact import CompactionSuccess, compact
from perdure.engine.session import LiveSession
from perdure.events import SecretsRedacted
from perdure.memory.trust.secrets import MARK, redact, redact_json, redact_log, redact_record
from perdure.transcript.blocks import Text, text_block
from perdure.transcript.records import Pinned
from perdure.wiring import SessionOptions, background, create_session

pytestmark = pytest.mark.unit
KEY = b"k" * 32
TOKEN = "ghp_" + "a1B2" * 9
ROOMY = Settings(restore=False, window_tokens=200_000, keep_min_tokens=100, keep_max_tokens=500, keep_min_texts=1)


# --- JSON and records -----------------------------------------------------------------------------------------------


def test_json_is_redacted_in_its_texts_and_else_keeps_its_bytes() -> None:
    """SEC-5: behind a line break too; a value is known by its name; what is bound by a signature stays."""
    raw = b'{ "type":"text", "text":"no secret",  "n":1.50 }'
    assert redact_json(raw, KEY).raw is raw
    found = redact_json(
        json.dumps({"text": f"line\n{TOKEN}\n", "password": "Kelp#2024!", "n": [1, TOKEN]}).encode(), KEY
    )
    assert TOKEN.encode() not in found.raw and b"Kelp" not in found.raw
    assert found.families == ("github-token", "password", "github-token")
    assert len(MARK.findall(json.loads(found.raw)["text"])) == 1
    bound = json.dumps({"type": "thinking", "thinking": TOKEN, "signature": TOKEN}).encode()
    assert redact_json(bound, KEY).raw == bound
    assert redact_json(b"no json " + TOKEN.encode(), KEY).families == ()
    lines = b'{"a": 1}\n{"text": "' + TOKEN.encode() + b'"}\nbroken\n'
    assert redact_log(lines, KEY).startswith(b'{"a": 1}\n{"text":"{{secret:github-token:')
    assert redact_log(lines, KEY).endswith(b"\nbroken\n")


def test_a_record_loses_a_long_value_everywhere_and_keeps_its_promises() -> None:
    """SEC-5, CMP-3: a value that one place gives away is replaced in every place; other words stay word for word."""
    value = "tide9harbour7kelp"
    text = f"password = {value}\nLater {value} was used.\nUse make."
    done = redact_record(text, ("Use make.", f"Later {value} was used."), KEY)
    assert value not in done.text and done.promised == ("Use make.",)
    assert redact_record("Use make.", ("Use make.", "not there"), KEY).promised == ("Use make.", "not there")


# --- a session ------------------------------------------------------------------------------------------------------


def run(home: Path, do: Callable[[LiveSession, Keepers], Awaitable[Any]], settings: Settings = ROOMY) -> ListSink:
    """A session in which a secret was said, called with, and answered; every event afterwards is free of it."""
    sink = ListSink()

    async def go() -> None:
        session = await create_session(
            home, project=home, session="s1", parts=SessionOptions(settings=settings, sink=sink)
        )
        keepers = background(session)
        try:
            for number in range(12):
                use = {
                    "type": "tool_use",
                    "id": f"t{number}",
                    "name": "Bash",
                    "input": {"command": f"login {number} {TOKEN}"},
                }
                result = {
                    "type": "tool_result",
                    "tool_use_id": f"t{number}",
                    "content": f"ok {TOKEN}\n" + "word " * 300,
                }
                await session.append(
                    Message.of("user", f"Step {number}: deploy with the token {TOKEN}, please."),
                    Message.of("assistant", [text_block(f"I use {TOKEN}."), use]),  # type: ignore[list-item]
                    Message.of("user", [result]),
                    Message.of("assistant", f"Done with step {number}."),
                )
            await do(session, keepers)
        finally:
            await keepers.close(session)
            await session.close()

    anyio.run(go)
    assert TOKEN not in repr(sink.events)
    return sink


def journal(home: Path) -> str:
    return next(home.rglob("journal.jsonl")).read_text()


def test_the_record_of_a_compaction_has_no_secret_and_the_journal_keeps_the_bytes(tmp_path: Path) -> None:
    """SEC-5, CMP-5: the mark has the id that the home's key gives; what was said is in the journal as it came."""

    async def do(session: LiveSession, keepers: Keepers) -> None:
        assert isinstance(await compact(session, trigger="manual", focus=f"the token {TOKEN}"), CompactionSuccess)
        assert session.view.boundary is not None
        for message in session.view.boundary.summary:
            text = "".join(block.value.text for block in message.blocks if isinstance(block.value, Text))
            assert TOKEN not in text and redact(TOKEN, secret_key(tmp_path)).text in text

    sink = run(tmp_path, do)
    assert any(isinstance(e, SecretsRedacted) and e.place == "summary" for e in sink.events)
    assert journal(tmp_path).count(f"login 3 {TOKEN}") == 1


def test_a_pin_is_the_user_s_word(tmp_path: Path) -> None:
    """REL-14, SEC-5: what was pinned stays byte for byte, also where it looks like a secret."""

    async def do(session: LiveSession, keepers: Keepers) -> None:
        await session.record(Pinned(id="p1", text=f"always use {TOKEN}"))
        done = await compact(session, trigger="manual")
        assert (
            isinstance(done, CompactionSuccess)
            and f"always use {TOKEN}" in done.boundary.summary[0].blocks[0].value.text
        )  # type: ignore[union-attr]

    run(tmp_path, do)


def test_notes_have_no_secret(tmp_path: Path) -> None:
    """SEC-5, SM-7: what code fills in; lines of the user's own are the user's."""

    async def do(session: LiveSession, keepers: Keepers) -> None:
        keepers.after_reply(session)
        await keepers.drain(session)

    run(tmp_path, do)
    path = notes_path(next(tmp_path.rglob("journal.jsonl")).parent)
    assert TOKEN not in path.read_text() and "{{secret:github-token:" in path.read_text()


def test_with_redact_at_ingest_nothing_on_disk_has_it(tmp_path: Path) -> None:
    """SEC-5: the first use is redacted already; canary: no file of the home holds the value."""

    async def do(session: LiveSession, keepers: Keepers) -> None:
        text = session.view.items[0].message.blocks[0].value
        assert isinstance(text, Text) and "{{secret:github-token:" in text.text

    sink = run(tmp_path, do, Settings(redact_at_ingest=True))
    assert sum(e.count for e in sink.events if isinstance(e, SecretsRedacted)) == 48
    assert all(TOKEN.encode() not in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def test_the_key_of_a_home_is_made_once_and_is_private(tmp_path: Path) -> None:
    """SEC-5: the same ids in every session of a home, others in another."""
    first = secret_key(tmp_path / "a")
    assert len(first) == 32 and secret_key(tmp_path / "a") == first != secret_key(tmp_path / "b")
    assert (tmp_path / "a" / "secret-ids.key").stat().st_mode & 0o777 == 0o600
    (tmp_path / "c").write_text("a file")
    assert secret_key(tmp_path / "c") == b""
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "secret-ids.key").write_bytes(b"half")
    assert secret_key(tmp_path / "d") == b"", "a damaged one isn't replaced: ids of earlier sessions would change"


def test_sessions_that_make_the_key_at_once_have_the_same(tmp_path: Path) -> None:
    """SEC-5: whoever is first makes it, and nobody reads half of it; a disk that refuses leaves nothing behind."""
    with ThreadPoolExecutor(8) as pool:
        keys = set(pool.map(secret_key, [tmp_path / "a"] * 32))
    assert len(keys) == 1 and len(keys.pop()) == 32
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["secret-ids.key"]

    class Full(Disk):
        def write(self, fd: int, data: memoryview) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    assert secret_key(tmp_path / "b", disk=Full()) == b"" and not list((tmp_path / "b").iterdir())
    assert len(secret_key(tmp_path / "b")) == 32


def test_an_export_leaves_secrets_out_and_an_unchanged_one_does_not(tmp_path: Path) -> None:
    """SEC-5, ENG-6: what we write anew is redacted and says so; a log that goes out as it came in keeps its bytes."""

    async def nothing(session: LiveSession, keepers: Keepers) -> None: ...

    run(tmp_path, nothing)
    environ = {**os.environ, "HOME": str(tmp_path), "PERDURE_HOME": str(tmp_path)}

    def export(reference: str, name: str) -> tuple[str, str]:
        target = tmp_path / name
        done = command("export", reference, "--out", str(target), cwd=tmp_path, env=environ)
        assert done.returncode == 0, done.stderr
        return target.read_text(), done.stdout

    text, said = export("s1", "one.jsonl")
    assert TOKEN not in text and "{{secret:github-token:" in text and "secrets left out" in said
    assert all(json.loads(line) for line in text.splitlines())
    (tmp_path / "log.jsonl").write_text(text.replace("{{secret:github-token:", TOKEN))
    again, said = export(str(tmp_path / "log.jsonl"), "two.jsonl")
    assert again == (tmp_path / "log.jsonl").read_text() and "copied unchanged" in said
