"""GW-4: the gateway's live page in a real browser, on a desk and on a phone. `make browser` runs these."""

from __future__ import annotations

import asyncio
import base64
import itertools
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.gateways import Running, fake, in_loop, serving

from perdure.testing import FakeUpstream, ModelRules, say, tool_use

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM, reason="needs Chromium (Debian: apt-get install chromium)"),
]
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--remote-debugging-port=0",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
HOSTILE = 'claude-"><img src=x onerror=document.title="owned">'
SEEN = """({
  width: innerWidth, title: document.title, images: document.images.length,
  wide: [...document.querySelectorAll("body *")].filter(e => !e.closest(".scroll, svg") &&
    e.getBoundingClientRect().right > innerWidth + 1).map(e => e.tagName),
  text: document.body.innerText, sections: document.querySelectorAll("section").length,
  bars: [...document.querySelectorAll("svg.bar rect:nth-child(2)")].map(e => e.getBoundingClientRect().width),
  paper: getComputedStyle(document.body).backgroundColor,
  loaded: performance.getEntriesByType("resource").filter(e => !e.name.startsWith(location.origin)).length,
})"""


def keep(path: Path, data: bytes) -> None:
    path.write_bytes(data)


class Page:
    """A page of a browser, spoken to over its own protocol: a window is never as narrow as a phone, this is."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket, self._numbers = socket, itertools.count(1)
        self.session = ""
        self.complaints: list[str] = []

    async def do(self, method: str, **told: Any) -> dict[str, Any]:
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": told, "sessionId": self.session})
        while True:
            said = await self._socket.receive_json(timeout=60)
            if said.get("method") in ("Log.entryAdded", "Runtime.exceptionThrown"):
                self.complaints.append(str(said["params"]))
            if said.get("id") == number:
                assert "error" not in said, said
                return dict(said["result"])

    async def value(self, expression: str) -> Any:
        result = await self.do("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    async def until(self, expression: str) -> None:
        for _ in range(300):
            if await self.value(expression):
                return
            await asyncio.sleep(0.1)
        raise AssertionError(f"never came true: {expression}")

    async def screenshot(self, name: str) -> None:
        """Into the folder PERDURE_SCREENSHOTS, for people; nothing without it."""
        if folder := os.environ.get("PERDURE_SCREENSHOTS"):
            data = (await self.do("Page.captureScreenshot", format="png"))["data"]
            keep(Path(folder, f"{name}.png"), base64.b64decode(data))


@asynccontextmanager
async def browser(home: Path, url: str, *, width: int, is_dark: bool = False) -> AsyncIterator[Page]:
    command = [str(CHROMIUM), *FLAGS, f"--user-data-dir={home / 'profile'}", "about:blank"]
    process = await asyncio.create_subprocess_exec(
        *command, stderr=asyncio.subprocess.PIPE, env={**os.environ, "HOME": str(home)}
    )
    try:
        assert process.stderr is not None
        while b"listening on ws://" not in (line := await process.stderr.readline()):
            assert line, "the browser didn't start"
        drained = asyncio.create_task(process.stderr.read())
        async with (
            aiohttp.ClientSession() as http,
            http.ws_connect(line.decode().split("listening on ")[1].strip(), max_msg_size=0) as socket,
        ):
            found = Page(socket)
            (target, *_) = [t for t in (await _targets(socket)) if t["type"] == "page"]
            await socket.send_json(
                {
                    "id": 0,
                    "method": "Target.attachToTarget",
                    "params": {"targetId": target["targetId"], "flatten": True},
                }
            )
            while "result" not in (said := await socket.receive_json(timeout=60)):
                pass
            found.session = said["result"]["sessionId"]
            for domain in ("Page", "Runtime", "Log"):
                await found.do(f"{domain}.enable")
            size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
            await found.do("Emulation.setDeviceMetricsOverride", **size)
            scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
            await found.do("Emulation.setEmulatedMedia", features=[scheme])
            await found.do("Page.navigate", url=url)
            await found.until("document.readyState === 'complete' && !!document.querySelector('main')")
            yield found
    finally:
        process.terminate()
        await process.wait()
    await drained


async def _targets(socket: aiohttp.ClientWebSocketResponse) -> list[dict[str, Any]]:
    await socket.send_json({"id": 0, "method": "Target.getTargets"})
    while "result" not in (said := await socket.receive_json(timeout=60)):
        pass
    return list(said["result"]["targetInfos"])


def upstream() -> FakeUpstream:
    script: list[Any] = []
    for n in range(14):
        script += [say(tool_use("Read", {"file_path": f"f{n}.py"}, id=f"toolu_{n}")), f"done {n}"]
    return FakeUpstream(rules=ModelRules(window_tokens=100_000), script=script)


async def talk(at: Running, model: str, turns: int, *, key: str | None = None) -> None:
    """A conversation whose results are large: they are offloaded, and the session is compacted."""
    client = at.claude() if key is None else at.claude().with_options(api_key=key)
    messages: list[Any] = []
    for n in range(turns):
        messages.append({"role": "user", "content": f"Look at {n}. " + f"Remark {n}: keep it short. " * 1_500})
        for _ in range(2):
            said = await client.messages.create(model=model, max_tokens=500, messages=messages)
            messages.append({"role": "assistant", "content": [block.model_dump() for block in said.content]})
            if calls := [block for block in said.content if block.type == "tool_use"]:
                content = f"line of file {n}: value {n * 7}\n" * 3_000
                result = {"type": "tool_result", "tool_use_id": calls[0].id, "content": content}
                messages.append({"role": "user", "content": [result]})


@pytest.mark.parametrize(("width", "is_dark"), [(1280, False), (390, True)])
def test_the_page_shows_sessions_and_looks_again_by_itself(tmp_path: Path, width: int, is_dark: bool) -> None:
    """GW-4: bars, events, price saved; no sideways scrolling; nothing loaded from elsewhere; a name stays a name."""

    @in_loop
    async def run() -> None:
        async with fake(upstream()) as server, serving(tmp_path, server) as at:  # noqa: SIM117 - the page needs its url
            async with browser(tmp_path, f"{at.url}/perdure", width=width, is_dark=is_dark) as page:
                assert "No session is in memory" in await page.value("document.body.innerText")
                await talk(at, "claude-sonnet-5-5", 10)
                await page.until("document.querySelectorAll('section').length === 1")
                await page.until("document.querySelector('details') !== null")
                await page.value("document.querySelector('details').open = true")
                await talk(at, HOSTILE, 1)
                await page.until("document.querySelectorAll('section').length === 2")
                seen = await page.value(SEEN)
                assert await page.value("document.querySelectorAll('details[open]').length") == 1, "it closed by itself"
                await page.screenshot(f"gateway-{width}")
        assert seen["width"] == width and seen["wide"] == [] and seen["loaded"] == 0
        assert seen["images"] == 0 and seen["title"] == "Perdure gateway" and HOSTILE in seen["text"]
        assert len(seen["bars"]) == 2 and all(0 < bar < width for bar in seen["bars"])
        assert "large result offloaded" in seen["text"] and "compacted" in seen["text"]
        assert "saved" in seen["text"] and "Remark" not in seen["text"] and "line of file" not in seen["text"]
        assert (seen["paper"] == "rgb(255, 255, 255)") is not is_dark
        assert page.complaints == [], "the policy stopped something, or a script failed"

    run()


@in_loop
async def test_each_tenant_sees_its_own_and_a_stranger_nothing(tmp_path: Path) -> None:
    """GW-4, SEC-7: with tenants the page asks for a key, and shows what the status endpoint shows to it."""
    tenants = {name: {"key_env": name.upper()} for name in ("alice", "bob")}
    environ = {"ALICE": "alice-key", "BOB": "bob-key"}
    async with fake(upstream()) as server, serving(tmp_path, server, environ=environ, tenants=tenants) as at:
        await talk(at, "model-of-alice", 1, key="alice-key")
        await talk(at, "model-of-bob", 1, key="bob-key")
        async with browser(tmp_path, f"{at.url}/perdure", width=1280) as page:
            assert "model-of" not in await page.value("document.documentElement.outerHTML")
            for key, expected in (("wrong", "No tenant has this key"), ("bob-key", "model-of-bob")):
                enters = f"document.querySelector('input').value = '{key}'; document.querySelector('button').click()"
                await page.value(enters)
                await page.until(f"document.body.innerText.includes('{expected}')")
            assert "alice" not in await page.value("document.documentElement.outerHTML")


@in_loop
async def test_a_page_whose_gateway_went_away_says_so(tmp_path: Path) -> None:
    """GW-4: what is shown then are its last words."""
    async with fake(upstream()) as server, serving(tmp_path, server) as at:  # noqa: SIM117 - the page needs its url
        async with browser(tmp_path, f"{at.url}/perdure", width=1280) as page:
            await page.value("window.fetch = () => Promise.reject(new Error('gone'))")
            await page.until('document.body.innerText.includes("doesn\'t answer")')
