"""What every class of sync.py is: an object of the asynchronous SDK, and the portal to its loop."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Generic, TypeVar

from kvorum.sdk.awaited_blocks import Beginning, Begun
from kvorum.sdk.portal import Portal

Inner = TypeVar("Inner")
T = TypeVar("T")


class Facade(Generic[Inner]):
    """`inner` without `await`, for any thread."""

    __slots__ = ("__weakref__", "_async", "_call", "_portal")

    def __init__(self, portal: Portal, inner: Inner) -> None:
        self._portal = portal
        self._call = portal.call
        self._async = inner

    def __repr__(self) -> str:
        return repr(self._async)

    def _begun(self, beginning: Beginning[Begun]) -> Begun:
        async def begin() -> Begun:
            return await beginning

        return self._call(begin())

    def _at_loop(self, ask: Callable[[], T]) -> T:
        """What only the loop's thread may ask."""

        async def asked() -> T:
            return ask()

        return self._call(asked())

    def _close(self, work: Coroutine[object, None, None], *, portal: bool) -> None:
        """`portal`: the loop ends with it. Nothing is done if that was closed already, or was
        inherited over fork(): nothing of it is ours.
        """
        if not self._portal.usable:
            work.close()
            return
        try:
            self._call(work)
        finally:
            if portal:
                self._portal.close()
