"""A callback for LiteLLM: requests of its asynchronous functions, and of its proxy, are brought into the model's window
(LIB-4).

The application owns the history and sends all of it each time; a session of Perdure follows it, and the request gets
what the model is to see. The application's own list stays as it is.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import litellm
from litellm.integrations.custom_logger import CustomLogger

from perdure.context.replies import WireProtocol
from perdure.engine.tools import recall_tool
from perdure.errors import PerdureError, RecordRefused
from perdure.face.homes import path_of
from perdure.face.session import Session, settings_of
from perdure.ports.home import Home
from perdure.settings import Settings
from perdure.transcript.history import chain, chain_seed

_LOG = logging.getLogger("perdure")
_MOST_OPEN: Final = 256
_MOST_CALLS: Final = 4_096
# The functions of LiteLLM whose requests have a history, by the names of their calls: where it is, in whose words, and
# where the system prompt is.
_CALLS: Final[dict[str, tuple[str, WireProtocol, str]]] = {
    "acompletion": ("messages", "openai", ""),
    "anthropic_messages": ("messages", "anthropic", "system"),
    "aresponses": ("input", "responses", "instructions"),
}


@dataclass(slots=True, eq=False)
class _FollowedConversation:
    """A conversation, its session, and by what the next request of it is known."""

    key: tuple[str, str]  # whose it is, and its name, or its session's id
    is_named: bool
    session: Session
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    head: bytes = b""  # the link behind the messages of the last request …
    shown: bytes = b""  # … and behind what the model saw in their place, if it was anything else
    usage: Any = None  # of the last answer, until a history with it is followed


class PerdureHook(CustomLogger):  # type: ignore[misc]  # its package is in an environment of its own
    """Brings what `litellm.acompletion`, `anthropic_messages` and `aresponses` send into the model's window.

    A conversation is known by `litellm_session_id`, where the call has one; else by its messages: a request that goes
    on from the last one of a conversation belongs to it.

    Args:
        project: the folder that conversations are about.
        home: where Perdure keeps things, as `Session.create` takes it; by default where the `perdure` command does.
        settings: as `Session.create` takes them. Without `window_tokens`, LiteLLM's own table tells the window.

    Example:
        litellm.callbacks = [PerdureHook(".")]
        answer = await litellm.acompletion(model="openai/gpt-5.5", messages=history, litellm_session_id="x")
    """

    def __init__(
        self,
        project: str | Path = ".",
        *,
        home: str | Path | Home | None = None,
        settings: Settings | Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self._project, self._home, self._settings = path_of(project, "project"), home, settings_of(settings)
        self._opening = asyncio.Lock()
        self._open: OrderedDict[tuple[str, str], _FollowedConversation] = OrderedDict()
        self._heads: dict[bytes, _FollowedConversation] = {}  # those without a name, by where a next request may go on
        self._calls: OrderedDict[str, _FollowedConversation] = OrderedDict()  # that wait for their answers

    # --- what an application uses -------------------------------------------------------------------------------------

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The tool `recall` in OpenAI's words, to be offered beside those of the application."""
        about = recall_tool.definition
        described = {name: about[name] for name in ("name", "description")}
        return [{"type": "function", "function": {**described, "parameters": about["input_schema"]}}]

    async def recall(self, session_id: str, arguments: str | Mapping[str, Any]) -> str:
        """Answer a call of the tool `recall`.

        Args:
            session_id: of the conversation, as its calls have it in `litellm_session_id`.
            arguments: as the model gave them.

        Returns:
            The content of the result. What can't be done is said in it.

        Example:
            messages.append({"role": "tool", "tool_call_id": call.id, "content": await hook.recall(id, arguments)})
        """
        known = self._open.get(("", session_id))
        if known is None:
            return f"recall failed: nothing was asked under the litellm_session_id {session_id!r:.80} yet"
        async with known.lock:
            return await recall_tool.run(known.session, arguments)

    async def close(self) -> None:
        """Let go of all sessions. What was said stays, and a conversation that has an id goes on from it."""
        while self._open:
            await self._let_go(next(iter(self._open)))

    # --- what LiteLLM calls -------------------------------------------------------------------------------------------

    async def async_pre_call_deployment_hook(self, kwargs: dict[str, Any], call_type: Any) -> dict[str, Any] | None:
        """Bring a request in shape. LiteLLM calls this before each attempt.

        Args:
            kwargs: the arguments of the call.
            call_type: which of LiteLLM's functions it is.

        Returns:
            The arguments with what the model is to see; None to leave them, also where that can't be told.
        """
        known = _CALLS.get(getattr(call_type, "value", str(call_type)))
        if known is None or not isinstance(kwargs.get(known[0]), list):
            if known is not None and known[0] not in kwargs:
                _LOG.warning("LiteLLM: a request goes as it came: its hooks see what is given by name: %s=…", known[0])
            return None
        try:
            return await self._shaped(kwargs, *known)
        except (PerdureError, OSError) as e:
            _LOG.warning("LiteLLM: a request goes as it came: %s", e)
            return None

    async def async_log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        """Hear what an answer used. LiteLLM calls this behind each.

        Args:
            kwargs: what LiteLLM knows of the call.
            response_obj: the answer.
            start_time: when it was asked.
            end_time: when it had come.
        """
        known = self._calls.pop(str(kwargs.get("litellm_call_id")), None)
        usage = getattr(response_obj, "usage", None)
        if known is not None and usage is not None:
            known.usage = _plain(usage)

    async def async_log_failure_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        """Hear that a request was refused. One that was too long teaches the window, and the next one is shorter.

        Args:
            kwargs: what LiteLLM knows of the call; `exception` is why.
            response_obj: nothing.
            start_time: when it was asked.
            end_time: when it was refused.
        """
        known, error = self._calls.pop(str(kwargs.get("litellm_call_id")), None), kwargs.get("exception")
        if known is not None and error is not None:
            try:
                async with known.lock:
                    await known.session.refused(str(error))
            except (PerdureError, OSError) as e:
                _LOG.warning("LiteLLM: after a prompt that was too long: %s", e)

    # --- conversations ------------------------------------------------------------------------------------------------

    async def _shaped(
        self, kwargs: dict[str, Any], where: str, protocol: WireProtocol, front: str
    ) -> dict[str, Any] | None:
        owner = _owner(kwargs)
        history = [_plain(one) for one in kwargs[where]]
        links = _links(owner, history)
        known = await self._conversation(kwargs, owner, links)
        async with known.lock:
            if known.shown == links[-1]:
                return None  # LiteLLM tries again with what it was given
            await _say_front(known.session, kwargs, {"system": kwargs.get(front) or ""} if front else {})
            usage, known.usage = known.usage, None
            await known.session.follow(history, usage=usage)
            shown = await known.session.shown(protocol)
            for link in (known.head, known.shown):
                self._heads.pop(link, None)
            known.head, known.shown = links[-1], _links(owner, shown.data)[-1] if shown.is_changed else b""
            if not known.is_named:
                self._heads |= {link: known for link in (known.head, known.shown) if link}
        self._calls[str(kwargs.get("litellm_call_id"))] = known
        if len(self._calls) > _MOST_CALLS:
            self._calls.popitem(last=False)
        return {**kwargs, where: shown.data} if shown.is_changed else None

    async def _conversation(
        self, kwargs: Mapping[str, Any], owner: str, links: Sequence[bytes]
    ) -> _FollowedConversation:
        """The conversation that a request belongs to, opened or begun."""
        name = str(kwargs.get("litellm_session_id") or "")
        async with self._opening:
            if name:
                known = self._open.get((owner, name))
            else:
                known = next(filter(None, map(self._heads.get, reversed(links))), None)
            if known is None:
                session = await self._session(str(kwargs.get("model") or ""), name, owner)
                known = _FollowedConversation((owner, name or session.id), bool(name), session)
                self._open[known.key] = known
            self._open.move_to_end(known.key)
            if len(self._open) > _MOST_OPEN:
                await self._let_go(next(iter(self._open)))
            return known

    async def _session(self, model: str, name: str, owner: str) -> Session:
        settings = self._settings
        if not settings.window_tokens:
            settings = replace(settings, window_tokens=_window(model))
        if not name:
            return await Session.create(self._project, home=self._home, settings=settings)
        return await Session.named(name, self._project, owner=owner, home=self._home, settings=settings)

    async def _let_go(self, key: tuple[str, str]) -> None:
        known = self._open.pop(key)
        async with known.lock:
            for link in (known.head, known.shown):
                self._heads.pop(link, None)
            await known.session.close()


async def _say_front(session: Session, kwargs: Mapping[str, Any], system: dict[str, Any]) -> None:
    """Say what stands before the messages. Tools that only their provider knows aren't counted."""
    model = str(kwargs.get("model") or "").rpartition("/")[2] or None
    try:
        await session.set_prefix(model=model, tools=kwargs.get("tools") or [], **system)
    except RecordRefused:
        await session.set_prefix(model=model, tools=[], **system)


def _owner(kwargs: Mapping[str, Any]) -> str:
    """Whose request it is: a proxy has several users, and one's name of a conversation isn't another's."""
    for name in ("litellm_metadata", "metadata"):
        about = kwargs.get(name)
        if isinstance(about, Mapping) and about.get("user_api_key_hash"):
            return str(about["user_api_key_hash"])
    return ""


def _plain(one: Any) -> Any:
    """A message as plain data: histories hold answers as LiteLLM gave them, too."""
    dump = getattr(one, "model_dump", None)
    return dump(exclude_none=True) if callable(dump) else one


def _links(owner: str, history: Sequence[Any]) -> list[bytes]:
    """The links behind each message of a history, by which it is known again."""
    said = (json.dumps(one, sort_keys=True, default=str).encode() for one in history)
    return chain(chain_seed("litellm", owner), (hashlib.sha256(one).digest() for one in said))


def _window(model: str) -> int | None:
    """As LiteLLM's table has it; None for a model that it doesn't know."""
    named = litellm.model_cost.get(model) or litellm.model_cost.get(model.partition("/")[2]) or {}
    window = named.get("max_input_tokens")
    return window if isinstance(window, int) and window > 0 else None
