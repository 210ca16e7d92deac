"""A place to run commands in, and a way to run them in this process."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.gateways import ON_FILES, StoresOfTest, contents, kept_at
from tests.tiers import NIGHTLY

from perdure.cli import main

_KINDS = ("files", "postgres")

# Importing these frameworks takes each worker seconds; test_framework_runs.py is the quick tier's smoke of them. The
# others start real clients.
_SLOW = ["test_langchain.py", "test_openai_agents.py", "test_pydantic_ai.py", "test_real_*"]
collect_ignore_glob = [] if NIGHTLY else _SLOW


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that starts a gateway is run on each kind of store, unless it is marked `only_on` one of them."""
    starts = inspect.iscoroutinefunction(inspect.unwrap(metafunc.function)) and hasattr(metafunc.module, "serving")
    marker = metafunc.definition.get_closest_marker("only_on")
    if starts and (marker is None or marker.args[0] != _KINDS[0]):
        metafunc.parametrize("kept_on", _KINDS if marker is None else marker.args[:1], indirect=True)


@pytest.fixture(autouse=True)
def kept_on(request: pytest.FixtureRequest) -> Iterator[StoresOfTest]:
    """Where gateways of this test keep what they keep: in the folders of their homes, or in a database for each."""
    if getattr(request, "param", "files") == "files":
        yield ON_FILES
        return
    server, template = request.getfixturevalue("postgres_server"), request.getfixturevalue("postgres_template")
    names: dict[Path, str] = {}

    def database_of(home: Path) -> str:
        if home not in names:
            names[home] = "test_" + hashlib.sha256(f"{request.node.nodeid} {home}".encode()).hexdigest()[:16]
            server.execute(f"CREATE DATABASE {names[home]} TEMPLATE {template} OWNER perdure_owner")
        return names[home]

    def all_of(home: Path) -> dict[str, bytes]:
        return {**contents(home), "the database": readable(server.dump(server.url_of(database_of(home))))}

    stores = StoresOfTest("postgres", lambda home: server.url_of(database_of(home), "gateway"), all_of)
    with kept_at(stores):
        yield stores
    for name in names.values():
        server.execute(f"DROP DATABASE {name} WITH (FORCE)")


def readable(dump: str) -> bytes:
    """What a dump of a database says, and what the bytes in it say."""
    return b"\n".join([dump.encode(), *(bytes.fromhex(one) for one in re.findall(r"'\\x((?:[0-9a-f]{2})+)'", dump))])


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with a home in it, and no settings from outside."""
    for name in list(os.environ):
        if name.startswith(("PERDURE_", "CLAUDE_", "DISABLE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Ran:
    """What a command did."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    def ran(*arguments: str | Path) -> Ran:
        code = main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return Ran(code, out, err)

    return ran
