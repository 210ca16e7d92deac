"""A tenant that was deleted is found in no byte of the database's files, nor of the bucket (SCL-6).

What is kept is marked with words that nobody else says. PostgreSQL may compress a value (pglz leaves the first
occurrence of a word as it is, but for a byte after each eight), so three overlapping parts of a word are looked for, at
least one of which no such byte parts. Blobs are compressed more thoroughly: of those, some of their stored bytes are.
"""

from __future__ import annotations

import os
import random
import re
import string
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import anthropic
import anyio
import pytest
from tests.commands import Done, command
from tests.contract.test_homes import begun, names, said
from tests.contract.test_postgres import BY
from tests.gateways import fake, serving, upstream

from perdure.errors import JournalError
from perdure.memory.changes import SaveMemory
from perdure.ports.home import KnownLink
from perdure.testing import say, tool_use
from perdure.testing.postgres import PostgresServer, why_there_is_no_server
from perdure.transcript.records import Titled

pytestmark = pytest.mark.e2e

_LETTERS = "bcdfghjkmnpqrtvwxz" + string.digits
_RUNS = re.compile(f"[{_LETTERS}]{{6,}}".encode())  # few others have none but these in a row
_CHANCE = random.Random(6)


def word() -> str:
    return "".join(_CHANCE.choices(_LETTERS, k=12))


class Marks:
    """The words of one tenant, by where they are kept, and bytes of its blobs as they are stored."""

    def __init__(self) -> None:
        kinds = (
            "tenant front said answer call result notes title tag document document_name name project session problem "
            "link response model blob_of_none custom memory memory_place"
        )
        self.words = {kind: word() for kind in kinds.split()}
        self.stored: dict[str, bytes] = {}

    def __getattr__(self, kind: str) -> str:
        return self.words[kind]

    def found_in(self, data: bytes) -> set[str]:
        """Which of them stand there."""
        found, runs = {kind for kind, part in self.stored.items() if part in data}, b" ".join(_RUNS.findall(data))
        for kind, mark in self.words.items():
            if any(mark[at : at + 6].encode() in runs for at in (0, 3, 6)):
                found.add(kind)
        return found


def found_in_files(marks: Marks, folder: Path, *, without: str = "\0") -> dict[str, list[str]]:
    """In which files below a folder each of the marks stands."""
    found: dict[str, list[str]] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and without not in path.parts:
            for kind in marks.found_in(path.read_bytes()):
                found.setdefault(kind, []).append(str(path.relative_to(folder)))
    return found


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """One of its own, which writes its log as in production: also whole pages."""
    if why_not := why_there_is_no_server():
        pytest.skip(why_not)
    with PostgresServer.start(settings={"full_page_writes": "on"}) as server:
        server.execute("CREATE ROLE perdure_owner LOGIN CREATEROLE")
        server.execute("CREATE DATABASE kept OWNER perdure_owner")
        yield server


def perdure(folder: Path, *words: str) -> Done:
    environ = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    env = {"PERDURE_HOME": str(folder), "HOME": str(folder), "PATH": os.environ["PATH"], **environ}
    return command(*words, cwd=folder, env=env)


async def kept(folder: Path, url: str, marks: Marks, key: str) -> None:
    """Keep something of each kind: by requests to a gateway, and by what it and its workers do beside them."""
    from perdure.adapters.postgres.store import PostgresStore

    tool: Any = {"name": "Read", "description": marks.front, "input_schema": {"type": "object"}}
    answers = (say(f"I look: {marks.answer}", tool_use("Read", {"path": marks.call}, id="toolu_1")), "done")
    tenants, store = {marks.tenant: {"key_env": "KEY"}}, PostgresStore(url)
    async with (
        fake(upstream(*answers)) as provider,
        serving(folder, provider, store=store, environ={"KEY": key}, tenants=tenants) as at,
    ):
        client = anthropic.AsyncAnthropic(api_key=key, base_url=at.url, max_retries=0)
        at.clients.append(client)
        messages: list[Any] = [{"role": "user", "content": f"Please look at {marks.said}"}]
        made = await client.messages.create(model="fake-model", max_tokens=50, messages=messages, tools=[tool])
        lines = "\n".join(f"{n}: {marks.result}" for n in range(9_000))
        result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": lines}
        messages += [{"role": "assistant", "content": made.content}, {"role": "user", "content": [result]}]
        await client.messages.create(model="fake-model", max_tokens=50, messages=messages, tools=[tool])

    store = PostgresStore(url)
    home = store.home(marks.tenant)
    (talked,) = await home.sessions()
    opened = await home.open(talked.id)
    assert "Offloaded" in names(await opened.journal.load(whole=True)), "the result is a blob"
    await opened.journal.append((Titled(title=marks.title, tags=(marks.tag,)),))
    await opened.notes.write(marks.notes.encode(), instead_of=None)
    await opened.journal.close()
    home.calibrations.learn(marks.model, 1.5)
    other = await home.create(marks.session, project=f"/srv/{marks.project}", created=1.0)
    await other.journal.append((said("m1", "in between"),))
    await other.journal.close()
    await home.blobs.put((marks.blob_of_none.encode(),))
    await home.documents("conversations").put(marks.document_name, marks.document.encode(), instead_of=None)
    await home.documents("session-memory/config").put("template.md", marks.custom.encode(), instead_of=None)
    remembered = SaveMemory(name="a.md", text=f"The word is {marks.memory}.")
    await home.memories(f"/srv/{marks.memory_place}").store.write(remembered, BY, mode="auto")
    home.links.enter([KnownLink(marks.link.encode() + bytes(20), marks.session, 1, f"resp_{marks.response}")])
    home.links.name(marks.session, marks.name)
    await home.links.flush()
    await store.work.want(marks.tenant, marks.session, "notes", 1)
    claims = await store.work.claim("w", limit=9, seconds=60)
    await store.work.fail(next(one for one in claims if one.session == marks.session), f"it says {marks.problem}")
    assert (await home.archive().search(marks.said)).hits
    await store.close()


@pytest.mark.nightly
@pytest.mark.parametrize(("blobs", "is_alone"), [("table", False), ("table", True), ("bucket", False)])
def test_no_byte_of_a_deleted_tenant_is_found_again(
    tmp_path: Path, server: PostgresServer, blobs: str, is_alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SCL-6: in tables, indexes, long values, statistics, the write-ahead log, the server's own log and the bucket,
    once `store vacuum` was run; another tenant keeps all. Without it, or after a plain VACUUM, they are found."""
    pytest.importorskip("obstore", reason="the package of the extra `s3` isn't installed")
    from perdure.adapters.postgres.store import PostgresStore
    from perdure.testing.s3 import FakeS3

    mine, theirs = Marks(), Marks()
    owner, superuser, url = (server.url_of("kept", name) for name in ("perdure_owner", "postgres", "gateway"))
    folder = server.folder

    def sql(statement: str) -> list[tuple[Any, ...]]:
        return server.execute(statement, url=superuser)

    with FakeS3() as s3:
        for name, value in s3.environment.items():
            monkeypatch.setenv(name, value)
        more = ("--blobs", "s3://blobs/home") if blobs == "bucket" else ()
        assert perdure(tmp_path, "store", "migrate", owner, *more).returncode == 0
        sql("CREATE ROLE gateway LOGIN IN ROLE perdure_serving")
        anyio.run(kept, tmp_path / "mine", url, mine, "my-key")
        if not is_alone:
            anyio.run(kept, tmp_path / "theirs", url, theirs, "their-key")
        sql("ANALYZE")
        sql("CHECKPOINT")

        stored = [row[0] for row in sql("SELECT b.stored FROM perdure.blobs b JOIN perdure.tenants t "
                                        f"ON t.id = b.tenant AND t.name = '{mine.tenant}'")]  # fmt: skip
        if blobs == "bucket":
            ((number,),) = sql(f"SELECT id FROM perdure.tenants WHERE name = '{mine.tenant}'")
            assert not stored
            stored = [one.data for key, one in s3.buckets["blobs"].items() if f"/tenant/{number}/" in key]
        packed = max(stored, key=len)
        assert len(stored) == 2 and len(packed) > 1_000 and mine.result.encode() not in packed
        mine.stored = {f"stored {at}": packed[at : at + 16] for at in (100, 300, 700)}

        everything = {*mine.words, *mine.stored}
        before, in_bucket = found_in_files(mine, folder), mine.found_in(s3.bytes_held())
        assert before.keys() | in_bucket == everything, "each can be found where it is"
        assert in_bucket == ({*mine.stored, "blob_of_none"} if blobs == "bucket" else set())
        ((statistics,),) = sql("SELECT pg_relation_filepath('pg_statistic')")
        assert mine.found_in((folder / "data" / statistics).read_bytes()), "ANALYZE copies what stands in columns"
        assert any("pg_wal" in path for paths in before.values() for path in paths)

        import psycopg

        with closing(psycopg.connect(superuser)) as reader:
            reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            reader.execute("SELECT count(*) FROM perdure.sessions")
            done = perdure(tmp_path, "store", "delete-tenant", url, mine.tenant, "--yes")
            assert done.returncode == 0 and "`perdure store vacuum`" in done.stdout, done.stderr
            assert mine.found_in(s3.bytes_held()) == set()
            refused = perdure(tmp_path, "store", "vacuum", owner)
            assert refused.returncode == 1 and refused.stderr.count("\n") == 1
            assert "end the transactions that may still read them" in refused.stderr
        refused = perdure(tmp_path, "store", "vacuum", url)
        assert refused.returncode == 1 and refused.stderr.count("\n") == 1
        assert "run this as the owner" in refused.stderr

        sql("VACUUM")
        sql("ANALYZE")
        sql("CHECKPOINT")
        left = found_in_files(mine, folder, without="pg_wal")
        assert left, "a plain VACUUM leaves bytes within pages"

        done = perdure(tmp_path, "store", "vacuum", owner)
        assert done.returncode == 0 and "only a superuser" in done.stdout, done.stderr
        sql("CHECKPOINT")
        assert found_in_files(mine, folder, without="pg_wal") == {}
        assert found_in_files(mine, folder), "the write-ahead log still has it"

        done = perdure(tmp_path, "store", "vacuum", superuser)
        assert done.returncode == 0 and "nor does the write-ahead log" in done.stdout, done.stderr
        assert found_in_files(mine, folder) == {}
        assert mine.found_in(s3.bytes_held()) == set()

        async def still_there() -> None:
            store = PostgresStore(url)
            home, gone = store.home(theirs.tenant), store.home(mine.tenant)
            assert list(await store.tenants()) == ([] if is_alone else [theirs.tenant])
            assert not list(await gone.sessions())
            with pytest.raises(JournalError):
                await gone.open(mine.session)
            if not is_alone:
                assert len(await home.sessions()) == 2 and (await home.archive().search(theirs.said)).hits
                assert found_in_files(theirs, folder).keys() | theirs.found_in(s3.bytes_held()) == {*theirs.words}
            made = await begun(gone, "new", said("m1"))
            await made.journal.close()
            await store.close()

        anyio.run(still_there)
