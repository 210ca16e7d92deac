"""Full compact, the pure parts: what counts as a summary, which words are kept, what is left out (CMP-3, CMP-4)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.context.making import UNBOUND, Talk, facts, text

from perdure.compaction.ledger.memory import SpokenText
from perdure.compaction.summary import (
    CUT_OFF,
    NO_TEXT,
    fault_of,
    full_plan,
    instruction,
    kept_words,
    round_starts,
    rounds_to_drop,
    summary_ask,
    summary_in,
)
from perdure.compaction.summary import ModelSummary as Written
from perdure.context.groups import flatten
from perdure.context.replies import ModelInfo, Reply
from perdure.testing import check_anthropic
from perdure.transcript.blocks import block_of, text_block
from perdure.transcript.messages import ResponseId
from perdure.transcript.tokens import base_tokens

OWN, OTHER = ModelInfo(id="m", protocol="anthropic"), ModelInfo(id="other", protocol="openai")


def answer(words: str, stop_reason: str = "end_turn") -> Reply:
    blocks = (text_block(words),) if words else ()
    return Reply(response=ResponseId("r"), model="m", blocks=blocks, stop_reason=stop_reason)


@pytest.mark.parametrize(
    ("words", "summary"),
    [
        ("<analysis>a</analysis>\n<summary>\n1. x\n</summary>", "1. x"),
        ("<analysis>I write <summary> next</analysis><summary>x</summary> bye", "x"),
        ("<summary>with </summary> quoted</summary>", "with </summary> quoted"),
        ("<analysis>never ended <summary>x</summary>", "x"),
        ("<summary>never ended", "never ended"),
        (
            "1. Primary request\n7. Pending tasks\n8. Current work",
            "1. Primary request\n7. Pending tasks\n8. Current work",
        ),
        ("<analysis>only", None),
        ("</analysis>", None),
        ("Let me look at the file.", None),
        ("<summary></summary>", None),
        ("  \n", None),
    ],
)
def test_the_summary_in_an_answer(words: str, summary: str | None) -> None:
    """CMP-3: analysis is dropped, the summary is taken."""
    assert summary_in(answer(words)) == summary
    assert (fault_of(answer(words), facts()) is None) is (summary is not None)


def test_an_answer_that_was_cut_or_is_too_long_is_none() -> None:
    """CMP-4, CMP-9: no text that was cut."""
    assert fault_of(answer("<summary>x</summary>", "max_tokens"), facts()) == CUT_OFF
    assert fault_of(answer("<summary>x</summary>", "refusal"), facts()).startswith("refused: ")
    assert fault_of(answer("<summary>" + "word " * 12_000 + "</summary>"), facts()).startswith("too_long: ")
    assert fault_of(answer(""), facts()) == NO_TEXT


def test_the_newest_words_are_kept_and_typed_ones_before_pasted_bulk() -> None:
    """CMP-3."""
    typed = [SpokenText(f"t{n}", None, f"words {n} " * 10) for n in range(6)]
    bulk = SpokenText("bulk", None, "pasted " * 1_000)
    words = [*typed[:5], bulk, typed[5]]
    assert [one.id for one in kept_words(words, 100_000)] == ["t0", "t1", "t2", "t3", "t4", "bulk", "t5"]
    assert [one.id for one in kept_words(words, 7_000)] == ["t0", "t1", "t2", "t3", "t4", "t5"]
    assert [one.id for one in kept_words(words, 400)] == ["t4", "t5"]
    assert kept_words([SpokenText("cut", None, "begin […] end")], 10_000) == [], "shortened, so nobody's words"


@pytest.mark.parametrize(
    ("sizes", "dropped", "gap", "expected"),
    [
        ((100, 100, 100, 100, 100), 0, 100, 1),
        ((100, 100, 100, 100, 100), 0, 101, 2),
        ((100, 100, 100, 100, 100), 2, 150, 4),
        ((100,) * 20, 0, None, 4),
        ((100,) * 20, 4, None, 7),
        ((100,) * 3, 0, None, 1),
        ((100,) * 3, 0, -5, 1),
        ((100,) * 3, 0, 10_000, 2),
        ((100,) * 3, 2, None, 2),
        ((100,), 0, 50, 0),
    ],
)
def test_as_many_rounds_go_as_the_gap_needs(
    sizes: tuple[int, ...], dropped: int, gap: int | None, expected: int
) -> None:
    """CMP-4: exactly as many as the stated gap needs, else 20 %, at least one; the last one stays."""
    assert rounds_to_drop(sizes, dropped, gap) == expected


def talk(rounds: int = 4) -> Talk:
    made = Talk()
    made.user("begin")
    for n in range(rounds):
        made.ran(f"t{n}", "Read", "line\n" * 400, input={"path": f"f{n}.py"})
    return made


def test_any_number_of_rounds_can_go_and_the_request_is_valid() -> None:
    """CMP-4: rounds are whole, so no call is parted from its result."""
    view = talk().view
    assert round_starts(flatten(view)) == [0, 3, 5, 7]
    whole = summary_ask(view, facts(model=UNBOUND), OWN, "sum up")
    assert len(whole.rounds) == 4 and not check_anthropic(whole.request.body)
    for dropped in range(1, 6):
        ask = summary_ask(view, facts(model=UNBOUND), OWN, "sum up", dropped)
        assert ask.dropped == min(dropped, 3) and ask.tokens < whole.tokens
        assert not check_anthropic(ask.request.body)
        assert b"is left out here" in ask.request.body and ask.request.body.endswith(b'"sum up"}]}]}')


def test_thinking_stays_on_the_own_prefix_and_goes_elsewhere() -> None:
    """CMP-3, TURN-7: bound thinking doesn't hold behind another beginning, nor for another model."""
    made = Talk()
    for n in range(3):
        made.user(f"go {n}")
        made.model({"type": "thinking", "thinking": f"hm {n}", "signature": "s"}, text("done"))
        made.user("see " * 50)
    assert b'"thinking"' in summary_ask(made.view, facts(), OWN, "x").request.body
    bound = facts(model=replace(UNBOUND, thinking_is_bound=True))
    assert b"signature" not in summary_ask(made.view, bound, OWN, "x", 1).request.body
    assert b"hm " not in summary_ask(made.view, facts(), OTHER, "x").request.body


def test_media_in_results_become_words_for_another_model() -> None:
    """CMP-3."""
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
    made = Talk()
    made.user("look")
    made.ran("t0", "Read", [text("a picture:"), image])
    other = ModelInfo(id="other", protocol="anthropic")
    body = summary_ask(made.view, facts(), other, "x").request.body
    assert b"[image]" in body and b"iVBOR" not in body and not check_anthropic(body)
    assert b"iVBOR" in summary_ask(made.view, facts(), OWN, "x").request.body


def test_the_record_stays_within_its_budgets() -> None:
    """CMP-3: summary and ledger share the budget of a summary; the words have their own."""
    made = talk(60)
    for n in range(60):
        made.user(f"rule {n}: " + "be careful " * 200)
    made.answered()
    view, known = made.view, facts()
    plan = full_plan(view, known, len(view.items), Written("1. Primary request: x " * 300))
    settings = known.settings
    assert base_tokens(plan.record) <= settings.summary_budget_tokens + settings.user_words_tokens + 200
    assert plan.promised and all(plan.record.count(words) == 1 for words in plan.promised)
    assert plan.promised[-1].startswith("rule 59")


def test_instructions_of_the_user_are_appended() -> None:
    """CMP-3, CMP-6."""
    assert instruction(facts()).endswith("</summary>")
    asked = instruction(replace(facts(), instructions="look at {{the}} tests"))
    assert asked.endswith("for the record:\nlook at {{the}} tests")


def test_a_tool_call_with_a_summary_is_a_summary() -> None:
    """CMP-3: a call is refused by not being answered."""
    use = block_of({"type": "tool_use", "id": "t", "name": "Read", "input": {}})
    reply = Reply(
        response=ResponseId("r"),
        model="m",
        blocks=(text_block("<summary>1. x</summary>"), use),
        stop_reason="tool_use",
    )
    assert fault_of(reply, facts()) is None and summary_in(reply) == "1. x"
