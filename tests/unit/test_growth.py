"""SPD-8: work on one message never grows with the square of its size, whatever stands in it.

A bound of seconds, where a square would take minutes and a line takes milliseconds; ratios are shown by
`python bench/holds.py --only growth`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from tests.unit.context.making import UNBOUND

from perdure import Message, Settings
from perdure.compaction import boundary
from perdure.compaction.ledger.facts import facts_in
from perdure.compaction.ledger.reader import ExtractIndex, UserWords, read_outcome
from perdure.compaction.plan import ledger_plan
from perdure.compaction.restore.registry import RestorerRegistry
from perdure.compaction.summary import NO_TEXT, ONLY_ANALYSIS, fault_of, summary_in
from perdure.context.policy import Facts, thresholds
from perdure.context.reminders import indented, neutralised, restored, without_tokens
from perdure.context.replies import Reply
from perdure.context.view import project
from perdure.memory.remarks import memory_requests
from perdure.text.words import counts_of, terms
from perdure.transcript.blocks import text_block
from perdure.transcript.checks import depth
from perdure.transcript.messages import MessageId, ResponseId
from perdure.transcript.tool_calls.actions import ToolTable
from perdure.transcript.tool_calls.files import KnownLines
from perdure.transcript.tool_calls.todos import todo_rows, todo_update

pytestmark = pytest.mark.unit
SIZE = 400_000
SECONDS = 5.0  # of CPU


def reply(text: str) -> Reply:
    return Reply(response=ResponseId("r"), model="m", blocks=(text_block(text),), stop_reason="end_turn")


def facts() -> Facts:
    return Facts(settings=Settings(), limits=thresholds(Settings(), UNBOUND, 200_000, "flag"), model=UNBOUND, now=0.0)


SHELL = ("'", '"', '"a\\', "<<A\n", "<<A\nA\n", "a > b.c ", "sed -i s x.py;", "rm a;", "(", "cd a;", "# ", " ")
CASES: dict[str, tuple[Callable[[str], Any], str]] = {
    "a line of digits from a command": (lambda text: read_outcome(text, is_error=False, is_run=True), "0123456789"),
    "digits on lines from a command": (lambda text: read_outcome(text, is_error=True, is_run=True), "1" * 190 + "\n"),
    "analyses that never end": (lambda text: fault_of(reply(text), facts()), "<analysis>"),
    "summaries that never end": (lambda text: summary_in(reply(text)), "<summary>"),
    "summaries that end only": (lambda text: summary_in(reply(text)), "</summary>"),
    "notices without a status": (lambda text: ExtractIndex().take(Message.of("user", text)), "<task-id>a</task-id>"),
    "blank boxes": (lambda text: todo_update("todo", "todo_write", {"plan": text, "todos": text}), " "),
    "boxes of blanks": (
        lambda text: todo_update("todo", "todo_write", {"plan": "[ ] a" + text + "\n", "todos": ""}),
        " ",
    ),
    "empty lines for todos": (todo_rows, "\n"),
    **{
        f"a command of {unit!r}": (lambda text: ToolTable().action("Bash", {"command": text}), unit)
        for unit in (
            "'",
            '"',
            '"a\\',
            "<<A\n",
            "<<A\nA\n",
            "a > b.c ",
            "sed -i s x.py;",
            "rm a;",
            "(",
            "cd a;",
            "# ",
            " ",
        )
    },
    "empty lines that may be quoted": (memory_requests, "\n"),
    "tags in a text": (lambda text: neutralised(text, tokens=True), "<s>"),
    "tags that are plain": (lambda text: restored(text, tokens=True), "<_s>"),
    "turns in a text": (neutralised, "\n\nHuman:"),
    "a word of one letter": (terms, "e"),
    "escapes of escapes": (facts_in, "\\"),
    "escapes of lines": (facts_in, "\\n"),
    "a name of many humps": (lambda text: counts_of(text, ("a", "ab", "abc")), "aB"),
    "texts that never end": (lambda text: depth(text.encode()), '\\"'),
    "an edit of one letter": (
        lambda text: KnownLines(KnownLines.whole(text + "b\nend\n").runs).edited([(text + "b", "c", False)]),
        "a",
    ),
}


@pytest.mark.quick(10)
@pytest.mark.parametrize("name", CASES)
def test_a_large_message_takes_no_longer_than_its_size(name: str) -> None:
    work, unit = CASES[name]
    text = unit * (SIZE // len(unit))
    began = time.process_time()
    work(text)
    assert time.process_time() - began < SECONDS


@pytest.mark.parametrize(
    ("text", "summary"),
    [
        ("<analysis>a</analysis><summary>s</summary>", "s"),
        ("<ANALYSIS>a<analysis>b</Analysis>x<summary> s </SUMMARY> t </summary> u", "s </SUMMARY> t"),
        ("<analysis>a</analysis>b<analysis>c</analysis><summary>only begun", "only begun"),
        ("<summary></summary>", None),
        ("</summary><summary>after its end", "after its end"),
    ],
)
def test_tags_are_found_as_before(text: str, summary: str | None) -> None:
    assert summary_in(reply(text)) == summary


def test_faults_of_tags_stay_what_they_were() -> None:
    """CMP-4."""
    assert fault_of(reply("<analysis>begun"), facts()) == ONLY_ANALYSIS
    assert fault_of(reply("<summary> </summary>"), facts()) == NO_TEXT


def test_of_a_text_larger_than_any_window_only_a_part_is_evidence() -> None:
    """SPD-8, CMP-5: its beginning and its end; the person's own words stay whole."""
    index, text = ExtractIndex(), "first.py " + "word and line\n" * 200_000 + " last.py"
    index.take(Message.of("user", text))
    [extract] = index.extracts(0, 1)
    read = "".join(piece.text for piece in extract.pieces)
    assert len(read) < 1_000_000 and read.startswith("first.py") and read.endswith("last.py")
    assert [event.text for event in extract.events if isinstance(event, UserWords)] == [text]


def test_a_request_that_no_window_holds_is_refused_before_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """SPD-8, CMP-9: nothing is restored, redacted or encoded for a record that can't fit however a model counts."""
    view = project((Message.of("user", "word and line\n" * 400_000, id=MessageId("u")),))
    plan = ledger_plan(view, facts(), 1)
    monkeypatch.setattr(boundary, "redact_record", lambda *_: pytest.fail("all of it was looked through once more"))
    built = boundary.build_boundary(view, plan, facts(), None, RestorerRegistry(()), identity="b", trigger="auto")
    assert built.boundary is None and built.refusal.startswith("over_trigger: 1,5"), built.refusal


HOLD_SECONDS = 0.045  # of CPU; as one search each of these took 0.15 to 0.35


@pytest.mark.nightly
@pytest.mark.parametrize("work", (neutralised, restored, indented, without_tokens), ids=lambda work: work.__name__)
@pytest.mark.parametrize("unit", ("word and line\n", "a < b, [c] ", "<system-remind a\n"))
def test_a_large_text_doesnt_keep_the_lock(work: Callable[[str], str], unit: str) -> None:
    """SPD-8: a thread that looks through 8 MB lets the loop have its turns meanwhile."""
    text = unit * (8_000_000 // len(unit))
    assert min(longest_hold(lambda: work(text)) for _ in range(3)) < HOLD_SECONDS


def longest_hold(work: Callable[[], object]) -> float:
    """The most processor time that a thread spends on something between two turns of another thread."""
    worker = threading.Thread(target=work)
    longest = last = 0.0
    worker.start()
    with suppress(OSError):  # it has ended, perhaps at once
        clock = time.pthread_getcpuclockid(worker.ident or 0)
        while worker.is_alive():
            now = time.clock_gettime(clock)
            longest, last = max(longest, now - last), now
            time.sleep(0.0005)
    worker.join()
    return longest
