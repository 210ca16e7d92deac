"""The gateway for who runs it: what it logs, who may ask how much, and what it says of itself (GW-9)."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import anthropic
import pytest
from tests.gateways import KEY, config_of, fake, in_loop, serving, upstream

from perdure.adapters.lines import LineFile
from perdure.errors import BadSetting
from perdure.settings import Settings
from perdure.testing import CutStream, overloaded

pytestmark = pytest.mark.e2e
SECRET = "the-words-of-a-message"
HELLO: Any = [{"role": "user", "content": SECRET}]


async def lines(path: Path, *, until: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
    """The lines of a log, once they are there."""
    for _ in range(200):
        text = await asyncio.to_thread(path.read_text)
        told = [json.loads(line) for line in text.splitlines()]
        if until(told):
            return told
        await asyncio.sleep(0.02)
    raise AssertionError(f"not in the log: {told}")


@in_loop
async def test_each_request_is_one_line_without_a_word_of_it(tmp_path: Path) -> None:
    """GW-9, U11: who asked what of whom, what was done, how much, how long; never text, and never a key."""
    log = tmp_path / "access.jsonl"
    async with fake() as server, serving(tmp_path, server, access_log=str(log)) as at:
        claude = at.claude(max_retries=0, default_headers={"user-agent": "claude-cli/2.1.197 (external, cli)"})
        raw = await claude.messages.with_raw_response.create(model="m-one", max_tokens=50, messages=HELLO)
        async with claude.messages.stream(model="m-one", max_tokens=50, messages=HELLO) as stream:
            await stream.get_final_message()
        await at.gpt(max_retries=0).models.list(extra_query={"key": KEY})
        async with aiohttp.ClientSession() as http:
            for page in ("/healthz", "/metrics", "/perdure"):
                await http.get(f"{at.url}{page}")
            async with http.post(f"{at.url}/v1/messages", data=b"{}", headers={"host": "evil.example"}) as answer:
                assert answer.status == 421
        told = await lines(log, until=lambda told: len(told) >= 4)
        (held,) = at.held
    one, two, other, refused = told
    assert len(told) == 4 and SECRET not in log.read_text() and KEY not in log.read_text()
    assert one["request"] == raw.headers["x-perdure-request"] != two["request"]
    assert one["tenant"].startswith("key-") and one["session"] == held.id == two["session"]
    assert one["client"] == "claude-cli/2.1.197" and one["time"].endswith("Z")
    assert (one["upstream"], one["protocol"], one["kind"], one["route"]) == (
        "anthropic",
        "anthropic",
        "turn",
        "default",
    )
    assert (one["model"], one["mode"], one["status"], one["ending"]) == ("m-one", "untouched", 200, "whole")
    assert one["bytes_in"] == one["bytes_up"] > 50 and one["bytes_out"] > 100
    assert one["prompt_tokens"] > 0 and one["output_tokens"] > 0 and 0 < one["first_byte_ms"] <= one["ms"]
    assert two["stream"] is True and "stream" not in one
    assert (other["kind"], other["mode"], other["reason"]) == ("other", "passed", "path")
    assert (refused["status"], refused["reason"]) == (421, "host")


@in_loop
async def test_the_access_log_says_how_a_request_ended(tmp_path: Path) -> None:
    """GW-9: an upstream that can't be reached or breaks off, a client that goes away."""
    log = tmp_path / "access.jsonl"
    config = config_of(tmp_path, "http://127.0.0.1:1", access_log=str(log))
    async with fake() as server, serving(tmp_path, server, config=config) as at:
        with pytest.raises(anthropic.InternalServerError):
            await at.claude(max_retries=0).messages.create(model="m", max_tokens=5, messages=HELLO)
        (down,) = await lines(log, until=bool)
    assert (down["status"], down["reason"], down["upstream"]) == (502, "upstream_down", "anthropic")
    other = tmp_path / "other.jsonl"
    slow = upstream("a b c d " * 200, "a b c d " * 2_000)
    async with fake(slow, delay_seconds=0.05) as server, serving(tmp_path, server, access_log=str(other)) as at:
        server.faults.append(CutStream(after_events=3))
        with pytest.raises(Exception):  # noqa: B017 - whatever the SDK says of a stream that breaks off
            async with at.claude(max_retries=0).messages.stream(model="m", max_tokens=5, messages=HELLO) as stream:
                await stream.get_final_message()
        body = b'{"model":"m","max_tokens":50000,"stream":true,"messages":[{"role":"user","content":"x"}]}'
        async with aiohttp.request("POST", f"{at.url}/v1/messages", data=body) as answer:
            await answer.content.readany()
            answer.close()
        cut, left = await lines(other, until=lambda told: len(told) == 2)
    assert (cut["ending"], cut["reason"]) == ("broken", "upstream_broke_off")
    assert (left["ending"], left["status"]) == ("cancelled", 200)


@in_loop
async def test_events_name_tenant_session_and_request(tmp_path: Path) -> None:
    """GW-9, U11: the setting `events` is heeded, and every line of it can be told apart from the others'."""
    path, log = tmp_path / "events.jsonl", tmp_path / "access.jsonl"
    settings = Settings(window_tokens=100_000, durability="process", events=(f"jsonl:{path}",))
    async with fake() as server:
        config = config_of(tmp_path, server.url, settings=settings, access_log=str(log))
        async with serving(tmp_path, server, config=config) as at:
            await at.claude(max_retries=0).messages.create(model="m-one", max_tokens=50, messages=HELLO)
            with pytest.raises(anthropic.APIStatusError):
                server.upstream.script.append(overloaded())
                await at.claude(max_retries=0).messages.create(model="m-two", max_tokens=50, messages=HELLO)
            told = await lines(path, until=lambda told: any(line["event"] == "ModelFailed" for line in told))
            access = await lines(log, until=lambda told: len(told) == 2)
            (held,) = at.held
    (called,) = [line for line in told if line["event"] == "ModelCalled"]
    assert {line["session"] for line in told} == {held.id} and len({line["tenant"] for line in told}) == 1
    assert called["request"] == access[0]["request"] and called["upstream"] == "anthropic"
    assert called["model"] == "m-one" and called["prompt_tokens"] == access[0]["prompt_tokens"]
    appended = next(line for line in told if line["event"] == "MessageAppended")
    assert {"tenant", "session", "request", "upstream", "at"} <= appended.keys()
    assert SECRET not in path.read_text() and KEY not in path.read_text()


@in_loop
async def test_an_upstream_that_is_down_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """GW-9, U11: and that it answers again."""
    with caplog.at_level(logging.WARNING, "perdure.gateway"):
        async with fake() as server:
            down = config_of(tmp_path, "http://127.0.0.1:1")
            async with serving(tmp_path, server, config=down) as at:
                for _ in range(3):
                    with pytest.raises(anthropic.InternalServerError):
                        await at.claude(max_retries=0).messages.create(model="m", max_tokens=5, messages=HELLO)
                at.gateway.reload(config_of(tmp_path, server.url))
                await at.claude(max_retries=0).messages.create(model="m", max_tokens=5, messages=HELLO)
    said = [record.getMessage() for record in caplog.records if "upstream" in record.getMessage()]
    assert said == [
        "the upstream anthropic can't be reached (ClientConnectorError)",
        "the upstream anthropic answers again",
    ]


@in_loop
async def test_probes_answer_any_host(tmp_path: Path) -> None:
    """GW-9, U11: a kubelet asks by the address of a pod; nothing else is told to such a host."""
    async with fake() as server, serving(tmp_path, server) as at, aiohttp.ClientSession() as http:

        async def status(path: str) -> int:
            async with http.get(f"{at.url}{path}", headers={"host": "10.1.2.3:8787"}) as answer:
                return answer.status

        assert [await status(path) for path in ("/healthz", "/readyz")] == [200, 200]
        assert [await status(path) for path in ("/metrics", "/perdure", "/perdure/status")] == [421, 421, 421]


def test_lines_are_appended_by_a_thread_and_survive_rotation(tmp_path: Path) -> None:
    """GW-9: a file that is moved away is made again; one that can't be written is refused at the start."""
    path = tmp_path / "log.jsonl"
    file = LineFile(str(path))
    file.write(b"one\n")
    file.write(b"two\n")
    file.close()
    assert path.read_bytes() == b"one\ntwo\n" and path.stat().st_mode & 0o777 == 0o600
    path.rename(tmp_path / "old")
    file = LineFile(str(path))
    file.write(b"three\n")
    file.close()
    assert path.read_bytes() == b"three\n"
    with pytest.raises(BadSetting, match="can't be appended"):
        LineFile(str(tmp_path / "no" / "folder"))
