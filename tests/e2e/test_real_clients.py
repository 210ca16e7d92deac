"""Clients that people use, unmodified, through the gateway (GW-2, GW-7): those that `make clients` has installed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from bench.clients import CLIENTS, RealClient, is_installed, run

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("client", CLIENTS, ids=[client.name for client in CLIENTS])
def test_a_client_that_knows_nothing_of_us_holds_its_session(client: RealClient, tmp_path: Path) -> None:
    """GW-2: told a base URL alone, it comes to its end in a window far smaller than its history."""
    if not is_installed(client):
        pytest.skip("not installed: make clients installs it, and runs it longer")
    outcome = asyncio.run(run(client, 12, 30_000, tmp_path))
    assert outcome.is_held, (outcome.row(), outcome.said[-2_000:])
