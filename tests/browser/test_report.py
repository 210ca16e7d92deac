"""CLI-4: the report in a real browser, on a desk and on a phone. They need Chromium."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest
from tests.browsers import CHROMIUM, FLAGS, needs_chromium
from tests.unit.report.test_timeline import about, busy, compacted, told

from perdure.lab.report.page import Price, page

pytestmark = [pytest.mark.browser, pytest.mark.nightly, needs_chromium]

# Runs in the page once it stands: what a person would see, written where the dump shows it.
PROBE = """<script>
const chart = document.getElementById("chart"), before = document.getElementById("told").textContent;
const box = chart.querySelector("svg").getBoundingClientRect();
chart.dispatchEvent(new PointerEvent("pointermove", {clientX: box.left + 1, clientY: box.top + 5}));
const first = document.getElementById("told").textContent;
chart.dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowRight"}));
document.querySelectorAll("details").forEach(d => d.open = true);
const wide = [...document.querySelectorAll("body *")].filter(e => !e.closest(".scroll, pre, svg") &&
  e.getBoundingClientRect().right > window.innerWidth + 1).map(e => e.tagName + "." + e.className);
parent.postMessage(JSON.stringify({
  before, first, second: document.getElementById("told").textContent, width: window.innerWidth, wide,
  height: box.height, shapes: chart.querySelectorAll("polygon").length,
  sideways: [...document.querySelectorAll(".scroll")].filter(e => e.scrollWidth > e.clientWidth + 1).length,
  left: [...document.querySelectorAll(".mark, .level")].filter(e => e.getBoundingClientRect().left < 0).length,
  loaded: performance.getEntriesByType("resource").length,
  narrow: Math.min(...[...document.querySelectorAll("td")].filter(e => e.textContent.length > 8)
    .map(e => e.getBoundingClientRect().width))
}), "*");
</script>"""


# A window is never as narrow as a phone, a frame is.
FRAME = """<!doctype html><body><script>
addEventListener("message", (told) => document.body.setAttribute("data-seen", told.data));
</script><iframe src="report.html" style="border:0;width:{width}px;height:1400px"></iframe>"""


def seen(path: Path, *more: str) -> str:
    profile = f"--user-data-dir={path.parent / 'profile'}"
    command = [str(CHROMIUM), *FLAGS, "--hide-scrollbars", profile, "--window-size=1400,1500", *more]
    environ = {**os.environ, "HOME": str(path.parent)}
    command.append(path.as_uri())
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=True, env=environ).stdout


PRICES = (Price("paid", 1_234_567, 12_345_678, 987_654_321, 1_234_567, 12_345.67), Price("bare", 1, 2, 3, 4, None))


@pytest.mark.parametrize("width", [1280, 390])
def test_a_report_is_readable_and_answers_the_pointer(tmp_path: Path, width: int) -> None:
    """No sideways scrolling at either width, columns wide enough, drawn areas, a line for the turn pointed at."""
    seen_turns = told(compacted(busy(30)))
    seen_turns.turns = [replace(turn, usd=37.5 * turn.number) for turn in seen_turns.turns]
    html = page(about(title="A busy session", prices=PRICES, source="/a/long/path/" + "x" * 90), seen_turns)
    (tmp_path / "report.html").write_text(html.replace("</body>", f"{PROBE}</body>"))
    frame = tmp_path / "frame.html"
    frame.write_text(FRAME.format(width=width))
    dumped = re.search(r'data-seen="([^"]*)"', seen(frame, "--dump-dom", "--virtual-time-budget=5000"))
    assert dumped is not None, "the page's own script did not run to its end"
    found = json.loads(unescape(dumped[1]))
    assert found["width"] == width and found["wide"] == [] and found["narrow"] >= 60
    assert found["sideways"] == 0 and found["left"] == 0, "no table has to be scrolled, no mark leaves the page"
    assert found["loaded"] == 0 and found["shapes"] >= 3 and found["height"] >= 200
    assert found["first"].startswith("turn 1:") and found["second"].startswith("turn 2:")
    assert found["before"].startswith("turn 31:")


def test_a_picture_can_be_taken(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(page(about(), told(compacted(busy(10)))))
    seen(path, f"--screenshot={tmp_path / 'desk.png'}")
    assert (tmp_path / "desk.png").read_bytes()[:4] == b"\x89PNG"
