"""Whose requests a server of ours takes, by what a browser says of the page that asks (SEC-7)."""

from __future__ import annotations

import pytest

from perdure.adapters.listening import foreign_page

HERE, THERE = b"127.0.0.1:8787", b"attacker.example"


@pytest.mark.parametrize(
    "headers,said",
    [
        ([(b"host", HERE)], ""),
        ([(b"host", HERE), (b"host", b"localhost")], ""),
        ([(b"host", HERE), (b"origin", b"http://localhost:3000"), (b"accept", b"*/*")], ""),
        ([(b"host", b"proxy.lan:80")], ""),
        ([], "host"),
        ([(b"host", b"")], "host"),
        ([(b"host", THERE)], "host"),
        ([(b"host", THERE), (b"host", HERE)], "host"),
        ([(b"host", HERE), (b"host", THERE)], "host"),
        ([(b"host", HERE), (b"origin", b"null")], "origin"),
        ([(b"host", HERE), (b"origin", b"http://" + THERE), (b"origin", b"http://" + HERE)], "origin"),
        ([(b"host", HERE), (b"origin", b"http://" + HERE), (b"origin", b"http://" + THERE)], "origin"),
    ],
)
def test_each_host_and_origin_has_to_be_of_this_machine(headers: list[tuple[bytes, bytes]], said: str) -> None:
    """SEC-7: of several, whoever reads the request next may take another one than the last."""
    assert foreign_page(headers, ("proxy.lan",)) == said
