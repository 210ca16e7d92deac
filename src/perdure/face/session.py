"""`Session`: one conversation with its context, as a program of one's own uses it (LIB-1, LIB-5).

It is the engine's session with the engine's functions as methods, opened with what this machine has by `wiring`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import msgspec

from perdure.context.state import SETTINGS
from perdure.engine.session import LARGE_BYTES, LiveSession, Services
from perdure.errors import (
    BadSetting,
    ModelError,
    RecordRefused,
    SessionClosed,
    SessionInUse,
    SessionNotFound,
    nearest,
)
from perdure.face.homes import home_of_program, path_of
from perdure.face.opening import Opening
from perdure.settings import REMEMBERED, Settings
from perdure.transcript.blocks import (
    ToolResult,
    ToolUse,
    check_front_written,
    check_written,
    parted_system,
    raw_of,
    system_raws,
)
from perdure.transcript.checks import check_shape
from perdure.transcript.messages import Message, ToolUseId, spoken
from perdure.transcript.plain import is_system, openai_message, usage_of
from perdure.transcript.records import Front, Noted
from perdure.transcript.response_items import answer_messages, is_item, message_of_items
from perdure.transcript.tokens import UNITS_PER_TOKEN, image_bytes
from perdure.wiring.parts import SessionOptions, background, memory_session

if TYPE_CHECKING:
    from perdure.context.accounting import Accounting
    from perdure.context.replies import Delta, Reply, WireProtocol
    from perdure.engine.background import Keepers
    from perdure.engine.compact import CompactionOutcome
    from perdure.engine.follow import FollowedHistory, ShownHistory
    from perdure.engine.turn import PreparedRequest
    from perdure.ports.home import Home, Store
    from perdure.ports.session import FoundSessions, Model, SearchResults
    from perdure.transcript.messages import Usage

Said = str | Message | Mapping[str, Any]
_NAMED = 3  # calls in a message


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionResult:
    """What came of a compaction, or of undoing one.

    Attributes:
        done: whether the context is another one now.
        reason: why nothing was changed, where nothing was; a code, a colon, and words.
        tokens_before: the size of the context before, in tokens.
        tokens_after: and afterwards.
        strategy: who wrote the record: `full` (a model), `session_memory` (the notes), `ledger` (code), or
    another.
        kept: how many messages stayed, word for word.

    Example:
        >>> CompactionResult(done=False, reason="too_little: 900 to 1,200 tokens").done
        False
    """

    done: bool
    reason: str = ""
    tokens_before: int = 0
    tokens_after: int = 0
    strategy: str = ""
    kept: int = 0


class _ShownAsFace(type):
    """What `help` and `dir` show of a session: what programs use, without what the engine is made of."""

    def __dir__(cls) -> list[str]:
        return sorted({"id", "view", *(name for name in vars(cls) if name[0] != "_")})

    def __call__(cls, *given: Any, **named: Any) -> Any:
        if not given and not named:
            raise BadSetting("open a session with Session.create(…), Session.open(…) or Session.in_memory(…)")
        return super().__call__(*given, **named)


@dataclass(slots=True, eq=False, repr=False)
class Session(LiveSession, metaclass=_ShownAsFace):
    """A conversation of any length with a model: everything said is kept, and the context always fits.

    Open one with `create`, `open` or `in_memory`, as `async with Session.create(".") as session`. Then either let it
    ask a model (`run`), or ask one yourself: `append` what is said, `prepare` the request, send it, `append` the
    answer. One task at a time may use a session.

    Example:
        async with Session.in_memory() as session:
            await session.set_prefix(model="claude-sonnet-5-5", system="You are helpful.")
            await session.append("What is 6 times 7?")
            request = await session.prepare()
            assert request.data["messages"][0]["role"] == "user"
    """

    _keepers: Keepers | None = None
    _connected: dict[str, Model] = field(default_factory=dict)
    _task: int | None = None  # that uses it just now
    _stores: list[Store] = field(default_factory=list)  # that nobody else uses
    _followed: FollowedHistory | None = None
    _is_an_agents: bool = False  # its loop has keepers of its own

    def __repr__(self) -> str:
        return f"<Session {self.id}: {len(self.view.items)} messages in view{', closed' if self.is_closed else ''}>"

    def __dir__(self) -> list[str]:
        return dir(type(self))

    # --- opening ------------------------------------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        project: str | Path = ".",
        *,
        home: str | Path | Home | None = None,
        id: str | None = None,
        settings: Settings | Mapping[str, Any] | None = None,
        services: Services | None = None,
    ) -> Opening[Session]:
        """Open a new session of a project, on this machine's disk or where `home` says. It has one writer at a time.

        Args:
            project: the folder that the conversation is about.
            home: where sessions are kept: a folder, a database as `postgresql://user@host/name`, or a home of a
                `SharedStore`; by default where the `perdure` command keeps them.
            id: its name, by which it is opened again; by default one is made.
            settings: `Settings`, or an object with some of them, as in `{"window_tokens": 32_000}`.
            services: hooks, ways to compact and other extensions of your own.

        Returns:
            The session, to be awaited or entered with `async with`.

        Raises:
            JournalError: there is a session of this id already, or the disk or the database refuses.
            BadSetting: a setting is unknown or can't have this value, or the project is no folder that is there.

        Example:
            async with Session.create(".", home="home") as session:
                print(session.id)
        """
        from perdure.wiring.sessions import create_session

        parts = options_of(cls, settings, services)
        make = partial(create_session, project=path_of(project, "project"), session=id, parts=parts)
        return Opening("Session.create(…)", partial(_opened, make, *home_of_program(home), settings))

    @classmethod
    def open(
        cls,
        session: str | Path,
        *,
        home: str | Path | Home | None = None,
        read_only: bool = False,
        settings: Settings | Mapping[str, Any] | None = None,
        services: Services | None = None,
    ) -> Opening[Session]:
        """Open a session that was kept. Its context is the same as before, byte for byte.

        Args:
            session: its id, or a path.
            home: where sessions are kept: a folder, a database as `postgresql://user@host/name`, or a home of a
                `SharedStore`; by default where the `perdure` command keeps them.
            read_only: only look at it; others may go on writing.
            settings: as for `create`. What says how the context is kept is remembered, and need not be said again; what
                is given in an object holds in its place, and is remembered from now on.
            services: as for `create`.

        Returns:
            The session, to be awaited or entered with `async with`.

        Raises:
            SessionNotFound: there is no session of this id.
            SessionBusy: another process, or another part of this one, has it open.
            JournalError: it can't be read.

        Example:
            async with Session.create(".", home="home", id="invoices") as session:
                await session.append("Remember the number 7.")
            async with Session.open("invoices", home="home") as session:
                assert session.messages()[0]["role"] == "user"
        """
        parts = options_of(cls, settings, services)
        make = partial(_open_exactly, session=session, read_only=read_only, parts=parts)
        return Opening("Session.open(…)", partial(_opened, make, *home_of_program(home), settings))

    @classmethod
    def named(
        cls,
        name: str,
        project: str | Path = ".",
        *,
        owner: str = "",
        home: str | Path | Home | None = None,
        settings: Settings | Mapping[str, Any] | None = None,
        services: Services | None = None,
    ) -> Opening[Session]:
        """Open the session with this external name, creating it if it doesn't exist.

        Args:
            name: any text, such as `ann@example.org`. The same name is always the same session, and two names never
                are; one that can't be an id is the session's title.
            project: the folder that the conversation is about, when it is begun.
            owner: whose name it is, where several people choose names; one's is never another's.
            home: where sessions are kept: a folder, a database as `postgresql://user@host/name`, or a home of a
                `SharedStore`; by default where the `perdure` command keeps them.
            settings: as for `open`.
            services: as for `create`.

        Returns:
            The session, to be awaited or entered with `async with`.

        Raises:
            SessionBusy: another process, or another part of this one, has it open.
            JournalError: it can't be read, or the disk refuses.

        Example:
            for _ in range(2):
                async with Session.named("ann@example.org", home="home") as session:
                    await session.append("Hello")
            assert len(session.view.items) == 2
        """
        from perdure.wiring.sessions import named_session

        parts, called, whose = options_of(cls, settings, services), _text(name, "name"), _text(owner, "owner")
        if not called:  # else all conversations whose names were lost would be one
            raise BadSetting("name: the name of a conversation is empty; for a session without one, take create")
        folder = path_of(project, "project")
        make = partial(named_session, name=called, project=folder, owner=whose, parts=parts)
        return Opening("Session.named(…)", partial(_opened, make, *home_of_program(home), settings))

    @classmethod
    def in_memory(
        cls,
        *,
        id: str = "memory",
        settings: Settings | Mapping[str, Any] | None = None,
        services: Services | None = None,
    ) -> Opening[Session]:
        """Open a session that ends with this process.

        Args:
            id: its name.
            settings: as for `create`.
            services: as for `create`.

        Returns:
            The session, to be awaited or entered with `async with`.

        Raises:
            BadSetting: a setting is unknown or can't have this value.

        Example:
            session = await Session.in_memory(settings={"window_tokens": 32_000})
            await session.close()
        """
        parts = options_of(cls, settings, services)

        async def opened() -> Session:
            made = await memory_session(id, parts=parts)
            assert isinstance(made, Session)
            return made

        return Opening("Session.in_memory(…)", opened)

    # --- what is said -------------------------------------------------------------------------------------------------

    async def set_prefix(
        self,
        *,
        model: str | Model | None = None,
        system: str | Iterable[str | Mapping[str, Any]] | None = None,
        tools: Sequence[Any] | None = None,
        dynamic: str | Iterable[str | Mapping[str, Any]] | None = None,
    ) -> None:
        """Say what stands before the messages of every request. What is the same already isn't recorded again.

        Args:
            model: the model's name, as requests carry it or as `connect` takes it, or a model that was connected; None
                leaves it as it is.
            system: the system prompt, as one text, or as a list of texts and blocks; None leaves it, "" takes it away.
                What stands behind a `SYSTEM_PROMPT_DYNAMIC_BOUNDARY` in the list is its dynamic part.
            tools: definitions, Anthropic's or OpenAI's (of either API), or tools such as `recall_tool`; None leaves
                them, [] takes them away. One that only some APIs know is refused when a request for another is made.
            dynamic: the part of the system prompt that changes, such as the date; it comes last, behind the cache
                breakpoint, so that tools and the rest are read from the cache. None leaves it, "" takes it away.

        Raises:
            RecordRefused: no request could be made with it; nothing was changed.

        Example:
            schema = {"type": "object", "properties": {"city": {"type": "string"}}}
            await session.set_prefix(
                model="claude-sonnet-5-5",
                system="You are helpful.",
                tools=[{"name": "weather", "description": "The weather in a city.", "input_schema": schema}],
            )
        """
        async with self._used():
            before = self.view.front or Front()
            at = len(before.system) if before.dynamic_from is None else before.dynamic_from
            fixed, changing = before.system[:at], before.system[at:]
            if system is not None:
                fixed, marked = parted_system(system)
                if marked is not None and dynamic is not None:
                    raise RecordRefused("the dynamic part is given twice: write it in `dynamic` or behind the marker")
                changing = changing if marked is None else marked
            if dynamic is not None:
                changing = system_raws(dynamic)
            if isinstance(model, str):
                from perdure.face.connecting import model_id

                model = model_id(model)
            elif model is not None:
                self.held_with(model_of(model))
                model = model.about.id
            after = Front(
                model=before.model if model is None else model,
                system=(*fixed, *changing),
                tools=before.tools if tools is None else _definitions(tools),
                dynamic_from=len(fixed) if changing else None,
            )
            is_said = system is not None or dynamic is not None
            check_front_written(after.system if is_said else (), () if tools is None else after.tools)
            after = after.unmarked()
            if self.view.front is None or after != self.view.front.unmarked():
                await self.record(after)

    async def append(self, *messages: Any, also: tuple[Any, ...] = ()) -> None:
        """Say something: a text of the user, a message, or a model's whole answer. It is kept once this returns.

        Args:
            *messages: each a text (of the user), an object with `role` and `content` in Anthropic's words or OpenAI's,
                an item of the Responses API, a whole response of any of these APIs, plain or as its SDK gives it, or a
                `Message`. All of them are kept, or none is.
            also: records of the same transaction, for extensions.

        Raises:
            RecordRefused: no API would take it, or it answers a tool use that doesn't wait for a result; nothing was
                written.
            JournalError: the disk refuses, or the session is read only or closed.

        Example:
            await session.append("What is the weather in Oslo?")
            use = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Oslo"}}
            await session.append({"role": "assistant", "content": [use]})
            result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "rain"}
            await session.append({"role": "user", "content": [result]})
        """
        async with self._turn() as is_own:
            said = [one for given in messages for one in _plain(given)]
            if is_own:
                said = await self._with_reminders(said)
            await LiveSession.append(self, *said, also=also)

    def messages(self, format: WireProtocol = "anthropic") -> list[dict[str, Any]]:
        """Return the messages as the model would see them now, as plain data.

        Args:
            format: in whose words: `anthropic`, `openai`, where the system prompt is the first message, or `responses`,
                for the items of the Responses API.

        Returns:
            New objects; changing them changes nothing.

        Raises:
            BadSetting: the format is another one.

        Example:
            await session.append("Hello")
            assert session.messages("openai")[-1] == {"role": "user", "content": "Hello"}
        """
        from perdure.context.groups import flatten, lacks_turn
        from perdure.context.request import to_request
        from perdure.engine.turn import PreparedRequest

        groups = flatten(self.view)
        if lacks_turn(self.view):
            groups = groups[:-1]  # a line that only passes the turn on; nobody said it
        request = to_request(self.view, self.facts(), protocol=_protocol(format), groups=list(groups), marks={})
        found: list[dict[str, Any]] = PreparedRequest(request, 0).data["input" if format == "responses" else "messages"]
        return found

    # --- a history that somebody else owns ---------------------------------------------------------------------------

    async def follow(self, messages: Sequence[Any], *, usage: Usage | Mapping[str, Any] | None = None) -> None:
        """Hear all that was said so far from whoever owns the history, such as the loop of a framework, each turn anew.

        What is new is appended. A history that was edited or shortened is gone back in to where it still is what was
        said; what leaves the context so can be recalled. `shown` then tells what the model is to see, or `prepare`
        makes the request.

        Args:
            messages: the whole history: messages in Anthropic's words or OpenAI's, or items of the Responses API.
                System messages at its beginning are the system prompt.
            usage: of the answer to what was shown last, as its API reported it, where the message itself hasn't it.

        Raises:
            RecordRefused: no API would take one of the new messages.
            JournalError: the disk refuses, or the session is read only or closed.

        Example:
            history = [{"role": "user", "content": "Hello"}]
            await session.follow(history)
            history += [{"role": "assistant", "content": "Hi"}, {"role": "user", "content": "6 times 7?"}]
            await session.follow(history)
            assert len(session.messages()) == 3
        """
        from perdure.face.following import read_history

        async with self._turn():
            given = read_history(messages)
            if given.system:
                before = self.view.front or Front()
                front = msgspec.structs.replace(before, system=Front(system=given.system).system)
                if front != before:
                    await self.record(front)
            reported = None if usage is None else usage_of(usage)
            await (await self._history()).follow(given.all, given.lead, given.messages, reported)

    async def shown(self, format: WireProtocol = "anthropic", *, asking: bool = True) -> ShownHistory:
        """Bring the context in shape, as `prepare` does, and tell what of the history that is followed the model sees.

        Args:
            format: in whose words what isn't as it was given is said.
            asking: whether a model is asked now; else the context stays as it is, such as to begin a history with.

        Returns:
            Its `data` are the messages for the model: the very objects that were given, as long as nothing of them is
            changed. `messages` tells of each where in the history it stands.

        Raises:
            ContextBlocked: the context is full and nothing more can go; the message says what helps. Nothing is lost.

        Example:
            history = [{"role": "user", "content": "Hello"}]
            await session.follow(history)
            shown = await session.shown("openai")
            assert shown.data == history and not shown.is_changed
        """
        async with self._turn():
            return await (await self._history()).shown(_protocol(format), is_asking=asking)

    async def rebase(self, messages: Sequence[Any]) -> None:
        """Hear that the owner of the history replaced all of it by what `shown` gave, so that it goes on from there.

        Args:
            messages: the history as it is now.

        Raises:
            RecordRefused: it isn't a list of messages.
            JournalError: the disk refuses, or the session is read only or closed.

        Example:
            await session.follow([{"role": "user", "content": "Hello"}])
            history = (await session.shown("openai")).data
            await session.rebase(history)
        """
        from perdure.face.following import read_history

        async with self._used():
            given = read_history(messages)
            await (await self._history()).rebase(given.all, given.lead, given.messages)

    async def refused(self, error: Exception | str) -> bool:
        """Hear that the model refused a request, and compact if that was for its length.

        Args:
            error: what it said, which may tell the size of its window.

        Returns:
            Whether the context is smaller now, so that it is worth asking again.

        Raises:
            JournalError: the disk refuses, or the session is read only or closed.

        Example:
            assert not await session.refused("429 too many requests")
        """
        from perdure.context.failures import ErrorResponse, classify
        from perdure.engine.follow import smaller_after

        async with self._used():
            known = error if isinstance(error, ModelError) else classify(ErrorResponse(status=400, message=str(error)))
            return await smaller_after(self, known)

    async def _history(self) -> FollowedHistory:
        if self._followed is None:
            from perdure.engine.follow import FollowedHistory

            self._followed = await FollowedHistory.of(self)
        return self._followed

    # --- asking a model -----------------------------------------------------------------------------------------------

    async def prepare(self, protocol: WireProtocol = "anthropic", *, stream: bool = False) -> PreparedRequest:
        """Bring the context in shape for the next call of a model, compacted if it is time, and make the request.

        Args:
            protocol: for which API: `anthropic` (Messages), `openai` (Chat Completions) or `responses`.
            stream: whether the request asks for a stream.

        Returns:
            The request: `body` (bytes) and `data` (an object), its size in `tokens`, and `headers` to send along.

        Raises:
            ContextBlocked: the context is full and nothing more can go; the message says what helps. Nothing is lost.
            RecordRefused: nothing was said yet, tool uses of the last answer wait for their results, or this API
                doesn't know one of the tools.

        Example:
            await session.append("Hello")
            request = await session.prepare("openai")
            assert request.data["messages"][-1]["content"] == "Hello"
        """
        from perdure.engine.turn import prepare

        async with self._turn():
            self._check_said()
            self._check_answered(())
            self._check_tools(wanted := _protocol(protocol))
            if late := self.taken_late():
                await LiveSession.append(self, *late)
            return await prepare(self, protocol=wanted, stream=stream)

    async def run(
        self,
        prompt: Said | Sequence[Said] | None = None,
        model: Model | str | None = None,
        *,
        on_delta: Callable[[Delta], None] | None = None,
    ) -> Reply:
        """Say something, have the model answer, and keep the answer. Errors that can be mended are mended on the way.

        Args:
            prompt: what is said, as `append` takes it, such as the results of tools; None asks with what is there.
            model: whom to ask, as `connect` gives it, or its name; None asks whom the last call asked.
            on_delta: sees the answer as it comes. A second `ReplyStarted` means that the first try was lost.

        Returns:
            The answer: `text`, `tool_uses` to be answered with the next prompt, `usage`, and more.

        Raises:
            ModelGaveUp: the model didn't answer, and nothing helped; the message says what was tried.
            ContextBlocked: the context is full and nothing more can go; nothing was sent.
            RecordRefused: the prompt can't be said, or lacks the result of a tool that the model wants used; nothing
                was written.
            BadSetting: no model is named, or its key is missing.

        Example:
            from perdure.testing import ScriptedModel
            reply = await session.run("What is 6 times 7?", ScriptedModel(["42"]))
            assert reply.text == "42" and not reply.tool_uses
        """
        from perdure.engine.turn import run_turn

        async with self._used():
            asked = self._asked(model)
            said, system = self._taken([one for given in _prompts(prompt) for one in _plain(given)])
            if system is not None:
                raise RecordRefused("a system message is no prompt: say it with set_prefix(system=…)")
            if not said:
                self._check_said()
            self._check_answered(said)
            self._check_tools(asked.about.protocol)
            self._check_images(said)
            return await run_turn(self, said, asked, self._background(), on_delta=on_delta)

    def open_calls(self) -> tuple[ToolUse, ...]:
        """Return the tool uses that wait for their results, such as those that a crash came between.

        `append` or `run` takes their results. Whatever else the user says first gives them up: the model is then told
        that there is no result.

        Returns:
            Each with `id`, `name` and `input`, as `Reply.tool_uses` has them.

        Example:
            use = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Oslo"}}
            await session.append("Weather?", {"role": "assistant", "content": [use]})
            assert [one.name for one in session.open_calls()] == ["weather"]
        """
        calls = (self.view.calls[identity] for identity in self.view.open_calls)
        uses = (self.view.items[call.position].message.blocks[call.block].value for call in calls)
        return tuple(use for use in uses if isinstance(use, ToolUse))

    def _asked(self, model: Model | str | None) -> Model:
        if isinstance(model, str):
            from perdure.face.connecting import connect

            return self._connected.setdefault(model, connect(model))
        if model is not None:
            return model_of(model)
        if self.asked is None:
            name = self.view.front.model if self.view.front else None
            raise BadSetting(f"no model to ask: give one to run, as in run(prompt, {name or 'anthropic:claude-…'!r})")
        return self.asked

    # --- the context --------------------------------------------------------------------------------------------------

    async def compact(self, focus: str = "") -> CompactionResult:
        """Replace what is old by a record of it, now. What leaves can be recalled, and the compaction be undone.

        Args:
            focus: what the record should look at above all.

        Returns:
            What came of it. That there is too little to compact is no error: see its `reason`.

        Raises:
            CompactionRefused: compaction is switched off, or already runs.

        Example:
            result = await session.compact(focus="the failing test")
            print(result.reason or f"{result.tokens_before} -> {result.tokens_after} tokens")
        """
        from perdure.engine.compact import compact

        async with self._used():
            return _result(await compact(self, trigger="manual", focus=_text(focus, "focus")))

    async def undo_compaction(self) -> CompactionResult:
        """Take back the last compaction; what was said since stays. Automatic compaction then waits as long as it can.

        Returns:
            The sizes before and after.

        Raises:
            CompactionRefused: there is none to undo, or one is running.

        Example:
            if (await session.compact()).done:
                await session.undo_compaction()
        """
        from perdure.engine.compact import uncompact

        async with self._used():
            done = await uncompact(self)
            boundary = done.boundary
            return CompactionResult(
                done=True,
                tokens_before=done.tokens_before,
                tokens_after=done.tokens_after,
                strategy=boundary.strategy,
                kept=len(boundary.kept),
            )

    async def rewind(self, to: str | int = -1) -> str:
        """Go back to before something that the user said; it leaves the context, with all that came after it.

        Args:
            to: -1 for the last prompt, -2 for the one before it, or the id of a message, or its beginning.

        Returns:
            The text of that prompt, to be said again in other words.

        Raises:
            RewindRefused: there is no such prompt on the way here; nothing was changed.

        Example:
            await session.append("Delete the tests.")
            assert await session.rewind() == "Delete the tests."
        """
        from perdure.engine.rewind import rewind

        async with self._used():
            return (await rewind(self, None, str(to), what="conversation")).prompt

    async def undo_rewind(self) -> None:
        """Take back the last rewind: the context is as it was right before it.

        Raises:
            RewindRefused: there is none, or something was said since.

        Example:
            await session.append("Go on.")
            await session.rewind()
            await session.undo_rewind()
        """
        from perdure.engine.rewind import undo_rewind

        async with self._used():
            await undo_rewind(self, None)

    async def recall(self, id: str) -> str:
        """Return the exact text of something that was said, also when it left the context long ago.

        Args:
            id: of a message, a tool's result, a summary or a stored text, or its beginning.

        Returns:
            The whole text.

        Raises:
            BadRecall: nothing here has this id, or several things have.

        Example:
            await session.append(Message.of("user", "The number is 7.", id="m1"))
            assert await session.recall("m1") == "The number is 7."
        """
        from perdure.engine.tools import original

        self._check_open()
        return (await original(self, _text(id, "id"))).text

    async def search(self, query: str, *, limit: int = 10) -> SearchResults:
        """Find what was said, in this session and in the others of its project.

        Args:
            query: words.
            limit: how many hits at most.

        Returns:
            `hits`, best first; each has the `id` to recall, the `session`, and a `snippet`.

        Raises:
            PerdureError: there is nothing to search in.

        Example:
            await session.append("The invoices are in ledger.py.")
            assert (await session.search("invoices")).hits
        """
        from perdure.engine.tools import search

        self._check_open()
        return await search(self, _text(query, "query"), limit=limit)

    async def search_sessions(self, prompt: str, *, limit: int = 5) -> FoundSessions:
        """Find which earlier sessions of the project matter to a prompt, this one left out.

        Args:
            prompt: what is to be done, or a question, in plain words.
            limit: how many sessions at most.

        Returns:
            `sessions`, best first; each has its id as `session`, its `title`, when something was last said in it
            (`at`), and why it fits: `words` of the prompt, and `files` that it touched.

        Raises:
            PerdureError: there is nothing to search in.

        Example:
            found = await session.search_sessions("send the invoices")
            assert not found.sessions
        """
        from perdure.engine.tools import search_sessions

        self._check_open()
        return await search_sessions(self, _text(prompt, "prompt"), limit=limit)

    async def pin(self, text: str) -> str:
        """Keep a text word for word through every compaction.

        Args:
            text: what to keep.

        Returns:
            The pin's id, for `unpin`.

        Raises:
            PinRefused: it is empty, or beyond what pins may take.

        Example:
            pinned = await session.pin("Never touch the migrations.")
            await session.unpin(pinned)
        """
        from perdure.engine.session import pin

        async with self._used():
            return (await pin(self, _text(text, "text"))).id

    async def unpin(self, id: str) -> None:
        """Take a pin back.

        Args:
            id: as `pin` gave it, or its beginning.

        Raises:
            PinRefused: there is no such pin.

        Example:
            await session.unpin(await session.pin("Never touch the migrations."))
        """
        from perdure.engine.session import unpin

        async with self._used():
            await unpin(self, _text(id, "id"))

    def context_usage(self) -> Accounting:
        """Count what the window is spent on.

        Returns:
            `size`, `window`, `free` and `reserve` in tokens, and `categories`, each with a name and its tokens.

        Example:
            usage = session.context_usage()
            assert sum(one.tokens for one in usage.categories) == usage.size
        """
        from perdure.context.accounting import account

        return account(self.view, self.facts())

    # --- its life -----------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Let background work end, for five seconds at most, and let go of the session. What was said is kept in any
        case; twice is no mistake.

        Example:
            session = await Session.in_memory()
            await session.close()
        """
        if self.is_closed:
            return
        try:
            if self._keepers is not None:
                await self._keepers.close(self)
        finally:
            with anyio.CancelScope(shield=True):
                await LiveSession.close(self)
                for model in self._connected.values():
                    await model.close()
                for store in self._stores:
                    await store.close()

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def _check_open(self) -> None:
        if self.is_closed:
            raise SessionClosed(f"the session {self.id} is closed: open it again with Session.open({self.id!r})")

    def _check_said(self) -> None:
        if not self.view.items:
            raise RecordRefused("nothing was said yet: append a message first")

    def _check_images(self, said: Sequence[Message]) -> None:
        """Raise for a picture that the model can't be shown: a placeholder would take its place without a word."""
        most = min(self.model.max_image_bytes or self.settings.max_media_bytes, self.settings.max_media_bytes)
        for message in said:
            if max(map(len, message.content), default=0) <= most:
                continue
            results = (block.value.parts() for block in message.blocks if isinstance(block.value, ToolResult))
            for block in (*message.blocks, *(part for parts in results for part in parts)):
                if (size := image_bytes(block)) > most:
                    bound = f"an image must have at most {most:,} bytes of base64, got {size:,}"
                    raise RecordRefused(f"{bound}: scale it down")

    def _check_tools(self, protocol: WireProtocol) -> None:
        """Raise where a tool of the prefix can't be said in this protocol: it would be missing without a word."""
        from perdure.context.request import refused_tool

        if self.view.front is not None and (why := refused_tool(self.view.front, protocol)):
            raise RecordRefused(why)

    def _check_answered(self, said: Sequence[Message]) -> None:
        """Raise when calls would be given up without anybody having said something else."""
        waiting = {call: self.view.calls[call] for call in self.view.open_calls}
        for result in (result for message in said for result in message.tool_results):
            waiting.pop(ToolUseId(result.tool_use_id), None)
        last = max((call.position for call in waiting.values()), default=len(self.view.items))
        if not waiting or self.view.prompt > last or any(map(spoken, said)):
            return
        named = ", ".join(f"{call.name} ({call.id})" for call in list(waiting.values())[:_NAMED])
        more = f" and {len(waiting) - _NAMED} more" if len(waiting) > _NAMED else ""
        raise RecordRefused(
            f"no result yet for {named}{more}: append what each tool gave, or say something else, which gives them up"
        )

    async def _with_reminders(self, said: list[Any]) -> list[Any]:
        """Return the messages, with what the session adds in front of a prompt (TURN-10)."""
        from perdure.engine.reminders import due_reminders

        system, given = list(takewhile(is_system, said)), list[Any](self._taken(said)[0])
        self._check_images(given)
        is_prompt = all(message.role == "user" for message in given)
        added = await due_reminders(self, "before") if is_prompt else []
        return [*system, *added, *given]

    def _leave_background_to_agent(self) -> None:
        """Leave it to an agent's loop to start what is due behind answers, and to add what stands before prompts."""
        self._is_an_agents = True

    def _background(self) -> Keepers | None:
        """Return the session's keepers, made when they are needed first; None where none may run."""
        if self._keepers is None and not self.is_read_only and _runs_tasks():
            self._keepers = background(self)
        return self._keepers

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[bool]:
        """Use the session alone; where this isn't part of another call, do as `run` does around it, and yield True.

        What ended in the background is recorded first, and behind a new answer what it makes due starts.
        """
        async with self._used() as is_own:
            is_own = is_own and not self._is_an_agents and self.services.agent is None
            if is_own and self._keepers is not None:
                await self._keepers.collect(self)
            responses = self.view.state.responses
            yield is_own
            if is_own and self.view.state.responses != responses and self._has_work():
                from perdure.engine.turn import rest_aside

                await rest_aside(self)
                if (keepers := self._background()) is not None:
                    keepers.after_reply(self)

    def _has_work(self) -> bool:
        """Whether an answer may make anything due; a short conversation in memory loads nothing for that (LIB-6)."""
        return bool(self.services.keepers) or self.view.size.base * UNITS_PER_TOKEN > LARGE_BYTES

    @asynccontextmanager
    async def _used(self) -> AsyncIterator[bool]:
        """Nobody else uses the session meanwhile; what the engine does for this call may, and gets False."""
        self._check_open()
        task = anyio.get_current_task().id
        if self._task is not None and self._task != task:
            raise SessionInUse(f"the session {self.id} is in use by another task: await one call before the next")
        before, self._task = self._task, task
        try:
            yield before is None
        finally:
            self._task = before


def options_of(
    kind: type[Session], settings: Settings | Mapping[str, Any] | None, services: Services | None
) -> SessionOptions:
    given = services or Services()
    return SessionOptions(settings=settings_of(settings), services=given, kind=kind, needs_folder=True)


def settings_of(given: Settings | Mapping[str, Any] | None) -> Settings:
    if given is None or isinstance(given, Settings):
        return given or Settings()
    if not isinstance(given, Mapping):
        raise BadSetting(f"settings must be Settings, or an object with some of them, not {type(given).__name__}")
    from perdure.adapters.config import UnusableValue, parse_setting

    names, values, standard = tuple(Settings.__dataclass_fields__), dict[str, Any](), Settings()
    for name, value in given.items():
        if name not in names:
            raise BadSetting(f"there is no setting {name!r:.60}{nearest(str(name), names)}")
        try:
            values[name] = None if value is None else parse_setting(name, value, getattr(standard, name))
        except UnusableValue as e:
            raise BadSetting(f"the setting {name}: {value!r:.60}: {e}") from None
    return replace(standard, **values)


def _runs_tasks() -> bool:
    """Whether work may go on beside this call: in asyncio; with trio, what is due is left to a compaction."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _open_exactly(home: Path | Home, session: Any, *, read_only: bool, parts: SessionOptions) -> LiveSession:
    """A program that names `customer-1` doesn't mean `customer-10`, so no part of an id will do. On files, a path is
    fine, and so is an id of ours without the word that it begins with.
    """
    from perdure.wiring.sessions import open_session

    if not isinstance(session, str | Path) or not str(session):
        raise BadSetting(f"session must be the id of a session, or the path of its folder, not {session!r:.60}")
    if isinstance(home, Path):
        found: str | Path = await anyio.to_thread.run_sync(_located, home, session)
    else:
        kept_in, found = home, os.fspath(session)
        if not await kept_in.has(found):
            raise SessionNotFound(f"there is no session {found!r}" + (f" of {kept_in.name!r}" if kept_in.name else ""))
    return await open_session(home, found, read_only=read_only, parts=parts)


def _located(home: Path, session: str | Path) -> Path:
    from perdure.adapters.journal import JOURNAL
    from perdure.adapters.journal.store import ID_PREFIX, SessionStore

    try:
        found = SessionStore(home).locate(session)
    except OSError as e:
        raise SessionNotFound(f"there is no session {str(session)!r:.60}: {e.strerror or e}") from None
    is_path = not isinstance(session, str) or os.sep in session or session.endswith(JOURNAL)
    if not is_path and session not in (found.name, found.name.removeprefix(ID_PREFIX)):
        raise SessionNotFound(f"there is no session {session!r}: did you mean {found.name!r}?")
    return found


async def remember_settings(session: LiveSession, given: Settings | Mapping[str, Any] | None) -> None:
    """Let what the session was opened with before hold where nothing else is given, and note what holds now."""
    remembered = session.view.state.settings
    given = _said_in(given) if isinstance(given, Settings) else given or {}
    kept = {name: value for name, value in remembered.items() if name in REMEMBERED and name not in given}
    settings = session.settings
    for name, value in kept.items():
        with suppress(BadSetting):  # of another version: the default holds
            settings = replace(settings, **{name: getattr(settings_of({name: value}), name)})
    if settings != session.settings:
        session.configure(settings)
    told = msgspec.json.decode(msgspec.json.encode(_said_in(settings)))
    if told != remembered and not session.is_read_only:
        await session.record(Noted(kind=SETTINGS, data=told))


def _said_in(settings: Settings) -> dict[str, Any]:
    """Return what of the settings is remembered and isn't what holds by default."""
    standard = Settings()
    return {name: value for name in sorted(REMEMBERED) if (value := getattr(settings, name)) != getattr(standard, name)}


async def _opened(
    make: Callable[[Path | Home], Awaitable[LiveSession]],
    home: Path | Home,
    own: Store | None,
    settings: Settings | Mapping[str, Any] | None = None,
) -> Session:
    """A session of a home; a store that only it uses is closed with it."""
    try:
        session = await make(home)
        try:
            await remember_settings(session, settings)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await session.close()
            raise
    except BaseException:
        if own is not None:
            with anyio.CancelScope(shield=True):
                await own.close()
        raise
    assert isinstance(session, Session)
    session._stores.extend([own] if own is not None else [])
    return session


def _definitions(tools: Any) -> Sequence[Any]:
    """Return the definitions, also of tools that have one; those of the Responses API as Chat Completions has them."""
    if isinstance(tools, str | bytes | Mapping) or not isinstance(tools, Sequence):
        raise RecordRefused(f"tools must be a list of definitions, not {type(tools).__name__}")
    return [_wrapped(getattr(one, "definition", one)) for one in tools]


def _wrapped(tool: Any) -> Any:
    kind = tool.get("type") if isinstance(tool, Mapping) else None
    if kind not in ("function", "custom") or "name" not in tool or "input_schema" in tool:
        return tool
    return {"type": kind, kind: {name: value for name, value in tool.items() if name != "type"}}


def _plain(one: Any) -> list[Any]:
    """Answers of the SDKs, whole answers of OpenAI's APIs, and items of one of them, as messages."""
    if isinstance(one, str) and not one.strip():
        raise RecordRefused("the message says nothing: its text is empty")
    if not isinstance(one, Mapping | Message | str) and callable(as_dict := getattr(one, "to_dict", None)):
        one = as_dict()
    if isinstance(one, Message) and not one.id and one.origin in ("user", "tool") and one.agent_id is None:
        check_shape(one)
        for block in one.blocks:
            check_written(block, one.role)
    if isinstance(one, Mapping) and one.get("object") == "response":
        return _response_messages(one)
    if isinstance(one, Mapping) and is_item(one):
        return [message_of_items([raw_of(one, "the item")])]
    return [openai_message(one) if isinstance(one, Mapping) and "choices" in one else one]


def _response_messages(response: Mapping[str, Any]) -> list[Message]:
    """A response of the Responses API as messages, which share its id and repeat its usage."""
    from perdure.adapters.providers.responses import reply_of_response

    try:
        reply = reply_of_response(dict(response), "")
    except ModelError as e:
        raise RecordRefused(f"the response is no whole answer: {e}") from None
    told = {"response_id": reply.response or None, "model": reply.model or None, "usage": reply.usage}
    return [
        Message.of(role, blocks, **told, stop_reason=reply.stop_reason)
        for role, blocks in answer_messages(reply.blocks) or [("assistant", ())]
    ]


def _prompts(prompt: Any) -> list[Any]:
    if prompt is None:
        return []
    return list(prompt) if isinstance(prompt, list | tuple) else [prompt]


def model_of(model: Any) -> Model:
    if isinstance(model, type) or not hasattr(model, "stream") or not hasattr(model, "about"):
        raise BadSetting(f"{model!r:.60} is no model: give its name, or what connect gives, as connect('anthropic:…')")
    found: Model = model
    return found


def _protocol(given: Any) -> WireProtocol:
    if given not in ("anthropic", "openai", "responses"):
        raise BadSetting(f"{given!r:.40} is no protocol here: write 'anthropic', 'openai' or 'responses'")
    protocol: WireProtocol = given
    return protocol


def _text(given: Any, what: str) -> str:
    if not isinstance(given, str):
        raise BadSetting(f"{what} must be a text, not {type(given).__name__}")
    return given


def _result(outcome: CompactionOutcome) -> CompactionResult:
    from perdure.engine.compact import CompactionSuccess

    if not isinstance(outcome, CompactionSuccess):
        return CompactionResult(done=False, reason=outcome.reason)
    boundary = outcome.boundary
    return CompactionResult(
        done=True,
        tokens_before=boundary.tokens_before,
        tokens_after=boundary.tokens_after,
        strategy=boundary.strategy,
        kept=len(boundary.kept),
    )
