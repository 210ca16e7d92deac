"""What `Session.create(…)` gives: something to await, or to enter, and a clear word for who does neither."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

from perdure.errors import NotAwaited


class Closable(Protocol):
    """What is opened, and closed at the end."""

    async def close(self) -> None: ...


T = TypeVar("T", bound=Closable)


class Opening(Generic[T]):
    """Something on its way: `await` it, or write `async with` to have it closed as well.

    Args:
        what: what is written to have it, such as `Session.create(…)`, for the message to who forgot to await it.
        open_it: opens it; called once.
    """

    def __init__(self, what: str, open_it: Callable[[], Awaitable[T]]) -> None:
        self._what, self._open, self._opened = what, open_it, list[T]()

    def __await__(self) -> Generator[Any, Any, T]:
        return self._once().__await__()

    async def __aenter__(self) -> T:
        opened = await self._once()
        self._opened.append(opened)
        return opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._opened.pop().close()

    def __enter__(self) -> T:
        raise NotAwaited(f"write `async with {self._what} as …`; {_WITHOUT_LOOP}")

    def __exit__(self, *error: object) -> None: ...

    async def _once(self) -> T:
        return await self._open()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # who looks whether it is something else
            raise AttributeError(name)
        raise NotAwaited(
            f"{self._what} was not awaited: write `await {self._what}`, or `async with {self._what} as …`; "
            f"{_WITHOUT_LOOP}"
        )


_WITHOUT_LOOP = "without an event loop, import it from perdure.sync"
