"""A session in a world that stands still: journal in memory, a clock and ids that count, a fake model upstream.

`SessionPorts` owns a session over `MemoryJournal(encode=True)` and plays the steps of `tests/plans.py` on it, as
an agent would: it gives ids, signs thinking, reports usage, and remembers what it said, for laws to compare.
"""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import msgspec
from tests import plans
from tests.services import FixedClock

from perdure.adapters.journal.in_memory import MemoryBlobs, MemoryJournal
from perdure.context.cuts import open_loop
from perdure.context.groups import WireBlock
from perdure.context.models import UNKNOWN, ModelSpec
from perdure.context.request import ModelRequest
from perdure.engine.compact import CompactionOutcome, compact
from perdure.engine.session import LiveSession, ModelWindow
from perdure.engine.session import SessionPorts as Ports
from perdure.engine.turn import PreparedRequest, prepare
from perdure.errors import CompactionRefused, ContextBlocked
from perdure.events import Event
from perdure.settings import Settings
from perdure.testing import FakeUpstream, ModelRules, say
from perdure.testing.models import CountingIds
from perdure.transcript.blocks import block_of, text_block
from perdure.transcript.messages import Message, MessageId, ResponseId, ToolUseId, Usage, content_of
from perdure.transcript.records import Front, Header, Pinned, Rewound, Undone

T = TypeVar("T")
BOUND = ModelSpec(prefix="bound", thinking_is_bound=True, max_output_tokens=32_000)
UNBOUND = ModelSpec(prefix="unbound", thinking_is_bound=False, max_output_tokens=32_000)
MODELS = (BOUND, UNBOUND, None)  # None: the session knows only a name, which stands in no table
MANUAL = {"model": "fake", "max_tokens": 8_000, "thinking": {"type": "enabled", "budget_tokens": 1_024}}
HEADER = Header(format="perdure-journal", version=1, session="s", created=0.0)
NAMES = (plans.READ, plans.RUN, plans.SEARCH, plans.CHANGE, plans.TODO, plans.OTHER, plans.RECALL)


def done(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits: memory adapters answer at once."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    coroutine.close()
    raise AssertionError("a memory adapter waited")


@dataclass(frozen=True)
class Sent:
    """A request as it went out, taken apart before anything can change it."""

    body: bytes
    parts: tuple[tuple[str, WireBlock], ...]
    at_record: int  # records in the journal when it was made
    at_event: int

    @property
    def blocks(self) -> list[tuple[str, bytes]]:
        return [(role, part.raw) for role, part in self.parts]


class Events(list[Event]):
    """A sink that keeps what it is told."""

    def emit(self, event: Event) -> None:
        self.append(event)


def front(number: int = 0, words: int = 20) -> Front:
    """A system prompt and tool definitions."""
    tools = [{"name": name, "description": "a tool", "input_schema": {"type": "object"}} for name in NAMES]
    system = [text_block(f"You are agent number {number}. " + "Be careful. " * words).raw]
    return Front(
        model="fake",
        system=tuple(map(msgspec.Raw, system)),
        tools=tuple(msgspec.Raw(msgspec.json.encode(t)) for t in tools),
    )


class World:
    """A session, and everything around it. `played` holds every request that was sent or tried.

    Every rule of the upstream is on; `is_manual`: requests switch thinking on by hand, as older models want it.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        model: ModelSpec | None = UNBOUND,
        window: int = 200_000,
        rules: ModelRules | None = None,
        is_manual: bool = False,
        has_front: bool = True,
    ) -> None:
        self.settings = settings or Settings()
        self.given, self.model, self.window = model, model or UNKNOWN, window
        self.head = MANUAL if is_manual else None
        self.journal = MemoryJournal(HEADER, encode=True)
        self.blobs, self.clock, self.ids, self.events = MemoryBlobs(), FixedClock(), CountingIds(), Events()
        self.rules = rules or ModelRules(window_tokens=10_000_000, max_media=100)
        self.upstream = FakeUpstream(
            rules=self.rules,
            binding="error" if self.model.thinking_is_bound else "off",
            leading_may_go=False,
            clock=self.clock.now,
        )
        self.session = self._open()
        self.played: list[Sent] = []
        self.late: list[tuple[ToolUseId, plans.CallPlan]] = []
        self.spoken: dict[MessageId, str] = {}  # what people said
        self.outcomes: list[CompactionOutcome | None] = []
        self.explicit: list[int] = []  # records in the journal at each rewind, new front and undo
        self._count = 0
        if has_front:
            self.record(front())

    # --- the session ------------------------------------------------------------------------------------------------

    def ports(self, journal: Any) -> Ports:
        return Ports(journal=journal, blobs=self.blobs, clock=self.clock, ids=self.ids, sink=self.events)

    def _open(self, *, whole: bool = False) -> LiveSession:
        ports = self.ports(self.journal)
        window = ModelWindow(self.window, "flag")
        return done(LiveSession.load(ports, self.settings, model=self.given, window=window, whole=whole))

    def reopened(self, *, whole: bool = False) -> LiveSession:
        """Another session over the same journal."""
        return self._open(whole=whole)

    def restart(self) -> None:
        self.session = self._open()

    def record(self, *records: Any) -> None:
        done(self.session.record(*records))

    def append(self, *messages: Message) -> None:
        done(self.session.append(*messages))

    @property
    def records(self) -> list[Any]:
        return [placed.record for placed in done(self.journal.load(whole=True)).records]

    def message(self, role: Any, content: list[Any], **more: Any) -> Message:
        """A message with a new id; blocks are given as objects."""
        self._count += 1
        origin = more.pop("origin", "model" if role == "assistant" else "user")
        return Message(
            id=MessageId(f"m{self._count}"),
            role=role,
            content=content_of([block_of(block) for block in content]),
            origin=origin,
            at=self.clock.now(),
            **more,
        )

    def say(self, *texts: str) -> Message:
        """A person speaks."""
        message = self.message("user", [{"type": "text", "text": text} for text in texts])
        self.append(message)
        return message

    # --- requests ---------------------------------------------------------------------------------------------------

    def prepare(self, **more: Any) -> PreparedRequest | None:
        """Prepare a request; None when the context is full, which is a way to end that every session has."""
        try:
            prepared = done(prepare(self.session, head=self.head, **more))
        except ContextBlocked:
            return None
        self.outcomes.append(prepared.outcome)
        self.played.append(self.sent(prepared.request))
        return prepared

    def sent(self, request: ModelRequest) -> Sent:
        return Sent(request.body, tuple(request.parts()), len(self.records), len(self.events))

    def answer(self, plan: plans.Answer) -> bool:
        """A whole call: prepare, send, append the answer and the results of its tools. False when it was blocked."""
        prepared = self.prepare()
        if prepared is None:
            return False
        blocks: list[Any] = []
        if self._thinks(plan):
            is_hidden = self.upstream.statistics.requests % 4 == 3
            hidden = {"type": "redacted_thinking", "data": self.ids.new("hidden")}
            blocks.append(hidden if is_hidden else {"type": "thinking", "thinking": plan.thinking or ""})
        if plan.text or not plan.calls:
            blocks.append({"type": "text", "text": plan.text or "ok"})
        blocks += [
            {"type": "tool_use", "id": self.ids.new("toolu"), "name": call.name, "input": call.input}
            for call in plan.calls
        ]
        reply = self.upstream.respond(prepared.request.body, reply=say(*blocks), session="s")
        self._answered(plan, reply)
        return True

    def _thinks(self, plan: plans.Answer) -> bool:
        """With thinking switched on by hand, a model thinks at the beginning of each turn and not again within it."""
        if self.head is not None:
            return open_loop(self.session.view) is None
        return plan.thinking is not None and self.model is not NO_THINKING

    def _answered(self, plan: plans.Answer, reply: Any) -> None:
        usage = {
            "reported": Usage(
                reply.usage.input_tokens,
                reply.usage.output_tokens,
                reply.usage.cache_read_input_tokens,
                reply.usage.cache_creation_input_tokens,
            ),
            "placeholder": Usage(input_tokens=reply.usage.prompt_tokens, output_tokens=1),
            "absent": None,
        }[plan.usage]
        content = list(reply.content)
        pieces = [[block] for block in content] if plan.is_split else [content]
        calls = iter(plan.calls)
        results: list[Message] = []
        for piece in pieces:
            said = self.message("assistant", piece, response_id=ResponseId(reply.id), usage=usage, model="fake")
            self.append(said)
            for use in said.tool_uses:
                call = next(calls)
                made = self._results(ToolUseId(use.id), call)
                if call.between and plan.is_split:
                    self.append(*made)
                else:
                    results += made
        turn = plan.shuffle % (len(results) or 1)
        self.append(*results[turn:], *results[:turn])

    def _results(self, identity: ToolUseId, call: plans.CallPlan) -> list[Message]:
        if call.outcome == "missing":
            return []
        if call.outcome == "late":
            self.late.append((identity, call))
            return []
        return [self._result(identity, call)] * 1 + [self._result(identity, call)] * (call.outcome == "twice")

    def _result(self, identity: ToolUseId, call: plans.CallPlan) -> Message:
        block: dict[str, Any] = {"type": "tool_result", "tool_use_id": identity}
        block["content"] = plans.outcome_content(call, self._count)
        if call.outcome == "error":
            block["is_error"] = True
        return self.message("user", [block], origin="tool")

    # --- steps ------------------------------------------------------------------------------------------------------

    def play(self, step: plans.Step) -> None:
        """Do what a step says; a step that makes no sense here does nothing."""
        getattr(self, f"_{type(step).__name__.lower()}")(step)

    def _say(self, step: plans.Say) -> None:
        message = self.message("user", list(step.content), origin=step.origin, note=step.note)
        self.append(message)
        if step.origin == "user":
            self.spoken[message.id] = step.content[0]["text"]

    def _answer(self, step: plans.Answer) -> None:
        self.answer(step)

    def _interrupted(self, step: plans.Interrupted) -> None:
        if self.answer(plans.Answer(text=step.text)):
            self.say("[Request interrupted by user]")

    def _orphan(self, step: plans.Orphan) -> None:
        block = {"type": "tool_result", "tool_use_id": self.ids.new("nobody"), "content": step.text}
        self.append(self.message("user", [block], origin="tool"))

    def _subagent(self, step: plans.SubAgent) -> None:
        block = {"type": "text", "text": step.text}
        self.append(self.message("assistant", [block], agent_id="agent-1"))

    def _late(self, step: plans.Late) -> None:
        for identity, call in self.late:
            self.append(self._result(identity, call))
        self.late.clear()

    def _retry(self, step: plans.Retry) -> None:
        self.prepare()

    def _idle(self, step: plans.Idle) -> None:
        self.clock.advance(step.seconds)

    def _configure(self, step: plans.Configure) -> None:
        self.settings = replace(self.settings, **dict(step.changes))
        self.session.configure(self.settings)

    def _compact(self, step: plans.Compact) -> None:
        try:
            done(compact(self.session, trigger="manual"))
        except CompactionRefused:
            pass

    def _rewind(self, step: plans.Rewind) -> None:
        items = self.session.view.items
        if items:
            self.explicit.append(len(self.records))
            self.record(Rewound(to=items[max(0, len(items) - 1 - step.back)].message.id))

    def _newfront(self, step: plans.NewFront) -> None:
        self.explicit.append(len(self.records))
        self.record(front(step.number))

    def _pin(self, step: plans.Pin) -> None:
        self.record(Pinned(id=step.text, text=step.text))

    def _undo(self, step: plans.Undo) -> None:
        if collapses := list(self.session.view.collapses):
            self.explicit.append(len(self.records))
            self.record(Undone(id=collapses[-1]))
        elif boundary := self.session.view.boundary:
            self.explicit.append(len(self.records))
            self.record(Undone(id=boundary.id))

    def _restart(self, step: plans.Restart) -> None:
        self.restart()


NO_THINKING = ModelSpec(prefix="plain", max_output_tokens=32_000)
