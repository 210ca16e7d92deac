"""The ledger on real recordings: what is always there, budgets, places of compaction (CMP-5, CMP-14, QLT-2, QLT-3)."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.recordings.conftest import DATA, MADE
from tests.tiers import NIGHTLY

from perdure.cli.compact import said_before
from perdure.compaction.ledger import ExtractIndex, compact_messages
from perdure.compaction.ledger.facts import normal_path
from perdure.compaction.ledger.memory import LIMIT_BYTES, PackedLedger, pack_ledger
from perdure.logs.detect import read_recordings
from perdure.transcript.messages import Message

FILES = sorted(
    path for folder in ("claude_code", "codex", "mini_swe_agent") for path in (DATA / folder).rglob("*.json*")
)
pytestmark = pytest.mark.unit
BUDGETS = [(1_500, 0), (3_000, 1_000), (10_000, 0), (12_000, 10_000)]  # with what of it stays verbatim


@pytest.fixture(scope="module", params=[*(pytest.param(path, id=path.name[:12]) for path in FILES), *MADE])
def messages(request: pytest.FixtureRequest, made_data: Path) -> list[Message]:
    path = made_data / request.param  # a real one is a whole path, and stays as it is
    recordings = read_recordings(path.read_bytes(), path.name)
    return max((said_before(one, 10**9)[0] for one in recordings), key=len)


@pytest.fixture(scope="module")
def index(messages: list[Message]) -> ExtractIndex:
    """What the ledger reads of them; nothing here adds to it."""
    index = ExtractIndex()
    for message in messages:
        index.take(message)
    return index


@pytest.mark.quick(12)
@pytest.mark.parametrize(("budget", "tail"), BUDGETS if NIGHTLY else BUDGETS[::3])
def test_what_is_always_there(messages: list[Message], index: ExtractIndex, budget: int, tail: int) -> None:
    """QLT-2: changed files, open todos and failing tests are all named; the budget holds."""
    done = compact_messages(messages, budget, tail)
    assert done.tokens <= budget + tail
    memory = PackedLedger().memory(index.extracts(0, len(index)))
    for path, file in memory.files.items():
        assert not file.edits or normal_path(path).rpartition("/")[2] in done.text
    assert all(task.text[:40] in done.text for task in memory.todos.values() if task.status != "done")
    assert all(name in done.text for name, test in memory.tests.items() if test.is_failing)


@pytest.mark.quick(6)
def test_first_and_last_words(messages: list[Message], index: ExtractIndex) -> None:
    """QLT-2: the first and the last user message have their own reserve; at 10k no user word is lost here."""
    text = " ".join(compact_messages(messages, 10_000).text.split())
    words = PackedLedger().memory(index.extracts(0, len(index))).words
    for one in (words[0], words[-1]) if words else ():
        assert " ".join(one.text.split())[:150] in text


@pytest.mark.quick(6)
def test_checkpoints_in_a_row(index: ExtractIndex) -> None:
    """CMP-14, QLT-3: a boundary's ledger is small, stable, and forgets no changed file, todo or failing test."""
    ledger, start = PackedLedger(), 0
    for part in range(1, 6):
        end = len(index) * part // 5
        ledger, start = pack_ledger(ledger.memory(index.extracts(start, end))), end
        assert len(ledger.data) <= LIMIT_BYTES and pack_ledger(ledger.memory()) == ledger
    whole, chained = PackedLedger().memory(index.extracts(0, len(index))), ledger.memory()
    assert {p for p, f in whole.files.items() if f.edits} == {p for p, f in chained.files.items() if f.edits}
    assert whole.todos.keys() >= chained.todos.keys() and len(whole.words) == len(chained.words)
    failing = {name for name, test in whole.tests.items() if test.is_failing}
    assert failing == {name for name, test in chained.tests.items() if test.is_failing}
