"""The fake upstream: window, prompt cache, thinking bound to its prefix, scripted answers, streams (TURN-7, TURN-9)."""

from __future__ import annotations

import random
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import msgspec
import pytest

from perdure.context.models import TABLE
from perdure.testing import (
    EventStream,
    FakeUpstream,
    ModelRules,
    ScriptedAnswer,
    UpstreamError,
    UpstreamReply,
    cache,
    check_anthropic,
    count_tokens,
    error_event,
    openai_completion,
    overloaded,
    prompt_too_long,
    rate_limited,
    say,
    server_error,
    text,
    thinking,
    tool_use,
)
from perdure.testing.request import DecodedBlock

pytestmark = pytest.mark.unit

Json = dict[str, Any]
MARK = {"cache_control": {"type": "ephemeral"}}
HOUR = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
DROP = {"thinking": {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}}


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def ten_tokens(block: Mapping[str, Any]) -> int:
    """Ten tokens for every block, so that sums can be done by hand."""
    return 10


def t(words: str, **more: Any) -> Json:
    return {"type": "text", "text": words, **more}


def user(*content: Json) -> Json:
    return {"role": "user", "content": list(content)}


def result(id: str, content: str = "done") -> Json:
    return {"type": "tool_result", "tool_use_id": id, "content": content}


def body(*messages: Json, **more: Any) -> bytes:
    return msgspec.json.encode({"model": "m", "max_tokens": 1000, "messages": list(messages), **more})


def cache_server(least: int = 10) -> tuple[FakeUpstream, Clock]:
    clock = Clock()
    rules = ModelRules(min_cacheable_tokens=least)
    return FakeUpstream(rules=rules, count=ten_tokens, clock=clock), clock


def parts(reply: UpstreamReply) -> tuple[int, int, int]:
    """(read, written, plain)"""
    usage = reply.usage
    return usage.cache_read_input_tokens, usage.cache_creation_input_tokens, usage.input_tokens


# --- prompt cache -----------------------------------------------------------------------------------------------------


def test_append_only_growth_reads_what_was_written() -> None:
    """TURN-9: the breakpoint at the tail moves, the prefix does not."""
    server, _ = cache_server()
    system = [t("rules", **MARK)]
    one = server.respond(body(user(t("a", **MARK)), system=system))
    assert parts(one) == (0, 20, 0)
    two = server.respond(body(user(t("a")), one.as_param, user(t("b", **MARK), t("c")), system=system))
    assert parts(two) == (20, 20, 10)  # read system and a; write the answer and b; c comes after the last breakpoint
    assert two.usage.prompt_tokens == 50
    assert server.statistics.prefix_moves == []
    assert server.statistics.writes_per_content_token == 40 / 50


def test_an_edit_in_the_middle_rewrites_from_the_edit() -> None:
    """TURN-5: moving the prefix costs a write of all that comes after the edit, and is told."""
    server, _ = cache_server()
    tools = [{"name": "Read", "input_schema": {"type": "object"}, **MARK}]
    server.respond(body(user(t("a"), t("b"), t("c", **MARK)), tools=tools))
    moved = server.respond(body(user(t("a"), t("B"), t("c"), t("d", **MARK)), tools=tools))
    assert parts(moved) == (10, 40, 0)  # only the tool is read
    (move,) = server.statistics.prefix_moves
    assert (move.position, move.path) == (2, "messages.0.content.1")
    assert (move.kept_tokens, move.rewritten_tokens) == (20, 30)
    assert server.statistics.content_tokens == 40 + 20  # four blocks, then the new B and d


def test_prompts_end_at_their_time_to_live() -> None:
    """TURN-4: an idle session finds a cold cache; a read refreshes it."""
    server, clock = cache_server()
    request = body(user(t("a", **MARK)))
    assert parts(server.respond(request)) == (0, 10, 0)
    for clock.seconds, expected in ((299, (10, 0, 0)), (598, (10, 0, 0)), (898, (0, 10, 0))):
        assert parts(server.respond(request)) == expected


def test_an_hour_of_cache_is_told_apart() -> None:
    server, clock = cache_server()
    request = body(user(t("a", **MARK)), system=[t("s", **HOUR)])
    first = server.respond(request).usage
    assert (first.cache_creation_input_tokens, first.created_1h_tokens) == (20, 10)
    assert first.as_json()["cache_creation"] == {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 10}
    clock.seconds = 3599
    assert parts(server.respond(request)) == (10, 10, 0)
    clock.seconds = 3599 + 3600
    assert parts(server.respond(request)) == (0, 20, 0)


@pytest.mark.parametrize(("added", "expected"), [(19, (10, 190, 0)), (20, (0, 210, 0))])
def test_lookback_is_20_positions(added: int, expected: tuple[int, int, int]) -> None:
    """TURN-9: the breakpoint is the first of 20 positions, so 19 new blocks still find the old end, 20 do not."""
    server, _ = cache_server()
    server.respond(body(user(t("a", **MARK))))
    more = [t(str(number)) for number in range(added - 1)]
    assert parts(server.respond(body(user(t("a"), *more, t("end", **MARK))))) == expected


def test_a_second_breakpoint_bridges_the_lookback() -> None:
    server, _ = cache_server()
    server.respond(body(user(t("a", **MARK))))
    more = [t(str(number), **(MARK if number == 15 else {})) for number in range(25)]
    assert parts(server.respond(body(user(t("a"), *more, t("end", **MARK))))) == (10, 260, 0)


def test_nothing_is_cached_below_the_minimum() -> None:
    server, _ = cache_server(least=30)
    assert parts(server.respond(body(user(t("a"), t("b", **MARK))))) == (0, 0, 20)
    assert parts(server.respond(body(user(t("a"), t("b", **MARK))))) == (0, 0, 20)
    assert parts(server.respond(body(user(t("a"), t("b"), t("c", **MARK))))) == (0, 30, 0)


def test_without_a_breakpoint_nothing_is_read_or_written() -> None:
    server, _ = cache_server()
    server.respond(body(user(t("a", **MARK))))
    assert parts(server.respond(body(user(t("a"))))) == (0, 0, 10)


def test_the_automatic_marker_is_on_the_last_block() -> None:
    server, _ = cache_server()
    assert parts(server.respond(body(user(t("a"), t("b")), **MARK))) == (0, 20, 0)
    assert parts(server.respond(body(user(t("a"), t("b"), t("c")), **MARK))) == (20, 10, 0)


def test_model_and_settings_part_the_caches() -> None:
    """A change of thinking voids the messages and leaves tools and system; another model shares nothing."""
    server, _ = cache_server()
    one = {"model": "m", "max_tokens": 9, "system": [t("s", **MARK)], "messages": [user(t("a", **MARK))]}
    server.respond(msgspec.json.encode(one))
    assert parts(server.respond(msgspec.json.encode(one))) == (20, 0, 0)
    assert parts(server.respond(msgspec.json.encode({**one, "thinking": {"type": "adaptive"}}))) == (10, 10, 0)
    assert parts(server.respond(msgspec.json.encode({**one, "model": "other"}))) == (0, 20, 0)


def test_markers_strings_and_field_order_are_not_content() -> None:
    """TURN-9: cache_control is ignored for hashing and counting; a string is one text block."""
    server = FakeUpstream()
    server.respond(body({"role": "user", "content": "a"}, system="s"))
    server.respond(body(user({"text": "a", "type": "text", **MARK}), system=[t("s", **HOUR)]))
    assert server.statistics.prefix_moves == []
    assert server.count_tokens(body(user(t("a")))) == server.count_tokens(body(user(t("a", **MARK))))


def test_order_inside_a_tool_input_is_content() -> None:
    """REL-5: a call whose arguments come back in another order is another prefix."""
    server = FakeUpstream()
    for given in ({"a": 1, "b": 2}, {"b": 2, "a": 1}):
        call = {"type": "tool_use", "id": "x", "name": "Read", "input": given}
        server.respond(body(user(t("a")), {"role": "assistant", "content": [call]}, user(result("x"))))
    assert [move.path for move in server.statistics.prefix_moves] == ["messages.1.content.0"]


def test_a_shorter_prompt_is_a_move_and_sessions_are_apart() -> None:
    server = FakeUpstream()
    server.respond(body(user(t("a"), t("b"))), session="one")
    server.respond(body(user(t("z"))), session="two")
    server.respond(body(user(t("a"), t("b"))), session="one")
    assert server.statistics.prefix_moves == []
    server.respond(body(user(t("a"))), session="one")
    assert [(move.session, move.path) for move in server.statistics.prefix_moves] == [("one", "end")]
    server.respond(body(user(t("q")), metadata={"user_id": "two"}))
    assert [move.session for move in server.statistics.prefix_moves] == ["one", "two"]


def test_a_deferred_tool_is_not_part_of_the_prompt() -> None:
    server, _ = cache_server()
    late = {"name": "Late", "input_schema": {"type": "object"}, "defer_loading": True}
    server.respond(body(user(t("a", **MARK))))
    assert parts(server.respond(body(user(t("a", **MARK)), tools=[late]))) == (10, 0, 0)


# --- window -----------------------------------------------------------------------------------------------------------


def refusal(server: FakeUpstream, request: bytes, **more: Any) -> UpstreamError:
    with pytest.raises(UpstreamError) as caught:
        server.respond(request, **more)
    return caught.value


def test_a_prompt_over_the_window_is_refused_with_both_numbers() -> None:
    """TURN-11: the size the error states is what seeds the reactive compaction."""
    server = FakeUpstream(rules=ModelRules(window_tokens=25), count=ten_tokens)
    assert server.respond(body(user(t("a"), t("b")))).usage.prompt_tokens == 20
    error = refusal(server, body(user(t("a"), t("b"), t("c"))))
    assert (error.status, error.type) == (400, "invalid_request_error")
    assert error.message == "prompt is too long: 30 tokens > 25 maximum"
    assert error.violations[0].rule == "window"


def test_older_models_refuse_output_that_does_not_fit() -> None:
    rules = ModelRules(window_tokens=1005, output_must_fit=True)
    error = refusal(FakeUpstream(rules=rules, count=ten_tokens), body(user(t("a"))))
    assert error.message.startswith("input length and `max_tokens` exceed context limit: 10 + 1000 > 1005")


def test_models_have_their_own_rules() -> None:
    server = FakeUpstream(rules=lambda model: ModelRules(window_tokens=5 if model == "tiny" else 100), count=ten_tokens)
    server.respond(body(user(t("a"))))
    tiny = msgspec.json.encode({"model": "tiny", "max_tokens": 9, "messages": [user(t("a"))]})
    assert "10 tokens > 5" in refusal(server, tiny).message


def test_a_model_that_perdure_knows_has_the_limits_of_its_table() -> None:
    """LIB-3: one table says what a model takes; others have the defaults, and who gives rules has those."""

    def asking(model: str, most: int) -> bytes:
        return msgspec.json.encode({"model": model, "max_tokens": most, "messages": [user(t("a"))]})

    server = FakeUpstream()
    for spec in TABLE:
        server.respond(asking(spec.prefix, spec.max_output_tokens))
        said = refusal(server, asking(spec.prefix, spec.max_output_tokens + 1)).message
        assert f"> {spec.max_output_tokens}, which is the maximum" in said
        assert not check_anthropic(asking(spec.prefix, spec.max_output_tokens))
        assert check_anthropic(asking(spec.prefix, spec.max_output_tokens + 1))[0].rule == "max_tokens"
    assert "> 64000" in refusal(server, asking("nobody-knows-it", 64_001)).message
    assert "> 10" in refusal(FakeUpstream(rules=ModelRules(max_output_tokens=10)), asking("gpt-6", 11)).message


def test_ids_are_new_in_every_process_and_the_same_in_every_run() -> None:
    """LIB-3: a session that goes on with a fresh server meets no id twice."""
    script = [say(tool_use("Read"), tool_use("Read"))] * 3

    def ids(server: FakeUpstream, *messages: Any) -> list[str]:
        reply = server.respond(body(*messages))
        return [reply.id, *(block["id"] for block in reply.content)]

    first = FakeUpstream(script=script)
    once, twice = ids(first, user(t("a"))), ids(first, user(t("a")))
    assert len({*once, *twice}) == 6
    assert ids(FakeUpstream(script=script), user(t("a"))) == once
    fresh = ids(FakeUpstream(script=script), user(t("a")), {"role": "assistant", "content": "so"}, user(t("b")))
    assert not {*fresh} & {*once, *twice}


def test_a_refusal_names_the_first_violation_and_counts_all() -> None:
    """REL-4: a test asserts that nothing was refused."""
    server = FakeUpstream()
    error = refusal(server, body(user(t("")), user(t("a", citations=[{}]))))
    assert error.message == "messages.0.content.0: text content blocks must be non-empty"
    assert set(server.statistics.violations) == {"empty_text", "user_citations", "alternation"}
    assert server.statistics.refused == 1
    body_error = refusal(FakeUpstream(rules=ModelRules(max_body_bytes=10)), body(user(t("a"))))
    assert (body_error.status, body_error.type) == (413, "request_too_large")
    assert refusal(server, b"[").violations[0].rule == "json"


def test_the_default_counter() -> None:
    """TOK-1, TOK-2: UTF-16 units of compact JSON / 4, rounded; an image is 2,000, also inside a result."""
    assert count_tokens({"type": "text", "text": "abcd"}) == round(len('{"type":"text","text":"abcd"}') / 4)
    astral = {"type": "text", "text": "\N{GRINNING FACE}" * 40}
    assert count_tokens(astral) == round((len('{"type":"text","text":""}') + 80) / 4)
    image = {"type": "image", "source": {"type": "url", "url": "x"}}
    assert count_tokens(image) == 2000
    assert 4000 < count_tokens({"type": "tool_result", "tool_use_id": "a", "content": [image, image]}) < 4050


# --- thinking ---------------------------------------------------------------------------------------------------------

BOUND = (
    "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation. "
    'Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
)


def finished(server: FakeUpstream, *script: Any) -> list[Json]:
    """Two finished turns with thinking each."""
    messages = [user(t("one"))]
    for words in ("two", "three"):
        reply = server.respond(body(*messages), reply=say(thinking(f"about {words}"), f"answer {words}"))
        messages += [reply.as_param, user(t(words))]
    return messages


def changed(messages: list[Json], index: int, *content: Json) -> list[Json]:
    return [*messages[:index], {**messages[index], "content": list(content)}, *messages[index + 1 :]]


def test_thinking_comes_back_behind_an_unchanged_prefix() -> None:
    """TURN-7: markers may move, nothing else before the block."""
    server = FakeUpstream()
    messages = finished(server)
    server.respond(body(*changed(messages, 0, t("one", **MARK))))
    assert server.statistics.refused == 0


def test_an_edit_before_a_signature_is_refused() -> None:
    """TURN-7: an edit at p invalidates every signed thinking after it."""
    server = FakeUpstream()
    messages = finished(server)
    error = refusal(server, body(*changed(messages, 0, t("ONE"))))
    assert (error.status, error.message) == (400, BOUND)
    assert refusal(server, body(*messages, system="new rules")).message == BOUND
    tools = [{"name": "Read", "input_schema": {"type": "object"}}]
    assert refusal(server, body(*messages, tools=tools)).message == BOUND
    later = refusal(server, body(*changed(messages, 2, t("TWO"))))
    assert later.message.startswith("messages.3.content.0: Invalid `signature`")


def test_after_an_edit_thinking_from_there_on_is_left_out() -> None:
    """TURN-7: this is what a client has to do, and it is accepted."""
    server = FakeUpstream()
    messages = changed(finished(server), 2, t("TWO"))
    assert refusal(server, body(*messages)).violations[0].rule == "thinking_binding"
    messages[3] = {"role": "assistant", "content": messages[3]["content"][1:]}
    server.respond(body(*messages))


def test_drop_block_drops_and_tells() -> None:
    """TURN-7: provider-side handling. What is dropped is neither counted nor cached."""
    server = FakeUpstream(count=ten_tokens)
    messages = finished(server)
    whole = server.respond(body(*messages, **DROP))
    assert (whole.usage.prompt_tokens, whole.input_transformations) == (70, ())
    reply = server.respond(body(*changed(messages, 2, t("TWO")), **DROP))
    assert [item["type"] for item in reply.message["input_transformations"]] == ["thinking_dropped"]
    assert reply.input_transformations[0]["path"] == "messages.3.content.0"
    assert (reply.usage.prompt_tokens, server.statistics.thinking_dropped) == (60, 1)


def test_the_earliest_thinking_may_go_but_not_one_between() -> None:
    server = FakeUpstream()
    messages = finished(server)
    third = server.respond(body(*messages), reply=say(thinking("about four"), "answer"))
    messages += [third.as_param, user(t("four"))]
    plain = [{"role": "assistant", "content": messages[at]["content"][1:]} for at in (1, 3)]
    server.respond(body(messages[0], plain[0], *messages[2:]))
    server.respond(body(messages[0], plain[0], messages[2], plain[1], *messages[4:]))
    assert "messages.5.content.0" in refusal(server, body(*messages[:3], plain[1], *messages[4:])).message
    strict = FakeUpstream(leading_may_go=False)
    strict.respond(body(*messages))
    assert refusal(strict, body(messages[0], plain[0], *messages[2:])).violations[0].path == "messages.3.content.0"


def foreign(words: str = "hm", first: str = "a") -> bytes:
    block = {"type": "thinking", "thinking": words, "signature": "from-a-recording"}
    hidden = {"type": "redacted_thinking", "data": "sealed"}
    return body(user(t(first)), {"role": "assistant", "content": [block, hidden, t("b")]}, user(t("c")))


def test_a_recorded_signature_is_bound_where_it_is_first_seen() -> None:
    """TURN-7: recordings carry signatures nobody here can verify; they must stay where they were."""
    server = FakeUpstream()
    server.respond(foreign())
    server.respond(foreign())
    assert refusal(server, foreign(first="A")).message == BOUND
    modified = refusal(server, foreign(words="HM")).message
    assert modified == "messages.1.content.0: Invalid `signature` in `thinking` block"


def test_own_thinking_with_other_words_is_refused() -> None:
    server = FakeUpstream()
    messages = finished(server)
    thought = {**messages[1]["content"][0], "thinking": "something else"}
    error = refusal(server, body(*changed(messages, 1, thought, messages[1]["content"][1])))
    assert error.message == "messages.1.content.0: Invalid `signature` in `thinking` block"


def test_a_new_server_with_the_same_key_knows_the_signatures() -> None:
    """REL-4: after a restart of the double, as after one of the client, the binding still holds."""
    messages = finished(FakeUpstream())
    FakeUpstream().respond(body(*messages))
    assert refusal(FakeUpstream(), body(*changed(messages, 0, t("ONE")))).message == BOUND


def test_binding_can_be_off_or_left_to_the_request() -> None:
    for binding in ("off", "on_request"):
        server = FakeUpstream(binding=binding)
        edited = changed(finished(server), 0, t("ONE"))
        server.respond(body(*edited))
        reply = server.respond(body(*edited, **DROP))
        assert len(reply.input_transformations) == (0 if binding == "off" else 2)


def open_turn(server: FakeUpstream) -> list[Json]:
    """A turn that waits for the result of a call, its thinking issued here."""
    first = server.respond(body(user(t("go"))), reply=say(thinking("plan"), tool_use("Read", id="a")))
    return [user(t("go")), first.as_param, user(result("a"))]


def test_an_open_loop_needs_its_thinking() -> None:
    """TURN-7: inside an open tool loop thinking comes back as it was issued; after the turn it may go."""
    server = FakeUpstream()
    messages = open_turn(server)
    server.respond(body(*messages))
    bare = changed(messages, 1, messages[1]["content"][1])
    error = refusal(server, body(*bare))
    assert error.violations[0].rule == "open_loop_thinking"
    assert error.message.startswith("messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found")
    other = {"type": "thinking", "thinking": "plan", "signature": "mine"}
    modified = refusal(server, body(*changed(messages, 1, other, messages[1]["content"][1])))
    assert "blocks in the latest assistant message cannot be modified" in modified.message
    server.respond(body(*bare, {"role": "assistant", "content": [t("done")]}, user(t("next"))))
    server.respond(body(*bare, thinking={"type": "disabled"}))
    FakeUpstream(require_thinking=False).respond(body(*bare))


def test_a_loop_of_many_steps_needs_all_its_thinking() -> None:
    server = FakeUpstream()
    messages = open_turn(server)
    second = server.respond(body(*messages), reply=say(thinking("more"), tool_use("Read", id="b")))
    messages += [second.as_param, user(result("b"))]
    server.respond(body(*messages))
    assert (
        refusal(server, body(*changed(messages, 1, messages[1]["content"][1])))
        .violations[0]
        .path.startswith("messages.1.")
    )


def test_all_thinking_of_a_message_comes_back_in_its_order() -> None:
    """TURN-15: with what is redacted, and with blocks whose text is empty."""
    server = FakeUpstream()
    hidden = {"type": "redacted_thinking", "data": "xyz"}
    first = server.respond(body(user(t("go"))), reply=say(thinking(), hidden, tool_use("Read", id="a")))
    said = first.as_param["content"]
    server.respond(body(user(t("go")), first.as_param, user(result("a"))))
    for fewer in (said[1:], [said[0], said[2]], [said[1], said[0], said[2]]):
        messages = [user(t("go")), {"role": "assistant", "content": fewer}, user(result("a"))]
        assert refusal(server, body(*messages)).violations[0].rule == "open_loop_thinking"


def test_thinking_from_elsewhere_comes_back_too() -> None:
    """TURN-15: of a recorded loop, from the first request on that showed it."""
    server = FakeUpstream(binding="off")
    recorded = {"type": "thinking", "thinking": "plan", "signature": "theirs"}
    call = {"type": "tool_use", "id": "a", "name": "Read", "input": {}}
    shown = [user(t("go")), {"role": "assistant", "content": [recorded, call]}, user(result("a"))]
    server.respond(body(*shown))
    assert refusal(server, body(*changed(shown, 1, call))).violations[0].rule == "open_loop_thinking"


def test_a_paused_turn_goes_on_in_the_same_message() -> None:
    """TURN-9: the two answers are merged into one assistant message; the thinking of both is there."""
    server = FakeUpstream()
    search = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    paused = server.respond(body(user(t("go"))), reply=say(thinking("one"), search, stop_reason="pause_turn"))
    found = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
    rest = server.respond(
        body(user(t("go")), paused.as_param), reply=say(found, thinking("two"), tool_use("Read", id="a"))
    )
    merged = {"role": "assistant", "content": [*paused.content, *rest.content]}
    server.respond(body(user(t("go")), merged, user(result("a"))))


def test_thinking_after_a_compaction_block_is_bound_anew() -> None:
    """CMP-12: the server's own summary stands for the turns it replaced."""
    server = FakeUpstream()
    messages = finished(server)
    summary = {"role": "assistant", "content": [{"type": "compaction", "content": "what was"}]}
    server.respond(body(summary, *messages[2:]))
    server.respond(body(summary, *messages[2:], {"role": "assistant", "content": [t("x")]}, user(t("y"))))
    assert "messages.2" in refusal(server, body(summary, *changed(messages, 2, t("TWO"))[2:])).message


def test_what_a_compaction_block_replaced_is_not_counted() -> None:
    server = FakeUpstream(count=ten_tokens)
    threshold = {"context_management": {"edits": [{"type": "compact_20260112"}]}}
    summary = {"role": "assistant", "content": [{"type": "compaction", "content": "what was"}, t("x")]}
    reply = server.respond(body(user(t("a"), t("b")), summary, user(t("c")), system="s", **threshold))
    assert reply.usage.prompt_tokens == 40


# --- answers ----------------------------------------------------------------------------------------------------------


def test_answers_come_in_the_order_of_the_script() -> None:
    server = FakeUpstream(script=["one", say("two", stop_reason="pause_turn", output_tokens=7)])
    replies = [server.respond(body(user(t("a")))) for _ in range(3)]
    assert [reply.content[0]["text"] for reply in replies] == ["one", "two", "ok"]
    assert [reply.stop_reason for reply in replies] == ["end_turn", "pause_turn", "end_turn"]
    assert replies[1].usage.output_tokens == 7
    assert len({reply.id for reply in replies}) == 3
    assert msgspec.json.decode(replies[0].body)["usage"]["output_tokens"] > 0


def test_a_parallel_batch_gets_ids() -> None:
    reply = FakeUpstream().respond(body(user(t("a"))), reply=say("look", tool_use("Read"), tool_use("Grep", {"q": 1})))
    ids = [block["id"] for block in reply.content[1:]]
    assert len(set(ids)) == 2 and reply.stop_reason == "tool_use"
    FakeUpstream().respond(body(user(t("a")), reply.as_param, user(*[result(id) for id in ids])))


@pytest.mark.parametrize("reason", ["max_tokens", "refusal", "model_context_window_exceeded", "pause_turn"])
def test_stop_reasons(reason: Any) -> None:
    details = {"type": "refusal"} if reason == "refusal" else None
    reply = FakeUpstream().respond(body(user(t("a"))), reply=say("x", stop_reason=reason, stop_details=details))
    assert reply.message["stop_reason"] == reason
    assert reply.message.get("stop_details") == details


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (rate_limited(30), 429, "rate_limit_error"),
        (overloaded(), 529, "overloaded_error"),
        (server_error(), 500, "api_error"),
        (prompt_too_long(205_123, 200_000), 400, "invalid_request_error"),
    ],
)
def test_scripted_errors(error: UpstreamError, status: int, kind: str) -> None:
    """TURN-11: each step of the ladder can be scripted; an error leaves no trace in cache or prefix."""
    server = FakeUpstream(script=[error], rules=ModelRules(min_cacheable_tokens=1))
    caught = refusal(server, body(user(t("a", **MARK))))
    assert (caught.status, caught.type) == (status, kind)
    assert msgspec.json.decode(caught.body)["error"] == {"type": kind, "message": caught.message}
    assert caught.headers == ({"retry-after": "30"} if status == 429 else {})
    assert (server.statistics.failed, server.statistics.refused) == (1, 0)
    assert server.respond(body(user(t("a", **MARK)))).usage.cache_read_input_tokens == 0


def test_a_prewarm_writes_the_cache_and_says_nothing() -> None:
    server = FakeUpstream(rules=ModelRules(min_cacheable_tokens=1))
    warm = server.respond(msgspec.json.encode({"model": "m", "max_tokens": 0, "messages": [user(t("a", **MARK))]}))
    assert (warm.content, warm.stop_reason, warm.usage.output_tokens) == ((), "max_tokens", 0)
    assert server.respond(body(user(t("a", **MARK)))).usage.cache_read_input_tokens > 0


# --- streams ----------------------------------------------------------------------------------------------------------


def events(stream: EventStream) -> list[Json]:
    return [msgspec.json.decode(raw.split(b"data: ", 1)[1]) for raw in stream]


def streamed() -> UpstreamReply:
    script = say(thinking("a plan"), "some words", tool_use("Read", {"path": "/x"}, id="a"))
    return FakeUpstream().respond(body(user(t("a"))), reply=script)


def test_events_come_in_the_order_of_the_wire() -> None:
    reply = streamed()
    seen = events(EventStream(reply, chars=5))
    kinds = [event["type"] for event in seen]
    assert kinds[:3] == ["message_start", "ping", "content_block_start"]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert seen[0]["message"]["content"] == [] and seen[0]["message"]["usage"]["output_tokens"] == 1
    deltas = [
        event["delta"]["type"] for event in seen if event["type"] == "content_block_delta" and event["index"] == 0
    ]
    assert deltas == ["thinking_delta", "thinking_delta", "signature_delta"]
    assert seen[-2]["delta"]["stop_reason"] == "tool_use" and seen[-2]["usage"] == reply.usage.as_json()
    assert next(iter(EventStream(reply))).startswith(b"event: message_start\ndata: {")


def test_joined_deltas_are_the_message() -> None:
    reply = streamed()
    blocks: dict[int, Json] = {}
    for event in events(EventStream(reply, chars=3)):
        if event["type"] == "content_block_start":
            blocks[event["index"]] = {**event["content_block"], "json": ""}
        if event["type"] == "content_block_delta":
            block, delta = blocks[event["index"]], event["delta"]
            for source, target in (("text", "text"), ("thinking", "thinking"), ("partial_json", "json")):
                block[target] = block.get(target, "") + delta.get(source, "") if source in delta else block.get(target)
            block["signature"] = delta.get("signature", block.get("signature"))
    for block, sent in zip(blocks.values(), reply.content, strict=True):
        if block["json"]:
            block["input"] = msgspec.json.decode(block["json"])
        assert {name: block[name] for name in sent} == sent


def test_a_compaction_comes_in_one_delta() -> None:
    block = {"type": "compaction", "content": "what was", "encrypted_content": "x"}
    reply = FakeUpstream().respond(body(user(t("a"))), reply=ScriptedAnswer((block,), "compaction"))
    (delta,) = [event["delta"] for event in events(EventStream(reply)) if event["type"] == "content_block_delta"]
    assert delta == {"type": "compaction_delta", "content": "what was", "encrypted_content": "x"}


def test_an_error_in_the_middle_of_a_stream() -> None:
    assert error_event(overloaded()).startswith(
        b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error"'
    )


def test_openai_chunks() -> None:
    stream = EventStream(streamed(), dialect="openai", chars=4, include_usage=True)
    lines = list(stream)
    assert lines[-1] == b"data: [DONE]\n\n" and stream.body.endswith(lines[-1])
    chunks = [msgspec.json.decode(line[6:]) for line in lines[:-1]]
    assert chunks[-1]["choices"] == [] and chunks[-1]["usage"]["prompt_tokens"] > 0
    assert chunks[-2]["choices"][0]["finish_reason"] == "tool_calls"
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks[:-2]]
    assert "".join(delta.get("content", "") for delta in deltas) == "some words"
    calls = [delta["tool_calls"][0] for delta in deltas if "tool_calls" in delta]
    assert calls[0]["id"] == "a" and "".join(call["function"]["arguments"] for call in calls) == '{"path":"/x"}'


def test_openai_completion() -> None:
    whole = openai_completion(streamed())
    message = whole["choices"][0]["message"]
    assert message["content"] == "some words" and message["tool_calls"][0]["function"]["arguments"] == '{"path":"/x"}'
    assert whole["usage"]["total_tokens"] == whole["usage"]["prompt_tokens"] + whole["usage"]["completion_tokens"]
    none = openai_completion(FakeUpstream().respond(body(user(t("a"))), reply=say(tool_use("Read"))))
    assert none["choices"][0]["message"]["content"] is None


# --- cost -------------------------------------------------------------------------------------------------------------


def grow(turns: int) -> tuple[FakeUpstream, int]:
    """An append-only session with a moving tail marker; returns the server and the bytes of its last request."""
    chance = random.Random(7)
    server = FakeUpstream(rules=ModelRules(window_tokens=10_000_000))
    messages: list[Json] = [user(t("go"))]
    request = b""
    for turn in range(turns):
        words = "".join(chance.choices("abcdefgh \n", k=500))
        sent = [*messages[:-1], {**messages[-1], "content": [{**messages[-1]["content"][0], **MARK}]}]
        request = body(*sent, system=[t("rules", **MARK)])
        reply = server.respond(request, reply=say(thinking(words), tool_use("Read", {"path": words}, id=f"t{turn}")))
        messages += [reply.as_param, user(result(f"t{turn}", words))]
    return server, len(request)


def test_hashing_is_linear_in_the_conversation(monkeypatch: pytest.MonkeyPatch) -> None:
    """TURN-14: twice the turns is twice the hashing, not four times; every message is hashed a few times at most."""
    hashed, links, link = list[int](), list[bytes](), cache.link

    def hashing(data: bytes) -> Any:
        hashed.append(len(data))
        return sha256(data)

    def linking(before: bytes, block: DecodedBlock) -> bytes:
        links.append(block.digest)
        return link(before, block)

    monkeypatch.setattr("perdure.testing.request.sha256", hashing)
    monkeypatch.setattr(cache, "link", linking)
    small, _ = grow(50)
    content, steps = sum(hashed), len(links)
    hashed.clear()
    links.clear()
    large, size = grow(100)
    assert small.statistics.answered == 50 and 0 < sum(hashed) < 2.1 * content
    assert 0 < len(links) < 2.1 * steps and sum(hashed) < 3 * size
    assert large.statistics.prefix_moves == [] and large.statistics.refused == 0
    assert 0.9 < large.statistics.writes_per_content_token <= 1.0


def test_a_text_reply_is_a_script() -> None:
    assert say("a", text("b")).content == (text("a"), text("b"))
