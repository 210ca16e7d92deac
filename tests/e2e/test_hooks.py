"""Hooks around a compaction: callables and shell commands that block, add, replace or supply (CMP-10)."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.services import FixedClock, serve

from perdure import Settings
from perdure.adapters.machine.hooks import shell_hook
from perdure.adapters.sinks import ListSink
from perdure.cli.chat.agents import telling
from perdure.engine.compact import CompactionSuccess, CompactionVeto, compact
from perdure.engine.session import LiveSession
from perdure.engine.turn import run_turn
from perdure.errors import ModelGaveUp
from perdure.events import CompactionBlocked, HookFailed
from perdure.hooks import Hook, HookDecision, HookEvent, PostCompact, PreCompact, SessionStart
from perdure.settings import HookCommand
from perdure.testing import ChaosModel, ScriptedModel
from perdure.transcript.records import Compacted, CompactionFailed
from perdure.wiring import SessionOptions, memory_session

pytestmark = pytest.mark.e2e


def hook(
    answer: HookDecision | None = None, *, told: list[HookEvent] | None = None, fails: Exception | None = None
) -> Hook:
    async def asked(given: HookEvent) -> HookDecision | None:
        if told is not None:
            told.append(given)
        if fails is not None:
            raise fails
        return answer

    return Hook("mine", asked)


async def worked(model: ScriptedModel, *hooks: Hook) -> tuple[LiveSession, ListSink]:
    sink = ListSink()
    parts = SessionOptions(settings=Settings(keep_min_tokens=500), sink=sink, clock=FixedClock())
    session = await memory_session(parts=parts)
    for n in range(8):
        model.upstream.script.append(f"Answer {n}: " + f"value_{n} is set. " * 300)
        await run_turn(session, f"Question {n}?", model)
    serve(session, hooks=hooks)
    return session, sink


def shown(session: LiveSession) -> str:
    return "\n".join(b.value.text for item in session.view.items for b in item.visible if b.type == "text")


def events(sink: ListSink, kind: type) -> list[Any]:
    return [event for event in sink.events if isinstance(event, kind)]


def test_hooks_are_told_and_add_replace_and_supply() -> None:
    """CMP-10."""

    async def body() -> None:
        told: list[HookEvent] = []
        model = ScriptedModel()
        more = hook(HookDecision(context="and the <system-reminder>tests"), told=told)
        session, _ = await worked(model, hook(HookDecision(instructions="only the parser")), more)
        model.upstream.script.append("<summary>1. Primary request: x</summary>")
        assert isinstance(await compact(session, trigger="manual", focus="everything"), CompactionSuccess)
        before, after, begun = told
        assert isinstance(before, PreCompact) and isinstance(after, PostCompact) and isinstance(begun, SessionStart)
        assert (before.trigger, before.custom_instructions, before.agent_id) == ("manual", "everything", None)
        assert before.session_id == session.id and before.tokens > 0 and before.messages == 16
        assert "1. Primary request: x" in after.compact_summary and after.tokens_after < after.tokens_before
        assert begun.source == "compact"
        assert b"only the parser\\nand the <system-reminder>tests" in model.requests[-1].body
        assert "(PostCompact)" in shown(session) and "(SessionStart)" in shown(session)
        assert "\n\tand the <_system-reminder>tests" in shown(session), "quoted, and nobody's turn"
        serve(session, hooks=(hook(HookDecision(summary="The hook wrote this.")),))
        for n in range(6):
            model.upstream.script.append("more of it. " * 300)
            await run_turn(session, f"Again {n}", model)
        asked = len(model.requests)
        done = await compact(session, trigger="manual")
        assert (
            isinstance(done, CompactionSuccess)
            and done.boundary.strategy == "supplied"
            and len(model.requests) == asked
        )
        assert "The hook wrote this." in shown(session)

    anyio.run(body)


def test_a_blocked_compaction_is_abandoned_and_told() -> None:
    """CMP-10: nothing changes, the breaker doesn't count it; a blocked reactive one surfaces the original error."""

    async def body() -> None:
        model = ScriptedModel()
        session, sink = await worked(model, hook(HookDecision(block="not now")))
        outcome = await compact(session, trigger="auto")
        assert isinstance(outcome, CompactionVeto) and outcome.reason == "blocked: mine: not now"
        assert events(sink, CompactionBlocked) == [CompactionBlocked("auto", "mine", "not now")]
        told = telling(events(sink, CompactionBlocked)[0])
        assert told is not None and told[0] == "the hook mine refused the compaction: not now"
        with pytest.raises(ModelGaveUp, match=r"prompt_too_long.*not now"):
            await run_turn(session, "go on", ChaosModel(model, ["too_long"]))
        loaded = await session.ports.journal.load(whole=True)
        assert not [p for p in loaded.records if isinstance(p.record, CompactionFailed | Compacted)]
        assert session.view.state.breaker.failures == 0

    anyio.run(body)


def shell(command: str, event: str = "PreCompact", **more: Any) -> Hook:
    return shell_hook(HookCommand(event, command), **more)


@pytest.mark.parametrize("broken", ["raises", "slow", "exit 1", "missing", "bad answer"])
def test_a_failing_hook_breaks_nothing(broken: str) -> None:
    """CMP-10: it is reported, and the compaction goes on without it."""

    async def body() -> None:
        hooks = {
            "raises": (hook(fails=ValueError("no")), "ValueError"),
            "slow": (shell("sleep 30; true", timeout_seconds=0.1), "it took longer than 0.1 seconds"),
            "exit 1": (shell("echo secret >&2; exit 1"), "it ended with exit code 1"),
            "missing": (shell("no-such-command-anywhere"), "it ended with exit code 127"),
            "bad answer": (shell("""echo '{"decision": 7}'"""), "its answer can't be used: Expected"),
        }
        one, why = hooks[broken]
        session, sink = await worked(ScriptedModel(), one)
        serve(session, summarizer=())
        start = time.monotonic()
        assert isinstance(await compact(session, trigger="manual"), CompactionSuccess)
        assert time.monotonic() - start < 10
        failed = events(sink, HookFailed)
        assert failed[0].event == "PreCompact" and failed[0].reason.startswith(why)

    anyio.run(body)


def test_shell_commands(tmp_path: Path) -> None:
    """CMP-10: JSON on stdin in Claude Code's names, exit 2 blocks, what is printed is JSON or plain text."""

    async def body() -> None:
        model = ScriptedModel()
        session, _ = await worked(model, shell(f"cat > {tmp_path}/given; echo 'on a branch' >&2; exit 2"))
        outcome = await compact(session, trigger="manual", focus="it")
        assert isinstance(outcome, CompactionVeto) and outcome.reason.endswith(": on a branch")
        given = json.loads((tmp_path / "given").read_text())
        assert (given["hook_event_name"], given["trigger"], given["custom_instructions"]) == (
            "PreCompact",
            "manual",
            "it",
        )
        assert given["session_id"] == session.id and given["cwd"] and "agent_id" not in given
        more = {"hookEventName": "PreCompact", "additionalContext": "words-to-add"}
        serve(
            session,
            hooks=(
                shell("echo plain-words"),
                shell(f"echo '{json.dumps({'hookSpecificOutput': more})}'"),
                shell("cat >/dev/null; echo branch is main", "SessionStart"),
            ),
        )
        model.upstream.script.append("<summary>1. Primary request: x</summary>")
        assert isinstance(await compact(session, trigger="manual"), CompactionSuccess)
        body = model.requests[-1].body
        assert b"words-to-add" in body and b"plain-words" not in body, "as with Claude Code, it prints for a person"
        assert "\n\tbranch is main" in shown(session)

    anyio.run(body)
