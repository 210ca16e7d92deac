"""The fixtures of every test, the tiers, the golden option, and a guard against the network."""

from __future__ import annotations

import difflib
import gc
import hashlib
import os
import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from tests.tiers import NIGHTLY, examples, needs_postgres, select_nightly

if TYPE_CHECKING:
    from perdure.testing.postgres import PostgresServer
    from perdure.testing.s3 import FakeS3

ROOT = Path(__file__).resolve().parent.parent
LOCAL_HOSTS = frozenset({"", "localhost", "127.0.0.1", "::1"})

# Deadlines and slow draws are timed tests in disguise; speed is measured under bench/. CI takes the same examples in
# every run, so that what is judged is the change; `make test` and `make nightly` draw new ones.
settings.register_profile(
    "perdure",
    deadline=None,
    derandomize="CI" in os.environ,
    max_examples=examples(100).max_examples,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("perdure")

MEMORY = Path("/dev/shm")
ROOM_BYTES = 1 << 30


def pytest_configure(config: pytest.Config) -> None:
    """Keep folders of tests in memory where there is room, so that a sync costs nothing.

    Let what tests start receive Ctrl-C, also behind a shell that has background jobs ignore it.
    """
    if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM_BYTES:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.getoption("--rewrite-golden") and config.getoption("numprocesses", None):
        raise pytest.UsageError("--rewrite-golden goes without -n: workers would write over the rows of one another")


@pytest.hookimpl(tryfirst=True)  # before workers read which tests go together
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave to `make nightly` what is marked so, and of tests marked `quick(n)` all but n cases.

    What needs PostgreSQL goes to one worker, so that one server is started.
    """
    if NIGHTLY or config.getoption("--rewrite-golden"):
        return
    for item in items:
        if needs_postgres(item):
            item.add_marker(pytest.mark.xdist_group("postgres"))
    left = select_nightly(items)
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left])
    items[:] = [item for item in items if item.nodeid not in left]


def pytest_collection_finish() -> None:
    """Exclude what stays for the whole run from garbage collection."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-golden",
        action="store_true",
        default=False,
        help="write what the code says now into the golden files instead of comparing (make golden)",
    )
    parser.addoption("--keep-golden", metavar="FOLDER", help="write what golden hashes are made of into this folder")


@pytest.fixture
def rewrite_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--rewrite-golden"))


@pytest.fixture
def golden(rewrite_golden: bool) -> Callable[[Path, str | bytes], None]:
    """``golden(path, actual)`` compares with the file at ``path``, or rewrites it under ``--rewrite-golden``."""

    def check(path: Path, actual: str | bytes) -> None:
        actual_bytes = actual.encode() if isinstance(actual, str) else actual
        if rewrite_golden:
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists() or path.read_bytes() != actual_bytes:
                path.write_bytes(actual_bytes)
            return
        if not path.exists():
            pytest.fail(f"{path.relative_to(ROOT)} is missing: make golden writes it")
        expected_bytes = path.read_bytes()
        if expected_bytes != actual_bytes:
            diff = difflib.unified_diff(
                expected_bytes.decode(errors="backslashreplace").splitlines(),
                actual_bytes.decode(errors="backslashreplace").splitlines(),
                "golden",
                "now",
                lineterm="",
            )
            shown = "\n".join(list(diff)[:200])
            pytest.fail(f"{path.relative_to(ROOT)} differs (make golden rewrites it)\n{shown}")

    return check


class NetworkReached(AssertionError):
    """A test tried to leave this machine."""


@pytest.fixture(autouse=True)
def no_network(request: pytest.FixtureRequest) -> Iterator[None]:
    """Only loopback and local sockets may be reached, unless the test is marked ``network``.

    With patches of its own: those of a test are undone before its folder is taken away.
    """
    if request.node.get_closest_marker("network") is not None:
        yield
        return
    real_connect, real_connect_ex = socket.socket.connect, socket.socket.connect_ex
    real_getaddrinfo = socket.getaddrinfo

    def refuse(address: object) -> None:
        host = address[0] if isinstance(address, tuple) else None
        if isinstance(host, str) and host not in LOCAL_HOSTS and not host.startswith("127."):
            raise NetworkReached(f"a test tried to reach {host}; use a double or a recorded exchange")

    def connect(self: socket.socket, address: object) -> None:
        refuse(address)
        return real_connect(self, address)  # type: ignore[arg-type]

    def connect_ex(self: socket.socket, address: object) -> int:
        refuse(address)
        return real_connect_ex(self, address)  # type: ignore[arg-type]

    def getaddrinfo(host: object, *args: object, **kwargs: object) -> object:
        refuse((host.decode() if isinstance(host, bytes) else host,))
        return real_getaddrinfo(host, *args, **kwargs)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(socket.socket, "connect", connect)
        patched.setattr(socket.socket, "connect_ex", connect_ex)
        patched.setattr(socket, "getaddrinfo", getaddrinfo)
        yield


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One server for all tests of a process, in memory and without syncs; skipped where there is no wheel of it."""
    from perdure.testing.postgres import PostgresServer, why_there_is_no_server

    if why_not := why_there_is_no_server():
        pytest.skip(why_not)
    with PostgresServer.start() as server:
        server.execute("CREATE ROLE perdure_owner LOGIN CREATEROLE")
        yield server


@pytest.fixture(scope="session")
def postgres_template(postgres_server: PostgresServer) -> str:
    """The name of a migrated database that nobody is connected to, to be copied. Who serves is called `gateway`."""
    import anyio

    from perdure.adapters.postgres.schema import SERVING, migrate

    postgres_server.execute("CREATE DATABASE template_of_tests OWNER perdure_owner")
    anyio.run(migrate, postgres_server.url_of("template_of_tests", "perdure_owner"))
    if not postgres_server.execute("SELECT 1 FROM pg_roles WHERE rolname = 'gateway'"):  # a test may have made it
        postgres_server.execute(f"CREATE ROLE gateway LOGIN IN ROLE {SERVING}")
    return "template_of_tests"


@pytest.fixture(scope="module")
def postgres(postgres_server: PostgresServer, postgres_template: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a database of this module's own, migrated by its owner, for a user who owns nothing."""
    with _database(postgres_server, postgres_template, f"test_{_short(request)}") as name:
        yield postgres_server.url_of(name, "gateway")


@pytest.fixture(scope="module")
def pooled(postgres: str) -> Iterator[str]:
    """The same by way of a transaction pooler, whose clients leave nothing behind in its connections (SCL-1)."""
    from perdure.testing.pooler import TransactionPooler

    with TransactionPooler(to=postgres) as pooler:
        yield pooler.in_front_of(postgres)
        assert pooler.lent > 0 and pooler.leaks == []


@pytest.fixture(scope="module")
def postgres_with_bucket(
    postgres_server: PostgresServer, postgres_template: str, request: pytest.FixtureRequest
) -> Iterator[tuple[str, FakeS3]]:
    """The URL of another one, whose blobs are in a bucket, and the object store that has it."""
    import anyio

    pytest.importorskip("obstore", reason="the package of the extra `s3` isn't installed")
    from perdure.adapters.postgres.blobs import choose_bucket
    from perdure.testing.s3 import FakeS3

    with FakeS3() as s3, pytest.MonkeyPatch.context() as patched:
        for name, value in s3.environment.items():
            patched.setenv(name, value)
        with _database(postgres_server, postgres_template, f"bucket_{_short(request)}") as database:
            anyio.run(choose_bucket, postgres_server.url_of(database, "perdure_owner"), "s3://blobs/tests")
            yield postgres_server.url_of(database, "gateway"), s3


def _short(request: pytest.FixtureRequest) -> str:
    return hashlib.sha256(request.module.__name__.encode()).hexdigest()[:16]


@contextmanager
def _database(server: PostgresServer, template: str, name: str) -> Iterator[str]:
    server.execute(f"CREATE DATABASE {name} TEMPLATE {template} OWNER perdure_owner")
    yield name
    server.execute(f"DROP DATABASE {name} WITH (FORCE)")
