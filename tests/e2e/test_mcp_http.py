"""MCP-1, SEC-7: the server over HTTP, asked by the protocol's own client and by those that may not ask."""

from __future__ import annotations

from pathlib import Path

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import ElicitRequestParams, ElicitResult
from tests.commands import command
from tests.mcp_clients import ERAS, McpPlace, found, in_loop, served, told

pytestmark = pytest.mark.e2e

TOKEN = "a-token-of-the-user"
LISTS = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}}}  # fmt: skip
HEADERS = {
    "accept": "application/json, text/event-stream",
    "mcp-protocol-version": "2026-07-28",
    "mcp-method": "tools/list",
}


@pytest.fixture
def place(tmp_path: Path) -> McpPlace:
    return McpPlace(tmp_path)


@pytest.mark.nightly
@ERAS
@in_loop
async def test_many_clients_are_served_at_once(place: McpPlace, mode: str) -> None:
    """MCP-1: of both eras; what one saves, the others find."""
    await place.session("one", *found("42 passed", "one"))
    with served(place, "--save-at-once") as url:

        async def ask(number: int) -> None:
            async with Client(url, mode=mode) as client:
                assert (await told(client, "recall", id="toolu_one"))["text"] == "42 passed"
                await told(client, "memory_save", text=f"Client {number} was here.")

        async with anyio.create_task_group() as tasks:
            for number in range(6):
                tasks.start_soon(ask, number)
        async with Client(url, mode=mode) as client:
            memories = (await told(client, "memory_search", query="which client was here?", limit=20))["memories"]
            assert len(memories) == 6
            index = (await client.read_resource("memory://index")).contents[0].text  # type: ignore[union-attr]
            assert index.count("was here") == 6


@pytest.mark.nightly
@ERAS
@in_loop
async def test_the_user_is_asked_over_http(place: McpPlace, mode: str) -> None:
    """MCP-1, MEM-8: in the middle of a call, or by answering it with the question."""
    shown: list[str] = []

    async def asked(context: object, form: ElicitRequestParams) -> ElicitResult:
        shown.append(form.message)
        return ElicitResult(action="accept", content={"decision": "yes"})

    with served(place) as url:
        async with Client(url, mode=mode, elicitation_callback=asked) as client:
            assert (await told(client, "memory_save", text="Deploys go out on Fridays."))["outcome"] == "saved"
        async with Client(url, mode=mode) as client:
            assert (await told(client, "memory_search", query="deploys"))["memories"]
    assert len(shown) == 1 and "+Deploys go out on Fridays." in shown[0]


@pytest.mark.quick(1)
@ERAS
@in_loop
async def test_a_token_opens_it(place: McpPlace, mode: str) -> None:
    """MCP-1, SEC-7: where one is set, nobody is answered without."""
    with served(place, token=TOKEN) as url:
        async with (
            httpx2.AsyncClient(headers={"authorization": f"Bearer {TOKEN}"}) as http,
            Client(streamable_http_client(url, http_client=http), mode=mode) as client,
        ):
            assert (await client.list_tools()).tools
        for given in ("", "Bearer", "Bearer wrong", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x", "Bearer é"):
            async with httpx2.AsyncClient() as http:
                headers = HEADERS | {"authorization": given.encode()}  # type: ignore[dict-item]
                answer = await http.post(url, json=LISTS, headers=headers)
                assert answer.status_code == 401 and answer.headers["www-authenticate"] == "Bearer", given
                assert TOKEN not in answer.text


@in_loop
async def test_pages_of_other_sites_may_not_ask(place: McpPlace) -> None:
    """MCP-1, SEC-7: neither under another name of this machine, nor from a page of another origin."""
    with served(place, "--allow-host", "box.example") as url:
        async with httpx2.AsyncClient() as http:
            for headers, status in (
                ({}, 200),
                ({"host": "box.example"}, 200),
                ({"host": "localhost:1"}, 200),
                ({"origin": "http://localhost:3000"}, 200),
                ({"host": "evil.example"}, 421),
                ({"host": "127.0.0.1.evil.example"}, 421),
                ({"host": "10.0.0.1"}, 421),
                ({"origin": "https://evil.example"}, 403),
                ({"origin": "null"}, 403),
            ):
                answer = await http.post(url, json=LISTS, headers=HEADERS | headers)
                assert answer.status_code == status, (headers, answer.text)
                assert ("memory_search" in answer.text) is (status == 200)
            assert (await http.post(url, content=b"x" * 5_000_000, headers=HEADERS)).status_code in (400, 413)
            assert (await http.post(url, content=b"[" * 100_000, headers=HEADERS)).status_code == 400
            assert (await http.get(url.removesuffix("/mcp"))).status_code == 404


@pytest.mark.parametrize(
    ("address", "token", "why"),
    [
        ("0.0.0.0:0", "", "set PERDURE_MCP_TOKEN"),
        ("[::]:0", "", "set PERDURE_MCP_TOKEN"),
        ("192.0.2.1:0", TOKEN, "give another address"),
        ("127.0.0.1:0", "two words", "without spaces"),
        ("localhost", "", "HOST:PORT"),
        (":8788", "", "HOST:PORT"),
        ("127.0.0.1:99999", "", "HOST:PORT"),
    ],
)
def test_where_it_cannot_be_served_is_told_in_a_line(place: McpPlace, address: str, token: str, why: str) -> None:
    """MCP-1, CLI-5: above all, nothing that other machines reach without a token."""
    env = place.env | ({"PERDURE_MCP_TOKEN": token} if token else {})
    done = command("mcp", "--http", address, cwd=place.project, env=env)
    assert done.returncode == 2 and why in done.stderr and done.stderr.count("\n") == 1, done
