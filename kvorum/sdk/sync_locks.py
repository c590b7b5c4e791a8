"""A held lock without `await` (kvorum/sdk/held_locks.py): the heartbeats run on the portal's
loop."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from kvorum.sdk.held_locks import AsyncLock
from kvorum.sdk.portal import Portal


class Lock:
    """A lock that is held. Release it, or use it in `with`."""

    __slots__ = ("_lock", "_portal")

    def __init__(self, portal: Portal, lock: AsyncLock) -> None:
        self._portal = portal
        self._lock = lock

    @property
    def id(self) -> int:
        """The procedure that holds it."""
        return self._lock.id

    @property
    def resource(self) -> str:
        return self._lock.resource

    @property
    def token(self) -> int:
        """The fencing token: larger than that of every earlier holder."""
        return self._lock.token

    @property
    def fence(self) -> tuple[str, int]:
        """For `Put` and `Delete`: the batch is refused (FENCED_OFF) once the lock has ended."""
        return self._lock.fence

    @property
    def held(self) -> bool:
        """Whether it is held, as far as this process can know."""

        async def look() -> bool:
            return self._lock.held

        return self._portal.call(look())

    def check(self) -> None:
        """Raises Refused (LOCK_LOST) unless it is held."""

        async def look() -> None:
            self._lock.check()

        self._portal.call(look())

    def release(self) -> None:
        """Give it back. A second time it does nothing."""
        self._portal.call(self._lock.release())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._portal.call(self._lock.__aexit__(kind, error, trace))
