"""`perdure run`: one prompt, worked on without anybody to ask, for scripts (CLI-1)."""

from __future__ import annotations

import signal
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio

from perdure.adapters.machine.system import STOP_SIGNALS
from perdure.adapters.sinks import TeeSink, event_data
from perdure.agent.progress import (
    AgentProgress,
    HookMessage,
    PermissionRefused,
    RunResult,
    SubagentProgress,
    ToolEnded,
    ToolStarted,
)
from perdure.cli.chat.agents import Spending, session_named, telling
from perdure.cli.output import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, cut, note, out, out_json, plain
from perdure.cli.words import model_change, permission_advice, shown_error
from perdure.context.replies import TextDelta
from perdure.errors import BadSetting, PerdureError
from perdure.wiring.factory import close_session, work

if TYPE_CHECKING:
    from perdure.agent.loop import AgentLoop
    from perdure.events import Event
    from perdure.wiring.factory import AgentFactory


_CODES = {"done": EXIT_OK, "interrupted": EXIT_INTERRUPTED}
_ENDS = {
    "turns": "stopped: --max-turns (the setting agent_turns) was reached; --resume continues",
    "max_tokens": "the last answer was cut at its limit",
    "refused": "the model refused to continue",
    "hook": "a hook stopped this",
}


@dataclass(slots=True)
class RunOutput:
    """Tells what happens as lines of JSON, or only what a person has to know, on stderr."""

    is_json: bool

    def progress(self, progress: AgentProgress) -> None:
        if self.is_json:
            data = _progress_data(progress)
            if data is not None:
                out_json(data)
                sys.stdout.flush()
        elif isinstance(progress, HookMessage):
            note(f"hook {cut(progress.hook, 60)}: {progress.text}")
        elif isinstance(progress, PermissionRefused):
            why, advice = progress.decision.why or progress.decision.by, permission_advice(progress)
            note(f"{progress.tool} was refused: {why}{'; ' if advice else ''}{advice}")

    def emit(self, event: Event) -> None:
        """`ports.Sink`."""
        if self.is_json:
            out_json({"type": "event", **event_data(event)})
        elif (told := telling(event)) is not None and told[1] == "yellow":
            note(told[0])

    def tell(self, line: str) -> None:
        out_json({"type": "note", "text": line}) if self.is_json else note(line)


def _progress_data(progress: AgentProgress) -> dict[str, Any] | None:
    match progress:
        case TextDelta():
            return {"type": "text", "text": progress.text}
        case ToolStarted():
            return {"type": "tool", "id": progress.id, "tool": progress.tool, "arguments": progress.arguments}
        case ToolEnded():
            told = {"id": progress.id, "tool": progress.tool, "text": progress.text, "is_error": progress.is_error}
            return {"type": "result", **told, "seconds": round(progress.seconds, 3)}
        case PermissionRefused():
            told = {"id": progress.id, "tool": progress.tool, "why": progress.decision.why, "by": progress.decision.by}
            return {"type": "refused", **told}
        case HookMessage():
            return {"type": "hook", "hook": progress.hook, "text": progress.text}
        case SubagentProgress():
            inner = _progress_data(progress.progress)
            return None if inner is None else {**inner, "agent": progress.agent}
        case _:
            return None


def prompt_of(given: str) -> str:
    """The prompt; `-` is standard input."""
    text = given
    if given == "-":
        if sys.stdin is None or sys.stdin.isatty():
            raise BadSetting("-: type the prompt into a pipe or a file, as in `perdure run - < prompt.txt`")
        text = sys.stdin.buffer.read().decode("utf-8", "replace")
    if not text.strip():
        raise BadSetting("the prompt is empty: say what to do")
    return text


async def run(factory: AgentFactory, prompt: str, *, resume: str | None, last: bool, fork: bool, is_json: bool) -> int:
    """Work on one prompt and say how it ended. Returns the exit code."""
    lines, spent = RunOutput(is_json), Spending()
    factory.on_progress, factory.also = lines.progress, TeeSink(lines, spent)
    agent = await factory.agent(resume=session_named(factory, resume, last=last), fork=fork)
    for line in factory.told:
        lines.tell(line)
    try:
        said = await _until_done(agent, factory, prompt, lines)
    except PerdureError as e:
        if is_json:
            out_json({"type": "end", "session": agent.session.id, "stopped": "failed", "error": shown_error(e)})
        raise
    finally:
        await close_session(agent, factory.home)
    return _ended(agent, said, spent, is_json=is_json)


async def _until_done(agent: AgentLoop, factory: AgentFactory, prompt: str, lines: RunOutput) -> RunResult:
    """Ctrl-C, and being told to end, interrupt the work; the session stays valid."""
    failed: list[Exception] = []
    said: list[RunResult] = []
    async with anyio.create_task_group() as tasks:

        async def listen(*, task_status: anyio.abc.TaskStatus[None]) -> None:
            with anyio.open_signal_receiver(signal.SIGINT, *STOP_SIGNALS) as signals:
                task_status.started()
                async for _ in signals:
                    agent.interrupt()

        await tasks.start(listen)
        try:
            said.append(await work(agent, factory, prompt, lambda e, model: lines.tell(model_change(e, model))))
        except Exception as e:  # carried out of the group, which would wrap it
            failed.append(e)
        tasks.cancel_scope.cancel()
    if failed:
        raise failed[0]
    return said[0]


def _ended(agent: AgentLoop, said: RunResult, spent: Spending, *, is_json: bool) -> int:
    code = _CODES.get(said.stopped, EXIT_FAILED)
    if is_json:
        jobs = [
            {"job": job, "model": model, "calls": s.calls, "read": s.read, "cached": s.cached, "written": s.written}
            for (job, model), s in spent.rows.items()
        ]
        out_json(
            {
                "type": "end",
                "session": agent.session.id,
                "stopped": said.stopped,
                "text": said.text,
                "calls": said.calls,
                "turns": said.turns,
                "usd": round(spent.usd, 6) if spent.is_priced else None,
                "jobs": jobs,
            }
        )
        return code
    if said.text:
        out(plain(said.text) if sys.stdout.isatty() else said.text)
    if said.stopped in _ENDS:
        note(_ENDS[said.stopped])
    return code
