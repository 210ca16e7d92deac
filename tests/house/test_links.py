"""Every relative link in the README, the changelog and the documentation leads to a file, and to a heading in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.house

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
ROOT_PAGES = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")]
PAGES = [*ROOT_PAGES, *sorted(DOCS.rglob("*.md"))]
SECTIONS = ("start", "use", "how", "measured", "reference", "contributing", "spec", "adr")
CODE = re.compile(r"^ *```.*?^ *```\s*$|`[^`\n]*`", re.M | re.S)
LINK = re.compile(r"\]\(([^()\s]*(?:\([^()\s]*\)[^()\s]*)*)\)")
HEADING = re.compile(r"^#+ +(.*?) *#* *$", re.M)
FENCED = re.compile(r"^ *```.*?^ *```\s*$", re.M | re.S)


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def links(text: str) -> list[str]:
    """The targets of a page's links, but for those in code."""
    return [match[1] for match in LINK.finditer(CODE.sub("", text))]


def headings(text: str) -> set[str]:
    """The names by which a page's headings are linked to, as GitHub makes them."""
    found: set[str] = set()
    for match in HEADING.finditer(FENCED.sub("", text)):
        title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", match[1])  # of a link, its text
        name = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        more = 0
        while (unique := f"{name}-{more}" if more else name) in found:
            more += 1
        found.add(unique)
    return found


def broken(page: Path, target: str) -> str | None:
    """What is wrong with a link; None when it leads somewhere."""
    if not target:
        return "leads nowhere"
    if re.match(r"[a-z][a-z0-9+.-]*:", target):
        return None  # another place; no test reaches for the network
    name, _, heading = target.partition("#")
    there = (page.parent / name).resolve() if name else page
    if not there.is_relative_to(ROOT) or not there.exists():
        return "there is no such file"
    if heading and (there.suffix != ".md" or heading not in headings(there.read_text())):
        return "there is no such heading"
    return None


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_links_lead_somewhere(page: Path) -> None:
    wrong = [f"{target}: {why}" for target in links(page.read_text()) if (why := broken(page, target))]
    assert not wrong, f"{relative(page)} links to " + ", ".join(wrong)


def test_a_broken_link_is_seen() -> None:
    """The check itself: files and headings that aren't there are named, those in code are left alone."""
    page = DOCS / "README.md"
    assert broken(page, "nothing.md") == "there is no such file"
    assert broken(page, "README.md#nothing") == broken(page, "#nothing") == "there is no such heading"
    assert broken(page, "../../outside.md") == "there is no such file"
    assert broken(page, "README.md") is None and broken(page, "https://example.com/a") is None
    assert links("[a](b.md#c) `[d](e.md)` ![f](g_(h).svg)\n```\n[i](j.md)\n```\n") == ["b.md#c", "g_(h).svg"]
    assert headings("# A `b` (C-1)\n## Twice\n```\n# no\n```\n## Twice\n") == {"a-b-c-1", "twice", "twice-1"}


def test_every_page_is_in_a_section_and_in_the_index() -> None:
    """A page lies in a section's folder, and docs/README.md has a line for it."""
    astray = {relative(page) for page in DOCS.rglob("*.md") if page.parent.name not in SECTIONS}
    assert astray == {"docs/README.md", "docs/scale.md"}, (
        "put them into a section: docs/start, docs/use, docs/how, docs/measured or docs/reference"
    )
    index = {(DOCS / target.partition("#")[0]).resolve() for target in links((DOCS / "README.md").read_text())}
    pages = {page for section in SECTIONS[:6] for page in (DOCS / section).glob("*.md")}
    missing = sorted(relative(page) for page in pages - index)
    assert not missing, "docs/README.md has no line for " + ", ".join(missing)
