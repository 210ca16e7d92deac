"""LangChain: a middleware by which an agent of `create_agent` runs for as long as it likes (LIB-4).

    from perdure.integrations.langchain import PerdureMiddleware

    agent = create_agent("openai:gpt-5.5", tools=[…], middleware=[PerdureMiddleware(home="home")])

Each conversation has a session of its own, whose id is kept in the agent's state; with a checkpointer, a thread so goes
on with its session, in another process as well.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypeVar, cast
from uuid import uuid4

import anyio.to_thread
from langchain.agents.middleware.types import (
    AgentMiddleware,
    AgentState,
    ExtendedModelResponse,
    ModelRequest,
    ModelResponse,
    PrivateStateAttr,
)
from langchain.tools import ToolRuntime
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
    convert_to_messages,
    convert_to_openai_messages,
)
from langchain_core.tools import BaseTool, StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.graph.message import REMOVE_ALL_MESSAGES

from perdure.engine.follow import ShownHistory, ShownMessage
from perdure.errors import PromptTooLong
from perdure.ports.home import Home
from perdure.settings import Settings
from perdure.sync import Session, recall_tool
from perdure.transcript.blocks import IMAGE_TYPES, NAME_CHARACTERS
from perdure.transcript.messages import Usage

Json = dict[str, Any]
T = TypeVar("T")
_MOST_OPEN = 64  # sessions; those that were used longest ago are closed, and opened again when they go on
_STATE = "perdure_session"
_UNNAMED = "unknown"  # a call without an id or a name, as a model may make it


class PerdureState(AgentState[Any]):
    """An agent's state with the id of its session."""

    perdure_session: NotRequired[Annotated[str, PrivateStateAttr]]


class PerdureMiddleware(AgentMiddleware[PerdureState, Any, Any]):
    """Keeps what the model is sent within its window, however long the conversation is.

    Old results of tools are shortened, and when that isn't enough, what is old is compacted into a record. Everything
    stays in a session on disk, from which the model gets back what it needs by the tool `recall`.

    Args:
        project: the folder that the conversation is about.
        home: where sessions are kept, as `Session.create` takes it; by default where the `perdure` command does.
        settings: `Settings`, or an object with some of them, such as `{"window_tokens": 60_000}`.
        persistent: whether the agent's own state is shortened as well, so that its checkpoints stay small; else each
            request is, and the state has everything that was ever said.
        recall: whether the model is offered the tool `recall`.

    Example:
        middleware = PerdureMiddleware(home="home", settings={"window_tokens": 60_000})
    """

    state_schema = PerdureState

    def __init__(
        self,
        project: str | Path = ".",
        *,
        home: str | Path | Home | None = None,
        settings: Settings | Mapping[str, Any] | None = None,
        persistent: bool = False,
        recall: bool = True,
    ) -> None:
        super().__init__()
        self.tools: Sequence[BaseTool] = [self._recall_tool()] if recall else []
        self._persistent = persistent
        self._sessions = _OpenSessions(project, home, settings, recall=recall)

    # --- the hooks ----------------------------------------------------------------------------------------------------

    def before_agent(self, state: PerdureState, runtime: Any) -> Json | None:
        """Give a new conversation the id of its session."""
        return None if state.get(_STATE) else {_STATE: f"langchain-{uuid4().hex}"}

    async def abefore_agent(self, state: PerdureState, runtime: Any) -> Json | None:
        """As `before_agent`."""
        return self.before_agent(state, runtime)

    def before_model(self, state: PerdureState, runtime: Any) -> Json | None:
        """Shorten the agent's own history, if it is to be."""
        return _outside_loop(partial(self._replaced, state)) if self._persistent else None

    async def abefore_model(self, state: PerdureState, runtime: Any) -> Json | None:
        """As `before_model`."""
        return await anyio.to_thread.run_sync(self._replaced, state) if self._persistent else None

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any] | AIMessage | ExtendedModelResponse[Any]:
        """Send what fits, and compact and ask again where the model finds it too long all the same."""
        fitting = _outside_loop(partial(self._fitting, request))
        try:
            response = handler(fitting)
        except Exception as e:
            if not _outside_loop(partial(self._refused, request, e)):
                raise
            response = handler(_outside_loop(partial(self._fitting, request)))
        self._sessions.used(_session_of(request.state), response)
        return response

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any] | AIMessage | ExtendedModelResponse[Any]:
        """As `wrap_model_call`."""
        fitting = await anyio.to_thread.run_sync(self._fitting, request)
        try:
            response = await handler(fitting)
        except Exception as e:
            if not await anyio.to_thread.run_sync(self._refused, request, e):
                raise
            response = await handler(await anyio.to_thread.run_sync(self._fitting, request))
        self._sessions.used(_session_of(request.state), response)
        return response

    def after_agent(self, state: PerdureState, runtime: Any) -> Json | None:
        """Hear the last answer, and let go of the session, so that any process can go on with it."""
        _outside_loop(partial(self._ended, state))
        return None

    async def aafter_agent(self, state: PerdureState, runtime: Any) -> Json | None:
        """As `after_agent`."""
        await anyio.to_thread.run_sync(self._ended, state)
        return None

    def close(self) -> None:
        """Let go of all sessions, such as those of runs that were interrupted. A later run opens its own again."""
        _outside_loop(self._sessions.close)

    # --- what they do, in threads without an event loop ---------------------------------------------------------------

    def _replaced(self, state: PerdureState) -> Json | None:
        messages = list(state["messages"])
        with self._sessions.of(_session_of(state)) as session:
            session.follow(_plain(messages), usage=self._sessions.usage(session.id))
            shown = session.shown("openai")
            if not shown.is_changed:
                return None
            kept = [_with_id(message) for message in _shown(shown, messages)]
            session.rebase(_plain(kept))
        return {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), *kept]}

    def _fitting(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        system, model = request.system_message, request.model
        name = getattr(model, "model_name", None) or getattr(model, "model", None)
        with self._sessions.of(_session_of(request.state)) as session:
            tools = [convert_to_openai_tool(tool) for tool in request.tools]
            session.set_prefix(model=name if isinstance(name, str) else None, tools=tools)
            given = [*([] if system is None else [system]), *request.messages]
            session.follow(_plain(given), usage=self._sessions.usage(session.id))
            shown = session.shown("openai")
        messages = list(_shown(shown, given))[len(given) - len(request.messages) :]
        return request.override(messages=cast("list[AnyMessage]", messages)) if shown.is_changed else request

    def _refused(self, request: ModelRequest[Any], error: Exception) -> bool:
        with self._sessions.of(_session_of(request.state)) as session:
            is_known = session.refused(error)
            return is_known or (isinstance(error, ContextOverflowError) and session.refused(PromptTooLong(str(error))))

    def _ended(self, state: PerdureState) -> None:
        with self._sessions.of(_session_of(state)) as session:
            session.follow(_plain(state["messages"]), usage=self._sessions.usage(session.id))
        self._sessions.let_go(_session_of(state))

    def _recall_tool(self) -> BaseTool:
        def recall(runtime: ToolRuntime[Any, Any], **arguments: Any) -> str:
            def recalled() -> str:
                with self._sessions.of(_session_of(runtime.state)) as session:
                    return recall_tool.run(session, arguments)

            return _outside_loop(recalled)

        definition = recall_tool.definition
        return StructuredTool.from_function(
            func=recall,
            name=definition["name"],
            description=definition["description"],
            args_schema=definition["input_schema"],
        )


class _OpenSessions:
    """The sessions of the conversations that are under way, each used by one thread at a time."""

    def __init__(
        self,
        project: str | Path,
        home: str | Path | Home | None,
        settings: Settings | Mapping[str, Any] | None,
        *,
        recall: bool,
    ) -> None:
        self._project, self._home, self._settings, self._recall = project, home, settings, recall
        self._lock = threading.RLock()
        self._open: OrderedDict[str, tuple[Session, threading.Lock]] = OrderedDict()
        self._users: Counter[str] = Counter()
        self._usage: dict[str, Usage] = {}

    @contextmanager
    def of(self, id: str) -> Iterator[Session]:
        """The session of this id, opened or made, which nobody closes, or has follow another history, meanwhile."""
        with self._lock:
            if id not in self._open:
                session = Session.named(id, self._project, home=self._home, settings=self._settings)
                if session.view.front is None:
                    session.set_prefix(tools=[recall_tool] if self._recall else [])  # until all of them are known
                self._open[id] = session, threading.Lock()
            self._open.move_to_end(id)
            self._users[id] += 1
            session, alone = self._open[id]
        try:
            with alone:
                yield session
        finally:
            with self._lock:
                self._users[id] -= 1
                for left in list(self._open)[:-_MOST_OPEN]:
                    self.let_go(left)

    def used(self, id: str, response: Any) -> None:
        """What the answer to the request that was made last took, as its provider reports it."""
        response = getattr(response, "model_response", response)
        messages = [response] if isinstance(response, AIMessage) else response.result
        reported = next((m.usage_metadata for m in messages if isinstance(m, AIMessage) and m.usage_metadata), None)
        if reported is not None:
            details = reported.get("input_token_details") or {}
            read, written = details.get("cache_read") or 0, details.get("cache_creation") or 0
            fresh = max(0, reported["input_tokens"] - read - written)
            self._usage[id] = Usage(fresh, reported["output_tokens"], read, written)

    def usage(self, id: str) -> Usage | None:
        """The same, once."""
        return self._usage.pop(id, None)

    def let_go(self, id: str) -> None:
        """Close a session that nobody uses, such as another run of the same thread; the last of them closes it."""
        with self._lock:
            if not self._users[id]:
                del self._users[id]
                self._usage.pop(id, None)
                if (opened := self._open.pop(id, None)) is not None:
                    opened[0].close()  # before anybody opens it again

    def close(self) -> None:
        """Close all of them."""
        for id in list(self._open):
            self.let_go(id)


def _session_of(state: Mapping[str, Any]) -> str:
    return str(state[_STATE])


def _outside_loop(work: Callable[[], T]) -> T:
    """Do something here, or where an event loop runs here, as it does in notebooks, in a thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return work()
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(work).result()


# --- LangChain's messages, and plain ones -----------------------------------------------------------------------------


def _plain(messages: Sequence[BaseMessage]) -> list[Json]:
    """The messages in OpenAI's words, one for each."""
    return [_plain_one(message) for message in messages]


def _plain_one(message: BaseMessage) -> Json:
    if isinstance(message, AIMessage):
        calls = [(call["id"], call["name"], json.dumps(call["args"])) for call in message.tool_calls]
        broken = [(call["id"], call["name"], call["args"] or "") for call in message.invalid_tool_calls]
        functions = [
            {
                "id": id or _UNNAMED,
                "type": "function",
                "function": {"name": (name or _UNNAMED)[:NAME_CHARACTERS], "arguments": arguments},
            }
            for id, name, arguments in (*calls, *broken)
        ]
        said: Json = {"role": "assistant", "content": str(message.text) or None}
        return {**said, "tool_calls": functions} if functions else said
    if isinstance(message, ToolMessage):
        return {"role": "tool", "tool_call_id": message.tool_call_id or _UNNAMED, "content": _content(message)}
    if isinstance(message, SystemMessage):
        return {"role": "system", "content": str(message.text)}
    return {"role": "user", "content": _content(message)}


def _content(message: BaseMessage) -> Any:
    """What a message says: texts and images in OpenAI's words, anything else as its JSON."""
    if isinstance(message.content, str):
        return message.content
    try:
        content = convert_to_openai_messages([message])[0]["content"]
        return content if isinstance(content, str) else [_readable(part) for part in content]
    except ValueError:  # a kind of block that it doesn't know
        blocks = (block if isinstance(block, dict) else {"type": "text", "text": block} for block in message.content)
        return [
            block if block.get("type") == "text" else {"type": "text", "text": json.dumps(block, default=str)}
            for block in blocks
        ]


def _readable(part: Json) -> Json:
    """A part of a message; words for a picture of a kind that only some models take."""
    url = str((part.get("image_url") or {}).get("url", ""))
    kind = url[5:].partition(";")[0]
    is_odd = url.startswith("data:") and (kind not in IMAGE_TYPES or url.endswith(","))
    return {"type": "text", "text": f"[a picture: {kind}]"} if is_odd else part


def _shown(shown: ShownHistory, given: Sequence[BaseMessage]) -> Iterator[BaseMessage]:
    """What the model is to see: LangChain's own messages, copies of them where they changed, and words of ours."""
    for one in shown.messages:
        own = [given[place] for place in one.given]
        yield from own if one.is_as_given else _changed(one, own)


def _changed(one: ShownMessage, own: Sequence[BaseMessage]) -> Iterator[BaseMessage]:
    for made in convert_to_messages(one.data):
        like = next((message for message in own if type(message) is type(made)), None)
        if like is None:
            yield made.model_copy(update={"additional_kwargs": {"lc_source": "perdure"}})
        else:
            names = [name for name in ("content", "tool_calls", "tool_call_id") if hasattr(made, name)]
            yield like.model_copy(update={name: getattr(made, name) for name in names})


def _with_id(message: BaseMessage) -> BaseMessage:
    return message if message.id else message.model_copy(update={"id": str(uuid4())})
