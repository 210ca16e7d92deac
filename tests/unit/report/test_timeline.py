"""CLI-4: what a report tells of a session, and that nothing of the session gets out of its place in the page."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from tests.unit.context.making import UNBOUND, Talk, call, facts, text

from perdure.compaction.boundary import make_boundary
from perdure.compaction.plan import ledger_plan
from perdure.context.accounting import account
from perdure.context.view import ContextView, project
from perdure.lab.report.page import PageHeader, Price, page
from perdure.lab.report.timeline import MOST_TURNS, Timeline, output_warning, timeline, totals
from perdure.transcript.messages import Message, MessageId, ResponseId, Usage
from perdure.transcript.records import Front, Pinned, Undone

pytestmark = pytest.mark.unit

PRICED = replace(UNBOUND, input_usd=10.0, output_usd=50.0)
EVIL = '</script><script>alert(1)</script><img src="https://evil.example/x" onerror="alert(2)">'


def told(talk: Talk) -> Timeline:
    return timeline(talk.records, lambda view: facts(model=PRICED))


def busy(turns: int = 4) -> Talk:
    talk = Talk()
    talk.user("find the bug")
    for n in range(turns):
        talk.ran(f"t{n}", "Bash", f"line {n} " * 400, input={"command": "grep"})
    talk.model(text("line 7"), usage=9_000)
    return talk


def compacted(talk: Talk) -> Talk:
    view, known = talk.view, facts(model=PRICED)
    plan = ledger_plan(view, known, len(view.items) - 1)
    assert not isinstance(plan, str)
    talk.records.append(make_boundary(view, plan, known, identity="b1", trigger="manual").boundary)
    return talk


def about(**more: object) -> PageHeader:
    base = PageHeader(session="s1", title=None, source="log.jsonl", how="as it happened", is_kept=True, made="today")
    return replace(base, **more)  # type: ignore[arg-type]


def test_every_request_is_accounted_as_it_was_sent() -> None:
    """TOK-6: each turn has the categories of the view before the answer; they add up to its size."""
    talk = busy()
    found = told(talk)
    answers = [n for n, r in enumerate(talk.records) if getattr(r, "role", "") == "assistant"]
    assert [turn.number for turn in found.turns] == list(range(1, len(answers) + 1)) and found.all_turns == len(answers)
    for turn, at in zip(found.turns, answers, strict=True):
        expected = account(project(talk.records[:at]), facts(model=PRICED))
        assert turn.size == expected.size == sum(turn.categories.values())
        assert turn.categories == {c.name: c.tokens for c in expected.categories}


def test_messages_of_one_response_are_one_turn_and_are_paid_once() -> None:
    talk = Talk()
    talk.user()
    talk.model(text("first"), response="r", usage=1_000)
    talk.model(call("a"), response="r")
    found = told(talk)
    assert found.all_turns == 1 and found.usage == Usage(1_000, 1)
    assert found.usd == pytest.approx(1_000 * 10 / 1e6 + 50 / 1e6)


def test_a_compaction_tells_what_it_kept_and_dropped() -> None:
    """CLI-4: every message that was shown is either dropped or kept, with an id that recall takes."""
    talk = compacted(busy())
    before = project(talk.records[:-1])
    (one,) = told(talk).compactions
    assert [p.id for p in (*one.dropped, *one.kept)] == [i.message.id for i in before.items]
    assert "find the bug" in one.record and one.strategy == "ledger" and one.turn == 6
    assert sum(p.tokens for p in one.dropped) > 0 and one.dropped[0].line == "find the bug"


def test_what_happened_is_told_in_order_with_undone_work() -> None:
    talk = compacted(busy())
    talk.records += [Pinned(id="p1", text="keep me"), Undone(id="b1")]
    kinds = [one.kind for one in told(talk).happenings]
    assert kinds == ["compacted", "pinned", "undone"]
    assert totals(told(talk).happenings)["compacted"][0] == 1


@pytest.mark.nightly
def test_a_long_session_is_drawn_with_evenly_many_turns() -> None:
    talk = Talk()
    for _ in range(MOST_TURNS + 150):
        talk.user()
        talk.answered()
    found = told(talk)
    numbers = [turn.number for turn in found.turns]
    assert found.all_turns == MOST_TURNS + 150 and len(numbers) == MOST_TURNS
    assert numbers[0] == 1 and numbers[-1] == found.all_turns and numbers == sorted(set(numbers))


def test_nothing_of_the_session_gets_out_of_its_place() -> None:
    """SEC-4: text is escaped wherever it stands, data can't end its script, and the page's policy loads nothing."""
    talk = Talk()
    talk.records[0] = Front(model=EVIL)
    talk.user(EVIL)
    talk.ran("t1", EVIL, EVIL * 200)
    talk.answered()
    compacted(talk)
    html = page(about(title=EVIL, session=EVIL, logged=(EVIL,), problems=(EVIL,), source=EVIL), told(talk))
    assert len(re.findall(r"<script", html)) == 2 and "<img" not in html
    assert not re.findall(r'(?:src|href)="', html.replace("&quot;", ""))
    assert "default-src 'none'" in html and "alert(1)" in html


@pytest.mark.parametrize(
    "talk", [Talk(), busy(0), busy(1), compacted(busy())], ids=["empty", "one", "two", "compacted"]
)
def test_a_page_is_made_of_any_session(talk: Talk) -> None:
    prices = (Price("paid", 1, 2, 3, 4, None), Price("x", 0, 0, 0, 0, 1.5))
    html = page(about(prices=prices), told(talk))
    assert html.startswith("<!doctype html>") and html.count("<details>") == html.count("</details>")
    assert "nan" not in html and "no price known" in html and "$1.50" in html
    assert ("No request was made" in html) == (not told(talk).turns)


def test_the_view_at_the_end_is_the_fold() -> None:
    talk = compacted(busy())
    assert told(talk).view == project(talk.records) and isinstance(told(talk).view, ContextView)


def answers(*stated: tuple[str, int]) -> list[Message]:
    """Records of responses: the response, and the output tokens that this record of it states."""
    return [
        Message.of(
            "assistant",
            f"part {number}",
            id=MessageId(f"a{number}"),
            response_id=ResponseId(response),
            usage=Usage(input_tokens=1_000, output_tokens=output),
        )
        for number, (response, output) in enumerate(stated)
    ]


def test_of_a_response_that_spans_records_the_last_usage_is_what_was_paid() -> None:
    """CLI-4: each record of a response states its usage anew, and it grows; only the last counts."""
    records = [Message.of("user", "go", id=MessageId("u")), *answers(("r1", 2), ("r1", 40), ("r1", 900), ("r2", 50))]
    found = timeline(records, lambda view: facts(model=PRICED))
    assert found.all_turns == 2 and found.usage == Usage(input_tokens=2_000, output_tokens=950)
    assert found.usd == pytest.approx((2_000 * 10 + 950 * 50) / 1e6)
    assert [turn.usd for turn in found.turns] == pytest.approx([(1_000 * 10 + 900 * 50) / 1e6, found.usd])


def test_a_log_that_states_too_little_output_says_so_beside_its_price() -> None:
    """CLI-4: a price to the cent of a usage that stopped counting isn't one."""
    said = output_warning(410, 32_765)
    assert "410" in said and "32,765" in said
    assert not output_warning(19_174, 23_811) and not output_warning(1, 900)
    price = Price("paid", 1, 2, 3, 410, 14.32, said)
    assert said in page(about(prices=(price,)), told(busy()))


def test_the_price_comes_first_and_stacks_on_a_phone() -> None:
    """CLI-4: no column is cut off where a page is 400 pixels wide."""
    price = Price("paid", 1, 2, 3, 4, 5.5, "")
    html = page(about(prices=(price,)), told(busy()))
    assert re.search(r'<div class="scroll stacks">.*?<td[^>]*>paid</td><td[^>]* data-name="dollars">\$5\.50</td>', html)
    assert ".stacks td::before { content: attr(data-name)" in html


@pytest.mark.parametrize("theme", [0, 1])
def test_neighbours_in_the_chart_differ_in_colour(theme: int) -> None:
    """CLI-4: what stands on top of each other is told apart, on light and on dark paper."""
    html = page(about(), told(busy()))
    colours = dict(re.findall(r"--(c\d): #([0-9a-f]{6})", html.split("prefers-color-scheme: dark")[theme]))
    assert len(colours) == 10
    shades = [tuple(int(colours[f"c{n}"][i : i + 2], 16) for i in (0, 2, 4)) for n in range(10)]
    near = [
        (n, m)
        for n, one in enumerate(shades)
        for m, other in enumerate(shades[:n])
        if sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) < (70 if n - m == 1 else 30) ** 2
    ]
    assert not near
