"""`perdure serve --store` and `perdure store`: gateways of several machines over one database (SCL-1, SCL-3, SCL-6)."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from tests.commands import Done, command, command_at_terminal
from tests.e2e.test_serve import ask, started, status, upstream
from tests.terminals import terminal

from perdure.wiring.stores import store_at

if TYPE_CHECKING:
    from perdure.testing.postgres import PostgresServer

pytestmark = pytest.mark.e2e


@pytest.fixture
def database(postgres_server: PostgresServer) -> Iterator[str]:
    """The name of a new database, which has no schema yet."""
    postgres_server.execute("CREATE DATABASE served OWNER perdure_owner")
    yield "served"
    postgres_server.execute("DROP DATABASE served WITH (FORCE)")


def perdure(folder: Path, *words: str, **environ: str) -> Done:
    env = {"PERDURE_HOME": str(folder), "HOME": str(folder), "PATH": os.environ["PATH"], **environ}
    return command(*words, cwd=folder, env=env)


def granted(server: PostgresServer, database: str, folder: Path) -> str:
    """The URL of the migrated database for who serves."""
    done = perdure(folder, "store", "migrate", server.url_of(database, "perdure_owner"))
    assert done.returncode == 0 and "applied" in done.stdout and "GRANT perdure_serving" in done.stderr
    if not server.execute("SELECT 1 FROM pg_roles WHERE rolname = 'gateway'"):
        server.execute("CREATE ROLE gateway LOGIN IN ROLE perdure_serving")
    return server.url_of(database, "gateway")


@pytest.mark.nightly
def test_gateways_of_two_machines_go_on_with_each_others_sessions(
    tmp_path: Path, postgres_server: PostgresServer, database: str
) -> None:
    """GW-5, SCL-1, SCL-3, SCL-6: also with that of one that is killed; a tenant that is deleted is gone."""
    url = granted(postgres_server, database, tmp_path)
    assert "current" in perdure(tmp_path, "store", "migrate", postgres_server.url_of(database, "perdure_owner")).stdout
    messages: list[Any] = [{"role": "user", "content": "hello"}]
    homes = [tmp_path / name for name in ("one", "two")]
    serve = ("perdure", "serve", "--port", "0", "--json", "--store", url)
    with started("perdure.testing.serve", "--answer", "yes", "--answer", "no") as (provider, _):
        for home in homes:
            upstream(home, provider)
        with started(*serve, home=homes[0]) as (one, process), started(*serve, home=homes[1]) as (two, _):
            assert [ask(at, messages) for at in (one, two, one, one)] == ["yes", "no", "yes", "no"]
            (before,) = status(one)
            process.send_signal(signal.SIGKILL)
            process.wait()
            assert ask(two, messages) == "yes"
            (after,) = status(two)
    assert (
        (after["session"], after["messages"]) == (before["session"], before["messages"] + 2) == (before["session"], 10)
    )
    for home in homes:
        assert not list(home.rglob("*.jsonl")) and not list(home.rglob("links.sqlite")), "nothing is kept beside it"
    (tenant,) = (
        row[0]
        for row in postgres_server.execute(
            "SELECT name FROM perdure.tenants WHERE name <> ''", url=postgres_server.url_of(database)
        )
    )
    refused = perdure(tmp_path, "store", "delete-tenant", url, tenant)
    assert refused.returncode == 2 and "--yes" in refused.stderr
    assert perdure(tmp_path, "store", "delete-tenant", url, tenant, "--yes").returncode == 0
    gone = perdure(tmp_path, "store", "delete-tenant", url, tenant, "--yes")
    assert gone.returncode == 1 and "nothing is kept of a tenant" in gone.stderr


def test_a_bucket_is_named_once_and_found_by_whoever_serves(
    tmp_path: Path, postgres_server: PostgresServer, database: str
) -> None:
    """SCL-1, CLI-5: `store migrate --blobs`; without the keys to it, `serve` and `worker` say so as they start."""
    pytest.importorskip("obstore", reason="the package of the extra `s3` isn't installed")
    from perdure.testing.s3 import FakeS3

    url, owner = granted(postgres_server, database, tmp_path), postgres_server.url_of(database, "perdure_owner")
    migrate = ("store", "migrate", owner, "--blobs", "s3://blobs/home")
    refused = perdure(tmp_path, *migrate)
    assert refused.returncode == 2 and refused.stderr.count("\n") == 1 and "AWS_ACCESS_KEY_ID" in refused.stderr
    with FakeS3() as s3:
        done = perdure(tmp_path, *migrate, **s3.environment)
        assert done.returncode == 0 and "blobs are kept in s3://blobs/home/" in done.stdout, done.stderr
        again = json.loads(perdure(tmp_path, *migrate, "--json", **s3.environment).stdout)
        assert again["migrations"] == 0 and again["blobs"] in done.stdout
        for command_line in (("serve", "--port", "0"), ("worker", "--once")):
            told = perdure(tmp_path, *command_line, "--store", url)
            assert told.returncode == 1 and told.stderr.count("\n") == 1 and "AWS_ACCESS_KEY_ID" in told.stderr
            del s3.buckets["blobs"]
            told = perdure(tmp_path, *command_line, "--store", url, **s3.environment)
            assert told.returncode == 1 and told.stderr.count("\n") == 1 and "no such bucket" in told.stderr
            s3.buckets["blobs"] = {}
        assert perdure(tmp_path, "worker", "--once", "--store", url, **s3.environment).returncode == 0


def test_a_deletion_at_a_terminal_asks_and_says_how_far_it_is(
    tmp_path: Path, postgres_server: PostgresServer, database: str
) -> None:
    """SCL-6, CLI-6: nothing is deleted without `y`, or after Ctrl-C; it says how far it is, and what is left to do."""
    url = granted(postgres_server, database, tmp_path)

    async def keep() -> None:
        store = store_at(url)
        home = store.home("alice")
        made = await home.create("s1", project="/p", created=1.0)
        await made.journal.close()
        await store.close()

    anyio.run(keep)
    env = {"PERDURE_HOME": str(tmp_path), "HOME": str(tmp_path), "PATH": os.environ["PATH"], "TERM": "xterm"}
    delete = ("store", "delete-tenant", url, "alice")
    asked = command_at_terminal(*delete, cwd=tmp_path, env=env, typed=b"n\n")
    assert asked.returncode == 0 and "Delete all that alice keeps" in asked.stdout and "rows" not in asked.stdout
    with terminal(*delete, cwd=tmp_path, env=env) as one:
        one.until("[y/N]")
        time.sleep(0.5)  # Python waits for a line a moment after it wrote the question, and a signal in between is late
        one.type("\x03", end="")
        assert one.end(20.0) == 130 and "Traceback" not in one.screen
    done = command_at_terminal(*delete, cwd=tmp_path, env=env, typed=b"y\n")
    assert done.returncode == 0 and "\r1 rows and 0 objects deleted (sessions)" in done.stdout
    assert "`perdure store vacuum`" in done.stdout and "backups" in done.stdout
    refused = perdure(tmp_path, "store", "vacuum", str(tmp_path))
    assert refused.returncode == 2 and refused.stderr.count("\n") == 1 and "only a database" in refused.stderr


@pytest.mark.nightly
def test_what_a_killed_gateway_was_at_is_free_after_its_lease(
    tmp_path: Path, postgres_server: PostgresServer, database: str
) -> None:
    """SCL-3: `lease_seconds` says when; until then another one passes the session's requests through."""
    url = granted(postgres_server, database, tmp_path)
    homes = [tmp_path / name for name in ("one", "two")]
    serve = ("perdure", "serve", "--port", "0", "--json", "--store", url)
    with started("perdure.testing.serve", "--answer", "yes", "--delay", "1.0") as (slow, _):
        for home in homes:
            upstream(home, slow)
            config = home / "config.toml"
            config.write_text(f"[gateway]\nlease_seconds = 8\n\n{config.read_text()}")
        asked = b'{"model":"any","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"hello"}]}'
        headers = {"x-api-key": "test-key", "content-type": "application/json"}
        with started(*serve, home=homes[0]) as (one, process), started(*serve, home=homes[1]) as (two, _):

            def begun(gateway: str) -> Any:
                return urllib.request.urlopen(urllib.request.Request(f"{gateway}/v1/messages", asked, headers))

            with begun(one) as answer:
                assert answer.headers["x-perdure-mode"] == "untouched"
                process.kill()  # while its answer goes on
                process.wait()
            modes: list[str] = []
            while modes[-1:] != ["untouched"]:
                with begun(two) as answer:
                    modes.append(answer.headers["x-perdure-mode"])
                assert len(modes) < 20
            assert modes[0] == "passed"
            (session,) = status(two)
            assert session["messages"] >= 1


def test_a_store_that_cannot_be_used_is_one_line(
    tmp_path: Path, postgres_server: PostgresServer, database: str
) -> None:
    """CLI-5, SCL-1: no database, none of ours, one that isn't migrated, one that isn't there."""
    for given, said in (
        ("mysql://db/perdure", "postgresql://"),
        ("postgresql://h/db?nothing=1", "store: "),
        (postgres_server.url_of(database, "perdure_owner"), "perdure store migrate"),
        (postgres_server.url_of("nowhere"), "nowhere"),
    ):
        refused = perdure(tmp_path, "serve", "--store", given, "--port", "0")
        assert refused.returncode in (1, 2) and refused.stderr.count("\n") == 1 and said in refused.stderr, given
    refused = perdure(tmp_path, "store", "migrate", str(tmp_path))
    assert refused.returncode == 2 and "only a database has a schema" in refused.stderr
    if not postgres_server.execute("SELECT 1 FROM pg_roles WHERE rolname = 'visitor'"):
        postgres_server.execute("CREATE ROLE visitor LOGIN")
    refused = perdure(tmp_path, "store", "migrate", postgres_server.url_of(database, "visitor"))
    assert refused.returncode == 1 and refused.stderr.count("\n") == 1 and "CREATEROLE" in refused.stderr
