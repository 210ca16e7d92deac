"""TURN-17: limits scale with the window less the front; results are cleared and offloaded by what they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from perdure.context.models import UNKNOWN
from perdure.context.passes import candidates, frontiers, microcompact, tool_result_budget
from perdure.context.policy import Facts, thresholds
from perdure.context.request import to_request
from perdure.context.view import ContextView, project
from perdure.settings import Settings
from perdure.transcript.messages import Message, MessageId, Usage
from perdure.transcript.records import Front, Record

RECALL = {"name": "recall", "input_schema": {"type": "object"}}


def facts_of(window: int, **more: Any) -> Facts:
    settings = Settings(window_tokens=window, **more)
    return Facts(settings=settings, limits=thresholds(settings, UNKNOWN, window, "setting"))


def loop(
    tool: str, results: int, chars: int, *, front: int = 0, recall: bool = True, answered: bool = True
) -> ContextView:
    """A view of calls of one tool; the last result wasn't sent yet, unless `answered`."""
    tools = [RECALL] if recall else [{"name": tool, "input_schema": {"type": "object"}}]
    records: list[Record] = [Front(model="m", system="word " * front, tools=tools)]
    records.append(Message.of("user", "go", id=MessageId("u")))
    for n in range(results):
        call = {"type": "tool_use", "id": f"t{n}", "name": tool, "input": {"n": n}}
        records.append(Message.of("assistant", [call], id=MessageId(f"a{n}"), response_id=f"r{n}"))
        words = f"{n} " + "some words of it " * (chars // 17)
        result = {"type": "tool_result", "tool_use_id": f"t{n}", "content": words}
        records.append(Message.of("user", [result], id=MessageId(f"r{n}")))
    if answered:
        records.append(Message.of("assistant", "seen", id=MessageId("end"), response_id="end"))
    return project(records)


def test_budgets_shrink_with_what_the_front_takes() -> None:
    """TURN-17: a front of the usual size changes nothing; what it takes beyond that is missing for the rest."""
    facts = facts_of(60_000)
    small, large = loop("Read", 1, 100), loop("Read", 1, 100, front=19_000)
    assert facts.scaled(small, 40_000) == facts.limits.scaled(40_000)
    assert large.front_size.live > facts.limits.usable // 8
    behind = (facts.limits.usable - large.front_size.live) / 140_000
    assert facts.scaled(large, 40_000) == round(40_000 * behind) < facts.limits.scaled(40_000)
    assert facts.scaled(loop("Read", 1, 100, front=90_000), 40_000, floor=7) == 7


@pytest.mark.parametrize("front", [0, 5_000, 19_000, 30_000])
def test_half_of_what_the_front_leaves_may_be_filled(front: int) -> None:
    """TURN-17, PRS-2: a large front doesn't take the place of what a compaction keeps."""
    facts, view = facts_of(60_000), loop("Read", 1, 100, front=front)
    trigger, before = facts.limits.trigger, view.front_size.live
    room = facts.half_tokens(view) - before
    assert facts.half_tokens(view) < trigger
    if before <= trigger // 8:
        assert facts.half_tokens(view) == trigger // 2
    else:
        assert room >= (trigger - before) * 2 // 5


@pytest.mark.parametrize("tool", ["shell_command", "developer__shell", "mcp__db__query", "terminal", "frobnicate"])
def test_large_results_of_any_tool_are_cleared(tool: str) -> None:
    """TURN-17, G8: near the trigger, whatever the tool is called; the last ones stay."""
    facts, view = facts_of(60_000), loop(tool, 40, 4_000)
    assert facts.size(view) > facts.limits.trigger - facts.reach_tokens and not candidates(view, facts)
    (edit,) = microcompact(view, facts)
    assert edit.tool_use_ids[0] == "t0" and not {"t37", "t38", "t39"} & set(edit.tool_use_ids)
    assert frontiers(view, facts) == (view.results["t0"].position,)  # type: ignore[index]


@pytest.mark.parametrize("tool", ["Task", "TodoWrite", "AskUserQuestion", "Skill", "BashOutput", "recall"])
def test_what_nobody_can_have_again_by_asking_stays(tool: str) -> None:
    """TURN-17: what an agent or a person said, the state of the work, and what was recalled."""
    facts, view = facts_of(60_000), loop(tool, 40, 4_000)
    assert facts.size(view) > facts.limits.trigger and not microcompact(view, facts)


def test_small_results_of_other_tools_stay() -> None:
    """TURN-17: only large ones; what is small costs more to clear than it frees."""
    facts, view = facts_of(60_000), loop("frobnicate", 700, 170)
    assert facts.size(view) > facts.limits.trigger and not microcompact(view, facts)


def calls_of(names: Sequence[str], count: int) -> ContextView:
    """A view of so many calls of these tools in turn, each with a result of about 1,000 tokens."""
    records: list[Record] = [Front(model="m", tools=[RECALL]), Message.of("user", "go", id=MessageId("u"))]
    for n in range(count):
        call = {"type": "tool_use", "id": f"t{n}", "name": names[n % len(names)], "input": {"n": n}}
        records.append(Message.of("assistant", [call], id=MessageId(f"a{n}"), response_id=f"r{n}"))
        result = {"type": "tool_result", "tool_use_id": f"t{n}", "content": f"{n} " + "some words of it " * 240}
        records.append(Message.of("user", [result], id=MessageId(f"r{n}")))
    records.append(Message.of("assistant", "seen", id=MessageId("end"), response_id="end"))
    return project(records)


def test_the_named_tools_are_the_first_choice() -> None:
    """TURN-17: while their results are enough, nothing else is cleared."""
    (edit,) = microcompact(calls_of(("mcp__db__query", *["Read"] * 8), 36), facts_of(60_000))
    assert edit.tool_use_ids and all(int(i[1:]) % 9 for i in edit.tool_use_ids)


def test_where_much_would_be_left_the_others_go_along() -> None:
    """SPD-7: else what is left, more than the room that was made, would soon be written once more."""
    view, facts = calls_of(("mcp__db__query", "Read", "Read"), 36), facts_of(60_000)
    named, others = microcompact(view, facts)
    assert all(int(i[1:]) % 3 for i in named.tool_use_ids) and any(int(i[1:]) % 3 == 0 for i in others.tool_use_ids)
    left = project((named,), view)
    assert 2 * facts.size(left) > facts.limits.trigger - facts.reach_tokens > 2 * facts.size(project((others,), left))


def test_where_they_are_not_enough_the_others_follow_at_once() -> None:
    """TURN-4, TURN-17: at the next request, the prefix would move a second time."""
    named, others = microcompact(calls_of(("mcp__db__query", "Read"), 40), facts_of(60_000))
    assert named.tool_use_ids and all(int(i[1:]) % 2 == 1 for i in named.tool_use_ids)
    assert others.tool_use_ids and any(int(i[1:]) % 2 == 0 for i in others.tool_use_ids)


def test_the_next_clearing_may_begin_at_either_kind_of_tool() -> None:
    """SPD-7: the oldest result of the named tools, and that of others where they are half of what is worth clearing;
    what is behind the first of the two needn't be written anew while only the second is cleared."""
    facts, names = facts_of(60_000), ("mcp__db__query", *["Read"] * 11)
    few, many = calls_of(names, 22), calls_of(names, 60)
    assert frontiers(few, facts) == (few.results["t1"].position,)  # type: ignore[index]
    read, other = (many.results[i].position for i in ("t1", "t0"))  # type: ignore[index]
    assert other < read and frontiers(many, facts) == (read, other)
    alone = calls_of(("mcp__db__query",), 3)
    assert frontiers(alone, facts) == (alone.results["t0"].position,)  # type: ignore[index]
    assert frontiers(calls_of(("Task",), 3), facts) == (8,), "nothing to take: the end"


def test_the_places_of_the_next_clearing_take_turns_in_requests() -> None:
    """SPD-7, REL-5: one breakpoint keeps both alive; a request prepared again has the same."""
    facts, view = facts_of(60_000), calls_of(("mcp__db__query", *["Read"] * 11), 60)
    both = frontiers(view, facts)

    def marked() -> set[int]:
        body = msgspec.json.decode(to_request(view, facts).body)
        return {n for n, m in enumerate(body["messages"]) if any("cache_control" in block for block in m["content"])}

    first = min(marked())
    assert first == min(marked())
    more = [("user", "and", MessageId("u2")), ("assistant", "yes", MessageId("a-last"))]
    view = project([Message.of(role, words, id=i, response_id=i) for role, words, i in more], view)
    assert {first, min(marked())} == {position - 1 for position in both}


def test_a_cold_cache_is_a_chance_for_every_tool() -> None:
    """TURN-17, TURN-4: when nothing is cached, large results of other tools go as well; the last ones stay."""
    usage = Usage(input_tokens=30_000)
    view = loop("mcp__db__query", 12, 8_000)
    late = Message.of("assistant", "later", id=MessageId("late"), response_id="late", at=1_000.0, usage=usage)
    view = project([late], view)
    settings = Settings(window_tokens=200_000)
    limits = thresholds(settings, UNKNOWN, 200_000, "setting")
    (edit,) = microcompact(view, Facts(settings=settings, limits=limits, now=1_000.0 + 90_000))
    assert edit.trigger == "idle" and list(edit.tool_use_ids) == [f"t{n}" for n in range(7)]


def test_without_recall_a_result_is_read_once() -> None:
    """TURN-17, G9: who can't have it back sees it whole, unless it would not fit."""
    facts = facts_of(60_000)
    chars = facts.limits.scaled(50_000) + 4_000
    assert tool_result_budget(loop("frobnicate", 1, chars, answered=False), facts)
    assert not tool_result_budget(loop("frobnicate", 1, chars, recall=False, answered=False), facts)
    assert tool_result_budget(loop("frobnicate", 1, 400_000, recall=False, answered=False), facts)


def test_previews_of_commands_show_their_end_whatever_the_tool_is_called() -> None:
    """TURN-17, TURN-2: outcomes stand at the end."""
    view = loop("shell_command", 1, 90_000, answered=False)
    (edit,) = tool_result_budget(view, facts_of(60_000))
    assert b"The end:" in bytes(edit.changes[0].to)
