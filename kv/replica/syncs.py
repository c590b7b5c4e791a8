"""Syncs of the state DB for whoever waits for one: one is in flight, and the next covers everybody
who came meanwhile.

A sync that failed is the node's end (`on_fatal`): nobody hears that anything is durable.
"""

from __future__ import annotations

from collections.abc import Callable

from raft.api import Syncer

Done = Callable[[], None]


class Syncs:
    """All on the loop."""

    def __init__(self, syncer: Syncer, on_fatal: Callable[[BaseException], object]) -> None:
        self._syncer, self._on_fatal = syncer, on_fatal
        self._waiting: list[Done] = []
        self._flying: list[Done] = []
        self._closed = False

    def after(self, done: Done) -> None:
        """Call `done`, later, when everything written so far is durable."""
        self._waiting.append(done)
        if not self._flying:
            self._start()

    def _start(self) -> None:
        self._flying, self._waiting = self._waiting, []
        self._syncer.start(self._synced)

    def close(self) -> None:
        """Nobody waits any more; how a sync in flight ends means nothing."""
        self._closed = True

    def _synced(self, error: BaseException | None) -> None:
        if self._closed:
            return
        if error is not None:
            self._on_fatal(error)
            return
        flying, self._flying = self._flying, []
        if self._waiting:
            self._start()
        for done in flying:
            done()
