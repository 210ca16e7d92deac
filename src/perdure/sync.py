"""The face of the library for programs without an event loop: the same names, and nothing to await.

    from perdure.sync import Session

    with Session.create(".") as session:
        print(session.run("What does src/app.py do?", "anthropic:claude-sonnet-5-5").text)

Sessions and agents may be used from any thread that runs no event loop; calls for one object wait for each other.
A tool or a callback may read the session whose call it belongs to, but not wait for that call. A process that is
forked opens sessions of its own. Ctrl-C cancels the call, which keeps what was said until then. A model that is given
by its name is closed with them.

This file is written from `perdure.face` by tests/house/test_sync_face.py: change that, and run
`pytest tests/house/test_sync_face.py --rewrite-golden`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from perdure.face.agent import Agent as AgentFace
from perdure.face.homes import SharedStore as SharedStoreFace
from perdure.face.portal import Blocking, as_coroutine, asked_of, opened
from perdure.face.session import Session as SessionFace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from perdure.agent.progress import OnProgress, RunResult
    from perdure.agent.tools.tool import Tool
    from perdure.context.accounting import Accounting
    from perdure.context.replies import Delta, Reply, WireProtocol
    from perdure.context.view import ContextView
    from perdure.engine.follow import ShownHistory
    from perdure.engine.rewind import RewindResult, What
    from perdure.engine.session import Services
    from perdure.engine.tools import MemoryToolResult
    from perdure.engine.turn import PreparedRequest
    from perdure.errors import PerdureError
    from perdure.face.agent import Permissions
    from perdure.face.connecting import connect
    from perdure.face.session import CompactionResult, Said
    from perdure.ports.home import Home, SessionInfo
    from perdure.ports.session import FoundSessions, Model, SearchResults
    from perdure.settings import Settings
    from perdure.transcript.blocks import ToolUse
    from perdure.transcript.messages import Message, Usage


class SyncSession(Blocking[SessionFace]):
    """A conversation of any length with a model: everything said is kept, and the context always fits.

    Open one with `create`, `open` or `in_memory`, as `with Session.create(".") as session`. Then either let it
    ask a model (`run`), or ask one yourself: `append` what is said, `prepare` the request, send it, `append` the
    answer. Let one thread at a time hold a conversation.

    Example:
        with Session.in_memory() as session:
            session.set_prefix(model="claude-sonnet-5-5", system="You are helpful.")
            session.append("What is 6 times 7?")
            request = session.prepare()
            assert request.data["messages"][0]["role"] == "user"
    """

    @classmethod
    def create(
        cls,
        project: str | Path = ".",
        *,
        home: str | Path | Home | None = None,
        id: str | None = None,
        settings: Settings | Mapping[str, Any] | None = None,
        services: Services | None = None,
    ) -> SyncSession:
        """Open a new session of a project, on this machine's disk or where `home` says. It has one writer at a time.

        Args:
            project: the folder that the conversation is about.
            home: where sessions are kept: a folder, a database as `postgresql://user@host/name`, or a home of a
                `SharedStore`; by default where the `perdure` command keeps them.
            id: its name, by which it is opened again; by default one is made.
            settings: `Settings`, or an object with some of them, as in `{"window_tokens": 32_000}`.
            services: hooks, ways to compact and other extensions of your own.

        Returns:
            The session; `with` closes it.

        Raises:
            JournalError: there is a session of this id already, or the disk or the database refuses.
            BadSetting: a setting is unknown or can't have this value, or the project is no folder that is there.

        Example:
            with Session.create(".", home="home") as session:
                print(session.id)
        """
        return cls(
            *opened(
                "Session.create",
                lambda: as_coroutine(
                    SessionFace.create(project, home=home, id=id, settings=settings, services=services)
                ),
            )
        )

    @classmethod
    def open(
        cls,
        session: str | Path,
        *,
        home: str | Path | Home | None = None,
        read_only: bool = False,
        settings: Settings | Mapping[str, Any] | None = None,
        services: Services | None = None,
    ) -> SyncSession:
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
            The session; `with` closes it.

        Raises:
            SessionNotFound: there is no session of this id.
            SessionBusy: another process, or another part of this one, has it open.
            JournalError: it can't be read.

        Example:
            with Session.create(".", home="home", id="invoices") as session:
                session.append("Remember the number 7.")
            with Session.open("invoices", home="home") as session:
                assert session.messages()[0]["role"] == "user"
        """
        return cls(
            *opened(
                "Session.open",
                lambda: as_coroutine(
                    SessionFace.open(session, home=home, read_only=read_only, settings=settings, services=services)
                ),
            )
        )

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
    ) -> SyncSession:
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
            The session; `with` closes it.

        Raises:
            SessionBusy: another process, or another part of this one, has it open.
            JournalError: it can't be read, or the disk refuses.

        Example:
            for _ in range(2):
                with Session.named("ann@example.org", home="home") as session:
                    session.append("Hello")
            assert len(session.view.items) == 2
        """
        return cls(
            *opened(
                "Session.named",
                lambda: as_coroutine(
                    SessionFace.named(name, project, owner=owner, home=home, settings=settings, services=services)
                ),
            )
        )

    @classmethod
    def in_memory(
        cls,
        *,
        id: str = "memory",
        settings: Settings | Mapping[str, Any] | None = None,
        services: Services | None = None,
    ) -> SyncSession:
        """Open a session that ends with this process.

        Args:
            id: its name.
            settings: as for `create`.
            services: as for `create`.

        Returns:
            The session; `with` closes it.

        Raises:
            BadSetting: a setting is unknown or can't have this value.

        Example:
            session = Session.in_memory(settings={"window_tokens": 32_000})
            session.close()
        """
        return cls(
            *opened(
                "Session.in_memory",
                lambda: as_coroutine(SessionFace.in_memory(id=id, settings=settings, services=services)),
            )
        )

    def set_prefix(
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
            session.set_prefix(
                model="claude-sonnet-5-5",
                system="You are helpful.",
                tools=[{"name": "weather", "description": "The weather in a city.", "input_schema": schema}],
            )
        """
        self._wait(
            "Session.set_prefix", self._inner.set_prefix, model=model, system=system, tools=tools, dynamic=dynamic
        )

    def append(self, *messages: Any, also: tuple[Any, ...] = ()) -> None:
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
            session.append("What is the weather in Oslo?")
            use = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Oslo"}}
            session.append({"role": "assistant", "content": [use]})
            result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "rain"}
            session.append({"role": "user", "content": [result]})
        """
        self._wait("Session.append", self._inner.append, *messages, also=also)

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
            session.append("Hello")
            assert session.messages("openai")[-1] == {"role": "user", "content": "Hello"}
        """
        return self._now("Session.messages", self._inner.messages, format)

    def follow(self, messages: Sequence[Any], *, usage: Usage | Mapping[str, Any] | None = None) -> None:
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
            session.follow(history)
            history += [{"role": "assistant", "content": "Hi"}, {"role": "user", "content": "6 times 7?"}]
            session.follow(history)
            assert len(session.messages()) == 3
        """
        self._wait("Session.follow", self._inner.follow, messages, usage=usage)

    def shown(self, format: WireProtocol = "anthropic", *, asking: bool = True) -> ShownHistory:
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
            session.follow(history)
            shown = session.shown("openai")
            assert shown.data == history and not shown.is_changed
        """
        return self._wait("Session.shown", self._inner.shown, format, asking=asking)

    def rebase(self, messages: Sequence[Any]) -> None:
        """Hear that the owner of the history replaced all of it by what `shown` gave, so that it goes on from there.

        Args:
            messages: the history as it is now.

        Raises:
            RecordRefused: it isn't a list of messages.
            JournalError: the disk refuses, or the session is read only or closed.

        Example:
            session.follow([{"role": "user", "content": "Hello"}])
            history = session.shown("openai").data
            session.rebase(history)
        """
        self._wait("Session.rebase", self._inner.rebase, messages)

    def refused(self, error: Exception | str) -> bool:
        """Hear that the model refused a request, and compact if that was for its length.

        Args:
            error: what it said, which may tell the size of its window.

        Returns:
            Whether the context is smaller now, so that it is worth asking again.

        Raises:
            JournalError: the disk refuses, or the session is read only or closed.

        Example:
            assert not session.refused("429 too many requests")
        """
        return self._wait("Session.refused", self._inner.refused, error)

    def prepare(self, protocol: WireProtocol = "anthropic", *, stream: bool = False) -> PreparedRequest:
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
            session.append("Hello")
            request = session.prepare("openai")
            assert request.data["messages"][-1]["content"] == "Hello"
        """
        return self._wait("Session.prepare", self._inner.prepare, protocol, stream=stream)

    def run(
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
            reply = session.run("What is 6 times 7?", ScriptedModel(["42"]))
            assert reply.text == "42" and not reply.tool_uses
        """
        return self._wait("Session.run", self._inner.run, prompt, model, on_delta=on_delta)

    def open_calls(self) -> tuple[ToolUse, ...]:
        """Return the tool uses that wait for their results, such as those that a crash came between.

        `append` or `run` takes their results. Whatever else the user says first gives them up: the model is then told
        that there is no result.

        Returns:
            Each with `id`, `name` and `input`, as `Reply.tool_uses` has them.

        Example:
            use = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Oslo"}}
            session.append("Weather?", {"role": "assistant", "content": [use]})
            assert [one.name for one in session.open_calls()] == ["weather"]
        """
        return self._now("Session.open_calls", self._inner.open_calls)

    def compact(self, focus: str = "") -> CompactionResult:
        """Replace what is old by a record of it, now. What leaves can be recalled, and the compaction be undone.

        Args:
            focus: what the record should look at above all.

        Returns:
            What came of it. That there is too little to compact is no error: see its `reason`.

        Raises:
            CompactionRefused: compaction is switched off, or already runs.

        Example:
            result = session.compact(focus="the failing test")
            print(result.reason or f"{result.tokens_before} -> {result.tokens_after} tokens")
        """
        return self._wait("Session.compact", self._inner.compact, focus)

    def undo_compaction(self) -> CompactionResult:
        """Take back the last compaction; what was said since stays. Automatic compaction then waits as long as it can.

        Returns:
            The sizes before and after.

        Raises:
            CompactionRefused: there is none to undo, or one is running.

        Example:
            if session.compact().done:
                session.undo_compaction()
        """
        return self._wait("Session.undo_compaction", self._inner.undo_compaction)

    def rewind(self, to: str | int = -1) -> str:
        """Go back to before something that the user said; it leaves the context, with all that came after it.

        Args:
            to: -1 for the last prompt, -2 for the one before it, or the id of a message, or its beginning.

        Returns:
            The text of that prompt, to be said again in other words.

        Raises:
            RewindRefused: there is no such prompt on the way here; nothing was changed.

        Example:
            session.append("Delete the tests.")
            assert session.rewind() == "Delete the tests."
        """
        return self._wait("Session.rewind", self._inner.rewind, to)

    def undo_rewind(self) -> None:
        """Take back the last rewind: the context is as it was right before it.

        Raises:
            RewindRefused: there is none, or something was said since.

        Example:
            session.append("Go on.")
            session.rewind()
            session.undo_rewind()
        """
        self._wait("Session.undo_rewind", self._inner.undo_rewind)

    def recall(self, id: str) -> str:
        """Return the exact text of something that was said, also when it left the context long ago.

        Args:
            id: of a message, a tool's result, a summary or a stored text, or its beginning.

        Returns:
            The whole text.

        Raises:
            BadRecall: nothing here has this id, or several things have.

        Example:
            session.append(Message.of("user", "The number is 7.", id="m1"))
            assert session.recall("m1") == "The number is 7."
        """
        return self._wait("Session.recall", self._inner.recall, id)

    def search(self, query: str, *, limit: int = 10) -> SearchResults:
        """Find what was said, in this session and in the others of its project.

        Args:
            query: words.
            limit: how many hits at most.

        Returns:
            `hits`, best first; each has the `id` to recall, the `session`, and a `snippet`.

        Raises:
            PerdureError: there is nothing to search in.

        Example:
            session.append("The invoices are in ledger.py.")
            assert session.search("invoices").hits
        """
        return self._wait("Session.search", self._inner.search, query, limit=limit)

    def search_sessions(self, prompt: str, *, limit: int = 5) -> FoundSessions:
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
            found = session.search_sessions("send the invoices")
            assert not found.sessions
        """
        return self._wait("Session.search_sessions", self._inner.search_sessions, prompt, limit=limit)

    def pin(self, text: str) -> str:
        """Keep a text word for word through every compaction.

        Args:
            text: what to keep.

        Returns:
            The pin's id, for `unpin`.

        Raises:
            PinRefused: it is empty, or beyond what pins may take.

        Example:
            pinned = session.pin("Never touch the migrations.")
            session.unpin(pinned)
        """
        return self._wait("Session.pin", self._inner.pin, text)

    def unpin(self, id: str) -> None:
        """Take a pin back.

        Args:
            id: as `pin` gave it, or its beginning.

        Raises:
            PinRefused: there is no such pin.

        Example:
            session.unpin(session.pin("Never touch the migrations."))
        """
        self._wait("Session.unpin", self._inner.unpin, id)

    def context_usage(self) -> Accounting:
        """Count what the window is spent on.

        Returns:
            `size`, `window`, `free` and `reserve` in tokens, and `categories`, each with a name and its tokens.

        Example:
            usage = session.context_usage()
            assert sum(one.tokens for one in usage.categories) == usage.size
        """
        return self._now("Session.context_usage", self._inner.context_usage)

    def close(self) -> None:
        """Let background work end, for five seconds at most, and let go of the session. What was said is kept in any
        case; twice is no mistake.

        Example:
            session = Session.in_memory()
            session.close()
        """
        self._leave("Session.close")

    @property
    def id(self) -> str:
        """The id of the session, by which `open` finds it again."""
        return self._inner.id

    @property
    def view(self) -> ContextView:
        """What the model sees; read it freely."""
        return self._inner.view

    def __enter__(self) -> SyncSession:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class SyncAgent(Blocking[AgentFace]):
    """A small coding agent in a folder: it reads, edits, runs commands and searches until the work is done.

    Make one with `Agent.create`, as `with Agent.create(".", model="anthropic:claude-…") as agent`.

    Attributes:
        session: its conversation, a `Session`.

    Example:
        from perdure.testing import ScriptedModel
        with Agent.create(".", model=ScriptedModel(["There is nothing to do."]), in_memory=True) as agent:
            done = agent.run("Tidy up.")
            assert done.text == "There is nothing to do." and done.stopped == "done"
    """

    @classmethod
    def create(
        cls,
        folder: str | Path = ".",
        *,
        model: Model | str,
        permissions: Permissions | None = None,
        resume: str | Path | None = None,
        home: str | Path | Home | None = None,
        in_memory: bool = False,
        system: str = "",
        tools: Sequence[Tool[Any]] = (),
        settings: Settings | Mapping[str, Any] | None = None,
        services: Services | None = None,
        on_progress: OnProgress | None = None,
    ) -> SyncAgent:
        """Open an agent for a folder, with a new session or an earlier one.

        Args:
            folder: where it works.
            model: whom it asks: a model, or its name, as `connect` takes it.
            permissions: what it may do; by default what the settings say, and nothing that would have to be asked for.
            resume: the session to go on with: its id, the beginning of one, or a path.
            home: where sessions are kept, as `Session.create` takes it; by default where the `perdure` command keeps
                them. In a database, what is about files of this machine is kept as long as the agent: checkpoints,
                outputs of commands, and what sub-agents say to their models.
            in_memory: keep nothing; the session ends with this process.
            system: what to add to its system prompt.
            tools: more tools, beside its own. They run without a question, unless a rule says `ask` or `deny`.
            settings: `Settings`, or an object with some of them.
            services: hooks and other extensions of your own.
            on_progress: sees answers, tools and background work as they come.

        Returns:
            The agent; `with` closes it.

        Raises:
            BadSetting: a setting, a rule or the name of the model can't be used.
            SessionNotFound: no session is meant by `resume`, or more than one.
            SessionBusy: another process has it open.

        Example:
            from perdure.testing import ScriptedModel
            allowed = Permissions(mode="plan")
            with Agent.create(".", model=ScriptedModel(["Yes."]), permissions=allowed, in_memory=True) as agent:
                assert agent.run("Is this a repository?").text == "Yes."
        """
        return cls(
            *opened(
                "Agent.create",
                lambda: as_coroutine(
                    AgentFace.create(
                        folder,
                        model=model,
                        permissions=permissions,
                        resume=resume,
                        home=home,
                        in_memory=in_memory,
                        system=system,
                        tools=tools,
                        settings=settings,
                        services=services,
                        on_progress=on_progress,
                    )
                ),
            )
        )

    def run(self, prompt: str | None = None) -> RunResult:
        """Work on a prompt until it is done.

        Args:
            prompt: what to do; None goes on with what is there, such as after an error.

        Returns:
            How it ended: `text`, the last answer; `stopped`, why it ended (`done`, `interrupted`, `turns` …); `calls`,
            how many tools were used.

        Raises:
            ModelGaveUp: the model didn't answer, and nothing helped. The session stays valid.
            ContextBlocked: the context is full and nothing more can go.

        Example:
            done = agent.run("Run the tests and mend what fails.")
            print(done.text)
        """
        return self._wait("Agent.run", self._inner.run, prompt)

    def interrupt(self) -> None:
        """End the prompt that is worked on, at once, from any thread; what was done stays, and `run` returns.

        Example:
            agent.interrupt()  # nothing is being worked on, so nothing happens
        """
        self._at_once(self._inner.interrupt)

    def allow(self, *rules: str) -> None:
        """Allow more from now on.

        Args:
            *rules: as in `Permissions.allow`.

        Raises:
            BadSetting: it is no rule.

        Example:
            agent.allow("Bash(pytest:*)")
        """
        self._now("Agent.allow", self._inner.allow, *rules)

    def rewind(self, to: str | int = -1, *, what: What = "both") -> RewindResult:
        """Go back to before a prompt: the files, the conversation, or both.

        Args:
            to: -1 for the last prompt, -2 for the one before it, or the id of a message, or its beginning.
            what: `code` for the files, `conversation`, or `both`.

        Returns:
            What was done: `prompt`, to be said again in other words, and `files`.

        Raises:
            RewindRefused: it can't be done; nothing was changed, and the message says why.

        Example:
            agent.run("Tidy up.")
            assert agent.rewind(what="conversation").prompt == "Tidy up."
        """
        return self._wait("Agent.rewind", self._inner.rewind, to, what=what)

    def undo_rewind(self) -> RewindResult:
        """Take back the last rewind, files and conversation.

        Returns:
            What was done.

        Raises:
            RewindRefused: there is none, or it can't be done.

        Example:
            agent.run("Tidy up.")
            agent.rewind(what="conversation")
            agent.undo_rewind()
        """
        return self._wait("Agent.undo_rewind", self._inner.undo_rewind)

    def close(self) -> None:
        """End background work and close the session; a model that was given by its name, and a database, as well.

        Example:
            agent.close()
        """
        self._leave("Agent.close")

    @property
    def session(self) -> SyncSession:
        """Its conversation; it is closed with the agent."""
        return SyncSession(self._inner.session, self._portal, within=self)

    def __enter__(self) -> SyncAgent:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class SyncSharedStore(Blocking[SharedStoreFace]):
    """A database, or a folder, that is opened once and shared by any number of sessions, each in the home of a tenant.

    Open one with `SharedStore.at`, as `with SharedStore.at("postgresql://…") as store`, and give its homes to
    `Session.create`, `open` and `named`, to `Agent.create` and to integrations. Close the sessions first.

    Attributes:
        name: where it is, without a user and a password.

    Example:
        with SharedStore.at("store") as store:
            for person in ("alice", "bob"):
                with Session.create(".", home=store.home(person), id="letters") as session:
                    session.append(f"I am {person}.")
            assert store.name.endswith("store")
    """

    @classmethod
    def at(cls, place: str | Path, *, connections: int = 8) -> SyncSharedStore:
        """Open a store; a database is asked whether it has the schema of this version.

        Args:
            place: `postgresql://user@host/database`, or a folder. A password is better kept in $PGPASSWORD, in
                ~/.pgpass or in a service file.
            connections: to a database, at most so many at a time. A call needs one for a moment, a session none.

        Returns:
            The store; `with` closes it.

        Raises:
            BadSetting: there can't be a store there, or a package is missing.
            JournalError: the database can't be reached or refuses, or isn't of this version's schema.

        Example:
            with SharedStore.at("store") as store:
                with Session.named("a letter to Ann", home=store.home()) as session:
                    session.append("Dear Ann,")
        """
        return cls(*opened("SharedStore.at", lambda: as_coroutine(SharedStoreFace.at(place, connections=connections))))

    def home(self, tenant: str = "") -> Home:
        """Return the home of a tenant, for `home=`. Tenants see nothing of each other.

        Args:
            tenant: any name, such as that of a customer; without one, the home of the program itself.

        Returns:
            The home, as `home=` takes it. It holds nothing by itself.

        Raises:
            BadSetting: it isn't a text.
            JournalError: the store can't have a home of this name.

        Example:
            with SharedStore.at("store") as store:
                with Session.create(".", home=store.home("alice")) as session:
                    session.append("Hello")
        """
        return self._now("SharedStore.home", self._inner.home, tenant)

    def sessions(self, tenant: str = "", *, project: str | Path | None = None, limit: int = 100) -> list[SessionInfo]:
        """List the sessions of a tenant, the last written first.

        Args:
            tenant: whose they are.
            project: only those about this folder.
            limit: at most so many.

        Returns:
            Of each its `id`, `title`, `last_prompt`, `messages`, `modified`, `bytes` and more.

        Raises:
            JournalError: the store can't be read.

        Example:
            with SharedStore.at("store") as store:
                with Session.create(".", home=store.home("alice")) as session:
                    session.append("Hello")
                assert [one.last_prompt for one in store.sessions("alice", limit=5)] == ["Hello"]
        """
        return self._wait("SharedStore.sessions", self._inner.sessions, tenant, project=project, limit=limit)

    def delete(self, session: str, tenant: str = "") -> None:
        """Delete a session with all that it keeps, for good.

        Args:
            session: its whole id.
            tenant: whose it is.

        Raises:
            SessionNotFound: there is none of this id.
            SessionBusy: somebody has it open.
            JournalError: the store refuses.

        Example:
            with SharedStore.at("store") as store:
                Session.create(".", home=store.home("alice"), id="letters").close()
                store.delete("letters", "alice")
        """
        self._wait("SharedStore.delete", self._inner.delete, session, tenant)

    def tenants(self) -> list[str]:
        """List the tenants that keep anything.

        Returns:
            Their names, sorted.

        Raises:
            JournalError: the store can't be read.

        Example:
            with SharedStore.at("store") as store:
                assert store.tenants() == []
        """
        return self._wait("SharedStore.tenants", self._inner.tenants)

    def delete_tenant(self, tenant: str) -> None:
        """Delete all that a tenant keeps, for good.

        Args:
            tenant: its name; one that nothing is kept of is no mistake.

        Raises:
            SessionBusy: one of its sessions is being written, where the store is a folder.
            JournalError: the store refuses.

        Example:
            with SharedStore.at("store") as store:
                store.delete_tenant("alice")
        """
        self._wait("SharedStore.delete_tenant", self._inner.delete_tenant, tenant)

    def close(self) -> None:
        """Let go of the store; its sessions have to be closed by then. Twice is no mistake.

        Example:
            store = SharedStore.at("store")
            store.close()
        """
        self._leave("SharedStore.close")

    @property
    def name(self) -> str:
        """Where it is, without a user and a password."""
        return self._inner.name

    def __enter__(self) -> SyncSharedStore:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class SyncRecallTool:
    """The tool by which a model gets back what left its context.

    Attributes:
        name: `recall`, as the model calls it.

    Example:
        session.set_prefix(tools=[recall_tool])
        session.append("The number is 7.")
        text = recall_tool.run(session, {"query": "number"})
        assert "The number is 7." in text
    """

    name = "recall"

    @property
    def definition(self) -> dict[str, Any]:
        """As the Messages API takes it; `set_prefix` takes the tool itself."""
        from perdure.engine.tools import recall_tool

        return recall_tool.definition

    def run(self, session: SyncSession, arguments: Mapping[str, Any] | str) -> str:
        """Answer a call of the model.

        Args:
            session: whose past is asked for.
            arguments: the input of the tool use, or the JSON of it, as OpenAI's APIs give it.

        Returns:
            The content of the result. What can't be done is said in it: a model can only go on from what it reads.

        Example:
            assert "recall failed" in recall_tool.run(session, {"id": "unknown"})
        """
        from perdure.engine.tools import recall_tool

        return asked_of(session, "recall_tool.run", recall_tool.run, arguments)


recall_tool = SyncRecallTool()


class SyncMemoryTool:
    """The tool by which a model keeps memories that outlive the session.

    Attributes:
        name: `memory`, as the model calls it.
        native: how Anthropic's API knows the tool by itself.

    Example:
        session.set_prefix(tools=[memory_tool])
        answer = memory_tool.run(session, {"command": "view", "path": "/memories"})
        assert answer.is_error  # a session in memory has no memories
    """

    name = "memory"
    native: ClassVar[Mapping[str, str]] = {"type": "memory_20250818", "name": "memory"}

    @property
    def definition(self) -> dict[str, Any]:
        """As the Messages API takes it; `set_prefix` takes the tool itself."""
        from perdure.engine.tools import memory_tool

        return memory_tool.definition

    def run(self, session: SyncSession, arguments: Mapping[str, Any] | str) -> MemoryToolResult:
        """Answer a call of the model.

        Args:
            session: whose memories are meant, those of its project and of its user.
            arguments: the input of the tool use, or the JSON of it, as OpenAI's APIs give it.

        Returns:
            `text`, the content of the result, and `is_error`. What can't be done is said in it.

        Example:
            answer = memory_tool.run(session, {"command": "view", "path": "/memories"})
            print(answer.text)
        """
        from perdure.engine.tools import memory_tool

        return asked_of(session, "memory_tool.run", memory_tool.run, arguments)


memory_tool = SyncMemoryTool()


Session = SyncSession
Agent = SyncAgent
SharedStore = SyncSharedStore

__all__ = [
    "Agent",
    "CompactionResult",
    "ContextView",
    "Message",
    "PerdureError",
    "Permissions",
    "PreparedRequest",
    "Reply",
    "Session",
    "Settings",
    "SharedStore",
    "Tool",
    "Usage",
    "connect",
    "memory_tool",
    "recall_tool",
]


def __getattr__(name: str) -> Any:
    """What both faces have, loaded when it is first used."""
    if name not in __all__:
        raise AttributeError(f"module 'perdure.sync' has no attribute {name!r}")
    return getattr(import_module("perdure"), name)
