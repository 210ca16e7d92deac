"""CMP-16: the example in docs/how/ledger.md is what the code makes of this session."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.ledger.talk import Talk

from perdure.compaction.ledger import compact_messages
from perdure.compaction.ledger.handover import BELOW, HAND_OVER, SHARE
from perdure.transcript.tokens import UNITS_PER_TOKEN, utf16_units

pytestmark = pytest.mark.unit

PAGE = Path(__file__).parents[3] / "docs/how/ledger.md"
BUDGET = 1_200
HOME = "/home/ada/ledgerbook"
READ = """    30\tdef rows(source: TextIO) -> Iterator[Row]:
    31\t    for row in csv.DictReader(source):
    32\t        when = parse_date(row['date'])
    33\t        if when is None:
    34\t            continue
    35\t        yield Row(when, row['amount'])"""
FAILED = """Exit code 1
FAILED tests/test_importer.py::test_undated_rows_stay - NameError: name 'is_header' is not defined
NameError: name 'is_header' is not defined
1 failed, 211 passed in 3.10s"""


def session() -> Talk:
    talk = Talk().user(
        "The importer drops rows with an empty date. Please find out why and fix it. Keep the public API."
    )
    for number, subject in enumerate(
        ("Find where rows are dropped", "Fix it with a test", "Say so in CHANGELOG.md"), 1
    ):
        talk.ran("TaskCreate", {"subject": subject}, f"Task #{number} created successfully: {subject}")
    found = (
        "src/ledgerbook/importer.py:32:    when = parse_date(row['date'])\nsrc/ledgerbook/dates.py:12:def parse_date()"
    )
    talk.ran("Grep", {"pattern": "parse_date", "path": f"{HOME}/src"}, found)
    talk.ran("Read", {"file_path": f"{HOME}/src/ledgerbook/importer.py", "offset": 30, "limit": 40}, READ)
    talk.says(
        "The root cause is the `continue` in `rows`: an empty date gives None, and the line was meant for headers.\n\n"
        "Two ways to mend it:\n\n1. Keep such rows, with no date.\n2. Refuse the whole file.\n\nWhich one do you want?"
    )
    talk.user("1, and don't touch parse_date")
    talk.ran("TaskUpdate", {"taskId": "1", "status": "completed"}, "Updated task #1")
    talk.ran("TaskUpdate", {"taskId": "2", "status": "in_progress"}, "Updated task #2")
    edit = {"old_string": "if when is None:", "new_string": "if when is None and is_header(row):"}
    talk.ran("Edit", {"file_path": f"{HOME}/src/ledgerbook/importer.py", **edit})
    test = "def test_undated_rows_stay() -> None:\n    assert len(list(rows(UNDATED))) == 3\n"
    talk.ran("Write", {"file_path": f"{HOME}/tests/test_importer.py", "content": test})
    talk.bash("pytest -q", FAILED, is_error=True)
    edit = {"old_string": "def rows", "new_string": "def is_header(row: Row) -> bool:\n    ...\n\n\ndef rows"}
    talk.ran("Edit", {"file_path": f"{HOME}/src/ledgerbook/importer.py", **edit})
    talk.refused(
        "Bash",
        {"command": "git commit -am 'Keep undated rows'"},
        "The user doesn't want to proceed with this tool use. To tell you how "
        "to proceed, the user said:\nnot before the changelog",
    )
    talk.bash("pytest -q", "212 passed in 3.05s")
    return talk.says(
        "I left `parse_date` alone because the report module relies on None. Shall I mention it in the changelog?"
    )


def test_the_example_of_the_page_is_what_the_code_makes() -> None:
    talk = session().user("yes")
    text = compact_messages(talk.messages, BUDGET).text
    assert f"```text\n{text}\n```" in PAGE.read_text(encoding="utf-8"), text
    start, end = text.index(f"# {HAND_OVER}\n"), text.index(f"# {BELOW}\n")
    assert utf16_units(text[start:end]) <= BUDGET * UNITS_PER_TOKEN / SHARE
