"""A replay's own checks: every request, the summaries that are asked for, and the forks of notes (CLI-2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

from perdure.adapters.journal.in_memory import MemoryNotes
from perdure.context.cost import usage_usd
from perdure.context.groups import MessageGroup
from perdure.context.models import ModelSpec, model_spec
from perdure.context.replies import Delta, ModelInfo, Reply
from perdure.context.request import ModelRequest
from perdure.context.view import THINKING
from perdure.engine.ask import BackgroundModels, JobModels, with_background_models
from perdure.engine.notes import SessionNotes
from perdure.engine.session import LiveSession
from perdure.errors import BadRequest
from perdure.lab.replay.cost import TokenCost
from perdure.memory.notes import form_of
from perdure.ports.session import Model
from perdure.testing import FakeUpstream, UpstreamError, check_anthropic, check_openai, say, text, tool_use
from perdure.testing.block_rules import ModelRules
from perdure.testing.models import deltas_of
from perdure.transcript.blocks import SERVER_RESULTS, block_of
from perdure.transcript.messages import Message, ResponseId, Usage

_WHOLE_EVERY = 50
_STUB = b'{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"-"},%b]}'


@dataclass(slots=True)
class RequestCheck:
    """Feed it every request in order, then call `finish`."""

    rules: ModelRules
    calls: int = 0
    invalid: int = 0
    unexplained: int = 0
    first_violation: str | None = None
    _thoughts: dict[str, tuple[bytes, ...]] = field(default_factory=dict)  # by call, as they were first sent beside it
    _last: list[tuple[str, bytes]] = field(default_factory=list)
    _groups: int = 0  # of the last request
    _unchecked: ModelRequest | None = None  # the last request, when only its end was checked

    def add(self, request: ModelRequest, *, is_announced: bool) -> None:
        """Check a request; `is_announced` when the engine said since the last one that the prefix moves."""
        parts = [(role, part.raw) for role, part in request.parts()]
        extends = _extends(parts, self._last)
        if not is_announced and not extends:
            self.unexplained += 1
        if not extends or self.calls % _WHOLE_EVERY == 0:
            self._judge(request.body)
            self._unchecked = None
        else:
            self._judge(self._end(request.groups) or request.body)
            self._unchecked = request
        self._judge_loop(request.groups)
        self._last, self._groups = parts, len(request.groups)
        self.calls += 1

    def finish(self) -> None:
        """Check the last request as a whole."""
        if self._unchecked is not None:
            self._judge(self._unchecked.body)

    def _end(self, groups: tuple[MessageGroup, ...]) -> bytes:
        """A request of the new groups, from the assistant's last one before them; empty where only all of it tells."""
        start = max(0, self._groups - 2)
        while start > 0 and groups[start].role != "assistant":
            start -= 1
        tail = groups[start:] if groups[start].role == "assistant" else groups[start + 1 :]
        if not tail or any(part.kind in SERVER_RESULTS for group in tail for part in group.blocks):
            return b""  # the call of such a result may stand anywhere before
        return _STUB % b",".join(_message(group) for group in tail)

    def _judge(self, body: bytes) -> None:
        found = check_anthropic(body, model_rules=self.rules)
        if found:
            self._violated(f"{found[0].rule}: {found[0].text}")

    def _judge_loop(self, groups: Sequence[MessageGroup]) -> None:
        """The thinking of the loop that the request continues stands there as it was first sent (TURN-15)."""
        has_results = False
        for number in range(len(groups) - 1, -1, -1):
            group = groups[number]
            if group.role == "user":
                has_results = has_results or bool(group.results)
                continue
            if not has_results:
                return
            has_results = False
            thoughts = tuple(part.raw for part in group.blocks if part.kind in THINKING)
            if any(self._thoughts.setdefault(call, thoughts) != thoughts for call in group.calls):
                self._violated(f"open_loop_thinking: messages.{number}: thinking of an open loop isn't as it was sent")
                return

    def _violated(self, what: str) -> None:
        self.invalid += 1
        self.first_violation = self.first_violation or what


def _message(group: MessageGroup) -> bytes:
    content = b",".join(part.raw for part in group.parts())
    return b'{"role":"%b","content":[%b]}' % (group.role.encode(), content)


def _extends(parts: list[tuple[str, bytes]], earlier: list[tuple[str, bytes]]) -> bool:
    if len(parts) < len(earlier):
        return False
    for (role, raw), (old_role, old) in zip(parts, earlier, strict=False):
        if role != old_role or (raw is not old and raw != old):
            return False
    return True


# Only the shape is judged here: what doesn't fit the model's window, the model itself refuses (CMP-4).
_RULES = ModelRules(window_tokens=10_000_000, max_output_tokens=10**9, allow_unknown=True)


@dataclass(slots=True)
class JudgedModel:
    """`ports.Model`: the model behind it, with each request held against the rules of its wire before it goes out."""

    model: Model
    requests: int = 0
    answers: int = 0
    invalid: int = 0
    first_violation: str | None = None
    usage: list[Usage] = field(default_factory=list)

    @property
    def about(self) -> ModelInfo:
        return self.model.about

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply, None]:
        self._judge(request)
        async with aclosing(self.model.stream(request)) as said:
            async for one in said:
                if isinstance(one, Reply):
                    self.answers += 1
                    paid = one.billed or one.usage
                    self.usage += [paid] if paid else []
                yield one

    def _judge(self, request: ModelRequest) -> None:
        self.requests += 1
        if request.protocol == "openai":
            found = check_openai(request.body)
        else:
            found = check_anthropic(request.body, model_rules=_RULES)
        if found:
            self.invalid += 1
            self.first_violation = self.first_violation or f"{found[0].rule}: {found[0].text}"

    async def count(self, request: ModelRequest) -> int | None:
        return await self.model.count(request)

    async def close(self) -> None:
        await self.model.close()


def summarizer_result(models: tuple[JudgedModel, ...], known: tuple[ModelSpec, ...]) -> dict[str, Any] | None:
    """What was asked of the summarising models, in the documented form (docs/use/replay.md); None without any."""
    if not models:
        return None
    usd: float | None = 0.0
    for model in models:
        facts = model_spec(model.about.id, known)
        for one in model.usage:
            usd = None if usd is None or facts.input_usd is None else usd + usage_usd(one, facts)
    usage = [one for model in models for one in model.usage]
    return {
        "model": models[0].about.id,
        "requests": sum(model.requests for model in models),
        "answers": sum(model.answers for model in models),
        "invalid": sum(model.invalid for model in models),
        "input": sum(one.input_tokens for one in usage),
        "cache_write": sum(one.cache_creation_input_tokens for one in usage),
        "cache_read": sum(one.cache_read_input_tokens for one in usage),
        "output": sum(one.output_tokens for one in usage),
        "usd": None if usd is None else round(usd, 6),
    }


_ODD = 3  # every so many forks the stand-in does something else first
_STATE = next(one for one in form_of(None).sections if one.title == "Current State").about


@dataclass(slots=True)
class StandInModel:
    """`ports.Model` that answers a fork of one session, and counts what a provider would have made of its requests."""

    rules: ModelRules
    cost: TokenCost
    model: str
    path: str
    is_bound: bool = True  # whether the model takes thinking only behind the prefix it was made after
    sent: ModelRequest | None = None  # the conversation's last request, which its cache holds
    requests: int = 0
    invalid: int = 0
    first_violation: str | None = None
    prefix_tokens: int = 0
    read_tokens: int = 0
    _runs: int = 0
    _turn: int = 0
    _line: str = _STATE

    @property
    def about(self) -> ModelInfo:
        return ModelInfo(id=self.model, protocol="anthropic")

    def begins(self) -> None:
        """Another fork begins."""
        self._runs, self._turn = self._runs + 1, 0

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply, None]:
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

    def _answer(self, request: ModelRequest) -> list[dict[str, Any]]:
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
    def _calls(request: ModelRequest) -> bool:
        return bool(request.groups[-1].results)

    async def count(self, request: ModelRequest) -> int | None:
        return None

    async def close(self) -> None:
        pass


@dataclass(slots=True)
class ReplayForks:
    """The notes of a replayed session, kept by forks."""

    session: LiveSession
    stand_in: StandInModel
    notes: SessionNotes
    runs: int = 0
    denied: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    is_running: bool = False  # what is heard meanwhile isn't the session's
    _answer: Message | None = None  # the answer that may have more to come

    @classmethod
    def of(cls, session: LiveSession, rules: ModelRules) -> ReplayForks:
        file = MemoryNotes()
        model = session.view.front.model if session.view.front else None
        stand_in = StandInModel(
            rules, TokenCost(session.model), model or "unknown", file.path, session.model.thinking_is_bound
        )
        return cls(session, stand_in, SessionNotes(session, file))

    async def before(self, message: Message | None) -> None:
        """Something else is about to be said, or nothing any more: the answer before it is whole."""
        last = self._answer
        if last is None or (message is not None and _is_more(last, message)):
            return
        self._answer = None
        await self._kept()

    def on_message(self, message: Message, sent: ModelRequest | None) -> None:
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
            with with_background_models(
                self.session, BackgroundModels(JobModels(notes=(self.stand_in,)), ())
            ):  # the session's own has none
                seen = view.copy()
                seen.index = view.index
                await self.notes.keep(seen, facts)
                view.index = seen.index
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
        """The section `forks` of a replay's result (docs/use/replay.md)."""
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
