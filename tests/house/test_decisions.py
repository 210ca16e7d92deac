"""The index of decisions says what the records say: each has a state, and an older one names what changed it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from bench._decisions import FOLDER, INDEX, BadRecord, index_of, record_in, records

pytestmark = pytest.mark.house

AGAIN = "write the index anew: make house ARGS=--decisions"
RECORD = """\
# ADR 0007: a | b is split

- **Status**: {status}
- **Date**: 2026-11-22
- **Clauses**: ENG-1
- **Subject**: {subject}
- **In short**: {short}

## Context
"""


def test_the_index_is_what_the_records_say() -> None:
    try:
        found = records()
    except BadRecord as e:
        pytest.fail(f"docs/adr/{e}")
    assert len(found) > 70
    assert INDEX.read_text(encoding="utf-8") == index_of(found), AGAIN


def test_what_a_decision_replaces_names_it() -> None:
    """A reader of the older record is told what of it no longer holds, and where to read on."""
    found = {one.number: one for one in records()}
    silent = []
    for one in found.values():
        head = (FOLDER / one.file).read_text(encoding="utf-8").partition("\n## ")[0]
        later = re.findall(r"^- \*\*(?:Replaces|Mends)\*\*: .*?ADR (\d{4})", head, re.M)
        later += re.findall(r"\b(?:replaces|adds to)\b[^;]*?\[ADR (\d{4})\]", one.state)
        silent += [
            f"{older} doesn't name {one.number:04}" for older in later if one.file not in found[int(older)].state
        ]
    assert not silent, silent


def written(folder: Path, **said: str) -> Path:
    path = folder / "0007-split.md"
    path.write_text(RECORD.format(**({"status": "accepted", "subject": "Compaction", "short": "It is split."} | said)))
    return path


def test_a_record_becomes_a_row(tmp_path: Path) -> None:
    path = written(tmp_path, status="accepted; a half of it is replaced by [ADR 0009](0009-later.md)")
    page, state = index_of([record_in(path)]), "holds; a half of it is replaced by [0009](0009-later.md)"
    assert f"| 0007 | [A \\| b is split](0007-split.md) | It is split. | {state} |" in page.splitlines()
    assert "## Compaction" in page and "## Security" not in page
    assert "0001, 0002, 0003, 0004, 0005, 0006." in page


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"status": "fine"}, "Status"),
        ({"status": "replaced by ADR 0009"}, "Status"),
        ({"subject": "Weather"}, "Subject"),
        ({"short": "x" * 141}, "140 characters"),
    ],
)
def test_a_record_without_a_state_a_subject_or_a_line_is_named(tmp_path: Path, said: dict[str, str], told: str) -> None:
    with pytest.raises(BadRecord, match=rf"0007-split\.md.*{told}"):
        record_in(written(tmp_path, **said))
