"""The place from which an agent's tools can be watched, and files saved before they change (CKP-1, CKP-2).

An observer that raises is reported (`ObserverFailed`), noted in the journal, so that a later rewind and `holdfast
doctor` know of it (CKP-7), and the call goes on: watching never stops the work. `prompt` is the id of the user message
that everything is done for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.errors import HoldfastError, JournalError
from holdfast.events import ObserverFailed
from holdfast.transcript.messages import MessageId
from holdfast.transcript.records import OBSERVER_FAILED, Noted

if TYPE_CHECKING:
    from holdfast.agent.desk import Desk

_REASON_CHARS = 300


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


async def tell(desk: Desk, tool: str, telling: Callable[[Observer], Awaitable[None]]) -> None:
    """Tell every observer of a desk of a call, in their order."""
    for observer in desk.observers:
        try:
            await telling(observer)
        except Exception as e:  # the boundary to observers: they never stop the work
            desk.session.world.sink.emit(ObserverFailed(observer.name, type(e).__name__, tool))
            failure = {"observer": observer.name, "reason": _reason(e), "tool": tool, "prompt": desk.prompt}
            if failure not in desk.failures:
                desk.failures.append(failure)
                try:
                    await (desk.noting or desk.session).record(Noted(kind=OBSERVER_FAILED, data=failure))
                except JournalError:
                    desk.failures.remove(failure)  # noted when it fails again, and the call is not this one's to fail


def _reason(e: Exception) -> str:
    """An error in one line. What others raise may quote a file, so only its type is written down."""
    if isinstance(e, OSError):
        said = e.strerror or ""
    else:
        said = str(e) if isinstance(e, HoldfastError) else ""
    text = f"{type(e).__name__}: {said}" if said else type(e).__name__
    return " ".join(text.encode("utf-8", "replace").decode().split())[:_REASON_CHARS]
