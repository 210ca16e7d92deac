"""Ids of responses under kills of gateways and ten seconds without the database, with production settings (GW-11)."""

# ruff: noqa: ASYNC220 - a process is started in a moment, and the others may wait

from __future__ import annotations

import asyncio
import itertools
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec
import pytest
from tests.agents import until
from tests.gateways import in_loop

from perdure.testing import FakeServer, FakeUpstream
from perdure.testing.server import HeldStream

if TYPE_CHECKING:
    from perdure.testing.postgres import PostgresServer

pytestmark = [pytest.mark.faults, pytest.mark.nightly, pytest.mark.timeout(900)]

CONVERSATIONS = 8
AWAY_SECONDS = 10.0
KEYS = {"own": ("own-key-1", "own-key-2"), "shared": ("alice-key", "bob-key")}
TENANTS = """
[gateway.tenants.alice]
key_env = "ALICE"
upstream_keys = { openai = "SHARED" }
[gateway.tenants.bob]
key_env = "BOB"
upstream_keys = { openai = "SHARED" }
"""


@dataclass
class Gate:
    """`perdure serve` as a process on a port of its own."""

    home: Path
    store: str = ""  # files, without one
    url: str = ""
    process: subprocess.Popen[str] | None = None

    async def start(self) -> None:
        env = {**os.environ, "PERDURE_HOME": str(self.home)}
        env |= {"ALICE": "alice-key", "BOB": "bob-key", "SHARED": "shared-key"}
        port = self.url.rpartition(":")[2] or "0"
        store = ["--store", self.store] if self.store else []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "perdure", "serve", "--port", port, "--json", *store],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.url = json.loads(await asyncio.to_thread(self.process.stdout.readline))["url"]

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@dataclass
class Storm:
    """Conversations by `previous_response_id`, and what their clients saw."""

    gates: tuple[Gate, Gate]
    http: aiohttp.ClientSession
    told: Counter[str] = field(default_factory=Counter)
    refused: list[str] = field(default_factory=list)  # what was said with a 4xx
    handed_out: dict[str, tuple[str, list[str]]] = field(default_factory=dict)  # ids, with the key and what was said
    under_way: set[str] = field(default_factory=set)  # streams by the gateway that they come from
    is_over: bool = False
    numbers: Iterator[int] = field(default_factory=itertools.count)

    async def ask(self, gate: Gate, key: str, text: str, previous: str, said: list[str], *, stream: bool) -> str | None:
        """Ask once: the id of the answer, whole or not; None where there is none."""
        body: dict[str, Any] = {"model": "gpt-6-sol", "input": text, "stream": stream}
        body |= {"previous_response_id": previous} if previous else {}
        identity = None
        try:
            headers = {"authorization": f"Bearer {key}"}
            async with self.http.post(f"{gate.url}/v1/responses", json=body, headers=headers) as answer:
                self.told[str(answer.status)] += 1
                if answer.status != 200:
                    whole = await answer.text()
                    if answer.status < 500:
                        self.refused.append(f"{answer.status} {text} behind {previous}: {whole[:300]}")
                    await asyncio.sleep(float(answer.headers.get("retry-after", 1)))
                    return None
                self.told[answer.headers["x-perdure-mode"]] += 1
                if not stream:
                    response = await answer.json()
                    self.handed_out[response["id"]] = key, [*said, text, words_of(response)]
                    return str(response["id"])
                async for line in answer.content:
                    if not line.startswith(b"data: "):
                        continue
                    event = msgspec.json.decode(line[6:])
                    if event["type"] == "response.created":
                        identity = str(event["response"]["id"])
                        self.handed_out[identity] = key, [*said, text]
                        self.under_way.add(gate.url)
                    elif event["type"] == "response.completed":
                        assert event["response"]["id"] == identity
                        self.handed_out[str(identity)] = key, [*said, text, words_of(event["response"])]
        except (aiohttp.ClientError, TimeoutError, OSError):
            self.told["broke off"] += 1
            await asyncio.sleep(0.3)
        finally:
            self.under_way.discard(gate.url)
        return identity

    async def talk(self, number: int, key: str) -> None:
        """A conversation at both gateways in turn, whose client asks again until it has an answer."""
        previous, said, gates = "", list[str](), itertools.cycle(self.gates if number % 2 else self.gates[::-1])
        while not self.is_over:
            text = f"word-{number}-{next(self.numbers)}."
            answered = None
            while answered is None:
                answered = await self.ask(next(gates), key, text, previous, said, stream=number % 3 > 0)
                if answered is None and self.is_over:
                    return
            previous, said = answered, self.handed_out[answered][1]


def words_of(response: dict[str, Any]) -> str:
    return str(response["output"][0]["content"][0]["text"])


@pytest.mark.parametrize("account", ["own", "shared"])
@in_loop
async def test_every_id_goes_on_after_kills_and_an_outage(
    tmp_path: Path, account: str, postgres_server: PostgresServer, postgres: str
) -> None:
    """GW-11, findings A1 and A2: no answer of 4xx; each id that a client saw goes on with all that was said before."""
    upstream = FakeUpstream(script=[f"answer-{n}. " * 12 for n in range(4_000)])
    async with FakeServer(upstream, delay_seconds=0.15) as server, aiohttp.ClientSession() as http:
        gates = Gate(tmp_path / "one", postgres), Gate(tmp_path / "two", postgres)
        for gate in gates:
            gate.home.mkdir()
            more = TENANTS if account == "shared" else ""
            (gate.home / "config.toml").write_text(f'[gateway.upstreams.openai]\nurl = "{server.url}"\n{more}')
            await gate.start()
        try:
            storm = Storm(gates, http)
            keys = KEYS[account]
            talks = [asyncio.create_task(storm.talk(n, keys[n % 2])) for n in range(CONVERSATIONS)]
            for victim in gates:
                await asyncio.sleep(3.0)
                await until(lambda gate=victim: gate.url in storm.under_way)  # type: ignore[misc]
                victim.kill()
                await asyncio.sleep(8.0)
                await victim.start()
            await asyncio.sleep(3.0)
            await asyncio.to_thread(postgres_server.kill)
            begun = [asyncio.create_task(storm.talk(n, keys[n % 2])) for n in range(CONVERSATIONS, CONVERSATIONS + 4)]
            await asyncio.sleep(AWAY_SECONDS)
            await asyncio.to_thread(postgres_server.resume)
            await asyncio.sleep(8.0)
            storm.is_over = True
            await asyncio.gather(*talks, *begun)
            server.delay_seconds = 0.0
            ids, asking = dict(storm.handed_out), asyncio.Semaphore(8)

            async def checked(identity: str, gate: Gate) -> list[str]:
                """What was said before this id and isn't in the request that goes on from it at this gateway."""
                key, said = ids[identity]
                async with asking:
                    again, tries = None, 0
                    while again is None and (tries := tries + 1) <= 10:
                        again = await storm.ask(gate, key, "go on", identity, said, stream=False)
                read = next((one.said for one in server.read[::-1] if again and again.startswith(one.response)), "")
                return [f"{identity} at {gate.home.name}: {word}" for word in said if word not in read]

            done = await asyncio.gather(*(checked(identity, gate) for identity in ids for gate in gates))
            missing = [one for some in done for one in some]
            print(f"{account}: {len(ids)} ids, {dict(storm.told)}, {len(missing)} words missing")
            assert storm.refused == []
            assert missing == []
            assert storm.told["passed"] >= 4 and storm.told["broke off"] >= 2 and len(ids) > 50
            assert not server.upstream.statistics.violations
        finally:
            for gate in gates:
                gate.kill()


@in_loop
async def test_an_id_goes_on_after_a_kill_and_a_restart_on_files(tmp_path: Path) -> None:
    """GW-11, finding A1: kill -9 of the only gateway in a stream; the next one knows this id and those of before."""
    async with (
        FakeServer(FakeUpstream(script=["one", "two " * 30, "three", "four"])) as server,
        aiohttp.ClientSession(headers={"authorization": "Bearer own-key-1"}) as http,
    ):
        (tmp_path / "config.toml").write_text(f'[gateway.upstreams.openai]\nurl = "{server.url}"\n')
        gate = Gate(tmp_path)
        await gate.start()
        try:
            body: dict[str, Any] = {"model": "gpt-6-sol", "input": "the word is heron"}
            async with http.post(f"{gate.url}/v1/responses", json=body) as answer:
                first = (await answer.json())["id"]
            server.faults.append(HeldStream(after_events=4))
            body |= {"input": "the number is 7", "previous_response_id": first, "stream": True}
            async with http.post(f"{gate.url}/v1/responses", json=body) as answer:
                await answer.content.readline()
                event = msgspec.json.decode((await answer.content.readline()).removeprefix(b"data: "))
                gate.kill()
            await gate.start()
            for previous, said in ((first, ["heron"]), (event["response"]["id"], ["heron", "the number is 7"])):
                body = {"model": "gpt-6-sol", "input": "go on", "previous_response_id": previous}
                async with http.post(f"{gate.url}/v1/responses", json=body) as answer:
                    assert answer.status == 200, await answer.text()
                assert all(word in server.read[-1].said for word in said)
        finally:
            gate.kill()
