"""REL-4, TURN-9: what makes a request valid. Every rule has a request that keeps it and one that breaks it."""

from __future__ import annotations

import base64
import re
import struct
from pathlib import Path
from typing import Any

import msgspec
import pytest

import perdure.testing
from perdure.testing import ModelRules, check_anthropic, check_openai, check_responses

pytestmark = pytest.mark.unit

Json = dict[str, Any]


def user(*content: Any) -> Json:
    return {"role": "user", "content": list(content)}


def assistant(*content: Any) -> Json:
    return {"role": "assistant", "content": list(content)}


def system(words: str) -> Json:
    return {"role": "system", "content": words}


def t(words: str, **more: Any) -> Json:
    return {"type": "text", "text": words, **more}


def call(id: str = "a", **more: Any) -> Json:
    return {"type": "tool_use", "id": id, "name": "Read", "input": {}, **more}


def result(id: str = "a", content: Any = "done", **more: Any) -> Json:
    return {"type": "tool_result", "tool_use_id": id, "content": content, **more}


def think(signature: str = "sig", **more: Any) -> Json:
    return {"type": "thinking", "thinking": "hm", "signature": signature, **more}


def server_call(id: str = "s") -> Json:
    return {"type": "server_tool_use", "id": id, "name": "web_search", "input": {"query": "x"}}


def server_result(id: str = "s") -> Json:
    return {"type": "web_search_tool_result", "tool_use_id": id, "content": []}


def png(width: int = 10, height: int = 10, extra: int = 0) -> Json:
    raw = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", width, height) + b"\0" * extra
    return image(base64.b64encode(raw).decode())


def image(data: str, media_type: str = "image/png") -> Json:
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}


def jpeg(width: int, height: int) -> Json:
    raw = b"\xff\xd8\xff\xe0\x00\x04\0\0\xff\xc0\x00\x0b\x08" + struct.pack(">HH", height, width) + b"\0" * 8
    return image(base64.b64encode(raw).decode(), "image/jpeg")


def gif(width: int, height: int) -> Json:
    return image(base64.b64encode(b"GIF89a" + struct.pack("<HH", width, height)).decode(), "image/gif")


def document() -> Json:
    return {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x"}}


def compaction(content: str | None = "summary") -> Json:
    return {"type": "compaction", "content": content}


def tool(name: str = "Read", **more: Any) -> Json:
    return {"name": name, "input_schema": {"type": "object"}, **more}


def mark(ttl: str | None = None) -> Json:
    return {"cache_control": {"type": "ephemeral"} if ttl is None else {"type": "ephemeral", "ttl": ttl}}


def body(*messages: Any, **more: Any) -> Json:
    return {"model": "m", "max_tokens": 100, "messages": list(messages) or [user(t("hi"))], **more}


def loop(*blocks: Json) -> tuple[Json, Json, Json]:
    return user(t("hi")), assistant(*blocks), user(result())


PAIR = (user(t("hi")), assistant(call()))
THRESHOLD = {"context_management": {"edits": [{"type": "compact_20260112"}]}}
SMALL = ModelRules(max_image_bytes=200, max_media_bytes=300, max_media=2)

# rule: (a request that keeps it, one that breaks it, the path of the violation[, the model's rules])
RULES: dict[str, tuple[Any, ...]] = {
    "json": (body(), b"{", ""),
    "body_bytes": (body(), body(user(t("x" * 300))), "", ModelRules(max_body_bytes=200)),
    "required_field": (body(), {"max_tokens": 1, "messages": [user(t("hi"))]}, "model"),
    "request_field": (body(stream=True), body(view="x"), "view"),
    "sampling": (body(), body(temperature=1), "temperature"),
    "message_count": (body(), body(*PAIR, user(result())), "messages", ModelRules(max_messages=2)),
    "max_tokens": (body(), body(max_tokens=99_999), "max_tokens"),
    "no_messages": (body(), {**body(), "messages": []}, "messages"),
    "message_shape": (
        body({"role": "user", "content": "hi"}),
        body({"role": "user", "content": 3}),
        "messages.0.content",
    ),
    "message_field": (body(), body({**user(t("hi")), "id": "x"}), "messages.0.id"),
    "role": (body(), body({"role": "tool", "content": "x"}), "messages.0.role"),
    "first_message": (body(), body(assistant(t("hi")), user(t("hi"))), "messages.0"),
    "alternation": (body(user(t("a"), t("b"))), body(user(t("a")), user(t("b"))), "messages.1"),
    "prefill": (body(*PAIR, user(result())), body(user(t("a")), assistant(t("b"))), "messages.1"),
    "empty_content": (body(), body(user()), "messages.0"),
    "empty_text": (body(), body(user(t("a"), t(""))), "messages.0.content.1"),
    "blank_text": (body(user(t(" "), t("a"))), body(user(t(" \n"))), "messages.0"),
    "block_shape": (body(), body(user("words")), "messages.0.content.0"),
    "block_fields": (body(), body(user({"type": "text"})), "messages.0.content.0"),
    "unknown_field": (body(), body(user(t("a", uuid="x"))), "messages.0.content.0"),
    "unknown_block": (body(), body(user({"type": "hologram"})), "messages.0.content.0"),
    "wrong_place": (body(*loop(call())), body(user(call())), "messages.0.content.0"),
    "thinking_signature": (body(*loop(think(), call())), body(*loop(think(""), call())), "messages.1.content.0"),
    "marker_on_thinking": (
        body(*loop(think(), call(**mark()))),
        body(*loop(think(**mark()), call())),
        "messages.1.content.0",
    ),
    "marker_on_empty_text": (body(user(t("a", **mark()))), body(user(t("", **mark()))), "messages.0.content.0"),
    "marker_count": (
        body(user(*[t("a", **mark())] * 3), system=[t("s", **mark())]),
        body(user(*[t("a", **mark())] * 3), system=[t("s", **mark())], tools=[tool(**mark())]),
        "messages.0.content.2.cache_control",
    ),
    "marker_order": (
        body(user(t("a", **mark())), system=[t("s", **mark("1h"))]),
        body(user(t("a", **mark("1h"))), system=[t("s", **mark())]),
        "messages.0.content.0.cache_control",
    ),
    "marker_shape": (body(**mark()), body(tools=[tool(**mark("2h"))]), "tools.0.cache_control"),
    "automatic_marker": (
        body(user(t("a", **mark())), **mark()),
        body(user(t("a", **mark())), **mark("1h")),
        "cache_control",
    ),
    "unanswered_tool_use": (
        body(user(t("hi")), assistant(call("a"), call("b")), user(result("b"), result("a"))),
        body(user(t("hi")), assistant(call("a"), call("b")), user(result("a"))),
        "messages.1",
    ),
    "results_first": (body(*PAIR, user(result(), t("and"))), body(*PAIR, user(t("and"), result())), "messages.2"),
    "orphan_result": (body(*PAIR, user(result())), body(*PAIR, user(result(), result("z"))), "messages.2.content.1"),
    "duplicate_result": (body(*PAIR, user(result())), body(*PAIR, user(result(), result())), "messages.2.content.1"),
    "duplicate_tool_use": (
        body(*PAIR, user(result()), assistant(call("b")), user(result("b"))),
        body(*PAIR, user(result()), assistant(call()), user(result())),
        "messages.3.content.0",
    ),
    "tool_id": (body(*loop(call())), body(user(t("a")), assistant(call("a.b:0")), user(result("a.b:0"))), None),
    "tool_name": (body(*loop(call())), body(*loop(call(name=""))), "messages.1.content.0"),
    "error_result": (
        body(*PAIR, user(result(content=[t("no")], is_error=True))),
        body(*PAIR, user(result(content=[png()], is_error=True))),
        "messages.2.content.0",
    ),
    "orphan_server_result": (
        body(user(t("a")), assistant(server_call(), server_result(), t("b")), user(t("c"))),
        body(user(t("a")), assistant(server_result(), t("b")), user(t("c"))),
        "messages.1.content.0",
    ),
    "unresolved_server_tool": (
        body(user(t("a")), assistant(server_call(), call()), user(result())),
        body(user(t("a")), assistant(server_call(), call()), user(result(), t("go on"))),
        "messages.2",
    ),
    "system_message": (
        body(user(t("a")), system("s"), assistant(t("b")), user(t("c")), system("s")),
        body(user(t("a")), assistant(t("b")), system("s")),
        "messages.2",
    ),
    "user_citations": (
        body(user(t("a")), assistant(t("b", citations=[{"type": "char_location"}])), user(t("c"))),
        body(user(t("a", citations=[{"type": "char_location"}]))),
        "messages.0.content.0",
    ),
    "assistant_document": (
        body(user(document())),
        body(user(t("a")), assistant(document()), user(t("b"))),
        "messages.1.content.0",
    ),
    "media_type": (body(user(png())), body(user(image("AAAA", "image/tiff"))), "messages.0.content.0"),
    "media_data": (body(user(png())), body(user(image("not base64"))), "messages.0.content.0"),
    "image_bytes": (body(user(png())), body(user(png(extra=200))), "messages.0.content.0", SMALL),
    "image_side": (body(user(png(8000))), body(user(png(8001))), "messages.0.content.0"),
    "media_count": (body(user(png(), png())), body(*PAIR, user(result(content=[png()] * 3))), "messages", SMALL),
    "media_bytes": (body(user(png())), body(user(png(extra=90), png(extra=90))), "messages", SMALL),
    "many_images_side": (body(user(*[png(2001)] * 20)), body(user(*[png(2001)] * 21)), "messages.0"),
    "compaction_empty": (
        body(assistant(compaction(None)), user(t("a"))),
        body(assistant(compaction("")), user(t("a"))),
        None,
    ),
    "compaction_misplaced": (
        body(assistant(compaction()), user(t("a"))),
        body(user(t("a")), assistant(compaction()), user(t("b"))),
        "messages.1.content.0",
    ),
    "compaction_ambiguous": (
        body(
            user(t("a")),
            assistant(compaction(), t("b")),
            user(t("c")),
            assistant(compaction()),
            user(t("d")),
            **THRESHOLD,
        ),
        body(assistant(compaction(), compaction()), user(t("a"))),
        "messages",
    ),
    "compaction_request": (
        body(compaction={"type": "summarize"}),
        body(compaction={}, context_management={}),
        "compaction",
    ),
    "thinking_config": (
        body(max_tokens=4000, thinking={"type": "enabled", "budget_tokens": 1024}),
        body(max_tokens=1024, thinking={"type": "enabled", "budget_tokens": 1024}),
        "thinking",
    ),
    "thinking_first": (
        body(*loop(think(), call()), max_tokens=4000, thinking={"type": "enabled", "budget_tokens": 1024}),
        body(*loop(call()), max_tokens=4000, thinking={"type": "enabled", "budget_tokens": 1024}),
        "messages.1.content.0",
    ),
    "tools": (body(tools=[tool()]), body(tools=[{"name": "Read"}]), "tools.0"),
    "tool_names": (body(tools=[tool(), tool("B")]), body(tools=[tool(), tool()]), "tools.1"),
    "tool_choice": (
        body(tools=[tool()], tool_choice={"type": "tool", "name": "Read"}),
        body(tools=[tool()], tool_choice={"type": "tool", "name": "Write"}),
        "tool_choice",
    ),
    "system": (body(system="be brief"), body(system=3), "system"),
}


@pytest.mark.parametrize("rule", RULES)
def test_rule_keeps_and_breaks(rule: str) -> None:
    """REL-4: the first request is valid; the second breaks this rule at this place."""
    good, bad, path, *more = RULES[rule]
    rules = more[0] if more else None
    assert check_anthropic(good, model_rules=rules) == []
    found = [violation for violation in check_anthropic(bad, model_rules=rules) if violation.rule == rule]
    assert found, f"{rule} was not found"
    assert path is None or found[0].path == path


def call_to(id: str = "a", arguments: Any = "{}", **more: Any) -> Json:
    return {"id": id, "type": "function", "function": {"name": "Read", "arguments": arguments}, **more}


def calls(*items: Json, content: Any = None) -> Json:
    return {"role": "assistant", "content": content, "tool_calls": list(items)}


def answer(id: str = "a", content: Any = "done") -> Json:
    return {"role": "tool", "tool_call_id": id, "content": content}


def says(role: str, content: Any = "hi") -> Json:
    return {"role": role, "content": content}


def chat(*messages: Any) -> Json:
    return {"model": "m", "messages": list(messages)}


ASK = says("user")
OPENAI_RULES: dict[str, tuple[Any, Any, str]] = {
    "json": (chat(ASK), b"[1]", ""),
    "required_field": (chat(ASK), {"messages": [ASK]}, "model"),
    "no_messages": (chat(ASK), chat(), "messages"),
    "tools": (
        {**chat(ASK), "tools": [{"type": "function", "function": {"name": "Read"}}]},
        {**chat(ASK), "tools": [{"type": "robot"}]},
        "tools[0].type",
    ),
    "role": (chat(says("developer"), ASK), chat(says("robot")), "messages.0"),
    "message_field": (chat({**ASK, "name": "x"}), chat({**ASK, "id": "x"}), "messages.0"),
    "content": (chat(ASK, calls(call_to()), answer()), chat(ASK, says("assistant", None)), "messages.1"),
    "content_part": (
        chat(says("user", [{"type": "image_url", "image_url": {"url": "data:"}}])),
        chat(ASK, calls(call_to()), answer(content=[{"type": "image_url", "image_url": {"url": "data:"}}])),
        "messages.2.content.0",
    ),
    "tool_call_id": (chat(ASK, calls(call_to()), answer()), chat(ASK, {"role": "tool", "content": "x"}), "messages.1"),
    "tool_calls": (chat(ASK, calls(call_to()), answer()), chat(ASK, calls()), "messages.1"),
    "duplicate_tool_call": (
        chat(ASK, calls(call_to("a"), call_to("b")), answer("b"), answer("a")),
        chat(ASK, calls(call_to("a"), call_to("a")), answer("a")),
        "messages.1.tool_calls.1",
    ),
    "arguments": (
        chat(ASK, calls(call_to(arguments="{not json")), answer()),
        chat(ASK, calls(call_to(arguments={})), answer()),
        "messages.1.tool_calls.0",
    ),
    "unanswered_tool_call": (
        chat(ASK, calls(call_to("a"), call_to("b")), answer("a"), answer("b"), ASK),
        chat(ASK, calls(call_to("a"), call_to("b")), answer("a"), ASK, answer("b")),
        "messages.1",
    ),
    "orphan_result": (chat(ASK, calls(call_to()), answer()), chat(ASK, answer()), "messages.1"),
    "duplicate_result": (
        chat(ASK, calls(call_to()), answer()),
        chat(ASK, calls(call_to()), answer(), answer()),
        "messages.3",
    ),
    "system_first": (chat(says("system"), ASK), chat(ASK, says("system")), "messages.1"),
    "alternation": (chat(ASK, says("assistant"), ASK), chat(ASK, ASK), "messages.1"),
}


@pytest.mark.parametrize("rule", OPENAI_RULES)
def test_openai_rule_keeps_and_breaks(rule: str) -> None:
    """TURN-9: the Chat Completions rules, each kept by one request and broken by another."""
    good, bad, path = OPENAI_RULES[rule]
    assert check_openai(good) == []
    found = [violation for violation in check_openai(bad) if violation.rule == rule]
    assert found, f"{rule} was not found"
    assert found[0].path == path


def asks(*items: Any, **more: Any) -> Json:
    return {"model": "m", "input": list(items), **more}


def called(id: str = "c", **more: Any) -> Json:
    return {"type": "function_call", "call_id": id, "name": "Read", "arguments": "{}", **more}


def answered(id: str = "c", **more: Any) -> Json:
    return {"type": "function_call_output", "call_id": id, "output": "done", **more}


def reasoned(**more: Any) -> Json:
    return {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x", **more}


FUNCTION = {"type": "function", "name": "Read", "parameters": {"type": "object"}}
TRIGGER = {"type": "compaction_trigger"}
RESPONSES_RULES: dict[str, tuple[Any, Any, str]] = {
    "json": (asks(ASK), b"[1]", ""),
    "required_field": (asks(ASK), asks(), "input"),
    "request_field": (asks(ASK, prompt_cache_key="k"), asks(ASK, max_tokens=1), "max_tokens"),
    "field_type": (asks(ASK, store=False), asks(ASK, max_output_tokens=True), "max_output_tokens"),
    "background_store": (asks(ASK, background=True), asks(ASK, background=True, store=False), "background"),
    "field_value": (asks(ASK, tools=[FUNCTION]), asks(ASK, tools=[{**FUNCTION, "name": "a b"}]), "tools[0].name"),
    "exclusive": (
        asks(ASK, previous_response_id="resp_1"),
        asks(ASK, previous_response_id="resp_1", conversation="conv_1"),
        "previous_response_id",
    ),
    "least": (asks(ASK, max_output_tokens=16), asks(ASK, max_output_tokens=15), "max_output_tokens"),
    "tool_choice": (
        asks(ASK, tools=[FUNCTION], tool_choice={"type": "function", "name": "Read"}),
        asks(ASK, tool_choice={"type": "function", "name": "Read"}),
        "tool_choice",
    ),
    "item_field": (asks(ASK, called(status="completed"), answered()), asks({**ASK, "name": "x"}), "input[0].name"),
    "item_kind": (asks({**ASK, "type": "message"}), asks({"type": "hologram"}), "input[0]"),
    "item_id": (asks(called() | {"id": "fc_1"}, answered()), asks(called() | {"id": "x"}), "input[0].id"),
    "id_length": (asks(called(), answered()), asks(called("c" * 65), answered("c" * 65)), "input[0].call_id"),
    "role": (asks({"role": "developer", "content": "x"}), asks({"role": "tool", "content": "x"}), "input[0].role"),
    "content_part": (
        asks({"role": "assistant", "content": [{"type": "output_text", "text": "x"}]}),
        asks({"role": "assistant", "content": [{"type": "input_text", "text": "x"}]}),
        "input[0].content[0]",
    ),
    "duplicate_item": (asks({**ASK, "id": "msg_1"}), asks({**ASK, "id": "msg_1"}, {**ASK, "id": "msg_1"}), "input"),
    "duplicate_call": (asks(called(), answered()), asks(called(), answered(), called()), "input[2]"),
    "duplicate_output": (asks(called(), answered()), asks(called(), answered(), answered()), "input[2]"),
    "orphan_output": (asks(called(), answered()), asks(answered(), called()), "input[0]"),
    "unanswered_call": (asks(called(), called("d"), answered("d"), answered()), asks(ASK, called()), "input"),
    "reasoning_alone": (asks(ASK, reasoned(), called(), answered()), asks(reasoned(), ASK), "input[0]"),
    "trigger_last": (asks(ASK, TRIGGER), asks(TRIGGER, ASK), "input[0]"),
}


@pytest.mark.parametrize("rule", RESPONSES_RULES)
def test_responses_rule_keeps_and_breaks(rule: str) -> None:
    """GW-6: the rules of the Responses API, each kept by one request and broken by another."""
    good, bad, path = RESPONSES_RULES[rule]
    assert check_responses(good) == []
    found = [violation for violation in check_responses(bad) if violation.rule == rule]
    assert found, f"{rule} was not found"
    assert found[0].path == path


def test_every_rule_in_the_sources_is_in_a_table() -> None:
    """A rule that no request here breaks is a rule nobody has seen fail."""
    folder = Path(perdure.testing.__file__).parent
    named: dict[str, set[str]] = {"openai": set(), "responses": set(), "anthropic": set()}
    for source in folder.glob("*.py"):
        names = re.findall(r"(?:Violation|Found|_unanswered|_unknown|_wrong_value)\(\s*\"(\w+)\"", source.read_text())
        protocol = "responses" if source.stem == "conversations" else source.stem.partition("_")[0]
        named[protocol if protocol in named else "anthropic"].update(names)
    upstream_only = {"window", "thinking_binding", "open_loop_thinking"}  # test_upstream.py
    assert named["anthropic"] - upstream_only == set(RULES)
    assert named["openai"] == set(OPENAI_RULES)
    # tests/contract/test_responses_upstream.py, tests/e2e/test_gateway_conversations.py, test_gateway_background.py
    of_the_server = {"previous_response", "encrypted_content", "reasoning_missing"}
    of_the_server |= {"conversation", "conversation_item", "path", "cancel"}
    assert named["responses"] - of_the_server == set(RESPONSES_RULES)


def text_of(request: Any, rule: str, **more: Any) -> str:
    return next(violation.text for violation in check_anthropic(request, **more) if violation.rule == rule)


def test_texts_are_those_of_the_real_server() -> None:
    assert text_of(body(*PAIR, user(t("no"))), "unanswered_tool_use") == (
        "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: a. "
        "Each `tool_use` block must have a corresponding `tool_result` block in the next message."
    )
    assert "unexpected `tool_use_id` found in `tool_result` blocks: a" in text_of(body(user(result())), "orphan_result")
    said = "This model does not support assistant message prefill. The conversation must end with a user message."
    assert text_of(body(user(t("a")), assistant(t("b"))), "prefill") == said
    assert text_of(RULES["marker_count"][1], "marker_count") == (
        "A maximum of 4 blocks with cache_control may be provided. Found 5."
    )
    assert text_of(body(user({"type": "text"})), "block_fields") == "messages.0.content.0: text.text: Field required"
    image_source = {"type": "image", "source": {"type": "base64", "media_type": "image/png"}}
    assert (
        text_of(body(user(image_source)), "block_fields") == "messages.0.content.0: image.source.data: Field required"
    )
    assert "Input should be a valid string" in text_of(body(user(t(3))), "block_fields")  # type: ignore[arg-type]


def test_lenient_mode_merges_what_strict_refuses() -> None:
    """TURN-9: a parallel batch answered in two user messages is one turn for the server, and two for `strict`."""
    request = body(user(t("hi")), assistant(call("a")), assistant(call("b")), user(result("b")), user(result("a")))
    assert check_anthropic(request, strict=False) == []
    assert [violation.rule for violation in check_anthropic(request)] == ["alternation", "alternation"]
    late = body(user(t("hi")), assistant(call("a")), user(t("x")), user(result("a")))
    assert [violation.rule for violation in check_anthropic(late, strict=False)] == ["results_first"]


def test_unknown_blocks_and_fields_can_be_allowed() -> None:
    """ENG-1: strangers are kept verbatim, so a test of that needs a server that takes them."""
    request = body(user({"type": "hologram"}, t("a", depth=3)))
    assert {violation.rule for violation in check_anthropic(request)} == {"unknown_block", "unknown_field"}
    assert check_anthropic(request, model_rules=ModelRules(allow_unknown=True)) == []


def test_what_is_resent_as_it_came_may_end_with_an_assistant() -> None:
    paused = body(user(t("a")), assistant(server_call()))
    assert check_anthropic(paused) == []
    assert check_anthropic(body(assistant(compaction()))) == []
    prefilled = body(user(t("a")), assistant(t("b")))
    assert check_anthropic(prefilled, model_rules=ModelRules(prefill=True)) == []
    assert check_anthropic({**prefilled, "compaction": {"type": "summarize"}}) == []


def test_a_system_message_never_stands_between_call_and_result() -> None:
    """TURN-9: nothing may stand there, and an older model takes no system message at all."""
    request = body(*PAIR, system("s"), user(result()))
    assert {"system_message", "unanswered_tool_use", "orphan_result"} <= {v.rule for v in check_anthropic(request)}
    allowed = body(user(t("a")), system("s"))
    assert check_anthropic(allowed, model_rules=ModelRules(system_messages=False))[0].rule == "system_message"


def test_a_system_message_that_only_sets_the_effort_says_nothing_and_stands_anywhere() -> None:
    """GW-7: Claude Code sends one behind its own compaction; one without words and without effort is refused."""
    effort = {"role": "system", "content": [], "output_config": {"effort": "low"}}
    assert check_anthropic(body(user(t("a")), assistant(t("b")), effort, user(t("c")))) == []
    assert check_anthropic(body(user(t("a")), effort, user(t("b")))) == []
    empty = check_anthropic(body(user(t("a")), {**effort, "output_config": {}}))
    assert [violation.rule for violation in empty] == ["empty_content"]
    beside = check_anthropic(body(user(t("a")), assistant(t("b")), effort, system("s"), user(t("c"))))
    assert "system_message" in [violation.rule for violation in beside]


def test_media_limit_follows_the_window() -> None:
    assert ModelRules().media_limit == 100
    assert ModelRules(window_tokens=1_000_000).media_limit == 600


@pytest.mark.parametrize("picture", [png(9000, 1), jpeg(9000, 1), jpeg(1, 9000), gif(1, 9000)])
def test_dimensions_are_read_from_the_picture(picture: Json) -> None:
    assert [violation.rule for violation in check_anthropic(body(user(picture)))] == ["image_side"]


def test_nested_blocks_are_checked_where_they_are() -> None:
    found = check_anthropic(body(*PAIR, user(result(content=[t("a"), t("")]))))
    assert [(violation.rule, violation.path) for violation in found] == [
        ("empty_text", "messages.2.content.0.content.1")
    ]
    wrong = check_anthropic(body(*PAIR, user(result(content=[think()]))))
    assert [violation.rule for violation in wrong] == ["wrong_place"]


def test_a_marker_inside_a_tool_input_is_data() -> None:
    used = call(input={"cache_control": {"type": "ephemeral"}})
    assert (
        check_anthropic(
            body(
                user(t("hi")),
                assistant(*[{**used, "id": f"a{n}"} for n in range(5)]),
                user(*[result(f"a{n}") for n in range(5)]),
            )
        )
        == []
    )


def test_bytes_and_objects_are_the_same_request() -> None:
    bad = body(user(t("")))
    assert check_anthropic(msgspec.json.encode(bad)) == check_anthropic(bad)
    assert check_openai(msgspec.json.encode(chat(ASK, ASK))) == check_openai(chat(ASK, ASK))


def test_openai_lenient_mode() -> None:
    assert check_openai(chat(ASK, says("system"), ASK, ASK), strict=False) == []
