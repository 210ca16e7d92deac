"""The versions of the site side by side: what their list says, what `stable` is, where the root leads (OPS-1)."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

DEV, STABLE = "dev", "stable"
RELEASE = re.compile(r"\d+(?:\.\d+)*(?:(?:a|b|rc)\d+)?$")
REDIRECT = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Perdure</title><link rel="icon" href="data:,">
<meta http-equiv="refresh" content="0; url={to}/index.html"><link rel="canonical" href="{to}/index.html">
</head><body><p>The documentation is <a href="{to}/index.html">here</a>.</p></body></html>
"""


def order(version: str) -> tuple[list[int], int, list[int]]:
    """How versions are sorted: a release stands above its candidates."""
    head, pre = re.match(r"([\d.]*)(.*)", version).groups()  # type: ignore[union-attr]
    numbers = [int(part) for part in head.split(".") if part]
    return numbers, 0 if pre else 1, [ord(pre[0]), *map(int, re.findall(r"\d+", pre))] if pre else []


def versions(site: Path) -> list[str]:
    """The versions that are built, the newest release first; `dev` before them."""
    there = [path.name for path in site.iterdir() if (path / "index.html").is_file()] if site.is_dir() else []
    releases = sorted((name for name in there if RELEASE.match(name)), key=order, reverse=True)
    return [*([DEV] if DEV in there else []), *releases]


def publish(site: Path, at: str = "/") -> list[str]:
    """Write what ties the versions together; the pages of other versions stay as they are.

    `at` is where the folder will stand, as a URL or a path of one: the switcher's links begin with it.
    """
    found = versions(site)
    whole = [name for name in found if name != DEV and not re.search(r"[a-z]", name)]
    newest = whole[0] if whole else None
    listed = []
    for name in found:
        place = STABLE if name == newest else name
        title = f"{name} (stable)" if name == newest else name
        listed.append(
            {"name": title, "version": name, "url": f"{at.rstrip('/')}/{place}/", "preferred": name == newest}
        )
    (site / "switcher.json").write_text(json.dumps(listed, indent=2) + "\n")
    if newest is not None:
        shutil.rmtree(site / STABLE, ignore_errors=True)
        shutil.copytree(site / newest, site / STABLE)  # a link would not outlive every way of uploading a folder
    if found:
        (site / "index.html").write_text(REDIRECT.format(to=STABLE if newest else found[0]))
    return found
