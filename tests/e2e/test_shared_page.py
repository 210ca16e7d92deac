"""The commands of docs/use/shared.md and of the compose file, run as they stand there (SCL-1, SCL-6)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
import yaml
from tests.contract.test_homes import begun, names, said

from perdure.adapters.postgres.store import PostgresStore
from perdure.testing.postgres import PostgresServer, why_there_is_no_server
from perdure.testing.s3 import FakeS3

pytestmark = pytest.mark.e2e

PAGE = Path(__file__).parents[2] / "docs" / "use" / "shared.md"
ELSEWHERE = ("kubectl", "export", "perdure serve", "perdure worker")  # in a cluster, with a bucket, and for good


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    if why_not := why_there_is_no_server():
        pytest.skip(why_not)
    with PostgresServer.start() as made:
        if not (made.programs / "pg_dump").exists():
            pytest.skip("these programs of PostgreSQL are without pg_dump")
        yield made


def commands(section: str) -> list[tuple[str, str]]:
    """The commands of a section of the page, and what is shown beneath each."""
    text = PAGE.read_text().partition(f"## {section}\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"```console\n(.*?)```", text, re.S)
    found = [one for block in blocks for one in re.findall(r"^\$ ([^\n]+)\n((?:[^$\n][^\n]*\n)*)", block, re.M)]
    return [(line, shown) for line, shown in found if not line.startswith(ELSEWHERE) and "--blobs" not in line]


def programs(folder: Path) -> Path:
    """A folder with `perdure` and `python` as they are here."""
    found = folder / "bin"
    found.mkdir(exist_ok=True)
    for name, more in (("perdure", "-m perdure "), ("python", "")):
        (found / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {more}"$@"\n')
        (found / name).chmod(0o755)
    return found


def run(server: PostgresServer, folder: Path, lines: list[tuple[str, str]]) -> None:
    env = {
        "PATH": f"{programs(folder)}:{server.programs}:{os.environ['PATH']}",
        "HOME": str(folder),
        "PERDURE_HOME": str(folder),
        "PGHOST": "127.0.0.1",
        "PGPORT": str(server.port),
        "PGUSER": "postgres",
    }
    for line, shown in lines:
        here = line.replace("@db/", f"@127.0.0.1:{server.port}/")
        done = subprocess.run(["sh", "-c", here], cwd=folder, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (line, done.stderr)
        assert shown in ("", done.stdout), line


@pytest.mark.nightly
def test_a_database_is_set_up_backed_up_and_restored_as_the_page_says(server: PostgresServer, tmp_path: Path) -> None:
    """SCL-1, SCL-6: with its sessions, for the same users, and who owns it may not see them."""
    setting_up, restoring = commands("Setting it up"), commands("Backup and restore")
    assert len(setting_up) >= 6 and len(restoring) >= 5, "the page's headings have changed"
    run(server, tmp_path, setting_up)

    async def used(database: str, *, is_new: bool) -> list[str]:
        store = PostgresStore(server.url_of(database, "gateway"))
        try:
            home = store.home("alice")
            if is_new:
                made = await begun(home, "s1", said("a"), said("b"))
                await made.journal.close()
            return names(await home.load("s1"))
        finally:
            await store.close()

    async def before() -> None:
        assert await used("perdure", is_new=True) == ["a", "b"]

    async def after() -> None:
        assert await used("restored", is_new=False) == ["a", "b"]

    anyio.run(before)
    run(server, tmp_path, restoring)
    anyio.run(after)
    owner = ["pg_dump", "-U", "perdure_owner", "-h", "127.0.0.1", "-p", str(server.port), "perdure"]
    refused = subprocess.run([server.programs / owner[0], *owner[1:]], capture_output=True, text=True, check=False)
    assert refused.returncode != 0 and "row-level security" in refused.stderr, "the page says that it refuses"


@pytest.mark.nightly
def test_the_compose_file_makes_the_schema_and_the_user_again_and_again(server: PostgresServer, tmp_path: Path) -> None:
    """SCL-1, SCL-6: its first step, run here: who serves owns nothing, has its password, and finds the bucket."""
    pytest.importorskip("obstore", reason="the package of the extra `s3` isn't installed")
    service = yaml.safe_load((PAGE.parents[2] / "deploy" / "compose-shared.yaml").read_text())["services"]["migrate"]
    (script,) = service["command"]
    script = script.replace("$$", "$").replace("@database/", f"@127.0.0.1:{server.port}/")
    server.database("perdure")
    with FakeS3(buckets={"perdure": {}}) as s3:
        env = {"PATH": f"{programs(tmp_path)}:{os.environ['PATH']}", "HOME": str(tmp_path), **s3.environment}
        env |= {"POSTGRES_PASSWORD": "of the owner", "PGPASSWORD": "of the gateway"}
        for said in ("applied", "the schema is current"):
            done = subprocess.run(
                [*service["entrypoint"], script], env=env, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0 and said in done.stdout and "s3://perdure/blobs/" in done.stdout, done.stderr
    about = server.execute(
        "SELECT rolsuper, rolpassword LIKE 'SCRAM-SHA-256%%' FROM pg_authid WHERE rolname = %s", ("gateway",)
    )
    assert about == [(False, True)]
