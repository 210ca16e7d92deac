"""A model server without a network: rules, window, prompt cache, thinking signatures, scripted answers, and what it
has seen.
"""

import time
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, Literal, NoReturn

import msgspec

from perdure.context.replies import StopReason
from perdure.testing.block_rules import THINKING, ModelRules, Violation
from perdure.testing.cache import (
    CacheBreakpoint,
    CacheUse,
    PromptBlocks,
    PromptCache,
    ThinkingBinding,
    position_after,
    prompt_of,
)
from perdure.testing.request import (
    DecodedBlock,
    DecodedRequest,
    RequestReader,
    TokenCounter,
    UnreadableBody,
    count_tokens,
    model_of,
)
from perdure.testing.request_rules import expected_thinking, open_loop, violations_of


@dataclass(frozen=True, slots=True)
class PrefixMove:
    """A request that was not an extension of the one before it in its session."""

    session: str
    request: int  # the number of the request, from 1
    position: int  # the first block that differs
    path: str  # the same as a path into the request
    kept_tokens: int
    rewritten_tokens: int


@dataclass(slots=True)
class Statistics:
    """Counts over the life of one upstream."""

    requests: int = 0
    answered: int = 0
    refused: int = 0  # requests that broke a rule, the window or a binding
    failed: int = 0  # scripted errors
    violations: Counter[str] = field(default_factory=Counter)  # by rule
    prefix_moves: list[PrefixMove] = field(default_factory=list)
    thinking_dropped: int = 0
    plain_tokens: int = 0
    read_tokens: int = 0
    written_tokens: int = 0
    output_tokens: int = 0
    content_tokens: int = 0  # every block counted once, when it is first sent

    @property
    def writes_per_content_token(self) -> float:
        """Tokens written to the cache for each token of content: near 1 when the prefix never moves."""
        return self.written_tokens / self.content_tokens if self.content_tokens else 0.0

    def count(self, use: CacheUse, output_tokens: int) -> None:
        """Add an answer; the upstream does it."""
        self.answered += 1
        self.plain_tokens += use.plain_tokens
        self.read_tokens += use.read_tokens
        self.written_tokens += use.written_tokens
        self.output_tokens += output_tokens


Block = dict[str, Any]


class UpstreamError(Exception):
    """An error answer. Raised by the fake upstream; as a scripted reply it is what the next request gets."""

    def __init__(
        self,
        status: int,
        type: str,
        message: str,
        *,
        retry_after: float | None = None,
        violations: Sequence[Violation] = (),
    ) -> None:
        super().__init__(f"{status} {type}: {message}")
        self.status = status
        self.type = type
        self.message = message
        self.violations = tuple(violations)
        self.headers = {} if retry_after is None else {"retry-after": f"{retry_after:g}"}

    @property
    def payload(self) -> dict[str, Any]:
        """The error answer as an object."""
        return {"type": "error", "error": {"type": self.type, "message": self.message}, "request_id": "req_fake"}

    @property
    def body(self) -> bytes:
        """The JSON body of the error answer."""
        return msgspec.json.encode(self.payload)


def rate_limited(retry_after: float | None = 1) -> UpstreamError:
    """An answer with status 429, for a script; `retry_after` is its header, in seconds."""
    said = "This request would exceed your organization's rate limit."
    return UpstreamError(429, "rate_limit_error", said, retry_after=retry_after)


def overloaded() -> UpstreamError:
    """An answer with status 529, for a script."""
    return UpstreamError(529, "overloaded_error", "Overloaded")


def server_error() -> UpstreamError:
    """An answer with status 500, for a script."""
    return UpstreamError(500, "api_error", "Internal server error")


def prompt_too_long(tokens: int, maximum: int) -> UpstreamError:
    """The refusal of a prompt that the window doesn't hold, for a script, with both numbers in its words."""
    return UpstreamError(400, "invalid_request_error", f"prompt is too long: {tokens} tokens > {maximum} maximum")


def text(words: str) -> Block:
    """A text block."""
    return {"type": "text", "text": words}


def thinking(words: str = "") -> Block:
    """A thinking block that is not signed yet; the upstream signs it for the prefix it answers."""
    return {"type": "thinking", "thinking": words}


def tool_use(name: str, input: Mapping[str, Any] | None = None, *, id: str | None = None) -> Block:
    """A tool call; without an id the upstream gives one."""
    call = {"type": "tool_use", "name": name, "input": dict(input or {})}
    return call if id is None else {**call, "id": id}


@dataclass(frozen=True, slots=True)
class ScriptedAnswer:
    """One scripted answer. Without a stop reason it is tool_use when there is a call, else end_turn."""

    content: tuple[Block, ...]
    stop_reason: StopReason | None = None
    output_tokens: int | None = None
    stop_sequence: str | None = None
    stop_details: dict[str, Any] | None = None


def say(
    *blocks: Block | str,
    stop_reason: StopReason | None = None,
    output_tokens: int | None = None,
    stop_details: dict[str, Any] | None = None,
) -> ScriptedAnswer:
    """Script an answer: strings are text blocks; several tool_use blocks are a parallel batch."""
    content = tuple(text(block) if isinstance(block, str) else block for block in blocks)
    return ScriptedAnswer(content, stop_reason, output_tokens, stop_details=stop_details)


Scripted = ScriptedAnswer | UpstreamError | str
"""One entry of a script: what `say` makes, an error, or the words of an answer."""


@dataclass(frozen=True, slots=True)
class UpstreamUsage:
    """Token counts; the three input parts sum to the counted prompt."""

    input_tokens: int
    cache_read_input_tokens: int
    cache_creation_input_tokens: int
    output_tokens: int
    created_1h_tokens: int = 0

    @property
    def prompt_tokens(self) -> int:
        """All of the prompt, cached or not."""
        return self.input_tokens + self.cache_read_input_tokens + self.cache_creation_input_tokens

    def as_json(self) -> dict[str, Any]:
        """As the `usage` of an answer has it."""
        return {
            "input_tokens": self.input_tokens,
            "cache_creation_input_tokens": self.cache_creation_input_tokens,
            "cache_read_input_tokens": self.cache_read_input_tokens,
            "cache_creation": {
                "ephemeral_5m_input_tokens": self.cache_creation_input_tokens - self.created_1h_tokens,
                "ephemeral_1h_input_tokens": self.created_1h_tokens,
            },
            "output_tokens": self.output_tokens,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamReply:
    """An answer of the fake upstream."""

    id: str
    model: str
    content: tuple[Block, ...]
    stop_reason: StopReason
    usage: UpstreamUsage
    stop_sequence: str | None = None
    stop_details: dict[str, Any] | None = None
    input_transformations: tuple[dict[str, Any], ...] = field(default=())

    @property
    def message(self) -> dict[str, Any]:
        """The Message object as the server's JSON has it."""
        message: dict[str, Any] = {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": list(self.content),
            "stop_reason": self.stop_reason,
            "stop_sequence": self.stop_sequence,
            "usage": self.usage.as_json(),
        }
        if self.stop_details is not None:
            message["stop_details"] = self.stop_details
        if self.input_transformations:
            message["input_transformations"] = list(self.input_transformations)
        return message

    @property
    def body(self) -> bytes:
        """The JSON body of the answer."""
        return msgspec.json.encode(self.message)

    @property
    def as_param(self) -> dict[str, Any]:
        """The assistant message to append to the next request."""
        return {"role": "assistant", "content": list(self.content)}


Binding = Literal["error", "on_request", "off"]
_MODIFIED = (
    "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. These blocks must "
    "remain as they were in the original response."
)


@dataclass(slots=True)
class _Conversation:
    """What is remembered of one conversation."""

    prompt: PromptBlocks | None = None
    thoughts: dict[str, tuple[bytes, ...]] = field(default_factory=dict)  # call id -> thinking of its message
    seen: set[bytes] = field(default_factory=set)  # digests that were counted as content


class FakeUpstream:
    """An in-process model server. `respond` takes a request body and gives an `UpstreamReply`, or raises
    `UpstreamError`.

    Args:
        rules: limits of every model, or what gives those of a model by its name; without any, the limits that Perdure
            itself knows of it
        script: answers in order; when it is used up, every answer is the text "ok"
        binding: thinking signatures: "error" checks every request, "on_request" only those that set
            `thinking.block_binding` (accounts from before September 2026), "off" never
        require_thinking: thinking of an open tool loop that this upstream issued or saw has to come back unmodified
        leading_may_go: the earliest thinking blocks may be left out (a block between others may not)
        strict: consecutive messages of one role are refused (the real server merges them)
        count: tokens of one block; it must not depend on `cache_control`, which it never sees
        clock: seconds; moves the cache's time to live
    """

    def __init__(
        self,
        *,
        rules: ModelRules | Callable[[str], ModelRules] = ModelRules.of,
        script: Iterable[Scripted] = (),
        binding: Binding = "error",
        require_thinking: bool = True,
        leading_may_go: bool = True,
        strict: bool = True,
        count: TokenCounter = count_tokens,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.statistics = Statistics()
        self.script: deque[Scripted] = deque(script)
        self._rules = rules
        self._readers: dict[ModelRules, RequestReader] = {}
        self._caches: dict[int, PromptCache] = {}
        self._sessions: dict[str, _Conversation] = {}
        self._binding = ThinkingBinding(leading_may_go=leading_may_go)
        self._enforce: Binding = binding
        self._require_thinking = require_thinking
        self.strict = strict
        self._count = count
        self._clock = clock

    def respond(self, body: bytes, *, reply: Scripted | None = None, session: str | None = None) -> UpstreamReply:
        """Answer a request with `reply`, or with the next of the script.

        Prefix moves are told within a `session`; without one it is the request's `metadata.user_id`.
        """
        self.statistics.requests += 1
        rules, request = self._read(body)
        name = session if session is not None else _session_of(request)
        self._check_open_loop(request, self._conversation(name))
        return self.answer(request, rules, session=name, reply=reply)

    def answer(
        self,
        request: DecodedRequest,
        rules: ModelRules,
        *,
        session: str,
        reply: Scripted | None = None,
        first: Sequence[Block] = (),
        trims: bool = False,
    ) -> UpstreamReply:
        """Answer a request of any protocol that was read and broke no rule of its own.

        `first` are blocks that come before those of the script. With `trims`, what doesn't fit is dropped from the
        beginning of the conversation instead of being refused.
        """
        now = self._clock()
        memory = self._conversation(session)
        sent = prompt_of(request, memory.prompt)
        dropped = self._check_binding(request, sent)
        prompt = self._effective(sent, dropped)
        if trims:
            prompt = _trimmed(prompt, rules.window_tokens)
        self._check_window(request, prompt, rules)
        script = self._next(reply if reply is not None else self.reply_to(request))
        if first:
            script = replace(script, content=(*first, *script.content))
        self._remember(session, memory, sent)
        _keep_shown_thoughts(memory, request)
        use = self._cache(rules).use(prompt, _markers(prompt, request), _root(request), now)
        content, facts = self._content(script, request, sent, self.reader(rules))
        _keep_thoughts(memory, facts)
        output = sum(block.tokens for block in facts) if script.output_tokens is None else script.output_tokens
        self.statistics.count(use, output)
        return UpstreamReply(
            id=self._new_id("msg", sent),
            model=str(request.fields["model"]),
            content=content,
            stop_reason=_stop_reason(script, request),
            usage=UpstreamUsage(use.plain_tokens, use.read_tokens, use.written_tokens, output, use.written_1h_tokens),
            stop_sequence=script.stop_sequence,
            stop_details=script.stop_details,
            input_transformations=tuple({"type": "thinking_dropped", "path": sent.path(at)} for at in sorted(dropped)),
        )

    def signed(self, seal: str, words: str) -> bool:
        """Whether this upstream signed this thinking; anything is taken where signatures aren't checked."""
        return self._enforce == "off" or self._binding.is_own(seal, words)

    def reply_to(self, request: DecodedRequest) -> Scripted | None:
        """What to answer to a request that broke no rule; None: the next of the script.

        For a double that looks at what it is asked, whatever the protocol: override it.
        """
        return None

    def forget_cache(self) -> None:
        """Lose every prompt cache, as a provider may at any time."""
        self._caches.clear()

    def count_tokens(self, body: bytes) -> dict[str, int]:
        """What `/v1/messages/count_tokens` answers: the counting of `respond`; of the rules, only that it is JSON."""
        try:
            return {"input_tokens": prompt_of(self.reader(self.rules_of(model_of(body))).read(body), None).tokens}
        except UnreadableBody as error:
            raise UpstreamError(400, "invalid_request_error", str(error)) from error

    # --- reading and refusing -----------------------------------------------------------------------------------

    def _read(self, body: bytes) -> tuple[ModelRules, DecodedRequest]:
        rules = self.rules_of(model_of(body))
        reader = self.reader(rules)
        request, found = violations_of(body, reader, strict=self.strict)
        if found or request is None:
            self.refuse(found)
        return rules, request

    def refuse(self, found: Sequence[Violation], status: int = 400) -> NoReturn:
        """Count a request that breaks rules, and raise the error that it is answered with."""
        self.statistics.refused += 1
        self.statistics.violations.update(violation.rule for violation in found)
        first = found[0]
        kind = "invalid_request_error"
        if first.rule == "body_bytes":
            status, kind = 413, "request_too_large"
        raise UpstreamError(status, kind, first.text, violations=found)

    def _check_open_loop(self, request: DecodedRequest, memory: _Conversation) -> None:
        """Thinking of the tool loop that this request continues has to be there as we issued or first saw it.

        All of it, in its order, beside its call; with `redacted_thinking` and blocks whose text is empty.
        """
        if not self._require_thinking or request.thinking.get("type") == "disabled":
            return
        for index in open_loop(request.messages):
            blocks = request.messages[index].blocks
            there = [(at, block.digest) for at, block in enumerate(blocks) if block.kind in THINKING]
            calls = [block.link for block in blocks if block.kind == "tool_use"]
            issued = list(dict.fromkeys(digest for link in calls for digest in memory.thoughts.get(link, ())))
            if [digest for _, digest in there if digest in issued] == issued:
                continue
            path = f"messages.{index}.content.{there[0][0] if there else 0}"
            said = f"{path}: {_MODIFIED}" if there else expected_thinking(path, blocks[0].kind)
            self.refuse([Violation("open_loop_thinking", path, said)])

    def _check_binding(self, request: DecodedRequest, sent: PromptBlocks) -> set[int]:
        """Positions of the thinking blocks that are dropped; raises when the request did not ask to drop them."""
        asked = request.thinking.get("block_binding")
        behaviour = asked.get("prefix_mismatch_behavior") if isinstance(asked, dict) else None
        if self._enforce == "off" or (self._enforce == "on_request" and behaviour is None):
            return set()
        found = list(self._binding.mismatches(sent))
        if found and behaviour != "drop_block":
            path = sent.path(found[0].position)
            self.refuse([Violation("thinking_binding", path, f"{path}: {found[0].said}")])
        self.statistics.thinking_dropped += len(found)
        return {mismatch.position for mismatch in found}

    def _effective(self, sent: PromptBlocks, dropped: set[int]) -> PromptBlocks:
        """What the model reads: without dropped thinking, and without messages before the last compaction block."""
        summary = max((at for at, block in enumerate(sent.blocks) if block.summary), default=0)
        head = len(sent.head)
        if not dropped and summary <= head:
            return sent
        return sent.without(lambda at: at in dropped or head <= at < summary)

    def _check_window(self, request: DecodedRequest, prompt: PromptBlocks, rules: ModelRules) -> None:
        window, asked = rules.window_tokens, int(request.fields["max_tokens"])
        said = ""
        if prompt.tokens > window:
            said = prompt_too_long(prompt.tokens, window).message
        elif rules.output_must_fit and prompt.tokens + asked > window:
            sum_ = f"{prompt.tokens} + {asked} > {window}"
            said = f"input length and `max_tokens` exceed context limit: {sum_}, decrease input length or `max_tokens` "
            said += "and try again"
        if said:
            self.refuse([Violation("window", "", said)])

    # --- remembering and answering ------------------------------------------------------------------------------

    def _conversation(self, name: str) -> _Conversation:
        return self._sessions.setdefault(name, _Conversation())

    def _next(self, reply: Scripted | None) -> ScriptedAnswer:
        if reply is None:
            reply = self.script.popleft() if self.script else "ok"
        if isinstance(reply, UpstreamError):
            self.statistics.failed += 1
            raise reply
        return ScriptedAnswer((text(reply),)) if isinstance(reply, str) else reply

    def _remember(self, name: str, memory: _Conversation, sent: PromptBlocks) -> None:
        """Tell a prefix move, count new content, and keep the prompt for the next request."""
        before = memory.prompt
        shared = sent.shared_with(before) if before is not None else 0
        moved = before is not None and shared < len(before.blocks)
        if moved:
            kept = sent.totals[shared - 1] if shared else 0
            number, path = self.statistics.requests, sent.path(shared)
            self.statistics.prefix_moves.append(PrefixMove(name, number, shared, path, kept, sent.tokens - kept))
        for block in sent.blocks[shared:]:
            if not (moved and block.digest in memory.seen):
                self.statistics.content_tokens += block.tokens
            memory.seen.add(block.digest)
        memory.prompt = sent

    def _content(
        self, script: ScriptedAnswer, request: DecodedRequest, sent: PromptBlocks, reader: RequestReader
    ) -> tuple[tuple[Block, ...], list[DecodedBlock]]:
        """The script's blocks, with ids given and thinking signed for the place where it stands; and their facts."""
        content: list[Block] = []
        facts: list[DecodedBlock] = []
        place = position_after(sent)
        for number, block in enumerate(script.content if request.fields["max_tokens"] else ()):
            if block["type"] == "tool_use" and "id" not in block:
                block = {"type": "tool_use", "id": self._new_id(request.ways.call_prefix, sent, number), **block}
            elif block["type"] == "thinking" and "signature" not in block:
                block = {**block, "signature": self._binding.sign(place, block["thinking"])}
            content.append(block)
            facts.append(reader.block(block, "assistant"))
            place = place.then(facts[-1])
        return tuple(content), facts

    def _new_id(self, kind: str, sent: PromptBlocks, number: int = 0) -> str:
        """An id of its own for each answer and call, also in a session that another process began.

        The same conversation has the same ids in every run.
        """
        place = f"{self.statistics.answered} {number} ".encode() + sent.chain[-1]
        return f"{kind}_{sha256(place).hexdigest()[:9]}"

    def rules_of(self, model: str) -> ModelRules:
        """The limits of a model."""
        return self._rules if isinstance(self._rules, ModelRules) else self._rules(model)

    def reader(self, rules: ModelRules) -> RequestReader:
        """What reads blocks under these rules; always the same one."""
        if rules not in self._readers:
            self._readers[rules] = RequestReader(rules, self._count)
        return self._readers[rules]

    def _cache(self, rules: ModelRules) -> PromptCache:
        least = rules.min_cacheable_tokens
        return self._caches.setdefault(least, PromptCache(least))


def _trimmed(prompt: PromptBlocks, window: int) -> PromptBlocks:
    """What is left of a prompt when blocks are dropped from the beginning of the conversation until it fits."""
    head = len(prompt.head)
    over = prompt.tokens - window
    first = bisect_left(prompt.totals, over + (prompt.totals[head - 1] if head else 0)) + 1 if over > 0 else head
    return prompt.without(lambda at: head <= at < first) if over > 0 else prompt


def _keep_thoughts(memory: _Conversation, facts: list[DecodedBlock]) -> None:
    """Remember which thinking stood beside which call, for as long as their tool loop is open."""
    thoughts = tuple(block.digest for block in facts if block.kind in THINKING)
    if thoughts:
        memory.thoughts.update((block.link, thoughts) for block in facts if block.kind == "tool_use")


def _keep_shown_thoughts(memory: _Conversation, request: DecodedRequest) -> None:
    """The same of a loop that began elsewhere, such as in a recording, from when it was first shown."""
    for index in open_loop(request.messages):
        blocks = request.messages[index].blocks
        thoughts = tuple(block.digest for block in blocks if block.kind in THINKING)
        for block in blocks:
            if block.kind == "tool_use":
                memory.thoughts.setdefault(block.link, thoughts)


def _session_of(request: DecodedRequest) -> str:
    metadata = request.fields.get("metadata")
    return str(metadata.get("user_id", "")) if isinstance(metadata, dict) else ""


def _markers(prompt: PromptBlocks, request: DecodedRequest) -> list[CacheBreakpoint]:
    markers = [CacheBreakpoint(at, block.ttls[-1]) for at, block in enumerate(prompt.blocks) if block.ttls]
    auto = request.fields.get("cache_control")
    last = next((at for at in range(len(prompt.blocks) - 1, -1, -1) if prompt.blocks[at].kind not in THINKING), None)
    if isinstance(auto, dict) and last is not None and not prompt.blocks[last].ttls:
        markers.append(CacheBreakpoint(last, str(auto.get("ttl") or "5m")))
    return markers


def _root(request: DecodedRequest) -> tuple[str, bytes]:
    """What separates caches: the model; and for messages also tool choice, thinking and effort."""
    config = request.fields.get("output_config")
    settings = [
        request.fields.get("tool_choice"),
        request.thinking.get("type"),
        request.thinking.get("budget_tokens"),
        config.get("effort") if isinstance(config, dict) else None,
    ]
    return str(request.fields["model"]), sha256(msgspec.json.encode(settings)).digest()


def _stop_reason(script: ScriptedAnswer, request: DecodedRequest) -> StopReason:
    if request.fields["max_tokens"] == 0:
        return "max_tokens"
    if script.stop_reason is not None:
        return script.stop_reason
    return "tool_use" if any(block["type"] == "tool_use" for block in script.content) else "end_turn"
