"""GW-4: the gateway's live page in a real browser, on a desk and on a phone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.browsers import browser, needs_chromium
from tests.gateways import Running, fake, in_loop, serving

from perdure.testing import FakeUpstream, ModelRules, say, tool_use

pytestmark = [pytest.mark.browser, pytest.mark.nightly, needs_chromium]
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
                assert "gateway/page.key" in await page.value("document.body.innerText")
                key = (tmp_path / "gateway" / "page.key").read_text().strip()
                enters = f"document.querySelector('input').value = '{key}'; document.querySelector('button').click()"
                await page.value(enters)
                await page.until("document.body.innerText.includes('No session is in memory')")
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
        assert "saved" in seen["text"] and "line of file" not in seen["text"]
        assert "Look at 0." in seen["text"] and "Look at 1." not in seen["text"], (
            "its title, and no more of what was said"
        )
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
