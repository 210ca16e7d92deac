"""A browser for tests: Chromium without a window, spoken to over its own protocol."""

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

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_chromium = pytest.mark.skipif(not CHROMIUM, reason="needs Chromium (Debian: apt-get install chromium)")
# No service of the browser's own may reach for the network.
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip


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
    command = [str(CHROMIUM), *FLAGS, "--remote-debugging-port=0", f"--user-data-dir={home / 'profile'}", "about:blank"]
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
