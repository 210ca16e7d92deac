"""One prompt, hundreds of calls: what a server refuses of a long loop of tools (TURN-15, REL-4).

Usage: python bench/long_loop.py [--calls 200] [--tokens 1500] [--window 200000 60000] [--model NAME ...]

The server is the fake one with every rule on: thinking of an open loop has to come back, signatures hold only behind
their prefix where the model binds them. On the way the session is compacted by itself and by hand, meets an overflow
and two refusals of thinking, and is closed and opened again from disk, all in mid-loop; then come further prompts.
`refused` counts the requests that broke a rule, `closed_groups` the recorded lines that end a loop whose thinking had
to go.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from perdure import Message, Settings
from perdure.adapters.sinks import ListSink
from perdure.context.replies import Delta, ModelInfo, Reply
from perdure.context.request import ModelRequest
from perdure.context.thinking import LOOP_CLOSED
from perdure.engine.compact import compact
from perdure.engine.session import LiveSession
from perdure.engine.turn import run_turn
from perdure.errors import ModelError
from perdure.events import CompactionDone, ResultsCleared
from perdure.ports.session import Model
from perdure.testing import FakeUpstream, ModelRules, ScriptedModel, UpstreamError, say, text, thinking, tool_use
from perdure.testing.openai_rules import as_messages, check_openai
from perdure.testing.upstream import Block, Scripted, prompt_too_long
from perdure.wiring import SessionOptions, create_session, open_session

WORDS = "alpha beta gamma delta value index count total error warning file line path module class test result".split()
SUMMARY = "<analysis>It was long.</analysis>\n<summary>\n1. Read all files and say what they hold.\n</summary>"
EXPECTED = (
    "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`. When `thinking` is "
    "enabled, a final `assistant` message must start with a thinking block."
)
BOUND_ELSEWHERE = (
    "messages.{last}.content.0: Invalid `signature` in `thinking` block. The block is bound to a different "
    'conversation. Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
)


class LoopingServer(FakeUpstream):
    """Thinks and calls a tool as long as `left` lasts, then says a word; writes a summary when asked for one."""

    def __init__(self, *, thinks: bool, **more: Any) -> None:
        super().__init__(**more)
        self.left, self.calls, self.thinks = 0, 0, thinks
        self.fails: list[UpstreamError] = []

    def respond(self, body: bytes, *, reply: Scripted | None = None, session: str | None = None) -> Any:
        last = msgspec.json.decode(body)["messages"][-1]["content"]
        words = "".join(block.get("text", "") for block in last if block["type"] == "text")
        if "<summary>" in words:
            return super().respond(body, reply=SUMMARY, session=session)
        if self.fails:
            raise self.fails.pop(0)
        said = super().respond(body, reply=say(*self._answer()), session=session)
        self.left -= 1
        self.calls += self.left >= 0
        return said

    def _answer(self) -> list[Block]:
        thought: list[Block] = []
        if self.thinks and self.calls % 7 == 6:
            thought = [{"type": "redacted_thinking", "data": f"hidden{self.calls}"}]
        elif self.thinks:
            thought = [thinking(f"What does file {self.calls} say?" if self.calls % 3 else "")]
        if self.left <= 0:
            return [*thought, text("All of it is read.")]
        words = [text(f"Reading file {self.calls}.")] if self.calls % 2 else []
        batch = 2 if self.calls % 11 == 10 else 1
        names = [f"src/part_{self.calls}_{number}.py" for number in range(batch)]
        return [*thought, *words, *(tool_use("Read", {"file_path": name}) for name in names)]


class ChatModel(ScriptedModel):
    """`ports.Model` in the words of Chat Completions, in front of the same server."""

    @property
    def about(self) -> ModelInfo:
        return ModelInfo(id=super().about.id, protocol="openai", window_tokens=super().about.window_tokens)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply, None]:
        if found := check_openai(request.body):
            self.upstream.statistics.refused += 1
            raise AssertionError(found[0].text)
        body = msgspec.json.encode(as_messages(msgspec.json.decode(request.body)))
        async for delta in super().stream(ModelRequest("anthropic", body, request.groups)):
            yield delta


class SilentModel(ScriptedModel):
    """`ports.Model` without a name that anybody knows, a stated window or a report of usage, as a local one may be."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply, None]:
        async for delta in super().stream(request):
            yield replace(delta, usage=None) if isinstance(delta, Reply) else delta


@dataclass(frozen=True)
class Kind:
    """A model of the bench."""

    name: str
    id: str
    thinks: bool = True
    is_bound: bool = True
    make: Callable[..., ScriptedModel] = ScriptedModel
    has_summarizer: bool = True


KINDS = (
    Kind("bound", "claude-opus-5-5"),
    Kind("unbound", "claude-opus-4-5", is_bound=False),
    Kind("unknown", "vendor/thinker-1"),
    Kind("openai", "gpt-5", thinks=False, make=ChatModel),
    Kind("offline", "offline", thinks=False, make=SilentModel, has_summarizer=False),
)


@dataclass
class Told:
    """What came of one run."""

    name: str
    window: int
    calls: int = 0
    answers: int = 0
    compactions: int = 0
    clearings: int = 0
    closed: int = 0
    refused: int = 0
    first_refusal: str = ""
    error: str = ""

    def row(self) -> str:
        return (
            f"{self.name:>9} {self.window:8,d} {self.calls:6d} {self.answers:8d} {self.compactions:12d} "
            f"{self.clearings:10d} {self.closed:7d} {self.refused:8d}  {self.error or self.first_refusal}"
        )


class Run:
    """One session on disk, one model, and what happens to them."""

    def __init__(self, kind: Kind, window: int, home: Path, *, tokens: int = 1_500, **settings: Any) -> None:
        self.kind, self.home, self.window = kind, home, window
        self.told = Told(kind.name, window)
        self.server = LoopingServer(
            thinks=kind.thinks,
            rules=ModelRules(window_tokens=window, max_output_tokens=128_000),
            binding="error" if kind.is_bound else "off",
            leading_may_go=False,
        )
        self.model = kind.make(upstream=self.server, id=kind.id, window_tokens=window)
        self.sink = ListSink()
        self.parts = SessionOptions(settings=Settings(window_tokens=window, **settings), sink=self.sink)
        self.chance, self.tokens = random.Random(5), tokens
        self.session: LiveSession

    async def open(self) -> None:
        self.session = await create_session(self.home, project=self.home, session="loop", parts=self.parts)

    async def reopen(self) -> None:
        """Another process would see this."""
        await self.session.close()
        self.session = await open_session(self.home, "loop", parts=self.parts)

    async def ask(self, prompt: str | list[Message] | None) -> Reply:
        summarizer: tuple[Model, ...] | None = None if self.kind.has_summarizer else ()
        reply = await run_turn(self.session, prompt, self.model, summarizer=summarizer)
        self.told.answers += 1
        return reply

    async def loop(self, prompt: str, calls: int, at: dict[int, Callable[[], Any]] | None = None) -> Reply:
        """A prompt, and the results of its calls until the model stops; `at` does something before a call's number."""
        self.server.left = calls
        events = dict(at or {})
        reply = await self.ask(prompt)
        while uses := Message.of("assistant", reply.blocks).tool_uses:
            for number in [number for number in events if calls - self.server.left >= number]:
                done = events.pop(number)()
                if done is not None:
                    await done
            said = [{"type": "tool_result", "tool_use_id": use.id, "content": self._read()} for use in uses]
            reply = await self.ask([Message.of("user", said)])
        return reply

    def _read(self) -> str:
        lines, size = list[str](), 0
        while size < self.tokens * 4:
            lines.append(" ".join(self.chance.choices(WORDS, k=12)) + f" {self.chance.randrange(10**6)}")
            size += len(lines[-1]) + 1
        return "\n".join(lines)

    async def by_hand(self) -> None:
        """A person compacts while a call is open."""
        await compact(self.session, trigger="manual")

    def overflows(self) -> None:
        self.server.fails.append(prompt_too_long(self.window + 10, self.window))

    def expects_thinking(self) -> None:
        self.server.fails.append(UpstreamError(400, "invalid_request_error", EXPECTED))

    def is_bound_elsewhere(self) -> None:
        said = BOUND_ELSEWHERE.format(last=max(1, len(self.model.requests[-1].groups) - 2))
        self.server.fails.append(UpstreamError(400, "invalid_request_error", said))

    async def whole(self, calls: int) -> Told:
        """The long loop with all that happens on the way, then three prompts more."""
        await self.open()
        try:
            part = calls // 10
            refusals = {6 * part: self.expects_thinking, 8 * part: self.is_bound_elsewhere} if self.kind.thinks else {}
            await self.loop(
                "Read all files, one after the other.",
                calls,
                {3 * part: self.by_hand, 5 * part: self.reopen, 7 * part: self.overflows, 9 * part: self.reopen}
                | refusals,
            )
            await self.loop("And the tests?", 3)
            await self.reopen()
            await self.loop("And the docs?", 3)
            await compact(self.session, trigger="manual")
            await self.loop("What did you find?", 0)
        except ModelError as e:
            self.told.error = str(e)[:150]
        return await self.counted()

    async def counted(self) -> Told:
        told, stats = self.told, self.server.statistics
        told.calls, told.refused = self.server.calls, stats.refused
        told.first_refusal = ", ".join(stats.violations)
        told.compactions = sum(isinstance(event, CompactionDone) for event in self.sink.events)
        told.clearings = sum(isinstance(event, ResultsCleared) for event in self.sink.events)
        loaded = await self.session.ports.journal.load(whole=True)
        said = [placed.record for placed in loaded.records if isinstance(placed.record, Message)]
        told.closed = sum(message.note == LOOP_CLOSED and message.role == "assistant" for message in said)
        await self.session.close()
        return told


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=1_500, help="of each result")
    parser.add_argument("--window", type=int, nargs="*", default=[200_000, 60_000])
    parser.add_argument("--model", nargs="*", default=[kind.name for kind in KINDS])
    given = parser.parse_args()
    print(f"{'model':>9} {'window':>8} {'calls':>6} {'answers':>8} {'compactions':>12} {'clearings':>10} ", end="")
    print(f"{'closed':>7} {'refused':>8}")
    for kind in (kind for kind in KINDS if kind.name in given.model):
        for window in given.window:
            with tempfile.TemporaryDirectory() as home:
                told = asyncio.run(Run(kind, window, Path(home), tokens=given.tokens).whole(given.calls))
            print(told.row(), flush=True)


if __name__ == "__main__":
    main()
