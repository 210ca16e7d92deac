"""OPS-1: the built documentation in a real browser, on a desk and on a phone. `make docs` runs these."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.browsers import browser, needs_chromium
from tests.gateways import in_loop

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "build" / "site"
BUILT = sorted(path.parent.name for path in SITE.glob("*/searchindex.js")) if SITE.is_dir() else []
pytestmark = [
    pytest.mark.browser,
    pytest.mark.nightly,
    needs_chromium,
    pytest.mark.skipif(not BUILT, reason="needs the built site: make docs"),
    pytest.mark.timeout(900),
]
SEEN = """({
  width: innerWidth, page: document.documentElement.scrollWidth,
  wide: [...document.querySelectorAll("main *")].filter(e => e.getBoundingClientRect().right > innerWidth + 1 &&
    ![...(function* (n) { while ((n = n.parentElement)) yield n })(e)]
      .some(n => getComputedStyle(n).overflowX !== "visible"))
    .map(e => e.tagName + "." + e.className).slice(0, 5),
  loaded: performance.getEntriesByType("resource").map(e => e.name).filter(e => !e.startsWith(location.origin)),
})"""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads it."""


@pytest.fixture
def url() -> Iterator[str]:
    """The site, as any server of plain files gives it."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(SITE))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


@pytest.mark.parametrize("is_dark", [False, True])
def test_the_site_opens_and_finds(tmp_path: Path, url: str, is_dark: bool) -> None:
    """OPS-1: the root leads to a version, the switcher lists those that are built, and the search finds a word."""

    @in_loop
    async def run() -> None:
        async with browser(tmp_path, url, width=1400, is_dark=is_dark) as page:
            await page.until("document.querySelectorAll('.version-switcher__menu a').length > 0")
            listed = await page.value("[...document.querySelectorAll('.version-switcher__menu a')].map(a => a.href)")
            there = {f"{url}{name}/index.html" for name in BUILT}
            assert set(listed) <= there and listed, (listed, there)
            await page.screenshot(f"site-front-{'dark' if is_dark else 'light'}")
            place = await page.value("location.href")
            await page.do("Page.navigate", url=place.replace("index.html", "search.html?q=compaction"))
            await page.until("document.querySelectorAll('ul.search li a').length > 5")
            found = await page.value("[...document.querySelectorAll('ul.search li a')].map(a => a.textContent)")
            assert any("ompaction" in title for title in found), found
            await page.screenshot(f"site-search-{'dark' if is_dark else 'light'}")
            paper = await page.value("getComputedStyle(document.body).backgroundColor")
            assert (paper == "rgb(255, 255, 255)") is not is_dark
        assert page.complaints == []

    run()


@in_loop
async def test_no_page_is_wider_than_a_phone(tmp_path: Path, url: str) -> None:
    """OPS-1: at 390 pixels, tables and code scroll in themselves; no page loads anything from elsewhere."""
    version = SITE / BUILT[-1]
    wrong: list[str] = []
    async with browser(tmp_path, url, width=390) as page:
        for path in sorted(version.rglob("*.html")):
            name = path.relative_to(SITE).as_posix()
            await page.do("Page.navigate", url=f"{url}{name}")
            await page.until(f"document.readyState === 'complete' && location.href.endsWith('{name}')")
            seen = await page.value(SEEN)
            if seen["page"] > seen["width"] or seen["wide"] or seen["loaded"]:
                wrong.append(f"{name}: {seen['page']} pixels wide, {seen['wide']} {seen['loaded']}")
    assert not wrong, "\n".join(wrong)
