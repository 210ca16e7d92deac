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
from subprocess import run
from types import ModuleType
from typing import Any

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
    assert "broken.html: names https://cdn.example/x.js, which is another place's" in wrong


@pytest.mark.parametrize(
    "text",
    [
        '<link rel="preconnect" href="https://a.b">', '<video src="https://a.b/v.mp4"></video>',
        '<video poster="//a.b/v.png"></video>', '<object data="https://a.b/x.svg"></object>',
        '<embed src="http://a.b/x">', '<link rel="shortcut icon" href="https://a.b/i">', '<img src="HTTPS://A.B/x">',
        '<img src="/\\a.b/x">', '<img src=" ht\ntps://a.b/x">', '<img srcset="x.png 1x, https://a.b/x 2x">',
        '<a href="#" ping="https://a.b">x</a>', '<a href="#" data-to="https://a.b">x</a>',
        '<meta http-equiv="refresh" content="0; url=https://a.b">', '<form action="//a.b"></form>',
        '<p style="background: url(https://a.b/x)">', '<style>@import "//a.b/x.css";</style>',
        "<style>p { background: url('HTTP://a.b/x') }</style>", '<script>fetch("https://a.b/x")</script>',
        "<script>new Image().src = '//a.b/x'</script>", '<iframe srcdoc="<img src=https://a.b/x>"></iframe>',
        '<iframe src="data:text/html,x"></iframe>', '<base href="https://a.b/">', '<use xlink:href="//a.b/x#y"/>',
    ],
)  # fmt: skip
def test_only_a_link_that_is_followed_names_another_place(
    site: dict[str, ModuleType], tmp_path: Path, text: str
) -> None:
    """OPS-1: whatever a browser would load by itself is wrong, by what may be and not by a list of what loads."""
    for name in ("x.png", "index.html"):
        (tmp_path / name).write_text("")
    (tmp_path / "page.html").write_text(text)
    wrong = site["links"].check(tmp_path).wrong
    assert any(line.startswith("page.html: ") and line.endswith("which is another place's") for line in wrong), wrong


@pytest.mark.parametrize(
    ("name", "text", "is_wrong"),
    [
        ("a.css", "@import url(//a.b/x.css);", True), ("a.css", "p { background: url(https://a.b/x) }", True),
        ("a.css", 'p { background: url("data:image/svg+xml,%3Csvg xmlns=\'http://www.w3.org/2000/svg\'%3E") }', False),
        ("a.css", "p { background: url(none.png) }", True), ("a.js", 'import("https://a.b/x.js")', True),
        ("a.js", "const to = `wss://a.b`", True), ("a.js", 'say("see https://a.b/x"); // https://a.b', False),
        ("a.js", 'document.createElementNS("http://www.w3.org/2000/svg", "rect")', False),
        ("a.svg", '<svg xmlns="http://www.w3.org/2000/svg"><image href="https://a.b/x"/></svg>', True),
        ("a.svg", '<svg xmlns="http://www.w3.org/2000/svg"><a href="https://a.b/x">x</a></svg>', False),
        ("a.html", '<img alt="//a.b" src="data:image/png;base64,x">', False),
        ("a.html", '<a href="HTTPS://a.b" title="https://a.b">x</a>', False),
    ],
)  # fmt: skip
def test_styles_scripts_and_pictures_are_looked_at(
    site: dict[str, ModuleType], tmp_path: Path, name: str, text: str, is_wrong: bool
) -> None:
    """OPS-1: and what a page says or shows of another place is no fault."""
    (tmp_path / name).write_text(text)
    assert bool(site["links"].check(tmp_path).wrong) == is_wrong


def test_only_what_git_tracks_is_staged(site: dict[str, ModuleType], tmp_path: Path, monkeypatch: Any) -> None:
    """OPS-1: no draft of an editor, no file that a link leads to, no secret beside a file that is linked."""
    pages, docs = site["pages"], tmp_path / "docs"
    kept = {
        "README.md": "# Top\n[1](docs/README.md) [2](deploy/kubernetes/)\n",
        "docs/README.md": "# Docs\n", "docs/adr/README.md": "# All\n", "docs/use/a.md": "# A\n[x](b.txt) [y](s.txt)\n",
        "docs/use/b.txt": "b", "docs/site/static/site.css": "p {}", "deploy/kubernetes/a.yaml": "a: 1",
    }  # fmt: skip
    left = {
        "docs/.draft.md.swp": "draft", "docs/use/new.md": "# New", "docs/use/s.txt": "s",
        "docs/site/static/more.css": "p {}", "deploy/kubernetes/my-secret.local.yaml": "key: k", "NOTES.md": "# N",
    }  # fmt: skip
    for name, text in (kept | left).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (docs / "use" / "link.txt").symlink_to("/etc/hostname")
    run(["git", "init", "-q"], cwd=tmp_path, check=True)
    run(["git", "add", "docs/use/link.txt", *kept], cwd=tmp_path, check=True)
    stand_in = {"ROOT": tmp_path, "DOCS": docs, "SITE": docs / "site", "written": dict, "decisions": list}
    for name, value in stand_in.items():
        monkeypatch.setattr(pages, name, value)
    monkeypatch.setattr(pages, "sections", lambda: [pages.Section("Decisions", "adr", "", [])])
    pages.tracked.cache_clear()
    try:
        found = {path.relative_to(tmp_path).as_posix() for path in pages.tracked()}
        assert found == set(kept)
        assert set(pages.static()) == {"site.css"}
        assert set(pages.stage()) == {
            "index.md", "contents.md", "adr/index.md", "use/a.md", "use/b.txt",
            "files/deploy/kubernetes/index.md", "files/deploy/kubernetes/a.yaml.md",
        }  # fmt: skip
        assert "my-secret" not in pages.stage()["files/deploy/kubernetes/index.md"].decode()
    finally:
        pages.tracked.cache_clear()


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
