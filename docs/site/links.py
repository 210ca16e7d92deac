"""A check of built pages: all that they link to and load is there, and nothing is loaded from elsewhere."""

from __future__ import annotations

import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

LOADED = {("script", "src"), ("img", "src"), ("img", "srcset"), ("source", "srcset"), ("iframe", "src")}


class Checked(NamedTuple):
    pages: int
    links: int
    wrong: list[str]


class Page(HTMLParser):
    """The names that a page can be linked to by, and what it refers to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = {name: value for name, value in attrs if value}
        self.anchors |= {value for name, value in told.items() if name == "id" or (tag == "a" and name == "name")}
        for name, value in told.items():
            is_style = tag == "link" and told.get("rel") in ("stylesheet", "preload", "icon", "modulepreload")
            if (tag, name) in LOADED or (is_style and name == "href"):
                self.loaded += [part.split()[0] for part in value.split(",")] if name == "srcset" else [value]
            elif name == "href" and tag in ("a", "link"):
                self.links.append(value)


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
    for path in pages:
        page = page_at(path)
        for target in page.loaded:
            if re.match(r"(https?:)?//", target):
                wrong.append(f"{path.relative_to(top)}: loads {target}, which is another place's")
        for target in [*page.loaded, *page.links]:
            links += 1
            if target not in ("#", "") and (why := wrong_with(path, target, top)):
                wrong.append(f"{path.relative_to(top)}: {target}: {why}")
    return Checked(len(pages), links, wrong)
