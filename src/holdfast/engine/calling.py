"""One call of a model, and the remedies between two: what `ask` in `turn` is made of (TURN-11, TURN-12)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass

import anyio
import msgspec

from holdfast.context.anchor import PROVIDER_EDITED
from holdfast.context.cuts import open_loop
from holdfast.context.economics import usage_usd
from holdfast.context.remedies import correction, window_after_cut, without_refused_media, without_refused_thinking
from holdfast.context.replies import About, Delta, Partial, Reply
from holdfast.context.requests import Request
from holdfast.context.thinking import closing_lines
from holdfast.engine.caching import watch
from holdfast.engine.ladder import Compact, Correct, DropMedia, DropThinking, Remedy, Retry
from holdfast.engine.session import LiveSession
from holdfast.errors import ModelError, OutputTooLong, PromptTooLong, PromptTruncated
from holdfast.events import (
    AnswerInterrupted,
    LadderStepped,
    ModelCalled,
    ModelFailed,
    PromptCutByServer,
    ProviderEdited,
    RetryWaited,
    WindowLearned,
)
from holdfast.ports import Model
from holdfast.transcript.blocks import Block
from holdfast.transcript.edits import Edit
from holdfast.transcript.messages import Message
from holdfast.transcript.records import Calibrated, Front, Noted

OnDelta = Callable[[Delta], None]
Shrinking = Callable[[], Awaitable["str | None"]]
"""Makes the conversation smaller; returns why that changed nothing. What a call knows of compaction."""
INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class Call:
    """A request on its way: what is asked, how large we take it for, and which job it is for."""

    request: Request
    tokens: int
    job: str = "main"


async def introduce(session: LiveSession, about: About) -> None:
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
        session.world.sink.emit(WindowLearned(about.id, window, limits.window, "the model states it"))


async def call(session: LiveSession, model: Model, asked: Call, on_delta: OnDelta | None = None) -> Reply | ModelError:
    """Ask once. What the model says comes back, or the error it ended with; an interruption keeps whole blocks."""
    about, clock, sink = model.about, session.world.clock, session.world.sink
    began, partial = clock.now(), Partial()
    try:
        reply = await _streamed(model, asked.request, partial, on_delta)
    except ModelError as error:
        sink.emit(ModelFailed(about.id, asked.job, error.reason, error.status, clock.now() - began))
        return error
    except GeneratorExit:  # nothing may be awaited any more
        raise
    except BaseException:
        if asked.job == "main":
            with anyio.CancelScope(shield=True):
                await _keep(session, about, partial)
        raise
    usage = reply.usage
    sink.emit(
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
            usage_usd(reply.billed or usage, session.model) if usage and session.model.input_usd else None,
        )
    )
    for edit in reply.edits:
        sink.emit(ProviderEdited(edit.kind, edit.cleared, edit.cleared_tokens))
    return _cut_by_server(session, about, asked, reply) or reply


async def _streamed(model: Model, request: Request, partial: Partial, on_delta: OnDelta | None) -> Reply:
    reply: Reply | None = None
    async with aclosing(model.stream(request)) as stream:
        async for delta in stream:
            if isinstance(delta, Reply):
                reply = delta
                break
            partial.take(delta)
            if on_delta is not None:
                on_delta(delta)
    if reply is None:
        raise ModelError("the stream ended without a reply")
    return reply


def _cut_by_server(session: LiveSession, about: About, asked: Call, reply: Reply) -> PromptTruncated | None:
    """Whether a server left out the beginning of the prompt without a word (LIB-3). Media are counted too roughly."""
    if about.protocol != "openai" or session.view.media:
        return None
    window = window_after_cut(asked.tokens, reply.usage)
    if window is None or reply.usage is None:
        return None
    reported = reply.usage.prompt_tokens
    session.world.sink.emit(PromptCutByServer(about.id, asked.tokens, reported, window))
    detail = f"{asked.tokens:,} tokens were sent and {reported:,} read: raise the server's context length"
    return PromptTruncated(detail, tokens=asked.tokens, maximum=window)


async def _keep(session: LiveSession, about: About, partial: Partial) -> None:
    """After an interruption: whole blocks stay as an answer, so that the session goes on from there (TURN-11)."""
    kept = partial.kept()
    dropped = len(partial.begun) - len(kept)
    if kept:
        await session.append(_message(about, kept, partial, INTERRUPTED))
    elif partial.begun:
        data = {"response": partial.response, "blocks": dropped, "reason": INTERRUPTED}
        await session.record(Noted(kind="answer_dropped", data=data))
    if partial.begun:
        session.world.sink.emit(AnswerInterrupted(about.id, partial.response, len(kept), dropped))


def _message(
    about: About, blocks: tuple[Block, ...], reply: Reply | Partial, stop_reason: str, *, note: str | None = None
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


async def append_reply(session: LiveSession, about: About, reply: Reply, request: Request) -> None:
    """The answer joins the conversation, with its usage and the id of its response (TURN-12)."""
    is_edited = bool(reply.edits) or b'"type":"compaction"' in request.body
    is_edited = is_edited or any(block.kind == "compaction" for block in reply.blocks)
    note = PROVIDER_EDITED if is_edited else None
    watch(session, reply)
    await session.append(_message(about, reply.blocks, reply, reply.stop_reason, note=note))


async def apply(
    session: LiveSession, about: About, remedy: Remedy, request: Request, source: str, *, shrink: Shrinking
) -> str | None:
    """Do what the ladder says. Returns why it changed nothing; None when it is worth asking again."""
    sink = session.world.sink
    if isinstance(remedy, Retry):
        if remedy.seconds:
            sink.emit(RetryWaited(about.id, remedy.reason, remedy.seconds))
            await session.world.clock.sleep(remedy.seconds)
        return None
    match remedy:
        case Correct():
            await _learn(session, about, remedy.error)
            useless = None
        case Compact():
            if remedy.error is not None:
                await _learn(session, about, remedy.error)
            useless = await shrink()
        case DropMedia():
            media = without_refused_media(session.view, request.groups, remedy.path)
            useless = await _committed(session, media, source)
        case DropThinking():
            useless = await _without_thinking(session, request, remedy, source)
    name = remedy.error.reason if isinstance(remedy, Correct) else remedy.reason
    sink.emit(LadderStepped(type(remedy).__name__, name, useless is None))
    return useless


async def _committed(session: LiveSession, edits: tuple[Edit, ...], source: str) -> str | None:
    return None if await session.commit(edits, session.facts(source)) else "there is nothing of the kind"


async def _without_thinking(session: LiveSession, request: Request, remedy: DropThinking, source: str) -> str | None:
    """Drop what was refused; where none that stands was, close the loop, so that nothing is missing (TURN-15)."""
    useless = await _committed(session, without_refused_thinking(session.view, request.groups, remedy.path), source)
    if useless is None or open_loop(session.view) is None:
        return useless
    await session.append(*closing_lines())
    return None


async def _learn(session: LiveSession, about: About, error: PromptTooLong | OutputTooLong) -> None:
    """Record what an error states of the window, of the size, and of answers (TOK-4, PRS-8)."""
    if isinstance(error, OutputTooLong):
        ratio = session.view.state.calibration.ratio
        await session.record(Calibrated(model=about.id, ratio=ratio, output_tokens=error.maximum))
        return
    before = session.limits.window
    learned = correction(session.view, session.facts(), error, about.id)
    await session.record(learned)
    if learned.window_tokens:
        session.world.sink.emit(WindowLearned(about.id, learned.window_tokens, before, error.reason))
