"""docs/spec holds each clause once, and whatever cites a clause cites one that is there."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

pytestmark = pytest.mark.house

ROOT = Path(__file__).resolve().parents[2]
SPEC = ROOT / "docs" / "spec"
STATUS = SPEC / "STATUS.md"

FAMILIES = """
ENG TOK PRS TURN CMP RST RCL SM INS MEM SES CKP LIB CLI GW MCP OBS REL SEC QLT SPD SCL PLG ACP OPS HSE DOC
""".split()
CITATION = re.compile(rf"\b(?:{'|'.join(FAMILIES)})-\d+b?\b")
DEFINITION = re.compile(rf"\*\*((?:{'|'.join(FAMILIES)})-\d+b?)\*\*")
STATUS_ROW = re.compile(r"^\| ([A-Z]+-\d+b?) \| [^|]+ \| ([^|]+) \|([^|]*)\|$", re.MULTILINE)
STATUSES = frozenset({"planned", "built", "partly built"})


def defined() -> Counter[str]:
    texts = [path.read_text() for path in sorted(SPEC.glob("*.md")) if path != STATUS]
    return Counter(clause for text in texts for clause in DEFINITION.findall(text))


def cited_in(folder: Path, *suffixes: str) -> dict[str, set[str]]:
    """Clause -> the files that cite it."""
    found: dict[str, set[str]] = {}
    for path in sorted(folder.rglob("*")):
        is_clauses = path.parent == SPEC and path != STATUS  # the requirement names parts of its clauses as it likes
        if path.is_file() and path.suffix in suffixes and not is_clauses:
            for clause in CITATION.findall(path.read_text()):
                found.setdefault(clause, set()).add(path.relative_to(ROOT).as_posix())
    return found


def test_each_clause_is_defined_once() -> None:
    clauses = defined()
    assert clauses, "docs/spec defines no clause"
    assert not {clause: times for clause, times in clauses.items() if times > 1}


def test_no_number_is_left_out() -> None:
    """Within a family the numbers run from 1 without a gap: a gap is a clause that got lost."""
    for family in FAMILIES:
        numbers = {int(re.sub(r"\D", "", clause)) for clause in defined() if clause.startswith(f"{family}-")}
        assert numbers == set(range(1, len(numbers) + 1)), f"{family}: {sorted(numbers)}"


@pytest.mark.parametrize("folder", ["tests", "src", "bench", "docs"])
def test_cited_clauses_exist(folder: str) -> None:
    unknown = {c: sorted(w) for c, w in cited_in(ROOT / folder, ".py", ".md", ".toml").items() if c not in defined()}
    assert not unknown, unknown


def test_status_lists_every_clause_once() -> None:
    rows = STATUS_ROW.findall(STATUS.read_text())
    assert Counter(clause for clause, *_ in rows) == defined()
    assert {status.strip() for _, status, _ in rows} <= STATUSES


def test_built_clauses_name_tests_that_cite_them() -> None:
    cited = cited_in(ROOT / "tests", ".py")
    wrong = {}
    for clause, status, tests in STATUS_ROW.findall(STATUS.read_text()):
        if status.strip() == "built":
            named = {f"tests/{name}" for name in tests.strip().split(", ")}
            if not named <= cited.get(clause, set()):
                wrong[clause] = sorted(named - cited.get(clause, set()))
    assert not wrong, f"do not cite the clause, or are not there: {wrong}"
