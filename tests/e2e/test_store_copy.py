"""`perdure store copy`: what a person sees of it (SCL-1, CLI-5)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.commands import Done, command
from tests.contract.test_homes import said

from perdure.adapters.journal import JOURNAL
from perdure.wiring.stores import store_at

if TYPE_CHECKING:
    from perdure.testing.postgres import PostgresServer

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


def copy(folder: Path, *words: str) -> Done:
    env = {"PERDURE_HOME": str(folder / "own"), "HOME": str(folder), "PATH": os.environ["PATH"]}
    return command("store", "copy", *words, cwd=folder, env=env)


def total(done: Done) -> Any:
    return json.loads(done.stdout.splitlines()[-1])["total"]


async def filled(place: str, *tenants: str) -> None:
    store = store_at(place)
    for tenant in tenants:
        for name in ("s1", "s2"):
            made = await store.home(tenant).create(name, project="/srv/p", created=1.0)
            await made.journal.append((said("m1", f"words of {tenant}"),))
            await made.blobs.put((b"a blob",))
            await made.journal.close()
    await store.close()


def test_a_store_moves_with_its_tenants(tmp_path: Path, postgres: str) -> None:
    """SCL-1: there, once more, and back again; one tenant alone; what there is to do; as JSON."""
    files, back = str(tmp_path / "files"), str(tmp_path / "back")
    asyncio.run(filled(files, "", "alice", "bob"))
    (tmp_path / "files" / "config.toml").write_text("")
    done = copy(tmp_path, files, postgres, "--dry-run")
    assert done.returncode == 0 and "sessions: 6 to copy\n" in done.stdout and "6 blobs to copy" in done.stdout
    assert "only in files, and not copied: config.toml (1)" in done.stdout and not done.stderr
    done = copy(tmp_path, files, postgres, "--tenant", "alice")
    assert done.returncode == 0 and "sessions: 2 copied" in done.stdout and "2 blobs copied and verified" in done.stdout
    done = copy(tmp_path, files, postgres, "--json")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert {(one["tenant"], one["session"]) for one in lines[:-1]} == {
        (tenant, name) for tenant in ("", "bob") for name in ("s1", "s2")
    }
    assert total(done)["sessions"] == {"copied": 4, "unchanged": 2} and total(done)["verified"]
    done = copy(tmp_path, files, postgres, "--verify")
    assert done.returncode == 0 and "sessions: 6 unchanged" in done.stdout
    assert copy(tmp_path, postgres, back).returncode == 0
    journals = sorted(path.relative_to(tmp_path / "files") for path in (tmp_path / "files").rglob(JOURNAL))
    assert len(journals) == 6
    for one in journals:
        assert (tmp_path / "files" / one).read_bytes() == (tmp_path / "back" / one).read_bytes()


def test_what_goes_wrong_is_one_line(tmp_path: Path, postgres: str, postgres_server: PostgresServer) -> None:
    """SCL-1, CLI-5: no such folder, both the same, no tenant, no schema, no server; nothing is made then."""
    files = str(tmp_path / "files")
    asyncio.run(filled(files, "alice"))
    postgres_server.execute("CREATE DATABASE empty_one")
    nowhere = "postgresql://gateway@127.0.0.1:1/perdure"
    for words, code, text in (
        ((str(tmp_path / "none"), postgres), 2, "there is no such folder"),
        ((files, str(tmp_path / "files" / ".." / "files")), 2, "the same store"),
        ((postgres, postgres), 2, "the same store"),
        ((files, "mysql://db"), 2, "mysql:// isn't known"),
        ((files, postgres, "--tenant", "nobody"), 1, "nothing is kept of a tenant 'nobody'"),
        ((files, postgres_server.url_of("empty_one")), 1, "run `perdure store migrate`"),
        ((files, nowhere), 1, "127.0.0.1"),
    ):
        done = copy(tmp_path, *words)
        assert done.returncode == code and text in done.stderr, (words, done)
        assert not done.stdout and len(done.stderr.strip().splitlines()) == 1, done
    assert not (tmp_path / "none").exists() and not (tmp_path / "own").exists()
    postgres_server.execute("DROP DATABASE empty_one")


def test_what_is_refused_or_damaged_is_told_and_so_is_the_exit_code(tmp_path: Path) -> None:
    """SCL-1: the rest is copied."""
    one, two = tmp_path / "one", tmp_path / "two"
    asyncio.run(filled(str(one), "alice"))
    asyncio.run(filled(str(two), "alice"))
    (journal,) = two.glob(f"**/s1/{JOURNAL}")
    journal.write_bytes(journal.read_bytes().splitlines(keepends=True)[0])
    (journal.parent / "journal.mark").unlink()
    (journal,) = one.glob(f"**/s2/{JOURNAL}")
    data = journal.read_bytes()
    journal.write_bytes(data[:-30] + b"?" + data[-29:])
    done = copy(tmp_path, str(one), str(two))
    assert done.returncode == 1 and "sessions: 1 continued, 1 refused" in done.stdout.replace(
        "1 refused, 1 continued", "1 continued, 1 refused"
    )
    assert "alice: s2: refused: " in done.stderr and "is damaged" in done.stderr


@pytest.mark.nightly
def test_ctrl_c_says_that_all_that_was_copied_is_whole(tmp_path: Path) -> None:
    """SCL-1, CLI-5: and the next run takes the rest."""
    one, two = str(tmp_path / "one"), str(tmp_path / "two")

    async def large() -> None:
        store = store_at(one)
        for number in range(40):
            made = await store.home().create(f"s{number}", project="/srv/p", created=1.0, durability="process")
            for _ in range(20):
                await made.journal.append((said("m", "words " * 2000),))
            await made.journal.close()
        await store.close()

    asyncio.run(large())
    words = [sys.executable, "-m", "perdure", "store", "copy", one, two]
    env = {**os.environ, "PERDURE_HOME": str(tmp_path / "own")}
    copied = 0
    for number in range(8):  # each at another place of its work
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
        while len(list(tmp_path.glob(f"two/projects/*/s*/{JOURNAL}"))) == copied:
            assert process.poll() is None, process.communicate()
        time.sleep(0.003 * number)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        copied = len(list(tmp_path.glob(f"two/projects/*/s*/{JOURNAL}")))
        if copied < 40:
            assert process.returncode == 130 and "goes on with the rest" in err and "Traceback" not in err, (out, err)
        assert not list(tmp_path.glob("two/projects/*/.copying-*"))
        if copied > 30:
            break
    done = copy(tmp_path, one, two, "--json")
    assert total(done)["sessions"] == {"unchanged": copied, "copied": 40 - copied}
