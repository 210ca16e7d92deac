"""OPS-1: what the site is made from. Sphinx isn't needed here; `make docs` builds and checks the pages themselves."""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from types import ModuleType

import pytest

from perdure.cli.app import PANELS
from perdure.settings import Settings

pytestmark = [pytest.mark.house, pytest.mark.timeout(300)]  # every page is written once, commands and all

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site() -> Iterator[dict[str, ModuleType]]:
    """The modules of docs/site, as its programs import them."""
    folder = str(ROOT / "docs" / "site")
    sys.path.insert(0, folder)
    try:
        import links
        import pages
        import versions

        yield {"pages": pages, "links": links, "versions": versions}
    finally:
        sys.path.remove(folder)
        for name in ("pages", "links", "versions"):
            sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def staged(site: dict[str, ModuleType]) -> dict[str, str]:
    """The text of all pages."""
    found: dict[str, bytes] = site["pages"].stage()
    return {name: data.decode() for name, data in found.items() if name.endswith(".md")}


def test_every_public_name_has_an_entry_with_words(site: dict[str, ModuleType], staged: dict[str, str]) -> None:
    """OPS-1: the names of all public modules stand on their pages, and their docstrings say something."""
    pages = site["pages"]
    names = pages.public_names()
    assert {"perdure.Session", "perdure.sync.Agent", "perdure.core.Record", "perdure.events.CompactionDone"} <= set(
        names
    )
    silent = [name for name in names if not pages.words_of(*name.rpartition(".")[::2]).strip()]
    assert not silent, "write docstrings for " + ", ".join(silent)
    for name in names:
        origin, _, short = name.rpartition(".")
        page = staged[f"reference/library/{origin}.md"]
        assert re.search(rf"^\.\. [\w:]+ (?:{re.escape(origin)}\.)?{short}$", page, re.M), f"{name} has no entry"


def test_what_the_face_gives_back_is_told(site: dict[str, ModuleType], staged: dict[str, str]) -> None:
    """OPS-1: the types that methods of the face name, with words of their own."""
    told = site["pages"].told_types()
    assert {"perdure.agent.progress.RunResult", "perdure.ports.home.SessionInfo"} <= set(told)
    silent = [name for name in told if not site["pages"].words_of(*name.rpartition(".")[::2]).strip()]
    assert not silent, "write docstrings for " + ", ".join(silent)
    assert all(f".. autoclass:: {name}\n" in staged["reference/library/types.md"] for name in told)


def test_public_methods_have_docstrings(site: dict[str, ModuleType]) -> None:
    """OPS-1: what has none is left out of the reference; the methods of the port `Model` are told at the port."""
    from perdure.ports.session import Model

    of_the_port = {name for name in vars(Model) if not name.startswith("_")}
    silent = []
    for full in site["pages"].public_names():
        origin, _, name = full.rpartition(".")
        if site["pages"].module(origin) is None:
            (told,) = [
                one for one in ast.parse(site["pages"].source_of(origin)).body if getattr(one, "name", "") == name
            ]
            methods = [one for one in told.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
            bare = [one.name for one in methods if not one.name.startswith("_") and not ast.get_docstring(one)]
            silent += [f"{full}.{key}" for key in bare]
            continue
        owner = getattr(site["pages"].module(origin), name)
        if not inspect.isclass(owner):
            continue
        for key, value in vars(owner).items():
            function = getattr(value, "fget", None) or getattr(value, "__func__", value)
            is_told = inspect.isfunction(function) and not key.startswith("_")
            if is_told and not inspect.getdoc(function) and not (of_the_port <= set(dir(owner)) and key in of_the_port):
                silent.append(f"{full}.{key}")
    assert not silent, "write docstrings for " + ", ".join(silent)


def test_settings_and_commands_are_complete(staged: dict[str, str]) -> None:
    """OPS-1: each setting has a row, each command a heading, from what the program itself reads."""
    page = staged["reference/settings.md"]
    for one in fields(Settings):
        assert page.count(f"| `{one.name}` |") == 1, one.name
    assert re.search(r"\| `pins_tokens` \| .*; by default `4,000` \(\[RST-8\]\(/spec/\d\d-\w+\.md\)\) \|", page)
    headings = set(re.findall(r"^##+ (perdure.*)$", staged["reference/commands.md"], re.M))
    assert {f"perdure {name}" for names in PANELS.values() for name in names} <= headings
    assert "perdure memory show" in headings and "| `--dry-run` |" in staged["reference/commands.md"]


def test_every_page_is_in_the_navigation(staged: dict[str, str]) -> None:
    """OPS-1: from docs/README.md; what it doesn't list nobody comes to."""
    listed = {
        page
        for text in staged.values()
        for tree in re.findall(r"^```\{toctree\}\n(.*?)^```", text, re.M | re.S)
        for page in re.findall(r"</([^>]+)>$", tree, re.M)
    }
    orphans = [name for name, text in staged.items() if not text.startswith("---\norphan: true")]
    missing = sorted({name.removesuffix(".md") for name in orphans} - listed - {"index"})
    assert not missing, "docs/README.md has no line for " + ", ".join(missing)
    astray = sorted(listed - {name.removesuffix(".md") for name in staged})
    assert not astray, "these pages aren't there: " + ", ".join(astray)


def test_links_are_turned_where_they_leave_docs(site: dict[str, ModuleType], staged: dict[str, str]) -> None:
    """OPS-1: within docs/ they stay; the README's lose `docs/`; other files become pages. Code is left alone."""
    pages = site["pages"]
    outside: set[Path] = set()
    page = ROOT / "docs" / "use" / "operate.md"
    text = "[a](shared.md#x) [b](../../deploy/Containerfile) [c](../../CHANGELOG.md) [d](../adr/) `[e](../../x)` [f](https://g.h)"
    assert pages.turned(text, page, outside) == (
        "[a](shared.md#x) [b](../files/deploy/Containerfile.md) [c](../changelog.md) [d](../adr/index.md) "
        "`[e](../../x)` [f](https://g.h)"
    )
    assert outside == {ROOT / "deploy" / "Containerfile"}
    text = '[a](docs/use/chat.md) <img src="docs/README.md">'
    assert pages.turned(text, ROOT / "README.md", set()) == '[a](use/chat.md) <img src="contents.md">'
    assert "files/deploy/Containerfile.md" in staged and "FROM " in staged["files/deploy/Containerfile.md"]


def test_the_check_sees_what_is_broken(site: dict[str, ModuleType], tmp_path: Path) -> None:
    """OPS-1: a missing page, heading or picture, and a script from elsewhere; nothing of a whole page."""
    (tmp_path / "whole.html").write_text('<h1 id="one">1</h1><a href="#one">1</a><a href="https://a.b/c">2</a>')
    checked = site["links"].check(tmp_path)
    assert (checked.pages, checked.links, checked.wrong) == (1, 2, [])
    (tmp_path / "broken.html").write_text(
        '<a href="whole.html#two">1</a><a href="none.html">2</a><img src="none.png"><a href="../secret.html">3</a>'
        '<script src="https://cdn.example/x.js"></script><a href="whole.html#one">4</a>'
    )
    (tmp_path.parent / "secret.html").write_text("")
    wrong = site["links"].check(tmp_path).wrong
    assert len(wrong) == 5 and all(line.startswith("broken.html: ") for line in wrong)
    assert "broken.html: whole.html#two: there is no such heading" in wrong
    assert "broken.html: loads https://cdn.example/x.js, which is another place's" in wrong


def test_a_second_version_keeps_the_first(site: dict[str, ModuleType], tmp_path: Path) -> None:
    """OPS-1: the list of versions, `stable` as a copy of the newest release, and a root that leads there."""
    publish = site["versions"].publish

    def build(version: str) -> list[dict[str, object]]:
        (tmp_path / version).mkdir()
        (tmp_path / version / "index.html").write_text(f"this is {version}")
        publish(tmp_path, "/perdure/")
        listed: list[dict[str, object]] = json.loads((tmp_path / "switcher.json").read_text())
        return listed

    assert [one["name"] for one in build("dev")] == ["dev"] and "dev/index.html" in (
        tmp_path / "index.html"
    ).read_text()
    build("0.9.0")
    build("0.10.0rc1")
    listed = build("0.10.0")
    assert [one["name"] for one in listed] == ["dev", "0.10.0 (stable)", "0.10.0rc1", "0.9.0"]
    assert [one["url"] for one in listed][:2] == ["/perdure/dev/", "/perdure/stable/"]
    assert [one["version"] for one in listed if one["preferred"]] == ["0.10.0"]
    assert (tmp_path / "stable" / "index.html").read_text() == "this is 0.10.0"
    assert "stable/index.html" in (tmp_path / "index.html").read_text()
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {
        "dev", "stable", "0.9.0", "0.10.0rc1", "0.10.0",
    }  # fmt: skip
