"""A check of built pages: all that they link to and load is there, and only links that are followed lead elsewhere.

There is no list of what a browser loads by itself. Only `href` of `a` may name another place, and so may text that is
shown (`alt`, `title`) or names an XML namespace; it is wrong in any other attribute, a style or the texts of a script.
"""

from __future__ import annotations

import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

FOLLOWED = ("a", "href")
SHOWN = ("alt", "title", "aria-label", "xmlns")  # an attribute that is read, or says what names mean
ADDRESSES = {"href", "src", "srcset", "imagesrcset", "data", "poster", "action", "xlink:href"}
NAMESPACES = "http://www.w3.org/"  # the names of SVG and XLink in scripts
# An address of another place, as browsers read it: any scheme, or none, and slashes of either kind.
HOST = r"(?:(?:https?|wss?|ftps?):|(?:[a-z][a-z0-9+.-]*:)?[/\\]{2}[^\s/\\])"
ELSEWHERE = re.compile(rf"(?:^|[\s\"'(,;=]){HOST}", re.IGNORECASE)
STYLED = re.compile(r"""url\(\s*(?:"([^"]*)"|'([^']*)'|([^)"']*))|@import\s+["']([^"']*)""", re.IGNORECASE)
# A text of a script that is an address of another place; a slash the other way round is written twice there.
SAID = re.compile(
    r"""["'`]\s*((?:(?:https?|wss?|ftps?):|(?:[a-z][a-z0-9+.-]*:)?(?://|\\{4})[\w\[])[^"'`\s]*)""", re.IGNORECASE
)
HELD = re.compile(r"data:(?:image/|font/|,)", re.IGNORECASE)  # what stands in the page itself, and loads nothing


class Checked(NamedTuple):
    pages: int
    links: int
    wrong: list[str]


class Page(HTMLParser):
    """The names that a page can be linked to by, what it refers to, and what of another place it would load."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.elsewhere: list[str] = []
        self._inside = ""
        self.feed(path.read_text(encoding="utf-8"))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside = tag if tag in ("style", "script") else ""
        for name, given in attrs:
            value = re.sub(r"[\t\r\n]", "", given or "").strip()  # as browsers do
            if name == "id" or (tag == "a" and name == "name"):
                self.anchors.add(value)
            elif (tag, name) == FOLLOWED:
                self.links.append(value)
            elif name == "style":
                self._styled(value)
            elif name.partition(":")[0] not in SHOWN and not HELD.match(value):
                is_wrong = ELSEWHERE.search(value) or value.lower().startswith("data:")
                self.elsewhere += [value] if is_wrong else []
                if name in ADDRESSES:
                    several = value.split(",") if name.endswith("srcset") else [value]
                    self.links += [part.split()[0] for part in several if part.split()]

    def handle_data(self, data: str) -> None:
        if self._inside == "style":
            self._styled(data)
        elif self._inside == "script":
            self.elsewhere += elsewhere_of_script(data)

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def _styled(self, text: str) -> None:
        self.links += addresses_of_style(text)
        self.elsewhere += [one for one in addresses_of_style(text) if ELSEWHERE.search(one)]


def addresses_of_style(text: str) -> list[str]:
    """What a style loads, but for what it holds itself."""
    found = ("".join(match.groups("")).strip() for match in STYLED.finditer(text))
    return [one for one in found if one and not HELD.match(one)]


def elsewhere_of_script(text: str) -> list[str]:
    """The addresses of other places among the texts of a script: whatever it does with them."""
    return [one for one in SAID.findall(text) if not one.startswith(NAMESPACES)]


@cache
def page_at(path: Path) -> Page:
    return Page(path)


def wrong_with(path: Path, target: str, top: Path) -> str | None:
    """What is wrong with a target of a page; None when it leads somewhere."""
    parts = urlsplit(target)
    if parts.scheme in ("http", "https", "mailto", "data") or parts.netloc:
        return None
    name = unquote(parts.path)
    there = (path.parent / name).resolve() if name else path
    if there.is_dir():
        there /= "index.html"
    if not there.is_relative_to(top) or not there.is_file():
        return "there is no such page"
    if parts.fragment and there.suffix == ".html" and unquote(parts.fragment) not in page_at(there).anchors:
        return "there is no such heading"
    return None


def check(site: Path) -> Checked:
    """Look at all pages below a folder. A link to what is outside of it is wrong: each version stands for itself."""
    top = site.resolve()
    pages = sorted(top.rglob("*.html"))
    wrong, links = [], 0
    for path in (*pages, *sorted(top.rglob("*.svg")), *sorted(top.rglob("*.css")), *sorted(top.rglob("*.js"))):
        if path.suffix == ".js":
            targets, elsewhere = list[str](), elsewhere_of_script(path.read_text(encoding="utf-8"))
        elif path.suffix == ".css":
            targets = addresses_of_style(path.read_text(encoding="utf-8"))
            elsewhere = [one for one in targets if ELSEWHERE.search(one)]
        else:
            targets, elsewhere = page_at(path).links, page_at(path).elsewhere
        wrong += [f"{path.relative_to(top)}: names {one}, which is another place's" for one in elsewhere]
        for target in targets:
            links += 1
            if target not in ("#", "") and (why := wrong_with(path, target, top)):
                wrong.append(f"{path.relative_to(top)}: {target}: {why}")
    return Checked(len(pages), links, wrong)
