"""CMP-15: everything in a record is so at the boundary: background work, files, commands and how they ended."""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.unit.ledger.talk import Talk

from perdure.compaction.ledger.render import RecordSurroundings, render
from perdure.compaction.ledger.repository import folder_of
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
        ("rm /w/src/a.py || true", "(`rm` ran later and may have taken it away; changed"),
        ("if false; then rm /w/src/a.py; fi", "(`rm` ran later and may have taken it away; changed"),
        ("make || rm /w/src/a.py", "(`rm` ran later and may have taken it away; changed"),
        ("rm /w/src/a.py; ls", "(`rm` ran later and may have taken it away; changed"),
        ("mv /w/src/a.py /tmp/a.py | tee log", "(`mv` ran later and may have taken it away; changed"),
        ("rm -f /w/src/a.py; ls", "(deleted; changed"),
        ("true && " * 300 + "rm /w/src/a.py", "(`rm` ran later and may have taken it away; changed"),
        ("(cd /w && rm src/a.py)", "(deleted; changed"),
        ("make && rm /w/src/a.py && ls", "(deleted; changed"),
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


FAILS = "FAILED tests/test_a.py::test_one - boom\n1 failed in 1s"


@pytest.mark.parametrize(
    ("command", "passes"),
    [
        ("cd /srv/shop && pytest -q", True),
        ("pytest -q -x -n 4 -p no:cacheprovider", True),
        ("cd shop; pytest", True),
        ("pytest -q tests", True),
        ("pytest tests/test_a.py", True),
        ("cd tests && pytest test_a.py", False),  # perhaps another folder
        ("pytest tests/test_a.py::test_one", True),
        ("pytest -k test_one", True),
        ("pytest -k 'test_two or test_one'", True),
        ("pytest -k 'two or three'", False),  # no test_for is meant
        ("pytest -k 'one and slow'", False),
        ("cd /srv/shop && pytest -q && cd ..", True),
        ("cd /srv/shop/web/.. && pytest -q; cd -", True),
        ("cd /srv && pytest -q", True),
        ("cd /srv/shop/web && pytest -q", False),  # others than those of the shop
        ("make -C /srv/shop test", False),  # another runner
        ("cd /srv/api && pytest -q", False),
        ("pushd /srv/api; pytest -q; popd", False),
        ("pytest -q tests/unit", False),
        ("pytest tests/test_a.py::test_two", False),
        ("pytest tests/test_a.py -k other", False),
        ("pytest -k 'not test_one'", False),
        ("pytest -q -m 'not slow'", False),
        ("pytest -q --ignore tests/test_a.py", False),
        ("pytest -q --deselect=tests/test_a.py::test_one", False),
        ("cat pytest.log", False),
        ("grep -r passed pytest.log", False),
    ],
)
def test_a_green_run_elsewhere_or_of_others_heals_nothing(command: str, passes: bool) -> None:
    """CMP-15: `passes now` is said of a test that was run again, where it failed."""
    talk = Talk().user("Go").bash("cd /srv/shop && pytest -q", FAILS, is_error=True).bash(command, "9 passed in 1s")
    assert ("passes now: tests/test_a.py::test_one" in talk.text()) == passes


def test_a_word_between_names_of_tests_is_no_name() -> None:
    """CMP-15: `or` stands in test_order, too."""
    failed = "FAILED tests/test_order.py::test_send - boom\n1 failed in 1s"
    talk = Talk().user("Go").bash("pytest -q", failed, is_error=True)
    assert "passes now" not in talk.bash("pytest -k 'login or logout'", "2 passed in 1s").text()
    assert "passes now: tests/test_order.py::test_send" in talk.bash("pytest -k 'login or order'", "2 passed").text()


@pytest.mark.parametrize(
    ("failed", "passed", "passes"),
    [
        ("cd backend && pytest", "cd backend && pytest -q && cd ..", True),
        ("cd /srv/app && pytest tests backend", "cd /srv/app/backend && pytest", True),
        ("cd /srv/app && pytest tests backend", "cd /srv/app/frontend && pytest", False),
        ("cd /srv/app/backend && pytest", "cd /srv/app && pytest", True),
        ("cd /srv/app/backend && pytest", "cd /srv/app2 && pytest", False),
        ("cd /srv/app && git pull; cd backend && pytest", "cd /srv/app/backend && pytest", True),
    ],
)
def test_where_tests_ran(failed: str, passed: str, passes: bool) -> None:
    """CMP-15: in the folder in front of the runner; one around it has the same tests."""
    talk = Talk().user("Go").bash(failed, FAILS, is_error=True).bash(passed, "9 passed in 1s")
    assert ("passes now: tests/test_a.py::test_one" in talk.text()) == passes


def test_runs_of_one_package_say_nothing_of_another() -> None:
    """CMP-15: where the name of a test doesn't say where it is."""
    talk = Talk().user("Go").bash("go test ./config/", "--- FAIL: TestRead (0.1s)\nFAIL", is_error=True)
    assert "passes now" not in talk.bash("go test ./terminal/", "ok  \tx/terminal\t0.2s").text()
    later = talk.bash("go test ./config/... ./terminal/... -count=1", "ok  \tx/config\t0.2s\nok  \tx/terminal\t0.2s")
    assert "passes now: TestRead" in later.text()


@pytest.mark.parametrize(
    "command", ["cat README.md", "git show abc1236", "python3 - <<'EOF'\nprint(quoted)\nEOF", "cat old/test.log"]
)
def test_a_text_that_quotes_failures_has_none(command: str) -> None:
    """CMP-15: a test that a document names fails nowhere."""
    memory = Talk().user("Go").bash(command, FAILS).memory
    assert not memory.tests


def test_what_runs_of_tests_wrote_is_their_output() -> None:
    """CMP-15: what failed stands in the file that it was sent to; a later run that passes counts for it."""
    talk = Talk().user("Go").bash("pytest -q > /tmp/out.txt 2>&1 &", "[1] 77").bash("tail -3 /tmp/out.txt", FAILS)
    assert "tests/test_a.py::test_one (tail -3 /tmp/out.txt)" in record(talk)
    assert "passes now: tests/test_a.py::test_one" in talk.bash("pytest -q", "9 passed in 1s").text()
    server = Talk().user("Go").bash("gh run view 12 --log-failed", FAILS)
    assert "tests/test_a.py::test_one (gh run view 12 --log-failed)" in record(server)


def test_errors_in_a_text_that_was_shown_did_not_happen() -> None:
    """CMP-15: they were seen."""
    text = record(Talk().user("Go").bash("cat README.md", "# Help\nModuleNotFoundError: No module named 'x'"))
    assert "What failed" not in text and "ModuleNotFoundError" in text.split("## Other errors seen")[1]
    happened = (
        Talk().user("Go").bash("git push | cat", "error: failed to push some refs").bash("cat app.log", "Error: x y")
    )
    assert "Error: x y" in record(happened).split("## What failed")[1].split("## ")[0]
    assert "error: failed to push" in record(happened).split("## What failed")[1].split("## ")[0]


@pytest.mark.parametrize(
    "command",
    [
        "cat <<A\n" * 4_000,
        "git " + "-git " * 10_000,
        "git -C x " * 4_000,
        "make test&&" * 8_000,
        "make test;" * 8_000,
        "pytest " + "'" * 30_001,
        'pytest "' + '\\"' * 15_000,
        "pytest " + "1" * 30_000,
        "pytest;" + " " * 30_000 + "x",
        "npm run -s" + " -s" * 10_000,
        "cd a;" * 8_000,
        "bash -c 'make test' " * 2_000,
        "mvn " * 10_000,
        "grep x y &&\n" * 4_000,
    ],
)
def test_a_long_command_takes_no_longer_than_its_length_asks(command: str) -> None:
    """CMP-15, SPD-1: whatever a history holds; each line took seconds when a pattern was tried from each place."""
    began = time.process_time()
    memory = Talk().user("Go").bash(command, "Exit code 1\nboom", is_error=True).bash(command, "fine").memory
    folder_of(command)  # as of a commit
    assert time.process_time() - began < 0.6
    assert len(memory.commands) == 1


def test_what_stands_behind_a_long_document_is_read() -> None:
    """CMP-15: a command is bounded without the text that it writes into a file."""
    written = "cat > notes.md <<'END'\n" + "git push later\n" * 4_000 + "END\ngit commit -qam 'Add notes'"
    talk = Talk().user("Go").bash(written, "[main abc1234] Add notes\n 1 file changed")
    assert "abc1234 Add notes (nothing pushed since)" in talk.text()
    quoted = "git commit -m \"$(cat <<'EOF'\nIt's done\nEOF\n)\" && git push"
    talk.bash(quoted, "[main abc1235] It's done\n 1 file changed\n   abc1234..abc1235  main -> main")
    assert "abc1235 It's done (pushed)" in talk.text()


def test_a_check_whose_end_nobody_saw_has_not_passed() -> None:
    """CMP-15: what was changed since is named only after a check that passed."""
    talk = Talk().user("Go").bash("pytest -q > out.txt; echo done", "done")
    assert talk.memory.checked == -1
    assert talk.bash("pytest -q | tail -1", "3 passed in 1s").memory.check == "pytest -q | tail -1"


def test_commits_of_one_folder_are_not_pushed_from_another() -> None:
    """CMP-15: and a trial pushes nothing."""
    made, pushed = "[main abc1234] Fix shop\n 1 file changed", "To x\n   abc0000..def1234  main -> main"
    talk = Talk().user("Go").bash("git -C /srv/shop commit -am 'Fix shop'", made)
    talk.bash("git -C /srv/api push", pushed).bash("cd /srv/shop && git push --dry-run", pushed)
    assert "abc1234 Fix shop (nothing pushed since)" in talk.text()
    assert "abc1234 Fix shop (pushed)" in talk.bash("cd /srv/shop && git push", pushed).text()


def test_a_push_from_a_folder_around_that_of_the_commit() -> None:
    """CMP-15: it may be one repository; the commit that git names as it pushes says so."""
    made = "[main 1111111] Fix shop\n 1 file changed"
    for first, then in (("/srv/app/backend", "/srv/app"), ("/srv/app", "/srv/app/backend"), ("/srv/app", "/link")):
        talk = Talk().user("Go").bash(f"cd {first} && git commit -qam 'Fix shop' && cd ..", made)
        talk.bash(f"cd {then} && git push", "To x\n   0000000..1111111  main -> main")
        assert "1111111 Fix shop (pushed)" in talk.text()
    talk = Talk().user("Go").bash("cd /srv/app/backend && git commit -am 'Fix shop'", made)
    assert (
        "1111111 Fix shop\n" in talk.bash("cd /srv/app && git push", "To x\n   0000000..2222222  main -> main").text()
    )


def test_a_push_that_may_have_failed_is_not_denied() -> None:
    """CMP-15: only what git says of it counts."""
    made = "[main abc1234] Fix shop\n 1 file changed"
    talk = Talk().user("Go").bash("git commit -am 'Fix shop'", made).bash("git push -q && make x", "", is_error=True)
    assert "abc1234 Fix shop\n" in talk.text()
    failed = Talk().user("Go").bash("git commit -am 'Fix shop'", made)
    failed.bash("git push", "error: failed to push some refs to 'x'", is_error=True)
    assert "abc1234 Fix shop (nothing pushed since)" in failed.text()


def codex(talk: Talk, command: str, folder: str, output: str, code: int = 0) -> Talk:
    result = f"Wall time: 1\nProcess exited with code {code}\nOutput:\n{output}"
    return talk.ran("exec_command", {"cmd": command, "workdir": folder}, result)


def test_a_command_in_the_folder_of_its_call_is_another_one() -> None:
    """CMP-15: Codex says beside a command where it runs; what ran elsewhere heals, resolves and pushes nothing here."""
    talk = codex(Talk().user("Go"), "make deploy", "/srv/a", "done")
    codex(talk, "make deploy", "/srv/b", "error: boom went it", 2)
    codex(talk, "make deploy", "/srv/a", "done")
    codex(talk, "pytest -q", "/srv/a", FAILS, 1)
    codex(talk, "pytest -q", "/srv/b", "9 passed in 1s")
    text = record(talk)
    assert "make deploy → ok (2×): done" in text and "cd /srv/b && make deploy → failed (2): error: boom" in text
    assert "passes now" not in text and "resolved" not in text
    assert "passes now: tests/test_a.py::test_one" in record(codex(talk, "pytest -q", "/srv/a", "9 passed in 1s"))


def test_an_error_stays_when_its_command_passed_elsewhere() -> None:
    """CMP-15."""
    talk = Talk().user("Go").bash("cd /srv/a && make", "Exit code 2\nerror: undefined name fooBar", is_error=True)
    assert "resolved" not in talk.bash("cd /srv/b && make", "fine").text()
    assert "resolved" in talk.bash("cd /srv/a && make", "fine").text()


def test_commits_that_were_taken_back_are_gone() -> None:
    """CMP-15: `git reset` goes back to a commit, or by so many."""
    talk = Talk().user("Go")
    for number in (1, 2, 3, 4):
        talk.bash(
            f"git commit -am 'Step {number}'", f"[main abc{number}{number}{number}{number}] Step {number}\n 1 file"
        )
    assert "abc4444 Step 4" in record(talk)
    back = record(talk.bash("git reset --soft HEAD~1", "")).split("- committed: ")[1].split("\n")[0]
    assert back.startswith("abc3333 Step 3") and "Step 4" not in back
    back = record(talk.bash("git reset --hard abc1111", "HEAD is now at abc1111 Step 1"))
    assert "abc1111 Step 1" in back and "Step 2" not in back.split("- committed: ")[1].split("\n")[0]
    assert "- committed" not in record(talk.bash("git reset --hard origin/main", "HEAD is now at fff1111 Far"))


def test_what_is_taken_back_in_the_order_of_the_line() -> None:
    """CMP-15: a reset behind a commit takes that one back; one to where it is takes none."""
    made = "[main abc1111] Step 1\n 1 file"
    talk = Talk().user("Go").bash("git commit -m 'Step 1'", made)
    talk.bash(
        "git commit -m 'Step 2' && git reset --hard HEAD~1", "[main abc2222] Step 2\nHEAD is now at abc1111 Step 1"
    )
    committed = record(talk).split("- committed: ")[1].split("\n")[0]
    assert "abc1111 Step 1" in committed and "Step 2" not in committed
    talk.bash("git reset --hard HEAD~1 && git commit -m 'Step 3'", "HEAD is now at abc0000 x\n[main abc3333] Step 3")
    committed = record(talk).split("- committed: ")[1].split("\n")[0]
    assert "abc3333 Step 3" in committed and "Step 1" not in committed
    talk.bash("git reset -q --hard HEAD", "HEAD is now at fff1111 Made by the user")
    assert "abc3333 Step 3" in record(talk).split("- committed: ")[1].split("\n")[0]


@pytest.mark.parametrize(
    ("command", "output", "ended"),
    [
        ("grep -c error build.log", "Exit code 1\n0", "ended with 1, which says no: 0"),
        ("cd /w && diff a b", "Exit code 1\n> y", "ended with 1, which says no: > y"),
        ("cat x | grep y", "Exit code 1", "ended with 1, which says no"),
        ("grep x nowhere", "Exit code 2\ngrep: nowhere: No such file", "failed (2): grep: nowhere"),
        ("make", "Exit code 1\nboom", "failed (1): boom"),
        ("grep x y && make", "Exit code 1\nboom", "failed (1): boom"),
        (
            "pytest -q && grep -q done log",
            "Exit code 1\n1 failed, 3 passed in 1s",
            "failed (1): 1 failed, 3 passed in 1s",
        ),
        ("make build && test -f dist/app.js", "Exit code 1\nsrc/a.ts(3,1): error TS2304", "failed (1): src/a.ts"),
        ("make build; test -f dist/app.js", "Exit code 1\nsrc/a.ts(3,1): error TS2304", "failed (1): src/a.ts"),
        ("deploy --now && cd x && grep -q y z", "Exit code 1\nboom", "failed (1): boom"),
        ("set -e; deploy --now; grep -q y z", "Exit code 1\nboom", "failed (1): boom"),
        ("set -o pipefail; deploy --now | grep y", "Exit code 1\nboom", "failed (1): boom"),
        ("cd /gone && grep x y", "Exit code 1\n(eval):cd:1: no such file or directory: /gone", "failed (1): (eval)"),
        ("deploy --now; grep -q x y && grep -q y z", "Exit code 1\nboom", "ended with 1, which says no: boom"),
        ("deploy --now | grep y", "Exit code 1", "ended with 1, which says no"),
    ],
)
def test_an_answer_is_no_failure(command: str, output: str, ended: str) -> None:
    """CMP-15: `grep` ends with 1 when it finds nothing; else another program may have ended it."""
    assert f"ran {command} → {ended}" in record(Talk().user("Go").bash(command, output, is_error=True))
