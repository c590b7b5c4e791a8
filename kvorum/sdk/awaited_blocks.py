"""What `db.transaction()`, `db.snapshot()` and `db.lock()` return: something that begins when it is
awaited, or entered with `async with`, which ends it, too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from types import TracebackType
from typing import Generic, Protocol, TypeVar


class Ends(Protocol):
    """What was begun; it ends itself, knowing how its block ended."""

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


Begun = TypeVar("Begun", bound=Ends)


class Beginning(Generic[Begun]):
    """Nothing has happened until it is awaited or entered."""

    __slots__ = ("_begin", "_begun")

    def __init__(self, begin: Callable[[], Awaitable[Begun]]) -> None:
        self._begin = begin
        self._begun: Begun | None = None

    def __await__(self) -> Generator[object, None, Begun]:
        return self._begin().__await__()

    async def __aenter__(self) -> Begun:
        self._begun = await self._begin()
        return self._begun

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._begun is not None:
            await self._begun.__aexit__(kind, error, trace)
