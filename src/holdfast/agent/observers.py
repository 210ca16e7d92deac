"""The place from which an agent's tools can be watched, and files saved before they change (CKP-1, CKP-2).

An observer that raises is reported (`ObserverFailed`) and the call goes on: watching never stops the work. `prompt` is
the id of the user message that everything is done for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from holdfast.events import ObserverFailed
from holdfast.ports import Sink
from holdfast.transcript.messages import MessageId


class Observer(Protocol):
    """Sees the calls of an agent's tools.

    `before_call` and `after_call` stand around every call that may change something (Bash, Write, Edit, MultiEdit),
    never around two at a time; reading tools run in between and beside each other. `before_change` is awaited right
    before one of our tools writes these files (real paths), also when one doesn't exist yet.
    """

    @property
    def name(self) -> str: ...

    async def before_call(self, tool: str, arguments: dict[str, Any], prompt: MessageId) -> None: ...

    async def before_change(self, paths: tuple[str, ...], prompt: MessageId) -> None: ...

    async def after_call(self, tool: str, arguments: dict[str, Any], prompt: MessageId) -> None: ...


async def tell(observers: Sequence[Observer], sink: Sink, telling: Callable[[Observer], Awaitable[None]]) -> None:
    """Tell every observer, in their order."""
    for observer in observers:
        try:
            await telling(observer)
        except Exception as e:  # the boundary to observers: they never stop the work
            sink.emit(ObserverFailed(observer.name, type(e).__name__))
