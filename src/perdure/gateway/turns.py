"""A client's request as a turn of its session: what is new is said, and what the model is to see goes upstream (GW-2).

As long as the view shows what the client has, the client's own bytes go upstream; from the first edit on, the view's.
Frozen edits are durable before they are sent (REL-5), since committing them is what shows them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import anyio
import msgspec

from perdure.context.groups import RequiredThinking, required_thinking
from perdure.context.policy import compaction_need
from perdure.context.replies import ModelInfo, Reply
from perdure.context.request import ModelRequest, output_tokens, to_request
from perdure.context.state import PROVIDER_EDITED
from perdure.context.thinking import closing_lines, is_broken
from perdure.context.view import advance
from perdure.engine.ask import Compact, Correct, DropMedia, DropThinking, RecoveryLadder, RemedyLimits, apply, step
from perdure.engine.compact import CompactionSuccess, compact, compact_reactively
from perdure.engine.follow import in_answers, joining, say_on, with_own_ids
from perdure.engine.session import run_aside
from perdure.engine.turn import make_request, ready_view, rest_aside
from perdure.errors import CompactionRefused, ContextBlocked, JournalLost, ModelError
from perdure.gateway.access import client_of
from perdure.gateway.compactions import CompactedHistory, response_id
from perdure.gateway.conversations import joined
from perdure.gateway.recall import (
    MOST_ROUNDS,
    NO_ROOM,
    front_with_tool,
    going_on,
    name_in,
    result_of,
    results_of,
    tool_name,
    with_permit,
    with_tool,
    without_tool,
)
from perdure.gateway.requests import (
    BodyCache,
    ClientProtocol,
    ClientRequest,
    ConversationTurn,
    MessageSlices,
    Unmanageable,
    calls_of,
    check_text,
    client_session,
    is_call_of,
    taken_apart,
)
from perdure.gateway.responses import CONVERSATION, REFERENCE, past_in, references_in, with_items, with_past
from perdure.gateway.sessions import (
    AnswerTraces,
    CachedSession,
    TenantSessions,
    TracesFrom,
    is_plain,
)
from perdure.gateway.titles import known_client, titled
from perdure.transcript.blocks import Block
from perdure.transcript.history import (
    ASKED,
    CLIENT,
    RECALLED,
    DigestLimits,
    HistoryPosition,
    LinkCache,
    NotDigestible,
    chain,
    chain_seed,
    digest,
)
from perdure.transcript.messages import CallIds, Message, MessageId, ResponseId, content_of
from perdure.transcript.records import Front, Worded
from perdure.transcript.response_items import carries_tools, items_in_front, items_of, named_items
from perdure.transcript.tool_calls.refusals import with_user_words

_THOUGHT = re.compile(rb'"type"\s*:\s*"(?:redacted_)?thinking"')  # in a history, not quoted in a text of it

_MOST_FRONT_BYTES = 2 * 1024 * 1024  # of system prompt and tools; they are recorded and counted while others wait
_MOST_TOOLS = 1_000
_FEW_TOOLS_BYTES = 32 * 1024  # that hold no more of them

# How answers end whose calls are whole; some servers don't tell a call from the end.
_CALLS_STAND = ("tool_use", "end_turn", "stop_sequence")

# What the client does by itself stays the client's: waiting, and asking again after a cut stream.
_RUNGS = RemedyLimits(retries=0, cuts=0, blanks=0, window_stops=0)


@dataclass(frozen=True)
class Requester:
    """Whose request it is: the tenant and its sessions, the protocol, the route, and the name that the client gave its
    session, if any.

    `recall_tool`: whether the model has such a tool by its host's word; None: we offer it one (GW-8).
    """

    sessions: TenantSessions
    tenant: str
    side: ClientProtocol
    route: str
    name: str = ""
    recall_tool: bool | None = None
    headers: tuple[tuple[bytes, bytes], ...] = ()

    @cached_property
    def seed(self) -> bytes:
        """Where the chains of its histories begin."""
        return chain_seed(self.tenant, self.route, self.side.protocol, self.name)


@dataclass(slots=True, eq=False)
class GatewayTurn:
    """A request under way. `asked` is where the client's history ends; `body` goes upstream; `tokens` is its size."""

    who: Requester
    incoming: ClientRequest
    held: CachedSession
    asked: HistoryPosition
    request: ModelRequest | None  # of the view; made when it is needed
    body: bytes
    tokens: int
    edits: int = 0
    compacted: str = ""
    is_shaped: bool = False  # the body is the view's, not the client's own
    went_back: bool = False  # the view was refused, and the client's own bytes are sent instead
    ours: str = ""  # the name of our recall tool in this request; empty where it isn't offered
    said: list[Message] = field(default_factory=list)  # answers that recalled, and what they got: the client sees none
    replies: list[Reply] = field(default_factory=list)  # the same answers, as they came
    name: str = ""  # the client's own id of its session
    response: str = ""  # the id of its answer, once the client may see it
    is_recorded: bool = False  # the answer is in a session
    is_over: bool = False
    ladder: RecoveryLadder = field(default_factory=lambda: RecoveryLadder(rungs=_RUNGS))

    @property
    def cap_window(self) -> int:
        """The window that the client's meter is kept below a part of."""
        return self.held.session.limits.window

    @property
    def spared_tokens(self) -> int:
        """How much of the client's history isn't sent, by what the bodies weigh."""
        return max(0, (len(self.incoming.body) - len(self.body)) // 4)

    def go_back(self) -> bool:
        """After the upstream refused the view, or our tool: send the client's own bytes instead, once and if they fit
        (GW-7)."""
        is_other = bool(self.is_shaped or self.ours) and not self.incoming.continues
        if not is_other or self.went_back or not self._own_fits():
            return False
        self.went_back, self.is_shaped, self.ours, self.body = True, False, "", self.incoming.body
        return True

    def settle(self, status: int) -> bool:
        """How it ended: whether the client's own bytes were taken after the view was refused.

        Then they go from now on, as long as they fit.
        """
        helped = self.went_back and not self.is_shaped and not self.held.wants_own and status < 400
        self.held.wants_own = self.held.wants_own or helped
        return helped

    def _own_fits(self) -> bool:
        return self.tokens + self.spared_tokens <= self.held.session.limits.usable

    async def end(self) -> None:
        """The request is over, however it ended. May be called twice."""
        if not self.is_over:
            self.is_over = True
            self.who.sessions.under_way.discard(self.response)
            await self.who.sessions.left(self.held)


class TurnMaker:
    """Makes turns of requests. One for all tenants: what messages are known by is nobody's secret."""

    def __init__(self, limits: DigestLimits, max_messages: int) -> None:
        self._limits, self._max_messages = limits, max_messages
        self._known, self._bodies = LinkCache(), BodyCache()

    async def read(self, who: Requester, body: bytes) -> ClientRequest:
        """A body as far as it is new. Items of answers that it only names are read as if it said them.

        Raises `Unmanageable`.
        """
        said, conversation = body, None
        if who.side.protocol == "responses" and CONVERSATION in body:
            said, conversation = await self._in_conversation(who, body)
        whole = await self._with_items(who, said) if who.side.protocol == "responses" else said
        seen = self._bodies.seen(who.seed, whole)
        new_bytes = len(whole) - (seen.ends[seen.common(whole) - 1] if seen else 0)
        read = await run_aside(new_bytes, lambda: who.side.read(whole, taken_apart(whole, seen, who.side.array)))
        return read if whole is body else replace(read, body=said, conversation=conversation)

    async def _in_conversation(self, who: Requester, body: bytes) -> tuple[bytes, ConversationTurn | None]:
        """The body with what the conversation that it names comes to in the place of its name."""
        _, named = await run_aside(len(body), lambda: past_in(body))
        if not named:
            return body, None
        known = await who.sessions.conversations.get(named)
        if known is None:
            raise Unmanageable("conversation")  # the upstream has it, or says that it doesn't
        return await run_aside(len(body), lambda: joined(body, known))

    async def _with_items(self, who: Requester, body: bytes) -> bytes:
        named = await run_aside(len(body), lambda: references_in(body)) if REFERENCE in body else []
        if not named:
            return body
        items = await who.sessions.items(named)
        if len(items) < len(set(named)):
            raise Unmanageable("item_reference")  # only the upstream knows what they say
        return await run_aside(len(body), lambda: with_items(body, items))

    async def links(self, who: Requester, incoming: ClientRequest) -> list[bytes]:
        """The chain of a history. Raises `Unmanageable` beyond the limits."""
        start = 0, who.seed
        _check_front(incoming)
        if incoming.continues:
            even_deleted = incoming.conversation is not None  # which keeps what it came to
            place = await who.sessions.place(incoming.continues, even_deleted=even_deleted)
            if place is None:
                raise Unmanageable("unknown_answer")  # the upstream may know it, or says that it doesn't
            start = place.count, place.link
        links = await run_aside(_new_bytes(incoming), lambda: self._links(who, incoming, start[1]))
        if incoming.taken is not None:
            self._bodies.keep(who.seed, incoming.taken, len(incoming.lead) + incoming.skipped, links)
        return [*(b"" for _ in range(start[0])), *links]

    def _links(self, who: Requester, incoming: ClientRequest, start: bytes) -> list[bytes]:
        history, taken = incoming.history, incoming.taken
        if len(history) > self._max_messages:
            raise Unmanageable("too_many_messages")
        known = list(taken.links[: len(history) + 1]) if taken else []
        known = known if known[:1] == [start] else [start]
        new = history[len(known) - 1 :]
        try:
            read = partial(_digest, who.side, new, self._limits)
            return [*known[:-1], *self._known.chain(known[-1], new, read)]
        except NotDigestible as e:
            raise Unmanageable(str(e)) from None

    def _traces(self, who: Requester, incoming: ClientRequest, links: Sequence[bytes]) -> TracesFrom:
        """What reads a history's messages behind so many; none of those that it doesn't hold itself."""
        before = len(links) - 1 - len(incoming.history)

        def read(said: Sequence[msgspec.Raw]) -> AnswerTraces:
            digests = [_digest(who.side, said, self._limits, number) for number in range(len(said))]
            return AnswerTraces(digests, {use.id for one in who.side.messages(said) for use in one.tool_uses})

        async def traces(start: int) -> AnswerTraces:
            said = incoming.history[start - before :] if start >= before else ()
            return await run_aside(sum(len(bytes(raw)) for raw in said), lambda: read(said))

        return traces

    async def begin(self, who: Requester, body: bytes, *, fetched: str = "") -> GatewayTurn:
        """Find the session, say what is new, and bring the view in shape. Nothing in here is cut off in the middle.

        `fetched` is the answer that the body went on from, before its past was fetched. Raises `Unmanageable`.
        """
        incoming = replace(await self.read(who, body), fetched=fetched)
        links = await self.links(who, incoming)
        turn: GatewayTurn | None = None
        with anyio.CancelScope(shield=True):
            async with who.sessions.entered(links, who.route, self._traces(who, incoming, links)) as held:
                turn = await self._begun(who, incoming, held, links)
                held.users += 1
        assert turn is not None
        return turn

    async def _begun(
        self, who: Requester, incoming: ClientRequest, held: CachedSession, links: list[bytes]
    ) -> GatewayTurn:
        before = held.sink.edits
        await held.keepers.collect(held.session)
        await _reword_answer(who, incoming, held)
        await _append_new(who, incoming, held, links)
        await _record_front(who, incoming, held)
        await _keep_lifetimes(who, incoming, held)
        name = client_session(who.headers, incoming)
        await who.sessions.call(held, name)
        tokens = await _ready(held, _required_thinking(who, incoming))
        await held.journal.commit()
        turn = GatewayTurn(who, incoming, held, held.head, None, b"", tokens, held.sink.edits - before)
        turn.ours, turn.name = held.ours, name
        await _set_body(turn)
        return turn

    async def compact(self, who: Requester, body: bytes, *, is_asked: bool) -> CompactedHistory | None:
        """Compact a session because its client wants to replace its history; None for a request that wants an answer.

        `is_asked`: where it was sent says so. Raises `Unmanageable`.
        """
        incoming = await self.read(who, body)
        if not (is_asked or incoming.wants_compaction):
            return None
        links, how, done = await self.links(who, incoming), "", None
        with anyio.CancelScope(shield=True):
            async with who.sessions.entered(links, who.route, self._traces(who, incoming, links)) as held:
                session = held.session
                await held.keepers.collect(session)
                await _append_new(who, incoming, held, links)
                await _record_front(who, incoming, held)
                before = held.tokens
                with suppress(CompactionRefused):  # it is switched off: the history is what it was
                    if isinstance(await compact(session, trigger="manual"), CompactionSuccess):
                        held.is_shaped, how = True, held.sink.compacted
                response, place = response_id(), held.head
                await session.record(place.begun(response))
                await held.journal.sync()  # the client has nothing else of it
                who.sessions.enter(held, [(place.count, place.link)], [response])
                sealed = who.sessions.seal.sealed(place.count, place.link)
                window = session.limits.window
                done = CompactedHistory(incoming, held.id, window, sealed, before, held.tokens, response, how)
        if incoming.conversation is not None:  # its session is shorter now, and what was said is in it
            await who.sessions.conversations.answered(incoming.conversation, "", ())
        return done

    async def shadow(self, who: Requester, body: bytes, *, is_sent: bool) -> bytes | None:
        """What a shaped session would send if nothing could be recorded, or just to be counted; None for what came.

        What was decided before holds, also where another process has the session; nothing is decided anew. It is made
        whole, so where that is much, aside (SPD-8). What `is_sent` offers no tool of ours, since nobody would answer
        it, unless there is thinking in the history: that holds behind the same tools only. Raises `Unmanageable`.
        """
        incoming = await self.read(who, body)
        links = await self.links(who, incoming)
        has_tool = not is_sent or _THOUGHT.search(body) is not None
        held = who.sessions.cached(links)
        if not is_sent:
            return await self._shadow_of(who, incoming, links, held, has_tool=has_tool)
        async with who.sessions.read(links, who.route) as stored:
            if stored is not None and (held is None or stored.head.count >= held.head.count):
                held = stored  # another process went on from what is known here
            return await self._shadow_of(who, incoming, links, held, has_tool=has_tool)

    async def _shadow_of(
        self,
        who: Requester,
        incoming: ClientRequest,
        links: Sequence[bytes],
        held: CachedSession | None,
        *,
        has_tool: bool,
    ) -> bytes | None:
        if held is None or not (held.is_shaped or incoming.continues):
            known = None if held is None else held.session.view.front
            before = "" if held is None else held.tool_name or name_in(known, who.side)
            ours = _tool_offered(who, incoming, who.side.front(incoming), before) if has_tool else ""
            if ours:
                return with_tool(who.side, incoming, ours)
            return None if incoming.conversation is None else incoming.body  # which the upstream doesn't know
        view, facts, new = held.session.view.copy(), held.session.facts(), _unsaid(incoming, held, links)
        if not has_tool and view.front is not None:
            advance(view, without_tool(view.front, who.side))

        def made() -> bytes:
            said = enumerate(who.side.messages(new))
            named = [msgspec.structs.replace(message, id=MessageId(f"shadow-{number}")) for number, message in said]
            for message in in_answers(named, view):
                advance(view, message)
            if is_broken(view, _required_thinking(who, incoming)):
                for number, line in enumerate(closing_lines()):
                    advance(view, msgspec.structs.replace(line, id=MessageId(f"shadow-closed-{number}")))
            return to_request(view, facts, protocol=who.side.protocol, head=who.side.head(incoming, None)).body

        return await run_aside(len(incoming.body), made)

    async def with_past(self, who: Requester, body: bytes) -> bytes | None:
        """A body that passes through, with what was said before it where only its session has that; None as it came.

        Raises `Unmanageable`.
        """
        if who.side.protocol != "responses":
            return None
        said, conversation = await self._in_conversation(who, body) if CONVERSATION in body else (body, None)
        response, _ = past_in(said)
        stored = await who.sessions.stored(response, even_deleted=conversation is not None) if response else None
        if stored is None:
            return None if conversation is None else said
        return await run_aside(len(body), lambda: with_past(said, stored.all_items()))

    async def recovered(self, turn: GatewayTurn, error: ModelError) -> bool:
        """Answer an error of the upstream by a smaller or corrected request; False when it is the client's to see."""
        held = turn.held
        turn.ladder, action = step(turn.ladder, error)
        if not isinstance(action, Correct | Compact | DropMedia | DropThinking):
            return False
        if isinstance(action, DropMedia | DropThinking) and not turn.is_shaped:
            return False  # what the client sent was refused as it was sent
        about = ModelInfo(id=turn.incoming.model, protocol=turn.who.side.protocol)
        with anyio.CancelScope(shield=True):
            async with held.lock:
                if held.head != turn.asked:
                    return False
                before = held.sink.edits
                request, shrink = turn.request or await _request(turn), partial(compact_reactively, held.session)
                if await apply(held.session, about, action, request, "user", shrink=shrink) is not None:
                    return False
                held.is_corrected = held.is_corrected or isinstance(action, Correct)
                held.is_shaped, held.wants_own = True, False
                turn.request, turn.tokens = None, await _ready(held, _required_thinking(turn.who, turn.incoming))
                await held.journal.commit()
                turn.edits += held.sink.edits - before
                await _set_body(turn)
        return True

    async def recalled(self, turn: GatewayTurn, reply: Reply) -> bytes | None:
        """Answer the calls of our tool in an answer of the model: the request to go on with, of which the client sees
        nothing; None when it is the client's turn, for an answer without such calls or with the client's own (GW-8)."""
        calls = calls_of(reply.blocks, turn.ours) if turn.ours else []
        if not calls or reply.stop_reason not in _CALLS_STAND or len(turn.replies) == MOST_ROUNDS:
            return None
        held = turn.held
        async with held.lock:
            ids = held.session.view.call_ids()
            for message in turn.said:
                with_own_ids(message, ids)
            part = ResponseId(f"{reply.response}-{len(turn.replies) + 1}")
            answer = _answer(turn, reply, ids, part)
            mine = [use for message in answer for use in calls_of(message.blocks, turn.ours)]
            sent = turn.tokens + sum(size.live for message in turn.said for size in message.sizes)
            linked = await turn.who.sessions.linked(held, turn.name)
            results = await results_of(held.session, mine, linked, sent)
        turn.replies.append(reply)
        turn.said += [*answer, _results(turn, results)]
        return self.going_on(turn) if len(calls) == len(reply.tool_uses) else None

    def going_on(self, turn: GatewayTurn) -> bytes:
        """The request behind what was recalled last."""
        has_tool = len(turn.replies) < MOST_ROUNDS
        return going_on(turn.who.side, turn.body, turn.said, turn.ours, turn.incoming, has_tool=has_tool)

    def without_room(self, turn: GatewayTurn) -> bytes:
        """The same, with nothing of what was recalled last, which didn't fit."""
        results = [result_of(result.tool_use_id, NO_ROOM) for result in turn.said[-1].tool_results]
        turn.said[-1] = _results(turn, results)
        return self.going_on(turn)

    async def began(self, turn: GatewayTurn, response: str) -> None:
        """Keep where an answer begins, so that its id goes on from there if it breaks off. Raises `JournalError`."""
        held, asked = turn.held, turn.asked
        with anyio.CancelScope(shield=True):
            async with held.lock:
                await held.session.record(asked.begun(response))
                turn.who.sessions.enter(held, [(asked.count, asked.link)], [response])
                await held.journal.store()
        turn.response = response
        turn.who.sessions.under_way.add(response)

    async def answered(self, turn: GatewayTurn, reply: Reply) -> str | None:
        """Record the answer, durably; returns why not, when it can't be the next word of the session.

        What was recalled for it stands before it, or where the client has calls to answer besides, behind it. A
        conversation that it was asked in has it either way. An answer that its client knows by an id is recorded
        whatever became of the session; where it can't be kept yet, `JournalError`, and it may be called again.
        """
        by_id, why = turn.who.side.protocol == "responses", None
        if not turn.is_recorded:
            why = await self._recorded(turn, reply)
            turn.is_recorded = why is None
            if by_id and why == "overtaken":
                why = await self._recorded_anew(turn, reply)
            elif by_id and why is not None and not turn.response:
                await self.began(turn, reply.response)
        if by_id and why is None:
            try:
                await turn.who.sessions.secure(turn.held)
            except JournalLost:
                why = await self._recorded_anew(turn, reply)
        if (conversation := turn.incoming.conversation) is not None:
            response = "" if why else (*turn.replies, reply)[0].response
            shown = turn.who.side.said((*turn.replies, reply), turn.ours)
            output = (item for role, blocks in shown for item in items_of(role, content_of(blocks)))
            await turn.who.sessions.conversations.answered(conversation, response, output)
        return why

    async def _recorded_anew(self, turn: GatewayTurn, reply: Reply) -> str | None:
        """Record the answer behind its request where their session has gone on elsewhere: in a branch of it."""
        again = await self.begin(turn.who, turn.incoming.body, fetched=turn.incoming.fetched)
        try:
            again.ours, again.name, again.said, again.replies = turn.ours, turn.name, turn.said, turn.replies
            why = await self._recorded(again, reply)
            if why is None:
                await turn.who.sessions.secure(again.held)
                turn.is_recorded = True
        finally:
            await again.end()
        return why

    async def _recorded(self, turn: GatewayTurn, reply: Reply) -> str | None:
        last = () if any(one is reply for one in turn.replies) else (_without_calls(reply, turn.ours),)
        shown = turn.who.side.said((*turn.replies, *last), turn.ours)
        if not shown:
            return "empty"
        if turn.incoming.prefill is not None:
            return "prefill"  # the client says the whole answer next time, its own beginning and the model's end
        digests = [digest(role, [msgspec.json.decode(block.raw) for block in blocks]) for role, blocks in shown]
        links = chain(turn.asked.link, digests)[1:]
        held = turn.held
        with anyio.CancelScope(shield=True):
            async with held.lock:
                if held.head != turn.asked:
                    return "overtaken"
                ids = held.session.view.call_ids()
                messages = [with_own_ids(message, ids) for message in turn.said]
                known_as = (*turn.replies, reply)[0].response  # the client has the id of the first part
                messages += [message for one in last for message in _answer(turn, one, ids, known_as)]
                messages[-1] = msgspec.structs.replace(messages[-1], response_id=known_as or None)
                places = _places(turn, messages, links)
                asked, before = turn.asked, held.session.view.items[-1:]
                if before and before[0].message.origin == "reminder":
                    asked = replace(asked, message=before[0].message.id)  # it stays when the client asks again
                cursors = (place.cursor(CLIENT) for place in places)
                # With the answer, since the next request may already be at another gateway.
                name = await titled(held.session.view, client_of(turn.who.headers))
                named = () if name is None else (name,)
                await held.session.append(*messages, also=(asked.cursor(ASKED), *cursors, *named))
                held.asked, held.is_shaped = asked, held.is_shaped or not all(map(is_plain, messages))
                turn.who.sessions.moved(held, places[-1])
                links_of = [(place.count, place.link) for place in places]
                if turn.who.side.protocol != "responses":
                    turn.who.sessions.enter(held, links_of)
                else:
                    items = {name: item for message in messages for name, item in named_items(message).items()}
                    turn.who.sessions.remember(items)
                    turn.who.sessions.enter(held, links_of, [known_as, *items])
        return None

    async def after(self, turn: GatewayTurn) -> None:
        """Once the client has its answer: read along for the ledger, and start what keeps notes (TURN-12)."""
        held = turn.held
        async with held.lock:
            await rest_aside(held.session)
            await turn.who.sessions.keep(held)


async def _set_body(turn: GatewayTurn) -> None:
    """What goes upstream: the client's own bytes as long as the view shows nothing else."""
    held, prefill = turn.held, turn.incoming.prefill
    held.is_shaped = held.is_shaped or held.journal.has_edits
    # What the client itself says may not be all.
    turn.is_shaped = held.is_shaped or bool(turn.incoming.continues or turn.incoming.fetched)
    turn.compacted = held.sink.compacted if turn.edits else ""
    turn.body = turn.incoming.body
    if turn.ours and not turn.is_shaped:
        turn.body = with_tool(turn.who.side, turn.incoming, turn.ours)
    if turn.is_shaped:
        turn.request = await _request(turn)
        turn.body = turn.request.body
        if prefill is not None:  # bodies of either protocol end with their messages
            turn.body = turn.body[: -len(b"]}")] + b"," + bytes(prefill) + b"]}"
    if held.wants_own:
        turn.go_back()


async def _reword_answer(who: Requester, incoming: ClientRequest, held: CachedSession) -> None:
    """Learn how the client words our last answer, now that it says it again: what its provider wants back with it."""
    count = held.head.count
    item = held.session.view.item(held.head.message)
    if item is None or item.message.origin != "model" or not 0 < count < len(incoming.history):
        return
    said = who.side.messages(incoming.history[count - 1 : count])
    at = held.session.view.positions[item.message.id]
    if said and said[-1].wire and at and held.session.view.items[at - 1].message.note == RECALLED:
        return  # it is said of several answers, which the client sees as one: each keeps what it came with
    if said and said[-1].wire != item.message.wire:
        await held.session.record(Worded(message=item.message.id, wire=said[-1].wire))


async def _append_new(who: Requester, incoming: ClientRequest, held: CachedSession, links: list[bytes]) -> None:
    """Append what the session doesn't know yet; in front of what is said now, what the session adds to it (TURN-10)."""
    start, session = held.head.count, held.session
    if held.is_rewound:
        held.is_rewound = False
        if compaction_need(session.view, session.facts()) is not None:
            # Before anything comes behind that the client may edit again: the next rewind doesn't undo this one then.
            await compact(session, trigger="auto")
    new = _unsaid(incoming, held, links)
    if not new:
        return
    messages = joining(session, await run_aside(_new_bytes(incoming), lambda: who.side.messages(new)))
    if (client := known_client(client_of(who.headers))) is not None:
        messages = with_user_words(messages, [item.message for item in session.view.items], *client)
    is_as_it_came = await run_aside(_new_bytes(incoming), lambda: all(map(is_plain, messages)))
    held.is_shaped = held.is_shaped or not is_as_it_came
    if held.awaits_memories:
        await who.sessions.give_memories(held, who.side.front(incoming).system, messages)
    await say_on(session, messages, links[start + 1 :], held.head, CLIENT, lambda head: who.sessions.moved(held, head))
    who.sessions.enter(held, enumerate(links[start + 1 :], start + 1))


def _digest(side: ClientProtocol, raws: Sequence[msgspec.Raw], limits: DigestLimits, number: int) -> bytes:
    raw = raws[number]
    check_text(raw, limits)
    return side.digest(raw, limits)


def _unsaid(incoming: ClientRequest, held: CachedSession, links: Sequence[bytes]) -> Sequence[msgspec.Raw]:
    """What of a history its session doesn't know yet. Raises `Unmanageable` when what it continues is gone."""
    before = len(links) - 1 - len(incoming.history)
    if held.head.count < before:
        raise Unmanageable("unknown_answer")
    return incoming.history[held.head.count - before :]


def _new_bytes(incoming: ClientRequest) -> int:
    """How much of a history wasn't seen before."""
    taken = incoming.taken
    if taken is None or not isinstance(taken.messages, MessageSlices):
        return len(incoming.body)
    known, ends = taken.known, taken.messages.ends
    return ends[-1] - (ends[known - 1] if 0 < known <= len(ends) else taken.start)


def _check_front(incoming: ClientRequest) -> None:
    """Refuse a front that is too large to be managed. Raises `Unmanageable`."""
    if sum(memoryview(part).nbytes for part in _front_parts(incoming)) > _MOST_FRONT_BYTES:
        raise Unmanageable("front_too_large")
    tools = incoming.fields.get("tools")
    if tools is not None and memoryview(tools).nbytes > _FEW_TOOLS_BYTES and len(incoming.tools) > _MOST_TOOLS:
        raise Unmanageable("too_many_tools")


def _front_parts(incoming: ClientRequest) -> list[msgspec.Raw]:
    """What a client says of its front, as it came."""
    named = (incoming.fields.get(name) for name in ("system", "instructions", "tools"))
    return [*(part for part in named if part is not None), *incoming.lead]


async def _record_front(who: Requester, incoming: ClientRequest, held: CachedSession) -> None:
    """System prompt, tools and model, when they aren't those of the request before; our tool is the last of the tools.

    A system prompt that alone is another one holds and isn't recorded: some clients write the time of day into it, and
    all say it again with the next request.
    """
    parts = (*(incoming.fields.get(name) for name in ("system", "instructions", "tools")), *incoming.lead)
    ways = (incoming.model, who.recall_tool, incoming.prefill is None)
    size = sum(memoryview(part).nbytes for part in _front_parts(incoming))
    said = await run_aside(size, lambda: hashlib.sha256(msgspec.json.encode((*ways, *parts))).digest())
    is_known = held.fronted[0] == said and held.fronted[1] is held.session.view.front
    front = None if is_known else await run_aside(size, lambda: who.side.front(incoming))
    known = held.session.view.front
    if front is not None:
        if incoming.continues and not incoming.lead and known is not None:
            told = items_in_front(without_tool(known, who.side))
            front = msgspec.structs.replace(front, system=(*front.system, *told))
        before = held.tool_name = held.tool_name or name_in(known, who.side)
        held.ours = await run_aside(size, partial(_tool_offered, who, incoming, front, before))
        held.tool_name = held.ours or held.tool_name
    has_tool = bool(held.ours) if who.recall_tool is None else who.recall_tool
    if held.session.settings.recall_tool != has_tool:
        held.session.configure(replace(held.session.settings, recall_tool=has_tool))
    if front is None:
        return
    if held.ours:
        front = front_with_tool(front, who.side, held.ours)
    if known is None or _tools_of(front) != _tools_of(known):
        await held.session.record(front)
    elif front.system != known.system:
        advance(held.session.view, front)
    held.fronted = said, held.session.view.front


def _tools_of(front: Front) -> tuple[str | None, tuple[msgspec.Raw, ...]]:
    """The part of a front that is recorded when it changes: the model, and what offers it tools."""
    return front.model, (*filter(carries_tools, front.system), *front.tools)


def _tool_offered(who: Requester, incoming: ClientRequest, front: Front, before: str) -> str:
    """The name of our tool in this request; empty where it isn't wanted, or the client has begun the answer itself."""
    is_wanted = who.recall_tool is None and incoming.prefill is None
    return tool_name(who.side, front, before) if is_wanted else ""


async def _keep_lifetimes(who: Requester, incoming: ClientRequest, held: CachedSession) -> None:
    """How long the client's own breakpoints ask for holds for those that stand in their place (GW-7)."""
    held.front_ttl, asked = await run_aside(_new_bytes(incoming), lambda: who.side.cache_ttls(incoming))
    if asked is not None and held.session.settings.cache_ttl != asked:
        held.session.configure(replace(held.session.settings, cache_ttl=asked))


def _required_thinking(who: Requester, incoming: ClientRequest) -> RequiredThinking:
    """What the client's request has to bring back of an open loop's thinking (TURN-15)."""
    return required_thinking(who.side.protocol, {"thinking": incoming.value("thinking")})


async def _ready(held: CachedSession, wanted: RequiredThinking) -> int:
    """Bring the view in shape; its size. One that is too large is sent all the same: the upstream has the last word."""
    try:
        return (await ready_view(held.session, wanted=wanted)).tokens
    except ContextBlocked:
        return held.session.facts().size(held.session.view)


async def _request(turn: GatewayTurn) -> ModelRequest:
    """The view's request, under the client's own fields."""
    side, session = turn.who.side, turn.held.session
    facts = session.facts()
    most = output_tokens(session.view, facts, side.protocol) if turn.held.is_corrected else None
    head: dict[str, Any] = side.head(turn.incoming, most)
    head = with_permit(head, turn.ours) if turn.ours else head
    is_stream, front_ttl = turn.incoming.is_stream, turn.held.front_ttl
    return await make_request(session, facts, protocol=side.protocol, stream=is_stream, head=head, front_ttl=front_ttl)


def _without_calls(reply: Reply, ours: str) -> Reply:
    """An answer without calls of our tool: those that nobody answered, since they were cut off or too many."""
    return replace(reply, blocks=tuple(block for block in reply.blocks if not is_call_of(block, ours)))


def _results(turn: GatewayTurn, results: Sequence[Block]) -> Message:
    """Results of calls of our tool, which no client says again."""
    identity = MessageId(turn.held.session.ports.ids.new("message"))
    return Message.of("user", results, id=identity, note=RECALLED)


def _places(turn: GatewayTurn, messages: Sequence[Message], links: Sequence[bytes]) -> list[HistoryPosition]:
    """Where the client's history comes by in the messages of an answer, once it says the answer.

    The last place is behind all of them. Where the client makes one message of several, it comes by at the last.
    """
    ours = turn.ours
    shown = [m for m in messages if m.note != RECALLED and not any(is_call_of(block, ours) for block in m.blocks)]
    behind = [*(message.id for message in shown[-len(links) : -1]), messages[-1].id]
    numbered = enumerate(
        zip(links[-len(behind) :], behind, strict=True), turn.asked.count + len(links) - len(behind) + 1
    )
    return [HistoryPosition(number, link, message) for number, (link, message) in numbered]


def _answer(turn: GatewayTurn, reply: Reply, ids: CallIds, response: ResponseId) -> list[Message]:
    """The messages of an answer; they share an id and repeat its usage."""
    session = turn.held.session
    is_edited = bool(reply.edits) or any(block.type == "compaction" for block in reply.blocks)
    messages = (
        Message.of(
            role,
            blocks,
            id=MessageId(session.ports.ids.new("message")),
            note=PROVIDER_EDITED if is_edited else None,
            response_id=response or None,
            model=turn.incoming.model,
            usage=reply.usage,
            stop_reason=reply.stop_reason,
            wire=reply.wire,
        )
        for role, blocks in turn.who.side.answered(reply)
    )
    return [with_own_ids(message, ids) for message in messages]
