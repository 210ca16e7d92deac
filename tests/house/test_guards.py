"""The guards in conftest.py do guard."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.house


@pytest.mark.parametrize("host", ["192.0.2.1", "example.invalid"])
def test_a_test_cannot_reach_the_network(host: str) -> None:
    with pytest.raises(AssertionError, match="tried to reach"):
        socket.create_connection((host, 80), timeout=1)


def test_loopback_can_be_reached() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        pass


def test_a_golden_file_that_is_missing_or_differs_fails(
    golden: Callable[[Path, str | bytes], None], rewrite_golden: bool, request: pytest.FixtureRequest
) -> None:
    if rewrite_golden:
        pytest.skip("nothing is compared while golden files are rewritten")
    here = Path(request.path).parent
    with pytest.raises(pytest.fail.Exception, match="is missing"):
        golden(here / "no-such-file.txt", "text")
    with pytest.raises(pytest.fail.Exception, match="differs"):
        golden(Path(request.path), "something else")
    golden(Path(request.path), Path(request.path).read_bytes())
