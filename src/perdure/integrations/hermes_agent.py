"""A context engine for hermes-agent: it compacts by Perdure's rules, without a model, and gives back what left (LIB-7).

hermes-agent finds it by its entry point. In the `config.yaml` of its home:

    plugins: {enabled: [perdure]}
    context: {engine: perdure}
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from agent.context_engine import ContextEngine

from perdure.context.models import model_spec
from perdure.context.policy import thresholds
from perdure.errors import PerdureError, SessionBusy
from perdure.face.session import settings_of
from perdure.ports.home import Home
from perdure.settings import Settings
from perdure.sync import Session, recall_tool

NAME: Final = "perdure"
_LOG = logging.getLogger("perdure")
_Messages = list[dict[str, Any]]


def register(context: Any) -> None:
    """Offer the engine to hermes-agent, which calls this.

    Args:
        context: of the plugin, as hermes-agent gives it.
    """
    context.register_context_engine(PerdureContextEngine())


class PerdureContextEngine(ContextEngine):  # type: ignore[misc]  # its package is in an environment of its own
    """Keeps a conversation of hermes-agent in its window.

    What it replaces by a record is kept in a session of Perdure, and comes back through the tool `recall`, or with
    `perdure recall` where the toolset `context_engine` isn't enabled.

    Args:
        project: the folder that conversations are about; by default the one that hermes-agent works in.
        home: where Perdure keeps things, as `Session.create` takes it; by default where the `perdure` command does.
        settings: as `Session.create` takes them.

    Example:
        def register(context):
            context.register_context_engine(PerdureContextEngine(settings={"summary_budget_tokens": 6_000}))
    """

    def __init__(
        self,
        project: str | Path | None = None,
        *,
        home: str | Path | Home | None = None,
        settings: Settings | Mapping[str, Any] | None = None,
    ) -> None:
        self._project, self._home, self._settings = project, home, settings_of(settings)
        self._model = ""
        self._id = ""  # of the conversation
        self._session: Session | None = None
        self._usage: dict[str, Any] | None = None  # of the last answer, until a history with it is followed
        self._offers_recall = False

    @property
    def name(self) -> str:
        """How `context.engine` of hermes-agent's configuration names it."""
        return NAME

    # --- copies -------------------------------------------------------------------------------------------------------

    def clone_for_agent(self) -> PerdureContextEngine:
        """Another engine of the same settings, for an agent of its own: nothing of a conversation is shared."""
        clone = PerdureContextEngine(self._project, home=self._home, settings=self._settings)
        clone._know(self._model, self.context_length)
        return clone

    def __deepcopy__(self, memo: dict[int, Any]) -> PerdureContextEngine:
        """Versions of hermes-agent that don't know `clone_for_agent` copy what a plugin registered."""
        return self.clone_for_agent()

    # --- sizes --------------------------------------------------------------------------------------------------------

    def update_model(self, model: str, context_length: int, *more: Any, **about: Any) -> None:
        """Hear which model answers, and how large its window is.

        Args:
            model: its name.
            context_length: in tokens.
            more: its address and key, which aren't needed.
            about: likewise.
        """
        self._know(model, context_length)
        self._usage = None  # another model counts otherwise
        self.last_prompt_tokens = 0
        self._close()  # it is opened again with the new window

    def update_from_response(self, usage: dict[str, Any]) -> None:
        """Hear what an answer used.

        Args:
            usage: in tokens, under the names that hermes-agent gives them.
        """
        self.last_prompt_tokens = int(usage.get("prompt_tokens") or 0)
        self.last_completion_tokens = int(usage.get("completion_tokens") or 0)
        self.last_total_tokens = int(usage.get("total_tokens") or 0)
        if self.last_prompt_tokens:
            self._usage = {
                "prompt_tokens": self.last_prompt_tokens,
                "completion_tokens": self.last_completion_tokens,
                "prompt_tokens_details": {"cached_tokens": int(usage.get("cache_read_tokens") or 0)},
            }

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        """Whether it is time to compact.

        Args:
            prompt_tokens: of the next prompt, as far as is known; None: as large as the last one.
        """
        tokens = self.last_prompt_tokens if prompt_tokens is None else prompt_tokens
        return 0 < self.threshold_tokens <= tokens

    def _know(self, model: str, context_length: int) -> None:
        self._model, self.context_length = model, context_length
        if context_length:
            window = self._settings.window_tokens or context_length
            limits = thresholds(self._settings, model_spec(model), window, "setting")
            self.threshold_tokens = limits.trigger
            self.threshold_percent = limits.trigger / context_length

    # --- compaction ---------------------------------------------------------------------------------------------------

    def compress(
        self,
        messages: _Messages,
        current_tokens: int | None = None,
        focus_topic: str | None = None,
        force: bool = False,
        memory_context: str = "",
    ) -> _Messages:
        """Replace the older part of the messages by a record of it.

        Args:
            messages: all of the conversation, in OpenAI's words.
            current_tokens: their size, as hermes-agent estimates it; Perdure has its own.
            focus_topic: what the record should look at above all.
            force: whether a person asked for it, which changes nothing here.
            memory_context: what hermes-agent's memory wants to be kept, which goes into the record.

        Returns:
            The messages that the conversation goes on with; those that were given, where nothing can be gained.
        """
        try:
            session = self._followed(messages)
            done = session.compact(focus="\n".join(filter(None, (focus_topic, memory_context.strip()))))
            shown = session.shown("openai")
            if not shown.is_changed:
                _LOG.info("hermes-agent: nothing to compact: %s", done.reason)
                return messages
            session.rebase(shown.data)
        except (PerdureError, OSError) as e:
            _LOG.warning("hermes-agent: not compacted: %s", e)
            return messages
        self.compression_count += done.done
        return shown.data

    def _followed(self, messages: _Messages) -> Session:
        """The session of the conversation, in which all of this was said."""
        if self._session is None:
            self._session = self._opened()
            tools = [recall_tool] if self._offers_recall else []
            self._session.set_prefix(model=self._model or None, tools=tools)
        usage, self._usage = self._usage, None
        self._session.follow(messages, usage=usage)
        return self._session

    def _opened(self) -> Session:
        settings = replace(self._settings, window_tokens=self._settings.window_tokens or self.context_length or None)
        project = self._project or os.environ.get("TERMINAL_CWD") or "."
        if not self._id:
            return Session.create(project, home=self._home, settings=settings)
        try:
            return Session.named(self._id, project, home=self._home, settings=settings)
        except SessionBusy as e:
            _LOG.warning("hermes-agent: %s; what leaves this conversation is kept in memory alone", e)
            return Session.in_memory(settings=settings)

    # --- recall -------------------------------------------------------------------------------------------------------

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """The tool `recall`. It is asked for where the toolset `context_engine` is enabled."""
        self._offers_recall = True
        about = recall_tool.definition
        return [{"name": about["name"], "description": about["description"], "parameters": about["input_schema"]}]

    def handle_tool_call(self, name: str, args: dict[str, Any], **about: Any) -> str:
        """Answer a call of the tool.

        Args:
            name: of the tool.
            args: as the model gave them.
            about: `messages`, the conversation as it is now.

        Returns:
            An object in JSON, with `result` or `error`.
        """
        if name != recall_tool.name:
            return json.dumps({"error": f"there is no tool {name!r} here, only {recall_tool.name}"})
        try:
            messages: Sequence[dict[str, Any]] | None = about.get("messages")
            session = self._followed(list(messages or ()))
            return json.dumps({"result": recall_tool.run(session, args)}, ensure_ascii=False)
        except (PerdureError, OSError) as e:
            return json.dumps({"error": f"recall failed: {e}"}, ensure_ascii=False)

    # --- the life of a conversation -----------------------------------------------------------------------------------

    def on_session_start(self, session_id: str, **about: Any) -> None:
        """Hear which conversation it is. Behind a compaction it goes on under another id, and is still the same.

        Args:
            session_id: its id.
            about: among others `boundary_reason`, which tells of a compaction.
        """
        if about.get("boundary_reason") != "compression" and session_id != self._id:
            self._close()
            self._id = session_id

    def on_session_end(self, session_id: str, messages: _Messages) -> None:
        """Hear that a conversation is over.

        Args:
            session_id: its id.
            messages: the conversation as it is now.
        """
        if self._session is not None:
            try:
                self._followed(messages)
            except (PerdureError, OSError) as e:
                _LOG.warning("hermes-agent: the end of the conversation isn't kept: %s", e)
        self._close()

    def on_session_reset(self) -> None:
        """Hear that a new conversation begins."""
        super().on_session_reset()
        self._usage = None
        self._close()

    def _close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None
