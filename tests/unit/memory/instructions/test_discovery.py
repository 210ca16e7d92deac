"""Which instruction files load, in which order, and why (INS-1 to INS-5)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.folders import PLACES, Table

from perdure.memory.instructions import (
    HOPS,
    MAX_FILES,
    POLICY,
    LoadedInstructions,
    fit_files,
    lexical,
    load_at_start,
    load_for_paths,
    reload_files,
)

pytestmark = pytest.mark.unit


def paths(gathered: LoadedInstructions) -> list[str]:
    return [file.path for file in gathered.files]


def skipped(gathered: LoadedInstructions) -> dict[str, str]:
    return {one.path: one.code for one in gathered.skipped}


def test_scopes_in_loading_order() -> None:
    """INS-1, INS-2: managed, user and its rules, from the root down with rules and local files beside each."""
    places = replace(PLACES, cwd="/code/app/sub", policy="Policy.")
    order = [
        POLICY,
        "/etc/CLAUDE.md",
        "/home/me/.claude/CLAUDE.md",
        "/home/me/.claude/rules/a.md",
        "/home/me/.claude/rules/deep/b.md",
        "/CLAUDE.md",
        "/code/CLAUDE.md",
        "/code/app/CLAUDE.md",
        "/code/app/.claude/CLAUDE.md",
        "/code/app/.claude/rules/r.md",
        "/code/app/CLAUDE.local.md",
        "/code/app/sub/CLAUDE.md",
    ]
    table = Table({path: f"text of {path}" for path in reversed(order[1:])})
    found = load_at_start(places, table)
    assert paths(found) == order
    scopes = [file.scope for file in found.files]
    assert scopes[:5] == ["managed", "managed", "user", "user", "user"] and scopes[-2] == "local"
    assert paths(load_at_start(replace(places, local=False), table)) == [p for p in order if "local" not in p]


def test_agents_files_when_wanted() -> None:
    table = Table({"/code/app/AGENTS.md": "a"}, links={"/code/app/CLAUDE.md": "/code/app/AGENTS.md"})
    assert paths(load_at_start(replace(PLACES, agents=True), table)) == ["/code/app/CLAUDE.md"]
    del table.links["/code/app/CLAUDE.md"]
    assert paths(load_at_start(PLACES, table)) == []
    assert paths(load_at_start(replace(PLACES, agents=True), table)) == ["/code/app/AGENTS.md"]


def test_imports_four_hops_and_cycles() -> None:
    """INS-3: relative to the file that says so, absolute and `~`; four hops; cycles cut."""
    table = Table({"/code/app/CLAUDE.md": "@d/0.md @/code/app/abs.md", "/code/app/abs.md": "abs"})
    table.texts |= {f"/code/app/d/{n}.md": f"{n} @{n + 1}.md" for n in range(6)}
    found = load_at_start(PLACES, table)
    assert paths(found) == ["/code/app/CLAUDE.md", *(f"/code/app/d/{n}.md" for n in range(HOPS)), "/code/app/abs.md"]
    assert skipped(found) == {"/code/app/d/4.md": "depth"}
    assert found.files[1].parent == "/code/app/CLAUDE.md" and found.files[1].why == "import"
    table = Table({"/code/app/CLAUDE.md": "a @b.md", "/code/app/b.md": "b @CLAUDE.md @b.md"})
    assert set(skipped(load_at_start(PLACES, table)).values()) == {"cycle"}
    assert len(load_at_start(PLACES, table).files) == 2


def test_imports_outside_need_approval() -> None:
    """INS-3: also through links; the user's own files may name anything."""
    table = Table(
        {"/code/app/CLAUDE.md": "@~/notes.md @/etc/passwd @in.md", "/home/me/notes.md": "n", "/etc/passwd": "root"},
        links={"/code/app/in.md": "/home/me/.ssh/id"},
    )
    table.texts["/home/me/.ssh/id"] = "key"
    found = load_at_start(PLACES, table)
    assert paths(found) == ["/code/app/CLAUDE.md"]
    assert set(skipped(found).values()) == {"not_approved"} and len(found.skipped) == 3
    approved = load_at_start(replace(PLACES, approved=("/home/me/notes.md", "/etc")), table)
    assert paths(approved) == ["/code/app/CLAUDE.md", "/home/me/notes.md", "/etc/passwd"]
    user = Table({"/home/me/.claude/CLAUDE.md": "@/etc/x", "/etc/x": "x"})
    assert len(load_at_start(PLACES, user).files) == 2


def test_links_out_of_the_project_are_not_followed() -> None:
    table = Table(
        {"/home/me/secret": "s"},
        links={
            "/code/app/CLAUDE.md": "/home/me/secret",
            "/code/CLAUDE.md": "/home/me/secret",
            "/code/app/.claude/rules/r.md": "/home/me/secret",
        },
    )
    found = load_at_start(PLACES, table)
    assert not found.files and set(skipped(found).values()) == {"not_approved"} and len(found.skipped) == 3


def test_missing_and_unreadable() -> None:
    """INS-3: binary skipped; `@words` that are no files are nothing."""
    table = Table({"/code/app/CLAUDE.md": "@someone @gone.md @bin.md"}, broken={"/code/app/bin.md": "not a text file"})
    assert skipped(load_at_start(PLACES, table)) == {"/code/app/gone.md": "missing", "/code/app/bin.md": "unreadable"}


def test_excludes_but_never_managed() -> None:
    """INS-5."""
    table = Table(
        {p: p for p in ("/etc/CLAUDE.md", "/code/CLAUDE.md", "/code/app/CLAUDE.md", "/home/me/.claude/CLAUDE.md")}
    )
    found = load_at_start(replace(PLACES, excludes=("**/CLAUDE.md",)), table)
    assert paths(found) == ["/etc/CLAUDE.md"] and set(skipped(found).values()) == {"excluded"}
    found = load_at_start(replace(PLACES, excludes=("/code/CLAUDE.md",)), table)
    assert "/code/CLAUDE.md" not in paths(found) and len(found.files) == 3


def test_the_same_content_loads_once() -> None:
    """INS-4: deduplicated by content."""
    table = Table({"/code/CLAUDE.md": "same", "/code/app/CLAUDE.md": "same\n", "/code/app/CLAUDE.local.md": " "})
    found = load_at_start(PLACES, table)
    assert paths(found) == ["/code/CLAUDE.md"] and skipped(found) == {"/code/app/CLAUDE.md": "same"}


def test_rules_with_paths() -> None:
    """INS-2: loaded when a matching file is touched; a list, a text, braces; relative to the folder of the rules."""
    table = Table(
        {
            "/code/app/.claude/rules/py.md": "---\npaths:\n  - '**/*.py'\n---\npython",
            "/code/app/.claude/rules/web.md": "---\npaths: src/**/*.{ts,tsx}\n---\nweb",
            "/code/app/.claude/rules/all.md": "all",
            "/code/app/lib/.claude/rules/top.md": "---\npaths: *.py\n---\ntop of lib",
            "/home/me/.claude/rules/u.md": "---\npaths: '**/*.py'\n---\nuser python",
        }
    )
    start = load_at_start(PLACES, table)
    assert paths(start) == ["/code/app/.claude/rules/all.md"]
    assert skipped(start)["/code/app/.claude/rules/web.md"] == "waits"
    names = {
        p: [q.rsplit("/", 1)[-1] for q in paths(load_for_paths(PLACES, table, [p]))]
        for p in ("x.py", "src/a/b.tsx", "lib/y.py")
    }
    assert names["x.py"] == ["u.md", "all.md", "py.md"]
    assert names["src/a/b.tsx"] == ["all.md", "web.md"]
    assert names["lib/y.py"] == ["u.md", "all.md", "py.md", "top.md"]
    assert load_for_paths(PLACES, table, ["lib/z/y.py"]).files[-1].trigger == "/code/app/lib/z/y.py"
    assert load_for_paths(PLACES, table, ["/elsewhere/y.py"]) == LoadedInstructions()


def test_nested_files_of_touched_paths() -> None:
    """INS-4: every folder between the project and the path; nothing of a path outside, or of the way up."""
    table = Table({f"/code/app{inner}/CLAUDE.md": inner or "root" for inner in ("", "/a", "/a/b", "/a/b/c", "/z")})
    assert paths(load_for_paths(PLACES, table, ["a/b/x.py"])) == ["/code/app/a/CLAUDE.md", "/code/app/a/b/CLAUDE.md"]
    assert paths(load_for_paths(PLACES, table, ["a/../z/../z/q"])) == ["/code/app/z/CLAUDE.md"]
    assert paths(load_for_paths(PLACES, table, ["../app/a", "/code/app/x", "/code/other/y"])) == [
        "/code/app/a/CLAUDE.md"
    ]
    assert paths(reload_files(PLACES, table, ["/code/app/a/CLAUDE.md", "/code/app/gone/CLAUDE.md"])) == [
        "/code/app/a/CLAUDE.md"
    ]


def test_the_number_of_files_is_bounded() -> None:
    """SEC-6."""
    table = Table({f"/code/app/.claude/rules/{n:04}.md": f"rule {n}" for n in range(2 * MAX_FILES)})
    found = load_at_start(PLACES, table)
    assert len(found.files) == MAX_FILES and [one.code for one in found.skipped] == ["many"]


def test_the_budget_keeps_the_nearest_whole() -> None:
    """INS-5: managed first, then the nearest; the rest cut at section ends, or left out with a notice."""
    long = "".join(f"# S{n}\n{'word ' * 100}\n" for n in range(10))
    table = Table({"/etc/CLAUDE.md": "m " + long, "/code/CLAUDE.md": "w " + long, "/code/app/CLAUDE.md": "a " + long})
    files = load_at_start(PLACES, table).files
    whole = fit_files(files, 40_000)
    assert [one.text for one in whole] == [file.text for file in files] and not any(one.is_cut for one in whole)
    total = files[0].tokens
    managed, far, near = fit_files(files, total * 5 // 2)
    assert not managed.is_cut and not near.is_cut and far.is_cut
    assert far.text and far.file.text[len(far.text) :].lstrip().startswith("# S")
    managed, far, near = fit_files(files, total + 200)
    assert not managed.is_cut and far.text == "" and len(near.text) < total
    assert [one.text for one in fit_files(files, 0)] == ["", "", ""]


def test_paths_are_taken_as_they_are_written() -> None:
    assert lexical("~/a/./b/../c", "/x", "/h") == "/h/a/c"
    assert lexical("../../../a", "/x/y", "/h") == "/a"
    assert lexical("C:/a/b", "/x", "/h") == "C:/a/b"
