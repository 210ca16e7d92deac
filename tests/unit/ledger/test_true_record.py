"""CMP-15: everything in a record is so at the boundary: background work, files, commands and how they ended."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.ledger.talk import Talk

from perdure.compaction.ledger.render import RecordSurroundings, render
from perdure.compaction.restore.kinds import BackgroundJobs, track_background
from perdure.transcript.tool_calls.actions import HistoryReader

pytestmark = pytest.mark.unit

IN_BACKGROUND = "in the background, its end not heard of: "
STARTED = "Command running in background with ID: b1"
ENDS: list[tuple[str, dict[str, Any], str]] = [
    ("TaskStop", {"task_id": "b1"}, "Successfully stopped task: b1 (make serve)"),
    ("KillShell", {"shell_id": "b1"}, '{"success":true,"message":"Successfully killed shell: b1"}'),
    ("BashOutput", {"bash_id": "b1"}, "<status>completed</status>\n<exit_code>0</exit_code>"),
    ("BashOutput", {"bash_id": "b1"}, "<status>killed</status>"),
    ("TaskOutput", {"task_id": "b1"}, "<retrieval_status>success</retrieval_status>\n<status>failed</status>"),
]


def began() -> Talk:
    return Talk().user("Go").ran("Bash", {"command": "make serve", "run_in_background": True}, STARTED)


def restored(talk: Talk) -> dict[str, str]:
    """What comes back behind a boundary, by the same reader."""
    state = BackgroundJobs()
    for one in HistoryReader().read(talk.messages):
        state = track_background(state, one)
    return {identity: job.state for identity, job in state.jobs.items()}


def record(talk: Talk) -> str:
    """Without a raw tail, so that commands which stand in it are listed."""
    return render(talk.memory, 4_000, RecordSurroundings(lead="")).text


def runs(talk: Talk) -> bool:
    return IN_BACKGROUND in talk.text()


def test_what_was_started_and_not_heard_of_since() -> None:
    talk = began()
    assert runs(talk) and restored(talk) == {"b1": "running"}
    talk.ran("BashOutput", {"bash_id": "b1"}, "<status>running</status>")
    assert runs(talk) and "make serve" in talk.text()
    talk.ran(
        "BashOutput", {"bash_id": "b1"}, "<tool_use_error>Sibling tool call errored</tool_use_error>", is_error=True
    )
    assert runs(talk) and restored(talk) == {"b1": "running"}
    assert "make serve → ran: started in the background" in record(talk)


@pytest.mark.parametrize(("name", "given", "result"), ENDS)
def test_every_way_to_end_is_known(name: str, given: dict[str, Any], result: str) -> None:
    """RST-5: the record and what comes back agree, for they have one reader."""
    talk = began().ran(name, given, result)
    assert not runs(talk) and "running" not in restored(talk).values()
    assert "in the background: command: make serve" in talk.text()


def test_an_end_told_by_an_error() -> None:
    talk = began().ran(
        "TaskOutput", {"task_id": "b1"}, "<tool_use_error>No task found with ID: b1</tool_use_error>", is_error=True
    )
    assert not runs(talk) and not restored(talk)
    codex = (
        Talk()
        .user("Go")
        .ran("exec_command", {"cmd": "wait"}, "Wall time: 1\nProcess running with session ID 77\nOutput:\n")
    )
    assert runs(codex)
    codex.ran(
        "write_stdin", {"session_id": 77}, "Wall time: 1\nProcess exited with code 1\nOutput:\nlate", is_error=True
    )
    assert not runs(codex) and not restored(codex)


@pytest.mark.parametrize("lead", ["", "<system-reminder>\nThis came in while you were working:\n"])
def test_a_notice_of_an_end_wherever_it_stands(lead: str) -> None:
    """A prompt that was queued while the model worked wraps its notice; a person who quotes one tells nothing."""
    notice = "<task-notification>\n<task-id>b1</task-id>\n<status>completed</status>\n</task-notification>"
    assert not runs(began().user(f"{lead}{notice}{'</system-reminder>' if lead else ''}"))
    assert runs(began().user(f"What does\n{notice[:-2]} mean?".replace("\n<task-n", " <task-n")))


def line_of(talk: Talk, path: str) -> str:
    return next((line for line in talk.text().splitlines() if line.startswith(f"- {path}")), "")


def edited(path: str = "/w/src/a.py") -> Talk:
    talk = Talk().user("Go").ran("Write", {"file_path": path, "content": "alpha_beta = 1"}, "File created")
    return talk.ran("Edit", {"file_path": "/w/src/other.py", "old_string": "x", "new_string": "y"})


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("rm /w/src/a.py", "(deleted; changed"),
        ("cd /w && rm -f src/a.py", "(deleted; changed"),
        ("cd /w/src; git rm -q a.py", "(deleted; changed"),
        ("rm -rf /w/src/", "(deleted; changed"),
        ("mv /w/src/a.py /w/src/b.py", "(moved to /w/src/b.py; changed"),
        ("git -C /w mv src/a.py src/b.py", "(moved to"),
        ("rm src/a.py", "(deleted; changed"),
        ("rm -f *.py", "(`rm` ran later and may have taken it away; changed"),
        ("git checkout -- src/a.py", "(`git checkout` ran later; changed"),
        ("git restore src/a.py", "(`git restore` ran later; changed"),
        ("git checkout .", "(`git checkout` ran later; changed"),
        ("git reset --hard HEAD~1", "(`git reset --hard` ran later; changed"),
        ("git clean -fdx", "(`git clean` ran later; changed"),
        ("git stash", "(`git stash` ran later; changed"),
        ("echo 1 > /w/src/a.py && rm /w/src/a.py", "(`rm` ran later and may have taken it away; changed"),
        ("git commit -m 'rm /w/src/a.py'", "(changed"),
        ("git checkout -b src/a.py", "(changed"),
        ("git rm --cached src/a.py", "(changed"),
        ("git stash pop", "(changed"),
        ("cat <<EOF\nrm /w/src/a.py\nEOF", "(changed"),
        ("ls src # rm", "(changed"),
    ],
)
def test_files_are_as_they_are(command: str, says: str) -> None:
    """A file that is gone says so; where it isn't certain, what was run is said."""
    assert f"a.py {says}" in edited().bash(command, "").text()


def test_a_file_that_was_taken_away_and_is_back() -> None:
    gone = edited().bash("rm /w/src/a.py", "")
    back = gone.ran("Write", {"file_path": "/w/src/a.py", "content": "x"}, "File created")
    assert "deleted" not in back.text().split("## Commands")[0]


def test_a_removal_that_failed_is_not_certain() -> None:
    talk = edited().bash("rm /w/src/a.py", "Exit code 1\nrm: cannot remove", is_error=True)
    assert "a.py (`rm` ran later and may have taken it away; changed" in talk.text()


def test_deletions_by_a_patch_and_by_a_tool() -> None:
    patch = "*** Begin Patch\n*** Delete File: /w/src/a.py\n*** End Patch"
    assert "a.py (deleted; changed" in edited().ran("apply_patch", {"input": patch}).text()
    assert "a.py (deleted; changed" in edited().ran("delete_file", {"path": "/w/src/a.py"}).text()


def test_a_deleted_file_says_so_however_little_room_there_is() -> None:
    talk = Talk().user("Go")
    for number in range(60):
        talk.ran("Write", {"file_path": f"/w/deep/folder/module_{number}.py", "content": "x"})
    talk.bash("rm /w/deep/folder/module_7.py", "")
    for budget in (500, 700, 2_000):
        assert "module_7.py (deleted" in talk.text(budget)


@pytest.mark.parametrize(
    "result",
    [
        "The user doesn't want to proceed with this tool use. The tool use was rejected",
        "<tool_use_error>File has not been read yet</tool_use_error>",
        "Permission to use Edit has been denied",
    ],
)
def test_what_was_refused_was_not_done(result: str) -> None:
    """CMP-15: whoever said no."""
    edit = {"file_path": "/w/a.py", "old_string": "x", "new_string": "y"}
    talk = Talk().user("Go").refused("Edit", edit, result, "host")
    talk.refused("Bash", {"command": "deploy --now"}, result, "host")
    memory = talk.memory
    assert not memory.files and not memory.commands and not memory.errors


def test_an_edit_that_failed_changed_nothing() -> None:
    given = {"file_path": "/w/a.py", "old_string": "x", "new_string": "y"}
    assert not Talk().user("Go").ran("Edit", given, "String to replace not found in file.", is_error=True).memory.files


def test_an_exit_code_that_a_command_printed_is_not_its_own() -> None:
    """A log that is shown may tell of codes; those of the command stand where its agent puts them."""
    talk = (
        Talk()
        .user("Go")
        .bash("tail build.log", "step 3\nmake: exit status 2\nProcess exited with code 9 (worker)\ndone")
    )
    assert "ran tail build.log → ok" in record(talk)


def test_errors_are_resolved_only_by_a_run_without_any() -> None:
    talk = Talk().user("Go").bash("make app", "Exit code 2\nerror: undefined name fooBar", is_error=True)
    assert "resolved" not in talk.bash("make app | tail", "error: undefined name fooBar").text()
    assert "resolved" not in talk.bash("make app", "error: undefined name other_one").text()
    assert "resolved" in talk.bash("make app", "fine").text()
