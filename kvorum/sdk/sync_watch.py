"""A watch without `await` (kvorum/api/watching.py), through a portal."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from kvorum.api.watching import AsyncWatch, Event
from kvorum.sdk.portal import Portal


class Watch:
    """`AsyncWatch` without `await`: an iterator without an end, and a context manager."""

    def __init__(self, portal: Portal, watch: AsyncWatch) -> None:
        self._portal, self._watch = portal, watch
        self._closed = False

    @property
    def position(self) -> int:
        """Every transaction at or below was told: where another watch goes on."""
        return self._watch.position

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        if self._closed:
            raise StopIteration
        return self._portal.call(self._watch.next())

    def poll(self, timeout_ms: int) -> Event | None:
        """The next event or part, or None if there is none within `timeout_ms`."""
        return self._portal.call(self._watch.poll(timeout_ms))

    def close(self) -> None:
        """End the watch. A second time it does nothing."""
        self._closed = True
        if self._portal.usable:
            self._portal.call(self._watch.close())

    def __enter__(self) -> Self:
        self._portal.call(self._watch.begin())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
