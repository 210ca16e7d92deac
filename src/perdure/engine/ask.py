"""Asking a model: the call and its bounded ladder, and which models each job has (TURN-11, TURN-12, SM-3)."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Literal, get_args

import anyio
import msgspec

from perdure.context.cost import ForkSpending, spending_record, usage_usd
from perdure.context.cuts import open_loop
from perdure.context.failures import (
    correction,
    fits_already,
    window_after_cut,
    without_refused_media,
    without_refused_thinking,
)
from perdure.context.replies import (
    Delta,
    ModelInfo,
    PartialReply,
    Reply,
    TextDelta,
    ThinkingDelta,
    ToolInputDelta,
)
from perdure.context.request import ModelRequest
from perdure.context.state import PROVIDER_EDITED
from perdure.context.thinking import closing_lines
from perdure.engine.session import LiveSession, watch
from perdure.errors import (
    AnswerEndless,
    BadSetting,
    BodyTooLarge,
    MediaRefused,
    ModelDown,
    ModelError,
    ModelGaveUp,
    OutputTooLong,
    Overloaded,
    PromptTooLong,
    PromptTruncated,
    StreamCut,
    ThinkingRefused,
)
from perdure.events import (
    AnswerInterrupted,
    LadderGaveUp,
    LadderStepped,
    ModelCalled,
    ModelFailed,
    ModelFellBack,
    PromptCutByServer,
    ProviderEdited,
    RetryWaited,
    WindowLearned,
)
from perdure.ports.session import Model
from perdure.settings import Settings
from perdure.transcript.blocks import Block
from perdure.transcript.messages import Message, Usage, with_call_ids
from perdure.transcript.records import Calibrated, Edit, Front, Noted

# --- what can come out of a call ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GoodAnswer:
    """There is an answer."""


@dataclass(frozen=True, slots=True)
class EmptyAnswer:
    """The answer says nothing: no text, no call."""


@dataclass(frozen=True, slots=True)
class WindowStop:
    """The answer was cut by the end of the window; what came of it was kept."""


@dataclass(frozen=True, slots=True)
class RemedyUseless:
    """The last remedy found nothing to change."""

    reason: str


CallOutcome = GoodAnswer | EmptyAnswer | WindowStop | RemedyUseless | ModelError

# --- what can be done -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeliverAnswer:
    """The answer is the turn's."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Ask again, after a time."""

    seconds: float
    reason: str


@dataclass(frozen=True, slots=True)
class Correct:
    """The prompt fits, the length of the answer doesn't: learn the limit from the error, and ask again."""

    error: PromptTooLong | OutputTooLong


@dataclass(frozen=True, slots=True)
class Compact:
    """Compact, seeded with what the error states, and ask again."""

    error: PromptTooLong | None
    reason: str


@dataclass(frozen=True, slots=True)
class DropMedia:
    path: str | None
    reason: str = "media_refused"


@dataclass(frozen=True, slots=True)
class DropThinking:
    path: str | None
    reason: str = "thinking_refused"


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Nothing is left to try."""

    last: ModelError
    tried: tuple[str, ...]


Action = DeliverAnswer | Retry | Correct | Compact | DropMedia | DropThinking | GiveUp
Remedy = Retry | Correct | Compact | DropMedia | DropThinking

# --- the machine ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RemedyLimits:
    """How often each remedy may be tried in one turn. `seconds` is all the waiting together."""

    retries: int = 8
    seconds: float = 300.0
    cuts: int = 2
    blanks: int = 1
    compactions: int = 1
    window_stops: int = 1
    media: int = 4
    thinking: int = 2

    @classmethod
    def of(cls, settings: Settings) -> RemedyLimits:
        """As the settings say."""
        return cls(retries=settings.retry_attempts, seconds=settings.retry_budget_seconds, cuts=settings.cut_retries)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryLadder:
    """How much of each was used. `last` is the error that the remedy under way answers."""

    rungs: RemedyLimits = RemedyLimits()
    retries: int = 0
    seconds: float = 0.0
    cuts: int = 0
    blanks: int = 0
    corrections: int = 0
    compactions: int = 0
    window_stops: int = 0
    media: int = 0
    thinking: int = 0
    last: ModelError | None = None
    tried: tuple[str, ...] = ()

    @property
    def used(self) -> int:
        """Remedies tried; grows with every action but the last."""
        return len(self.tried)


def step(ladder: RecoveryLadder, outcome: CallOutcome) -> tuple[RecoveryLadder, Action]:
    """The next thing to do. Exceptions are values here: nothing is raised."""
    rungs = ladder.rungs
    match outcome:
        case GoodAnswer():
            return ladder, DeliverAnswer()
        case EmptyAnswer():
            if ladder.blanks < rungs.blanks:
                return _with_remedy_tried(ladder, "asked again after an empty answer", blanks=1), Retry(
                    0.0, "empty_answer"
                )
            return ladder, DeliverAnswer()
        case WindowStop():
            if ladder.window_stops < rungs.window_stops:
                done = _with_remedy_tried(ladder, "compacted when the answer met the window", window_stops=1)
                return replace(done, last=_WINDOW_STOP), Compact(None, "context_window_stop")
            return _give_up(ladder, _WINDOW_STOP)
        case RemedyUseless():
            tried = (*ladder.tried[:-1], f"{ladder.tried[-1]} (no use: {outcome.reason})") if ladder.tried else ()
            return _give_up(replace(ladder, tried=tried), ladder.last or ModelError(outcome.reason))
        case Overloaded() | ModelDown():
            return _later(ladder, outcome)
        case StreamCut():
            if ladder.cuts < rungs.cuts:
                return _with_remedy_tried(ladder, "asked again after a cut stream", outcome, cuts=1), Retry(
                    0.0, outcome.reason
                )
        case OutputTooLong() if not ladder.corrections:
            return _with_remedy_tried(ladder, "asked for a shorter answer", outcome, corrections=1), Correct(outcome)
        case PromptTooLong() if fits_already(outcome) and not ladder.corrections:
            return _with_remedy_tried(ladder, "asked for a shorter answer", outcome, corrections=1), Correct(outcome)
        case PromptTooLong() | BodyTooLarge():
            if ladder.compactions < rungs.compactions:
                error = outcome if isinstance(outcome, PromptTooLong) else None
                return _with_remedy_tried(ladder, "compacted", outcome, compactions=1), Compact(error, outcome.reason)
        case MediaRefused():
            if ladder.media < rungs.media:
                path = outcome.path if ladder.media < rungs.media - 1 else None
                return _with_remedy_tried(ladder, "left media out", outcome, media=1), DropMedia(path)
        case ThinkingRefused():
            if ladder.thinking < rungs.thinking:
                path = outcome.path if not ladder.thinking else None
                return _with_remedy_tried(ladder, "dropped thinking", outcome, thinking=1), DropThinking(path)
        case _:
            pass
    return _give_up(ladder, outcome)


_WINDOW_STOP = ModelError("the answer met the end of the context window again")


def _later(ladder: RecoveryLadder, error: Overloaded | ModelDown) -> tuple[RecoveryLadder, Action]:
    """Wait as long as the server says, else 1, 2, 4, … seconds; all waiting together has an end."""
    stated = error.retry_after_seconds if isinstance(error, Overloaded) else None
    seconds = float(min(2**ladder.retries, 60)) if stated is None else stated
    left = ladder.rungs.seconds - ladder.seconds
    if ladder.retries >= ladder.rungs.retries or seconds > left:
        return _give_up(ladder, error)
    done = _with_remedy_tried(ladder, f"waited {seconds:g} s ({error.reason})", error, retries=1)
    return replace(done, seconds=ladder.seconds + seconds), Retry(seconds, error.reason)


def _with_remedy_tried(
    ladder: RecoveryLadder, what: str, error: ModelError | None = None, **used: int
) -> RecoveryLadder:
    counts = {name: getattr(ladder, name) + more for name, more in used.items()}
    return replace(ladder, tried=(*ladder.tried, what), last=error or ladder.last, **counts)


def _give_up(ladder: RecoveryLadder, error: ModelError) -> tuple[RecoveryLadder, GiveUp]:
    return ladder, GiveUp(error, ladder.tried)


OnDelta = Callable[[Delta], None]
Shrinking = Callable[[], Awaitable["str | None"]]
"""Makes the conversation smaller; returns why that changed nothing. What a call knows of compaction."""
INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class ModelCall:
    """A request on its way: what is asked, how large we take it for, and which job it is for."""

    request: ModelRequest
    tokens: int
    job: str = "main"


async def record_model(session: LiveSession, about: ModelInfo) -> None:
    """Record which model is asked from now on, and the window it states of itself (PRS-8); nothing when both stand."""
    front = session.view.front
    if front is None or front.model != about.id:
        await session.record(msgspec.structs.replace(front or Front(), model=about.id))
    limits, calibration = session.limits, session.view.state.calibration
    is_same = calibration.model in (None, about.id)
    window = about.window_tokens if not (is_same and calibration.window_tokens) else None
    output = about.max_output_tokens if not (is_same and calibration.output_tokens) else None
    if limits.window_source not in ("model", "default", "provider") or window == session.model.window_tokens:
        window = None  # the user's word counts, and what the table says needn't be learned
    if output is not None and output >= session.model.max_output_tokens:
        output = None
    was_other = not is_same and (calibration.window_tokens or calibration.output_tokens)
    if window is None and output is None and not was_other:
        return
    ratio = calibration.ratio if is_same else session.model.tokens_ratio
    learned = Calibrated(model=about.id, ratio=ratio, window_tokens=window, output_tokens=output)
    await session.record(learned)
    if window:
        session.emit(WindowLearned(about.id, window, limits.window, "the model states it"))


async def call(
    session: LiveSession, model: Model, asked: ModelCall, on_delta: OnDelta | None = None
) -> Reply | ModelError:
    """Ask once. What the model says comes back, or the error it ended with; an interruption keeps whole blocks."""
    about, clock = model.about, session.ports.clock
    began, partial = clock.now(), PartialReply()
    try:
        async with within_caps(session, about.id, asked.tokens) as cost:
            try:
                spec = session.services.facts_of(about.id)
                most = _CHARS_PER_TOKEN * max(spec.max_output_tokens, session.settings.max_output_tokens or 0)
                reply = await _streamed(model, asked.request, partial, on_delta, most)
                cost.usage, cost.has_begun = reply.billed or reply.usage, True
            finally:
                cost.has_begun = cost.has_begun or bool(partial.begun)
    except ModelError as error:
        session.emit(ModelFailed(about.id, asked.job, error.reason, error.status, clock.now() - began))
        return error
    except GeneratorExit:  # nothing may be awaited any more
        raise
    except BaseException:
        if asked.job == "main":
            with anyio.CancelScope(shield=True):
                await _keep(session, about, partial)
        raise
    usage = reply.usage
    spec = session.model if asked.job == "main" else session.services.facts_of(about.id)
    session.emit(
        ModelCalled(
            about.id,
            asked.job,
            reply.response,
            reply.stop_reason,
            clock.now() - began,
            asked.tokens,
            usage.prompt_tokens if usage else None,
            usage.cache_read_input_tokens if usage else None,
            usage.output_tokens if usage else None,
            usage_usd(reply.billed or usage, spec) if usage and spec.input_usd else None,
        )
    )
    for edit in reply.edits:
        session.emit(ProviderEdited(edit.kind, edit.cleared, edit.cleared_tokens))
    return _cut_by_server(session, about, asked, reply) or reply


@dataclass(slots=True)
class CallCost:
    """What is known so far of what a call cost: the usage, and whether an answer had begun."""

    usage: Usage | None = None
    has_begun: bool = False


_LIKELY_OUTPUT_TOKENS = 8_000  # of an answer, as long as none has told what answers cost


@asynccontextmanager
async def within_caps(session: LiveSession, model: str, tokens: int) -> AsyncIterator[CallCost]:
    """A call within the caps on spending, if any is set (OBS-2); whoever makes it enters what it cost.

    It is expected to cost what its prompt costs read from the cache. Behind it stands what it did cost: an answer that
    broke off is taken for the whole prompt, and one that never began for nothing. Raises `SpendingCapReached`.
    """
    caps, cost = session.ports.caps, CallCost()
    if caps is None or model == OFFLINE:
        yield cost
        return
    spec = session.services.facts_of(model)
    price = spec.input_price() if spec.input_usd is not None and spec.output_usd is not None else None
    least = price * tokens * spec.read_factor if price is not None else None
    first = Usage(cache_creation_input_tokens=tokens, output_tokens=min(spec.max_output_tokens, _LIKELY_OUTPUT_TOKENS))
    identity, is_open = await caps.admit(model, least, likely_usd=usage_usd(first, spec)), True
    try:
        yield cost
    except GeneratorExit:  # nothing may be awaited any more: it counts as expected
        is_open = False
        raise
    finally:
        whole = (price or 0.0) * tokens if cost.has_begun else 0.0
        if is_open:
            with anyio.CancelScope(shield=True):
                await caps.settle(identity, whole if cost.usage is None else usage_usd(cost.usage, spec))


async def _streamed(
    model: Model, request: ModelRequest, partial: PartialReply, on_delta: OnDelta | None, most_chars: int
) -> Reply:
    reply, chars = None, 0
    opened: object = model.stream(request)
    if not isinstance(opened, AsyncGenerator):
        if inspect.iscoroutine(opened):
            opened.close()  # else Python warns that nobody awaited it
        raise BadSetting(
            f"{type(model).__name__}.stream must be an async generator, which yields deltas and then a Reply; "
            f"it gave {type(opened).__name__}"
        )
    async with aclosing(opened) as stream:
        async for delta in stream:
            if isinstance(delta, Reply):
                reply = delta
                break
            partial.feed(delta)
            if on_delta is not None:
                on_delta(delta)
            chars += len(delta.text) if isinstance(delta, TextDelta | ThinkingDelta) else 0
            chars += len(delta.json) if isinstance(delta, ToolInputDelta) else 0
            if chars > most_chars:  # some servers know no limit, and their models no end
                raise AnswerEndless(f"the answer has more than {most_chars:,} characters and no end")
    if reply is None:
        raise ModelError("the stream ended without a reply")
    return reply


def _cut_by_server(session: LiveSession, about: ModelInfo, asked: ModelCall, reply: Reply) -> PromptTruncated | None:
    """Whether a server left out the beginning of the prompt without a word (LIB-3). Media are counted too roughly."""
    if about.protocol != "openai" or session.view.media:
        return None
    window = window_after_cut(asked.tokens, reply.usage)
    if window is None or reply.usage is None:
        return None
    reported = reply.usage.prompt_tokens
    session.emit(PromptCutByServer(about.id, asked.tokens, reported, window))
    detail = f"{asked.tokens:,} tokens were sent and {reported:,} read: raise the server's context length"
    return PromptTruncated(detail, tokens=asked.tokens, maximum=window)


async def _keep(session: LiveSession, about: ModelInfo, partial: PartialReply) -> None:
    """After an interruption: whole blocks stay as an answer, so that the session goes on from there (TURN-11)."""
    kept = partial.kept()
    dropped = len(partial.begun) - len(kept)
    if kept:
        await session.append(_message(about, with_own_ids(session, kept), partial, INTERRUPTED))
    elif partial.begun:
        data = {"response": partial.response, "blocks": dropped, "reason": INTERRUPTED}
        await session.record(Noted(kind="answer_dropped", data=data))
    if partial.begun:
        session.emit(AnswerInterrupted(about.id, partial.response, len(kept), dropped))


def _message(
    about: ModelInfo,
    blocks: tuple[Block, ...],
    reply: Reply | PartialReply,
    stop_reason: str,
    *,
    note: str | None = None,
) -> Message:
    return Message.of(
        "assistant",
        blocks,
        note=note,
        response_id=reply.response or None,
        model=about.id,
        usage=reply.usage if isinstance(reply, Reply) else None,
        stop_reason=stop_reason,
    )


def with_own_ids(session: LiveSession, blocks: tuple[Block, ...]) -> tuple[Block, ...]:
    """The blocks of an answer with an id of its own for each call, before anybody is told of them."""
    if not any(block.type == "tool_use" for block in blocks):
        return blocks
    return with_call_ids(blocks, session.view.call_ids().call, str)


async def append_reply(session: LiveSession, about: ModelInfo, reply: Reply, request: ModelRequest) -> Reply:
    """The answer joins the conversation, with its usage and the id of its response (TURN-12); returns it as it did."""
    is_edited = bool(reply.edits) or b'"type":"compaction"' in request.body
    is_edited = is_edited or any(block.type == "compaction" for block in reply.blocks)
    note = PROVIDER_EDITED if is_edited else None
    watch(session, reply)
    reply = replace(reply, blocks=with_own_ids(session, reply.blocks))
    await session.append(_message(about, reply.blocks, reply, reply.stop_reason, note=note))
    return reply


async def apply(
    session: LiveSession, about: ModelInfo, remedy: Remedy, request: ModelRequest, source: str, *, shrink: Shrinking
) -> str | None:
    """Do what the ladder says. Returns why it changed nothing; None when it is worth asking again."""
    if isinstance(remedy, Retry):
        if remedy.seconds:
            session.emit(RetryWaited(about.id, remedy.reason, remedy.seconds))
            await session.ports.clock.sleep(remedy.seconds)
        return None
    match remedy:
        case Correct():
            await learn(session, about.id, remedy.error)
            useless = None
        case Compact():
            if remedy.error is not None:
                await learn(session, about.id, remedy.error)
            useless = await shrink()
        case DropMedia():
            media = without_refused_media(session.view, request.groups, remedy.path)
            useless = await _committed(session, media, source)
        case DropThinking():
            useless = await _without_thinking(session, request, remedy, source)
    name = remedy.error.reason if isinstance(remedy, Correct) else remedy.reason
    session.emit(LadderStepped(type(remedy).__name__, name, useless is None))
    return useless


async def _committed(session: LiveSession, edits: tuple[Edit, ...], source: str) -> str | None:
    return None if await session.commit(edits, session.facts(source)) else "there is nothing of the kind"


async def _without_thinking(
    session: LiveSession, request: ModelRequest, remedy: DropThinking, source: str
) -> str | None:
    """Drop what was refused; where none that stands was, close the loop, so that nothing is missing (TURN-15)."""
    useless = await _committed(session, without_refused_thinking(session.view, request.groups, remedy.path), source)
    if useless is None or open_loop(session.view) is None:
        return useless
    await session.append(*closing_lines())
    return None


async def learn(session: LiveSession, model: str, error: PromptTooLong | OutputTooLong) -> None:
    """Record what an error states of the window, of the size, and of answers (TOK-4, PRS-8)."""
    if isinstance(error, OutputTooLong):
        ratio = session.view.state.calibration.ratio
        await session.record(Calibrated(model=model, ratio=ratio, output_tokens=error.maximum))
        return
    before = session.limits.window
    learned = correction(session.view, session.facts(), error, model)
    await session.record(learned)
    if learned.window_tokens:
        session.emit(WindowLearned(model, learned.window_tokens, before, error.reason))


_CHARS_PER_TOKEN = 32  # of the longest answer: more than any text has, but for runs of blanks
OFFLINE = "offline"  # the name of the model that says it is none
Job = Literal["main", "summarizer", "notes", "selector", "extractor"]
JOBS: tuple[Job, ...] = get_args(Job)

Asking = Callable[[ModelInfo], tuple[ModelRequest, int]]
"""Makes the request of a job for the model that is asked, and says how many tokens it takes it for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobModels:
    """The models of each job, the first choice first. A job without any is done without a model."""

    main: tuple[Model, ...] = ()
    summarizer: tuple[Model, ...] = ()
    notes: tuple[Model, ...] = ()
    selector: tuple[Model, ...] = ()
    extractor: tuple[Model, ...] = ()

    def of(self, job: Job) -> tuple[Model, ...]:
        """The models to ask for a job, in order."""
        chain: tuple[Model, ...] = getattr(self, job)
        return chain

    async def close(self) -> None:
        """Close every model, each once."""
        for model in dict.fromkeys(model for job in JOBS for model in self.of(job)):
            await model.close()


async def ask_job(
    session: LiveSession, models: JobModels, job: Job, asking: Asking, *, billed_as: str = ""
) -> Reply | ModelError:
    """Ask the models of a job one after the other until one answers; else the last error, for the caller's own rung.

    With `billed_as`, what it cost is recorded under that name with the session's next record (OBS-2); a fork does that
    for itself, once for all of its calls.

    Waits and cut streams are retried as in a turn; what would need another request (a prompt that is too long, a
    medium) is the caller's to change, so it comes back at once, and so does a cancelled call.
    """
    last: ModelError = ModelError(f"no model is set for the job {job}")
    models_left = list(models.of(job))
    while models_left:
        model = models_left.pop(0)
        said = await _ask_one(session, model, job, asking)
        if isinstance(said, Reply):
            if billed_as and (paid := said.billed or said.usage) is not None:
                spec, now = session.services.facts_of(model.about.id), session.ports.clock.now()
                usd = usage_usd(paid, spec) if spec.input_usd is not None else None
                spent = ForkSpending(job=billed_as, model=model.about.id, at=now, turns=1, usage=paid, usd=usd)
                session.owe(spending_record(spent))
            return said
        last = said
        if models_left:
            session.emit(ModelFellBack(job, models_left[0].about.id, said.reason))
    return last


async def _ask_one(session: LiveSession, model: Model, job: Job, asking: Asking) -> Reply | ModelError:
    request, tokens = asking(model.about)
    ladder = RecoveryLadder(rungs=replace(RemedyLimits.of(session.settings), compactions=0))
    while True:
        said = await call(session, model, ModelCall(request, tokens, job))
        outcome = said if isinstance(said, ModelError) else EmptyAnswer() if said.is_empty else GoodAnswer()
        ladder, action = step(ladder, outcome)
        match action:
            case Retry():
                if action.seconds:
                    session.emit(RetryWaited(model.about.id, action.reason, action.seconds))
                    await session.ports.clock.sleep(action.seconds)
            case DeliverAnswer():
                return said
            case GiveUp() if action.tried:
                session.emit(LadderGaveUp(model.about.id, action.last.reason, action.tried))
                return ModelGaveUp(action.last, action.tried)
            case _:
                assert isinstance(said, ModelError)
                return said


@dataclass(frozen=True, slots=True)
class BackgroundModels:
    """The models of the jobs beside the conversation, and those that write records; code does a job without any."""

    helpers: JobModels
    summarizer: tuple[Model, ...]


_given: ContextVar[tuple[LiveSession, BackgroundModels] | None] = ContextVar("perdure-helping", default=None)


def background_models(session: LiveSession) -> BackgroundModels:
    """What helps now: what the turn was given that this is part of, or that started this work; else the session's."""
    given = _given.get()
    if given is not None and given[0] is session:
        return given[1]
    return own(session)


def own(
    session: LiveSession, *, summarizer: Sequence[Model] | None = None, helpers: JobModels | None = None
) -> BackgroundModels:
    """What helps where these are given; else what the session was given, else the model that it is held with.

    That one does only what runs on its cached prefix, and no job that the settings want done without a model.
    """
    settings, services, asked = session.settings, session.services, session.asked

    def chain(names: tuple[str, ...]) -> tuple[Model, ...]:
        return () if asked is None or names[:1] == (OFFLINE,) or asked.about.id == OFFLINE else (asked,)

    summarizer = services.summarizer if summarizer is None else summarizer
    helpers = helpers or services.helpers
    if summarizer is None and helpers is not None and helpers.summarizer:
        summarizer = helpers.summarizer
    if summarizer is None:
        summarizer = chain(settings.summarizer_models)
    if helpers is None:
        helpers = JobModels(notes=chain(settings.notes_models), extractor=chain(settings.extractor_models))
    return BackgroundModels(helpers, tuple(model for model in summarizer if model.about.id != OFFLINE))


@contextmanager
def with_background_models(session: LiveSession, by: BackgroundModels) -> Iterator[None]:
    """Within the block this helps the session, and whatever is started there for it; the session's own stay."""
    token = _given.set((session, by))
    try:
        yield
    finally:
        _given.reset(token)
