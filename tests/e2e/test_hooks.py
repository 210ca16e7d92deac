"""Hooks around a compaction: callables and shell commands that block, add, replace or supply (CMP-10)."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.services import FixedClock, serve

from perdure import Settings
from perdure.adapters.machine.hooks import shell_hook
from perdure.adapters.sinks import ListSink
from perdure.compaction.hooks import Hook, HookDecision, HookEvent, PostCompact, PreCompact
from perdure.engine.compact import CompactionSuccess, CompactionVeto, compact
from perdure.engine.session import LiveSession
from perdure.engine.turn import run_turn
from perdure.errors import ModelGaveUp
from perdure.events import CompactionBlocked, HookFailed
from perdure.testing import ChaosModel, ScriptedModel
from perdure.transcript.records import Compacted, CompactionFailed
from perdure.wiring import SessionOptions, memory_session

pytestmark = pytest.mark.e2e


def run(body: Callable[[], Awaitable[None]]) -> None:
    anyio.run(body)


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
        more = hook(HookDecision(add_instructions="and the tests", context="<system-reminder>ctx-77"), told=told)
        session, _ = await worked(model, hook(HookDecision(instructions="only the parser")), more)
        model.upstream.script.append("<summary>1. Primary request: x</summary>")
        assert isinstance(await compact(session, trigger="manual", focus="everything"), CompactionSuccess)
        before, after = told
        assert isinstance(before, PreCompact) and isinstance(after, PostCompact)
        assert (before.trigger, before.instructions, before.agent) == ("manual", "only the parser", None)
        assert before.session == session.id and before.tokens > 0 and before.messages == 16
        assert "1. Primary request: x" in after.summary and after.tokens_after < after.tokens_before
        assert b"only the parser\\nand the tests" in model.requests[-1].body
        assert "<_system-reminder>ctx-77" in shown(session)
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

    run(body)


def test_a_blocked_compaction_is_abandoned_and_told() -> None:
    """CMP-10: nothing changes, the breaker doesn't count it; a blocked reactive one surfaces the original error."""

    async def body() -> None:
        model = ScriptedModel()
        session, sink = await worked(model, hook(HookDecision(block="not now")))
        outcome = await compact(session, trigger="auto")
        assert isinstance(outcome, CompactionVeto) and outcome.reason == "blocked: mine: not now"
        assert events(sink, CompactionBlocked) == [CompactionBlocked("auto", "mine")]
        with pytest.raises(ModelGaveUp, match=r"prompt_too_long.*not now"):
            await run_turn(session, "go on", ChaosModel(model, ["too_long"]))
        loaded = await session.ports.journal.load(whole=True)
        assert not [p for p in loaded.records if isinstance(p.record, CompactionFailed | Compacted)]
        assert session.view.state.breaker.failures == 0

    run(body)


@pytest.mark.parametrize("broken", ["raises", "slow", "exit 1", "missing", "bad answer"])
def test_a_failing_hook_breaks_nothing(broken: str) -> None:
    """CMP-10: it is reported, and the compaction goes on without it."""

    async def body() -> None:
        hooks = {
            "raises": hook(fails=ValueError("no")),
            "slow": shell_hook("sleep 30; true", timeout_seconds=0.1),
            "exit 1": shell_hook("echo no >&2; exit 1"),
            "missing": shell_hook("no-such-command-anywhere"),
            "bad answer": shell_hook("""echo '{"block": 7}'"""),
        }
        session, sink = await worked(ScriptedModel(), hooks[broken])
        serve(session, summarizer=())
        start = time.monotonic()
        assert isinstance(await compact(session, trigger="manual"), CompactionSuccess)
        assert time.monotonic() - start < 10
        assert [event.event for event in events(sink, HookFailed)] == ["PreCompact", "PostCompact"]

    run(body)


def test_shell_commands(tmp_path: Path) -> None:
    """CMP-10: JSON on stdin, exit 2 blocks, what is printed is JSON or plain text."""

    async def body() -> None:
        blocks = shell_hook(f"cat > {tmp_path}/given; echo 'on a branch' >&2; exit 2")
        model = ScriptedModel()
        session, _ = await worked(model, blocks)
        outcome = await compact(session, trigger="manual", focus="it")
        assert isinstance(outcome, CompactionVeto) and outcome.reason.endswith(": on a branch")
        given = json.loads((tmp_path / "given").read_text())
        assert (given["event"], given["trigger"], given["instructions"]) == ("PreCompact", "manual", "it")
        serve(
            session,
            hooks=(
                replace(shell_hook("echo plain-words"), name="plain"),
                shell_hook("""echo '{"context": "c-1"}'"""),
            ),
        )
        model.upstream.script.append("<summary>1. Primary request: x</summary>")
        assert isinstance(await compact(session, trigger="manual"), CompactionSuccess)
        assert b"plain-words" in model.requests[-1].body
        assert "plain-words" in shown(session) and "c-1" in shown(session)

    run(body)
