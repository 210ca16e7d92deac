"""The notes keeper's forks in a replay: their requests are checked, and what they read from the cache is counted.

No model is there to write notes; a stand-in takes each request as a provider would, by the shipped rules and with a
prompt cache in which nothing is but the conversation's last request, and answers with an edit. Every third time it
calls for what is denied, or for an edit that doesn't fit, so that later turns are seen, too. The replay itself knows
nothing of it: no record, no compaction from these notes, not a number changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.adapters.memory import MemoryNotes
from holdfast.context.replies import About, Delta, Reply
from holdfast.context.requests import Request
from holdfast.engine.helping import Helping, helped
from holdfast.engine.models import Models
from holdfast.engine.notes import SessionNotes
from holdfast.engine.session import LiveSession
from holdfast.errors import BadRequest
from holdfast.memory.notes import form_of
from holdfast.replay.cost import Cost
from holdfast.testing import FakeUpstream, UpstreamError, say, text, tool_use
from holdfast.testing.model_rules import ModelRules
from holdfast.testing.models import deltas_of
from holdfast.transcript.blocks import block_of
from holdfast.transcript.messages import Message, ResponseId, Usage

_ODD = 3  # every so many forks the stand-in does something else first
_STATE = next(one for one in form_of(None).sections if one.title == "Current State").about


@dataclass(slots=True)
class StandIn:
    """`ports.Model` that answers a fork of one session, and counts what a provider would have made of its requests."""

    rules: ModelRules
    cost: Cost
    model: str
    path: str
    is_bound: bool = True  # whether the model takes thinking only behind the prefix it was made after
    sent: Request | None = None  # the conversation's last request, which its cache holds
    requests: int = 0
    invalid: int = 0
    first_violation: str | None = None
    prefix_tokens: int = 0
    read_tokens: int = 0
    _runs: int = 0
    _turn: int = 0
    _line: str = _STATE

    @property
    def about(self) -> About:
        return About(id=self.model, protocol="anthropic")

    def begins(self) -> None:
        """Another fork begins."""
        self._runs, self._turn = self._runs + 1, 0

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        self._turn += 1
        self.requests += 1
        upstream = FakeUpstream(rules=self.rules, binding="error" if self.is_bound else "off")
        prefix = self._sent_before(upstream)
        try:
            said = upstream.respond(request.body, reply=say(*self._answer(request)), session="fork")
        except UpstreamError as e:
            self.invalid += 1
            self.first_violation = self.first_violation or e.message
            raise BadRequest(e.message) from None
        usage = said.usage
        self.prefix_tokens += prefix
        self.read_tokens += min(prefix, usage.cache_read_input_tokens)
        self._paid(usage)
        blocks = tuple(block_of(block) for block in said.content)
        identity = ResponseId(f"fork-{self.requests}")
        for delta in deltas_of(identity, blocks):
            yield delta
        yield Reply(
            response=identity,
            model=self.model,
            blocks=blocks,
            stop_reason=said.stop_reason,
            usage=Usage(
                usage.input_tokens,
                usage.output_tokens,
                usage.cache_read_input_tokens,
                usage.cache_creation_input_tokens,
            ),
        )

    def _sent_before(self, upstream: FakeUpstream) -> int:
        """Let the cache hold the conversation's last request; gives its tokens (0: it was refused)."""
        if self.sent is None:
            return 0
        try:
            return upstream.respond(self.sent.body, session="main").usage.prompt_tokens
        except UpstreamError:
            return 0

    def _paid(self, usage: Any) -> None:
        self.cost.input += usage.input_tokens
        self.cost.cache_read += usage.cache_read_input_tokens
        self.cost.cache_write += usage.cache_creation_input_tokens
        self.cost.output += usage.output_tokens

    def _answer(self, request: Request) -> list[dict[str, Any]]:
        is_odd = self._turn == 1 and self._runs % _ODD == 0
        line = f"update {self._runs}"
        new = f"{_STATE}\n\n{line}" if self._line == _STATE else line
        old, self._line = ("nothing that stands there", self._line) if is_odd else (self._line, line)
        if b"<edit>" in request.groups[-1].blocks[-1].raw or (self._turn > 1 and not self._calls(request)):
            return [text(f"<edit>\n<old>\n{old}\n</old>\n<new>\n{new}\n</new>\n</edit>")]
        identity = f"toolu_fork_{self._runs}_{self._turn}"
        edit = {"file_path": self.path, "old_string": old, "new_string": new}
        if is_odd:
            return [text("Let me look."), tool_use("Bash", {"command": "ls"}, id=identity)]
        return [tool_use("Edit", edit, id=identity)]

    @staticmethod
    def _calls(request: Request) -> bool:
        return bool(request.groups[-1].results)

    async def count(self, request: Request) -> int | None:
        return None

    async def close(self) -> None:
        pass


@dataclass(slots=True)
class Forks:
    """The notes of a replayed session, kept by forks."""

    session: LiveSession
    stand_in: StandIn
    notes: SessionNotes
    runs: int = 0
    denied: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    is_running: bool = False  # what is heard meanwhile isn't the session's
    _answer: Message | None = None  # the answer that may have more to come

    @classmethod
    def of(cls, session: LiveSession, rules: ModelRules) -> Forks:
        file = MemoryNotes()
        model = session.view.front.model if session.view.front else None
        stand_in = StandIn(rules, Cost(session.model), model or "unknown", file.path, session.model.thinking_is_bound)
        return cls(session, stand_in, SessionNotes(session, file))

    async def before(self, message: Message | None) -> None:
        """Something else is about to be said, or nothing any more: the answer before it is whole."""
        last = self._answer
        if last is None or (message is not None and _is_more(last, message)):
            return
        self._answer = None
        await self._kept()

    def heard(self, message: Message, sent: Request | None) -> None:
        """A message joined the conversation; `sent` is the last request."""
        if message.role == "assistant" and message.origin == "model" and message.agent_id is None:
            self._answer, self.stand_in.sent = message, sent

    async def _kept(self) -> None:
        view, facts = self.session.view, self.session.facts()
        # A log's clock may stand still, so an hour has no end: its budget is left out, as is the off switch.
        settings = replace(facts.settings, notes=True, notes_runs_per_hour=0, notes_tokens_per_hour=0)
        facts = replace(facts, settings=settings)
        if not self.notes.is_due(view, facts):
            return
        self.stand_in.begins()
        self.is_running = True
        try:
            with helped(self.session, Helping(Models(notes=(self.stand_in,)), ())):  # the session's own has none
                await self.notes.keep(view.copy(), facts)
        finally:
            self.is_running = False
        fork = self.notes.fork
        if fork is None:
            return
        self.runs += 1
        self.denied += fork.denied
        if fork.reason:
            self.reasons[fork.reason.split(":")[0]] += 1

    def as_dict(self) -> dict[str, Any]:
        """The section `forks` of a replay's result (docs/replay.md)."""
        stand_in = self.stand_in
        prefix = stand_in.prefix_tokens
        return {
            "runs": self.runs,
            "requests": stand_in.requests,
            "invalid_requests": stand_in.invalid,
            "denied_calls": self.denied,
            "failed": dict(self.reasons),
            "prefix_tokens": prefix,
            "cache_read_tokens": stand_in.read_tokens,
            "share": round(stand_in.read_tokens / prefix, 4) if prefix else None,
            "cost": stand_in.cost.as_dict(),
        }


def _is_more(last: Message, message: Message) -> bool:
    """Whether a message goes on with an answer: it came from the same response."""
    return message.role == "assistant" and last.response_id is not None and message.response_id == last.response_id
