"""Views made by hand, for tables over the pure core."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

from perdure.context.models import UNKNOWN, ModelSpec
from perdure.context.policy import Facts, thresholds
from perdure.context.view import ContextView, project
from perdure.settings import Settings
from perdure.transcript.blocks import block_of
from perdure.transcript.messages import Message, MessageId, ResponseId, Usage, content_of
from perdure.transcript.records import Edit, Front, Record

UNBOUND = replace(UNKNOWN, thinking_is_bound=False)
NOW = 1_000_000.0


class Talk:
    """Builds the records of a conversation; each call returns the message, and `view` folds what there is."""

    def __init__(self) -> None:
        self.records: list[Record] = [Front(model="m")]
        self._count = count(1)

    def message(self, role: Any, *blocks: dict[str, Any], **more: Any) -> Message:
        origin = more.pop("origin", "model" if role == "assistant" else "user")
        content = content_of([block_of(block) for block in blocks])
        identity = MessageId(f"m{next(self._count)}")
        message = Message(id=identity, role=role, content=content, origin=origin, at=more.pop("at", NOW), **more)
        self.records.append(message)
        return message

    def user(self, words: str = "go on", **more: Any) -> Message:
        return self.message("user", text(words), **more)

    def model(self, *blocks: dict[str, Any], response: str | None = None, usage: int | None = None) -> Message:
        more: dict[str, Any] = {"response_id": ResponseId(response or f"r{len(self.records)}")}
        if usage is not None:
            more["usage"] = Usage(usage, 1)
        return self.message("assistant", *blocks, **more)

    def result(self, identity: str, content: Any, **more: Any) -> Message:
        block = {"type": "tool_result", "tool_use_id": identity, "content": content, **more}
        return self.message("user", block, origin="tool")

    def ran(self, identity: str, name: str, content: Any, *, input: dict[str, Any] | None = None, **more: Any) -> None:
        """A call and its result."""
        self.model(call(identity, name, **(input or {})))
        self.result(identity, content, **more)

    def answered(self) -> None:
        """The model answers, so that all before has been sent."""
        self.model(text("ok"))

    @property
    def view(self) -> ContextView:
        return project(self.records)


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def call(identity: str, name: str = "Read", **input: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": identity, "name": name, "input": input}


def thinking(words: str = "hm", signature: str = "sig") -> dict[str, Any]:
    return {"type": "thinking", "thinking": words, "signature": signature}


def image(data: str = "iVBORw0KGgo=") -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}


def facts(window: int = 200_000, *, model: ModelSpec = UNBOUND, now: float | None = NOW, **settings: Any) -> Facts:
    chosen = Settings(**settings)
    return Facts(settings=chosen, limits=thresholds(chosen, model, window, "flag"), model=model, now=now)


def after(view: ContextView, edits: tuple[Edit, ...]) -> ContextView:
    return project(edits, onto=view)  # type: ignore[arg-type]


def shown(view: ContextView, identity: str) -> Any:
    """What the model sees of a result: its text."""
    value = view.shown_result(view.results[identity])  # type: ignore[index]
    return None if value is None else value.text()
