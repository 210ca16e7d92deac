"""`export --all` over what stands in its way: one line for each thing, and nothing through a link (OPS-2, SEC-2)."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.e2e.test_leaving import files, goes_on, kept, person, run

from perdure.adapters.journal.projects import folder_of_name

pytestmark = pytest.mark.e2e
__all__ = ["person"]

MARK = ".perdure-export"
KEY = "ghp_" + "a1B2" * 9


def memory(home: Path, name: str, text: str, *, tenant: str = "") -> Path:
    """A memory of the person, or of a tenant, put there by hand."""
    path = (home / "gateway" / "tenants" / tenant if tenant else home) / "memory" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def told(person: Path, *words: str | Path, code: int = 1) -> list[str]:
    """The lines that an export of everything to `e` says, beside its sums."""
    shown = run(person, "export", "--all", "-o", person / "e", *words, code=code)
    return [line.removeprefix("perdure: ") for line in shown.splitlines()]


def test_a_long_name_is_written(person: Path) -> None:
    """OPS-2, MEM-1: a name that the disk holds to its last byte is exported; the limit is of bytes, not characters."""
    name = "記" * 82 + ".md"
    run(person, "memory", "add", "--user", "The longest name.", "--file", name)
    run(person, "export", "--all", "-o", person / "e")
    assert b"The longest name." in (person / "e" / "memory" / name).read_bytes()
    kept(person / ".perdure", person / "app", "parser")
    run(person, "export", "parser", "-o", person / "app" / name)
    assert (person / "app" / name).is_file()


@pytest.mark.parametrize("stands", ["file", "folder", "link", "link to a folder", "too large"])
def test_one_that_cant_be_written_stops_no_other(person: Path, stands: str) -> None:
    """OPS-2, SEC-2, CLI-5: one line for it, the rest is written, later tenants too; --force writes through no link."""
    home, out, victim = person / ".perdure", person / "e", person / "victim"
    memory(home, "a.md", "mine")
    kept(home, person / "app", "parser")
    memory(home, "z.md", "hers", tenant="zoe")
    victim.mkdir()
    (victim / "a.md").write_text("precious")
    (out / "memory").mkdir(parents=True)
    if stands == "file":
        (out / "memory").rmdir()
        (out / "memory").write_text("in the way")
    elif stands == "folder":
        (out / "memory" / "a.md").mkdir()
    elif stands == "link":
        (out / "memory" / "a.md").symlink_to(victim / "a.md")
    elif stands == "link to a folder":
        (out / "memory").rmdir()
        (out / "memory").symlink_to(victim)
    else:
        with (home / "memory" / "a.md").open("r+b") as file:
            file.truncate(400 << 20)
    for force in ((), ("--force",)):
        lines = told(person, *force)
        assert len([line for line in lines if "a.md: " in line]) == 1, lines
        assert any("file of memories, 1 failed" in line for line in lines), lines
        assert (out / "tenants" / "zoe" / "memory" / "z.md").read_text() == "hers"
        assert files(victim) == {"a.md": b"precious"}
        assert len(list(out.glob("projects/*/parser.jsonl"))) == 1


def test_a_link_to_elsewhere_takes_no_session(person: Path) -> None:
    """OPS-2, SEC-2: `projects` that leads elsewhere is not followed, and its sessions are named."""
    home, out, elsewhere = person / ".perdure", person / "e", person / "elsewhere"
    kept(home, person / "app", "parser")
    memory(home, "a.md", "mine")
    elsewhere.mkdir()
    out.mkdir()
    (out / "projects").symlink_to(elsewhere)
    for force in ((), ("--force",)):
        shown = "\n".join(told(person, *force))
        assert "parser: failed: " in shown and "links aren't followed" in shown
        assert not files(elsewhere) and (out / "memory" / "a.md").read_text() == "mine"


def test_files_of_a_session_are_written_one_by_one(person: Path) -> None:
    """OPS-2: what stands in the way of one of its forms leaves the other."""
    kept(person / ".perdure", person / "app", "parser")
    project = person / "e" / "projects" / folder_of_name(str(person / "app"))
    (project / "parser.jsonl").mkdir(parents=True)
    assert any("parser.jsonl: is a folder" in line for line in told(person))
    assert (project / "parser.md").is_file()


def test_memories_lose_their_secrets(person: Path) -> None:
    """OPS-2, SEC-5: also one that a hand wrote, and one that an export of before has raw; others keep their bytes."""
    home, out = person / ".perdure", person / "e"
    raw = memory(home, "key.md", f"The token is {KEY}.\n")
    wide = memory(home, "wide.md", "")
    wide.write_bytes(f"The token is {KEY}.\n".encode("utf-16"))
    odd = memory(home, "odd.md", "")
    odd.write_bytes(b"caf\xe9\r\n")
    run(person, "export", "--all", "-o", out)
    assert "The token is {{secret:github-token:" in (out / "memory" / "key.md").read_text()
    assert "The token is {{secret:github-token:" in (out / "memory" / "wide.md").read_bytes().decode("utf-16")
    assert (out / "memory" / "odd.md").read_bytes() == b"caf\xe9\r\n"
    before = files(out)
    run(person, "export", "--all", "-o", out)
    about = raw.stat()
    (out / "memory" / "key.md").write_bytes(raw.read_bytes())
    os.utime(out / "memory" / "key.md", ns=(about.st_mtime_ns, about.st_mtime_ns))
    assert any("key.md: says something else than now" in line for line in told(person))
    run(person, "export", "--all", "-o", out, "--force")
    assert files(out) == before


def test_what_is_no_plain_memory_is_named(person: Path) -> None:
    """OPS-2, MEM-4, CLI-5: a link among the memories is one line here and in `memory ls`; an odd name is exported."""
    home, out = person / ".perdure", person / "e"
    memory(home, "Why? a.md", "because")
    (person / "other.md").write_text("elsewhere")
    (home / "memory" / "link.md").symlink_to(person / "other.md")
    lines = told(person)
    assert [line for line in lines if "link.md: is a symbolic link" in line]
    assert {name: data for name, data in files(out).items() if name != MARK} == {"memory/Why? a.md": b"because"}
    shown = run(person, "memory", "ls", "--user")
    assert "link.md" in shown and "links aren't followed" in shown


def test_memories_that_lead_nowhere_are_named(person: Path) -> None:
    """OPS-2, CLI-5: a link to a drive that isn't there is no home without memories."""
    (person / ".perdure").mkdir()
    (person / ".perdure" / "memory").symlink_to(person / "drive")
    assert any("memory: is no folder, or a link that leads to none" in line for line in told(person))


def test_a_snapshot_by_hard_links_stays_as_it_is(person: Path) -> None:
    """OPS-2: who keeps each night's export as hard links can bring it up to date; no byte of a snapshot changes."""
    home, out, snapshot = person / ".perdure", person / "e", person / "snapshot"
    memory(home, "a.md", "before")
    kept(home, person / "app", "parser")
    run(person, "export", "--all", "-o", out)
    shutil.copytree(out, snapshot, copy_function=os.link)
    was = files(snapshot)
    assert "1 exported before" in run(person, "export", "--all", "-o", out)
    memory(home, "a.md", "after")
    goes_on(home, "parser")
    run(person, "export", "--all", "--force", "-o", out)
    assert files(snapshot) == was and (out / "memory" / "a.md").read_text() == "after"


@pytest.mark.parametrize("where", [".perdure", ".perdure/export", ".", "way/export"])
def test_a_home_is_no_place_for_an_export(person: Path, where: str) -> None:
    """OPS-2, CLI-5: the home, a folder in it, one around it, or a link there, is refused in one line."""
    home = person / ".perdure"
    memory(home, "a.md", "mine")
    (person / "way").symlink_to(home)
    before = files(person)
    shown = run(person, "export", "--all", "-o", person / where, code=2)
    assert len(shown.splitlines()) == 1 and "sessions are kept" in shown
    assert files(person) == before


DRAFT = ".draft-0123456789abcdef"


def drafts(out: Path) -> list[str]:
    return sorted(str(one.parent.relative_to(out)) for one in out.rglob(DRAFT))


def test_drafts_of_a_killed_run_go(person: Path) -> None:
    """OPS-2, REL-5: in the folders that exports make, of each tenant too; files of others, hidden or not, stay."""
    home, out = person / ".perdure", person / "e"
    kept(home, person / "app", "parser")
    memory(home, "a.md", "mine")
    memory(home, "z.md", "hers", tenant="zoe")
    run(person, "export", "--all", "-o", out)
    theirs = (".draft-mine", ".a.md.swp", "b.md", ".b.txt.0123456789ab", ".a.md.0123456789ab", f"{DRAFT}0")
    for name in (DRAFT, *theirs):
        (out / "memory" / name).write_text("half")
    project = next((out / "projects").iterdir())
    (out / "mine").mkdir()
    for folder in (project, out / "tenants" / "zoe" / "memory", out, out / "mine", out / "tenants"):
        (folder / DRAFT).write_text("half")
    run(person, "export", "--all", "-o", out)
    assert sorted(one.name for one in (out / "memory").iterdir()) == sorted((*theirs, "a.md"))
    assert drafts(out) == [".", "mine", "tenants"]


def test_no_draft_goes_where_no_export_was(person: Path) -> None:
    """OPS-2, SEC-2: a folder that holds others' files keeps them all, also where its folders have an export's names."""
    home, out = person / ".perdure", person / "e"
    memory(home, "a.md", "mine")
    for folder in ("deep", "memory", "projects/app", "tenants/zoe/memory"):
        (out / folder).mkdir(parents=True)
        for name in (DRAFT, ".notes.md.0123456789ab"):
            (out / folder / name).write_text("precious")
    before = files(out)
    run(person, "export", "--all", "-o", out)
    assert files(out).items() >= before.items()


def test_a_mark_that_leads_elsewhere_is_none(person: Path) -> None:
    """OPS-2, SEC-2: a link, or a folder, with the name of the mark says nothing of an export."""
    memory(person / ".perdure", "a.md", "mine")
    (person / "mark").write_text("{}")
    for name in ("link", "folder"):
        out = person / name
        (out / "memory").mkdir(parents=True)
        (out / "memory" / DRAFT).write_text("precious")
        if name == "link":
            (out / MARK).symlink_to(person / "mark")
        else:
            (out / MARK).mkdir()
        for _ in range(2):
            run(person, "export", "--all", "-o", out)
        assert drafts(out) == ["memory"] and (person / "mark").read_text() == "{}"


def test_a_first_run_that_is_killed_leaves_its_mark(person: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """OPS-2, REL-5: so what it left half written goes with the next run; a session makes no doubt of its version."""
    from perdure.adapters.machine.folder_calls import OsCalls

    home, out = person / ".perdure", person / "e"
    memory(home, "a.md", "mine")
    kept(home, person / "app", "parser")
    renamed = OsCalls.rename_new

    def killed(calls: OsCalls, old_fd: int, old: str, new_fd: int, new: str) -> None:
        if new != MARK:
            os.link(old, DRAFT, src_dir_fd=old_fd, dst_dir_fd=old_fd)
            raise KeyboardInterrupt
        renamed(calls, old_fd, old, new_fd, new)

    with monkeypatch.context() as patched:
        patched.setattr(OsCalls, "rename_new", killed)
        run(person, "export", "--all", "-o", out, code=130)
    (project,) = (out / "projects").iterdir()
    assert sorted(files(out)) == [MARK, f"projects/{project.name}/{DRAFT}"]
    assert "may have been written" not in run(person, "export", "--all", "-o", out)
    assert not drafts(out) and (project / "parser.md").is_file()


def test_a_draft_that_is_held_stays(person: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """OPS-2, SEC-2, REL-7: another process that writes in a folder of the export loses nothing by a later run."""
    from perdure.adapters.machine.folder_calls import OsCalls
    from perdure.adapters.machine.rooted import RootedFolder

    out = person / "e"
    memory(person / ".perdure", "a.md", "mine")
    run(person, "export", "--all", "-o", out)
    named = OsCalls.rename
    seen = list[int]()

    def meanwhile(calls: OsCalls, old_fd: int, old: str, new_fd: int, new: str) -> None:
        if new == "of-another.md":
            monkeypatch.setattr(OsCalls, "rename", named)
            run(person, "export", "--all", "-o", out)
            seen.append(len(list((out / "memory").glob(".draft-*"))))
        named(calls, old_fd, old, new_fd, new)

    monkeypatch.setattr(OsCalls, "rename", meanwhile)
    with RootedFolder.open(out / "memory") as root:
        root.write("of-another.md", b"whole")
    assert seen == [1] and (out / "memory" / "of-another.md").read_bytes() == b"whole"
    assert not list((out / "memory").glob(".draft-*"))


def test_two_exports_dont_share_a_folder(person: Path) -> None:
    """OPS-2: whoever comes second is told, and takes no draft of the first."""
    from perdure.adapters.machine.rooted import RootedFolder

    memory(person / ".perdure", "a.md", "mine")
    (person / "e").mkdir()
    with RootedFolder.open(person / "e") as root, root.alone():
        assert "another" in " ".join(told(person))
        assert not files(person / "e")


@pytest.mark.skipif(not os.path.exists("/dev/full") or os.geteuid() != 0, reason="mounts a small disk: needs root")
def test_a_full_disk_stops_with_one_line(person: Path) -> None:
    """OPS-2, REL-7: what is there is whole, no draft is left, and the same command goes on when there is room."""
    home, out = person / ".perdure", person / "e"
    for number in range(8):
        memory(home, f"{number}.md", f"{number}\n" * 60_000)
    out.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "none", out], check=False, capture_output=True)
    if mounted.returncode:
        pytest.skip("a file system can't be mounted here")
    try:
        lines = told(person)
        assert len(lines) == 2 and sum("no space left on device" in line.lower() for line in lines) == 1, lines
        there = files(out)
        assert there.pop(MARK) and all(data == (home / name).read_bytes() for name, data in there.items())
        assert there
        subprocess.run(["mount", "-o", "remount,size=4m", out], check=True)
        run(person, "export", "--all", "-o", out)
        assert len(files(out)) == 8 + 1
    finally:
        subprocess.run(["umount", out], check=True)
