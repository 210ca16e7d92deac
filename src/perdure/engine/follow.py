"""A session that follows a history which somebody else owns, and says whole each time: a gateway's client, or a loop of
a framework (GW-2, LIB-4).

The history is known by its chain (`transcript.history`); each place that the session knows stands in its journal, as a
cursor behind the message that was said there. What is new is appended, and a history that was edited or shortened is
gone back in to the last place that it still comes by.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, takewhile
from typing import Any, NamedTuple

import msgspec

from perdure.context.groups import MessageGroup, WireBlock, flatten, is_sent, required_thinking, without_passing_on
from perdure.context.replies import WireProtocol
from perdure.context.request import group_data
from perdure.context.view import ContextView
from perdure.engine.ask import learn
from perdure.engine.compact import CompactionOutcome, compact_reactively
from perdure.engine.reminders import remind
from perdure.engine.session import LiveSession
from perdure.engine.turn import ReadyView, ready_view
from perdure.errors import BodyTooLarge, CompactionRefused, ModelError, PromptTooLong, RecordRefused
from perdure.transcript.blocks import Block
from perdure.transcript.history import HistoryPosition, LinkCache, NotDigestible, chain_seed, message_digest
from perdure.transcript.messages import (
    CallIds,
    Message,
    MessageId,
    ResponseId,
    Usage,
    with_own_calls,
)
from perdure.transcript.records import Rewound

OWNER = "owner"  # the cursor of the last message that the owner of the history knows
_SEED = chain_seed(OWNER)
_MOST_LINKS = 1_000_000  # of one history, which is in memory anyway
_BATCH_BYTES = 256 * 1024  # of what is said at once: what one transaction holds, and one step of the loop folds


# --- how what somebody else said joins a session ----------------------------------------------------------------------


def joining(session: LiveSession, messages: Sequence[Message]) -> list[Message]:
    """Messages of a history as they join its session: with ids, and those of one answer known as such."""
    ids, named = session.view.call_ids(), list[Message]()
    for message in messages:
        identity = MessageId(session.ports.ids.new("message"))
        named.append(msgspec.structs.replace(with_own_ids(message, ids), id=identity))
    return in_answers(named, session.view)


def with_own_ids(message: Message, ids: CallIds) -> Message:
    """The message with an id of its own for each call: small servers begin to count anew with every answer."""
    return with_own_calls(message, ids.call, lambda named: ids.result(named) or named)


def in_answers(messages: Sequence[Message], view: ContextView) -> list[Message]:
    """The messages with those of one answer known as such: a client may say each item of it as a message of its own,
    and calls that were made at once have to be answered at once (GW-6)."""
    found: list[Message] = []
    for message in messages:
        before = found[-1] if found else view.items[-1].message if view.items else None
        if message.role == "assistant" and before is not None and before.role == "assistant":
            response = before.response_id
            if response is None and found:
                response = ResponseId(f"of {before.id}")
                found[-1] = msgspec.structs.replace(before, response_id=response)
            message = msgspec.structs.replace(message, response_id=response)
        found.append(message)
    return found


async def say_on(
    session: LiveSession,
    messages: Sequence[Message],
    links: Sequence[bytes],
    head: HistoryPosition,
    cursor: str,
    moved: Callable[[HistoryPosition], None],
) -> None:
    """Say what of a history is new, `links` being the chain behind each message, and what the session adds in front of
    what is said now (TURN-10). Each transaction brings its cursors, and `moved` hears of the last of them.

    A long history comes in several, between which others have their turn (GW-3): each of them holds by itself.
    """
    now = 0
    if session.view.items:
        now = next((n for n in range(len(messages), 0, -1) if messages[n - 1].role == "assistant"), 0)
    said = 0
    for part, is_now in ((messages[:now], False), (messages[now:], True)):
        if is_now:
            await remind(session, "before")
        for batch in _batches(part):
            places = [HistoryPosition(head.count + n, links[n - 1], one.id) for n, one in enumerate(batch, said + 1)]
            await session.append(*batch, also=tuple(place.cursor(cursor) for place in places))
            said += len(batch)
            moved(places[-1])


def _batches(messages: Sequence[Message]) -> Iterator[list[Message]]:
    batch: list[Message] = []
    size = 0
    for message in messages:
        batch.append(message)
        size += sum(map(len, message.content))
        if size >= _BATCH_BYTES and not message.tool_uses:  # a call and its result come in together
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


# --- a history in this process ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GivenMessage:
    """A message of a history as its owner gave it: bytes by which it is known again, and where it stands in what was
    given, which may be several places. `read` makes our message of it."""

    raw: bytes
    places: range
    read: Callable[[], Message]


@dataclass(frozen=True, slots=True)
class ShownMessage:
    """A message that the model is to see.

    Attributes:
        data: the message in the words of the format that was asked for; several where one role can't say all of it.
            Where nothing of it was changed, the very objects that were given.
        given: where in the history it stands; empty for what isn't part of that, such as a record of a compaction.
        is_as_given: whether nothing of it was changed.

    Example:
        await session.follow([{"role": "user", "content": "Hello"}])
        (message,) = (await session.shown("openai")).messages
        assert message.is_as_given and list(message.given) == [0]
    """

    data: list[Any]
    given: range
    is_as_given: bool


@dataclass(frozen=True, slots=True)
class ShownHistory:
    """What the model is to see of a history that a session follows.

    Attributes:
        messages: in order, each with where it stands in the history.
        tokens: the size of the context, with system prompt and tools.
        given: how many messages the history has.
        outcome: what compaction had to say, if it was due.

    Example:
        history = [{"role": "user", "content": "Hello"}]
        await session.follow(history)
        shown = await session.shown("openai")
        assert shown.data == history and not shown.is_changed
    """

    messages: tuple[ShownMessage, ...]
    tokens: int
    given: int
    outcome: CompactionOutcome | None = None

    @property
    def data(self) -> list[Any]:
        """The messages alone, as they go into a request."""
        return [one for message in self.messages for one in message.data]

    @property
    def is_changed(self) -> bool:
        """Whether it is anything but the history as it was given."""
        places = [place for message in self.messages if message.is_as_given for place in message.given]
        return places != list(range(self.given)) or not all(message.is_as_given for message in self.messages)


class _PartsOfMessage(NamedTuple):
    """What a request has of a message; `number` is that of the message in the history, None for one of ours."""

    message: MessageId
    parts: list[WireBlock]
    number: int | None


class FollowedHistory:
    """A history of somebody else's, and where it stands in a session; `of` begins."""

    def __init__(self, session: LiveSession) -> None:
        self._session, self._cache = session, LinkCache(most=_MOST_LINKS)
        self._head = HistoryPosition(0, _SEED)
        self._known = {_SEED: MessageId("")}  # what was said last, by each link that a history of this session came by
        self._all: Sequence[Any] = ()  # as it was given last …
        self._lead = 0  # … how many of it say the system prompt …
        self._given: Sequence[GivenMessage] = ()  # … and the others, with their links
        self._links: list[bytes] = [_SEED]
        self._said = dict[MessageId, bytes]()  # digests of what was given, by the messages that it became
        self._ends = dict[int, MessageId]()  # what was shown last: the message, by how much stands up to its end

    @classmethod
    async def of(cls, session: LiveSession) -> FollowedHistory:
        """Begin, or go on where the journal ends."""
        history = cls(session)
        if session.view.state.messages:
            loaded = await session.ports.journal.load(whole=True)
            places = (HistoryPosition.of(placed.record, OWNER) for placed in loaded.records)
            history._known |= {place.link: place.message for place in places if place is not None}
            history._head = HistoryPosition.of(session.view.state.cursors.get(OWNER), OWNER) or history._head
        return history

    async def follow(
        self, messages: Sequence[Any], lead: int, given: Sequence[GivenMessage], usage: Usage | None
    ) -> None:
        """Have the session say what the history says, whose first `lead` messages are the system prompt.

        `usage` is that of the answer to what was shown last. Raises `RecordRefused`.
        """
        session, new = self._session, dict[int, Message]()
        links = self._chain(given, new)
        count = next(n for n in range(len(links) - 1, -1, -1) if links[n] in self._known)
        read = [new.get(n) or given[n].read() for n in range(count, len(given))]
        if (links[count], count) != (self._head.link, self._head.count):
            await self._go_back(HistoryPosition(count, links[count], self._known[links[count]]))
        self._all, self._lead, self._given, self._links = messages, lead, given, links
        self._ends.clear()
        model = session.view.front.model if session.view.front else None
        joined = [
            msgspec.structs.replace(one, model=one.model or model) if one.origin == "model" else one
            for one in joining(session, read)
        ]
        new_answer = len(list(takewhile(lambda one: one.origin == "model", joined))) if count else 0
        for number, one in enumerate(joined):
            used = (one.usage or usage) if number == new_answer - 1 else None  # of others we didn't make the request
            if one.usage != used:
                joined[number] = msgspec.structs.replace(one, usage=used)
        try:
            await say_on(session, joined, links[count + 1 :], self._head, OWNER, self._moved)
        finally:  # of several transactions the first ones hold
            kept = [one for one in joined if one.id in session.view.positions]
            self._known |= {link: one.id for link, one in zip(links[count + 1 :], kept, strict=False)}
            self._said |= {one.id: _digest(was.blocks) for one, was in zip(kept, read, strict=False)}

    async def rebase(self, messages: Sequence[Any], lead: int, given: Sequence[GivenMessage]) -> None:
        """From now on this is the history: its owner put what was shown last in the place of what it had."""
        links, view = self._chain(given, {}), self._session.view
        numbered = enumerate(zip(given, links[1:], strict=True), 1)
        ends = ((n, link, self._ends.get(one.places.stop)) for n, (one, link) in numbered)
        places = [HistoryPosition(n, link, message) for n, link, message in ends if message is not None]
        last = view.items[-1].message.id if view.items else MessageId("")
        places.append(HistoryPosition(len(given), links[-1], last))
        await self._session.record(*(place.cursor(OWNER) for place in places))
        self._known |= {place.link: place.message for place in places}
        self._head, self._all, self._lead, self._given, self._links = places[-1], messages, lead, given, links
        self._said.clear()
        self._ends.clear()

    async def shown(self, protocol: WireProtocol, *, is_asking: bool) -> ShownHistory:
        """Tell what of the history the view shows; where a model is to be asked, once it is in shape for that.

        Raises `ContextBlocked`.
        """
        session, view = self._session, self._session.view
        if is_asking:
            done, groups = await ready_view(session, wanted=required_thinking(protocol)), flatten(view)
        else:
            done, groups = ReadyView(session.facts().size(view)), without_passing_on(flatten(view))
            groups = groups if view.items else []
        numbers = {self._known[link]: n for n, link in enumerate(self._links[1:]) if link in self._known}
        found = [ShownMessage(list(self._all[: self._lead]), range(self._lead), True)] if self._lead else []
        self._ends.clear()
        before: MessageGroup | None = None
        end = self._lead
        for group in groups:
            for run in self._runs(group, view, numbers, protocol):
                one = self._as_shown(run, group.role, before, protocol)
                end += len(one.data)
                if one.data:
                    found.append(one)
                    self._ends[end] = run[-1].message
            before = group
        return ShownHistory(tuple(found), done.tokens, len(self._all), done.outcome)

    def _runs(
        self, group: MessageGroup, view: ContextView, numbers: dict[MessageId, int], protocol: WireProtocol
    ) -> Iterator[list[_PartsOfMessage]]:
        """What each message to be shown is made of. Words of ours join those beside them: roles take turns."""
        run: list[_PartsOfMessage] = []
        for position, parts in groupby(group.parts(), key=lambda part: part.position):
            message = view.items[position].message.id if position >= 0 else MessageId("")
            one = _PartsOfMessage(message, list(parts), numbers.get(message))
            is_apart = not run or protocol == "responses" or None not in (one.number, run[-1].number)
            if is_apart or (protocol == "openai" and run[-1].parts[-1].kind == "tool_result"):
                if run:
                    yield run
                run = []
            run.append(one)
        if run:
            yield run

    def _as_shown(
        self, run: list[_PartsOfMessage], role: str, before: MessageGroup | None, protocol: WireProtocol
    ) -> ShownMessage:
        """A message as its owner gave it, where nothing of it was changed."""
        parts = [part for one in run for part in one.parts]
        given = [self._given[one.number] for one in run if one.number is not None]
        places = range(given[0].places.start, given[-1].places.stop) if given else range(0)
        own = [self._all[n] for n in places]
        if len(run) == len(given) == 1:
            message = run[0].message
            if message not in self._said:
                self._said[message] = _digest(given[0].read().blocks)
            if _digest([Block(part.raw) for part in parts]) == self._said[message]:
                return ShownMessage(own, places, True)
        data = group_data(role, parts, before, protocol)
        return ShownMessage(data, places, data == own and bool(own))

    def _chain(self, given: Sequence[GivenMessage], read: dict[int, Message]) -> list[bytes]:
        """The links of a history. The messages that had to be read for it are added to `read`."""

        def digest(number: int) -> bytes:
            read[number] = given[number].read()
            return message_digest(read[number])

        try:
            return self._cache.chain(_SEED, [one.raw for one in given], digest)
        except NotDigestible as e:
            raise RecordRefused(f"message {len(read)} of the history can't be read: {e}") from None

    async def _go_back(self, place: HistoryPosition) -> None:
        """To where the history stood before. What the session said since leaves the view, and can be recalled."""
        session = self._session
        if session.is_compacting:
            raise CompactionRefused("a compaction of this session is running; wait for it to end")
        if session.view.items:
            identity = session.ports.ids.new("rewind")
            rewound = Rewound(to=place.message, reason="its owner edited the history", id=identity)
            await session.record(rewound, place.cursor(OWNER))
        self._head = place

    def _moved(self, head: HistoryPosition) -> None:
        self._head = head


def _digest(blocks: Sequence[Block]) -> bytes:
    """Of the blocks of a message as far as a request has them."""
    return hashlib.sha256(b"\0".join(block.raw for block in blocks if is_sent(block))).digest()


async def smaller_after(session: LiveSession, error: ModelError) -> bool:
    """After a model refused what was shown: whether the context is smaller now, so that it is worth asking again."""
    if isinstance(error, PromptTooLong):
        front = session.view.front
        await learn(session, (front.model if front else None) or "unknown", error)
    return isinstance(error, PromptTooLong | BodyTooLarge) and await compact_reactively(session) is None
