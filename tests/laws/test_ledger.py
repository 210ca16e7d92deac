"""Laws of the ledger: budget, what is always there, determinism, and the checkpoint (CMP-5, CMP-13, CMP-14, QLT-3)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.seeds import under_another_seed
from tests.tiers import examples

from perdure.compaction.ledger import compact_messages
from perdure.compaction.ledger.memory import LIMIT_BYTES, PackedLedger, pack_ledger
from perdure.compaction.ledger.reader import ExtractIndex
from perdure.compaction.ledger.render import RecordSurroundings, memory_of_messages, render
from perdure.transcript.messages import Message, MessageId
from perdure.transcript.tokens import base_tokens

pytestmark = pytest.mark.laws

WORDS = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=1, max_size=60).filter(
    str.strip
)
NAMES = st.from_regex(r"[a-z]{2,8}_[a-z]{2,8}", fullmatch=True)
PATHS = st.builds("/home/u/{}/{}.py".format, NAMES, NAMES)
STEPS = st.one_of(
    st.tuples(st.just("user"), WORDS),
    st.tuples(st.just("says"), WORDS),
    st.tuples(st.just("edit"), PATHS),
    st.tuples(st.just("read"), PATHS),
    st.tuples(st.just("fail"), NAMES),
    st.tuples(st.just("todo"), NAMES),
    st.tuples(st.just("run"), NAMES),
)
HISTORIES = st.lists(STEPS, min_size=1, max_size=40)


def history(steps: list[tuple[str, str]]) -> list[Message]:
    found = [Message.of("user", "The very first request", id=MessageId("first"))]
    todos: list[dict[str, str]] = []
    for number, (kind, what) in enumerate(steps):
        identity = f"call-{number}"
        if kind in ("user", "says"):
            role = "user" if kind == "user" else "assistant"
            found.append(Message.of(role, what, id=MessageId(f"m{number}")))  # type: ignore[arg-type]
            continue
        todos += [{"content": what, "status": "pending"}] if kind == "todo" else []
        name, arguments, result = {
            "edit": ("Edit", {"file_path": what, "old_string": "a", "new_string": f"{what} changed"}, "done"),
            "read": ("Read", {"file_path": what}, f"1→ {what}_inside = 12345"),
            "fail": ("Bash", {"command": "pytest -q"}, f"FAILED tests/test_x.py::test_{what} - boom\n1 failed"),
            "todo": ("TodoWrite", {"todos": list(todos)}, "ok"),
            "run": ("Bash", {"command": f"make {what}"}, f"made {what}"),
        }[kind]
        use = {"type": "tool_use", "id": identity, "name": name, "input": arguments}
        answer = {"type": "tool_result", "tool_use_id": identity, "content": result}
        found.append(Message.of("assistant", [use], id=MessageId(f"a{number}")))
        found.append(Message.of("user", [answer], id=MessageId(f"r{number}")))
    found.append(Message.of("user", "The very last request", id=MessageId("last")))
    return found


@examples(60)
@given(HISTORIES, st.integers(0, 3_000), st.integers(0, 500))
def test_never_over_budget(steps: list[tuple[str, str]], budget: int, tail: int) -> None:
    """CMP-5: the base estimate of the text is at most the budget, with the tail at most that and the tail."""
    messages = history(steps)
    done = compact_messages(messages, budget)
    assert done.tokens == base_tokens(done.text) <= budget
    assert compact_messages(messages, budget, tail).tokens <= budget + tail


@examples(100)
@given(HISTORIES, st.integers(1_200, 6_000))
def test_what_is_always_there(steps: list[tuple[str, str]], budget: int) -> None:
    """CMP-5, QLT-2: the first and last user message, pins, every changed file, open todo and failing test."""
    done = compact_messages(history(steps), budget, pins=("pinned for good",))
    assert "The very first request" in done.text and "The very last request" in done.text
    assert "pinned for good" in done.text
    for kind, what in steps:
        if kind == "edit":
            assert what.rpartition("/")[2] in done.text
        elif kind == "todo":
            assert what in done.text
        elif kind == "fail":
            assert f"test_{what}" in done.text


@examples(50)
@given(HISTORIES, HISTORIES, st.integers(300, 4_000))
def test_a_checkpoint_goes_on_as_if_nothing_had_been(
    before: list[tuple[str, str]], after: list[tuple[str, str]], budget: int
) -> None:
    """CMP-14, CMP-13, QLT-3: fold(checkpoint + tail) == fold(all), for a history that a checkpoint holds whole."""
    index = ExtractIndex()
    messages = [*history(before), *history(after)[1:]]
    for message in messages:
        index.take(message)
    cut = len(history(before))
    checkpoint = pack_ledger(PackedLedger().memory(index.extracts(0, cut)))
    gone_on = checkpoint.memory(index.extracts(cut, len(messages)))
    whole = PackedLedger().memory(index.extracts(0, len(messages)))
    assert render(gone_on, budget, RecordSurroundings()).text == render(whole, budget, RecordSurroundings()).text
    assert pack_ledger(gone_on) == pack_ledger(whole)


@examples(60)
@given(HISTORIES)
def test_packing_is_idempotent_and_bounded(steps: list[tuple[str, str]]) -> None:
    """CMP-14: a checkpoint of a checkpoint is the same bytes; none is larger than its limit."""
    index = ExtractIndex()
    for message in history(steps):
        index.take(message)
    once = pack_ledger(PackedLedger().memory(index.extracts(0, len(index))))
    assert pack_ledger(once.memory()) == once
    assert len(once.data) <= LIMIT_BYTES


def large() -> list[Message]:
    """More than a checkpoint holds: 300,000 tokens of names that no two results share."""
    found = [Message.of("user", "Start", id=MessageId("u"))]
    for number in range(250):
        text = "\n".join(f"value_{number}_{line} = compute_{number}_{line}({number * line})" for line in range(110))
        use = {"type": "tool_use", "id": f"c{number}", "name": "Read", "input": {"file_path": f"/a/b/f{number}.py"}}
        answer = {"type": "tool_result", "tool_use_id": f"c{number}", "content": text}
        found.append(Message.of("assistant", [use], id=MessageId(f"a{number}")))
        found.append(Message.of("user", [answer], id=MessageId(f"r{number}")))
    return found


def test_a_large_history_is_bounded_too() -> None:
    """CMP-14: at most 40 KB in a boundary, and stable once it is bounded."""
    index = ExtractIndex()
    for message in large():
        index.take(message)
    once = pack_ledger(PackedLedger().memory(index.extracts(0, len(index))))
    assert len(once.data) <= LIMIT_BYTES
    assert pack_ledger(once.memory()) == once


def written() -> str:
    """Ledgers and their checkpoints, as text."""
    steps = [(k, w) for w in ("foo_bar", "baz_qux") for k in ("user", "says", "todo", "run", "fail")]
    return "\n".join(
        f"{compact_messages(messages, 900).text}\n{pack_ledger(memory_of_messages(messages)).data}"
        for messages in (history(steps), large()[:120])
    )


def test_the_same_bytes_in_every_process() -> None:
    """CMP-5, REL-5: whatever the hash seed."""
    here = written()
    there = under_another_seed("from tests.laws.test_ledger import written; print(written(), end='')")
    assert there == here and len(here) > 1_000
