"""What hooks are told and what their answers mean, as plain values (CMP-10)."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from perdure.errors import PerdureError
from perdure.hooks import (
    EVENTS,
    HookDecision,
    HookEvent,
    Notification,
    PostToolUse,
    PreCompact,
    PreToolUse,
    SessionEnd,
    SessionStart,
    Stop,
    SubagentStop,
    UserPromptSubmit,
    decision_of,
    hook_commands,
    outcome_of,
    wants,
)
from perdure.settings import HookCommand

BEFORE = PreToolUse(session_id="s", tool_name="Bash", tool_input={"command": "rm -rf /"}, tool_use_id="t")
AFTER = PostToolUse(
    session_id="s", tool_name="Write", tool_input={"file_path": "/p/a.py"}, tool_response={}, tool_use_id="t"
)
PROMPT = UserPromptSubmit(session_id="s", prompt="hello")
START = SessionStart(session_id="s", source="startup")
END = SessionEnd(session_id="s", reason="other")
STOP = Stop(session_id="s", stop_hook_active=False, last_assistant_message="done")
COMPACT = PreCompact(
    session_id="s", trigger="auto", custom_instructions="", tokens=1, window_tokens=2, messages=3
)  # fmt: skip


def answer(event: str = "", **fields: Any) -> str:
    own = {name: fields.pop(name) for name in list(fields) if name in ("permissionDecision", "updatedInput", "context")}
    if "context" in own:
        own["additionalContext"] = own.pop("context")
    return json.dumps({**fields, **({"hookSpecificOutput": {"hookEventName": event, **own}} if event else {})})


def test_the_input_has_claude_codes_names() -> None:
    """CMP-10: what has no value is left out."""
    told = json.loads(BEFORE.as_json(cwd="/p", transcript_path="/j"))
    assert told == {
        "hook_event_name": "PreToolUse",
        "session_id": "s",
        "transcript_path": "/j",
        "cwd": "/p",
        "tool_name": "Bash",
        "tool_input": {"command": "rm -rf /"},
        "tool_use_id": "t",
    }
    assert json.loads(UserPromptSubmit(session_id="s", prompt="\ud800").as_json())["prompt"] == "\ud800"
    assert {"custom_instructions", "trigger"} <= set(json.loads(COMPACT.as_json()))
    assert json.loads(SubagentStop(session_id="s", agent_id="a", agent_type="x", stop_hook_active=True,
                                   last_assistant_message="m").as_json())["agent_id"] == "a"  # fmt: skip


NO_REASON = "the hook gave no reason"


@pytest.mark.parametrize(
    ("told", "code", "output", "errors", "wanted"),
    [
        (BEFORE, 0, "", "", HookDecision()),
        (BEFORE, 0, "checked", "", HookDecision()),
        (PROMPT, 0, " the branch is main\n", "", HookDecision(context="the branch is main")),
        (START, 0, "read this", "", HookDecision(context="read this")),
        (START, 0, "{not json", "", HookDecision(context="{not json")),
        (COMPACT, 0, "saved a copy", "", HookDecision()),
        (BEFORE, 2, "ignored", " no rm \n", HookDecision(block="no rm")),
        (BEFORE, 2, "", "", HookDecision(block=NO_REASON)),
        (AFTER, 2, "", "not formatted", HookDecision(block="not formatted")),
        (STOP, 2, "", "run the tests", HookDecision(block="run the tests")),
        (COMPACT, 2, "", "later", HookDecision(block="later")),
        (PROMPT, 2, "", "no secrets", HookDecision(block="no secrets")),
        (START, 2, "", "no network", HookDecision(message="no network")),
        (END, 2, "", "too bad", HookDecision(message="too bad")),
        (BEFORE, 0, answer("PreToolUse", permissionDecision="allow"), "", HookDecision(permission="allow")),
        (BEFORE, 0, answer("PreToolUse", permissionDecision="ask"), "", HookDecision(permission="ask")),
        (BEFORE, 0, answer("PreToolUse", permissionDecision="deny"), "", HookDecision(block=NO_REASON)),
        (BEFORE, 0, answer(decision="block", reason="x"), "", HookDecision(block="x", reason="x")),
        (BEFORE, 0, answer(decision="approve"), "", HookDecision(permission="allow")),
        (BEFORE, 0, answer("PreToolUse", updatedInput={"command": "ls"}), "",
         HookDecision(updated_input={"command": "ls"})),
        (AFTER, 0, answer("PostToolUse", decision="block", reason="x", context="y"), "",
         HookDecision(block="x", reason="x", context="y")),
        (STOP, 0, answer(**{"continue": False, "stopReason": "enough"}), "", HookDecision(stop="enough")),
        (STOP, 0, answer(**{"continue": False}), "", HookDecision(stop=NO_REASON)),
        (END, 0, answer(decision="block", reason="x"), "", HookDecision(reason="x")),
        (START, 0, answer("SessionStart", context="z", systemMessage="m", suppressOutput=True), "",
         HookDecision(context="z", message="m")),
    ],
)  # fmt: skip
def test_decisions(told: HookEvent, code: int, output: str, errors: str, wanted: HookDecision) -> None:
    """CMP-10: exit 0 with text or JSON, exit 2, for the events where they mean something."""
    assert decision_of(told, code, output, errors) == wanted


@pytest.mark.parametrize(
    ("told", "code", "output", "why"),
    [
        (BEFORE, 1, "", "exit code 1"),
        (BEFORE, -9, "", "exit code -9"),
        (BEFORE, 0, '{"decision": 7}', "can't be used"),
        (BEFORE, 0, '{"decision": "block"', "can't be used"),
        (START, 0, '{"hookSpecificOutput": {"additionalContext": 1}}', "can't be used"),
        (BEFORE, 0, answer("SessionStart", context="x"), "for 'SessionStart', and this is PreToolUse"),
        (BEFORE, 0, '{"a":' * 100_000, "can't be used"),
    ],
)
def test_other_ends_are_failures(told: HookEvent, code: int, output: str, why: str) -> None:
    """CMP-10: said in one line, without what the hook printed."""
    with pytest.raises(PerdureError, match=why) as failed:
        decision_of(told, code, output, "a secret")
    assert "a secret" not in str(failed.value) and "\n" not in str(failed.value)


def test_a_long_text_is_cut() -> None:
    """SEC-6: what a hook prints can't fill the window."""
    said = decision_of(START, 0, "x" * 50_000, "").context
    assert said.startswith("x" * 10_000) and said.endswith("\n[40,000 more characters left out]")


def test_several_hooks() -> None:
    """CMP-10: stopping wins over blocking, blocking over asking, asking over allowing; the order is the settings'."""
    allow, ask = HookDecision(permission="allow"), HookDecision(permission="ask", reason="r")
    found = outcome_of([("a", allow), ("b", ask), ("c", HookDecision(context="1")), ("c", HookDecision(context="2"))])
    assert (found.permission, found.reason, found.by, found.context) == ("ask", "r", "b", {"c": "1\n2"})
    assert outcome_of([("a", allow), ("b", HookDecision())]).permission == "allow"
    found = outcome_of([("a", HookDecision(block="x")), ("b", HookDecision(block="y")), ("c", allow)])
    assert (found.block, found.by) == ("x", "a")
    assert outcome_of([("a", HookDecision(block="x")), ("b", HookDecision(stop="z"))]).by == "b"
    two = [("a", HookDecision(updated_input={"n": 1})), ("b", HookDecision(updated_input={"n": 2}))]
    assert outcome_of(two).updated_input == {"n": 2}
    assert outcome_of([]).permission is None and outcome_of([]).block is None


@pytest.mark.parametrize(
    ("matcher", "told", "runs"),
    [
        ("", BEFORE, True),
        ("*", BEFORE, True),
        ("Bash", BEFORE, True),
        ("Ba", BEFORE, False),
        ("bash", BEFORE, False),
        ("Write|Edit", BEFORE, False),
        ("Write|Edit", AFTER, True),
        ("Edit, Write", AFTER, True),
        ("^B.s", BEFORE, True),
        ("Notebook.*", BEFORE, False),
        ("startup|resume", START, True),
        ("compact", START, False),
        ("manual", COMPACT, False),
        ("auto", COMPACT, True),
        ("clear", END, False),
        ("anything", STOP, True),
        ("permission_prompt", Notification(session_id="s", message="m", notification_type="permission_prompt"), True),
    ],
)
def test_matchers(matcher: str, told: HookEvent, runs: bool) -> None:
    """CMP-10: names mean exactly themselves, everything else is a regular expression."""
    assert wants(HookCommand(type(told).__name__, "true", matcher), told) is runs
    assert not wants(HookCommand("PostCompact", "true", matcher), told)


@pytest.mark.parametrize(
    ("condition", "told", "runs"),
    [
        ("Bash", BEFORE, True),
        ("Write", BEFORE, False),
        ("Bash(rm *)", BEFORE, True),
        ("Bash(rm:*)", BEFORE, True),
        ("Bash(git *)", BEFORE, False),
        ("Write(*.py)", AFTER, True),
        ("Write(*.ts)", AFTER, False),
        ("Write(/p/**)", AFTER, True),
        ("not a rule!", BEFORE, True),
    ],
)
def test_conditions(condition: str, told: HookEvent, runs: bool) -> None:
    """CMP-10: `if` is a permission rule; what can't be read lets the hook run."""
    assert wants(HookCommand(type(told).__name__, "true", "", None, condition), told) is runs


def test_types_that_are_not_supported_are_said_once() -> None:
    """CMP-10: one line, however many there are, with where they stand; the commands beside them run."""
    group = {"hooks": [{"type": "http", "url": "x"}, {"type": "prompt", "prompt": "y"}, {"command": "true"}]}
    found, odd = hook_commands({"Stop": [group, group], "PreToolUse": [{"hooks": [{"type": "agent"}]}]})
    assert [one.command for one in found] == ["true"]
    assert odd == (
        "hooks of the types 'http', 'prompt', 'agent' aren't supported, and aren't run; only 'command' is "
        "(hooks.Stop, group 1; hooks.Stop, group 2; hooks.PreToolUse, group 1)",
    )


def test_conditions_see_each_command_of_a_line() -> None:
    one = HookCommand("PreToolUse", "true", "Bash", None, "Bash(git push:*)")
    for command, runs in {
        "ls && git push": True,
        "A=1 git push -f": True,
        "git pull": False,
        "echo $(git push)": True,
        "git pushy": False,
    }.items():
        told = PreToolUse(session_id="s", tool_name="Bash", tool_input={"command": command}, tool_use_id="t")
        assert wants(one, told) is runs, command


def test_settings_in_claude_codes_form() -> None:
    """CMP-10: groups of a matcher and hooks, as they stand in settings.json."""
    group = {"matcher": "Write|Edit", "hooks": [{"type": "command", "command": "fmt", "timeout": 5, "async": False}]}
    found, odd = hook_commands({"PostToolUse": [group, group], "Stop": [{"hooks": [{"command": "true", "if": ""}]}]})
    assert found == (HookCommand("PostToolUse", "fmt", "Write|Edit", 5.0), HookCommand("Stop", "true")) and not odd
    assert str(found[0]) == "PostToolUse(Write|Edit): fmt"
    (beside,), odd = hook_commands({"Stop": [{"hooks": [{"command": "notify", "async": True}]}]})
    assert beside.is_async and str(beside) == "Stop(async): notify" and not odd
    assert len(EVENTS) == 11


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (7, "has to be a table of events"),
        ({"PreTooluse": []}, "no such event here.*PreToolUse"),
        ({"Stop": {}}, "has to be a list of groups"),
        ({"Stop": [7]}, "needs a list `hooks`"),
        ({"Stop": [{"hooks": 7}]}, "needs a list `hooks`"),
        ({"PreToolUse": [{"matcher": "(", "hooks": []}]}, "not a regular expression"),
        ({"PreToolUse": [{"matcher": 7, "hooks": []}]}, "`matcher` has to be a text"),
        ({"Stop": [{"hooks": [7]}]}, "7 is no hook"),
        (
            {"Stop": [{"hooks": [{"type": "prompt", "prompt": "x"}]}]},
            "of the type 'prompt' aren't supported, and aren't run",
        ),
        ({"Stop": [{"hooks": [{"command": "x", "async": "yes"}]}]}, "`async` has to be true or false"),
        ({"Stop": [{"hooks": [{"type": "command"}]}]}, "`command` has to be a shell command"),
        ({"Stop": [{"hooks": [{"command": "x", "timeout": "5"}]}]}, "`timeout` has to be a number"),
        ({"Stop": [{"hooks": [{"command": "x", "timeout": 0}]}]}, "`timeout` has to be a number"),
        ({"Stop": [{"hooks": [{"command": "x", "if": 5}]}]}, "`if` has to be a permission rule"),
    ],
)
def test_what_is_no_hook_is_said(given: object, why: str) -> None:
    found, odd = hook_commands(given)
    assert not found and len(odd) == 1
    assert re.search(why, odd[0])
