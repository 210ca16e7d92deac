"""OPS-1: the front page and the pages of figures say what is true of this version."""

from __future__ import annotations

import asyncio
import re
import shlex
from pathlib import Path

import pytest
from bench import _context_picture as context
from bench import _recording as recording
from bench import _report_picture as report
from bench import pictures
from bench._front_table import front_table
from tests.commands import command

pytestmark = pytest.mark.house

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
MEASURED = ROOT / "docs" / "measured"
PICTURES = ROOT / "docs" / "pictures"
MOST_BYTES = {"context.svg": 40_000, "terminal.svg": 300_000, "report.png": 150_000}
ANEW = "make it anew with `make pictures`"


def test_the_front_page_is_short() -> None:
    """OPS-1: at most 900 words, code and tables counted in."""
    assert len(README.split()) <= 900


def test_the_front_page_has_its_pictures() -> None:
    """OPS-1: each with a text for those who don't see it, and none larger than it may be."""
    shown = dict(re.findall(r"!\[([^\]]+)\]\(docs/pictures/([\w.]+)\)", README))
    assert set(shown.values()) == set(MOST_BYTES) == {path.name for path in PICTURES.iterdir()}
    assert all(len(words.split()) > 10 for words in shown)
    for name, most in MOST_BYTES.items():
        assert (PICTURES / name).stat().st_size <= most, f"{name} is too large"
    for name, what in (("context.svg", "prefers-color-scheme"), ("terminal.svg", "prefers-reduced-motion")):
        drawn = (PICTURES / name).read_text()
        assert what in drawn and not re.search(r"<script|<image|href=|url\(|@import", drawn)


@pytest.mark.nightly
def test_the_picture_shows_what_this_version_does() -> None:
    """OPS-1: the session behind the picture, run again, has the same counts and about the same sizes."""
    shown = context.Run.read((PICTURES / "context.svg").read_text())
    differs = shown.differs_from(asyncio.run(context.run()))
    assert not differs, f"docs/pictures/context.svg: {differs}; {ANEW}"
    assert shown.found == shown.texts > 100 and not shown.refused and max(shown.sent) < context.WINDOW < max(shown.said)


def test_the_recording_shows_what_this_version_prints(tmp_path: Path) -> None:
    """OPS-1: each command of the recording, run again, prints the words that stand in it."""
    shown = " ".join(recording.said_in((PICTURES / "terminal.svg").read_text()))
    pictures.write_logs(tmp_path)
    ids: list[str] = []
    for typed, _ in pictures.COMMANDS:
        words = shlex.split(typed.format(*ids) if ids else typed)
        done = command(*words[1:], cwd=tmp_path, env=pictures.surroundings(tmp_path))
        missing = [line for line in map(pictures.plain, done.stdout.splitlines()) if line not in shown]
        assert done.returncode == 0 and not missing, f"docs/pictures/terminal.svg lacks {missing}; {ANEW}"
        ids = [*(pictures.IDS.findall(done.stdout) or [ids])[-1]]


def test_the_screenshot_is_of_this_version() -> None:
    """OPS-1: the page of a session looks as it did when its picture was taken."""
    taken = report.look_in((PICTURES / "report.png").read_bytes())
    assert taken == report.look(), f"docs/pictures/report.png: the page was changed; {ANEW} (needs Chromium)"


def test_the_table_is_what_was_measured() -> None:
    """OPS-1: the table against peers has the figures of docs/measured/peers.md, chosen by a rule."""
    assert front_table((MEASURED / "peers.md").read_text()) in README, "put there what bench/peers.py --front prints"


def test_what_misses_its_goal_stands_on_the_page_of_those() -> None:
    """OPS-1: a figure that is marked as not met is gathered in docs/measured/unmet.md, with the same command."""
    rows = [
        row for row in (MEASURED / "figures.md").read_text().splitlines() if row[:1] == "|" and "**not met**" in row
    ]
    commands = {command for row in rows for command in re.findall(r"`([^`]+)`", row.rsplit("|", 2)[1])}
    assert len(commands) >= 6, "figures.md says of fewer goals than before that they aren't met: look at this test"
    unmet = (MEASURED / "unmet.md").read_text()
    assert not [command for command in commands if f"`{command}`" not in unmet]
