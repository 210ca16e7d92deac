"""CMP-15: the checker of records finds what isn't so, and nothing in a record that is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from bench import truth

from perdure.compaction.ledger.render import RecordSurroundings, memory_of_messages, render
from perdure.logs import claude_code
from perdure.logs.recording import RecordedMessage

pytestmark = pytest.mark.unit


class Log:
    """A log of Claude Code, line by line."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def user(self, content: Any, **fields: Any) -> Log:
        self.lines.append({"type": "user", "uuid": f"u{len(self.lines)}", "message": {"content": content}, **fields})
        return self

    def ran(self, name: str, given: dict[str, Any], result: str, *, is_error: bool = False) -> Log:
        call = f"t{len(self.lines)}"
        use = {"type": "tool_use", "id": call, "name": name, "input": given}
        body = {"id": f"m{call}", "content": [use]}
        self.lines.append({"type": "assistant", "uuid": f"a{len(self.lines)}", "message": body})
        return self.user([{"type": "tool_result", "tool_use_id": call, "content": result, "is_error": is_error}])

    def says(self, text: str) -> Log:
        body = {"id": f"m{len(self.lines)}", "content": [{"type": "text", "text": text}]}
        self.lines.append({"type": "assistant", "uuid": f"a{len(self.lines)}", "message": body})
        return self

    @property
    def data(self) -> bytes:
        return "\n".join(map(json.dumps, self.lines)).encode()

    @property
    def record(self) -> str:
        (recording,) = claude_code.read(self.data, "made.jsonl")
        said = [step.message for step in recording.steps if isinstance(step, RecordedMessage)]
        return render(memory_of_messages(said), 10_000, RecordSurroundings(lead="")).text


def made() -> Log:
    log = Log().user("Please mend the parser.\n## Done\n- [x] all of it")
    log.user("<command-name>/clear</command-name><command-args></command-args>")
    log.user([{"type": "text", "text": "and its tests"}])
    log.ran("Read", {"file_path": "/w/src/old.py"}, "1→import os")
    log.ran("Read", {"file_path": "/w/src/read.py"}, "1→import os")
    log.ran("Edit", {"file_path": "/w/src/parser.py", "old_string": "a", "new_string": "b"}, "done")
    log.ran("Write", {"file_path": "/w/src/gone.py", "content": "x"}, "File created")
    log.ran("Bash", {"command": "rm /w/src/gone.py"}, "")
    log.ran("Bash", {"command": "make app"}, "Exit code 2\nerror: undefined name fooBar", is_error=True)
    log.ran("Bash", {"command": "make app"}, "built it all")
    log.ran("Bash", {"command": "make lint"}, "Exit code 1\nerror: too long a line", is_error=True)
    log.ran(
        "Bash", {"command": "pytest -q"}, "Exit code 1\nFAILED tests/test_a.py::test_b - boom\n1 failed", is_error=True
    )
    log.ran("Bash", {"command": "git commit -qam 'Mend it'; git status"}, "[main 1a2b3c4] Mend it\n 1 file changed")
    log.ran("Bash", {"command": "ruff check src"}, "All checks passed!")
    log.ran("Edit", {"file_path": "/w/src/late.py", "old_string": "a", "new_string": "b"}, "done")
    log.ran("Bash", {"command": "serve", "run_in_background": True}, "Command running in background with ID: b1")
    log.ran("Bash", {"command": "watch", "run_in_background": True}, "Command running in background with ID: b2")
    log.ran("TaskStop", {"task_id": "b2"}, "Successfully stopped task: b2 (watch)")
    todos = [{"content": "mend it", "status": "completed"}, {"content": "test it", "status": "pending"}]
    log.ran("TodoWrite", {"todos": todos}, "ok")
    log.says("The reader is slow because it opens every file twice.")
    for number in range(8):
        log.says(f"Step {number} is done.")
    found = "The parser fails because `read_all` drops the last row. I decided to keep the old format instead."
    log.says(f"{found}\nLet me look for what is left.")
    log.ran("Grep", {"pattern": "x"}, "see lib/other.py and and/or in notes/todo.md")
    refusal = "The user doesn't want to proceed with this tool use. To tell you how to proceed, the user said:\nnot yet"
    log.ran("Bash", {"command": "git push"}, refusal, is_error=True)
    log.lines[-1]["toolUseResult"] = "User rejected tool use"
    return log


def untrue(log: Log, record: str) -> tuple[truth.Verdict, list[str]]:
    verdict = truth.Verdict()
    truth.Checker(truth.raw_log(log.data, 10**6), verdict).look(record)
    return verdict, [kind for kind, _, _ in verdict.untrue]


def test_a_true_record_is_found_true_and_all_of_it_is_looked_at() -> None:
    log = made()
    verdict, wrong = untrue(log, log.record)
    assert not wrong
    assert all(verdict.checked[kind] for kind in truth.KINDS if kind != "paths"), verdict.checked


@pytest.mark.parametrize(
    ("kind", "section", "line"),
    [
        ("words", "What the user said", "- u1: /clear"),
        ("words", "What the user said", "- u1: Please delete the parser."),
        ("words", "What the user said", "- u1: <teammate-message> mend it"),
        ("words", "What the user said", "- u1: Please mend the parser.\n\tand all else"),
        ("background", "Where the work stands", "- in the background, its end not heard of: watch (id b2)"),
        ("background", "Where the work stands", "- in the background, its end not heard of: watch (id b9)"),
        ("ended", "Done", "- failed in the background: command: watch"),
        ("ended", "Done", "- stopped in the background: command: another"),
        ("changed", "Files changed", "- src/gone.py (changed)"),
        ("changed", "Files changed", "- src/read.py (changed 2×)"),
        ("changed", "Files changed", "- src/never.py (changed)"),
        ("deleted", "Files changed", "- src/parser.py (deleted; changed)"),
        ("read", "Files read", "- src/never.py"),
        ("read", "Files read", "- src/gone.py"),
        ("commands", "Commands that were run", "- make install → ok"),
        ("outcomes", "Commands that were run", "- make lint → ok: all well"),
        ("outcomes", "Commands that were run", "- make app → failed (2)"),
        ("outcomes", "Commands that were run", "- make lint → failed (3)"),
        ("outcomes", "Commands that were run", "- make app → ok: another line"),
        ("errors", "What failed", "- error: nobody printed it · t1"),
        ("errors", "What failed", "- error: too long a line, resolved: the command passed later · t1"),
        ("todos", "Done", "- [x] test it"),
        ("todos", "Open work", "- [ ] mend it"),
        ("todos", "Open work", "- [ ] nobody planned it"),
        ("tests", "Tests that fail", "- tests/test_a.py::test_c"),
        ("words", "The task", "- asked later · u1: Please delete the parser."),
        ("words", "What the user insists on", "- 10:00 Never touch the parser."),
        ("said", "The last exchange", "- in answer to the assistant, 10:00: All of it is done."),
        ("said", "Where the work stands", "- before that, 10:00: All of it is done."),
        ("changed", "Where the work stands", "- done last: src/never.py changed"),
        ("commands", "Where the work stands", "- done last: ran make install → ok"),
        ("decisions", "Decided and found out", "- I'll keep the old format because it is simple."),
        ("decisions", "Decided and found out", "- The parser fails because:"),
        ("decisions", "Decided and found out", "- | parser | because it is old |"),
        ("decisions", "Decided and found out", "- drops the last row (fixed)"),
        ("decisions", "Decided and found out", "- The lexer fails because it is slow."),
        ("decisions", "Decided and found out", "- the user, asked “Which format?”: the new one"),
        ("refused", "Turned down by the user", "- 10:00 Bash git push, with: never do that"),
        ("paths", "Names and values", "- lib/other.py, and/or; here"),
    ],
)
def test_an_untrue_line_is_found(kind: str, section: str, line: str) -> None:
    """The checker can fail: one line of each way in which a record was untrue is planted and found."""
    log = made()
    lines = log.record.split("\n")
    if not any(one.startswith(f"## {section}") for one in lines):
        lines.append(f"## {section}")
    at = next(i for i, one in enumerate(lines) if one.startswith(f"## {section}"))
    planted = "\n".join([*lines[: at + 1], line, *lines[at + 1 :]])
    assert untrue(log, planted)[1] == [kind]


def test_without_logs_it_says_how_it_is_called(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert truth.main([str(tmp_path)]) == 2
    assert "usage" in capsys.readouterr().err


def test_it_prints_a_table_and_every_untrue_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "claude_code"
    folder.mkdir()
    (folder / "made.jsonl").write_bytes(made().data)
    assert truth.main([str(tmp_path), "--lines"]) == 0
    assert "1 logs" in capsys.readouterr().out
