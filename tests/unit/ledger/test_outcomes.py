"""CMP-5: how a run ended, its error lines, and which tests failed or passed."""

from __future__ import annotations

import pytest
from tests.unit.ledger.talk import Talk

from perdure.compaction.ledger.reader import read_outcome, runner_of

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "is_error", "ok", "code"),
    [
        ("Exit code 2\nls: no such file", True, False, 2),
        ("Process exited with code 0\nfine", False, True, 0),
        ('{"output":"x","metadata":{"exit_code":1}}', False, False, 1),
        ("<returncode>127</returncode>\n<output>bash: x: command not found</output>", False, False, 127),
        ("all good", False, True, None),
        ("[The command completed with exit code 0.]", False, True, 0),
    ],
)
def test_exit_codes_of_common_agents(text: str, is_error: bool, ok: bool, code: int | None) -> None:
    what = read_outcome(text, is_error=is_error, is_run=True)
    assert (what.ok, what.code) == (ok, code)


@pytest.mark.parametrize(
    ("text", "failed"),
    [
        ("FAILED tests/test_a.py::test_one - assert 1 == 2\n1 failed", ("tests/test_a.py::test_one",)),
        ("tests/test_a.py::test_two FAILED [ 50%]", ("tests/test_a.py::test_two",)),
        ("    --- FAIL: TestResume/again (0.01s)\nFAIL", ("TestResume/again",)),
        ("FAIL: test_add (calc.AddTest)", ("test_add (calc.AddTest)",)),
        ("test view::folds ... FAILED", ("view::folds",)),
        (" FAIL  src/app.test.ts\n  ● app › starts", ("src/app.test.ts", "app › starts")),
        ("(fail) parser reads > a list [0.31ms]", ("parser reads > a list",)),
        ("not ok 3 - closes the file", ("closes the file",)),
        ("everything FAILED to be dull", ()),
    ],
)
def test_failing_tests_of_common_runners(text: str, failed: tuple[str, ...]) -> None:
    assert read_outcome(text, is_error=True, is_run=True).failed == failed


def test_the_line_that_says_how_it_went() -> None:
    assert read_outcome("x\n===== 3 passed in 0.1s =====\n", is_error=False, is_run=True).line == "3 passed in 0.1s"
    bad = read_outcome("Exit code 1\nValueError: no such thing\nat the end", is_error=True, is_run=True)
    assert bad.line == "ValueError: no such thing" == bad.errors[0]


@pytest.mark.parametrize(("command", "runner"), [("cd x && pytest -q", "pytest"), ("go test ./...", "go"), ("ls", "")])
def test_runners(command: str, runner: str) -> None:
    assert runner_of(command) == runner


def test_an_error_is_resolved_by_a_later_run_that_passes() -> None:
    talk = Talk().user("Build it").bash("make app", "Exit code 2\nerror: undefined name fooBar", is_error=True)
    assert "resolved" not in talk.text()
    assert "undefined name fooBar" in talk.bash("ls", "x").text() and "resolved" not in talk.text()
    assert "resolved: the command passed later" in talk.bash("make app", "ok").text()


def test_a_failing_test_passes_later() -> None:
    """QLT-2: tests are named with how they stand now."""
    fails = "FAILED tests/test_a.py::test_one - boom\nFAILED tests/test_a.py::test_two - boom\n2 failed"
    talk = Talk().user("Fix it").bash("pytest -q", fails, is_error=True)
    assert talk.text().count("## Tests that fail") == 1
    talk.bash("pytest -q tests/test_a.py::test_one", "1 passed in 0.1s")
    assert [name for name, test in talk.memory.tests.items() if test.is_failing] == ["tests/test_a.py::test_two"]
    assert "passes now: tests/test_a.py::test_one" in talk.text()
    talk.bash("pytest -q", "2 passed in 0.1s")
    assert "Tests that fail" not in talk.text()
    talk.bash("pytest -q", "FAILED tests/test_a.py::test_one - again", is_error=True)
    assert talk.memory.tests["tests/test_a.py::test_one"].is_failing
