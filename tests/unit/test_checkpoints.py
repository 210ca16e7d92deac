"""Checkpoints of an agent's files: what is kept, what is left alone, and what a rewind makes of it (CKP-1 to CKP-6)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.rewinds import call, shadow, shell
from tests.trees import picture

from perdure.adapters.checkpoints.ignores import IgnoreRules
from perdure.adapters.checkpoints.objects import name_of
from perdure.adapters.machine.repositories import is_no_project
from perdure.errors import JournalError, RewindRefused
from perdure.memory.checkpoints import (
    CALL,
    NONE,
    CheckpointEntry,
    PathChange,
    PathState,
    path_histories,
    rewind_point_of,
    snapshots,
    thin_snapshots,
)
from perdure.ports.machine import FileRewind

pytestmark = pytest.mark.unit


def put(folder: Path, **texts: str) -> None:
    for name, text in texts.items():
        path = folder / "project" / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def back(one: Any, *prompts: str, is_forced: bool = False, is_dry: bool = False) -> FileRewind:
    return one.rewind(set(prompts), is_forced=is_forced, is_dry=is_dry)


def texts(folder: Path) -> dict[str, bytes]:
    return {name: data for name, (kind, _, data) in picture(folder / "project").items() if kind == "file"}


def test_a_file_is_saved_once_for_each_prompt(tmp_path: Path) -> None:
    """CKP-1: what our own tool is about to change, also a file that isn't there yet, or lies outside the project."""
    one = shadow(tmp_path)
    put(tmp_path, a_py="1")
    outside = tmp_path / "outside.txt"
    outside.write_text("mine")
    paths = tuple(str(p) for p in (tmp_path / "project/a.py", tmp_path / "project/new/b.py", outside))
    for text in ("2", "3"):
        one.begin(call("m1", "Write"))
        one.save(paths, call("m1", "Write"))
        for path in paths:
            Path(path).parent.mkdir(exist_ok=True)
            Path(path).write_text(text)
        one.end(call("m1", "Write"))
    assert sorted(one.objects.get(i.decode()) for i in one.objects._store()) == [b"1", b"mine"]  # nothing of the middle
    back(one, "m1")
    assert texts(tmp_path) == {"a.py": b"1"}
    assert not (tmp_path / "project/new").exists()
    assert outside.read_text() == "mine"


def test_ignored_files_are_left_alone_and_tracked_ones_never(tmp_path: Path) -> None:
    """CKP-2: gitignore's rules, nested and negated; the user's repository, index and stash aren't touched."""
    project = tmp_path / "project"
    put(tmp_path, sub__keep_log="1", kept_txt="1", tracked_log="1", a_log="1")
    (project / "node_modules").mkdir()
    (project / "node_modules/x.js").write_text("1")
    (project / ".gitignore").write_text("*.log\n/build/\n")
    (project / "sub/.gitignore").write_text("!keep.log\n")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(project)]
    for command in (["init", "-q"], ["add", "-f", "tracked.log"], ["commit", "-qm", "x"]):
        subprocess.run([*git, *command], check=True, capture_output=True)
    before = picture(project / ".git")
    one = shadow(tmp_path)
    shell(
        one,
        "m1",
        "mkdir build; for f in build/o sub/keep.log kept.txt tracked.log a.log node_modules/x.js; do echo 2 > $f; done",
    )
    steps = {step.path for step in back(one, "m1", is_dry=True).steps}
    assert steps == {"sub/keep.log", "kept.txt", "tracked.log"}
    back(one, "m1")
    assert picture(project / ".git") == before
    assert texts(tmp_path)["a.log"] == b"2\n"


def test_a_file_that_isnt_ignored_any_more_was_not_made_by_the_agent(tmp_path: Path) -> None:
    """CKP-3: files the agent did not create are never deleted, also when it changed the rules."""
    one = shadow(tmp_path)
    put(tmp_path, secret_env="mine", a_py="1")
    (tmp_path / "project/.gitignore").write_text("*.env\n")
    shell(one, "m0", "true")
    shell(one, "m1", "rm .gitignore; echo 2 > a.py")
    done = back(one, "m1", is_forced=True)
    assert texts(tmp_path) == {"secret.env": b"mine", "a.py": b"1", ".gitignore": b"*.env\n"}
    assert [step.path for step in done.steps if step.left] == ["secret.env"]


def test_large_files_are_named_and_stay(tmp_path: Path) -> None:
    """CKP-2, REL-11: what isn't kept can't be put back, and what can't be saved first isn't overwritten."""
    one = shadow(tmp_path, checkpoint_file_bytes=1_000)
    put(tmp_path, big_bin="x" * 2_000, small_txt="1")
    shell(one, "m1", "rm big.bin; head -c 3000 /dev/zero > small.txt; head -c 5000 /dev/zero > made.bin")
    done = back(one, "m1")
    assert {step.path: bool(step.left) for step in done.steps} == {"big.bin": True, "small.txt": True, "made.bin": True}
    assert sorted(texts(tmp_path)) == ["made.bin", "small.txt"]


def test_what_someone_else_changed_is_named_and_needs_force(tmp_path: Path) -> None:
    """CKP-3: since our last look, and in between two of our changes; undo brings it back."""
    one = shadow(tmp_path)
    put(tmp_path, a_py="1", b_py="1")
    shell(one, "m1", "echo 2 > a.py; echo 2 > b.py")
    put(tmp_path, b_py="user")
    shell(one, "m2", "echo 3 >> b.py")
    put(tmp_path, a_py="user")
    with pytest.raises(RewindRefused, match=r"a\.py, b\.py") as refused:
        back(one, "m1", "m2")
    assert refused.value.paths == ("a.py", "b.py")
    assert texts(tmp_path) == {"a.py": b"user", "b.py": b"user3\n"}
    back(one, "m1", "m2", is_forced=True)
    assert texts(tmp_path) == {"a.py": b"1", "b.py": b"1"}
    one.undo(is_forced=False, is_dry=False)
    assert texts(tmp_path) == {"a.py": b"user", "b.py": b"user3\n"}
    with pytest.raises(RewindRefused, match="no rewind"):
        one.undo(is_forced=False, is_dry=False)


def test_a_call_that_was_cut_short_is_nobodys_for_certain(tmp_path: Path) -> None:
    """CKP-3: killed in the middle of a command; what it changed can be put back by force, and what it made stays."""
    one = shadow(tmp_path)
    put(tmp_path, a_py="1")
    shell(one, "m0", "true")
    one.begin(call("m1"))
    put(tmp_path, a_py="half", made_py="?")
    one.close()
    again = shadow(tmp_path)
    shell(again, "m2", "echo 2 > b.py")
    with pytest.raises(RewindRefused, match=r"a\.py"):
        back(again, "m1", "m2")
    done = back(again, "m1", "m2", is_forced=True)
    assert texts(tmp_path) == {"a.py": b"1", "made.py": b"?"}
    assert [step.path for step in done.steps if step.left] == ["made.py"]


def test_calls_of_sub_agents_overlap_and_background_work_goes_on(tmp_path: Path) -> None:
    """CKP-2: what happens while another call is open is the agent's; behind a command in the background it may be."""
    one = shadow(tmp_path)
    put(tmp_path, a_py="1", b_py="1", c_py="1")
    one.begin(call("m1"))
    put(tmp_path, a_py="2")
    one.begin(call("m1", "Bash"))
    put(tmp_path, b_py="2")
    one.end(call("m1"))
    one.end(call("m1"))
    assert not back(one, "m1", is_dry=True).conflicts
    one.begin(call("m2", is_background=True))
    one.end(call("m2", is_background=True))
    put(tmp_path, c_py="2")
    shell(one, "m3", "true")
    assert [step.path for step in back(one, "m1", "m2", "m3", is_dry=True).conflicts] == ["c.py"]


def test_home_and_what_holds_it_arent_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CKP-2: refused by name; our own tools are saved there all the same."""
    home = (tmp_path / "project").resolve()
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    assert is_no_project("/") and is_no_project(str(home)) and is_no_project(str(home.parent))
    assert not is_no_project(str(home / "code"))
    one = shadow(tmp_path)
    put(tmp_path, a_py="1", b_py="1")
    shell(one, "m1", "echo 2 > a.py")
    one.save((str(home / "b.py"),), call("m1", "Write"))
    put(tmp_path, b_py="2")
    one.end(call("m1", "Write"))
    assert [step.path for step in back(one, "m1").steps] == ["b.py"]
    assert texts(tmp_path) == {"a.py": b"2\n", "b.py": b"1"}


def test_too_many_files_and_too_much_disk(tmp_path: Path) -> None:
    """CKP-2, CKP-6: limits are said once, and nothing breaks behind them."""
    one = shadow(tmp_path, checkpoint_files=3)
    put(tmp_path, a="1", b="1", c="1", d="1")
    shell(one, "m1", "echo 2 > a")
    shell(one, "m2", "echo 3 > a")
    assert back(one, "m1", "m2").steps == ()
    assert [type(e).__name__ for e in one.sink.events].count("CheckpointSkipped") == 1
    one.close()
    other = tmp_path / "other"
    other.mkdir()
    capped = shadow(other, checkpoint_disk_bytes=60_000)
    for number in range(12):
        (other / "project/r.bin").write_bytes(os.urandom(9_000))
        shell(capped, f"m{number}", "head -c 9000 /dev/urandom > r.bin")
    assert capped.objects.bytes() < 120_000
    assert 0 < len(snapshots(capped.log.entries)) < 12
    with pytest.raises(RewindRefused, match="isn't kept any more"):
        back(capped, *(f"m{n}" for n in range(12)))
    back(capped, "m11")


def test_the_oldest_of_a_hundred_snapshots_are_thinned(tmp_path: Path) -> None:
    """CKP-6: those that stay mean what they did; those that went are refused, with the nearest that is kept."""
    one = shadow(tmp_path, checkpoint_snapshots=10)
    seen = {}
    for number in range(30):
        seen[f"m{number:02}"] = texts(tmp_path)
        shell(one, f"m{number:02}", f"echo {number} > a; echo {number} > f{number}")
    kept = snapshots(one.log.entries)
    assert len(kept) <= 10 and kept[0] == "m00" and kept[-1] == "m29"
    later = {f"m{n:02}": {f"m{i:02}" for i in range(n, 30)} for n in range(30)}
    gone = next(prompt for prompt in seen if prompt not in kept)
    with pytest.raises(RewindRefused, match="nearest one that is kept before it is m"):
        back(one, *later[gone])
    for prompt in reversed(kept):
        back(one, *later[prompt])
        assert texts(tmp_path) == seen[prompt], prompt


def test_thinning_is_of_the_log_alone() -> None:
    """CKP-6: pure; a range that begins at a snapshot that stays means the same before and after."""
    states = [PathState("file", f"{n:040x}", n, 0o644) for n in range(41)]
    entries = [
        CheckpointEntry(seq=n + 1, kind=CALL, prompt=f"m{n:02}", changes=(PathChange("a", states[n], states[n + 1]),))
        for n in range(40)
    ]
    fewer = thin_snapshots(entries, 20)
    assert len(snapshots(fewer)) < 40
    for n, prompt in enumerate(snapshots(entries)):
        anchor = rewind_point_of(fewer, {p for p in snapshots(entries) if p >= prompt})
        assert anchor is not None
        if anchor.thinned_into is None:
            assert [(w.to, w.last, w.is_sure) for w in path_histories(fewer, anchor.seq)] == [
                (states[n], states[40], True)
            ]
    assert path_histories(entries, 41) == ()
    assert NONE.kind == "none"


def test_a_resumed_session_reads_only_what_changed(tmp_path: Path) -> None:
    """CKP-2: the index lives beside the store; what somebody changed between two sessions is theirs."""
    one = shadow(tmp_path)
    put(tmp_path, a_py="1", b_py="1")
    shell(one, "m1", "echo 2 > a.py")
    one.close()
    put(tmp_path, b_py="user")
    again = shadow(tmp_path)
    shell(again, "m2", "echo 3 > a.py")
    back(again, "m1", "m2")
    assert texts(tmp_path) == {"a.py": b"1", "b.py": b"user"}


def test_a_damaged_copy_is_found_before_anything_is_touched(tmp_path: Path) -> None:
    """REL-11: a rewind never starts from a copy that isn't what it was."""
    one = shadow(tmp_path)
    put(tmp_path, a_py="1")
    shell(one, "m1", "echo 2 > a.py; echo n > new.py")
    one.close()
    for path in (tmp_path / "store/objects").rglob("*"):
        if path.is_file():
            path.chmod(0o600)
            path.write_bytes(b"junk")
    again = shadow(tmp_path)
    with pytest.raises((JournalError, RewindRefused)):
        back(again, "m1")
    assert texts(tmp_path) == {"a.py": b"2\n", "new.py": b"n\n"}


def test_rules_of_git_are_read_through_no_link(tmp_path: Path) -> None:
    """SEC-8: `.git`, or a file in it, may lead to another repository; what stands there says nothing here."""
    other, root = tmp_path.resolve() / "other", tmp_path.resolve() / "p"
    (other / "info").mkdir(parents=True)
    (other / "info" / "exclude").write_text("*\n")
    (root / "sub").mkdir(parents=True)
    (root / ".git").symlink_to(other)
    ignores = IgnoreRules(str(root))
    ignores.start()
    assert not ignores.is_ignored("a.txt", is_folder=False, above=())
    (root / ".git").unlink()
    (root / ".git").mkdir()
    (root / ".git" / "info").symlink_to(other / "info")
    ignores = IgnoreRules(str(root))
    ignores.start()
    assert not ignores.is_ignored("a.txt", is_folder=False, above=())
    (root / ".git" / "info").unlink()
    (root / ".git" / "info").mkdir()
    (root / ".git" / "info" / "exclude").write_text("*\n")
    ignores = IgnoreRules(str(root))
    ignores.start()
    assert ignores.is_ignored("a.txt", is_folder=False, above=())


def test_what_a_killed_thinning_left_is_in_nobodys_way(tmp_path: Path) -> None:
    """CKP-6: copies that were replaced already, and that it couldn't remove any more."""
    one = shadow(tmp_path)
    one.objects.put([b"kept", b"gone"])
    left = one.objects.folder.with_name("objects.old")
    (left / "ab").mkdir(parents=True)
    assert one.objects.keep_only({name_of(b"kept")}) == 1
    assert not left.exists() and one.objects.names() == (name_of(b"kept"),)


def test_what_is_different_since_the_beginning_is_told_with_both_texts(tmp_path: Path) -> None:
    """CKP-1, CLI-6: of several changes the first and the last state; what is as it was isn't told."""
    one = shadow(tmp_path)
    put(tmp_path, a_py="1", b_py="same", c_py="gone")
    for text, prompt in (("2", "m1"), ("3", "m2")):
        shell(one, prompt, f"printf {text} > a.py; printf other > b.py")
    shell(one, "m3", "printf same > b.py; printf new > new.py; rm c.py")
    found = {change.path: (change.before, change.after) for change in one.differences()}
    assert found == {"a.py": (b"1", b"3"), "c.py": (b"gone", None), "new.py": (None, b"new")}
    assert not any(change.note for change in one.differences())
    put(tmp_path, a_py="mine")
    assert "somebody else" in one.differences()[0].note
    back(one, "m1", is_forced=True)
    assert one.differences() == ()
