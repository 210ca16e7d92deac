"""GW-10: a real LiteLLM proxy with us: as its guardrail, behind us and before us. `make clients` installs it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from bench.clients import CLIENTS, ROOT, folder_of, is_installed
from tests.gateways import KEY, WIRES, Running, fake, in_loop, serving

from perdure.settings import Settings
from perdure.testing import FakeServer, FakeUpstream, ModelRules, say, tool_use

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
LITELLM = next(client for client in CLIENTS if client.name == "litellm")
WINDOW, CALLS, MASTER = 24_000, 40, "sk-master"
CODE = re.compile(r"QX-\d{4}")
QUESTION = "What is the entry code?"


def part(number: int) -> str:
    """What the tool prints; one of them has the code in its middle."""
    lines = [f"line of part {number}: value"] * 220
    return "\n".join([*lines, "the entry code is QX-4711" if number == 3 else "nothing here", *lines])


HASH = hashlib.sha256(part(3).encode()).hexdigest()[:24]
RUN = {"type": "function", "function": {"name": "run", "parameters": {"type": "object"}}}


class Worker(FakeUpstream):
    """Runs a command each time; asked for the code, it gets the result back that had it, and quotes it."""

    server: FakeServer

    def answer(self, request: Any, rules: ModelRules, **more: Any) -> Any:
        asked = self.server.received[-1].body.decode()
        reply = say("Next.", tool_use("run", {"command": f"cat part_{self.statistics.answered}"}))
        if QUESTION in asked:
            found = CODE.search(asked)
            reply = say(found[0]) if found else say(tool_use("headroom_retrieve", {"hash": HASH}))
        return super().answer(request, rules, **{**more, "reply": reply})


@asynccontextmanager
async def proxy(folder: Path, models: dict[str, str], port: int, guardrail: str, hook: str = "") -> AsyncIterator[str]:
    """The proxy, with these models at these addresses, and a hook of Perdure's where its program is given."""
    config = {
        "model_list": [
            {
                "model_name": name,
                "litellm_params": {"model": "openai/bench", "api_base": f"{url}/v1", "api_key": KEY, "max_retries": 0},
            }
            for name, url in models.items()
        ],
        "guardrails": [
            {
                "guardrail_name": "shorten",
                "litellm_params": {"guardrail": "headroom", "mode": "pre_call", "api_base": guardrail, "api_key": KEY},
            }
        ],
        "router_settings": {"num_retries": 0},
        "general_settings": {"master_key": MASTER},
        "litellm_settings": {"callbacks": "perdure_hook.hook"} if hook else {},
    }
    (folder / "perdure_hook.py").write_text(hook)
    (folder / "config.yaml").write_text(json.dumps(config))  # JSON is YAML
    command = [str(folder_of(LITELLM) / "bin/litellm"), "--config", str(folder / "config.yaml")]
    environ = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "HOME": str(folder), "NO_PROXY": "127.0.0.1"}
    environ |= {"PYTHONPATH": str(ROOT / "src"), "PERDURE_HOME": str(folder / "home")}
    said = (folder / "said.txt").open("wb")
    process = await asyncio.create_subprocess_exec(
        *command, "--host", "127.0.0.1", "--port", str(port), env=environ, stdout=said, stderr=said, cwd=folder
    )
    url = f"http://127.0.0.1:{port}"
    try:
        async with aiohttp.ClientSession() as client:
            for _ in range(600):
                try:
                    async with client.get(f"{url}/health/liveliness") as answer:
                        if answer.status == 200:
                            break
                except aiohttp.ClientError:
                    assert process.returncode is None, (folder / "said.txt").read_text()[-3_000:]
                await asyncio.sleep(0.25)
        yield url
    finally:
        process.terminate()
        await process.wait()
        said.close()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


async def loop(url: str, key: str, model: str, **more: Any) -> list[dict[str, Any]]:
    """A conversation of one prompt and so many calls of a tool, in which no answer is an error."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Read all parts, one after the other."}]
    for number in range(CALLS):
        said = await asked(url, key, {"model": model, "messages": messages, "tools": [RUN], **more})
        messages.append({name: value for name, value in said.items() if value is not None})
        for call in said["tool_calls"]:
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": part(number)})
    return messages


async def asked(url: str, key: str, body: dict[str, Any]) -> dict[str, Any]:
    """The message of an answer that is no error."""
    client = aiohttp.ClientSession(headers={"authorization": f"Bearer {key}"})
    async with client, client.post(f"{url}/v1/chat/completions", json=body) as answer:
        told = await answer.read()
        assert answer.status == 200, (len(body["messages"]), told[:2_000])
    found: dict[str, Any] = msgspec.json.decode(told)["choices"][0]["message"]
    return found


@asynccontextmanager
async def both(folder: Path, upstream: Worker) -> AsyncIterator[tuple[Running, str]]:
    """The gateway and the proxy: `direct` leads to the fake, `through` to the gateway, and its route `proxy` back."""
    if not is_installed(LITELLM):
        pytest.skip("not installed: make clients installs it")
    port = free_port()
    async with fake(upstream) as server:
        upstream.server = server
        upstreams = {name: {"url": server.url} for name in WIRES} | {"proxy": {"url": f"http://127.0.0.1:{port}"}}
        routes = {"proxy": {"openai": "proxy"}, "default": {"openai": "openai"}}
        settings = Settings(window_tokens=WINDOW, durability="process")
        async with (
            serving(folder, server, settings=settings, upstreams=upstreams, routes=routes) as at,
            proxy(folder, {"direct": server.url, "through": at.url}, port, at.url) as url,
        ):
            yield at, url


@in_loop
async def test_a_real_proxy_before_us_behind_us_and_with_us_as_its_guardrail(tmp_path: Path) -> None:
    """GW-10, LIB-7: 40 calls each in a window of 24,000, no error; what its guardrail had shortened comes back."""
    upstream = Worker(rules=ModelRules(window_tokens=WINDOW), strict=False)
    async with both(tmp_path, upstream) as (at, url):
        for name, (where, key, model) in {
            "the proxy before us": (url, MASTER, "through"),
            "the proxy behind us": (f"{at.url}/proxy", MASTER, "direct"),
        }.items():
            before = upstream.statistics.answered
            await loop(where, key, model)
            assert upstream.statistics.answered == before + CALLS, name
        assert not upstream.statistics.violations
        messages = await loop(url, MASTER, "direct", guardrails=["shorten"])
        assert not upstream.statistics.violations
        assert not CODE.search(at.server.received[-1].body.decode()), "it has left what the model sees"
        messages.append({"role": "assistant", "content": "All are read."})
        body = {"model": "direct", "messages": [*messages, {"role": "user", "content": QUESTION}], "tools": [RUN]}
        said = await asked(url, MASTER, {**body, "guardrails": ["shorten"]})
        assert said["content"] == "QX-4711", "by way of the guardrail's own tool, and our /v1/retrieve"
        assert at.metric("perdure_requests_total", route="default", kind="compress", mode="view") >= CALLS - 2


@pytest.mark.only_on("files", "no gateway takes part")
@in_loop
async def test_a_real_proxy_with_our_hook_in_it(tmp_path: Path) -> None:
    """LIB-4: 40 calls of each of two conversations at once in a window of 24,000, named or not, and no error."""
    if not is_installed(LITELLM):
        pytest.skip("not installed: make clients installs it")
    upstream = Worker(rules=ModelRules(window_tokens=WINDOW), strict=False)
    program = (
        "from perdure.integrations.litellm import PerdureHook\n"
        f"hook = PerdureHook('.', settings={{'window_tokens': {WINDOW}}})\n"
    )
    async with fake(upstream) as server, proxy(tmp_path, {"direct": server.url}, free_port(), "", program) as url:
        upstream.server = server
        named = {"litellm_session_id": "the parts"}
        await asyncio.gather(loop(url, MASTER, "direct", **named), loop(url, MASTER, "direct", user="another"))
    assert not upstream.statistics.violations and upstream.statistics.answered == 2 * CALLS
    assert len(list((tmp_path / "home").glob("projects/*/*/journal.jsonl"))) == 2
