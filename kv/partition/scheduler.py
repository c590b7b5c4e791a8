"""One drain per pass of the event loop over all partitions that have requests.

`call_soon` runs after every socket of this pass was read, so requests batch by themselves; no task,
no future, no timer per request. Replies of applied entries go through `after_apply`: the host first
starts the next sync, then replies are written while the disk works.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from kv.base.limits import DRAIN_REPLY_BYTES
from kv.base.ports import Clock
from kv.partition.entry import Entry
from kv.partition.ports import Connection


class Drained(Protocol):
    def drain(self) -> None: ...


class Scheduler:
    """Shared by all partitions of a node."""

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object],
        clock: Clock,
        defer: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        """`defer` runs a callback after the next sync was started (raft.RaftHost.defer); without
        it, call_soon does.
        """
        self.clock = clock
        self.dirty: dict[Connection, None] = {}  # connections with replies to flush
        self.reply_room = DRAIN_REPLY_BYTES  # what reads may still answer in this pass
        self._call_soon = call_soon
        self._defer = call_soon if defer is None else defer
        self._touched: list[Drained] = []
        self._scheduled = self._running = False
        self._applied: list[Entry] = []
        self.between: Callable[[], None] = _nothing
        """Called between slices of a pass: what cannot wait for its end. The node sets it."""

    def touch(self, machine: Drained) -> None:
        """The machine has requests. It calls this once per drain."""
        self._touched.append(machine)
        self._schedule()

    def wake(self) -> None:
        """There are replies to flush; nothing to do if that is about to happen anyway."""
        if not self._running:
            self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._call_soon(self.run)

    def run(self) -> None:
        """Drain every touched partition, then flush every connection that got a reply."""
        self._scheduled = False
        self._running = True
        self.reply_room = DRAIN_REPLY_BYTES
        touched, self._touched = self._touched, []
        for machine in touched:
            machine.drain()
            self.between()
        self._running = False
        self._flush()

    def after_apply(self, entry: Entry) -> None:
        """Send the replies of an applied entry once the next sync was started."""
        if not self._applied:
            self._defer(self._reply)
        self._applied.append(entry)

    def _reply(self) -> None:
        applied, self._applied = self._applied, []
        dirty = self.dirty
        for entry in applied:
            for conn, row in entry.replies:
                conn.reply(row)
                dirty[conn] = None
            for conn, row in entry.quiet:
                conn.reply(row)
                dirty[conn] = None
        self._flush()

    def _flush(self) -> None:
        dirty, self.dirty = self.dirty, {}
        between = self.between
        for conn in dirty:
            conn.flush()
            between()


def _nothing() -> None:
    return


class Callback:
    """A connection that hands the outcome of an internal command to a function."""

    __slots__ = ("_done",)

    def __init__(self, done: Callable[[list[Any]], None]) -> None:
        self._done = done

    def reply(self, row: list[Any]) -> None:
        self._done(row)

    def flush(self) -> None:
        """Nothing is queued."""

    def ready(self, wake: Callable[[], None]) -> bool:
        return True
